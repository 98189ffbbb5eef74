"""PyMC: a guard for its samplers, and explanations of a model's log-density.

PyMC is optional (extra ``pymc``).  Importing this package does not import it.
"""

from theanoguard.pymc.auditing import DataFault
from theanoguard.pymc.checking import ModelCheck, ModelFinding, check
from theanoguard.pymc.divergences import DivergenceGroup, Divergences, explain_divergences
from theanoguard.pymc.explaining import explain
from theanoguard.pymc.history import ChainRecord, record
from theanoguard.pymc.linting import lint
from theanoguard.pymc.modes import mode, model_lines, spoils_sampling
from theanoguard.pymc.records import BadTerm, ModelExplanation, SamplingError, Where
from theanoguard.pymc.running import guarding

__all__ = [
    "BadTerm",
    "ChainRecord",
    "DataFault",
    "DivergenceGroup",
    "Divergences",
    "ModelCheck",
    "ModelExplanation",
    "ModelFinding",
    "SamplingError",
    "Where",
    "check",
    "explain",
    "explain_divergences",
    "guarding",
    "lint",
    "mode",
    "model_lines",
    "record",
    "spoils_sampling",
]
