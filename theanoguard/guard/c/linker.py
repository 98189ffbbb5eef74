"""Links functions for the C backend, so that their virtual machines are guarded."""

import copy
import threading
from collections.abc import Collection, Sequence
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import VM, OpFromGraph, Scan, VMLinker, link_inner, take_class
from theanoguard.guard.c import build
from theanoguard.guard.c.runtime import CRuntime, Parent
from theanoguard.guard.optimizers import guarded_optimizers
from theanoguard.guard.plan import is_large_state, overwrites
from theanoguard.guard.policy import Policy
from theanoguard.guard.reporting import Recorder
from theanoguard.guard.rewriting import WatchedMode


class GuardedVM(VM):
    """Mixin of the guarded virtual machines.

    It derives from ``VM``, because Python lets an object change its class only to one of the same
    layout.  It hides ``position_of_error``, so that ``Function`` and ``Scan`` pass our errors on
    unchanged.
    """

    guard: CRuntime

    @property
    def position_of_error(self) -> int:
        raise AttributeError("position_of_error")

    @property
    def position(self) -> int:
        """Index of the node that failed, or -1."""
        return getattr(super(), "position_of_error", -1)


class OuterVM(GuardedVM):
    """The graph of a function: check what enters, run, and look again where it is suspicious."""

    def __call__(self, *args: Any, **kwargs: Any) -> list | None:
        guard = self.guard  # (every function call above here counts in a small function)
        guard.calls += 1
        error: Exception | None = None
        try:
            if guard.calls >= guard.next_kept:
                guard.keep_inputs({v: guard.storage_map[v] for v in guard.fgraph.inputs})
            if guard.prepares:
                guard.prepare()
            if guard.reported:
                guard.reported = set()
            if guard.kernel.begin() or guard.plan.bad_constants:
                error = guard.enter()
            if error is None:
                result = self.unguarded(*args, **kwargs)
                suspicion = guard.kernel.end()
                if suspicion:
                    error = guard.look(suspicion)
            if error is None:
                guard.kernel.commit()
                return result
        except BaseException as other:
            guard.failed(self, other)
        guard.give_up()
        guard.forget()
        raise error from None


class InnerVM(GuardedVM):
    """An inner graph.  The outer graph checks its inputs and handles its errors.

    It is called as fast as without the guard: a loop does so in every step.
    """


class LazyInnerVM(InnerVM):
    """An inner graph with lazy nodes, which may skip some of its nodes in a step."""

    def __call__(self, *args: Any, **kwargs: Any) -> list | None:
        kernel = self.guard.kernel
        kernel.set_step(kernel.step() + 1)
        return super().__call__(*args, **kwargs)


_GUARDED: dict[tuple, type] = {}
_LOCK = threading.Lock()


def guarded_class(guarded: type[GuardedVM], kind: type[VM]) -> type[VM]:
    """Return the guarded version of a class of virtual machines."""
    with _LOCK:
        if (guarded, kind) not in _GUARDED:
            name = f"Guarded{kind.__name__}"
            names = {"__module__": __name__, "unguarded": kind.__call__}
            _GUARDED[guarded, kind] = type(name, (guarded, kind), names)
        return _GUARDED[guarded, kind]


class ElemwiseBeside(Elemwise):
    """An elementwise operation whose C code also has a loop without strides, for arrays in C order.

    PyTensor writes that loop only where lengths are known.  A processor does not have enough
    registers for the strides of all operands and their second buffers.
    """

    def c_code(
        self, node: Apply, nodename: str, inames: list[str], onames: list[str], sub: dict
    ) -> str:
        variables = (*node.inputs, *node.outputs)
        lengths = zip(*(v.type.shape for v in variables), strict=True)
        known = [next((n for n in ns if n is not None and n > 1), 2) for ns in lengths]
        new = {
            v: v.type.clone(
                shape=[k if n is None else n for k, n in zip(known, v.type.shape, strict=True)]
            )()
            for v in variables
        }
        node = Apply(self, [new[v] for v in node.inputs], [new[v] for v in node.outputs])
        code = super().c_code(node, nodename, inames, onames, sub)  # (checks the lengths)
        return code.replace("for(int i=0;", "for(npy_intp i=0;")

    def c_code_cache_version_apply(self, node: Apply) -> tuple:
        version = super().c_code_cache_version_apply(node)
        return (1, *version) if version else ()  # (code without a version is not kept)


class GuardLinker(VMLinker):
    """A ``VMLinker`` whose virtual machines are guarded.

    - `parent`: for an inner graph: weak reference to the runtime outside, and the node.
    - `**settings`: those of ``VMLinker``.
    """

    def __init__(
        self, policy: Policy, recorder: Recorder, parent: Parent | None = None, **settings: Any
    ) -> None:
        self.policy = policy
        self.recorder = recorder
        self.parent = parent
        super().__init__(**settings)

    @classmethod
    def like(
        cls, linker: VMLinker, policy: Policy, recorder: Recorder, parent: Parent | None = None
    ) -> "GuardLinker":
        """Return a guarded linker with the settings of a ``VMLinker``."""
        return cls(
            policy,
            recorder,
            parent,
            allow_gc=linker.allow_gc,
            use_cloop=linker.use_cloop,
            lazy=linker.lazy,
            c_thunks=linker.c_thunks,
            allow_partial_eval=linker.allow_partial_eval,
        )

    def __copy__(self) -> "GuardLinker":
        """Return a linker for the same place: PyTensor copies the mode's before it links."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one linking; it is made again."""
        made = ("parents", "bodies", "beside", "parent")
        return {**{k: v for k, v in vars(self).items() if k not in made}, "parent": None}

    def accept(
        self,
        fgraph: FunctionGraph,
        no_recycling: Sequence[Variable] | None = None,
        profile: Any = None,
    ) -> "GuardLinker":
        if self.fgraph is not None and self.fgraph is not fgraph:
            fresh = copy.copy(self)
            fresh.fgraph = None
            return fresh.accept(fgraph, no_recycling, profile)
        return super().accept(fgraph, no_recycling, profile)

    def make_all(
        self,
        profiler: Any = None,
        input_storage: list[list] | None = None,
        output_storage: list[list] | None = None,
        storage_map: dict[Variable, list] | None = None,
    ) -> tuple:
        fgraph = self.fgraph
        self.parents: list[Parent] = []
        self.bodies: dict[Apply, GuardedVM] = {}
        ops: dict[Apply, Op] = {}
        for node in self.schedule(fgraph):
            if isinstance(node.op, Scan | OpFromGraph):
                with watch_rewriting():
                    op = self.link_body(node)
                if op is not None:
                    ops[node] = op
        ops |= guarded_optimizers(self.schedule(fgraph), self.policy, self.like_this)
        self.beside = {
            n: op for n in self.schedule(fgraph) if (op := self.op_beside(n)) is not None
        }
        ops |= self.beside
        originals = {node: node.op for node in ops}
        try:
            # The thunk of a node is made by its op.  The graph is this function's own.
            for node, op in ops.items():
                node.op = op
            return super().make_all(profiler, input_storage, output_storage, storage_map)
        finally:
            for node, op in originals.items():
                node.op = op

    def updated_inputs(self) -> Collection[Variable]:
        """Return the inputs that a failed call must leave as they were.

        Arguments with ``mutable=True`` are among them: a second run begins with what they held.
        """
        return () if self.parent is not None else set(self.fgraph.inputs)

    def op_beside(self, node: Apply) -> Op | None:
        """Return an operation that writes into second buffers what a node would overwrite.

        Its code computes the same.  None where only the node's own code can run.
        """
        if self.parent is not None or type(node.op) is not Elemwise or build.load() is None:
            return None  # (the kernel in NumPy has no second buffers)
        updated = {
            v
            for v in self.updated_vars
            if isinstance(v, SharedVariable) and (self.policy.restore or not is_large_state(v))
        }
        roots = {(o, i) for root, i, o in overwrites(node) if root in updated}
        direct = {(o, i) for o, i in roots if node.inputs[i] in updated}
        if not roots or roots != direct:
            return None
        pattern = {o: i for o, i in node.op.inplace_pattern.items() if (o, i) not in direct}
        op = ElemwiseBeside(node.op.scalar_op, pattern, openmp=node.op.openmp)
        op.destroy_map = node.op.destroy_map  # the order of the nodes is made from it
        return op

    def like_this(self, linker: VMLinker) -> "GuardLinker":
        """Return a linker for a function of its own, with the same policy and recorder."""
        return GuardLinker.like(linker, self.policy, self.recorder)

    def link_body(self, node: Apply) -> Op | None:
        """Return a copy of the node's op with a guarded inner function, or None."""
        parent = Parent(node)

        def guard(linker: VMLinker) -> "GuardLinker | None":
            if type(linker) not in (VMLinker, GuardLinker):
                return None  # a linker of another kind does more than run the graph: keep it
            return GuardLinker.like(linker, self.policy, self.recorder, parent)

        op = link_inner(
            node.op,
            None if self.c_thunks else "py",
            guard,
            lambda mode: WatchedMode(
                mode.linker, mode.provided_optimizer, anywhere=self.policy.anywhere
            ),
        )
        if op is not None:
            self.parents.append(parent)
            self.bodies[node] = op._fn.vm
        return op

    def make_vm(
        self,
        nodes: Sequence[Apply],
        thunks: list,
        input_storage: list[list],
        output_storage: list[list],
        storage_map: dict[Variable, list],
        *args: Any,
    ) -> VM:
        # (The plan is made for the operations of the graph, not for the linked copies.)
        thunks = list(thunks)
        runtime = CRuntime(self, nodes, thunks, storage_map)
        for parent in self.parents:
            parent.runtime = runtime
        # With the storage that the thunks write to: what it held is cleared before each call.
        cells = runtime.storage_map
        vm = super().make_vm(nodes, thunks, input_storage, output_storage, cells, *args)
        inner_class = LazyInnerVM if runtime.is_lazy else InnerVM
        kind = OuterVM if self.parent is None else inner_class
        take_class(vm, guarded_class(kind, type(vm)), "the guard on C")
        vm.guard = runtime
        return vm
