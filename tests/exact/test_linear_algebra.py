"""Exact values of operations on matrices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor import linalg

import theanoguard

pytestmark = pytest.mark.on_30

a = pt.dmatrix("a")
b = pt.dmatrix("b")
v = pt.dvector("v")
stack = pt.dtensor3("stack")

MODE = Mode("py", "fast_compile")
RNG = np.random.default_rng(3)
SQUARE = RNG.normal(size=(4, 4))
POSITIVE = SQUARE @ SQUARE.T
RIGHT = RNG.normal(size=(4, 2))
VALUES = {a: POSITIVE, b: RIGHT, v: RIGHT[:, 0], stack: np.stack([POSITIVE, 2 * POSITIVE])}

AGREE = {
    "det": linalg.det(a),
    "inv": linalg.inv(a),
    "pinv": linalg.pinv(b),
    "pinv of a wide matrix": linalg.pinv(b.T),
    "slogdet": linalg.slogdet(a)[1],
    "sign of slogdet": linalg.slogdet(-a[:3, :3])[0],
    "solve": linalg.solve(a, b),
    "solve, symmetric": linalg.solve(a, v, assume_a="sym"),
    "solve, positive": linalg.solve(a, b, assume_a="pos"),
    "solve_triangular": linalg.solve_triangular(a, b, lower=True),
    "solve_triangular, upper with unit diagonal": linalg.solve_triangular(a, v, unit_diagonal=True),
    "cho_solve": linalg.cho_solve((linalg.cholesky(a), True), b),
    "cholesky": linalg.cholesky(a),
    "upper cholesky": linalg.cholesky(a, lower=False),
    "eigenvalues": linalg.eigh(a)[0],
    "eigenvectors": linalg.eigh(a)[1],
    "eigvalsh": linalg.eigvalsh(a, None),
    "singular values": linalg.svd(b, compute_uv=False),
    "expm": linalg.expm(a / 10),
    "kron": linalg.kron(a, b),
    "matrix_power": linalg.matrix_power(a, 3),
    "a stack": linalg.inv(stack),
    "products of stacks": stack @ stack,
    "a stack of solutions": linalg.solve(stack, b),
    "gradient of logdet": pytensor.grad(linalg.slogdet(a)[1], a),
    "gradient of solve": pytensor.grad(linalg.solve(a, v).sum(), a),
    "gradient of cholesky": pytensor.grad(pt.log(pt.diag(linalg.cholesky(a))).sum(), a),
}


@pytest.mark.parametrize("name", AGREE)
def test_agrees_with_floats(name):
    output = AGREE[name]
    found = theanoguard.exact(output, VALUES)
    assert (found.known == "number").all()
    assert [note.kind for note in found.notes if note.kind == "live"] == []
    f = pytensor.function(list(VALUES), output, mode=MODE, on_unused_input="ignore")
    np.testing.assert_allclose(f(*VALUES.values()), found.mid, rtol=1e-9, atol=1e-12)


SINGULAR = np.array([[0.1, 0.3], [0.2, 0.6]])
HILBERT = 1.0 / (np.arange(14)[:, None] + np.arange(14) + 1)
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])

NO_VALUE = {
    "inverse of a singular matrix": (linalg.inv(a), SINGULAR),
    "solution of a singular system": (linalg.solve(a, a), SINGULAR),
    "cholesky of an indefinite matrix": (linalg.cholesky(a), INDEFINITE),
    "cholesky of a singular matrix": (linalg.cholesky(a), np.ones((2, 2))),
    "system that is not positive definite": (linalg.solve(a, a, assume_a="pos"), INDEFINITE),
    "triangle with a zero": (linalg.solve_triangular(a, a), np.array([[1.0, 2.0], [2.0, 0.0]])),
    "a NaN": (linalg.inv(a), np.array([[1.0, np.nan], [0.0, 1.0]])),
}


@pytest.mark.parametrize("name", NO_VALUE)
def test_no_value(name):
    output, value = NO_VALUE[name]
    assert (theanoguard.exact(output, {a: value}).known == "none").all()


def test_singular_in_floats_only():
    """The Hilbert matrix has an inverse, and its determinant is not 0."""
    product = linalg.inv(a) @ a
    found = theanoguard.exact(product, {a: HILBERT})
    np.testing.assert_allclose(found.mid, np.eye(14), atol=1e-15)
    assert theanoguard.exact(linalg.det(a), {a: HILBERT}).known == "number"


def test_determinant_of_a_singular_matrix_is_0():
    found = theanoguard.exact([linalg.det(a), pt.log(linalg.det(a))], {a: SINGULAR})
    assert [str(one) for one in found] == ["0", "-inf"]


def test_eigenvectors_of_a_double_eigenvalue_are_unknown():
    found = theanoguard.exact(linalg.eigh(a), {a: np.eye(3)})
    assert (found[0].known == "number").all()
    assert (found[1].known == "unknown").all()
