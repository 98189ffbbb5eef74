"""Tell the kinds of faults apart, in a sentence: lost by the arithmetic, or no value at all."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Place
from theanoguard._evaluate.replay import Replay
from theanoguard._graph import role_of
from theanoguard.explain.advice.judge import Judge, Number, exact_elements
from theanoguard.explain.advice.origins import Origins, Part
from theanoguard.explain.advice.trials import leaf_values
from theanoguard.explain.facts.derivatives import worst_element
from theanoguard.explain.facts.naming import (
    apply_text,
    element_text,
    index_text,
    number_text,
    number_texts,
    op_name,
)
from theanoguard.explain.facts.restated import operands_of
from theanoguard.explain.facts.situation import equal_rows
from theanoguard.explain.facts.telling import DECOMPOSITIONS
from theanoguard.explain.records import ROLES, Meaning
from theanoguard.operations import facts_of, scalar_facts

MAX_NAME = 40
"""Length of the longest name in the sentence."""


MORE: dict[str, tuple[tuple[Callable[..., bool], str], ...]] = {
    **dict.fromkeys(("gammaln", "gamma", "psi", "tri_gamma"), ((lambda x: x <= 0, "be positive"),)),
    "erfinv": ((lambda x: abs(x) >= 1, "lie inside -1 to 1"),),
    "pow": (
        (lambda x, p: x == 0 and p < 0, "not be 0"),
        (
            lambda x, p: x < 0 and p != np.floor(p),
            "not be negative, since the exponent is no whole number",
        ),
    ),
}
"""Where an operation may have no value, beside the domain that ``theanoguard.operations`` states.

By the user's operation: whether its first operand is outside, and what that must do.
"""


def _outside(op: Op, values: list[Any]) -> tuple[int, str] | None:
    """Return which operand is outside of the domain of an operation, and what it must do."""
    if any(np.iscomplexobj(v) or np.isnan(v) for v in values):
        return None
    scalar_op = getattr(op, "scalar_op", op)
    facts = scalar_facts(scalar_op) if isinstance(scalar_op, ScalarOp) else facts_of(op)
    if (known := facts.domain) is not None and known.operand < len(values):
        value = values[known.operand]
        if not known.holds(value, value, zero=value == 0):
            return known.operand, known.words
    more = MORE.get(op_name(op), ())
    return next(((0, must) for is_outside, must in more if is_outside(*values)), None)


def meaning_of(
    judge: Judge,
    cause: Any,
    fact: str,
    updated: Collection[Variable],
    name_of_output: Callable[[Variable], str],
) -> Meaning:
    """Return what a fault means.

    Parameters
    ----------
    cause : Cause
        The cause as the report shows it.
    fact : str
        A sentence on the derivative, for a gradient.
    updated : collection of Variable
        The shared variables that the function updates.
    name_of_output : callable
        Returns how the report names an output of the graph as built.
    """
    if cause.kind == "big":
        return _big(judge)
    kind = judge.kind
    if kind == "harmless":
        return Meaning(kind, "The results of this call are finite: only this value is not.")
    if kind in ("lost", "too large"):
        return Meaning(kind, _lost_text(judge, cause, name_of_output))
    if kind == "unknown" and not cause.backward:
        return _singular(judge) or Meaning(kind)
    if kind != "none":
        return Meaning(kind)
    origins = Origins(judge, updated)
    if cause.backward:
        text = f"{fact}." if fact else ""
        return Meaning(kind, text, _origin_of_derivative(judge, origins))
    if judge.place is None:
        return Meaning(kind)
    return _without_value(judge, judge.place, origins)


def _big(judge: Judge) -> Meaning:
    """Return the meaning of a finite value that is above the threshold."""
    if judge.place is None:
        return Meaning("big")
    number = judge.exact_here(judge.place.variable, judge.place.index)
    if number.kind == "number" and not _is_lost(number, judge.place.element):
        return Meaning("big", "This value is correct. It only exceeds big_threshold.")
    if number.kind == "number":
        return Meaning("big", f"In exact arithmetic this value is {number.text(6)}.")
    return Meaning("big")


def _origin_of_derivative(judge: Judge, origins: Origins) -> str:
    """Return where the argument came from at which an operation has no derivative."""
    node = judge.spot.node
    index = worst_element(op_name(node.op), judge.spot.values)
    if index is None:
        return ""
    place = Place(judge.spot.scope, node.outputs[0], index)
    operand = 1 if op_name(node.op) == "true_div" else 0
    region = next((r for r in culprit.regions_of(place) if r.operand == operand), None)
    if region is None or not region.is_element:
        return ""
    return origins.of(culprit.operand_place(place, region)).text


def _lost_text(judge: Judge, cause: Any, name_of_output: Callable[[Variable], str]) -> str:
    known = [t for t in judge.targets if t.number.kind == "number"]
    dtype = known[0].variable.type.dtype
    target = next((t for t in known if t.number.fits(t.variable.type.dtype)), known[0])
    subject = name_of_output(target.variable)
    if subject.isidentifier() or not target.index:
        subject = element_text(subject, target.index)
    else:
        subject = f"element {index_text(target.index)} of {subject}"
    exact = target.number.text(6)
    text = f"In exact arithmetic {subject} is {exact}"
    where = _lost_where(judge, cause)
    if judge.kind == "too large":
        limits = np.finfo(dtype)
        if target.number.value < 0:
            return f"{text}, less than the lowest number of {dtype} ({number_text(limits.min)})."
        return f"{text}, more than the largest number of {dtype} ({number_text(limits.max)})."
    return f"{text}; {judge.spot.node.outputs[0].type.dtype} loses it{where}."


def _lost_where(judge: Judge, cause: Any) -> str:
    """Return where the arithmetic loses the value: the first operand that is not exact."""
    spot = judge.spot
    if cause.backward:
        index = worst_element(op_name(spot.node.op), spot.values)
        if index is None:
            return ""
        place = Place(spot.scope, spot.node.outputs[0], index)
    elif judge.place is not None:
        place = judge.place
    else:
        return ""
    for operand, there in _elements(place, spot):
        number = judge.exact_here(there.variable, there.index)
        if _is_lost(number, there.element):
            return f" where {operand} = {number.text()} becomes {number_text(there.element)}"
    number = judge.exact_here(place.variable, place.index)
    if not cause.backward and _is_lost(number, place.element):
        return f" where {cause.expression} = {number.text()} becomes {number_text(place.element)}"
    return ""


def _elements(place: Place, spot: Any) -> list[tuple[str, Place]]:
    """Return the operand elements of an operation, with the user's names."""
    found = []
    regions = culprit.regions_of(place)
    for region, stated in zip(regions, operands_of(place, spot), strict=True):
        name = element_text(stated.name, stated.index)
        if region.is_element and not stated.constant and len(name) <= MAX_NAME:
            found.append((name, culprit.operand_place(place, region)))
    return found


def _is_lost(number: Number, live: Any) -> bool:
    """Return whether a computed value has lost the exact one."""
    if number.kind != "number":
        return False
    value = number.value
    if not np.isfinite(live) or (live == 0) != number.ball.is_zero():
        return True
    return bool(abs(float(live) - value) > 1e-3 * abs(value))


def _singular(judge: Judge) -> Meaning | None:
    """Return the meaning of a decomposition of a matrix that has two equal rows, or None."""
    spot, op = judge.spot, op_name(judge.spot.node.op)
    matrix = np.asarray(spot.values[0]) if op in DECOMPOSITIONS else np.zeros(0)
    rows = equal_rows(matrix) if matrix.ndim == 2 else None
    if rows is None:
        return None
    name = spot.name_of(spot.node.inputs[0]) or "the matrix"
    name = name if len(name) <= MAX_NAME else "the matrix"
    both = f"rows {rows[0]} and {rows[1]}"
    text = f"{op}({name}) does not exist: {both} of {name} are equal."
    for leaf, value in leaf_values([spot.node.inputs[0]], spot.replay.value).items():
        points = np.asarray(value)
        known = leaf.name or spot.name_of(leaf)
        fits = known and points.ndim and len(points) == len(matrix)
        if fits and np.array_equal(points[rows[0]], points[rows[1]]):
            one, other = (element_text(known, (i,)) for i in rows)
            what = f"{one} and {other} are equal ({ROLES[role_of(leaf)]})"
            return Meaning("none", text, f"{what}: leave out one of them.")
    return Meaning("none", text)


def _without_value(judge: Judge, place: Place, origins: Origins) -> Meaning:
    """Return the meaning of an operation that has no value at an element."""
    name = op_name(place.variable.owner.op)
    regions = culprit.regions_of(place)
    stated = operands_of(place, judge.spot)
    if not all(region.is_element for region in regions):
        return Meaning("none")
    values = [o.value for o in stated]
    outside = _outside(place.variable.owner.op, values)
    if outside is None:
        return Meaning("none")
    position, must = outside
    operand = stated[position]
    what = element_text(operand.name, operand.index)
    is_named = not operand.constant or operand.name.isidentifier()
    what = what if len(what) <= MAX_NAME and is_named else "the operand"
    applied = apply_text(place.variable.owner.op, number_texts(values))
    text = f"{applied} does not exist: {what} must {must}."
    kept = "positive" if "positive" in must or "negative" in must else "check"
    origin = origins.of(culprit.operand_place(place, regions[position]), kept)
    if name == "true_div" and not np.any(values) and origins.leaf is not None:
        limit = _limit_text(judge, place, origins.leaf)
        origin = replace(origin, kept=limit, general=False) if limit else origin
    return Meaning("none", text, origin.text, origin.kept, origin.general)


def _limit_text(judge: Judge, place: Place, leaf: Part) -> str:
    """Return what a quotient 0 / 0 tends to as a number of an input does; "" if unknown."""
    bad = np.argwhere(np.isnan(np.asarray(place.array)))[[0, -1]]
    limits = [_limit(judge, Place(place.scope, place.variable, tuple(i)), leaf) for i in bad]
    if None in limits:
        return ""
    where = "switch(eq(n, 0), {}, x / switch(eq(n, 0), 1, n))".format
    if limits[0] == limits[1]:
        use = f"Use that where the divisor n is 0: {where(limits[0])}."
        return f"The quotient tends to {limits[0]} there. {use}"
    first, last = (index_text(tuple(map(int, i))) for i in bad)
    return (
        f"The quotient has a limit there, {limits[0]} at element {first} and {limits[1]} at"
        f" {last}. Use its formula where the divisor n is 0: {where('limit')}."
    )


def _limit(judge: Judge, place: Place, leaf: Part) -> str | None:
    """Return the limit of an element as a number of an input tends to its value, or None."""
    if isinstance(leaf.variable, Constant) or leaf.value.size != 1 or leaf.value.dtype.kind != "f":
        return None
    given = leaf_values([place.variable], judge.spot.replay.value)
    found = []
    for step in (1e-9, -1e-9):
        near = np.array(given[leaf.variable])
        near[leaf.index] += step * max(1.0, abs(float(leaf.value)))
        moved = Replay(None, {**given, leaf.variable: near}, judge.spot.replay.kernels)
        element = [(place.variable, place.index)]
        found += exact_elements(element, {**given, leaf.variable: near}, moved.value)
    above, below = found
    if above.kind != below.kind or above.kind != "number":
        return None
    if abs(above.value - below.value) > 1e-6 * max(1.0, abs(above.value)):
        return None
    middle = (above.value + below.value) / 2
    return number_text(float(f"{middle:.5g}") if abs(middle) > 1e-12 else 0.0)
