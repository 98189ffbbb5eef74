"""Describe where a bad value comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Made, Origin, Place
from theanoguard._event import GuardEvent
from theanoguard._graph import role_of
from theanoguard._naming import apply_text
from theanoguard._provenance import Provenance, SourceLine, overflowed
from theanoguard._steps import attempt
from theanoguard._text import number_text, number_texts
from theanoguard._values import Mask, kind_of
from theanoguard.explain.facts.labels import (
    MAX_FORMULA,
    as_written,
    display_name,
    element_name,
    in_users_dimensions,
    line_around,
    lookup_in,
    name_in,
    operand_text,
    provenance_of,
    provenance_of_step,
    step_name,
)
from theanoguard.explain.facts.records import CameIn, Cause, Operand, Situation
from theanoguard.explain.facts.shapes import shape_text
from theanoguard.explain.facts.situation import situation_of
from theanoguard.explain.facts.telling import DECOMPOSITIONS, telling_elements
from theanoguard.operations import Region
from theanoguard.operations.names import op_name


def describe(origin: Origin, mask: Mask, event: GuardEvent | None = None) -> Cause:
    """Describe an :class:`~theanoguard._evaluate.culprit.Origin` as a :class:`Cause`."""
    place = origin.place
    node = place.variable.owner
    scope = place.scope
    array = np.asarray(place.array)
    made = origin.made
    provenance = provenance_of(place, None if made is None else made.step)
    if made is not None:
        made = replace(made, step=as_written(made.step, provenance))
    step = None if made is None else made.step
    value = place.element if step is None else _only(step.results)
    name, own_name = name_in(scope, place.variable, provenance)
    op: str | None = None
    operands: tuple[Operand, ...] = ()
    situation: Situation | CameIn | None
    if node is None:
        role = event.role if event is not None and event.role != "node" else role_of(place.variable)
        held = role
        if isinstance(place.variable, Constant):
            if _is_computed(place, provenance):
                held = "folded"
            if provenance.source is None:  # a rewrite has put several constants together
                provenance = replace(provenance, source=_line_of_reader(place))
        situation = CameIn(held, array, mask(array))
        expression = name
    else:
        role = "node"
        if made is not None:
            whole = lookup_in(scope, place.variable)
            operands = _scalar_operands(made, node, whole, provenance)
            op = op_name(made.step.op)
            expression = apply_text(made.step.op, number_texts(made.step.operands))
        else:
            operands = _region_operands(place)
            op = op_name(node.op)
            # A Composite that could not be evaluated in Python has no operand values to show.
            texts = [_in_short(o) for o in operands]
            expression = name if op == "composite" else apply_text(node.op, texts)
        situation = attempt("the advice", None, situation_of, place, made, op, value, provenance)
    terms = None if made is None else made.bad
    in_term = terms is not None
    bad = mask(array) if terms is None else terms
    low, high = (None, None) if in_term else finite_range(array)
    index, shape = place.index if made is None else made.index, bad.shape
    if role == "node" and not in_term:
        index, shape = in_users_dimensions(provenance, index, shape)
    return Cause(
        kind=kind_of(value),
        role=role,
        op=op,
        node=None if node is None else f"{node.op}.{node.outputs.index(place.variable)}",
        fused=step is not None and step.node is not None,
        name=name,
        own_name=own_name,
        expression=expression,
        operands=operands,
        index=index,
        value=value,
        shape=shape,
        dtype=str(array.dtype),
        n_bad=int(np.count_nonzero(bad)),
        size=int(bad.size),
        minimum=low,
        maximum=high,
        provenance=provenance,
        path=scope.path,
        situation=situation,
        around=line_around(scope),
    )


def _is_computed(place: Place, provenance: Provenance) -> bool:
    """Return whether PyTensor has computed a constant when it compiled the function."""
    folded = any("fold" in step.reason for step in provenance.history)
    return folded or place.variable in overflowed(place.scope.replay.fgraph)


def _line_of_reader(place: Place) -> SourceLine | None:
    """Return the user's line of an operation that reads a constant."""
    clients = place.scope.replay.fgraph.clients.get(place.variable, ())
    outputs = (node.outputs[0] for node, _ in clients if node.outputs)
    lines = (lookup_in(place.scope, output).source for output in outputs)
    return next(filter(None, lines), None)


def _in_short(operand: Operand) -> str:
    """Return the value or name of an operand; for a long formula, what it is."""
    if len(operand.text) <= MAX_FORMULA:
        return operand.text
    return f"an array of shape {shape_text(operand.shape)}"


def _only(values: Sequence[Any]) -> Any:
    return next((v for v in values if not np.isfinite(v)), values[0])


def finite_range(array: Any) -> tuple[Any, Any]:
    """Return the smallest and largest finite value of an array, or (None, None)."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        return None, None
    finite = array[np.isfinite(array)]
    return (finite.min(), finite.max()) if finite.size else (None, None)


def _scalar_operands(
    made: Made, node: Apply, provenance: Provenance, own: Provenance
) -> tuple[Operand, ...]:
    """Return the operands of a scalar operation at one element; `own` is its own provenance."""
    operands = []
    for value, origin in zip(made.step.operands, made.step.origins, strict=True):
        if isinstance(origin, int):
            operands.append(_element_operand(made.sources[origin], value))
            continue
        dtype = str(np.asarray(value).dtype)
        if origin is None:
            operands.append(Operand(number_text(value), value, None, (), dtype, constant=True))
            continue
        before = as_written(origin, provenance_of_step(provenance, node, origin))
        given = apply_text(before.op, number_texts(before.operands))
        name = step_name(made, node, provenance, origin)
        if not name.isidentifier():
            name = operand_text(made.step.op, own) or name
        operands.append(Operand(name, value, None, (), dtype, computed=True, given=given))
    return tuple(operands)


def _element_operand(place: Place, value: Any) -> Operand:
    array = np.asarray(place.array)
    low, high = finite_range(array)
    name, index = element_name(place)
    return Operand(
        name,
        value,
        index,
        array.shape,
        str(array.dtype),
        low,
        high,
        isinstance(place.variable, Constant),
    )


def _region_operands(place: Place) -> tuple[Operand, ...]:
    operands = []
    for variable, region, array, telling in regions_read(place):
        name, constant = display_name(place.scope, variable), isinstance(variable, Constant)
        read = array[region.index]
        operands.append(operand_read(name, read, region.index, array, constant, telling))
    return tuple(operands)


def regions_read(
    place: Place,
) -> Iterator[tuple[Variable, Region, np.ndarray, tuple[Any, ...] | None]]:
    """Yield each operand of an operation, the region that an element is computed from, and more.

    These are the array, and the index of the most decisive element of the region, or None.
    """
    node, found = place.variable.owner, culprit.regions_of(place)
    arrays = [np.asarray(Place(place.scope, node.inputs[r.operand]).array) for r in found]
    name, telling = op_name(node.op), list[tuple[Any, ...] | None]([None] * len(found))
    if name not in DECOMPOSITIONS:
        telling = telling_elements(name, found, arrays, place.element)
    for region, array, index in zip(found, arrays, telling, strict=True):
        yield node.inputs[region.operand], region, array, None if region.is_element else index


def operand_read(
    name: str,
    read: Any,
    index: Sequence[Any],
    array: np.ndarray,
    constant: bool,
    telling: tuple[Any, ...] | None,
) -> Operand:
    """Return an operand of which `read` is the part at an index that an operation reads."""
    low, high = finite_range(read)
    return Operand(
        name,
        read[()] if np.ndim(read) == 0 else None,
        tuple(... if isinstance(i, np.ndarray) else i for i in index),
        array.shape,
        str(array.dtype),
        low,
        high,
        constant,
        None if telling is None else (telling, array[telling]),
    )
