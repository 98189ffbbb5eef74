"""Theano's ``theano.sparse.sandbox.sp2``: sparse matrices of random numbers.

The numbers come from NumPy's global generator, so that a second run gives others.
"""

import numpy as np
import scipy.sparse
from pytensor.gradient import disconnected_type, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from ...tensor.basic import as_tensor_variable, discrete_dtypes, float_dtypes
from ..basic import CSC as CSC
from ..basic import CSM as CSM
from ..basic import CSR as CSR
from ..basic import AddSSData as AddSSData
from ..basic import Cast as Cast
from ..basic import CSMProperties as CSMProperties
from ..basic import HStack as HStack
from ..basic import MulSV as MulSV
from ..basic import Remove0 as Remove0
from ..basic import SamplingDot as SamplingDot
from ..basic import SparseType as SparseType
from ..basic import StructuredAddSV as StructuredAddSV
from ..basic import VStack as VStack
from ..basic import add_s_s as add_s_s
from ..basic import add_s_s_data as add_s_s_data
from ..basic import as_sparse_variable as as_sparse_variable
from ..basic import bcast as bcast
from ..basic import ccast as ccast
from ..basic import csm_data as csm_data
from ..basic import csm_indices as csm_indices
from ..basic import csm_indptr as csm_indptr
from ..basic import csm_properties as csm_properties
from ..basic import csm_shape as csm_shape
from ..basic import dcast as dcast
from ..basic import dot as dot
from ..basic import fcast as fcast
from ..basic import hstack as hstack
from ..basic import icast as icast
from ..basic import lcast as lcast
from ..basic import mul_s_d as mul_s_d
from ..basic import mul_s_s as mul_s_s
from ..basic import mul_s_v as mul_s_v
from ..basic import neg as neg
from ..basic import remove0 as remove0
from ..basic import sampling_dot as sampling_dot
from ..basic import structured_add as structured_add
from ..basic import structured_add_s_v as structured_add_s_v
from ..basic import structured_exp as structured_exp
from ..basic import structured_log as structured_log
from ..basic import structured_maximum as structured_maximum
from ..basic import structured_minimum as structured_minimum
from ..basic import structured_monoid as structured_monoid
from ..basic import structured_pow as structured_pow
from ..basic import structured_sigmoid as structured_sigmoid
from ..basic import vstack as vstack
from ..basic import wcast as wcast
from ..basic import zcast as zcast
from ..opt import MulSDCSC as MulSDCSC
from ..opt import MulSDCSR as MulSDCSR
from ..opt import MulSVCSR as MulSVCSR
from ..opt import SamplingDotCSR as SamplingDotCSR
from ..opt import StructuredAddSVCSR as StructuredAddSVCSR
from ..opt import local_mul_s_d as local_mul_s_d
from ..opt import local_mul_s_v as local_mul_s_v
from ..opt import local_sampling_dot_csr as local_sampling_dot_csr
from ..opt import local_structured_add_s_v as local_structured_add_s_v
from ..opt import mul_s_d_csc as mul_s_d_csc
from ..opt import mul_s_d_csr as mul_s_d_csr
from ..opt import mul_s_v_csr as mul_s_v_csr
from ..opt import sampling_dot_csr as sampling_dot_csr
from ..opt import structured_add_s_v_csr as structured_add_s_v_csr

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
