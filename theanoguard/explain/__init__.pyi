from .advice.hints import register_hint
from .explanation import explanation_of
from .facts.records import Cause, Explanation, Hint, Operand, Situation, Waypoint
from .failure import Failure, explain_exception, explain_input
from .graph_errors import note_on
from .masked import find_masked, leaves_of_results
from .text.report import render_failure, render_text

__all__ = [
    "Cause",
    "Explanation",
    "Failure",
    "Hint",
    "Operand",
    "Situation",
    "Waypoint",
    "explanation_of",
    "explain_exception",
    "explain_input",
    "find_masked",
    "leaves_of_results",
    "note_on",
    "register_hint",
    "render_failure",
    "render_text",
]
