"""The guard on the norms of gradients."""

import logging
import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode
from theanoguard.training import GradientError, GradientGuard, clip_grad_norm
from theanoguard.training.gradients import CheckNorms

pytestmark = pytest.mark.on_30

MODES = {"cvm": lambda: "CVM", "numba": lambda: "NUMBA", "guard": GuardMode}


def build(guard, mode="CVM"):
    """SGD on ``w`` and ``b``, whose gradients are the inputs; and a counter.

    Returns (step, shared variables).
    """
    gw, gb = pt.matrix("gw"), pt.vector("gb")
    w = pytensor.shared(np.ones((2, 2)), name="w")
    b = pytensor.shared(np.ones(2), name="b")
    steps = pytensor.shared(np.zeros(3), name="steps")
    dw, db = guard([gw, gb], [w, b])
    updates = {steps: steps + 1, w: w - dw, b: b - db}
    return pytensor.function([gw, gb], updates=updates, mode=mode), (w, b, steps)


def of_norms(norm_w, norm_b=0.0):
    return np.array([[norm_w, 0.0], [0.0, 0.0]]), np.array([0.0, norm_b])


def values(variables):
    return [v.get_value() for v in variables]


def same(variables, before):
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.get_value(), value)


@pytest.fixture(scope="module", params=MODES)
def raising(request):
    guard = GradientGuard(max_norm=10.0)
    return guard, *build(guard, MODES[request.param]())


def test_an_explosion_stops_the_call_and_changes_nothing(raising):
    guard, step, variables = raising
    step(*of_norms(3.0, 4.0))
    before = values(variables)
    n = len(guard.events)
    with pytest.raises(GradientError, match="above the bound 10"):
        step(*of_norms(0.0, 11.0))
    same(variables, before)
    assert len(guard.events) == n + 1
    assert guard.events[-1].largest == "b"
    step(*of_norms(1.0))
    np.testing.assert_array_equal(variables[0].get_value(), before[0] - of_norms(1.0)[0])
    np.testing.assert_array_equal(variables[2].get_value(), before[2] + 1)


def test_the_message_tells_the_parameter_and_the_history():
    guard = GradientGuard(max_norm=10.0)
    step, _ = build(guard)
    for norm in (1.0, 2.0, 4.0):
        step(*of_norms(norm))
    with pytest.raises(GradientError) as caught:
        step(*of_norms(12.0, 5.0))
    first, second, *_ = str(caught.value).splitlines()
    assert first == (
        "the global norm of the gradients is 13, above the bound 10, at step 4. Most of it is in w."
    )
    assert second == "Its last norms: 1, 2, 4, 13."
    assert guard.norms() == [1.0, 2.0, 4.0, 13.0]
    assert guard.norms("w") == [1.0, 2.0, 4.0, 12.0]
    assert guard.norms("b") == [0.0, 0.0, 0.0, 5.0]


def test_the_bound_relative_to_the_median():
    guard = GradientGuard(factor=5.0, window=4, warmup=3, action="record")
    step, _ = build(guard)
    for norm in (1.0, 100.0, 1.0, 4.9, 5.1):  # the median is 1 from the third step on
        step(*of_norms(norm))
    assert [(e.step, e.rule, e.median, e.bound) for e in guard.events] == []
    for _ in range(4):
        step(*of_norms(2.0))
    step(*of_norms(10.1))
    (event,) = guard.events
    assert (event.step, event.rule, event.median, event.bound) == (10, "factor", 2.0, 10.0)
    assert event.norm == pytest.approx(10.1)


def test_the_bounds_of_each_parameter():
    guard = GradientGuard(parameter_max_norm=3.0, action="clip")
    step, (w, b, _) = build(guard)
    step(*of_norms(30.0, 2.0))
    np.testing.assert_allclose(w.get_value(), np.ones((2, 2)) - of_norms(3.0)[0], rtol=1e-6)
    np.testing.assert_array_equal(b.get_value(), [1.0, -1.0])
    (event,) = guard.events
    assert (event.parameter, event.rule, event.bound) == ("w", "max_norm", 3.0)
    assert str(event).startswith("the norm of the gradient of w is 30, above the bound 3")


def test_clipping_is_that_of_clip_grad_norm():
    guard = GradientGuard(max_norm=5.0, action="clip")
    grads = [pt.matrix("gw"), pt.vector("gb")]
    clipped, _ = clip_grad_norm(grads, 5.0)
    both = pytensor.function(grads, [*guard(grads), *clipped], mode="CVM")
    for norm in (2.0, 50.0):
        gw, gb, cw, cb = both(*of_norms(norm, 4.0))
        np.testing.assert_allclose(gw, cw, rtol=1e-15)
        np.testing.assert_allclose(gb, cb, rtol=1e-15)
    assert len(guard.events) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])  # (the square of which is infinite)
@pytest.mark.parametrize("action", ["warn", "record", "skip"])
def test_a_norm_that_is_not_finite(action, bad, caplog):
    guard = GradientGuard(max_norm=1.0, action="clip", nonfinite_action=action)
    step, (w, b, _) = build(guard)
    with caplog.at_level(logging.WARNING, "theanoguard"):
        step(*of_norms(1.0, bad))
    (event,) = guard.events
    assert (event.parameter, event.rule, event.bound) == ("b", "nonfinite", None)
    assert ("the norm of the gradient of b is" in caplog.text) == (action == "warn")
    assert (b.get_value()[1] == 1) == (action == "skip")
    np.testing.assert_array_equal(w.get_value()[0, 0], 1.0 if action == "skip" else 0.0)


def test_clipping_raises_at_a_norm_that_is_not_finite():
    step, variables = build(GradientGuard(max_norm=1.0, action="clip"))
    before = values(variables)
    with pytest.raises(GradientError, match="the norm of the gradient of w is nan"):
        step(*of_norms(np.nan))
    same(variables, before)


def test_warnings_are_logged(caplog):
    step, (w, *_) = build(GradientGuard(max_norm=1.0, action="warn"))
    with caplog.at_level(logging.WARNING, "theanoguard"):
        step(*of_norms(2.0))
    assert "the global norm of the gradients is 2, above the bound 1, at step 1" in caplog.text
    assert w.get_value()[0, 0] == -1  # it went on


def test_random_states_and_what_is_computed_before_are_left_alone():
    """What the gradients depend on cannot wait for the check, and is overwritten in a copy."""
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    scale = pytensor.shared(np.ones(4), name="scale")
    w = pytensor.shared(np.zeros(4), name="w")
    x = pt.vector("x")
    next_rng, noise = pt.random.normal(size=(4,), rng=rng, return_next_rng=True)
    new_scale = pt.set_subtensor(scale[:2], x[:2])
    guard = GradientGuard(max_norm=100.0)
    (g,) = guard([noise * x * new_scale], [w])
    step = pytensor.function(
        [x], g, updates={rng: next_rng, scale: new_scale, w: w - g}, mode="CVM"
    )
    before = values([scale, w])
    with pytest.raises(GradientError):
        step(np.full(4, 1e6))
    same([scale, w], before)
    first = step(np.ones(4))
    expected = np.random.default_rng(3).normal(size=4)
    np.testing.assert_allclose(first, expected)
    assert not np.allclose(step(np.ones(4)), first)  # and the state moves on in a good step


def test_a_copy_of_the_function_holds_back_too():
    step, variables = build(GradientGuard(max_norm=10.0))
    copied = step.copy()
    before = values(variables)
    with pytest.raises(GradientError):
        copied(*of_norms(20.0))
    same(variables, before)


def test_clip_grad_norm_holds_back():
    g = pt.vector("g")
    w, steps = pytensor.shared(np.ones(2)), pytensor.shared(np.zeros(3))
    (clipped,), _ = clip_grad_norm([g], 1.0)
    step = pytensor.function([g], updates={steps: steps + 1, w: w - clipped}, mode="CVM")
    with pytest.raises(AssertionError, match="not finite"):
        step([np.nan, 0.0])
    np.testing.assert_array_equal(steps.get_value(), 0)
    step([1.0, 0.0])
    np.testing.assert_array_equal(steps.get_value(), 1)


def test_under_the_guard_the_value_is_explained_first():
    x = pt.vector("x")
    w = pytensor.shared(np.ones(3), name="w")
    guard = GradientGuard(max_norm=10.0)
    (g,) = guard([pt.log(x) * w], [w])
    step = pytensor.function([x], updates={w: w - g}, mode=GuardMode())
    with pytest.raises(GuardError, match="log"):
        step([1.0, -1.0, 1.0])
    assert guard.steps == 0


def test_under_the_guard_only_the_norm_counts():
    """A norm of 2e5 is not big, though its square is."""
    step, _ = build(guard := GradientGuard(max_norm=1e6), GuardMode(big_is_error=True))
    step(*of_norms(2e5))
    assert guard.norms() == [2e5]


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_two_guards_of_one_gradient(mode):
    """Each is asked, in one function and in two."""
    g = pt.dvector("g")
    small, large = GradientGuard(1.0, action="record"), GradientGuard(10.0, action="record")
    both = pytensor.function([g], [*small([g]), *large([g])], mode=mode)
    for norm in (0.5, 5.0, 50.0):
        both([norm])
    assert [len(guard.events) for guard in (small, large)] == [2, 1]
    del small, large, both
    for bound in (1.0, 10.0):  # one after the other
        guard = GradientGuard(bound, action="record")
        pytensor.function([g], guard([g]), mode=mode)([5.0])
        assert len(guard.events) == (bound < 5)


def test_guards_pickle():
    guard = GradientGuard(max_norm=10.0, factor=3.0)
    step, _ = build(guard)
    step(*of_norms(1.0))
    again = pickle.loads(pickle.dumps(guard))
    assert again.norms() == [1.0]
    again.check(np.array([1.0, 0.0]))
    assert again.steps == 2 and guard.steps == 1


def test_events_are_bounded():
    guard = GradientGuard(max_norm=1.0, action="record", max_events=3)
    step, _ = build(guard)
    for _ in range(5):
        step(*of_norms(2.0))
    assert [event.step for event in guard.events] == [3, 4, 5]


def test_an_event_of_the_guard():
    guard = GradientGuard(max_norm=1.0, action="record")
    step, _ = build(guard)
    step(*of_norms(2.0))
    event = guard.events[0].to_guard_event()
    assert (event.kind, event.role, event.variable) == ("big", "gradient norm", "w")
    assert (event.first_value, event.n_bad, event.call) == (2.0, 1, 1)
    assert type(event).from_json(event.to_json()) == event


@given(data=st.data(), window=st.integers(1, 6), per_parameter=st.booleans())
@settings(max_examples=30)
def test_c_and_python_agree(data, window, per_parameter, needs_cxx):
    """One guard is called by the compiled function, the other directly."""
    bounds = {"parameter_factor" if per_parameter else "factor": 2.0, "max_norm": 50.0}
    warmup = data.draw(st.integers(1, window))
    guards = [
        GradientGuard(
            **bounds, window=window, warmup=warmup, action="clip", nonfinite_action="skip"
        )
        for _ in range(2)
    ]
    squares = pt.dvector("squares")
    for guard in guards:
        guard([pt.vector("g"), pt.vector("h")], ["g", "h"])
    check = pytensor.function([squares], CheckNorms(guards[0])(squares), mode=Mode("cvm", None))
    steps = st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.1, 4.0, 900.0, np.nan, np.inf]), min_size=2)
    for step in data.draw(st.lists(steps.map(lambda s: np.array(s[:2])), max_size=20)):
        np.testing.assert_array_equal(check(step), guards[1].check(step))
    assert guards[0].steps == guards[1].steps
    assert str(guards[0].events) == str(guards[1].events)  # (a NaN is not equal to itself)
    for name in (None, "g", "h"):
        np.testing.assert_array_equal(guards[0].norms(name), guards[1].norms(name))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_norm": 0}, "max_norm=0"),
        ({"factor": -1.0}, "factor=-1.0"),
        ({"parameter_factor": 0}, "parameter_factor=0"),
        ({"window": 0}, "window=0"),
        ({"window": 5, "warmup": 6}, "warmup is 6 and window 5"),
        ({"action": "stop"}, "action='stop'"),
        ({"nonfinite_action": "clip"}, "nonfinite_action='clip'"),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        GradientGuard(**settings)


def test_gradients_that_do_not_fit():
    g = pt.vector("g")
    guard = GradientGuard()
    with pytest.raises(ValueError, match="1 gradients for 2 parameters"):
        guard([g], ["a", "b"])
    guard([g], ["a"])
    with pytest.raises(ValueError, match="already watches gradients"):
        guard([g], ["a"])
    with pytest.raises(KeyError, match="no gradient of 'c'"):
        guard.norms("c")
