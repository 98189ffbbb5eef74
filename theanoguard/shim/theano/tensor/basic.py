"""Theano's ``theano.tensor.basic``."""

import builtins
import warnings
from functools import partial, wraps

import numpy as np
import pytensor.tensor.basic as pt_basic
import pytensor.tensor.math as pt_math
import pytensor.tensor.type as pt_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.tensor.basic import NotScalarConstantError, diagonal, discrete_dtypes, switch, tri
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.math import and_, eq, ge, int_div, lt, mod, prod, true_div
from pytensor.tensor.shape import reshape as pt_reshape

from theanoguard._pytensor.for_theano import ifelse

from .. import scalar as scalar_module
from .._rebroadcast import rebroadcast
from .._standin import StandIn
from .._words import theanos_words
from . import _one_node
from ._one_node import dot
from .elemwise import DimShuffle, Elemwise
from .type import TensorType
from .var import AsTensorError

scal = scalar_module
Tensor = TensorType
abs_ = pt_math.abs
conj = pt_math._conj  # an operation; PyTensor's function leaves real numbers alone
inv = pt_math.reciprocal
sgn = pt_math.sign
complex_from_polar = Elemwise(scal.complex_from_polar)
deg2rad = Elemwise(scal.deg2rad)
rad2deg = Elemwise(scal.rad2deg)
chi2sf = Elemwise(scal.chi2sf)
iv = Elemwise(scal.iv)
where = switch
assert_op = Assert()
_checked_axis = CheckAndRaise(IndexError, "The axis is out of bounds.")


def dtype_second(make):
    """Let a function that makes variables take the dtype by position: ``matrix("x", "int32")``."""

    @wraps(make)
    def constructor(name=None, dtype=None):
        return make(name, dtype=dtype)

    return constructor


scalar = dtype_second(pt_type.scalar)
vector = dtype_second(pt_type.vector)
row = dtype_second(pt_type.row)
col = dtype_second(pt_type.col)
matrix = dtype_second(pt_type.matrix)
tensor3 = dtype_second(pt_type.tensor3)
tensor4 = dtype_second(pt_type.tensor4)
tensor5 = dtype_second(pt_type.tensor5)
tensor6 = dtype_second(pt_type.tensor6)
tensor7 = dtype_second(pt_type.tensor7)
python_all = builtins.all
python_any = builtins.any
python_complex = builtins.complex
numpy_diagonal_return_view = True


def as_tensor_variable(x, name=None, ndim=None):
    """Return `x` as a tensor; raises `AsTensorError` where it cannot become one."""
    try:
        return pt_basic.as_tensor_variable(x, name, ndim)
    except (TypeError, NotImplementedError) as error:
        raise AsTensorError(f"Cannot convert {x} to TensorType", type(x)) from error


as_tensor = as_tensor_variable


def tensor(*args, **kwargs):
    """Return a variable; the arguments are those of `TensorType`, and a name."""
    name = kwargs.pop("name", None)
    return TensorType(*args, **kwargs)(name=name)


def addbroadcast(x, *axes):
    """Make `x` broadcastable in these axes; their lengths are checked when the function runs."""
    return rebroadcast(x, dict.fromkeys(axes, True))


def unbroadcast(x, *axes):
    """Make `x` not broadcastable in these axes."""
    return rebroadcast(x, dict.fromkeys(axes, False))


def patternbroadcast(x, broadcastable):
    """Give `x` this broadcast pattern."""
    return rebroadcast(x, dict(enumerate(bool(b) for b in broadcastable)))


def check_and_normalize_axes(x, axis):
    """Return the axes as a sorted list without negative numbers; an empty list for None."""
    x = as_tensor_variable(x)
    if isinstance(axis, Constant):
        axis = axis.data
    if axis is None:
        return []
    if isinstance(axis, Variable | str):
        raise TypeError(f"Computation needs a constant axis. Got {axis}")
    axes = [int(a) for a in np.atleast_1d(axis)]
    for a in axes:
        if not -x.type.ndim <= a < x.type.ndim:
            raise ValueError(
                f"Computation needs a valid axis number for {x.type.ndim}-D tensor. Got {a}"
            )
    return sorted({a % x.type.ndim for a in axes})


def _reduced_axes(x, axis):
    """Return the axes for PyTensor; no axes are all axes in Theano's searches for an extremum."""
    return tuple(check_and_normalize_axes(x, axis)) or (*range(as_tensor_variable(x).ndim),)


def _searched_axes(x, axis):
    """Return the axes for PyTensor's `Argmax`, whose C code knows one axis, or None for all."""
    axes = _reduced_axes(x, axis)
    return axes if len(axes) == 1 or len(axes) < as_tensor_variable(x).ndim else None


def tril(m, k=0):
    """Return a matrix without what is above its diagonal number `k`."""
    return m * tri(m.shape[0], m.shape[1], k=k, dtype=m.dtype)


def triu(m, k=0):
    """Return a matrix without what is below its diagonal number `k`."""
    return m * (1 - tri(m.shape[0], m.shape[1], k=k - 1, dtype=m.dtype))


def max_and_argmax(a, axis=None, keepdims=False):
    """Return the maximum over `axis` and where it is; ``axis=()`` is every axis."""
    return [max(a, axis, keepdims), argmax(a, axis, keepdims)]


def max(x, axis=None, keepdims=False):
    """Return the maximum over `axis`; ``axis=()`` is every axis."""
    return pt_math.max(x, _reduced_axes(x, axis), keepdims)


def argmax(x, axis=None, keepdims=False):
    """Return where the maximum over `axis` is; ``axis=()`` is every axis."""
    return pt_math.argmax(x, _searched_axes(x, axis), keepdims)


def min(x, axis=None, keepdims=False):
    """Return the minimum over `axis`; ``axis=()`` is every axis."""
    return pt_math.min(x, _reduced_axes(x, axis), keepdims)


def argmin(x, axis=None, keepdims=False):
    """Return where the minimum over `axis` is; ``axis=()`` is every axis."""
    return pt_math.argmin(x, _searched_axes(x, axis), keepdims)


def mean(input, axis=None, dtype=None, op=False, keepdims=False, acc_dtype=None):
    """Return the mean over `axis`; `op` asks for a reduction to float64 by one Op.

    As in Theano, the sum is divided by one length after the other.
    """
    input = as_tensor_variable(input)
    if op:
        if dtype not in (None, "float64") or acc_dtype not in (None, "float64"):
            raise NotImplementedError(
                "The Mean op does not support the dtype or acc_dtype argument. It always uses "
                "float64. If you want to specify dtype, call tensor.mean(..., op=False)."
            )
        dtype = acc_dtype = "float64"
    is_half = input.dtype == "float16" if dtype is None else dtype == "float16"
    sum_dtype = "float32" if is_half and dtype is None else dtype
    result = pt_math.sum(input, axis, sum_dtype, keepdims, acc_dtype)
    small = result.dtype in ("float16", "float32", "complex64")
    lengths = pt_basic.cast(input.shape, "float32" if small else "float64")
    axes = range(input.ndim) if axis is None else [int(a) for a in np.atleast_1d(axis)]
    for a in axes:
        result = true_div(result, lengths[a])
    # No axis was divided by: the sum of integers is still one.
    if result.dtype != lengths.dtype and result.dtype in discrete_dtypes:
        result = pt_basic.cast(result, lengths.dtype)
    if is_half:
        result = pt_basic.cast(result, "float16")
    result.name = "mean"
    return result


def stack(*tensors, **kwargs):
    """Stack a list of tensors along a new axis; the tensors may stand as arguments, too."""
    if not tensors and not kwargs:
        raise Exception("theano.tensor.stack(tensors, axis) must have at least one parameter")
    if tensors and not kwargs and not isinstance(tensors[0], list | tuple):
        warnings.warn(
            "stack(*tensors) interface is deprecated, use stack(tensors, axis=0) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        axis = 0
    elif "tensors" in kwargs:
        tensors, axis = kwargs["tensors"], kwargs.get("axis", 0)
    else:
        axis = tensors[1] if len(tensors) == 2 else kwargs.get("axis", 0)
        tensors = tensors[0]
    if len(tensors) == 0:
        raise Exception(
            "tensors is empty. You should at least provide one tensor to "
            "theano.tensor.stack(tensors, axis)."
        )
    stacked = pt_basic.stack(tensors, axis)
    if len(tensors) == 1 and stacked.ndim == 1:
        return pt_basic.MakeVector(stacked.dtype)(*tensors)
    if isinstance(stacked.owner.op, pt_basic.Join):
        return _one_node.join(axis, *stacked.owner.inputs[-len(tensors) :])
    return stacked


def join(axis, *tensors_list):
    """Join tensors along an axis, which may be known only when the function runs."""
    axis = as_tensor_variable(axis)
    try:
        axis = int(get_scalar_constant_value(axis))
    except NotScalarConstantError:
        tensors = [as_tensor_variable(x) for x in tensors_list]
    else:
        return _one_node.join(axis, *tensors_list)
    ndim = tensors[0].ndim
    if not ndim:
        raise TypeError("Join cannot handle arguments of dimension 0.  Use stack.")
    in_bounds = and_(ge(axis, -ndim), lt(axis, ndim))
    which = _checked_axis(mod(axis, ndim), in_bounds)
    # Tensors that are joined along one axis cannot always be joined along another, which a
    # gradient might do: nothing is left of them where the axis is not the one.
    ends = [switch(eq(which, i), np.iinfo("int64").max, 0) for i in range(ndim)]
    ways = [
        pt_basic.join(i, *(x[(slice(None, end),) * ndim] for x in tensors))
        for i, end in enumerate(ends)
    ]
    joined = ways.pop()
    for i, way in reversed([*enumerate(ways)]):
        joined = ifelse(eq(which, i), way, joined)
    return joined


def concatenate(tensor_list, axis=0):
    """Join the tensors of a list along an axis, which may be symbolic."""
    if not isinstance(tensor_list, list | tuple):
        raise TypeError(
            "The 'tensors' argument must be either a tuple or a list, make sure you did not forget "
            "() or [] around arguments of concatenate.",
            tensor_list,
        )
    return join(axis, *tensor_list)


def transpose(x, axes=None):
    """Reorder the dimensions of `x`, or reverse them, which is told by the name."""
    x = as_tensor_variable(x)
    transposed = pt_basic.transpose(x, axes)
    if x.name and (axes is None or list(axes) == list(range(x.ndim))[::-1]):
        if transposed is x:  # a vector
            transposed = DimShuffle(x.broadcastable, range(x.ndim))(x)
        transposed.name = f"{x.name}.T"
    return transposed


def split(x, splits_size, n_splits, axis=0):
    """Split `x` into `n_splits` parts of the sizes `splits_size`."""
    return pt_basic.split(x, splits_size, n_splits=n_splits, axis=axis)


def reshape(x, newshape, ndim=None):
    """Give `x` another shape, of `ndim` dimensions where its length is not known."""
    with theanos_words():
        return pt_reshape(x, newshape, ndim=ndim)


def flatten(x, ndim=None, outdim=None):
    """Keep the first ``ndim - 1`` dimensions and join the others; `outdim` is the older name."""
    if ndim is not None and outdim is not None:
        raise ValueError("You should only specify ndim")
    ndim = ndim if ndim is not None else 1 if outdim is None else outdim
    x = as_tensor_variable(x)
    if ndim < 1 or ndim > builtins.max(1, x.ndim):
        raise ValueError(f"ndim {ndim} out of bound [1, {x.ndim + 1})")
    # PyTensor returns `x` itself where nothing changes, and a new name would be the name of `x`.
    flat = reshape(x, (*(x.shape[: ndim - 1] if ndim > 1 else ()), -1))
    kept, joined = x.broadcastable[: ndim - 1], x.broadcastable[ndim - 1 :]
    pattern = (*kept, builtins.all(joined))
    return addbroadcast(flat, *(i for i, b in enumerate(pattern) if b))


def is_flat(var, ndim=None, outdim=None):
    """Whether `var` has `ndim` dimensions; `outdim` is the older name."""
    if ndim is not None and outdim is not None:
        raise ValueError("You should only specify ndim")
    ndim = ndim if ndim is not None else outdim
    return var.ndim == (1 if ndim is None else ndim)


def tile(x, reps, ndim=None):
    """Repeat `x` `reps` times; `ndim` is needed where `reps` is a symbolic vector."""
    x = as_tensor_variable(x)
    if ndim is not None and ndim < x.ndim:
        raise ValueError("ndim should be equal or larger than x.ndim")
    if isinstance(reps, list | tuple):
        if ndim is not None and len(reps) > ndim:
            raise ValueError("len(reps) should be equal or less than ndim")
        for r in reps:
            if not isinstance(r, int | np.integer) and (
                getattr(r, "dtype", None) not in discrete_dtypes
            ):
                raise ValueError("elements of reps must be scalars of integer dtype")
        reps = list(reps)
    else:
        reps = as_tensor_variable(reps)
        if reps.dtype not in discrete_dtypes:
            raise ValueError("elements of reps must be integer dtype")
        if reps.ndim > 1:
            raise ValueError("the dimension of reps should not exceed 1")
        if reps.ndim == 0:
            reps = [reps]
        elif ndim is None:
            raise ValueError("if reps is tensor.vector, you should specify the ndim")
        else:
            offset = ndim - reps.shape[0]
            offset = assert_op(offset, ge(offset, 0))
            reps = [switch(lt(i, offset), 1, reps[i - offset]) for i in range(ndim)]
    ndim = builtins.max(len(reps), x.ndim) if ndim is None else ndim
    return pt_basic.tile(x, [1] * (ndim - len(reps)) + reps)


def choose(a, choices, out=None, mode="raise"):
    """Choose among `choices` by the numbers in `a`; `out` has to be None."""
    assert out is None
    return pt_basic.choose(a, choices, mode)


def diag(v, k=0):
    """Return the `k`-th diagonal of a matrix, or the matrix with this diagonal."""
    v = as_tensor_variable(v)
    if v.ndim == 0:
        raise ValueError("Input must has v.ndim >= 1.")
    return pt_basic.diag(v, k) if v.ndim <= 2 else diagonal(v, offset=k)


def get_scalar_constant_value(orig_v, elemwise=True, only_process_constants=False, max_recur=10):
    """Return the number that every element of `orig_v` is known to be."""
    data = orig_v.data if isinstance(orig_v, Constant) else orig_v
    if isinstance(data, np.ndarray) and data.size == 0:
        raise EmptyConstantError
    return pt_basic.get_underlying_scalar_constant_value(
        orig_v,
        elemwise=elemwise,
        only_process_constants=only_process_constants,
        max_recur=max_recur,
    )


def extract_constant(x, elemwise=True, only_process_constants=False):
    """Return the number that `x` is known to hold, else `x`."""
    return pt_basic.get_underlying_scalar_constant_value(
        x,
        elemwise=elemwise,
        only_process_constants=only_process_constants,
        raise_not_constant=False,
    )


def batched_dot(a, b):
    """Return ``dot(a[i], b[i])`` for every `i`, for tensors of any rank above 0."""
    a, b = as_tensor_variable(a), as_tensor_variable(b)
    for name, operand in (("a", a), ("b", b)):
        if operand.ndim == 0:
            raise TypeError(f"{name} must have at least one (batch) axis")
    if a.ndim == 1 or b.ndim == 1:
        left, right = (
            v.dimshuffle(0, *["x"] * (other.ndim - 1)) if v.ndim == 1 else v
            for v, other in ((a, b), (b, a))
        )
        return left * right
    if a.ndim > 3 or b.ndim > 3:
        return batched_tensordot(a, b, [[a.ndim - 1], [builtins.max(1, b.ndim - 2)]])
    left = a.dimshuffle(0, "x", 1) if a.ndim == 2 else a
    right = b.dimshuffle(0, 1, "x") if b.ndim == 2 else b
    product = BatchedDot()(left, right)
    if b.ndim == 2:
        product = product[:, :, 0]
    return product[:, 0] if a.ndim == 2 else product


def batched_tensordot(x, y, axes=2):
    """Return ``tensordot(x[i], y[i], axes)`` for every `i`; axes count the batch axis, too."""
    x, y = as_tensor_variable(x), as_tensor_variable(y)
    if np.isscalar(axes):
        for name, operand in (("a", x), ("b", y)):
            if axes >= operand.ndim:
                raise ValueError(
                    f"axes to sum over must not include the batch axis of {name} "
                    f"({name}.ndim={operand.ndim}, axes={axes})"
                )
        summed = [list(range(x.ndim - axes, x.ndim)), list(range(1, axes + 1))]
    elif len(axes) == 2:
        summed = [[int(a) for a in np.atleast_1d(of_one)] for of_one in axes]
    else:
        raise ValueError(
            f"Axes should be an integer or a list/tuple of len 2 ({axes} was provided)"
        )
    if len(summed[0]) != len(summed[1]):
        raise ValueError("Axes elements must have the same length.")
    for i, operand in enumerate((x, y)):
        if 0 in summed[i]:
            raise ValueError(f"axes to sum over must not contain the batch axis (axes[{i}]={axes})")
        if beyond := [a for a in summed[i] if a >= operand.ndim]:
            raise ValueError(
                f"axes[{i}] contains dimensions greater than or equal to {operand}.ndim ({beyond})"
            )
    kept = [
        [a for a in range(1, v.ndim) if a not in s] for v, s in ((x, summed[0]), (y, summed[1]))
    ]

    def size(v, of_axes):
        return prod([v.shape[a] for a in of_axes], dtype="int64") if of_axes else 1

    rows, columns = size(x, kept[0]), size(y, kept[1])
    inner = size(x, summed[0]), size(y, summed[1])
    left = x.dimshuffle(0, *kept[0], *summed[0]).reshape((x.shape[0], rows, inner[0]))
    right = y.dimshuffle(0, *summed[1], *kept[1]).reshape((y.shape[0], inner[1], columns))
    product = batched_dot(left, right)
    sizes = [x.shape[0], *(x.shape[a] for a in kept[0]), *(y.shape[a] for a in kept[1])]
    pattern = [x.broadcastable[a] for a in (0, *kept[0])] + [y.broadcastable[a] for a in kept[1]]
    return patternbroadcast(product.reshape(sizes, ndim=len(sizes)), pattern)


def div_proxy(x, y):
    """Divide: `int_div` for integers, `true_div` otherwise."""
    both = [as_tensor_variable(v).dtype in discrete_dtypes for v in (x, y)]
    return int_div(x, y) if builtins.all(both) else true_div(x, y)


def check_equal_numpy(x, y):
    """Whether two values are equal: arrays and random states by their contents."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return x.dtype == y.dtype and x.shape == y.shape and np.all(abs(x - y) < 1e-10)
    if isinstance(x, np.random.RandomState) and isinstance(y, np.random.RandomState):
        pairs = zip(x.get_state(legacy=True), y.get_state(legacy=True), strict=True)
        return builtins.all(np.all(a == b) for a, b in pairs)
    return x == y


def constructor(f):
    """Return `f`: Theano lists such functions in its documentation."""
    return f


class EmptyConstantError(NotScalarConstantError):
    """The constant has no elements."""


def numpy_scalar(data):
    """Return `data` where it is a single number."""
    data = np.asarray(data)
    if data.size == 0:
        raise EmptyConstantError
    try:
        builtins.complex(data)
    except (TypeError, ValueError) as error:
        raise NotScalarConstantError(
            "v.data is non-numeric, non-scalar, or has more than one unique value", data
        ) from error
    return data


class Default(Op):
    """Pass the first input on, or a copy of the second where the first is None."""

    view_map = {0: [0]}
    __props__ = ()

    def make_node(self, x, default):
        """Both have the same type."""
        x, default = as_tensor_variable(x), as_tensor_variable(default)
        if x.type != default.type:
            raise TypeError("Both default() arguments must have same type", x, default)
        return Apply(self, [x, default], [default.type()])

    def perform(self, node, inputs, outputs):
        """Choose between the inputs."""
        x, default = inputs
        outputs[0][0] = default.copy() if x is None else x


default = Default()
setdefault = default


class MaxAndArgmax(metaclass=StandIn):
    """``MaxAndArgmax(axis)(x)`` gives the maximum over `axis` and where it is."""

    stands_for = (pt_math.Max, pt_math.Argmax)

    def __init__(self, axis):
        self.axis = axis

    def __call__(self, x):
        """Return the maximum and where it is."""
        return max_and_argmax(x, self.axis)


class Mean:
    """``Mean(axis)(x)`` is the mean over `axis`, a float64."""

    def __new__(cls, axis=None):
        return partial(mean, axis=axis, op=True)


class Flatten:
    """``Flatten(ndim)(x)`` joins the last dimensions of `x`."""

    def __new__(cls, outdim=1):
        return partial(flatten, ndim=outdim)


class Tile:
    """``Tile(ndim)(x, reps)`` repeats `x`."""

    def __new__(cls, ndim):
        return partial(tile, ndim=ndim)


class Tri:
    """``Tri(dtype)(n, m, k)`` is a matrix of ones at and below a diagonal."""

    def __new__(cls, dtype=None):
        return partial(tri, dtype=dtype)


class Dot(metaclass=StandIn):
    """``Dot()(x, y)`` is the product of two matrices or vectors."""

    stands_for = (pt_math.Dot, _one_node.Dot)

    def __call__(self, x, y):
        """Return the product."""
        return dot(x, y)

    def __str__(self):
        return "dot"


_dot = Dot()


class Join(metaclass=StandIn):
    """``Join()(axis, *tensors)`` joins tensors along an axis."""

    stands_for = (pt_basic.Join, _one_node.Join)

    def __init__(self, view=-1):
        self.view = view

    def __call__(self, axis, *tensors):
        """Return the joined tensor."""
        return join(axis, *tensors)


join_ = Join()


class Split(metaclass=StandIn):
    """``Split(n)(x, axis, sizes)`` splits a tensor into `n` parts."""

    stands_for = pt_basic.Split

    def __init__(self, len_splits):
        self.len_splits = int(len_splits)

    def __call__(self, x, axis, splits):
        """Return the parts."""
        return split(x, splits, self.len_splits, axis)
