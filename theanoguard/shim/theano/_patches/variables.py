"""Give tensor variables Theano's truth value and arguments of methods."""

import numpy as np
import pytensor.tensor.math as pt_math
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import GE, GT, LE, LT
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import scalar
from pytensor.tensor.variable import TensorVariable, _tensor_py_operators
from pytensor.typed_list.basic import Count, Index, _typed_list_py_operators, length

from theanoguard.testvalue import SWALLOWING

from ..tensor import basic, extra_ops, nlinalg
from ..tensor.elemwise import check_dropped
from ..tensor.sort import argsort, local_useless_topk, sort
from . import Patch, Rewrite, called_by_pytensor


def _bool(self):
    """Return True, as for ``if mask:`` in Theano; raise for the result of a comparison."""
    if (
        self.owner is not None
        and isinstance(self.owner.op, Elemwise)
        and isinstance(self.owner.op.scalar_op, LT | LE | GT | GE)
    ):
        raise TypeError("Variables do not support boolean operations.")
    return True


_dimshuffle = _tensor_py_operators.dimshuffle


def dimshuffle(self, *pattern):
    """Reorder the dimensions.  Only broadcastable dimensions may be dropped."""
    if len(pattern) == 1 and isinstance(pattern[0], list | tuple | np.ndarray):
        pattern = pattern[0]
    # PyTensor's rewrites also drop dimensions that they know to have the length 1 at run time.
    if called_by_pytensor():
        return _dimshuffle(self, *pattern)
    check_dropped(self.type.broadcastable, pattern)
    result = _dimshuffle(self, *pattern)
    # In Theano this is a node even if nothing changes: old code gives the result another name.
    return DimShuffle(self.type.broadcastable, pattern)(self) if result is self else result


def reshape(self, shape, ndim=None):
    """Reshape the tensor, to `ndim` dimensions if the length of `shape` is not known."""
    if ndim is not None and not isinstance(ndim, int | np.integer):
        raise ValueError(f"Expected ndim to be an integer, is {type(ndim)}")
    return basic.reshape(self, shape, ndim=ndim)


_max, _min = _tensor_py_operators.max, _tensor_py_operators.min


def maximum(self, *args, **kwargs):
    """Return the maximum over `axis`; ``axis=()`` is every axis."""
    # PyTensor's rewrites pass further arguments, such as the initial value.
    return (_max if called_by_pytensor() else basic.max)(self, *args, **kwargs)


def minimum(self, *args, **kwargs):
    """Return the minimum over `axis`; ``axis=()`` is every axis."""
    return (_min if called_by_pytensor() else basic.min)(self, *args, **kwargs)


def argmax(self, axis=None, keepdims=False):
    """Return the index of the maximum over `axis`; ``axis=()`` is every axis."""
    return basic.argmax(self, axis, keepdims)


def argmin(self, axis=None, keepdims=False):
    """Return the index of the minimum over `axis`; ``axis=()`` is every axis."""
    return basic.argmin(self, axis, keepdims)


_flatten, _ravel = _tensor_py_operators.flatten, _tensor_py_operators.ravel


def flatten(self, ndim=1):
    """Keep the first ``ndim - 1`` dimensions and join the others."""
    return (_flatten if called_by_pytensor() else basic.flatten)(self, ndim)


def ravel(self):
    """Join all dimensions."""
    return _ravel(self) if called_by_pytensor() else basic.flatten(self)


_squeeze = _tensor_py_operators.squeeze


def squeeze(self, axis=None):
    """Drop these broadcastable dimensions, or all."""
    return (_squeeze if called_by_pytensor() else extra_ops.squeeze)(self, axis=axis)


_dense_dot = _tensor_py_operators.__dot__


def dot(self, other):
    """Return the product with another tensor."""
    return _dense_dot(self, other) if called_by_pytensor() else basic.dot(self, other)


def choose(self, choices, out=None, mode="raise"):
    """Choose among `choices` by the numbers in this tensor; `out` has to be None."""
    return basic.choose(self, choices, out, mode)


def get_scalar_constant_value(self):
    """Return the known constant value of this scalar variable."""
    return basic.get_scalar_constant_value(self)


def trace(self):
    """Return the sum of the diagonal."""
    return nlinalg.trace(self)


_init = TensorVariable.__init__


def init_variable(self, type, owner=None, index=None, name=None):
    """Make a variable, without an owner unless one is given."""
    _init(self, type, owner, index=index, name=name)


def as_float(make_node):
    """Return a ``make_node`` whose output has the dtype `floatX`, as Theano's counts have."""

    def make(self, *inputs):
        node = make_node(self, *inputs)
        return Apply(self, node.inputs, [scalar()])

    return make


def counted(perform):
    """Return a ``perform`` that stores a number with the dtype of the output."""

    def count(self, node, inputs, outputs):
        perform(self, node, inputs, outputs)
        outputs[0][0] = np.asarray(outputs[0][0], dtype=node.outputs[0].dtype)

    return count


def raising(operator):
    """Return an operator that raises the TypeError of a test value, as in Theano."""

    def applied(self, other):
        try:
            return operator(self, other)
        except ValueError as error:
            if isinstance(error.__cause__, TypeError):
                raise error.__cause__ from None
            raise

    return applied


PATCHES = [
    *(
        Patch(_tensor_py_operators, name, raising(getattr(_tensor_py_operators, name)))
        for name in SWALLOWING
    ),
    *(Patch(op, "make_node", as_float(op.make_node)) for op in (Count, Index)),
    *(Patch(op, "perform", counted(op.perform)) for op in (Count, Index)),
    Patch(_typed_list_py_operators, "__len__", lambda self: length(self)),
    Rewrite(optdb["canonicalize"], "local_useless_topk", local_useless_topk, ("fast_run",)),
    Patch(pt_math, "mean", basic.mean),
    Patch(_tensor_py_operators, "__bool__", _bool),
    Patch(_tensor_py_operators, "__nonzero__", _bool),
    Patch(_tensor_py_operators, "dimshuffle", dimshuffle),
    Patch(_tensor_py_operators, "reshape", reshape),
    Patch(_tensor_py_operators, "max", maximum),
    Patch(_tensor_py_operators, "min", minimum),
    Patch(_tensor_py_operators, "argmax", argmax),
    Patch(_tensor_py_operators, "argmin", argmin),
    Patch(_tensor_py_operators, "flatten", flatten),
    Patch(_tensor_py_operators, "ravel", ravel),
    Patch(_tensor_py_operators, "squeeze", squeeze),
    Patch(_tensor_py_operators, "dot", dot),
    Patch(_tensor_py_operators, "__dot__", dot),
    Patch(_tensor_py_operators, "choose", choose),
    Patch(_tensor_py_operators, "get_scalar_constant_value", get_scalar_constant_value),
    Patch(_tensor_py_operators, "trace", trace),
    Patch(_tensor_py_operators, "sort", sort),
    Patch(_tensor_py_operators, "argsort", argsort),
    Patch(_tensor_py_operators, "T", property(basic.transpose)),
    Patch(TensorVariable, "__init__", init_variable),
]
