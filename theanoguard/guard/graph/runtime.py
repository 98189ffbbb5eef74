"""The guard of a function that is compiled as a whole: what Numba and JAX share."""

import logging

from pytensor.link.basic import Container
from pytensor.link.utils import map_storage

from theanoguard._pytensor import raise_with_op
from theanoguard.explain import explain_exception, render_failure
from theanoguard.explain.replay import Replay
from theanoguard.guard.graph.checks import FOUND, Place, is_list
from theanoguard.guard.reporting import Snapshot, SteppedReporter, Tripped

logger = logging.getLogger("theanoguard")


class JittedRuntime(SteppedReporter):
    """The guard of one function that is compiled as a whole.

    Its subclasses give ``settle()``, which reports what the checks have found in a call, in the
    order of the run.

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
        self._plans = checks.plans
        self.ledger = checks.new_ledger()
        self.cells = {v: storage_map[v] for v in self.fgraph.inputs}
        nodes = self.plan.nodes.values()
        destroyed = dict.fromkeys(v for node_plan in nodes for v in node_plan.destroys)
        self.overwritten = {v: self.cells[v] for v in destroyed}
        self.snapshots = {}
        self.stored = [(v, storage_map[v], output) for v, output in checks.stored.items()]
        self.seen = {}  # the values of shared variables that have been checked
        self.found = memoryview(self.ledger[0])  # NumPy takes longer to read one number
        self.prepares = bool(self.overwritten or self.plan.bad_constants or self.stored)

    def plans(self):
        """Return the plans of all graphs of the function."""
        return self._plans

    def counters(self):
        """Return nothing: what is compiled with the function is not counted."""
        return {}

    def begin(self):
        """Start a call of the function, where there is something to do for it."""
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
        self.report(Place(variable), counts, getattr(value, "shape", ()), (), role, value)

    def report(self, place, counts, shape, steps, role, value=None):
        """Act on a bad value, unless it follows from one that has been reported."""
        variable = place.variable
        if self.follows(place):
            return
        self.bad_nodes.add(place.node or variable)
        dtype = "list" if is_list(variable) else variable.type.dtype
        frames = place.frames_at(steps)
        trip = self.make_trip(counts, variable, value, dtype, shape, role, place.output, frames)
        self.act(trip)

    def follows(self, place):
        """Whether a bad value there follows from one that has been reported in this call."""
        node = place.node
        return self.policy.action != "raise" and node is not None and self.follows_bad(node)

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
        try:
            raise_other(error)
        except Exception as final:  # another object, if PyTensor adds to the message
            note = self.tell_of(error)
            if note is not None:
                final.__notes__ = [note, *getattr(final, "__notes__", ())]
            raise

    def tell_of(self, error):
        """Return what is known of another error, as text; None if that cannot be found out.

        A jitted function does not say where it failed: the call is replayed until it fails again.
        """
        if type(error).__module__.startswith(("numba.", "jax.")):
            return None  # it failed when it was compiled, or traced
        try:
            replay = FailingReplay(self.fgraph, self.values_before())
            node = replay.first_to_fail()
            if node is None:
                return None
            values = {v: replay.value(v) for v in node.inputs}
            return render_failure(explain_exception(error, self.fgraph, node, values))
        except Exception:
            logger.exception("theanoguard: the error could not be explained; please report this")
            return None


class FailingReplay(Replay):
    """A replay of a call that raises."""

    failed = None

    def first_to_fail(self):
        """Return the node that raises, in the graph of the function; None if none does."""
        try:
            self.values(self.fgraph.outputs)
        except Exception:
            if self.failed is None:
                raise
        return self.failed

    def compute(self, node):
        try:
            return super().compute(node)
        except Exception:
            self.failed = self.failed or node
            raise


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
            guard.calls += 1
            if guard.prepares or guard.bad_nodes:
                guard.begin()
            results = self.jit_fn(*[cell[0] for cell in self.inputs], guard.ledger)
            if guard.found[FOUND]:
                guard.settle()
            elif guard.stored:
                guard.keep(results)
        except BaseException as error:
            guard.failed(error, self._raise_other)
        for cell, value in zip(self.outputs, results or (), strict=True):
            cell[0] = value


class GuardedLinker:
    """What linkers have in common whose functions are compiled as a whole, with their checks.

    A class of its own beside that of the backend's linker.  Backends give ``guarded_vm(...)``, or
    ``compiled(order, input_storage, storage_map)``, which returns the `JittedRuntime` of the
    function and what `JittedVM` runs.

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

    def guarded_vm(self, order, input_storage, storage_map, outputs, raise_other):
        """Return what runs the function under its guard.

        Parameters
        ----------
        order : list of Apply
        input_storage, outputs : list of list
            Storage cells.
        storage_map : dict of Variable to list
        raise_other : callable
            ``raise_other(error)`` raises an error of the function.
        """
        guard, run = self.compiled(order, input_storage, storage_map)
        inputs = [storage_map[v] for v in self.fgraph.inputs]
        return JittedVM(guard, run, inputs, outputs, raise_other)

    def make_all(self, input_storage=None, output_storage=None, storage_map=None):
        fgraph = self.fgraph
        order = self.schedule(fgraph)
        input_storage, output_storage, storage_map = map_storage(
            fgraph, order, input_storage, output_storage, storage_map
        )
        owners = [v.owner for v in fgraph.outputs if v.owner is not None][:1]

        def raise_other(error):
            if owners and isinstance(error, Exception):
                raise_with_op(fgraph, owners[0], vm, (type(error), error, error.__traceback__))
            raise error

        vm = self.guarded_vm(
            order,
            input_storage,
            storage_map,
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
