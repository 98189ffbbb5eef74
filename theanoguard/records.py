"""The classes of what functions of this package return and raise, under their public names.

You read them, and the package creates them.
"""

from theanoguard._compare import Change, Comparison, Difference, ModeResult, Parting, Tolerance
from theanoguard._errors import TheanoguardError
from theanoguard._event import GuardEvent, PathStep
from theanoguard._exact import Exact
from theanoguard._lint import RULES, Bounds, Finding, Rule, Witness
from theanoguard._precision import Digits, Loss, Precision
from theanoguard._provenance import Backward, Provenance, RewriteStep, SourceLine
from theanoguard.explain import Cause, Explanation, Failure, Hint, Operand, Situation, Waypoint
from theanoguard.explain.facts.records import Fate, Since
from theanoguard.guard import GuardSummary
from theanoguard.guard.history import Recording, Sign
from theanoguard.log import LogEntry
from theanoguard.view.inspecting import Inspection

__all__ = [
    "RULES",
    "Backward",
    "Bounds",
    "Cause",
    "Change",
    "Comparison",
    "Difference",
    "Digits",
    "Exact",
    "Explanation",
    "Failure",
    "Fate",
    "Finding",
    "GuardEvent",
    "GuardSummary",
    "Hint",
    "Inspection",
    "LogEntry",
    "Loss",
    "ModeResult",
    "Operand",
    "Parting",
    "PathStep",
    "Precision",
    "Provenance",
    "Recording",
    "RewriteStep",
    "Rule",
    "Sign",
    "Since",
    "Situation",
    "SourceLine",
    "TheanoguardError",
    "Tolerance",
    "Waypoint",
    "Witness",
]
