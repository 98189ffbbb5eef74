"""Elementwise nodes that run on blocks of rows on the C backend, which reads large arrays there."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.usefixtures("needs_cxx")

N = 70_001  # several blocks, and rows that are left over
PLACES = [0, N // 2, N - 1]


@pytest.fixture(scope="module")
def compiled():
    """Return one function of two vectors, with each kind of check."""
    x, y = pt.dvector("x"), pt.dvector("y")
    return {
        big: pytensor.function([x, y], [pt.exp(x) + y, x > y], mode=GuardMode(big_is_error=big))
        for big in (False, True)
    }


def arrays(n=N):
    rng = np.random.default_rng(5)
    return rng.normal(size=n), rng.normal(size=n)


def runs_in_blocks(function):
    """Whether all of it was read while only blocks of it were there, as the kernel counts."""
    kernel = function.vm.guard.kernel
    before = kernel.counters()["blocks"]
    function(*arrays())
    return kernel.counters()["blocks"] > before


@pytest.mark.parametrize("big", [False, True])
def test_results_are_those_of_one_run(compiled, big):
    assert runs_in_blocks(compiled[big])
    for n in (0, 1, 1000, N, 4 * 8192, 100_000):
        x, y = arrays(n)
        total, larger = compiled[big](x, y)
        np.testing.assert_array_equal(larger, x > y)
        np.testing.assert_array_equal(total, compiled[big](x[::1].copy()[::-1][::-1], y)[0])
        strided = np.repeat(x, 2)[::2]  # cannot be cut
        np.testing.assert_array_equal(total, compiled[big](strided, y)[0])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e11])
@pytest.mark.parametrize("name", ["x", "y"])
def test_a_bad_element_of_an_input_is_found_in_every_block(compiled, name, value, place):
    x, y = arrays()
    (x if name == "x" else y)[place] = value
    with pytest.raises(GuardError) as caught:
        compiled[True](x, y)
    assert (caught.value.event.role, caught.value.event.first_index) == ("input", (place,))
    if np.isfinite(value):
        return
    with pytest.raises(GuardError) as caught:
        compiled[False](x, y)
    assert (caught.value.event.role, caught.value.event.first_index) == ("input", (place,))


@pytest.mark.parametrize("place", PLACES)
def test_a_bad_element_that_the_node_makes_is_found_in_every_block(compiled, place):
    for value, kind, guarded in ((30.0, "big", compiled[True]), (800.0, "inf", compiled[False])):
        x, y = arrays()
        x[place] = value
        with pytest.raises(GuardError) as caught:
            guarded(x, y)
        event = caught.value.event
        assert (event.kind, event.role, event.first_index) == (kind, "node", (place,))
    assert runs_in_blocks(guarded)  # the next call is as any other


def test_operands_of_different_lengths_are_refused_as_without_a_guard(compiled):
    x, y = arrays()
    with pytest.raises(ValueError, match="[Ii]nput"):
        compiled[True](x, y[1:])
    x[3] = np.nan
    with pytest.raises(GuardError) as caught:  # a bad input is reported first
        compiled[True](x, y[1:])
    assert caught.value.event.role == "input"


def test_a_call_that_fails_before_the_first_reader_reports_the_bad_input():
    x, y, i = pt.dvector("x"), pt.dvector("y"), pt.lscalar("i")
    f = pytensor.function([x, y, i], pt.exp(x) * pt.log(y[i]), mode=GuardMode())
    a, b = arrays()
    with pytest.raises(IndexError):
        f(a, b, N)
    a[-1] = np.nan
    with pytest.raises(GuardError) as caught:
        f(a, b, N)
    assert caught.value.event.role == "input"


def test_actions_that_continue_see_the_bad_input_and_the_call_ends(compiled):
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    mode = GuardMode(action="record")
    f = pytensor.function([x, y], pt.exp(x) + y, mode=mode)
    a, b = (v[:70_000].reshape(700, 100) for v in arrays())
    a[350, 5] = np.nan
    result = f(a, b)
    assert np.isnan(result[350, 5]) and np.isfinite(result).sum() == 70_000 - 1
    assert [(e.role, e.kind, e.first_index) for e in mode.events] == [("input", "nan", (350, 5))]


def test_updates_survive_a_call_that_fails_in_a_block():
    w = pytensor.shared(np.ones(N), name="w")
    x = pt.dvector("x")
    f = pytensor.function([x], [], updates={w: w + pt.exp(x)}, mode=GuardMode())
    a = arrays()[0]
    f(a)
    before = w.get_value()
    a[-1] = 40.0
    with pytest.raises(GuardError):
        f(a)
    np.testing.assert_array_equal(w.get_value(), before)
