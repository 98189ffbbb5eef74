"""Each rule by which a value is left out is held to what a second reading of the call finds."""

import auditing
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend, computes_both_branches
from pytensor.compile.builders import OpFromGraph

from theanoguard import GuardMode, events_of
from theanoguard._pytensor import ifelse
from theanoguard.guard.plan import REASONS

# Generators, slices and integers cannot be bad.  C reads what is exempt, and skips a branch.
ELSEWHERE = {
    "c": {"exempt", "branch"},
    "numba": set(),
}.get(backend(), {"flag", "carried", "part"})
ELSEWHERE |= {"not numeric", "discrete", *(() if computes_both_branches() else ("branch",))}

x = pt.dvector("x")
log = pt.log(x)
exempt = pt.log(x)
exempt.name = "exempt"
y = pt.dvector("y")
body = OpFromGraph([y], [pt.log(y)])
table = pytensor.shared(np.ones(1000), name="table")
rows = table[pt.as_tensor([4, 2, 7])]


def loop(sequence):
    """Return the sequences of a loop that gives a value as well that is left out inside."""

    def step(v, last):
        value = pt.log(v - last)
        value.name = "exempt"
        return value, value * 2

    return pytensor.scan(
        step,
        sequences=[sequence],
        outputs_info=[None, np.float64(0)],
        return_updates=False,
    )


# Values that a rule leaves out, and that are bad where an element of x is -1.
LEFT_OUT = {
    "flag": [log * 2],
    "carried": [pt.psi(x + 1) * 2],
    "moved": [pt.maximum(log, -1.0)],
    "uninitialised": [pt.set_subtensor(pt.empty(4)[:3], log)],
    "inner graph": loop(x),
    "part": {table: pt.inc_subtensor(rows, pt.cumsum(log))},
    "exempt": [exempt * 2],
    "branch": [ifelse(pt.gt(x[0], 0), log * 3, x)],
}
# Without flags, several rules have the same reason.
WITHOUT_FLAGS = [
    ("moved", [pt.cumsum(log)[::2]]),
    ("moved", [pt.concatenate([log, x])]),
    ("moved", [pt.tanh(log)]),
    ("moved", [pt.special.softmax(log)]),
    ("inner graph", [body(x)]),
]
CASES = [(rule, LEFT_OUT[rule]) for rule in sorted(REASONS.keys() - ELSEWHERE)]
if backend() not in ("c", "numba"):
    CASES += WITHOUT_FLAGS


@pytest.mark.parametrize("rule, values", CASES)
def test_a_bad_value_that_a_rule_leaves_out(rule, values, monkeypatch, has_cxx):
    if rule == "flag" and not has_cxx:
        pytest.skip("without a C++ compiler, scans do the work of the flags")
    outputs, updates = ([], values) if isinstance(values, dict) else (values, {})
    mode = GuardMode(
        True, True, False, audit=True, action="record", exempt="exempt", optimizer="fast_run"
    )
    fn = pytensor.function([x], outputs, updates=updates, mode=mode.excluding("fusion"))
    with auditing.counted(monkeypatch) as exercised:
        fn(np.ones(3))
        assert not events_of(fn)
        fn(np.array([1.0, -1.0, 3.0]))
    assert exercised[rule]
    assert len(events_of(fn)) == 1
