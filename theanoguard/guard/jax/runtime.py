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
from functools import lru_cache
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.link.basic import Container
from pytensor.tensor.type import TensorType

from theanoguard.explain.describe import kind_of
from theanoguard.guard.graph.checks import counts_of
from theanoguard.guard.graph.runtime import JittedRuntime
from theanoguard.guard.jax.ops import BAD, FIRST, LARGEST, SHAPE, WORDS, Detail
from theanoguard.guard.policy import Counts
from theanoguard.guard.reporting import Tripped

logger = logging.getLogger("theanoguard")

# A function is compiled again for what turned out to be bad on purpose at most so often; then
# every value is judged in every call.
REFINEMENTS = 3
# How much of a device's memory the inputs of calls in flight may take, and how many bytes where
# its size is not known.
SHARE, UNKNOWN = 0.1, 1 << 30

# How many calls the device may be behind before it is waited for.
AHEAD = 2

_order = itertools.count()
_in_flight: dict["JaxRuntime", None] = {}  # what has calls in flight is kept alive


@dataclass
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
        and the history.
    plain : callable
        Returns the program without a flag.
    status : callable
        ``status(detail)`` returns what gives the status of a call, from the values of the inputs.
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
    plain: Any
    status: Any
    no_history: Any
    own_copy: Any
    held_bytes: Any
    device: Any


class JaxRuntime(JittedRuntime):
    """The guard of one function that JAX compiles.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    checks : StatusChecks
    storage_map : dict of Variable to list
    programs : Programs
    """

    def __init__(self, policy, recorder, checks, storage_map, programs):
        super().__init__(policy, recorder, checks, storage_map)
        self.rows = checks.graph.rows
        self.depth = checks.graph.depth
        self._programs = programs
        self._status = lru_cache(maxsize=16)(programs.status)
        self._on_purpose = frozenset()
        self._refinements = 0
        self._run, self.n_read = programs.flagged(self._on_purpose)
        self._plain = None
        self._history = programs.no_history()
        self.later = policy.when == "later" or (
            policy.when is None and programs.device.platform != "cpu"
        )
        self._calls: deque[Call] = deque()
        self._suspects: list[Call] = []  # suspicious ones, and healthy ones after the first
        self._probe = None  # a history on its way, and how many of the calls it covers
        self._examined = None  # the call that is looked at
        self._limit = held_limit(programs.device)
        self.held = 0  # bytes, when it was last looked at
        updates = getattr(self.fgraph, "update_mapping", None) or {}
        self._becomes = {self.fgraph.inputs[i]: output for output, i in updates.items()}
        if self.later:
            watch_containers(self)

    # -- calls

    def begin(self):
        if self._calls and any(
            self.seen.get(variable) is not cell[0] for variable, cell, _ in self.stored
        ):
            self._in_a_call(self.read)  # what is bad there may come from an earlier call
        super().begin()
        if not self.policy.trusted:  # only arrays of JAX's cannot be changed by others
            self.seen = {v: x for v, x in self.seen.items() if not isinstance(x, np.ndarray)}

    def run(self, *values):
        """Run the function, and look at the flags that have to be read."""
        if (self.calls - 1) % self.policy.every:
            if self._plain is None:
                self._plain = self._programs.plain()
            return self._plain(*values[:-1])
        values = values[:-1]  # (without a ledger)
        if self.later:
            if self._calls:
                self._in_a_call(self._read_what_is_due)
            values = tuple(map(self._programs.own_copy, values))
        *results, self._history = self._run(*values, self._history)
        if not self.later:
            if np.asarray(self._history).item() & 1:
                self._suspects.append(Call(self.calls, values, results, suspicious=True))
                self._in_a_call(self.read)
            return results
        if not self._calls:
            _in_flight[self] = None
        self._calls.append(Call(self.calls, values, results))
        return results

    def _read_what_is_due(self):
        """Read flags if it is time, those of the last calls excepted.

        A device that is a call or two behind has computed the others, so that it need not be
        waited for.  To read takes as long as to start a few calls: it is done as seldom as allowed.
        """
        calls, policy = self._calls, self.policy
        is_due = (
            len(calls) >= policy.delay_calls
            or time.monotonic() - calls[0].began > 1e-3 * policy.delay_ms
        )
        if self._probe is None and (is_due or len(calls) == policy.delay_calls - AHEAD):
            self.held = self._programs.held_bytes([(c.values, c.results) for c in calls])
            is_due = is_due or self.held > self._limit
            self._probe = self._history, len(calls)
        if is_due:
            self._sort_out(*self._probe)
            if self._suspects:
                self.read()

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
        """Read the flags of all calls in flight, and report what was bad.

        If anything was, the calls of other functions are looked at as well: the first bad call of
        all is the one to report.
        """
        self._read_all()
        if not self._suspects:
            return
        guards = [self, *_in_flight]
        for guard in guards:
            guard._read_all()
        while found := [(c.order, g) for g in guards for c in g._suspects]:
            guard = min(found, key=lambda one: one[0])[1]
            call = guard._suspects.pop(0)
            if call.suspicious:
                guard.examine(call)

    def _read_all(self):
        if self._calls:
            self._sort_out(self._history, len(self._calls))

    def _in_a_call(self, step):
        """Run a step that may raise the error of an earlier call, of another function perhaps."""
        try:
            step()
        except BaseException as error:
            self.pending = error
            raise Tripped from None

    # -- a suspicious call

    def examine(self, call):
        """Find out what was bad in a call, and report it."""
        self._examined, number = call, self.calls
        self.calls, self.bad_nodes = call.number, set()
        try:
            if not self.policy.by_result or self.policy.is_spoiled(call.results):
                self._judge(call)
        except BaseException as error:
            self._put_back(call)
            pending, self.pending = self.pending, None
            if isinstance(error, Tripped):
                raise self.explained(pending) from None
            raise
        finally:
            self.calls = number
            self._examined = None

    def _judge(self, call):
        status = np.asarray(self._status(None)(*call.values))
        bad = np.flatnonzero(status[:, BAD])
        if not bad.size:
            self._refine(status)
            return
        found = [
            (self.rows[i], status[i], [int(s) for s in status[i, status.shape[1] - self.depth :]])
            for i in bad
        ]
        for row, record, steps in sorted(found, key=lambda one: self._when(one[0], one[2])):
            place = self.places[row]
            if self.follows(place):
                continue
            counts, shape = self._details(call, row, record)
            role = "node" if place.variable.owner is not None else self.role(place.variable)
            self.report(place, counts, shape, steps[: len(place.loops)], role)

    def _refine(self, status):
        """Read otherwise from now on where a healthy call had infinite values on purpose."""
        self._refinements += 1
        largest = [float_of(row[LARGEST : len(row) - self.depth]) for row in status]
        limit = self.policy.limit if self.policy.big else np.finfo("float64").max
        found = {
            self.places[row].variable
            for row, value in zip(self.rows, largest, strict=True)
            if self.places[row] is not None
            and (not abs(value) <= limit or self._refinements == REFINEMENTS)
        }
        if found <= self._on_purpose:
            logger.warning(
                "theanoguard: call %d of %s was suspicious, but no bad value was found when it was "
                "run again with a check behind every operation; please report this",
                self.calls,
                self.fgraph.name or "a function",
            )
            return
        self._on_purpose |= found
        self._run, self.n_read = self._programs.flagged(self._on_purpose)

    def _when(self, row, steps):
        """Return a key that sorts checks as one thread would run them."""
        key = []
        for loop, step in zip(self.places[row].loops, steps, strict=False):
            key += [loop, step]
        return [*key, row]

    def _details(self, call, row, record):
        """Compute a place once more; return its `Counts` and its shape."""
        variable = self.places[row].variable
        ndim = getattr(variable.type, "ndim", 0)
        status = self._status(Detail(row, ndim))(*call.values)
        details = np.asarray(status)[self.rows.index(row)]
        shape = tuple(int(n) for n in details[SHAPE : SHAPE + ndim])
        if details[BAD]:
            return counts_of(details, first_bad(details, variable.type.dtype), shape), shape
        # Compiled for itself, the place was rounded to a value that is not bad.
        largest = float_of(record[LARGEST : len(record) - self.depth])
        size = int(np.prod(shape))
        return Counts(kind_of(largest), (), largest, size, 0, 0, 0, 0), shape

    def values_before(self):
        if self._examined is None:
            values = super().values_before()
        else:
            values = dict(zip(self.fgraph.inputs, self._examined.values, strict=True))
        return {
            v: np.asarray(value, v.type.dtype) if isinstance(v.type, TensorType) else value
            for v, value in values.items()
        }

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


def float_of(words):
    """Return the floating number that is held in one or two words."""
    return np.ascontiguousarray(words).view(f"float{32 * len(words)}").item()


def first_bad(record, dtype):
    """Return the first bad element of the place of which a row holds the details."""
    n_words = int(record[WORDS])
    real, imag = (record[at : at + n_words] for at in (FIRST, FIRST + 2))
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return np.ascontiguousarray(real).view(f"{kind}{4 * n_words}").item()
    return float_of(real) if kind == "f" else complex(float_of(real), float_of(imag))


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
    for guard in list(_in_flight):
        guard.read()


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
        for guard in list(_watchers.get(self, ())):
            guard.read()
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
