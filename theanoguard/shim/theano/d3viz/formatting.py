"""Graphs as those of pydot."""

from pytensor.d3viz.formatting import PyDotFormatter as PyDotFormatter
from pytensor.d3viz.formatting import apply_label as apply_label
from pytensor.d3viz.formatting import broadcastable_to_str as broadcastable_to_str
from pytensor.d3viz.formatting import dict_to_pdnode as dict_to_pdnode
from pytensor.d3viz.formatting import dtype_to_char as dtype_to_char
from pytensor.d3viz.formatting import type_to_str as type_to_str
from pytensor.d3viz.formatting import var_label as var_label
from pytensor.d3viz.formatting import var_tag as var_tag
