"""``every=N``: one call in so many is looked at."""

import copy
import pickle

import guarding
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

from theanoguard import GuardError, GuardMode, events_of
from theanoguard._pytensor import ifelse

x = pt.dvector("x")
c = pt.dscalar("c")


def loop(x):
    states = pytensor.scan(
        lambda v, s: (s + pt.log(v), until(s > 1e6)),
        sequences=[x],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        return_updates=False,
    )
    return states[-1]


def trips(fn, *arguments, calls):
    """Which of the calls trip."""
    tripped = []
    for i in range(calls):
        try:
            fn(*arguments)
        except GuardError:
            tripped.append(i)
    return tripped


GRAPHS = {
    "a node": lambda: pt.log(x).sum(),
    "a loop": lambda: loop(x),
    "a branch": lambda: ifelse(pt.gt(c, 0), pt.log(x).sum(), x.sum()),
    "an input": lambda: pt.maximum(x, 0),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_first_call_and_every_third(graph):
    if graph == "a loop" and guarding.backend() == "jax":
        pytest.skip("PyTensor cannot convert a while loop to JAX")
    fn = pytensor.function(
        [x, c], GRAPHS[graph](), mode=GuardMode(every=3), on_unused_input="ignore"
    )
    bad = np.array([1.0, -np.inf if graph == "an input" else -1.0])
    for function in (fn, fn.copy(), copy.deepcopy(fn), pickle.loads(pickle.dumps(fn))):
        assert trips(function, bad, 1.0, calls=7) == [0, 3, 6]
        assert trips(function, np.ones(2), 1.0, calls=3) == []
    assert [event.call for event in events_of(fn)] == [1, 4, 7]


def test_what_stays_in_a_shared_variable_is_found_later():
    w = pytensor.shared(np.ones(2000), name="w")
    fn = pytensor.function([c], [], updates={w: w * c}, mode=GuardMode(every=4))
    fn(2.0)
    fn(1e200)
    fn(1e200)
    fn(1.0)
    with pytest.raises(GuardError) as caught:
        fn(1.0)
    event = caught.value.event
    assert (event.role, event.variable, event.kind) == ("shared", "w", "inf")


def test_a_trip_loses_nothing_in_the_call_that_is_looked_at():
    w = pytensor.shared(np.ones(2000), name="w")
    fn = pytensor.function([c], [], updates={w: w * pt.exp(c)}, mode=GuardMode(every=2))
    fn(0.1)
    fn(0.1)
    before = w.get_value()
    with pytest.raises(GuardError):
        fn(1000.0)
    np.testing.assert_array_equal(w.get_value(), before)


def test_another_error_is_told_in_a_call_that_is_not_looked_at():
    y = pt.dvector("y")
    fn = pytensor.function([x, y], pt.log(x) + pt.cumsum(y), mode=GuardMode(every=2))
    fn(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="mismatch|broadcast|incompatible"):
        fn(np.ones(3), np.ones(4))


@pytest.mark.parametrize("every", [0, -1, 1.5, "2"])
def test_what_makes_no_sense_is_refused(every):
    with pytest.raises((TypeError, ValueError), match="every"):
        GuardMode(every=every)
