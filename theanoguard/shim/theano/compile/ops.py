"""Operations that belong to no type: copies, views, shapes, and Python functions."""

import importlib
import pickle

from pytensor.compile.debug.debugmode import OutputGuard as OutputGuard
from pytensor.compile.ops import DeepCopyOp as DeepCopyOp
from pytensor.compile.ops import ViewOp as ViewOp
from pytensor.compile.ops import deep_copy_op as deep_copy_op
from pytensor.compile.ops import register_deep_copy_op_c_code as register_deep_copy_op_c_code
from pytensor.compile.ops import register_view_op_c_code as register_view_op_c_code
from pytensor.compile.ops import view_op as view_op
from pytensor.graph.type import Type
from pytensor.tensor.shape import Shape as Shape
from pytensor.tensor.shape import Shape_i as Shape_i
from pytensor.tensor.shape import SpecifyShape as SpecifyShape
from pytensor.tensor.shape import register_shape_c_code as register_shape_c_code
from pytensor.tensor.shape import register_shape_i_c_code as register_shape_i_c_code
from pytensor.tensor.shape import shape as shape
from pytensor.tensor.shape import shape_i as shape_i
from pytensor.tensor.shape import specify_shape as specify_shape

from .._rebroadcast import Rebroadcast as Rebroadcast
from ..gof.op import Op

_output_guard = OutputGuard()
_shape = Shape()
expandable_types = ()


def shape_i_op(i):
    """Return the operation that gives the length of axis `i`."""
    return Shape_i(i)


def load_back(mod, name):
    """Return an object by its module and name."""
    return getattr(importlib.import_module(mod), name)


class FromFunctionOp(Op):
    """An operation that calls a Python function."""

    def __init__(self, fn, itypes, otypes, infer_shape):
        self._fn = fn
        self.itypes = itypes
        self.otypes = otypes
        if infer_shape is not None:
            self._infer_shape = infer_shape
            self.infer_shape = self._call_infer_shape

    def __eq__(self, other):
        return type(self) is type(other) and self._fn == other._fn

    def __hash__(self):
        return hash((type(self), self._fn))

    def __str__(self):
        return f"FromFunctionOp{{{self._fn.__name__}}}"

    def perform(self, node, inputs, outputs):
        results = self._fn(*inputs)
        if not isinstance(results, list | tuple):
            results = (results,)
        for storage, result in zip(outputs, results, strict=True):
            storage[0] = result

    def _call_infer_shape(self, *args):
        # PyTensor 3.0 passes the graph before these two.
        node, input_shapes = args[-2:]
        return self._infer_shape(node, input_shapes)

    def __reduce__(self):
        module, name = self._fn.__module__, self._fn.__name__
        try:
            found = load_back(module, name)
        except (ImportError, KeyError, AttributeError):
            raise pickle.PicklingError(
                f"Can't pickle as_op(), not found as {module}.{name}"
            ) from None
        if found is not self:
            raise pickle.PicklingError(f"Can't pickle as_op(), not the object at {module}.{name}")
        return load_back, (module, name)


def as_op(itypes, otypes, infer_shape=None):
    """Make an operation from a Python function.

    Parameters
    ----------
    itypes, otypes : Type or list of Type
        Of its inputs and outputs.
    infer_shape : callable, optional
        ``infer_shape(node, input_shapes)`` returns the shapes of the outputs.

    Raises
    ------
    TypeError
        If a type is none.
    """
    types = []
    for name, given in (("itypes", itypes), ("otypes", otypes)):
        given = list(given) if isinstance(given, list | tuple) else [given]
        if not all(isinstance(t, Type) for t in given):
            raise TypeError(f"{name} has to be a list of Theano types")
        types.append(given)
    if infer_shape is not None and not callable(infer_shape):
        raise TypeError("infer_shape needs to be a callable")

    def make_op(fn):
        return FromFunctionOp(fn, *types, infer_shape)

    return make_op
