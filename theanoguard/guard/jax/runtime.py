"""The guard of a function that JAX compiles: when its flag is read, and what follows then.

JAX returns before it has computed.  Whoever reads the flag of a call waits for its end, so on a
device of its own the flags are read later (``when="later"``).  The function carries a *history*
from call to call: a number whose bits are the flags of its last calls.  Arrays of JAX's cannot
change, so the inputs of the calls whose flags have not been read are simply kept.
"""

import atexit
import itertools
import logging
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.link.basic import Container
from pytensor.tensor.type import TensorType

from theanoguard.guard.graph.runtime import FlaggedRuntime

logger = logging.getLogger("theanoguard")

# How much of a device's memory the inputs of calls in flight may take, and how many bytes where
# its size is not known.
SHARE, UNKNOWN = 0.1, 1 << 30

# How many calls the device may be behind before it is waited for.
AHEAD = 2

_order = itertools.count()
_in_flight: dict["JaxRuntime", None] = {}  # what has calls in flight is kept alive


@dataclass(slots=True)
class Call:
    """A call whose flag has not been read.

    Parameters
    ----------
    number : int
        Of the function's calls.
    values : tuple
        Of its inputs.
    results : list
        Of its outputs and updates.
    order : int
        Among the calls of all functions.
    began : float
        By ``time.monotonic``.
    suspicious : bool
        Whether its flag is raised.
    """

    number: int
    values: tuple
    results: list
    order: int = field(default_factory=lambda: next(_order))
    began: float = field(default_factory=time.monotonic)
    suspicious: bool = False


@dataclass(frozen=True)
class Programs:
    """What is compiled of a function, each when it is first needed.

    Parameters
    ----------
    flagged : callable
        ``flagged(on_purpose)`` returns the program of every call and how many values it reads.
        The program takes the values of the inputs and the history; it returns those of the outputs
        and the history.  For None, it is without a flag and a history.
    kernels : callable
        Returns what computes single nodes.
    no_history : callable
        Returns the history of a function that has not been called.
    own_copy : callable
        Returns the value of an input as one that nobody else can change.
    held_bytes : callable
        Returns how much memory values take.
    device : Device
        Of JAX.
    """

    flagged: Any
    kernels: Any
    no_history: Any
    own_copy: Any
    held_bytes: Any
    device: Any


class JaxRuntime(FlaggedRuntime):
    """The guard of one function that JAX compiles.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    part : Part
    storage_map : dict of Variable to list
    programs : Programs
    """

    def __init__(self, policy, recorder, part, storage_map, programs):
        super().__init__(policy, recorder, part, storage_map, programs.flagged)
        self._programs = programs
        self._history = programs.no_history()
        self._is_far = programs.device.platform != "cpu"
        later = policy.when == "later" or (policy.when is None and self._is_far)
        self.later = later and not policy.audit
        self._calls: deque[Call] = deque()
        self._suspects: list[Call] = []  # suspicious ones, and healthy ones after the first
        self._probe = None  # a history on its way, and how many of the calls it covers
        self._limit = held_limit(programs.device)
        self.held = 0  # bytes, when it was last looked at
        updates = getattr(self.fgraph, "update_mapping", None) or {}
        self._becomes = {self.fgraph.inputs[i]: output for output, i in updates.items()}
        if self.later:
            watch_containers(self)

    @cached_property
    def kernels(self):
        """What computes single nodes."""
        return self._programs.kernels()

    # -- calls

    def call(self, values):
        """Run the function, and look at the flags that have to be read.

        Returns
        -------
        list
            The results.
        GuardError or None
            To be raised: of this call, or of an earlier one, of another function perhaps.
        """
        if not self.is_looked_at():
            return self.plain(*values), None
        suspicious, error = self.begin()
        if error is None and self.later:
            error = self._read_what_is_due()
            values = tuple(map(self._programs.own_copy, values))
        if error is not None:
            return (), error
        *results, self._history = self.run(*values, self._history)
        if not self.later:
            if self._is_far:
                self._history.copy_to_host_async()
            suspicious = suspicious or np.asarray(self._history).item() & 1
        if suspicious or self.later:
            call = Call(self.calls, values, results, suspicious=bool(suspicious))
            if suspicious:
                self._suspects.append(call)
                error = self.read()
            else:
                if not self._calls:
                    _in_flight[self] = None
                self._calls.append(call)
        if error is None:
            self.keep(results)
        return results, error

    def begin(self):
        """Return whether something bad enters the call, and the error of an earlier one."""
        changed = self.changed()
        if self._calls and changed:  # what is bad there may come from an earlier call
            error = self.read()
            if error is not None:
                return False, error
        return bool(self.constants) or any(
            self.policy.is_bad(self.cells[v][0]) for v in changed
        ), None

    def _read_what_is_due(self):
        """Read flags if it is time, those of the last calls excepted; return the first error.

        A device that is a call or two behind has computed the others, so that it need not be
        waited for.  To read takes as long as to start a few calls: it is done as seldom as allowed.
        """
        calls, policy = self._calls, self.policy
        if not calls:
            return None
        is_due = (
            len(calls) >= policy.delay_calls
            or time.monotonic() - calls[0].began > 1e-3 * policy.delay_ms
        )
        if self._probe is None and (is_due or len(calls) == policy.delay_calls - AHEAD):
            self._history.copy_to_host_async()  # until it is read, it will have arrived
            self._probe = self._history, len(calls)
            self.held = self._held_about()
            is_due = is_due or self.held > self._limit
        if is_due:
            self._sort_out(*self._probe)
            if self._suspects:
                return self.read()
        return None

    def _held_about(self):
        """Return about how many bytes are kept; to count those of each call would take too long."""
        last = [(call.values, call.results) for call in itertools.islice(reversed(self._calls), 2)]
        one, both = map(self._programs.held_bytes, (last[:1], last))
        return one + (len(self._calls) - 1) * (both - one)

    def _sort_out(self, history, n):
        """Read the flags of the first `n` calls in flight, and keep what is suspicious."""
        self._probe = None
        flags = np.asarray(history).item()
        for age in reversed(range(n)):
            call = self._calls.popleft()
            call.suspicious = bool(flags >> age & 1)
            if call.suspicious or self._suspects:
                self._suspects.append(call)
        if not self._calls:
            _in_flight.pop(self, None)

    def read(self):
        """Read the flags of all calls in flight; return the error of the first bad one, or None.

        If anything was, the calls of other functions are looked at as well: the first bad call of
        all is the one to report.
        """
        self._read_all()
        if not self._suspects:
            return None
        guards = [self, *_in_flight]
        for guard in guards:
            guard._read_all()
        while found := [(c.order, g) for g in guards for c in g._suspects]:
            guard = min(found, key=lambda one: one[0])[1]
            call = guard._suspects.pop(0)
            error = guard.examine(call) if call.suspicious else None
            if error is not None:
                return error
        return None

    def _read_all(self):
        if self._calls:
            self._sort_out(self._history, len(self._calls))

    # -- a suspicious call

    def examine(self, call):
        """Look at a call again; return the error to be raised, or None."""
        number, self.calls = self.calls, call.number
        values = dict(zip(self.fgraph.inputs, call.values, strict=True))
        try:
            error = self.look(as_numpy(values), call.results)
        except BaseException:
            self._put_back(call)
            raise
        finally:
            self.calls = number
        if error is not None:
            self._put_back(call)
        return error

    def values_before(self):
        return as_numpy(super().values_before())

    def _put_back(self, call):
        """Give shared variables the values of before a call, and forget the calls after it."""
        if not self.later:
            return
        after = [c for c in (*self._suspects, *self._calls) if c.order > call.order]
        after.sort(key=lambda c: c.order)
        for i, variable in enumerate(self.fgraph.inputs):
            output = self._becomes.get(variable)
            if output is None:
                continue
            value, left = call.values[i], call.results[output]
            for later in after:
                if later.values[i] is not left:
                    value = later.values[i]  # somebody else has set it in between
                left = later.results[output]
            if self.cells[variable][0] is left:
                self.cells[variable][0] = value
        shared = {id(self.cells[v]) for v in self._becomes}
        for guard in {self: None, **_in_flight}:
            if guard is self or not shared.isdisjoint(map(id, guard.cells.values())):
                guard.forget_after(call.order)

    def forget_after(self, order):
        """Forget the calls after one of which everything has been undone."""
        if self._calls and self._calls[-1].order > order:
            self._read_all()  # the history would not fit any more
        self._suspects = [c for c in self._suspects if c.order < order]

    def updated(self):
        """Return the shared variables that the function updates."""
        return [v for v in self._becomes if isinstance(v, SharedVariable)]

    def in_flight(self):
        """Return how many calls are in flight, and how many bytes are kept for them."""
        held = [(call.values, call.results) for call in self._calls]
        return len(held), self._programs.held_bytes(held)


def as_numpy(values):
    """Return the values of variables in the types that PyTensor gives them."""
    return {
        v: np.asarray(value, v.type.dtype) if isinstance(v.type, TensorType) else value
        for v, value in values.items()
    }


def held_limit(device):
    """Return how many bytes may be kept for calls in flight on a device."""
    known = device.memory_stats() or {}
    return SHARE * known["bytes_limit"] if "bytes_limit" in known else UNKNOWN


# ---------------------------------------------------------------- reading at the latest


def sync():
    """Wait for all guarded calls that are in flight, and raise the error of the first bad one.

    Only functions under ``GuardMode(when="later")`` have such calls.  The flags are also read when
    a shared variable is read that they update, and when the interpreter exits.

    Raises
    ------
    GuardError

    Examples
    --------
    >>> import theanoguard
    >>> theanoguard.sync()
    """
    raise_first(list(_in_flight))


def raise_first(guards):
    """Read the flags of all calls in flight, and raise the first error."""
    for guard in guards:
        error = guard.read()
        if error is not None:
            raise error


@lru_cache(maxsize=1)
def sync_at_exit():
    """Have :func:`sync` called when the interpreter exits, before JAX cleans up."""
    atexit.register(sync)


_watchers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class WatchedContainer(Container):
    """A container of a shared variable that is read when the calls which update it are known good.

    It is the variable's own container; only its class has been changed.  Copies and pickles are
    plain containers.
    """

    def _read(self):
        raise_first(list(_watchers.get(self, ())))
        return self.storage[0]

    data = property(_read, Container.__set__)
    value = property(_read, Container.__set__)

    def __reduce_ex__(self, protocol):
        return plain_container, (self.__dict__,)


def plain_container(state):
    """Return a container that nobody watches."""
    container = Container.__new__(Container)
    container.__dict__.update(state)
    return container


def watch_containers(guard):
    """Have the flags of a guard read when a shared variable is that its function updates."""
    sync_at_exit()
    for variable in guard.updated():
        container = variable.container
        if container.storage is guard.cells[variable]:
            container.__class__ = WatchedContainer
            _watchers.setdefault(container, weakref.WeakSet()).add(guard)
