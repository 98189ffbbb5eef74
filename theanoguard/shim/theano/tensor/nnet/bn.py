"""Batch normalization."""

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import vars_between
from pytensor.scalar.basic import Composite, add, get_scalar_type, mul, sub, true_div, upcast
from pytensor.tensor.basic import as_tensor_variable, cast
from pytensor.tensor.basic import fill as pt_fill
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import mean as pt_mean
from pytensor.tensor.math import prod, reciprocal, sqrt
from pytensor.tensor.math import sum as pt_sum

from ...configdefaults import config
from ...configparser import change_flags
from ...gof.op import Op
from ..basic import addbroadcast, patternbroadcast


class BNComposite(Composite):
    """``(x - mean) / std * gamma + beta`` for numbers of one dtype."""

    init_param = ("dtype",)

    @change_flags(compute_test_value="off")
    def __init__(self, dtype):
        self.dtype = dtype
        inputs = [get_scalar_type(dtype)() for _ in range(5)]
        x, mean, std, gamma, beta = inputs
        super().__init__(inputs, [add(mul(true_div(sub(x, mean), std), gamma), beta)])

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by all five."""
        x, mean, std, gamma, _ = inputs
        (top,) = cotangents
        scaled = top * gamma
        centred = x - mean
        dx = scaled / std
        return [dx, -dx, -(scaled * centred) / (std * std), top * centred / std, top]


def batch_normalization(inputs, gamma, beta, mean, std, mode="low_mem"):
    """Return ``(inputs - mean) / std * gamma + beta``.

    Parameters
    ----------
    inputs, gamma, beta, mean, std : TensorVariable
        The last four must broadcast against the first.
    mode : {"low_mem", "high_mem"}
        One operation, or several that rewrites may take apart.
    """
    if mode == "low_mem":
        normalize = Elemwise(scalar_op=BNComposite(dtype=inputs.dtype))
        return normalize(inputs, mean, std, gamma, beta)
    if mode == "high_mem":
        return (inputs - mean) * (gamma / std) + beta
    raise ValueError('mode must be either "low_mem", "high_mem"')


def _prepare_batch_normalization_axes(axes, ndim):
    """Return the axes that are normalized, and the others."""
    if isinstance(axes, str) and axes == "per-activation":
        axes = (0,)
    elif isinstance(axes, str) and axes == "spatial":
        axes = (0, *range(2, ndim))
    elif isinstance(axes, tuple | list | np.ndarray):
        axes = tuple(int(a) for a in axes)
    else:
        raise ValueError(f"invalid axes: {axes}")
    axes = tuple(sorted(axes))
    if len(axes) == 0:
        raise ValueError("there should be at least one normalization axis")
    if min(axes) < 0 or max(axes) >= ndim:
        raise ValueError(f"axes should be less than ndim (<{ndim}), but {axes} given")
    return axes, tuple(i for i in range(ndim) if i not in axes)


class _Parameters:
    """How the parameters, of fewer axes or of as many as the inputs, are laid over them."""

    def __init__(self, inputs, gamma, beta, axes):
        self.ndim = inputs.ndim
        self.axes, self.kept = _prepare_batch_normalization_axes(axes, self.ndim)
        self.is_full = gamma.ndim == self.ndim
        self.params_ndim = self.ndim if self.is_full else len(self.kept)
        if gamma.ndim != self.params_ndim or beta.ndim != self.params_ndim:
            raise ValueError(
                "gamma and beta dimensionality must match the number of non-normalized axes, or "
                f"have the same number of dimensions as the inputs; got {gamma.ndim} and "
                f"{beta.ndim} instead of {self.params_ndim}"
            )

    def check(self, name, *parameters):
        """Raise where a parameter has another rank than gamma and beta."""
        for parameter in parameters:
            if parameter.ndim != self.params_ndim:
                raise ValueError(
                    f"{name} must be of the same dimensionality as gamma and beta; "
                    f"got {parameter.ndim} instead of {self.params_ndim}"
                )

    def lay(self, parameter):
        """Return the parameter with as many axes as the inputs."""
        parameter = as_tensor_variable(parameter)
        if self.is_full:
            return addbroadcast(parameter, *self.axes)
        pattern = ["x"] * self.ndim
        for i, axis in enumerate(self.kept):
            pattern[axis] = i
        return parameter.dimshuffle(pattern)

    def take_up(self, result):
        """Undo `lay`."""
        return result if self.is_full else result.dimshuffle(self.kept)


def _epsilon(epsilon):
    epsilon = np.asarray(epsilon, dtype=config.floatX)
    if epsilon < 1e-5:
        raise ValueError(f"epsilon must be at least 1e-5, got {epsilon}")
    return epsilon


def batch_normalization_train(
    inputs,
    gamma,
    beta,
    axes="per-activation",
    epsilon=1e-4,
    running_average_factor=0.1,
    running_mean=None,
    running_var=None,
):
    """Normalize by the statistics of the batch itself.

    Parameters
    ----------
    inputs : TensorVariable
    gamma, beta : TensorVariable
        Scale and offset: of the axes that are not normalized, or of all with ones.
    axes : {"per-activation", "spatial"} or tuple of int
        The axes that are normalized over: the first, all but the second, or these.
    epsilon : float
        Added to the variance; at least 1e-5.
    running_average_factor : float
        The weight of this batch in the running averages.
    running_mean, running_var : TensorVariable, optional
        What the running averages were before, shaped as `gamma`.

    Returns
    -------
    out, mean, invstd : TensorVariable
        The output, the mean, and one over the standard deviation.
    new_running_mean, new_running_var : TensorVariable
        Only where both running averages are given.
    """
    parameters = _Parameters(inputs, gamma, beta, axes)
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be given or both be None")
    running = [] if running_mean is None else [running_mean, running_var]
    for name, average in zip(("running_mean", "running_var"), running, strict=False):
        parameters.check(name, average)
    epsilon = _epsilon(epsilon)
    running = [parameters.lay(average) for average in running]
    op = AbstractBatchNormTrain(axes=parameters.axes)
    out, *statistics = op(
        as_tensor_variable(inputs),
        parameters.lay(gamma),
        parameters.lay(beta),
        epsilon,
        running_average_factor if running else 0.1,
        *running,
    )
    for i, average in enumerate(running, 2):
        statistics[i] = patternbroadcast(statistics[i], average.broadcastable)
    return (out, *(parameters.take_up(s) for s in statistics))


def batch_normalization_test(inputs, gamma, beta, mean, var, axes="per-activation", epsilon=1e-4):
    """Normalize by statistics that are given; see `batch_normalization_train`."""
    parameters = _Parameters(inputs, gamma, beta, axes)
    parameters.check("mean and var", mean, var)
    epsilon = _epsilon(epsilon)
    op = AbstractBatchNormInference(axes=parameters.axes)
    laid = [parameters.lay(p) for p in (gamma, beta, mean, var)]
    return op(as_tensor_variable(inputs), *laid, epsilon=epsilon)


def _common_dtype(*variables):
    variables = [as_tensor_variable(v) for v in variables]
    dtype = upcast(*(v.dtype for v in variables))
    return [v.astype(dtype) for v in variables]


class _BatchNorm(Op):
    """What the operations of batch normalization have in common.

    Parameters
    ----------
    axes : sequence of int
        The axes that are normalized over.
    """

    __props__ = ("axes",)

    def __init__(self, axes=(0,)):
        assert isinstance(axes, tuple | list)
        assert len(axes) > 0
        self.axes = tuple(int(a) for a in axes)

    def _check_axes(self, ndim):
        if min(self.axes) < 0 or max(self.axes) >= ndim:
            raise ValueError(f"axes should be less than ndim (<{ndim}), but {self.axes} given")

    def _mean(self, x):
        return pt_mean(x, axis=self.axes, keepdims=True)

    def _sum(self, x):
        return pt_sum(x, axis=self.axes, keepdims=True)

    def perform(self, node, inputs, outputs):
        """Compute in NumPy."""
        self._check_axes(inputs[0].ndim)
        for storage, value, output in zip(
            outputs, self._compute(np, *inputs), node.outputs, strict=True
        ):
            storage[0] = np.asarray(value, dtype=output.dtype)


class AbstractBatchNormTrain(_BatchNorm):
    """Normalize by the statistics of the batch itself."""

    def make_node(
        self,
        x,
        scale,
        bias,
        epsilon=1e-4,
        running_average_factor=0.1,
        running_mean=None,
        running_var=None,
    ):
        """Take inputs and parameters of equal rank; either both running averages or none."""
        running = [r for r in (running_mean, running_var) if r is not None]
        assert len(running) in (0, 2)
        x, scale, bias, *running = _common_dtype(x, scale, bias, *running)
        assert all(v.ndim == x.ndim for v in (scale, bias, *running))
        rest = [as_tensor_variable(v) for v in (epsilon, running_average_factor)]
        outputs = [x.type(), *(scale.type() for _ in range(2 + len(running)))]
        return Apply(self, [x, scale, bias, *rest, *running], outputs)

    def _compute(self, lib, x, scale, bias, epsilon, factor, *running):
        mean = x.mean(self.axes, keepdims=True)
        var = x.var(self.axes, keepdims=True)
        if lib is np:
            invstd = 1 / np.sqrt(var + epsilon)
        else:
            if var.dtype == "float32" and epsilon.dtype == "float64":
                epsilon = epsilon.astype("float32")
            invstd = reciprocal(sqrt(var + epsilon))
        results = [(x - mean) * (scale * invstd) + bias, mean, invstd]
        if running:
            if lib is np:
                m = float(x.size / scale.size)
            else:
                m = cast(prod(x.shape) / prod(scale.shape), config.floatX)
            running_mean, running_var = running
            results.append(running_mean * (1 - factor) + mean * factor)
            results.append(running_var * (1 - factor) + m / (m - 1) * var * factor)
        return results

    def infer_shape(self, *args):
        """Return the shape of the inputs, then that of the parameters."""
        node, shapes = args[-2:]
        return [shapes[0], *[shapes[1]] * (len(node.outputs) - 1)]

    def connection_pattern(self, node):
        """Tell what depends on what: the running averages each on its own and on the inputs."""
        n = len(node.inputs) - 5
        pattern = [[True] * (3 + n), *([True] * 3 + [False] * n for _ in range(2))]
        pattern += [[False] * (3 + n) for _ in range(2)]
        pattern += [[False] * (3 + i) + [True] + [False] * (n - i - 1) for i in range(n)]
        return pattern

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the inputs and the parameters, of the first output alone."""
        x, scale, _, epsilon = inputs[:4]
        _, mean, invstd = outputs[:3]
        op = AbstractBatchNormTrainGrad(self.axes)
        gradients = op(x, cotangents[0], scale, mean, invstd, epsilon)
        return gradients + [DisconnectedType()() for _ in inputs[3:]]


class AbstractBatchNormInference(_BatchNorm):
    """Normalize by statistics that are given."""

    def make_node(self, x, scale, bias, estimated_mean, estimated_variance, epsilon=1e-4):
        """Take inputs and parameters of equal rank."""
        arrays = _common_dtype(x, scale, bias, estimated_mean, estimated_variance)
        x = arrays[0]
        assert all(v.ndim == x.ndim for v in arrays)
        return Apply(self, [*arrays, as_tensor_variable(epsilon)], [x.type()])

    def _compute(self, lib, x, scale, bias, mean, var, epsilon):
        if lib is not np and var.dtype == "float32" and epsilon.dtype == "float64":
            epsilon = epsilon.astype("float32")
        root = np.sqrt if lib is np else sqrt
        return [(x - mean) * (scale / root(var + epsilon)) + bias]

    def infer_shape(self, *args):
        """Return the shape of the inputs."""
        return [args[-1][0]]

    def connection_pattern(self, node):
        """Tell that epsilon has no gradient."""
        return [[True]] * 5 + [[False]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by the inputs and all parameters."""
        x, *parameters, epsilon = inputs
        self._check_axes(x.ndim)
        scale, _, mean, var = (addbroadcast(p, *self.axes) for p in parameters)
        (dy,) = cotangents
        var_eps = var + epsilon
        std = sqrt(var_eps)
        centred = self._sum(dy * (x - mean))
        total = self._sum(dy)
        return [
            dy * (scale / std),
            centred / std,
            total,
            -total * (scale / std),
            -centred * (scale / (2.0 * var_eps * std)),
            DisconnectedType()(),
        ]


class AbstractBatchNormTrainGrad(_BatchNorm):
    """The gradient of `AbstractBatchNormTrain` by its inputs, scale and bias."""

    def make_node(self, x, dy, scale, x_mean, x_invstd, epsilon=1e-4):
        """Take tensors of equal rank."""
        arrays = _common_dtype(x, dy, scale, x_mean, x_invstd)
        x, scale = arrays[0], arrays[2]
        assert all(v.ndim == x.ndim for v in arrays)
        outputs = [x.type(), scale.type(), scale.type()]
        return Apply(self, [*arrays, as_tensor_variable(epsilon)], outputs)

    def _compute(self, lib, x, dy, scale, mean, invstd, epsilon):
        average, total = (np.mean, np.sum) if lib is np else (pt_mean, pt_sum)
        over = {"axis": self.axes, "keepdims": True}
        centred = x - mean
        c = dy * invstd - centred * (average(dy * centred, **over) * invstd**3)
        return [
            scale * (c - average(c, **over)),
            total(dy * invstd * centred, **over),
            total(dy, **over),
        ]

    def infer_shape(self, *args):
        """Return the shapes of the inputs, the scale and the bias."""
        shapes = args[-1]
        return [shapes[0], shapes[2], shapes[2]]

    def connection_pattern(self, node):
        """Tell what depends on what."""
        return [
            [True, True, False],
            [True, True, True],
            [True, False, False],
            [True, True, False],
            [True, True, False],
            [False, False, False],
        ]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradients by all but epsilon."""
        x, dy, scale, mean, invstd, _ = inputs
        ddinputs, ddscale, ddbias = cotangents
        terms = {name: [] for name in ("x", "dy", "scale", "mean", "invstd")}
        centred = x - mean
        dy_centred = self._mean(dy * centred)
        cube = invstd**3

        if not isinstance(ddinputs.type, DisconnectedType):
            c = scale * (ddinputs - self._mean(ddinputs))
            c_centred = self._mean(c * centred)
            d = cube * (c * dy_centred + dy * c_centred)
            e = dy * invstd - cube * centred * dy_centred
            terms["x"].append(-d)
            terms["dy"].append(c * invstd - cube * centred * c_centred)
            terms["scale"].append(self._sum(ddinputs * (e - self._mean(e))))
            terms["mean"].append(self._sum(d))
            terms["invstd"].append(self._sum(c * (dy - 3 * invstd**2 * centred * dy_centred)))
        if not isinstance(ddscale.type, DisconnectedType):
            terms["x"].append(invstd * ddscale * dy)
            terms["dy"].append(invstd * ddscale * centred)
            terms["mean"].append(-invstd * ddscale * self._sum(dy))
            terms["invstd"].append(ddscale * self._sum(dy * centred))
        if not isinstance(ddbias.type, DisconnectedType):
            terms["dy"].append(pt_fill(dy, ddbias))
        gradients = [sum(t[1:], t[0]) if t else DisconnectedType()() for t in terms.values()]
        return [*gradients, DisconnectedType()()]


@node_rewriter([AbstractBatchNormTrain, AbstractBatchNormTrainGrad, AbstractBatchNormInference])
def local_abstract_batch_norm(fgraph, node):
    """Write batch normalization out in elementary operations."""
    results = node.op._compute(None, *node.inputs)
    results = [
        patternbroadcast(result.astype(output.dtype), output.broadcastable)
        for result, output in zip(results, node.outputs, strict=True)
    ]
    for variable in vars_between(node.inputs, results):
        if variable not in node.inputs:
            copy_stack_trace(node.outputs[0], variable)
    return results


# Theano has one for each operation.
local_abstract_batch_norm_train = local_abstract_batch_norm
local_abstract_batch_norm_train_grad = local_abstract_batch_norm
local_abstract_batch_norm_inference = local_abstract_batch_norm
