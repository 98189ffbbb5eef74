"""Theano's ``theano.scalar.basic``: operations on single numbers."""

import builtins
import math

import numpy as np
import pytensor.scalar.basic as pt_scalar
from pytensor.configdefaults import config as config
from pytensor.gradient import grad_not_implemented
from pytensor.graph.utils import MetaObject
from pytensor.scalar.basic import AND as AND
from pytensor.scalar.basic import EQ as EQ
from pytensor.scalar.basic import GE as GE
from pytensor.scalar.basic import GT as GT
from pytensor.scalar.basic import LE as LE
from pytensor.scalar.basic import LT as LT
from pytensor.scalar.basic import NEQ as NEQ
from pytensor.scalar.basic import OR as OR
from pytensor.scalar.basic import XOR as XOR
from pytensor.scalar.basic import Abs as Abs
from pytensor.scalar.basic import Add as Add
from pytensor.scalar.basic import ArcCos as ArcCos
from pytensor.scalar.basic import ArcCosh as ArcCosh
from pytensor.scalar.basic import ArcSin as ArcSin
from pytensor.scalar.basic import ArcSinh as ArcSinh
from pytensor.scalar.basic import ArcTan as ArcTan
from pytensor.scalar.basic import ArcTan2 as ArcTan2
from pytensor.scalar.basic import ArcTanh as ArcTanh
from pytensor.scalar.basic import BinaryBitOp as BinaryBitOp
from pytensor.scalar.basic import BinaryScalarOp as BinaryScalarOp
from pytensor.scalar.basic import Cast as Cast
from pytensor.scalar.basic import Ceil as Ceil
from pytensor.scalar.basic import Clip as Clip
from pytensor.scalar.basic import Complex as Complex
from pytensor.scalar.basic import ComplexError as ComplexError
from pytensor.scalar.basic import Composite as Composite
from pytensor.scalar.basic import Conj as Conj
from pytensor.scalar.basic import Cos as Cos
from pytensor.scalar.basic import Cosh as Cosh
from pytensor.scalar.basic import Exp as Exp
from pytensor.scalar.basic import Exp2 as Exp2
from pytensor.scalar.basic import Expm1 as Expm1
from pytensor.scalar.basic import FixedLogicalComparison as FixedLogicalComparison
from pytensor.scalar.basic import Floor as Floor
from pytensor.scalar.basic import Identity as Identity
from pytensor.scalar.basic import Imag as Imag
from pytensor.scalar.basic import IntDiv as IntDiv
from pytensor.scalar.basic import IntegerDivisionError as IntegerDivisionError
from pytensor.scalar.basic import Invert as Invert
from pytensor.scalar.basic import IsInf as IsInf
from pytensor.scalar.basic import IsNan as IsNan
from pytensor.scalar.basic import Log as Log
from pytensor.scalar.basic import Log1p as Log1p
from pytensor.scalar.basic import Log2 as Log2
from pytensor.scalar.basic import Log10 as Log10
from pytensor.scalar.basic import LogicalComparison as LogicalComparison
from pytensor.scalar.basic import Maximum as Maximum
from pytensor.scalar.basic import Minimum as Minimum
from pytensor.scalar.basic import Mod as Mod
from pytensor.scalar.basic import Mul as Mul
from pytensor.scalar.basic import Neg as Neg
from pytensor.scalar.basic import NumpyAutocaster as NumpyAutocaster
from pytensor.scalar.basic import Pow as Pow
from pytensor.scalar.basic import Real as Real
from pytensor.scalar.basic import RoundHalfAwayFromZero as RoundHalfAwayFromZero
from pytensor.scalar.basic import RoundHalfToEven as RoundHalfToEven
from pytensor.scalar.basic import ScalarConstant as ScalarConstant
from pytensor.scalar.basic import ScalarOp as ScalarOp
from pytensor.scalar.basic import ScalarVariable as ScalarVariable
from pytensor.scalar.basic import Second as Second
from pytensor.scalar.basic import Sin as Sin
from pytensor.scalar.basic import Sinh as Sinh
from pytensor.scalar.basic import Sqr as Sqr
from pytensor.scalar.basic import Sqrt as Sqrt
from pytensor.scalar.basic import Sub as Sub
from pytensor.scalar.basic import Switch as Switch
from pytensor.scalar.basic import Tan as Tan
from pytensor.scalar.basic import Tanh as Tanh
from pytensor.scalar.basic import TrueDiv as TrueDiv
from pytensor.scalar.basic import Trunc as Trunc
from pytensor.scalar.basic import UnaryBitOp as UnaryBitOp
from pytensor.scalar.basic import UnaryScalarOp as UnaryScalarOp
from pytensor.scalar.basic import _cast_mapping as _cast_mapping
from pytensor.scalar.basic import _scalar_py_operators as _scalar_py_operators
from pytensor.scalar.basic import add as add
from pytensor.scalar.basic import all_types as all_types
from pytensor.scalar.basic import and_ as and_
from pytensor.scalar.basic import arccos as arccos
from pytensor.scalar.basic import arccosh as arccosh
from pytensor.scalar.basic import arcsin as arcsin
from pytensor.scalar.basic import arcsinh as arcsinh
from pytensor.scalar.basic import arctan as arctan
from pytensor.scalar.basic import arctan2 as arctan2
from pytensor.scalar.basic import arctanh as arctanh
from pytensor.scalar.basic import as_scalar as as_scalar
from pytensor.scalar.basic import autocast_float as autocast_float
from pytensor.scalar.basic import autocast_float_as as autocast_float_as
from pytensor.scalar.basic import autocast_int as autocast_int
from pytensor.scalar.basic import bool as bool
from pytensor.scalar.basic import cast as cast
from pytensor.scalar.basic import ceil as ceil
from pytensor.scalar.basic import clip as clip
from pytensor.scalar.basic import complex as complex
from pytensor.scalar.basic import complex64 as complex64
from pytensor.scalar.basic import complex128 as complex128
from pytensor.scalar.basic import complex_types as complex_types
from pytensor.scalar.basic import complexs as complexs
from pytensor.scalar.basic import complexs64 as complexs64
from pytensor.scalar.basic import complexs128 as complexs128
from pytensor.scalar.basic import conj as conj
from pytensor.scalar.basic import constant as constant
from pytensor.scalar.basic import continuous_types as continuous_types
from pytensor.scalar.basic import convert as convert
from pytensor.scalar.basic import convert_to_bool as convert_to_bool
from pytensor.scalar.basic import convert_to_complex64 as convert_to_complex64
from pytensor.scalar.basic import convert_to_complex128 as convert_to_complex128
from pytensor.scalar.basic import convert_to_float16 as convert_to_float16
from pytensor.scalar.basic import convert_to_float32 as convert_to_float32
from pytensor.scalar.basic import convert_to_float64 as convert_to_float64
from pytensor.scalar.basic import convert_to_int8 as convert_to_int8
from pytensor.scalar.basic import convert_to_int16 as convert_to_int16
from pytensor.scalar.basic import convert_to_int32 as convert_to_int32
from pytensor.scalar.basic import convert_to_int64 as convert_to_int64
from pytensor.scalar.basic import convert_to_uint8 as convert_to_uint8
from pytensor.scalar.basic import convert_to_uint16 as convert_to_uint16
from pytensor.scalar.basic import convert_to_uint32 as convert_to_uint32
from pytensor.scalar.basic import convert_to_uint64 as convert_to_uint64
from pytensor.scalar.basic import cos as cos
from pytensor.scalar.basic import cosh as cosh
from pytensor.scalar.basic import discrete_types as discrete_types
from pytensor.scalar.basic import eq as eq
from pytensor.scalar.basic import exp as exp
from pytensor.scalar.basic import exp2 as exp2
from pytensor.scalar.basic import expm1 as expm1
from pytensor.scalar.basic import float16 as float16
from pytensor.scalar.basic import float32 as float32
from pytensor.scalar.basic import float64 as float64
from pytensor.scalar.basic import float_out as float_out
from pytensor.scalar.basic import float_types as float_types
from pytensor.scalar.basic import floats as floats
from pytensor.scalar.basic import floor as floor
from pytensor.scalar.basic import floor_div as floor_div
from pytensor.scalar.basic import ge as ge
from pytensor.scalar.basic import get_scalar_type as get_scalar_type
from pytensor.scalar.basic import gt as gt
from pytensor.scalar.basic import identity as identity
from pytensor.scalar.basic import imag as imag
from pytensor.scalar.basic import int8 as int8
from pytensor.scalar.basic import int16 as int16
from pytensor.scalar.basic import int32 as int32
from pytensor.scalar.basic import int64 as int64
from pytensor.scalar.basic import int_div as int_div
from pytensor.scalar.basic import int_out as int_out
from pytensor.scalar.basic import int_types as int_types
from pytensor.scalar.basic import integer_types as integer_types
from pytensor.scalar.basic import ints as ints
from pytensor.scalar.basic import invert as invert
from pytensor.scalar.basic import isinf as isinf
from pytensor.scalar.basic import isnan as isnan
from pytensor.scalar.basic import le as le
from pytensor.scalar.basic import log as log
from pytensor.scalar.basic import log1p as log1p
from pytensor.scalar.basic import log2 as log2
from pytensor.scalar.basic import log10 as log10
from pytensor.scalar.basic import lt as lt
from pytensor.scalar.basic import maximum as maximum
from pytensor.scalar.basic import minimum as minimum
from pytensor.scalar.basic import mod as mod
from pytensor.scalar.basic import mod_check as mod_check
from pytensor.scalar.basic import mul as mul
from pytensor.scalar.basic import neg as neg
from pytensor.scalar.basic import neq as neq
from pytensor.scalar.basic import or_ as or_
from pytensor.scalar.basic import pow as pow
from pytensor.scalar.basic import real as real
from pytensor.scalar.basic import real_out as real_out
from pytensor.scalar.basic import round_half_away_from_zero as round_half_away_from_zero
from pytensor.scalar.basic import round_half_away_from_zero_ as round_half_away_from_zero_
from pytensor.scalar.basic import round_half_away_from_zero_vec as round_half_away_from_zero_vec
from pytensor.scalar.basic import round_half_away_from_zero_vec32 as round_half_away_from_zero_vec32
from pytensor.scalar.basic import round_half_away_from_zero_vec64 as round_half_away_from_zero_vec64
from pytensor.scalar.basic import round_half_to_even as round_half_to_even
from pytensor.scalar.basic import same_out as same_out
from pytensor.scalar.basic import same_out_float_only as same_out_float_only
from pytensor.scalar.basic import same_out_min8 as same_out_min8
from pytensor.scalar.basic import same_out_nobool as same_out_nobool
from pytensor.scalar.basic import same_out_nocomplex as same_out_nocomplex
from pytensor.scalar.basic import second as second
from pytensor.scalar.basic import sin as sin
from pytensor.scalar.basic import sinh as sinh
from pytensor.scalar.basic import specific_out as specific_out
from pytensor.scalar.basic import sqr as sqr
from pytensor.scalar.basic import sqrt as sqrt
from pytensor.scalar.basic import sub as sub
from pytensor.scalar.basic import switch as switch
from pytensor.scalar.basic import tan as tan
from pytensor.scalar.basic import tanh as tanh
from pytensor.scalar.basic import true_div as true_div
from pytensor.scalar.basic import trunc as trunc
from pytensor.scalar.basic import uint8 as uint8
from pytensor.scalar.basic import uint16 as uint16
from pytensor.scalar.basic import uint32 as uint32
from pytensor.scalar.basic import uint64 as uint64
from pytensor.scalar.basic import uint_types as uint_types
from pytensor.scalar.basic import upcast as upcast
from pytensor.scalar.basic import upcast_out as upcast_out
from pytensor.scalar.basic import upcast_out_min8 as upcast_out_min8
from pytensor.scalar.basic import upcast_out_no_complex as upcast_out_no_complex
from pytensor.scalar.basic import upcast_out_nobool as upcast_out_nobool
from pytensor.scalar.basic import upgrade_to_float as upgrade_to_float
from pytensor.scalar.basic import upgrade_to_float64 as upgrade_to_float64
from pytensor.scalar.basic import upgrade_to_float_no_complex as upgrade_to_float_no_complex
from pytensor.scalar.basic import xor as xor

Scalar = pt_scalar.ScalarType
Sgn = pt_scalar.Sign
Inv = pt_scalar.Reciprocal
abs_ = pt_scalar.abs
sgn = pt_scalar.sign
inv = pt_scalar.reciprocal
builtin_bool = builtins.bool
builtin_complex = builtins.complex
builtin_int = builtins.int
builtin_float = builtins.float


class transfer_type(MetaObject):
    """Output types for a ``ScalarOp``: numbers of inputs whose types the outputs get."""

    __props__ = ("transfer",)

    def __init__(self, *transfer):
        assert all(isinstance(i, int) or i is None for i in transfer)
        self.transfer = transfer

    def __call__(self, *types):
        """Return the types of the outputs; where a number is None, the types' upcast."""
        (upcast_type,) = upcast_out(*types)
        return [upcast_type if i is None else types[i] for i in self.transfer]


def int_or_true_div(x_discrete, y_discrete):
    """Return the division for these operands: that of integers where both are."""
    return int_div if x_discrete and y_discrete else true_div


def div_proxy(x, y):
    """Divide `x` by `y`: `int_div` for integers, `true_div` otherwise."""
    return int_or_true_div(
        as_scalar(x).type in discrete_types, as_scalar(y).type in discrete_types
    )(x, y)


class _Factor(UnaryScalarOp):
    """Multiply by a constant; the results are floats."""

    def __init__(self, output_types_preference=upgrade_to_float_no_complex, name=None):
        super().__init__(output_types_preference, name)

    def impl(self, x):
        """Multiply, at least in single precision."""
        small = str(getattr(x, "dtype", "")) in ("int8", "uint8")
        return np.asarray(x, dtype=np.float32 if small else None) * self.factor

    def pullback(self, inputs, outputs, cotangents):
        """Multiply the cotangent; integers have none."""
        (x,), (cotangent,) = inputs, cotangents
        if outputs[0].type in discrete_types or x.type in discrete_types:
            return [x.zeros_like(dtype=config.floatX)]
        return [cotangent * np.asarray(self.factor, dtype=x.type.dtype)]

    def c_code(self, node, name, inputs, outputs, sub):
        """Multiply."""
        return f"{outputs[0]} = {inputs[0]} * {self.factor!r};"

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1,)


class Deg2Rad(_Factor):
    """Degrees to radians."""

    factor = math.pi / 180.0


class Rad2Deg(_Factor):
    """Radians to degrees."""

    factor = 180.0 / math.pi


deg2rad = Deg2Rad(name="deg2rad")
rad2deg = Rad2Deg(name="rad2deg")


class ComplexFromPolar(BinaryScalarOp):
    """The complex number that has a modulus and an angle; it has no gradient."""

    output_types_preference = staticmethod(Complex.output_types_preference)

    def impl(self, r, theta):
        """Return the number; the modulus may not be negative."""
        if r < 0:
            raise ValueError("polar radius must be non-negative", r)
        return builtins.complex(r * math.cos(theta), r * math.sin(theta))

    def c_code(self, *args, **kwargs):
        """Raise NotImplementedError: there is Python code only."""
        raise NotImplementedError


complex_from_polar = ComplexFromPolar(name="complex_from_polar")


def _float_zero(x):
    """Return a zero of the dtype of `x`; of ``floatX`` for what is no float."""
    return x.zeros_like(dtype=config.floatX if x.type in discrete_types else None)


class InRange(LogicalComparison):
    """Whether a number lies between two others, each of which may belong to the range or not."""

    nin = 3
    __props__ = ("openlow", "openhi")

    def __init__(self, openlow, openhi):
        super().__init__()
        self.bool = False  # the results are int8, as in Theano
        self.openlow = openlow
        self.openhi = openhi

    def impl(self, x, low, hi):
        """Compare."""
        above = x > low if self.openlow else x >= low
        return builtins.bool(above and (x < hi if self.openhi else x <= hi))

    def c_code(self, node, name, inputs, outputs, sub):
        """Compare."""
        x, low, hi = inputs
        above, below = ">" if self.openlow else ">=", "<" if self.openhi else "<="
        return f"{outputs[0]} = {x} {above} {low} && {x} {below} {hi};"

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1, self.openlow, self.openhi)

    def get_grad(self, elem):
        """Return zero, as a float."""
        if elem.type in complex_types:
            raise NotImplementedError(
                "No gradient implemented for complex numbers in class scalar.basic.InRange"
            )
        return _float_zero(elem)

    def pullback(self, inputs, outputs, cotangents):
        """Return zeros: a comparison does not change with its operands."""
        return [self.get_grad(elem) for elem in inputs]


inopenrange = InRange(True, True)
inclosedrange = InRange(False, False)


class Angle(UnaryScalarOp):
    """The angle of a complex number, by NumPy."""

    nfunc_spec = ("angle", 1, 1)

    def impl(self, x):
        """Return the angle."""
        return np.angle(x)

    def c_code(self, *args, **kwargs):
        """Raise NotImplementedError: there is Python code only."""
        raise NotImplementedError

    def pullback(self, inputs, outputs, cotangents):
        """Return zero; there is no gradient by a complex number (Theano's was always zero)."""
        (c,) = inputs
        if c.type in complex_types:
            return [grad_not_implemented(self, 0, c)]
        return [_float_zero(c)]


angle = Angle(specific_out(float64), name="angle")


class unary_out_lookup(MetaObject):
    """Output type of a ``ScalarOp``: what a dict says for the type of the input."""

    def __init__(self, type_table):
        self.tbl = type_table

    def __call__(self, *types):
        """Return the types of the outputs; TypeError for a type that is not in the dict."""
        key = types[0] if len(types) == 1 else types
        if key not in self.tbl:
            raise TypeError(key)
        return self.tbl[key] if isinstance(key, list | tuple) else [self.tbl[key]]

    def __eq__(self, other):
        return type(self) is type(other) and self.tbl == other.tbl

    def __hash__(self):
        return hash(type(self))


def int_out_nocomplex(*types):
    """Output type of a ``ScalarOp``: int64; complex numbers are refused."""
    if any(type in complex_types for type in types):
        raise TypeError("complex argument not supported")
    return (int64,)


def float_out_nocomplex(*types):
    """Output type of a ``ScalarOp``: float64; complex numbers are refused."""
    if any(type in complex_types for type in types):
        raise TypeError("complex argument not supported")
    return (float64,)


def as_common_dtype(*variables):
    """Cast scalars to the dtype that holds them all."""
    dtype = upcast(*(v.dtype for v in variables))
    return tuple(cast(v, dtype) for v in variables)
