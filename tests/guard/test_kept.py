"""With `check_inputs="trusted"` what a call has left in a shared variable is not scanned again."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode, events_of

pytestmark = pytest.mark.usefixtures("needs_cxx", "c_backend")

N = 1000
x = pt.dscalar("x")


def trip(fn, *arguments):
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value.event


def bytes_read(fn, *arguments):
    kernel = fn.vm.guard.kernel
    before = kernel.counters()["bytes"]
    fn(*arguments)
    return kernel.counters()["bytes"] - before


def compiled(action="raise"):
    """A function of ``w`` that reads every element, and one that also replaces ``w``."""
    w = pytensor.shared(np.ones(N), name="w")
    mode = GuardMode(action=action, check_inputs="trusted")
    look = pytensor.function([x], pt.maximum(w * x, -5), mode=mode)
    step = pytensor.function([x], [], updates={w: w * x}, mode=mode)
    return w, look, step


@pytest.fixture(scope="module")
def functions():
    return compiled()


@pytest.fixture(autouse=True)
def fresh(functions):
    functions[0].set_value(np.ones(N))


def test_what_stays_is_scanned_again_now_and_then(functions):
    _w, look, _step = functions
    look(2.0)
    read = [bytes_read(look, 2.0) for _ in range(32)]
    assert sum(r >= 16 * N for r in read) == 2  # (the product is always read)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e300])
def test_a_new_value_is_scanned(functions, bad):
    w, look, _step = functions
    look(2.0)
    value = np.ones(N)
    value[77] = bad
    w.set_value(value)
    event = trip(look, 2.0)
    assert (event.role, event.variable, event.first_index) == ("shared", "w", (77,))
    w.set_value(np.ones(N))
    look(2.0)


def test_a_change_of_the_array_itself_is_seen_before_its_consequences(functions):
    w, _look, _step = functions
    value = np.ones(N)
    w.set_value(value, borrow=True)
    sums = pytensor.function([x], pt.cumsum(w) * x, mode=GuardMode(check_inputs="trusted"))
    sums(2.0)
    value[77] = np.nan  # a single element: not one of those that are probed
    event = trip(sums, 2.0)
    assert (event.role, event.variable, event.first_index) == ("shared", "w", (77,))


def test_a_single_element_is_found_within_sixteen_calls(functions):
    w, look, _step = functions
    value = np.ones(N)
    w.set_value(value, borrow=True)
    look(2.0)
    value[77] = -np.inf
    for _ in range(16):
        try:
            look(2.0)
        except GuardError as error:
            assert error.event.role == "shared"
            return
    pytest.fail("not found")


def test_another_function_replaces_it(functions):
    w, look, _step = functions
    look(2.0)
    pytensor.function([x], [], updates={w: w * x}, mode="FAST_COMPILE")(np.inf)
    assert trip(look, 0.5).role == "shared"


def test_an_update_that_grows_is_bad_when_it_is(functions):
    """The bounds of a value go on from call to call; they must not fall behind it."""
    w, _look, step = functions
    value = 1.0
    while value * 10 <= 1e10:
        step(10.0)
        value *= 10
    before = w.get_value()
    assert trip(step, 10.0).kind == "big"
    np.testing.assert_array_equal(w.get_value(), before)
    step(0.5)
    assert w.get_value()[0] == before[0] * 0.5


def test_two_variables_exchange_their_values():
    a = pytensor.shared(np.ones(N), name="a")
    b = pytensor.shared(np.full(N, 1e9), name="b")
    fn = pytensor.function([x], a * x, updates={a: b, b: a}, mode=GuardMode(check_inputs="trusted"))
    for i in range(6):
        big = i % 2  # a holds the large numbers in every other call
        assert fn(2.0)[0] == (2e9 if big else 2.0)
        if big:
            continue
        assert trip(fn, np.float64(1e11)).kind == "big"


def test_what_was_recorded_as_bad_is_not_taken_for_clean():
    w, look, step = compiled(action="record")
    step(1e9)
    step(1e9)
    look(2.0)
    assert [(e.role, e.variable) for e in events_of(look)] == [("shared", "w")]
    step(1.0)
    assert [(e.role, e.variable) for e in events_of(step)] == [("node", None), ("shared", "w")]


def test_by_default_every_element_is_read_in_every_call():
    w = pytensor.shared(np.ones(N), name="w")
    value = w.get_value(borrow=True)
    fn = pytensor.function([x], pt.maximum(w * x, -5), mode=GuardMode())
    fn(2.0)
    value[77] = -np.inf
    assert trip(fn, 2.0).first_index == (77,)


def test_another_word_than_trusted_is_refused():
    with pytest.raises(ValueError, match="check_inputs"):
        GuardMode(check_inputs="sometimes")
