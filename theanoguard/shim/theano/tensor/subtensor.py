"""Theano's ``theano.tensor.subtensor``."""

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    advanced_inc_subtensor,
    advanced_set_subtensor,
    advanced_subtensor,
)
from pytensor.tensor.subtensor import inc_subtensor as pt_inc_subtensor
from pytensor.tensor.type import integer_dtypes
from pytensor.tensor.type_other import SliceType, make_slice

from theanoguard._pytensor.for_theano import (
    advanced_increment_ops,
    advanced_subtensor_ops,
    input_shapes,
)

from .._rebroadcast import rebroadcast
from .basic import as_tensor_variable, tensor

# 3.3 has one class for every kind of advanced index.
AdvancedSubtensor1 = advanced_subtensor_ops[-1]
AdvancedIncSubtensor1 = advanced_increment_ops[-1]
BaseAdvancedSubtensor = AdvancedBooleanSubtensor = AdvancedSubtensor
BaseAdvancedIncSubtensor = AdvancedBooleanIncSubtensor = AdvancedIncSubtensor
advanced_boolean_subtensor = advanced_subtensor
advanced_boolean_inc_subtensor = advanced_inc_subtensor
advanced_boolean_set_subtensor = advanced_set_subtensor


def inc_subtensor(
    x,
    y,
    inplace=False,
    set_instead_of_inc=False,
    tolerate_inplace_aliasing=False,
):
    """Return the tensor of which `x` is a part, with `y` added to the part.

    Where `x` has length 1, a longer `y` is a ValueError of the call.
    """
    x, y = as_tensor_variable(x), as_tensor_variable(y)
    ones = x.broadcastable[x.ndim - y.ndim :] if y.ndim <= x.ndim else ()
    y = rebroadcast(y, {axis: True for axis, is_one in enumerate(ones) if is_one})
    return pt_inc_subtensor(x, y, inplace, set_instead_of_inc, tolerate_inplace_aliasing)


def set_subtensor(x, y, inplace=False, tolerate_inplace_aliasing=False):
    """Return the tensor of which `x` is a part, with `y` in place of the part."""
    return inc_subtensor(x, y, inplace, True, tolerate_inplace_aliasing)


def each_part(function, entry):
    """Apply a function to an index, or to all parts of a slice that are not None."""
    if not isinstance(entry, slice):
        return function(entry)
    parts = (entry.start, entry.stop, entry.step)
    return slice(*(None if part is None else function(part) for part in parts))


def get_idx_list(inputs, idx_list, get_count=False):
    """Return an Op's `idx_list` with the inputs of a node in place of their types, or their count.

    The first input is what is indexed.
    """
    rest = list(inputs[1:])

    def fill(part):
        return rest.pop(0) if isinstance(part, Type) else part

    filled = tuple(each_part(fill, entry) for entry in idx_list)
    return len(inputs) - 1 - len(rest) if get_count else filled


def places_of_indices(op):
    """Return the index list of an Op.  PyTensor 3.0 gives the Op for a vector of indices none."""
    return vars(op).get("idx_list", (0,))


class AdvancedBooleanIndexingError(TypeError):
    """An index is a mask: Theano's `Subtensor` raises it, PyTensor never does."""


def _part(entry):
    """Return a number or a slice of an index as a variable."""
    if isinstance(entry, slice):
        return make_slice(entry)
    is_slice = isinstance(getattr(entry, "type", None), SliceType)
    return entry if is_slice else as_tensor_variable(entry)


def _places(parts):
    """Return an index from the values of its parts."""
    return tuple(part if isinstance(part, slice) else int(part) for part in parts)


class SubtensorBySlices(Op):
    """What is at an index of numbers and slices that are inputs of the graph."""

    __props__ = ()

    def make_node(self, x, *entries):
        x, parts = as_tensor_variable(x), [_part(entry) for entry in entries]
        if len(parts) > x.ndim:
            raise IndexError("too many indices for array")
        numbers = [part for part in parts if not isinstance(part.type, SliceType)]
        if any(part.ndim or part.dtype not in integer_dtypes for part in numbers):
            raise NotImplementedError("Index by slices that are inputs and by numbers only.")
        found = tensor(x.dtype, [False] * (x.ndim - len(numbers)))
        return Apply(self, [x, *parts], [found])

    def perform(self, node, inputs, outputs):
        x, *parts = inputs
        outputs[0][0] = np.array(x[_places(parts)])

    def connection_pattern(self, node):
        """Tell that only the tensor has a gradient."""
        return [[True], *[[False]] * (len(node.inputs) - 1)]

    def pullback(self, inputs, outputs, cotangents):
        """Put the gradient to the places that were read."""
        x, *parts = inputs
        placed = IncSubtensorBySlices()(x.zeros_like(), *cotangents, *parts)
        return [placed, *(DisconnectedType()() for _ in parts)]


class IncSubtensorBySlices(Op):
    """A tensor to which another one is added at an index of numbers and slices."""

    __props__ = ()

    def make_node(self, x, y, *parts):
        return Apply(self, [x, y, *parts], [x.type()])

    def perform(self, node, inputs, outputs):
        x, y, *parts = inputs
        outputs[0][0] = np.array(x)
        outputs[0][0][_places(parts)] += y

    def infer_shape(self, *args):
        return input_shapes(args)[:1]


subtensor_by_slices = SubtensorBySlices()
