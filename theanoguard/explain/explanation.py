"""From a :class:`~theanoguard.explain.event.Trip` to an :class:`Explanation`."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape

from theanoguard.explain import culprit
from theanoguard.explain.culprit import Place, Scope, find_origin, is_numeric, most_telling
from theanoguard.explain.event import GuardEvent, PathStep
from theanoguard.explain.hints import CAME_IN, Hint, Producer, Situation, hint_for
from theanoguard.explain.naming import (
    ALIASES,
    INDEXING,
    apply_text,
    name_of,
    number_text,
    number_texts,
    op_name,
)
from theanoguard.explain.regions import extreme_element, locate
from theanoguard.explain.replay import Kernels, Replay
from theanoguard.explain.repro import Repro, repro_of, save_repro
from theanoguard.explain.scalars import ScalarStep
from theanoguard.provenance import Provenance, SourceLine, lookup, lookup_inner

VIEWS = (DimShuffle, Reshape, SpecifyShape, *INDEXING)
"""Operations that only move elements."""

MAX_STEPS = 2_000
"""Operations followed from the culprit towards the inputs."""

MAX_WAYPOINTS = 60
"""How many of them are described."""

FAR = 3
"""How many of these are the ones nearest to the input."""


@dataclass(frozen=True)
class Operand:
    """What the culprit was given.

    Parameters
    ----------
    name : str
        Name of the variable, or a short expression.
    value : number or None
        The element, exactly; None where a whole region was read.
    index : tuple or None
        Its index in the variable; slices where a region was read.
    shape : tuple of int
    dtype : str
    minimum, maximum : number or None
        Smallest and largest finite value of what was read.
    constant : bool
    telling : tuple of (tuple of int, number) or None
        Of a region, the element that weighs most: in a product of matrices that of the largest
        term.
    computed : bool
        Whether it is a value inside a fused operation; `name` is then what computed it.
    """

    name: str
    value: Any
    index: tuple | None
    shape: tuple[int, ...]
    dtype: str
    minimum: Any = None
    maximum: Any = None
    constant: bool = False
    telling: tuple[tuple[int, ...], Any] | None = None
    computed: bool = False

    @property
    def text(self):
        """The value if it is one, else the name with what was read of it."""
        if self.value is not None:
            return number_text(self.value)
        return self.name + index_text(self.index)


@dataclass(frozen=True)
class Waypoint:
    """One stop on the way from an input to the culprit.

    Parameters
    ----------
    name : str
        The variable's name, or the operation.
    index : tuple
        The element there.
    value : number
        Its value, exactly.
    shape : tuple of int
    kind : {"node", "input", "shared", "constant", "state"}
        A state is what a scan hands from step to step.
    source : SourceLine or None
        The user's line.
    op : str or None
        The user's operation.
    path : tuple of PathStep
        The inner graphs it lies in.
    """

    name: str
    index: tuple[int, ...]
    value: Any
    shape: tuple[int, ...]
    kind: str
    source: SourceLine | None = None
    op: str | None = None
    path: tuple[PathStep, ...] = ()


@dataclass(frozen=True)
class Cause:
    """An operation, or an outside value, that a bad value comes from.

    Parameters
    ----------
    kind : {"nan", "inf", "big", "extreme"}
        What its value is.
    role : {"node", "input", "shared", "constant"}
    op : str or None
        Name of the operation; of a fused one, the inner scalar operation.
    node : str or None
        The Apply node that holds it.
    fused : bool
        Whether the node is a fused one.
    name : str
        Name of the variable, the nearest name, or a short expression.
    own_name : bool
        Whether the user gave the name to this variable.
    expression : str
        The operation with its operands' values.
    operands : tuple of Operand
    index : tuple of int
        The element.
    value : number
        What came out there, exactly.
    shape : tuple of int
    dtype : str
    n_bad, size : int
        How many elements are bad, of how many.
    minimum, maximum : number or None
        Smallest and largest finite value.
    provenance : Provenance
        Of the operation.
    path : tuple of PathStep
        The inner graphs entered, outermost first.
    hint : Hint or None
    around : SourceLine or None
        The user's line of the innermost scan, or other operation with an inner graph, that it
        happened in.
    """

    kind: str
    role: str
    op: str | None
    node: str | None
    fused: bool
    name: str
    own_name: bool
    expression: str
    operands: tuple[Operand, ...]
    index: tuple[int, ...]
    value: Any
    shape: tuple[int, ...]
    dtype: str
    n_bad: int
    size: int
    minimum: Any
    maximum: Any
    provenance: Provenance
    path: tuple[PathStep, ...] = ()
    hint: Hint | None = None
    around: SourceLine | None = None

    @property
    def backward(self):
        """Whether differentiation made the operation."""
        return self.provenance.backward is not None

    @property
    def source(self):
        """The user's line; of a gradient, the line that it differentiates."""
        return user_line(self.provenance)


@dataclass(frozen=True)
class Fate:
    """What became of a bad value in the rest of the call.

    Parameters
    ----------
    survives : bool
        Whether an output or update of the function is bad.
    outputs : tuple of str
        Which ones.
    masked_by : tuple of str
        Operations that read a bad value and gave sound ones.
    """

    survives: bool
    outputs: tuple[str, ...]
    masked_by: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """All that is known of a trip; plain data, which pickles and outlives the call.

    Parameters
    ----------
    event : GuardEvent
        The trip.
    cause : Cause
        The first operation that made the badness, or the outside value that held it.
    deeper : Cause or None
        Where `cause` is sound under the policy except for an infinite operand: what made that.
    waypoints : tuple of Waypoint
        The way from an input to the cause.
    left_out : int
        How many stops of a long way are left out after the first :data:`FAR`.
    reproduced : bool
        Whether the replay gave the same bad value.  If not, `cause` tells what the live
        call showed.
    notes : tuple of str
    fate : Fate or None
        On request.
    repro : Repro or None
        What :meth:`save_repro` writes.
    """

    event: GuardEvent
    cause: Cause
    deeper: Cause | None = None
    waypoints: tuple[Waypoint, ...] = ()
    left_out: int = 0
    reproduced: bool = True
    notes: tuple[str, ...] = ()
    fate: Fate | None = None
    repro: Repro | None = field(default=None, repr=False, compare=False)

    def save_repro(self, path):
        """Write a standalone script that shows the fault, with its data beside it.

        Parameters
        ----------
        path : str or Path
            Of the script; the data file has the same name and the suffix ``.npz``.

        Returns
        -------
        Path
            The script.

        Raises
        ------
        ValueError
            If the fault cannot be reproduced.
        """
        return save_repro(self, path)

    @property
    def made_here(self):
        """Whether an operation of the function made the badness (else it came in)."""
        return self.cause.role == "node"


def explain(trip, masked=False, impl=None):
    """Find out what made the bad value of a trip.

    Parameters
    ----------
    trip : Trip
    masked : bool
        Also run the rest of the call, to see whether the bad value survives.
    impl : {"c", "py", None}
        Which implementation of the operations the replay runs.

    Returns
    -------
    Explanation
    """
    mask = culprit.numeric_mask(trip.is_bad)
    outermost = Scope(Replay(trip.fgraph, trip.inputs, Kernels(impl)))
    place, note = _tripped_place(trip, outermost, mask)
    if place is None:
        return Explanation(trip.event, _live_cause(trip), reproduced=False, notes=(note,))
    origin = find_origin(place, mask)
    first = origin
    cause = describe(origin, mask, trip.event if len(origin.steps) == 1 else None)
    deeper = None
    if origin.made_here and np.isnan(cause.value):
        further = find_origin(origin.place, culprit.not_finite)
        if further.place != origin.place or not _same_step(further, origin):
            other = describe(further, culprit.not_finite)
            if other.kind != "nan":
                deeper = other
                origin = further if further.made_here else origin
    points, left_out = way_from_inputs(origin)
    return Explanation(
        trip.event,
        cause,
        deeper=deeper,
        waypoints=points,
        left_out=left_out,
        fate=fate(trip, outermost, mask) if masked else None,
        repro=repro_of(first, lambda p: display_name(p.scope, p.variable)),
    )


def _tripped_place(trip, scope, mask):
    """Return the bad element in the replay, or None and why there is none."""
    try:
        for frame in trip.frames:
            scope = scope.inner(frame.node, frame.step, frame.fgraph)
        value = culprit.dense(scope.replay.value(trip.variable))
    except Exception as error:  # whatever an op of the user's may raise the second time
        return None, f"{NOT_REPRODUCED} The replay ended in {type(error).__name__}: {error}"
    if is_numeric(value):
        bad = np.asarray(mask(value))
        index = tuple(trip.event.first_index)
        inside = len(index) == bad.ndim and np.all(np.less(index, bad.shape))
        if inside and bad[index]:
            return Place(scope, trip.variable, index), None
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            return Place(scope, trip.variable, index), None
    return None, NOT_REPRODUCED


NOT_REPRODUCED = (
    "Running the call again did not give a bad value here: an operation on the way is not"
    " deterministic, or reads memory that nothing has written. What follows is what the live call"
    " showed."
)


# Describing


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
    name, own_name = _name(scope, place.variable, provenance)
    if node is None:
        role = event.role if event is not None and event.role != "node" else role_of(place.variable)
        folded = any("fold" in step.reason for step in provenance.history)
        hint = CAME_IN["folded" if folded else role]
        op, operands, expression = None, (), name
    else:
        role = "node"
        if step is not None:
            operands = _scalar_operands(made)
            op = op_name(step.op)
            expression = apply_text(step.op, number_texts(step.operands))
        else:
            operands = _region_operands(place)
            op = op_name(node.op)
            expression = apply_text(node.op, [o.text for o in operands])
        hint = hint_for(_situation(place, made, op, value, provenance))
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
        around=_line_around(scope),
    )


def _line_around(scope):
    """Return the user's line of the innermost inner graph that has one."""
    while scope.parent is not None:
        line = user_line(lookup(scope.parent.fgraph, scope.node.outputs[0]))
        if line is not None:
            return line
        scope = scope.parent
    return None


def _same_step(one, other):
    """Whether two origins at the same place are the same scalar operation."""
    nodes = [o.made.step.node if o.made is not None else None for o in (one, other)]
    return nodes[0] is nodes[1]


def _only(values):
    return next((v for v in values if not np.isfinite(v)), values[0])


def _live_cause(trip):
    event, node = trip.event, trip.variable.owner
    fgraph = trip.frames[-1].fgraph if trip.frames else trip.fgraph
    provenance = lookup(fgraph, trip.variable)
    array = np.asarray(culprit.dense(trip.value))
    numeric = is_numeric(array)
    low, high = finite_range(array) if numeric else (None, None)
    own_name = bool(provenance.own_name and provenance.name)
    name = provenance.name if own_name else name_of(trip.variable)
    operands = tuple(
        Operand(name_of(v), None, (...,), tuple(v.type.shape), v.type.dtype)
        for v in (node.inputs if node is not None else ())
        if hasattr(v.type, "dtype") and hasattr(v.type, "shape")
    )
    return Cause(
        kind=event.kind,
        role=event.role,
        op=None if node is None else op_name(node.op),
        node=event.node,
        fused=False,
        name=name,
        own_name=own_name,
        expression=name_of(trip.variable),
        operands=operands,
        index=event.first_index,
        value=event.first_value,
        shape=event.shape,
        dtype=event.dtype,
        n_bad=event.n_bad,
        size=event.size,
        minimum=low,
        maximum=high,
        provenance=provenance,
        path=event.path,
    )


def role_of(variable):
    """Return whether a leaf is an input, a shared variable or a constant."""
    if isinstance(variable, Constant):
        return "constant"
    return "shared" if isinstance(variable, SharedVariable) else "input"


def kind_of(value):
    """Return what is wrong with a number: "nan", "inf", or "big"."""
    if np.isnan(value):
        return "nan"
    return "inf" if np.isinf(value) else "big"


def finite_range(array):
    """Return the smallest and largest finite value of an array, or (None, None)."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        return None, None
    finite = array[np.isfinite(array)]
    return (finite.min(), finite.max()) if finite.size else (None, None)


def user_line(provenance):
    """Return the user's line; of a gradient, the line that it differentiates."""
    if provenance.backward is not None and provenance.backward.forward_source is not None:
        return provenance.backward.forward_source
    return provenance.source


def lookup_in(scope, variable):
    """Return the provenance of a variable of a scope's graph, which may be an inner one."""
    if scope.parent is None:
        return lookup(scope.fgraph, variable)
    return lookup_inner(scope.node.op, scope.fgraph, variable)


def provenance_of(place, step=None):
    """Return the provenance of a place, or of a scalar operation fused into its node."""
    found = lookup_in(place.scope, place.variable)
    node = place.variable.owner
    if step is None or step.node is None or not found.inner:
        return found
    nodes = list(node.op.scalar_op.fgraph.toposort())
    return found.inner[nodes.index(step.node)]


def _name(scope, variable, provenance):
    """Return the user's name of a variable or a short expression, and whether it is a name."""
    if provenance.own_name and provenance.name:
        return provenance.name, True

    def known(v):
        if v.owner is None:
            return _outer_name(scope, v)
        found = lookup_in(scope, v)
        if found.own_name:
            return found.name
        op = user_op(found, v.owner)
        rewritten = found.history and op != op_name(v.owner.op)
        return op if rewritten and not isinstance(v.owner.op, VIEWS) else None

    return name_of(variable, own=known), False


def _outer_name(scope, variable):
    """Return the name of an inner graph's input: that of what it was taken from."""
    if scope.parent is None:
        return None
    ran = scope.parent.replay.inner(scope.node)
    position = list(scope.fgraph.inputs).index(variable)
    outer = ran.outer_input(position)
    return "state" if outer is None else display_name(scope.parent, outer)


def _scalar_operands(made):
    """Return the operands of a scalar operation at one element."""
    operands = []
    for value, origin in zip(made.step.operands, made.step.origins, strict=True):
        if isinstance(origin, int):
            operands.append(_element_operand(made.sources[origin], value))
            continue
        dtype = str(np.asarray(value).dtype)
        if origin is None:
            operands.append(Operand(number_text(value), value, None, (), dtype, constant=True))
        else:
            text = apply_text(origin.op, number_texts(origin.operands))
            operands.append(Operand(text, value, None, (), dtype, computed=True))
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
            found, arrays, _telling_elements(place, found, arrays), strict=True
        )
    )


def _telling_elements(place, found, arrays):
    """Return the index in each region of the element that weighs most, or None."""
    whole = [None if r.is_element or not a.size else extreme_element(r, a)
             for r, a in zip(found, arrays, strict=True)]  # fmt: skip
    if op_name(place.variable.owner.op) not in ("dot", "batched_dot"):
        return whole
    # The k of the largest term a[i, k] * b[k, j]; the row and the column come first.
    row, column = (a[r.index] for r, a in zip(found[:2], arrays[:2], strict=True))
    if np.shape(row) != np.shape(column) or not np.size(row):
        return whole
    with np.errstate(all="ignore"):
        terms = np.abs(row * column)
    k = int(np.where(np.isnan(terms), np.inf, terms).argmax())
    pair = [locate(r, a, k) for r, a in zip(found[:2], arrays[:2], strict=True)]
    return [*pair, *whole[2:]]


def _region_operand(scope, variable, region, array, telling):
    read = array[region.index]
    low, high = finite_range(read)
    return Operand(
        display_name(scope, variable),
        read[()] if np.ndim(read) == 0 else None,
        region.index,
        array.shape,
        str(array.dtype),
        low,
        high,
        isinstance(variable, Constant),
        None if telling is None else (telling, array[telling]),
    )


def display_name(scope, variable):
    """Return the user's name of a variable of a compiled graph, or a short expression."""
    if isinstance(variable, Constant):
        return name_of(variable)
    return _name(scope, variable, lookup_in(scope, variable))[0]


def index_text(index):
    """Return an index as it is written.

    Examples
    --------
    >>> index_text((2, slice(None))), index_text((...,)), index_text(())
    ('[2, :]', '', '')
    """
    if not index or index == (...,):
        return ""
    return "[" + ", ".join(map(_one_index_text, index)) + "]"


def _one_index_text(i):
    if isinstance(i, slice):
        return f"{'' if i.start is None else i.start}:{'' if i.stop is None else i.stop}"
    return "..." if i is ... or isinstance(i, np.ndarray) else str(i)


# Hints


def _situation(place, made, op, value, provenance):
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
    """Return what computed an element, looking through views and into fused nodes."""
    while place.variable.owner is not None:
        node = place.variable.owner
        if not isinstance(node.op, VIEWS):
            break
        place = culprit.operand_place(place, culprit.regions_of(place)[0])
    node = place.variable.owner
    if node is None:
        return Producer(role_of(place.variable))
    further = tuple(op_name(v.owner.op) for v in _ancestors(node, depth=3) if v.owner is not None)
    user_op = lookup_in(place.scope, place.variable).op
    further += (user_op_name(user_op),) if user_op else ()
    final = culprit.scalar_final(place) if isinstance(node.op, Elemwise) else None
    if isinstance(final, ScalarStep):
        names, _ = _upstream(final)
        return Producer(op_name(final.op), final.operands, names + further)
    return Producer(op_name(node.op), (), further)


def _ancestors(node, depth):
    level = list(node.inputs)
    for _ in range(depth):
        yield from level
        level = [v for up in level if up.owner is not None for v in up.owner.inputs][:20]


MOVES = ("squeeze", "dropDims", "expandDims", "dimShuffle", "reshape")
"""What rewrites leave in place of an operation that they have moved inside of a view."""


def user_op(provenance, node):
    """Return the name of the user's operation that a node was rewritten from."""
    name = user_op_name(provenance.op) if provenance.op else ""
    return op_name(node.op) if not name or name in MOVES else name


def user_op_name(text):
    """Return the short name of an operation from PyTensor's text for it.

    Examples
    --------
    >>> user_op_name("Softmax{axis=(1,)}"), user_op_name("True_div")
    ('softmax', 'true_div')
    """
    head = text.split("{")[0]
    return ALIASES.get(head, head[:1].lower() + head[1:])


# The way from the inputs


def way_from_inputs(origin):
    """Return the way from an input to the culprit, and how many stops in it are left out.

    Returns
    -------
    waypoints : tuple of Waypoint
        Farthest first; of a long way its beginning and its end.
    left_out : int
        How many lie between the first :data:`FAR` and the rest.
    """
    places = []
    place, made = origin.place, origin.made
    while not place.is_leaf or place.scope.parent is not None:
        place = _next_place(place, made)
        made = None
        if place is None or len(places) >= MAX_STEPS:
            break
        if _is_stop(place):
            places.append(place)
    places.reverse()
    left_out = max(len(places) - MAX_WAYPOINTS, 0)
    shown = places[:FAR] + places[FAR + left_out :]
    return merge_rewritten([_waypoint(p) for p in shown]), left_out


def _is_stop(place):
    """Whether a place is worth a line: views are not, nor what is merely handed inside."""
    if not place.is_leaf:
        return not isinstance(place.variable.owner.op, VIEWS)
    return place.scope.parent is None or isinstance(place.variable, Constant) or _is_state(place)


def _is_state(place):
    scope = place.scope
    position = list(scope.fgraph.inputs).index(place.variable)
    return scope.parent.replay.inner(scope.node).outer_input(position) is None


def _next_place(place, made):
    """Return the operand to follow: of a fused operation, the one that decides most."""
    node = place.variable.owner
    if made is None and node is not None and isinstance(node.op, Elemwise):
        final = culprit.scalar_final(place)
        made = culprit.elementwise(place, final) if isinstance(final, ScalarStep) else None
    if made is None:
        return most_telling(place)
    step = made.step
    while isinstance(step, ScalarStep):
        position = _weightiest(step)
        if position is None:
            return None
        step = step.origins[position]
    return made.sources[step]


def _weightiest(step):
    """Return the operand of a scalar operation to follow upstream, None if all are constants.

    What is not finite comes first, then a divisor of 0, then the first operand of a difference,
    quotient or power, then the largest.
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
        ordered = i == 0 and name in ("sub", "true_div", "pow")
        return (1, 0.0) if ordered else (0, float(abs(value)))

    return max(candidates, key=weight)


def _waypoint(place):
    provenance = lookup_in(place.scope, place.variable)
    array = np.asarray(place.array)
    leaf = place.is_leaf
    op = None if leaf else user_op(provenance, place.variable.owner)
    name, own_name = _name(place.scope, place.variable, provenance)
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


def fate(trip, scope, mask):
    """Return what became of a bad value in the rest of the call."""
    replay = scope.replay

    def bad(variable):
        value = culprit.dense(replay.value(variable))
        return is_numeric(value) and bool(np.any(mask(value)))

    outputs = tuple(name_of(out) for out in trip.fgraph.outputs if bad(out))
    variable = trip.frames[0].node.outputs[0] if trip.frames else trip.variable
    masked_by, seen, todo = [], set(), [variable]
    while todo:
        for node, _ in replay.fgraph.clients.get(todo.pop(), ()):
            if node in seen or not getattr(node, "outputs", ()):
                continue
            seen.add(node)
            spoiled = [out for out in node.outputs if bad(out)]
            todo += spoiled
            if not spoiled:
                masked_by.append(op_name(node.op))
    return Fate(bool(outputs), outputs, tuple(masked_by))
