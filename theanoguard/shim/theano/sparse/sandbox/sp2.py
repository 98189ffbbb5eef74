"""Theano's ``theano.sparse.sandbox.sp2``: sparse matrices of random numbers.

The numbers come from NumPy's global generator, so that a second run gives others.
"""

import numpy as np
import scipy.sparse
from pytensor.gradient import disconnected_type, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from ...tensor.basic import as_tensor_variable, discrete_dtypes, float_dtypes
from ..basic import Remove0, SparseType, as_sparse_variable, remove0

EliminateZeros = Remove0
eliminate_zeros = remove0


class Poisson(Op):
    """Draw from Poisson distributions with the elements of a sparse matrix as means."""

    __props__ = ()

    def make_node(self, x):
        """The result has the type of the means."""
        x = as_sparse_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        """Draw for each stored element."""
        result = inputs[0].copy()
        result.data = np.random.poisson(result.data).astype(result.dtype)
        result.eliminate_zeros()
        outputs[0][0] = result

    def pullback(self, inputs, outputs, cotangents):
        """There is no gradient."""
        return [grad_undefined(self, 0, inputs[0])]

    def infer_shape(self, *args):
        """The shape is that of the means."""
        return args[-1]


poisson = Poisson()


class Binomial(Op):
    """Draw a sparse matrix of successes in `n` experiments of probability `p`."""

    __props__ = ("format", "dtype")

    def __init__(self, format, dtype):
        self.format = format
        self.dtype = dtype

    def make_node(self, n, p, shape):
        """Take a number of experiments, a probability and a shape."""
        n, p, shape = (as_tensor_variable(v) for v in (n, p, shape))
        assert n.dtype in discrete_dtypes
        assert p.dtype in float_dtypes
        assert shape.dtype in discrete_dtypes
        return Apply(self, [n, p, shape], [SparseType(self.format, self.dtype)()])

    def perform(self, node, inputs, outputs):
        """Draw all elements and keep those that are not zero."""
        n, p, shape = inputs
        make = getattr(scipy.sparse, f"{self.format}_matrix")
        outputs[0][0] = make(np.random.binomial(n, p, size=tuple(shape)), dtype=self.dtype)

    def connection_pattern(self, node):
        """The numbers do not depend on the shape."""
        return [[True], [True], [False]]

    def pullback(self, inputs, outputs, cotangents):
        """There is no gradient."""
        n, p, _ = inputs
        return [grad_undefined(self, 0, n), grad_undefined(self, 1, p), disconnected_type()]

    def infer_shape(self, *args):
        """The shape is the third input."""
        shape = args[-2].inputs[2]
        return [(shape[0], shape[1])]


csr_fbinomial = Binomial("csr", "float32")
csc_fbinomial = Binomial("csc", "float32")
csr_dbinomial = Binomial("csr", "float64")
csc_dbinomial = Binomial("csc", "float64")


class Multinomial(Op):
    """Draw for each row of a CSR matrix of probabilities how often each outcome occurs."""

    __props__ = ()

    def make_node(self, n, p):
        """Take the number of experiments, one for all rows or one for each."""
        p = as_sparse_variable(p)
        return Apply(self, [as_tensor_variable(n), p], [p.type()])

    def perform(self, node, inputs, outputs):
        """Draw row by row."""
        n, p = inputs
        if p.format != "csr":
            raise NotImplementedError("Multinomial needs probabilities in the format csr.")
        if n.ndim == 1 and n.shape[0] != p.shape[0]:
            raise ValueError(
                "The number of element of n must be the same as the number of row of p."
            )
        result = p.copy()
        for row, experiments in enumerate(np.broadcast_to(n, p.shape[:1])):
            stored = slice(p.indptr[row], p.indptr[row + 1])
            result.data[stored] = np.random.multinomial(experiments, p.data[stored])
        outputs[0][0] = result

    def pullback(self, inputs, outputs, cotangents):
        """There is no gradient."""
        return [grad_undefined(self, i, x) for i, x in enumerate(inputs)]

    def infer_shape(self, *args):
        """The shape is that of the probabilities."""
        return [args[-1][1]]


multinomial = Multinomial()
