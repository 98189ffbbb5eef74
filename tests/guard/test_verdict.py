"""Which elements of a node's outputs it has made bad, by values alone."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.scalar.basic import Composite
from pytensor.tensor import blas
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import softmax

import theanoguard
from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import ger_ops
from theanoguard.guard.policy import Policy
from theanoguard.guard.verdict import made_bad
from theanoguard.operations import reached, regions

ALL = Policy(nan=True, inf=True, big=True)
ANY = Policy(nan=True, inf=True, big=True, anywhere=True)
inf, nan = np.inf, np.nan
x, y = pt.dvectors("x", "y")
m, q = pt.dmatrices("m", "q")
z, r = pt.dvector("z"), pt.dscalar("r")
ROOTS = {y: (4,), z: (3,), m: (3, 4), q: (3, 3), r: ()}
IN_PYTHON = Mode("py", None)


def _depends(variable):
    return any(v in (x, *ROOTS) for v in explicit_graph_inputs([variable]))


def judge(variable, *inputs, policy=ALL):
    """Return where the node of `variable` makes something bad, as 0 and 1."""
    node = variable.owner
    values, given = [], iter(inputs)
    for v in node.inputs:
        values.append(next(given) if _depends(v) else v.eval(mode="FAST_COMPILE"))
    with np.errstate(all="ignore"):
        outputs = Kernels("py").run(node, [np.copy(v) for v in values])
    [found] = made_bad(node, values, outputs, policy)
    return None if found is None else found[0].astype(int).tolist()


A = np.array


@pytest.mark.parametrize(
    "variable, inputs, expected",
    [
        (x / y, [A([1.0, 0.0, inf]), A([0.0, 0.0, 2.0])], [1, 1, 0]),
        (x - y, [A([inf, nan, 1e200]), A([inf, 1.0, 0.0])], [1, 0, 0]),
        (x * y, [A([0.0, 1e9, 1e200]), A([inf, 1e9, 1e200])], [1, 1, 1]),
        (x + y, [A([1e11, 9e9, -inf]), A([1.0, 9e9, 1.0])], [0, 1, 0]),
        (-x, [A([inf, 1e11])], None),
        (pt.log(x), [A([0.0, -1.0, 1.0])], [1, 1, 0]),
        (x + A(-inf), [A([1.0])], None),
        (x + A([nan]), [A([1.0])], [1]),
        (pt.switch(x > 0, y, 0.0), [A([True, False]), A([-inf, -inf])], None),
        (m.sum(axis=1), [A([[-inf, 1.0], [1e10, 1e10], [inf, -inf]])], [0, 1, 1]),
        (m.sum(), [A([[-inf, 1.0], [1e10, 1e10]])], None),
        (
            pt.dot(q, q),
            [A([[1e8, 1.0], [1.0, inf]]), A([[1e8, 1.0], [1.0, 1.0]])],
            [[1, 0], [0, 0]],
        ),
        (softmax(m, axis=1), [A([[-inf, -inf], [-inf, 0.0]])], [[1, 1], [0, 0]]),
        (m[::-1], [A([[1.0], [inf]])], None),
        (pt.concatenate([x, y]), [A([inf]), A([1e11])], None),
        (pt.cumsum(x), [A([1e10, 1.0, inf, -inf])], [0, 1, 0, 1]),
        (pt.cast(x, "float32"), [A([1e300, inf])], [1, 0]),
    ],
    ids=lambda v: str(getattr(v, "owner", "")),
)
def test_made_by_the_operation(variable, inputs, expected):
    found = judge(variable, *inputs)
    assert found == (expected if expected and np.any(expected) else None)


def test_with_any_no_constant_excuses():
    assert judge(x + A([-inf]), A([1.0]), policy=ANY) == [1]
    assert judge(-x, A([inf, 1e11, 1.0]), policy=ANY) is None


def test_what_nobody_has_looked_at_excuses_nothing():
    node = (-x).owner
    value = A([inf, nan, 1.0])
    [[mask]] = made_bad(node, [value], [-value], ALL, silent={x})
    assert mask.tolist() == [True, True, False]


@pytest.mark.parametrize("constant", [nan, inf, 1e12])
def test_a_branch_that_is_not_chosen_excuses_nothing(constant):
    """The weight is left out of the checks, so that the first operation that reads it is told."""
    chooses, weight = pt.bvector("chooses"), pt.dvector("weight")
    node = pt.switch(chooses, [constant], weight).owner
    values = [A([0, 1], "int8"), A([constant]), A([1e12, 1e12])]
    output = np.where(*values)
    [[mask]] = made_bad(node, values, [output], ALL, silent={weight})
    assert mask.tolist() == [True, constant is nan]


def test_with_any_kind_alone_an_infinity_is_big():
    assert judge(pt.exp(x), A([800.0]), policy=Policy(False, False, True)) == [1]
    assert judge(pt.exp(x), A([inf]), policy=Policy(False, False, True)) is None


def fused(build, *inputs):
    scalars = [ps.float64() for _ in inputs]
    op = Elemwise(Composite(scalars, [build(*scalars)]))
    return judge(op(*[x, y][: len(inputs)]), *inputs)


def test_a_fused_operation_is_judged_by_what_is_in_it():
    low = ps.constant(-inf)
    zero = ps.constant(0.0)
    positive = ps.gt
    # chosen, not made
    assert fused(lambda a: ps.switch(positive(a, zero), a, low), A([1.0, -1.0])) is None
    # a made one beside an infinite literal and beside an infinite operand
    made = A([800.0, -1.0])
    assert fused(lambda a: ps.switch(positive(a, zero), ps.exp(a), low), made) == [1, 0]
    beside = [made, A([inf, inf])]
    assert fused(lambda a, b: ps.switch(positive(a, zero), ps.exp(a), b), *beside) == [1, 0]
    assert fused(lambda a, b: ps.exp(a) + b, A([1.0, 1.0]), A([-inf, 0.0])) is None
    # thrown away
    assert fused(lambda a: ps.switch(positive(a, zero), ps.log(a), zero), A([1.0, -1.0])) is None
    # a NaN literal that is chosen
    none = ps.constant(nan)
    assert fused(lambda a: ps.switch(positive(a, zero), a, none) + a, A([1.0, -1.0])) == [0, 1]


@pytest.mark.parametrize(
    "variable",
    [
        m.sum(axis=0),
        m.max(),
        pt.dot(q, q),
        softmax(m, axis=0),
        pt.cumsum(m, axis=1),
        m[[2, 0], [1, 1]],
        m[1:, ::2],
        m.T,
        m.reshape((2, 6)),
        pt.concatenate([m, m], axis=1),
        m + m[0],
        pt.set_subtensor(m[1:, 0], y[:2]),
        pt.inc_subtensor(m[[0, 0]], y),
        pt.inc_subtensor(m[[2, 0], 1], 2.0),
        pt.set_subtensor(m[:, [2, 0]], y[:3, None]),
        pt.set_subtensor(m[1, 2], 2.0),
        pt.sort(m),
        pt.sort(m, axis=0),
        pt.cumsum(m),
        pt.cumprod(m, axis=0),
        pt.alloc(y, 3, 4),
        pt.repeat(m, 2, axis=1),
        pt.diagonal(m),
        pt.split(m, [1, 3], n_splits=2, axis=1)[1],
        pt.specify_shape(m, (3, 4)),
        blas.gemm_no_inplace(q, r, q, q, pt.constant(0.5, dtype="float64")),
        blas.gemm_no_inplace(q, r, q, q, pt.constant(0.0, dtype="float64")),
        blas._dot22scalar(q, q, r),
        blas.gemv_no_inplace(z, r, q, z, pt.constant(0.5, dtype="float64")),
        *(op(False)(q, r, z, z) for op in ger_ops),
    ],
    ids=lambda v: str(v.owner.op)[:20],
)
def test_the_marks_are_those_of_the_regions(variable):
    node = variable.owner
    rng = np.random.default_rng(0)
    given = {v: rng.normal(size=ROOTS[v]) for v in ROOTS}
    values = [
        v.eval({root: given[root] for root in explicit_graph_inputs([v])}, mode=IN_PYTHON)
        for v in node.inputs
    ]
    index = node.outputs.index(variable)
    output = Kernels("py").run(node, [np.copy(v) for v in values])[index]
    for _ in range(5):
        masks = [
            rng.random(np.shape(v)) < 0.2 if v.dtype.kind == "f" else None
            for v in map(np.asarray, values)
        ]
        got = reached(node, values, masks, index, np.shape(output))
        expected = np.zeros(np.shape(output), bool)
        for at in np.ndindex(np.shape(output)):
            expected[at] = any(
                masks[r.operand] is not None and masks[r.operand][r.index].any()
                for r in regions(node, values, index, at)
            )
        np.testing.assert_array_equal(got, expected)


def test_what_is_not_known_is_decided_by_everything():
    node = pt.linalg.inv(m).owner
    with_inf, out = A([[1.0, inf], [0.0, 1.0]]), np.full((2, 2), inf)
    assert made_bad(node, [with_inf], [out], ALL) == [None]
    [[mask]] = made_bad(node, [np.eye(2)], [out], ALL)
    assert mask.all()


def test_a_scalar_operation_is_judged_like_the_elementwise_one():
    """Numba computes numbers by scalar operations; a literal that is chosen is no error there."""
    x = pt.dscalar("x")
    f = pytensor.function(
        [x],
        pt.switch(pt.eq(pt.exp(x), 0), 0.0, -np.inf) + pt.exp(x) * 0,
        mode=theanoguard.GuardMode(backend="numba"),
    )
    assert f(1.0) == -np.inf
    g = pytensor.function([x], pt.log(x) + 1, mode=theanoguard.GuardMode(backend="numba"))
    with pytest.raises(theanoguard.GuardError):
        g(-1.0)
