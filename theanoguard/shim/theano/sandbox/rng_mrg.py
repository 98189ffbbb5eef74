"""MRG31k3p, the random numbers of ``theano.sandbox``: the same as Theano 1.0.5's, bit for bit.

The generator is P. L'Ecuyer and R. Touzin's ("Fast combined multiple recursive generators with
multipliers of the form a = +/- 2^d +/- 2^e", Winter Simulation Conference, 2000).  Its state is
two triples of residues, the first modulo ``M1``, the second modulo ``M2``.  Many streams are
drawn from at once: one row of the state for each, 2**72 draws apart (P. L'Ecuyer, R. Simard, E.
Chen and W. Kelton, "An object-oriented random-number package with many long streams and
substreams", Operations Research 50(6), 2002); sample ``i`` comes from row ``i % n_streams``.
"""

import warnings

import numpy as np
import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.gradient import disconnected_type, grad_undefined, undefined_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.c.op import COp
from pytensor.scalar.basic import upcast
from pytensor.tensor.type import TensorType

from ..compile.sharedvalue import shared
from . import multinomial

M1 = np.asarray(np.int32(2147483647))  # 2^31 - 1
M2 = np.asarray(np.int32(2147462579))  # 2^31 - 21069
MASK12 = np.int32(511)  # 2^9 - 1
MASK13 = np.int32(16777215)  # 2^24 - 1
MASK2 = np.int32(65535)  # 2^16 - 1
MULT2 = np.int32(21069)
NORM = 4.656612873077392578125e-10  # 2^-31

# One step of each component, as a matrix over (x[t-1], x[t-2], x[t-3]).
_STEP1 = np.array([[0, 4194304, 129], [1, 0, 0], [0, 1, 0]], dtype="int64")
_STEP2 = np.array([[32768, 0, 32769], [1, 0, 0], [0, 1, 0]], dtype="int64")

# More streams than this were of no use to the graphics cards of 2010; kept, since the number of
# streams decides which numbers come out.
_MAX_STREAMS = 60 * 256


def _dot_modulo(a, b, modulus):
    """Return ``a @ b`` modulo a number below 2**31, without overflow in int64."""
    return np.sum(a[:, :, None] * b[None, :, :] % modulus, axis=1) % modulus


def _doubled(step, modulus, times):
    """Return ``step`` to the power ``2**times``."""
    for _ in range(times):
        step = _dot_modulo(step, step, modulus)
    return step


A1p72, A2p72 = _doubled(_STEP1, int(M1), 72), _doubled(_STEP2, int(M2), 72)
A1p134, A2p134 = _doubled(_STEP1, int(M1), 134), _doubled(_STEP2, int(M2), 134)


def matVecModM(A, s, m):
    """Return ``A @ s`` modulo `m`, as int32."""
    return np.int32(np.sum(A * s % m, axis=1) % m)


def multMatVect(v, A, m1, B, m2):
    """Return the first half of `v` times `A` modulo `m1`, and the second times `B` modulo `m2`."""
    half = len(A[0])
    return np.concatenate([matVecModM(A, v[:half], m1), matVecModM(B, v[half:], m2)])


def ff_2p72(rstate):
    """Return the state 2**72 draws later, the next stream's."""
    return multMatVect(rstate, A1p72, M1, A2p72, M2)


def ff_2p134(rstate):
    """Return the state 2**134 draws later, where the next variable's streams begin."""
    return multMatVect(rstate, A1p134, M1, A2p134, M2)


class DotModulo(Op):
    """Two products of a matrix and a vector, each modulo a number of its own, joined."""

    __props__ = ()

    def make_node(self, A, s, m, A2, s2, m2):
        return Apply(self, [A, s, m, A2, s2, m2], [s.type()])

    def perform(self, node, inputs, outputs):
        A, s, m, A2, s2, m2 = inputs
        outputs[0][0] = np.concatenate([matVecModM(A, s, m), matVecModM(A2, s2, m2)])


def _folded(y, modulus):
    """Subtract `modulus` from the elements of `y` (uint32) that are not below it."""
    return np.minimum(y, y - modulus)  # below it the difference wraps around


def _next_integers(state):
    """Advance each column of `state` (6 rows, uint32) and return its draws, int32."""
    x11, x12, x13, x21, x22, x23 = state
    m1, m2 = np.uint32(M1), np.uint32(M2)
    y1 = ((x12 & 511) << 22) + (x12 >> 9) + ((x13 & 16777215) << 7) + (x13 >> 24)
    y1 = _folded(_folded(y1, m1) + x13, m1)
    y2, y3 = (_folded(((x & 65535) << 15) + 21069 * (x >> 16), m2) for x in (x21, x23))
    y3 = _folded(_folded(y3 + x23, m2) + y2, m2)
    state[:] = np.stack([y1, x11, x12, y3, x21, x22])
    return np.where(y1 <= y3, y1 - y3 + m1, y1 - y3).view(np.int32)


# How an integer of [0, 2^31) becomes a sample, by the dtype of the sample.
_TO_SAMPLE = {
    "float16": lambda drawn: ((drawn & 0x7FFF) + 1) * np.float64(np.float16(3.0458e-05)),
    "float32": lambda drawn: drawn.astype("float32") * np.float32(4.6566126e-10),
    "float64": lambda drawn: drawn * NORM,
}

_C_DRAW = """
/* y - m where y is not below m, else y: the difference wraps around. */
static inline npy_uint32 mrg31k3p_fold(npy_uint32 y, npy_uint32 m)
{
    const npy_uint32 folded = y - m;
    return folded < y ? folded : y;
}

/* The state of LANES streams at a time is held by component, so that the compiler can
   work on several streams at once. */
template <typename real>
static void mrg31k3p_draw(npy_int32* rows, npy_intp n_streams, real* sample, npy_intp n, real norm)
{
    enum { LANES = 64 };
    const npy_uint32 M1 = 2147483647u, M2 = 2147462579u;
    npy_uint32 s[6][LANES];

    for (npy_intp first = 0; first < n_streams && first < n; first += LANES) {
        const int lanes = n_streams - first < LANES ? (int)(n_streams - first) : LANES;
        for (int j = 0; j < lanes; ++j)
            for (int k = 0; k < 6; ++k)
                s[k][j] = (npy_uint32)rows[(first + j) * 6 + k];

        for (npy_intp start = first; start < n; start += n_streams) {
            const int width = n - start < lanes ? (int)(n - start) : lanes;
            real* __restrict__ out = sample + start;
            for (int j = 0; j < width; ++j) {
                const npy_uint32 x12 = s[1][j], x13 = s[2][j], x21 = s[3][j], x23 = s[5][j];
                npy_uint32 y1 = ((x12 & 511u) << 22) + (x12 >> 9)
                              + ((x13 & 16777215u) << 7) + (x13 >> 24);
                y1 = mrg31k3p_fold(y1, M1) + x13;
                y1 = mrg31k3p_fold(y1, M1);
                npy_uint32 y2 = ((x21 & 65535u) << 15) + 21069u * (x21 >> 16);
                y2 = mrg31k3p_fold(y2, M2);
                npy_uint32 y3 = ((x23 & 65535u) << 15) + 21069u * (x23 >> 16);
                y3 = mrg31k3p_fold(y3, M2) + x23;
                y3 = mrg31k3p_fold(y3, M2) + y2;
                y3 = mrg31k3p_fold(y3, M2);
                s[2][j] = x12;
                s[1][j] = s[0][j];
                s[0][j] = y1;
                s[5][j] = s[4][j];
                s[4][j] = x21;
                s[3][j] = y3;
                const npy_uint32 wrapped = y1 <= y3 ? M1 : 0u;
                out[j] = (real)(npy_int32)(y1 - y3 + wrapped) * norm;
            }
        }

        for (int j = 0; j < lanes; ++j)
            for (int k = 0; k < 6; ++k)
                rows[(first + j) * 6 + k] = (npy_int32)s[k][j];
    }
}
"""

_C_NORM = {"float32": "4.6566126e-10f", "float64": "4.656612873077392578125e-10"}


class mrg_uniform_base(COp):
    """Samples of the uniform distribution on (0, 1), and the state after drawing them.

    Parameters
    ----------
    output_type : TensorType
        The dtype (float16, float32 or float64) and the number of dimensions of the samples.
    inplace : bool
        Whether the new state is written over the old one.
    """

    __props__ = ("output_type", "inplace")

    def __init__(self, output_type, inplace=False):
        self.output_type = output_type
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def __str__(self):
        how = "inplace" if self.inplace else "no_inplace"
        return f"{type(self).__name__}{{{self.output_type},{how}}}"

    def pullback(self, inputs, outputs, cotangents):
        why = "No gradient defined through random sampling op"
        return [grad_undefined(self, i, x, why) for i, x in enumerate(inputs)]

    def pushforward(self, inputs, outputs, tangents):
        return [disconnected_type() for _ in outputs]


class mrg_uniform(mrg_uniform_base):
    """The same, on the processor."""

    @classmethod
    def new(cls, rstate, ndim, dtype, size):
        """Return the state after drawing and the samples.

        Parameters
        ----------
        rstate : variable or array
            The state of the streams, int32, shape (n_streams, 6).
        ndim : int or None
            The length of `size`, where `size` does not tell.
        dtype : {"float16", "float32", "float64"}
        size : variable or tuple of int
            The shape of the samples.
        """
        size = _as_shape(size)
        if ndim is None:
            ndim = pt.get_vector_length(size)
        return cls(TensorType(dtype, shape=(None,) * ndim))(rstate, size)

    def make_node(self, rstate, size):
        rstate, size = pt.as_tensor_variable(rstate), _as_shape(size)
        known = [
            pt.get_scalar_constant_value(size[i], raise_not_constant=False)
            for i in range(self.output_type.ndim)
        ]
        ones = [1 if not isinstance(length, Variable) and length == 1 else None for length in known]
        sample = self.output_type.clone(shape=ones)()
        return Apply(self, [rstate, size], [rstate.type(), sample])

    def infer_shape(self, *args):
        """Return the shape of the state and the size."""
        *_, node, shapes = args  # the graph comes first in PyTensor 3.0
        size = node.inputs[1]
        return [shapes[0], [size[i] for i in range(node.outputs[1].ndim)]]

    def perform(self, node, inputs, outputs):
        rstate, size = inputs
        n = int(np.prod(size, dtype="float64")) if len(size) else 1
        if n > M1:
            raise ValueError("rng_mrg does not support more than (2**31 - 1) samples")
        n_streams = len(rstate)
        state = np.array(rstate.T, dtype=np.uint32, order="C")
        drawn = np.empty(n, dtype=np.int32)
        for start in range(0, n, n_streams):
            width = min(n_streams, n - start)
            drawn[start : start + width] = _next_integers(state[:, :width])
        if not self.inplace:
            rstate = np.empty_like(rstate)
        rstate[:] = state.T
        sample = _TO_SAMPLE[self.output_type.dtype](drawn)
        outputs[0][0] = rstate
        outputs[1][0] = sample.astype(self.output_type.dtype, copy=False).reshape(size)

    def c_support_code(self, **kwargs):
        return _C_DRAW

    def c_code(self, node, name, inputs, outputs, sub):
        dtype = self.output_type.dtype
        if dtype not in _C_NORM:
            raise NotImplementedError(f"no C code for samples of {dtype}")
        rstate, size = inputs
        new_rstate, sample = outputs
        ndim = self.output_type.ndim
        copied = "0" if self.inplace else "NPY_ARRAY_ENSURECOPY"
        fail = sub["fail"]
        return f"""
        npy_intp dims[{ndim + 1}];
        double n_elements = 1;
        bool fits = {sample} != NULL && PyArray_IS_C_CONTIGUOUS({sample});
        if (PyArray_DIM({size}, 0) != {ndim}) {{
            PyErr_Format(PyExc_ValueError, "size must have length {ndim} (not %ld)",
                         (long)PyArray_DIM({size}, 0));
            {fail}
        }}
        for (int i = 0; i < {ndim}; ++i) {{
            dims[i] = (npy_intp)*(dtype_{size}*)PyArray_GETPTR1({size}, i);
            n_elements *= (double)dims[i];
            fits = fits && PyArray_DIM({sample}, i) == dims[i];
        }}
        if (n_elements > {int(M1)}) {{
            PyErr_SetString(PyExc_ValueError,
                            "rng_mrg does not support more than (2**31 - 1) samples");
            {fail}
        }}
        if (PyArray_DIM({rstate}, 0) < 1 || PyArray_DIM({rstate}, 1) != 6) {{
            PyErr_SetString(PyExc_ValueError, "rstate must have 6 columns, and a row or more");
            {fail}
        }}
        if (!fits) {{
            Py_XDECREF({sample});
            {sample} = (PyArrayObject*)PyArray_SimpleNew({ndim}, dims, NPY_{dtype.upper()});
            if ({sample} == NULL) {{ {fail} }}
        }}
        Py_XDECREF({new_rstate});
        {new_rstate} = (PyArrayObject*)PyArray_FromAny(
            (PyObject*){rstate}, NULL, 0, 0, NPY_ARRAY_CARRAY | {copied}, NULL);
        if ({new_rstate} == NULL) {{ {fail} }}
        mrg31k3p_draw<npy_{dtype}>(
            (npy_int32*)PyArray_DATA({new_rstate}), PyArray_DIM({new_rstate}, 0),
            (npy_{dtype}*)PyArray_DATA({sample}), PyArray_SIZE({sample}), {_C_NORM[dtype]});
        """

    def c_code_cache_version(self):
        return (2,)


def _is_integer(value):
    return isinstance(value, np.integer | int)


def _as_shape(size):
    """Return `size` as a vector of integers; an empty one would else be of floats."""
    if isinstance(size, tuple | list) and all(map(_is_integer, size)):
        return pt.constant(np.array(size, dtype="int64"), ndim=1)
    return pt.as_tensor_variable(size, ndim=1)


def guess_n_streams(size, warn=False):
    """Return how many streams to draw samples of this size from.

    Parameters
    ----------
    size : tuple of int, or anything else
    warn : bool
        Whether to warn where `size` is no sequence of plain integers, so that it does not tell.
    """
    if isinstance(size, tuple | list) and all(isinstance(length, int) for length in size):
        n = int(np.prod(size, dtype=object))
        return min(n // 6 if n > 6 else n, _MAX_STREAMS)
    if warn:
        warnings.warn(
            f"MRG_RandomStreams can't tell the number of streams from size ({size}); "
            f"{_MAX_STREAMS} are taken.",
            stacklevel=3,
        )
    return _MAX_STREAMS


def _checked_seed(seed):
    """Return the state that a seed stands for; raise what 1.0.5 raises for a wrong one."""
    if isinstance(seed, int):
        if seed == 0:
            raise ValueError("seed should not be 0", seed)
        if seed >= M2:
            raise ValueError(f"seed should be less than {M2}", seed)
        seed = [seed] * 6
    elif len(seed) != 6:
        raise TypeError("seed should be 1 integer or 6 integers")
    for which, part, modulus in (("first", seed[:3], M1), ("last", seed[3:], M2)):
        if not any(part):
            raise ValueError(f"The {which} 3 values of seed should not be all 0", seed)
        if any(value >= modulus for value in part):
            raise ValueError(f"The {which} 3 values of seed should be less than {modulus}", seed)
    return np.asarray(seed, dtype="int32")


class MRG_RandomStreams:
    """Random variables that MRG31k3p draws.

    The states are shared variables with a default update, so that each call of a compiled
    function draws anew.

    Parameters
    ----------
    seed : int or list of 6 int
        An integer stands for six of it.  The first three must be below 2147483647 and not all
        0; the last three below 2147462579 and not all 0.

    Attributes
    ----------
    rstate : array of int32, shape (6,)
        The state with which the streams of the next variable begin.
    state_updates : list
        For each variable its state, the state after drawing, its size and number of streams.

    Examples
    --------
    >>> import theanoguard
    >>> theano = theanoguard.shim.install_theano()
    >>> from theano.sandbox.rng_mrg import MRG_RandomStreams
    >>> draw = theano.function([], MRG_RandomStreams(seed=12345).uniform((2,)))
    >>> draw().round(4).tolist()
    [0.7353, 0.2586]
    >>> theanoguard.shim.uninstall_theano()
    """

    def __init__(self, seed=12345):
        self.state_updates = []
        self.default_instance_seed = seed
        self.set_rstate(seed)

    def updates(self):
        """Return a copy of the list of state updates."""
        return list(self.state_updates)

    def set_rstate(self, seed):
        """Let the streams of the next variable begin at this seed."""
        self.rstate = _checked_seed(seed)

    def seed(self, seed=None):
        """Set the states of all variables to what a new object with this seed gives them."""
        self.set_rstate(self.default_instance_seed if seed is None else seed)
        for old_r, new_r, size, nstreams in self.state_updates:
            if nstreams is None:
                nstreams = self.n_streams(size)
            dtype = new_r.owner.outputs[1].dtype
            old_r.set_value(self.get_substream_rstates(nstreams, dtype), borrow=True)

    def inc_rstate(self):
        """Move to where the next variable's streams begin, 2**134 draws on."""
        self.rstate = ff_2p134(self.rstate)

    def get_substream_rstates(self, n_streams, dtype, inc_rstate=True):
        """Return the states of `n_streams` streams, and move on to the next variable's.

        Parameters
        ----------
        n_streams : int
        dtype : str
            Of the samples; the states do not depend on it.
        inc_rstate : bool
            Whether to move on.

        Returns
        -------
        array of int32, shape (n_streams, 6)
        """
        assert isinstance(dtype, str)
        assert 0 < n_streams < 2**72
        states = np.empty((n_streams, 6), dtype="int32")
        for columns, jump, modulus in ((slice(3), A1p72, M1), (slice(3, 6), A2p72, M2)):
            # The known states, all moved on by as many streams as there are, give as many more.
            known = self.rstate[columns].astype("int64").reshape(3, 1)
            while known.shape[1] < n_streams:
                known = np.concatenate([known, _dot_modulo(jump, known, modulus)], axis=1)
                jump = _dot_modulo(jump, jump, modulus)
            states[:, columns] = known[:, :n_streams].T
        if inc_rstate:
            self.inc_rstate()
        return states

    def n_streams(self, size):
        """Return how many streams to draw samples of this size from."""
        return guess_n_streams(size)

    def pretty_return(self, node_rstate, new_rstate, sample, size, nstreams):
        """Tie the samples, the state and its update together; return the samples."""
        sample.rstate = node_rstate
        sample.update = (node_rstate, new_rstate)
        self.state_updates.append((node_rstate, new_rstate, size, nstreams))
        node_rstate.default_update = new_rstate
        return sample

    def uniform(self, size, low=0.0, high=1.0, ndim=None, dtype=None, nstreams=None, **kwargs):
        """Return samples of the uniform distribution between `low` and `high`, both excluded.

        Parameters
        ----------
        size : tuple of int or of scalar variables, or vector variable
            The shape of the samples.
        low, high : scalar or tensor that broadcasts to `size`
        ndim : int, optional
            The length of `size`, where `size` does not tell.
        dtype : str, optional
            That of `low` and `high`, and at least as precise as floatX, if not given.
        nstreams : int, optional
        **kwargs
            ``target="cpu"``, which changes nothing.
        """
        low, high = pt.as_tensor_variable(low), pt.as_tensor_variable(high)
        if dtype is None:
            dtype = upcast(config.floatX, low.dtype, high.dtype)
        low, high = (undefined_grad(pt.cast(x, dtype)) for x in (low, high))
        _check_uniform_size(size)
        states = self.get_substream_rstates(
            self.n_streams(size) if nstreams is None else nstreams, dtype
        )
        target = {"target": kwargs.pop("target")} if "target" in kwargs else {}
        if kwargs:
            raise TypeError(f"uniform() got unexpected keyword arguments {list(kwargs)}")
        node_rstate = shared(states, **target)
        node_rstate.tag.is_rng = True
        new_rstate, sample = mrg_uniform.new(node_rstate, ndim, dtype, size)
        sample = self.pretty_return(node_rstate, new_rstate, sample, size, nstreams)
        r = sample * (high - low) + low
        if sample.type.broadcastable != r.type.broadcastable:
            raise NotImplementedError(
                "Increase the size to match the broadcasting pattern of `low` and `high` arguments"
            )
        return r

    def binomial(self, size=None, n=1, p=0.5, ndim=None, dtype="int64", nstreams=None, **kwargs):
        """Return samples that are 1 with probability `p`, else 0 (`n` must be 1).

        `ndim` is not looked at; the other arguments are as for `uniform`.
        """
        if n != 1:
            raise NotImplementedError("MRG_RandomStreams.binomial with n > 1")
        p = undefined_grad(pt.as_tensor_variable(p))
        return pt.cast(self.uniform(size=size, nstreams=nstreams, **kwargs) < p, dtype)

    def multinomial(
        self, size=None, n=1, pvals=None, ndim=None, dtype="int64", nstreams=None, **kwargs
    ):
        """Return how often each outcome came up in `n` draws, for each row of `pvals`.

        Parameters
        ----------
        size, ndim : None
        n : int or integer scalar variable
        pvals : matrix
            The probabilities of the outcomes, one distribution to a row; they are not checked.
        dtype : str
            Of the counts, which have the shape of `pvals`.
        nstreams : int, optional
        **kwargs
            As for `uniform`.
        """
        if pvals is None:
            raise TypeError("You have to specify pvals")
        pvals = undefined_grad(pt.as_tensor_variable(pvals))
        if size is not None:
            _refuse_empty(size)
            raise ValueError(
                "Provided a size argument to MRG_RandomStreams.multinomial, "
                "which does not use the size argument."
            )
        if ndim is not None:
            raise ValueError(
                "Provided an ndim argument to MRG_RandomStreams.multinomial, "
                "which does not use the ndim argument."
            )
        if pvals.ndim != 2:
            raise NotImplementedError(
                "MRG_RandomStreams.multinomial only implemented for pvals.ndim = 2"
            )
        unis = self.uniform(size=pvals[:, 0].shape * n, ndim=1, nstreams=nstreams, **kwargs)
        return multinomial.MultinomialFromUniform(dtype)(pvals, unis, pt.as_tensor_variable(n))

    def choice(
        self,
        size=1,
        a=None,
        replace=True,
        p=None,
        ndim=None,
        dtype="int64",
        nstreams=None,
        **kwargs,
    ):
        """Return `size` different outcomes for each row of `p`.

        Parameters
        ----------
        size : int or integer scalar variable
            At most the number of columns of `p`.
        a, ndim : None
        replace : False
        p : matrix
            The probabilities of the outcomes, one distribution to a row; they are not checked.
        dtype : str
            Of the outcomes, which stand in a matrix with a column for each draw.
        nstreams : int, optional
        **kwargs
            As for `uniform`.
        """
        if replace:
            raise NotImplementedError(
                "MRG_RandomStreams.choice only works without replacement for now."
            )
        if a is not None:
            raise TypeError(
                "For now, a has to be None in MRG_RandomStreams.choice. Sampled values are "
                "between 0 and p.shape[1]-1"
            )
        if p is None:
            raise TypeError("For now, p has to be specified in MRG_RandomStreams.choice.")
        p = undefined_grad(pt.as_tensor_variable(p))
        if ndim is not None:
            raise ValueError("ndim argument to MRG_RandomStreams.choice is not used.")
        if p.ndim != 2:
            raise NotImplementedError("MRG_RandomStreams.choice is only implemented for p.ndim = 2")
        unis = self.uniform(size=p[:, 0].shape * size, ndim=1, nstreams=nstreams, **kwargs)
        return multinomial.ChoiceFromUniform(odtype=dtype)(p, unis, pt.as_tensor_variable(size))

    def multinomial_wo_replacement(
        self, size=None, n=1, pvals=None, ndim=None, dtype="int64", nstreams=None, **kwargs
    ):
        """Return ``choice(size=n, p=pvals, replace=False)``, under its former name."""
        warnings.warn(
            "MRG_RandomStreams.multinomial_wo_replacement() is deprecated and will be removed "
            "in the next release of Theano. Please use MRG_RandomStreams.choice() instead.",
            stacklevel=2,
        )
        assert size is None
        return self.choice(
            size=n, replace=False, p=pvals, dtype=dtype, nstreams=nstreams, ndim=ndim, **kwargs
        )

    def normal(
        self,
        size,
        avg=0.0,
        std=1.0,
        ndim=None,
        dtype=None,
        nstreams=None,
        truncate=False,
        **kwargs,
    ):
        """Return samples of the normal distribution, by Box and Muller's transform.

        Parameters
        ----------
        size : int, sequence of int or of scalar variables, scalar or vector variable
            The shape of the samples.
        avg, std : scalar or tensor that broadcasts to `size`
        ndim : int, optional
            The length of `size`, where `size` does not tell.
        dtype : str, optional
            That of `avg` and `std`, and at least as precise as floatX, if not given.
        nstreams : int, optional
        truncate : bool
            Whether to draw anew what is further than two standard deviations from the mean;
            the standard deviation of the samples is then below `std`.
        **kwargs
            As for `uniform`.
        """
        size = _check_size(size)
        avg, std = (undefined_grad(pt.as_tensor_variable(x)) for x in (avg, std))
        if dtype is None:
            dtype = upcast(config.floatX, avg.dtype, std.dtype)
        avg, std = pt.cast(avg, dtype), pt.cast(std, dtype)

        def draw(n, low):
            return self.uniform(
                (n,), low=low, high=1.0, ndim=1, dtype=dtype, nstreams=nstreams, **kwargs
            )

        n = pt.prod(size, dtype="int64")
        n_even = n + n % 2
        uniform = draw(n_even, 0.0)
        radius = pt.sqrt(-2.0 * pt.log(uniform[: n_even // 2]))
        angle = np.array(2.0 * np.pi, dtype=dtype) * uniform[n_even // 2 :]
        cos, sin = pt.cos(angle), pt.sin(angle)
        z0, z1 = radius * cos, radius * sin
        if truncate:
            out0, out1 = ((z < -2.0) | (z > 2.0) for z in (z0, z1))
            kept0, kept1 = z0[pt.nonzero(~out0)], z1[pt.nonzero(~out1)]
            out0, out1 = pt.nonzero(out0)[0], pt.nonzero(out1)[0]
            # Above exp(-2) the radius stays below two; the angles are kept.
            again = draw(out0.size + out1.size, pt.constant(1.0 / np.e**2, dtype=dtype))
            radius = pt.sqrt(-2.0 * pt.log(again))
            samples = pt.join(
                0,
                kept0,
                radius[: out0.size] * cos[out0],
                kept1,
                radius[out0.size :] * sin[out1],
            )
        else:
            samples = pt.join(0, z0, z1)
        return pt.reshape(samples[:n], size, ndim=ndim) * std + avg

    def truncated_normal(
        self, size, avg=0.0, std=1.0, ndim=None, dtype=None, nstreams=None, **kwargs
    ):
        """Return ``normal(..., truncate=True)`` whose standard deviation is `std`."""
        # That of the standard normal distribution cut off at -2 and 2.
        std = std / pt.constant(0.87962566103423978)
        return self.normal(
            size=size,
            avg=avg,
            std=std,
            truncate=True,
            ndim=ndim,
            dtype=dtype,
            nstreams=nstreams,
            **kwargs,
        )


def _refuse_empty(size):
    if any(_is_integer(length) and length <= 0 for length in size):
        raise ValueError("The specified size contains a dimension with value <= 0", size)


def _check_uniform_size(size):
    if isinstance(size, tuple):
        assert all(_is_integer(length) or isinstance(length, Variable) for length in size), (
            "size must be a tuple of int or a Theano variable"
        )
        _refuse_empty(size)
    elif not (isinstance(size, Variable) and size.ndim == 1):
        raise TypeError(
            "size must be a tuple of int or a Theano Variable with 1 dimension, "
            f"got {size} of type {type(size)}"
        )


def _check_size(size):
    """Return the size of a normal variable as a vector; raise what 1.0.5 raises."""
    if isinstance(size, Variable):
        if size.ndim > 1:
            raise ValueError("Theano variable must have 1 dimension to be a valid size.", size)
        return size if size.ndim == 1 else pt.stack([size])
    if _is_integer(size):
        return _as_shape([size])
    if not isinstance(size, tuple | list):
        raise ValueError("Size must be a int, tuple, list or Theano variable.", size)
    for length in size:
        if isinstance(length, Variable):
            if length.ndim != 0:
                raise ValueError("Non-scalar Theano variable in size", size, length)
        elif not _is_integer(length):
            raise ValueError(
                "Only Theano variables and integers are allowed in a size-tuple.", size, length
            )
        elif length <= 0:
            raise ValueError("Non-positive dimensions not allowed in size.", size, length)
    return _as_shape(size)


MRG_RandomStream = MRG_RandomStreams  # Theano-PyMC's name
