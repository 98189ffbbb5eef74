"""Finds inputs at which a graph fails, and risky patterns in it."""

from theanoguard._lint.bounds import Bounds
from theanoguard._lint.finding import Finding, Findings, Static, reported
from theanoguard._lint.linter import lint, lint_values, with_lines
from theanoguard._lint.matching import SECONDS, Asked, unless_rejected, witnessed
from theanoguard._lint.propagate import GraphBounds
from theanoguard._lint.rules import RULES, Rule
from theanoguard._lint.witness import Witness

__all__ = [
    "RULES",
    "SECONDS",
    "Asked",
    "Bounds",
    "Finding",
    "Findings",
    "GraphBounds",
    "Rule",
    "Static",
    "Witness",
    "lint",
    "lint_values",
    "reported",
    "unless_rejected",
    "with_lines",
    "witnessed",
]
