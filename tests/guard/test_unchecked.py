"""An operation that reads a value which is not checked is reported, also if it only copies."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from theanoguard import GuardMode, events_of
from theanoguard._pytensor import ifelse

SETTINGS = {"unchecked": {"check_inputs": False}, "exempt": {"exempt": "w"}}


def loop(step, **kwargs):
    return pytensor.scan(step, **kwargs, return_updates=False)


def inside(w):
    v = pt.dvector()
    return OpFromGraph([v], [v, -v])(w)


# By name, what a function returns of a shared vector of 4 numbers.
COPIES = {
    "the variable": lambda w: w,
    "a view": lambda w: w[::-1],
    "a part": lambda w: w[:2],
    "dimshuffle": lambda w: w[None, :],
    "reshape": lambda w: w.reshape((2, 2)).T,
    "join": lambda w: pt.concatenate([w, pt.ones(2)]),
    "set_subtensor": lambda w: pt.set_subtensor(pt.zeros(6)[:4], w),
    "inc_subtensor": lambda w: pt.inc_subtensor(pt.zeros(6)[:4], w),
    "negative": lambda w: -w,
    "switch": lambda w: pt.switch(pt.arange(4) < 3, w, 0.0),
    "sort": lambda w: pt.sort(w),
    "a branch": lambda w: ifelse(pt.gt(w[3], -100.0), w, w * 0),
    "a view in a branch": lambda w: ifelse(pt.gt(w[3], -100.0), w[::-1], w * 0),
    "a sequence": lambda w: loop(lambda a: [a, -2 * abs(a)], sequences=[w])[0],
    "a state": lambda w: loop(lambda h: -h, outputs_info=[w], n_steps=3),
    "an inner graph": inside,
}
# These read what is not checked, and nothing bad comes of it.
DISCARDS = {
    "condition": lambda w: pt.switch(pt.isnan(w) | pt.isinf(w), 0.0, w) * 2.0,
    "comparison": lambda w: w > 0,
    "shape": lambda w: pt.ones(w.shape),
}


def kinds(fn, w):
    """Return the kinds of the first events of calls with a NaN and with an Inf."""
    found = []
    for bad in (np.nan, np.inf):
        w.set_value(np.array([bad, 1.0, 2.0, 3.0]))
        before = len(events_of(fn))
        fn()
        found += [event.kind for event in events_of(fn)[before:]][:1]
    return found


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("backend", ["c", "numba", "jax"])
def test_the_operation_that_reads_it_is_reported(backend, settings):
    if backend != "c":
        pytest.importorskip(backend)
    made = COPIES | DISCARDS
    if settings == "exempt":  # (the same code decides)
        made = {name: made[name] for name in ("a view", "join", "a branch", "a state", "condition")}
    for name, build in made.items():
        w = pytensor.shared(np.ones(4), name="w")
        when = {"when": "now"} if backend == "jax" else {}
        mode = GuardMode(
            True, True, False, action="record", backend=backend, **when, **SETTINGS[settings]
        )
        fn = pytensor.function([], build(w), mode=mode)
        fn()
        assert not events_of(fn), name
        assert kinds(fn, w) == ([] if name in DISCARDS else ["nan", "inf"]), name
