"""What a hint looks at: the operation, its operands, and what lies around it."""

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import scalar_ops_of
from theanoguard.explain import culprit
from theanoguard.explain.culprit import Place
from theanoguard.explain.hints import Producer, Situation
from theanoguard.explain.labels import VIEWS, lookup_in, role_of, user_op_name
from theanoguard.explain.naming import op_name
from theanoguard.explain.records import user_line
from theanoguard.explain.regions import extreme_element
from theanoguard.explain.scalars import ScalarStep


def situation_of(place, made, op, value, provenance):
    """Return the :class:`~theanoguard.explain.hints.Situation` of an operation that made `value`.

    Parameters
    ----------
    place : Place
    made : Made or None
        The scalar operation, of an elementwise or fused node.
    op : str
        Name of the operation.
    value : number
    provenance : Provenance
    """
    if made is not None:
        operands = made.step.operands
        producers = tuple(_step_producer(made, origin) for origin in made.step.origins)
    else:
        parts = list(_region_places(place))
        operands = tuple(np.asarray(p.array)[r.index] for p, r in parts)
        producers = tuple(_producer(p) for p, _ in parts)
    line = user_line(provenance)
    clients = place.scope.fgraph.clients.get(place.variable, ())
    return Situation(
        op=op,
        operands=operands,
        result=value,
        dtype=str(np.asarray(value).dtype),
        backward=provenance.backward is not None,
        producers=producers,
        consumers=tuple(op_name(client.op) for client, _ in clients),
        in_scan=any(s.step is not None for s in place.scope.path),
        source=line.text if line is not None else "",
    )


def _step_producer(made, origin):
    if origin is None:
        return Producer("constant")
    if not isinstance(origin, ScalarStep):
        return _producer(made.sources[origin])
    names, positions = _upstream(origin)
    for outside in (_producer(made.sources[i]) for i in positions):
        names += (outside.op, *outside.ancestors)
    return Producer(op_name(origin.op), origin.operands, names)


def _upstream(step):
    """Return names of the operations upstream in a fused node, and what they read of it."""
    names, positions, todo = [], [], list(step.origins)
    while todo:
        origin = todo.pop()
        if isinstance(origin, ScalarStep):
            names.append(op_name(origin.op))
            todo += origin.origins
        elif origin is not None:
            positions.append(origin)
    return tuple(names), positions


def _region_places(place):
    """Return a place in each operand's region, with the region."""
    for region in culprit.regions_of(place):
        whole = Place(place.scope, place.variable.owner.inputs[region.operand])
        index = extreme_element(region, whole.array) if np.size(whole.array) else ()
        yield Place(whole.scope, whole.variable, index), region


def _producer(place):
    """Return what computed an element, looking through views, and into and out of fused nodes."""
    while (shown := _shown(place)) is not None:
        place = shown
    node = place.variable.owner
    if node is None:
        return Producer(role_of(place.variable))
    made = (v.owner.op for v in _ancestors(node, depth=3) if v.owner is not None)
    further = tuple(name for op in made for name in _names(op))
    user_op = lookup_in(place.scope, place.variable).op
    further += (user_op_name(user_op),) if user_op else ()
    final = culprit.scalar_final(place) if isinstance(node.op, Elemwise) else None
    if isinstance(final, ScalarStep):
        names, _ = _upstream(final)
        return Producer(op_name(final.op), final.operands, names + further)
    return Producer(op_name(node.op), (), further)


def _shown(place):
    """Return the element that an element shows, or that entered a fused node; None for others."""
    node, around = place.variable.owner, place.scope.node
    if node is not None:
        is_view = isinstance(node.op, VIEWS)
        return culprit.operand_place(place, culprit.regions_of(place)[0]) if is_view else None
    is_inside = around is not None and isinstance(around.op, OpFromGraph)
    return culprit.leave(place) if is_inside else None


def _names(op):
    """Return the names of an operation and of those that a backend has fused in it."""
    if isinstance(op, OpFromGraph):
        fused = (name for node in op.fgraph.toposort() for name in _names(node.op))
    else:
        fused = map(op_name, scalar_ops_of(op)) if isinstance(op, Elemwise) else ()
    return [op_name(op), *fused]


def _ancestors(node, depth):
    level = list(node.inputs)
    for _ in range(depth):
        yield from level
        level = [v for up in level if up.owner is not None for v in up.owner.inputs][:20]
