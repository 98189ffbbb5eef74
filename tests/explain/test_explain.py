"""From a trip to an explanation, part by part."""

import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from explain_trips import compiled, input_values, is_bad, is_nan, trip_of
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.ifelse import ifelse
from pytensor.raise_op import Assert
from pytensor.scan.op import Scan
from pytensor.scan.utils import until
from pytensor.tensor.random.utils import RandomStream

import theanoguard
from theanoguard import GuardError, GuardMode
from theanoguard._evaluate.replay import Kernels, Replay
from theanoguard._evaluate.scalars import compiled_step, first_made, steps_of
from theanoguard._event import Frame, GuardEvent, PathStep, Trip
from theanoguard._provenance import track_provenance
from theanoguard.explain import (
    Situation,
    explain_exception,
    explanation_of,
    find_masked,
    register_hint,
    render_failure,
    render_text,
)
from theanoguard.explain.advice import hints
from theanoguard.explain.advice.hints import hint_for
from theanoguard.explain.explanation import _undecided
from theanoguard.explain.facts.records import Producer
from theanoguard.explain.facts.situation import is_indefinite
from theanoguard.explain.failure import hint_for_error
from theanoguard.operations import first_element, regions

pytestmark = pytest.mark.on_30  # (on 3.3 without a compiler: tox -e nocxx)

PY = Mode("py", "fast_run")


def graph_of(inputs, outputs):
    return FunctionGraph(inputs, outputs, clone=False)


def replay_of(inputs, outputs, values, impl="py"):
    graph = graph_of(inputs, outputs)
    return Replay(graph, dict(zip(inputs, values, strict=True)), Kernels(impl))


# Replay


def test_replay_leaves_the_inputs_of_destructive_nodes_alone():
    x = pt.dvector("x")
    fn = compiled([pytensor.In(x, mutable=True)], pt.exp(pt.cumsum(x)))
    destroyers = [n for n in fn.maker.fgraph.apply_nodes if n.op.destroy_map]
    assert destroyers
    value = np.array([0.1, 0.2, 0.3])
    replay = Replay(fn.maker.fgraph, {fn.maker.fgraph.inputs[0]: value})
    result = replay.value(fn.maker.fgraph.outputs[0])
    np.testing.assert_allclose(result, np.exp(np.cumsum([0.1, 0.2, 0.3])))
    np.testing.assert_array_equal(value, [0.1, 0.2, 0.3])
    before = replay.value(destroyers[0].inputs[0])
    np.testing.assert_allclose(before, np.cumsum([0.1, 0.2, 0.3]))


def test_replay_computes_only_the_ancestors_of_what_is_asked_for():
    x = pt.dvector("x")
    bomb = Bomb()(x)
    replay = replay_of([x], [pt.exp(x), bomb], [np.ones(2)])
    np.testing.assert_allclose(replay.value(replay.fgraph.outputs[0]), np.exp(np.ones(2)))
    with pytest.raises(RuntimeError, match="went off"):
        replay.value(bomb)


class Bomb(Op):
    """Raises when it is run."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        raise RuntimeError("went off")


def test_replay_takes_only_the_branch_that_ran():
    x = pt.dvector("x")
    out = ifelse(x.sum() > 0, pt.exp(x), Bomb()(x))
    assert replay_of([x], [out], [np.ones(2)]).value(out)[0] == pytest.approx(np.e)


def test_replay_drops_values_beyond_its_bound_and_computes_them_again():
    x = pt.dvector("x")
    values = [x]
    for _ in range(20):
        values.append(pt.cumsum(values[-1]))
    graph = graph_of([x], [values[-1]])
    replay = Replay(graph, {x: np.ones(1000)}, Kernels("py"), memory_bound=3 * 8000)
    full = Replay(graph, {x: np.ones(1000)}, Kernels("py"))
    for v in reversed(values):
        np.testing.assert_array_equal(replay.value(v), full.value(v))
    assert replay._bytes <= 5 * 8000


def test_replay_does_not_advance_a_random_state():
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    state, draw = pt.random.normal(size=(4,), rng=rng).owner.outputs
    fn = compiled([], draw, updates=[(rng, state)])
    fgraph = fn.maker.fgraph
    before = rng.get_value(borrow=True).bit_generator.state
    inputs = {v: rng.get_value(borrow=True) for v in fgraph.inputs}
    first = Replay(fgraph, inputs).value(fgraph.outputs[0])
    assert rng.get_value(borrow=True).bit_generator.state == before
    np.testing.assert_array_equal(first, fn())


def scans():
    x, h = pt.dmatrix("x"), pt.dvector("h")
    w = pt.dmatrix("w")
    sit = pytensor.scan(
        lambda x_t, h, w: pt.tanh(h @ w + x_t),
        sequences=[x],
        outputs_info=[h],
        non_sequences=[w],
        return_updates=False,
    )
    mit = pytensor.scan(
        lambda a, b: 0.5 * a + 0.3 * b,
        outputs_info=[{"initial": x, "taps": [-2, -1]}],
        n_steps=4,
        return_updates=False,
    )
    nit = pytensor.scan(lambda x_t: pt.exp(x_t), sequences=[x], return_updates=False)
    loop = pytensor.scan(
        lambda a: (a * 1.5, until(pt.gt(a.sum(), 10.0))),
        outputs_info=[h],
        n_steps=50,
        return_updates=False,
    )
    both = [sit, sit[-1], mit, mit[-1], nit, loop, loop[-1], pt.grad(sit.sum(), [x, w])[1]]
    return [x, h, w], both


def test_replay_of_every_flavour_of_scan():
    inputs, outputs = scans()
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(2, 3)), np.array([1.0, 0.5, 0.2]), rng.normal(size=(3, 3))]
    for output in outputs:
        fn = pytensor.function(inputs, output, mode=PY, on_unused_input="ignore")
        fgraph = fn.maker.fgraph
        replay = Replay(fgraph, dict(zip(fgraph.inputs, values, strict=True)), Kernels("py"))
        np.testing.assert_allclose(replay.value(fgraph.outputs[0]), fn(*values), rtol=1e-12)


# Which elements decide an element


@pytest.mark.parametrize(
    ("make", "arrays", "index"),
    [
        (lambda a, b: a + b[0], [(2, 3), (1, 3)], (1, 2)),
        (lambda a, b: (a + b.sum()).sum(axis=1), [(2, 3), (1, 3)], (1,)),
        (lambda a, b: a @ b.T, [(2, 3), (4, 3)], (1, 3)),
        (lambda a, b: pt.join(0, a, b), [(2, 3), (4, 3)], (3, 1)),
        (lambda a, b: a[::-1, 1:], [(2, 3), (1, 1)], (0, 1)),
        (lambda a, b: a[np.array([1, 0, 1])], [(2, 3), (1, 1)], (2, 1)),
        (lambda a, b: a[np.array([1, 0]), np.array([2, 1])], [(2, 3), (1, 1)], (0,)),
        (lambda a, b: pt.set_subtensor(a[1], b[0]), [(2, 3), (1, 3)], (1, 1)),
        (lambda a, b: pt.inc_subtensor(a[:, 1:], b[:, 1:]), [(2, 3), (2, 3)], (0, 2)),
        (lambda a, b: pt.inc_subtensor(a[np.array([1, 1])], b), [(2, 3), (2, 3)], (1, 0)),
        (lambda a, b: a.T.reshape((6,)), [(2, 3), (1, 1)], (4,)),
        (lambda a, b: pt.cumsum(a, axis=1), [(2, 3), (1, 1)], (1, 1)),
        (lambda a, b: pt.sort(a, axis=1), [(2, 3), (1, 1)], (1, 0)),
        (lambda a, b: pt.special.softmax(a, axis=1), [(2, 3), (1, 1)], (1, 1)),
        (lambda a, b: pt.diagonal(a), [(3, 3), (1, 1)], (2,)),
        (lambda a, b: pt.repeat(a, 2, axis=0), [(2, 3), (1, 1)], (3, 1)),
        (lambda a, b: pt.alloc(a[0, 1], 2, 2), [(2, 3), (1, 1)], (1, 1)),
        (lambda a, b: pt.max(a, axis=0), [(2, 3), (1, 1)], (1,)),
    ],
)
def test_a_region_holds_every_element_that_matters(make, arrays, index):
    """Oracle: NaN put into one input element reaches the output element, or does not."""
    rng = np.random.default_rng(1)
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    out = make(a, b)
    values = [rng.uniform(0.5, 1.5, shape) for shape in arrays]
    node = out.owner
    replay = replay_of([a, b], [out], values)
    operands = replay.values(node.inputs)
    found = regions(node, operands, 0, index)
    for position, value in enumerate(operands):
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        for at in np.ndindex(value.shape):
            spoiled = value.copy()
            spoiled[at] = np.nan
            changed = [*operands[:position], spoiled, *operands[position + 1 :]]
            result = Kernels("py").run(node, [np.array(v, copy=True) for v in changed])[0]
            inside = any(
                r.operand == position and first_element(r, spoiled, np.isnan) == at for r in found
            )
            if np.isnan(result[index]):
                assert inside, (position, at)


# Scalars


def test_a_masked_nan_is_seen_inside_a_composite():
    x = ps.float64("x")
    masked = ps.Composite([x], [ps.switch(ps.gt(x, ps.constant(0.0)), ps.log(x), x)])
    final, steps = steps_of(masked, [np.float64(-1.0)], [ps.float64])
    assert final.results[0] == -1.0
    made = first_made(steps, np.isnan)
    assert made.op == ps.log
    assert made.operands == (-1.0,)


def test_finds_what_is_masked_inside_a_fused_node():
    x, y = pt.dvector("x"), pt.dvector("y")
    out = pt.switch(pt.gt(x, 0), pt.log(x) / y, 0.0)
    fn = pytensor.function([x, y], [out, pt.exp(x) + y], mode=PY)
    [found] = find_masked(fn, np.array([1.0, -2.0, 3.0]), np.ones(3))
    assert (found.op, found.index, found.operands[0].value) == ("log", (1,), -2.0)
    assert find_masked(fn, np.array([1.0, 2.0, 3.0]), np.ones(3)) == []


def test_finds_what_a_later_node_masks_and_not_what_survives():
    x = pt.dvector("x")
    total = pytensor.shared(0.0, name="total")
    masked, alive = pt.cumsum(pt.log(x)), pt.cumsum(pt.sqrt(x))
    fn = pytensor.function(
        [x],
        pt.switch(pt.isnan(masked), 0.0, masked),
        updates=[(total, total + alive.sum())],
        mode=PY,
    )
    [found] = find_masked(fn, np.array([1.0, -1.0]))
    assert (found.op, found.index) == ("log", (1,))
    assert total.get_value() == 0.0
    only_big = find_masked(fn, np.array([1.0, 2.0]), is_bad=lambda a: a > 1.4)
    assert {cause.op for cause in only_big} == set()  # sqrt(2) gets into the update


def test_the_report_tells_the_fate_on_request():
    x = pt.dvector("x")
    bad = pt.cumsum(pt.log(x))
    outputs = {True: bad.sum(), False: pt.switch(pt.isnan(bad), 0.0, bad)}
    for survives, output in outputs.items():
        fn = pytensor.function([x], output, mode=GuardMode(tell_fate=True))
        with pytest.raises(GuardError) as caught:
            fn(np.array([1.0, -1.0]))
        assert caught.value.explanation.fate.survives is survives
        word = "It reaches 1 of the function's outputs." if survives else "It is masked later"
        assert word in str(caught.value)
    with pytest.raises(GuardError) as caught:
        pytensor.function([x], bad, mode=GuardMode())(np.array([-1.0]))
    assert caught.value.explanation.fate is None


# Explanations


def explained(inputs, outputs, args, mask=is_bad, **kwargs):
    fn = pytensor.function(inputs, outputs, mode=PY, on_unused_input="ignore")
    return explanation_of(
        trip_of(fn.maker.fgraph, input_values(fn, args), mask), impl="py", **kwargs
    )


def test_first_operation_through_unchecked_nodes():
    x = pt.dmatrix("x")
    bad = pt.log(x)
    fn = pytensor.function([x], [pt.cumsum(bad.T[::-1], axis=0)], mode=PY)
    fgraph = fn.maker.fgraph
    values = input_values(fn, [np.array([[1.0, 2.0], [-1.0, 3.0]])])
    last = fgraph.outputs[0]
    array = Replay(fgraph, values, Kernels("py")).value(last)
    event = trip_of(fgraph, values).event
    trip = Trip(event, fgraph, values, last, array, is_bad)
    cause = explanation_of(trip, impl="py").cause
    assert cause.op == "log"
    assert [float(o.value) for o in cause.operands] == [-1.0]


def test_steps_into_a_scan_that_was_not_guarded():
    x = pt.dvector("x")
    totals = pytensor.scan(
        lambda x_t, t: t + 1.0 / x_t,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )
    fn = pytensor.function([x], totals, mode=Mode("py", None))
    values = input_values(fn, [np.array([1.0, 2.0, 0.0, 4.0])])
    found = explanation_of(trip_of(fn.maker.fgraph, values), impl="py")
    assert found.cause.op in ("true_div", "reciprocal")
    assert found.cause.path[-1].step == 2
    assert "step 2 of" in render_text(found.event, found)


def test_follows_a_state_back_through_the_steps():
    h = pt.dvector("h")
    states = pytensor.scan(
        lambda h: pt.log(h) if h is None else pt.log(h) - 5.0,
        outputs_info=[h],
        n_steps=6,
        return_updates=False,
    )
    fn = pytensor.function([h], states, mode=Mode("py", None))
    values = input_values(fn, [np.array([1e3, 1e8])])
    fgraph = fn.maker.fgraph
    out = fgraph.outputs[0]
    array = Replay(fgraph, values, Kernels("py")).value(out)
    last = tuple(int(i) for i in np.argwhere(np.isnan(array))[-1])
    event = trip_of(fgraph, values, is_nan).event
    event = GuardEvent(**{**vars(event), "first_index": last})
    found = explanation_of(Trip(event, fgraph, values, out, array, is_nan), impl="py")
    assert found.cause.op == "log"
    assert found.cause.operands[0].value < 0
    first = int(np.argwhere(np.isnan(array[:, last[1]]))[0, 0])
    assert found.cause.path[-1].step == first < last[0]


def test_a_trip_inside_of_frames():
    a = pt.dvector("a")
    op = OpFromGraph([a], [pt.log(a) + 1.0])
    x = pt.dvector("x")
    fn = pytensor.function([x], op(x * 2.0), mode=Mode("py", None))
    fgraph = fn.maker.fgraph
    node = next(n for n in fgraph.apply_nodes if isinstance(n.op, OpFromGraph))
    inner = node.op.fgraph
    variable = next(n for n in inner.apply_nodes if "Log" in str(n.op)).outputs[0]
    values = input_values(fn, [np.array([1.0, -2.0])])
    event = GuardEvent(
        "nan", "node", "Log", "Log", None, 0, "float64", (2,), 2, 1, 0, 0, 0, (1,), np.nan,
        (PathStep(str(node.op)),),
    )  # fmt: skip
    frames = [Frame(node, inner, None)]
    trip = Trip(event, fgraph, values, variable, np.array([0.0, np.nan]), is_bad, frames)
    found = explanation_of(trip, impl="py")
    assert (found.cause.op, float(found.cause.operands[0].value)) == ("log", -4.0)
    assert len(found.cause.path) == 1
    assert found.waypoints[0].name == "x"


def test_tells_a_masked_value_from_one_that_survives():
    x = pt.dvector("x")
    bad = pt.cumsum(pt.log(x))
    masked = explained([x], [pt.switch(pt.isnan(bad), 0.0, bad)], [np.array([1.0, -1.0])],
                       tell_fate=True)  # fmt: skip
    assert not masked.fate.survives
    assert "masked later" in render_text(masked.event, masked)
    alive = explained([x], [bad.sum()], [np.array([1.0, -1.0])], tell_fate=True)
    assert alive.fate.survives


class Moody(Op):
    """NaN the first time only."""

    __props__ = ()
    calls = 0

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        Moody.calls += 1
        output_storage[0][0] = inputs[0] * (np.nan if Moody.calls == 1 else 1.0)


def test_a_trip_in_a_step_of_a_scan():
    x, h = pt.dmatrix("x"), pt.dvector("h")
    states = pytensor.scan(
        lambda x_t, h: pt.log(h + x_t), sequences=[x], outputs_info=[h], return_updates=False
    )
    fn = pytensor.function([x, h], states[-1], mode=Mode("py", "fast_run"))
    fgraph = fn.maker.fgraph
    node = next(n for n in fgraph.apply_nodes if isinstance(n.op, Scan))
    inner = node.op.fgraph
    variable = inner.outputs[0]
    args = [np.array([[1.0, 9.0], [1.0, 1.0], [1.0, -9.0]]), np.array([1.0, 5.0])]
    state = np.log(np.log(args[1] + args[0][0]) + args[0][1])
    event = GuardEvent(
        "nan", "node", "Log", "Log", None, 0, "float64", (2,), 2, 1, 0, 0, 0, (1,), np.nan,
        (PathStep(str(node.op), 2),),
    )  # fmt: skip
    frames = [Frame(node, inner, 2)]
    value = np.log(np.abs(state + args[0][2]))
    trip = Trip(event, fgraph, input_values(fn, args), variable, value, is_bad, frames)
    found = explanation_of(trip, impl="py")
    assert found.reproduced
    assert found.cause.op == "log"
    assert found.cause.index == (1,)
    assert float(found.cause.operands[0].value) == pytest.approx(state[1] - 9.0)
    assert found.cause.path[-1].step == 2
    assert found.waypoints[0].name in ("x", "h")


def test_a_folded_constant_keeps_its_line():
    x = pt.dvector("x")
    with track_provenance():
        bad = pt.log(pt.constant(0.0, dtype="float64") * np.ones(3))
        fn = pytensor.function([x], pt.cumsum(x) * bad, mode=PY)
    fgraph = fn.maker.fgraph
    constant = next(v for v in fgraph.variables if isinstance(v, Constant) and v.type.ndim)
    event = GuardEvent(
        "inf", "constant", None, None, None, 0, "float64", (1,), 1, 0, 0, 1, 0, (0,), -np.inf
    )
    values = input_values(fn, [np.ones(3)])
    found = explanation_of(Trip(event, fgraph, values, constant, constant.data, is_bad), impl="py")
    assert found.cause.role == "constant"
    assert found.cause.hint.key == "folded-constant"
    assert "in test_a_folded_constant_keeps_its_line" in render_text(event, found)


def test_says_when_the_replay_does_not_reproduce():
    Moody.calls = 0
    x = pt.dvector("x")
    found = explained([x], [Moody()(x)], [np.ones(2)])
    assert not found.reproduced
    assert found.cause.op == "moody"
    assert found.cause.n_bad == 2
    assert "did not give a bad value" in render_text(found.event, found)


def test_a_replay_that_raises_is_said_too():
    x = pt.dvector("x")
    out = Bomb()(x)
    event = GuardEvent(
        "nan", "node", "Bomb(x)", "Bomb", None, 0, "float64", (1,), 1, 1, 0, 0, 0, (0,), np.nan
    )
    trip = Trip(event, graph_of([x], [out]), {x: np.ones(1)}, out, np.array([np.nan]), is_bad)
    found = explanation_of(trip, impl="py")
    assert not found.reproduced
    assert "RuntimeError: went off" in found.notes[0]


def test_an_explanation_pickles():
    x = pt.dvector("x")
    found = explained([x], [pt.log(x)], [np.array([1.0, -1.0])])
    again = pickle.loads(pickle.dumps(found))
    assert render_text(again.event, again) == render_text(found.event, found)


def test_colour_only_adds_escapes():
    x = pt.dvector("x\x1b[2J")
    found = explained([x], [pt.log(x)], [np.array([1.0, -1.0])])
    plain, coloured = render_text(found.event, found), render_text(found.event, found, color=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31m" in coloured
    assert "\x1b[2J" not in coloured


def test_a_bare_event_is_told():
    event = GuardEvent(
        "inf", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3, 0, 0, 1, 0, (2,), -np.inf
    )
    assert render_text(event, None) == "Inf in Log at element [2]"


def test_the_way_follows_a_tiny_divisor():
    x, y = pt.dvector("x"), pt.dvector("y")
    values = [np.array([3.0]), np.array([1e-300])]
    found = explained([x, y], [pt.sqr(x) / pt.cumsum(y)], values)
    assert [point.op or point.name for point in found.waypoints] == ["y", "cumsum"]


def test_steps_hold_what_the_compiled_code_computes():
    """Compiled code that rounds once where NumPy rounds twice is shown with its own numbers."""
    a, b = ps.float64("a"), ps.float64("b")
    composite = ps.Composite([a, b], [ps.sqrt(ps.sub(a, ps.sqr(b)))])
    values = [np.float64(1.0), np.float64(1.0)]
    final, _ = steps_of(composite, values, [ps.float64])
    computed = iter([np.array([-1e-17]), np.array([1.0])])
    found = compiled_step(composite, values, final, np.float64(np.nan), lambda *_: [next(computed)])
    assert (found.op, found.operands, found.by_numpy) == (ps.sqrt, (-1e-17,), None)
    [difference] = found.origins
    assert (difference.results, difference.by_numpy) == ((-1e-17,), (0.0,))


def test_what_c_contracts_is_explained_by_its_own_numbers(c_backend, needs_cxx):
    """The difference may be negative in C and 0 in NumPy: the error names the root all the same."""
    x = pt.dvector("x")
    fn = compiled([x], pt.sqrt((x**2).mean() - x.mean() ** 2), mode=GuardMode(big_is_error=False))
    rng = np.random.default_rng(0)
    for scale in 10.0 ** rng.uniform(1, 6, size=30):
        try:
            fn(np.full(4, scale))
        except GuardError as error:
            assert error.explanation.cause.op == "sqrt"
            assert error.explanation.cause.operands[0].value < 0
            assert "composite" not in str(error)


# Remedies


def test_a_number_that_came_in_is_no_reason_to_bound_it():
    p = pt.dvector("p")
    loss = -pt.log(p).sum()
    fn = compiled([p], [loss, pytensor.grad(loss, p)], mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([0.5, 0.0]))
    found = caught.value.explanation
    assert found.meaning.text == "log(0.0) does not exist: p[1] must be positive."
    assert found.cause.hint.text.startswith(
        "p[1] is 0.0 (input). Correct this element before the call"
    )


@pytest.mark.parametrize(("forward", "key"), [("log", "probability-underflow"), ("sqrt", None)])
def test_an_underflow_in_a_gradient_is_not_hidden_by_a_bound(forward, key):
    situation = Situation(
        *("true_div", (0.5, 0.0), np.inf, "float64"),
        backward=True,
        forward=forward,
        zero_from=(None, "exp"),
        zero_steps=(None, None),
    )
    assert hint_for(situation).key == (key or "gradient-at-zero")


def masked_by_a_constant(w):
    return pt.exp(w) * np.array([1.0, 0.0, 1.0])


def masked_by_a_matrix(w):
    return pt.exp(w) @ np.diag([1.0, 0.0, 1.0])


def exp_of_minus_infinity(w):
    return pt.tanh(pt.exp(pt.switch(pt.eq(w, 0), -np.inf, w)))


def exp_of_a_low_number(w):
    return pt.tanh(pt.exp(w - 1000.0))


@pytest.mark.parametrize(
    ("made", "key"),
    [
        (masked_by_a_constant, "log-zero"),
        (masked_by_a_matrix, "log-zero"),
        (exp_of_minus_infinity, "log-zero"),
        (exp_of_a_low_number, "probability-underflow"),
    ],
)
def test_an_exact_0_has_not_underflowed(made, key):
    w = pt.dvector("w")
    fn = compiled([w], pt.log(made(w)), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, 0.0, 1.0]))
    assert caught.value.explanation.cause.hint.key == key


def test_the_line_on_which_a_remedy_helps_is_told_alone():
    p, h, r = pt.dmatrices("p", "h", "r")
    s = h @ p @ h.T + r
    gain = p @ h.T @ pt.linalg.inv(s)
    fn = compiled([p, h, r], gain, mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.zeros((2, 2)), np.eye(2), np.zeros((2, 2)))
    text = str(caught.value)
    assert "gain = p @ h.T @ pt.linalg.inv(s)\n" in text
    assert "one of these lines" not in text


def test_a_negative_product_comes_from_its_negative_factor():
    x = pt.dvector("x")
    fn = compiled([x], pt.prod(1 + x) ** 0.3, mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([0.1, -1.5, 0.2]))
    assert "x[1] = -1.5" in str(caught.value)


def test_parentheses_of_a_remedy_are_in_pairs():
    x = pt.dmatrix("x")
    fn = compiled([x], pt.linalg.cholesky(x.T @ x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([[1.0, 2.0], [2.0, 4.0]]))
    hint = caught.value.explanation.cause.hint
    assert "with x.T @ x + 1e-10 * pt.eye((x.T @ x).shape[-1]) on line" in hint.text


def test_a_covariance_with_equal_rows_takes_jitter():
    """Its entries are rounded, so that no arithmetic proves that it is singular."""
    place, scale = np.array([0.5, 3.0, 3.0, 7.0]), pt.dscalar("scale")
    cov = pt.exp(-0.5 * (place[:, None] - place) ** 2 / scale**2)
    fn = compiled([scale], pt.linalg.cholesky(cov), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(2.5)
    assert "with cov + 1e-10 * pt.eye(cov.shape[-1]) on line" in " ".join(str(caught.value).split())


def test_counts_of_a_fused_operation_are_its_own():
    x, y = pt.dvectors("x", "y")
    fn = compiled([x, y], -pt.exp(x) * y, mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, 2.0, 800.0]), np.array([5.0, 5.0, 1.0]))
    cause = caught.value.explanation.cause
    assert (cause.op, cause.n_bad) == ("exp", 1)
    np.testing.assert_allclose((cause.minimum, cause.maximum), np.exp([1.0, 2.0]))


def test_a_vector_on_the_left_of_a_matrix_keeps_its_name():
    v, m = pt.dvector(), pt.dmatrix()
    mine, other = v + 0.0, m * 1e300
    fn = compiled([v, m], mine @ other, mode=GuardMode(True, True, False))
    with pytest.raises(GuardError) as caught:
        fn(np.array([1e10, 1.0]), np.ones((2, 2)))
    names = [operand.name for operand in caught.value.explanation.cause.operands]
    assert "mine" in names


def error_of(inputs, outputs, arguments, mode=None):
    fn = pytensor.function(inputs, outputs, mode=mode or GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value


def unwrapped(error):
    return " ".join(str(error).split())


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_a_bound_that_leaves_one_integer_is_no_advice(dtype):
    """An interval around 0 has no other integer, and unsigned ones have no -1."""
    u = pt.vector("u", dtype=dtype)
    bounded = pt.clip(u, np.asarray(0, dtype), np.asarray(1, dtype))
    text = str(error_of([u], pt.arctanh(bounded), [np.array([0, 1], dtype)]))
    assert "u[1] is 1 (input)" in text
    assert not re.search("This changes the function|fault in theanoguard", text)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_a_formula_of_integers_has_an_exact_value_and_another_form(dtype):
    n = pt.vector("n", dtype=dtype)
    error = error_of([n], pt.log(0.3 + pt.exp(8 * n)), [np.array([1, 100], dtype)])
    assert "In exact arithmetic element [1] of the result is 800; " in unwrapped(error)
    assert "With pt.softplus(8 * n - np.log(0.3)) + np.log(0.3) on line" in unwrapped(error)


def test_a_constant_matrix_is_transposed_as_its_product_needs_it():
    x, mix = pt.dvector("x"), np.array([[0.9, 0.1], [0.2, 0.8]])
    product = pt.exp(x) @ mix
    error = error_of([x], pt.log(product), [[-900.0, -950.0]])
    (code,) = re.findall(r'keeps the value: "(.*)", where "x" is', unwrapped(error))
    names = {"pt": pt, "theanoguard": theanoguard, "x": x, "mix": mix}
    found = eval(code, names).eval({x: [-1.0, 2.0]})
    np.testing.assert_allclose(found, np.log(np.exp([-1.0, 2.0]) @ mix))


@pytest.mark.parametrize("c", [1.7, 1e-8, 3.0])
def test_a_constant_is_printed_with_the_digits_of_its_dtype(c):
    x = pt.fvector("x")
    c32 = np.float32(c)
    error = error_of([x], pt.log(c32 + pt.exp(x)), [np.array([1.0, 200.0], "float32")])
    (text,) = re.findall(r"With (.*) on line \d+ this call", unwrapped(error))
    found = eval(text, {"pt": pt, "np": np, "theanoguard": theanoguard, "x": x, "c32": c32})
    assert "c32" in text and found.type.dtype == "float32"


def test_words_name_the_operand_that_they_replace():
    h, c = pt.dmatrix("h"), pt.dvector("c")

    def shares(exp):  # (a line is not printed for a function of any name)
        e = exp(h) * c
        return e / e.sum(axis=1, keepdims=True)

    mode = GuardMode(big_is_error=False)
    found = error_of([h, c], shares(pt.exp).max(), [[[1000.0, 1.0]], [1.0, 1.0]], mode).explanation
    assert found.advice.text.startswith('Another formula for "h" on line ')
    assert '"h - h.max(axis=1, keepdims=True)"' in found.advice.text and not found.advice.change


def test_a_sum_of_exponentials_over_all_axes_keeps_them():
    x = pt.dmatrix("x")
    top = x.max(keepdims=True)
    y = top + pt.log(pt.exp(x - top).sum(keepdims=True))
    error = error_of([x], y, [[[1e308, -1e308]]], GuardMode(big_is_error=False))
    assert "logsumexp(x, keepdims=True)" in str(error)


@pytest.mark.parametrize(
    ("formula", "value", "advises"),
    [
        (lambda x: pt.log(1 - x + 1e-20), 1.0, "`+ 1e-20` was folded away by local_add_canonizer"),
        (lambda x: (x * 1e-10).sum(), 1e308, "PyTensor's rewrite local_sum_prod"),
    ],
)
def test_what_is_only_finite_as_it_is_written_names_the_rewrite(formula, value, advises):
    """The function is finite without the rewrite."""
    x, arguments = pt.dvector("x"), [[value, value]]
    mode = GuardMode(big_is_error=False)
    text = error_of([x], formula(x), arguments, mode).explanation.cause.hint.text
    assert "As it is written, " in text and "the result is finite; " in text and advises in text
    (rewrite,) = set(re.findall(r"\blocal_\w+", text))
    fn = pytensor.function([x], formula(x), mode=mode.excluding(rewrite))
    assert np.isfinite(fn(*arguments)).all()


def test_a_remedy_reaches_all_uses_of_an_operation():
    z = pt.dvector("z")
    rate = OpFromGraph([z], [pt.log(3 + pt.exp(z))])
    x, y = pt.dvectors("x", "y")
    error = error_of([x, y], [(rate(y) - rate(x)).sum()], [[0.5, 900.0], [800.0, 0.2]])
    (line,) = [line for line in str(error).splitlines() if line.startswith("  + rate = ")]
    (text,) = re.findall(r"\[z\], \[(.*)\]\)$", line)
    found = eval(text, {"pt": pt, "np": np, "theanoguard": theanoguard, "z": z})
    np.testing.assert_allclose(found.eval({z: [0.5, 900.0]}), [np.log(3 + np.exp(0.5)), 900.0])


def test_a_jacobian_has_the_line_and_the_origin_of_the_forward_pass():
    x = pt.dvector("x")
    width = pt.sqrt(x - 1.0)
    found = error_of([x], [width, pt.jacobian(width, x)], [[2.0, 0.5]]).explanation
    assert found.meaning.text == "sqrt(-0.5) does not exist: (x - 1.0)[1] must not be negative."
    assert found.cause.hint.text.startswith(
        "x[1] is 0.5 (input). Correct this element before the call"
    )


def test_an_underflow_in_a_loop_is_told_in_the_forward_pass():
    y, s = pt.vector("y", shape=(20,), dtype="float64"), pt.dscalar("s")
    weights = pytensor.scan(
        lambda y_t, w: w * pt.exp(-((y_t / s) ** 2)),
        sequences=[y],
        outputs_info=[pt.ones(2)],
        return_updates=False,
    )
    loss = pt.log(weights[-1].sum())
    error = error_of([y, s], [loss, pytensor.grad(loss, s)], [np.full(20, 10.0), 1.0])
    assert str(error).startswith("Inf in log: log(0.0) = -inf")
    hint = error.explanation.cause.hint
    assert "logarithms for the state of the loop on line" in hint.text
    assert hint.text.endswith("this call gives -1999.3 and a finite gradient.")
    assert hint.change == ()  # (a loop is said in words)


def test_a_number_that_lets_a_loop_grow_is_named():
    y0, dt = pt.dscalar("y0"), pt.dscalar("dt")
    path = pytensor.scan(
        lambda y: y - dt * y**3, outputs_info=[y0], n_steps=9, return_updates=False
    )
    hint = error_of([y0, dt], [path[-1]], [4.0, 0.5]).explanation.cause.hint
    assert hint.text.endswith(
        "With dt / 10 in place of the input dt this call gives no such value."
    )


def test_a_number_that_is_broadcast_before_a_loop_has_no_index():
    y0, dt = pt.dmatrix("y0"), pt.dscalar("dt")
    path = pytensor.scan(
        lambda y, dt: y + dt * y,
        outputs_info=[y0],
        non_sequences=[dt],
        n_steps=3,
        return_updates=False,
    )
    text = str(error_of([y0, dt], [path[-1]], [np.ones((2, 2)), 1e6]))
    assert "where  dt = 1e+06\n         y[0, 0] = " in text


def test_a_gradient_shows_the_operand_of_the_forward_operation():
    x = pt.dmatrix("x")
    cosine = (x[0] * x[1]).sum() - 1
    loss = (pt.arccos(pt.clip(cosine, -1, 1)) ** 2).sum()
    text = str(error_of([x], [pytensor.grad(loss, x)], [np.array([[2.0, 0.0], [1.0, 3.0]])]))
    assert "where  clip(cosine, -1, 1) = 1.0" in text


def test_an_element_is_not_named_twice_on_the_path(c_backend):
    x = pt.dvector("x")
    error = error_of([x], [x[0] * x[1]], [[3e6, 4e6]])
    assert error.explanation.waypoints == ()


def test_the_gradient_is_told_by_its_forward_operation():
    x = pt.dmatrix("x")
    fn = compiled([x], pytensor.grad(pt.sqrt((x**2).sum(axis=1)).sum(), x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([[1.0, 2.0], [0.0, 0.0]]))
    found = caught.value.explanation
    assert found.cause.provenance.backward.forward == "Sqrt"
    assert found.meaning.text.startswith("The derivative of sqrt at 0.0 is 1 / (2 * sqrt(0.0))")
    assert found.cause.hint.change[1].endswith(
        "pytensor.grad(theanoguard.stable.norm(x, axis=1).sum(), x), mode=GuardMode())"
    )


def cross_entropy(p, y):
    return -(y * pt.log(p) + (1 - y) * pt.log(1 - p)).mean()


FORWARD_FIRST = pytest.mark.not_on(jax="JAX finds the NaN of 0 * log(0) in the forward pass first")


@pytest.mark.parametrize(
    "near",
    [
        (1e-301, 1 - 1e-16),
        (1 - 1e-16, 1e-301),
        pytest.param((0.5, 1e-301, 1.0), marks=FORWARD_FIRST),
    ],
)
def test_of_two_logarithms_the_one_of_the_element_is_blamed(near):
    p, y = pt.dvectors("p", "y")
    labels = np.round(1 - np.array(near)) if len(near) == 2 else np.ones(3)
    cause = error_of([p, y], [pt.grad(cross_entropy(p, y), p)], [near, labels]).explanation.cause
    begin, end = cause.source.marked
    of_log_p = near[cause.index[0]] < 0.5
    assert cause.source.text[begin:end] == ("pt.log(p)" if of_log_p else "pt.log(1 - p)")
    assert [o.name for o in cause.differentiated] == ["p" if of_log_p else "1 - p"]


def advice_for(inputs, cost, of, arguments):
    found = error_of(inputs, [cost, pytensor.grad(cost, of)], arguments).explanation
    return (found.deeper or found.cause).hint


@pytest.mark.parametrize("bounds", [(), (0, 1)])
def test_both_logarithms_of_a_saturated_sigmoid_are_repaired_together(bounds):
    z, y = pt.dvectors("z", "y")
    p = pt.sigmoid(z[:, None])[:, 0]
    p = pt.clip(p, *bounds) if bounds else p
    hint = advice_for([z, y], cross_entropy(p, y), z, [[800.0, -900.0, 3.0], [0.0, 1.0, 1.0]])
    for new, old in [("-z", "log(p)"), ("z", "log(1 - p)")]:
        assert f"(-pt.softplus({new}[:, None]))[:, 0] in place of {old}" in hint.text
    assert "keep the value" in hint.text


def test_operations_that_fit_a_gradient_alike_are_listed():
    p, y = pt.dvectors("p", "y")
    error = error_of([p, y], [pt.grad(cross_entropy(p, y), p)], [[1e-301], [1.0]])
    cause = error.explanation.cause
    places = [replace(cause.source, line=cause.source.line + i) for i in range(2)]
    undecided = replace(cause, provenance=_undecided(cause.provenance, tuple(places)))
    text = render_text(error.event, replace(error.explanation, cause=undecided))
    assert "on one of these lines:" in text
    assert "backward pass, in the gradient of" in text


def test_an_indexed_update_is_told_as_a_sum(c_backend):
    counts, rows, v = pt.dvector("counts"), pt.lvector("rows"), pt.dvector("v")
    mode = GuardMode(True, True, False, backend="c")
    fn = pytensor.function([counts, rows, v], counts[rows].inc(v), mode=mode)
    with pytest.raises(GuardError) as caught:
        fn([1.0, 2.0], [1, 1], [1e308, 1.5e308])
    text = str(caught.value)
    assert "Inf in indexed update: 2.0 + 1e+308 + 1.5e+308 = inf at element [1]" in text
    assert caught.value.explanation.cause.hint.key == "sum-overflow"


def test_a_parameter_of_a_random_variable():
    p = pt.dscalar("p")
    draw = pt.random.bernoulli(p, rng=pytensor.shared(np.random.default_rng(1)))
    fn = compiled([p], draw, mode=GuardMode())
    with pytest.raises(ValueError, match="p") as caught:
        fn(1.2)
    [note, *_] = caught.value.__notes__
    assert "The parameter p of bernoulli is 1.2, and must lie between 0 and 1." in note.replace(
        "\n", " "
    )


def test_steps_of_a_loop_are_folded():
    h, w = pt.dvector("h"), pt.dmatrix("w")
    states = pytensor.scan(lambda h, w: h @ w, [], [h], [w], n_steps=20, return_updates=False)
    fn = compiled([h, w], states[-1], mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, 2.0]), 5.0 * np.eye(2))
    [loop] = [p for p in caught.value.explanation.waypoints if p.kind == "loop"]
    assert [step for step, _ in loop.steps] == list(range(loop.steps[0][0], loop.steps[-1][0] + 1))
    assert "(x5 per step)" in str(caught.value)


# Hints


def test_registered_hints_come_first():
    class Cube:
        """Stands for a user's scalar operation."""

    register_hint(Cube, "cube-zero", lambda s: s.operands[0] == 0, "not {0}")
    assert hint_for(Situation("cube", (0.0,), 0.0, "float64")).text == "not 0.0"
    assert hint_for(Situation("cube", (1.0,), 0.0, "float64")) is None


@pytest.mark.parametrize(
    "build", [pt.log, lambda x: pt.log(pt.exp(x) * pt.cosh(x / 9)), lambda x: pt.log(x - 1)]
)
@pytest.mark.parametrize(
    "text",
    [
        "A rate of our sensor is 0. See wiki/rates.",
        "The rate, e.g. of a sensor, is 0; else see pt.log. Or theanoguard.stable.log in {{pt}}?",
    ],
)
def test_a_registered_hint_is_shown_whole(build, text, monkeypatch):
    monkeypatch.setitem(hints._rules, "log", list(hints._rules["log"]))
    register_hint("log", "our-rate", lambda s: s.operands[0] <= 0, text)
    x = pt.dvector("x")
    error = error_of([x], build(x).sum(), [np.array([2.0, -1000.0])])
    assert f"What to do: {text.format()}" in " ".join(str(error).split())


@pytest.mark.parametrize(
    ("op", "operands", "result", "dtype", "key"),
    [
        ("exp", (710.0,), np.inf, "float64", "exp-overflow"),
        ("exp", (89.0,), np.inf, "float32", "exp-overflow"),
        ("sub", (np.inf, np.inf), np.nan, "float64", "inf-minus-inf"),
        ("mul", (0.0, np.inf), np.nan, "float64", "zero-times-inf"),
        ("true_div", (np.inf, np.inf), np.nan, "float64", "inf-by-inf"),
        ("sqrt", (-1.0,), np.nan, "float64", "sqrt-negative"),
        ("gammaln", (0.0,), np.inf, "float64", "gamma-pole"),
        ("i0", (1500.0,), np.inf, "float64", "bessel-overflow"),
        ("arctanh", (1.0,), np.inf, "float64", "arctanh-out-of-range"),
        ("arccosh", (0.5,), np.nan, "float64", "arccosh-out-of-range"),
        ("sin", (np.inf,), np.nan, "float64", "angle-infinite"),
        ("reciprocal", (0.0,), np.inf, "float64", "division-by-zero"),
        ("sum", (np.float32([3e38, 3e38]),), np.inf, "float32", "sum-overflow"),
        ("dot", (np.float32([3e38, 1]), np.float32([2, 1])), np.inf, "float32", "dot-overflow"),
        ("softmax", (np.array([np.inf, 1.0]),), np.nan, "float64", "softmax-of-infinity"),
    ],
)
def test_hints(op, operands, result, dtype, key):
    dtype = np.dtype(dtype).type
    operands = tuple(v if np.ndim(v) else dtype(v) for v in operands)
    with np.errstate(over="ignore"):
        hint = hint_for(Situation(op, operands, dtype(result), np.dtype(dtype).name))
    assert hint.key == key
    if key == "exp-overflow":
        assert ("709.8" if dtype is np.float64 else "88.7") in hint.text


@pytest.mark.parametrize(
    ("op", "operands", "producers", "key"),
    [
        ("log", (0.0,), [Producer("sum", (), ("exp",))], "log-zero"),
        ("true_div", (0.5, 0.0), [Producer("mul"), Producer("sqrt")], "norm-gradient-at-zero"),
        ("true_div", (0.5, 0.0), [], "gradient-at-zero"),
        ("true_div", (0.5, 1e-200), [Producer("mul"), Producer("softmax")], "softmax-then-log"),
        ("true_div", (0.5, 1e-200), [], "gradient-near-zero"),
        ("true_div", (np.inf, np.inf), [Producer("exp"), Producer("sum")], "softmax-overflow"),
        ("sqrt", (-1e-9,), [Producer("sub", (1.0, 1.0 + 1e-9))], "cancellation"),
    ],
)
def test_hints_that_look_upstream(op, operands, producers, key):
    backward = op == "true_div" and key != "softmax-overflow"
    result = np.nan if np.isinf(operands[0]) or op == "sqrt" else np.inf
    situation = Situation(
        op, operands, result, "float64", backward=backward, producers=tuple(producers)
    )
    assert hint_for(situation).key == key


def test_the_switch_in_a_gradient_is_not_the_users():
    situation = Situation("switch", (True, -np.inf, -np.inf), -np.inf, "float64", backward=True)
    assert hint_for(replace(situation, forward="log1mexp")).key == "gradient-at-zero"
    assert hint_for(situation).key == "switch-chose-infinity"


@pytest.mark.parametrize(
    ("producer", "made_by", "key"),
    [
        (Producer("softmax"), "softmax", "softmax-then-log"),
        (Producer("softmax"), None, "log-zero"),
        (Producer("sum", (), ("exp",)), "exp", "probability-underflow"),
        (Producer("sum", (), ("mul", "softmax")), "exp", "probability-underflow"),
        (Producer("mul", (0.0, 3.0)), None, "log-zero"),
    ],
)
def test_only_what_was_not_0_before_has_underflowed(producer, made_by, key):
    situation = Situation(
        "log", (0.0,), -np.inf, "float64", producers=(producer,), zero_from=(made_by,)
    )
    assert hint_for(situation).key == key


# Exceptions of a node


def failure_of(inputs, output, args):
    """Run a graph until a node raises, and explain that."""
    graph = graph_of(inputs, [output])
    values = dict(zip(inputs, args, strict=True))
    for node in graph.toposort():
        replay = Replay(graph, values, Kernels("py"))
        try:
            values[node.outputs[0]] = replay.value(node.outputs[0])
        except Exception as error:  # whatever it is, it is explained
            return explain_exception(error, graph, node, values)
    return None


def test_a_dimension_mismatch():
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    found = failure_of([x, y], x @ y, [np.ones((2, 3)), np.ones((4, 5))])
    assert (found.op, found.hint.key) == ("dot", "dot-mismatch")
    assert [o.shape for o in found.operands] == [(2, 3), (4, 5)]
    text = render_failure(found)
    assert "test_explain.py" in text
    assert "shape (4, 5), float64" in text


def test_a_failed_assert():
    x = pt.dvector("x")
    found = failure_of([x], pt.as_tensor(Assert("positive")(x, x.sum() > 0)), [-np.ones(2)])
    assert (found.error, found.hint.key) == ("AssertionError", "assert-failed")
    assert found.message == "positive"


def test_a_singular_matrix():
    x = pt.dmatrix("x")
    found = failure_of([x], pt.linalg.inv(x), [np.ones((2, 2))])
    assert (found.error, found.hint.key) == ("LinAlgError", "singular-matrix")


@pytest.mark.parametrize("matrix, key", [(np.ones((3, 3)), "singular-matrix"), (np.eye(3), None)])
def test_a_singular_matrix_in_a_batch(matrix, key):
    """PyTensor raises an error about shapes, because its NaN have the shape of the matrix."""
    x, y = pt.dtensor3("x"), pt.dmatrix("y")
    values = [np.stack([np.eye(3), matrix]), np.ones((2, 3))]
    found = failure_of([x, y], pt.linalg.solve(x, y, b_ndim=1), values)
    assert (found and found.hint.key) == key
    assert found is None or "its rank is 1, and it has 3 rows" in found.hint.text


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (pt.linalg.cholesky, "The matrix is not positive definite: the minor of order 1 is 0.0"),
        (lambda x: pt.linalg.solve_triangular(x, x, b_ndim=2), "singular: its rank is 0"),
    ],
    ids=["cholesky", "solve_triangular"],
)
def test_a_matrix_of_float16(operation, text):
    """NumPy's linear algebra has no float16, so the hint is computed in float32."""
    x = pt.tensor3("x", dtype="float16")
    f = pytensor.function([x], operation(x), mode=GuardMode(backend="c"))
    with pytest.raises(GuardError) as caught:
        f(np.zeros((2, 2, 2), "float16"))
    assert text in " ".join(str(caught.value).split())


def test_an_index_out_of_range():
    x, i = pt.dvector("x"), pt.lscalar("i")
    found = failure_of([x, i], x[i], [np.ones(3), np.int64(7)])
    assert (found.error, found.hint.key) == ("IndexError", "index-out-of-range")


def test_out_of_memory_tells_what_is_alive():
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    out = x + y
    values = {x: np.ones((1000, 1)), y: np.ones((1, 500))}
    found = explain_exception(MemoryError(), graph_of([x, y], [out]), out.owner, values)
    assert found.needed == 1000 * 500 * 8
    assert [h.name for h in found.alive] == ["x", "y"]
    text = render_failure(found)
    assert "The result needs 3.8 MiB." in text
    assert found.hint.key == "out-of-memory"


# Events to JSON and back

NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(2**60), 2**60),
    st.complex_numbers(),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.complex_numbers().map(np.complex128),
)


def same(one, other):
    return repr(one) == repr(other) and type(one) is type(other)


@given(
    NUMBERS,
    st.lists(st.integers(0, 5), max_size=3),
    st.lists(st.tuples(st.text(), st.none() | st.integers(0, 9)), max_size=2),
    st.none() | st.text(),
)
def test_event_to_json_and_back(value, index, path, name):
    event = GuardEvent(
        "nan", "node", "Log(x)", "Log", name, 0, "float64", (3,), 3, 1, 0, 0, 0, tuple(index),
        value, tuple(PathStep(*step) for step in path), 7, name,
    )  # fmt: skip
    text = event.to_json()
    assert "\n" not in text
    json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    again = GuardEvent.from_json(text)
    assert same(again.first_value, value)
    kept = {k: v for k, v in vars(event).items() if k != "first_value"}
    assert kept == {k: v for k, v in vars(again).items() if k != "first_value"}


@pytest.mark.parametrize("text", ['{"schema": "other/1"}', "[]", "{}"])
def test_json_of_something_else_is_refused(text):
    with pytest.raises(ValueError, match="schema"):
        GuardEvent.from_json(text)


@pytest.mark.parametrize(
    ("matrix", "advises"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], "leave out duplicate points. Jitter"),
        ([[1.0, 1.2], [1.2, 1.0]], "jitter on the diagonal does not help"),
        ([[1.0, 1.2], [0.0, 1.0]], "Make it symmetric"),
    ],
)
def test_a_matrix_that_rounding_has_not_spoiled_needs_other_numbers(matrix, advises):
    """If no trial has been made, or none in time, this is the advice."""
    matrix = np.array(matrix)
    indefinite = is_indefinite(matrix)
    situation = Situation("cholesky", (matrix,), np.nan, "float64", indefinite=indefinite)
    assert advises in hint_for(situation).text


def test_a_parameter_that_is_nan_is_not_to_be_transformed():
    x = pt.dvector("x")
    drawn = RandomStream(1).binomial(5, pt.sigmoid(pt.log(x)))
    node = drawn.owner
    values = [None, None, np.array([5]), np.array([0.5, np.nan])]
    text = hint_for_error(ValueError("p contains NaNs"), node, values).text
    assert "The parameter p of binomial is nan at element [1]" in text
    assert "An operation before has made the NaN" in text
    assert "sigmoid" not in text
    values[-1] = np.array([0.5, 1.5])
    assert "sigmoid" in hint_for_error(ValueError("p > 1"), node, values).text


def test_integers_that_wrapped_get_no_bound(needs_cxx):
    """(Without a compiler, PyTensor multiplies numbers of Python, and raises.)"""
    i = pt.ivector("i")
    f = pytensor.function([i], pt.sqrt(pt.cast(i * i, "float64")), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        f(np.array([50000], "int32"))
    told = " ".join(str(caught.value).split())
    assert "needs 33 bits and has wrapped around in int32" in told
    assert caught.value.explanation.advice.change == ()
    assert "maximum(" not in told
