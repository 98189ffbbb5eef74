"""What happens at a trip: raise, warn, record, pdb, and a callable."""

import bdb
import logging

import numpy as np
import pytensor.tensor as pt
import pytest
from guarding import NO_LOOPS, CountedIdentity, guarded, trip
from pytensor import shared

from theanoguard import GuardError, GuardMode, events_of
from theanoguard.records import GuardEvent

GOING_ON = ("warn", "record", "pdb", "callable")


@pytest.fixture(scope="module")
def chain():
    """``chain(action)``: x -> first -> log -> second -> sum, and an independent sqrt of y."""
    made = {}

    def function(action):
        if action not in made:
            x, y = pt.dvector("x"), pt.dvector("y")
            first, second = CountedIdentity(), CountedIdentity()
            told = []
            outputs = [second(pt.log(first(x))).sum(), pt.sqrt(y)]
            fn = guarded([x, y], outputs, action=told.append if action == "callable" else action)
            made[action] = fn, first, second, told
        return made[action]

    return function


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """Stands for the debugger, and for a user who lets the call go on."""
    calls = []
    monkeypatch.setattr("pdb.set_trace", lambda: calls.append("opened"))
    return calls


GOOD, ZERO, NEG = np.ones(3), np.array([1.0, 0.0, 1.0]), -np.ones(3)


# ---------------------------------------------------------------- raise


@pytest.mark.not_on(
    jax="JAX ends the call before anything is known",
    pytorch="PyTorch ends the call before anything is known",
)
def test_raise_stops_at_the_first_bad_node(chain):
    fn, first, second, _ = chain("raise")
    fn(GOOD, GOOD)
    runs = first.runs, second.runs
    event = trip(fn, ZERO, GOOD)
    assert event.op == "Log"
    assert first.runs > runs[0]  # (the explanation computes it again)
    assert second.runs == runs[1]  # what comes later did not run
    fn(GOOD, GOOD)
    assert second.runs == runs[1] + 1


def test_a_bad_input_stops_before_any_node(chain):
    fn, first, second, _ = chain("raise")
    fn(GOOD, GOOD)
    runs = first.runs, second.runs
    assert trip(fn, np.array([1.0, np.nan, 1.0]), GOOD).role == "input"
    assert (first.runs, second.runs) == runs


def test_what_is_raised(chain):
    fn = chain("raise")[0]
    with pytest.raises(AssertionError) as caught:
        fn(ZERO, GOOD)
    error = caught.value
    assert type(error) is GuardError
    event = error.event
    assert isinstance(event, GuardEvent)
    assert (event.kind, event.op, event.role, event.output) == ("inf", "Log", "node", 0)
    assert (event.n_nan, event.n_posinf, event.n_neginf, event.n_big) == (0, 0, 1, 0)
    assert (event.first_index, event.first_value) == ((1,), -np.inf)
    assert (event.dtype, event.shape, event.size, event.path) == ("float64", (3,), 3, ())
    assert event is events_of(fn)[-1]
    with pytest.raises(AttributeError):
        event.kind = "nan"


def test_calls_are_counted():
    x = pt.dvector("x")
    fn = guarded([x], pt.log(x))
    fn(GOOD)
    assert trip(fn, ZERO).call == 2
    fn(GOOD)
    assert trip(fn, NEG).call == 4
    assert [event.call for event in events_of(fn)] == [2, 4]


def test_the_function_can_be_used_after_any_number_of_trips(chain):
    fn, *_ = chain("raise")
    for _ in range(200):
        trip(fn, ZERO, GOOD)
        assert fn(GOOD, GOOD)[0] == 0


# ---------------------------------------------------------------- what goes on


@pytest.mark.parametrize("action", GOING_ON)
@pytest.mark.not_on(
    jax="JAX does not run the operation that counts",
    pytorch="PyTorch does not run the operation that counts",
)
def test_the_call_goes_on(action, chain, capsys, caplog):
    fn, first, second, told = chain(action)
    runs = first.runs, second.runs
    del told[:]
    before = len(events_of(fn))
    total, roots = fn(ZERO, GOOD)
    assert total == -np.inf
    assert list(roots) == [1, 1, 1]
    # the first bad node, and neither the copy nor the sum that follow from it
    new = events_of(fn)[before:]
    assert [event.op for event in new] == ["Log"]
    assert second.runs == runs[1] + 1
    if action == "callable":
        assert told == new
    if action == "warn":
        assert [record.event for record in caplog.records] == new
    if action == "pdb":
        assert "log(0.0) = -inf" in capsys.readouterr().err
    fn(GOOD, GOOD)
    assert len(events_of(fn)) == before + 1


@pytest.mark.parametrize("action", GOING_ON)
def test_each_call_reports_anew(action, chain):
    fn = chain(action)[0]
    before = len(events_of(fn))
    for _ in range(3):
        fn(ZERO, GOOD)
    calls = [event.call for event in events_of(fn)[before:]]
    assert calls == list(range(calls[0], calls[0] + 3))


@pytest.mark.parametrize("action", GOING_ON)
def test_what_follows_from_a_bad_input_is_not_reported(action, chain):
    fn = chain(action)[0]
    before = len(events_of(fn))
    fn(np.array([np.nan, 1.0, 1.0]), GOOD)
    assert [(e.role, e.variable) for e in events_of(fn)[before:]] == [("input", "x")]


def test_independent_faults_are_reported_each(chain):
    fn = chain("record")[0]
    before = len(events_of(fn))
    fn(ZERO, NEG)
    assert {event.op for event in events_of(fn)[before:]} == {"Log", "Sqrt"}


@pytest.mark.parametrize("action", ["record", "warn"])
def test_operations_that_print_alike_are_told_apart(action, caplog):
    x, y = pt.dvector("x"), pt.dvector("y")
    first = pt.log(x.prod())
    second = pt.log(y.prod())
    fn = guarded([x, y], [first, second], optimizer="fast_compile", action=action)
    fn(np.zeros(2), np.zeros(2))
    events = events_of(fn)
    assert events[0].node == events[1].node
    lines = sorted(event.source.line for event in events)
    assert lines[1] == lines[0] + 1
    if action == "warn":
        assert "first = " in caplog.text and "second = " in caplog.text


def test_one_cause_is_one_event_though_fused_into_several_outputs():
    """An output of a fused operation that only follows from another of its outputs is no event."""
    x, y, w = pt.dvector("x"), pt.dvector("y"), shared(np.zeros(2))
    log, root = pt.log(x), pt.sqrt(y)
    outputs = [log * 2, log, pt.switch(y > 0, log, 0.0), log + root, root + 1]
    fn = guarded([x, y], outputs, updates={w: w + log}, action="record")

    def told(x, y):
        before = len(events_of(fn))
        w.set_value(np.zeros(2))
        fn(np.array(x), np.array(y))
        new = events_of(fn)[before:]
        return sorted((e.kind, e.first_index, e.explanation.cause.expression) for e in new)

    assert told([1.0, -1.0], [1.0, 1.0]) == [("nan", (1,), "log(-1.0)")]
    assert told([1.0, 0.0], [4.0, 0.25]) == [("inf", (1,), "log(0.0)")]
    log, root = ("nan", (0,), "log(-1.0)"), ("nan", (0,), "sqrt(-2.0)")
    assert told([-1.0, 1.0], [-2.0, 1.0]) == [log, root]


def test_the_debugger_is_opened_once(chain, opened):
    chain("pdb")[0](GOOD, GOOD)
    assert opened == []
    chain("pdb")[0](ZERO, GOOD)
    assert opened == ["opened"]


def test_leaving_the_debugger_stops_the_call_and_loses_nothing(monkeypatch):
    def leave():
        raise bdb.BdbQuit

    monkeypatch.setattr("pdb.set_trace", leave)
    w, x = shared(np.ones(3)), pt.dvector("x")
    fn = guarded([x], pt.log(w * 0.5 + x), updates={w: w * 0.5 + x}, action="pdb")
    with pytest.raises(bdb.BdbQuit):
        fn(-0.5 * GOOD)
    assert np.array_equal(w.get_value(), GOOD)


def test_what_follows_through_an_update_is_a_new_report():
    """A bad shared variable is reported as one by the next call."""
    w, x = shared(np.ones(3), name="w"), pt.dvector("x")
    fn = guarded([x], [], updates={w: w + pt.log(x)}, action="record")
    fn(ZERO)
    fn(GOOD)
    assert [(e.role, e.call) for e in events_of(fn)] == [("node", 1), ("shared", 2)]


# ---------------------------------------------------------------- buffers


def test_buffers_are_bounded():
    x = pt.dvector("x")
    mode = GuardMode(True, True, True, action="record", max_events=4)
    first, second = (guarded([x], out, mode=mode) for out in (pt.log(x), pt.sqrt(x)))
    for i in range(6):
        first(-(i + 1.0) * GOOD)
    assert [e.call for e in events_of(first)] == [3, 4, 5, 6]
    second(NEG)
    assert [e.op for e in mode.events] == ["Log", "Log", "Log", "Sqrt"]
    assert len(events_of(first)) == 4
    assert [e.op for e in events_of(second)] == ["Sqrt"]


def test_raised_trips_are_kept_too(chain):
    fn = chain("raise")[0]
    before = len(events_of(fn))
    trip(fn, ZERO, GOOD)
    assert len(events_of(fn)) == before + 1 <= 100 or len(events_of(fn)) == 100


def test_what_events_returns_is_a_copy(chain):
    fn = chain("record")[0]
    fn(ZERO, GOOD)
    kept = events_of(fn)
    kept.clear()
    assert events_of(fn)


# ---------------------------------------------------------------- a callable


class Broken(Exception):
    pass


def test_a_callable_that_raises(c_backend):
    def refuse(event):
        raise Broken(event.kind)

    x = pt.dvector("x")
    later = CountedIdentity()
    fn = guarded([x], later(pt.log(x)), action=refuse)
    fn(GOOD)
    for _ in range(2):
        with pytest.raises(Broken, match="inf"):
            fn(ZERO)
    assert later.runs == 1
    with pytest.raises(Broken, match="nan"):
        fn(np.array([np.nan, 1.0, 1.0]))  # an input
    fn(GOOD)
    assert later.runs == 2


@pytest.mark.not_on(pytorch=NO_LOOPS)
def test_a_callable_that_raises_from_inside_a_loop():
    import pytensor

    def refuse(event):
        raise Broken(event.path[0].step)

    x = pt.dvector("x")
    result, _ = pytensor.scan(
        lambda v, s: s * 0.5 + pt.log(v + 0 * s),
        sequences=[x],
        outputs_info=[pt.constant(0.0, dtype="float64")],
    )
    fn = guarded([x], result, action=refuse)
    fn(GOOD)
    with pytest.raises(Broken) as caught:
        fn(ZERO)
    assert caught.value.args == (1,)
    fn(GOOD)


def test_a_callable_may_stop_the_program():
    x = pt.dvector("x")

    def interrupt(event):
        raise KeyboardInterrupt

    fn = guarded([x], pt.log(x), action=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fn(ZERO)


def test_a_callable_may_use_other_guarded_functions(chain):
    other = chain("raise")[0]
    seen = []

    def look(event):
        seen.append(trip(other, ZERO, GOOD).op)

    x = pt.dvector("x")
    fn = guarded([x], pt.log(x), action=look)
    fn(ZERO)
    assert seen == ["Log"]


# ---------------------------------------------------------------- the logger


@pytest.mark.parametrize("action", ["raise", "warn", "record"])
def test_every_trip_is_one_record_of_the_logger(action, chain, caplog):
    fn = chain(action)[0]
    caplog.set_level(logging.INFO, logger="theanoguard")
    fn(GOOD, GOOD)
    assert not caplog.records
    if action == "raise":
        trip(fn, ZERO, GOOD)
    else:
        fn(ZERO, GOOD)
    [record] = caplog.records
    assert record.name == "theanoguard"
    assert record.event == events_of(fn)[-1]
    # (the function is shared by tests: a warning that was told before is only counted)
    levels = {logging.WARNING, logging.INFO} if action == "warn" else {logging.INFO}
    assert record.levelno in levels
    assert "-inf" in record.getMessage() or "Inf" in record.getMessage()


def test_only_warn_is_seen_by_default(chain, caplog):
    for action in ("raise", "record"):
        fn = chain(action)[0]
        if action == "raise":
            trip(fn, ZERO, GOOD)
        else:
            fn(ZERO, GOOD)
    assert not caplog.records


@pytest.mark.not_on(
    jax="JAX raises other exceptions for wrong shapes",
    pytorch="PyTorch raises other exceptions for wrong shapes",
)
def test_any_other_error_tells_where_it_happened(needs_cxx):
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = guarded([x, y], pt.dot(x, y))
    with pytest.raises(ValueError) as caught:
        fn(np.ones(3), np.ones(4))
    note = "\n".join(caught.value.__notes__)
    assert "ValueError in" in note
    assert "test_actions.py" in note


@pytest.mark.not_on(
    jax="JAX raises other exceptions for wrong shapes",
    pytorch="PyTorch raises other exceptions for wrong shapes",
)
def test_any_other_error_while_a_guard_error_is_handled():
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = guarded([x, y], [pt.log(x), CountedIdentity()(x) + y])
    try:
        fn(NEG, NEG)
    except GuardError:
        with pytest.raises(ValueError, match="[Ss]hape|dimension|broadcast"):
            fn(np.ones(3), np.ones(4))
    else:
        pytest.fail("nothing was raised")
