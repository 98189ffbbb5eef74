"""Theano's ``theano.tensor.sort``, in which the axis is an input."""

import numpy as np
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import arange, switch
from pytensor.tensor.math import abs as absolute
from pytensor.tensor.math import eq, lt
from pytensor.tensor.sort import argsort as pytensor_argsort
from pytensor.tensor.sort import sort as pytensor_sort
from pytensor.tensor.subtensor import set_subtensor
from pytensor.tensor.type import TensorType

from theanoguard._pytensor.for_theano import input_shapes, sort_axis
from theanoguard.operations.facts import register
from theanoguard.operations.reductions import Slices

from .basic import as_tensor_variable, integer_dtypes


class _AlongAxis(Op):
    """An operation along an axis, which is an input."""

    __props__ = ("kind", "order")

    def __init__(self, kind, order=None):
        self.kind = kind
        self.order = order

    def __str__(self):
        return f"{type(self).__name__}{{{self.kind}, {self.order}}}"

    def make_node(self, input, axis=-1):
        input, axis = as_tensor_variable(input), as_tensor_variable(axis)
        pattern = input.type.broadcastable
        return Apply(self, [input, axis], [TensorType(self._dtype(input), pattern)()])

    def perform(self, node, inputs, outputs):
        array, axis = inputs
        if axis != int(axis):
            raise ValueError("sort axis must be an integer or None")
        found = self._numop(array, int(axis), self.kind, self.order or None)
        outputs[0][0] = np.asarray(found, dtype=node.outputs[0].dtype)

    def infer_shape(self, *args):
        return input_shapes(args)[:1]


class SortOp(_AlongAxis):
    """``SortOp(kind)(a, axis)`` is `a` with its elements in order along `axis`."""

    _numop = staticmethod(np.sort)

    def _dtype(self, input):
        return input.dtype

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the tensor.  There is none by the axis."""
        a, axis = inputs
        inverse = argsort(argsort(a, axis, self.kind), axis, self.kind)
        sorted_axis = switch(lt(axis, 0), axis + a.ndim, axis)
        indices = [
            switch(eq(i, sorted_axis), inverse, _places(a, i).astype("int64"))
            for i in range(a.ndim)
        ]
        no_axis = grad_undefined(
            self,
            1,
            axis,
            "sort is not defined for non-integer axes so sort(x, axis+eps) is undefined",
        )
        return [cotangents[0][tuple(indices)], no_axis]


class ArgSortOp(_AlongAxis):
    """``ArgSortOp(kind)(a, axis)`` are the indices that put `a` in order along `axis`."""

    _numop = staticmethod(np.argsort)

    def _dtype(self, input):
        return "int64"

    def pullback(self, inputs, outputs, cotangents):
        """Return zeros: the indices are integers."""
        a, axis = inputs
        no_axis = grad_undefined(
            self,
            1,
            axis,
            "argsort is not defined for non-integer axes so argsort(x, axis+eps) is undefined",
        )
        return [a.zeros_like(), no_axis]


register(ArgSortOp, SortOp, depends=Slices(sort_axis))


def _places(a, i):
    """Return the indices of a dimension, to be broadcast over the others."""
    return arange(a.shape[i]).dimshuffle(["x"] * i + [0] + ["x"] * (a.ndim - i - 1))


def sort(a, axis=-1, kind="quicksort", order=None):
    """Return a sorted copy of `a`; `axis` may be a variable, or None for the flattened `a`."""
    a = as_tensor_variable(a)
    return SortOp(kind, order)(*((a.flatten(), 0) if axis is None else (a, axis)))


def argsort(a, axis=-1, kind="quicksort", order=None):
    """Return the indices that sort `a`; `axis` may be a variable, or None for the flattened `a`."""
    a = as_tensor_variable(a)
    return ArgSortOp(kind, order)(*((a.flatten(), 0) if axis is None else (a, axis)))


@node_rewriter([SortOp, ArgSortOp])
def local_sort_in_pytensor(fgraph, node):
    """Put PyTensor's operation in its place if the axis is known."""
    x, axis = node.inputs
    is_known = isinstance(axis, Constant) and axis.ndim == 0
    if not is_known or axis.data not in range(-x.ndim, x.ndim) or node.op.order:
        return None
    in_pytensor = pytensor_sort if isinstance(node.op, SortOp) else pytensor_argsort
    found = in_pytensor(x, int(axis.data), node.op.kind)
    copy_stack_trace(node.outputs[0], found)
    return [found]


class TopKOp(Op):
    """The `kth` largest elements along an axis and where they are, in no order.

    A negative `kth` asks for the smallest ones.
    """

    __props__ = ("axis", "sorted", "return_values", "return_indices", "idx_dtype")

    def __init__(
        self, axis=-1, sorted=True, idx_dtype="int64", return_values=True, return_indices=True
    ):
        if not isinstance(axis, int):
            raise TypeError(f'"axis" parameter must be integer, got "{type(axis)}"')
        if sorted:
            raise NotImplementedError(
                "The sorted parameter is not yet implemented. Use sorted=False for now."
            )
        if idx_dtype not in integer_dtypes:
            raise TypeError(f'"idx_dtype" parameter must be an integer dtype, got "{idx_dtype}"')
        if not (return_indices or return_values):
            raise ValueError("Neither return_values nor return_indices is True, this isn't allowed")
        self.axis = axis
        self.sorted = sorted
        self.return_values = return_values
        self.return_indices = return_indices
        self.idx_dtype = idx_dtype

    def __str__(self):
        return f"{type(self).__name__}{{axis={self.axis}, sorted={self.sorted}}}"

    def make_node(self, inp, kth):
        inp, kth = as_tensor_variable(inp), as_tensor_variable(kth)
        if inp.ndim == 0:
            raise ValueError("Cannot take scalar as input")
        if not -inp.ndim <= self.axis < inp.ndim:
            raise IndexError(
                '"axis" parameter out of range, expected integer within '
                f"[{-inp.ndim}, {inp.ndim - 1}]"
            )
        if kth.ndim or kth.dtype not in integer_dtypes:
            raise TypeError(f"Expected an integer scalar, got {kth.type}")
        pattern = inp.type.broadcastable
        outputs = [inp.type()] if self.return_values else []
        if self.return_indices:
            outputs.append(TensorType(self.idx_dtype, pattern)())
        return Apply(self, [inp, kth], outputs)

    def perform(self, node, inputs, outputs):
        x, k = inputs[0], int(inputs[1])
        length = x.shape[self.axis]
        if k == 0:
            raise ValueError("topk: kth cannot be zero")
        if abs(k) > length:
            raise ValueError(
                f"topk: kth cannot be larger than the size of specified axis {self.axis}"
            )
        part = slice(length - k, None) if k > 0 else slice(-k)
        index = tuple(part if i == self.axis % x.ndim else slice(None) for i in range(x.ndim))
        where = np.argpartition(x, length - k if k > 0 else -k - 1, axis=self.axis)[index]
        found = [np.take_along_axis(x, where, self.axis)] if self.return_values else []
        if self.return_indices:
            found.append(where.astype(self.idx_dtype))
        for output, array in zip(outputs, found, strict=True):
            output[0] = array

    def infer_shape(self, *args):
        shape = list(input_shapes(args)[0])
        shape[self.axis] = absolute(args[-2].inputs[1])
        return [tuple(shape)] * len(args[-2].outputs)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the tensor.  It needs the places of the elements."""
        x, k = inputs
        no_k = grad_undefined(self, 1, k, "topk: k is not differentiable")
        if not (self.return_values and self.return_indices):
            return [grad_undefined(self, 0, x, "topk: needs both indices and values"), no_k]
        axis = self.axis % x.ndim
        index = tuple(outputs[1] if i == axis else _places(x, i) for i in range(x.ndim))
        gradient = x.zeros_like(dtype=cotangents[0].dtype)
        return [set_subtensor(gradient[index], cotangents[0]), no_k]


@node_rewriter([TopKOp])
def local_useless_topk(fgraph, node):
    """Compute only the elements or only their places, if the others are not used."""
    op = node.op
    used = [bool(fgraph.clients.get(output)) for output in node.outputs]
    if len(used) == 1 or used[0] == used[1]:
        return None
    one = TopKOp(op.axis, op.sorted, op.idx_dtype, *used)(*node.inputs)
    kept = node.outputs[used.index(True)]
    copy_stack_trace(kept, one)
    return {kept: one}


def topk_and_argtopk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return the `kth` largest elements along `axis` and where they are; pass ``sorted=False``."""
    x = as_tensor_variable(x)
    if axis is None:
        x, axis = x.flatten(), 0
    return TopKOp(axis=axis, sorted=sorted, idx_dtype=idx_dtype)(x, kth)


def topk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return the `kth` largest elements along `axis`; see `topk_and_argtopk`."""
    return topk_and_argtopk(x, kth, axis, sorted, idx_dtype)[0]


def argtopk(x, kth, axis=-1, sorted=True, idx_dtype="int64"):
    """Return where the `kth` largest elements along `axis` are; see `topk_and_argtopk`."""
    return topk_and_argtopk(x, kth, axis, sorted, idx_dtype)[1]
