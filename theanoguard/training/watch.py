"""Statistics of weights, gradients and updates, and what goes bad in them, during a training."""

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from operator import attrgetter
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import pytensor
from pytensor import config
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.type import DenseTensorType

from theanoguard._arguments import Count, check_choice, checked
from theanoguard._context import block
from theanoguard._event import GuardEvent
from theanoguard._naming import readable_names
from theanoguard._pytensor import Function, input_shapes, take_class
from theanoguard._text import cut
from theanoguard._values import listed
from theanoguard.guard import events_of
from theanoguard.guard.history import Recording
from theanoguard.guard.mode import recording_of
from theanoguard.guard.policy import Policy
from theanoguard.log.event_log import EventLog, open_log
from theanoguard.training.gradients import GradientGuard
from theanoguard.training.ops import Summary, not_finite, summarise

Kind: TypeAlias = Literal["weight", "gradient", "update"]
_POLICY = Policy(nan=True, inf=True, big=False)
_VALUES = [f.name for f in fields(Summary)]


@dataclass(frozen=True)
class Record:
    """The statistics of one array at one step."""

    step: int  # which step of the watch it was (from 1)
    epoch: int  # `epoch`, `batch`: from 1; the batch within its epoch
    batch: int
    #: One of "weight", "gradient", "update".  The parameter after the step, its gradient, and by
    #: how much the step has changed it.
    kind: str
    name: str  # of the parameter
    summary: Summary

    def row(self) -> dict[str, Any]:
        """Return the record as a flat dict, such as a row of a data frame."""
        row = {k: v for k, v in vars(self).items() if k != "summary"}
        return {**row, **asdict(self.summary)}


@dataclass
class Step:
    """The step that a thread is in."""

    number: int
    epoch: int
    batch: int
    due: bool
    old: list | None = None
    gradients: list | None = None


class Observe(Op):
    """Lets arrays through and shows them to a :class:`Watch`."""

    __props__ = ("watch", "n")

    def __init__(self, watch: "Watch", n: int) -> None:
        self.watch = watch
        self.n = n
        self.view_map = {i: [i] for i in range(n)}

    def __str__(self) -> str:
        return "Watch"

    def make_node(self, *arrays: Variable) -> Apply:
        return Apply(self, arrays, [a.type() for a in arrays])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        self.watch.take_gradients(inputs)
        for cell, array in zip(output_storage, inputs, strict=True):
            cell[0] = array

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[i == j for j in range(self.n)] for i in range(self.n)]

    def grad(self, inputs: list, output_gradients: list[Variable]) -> list[Variable]:
        return output_gradients

    def infer_shape(self, *args: Any) -> list:
        return input_shapes(args)

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        return False


class Watch:
    """Collect statistics of the parameters during training, and events of bad values.

    Run each step of the training in ``with watch.step():``.  `watching` does this for you.  After
    each step the watch looks for NaN and Inf in the weights.  The statistics are computed by
    compiled code.  Several threads may train and read.

    Parameters
    ----------
    params : sequence of SharedVariable
        Dense arrays of floats.
    every : int or "epoch"
        The steps with statistics: the first and then each `every`-th, or the first of each epoch.
    names : sequence of str or None
        Readable names of the parameters.  None takes their own names.
    skip : sequence of str
        Shell patterns of names to leave out of statistics and events.
    updates : bool
        Collect statistics of the change that a step makes to each parameter.  A step with
        statistics then copies the parameters.
    look_always : bool
        False looks for NaN and Inf only in the steps with statistics.
    history : int
        Number of steps whose statistics are kept.
    max_events : int
        Number of events to keep.
    batches_per_epoch : int or None
        Number of steps after which a new epoch begins.  None: only :meth:`next_epoch` begins one.
    guards : sequence of GradientGuard
        Guards whose events are added to the events of the watch.
    log : str, path-like, EventLog or None
        A file to which the events are appended.  Its size is limited as in :class:`EventLog`.

    Attributes
    ----------
    steps, epoch, batch : int
        Number of steps so far; the current epoch and batch, from 1.
    recording : Recording or None
        The record of the calls of the function that `watching` watches (:func:`recording_of`).

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard.training import Watch
    >>> x, w = pt.vector("x"), pytensor.shared(np.array([3.0, 0.0, -4.0]), name="w")
    >>> watch = Watch([w])
    >>> (g,) = watch.gradients([pytensor.grad((x * w).sum(), w)])
    >>> train = pytensor.function([x], updates={w: w - g}, mode="CVM")
    >>> with watch.step():
    ...     _ = train([1.0, 0.0, 0.0])
    >>> print(watch.table())
    step 1, epoch 1, batch 1
                   size          min          max         mean         norm  zeros   NaN   Inf
    weight w          3           -4            2      -0.6667        4.472  33.3%     0     0
    gradient w        3            0            1       0.3333            1  66.7%     0     0
    update w          3           -1            0      -0.3333            1  66.7%     0     0
    """

    @checked
    def __init__(
        self,
        params: Sequence[SharedVariable],
        *,
        every: Count | Literal["epoch"] = 1,
        names: Sequence[str | None] | None = None,
        skip: str | Sequence[str] = (),
        updates: bool = True,
        look_always: bool = True,
        history: Count = 1000,
        max_events: Count = 1000,
        batches_per_epoch: Count | None = None,
        guards: Sequence[GradientGuard] = (),
        log: str | PathLike[str] | EventLog | None = None,
    ) -> None:
        params = list(params)
        names = readable_names(params if names is None else list(names))
        _check(params, names)
        self._skip = (skip,) if isinstance(skip, str) else tuple(skip)
        self._n = len(params)
        self._params = [
            (name, p) for name, p in zip(names, params, strict=True) if not self._skips(name)
        ]
        self.names = names
        self.every = every
        self.batches_per_epoch = batches_per_epoch
        self.steps = 0
        self.epoch = 1
        self.batch = 0
        self.recording: Recording | None = None
        self._wants_updates = updates
        self._look_always = look_always
        self._gathered: deque[tuple[Record, ...]] = deque(maxlen=history)
        self._events: deque[GuardEvent] = deque(maxlen=max_events)
        self._log = open_log(log)
        self._bad: set[tuple[str, str]] = set()
        self._sources = [_Source(partial(attrgetter("events"), guard)) for guard in guards]
        self._make_locks()

    def __repr__(self) -> str:
        return f"<Watch of {cut(', '.join(self.names), 60)}: {self.steps} steps>"

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_local")
        return {k: v for k, v in vars(self).items() if k not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    def _skips(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._skip)

    # -- the training

    @checked
    def gradients(self, grads: Sequence[Variable]) -> list[Variable]:
        """Return the gradients in a form whose statistics the watch collects.

        Parameters
        ----------
        grads : sequence of TensorVariable
            One for each parameter.

        Returns
        -------
        list of TensorVariable
            Compute the updates from these.  Otherwise no statistics are collected.

        Raises
        ------
        ValueError
            If there are not as many gradients as parameters.
        """
        grads = list(grads)
        if len(grads) != self._n:
            raise ValueError(
                f"there are {len(grads)} gradients for {self._n} parameters.\n"
                "Give one for each parameter of the Watch, in the same order."
            )
        return Observe(self, len(grads))(*grads, return_list=True)

    def next_epoch(self) -> None:
        """Begin a new epoch: the next step is its first batch."""
        with self._lock:
            self.epoch += 1
            self.batch = 0

    @contextmanager
    def step(self) -> Iterator[Step]:
        """Run one step of the training in a ``with`` statement.

        A step that raises is counted and keeps its events, but has no statistics.
        """
        step = self._begin()
        outer, self._local.step = getattr(self._local, "step", None), step
        try:
            yield step
        except BaseException:
            with self._lock:
                self._take_events(step)
            raise
        finally:
            self._local.step = outer
        with self._lock:
            self._end(step)

    def _begin(self) -> Step:
        with self._lock:
            if self.batch == self.batches_per_epoch:
                self.next_epoch()
            self.steps += 1
            self.batch += 1
            due = (
                (self.steps - 1) % self.every == 0
                if isinstance(self.every, int)
                else self.batch == 1
            )
            step = Step(self.steps, self.epoch, self.batch, due)
            if due and self._wants_updates:
                step.old = [p.get_value() for _, p in self._params]
            return step

    def take_gradients(self, arrays: Sequence[np.ndarray]) -> None:
        """Take in the gradients of the step that the thread is in, if it is due."""
        step = getattr(self._local, "step", None)
        if step is None or not step.due:
            return
        named = [
            (name, array)
            for name, array in zip(self.names, arrays, strict=True)
            if not self._skips(name)
        ]
        self._look_at(step, "gradient", named)
        names, arrays = zip(*named, strict=True) if named else ((), ())
        step.gradients = list(zip(names, summarise(arrays), strict=True))

    def take_outputs(self, step: Step, named: Iterable[tuple[str, Any]]) -> None:
        """Look at what a function has returned."""
        named = [
            (name, value)
            for name, value in named
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not self._skips(name)
        ]
        self._look_at(step, "output", named)

    def _end(self, step: Step) -> None:
        self._take_events(step)
        if not (step.due or self._look_always):
            return
        named = [(name, p.get_value(borrow=True)) for name, p in self._params]
        self._look_at(step, "weight", named)
        if not step.due:
            return
        names, values = zip(*named, strict=True) if named else ((), ())
        found: dict[str, Iterable] = {"weight": zip(names, summarise(values), strict=True)}
        found["gradient"] = step.gradients or ()
        if step.old is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                moves = [new - old for new, old in zip(values, step.old, strict=True)]
            found["update"] = zip(names, summarise(moves), strict=True)
        at = (step.number, step.epoch, step.batch)
        self._gathered.append(
            tuple(Record(*at, kind, *pair) for kind, pairs in found.items() for pair in pairs)
        )

    # -- events

    def _look_at(self, step: Step, role: str, named: Sequence[tuple[str, np.ndarray]]) -> None:
        """Make an event when a value turns bad; the next one once it has been good again."""
        found = not_finite([array for _, array in named])
        bad = {(role, named[i][0]): named[i][1] for i in found}
        with self._lock:
            new = [key for key in bad if key not in self._bad]
            self._bad = {key for key in self._bad if key[0] != role} | bad.keys()
            for key in new:
                self._add(_event(step, *key, bad[key]), step)

    def _take_events(self, step: Step) -> None:
        for source in self._sources:
            for event in source.new():
                if not self._skips(event.variable or ""):
                    self._add(event, step)

    def _add(self, event: GuardEvent, step: Step) -> None:
        event = replace(event, batch=step.batch, epoch=step.epoch)
        self._events.append(event)
        if self._log is not None:
            self._log.add(event)

    @property
    def events(self) -> list[GuardEvent]:
        """The last events, oldest first: a list of :class:`~theanoguard.records.GuardEvent`."""
        with self._lock:
            return list(self._events)

    # -- what has been gathered

    @property
    def records(self) -> list[Record]:
        """The statistics that are kept, oldest first: a list of :class:`Record`."""
        with self._lock:
            return [record for records in self._gathered for record in records]

    @checked
    def series(
        self, name: str, kind: Kind = "weight", value: str = "norm"
    ) -> tuple[list[int], list[float]]:
        """Return one number of a parameter for each step with statistics.

        Parameters
        ----------
        name : str
            Name of the parameter.
        kind : {"weight", "gradient", "update"}
        value : str
            A field of ``Summary``, such as ``"norm"``, ``"min"`` or ``"zeros"``.

        Returns
        -------
        steps : list of int
        values : list of float

        Raises
        ------
        ValueError
            If there is no such kind or value.
        KeyError
            If there is no parameter of that name.
        """
        check_choice("value", value, _VALUES)
        if name not in self.names:
            raise KeyError(f"no parameter is called {name!r}; there are {self.names}")
        found = [r for r in self.records if (r.name, r.kind) == (name, kind)]
        return [r.step for r in found], [getattr(r.summary, value) for r in found]

    def table(self) -> str:
        """Return the last statistics as text.

        Returns
        -------
        str
        """
        with self._lock:
            last = self._gathered[-1] if self._gathered else ()
        if not last:
            return "no statistics so far"
        labels = [f"{r.kind} {r.name}" for r in last]
        width = max(map(len, labels))
        title = "step {0.step}, epoch {0.epoch}, batch {0.batch}".format(last[0])
        names = "".join(f"{name:>13}" for name in ("min", "max", "mean", "norm"))
        lines = [title, f"{'':{width}}{'size':>9}{names}  zeros   NaN   Inf"]
        for label, record in zip(labels, last, strict=True):
            s = record.summary
            numbers = "".join(f"{x:>13.4g}" for x in (s.min, s.max, s.mean, s.norm))
            zeros = f"{s.zeros:>7.1%}"
            lines.append(f"{label:{width}}{s.size:>9}{numbers}{zeros}{s.n_nan:>6}{s.n_inf:>6}")
        return "\n".join(lines)

    @checked
    def plot(self, kind: Kind = "weight", value: str = "norm") -> Any:
        """Draw one number of each parameter over the steps.

        Parameters
        ----------
        kind, value : str
            As for :meth:`series`.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        try:
            from theanoguard.view.figure import drawn
        except ImportError as error:
            raise ImportError(
                "Watch.plot needs matplotlib, which is not installed.\n"
                "Install it with: pip install matplotlib"
            ) from error
        lines = {name: self.series(name, kind, value) for name in self.names}
        return drawn(lines, "step", f"{value} of the {kind}")


class WatchSettings(TypedDict, total=False):
    """The arguments of :class:`Watch`, for type checkers."""

    every: Count | Literal["epoch"]
    names: Sequence[str | None] | None
    skip: str | Sequence[str]
    updates: bool
    look_always: bool
    history: Count
    max_events: Count
    batches_per_epoch: Count | None
    guards: Sequence[GradientGuard]
    log: str | PathLike[str] | EventLog | None


@checked
@block
def watching(
    function: Function,
    params: Sequence[SharedVariable] | None = None,
    *,
    grads: Sequence[Variable] | None = None,
    **settings: Unpack[WatchSettings],
) -> Iterator[Watch]:
    """Watch a training whose step is a compiled function that you call in a loop.

    Inside the ``with`` statement each call of `function` is a step of a :class:`Watch`.  The watch
    checks the parameters and the results of the function.  If the function has a guard, the guard's
    events are added, with batch and epoch.

    Parameters
    ----------
    function : pytensor.compile.executor.Function
        A compiled training step.  At the end of the block it is as before.
    params : sequence of SharedVariable or None
        None watches the arrays of floats that `function` updates.
    grads : sequence of TensorVariable or None
        Gradients of `params`, as expressions of the inputs of `function`.  They are computed a
        second time in the steps with statistics.  If that takes too long, use
        :meth:`Watch.gradients`.
    **settings
        Arguments of :class:`Watch`.

    Yields
    ------
    Watch

    Raises
    ------
    TypeError, ValueError
        As :class:`Watch`, or if there is nothing to watch.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> import theanoguard
    >>> x, w = pt.vector("x"), pytensor.shared(np.ones(2), name="w")
    >>> train = pytensor.function([x], updates={w: w * pt.log(x)}, mode="CVM")
    >>> with theanoguard.training.watching(train, batches_per_epoch=2) as watch:
    ...     for value in (2.0, 3.0, 0.0):
    ...         _ = train([1.0, value])
    >>> for event in watch.events:
    ...     print(event.kind, event.role, event.variable, event.epoch, event.batch)
    inf weight w 2 1
    """
    if params is None:
        params = [i.variable for i in function.maker.inputs if i.update is not None]
        params = [p for p in params if _is_float_array(p)]
        if not params:
            raise ValueError(
                "the function updates no array of floats.\nGive params: what is to be watched."
            )
    watch = Watch(params, **settings)
    with suppress(TypeError):  # that it was not compiled with a guard
        watch._sources.append(_Source(partial(events_of, function)))
    gradients = None if grads is None else _gradient_function(function, watch.gradients(grads))
    observer = _Observer(watch, gradients, function)
    with _LOCK:
        if id(function) not in _OBSERVERS:
            take_class(function, _observed_class(type(function)), "watching")
            _OBSERVERS[id(function)] = []
        _OBSERVERS[id(function)].append(observer)
    try:
        yield watch
    finally:
        with _LOCK:
            _OBSERVERS[id(function)].remove(observer)
            if not _OBSERVERS[id(function)]:
                del _OBSERVERS[id(function)]
                function.__class__ = type(function).__bases__[1]


class _Source:
    """Where events come from: a bounded list, of which the new ones are wanted."""

    def __init__(self, read: Callable) -> None:
        self._read = read
        self._last = [None, *read()][-1]

    def new(self) -> list[GuardEvent]:
        """Return the events since the last time."""
        found = self._read()
        fresh = [*takewhile(lambda event: event is not self._last, reversed(found))]
        self._last = [None, *found][-1]
        return [e if isinstance(e, GuardEvent) else e.to_guard_event() for e in reversed(fresh)]


class _Observer:
    """Runs before and after each call of a watched function."""

    def __init__(self, watch: Watch, gradients: Function | None, function: Function) -> None:
        self.watch = watch
        self._gradients = gradients
        self._recording = None
        try:
            watch.recording = recording_of(function)
        except TypeError:  # that it keeps no record itself
            watch.recording = self._recording = Recording(function)
        outputs = function.maker.outputs
        self._names = [o.variable.name or f"output {i}" for i, o in enumerate(outputs)]

    @contextmanager
    def around(self, args: tuple, kwargs: dict[str, Any]) -> Iterator[Any]:
        with self.watch.step() as step:
            if step.due and self._gradients is not None:
                self._gradients(*args, **kwargs)
            results: list = []
            recording = self._recording
            if recording is None or recording.in_call:
                yield results
            else:
                try:
                    recording.in_call = True
                    recording.begin(args, kwargs)
                    yield results
                    recording.end(*results)
                finally:
                    recording.in_call = False
            (result,) = results
            self.watch.take_outputs(step, zip(self._names, listed(result), strict=False))


class _Observed:
    """Mixin of the class of a function while it is watched."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            observers = list(_OBSERVERS.get(id(self), ()))
            shown = [stack.enter_context(o.around(args, kwargs)) for o in observers]
            result = super().__call__(*args, **kwargs)  # type: ignore[misc]  # of `Function`
            for results in shown:
                results.append(result)
            return result


_OBSERVERS: dict[int, list] = {}
_LOCK = threading.Lock()


def _observed_class(kind: type) -> type:
    return type(f"Observed{kind.__name__}", (_Observed, kind), {"__slots__": ()})


def _gradient_function(function: Function, grads: Sequence[Variable]) -> Function:
    """Compile gradients as a function of the inputs of another."""
    inputs = [
        pytensor.In(i.variable, name=i.name)
        for i in function.maker.inputs
        if not i.implicit and not isinstance(i.variable, SharedVariable)
    ]
    # Without a guard of its own: what goes wrong is told by the function itself.
    mode = Mode("cvm" if config.cxx else "vm", "fast_run")
    with warnings.catch_warnings():
        # PyTensor 3.3 deprecates it; but the states of random streams must not move on here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pytensor.function(
            inputs, grads, mode=mode, on_unused_input="ignore", no_default_updates=True
        )


def _event(step: Step, role: str, name: str, array: np.ndarray) -> GuardEvent:
    return _POLICY.count(array).event(
        role=role,
        node=None,
        op=None,
        variable=name,
        output=0,
        dtype=str(array.dtype),
        shape=tuple(array.shape),
        call=step.number,
    )


def _is_float_array(variable: Variable) -> bool:
    kind = variable.type
    return (
        isinstance(variable, SharedVariable)
        and isinstance(kind, DenseTensorType)
        and np.dtype(kind.dtype).kind == "f"
    )


def _check(params: list, names: list[str]) -> None:
    for p in params:
        if not _is_float_array(p):
            raise TypeError(
                f"params has {p!r}, which is no shared array of floats.\n"
                "Give what pytensor.shared has made of a float32 or float64 array."
            )
    if len(names) != len(params):
        raise ValueError(
            f"there are {len(names)} names for {len(params)} parameters.\nGive one for each."
        )
