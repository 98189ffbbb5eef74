"""The identities between formulas, one a line, and the terms that they are written in.

A line is ``left -> right``: the two sides are the same function where the conditions after ``if``
hold.  ``=`` instead of ``->`` allows both directions.  The letters ``a`` to ``d`` stand for any
term, and ``i`` for the axes of a reduction, which keeps its axes with length 1.  ``fixed b`` says
that b is the same along i.  A line in brackets is the source of the lines after it.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

from theanoguard._arguments import checked, refuse
from theanoguard._shown import brief
from theanoguard.stable.operations import OPERATIONS

Term: TypeAlias = Any
"""A name (str), a number (Fraction), or a tuple of the name of an operation and its operands."""


_COMPARED = {
    **{">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le},
    "!=": operator.ne,
}


@brief
@dataclass(frozen=True)
class Identity:
    """Two formulas of the same function.

    Parameters
    ----------
    left, right : str
        The formulas.
    where : str
        Conditions, separated by commas, such as ``"a > 0, fixed b"``.
    source : str
        Where it is stated or derived.
    both : bool
        Whether the right side may be replaced by the left side, too.
    """

    left: str
    right: str
    where: str = ""
    source: str = ""
    both: bool = False

    def __str__(self) -> str:
        text = f"{self.left} = {self.right}"
        return f"{text} if {self.where}" if self.where else text

    @property
    def terms(self) -> tuple[Term, Term]:
        """Both sides as terms."""
        return parsed(self.left), parsed(self.right)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The letters that are the same along the axes of the reduction."""
        parts = [part.split() for part in self.where.split(",")]
        return tuple(words[1] for words in parts if words[:1] == ["fixed"])

    @cached_property
    def limits(self) -> tuple[tuple[str, Callable[[Any, Any], Any], Fraction], ...]:
        """The conditions on one letter: it, a comparison, and a number."""
        found = re.findall(r"(?:^|, )([a-d]) (\S+) (-?\d+)(?=,|$)", self.where)
        return tuple((letter, _COMPARED[sign], Fraction(number)) for letter, sign, number in found)

    @property
    def domain(self) -> str:
        """The conditions on the values, as an expression of NumPy's arrays."""
        parts = [part.strip() for part in self.where.split(",")]
        return " & ".join(f"({p})" for p in parts if p and not p.startswith("fixed")) or "True"


FOLDED: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "sqr": lambda x: x * x,
}
"""Operations whose results for fractions are fractions."""

TABLE = """
[commutative ring]
a + b -> b + a
a * b -> b * a
(a + b) + c = a + (b + c)
(a * b) * c = a * (b * c)
a - b = a + -b
-(-a) -> a
-(a - b) -> b - a
-(a * b) = -a * b
(-a) * (-b) -> a * b
-(a / b) = -a / b
-(a + b) -> -a - b
a - (-b) -> a + b
(a + b) - a -> b
(a - b) - a -> -b
(a + b) - (a + c) -> b - c
(a + c) - (b + c) -> a - b
a - (b + c) = (a - b) - c
a - (b - c) -> (a - b) + c
(a - b) + b -> a
a - a -> 0
a + 0 -> a
a - 0 -> a
a * 1 -> a
a / 1 -> a
a * 0 -> 0
0 - a = -a
a * -1 -> -a
a * (b + c) = a * b + a * c
a * (b - c) = a * b - a * c
a * b - a = a * (b - 1)
a * b + a = a * (b + 1)
a - a * b -> a * (1 - b)
a + a -> 2 * a
a * a = a**2
(a * b)**2 = a**2 * b**2
(-a)**2 -> a**2
a**2 - b**2 = (a - b) * (a + b)
1 - a**2 = (1 - a) * (1 + a)
a**2 - 1 -> (a - 1) * (a + 1)
(a + b)**2 -> a**2 + 2 * (a * b) + b**2
(a - b)**2 -> a**2 - 2 * (a * b) + b**2
(a - b)**2 -> (b - a)**2
a - 1 -> -(1 - a)
a**3 - b**3 -> (a - b) * (a**2 + a * b + b**2)

[values]
exp(0) -> 1
expm1(0) -> 0
log(1) -> 0
log1p(0) -> 0
sqrt(0) -> 0
sqrt(1) -> 1
sqrt(4) -> 2
sin(0) -> 0
cos(0) -> 1
tanh(0) -> 0

[fractions]
0 / a -> 0                                          if a != 0
a / a -> 1                                          if a != 0
(a * b) / b -> a                                    if b != 0
(a * c) / (b * c) -> a / b                          if b != 0, c != 0
(a / c) / (b / c) -> a / b                          if b != 0, c != 0
(a / b)**2 = a**2 / b**2                            if b != 0
(a + b) / c = a / c + b / c                         if c != 0
(a - b) / c = a / c - b / c                         if c != 0
(a / b) / c = a / (b * c)                           if b != 0, c != 0
a / (b / c) = a * (c / b)                           if b != 0, c != 0
a * (b / c) = (a * b) / c                           if c != 0
a / b - c / d -> (a * d - c * b) / (b * d)          if b != 0, d != 0
a / b + c / d -> (a * d + c * b) / (b * d)          if b != 0, d != 0
a / b - c -> (a - c * b) / b                        if b != 0
c - a / b -> (c * b - a) / b                        if b != 0
a / b + c -> (a + c * b) / b                        if b != 0
1 / (1 + a) - 1 -> -a / (1 + a)                     if a != -1
a / (a + b) -> 1 / (1 + b / a)                      if a != 0, a + b != 0
b / (a + b) -> 1 - a / (a + b)                      if a + b != 0
1 - a / (a + b) -> b / (a + b)                      if a + b != 0
1 - 0.5 * (1 + a) -> 0.5 * (1 - a)
1 - (1 + a) / 2 -> (1 - a) / 2

[difference of powers: Hamming, Numerical Methods for Scientists and Engineers, 1.7]
sqrt(a) - sqrt(b) -> (a - b) / (sqrt(a) + sqrt(b))  if a > 0, b > 0
sqrt(a) - b -> (a - b**2) / (sqrt(a) + b)           if a > 0, b > 0
b - sqrt(a) -> (b**2 - a) / (b + sqrt(a))           if a > 0, b > 0
b + sqrt(a) -> (a - b**2) / (sqrt(a) - b)           if a > 0, b < 0
sqrt(a)**2 -> a                                     if a >= 0
sqrt(a**2) -> abs(a)
sqrt(a) * sqrt(b) = sqrt(a * b)                     if a >= 0, b >= 0
sqrt(a) / sqrt(b) = sqrt(a / b)                     if a >= 0, b > 0
1 / sqrt(a) -> sqrt(1 / a)                          if a > 0
a / sqrt(a) -> sqrt(a)                              if a > 0
a / a**2 -> 1 / a                                   if a != 0
sqrt(a**2 + b**2) -> hypot(a, b)
sqrt(1 + a**2) -> hypot(1, a)
abs(a)**2 -> a**2

[logarithms: DLMF 4.8(i)]
log(a * b) = log(a) + log(b)                        if a > 0, b > 0
log(a / b) = log(a) - log(b)                        if a > 0, b > 0
log(exp(a)) -> a
exp(log(a)) -> a                                    if a > 0
log(1 + a) = log1p(a)                               if a > -1
log(1 - a) = log1p(-a)                              if a < 1
log(a) -> log1p(a - 1)                              if a > 0
log(a / b) -> log1p((a - b) / b)                    if a > 0, b > 0
log(a) - log(b) -> log1p((a - b) / b)               if a > 0, b > 0
log1p(a) - log1p(b) -> log1p((a - b) / (1 + b))     if a > -1, b > -1
log(1 / a) -> -log(a)                               if a > 0
log(a**2) -> 2 * log(abs(a))                        if a != 0
log(abs(a)) -> log(a)                               if a > 0
log(sqrt(a)) = log(a) / 2                           if a > 0
log(a**b) = b * log(a)                              if a > 0
log2(a) - log2(b) -> log2(a / b)                    if a > 0, b > 0
log2(1 + a) -> log1p(a) / log(2)                    if a > -1
log10(1 + a) -> log1p(a) / log(10)                  if a > -1

[exponentials and powers: DLMF 4.8(ii)]
exp(a) - 1 = expm1(a)
exp(a) * exp(b) = exp(a + b)
exp(a) / exp(b) = exp(a - b)
1 / exp(a) = exp(-a)
exp(a)**2 = exp(2 * a)
sqrt(exp(a)) = exp(a / 2)
exp(a)**b -> exp(a * b)
exp(a) - exp(b) -> exp(b) * expm1(a - b)
exp(2 * a) - 1 -> (exp(a) - 1) * (exp(a) + 1)
exp(2 * a) -> exp(a)**2
a**b = exp(b * log(a))                              if a > 0
a**b - 1 -> expm1(b * log(a))                       if a > 0
1 - a**b -> -expm1(b * log(a))                      if a > 0
a**c - b**c -> b**c * expm1(c * log(a / b))         if a > 0, b > 0
exp(a) / b -> exp(a - log(b))                       if b > 0
exp(a) * b -> exp(a + log(b))                       if b > 0
b / exp(a) -> b * exp(-a)
expm1(log(a)) -> a - 1                              if a > 0
expm1(log1p(a)) -> a                                if a > -1
log1p(expm1(a)) -> a
1 - exp(a) -> -expm1(a)
expm1(a) + 1 -> exp(a)
exp(a) - b + exp(-a) -> 2 * cosh(a) - b
exp(a) + exp(-a) -> 2 * cosh(a)

[log-sum-exp: Blanchard, Higham and Higham, IMA J. Numer. Anal. 41 (2021)]
log(exp(a) + exp(b)) -> logaddexp(a, b)
log(a + b) -> logaddexp(log(a), log(b))             if a > 0, b > 0
log(a - b) -> log(a) + log1mexp(log(b) - log(a))    if a > b, b > 0
log(exp(a) + 1) -> softplus(a)
log1p(exp(a)) = softplus(a)
log1p(-exp(a)) = log1mexp(a)                        if a < 0
log(-expm1(a)) -> log1mexp(a)                       if a < 0
log(expm1(a)) -> a + log1mexp(-a)                   if a > 0
log(exp(a) - exp(b)) -> a + log1mexp(b - a)         if a > b
log(sigmoid(a)) -> -softplus(-a)
logaddexp(0, a) -> softplus(a)
logaddexp(a, b) -> a + softplus(b - a)
softplus(a) - a -> softplus(-a)

[logistic function: DLMF 4.1, by its definition]
1 / (1 + exp(a)) = sigmoid(-a)
exp(a) / (1 + exp(a)) = sigmoid(a)
1 - sigmoid(a) = sigmoid(-a)
exp(a) / (1 + exp(a))**2 -> sigmoid(a) * sigmoid(-a)
exp(-a) / (1 + exp(-a))**2 -> sigmoid(a) * sigmoid(-a)
1 / (c + exp(a)) -> sigmoid(log(c) - a) / c         if c > 0
exp(a) / (c + exp(a)) -> sigmoid(a - log(c))        if c > 0
exp(a) / (exp(a) + exp(b)) -> sigmoid(a - b)
exp(-softplus(a)) -> sigmoid(-a)
1 - tanh(a) -> 2 * sigmoid(-2 * a)
1 + tanh(a) -> 2 * sigmoid(2 * a)
1 - tanh(a)**2 -> 4 * (sigmoid(2 * a) * sigmoid(-2 * a))
2 * sigmoid(a) - 1 -> tanh(a / 2)
sigmoid(a) - sigmoid(b) -> sigmoid(a) * sigmoid(-b) * (-expm1(b - a))
log(sigmoid(a) / sigmoid(-a)) -> a

[hyperbolic functions: DLMF 4.28, 4.35]
exp(a) - exp(-a) -> 2 * sinh(a)
(exp(a) - exp(-a)) / (exp(a) + exp(-a)) -> tanh(a)
(exp(2 * a) - 1) / (exp(2 * a) + 1) -> tanh(a)
expm1(2 * a) / (exp(2 * a) + 1) -> tanh(a)
(1 - exp(-2 * a)) / (1 + exp(-2 * a)) -> tanh(a)
(exp(a) - 1) / (exp(a) + 1) -> tanh(a / 2)
cosh(a) - 1 -> 2 * sinh(a / 2)**2
cosh(a)**2 - 1 -> sinh(a)**2
cosh(a)**2 - sinh(a)**2 -> 1
cosh(a) - sinh(a) -> exp(-a)
cosh(a) + sinh(a) -> exp(a)
sinh(a) / cosh(a) -> tanh(a)
cosh(a) / sinh(a) -> 1 / tanh(a)                    if a != 0
1 - 1 / cosh(a)**2 -> tanh(a)**2
1 / cosh(a)**2 -> 1 - tanh(a)**2
log(cosh(a)) -> abs(a) + softplus(-2 * abs(a)) - log(2)
log(2 * cosh(a)) -> abs(a) + softplus(-2 * abs(a))
log(sinh(a)) -> a + log1mexp(-2 * a) - log(2)       if a > 0
1 / cosh(a) -> 2 * exp(-abs(a)) / (1 + exp(-2 * abs(a)))
log(a + sqrt(a**2 + 1)) -> arcsinh(a)
log(a + sqrt(a**2 - 1)) -> arccosh(a)               if a > 1
log((1 + a) / (1 - a)) -> 2 * arctanh(a)            if a > -1, a < 1
log1p(a) - log1p(-a) -> 2 * arctanh(a)              if a > -1, a < 1
log((1 - a) / (1 + a)) -> -2 * arctanh(a)           if a > -1, a < 1
sinh(a) - sinh(b) -> 2 * (cosh((a + b) / 2) * sinh((a - b) / 2))
cosh(a) - cosh(b) -> 2 * (sinh((a + b) / 2) * sinh((a - b) / 2))
tanh(a) - tanh(b) -> sinh(a - b) / (cosh(a) * cosh(b))

[removable singularities, by their definitions]
expm1(a) / a -> exprel(a)                           if a != 0
a / expm1(a) -> 1 / exprel(a)                       if a != 0
expm1(a * b) / a -> b * exprel(a * b)               if a != 0, b != 0
(exp(a) - exp(b)) / (a - b) -> exp(b) * exprel(a - b)   if a != b
(exp(-(a * c)) - exp(-(b * c))) / (b - a) -> c * (exp(-(b * c)) * exprel((b - a) * c)) if a != b
d / (b - a) * (exp(-a * c) - exp(-b * c)) -> d * (c * (exp(-b * c) * exprel((b - a) * c))) if a != b
log1p(a) / a -> log1prel(a)                         if a > -1, a != 0
log1p(a * b) / a -> b * log1prel(a * b)             if a * b > -1, a != 0, b != 0
(1 + 1 / a) * log1p(a * b) -> (a + 1) * (b * log1prel(a * b))   if a * b > -1, a != 0, b != 0
sin(a) / a -> sinc(a)                               if a != 0
sin(a / 2) / a -> sinc(a / 2) / 2                   if a != 0
(1 - cos(a)) / a**2 -> sinc(a / 2)**2 / 2           if a != 0
(1 - cos(a)) / a -> sin(a / 2) * sinc(a / 2)        if a != 0
a**b -> switch(gt(a, 0), switch(gt(a, 0), a, 1)**b, 0)   if a > 0, b > 0

[trigonometric functions: DLMF 4.21, 4.24]
1 - cos(a) -> 2 * sin(a / 2)**2
cos(a) - 1 -> -2 * sin(a / 2)**2
1 - cos(a)**2 -> sin(a)**2
1 - sin(a)**2 -> cos(a)**2
(1 - cos(a)) / sin(a) -> tan(a / 2)                 if sin(a) != 0
sin(a) / (1 + cos(a)) -> tan(a / 2)                 if cos(a) != -1
sin(a) - sin(b) -> 2 * (cos((a + b) / 2) * sin((a - b) / 2))
cos(a) - cos(b) -> -2 * (sin((a + b) / 2) * sin((a - b) / 2))
sin(a) + sin(b) -> 2 * (sin((a + b) / 2) * cos((a - b) / 2))
tan(a) - tan(b) -> sin(a - b) / (cos(a) * cos(b))
sin(a) / cos(a) -> tan(a)
1 / tan(a) - 1 / tan(b) -> sin(b - a) / (sin(a) * sin(b))   if sin(a) != 0, sin(b) != 0
1 / tan(a) -> cos(a) / sin(a)                       if sin(a) != 0
cos(a)**2 - sin(a)**2 -> cos(2 * a)
2 * sin(a) * cos(a) -> sin(2 * a)
arctan(a) - arctan(b) -> arctan2(a - b, 1 + a * b)
arcsin(a) -> arctan2(a, sqrt((1 - a) * (1 + a)))    if a >= -1, a <= 1
arccos(a) -> arctan2(sqrt((1 - a) * (1 + a)), a)    if a >= -1, a <= 1
arccos(1 - a) -> 2 * arcsin(sqrt(a / 2))            if a >= 0, a <= 2
arctan(a / b) -> arctan2(a, b)                      if b > 0

[error function: DLMF 7.2, 7.4]
1 - erf(a) = erfc(a)
1 + erf(a) = erfc(-a)
1 - erfc(a) -> erf(a)
2 - erfc(a) -> erfc(-a)
erf(-a) -> -erf(a)
erf(a) - erf(b) -> erfc(b) - erfc(a)
erf(a) - erf(b) -> erfc(-a) - erfc(-b)
erfc(a) -> exp(-(a**2)) * erfcx(a)
exp(a**2) * erfc(a) = erfcx(a)
erfc(a) / exp(-(a**2)) -> erfcx(a)
exp(-(a**2)) / erfc(a) -> 1 / erfcx(a)
log(erfc(a)) -> logerfc(a)
log(erfc(a)) -> log(erfcx(a)) - a**2
logerfc(a) -> log(erfcx(a)) - a**2
log(erfcx(a)) -> logerfc(a) + a**2

[gamma and beta functions: DLMF 5.2, 5.5, 5.12]
log(gamma(a)) -> gammaln(a)                         if a > 0
gamma(a) -> exp(gammaln(a))                         if a > 0
gamma(a) / gamma(b) -> exp(gammaln(a) - gammaln(b)) if a > 0, b > 0
log(abs(gamma(a))) -> gammaln(a)                    if a > 0
gamma(a + 1) -> a * gamma(a)                        if a > 0
gammaln(a + 1) - gammaln(a) -> log(a)               if a > 0
gammaln(a + 2) - gammaln(a) -> log(a * (a + 1))     if a > 0

[modified Bessel functions, scaled: DLMF 10.25]
i0(a) -> exp(abs(a)) * i0e(a)
i1(a) -> exp(abs(a)) * i1e(a)
log(i0(a)) -> abs(a) + log(i0e(a))
log(i1(a)) -> a + log(i1e(a))                       if a > 0
i1(a) / i0(a) -> i1e(a) / i0e(a)
exp(-abs(a)) * i0(a) -> i0e(a)

[sums]
sum(i, a + b) = sum(i, a) + sum(i, b)
sum(i, a - b) = sum(i, a) - sum(i, b)
sum(i, a * b) = b * sum(i, a)                       if fixed b
sum(i, a / b) = sum(i, a) / b                       if b != 0, fixed b
sum(i, -a) = -sum(i, a)
sum(i, a * b) / sum(i, b) -> sum(i, a * (b / sum(i, b)))        if b > 0
max(i, exp(a)) -> exp(max(i, a))
max(i, a * b) -> b * max(i, a)                      if b > 0, fixed b

[products]
prod(i, exp(a)) -> exp(sum(i, a))
prod(i, a) -> exp(sum(i, log(a)))                   if a > 0
log(prod(i, a)) -> sum(i, log(a))                   if a > 0
log(abs(prod(i, a))) -> sum(i, log(abs(a)))         if a != 0
prod(i, a * b) -> prod(i, a) * prod(i, b)
prod(i, a) / prod(i, b) -> prod(i, a / b)           if b != 0

[softmax: Blanchard, Higham and Higham, IMA J. Numer. Anal. 41 (2021)]
log(sum(i, exp(a))) -> logsumexp(i, a)
sum(i, exp(a)) -> exp(logsumexp(i, a))
sum(i, b * exp(a)) -> exp(logsumexp(i, a + log(b))) if b > 0
log(sum(i, b * exp(a))) -> logsumexp(i, a + log(b)) if b > 0
log(sum(i, b)) -> logsumexp(i, log(b))              if b > 0
logsumexp(i, a + b) = b + logsumexp(i, a)           if fixed b
logsumexp(i, a - b) = logsumexp(i, a) - b           if fixed b
b + log(sum(i, exp(a - b))) -> logsumexp(i, a)      if fixed b
exp(a) / sum(i, exp(a)) -> softmax(i, a)
exp(a - b) / sum(i, exp(a - b)) -> softmax(i, a)    if fixed b
exp(a - logsumexp(i, a)) -> softmax(i, a)
log(softmax(i, a)) -> log_softmax(i, a)
a - logsumexp(i, a) = log_softmax(i, a)
a - log(sum(i, exp(a))) -> log_softmax(i, a)
exp(log_softmax(i, a)) -> softmax(i, a)
softmax(i, a + b) -> softmax(i, a)                  if fixed b
softmax(i, a - b) -> softmax(i, a)                  if fixed b
log_softmax(i, a - b) -> log_softmax(i, a)          if fixed b
sum(i, b * exp(a)) / sum(i, exp(a)) -> sum(i, b * softmax(i, a))
exp(a) / (c + sum(i, exp(a))) -> exp(a - logaddexp(log(c), logsumexp(i, a))) if c > 0, fixed c
a / sum(i, a) -> softmax(i, log(a))                 if a > 0
sum(i, log_softmax(i, a) * softmax(i, a)) -> sum(i, a * softmax(i, a)) - logsumexp(i, a)

[moments: Chan, Golub and LeVeque, The American Statistician 37 (1983)]
mean(i, (a - mean(i, a))**2) -> variance(i, a)
mean(i, a**2) - mean(i, a)**2 -> variance(i, a)
sum(i, (a - mean(i, a))**2) -> len(i) * variance(i, a)
mean(i, a * b) - mean(i, a) * mean(i, b) -> mean(i, (a - mean(i, a)) * (b - mean(i, b)))
sum(i, a**2) - len(i) * mean(i, a)**2 -> sum(i, (a - mean(i, a))**2)
sum(i, a**2) - sum(i, a)**2 / len(i) -> sum(i, (a - mean(i, a))**2)
sum(i, a * b) - sum(i, a) * sum(i, b) / len(i) -> sum(i, (a - mean(i, a)) * (b - mean(i, b)))
len(i) * sum(i, a**2) - sum(i, a)**2 -> len(i) * sum(i, (a - mean(i, a))**2)
mean(i, a) = sum(i, a) / len(i)
sum(i, a) -> len(i) * mean(i, a)
mean(i, a + b) = mean(i, a) + mean(i, b)
mean(i, a - b) = mean(i, a) - mean(i, b)
mean(i, a * b) = b * mean(i, a)                     if fixed b
mean(i, a + b) -> mean(i, a) + b                    if fixed b
mean(i, a - b) -> mean(i, a) - b                    if fixed b
log(mean(i, exp(a))) -> logsumexp(i, a) - log(len(i))
mean(i, exp(a)) -> exp(logsumexp(i, a) - log(len(i)))
prod(i, a)**(1 / len(i)) -> exp(mean(i, log(a)))    if a > 0
exp(mean(i, log(a))) * c -> exp(mean(i, log(a)) + log(c))      if a > 0, c > 0

[norms and angles: Kahan, How Futile are Mindless Assessments of Roundoff, 2006]
sqrt(sum(i, a**2)) -> norm(i, a)
sqrt(sum(i, (a * b)**2)) -> abs(b) * norm(i, a)     if fixed b
sum(i, a**2) -> norm(i, a)**2
sum(i, a**2) + sum(i, b**2) - 2 * sum(i, a * b) -> sum(i, (a - b)**2)
1 - sum(i, a * b) / (norm(i, a) * norm(i, b)) -> sum(i, (a / norm(i, a) - b / norm(i, b))**2) / 2
sqrt(mean(i, a**2)) -> norm(i, a) / sqrt(len(i))
arccos(sum(i, a * b) / (norm(i, a) * norm(i, b))) -> 2 * arctan2(\
 norm(i, a / norm(i, a) - b / norm(i, b)), norm(i, a / norm(i, a) + b / norm(i, b)))
"""


def parsed(text: str) -> Term:
    """Return a formula as a term.

    Examples
    --------
    >>> parsed("sqrt(a + 1) - b**2")
    ('sub', ('sqrt', ('add', 'a', Fraction(1, 1))), ('sqr', 'b'))
    """
    return _term(ast.parse(text, mode="eval").body)


_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Name(name):
            return name
        case ast.Constant(value=int() | float() as number):
            return Fraction(number)
        case ast.UnaryOp(ast.USub(), operand):
            inner = _term(operand)
            return -inner if isinstance(inner, Fraction) else ("neg", inner)
        case ast.BinOp(base, ast.Pow(), ast.Constant(value=2)):
            return ("sqr", _term(base))
        case ast.BinOp(one, op, other) if type(op) in _BINARY:
            return (_BINARY[type(op)], _term(one), _term(other))
        case ast.Call(ast.Name(name), operands) if name in OPERATIONS:
            return (name, *map(_term, operands))
    raise ValueError(f"{ast.unparse(node)} is no formula.\nUse a, b, i, numbers and operations.")


def _read(table: str) -> Iterator[Identity]:
    source = ""
    for line in filter(None, map(str.strip, table.splitlines())):
        if line.startswith("["):
            source = line[1:-1]
            continue
        formulas, _, where = line.partition(" if ")
        both = " -> " not in formulas
        left, right = map(str.strip, formulas.split(" = " if both else " -> "))
        yield Identity(left, right, where.strip(), source, both)


IDENTITIES = list(_read(TABLE))


@checked
def register_identity(
    left: str, right: str, *, where: str = "", source: str = "", both: bool = False
) -> Identity:
    """Add an identity to those that :func:`improve` uses.

    Parameters
    ----------
    left, right : str
        Two formulas of the letters a to d, such as ``"log(1 + a)"``.
    where : str
        Conditions, separated by commas, such as ``"a > -1"``.
    source : str
        Where it is stated or derived.
    both : bool
        Whether the right side may be replaced by the left side, too.

    Returns
    -------
    Identity

    Raises
    ------
    ValueError
        If a side is no formula, or if the right side has a letter that the left side does not have.

    Examples
    --------
    >>> from theanoguard.stable import register_identity
    >>> print(register_identity("sin(3 * a)", "sin(a) * (3 - 4 * sin(a)**2)"))
    sin(3 * a) = sin(a) * (3 - 4 * sin(a)**2)
    """
    identity = Identity(left, right, where, source, both)
    for name, text in (("left", left), ("right", right)):
        try:
            parsed(text)
        except (SyntaxError, ValueError) as error:
            raise refuse("register_identity", name, text, str(error)) from None
    conditions = [part.strip() for part in where.split(",") if part.strip()]
    if not all(
        re.fullmatch(r"fixed [a-d]|[^<>=!]+(<|>|<=|>=|==|!=)[^<>=!]+", c) for c in conditions
    ):
        text = "where must have comparisons and 'fixed b', separated by commas"
        raise refuse("register_identity", "where", where, text)
    sides = [letters(term) for term in identity.terms]
    if not (sides[0] >= sides[1] and (not both or sides[0] == sides[1])):
        raise refuse("register_identity", "right", right, "right must have the letters of left")
    if identity not in IDENTITIES:
        IDENTITIES.append(identity)
    return identity


def letters(term: Term) -> set[str]:
    """Return the names in a term."""
    if isinstance(term, tuple):
        return set().union(*map(letters, term[1:]))
    return {term} if isinstance(term, str) else set()


def tidied(term: Term) -> Term:
    """Return a term without operations that change nothing, as one would write it.

    Examples
    --------
    >>> tidied(parsed("0 + b + -2 * a * (1 / c)"))
    ('sub', 'b', ('div', ('mul', Fraction(2, 1), 'a'), 'c'))
    """
    if not isinstance(term, tuple):
        return term
    head, *operands = term
    if OPERATIONS[head].reduces:
        return (head, operands[0], *map(tidied, operands[1:]))
    return _tidy(head, *map(tidied, operands))


def _negated(term: Term) -> Term | None:
    """Return the negative of a term that is written with a minus sign, or None."""
    match term:
        case Fraction() if term < 0:
            return -term
        case ("neg", inner):
            return inner
        case ("mul", Fraction() as number, rest) if number < 0:
            return _tidy("mul", -number, rest)
        case ("mul" | "div" as head, first, rest) if (inner := _negated(first)) is not None:
            return _tidy(head, inner, rest)
    return None


def _tidy(head: str, *operands: Term) -> Term:
    if head in FOLDED and all(isinstance(x, Fraction) for x in operands):
        return (head, *operands) if operands[1:] == (0,) else FOLDED[head](*operands)
    match (head, *operands):
        case ("add", 0, x) | ("add" | "sub", x, 0) | ("mul", 1, x) | ("mul" | "div", x, 1):
            return x
        case ("add", x, y) if (inner := _negated(y)) is not None:
            return _tidy("sub", x, inner)
        case ("add", x, y) if (inner := _negated(x)) is not None:
            return _tidy("sub", y, inner)
        case ("add", x, y) if x == y:
            return _tidy("mul", Fraction(2), x)
        case ("sub", x, y) if (inner := _negated(y)) is not None:
            return _tidy("add", x, inner)
        case ("sub", x, y) if x == y:
            return Fraction(0)
        case ("sub", ("add", x, y), z) if y == z or x == z:
            return x if y == z else y
        case ("sub", 0, x) | ("mul", -1, x) | ("mul", x, -1):
            return _tidy("neg", x)
        case ("neg", x) if (inner := _negated(x)) is not None:
            return inner
        case ("neg", ("sub", x, y)):
            return ("sub", y, x)
        case ("mul", x, Fraction() as number):
            return _tidy("mul", number, x)
        case ("mul", Fraction() as one, ("mul", Fraction() as other, x)):
            return _tidy("mul", one * other, x)
        case ("mul", x, ("mul", Fraction() as number, y)):
            return _tidy("mul", number, _tidy("mul", x, y))
        case ("mul", ("div", 1, x), ("div", 1, y)):
            return ("div", Fraction(1), _tidy("mul", x, y))
        case ("mul", x, ("div", 1, y)) | ("mul", ("div", 1, y), x):
            return _tidy("div", x, y)
        case ("mul", Fraction() as number, ("div", x, y)):
            return _tidy("div", _tidy("mul", number, x), y)
        case ("mul", x, y) if x == y:
            return ("sqr", x)
        case ("div", 1, ("div", x, y)):
            return _tidy("div", y, x)
        case ("mul", ("neg", x), y) | ("mul", y, ("neg", x)):
            return _tidy("neg", _tidy("mul", x, y))
        case ("div", ("neg", x), ("neg", y)):
            return _tidy("div", x, y)
    return (head, *operands)
