"""The operations that the guard writes into a graph for Numba alone; ``code.py`` compiles them.

They share the *signals* of the call, a vector of integers that is an input of the graph.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.replay import copy_value
from theanoguard.guard.graph.checks import CompiledOp

SIGNALS = TensorType("int64", (None,))

# Places in the vector: whether a value was bad, which flags have been raised, which of them count,
# and whether a loop or the call was cut short.
FOUND, FLAGS, COUNTING, CUT = range(4)
N_SIGNALS = 4


class _StandIn(Op):
    """An operation in the place of another one: it overwrites and views what that one does.

    PyTensor reads these maps to decide whether it copies the first state of a loop.
    """

    def __init__(self, op: Op) -> None:
        self.destroy_map = op.destroy_map
        self.view_map = op.view_map


class _Reader(CompiledOp):
    """Reads its operands; its output is an integer that orders it before what reads that."""

    def make_node(self, *operands: Variable) -> Apply:
        return Apply(self, list(operands), [ps.int64()])


class Watch(_Reader):
    """Reads a value, and signals if an element is bad.

    Parameters
    ----------
    nan, inf, big : bool
    limit : float
        As in :class:`~theanoguard.guard.policy.Policy`.
    """

    __props__ = ("nan", "inf", "big", "limit")

    def __init__(self, nan: bool, inf: bool, big: bool, limit: float) -> None:
        self.nan = nan
        self.inf = inf
        self.big = big
        self.limit = limit


class WatchRows(_Reader):
    """Reads the rows of an array that a vector of integers chooses, and signals if one is bad."""

    __props__ = ("watch",)

    def __init__(self, watch: Watch) -> None:
        self.watch = watch


class SaveRows(CompiledOp):
    """Copies the rows of an array that are about to be overwritten.

    Its operands are the array, the vector of integers that chooses the rows, and the memory of
    :class:`~theanoguard.guard.partly.SavedRows`; a memory of one number takes nothing.
    """

    __props__ = ()

    def make_node(self, array: Variable, rows: Variable, memory: Variable) -> Apply:
        return Apply(self, [array, rows, memory], [ps.int64()])


class IsBad(ps.UnaryScalarOp):
    """Gives an integer that is not 0 if a number is bad: -1."""

    __props__ = ("watch",)

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        super().__init__()

    def output_types(self, types: Sequence[ps.ScalarType]) -> list[ps.ScalarType]:
        [number] = types
        return [ps.get_scalar_type(number.dtype.replace("float", "int"))]


class WatchTrue(_Reader):
    """Signals if an element of an array of booleans or integers is true."""

    __props__ = ()


class WatchEmpty(_Reader):
    """Signals if an array has no element, which would show what is bad."""

    __props__ = ()


class Within(_Reader):
    """Raises an ``IndexError`` if an index is outside of an axis of an array.

    - `is_count`: whether the index is a number of steps, each of which reads an element.  Then a
      ``ValueError`` is raised, as PyTensor does on C.
    - `batch`: how many axes of the array stand before those of the operation.  If one is empty, the
      operation never runs.
    """

    __props__ = ("axis", "is_count", "batch")

    def __init__(self, axis: int, is_count: bool = False, batch: int = 0) -> None:
        self.axis = axis
        self.is_count = is_count
        self.batch = batch


class InDomain(CompiledOp):
    """Raises a ``ValueError`` if an element of a parameter lies outside of an interval.

    `is_open`: whether `low` itself is outside.
    """

    __props__ = ("low", "high", "is_open")

    def __init__(self, low: float, high: float, is_open: bool) -> None:
        self.low = low
        self.high = high
        self.is_open = is_open

    def make_node(self, value: Variable) -> Apply:
        return Apply(self, [value], [ps.int64()])


class Bracketed(CompiledOp, _StandIn):
    """An operation whose flags do not count; those raised before it are kept."""

    __props__ = ("op",)

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self.op = op

    def make_node(self, *inputs: Variable) -> NoReturn:
        raise NotImplementedError("made with the outputs of the node that it stands for")


class Recorded(_StandIn):
    """An operation that runs in Python, whose outputs are kept: it is not run a second time.

    `node`: the user's node, which this operation replaces.
    """

    def __init__(self, node: Apply, recording: "Recording") -> None:
        super().__init__(node.op)
        self.node = node
        self.recording = recording

    def __str__(self) -> str:
        return str(self.node.op)

    def make_node(self, *inputs: Variable) -> Apply:
        return Apply(self, list(inputs), [v.type() for v in self.node.outputs])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        self.node.op.perform(self.node, inputs, output_storage)
        self.recording.add(self.node, [cell[0] for cell in output_storage])


class Recording:
    """The outputs of the nodes of a call that ran in Python, as ``Replay`` takes them."""

    def __init__(self) -> None:
        self._outputs: dict[Apply, list[list]] = {}
        self._asked: dict[Apply, dict[tuple, int]] = {}

    def add(self, node: Apply, outputs: Iterable[Any]) -> None:
        """Keep the outputs of a node that has run."""
        self._outputs.setdefault(node, []).append([copy_value(value) for value in outputs])

    def clear(self) -> None:
        """Forget the last call."""
        self._outputs.clear()
        self._asked.clear()

    def __bool__(self) -> bool:
        return bool(self._outputs)

    def get(self, key: tuple[Apply, tuple[int, ...]]) -> list | None:
        """Return the outputs of a node at these steps of the loops around it; None if unknown.

        A replay asks for the steps in the order in which they ran.
        """
        node, _steps = key
        known = self._outputs.get(node, ())
        asked = self._asked.setdefault(node, {})
        number = asked.setdefault(key, len(asked))
        if number >= len(known):
            return None
        return [copy_value(value) for value in known[number]]

    def items(self) -> Iterator[tuple]:
        """Yield the key and the outputs of each node that ran once, outside of loops."""
        for node, known in self._outputs.items():
            if len(known) == 1:
                yield (node, ()), known[0]


class Stopped(Exception):
    """A call that :class:`Stop` has ended.

    Only an exception ends it, since PyTensor writes a graph for Numba as statements without a
    branch, and a loop so that it runs all its steps.
    """


class Stop(CompiledOp):
    """Ends the call where something may be wrong."""

    __props__ = ()

    def make_node(self, signals: Variable) -> Apply:
        return Apply(self, [signals], [ps.int64()])


class Unsaved(Exception):
    """A call that :class:`SaveRows` has ended: its memory is too short."""


class Until(CompiledOp):
    """The condition that ends a ``while`` loop, or a sign that something may be wrong."""

    __props__ = ()

    def make_node(self, condition: Variable, signals: Variable) -> Apply:
        return Apply(self, [condition, signals], [condition.type()])


class InBlocks(CompiledOp, _StandIn):
    """An elementwise operation that reads values block by block, and signals if one is bad.

    So that a large array passes from memory once, not twice.

    - `inputs`, `outputs`: which of them are read, and for what.
    - `spared`: outputs that are written into second buffers, which follow the operands as inputs.
    """

    __props__ = ("elemwise", "inputs", "outputs", "spared")

    def __init__(
        self,
        elemwise: Elemwise,
        inputs: tuple[tuple[int, Watch], ...],
        outputs: tuple[tuple[int, Watch], ...],
        spared: tuple[int, ...] = (),
    ) -> None:
        super().__init__(elemwise)
        self.elemwise = elemwise
        self.inputs = inputs
        self.outputs = outputs
        self.spared = spared

    def make_node(self, *inputs: Variable) -> Apply:
        outputs = self.elemwise.make_node(*self.operands(inputs)).outputs
        return Apply(self, list(inputs), [v.type() for v in outputs])

    def operands(self, inputs: Sequence[Variable]) -> list[Variable]:
        """Return the operands of the operation itself, of all inputs."""
        return list(inputs[: len(inputs) - len(self.spared) - 1])

    def beside(self, node: Apply) -> list[int]:
        """Return the outputs that overwrite no operand."""
        return [i for i in range(len(node.outputs)) if i not in self.elemwise.inplace_pattern]

    def into(self, node: Apply) -> Apply:
        """Return a node of the same operation that writes into arrays.

        Its last inputs are the arrays for the outputs that overwrite no operand.
        """
        given, beside = self.operands(node.inputs), self.beside(node)
        operands = [*given, *(node.outputs[i] for i in beside)]
        scalars = [ps.get_scalar_type(v.type.dtype)() for v in operands]
        results = self.elemwise.scalar_op.make_node(*scalars[: len(given)]).outputs
        places = {output: len(given) + k for k, output in enumerate(beside)}
        op = Elemwise(ps.Composite(scalars, results), {**self.elemwise.inplace_pattern, **places})
        return op.make_node(*(v.type() for v in operands))
