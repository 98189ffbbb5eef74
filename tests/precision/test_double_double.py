"""Double-double: the error bounds hold, and graphs come out as in exact arithmetic."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from flint import arb, ctx

from theanoguard import precision
from theanoguard._compare.problem import make_problem
from theanoguard._exact.twin import Budget, Context
from theanoguard._precision import double_double as dd
from theanoguard._precision.doubled import certain_errors
from theanoguard._precision.evaluations import TrueExact, Written, logged

ONE = {
    "absolute": abs,
    "exp": arb.exp,
    "expm1": arb.expm1,
    "log": arb.log,
    "log1p": arb.log1p,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "softplus": lambda x: x.exp().log1p(),
    "sqr": lambda x: x * x,
    "sqrt": arb.sqrt,
    "tanh": arb.tanh,
}
TWO = {
    "add": lambda x, y: x + y,
    "div": lambda x, y: x / y,
    "maximum": lambda x, y: x if x > y else y,
    "minimum": lambda x, y: x if x < y else y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
}
EDGES = [0.0, 1.0, -1.0, 0.5, 1.5, 745.2, -745.2, 1e-300, 5e-324, 1e200, -1e200, 710.0, 2.0**-8]


def drawn(rng, decades, shape):
    """Numbers of some sizes with a second half, and some with an error."""
    hi = rng.normal(size=shape) * 10 ** rng.uniform(-decades, decades, shape)
    lo = hi * 2.0**-54 * rng.uniform(-1, 1, shape)
    err = np.abs(hi) * 2.0**-80 * (rng.uniform(size=shape) < 0.5)
    return dd.Pair(hi, lo, err)


def enclosing(pair):
    """The balls of a pair."""
    parts = zip(
        *(np.broadcast_to(p, np.shape(pair.hi)).ravel().tolist() for p in pair), strict=True
    )
    return [(arb(hi) + arb(lo), err) for hi, lo, err in parts]


@pytest.mark.parametrize("shape", [(), (300,)])
@pytest.mark.parametrize("decades", [0, 1, 8, 100])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_true_value_lies_within_the_bound(name, decades, shape):
    """Also if the operand is anywhere within its own bound."""
    rng = np.random.default_rng(decades)
    operands = [drawn(rng, decades, shape) for _ in range(1 if name in ONE else 2)]
    if shape and decades == 100:
        operands = [dd.Pair(np.array(EDGES)[rng.permutation(len(EDGES))]) for _ in operands]
    if name in ("sqrt", "log"):
        operands = [dd.absolute(v) for v in operands]
    if name == "log1p":
        operands = [dd.where(v.hi > -0.99, v, dd.absolute(v)) for v in operands]
    with np.errstate(all="ignore"):
        result = dd.unpacked(dd.packed(getattr(dd, name)(*operands)))
    sure = 0
    with ctx.workprec(2000):
        rows = zip(*map(enclosing, operands), strict=True)
        for at, (value, err) in zip(rows, enclosing(result), strict=True):
            if not np.isfinite(err):
                continue
            sure += 1
            for way in (-1, 0, 1):
                true = (ONE.get(name) or TWO[name])(*(x + way * 0.99 * e for x, e in at))
                assert abs(true - value) <= arb(err)
            if all(abs(x) > 1e-200 and not e for x, e in at) and abs(value) > 1e-200:
                assert arb(err) <= abs(value) * arb(2) ** -70
    assert sure or decades > 1


def test_what_is_not_certain_has_no_bound():
    uncertain = dd.Pair(np.array([1e-30]), 0.0, np.array([1e-20]))
    for operation in (dd.log, dd.sqrt, dd.reciprocal):
        with np.errstate(all="ignore"):
            assert not np.isfinite(dd.packed(operation(uncertain))["err"]).any()
    huge = dd.packed(dd.Pair(np.array([1e305, np.nan, np.inf])))
    assert not np.isfinite(huge["err"]).any()


x, y, s = pt.dvector("x"), pt.dvector("y"), pt.dscalar("s")
A = pt.dmatrix("A")
i = pt.lvector("i")
VALUES = {
    x: np.array([0.3, 1.7, 2.9, 0.4]),
    y: np.array([1.1, -0.2, 0.7, 5.0]),
    s: np.array(1.3),
    A: np.arange(12.0).reshape(3, 4) / 7,
    i: np.array([2, 0, 2]),
}


def _loop():
    return pytensor.scan(
        lambda a, state: state * 0.5 + pt.tanh(a),
        sequences=[x],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )


GRAPHS = {
    "elementwise": lambda: pt.log1p(pt.exp(-abs(x - y))) / (s + pt.sqrt(x)) - pt.sigmoid(y),
    "powers": lambda: x**3 + x**0.5 + x**1.7 + (-y) ** 2,
    "choices": lambda: pt.switch(x > y, pt.log(x), pt.softplus(y)) + pt.clip(y, 0, 1),
    "integers": lambda: x * i.sum() + i[0] / 3 + pt.floor(x) + pt.sqrt(i[2]),
    "sums": lambda: A.sum(axis=1).mean() + A.prod(axis=0).sum() + A.max() + A.min(axis=1).sum(),
    "indexing": lambda: x[i] * A[:, 1] + x[::-1][:3] + A[i, i],
    "joined": lambda: pt.concatenate([x, y[:2], [s]]) * pt.stack([s, s, s, s, s, s, s]),
    "reshaped": lambda: A.T.reshape((2, 6)).dimshuffle(1, "x", 0) * s,
    "written": lambda: pt.set_subtensor(x[1:3], y[:2]) + pt.inc_subtensor(x[:2], s),
    "written twice": lambda: pt.inc_subtensor(x[i], y[:3]),
    "products": lambda: (A @ x).sum() + (A.T @ A) @ y + pt.dot(x, y),
    "loop": _loop,
    "gradient of a loop": lambda: pytensor.grad(_loop()[-1], x),
    "gradient": lambda: pytensor.grad((pt.special.log_softmax(A @ x)[i] * s).sum(), x),
    "balls": lambda: (
        pt.gammaln(x) + pt.erf(y) + pt.cos(x) + pt.linalg.inv(A @ A.T + pt.eye(3))[0, 0]
    ),
    "running": lambda: pt.cumsum(x) + pt.sort(y),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_come_out_as_in_exact_arithmetic(name):
    graph = GRAPHS[name]()
    problem = make_problem(graph, {v: VALUES[v] for v in VALUES if v in _inputs(graph)})
    given = dict(zip(problem.fgraph.inputs, problem.values, strict=True))
    outputs = problem.fgraph.outputs
    written = Written(problem.fgraph, given)
    log = logged(written, outputs)
    own = [np.asarray(written[v]) for v in outputs]
    context = Context(Budget(1e9, float("inf")))
    [(bounds, true)] = certain_errors(problem.fgraph, given, log, outputs, own, context)
    exact, _ = TrueExact(problem.fgraph, written.known_values(), context.budget).values(
        given, outputs
    )
    assert bounds.shape == own[0].shape and (bounds < 1e-13).all()
    for element, ball in zip(true.ravel().tolist(), exact[0].ravel().tolist(), strict=True):
        hi, lo, err = element
        assert abs(arb(ball) - hi - lo) <= arb(err) + arb(1e-50)


def _inputs(graph):
    return set(pytensor.graph.traversal.graph_inputs([graph]))


def test_the_report_of_a_sound_call_has_the_exact_value():
    digits = precision(pt.log(s), {s: 3.0})["output 0"]
    assert digits.exact == "1.09861228867" and digits.right > 15 and not digits.losses


def test_double_double_leaves_what_it_cannot_hold_to_exact_arithmetic():
    tiny = pt.exp(-s) * pt.exp(s)
    assert precision(tiny, {s: 600.0}).is_precise
    digits = precision(tiny, {s: 800.0})["output 0"]
    assert digits.exact == "1" and digits.is_fault
