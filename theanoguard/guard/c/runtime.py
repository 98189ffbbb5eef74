"""The guard of one graph on the C backend, which runs suspicious calls again."""

import copy
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NoReturn

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable

from theanoguard._evaluate.replay import branch_for, copy_value, has_effects
from theanoguard._event import Frame
from theanoguard._pytensor import (
    Scan,
    capsule_of,
    failed_node,
    increment_ops,
    is_lazy,
    is_numeric,
    raise_with_op,
)
from theanoguard._pytensor.machines import changes_arithmetic
from theanoguard.guard.blocks import first_readers, runs_in_blocks
from theanoguard.guard.c import build, numpy_kernel
from theanoguard.guard.c.plan import CPlan
from theanoguard.guard.c.thunks import BodyThunk, LazyThunk, LiveThunk, Thunk
from theanoguard.guard.errors import GuardError
from theanoguard.guard.optimizers import raised_inside
from theanoguard.guard.partly import written
from theanoguard.guard.plan import REASONS, overwrites, overwritten
from theanoguard.guard.reporting import (
    Observation,
    Reporter,
    Snapshot,
    missed_without_audit,
    note_on_loss,
    put_note_first,
)
from theanoguard.guard.rerun import Findings, SecondRun, WatchedKernels
from theanoguard.guard.spares import spare_of
from theanoguard.guard.verdict import made_bad

UNEXPLAINED = 3
"""After so many calls with flags that no node raises when it runs alone, flags are ignored."""


class Parent:
    """The surroundings of an inner graph: the node that owns it, and the guard of the outer graph.

    The outer graph's runtime is made after the inner graph has been linked.  It is referenced
    weakly.
    """

    def __init__(self, node: Apply) -> None:
        self.node = node
        self._runtime: Callable[[], CRuntime | None] = lambda: None

    @property
    def runtime(self) -> "CRuntime":
        runtime = self._runtime()
        assert runtime is not None  # it is alive while its inner graphs run
        return runtime

    @runtime.setter
    def runtime(self, runtime: "CRuntime") -> None:
        self._runtime = weakref.ref(runtime)


class CRuntime(Reporter):
    """The guard of one linked graph: its kernel, the call in progress, its events.

    `nodes`, `thunks`: what the virtual machine runs.  The thunks in the list are replaced by
    wrapped ones.
    """

    def __init__(
        self,
        linker: Any,
        nodes: Sequence[Apply],
        thunks: list,
        storage_map: dict[Variable, list],
    ) -> None:
        self.parent = linker.parent
        is_inner = self.parent is not None
        super().__init__(linker.policy, linker.recorder, linker.fgraph, is_inner)
        policy = self.policy
        self.order = list(nodes)
        self.index = {node: i for i, node in enumerate(nodes)}
        # The thunks' own: for a loop in Python, PyTensor gives variables other storage afterwards.
        self.storage_map = dict(storage_map)
        for node, thunk in zip(nodes, thunks, strict=True):
            self.storage_map.update(zip(node.inputs, thunk.inputs, strict=True))
            self.storage_map.update(zip(node.outputs, thunk.outputs, strict=True))
        self._machines = linker.bodies
        self._beside = linker.beside
        self.bodies = {node: vm.guard for node, vm in linker.bodies.items()}
        self.module = build.load() or numpy_kernel
        self.changed_by = changes_arithmetic()  # compiler flags
        self.is_lazy = any(is_lazy(node.op) for node in nodes)
        self.plan: CPlan = CPlan(
            self.fgraph,
            nodes,
            policy,
            is_inner,
            updated=linker.updated_inputs(),
            inner={node: [body.plan] for node, body in self.bodies.items()},
            in_c={n for n, t in zip(nodes, thunks, strict=True) if capsule_of(t)},
            flags_work=bool(self.module.flags_work),
            exact=not self.changed_by,
        )
        self.told: str | None = (
            None  # the note for an error of another kind that is passing through
        )
        self.looking = True
        self.acting = False  # the user's action runs
        self.unexplained = 0  # calls with a raised flag that no node raises when it runs alone
        self.rerun_kernels = WatchedKernels(self.module)  # of all second runs
        self.live: dict[tuple, list] = {}  # outputs of nodes with side effects, by node and steps
        self.looked = False  # before the call has ended
        self.early: Exception | None = None  # the error that was found then
        self.reported: set[tuple] = set()  # in this call
        self.spares = {}  # the second buffers of shared variables that the function updates
        me = weakref.proxy(self)  # the kernel must not keep the function alive
        self.kernel = self.module.Guard(
            nan=policy.nan,
            inf=policy.inf,
            big=policy.big,
            ints=policy.check_integers,
            limit=policy.big_threshold,
            is_bad=policy.is_bad,
            save=lambda index, i: me.save(index, i),
            verdict=lambda index, before: me.verdict(index, before),
            enter=lambda: me.enter_late(),
            before_loss=lambda: me.before_loss(),
        )
        # Between thunks that Python calls, and after the last one, Python may run a signal handler
        # or a finalizer, and these may clear the flags.
        self.ends = set(nodes) if not linker.use_cloop else {v.owner for v in self.fgraph.outputs}
        self.effects = any(has_effects(node.op) for node in nodes)
        for body in self.bodies.values():
            body.join(self.kernel)
            self.effects |= body.effects
        self.prepares = policy.every > 1 or self.effects or bool(self.plan.given_up)
        computed = [v for node in nodes for v in node.outputs] if linker.allow_gc else []
        self.collected = [self.storage_map[v] for v in computed]
        if not is_inner:
            updated = linker.updated_vars
            shared = (
                v for v in updated if isinstance(v, SharedVariable) and v not in self.plan.given_up
            )
            self.spares = {v: spare_of(storage_map[v]) for v in shared}
            self.kernel.set_updated(
                [storage_map[v] for v in updated], [self.spares.get(v, [None]) for v in updated]
            )
        self.wrapped: dict[Apply, Any] = {}
        thunks[:] = [self.wrap(n, t) for n, t in zip(nodes, thunks, strict=True)]
        self.follow_plan()

    # -- linking

    def join(self, kernel: Any) -> None:
        """Share the suspicions of the guard outside."""
        self.kernel.join(kernel)
        for body in self.bodies.values():
            body.join(kernel)

    def wrap(self, node: Apply, thunk: Any) -> Thunk | LazyThunk | LiveThunk | BodyThunk:
        """Return the thunk that the virtual machine runs instead."""
        if thunk.lazy:
            return LazyThunk(thunk, self.kernel, partial(self.look_at_choice, node))
        if node in self.bodies:
            thunk = BodyThunk(thunk, self._machines[node])
        elif has_effects(node.op):
            me = weakref.proxy(self)  # the kernel keeps the thunk, and cannot be in a cycle
            thunk = LiveThunk(thunk, lambda: me.look_before(), lambda: me.keep_live(node))
        plan = self.plan.nodes[node]
        ends = node in self.ends or (self.parent is not None and not self.wrapped)
        numeric = any(v not in self.plan.dropped or is_numeric(v.type) for v in node.outputs)
        idle = all(self.plan.dropped.get(v) in ("not numeric", "discrete") for v in node.outputs)
        if not (plan.destroys or plan.bracketed or ends or (numeric and not idle)):
            return thunk
        cells = self.storage_map
        overwritten = {i for sources in node.op.destroy_map.values() for i in sources}
        capsule = self.kernel.add_node(
            self.index[node],
            capsule_of(thunk),
            thunk,
            [self.save_of(node, *place) for place in overwrites(node) if place[0] in plan.destroys],
            [cells[node.inputs[i]] for i in sorted(overwritten)],
        )
        self.wrapped[node] = capsule
        return Thunk(capsule, self.module.call, self.kernel, thunk)

    def save_of(self, node: Apply, root: Variable, i: int, output: int) -> tuple:
        """Return how the kernel keeps an input of the graph that a node overwrites.

        - `node`, `root`, `i`, `output`: as :func:`~theanoguard.guard.plan.overwrites` has it.
        - Returns: the storage of the input, of the operand and of the output; where the second
          buffer is kept, or None; whether the node has code that overwrites nothing of that;
          whether a part is overwritten, or the storage of the rows that are.
        """
        cells = [self.storage_map[v] for v in (root, node.inputs[i], node.outputs[output])]
        spare = self.spares.get(root) if node.inputs[i] is root else None
        is_beside = spare is not None and node in self._beside
        return *cells, spare, is_beside, self.partly(node, root)

    def partly(self, node: Apply, root: Variable) -> bool | list:
        """Return whether a node overwrites a part of `root` alone; for rows, their storage."""
        if not isinstance(node.op, increment_ops):
            return False
        rows = written(node).rows
        return self.storage_map[rows] if rows is not None and node.inputs[0] is root else True

    def follow_plan(self) -> None:
        """Tell the kernel how the nodes are to be treated."""
        module, plan, cells = self.module, self.plan, self.storage_map
        first = self.parent is not None and not self.is_lazy
        for node, capsule in self.wrapped.items():
            treatment = plan.nodes[node]
            mode = module.WATCH if treatment.watches else 0
            mode |= module.BRACKET if treatment.bracketed else 0
            mode |= module.CAREFUL if treatment.careful else 0
            mode |= module.COUNT if first else 0  # (the first node counts the steps)
            mode |= module.PART if treatment.part else 0
            mode |= module.PART_BEFORE if treatment.big_before else 0
            mode |= 0 if plan.given_up.isdisjoint(overwritten(node)) else module.OVERWRITES
            keeps = node in self.bodies or (node in self.ends and not treatment.bracketed)
            mode |= module.KEEP if keeps else 0
            first = False
            scans, sizes = (
                [cells[node.outputs[i]] for i in where]
                for where in (treatment.checks, treatment.sizes)
            )
            thin = [(cells[node.inputs[i]], axis) for i, axis in treatment.thin]
            self.kernel.set_mode(capsule, mode, scans, sizes, thin)
        trusted = plan.policy.trusted
        self.kernel.set_inputs(
            [(cells[v], trusted and isinstance(v, SharedVariable)) for v in plan.scanned]
        )
        self.cut_into_blocks()

    def cut_into_blocks(self) -> None:
        """Tell the kernel which nodes run on blocks of rows, and what they read first."""
        module, plan, cells = self.module, self.plan, self.storage_map
        may_wait = not (self.is_lazy or self.parent is not None)
        readers = first_readers(plan.scanned, self.order) if may_wait else {}
        for node, capsule in self.wrapped.items():
            if not self.runs_in_blocks(node):
                continue
            cut = [v for v in dict.fromkeys(node.inputs) if not all(v.type.broadcastable)]
            entering = {v for v in cut if readers.get(v) is node}
            treatment = plan.nodes[node]
            if 0 < len(cut) <= module.MAX_CUT - len(node.outputs) and (
                treatment.checks or treatment.destroys or entering
            ):
                into = {o: cut.index(node.inputs[i]) for o, [i] in node.op.destroy_map.items()}
                self.kernel.set_blocks(
                    capsule,
                    [(cells[v], v in entering) for v in cut],
                    [
                        (cells[v], np.dtype(v.type.dtype).num, into.get(o, -1))
                        for o, v in enumerate(node.outputs)
                    ],
                )

    def runs_in_blocks(self, node: Apply) -> bool:
        """Whether a node may run on blocks of rows, so that scans find them in the cache."""
        treatment = self.plan.nodes[node]
        return (
            self.module.flags_work
            and runs_in_blocks(node)
            and (not treatment.destroys or node in self._beside)
            and not (treatment.careful or treatment.bracketed or treatment.sizes)
            and not getattr(node.op, "openmp", False)
        )

    # -- called by the kernel

    def save(self, index: int, i: int) -> Snapshot | tuple[np.ndarray, Any]:
        """Return what puts back input number `i` of the `destroys` of a node that overwrites it.

        For an array that is overwritten in part: the array, and an index of the elements.
        """
        node = self.order[index]
        root = self.plan.nodes[node].destroys[i]
        if isinstance(node.op, increment_ops):
            array = self.storage_map[node.inputs[0]][0]
            if isinstance(array, np.ndarray):
                return array, written(node).where(lambda v: self.storage_map[v][0])
        return Snapshot(self.storage_map[root])

    def verdict(self, index: int, before: list | None) -> bool:
        """Return whether a node that has just run has made something bad."""
        node, plan = self.order[index], self.plan
        inputs = [self.storage_map[v][0] for v in node.inputs]
        if before is not None:
            overwritten = {i for sources in node.op.destroy_map.values() for i in sources}
            for i, value in zip(sorted(overwritten), before, strict=True):
                inputs[i] = value
        outputs = [self.storage_map[v][0] for v in node.outputs]
        outside = self.parent is not None and any(
            not self.parent.runtime.plan.is_watched(v)
            for v in self.parent.node.inputs
            if not isinstance(v, Constant)
        )
        silent = {
            v
            for v in node.inputs
            if not isinstance(v, Constant)
            and (not plan.is_watched(v) or (outside and v.owner is None))
        }
        made = made_bad(node, inputs, outputs, self.policy, silent, plan.bad_constants)
        return any(
            masks is not None and plan.is_watched(v)
            for v, masks in zip(node.outputs, made, strict=True)
        )

    def look_at_choice(self, node: Apply) -> None:
        """An ``IfElse`` has run: look at the call if the branch is a bad constant."""
        chosen = branch_for(node, self.storage_map[node.inputs[0]][0])
        if any(map(self.plan.is_bad_literal, chosen)):
            self.kernel.suspect()

    def enter_late(self) -> None:
        """An input that a node has read in blocks is bad: end the call if it may not go on."""
        self.kernel.undo()
        error = self.enter()
        self.kernel.redo()
        self.raise_early(error)

    def look_before(self) -> None:
        """A node with side effects is about to run: raise the error if there is one already."""
        guard = self.outermost()
        suspicion = guard.kernel.end()
        if suspicion and not guard.looked:
            guard.looked = True
            guard.raise_early(guard.look(suspicion, so_far=True))

    def before_loss(self) -> None:
        """A node is about to overwrite a shared variable for good: raise what is bad already."""
        self.looked = False
        self.look_before()

    def raise_early(self, error: Exception | None) -> None:
        """Raise an error before the last node has run; None is no error.

        A copy is raised, because PyTensor's virtual machines in Python add text to an error of a
        thunk.
        """
        self.early = error
        if error is not None:
            raise copy.copy(error)

    def keep_live(self, node: Apply) -> None:
        """Keep the outputs of a node with side effects, which has just run."""
        values = [self.storage_map[v][0] for v in node.outputs]
        self.outermost().live[node, self.steps()] = [copy_value(v) for v in values]

    def steps(self) -> tuple[int, ...]:
        """Return the steps of the scans that this graph runs in, outermost first."""
        if self.parent is None:
            return ()
        outside = self.parent.runtime.steps()
        step = self.frame().step
        return outside if step is None else (*outside, step)

    # -- figures

    def signs(self) -> str | None:
        """Return how the function detects bad values, where that is unusual."""
        return build.told(self.changed_by) if self.changed_by else None

    speed = staticmethod(build.speed)

    def counters(self) -> dict[str, int]:
        """Return what the kernels have counted, of all graphs of the function together."""
        total = Counter(self.kernel.counters())
        for body in self.bodies.values():
            total.update(body.counters())
        return dict(total)

    # -- a call

    def prepare(self) -> None:
        """Per-call set-up that only some functions need."""
        self.live = {}
        self.looked = False
        looking = (self.calls - 1) % self.policy.every == 0
        if looking != self.looking:
            self.looking = looking
            self.kernel.look(looking)

    def start(self) -> None:
        """A run of an inner graph begins."""
        self.kernel.set_step(0)

    def frame(self) -> Frame:
        """Return the node and the step that this inner graph is running in."""
        assert self.parent is not None
        node = self.parent.node
        step = max(self.kernel.step() - 1, 0) if isinstance(node.op, Scan) else None
        return Frame(node, self.fgraph, step)

    def outermost(self) -> "CRuntime":
        return self if self.parent is None else self.parent.runtime.outermost()

    def runtimes(self) -> list["CRuntime"]:
        """Return the guards of all graphs of the function."""
        return [self, *(inner for body in self.bodies.values() for inner in body.runtimes())]

    def inputs_now(self) -> dict[Variable, Any]:
        """Return the values of the inputs, by variable."""
        return {v: self.storage_map[v][0] for v in self.fgraph.inputs}

    def second_run(self) -> SecondRun:
        """Return a second run of this call, from what its inputs hold."""
        return SecondRun(
            self.fgraph,
            self.order,
            self.inputs_now(),
            self.policy,
            self.role,
            self.rerun_kernels,
            constants=self.plan.bad_constants,
            live=dict(self.live),
            graphs=self.plan.graphs(),
            partly=self.plan.partly,
        )

    def enter(self) -> GuardError | None:
        """Return the error of a bad value that enters, if no node has to run to find it."""
        if not self.looking:
            return None
        self.kernel.suspect()
        if self.policy.action != "raise" or self.policy.by_result or self.policy.audit:
            return None  # reported when the call ends, with the other bad values
        return self.report(self.second_run().what_enters())

    def results(self) -> list:
        """Return the outputs and updates of the call that has just ended.

        The virtual machine has put new values into the storage of the variables that it updates.
        An output that is such a variable itself has the value from before.
        """
        values = {v: self.storage_map[v][0] for v in self.fgraph.outputs}
        entered = [v for v in values if v.owner is None]
        if entered:
            self.kernel.undo()
            values |= {v: self.storage_map[v][0] for v in entered}
            self.kernel.redo()
        return [values[v] for v in self.fgraph.outputs]

    def look(self, suspicion: int, so_far: bool = False, failed: bool = False) -> Exception | None:
        """Run a suspicious call again; return the error to be raised, or None.

        With `so_far`, the call has not ended; the guard looks at the nodes before the next one with
        side effects.  With `failed`, another error has ended the call.
        """
        if so_far and self.policy.by_result:
            return None
        if self.policy.by_result and not self.policy.is_spoiled(self.results()):
            return None
        fired: dict[Apply, int] = {}  # since the last call that was looked at
        if not so_far:
            for runtime in self.runtimes():
                fired |= {n: runtime.kernel.fired(c) for n, c in runtime.wrapped.items()}
        note, left = None, []
        if not so_far and self.kernel.overwrote():
            if self.reported:  # before anything was overwritten, with its explanation
                return None
            note = note_on_loss(self.plan.given_up)
            left = [] if failed else self.left_bad(self.results())
        self.kernel.undo()
        found = self.second_run().find()
        found.observations = left or found.observations
        if self.policy.audit and found.observations and not so_far:
            missed = self.audit(found.observations[0], suspicion, {n for n in fired if fired[n]})
            if missed is not None:
                return missed
        error = self.report(found.observations, note, found.computed)
        if error is None:
            self.kernel.redo()
            if found.error is not None and not found.observations and not (so_far or failed):
                return self.cannot_tell(found.error)
            if not found.observations and not (so_far or failed):
                self.learn(found, suspicion, fired)
        return error

    def cannot_tell(self, error: Exception) -> Exception:
        """Return the error of a call with a sign of a bad value that could not be looked at."""
        note = (
            "theanoguard: the call has ended, but may have made a NaN, an Inf or a big value. The"
            " error was raised while the guard computed it again to find out."
        )
        put_note_first(error, note)
        return error

    def audit(self, first: Observation, suspicion: int, fired: Set[Apply]) -> RuntimeError | None:
        """Return the error that only the audit has seen that the call is bad, or None."""
        if suspicion & 1:
            return None
        inputs = self.inputs_now()
        reasons: dict[Variable, str] = {}
        for runtime in self.runtimes():
            plan = runtime.plan.without_audit()
            reasons |= plan.dropped
            if any(node in fired and (t.watches or t.part) for node, t in plan.nodes.items()):
                return None
            if runtime is self and any(self.policy.is_bad(inputs[v]) for v in plan.scanned):
                return None
        if first.role == "constant":
            return None
        reason = reasons.get(first.variable, "carried")
        return missed_without_audit(first, reason, REASONS[reason])

    def report(
        self,
        observations: Sequence[Observation],
        lost: str | None = None,
        computed: Mapping[Variable, Any] | None = None,
    ) -> GuardError | None:
        """Do what the policy says; return the error to be raised, or None.

        `lost`, `computed`: as for `handle`.
        """
        new = {observation.key: observation for observation in observations}
        new = {key: found for key, found in new.items() if key not in self.reported}
        self.reported.update(new)
        self.acting = True
        if self.policy.calls_back:
            error = self.handle_aside(list(new.values()), lost, computed)
        else:
            found = list(new.values())
            error = self.handle(found, self.inputs_now(), self.live, lost, computed)
        self.acting = False
        return error

    def handle_aside(
        self,
        observations: Sequence[Observation],
        lost: str | None,
        computed: Mapping[Variable, Any] | None,
    ) -> GuardError | None:
        """Report to a user's action, which may call the function.

        Such a call ends before this one, which stores its updates last.  If the action raises, this
        call stores none, and what the action has done stays.
        """
        kept = self.reported, self.live, self.looked
        goes_on = False
        self.kernel.set_aside()
        try:
            error = self.handle(observations, self.inputs_now(), self.live, lost, computed)
            goes_on = True
        finally:
            self.kernel.take_up(goes_on)
        self.reported, self.live, self.looked = kept
        return error

    def learn(self, found: Findings, suspicion: int, fired: Mapping[Apply, int]) -> None:
        """Nothing was wrong: change the plan so that this does not make a call suspicious again."""
        learned = False
        bad, empty = (
            {node for node, bits in fired.items() if bits & kind}
            for kind in (self.module.BAD, self.module.EMPTY)
        )
        runtimes = self.runtimes()
        for runtime in runtimes:
            plan = runtime.plan
            known = {v for node in plan.order for v in node.outputs} | set(runtime.fgraph.inputs)
            noisy = known & found.noisy
            noisy |= {v for n in bad & set(plan.order) for v in n.outputs}
            discarded = known & found.discarded
            loud, lossy = found.loud & set(plan.order), empty & set(plan.order)
            learned |= not (
                noisy <= plan.noisy
                and loud <= plan.loud
                and lossy <= plan.lossy
                and discarded <= plan.discarded
            )
            plan.learn(noisy, loud, lossy, discarded)
        if not learned and suspicion & 1:
            self.unexplained += 1
        if self.unexplained == UNEXPLAINED:
            # A signal handler would not raise flags so often.  Scans do the work from now on.
            for runtime in runtimes:
                runtime.plan.learn(flags_work=False)
                runtime.plan.loud |= set(runtime.plan.order)
        for runtime in runtimes:
            runtime.follow_plan()

    def give_up(self) -> None:
        """The call has failed: everything stays as it was before."""
        self.kernel.undo()
        self.kernel.commit()

    def forget(self) -> None:
        """Free what the nodes that ran have computed, as the end of the call would have done.

        The next call would otherwise reuse these arrays, and a product rounds by their layout.
        """
        for cell in self.collected:
            cell[0] = None

    def failed(self, vm: Any, error: BaseException) -> NoReturn:
        """Put everything back and raise the error that the user sees."""
        if self.parent is None:
            ours, self.early = self.early, None
            if ours is None and not self.acting and (inside := raised_inside(error)) is not None:
                self.kernel.end()
                self.give_up()
                raise inside from None
            try:
                if not isinstance(error, Exception):
                    ours = None
                elif ours is None and not self.acting:
                    suspicion = self.kernel.end()
                    # (Without flags, some values are seen only in results, and there are none.)
                    if not self.plan.flags_work and self.looking:
                        suspicion |= 1
                    ours = self.look(suspicion, failed=True) if suspicion else None
            finally:
                acting, self.acting = self.acting, False
                self.give_up()
            if ours is not None:
                self.forget()
                raise ours from None
            if acting:
                raise error
        if not isinstance(error, Exception) or self.outermost().kernel.undone():
            raise error
        self.failed_otherwise(vm, error)

    def failed_otherwise(self, vm: Any, error: BaseException) -> NoReturn:
        """Raise an error of another kind, with a note on the node and its operands."""
        outermost = self.outermost()
        node = failed_node(vm, error)
        if node is not None and outermost.told is None:  # else an inner graph has set it
            outermost.told = self.tell_of(error, node)
        try:
            if vm.position >= 0:
                raise_with_op(self.fgraph, node, vm.thunks[vm.position])
            raise error
        except Exception as final:  # another object, if PyTensor adds to the message
            if self.parent is None and outermost.told is not None:
                put_note_first(final, outermost.told)
                outermost.told = None
            raise

    def tell_of(self, error: BaseException, node: Apply) -> str | None:
        """Return a note on an error: its node and operands.  None if that fails."""
        frames: list[Frame] = []
        values: dict[Variable, Any] = {}
        runtime = self
        while True:
            values |= {variable: cell[0] for variable, cell in runtime.storage_map.items()}
            if runtime.parent is None:
                break
            frames.insert(0, runtime.frame())
            runtime = runtime.parent.runtime
        return self.note_on(error, runtime.fgraph, node, lambda: values, frames)
