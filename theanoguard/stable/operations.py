"""The operations of terms: how PyTensor writes them, their values in floats, their exact values."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
from flint import arb
from scipy import special

from theanoguard._exact.balls import maximum
from theanoguard._exact.scalars import COMPARISONS, RULES


@dataclass(frozen=True)
class Operation:
    """An operation of terms."""

    code: str  # as it is written, with ``{0}`` for the first operand
    floats: Callable[..., Any]  # takes arrays, and returns an array of the same dtype
    exact: Callable[..., Any]  # takes arrays of balls
    level: int = 9  # the precedence of its operator; 9 for a call
    size: int = 2  # how much is added to the size of a formula
    reduces: bool = False  # whether the first operand is the axes of a reduction


def _elementwise(
    code: str, floats: Callable, rule: Any, level: int = 9, size: int = 2
) -> Operation:
    of_balls = RULES[rule].of_balls if isinstance(rule, type) else rule
    arity = 1 + max(n for n in range(3) if f"{{{n}}}" in code)
    return Operation(code, floats, np.frompyfunc(of_balls, arity, 1), level, size)


def _comparison(sign: str, floats: Callable, kind: type) -> Operation:
    certain, of_middles = COMPARISONS[kind]

    def decide(x: arb, y: arb) -> arb:
        known = certain(x, y)
        return arb(of_middles(x.mid(), y.mid()) if known is None else known)

    exact = np.frompyfunc(decide, 2, 1)
    if sign.isidentifier() or "." in sign:  # (for variables, == compares the objects)
        return Operation(f"{sign}({{0}}, {{1}})", floats, exact)
    return Operation(f"{{0}} {sign} {{1}}", floats, exact, level=1, size=2)


_exp, _log = (np.frompyfunc(f, 1, 1) for f in (arb.exp, arb.log))
_largest = np.frompyfunc(maximum, 2, 1)


def _total(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    return np.add.reduce(x, axis=tuple(axes), keepdims=True)


def _mean(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    return _total(axes, x) / _length(axes, x)


def _variance(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    return _mean(axes, (x - _mean(axes, x)) ** 2)


def _length(axes: Sequence[int], x: np.ndarray) -> int:
    return int(np.prod([x.shape[axis] for axis in axes]))


def _product(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    return np.prod(x, axis=tuple(axes), keepdims=True)


def _maximum(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    if x.dtype != object:
        return np.max(x, axis=tuple(axes), keepdims=True)
    for axis in axes:
        x = _largest.reduce(x, axis=axis, keepdims=True)
    return x


def _shifted(axes: Sequence[int], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    top = _maximum(axes, x)
    return top, np.exp(x - top)


def _logsumexp(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    top, terms = _shifted(axes, x)
    return top + np.log(_total(axes, terms))


def _softmax(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    _, terms = _shifted(axes, x)
    return terms / _total(axes, terms)


def _norm(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    _, exponent = np.frexp(_maximum(axes, np.abs(x)))
    return np.ldexp(np.sqrt(_total(axes, np.square(np.ldexp(x, -exponent)))), exponent)


def _reduction(code: str, floats: Callable, exact: Callable, size: int = 2) -> Operation:
    return Operation(code, floats, exact, size=size, reduces=True)


def _logerfc(x: np.ndarray) -> np.ndarray:
    high, low = np.maximum(x, x.dtype.type(0.5)), np.minimum(x, x.dtype.type(0.5))
    return np.where(x > 0.5, np.log(special.erfcx(high)) - high**2, np.log1p(-special.erf(low)))


def _log1mexp(x: np.ndarray) -> np.ndarray:
    return np.where(x > -np.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x))).astype(x.dtype)


def _hypot(x: arb, y: arb) -> arb:
    return (x * x + y * y).sqrt()


def _ratio(function: Callable[[arb], arb]) -> Callable[[arb], arb]:
    """Return f(x) / x, which is 1 at 0."""
    return lambda x: arb(1) if x.is_zero() else function(x) / x


def _float_ratio(function: Callable) -> Callable:
    def found(x: np.ndarray) -> np.ndarray:
        safe = np.where(x == 0, 1, x).astype(x.dtype)
        return np.where(x == 0, 1, function(safe) / safe).astype(x.dtype)

    return found


def _exp_sum(axes: Sequence[int], x: np.ndarray) -> np.ndarray:
    return _total(axes, np.asarray(_exp(x)))


_ive = RULES[psm.Ive].of_balls

OPERATIONS: dict[str, Operation] = {
    "add": _elementwise("{0} + {1}", np.add, operator.add, 5, 1),
    "sub": _elementwise("{0} - {1}", np.subtract, operator.sub, 5, 1),
    "mul": _elementwise("{0} * {1}", np.multiply, operator.mul, 6, 1),
    "div": _elementwise("{0} / {1}", np.divide, operator.truediv, 6, 1),
    "neg": _elementwise("-{0}", np.negative, operator.neg, 7, 1),
    "sqr": _elementwise("{0} ** 2", np.square, ps.Sqr, 8, 1),
    "pow": _elementwise("{0} ** {1}", np.power, ps.Pow, 8, 2),
    "abs": _elementwise("pt.abs({0})", np.abs, abs, size=1),
    "sign": _elementwise("pt.sign({0})", np.sign, ps.Sign, size=1),
    "sqrt": _elementwise("pt.sqrt({0})", np.sqrt, ps.Sqrt, size=1),
    "exp": _elementwise("pt.exp({0})", np.exp, ps.Exp),
    "log": _elementwise("pt.log({0})", np.log, ps.Log),
    "log2": _elementwise("pt.log2({0})", np.log2, ps.Log2),
    "log10": _elementwise("pt.log10({0})", np.log10, ps.Log10),
    "log1p": _elementwise("pt.log1p({0})", np.log1p, ps.Log1p),
    "expm1": _elementwise("pt.expm1({0})", np.expm1, ps.Expm1),
    "sin": _elementwise("pt.sin({0})", np.sin, ps.Sin),
    "cos": _elementwise("pt.cos({0})", np.cos, ps.Cos),
    "tan": _elementwise("pt.tan({0})", np.tan, ps.Tan),
    "arcsin": _elementwise("pt.arcsin({0})", np.arcsin, ps.ArcSin),
    "arccos": _elementwise("pt.arccos({0})", np.arccos, ps.ArcCos),
    "arctan": _elementwise("pt.arctan({0})", np.arctan, ps.ArcTan),
    "arctan2": _elementwise("pt.arctan2({0}, {1})", np.arctan2, ps.ArcTan2),
    "sinh": _elementwise("pt.sinh({0})", np.sinh, ps.Sinh),
    "cosh": _elementwise("pt.cosh({0})", np.cosh, ps.Cosh),
    "tanh": _elementwise("pt.tanh({0})", np.tanh, ps.Tanh),
    "arcsinh": _elementwise("pt.arcsinh({0})", np.arcsinh, ps.ArcSinh),
    "arccosh": _elementwise("pt.arccosh({0})", np.arccosh, ps.ArcCosh),
    "arctanh": _elementwise("pt.arctanh({0})", np.arctanh, ps.ArcTanh),
    "erf": _elementwise("pt.erf({0})", special.erf, psm.Erf),
    "erfc": _elementwise("pt.erfc({0})", special.erfc, psm.Erfc),
    "erfcx": _elementwise("pt.erfcx({0})", special.erfcx, psm.Erfcx),
    "logerfc": _elementwise(
        "theanoguard.stable.log_erfc({0})", _logerfc, lambda x: x.erfc().log(), size=4
    ),
    "exprel": _elementwise("theanoguard.stable.exprel({0})", special.exprel, _ratio(arb.expm1)),
    "log1prel": _elementwise(
        "theanoguard.stable.log1prel({0})", _float_ratio(np.log1p), _ratio(arb.log1p)
    ),
    "sinc": _elementwise("theanoguard.stable.sinc({0})", _float_ratio(np.sin), _ratio(arb.sin)),
    "sigmoid": _elementwise("pt.sigmoid({0})", special.expit, psm.Sigmoid),
    "softplus": _elementwise("pt.softplus({0})", lambda x: np.logaddexp(0, x), psm.Softplus),
    "log1mexp": _elementwise("pt.log1mexp({0})", _log1mexp, psm.Log1mexp),
    "logaddexp": _elementwise(
        "theanoguard.stable.logaddexp({0}, {1})",
        np.logaddexp,
        lambda x, y: (x.exp() + y.exp()).log(),
        size=4,
    ),
    "hypot": _elementwise("theanoguard.stable.hypot({0}, {1})", np.hypot, _hypot, size=4),
    "gamma": _elementwise("pt.gamma({0})", special.gamma, psm.Gamma),
    "gammaln": _elementwise("pt.gammaln({0})", special.gammaln, psm.GammaLn),
    "psi": _elementwise("pt.psi({0})", special.psi, psm.Psi),
    "i0": _elementwise("pt.i0({0})", special.i0, psm.I0),
    "i1": _elementwise("pt.i1({0})", special.i1, psm.I1),
    "i0e": _elementwise("pt.ive(0, {0})", special.i0e, lambda x: _ive(arb(0), x)),
    "i1e": _elementwise("pt.ive(1, {0})", special.i1e, lambda x: _ive(arb(1), x)),
    "maximum": _elementwise("pt.maximum({0}, {1})", np.maximum, maximum),
    "minimum": _elementwise("pt.minimum({0}, {1})", np.minimum, ps.ScalarMinimum),
    "gt": _comparison(">", np.greater, ps.GT),
    "ge": _comparison(">=", np.greater_equal, ps.GE),
    "eq": _comparison("pt.eq", np.equal, ps.EQ),
    "ne": _comparison("pt.neq", np.not_equal, ps.NEQ),
    "lt": _comparison("<", np.less, ps.LT),
    "le": _comparison("<=", np.less_equal, ps.LE),
    "switch": Operation(
        "pt.switch({0}, {1}, {2})",
        lambda c, x, y: np.where(c != 0, x, y),
        np.frompyfunc(lambda c, x, y: y if c.is_zero() else x, 3, 1),
    ),
    "sum": _reduction("pt.sum({1}{axis})", _total, _total),
    "prod": _reduction("pt.prod({1}{axis})", _product, _product),
    "max": _reduction("pt.max({1}{axis})", _maximum, _maximum),
    "min": _reduction(
        "pt.min({1}{axis})",
        lambda i, x: np.min(x, axis=tuple(i), keepdims=True),
        lambda i, x: -_maximum(i, -x),
    ),
    "mean": _reduction("pt.mean({1}{axis})", _mean, _mean),
    "variance": _reduction("pt.var({1}{axis})", _variance, _variance),
    "logsumexp": _reduction(
        "theanoguard.stable.logsumexp({1}{axis})", _logsumexp, lambda i, x: _log(_exp_sum(i, x))
    ),
    "softmax": _reduction(
        "pt.special.softmax({1}{axis})", _softmax, lambda i, x: _exp(x) / _exp_sum(i, x)
    ),
    "log_softmax": _reduction(
        "pt.special.log_softmax({1}{axis})",
        lambda i, x: x - _logsumexp(i, x),
        lambda i, x: x - _log(_exp_sum(i, x)),
    ),
    "norm": _reduction(
        "theanoguard.stable.norm({1}{axis})",
        _norm,
        lambda i, x: np.frompyfunc(arb.sqrt, 1, 1)(_total(i, x * x)),
        size=3,
    ),
    "len": Operation("{axis}", lambda i, x: x, lambda i, x: x, size=5, reduces=True),
}
"""By name.  ``len(i)`` is the number of elements along the axes, which its users evaluate."""

KEEPING = ("softmax", "log_softmax")
"""Operations along axes whose result has the shape of their operand."""
