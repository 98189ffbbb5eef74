"""From a trip to an explanation."""

from theanoguard.explain.explanation import explain
from theanoguard.explain.failure import Failure, explain_exception
from theanoguard.explain.hints import Hint, Situation, register_hint
from theanoguard.explain.masked import find_masked
from theanoguard.explain.records import Cause, Explanation, Operand, Waypoint
from theanoguard.explain.report import render_failure, render_text

__all__ = [
    "Cause",
    "Explanation",
    "Failure",
    "Hint",
    "Operand",
    "Situation",
    "Waypoint",
    "explain",
    "explain_exception",
    "find_masked",
    "register_hint",
    "render_failure",
    "render_text",
]
