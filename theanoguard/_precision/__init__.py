"""How many digits of a result are right, and which operation lost the others."""

from theanoguard._precision.calls import MeasuredCalls
from theanoguard._precision.measuring import precision
from theanoguard._precision.result import Digits, Loss, Precision

__all__ = ["Digits", "Loss", "MeasuredCalls", "Precision", "precision"]
