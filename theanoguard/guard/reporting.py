"""What becomes of a bad value: its event, its explanation, and what the policy says to do."""

import copy
import logging
import pdb
import sys
from collections import deque

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from theanoguard._event import GuardEvent, PathStep, Trip
from theanoguard.explain import explain, render_text
from theanoguard.explain.color import wants_color
from theanoguard.guard.errors import GuardError

logger = logging.getLogger("theanoguard")


class Tripped(Exception):
    """Stops a virtual machine; the outermost guard turns it into a :class:`GuardError`."""


class Recorder:
    """A bounded buffer of events that several functions and threads may write to.

    Parameters
    ----------
    size : int
        How many events are kept; older ones are dropped.
    log : EventLog or None
        Where each event goes as well.
    """

    def __init__(self, size, log=None):
        self.events = deque(maxlen=size)
        self.log = log

    def start(self):
        """A function that reports here has been compiled."""
        if self.log is not None:
            self.log.start()

    def add(self, event):
        """Append an event; a deque with a bound does so atomically."""
        self.events.append(event)
        if self.log is not None:
            self.log.add(event)

    def explain(self, explanation):
        """An event that was added has been explained."""
        if self.log is not None:
            self.log.explain(explanation)


class Reporter:
    """Reports the bad values of one compiled graph.

    Its subclasses know a backend; they give ``values_before()``, the values of the inputs of
    the graph as they were when the call began, by variable.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
        Of the mode.
    plan : Plan
    is_inner : bool
        Whether another reporter stands outside.
    """

    def __init__(self, policy, recorder, plan, is_inner=False):
        self.policy = policy
        self.recorder = recorder
        self.plan = plan
        self.fgraph = plan.fgraph
        self.own = Recorder(recorder.events.maxlen)
        if not is_inner:
            recorder.start()
        self.calls = 0
        self.pending = None  # the trip, or the error of an action, on its way out
        self.logged = set()  # what the log has an explanation of, with actions that make none
        self.bad_nodes = set()  # in this call, for actions that go on

    @staticmethod
    def role(variable):
        """Return whether an input of the graph is the caller's or a shared variable."""
        return "shared" if isinstance(variable, SharedVariable) else "input"

    def follows_bad(self, node):
        """Whether something that has been reported lies upstream of `node`."""
        todo, seen = [node], set()
        while todo:
            current = todo.pop()
            if current in self.bad_nodes:
                return True
            for variable in current.inputs:
                if variable in self.bad_nodes:
                    return True
                if variable.owner is not None and variable.owner not in seen:
                    seen.add(variable.owner)
                    todo.append(variable.owner)
        return False

    def make_trip(self, counts, variable, value, dtype, shape, role, output, frames):
        """Return the `Trip` of a bad value, of which `counts` tells, in the graph of a function."""
        node = variable.owner
        event = GuardEvent(
            kind=counts.kind,
            role=role,
            node=None if node is None else str(node),
            op=None if node is None else str(node.op),
            variable=variable.name,
            output=output,
            dtype=dtype,
            shape=shape,
            size=counts.size,
            n_nan=counts.n_nan,
            n_posinf=counts.n_posinf,
            n_neginf=counts.n_neginf,
            n_big=counts.n_big,
            first_index=counts.index,
            first_value=counts.value,
            path=tuple(PathStep(str(frame.node.op), frame.step) for frame in frames),
            call=self.calls,
            function=self.fgraph.name,
        )
        return Trip(
            event=event,
            fgraph=self.fgraph,
            inputs=self.values_before(),
            variable=variable,
            value=value,
            is_bad=self.policy.mask,
            frames=list(frames),
        )

    def act(self, trip):
        """Do what the policy says about a trip of the outermost graph."""
        event = trip.event
        self.own.add(event)
        self.recorder.add(event)
        action = self.policy.action
        # One record per trip.  Only "warn" has no other way to the user: what is raised,
        # kept or handed on is not told a second time unless INFO is asked for.
        if action == "warn":
            logger.warning("%s", self.explained(trip), extra={"event": event})
        else:
            logger.info("%s", GuardError(event), extra={"event": event})
            if action != "raise":
                self.explain_once(trip)
        if action == "raise":
            self.pending = trip
            raise Tripped
        if callable(action):
            try:
                action(event)
            except BaseException as error:
                self.pending = error
                raise
        elif action == "pdb":
            found = self.explained(trip)
            color = wants_color(sys.stderr)
            print(render_text(event, found.explanation, color=color), file=sys.stderr)
            pdb.set_trace()

    def explained(self, trip):
        """Return the :class:`GuardError` of a trip, with its explanation, which is logged.

        A trip is never lost to a fault of the explanation, which is reported beside it.
        """
        error = GuardError(trip.event)
        try:
            error = GuardError(trip.event, explain(trip, masked=self.policy.fate))
            self.recorder.explain(error.explanation)
        except Exception:
            logger.exception("theanoguard: the trip could not be explained; please report this")
        return error

    def explain_once(self, trip):
        """Explain the first trip of each node for the log, where the action asks for none."""
        event = trip.event
        key = (event.kind, event.role, event.node, event.output, tuple(s.op for s in event.path))
        if self.recorder.log is not None and key not in self.logged:
            self.logged.add(key)
            self.explained(trip)


# How the state of a random generator is read and set; to copy one takes much longer.
_RANDOM_STATES = {
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    np.random.RandomState: (
        lambda generator: generator.get_state(legacy=False),
        np.random.RandomState.set_state,
    ),
}


class Snapshot:
    """The value of a storage cell that is no array, as it was; calling it puts it back.

    Parameters
    ----------
    cell : list
    """

    def __init__(self, cell):
        self._cell = cell
        self.value = cell[0]
        read, self._set_state = _RANDOM_STATES.get(type(self.value), (copy.deepcopy, None))
        self._before = read(self.value)

    def old(self):
        """Return a value equal to the one that was there."""
        if self._set_state is None:
            return self._before
        value = copy.deepcopy(self.value)
        self._set_state(value, self._before)
        return value

    def __call__(self):
        if self._set_state is None:
            self._cell[0] = self._before
        else:
            self._set_state(self.value, self._before)
            self._cell[0] = self.value
