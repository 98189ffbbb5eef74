"""Finds risky patterns in a graph without running it."""

from theanoguard._lint.bounds import Bounds
from theanoguard._lint.linter import Finding, lint, lint_values
from theanoguard._lint.propagate import GraphBounds
from theanoguard._lint.rules import RULES, Rule

__all__ = ["RULES", "Bounds", "Finding", "GraphBounds", "Rule", "lint", "lint_values"]
