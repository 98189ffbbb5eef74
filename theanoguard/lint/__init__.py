"""Risky patterns, found in a graph without running it."""

from theanoguard.lint.bounds import Bounds
from theanoguard.lint.linter import Finding, lint, lint_values
from theanoguard.lint.propagate import GraphBounds
from theanoguard.lint.rules import RULES, Rule

__all__ = ["RULES", "Bounds", "Finding", "GraphBounds", "Rule", "lint", "lint_values"]
