"""``pytest --audit``: every check that the guard drops is done by a scan as well.

A value that would have been missed raises an error.  The summary counts by which rules the first
bad values of the calls would have been left out, so that a rule that no test exercises is seen.
Only "flag", "carried" and "moved" leave out what can be the first bad value of a call.  The other
rules are about values that hold no number, that nobody has written, or that are made in an inner
graph, where they are judged first.
"""

from collections import Counter

import theanoguard
from theanoguard.guard.c import linker
from theanoguard.guard.plan import REASONS

exercised = Counter()


def install():
    """Have every ``GuardMode`` audit, and count what it finds."""
    theanoguard.GuardMode.__init__.__kwdefaults__["audit"] = True
    audit = linker.GuardRuntime.audit

    def counting(runtime, first, suspicion, fired):
        reasons = {}
        for inner in runtime.runtimes():
            reasons |= inner.plan.without_audit().dropped
        exercised[reasons.get(first.variable, "read")] += 1
        return audit(runtime, first, suspicion, fired)

    linker.GuardRuntime.audit = counting


def summary():
    """Return the counts, as text."""
    counts = [f"{exercised[name]:6}  {name}" for name in ("read", *REASONS)]
    return "\n".join(["audited, by the rule that leaves out the first bad value:", *counts])
