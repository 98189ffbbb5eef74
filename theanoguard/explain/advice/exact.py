"""Equivalent forms of the user's expressions that do not overflow or underflow.

Each matcher returns the code of a form, with ``{x}`` for the name of one variable and ``{pt}`` for
PyTensor's module, and the variable.  The code is run for a trial and printed in the user's names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

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

from theanoguard._graph import (
    VIEWS,
    constant_number,
    operand_of,
    reduction_of,
    scalar_class,
    viewed,
    with_number,
)
from theanoguard._naming import INDEXING
from theanoguard.operations.names import op_name
from theanoguard.stable import forms
from theanoguard.stable.patterns import (
    PATTERNS,
    Build,
    behind_views,
    of_exp_minus_one,
    of_tanh,
    same,
    squared_base,
)

Axes: TypeAlias = tuple[int, ...] | None  # the axes of a reduction; None for all

Code: TypeAlias = tuple[str, Variable]  # the template and the variable of a :class:`Form`


@dataclass(frozen=True)
class Form:
    """Another way to write a variable."""

    #: What to write, with ``{x}`` for the name of `x` and ``{pt}`` for PyTensor's module.
    template: str
    x: Variable  # the variable that the form is computed from
    build: Build  # ``build(new)``, as :func:`theanoguard.stable.patterns.rebuild` takes it
    #: Whether it gives a value where the formula has none, so that it is only a remedy for the
    #: derivative.
    of_derivative: bool = False
    #: Whether it is the same function only for numbers of one sign, such as the factors of a
    #: product whose logarithm is taken.
    one_sign: bool = False
    #: Indexing and views that the user's code applies before, and the form after, as in
    #: ``log_softmax(z)[rows, y]`` for ``log(softmax(z)[rows, y])``.  The template has no index.
    views: tuple[Apply, ...] = ()


def exact_forms(variable: Variable) -> Iterator[Form]:
    """Yield the forms that are equivalent to a variable of the graph as built."""
    matcher = _MATCHERS.get(scalar_class(variable))
    if matcher is not None and (found := matcher(variable)) is not None:
        template, x = found
        build = _build_of(template, x)
        if build(lambda v: v).type.ndim == variable.type.ndim:  # (else it was reshaped afterwards)
            yield Form(template, x, build, one_sign="{pt}.log({x})" in template)
    if (form := _of_stable(variable)) is not None:
        yield form


def _build_of(template: str, x: Variable) -> Build:
    if template == _LOG_DETERMINANT:
        return lambda new: _log_determinant(new(x))
    return lambda new: run(template, new(x))


def run(template: str, x: Variable, size: float = 0.0) -> Variable:
    """Return what code makes of a variable, with its numbers in the dtype of a float variable.

    The code may have ``{pt}``, ``{x}`` and ``{size}``.
    """
    is_float = np.dtype(x.type.dtype).kind in "fc"
    in_dtype = partial(np.asarray, dtype=x.type.dtype if is_float else None)
    names = {
        **{"x": x, "pt": pt, "size": in_dtype(size)},
        "np": SimpleNamespace(log=lambda number: in_dtype(np.log(number))),
        "theanoguard": SimpleNamespace(stable=forms),
    }
    return eval(template.format(pt="pt", x="x", size="size"), names)  # noqa: S307  (our own code)


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
    inner = viewed(variable.owner.inputs[0])
    sign = "" if scalar_class(variable) is ps.Log1p or scalar_class(inner) is ps.Sub else "-"
    reduced = variable.type.ndim == x.type.ndim and x.type.ndim > 0
    axis = _axis(variable, x)
    template = _STABLE[name].replace(", axis={axis}", "" if axis is None else f", axis={axis}")
    template = template.replace("{keepdims}", ", keepdims=True" if reduced else "")
    _, chain = behind_views(variable.owner.inputs[0])
    views = tuple(chain) if any(isinstance(node.op, INDEXING) for node in chain) else ()
    return Form(template.replace("{sign}", sign), x, build, name == "sqrt", views=views)


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


# ---------------------------------------------------------------- parts of formulas


def as_softmax(variable: Variable) -> tuple[Variable, int] | None:
    """Return ``x`` and the axis if a variable is softmax(x), or softmax(x) plus a small eps."""
    if scalar_class(variable) is not ps.TrueDiv:
        return None
    terms, total = variable.owner.inputs
    kept = total.type.broadcastable
    total = viewed(total)
    if scalar_class(total) is ps.Add:
        eps, rest = with_number(total, ps.Add) or (np.inf, total)
        if not 0 <= eps <= 1e-6:
            return None
        total = viewed(rest)
    node, x = reduction_of(total, "sum"), _exponent(terms)
    if node is None or x is None or not same(node.inputs[0], terms):
        return None
    axes = node.op.axis
    return (x, axes[0]) if axes is not None and len(axes) == 1 and kept[axes[0]] else None


def _exponent(variable: Variable) -> Variable | None:
    """Return ``x`` if a variable is ``exp(x)``, or a positive number times ``exp(x)``."""
    if (scaled := with_number(variable, ps.Mul)) is not None:
        return _exponent(scaled[1]) if scaled[0] > 0 else None
    x = operand_of(variable, ps.Exp)
    if x is None or scalar_class(x) is not ps.Sub:
        return x
    whole, most = x.owner.inputs
    maximum = reduction_of(viewed(most), "max")
    return whole if maximum is not None and maximum.inputs[0] is whole else x


def arguments(*texts: str, axes: int | Axes = None, kept: bool = False) -> str:
    """Return the arguments of a reduction as code; None stands for all axes."""
    axis = axes[0] if isinstance(axes, tuple) and len(axes) == 1 else axes
    given = [*texts, "" if axes is None else f"axis={axis}", "keepdims=True" if kept else ""]
    return ", ".join(filter(None, given))


def _log(c: float, variable: Variable) -> str:
    """Return a number's logarithm as code, with the digits that the dtype of a variable has."""
    number = np.dtype(variable.type.dtype).type(c)
    return f"np.log({str(number).removesuffix('.0')})"


# ---------------------------------------------------------------- the formulas

LOGARITHMS = {
    psm.Gamma: "{pt}.gammaln({x})",
    psm.I0: "({pt}.log({pt}.ive(0, {x})) + abs({x}))",
    psm.I1: "({pt}.log({pt}.ive(1, {x})) + abs({x}))",
    psm.Erfc: "{pt}.switch({x} > 0, {pt}.log({pt}.erfcx({pt}.maximum({x}, 0))) - {x} ** 2,"
    " {pt}.log({pt}.erfc({pt}.minimum({x}, 0))))",
}
"""The logarithm of a function without the function, by the scalar operation of the function."""

_LOG_DETERMINANT = "{pt}.linalg.slogdet({x})[1]"


def _logarithm(variable: Variable) -> Code | None:
    """Forms of logarithms: of f(x), prod(x), c + exp(x), exp(x) - 1, det(x) and softmax(x)."""
    inner = viewed(variable.owner.inputs[0])
    node = inner.owner
    if node is None:
        return None
    c, of = with_number(inner, ps.Mul) or (1, inner)
    of = viewed(of)
    if c > 0 and (known := LOGARITHMS.get(scalar_class(of))) is not None:
        code = known if c == 1 else f"({known} + {_log(c, variable)})"
        return code, of.owner.inputs[0]
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, ps.Mul):
        return f"{{pt}}.log({{x}}).sum({arguments(axes=node.op.axis)})", node.inputs[0]
    if op_name(node.op) == "det":
        return _LOG_DETERMINANT, node.inputs[0]
    if (x := of_exp_minus_one(inner)) is not None:
        return "({x} + {pt}.log(-{pt}.expm1(-{x})))", x
    if (x := _of_one_minus_squared_tanh(inner)) is not None:
        return "2 * (np.log(2) - {x} - {pt}.softplus(-2 * {x}))", x
    c, term = with_number(inner, ps.Add) or (0, inner)
    if c > 0 and c != 1 and (x := _exponent(viewed(term))) is not None:
        log = _log(c, variable)
        return f"{{pt}}.softplus({{x}} - {log}) + {log}", x
    if (matched := as_softmax(inner) or _of_theano(node)) is not None:
        x, axis = matched
        return f"{{pt}}.special.log_softmax({{x}}, axis={axis})", x
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
    return None if base is None else operand_of(viewed(base), ps.Tanh)


def _log_determinant(x: Variable) -> Variable:
    """Return the second result of ``pt.linalg.slogdet``, as rewrites and ``grad`` make it."""
    slope = disconnected_grad(pt.matrix_transpose(pt.linalg.inv(x)))
    term = (x * slope).sum(axis=(-2, -1))
    return disconnected_grad(Blockwise(SLogDet())(x)[1] - term) + term


def _quotient(variable: Variable) -> Code | None:
    """Forms of tanh, and of c exp(x) / sum(c exp(x)), with a constant in the sum or without."""
    terms, total = map(viewed, variable.owner.inputs)
    if (x := of_tanh(terms, total)) is not None:
        return "{pt}.tanh({x})", x
    if (matched := as_softmax(variable)) is not None:
        x, axis = matched
        return f"{{pt}}.special.softmax({{x}}, axis={axis})", x
    x = _exponent(terms)
    c, term = with_number(total, ps.Add) or (0, total)
    if x is None or c <= 0:
        return None
    shift = "" if c == 1 else f" - {_log(c, variable)}"
    node = reduction_of(viewed(term), "sum")
    if node is None:
        return (f"{{pt}}.sigmoid({{x}}{shift})", x) if same(viewed(term), terms) else None
    if not same(node.inputs[0], terms):
        return None
    axes = node.op.axis  # exp(x) / (c + sum(exp(x))), a softmax with an entry more
    kept = axes is not None and len(axes) < x.type.ndim
    inside = f"theanoguard.stable.logsumexp({arguments('{x}', axes=axes, kept=kept)})"
    return f"{{pt}}.exp({{x}} - {{pt}}.softplus({inside}{shift}){shift})", x


def _difference(variable: Variable) -> Code | None:
    """Forms of mean(x ** 2) - mean(x) ** 2 and 1 - sigmoid(x)."""
    of_squares, squared = map(viewed, variable.owner.inputs)
    z = operand_of(squared, psm.Sigmoid)
    if z is not None and constant_number(of_squares) == 1:
        return "{pt}.sigmoid(-{x})", z
    mean = squared_base(squared)
    mean_of_squares = _mean_of(of_squares)
    own_mean = None if mean is None else _mean_of(viewed(mean))
    if mean_of_squares is None or own_mean is None:
        return None
    (squares, axes), (x, other_axes) = mean_of_squares, own_mean
    code = f"{{x}}.var({arguments(axes=axes, kept=variable.type.ndim == x.type.ndim > 0)})"
    return (code, x) if squared_base(squares) is x and axes == other_axes else None


def _power(variable: Variable) -> Code | None:
    """Form of prod(x) ** p; where p is 1 by the number of elements, it is the geometric mean."""
    product, exponent = map(viewed, variable.owner.inputs)
    node = reduction_of(product, "prod")
    if node is None:
        return None
    x, p = node.inputs[0], constant_number(exponent)
    if p is not None:
        axes = arguments(axes=node.op.axis, kept=variable.type.ndim == x.type.ndim > 0)
        return f"{{pt}}.exp({p:.17g} * {{pt}}.log({{x}}).sum({axes}))", x
    is_whole = node.op.axis is None or x.type.ndim == 1
    is_mean = is_whole and _is_one_by_length(exponent, x)
    return ("{pt}.exp({pt}.log({x}).mean())", x) if is_mean else None


def _is_one_by_length(exponent: Variable, x: Variable) -> bool:
    """Return whether a variable is ``1 / n``, where n is the length or the size of `x`."""
    if scalar_class(exponent) is ps.Reciprocal:
        number = exponent.owner.inputs[0]
    elif scalar_class(exponent) is ps.TrueDiv and constant_number(exponent.owner.inputs[0]) == 1:
        number = exponent.owner.inputs[1]
    else:
        return False
    while number.owner is not None and not isinstance(number.owner.op, Shape | Shape_i):
        is_view = isinstance(number.owner.op, (*VIEWS, *INDEXING))
        is_read = x.type.ndim == 1 and (is_view or scalar_class(number) is ps.Cast)
        if not is_read and reduction_of(number, "prod") is None:
            return False
        number = number.owner.inputs[0]
    return number.owner is not None and number.owner.inputs[0] is x


def _mean_of(variable: Variable) -> tuple[Variable, Axes] | None:
    """Return the operand of a mean, and its axes."""
    total = viewed(variable.owner.inputs[0]) if scalar_class(variable) is ps.TrueDiv else variable
    node = reduction_of(total, "sum", "mean")
    return None if node is None else (node.inputs[0], node.op.axis)


def _sum(variable: Variable) -> Code | None:
    """Forms of max(x) + log(sum(exp(x - max(x))))."""
    inputs = list(map(viewed, variable.owner.inputs))
    for top, log in (inputs, inputs[::-1]) if len(inputs) == 2 else ():
        inside = operand_of(log, ps.Log)
        total = None if inside is None else reduction_of(viewed(inside), "sum")
        maximum = reduction_of(top, "max")
        if maximum is None or total is None or maximum.op.axis != total.op.axis:
            continue
        x, axes = maximum.inputs[0], total.op.axis
        kept = variable.type.ndim == x.type.ndim > 0
        if _exponent(total.inputs[0]) is x:
            given = arguments("{x}", axes=axes, kept=kept)
            return f"theanoguard.stable.logsumexp({given})", x
    return None


_MATCHERS: dict[Any, Callable[[Variable], Code | None]] = {
    ps.Add: _sum,
    ps.Log: _logarithm,
    ps.TrueDiv: _quotient,
    ps.Sub: _difference,
    ps.Pow: _power,
}
"""The functions above, by the scalar operation that computes a variable."""
