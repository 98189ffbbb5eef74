"""What is stated of operations, held against the compiled operations.

Every class of which something is stated has a case here.  A sample of the combinations of
operations, settings, layouts and dtypes runs each time; all of them run with ``-m slow``.
"""

import itertools
import random
from functools import cache

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from made_up import LogOdds, log_length
from pytensor.compile.mode import Mode
from pytensor.compile.ops import deep_copy_op, view_op
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.link.c.exceptions import CompileError
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.scalar import math as psm
from pytensor.tensor import basic, blas
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.math import Argmax
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.typed_list.basic import MakeList

from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import (
    LazyIfElse,
    advanced_increment_ops,
    advanced_subtensor_ops,
    ger_ops,
    ifelse,
)
from theanoguard.operations import (
    Kind,
    carries,
    facts_of,
    holds_nonfinite,
    keeps_size,
    makes,
    may_lose,
    moved,
    reached,
    regions,
)
from theanoguard.operations.facts import SCALARS, STATED

LINKER = "cvm" if pytensor.config.cxx else "py"
IN_PYTHON = Mode("py", None)
x, y, z = pt.dvectors("x", "y", "z")
m, q = pt.dmatrices("m", "q")
t, u = pt.dtensor3("t"), pt.tensor("u", dtype="float64", shape=(1, None, None))
s, r = pt.dscalars("s", "r")
SHAPES = {x: (4,), y: (4,), z: (3,), m: (3, 4), q: (3, 3), t: (2, 3, 3), u: (1, 3, 3), s: (), r: ()}
half, nothing = (pt.constant(n, dtype="float64") for n in (0.5, 0.0))
number = basic.scalar_from_tensor(s)

# Each class of which something is stated is that of one of these, or a base class of it.
ARRAYS = [
    *(pt.alloc(s, 2, 3), pt.alloc(y, 3, 4), pt.eye(3), basic.AllocEmpty("float64")(3)),
    *(blas.BatchedDot()(t, t), blas._dot22(q, q)),
    *(blas._dot22scalar(q, q, factor) for factor in (r, half)),
    *(
        blas.gemm_no_inplace(q, alpha, q, q, beta)
        for alpha in (r, half)
        for beta in (half, nothing)
    ),
    *(blas.gemv_no_inplace(z, r, q, z, beta) for beta in (half, nothing)),
    *(op(False)(q, r, z, z) for op in ger_ops),
    *(t @ u, pt.linalg.inv(t)),
    *(pt.dot(q, q), pt.dot(q, m)),
    *(m.max(axis=0), m.min(), x.max(), m.sum(axis=1), x.sum(), m.sum(), m.prod(axis=0)),
    *(pt.cumsum(m, axis=1), pt.cumprod(x), pt.cumsum(m), pt.sort(m, axis=0), pt.sort(x)),
    *(pt.special.softmax(m, axis=0), pt.special.softmax(x)),
    *(pt.special.log_softmax(m, axis=1), pt.special.log_softmax(m), log_length(m)),
    *(m.T, x[None], m.reshape((2, 6)), pt.specify_shape(m, (3, 4)), view_op(x), deep_copy_op(m)),
    *(
        pt.diagonal(q),
        Repeat(axis=1)(m, [1, 0, 2, 1]),
        *(Assert("fits")(x, pt.ge(x.size, 0)), Print("x", global_fn=lambda op, value: None)(x)),
        *(JoinDims(start_axis=0, n_axes=2)(m), SplitDims(axis=0)(x, [2, 2])),
    ),
    *(number, basic.tensor_from_scalar(number), basic.MakeVector("float64")(s, r)),
    *(pt.concatenate([x, y, z]), pt.concatenate([m, m], axis=1)),
    *(pt.choose([0, 2, 1, 0], m), ifelse(pt.gt(s, 0), x, y)),
    *pt.split(m, [1, 3], n_splits=2, axis=1),
    *(m[1:, ::2], x[::-1], m[-1], m[[2, 0], [1, 1]], x[[0, 0, 2]], m[:, [2, 0]]),
    *(op()(x, [0, 0, 2]) for op in advanced_subtensor_ops[1:]),
    *(op()(x, z, [0, 0, 2]) for op in advanced_increment_ops[1:]),
    *(pt.inc_subtensor(m[:0], x), pt.inc_subtensor(x[1:], z), pt.set_subtensor(m[1:, 0], x[:2])),
    *(pt.inc_subtensor(m[[0, 0]], x), pt.inc_subtensor(m[[2, 0], 1], 2.0)),
    *(pt.inc_subtensor(x[[1, 1, 0]], z), pt.set_subtensor(m[:, [2, 0]], z[:, None])),
]


def name_of(variable):
    return f"{variable.owner.op}.{variable.index}" if isinstance(variable, Variable) else None


def test_every_class_has_a_case():
    cases = {cls for v in ARRAYS for cls in type(v.owner.op).__mro__}
    stated = {cls for cls in STATED if cls.__module__.startswith("pytensor")}
    integers = {Argmax, Shape, Shape_i, basic.ARange}
    assert stated - cases <= {ps.ScalarOp, Elemwise, LazyIfElse, MakeList, *integers}
    # (other tests register operations of their own)
    scalars = {cls for cls in SCALARS if cls.__module__.startswith("pytensor")}
    assert scalars - {type(op) for op in SCALAR_OPS} == set()


def laid_out(array, layout):
    """Return an array of the same numbers in another memory layout."""
    if array.ndim == 0:
        return array.copy()
    if layout == "strided":
        wide = np.full([2 * n for n in array.shape], 7.0, array.dtype)
        part = wide[(slice(None, None, 2),) * array.ndim]
    elif layout == "broadcast":  # the first element, everywhere
        return np.broadcast_to(array[(slice(0, 1),) * array.ndim], array.shape)
    elif layout == "reversed":
        part = np.empty_like(array)[(slice(None, None, -1),) * array.ndim]
    else:
        part = np.empty(array.shape, array.dtype, order=layout)
    part[...] = array
    return part


LAYOUTS = ("C", "F", "strided", "reversed")


@cache
def compiled(variable):
    """Return a node of an operation alone, with inputs of its own, and the compiled function."""
    node = variable.owner
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    node = node.clone_with_new_inputs(inputs)
    free = list(dict.fromkeys(v for v in inputs if not isinstance(v, Constant)))
    f = pytensor.function(free, node.outputs, mode=Mode(LINKER, None), on_unused_input="ignore")
    return node, free, f


def operands_of(variable, rng, draw):
    """Return values of the inputs of a case: those that are numbers are drawn."""
    node, free, _ = compiled(variable)
    values = {}
    for v, own in zip(variable.owner.inputs, node.inputs, strict=True):
        if own not in free:
            continue
        roots = [root for root in SHAPES if root in explicit_graph_inputs([v])]
        shown = v.eval({root: draw(rng, SHAPES[root]) for root in roots}, mode=IN_PYTHON)
        values[own] = np.asarray(shown) if isinstance(v.type, pt.TensorType) else shown
    return values


def normal(rng, shape):
    return rng.normal(size=shape)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("variable", ARRAYS, ids=name_of)
def test_which_elements_decide(variable):
    """What changes if one element changes is reached from it, and reads it; nothing else is new."""
    node, free, f = compiled(variable)
    index, rng = variable.index, np.random.default_rng(0)
    if isinstance(node.op, basic.AllocEmpty | basic.Eye):
        return
    for layout in LAYOUTS:
        values = operands_of(variable, rng, normal)
        values = {
            v: laid_out(a, layout) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for v, a in values.items()
        }
        before = np.asarray(f(*values.values())[index])
        numbers = [v for v in free if holds_nonfinite(v) and isinstance(values[v], np.ndarray)]
        inputs = [a for _, a in given(node, values)]
        for v in numbers:
            at = tuple(int(rng.integers(n)) for n in values[v].shape)
            changed = {**values, v: laid_out(values[v], layout)}
            changed[v][at] += 1.0
            after = np.asarray(f(*changed.values())[index])
            marks = [
                np.zeros(np.shape(a), bool) if w is v else None for w, a in given(node, values)
            ]
            for own, mask in zip(node.inputs, marks, strict=True):
                if own is v:
                    mask[at] = True
            decided = reached(node, inputs, marks, index, before.shape)
            assert decided[before != after].all()
            for place in np.ndindex(before.shape):
                assert decided[place] == any(
                    marks[region.operand] is not None and marks[region.operand][region.index].any()
                    for region in regions(node, inputs, index, place)
                )


def given(node, values):
    """Return the inputs of a node with their values."""
    return [(v, v.data if isinstance(v, Constant) else values[v]) for v in node.inputs]


def special(rng, shape):
    return rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -700.0, 1e300, 1e-300], shape)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("variable", ARRAYS, ids=name_of)
def test_what_arrays_make_and_show(variable):
    node, free, f = compiled(variable)
    output, index, rng = node.outputs[variable.index], variable.index, np.random.default_rng(1)
    if isinstance(node.op, basic.AllocEmpty) or not holds_nonfinite(output):
        return
    draw = normal if isinstance(node.op, Blockwise) else special  # (no singular matrices)
    for _ in range(20):
        values = operands_of(variable, rng, draw)
        numbers = [v for v in free if holds_nonfinite(v)]
        result = np.asarray(f(*values.values())[index])
        largest = max([1.0, *(np.abs(values[v]).max() for v in numbers)])
        assert not (np.abs(result) > facts_of(node.op).bound).any()
        if keeps_size(node, index, largest):
            assert not (np.abs(result) > largest).any()
        if not makes(node):
            assert np.isfinite(result).all()
        if (data := moved(node)) is not None and makes(node) is Kind.NONE:
            shown = [np.ravel(a) for v, a in given(node, values) if v in data]
            assert np.isin(result, np.concatenate([*shown, [0.0, 1.0]])).all()
        for i, v in enumerate(node.inputs):
            shows = carries(node, i).get(index, Kind.NONE)
            if v not in numbers or index or may_lose(node, i, index):
                continue
            for kind, bad in ((Kind.NAN, np.nan), (Kind.INF, np.inf), (Kind.INF, -np.inf)):
                array = np.array(values[v])
                array[tuple(int(rng.integers(n)) for n in array.shape)] = bad
                planted = np.asarray(f(*{**values, v: array[()]}.values())[index])
                if kind in shows:
                    assert (
                        np.isnan(planted).any() if kind is Kind.NAN else ~np.isfinite(planted).all()
                    )


# ---------------------------------------------------------------- scalar operations

SCALAR_OPS = list(
    {
        type(op): op
        for module in (ps, psm)
        for op in vars(module).values()
        if isinstance(op, ps.ScalarOp) and type(op) in SCALARS
    }.values()
)
SCALAR_OPS = [op for op in SCALAR_OPS if not isinstance(op, ps.Cast)] + [ps.convert_to_float32]
SCALAR_OPS += [LogOdds(ps.upgrade_to_float, name="log_odds")]
ENDS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300, 710.0, -750.0, 1e300, -1e300]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op", SCALAR_OPS, ids=str)
def test_what_scalar_operations_make(op):
    n = op.nin if op.nin > 0 else 2
    known, columns = SCALARS[type(op)], [pt.dvector() for _ in range(n)]
    f = pytensor.function(columns, Elemwise(op)(*columns), mode=Mode(LINKER, None))
    finite = np.array(list(itertools.product(ENDS, repeat=n))).T
    result = f(*finite)
    if result.dtype.kind == "f":
        if not known.makes:
            assert np.isfinite(result).all()
        if known.range is not None:
            assert (result >= known.range[0]).all() and (result <= known.range[1]).all()
        if known.bound is not None:
            assert not (np.abs(result[np.isfinite(result)]) > known.bound).any()
        if not known.makes_nan:
            every = np.array(list(itertools.product([*ENDS, np.inf, -np.inf], repeat=n))).T
            assert not np.isnan(f(*every)).any()
        if known.selects is not None:
            assert (np.abs(result) == np.abs(finite[known.selects])).any(axis=0).all()
    if known.domain is not None:
        operand = finite[known.domain.operand]
        inside = np.array([known.domain.holds(v, v, v == 0) for v in operand])
        assert not np.isnan(result[inside]).any()
        if result.dtype.kind == "f":
            assert not np.isfinite(result[~inside]).any()


BOUNDED = [op for op in SCALAR_OPS if SCALARS[type(op)].bound is not None]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op", BOUNDED, ids=str)
def test_bounds_are_not_far_from_what_is_reached(op):
    known = SCALARS[type(op)]
    n = max(op.nin, 1)
    columns = [pt.dvector() for _ in range(n)]
    f = pytensor.function(columns, Elemwise(op)(*columns), mode=Mode(LINKER, None))
    result = f(
        *np.array(
            list(itertools.product([*ENDS, 5e-324, 1e308, -40.0, -1.5707, 1.5708], repeat=n))
        ).T
    )
    result = result[np.isfinite(result)]
    assert np.abs(result).max() >= 0.75 * known.bound
    if known.range is not None:
        np.testing.assert_allclose([result.min(), result.max()], known.range, atol=0.1)


# ---------------------------------------------------------------- the guard

POLICIES = {
    "nan": {"inf_is_error": False, "big_is_error": False},
    "nan and inf": {"big_is_error": False},
    "all": {},
    "any": {"inf_is_error": "any"},
    "result": {"judge": "result"},
    "inputs are not checked": {"check_inputs": False},
}
DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
DRAWN = [0.0, -1.0, 1.0, 2.0, -2.5, 0.5, 1e-3, 30.0, -300.0, 710.0, 1e9]


def is_bad(array, policy, dtype):
    """Whether an array holds a number that is an error."""
    array = np.asarray(array)
    if array.dtype.kind not in "fc":
        return False
    found = np.isnan(array)
    if policy.get("inf_is_error", True):
        found |= np.isinf(array)
    if policy.get("big_is_error", True):
        found |= np.abs(array) > 1e10
    return bool(found.any())


# On C, an input that is not checked and was bad in a healthy call is not looked at again when a
# branch hands it on.
LEFT_OUT = {("if{}", "inputs are not checked")}
COMBINATIONS = [
    (kind, case, policy, dtype)
    for kind, cases in (("scalar", SCALAR_OPS), ("array", ARRAYS))
    for case in cases
    for policy in POLICIES
    for dtype in (DTYPES if kind == "scalar" else ("float64",))
    if (str(getattr(case.owner, "op", "")) if kind == "array" else "", policy) not in LEFT_OUT
]


@pytest.mark.parametrize("combination", random.Random(7).sample(COMBINATIONS, 60), ids=str)
def test_the_guard_agrees_with_the_operation(combination):
    assert_guard_agrees(*combination)


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_the_guard_agrees_with_every_operation(combination):
    assert_guard_agrees(*combination)


def assert_guard_agrees(kind, case, policy, dtype):
    """A call raises where the plain function gives something bad, and nowhere else."""
    settings, rng = POLICIES[policy], np.random.default_rng(2)
    if kind == "scalar":
        free = [pt.vector(dtype=dtype) for _ in range(case.nin if case.nin > 0 else 2)]
        try:
            outputs = [Elemwise(case)(*free)]
            f = pytensor.function(free, outputs, mode=Mode(LINKER, None))
            f(*[np.ones(1, dtype) for _ in free])
        except (TypeError, NotImplementedError, CompileError):
            pytest.skip(f"{case} has no {dtype}")
    else:
        node, free, _ = compiled(case)
        outputs = node.outputs
    plain, f = (
        pytensor.function(free, outputs, mode=mode, on_unused_input="ignore")
        for mode in (Mode(LINKER, None), GuardMode(**settings))
    )
    for layout, bad in itertools.product((*LAYOUTS, "broadcast", "empty"), (None, np.nan, np.inf)):
        for _ in range(2):
            values = drawn_values(kind, case, free, dtype, layout, bad, rng)
            if values is None:
                continue
            with np.errstate(all="ignore"):
                try:
                    results = plain(*values)
                except np.linalg.LinAlgError:
                    continue
                expected = any(is_bad(result, settings, dtype) for result in results)
                if policy not in ("result", "inputs are not checked"):
                    expected |= any(is_bad(a, settings, dtype) for a in values)
                assert raises(f, values) == expected, (layout, values, results)


def drawn_values(kind, case, free, dtype, layout, bad, rng):
    """Return values of the inputs, or None where the case has no such values."""
    if kind == "array":
        if layout == "empty":
            return None
        values = list(operands_of(case, rng, lambda g, shape: g.choice(DRAWN, shape)).values())
    else:
        n = 0 if layout == "empty" else 5
        values = [rng.choice(DRAWN, n).astype(dtype) for _ in free]
    is_array = [isinstance(a, np.ndarray) and a.dtype.kind in "fc" for a in values]
    if bad is not None:
        places = [
            i for i, (a, ok) in enumerate(zip(values, is_array, strict=True)) if ok and a.size
        ]
        if not places:
            return None
        i = places[rng.integers(len(places))]
        values[i] = values[i].copy()
        values[i][tuple(int(rng.integers(k)) for k in values[i].shape)] = bad
    if layout == "empty":
        return values
    return [laid_out(a, layout) if ok else a for a, ok in zip(values, is_array, strict=True)]


def raises(f, values):
    try:
        f(*values)
    except GuardError:
        return True
    return False


def test_a_branch_hands_on_an_input_that_is_not_checked():
    f = pytensor.function([s, x, y], ifelse(pt.gt(s, 0), x, y), mode=GuardMode(check_inputs=False))
    values = np.array([1.0, np.inf]), np.array([1.0, 2.0])
    assert raises(f, (np.array(1.0), *values))
    assert not raises(f, (np.array(0.0), *values))
