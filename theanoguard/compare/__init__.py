"""One graph on several backends, precisions or optimizers: where do they part first?"""

from theanoguard.compare.comparing import compare
from theanoguard.compare.difference import Difference, Tolerance
from theanoguard.compare.result import Comparison, ModeResult, Parting

__all__ = ["Comparison", "Difference", "ModeResult", "Parting", "Tolerance", "compare"]
