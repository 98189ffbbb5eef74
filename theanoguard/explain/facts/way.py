"""The path from an input to the operation that made a bad value (the culprit)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Made, Origin, Place, dense, is_numeric, not_finite
from theanoguard._evaluate.scalars import ScalarStep
from theanoguard._graph import is_buffer, role_of
from theanoguard._naming import element_text
from theanoguard._provenance import Provenance, SourceLine
from theanoguard._provenance.fused import BETWEEN
from theanoguard._provenance.records import user_line
from theanoguard._pytensor import IfElse
from theanoguard._text import number_text
from theanoguard.explain.facts.labels import (
    VIEWS,
    as_written,
    fused_name,
    index_in,
    joined_at,
    lookup_in,
    name_in,
    operand_text,
    provenance_of,
    step_name,
    user_op,
    user_op_name,
    written,
)
from theanoguard.explain.facts.records import Operand, Waypoint
from theanoguard.explain.facts.telling import (
    DECOMPOSITIONS,
    MATRIX_PRODUCTS,
    QUOTIENTS,
    decisive,
    is_fixed,
    telling_elements,
)
from theanoguard.operations import Region
from theanoguard.operations.names import op_name, shown_op

MAX_STEPS = 2_000  # largest number of operations followed from the culprit towards the inputs


MAX_WAYPOINTS = 60  # largest number of these operations that are shown


MAX_FORMULA = 40
"""Largest length of a formula shown as a name.  For a longer one, the operation is shown."""


FAR = 3  # how many of the shown operations are those nearest to the input


def way_from_inputs(origin: Origin) -> tuple[tuple[Waypoint, ...], int]:
    """Return the path from an input to the culprit, and the number of stops left out.

    Returns
    -------
    waypoints : tuple of Waypoint
        Farthest from the culprit first.  Only the beginning and the end of a long path are shown.
    left_out : int
        How many stops are left out after the first :data:`FAR`.
    """
    stops: list[Stop] = []
    place, made = origin.place, origin.made
    while not place.is_leaf or place.scope.parent is not None:
        fused, sources, following = _upstream(place, made)
        if made is not None and (removed := _removed(place, made)) is not None:
            stops.append(removed)
            fused = [step for step in fused if op_name(step.op) != "neg" or step is not fused[0]]
        stops += [_FusedStop(place, step, sources) for step in fused]
        if following is None or len(stops) >= MAX_STEPS:
            break
        place, made = following, None
        if _is_stop(place):
            stops.append(place)
    stops = _folded(stops[::-1])
    if len(stops) == 1:  # the report shows the operands of the culprit anyway
        return (), 0
    left_out = max(len(stops) - MAX_WAYPOINTS, 0)
    points = [_waypoint(stop) for stop in stops[:FAR] + stops[FAR + left_out :]]
    # (a stop such as `-(1.0)` or a literal, whose name is just its value, says nothing new)
    silent = ("node", "constant")
    said = [p for p in points if p.kind not in silent or p.name != number_text(p.value)]
    merged = _without_repeats(_in_users_terms(merge_rewritten(said)))
    return (merged, left_out) if len(merged) > 1 else ((), 0)


@dataclass(frozen=True)
class _FusedStop:
    """A scalar operation fused into the node at `place`, and the operands of the node.

    `name` is the user's text for it, if a rewrite has removed it.
    """

    place: Place
    step: ScalarStep
    sources: dict[int, Place]
    name: str | None = None


def _removed(place: Place, made: Made) -> _FusedStop | None:
    """Return the operand that the user wrote, if a rewrite computes the operation without it."""
    own = provenance_of(place, made.step)
    step = as_written(made.step, own)
    if step is made.step:
        return None
    return _FusedStop(place, step.origins[0], made.sources, operand_text(step.op, own))


@dataclass(frozen=True)
class _LoopStop:
    """A state of a loop, at the beginning of several of its steps."""

    places: tuple[Place, ...]


Stop: TypeAlias = "Place | _FusedStop | _LoopStop"


def _folded(stops: list[Stop]) -> list[Stop]:
    """Join the stops between the first and the last state of a loop into one stop."""
    loops: dict[Apply, dict[int, Place]] = {}
    for i, stop in enumerate(stops):
        if isinstance(stop, Place) and stop.is_leaf and stop.scope.step is not None:
            loops.setdefault(stop.scope.node, {})[i] = stop
    folded: list[Stop] = []
    end = 0
    for places in sorted(loops.values(), key=min):
        if len(places) > 1 and min(places) >= end:
            folded += stops[end : min(places)]
            folded.append(_LoopStop(tuple(places.values())))
            end = max(places) + 1
    return folded + stops[end:]


def _is_stop(place: Place) -> bool:
    """Whether to show a place.

    Views, and values only passed into an inner graph, are not shown.  The output of a loop is shown
    as the state in its steps: a buffer may have fewer entries than the loop has steps.
    """
    if not place.is_leaf:
        hidden = isinstance(place.variable.owner.op, (*VIEWS, *BETWEEN, Scan))
        return not hidden and not is_buffer(place.variable)
    return place.scope.parent is None or isinstance(place.variable, Constant) or _is_state(place)


def _is_state(place: Place) -> bool:
    scope, outside = place.scope, place.scope.parent
    position = list(scope.fgraph.inputs).index(place.variable)
    return outside is not None and outside.replay.inner(scope.node).outer_input(position) is None


def _upstream(
    place: Place, made: Made | None
) -> tuple[list[ScalarStep], dict[int, Place], Place | None]:
    """Return the fused operations before the last one of a node, and the operand they lead to.

    At each operation, the operand that decides its result most is followed.
    """
    node = place.variable.owner
    if made is None and node is not None and isinstance(node.op, Elemwise):
        final = culprit.scalar_final(place)
        made = culprit.elementwise(place, final) if isinstance(final, ScalarStep) else None
    if made is None:
        return [], {}, most_telling(place)
    fused: list[ScalarStep] = []
    step: Any = made.step
    while True:
        position = followed(step, made.sources)
        if position is None:
            return fused, made.sources, None
        step = step.origins[position]
        if not isinstance(step, ScalarStep):
            return fused, made.sources, made.sources[step]
        fused.append(step)


def followed(
    step: ScalarStep, sources: dict[int, Place], through_constants: bool = False
) -> int | None:
    """Return the operand of a scalar operation to follow upstream, or None."""

    known = [i for i, origin in enumerate(step.origins) if through_constants or origin is not None]
    if op_name(step.op) == "switch":
        chosen = 1 if step.operands[0] else 2
        known = [i for i in (chosen, 0) if i in known]

    def is_open(i: int) -> bool:
        origin = step.origins[i]
        computed = not isinstance(origin, int) or not is_fixed(sources[origin].variable)
        return computed or through_constants

    usable = [i for i in known if is_open(i)]
    values = {i: step.operands[i] for i in usable}
    if not usable or _divisor_is_zero(step) and 1 not in usable:
        return None
    return decisive(op_name(step.op), values, step.results[0])


def _divisor_is_zero(step: ScalarStep) -> bool:
    name = op_name(step.op)
    return name in QUOTIENTS and len(step.operands) > 1 and step.operands[1] == 0


def most_telling(place: Place, through_constants: bool = False) -> Place | None:
    """Return the operand element to follow upstream from an element, or None.

    The element that decides the result most is followed.  An infinite operand comes first.  For a
    matrix product it is the larger factor of the largest term, for a reduction the most decisive
    element.  Otherwise it is the first operand that is computed.  Constants, shapes and indices
    are followed only `through_constants`.
    """
    node = place.variable.owner
    if node is None:
        return culprit.leave(place)
    if isinstance(node.op, IfElse):
        return culprit.enter(node.op, place)
    inside = culprit.enter(node.op, place)
    if inside is not None:
        return inside
    candidates = {}
    operands = [Place(place.scope, v) for v in node.inputs]
    found = culprit.regions_of(place)
    read = [dense(operands[region.operand].array) for region in found]
    telling = telling_elements(op_name(node.op), found, read, place.element)
    for i, (region, value, index) in enumerate(zip(found, read, telling, strict=True)):
        variable = node.inputs[region.operand]
        if index is None or not is_numeric(value):
            continue
        if is_fixed(variable) and not through_constants:
            continue
        # A softmax reads a whole row.  Show the element at the same index.
        sound = not region.is_element and not region_is_bad(region, value)
        is_product = op_name(node.op) in MATRIX_PRODUCTS
        same = sound and not is_product and np.shape(value) == np.shape(place.array)
        if sound and not same and region.index == (...,) or sound and is_matrix_operation(node.op):
            continue  # it is not known which element matters
        candidates[i] = Place(place.scope, variable, place.index if same else index)
    if not candidates:
        return None
    if op_name(node.op) in MATRIX_PRODUCTS:
        added = next((c for i, c in candidates.items() if found[i].operand == 0), None)
        if len(node.inputs) == 5 and added is not None:  # Gemm, Gemv: beta * z + alpha * x @ y
            share = operands[4].element * added.element
            if not abs(share) <= abs(place.element - share):
                return added
            candidates = {i: c for i, c in candidates.items() if c is not added}
        values = {i: c.element for i, c in candidates.items()}
        return candidates[decisive("mul", values, place.element)]
    bad = [c for c in candidates.values() if not np.isfinite(c.element)]
    computed = [c for c in candidates.values() if not c.is_leaf]
    return next(iter(bad or computed or candidates.values()))


def is_matrix_operation(op: Op) -> bool:
    """Return whether an operation decomposes a matrix, or solves with it."""
    return op_name(op) in DECOMPOSITIONS


def region_is_bad(region: Region, value: Any) -> bool:
    """Return whether a region contains a value that is not finite."""
    return bool(np.any(not_finite(np.asarray(value)[region.index])))


def _waypoint(stop: Stop) -> Waypoint:
    if isinstance(stop, _FusedStop):
        return _fused_waypoint(stop)
    if isinstance(stop, _LoopStop):
        steps = tuple((place.scope.step or 0, place.element) for place in stop.places)
        return replace(_waypoint(stop.places[-1]), kind="loop", steps=steps)
    place = stop
    provenance = lookup_in(place.scope, place.variable)
    array = np.asarray(place.array)
    leaf = place.is_leaf
    op = None if leaf else user_op(provenance, place.variable.owner)
    name, own_name = name_in(place.scope, place.variable, provenance)
    if not (own_name or leaf or written(provenance)) and len(name) > MAX_FORMULA:
        name = shown_op(op or "")
    index, shape = index_in(place, provenance), array.shape
    if (joined := joined_at(place)) is not None:
        name, index, shape = joined
    return Waypoint(
        name=name,
        index=index,
        value=place.element,
        shape=shape,
        kind=_leaf_kind(place) if leaf else "node",
        source=_certain_line(provenance),
        op=op,
        path=place.scope.path,
        is_users=bool(own_name or leaf or joined or written(provenance)),
    )


def _fused_waypoint(stop: _FusedStop) -> Waypoint:
    place, step = stop.place, stop.step
    removed = step.node is None
    provenance = provenance_of(place, step)
    name = stop.name or fused_name(place, step)
    known = name is not None and provenance.ndim == len(place.index)
    is_users = name is not None
    if name is None:
        whole = lookup_in(place.scope, place.variable)
        name = step_name(Made(step, stop.sources, ()), place.variable.owner, whole, step)
    # Only elementwise operations are fused.  They all have the shape of the node's terms.
    return Waypoint(
        name=name,
        index=place.index if known else (),
        value=step.results[0],
        shape=np.shape(place.array),
        kind="node",
        source=None if removed else _certain_line(provenance),
        op=user_op_name(provenance.op) if provenance.op and not removed else op_name(step.op),
        path=place.scope.path,
        is_users=is_users,
    )


def _certain_line(provenance: Provenance) -> SourceLine | None:
    """Return the user's line; None if a rewrite joined operations of several lines."""
    joined = provenance.candidates and not provenance.own_source
    return None if joined and not provenance.own_name else user_line(provenance)


def _leaf_kind(place: Place) -> str:
    role = role_of(place.variable)
    return "state" if place.scope.parent is not None and role != "constant" else role


def _without_repeats(points: Sequence[Waypoint]) -> tuple[Waypoint, ...]:
    """Leave out an indexing operation that gives the element that the stop before it names."""
    texts = [element_text(p.name, p.index) for p in points]
    kept = [
        point
        for i, point in enumerate(points)
        if i == 0 or point.op != "getitem" or texts[i] != texts[i - 1]
    ]
    return tuple(kept)


def _in_users_terms(points: Sequence[Waypoint]) -> list[Waypoint]:
    """Leave out what only the compiled graph computes on the way to a value of the user's line.

    ``z / sqrt(2)`` is computed as ``0.70711 * z``.
    """
    kept: list[Waypoint] = []
    reached: set[object] = set()  # lines whose values are nearer to the culprit
    for point in reversed(points):
        line = (point.source.file, point.source.line, point.path) if point.source else None
        if point.is_users or line not in reached:
            kept.insert(0, point)
            reached.add(line)
    return kept


def without_rewrites(
    points: tuple[Waypoint, ...], operands: Sequence[Operand]
) -> tuple[Waypoint, ...]:
    """Return a path without the steps that only a rewrite has made.

    ``x ** -0.5`` is computed as ``1 / sqrt(x)``, and the report shows the power of ``x``: there the
    path ends at the last of the operands.  If two steps have one name, the last one has its value.
    """
    if not operands:
        return points
    # (a fused operation on the path may have no index)
    places = [(operand.name, index) for operand in operands for index in (operand.index, ())]
    ends = [i for i, p in enumerate(points) if (p.name, p.index) in places]
    kept = points[: ends[-1] + 1] if ends else points
    last = {(p.name, p.index, p.path): i for i, p in enumerate(kept)}
    return tuple(p for i, p in enumerate(kept) if last[p.name, p.index, p.path] == i)


def merge_rewritten(points: Sequence[Waypoint]) -> tuple[Waypoint, ...]:
    """Join neighbouring stops that come from one operation of the user; keep the last one."""
    merged: list[Waypoint] = []
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
