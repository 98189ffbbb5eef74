"""Whatever a graph is made of, no step of an explanation fails."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.in_python

x, K = pt.dscalar("x"), pt.dscalar("K")
A, b = pt.dmatrix("A"), pt.dvector("b")

# By name: a step of a loop, and a bad start and parameter.
STEPS = {
    "pole": (lambda s, k: s / (1 - s / k), 1.0, 3.0),
    "log": (lambda s, k: pt.log(s - k), 2.0, 1.0),
    "sqrt": (lambda s, k: pt.sqrt(s - k), 1.0, 0.7),
    "grows": (lambda s, k: s**2 * k, 1e5, 3.0),
    "power": (lambda s, k: (s - k) ** 1.5, 2.0, 1.0),
    "shrinks": (lambda s, k: pt.log(pt.exp(-s * s / k)), 30.0, 0.5),
    "softmax": (lambda s, k: pt.log(pt.exp(s) / (pt.exp(s) + pt.exp(k))), 800.0, 900.0),
    "angle": (lambda s, k: pt.arccos(s * k), 0.3, 2.0),
}

# By name: a formula of a matrix and a vector.
MATRICES = {
    "solve": lambda: pt.linalg.solve(A, b),
    "inverse": lambda: pt.linalg.inv(A) @ b,
    "cholesky": lambda: pt.linalg.cholesky(A) @ b,
    "log determinant": lambda: pt.log(pt.linalg.det(A)),
    "slogdet": lambda: pt.linalg.slogdet(A)[1] + b,
    "log of a solution": lambda: pt.log(pt.linalg.solve(A, b)),
    "eigenvalues": lambda: pt.log(pt.linalg.eigh(A)[0]),
    "singular values": lambda: pt.log(pt.linalg.svd(A, compute_uv=False)),
    "quadratic form": lambda: pt.sqrt(b @ pt.linalg.inv(A) @ b),
    "pseudo-inverse": lambda: pt.log(pt.linalg.pinv(A) @ b),
}
VALUES = {
    "singular": np.ones((2, 2)),
    "zero": np.zeros((2, 2)),
    "indefinite": np.array([[1.0, 2.0], [2.0, 1.0]]),
    "of NaN": np.array([[1.0, np.nan], [np.nan, 1.0]]),
    "tiny": np.array([[1e-200, 0], [0, 1e-200]]),
}


def failed(inputs, outputs, values):
    """The steps of the explanation that failed; None if nothing is explained."""
    try:
        fn = pytensor.function(inputs, outputs, mode=GuardMode(), on_unused_input="ignore")
        fn(*values)
    except GuardError as error:
        assert str(error)
        return error.explanation.failed
    except np.linalg.LinAlgError:
        return ()
    return ()


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_in_a_loop(name, gradient):
    step, start, parameter = STEPS[name]
    states = pytensor.scan(
        step, outputs_info=[x], non_sequences=[K], n_steps=5, return_updates=False
    )
    outputs = [pt.log(states[-1]).sum()]
    if gradient:
        outputs += pytensor.grad(states[-1], [x, K])
    assert failed([x, K], outputs, [start, parameter]) == ()


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", MATRICES)
def test_of_a_matrix(name, values):
    output = MATRICES[name]().sum()
    for outputs in (output, pytensor.grad(output, b, disconnected_inputs="ignore")):
        assert failed([A, b], outputs, [VALUES[values], np.array([1.0, 2.0])]) == ()
