"""PyMC: a guard for its samplers, and explanations of a model's log-density.

PyMC is an extra: ``pip install "theanoguard[pymc]"``.  Importing this package does not import it.
"""

from theanoguard.pymc.explaining import explain
from theanoguard.pymc.modes import mode, model_lines, spoils_sampling
from theanoguard.pymc.records import BadTerm, ModelExplanation, SamplingError, Where
from theanoguard.pymc.running import guarding

__all__ = [
    "BadTerm",
    "ModelExplanation",
    "SamplingError",
    "Where",
    "explain",
    "guarding",
    "mode",
    "model_lines",
    "spoils_sampling",
]
