"""Theano's texts for types and constants."""

import io
import sys

import numpy as np
from pytensor.compile.debug.profiling import ProfileStats
from pytensor.graph.basic import Constant, Variable, as_string
from pytensor.graph.fg import FunctionGraph
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from .._words import in_theanos_names
from ..configdefaults import config
from ..gof.op import get_test_value
from . import Patch

PATTERNS = {
    (): "scalar",
    (False,): "vector",
    (False, True): "col",
    (True, False): "row",
    (False, False): "matrix",
}


def type_text(self):
    """Return the name of a type, or its dtype and broadcast pattern."""
    if self.name:
        return self.name
    pattern = self.broadcastable
    shape = PATTERNS.get(pattern) or (str(pattern) if any(pattern) else f"{len(pattern)}D")
    return f"TensorType({self.dtype}, {shape})"


def constant_text(self):
    """Return the name of a constant, or its data, shortened."""
    if self.name is not None:
        return self.name
    text = str(self.data)
    return f"Constant{{{text if len(text) <= 20 else f'{text[:10]}...{text[-10:]}'}}}"


def tensor_constant_text(self):
    """Return the shortened data of a constant, or one number if all its elements are equal."""
    data = np.asarray(self.data)
    text = str(data)
    if data.ndim and data.size and (data == data.flat[0]).all():
        text = f"{data.shape} of {data.flat[0]}"
    return f"TensorConstant{{{text if len(text) <= 20 else f'{text[:10]}..{text[-10:]}'}}}"


def sparse_type_text(self):
    """Return the text of the type of a sparse matrix."""
    return f"Sparse[{self.dtype}, {self.format}]"


def graph_text(self):
    """Return the expressions of a graph's outputs, written as calls."""
    return f"[{', '.join(as_string(self.inputs, self.outputs))}]"


def variable_representation(self, firstPass=True):
    """Return the text of a variable, with its test value if that is configured."""
    if config.print_test_value and firstPass:
        try:
            return f"{self}\n{get_test_value(self)!r}"
        except AttributeError:
            pass  # the variable has no test value
    return str(self)


_summary = ProfileStats.summary


def summary(self, file=None, **kwargs):
    """Print a profile, with Theano's names."""
    text = io.StringIO()
    _summary(self, file=text, **kwargs)
    (file or sys.stderr).write(in_theanos_names(text.getvalue()))


PATCHES = [
    Patch(ProfileStats, "summary", summary),
    Patch(FunctionGraph, "__str__", graph_text),
    Patch(FunctionGraph, "__repr__", graph_text),
    Patch(Variable, "__repr__", variable_representation),
    Patch(Constant, "__repr__", variable_representation),
    Patch(TensorType, "__str__", type_text),
    Patch(TensorType, "__repr__", type_text),
    Patch(SparseTensorType, "__str__", sparse_type_text),
    Patch(SparseTensorType, "__repr__", sparse_type_text),
    Patch(Constant, "__str__", constant_text),
    Patch(TensorConstant, "__str__", tensor_constant_text),
]
