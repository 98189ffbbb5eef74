"""The guard in the samplers of PyMC that run inside of JAX: NumPyro's and BlackJAX's.

The whole run is one compiled program.  In it the log-density computes its gradient right away, and
where one of the two is bad it calls Python, which judges the point and stops the program by an
error.
"""

import logging
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps

import numpy as np

from theanoguard._patching import Patch
from theanoguard.pymc.jax_gradient import bad_derivative
from theanoguard.pymc.records import Where
from theanoguard.pymc.watch import Watch

_running: ContextVar[str | None] = ContextVar("theanoguard_pymc_running", default=None)


def running_sampler():
    """Return the name of the sampler inside of JAX that runs here, or None."""
    return _running.get()


class _Stop(Exception):
    """Ends a program of JAX."""


def telling(logp_fn, sign, report):
    """Return a log-density for JAX that calls `report` where it or its gradient is bad.

    Parameters
    ----------
    logp_fn : callable
        ``logp_fn(point)``, with a list of arrays.
    sign : {1, -1}
        What makes its value the log-density.
    report : callable
        ``report(is_bad, logp, gradient, point)`` on NumPy arrays, with the gradient of the
        log-density; inside of ``vmap`` each of them has one more dimension.
    """
    import jax
    import jax.numpy as jnp

    def is_bad(value, gradient):
        good = jnp.isfinite(value)
        for one in jax.tree.leaves(gradient):
            good &= jnp.isfinite(one).all()
        return ~good & ~jnp.isneginf(sign * value)

    def call(*values):
        jax.debug.callback(report, *values)

    @jax.custom_batching.custom_vmap
    def tell(bad, value, gradient, point):
        jax.lax.cond(bad, call, lambda *_: None, bad, value, gradient, point)
        return value

    @tell.def_vmap
    def tell_batch(size, batched, *values):
        # A condition inside of vmap would be a choice, and Python called every time.
        values = jax.tree.map(
            lambda is_batched, v: v if is_batched else jnp.broadcast_to(v, (size, *jnp.shape(v))),
            tuple(batched),
            values,
        )
        jax.lax.cond(jnp.any(values[0]), call, lambda *_: None, *values)
        return values[1], True

    @jax.custom_vjp
    def logp(point):
        return logp_fn(point)

    def forward(point):
        value, gradient = jax.value_and_grad(logp_fn)(point)
        bad = is_bad(value, gradient)
        slopes = [sign * one for one in gradient]
        return sign * tell(bad, sign * value, slopes, list(point)), gradient

    def backward(gradient, scale):
        return (jax.tree.map(lambda one: one * scale, gradient),)

    logp.defvjp(forward, backward)
    return logp


class _Quiet(logging.Filter):
    """Keeps JAX from logging the traceback of what has stopped it."""

    def filter(self, record):
        return not (record.exc_info and isinstance(record.exc_info[1], _Stop))


@contextmanager
def _quiet():
    loggers = [logging.getLogger(f"jax._src.{name}") for name in ("debugging", "callback")]
    quiet = _Quiet()
    for logger in loggers:
        logger.addFilter(quiet)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(quiet)


def patches(pymc_jax, guard_of):
    """Return what guards the runs of PyMC's module for JAX.

    Parameters
    ----------
    pymc_jax : module
    guard_of : callable
        ``guard_of()`` returns the :class:`~theanoguard.GuardMode` that holds, or None.
    """
    watches = []
    unwatched = []

    def get_jaxified_logp(original):
        @wraps(original)
        def guarded(model, negative_logp=True):
            logp_fn, guard = original(model, negative_logp), guard_of()
            if guard is None or unwatched:
                return logp_fn
            # Only one of them judges: JAX cannot be called from what it calls.
            watch = Watch(running_sampler() or "JAX", model, guard, "c")
            watches.append(watch)
            # (PyMC's argument says the opposite of what it does.)
            return telling(logp_fn, 1 if negative_logp else -1, _reporter(watch))

        return guarded

    def sample_jax_nuts(original):
        @wraps(original)
        def guarded(*args, **kwargs):
            if guard_of() is None:
                return original(*args, **kwargs)
            if (kwargs.get("nuts_kwargs") or {}).get("forward_mode_differentiation"):
                warnings.warn(
                    "the run is not guarded: JAX differentiates it forwards.\n"
                    "Leave forward_mode_differentiation out, or use nuts_sampler='pymc'.",
                    UserWarning,
                    stacklevel=2,
                )
                unwatched.append(True)
                try:
                    return original(*args, **kwargs)
                finally:
                    unwatched.pop()
            import jax

            token = _running.set(kwargs.get("nuts_sampler"))
            before = len(watches)
            try:
                with _quiet():
                    result = original(*args, **kwargs)
                    jax.effects_barrier()
            except Exception:
                stopped = next((w for w in watches[before:] if w.error is not None), None)
                if stopped is None:
                    raise
                with _quiet():
                    _forget_effects(jax)
                if stopped.error.terms.ok:
                    stopped.error.note = _note(stopped.model, stopped.error.terms.point)
                raise stopped.error from None
            finally:
                _running.reset(token)
                del watches[before:]
            return result

        return guarded

    def get_starts(original):
        @wraps(original)
        def _get_batched_jittered_initial_points(*args, **kwargs):
            points = original(*args, **kwargs)
            chains = kwargs["chains"]
            for watch in watches[-1:]:
                by_chain = [points] if chains == 1 else zip(*points, strict=True)
                watch.starts = [list(start) for start in by_chain]
            return points

        return _get_batched_jittered_initial_points

    return [
        Patch(pymc_jax, "get_jaxified_logp", get_jaxified_logp),
        Patch(pymc_jax, "_get_batched_jittered_initial_points", get_starts),
        Patch(pymc_jax, "sample_jax_nuts", sample_jax_nuts),
    ]


def _forget_effects(jax):
    """Wait for what still runs, whose error would otherwise be shown at exit."""
    try:
        jax.effects_barrier()
    except Exception as error:
        logging.getLogger("theanoguard").debug("theanoguard: JAX was stopped: %s", error)


def _note(model, point):
    """Say why JAX's gradient is bad where PyTensor's is not, and how to sample with the latter."""
    try:
        with warnings.catch_warnings(action="ignore"):  # they have been shown before the run
            text = bad_derivative(model, point)
    except Exception as error:  # (JAX may refuse an operation outside of a compiled program)
        text = ""
        logging.getLogger("theanoguard").debug("theanoguard: no derivative is found: %s", error)
    advice = 'Sample with nuts_sampler="pymc" or "nutpie", which use the gradient of PyTensor.'
    return "\n".join([*([text] if text else []), advice])


def _reporter(watch):
    names = [v.name for v in watch.model.value_vars]

    def report(is_bad, logp, gradient, point):
        is_bad = np.asarray(is_bad)
        chains = np.flatnonzero(is_bad) if is_bad.ndim else [None]
        for chain in chains:
            at = () if chain is None else int(chain)
            values = {n: np.asarray(v)[at] for n, v in zip(names, point, strict=True)}
            where = _place(watch, None if chain is None else int(chain), list(values.values()))
            slopes = {n: np.asarray(v)[at] for n, v in zip(names, gradient, strict=True)}
            if watch.judge(values, np.asarray(logp)[at], slopes, where) is not None:
                raise _Stop

    return report


def _place(watch, chain, values):
    """Return where a point is, from the chain if JAX has batched them."""
    if chain is None and len(watch.starts) == 1:
        chain = 0
    for number, start in enumerate(watch.starts):
        if chain in (None, number) and all(map(np.array_equal, start, values)):
            return Where(watch.sampler, number, at_start=True)
    return Where(watch.sampler, chain)
