"""Compares one graph on several backends, precisions or optimizers."""

from theanoguard._compare.comparing import compare
from theanoguard._compare.difference import Difference, Tolerance
from theanoguard._compare.result import Comparison, ModeResult, Parting
from theanoguard._compare.rewriting import Change

__all__ = ["Change", "Comparison", "Difference", "ModeResult", "Parting", "Tolerance", "compare"]
