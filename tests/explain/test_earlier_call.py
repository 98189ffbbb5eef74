"""A change of the function must leave the results of an earlier call as they were."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode


def step(backend, updates=None, **settings):
    """A function that fails at 0, for which a bound at 1e-12 or more changes small numbers."""
    x = pt.dvector("x")
    mode = GuardMode(True, True, False, backend=backend, **settings)
    return pytensor.function([x], pt.log(x**2), updates=updates, mode=mode)


def advice(fn, x):
    """The advice of a call that fails."""
    with pytest.raises(GuardError) as caught:
        fn(np.asarray(x))
    return caught.value.explanation.advice


@pytest.fixture
def backend(request):
    return request.config.getoption("--backend")


SMALL, USUAL, BAD = [1e-8, 1.0], [0.5, 1.0], [0.0, 1.0]


@pytest.mark.parametrize(
    ("calls", "grade"),
    [
        ([], "changes"),
        ([USUAL], "changes"),
        ([SMALL], ""),  # log(1e-16) would become log(1e-12)
        ([SMALL, SMALL, USUAL], ""),  # the second call is kept
        ([SMALL, USUAL, USUAL], "changes"),
    ],
)
def test_a_bound_that_would_move_an_earlier_call_is_not_shown(calls, grade, backend):
    fn = step(backend)
    for x in calls:
        fn(np.array(x))
    found = advice(fn, BAD)
    assert found.grade == grade
    assert bool(found.change) == bool(grade)


def test_arrays_that_the_caller_overwrites_are_kept_as_they_were(backend):
    fn, x = step(backend), np.array(SMALL)
    fn(x)
    x[:] = BAD
    assert advice(fn, x).grade == ""


def test_calls_that_fail_are_no_evidence(backend):
    fn = step(backend)
    for _ in range(3):
        assert advice(fn, BAD).grade == "changes"
    fn(np.array(SMALL))
    assert advice(fn, BAD).grade == ""


def test_large_arguments_are_not_kept(backend):
    fn = step(backend)
    fn(np.full(10_000, 1e-8))
    assert advice(fn, BAD).grade == "changes"


def test_large_shared_variables_have_their_present_values(backend):
    x = pt.dvector("x")
    table = pytensor.shared(np.ones(10_000), name="table")
    mode = GuardMode(True, True, False, backend=backend)
    fn = pytensor.function([x], pt.log(x**2) * table[0], mode=mode)
    fn(np.array(SMALL))
    assert advice(fn, BAD).grade == ""
    table.set_value(np.zeros(10_000))  # (the result does not depend on x)
    assert advice(fn, BAD).grade == "changes"


def test_shared_variables_have_the_values_that_they_had(backend):
    x, scale = pt.dvector("x"), pytensor.shared(1e-8, name="scale")
    mode = GuardMode(True, True, False, backend=backend)
    fn = pytensor.function([x], pt.log((scale * x) ** 2), updates={scale: scale * 1e8}, mode=mode)
    fn(np.array(USUAL))
    assert advice(fn, BAD).grade == ""


def test_a_count_is_not_moved_if_it_was_right_before(backend):
    m, t = pt.dscalars("m", "t")
    mode = GuardMode(True, True, False, backend=backend)
    fn = pytensor.function([m, t], m / (1 - 0.9**t), mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(1.0, 0.0)
    assert "counts from 0" in caught.value.explanation.advice.text
    fn(1.0, 1.0)
    with pytest.raises(GuardError) as caught:
        fn(1.0, 0.0)
    assert "counts from 0" not in caught.value.explanation.advice.text
