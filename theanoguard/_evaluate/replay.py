"""Recompute the intermediate values of one call, from the values of its inputs.

The replay evaluates the graph that ran again, node by node, with the same kernels.  The C code of
every node is in PyTensor's cache by then.  If a node overwrites an input, it gets a copy.  Only the
ancestors of the requested values are computed.  The inner graphs of
:class:`~pytensor.scan.op.Scan`, ``OpFromGraph`` and ``IfElse`` are replayed step by step, so that
the values inside them are available as well.
"""

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial, singledispatch
from typing import Any, Literal, TypeAlias

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.utils import MethodNotDefined
from pytensor.raise_op import CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import IfElse, LazyIfElse, default_impl, inner_graph
from theanoguard._steps import ForeignError, foreign

MEMORY_BOUND = 1 << 30
"""Bytes of recomputed values that a replay keeps.  A dropped value is computed again on request."""


Implementation: TypeAlias = Literal["c", "py"]
Kernel: TypeAlias = Callable[[list[Any]], list[Any]]
Run: TypeAlias = "Iterator[tuple[Replay, Apply, list[Any]]]"


@cache  # (a check of an abstract class takes as long as a small operation)
def has_steps(kind: type[Op]) -> bool:
    """Return whether the operations of a class have inner graphs that a replay can step into."""
    return issubclass(kind, (Scan, OpFromGraph, LazyIfElse))


class NotRun(ForeignError):
    """A replay has come to an operation with side effects, which it must not run again."""


_WITHOUT_EFFECTS = ("pytensor.", "theano.", "theanoguard.ops.asserts", "theanoguard.guard.c.")
"""The modules of operations of PyTensor, of ``import theano`` and of C code, and of checks."""

_WITH_EFFECTS = {
    "pytensor.printing.Print",
    "pytensor.breakpoint.PdbBreakpoint",
    "pytensor.compile.ops.FromFunctionOp",
    "theano.compile.ops.FromFunctionOp",
}
"""Operations in them that show something, or that call a function of the user."""


def has_effects(op: Op) -> bool:
    """Return whether an operation may have side effects.

    PyTensor's own operations and checks have none.  A user-defined operation may do anything.
    PyMC's parameter checks are subclasses of PyTensor's checks.
    """
    return _has_effects(op.__class__)


@cache
def _has_effects(kind: type[Op]) -> bool:
    if issubclass(kind, CheckAndRaise) and kind.perform is CheckAndRaise.perform:
        return False
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name in _WITH_EFFECTS or not name.startswith(_WITHOUT_EFFECTS)


def copy_value(value: Any) -> Any:
    """Return a copy of the value of a variable (RNG states and lists: a deep copy)."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    return copy.deepcopy(value)


def finish(run: Iterable[object]) -> None:
    """Go through an iterator to its end."""
    deque(run, maxlen=0)


def alone(node: Apply) -> Apply:
    """Return a copy of a node with inputs of its own.

    It keeps its constants: the code of some ops depends on them.
    """
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    return Apply(node.op, inputs, [v.type() for v in node.outputs])


class Kernels:
    """Callables that compute the outputs of a node, shared by equal nodes.

    Many nodes of a graph share a kernel.  Making a kernel takes time even if its C code is cached.

    - `impl`: one of "c", "py", None.  Which implementation to run.  None selects C code if PyTensor
      has a compiler.
    - `raised`: the exception flags of the node that ran last, for kernels that read them.
    """

    raised = 0

    def __init__(self, impl: Implementation | None = None) -> None:
        self.impl = impl or default_impl()
        self._made: dict[Any, Kernel] = {}
        self._unhashed: dict[int, Apply] = {}

    def __len__(self) -> int:
        return len(self._made)

    def run(self, node: Apply, inputs: list[Any]) -> list[Any]:
        """Return the values of the outputs of `node` for `inputs`, which may be overwritten."""
        return self.kernel_of(node)(inputs)

    def kernel_of(self, node: Apply) -> Kernel:
        """Return the kernel of `node`, made on first use."""
        key: Any = (
            node.op,
            tuple(_constant_key(v) if isinstance(v, Constant) else v.type for v in node.inputs),
            tuple(v.type for v in node.outputs),
        )
        try:
            kernel = self._made.get(key)
        except TypeError:  # a user-defined op that cannot be hashed
            key = id(node)
            self._unhashed[key] = node  # keep the node alive, so that its id stays unique
            kernel = self._made.get(key)
        if kernel is None:
            kernel = self._made[key] = self._make(node)
        return kernel

    def runs_whole(self, node: Apply) -> bool:
        """Whether an op with an inner graph is run in one piece, not step by step."""
        return False

    def _make(self, node: Apply) -> Kernel:
        if self.impl == "py" and is_wide(node):
            return partial(_by_elements, node)
        own = alone(node)
        cells = {v: [None] for v in (*own.inputs, *own.outputs)}
        computed = {v: [True] for v in own.inputs} | {v: [False] for v in own.outputs}
        try:
            thunk = own.op.make_thunk(own, cells, computed, [], impl=self.impl)
        except (NotImplementedError, MethodNotDefined):  # no C code for these types
            thunk = own.op.make_thunk(own, cells, computed, [], impl="py")
        ins = [cells[v] for v in own.inputs]
        outs = [cells[v] for v in own.outputs]

        def kernel(values: list[Any]) -> list[Any]:
            for cell, value in zip(ins, values, strict=True):
                cell[0] = value
            for cell in outs:  # otherwise the next run would overwrite this buffer
                cell[0] = None
            try:
                thunk()
                return [cell[0] for cell in outs]
            finally:
                for cell in (*ins, *outs):
                    cell[0] = None

        return kernel


def is_wide(node: Apply) -> bool:
    """Whether an elementwise operation has more operands than NumPy's ufuncs take."""
    return isinstance(node.op, Elemwise) and len(node.inputs) + len(node.outputs) > 32


def _by_elements(node: Apply, values: list[Any]) -> list[Any]:
    """Return the outputs of an elementwise operation, computed one element at a time."""
    columns = np.broadcast_arrays(*values)
    rows = zip(*(c.ravel().tolist() for c in columns), strict=True)
    found = [node.op.scalar_op.impl(*row) for row in rows]
    outputs = zip(*found, strict=True) if len(node.outputs) > 1 else [found]
    return [
        np.array(list(column), variable.type.dtype).reshape(columns[0].shape)
        for column, variable in zip(outputs, node.outputs, strict=True)
    ]


class ForeignKernels(Kernels):
    """Kernels that raise a :class:`ForeignError` for whatever an operation raises."""

    def _make(self, node: Apply) -> Kernel:
        with foreign():
            kernel = super()._make(node)

        def run(values: list[Any]) -> list[Any]:
            with foreign():
                return kernel(values)

        return run


def _constant_key(constant: Constant) -> Any:
    """Return a key for a constant: the value of a number or a slice, else the identity."""
    data = constant.data
    if isinstance(data, np.ndarray) and data.size == 1 and data.dtype.kind in "fciub":
        return constant.type, data.tobytes()
    plain = isinstance(data, np.generic | int | float | slice)
    return (constant.type, repr(data)) if plain else id(constant)


class Replay:
    """The values of one execution of a graph, computed on request.

    - `fgraph`: the graph as it ran.
    - `inputs`: values of its inputs at the beginning of the execution.  They are not modified.
    - `kernels`: shared between the replays of one explanation.
    - `memory_bound`: bytes of values to keep.
    - `live`: outputs of nodes that must not be run a second time.  The key is the node and the
      steps of the scans around it.
    - `graphs`: the inner graphs of nodes as they were linked, if they are available.
    - `place`: for an inner graph: the replay of the outer graph, the node there, and the step.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> y = pt.log(x)
    >>> graph = FunctionGraph([x], [y], clone=False)
    >>> Replay(graph, {x: np.array([1.0, 2.0])}, Kernels("py")).value(y)
    array([0.        , 0.69314718])
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        inputs: Mapping[Variable, Any],
        kernels: Kernels | None = None,
        memory_bound: int = MEMORY_BOUND,
        live: Mapping[Any, Any] | None = None,
        graphs: Mapping[Apply, FunctionGraph] | None = None,
        place: "tuple[Replay, Apply, int | None] | None" = None,
    ) -> None:
        self.fgraph = fgraph
        self.live = live or {}
        self.graphs = graphs or {}
        self.place = place
        self.kernels = Kernels() if kernels is None else kernels
        self._given = dict(inputs)
        self._computed: dict[Variable, Any] = {}
        self._inner: dict[Apply, GraphReplay | ScanReplay] = {}
        self._running: Apply | None = None  # the node that has begun and not ended
        self._bound = memory_bound
        self._bytes = 0

    def value(self, variable: Variable) -> Any:
        """Return the value of `variable`, after computing its ancestors."""
        if not self.knows(variable):
            finish(self.run([variable]))
        return self[variable]

    def run(self, variables: Iterable[Variable]) -> Run:
        """Compute variables and their ancestors while the caller iterates.

        Yields
        ------
        Replay, Apply, list
            After each node that has run, in this graph or in an inner one: the replay of its graph,
            the node, and the values of its outputs.
        """
        for variable in variables:
            pending = [variable]
            while pending:
                current = pending[-1]
                if self.knows(current):
                    pending.pop()
                    continue
                node = current.owner
                if node is None:
                    raise KeyError(f"no value was given for the input {current}")
                missing = [v for v in self.needed(node) if not self.knows(v)]
                if missing:
                    pending.extend(missing)
                    continue
                values = yield from self.compute(node)
                self._make_room(values, pending)
                self._computed.update(zip(node.outputs, values, strict=True))

    def __getitem__(self, variable: Variable) -> Any:
        if variable in self._given:
            return self._given[variable]
        if variable in self._computed:
            return self._computed[variable]
        if isinstance(variable, Constant):
            return variable.data
        raise KeyError(variable)

    def take_outputs(self, values: list[Any]) -> None:
        """Take the outputs of an inner graph from the node that has run it in one piece.

        Only a wrapper around one node is sure to return what that node returns.  Numba has such
        wrappers for operations that it cannot compile alone.
        """
        if len(self.fgraph.apply_nodes) == 1:
            self._given.update(zip(self.fgraph.outputs, values, strict=True))

    def values(self, variables: Iterable[Variable]) -> list[Any]:
        """Return the values of several variables."""
        return [self.value(v) for v in variables]

    def inner(self, node: Apply, fgraph: FunctionGraph | None = None) -> Any:
        """Return the replay of the inner graph of `node`.

        `fgraph` is the inner graph as it was linked, if it is available.
        """
        if node not in self._inner:
            self._inner[node] = _inner_replay(node, self, fgraph or self.graphs.get(node))
        return self._inner[node]

    def compute(self, node: Apply) -> "Generator[tuple[Replay, Apply, list[Any]], None, list[Any]]":
        """Run `node` on known inputs as `run` does; return the outputs without keeping them."""
        self._running = node
        values = self.live.get((node, self.steps)) if self.live else None
        if values is None and self.steps_into(node):
            inner = self.inner(node)
            yield from inner.run()
            values = inner.outer_outputs()
        elif values is None:
            values = self.run_whole(node)
        self._running = None
        yield self, node, values
        return values

    def interrupted(self) -> "tuple[Replay, Apply | None]":
        """Return the innermost replay that an error has ended, and its node, or None for that."""
        inner = self._inner.get(self._running)
        child = inner.current if inner is not None and self.steps_into(self._running) else None
        if child is not None and child._running is not None:
            return child.interrupted()
        return self, self._running

    def needed(self, node: Apply) -> Sequence[Variable]:
        """Return the inputs of `node` that must be known before it can be computed."""
        if not isinstance(node.op, IfElse):
            return node.inputs
        condition = node.inputs[0]
        return branch_taken(node, self) if self.knows(condition) else (condition,)

    def run_whole(self, node: Apply) -> list[Any]:
        """Return the outputs of `node`, run in one piece.  Its needed inputs are known."""
        return compute(node.op, node, self)

    def empty(self, shape: tuple[int, ...], variable: Variable) -> Any:
        """Return an uninitialised buffer for the values of a variable."""
        return np.empty(shape, variable.type.dtype)

    def stored(self, value: Any) -> Any:
        """Return a value as a loop writes it into a buffer."""
        return value

    def steps_into(self, node: Apply) -> bool:
        """Whether the inner graph of a node is replayed, and the node does not run in one piece."""
        return has_steps(node.op.__class__) and not self.kernels.runs_whole(node)

    def child(
        self, fgraph: FunctionGraph, inputs: Sequence[Any], node: Apply, step: int | None = None
    ) -> "Replay":
        """Return the replay of an inner graph, run by `node` at `step` on these inputs."""
        given = dict(zip(fgraph.inputs, inputs, strict=True))
        return Replay(
            fgraph,
            given,
            self.kernels,
            self._bound,
            self.live,
            self.graphs,
            (self, node, step),
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the scans around this graph, outermost first."""
        if self.place is None:
            return ()
        outside, _node, step = self.place
        return outside.steps if step is None else (*outside.steps, step)

    def known_values(self) -> dict[Variable, Any]:
        """Return the available values: the given ones, and the computed ones that were kept."""
        return {**self._given, **self._computed}

    def knows(self, variable: Variable) -> bool:
        """Return whether the value of a variable is available without computation."""
        return (
            variable in self._computed or variable in self._given or isinstance(variable, Constant)
        )

    def _make_room(self, values: list[Any], pending: list[Variable]) -> None:
        self._bytes += sum(map(_nbytes, values))
        if self._bytes <= self._bound:
            return
        pinned = {i for v in pending if v.owner is not None for i in v.owner.inputs}
        for variable in list(self._computed):
            if self._bytes <= self._bound:
                break
            if variable not in pinned:
                self._bytes -= _nbytes(self._computed.pop(variable))


def _nbytes(value: Any) -> int:
    # A view owns no memory; its base does.
    return value.nbytes if isinstance(value, np.ndarray) and value.base is None else 0


def branch_taken(node: Apply, replay: Replay) -> list[Variable]:
    """Return the variables of the branch that an ``IfElse`` node takes."""
    return branch_for(node, replay.value(node.inputs[0]))


def branch_for(node: Apply, condition: Any) -> list[Variable]:
    """Return the variables of the branch that an ``IfElse`` node takes under a condition."""
    n = node.op.n_outs
    return node.inputs[1 : 1 + n] if np.all(condition) else node.inputs[1 + n :]


@singledispatch
def compute(op: Op, node: Apply, replay: Replay) -> list[Any]:
    """Return the outputs of `node`, run in one piece.  Its needed inputs are known to `replay`."""
    # (It gets copies of the inputs that it overwrites.)
    values = replay.values(node.inputs)
    for i in {i for positions in node.op.destroy_map.values() for i in positions}:
        values[i] = copy_value(values[i])
    return replay.kernels.run(node, values)


@compute.register
def _compute_empty(op: AllocEmpty, node: Apply, replay: Replay) -> list[Any]:
    # Uninitialised memory may look like a bad value, and differs between runs.  So use zeros.
    return [np.zeros([int(replay[v]) for v in node.inputs], op.dtype)]


@compute.register
def _compute_branch(op: IfElse, node: Apply, replay: Replay) -> list[Any]:
    return [replay[v] for v in branch_taken(node, replay)]


def _inner_replay(
    node: Apply, replay: Replay, fgraph: FunctionGraph | None
) -> "GraphReplay | ScanReplay":
    """Return the replay of the inner graph of `node`; `fgraph` as for :meth:`Replay.inner`."""
    op = node.op
    if isinstance(op, Scan):
        return ScanReplay(node, replay, fgraph or inner_graph(op))
    if isinstance(op, LazyIfElse):
        condition, *inputs = node.inputs
        if fgraph is None:
            branch = op.true_branch if np.all(replay.value(condition)) else op.false_branch
            fgraph = inner_graph(branch)
        return GraphReplay(node, replay, fgraph, inputs)
    if isinstance(op, OpFromGraph):
        return GraphReplay(node, replay, fgraph or inner_graph(op), node.inputs)
    raise TypeError(f"{op} has no inner graph that a replay can step into")


class GraphReplay:
    """The replay of a node that runs an inner graph once, on some of its inputs."""

    def __init__(
        self, node: Apply, replay: Replay, fgraph: FunctionGraph, inputs: Sequence[Variable]
    ) -> None:
        self.node = node
        self.fgraph = fgraph
        self._inputs = inputs
        self._outer = replay
        self._replay: Replay | None = None

    def inner_inputs(self, step: int | None = None) -> list[Any]:
        """Return the values of the inner graph's inputs."""
        return [self._outer.value(v) for v in self._inputs]

    def at(self, step: int | None = None) -> Replay:
        """Return the :class:`Replay` of the inner graph."""
        if self._replay is None:
            outer = self._outer
            self._replay = outer.child(self.fgraph, self.inner_inputs(), self.node)
            if outer.kernels.runs_whole(self.node):
                self._replay.take_outputs(outer.values(self.node.outputs))
        return self._replay

    @property
    def current(self) -> Replay | None:
        """The replay of the inner graph, or None before it has begun."""
        return self._replay

    def run(self) -> Run:
        """Run the inner graph, as :meth:`Replay.run`."""
        return self.at().run(self.fgraph.outputs)

    def outer_input(self, position: int) -> Variable | None:
        """Return the node's input that becomes an inner input, or None for a state."""
        return self._inputs[position]

    def output_of(self, number: int) -> int | None:
        """Return which of the node's outputs an output of the inner graph becomes."""
        return number

    def outer_outputs(self) -> list[Any]:
        """Return the values of the node's outputs."""
        return self.at().values(self.fgraph.outputs)


def check_sequence(number: int, sequence: Any, n_steps: int) -> None:
    """Raise PyTensor's error if a sequence is shorter than a loop has steps.

    Raises ``ValueError``.
    """
    if len(sequence) < n_steps:
        raise ValueError(
            f"Sequence {number} has shape {np.shape(sequence)} but the Scan's required number of "
            f"steps is {n_steps}"
        )


class ScanReplay:
    """The replay of a ``Scan`` node: its steps, and the inputs of each step.

    Inputs, outputs and circular buffers have the same layout as in PyTensor's ``Scan.perform``.
    """

    def __init__(self, node: Apply, replay: Replay | None, fgraph: FunctionGraph) -> None:
        self.node = node
        self.op = node.op
        self.info = info = node.op.info
        self.fgraph = fgraph
        self.taps = (
            *info.mit_mot_in_slices,
            *info.mit_sot_in_slices,
            *info.sit_sot_in_slices,
        )
        # positions among the outer inputs
        self.first_tap_input = 1 + info.n_seqs
        self.first_untraced_input = self.first_tap_input + len(self.taps)
        untraced = info.n_untraced_sit_sot + info.n_nit_sot
        self.first_non_seq_input = self.first_untraced_input + untraced
        self.lags = [-min(taps) if taps else 0 for taps in self.taps]
        self._outer: Any = replay  # (None where only the layout is needed)
        self._steps: list[list[Any]] = []  # the inner inputs of each step that ran
        self._begun = False
        # the step that was requested last, and its replay
        self._last: tuple[int, Replay] | None = None

    @property
    def current(self) -> Replay | None:
        """The replay of the step that was requested last, or None before the first."""
        return self._last and self._last[1]

    def outer_input(self, position: int) -> Variable | None:
        """Return the node's input that an inner input is taken from, or None for a state."""
        if position < self.info.n_seqs:
            return self.node.inputs[1 + position]
        n_states = sum(map(len, self.taps)) + self.info.n_untraced_sit_sot
        position -= self.info.n_seqs + n_states
        return self.node.inputs[self.first_non_seq_input + position] if position >= 0 else None

    def output_of(self, number: int) -> int | None:
        """Return which of the node's outputs an output of a step becomes; None for a condition."""
        return self.op.get_oinp_iinp_iout_oout_mappings()["outer_out_from_inner_out"].get(number)

    def initial(self, position: int) -> Variable:
        """Return the node's input from which the first step reads a state."""
        position -= self.info.n_seqs
        for i, taps in enumerate(self.taps):
            if position < len(taps):
                return self.node.inputs[self.first_tap_input + i]
            position -= len(taps)
        return self.node.inputs[self.first_untraced_input + position]

    def _begin(self) -> None:
        values = [self._outer.value(v) for v in self.node.inputs]
        info = self.info
        self._begun = True
        self.n_steps = int(values[0])
        self._seqs = values[1 : self.first_tap_input]
        for i, sequence in enumerate(self._seqs):
            check_sequence(i, sequence, self.n_steps)
        self._buffers = [v.copy() for v in values[self.first_tap_input : self.first_untraced_input]]
        nit_sot = self.first_untraced_input + info.n_untraced_sit_sot
        self.lengths = [len(b) for b in self._buffers]
        self.lengths += [int(n) for n in values[nit_sot : self.first_non_seq_input]]
        self._buffers += [None] * info.n_nit_sot
        self._untraced = values[self.first_untraced_input : nit_sot]
        self._non_seqs = values[self.first_non_seq_input :]
        self._going = self.n_steps > 0

    def _inputs_of_next_step(self) -> list[Any]:
        step = len(self._steps)
        inputs = [np.asarray(seq[step]) for seq in self._seqs]
        for buffer, taps, lag, length in zip(
            self._buffers, self.taps, self.lags, self.lengths, strict=False
        ):
            inputs += [np.array(buffer[(lag + step + t) % length]) for t in taps]
        return inputs + self._untraced + self._non_seqs

    def _write_step(self, outputs: Iterable[Any]) -> None:
        info = self.info
        step = len(self._steps)
        outputs = [self._outer.stored(value) for value in outputs]
        for group, slices in enumerate(info.mit_mot_out_slices):
            for tap in slices:
                self._buffers[group][self.lags[group] + step + tap, ...] = outputs.pop(0)
        n_traced = len(self.taps) + info.n_nit_sot
        for j in range(info.n_mit_mot, n_traced):
            value = outputs.pop(0)
            lag = self.lags[j] if j < len(self.taps) else 0
            if self._buffers[j] is None:
                shape = (self.lengths[j], *np.shape(value))
                self._buffers[j] = self._outer.empty(shape, self.node.outputs[j])
            self._buffers[j][(lag + step) % self.lengths[j], ...] = value
        self._untraced = [outputs.pop(0) for _ in range(info.n_untraced_sit_sot)]
        if info.as_while and outputs.pop(0):
            self._going = False

    def run(self, n_steps: int | None = None) -> Run:
        """Run until the inputs of step `n_steps` are known, or the scan ends, as `Replay.run`."""
        if not self._begun:
            self._begin()
        if n_steps is None:
            n_steps = self.n_steps
        while self._going and len(self._steps) < n_steps:
            replay = self.at(len(self._steps))
            yield from replay.run(self.fgraph.outputs)
            self._write_step(replay.values(self.fgraph.outputs))
            self._steps.append([replay[v] for v in self.fgraph.inputs])
            self._going = self._going and len(self._steps) < self.n_steps

    def runs(self, step: int) -> bool:
        """Whether the scan runs this step (from 0)."""
        finish(self.run(step + 1))
        return step < len(self._steps)

    def steps_done(self) -> int:
        """Return how many steps ran until the scan ended."""
        finish(self.run())
        return len(self._steps)

    def inner_inputs(self, step: int) -> list[Any]:
        """Return the values of the inner graph's inputs at `step` (from 0)."""
        finish(self.run(step))
        return self._steps[step] if step < len(self._steps) else self._inputs_of_next_step()

    def at(self, step: int) -> Replay:
        """Return the :class:`Replay` of the inner graph at `step`."""
        if self._last is None or self._last[0] != step:
            inputs = self.inner_inputs(step)
            self._last = step, self._outer.child(self.fgraph, inputs, self.node, step)
        return self._last[1]

    def outer_outputs(self) -> list[Any]:
        """Return the values of the node's outputs."""
        done = self.steps_done()
        outputs = []
        for j, (buffer, length) in enumerate(zip(self._buffers, self.lengths, strict=True)):
            lag = self.lags[j] if j < len(self.taps) else 0
            if buffer is None:
                out = self.node.outputs[j]
                outputs.append(self._outer.empty((0,) * out.type.ndim, out))
            elif j < self.info.n_mit_mot:
                outputs.append(buffer)
            elif length < lag + done:  # circular: the oldest entry comes first
                outputs.append(np.roll(buffer, -((lag + done) % length), axis=0))
            else:
                buffer[lag + done :] = 0
                cut = self.n_steps - done
                outputs.append(buffer[: length - cut] if cut and length > lag + done else buffer)
        return outputs + self._untraced
