"""Guarding every function that a program compiles: :class:`guarding`."""

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from theanoguard._backends import backend_of
from theanoguard._event import GuardEvent
from theanoguard._patching import Patch, apply
from theanoguard._pytensor import Function, FunctionMaker, get_mode
from theanoguard._values import KINDS
from theanoguard.guard.errors import GuardError
from theanoguard.guard.mode import GuardMode, GuardSettings, is_guarded
from theanoguard.guard.pausing import paused
from theanoguard.guard.rewriting import WatchedMode

if TYPE_CHECKING:
    from theanoguard.explain import Explanation

logger = logging.getLogger("theanoguard")

ALL_KINDS = ",".join(KINDS)


def kinds(text: str) -> dict[str, bool]:
    """Return the kinds of bad values that a list with commas names.

    - `text`: one or more of ``nan``, ``inf`` and ``big``.
    - Returns: arguments of :class:`~theanoguard.GuardMode`.
    - Raises ``ValueError``: for any other word.

    Examples
    --------
    >>> kinds("nan,inf")
    {'nan_is_error': True, 'inf_is_error': True, 'big_is_error': False}
    """
    named = [kind.strip() for kind in text.split(",")]
    if unknown := [kind for kind in named if kind not in KINDS]:
        raise ValueError(f"{unknown[0]!r} is no kind of bad value; name some of {', '.join(KINDS)}")
    return {f"{kind}_is_error": kind in named for kind in KINDS}


class Trips:
    """A log in memory: keeps the events and explanations of guards until :meth:`clear`."""

    def __init__(self) -> None:
        self.events: list[GuardEvent] = []
        self.explanations: dict[int, Explanation] = {}

    def describing(self, settings: Mapping[str, Any]) -> "Trips":
        """Return this object: it keeps no settings."""
        return self

    def start(self) -> None:
        """Do nothing: a file log would write its header here."""

    def add(self, event: GuardEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    def explain(self, explanation: "Explanation") -> None:
        """Keep the explanation of the last event."""
        self.explanations[len(self.events) - 1] = explanation

    def errors(self) -> list[GuardError]:
        """Return the errors of the events, oldest first."""
        return [
            GuardError(event, self.explanations.get(number))
            for number, event in enumerate(self.events)
        ]

    def clear(self) -> None:
        """Forget everything."""
        self.events.clear()
        self.explanations.clear()


class Several:
    """Hands what a guard finds to several logs."""

    def __init__(self, *logs: Any) -> None:
        self.logs = logs

    def describing(self, settings: Mapping[str, Any]) -> "Several":
        """Return the logs, each with the settings of a mode."""
        return Several(*(log.describing(settings) for log in self.logs))

    def start(self) -> None:
        """Begin all logs."""
        for log in self.logs:
            log.start()

    def add(self, event: GuardEvent) -> None:
        """Log an event."""
        for log in self.logs:
            log.add(event)

    def explain(self, explanation: "Explanation") -> None:
        """Log the explanation of the last event."""
        for log in self.logs:
            log.explain(explanation)


class guarding:
    """Guard every function that is compiled, whatever its mode is.

    Each function keeps its backend: a function in PyTensor's default mode runs on Numba, with a
    guard.  Functions that have a guard or a monitor already are not changed.  Functions for a
    backend that cannot be guarded are not changed either, and a log message says so.

    Use it as a context manager, or call :meth:`start` at the beginning of a program.

    Parameters
    ----------
    **settings
        Arguments of :class:`~theanoguard.GuardMode`, except for `backend`, `linker`, `optimizer`
        and `db`, which each function has already.

    Attributes
    ----------
    guarded, left : int
        Number of functions with a guard, and of functions that could not be guarded.

    Raises
    ------
    TypeError, ValueError
        As :class:`~theanoguard.GuardMode`.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> import theanoguard
    >>> x = pt.dvector("x")
    >>> with theanoguard.guarding() as run:
    ...     f = pytensor.function([x], pt.log(x), mode="CVM")
    >>> run.guarded
    1
    >>> try:
    ...     f([1.0, -1.0])
    ... except theanoguard.GuardError as error:
    ...     print(error.event.kind)
    nan
    """

    running: ClassVar[list["guarding"]] = []  # those that have started and not stopped

    def __init__(self, **settings: Unpack[GuardSettings]) -> None:
        if own := settings.keys() & {"backend", "linker", "optimizer", "db"}:
            raise TypeError(
                f"guarding() takes no {min(own)!r}: each function keeps its own.\n"
                f"Leave {min(own)!r} out, or compile with mode=GuardMode({min(own)}=...)."
            )
        GuardMode(**settings)  # refuses bad arguments here, not where a function is compiled
        self.settings = settings
        self.guarded = self.left = 0
        self._undo: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<guarding: {self.guarded} functions guarded, {self.left} left as they are>"

    def guard(self, mode: Any) -> GuardMode:
        """Return a guard with the linker and the rewrites of another mode.

        Raises
        ------
        ValueError
            If the linker cannot be guarded.
        """
        backend = backend_of(mode.linker)
        if backend is None:
            raise ValueError(f"the linker {mode.linker} cannot be guarded")
        return GuardMode(
            **self.settings,
            backend=backend.name,  # type: ignore[arg-type]
            linker=mode.linker,
            optimizer=mode.provided_optimizer,
            db=mode.optdb,
        )

    def guard_for_sampler(self) -> GuardMode:
        """Return a guard for a sampler that compiles by itself and takes no mode."""
        return GuardMode(**self.settings)

    def _mode(self, mode: Any) -> Any:
        """Return the mode that takes the place of one that a function is compiled in."""
        mode = get_mode(mode)
        if paused.get():
            return mode
        if isinstance(mode, WatchedMode) or is_guarded(mode.linker):
            self.guarded += type(mode) is not WatchedMode  # which inner functions have
            self.meet(mode)
            return mode
        try:
            guard = self.guard(mode)
        except ValueError as error:
            self.left += 1
            self.leave(error)
            return mode
        self.guarded += 1
        return guard

    def meet(self, mode: Any) -> None:
        """Do nothing with a mode that is guarded already."""

    def leave(self, error: ValueError) -> None:
        """Say why a function that is compiled now has no guard."""
        logger.info("theanoguard: a function is compiled without a guard: %s", error)

    def start(self) -> "guarding":
        """Guard every function that is compiled, in every thread, until :meth:`stop`."""
        if self._undo is None:

            def guarded(make: Callable) -> Callable:
                @wraps(make)
                def __init__(
                    maker: Any,
                    inputs: Any,
                    outputs: Any,
                    mode: Any = None,
                    accept_inplace: bool = False,
                    function_class: type[Function] = Function,
                    *args: Any,
                    **kwargs: Any,
                ) -> None:
                    mode = self._mode(mode)
                    if isinstance(mode, GuardMode):
                        function_class = mode.function_class(function_class)
                    own = mode, accept_inplace, function_class
                    make(maker, inputs, outputs, *own, *args, **kwargs)

                return __init__

            self._undo = apply([Patch(FunctionMaker, "__init__", guarded)])
            self.running.append(self)
        return self

    def stop(self) -> None:
        """Stop guarding new functions.  Guarded functions stay guarded."""
        if self._undo is not None:
            self._undo()
            self._undo = None
            self.running.remove(self)

    def __enter__(self) -> "guarding":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


class NotingRun(guarding):
    """A guarded run that also keeps what its guards find."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.trips = Trips()

    def guard(self, mode: Any) -> GuardMode:
        guard = super().guard(mode)
        guard.recorder.log = self.trips
        return guard

    def guard_for_sampler(self) -> GuardMode:
        guard = super().guard_for_sampler()
        guard.recorder.log = self.trips
        return guard


class NotingAll(NotingRun):
    """A guarded run that also keeps what the program's own guards find."""

    def meet(self, mode: Any) -> None:
        recorder = getattr(mode, "recorder", None)
        if recorder is None or self.trips in getattr(recorder.log, "logs", ()):
            return
        logs = [] if recorder.log is None else [recorder.log]
        recorder.log = Several(*logs, self.trips)
