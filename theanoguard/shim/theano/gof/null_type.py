"""The type of what has no value."""

from pytensor.graph.null_type import NullType as NullType
from pytensor.graph.null_type import null_type as null_type
