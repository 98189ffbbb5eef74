"""Theano's ``theano.scalar.basic``: operations on single numbers."""

import builtins
import math

import numpy as np
import pytensor.scalar.basic as pt_scalar
from pytensor.configdefaults import config
from pytensor.gradient import grad_not_implemented
from pytensor.graph.utils import MetaObject
from pytensor.scalar.basic import (
    BinaryScalarOp,
    Complex,
    LogicalComparison,
    UnaryScalarOp,
    as_scalar,
    cast,
    complex_types,
    discrete_types,
    float64,
    int64,
    int_div,
    specific_out,
    true_div,
    upcast,
    upcast_out,
    upgrade_to_float_no_complex,
)

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
