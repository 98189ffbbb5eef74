"""The guard of a function that a backend compiles as a whole.

The backend's program says in each call whether something may be wrong.  The runtime computes a
suspicious call again, node by node, with the backend's own code (:mod:`~theanoguard.guard.rerun`),
and hands the bad values that it finds to the ``Reporter``.
"""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from theanoguard._backends import Backend
from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import Container, map_storage, raise_with_op
from theanoguard.guard.c import build
from theanoguard.guard.c.linker import GuardLinker
from theanoguard.guard.errors import GuardError
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.optimizers import guarded_optimizers, raised_inside
from theanoguard.guard.partly import SavedRows
from theanoguard.guard.plan import REASONS
from theanoguard.guard.policy import Policy
from theanoguard.guard.reporting import (
    Observation,
    Recorder,
    Reporter,
    missed_without_audit,
    note_on_loss,
    put_note_first,
)
from theanoguard.guard.rerun import Findings, SecondRun, frames_of
from theanoguard.guard.spares import OVERWRITES, Turn
from theanoguard.operations.domains import OutOfDomain

logger = logging.getLogger("theanoguard")

# How often a function is compiled again because values turned out to be bad on purpose.  After
# that, every value is judged in every call.
REFINEMENTS = 3


def raised_by_signal_handler(error: BaseException) -> BaseException | None:
    """Return the error of a signal handler, such as Ctrl-C's, that was found when a call ended.

    Python runs no signal handler while compiled code runs, and wraps the error of one that it runs
    then in one ``SystemError`` or more.
    """
    cause = error
    while isinstance(cause, SystemError) and cause.__cause__ is not None:
        cause = cause.__cause__
    return None if cause is error else cause


class JittedRuntime(Reporter):
    """The guard of one function that is compiled as a whole.

    Its subclasses give `kernels`, the :class:`~theanoguard._evaluate.replay.Kernels` that compute
    single nodes (with an attribute ``raised``: the exception flags of the last one, or 0), and
    ``call(values)``, which runs the function on the values of its inputs and
    returns its results and the error to be raised, or None.  It calls `look` where something may
    be wrong.

    - `live`: outputs of nodes that must not run again, as ``Replay`` takes them.
    - `saved`: arrays of which the program saves the rows that it overwrites.
    - `kept`: shared variables that are checked when they are set, not in every call; and which
      output becomes their value.
    """

    live: Any = {}

    def __init__(
        self, policy: Policy, recorder: Recorder, plan: Any, storage_map: Mapping[Variable, list]
    ) -> None:
        super().__init__(policy, recorder, plan.fgraph)
        self.plan = plan
        self.cells = {v: storage_map[v] for v in self.fgraph.inputs}
        nodes = plan.nodes.values()
        destroyed = dict.fromkeys(v for node_plan in nodes for v in node_plan.destroys)
        self.overwritten = {v: self.cells[v] for v in destroyed}
        self.snapshots: dict[Variable, Any] = {}
        self.saved: dict[Variable, SavedRows] = {}
        self.stored = [True]  # whether there is nothing to put back: the call has ended well
        outputs = enumerate(self.fgraph.outputs)
        # (An output that is an input has the storage of that.)
        self._outputs = [(i, storage_map[v]) for i, v in outputs if v.owner is not None]
        self.take_turns({})
        self.constants = plan.bad_constants
        self.every = policy.every
        self.kept = plan.kept
        self.checked: dict[Variable, Any] = {}  # the values of these that are known to be clean
        self.acting = False  # the user's action runs
        self.looked = 0  # the last call that was run again
        self._graphs = plan.graphs()

    def call(self, values: list) -> tuple[Sequence[Any], Exception | None]:
        raise NotImplementedError

    def counters(self) -> dict[str, int]:
        """Return nothing: checks that are compiled with the function are not counted."""
        return {}

    # -- a call

    def open(self) -> None:
        """A call begins."""
        self.calls += 1
        if self.calls >= self.next_kept:
            self.keep_inputs(self.cells)
        self.snapshots = {}
        if self.saved:
            for rows in self.saved.values():
                rows.forget()
        self.stored[0] = False

    def take_turns(self, spares: Mapping[Variable, list]) -> None:
        """Have calls end so that updates are stored, and use these second buffers in turn."""
        places = {v: i for i, v in enumerate(self.fgraph.inputs)}
        turns = []
        for v, output in self.plan.updates().items():
            known = getattr(self.fgraph.outputs[output].tag, OVERWRITES, None) == places[v]
            turns.append(Turn(output, self.cells[v], places[v], known, spares.get(v)))
        self.ending = build.ending()(self._outputs, turns, self.stored)

    def enters_bad(self) -> bool:
        """Whether a constant is bad, or a shared variable that has been set since the last call."""
        changed = (self.cells[v][0] for v in self.changed())
        return bool(self.constants) or any(map(self.policy.is_bad, changed))

    def is_looked_at(self) -> bool:
        """Whether the call that begins is one that the policy wants looked at."""
        return (self.calls - 1) % self.every == 0

    def changed(self) -> list[Variable]:
        """Return the shared variables in `kept` that have been set since they were checked."""
        return [v for v in self.kept if self.checked.get(v) is not self.cells[v][0]]

    def keep(self, results: Sequence[Any]) -> None:
        """Remember the values of shared variables that are clean after a call."""
        for variable, output in self.kept.items():
            value = self.cells[variable][0] if output is None else results[output]
            self.checked[variable] = value

    def values_before(self) -> dict[Variable, Any]:
        """Return the values of the inputs as they were when the call began."""
        self._collect()
        return {
            v: self.snapshots[v].old() if v in self.snapshots else cell[0]
            for v, cell in self.cells.items()
        }

    def put_back(self) -> None:
        """Give what the call has overwritten the values that it had when the call began."""
        if not self.stored[0]:
            self._collect()
            for snapshot in self.snapshots.values():
                snapshot()

    def _collect(self) -> None:
        """Make snapshots of the rows that the call has saved."""
        for variable in self.saved.keys() - self.snapshots.keys():
            self.snapshots[variable] = self.saved[variable].snapshot()

    # -- a second look

    def look(
        self, values: Mapping[Variable, Any], results: Sequence[Any] | None
    ) -> GuardError | None:
        """Run a suspicious call again; return the error to be raised, or None.

        - `values`: dict of Variable to value of the inputs, when the call began.
        - `results`: those of the call; None where it has not ended.
        """
        self.looked = self.calls
        ended = results is not None
        if ended and self.policy.by_result and not self.policy.is_spoiled(results or ()):
            return None
        second = self.second_run(values, ended)
        found = second.find()
        observations = found.observations
        note = None
        if ended and self.plan.given_up:
            note = note_on_loss(self.plan.given_up)
            observations = self.left_bad(results or ()) or observations
        if found.error is not None:
            if ended and not isinstance(found.error, OutOfDomain):
                logger.error(
                    "theanoguard: the call could not be judged; please report this",
                    exc_info=found.error,
                )
                observations = observations or self.bad_results(results or ())
        elif not observations:
            observations = list(self.rounded_otherwise(second, results or ()))
        error = self.report(observations, values, note)
        if error is None and isinstance(found.error, OutOfDomain):
            raise ValueError(*found.error.args)
        if found.error is not None and not ended and error is None:
            raise found.error  # as the call would have done
        if not observations:
            self.learn(found)
        return error

    def audit(self, results: Sequence[Any]) -> RuntimeError | None:
        """Compute a call again that showed no sign; return an error if it was bad, or None."""
        spoiled = not self.policy.by_result or self.policy.is_spoiled(results)
        if self.looked == self.calls or not self.is_looked_at() or not spoiled:
            return None
        observations = self.second_run(self.values_before()).find().observations
        if not observations:
            return None
        reasons: dict[Variable, str] = {}
        for plan in self.plans():
            reasons |= plan.dropped
        reason = reasons.get(observations[0].variable, "")
        return missed_without_audit(observations[0], reason, REASONS.get(reason, ""))

    def second_run(
        self, values: Mapping[Variable, Any], ended: bool = True, whole: bool = False
    ) -> SecondRun:
        """Return a second run of a call from these values of its inputs.

        A call that has not ended is judged up to the first bad value: what follows could be harmed.
        If `whole`, the operations after it run as well.
        """
        policy = self.policy
        by_result = policy.by_result and ended
        return SecondRun(
            self.fgraph,
            self.plan.order,
            values,
            policy if by_result else replace(policy, judge="node"),
            self.role,
            self.kernels,
            constants=self.constants,
            live=self.live,
            graphs=self._graphs,
            first_only=policy.action == "raise" and not by_result and not whole,
            partly=self.plan.partly,
        )

    def rounded_otherwise(self, second: SecondRun, results: Sequence[Any]) -> Iterator[Observation]:
        """Yield an observation of each result that is bad, and that a second run gives otherwise.

        A bad result that the second run gives as well has been judged: it is excused or exempt.
        """
        for variable, value in zip(self.fgraph.outputs, results, strict=False):
            if self.policy.is_bad(value) and not self.policy.is_bad(second.replay.value(variable)):
                yield Observation.of(variable, value, self.policy)

    def report(
        self,
        observations: Iterable[Observation],
        values: Mapping[Variable, Any],
        lost: str | None = None,
    ) -> GuardError | None:
        """Do what the policy says; return the error to be raised, or None."""
        position = {node: i for i, node in enumerate(self.plan.order)}

        def place(
            observation: Observation,
        ) -> int:  # (with branches, the second run has another order)
            frames = observation.frames
            return position.get(frames[0].node if frames else observation.variable.owner, -1)

        overwritten = self.set_aside() if self.policy.calls_back else None
        self.acting = True
        error = self.handle(sorted(observations, key=place), values, self.live, lost)
        self.acting = False
        if overwritten is not None:
            self.take_up(overwritten)
        return error

    def set_aside(self) -> dict[Variable, Any]:
        """Put back what the call has overwritten, for a user's action that may call the function.

        Such a call ends before this one, which stores its updates last.  If the action raises, this
        call stores none, and what the action has done stays.

        Returns: dict of Variable to snapshot of the call.
        """
        overwritten = self.snapshots
        for snapshot in overwritten.values():
            snapshot.undo()
        self.snapshots = {}
        return overwritten

    def take_up(self, overwritten: dict[Variable, Any]) -> None:
        """Go on with the call that was set aside."""
        self.snapshots = overwritten
        self.stored[0] = False
        for snapshot in overwritten.values():
            snapshot.redo()

    def learn(self, found: Findings) -> None:
        """Nothing was wrong with a suspicious call: change the program by its :class:`Findings`."""

    # -- a call that has failed

    def failed(
        self, error: BaseException, raise_other: Callable[[BaseException], NoReturn]
    ) -> NoReturn:
        """Put everything back and raise the error that the user sees.

        - `error`: the error that has ended the call.
        - `raise_other`: raises `error` if it is not the guard's.
        - Raises ``BaseException``: `error`, or a :class:`GuardError` if it follows from a bad
          value.
        """
        values = self.values_before()
        self.put_back()
        self.snapshots = {}
        if (interruption := raised_by_signal_handler(error)) is not None:
            raise interruption
        acting, self.acting = self.acting, False
        if acting:
            raise error
        if (inside := raised_inside(error)) is not None:
            raise inside from None
        if not isinstance(error, Exception) or is_of_compiler(error):
            raise_other(error)
        ours, note = self.look_before(error, values)
        if ours is not None:
            raise ours from None
        try:
            raise_other(error)
        except Exception as final:  # another object, if PyTensor adds to the message
            if note is not None:
                put_note_first(final, note)
            raise

    def look_before(
        self, error: Exception, values: Mapping[Variable, Any]
    ) -> tuple[GuardError | None, str | None]:
        """Judge what was computed before another error was raised.

        JAX raises built-in exceptions while it traces the function.  If every operation runs by
        itself, JAX could not compile the function, and nothing has been computed.

        Returns
        -------
        GuardError or None
        str or None
            A note on where the other error was raised.
        """
        in_jax = is_raised_in(error, "jax._src.")
        second = self.second_run(values, ended=False, whole=in_jax)
        found = second.find()
        if in_jax and found.error is None:
            return None, None
        note = note_on_loss(self.plan.given_up) if self.plan.given_up else None
        ours = self.report(found.observations, values, note)
        replay, node = found.failed
        if ours is not None or node is None:
            return ours, None
        if isinstance(error, IndexError | ValueError) and type(error) is type(found.error):
            error.args = found.error.args  # Numba's code names neither the index nor the length

        def known() -> dict[Variable, Any]:
            return {v: replay.value(v) for v in (*replay.fgraph.inputs, *node.inputs)}

        return None, self.note_on(error, self.fgraph, node, known, frames_of(replay))


def is_of_compiler(error: BaseException) -> bool:
    """Whether a backend could not compile the function, so that nothing has been computed.

    Numba also raises built-in exceptions then.
    """
    is_its_own = type(error).__module__.startswith(("numba.", "jax."))
    return is_its_own or is_raised_in(error, "numba.core.")


def is_raised_in(error: BaseException, package: str) -> bool:
    """Whether an error was raised by a module of a package, whose name ends in a dot."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").startswith(package)


class FlaggedRuntime(JittedRuntime):
    """The guard of one function whose program has one result more, its flag.

    - `policy`, `recorder`, `plan`, `storage_map`: as for :class:`JittedRuntime`.
    - `compile`: ``compile(on_purpose)`` returns the program of every call, and how many values it
      reads, as :class:`~theanoguard.guard.graph.flagged.FlagWriter` has it; for None, one that
      reads nothing.
    - `kernels`: the backend's kernels; None if the subclass gives them.
    - `run`: the program.
    - `n_read`: how many values it reads.
    """

    def __init__(
        self,
        policy: Policy,
        recorder: Recorder,
        plan: FlaggedPlan,
        storage_map: Mapping[Variable, list],
        compile: Callable,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__(policy, recorder, plan, storage_map)
        self._compile = compile
        if kernels is not None:
            self.kernels = kernels
        self._on_purpose: frozenset[Variable] = frozenset()
        self._refinements = 0
        self.run, self.n_read = compile(self._on_purpose)

    @cached_property
    def plain(self) -> Callable:
        """The program that reads nothing."""
        return self._compile(None)[0]

    def call(self, values: list) -> tuple[Sequence[Any], Exception | None]:
        """Run the function, and read its flag.

        Returns
        -------
        list
            The results.
        GuardError or None
            The error to raise.
        """
        if not self.is_looked_at():
            return self.plain(*values)[:-1], None
        *results, flag = self.run(*values)
        if flag or self.enters_bad():
            error = self.look(self.values_before(), results)
            if error is not None:
                return results, error
        self.keep(results)
        return results, None

    def learn(self, found: Findings) -> None:
        """Read otherwise from now on where a healthy call had infinite values on purpose."""
        self._refinements += 1
        bad = found.noisy
        if self._refinements == REFINEMENTS:
            nodes = (plan.nodes[node] for plan in self.plans() for node in plan.order)
            bad = {*self.plan.inputs, *(v for node in nodes for _, v in node.checked())}
        if bad <= self._on_purpose:
            if found.is_bad_discarded:
                return
            logger.warning(
                "theanoguard: call %d of %s was suspicious, but no bad value was found when it was "
                "run again with a check behind every operation; please report this",
                self.calls,
                self.fgraph.name or "a function",
            )
            return
        self._on_purpose |= bad
        self.run, self.n_read = self._compile(self._on_purpose)


class JittedVM:
    """Runs a jitted function under its guard.

    - `inputs`: storage cells.
    - `raise_other`: ``raise_other(error)`` raises an error of the function.
    """

    allow_gc: bool | None
    storage_map: dict[Variable, list]
    lazy = False
    need_update_inputs = False  # ``Function`` would store them one after the other

    def __init__(
        self,
        guard: JittedRuntime,
        inputs: Sequence[list],
        raise_other: Callable[[BaseException], NoReturn],
    ) -> None:
        self.guard = guard
        self.inputs = inputs
        self._raise_other = raise_other

    def __call__(self) -> list:
        """Return the results, since an output may be a shared variable that the call updates."""
        guard, error = self.guard, None
        try:
            guard.open()
            values = [cell[0] for cell in self.inputs]
            results, error = guard.call(values)
            if guard.policy.audit and error is None:
                error = guard.audit(results)
            if error is not None:
                raise error from None
            return guard.ending(values, results)
        except BaseException as other:
            if error is other or guard.stored[0]:
                raise
            guard.failed(other, self._raise_other)
        finally:
            if not guard.stored[0]:
                guard.put_back()


class GuardedLinker:
    """Mixin of the linkers of backends that compile a function as a whole, with its checks.

    A subclass defines `backend`, its traits, and ``runtime(order, input_storage, storage_map)``,
    which returns the `JittedRuntime` of the function.

    Raises ``ImportError``: if a package that the backend needs is not installed.
    """

    backend: Backend
    runtime: Callable[..., JittedRuntime]
    fgraph: FunctionGraph
    allow_gc: bool | None
    schedule: Callable[[FunctionGraph], list[Apply]]

    def __init__(self, policy: Policy, recorder: Recorder, allow_gc: bool | None = None) -> None:
        if not self.backend.is_installed():
            raise ImportError(
                f"backend={self.backend.name!r} needs {self.backend.title}, which is not "
                f"installed.\nInstall it with: pip install {self.backend.package}"
            )
        super().__init__(allow_gc=allow_gc)  # type: ignore[call-arg]
        self.policy = policy
        self.recorder = recorder

    @classmethod
    def like(cls, linker: Any, policy: Policy, recorder: Recorder) -> "GuardedLinker":
        """Return a guarded linker with the settings of a linker of the same backend."""
        return cls(policy, recorder, linker.allow_gc)

    def accept(
        self,
        fgraph: FunctionGraph,
        no_recycling: Sequence[Variable] | None = None,
        profile: Any = None,
    ) -> "GuardedLinker":
        if self.fgraph is not None and self.fgraph is not fgraph:
            fresh = self.like(self, self.policy, self.recorder)
            return fresh.accept(fgraph, no_recycling, profile)
        return super().accept(fgraph, no_recycling, profile)  # type: ignore[misc]

    def make_all(
        self,
        input_storage: list[list] | None = None,
        output_storage: list[list] | None = None,
        storage_map: dict[Variable, list] | None = None,
    ) -> tuple:
        fgraph = self.fgraph
        order = self.schedule(fgraph)
        optimizers = guarded_optimizers(
            order, self.policy, lambda linker: GuardLinker.like(linker, self.policy, self.recorder)
        )
        for node, op in optimizers.items():
            node.op = op  # (the graph is this function's own)
        input_storage, output_storage, storage_map = map_storage(
            fgraph, order, input_storage, output_storage, storage_map
        )
        owners = [v.owner for v in fgraph.outputs if v.owner is not None][:1]

        def raise_other(error: BaseException) -> NoReturn:
            if owners and isinstance(error, Exception):
                raise_with_op(fgraph, owners[0], vm, (type(error), error, error.__traceback__))
            raise error

        guard = self.runtime(order, input_storage, storage_map)
        inputs = [storage_map[v] for v in fgraph.inputs]
        vm = JittedVM(guard, inputs, raise_other)
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
