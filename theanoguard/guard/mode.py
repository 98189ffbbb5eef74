"""The compile modes: :class:`GuardMode`, and :class:`NanGuardMode` with PyTensor's face."""

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any, Literal, TypedDict

from pytensor.graph.rewriting.db import RewriteDatabaseQuery

import theanoguard.guard.history as history
from theanoguard._arguments import (
    Count,
    Natural,
    NeedsCall,
    Positive,
    check_optimizer,
    checked,
    did_you_mean,
    refuse,
)
from theanoguard._backends import Backend, BackendName, NoLinker, backend_of, backends
from theanoguard._event import GuardEvent
from theanoguard._pytensor import (
    Function,
    FunctionMaker,
    JITLinker,
    config,
    get_mode,
    predefined_linkers,
    predefined_optimizers,
)
from theanoguard._releases import MISSING
from theanoguard.guard.audited import AuditedFunction
from theanoguard.guard.functions import joined
from theanoguard.guard.policy import Action, Judge, Measures, Policy, When, make_policy
from theanoguard.guard.recorded import RecordedFunction
from theanoguard.guard.reporting import Recorder
from theanoguard.guard.rewriting import WatchedMode
from theanoguard.guard.summary import GuardSummary, summarize
from theanoguard.log.event_log import EventLog, open_log


def is_guarded(linker: Any) -> bool:
    """Return whether a linker puts checks into what it links."""
    return isinstance(getattr(linker, "policy", None), Policy)


def default_backend() -> str:
    """Return the backend of a function without a mode, one that cannot be guarded included."""
    linker = get_mode(None).linker
    known = backend_of(linker)
    if known is None and isinstance(linker, JITLinker):
        names = (name for name, found in predefined_linkers.items() if type(found) is type(linker))
        return next(names, type(linker).__name__)
    return known.name if known is not None else "c"


def _linker(backend: str, linker: Any) -> Any:
    """Return the linker that these arguments of a mode name.

    Raises ``ValueError``: for an unknown backend, and for linkers that cannot be guarded.
    """
    asked = backend
    if backend == "auto":
        backend = default_backend()
    known = backends().get(backend)
    if known is None:
        allowed = ", ".join(map(repr, backends()))
        if backend in predefined_linkers:
            taken = f" (mode={config.mode!r} of PyTensor's configuration)"
            raise ValueError(
                f"GuardMode cannot guard the backend {backend!r} yet{taken * (asked == 'auto')}.\n"
                f"Pass backend= one of {allowed}."
            )
        near = did_you_mean(backend, [*backends(), "auto"])
        expected = f"backend must be {allowed}, 'auto'{near}"
        raise refuse("GuardMode", "backend", backend, expected)
    if known.linker is NoLinker:
        [why] = [str(missing) for missing in MISSING if missing.feature == f"backend={backend!r}"]
        raise ValueError(f"GuardMode cannot guard the backend {backend!r}.\n{why}.")
    if linker is None or (isinstance(linker, str) and linker == "auto"):
        linker = known.linkers[0]
    found = predefined_linkers.get(linker) if isinstance(linker, str) else linker
    has_callback = getattr(found, "callback", None) or getattr(found, "callback_input", None)
    other = backend_of(found)
    if other is not known or has_callback:
        allowed = ", ".join(repr(name) for name in known.linkers)
        instead = f", or choose backend={other.name!r}" if other and not has_callback else ""
        raise ValueError(
            f"linker {linker!r} cannot be guarded on the backend {backend!r}.\n"
            f"Use one of {allowed}, or a {known.linker.__name__} without callbacks{instead}."
        )
    return found


def _known_backend(linker: Any) -> Backend:
    """Return the backend of a linker that can be guarded."""
    return next(b for b in backends().values() if isinstance(linker, b.linker))


def _settings_of(linker: Any) -> dict[str, Any]:
    return {name: getattr(linker, name) for name in _known_backend(linker).settings}


def _name_of(choice: Any) -> Any:
    """Return a setting that is a word or a function, as text."""
    if callable(choice):
        return getattr(choice, "__qualname__", type(choice).__name__)
    return choice


class GuardSettings(TypedDict, total=False):
    """The arguments of :class:`GuardMode` that choose no backend, for type checkers."""

    nan_is_error: bool | Literal[0, 1] | None
    inf_is_error: bool | Literal[0, 1, "origin", "any"] | None
    big_is_error: bool | Literal[0, 1] | None
    big_threshold: Positive
    action: Action | Callable[[GuardEvent], object] | None
    exempt: Any
    check_inputs: bool | Literal["trusted"]
    restore: bool
    judge: Judge | Callable[[list], bool]
    audit: bool
    check_integers: bool
    check_indices: bool
    max_events: Count
    log: EventLog | str | PathLike[str] | None
    tell_fate: bool
    every: Count
    when: When | None
    precision: Measures | None
    history: bool
    snapshots: Natural


class GuardMode(WatchedMode):
    """A compile mode that reports the first NaN, Inf or big value inside a compiled function.

    The guard checks every value that a node computes.  It leaves out checks that cannot find
    anything new.  :meth:`summary` names them and the reasons.

    Parameters
    ----------
    nan_is_error : bool or None
        Whether NaN is an error.  None takes PyTensor's flag ``NanGuardMode__nan_is_error``.
    inf_is_error : bool, "origin", "any" or None
        True or "origin" reports an infinite or big value where an operation makes it from operands
        that are neither, and where it enters with an input or a shared variable.  "any" reports it
        wherever it appears, and False nowhere, unless it is big.
    big_is_error : bool or None
        Whether big values are errors.  None takes PyTensor's ``NanGuardMode__big_is_error``.
    optimizer : str, RewriteDatabaseQuery or GraphRewriter
        As for ``pytensor.compile.mode.Mode``.
    linker : str, Linker or None
        A linker of the backend; for C "cvm" (the default), "cvm_nogc", "vm" or "vm_nogc".
    db : RewriteDatabase or None
        As for ``Mode``.
    big_threshold : float
        A value of a larger magnitude is big.
    action : {"raise", "warn", "record", "pdb"} or callable
        The reaction to a bad value.  "raise" raises :class:`GuardError`, and every shared variable
        keeps its value from before the call.  "warn" logs to the logger ``theanoguard``, "record"
        only keeps the event, "pdb" opens the debugger, and a callable is called with the event.
        With these the call continues.  None takes ``NanGuardMode__action``.
    exempt : variable, str, type, or list of them
        Values that are not checked: variables, shell patterns of their names, or classes of
        operations.  If no variable of the first function has such a name, compiling it warns.
    check_inputs : bool or "trusted"
        Whether inputs, shared variables and constants are checked.  With "trusted", the guard reads
        a shared variable that still holds the same array only in every sixteenth call.
    restore : bool
        Only for C and Numba, whose calls overwrite arrays.  With False, a call overwrites the
        arrays of shared variables in place, as it does without the guard, and keeps no second copy
        of them.  The guard raises before the first of them is overwritten if the bad value has
        shown by then.  A bad value that shows later, such as one that the update itself makes,
        leaves the new values in the shared variables.
    judge : {"node", "result"} or callable
        With "result", a bad value is reported only if an output or an update of the call is bad.
        ``judge(results)`` decides from the list of outputs and updates.  It must be picklable if
        the function is pickled.
    audit : bool
        Also do the checks that the guard leaves out.  If only one of them finds a bad value, a
        ``RuntimeError`` names the rule that is wrong.  On Numba, JAX and PyTorch every call is
        computed a second time, and ``when="later"`` has no effect.  Each call is also made without
        a guard, and a ``RuntimeError`` names the first difference in the outputs, the shared
        variables, the arguments or the constants.
    check_integers : bool
        Whether big integers are errors.
    check_indices : bool
        Only for Numba, whose code does not check vectors of indices.  An index outside of its array
        raises an ``IndexError``, as it does on C, before anything is read or written there.
    max_events : int
        Number of events that the mode, and each function, keep.
    log : str, path-like, EventLog or None
        File to which every event is appended.  ``theanoguard report`` shows it.
    tell_fate : bool
        The report also says whether the bad value reaches an output or an update, or whether an
        operation such as ``switch`` masks it.  To find out, the rest of the call is computed.
    every : int
        Check the first call and then every `every`-th call.  The others run at the speed of an
        unguarded function.  A bad value in them is found only if it is still in a shared variable
        or an input in a checked call.
    when : {"now", "later"} or None
        Only for JAX.  With "now" each call waits for the device, and a bad call raises.  With
        "later" no call waits.  The error is raised by a later call (at the latest after 10 calls,
        or by the first call after a second), when you read a shared variable that the function
        updates, by :func:`sync`, or at exit.  Shared variables get back the values from before the
        bad call.  None is "now" on a CPU and "later" on other devices.
    precision : MeasuredCalls or None
        Also measure the digits of one call in many, as :func:`precision` does.
    history : bool
        Keep a record of the calls, in bounded memory.  The report of a bad value then says since
        which call the numbers are unlike those before, and what began it.  See
        :func:`recording_of`.
    snapshots : int
        Number of copies of the shared variables and random states to keep, spaced over the calls,
        to which ``error.rewind(call)`` goes back.
    backend : {"c", "jax", "numba", "pytorch", "auto"}
        The backend that compiles the function.  "auto" takes the backend that the function would
        have without a mode.

    Raises
    ------
    ValueError, TypeError
        For wrong arguments.
    ImportError
        If the backend is JAX or PyTorch, and it is not installed.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard import GuardMode, GuardError
    >>> x = pt.vector("x", dtype="float64")
    >>> f = pytensor.function([x], pt.log(x), mode=GuardMode())
    >>> try:
    ...     f(np.array([1.0, -1.0]))
    ... except GuardError as error:
    ...     print(error.event.kind, error.event.first_index)
    nan (1,)
    """

    _anywhere = False  # whether `inf_is_error=True` means "any"

    @checked
    def __init__(
        self,
        nan_is_error: bool | Literal[0, 1] | None = None,
        inf_is_error: bool | Literal[0, 1, "origin", "any"] | None = None,
        big_is_error: bool | Literal[0, 1] | None = None,
        optimizer: Any = "default",
        linker: Any = None,
        db: Any = None,
        *,
        big_threshold: Positive = 1e10,
        action: Action | Callable[[GuardEvent], object] | None = None,
        exempt: Any = (),
        check_inputs: bool | Literal["trusted"] = True,
        restore: bool = True,
        judge: Judge | Callable[[list], bool] = "node",
        audit: bool = False,
        check_integers: bool = False,
        check_indices: bool = True,
        max_events: Count = 100,
        log: EventLog | str | PathLike[str] | None = None,
        tell_fate: bool = False,
        every: Count = 1,
        when: When | None = None,
        precision: Measures | None = None,
        history: bool = False,
        snapshots: Natural = 0,
        backend: BackendName = "c",
    ) -> None:
        policy = make_policy(
            nan_is_error,
            inf_is_error,
            big_is_error,
            big_threshold=big_threshold,
            check_integers=check_integers,
            check_indices=check_indices,
            check_inputs=check_inputs,
            action=action,
            exempt=exempt,
            anywhere=self._anywhere,
            restore=restore,
            judge=judge,
            audit=audit,
            tell_fate=tell_fate,
            every=every,
            when=when,
            precision=precision,
            history=history,
            snapshots=snapshots,
        )
        linker = _linker(backend, linker)
        if when == "later" and not _known_backend(linker).returns_early:
            [early, *_] = [name for name, known in backends().items() if known.returns_early]
            raise ValueError(
                f"when='later' needs the backend {early!r}; others have computed when a call "
                f"returns.\nLeave `when` out, or use backend={early!r}."
            )
        check_optimizer(type(self).__name__, optimizer, predefined_optimizers)
        recorder = Recorder(max_events, open_log(log))
        self._set_up(policy, recorder, linker, optimizer, db)

    def _set_up(
        self, policy: Policy, recorder: Recorder, linker: Any, optimizer: Any, db: Any
    ) -> None:
        self.policy = policy
        self.recorder = recorder
        guarded = _known_backend(linker).guarded.like(linker, policy, recorder)
        super().__init__(
            guarded,
            optimizer,
            db,
            anywhere=policy.anywhere,
            check_indices=policy.check_indices,
            names=policy.names,
        )
        if recorder.log is not None:
            recorder.log = recorder.log.describing(self._settings())

    def function_class(self, base: type[Function] = Function) -> type[Function]:
        """Return the class of a function that is compiled with this mode.

        Parameters
        ----------
        base : type
            The class that it would have with another mode.
        """
        measures = self.policy.precision
        found: Any = base  # (mypy takes no class for an argument of a cache)
        if self.policy.audit:
            found = joined(found, AuditedFunction)
        if measures is not None:
            found = measures.function_class(found)
        return joined(RecordedFunction, found) if self.policy.history else found

    @NeedsCall
    def function_maker(self) -> Callable[..., FunctionMaker]:
        return partial(FunctionMaker, function_class=self.function_class())

    def _settings(self) -> dict[str, Any]:
        """Return the settings as plain data, for the header of a log."""
        policy, linker, optimizer = self.policy, self.linker, self.provided_optimizer
        if isinstance(optimizer, RewriteDatabaseQuery):
            parts = ("include", "require", "exclude")
            optimizer = {part: sorted(map(str, getattr(optimizer, part))) for part in parts}
        return {
            "class": type(self).__name__,
            "checks": [name for name in ("nan", "inf", "big") if getattr(policy, name)],
            "big_threshold": policy.big_threshold,
            "inf_is_error": ("any" if policy.anywhere else "origin") if policy.inf else False,
            "check_inputs": policy.check_inputs,
            "restore": policy.restore,
            "judge": _name_of(policy.judge),
            "every": policy.every,
            "when": policy.when,
            "precision": policy.precision and policy.precision.every,
            "history": policy.history,
            "snapshots": policy.snapshots,
            "check_integers": policy.check_integers,
            "check_indices": policy.check_indices,
            "action": _name_of(policy.action),
            "exempt": [*policy.names, *(op.__name__ for op in policy.ops)],
            "optimizer": optimizer if isinstance(optimizer, dict) else type(optimizer).__name__,
            "backend": _known_backend(linker).name,
            "linker": _settings_of(linker),
        }

    def __repr__(self) -> str:
        """Return the settings in one line: PyTensor's text lists every rewrite."""
        settings = self._settings()
        checks, action = settings["checks"], settings["action"]
        parts = [f"checks={'/'.join(checks) or 'nothing'}"]
        if "big" in checks:
            parts.append(f"big_threshold={settings['big_threshold']:g}")
        parts += [f"action={action!r}", f"backend={settings['backend']!r}"]
        defaults = {
            "check_inputs": True,
            "restore": True,
            "judge": "node",
            "every": 1,
            "when": None,
            "precision": None,
            "history": False,
            "snapshots": 0,
            "exempt": [],
        }
        parts += [f"{k}={settings[k]!r}" for k, v in defaults.items() if settings[k] != v]
        optimizer = settings["optimizer"]
        if isinstance(optimizer, dict):
            optimizer = ", ".join(
                f"{part} {'/'.join(names)}" for part, names in optimizer.items() if names
            )
        text = ", ".join([*parts, f"optimizer={optimizer!r}"])
        return f"<{type(self).__name__} {text}>"

    __str__ = __repr__

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):  # from a pickle or a copy; ``Mode`` passes a tuple
            recorder = Recorder(state["max_events"], state["log"])
            linker = backends()[state["backend"]].linker(**state["linker"])
            self._set_up(state["policy"], recorder, linker, state["optimizer"], None)
        else:
            super().__setstate__(state)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "max_events": self.recorder.events.maxlen,
            "log": self.recorder.log,
            "backend": _known_backend(self.linker).name,
            "linker": _settings_of(self.linker),
            "optimizer": self.provided_optimizer,
        }

    def __copy__(self) -> "GuardMode":
        return self.clone()

    def clone(
        self, link_kwargs: dict[str, Any] | None = None, optimizer: Any = "", **kwargs: Any
    ) -> "GuardMode":
        """Return a mode with the same settings and a buffer of events of its own."""
        linker = self.linker.clone(**(link_kwargs or {}))
        if isinstance(optimizer, str) and optimizer == "":
            optimizer = self.provided_optimizer
        new = object.__new__(type(self))
        recorder = Recorder(self.recorder.events.maxlen, self.recorder.log)
        new._set_up(self.policy, recorder, linker, optimizer, self.optdb)
        return new

    @property
    def events(self) -> list[GuardEvent]:
        """The last events of all functions compiled with this mode, oldest first."""
        return list(self.recorder.events)

    @staticmethod
    def summary(fn: Any) -> GuardSummary:
        """Return which outputs of a guarded function are checked, and the cost of the checks.

        Parameters
        ----------
        fn : pytensor.compile.executor.Function

        Returns
        -------
        GuardSummary
            ``print`` shows a short text.  The figures are attributes.

        Raises
        ------
        TypeError
            If `fn` was not compiled with a guard.

        Examples
        --------
        >>> import numpy as np, pytensor, pytensor.tensor as pt
        >>> from theanoguard import GuardMode
        >>> x = pt.matrix("x", dtype="float64")
        >>> f = pytensor.function([x], pt.log(x.T).sum(), mode=GuardMode())
        >>> summary = GuardMode.summary(f)
        >>> summary.outputs == summary.checked + sum(summary.dropped.values())
        True
        """
        return summarize(_guard_of(fn), _known_backend(fn.maker.mode.linker).name)


class NanGuardMode(GuardMode):
    """PyTensor's ``NanGuardMode`` with the same arguments, at the cost of :class:`GuardMode`.

    As in PyTensor, integers may be big, and every other infinite or big value is an error, wherever
    it appears.  `linker` is ignored.

    Parameters
    ----------
    nan_is_error, inf_is_error, big_is_error : bool or None
    optimizer, linker, db
        As for :class:`GuardMode`.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from theanoguard import NanGuardMode
    >>> x = pt.scalar("x", dtype="float64")
    >>> f = pytensor.function([x], x * 2, mode=NanGuardMode())
    >>> float(f(3.0))
    6.0
    """

    _anywhere = True

    @checked
    def __init__(
        self,
        nan_is_error: bool | Literal[0, 1] | None = None,
        inf_is_error: bool | Literal[0, 1] | None = None,
        big_is_error: bool | Literal[0, 1] | None = None,
        optimizer: Any = "default",
        linker: Any = None,
        db: Any = None,
    ) -> None:
        super().__init__(
            nan_is_error, inf_is_error, big_is_error, optimizer, None, db, check_integers=True
        )


def _guard_of(fn: Any) -> Any:
    guard = getattr(getattr(fn, "vm", None), "guard", None)
    if guard is None:
        raise TypeError(f"{fn!r} is not a function compiled with GuardMode")
    return guard


def events_of(fn: Any) -> list[GuardEvent]:
    """Return the last events of one guarded function, oldest first.

    Parameters
    ----------
    fn : pytensor.compile.executor.Function

    Returns
    -------
    list of GuardEvent

    Raises
    ------
    TypeError
        If `fn` was not compiled with a guard.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from theanoguard import GuardMode, events_of
    >>> x = pt.scalar("x", dtype="float64")
    >>> f = pytensor.function([x], pt.log(x), mode=GuardMode(action="record"))
    >>> float(f(0.0))
    -inf
    >>> [event.kind for event in events_of(f)]
    ['inf']
    """
    return list(_guard_of(fn).own.events)


def recording_of(fn: Any) -> "history.Recording":
    """Return the record of the calls of a function that was compiled with ``history=True``.

    Parameters
    ----------
    fn : pytensor.compile.executor.Function

    Returns
    -------
    Recording

    Raises
    ------
    TypeError
        If `fn` keeps no record.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard import GuardMode
    >>> from theanoguard.training import recording_of
    >>> x, w = pt.dvector("x"), pytensor.shared(np.ones(3), name="w")
    >>> mode = GuardMode(history=True)
    >>> f = pytensor.function([x], (w * x).sum(), updates={w: w - 0.1 * x}, mode=mode)
    >>> for scale in [1.0] * 9 + [50.0]:
    ...     _ = f(scale * np.arange(3.0))
    >>> print(recording_of(f).series("x", "largest")[1][-3:])
    [2.0, 2.0, 100.0]
    """
    guard = _guard_of(fn)
    if not guard.policy.history:
        raise TypeError(
            f"{fn!r} keeps no record of its calls.\nCompile it with GuardMode(history=True)."
        )
    if guard.recording is None:
        guard.recording = history.Recording(fn, guard.policy.snapshots)
    recording: history.Recording = guard.recording
    return recording
