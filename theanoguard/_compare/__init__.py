"""Compares one graph on several backends, precisions or optimizers."""

from theanoguard._compare.comparing import compare
from theanoguard._compare.difference import Difference, Tolerance
from theanoguard._compare.result import Comparison, ModeResult, Parting

__all__ = ["Comparison", "Difference", "ModeResult", "Parting", "Tolerance", "compare"]
