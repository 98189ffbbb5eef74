"""State a cause in terms of the graph as the user built it.

A rewrite may compute the user's operation in another way: ``x ** -0.5`` as ``1 / sqrt(x)``, or
``inv(A) @ b`` as a solution of equations.  The graph as built has the operation that the user
wrote, and the names of its operands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Place, Scope
from theanoguard._evaluate.replay import Replay
from theanoguard._graph import viewed
from theanoguard._naming import INDEXING, apply_text, name_of
from theanoguard._provenance import is_built_at, lookup, source_place
from theanoguard._text import number_texts
from theanoguard._values import Mask, kind_of
from theanoguard.explain.facts.derivatives import worst_element
from theanoguard.explain.facts.describe import finite_range, operand_read, regions_read
from theanoguard.explain.facts.records import Cause, Operand, Producer, Situation
from theanoguard.explain.facts.situation import matrix_text
from theanoguard.explain.facts.telling import DECOMPOSITIONS, MATRIX_PRODUCTS
from theanoguard.operations import Region, moved
from theanoguard.operations.names import op_name


class Spot(Protocol):
    """An operation of the graph as built, in one execution of that graph.

    :class:`theanoguard.explain.advice.trials.Spot` is one.
    """

    @property
    def node(self) -> Apply:
        """The operation."""

    @property
    def replay(self) -> Replay:
        """The replay of its graph."""

    @property
    def values(self) -> Sequence[Any]:
        """The values of the operands."""

    @property
    def name_of(self) -> Callable[..., str | None]:
        """Returns the user's name of a variable of its graph, or None."""


@dataclass(frozen=True)
class _Stated:
    """An operand of the graph as built, and whether its name is nearer to the user's code."""

    operand: Operand
    known: bool


def restated(cause: Cause, spot: Spot, is_big: Mask) -> Cause:
    """Return a cause with the operation and the operands of the graph as built.

    `spot`: the operation of the graph as built that made the bad value.
    `is_big`: returns the mask of the elements of an array that the guard reports.

    Returns: the same cause if the operation of `spot` does not give its value.
    """
    if cause.backward or cause.role != "node" or spot.replay.steps != _steps(cause):
        return cause
    place, op = place_like(cause, spot), op_name(spot.node.op)
    if place is None:
        return _computed_otherwise(cause, spot)
    if len(cause.operands) == 5 and op == "dot":  # Gemm, Gemv
        cause = replace(cause, **_product(place, spot))
    if not _agree(place.element, cause.value):
        return _computed_otherwise(cause, spot)
    is_moved = np.shape(place.array) != cause.shape and (
        len(place.index) <= len(cause.index) or place.array.size != cause.size
    )
    if cause.fused or is_moved:
        cause = replace(cause, **_counts(place, _KINDS.get(cause.kind, is_big)))
    stated = _operands(place, spot)
    if is_moved:  # (a rewrite has added or exchanged dimensions, or moved the operation)
        name = spot.name_of(place.variable)
        known: dict[str, Any] = {"name": name, "own_name": name.isidentifier()} if name else {}
        cause = replace(cause, index=place.index, shape=np.shape(place.array), **known)
    # (a rewrite may have fused what computes the terms into the reduction)
    other_terms = isinstance(spot.node.op, CAReduce) and not any(
        s.known and _is_same(o, s.operand) for o, s in zip(cause.operands, stated, strict=False)
    )
    if op == cause.op and len(stated) == len(cause.operands) and not other_terms:
        pairs = [
            (o, stated if op in ("add", "mul") else [s])
            for o, s in zip(cause.operands, stated, strict=True)
        ]
        if any(_differ(o, s.operand) for o, s in zip(cause.operands, stated, strict=True)):
            operands = tuple(s.operand for s in stated)
            return replace(cause, operands=operands, expression=_expression(spot.node.op, operands))
        operands = tuple(_renamed(o, equal) for o, equal in pairs)
        if operands != cause.operands and any(o.value is None for o in operands):
            cause = replace(cause, expression=_expression(spot.node.op, operands))
        return replace(cause, operands=operands)
    named = (*MATRIX_PRODUCTS, *DECOMPOSITIONS)
    if not isinstance(spot.node.op, Elemwise | CAReduce) and op not in named:
        return cause
    operands = tuple(s.operand for s in stated)
    is_known = op in DECOMPOSITIONS or cause.op not in DECOMPOSITIONS
    if is_known and (op != cause.op or other_terms):
        cause = replace(cause, situation=_situation(cause, place, op))
    expression = _expression(spot.node.op, operands)
    return replace(cause, op=op, operands=operands, expression=expression)


def _computed_otherwise(cause: Cause, spot: Spot) -> Cause:
    """Return a cause with the operands of the user's operation, whose value is also bad.

    ``1 / n`` is inf where ``n`` is 0.  A product with a 0 is computed as ``0 / n``, which is NaN.
    """
    variable = spot.node.outputs[0]
    if op_name(spot.node.op) != cause.op or not is_built_at(variable, cause.source):
        return cause
    bad = np.argwhere(culprit.not_finite(np.asarray(culprit.dense(spot.replay.value(variable)))))
    if not len(bad):
        return cause
    place = Place(Scope(spot.replay), variable, tuple(map(int, bad[0])))
    operands = tuple(operands_of(place, spot))
    name = spot.name_of(variable) or cause.name
    return replace(
        cause,
        operands=operands,
        expression=_expression(spot.node.op, operands),
        name=name,
        own_name=name.isidentifier(),
        index=place.index,
        value=place.element,
        **_counts(place, culprit.not_finite),
    )


def in_forward_pass(cause: Cause, spot: Spot, node: Apply, mask: Mask) -> Cause:
    """Return the cause in the forward pass for a bad value that was taken for one of the gradient.

    `spot`: the operation of the forward pass that made the cost bad.
    `node`: that operation in the user's graph.
    `mask`: returns the mask of the bad elements of an array.
    """
    variable = spot.node.outputs[0]
    bad = mask(np.asarray(culprit.dense(spot.replay.value(variable))))
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place, op = Place(Scope(spot.replay), variable, index), op_name(spot.node.op)
    operands = tuple(operands_of(place, spot))
    name, made = spot.name_of(variable), lookup(None, node.outputs[0])
    cause = replace(
        cause,
        kind=kind_of(place.element),
        op=op,
        node=str(node.op),
        fused=False,
        name=name or name_of(variable, own=spot.name_of),
        own_name=made.own_name,
        expression=_expression(spot.node.op, operands),
        operands=operands,
        index=index,
        value=place.element,
        provenance=made,
        path=(),
        **_counts(place, mask),
    )
    return replace(cause, situation=_situation(cause, place, op))


def differentiated(spot: Spot, element: int | None) -> tuple[Operand, ...]:
    """Return the operands of an operation where its derivative is largest; none if unknown.

    One that the user has neither named nor written, such as the variance in a standard deviation,
    counts as computed.

    `element`: the position of the bad element of the gradient.
    """
    index = worst_element(op_name(spot.node.op), spot.values, element)
    if index is None:
        return ()
    place = Place(Scope(spot.replay), spot.node.outputs[0], index)
    return tuple(
        replace(s.operand, computed=not s.known and s.operand.value is not None)
        for s in _operands(place, spot)
    )


def place_in(cause: Cause, spot: Spot) -> Place | None:
    """Return the element of a cause in the graph as built, which may have other dimensions."""
    variable = spot.node.outputs[0]
    shape = np.shape(spot.replay.value(variable))
    inside = iter(i for i, length in zip(cause.index, cause.shape, strict=True) if length != 1)
    if [n for n in shape if n != 1] != [n for n in cause.shape if n != 1]:
        return None
    return Place(Scope(spot.replay), variable, tuple(0 if n == 1 else next(inside) for n in shape))


def place_like(cause: Cause, spot: Spot) -> Place | None:
    """Return the element of the graph as built that is the one of a cause, or one like it."""
    place = place_in(cause, spot)
    if place is not None:
        return place
    variable = spot.node.outputs[0]
    value = np.asarray(culprit.dense(spot.replay.value(variable)))
    if value.dtype.kind != "f" or moved(spot.node) is not None:
        return None
    same = (value == cause.value) | (np.isnan(value) & np.isnan(cause.value))
    if not same.any() and not np.isfinite(cause.value):
        same = ~np.isfinite(value)  # (an Inf that a rewrite has joined with what made NaN of it)
    like = np.argwhere(same)
    return Place(Scope(spot.replay), variable, tuple(map(int, like[0]))) if len(like) else None


def _differ(operand: Operand, stated: Operand) -> bool:
    """Return whether a rewrite has changed an operand: both values are known and not the same."""
    return None not in (operand.value, stated.value) and not _agree(operand.value, stated.value)


_KINDS = {"nan": np.isnan, "inf": np.isinf}


def _counts(place: Place, mask: Mask) -> dict[str, Any]:
    """Return the facts on the array of a place; none if no element is bad."""
    array = np.asarray(place.array)
    low, high = finite_range(array)
    bad = int(np.count_nonzero(mask(array)))
    facts = {"minimum": low, "maximum": high, "dtype": str(array.dtype)}
    return {**facts, "n_bad": bad, "size": array.size, "shape": array.shape} if bad else {}


def _product(place: Place, spot: Spot) -> dict[str, Any]:
    """Return the value and the name of a product that a rewrite has joined with a sum."""
    name = spot.name_of(place.variable)
    own_name = name is not None and name.isidentifier()
    low, high = finite_range(place.array)
    facts = {"value": place.element, "minimum": low, "maximum": high, "own_name": own_name}
    return {**facts, "name": name} if name else facts


def _steps(cause: Cause) -> tuple[int, ...]:
    return tuple(part.step for part in cause.path if part.step is not None)


def _agree(one: Any, other: Any) -> bool:
    return bool(np.isclose(one, other, rtol=1e-3, atol=0, equal_nan=True))


def _expression(op: Op, operands: Sequence[Operand]) -> str:
    if all(operand.value is not None for operand in operands):
        return apply_text(op, number_texts([operand.value for operand in operands]))
    return apply_text(op, [operand.text for operand in operands])


def operands_of(place: Place, spot: Spot) -> list[Operand]:
    """Return the operands of an operation of the graph as built, as the user names them."""
    return [stated.operand for stated in _operands(place, spot)]


def _operands(place: Place, spot: Spot) -> list[_Stated]:
    return [_operand(spot, place.scope, *read) for read in regions_read(place)]


def _operand(
    spot: Spot,
    scope: Scope,
    variable: Variable,
    region: Region,
    array: Any,
    telling: tuple[Any, ...] | None,
) -> _Stated:
    read, index = array[region.index], region.index
    text = _written(variable, spot)
    while _adds_dimensions(variable) and index != (...,):
        known, inner = spot.name_of(variable), variable.owner.inputs[0]
        if known and (known != spot.name_of(inner) or _of_same_call(variable, inner)):
            break  # the user has written `x[:, None]` or `x.sum(axis=1, keepdims=True)`
        kept = [i for i, axis in enumerate(variable.owner.op.new_order) if axis != "x"]
        variable, index = inner, tuple(index[i] for i in kept)
        telling = None if telling is None else tuple(telling[i] for i in kept)
        array = np.asarray(Place(scope, variable).array)
    known = (None if variable.name else text) or spot.name_of(variable)
    chosen = False
    while region.is_element and not known and _is_moved(variable):
        chosen |= isinstance(variable.owner.op, INDEXING)
        shown = Place(scope, variable, index)
        shown = culprit.operand_place(shown, culprit.regions_of(shown)[0])
        variable, index = shown.variable, shown.index
        known = spot.name_of(variable)
        array = np.asarray(shown.array)
    name = known or name_of(variable, own=spot.name_of)
    constant = isinstance(viewed(variable), Constant)
    operand = operand_read(name, read, index, array, constant, telling)
    return _Stated(operand, chosen or bool(known))


def _written(variable: Variable, spot: Spot) -> str | None:
    """Return how the code of an operation names an operand, if that is only a name."""
    if variable.name or variable not in spot.node.inputs:
        return None
    text = spot.name_of(variable, spot.node)
    return text if text and all(part.isidentifier() for part in text.split(".")) else None


def _adds_dimensions(variable: Variable) -> bool:
    """Return whether a variable is another one with dimensions of length 1 for broadcasting."""
    if not _is_reshaped(variable):
        return False
    order = [axis for axis in variable.owner.op.new_order if axis != "x"]
    return order == list(range(variable.owner.inputs[0].type.ndim))


def _of_same_call(one: Variable, other: Variable) -> bool:
    place = source_place(one)
    return place is not None and place == source_place(other)


def _is_reshaped(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, DimShuffle)


def _is_moved(variable: Variable) -> bool:
    """Return whether the elements of a variable are those of another one, elsewhere."""
    return variable.owner is not None and isinstance(variable.owner.op, (DimShuffle, *INDEXING))


def _renamed(operand: Operand, stated: Sequence[_Stated]) -> Operand:
    """Return an operand under the name that the user's code gives to its value."""
    if operand.constant:
        return operand
    same = [s.operand for s in stated if s.known and _is_same(operand, s.operand)]
    names = [(s.name, s.index) for s in same]  # (no set: an index may hold slices)
    if not names or any(other != names[0] for other in names):
        return operand
    name, index = names[0]
    # (a mean is computed as a quotient, which the user did not write)
    hidden = name.endswith(")") and not operand.given.partition("(")[0].isidentifier()
    longer = isinstance(operand.index, tuple) and len(operand.index) > len(index or ())
    index = operand.index if name == operand.name and not longer else index
    return replace(operand, name=name, index=index, given="" if hidden else operand.given)


def _is_same(one: Operand, other: Operand) -> bool:
    if one.value is None or other.value is None:
        places = one.value is other.value and one.shape == other.shape
        return places and _part(one.index) == _part(other.index) and _same_range(one, other)
    return _agree(one.value, other.value)


def _part(index: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return an index in one form: it may have ``...`` or full slices for a whole array."""
    return None if all(i is ... or i == slice(None) for i in index or ()) else index


def _same_range(one: Operand, other: Operand) -> bool:
    pairs = ((one.minimum, other.minimum), (one.maximum, other.maximum))
    return all(a is b or (None not in (a, b) and _agree(a, b)) for a, b in pairs)


def _situation(cause: Cause, place: Place, op: str) -> Situation:
    values = tuple(
        np.asarray(Place(place.scope, v).array)[r.index]
        for v, r in zip(place.variable.owner.inputs, culprit.regions_of(place), strict=False)
    )
    steps = _steps(cause)
    return Situation(
        op=op,
        operands=values,
        result=place.element,
        dtype=cause.dtype,
        producers=tuple(_producer(v) for v in place.variable.owner.inputs),
        in_scan=bool(steps),
        step=steps[-1] if steps else 0,
        source=cause.source.text if cause.source is not None else "",
        matrix=matrix_text(values[0], op) if op in DECOMPOSITIONS else "",
    )


def _producer(variable: Variable) -> Producer:
    made = viewed(variable).owner
    return Producer("input" if made is None else op_name(made.op))
