"""Theano's ``theano.sparse.basic``."""

import pytensor.sparse.math as pt_math
from pytensor.sparse.basic import square_diagonal
from pytensor.sparse.math import (
    add_s_d,
    add_s_s,
    add_s_s_data,
    equal_s_d,
    equal_s_s,
    greater_equal_s_d,
    greater_equal_s_s,
    greater_than_s_d,
    greater_than_s_s,
    less_equal_s_d,
    less_equal_s_s,
    less_than_s_d,
    less_than_s_s,
    mul_s_d,
    mul_s_s,
    mul_s_v,
    neg,
    not_equal_s_d,
    not_equal_s_s,
    structured_add_s_v,
)

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
