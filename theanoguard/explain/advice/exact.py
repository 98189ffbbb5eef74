"""Equivalent forms of the user's expressions that do not overflow or underflow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.linalg.summary import SLogDet
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import Softmax

from theanoguard._graph import VIEWS, constant_number, scalar_class, viewed
from theanoguard.explain.facts.naming import INDEXING, op_name
from theanoguard.stable.forms import logsumexp
from theanoguard.stable.patterns import PATTERNS, Build, New, behind_views, squared_base

Axes: TypeAlias = tuple[int, ...] | None
"""The axes of a reduction; None for all."""


@dataclass(frozen=True)
class Form:
    """Another way to write a variable.

    Parameters
    ----------
    template : str
        What to write, with ``{x}`` for the name of `x` and ``{pt}`` for PyTensor's module.
    x : Variable
        The variable that the form is computed from.
    build : callable
        ``build(new)``, as :func:`theanoguard.stable.patterns.rebuild` takes it.
    of_derivative : bool
        Whether it gives a value where the formula has none, so that it is only a remedy for the
        derivative.
    one_sign : bool
        Whether it is the same function only for numbers of one sign, such as the factors of a
        product whose logarithm is taken.
    views : tuple of Apply
        Indexing and views that the user's code applies before, and the form after, as in
        ``log_softmax(z)[rows, y]`` for ``log(softmax(z)[rows, y])``.  The template has no index.
    """

    template: str
    x: Variable
    build: Build
    of_derivative: bool = False
    one_sign: bool = False
    views: tuple[Apply, ...] = ()


def exact_forms(variable: Variable) -> Iterator[Form]:
    """Yield the forms that are equivalent to a variable of the graph as built."""
    kind = scalar_class(variable)
    for matcher in (_MATCHERS.get(kind), _of_stable):
        form = matcher and matcher(variable)
        if form is not None:
            yield form


class _NoBounds:
    """Value bounds for the patterns of :mod:`theanoguard.stable`, with no bound on any variable."""

    positive, zero, lo, hi = False, True, -np.inf, np.inf

    def __getitem__(self, variable: Variable) -> "_NoBounds":
        return self


_STABLE = {
    "log_softmax": "theanoguard.stable.log_softmax({x}, axis={axis})",
    "logsumexp": "theanoguard.stable.logsumexp({x}, axis={axis}{keepdims})",
    "softmax": "{pt}.special.softmax({x}, axis={axis})",
    "norm": "theanoguard.stable.norm({x}, axis={axis}{keepdims})",
    "sqrt": "theanoguard.stable.sqrt({x})",
    "softplus": "{pt}.softplus({x})",
    "-softplus": "-{pt}.softplus({sign}{x})",
}
"""Code for the forms of :mod:`theanoguard.stable`, except those that change values."""


def _of_stable(variable: Variable) -> Form | None:
    match = PATTERNS.get(scalar_class(variable))
    found = match and match(variable, _NoBounds())
    if not found or found[0] not in _STABLE:
        return None
    name, build = found
    asked = []

    def note(v: Variable) -> Variable:
        asked.append(v)
        return v

    build(note)
    x = asked[0]
    sign = "" if scalar_class(variable) is ps.Log1p or _is_difference(variable) else "-"
    reduced = variable.type.ndim == x.type.ndim and x.type.ndim > 0
    axis = _axis(variable, x)
    template = _STABLE[name].replace(", axis={axis}", "" if axis is None else f", axis={axis}")
    template = template.replace("{keepdims}", ", keepdims=True" if reduced else "")
    _, chain = behind_views(variable.owner.inputs[0])
    views = tuple(chain) if any(isinstance(node.op, INDEXING) for node in chain) else ()
    return Form(template.replace("{sign}", sign), x, build, name == "sqrt", views=views)


def _is_difference(variable: Variable) -> bool:
    return scalar_class(viewed(variable.owner.inputs[0])) is ps.Sub


def _axis(variable: Variable, x: Variable) -> int | tuple[int, ...] | None:
    """Return the axis of the first reduction upstream whose operand has the shape of `x`."""
    level = [variable]
    for _ in range(8):
        level = [v for u in level if u.owner is not None for v in u.owner.inputs]
        for v in level:
            op = getattr(v.owner, "op", None)
            if isinstance(op, CAReduce | Softmax) and v.owner.inputs[0].type.ndim == x.type.ndim:
                return op.axis[0] if isinstance(op.axis, tuple) and len(op.axis) == 1 else op.axis
    return None


@dataclass(frozen=True)
class Logarithm:
    """The logarithm of a function, computed without the function.

    Parameters
    ----------
    template : str
        As for :class:`Form`.
    build : callable
        Returns it for an argument.
    """

    template: str
    build: Callable[[Variable], Variable]


def _log_of_erfc(x: Variable) -> Variable:
    zero = np.asarray(0, x.type.dtype)
    far = pt.log(pt.erfcx(pt.maximum(x, zero))) - x**2
    return pt.switch(x > 0, far, pt.log(pt.erfc(pt.minimum(x, zero))))


def _log_of_bessel(order: int, x: Variable) -> Variable:
    return pt.log(pt.ive(order, x)) + pt.abs(x)


LOGARITHMS = {
    psm.Gamma: Logarithm("{pt}.gammaln({x})", pt.gammaln),
    psm.I0: Logarithm("({pt}.log({pt}.ive(0, {x})) + abs({x}))", lambda x: _log_of_bessel(0, x)),
    psm.I1: Logarithm("({pt}.log({pt}.ive(1, {x})) + abs({x}))", lambda x: _log_of_bessel(1, x)),
    psm.Erfc: Logarithm(
        "{pt}.switch({x} > 0, {pt}.log({pt}.erfcx({pt}.maximum({x}, 0))) - {x} ** 2,"
        " {pt}.log({pt}.erfc({pt}.minimum({x}, 0))))",
        _log_of_erfc,
    ),
}
"""By the scalar operation of the function."""


def _from_table(variable: Variable, inner: Variable) -> Form | None:
    """Form of log(f(x)) and log(c f(x)), with a function f of the table and a constant c."""
    c: float | None = 1.0
    of = inner
    if scalar_class(inner) is ps.Mul and len(inner.owner.inputs) == 2:
        constant, of = sorted(inner.owner.inputs, key=lambda v: constant_number(v) is None)
        c = constant_number(constant)
        of = viewed(of)
    known = LOGARITHMS.get(scalar_class(of))
    if known is None or c is None or c <= 0 or of.type.ndim != variable.type.ndim:
        return None
    (x,) = of.owner.inputs
    if c == 1:
        return Form(known.template, x, lambda new: known.build(new(x)))
    shift = np.asarray(np.log(c), x.type.dtype)
    template = f"({known.template} + np.log({c:.17g}))"
    return Form(template, x, lambda new: known.build(new(x)) + shift)


def _logarithm(variable: Variable) -> Form | None:
    """Forms of logarithms: of prod(x), c + exp(x), exp(x) - 1, det(x) and softmax(x) + eps."""
    inner = viewed(variable.owner.inputs[0])
    node = inner.owner
    if node is None:
        return None
    form = _from_table(variable, inner)
    if form is not None:
        return form
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, ps.Mul):
        x, axes = node.inputs[0], node.op.axis
        template = f"{{pt}}.log({{x}}).sum({_axis_argument(axes)})"
        return _reduced(variable, template, x, lambda new: pt.log(new(x)).sum(axis=axes), True)
    matrix = _of_determinant(inner)
    if matrix is not None and matrix.type.ndim == variable.type.ndim + 2:
        template = "{pt}.linalg.slogdet({x})[1]"
        return Form(template, matrix, lambda new: _log_determinant(new(matrix)))
    x = _inverse_softplus(inner)
    if x is not None and x.type.ndim == variable.type.ndim:
        template = "({x} + {pt}.log(-{pt}.expm1(-{x})))"
        return Form(template, x, lambda new: new(x) + pt.log(-pt.expm1(-new(x))))
    x = _of_one_minus_squared_tanh(inner)
    if x is not None and x.type.ndim == variable.type.ndim:
        return Form(
            "2 * (np.log(2) - {x} - {pt}.softplus(-2 * {x}))",
            x,
            lambda new: (
                2 * (np.asarray(np.log(2), x.type.dtype) - new(x) - pt.softplus(-2 * new(x)))
            ),
        )
    if scalar_class(inner) is ps.Add and len(node.inputs) == 2:
        constant, term = sorted(node.inputs, key=lambda v: constant_number(v) is None)
        c, x = constant_number(constant), _exponent(viewed(term))
        if c is not None and c > 0 and c != 1 and x is not None and x.type.ndim == inner.type.ndim:
            log = np.asarray(np.log(c), x.type.dtype)
            return Form(
                f"{{pt}}.softplus({{x}} - np.log({c:g})) + np.log({c:g})",
                x,
                lambda new: pt.softplus(new(x) - log) + log,
            )
    matched = as_softmax(inner) or _of_theano(node)
    if matched is not None and inner.type.ndim == variable.type.ndim:
        x, axis = matched
        return Form(
            f"{{pt}}.special.log_softmax({{x}}, axis={axis})",
            x,
            lambda new: pt.special.log_softmax(new(x), axis=axis),
        )
    return None


def _of_theano(node: Apply) -> tuple[Variable, int] | None:
    """Return ``x`` and the axis if a node is Theano's softmax, which takes rows."""
    is_it = type(node.op).__module__.startswith("theano.") and op_name(node.op) == "softmax"
    return (node.inputs[0], 1) if is_it else None


def _of_one_minus_squared_tanh(inner: Variable) -> Variable | None:
    """Return ``x`` if a variable is ``1 - tanh(x) ** 2``."""
    if scalar_class(inner) is not ps.Sub or constant_number(inner.owner.inputs[0]) != 1:
        return None
    base = squared_base(viewed(inner.owner.inputs[1]))
    is_tanh = base is not None and scalar_class(viewed(base)) is ps.Tanh
    return viewed(base).owner.inputs[0] if is_tanh else None


def _of_determinant(inner: Variable) -> Variable | None:
    """Return the matrix if a variable is its determinant."""
    is_det = inner.owner is not None and op_name(inner.owner.op) == "det"
    return inner.owner.inputs[0] if is_det else None


def _log_determinant(x: Variable) -> Variable:
    """Return the second result of ``pt.linalg.slogdet``, as rewrites and ``grad`` make it."""
    slope = disconnected_grad(pt.matrix_transpose(pt.linalg.inv(x)))
    term = (x * slope).sum(axis=(-2, -1))
    return disconnected_grad(Blockwise(SLogDet())(x)[1] - term) + term


def _inverse_softplus(inner: Variable) -> Variable | None:
    """Return ``x`` if a variable is ``exp(x) - 1``."""
    if scalar_class(inner) is ps.Expm1:
        return inner.owner.inputs[0]
    if scalar_class(inner) is not ps.Sub or constant_number(inner.owner.inputs[1]) != 1:
        return None
    grown = viewed(inner.owner.inputs[0])
    return grown.owner.inputs[0] if scalar_class(grown) is ps.Exp else None


def _reduced(
    variable: Variable, template: str, x: Variable, build: Build, one_sign: bool = False
) -> Form | None:
    """Return a form of a reduction, or None if the result was reshaped afterwards."""
    fits = build(lambda v: v).type.ndim == variable.type.ndim
    return Form(template, x, build, one_sign=one_sign) if fits else None


def _quotient(variable: Variable) -> Form | None:
    """Forms of tanh, and of c exp(x) / sum(c exp(x)), with a constant in the sum or without."""
    x = _of_tanh(*map(viewed, variable.owner.inputs))
    if x is not None and x.type.ndim == variable.type.ndim:
        return Form("{pt}.tanh({x})", x, lambda new: pt.tanh(new(x)))
    matched = as_softmax(variable)
    if matched is not None:
        x, axis = matched
        return Form(
            f"{{pt}}.special.softmax({{x}}, axis={axis})",
            x,
            lambda new: pt.special.softmax(new(x), axis=axis),
        )
    terms, total = map(viewed, variable.owner.inputs)
    x = _exponent(terms)
    if x is None or scalar_class(total) is not ps.Add or len(total.owner.inputs) != 2:
        return None
    constant, term = sorted(total.owner.inputs, key=lambda v: constant_number(v) is None)
    c = constant_number(constant)
    if c is None or c <= 0:
        return None
    log = np.asarray(np.log(c), x.type.dtype)
    node = viewed(term).owner
    if node is not None and isinstance(node.op, CAReduce) and op_name(node.op) == "sum":
        return _with_rest(variable, x, c, node) if same(node.inputs[0], terms) else None
    if not same(viewed(term), terms):
        return None
    shift = "" if c == 1 else f" - np.log({c:g})"
    return Form(f"{{pt}}.sigmoid({{x}}{shift})", x, lambda new: pt.sigmoid(new(x) - log))


def _with_rest(variable: Variable, x: Variable, c: float, total: Apply) -> Form | None:
    """Return the form of exp(x) / (c + sum(exp(x))), a softmax with an entry more."""
    axes = total.op.axis
    kept = axes is not None and len(axes) < x.type.ndim
    log = np.asarray(np.log(c), x.type.dtype)
    arguments = ", ".join(filter(None, [_axis_argument(axes), "keepdims=True" if kept else ""]))
    inside = f"theanoguard.stable.logsumexp({{x}}{', ' if arguments else ''}{arguments})"
    if c == 1:
        template = f"{{pt}}.exp({{x}} - {{pt}}.softplus({inside}))"
    else:
        number = f"np.log({c:g})"
        template = f"{{pt}}.exp({{x}} - {{pt}}.softplus({inside} - {number}) - {number})"

    def build(new: New) -> Variable:
        v = new(x)
        return pt.exp(v - pt.softplus(logsumexp(v, axes, kept) - log) - log)

    return Form(template, x, build) if x.type.ndim == variable.type.ndim else None


def _of_tanh_in_one(difference: Variable, total: Variable) -> Variable | None:
    """Return ``x`` if two variables are exp(2 * x) - 1 and exp(2 * x) + 1."""
    grown = _inverse_softplus(difference)
    terms = total.owner.inputs if scalar_class(total) is ps.Add else ()
    if grown is None or len(terms) != 2 or scalar_class(viewed(grown)) is not ps.Mul:
        return None
    one, term = sorted(terms, key=lambda v: constant_number(v) is None)
    is_sum = constant_number(one) == 1 and scalar_class(viewed(term)) is ps.Exp
    if not is_sum or not same(viewed(term).owner.inputs[0], grown):
        return None
    two, x = sorted(viewed(grown).owner.inputs, key=lambda v: constant_number(v) is None)
    return x if constant_number(two) == 2 else None


def _of_tanh(difference: Variable, total: Variable) -> Variable | None:
    """Return ``x`` if two variables are exp(x) - exp(-x) and exp(x) + exp(-x)."""
    if scalar_class(difference) in (ps.Sub, ps.Expm1):
        x = _of_tanh_in_one(difference, total)
        if x is not None:
            return x
    if scalar_class(difference) is not ps.Sub or scalar_class(total) is not ps.Add:
        return None
    up, down = map(viewed, difference.owner.inputs)
    is_sum = {scalar_class(v) for v in (up, down)} == {ps.Exp} and len(total.owner.inputs) == 2
    others = [viewed(v) for v in total.owner.inputs]
    if not is_sum or not any(same(up, a) and same(down, b) for a, b in (others, others[::-1])):
        return None
    x, minus = up.owner.inputs[0], down.owner.inputs[0]
    return x if scalar_class(minus) is ps.Neg and same(minus.owner.inputs[0], x) else None


def as_softmax(variable: Variable) -> tuple[Variable, int] | None:
    """Return ``x`` and the axis if a variable is softmax(x), or softmax(x) plus a small eps."""
    if scalar_class(variable) is not ps.TrueDiv:
        return None
    terms, total = variable.owner.inputs
    kept = total.type.broadcastable
    total = viewed(total)
    if scalar_class(total) is ps.Add and len(total.owner.inputs) == 2:
        constant, rest = sorted(total.owner.inputs, key=lambda v: constant_number(v) is None)
        eps = constant_number(constant)
        if eps is None or not 0 <= eps <= 1e-6:
            return None
        total = viewed(rest)
    node = total.owner
    is_sum = node is not None and isinstance(node.op, CAReduce) and op_name(node.op) == "sum"
    if not is_sum or not same(node.inputs[0], terms):
        return None
    x = _exponent(terms)
    axes = node.op.axis
    if x is None or axes is None or len(axes) != 1 or not kept[axes[0]]:
        return None
    return x, axes[0]


def _exponent(variable: Variable) -> Variable | None:
    """Return ``x`` if a variable is ``exp(x)``, or a positive number times ``exp(x)``."""
    if scalar_class(variable) is ps.Mul and len(variable.owner.inputs) == 2:
        constant, rest = sorted(variable.owner.inputs, key=lambda v: constant_number(v) is None)
        c = constant_number(constant)
        return _exponent(rest) if c is not None and c > 0 else None
    if scalar_class(variable) is not ps.Exp:
        return None
    x = variable.owner.inputs[0]
    if scalar_class(x) is not ps.Sub:
        return x
    whole, most = x.owner.inputs
    node = viewed(most).owner
    is_max = node is not None and op_name(node.op) == "max" and node.inputs[0] is whole
    return whole if is_max else x


def same(one: Variable, other: Variable) -> bool:
    """Return whether two variables are the same expression of the same variables."""
    if one is other:
        return True
    if one.owner is None or other.owner is None or one.owner.op != other.owner.op:
        return constant_number(one) is not None and constant_number(one) == constant_number(other)
    pairs = zip(one.owner.inputs, other.owner.inputs, strict=True)
    return one.index == other.index and all(same(a, b) for a, b in pairs)


def _axis_argument(axes: Axes) -> str:
    if axes is None:
        return ""
    return f"axis={axes[0] if len(axes) == 1 else axes}"


def _difference(variable: Variable) -> Form | None:
    """Forms of mean(x ** 2) - mean(x) ** 2 and 1 - sigmoid(x)."""
    one, part = variable.owner.inputs
    part = viewed(part)
    if constant_number(one) == 1 and scalar_class(part) is psm.Sigmoid:
        x = part.owner.inputs[0]
        fits = x.type.ndim == variable.type.ndim
        return Form("{pt}.sigmoid(-{x})", x, lambda new: pt.sigmoid(-new(x))) if fits else None
    of_squares, squared = map(viewed, variable.owner.inputs)
    mean = squared_base(squared)
    mean_of_squares = _mean_of(of_squares)
    own_mean = None if mean is None else _mean_of(viewed(mean))
    if mean_of_squares is None or own_mean is None:
        return None
    (squares, axes), (x, other_axes) = mean_of_squares, own_mean
    base = squared_base(squares)
    if base is None or base is not x or axes != other_axes:
        return None
    kept = variable.type.ndim == x.type.ndim > 0
    arguments = ", ".join(filter(None, [_axis_argument(axes), "keepdims=True" if kept else ""]))
    return Form(f"{{x}}.var({arguments})", x, lambda new: pt.var(new(x), axis=axes, keepdims=kept))


def _power(variable: Variable) -> Form | None:
    """Form of prod(x) ** (1 / n), where n is the number of elements: the geometric mean."""
    product, exponent = map(viewed, variable.owner.inputs)
    node = product.owner
    if node is None or not isinstance(node.op, CAReduce) or op_name(node.op) != "prod":
        return None
    x, axes = node.inputs[0], node.op.axis
    if not _is_one_by_length(exponent, x) or not (axes is None or x.type.ndim == 1):
        return None
    template = "{pt}.exp({pt}.log({x}).mean())"
    return _reduced(variable, template, x, lambda new: pt.exp(pt.log(new(x)).mean()), True)


def _is_one_by_length(exponent: Variable, x: Variable) -> bool:
    """Return whether a variable is ``1 / n``, where n is the length or the size of `x`."""
    if scalar_class(exponent) is ps.Reciprocal:
        number = exponent.owner.inputs[0]
    elif scalar_class(exponent) is ps.TrueDiv and constant_number(exponent.owner.inputs[0]) == 1:
        number = exponent.owner.inputs[1]
    else:
        return False
    while number.owner is not None and not isinstance(number.owner.op, Shape | Shape_i):
        is_read = (
            isinstance(number.owner.op, (*VIEWS, *INDEXING)) or scalar_class(number) is ps.Cast
        )
        is_size = isinstance(number.owner.op, CAReduce) and op_name(number.owner.op) == "prod"
        if not (is_size or is_read and x.type.ndim == 1):
            return False
        number = number.owner.inputs[0]
    return number.owner is not None and number.owner.inputs[0] is x


def _mean_of(variable: Variable) -> tuple[Variable, Axes] | None:
    """Return the operand of a mean, and its axes."""
    total = viewed(variable.owner.inputs[0]) if scalar_class(variable) is ps.TrueDiv else variable
    node = total.owner
    if node is None or not isinstance(node.op, CAReduce) or op_name(node.op) not in ("sum", "mean"):
        return None
    return node.inputs[0], node.op.axis


def _sum(variable: Variable) -> Form | None:
    """Forms of max(x) + log(sum(exp(x - max(x))))."""
    if len(variable.owner.inputs) != 2:
        return None
    for top, log in (variable.owner.inputs, variable.owner.inputs[::-1]):
        maximum, log = viewed(top).owner, viewed(log)
        total = viewed(log.owner.inputs[0]).owner if scalar_class(log) is ps.Log else None
        if maximum is None or total is None:
            continue
        if not all(isinstance(node.op, CAReduce) for node in (maximum, total)):
            continue
        x, axes = maximum.inputs[0], total.op.axis
        names = [op_name(node.op) for node in (maximum, total)]
        if names == ["max", "sum"] and maximum.op.axis == axes and _exponent(total.inputs[0]) is x:
            return _logsumexp(variable, x, axes)
    return None


def _logsumexp(variable: Variable, x: Variable, axes: Axes) -> Form:
    kept = variable.type.ndim == x.type.ndim > 0 and axes is not None
    arguments = ["{x}", _axis_argument(axes), "keepdims=True" if kept else ""]
    template = f"theanoguard.stable.logsumexp({', '.join(filter(None, arguments))})"
    return Form(template, x, lambda new: logsumexp(new(x), axes, kept))


_MATCHERS = {
    ps.Add: _sum,
    ps.Log: _logarithm,
    ps.TrueDiv: _quotient,
    ps.Sub: _difference,
    ps.Pow: _power,
}
"""The functions above, by the scalar operation that computes a variable."""
