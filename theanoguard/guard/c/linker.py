"""Puts the checks around the thunks of a function, and turns a trip into an error."""

import copy
import logging
import threading
import weakref
from collections import Counter

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.features import Feature
from pytensor.link.vm import VM

from theanoguard._event import Frame, Trip
from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import (
    OpFromGraph,
    Scan,
    VMLinker,
    failed_node,
    is_lazy,
    link_inner,
    raise_with_op,
)
from theanoguard.explain import explain_exception, render_failure
from theanoguard.guard.c import build as kernel
from theanoguard.guard.c import numpy_kernel
from theanoguard.guard.plan import Plan, gives_clean
from theanoguard.guard.reporting import Snapshot, SteppedReporter, Tripped
from theanoguard.guard.rewriting import WatchedMode

logger = logging.getLogger("theanoguard")

BAD_INPUT = -2  # the kernel's number for the first input; the others follow downwards


class TailLast(Feature):
    """Orders the nodes that overwrite shared variables after all that may trip before them."""

    def __init__(self, orderings):
        self._orderings = orderings

    def orderings(self, fgraph):
        return self._orderings


class Thunk:
    """A wrapped thunk, as the virtual machines expect it.

    ``cthunk`` is what the C loop calls; the object itself is what a Python loop calls.
    """

    lazy = False

    def __init__(self, node, call, kernel, thunk):
        if call is not numpy_kernel.call:
            self.cthunk = node
        self._node = node
        self._call = call
        self._kernel = kernel  # the capsule points into it
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self):
        self._call(self._node)


class LazyThunk:
    """A wrapped lazy thunk: its outputs are checked once it has computed them."""

    lazy = True

    def __init__(self, thunk, after):
        self._thunk = thunk
        self._after = after
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self):
        needed = self._thunk()
        if not needed:
            self._after()
        return needed


class BodyThunk:
    """The thunk of a node with a guarded inner function: starts it, and tells where it failed.

    Parameters
    ----------
    thunk : callable
    vm : GuardedVM
        Of the inner function.
    """

    lazy = False

    def __init__(self, thunk, vm):
        self._thunk = thunk
        self._vm = vm
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self):
        body = self._vm.guard
        body.start()
        try:
            self._thunk()
        except BaseException as error:
            body.failed(self._vm, error)


class Parent:
    """Where an inner graph stands: the node that owns it, and the guard of the graph outside.

    The runtime is known only after the inner graph has been linked, and is not kept alive.
    """

    def __init__(self, node):
        self.node = node
        self._runtime = None

    @property
    def runtime(self):
        return self._runtime()

    @runtime.setter
    def runtime(self, runtime):
        self._runtime = weakref.ref(runtime)


class GuardRuntime(SteppedReporter):
    """The guard of one linked graph: its kernel, the call in progress, its events.

    Parameters
    ----------
    linker : GuardLinker
    plan : Plan
    storage_map : dict of Variable to list
    """

    def __init__(self, linker, plan, storage_map):
        self.parent = linker.parent
        super().__init__(linker.policy, linker.recorder, plan, self.parent is not None)
        self.storage_map = storage_map
        # The nodes of an inner graph count their runs, which are its steps.
        self.is_lazy = any(is_lazy(node.op) for node in plan.order)
        self.counts = self.parent is not None and not self.is_lazy
        self.counted = set()  # nodes that count, or that run after one that does
        self.told = None  # what is known of any other error on its way out
        self.looking = True
        self.bodies = []  # the guards of inner graphs
        self.prepares = self.policy.every > 1 or bool(plan.bad_constants)
        self.may_wait = any(node_plan.entering for node_plan in plan.nodes.values())
        self.index = {node: i for i, node in enumerate(plan.order)}
        self.module = kernel.load() or numpy_kernel
        me = weakref.ref(self)  # the kernel must not keep the function alive
        policy = self.policy
        self.kernel = self.module.Guard(
            nan=policy.nan,
            inf=policy.inf,
            big=policy.big,
            ints=policy.integers,
            limit=policy.limit,
            raising=policy.action == "raise",
            n_slots=len(plan.slots),
            report=lambda node, output: me().report_node(node, output),
            is_bad=policy.is_bad,
            snapshot=Snapshot,
            trip_type=Tripped,
        )
        self.kernel.add_inputs([(storage_map[v], *plan.entry(v)) for v in plan.inputs])
        for variable, slot in plan.slots.items():
            if isinstance(variable, Constant) and np.size(variable.data):
                data = np.asarray(variable.data)
                if data.dtype.kind in "fiu":
                    self.kernel.set_interval(slot, float(data.min()), float(data.max()))

    # -- linking

    def wrap(self, node, thunk):
        """Return the thunk that also checks; the same one where there is nothing to do."""
        plan = self.plan.nodes[node]
        if thunk.lazy:
            if not plan.checks and not plan.destroys:
                return thunk
            return LazyThunk(thunk, lambda: self.check_lazy(node))
        parts = (plan.checks, plan.destroys, plan.program, plan.tail, plan.entering)
        is_counted = not self.counted.isdisjoint(v.owner for v in node.inputs)
        needed = any(parts) or (self.counts and not is_counted)
        if needed or is_counted:
            self.counted.add(node)
        if not needed:
            return thunk
        cells = self.storage_map
        wrapped = self.kernel.add_node(
            self.index[node],
            getattr(thunk, "cthunk", None),
            thunk,
            [(cells[v], i, self.plan.slots.get(v, -1)) for i, v in plan.checked()],
            [cells[root] for root in plan.destroys],
            plan.tail,
            [cells[v] for v in node.inputs],
            None if plan.program is None else self.pack(node, *plan.program),
            self.blocks(node) if hasattr(thunk, "cthunk") else None,
            self.counts,
        )
        return Thunk(wrapped, self.module.call, self.kernel, thunk)

    def pack(self, node, program, cap, rounding):
        """Return an interval program as the kernel takes it."""
        inputs = node.inputs[: program.n_inputs]
        return (
            program.bytes(),
            [self.plan.slot(v) if i in program.used else -1 for i, v in enumerate(inputs)],
            [self.plan.slots.get(v, -1) for v in node.outputs] if program.outputs else [],
            program.outputs,
            cap,
            rounding,
        )

    def blocks(self, node):
        """Return how the kernel may run the node block by block, or None."""
        entering = self.plan.nodes[node].entering
        if not entering:
            return None
        cut = [v for v in dict.fromkeys(node.inputs) if not all(v.type.broadcastable)]
        index = {variable: i for i, variable in enumerate(self.plan.inputs)}
        return (
            [self.storage_map[v] for v in cut],
            [index[v] if v in entering else -1 for v in cut],
            [self.storage_map[v] for v in node.outputs],
            [np.dtype(v.type.dtype).num for v in node.outputs],
        )

    # -- what is told of it

    def plans(self):
        """Return the plans of all graphs of the function."""
        return [self.plan, *(plan for body in self.bodies for plan in body.plans())]

    def counters(self):
        """Return what the kernels have counted, of all graphs of the function together."""
        total = Counter(self.kernel.counters())
        for body in self.bodies:
            total.update(body.counters())
        return dict(total)

    # -- a call

    def prepare(self):
        """Before a call of a function for which this is not done once and for all."""
        looking = (self.calls - 1) % self.policy.every == 0
        if looking != self.looking:
            self.look(looking)
        if looking:
            self.start()

    def report_inputs(self, index):
        """The input with this number is bad; look at the others, too."""
        while index >= 0:
            self.report_input(index)
            index = self.kernel.begin(index + 1)

    def look(self, looking):
        """Look at what follows, or do not."""
        self.looking = looking
        self.kernel.look(looking)
        for body in self.bodies:
            body.look(looking)

    def check_waiting(self, everything=False):
        """Check the inputs that were to be checked by a node that did not run.

        With `everything`, also those that have not been checked since they did not change.
        """
        while (index := self.kernel.bad_input(everything)) >= 0:
            self.report_input(index)

    def end(self):
        """The call has ended: forget what it has found."""
        self.kernel.commit(self.looking and not self.bad_nodes)
        if self.bad_nodes:
            self.bad_nodes = set()

    def start(self):
        """Start a call, or a run of an inner graph."""
        self.kernel.set_step(0)
        if self.bad_nodes:
            self.bad_nodes = set()
        if not self.looking:
            return
        for variable in self.plan.bad_constants:
            self.report(variable, variable.data, "constant")

    def check_lazy(self, node):
        """Check the outputs of a lazy node that has just finished."""
        for i in self.plan.nodes[node].checks if self.looking else ():
            value = self.storage_map[node.outputs[i]][0]
            if value is not None and self.policy.is_bad(value):
                self.report_node(self.index[node], i)

    def report_input(self, index):
        """What enters the call is bad."""
        variable = self.plan.inputs[index]
        self.report(variable, self.storage_map[variable][0], self.role(variable))

    def report_node(self, index, output):
        """A node's output is bad; or an input, whose index is `BAD_INPUT` less `index`."""
        if index <= BAD_INPUT:
            self.report_input(BAD_INPUT - index)
            return
        node = self.plan.order[index]
        variable = node.outputs[output]
        if self.policy.action != "raise" and self.follows_bad(node):
            return
        self.bad_nodes.add(node)
        self.report(variable, self.storage_map[variable][0], "node", output)

    def report(self, variable, value, role, output=0, frames=()):
        """Build the trip and act on it; passes it outwards from an inner graph."""
        if role != "node":
            self.bad_nodes.add(variable)
        if self.parent is None:
            counts = self.policy.count(value)
            dtype = str(getattr(value, "dtype", type(value).__name__))
            shape = tuple(getattr(value, "shape", ()))
            self.act(self.make_trip(counts, variable, value, dtype, shape, role, output, frames))
            return
        outside, node = self.parent.runtime, self.parent.node
        if self.policy.action != "raise" and outside.follows_bad(node):
            return
        outside.bad_nodes.add(node)
        outside.report(variable, value, role, output, (self.frame(), *frames))

    def frame(self):
        """Return where the run of this inner graph stands."""
        node = self.parent.node
        step = max(self.kernel.step() - 1, 0) if isinstance(node.op, Scan) else None
        return Frame(node, self.fgraph, step)

    def values_before(self):
        """Return the values of the inputs as they were when the call began."""
        kept = {
            id(saved.value if copied is None else saved): saved.old() if copied is None else copied
            for saved, copied in reversed(self.kernel.saved())
        }
        values = (self.storage_map[v][0] for v in self.fgraph.inputs)
        return {
            variable: kept.get(id(value), value)
            for variable, value in zip(self.fgraph.inputs, values, strict=True)
        }

    def outermost(self):
        return self if self.parent is None else self.parent.runtime.outermost()

    def failed(self, vm, error):
        """Put everything back and raise the error that the user sees."""
        try:
            try:
                if not isinstance(error, Tripped):
                    self.check_waiting(everything=True)
                elif self.outermost().pending is None:
                    self.report_node(*self.kernel.trip())
            except Tripped as trip:
                error = trip
            pending = self.pending
            if isinstance(pending, Trip) and self.kernel.saved():
                pending.value = copy.deepcopy(pending.value)  # it may be what is put back
        finally:
            self.kernel.rollback()
        if self.parent is None:
            self.pending, self.bad_nodes = None, set()
            if isinstance(pending, BaseException):
                raise pending
            if pending is not None:
                pending.inputs = self.values_before()  # now that they are restored
                raise self.explained(pending) from None
        is_ours = isinstance(error, Tripped) or error is self.outermost().pending
        if is_ours or not isinstance(error, Exception):
            raise error
        self.failed_otherwise(vm, error)

    def failed_otherwise(self, vm, error):
        """Raise any other error of a node, with a note: where, and with which operands."""
        outermost = self.outermost()
        node = failed_node(vm, error)
        if node is not None and outermost.told is None:  # else it is known from an inner graph
            outermost.told = self.tell_of(error, node)
        try:
            if vm.position >= 0:
                raise_with_op(self.fgraph, node, vm.thunks[vm.position])
            raise error
        except Exception as final:  # another object, if PyTensor adds to the message
            if self.parent is None and outermost.told is not None:
                final.__notes__ = [self.told, *getattr(final, "__notes__", ())]
                self.told = None
            raise

    def tell_of(self, error, node):
        """Return what is known of an error, as text; None if that cannot be found out."""
        frames, values, runtime = [], {}, self
        while True:
            values |= {variable: cell[0] for variable, cell in runtime.storage_map.items()}
            if runtime.parent is None:
                break
            frames.insert(0, runtime.frame())
            runtime = runtime.parent.runtime
        try:
            return render_failure(explain_exception(error, runtime.fgraph, node, values, frames))
        except Exception:
            logger.exception("theanoguard: the error could not be explained; please report this")


class GuardedVM(VM):
    """Mixin of the virtual machines; one itself, or Python lets none change its class.

    It hides ``position_of_error``, so that ``Function`` and ``Scan`` pass our errors on
    as they are.
    """

    guard = None

    @property
    def position_of_error(self):
        raise AttributeError("position_of_error")

    @property
    def position(self):
        """Index of the node that failed, or -1."""
        return getattr(super(), "position_of_error", -1)


class OuterVM(GuardedVM):
    """The graph of a function: check what enters, run, and commit or roll back."""

    def __call__(self, *args, **kwargs):
        guard = self.guard  # (every function call above here counts in a small function)
        guard.calls += 1
        try:
            if guard.prepares:
                guard.prepare()
            bad = guard.kernel.begin(0)
            if bad >= 0:
                guard.report_inputs(bad)
            result = self.unguarded(*args, **kwargs)
            if guard.may_wait:
                guard.check_waiting()
        except BaseException as error:
            guard.failed(self, error)
        guard.end()
        return result


class InnerVM(GuardedVM):
    """An inner graph: what enters has been checked outside, which also rolls back.

    It is called as fast as without the guard: a loop does so in every step.
    """


class LazyInnerVM(InnerVM):
    """An inner graph of which nobody knows what runs in a step."""

    def __call__(self, *args, **kwargs):
        kernel = self.guard.kernel
        kernel.set_step(kernel.step() + 1)
        return super().__call__(*args, **kwargs)


_GUARDED: dict[tuple, type] = {}
_LOCK = threading.Lock()


def guarded_class(guarded, kind):
    """Return the guarded version of a class of virtual machines."""
    with _LOCK:
        if (guarded, kind) not in _GUARDED:
            name = f"Guarded{kind.__name__}"
            names = {"__module__": __name__, "unguarded": kind.__call__}
            _GUARDED[guarded, kind] = type(name, (guarded, kind), names)
        return _GUARDED[guarded, kind]


class GuardLinker(VMLinker):
    """A ``VMLinker`` whose virtual machines are guarded.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    parent : tuple or None
        For an inner graph: weak reference to the runtime outside, and the node.
    **settings
        Those of ``VMLinker``.
    """

    def __init__(self, policy, recorder, parent=None, **settings):
        self.policy = policy
        self.recorder = recorder
        self.parent = parent
        super().__init__(**settings)

    @classmethod
    def like(cls, linker, policy, recorder, parent=None, clean_inputs=True):
        """Return a guarded linker with the settings of a ``VMLinker``."""
        new = cls(
            policy,
            recorder,
            parent,
            allow_gc=linker.allow_gc,
            use_cloop=linker.use_cloop,
            lazy=linker.lazy,
            c_thunks=linker.c_thunks,
            allow_partial_eval=linker.allow_partial_eval,
        )
        new.clean_inputs = clean_inputs
        return new

    clean_inputs = True

    def __copy__(self):
        """Return a linker for the same place: PyTensor copies the mode's before it links."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __getstate__(self):
        """Leave out what belongs to one linking; it is made again."""
        made = ("plan", "parents", "bodies", "parent")
        return {**{k: v for k, v in vars(self).items() if k not in made}, "parent": None}

    def accept(self, fgraph, no_recycling=None, profile=None):
        if self.fgraph is not None and self.fgraph is not fgraph:
            fresh = copy.copy(self)
            fresh.fgraph = None
            return fresh.accept(fgraph, no_recycling, profile)
        return super().accept(fgraph, no_recycling, profile)

    def make_all(self, profiler=None, input_storage=None, output_storage=None, storage_map=None):
        fgraph = self.fgraph
        order = self.schedule(fgraph)
        owners = {node for node in order if isinstance(node.op, Scan | OpFromGraph)}
        self.plan = self.make_plan(order, owners)
        self.parents, self.bodies, ops = [], {}, {}
        for node in owners:
            with watch_rewriting():
                op = self.link_body(node)
            if op is not None:
                ops[node] = op
        whole = {node for node in ops if gives_clean(node, [self.bodies[node].guard.plan])}
        if whole or len(ops) < len(owners):  # (what cannot be guarded is checked from outside)
            self.plan = self.make_plan(order, set(ops), whole)
        feature = TailLast(self.plan.tail_orderings())
        fgraph.attach_feature(feature)
        originals = {node: node.op for node in ops}
        try:
            # The thunk of a node is made by its op.  The graph is this function's own.
            for node, op in ops.items():
                node.op = op
            return super().make_all(profiler, input_storage, output_storage, storage_map)
        finally:
            for node, op in originals.items():
                node.op = op
            fgraph.remove_feature(feature)

    def make_plan(self, order, guarded_inner, whole_inner=()):
        return Plan(
            self.fgraph,
            order,
            self.policy,
            updated=self.updated_inputs(),
            guarded_inner=guarded_inner,
            whole_inner=whole_inner,
            clean_inputs=self.clean_inputs,
            is_inner=self.parent is not None,
        )

    def updated_inputs(self):
        """Return the inputs that a failed call must leave as they were."""
        if self.parent is not None:
            return ()
        # ``Function.copy(delete_updates=True)`` leaves the nodes that overwrite.
        shared = (v for v in self.fgraph.inputs if isinstance(v, SharedVariable))
        return {*self.updated_vars, *shared}

    def link_body(self, node):
        """Return a copy of the node's op with a guarded inner function, or None."""
        parent = Parent(node)
        clean = all(map(self.plan.holds_clean, node.inputs))

        def guard(linker):
            if type(linker) not in (VMLinker, GuardLinker):
                return None  # what it does beyond running the graph, it shall do
            return GuardLinker.like(linker, self.policy, self.recorder, parent, clean)

        op = link_inner(
            node.op,
            None if self.c_thunks else "py",
            guard,
            lambda mode: WatchedMode(mode.linker, mode.provided_optimizer),
        )
        if op is not None:
            self.parents.append(parent)
            self.bodies[node] = op._fn.vm
        return op

    def make_vm(self, nodes, thunks, input_storage, output_storage, storage_map, *args):
        runtime = GuardRuntime(self, self.plan, storage_map)
        runtime.bodies = [vm.guard for vm in self.bodies.values()]
        for parent in self.parents:
            parent.runtime = runtime
        for i, (node, thunk) in enumerate(zip(nodes, thunks, strict=True)):
            inner = self.bodies.get(node)
            if inner is not None:
                thunk = BodyThunk(thunk, inner)
            thunks[i] = runtime.wrap(node, thunk)
        vm = super().make_vm(nodes, thunks, input_storage, output_storage, storage_map, *args)
        inner_class = LazyInnerVM if runtime.is_lazy else InnerVM
        vm.__class__ = guarded_class(OuterVM if self.parent is None else inner_class, type(vm))
        vm.guard = runtime
        return vm
