"""The guard in nutpie: its log-density, compiled by Numba or by JAX, tells where it is bad.

nutpie calls a C function in threads of its own.  Where the log-density is NaN, or finite while its
gradient is not, the function puts the point into a queue and returns an error code of our own,
which ends the trajectory; the trace holds the code, and so the chain and the draw.  The thread that
waits for nutpie judges what is in the queue.
"""

import ctypes
import queue
import re
import warnings
import weakref
from contextlib import suppress
from dataclasses import replace
from functools import wraps

import numba
import numpy as np

from theanoguard._patching import Patch
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.watch import Watch, bad_start

FIRST_CODE = 1000
"""Error codes from here on are ours: the number of the point in the queue."""

MOST = 1000
"""So many points are judged in a run; later ones are only rejected, as nutpie does by itself."""

POLL_S = 0.01
DIMS = ("chain", "draw")

_Note = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double
)


class Recoverable(Exception):
    """What ends a trajectory of a log-density in Python; nutpie reads the attribute."""

    is_recoverable = True


class Notes:
    """The points that the log-density of one compiled model has told.

    Parameters
    ----------
    watch : Watch
    """

    def __init__(self, watch):
        self.watch = watch
        self.told = queue.SimpleQueue()
        self.n_told = 0
        self.layout = ()  # name, slice and shape of each variable in the joined point
        self.callback = _Note(self.note_address)

    def note_address(self, n, x, gradient, logp):
        """Take a point from memory; return an error code for nutpie."""

        def copied(address):
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_double))
            return np.ctypeslib.as_array(pointer, (n,)).copy()

        return self.note(copied(x), logp, copied(gradient))

    def note(self, x, logp, gradient):
        """Take a point; return an error code for nutpie."""
        code = FIRST_CODE + self.n_told
        self.n_told += 1
        if self.n_told <= MOST:
            self.told.put((code, x, logp, gradient))
        return code

    def split(self, joined):
        """Return the values of the variables in a joined array, by name."""
        return {name: joined[part].reshape(shape) for name, part, shape in self.layout}

    def judge(self):
        """Judge what has been told until now; return the code of the first error, or None."""
        while not self.told.empty():
            code, x, logp, gradient = self.told.get()
            if self.watch.judge(self.split(x), logp, self.split(gradient)) is not None:
                return code
        return None


# By what stands for the log-density in a compiled model.
_notes: "weakref.WeakKeyDictionary[object, Notes]" = weakref.WeakKeyDictionary()


def _key(compiled):
    return getattr(compiled, "compiled_logp_func", None) or compiled._make_logp_func


def patches(compile_pymc, nutpie, guard_of):
    """Return what guards the models that nutpie compiles.

    Parameters
    ----------
    compile_pymc, nutpie : module
    guard_of : callable
        ``guard_of()`` returns the :class:`~theanoguard.GuardMode` that holds, or None.
    """
    made = []  # the notes of the model that is being compiled

    def compiling(backend):
        def wrap(original):
            @wraps(original)
            def compile_model(model, *args, **kwargs):
                guard = guard_of()
                if guard is None:
                    return original(model, *args, **kwargs)
                judged_on = "numba" if backend == "numba" else "c"
                made.append(Notes(Watch("nutpie", model, guard, judged_on)))
                try:
                    with unguarded():
                        compiled = original(model, *args, **kwargs)
                    _notes[_key(compiled)] = made[-1]
                finally:
                    made.pop()
                return compiled

            return compile_model

        return wrap

    def make_functions(original):
        @wraps(original)
        def _make_functions(*args, **kwargs):
            result = original(*args, **kwargs)
            if made:
                n_dim, (names, slices, shapes) = result[0], result[5]
                made[-1].layout = [
                    one for one in zip(names, slices, shapes, strict=True) if one[1].stop <= n_dim
                ]
            return result

        return _make_functions

    def make_c_logp_func(original):
        @wraps(original)
        def _make_c_logp_func(n_dim, *args, **kwargs):
            plain, signature = original(n_dim, *args, **kwargs)
            if not made:
                return plain, signature
            call, note = numba.njit(plain), made[-1].callback

            def logp_numba(dim, x_, out_, logp_, user_data_):
                code = call(dim, x_, out_, logp_, user_data_)
                if code > 1:  # (1 is an exception)
                    logp = numba.carray(logp_, ())[()]
                    if logp != -np.inf:
                        x = numba.carray(x_, (n_dim,))
                        gradient = numba.carray(out_, (n_dim,))
                        return note(n_dim, x.ctypes, gradient.ctypes, logp)
                return code

            return logp_numba, signature

        return _make_c_logp_func

    def from_pyfunc(original):
        @wraps(original)
        def guarded(*args, **kwargs):
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


def _telling(make_logp_fn, notes):
    @wraps(make_logp_fn)
    def make():
        logp_fn = make_logp_fn()

        @wraps(logp_fn)
        def logp(x, **shared):
            value, gradient = logp_fn(x, **shared)
            if value != -np.inf and not (np.isfinite(value) and np.isfinite(gradient).all()):
                raise Recoverable(f"error code: {notes.note(np.array(x), value, gradient)}")
            return value, gradient

        return logp

    return make


def _sample(original):
    @wraps(original)
    def sample(compiled_model, *args, **kwargs):
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
        notes.n_told = 0
        run = original(compiled_model, *args, **{**kwargs, "blocking": False})
        # (The warm-up is needed to find the draw.)
        asked = run._return_raw_trace, run._save_warmup
        run._return_raw_trace = True
        results = failed = None
        try:
            while results is None and failed is None:
                with suppress(TimeoutError):  # it has not finished
                    results = run.wait(timeout=POLL_S)
                failed = notes.judge()
            if results is None:
                results = run.abort()
        except KeyboardInterrupt:
            results = run.abort()
        except RuntimeError as refused:
            run.cancel()
            if "initialization points failed" not in str(refused):
                raise
            model, told = notes.watch.model, notes.watch.not_finite
            points = [model.initial_point(), *([told] if told else [])]
            ours = bad_start(model, points, "nutpie")
            if ours is None:
                raise
            raise ours from refused
        except BaseException:
            run.cancel()
            raise
        if failed is None:
            run._return_raw_trace, run._save_warmup = asked
            return run._extract(results)
        run._return_raw_trace, run._save_warmup = False, True
        error = notes.watch.error
        error.where = replace(error.where, **place_of(failed, run._extract(results)))
        raise error

    return sample


def place_of(code, trace):
    """Return where in a run an error code was returned, as :class:`Where` has it."""
    n_draws = 0
    for group, tuning in (("warmup_sample_stats", True), ("sample_stats", False)):
        if group not in getattr(trace, "children", ()):
            continue
        messages = np.asarray(trace[group]["divergence_message"])
        n_draws += messages.size
        for at, message in np.ndenumerate(messages):
            if re.search(rf"error code: {code}\b", str(message)):
                chain, draw = (int(trace[group][d][i]) for d, i in zip(DIMS, at, strict=True))
                return {"chain": chain, "draw": draw, "tuning": tuning}
    if n_draws:
        return {}
    return {"at_start": True, "chain": 0 if trace["sample_stats"].sizes["chain"] == 1 else None}
