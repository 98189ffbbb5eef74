"""``restore=False``: large arrays are overwritten, and a call that fails may change them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, backend, plain_mode

from theanoguard import GuardError, GuardMode

pytestmark = [
    pytest.mark.skipif(backend() not in ("c", "numba"), reason="is about C and Numba"),
    pytest.mark.usefixtures("needs_cxx"),
]
SHAPE = (130, 131)
GOOD = np.full((2, 130), 1.1)


def step_of(mode):
    """A step of RMSProp with a counter and a table whose rows are incremented."""
    w, s = (pytensor.shared(np.ones(SHAPE), name=name) for name in "ws")
    t, table = pytensor.shared(0.0, name="t"), pytensor.shared(np.zeros((50, 3)), name="table")
    x, rate = pt.dmatrix("x"), pt.dscalar("rate")
    h = pt.log(x)
    g = pt.dot(h.T, pt.dot(h, w))
    new = s + rate * pt.sqr(g)
    updates = {
        s: new,
        w: w - 0.001 * g / pt.sqrt(new),
        t: t + 1,
        table: pt.inc_subtensor(table[[1, 2]], 1.0),
    }
    return pytensor.function([x, rate], h.sum(), updates=updates, mode=mode), [
        w,
        s,
        t,
        table,
    ]


@pytest.fixture(scope="module")
def compiled():
    return step_of(GuardMode(**ALL, restore=False, optimizer="fast_run"))


@pytest.fixture
def guarded(compiled):
    fn, state = compiled
    for v, value in zip(
        state, (np.ones(SHAPE), np.ones(SHAPE), 0.0, np.zeros((50, 3))), strict=True
    ):
        v.set_value(value)
    return fn, state


def values_of(state):
    return [v.get_value() for v in state]


def same(state, values):
    pairs = zip(state, values, strict=True)
    return [np.array_equal(v.get_value(), value, equal_nan=True) for v, value in pairs]


def test_there_is_one_array(guarded):
    fn, state = guarded
    w, s, _, _ = state
    arrays = [v.get_value(borrow=True) for v in (w, s)]
    for _ in range(4):
        fn(GOOD, 0.1)
        now = [v.get_value(borrow=True) for v in (w, s)]
        assert now[0] is arrays[0] and now[1] is arrays[1]
    plain, other = step_of(plain_mode())
    for _ in range(4):
        plain(GOOD, 0.1)
    for v, expected in zip(state, other, strict=True):
        np.testing.assert_allclose(v.get_value(), expected.get_value(), rtol=1e-12)


def test_what_shows_before_the_first_overwrite_changes_nothing(guarded):
    fn, state = guarded
    fn(GOOD, 0.1)
    before = values_of(state)
    with pytest.raises(GuardError, match="NaN in log") as error:
        fn(-GOOD, 0.1)
    assert error.value.explanation is not None
    assert same(state, before) == [True] * 4


def test_what_the_update_makes_is_reported_and_stays(guarded):
    fn, state = guarded
    fn(GOOD, 0.1)
    before = values_of(state)
    with pytest.raises(GuardError) as error:
        fn(GOOD, -9.0)  # the square root of a negative number, in the loop that updates `w`
    event = error.value.event
    assert (event.kind, event.first_index, event.n_nan) == ("nan", (0, 0), SHAPE[0] * SHAPE[1])
    assert event.source is not None and "pt.sqrt(new)" in event.source.text
    [note] = error.value.__notes__
    assert note.startswith("The call had overwritten s, w when this value showed (restore=False)")
    assert same(state, before) == [False, False, True, True]
    assert np.isnan(state[0].get_value()).all()
    # The next call finds them, and changes nothing more.
    after = values_of(state)
    with pytest.raises(GuardError, match="NaN"):
        fn(GOOD, 0.1)
    assert same(state, after)[2:] == [True, True]


@pytest.mark.parametrize("settings", [{"action": "record"}, {"judge": "result"}])
def test_a_call_that_goes_on_updates_once(settings):
    mode = GuardMode(**ALL, **settings, restore=False, optimizer="fast_run")
    fn, state = step_of(mode)
    plain, other = step_of(plain_mode())
    for arguments in ((GOOD, 0.1), (-GOOD, 0.1), (GOOD, 0.1)):
        if "judge" in settings and arguments[0] is not GOOD:
            with pytest.raises(GuardError, match="NaN"):
                fn(*arguments)
            assert np.isnan(state[0].get_value()).all()  # judged when the call has ended
            return
        else:
            fn(*arguments)
        plain(*arguments)
    if "action" in settings:
        second = [event for event in mode.events if event.call == 2]
        assert second == mode.events[: len(second)]
        assert {event.source.text.strip() for event in second} == {"h = pt.log(x)"}
        assert state[2].get_value() == 3
    for v, expected in zip(state[:2], other[:2], strict=True):
        np.testing.assert_allclose(v.get_value(), expected.get_value(), rtol=1e-12)


def test_it_cannot_be_audited():
    with pytest.raises(ValueError, match="audit=True computes each call again"):
        GuardMode(audit=True, restore=False)
    assert "restore=False" in repr(GuardMode(restore=False))
