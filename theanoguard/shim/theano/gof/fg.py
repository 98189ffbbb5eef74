"""Function graphs."""

from pytensor.graph.fg import FunctionGraph as FunctionGraph
from pytensor.graph.utils import InconsistencyError as InconsistencyError
from pytensor.graph.utils import MissingInputError as MissingInputError


class CachedConstantError(Exception):
    """A constant of another graph's cache in a graph; PyTensor has no such cache."""
