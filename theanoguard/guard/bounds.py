"""Which axes of which arrays a node indexes, and whether an index can be outside.

PyTensor's code for Numba reads and writes at vectors of indices without looking at the array's
length: an index outside gives foreign memory, or ends the process.  So does a loop that takes more
steps than a sequence has elements.  On every backend, some of PyTensor's rewrites (those tagged
"shape_unsafe") drop an index as if it were inside, and one for Numba drops the length of a mask.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.graph.traversal import applys_between, graph_inputs, walk
from pytensor.graph.utils import InconsistencyError
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, ARange, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import eq
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.replay import check_sequence
from theanoguard._pytensor import Scan, advanced_subtensor_ops, increment_ops, inner_graph

INDEXING = (Subtensor, *advanced_subtensor_ops)


@dataclass(frozen=True)
class Lookup:
    """An axis of an array that a node indexes."""

    array: int  # which input of the node
    axis: int
    index: Variable  # a number or an array: an input of the node, or a constant of its inner graph
    is_basic: bool = False  # whether the index is a number, which Numba's code checks by itself
    #: Whether it is a number of steps of a loop, which reads as many elements.
    is_count: bool = False
    #: For a mask, which axis of it must be as long as that of the array.
    mask_axis: int | None = None
    #: How many axes of both stand before those of the operation, which runs for each part.
    batch: int = 0


def lookups(node: Apply) -> list[Lookup]:
    """Return what a node indexes, in an operation inside of it as well.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, i = pt.dmatrix("x"), pt.lvector("i")
    >>> [(found.array, found.axis, found.index) for found in lookups(x[:, i].owner)]
    [(0, 1, i)]
    """
    return list(_lookups(node.op, node.inputs, 0))


@singledispatch
def _lookups(op: Op, inputs: Sequence[Variable], batch: int) -> Iterator[Lookup]:
    """Yield what an operation indexes; its inputs may have axes of a batch before its own."""
    yield from ()


@_lookups.register(Blockwise)
def _of_blockwise(op: Any, inputs: Sequence[Variable], batch: int) -> Iterator[Lookup]:
    return _lookups(op.core_op, inputs, inputs[0].type.ndim - len(op.inputs_sig[0]))


@_lookups.register(OpFromGraph)
def _of_inner_graph(op: Op, inputs: Sequence[Variable], batch: int) -> Iterator[Lookup]:
    graph = inner_graph(op)
    outside = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.apply_nodes:
        for found in lookups(node):
            array, index = node.inputs[found.array], found.index
            if array in outside and (index in outside or isinstance(index, Constant)):
                yield replace(
                    found,
                    array=list(graph.inputs).index(array),
                    axis=found.axis + batch,
                    index=outside.get(index, index),
                    mask_axis=None if found.mask_axis is None else found.mask_axis + batch,
                    batch=found.batch + batch,
                )


@_lookups.register(Scan)
def _of_sequences(op: Any, inputs: Sequence[Variable], batch: int) -> Iterator[Lookup]:
    for i in range(1, 1 + op.info.n_seqs) if not batch else ():
        yield Lookup(i, 0, inputs[0], is_count=True)


def _of_entries(op: Any, inputs: Sequence[Variable], batch: int) -> Iterator[Lookup]:
    axis, is_basic = batch, isinstance(op, Subtensor | IncSubtensor) and not batch
    indices = inputs[1 if isinstance(op, INDEXING) else 2 :]
    for entry in indices_from_subtensor(indices, op.idx_list):
        dtype = getattr(getattr(entry, "type", None), "dtype", None)
        if dtype == "bool":
            for mask_axis in range(batch, entry.type.ndim):
                yield Lookup(0, axis, entry, mask_axis=mask_axis, batch=batch)
                axis += 1
            continue
        if dtype in ps.discrete_dtypes:
            yield Lookup(0, axis, entry, is_basic, batch=batch)
        if dtype is not None or isinstance(entry, slice):  # else a new axis
            axis += 1


for _kind in (*INDEXING, *increment_ops):
    _lookups.register(_kind, _of_entries)


class MaskFits(CheckAndRaise):
    """Gives a mask whose axes are as long as those that it indexes."""


_MASK_FITS = MaskFits(IndexError, "a boolean index is not as long as the axis that it indexes")


def check_indices(fgraph: FunctionGraph) -> None:
    """Make a graph that has not been rewritten yet one in which all indices can be checked."""
    optdb["inline_ofg_expansion"].rewrite(fgraph)  # PyTensor's first, which would hide masks
    open_batches(fgraph)
    check_masks(fgraph)


def open_batches(fgraph: FunctionGraph) -> None:
    """Replace operations on batches that compute an index inside of them by what is in them.

    Numba runs such an operation as a whole, so nothing could be checked between the index and its
    use.
    """
    todo = deque(fgraph.toposort())
    while todo:
        node = todo.popleft()
        if not (isinstance(node.op, Blockwise) and _hides_an_index(node.op.core_op)):
            continue
        graph = inner_graph(node.op.core_op)
        inside = dict(zip(graph.inputs, node.inputs, strict=True))
        new = vectorize_graph(list(graph.outputs), inside)
        pairs = list(zip(node.outputs, new, strict=True))
        for old, opened in pairs:
            copy_stack_trace(old, opened)
        fgraph.replace_all(pairs, reason="open_batches", import_missing=True)
        todo.extend(applys_between(node.inputs, new))


def _hides_an_index(op: Op) -> bool:
    """Whether an operation has a graph of its own that makes an index or what is indexed."""
    if not isinstance(op, OpFromGraph):
        return False
    graph = inner_graph(op)
    given = set(graph.inputs)
    return any(
        _hides_an_index(node.op)
        or (isinstance(node.op, Blockwise) and _hides_an_index(node.op.core_op))
        or any(
            node.inputs[found.array] not in given
            or not (found.index in given or isinstance(found.index, Constant))
            for found in lookups(node)
        )
        for node in graph.apply_nodes
    )


def check_masks(fgraph: FunctionGraph) -> None:
    """Let a graph raise NumPy's ``IndexError`` for a mask of another length than its axis.

    PyTensor rewrites masks for Numba to the numbers of their true elements, which say nothing of
    the length.  `fgraph` has not been rewritten yet.
    """
    for node in fgraph.toposort():
        if isinstance(node.op, MaskFits | OpFromGraph):
            continue  # (PyTensor rewrites an inner graph by itself)
        masks: dict[Variable, list[Variable]] = {}
        for lookup in lookups(node):
            mask, array = lookup.index, node.inputs[lookup.array]
            if lookup.mask_axis is None:
                continue
            lengths = mask.type.shape[lookup.mask_axis], array.type.shape[lookup.axis]
            if None in lengths or lengths[0] != lengths[1]:
                fits = eq(mask.shape[lookup.mask_axis], array.shape[lookup.axis])
                masks.setdefault(mask, []).append(fits)
        for mask, fits in masks.items():
            checked = copy_stack_trace(node.outputs[0], _MASK_FITS(mask, *fits))
            for i in [i for i, v in enumerate(node.inputs) if v is mask]:
                fgraph.change_node_input(
                    node, i, checked, reason="check_masks", import_missing=True
                )


def is_inside(node: Apply, lookup: Lookup) -> bool:
    """Whether no value of the index can be outside of the array.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x, i = pt.tensor("x", shape=(3,)), pt.lvector("i")
    >>> [is_inside(v.owner, *lookups(v.owner)) for v in (x[[0, -3]], x[i % 3], x[i])]
    [True, True, False]
    """
    array = node.inputs[lookup.array]
    length = array.type.shape[lookup.axis] if isinstance(array.type, TensorType) else None
    if lookup.is_count:
        return _counts(lookup.index, array, length)
    if lookup.mask_axis is not None:
        return length_of(array, lookup.axis) == length_of(lookup.index, lookup.mask_axis)
    if _is_every_place(lookup.index, array, lookup.axis):
        return True
    known = limits(lookup.index)
    return known is not None and length is not None and -length <= known[0] and known[1] < length


def _counts(number: Variable, array: Variable, length: int | None) -> bool:
    """Whether an array has at least `number` elements."""
    number = _behind_views(number)
    if isinstance(number, Constant):
        return length is not None and int(number.data) <= length
    if number.owner is None or not isinstance(number.owner.op, Shape_i):
        return False
    return length_of(number.owner.inputs[0], number.owner.op.i) == length_of(array, 0)


def length_of(array: Variable, axis: int) -> int | tuple[Variable, int]:
    """Return the length of an axis, or the variable and its axis from which the array has it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, i = pt.dvector("x"), pt.lvector("i")
    >>> length_of(pt.inc_subtensor(x[i], 1.0), 0)
    (x, 0)
    """
    while (node := array.owner) is not None:
        if isinstance(node.op, increment_ops):
            array = node.inputs[0]
            continue
        if isinstance(node.op, Elemwise):
            long = [v for v in node.inputs if not v.type.broadcastable[axis]]
            if not long:
                break
            array = long[0]
            continue
        if not isinstance(node.op, Alloc):
            break
        length = _behind_views(node.inputs[1 + axis])
        if length.owner is None or not isinstance(length.owner.op, Shape_i):
            break
        [array], axis = length.owner.inputs, length.owner.op.i
    known = array.type.shape[axis] if isinstance(array.type, TensorType) else None
    return (array, axis) if known is None else known


def _is_every_place(index: Variable, array: Variable, axis: int) -> bool:
    """Whether an index is ``arange(array.shape[axis])``."""
    node = _behind_views(index).owner
    if node is None or not isinstance(node.op, ARange):
        return False
    start, stop, step = map(_behind_views, node.inputs)
    begins = limits(start)
    if stop.owner is None or not isinstance(stop.owner.op, Shape_i):
        return False
    return (
        length_of(stop.owner.inputs[0], stop.owner.op.i) == length_of(array, axis)
        and begins is not None
        and begins[0] >= 0
        and (limits(step) or (0,))[0] > 0
    )


def limits(variable: Variable) -> tuple[int, int] | None:
    """Return the smallest and largest element that an array of integers can have, if known."""
    variable = _behind_views(variable)
    if isinstance(variable, Constant):
        data = np.asarray(variable.data)
        return (int(data.min()), int(data.max())) if data.size else (0, -1)
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, ARange):
        start, stop, step = map(limits, node.inputs)
        if start is None or stop is None or step is None or step[0] <= 0:
            return None
        return start[0], max(start[0], stop[1] - 1)
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Mod):
        by = limits(node.inputs[1])
        return (0, by[1] - 1) if by is not None and by[0] > 0 else None
    return None


def _behind_views(variable: Variable) -> Variable:
    """Return the variable whose elements a variable has, behind casts to longer integers."""
    while (node := variable.owner) is not None:
        is_cast = isinstance(getattr(node.op, "scalar_op", node.op), ps.Cast)
        is_view = isinstance(node.op, DimShuffle | ScalarFromTensor | TensorFromScalar)
        if not is_view and not (
            is_cast and np.can_cast(node.inputs[0].type.dtype, variable.type.dtype)
        ):
            break
        variable = node.inputs[0]
    return variable


def check(node: Apply, values: Sequence[Any]) -> None:
    """Raise NumPy's error if a node indexes outside of an array, or PyTensor's if a loop does.

    Parameters
    ----------
    node : Apply
    values : list
        Of its inputs.

    Raises
    ------
    IndexError
    ValueError
    """
    for lookup in lookups(node):
        index, shape = lookup.index, np.shape(values[lookup.array])
        known = index.data if isinstance(index, Constant) else values[node.inputs.index(index)]
        if lookup.is_count:
            check_sequence(lookup.array - 1, values[lookup.array], int(known))
            continue
        found, length = np.asarray(known), shape[lookup.axis]
        if 0 in shape[: lookup.batch]:
            continue  # the operation never runs
        if lookup.mask_axis is not None:
            if found.shape[lookup.mask_axis] != length:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {lookup.axis}; size of "
                    f"axis is {length} but size of corresponding boolean axis is "
                    f"{found.shape[lookup.mask_axis]}"
                )
            continue
        outside = (found < -length) | (found >= length)
        if outside.any():
            raise IndexError(
                f"index {int(found[outside].flat[0])} is out of bounds for axis {lookup.axis} "
                f"with size {length}"
            )


class KeepsIndices(Feature):
    """Refuses a rewrite that drops an index which may be outside of its array.

    ``set_subtensor(x[i], y)[i]`` would become ``y``, and ``full(n, y)[i]`` as well, whatever i is.
    ``x[i] * 0`` would become 0, and ``full(n, y).sum()`` would become ``n * y`` even if n is
    negative.
    """

    def __init__(self) -> None:
        self._refused = False

    def on_change_input(
        self, fgraph: Any, node: Apply, i: int, r: Variable, new_r: Variable, reason: Any = None
    ) -> None:
        is_undone = isinstance(reason, tuple) and reason[0] == "Revert"
        if r.owner is None or is_undone or self._refused:
            return
        if isinstance(r.owner.op, (*INDEXING, *increment_ops)):
            self._refused = drops_index(r.owner, new_r)
        elif isinstance(r.owner.op, Elemwise) and not isinstance(r.owner.op.scalar_op, ps.Pow):
            # (PyTensor's next rewrite of ``x[i] ** 0`` would fail.)
            self._refused = _is_constant(new_r) and _needs_an_index(fgraph, r)
        elif isinstance(r.owner.op, CAReduce):
            self._refused = _drops_a_length(r.owner, new_r)

    def on_validate(self, fgraph: Any) -> None:
        if self._refused:
            self._refused = False
            raise InconsistencyError("an index that may be out of bounds would be dropped")


MOST_NODES = 100  # how many elementwise operations before a constant are searched for an index


def _is_constant(variable: Variable) -> bool:
    """Whether all elements of a variable are constants."""
    while (node := variable.owner) is not None:
        is_cast = isinstance(getattr(node.op, "scalar_op", None), ps.Cast)
        if not (is_cast or isinstance(node.op, Alloc | DimShuffle) or _takes_a_shape(node)):
            return False
        variable = node.inputs[_takes_a_shape(node)]
    return isinstance(variable, Constant)


def _takes_a_shape(node: Apply) -> bool:
    """Whether a node takes the shape of its first operand, but no element."""
    return isinstance(getattr(node.op, "scalar_op", None), ps.Second)


def _needs_an_index(fgraph: Any, result: Variable) -> bool:
    """Whether an index that may be outside is read for an elementwise result, and for nothing else.

    The shape of what is indexed does not count, as in ``zeros_like(x[i])``.
    """
    assert result.owner is not None
    inside, todo = {result.owner}, [result.owner]
    while todo and len(inside) <= MOST_NODES:
        node = todo.pop()
        for variable in node.inputs[_takes_a_shape(node) :]:
            before = variable.owner
            if before is None or before in inside or _is_read(fgraph, variable, inside):
                continue
            if isinstance(before.op, (*INDEXING, *increment_ops)) and not all(
                is_inside(before, lookup) for lookup in lookups(before)
            ):
                return True
            if isinstance(before.op, CAReduce | Elemwise | DimShuffle):
                inside.add(before)
                todo.append(before)
    return False


def _is_read(fgraph: Any, variable: Variable, inside: set[Apply]) -> bool:
    """Whether a node that is not among these reads elements of a variable."""
    return any(
        client not in inside
        and not isinstance(client.op, Shape | Shape_i)
        and not (i == 0 and _takes_a_shape(client))
        for client, i in fgraph.clients.get(variable, ())
    )


def _drops_a_length(node: Apply, new: Variable) -> bool:
    """Whether what is reduced has a length that may be negative, and is not made any more."""
    filled = node.inputs[0].owner
    if filled is None or not isinstance(filled.op, Alloc) or filled.outputs[0] in new.owner.inputs:
        return False
    return not all(map(_is_length, filled.inputs[1:]))


def _is_length(variable: Variable) -> bool:
    """Whether a number cannot be negative."""
    variable = _behind_views(variable)
    while variable.owner is not None and isinstance(variable.owner.op, CheckAndRaise):
        variable = _behind_views(variable.owner.inputs[0])  # (of arrays that are broadcast)
    known = limits(variable)
    is_measured = variable.owner is not None and isinstance(variable.owner.op, Shape_i)
    return is_measured or (known is not None and known[0] >= 0)


def drops_index(node: Apply, new: Variable) -> bool:
    """Whether a variable that replaces the elements of an indexing node does not use the index.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, y, i = pt.dvector("x"), pt.dscalar("y"), pt.lscalar("i")
    >>> drops_index(x[i].owner, y), drops_index((x + y)[i].owner, x[i] + y)
    (True, False)
    """
    for lookup in lookups(node):
        if _merges_an_end(node, lookup, new):
            return True
        if not isinstance(lookup.index, Constant) and not is_inside(node, lookup):
            roots = {v for v in graph_inputs([lookup.index]) if not isinstance(v, Constant)}
            if not _uses(new, roots):
                return True
    return False


def _uses(variable: Variable, wanted: set[Variable]) -> bool:
    """Whether elements of one of the variables, and not only its shape, decide a variable."""

    def operands(v: Variable) -> list[Variable]:
        return [] if v.owner is None or isinstance(v.owner.op, Shape | Shape_i) else v.owner.inputs

    # (what is near comes first, since an index mostly is)
    return any(v in wanted for v in walk([variable], operands))


def _merges_an_end(node: Apply, lookup: Lookup, new: Variable) -> bool:
    """Whether the end of a slice is lost: ``x[:k][j]`` would become ``x[j]``, whatever k is."""
    inner, outer = node.inputs[lookup.array].owner, new.owner
    if inner is None or outer is None or not lookup.is_basic:
        return False
    if not (isinstance(inner.op, Subtensor) and isinstance(outer.op, Subtensor)):
        return False
    # (Of a loop, the last state alone is kept if it is its result's last element.)
    if outer.inputs[0] is not inner.inputs[0] or isinstance(
        getattr(inner.inputs[0].owner, "op", None), Scan
    ):
        return False
    entries = indices_from_subtensor(inner.inputs[1:], inner.op.idx_list)
    slices = [entry for entry in entries if isinstance(entry, slice)]
    cut = slices[lookup.axis] if lookup.axis < len(slices) else slice(None)
    given = [v for v in (cut.start, cut.stop, cut.step) if v is not None]
    if not given or all(isinstance(v, Constant) for v in (lookup.index, *given)):
        return False
    known = limits(lookup.index)
    return cut.stop is not None or known is None or known[0] < 0
