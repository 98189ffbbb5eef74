"""Exact values of scalar operations.

``RULES`` has one :class:`Rule` for each scalar operation that computes a real number, and
``DECISIONS`` one function for each that compares.  An operation with several steps (``Composite``)
is evaluated step by step.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
from flint import acb, arb, ctx

from theanoguard._exact.balls import (
    INFINITY,
    NEG_INFINITY,
    NONE,
    ONE,
    UNKNOWN,
    ZERO,
    array_of,
    bounded_float,
    is_discrete,
    kind_of,
    maximum,
    minimum,
    to_balls,
)
from theanoguard._pytensor import scalar_classes
from theanoguard.operations.facts import Domain, scalar_facts

CHUNK = 4096  # elements between two looks at the limits


@dataclass(frozen=True)
class Rule:
    """The exact value of a scalar operation.

    Parameters
    ----------
    of_balls : callable
        Takes the operands, which are numbers, and returns a ball that encloses the result.  A
        result that is not finite is looked at again.
    at_edge : callable, optional
        What the result is where `of_balls` is not finite: like it, for operands that are numbers.
    infinities : bool
        Whether `of_balls` takes infinite operands too.
    grows : bool
        Whether a result that is not finite may only be too large.
    weight : int
        The work that one element is, in multiplications.
    """

    of_balls: Callable[..., arb]
    at_edge: Callable[..., arb] | None = None
    infinities: bool = False
    grows: bool = False
    weight: int = 3


def _quotient_edge(x: arb, y: arb) -> arb:
    if not y.is_zero():
        return UNKNOWN
    if x.is_zero():
        return NONE
    return INFINITY if x > 0 else NEG_INFINITY if x < 0 else UNKNOWN


def _power(x: arb, y: arb) -> arb:
    if y == 2:
        return x * x
    if x.is_zero() and y >= 0:
        return ZERO if y > 0 else ONE if y.is_zero() else UNKNOWN
    return x**y


def _power_edge(x: arb, y: arb) -> arb:
    if x.is_zero():
        return INFINITY if y < 0 else UNKNOWN
    return NONE if x < 0 and y.is_exact() and not y.is_integer() else UNKNOWN


def _power_at_infinity(x: arb, y: arb) -> arb:
    """``x**y`` where an operand is infinite: only the size of ``x`` against 1 counts."""
    if y.is_zero() or x == 1:
        return ONE
    if kind_of(y) == "infinite":
        size = abs(x)
        if not (size > 1 or size < 1):
            return ONE if size == 1 else UNKNOWN
        return INFINITY if (size > 1) == (y > 0) else ZERO
    if not (y > 0 or y < 0):
        return UNKNOWN
    odd = y.is_exact() and y.is_integer() and not (y / 2).is_integer()
    if y < 0:
        return ZERO
    return NEG_INFINITY if x < 0 and odd else INFINITY


def _modulus(x: arb, y: arb) -> arb:
    quotient = (x / y).floor()
    whole = quotient.unique_fmpz()
    return NONE if whole is None else x - y * whole


def _whole(ball: arb) -> arb:
    """An integer, if the ball holds one only."""
    if ball.is_exact():
        return ball
    whole = ball.unique_fmpz() if ball.is_finite() and ball.rad() < 0.6 else None
    return UNKNOWN if whole is None else arb(whole)


def _round_even(x: arb) -> arb:
    low = x.floor()
    if x.is_exact() and (x - low) == arb(0.5):
        return low if (low / 2).is_integer() else low + 1
    return _whole((x + arb(0.5)).floor())


def _round_away(x: arb) -> arb:
    rounded = _whole((abs(x) + arb(0.5)).floor())
    return -rounded if x < 0 else rounded


def _trunc(x: arb) -> arb:
    return _whole(x.floor()) if x >= 0 else _whole(x.ceil()) if x < 0 else _around_zero(x)


def _around_zero(x: arb) -> arb:
    return ZERO if abs(x) < 1 else UNKNOWN


def _sign(x: arb) -> arb:
    return ZERO if x.is_zero() else ONE if x > 0 else -ONE if x < 0 else UNKNOWN


def _softplus(x: arb) -> arb:
    return x + (-x).exp().log1p() if x > 0 else x.exp().log1p()


def _polygamma(n: arb, x: arb) -> arb:
    return acb(x).polygamma(acb(n)).real


def _erfcinv(x: arb) -> arb:
    return x.erfcinv() if x <= 1 else (1 - x).erfinv()


def _ndtri_exp(x: arb) -> arb:
    return -arb(2).sqrt() * _erfcinv(2 * x.exp())


def _owens_t(h: arb, a: arb) -> arb:
    half = h * h / 2

    def density(x: acb, _analytic: bool) -> acb:
        square = 1 + x * x
        return (-half * square).exp() / square

    return acb.integral(density, 0, a).real / (2 * arb.pi())


def _arctan2(y: arb, x: arb) -> arb:
    return acb(x, y).arg() if not (x.is_zero() and y.is_zero()) else ZERO


def _beta_inc(a: arb, b: arb, x: arb) -> arb:
    if x.is_zero() or x == 1:
        return x
    if x > 0.5:  # the series is slow near 1
        return 1 - (1 - x).beta_lower(b, a, regularized=1)
    return x.beta_lower(a, b, regularized=1)


def _gamma_p(k: arb, x: arb) -> arb:
    return x.gamma_lower(k, regularized=1) if not x.is_zero() else ZERO


def _gamma_q(k: arb, x: arb) -> arb:
    return x.gamma_upper(k, regularized=1) if not x.is_zero() else ONE


def _inverse(function: Callable[[arb], arb], target: arb, guess: float) -> arb:
    """Return where a monotone function of positive numbers has a value.

    The root is enclosed by a change of sign, which the secant method closes in on.
    """
    x = arb(guess)
    if not (x.is_finite() and x > 0):
        return UNKNOWN
    for _ in range(12):
        step = x * arb(2) ** -(ctx.prec // 3)
        low, high = function(x - step), function(x + step)
        slope = (high - low) / (2 * step)
        new = (x - (function(x) - target) / slope).mid()
        if not new.is_finite() or not new > 0:
            return UNKNOWN
        close = abs(new - x) <= abs(x) * arb(2) ** -(ctx.prec // 2)
        x = new
        if close:
            break
    width = x * arb(2) ** -(ctx.prec // 2)
    one, other = function(x - width) - target, function(x + width) - target
    return arb(x, width) if (one > 0 and other < 0) or (one < 0 and other > 0) else UNKNOWN


def _inverse_of(function: Callable[..., arb], op: Any) -> Callable[..., arb]:
    """The rule for the inverse of a function in its last operand; `op` gives a first guess."""

    def rule(*operands: arb) -> arb:
        *fixed, target = operands
        guess = op.impl(*map(float, operands))
        return _inverse(lambda x: function(*fixed, x), target, float(guess))

    return rule


RULES: dict[type, Rule] = {
    ps.Neg: Rule(operator.neg, infinities=True, weight=1),
    ps.Abs: Rule(abs, infinities=True, weight=1),
    ps.Sub: Rule(operator.sub, infinities=True, weight=1),
    ps.TrueDiv: Rule(operator.truediv, at_edge=_quotient_edge, infinities=True, weight=1),
    ps.Reciprocal: Rule(
        lambda x: 1 / x, at_edge=lambda x: _quotient_edge(ONE, x), infinities=True, weight=1
    ),
    ps.Sqr: Rule(lambda x: x * x, infinities=True, weight=1),
    ps.Sqrt: Rule(arb.sqrt, weight=1),
    ps.Pow: Rule(_power, at_edge=_power_edge, grows=True),
    ps.Exp: Rule(arb.exp, grows=True),
    ps.Exp2: Rule(lambda x: arb(2) ** x, grows=True),
    ps.Expm1: Rule(arb.expm1, grows=True),
    ps.Log: Rule(arb.log),
    ps.Log2: Rule(lambda x: x.log() / arb(2).log()),
    ps.Log10: Rule(lambda x: x.log() / arb.const_log10()),
    ps.Log1p: Rule(arb.log1p),
    ps.Sin: Rule(arb.sin),
    ps.Cos: Rule(arb.cos),
    ps.Tan: Rule(arb.tan),
    ps.ArcSin: Rule(arb.asin),
    ps.ArcCos: Rule(arb.acos),
    ps.ArcTan: Rule(arb.atan, infinities=True),
    ps.ArcTan2: Rule(_arctan2, infinities=True),
    ps.Sinh: Rule(arb.sinh, grows=True),
    ps.Cosh: Rule(arb.cosh, grows=True),
    ps.Tanh: Rule(arb.tanh),
    ps.ArcSinh: Rule(arb.asinh),
    ps.ArcCosh: Rule(arb.acosh),
    ps.ArcTanh: Rule(arb.atanh),
    ps.ScalarMaximum: Rule(maximum, infinities=True, weight=1),
    ps.ScalarMinimum: Rule(minimum, infinities=True, weight=1),
    ps.Clip: Rule(lambda x, low, high: minimum(maximum(x, low), high), infinities=True, weight=2),
    ps.Mod: Rule(_modulus, at_edge=_quotient_edge, weight=3),
    ps.IntDiv: Rule(lambda x, y: _whole((x / y).floor()), at_edge=_quotient_edge, weight=3),
    ps.Sign: Rule(_sign, infinities=True, weight=1),
    ps.Floor: Rule(lambda x: _whole(x.floor()), weight=1),
    ps.Ceil: Rule(lambda x: _whole(x.ceil()), weight=1),
    ps.Trunc: Rule(_trunc, weight=1),
    ps.RoundHalfToEven: Rule(_round_even, weight=1),
    ps.RoundHalfAwayFromZero: Rule(_round_away, weight=1),
    psm.Sigmoid: Rule(lambda x: 1 / (1 + (-x).exp())),
    psm.Softplus: Rule(_softplus, weight=6),
    psm.Log1mexp: Rule(lambda x: (-x.expm1()).log(), weight=6),
    psm.Erf: Rule(arb.erf, weight=10),
    psm.Erfc: Rule(arb.erfc, weight=10),
    psm.Erfcx: Rule(lambda x: (x * x).exp() * x.erfc(), grows=True, weight=15),
    psm.Erfinv: Rule(arb.erfinv, weight=100),
    psm.Erfcinv: Rule(_erfcinv, weight=100),
    psm.Owens_t: Rule(_owens_t, weight=1000),
    psm.Gamma: Rule(arb.gamma, weight=20),
    psm.GammaLn: Rule(lambda x: x.lgamma() if x > 0 else abs(x.gamma()).log(), weight=20),
    psm.Psi: Rule(arb.digamma, weight=20),
    psm.TriGamma: Rule(lambda x: _polygamma(ONE, x), weight=200),
    psm.PolyGamma: Rule(_polygamma, weight=200),
    psm.GammaInc: Rule(_gamma_p, weight=100),
    psm.GammaIncC: Rule(_gamma_q, weight=100),
    psm.GammaIncInv: Rule(_inverse_of(_gamma_p, psm.gammaincinv), weight=1000),
    psm.GammaIncCInv: Rule(_inverse_of(_gamma_q, psm.gammainccinv), weight=1000),
    psm.BetaInc: Rule(_beta_inc, weight=200),
    psm.BetaIncInv: Rule(_inverse_of(_beta_inc, psm.betaincinv), weight=1000),
    psm.Jv: Rule(lambda v, x: x.bessel_j(v), weight=50),
    psm.J0: Rule(lambda x: x.bessel_j(ZERO), weight=50),
    psm.J1: Rule(lambda x: x.bessel_j(ONE), weight=50),
    psm.I0: Rule(lambda x: x.bessel_i(ZERO), grows=True, weight=50),
    psm.I1: Rule(lambda x: x.bessel_i(ONE), grows=True, weight=50),
    psm.Ive: Rule(lambda v, x: x.bessel_i(v) * (-abs(x)).exp(), weight=50),
    psm.Kve: Rule(lambda v, x: x.bessel_k(v) * x.exp(), weight=50),
    psm.Hyp2F1: Rule(lambda a, b, c, z: z.hypgeom_2f1(a, b, c), weight=100),
}
"""By the class of the operation.  ``Add``, ``Mul`` and those that choose are functions below."""

_OF_SOME_RELEASES = {
    "NdtriExp": Rule(_ndtri_exp, weight=100),
    "Deg2Rad": Rule(lambda x: x * arb.pi() / 180, infinities=True),
    "Rad2Deg": Rule(lambda x: x * 180 / arb.pi(), infinities=True),
    "GammaU": Rule(lambda k, x: x.gamma_upper(k), weight=100),
    "GammaL": Rule(lambda k, x: x.gamma_lower(k), weight=100),
}
RULES |= {kind: _OF_SOME_RELEASES[name] for name, kind in scalar_classes(_OF_SOME_RELEASES).items()}

_ADD = Rule(operator.add, infinities=True, weight=1)
_MUL = Rule(operator.mul, infinities=True, weight=1)
SUMMING = {ps.Add: _ADD, ps.Mul: _MUL}  # rules of two operands for operations of any number

STEPS = (
    *(ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero),
    *(ps.Sign, ps.IntDiv),
)
"""Operations whose result is a decision: it jumps where the operand crosses a threshold."""


def of_elements(rule: Rule, op: Any, operands: tuple[arb, ...]) -> arb:
    """Return the exact value of a scalar operation, for operands that may be no numbers."""
    kinds = {kind_of(x) for x in operands}
    if "none" in kinds:
        return NONE
    if "unknown" in kinds:
        return UNKNOWN
    if "infinite" in kinds and not rule.infinities:
        return _at_infinity(op, operands)
    result = rule.of_balls(*operands)
    if result.is_finite():
        return result
    if "infinite" in kinds:
        return result
    domain = scalar_facts(op).domain
    if domain is not None and not domain.nonzero and len(operands) == 1:
        return _outside(domain, op, *operands)
    if rule.at_edge is not None:
        return rule.at_edge(*operands)
    return UNKNOWN if rule.grows else _at_pole(op, operands)


def _at_infinity(op: Any, operands: tuple[arb, ...]) -> arb:
    if isinstance(op, ps.Pow):
        return _power_at_infinity(*operands)
    with np.errstate(all="ignore"):
        limit = float(op.impl(*map(bounded_float, operands)))
    return (
        arb(limit) if limit in (0, 1, -1, np.inf, -np.inf) else NONE if limit != limit else UNKNOWN
    )


def _outside(domain: Domain, op: Any, x: arb) -> arb:
    low, high = domain.ends
    if x < low or x > high:
        return NONE
    return _at_pole(op, (x,)) if x in (low, high) else UNKNOWN


def _at_pole(op: Any, operands: tuple[arb, ...]) -> arb:
    """The value or the limit at operands that are float64, as the float64 function has it."""
    if not all(x.is_exact() and arb(float(x)) == x for x in operands):
        return UNKNOWN
    with np.errstate(all="ignore"):
        limit = float(op.impl(*map(float, operands)))
    return arb(limit) if not np.isfinite(limit) else UNKNOWN


# Decisions


def _less(x: arb, y: arb) -> bool | None:
    return True if x < y else False if x >= y else None


def _at_most(x: arb, y: arb) -> bool | None:
    return True if x <= y else False if x > y else None


def _equal(x: arb, y: arb) -> bool | None:
    if x is y or x == y:
        return True
    return False if x < y or x > y else None


def _unequal(x: arb, y: arb) -> bool | None:
    equal = _equal(x, y)
    return None if equal is None else not equal


COMPARISONS: dict[type, tuple[Callable[[arb, arb], bool | None], Callable[[Any, Any], bool]]] = {
    ps.LT: (_less, operator.lt),
    ps.GT: (lambda x, y: _less(y, x), operator.gt),
    ps.LE: (_at_most, operator.le),
    ps.GE: (lambda x, y: _at_most(y, x), operator.ge),
    ps.EQ: (_equal, operator.eq),
    ps.NEQ: (_unequal, operator.ne),
}
"""For two balls, and for two midpoints, which decide what the balls leave open."""


@dataclass(frozen=True)
class Applied:
    """The result of a scalar operation on arrays."""

    value: np.ndarray
    open: int = 0  # how many decisions the balls left open


def apply_scalar(
    op: Any, arrays: list[np.ndarray], dtypes: list[str], spend: Callable
) -> list[Applied] | None:
    """Return the exact values of a scalar operation, elementwise.

    Return None if there is no rule.

    - `arrays`: balls, integers or booleans.
    - `dtypes`: those of the outputs.
    - `spend`: ``spend(work)`` counts the work, and raises if a limit is reached.
    """
    kind = type(op)
    if isinstance(op, ps.Composite):
        return _composite(op, arrays, spend)
    whole = all(map(is_discrete, arrays))
    discrete = np.dtype(dtypes[0]).kind in "iub"
    if kind in _CHOOSING and not (discrete and kind is ps.Cast):
        return [Applied(_CHOOSING[kind](arrays, dtypes[0]))]
    if whole and discrete:
        return _integers(op, arrays, dtypes)
    if discrete:
        return _decided(op, arrays, dtypes[0], spend)
    balls = [to_balls(a) for a in arrays]
    if kind in SUMMING:
        of_two = SUMMING[kind]
        return [Applied(reduce(lambda x, y: over_arrays(of_two, op, [x, y], spend), balls))]
    rule = RULES.get(kind)
    return None if rule is None else [Applied(over_arrays(rule, op, balls, spend))]


def over_arrays(rule: Rule, op: Any, arrays: list[np.ndarray], spend: Callable) -> np.ndarray:
    """Return the exact values of a scalar operation that has a rule, elementwise."""
    shape = arrays[0].shape
    if not shape and all(not a.shape for a in arrays):
        spend(rule.weight)
        operands: tuple[arb, ...] = tuple(a.item() for a in arrays)
        single = rule.of_balls(*operands)
        if not (single.is_finite() and all(x.is_finite() for x in operands)):
            single = of_elements(rule, op, operands)
        return array_of([single], ())
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    size = int(np.prod(shape))
    lists: list[Any] = []
    for a in arrays:
        if a.size == 1 and size != 1:
            lists.append(repeat(a.ravel()[0], size))
        else:
            lists.append(np.broadcast_to(a, shape).ravel().tolist())
    out: list[arb] = []
    if size <= CHUNK:
        spend(size * rule.weight)
        out = list(map(rule.of_balls, *lists))
    else:
        lists = [list(x) if isinstance(x, repeat) else x for x in lists]
        for start in range(0, size, CHUNK):
            spend(min(CHUNK, size - start) * rule.weight)
            out += map(rule.of_balls, *(x[start : start + CHUNK] for x in lists))
    if not all(map(arb.is_finite, out)) or not all(
        all(map(arb.is_finite, a.ravel().tolist())) for a in arrays
    ):
        columns = [np.broadcast_to(a, shape).ravel().tolist() for a in arrays]
        for i, operands in enumerate(zip(*columns, strict=True)):
            if not (out[i].is_finite() and all(map(arb.is_finite, operands))):
                out[i] = of_elements(rule, op, operands)
    return array_of(out, shape)


def _composite(op: Any, arrays: list[np.ndarray], spend: Callable) -> list[Applied] | None:
    fgraph = op.fgraph
    values = dict(zip(fgraph.inputs, arrays, strict=True))
    left_open = 0
    for node in fgraph.toposort():
        operands = [values[v] if v in values else constant_value(v) for v in node.inputs]
        results = apply_scalar(node.op, operands, [v.type.dtype for v in node.outputs], spend)
        if results is None:
            return None
        left_open += sum(r.open for r in results)
        values.update(zip(node.outputs, (r.value for r in results), strict=True))
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    found = [values[v] if v in values else constant_value(v) for v in fgraph.outputs]
    return [Applied(np.broadcast_to(v, shape), left_open) for v in found]


def constant_value(constant: Any) -> Any:
    """Return the data of a constant; numbers as an array."""
    data = constant.data
    return np.asarray(data) if isinstance(data, np.generic | float | int) else data


def _integers(op: Any, arrays: list[np.ndarray], dtypes: list[str]) -> list[Applied]:
    with np.errstate(all="ignore"):
        results = np.frompyfunc(op.impl, len(arrays), len(dtypes))(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    return [
        Applied(np.asarray(np.asarray(r), dtype=object).astype(dtype))
        for r, dtype in zip(results, dtypes, strict=True)
    ]


def _decided(
    op: Any, arrays: list[np.ndarray], dtype: str, spend: Callable
) -> list[Applied] | None:
    """Integers and booleans that are decided by real numbers."""
    kind = type(op)
    balls = [to_balls(a) for a in arrays]
    shape = np.broadcast_shapes(*(a.shape for a in balls))
    lists = [np.broadcast_to(a, shape).ravel().tolist() for a in balls]
    spend(len(lists[0]))
    if kind in COMPARISONS:
        certain, of_middles = COMPARISONS[kind]
        decided = [_compare(certain, of_middles, kind, x, y) for x, y in zip(*lists, strict=True)]
        values = np.array([d for d, _ in decided], bool).reshape(shape)
        return [Applied(values, sum(is_open for _, is_open in decided))]
    if kind in (ps.IsNan, ps.IsInf):
        name = "none" if kind is ps.IsNan else "infinite"
        return [Applied(np.array([kind_of(x) == name for x in lists[0]], bool).reshape(shape))]
    if kind is ps.Cast and dtype == "bool":
        return [Applied(np.array([not x.is_zero() for x in lists[0]], bool).reshape(shape))]
    rule = RULES.get(ps.Trunc if kind is ps.Cast else kind)
    if rule is None:
        return None
    numbers, left_open = [], 0
    for x in zip(*lists, strict=True):
        result = of_elements(rule, op, x)
        whole = result.unique_fmpz() if result.is_finite() else None
        left_open += whole is None
        numbers.append(int(whole or 0))
    bits = 8 * np.dtype(dtype).itemsize
    wrapped = np.array([n % (1 << bits) for n in numbers], f"uint{bits}").reshape(shape)
    return [Applied(wrapped.astype(dtype), left_open)]


def _compare(
    certain: Callable, of_middles: Callable, kind: type, x: arb, y: arb
) -> tuple[bool, bool]:
    if x.is_nan() or y.is_nan():
        return kind is ps.NEQ, False
    if "unknown" in (kind_of(x), kind_of(y)):
        return False, True
    answer = certain(x, y)
    return (of_middles(x.mid(), y.mid()), True) if answer is None else (answer, False)


# Operations that choose, and change no number


def _like(value: np.ndarray, dtype: str) -> np.ndarray:
    if np.dtype(dtype).kind in "iub":
        return value.astype(dtype) if is_discrete(value) else value
    return to_balls(value)


def _switch(arrays: list[np.ndarray], dtype: str) -> np.ndarray:
    condition, *branches = arrays
    if not is_discrete(condition):
        condition = np.frompyfunc(lambda x: not x.is_zero(), 1, 1)(condition)
    return np.where(np.asarray(condition, bool), *(_like(b, dtype) for b in branches))


def _second(arrays: list[np.ndarray], dtype: str) -> np.ndarray:
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return np.broadcast_to(_like(arrays[1], dtype), shape)


_CHOOSING: dict[type, Callable[[list[np.ndarray], str], np.ndarray]] = {
    ps.Switch: _switch,
    ps.Second: _second,
    ps.Identity: lambda arrays, dtype: _like(arrays[0], dtype),
    ps.Cast: lambda arrays, dtype: _like(arrays[0], dtype),
}
