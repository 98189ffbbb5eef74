"""``GuardMode(precision=MeasuredCalls(...))``: the digits of one call in many."""

import inspect
import logging
import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode, MeasuredCalls, events_of, guarding

both = pytest.mark.parametrize("backend", ["c", "numba"])

FAR = np.array([1e8, 1e8 + 1, 1e8 + 2])
NEAR = np.array([1.0, 2.0, 3.0])


def training(backend="c", **settings):
    """A step that updates a weight and a random state, and its line; digits are lost near 1e8."""
    settings.setdefault("precision", MeasuredCalls(every=3))
    mode = GuardMode(backend=backend, big_is_error=False, optimizer="fast_compile", **settings)
    x, w = pt.dvector("x"), pytensor.shared(FAR, name="w")
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    state, draw = pt.random.normal(rng=rng).owner.outputs
    line = inspect.currentframe().f_lineno + 1
    variance = (w**2).mean() - w.mean() ** 2
    f = pytensor.function([x], [variance, draw], updates={w: w + x, rng: state}, mode=mode)
    return f, w, rng, line


def state_of(rng):
    return rng.get_value().bit_generator.state


@both
def test_a_call_that_loses_digits_raises_and_changes_nothing(backend):
    f, w, rng, line = training(backend)
    before = state_of(rng)
    with pytest.raises(GuardError) as caught:
        f(np.ones(3))
    event = caught.value.event
    assert (event.kind, event.role, event.op, event.variable) == (
        "digits",
        "output",
        "sub",
        "output 0",
    )
    assert event.source.line == line and event.call == 1
    [note] = caught.value.__notes__
    assert "lost by sub" in note and "exactly 0.666666666667" in note
    assert np.array_equal(w.get_value(), FAR) and state_of(rng) == before


def test_one_call_in_many_is_measured_on_the_inputs_before_the_update():
    f, w, _, _ = training(action="record")
    plain, unmeasured, _, _ = training(precision=None)
    for call in range(7):
        value, draw = f(np.ones(3))
        expected, drawn = plain(np.ones(3))
        assert value == expected and draw == drawn, call
    assert np.array_equal(w.get_value(), unmeasured.get_value())
    assert [event.call for event in events_of(f)] == [1, 4, 7]
    w.set_value(NEAR)
    for step in (0.0, 0.0, 1e8):  # (the update of call 10 is measured, and not what follows it)
        f(np.full(3, step))
    assert len(events_of(f)) == 3


def test_a_warning_has_the_operation_and_the_line_once(caplog):
    f, *_ = training(action="warn", precision=MeasuredCalls(every=1))
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            f(np.ones(3))
    first, *later = [record.getMessage() for record in caplog.records]
    assert "lost by sub" in first and "(w**2).mean() - w.mean() ** 2" in first
    assert [text.partition(":")[0] for text in later] == ["Lost digits in output 0"] * 2


def test_an_action_may_call_the_function_and_raise():
    def action(event):
        f(np.ones(3))
        raise KeyError(event.op)

    f, w, _, _ = training(action=action, precision=MeasuredCalls(every=1))
    with pytest.raises(KeyError, match="sub"):
        f(np.ones(3))
    assert np.array_equal(w.get_value(), FAR)


def test_keywords_a_copy_and_a_pickle():
    x, y = pt.dscalar("x"), pt.dscalar("y")
    mode = GuardMode(big_is_error=False, precision=MeasuredCalls(1), optimizer="fast_compile")
    f = pytensor.function([x, y], pt.sqrt(x + y) - pt.sqrt(x), mode=mode)
    for measured in (f, f.copy(), pickle.loads(pickle.dumps(f))):
        assert measured(9.0, y=7.0) == 1
        with pytest.raises(GuardError, match="Lost digits"):
            measured(y=1.0, x=1e14)


def test_functions_that_are_guarded_by_guarding():
    x = pt.dscalar("x")
    with guarding(precision=MeasuredCalls(every=1), big_is_error=False):
        f = pytensor.function([x], pt.sqrt(x + 1) - pt.sqrt(x), mode="FAST_COMPILE")
    with pytest.raises(GuardError, match="Lost digits"):
        f(1e14)


def test_a_rewrite_that_loses_the_digits_is_named():
    x = pt.dscalar("x")
    f = pytensor.function([x], pt.log(x / 2), mode=GuardMode(precision=MeasuredCalls(every=1)))
    with pytest.raises(GuardError) as caught:
        f(2.000001)
    assert 'use mode.excluding("local_log_div")' in caught.value.__notes__[0]


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match=r"a MeasuredCalls or None, not int 1000"):
        GuardMode(precision=1000)
    with pytest.raises(ValueError, match="every must be at least 1, not 0"):
        MeasuredCalls(every=0)
    assert "precision=10" in repr(GuardMode(precision=MeasuredCalls(every=10)))


def test_a_fault_of_ours_is_told_and_the_call_goes_on(monkeypatch, caplog):
    def broken(*arguments):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("theanoguard._precision.calls.measured", broken)
    f, w, _, _ = training()
    assert len(f(np.ones(3))) == 2 and np.array_equal(w.get_value(), FAR + 1)
    assert "please report" in caplog.text and "planted" in caplog.text
