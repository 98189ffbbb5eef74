"""Follow one bad element upstream to the first operation that made it bad.

A :class:`Place` is one element of one variable in one execution of a graph.  A walk upstream goes
from an element to the elements of the operands that it was computed from
(:mod:`theanoguard.operations`).  It enters fused operations
(:mod:`~theanoguard._evaluate.scalars`), and it enters and leaves the inner graphs of ``Scan``,
``OpFromGraph`` and ``IfElse``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, TypeVar

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce, Elemwise

from theanoguard._evaluate.replay import Replay, ScanReplay, branch_taken
from theanoguard._evaluate.scalars import (
    OperandOrigin,
    ScalarStep,
    agrees,
    compiled_step,
    first_bad,
    steps_of,
    term_of,
)
from theanoguard._event import PathStep
from theanoguard._pytensor import FinalizedOpFromGraph, IfElse, LazyIfElse
from theanoguard._steps import ForeignError
from theanoguard._values import Mask, is_sparse
from theanoguard.operations import Region, first_element, regions

T = TypeVar("T")

MAX_STEPS = 100_000
"""Largest number of steps upstream, for example through a scan that only passes a value on."""

ELEMENTWISE = (Elemwise, ScalarOp)
"""Operations that work element by element.  Numba's graphs also apply scalar ops directly."""


@dataclass(eq=False)
class Scope:
    """One execution of a graph: the function's own graph, or an inner graph at one step."""

    replay: Replay
    parent: "Scope | None" = None  # the execution that this one ran in
    node: Any = None  # the node of `parent` whose inner graph this is
    step: int | None = None  # iteration of a ``Scan``

    @property
    def fgraph(self) -> FunctionGraph:
        """The graph that was executed."""
        return self.replay.fgraph

    @property
    def path(self) -> tuple[PathStep, ...]:
        """The inner graphs entered, outermost first, as in a GuardEvent."""
        if self.parent is None:
            return ()
        if isinstance(self.node.op, FinalizedOpFromGraph):  # a rewrite made it, not the user
            return self.parent.path
        return (*self.parent.path, PathStep(str(self.node.op), self.step, self.forward_step))

    @property
    def forward_step(self) -> int | None:
        """In the gradient of a loop, the matching step of the loop itself; None elsewhere."""
        op = getattr(self.node, "op", None)
        if self.parent is None or self.step is None or not isinstance(op, Scan):
            return None
        if not str(op.name).startswith("grad_of_"):
            return None
        if getattr(op, "truncate_gradient", -1) != -1:
            return None
        return int(self.parent.replay.value(self.node.inputs[0])) - 1 - self.step

    def inner(
        self, node: Apply, step: int | None = None, fgraph: FunctionGraph | None = None
    ) -> "Scope":
        """Return the scope of the inner graph of `node` at `step`."""
        return Scope(self.replay.inner(node, fgraph).at(step), self, node, step)


@dataclass(frozen=True)
class Place:
    """One element of one variable in one execution of a graph."""

    scope: Scope
    variable: Any
    index: tuple[int, ...] = ()

    @property
    def array(self) -> Any:
        """The whole value that the element belongs to."""
        return dense(self.scope.replay.value(self.variable))

    @property
    def element(self) -> Any:
        """The value of the element."""
        return np.asarray(self.array)[self.index]

    @property
    def is_leaf(self) -> bool:
        """Whether no node of its graph computes it."""
        return self.variable.owner is None


@dataclass(frozen=True)
class Made:
    """The scalar operation that made a bad element."""

    step: ScalarStep
    #: The operand elements that the positions in ``step.origins`` refer to.
    sources: dict[int, Place]
    index: tuple[int, ...]  # the element
    #: For a fused reduction, which of its terms are bad.  `index` is then the index of the term.
    bad: np.ndarray | None = None


@dataclass(frozen=True)
class Origin:
    """Where a bad element comes from."""

    #: The bad element that was computed from sound elements only, or the element of an input,
    #: shared variable or constant that was bad from the start.
    place: Place
    #: For an elementwise or fused operation, the scalar operation that made it.
    made: "Made | None" = None
    #: The elements followed, from the one at which the walk began up to `place`.
    steps: tuple[Place, ...] = field(default=(), repr=False)

    @property
    def made_here(self) -> bool:
        """True if an operation made the value, False if it came in from outside."""
        return not self.place.is_leaf


def find_origin(place: Place, mask: Mask) -> Origin:
    """Walk upstream from a bad element to the first operation that made it bad.

    `place`: a bad element.
    `mask`: returns the mask of the bad elements of an array.
    """
    steps = [place]
    for _ in range(MAX_STEPS):
        place = steps[-1]
        upstream, made = bad_operand(place, mask)
        if upstream is None:
            return Origin(place, made, tuple(steps))
        steps.append(upstream)
    return Origin(place, None, tuple(steps))


def bad_operand(place: Place, mask: Mask) -> tuple[Place | None, Made | None]:
    """Return the bad operand element that a bad element was computed from, if there is one.

    Returns
    -------
    place : Place or None
    made : Made or None
        The scalar operation that made the value, if this node made it with one.
    """
    node = place.variable.owner
    if node is None:
        return leave(place), None
    inside = enter(node.op, place)
    if inside is not None:
        return (inside, None) if holds(inside.element, mask) else (None, None)
    scope = place.scope
    if isinstance(node.op, ELEMENTWISE):
        final = scalar_final(place)
        if final is not None:
            found = first_bad(final, mask)
            if isinstance(found, ScalarStep):
                return None, elementwise(place, found)
            if found is not None:
                return operand_place(place, regions_of(place)[found]), None
    for region in regions_of(place):
        variable = node.inputs[region.operand]
        value = dense(scope.replay.value(variable))
        if is_numeric(value):
            index = first_element(region, value, mask)
            if index is not None:
                return Place(scope, variable, index), None
    return None, fused_term(place, mask)


def fused_term(place: Place, mask: Mask) -> Made | None:
    """Return the bad term of a fused reduction, or None."""
    node = place.variable.owner
    if not (isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Composite)):
        return None
    [region] = regions_of(place)
    array = np.asarray(place.scope.replay.value(node.inputs[0]))
    kind = node.op.scalar_op.fgraph.outputs[0].type
    terms = _or_none(term_of, node.op.scalar_op, array, kind)
    if not isinstance(terms, ScalarStep):
        return None
    values = np.asarray(terms.results[0])
    index = first_element(region, values, mask)
    if index is None:
        return None
    step = first_bad(term_of(node.op.scalar_op, array[index], kind), mask)
    if not isinstance(step, ScalarStep):
        return None
    # The term's operand is the second one of its Composite; the first is the running result.
    return Made(step, {1: Place(place.scope, node.inputs[0], index)}, index, mask(values))


def _or_none(function: Callable[..., T], *args: Any) -> T | None:
    """Call a function that evaluates scalar operations in Python; None if it cannot."""
    try:
        return function(*args)
    except ForeignError:
        return None


def dense(value: Any) -> Any:
    """Return a sparse matrix as an array, and any other value unchanged."""
    return value.toarray() if is_sparse(value) else value


def is_numeric(value: Any) -> bool:
    """Return whether a value is an array or a number."""
    return isinstance(value, (np.ndarray, np.generic, int, float, complex)) and (
        np.asarray(value).dtype.kind in "fciub"
    )


def holds(value: Any, mask: Mask) -> bool:
    """Return whether a value is numeric, and a mask selects any of its elements."""
    value = dense(value)
    return is_numeric(value) and bool(np.any(mask(np.asarray(value))))


def regions_of(place: Place) -> list[Region]:
    """Return the regions of the operands that the element at `place` was computed from."""
    node = place.variable.owner
    values = [dense(place.scope.replay.value(v)) for v in node.inputs]
    return regions(node, values, node.outputs.index(place.variable), place.index)


def operand_place(place: Place, region: Region) -> Place:
    """Return the place of a region that is a single element."""
    return Place(place.scope, place.variable.owner.inputs[region.operand], region.index)


def elementwise(place: Place, step: ScalarStep) -> Made:
    """Return a scalar operation of an elementwise node, with the elements that it reads."""
    sources = {i: operand_place(place, region) for i, region in enumerate(regions_of(place))}
    return Made(step, sources, place.index)


def scalar_final(place: Place) -> OperandOrigin:
    """Return the last scalar step of an elementwise operation at one element.

    The scalar operations are evaluated in Python.  The result is None if one of them cannot be.
    """
    found = _evaluated(place)
    return None if found is None else found[0]


def scalar_steps(place: Place) -> list[ScalarStep]:
    """Return all steps of an elementwise operation at one element; empty if it cannot be run."""
    found = _evaluated(place)
    return [] if found is None else found[1]


def _evaluated(place: Place) -> tuple[OperandOrigin, list[ScalarStep]] | None:
    node = place.variable.owner
    output = node.outputs.index(place.variable)
    values = [
        np.asarray(place.scope.replay.value(v))[r.index]
        for v, r in zip(node.inputs, regions_of(place), strict=True)
    ]
    types = [o.type for o in node.outputs]
    scalar_op = getattr(node.op, "scalar_op", node.op)
    found = _or_none(steps_of, scalar_op, values, types, output)
    if found is None:
        return found
    final, steps = found
    if not isinstance(final, ScalarStep) or agrees(final.results[0], place.element):
        return found
    if not isinstance(scalar_op, Composite):
        shown = replace(final, results=(place.element,), by_numpy=final.results)
        return shown, [shown]
    if any(isinstance(inner.op, Composite) for inner in scalar_op.fgraph.apply_nodes):
        return found
    run = place.scope.replay.kernels.run
    compiled = _or_none(compiled_step, scalar_op, values, final, place.element, run)
    return (compiled or final), steps


def numeric_mask(is_bad: Mask) -> Mask:
    """Return ``is_bad`` extended to values of any kind: a value that is not numeric is not bad."""

    def mask(array: Any) -> np.ndarray:
        array = np.asarray(array)
        return is_bad(array) if array.dtype.kind in "fciu" else np.zeros(array.shape, bool)

    return mask


def not_finite(array: Any) -> np.ndarray:
    """Return the mask of the elements that are NaN or infinite."""
    array = np.asarray(array)
    return ~np.isfinite(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def fused_operands(place: Place, made: Made) -> list[np.ndarray] | None:
    """Return the operands of an operation that was fused into a node, as whole arrays.

    Return None if they cannot be computed, or if they differ from the operand values at the
    element.

    `place`: an element of the fused node's output.
    """
    node = place.variable.owner
    scalar_op = getattr(node.op, "scalar_op", node.op)
    arrays = [np.asarray(dense(place.scope.replay.value(v))) for v in node.inputs]
    kinds = [o.type for o in scalar_op.fgraph.outputs]
    if isinstance(node.op, CAReduce):  # the first operand is the running result
        arrays.insert(0, np.zeros((), kinds[0].dtype))
        elements = [arrays[0][()], arrays[1][made.index]]
    else:
        elements = [a[r.index] for a, r in zip(arrays, regions_of(place), strict=True)]
    single = _or_none(steps_of, scalar_op, elements, kinds)
    whole = _or_none(steps_of, scalar_op, arrays, kinds)
    if single is None or whole is None:
        return None
    for one, step in zip(single[1], whole[1], strict=True):
        if (one.node, one.op, repr(one.operands)) != (
            made.step.node,
            made.step.op,
            repr(made.step.operands),
        ):
            continue
        shape = np.broadcast_shapes(*map(np.shape, step.operands))
        there = [np.broadcast_to(v, shape)[made.index] for v in step.operands]
        same = len(shape) == len(made.index) and all(
            np.array_equal(*pair, equal_nan=True) for pair in zip(there, one.operands, strict=True)
        )
        return [np.asarray(v) for v in step.operands] if same else None
    return None


# Into and out of inner graphs


@singledispatch
def enter(op: Op, place: Place) -> Place | None:
    """Return the place inside the inner graph that computed an output element, or None."""
    return None


@enter.register(OpFromGraph)
@enter.register(LazyIfElse)
def _enter_graph(op: Op, place: Place) -> Place:
    node = place.variable.owner
    scope = place.scope.inner(node)
    return Place(scope, scope.fgraph.outputs[node.outputs.index(place.variable)], place.index)


@enter.register
def _enter_branch(op: IfElse, place: Place) -> Place:
    node = place.variable.owner
    taken = branch_taken(node, place.scope.replay)
    return Place(place.scope, taken[node.outputs.index(place.variable)], place.index)


@enter.register
def _enter_scan(op: Scan, place: Place) -> Place:
    node = place.variable.owner
    ran = place.scope.replay.inner(node)
    info = op.info
    out = node.outputs.index(place.variable)
    done = ran.steps_done()
    traced = len(ran.taps) + info.n_nit_sot
    if out >= traced:  # a state without history, such as an RNG
        return _state_place(place, node, ran, out, done - 1, place.index)
    lag = ran.lags[out] if out < len(ran.taps) else 0
    entry, *rest = place.index
    if out < info.n_mit_mot:
        return _mit_mot_place(place.scope, node, ran, out, entry, done, tuple(rest))
    overwritten = max(lag + done - ran.lengths[out], 0)
    return _state_place(place, node, ran, out, entry + overwritten - lag, tuple(rest))


def _state_place(
    place: Place, node: Apply, ran: ScanReplay, out: int, step: int, index: tuple[Any, ...]
) -> Place:
    """Return the place of output `out` of a scan after `step` (below 0: the initial state)."""
    info = ran.info
    if step >= 0:
        scope = place.scope.inner(node, step)
        inner = info.n_mit_mot_outs + out - info.n_mit_mot
        return Place(scope, scope.fgraph.outputs[inner], index)
    if out < len(ran.taps):
        initial = node.inputs[ran.first_tap_input + out]
        return Place(place.scope, initial, (ran.lags[out] + step, *index))
    untraced = out - len(ran.taps) - info.n_nit_sot
    return Place(place.scope, node.inputs[ran.first_untraced_input + untraced], index)


def _mit_mot_place(
    scope: Scope,
    node: Apply,
    ran: ScanReplay,
    group: int,
    entry: int,
    before: int,
    index: tuple[Any, ...],
) -> Place:
    """Return the place that last wrote an entry of an accumulating buffer before a step."""
    slices = ran.info.mit_mot_out_slices
    offset = sum(map(len, slices[:group]))
    writers = [
        (step, offset + i)
        for i, tap in enumerate(slices[group])
        if 0 <= (step := entry - ran.lags[group] - tap) < before
    ]
    if not writers:
        return Place(scope, node.inputs[ran.first_tap_input + group], (entry, *index))
    step, inner = max(writers)
    inside = scope.inner(node, step)
    return Place(inside, inside.fgraph.outputs[inner], index)


def leave(place: Place) -> Place | None:
    """Return the place in the outer graph that an inner graph's input element was taken from."""
    scope = place.scope
    if scope.parent is None or isinstance(place.variable, Constant):
        return None
    position = list(scope.fgraph.inputs).index(place.variable)
    return _leave(scope.node.op, place, scope.parent, position)


@singledispatch
def _leave(op: Op, place: Place, outside: Scope, position: int) -> Place:
    ran = outside.replay.inner(place.scope.node)
    return Place(outside, ran.outer_input(position), place.index)


@_leave.register
def _leave_scan(op: Scan, place: Place, outside: Scope, position: int) -> Place:
    node = place.scope.node
    now: Any = place.scope.step
    ran = outside.replay.inner(node)
    info = ran.info
    if position < info.n_seqs:
        return Place(outside, node.inputs[1 + position], (now, *place.index))
    position -= info.n_seqs
    outer = Place(outside, None)
    for group, taps in enumerate(ran.taps):
        if position < len(taps):
            step = now + taps[position]
            if group < info.n_mit_mot:
                entry = step + ran.lags[group]
                return _mit_mot_place(outside, node, ran, group, entry, now, place.index)
            return _state_place(outer, node, ran, group, step, place.index)
        position -= len(taps)
    if position < info.n_untraced_sit_sot:
        out = len(ran.taps) + info.n_nit_sot + position
        return _state_place(outer, node, ran, out, now - 1, place.index)
    position -= info.n_untraced_sit_sot
    return Place(outside, node.inputs[ran.first_non_seq_input + position], place.index)
