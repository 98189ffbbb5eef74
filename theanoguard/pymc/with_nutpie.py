"""The guard in nutpie: its log-density, compiled by Numba or by JAX, tells where it is bad.

nutpie calls a C function in threads of its own.  Where the log-density is NaN or infinite, or
finite while its gradient is not, the function keeps the point and returns an error code of our own,
which ends the trajectory; the trace holds the code, and so the chain and the draw.  The thread that
waits for nutpie judges the points that have a place in the trace.
"""

import ctypes
import re
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, wraps
from typing import Any

import numba
import numpy as np

from theanoguard._patching import Patch, Wrapped
from theanoguard._releases import MISSING, has
from theanoguard.guard import GuardMode
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.records import SamplingError, Where
from theanoguard.pymc.rejections import warn_of
from theanoguard.pymc.watch import MOST, Ending, Point, Watch, bad_start

FIRST_CODE = 1000  # error codes from here on are ours: the number of the point in the queue

POLL_S = 0.01

LOOK_S = 0.5
"""After so many seconds the trace of a run is looked at, and again each time these have doubled."""

DIMS = ("chain", "draw")
GROUPS = {"warmup_sample_stats": True, "sample_stats": False}
"""The groups of a trace with its statistics, and whether they are of the tuning."""
CODE = re.compile(r"error code: (\d+)\b")

_Note = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double
)


class Recoverable(Exception):
    """What ends a trajectory of a log-density in Python; nutpie reads the attribute."""

    is_recoverable = True


class Notes:
    """The points that the log-density of one compiled model has told.

    `initvals`: starting values that are not the model's own, by variable.
    """

    def __init__(self, watch: Watch, initvals: Any = None) -> None:
        self.watch = watch
        self.initvals = initvals
        self.layout: list[Any] = []  # name, slice and shape of each variable in the joined point
        self.callback = _Note(self.note_address)
        self.lock = threading.Lock()
        self.begin(watch)

    def begin(self, watch: Watch) -> None:
        """Forget the points of the last run."""
        self.watch = watch
        self.logps: dict[int, float] = {}  # by the code
        # The newest points, for each kind of log-density.
        self.points: dict[bool, deque[Any]] = {
            is_wall: deque(maxlen=MOST) for is_wall in (True, False)
        }

    def note_address(self, n: int, x: int, gradient: int, logp: float) -> int:
        """Take a point from memory; return an error code for nutpie."""

        def copied(address: int) -> np.ndarray:
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_double))
            return np.ctypeslib.as_array(pointer, (n,)).copy()

        return self.note(copied(x), logp, copied(gradient))

    def note(self, x: np.ndarray, logp: float, gradient: np.ndarray) -> int:
        """Take a point; return an error code for nutpie."""
        with self.lock:
            code = FIRST_CODE + len(self.logps)
            self.logps[code] = logp
        self.points[bool(np.isneginf(logp))].append((code, x, gradient))
        return code

    def split(self, joined: np.ndarray) -> Point:
        """Return the values of the variables in a joined array, by name."""
        return {name: joined[part].reshape(shape) for name, part, shape in self.layout}

    @property
    def has_bad(self) -> Any:
        """Whether a point was told whose log-density is not -inf."""
        return bool(self.points[False])

    def judged(
        self, run: Any, results: Callable[[], Any]
    ) -> tuple[dict[int, Where], SamplingError | None]:
        """Return the places of the points of a run so far, and the first error or None."""
        what = "which points were rejected"
        nothing: dict[int, Where] = {}
        places = self.watch.attempt(what, nothing, lambda: _places(run, results()))
        return places, self.watch.attempt(what, None, self.judge, places)

    def judge(self, places: dict[int, Where]) -> SamplingError | None:
        """Judge the points at these places, by their codes; return the first error, or None."""
        told = {code: more for kind in self.points.values() for code, *more in list(kind)}
        for code, where in places.items():
            x, gradient = told.get(code, (None, None))
            point, slopes = (None if v is None else self.split(v) for v in (x, gradient))
            ending = Ending(point, self.logps.get(code, np.nan), slopes, where)
            if (error := self.watch.judge(ending)) is not None:
                return error
        return None

    def fill(self, trace: Any, places: Any) -> None:
        """Put the points at these places into a trace: nutpie has none where there is no energy."""
        told = {code: x for kind in self.points.values() for code, x, _ in kind}
        for group, tuning in GROUPS.items():
            if group not in getattr(trace, "children", ()) or "divergence_end" not in trace[group]:
                continue
            stats = trace[group]
            ends = stats["divergence_end"].copy()
            for code, where in places.items():
                if where.tuning == tuning and code in told:
                    ends.loc[dict(zip(DIMS, (where.chain, where.draw), strict=True))] = told[code]
            stats.dataset = stats.to_dataset().assign(divergence_end=ends)

    def starts(self) -> list[Point]:
        """Return where nutpie may have tried to start: without its jitter, and its last points."""
        from pymc.initial_point import make_initial_point_fn

        first = make_initial_point_fn(model=self.watch.model, overrides=self.initvals)(0)
        walls = [self.split(x) for _, x, _ in list(self.points[True])[-1:]]
        return [first, *filter(None, [self.watch.not_finite]), *walls]

    def at_start(self) -> Any:
        """Return the error that explains a point that nutpie could not start at, or None."""
        chain = 0 if self.watch.n_chains == 1 else None
        where = Where("nutpie", chain, at_start=True)
        return self.judge({code: where for code, *_ in list(self.points[False])})


# By what stands for the log-density in a compiled model.
_notes: "weakref.WeakKeyDictionary[object, Notes]" = weakref.WeakKeyDictionary()


def _key(compiled: Any) -> Any:
    return getattr(compiled, "compiled_logp_func", None) or compiled._make_logp_func


@cache  # equal patches are applied once
def patches(
    compile_pymc: Any, nutpie: Any, guard_of: Callable[[], GuardMode | None]
) -> list[Patch]:
    """Return what guards the models that nutpie compiles.

    `guard_of`: ``guard_of()`` returns the :class:`~theanoguard.GuardMode` that holds, or None.
    """
    made = []  # the notes of the model that is being compiled

    def compiling(backend: str) -> Callable[[Wrapped], Wrapped]:
        def wrap(original: Wrapped) -> Wrapped:
            @wraps(original)
            def compile_model(model: Any, *args: Any, **kwargs: Any) -> Any:
                guard = guard_of()
                if guard is None:
                    return original(model, *args, **kwargs)
                judged_on = "numba" if backend == "numba" else "c"
                watch = Watch("nutpie", model, guard, judged_on)
                made.append(Notes(watch, kwargs.get("initial_points")))
                try:
                    with unguarded():
                        compiled = original(model, *args, **kwargs)
                    _notes[_key(compiled)] = made[-1]
                finally:
                    made.pop()
                return compiled

            return compile_model

        return wrap

    def make_functions(original: Wrapped) -> Wrapped:
        @wraps(original)
        def _make_functions(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if made:
                n_dim, (names, slices, shapes) = result[0], result[5]
                made[-1].layout = [
                    one for one in zip(names, slices, shapes, strict=True) if one[1].stop <= n_dim
                ]
            return result

        return _make_functions

    def make_c_logp_func(original: Wrapped) -> Wrapped:
        @wraps(original)
        def _make_c_logp_func(n_dim: Any, *args: Any, **kwargs: Any) -> Any:
            plain, signature = original(n_dim, *args, **kwargs)
            if not made:
                return plain, signature
            call, note = numba.njit(plain), made[-1].callback

            def logp_numba(dim: Any, x_: Any, out_: Any, logp_: Any, user_data_: Any) -> Any:
                code = call(dim, x_, out_, logp_, user_data_)
                if code > 1:  # (1 is an exception)
                    logp = numba.carray(logp_, ())[()]
                    x = numba.carray(x_, (n_dim,))
                    gradient = numba.carray(out_, (n_dim,))
                    return note(n_dim, x.ctypes, gradient.ctypes, logp)
                return code

            return logp_numba, signature

        return _make_c_logp_func

    def from_pyfunc(original: Wrapped) -> Wrapped:
        @wraps(original)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if made:
                kwargs["make_logp_fn"] = _telling(kwargs["make_logp_fn"], made[-1])
            return original(*args, **kwargs)

        return guarded

    return [
        Patch(compile_pymc, "_compile_pymc_model_numba", compiling("numba")),
        Patch(compile_pymc, "_compile_pymc_model_jax", compiling("jax")),
        Patch(compile_pymc, "_make_functions", make_functions),
        Patch(compile_pymc, "_make_c_logp_func", make_c_logp_func),
        Patch(compile_pymc, "from_pyfunc", from_pyfunc),
        Patch(nutpie, "sample", _sample),
    ]


def _telling(make_logp_fn: Any, notes: Notes) -> Any:
    @wraps(make_logp_fn)
    def make() -> Any:
        logp_fn = make_logp_fn()

        @wraps(logp_fn)
        def logp(x: Any, **shared: Any) -> Any:
            value, gradient = logp_fn(x, **shared)
            if not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise Recoverable(f"error code: {notes.note(np.array(x), value, gradient)}")
            return value, gradient

        return logp

    return make


# nutpie tells the statistics of a run only in its trace, of the warm-up only if it is asked to.
# Without one of these names, the run is not guarded.
OF_A_RUN = ("_settings", "_return_raw_trace", "_save_warmup", "_sampler", "_extract")


def _without_nulls(batch: Any) -> Any:
    """Return statistics in which a missing point is a point of NaN.

    nutpie 0.16 cannot read the points if they have as many numbers in all as there are draws.
    """
    import pyarrow  # (nutpie needs it)

    for position, name in enumerate(batch.column_names):
        array = pyarrow.array(batch.column(name))
        is_list = isinstance(array, pyarrow.ListArray | pyarrow.LargeListArray)
        if not array.null_count or not is_list or not len(array.flatten()):
            continue
        field, known = pyarrow.field(batch.schema.field(position)), np.asarray(array.is_valid())
        numbers = np.asarray(array.flatten(), float).reshape(known.sum(), -1)
        filled = np.full((len(array), numbers.shape[1]), np.nan)
        filled[known] = numbers
        ends = np.arange(len(array) + 1, dtype=np.int32) * filled.shape[1]
        column = type(array).from_arrays(pyarrow.array(ends), pyarrow.array(filled.ravel()))
        batch = batch.set_column(position, field.with_type(column.type), column)
    return batch


class Results:
    """What a run of nutpie returns, whose trace can be taken more than once."""

    def __init__(self, results: Any) -> None:
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    @cached_property
    def _trace(self) -> Any:
        draws, stats = self._results.get_arrow_trace()
        return draws, [_without_nulls(batch) for batch in stats]

    def get_arrow_trace(self) -> Any:
        """Return the batches of the draws and of the statistics."""
        return self._trace


def _sample(original: Wrapped) -> Wrapped:
    @wraps(original)
    def sample(compiled_model: Any, *args: Any, **kwargs: Any) -> Any:
        notes = _notes.get(_key(compiled_model))
        if notes is None:
            return original(compiled_model, *args, **kwargs)
        if not kwargs.get("blocking", True):
            warnings.warn(
                "nutpie.sample(blocking=False) runs without a guard.\n"
                "Leave blocking out, or explain the divergences afterwards with "
                "theanoguard.pymc.explain_divergences.",
                UserWarning,
                stacklevel=2,
            )
            return original(compiled_model, *args, **kwargs)
        asked_for = {"store_divergences": True, **kwargs, "blocking": False}
        run = original(compiled_model, *args, **asked_for)
        if not all(has(run, name, "guarding nutpie.sample") for name in OF_A_RUN):
            warnings.warn(f"theanoguard: {MISSING[-1]}.", RuntimeWarning, stacklevel=2)
            return run.wait()
        settings = run._settings.as_dict()
        settings = settings.get("settings", settings)  # (the shape depends on nutpie's release)
        sizes = (settings[f"num_{name}"] for name in ("draws", "tune", "chains"))
        notes.begin(notes.watch.for_run(*sizes))
        # (The warm-up is needed to find the draw.)
        asked = run._return_raw_trace, run._save_warmup
        run._return_raw_trace = True
        results = failed = None
        started, looks_at = time.monotonic(), LOOK_S
        try:
            while results is None and failed is None:
                with suppress(TimeoutError):  # it has not finished
                    results = run.wait(timeout=POLL_S)
                if results is None and notes.has_bad and time.monotonic() > started + looks_at:
                    looks_at *= 2
                    _, failed = notes.judged(run, run._sampler.inspect)
            if results is None:
                results = run.abort()
        except KeyboardInterrupt:
            results = run.abort()
        except RuntimeError as refused:
            run.cancel()
            if "initialization points failed" not in str(refused):
                raise
            ours = notes.at_start()
            if ours is None:
                ours = bad_start(notes.watch.model, notes.starts(), "nutpie")
            if ours is None:
                raise
            raise ours from refused
        except BaseException:
            run.cancel()
            raise
        places: dict[int, Where] = {}
        results = Results(results)
        if failed is None and notes.logps:
            places, failed = notes.judged(run, lambda: results)
        if failed is not None:
            raise failed
        warn_of(notes.watch)
        run._return_raw_trace, run._save_warmup = asked
        trace = run._extract(results)
        notes.watch.attempt("the points of the divergences", None, notes.fill, trace, places)
        return trace

    return sample


def _places(run: Any, results: Any) -> dict[int, Where]:
    """Return where in a run our error codes were returned, by the code, in the order of the draws.

    The run is left as it returns raw results.
    """
    kept = run._return_raw_trace, run._save_warmup
    run._return_raw_trace, run._save_warmup = False, True
    try:
        return places_in(run._extract(results))
    finally:
        run._return_raw_trace, run._save_warmup = kept


def places_in(trace: Any) -> dict[int, Where]:
    """Return where in a trace our error codes stand, as :class:`Where` by the code."""
    places = {}
    for group, tuning in GROUPS.items():
        if group not in getattr(trace, "children", ()):
            continue
        for at, message in np.ndenumerate(np.asarray(trace[group]["divergence_message"])):
            if (code := CODE.search(str(message))) is not None:
                chain, draw = (int(trace[group][d][i]) for d, i in zip(DIMS, at, strict=True))
                places[int(code[1])] = Where("nutpie", chain, draw, tuning)
    return places
