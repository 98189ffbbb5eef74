"""Parameters of operations in C code."""

from pytensor.link.c.params_type import Params as Params
from pytensor.link.c.params_type import ParamsType as ParamsType
