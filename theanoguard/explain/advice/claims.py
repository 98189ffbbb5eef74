"""Formulas that general advice proposes.  Each is tried on the failing call before it is named.

A proposal is said only if all bad results that the operation reaches are finite with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.math import Dot

from theanoguard._graph import applied_to, reduction_of, scalar_class, viewed
from theanoguard._provenance.source import expression_of
from theanoguard._steps import ForeignError
from theanoguard.explain.advice.candidates import only_times_zero
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.source_edit import is_compound
from theanoguard.explain.advice.trials import Builders, Spot
from theanoguard.explain.facts.records import Cause
from theanoguard.operations.names import op_name
from theanoguard.stable import forms
from theanoguard.stable.patterns import New, squared_base

MAX_NAME = 30
"""Length of the longest expression that a sentence repeats."""

Formula: TypeAlias = Callable[[Apply, New], Variable | None]
"""Returns what a node computes in the proposed formula; None if that is not for the node."""


@dataclass(frozen=True)
class Proposal:
    """What general advice proposes.

    Parameters
    ----------
    words : str
        A sentence that is true if the formula helps, with ``{0}`` and ``{1}`` for the operands.
    formulas : tuple of callable
        One of them has to help.
    when : callable
        Whether it may be meant at a spot.
    """

    words: str
    formulas: tuple[Formula, ...]
    when: Callable[[Spot], bool] = lambda spot: True


def _where(excluded: Variable, node: Apply, safe: list[Variable], value: float) -> Variable:
    """Return the operation of a node with safe operands, and a value where these are excluded."""
    (result,) = applied_to(node, safe)
    return pt.switch(excluded, np.asarray(value, result.type.dtype), result)


def _quotient(value: float) -> Formula:
    def formula(node: Apply, new: New) -> Variable:
        *above, n = map(new, node.inputs)
        return _where(pt.eq(n, 0), node, [*above, pt.switch(pt.eq(n, 0), 1, n)], value)

    return formula


def _without_zeros(node: Apply, new: New) -> Variable:
    x, *others = map(new, node.inputs)
    return _where(pt.eq(x, 0), node, [pt.switch(pt.eq(x, 0), 1, x), *others], 0)


def _root(node: Apply, new: New) -> Variable:
    x, p = map(new, node.inputs)
    return pt.sign(x) * abs(x) ** p


def _is_odd_root(power: Any) -> bool:
    """Return whether powers are 1 / 3, 1 / 5 and so on."""
    with np.errstate(all="ignore"):
        root = np.round(1 / np.asarray(power, float))
        return bool(np.all((root % 2 == 1) & (abs(root * power - 1) < 1e-6)))


def _norm(node: Apply, new: New) -> Variable | None:
    total = reduction_of(viewed(node.inputs[0]), "sum")
    base = None if total is None else squared_base(viewed(total.inputs[0]))
    return None if total is None or base is None else _without_zeros(node, new)


def _angle(node: Apply, new: New) -> Variable | None:
    """Return the angle between two vectors, if the operand is its cosine."""
    cosine = viewed(node.inputs[0])
    while scalar_class(cosine) in (ps.Clip, ps.ScalarMinimum, ps.ScalarMaximum):
        cosine = viewed(cosine.owner.inputs[0])
    if scalar_class(cosine) is not ps.TrueDiv:
        return None
    product = viewed(cosine.owner.inputs[0])
    op, total = getattr(product.owner, "op", None), reduction_of(product, "sum")
    terms = None if total is None else viewed(total.inputs[0])
    if (
        total is not None
        and terms is not None
        and scalar_class(terms) is ps.Mul
        and len(terms.owner.inputs) == 2
    ):
        axis, factors = total.op.axis, terms.owner.inputs
    elif isinstance(getattr(op, "core_op", op), Dot):
        axis, factors = None, [viewed(v) for v in product.owner.inputs]
        if [v.type.ndim for v in factors] != [1, 1]:
            return None
    else:
        return None
    u, v = (x / forms.norm(x, axis=axis, keepdims=True) for x in map(new, factors))
    angle = 2 * pt.arctan2(forms.norm(u - v, axis=axis), forms.norm(u + v, axis=axis))
    return angle if op_name(node.op) == "arccos" else np.pi / 2 - angle


_OF_ANGLE = Proposal(
    "For the angle between two vectors, divide them by their norms, and use 2 *"
    " arctan2(norm(u - v), norm(u + v)) with theanoguard.stable.norm.",
    (_angle,),
)

_OF_NORM = Proposal(
    "A norm has no gradient at 0: penalise sum(x**2) itself. Or theanoguard.stable.norm(x), whose"
    " gradient is 0 there.",
    (_norm,),
)

_OF_QUOTIENT = Proposal(
    "If it may be, decide what the result is there: switch(eq(n, 0), value, x / switch(eq(n, 0),"
    " 1, n)).",
    (_quotient(0), _quotient(1)),
)

PROPOSALS = {
    **dict.fromkeys(("zero-by-zero", "division-by-zero"), _OF_QUOTIENT),
    "log-zero": Proposal(
        "Where x * log(x) is meant, use xlogx or xlogy, which are 0 at 0.",
        (_without_zeros,),
        only_times_zero,
    ),
    "pow-negative-base": Proposal(
        "If the odd root is meant, write sign({0}) * abs({0})**{1}.",
        (_root,),
        lambda spot: _is_odd_root(spot.values[1]),
    ),
    "arc-out-of-range": _OF_ANGLE,
    "norm-gradient-at-zero": _OF_NORM,
}
"""By the key of a hint."""

OF_DERIVATIVE = {
    "sqrt": (
        _OF_NORM,
        Proposal(
            "To leave out the elements that are 0: switch(eq({0}, 0), 0, sqrt(switch(eq({0}, 0), 1,"
            " {0}))).",
            (_without_zeros,),
        ),
    ),
    "pow": (
        Proposal(
            "Where {0} is 0, switch(eq({0}, 0), 0, switch(eq({0}, 0), 1, {0})**{1}) is the same"
            " power, with the gradient 0 there.",
            (_without_zeros,),
        ),
    ),
    **dict.fromkeys(("arccos", "arcsin"), (_OF_ANGLE,)),
}
"""By the operation whose derivative is not finite."""


def proposal(cause: Cause, judge: Judge) -> str:
    """Return what general advice proposes, if it helps the call; else an empty text.

    `cause`: its hint, or the operation that is differentiated, decides what is tried.
    """
    words = next((p.words for p in _proposals(cause, judge) if _helps(p, judge)), "")
    node = judge.spot.node
    if op_name(node.op) == "reciprocal":
        return words.replace("x / switch(", "1 / switch(")
    names = ["operand", "exponent"]  # (a letter may be another variable's name)
    for i, v in enumerate(node.inputs[: len(names)]):
        number = viewed(v) if viewed(v).type.ndim == 0 else v  # (that was broadcast)
        name = judge.spot.name_in(v, node.outputs[0]) or number.name
        if name and len(name) <= MAX_NAME and expression_of(name) is not None:
            names[i] = f"({name})" if i and is_compound(name) else name
    return words.format(*names)


def _proposals(cause: Cause, judge: Judge) -> Iterator[Proposal]:
    if cause.backward:
        yield from OF_DERIVATIVE.get(op_name(judge.spot.node.op), ())
    elif cause.hint is not None and cause.hint.key in PROPOSALS:
        yield PROPOSALS[cause.hint.key]


def _helps(tried: Proposal, judge: Judge) -> bool:
    if not tried.when(judge.spot):
        return False
    for formula in tried.formulas:
        builders: Builders = {}
        for node in judge.spot.nodes:
            try:
                if formula(node, lambda v: v) is None:
                    return False
            except ForeignError:
                return False
            builders[node.outputs[0]] = partial(formula, node)
        trial = judge.built.attempt(builders)
        if trial is not None and judge.is_mended(trial) and judge.keeps(trial):
            return True
    return False
