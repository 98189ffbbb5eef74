"""Softmax, cross-entropies and activations."""

import numpy as np
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.rewriting.basic import copy_stack_trace, graph_rewriter, node_rewriter
from pytensor.raise_op import Assert as PyTensorAssert
from pytensor.scalar.basic import Log, UnaryScalarOp, upgrade_to_float
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    MakeVector,
    alloc,
    arange,
    as_tensor_variable,
    cast,
    concatenate,
    discrete_dtypes,
    fill,
    get_underlying_scalar_constant_value,
    zeros,
    zeros_like,
)
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.extra_ops import unique
from pytensor.tensor.math import (
    Argmax,
    Max,
    Sum,
    add,
    dot,
    eq,
    exp,
    expm1,
    log,
    mul,
    neg,
    or_,
    sigmoid,
    softplus,
    switch,
    tanh,
    tensordot,
    true_div,
)
from pytensor.tensor.math import abs as pt_abs
from pytensor.tensor.math import sum as pt_sum
from pytensor.tensor.shape import Shape, Shape_i, shape_padleft
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.type import (
    TensorType,
    float_dtypes,
    ivector,
    lvector,
    values_eq_approx_remove_inf,
    values_eq_approx_remove_nan,
)
from pytensor.utils import hash_from_code

from ...gof.op import Op
from .._headers import headers
from ..basic import max_and_argmax
from ..opt import Assert
from .blocksparse import sparse_block_dot

_HEADER = headers("arrays.h", "softmax.h")


class _RowOp(Op):
    """An operation on the rows of a matrix, in C for float32 and float64."""

    __props__ = ()

    def c_headers(self, **kwargs):
        """Return the headers of the row functions."""
        return ["<algorithm>", "<cmath>"]

    def c_support_code(self, **kwargs):
        """Return the row functions."""
        return _HEADER

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1, hash_from_code(_HEADER))

    def _c_call(self, node, call, floats, sub):
        """Return C code that makes the call; these inputs have the dtype of the first output."""
        dtype = node.outputs[0].dtype
        if dtype not in ("float32", "float64") or any(v.dtype != dtype for v in floats):
            raise NotImplementedError("left to NumPy")
        call = call.replace("<T", f"<npy_{dtype}")
        return f"if ({call}) {{ {sub['fail']} }}"


def _float_tensor(variable, name, *ndims):
    """Return a tensor, having checked its rank and dtype."""
    variable = as_tensor_variable(variable)
    if variable.type.ndim not in ndims or variable.type.dtype not in float_dtypes:
        rank = " or ".join(f"{n}-d" for n in ndims)
        raise ValueError(f"{name} must be {rank} tensor of floats. Got {variable.type}")
    return variable


def _labels(variable):
    variable = as_tensor_variable(variable)
    if variable.type.ndim != 1 or variable.type.dtype not in discrete_dtypes:
        raise ValueError(f"y_idx must be 1-d tensor of [u]ints. Got {variable.type}")
    return variable


def _rows(variable):
    """Return a matrix, made of a vector by a row in front."""
    return shape_padleft(variable, 1) if variable.ndim == 1 else variable


def _is_disconnected(gradient):
    return isinstance(gradient.type, DisconnectedType)


def _shifted(x):
    """Return the rows of `x` less their maximum."""
    return x - x.max(axis=1, keepdims=True) if x.size else x


def _softmax(x):
    e = np.exp(_shifted(x))
    return e / e.sum(axis=1, keepdims=True)


class SoftmaxWithBias(_RowOp):
    """The softmax of the rows of a matrix plus a vector."""

    nin = 2
    nout = 1

    def make_node(self, x, b):
        """Return the softmax of the rows of ``x + b``, a matrix and a vector of floats."""
        x, b = _float_tensor(x, "x", 2), _float_tensor(b, "b", 1)
        return Apply(self, [x, b], [x.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy, float16 by way of float32."""
        x, b = inputs
        if b.shape[0] != x.shape[1]:
            raise ValueError("b must have same number of columns as x")
        dtype = x.dtype
        if dtype == "float16":
            x = x.astype("float32")
        outputs[0][0] = _softmax(x + b).astype(dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (x, b), (z,) = inputs, outputs
        return self._c_call(node, f"softmax<T>({x}, {b}, &{z}, false)", node.inputs, sub)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the matrix and by the vector."""
        (g_sm,) = cotangents
        if _is_disconnected(g_sm):
            return [DisconnectedType()(), DisconnectedType()()]
        dx = softmax_grad(g_sm, outputs[0])
        return [dx, pt_sum(dx, axis=0)]

    def infer_shape(self, *args):
        """Return the shape of the matrix."""
        return [args[-1][0]]


softmax_with_bias = SoftmaxWithBias()


class SoftmaxGrad(_RowOp):
    """The gradient of `Softmax`, of its own output and the gradient of that."""

    nin = 2
    nout = 1

    def make_node(self, dy, sm):
        """Return ``(dy - sum(dy * sm)) * sm`` by rows."""
        dy = _rows(_float_tensor(dy, "dy", 1, 2))
        sm = _rows(as_tensor_variable(sm))
        return Apply(self, [dy, sm], [sm.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        dy, sm = inputs
        weighted = dy * sm
        result = weighted - weighted.sum(axis=1, keepdims=True) * sm
        outputs[0][0] = result.astype(sm.dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (dy, sm), (z,) = inputs, outputs
        return self._c_call(node, f"softmax_grad<T>({dy}, {sm}, &{z})", node.inputs, sub)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by both inputs."""
        dy, sm = inputs
        (g,) = cotangents
        centred = g - pt_sum(g * sm, axis=1, keepdims=True)
        return [centred * sm, centred * dy - g * pt_sum(dy * sm, axis=1, keepdims=True)]

    def infer_shape(self, *args):
        """Return the shape of the softmax."""
        return [args[-1][1]]


softmax_grad = SoftmaxGrad()


class Softmax(_RowOp):
    """The softmax of the rows of a matrix; a vector becomes a row."""

    nin = 1
    nout = 1

    def make_node(self, x):
        """Return the softmax of a matrix or a vector of floats."""
        x = _rows(_float_tensor(x, "x", 1, 2))
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        outputs[0][0] = _softmax(inputs[0])

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (x,), (z,) = inputs, outputs
        return self._c_call(node, f"softmax<T>({x}, NULL, &{z}, false)", node.inputs, sub)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient."""
        return [softmax_grad(cotangents[0], outputs[0])]

    def pushforward(self, inputs, outputs, tangents):
        """Return the tangent: the Jacobian is symmetric."""
        return self._pushed(inputs, outputs, tangents)

    def _pushed(self, inputs, outputs, tangents):
        if _is_disconnected(tangents[0]):
            return [DisconnectedType()()]
        return self.pullback(inputs, outputs, tangents)

    def infer_shape(self, *args):
        """Return the shape of the matrix."""
        return args[-1]


softmax_op = Softmax()


class LogSoftmax(_RowOp):
    """The logarithm of the softmax of the rows of a matrix; a vector becomes a row."""

    nin = 1
    nout = 1

    def make_node(self, x):
        """Return the logarithm of the softmax of a matrix or a vector of floats."""
        x = _rows(_float_tensor(x, "x", 1, 2))
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        shifted = _shifted(inputs[0])
        outputs[0][0] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (x,), (z,) = inputs, outputs
        return self._c_call(node, f"softmax<T>({x}, NULL, &{z}, true)", node.inputs, sub)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient."""
        (g,) = cotangents
        return [g - pt_sum(g, axis=1, keepdims=True) * softmax_op(inputs[0])]

    def pushforward(self, inputs, outputs, tangents):
        """Return the tangent."""
        (t,) = tangents
        if _is_disconnected(t):
            return [DisconnectedType()()]
        return [t - pt_sum(t * softmax_op(inputs[0]), axis=1, keepdims=True)]

    def infer_shape(self, *args):
        """Return the shape of the matrix."""
        return args[-1]


logsoftmax_op = LogSoftmax()


def softmax_graph(c):
    """Return the softmax over the last axis, made of exponentials and a sum."""
    return exp(c) / exp(c).sum(axis=-1, keepdims=True)


def softmax(c):
    """Return the softmax of the rows of a matrix; a vector gives a matrix of one row.

    Parameters
    ----------
    c : TensorVariable
        A vector or a matrix of floats.

    Raises
    ------
    ValueError
        For tensors of more dimensions.
    """
    return softmax_op(c)


def logsoftmax(c):
    """Return the logarithm of the `softmax` of the rows of a matrix."""
    return logsoftmax_op(c)


class CrossentropySoftmaxArgmax1HotWithBias(_RowOp):
    """Three outputs: the cross-entropy of softmax(x + b) at the labels, the softmax, the argmax."""

    nin = 3
    nout = 3

    def make_node(self, x, b, y_idx):
        """Take a matrix and a vector of floats and, for each row, the column of its label."""
        x, b = _float_tensor(x, "x", 2), _float_tensor(b, "b", 1)
        y_idx = _labels(y_idx)
        nll = TensorType(x.type.dtype, y_idx.type.broadcastable)()
        return Apply(self, [x, b, y_idx], [nll, x.type(), y_idx.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        x, b, y_idx = inputs
        if b.shape[0] != x.shape[1]:
            raise ValueError("b must have same number of columns as x")
        if y_idx.shape[0] != x.shape[0]:
            raise ValueError("y_idx must have same number of rows as x")
        if ((y_idx < 0) | (y_idx >= x.shape[1])).any():
            raise ValueError("y_i value out of bounds")
        row = x + b
        shifted = _shifted(row)
        e = np.exp(shifted)
        total = e.sum(axis=1)
        nll = np.log(total) - shifted[np.arange(len(y_idx)), y_idx]
        argmax = row.argmax(axis=1) if row.size else np.zeros(len(y_idx))
        for storage, value, output in zip(
            outputs, (nll, e / total[:, None], argmax), node.outputs, strict=True
        ):
            storage[0] = value.astype(output.dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (x, b, y), (nll, sm, am) = inputs, outputs
        label = node.inputs[2].type.dtype_specs()[1]
        call = f"crossentropy<T, {label}>({x}, {b}, {y}, &{nll}, &{sm}, &{am})"
        return self._c_call(node, call, node.inputs[:2], sub)

    def infer_shape(self, *args):
        """Return the shapes of the three outputs."""
        x, _, y_idx = args[-1]
        return [(x[0],), x, y_idx]

    def connection_pattern(self, node):
        """Tell that the labels have no gradient but by the argmax."""
        return [[True, True, True], [True, True, True], [False, False, True]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the matrix and by the vector."""
        x, b, y_idx = inputs
        g_nll, g_sm, g_am = cotangents
        terms = [[], [], []]
        if not _is_disconnected(g_nll):
            dx = crossentropy_softmax_1hot_with_bias_dx(g_nll, outputs[1], y_idx)
            terms[0].append(dx)
            terms[1].append(pt_sum(dx, axis=0))
        if not _is_disconnected(g_sm):
            dx = softmax_grad(g_sm, outputs[1])
            terms[0].append(dx)
            terms[1].append(pt_sum(dx, axis=0))
        if not _is_disconnected(g_am):
            for of_input, variable in zip(terms, inputs, strict=True):
                of_input.append(variable.zeros_like())
        return [sum(t[1:], t[0]) if t else DisconnectedType()() for t in terms]


class CrossentropySoftmax1HotWithBiasDx(_RowOp):
    """The gradient of the cross-entropy by the matrix, ``dy * (sm - onehot)`` by rows."""

    nin = 3
    nout = 1

    def make_node(self, dy, sm, y_idx, **kwargs):
        """Take one number or one for each row, the softmax, and the labels."""
        dy, sm = _float_tensor(dy, "dy", 0, 1), _float_tensor(sm, "sm", 2)
        return Apply(self, [dy, sm, _labels(y_idx)], [sm.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        dy, sm, y_idx = inputs
        if ((y_idx < 0) | (y_idx >= sm.shape[1])).any():
            raise ValueError("y_i value out of bounds")
        by_row = np.broadcast_to(dy, sm.shape[0])
        dx = by_row[:, None] * sm
        dx[np.arange(len(y_idx)), y_idx] -= by_row
        outputs[0][0] = dx.astype(sm.dtype, copy=False)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (dy, sm, y), (z,) = inputs, outputs
        label = node.inputs[2].type.dtype_specs()[1]
        call = f"crossentropy_dx<T, {label}>({dy}, {sm}, {y}, &{z})"
        return self._c_call(node, call, node.inputs[:2], sub)

    def infer_shape(self, *args):
        """Return the shape of the softmax."""
        return [args[-1][1]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the first two inputs."""
        dy, sm, y_idx = inputs
        (g_dx,) = cotangents
        rows = arange(y_idx.shape[0])
        g_dy = pt_sum(g_dx * sm, axis=1) - g_dx[rows, y_idx]
        g_sm = g_dx * (dy if dy.ndim == 0 else dy.dimshuffle(0, "x"))
        if dy.ndim == 0:
            g_dy = pt_sum(g_dy)
        return [g_dy, g_sm, grad_not_implemented(self, 2, y_idx)]


crossentropy_softmax_argmax_1hot_with_bias = CrossentropySoftmaxArgmax1HotWithBias()
crossentropy_softmax_1hot_with_bias_dx = CrossentropySoftmax1HotWithBiasDx()


def crossentropy_softmax_1hot_with_bias(x, b, y_idx, **kwargs):
    """Return the cross-entropy of softmax(x + b) at the labels, and the softmax."""
    return crossentropy_softmax_argmax_1hot_with_bias(x, b, y_idx, **kwargs)[0:2]


def crossentropy_softmax_1hot(x, y_idx, **kwargs):
    """Return the cross-entropy of softmax(x) at the labels, and the softmax."""
    return crossentropy_softmax_1hot_with_bias(x, zeros_like(x[0, :]), y_idx, **kwargs)


def crossentropy_softmax_max_and_argmax_1hot_with_bias(x, b, y_idx, **kwargs):
    """Return the cross-entropy, the softmax, its maximum by rows, and where that is."""
    xent, sm = crossentropy_softmax_1hot_with_bias(x, b, y_idx, **kwargs)
    return (xent, sm, *max_and_argmax(sm, axis=-1))


def crossentropy_softmax_max_and_argmax_1hot(x, y_idx, **kwargs):
    """Return the cross-entropy, the softmax, its maximum by rows, and where that is."""
    b = zeros_like(x[0, :])
    return crossentropy_softmax_max_and_argmax_1hot_with_bias(x, b, y_idx, **kwargs)


class CrossentropyCategorical1HotGrad(Op):
    """The gradient of `CrossentropyCategorical1Hot` by the distributions."""

    __props__ = ()

    def make_node(self, g_y, coding_dist, true_one_of_n):
        """Take the gradient of the output and the two inputs."""
        g_y, coding_dist = as_tensor_variable(g_y), as_tensor_variable(coding_dist)
        true_one_of_n = as_tensor_variable(true_one_of_n)
        return Apply(self, [g_y, coding_dist, true_one_of_n], [coding_dist.type()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        g_y, coding, true_one_of_n = inputs
        at = np.arange(len(g_y)), true_one_of_n
        result = np.zeros_like(coding)
        result[at] = -g_y / coding[at]
        outputs[0][0] = result

    def infer_shape(self, *args):
        """Return the shape of the distributions."""
        return [args[-1][1]]


crossentropy_categorical_1hot_grad = CrossentropyCategorical1HotGrad()


class CrossentropyCategorical1Hot(Op):
    """Minus the logarithm of each distribution (a row) at its label."""

    __props__ = ()

    def make_node(self, coding_dist, true_one_of_n):
        """Take a matrix and a vector of labels."""
        coding_dist = as_tensor_variable(coding_dist)
        true_one_of_n = as_tensor_variable(true_one_of_n)
        if coding_dist.type.ndim != 2:
            raise TypeError("matrix required for argument: coding_dist")
        if true_one_of_n.type.ndim != 1 or true_one_of_n.dtype not in (
            lvector.dtype,
            ivector.dtype,
        ):
            raise TypeError(
                "integer vector required for argument: true_one_of_n"
                f"(got type: {true_one_of_n.type} instead of: {lvector})"
            )
        output = TensorType(coding_dist.dtype, (None,))()
        return Apply(self, [coding_dist, true_one_of_n], [output])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        coding, one_of_n = inputs
        outputs[0][0] = -np.log(coding[np.arange(len(coding)), one_of_n])

    def infer_shape(self, *args):
        """Return one size, the number of rows."""
        return [(args[-1][0][0],)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the distributions."""
        coding, one_of_n = inputs
        return [
            crossentropy_categorical_1hot_grad(cotangents[0], coding, one_of_n),
            grad_not_implemented(self, 1, one_of_n),
        ]


crossentropy_categorical_1hot = CrossentropyCategorical1Hot()


def binary_crossentropy(output, target):
    """Return ``-(target * log(output) + (1 - target) * log(1 - output))``."""
    return -(target * log(output) + (1.0 - target) * log(1.0 - output))


def sigmoid_binary_crossentropy(output, target):
    """Return the binary cross-entropy of ``sigmoid(output)``, without its overflows.

    Parameters
    ----------
    output : TensorVariable
        What the sigmoid is to be applied to.
    target : TensorVariable
        In [0, 1], of the same shape.
    """
    output = as_tensor_variable(output)
    # Each branch is exact, and so is its gradient sigmoid(output) - target, at 0 too.
    above = softplus(-output) + output * (1.0 - target)
    return switch(output > 0, above, softplus(output) - output * target)


def categorical_crossentropy(coding_dist, true_dist):
    """Return the cross-entropy between distributions.

    Parameters
    ----------
    coding_dist : TensorVariable
        Distributions along the last axis.
    true_dist : TensorVariable
        Of the same rank: distributions, too.  Of one rank less: the label of each.

    Raises
    ------
    TypeError
        For any other rank.
    """
    if true_dist.ndim == coding_dist.ndim:
        return -pt_sum(true_dist * log(coding_dist), axis=coding_dist.ndim - 1)
    if true_dist.ndim == coding_dist.ndim - 1:
        return crossentropy_categorical_1hot(coding_dist, true_dist)
    raise TypeError("rank mismatch between coding and true distributions")


def _matrix(mat):
    mat = as_tensor_variable(mat)
    if mat.type.broadcastable != (False, False):
        raise TypeError("Expected a matrix as input")
    return mat


def _with_column(value, mat):
    column = np.full((len(mat), 1), value, dtype=mat.dtype)
    return np.concatenate([column, mat], axis=1)


class Prepend_scalar_constant_to_each_row(Op):
    """Put a column of one constant in front of a matrix."""

    __props__ = ("val",)

    def __init__(self, val=0):
        self.val = val

    def __str__(self):
        return f"{type(self).__name__}{{{self.val}}}"

    def make_node(self, mat):
        """Take a matrix."""
        mat = _matrix(mat)
        return Apply(self, [mat], [TensorType(mat.dtype, (None, None))()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        outputs[0][0] = _with_column(self.val, inputs[0])

    def infer_shape(self, *args):
        """Return the shape of the matrix with one column more."""
        ((rows, columns),) = args[-1]
        return [(rows, columns + 1)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient by the matrix."""
        return [cotangents[0][:, 1:]]


class Prepend_scalar_to_each_row(Op):
    """Put a column of one number in front of a matrix."""

    __props__ = ()

    def make_node(self, val, mat):
        """Take a scalar and a matrix."""
        val, mat = as_tensor_variable(val), _matrix(mat)
        assert val.ndim == 0
        return Apply(self, [val, mat], [TensorType(mat.dtype, (None, None))()])

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        outputs[0][0] = _with_column(*inputs)

    def infer_shape(self, *args):
        """Return the shape of the matrix with one column more."""
        rows, columns = args[-1][1]
        return [(rows, columns + 1)]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the scalar and by the matrix."""
        (g,) = cotangents
        return [pt_sum(g[:, 0]), g[:, 1:]]


prepend_scalar_to_each_row = Prepend_scalar_to_each_row()
prepend_0_to_each_row = Prepend_scalar_constant_to_each_row(0.0)
prepend_1_to_each_row = Prepend_scalar_constant_to_each_row(1.0)


def relu(x, alpha=0):
    """Return the rectifier: `x` where it is positive, ``alpha * x`` elsewhere.

    Parameters
    ----------
    x : TensorVariable
    alpha : float or TensorVariable, optional
        The slope for negative inputs; must broadcast against `x`.
    """
    if alpha == 0:
        return 0.5 * (x + abs(x))
    alpha = as_tensor_variable(alpha)
    return 0.5 * (1 + alpha) * x + 0.5 * (1 - alpha) * abs(x)


def h_softmax(
    x,
    batch_size,
    n_outputs,
    n_classes,
    n_outputs_per_class,
    W1,
    b1,
    W2,
    b2,
    target=None,
):
    """Return a softmax in two steps: over classes, then over the outputs of a class.

    Parameters
    ----------
    x : TensorVariable
        (batch_size, features).
    batch_size, n_outputs, n_classes, n_outputs_per_class : int
        Output ``i`` belongs to the class ``i // n_outputs_per_class``.
    W1, b1 : TensorVariable
        (features, n_classes) and (n_classes,).
    W2, b2 : TensorVariable
        (n_classes, features, n_outputs_per_class) and (n_classes, n_outputs_per_class).
    target : TensorVariable, optional
        The label of each row, (batch_size,) or (batch_size, 1).

    Returns
    -------
    TensorVariable
        (batch_size, n_outputs); the probabilities of the labels alone, if `target` is given.
    """
    class_probs = softmax(dot(x, W1) + b1)
    if target is None:
        activations = tensordot(x, W2, (1, 1)) + b2
        probs = softmax(activations.reshape((-1, n_outputs_per_class)))
        probs = probs.reshape((batch_size, n_classes, -1))
        probs = class_probs.dimshuffle(0, 1, "x") * probs
        return probs.reshape((batch_size, -1))[:, :n_outputs]
    target = target.flatten()
    classes = target // n_outputs_per_class
    activations = sparse_block_dot(
        W2.dimshuffle("x", 0, 1, 2),
        x.dimshuffle(0, "x", 1),
        zeros((batch_size, 1), dtype="int32"),
        b2,
        classes.dimshuffle(0, "x"),
    )
    in_class = softmax(activations.dimshuffle(0, 2))
    rows = arange(batch_size)
    return class_probs[rows, classes] * in_class[rows, target % n_outputs_per_class]


def elu(x, alpha=1):
    """Return `x` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    return switch(x > 0, x, alpha * expm1(x))


def selu(x):
    """Return the scaled exponential linear unit of arXiv:1706.02515."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


class ScalarSoftsign(UnaryScalarOp):
    """``x / (1 + abs(x))``."""

    @staticmethod
    def static_impl(x):
        """Return the value for one number."""
        return x / (1.0 + abs(x))

    def impl(self, x):
        """Return the value for one number."""
        return ScalarSoftsign.static_impl(x)

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient."""
        (x,), (gz,) = inputs, cotangents
        d = 1.0 + abs(x)
        return [gz / (d * d)]

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute in C."""
        (x,), (z,) = inputs, outputs
        if node.inputs[0].type.dtype not in ("float32", "float64"):
            raise NotImplementedError("only floating point x is implemented")
        return f"{z} = {x} / (1 + fabs({x}));"

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1,)


scalar_softsign = ScalarSoftsign(upgrade_to_float, name="scalar_softsign")
softsign = Elemwise(scalar_softsign, name="softsign")


def confusion_matrix(actual, pred):
    """Count how often each class was predicted for each class.

    Parameters
    ----------
    actual, pred : TensorVariable
        Vectors of classes.

    Returns
    -------
    list of 2 TensorVariable
        The counts, a row for each actual class, and the classes in order.
    """
    if actual.ndim != 1:
        raise ValueError("actual must be 1-d tensor variable")
    if pred.ndim != 1:
        raise ValueError("pred must be 1-d tensor variable")
    order = unique(concatenate([actual, pred]))
    hot = [cast(eq(v.dimshuffle(0, "x"), order), "int64") for v in (actual, pred)]
    return [dot(hot[0].T, hot[1]), order]


# Rewrites


def _is_apply(variable, *ops):
    """Whether `variable` is the output of one of these Ops, or of an Op of one of these types."""
    if variable.owner is None:
        return False
    op = variable.owner.op
    return any(isinstance(op, o) if isinstance(o, type) else op == o for o in ops)


def _is_const(variable, value):
    try:
        return bool(get_underlying_scalar_constant_value(variable) == value)
    except NotScalarConstantError:
        return False


class RowNumbers(Op):
    """``arange(labels.shape[0])`` while a graph is rewritten.

    The length of labels that are sliced, as those of a minibatch are, becomes a long expression, in
    which the labels cannot be found again.
    """

    __props__ = ()

    def make_node(self, labels):
        """A vector of the labels' length."""
        return Apply(self, [labels], [TensorType("int64", labels.type.shape)()])

    def perform(self, node, inputs, outputs):
        """Count the labels."""
        outputs[0][0] = np.arange(len(inputs[0]))

    def infer_shape(self, *args):
        """Return the labels' length."""
        return [args[-1][0]]


def _labels_of_arange(rows):
    """Return the vector of which `rows` is ``arange(vector.shape[0])``, or None."""
    if _is_apply(rows, RowNumbers):
        return rows.owner.inputs[0]
    if not _is_apply(rows, ARange):
        return None
    start, stop, step = rows.owner.inputs
    if not (_is_const(start, 0) and _is_const(step, 1)):
        return None
    while stop.owner and not _is_apply(stop, Shape_i, Subtensor) and len(stop.owner.inputs) == 1:
        stop = stop.owner.inputs[0]
    if _is_apply(stop, Shape_i):
        return stop.owner.inputs[0] if stop.owner.op.i == 0 else None
    if not _is_apply(stop, Subtensor) or not _is_apply(stop.owner.inputs[0], Shape):
        return None
    is_first = stop.owner.op.get_constant_idx(stop.owner.inputs, allow_partial=True) == [0]
    return stop.owner.inputs[0].owner.inputs[0] if is_first else None


def _is_arange_of(rows, labels):
    """Whether `rows` is ``arange(labels.shape[0])``, be it folded to a constant."""
    if isinstance(rows, Constant):
        length = labels.type.shape[0]
        return length is not None and np.array_equal(rows.data, np.arange(length))
    counted = _labels_of_arange(rows)
    return counted is not None and _same_length(counted, labels)


def _same_length(x, y):
    """Whether two vectors are one and the same but for functions of single elements."""

    def source(v):
        while _is_apply(v, Elemwise) and len(v.owner.inputs) == 1:
            v = v.owner.inputs[0]
        return v

    return source(x) is source(y)


def _indexed(variable):
    """Return (matrix, rows, columns) of ``matrix[rows, columns]``, else None."""
    if _is_apply(variable, AdvancedSubtensor) and len(variable.owner.inputs) == 3:
        return variable.owner.inputs
    return None


def _incremented(variable):
    """Return (increment, rows, columns) of an increment of zeros, else None."""
    if _is_apply(variable, AdvancedIncSubtensor) and len(variable.owner.inputs) == 4:
        zero, *rest = variable.owner.inputs
        if _is_const(zero, 0):
            return rest
    return None


def _with_trace(node, new):
    copy_stack_trace(node.outputs[0], new)
    return [new]


@node_rewriter([ARange])
def local_row_numbers(fgraph, node):
    """Remember which labels rows are counted of, where a softmax is indexed by both."""
    (rows,) = node.outputs
    labels = _labels_of_arange(rows)
    if labels is None or labels.ndim != 1 or rows.dtype != "int64":
        return None
    for client, _ in fgraph.clients[rows]:
        indexed = isinstance(client, Apply) and _indexed(client.outputs[0])
        if not indexed or indexed[1] is not rows or not _same_length(indexed[2], labels):
            continue
        indexed_in = indexed[0].owner.inputs[0] if _is_apply(indexed[0], log) else indexed[0]
        if _is_apply(indexed_in, Softmax, SoftmaxWithBias, LogSoftmax):
            return _with_trace(node, RowNumbers()(labels))
    return None


@node_rewriter([RowNumbers])
def local_arange_of_row_numbers(fgraph, node):
    """Put the ``arange`` back where nothing has made use of it."""
    (labels,) = node.inputs
    shape_feature = getattr(fgraph, "shape_feature", None)
    length = shape_feature.get_shape(labels, 0) if shape_feature else labels.shape[0]
    return _with_trace(node, arange(length, dtype="int64"))


@node_rewriter([PyTensorAssert])
def local_broadcast_of_one_length(fgraph, node):
    """Take the check away that lengths broadcast, where they are one and the same.

    PyTensor writes the length of ``x[rows, columns]`` as the greatest of both, with a check.
    """
    (longest,) = node.inputs[:1]
    for op in (pt_abs, Max, switch):
        if not _is_apply(longest, op):
            return None
        lengths = longest
        longest = longest.owner.inputs[0]
    _, otherwise, lengths = lengths.owner.inputs
    if not (_is_const(otherwise, -1) and _is_apply(lengths, MakeVector)):
        return None
    first, *others = lengths.owner.inputs
    if any(other is not first for other in others):
        return None
    return [cast(first, node.outputs[0].dtype)]


@node_rewriter([log])
def local_logsoftmax(fgraph, node):
    """Turn ``log(softmax(x))`` into `LogSoftmax`."""
    if not isinstance(node.op.scalar_op, Log) or not _is_apply(node.inputs[0], Softmax):
        return None
    new = LogSoftmax()(node.inputs[0].owner.inputs[0])
    new.tag.values_eq_approx = values_eq_approx_remove_inf
    copy_stack_trace([node.inputs[0], node.outputs[0]], new)
    return [new]


@node_rewriter([SoftmaxGrad])
def local_logsoftmax_grad(fgraph, node):
    """Turn the gradient of ``log(softmax(x))`` into one without the quotient."""
    g_sm, sm = node.inputs
    if not _is_apply(g_sm, true_div) or g_sm.owner.inputs[1] is not sm:
        return None
    g = g_sm.owner.inputs[0]
    # That of a cross-entropy at labels has a rewrite of its own.
    if not _is_apply(sm, softmax_op) or _is_apply(g, AdvancedIncSubtensor):
        return None
    if g.broadcastable[1] and not sm.broadcastable[1]:
        g = alloc(g, g.shape[0], sm.shape[1])
    new = g - pt_sum(g, axis=1, keepdims=True) * sm
    new.tag.values_eq_approx = values_eq_approx_remove_nan
    return _with_trace(node, new)


def _softmax_with_bias(x):
    """Return ``softmax_with_bias`` in place of the softmax of a sum of matrices and vectors."""
    if not _is_apply(x, add):
        return None
    vectors, others = [], []
    for term in x.owner.inputs:
        if term.type.broadcastable != (True, False):
            others.append(term)
        elif _is_apply(term, DimShuffle) and term.owner.inputs[0].type.broadcastable == (False,):
            vectors.append(term.owner.inputs[0])
        else:
            vectors.append(term.dimshuffle(1))
    if not others:
        others.append(shape_padleft(vectors.pop()))
    if not vectors:
        return None
    sums = [add(*terms) if len(terms) > 1 else terms[0] for terms in (others, vectors)]
    if any(s.type.dtype not in float_dtypes for s in sums):
        return None
    return softmax_with_bias(*sums)


@node_rewriter([softmax_op])
def local_softmax_with_bias(fgraph, node):
    """Take a vector that is added to every row into the softmax."""
    new = _softmax_with_bias(node.inputs[0])
    if new is None or new.type.dtype != node.outputs[0].type.dtype:
        return None
    if new.type.broadcastable != node.outputs[0].type.broadcastable:
        return None
    return _with_trace(node, new)


def softmax_simplifier(numerators, denominators):
    """Find a softmax in a quotient of exponentials and their sum."""
    for numerator in list(numerators):
        if numerator.ndim != 2 or numerator.dtype not in float_dtypes:
            continue
        if not _is_apply(numerator, exp):
            continue
        for denominator in denominators:
            if not _is_apply(denominator, DimShuffle):
                continue
            if denominator.owner.op.new_order != (0, "x"):
                continue
            total = denominator.owner.inputs[0]
            if not _is_apply(total, Sum) or total.owner.op.axis != (1,):
                continue
            (summed,) = total.owner.inputs
            if _is_apply(summed, exp) and summed.owner.inputs == numerator.owner.inputs:
                new = softmax_op(numerator.owner.inputs[0])
                copy_stack_trace(numerator, new)
                numerators.remove(numerator)
                denominators.remove(denominator)
                numerators.append(new)
                break
    return numerators, denominators


def _crossentropy_rewriter(with_bias_only):
    def replace_one(fgraph, reason):
        for node in fgraph.toposort():
            if node.op != crossentropy_categorical_1hot:
                continue
            sm, labels = node.inputs
            if _is_apply(sm, softmax_with_bias):
                x, b = sm.owner.inputs
            elif _is_apply(sm, softmax_op) and not with_bias_only:
                x = sm.owner.inputs[0]
                b = zeros_like(x[0])
            else:
                continue
            nll, new_sm, _ = crossentropy_softmax_argmax_1hot_with_bias(x, b, labels)
            copy_stack_trace(node.outputs[0], nll)
            copy_stack_trace(sm, new_sm)
            fgraph.replace_all_validate([(node.outputs[0], nll), (sm, new_sm)], reason=reason)
            return True
        return False

    return replace_one


@graph_rewriter
def crossentropy_to_crossentropy_with_softmax_with_bias(fgraph):
    """Join the cross-entropy at labels with the `SoftmaxWithBias` that it is of."""
    replace_one = _crossentropy_rewriter(with_bias_only=True)
    while replace_one(fgraph, "crossentropy_to_crossentropy_with_softmax_with_bias"):
        pass


@graph_rewriter
def crossentropy_to_crossentropy_with_softmax(fgraph):
    """Join the cross-entropy at labels with the softmax that it is of."""
    replace_one = _crossentropy_rewriter(with_bias_only=False)
    while replace_one(fgraph, "crossentropy_to_crossentropy_with_softmax"):
        pass


@node_rewriter([softmax_grad])
def local_softmax_grad_to_crossentropy_with_softmax_grad(fgraph, node):
    """Join the gradient of the softmax with that of the cross-entropy at labels."""
    g_coding = node.inputs[0]
    if not _is_apply(g_coding, crossentropy_categorical_1hot_grad):
        return None
    return _with_trace(node, crossentropy_softmax_1hot_with_bias_dx(*g_coding.owner.inputs))


@node_rewriter([Argmax])
def local_argmax_pushdown(fgraph, node):
    """Take the argmax of what a function that keeps the order is applied to."""
    (x,) = node.inputs
    if _is_apply(x, softmax_op, softplus, exp, log, tanh, sigmoid):
        new = node.op(x.owner.inputs[0])
    elif _is_apply(x, softmax_with_bias):
        before, bias = x.owner.inputs
        new = node.op(before + bias.dimshuffle("x", 0))
    else:
        return None
    if node.op.axis is None and _is_apply(x, softmax_op, softmax_with_bias):
        return None  # rows have sums of their own
    return _with_trace(node, new)


@node_rewriter([AdvancedSubtensor, log])
def local_advanced_indexing_crossentropy_onehot(fgraph, node):
    """Turn ``log(softmax(x))[arange(n), labels]`` into the cross-entropy, the log outside too."""
    if node.op == log:
        indexed = _indexed(node.inputs[0])
        sm = indexed and indexed[0]
    else:
        indexed = _indexed(node.outputs[0])
        if not indexed:
            return None
        if _is_apply(indexed[0], log):
            sm = indexed[0].owner.inputs[0]
        elif _is_apply(indexed[0], logsoftmax_op):
            sm = softmax_op(indexed[0].owner.inputs[0])
        else:
            return None
    if not indexed or not _is_apply(sm, softmax_op, softmax_with_bias):
        return None
    _, rows, labels = indexed
    if labels.ndim != 1 or not _is_arange_of(rows, labels):
        return None
    if _is_apply(sm, softmax_op):
        x = sm.owner.inputs[0]
        biased = _softmax_with_bias(x)
        x, b = (x, zeros_like(x[0])) if biased is None else biased.owner.inputs
    else:
        x, b = sm.owner.inputs
    nll = crossentropy_softmax_argmax_1hot_with_bias(x, b, labels)[0]
    copy_stack_trace(node.outputs[0], [nll])
    return _with_trace(node, -nll)


@node_rewriter([softmax_grad])
def local_advanced_indexing_crossentropy_onehot_grad(fgraph, node):
    """Turn the gradient of ``log(softmax(x))[arange(n), labels]`` into that of the cross-entropy.

    Two forms: the logarithm before the indexing, or after it.
    """
    d_sm, sm = node.inputs
    if not _is_apply(sm, softmax_op, softmax_with_bias):
        return None
    if incremented := _incremented(d_sm):
        quotient, rows, labels = incremented
        sign = 1.0
        if _is_apply(quotient, neg):
            sign, quotient = -1.0, quotient.owner.inputs[0]
        if not _is_apply(quotient, true_div):
            return None
        numerator, denominator = quotient.owner.inputs
        if numerator.ndim != 1 and not all(numerator.broadcastable):
            return None
        factors = [denominator]
        if _is_apply(denominator, mul):
            factors = denominator.owner.inputs
        found = [f for f in factors if _indexed(f)]
        if len(found) != 1 or _indexed(found[0]) != [sm, rows, labels]:
            return None
        g = -sign * numerator
        for factor in factors:
            if factor is not found[0]:
                g = g / factor
        g = fill(sm[:, 0], g)
    elif _is_apply(d_sm, true_div) and d_sm.owner.inputs[1] is sm:
        incremented = _incremented(d_sm.owner.inputs[0])
        if not incremented:
            return None
        increment, rows, labels = incremented
        if increment.ndim != 1 or increment.dtype not in float_dtypes:
            return None
        g = -increment
    else:
        return None
    if labels.ndim != 1 or not _is_arange_of(rows, labels):
        return None
    return _with_trace(node, crossentropy_softmax_1hot_with_bias_dx(g, sm, labels))


@node_rewriter([softmax_with_bias])
def graph_merge_softmax_with_crossentropy_softmax(fgraph, node):
    """Take the softmax from a cross-entropy of the same inputs."""
    x, b = node.inputs
    for client, _ in fgraph.clients[x]:
        if client.op == crossentropy_softmax_argmax_1hot_with_bias and client.inputs[1] is b:
            return _with_trace(node, client.op(x, b, client.inputs[2])[1])
    return None


@node_rewriter([CrossentropySoftmax1HotWithBiasDx])
def local_useless_crossentropy_softmax_1hot_with_bias_dx_alloc(fgraph, node):
    """Take an `Alloc` away from the gradient of the output: one number will do."""
    dy, sm, y_idx = node.inputs
    if dy.ndim == 0 or dy.broadcastable[0] or not _is_apply(dy, Alloc):
        return None
    dz = dy.owner.inputs[0]
    if dz.ndim == 0 or dz.broadcastable[0]:
        shape_feature = getattr(fgraph, "shape_feature", None)
        if shape_feature is None:
            return None
        if not shape_feature.same_shape(sm, dy, dim_x=0, dim_y=0):
            fits = or_(eq(dy.shape[0], 1), eq(dy.shape[0], sm.shape[0]))
            dz = Assert("`sm` and `dy` do not have the same shape.")(dz, fits)
    return _with_trace(node, node.op(dz, sm, y_idx))
