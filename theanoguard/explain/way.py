"""The way from an input to the culprit."""

from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.tensor.elemwise import Elemwise

from theanoguard.explain import culprit
from theanoguard.explain.culprit import Place, most_telling
from theanoguard.explain.labels import (
    VIEWS,
    lookup_in,
    name_in,
    provenance_of,
    role_of,
    user_op,
    user_op_name,
)
from theanoguard.explain.naming import apply_text, number_texts, op_name
from theanoguard.explain.records import Waypoint, user_line
from theanoguard.explain.scalars import ScalarStep

MAX_STEPS = 2_000
"""Operations followed from the culprit towards the inputs."""


MAX_WAYPOINTS = 60
"""How many of them are described."""


FAR = 3
"""How many of these are the ones nearest to the input."""


def way_from_inputs(origin):
    """Return the way from an input to the culprit, and how many stops in it are left out.

    Parameters
    ----------
    origin : Origin

    Returns
    -------
    waypoints : tuple of Waypoint
        Farthest first; of a long way its beginning and its end.
    left_out : int
        How many lie between the first :data:`FAR` and the rest.
    """
    stops = []
    place, made = origin.place, origin.made
    while not place.is_leaf or place.scope.parent is not None:
        fused, following = _upstream(place, made)
        stops += [_FusedStop(place, step) for step in fused]
        place, made = following, None
        if place is None or len(stops) >= MAX_STEPS:
            break
        if _is_stop(place):
            stops.append(place)
    stops.reverse()
    left_out = max(len(stops) - MAX_WAYPOINTS, 0)
    shown = stops[:FAR] + stops[FAR + left_out :]
    return merge_rewritten([_waypoint(stop) for stop in shown]), left_out


@dataclass(frozen=True)
class _FusedStop:
    """A scalar operation fused into the node at `place`."""

    place: Place
    step: ScalarStep


def _is_stop(place):
    """Whether a place is worth a line: views are not, nor what is merely handed inside."""
    if not place.is_leaf:
        return not isinstance(place.variable.owner.op, VIEWS)
    return place.scope.parent is None or isinstance(place.variable, Constant) or _is_state(place)


def _is_state(place):
    scope = place.scope
    position = list(scope.fgraph.inputs).index(place.variable)
    return scope.parent.replay.inner(scope.node).outer_input(position) is None


def _upstream(place, made):
    """Return the fused operations before the last one of a node, and the operand they lead to.

    Of each operation the operand that decides most is followed.
    """
    node = place.variable.owner
    if made is None and node is not None and isinstance(node.op, Elemwise):
        final = culprit.scalar_final(place)
        made = culprit.elementwise(place, final) if isinstance(final, ScalarStep) else None
    if made is None:
        return [], most_telling(place)
    fused, step = [], made.step
    while True:
        position = _weightiest(step)
        if position is None:
            return fused, None
        step = step.origins[position]
        if not isinstance(step, ScalarStep):
            return fused, made.sources[step]
        fused.append(step)


def _weightiest(step):
    """Return the operand of a scalar operation to follow upstream, None if all are constants.

    What is not finite comes first, then a divisor of 0, then of a quotient what is farther from
    1, the first operand of a difference or power, and the largest of any other.
    """
    name = op_name(step.op)
    candidates = [i for i, origin in enumerate(step.origins) if origin is not None]
    if not candidates:
        return None

    def weight(i):
        value = step.operands[i]
        if not np.isfinite(value):
            return 3, 0.0
        if i == 1 and value == 0 and name in ("true_div", "int_div", "mod"):
            return 2, 0.0
        if name == "true_div":
            return 1, float(abs(np.log(abs(value)))) if value else 0.0
        ordered = i == 0 and name in ("sub", "pow")
        return (1, 0.0) if ordered else (0, float(abs(value)))

    return max(candidates, key=weight)


def _waypoint(stop):
    if isinstance(stop, _FusedStop):
        return _fused_waypoint(stop.place, stop.step)
    place = stop
    provenance = lookup_in(place.scope, place.variable)
    array = np.asarray(place.array)
    leaf = place.is_leaf
    op = None if leaf else user_op(provenance, place.variable.owner)
    name, own_name = name_in(place.scope, place.variable, provenance)
    rewritten = not leaf and op != op_name(place.variable.owner.op)
    nested = name.count("(") > 1 or "..." in name
    if not own_name and not leaf and (rewritten or nested) and op != "composite":
        name = op
    return Waypoint(
        name=name,
        index=place.index,
        value=place.element,
        shape=array.shape,
        kind=_leaf_kind(place) if leaf else "node",
        source=user_line(provenance),
        op=op,
        path=place.scope.path,
    )


def _fused_waypoint(place, step):
    provenance = provenance_of(place, step)
    # Only elementwise operations are stepped into: all have the shape of the node's terms.
    return Waypoint(
        name=apply_text(step.op, number_texts(step.operands)),
        index=(),
        value=step.results[0],
        shape=np.shape(place.array),
        kind="node",
        source=user_line(provenance),
        op=user_op_name(provenance.op) if provenance.op else op_name(step.op),
        path=place.scope.path,
    )


def _leaf_kind(place):
    role = role_of(place.variable)
    return "state" if place.scope.parent is not None and role != "constant" else role


def merge_rewritten(points):
    """Join neighbours that one operation of the user was rewritten into; the last one stays."""
    merged = []
    for point in points:
        last = merged[-1] if merged else None
        same = (
            last is not None
            and point.kind == last.kind == "node"
            and point.source is not None
            and (point.source, point.op, point.path) == (last.source, last.op, last.path)
        )
        if same:
            merged.pop()
        merged.append(point)
    return tuple(merged)
