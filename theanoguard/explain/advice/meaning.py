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
from theanoguard._naming import apply_text, element_text
from theanoguard._text import index_text, number_text, number_texts
from theanoguard.explain.advice.judge import Judge, Number, exact_elements
from theanoguard.explain.advice.origins import Origins, Part
from theanoguard.explain.advice.trials import leaf_values
from theanoguard.explain.facts.derivatives import worst_element
from theanoguard.explain.facts.records import ROLES, Condition, Meaning
from theanoguard.explain.facts.restated import operands_of
from theanoguard.explain.facts.situation import equal_rows
from theanoguard.explain.facts.telling import DECOMPOSITIONS
from theanoguard.operations import facts_of, scalar_facts
from theanoguard.operations.facts import Domain
from theanoguard.operations.names import op_name

MAX_NAME = 40  # length of the longest name in the sentence


def is_floating(value: Any) -> bool:
    """Return whether a value is an array of floats."""
    return getattr(getattr(value, "dtype", None), "kind", "") == "f"


_MORE = dict.fromkeys(("gammaln", "gamma", "psi", "tri_gamma"), Domain(above=0))
"""Where an operation has a value, beside the domain that ``theanoguard.operations`` states."""


def _domain_of(op: Op, values: list[Any]) -> tuple[Domain, str] | None:
    """Return the domain that an operand of an operation has left, and what it must do.

    The operand is the one that the domain names.
    """
    if any(np.iscomplexobj(v) or np.isnan(v) for v in values):
        return None
    scalar_op, name = getattr(op, "scalar_op", op), op_name(op)
    facts = scalar_facts(scalar_op) if isinstance(scalar_op, ScalarOp) else facts_of(op)
    domain, why = facts.domain or _MORE.get(name), ""
    if name == "pow" and values[0] == 0 and values[1] < 0:
        domain = Domain(nonzero=True)
    elif name == "pow" and values[0] < 0 and values[1] != np.floor(values[1]):
        domain, why = Domain(at_least=0), ", since the exponent is no whole number"
    if domain is None or domain.operand >= len(values):
        return None
    value = values[domain.operand]
    if domain.holds(value, value, zero=value == 0):
        return None
    return domain, f"{domain.words}{why}"


def meaning_of(
    judge: Judge,
    cause: Any,
    fact: str,
    updated: Collection[Variable],
    name_of_output: Callable[[Variable], str],
) -> Meaning:
    """Return what a fault means.

    - `cause`: the cause as the report shows it.
    - `fact`: a sentence on the derivative, for a gradient.
    - `updated`: the shared variables that the function updates.
    - `name_of_output`: returns how the report names an output of the graph as built.
    """
    if cause.kind == "big":
        return _big(judge)
    kind = judge.kind
    if kind == "harmless":
        return Meaning(kind, "The results of this call are finite: only this value is not.")
    if kind in ("lost", "too large"):
        return Meaning(kind, _lost_text(judge, cause, name_of_output))
    if kind == "unknown" and not cause.backward:
        return _singular(judge) or _of_quotient(judge, Origins(judge, updated))
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
        if region.is_element and not stated.constant:
            shown = name if len(name) <= MAX_NAME else "an operand"
            found.append((shown, culprit.operand_place(place, region)))
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
            return Meaning("none", text, f"{what}: leave out one of them.", whole=True)
    return Meaning("none", text, whole=True)


def _of_quotient(judge: Judge, origins: Origins) -> Meaning:
    """Return the meaning of a quotient that is 0 / 0 but for rounding."""
    place = judge.place
    if place is None or op_name(place.variable.owner.op) != "true_div":
        return Meaning("unknown")
    regions = culprit.regions_of(place)
    if len(regions) != 2 or not all(region.is_element for region in regions):
        return Meaning("unknown")
    there = [culprit.operand_place(place, region) for region in regions]
    leaf = None if any(p.element != 0 for p in there) else _parameter(judge, there[1])
    limit = "" if leaf is None else _limit_text(judge, place, leaf)
    return Meaning("unknown", kept=limit, general=not limit, settled=bool(limit))


def _without_value(judge: Judge, place: Place, origins: Origins) -> Meaning:
    """Return the meaning of an operation that has no value at an element."""
    regions = culprit.regions_of(place)
    stated = operands_of(place, judge.spot)
    if not all(region.is_element for region in regions):
        return Meaning("none")
    values = [o.value for o in stated]
    known = _domain_of(place.variable.owner.op, values)
    if known is None:
        return Meaning("none")
    domain, must = known
    operand = stated[domain.operand]
    what = element_text(operand.name, operand.index)
    is_named = not operand.constant or operand.name.isidentifier()
    what = what if len(what) <= MAX_NAME and is_named else "the operand"
    applied = apply_text(place.variable.owner.op, number_texts(values))
    text = f"{applied} does not exist: {what} must {must}."
    there = culprit.operand_place(place, regions[domain.operand])
    origin = origins.of(there, domain)
    condition = origin.condition or Condition(what, operand.value, domain)
    leaf = (origins.leaf or _parameter(judge, there)) if domain.nonzero else None
    if leaf is not None:
        limit = "" if np.any(values) else _limit_text(judge, place, leaf)
        limit = limit or _limit_of_term(judge, place, leaf, origins)
        origin = replace(origin, kept=limit, general=False, settled=True) if limit else origin
    return Meaning(
        "none",
        text,
        origin.text,
        origin.kept,
        origin.general,
        origin.settled,
        replace(condition, expression=what),
    )


def _limit_text(judge: Judge, place: Place, leaf: Part) -> str:
    """Return what a quotient 0 / 0 tends to as a number of an input does; "" if unknown."""
    bad = np.argwhere(np.isnan(np.asarray(place.array)))[[0, -1]]
    limits = [_limit(judge, Place(place.scope, place.variable, tuple(i)), leaf) for i in bad]
    if None in limits:
        return ""
    where = "switch(eq(n, 0), {}, x / switch(eq(n, 0), 1, n))".format
    if limits[0] == limits[1]:
        one = Place(place.scope, place.variable, tuple(bad[0]))
        if _limit(judge, one, leaf, scale=1.5) != limits[0]:
            name = element_text(leaf.variable.name or "the input", leaf.index)
            element = f" at element {index_text(tuple(map(int, bad[0])))}" if bad.shape[1] else ""
            return (
                f"The quotient tends to {limits[0]}{element} as {name} tends to"
                f" {number_text(leaf.value.item())}: use the formula of this limit where the"
                f" divisor n is 0, {where('limit')}."
            )
        use = f"Use that where the divisor n is 0: {where(limits[0])}."
        return f"The quotient tends to {limits[0]} there. {use}"
    first, last = (index_text(tuple(map(int, i))) for i in bad)
    return (
        f"The quotient has a limit there, {limits[0]} at element {first} and {limits[1]} at"
        f" {last}. Use its formula where the divisor n is 0: {where('limit')}."
    )


MAX_TERM = 6  # number of operations behind a quotient in which a limit is looked for


def _parameter(judge: Judge, place: Place) -> Part | None:
    """Return the only number that a divisor of 0 depends on and that can be moved, or the last."""
    found = leaf_values([place.variable], judge.spot.replay.value)
    numbers = [v for v in found if v.type.ndim == 0 and v.type.dtype.startswith("float") and v.name]
    is_near = numbers and judge.spot.body is None
    return Part(judge.spot.scope, numbers[-1], ()) if is_near else None


def _limit_of_term(judge: Judge, place: Place, leaf: Part, origins: Origins) -> str:
    """Return what the term around an infinite quotient tends to; "" if unknown."""
    variable = place.variable
    if leaf.scope is not judge.spot.scope or not leaf.variable.name:
        return ""
    for _ in range(MAX_TERM):
        readers = judge.spot.clients.get(variable, ())
        if len(readers) != 1 or len(readers[0].outputs) != 1:
            return ""
        [variable] = readers[0].outputs
        if np.shape(judge.spot.replay.value(variable)) != np.shape(place.array):
            if np.shape(place.array):
                return ""
            index = (0,) * variable.type.ndim
        else:
            index = place.index
        there = Place(place.scope, variable, index)
        limit = _limit(judge, there, leaf)
        if limit is not None:
            name = origins.name_at(there)
            return (
                f"As {leaf.variable.name} tends to {number_text(leaf.value.item())}, {name} tends"
                f" to {limit}: use its limit there."
            )
    return ""


SHARES = (0.6, -0.6, 1 - 1e-6)
"""By how much other inputs move for a limit: ``(x - y) / (x + y)`` tends to no number at 0."""


def _limit(judge: Judge, place: Place, leaf: Part, scale: float = 1.0) -> str | None:
    """Return the limit of an element as a number of an input tends to its value, or None.

    It is none if the other inputs, which move as well, lead to another number.

    `scale`: a factor of all other inputs.
    """
    if isinstance(leaf.variable, Constant) or leaf.value.size != 1 or leaf.value.dtype.kind != "f":
        return None
    given = leaf_values([place.variable], judge.spot.replay.value)
    given |= {
        v: np.asarray(value * scale, value.dtype)
        for v, value in given.items()
        if v is not leaf.variable and scale != 1 and is_floating(value)
    }

    def near(step: float, share: float = 0.0) -> Number:
        """Return the exact element for a moved number, and a share of it for all others."""
        moved = {
            v: x + np.asarray(share * step, x.dtype) * np.maximum(1, abs(x))
            if is_floating(x)
            else x
            for v, x in given.items()
        }
        own = moved[leaf.variable] = np.array(moved[leaf.variable])
        own[leaf.index] = leaf.value + step * max(1.0, abs(float(leaf.value)))
        live = Replay(None, moved, judge.spot.replay.kernels)
        return exact_elements([(place.variable, place.index)], moved, live.value)[0]

    above, below = near(1e-9), near(-1e-9)
    if above.kind != below.kind or above.kind != "number":
        return None
    for other in (below, *(near(1e-9, share) for share in SHARES)):
        differs = abs(above.value - other.value) > 1e-6 * max(1.0, abs(above.value))
        if other.kind == "number" and differs:
            return None
    middle = (above.value + below.value) / 2
    return number_text(float(f"{middle:.5g}") if abs(middle) > 1e-12 else 0.0)
