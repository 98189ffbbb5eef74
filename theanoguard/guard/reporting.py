"""Reports bad values: makes events and explanations, and acts as the policy says.

A backend finds out which values were made bad (:mod:`~theanoguard.guard.verdict`).  It makes an
:class:`Observation` of each, in the order in which they were computed, and hands them to
``Reporter.handle``, with the values that the function's inputs had when the call began.
``handle`` returns an error, which the backend raises after it has put the shared variables back, or
None if the call goes on.  It raises nothing itself, except what a user's action raises.
"""

import copy
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

import theanoguard.explain as explaining
from theanoguard._event import Cause, Frame, GuardEvent, PathStep, Trip, cause_of
from theanoguard._provenance import Provenance, lookup
from theanoguard._pytensor import graph_errors, recording
from theanoguard._steps import attempt, failures
from theanoguard.explain.text import tracebacks
from theanoguard.explain.text.color import wants_color
from theanoguard.guard.carry import expected_infinities
from theanoguard.guard.errors import GuardError, report_text
from theanoguard.guard.policy import Counts, Policy
from theanoguard.guard.repeats import Repeats, beside_progress_bars, count_text

if TYPE_CHECKING:
    from theanoguard.explain import Explanation

logger = logging.getLogger("theanoguard")


def _note_on_input(error: BaseException, variable: Any, argument: Any) -> str:
    return explaining.render_failure(explaining.explain_input(error, variable, argument))


def _note_on_graph(fault: graph_errors.GraphFault) -> str:
    return explaining.note_on(fault)


recording.NOTES_ON_INPUTS.append(_note_on_input)
graph_errors.NOTES_ON_GRAPHS.append(_note_on_graph)


@dataclass
class Observation:
    """A bad value, as a backend has seen it."""

    #: The variable that held it: in the graph of ``frames[-1]``, or without frames in the
    #: function's graph.
    variable: Any
    counts: Counts  # the counts of its bad elements
    dtype: str
    shape: tuple[int, ...]
    role: str = "node"  # one of "node", "input", "shared", "constant"
    output: int = 0  # which output of its node it is
    frames: tuple[Frame, ...] = ()  # the inner graphs entered, outermost first
    value: Any = None  # the value itself, where the backend still has it

    @property
    def key(self) -> tuple:
        """The place of the bad value, the same in every step of a loop."""
        return (self.variable, *(frame.node for frame in self.frames))

    @classmethod
    def of(
        cls,
        variable: Variable,
        value: Any,
        policy: Policy,
        masks: Sequence[np.ndarray] | None = None,
        **rest: Any,
    ) -> "Observation":
        """Return the observation of a value at hand, with its bad elements in `masks`."""
        dtype = str(getattr(value, "dtype", type(value).__name__))
        shape = tuple(getattr(value, "shape", ()))
        return cls(variable, policy.count(value, masks), dtype, shape, value=value, **rest)


PLEASE_REPORT = (
    "This is a fault of theanoguard: please report it with the output of pytensor.dprint(function)."
)


def missed_without_audit(
    first: "Observation", reason: str | None = None, text: str = ""
) -> RuntimeError:
    """Return the error that only the audit has found an `Observation`.

    `reason` and `text` are the name of the rule by which its variable is not read, and what the
    rule says, where there is one.
    """
    place = first.variable.owner or first.variable
    rule = f", and it is left out by the rule {reason!r} ({text})" if reason else ""
    return RuntimeError(
        f"without the audit, {first.counts.value} at {first.counts.index} of {place} would be"
        f" missed: no flag was raised, and nothing that is read shows it{rule}.\n{PLEASE_REPORT}"
    )


class Log(Protocol):
    """Where events go besides the memory of a mode."""

    def describing(self, settings: dict[str, Any]) -> "Log": ...

    def start(self) -> None: ...

    def add(self, event: GuardEvent) -> None: ...

    def explain(self, explanation: "Explanation") -> None: ...


class Recorder:
    """A bounded buffer of events that several functions and threads may write to.

    - `size`: how many events are kept; older ones are dropped.
    - `log`: where each event goes as well.
    """

    def __init__(self, size: int | None, log: Log | None = None) -> None:
        self.events: deque[GuardEvent] = deque(maxlen=size)
        self.log = log

    def start(self) -> None:
        """Begin the log: a function that reports here has been compiled."""
        if self.log is not None:
            self.log.start()

    def add(self, event: GuardEvent) -> None:
        """Append an event; a deque with a bound does so atomically."""
        self.events.append(event)
        if self.log is not None:
            self.log.add(event)

    def explain(self, explanation: "Explanation") -> None:
        """Log the explanation of an event that was added."""
        if self.log is not None:
            self.log.explain(explanation)


MAX_KEPT = 64 * 1024  # largest number of bytes that are kept of the inputs of one call


class Reporter:
    """Turns the observations of one function into events, explanations and errors.

    - `recorder`: the mode's recorder.
    - `is_inner`: whether this is the reporter of an inner graph.
    """

    kernels: Any = None  # computes single nodes as the backend does; None for PyTensor's own code
    plan: Any

    def __init__(
        self, policy: Policy, recorder: Recorder, fgraph: FunctionGraph, is_inner: bool = False
    ) -> None:
        self.policy = policy
        self.recorder = recorder
        self.fgraph = fgraph
        self.own = Recorder(recorder.events.maxlen)
        tracebacks.install()
        if not is_inner:
            recorder.start()
        self.recording: Any = None  # of the calls, where the policy asks for it
        self.calls = 0
        self.next_kept = 1  # the call of which the inputs are kept next
        self.kept_calls: deque[tuple[int, dict[Variable, Any]]] = deque(maxlen=2)
        self.repeats = Repeats()
        self.last_way: tuple[GuardEvent | None, tuple] = (
            None,
            (),
        )  # the last event explained, and the way that led to it
        self.known: dict[
            Cause, Explanation | None
        ] = {}  # by cause, the explanation of its first event

    @staticmethod
    def role(variable: Variable) -> Literal["shared", "input"]:
        """Return whether an input of the graph is the caller's or a shared variable."""
        return "shared" if isinstance(variable, SharedVariable) else "input"

    def keep_inputs(self, cells: Mapping[Variable, list]) -> None:
        """Keep copies of what the inputs hold as a call begins, so far as they are small.

        Calls 1, 2, 4, 8, ... are kept, so a function that is called often does not get slower.
        Nothing is kept if an argument is large or no array.  Shared variables may be left out.
        """
        self.next_kept = 2 * self.calls
        kept: dict[Variable, Any] = {}
        left = MAX_KEPT
        for variable in sorted(cells, key=self.role):  # (arguments come first)
            value = cells[variable][0]
            left -= value.nbytes if isinstance(value, np.ndarray | np.generic) else left + 1
            if left >= 0:
                kept[variable] = value.copy()
            elif self.role(variable) == "input":
                return
            else:
                break
        self.kept_calls.append((self.calls, kept))

    def earlier_inputs(self) -> dict[Variable, Any]:
        """Return the inputs that were kept of the last call before this one, or nothing."""
        found = (kept for call, kept in reversed(self.kept_calls) if call < self.calls)
        return next(found, {})

    def in_flight(self) -> tuple[int | None, int | None]:
        """Return how many calls have not been looked at yet, and the bytes kept for them."""
        return None, None

    def handle(
        self,
        observations: Iterable[Observation],
        inputs: Mapping[Variable, Any],
        live: Mapping | None = None,
        lost: str | None = None,
        computed: Mapping[Variable, Any] | None = None,
    ) -> GuardError | None:
        """Report bad values as the policy says; return the error to be raised, or None.

        - `observations`: list of Observation in the order in which they were made.
        - `inputs`: the values that the inputs of the function's graph had when the call began.
        - `live`: outputs of nodes that the explanation must not run again, as ``Replay`` takes
          them.
        - `lost`: why nothing can be computed again from `inputs`; None if it can.
        - `computed`: values of other variables that have been computed again, as the explanation
          would.
        """
        for observation in observations:
            trip = self.trip_of(observation, inputs, live)
            error = self.act_on(replace(trip, lost=lost, computed=computed or {}))
            if error is not None:
                return error
        return None

    def plans(self) -> list[Any]:
        """Return the plans of all graphs of the function."""
        return list(self.plan.plans())

    def note_on(
        self,
        error: BaseException,
        fgraph: FunctionGraph,
        node: Apply,
        values: Callable[[], Mapping[Variable, Any]],
        frames: Sequence[Frame] = (),
    ) -> str | None:
        """Return a note on an error that a node has raised, or None if that fails.

        `values`: returns the known values of the call.
        """
        try:
            told = explaining.explain_exception(error, fgraph, node, values(), frames)
            return explaining.render_failure(told)
        except Exception:
            logger.exception("theanoguard: the error could not be explained; please report this")
            return None

    def left_bad(self, results: Sequence[Any]) -> list[Observation]:
        """Return an observation of each shared variable that a call has made bad for good.

        `results`: the outputs and updates of the call.
        """
        return [
            Observation.of(self.fgraph.outputs[i], results[i], self.policy)
            for v, i in self.plan.updates().items()
            if v in self.plan.given_up
            and self.plan.is_checked_input(v)
            and self.policy.is_bad(results[i])
        ]

    def bad_results(self, results: Sequence[Any]) -> list[Observation]:
        """Return an observation of each bad output or update of a call that cannot be repeated."""
        left_out = expected_infinities(self.plan.order)
        return [
            Observation.of(v, result, self.policy)
            for v, result in zip(self.fgraph.outputs, results, strict=False)
            if v not in left_out and not self.plan.is_exempt(v) and self.policy.is_bad(result)
        ]

    def trip_of(
        self,
        observation: "Observation",
        inputs: Mapping[Variable, Any],
        live: Mapping | None = None,
    ) -> Trip:
        """Return the :class:`Trip` of an observation in this function."""
        counts, variable = observation.counts, observation.variable
        node = variable.owner if observation.role == "node" else None
        event = counts.event(
            role=observation.role,
            node=None if node is None else str(node),
            op=None if node is None else str(node.op),
            variable=variable.name,
            output=observation.output,
            dtype=observation.dtype,
            shape=observation.shape,
            path=tuple(PathStep(str(frame.node.op), frame.step) for frame in observation.frames),
            call=self.calls,
            function=self.fgraph.name,
            update_of=None if node is None or observation.frames else self.named_update(variable),
        )
        kinds = {"nan": slice(0, 1), "inf": slice(1, 2), "big": slice(1, 3)}[counts.kind]

        def is_bad(
            array: np.ndarray,
        ) -> np.ndarray:  # other kinds of bad value in it have causes of their own
            return np.logical_or.reduce(self.policy.kinds(array, everything=True)[kinds])

        return Trip(
            event=event,
            fgraph=self.fgraph,
            inputs=inputs,
            variable=variable,
            value=observation.value,
            is_bad=is_bad,
            frames=list(observation.frames),
            live=live or {},
            guarded=self.policy.mask,
            kernels=lambda: self.kernels,
            earlier=self.earlier_inputs(),
            counts_as_big=counts.kind == "inf" and not self.policy.inf,
        )

    def named_update(self, variable: Variable) -> str | None:
        """Return the name of the shared variable whose new value a variable is, or None."""
        updates = getattr(self.fgraph, "update_mapping", None) or {}
        updated = (
            updates[i]
            for i, out in enumerate(self.fgraph.outputs)
            if out is variable and i in updates
        )
        return next((self.fgraph.inputs[i].name for i in updated), None)

    def act_on(self, trip: Trip) -> GuardError | None:
        """Do what the policy says about a trip; return the error to be raised, or None."""
        event = trip.event
        event.attach(self.known.get(_cause_of(trip)), event.line)
        self.own.add(event)
        self.recorder.add(event)
        action = self.policy.action
        # One log record per event.  Only "warn" has no other way to reach the user.  The other
        # actions log at level INFO, so that nobody reads the same event twice.
        if action == "warn":
            self.warn(trip)
            return None
        logger.info("%s", GuardError(event), extra={"event": event})
        if action == "raise":
            return self.explained(trip)
        self.explain_once(trip)
        if callable(action):
            action(event)
        elif action == "pdb":
            found = self.explained(trip)
            import pdb

            color = wants_color(sys.stderr)
            report = report_text(event, found.explanation, color=color)
            print(report, *getattr(found, "__notes__", ()), sep="\n", file=sys.stderr)
            pdb.set_trace()
        return None

    def warn(self, trip: Trip) -> None:
        """Log a trip: in full the first time, and a count each time that it has doubled."""
        event, cause = trip.event, _cause_of(trip)
        if not self.repeats.is_due(cause):
            logger.info("%s", GuardError(event), extra={"event": event})
            return
        count = self.repeats.count(cause)
        if count == 1:
            said = _with_notes(self.explained(trip))
            self.known[cause] = event.explanation
        else:
            known = event.explanation
            brief = str(GuardError(event)) if known is None else known.brief
            said = count_text(brief, count, event.call)
        with beside_progress_bars():
            logger.warning("%s", said, extra={"event": event})

    def explained(self, trip: Trip) -> GuardError:
        """Return the :class:`GuardError` of a trip, with its explanation, which is logged.

        If the explanation fails, that is logged and the error comes without one.
        """
        error = GuardError(trip.event, None, self.recording)
        if trip.lost is not None:
            trip.event.attach(None, trip.event.line or _line_of(trip))
            error.add_note(trip.lost)
            return error
        try:
            explanation = explaining.explanation_of(trip, tell_fate=self.policy.tell_fate)
            if self.recording is not None:
                explanation = self.recording.explained(explanation, self.policy.action == "raise")
            error = GuardError(trip.event, explanation, self.recording)
            self.last_way = trip.event, explanation.waypoints
            trip.event.attach(_without_values(explanation))
            self.recorder.explain(explanation)
        except Exception:
            logger.exception("theanoguard: the trip could not be explained; please report this")
            trip.event.attach(None, _line_of(trip))
        return error

    def explain_once(self, trip: Trip) -> None:
        """Explain the first event of each cause; its later events get the same explanation."""
        cause = _cause_of(trip)
        if cause not in self.known:
            self.explained(trip)
            self.known[cause] = trip.event.explanation


def put_note_first(error: BaseException, note: str) -> None:
    """Give an error a note that stands before its other notes."""
    error.__notes__ = [note, *getattr(error, "__notes__", ())]


def note_on_loss(variables: Iterable[Variable]) -> str:
    """Return the note on a bad value that showed after a call had overwritten these variables."""
    names = ", ".join(sorted(v.name or str(v) for v in variables))
    return (
        f"The call had overwritten {names} when this value showed (restore=False): they hold what"
        " the call wrote, and the operation cannot be explained.\n"
        "Set them to an earlier state.  To have the operation explained, run the same calls with"
        " restore=True."
    )


def _cause_of(trip: Trip) -> Cause:
    """Return the cause of an event, also by the variable: nodes may print alike."""
    kind, place = cause_of(trip.event)
    return kind, (*place, trip.variable)


def _with_notes(error: GuardError) -> str:
    """Return the report of an error and its notes, as a traceback shows them."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _line_of(trip: Trip) -> Any:
    """Return the user's line; None if it is not known, or cannot be found because of a fault."""
    with failures():
        fgraph = trip.frames[-1].fgraph if trip.frames else trip.fgraph
        return attempt("the line", Provenance(None), lookup, fgraph, trip.variable).source


def _without_values(explanation: "Explanation") -> "Explanation":
    """Return an explanation for an event that is kept: it must not keep the inputs of the call."""
    if explanation.repro is None:
        return explanation
    return replace(explanation, repro=replace(explanation.repro, call=None))


# How what an object holds is read and set.  (To copy a random generator takes much longer.)
_STATES: dict[type, tuple[Callable, Callable | None]] = {
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    np.random.RandomState: (
        lambda generator: generator.get_state(legacy=False),
        np.random.RandomState.set_state,
    ),
    np.ndarray: (lambda array: array.copy(order="K"), np.copyto),
}


class Snapshot:
    """The old value of a storage cell.  Calling it puts the value back, into the same array.

    `buffer`: where an array may be copied to, if it has the array's shape.
    """

    def __init__(self, cell: list, buffer: np.ndarray | None = None) -> None:
        self._cell = cell
        self.value = cell[0]
        kind = np.ndarray if isinstance(self.value, np.ndarray) else type(self.value)
        read, self._set_state = _STATES.get(kind, (copy.deepcopy, None))
        if kind is np.ndarray and not self.value.flags.writeable:
            self._set_state = None
        self._read = read
        if buffer is not None and buffer.shape == self.value.shape:
            np.copyto(buffer, self.value)
            self._before: Any = buffer
        else:
            self._before = read(self.value)
        self._after: list = []  # what `undo` has replaced

    def old(self) -> Any:
        """Return a value equal to the old one."""
        if self._set_state is None:
            return self._before
        value = copy.deepcopy(self.value)
        self._set_state(value, self._before)
        return value

    def __call__(self) -> None:
        self._put(self._before)

    def _put(self, state: Any) -> None:
        if self._set_state is None:
            self._cell[0] = state
        else:
            self._set_state(self.value, state)
            self._cell[0] = self.value

    def undo(self) -> None:
        """Put the old value back, and keep the present one; may be repeated."""
        if not self._after:
            self._after = [self._cell[0] if self._set_state is None else self._read(self.value)]
        self()

    def redo(self) -> None:
        """Take that back; may be repeated."""
        self._put(*self._after)
