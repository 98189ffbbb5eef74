"""The records that functions of this package return, under their public names.

They are plain dataclasses.  You read them, and the package creates them.
"""

from theanoguard._compare import Change, Comparison, Difference, ModeResult, Parting, Tolerance
from theanoguard._event import GuardEvent, PathStep
from theanoguard._lint import RULES, Bounds, Finding, Rule, Witness
from theanoguard._precision import Digits, Loss, Precision
from theanoguard._provenance import Backward, Provenance, RewriteStep, SourceLine
from theanoguard.explain import Cause, Explanation, Failure, Hint, Operand, Situation, Waypoint
from theanoguard.guard import GuardSummary
from theanoguard.log import LogEntry

__all__ = [
    "RULES",
    "Backward",
    "Bounds",
    "Cause",
    "Change",
    "Comparison",
    "Difference",
    "Digits",
    "Explanation",
    "Failure",
    "Finding",
    "GuardEvent",
    "GuardSummary",
    "Hint",
    "LogEntry",
    "Loss",
    "ModeResult",
    "Operand",
    "Parting",
    "PathStep",
    "Precision",
    "Provenance",
    "RewriteStep",
    "Rule",
    "Situation",
    "SourceLine",
    "Tolerance",
    "Waypoint",
    "Witness",
]
