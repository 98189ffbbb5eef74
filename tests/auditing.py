"""``pytest --audit``: every check that the guard drops is done by a scan as well.

A value that would have been missed raises an error.  The summary counts by which rules values are
left out that were bad in an audited call, so that a rule that no test exercises is seen.
``tests/guard/test_audit.py`` plants such a value for each rule.
"""

import inspect
from collections import Counter
from contextlib import contextmanager
from functools import wraps

import theanoguard
from theanoguard.guard.c import runtime as compiled
from theanoguard.guard.graph import runtime as jitted

exercised = Counter()
"""By rule, how many of the values were bad that it leaves out."""
missed = Counter()
"""By rule, how many bad values only the audit has found."""


def install(on_missed=lambda error: None):
    """Have every ``GuardMode`` audit, and count what it finds.

    ``on_missed(error)`` is called with each error of the audit.
    """
    inspect.unwrap(theanoguard.GuardMode.__init__).__kwdefaults__["audit"] = True
    for runtime in (compiled.CRuntime, jitted.JittedRuntime):
        runtime.second_run = _counting(runtime.second_run)
    for module in (compiled, jitted):
        module.missed_without_audit = _noting(module.missed_without_audit, on_missed)


@contextmanager
def counted(monkeypatch):
    """Give a Counter of what :data:`exercised` counts, in this block alone."""
    with monkeypatch.context() as patched:
        for runtime in (compiled.CRuntime, jitted.JittedRuntime):
            patched.setattr(runtime, "second_run", _counting(runtime.second_run))
        before = exercised.copy()
        found = Counter()
        yield found
        found.update(exercised - before)


def dropped_by(runtime):
    """Return by which rule each value of a function is left out where there is no audit."""
    if isinstance(runtime, compiled.CRuntime):
        plans = [inner.plan.without_audit() for inner in runtime.runtimes()]
    else:
        plans = runtime.plans()
    return {variable: rule for plan in plans for variable, rule in plan.dropped.items()}


def _counting(second_run):
    @wraps(second_run)
    def counting(runtime, *args, **kwargs):
        run = second_run(runtime, *args, **kwargs)
        if not runtime.policy.audit:
            return run
        find = run.find

        def found():
            result = find()
            dropped = dropped_by(runtime)
            exercised.update(dropped.get(v, "read") for v in result.noisy)
            return result

        run.find = found
        return run

    return counting


def _noting(missed_without_audit, on_missed):
    @wraps(missed_without_audit)
    def noting(first, reason=None, *args):
        missed[reason] += 1
        error = missed_without_audit(first, reason, *args)
        on_missed(error)
        return error

    return noting


def summary():
    """Return the counts, as text."""
    lines = ["bad values of audited calls, by the rule that leaves them out:"]
    lines += [f"{count:8}  {rule}" for rule, count in exercised.most_common()]
    lines.append(f"{missed.total():8}  would have been missed without the audit")
    return "\n".join(lines)
