"""Operations that are one node in Theano and several, or another one, in PyTensor.

Code that walks graphs sees Theano's node.  When a function is compiled, `local_in_pytensor` puts
PyTensor's in its place before any other rewrite.  A product stays one node until BLAS replaces it.
"""

from contextlib import contextmanager

import numpy as np
from pytensor.compile.builders import infer_shape
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import Join as PyTensorJoin
from pytensor.tensor.basic import as_tensor_variable, get_underlying_scalar_constant_value
from pytensor.tensor.basic import join as pytensor_join
from pytensor.tensor.basic import split as pytensor_split
from pytensor.tensor.extra_ops import CumOp as PyTensorCumOp
from pytensor.tensor.math import dot as pytensor_dot
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from theanoguard._pytensor.for_theano import input_shapes

from .._standin import StandIn

_loops = []


@contextmanager
def inside_of_loop():
    """Make PyTensor's nodes at once: its rewrites of loops look for them before anything else."""
    _loops.append(None)
    try:
        yield
    finally:
        _loops.pop()


class OneNode(Op):
    """An operation with a meaning in PyTensor, which a subclass gives as `in_pytensor`."""

    def __eq__(self, other):
        """Compare with a stand-in as well: ``node.op == theano.tensor.join_``."""
        if isinstance(type(other), StandIn):
            return isinstance(self, type(other))
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def make_node(self, *inputs):
        """The output is of the type that it has in PyTensor."""
        inputs = [as_tensor_variable(x) for x in inputs]
        meaning = self.in_pytensor(*inputs)
        return Apply(self, inputs, [meaning.type()])

    def infer_shape(self, *args):
        """Return the shape of what it means."""
        inputs = args[-2].inputs
        return infer_shape([self.in_pytensor(*inputs)], inputs, input_shapes(args))


def _like(x, gradient):
    """Return a gradient by `x`: a dimension of length 1 stays broadcastable, integers have none."""
    if x.dtype.startswith(("float", "complex")):
        return x.type.filter_variable(gradient.astype(x.dtype))
    return x.zeros_like(dtype=gradient.dtype)


class Dot(OneNode):
    """A product in which an operand is a vector; PyTensor knows products of matrices only."""

    def __str__(self):
        return "dot"

    @staticmethod
    def in_pytensor(x, y):
        """Return the product by way of matrices."""
        return pytensor_dot(x, y)

    def perform(self, node, inputs, outputs):
        """Multiply in NumPy."""
        outputs[0][0] = np.asarray(np.dot(*inputs), dtype=node.outputs[0].dtype)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients, which are products themselves."""
        x, y = inputs
        (gz,) = cotangents
        if x.ndim == y.ndim == 1:
            gradients = [gz * y, gz * x]
        elif x.ndim == 1:
            gradients = [dot(gz, y.T), pytensor_dot(x.dimshuffle(0, "x"), gz.dimshuffle("x", 0))]
        else:
            gradients = [pytensor_dot(gz.dimshuffle(0, "x"), y.dimshuffle("x", 0)), dot(x.T, gz)]
        return [_like(v, g) for v, g in zip(inputs, gradients, strict=True)]

    def pushforward(self, inputs, outputs, tangents):
        """Return the tangent by the rule for products."""
        x, y = inputs
        terms = [
            dot(left, right)
            for left, right in ((tangents[0], y), (x, tangents[1]))
            if not isinstance(left.type, DisconnectedType)
            and not isinstance(right.type, DisconnectedType)
        ]
        return [sum(terms[1:], start=terms[0]) if terms else DisconnectedType()()]


class Join(OneNode):
    """``Join``, whose first input is the axis."""

    def __str__(self):
        return "Join"

    @staticmethod
    def in_pytensor(axis, *tensors):
        """Return the tensors joined by PyTensor's operation, which holds the axis."""
        return pytensor_join(int(axis.data), *tensors)

    def perform(self, node, inputs, outputs):
        """Join in NumPy."""
        axis, *tensors = inputs
        joined = np.concatenate(tensors, axis=int(axis))
        outputs[0][0] = np.asarray(joined, dtype=node.outputs[0].dtype)

    def connection_pattern(self, node):
        """Tell that the axis has no gradient."""
        return [[False]] + [[True]] * (len(node.inputs) - 1)

    def pullback(self, inputs, outputs, cotangents):
        """Split the gradient."""
        axis, *tensors = inputs
        (gz,) = cotangents
        along = int(axis.data)
        sizes = [x.shape[along] for x in tensors]
        parts = pytensor_split(gz, sizes, n_splits=len(tensors), axis=along)
        parts = parts if isinstance(parts, list | tuple) else [parts]
        return [
            DisconnectedType()(),
            *(_like(x, part) for x, part in zip(tensors, parts, strict=True)),
        ]

    def pushforward(self, inputs, outputs, tangents):
        """Join the tangents."""
        axis, *tensors = inputs
        if all(isinstance(t.type, DisconnectedType) for t in tangents[1:]):
            return [DisconnectedType()()]
        pairs = zip(tensors, tangents[1:], strict=True)
        return [
            self(
                axis,
                *(x.zeros_like() if isinstance(t.type, DisconnectedType) else t for x, t in pairs),
            )
        ]


class Cumulative(OneNode):
    """A cumulative sum or product, also of the flattened tensor or along an axis below 0."""

    def __init__(self, axis, mode):
        self.axis, self.mode = axis, mode

    def __eq__(self, other):
        return super().__eq__(other) and (self.axis, self.mode) == (other.axis, other.mode)

    def __hash__(self):
        return hash((type(self), self.axis, self.mode))

    def __str__(self):
        return f"CumOp{{{self.axis}, {self.mode}}}"

    def in_pytensor(self, x):
        """Return the sum or product by PyTensor's operation, whose axis is a number from 0 on."""
        x, axis = (x.ravel(), 0) if self.axis is None else (x, self.axis % x.ndim)
        return PyTensorCumOp(axis, self.mode)(x)

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        compute = {"add": np.cumsum, "mul": np.cumprod}[self.mode]
        outputs[0][0] = np.asarray(compute(*inputs, self.axis), dtype=node.outputs[0].dtype)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient, which is summed from the end on."""
        ((x,), (found,), (gz,)) = (inputs, outputs, cotangents)
        axis = 0 if self.axis is None else self.axis % x.ndim
        backwards = (slice(None),) * axis + (slice(None, None, -1),)
        if self.mode == "mul":
            gz = gz * found
        gradient = Cumulative(axis, "add")(gz[backwards])[backwards].reshape(x.shape)
        return [gradient / x if self.mode == "mul" else gradient]


def dot(a, b):
    """Return the product of two tensors, dense or sparse, as one node if one is a vector."""
    x, y = (v if isinstance(v, Variable) else as_tensor_variable(v) for v in (a, b))
    is_dense = isinstance(x.type, TensorType) and isinstance(y.type, TensorType)
    if is_dense and not _loops and (x.ndim, y.ndim) in ((1, 1), (1, 2), (2, 1)):
        return Dot()(x, y)
    return pytensor_dot(x, y)


def join(axis, *tensors):
    """Join tensors along an axis that is known; shapes, which are read early, as PyTensor does."""
    joined = pytensor_join(axis, *tensors)
    is_shape = joined.ndim == 1 and joined.dtype == "int64"
    if _loops or is_shape or joined.owner is None or not isinstance(joined.owner.op, PyTensorJoin):
        return joined  # a single tensor is returned as it is
    if len(joined.owner.inputs) > len(tensors):
        return joined  # PyTensor 3.0 has the axis as an input, too
    return Join()(as_tensor_variable(joined.owner.op.axis), *joined.owner.inputs)


def _in_pytensor(fgraph, node):
    """Put PyTensor's nodes in the place of Theano's."""
    meaning = node.op.in_pytensor(*node.inputs)
    copy_stack_trace(node.outputs[0], meaning)
    return [meaning]


local_in_pytensor = node_rewriter([Cumulative, Join])(_in_pytensor)
local_dot_in_pytensor = node_rewriter([Dot])(_in_pytensor)


def _is_zero(x):
    """Whether a variable is known to be zero everywhere."""
    known = {"only_process_constants": False, "raise_not_constant": False}
    return get_underlying_scalar_constant_value(x, **known) == 0


@node_rewriter([Dot])
def local_simple_dot_in_pytensor(fgraph, node):
    """Make PyTensor's product at once where its rewrites save it: by zeros, or read in part."""
    readers = [client.op for client, _ in fgraph.clients[node.outputs[0]]]
    if [*map(type, readers)] == [Subtensor] or any(map(_is_zero, node.inputs)):
        return _in_pytensor(fgraph, node)
    return None
