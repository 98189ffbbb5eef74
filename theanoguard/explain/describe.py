"""Describe where a bad value comes from."""

import numpy as np
from pytensor.graph.basic import Constant

from theanoguard._values import kind_of
from theanoguard.explain import culprit
from theanoguard.explain.culprit import Place
from theanoguard.explain.hints import came_in, hint_for
from theanoguard.explain.labels import (
    display_name,
    line_around,
    lookup_in,
    name_in,
    provenance_of,
    role_of,
    step_name,
)
from theanoguard.explain.naming import apply_text, number_text, number_texts, op_name
from theanoguard.explain.records import Cause, Operand
from theanoguard.explain.situation import situation_of
from theanoguard.explain.telling import telling_elements


def describe(origin, mask, event=None):
    """Return the :class:`Cause` that an :class:`~theanoguard.explain.culprit.Origin` is."""
    place = origin.place
    node = place.variable.owner
    scope = place.scope
    array = np.asarray(place.array)
    made = origin.made
    step = None if made is None else made.step
    provenance = provenance_of(place, step)
    value = place.element if step is None else _only(step.results)
    name, own_name = name_in(scope, place.variable, provenance)
    if node is None:
        role = event.role if event is not None and event.role != "node" else role_of(place.variable)
        folded = any("fold" in step.reason for step in provenance.history)
        hint = came_in("folded" if folded else role, array, mask(array))
        op, operands, expression = None, (), name
    else:
        role = "node"
        if step is not None:
            operands = _scalar_operands(made, node, lookup_in(scope, place.variable))
            op = op_name(step.op)
            expression = apply_text(step.op, number_texts(step.operands))
        else:
            operands = _region_operands(place)
            op = op_name(node.op)
            # What is not looked into has no numbers of its own to show, but a formula.
            texts = [o.text for o in operands]
            expression = name if op == "composite" else apply_text(node.op, texts)
        hint = hint_for(situation_of(place, made, op, value, provenance))
    in_term = made is not None and made.bad is not None
    bad = made.bad if in_term else mask(array)
    low, high = (None, None) if in_term else finite_range(array)
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
        index=place.index if made is None else made.index,
        value=value,
        shape=bad.shape,
        dtype=str(array.dtype),
        n_bad=int(np.count_nonzero(bad)),
        size=int(bad.size),
        minimum=low,
        maximum=high,
        provenance=provenance,
        path=scope.path,
        hint=hint,
        around=line_around(scope),
    )


def _only(values):
    return next((v for v in values if not np.isfinite(v)), values[0])


def finite_range(array):
    """Return the smallest and largest finite value of an array, or (None, None)."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        return None, None
    finite = array[np.isfinite(array)]
    return (finite.min(), finite.max()) if finite.size else (None, None)


def _scalar_operands(made, node, provenance):
    """Return the operands of a scalar operation at one element."""
    operands = []
    for value, origin in zip(made.step.operands, made.step.origins, strict=True):
        if isinstance(origin, int):
            operands.append(_element_operand(made.sources[origin], value))
            continue
        dtype = str(np.asarray(value).dtype)
        if origin is None:
            operands.append(Operand(number_text(value), value, None, (), dtype, constant=True))
            continue
        given = apply_text(origin.op, number_texts(origin.operands))
        name = step_name(made, node, provenance, origin)
        operands.append(Operand(name, value, None, (), dtype, computed=True, given=given))
    return tuple(operands)


def _element_operand(place, value):
    array = np.asarray(place.array)
    low, high = finite_range(array)
    return Operand(
        display_name(place.scope, place.variable),
        value,
        place.index,
        array.shape,
        str(array.dtype),
        low,
        high,
        isinstance(place.variable, Constant),
    )


def _region_operands(place):
    found = culprit.regions_of(place)
    inputs = place.variable.owner.inputs
    arrays = [np.asarray(Place(place.scope, inputs[r.operand]).array) for r in found]
    return tuple(
        _region_operand(place.scope, inputs[region.operand], region, array, telling)
        for region, array, telling in zip(
            found, arrays, _telling(place, found, arrays), strict=True
        )
    )


def _telling(place, found, arrays):
    """Return the index in each region of the element that weighs most, or None."""
    indices = telling_elements(op_name(place.variable.owner.op), found, arrays, place.element)
    return [None if r.is_element else index for r, index in zip(found, indices, strict=True)]


def _region_operand(scope, variable, region, array, telling):
    read = array[region.index]
    low, high = finite_range(read)
    return Operand(
        display_name(scope, variable),
        read[()] if np.ndim(read) == 0 else None,
        tuple(... if isinstance(i, np.ndarray) else i for i in region.index),
        array.shape,
        str(array.dtype),
        low,
        high,
        isinstance(variable, Constant),
        None if telling is None else (telling, array[telling]),
    )
