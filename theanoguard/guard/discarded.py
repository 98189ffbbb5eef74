"""Which elements of a value count, because more than a discarded branch is computed from them.

``switch(x > 0, log(x), 0)`` takes the logarithm of every x and discards some.  A bad element among
these is no error.  Neither is one that no index reads, or that is overwritten.

The way back from the outputs of a graph marks what counts.  Where nothing is known of an operation,
all of its operands count.  :func:`discarded` does so for the values of a call, and
:func:`conditions` for a graph.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from theanoguard._evaluate.replay import NotRun, Replay, branch_taken, has_effects
from theanoguard._evaluate.scalars import ScalarStep, all_steps
from theanoguard._pytensor import IfElse, advanced_subtensor_ops, increment_ops
from theanoguard._steps import ForeignError
from theanoguard.operations import is_steady

Marks: TypeAlias = bool | np.ndarray
"""Marks on the elements of an array; True and False for all and none of them."""

WITHOUT_NUMBERS = (ps.Second, ps.IsNan, ps.IsInf)
"""Scalar operations that take a shape from their first operand, or ask whether it is bad."""

TAKING = (Subtensor, *advanced_subtensor_ops)
MOVING = (DimShuffle, JoinDims, Reshape, SplitDims, *TAKING)


def discarded(
    replay: Replay, variable: Variable, outputs: Sequence[Any], mask: np.ndarray
) -> np.ndarray:
    """Return which of some elements of a value do not count.

    - `replay`: Replay of the graph that the variable belongs to.  Nothing is added to it.
    - `variable`: output of a node that has just run.
    - `outputs`: the values of all outputs of that node.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> log = pt.log(x)
    >>> graph = FunctionGraph([x], [pt.switch(x > -2, log, 0.0)], clone=False)
    >>> replay = Replay(graph, {x: np.array([1.0, -1.0, -3.0])})
    >>> value = replay.value(log)
    >>> discarded(replay, log, [value], np.isnan(value))
    array([False, False,  True])
    """
    none = np.zeros(mask.shape, bool)
    later = _following(replay.fgraph, variable)
    if later is None:
        return none
    ahead = Replay(
        replay.fgraph,
        {**replay.known_values(), **dict(zip(variable.owner.outputs, outputs, strict=True))},
        replay.kernels,
        live=replay.live,
        graphs=replay.graphs,
        place=replay.place,
    )
    raised = replay.kernels.raised
    try:
        counts = _counting(ahead, variable, later)
    except NotRun:  # an operation with side effects decides, which the call has not come to
        return mask
    except Exception:  # of an operation that the call has not come to either
        failed = _failed(ahead)  # (None: an index among the operands of one of `later` is outside)
        if failed is not None and failed not in later:
            raise
        return none  # the operation may have failed for these elements
    finally:
        replay.kernels.raised = raised
    return mask & ~np.broadcast_to(np.asarray(counts), mask.shape)


def _failed(replay: Replay) -> Apply | None:
    """Return the node of the replayed graph, not of an inner one, that has raised."""
    inner, node = replay.interrupted()
    while inner is not replay and inner.place is not None:
        inner, node, _ = inner.place
    return node


def shown_where_chosen(fgraph: Any, variable: Variable) -> set[Variable]:
    """Return a variable and its views if what they hold shows as it is where it is not discarded.

    Nothing if an operation reads one of them that computes, and may hide a bad value.
    """
    found, todo = {variable}, [variable]
    while todo:
        current = todo.pop()
        for node, operand in fgraph.clients[current]:
            op = node.op
            is_view = isinstance(op, MOVING) and not isinstance(op, TAKING)
            scalar_op = getattr(op, "scalar_op", op)
            chooses = isinstance(scalar_op, ps.Switch) and operand > 0
            if is_view:
                found.update(node.outputs)
                todo += node.outputs
            elif not (chooses or keeps_some(op) and operand == 0):
                return set()
    return found


def keeps_some(op: Op) -> bool:
    """Whether elements of an operation's first operand are its result, except for some."""
    return isinstance(op, TAKING) or (isinstance(op, increment_ops) and op.set_instead_of_inc)


def _following(fgraph: Any, variable: Variable) -> list[Apply] | None:
    """Return the nodes that read what is computed from a variable, in order.

    None if it reaches an output on a way on which nothing is discarded, or an operation that it
    could harm.
    """
    maker = variable.owner
    beside = _computed_beside(variable)
    reached, whole = {variable, *beside}, {variable}
    later = []
    for node in fgraph.toposort():
        if node is maker or reached.isdisjoint(node.inputs):
            continue
        later.append(node)
        reached.update(node.outputs)
        if not is_steady(node.op):
            return None
        if not whole.isdisjoint(node.inputs) and not _may_discard(node):
            if has_effects(node.op):
                return None
            whole.update(node.outputs)
    if not whole.isdisjoint(fgraph.outputs):
        return None
    is_read = any(variable in node.inputs for node in later)
    return later if is_read or beside else None


def _computed_beside(variable: Variable) -> list[Variable]:
    """Return other outputs of a fused operation that are computed from this one."""
    outputs, scalar_op = variable.owner.outputs, getattr(variable.owner.op, "scalar_op", None)
    if not isinstance(scalar_op, Composite):
        return []
    own = scalar_op.fgraph.outputs[outputs.index(variable)]
    reached = {own}
    for node in scalar_op.fgraph.toposort():
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    inside = zip(outputs, scalar_op.fgraph.outputs, strict=True)
    return [v for v, inner in inside if v is not variable and inner in reached]


def _may_discard(node: Apply) -> bool:
    """Whether some elements of an operand may not count though those of the outputs do."""
    if isinstance(node.op, (Shape, Shape_i, IfElse, *TAKING, *increment_ops)):
        return True
    scalar_op = getattr(node.op, "scalar_op", node.op)
    return isinstance(node.op, Elemwise | ScalarOp) and _scalar_may_discard(scalar_op)


def _scalar_may_discard(op: ScalarOp) -> bool:
    if isinstance(op, Composite):
        return any(_scalar_may_discard(node.op) for node in op.fgraph.apply_nodes)
    return isinstance(op, (ps.Switch, *WITHOUT_NUMBERS))


def _counting(replay: Replay, variable: Variable, later: list[Apply]) -> Marks:
    """Return which elements of a variable count; `later` are the nodes that follow from it."""
    counts: dict[Variable, Marks] = dict.fromkeys(replay.fgraph.outputs, True)
    for node in reversed(later):
        marks = [counts.get(v, False) for v in node.outputs]
        for operand, found in zip(node.inputs, _operands(replay, node, marks), strict=True):
            if not isinstance(operand, Constant):
                counts[operand] = _either(counts.get(operand, False), found)
    own = counts.get(variable, False)
    maker = variable.owner
    if isinstance(getattr(maker.op, "scalar_op", None), Composite):
        marks = [False if v is variable else counts.get(v, False) for v in maker.outputs]
        index = maker.outputs.index(variable)
        own = _either(own, _inside(replay, maker, marks, index))
    return own


def _either(one: Marks, other: Marks) -> Marks:
    if one is True or other is True:
        return True
    return other if one is False else one if other is False else one | other


def _operands(replay: Replay, node: Apply, marks: Sequence[Marks]) -> Sequence[Marks]:
    """Return which elements of the operands of a node count, from those of its outputs."""
    op, n = node.op, len(node.inputs)
    if isinstance(op, Shape | Shape_i):
        return [False] * n
    if isinstance(op, CheckAndRaise):
        return [marks[0], *[True] * (n - 1)]
    if all(mark is False for mark in marks):
        return [False] * n
    if isinstance(op, IfElse):
        taken = dict(zip(branch_taken(node, replay), marks, strict=True))
        return [True, *(taken.get(v, False) for v in node.inputs[1:])]
    if isinstance(op, Elemwise | ScalarOp):
        return _elementwise(replay, node, marks)
    if isinstance(op, MOVING):
        [mark] = marks
        if mark is True and not isinstance(op, TAKING):
            return [True] * n
        return [_moved(replay, node, mark, node.inputs[:1])[0], *[True] * (n - 1)]
    if isinstance(op, increment_ops) and op.set_instead_of_inc:
        return [*_moved(replay, node, marks[0], node.inputs[:2]), *[True] * (n - 2)]
    return [True] * n


def _moved(replay: Replay, node: Apply, mark: Marks, sources: Sequence[Variable]) -> list[Marks]:
    """Return which elements of the sources arrive where a mark is: the node moves positions."""
    values = replay.values(node.inputs)
    shapes = [np.shape(value) for value in values[: len(sources)]]
    sizes = [int(np.prod(shape)) for shape in shapes]
    ends = [1 + sum(sizes[:i]) for i in range(len(sizes) + 1)]  # (0 is where nothing arrives)
    parts = list(zip(ends[:-1], ends[1:], shapes, strict=True))
    positions = [np.arange(i, j, dtype="float64").reshape(shape) for i, j, shape in parts]
    cells: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, [*positions, *values[len(sources) :]], cells)
    arrived = np.asarray(cells[0][0])
    hit: np.ndarray = np.zeros(ends[-1], bool)
    hit[arrived[np.broadcast_to(np.asarray(mark), arrived.shape)].astype(int)] = True
    return [hit[first:last].reshape(shape) for first, last, shape in parts]


# ---------------------------------------------------------------- elementwise


def _elementwise(replay: Replay, node: Apply, marks: Sequence[Marks]) -> list[Marks]:
    is_plain = not _scalar_may_discard(getattr(node.op, "scalar_op", node.op))
    if is_plain and any(mark is True for mark in marks):
        return [True] * len(node.inputs)
    try:
        found, values, _ = _backwards(replay, node, marks)
    except ForeignError:  # no implementation in Python, or not for these values
        return [True] * len(node.inputs)
    return [
        _unbroadcast(found[i], np.shape(value)) if i in found else False
        for i, value in enumerate(values)
    ]


def _inside(replay: Replay, node: Apply, marks: Sequence[Marks], output: int) -> Marks:
    """Return which elements of an output of a fused node count for its other outputs."""
    if all(mark is False for mark in marks):
        return False
    try:
        found, _, finals = _backwards(replay, node, marks)
    except ForeignError:  # no implementation in Python, or not for these values
        return True
    return found.get(_key(finals[output]), False)


def _key(origin: ScalarStep | int | None) -> int | None:
    return -id(origin) if isinstance(origin, ScalarStep) else origin


def _backwards(
    replay: Replay, node: Apply, marks: Sequence[Marks]
) -> tuple[dict[int | None, np.ndarray], list[Any], Sequence[Any]]:
    """Follow marks on the outputs of an elementwise node back through its scalar operations.

    Returns
    -------
    dict of int to ndarray of bool
        What counts of each operand, by its position, and of each scalar operation, by `_key`.
    list
        The values of the operands.
    list
        What makes each output, as :func:`~theanoguard._evaluate.scalars.all_steps` gives it.
    """
    values = replay.values(node.inputs)
    shape = np.broadcast_shapes(*map(np.shape, values))
    scalar_op = getattr(node.op, "scalar_op", node.op)
    if isinstance(scalar_op, Composite):
        given = [np.broadcast_to(np.asarray(value), shape) for value in values]
        types = [v.type for v in scalar_op.fgraph.outputs]
        finals, steps = all_steps(scalar_op, given, types)
    else:
        steps = [ScalarStep(scalar_op, None, tuple(values), tuple(range(len(values))), ())]
        finals = steps * len(marks)
    found: dict[int | None, np.ndarray] = {}

    def add(origin: ScalarStep | int | None, mark: Marks) -> None:
        if mark is not False and origin is not None:
            key = _key(origin)
            found[key] = found.get(key, False) | np.broadcast_to(np.asarray(mark), shape)

    for final, mark in zip(finals, marks, strict=True):
        add(final, mark)
    for step in reversed(steps):
        if _key(step) in found:
            for origin, share in zip(step.origins, _shares(step, found[_key(step)]), strict=True):
                add(origin, share)
    return found, values, finals


def _shares(step: ScalarStep, mark: np.ndarray) -> Sequence[Marks]:
    """Return which elements of the operands of a scalar operation count."""
    if isinstance(step.op, ps.Switch):
        is_first = np.asarray(step.operands[0]) != 0
        return [mark, mark & is_first, mark & ~is_first]
    others = [mark] * (len(step.operands) - 1)
    return [False, *others] if isinstance(step.op, WITHOUT_NUMBERS) else [mark, *others]


def _unbroadcast(mark: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return where one of the elements that an operand is broadcast to is marked."""
    mark = mark.any(axis=tuple(range(mark.ndim - len(shape))))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1)
    return mark.any(axis=repeated, keepdims=True)


# ---------------------------------------------------------------- as part of compiled code

Conditions = tuple[tuple[Variable, bool, Any], ...]
"""An element counts if one of them holds there: a condition of a ``switch`` is true, or false, and
one of further conditions holds; True where there are none."""

MOST_CONDITIONS = 8


def conditions(fgraph: Any, order: Sequence[Apply]) -> dict[Variable, Conditions]:
    """Return under which conditions the elements of what a graph computes count.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> positive, log = x > 0, pt.log(x)
    >>> graph = FunctionGraph([x], [pt.switch(positive, log, 0.0)], clone=False)
    >>> conditions(graph, graph.toposort()) == {log: ((positive, True, True),)}
    True
    """
    found: dict[Variable, Any] = dict.fromkeys(fgraph.outputs, True)
    for node in reversed(order):
        for i, variable in enumerate(node.inputs):
            more = _conditions_of(node, i, found)
            known = found.get(variable, ())
            found[variable] = _any_of(known, more)
    return {v: held for v, held in found.items() if held is not True and v.owner is not None}


def _any_of(known: Any, more: Any) -> Any:
    if known is True or more is True:
        return True
    both = tuple(dict.fromkeys((*known, *more)))
    return both if len(both) <= MOST_CONDITIONS else True


def _conditions_of(node: Apply, operand: int, found: dict[Variable, Any]) -> Any:
    """Return under which conditions an operand counts, from those of the outputs."""
    if isinstance(node.op, Shape | Shape_i):
        return ()
    if not isinstance(node.op, Elemwise) or len(node.outputs) > 1:
        return True
    [output], scalar_op = node.outputs, node.op.scalar_op
    later = found.get(output, True)
    if operand == 0 and isinstance(scalar_op, WITHOUT_NUMBERS):
        return ()
    if output.type.broadcastable != node.inputs[operand].type.broadcastable:
        return True
    if operand and isinstance(scalar_op, ps.Switch):
        return ((node.inputs[0], operand == 1, later),)
    return later


def where_it_counts(variable: Variable, held: Conditions, get: Callable) -> Variable:
    """Return a variable with zeros in place of elements that do not count.

    - `held`: what :func:`conditions` gives for it.
    - `get`: returns the variables to use instead of those of the graph.
    """
    return pt.switch(_any_holds(held, get), get(variable), 0)


def _any_holds(held: Conditions, get: Callable) -> Variable:
    result = pt.constant(np.array(False))
    for condition, expected, later in held:
        is_so = (pt.neq if expected else pt.eq)(get(condition), 0)
        result = pt.or_(result, is_so if later is True else pt.and_(is_so, _any_holds(later, get)))
    return result
