"""Theano's ``theano.tensor.basic``."""

import builtins
import warnings
from functools import partial, wraps

import numpy as np
import pytensor.tensor.basic as pt_basic
import pytensor.tensor.math as pt_math
import pytensor.tensor.type as pt_type
from pytensor.gradient import DisconnectedType as DisconnectedType
from pytensor.gradient import grad_not_implemented as grad_not_implemented
from pytensor.gradient import grad_undefined as grad_undefined
from pytensor.graph.basic import Apply as Apply
from pytensor.graph.basic import Constant as Constant
from pytensor.graph.basic import Variable as Variable
from pytensor.graph.op import Op as Op
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.scalar.basic import int32 as int32
from pytensor.tensor.basic import Alloc as Alloc
from pytensor.tensor.basic import AllocDiag as AllocDiag
from pytensor.tensor.basic import AllocEmpty as AllocEmpty
from pytensor.tensor.basic import ARange as ARange
from pytensor.tensor.basic import Choose as Choose
from pytensor.tensor.basic import ExtractDiag as ExtractDiag
from pytensor.tensor.basic import Eye as Eye
from pytensor.tensor.basic import Nonzero as Nonzero
from pytensor.tensor.basic import NotScalarConstantError as NotScalarConstantError
from pytensor.tensor.basic import PermuteRowElements as PermuteRowElements
from pytensor.tensor.basic import ScalarFromTensor as ScalarFromTensor
from pytensor.tensor.basic import TensorFromScalar as TensorFromScalar
from pytensor.tensor.basic import _arange as _arange
from pytensor.tensor.basic import _as_tensor_variable as _as_tensor_variable
from pytensor.tensor.basic import _cast_mapping as _cast_mapping
from pytensor.tensor.basic import _conversion as _conversion
from pytensor.tensor.basic import _convert_to_complex64 as _convert_to_complex64
from pytensor.tensor.basic import _convert_to_complex128 as _convert_to_complex128
from pytensor.tensor.basic import _convert_to_float16 as _convert_to_float16
from pytensor.tensor.basic import _convert_to_float32 as _convert_to_float32
from pytensor.tensor.basic import _convert_to_float64 as _convert_to_float64
from pytensor.tensor.basic import _convert_to_int8 as _convert_to_int8
from pytensor.tensor.basic import _convert_to_int16 as _convert_to_int16
from pytensor.tensor.basic import _convert_to_int32 as _convert_to_int32
from pytensor.tensor.basic import _convert_to_int64 as _convert_to_int64
from pytensor.tensor.basic import _convert_to_uint8 as _convert_to_uint8
from pytensor.tensor.basic import _convert_to_uint16 as _convert_to_uint16
from pytensor.tensor.basic import _convert_to_uint32 as _convert_to_uint32
from pytensor.tensor.basic import _convert_to_uint64 as _convert_to_uint64
from pytensor.tensor.basic import _nd_grid as _nd_grid
from pytensor.tensor.basic import _nonzero as _nonzero
from pytensor.tensor.basic import alloc as alloc
from pytensor.tensor.basic import arange as arange
from pytensor.tensor.basic import cast as cast
from pytensor.tensor.basic import constant as constant
from pytensor.tensor.basic import diagonal as diagonal
from pytensor.tensor.basic import discrete_dtypes as discrete_dtypes
from pytensor.tensor.basic import eye as eye
from pytensor.tensor.basic import fill as fill
from pytensor.tensor.basic import flatnonzero as flatnonzero
from pytensor.tensor.basic import float_dtypes as float_dtypes
from pytensor.tensor.basic import get_vector_length as get_vector_length
from pytensor.tensor.basic import horizontal_stack as horizontal_stack
from pytensor.tensor.basic import identity_like as identity_like
from pytensor.tensor.basic import int_dtypes as int_dtypes
from pytensor.tensor.basic import integer_dtypes as integer_dtypes
from pytensor.tensor.basic import inverse_permutation as inverse_permutation
from pytensor.tensor.basic import mgrid as mgrid
from pytensor.tensor.basic import nonzero as nonzero
from pytensor.tensor.basic import nonzero_values as nonzero_values
from pytensor.tensor.basic import ogrid as ogrid
from pytensor.tensor.basic import ones as ones
from pytensor.tensor.basic import ones_like as ones_like
from pytensor.tensor.basic import permute_row_elements as permute_row_elements
from pytensor.tensor.basic import register_transfer as register_transfer
from pytensor.tensor.basic import roll as roll
from pytensor.tensor.basic import scalar_from_tensor as scalar_from_tensor
from pytensor.tensor.basic import second as second
from pytensor.tensor.basic import shape_padaxis as shape_padaxis
from pytensor.tensor.basic import shape_padleft as shape_padleft
from pytensor.tensor.basic import shape_padright as shape_padright
from pytensor.tensor.basic import stacklists as stacklists
from pytensor.tensor.basic import swapaxes as swapaxes
from pytensor.tensor.basic import switch as switch
from pytensor.tensor.basic import tensor_copy as tensor_copy
from pytensor.tensor.basic import tensor_from_scalar as tensor_from_scalar
from pytensor.tensor.basic import transfer as transfer
from pytensor.tensor.basic import tri as tri
from pytensor.tensor.basic import tril as tril
from pytensor.tensor.basic import triu as triu
from pytensor.tensor.basic import uint_dtypes as uint_dtypes
from pytensor.tensor.basic import vertical_stack as vertical_stack
from pytensor.tensor.basic import zeros as zeros
from pytensor.tensor.basic import zeros_like as zeros_like
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.exceptions import ShapeError as ShapeError
from pytensor.tensor.math import Argmax as Argmax
from pytensor.tensor.math import _allclose as _allclose
from pytensor.tensor.math import _get_atol_rtol as _get_atol_rtol
from pytensor.tensor.math import add as add
from pytensor.tensor.math import all as all
from pytensor.tensor.math import allclose as allclose
from pytensor.tensor.math import and_ as and_
from pytensor.tensor.math import angle as angle
from pytensor.tensor.math import any as any
from pytensor.tensor.math import arccos as arccos
from pytensor.tensor.math import arccosh as arccosh
from pytensor.tensor.math import arcsin as arcsin
from pytensor.tensor.math import arcsinh as arcsinh
from pytensor.tensor.math import arctan as arctan
from pytensor.tensor.math import arctan2 as arctan2
from pytensor.tensor.math import arctanh as arctanh
from pytensor.tensor.math import bitwise_and as bitwise_and
from pytensor.tensor.math import bitwise_not as bitwise_not
from pytensor.tensor.math import bitwise_or as bitwise_or
from pytensor.tensor.math import bitwise_xor as bitwise_xor
from pytensor.tensor.math import ceil as ceil
from pytensor.tensor.math import ceil_intdiv as ceil_intdiv
from pytensor.tensor.math import clip as clip
from pytensor.tensor.math import complex as complex
from pytensor.tensor.math import complex_dtypes as complex_dtypes
from pytensor.tensor.math import continuous_dtypes as continuous_dtypes
from pytensor.tensor.math import cos as cos
from pytensor.tensor.math import cosh as cosh
from pytensor.tensor.math import cov as cov
from pytensor.tensor.math import divmod as divmod
from pytensor.tensor.math import eq as eq
from pytensor.tensor.math import erf as erf
from pytensor.tensor.math import erfc as erfc
from pytensor.tensor.math import erfcinv as erfcinv
from pytensor.tensor.math import erfcx as erfcx
from pytensor.tensor.math import erfinv as erfinv
from pytensor.tensor.math import exp as exp
from pytensor.tensor.math import exp2 as exp2
from pytensor.tensor.math import expm1 as expm1
from pytensor.tensor.math import float16_atol as float16_atol
from pytensor.tensor.math import float16_rtol as float16_rtol
from pytensor.tensor.math import float32_atol as float32_atol
from pytensor.tensor.math import float32_rtol as float32_rtol
from pytensor.tensor.math import float64_atol as float64_atol
from pytensor.tensor.math import float64_rtol as float64_rtol
from pytensor.tensor.math import floor as floor
from pytensor.tensor.math import floor_div as floor_div
from pytensor.tensor.math import gamma as gamma
from pytensor.tensor.math import gammainc as gammainc
from pytensor.tensor.math import gammaincc as gammaincc
from pytensor.tensor.math import gammal as gammal
from pytensor.tensor.math import gammaln as gammaln
from pytensor.tensor.math import gammau as gammau
from pytensor.tensor.math import ge as ge
from pytensor.tensor.math import gt as gt
from pytensor.tensor.math import i0 as i0
from pytensor.tensor.math import i1 as i1
from pytensor.tensor.math import imag as imag
from pytensor.tensor.math import int_div as int_div
from pytensor.tensor.math import invert as invert
from pytensor.tensor.math import iround as iround
from pytensor.tensor.math import isclose as isclose
from pytensor.tensor.math import isinf as isinf
from pytensor.tensor.math import isinf_ as isinf_
from pytensor.tensor.math import isnan as isnan
from pytensor.tensor.math import isnan_ as isnan_
from pytensor.tensor.math import j0 as j0
from pytensor.tensor.math import j1 as j1
from pytensor.tensor.math import jv as jv
from pytensor.tensor.math import largest as largest
from pytensor.tensor.math import le as le
from pytensor.tensor.math import log as log
from pytensor.tensor.math import log1p as log1p
from pytensor.tensor.math import log2 as log2
from pytensor.tensor.math import log10 as log10
from pytensor.tensor.math import lt as lt
from pytensor.tensor.math import makeKeepDims as makeKeepDims
from pytensor.tensor.math import maximum as maximum
from pytensor.tensor.math import minimum as minimum
from pytensor.tensor.math import mod as mod
from pytensor.tensor.math import mod_check as mod_check
from pytensor.tensor.math import mul as mul
from pytensor.tensor.math import neg as neg
from pytensor.tensor.math import neq as neq
from pytensor.tensor.math import or_ as or_
from pytensor.tensor.math import outer as outer
from pytensor.tensor.math import pow as pow
from pytensor.tensor.math import power as power
from pytensor.tensor.math import prod as prod
from pytensor.tensor.math import psi as psi
from pytensor.tensor.math import ptp as ptp
from pytensor.tensor.math import real as real
from pytensor.tensor.math import round as round
from pytensor.tensor.math import round_half_away_from_zero as round_half_away_from_zero
from pytensor.tensor.math import round_half_to_even as round_half_to_even
from pytensor.tensor.math import sin as sin
from pytensor.tensor.math import sinh as sinh
from pytensor.tensor.math import smallest as smallest
from pytensor.tensor.math import sqr as sqr
from pytensor.tensor.math import sqrt as sqrt
from pytensor.tensor.math import square as square
from pytensor.tensor.math import std as std
from pytensor.tensor.math import sub as sub
from pytensor.tensor.math import sum as sum
from pytensor.tensor.math import tan as tan
from pytensor.tensor.math import tanh as tanh
from pytensor.tensor.math import tensordot as tensordot
from pytensor.tensor.math import tri_gamma as tri_gamma
from pytensor.tensor.math import true_div as true_div
from pytensor.tensor.math import trunc as trunc
from pytensor.tensor.math import var as var
from pytensor.tensor.math import xor as xor
from pytensor.tensor.shape import Reshape as Reshape
from pytensor.tensor.shape import Shape as Shape
from pytensor.tensor.shape import reshape as pt_reshape
from pytensor.tensor.shape import shape as shape
from pytensor.tensor.type import all_dtypes as all_dtypes
from pytensor.tensor.type import bcol as bcol
from pytensor.tensor.type import bmatrix as bmatrix
from pytensor.tensor.type import brow as brow
from pytensor.tensor.type import bscalar as bscalar
from pytensor.tensor.type import btensor3 as btensor3
from pytensor.tensor.type import btensor4 as btensor4
from pytensor.tensor.type import btensor5 as btensor5
from pytensor.tensor.type import btensor6 as btensor6
from pytensor.tensor.type import btensor7 as btensor7
from pytensor.tensor.type import bvector as bvector
from pytensor.tensor.type import ccol as ccol
from pytensor.tensor.type import cmatrix as cmatrix
from pytensor.tensor.type import cols as cols
from pytensor.tensor.type import complex_matrix_types as complex_matrix_types
from pytensor.tensor.type import complex_scalar_types as complex_scalar_types
from pytensor.tensor.type import complex_types as complex_types
from pytensor.tensor.type import complex_vector_types as complex_vector_types
from pytensor.tensor.type import crow as crow
from pytensor.tensor.type import cscalar as cscalar
from pytensor.tensor.type import ctensor3 as ctensor3
from pytensor.tensor.type import ctensor4 as ctensor4
from pytensor.tensor.type import ctensor5 as ctensor5
from pytensor.tensor.type import ctensor6 as ctensor6
from pytensor.tensor.type import ctensor7 as ctensor7
from pytensor.tensor.type import cvector as cvector
from pytensor.tensor.type import dcol as dcol
from pytensor.tensor.type import dcols as dcols
from pytensor.tensor.type import dmatrices as dmatrices
from pytensor.tensor.type import dmatrix as dmatrix
from pytensor.tensor.type import drow as drow
from pytensor.tensor.type import drows as drows
from pytensor.tensor.type import dscalar as dscalar
from pytensor.tensor.type import dscalars as dscalars
from pytensor.tensor.type import dtensor3 as dtensor3
from pytensor.tensor.type import dtensor3s as dtensor3s
from pytensor.tensor.type import dtensor4 as dtensor4
from pytensor.tensor.type import dtensor4s as dtensor4s
from pytensor.tensor.type import dtensor5 as dtensor5
from pytensor.tensor.type import dtensor5s as dtensor5s
from pytensor.tensor.type import dtensor6 as dtensor6
from pytensor.tensor.type import dtensor6s as dtensor6s
from pytensor.tensor.type import dtensor7 as dtensor7
from pytensor.tensor.type import dtensor7s as dtensor7s
from pytensor.tensor.type import dvector as dvector
from pytensor.tensor.type import dvectors as dvectors
from pytensor.tensor.type import fcol as fcol
from pytensor.tensor.type import fcols as fcols
from pytensor.tensor.type import float_matrix_types as float_matrix_types
from pytensor.tensor.type import float_scalar_types as float_scalar_types
from pytensor.tensor.type import float_types as float_types
from pytensor.tensor.type import float_vector_types as float_vector_types
from pytensor.tensor.type import fmatrices as fmatrices
from pytensor.tensor.type import fmatrix as fmatrix
from pytensor.tensor.type import frow as frow
from pytensor.tensor.type import frows as frows
from pytensor.tensor.type import fscalar as fscalar
from pytensor.tensor.type import fscalars as fscalars
from pytensor.tensor.type import ftensor3 as ftensor3
from pytensor.tensor.type import ftensor3s as ftensor3s
from pytensor.tensor.type import ftensor4 as ftensor4
from pytensor.tensor.type import ftensor4s as ftensor4s
from pytensor.tensor.type import ftensor5 as ftensor5
from pytensor.tensor.type import ftensor5s as ftensor5s
from pytensor.tensor.type import ftensor6 as ftensor6
from pytensor.tensor.type import ftensor6s as ftensor6s
from pytensor.tensor.type import ftensor7 as ftensor7
from pytensor.tensor.type import ftensor7s as ftensor7s
from pytensor.tensor.type import fvector as fvector
from pytensor.tensor.type import fvectors as fvectors
from pytensor.tensor.type import icol as icol
from pytensor.tensor.type import icols as icols
from pytensor.tensor.type import imatrices as imatrices
from pytensor.tensor.type import imatrix as imatrix
from pytensor.tensor.type import int_matrix_types as int_matrix_types
from pytensor.tensor.type import int_scalar_types as int_scalar_types
from pytensor.tensor.type import int_types as int_types
from pytensor.tensor.type import int_vector_types as int_vector_types
from pytensor.tensor.type import irow as irow
from pytensor.tensor.type import irows as irows
from pytensor.tensor.type import iscalar as iscalar
from pytensor.tensor.type import iscalars as iscalars
from pytensor.tensor.type import itensor3 as itensor3
from pytensor.tensor.type import itensor3s as itensor3s
from pytensor.tensor.type import itensor4 as itensor4
from pytensor.tensor.type import itensor4s as itensor4s
from pytensor.tensor.type import itensor5 as itensor5
from pytensor.tensor.type import itensor5s as itensor5s
from pytensor.tensor.type import itensor6 as itensor6
from pytensor.tensor.type import itensor6s as itensor6s
from pytensor.tensor.type import itensor7 as itensor7
from pytensor.tensor.type import itensor7s as itensor7s
from pytensor.tensor.type import ivector as ivector
from pytensor.tensor.type import ivectors as ivectors
from pytensor.tensor.type import lcol as lcol
from pytensor.tensor.type import lcols as lcols
from pytensor.tensor.type import lmatrices as lmatrices
from pytensor.tensor.type import lmatrix as lmatrix
from pytensor.tensor.type import lrow as lrow
from pytensor.tensor.type import lrows as lrows
from pytensor.tensor.type import lscalar as lscalar
from pytensor.tensor.type import lscalars as lscalars
from pytensor.tensor.type import ltensor3 as ltensor3
from pytensor.tensor.type import ltensor3s as ltensor3s
from pytensor.tensor.type import ltensor4 as ltensor4
from pytensor.tensor.type import ltensor4s as ltensor4s
from pytensor.tensor.type import ltensor5 as ltensor5
from pytensor.tensor.type import ltensor5s as ltensor5s
from pytensor.tensor.type import ltensor6 as ltensor6
from pytensor.tensor.type import ltensor6s as ltensor6s
from pytensor.tensor.type import ltensor7 as ltensor7
from pytensor.tensor.type import ltensor7s as ltensor7s
from pytensor.tensor.type import lvector as lvector
from pytensor.tensor.type import lvectors as lvectors
from pytensor.tensor.type import matrices as matrices
from pytensor.tensor.type import rows as rows
from pytensor.tensor.type import scalars as scalars
from pytensor.tensor.type import tensor3s as tensor3s
from pytensor.tensor.type import tensor4s as tensor4s
from pytensor.tensor.type import tensor5s as tensor5s
from pytensor.tensor.type import tensor6s as tensor6s
from pytensor.tensor.type import tensor7s as tensor7s
from pytensor.tensor.type import vectors as vectors
from pytensor.tensor.type import wcol as wcol
from pytensor.tensor.type import wmatrix as wmatrix
from pytensor.tensor.type import wrow as wrow
from pytensor.tensor.type import wscalar as wscalar
from pytensor.tensor.type import wtensor3 as wtensor3
from pytensor.tensor.type import wtensor4 as wtensor4
from pytensor.tensor.type import wtensor5 as wtensor5
from pytensor.tensor.type import wtensor6 as wtensor6
from pytensor.tensor.type import wtensor7 as wtensor7
from pytensor.tensor.type import wvector as wvector
from pytensor.tensor.type import zcol as zcol
from pytensor.tensor.type import zmatrix as zmatrix
from pytensor.tensor.type import zrow as zrow
from pytensor.tensor.type import zscalar as zscalar
from pytensor.tensor.type import ztensor3 as ztensor3
from pytensor.tensor.type import ztensor4 as ztensor4
from pytensor.tensor.type import ztensor5 as ztensor5
from pytensor.tensor.type import ztensor6 as ztensor6
from pytensor.tensor.type import ztensor7 as ztensor7
from pytensor.tensor.type import zvector as zvector

from theanoguard._pytensor import ifelse

from .. import scalar as scalar_module
from .._rebroadcast import Rebroadcast as Rebroadcast
from .._rebroadcast import rebroadcast
from .._standin import StandIn
from ..configdefaults import config as config
from . import _one_node
from . import elemwise as elemwise
from ._one_node import dot as dot
from .elemwise import CAReduce as CAReduce
from .elemwise import DimShuffle as DimShuffle
from .elemwise import Elemwise as Elemwise
from .elemwise import Sum as Sum
from .type import TensorType as TensorType
from .type import values_eq_approx_always_true as values_eq_approx_always_true
from .type_other import NoneConst as NoneConst
from .var import AsTensorError as AsTensorError
from .var import TensorConstant as TensorConstant
from .var import TensorConstantSignature as TensorConstantSignature
from .var import TensorVariable as TensorVariable
from .var import _tensor_py_operators as _tensor_py_operators

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
    return tuple(check_and_normalize_axes(x, axis)) or None


def max_and_argmax(a, axis=None, keepdims=False):
    """Return the maximum over `axis` and where it is; ``axis=()`` is every axis."""
    return [max(a, axis, keepdims), argmax(a, axis, keepdims)]


def max(x, axis=None, keepdims=False):
    """Return the maximum over `axis`; ``axis=()`` is every axis."""
    return pt_math.max(x, _reduced_axes(x, axis), keepdims)


def argmax(x, axis=None, keepdims=False):
    """Return where the maximum over `axis` is; ``axis=()`` is every axis."""
    return pt_math.argmax(x, _reduced_axes(x, axis), keepdims)


def min(x, axis=None, keepdims=False):
    """Return the minimum over `axis`; ``axis=()`` is every axis."""
    return pt_math.min(x, _reduced_axes(x, axis), keepdims)


def argmin(x, axis=None, keepdims=False):
    """Return where the minimum over `axis` is; ``axis=()`` is every axis."""
    return pt_math.argmin(x, _reduced_axes(x, axis), keepdims)


def mean(input, axis=None, dtype=None, op=False, keepdims=False, acc_dtype=None):
    """Return the mean over `axis`; `op` asks for a reduction to float64 by one Op."""
    if op:
        if dtype not in (None, "float64") or acc_dtype not in (None, "float64"):
            raise NotImplementedError(
                "The Mean op does not support the dtype or acc_dtype argument. It always uses "
                "float64. If you want to specify dtype, call tensor.mean(..., op=False)."
            )
        dtype = acc_dtype = "float64"
    return pt_math.mean(input, axis, dtype, keepdims, acc_dtype)


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
        raise TypeError("The 'tensors' argument must be either a tuple or a list.", tensor_list)
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
    return pt_reshape(x, newshape, ndim=ndim)


def flatten(x, ndim=None, outdim=None):
    """Keep the first ``ndim - 1`` dimensions and join the others; `outdim` is the older name."""
    if ndim is not None and outdim is not None:
        raise ValueError("You should only specify ndim")
    ndim = ndim if ndim is not None else outdim
    return pt_basic.flatten(x, 1 if ndim is None else ndim)


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
