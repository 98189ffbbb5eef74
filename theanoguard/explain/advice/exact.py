"""Equivalent forms of the user's expressions that do not overflow or underflow.

Each matcher returns the code of a form, with ``{x}`` for the name of one variable and ``{pt}`` for
PyTensor's module, and the variable.  The code is run for a trial and printed in the user's names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.summary import SLogDet

from theanoguard._graph import (
    constant_number,
    operand_of,
    reduction_of,
    scalar_class,
    viewed,
    with_number,
)
from theanoguard.operations.names import op_name
from theanoguard.stable import forms
from theanoguard.stable.patterns import Build

Axes: TypeAlias = tuple[int, ...] | None
"""The axes of a reduction; None for all."""

Code: TypeAlias = tuple[str, Variable]
"""The template and the variable of a :class:`Form`."""


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
    """

    template: str
    x: Variable
    build: Build


def exact_forms(variable: Variable) -> Iterator[Form]:
    """Yield the forms that are equivalent to a variable of the graph as built."""
    matcher = {ps.Add: _sum, ps.Log: _logarithm}.get(scalar_class(variable))
    if matcher is not None and (found := matcher(variable)) is not None:
        template, x = found
        build = _build_of(template, x)
        if build(lambda v: v).type.ndim == variable.type.ndim:  # (else it was reshaped afterwards)
            yield Form(template, x, build)


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


# ---------------------------------------------------------------- parts of formulas


def same(one: Variable, other: Variable) -> bool:
    """Return whether two variables are the same expression of the same variables."""
    if one is other:
        return True
    if one.owner is None or other.owner is None or one.owner.op != other.owner.op:
        return constant_number(one) is not None and constant_number(one) == constant_number(other)
    pairs = zip(one.owner.inputs, other.owner.inputs, strict=True)
    return one.index == other.index and all(same(a, b) for a, b in pairs)


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
    """Forms of logarithms that identities do not know: of determinants, and of Theano's softmax."""
    inner = viewed(variable.owner.inputs[0])
    node = inner.owner
    if node is None:
        return None
    if op_name(node.op) == "det":
        return _LOG_DETERMINANT, node.inputs[0]
    if (matched := _of_theano(node)) is not None:
        x, axis = matched
        return f"{{pt}}.special.log_softmax({{x}}, axis={axis})", x
    return None


def _of_theano(node: Apply) -> tuple[Variable, int] | None:
    """Return ``x`` and the axis if a node is Theano's softmax, which takes rows."""
    is_it = type(node.op).__module__.startswith("theano.") and op_name(node.op) == "softmax"
    return (node.inputs[0], 1) if is_it else None


def _log_determinant(x: Variable) -> Variable:
    """Return the second result of ``pt.linalg.slogdet``, as rewrites and ``grad`` make it."""
    slope = disconnected_grad(pt.matrix_transpose(pt.linalg.inv(x)))
    term = (x * slope).sum(axis=(-2, -1))
    return disconnected_grad(Blockwise(SLogDet())(x)[1] - term) + term


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
