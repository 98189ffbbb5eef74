"""Which elements of the variables of a graph decide the elements that are asked for.

They are kept as a box for each variable: the positions that are needed along each axis.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import singledispatch
from itertools import product
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot

from theanoguard._evaluate.replay import Kernels, Replay, has_effects
from theanoguard._exact.rules import is_comparison, is_fill, is_real
from theanoguard.operations import regions
from theanoguard.operations.facts import facts_of
from theanoguard.operations.moving import Moved, Written, taking
from theanoguard.operations.regions import NUMPY

Box = tuple[np.ndarray, ...]

ELEMENTS = 64  # elements of an output whose operands are looked up one by one


def boxes_of(
    outputs: Sequence[Variable],
    wanted: Sequence[Box | None],
    value_of: Callable[[Variable], Any],
    given: Mapping[Variable, Any],
) -> dict[Variable, Box]:
    """Return the boxes of the variables of which only a part is needed.

    `wanted`: which box of each output is needed; None for all of an output.
    `value_of`: values of the variables, for their shapes and for indices; None if one is not known.
    `given`: where the evaluation begins.
    """
    boxes: dict[Variable, Box | None] = {}

    def need(variable: Variable, box: Box | None) -> None:
        known = boxes.get(variable, box)
        boxes[variable] = None if known is None or box is None else _union(known, box)

    def value(variable: Variable) -> Any:
        if isinstance(variable, Constant):
            return variable.data
        return given[variable] if variable in given else value_of(variable)

    for variable, part in zip(outputs, wanted, strict=True):
        need(variable, part)
    for node in reversed(list(toposort(outputs, blockers=list(given)))):
        asked = [(o, boxes[v]) for o, v in enumerate(node.outputs) if v in boxes]
        if not asked or not (any(map(is_real, node.outputs)) or is_comparison(node)):
            continue  # integers are those of the call
        found: dict[int, Box] | None = None
        [(output, box), *others] = asked
        if box is not None and not others:
            inputs = [value(v) for v in node.inputs]
            if all(v is not None for v in inputs):
                found = operand_boxes(node.op, node, inputs, output, box)
        for i, variable in enumerate(node.inputs):
            if found is None or i in found:
                need(variable, None if found is None else found[i])
    return {v: box for v, box in boxes.items() if box is not None and _is_part(box, value(v))}


def box_of(index: tuple[int, ...] | None) -> Box | None:
    """Return the box of one element, None for all."""
    return None if index is None else tuple(np.array([i]) for i in index)


def _union(one: Box, other: Box) -> Box:
    pairs = zip(one, other, strict=True)
    return tuple(a if np.array_equal(a, b) else np.union1d(a, b) for a, b in pairs)


def _is_part(box: Box, value: Any) -> bool:
    return value is not None and [len(i) for i in box] != list(np.shape(value))


@singledispatch
def operand_boxes(
    op: Op, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box] | None:
    """Return the boxes of the operands that a box of an output is computed from.

    Return None if all of every operand may be needed.

    `op`: ``node.op``, on which the function is dispatched.
    `inputs`: values of the node's inputs.
    `output`: which output.
    """
    depends = facts_of(op).depends
    if isinstance(depends, Moved):
        return {0: _read(node, inputs, output, box)} | _wholes(inputs, {0})
    if isinstance(depends, Written):
        return {0: box, 1: _written_from(op, inputs, box)} | _wholes(inputs, {0, 1})
    if np.prod([len(i) for i in box]) > ELEMENTS:
        return None
    found: dict[int, Box] = {}
    for index in product(*(places.tolist() for places in box)):
        for region in regions(node, list(inputs), output, index):
            read = _box_of_index(region.index, np.shape(inputs[region.operand]))
            if read is None:
                return None
            known = found.get(region.operand, read)
            found[region.operand] = _union(known, read)
    return found | _wholes(inputs, found)


def _wholes(inputs: Sequence[Any], found: Container[int]) -> dict[int, Box]:
    """Boxes of operands that the rule does not speak of, such as indices."""
    return {i: tuple(map(np.arange, np.shape(v))) for i, v in enumerate(inputs) if i not in found}


def _positions(value: Any) -> np.ndarray:
    return np.arange(np.size(value)).reshape(np.shape(value))


def _read(node: Apply, inputs: Sequence[Any], output: int, box: Box) -> Box:
    """The box of the first operand that an operation moves to a box of its output."""
    if not np.shape(inputs[0]):
        return ()
    moved = NUMPY.run(node, [_positions(inputs[0]), *inputs[1:]], output)
    places = np.unravel_index(in_box(np.asarray(moved), box).ravel(), np.shape(inputs[0]))
    return tuple(map(np.unique, places))


def _written_from(op: Op, inputs: Sequence[Any], box: Box) -> Box:
    """The box of what is written into a box of an array."""
    x, y, *where = inputs
    cell: list[Any] = [None]
    taking(op).perform(None, [_positions(x), *where], [cell])
    hit = np.argwhere(np.isin(np.asarray(cell[0]), in_box(_positions(x), box))).T
    last = hit[len(hit) - np.ndim(y) :]
    return tuple(
        np.unique(places) if n != 1 else np.zeros(1, int)
        for places, n in zip(last, np.shape(y), strict=True)
    )


def _box_of_index(index: Any, shape: tuple[int, ...]) -> Box | None:
    if index == (...,):
        return tuple(map(np.arange, shape))
    if any(isinstance(i, np.ndarray) for i in index):
        return None
    return tuple(np.atleast_1d(np.arange(n)[i]) for i, n in zip(index, shape, strict=True))


def in_box(value: np.ndarray, box: Box) -> np.ndarray:
    """Return the elements of an array in a box."""
    return value[np.ix_(*box)] if box else value


@operand_boxes.register
def _boxes_of_elementwise(
    op: Elemwise, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box]:
    first: np.ndarray = np.zeros(1, int)
    return {
        i: tuple(
            first if n == 1 else b
            for b, n in zip(box[len(box) - np.ndim(v) :], np.shape(v), strict=True)
        )
        for i, v in enumerate(inputs)
        if i or not is_fill(node)
    }


@operand_boxes.register
def _boxes_of_reduction(
    op: CAReduce, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box]:
    shape = np.shape(inputs[0])
    axes = range(len(shape)) if op.axis is None else [a % len(shape) for a in op.axis]
    kept = iter(box)
    return {0: tuple(np.arange(n) if a in axes else next(kept) for a, n in enumerate(shape))}


@operand_boxes.register
def _boxes_of_cumulative(
    op: CumOp, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box] | None:
    if op.axis is None:
        return None
    axis = op.axis % len(box)
    return {0: tuple(np.arange(b.max() + 1) if i == axis else b for i, b in enumerate(box))}


@operand_boxes.register
def _boxes_of_graph(
    op: OpFromGraph, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box] | None:
    values = floats_inside(node, inputs)
    if values is None:
        return None
    given = dict(zip(op.fgraph.inputs, inputs, strict=True))
    found = boxes_of([op.fgraph.outputs[output]], [box], values.at().value, given)
    return {i: found[v] for i, v in enumerate(op.fgraph.inputs) if v in found} | {
        i: tuple(map(np.arange, np.shape(v)))
        for i, (v, inner) in enumerate(zip(inputs, op.fgraph.inputs, strict=True))
        if inner not in found
    }


@operand_boxes.register
def _boxes_of_dot(
    op: Dot, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box]:
    left, right = map(np.shape, inputs)
    rows, columns = (box[:1], box[1:]) if len(left) > 1 else ((), box)
    inner = np.arange(left[-1])
    return {0: (*rows, inner), 1: (inner, *columns)}


@operand_boxes.register
def _boxes_of_dimshuffle(
    op: DimShuffle, node: Apply, inputs: Sequence[Any], output: int, box: Box
) -> dict[int, Box]:
    places = {source: box[i] for i, source in enumerate(op.new_order) if source != "x"}
    return {0: tuple(places.get(a, np.zeros(1, int)) for a in range(np.ndim(inputs[0])))}


def floats_inside(node: Apply, inputs: Sequence[Any]) -> Any:
    """Return the floating-point replay of the inner graph of a node.

    Return None if they are not known, or if an operation inside has effects.

    `inputs`: values of the node's inputs; None where one is not known.
    """
    if not isinstance(node.op, Scan | OpFromGraph) or any(v is None for v in inputs):
        return None
    if any(has_effects(inner.op) for inner in node.op.fgraph.apply_nodes):
        return None
    outside = Replay(None, dict(zip(node.inputs, inputs, strict=True)), KERNELS)
    return outside.inner(node, node.op.fgraph)


KERNELS = Kernels("py")  # they compile nothing

SLICED = (Elemwise, CAReduce, Dot)
"""Operations whose result in a box is the operation on the boxes of its operands."""
