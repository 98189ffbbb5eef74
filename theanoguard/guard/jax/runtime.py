"""The guard of a function that JAX compiles: when it reads the flag, and what it does then.

JAX returns before the computation has finished.  Reading the flag of a call waits until the call
has finished.  So on a separate device, the flags are read later (``when="later"``).  Then the
function passes a *history* from call to call: an integer whose bits are the flags of its last
calls.  JAX arrays are immutable, so the guard simply keeps the inputs of calls whose flags are
unread.
"""

import atexit
import itertools
import logging
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import Container, take_class
from theanoguard.guard.errors import GuardError
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.graph.runtime import FlaggedRuntime
from theanoguard.guard.policy import Policy
from theanoguard.guard.reporting import Recorder

logger = logging.getLogger("theanoguard")

# The share of a device's memory that the inputs of calls in flight may occupy, and the number of
# bytes if the size of the memory is not known.
SHARE, UNKNOWN = 0.1, 1 << 30

# The copy of the history to the host starts this number of calls before the flags are due.  So the
# device may be that many calls behind without the host waiting for it.
AHEAD = 2
DELAY_CALLS = 10  # at the latest after so many calls the flags are read, and after so many seconds
DELAY_SECONDS = 1.0

_order = itertools.count()
_in_flight: dict["JaxRuntime", None] = {}  # keeps guards alive while they have calls in flight


@dataclass(slots=True)
class Call:
    """A call whose flag has not been read."""

    number: int  # number of the call, among the function's calls
    values: tuple  # values of its inputs
    results: list  # values of its outputs and updates
    #: Number of the call, among the calls of all functions.
    order: int = field(default_factory=lambda: next(_order))
    #: Start of the call, from ``time.monotonic``.
    began: float = field(default_factory=time.monotonic)
    suspicious: bool = False  # whether its flag is raised


@dataclass(frozen=True)
class Programs:
    """The compiled programs of a function; each is compiled on first use."""

    #: ``flagged(on_purpose)`` returns the program of every call, and the number of values that it
    #: checks.  The program takes the values of the inputs, and returns the values of the outputs
    #: and the flag.  With `later` it takes and returns the history instead.  ``flagged(None)``
    #: returns the program without a flag and a history.
    flagged: Any
    later: bool  # whether flags are read later
    kernels: Any  # returns the kernels that compute single nodes
    no_history: Any  # returns the history of a function that has not been called
    own_copy: Any  # returns the value of an input as a value that no other code can change
    held_bytes: Any  # returns the bytes that values occupy
    device: Any  # JAX's device


class JaxRuntime(FlaggedRuntime):
    """The guard of one function that JAX compiles."""

    def __init__(
        self,
        policy: Policy,
        recorder: Recorder,
        plan: FlaggedPlan,
        storage_map: Mapping[Variable, list],
        programs: Programs,
    ) -> None:
        super().__init__(policy, recorder, plan, storage_map, programs.flagged)
        self._programs = programs
        self._is_far = is_far(programs.device)
        self.later = programs.later
        self._history: Any = programs.no_history() if self.later else None
        self._calls: deque[Call] = deque()
        self._suspects: list[Call] = []  # the first suspicious call and all calls after it
        self._probe: tuple[Any, int] | None = (
            None  # a history being copied to the host, and the number of calls in it
        )
        self._limit = held_limit(programs.device)
        self.held = 0  # bytes kept for calls in flight, when last measured
        self._becomes = plan.updates()
        if self.later:
            watch_containers(self)

    @cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        """The kernels that compute single nodes."""
        return self._programs.kernels()

    # -- calls

    def call(self, values: Sequence[Any]) -> tuple[Sequence[Any], GuardError | None]:
        """Run the function, and read the flags that are due.

        Returns
        -------
        list
            The results.
        GuardError or None
            The error to raise.  It may belong to this call or to an earlier one, even of another
            function.
        """
        if not self.is_looked_at():
            return self.plain(*values), None
        suspicious, error = self.begin()
        if error is None and self.later:
            error = self._read_what_is_due()
            values = tuple(map(self._programs.own_copy, values))
        if error is not None:
            return (), error
        if self.later:
            *results, self._history = self.run(*values, self._history)
        else:
            *results, flag = self.run(*values)
            if self._is_far:
                flag.copy_to_host_async()
            suspicious = suspicious or np.asarray(flag).item()
        if suspicious or self.later:
            call = Call(self.calls, tuple(values), results, suspicious=bool(suspicious))
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

    def begin(self) -> tuple[bool, GuardError | None]:
        """Return whether an input of the call is bad, and the error of an earlier call."""
        changed = self.changed()
        if self._calls and changed:  # a bad input may be the result of an earlier call
            error = self.read()
            if error is not None:
                return False, error
        return bool(self.constants) or any(
            self.policy.is_bad(self.cells[v][0]) for v in changed
        ), None

    def _read_what_is_due(self) -> GuardError | None:
        """Read the flags of earlier calls if it is time to; return the first error.

        The device is usually a call or two behind.  It has finished the earlier calls, so reading
        their flags does not wait.  Reading takes as long as starting a few calls, so it is done as
        rarely as the delay allows.
        """
        calls = self._calls
        if not calls:
            return None
        is_due = len(calls) >= DELAY_CALLS or time.monotonic() - calls[0].began > DELAY_SECONDS
        if self._probe is None and (is_due or len(calls) == DELAY_CALLS - AHEAD):
            self._history.copy_to_host_async()  # the copy is finished by the time it is read
            self._probe = self._history, len(calls)
            self.held = self._held_about()
            is_due = is_due or self.held > self._limit
        if is_due and self._probe is not None:
            self._sort_out(*self._probe)
            if self._suspects:
                return self.read()
        return None

    def _held_about(self) -> int:
        """Estimate the bytes kept from the last two calls; counting all calls takes too long."""
        last = [(call.values, call.results) for call in itertools.islice(reversed(self._calls), 2)]
        one, both = map(self._programs.held_bytes, (last[:1], last))
        return one + (len(self._calls) - 1) * (both - one)

    def _sort_out(self, history: Any, n: int) -> None:
        """Read the flags of the first `n` calls in flight, and keep the suspicious calls."""
        self._probe = None
        flags = np.asarray(history).item()
        for age in reversed(range(n)):
            call = self._calls.popleft()
            call.suspicious = bool(flags >> age & 1)
            if call.suspicious or self._suspects:
                self._suspects.append(call)
        if not self._calls:
            _in_flight.pop(self, None)

    def read(self) -> GuardError | None:
        """Read the flags of all calls in flight; return the error of the first bad one, or None.

        If any flag is raised, the calls of other functions are examined as well, because the first
        bad call of all functions has to be reported.
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

    def _read_all(self) -> None:
        if self._calls:
            self._sort_out(self._history, len(self._calls))

    # -- a suspicious call

    def examine(self, call: Call) -> GuardError | None:
        """Replay a suspicious call; return the error to raise, or None."""
        number, self.calls = self.calls, call.number
        values = dict(zip(self.fgraph.inputs, call.values, strict=True))
        try:
            error = self.look(all_as_numpy(values), call.results)
        except BaseException:
            self._put_back(call)
            raise
        finally:
            self.calls = number
        if error is not None:
            self._put_back(call)
        return error

    def values_before(self) -> dict[Variable, Any]:
        return all_as_numpy(super().values_before())

    def _put_back(self, call: Call) -> None:
        """Reset shared variables to their values before a call, and forget the later calls."""
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
                    value = later.values[i]  # the user set it between the calls
                left = later.results[output]
            if self.cells[variable][0] is left:
                self.cells[variable][0] = value
        shared = {id(self.cells[v]) for v in self._becomes}
        for guard in {self: None, **_in_flight}:
            if guard is self or not shared.isdisjoint(map(id, guard.cells.values())):
                guard.forget_after(call.order)

    def forget_after(self, order: int) -> None:
        """Forget the calls after a given one, because their updates have been undone."""
        if self._calls and self._calls[-1].order > order:
            self._read_all()  # afterwards the history would not match the calls in flight
        self._suspects = [c for c in self._suspects if c.order < order]

    def updated(self) -> list[Variable]:
        """Return the shared variables that the function updates."""
        return [v for v in self._becomes if isinstance(v, SharedVariable)]

    def in_flight(self) -> tuple[int, int]:
        """Return how many calls are in flight, and how many bytes are kept for them."""
        held = [(call.values, call.results) for call in self._calls]
        return len(held), self._programs.held_bytes(held)


def as_numpy(variable: Variable, value: Any) -> Any:
    """Return the value of a variable in the type that PyTensor gives it.

    PyTensor's sums for JAX have the type in which they add up.  So what a function computes from a
    sum may have more bits than its type, and no infinity where that type has one.
    """
    if not isinstance(variable.type, TensorType):
        return value
    value = np.asarray(value)
    dtype = np.dtype(variable.type.dtype)
    if value.dtype.kind in "fc" and value.dtype.kind == dtype.kind:
        dtype = np.promote_types(value.dtype, dtype)
    return np.asarray(value, dtype)


def all_as_numpy(values: Mapping[Variable, Any]) -> dict[Variable, Any]:
    """Return the values of variables by :func:`as_numpy`."""
    return {v: as_numpy(v, value) for v, value in values.items()}


def is_far(device: Any) -> bool:
    """Return whether a device works while the host goes on, so that reading from it waits."""
    return device.platform != "cpu"


def reads_later(policy: Policy, device: Any) -> bool:
    """Return whether the flags of several calls are read at once."""
    later = policy.when == "later" or (policy.when is None and is_far(device))
    return later and not policy.audit


def held_limit(device: Any) -> float:
    """Return how many bytes may be kept for calls in flight on a device."""
    known = device.memory_stats() or {}
    return SHARE * known["bytes_limit"] if "bytes_limit" in known else UNKNOWN


# ---------------------------------------------------------------- when flags must be read


def sync() -> None:
    """Wait for all unchecked calls, and raise the error of the first bad one.

    Only functions under ``GuardMode(when="later")`` have such calls.  Their flags are also read
    when you read a shared variable that such a function updates, and at exit.

    Raises
    ------
    GuardError

    Examples
    --------
    >>> import theanoguard
    >>> theanoguard.sync()
    """
    raise_first(list(_in_flight))


def raise_first(guards: Iterable[JaxRuntime]) -> None:
    """Read the flags of all calls in flight, and raise the first error."""
    for guard in guards:
        error = guard.read()
        if error is not None:
            raise error


@lru_cache(maxsize=1)
def sync_at_exit() -> None:
    """Register :func:`sync` to run when the interpreter exits, before JAX cleans up."""
    atexit.register(sync)


_watchers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class WatchedContainer(Container):
    """A container whose reading first checks the calls that update its shared variable.

    It is the variable's own container; only its class has been changed.  Copies and pickles are
    plain containers.
    """

    def _read(self) -> Any:
        raise_first(list(_watchers.get(self, ())))
        return self.storage[0]

    data = property(_read, Container.__set__)
    value = property(_read, Container.__set__)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return plain_container, (self.__dict__,)


def plain_container(state: dict[str, Any]) -> Container:
    """Return a plain container with a state."""
    container = Container.__new__(Container)
    container.__dict__.update(state)
    return container


def watch_containers(guard: JaxRuntime) -> None:
    """Read the flags of a guard when a shared variable that its function updates is read."""
    sync_at_exit()
    for variable in guard.updated():
        container = variable.container
        if container.storage is guard.cells[variable]:
            take_class(container, WatchedContainer, "the guard on JAX")
            _watchers.setdefault(container, weakref.WeakSet()).add(guard)
