"""The guard on what came with PyTensor 2 and 3: labelled arrays, batched operations, optimizers."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import ifelse

pytestmark = pytest.mark.on_30

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


def minimum(optimize, x, lowest):
    return optimize.minimize(pt.sum(pt.log(x - lowest) ** 2), x, method="BFGS")[0]


def lowest_scalar(optimize, x, lowest):
    start = x[0]
    return optimize.minimize_scalar(pt.log(start**2 + 2 - lowest), start)[0]


def root(optimize, x, lowest):
    return optimize.root(pt.log(x - lowest), x)[0]


def root_scalar(optimize, x, lowest):
    start = x[0]
    return optimize.root_scalar(pt.log(start - lowest), start, method="secant")[0]


def compiled(build, **settings):
    optimize = pytest.importorskip("pytensor.tensor.optimize")
    x, lowest = pt.dvector("x"), pt.dscalar("lowest")
    return pytensor.function([x, lowest], build(optimize, x, lowest), **settings)


@pytest.mark.parametrize("backend", ["c", "numba"])
@pytest.mark.parametrize("build", [minimum, lowest_scalar, root, root_scalar])
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_the_objective_of_an_optimizer_is_guarded(build, backend):
    mode = GuardMode(backend=backend)
    f = compiled(build, mode=mode)
    plain = compiled(build, mode="NUMBA" if backend == "numba" else "CVM")
    start = np.array([1.5, 1.5])
    np.testing.assert_array_equal(f(start, -1.0), plain(start, -1.0))
    with pytest.raises(GuardError, match=r"NaN in log: log\(-") as caught:
        f(start, 1e9)
    assert caught.value.explanation.cause.source.file == __file__
    told = str(caught.value).replace("\n", " ")
    assert re.search(r"Call \d+ of the (objective|function) of (minimize|root)", told)
    assert len(mode.events) == 1
    np.testing.assert_array_equal(f(start, -1.0), plain(start, -1.0))


@pytest.mark.parametrize("backend", ["c", "numba"])
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_equations_of_numbers_keep_their_lines(backend):
    """Numba has one node compute all numbers, and PyTensor replaces its outputs one by one."""
    optimize = pytest.importorskip("pytensor.tensor.optimize")
    x, c = pt.dvector("x"), pt.dscalar("c")
    grown = pt.exp(x[0]) - c
    width = pt.sqrt(x[1]) - x[0]
    roots, _ = optimize.root(pt.stack([grown, width]), x, method="hybr", jac=True)
    f = pytensor.function([x, c], roots, mode=GuardMode(backend=backend))
    with pytest.raises(GuardError) as caught:
        f(np.array([0.5, -1.0]), 2.0)
    provenance = caught.value.explanation.cause.provenance
    assert provenance.source.text == "width = pt.sqrt(x[1]) - x[0]"
    assert provenance.own_source


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_a_search_through_bad_values_is_no_error_where_results_count():
    f = compiled(minimum, mode=GuardMode(judge="result"))
    # (a NaN ends the search, which returns where it began)
    assert np.isfinite(f(np.array([1.0, 1.0]), 5.0)).all()


@pytest.mark.parametrize("linker", ["cvm", "vm", "cvm_nogc", "numba"])
def test_the_linker_of_the_configuration_is_guarded(linker):
    x = pt.dvector("x")
    with pytensor.config.change_flags(mode="Mode", linker=linker):
        f = pytensor.function([x], pt.log(x), mode=GuardMode(backend="auto"))
    with pytest.raises(GuardError, match=r"log\(-1.0\)"):
        f([1.0, -1.0])


@pytest.mark.parametrize("backend", ["c", "numba"])
def test_a_branch_has_the_name_of_the_user(backend):
    """PyTensor 3.3 makes a graph of each branch, and calls the operation LazyIfElse."""
    c, x = pt.dscalar("c"), pt.dvector("x")
    chosen = ifelse(c > 0, pt.log(x) * 2, pt.exp(x) * 3)
    f = pytensor.function([c, x], chosen + 1, mode=GuardMode(backend=backend))
    f(1.0, np.ones(2))
    with pytest.raises(GuardError, match=r"^NaN in log: log\(-1\.0\)") as caught:
        f(1.0, -np.ones(2))
    assert "IfElse" not in str(caught.value)
