"""The guard on the Numba backend: the user's program with signs, and a second look when one shows.

The program that runs in every call (``program.py``) signals that something may be wrong.  Only
then the call is computed again, node by node, by what Numba compiles for each of them, and each
node is judged (:mod:`~theanoguard.guard.rerun`).  No argument is overwritten, and random
states are put back, so that this is the same call.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print

from theanoguard._evaluate.replay import Kernels, NotRun, alone, has_effects
from theanoguard._provenance import watch_rewriting
from theanoguard.guard import bounds
from theanoguard.guard.errors import GuardError
from theanoguard.guard.graph.checks import CheckedGraph
from theanoguard.guard.graph.runtime import GuardedLinker, JittedRuntime
from theanoguard.guard.numba import BACKEND
from theanoguard.guard.numba.made import made_big
from theanoguard.guard.numba.ops import (
    COUNTING,
    CUT,
    FLAGS,
    FOUND,
    N_SIGNALS,
    Recording,
    Stopped,
    Unsaved,
)
from theanoguard.guard.numba.plan import NumbaPlan
from theanoguard.guard.numba.program import Reliance, program_of
from theanoguard.guard.partly import PartSnapshot, SavedRows
from theanoguard.guard.plan import is_list
from theanoguard.guard.policy import Policy
from theanoguard.guard.reporting import Recorder, Snapshot
from theanoguard.guard.rerun import Findings
from theanoguard.guard.spares import LARGE, no_buffer, second_buffer, spare_of, write_beside
from theanoguard.operations.domains import check_parameters
from theanoguard.ops.print import PrintBeside

NumbaLinker: Any = BACKEND.linker

# What runs in every call, how many values it reads, and the shared variables whose second buffers
# it takes, and whose rows it saves.
Program: TypeAlias = tuple[Callable, int, list[Variable], list[Variable]]


def numba_code() -> tuple[Any, Any]:
    """Return the modules with what Numba compiles, which take a while to load."""
    return (
        importlib.import_module("theanoguard.guard.numba.code"),
        importlib.import_module("theanoguard.guard.numba.flags"),
    )


class NumbaKernels(Kernels):
    """Callables that compute the outputs of a node as Numba does.

    - `plan`: NumbaPlan of the function: its nodes with an inner graph of their own are stepped
      into.
    - `raised`: the exception flags of the last node.
    """

    def __init__(self, plan: NumbaPlan) -> None:
        super().__init__()
        self._stepped_into = {node for inner in plan.plans() for node in inner.inner}
        self._checks_indices = plan.policy.check_indices
        self._code, _ = numba_code()
        self._signals: np.ndarray = np.zeros(N_SIGNALS, np.int64)

    def runs_whole(self, node: Apply) -> bool:
        return isinstance(node.op, OpFromGraph) and node not in self._stepped_into

    def run(self, node: Apply, inputs: list) -> list:
        if isinstance(node.op, Print):
            return inputs[:1]  # it was printed when the call ran
        if isinstance(node.op, PrintBeside):
            return [np.array(True)]
        if has_effects(node.op) and self._code.runs_in_python(node.op):
            raise NotRun  # its outputs would have been kept
        if self._checks_indices:
            bounds.check(node, inputs)
        check_parameters(node, inputs)
        self._signals[FLAGS] = 0
        values = super().run(node, inputs)
        self.raised = int(self._signals[FLAGS])
        return values

    def _make(self, node: Apply) -> Callable[[list], list]:
        own = alone(node)
        given = [i for i, v in enumerate(own.inputs) if not isinstance(v, Constant)]
        graph = FunctionGraph([own.inputs[i] for i in given], own.outputs, clone=False)
        flagged = self._code.compile_flagged(graph, takes_signals=False)

        def kernel(values: list) -> list:
            return list(flagged(*[values[i] for i in given], self._signals))

        return kernel


class NumbaRuntime(JittedRuntime):
    """The guard of one function that Numba compiles.

    `compile`: ``compile(reliance)`` returns the program; for None, one without signs.
    """

    def __init__(
        self,
        policy: Policy,
        recorder: Recorder,
        plan: NumbaPlan,
        storage_map: dict[Variable, list],
        compile: Callable[[Reliance | None], Program],
    ) -> None:
        super().__init__(policy, recorder, plan, storage_map)
        self._compile = compile
        code, flags = numba_code()
        self.may_use_flags = not policy.by_result
        self.live: Recording = Recording()
        self.reliance = Reliance(
            flags=self.may_use_flags and flags.are_reliable(),
            products=flags.products_carry(),
            recording=self.live,
            runs_in_python=code.runs_in_python,
        )
        # Inputs of which a call overwrites only a few elements, at indices known before the call.
        self.written = {
            v: touch
            for v, touch in plan.written_in_part().items()
            if all(isinstance(i, Constant) or i in self.cells for i in touch.index)
        }
        self.compile()
        self.copied = {v: c for v, c in self.overwritten.items() if v not in self.saved}
        self.signals: np.ndarray = np.zeros(N_SIGNALS, np.int64)
        self.counting = 0
        if self.reliance.flags:
            self.counting |= flags.INVALID if policy.nan else 0
            self.counting |= flags.DIVIDED | flags.OVERFLOWED if policy.inf or policy.big else 0
        self.signals[COUNTING] = self.counting
        self.only_flags = False  # whether flags alone have led to the last second look
        self.seen = memoryview(self.signals)  # NumPy takes longer to read one number
        self.lists = [v for v in self.plan.inputs if is_list(v)]
        self.records = any(code.runs_in_python(n.op) for own in plan.plans() for n in own.order)
        prepared = self.records, self.lists, self.constants, self.kept, self.every > 1
        self.always_prepares = any(prepared)

    def compile(self) -> None:
        """Compile the function that runs in every call."""
        self.run, self.n_read, spared, saved = self._compile(self.reliance)
        parts = self.plan.written_in_part()
        self.saved = {
            v: self.saved.get(v) or SavedRows(self.cells[v], self.cells.get(parts[v].index[0]))
            for v in saved
        }
        self.spares = {v: spare_of(self.cells[v]) for v in (*spared, *self.overwritten)}
        self._buffers = [(self.cells[v], self.spares[v], no_buffer(v.type)) for v in spared]
        self._takes_more = bool(self.saved or self._buffers)
        self.take_turns(self.spares)

    @cached_property
    def plain(self) -> Callable:
        """The function without signs.  It takes the array of signals, and does not write to it."""
        return self._compile(None)[0]

    @cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        """The functions that compute single nodes."""
        return NumbaKernels(self.plan)

    def signs(self) -> str:
        """Return as text how the function notices bad values."""
        if self.counting:
            rely = "exception flags"
        elif self.may_use_flags:
            rely = "no exception flags, which are not reliable here"
        else:
            rely = "no exception flags"
        return f"{rely}; {self.n_read} values read in each call"

    # -- a call

    def call(self, values: list) -> tuple[Sequence[Any], Exception | None]:
        """Run the function; return its results and the error to be raised, or None."""
        seen = self.seen
        try:
            run = self.begin() if self.copied or self.always_prepares else self.run
        except IndexError as error:  # Numba would take a row that does not exist for one that does
            return (), error
        try:
            if self._takes_more and run is self.run:
                buffers = [
                    none if cell[0].nbytes < LARGE else second_buffer(cell[0], spare)
                    for cell, spare, none in self._buffers
                ]
                memories = [rows.memory() for rows in self.saved.values()]
                results = run(*values, *buffers, *memories, self.signals)
            else:
                results = run(*values, self.signals)
        except Stopped:  # before a node that a bad value could harm
            return self.settle(None)
        except Unsaved:  # nothing has been overwritten that is not saved
            self.forget()
            self.put_back()
            self.snapshots = {}
            for variable, rows in self.saved.items():
                if not rows.grow():
                    self.copied[variable] = self.cells[variable]
            return self.call([cell[0] for cell in self.cells.values()])
        if seen[FOUND] or seen[FLAGS]:
            if run is self.run and (seen[FOUND] or seen[FLAGS] & self.counting):
                return self.settle(results)
            self.forget()
        elif self.kept and run is self.run:
            self.keep(results)
        return results, None

    def begin(self) -> Callable:
        """Take snapshots, and look at inputs that have been set; return the program of the call."""
        is_plain = self.every > 1 and not self.is_looked_at()
        self.take_snapshots(self.overwritten if is_plain else self.copied)
        if self.records:
            self.live.clear()
        if is_plain:
            return self.plain
        if self.constants:
            self.seen[FOUND] = 1
        elif self.lists or self.kept:
            entering = [*self.lists, *self.changed()]
            if any(self.policy.is_bad(self.cells[v][0]) for v in entering):
                self.seen[FOUND] = 1
        return self.run

    def take_snapshots(self, cells: dict[Variable, list]) -> None:
        """Keep what the call is about to overwrite."""
        self.snapshots = {v: self.snapshot(v, cell) for v, cell in cells.items()}

    def snapshot(self, variable: Variable, cell: list) -> Snapshot | PartSnapshot:
        """Return what puts back the value of an input that the call overwrites."""
        touch = self.written.get(variable)
        if touch is None:
            is_array = type(cell[0]) is np.ndarray
            return Snapshot(cell, second_buffer(cell[0], spare_of(cell)) if is_array else None)
        try:
            return PartSnapshot(cell, touch.where(lambda v: self.cells[v][0]))
        except IndexError as error:
            known = {v: own[0] for v, own in self.cells.items()}
            note = self.note_on(error, self.fgraph, touch.node, lambda: known)
            if note is not None:
                error.add_note(note)
            raise

    def settle(self, results: Sequence[Any] | None) -> tuple[Sequence[Any], GuardError | None]:
        """Look at a suspicious call again; return its results, and the error to be raised."""
        self.only_flags = not self.seen[FOUND]
        cut = self.forget()
        error = self.look(self.values_before(), results)
        if cut and error is None:  # it was stopped for a sign that meant nothing
            results = self.run_plain()
        return results or (), error

    def run_plain(self) -> Sequence[Any]:
        """Run a call that was stopped once more without signs; return its results."""
        self.put_back()
        self.take_snapshots(
            self.overwritten
        )  # a snapshot of a whole array hands over its only copy
        results = self.plain(*[cell[0] for cell in self.cells.values()], self.signals)
        self.forget()
        return results

    def forget(self) -> bool:
        """Make the signals ready for the next call; return whether the call was cut short."""
        cut = bool(self.seen[CUT])
        self.seen[FOUND] = self.seen[FLAGS] = self.seen[CUT] = 0
        return cut

    def learn(self, found: Findings) -> None:
        """Have no call look suspicious again for the same reason.

        Nodes whose flags meant nothing are bracketed, and what an empty array has hidden is read.
        If none is known, no flag counts any more.
        """
        known, partly = self.reliance, self.plan.partly
        self.plan.read_whole(found.noisy)
        quiet, noisy = known.quiet | found.loud, known.noisy | found.noisy & self._readable()
        lossy = known.lossy | found.empty & self._minded()
        more = replace(
            known,
            quiet=quiet,
            noisy=noisy,
            lossy=lossy,
            discarded=known.discarded | found.discarded,
        )
        if more != known:
            self.reliance = more
        elif self.counting and self.only_flags:
            self.reliance = replace(known, flags=False)
            self.counting = self.seen[COUNTING] = 0
        elif self.plan.partly.keys() == partly.keys():
            return
        self.compile()

    def _minded(self) -> frozenset[Apply]:
        """Return the nodes whose outputs must not be empty."""
        return frozenset(v.owner for plan in self.plan.plans() for v in plan.sizes)

    def _readable(self) -> frozenset[Variable]:
        """Return the variables that are read for big values and need not be."""
        if not self.policy.big:
            return frozenset()
        return frozenset(
            treatment.node.outputs[i]
            for plan in self.plan.plans()
            for treatment in plan.nodes.values()
            for i in treatment.checks
            if made_big(treatment.node, i, self.policy, plan.silent)
        )

    def failed(
        self, error: BaseException, raise_other: Callable[[BaseException], NoReturn]
    ) -> NoReturn:
        self.forget()
        super().failed(error, raise_other)


class NumbaGuardLinker(GuardedLinker, NumbaLinker):
    """A ``NumbaLinker`` whose functions are guarded."""

    backend = BACKEND

    def runtime(
        self, order: list[Apply], input_storage: list[list], storage_map: dict[Variable, list]
    ) -> NumbaRuntime:
        code, _ = numba_code()
        fgraph = self.fgraph
        write_beside(fgraph, self.policy.restore)
        with watch_rewriting():
            prepare = bounds.check_indices if self.policy.check_indices else None
            inner_graphs = partial(code.inner_graphs, prepare=prepare)
            plan = NumbaPlan(fgraph, order, self.policy, inner_graphs)

        def compiled(reliance: Reliance | None) -> Program:
            if reliance is None:
                graph = CheckedGraph(fgraph.inputs, fgraph.outputs, order)
                return code.compile_flagged(graph, takes_signals=False), 0, [], []
            graph, *others = program_of(plan, self.policy, reliance)
            return code.compile_flagged(graph, takes_signals=True), *others

        return NumbaRuntime(self.policy, self.recorder, plan, storage_map, compiled)
