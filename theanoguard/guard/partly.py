"""Shared variables of which a call reads only some elements, such as the rows of an embedding.

Checking a table of 100,000 rows in each call would take a thousand times as long as updating 64 of
them.  So the guard does not check the whole variable when a call begins.  It checks only the
elements that the call reads or increments.  Any other bad element is found by the first call that
touches it.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import Output, advanced_subtensor_ops, increment_ops, inner_graph
from theanoguard.operations import taking

CHOOSING = (Subtensor, *advanced_subtensor_ops)

# Places in the memory of `SavedRows`: how many rows it has, how long it must be, the first row.
COUNT, LENGTH, SAVED = range(3)


@dataclass(frozen=True)
class Touch:
    """How a node reads or overwrites some elements of a variable."""

    node: Apply
    variable: Variable  # an input of the node
    choosing: Op  # the indexing operation that returns these elements
    #: The further inputs of `choosing`: inputs of the node, or constants.
    index: tuple[Variable, ...]
    #: Whether the inner graph of the node indexes the variable.  The node itself then returns
    #: something other than these elements.
    is_inside: bool = False

    @property
    def writes(self) -> bool:
        """Whether the elements are overwritten, in place or in a copy."""
        return not self.is_inside and isinstance(self.node.op, increment_ops)

    @property
    def reads(self) -> bool:
        """Whether the elements are read, and not only overwritten."""
        return not (self.writes and self.node.op.set_instead_of_inc)

    @cached_property
    def rows(self) -> Variable | None:
        """The variable that chooses rows, if one vector of integers does and nothing else."""
        if len(self.index) != 1 or isinstance(self.choosing, Subtensor):
            return None
        [variable] = self.index
        is_rows = (
            not isinstance(variable, Constant)
            and variable.type.ndim == 1
            and variable.type.dtype != "bool"
            and np.can_cast(variable.type.dtype, np.intp)  # as `take` has it
            and getattr(self.choosing, "idx_list", (0,)) == (0,)
        )
        return variable if is_rows else None

    def where(self, value_of: Callable) -> tuple | np.ndarray:
        """Return the NumPy index of the elements in a call.

        `value_of`: returns the value of a variable in `index`.
        """
        if self.rows is not None:
            return np.array(value_of(self.rows))
        given = [v.data if isinstance(v, Constant) else value_of(v) for v in self.index]
        index = [np.array(v) if isinstance(v, np.ndarray) else v for v in given]
        if not hasattr(self.choosing, "idx_list"):  # on PyTensor 3.0
            return tuple(index)
        return tuple(indices_from_subtensor(index, self.choosing.idx_list))

    def mask(self, value_of: Callable) -> np.ndarray:
        """Return a mask of the elements, with the shape of the variable's value."""
        mask = np.zeros(value_of(self.variable).shape, bool)
        mask[self.where(value_of)] = True
        return mask


def read_in_part(fgraph: FunctionGraph) -> dict[Variable, list[Touch]]:
    """Return the shared variables of which a call touches only some elements, and how it does.

    `fgraph`: the graph that is compiled, with its in-place operations.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> table, words = pytensor.shared(np.ones((9, 2)), name="table"), pt.lvector("words")
    >>> f = pytensor.function([words], pt.exp(table[words]))
    >>> [(variable, [touch])] = read_in_part(f.maker.fgraph).items()
    >>> variable, touch.index, touch.writes
    (table, (words,), False)
    """
    updates = getattr(fgraph, "update_mapping", None) or {}
    found = {}
    for position, variable in enumerate(fgraph.inputs):
        if not isinstance(variable, SharedVariable) or not isinstance(variable.type, TensorType):
            continue
        touches = _touches(fgraph, variable)
        if not touches:
            continue
        own = {i for i, becomes in updates.items() if becomes == position}
        if all(
            isinstance(user.op, Output) and user.op.idx in own
            for touch in touches
            if touch.writes
            for user, _ in fgraph.clients[touch.node.outputs[0]]
        ):
            found[variable] = touches
    return found


def _touches(fgraph: FunctionGraph, variable: Variable) -> list[Touch] | None:
    """Return how each client touches a variable; None if one reads or overwrites all of it."""
    found = []
    for node, i in fgraph.clients.get(variable, ()):  # (a frozen graph omits what nothing reads)
        if isinstance(node.op, Shape | Shape_i):
            continue
        if isinstance(node.op, OpFromGraph) and not node.op.destroy_map:
            inside = _touches_inside(node, i)
            if inside is None:
                return None
            found += inside
        elif i == 0 and isinstance(node.op, CHOOSING):
            found.append(Touch(node, variable, node.op, tuple(node.inputs[1:])))
        elif i == 0 and isinstance(node.op, increment_ops):
            found.append(Touch(node, variable, taking(node.op), tuple(node.inputs[2:])))
        else:
            return None
    return found


def _touches_inside(node: Apply, i: int) -> list[Touch] | None:
    graph = inner_graph(node.op)
    outside = dict(zip(graph.inputs, node.inputs, strict=True))
    touches = _touches(graph, graph.inputs[i])
    if touches is None:
        return None
    found = []
    for touch in touches:
        if touch.writes or touch.is_inside:
            return None
        if not all(isinstance(v, Constant) or v in outside for v in touch.index):
            return None
        index = tuple(outside.get(v, v) for v in touch.index)
        found.append(Touch(node, node.inputs[i], touch.choosing, index, is_inside=True))
    return found


def written(node: Apply) -> Touch:
    """Return which elements a node with one of ``increment_ops`` overwrites."""
    return Touch(node, node.inputs[0], taking(node.op), tuple(node.inputs[2:]))


class PartSnapshot:
    """The elements of an array in a storage cell that a call is about to overwrite.

    - `index`: NumPy index of the elements.
    - `before`: the old elements, if they have been copied.
    """

    def __init__(
        self, cell: list, index: tuple | np.ndarray, before: np.ndarray | None = None
    ) -> None:
        self._cell = cell
        self._array = cell[0]
        self._index = index
        self._after: np.ndarray | None = None  # what `undo` has replaced
        if before is not None:
            self._before = before
        elif isinstance(index, np.ndarray):  # rows: several times as fast as an index
            self._before = self._array.take(index, 0)
        else:
            self._before = np.array(self._array[index])

    def old(self) -> np.ndarray:
        """Return a copy of the array with the old elements."""
        whole = self._array.copy()
        whole[self._index] = self._before
        return whole

    def undo(self) -> None:
        """Restore the old elements, and keep the present ones; may be repeated."""
        if self._after is None:
            self._after = self._array[self._index].copy()
        self()

    def redo(self) -> None:
        """Take that back; may be repeated."""
        self._put(self._after)

    def __call__(self) -> None:
        """Restore the old elements in the array."""
        self._put(self._before)

    def _put(self, elements: np.ndarray | None) -> None:
        self._array[self._index] = elements
        self._cell[0] = self._array


class SavedRows:
    """The rows that a call overwrites, as its compiled code has copied them.

    - `cell`: the storage cell of an array.
    - `rows`: the storage cell of the vector that chooses its rows.  None if the graph computes it:
      then the code asks for memory.
    """

    def __init__(self, cell: list, rows: list | None) -> None:
        self._cell = cell
        self._rows = rows
        self._capacity = -1
        self._hold(SAVED)

    def _hold(self, length: int) -> None:
        self._memory = np.zeros(length, np.int64)
        self._head = memoryview(self._memory)  # NumPy takes longer to change one number

    def memory(self) -> np.ndarray:
        """Return where the call that begins copies the rows to.

        It takes how many rows have been copied, how long it has to be, which rows these are, and
        their bytes.
        """
        if self._rows is not None and len(self._rows[0]) > self._capacity:
            self._capacity = len(self._rows[0])
            self._hold(SAVED + self._capacity * (1 + _words(self._cell[0])))
        return self._memory

    def grow(self) -> bool:
        """Make the memory as long as the code has asked for; return whether it can be used."""
        length = self._head[LENGTH]
        if length > len(self._memory):
            self._hold(length)
        elif length < SAVED:  # the array is a view whose rows do not lie in one piece
            self._capacity = sys.maxsize
            self._hold(1)
        return length >= SAVED

    def forget(self) -> None:
        """Forget the rows of the last call."""
        self._head[COUNT] = 0

    def snapshot(self) -> PartSnapshot:
        """Return what puts the rows back; none if nothing has been copied in this call."""
        array, n = self._cell[0], self._head[COUNT]
        words = _words(array)
        found = self._memory[SAVED : SAVED + n * (1 + words)].copy()
        contents = found[n:].view(np.uint8).reshape(n, words * 8)
        before = contents[:, : math.prod(array.shape[1:]) * array.itemsize]
        before = np.frombuffer(before.tobytes(), array.dtype).reshape(n, *array.shape[1:])
        return PartSnapshot(self._cell, found[:n], before)


def _words(array: np.ndarray) -> int:
    """Return how many integers the bytes of one row fill."""
    return -(-math.prod(array.shape[1:]) * array.itemsize // 8)
