"""Find changes of the user's formula that may help the failing call.

There are two grades.  A change to *the same function* gives the exact value of the user's formula
(:mod:`~theanoguard.explain.advice.judge`).  A change that *changes the function* is for a formula
that has no value.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import math as psm
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.special import Softmax

from theanoguard._graph import (
    applied_to,
    constant_number,
    operand_of,
    reduction_of,
    scalar_class,
    viewed,
)
from theanoguard._naming import INDEXING
from theanoguard._provenance import SourceLine, module_of, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard.explain.advice.edits import Edit
from theanoguard.explain.advice.exact import Form, exact_forms, run
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.logarithms import InLogs
from theanoguard.explain.advice.scaling import scalable, scaled
from theanoguard.explain.advice.source_edit import listed
from theanoguard.explain.advice.trials import Builders, Spot, fixed
from theanoguard.explain.advice.written import in_one_file, on_lines
from theanoguard.operations.facts import SCALARS
from theanoguard.operations.names import op_name
from theanoguard.stable.patterns import Build, New, squared_base


@dataclass(frozen=True)
class Remedy:
    """Another way to compute a variable of the graph as built."""

    spot: Any = field(repr=False)  # the operation that the remedy is for
    #: What to write, such as ``"{pt}.special.log_softmax({x}, axis=1)"``, with ``{x}`` for `x` and
    #: ``{pt}`` for PyTensor's module; with `in_words`, what to compute.
    text: str
    #: The variables that are computed differently, as :func:`theanoguard.stable.patterns.rebuild`
    #: takes them.
    builders: dict = field(repr=False)
    #: The variable that the new expression is computed from.
    x: Any = field(default=None, repr=False)
    #: Position of the operand that the remedy changes, if it changes only one operand.
    operand: int | None = None
    in_words: bool = False  # whether `text` is no code, because the remedy changes several lines
    #: An argument with its value, such as ``"jitter=1e-10"``, with which a function of a library
    #: does the same.
    keyword: str = ""
    changes: str = ""  # what it changes, as a sentence with ``{x}``, if it is not the same function
    moves: bool = False  # whether it changes all values, and not only those that have no value
    #: Whether it is the same function only for numbers of the sign that they have.
    one_sign: bool = False
    views: tuple = ()  # as for :class:`~theanoguard.explain.advice.exact.Form`
    #: The same change with a larger number, which must give the same results.
    larger: dict = field(default_factory=dict, repr=False)
    #: A variable that is the same function, if the changed variable is not, and the changed one.
    around: tuple = ()
    edits: tuple = ()  # the expressions to write, where the remedy is not one expression of `x`
    #: Whether the line has also built variables of which this is not the formula.
    otherwise: bool = False


@dataclass(frozen=True)
class _Guarded:
    """A change to one operand of an operation."""

    operand: int
    template: str  # as for :func:`~theanoguard.explain.advice.exact.run`
    #: They are tried in order, from the smallest change of the values to the largest.
    sizes: tuple = (0.0,)
    when: Callable = lambda values: True  # whether the values of the operands allow the change
    #: The operand must lie within these ends by the way it is computed.  So it can reach the edge
    #: of a domain, and never cross it.
    within: tuple | None = None
    #: What changes, with ``{x}`` for the operand; empty for a change that only undoes rounding.
    changes: str = ""
    keyword: str = ""  # the argument of a library's function that takes the number
    #: Whether the results must not depend on the small number: a quotient by it may be huge.
    steady: bool = False
    make: Callable | None = None  # does what the code does, if not by running it

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
    "{pt}.switch({pt}.eq({x}, 0), 1, {x})",
    changes="where {x} is 0, its logarithm counts as 0",
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

    `backward`: whether only the derivative has no value.
    """
    spot = judge.spot
    logs = _logs_near(judge)
    if len(together := _of_one_operand(spot, logs)) > 1:
        yield _with_logs(spot, together)
    for variable in _around(spot):
        for form in exact_forms(variable):
            if backward or not form.of_derivative:
                yield from _remedies_of(form, variable, spot)
    # (the forms above are those that people know by a name; the search is longer)
    yield from _searched(spot)
    if judge.kind == "lost":
        unrounded = UNROUNDED.get(op_name(spot.node.op))
        if unrounded is not None and unrounded.when(spot.values):
            yield _guarded(spot, unrounded, 0.0)
        yield from _from_maximum(spot)
        for variable in _around(spot):
            if scalar_class(variable) is ps.TrueDiv:
                for edit, new in scaled(spot, variable):
                    yield Remedy(spot, "", {variable: fixed(new)}, edits=(edit,), in_words=True)
    for variable, in_logs in logs.items():
        yield _with_logs(spot, {variable: in_logs})


def _searched(spot: Spot) -> Iterator[Remedy]:
    """Yield accurate formulas that identities lead to."""
    from theanoguard.stable.improving import better_formulas  # (few reports search)
    from theanoguard.stable.terms import Reader

    for found in better_formulas(spot.node.outputs[0], spot.clients, spot.replay, seconds=2.0):
        formula = found.part.formula
        variable, operands = formula.variable, {n: v.variable for n, v in formula.leaves.items()}
        if source_place(variable) is None:
            continue
        code = formula.code(found.term, {name: name for name in operands})
        builders: Builders = {variable: found.build}
        alike = {variable: list(operands.values())}
        nodes = spot.at(variable.owner).nodes  # (that the same line has built)
        for node in nodes:
            other = Reader((), spot.replay.value).formula(node.outputs[0])
            if other.term == formula.term and other.dropped == formula.dropped:
                builders.setdefault(other.variable, partial(other.expression, found.term))
                alike[other.variable] = [leaf.variable for leaf in other.leaves.values()]
        edit = Edit(variable, code, operands, spot, alike)
        otherwise = any(node.outputs[0] not in alike for node in nodes)
        yield Remedy(spot, "", builders, edits=(edit,), in_words=True, otherwise=otherwise)


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
    if op_name(spot.node.op) in _LOGS and only_times_zero(spot):
        yield _guarded(spot, _ONE_FOR_ZERO, 0.0)
    yield from _guards_of(spot)
    if op_name(spot.node.op) in ("true_div", "reciprocal"):
        root = viewed(spot.node.inputs[-1]).owner
        if root is not None and op_name(root.op) in ("sqrt", "pow"):
            yield from _guards_of(spot.at(root))


_LOWEST = -1e9  # what takes the place of -inf in a mask


def only_times_zero(spot: Spot) -> bool:
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
                builders = {n.outputs[0]: with_operand(n, i, lowest) for n in found.nodes}
                changes = "where all entries are masked, all weights are equal"
                masked = variable.owner.inputs[i]
                yield Remedy(found, as_code(_LOWEST), builders, masked, operand=i, changes=changes)


def _least(dtype: str) -> float:
    return np.finfo(dtype).min if np.dtype(dtype).kind == "f" else np.inf


MAX_CUMULATED = 1_000
"""Largest size of a cumulative sum for which all partial sums are computed on their own."""


def _logs_near(judge: Judge) -> dict[Variable, InLogs]:
    """Return the logarithms near an operation that can be computed from those of their parts."""
    spot = judge.spot
    around = spot if spot.body is None else judge.built.outermost(spot)
    near = {v: place for place in (spot, around) for v in _around(place)}
    if judge.kind == "harmless":  # (a logarithm that is not finite is meant)
        near = {v: s for v, s in near.items() if not judge.built.is_bad(s.replay.value(v))}
    return {v: logs for v, s in near.items() if (logs := _in_logs(s, v)) is not None}


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
    written = tuple(e for e in edits if e is not None) if None not in edits else ()
    otherwise = any(
        n.outputs[0] not in e.alike for e in written for n in spot.at(e.variable.owner).nodes
    )
    return Remedy(spot, text, builders, in_words=True, edits=written, otherwise=otherwise)


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


MAX_PARTS = 6  # largest number of parts of a logarithm that a report lists


def _parts_text(parts: Sequence[tuple[str, Variable]], line: SourceLine | None) -> str:
    """Return what is computed in place of what, and on which line."""
    places: dict[str, dict[str, None]] = {}
    for what, variable in parts:
        place = source_place(variable)
        where = "" if place is None else on_lines([place], in_one_file([place], line))
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
        whole = operand.type.dtype[:3] in ("int", "uin")
        if whole and guarded is _CLIP:  # (no integer but 0 lies inside)
            continue
        if guarded.within is None or stays_within(operand, *guarded.within):
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
    text = guarded.template.replace("{size}", as_code(size))
    builders = {n.outputs[0]: builder(n, position) for n in found.nodes}
    changes = guarded.changes.replace("{size}", as_code(size))
    return Remedy(found, text, builders, inside[0], changes=changes)


def _remedies_of(form: Form, variable: Variable, spot: Spot) -> Iterator[Remedy]:
    """Yield the remedy that writes a form, for all variables that the same line has built.

    If the line has run with other numbers, there is one for each form of these variables.
    """
    forms = {variable: form}
    nodes = spot.at(variable.owner).nodes if variable.owner is not None else ()
    for node in nodes:
        known = list(exact_forms(node.outputs[0]))
        known.sort(key=lambda f: f.template != form.template)
        for found in known[:1]:
            forms.setdefault(node.outputs[0], found)
    otherwise = any(node.outputs[0] not in forms for node in nodes)
    by_template = {f.template: v for v, f in reversed(forms.items())}
    # (a number may have a name on the line, and 1 is written in no form)
    for v in sorted(reversed(by_template.values()), key=lambda v: "np." not in forms[v].template):
        own = forms[v]
        builders = {u: forms[u].build for u in dict.fromkeys([v, *forms])}
        remedy = Remedy(spot, own.template, builders, own.x, one_sign=own.one_sign)
        yield replace(remedy, views=own.views, otherwise=otherwise or len(by_template) > 1)


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


def _guarded(spot: Spot, guarded: _Guarded, size: float) -> Remedy:
    def builders_with(size: float) -> Builders:
        change = partial(guarded.applied, size=size)
        return {n.outputs[0]: with_operand(n, guarded.operand, change) for n in spot.nodes}

    template = guarded.template.replace("{size}", as_code(size))
    builders = builders_with(size)
    larger = builders_with(1e3 * size) if guarded.steady else {}
    operand = spot.node.inputs[guarded.operand]
    changes = guarded.changes.replace("{size}", as_code(size))
    if guarded is _JITTER and module_of(spot.node.outputs[0]) != "pt":  # (they have no `eye`)
        name = spot.name_in(operand, spot.node.outputs[0])
        text = f"{as_code(size)} added to the diagonal of {name or 'its operand'}"
        return Remedy(spot, text, builders, operand, in_words=True, changes=changes)
    keyword = f"{guarded.keyword}={as_code(size)}" if guarded.keyword else ""
    found = Remedy(spot, template, builders, operand, guarded.operand)
    return replace(found, keyword=keyword, changes=changes, larger=larger)


def with_operand(node: Apply, position: int, change: Callable[[Variable], Variable]) -> Build:
    """Return what builds a node with another operand."""

    def build(new: New) -> Variable:
        inputs = [new(v) for v in node.inputs]
        inputs[position] = change(inputs[position])
        return applied_to(node, inputs)[0]

    return build


def as_code(size: float) -> str:
    """Return a number as code.

    Examples
    --------
    >>> as_code(1e-9), as_code(0.001), as_code(20.0)
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
