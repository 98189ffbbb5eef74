"""Let tensor types and Ops accept Theano's arguments, and compare as in Theano."""

from functools import reduce, wraps

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Add, Cast, Composite, Identity, Mul, ScalarConstant, ScalarOp
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant, TensorVariable

from .. import scalar
from ..tensor import basic
from ..tensor.elemwise import check_dropped
from . import Patch, called_by_pytensor

_init_type = TensorType.__init__
_clone_type = TensorType.clone
_init_dimshuffle = DimShuffle.__init__


def init_type(self, dtype, shape=None, name=None, broadcastable=None, sparse_grad=False):
    """Make a type from a static shape or a broadcast pattern, whose entries are booleans."""
    if broadcastable is not None:
        shape = [bool(b) for b in broadcastable]
    _init_type(self, dtype, shape, name)


def set_type_state(self, state):
    """Set the state from a pickle; a pickle of Theano has no static shape."""
    self.__dict__.update(state)
    if "shape" not in state:
        # The pickle of a sparse matrix has no broadcast pattern either.
        pattern = state.get("broadcastable", (False, False))
        self.broadcastable = tuple(pattern)
        self.shape = tuple(1 if b else None for b in pattern)
        self.numpy_dtype = np.dtype(self.dtype)
        self.ndim = len(pattern)
        self.__dict__.setdefault("name", None)
    if type(self).__module__ == "theano.tensor.type":
        self.__class__ = TensorType  # types are equal only if their classes are


def clone_type(self, dtype=None, shape=None, broadcastable=None, **kwargs):
    """Return a type that differs in dtype, static shape or broadcast pattern."""
    if broadcastable is not None:
        # Keep a known length unless it contradicts the pattern.
        known = self.shape if shape is None else shape
        pattern = [bool(b) for b in broadcastable]
        shape = [1 if b else None if s == 1 else s for b, s in zip(pattern, known, strict=True)]
    return _clone_type(self, dtype, shape, **kwargs)


def same_in_theano(one, other):
    """Whether two types are equal in everything that Theano's types consist of.

    This is the dtype, the broadcast pattern, and the format of a sparse matrix.
    """
    return (
        type(one) is type(other)
        and getattr(one, "format", None) == getattr(other, "format", None)
        and one.dtype == other.dtype
        and one.broadcastable == other.broadcastable
    )


_eq_type = TensorType.__eq__


def eq_type(self, other):
    """Compare as in Theano if old code compares.  PyTensor also compares static shapes.

    The hash is still PyTensor's, because types are keys of dictionaries that outlive the shim.
    """
    return (_eq_type if called_by_pytensor() else same_in_theano)(self, other)


def ne_type(self, other):
    """The opposite of `eq_type`.  Not a call of it, which would hide who compares."""
    return not (_eq_type if called_by_pytensor() else same_in_theano)(self, other)


def is_super(self, other):
    """Whether a variable of type `other` can replace one of this type.

    Each broadcastable dimension of this type must be broadcastable in `other`.
    """
    return (
        isinstance(other, type(self))
        and other.dtype == self.dtype
        and other.ndim == self.ndim
        and all(b or not a for a, b in zip(self.broadcastable, other.broadcastable, strict=True))
    )


_filter_variable = TensorType.filter_variable


def filter_variable(self, other, allow_convert=True):
    """Return a variable that can replace one of this type, whatever its static shape."""
    if isinstance(other, Variable) and same_in_theano(self, other.type):
        return other
    return _filter_variable(self, other, allow_convert)


_call_type = TensorType.__call__


def call_type(self, *args, **kwargs):
    """Make a variable with the broadcast pattern only: ``x.type()`` has no static lengths."""
    if not called_by_pytensor() and not {None, 1}.issuperset(self.shape):
        self = self.clone(shape=tuple(1 if s == 1 else None for s in self.shape))
    return _call_type(self, *args, **kwargs)


# PyTensor ends a variable's stack trace at the innermost frame outside its own files.  So this
# function has to look as if it were in PyTensor's file.
call_type.__code__ = call_type.__code__.replace(co_filename=_call_type.__code__.co_filename)


def value_zeros(self, shape):
    """Return an array of zeros, of this dtype."""
    return np.zeros(shape, dtype=self.dtype)


def init_dimshuffle(
    self, input_broadcastable=None, new_order=None, inplace=True, *, input_ndim=None
):
    """Make the Op from the pattern of its input, and check dropped dimensions immediately."""
    if input_broadcastable is not None:
        if inplace is not True:
            raise ValueError(
                "DimShuffle is inplace by default and hence the inplace for DimShuffle must be true"
            )
        input_ndim = len(input_broadcastable)
    _init_dimshuffle(self, input_ndim=input_ndim, new_order=new_order)
    if input_broadcastable is not None:
        check_dropped(input_broadcastable, self.new_order)


_set_dimshuffle_state = DimShuffle.__setstate__


def set_dimshuffle_state(self, state):
    """Set the state from a pickle; a pickle of Theano has the pattern of the input."""
    if "input_broadcastable" in state:
        init_dimshuffle(self, state["input_broadcastable"], state["new_order"])
    else:
        _set_dimshuffle_state(self, state)


# Theano's names of scalar operations, by PyTensor's.
_SCALARS = {name: op for name, op in vars(scalar.basic).items() if isinstance(op, ScalarOp)}
_NAMES = {str(op): name for name, op in _SCALARS.items()} | {name: name for name in _SCALARS}
# Theano's names of their classes: an operation that overwrites an input is named by its class.
_CLASSES = {
    **{kind: name for name, kind in vars(scalar.basic).items() if isinstance(kind, type)},
    Sigmoid: "ScalarSigmoid",
    Softplus: "ScalarSoftplus",
}


@property
def name_elemwise(self):
    """The name.  In Theano, an operation without one is named by its text if it is not fused."""
    given = vars(self).get("name")
    if given or called_by_pytensor() or isinstance(self.scalar_op, Composite):
        return given
    return str(self)


@name_elemwise.setter
def name_elemwise(self, name):
    """Store the name."""
    vars(self)["name"] = name


def str_elemwise(self):
    """Return Theano's text of an element-wise operation, with the inputs that it overwrites."""
    given = vars(self).get("name")
    if given and not isinstance(self.scalar_op, Cast):
        return given
    name = _NAMES.get(str(self.scalar_op), str(self.scalar_op))
    if name in ("sigmoid", "Softplus") and not self.inplace_pattern:
        return name.lower()
    if isinstance(self.scalar_op, Cast):
        name = f"Cast{{{self.scalar_op.o_type.dtype}}}"
    if self.inplace_pattern:
        if not isinstance(self.scalar_op, Composite | Cast):
            kind = type(self.scalar_op)
            name = _CLASSES.get(kind, kind.__name__)
        return f"{type(self).__name__}{{{name}}}{sorted(self.inplace_pattern.items())}"
    if isinstance(self.scalar_op, Composite | Cast | Identity):
        return f"{type(self).__name__}{{{name}}}"
    return f"{type(self).__name__}{{{name},no_inplace}}"


_perform_elemwise = Elemwise.perform
_FOLDED = {Add: np.add, Mul: np.multiply}


def perform_elemwise(self, node, inputs, output_storage):
    """Compute in Python; a sum or a product may have any number of terms.

    NumPy's functions have at most 32 operands, and PyTensor joins the terms of many parameters.
    """
    fold = _FOLDED.get(type(self.scalar_op))
    if fold is None or len(inputs) < 32:
        _perform_elemwise(self, node, inputs, output_storage)
    else:
        output_storage[0][0] = np.asarray(reduce(fold, inputs), dtype=node.outputs[0].type.dtype)


def default_output(self):
    """Return the default output of a node; raise if the op's `default_output` is invalid."""
    which = self.op.default_output
    if which is None and len(self.outputs) == 1:
        which = 0
    if not isinstance(which, int):
        raise AttributeError(f"{self.op}.default_output should be an output index.")
    if not 0 <= which < len(self.outputs):
        raise AttributeError(f"{self.op}.default_output is out of range.")
    return self.outputs[which]


_eq_join = Join.__eq__


def eq_join(self, other):
    """Compare with another Op, so that ``node.op == theano.tensor.join_`` is true."""
    return type(other) is basic.Join or _eq_join(self, other)


def equals(self, other):
    """Whether another constant has the same type and value, whatever its class."""
    return (
        isinstance(other, Constant)
        and self.type == other.type
        and self.signature() == type(self).signature(other)
    )


_c_all, _c_version = CAReduce._c_all, CAReduce.c_code_cache_version_apply


def raises_on_nothing(op):
    """Whether a reduction of nothing raises in Theano, and only in a subclass in PyTensor."""
    return type(op) is CAReduce and op.scalar_op in (scalar.maximum, scalar.minimum)


def c_all(self, node, name, input_names, output_names, sub):
    """Return the parts of the C code, which raises for a maximum or minimum of nothing."""
    setup, *parts = _c_all(self, node, name, input_names, output_names, sub)
    if raises_on_nothing(self):
        axes = range(node.inputs[0].type.ndim) if self.axis is None else self.axis
        for axis in axes:
            text = f"Input of CAReduce{{{self.scalar_op}}} has zero-size on axis {axis}"
            setup += f"""
            if ({input_names[0]} != NULL && PyArray_DIMS({input_names[0]})[{axis}] == 0) {{
                PyErr_SetString(PyExc_ValueError, "{text}");
                {sub["fail"]}
            }}"""
    return setup, *parts


def c_version_of_reduction(self, node):
    """Return the version of the C code, of which Theano's is another one."""
    version = _c_version(self, node)
    return (*version, "theano") if version and raises_on_nothing(self) else version


_convert = pytensor.scalar.convert
INT64 = np.iinfo("int64")


@wraps(_convert)
def convert(x, dtype=None):
    """Return an array for a number; integers from 2**63 on are uint64, or raise OverflowError."""
    if isinstance(x, int) and not INT64.min <= x <= INT64.max:
        return np.asarray(x, dtype=dtype or "uint64")
    return _convert(x, dtype)


PATCHES = [
    Patch(pytensor.scalar, "convert", convert),
    Patch(pytensor.scalar.basic, "convert", convert),
    Patch(ScalarConstant, "equals", equals),
    Patch(Join, "__eq__", eq_join),
    Patch(Apply, "default_output", default_output),
    Patch(Elemwise, "__str__", str_elemwise),
    Patch(Elemwise, "name", name_elemwise),
    Patch(Elemwise, "perform", perform_elemwise),
    Patch(TensorType, "__init__", init_type),
    Patch(TensorType, "__eq__", eq_type),
    Patch(TensorType, "__ne__", ne_type),
    Patch(TensorType, "is_super", is_super),
    Patch(TensorType, "filter_variable", filter_variable),
    Patch(TensorType, "clone", clone_type),
    Patch(TensorType, "__call__", call_type),
    Patch(TensorType, "__setstate__", set_type_state),
    # A shared variable from a pickle of Theano does not have this attribute.
    Patch(SharedVariable, "_default_update", None),
    Patch(TensorType, "value_zeros", value_zeros),
    Patch(TensorType, "Variable", TensorVariable),
    Patch(TensorType, "Constant", TensorConstant),
    Patch(TensorType, "SharedVariable", TensorSharedVariable),
    Patch(DimShuffle, "__init__", init_dimshuffle),
    Patch(DimShuffle, "__setstate__", set_dimshuffle_state),
    Patch(CAReduce, "upcast_discrete_output", False),
    Patch(CAReduce, "_c_all", c_all),
    Patch(CAReduce, "c_code_cache_version_apply", c_version_of_reduction),
]
