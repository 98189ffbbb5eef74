"""The guard compiled to C and the one in NumPy: the same calls have the same outcomes."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, CountedIdentity
from pytensor import scan, shared

from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import ifelse
from theanoguard.guard.c import build

pytestmark = [pytest.mark.usefixtures("needs_cxx", "c_backend"), pytest.mark.on_33]

x, y = pt.dvectors("x", "y")
rows = pt.lvector("rows")


def table():
    return shared(np.ones((4, 3)), name="table")


def plain():
    return [x, y], [pt.log(x) / y, x.sum()], {}


def updated():
    w = shared(np.ones(3), name="w")
    return [x, y], pt.log(x).sum(), {w: w - y * pt.sqrt(x)}


def read_after_update():
    w = shared(np.ones(3), name="w")
    return [x, y], [w, pt.exp(y).sum()], {w: pt.set_subtensor(w[1:], w[:-1] / x[1:])}


def part_updated():
    w = table()
    return [rows, x], pt.log(w[rows]).sum(), {w: pt.inc_subtensor(w[rows], pt.log(x))}


def part_set():
    w = table()
    return [rows, x], w.sum(), {w: pt.set_subtensor(w[rows], 1 / x)}


def in_a_branch():
    return [x, y], ifelse(pt.gt(y[0], 0), pt.log(x), x * pt.constant(np.nan)), {}


def in_a_loop():
    s = shared(np.zeros(3), name="s")
    steps = scan(lambda i, a: pt.log(a) + i, x, outputs_info=y, return_updates=False)
    return [x, y], steps, {s: s + steps[-1]}


def masked():
    return [x, y], pt.switch(x > 0, y / x, 0.0).sum(), {}


def with_effects():
    w = shared(np.zeros(3), name="w")
    return [x, y], CountedIdentity()(pt.log(x)) / y, {w: w + x}


def may_be_empty():
    return [x, y], pt.log(x[x > 1]).sum() + y.sum(), {}


def product():
    return [x, y], pt.dot(pt.outer(x, y), pt.log(y)), {}


def literal():
    return [x, y], pt.maximum(x, -np.inf) + pt.exp(y), {}


PROGRAMS = [
    *(plain, updated, read_after_update, part_updated, part_set, in_a_branch, in_a_loop, masked),
    *(with_effects, may_be_empty, product, literal),
]
SETTINGS = {
    "raise": {},
    "nan": {"inf_is_error": False, "big_is_error": False},
    "record": {"action": "record"},
    "every third": {"every": 3},
    "trusted": {"check_inputs": "trusted"},
    "unchecked": {"check_inputs": False},
    "result": {"judge": "result"},
    "anywhere": {"inf_is_error": "any"},
    "calls back": {"action": "call"},
}
GOOD = [1.0, 2.0, 0.5, 3.0, -1.0]
BAD = [0.0, -1.0, np.nan, np.inf, -np.inf, 1e200]


def arguments(inputs, rng):
    """Return arguments of a call, most of them good, sometimes of a wrong length."""
    given = []
    for variable in inputs:
        if variable is rows:
            given.append(rng.integers(0, 5 if rng.random() < 0.1 else 4, 3))
            continue
        value = rng.choice(GOOD[:4], 3)
        if rng.random() < 0.4:
            value[rng.integers(3)] = rng.choice(BAD)
        given.append(value[:2] if rng.random() < 0.05 else value)
    return given


def outcomes(program, settings, calls):
    """Return what each call gives, what it leaves behind, and the events of all."""
    inputs, outputs, updates = program()
    action, again = settings.get("action"), []
    if action == "call":  # the user's action calls the function that has tripped

        def act(event):
            if not again:
                again.append(event)
                f(*[np.ones_like(v) for v in calls[0]])
                again.clear()

        settings = {**settings, "action": act}
    mode = GuardMode(**{**ALL, **settings})
    f = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    found = []
    for values in calls:
        before = [np.array(v) for v in values]
        try:
            with np.errstate(all="ignore"):
                result = f(*values)
            told = [np.array(r) for r in result] if isinstance(result, list) else np.array(result)
        except GuardError as error:
            event = error.event
            told = (event.kind, event.op, event.first_index, event.call, event.path)
        except (ValueError, IndexError) as error:
            told = type(error).__name__
        for given, kept in zip(values, before, strict=True):
            np.testing.assert_array_equal(given, kept)
        found.append((told, [w.get_value() for w in updates if hasattr(w.type, "ndim")]))
    events = [(e.kind, e.op, e.first_index, e.n_nan, e.n_big, e.call, e.path) for e in mode.events]
    return found, events


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_have_the_same_outcomes(program, settings, monkeypatch):
    rng = np.random.default_rng(sum(map(ord, program.__name__ + settings)))
    calls = [arguments(program()[0], rng) for _ in range(12)]
    in_c = outcomes(program, SETTINGS[settings], calls)
    monkeypatch.setattr(build, "load", lambda: None)
    in_numpy = outcomes(program, SETTINGS[settings], calls)
    for (one, kept), (other, also_kept) in zip(in_c[0], in_numpy[0], strict=True):
        np.testing.assert_equal(other, one)
        np.testing.assert_equal(also_kept, kept)
    assert in_numpy[1] == in_c[1]


def test_the_calls_are_of_all_kinds():
    """The draws above hold what they are meant to hold."""
    rng = np.random.default_rng(0)
    drawn = [arguments([x, y], rng) for _ in range(100)]
    values = np.concatenate(list(itertools.chain(*drawn)))
    assert {len(a) for call in drawn for a in call} == {2, 3}
    assert np.isnan(values).any() and np.isinf(values).any() and (values == 0).any()
