"""What a call reports does not depend on the calls before it, though the plan learns from them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, NO_LOOPS
from pytensor import scan

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_33

x, y = pt.dvectors("x", "y")
k = pt.lscalar("k")


def in_loop():
    steps = scan(lambda i: pt.switch(k > 0, pt.log(i), 0.0), x, return_updates=False)
    return steps.sum() + pt.exp(y).sum()


# Programs that may not use a bad element of x, or one that is made from it.
PROGRAMS = {
    "switch": lambda: pt.switch(k > 0, x, y).sum(),
    "made": lambda: pt.switch(k > 0, pt.log(x), y).sum() + pt.sqrt(y).sum(),
    "element": lambda: pt.exp(x[k]) + y.sum(),
    "elements": lambda: (x[[k, k]] * y[:2]).sum(),
    "overwritten": lambda: pt.set_subtensor(x[k:], y[k:]).sum(),
    "element overwritten": lambda: pt.set_subtensor(pt.log(x)[k], 0.0) + y,
    "one of two": lambda: pt.set_subtensor(pt.set_subtensor(pt.log(x)[0], y[0])[k], 0.0) * 2,
    "written, then taken": lambda: pt.set_subtensor(pt.log(x)[2], y[0])[k * 2 :] + 1,
    "choice": lambda: pt.choose(k, [x, y]).sum() * 2,
    "summed": lambda: pt.switch(k > 0, x.sum(), y.sum()) + 1,
    "loop": in_loop,
}
SETTINGS = {
    "checked": {},
    "nan": {"inf_is_error": False, "big_is_error": False},
    "not big": {"big_is_error": False},
    "unchecked": {"check_inputs": False},
    "left out by name": {"exempt": "x"},
    "left out by variable": {"exempt": x},
    "result": {"judge": "result"},
    "anywhere": {"inf_is_error": "any", "check_inputs": False},
    "record": {"action": "record"},
}
CALLS = [(bad, chosen) for bad in (np.nan, np.inf, -1.0, 1e200, 2.0) for chosen in (0, 1, 0)]


def outcome(f, mode, bad, chosen):
    """Return the event that a call reports, or its result."""
    mode.events.clear() if hasattr(mode.events, "clear") else None
    seen = len(mode.events)
    try:
        with np.errstate(all="ignore"):
            result = f(np.array([1.0, bad, 3.0]), np.array([0.5, 2.0, 1.0]), chosen)
    except GuardError as error:
        return error.event.kind, error.event.op, error.event.first_index
    events = list(mode.events)[seen:]
    return [(e.kind, e.op, e.first_index) for e in events], np.array(result).tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(n, marks=pytest.mark.not_on(pytorch=NO_LOOPS)) if n == "loop" else n
        for n in PROGRAMS
    ],
)
def test_a_call_reports_what_it_reports_alone(program, settings):
    def compiled():
        mode = GuardMode(**{**ALL, **SETTINGS[settings]})
        return pytensor.function([x, y, k], PROGRAMS[program](), mode=mode), mode

    learning, mode = compiled()
    unused, own_mode = compiled()
    for bad, chosen in CALLS:
        alone = outcome(unused.copy(), own_mode, bad, chosen)
        assert outcome(learning, mode, bad, chosen) == alone, (bad, chosen)
