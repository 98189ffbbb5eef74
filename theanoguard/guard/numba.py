"""The guard on the Numba backend: the checks are compiled into the jitted function."""

import importlib

import numpy as np
from pytensor.link.basic import Container
from pytensor.link.utils import map_storage

from theanoguard._pytensor import NumbaLinker, raise_with_op
from theanoguard.guard.checks import (
    COLUMNS,
    FOUND,
    IMAG,
    INDEX,
    N_BIG,
    N_NAN,
    N_NEGINF,
    N_POSINF,
    NDIM,
    ORDER,
    REAL,
    SIZE,
    Checks,
    Place,
)
from theanoguard.guard.policy import Counts
from theanoguard.guard.reporting import Reporter, Snapshot, Tripped
from theanoguard.provenance import watch_rewriting


class JittedRuntime(Reporter):
    """The guard of one function that is compiled as a whole.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    checks : Checks
    storage_map : dict of Variable to list
    """

    def __init__(self, policy, recorder, checks, storage_map):
        super().__init__(policy, recorder, checks.plan)
        self.places = checks.places
        self.ledger = checks.new_ledger()
        self.cells = {v: storage_map[v] for v in self.fgraph.inputs}
        nodes = self.plan.nodes.values()
        destroyed = dict.fromkeys(v for node_plan in nodes for v in node_plan.destroys)
        self.overwritten = {v: self.cells[v] for v in destroyed}
        self.snapshots = {}
        self.stored = [(v, storage_map[v], output) for v, output in checks.stored.items()]
        self.seen = {}  # the values of shared variables that have been checked

    def begin(self):
        """Start a call of the function."""
        self.calls += 1
        self.pending = None
        if self.overwritten:
            self.snapshots = {v: Snapshot(cell) for v, cell in self.overwritten.items()}
        if self.bad_nodes:
            self.bad_nodes = set()
        for variable in self.plan.bad_constants:
            self.report_value(variable, variable.data, "constant")
        seen = self.seen
        for variable, cell, _ in self.stored:
            value = cell[0]
            if seen.get(variable) is not value:
                if self.policy.is_bad(value):
                    self.report_value(variable, value, "shared")
                else:
                    seen[variable] = value

    def keep(self, results):
        """Remember the values that shared variables get, which have been checked."""
        for variable, _, output in self.stored:
            if output is not None:
                self.seen[variable] = results[output]

    def report_value(self, variable, value, role):
        """Act on a value that is bad before the call has begun."""
        counts = self.policy.count(value)
        self.report(Place(variable), counts, np.shape(value), (), role, value)

    def settle(self):
        """Report what the checks have written into the ledger, in the order of the run."""
        rows = np.flatnonzero(self.ledger[1:, ORDER]) + 1
        rows = rows[np.argsort(self.ledger[rows, ORDER])]
        found = self.ledger[rows]
        self.seen = {}
        self.ledger[rows, ORDER] = 0
        self.ledger[0, FOUND] = 0
        for row, record in zip(rows, found, strict=True):
            place = self.places[row]
            begun, first = (COLUMNS + k * len(place.loops) for k in (1, 2))
            steps = [int(s) - 1 for s in record[begun:first]]
            shape = tuple(int(n) for n in record[first : first + int(record[NDIM])])
            counts = counts_of(record, shape, place.variable.type.dtype)
            role = "node" if place.variable.owner is not None else self.role(place.variable)
            self.report(place, counts, shape, steps, role)

    def report(self, place, counts, shape, steps, role, value=None):
        """Act on a bad value, unless it follows from one that has been reported."""
        variable = place.variable
        node = place.frames[0].node if place.frames else variable.owner
        if self.policy.action != "raise" and node is not None and self.follows_bad(node):
            return
        self.bad_nodes.add(variable if node is None else node)
        dtype = variable.type.dtype
        frames = place.frames_at(steps)
        trip = self.make_trip(counts, variable, value, dtype, shape, role, place.output, frames)
        self.act(trip)

    def values_before(self):
        """Return the values of the inputs as they were when the call began."""
        return {
            v: self.snapshots[v].old() if v in self.snapshots else cell[0]
            for v, cell in self.cells.items()
        }

    def failed(self, error, raise_other):
        """Put everything back and raise the error that the user sees.

        Parameters
        ----------
        error : BaseException
            What has ended the call.
        raise_other : callable
            Raises `error` if it is not the guard's.
        """
        try:
            if self.ledger[0, FOUND]:
                self.settle()
        except Tripped:
            pass
        finally:
            for snapshot in self.snapshots.values():
                snapshot()
        pending, self.pending = self.pending, None
        if isinstance(pending, BaseException):
            raise pending
        if pending is not None:
            raise self.explained(pending) from None
        raise_other(error)


def counts_of(record, shape, dtype):
    """Return the `Counts` that a check has written into its row."""
    value = VALUE_OF[np.dtype(dtype).kind](record[REAL].item(), record[IMAG].item())
    kind = "nan" if value != value else "inf" if abs(value) == np.inf else "big"
    return Counts(
        kind=kind,
        index=tuple(int(i) for i in np.unravel_index(int(record[INDEX]), shape)),
        value=value,
        size=int(record[SIZE]),
        n_nan=int(record[N_NAN]),
        n_posinf=int(record[N_POSINF]),
        n_neginf=int(record[N_NEGINF]),
        n_big=int(record[N_BIG]),
    )


# How the two numbers that hold an element give it back, by the kind of its dtype.
VALUE_OF = {
    "f": lambda real, imag: real,
    "c": complex,
    "i": lambda high, low: (int(high) << 32) + int(low),
    "u": lambda high, low: (int(high) << 32) + int(low),
}


class JittedVM:
    """Runs a jitted function under its guard.

    Parameters
    ----------
    guard : JittedRuntime
    run : callable
        Takes the values of the inputs and the ledger, and returns those of the outputs.
    inputs, outputs : list of list
        Storage cells.
    raise_other : callable
        ``raise_other(error)`` raises an error of the function.
    """

    lazy = False

    def __init__(self, guard, run, inputs, outputs, raise_other):
        self.guard = guard
        self.jit_fn = run
        self.inputs = inputs
        self.outputs = outputs
        self._raise_other = raise_other

    def __call__(self):
        guard = self.guard
        try:
            guard.begin()
            results = self.jit_fn(*[cell[0] for cell in self.inputs], guard.ledger)
            if guard.ledger[0, FOUND]:
                guard.settle()
            elif guard.stored:
                guard.keep(results)
        except BaseException as error:
            guard.failed(error, self._raise_other)
        for cell, value in zip(self.outputs, results or (), strict=True):
            cell[0] = value


class NumbaGuardLinker(NumbaLinker):
    """A ``NumbaLinker`` whose functions are guarded.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    allow_gc : bool or None
    """

    def __init__(self, policy, recorder, allow_gc=None):
        super().__init__(allow_gc=allow_gc)
        self.policy = policy
        self.recorder = recorder

    def accept(self, fgraph, no_recycling=None, profile=None):
        if self.fgraph is not None and self.fgraph is not fgraph:
            fresh = type(self)(self.policy, self.recorder, self.allow_gc)
            return fresh.accept(fgraph, no_recycling, profile)
        return super().accept(fgraph, no_recycling, profile)

    def make_all(self, input_storage=None, output_storage=None, storage_map=None):
        fgraph = self.fgraph
        order = self.schedule(fgraph)
        input_storage, output_storage, storage_map = map_storage(
            fgraph, order, input_storage, output_storage, storage_map
        )
        code = importlib.import_module("theanoguard.guard.numba_code")
        with watch_rewriting():
            checks = Checks(fgraph, order, self.policy, code.inner_graphs)
        converted = self.fgraph_convert(checks.graph)
        owners = [v.owner for v in fgraph.outputs if v.owner is not None][:1]

        def raise_other(error):
            if owners and isinstance(error, Exception):
                raise_with_op(fgraph, owners[0], vm, (type(error), error, error.__traceback__))
            raise error

        vm = JittedVM(
            JittedRuntime(self.policy, self.recorder, checks, storage_map),
            self.jit_compile(converted),
            [storage_map[v] for v in fgraph.inputs],
            [storage_map[v] for v in fgraph.outputs],
            raise_other,
        )
        vm.allow_gc = self.allow_gc
        vm.storage_map = storage_map
        return (
            vm,
            [Container(v, cell) for v, cell in zip(fgraph.inputs, input_storage, strict=True)],
            [
                Container(v, cell, readonly=True)
                for v, cell in zip(fgraph.outputs, output_storage, strict=True)
            ],
            [vm],
            owners,
        )
