"""Theano's ``theano.sparse.basic``."""

import pytensor.sparse.math as pt_math
from pytensor.gradient import grad_not_implemented as grad_not_implemented
from pytensor.sparse.basic import CSC as CSC
from pytensor.sparse.basic import CSM as CSM
from pytensor.sparse.basic import CSR as CSR
from pytensor.sparse.basic import Cast as Cast
from pytensor.sparse.basic import ColScaleCSC as ColScaleCSC
from pytensor.sparse.basic import ConstructSparseFromList as ConstructSparseFromList
from pytensor.sparse.basic import CSMGrad as CSMGrad
from pytensor.sparse.basic import CSMProperties as CSMProperties
from pytensor.sparse.basic import DenseFromSparse as DenseFromSparse
from pytensor.sparse.basic import Diag as Diag
from pytensor.sparse.basic import EnsureSortedIndices as EnsureSortedIndices
from pytensor.sparse.basic import GetItem2d as GetItem2d
from pytensor.sparse.basic import GetItem2Lists as GetItem2Lists
from pytensor.sparse.basic import GetItem2ListsGrad as GetItem2ListsGrad
from pytensor.sparse.basic import GetItemList as GetItemList
from pytensor.sparse.basic import GetItemListGrad as GetItemListGrad
from pytensor.sparse.basic import GetItemScalar as GetItemScalar
from pytensor.sparse.basic import HStack as HStack
from pytensor.sparse.basic import Remove0 as Remove0
from pytensor.sparse.basic import RowScaleCSC as RowScaleCSC
from pytensor.sparse.basic import SparseFromDense as SparseFromDense
from pytensor.sparse.basic import Transpose as Transpose
from pytensor.sparse.basic import VStack as VStack
from pytensor.sparse.basic import _is_dense as _is_dense
from pytensor.sparse.basic import _is_dense_variable as _is_dense_variable
from pytensor.sparse.basic import _is_sparse_variable as _is_sparse_variable
from pytensor.sparse.basic import _mtype_to_str as _mtype_to_str
from pytensor.sparse.basic import _mtypes as _mtypes
from pytensor.sparse.basic import all_dtypes as all_dtypes
from pytensor.sparse.basic import as_sparse as as_sparse
from pytensor.sparse.basic import as_sparse_or_tensor_variable as as_sparse_or_tensor_variable
from pytensor.sparse.basic import as_sparse_variable as as_sparse_variable
from pytensor.sparse.basic import bcast as bcast
from pytensor.sparse.basic import bsr_dmatrix as bsr_dmatrix
from pytensor.sparse.basic import bsr_fmatrix as bsr_fmatrix
from pytensor.sparse.basic import bsr_matrix as bsr_matrix
from pytensor.sparse.basic import cast as cast
from pytensor.sparse.basic import ccast as ccast
from pytensor.sparse.basic import clean as clean
from pytensor.sparse.basic import col_scale as col_scale
from pytensor.sparse.basic import complex_dtypes as complex_dtypes
from pytensor.sparse.basic import construct_sparse_from_list as construct_sparse_from_list
from pytensor.sparse.basic import continuous_dtypes as continuous_dtypes
from pytensor.sparse.basic import csc_dmatrix as csc_dmatrix
from pytensor.sparse.basic import csc_fmatrix as csc_fmatrix
from pytensor.sparse.basic import csc_from_dense as csc_from_dense
from pytensor.sparse.basic import csc_matrix as csc_matrix
from pytensor.sparse.basic import csm_data as csm_data
from pytensor.sparse.basic import csm_grad as csm_grad
from pytensor.sparse.basic import csm_indices as csm_indices
from pytensor.sparse.basic import csm_indptr as csm_indptr
from pytensor.sparse.basic import csm_properties as csm_properties
from pytensor.sparse.basic import csm_shape as csm_shape
from pytensor.sparse.basic import csr_dmatrix as csr_dmatrix
from pytensor.sparse.basic import csr_fmatrix as csr_fmatrix
from pytensor.sparse.basic import csr_from_dense as csr_from_dense
from pytensor.sparse.basic import csr_matrix as csr_matrix
from pytensor.sparse.basic import dcast as dcast
from pytensor.sparse.basic import dense_from_sparse as dense_from_sparse
from pytensor.sparse.basic import diag as diag
from pytensor.sparse.basic import discrete_dtypes as discrete_dtypes
from pytensor.sparse.basic import ensure_sorted_indices as ensure_sorted_indices
from pytensor.sparse.basic import fcast as fcast
from pytensor.sparse.basic import float_dtypes as float_dtypes
from pytensor.sparse.basic import get_item_2d as get_item_2d
from pytensor.sparse.basic import get_item_2lists as get_item_2lists
from pytensor.sparse.basic import get_item_2lists_grad as get_item_2lists_grad
from pytensor.sparse.basic import get_item_list as get_item_list
from pytensor.sparse.basic import get_item_list_grad as get_item_list_grad
from pytensor.sparse.basic import get_item_scalar as get_item_scalar
from pytensor.sparse.basic import hstack as hstack
from pytensor.sparse.basic import icast as icast
from pytensor.sparse.basic import int_dtypes as int_dtypes
from pytensor.sparse.basic import integer_dtypes as integer_dtypes
from pytensor.sparse.basic import lcast as lcast
from pytensor.sparse.basic import matrix as matrix
from pytensor.sparse.basic import remove0 as remove0
from pytensor.sparse.basic import row_scale as row_scale
from pytensor.sparse.basic import sp_ones_like as sp_ones_like
from pytensor.sparse.basic import sp_zeros_like as sp_zeros_like
from pytensor.sparse.basic import sparse_formats as sparse_formats
from pytensor.sparse.basic import square_diagonal as square_diagonal
from pytensor.sparse.basic import transpose as transpose
from pytensor.sparse.basic import uint_dtypes as uint_dtypes
from pytensor.sparse.basic import vstack as vstack
from pytensor.sparse.basic import wcast as wcast
from pytensor.sparse.basic import zcast as zcast
from pytensor.sparse.math import Dot as Dot
from pytensor.sparse.math import SamplingDot as SamplingDot
from pytensor.sparse.math import SpSum as SpSum
from pytensor.sparse.math import StructuredDot as StructuredDot
from pytensor.sparse.math import StructuredDotGradCSC as StructuredDotGradCSC
from pytensor.sparse.math import StructuredDotGradCSR as StructuredDotGradCSR
from pytensor.sparse.math import TrueDot as TrueDot
from pytensor.sparse.math import Usmm as Usmm
from pytensor.sparse.math import _dot as _dot
from pytensor.sparse.math import _structured_dot as _structured_dot
from pytensor.sparse.math import add as add
from pytensor.sparse.math import add_s_d as add_s_d
from pytensor.sparse.math import add_s_s as add_s_s
from pytensor.sparse.math import add_s_s_data as add_s_s_data
from pytensor.sparse.math import arcsin as arcsin
from pytensor.sparse.math import arcsinh as arcsinh
from pytensor.sparse.math import arctan as arctan
from pytensor.sparse.math import arctanh as arctanh
from pytensor.sparse.math import ceil as ceil
from pytensor.sparse.math import deg2rad as deg2rad
from pytensor.sparse.math import dot as dot
from pytensor.sparse.math import eq as eq
from pytensor.sparse.math import equal_s_d as equal_s_d
from pytensor.sparse.math import equal_s_s as equal_s_s
from pytensor.sparse.math import expm1 as expm1
from pytensor.sparse.math import floor as floor
from pytensor.sparse.math import ge as ge
from pytensor.sparse.math import greater_equal_s_d as greater_equal_s_d
from pytensor.sparse.math import greater_equal_s_s as greater_equal_s_s
from pytensor.sparse.math import greater_than_s_d as greater_than_s_d
from pytensor.sparse.math import greater_than_s_s as greater_than_s_s
from pytensor.sparse.math import gt as gt
from pytensor.sparse.math import le as le
from pytensor.sparse.math import less_equal_s_d as less_equal_s_d
from pytensor.sparse.math import less_equal_s_s as less_equal_s_s
from pytensor.sparse.math import less_than_s_d as less_than_s_d
from pytensor.sparse.math import less_than_s_s as less_than_s_s
from pytensor.sparse.math import log1p as log1p
from pytensor.sparse.math import lt as lt
from pytensor.sparse.math import mul as mul
from pytensor.sparse.math import mul_s_d as mul_s_d
from pytensor.sparse.math import mul_s_s as mul_s_s
from pytensor.sparse.math import mul_s_v as mul_s_v
from pytensor.sparse.math import neg as neg
from pytensor.sparse.math import neq as neq
from pytensor.sparse.math import not_equal_s_d as not_equal_s_d
from pytensor.sparse.math import not_equal_s_s as not_equal_s_s
from pytensor.sparse.math import rad2deg as rad2deg
from pytensor.sparse.math import rint as rint
from pytensor.sparse.math import sampling_dot as sampling_dot
from pytensor.sparse.math import sdg_csc as sdg_csc
from pytensor.sparse.math import sdg_csr as sdg_csr
from pytensor.sparse.math import sin as sin
from pytensor.sparse.math import sinh as sinh
from pytensor.sparse.math import sp_sum as sp_sum
from pytensor.sparse.math import sqr as sqr
from pytensor.sparse.math import sqrt as sqrt
from pytensor.sparse.math import structured_add as structured_add
from pytensor.sparse.math import structured_add_s_v as structured_add_s_v
from pytensor.sparse.math import structured_dot as structured_dot
from pytensor.sparse.math import structured_dot_grad as structured_dot_grad
from pytensor.sparse.math import structured_exp as structured_exp
from pytensor.sparse.math import structured_log as structured_log
from pytensor.sparse.math import structured_maximum as structured_maximum
from pytensor.sparse.math import structured_minimum as structured_minimum
from pytensor.sparse.math import structured_pow as structured_pow
from pytensor.sparse.math import structured_sigmoid as structured_sigmoid
from pytensor.sparse.math import sub as sub
from pytensor.sparse.math import tan as tan
from pytensor.sparse.math import tanh as tanh
from pytensor.sparse.math import true_dot as true_dot
from pytensor.sparse.math import trunc as trunc
from pytensor.sparse.math import usmm as usmm
from pytensor.sparse.type import _is_sparse as _is_sparse
from pytensor.sparse.variable import SparseConstant as SparseConstant
from pytensor.sparse.variable import SparseConstantSignature as SparseConstantSignature
from pytensor.sparse.variable import SparseVariable as SparseVariable
from pytensor.sparse.variable import _sparse_py_operators as _sparse_py_operators
from pytensor.sparse.variable import constant as constant

from .type import SparseType as SparseType
from .utils import hash_from_sparse as hash_from_sparse

# PyTensor 3.3 has other names for these classes, and the same instances.
AddSS = type(add_s_s)
AddSD = type(add_s_d)
AddSSData = type(add_s_s_data)
StructuredAddSV = type(structured_add_s_v)
MulSS = type(mul_s_s)
MulSD = type(mul_s_d)
MulSV = type(mul_s_v)
EqualSS = type(equal_s_s)
EqualSD = type(equal_s_d)
NotEqualSS = type(not_equal_s_s)
NotEqualSD = type(not_equal_s_d)
LessThanSS = type(less_than_s_s)
LessThanSD = type(less_than_s_d)
GreaterThanSS = type(greater_than_s_s)
GreaterThanSD = type(greater_than_s_d)
LessEqualSS = type(less_equal_s_s)
LessEqualSD = type(less_equal_s_d)
GreaterEqualSS = type(greater_equal_s_s)
GreaterEqualSD = type(greater_equal_s_d)

structured_monoid = pt_math.structured_elemwise


def sgn(x):
    """Return the sign of each stored element."""
    return pt_math.sign(x)


def conj(x):
    """Return the conjugate of each stored element."""
    return pt_math.conj(x)


class Neg:
    """``Neg()(x)`` is ``-x``."""

    def __new__(cls):
        return neg


class SquareDiagonal:
    """``SquareDiagonal()(diagonal)`` is a sparse matrix with this diagonal."""

    def __new__(cls):
        return square_diagonal
