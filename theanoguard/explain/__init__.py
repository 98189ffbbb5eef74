"""From a trip to an explanation."""

from theanoguard.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
