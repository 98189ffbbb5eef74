"""Random numbers of ``numpy.random.RandomState``: the same as Theano 1.0.5's."""

import sys

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import register_view_op_c_code
from pytensor.configdefaults import config
from pytensor.gradient import disconnected_type, grad_undefined
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import upcast
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.type import integer_dtypes

from .basic import permute_row_elements
from .type import TensorType


class RandomStateType(Type):
    """The type of ``numpy.random.RandomState``; two are equal that will draw the same numbers."""

    def __str__(self):
        return "RandomStateType"

    __repr__ = __str__

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def filter(self, data, strict=False, allow_downcast=None):
        if self.is_valid_value(data):
            return data
        raise TypeError(f"a numpy.random.RandomState is needed, not {data!r}")

    def is_valid_value(self, a, strict=True):
        return type(a) is np.random.RandomState

    @staticmethod
    def values_eq(a, b):
        (_, keys_a, *rest_a), (_, keys_b, *rest_b) = a.get_state(), b.get_state()
        if not rest_a[1] and not rest_b[1]:  # no normal number is kept for the next draw
            rest_a, rest_b = rest_a[:2], rest_b[:2]
        return rest_a == rest_b and np.array_equal(keys_a, keys_b)

    def get_shape_info(self, obj):
        return None

    def get_size(self, shape_info):
        # Of the array, the integers and the floating-point number of the state.
        return sum(np.asarray(part).nbytes for part in np.random.RandomState(0).get_state()[1:])

    @staticmethod
    def may_share_memory(a, b):
        return a is b


register_view_op_c_code(
    RandomStateType,
    "Py_XDECREF(%(oname)s); %(oname)s = %(iname)s; Py_XINCREF(%(oname)s);",
    1,
)

random_state_type = RandomStateType()
theano = sys.modules["theano"]  # which code takes from here by ``import *``


def copy_random_state(random_state):
    """Return a ``RandomState`` that will draw the same numbers.

    ``copy.copy`` gives one that shares the generator with the original, from NumPy 1.24 on.
    """
    copied = np.random.RandomState(0)
    copied.set_state(random_state.get_state(legacy=False))
    return copied


class RandomFunction(Op):
    """Draw from a ``RandomState``; the outputs are the state after drawing and the samples.

    Parameters
    ----------
    fn : str or callable
        A method of ``RandomState``, or its name, or a function with the same arguments, of
        which the size is the last.
    outtype : TensorType
        The type of the samples.
    inplace : bool
        Whether to draw from the state itself and not from a copy.
    ndim_added : int
        How many more dimensions the samples have than the size tells.
    """

    __props__ = ("fn", "outtype", "inplace", "ndim_added")

    def __init__(self, fn, outtype, inplace=False, ndim_added=0):
        self.fn = fn
        self.outtype = outtype
        self.inplace = inplace
        self.ndim_added = ndim_added
        if inplace:
            self.destroy_map = {0: [0]}

    @property
    def exec_fn(self):
        """The function that draws."""
        return getattr(np.random.RandomState, self.fn) if isinstance(self.fn, str) else self.fn

    def __getstate__(self):
        return {name: getattr(self, name) for name in self.__props__}

    def __setstate__(self, state):
        if not isinstance(state, dict):
            state = dict(zip(self.__props__, state, strict=True))
        self.__init__(**{name: state[name] for name in self.__props__})

    def __str__(self):
        return f"RandomFunction{{{self.exec_fn.__name__}}}"

    def make_node(self, r, shape, *args):
        """Apply to a state, a size (empty: that of the arguments) and the arguments of `fn`."""
        if isinstance(shape, tuple | list) and len(shape) == 0:
            shape = np.array([], dtype="int64")
        shape = pt.as_tensor_variable(shape, ndim=1)
        assert shape.type.dtype in ("int64", "int32")
        if not isinstance(r.type, RandomStateType):
            print("WARNING: RandomState instances should be in RandomStateType", file=sys.stderr)
        args = [pt.as_tensor_variable(arg) for arg in args]
        return Apply(self, [r, shape, *args], [r.type(), self.outtype()])

    def infer_shape(self, *args):
        """Return the size, where that is the shape of the samples."""
        *_, node, _ = args  # the graph comes first in PyTensor 3.0
        size = node.inputs[1]
        if self.ndim_added or len(getattr(size, "data", [0])) == 0:
            raise ShapeError()
        return [None, [size[i] for i in range(node.outputs[1].ndim)]]

    def perform(self, node, inputs, outputs):
        r, size, *args = inputs
        assert type(r) is np.random.RandomState, (type(r), r)
        size = tuple(int(length) for length in size) or None
        ndim = self.outtype.ndim
        if size is not None and ndim != len(size) + self.ndim_added:
            raise ValueError(
                f"Shape mismatch: self.outtype.ndim ({ndim}) != "
                f"len(shape) ({len(size)}) + self.ndim_added ({self.ndim_added})"
            )
        if not self.inplace:
            r = copy_random_state(r)
        samples = np.asarray(self.exec_fn(r, *args, size), dtype=node.outputs[1].type.dtype)
        if size is None and samples.ndim == 0:
            samples = samples.reshape((1,) * ndim)
        if samples.ndim != ndim:
            raise ValueError(
                f'Shape mismatch: "out" should have dimension {ndim}, but the value produced by '
                f'"perform" has dimension {samples.ndim}'
            )
        if size is not None and samples.shape[: ndim - max(self.ndim_added, 0)] != size:
            raise ValueError(
                f'Shape mismatch: "out" should have shape {size} (plus {self.ndim_added} extra '
                f'dimensions), but the value produced by "perform" has shape {samples.shape}'
            )
        outputs[0][0] = r
        outputs[1][0] = samples

    def pullback(self, inputs, outputs, cotangents):
        why = "No gradient defined through raw random numbers op"
        return [grad_undefined(self, i, x, why) for i, x in enumerate(inputs)]

    def pushforward(self, inputs, outputs, tangents):
        return [disconnected_type() for _ in outputs]


def _length_from_args(i, ndim, args):
    """Return the length along axis `i` of samples with `ndim` dimensions, and whether it is 1."""
    overlapping = [arg for arg in args if i >= ndim - arg.ndim]
    if not overlapping:
        raise ValueError(
            "Auto-shape of -1 must overlap with the shape of one of the broadcastable inputs"
        )
    for arg in overlapping:
        axis = i + arg.ndim - ndim
        if not arg.type.broadcastable[axis]:
            return arg.shape[axis], False
    return pt.as_tensor_variable(1), True


def _infer_ndim_bcast(ndim, shape, *args):
    """Return the number of dimensions, the shape as a vector, and the broadcast pattern.

    Parameters
    ----------
    ndim : int or None
    shape : sequence, vector variable or None
        An entry of -1 stands for the length of the arguments along that axis; None for the
        shape of the arguments together.
    *args : TensorVariable
    """
    if shape is None:
        if not args:
            raise TypeError("_infer_ndim_bcast cannot infer shape without either shape or args")
        shape, ndim = [-1] * max(arg.ndim for arg in args), None
    if isinstance(shape, tuple | list):
        if ndim is None:
            ndim = len(shape)
        elif ndim != len(shape):
            raise ValueError(
                "ndim should be equal to len(shape), but\n",
                f"ndim = {ndim}, len(shape) = {len(shape)}, shape = {shape}",
            )
        lengths, pattern = [], []
        for i, length in enumerate(shape):
            if isinstance(length, Variable):
                length, is_one = length, False
            elif length == -1:
                length, is_one = _length_from_args(i, ndim, args)
            elif length >= 0:
                length, is_one = pt.as_tensor_variable(length), length == 1
            else:
                raise ValueError("negative shape", length)
            lengths.append(length)
            pattern.append(bool(is_one))
        v_shape = pt.stack(lengths) if lengths else pt.constant(np.array([], dtype="int64"))
    else:
        v_shape = pt.as_tensor_variable(shape)
        if v_shape.ndim != 1:
            raise TypeError(f"shape must be a vector or list of scalar, got '{v_shape}'")
        if ndim is None:
            ndim = pt.get_vector_length(v_shape)
        pattern = [False] * ndim

    if v_shape.ndim != 1:
        raise TypeError(f"shape must be a vector or list of scalar, got '{v_shape}'")
    if v_shape.dtype not in integer_dtypes:
        raise TypeError("shape must be an integer vector or list", v_shape.dtype)
    args_ndim = max((arg.ndim for arg in args), default=0)
    if args_ndim > ndim:
        raise ValueError(
            "ndim should be at least as big as required by args value", (ndim, args_ndim), args
        )
    return ndim, pt.cast(v_shape, "int64"), tuple(pattern)


def _float_dtype(dtype, *args):
    return upcast(config.floatX, *(arg.dtype for arg in args)) if dtype is None else dtype


def uniform(random_state, size=None, low=0.0, high=1.0, ndim=None, dtype=None):
    """Return the state after drawing, and samples of the uniform distribution on [low, high).

    Parameters
    ----------
    random_state : variable of RandomStateType
    size : sequence, vector variable or None
        The shape of the samples; that of the arguments together, if None.
    low, high : scalar or tensor
    ndim : int, optional
        The length of `size`, where `size` does not tell.
    dtype : str, optional
        That of the arguments, and at least as precise as floatX, if not given.
    """
    low, high = pt.as_tensor_variable(low), pt.as_tensor_variable(high)
    dtype = _float_dtype(dtype, low, high)
    ndim, size, pattern = _infer_ndim_bcast(ndim, size, low, high)
    return RandomFunction("uniform", TensorType(dtype, pattern))(random_state, size, low, high)


def normal(random_state, size=None, avg=0.0, std=1.0, ndim=None, dtype=None):
    """Return the state after drawing, and samples of the normal distribution.

    `avg` is its mean, `std` its standard deviation; the rest is as for `uniform`.
    """
    avg, std = pt.as_tensor_variable(avg), pt.as_tensor_variable(std)
    dtype = _float_dtype(dtype, avg, std)
    ndim, size, pattern = _infer_ndim_bcast(ndim, size, avg, std)
    return RandomFunction("normal", TensorType(dtype, pattern))(random_state, size, avg, std)


def _new_name(p, prob):
    """Return the probability of success, which once was called `prob`."""
    if prob is None:
        return p
    print(
        "DEPRECATION WARNING: the parameter prob to the binomal fct have been renamed to p to "
        "have the same name as numpy.",
        file=sys.stderr,
    )
    return prob


def binomial(random_state, size=None, n=1, p=0.5, ndim=None, dtype="int64", prob=None):
    """Return the state after drawing, and how many of `n` trials succeed.

    `p` is the probability of success; the rest is as for `uniform`.
    """
    n, p = pt.as_tensor_variable(n), pt.as_tensor_variable(_new_name(p, prob))
    ndim, size, _ = _infer_ndim_bcast(ndim, size, n, p)
    outtype = TensorType(dtype, (False,) * ndim)
    return RandomFunction("binomial", outtype)(random_state, size, n, p)


def random_integers_helper(random_state, low, high, size):
    """Draw integers between `low` and `high`, both included."""
    ndim = max(low.ndim, high.ndim)
    if size is not None and ndim > len(size):
        raise ValueError(
            f"low.ndim ({low.ndim}) and high.ndim ({high.ndim}) should not be larger than "
            f"len(size) ({len(size)})"
        )
    low, high = np.broadcast_arrays(low, high) if size is None else (low, high)
    return random_state.randint(low=low, high=high + 1, size=size)


def random_integers(random_state, size=None, low=0, high=1, ndim=None, dtype="int64"):
    """Return the state after drawing, and integers between `low` and `high`, both included.

    The rest is as for `uniform`.
    """
    low, high = pt.as_tensor_variable(low), pt.as_tensor_variable(high)
    ndim, size, pattern = _infer_ndim_bcast(ndim, size, low, high)
    op = RandomFunction(random_integers_helper, TensorType(dtype, pattern))
    return op(random_state, size, low, high)


def choice_helper(random_state, a, replace, p, size):
    """Draw elements of `a`, or integers below it; an empty `p` makes all as probable."""
    if a.ndim > 1:
        raise ValueError(f"a.ndim ({a.ndim}) must be 0 or 1")
    if p.ndim != 1:
        raise ValueError(f"p.ndim ({p.ndim}) must be 1")
    return random_state.choice(a, size, bool(replace), p if p.size else None)


def choice(random_state, size=None, a=2, replace=True, p=None, ndim=None, dtype="int64"):
    """Return the state after drawing, and elements of the vector `a`, or integers below `a`.

    Parameters
    ----------
    random_state : variable of RandomStateType
    size : sequence, vector variable or None
        The shape of the samples; a scalar, if None.
    a : vector or integer scalar
    replace : bool or scalar variable
        Whether an element may be drawn twice.
    p : vector, optional
        The probabilities of the elements.
    ndim : int, optional
        The length of `size`, where `size` does not tell.
    dtype : str
    """
    a = pt.as_tensor_variable(a)
    if isinstance(replace, bool):
        replace = pt.constant(replace, dtype="int8")
    if not isinstance(p, Variable | np.ndarray):
        p = np.array(p or [])
    ndim, size, pattern = _infer_ndim_bcast(ndim, size)
    op = RandomFunction(choice_helper, TensorType(dtype, pattern))
    return op(random_state, size, a, replace, p)


def poisson(random_state, size=None, lam=1.0, ndim=None, dtype="int64"):
    """Return the state after drawing, and samples of the Poisson distribution.

    `lam` is its mean; `size` must be given, or `ndim`; the rest is as for `uniform`.
    """
    lam = pt.as_tensor_variable(lam)
    ndim, size, pattern = _infer_ndim_bcast(ndim, size)
    return RandomFunction("poisson", TensorType(dtype, pattern))(random_state, size, lam)


def permutation_helper(random_state, n, shape):
    """Draw as many permutations of the integers below the scalar `n` as `shape` says."""
    assert n.shape == ()
    shape = shape or ()
    out = np.empty((*shape, int(n)), dtype="int64")
    for index in np.ndindex(*shape):
        out[index] = random_state.permutation(int(n))
    return out


def permutation(random_state, size=None, n=1, ndim=None, dtype="int64"):
    """Return the state after drawing, and permutations of the integers below `n`.

    Each stands along the last axis, and there are as many of them as `size` says: one, if it
    is None.  `ndim` is the length of `size`, where `size` does not tell.
    """
    if size is None or (isinstance(size, tuple) and size == ()):
        if ndim not in (None, 1):
            raise TypeError(
                "You asked for just one permutation but asked for more then 1 dimensions."
            )
        size, pattern = (), ()
    else:
        ndim, size, pattern = _infer_ndim_bcast(ndim, size)
    op = RandomFunction(permutation_helper, TensorType(dtype, (*pattern, False)), ndim_added=1)
    return op(random_state, size, n)


# How far the sum of probabilities may be above one by rounding, and by how much they are then
# scaled; a last probability below the second is scaled, too.
_SUM_ERROR = 1e-5
_SCALE_ERROR = 5e-5


def _as_probabilities(pvals):
    """Return the float64 probabilities that NumPy takes; those of float32 add up to too much."""
    if 1.0 < np.sum(pvals) < 1.0 + _SUM_ERROR or pvals[-1] < _SCALE_ERROR:
        pvals = pvals * (1.0 - _SCALE_ERROR)
    assert np.sum(pvals) <= 1.0, np.sum(pvals)
    return pvals.astype("float64")


def multinomial_helper(random_state, n, pvals, size):
    """Draw from the distributions along the last axis of `pvals`, with `n` trials each."""
    if size is None:
        size = np.broadcast_shapes(n.shape, pvals.shape[:-1])
    if n.ndim > len(size) or pvals.ndim - 1 > len(size):
        raise ValueError(
            f"n.ndim ({n.ndim}) and pvals.ndim-1 ({pvals.ndim - 1}) should not be larger than "
            f"len(size) ({len(size)})",
        )
    n = np.broadcast_to(n, size)
    pvals = np.broadcast_to(pvals, (*size, pvals.shape[-1]))
    assert pvals.min() >= 0
    out = np.empty(pvals.shape, dtype="int64")
    for index in np.ndindex(*size):
        out[index] = random_state.multinomial(n=n[index], pvals=_as_probabilities(pvals[index]))
    return out


def multinomial(random_state, size=None, n=1, pvals=(0.5, 0.5), ndim=None, dtype="int64"):
    """Return the state after drawing, and how often each outcome comes up in `n` trials.

    Parameters
    ----------
    random_state : variable of RandomStateType
    size : sequence, vector variable or None
        The shape of the samples but for the last axis, along which the outcomes stand; that of
        `n` and `pvals` together, if None.  A -1 takes the length from them.
    n : integer scalar or tensor
    pvals : tensor
        The probabilities along the last axis.
    ndim : int, optional
        The length of `size`, where `size` does not tell.
    dtype : str
    """
    n, pvals = pt.as_tensor_variable(n), pt.as_tensor_variable(pvals)
    ndim, size, pattern = _infer_ndim_bcast(ndim, size, n, pvals[..., 0])
    outtype = TensorType(dtype, (*pattern, pvals.type.broadcastable[-1]))
    return RandomFunction(multinomial_helper, outtype, ndim_added=1)(random_state, size, n, pvals)


class RandomStreamsBase:
    """The distributions of random streams; a subclass has ``gen(op, *args, **kwargs)``."""

    def binomial(self, size=None, n=1, p=0.5, ndim=None, dtype="int64", prob=None):
        """Return how many of `n` trials succeed with probability `p`; see `binomial`."""
        return self.gen(binomial, size, n, _new_name(p, prob), ndim=ndim, dtype=dtype)

    def uniform(self, size=None, low=0.0, high=1.0, ndim=None, dtype=None):
        """Return samples of the uniform distribution on [low, high); see `uniform`."""
        return self.gen(uniform, size, low, high, ndim=ndim, dtype=dtype)

    def normal(self, size=None, avg=0.0, std=1.0, ndim=None, dtype=None):
        """Return samples of the normal distribution; see `normal`."""
        return self.gen(normal, size, avg, std, ndim=ndim, dtype=dtype)

    def random_integers(self, size=None, low=0, high=1, ndim=None, dtype="int64"):
        """Return integers between `low` and `high`, both included; see `random_integers`."""
        return self.gen(random_integers, size, low, high, ndim=ndim, dtype=dtype)

    def choice(self, size=None, a=2, replace=True, p=None, ndim=None, dtype="int64"):
        """Return elements of `a`, or integers below it; see `choice`."""
        return self.gen(choice, size, a, replace, p, ndim=ndim, dtype=dtype)

    def poisson(self, size=None, lam=None, ndim=None, dtype="int64"):
        """Return samples of the Poisson distribution; see `poisson`."""
        return self.gen(poisson, size, lam, ndim=ndim, dtype=dtype)

    def permutation(self, size=None, n=1, ndim=None, dtype="int64"):
        """Return permutations of the integers below `n`; see `permutation`."""
        return self.gen(permutation, size, n, ndim=ndim, dtype=dtype)

    def multinomial(self, size=None, n=1, pvals=(0.5, 0.5), ndim=None, dtype="int64"):
        """Return how often each outcome comes up in `n` trials; see `multinomial`."""
        return self.gen(multinomial, size, n, pvals, ndim=ndim, dtype=dtype)

    def shuffle_row_elements(self, input):
        """Return `input` shuffled along its last axis, each row by a permutation of its own.

        The permutations are the result's attribute ``permutation``.
        """
        perm = self.permutation(size=input.shape[:-1], n=input.shape[-1], ndim=input.ndim - 1)
        shuffled = permute_row_elements(input, perm)
        shuffled.permutation = perm
        return shuffled
