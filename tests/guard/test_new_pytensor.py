"""The guard on what came with PyTensor 2 and 3: labelled arrays, batched operations, optimizers."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from theanoguard import GuardError, GuardMode

BAD = np.array([[1.0, 2.0], [-1.0, 2.0]])


def labelled():
    px = pytest.importorskip("pytensor.xtensor")
    x = px.xtensor("x", dims=("row", "col"), shape=(2, 2))
    return [x], px.math.log(x).sum("col"), [BAD]


def vectorized():
    x, rows = pt.dvector("x"), pt.dmatrix("rows")
    return [rows], vectorize_graph(pt.log(x).sum(), {x: rows}), [BAD]


def batched():
    a = pt.dtensor3("a")
    return [a], pt.log(pt.linalg.cholesky(a)[:, 1, 0]), [np.array([[[4.0, -2.0], [-2.0, 2.0]]])]


def einsum():
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    return [a, b], pt.log(pt.einsum("ij,jk->ik", a, b)), [np.eye(2), BAD]


@pytest.mark.parametrize("backend", ["c", "numba"])
@pytest.mark.parametrize(
    ("build", "index"),
    [(labelled, (1, 0)), (vectorized, (1, 0)), (batched, (0,)), (einsum, (1, 0))],
)
def test_the_logarithm_is_named(build, index, backend):
    inputs, output, values = build()
    f = pytensor.function(inputs, output, mode=GuardMode(backend=backend))
    with pytest.raises(GuardError) as caught:
        f(*values)
    cause = caught.value.explanation.cause
    assert (cause.op, cause.expression, cause.index) == ("log", "log(-1.0)", index)
    assert cause.source.file == __file__


def test_the_result_of_an_optimizer_is_checked():
    optimize = pytest.importorskip("pytensor.tensor.optimize")
    x, lowest = pt.dscalar("x"), pt.dscalar("lowest")
    found, _ = optimize.minimize_scalar(pt.log(x - lowest) ** 2, x)
    f = pytensor.function([x, lowest], found, mode=GuardMode())
    with pytest.raises(GuardError, match="NaN inside minimize_scalar"):
        f(1.0, 1e9)


@pytest.mark.parametrize("linker", ["cvm", "vm", "cvm_nogc", "numba"])
def test_the_linker_of_the_configuration_is_guarded(linker):
    x = pt.dvector("x")
    with pytensor.config.change_flags(mode="Mode", linker=linker):
        f = pytensor.function([x], pt.log(x), mode=GuardMode(backend="auto"))
    with pytest.raises(GuardError, match=r"log\(-1.0\)"):
        f([1.0, -1.0])
