"""What is carried for certain, held against the compiled operations."""

import itertools

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor import blas
from pytensor.tensor.elemwise import Elemwise

from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.operations import Kind, carries, is_float, makes
from theanoguard.operations.facts import SCALARS

pytestmark = pytest.mark.on_30

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 3.0, -700.0, 800.0, 1e308, np.inf, -np.inf, np.nan]
BAD = {Kind.NAN: [np.nan], Kind.INF: [np.inf, -np.inf]}
N_OPERANDS = {
    ps.Add: 2,
    ps.ArcTan2: 2,
    ps.Clip: 3,
    ps.Mul: 2,
    ps.ScalarMaximum: 2,
    ps.ScalarMinimum: 2,
    ps.Second: 2,
    ps.Sub: 2,
    ps.Switch: 3,
    ps.TrueDiv: 2,
}
OPS = sorted(
    (cls for cls, known in SCALARS.items() if known.carries and cls is not ps.Cast),
    key=lambda cls: cls.__name__,
)


@pytest.fixture(scope="module")
def compiled():
    """All operations of the table on vectors, as one function for each backend."""
    columns = [pt.dvector(f"x{i}") for i in range(3)]
    outputs = [
        Elemwise(cls(ps.upgrade_to_float, name=cls.__name__.lower()))(
            *columns[: N_OPERANDS.get(cls, 1)]
        )
        for cls in OPS
    ]
    return {
        linker: pytensor.function(
            columns, outputs, mode=Mode(linker, None), on_unused_input="ignore"
        )
        for linker in ("cvm" if pytensor.config.cxx else "py", "numba")
    }


def test_scalar_operations_carry_what_the_table_says(compiled):
    values = np.array(list(itertools.product(SPECIAL, repeat=3))).T.copy()
    for linker, function in compiled.items():
        with np.errstate(all="ignore"):
            results = function(*values)
        for cls, result in zip(OPS, results, strict=True):
            for operand in range(N_OPERANDS.get(cls, 1)):
                for sign in SCALARS[cls].carries_from(operand):
                    planted = (
                        np.isnan(values[operand]) if sign == Kind.NAN else np.isinf(values[operand])
                    )
                    shown = np.isnan(result) if sign == Kind.NAN else ~np.isfinite(result)
                    assert shown[planted].all(), (linker, cls, operand, sign)


def nodes_of_arrays():
    """Nodes that carry or move, with the values of their other operands."""
    x, y, m, s = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m"), pt.dscalar("s")
    zeros, matrix = np.zeros(3), np.zeros((3, 3))
    yield x.dimshuffle(0, "x"), {x: zeros}
    yield x.sum(), {x: zeros}
    yield x.prod(), {x: zeros}
    yield pt.cumsum(x), {x: zeros}
    yield pt.cumprod(x), {x: zeros}
    yield pt.join(0, x, y), {x: zeros, y: zeros}
    yield pt.alloc(s, 2, 3), {s: np.array(0.0)}
    yield pt.stack([s, s * 0]), {s: np.array(0.0)}
    yield pt.dot(m, m), {m: matrix}
    yield pt.sort(x), {x: zeros}
    yield pt.special.softmax(x), {x: zeros}
    yield pt.special.log_softmax(x), {x: zeros}
    yield pt.inc_subtensor(x[:2], y[:2]), {x: zeros, y: zeros}
    yield pt.set_subtensor(x[:2], y[:2]), {x: zeros, y: zeros}
    yield pt.inc_subtensor(x[[0, 0, 2]], y), {x: zeros, y: zeros}


def products():
    """Products as PyTensor's rewrites make them, with what each operand shows for certain.

    BLAS reads no matrix where the factor of it is 0, and a factor may be 0.
    """
    m, v, s = pt.dmatrix("m"), pt.dvector("v"), pt.dscalar("s")
    both, none = Kind.BOTH, Kind.NONE
    yield blas._dot22(m, m.T), [both, both]
    for factor, shown in ((2.0, both), (0.0, none), (s, none)):
        factor = pt.as_tensor(np.float64(factor)) if isinstance(factor, float) else factor
        yield blas._dot22scalar(m, m.T, factor), [shown, shown, none]
        yield (
            blas.gemm_no_inplace(m, factor, m, m.T, np.float64(1)),
            [both, none, shown, shown, none],
        )
        yield (
            blas.gemm_no_inplace(m, np.float64(1), m, m.T, factor),
            [shown, none, both, both, none],
        )
        yield blas.gemv_no_inplace(v, factor, m, v, np.float64(1)), [both, none, shown, shown, none]


@pytest.mark.parametrize(
    ("output", "expected"),
    list(products()),
    ids=lambda v: str(v.owner.op) if hasattr(v, "owner") else "",
)
def test_products_show_the_operands_that_blas_reads(output, expected):
    node = output.owner
    found = [carries(node, i).get(0, Kind.NONE) for i in range(len(node.inputs))]
    assert found == expected
    # The compiled operation has no less to show than the table says.
    m, v = np.eye(3), np.ones(3)
    roots = [r for r in graph_inputs([output]) if not isinstance(r, Constant)]
    values = {"m": m, "v": v, "s": np.array(0.0)}
    mode = Mode("cvm" if pytensor.config.cxx else "py", None)
    operands = [i for i, kind in enumerate(expected) if kind]
    for i in operands:
        bad = np.full_like(values[root_of(node.inputs[i]).name], np.nan)
        inputs = list(node.inputs)
        inputs[i] = pt.constant(bad)
        fn = pytensor.function(roots, node.op(*inputs), mode=mode, on_unused_input="ignore")
        assert np.isnan(fn(*[values[r.name] for r in roots])).any()


def root_of(variable):
    return variable if variable.owner is None else variable.owner.inputs[0]


@pytest.mark.parametrize(
    ("output", "values"),
    nodes_of_arrays(),
    ids=lambda v: "" if isinstance(v, dict) else str(v.owner.op),
)
def test_nodes_carry_what_the_table_says(output, values):
    node = output.owner
    mode = Mode("cvm" if pytensor.config.cxx else "py", None)
    inputs = list(values)
    operands = [v for v in node.inputs if is_float(v)]
    function = pytensor.function(inputs, [output, *operands], mode=mode)
    for variable, value in values.items():
        for position, (sign, bads) in itertools.product(np.ndindex(value.shape), BAD.items()):
            for bad in bads:
                given = {v: a.copy() for v, a in values.items()}
                given[variable][position] = bad
                result, *read = function(*given.values())
                for operand, array in zip(operands, read, strict=True):
                    is_there = np.isnan(array).any() if sign == Kind.NAN else np.isinf(array).any()
                    carried = carries(node, node.inputs.index(operand)).get(0, Kind.NONE)
                    if is_there and sign in carried:
                        assert not np.isfinite(result).all()


def test_what_only_moves_makes_nothing():
    x, c = pt.dvector("x"), pt.constant(np.array([np.inf, 1.0]))
    assert makes(x[::-1].owner) == Kind.NONE
    assert makes(pt.join(0, x, c).owner) == Kind.INF
    assert makes(pt.switch(x > 0, x, np.array([np.nan])).owner) == Kind.NAN
    assert makes(pt.cast(x, "float32").owner) == Kind.BOTH


def test_a_source_is_read_before_it_can_be_lost():
    x, mask = pt.dvector("x"), pt.dvector("mask")
    out = pt.switch(mask > 0, pt.log(x), 0.0).sum()
    points = watch_points(toposort([out]), {x: Kind.BOTH})
    assert list(points.values()) == [Kind.BOTH]
    assert next(iter(points)) in (x, *[n.outputs[0] for n in toposort([out]) if n.inputs == [x]])


def test_an_inf_is_read_before_it_meets_one_that_is_meant():
    x = pt.dvector("x")
    inner = pt.exp(-x)
    out = (inner + pt.switch(x > 0, 0.0, -np.inf)).sum()
    order = list(toposort([out]))
    points = watch_points(order, {inner: Kind.BOTH}, infinite=expected_infinities(order))
    assert points[out] == Kind.NAN and points[inner] == Kind.INF


def test_a_node_that_may_not_run_carries_nothing():
    x = pt.dvector("x")
    out = pt.log(x).sum()
    points = watch_points(toposort([out]), {x: Kind.BOTH}, runs=lambda node: False)
    assert points == {x: Kind.BOTH}
