"""Remedies: changes of the user's formula that are tried on the failing call.

The graph as the user built it is changed in one place and evaluated again.  There are two grades.
A change to *the same function* gives the exact value of the user's formula
(:mod:`~theanoguard.explain.advice.judge`).  A change that *changes the function* is shown only if
the formula has no value, and as such.
"""

import itertools
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import math as psm
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.special import Softmax

from theanoguard._evaluate import culprit
from theanoguard._graph import (
    applied_to,
    constant_number,
    operand_of,
    reduction_of,
    scalar_class,
    viewed,
)
from theanoguard._provenance import SourceLine, lookup, module_of, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard._provenance.places import place_text
from theanoguard._provenance.source import lines_of, on_one_line
from theanoguard._pytensor import without_traces
from theanoguard._steps import ForeignError, attempt
from theanoguard.explain.advice.exact import Form, exact_forms, run
from theanoguard.explain.advice.hints import GROWS, UNDERFLOWED, WITHOUT_TRIAL, with_hint
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.logarithms import InLogs, axes_text
from theanoguard.explain.advice.loops import Edit, LoopInLogs, loops_in_logs
from theanoguard.explain.advice.scaling import scalable, scaled
from theanoguard.explain.advice.source_edit import (
    Line,
    Span,
    bare,
    expression_of,
    filled,
    index_of_argument,
    listed,
)
from theanoguard.explain.advice.trials import (
    NARROW,
    AsBuilt,
    Builders,
    Spot,
    Trial,
    as_built,
    fixed,
)
from theanoguard.explain.advice.written import (
    OPERAND,
    Made,
    as_template,
    evaluated,
    is_known,
    spellings,
    with_import,
    with_modules,
)
from theanoguard.explain.facts.derivatives import derivative_text
from theanoguard.explain.facts.handed import Facts
from theanoguard.explain.facts.labels import role_of
from theanoguard.explain.facts.naming import INDEXING, name_of, number_text, op_name
from theanoguard.explain.facts.restated import in_forward_pass, place_like, unmoved
from theanoguard.explain.records import ROLES, Cause, called_function
from theanoguard.operations.facts import SCALARS
from theanoguard.stable.patterns import Build, New, rebuild, squared_base, through_views

logger = logging.getLogger("theanoguard")


@dataclass(frozen=True)
class Remedy:
    """Another way to compute a variable of the graph as built.

    Parameters
    ----------
    spot : Spot
        The operation that the remedy is for.
    text : str
        What to write, such as ``"{pt}.special.log_softmax({x}, axis=1)"``, with ``{x}`` for `x` and
        ``{pt}`` for PyTensor's module; with `in_words`, what to compute.
    builders : dict of Variable to callable
        The variables that are computed differently, as
        :func:`theanoguard.stable.patterns.rebuild` takes them.
    x : Variable or None
        The variable that the new expression is computed from.
    operand : int or None
        Position of the operand that the remedy changes, if it changes only one operand.
    in_words : bool
        Whether `text` is no code, because the remedy changes several lines.
    keyword : str
        An argument with its value, such as ``"jitter=1e-10"``, with which a function of a library
        does the same.
    changes : str
        What it changes, as a sentence with ``{x}``, if it is not the same function.
    moves : bool
        Whether it changes all values, and not only those that have no value.
    one_sign : bool
        Whether it is the same function only for numbers of the sign that they have.
    views : tuple of Apply
        As for :class:`~theanoguard.explain.advice.exact.Form`.
    larger : dict of Variable to callable
        The same change with a larger number, which must give the same results.
    around : tuple of Variable
        A variable that is the same function, if the changed variable is not, and the changed one.
    edits : tuple of Edit
        The expressions to write, where the remedy is not one expression of `x`.
    loop : LoopInLogs or None
        The loop that the edits change.
    """

    spot: Any = field(repr=False)
    text: str
    builders: dict = field(repr=False)
    x: Any = field(default=None, repr=False)
    operand: int | None = None
    in_words: bool = False
    keyword: str = ""
    changes: str = ""
    moves: bool = False
    one_sign: bool = False
    views: tuple = ()
    larger: dict = field(default_factory=dict, repr=False)
    around: tuple = ()
    edits: tuple = ()
    loop: LoopInLogs | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of trying remedies.

    Parameters
    ----------
    text : str or None
        A sentence for the user; empty if nothing helps, None if nothing was tried.
    change : tuple of str
        The user's old and new lines, in turn, or nothing.
    fact : str
        A sentence on the derivative, if a gradient is bad.
    node : Apply or None
        The operation of the graph as built on which remedies were tried.
    spots : tuple of Spot
        The operations of the graph as built that made the bad values.
    cause : Cause or None
        The cause in the forward pass, if it was taken for one in the gradient.
    lines : tuple of SourceLine
        The lines of all forward operations whose derivative may be the bad value, if several may
        be.
    judge : Judge or None
        Knows the exact value of what the call should have returned.
    grade : {"", "same", "changes"}
        As for :class:`~theanoguard.explain.advice.hints.Hint`.
    """

    text: str | None
    change: tuple[str, ...] = ()
    fact: str = ""
    node: Any = None
    spots: tuple = ()
    cause: Any = None
    lines: tuple = ()
    judge: Any = None
    grade: str = ""


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class _Guarded:
    """A change to one operand of an operation.

    Parameters
    ----------
    operand : int
    template : str
        As for :func:`~theanoguard.explain.advice.exact.run`.
    sizes : tuple of float
        They are tried in order, from the smallest change of the values to the largest.
    when : callable
        Whether the values of the operands allow the change.
    within : tuple of float or None
        The operand must lie within these ends by the way it is computed.  So it can reach the edge
        of a domain, and never cross it.
    changes : str
        What changes, with ``{x}`` for the operand; empty for a change that only undoes rounding.
    keyword : str
        The argument of a library's function that takes the number.
    steady : bool
        Whether the results must not depend on the small number: a quotient by it may be huge.
    make : callable or None
        Does what the code does, if not by running it.
    """

    operand: int
    template: str
    sizes: tuple = (0.0,)
    when: Callable = lambda values: True
    within: tuple | None = None
    changes: str = ""
    keyword: str = ""
    steady: bool = False
    make: Callable | None = None

    def applied(self, x: Variable, size: float) -> Variable:
        """Return the changed operand."""
        return run(self.template, x, size) if self.make is None else self.make(x, size)


def _jitter(x: Variable, size: float) -> Variable:
    return x + np.asarray(size, x.type.dtype) * pt.eye(x.shape[-1], dtype=x.type.dtype)


def _is_even(values: Sequence[Any]) -> bool:
    """Whether a power has a negative base, but is equal for the base's absolute value."""
    base, exponent = map(np.asarray, values)
    return bool(np.any(base < 0) and np.all(exponent % 2 == 0))


_TINY = (1e-12, 1e-9, 1e-6, 1e-3)
_FLAT = "where {x} is below {size}, the result no longer depends on it"
_AT_LEAST = _Guarded(0, "{pt}.maximum({x}, {size})", _TINY, within=(0, np.inf), changes=_FLAT)
_CLIP = _Guarded(
    0,
    "{pt}.clip({x}, -1 + {size}, 1 - {size})",
    _TINY,
    within=(-1, 1),
    changes="where {x} is within {size} of -1 or 1, the result no longer depends on it",
)
_CLIP_CLOSED = _Guarded(
    0,
    "{pt}.clip({x}, -1, 1)",
    when=lambda values: 1 < np.max(np.abs(values[0])) < 1 + 1e-6,
    changes="where {x} is outside of -1 to 1, it counts as the nearer of them",
)
_JITTER = _Guarded(
    0,
    "{x} + {size} * {pt}.eye({x}.shape[-1])",
    (1e-10, 1e-8, 1e-6, 1e-4),
    changes="{size} is added to the diagonal of every matrix",
    keyword="jitter",
    make=_jitter,
)

_ONE_FOR_ZERO = _Guarded(
    0,
    "{pt}.switch({pt}.gt({x}, 0), {x}, 1)",
    changes="where {x} is 0, 0 times its logarithm counts as 0, which is the limit",
)
_LOGS = ("log", "log2", "log10")

WITH_JITTER = ("cholesky", "matrixInverse", "det", "sLogDet", "slogdet", "solve")
"""Operations on a matrix that may be singular."""

UNROUNDED: dict[str, _Guarded] = {
    **dict.fromkeys(("arccos", "arcsin"), _Guarded(0, "{pt}.clip({x}, -1, 1)")),
    "arccosh": _Guarded(0, "{pt}.maximum({x}, 1)"),
    "sqrt": _Guarded(0, "{pt}.maximum({x}, 0)"),
    "pow": _Guarded(0, "abs({x})", when=_is_even),
}
"""Changes to an operand that rounding has moved out of the domain, by the user's operation."""

GUARDED: dict[str, tuple[_Guarded, ...]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt"), (_AT_LEAST,)),
    "pow": (replace(_AT_LEAST, steady=True),),
    "reciprocal": (replace(_AT_LEAST, steady=True),),
    "true_div": (replace(_AT_LEAST, operand=1, steady=True),),
    **dict.fromkeys(("arccos", "arcsin"), (_CLIP_CLOSED, _CLIP)),
    **dict.fromkeys(("arctanh", "erfinv"), (_CLIP,)),
    **dict.fromkeys(
        ("softmax", "logSoftmax"),
        (
            _Guarded(
                0,
                "{pt}.maximum({x}, {size})",
                (-1e9,),
                when=lambda values: not np.any(np.isnan(values[0]) | np.isposinf(values[0])),
                changes="where all of {x} is -inf, all weights are equal",
            ),
        ),
    ),
    **dict.fromkeys(WITH_JITTER, (_JITTER,)),
}
"""Changes that change the function, by the user's operation."""


def stays_within(variable: Variable, low: float, high: float, depth: int = 8) -> bool:
    """Return whether all values of a variable lie within ends, by the way they are computed.

    Examples
    --------
    >>> x = pt.dvector("x")
    >>> stays_within((x**2).sum(), 0, np.inf), stays_within(x - 1, 0, np.inf)
    (True, False)
    >>> stays_within(pt.clip(x, -1, 1), -1, 1), stays_within(x, 0, np.inf)
    (True, False)
    """
    v = viewed(variable)
    number, kind, node = constant_number(v), scalar_class(v), v.owner
    if number is not None:
        return low <= number <= high
    if node is None or depth == 0:
        return v.type.dtype.startswith(("uint", "bool")) and (low, high) == (0, np.inf)
    inputs = node.inputs

    def all_within(variables: Iterable[Variable]) -> bool:
        return all(stays_within(v, low, high, depth - 1) for v in variables)

    if kind is not None and (known := SCALARS.get(kind)) and known.range:
        return low <= known.range[0] and known.range[1] <= high
    if kind in (ps.ScalarMaximum, ps.ScalarMinimum, ps.Clip):
        ends = [constant_number(i) for i in inputs]
        floor = (
            ends[1] if kind is ps.Clip else max((e for e in ends if e is not None), default=None)
        )
        ceiling = ends[2] if kind is ps.Clip else floor
        above = kind is not ps.ScalarMinimum and floor is not None and floor >= low
        below = kind is not ps.ScalarMaximum and ceiling is not None and ceiling <= high
        return (above or low == -np.inf) and (below or high == np.inf) or all_within(inputs)
    if isinstance(node.op, (Softmax, *INDEXING)):
        return isinstance(node.op, Softmax) and low <= 0 and high >= 1 or all_within(inputs[:1])
    if reduction_of(v, "max", "min") is not None:
        return all_within(inputs)
    if (low, high) != (0, np.inf):
        return False
    if kind is ps.Sub and _is_range(*map(viewed, inputs)):
        return True
    base = squared_base(v)
    if base is not None or kind in _NEVER_NEGATIVE:
        return True
    if kind is ps.Pow:
        exponent = constant_number(inputs[1])
        return exponent is not None and exponent % 2 == 0 or all_within(inputs[:1])
    if kind in (ps.Add, ps.Mul, ps.TrueDiv, ps.Cast, ps.IntDiv) or kind is ps.Switch:
        return all_within(inputs[1:] if kind is ps.Switch else inputs)
    return isinstance(node.op, CAReduce) and all_within(inputs) or isinstance(node.op, Shape_i)


def _is_range(most: Variable, least: Variable) -> bool:
    """Return whether two variables are the largest and the smallest number of the same array."""
    if scalar_class(least) is not ps.Neg:  # (the smallest is built as -max(-x))
        return False
    top, bottom = (reduction_of(v, "max") for v in (most, viewed(least.owner.inputs[0])))
    if top is None or bottom is None or top.op.axis != bottom.op.axis:
        return False
    return operand_of(bottom.inputs[0], ps.Neg) is top.inputs[0]


_NEVER_NEGATIVE = (ps.Abs, ps.Exp, ps.Exp2, ps.Sqrt, ps.Cosh, psm.Softplus, psm.Erfc)


def same_functions(judge: Judge, backward: bool) -> Iterator[Remedy]:
    """Yield other formulas for an operation of the graph as built, or for one around it.

    Parameters
    ----------
    backward : bool
        Whether only the derivative has no value.
    """
    spot = judge.spot
    logs = _logs_near(judge)
    if len(together := _of_one_operand(spot, logs)) > 1:
        yield _with_logs(spot, together)
    for variable in _around(spot):
        for form in exact_forms(variable):
            if backward or not form.of_derivative:
                builders = _forms_like(form, variable, spot)
                found = Remedy(spot, form.template, builders, form.x)
                yield replace(found, one_sign=form.one_sign, views=form.views)
    op = op_name(spot.node.op)
    if judge.kind == "lost" and op in UNROUNDED and UNROUNDED[op].when(spot.values):
        yield _guarded(spot, UNROUNDED[op], 0.0)
    if judge.kind == "lost":
        yield from _from_maximum(spot)
    if judge.kind == "lost":
        for variable in _around(spot):
            if scalar_class(variable) is ps.TrueDiv:
                for edit, new in scaled(spot, variable):
                    yield Remedy(spot, "", {variable: fixed(new)}, edits=(edit,), in_words=True)
    for variable, in_logs in logs.items():
        words = _with_logs(spot, {variable: in_logs})
        if any(isinstance(v.owner.op, Scan) for _, v in in_logs.parts):
            around = spot if spot.body is None else judge.built.outermost(spot)
            for loop in loops_in_logs(judge.built, around, variable, in_logs.of):
                yield replace(words, edits=loop.all_edits, loop=loop)
        yield words


def _from_maximum(spot: Spot) -> Iterator[Remedy]:
    """Yield ``exp(x - max(x))`` for exponentials whose common factor does not matter.

    They are divided by their sum along an axis, or all of them appear in a quotient that has no
    degree.  They may be multiplied by numbers before, such as a mask.
    """
    for variable in _around(spot):
        if scalar_class(variable) is not ps.TrueDiv:
            continue
        terms, total = variable.owner.inputs
        node = reduction_of(viewed(total), "sum")
        axes = () if node is None or node.inputs[0] is not terms else node.op.axis
        if axes and len(axes) == 1:
            exponential = _exponential_of(terms)
            if exponential is not None:
                yield _minus_maximum(spot, variable, exponential, *axes)
        for exponential in scalable(variable):
            if scalar_class(exponential) is ps.Exp:
                yield _minus_maximum(spot, variable, exponential)


def _minus_maximum(
    spot: Spot, variable: Variable, exponential: Variable, axis: int | None = None
) -> Remedy:
    x = exponential.owner.inputs[0]
    size = ".max()" if axis is None else f".max(axis={axis}, keepdims=True)"

    def build(new: New) -> Variable:
        return pt.exp(new(x) - pt.max(new(x), axis=axis, keepdims=axis is not None))

    here, around = spot.at(exponential.owner), (variable, exponential)
    return Remedy(here, f"{{x}} - {{x}}{size}", {exponential: build}, x, 0, around=around)


def _exponential_of(terms: Variable) -> Variable | None:
    """Return the exponential that a variable is, or the only one among its factors."""
    factors = terms.owner.inputs if scalar_class(terms) is ps.Mul else [terms]
    found = [v for v in factors if scalar_class(v) is ps.Exp]
    whole = len(found) == 1 and found[0].type.broadcastable == terms.type.broadcastable
    return found[0] if whole else None


def other_functions(spot: Spot) -> Iterator[Remedy]:
    """Yield changes of the function that give a value where the formula has none."""
    yield from _from_one(spot)
    yield from _finite_masks(spot)
    if op_name(spot.node.op) in _LOGS and _only_times_zero(spot):
        yield _guarded(spot, _ONE_FOR_ZERO, 0.0)
    yield from _guards_of(spot)
    if op_name(spot.node.op) in ("true_div", "reciprocal"):
        root = viewed(spot.node.inputs[-1]).owner
        if root is not None and op_name(root.op) in ("sqrt", "pow"):
            yield from _guards_of(spot.at(root))


_LOWEST = -1e9
"""What takes the place of -inf in a mask."""


def _only_times_zero(spot: Spot) -> bool:
    """Return whether all logarithms of 0 are multiplied by 0, as in ``p * log(p)``."""
    (log,) = spot.node.outputs
    zeros = np.asarray(spot.values[0]) == 0
    if np.any(np.asarray(spot.values[0]) < 0):
        return False
    products = [c for c in spot.clients.get(log, ()) if not made_by_grad(c)]
    for product in products:
        if scalar_class(product.outputs[0]) is not ps.Mul:
            return False
        others = (spot.replay.value(v) for v in product.inputs if v is not log)
        if not any(np.all(np.broadcast_to(v, zeros.shape)[zeros] == 0) for v in others):
            return False
    return bool(products)


def _finite_masks(spot: Spot) -> Iterator[Remedy]:
    """Yield a finite number in place of each -inf that ``where`` puts in, for ``-inf - (-inf)``."""
    if op_name(spot.node.op) != "sub" or not all(np.any(np.isneginf(v)) for v in spot.values):
        return
    for variable in _around(spot):
        if scalar_class(variable) is not ps.Switch or _least(variable.type.dtype) > _LOWEST:
            continue
        for i in (1, 2):
            if constant_number(variable.owner.inputs[i]) == -np.inf:
                found, lowest = spot.at(variable.owner), partial(run, "{pt}.full_like({x}, -1e9)")
                builders = {n.outputs[0]: _with_operand(n, i, lowest) for n in found.nodes}
                changes = "where all entries are masked, all weights are equal"
                masked = variable.owner.inputs[i]
                yield Remedy(found, _number(_LOWEST), builders, masked, operand=i, changes=changes)


def _least(dtype: str) -> float:
    return np.finfo(dtype).min if np.dtype(dtype).kind == "f" else np.inf


MAX_CUMULATED = 1_000
"""Largest size of a cumulative sum for which all partial sums are computed on their own."""


def _logs_near(judge: Judge) -> dict[Variable, InLogs]:
    """Return the logarithms near an operation that can be computed from those of their parts."""
    spot = judge.spot
    around = spot if spot.body is None else judge.built.outermost(spot)
    near = list(dict.fromkeys([*_around(spot), *_around(around)]))
    if judge.kind == "harmless":  # (a logarithm that is not finite is meant)
        near = [v for v in near if not judge.built.is_bad(spot.replay.value(v))]
    return {v: logs for v in near if (logs := _in_logs(spot, v)) is not None}


def _in_logs(spot: Spot, variable: Variable) -> InLogs | None:
    """Return the logarithm from the logarithms of its parts, if a variable is a logarithm."""
    if scalar_class(variable) not in (ps.Log, ps.Log1p):
        return None
    (inner,) = variable.owner.inputs
    if scalar_class(variable) is ps.Log1p:
        inner = 1 - inner.owner.inputs[0] if scalar_class(inner) is ps.Neg else 1 + inner
    found = InLogs(inner)
    cumulated = [v for _, v in found.parts if isinstance(getattr(v.owner, "op", None), CumOp)]
    if any(np.size(spot.replay.value(v)) > MAX_CUMULATED for v in cumulated):
        return None
    return found if found.parts else None


def _of_one_operand(spot: Spot, near: dict[Variable, InLogs]) -> dict[Variable, InLogs]:
    """Return the logarithm that an operation computes, and the others of its operand.

    So ``log(p)`` and ``log(1 - p)`` are changed together, where p is ``sigmoid(z)``.
    """
    (own,) = spot.node.outputs[:1]
    if own not in near or (code := near[own].code()) is None:
        return {}
    found = {own: near[own]}
    for node in spot.all_nodes:
        logs = None if node.outputs[0] in found else _in_logs(spot, node.outputs[0])
        if logs is None or made_by_grad(node):
            continue
        other = logs.code()
        if other is not None and set(other[1].values()) == set(code[1].values()):
            found[node.outputs[0]] = logs
    return found


def _with_logs(spot: Spot, found: dict[Variable, InLogs]) -> Remedy:
    """Return the remedy that computes some logarithms from the logarithms of their parts."""
    parts = [part for logs in found.values() for part in logs.parts]
    text = _parts_text(parts, source_place(next(iter(found))))
    edits = [_edit_of(spot, v, logs) for v, logs in found.items()]
    builders = {v: logs.build for v, logs in found.items()}
    written = tuple(edits) if None not in edits else ()
    return Remedy(spot, text, builders, in_words=True, edits=written)


def _edit_of(spot: Spot, variable: Variable, logs: InLogs) -> Edit | None:
    """Return the code of a logarithm, for all variables that the same line computes."""
    if (written := logs.code()) is None:
        return None
    code, operands = written
    alike = {variable: list(operands.values())}
    for node in spot.at(variable.owner).nodes:
        same = _in_logs(spot, node.outputs[0])
        other = None if same is None else same.code()
        if other is not None and other[0] == code:
            alike[node.outputs[0]] = list(other[1].values())
    return Edit(variable, code, operands, spot, alike)


MAX_PARTS = 6
"""Largest number of parts of a logarithm that a report lists."""


def _parts_text(parts: Sequence[tuple[str, Variable]], line: SourceLine | None) -> str:
    """Return what is computed in place of what, and on which line."""
    places: dict[str, dict[str, None]] = {}
    for what, variable in parts:
        place = source_place(variable)
        where = "" if place is None else _on_lines([place], _in_one_file([place], line))
        places.setdefault(where, {})[what] = None
    if len(places) > 1:
        places.pop("", None)  # (the user did not write what has no line, such as a transform)
    texts = [listed(what) + where for where, what in places.items()]
    more = [f"{len(texts) - MAX_PARTS} more"] if len(texts) > MAX_PARTS else []
    return f"logarithms throughout ({'; '.join([*texts[:MAX_PARTS], *more])})"


def _guards_of(spot: Spot) -> Iterator[Remedy]:
    """Yield changes to one operand of an operation, the smallest change first."""
    node, values = spot.node, spot.values
    for guarded in GUARDED.get(op_name(node.op), ()):
        if len(node.inputs) <= guarded.operand or not guarded.when(values):
            continue
        operand = node.inputs[guarded.operand]
        if guarded.within is None or stays_within(operand, *guarded.within):
            whole = operand.type.dtype[:3] in ("int", "uin")
            for size in (1,) if whole else guarded.sizes:
                yield _tightened(spot, guarded, size) or _guarded(spot, guarded, size)


def _tightened(spot: Spot, guarded: _Guarded, size: float) -> Remedy | None:
    """Return the change of a bound that the user has written already, or None.

    So ``arccos(clip(x, -1, 1))`` does not get a second clip.
    """
    bounded = spot.node.inputs[guarded.operand]
    node, called = bounded.owner, guarded.template.partition("(")[0].removeprefix("{pt}.")
    if node is None or called not in ("clip", "maximum") or op_name(node.op) != called:
        return None
    inside = [v for v in node.inputs if constant_number(v) is None]
    if len(inside) != 1 or not spot.name_in(inside[0], bounded):
        return None

    def builder(node: Apply, position: int) -> Build:
        return lambda new: guarded.applied(new(node.inputs[position]), size)

    found, position = spot.at(node), node.inputs.index(inside[0])
    text = guarded.template.replace("{size}", _number(size))
    builders = {n.outputs[0]: builder(n, position) for n in found.nodes}
    changes = guarded.changes.replace("{size}", _number(size))
    return Remedy(found, text, builders, inside[0], changes=changes)


def _forms_like(form: Form, variable: Variable, spot: Spot) -> Builders:
    """Return builders of the same form for all variables that the same line has built."""
    builders = {variable: form.build}
    for node in spot.at(variable.owner).nodes if variable.owner is not None else ():
        same = (f for f in exact_forms(node.outputs[0]) if f.template == form.template)
        builders.update((node.outputs[0], f.build) for f in same)
    return builders


def _from_one(spot: Spot) -> Iterator[Remedy]:
    """Yield the correction of ``m / (1 - beta ** t)`` where the count t begins at 0."""
    if op_name(spot.node.op) != "true_div":
        return
    rest = viewed(spot.node.inputs[1])
    if scalar_class(rest) is not ps.Sub or constant_number(rest.owner.inputs[0]) != 1:
        return
    power = viewed(rest.owner.inputs[1])
    if scalar_class(power) is not ps.Pow:
        return
    count = viewed(power.owner.inputs[1])
    if np.any(np.asarray(spot.replay.value(count)) != 0):
        return
    powers = [
        node
        for node in spot.all_nodes
        if scalar_class(node.outputs[0]) is ps.Pow and viewed(node.inputs[1]) is count
    ]

    def builder(node: Apply) -> Build:
        return lambda new: new(node.inputs[0]) ** (new(node.inputs[1]) + 1)

    found, builders = spot.at(power.owner), {c.outputs[0]: builder(c) for c in powers}
    changes = "{x} counts from 0, and the formula needs a count from 1"
    yield Remedy(found, "({x} + 1)", builders, count, 1, changes=changes, moves=True)


def _inside(name: str, template: str) -> str:
    """Return a name for insertion into a template, in parentheses if that is needed."""
    plain = all(c.isalnum() or c in "_.[](), :" for c in name)
    return name if plain or "{x}." not in template and "{x} " not in template else f"({name})"


def _guarded(spot: Spot, guarded: _Guarded, size: float) -> Remedy:
    def builders_with(size: float) -> Builders:
        change = partial(guarded.applied, size=size)
        return {n.outputs[0]: _with_operand(n, guarded.operand, change) for n in spot.nodes}

    template = guarded.template.replace("{size}", _number(size))
    builders = builders_with(size)
    larger = builders_with(1e3 * size) if guarded.steady else {}
    operand = spot.node.inputs[guarded.operand]
    changes = guarded.changes.replace("{size}", _number(size))
    if guarded is _JITTER and module_of(spot.node.outputs[0]) != "pt":  # (they have no `eye`)
        name = spot.name_in(operand, spot.node.outputs[0])
        text = f"{_number(size)} added to the diagonal of {name or 'its operand'}"
        return Remedy(spot, text, builders, operand, in_words=True, changes=changes)
    keyword = f"{guarded.keyword}={_number(size)}" if guarded.keyword else ""
    found = Remedy(spot, template, builders, operand, guarded.operand)
    return replace(found, keyword=keyword, changes=changes, larger=larger)


def _with_operand(node: Apply, position: int, change: Callable[[Variable], Variable]) -> Build:
    """Return what builds a node with another operand."""

    def build(new: New) -> Variable:
        inputs = [new(v) for v in node.inputs]
        inputs[position] = change(inputs[position])
        return applied_to(node, inputs)[0]

    return build


def _number(size: float) -> str:
    """Return a number as code.

    Examples
    --------
    >>> _number(1e-9), _number(0.001), _number(20.0)
    ('1e-9', '0.001', '20')
    """
    return f"{size:g}".replace("e-0", "e-").replace("e+0", "e")


def _around(spot: Spot) -> list[Variable]:
    """Return the outputs of a spot, and the variables a few steps down- and upstream of them."""
    down = up = list(spot.node.outputs)
    found = down[:]
    for _ in range(5):
        down = [c.outputs[0] for v in down for c in spot.clients.get(v, ())][:20]
        up = [i for v in up if v.owner is not None for i in v.owner.inputs][:20]
        found += down + up
    return list(dict.fromkeys(found))


def try_remedies(facts: Facts) -> Outcome | None:
    """Try possible remedies on the call that failed.

    Returns
    -------
    Outcome or None
        The remedy that helps.  Its text is empty if nothing helps.  None if nothing could be
        tried.
    """
    last = deque[Outcome](maxlen=1)
    search = _as_far_as_it_runs(_search(facts))
    attempt("a change that helps", None, last.extend, search)
    return last[0] if last else None


def _as_far_as_it_runs(search: Iterator[Outcome]) -> Iterator[Outcome]:
    """Yield what a search finds until it needs something of the user's that cannot be run."""
    try:
        with without_traces(), np.errstate(all="ignore"):
            yield from search
    except ForeignError as error:
        logger.debug("a remedy could not be tried: %r", error)


def _search(facts: Facts) -> Iterator[Outcome]:
    """Yield outcomes, each of which knows more than the one before."""
    cause, mask = facts.blamed, facts.mask
    trial = cause.hint is not None and cause.hint.key not in WITHOUT_TRIAL
    built = as_built(facts)
    if built is None:
        return
    failed = built.failed_forward() if cause.backward else None
    if failed is not None:
        cause = in_forward_pass(cause, failed, built.original(failed), mask)
        cause = with_hint(cause, unless=UNDERFLOWED)
        tried = replace(_tried_on(built, failed, cause), spots=(failed,), cause=cause)
        yield tried
        for spot in () if tried.text else _makers_of_infinity(built, failed):
            here = in_forward_pass(cause, spot, built.original(spot), culprit.not_finite)
            found = _tried_on(built, spot, here)
            if found.grade == "same":
                yield replace(tried, text=found.text, change=found.change, grade="same")
        return
    own = tuple(built.spots_of(cause))
    spots = own if cause is facts.cause else (*own, *built.spots_of(facts.cause))
    lines = _lines_of(own) if cause.backward and len(own) > 1 else ()
    known = Outcome(None, spots=spots, lines=lines) if own else None
    if known is not None:
        yield known
    if own and not trial:
        judge = Judge(built, own[0], place_like(cause, own[0]))
        trial = judge.kind == "lost"
        text = "" if cause.kind == "big" else None
        known = Outcome(text, spots=spots, lines=lines, judge=judge)
        yield known
    for spot in own if trial else ():
        found = replace(_tried_on(built, spot, cause), spots=spots, lines=lines)
        if found.text:
            yield found
            return
        if known is None or known.node is None:
            known = found
            yield known
    is_lost = known is not None and known.judge is not None and known.judge.kind == "lost"
    smaller = None if is_lost else _with_less_growth(built, cause, known)
    if smaller is not None:
        yield smaller
    elif known is None and trial and (as_written := _finite_as_written(built, cause)) is not None:
        yield as_written


def _lines_of(spots: Iterable[Spot]) -> tuple[SourceLine, ...]:
    places = (source_place(spot.node.outputs[0]) for spot in spots)
    return tuple(dict.fromkeys(place for place in places if place is not None))


_SMALLER = (2, 10, 100)
"""By how much a number is divided that may let the values of a loop grow."""


def _with_less_growth(built: AsBuilt, cause: Cause, known: Outcome | None) -> Outcome | None:
    """Return the outcome with a number that, if it is smaller, keeps a loop from growing."""
    if not cause.path or cause.hint is None:
        return None
    if cause.hint.key not in GROWS and cause.kind != "big":
        return None
    bad = "no such value" if cause.kind == "big" else "finite values"
    for leaf, size in itertools.product(built.leaves_of_loops(), _SMALLER):
        if leaf.name and built.is_sound_with(leaf, size):
            what = f"{leaf.name} / {size} in place of the {ROLES[role_of(leaf)]} {leaf.name}"
            fact, otherwise, _ = cause.hint.text.partition("; else ")
            text = f"With {what} this call gives {bad}."
            return replace(known or Outcome(None), text=text, fact=fact if otherwise else "")
    return None


FOLDS_SUMS = "local_add_canonizer"
"""PyTensor's rewrite that adds up the constants of a sum."""


def _finite_as_written(built: AsBuilt, cause: Cause) -> Outcome | None:
    """Return the rewrite that made a bad value, if the graph as written is finite; else None."""
    found = built.finite_as_written(cause)
    if found is None:
        return None
    spot, position = found
    name = spot.name_of(spot.node.inputs[position]) or "the operand"
    value = built.least(spot.values[position])
    source = source_place(spot.node.outputs[0])
    where = f" on line {source.line}" if source is not None else ""
    constant = built.folded_away(spot.node.inputs[position])
    names = [step.reason for step in cause.provenance.history]
    if constant is None:
        changed = f"PyTensor's rewrite {names[0]} changed it" if names else "a rewrite changed it"
    else:
        changed = f"`{constant}` was folded away by {FOLDS_SUMS}, which puts constants together"
    text = f"As it is written, {name}{where} is {number_text(value)}, and the result is finite;"
    text += f" {changed}."
    if constant is None and names:
        text += f' Compile with mode.excluding("{names[0]}") to leave the rewrite out.'
    if constant is not None:
        text += " A maximum(x, eps) in its place stays."
    return Outcome(text, node=built.original(spot))


def _tried_on(built: AsBuilt, spot: Spot, cause: Cause) -> Outcome:
    """Return the :class:`Outcome` of the remedies for one operation."""
    op = op_name(spot.node.op)
    fact = derivative_text(op, spot.values, position(cause)) if cause.backward else ""
    judge = Judge(built, spot, None if cause.backward else place_like(cause, spot))
    outcome = Outcome("", fact=fact, node=built.original(spot), judge=judge)
    # (an infinite operand has no exact value, such as the logarithm of a probability of 0)
    may_be_same = judge.kind != "none" or cause.backward or _reads_infinity(spot)
    for remedy in same_functions(judge, cause.backward) if may_be_same else ():
        told = _told(remedy, judge, cause)
        if told is not None and _is_same_around(remedy, judge):
            return replace(outcome, text=told[0], change=told[1], grade="same")
    # (of a matrix with equal rows, rounded entries cannot show that it is singular)
    if judge.kind == "none" or (judge.kind == "unknown" and op in WITH_JITTER):
        for remedy in other_functions(spot):
            told = _told(remedy, judge, cause)
            if told is not None:
                return replace(outcome, text=told[0], change=told[1], grade="changes")
    for text in _on_whole_call(judge, cause):
        return replace(outcome, text=text)
    return outcome


def _makers_of_infinity(built: AsBuilt, spot: Spot) -> Iterator[Spot]:
    """Yield the user's operations that made the infinite operands of a NaN from finite numbers."""
    for variable, value in zip(spot.node.inputs, spot.values, strict=True):
        maker = variable.owner
        if maker is None or made_by_grad(built.original(spot.at(maker))):
            continue
        if built.is_bad(value) and not any(map(built.is_bad, spot.at(maker).values)):
            yield spot.at(maker)


def _reads_infinity(spot: Spot) -> bool:
    values = map(np.asarray, spot.values)
    return any(v.dtype.kind == "f" and bool(np.isinf(v).any()) for v in values)


def _is_same_around(remedy: Remedy, judge: Judge) -> bool:
    """Return whether a remedy is the same function around the failing input as well."""
    if remedy.around:
        whole, changed = remedy.around
        inside = remedy.builders[changed]
        return judge.holds_around(
            whole,
            lambda new: rebuild([whole], {changed: inside, remedy.x: lambda _: new(remedy.x)})[0],
            [remedy.x],
        )
    if remedy.loop is not None:
        return all(edit.holds_around(judge) for edit in remedy.edits)
    for edit in remedy.edits:
        real = {name: v for name, v in edit.operands.items() if v.type.dtype[:5] == "float"}
        factors = [v for name, v in real.items() if f"pt.log({name})" in edit.code]
        build = remedy.builders[edit.variable]
        if real and not judge.holds_around(edit.variable, build, list(real.values()), factors):
            return False
    if remedy.x is None or remedy.operand is not None:
        return True
    variable, build = next(iter(remedy.builders.items()))  # (the others are built alike)
    keeps_sign = [remedy.x] if remedy.one_sign else []
    return judge.holds_around(variable, build, [remedy.x], keeps_sign)


def _tried(remedy: Remedy, builders: Builders, judge: Judge) -> Trial | None:
    """Return the trial of a remedy if it may be shown; else None."""
    trial = judge.built.attempt(builders)
    if trial is None or not judge.is_mended(trial):
        return None
    if (remedy.changes or remedy.moves) and not judge.keeps_earlier_call(trial):
        return None
    if remedy.moves:
        return trial
    if remedy.larger and not _is_steady(trial, judge.built.attempt(remedy.larger)):
        return None
    is_right = judge.keeps if remedy.changes else judge.is_right
    return trial if is_right(trial) else None


def _is_steady(trial: Trial, other: Trial | None) -> bool:
    """Return whether two trials give the same results."""
    if other is None:
        return False
    for variable, value in trial.values.items():
        scale = float(np.max(np.abs(value), initial=0))
        if not np.allclose(value, other.values[variable], rtol=1e-9, atol=1e-9 * scale):
            return False
    return True


OVERFLOWED = ("product-overflow", "sum-overflow", "dot-overflow")
"""Hints for results that exceed the largest number of their dtype."""


def _on_whole_call(judge: Judge, cause: Cause) -> Iterator[str]:
    """Yield sentences on changes that help, but that are not a change to one operation."""
    built = judge.built
    if cause.dtype in NARROW:
        trial = built.in_float64()
        if trial is not None and judge.is_mended(trial) and judge.is_right(trial):
            yield f"With float64 in place of {cause.dtype} {trial.text}."
    if cause.hint is not None and cause.hint.key in OVERFLOWED:
        for leaf, size in built.large_leaves(judge.spot):
            if leaf.name and built.is_sound_with(leaf, size):
                name, role = leaf.name, ROLES[role_of(leaf)]
                yield (
                    f"With {name} / {_number(size)} in place of the {role} {name} this call gives"
                    " finite values."
                )


_CALLED = re.compile(r"\w+(?=\()").findall


def _takes_labels(text: str) -> bool:
    """Return whether labelled arrays have all functions of a remedy.  They have no axes."""
    math = sys.modules["pytensor.xtensor.math"]
    return "axis" not in text and all(hasattr(math, name) for name in _CALLED(text))


def position(cause: Cause) -> int:
    """Return the position of the bad element among all elements."""
    return int(np.ravel_multi_index(cause.index, cause.shape)) if cause.shape else 0


MAX_NAME = 30
"""Length of the longest expression that a sentence on a change repeats."""


Told: TypeAlias = tuple[str, tuple[str, ...]]
"""A remedy as a sentence, with the user's old and new lines in turn."""


def _told(remedy: Remedy, judge: Judge, cause: Cause) -> Told | None:
    """Return what a report says about a remedy; None if it does not help.

    The number that is quoted is the result of the code that is printed, in the user's module.
    """
    if remedy.loop is not None:
        return _told_edits(remedy, judge, cause.source)
    trial = _tried(remedy, remedy.builders, judge)
    if trial is None:
        return None
    if (told := _told_edits(remedy, judge, cause.source)) is not None:
        return told
    if remedy.in_words and not is_known(remedy.text, cause.source):
        return None
    lines: dict[str, list[SourceLine]] = {}
    change: tuple[str, ...] = ()
    for source, marked in () if remedy.in_words else _places(remedy, cause):
        found = _printed(remedy, judge, source, marked)
        if found is None:
            return None
        what, edit, trial = found
        lines.setdefault(what, []).append(source)
        change += edit
    if len(set(change[::2])) < len(change[::2]):  # (two changes of one line)
        change = ()
    near = _in_one_file([place for places in lines.values() for place in places], cause.source)
    text = " and ".join(what + _on_lines(places, near) for what, places in lines.items())
    text = text or _in_place_of(remedy) or _in_words(remedy, remedy.text)
    if not remedy.changes:
        return (f"With {text} {trial.text}.", change)
    name = remedy.spot.name_of(remedy.x)
    name = name if name and len(name) <= MAX_NAME else "it"
    changes = remedy.changes.replace("{x}", name)
    return (f"This changes the function: with {text} {trial.text}; {changes}.", change)


def _told_edits(remedy: Remedy, judge: Judge, source: SourceLine | None) -> Told | None:
    """Return what a report says about the expressions of a remedy; None if they cannot be written.

    They are run in the user's module.
    """
    made: dict[int, Made] = {}
    lines: dict[tuple, tuple] = {}
    said: dict[tuple, list[str]] = {}
    for edit in sorted(remedy.edits, key=lambda e: _column(_place_of(e)), reverse=True):
        place = _place_of(edit)
        if place is None or (found := _written_edit(edit, place)) is None:
            return None
        text, made[id(edit)] = found
        whole = on_one_line(place)
        here = place.file, place.line
        old = lines.get(here, (place, whole.text))[1]
        replacement = Line(old, [whole.marked], _default_module(remedy)).with_marked(text)
        if replacement is None:
            return None
        what, new = replacement
        lines[here] = place, new
        said.setdefault(here, []).insert(0, bare(what))
    builders = _builders_of(remedy, [made[id(edit)] for edit in remedy.edits])
    trial = _tried(remedy, builders, judge) if builders else None
    change: tuple[str, ...] = ()
    for _, (place, new) in sorted(lines.items()):
        line = with_import(new, place.file, place.line, on_one_line(place).text)
        if line is None:
            return None
        change += "\n".join(lines_of(place)), line
    if trial is None:
        return None
    near = _in_one_file([place for place, _ in lines.values()], source)
    texts = [
        listed(what) + _on_lines([lines[here][0]], near) for here, what in sorted(said.items())
    ]
    if remedy.loop is not None:  # (the lines are printed, and the sentence would repeat them)
        places = [place for _, (place, _) in sorted(lines.items())]
        texts = [f"the state of the loop in logarithms{_on_lines(places, near)}"]
    return (f"With {listed(texts)} {trial.text}.", change)


def _place_of(edit: Edit) -> SourceLine | None:
    return edit.place or source_place(edit.variable)


def _column(place: SourceLine | None) -> int:
    return place.marked[0] if place is not None and place.marked else 0


def _builders_of(remedy: Remedy, made: list[Made]) -> Builders:
    """Return what builds the results, from what the code of the edits makes of its operands."""
    if remedy.loop is not None:
        return remedy.loop.builders(made)
    pairs = zip(remedy.edits, made, strict=True)
    return {v: _from_operands(m, o) for edit, m in pairs for v, o in edit.alike.items()}


def _from_operands(made: Made, operands: list[Variable]) -> Callable:
    return lambda new: made.of(*map(new, operands))


def _written_edit(edit: Edit, place: SourceLine) -> tuple[str, Made] | None:
    """Return the code of an expression with the user's names, and what it makes of operands."""
    if module_of(edit.variable) != "pt":
        return None
    names = _names_for(edit)
    names = {k: v and with_modules(v, place.file, place.line) for k, v in names.items()}
    if None in names.values() or not all(map(expression_of, names.values())):
        return None
    for template in spellings(as_template(edit.code, place.file), place.file, place.text):
        made = evaluated(template, edit.operands, place.file)
        if made is not None:
            return filled(template, names), made
    return None


def _names_for(edit: Edit) -> dict[str, Any]:
    """Return how the user writes the operands of an edit, with the axes that broadcast them."""
    names, spot = {}, edit.spot
    for operand, variable in edit.operands.items():
        if variable is edit.variable and edit.place is not None and edit.place.marked:
            names[operand] = edit.place.text[slice(*edit.place.marked)]
            continue
        names[operand] = name = spot.name_in(variable, edit.variable)
        node = variable.owner
        if name and node is not None and isinstance(node.op, DimShuffle):
            (inner,) = node.inputs
            is_named = name == spot.name_in(inner, edit.variable)  # (a view, as its base)
            if is_named and source_place(inner) != source_place(variable):  # (not of one call)
                names[operand] = name + axes_text(node.op.new_order, inner.type.ndim)
    return names


MAX_WRITTEN = 150
"""Largest number of characters of code that a sentence holds."""


def _in_place_of(remedy: Remedy) -> str | None:
    """Return the code of the edits of a remedy, for whom no line has all names; None if long."""
    texts = []
    for edit in remedy.edits:
        old, place = remedy.spot.name_of(edit.variable), source_place(edit.variable)
        names = _names_for(edit)
        if place is None or None in (old, *names.values()):
            return None
        for template in spellings(as_template(edit.code, place.file), place.file, place.text)[:1]:
            texts.append(f"{bare(filled(template, names))} in place of {old}")
    return listed(texts) if texts and len(listed(texts)) <= MAX_WRITTEN else None


def _in_one_file(places: list[SourceLine], source: SourceLine | None) -> bool:
    """Return whether the lines of a remedy are in the file of the line that a report shows."""
    return len({place.file for place in (*places, source) if place is not None}) <= 1


def _on_lines(places: list[SourceLine], in_one_file: bool) -> str:
    """Return where a change is, with the files if there are several.

    Examples
    --------
    >>> places = [SourceLine(file, 13 + i, "loss", "") for i, file in enumerate(["a.py", "b.py"])]
    >>> _on_lines(places[:1], True), _on_lines(places, True), _on_lines(places, False)
    (' on line 13', ' on lines 13 and 14', ' at a.py:13 and b.py:14')
    """
    if not in_one_file:
        return f" at {listed([_at(place) for place in dict.fromkeys(places)])}"
    known = [str(n) for n in dict.fromkeys(place.line for place in places)]
    return f" on line{'s' * (len(known) > 1)} {listed(known)}" if known else ""


def _at(place: SourceLine) -> str:
    return place_text(replace(place, function="<module>"), column=False)


def _places(remedy: Remedy, cause: Cause) -> list[tuple[SourceLine, list[Span | None]]]:
    """Return the user's lines that a remedy changes, each with the marked expressions."""
    spot = remedy.spot
    own = [v for v in remedy.builders if not made_by_grad(v.owner)] or remedy.builders
    found = [source_place(v) for v in own]
    if not any(found) and remedy.operand is not None:
        found = [source_place(spot.node.outputs[0])]
    if not any(found) and op_name(spot.node.op) == cause.op:  # (PyMC's copies have no traces)
        recorded = lookup(None, spot.node.outputs[0])
        found = [recorded.source if recorded.own_source else cause.source]
    places = [place for place in found if place is not None]
    by_line: dict[tuple[str, int], list[SourceLine]] = {}
    for place in sorted(places, key=lambda place: (place.file, place.line)):
        by_line.setdefault((place.file, place.line), []).append(place)
    return [(here[0], [p.marked for p in here]) for here in by_line.values()]


def _default_module(remedy: Remedy) -> str:
    return module_of(remedy.spot.node.outputs[0])


def _printed(
    remedy: Remedy, judge: Judge, source: SourceLine, marked: list[Span | None]
) -> tuple[str, tuple[str, ...], Trial] | None:
    """Return what a remedy writes, the user's line before and after it, and the trial of that.

    The result is None if no way to write it runs in the user's module.
    """
    labelled = _default_module(remedy)
    if labelled != "pt":  # (the graph holds tensors, to which its functions do not apply)
        trial = _tried(remedy, remedy.builders, judge)
        found = _takes_labels(remedy.text) and _edit(remedy, remedy.text, source, marked, labelled)
        return (*found, trial) if found and trial is not None else None
    for template in spellings(remedy.text, source.file, source.text):
        code = template.replace("{x}", OPERAND)
        made = evaluated(code, {OPERAND: remedy.x}, source.file)
        trial = None if made is None else _tried(remedy, _with_printed(remedy, made), judge)
        if made is not None and trial is None:
            trial = _tried(remedy, _with_printed(remedy, made.rewritten()), judge)
        if trial is not None:
            found = _edit(remedy, template, source, marked, labelled)
            if found is None and remedy.spot.name_of(remedy.x) is not None:
                found = _in_words(remedy, template), ()
            return None if found is None else (*found, trial)
    return None


def _with_printed(remedy: Remedy, made: Made) -> Builders:
    """Return the builders of a remedy, of which the first runs the printed code."""
    first, *others = remedy.builders

    def build(new: New) -> Variable:
        if remedy.operand is None:
            return through_views(list(remedy.views), made.of(new(remedy.x)), new)
        return _with_operand(first.owner, remedy.operand, made.of)(new)

    return {first: build, **{v: remedy.builders[v] for v in others}}


def _edit(
    remedy: Remedy, template: str, source: SourceLine, marked: list[Span | None], module: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return what a remedy writes, with the line before and after it; None if it cannot be."""
    spot, written = remedy.spot, lines_of(source)
    if source.end is not None:
        source = on_one_line(source)
        marked = [source.marked]
    line = Line(source.text, marked, module)
    if remedy.operand is None:
        name = spot.name_in(remedy.x, next(iter(remedy.builders)))
        name = _variance_of(source, marked[0]) or name
        name = name and with_modules(name, source.file, source.line)
        text = template.replace("{x}", _inside(name, template)) if name else ""
        if remedy.views:
            text, name = text + (index := index_of_argument(source.text, marked[0])), name and index
        found = line.with_marked(text) if name else None
    else:
        op = op_name(next(iter(remedy.builders)).owner.op)
        found = (
            line.with_operand(op, remedy.operand, template)
            or line.with_keyword(remedy.keyword)
            or line.with_expression(name_of(unmoved(remedy.x), own=spot.name_of), template)
        )
    if found is None:
        return None
    what, changed = found
    new = with_import(changed, source.file, source.line, line.code)
    return None if new is None else (bare(what), ("\n".join(written), new))


def _variance_of(source: SourceLine, marked: Span | None) -> str | None:
    """Return the variance of which a line takes the root with ``std``, or None."""
    called = called_function(replace(source, marked=marked))
    if called != "std" or marked is None:
        return None
    begin, end = marked
    return re.sub(r"\bstd\(", "var(", source.text[begin:end], count=1)


def _in_words(remedy: Remedy, template: str) -> str:
    """Return what a remedy writes if the user's line cannot be edited."""
    name = None if remedy.x is None else remedy.spot.name_of(remedy.x)
    name = _inside(name or "x", template)
    return template.replace("{x}", name).replace("{pt}", _default_module(remedy))
