"""The guard in the samplers of PyMC that run inside of JAX: NumPyro's and BlackJAX's.

The whole run is one compiled program.  In it the log-density computes its gradient right away, and
where one of the two is bad it calls Python, which judges the point and stops the program by an
error.
"""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

import numpy as np

from theanoguard._context import setting
from theanoguard._patching import Patch, Wrapped, applied
from theanoguard.guard import GuardMode
from theanoguard.pymc.jax_gradient import bad_derivative
from theanoguard.pymc.records import Where
from theanoguard.pymc.rejections import warn_of
from theanoguard.pymc.watch import Ending, Point, Watch, existing, left_out

_running: ContextVar[str | None] = ContextVar("theanoguard_pymc_running", default=None)


def running_sampler() -> Any:
    """Return the name of the sampler inside of JAX that runs here, or None."""
    return _running.get()


class _Stop(Exception):
    """Ends a program of JAX."""


# While JAX traces a run: where the chain has started (nothing if JAX has batched the chains), and
# the number of its iteration, with the tuning (-1 outside of the loop).  They are tracers.
_chain_start: ContextVar[tuple] = ContextVar("theanoguard_pymc_chain_start", default=())
_iteration: ContextVar[object] = ContextVar("theanoguard_pymc_iteration", default=-1)


def _numpyro_places(watches: list[Watch]) -> list[Patch]:
    """Return what notes where NumPyro evaluates the log-density."""
    import jax

    def single_chain(original: Wrapped) -> Wrapped:
        @wraps(original)
        def _single_chain_mcmc(self: Any, init: Any, *args: Any, **kwargs: Any) -> Any:
            if self.chain_method == "vectorized":
                return original(self, init, *args, **kwargs)
            start = tuple(init[2])
            if isinstance(start[0], jax.core.Tracer):
                with setting(_chain_start, start):
                    return original(self, init, *args, **kwargs)
            # Chains that run one after the other share a program, which would keep the first start.
            watches[-1].running_from = start
            return jax.block_until_ready(original(self, init, *args, **kwargs))

        return _single_chain_mcmc

    def counting(original: Wrapped) -> Wrapped:
        @wraps(original)
        def hmc(*args: Any, **kwargs: Any) -> Any:
            init_kernel, sample_kernel = original(*args, **kwargs)

            def counted(state: Any, *more: Any) -> Any:
                with setting(_iteration, state.i):
                    return sample_kernel(state, *more)

            return init_kernel, counted

        return hmc

    return [
        Patch("numpyro.infer.MCMC", "_single_chain_mcmc", single_chain),
        Patch("numpyro.infer.hmc", "hmc", counting),
    ]


def _blackjax_places(pymc_jax: Any, tune: int) -> list[Patch]:
    """Return what notes where BlackJAX evaluates the log-density."""

    def single_chain(original: Wrapped) -> Wrapped:
        @wraps(original)
        def _blackjax_inference_loop(
            seed: Any, init_position: Any, *args: Any, **kwargs: Any
        ) -> Any:
            with setting(_chain_start, tuple(init_position)):
                return original(seed, init_position, *args, **kwargs)

        return _blackjax_inference_loop

    def counting_from(first: int) -> Callable[[Wrapped], Wrapped]:
        def counting(original: Wrapped) -> Wrapped:
            @wraps(original)
            def gen_scan_fn(*args: Any, **kwargs: Any) -> Any:
                scan = original(*args, **kwargs)

                def counted(step: Any, init: Any, numbered: Any) -> Any:
                    def one_step(carry: Any, x: Any) -> Any:
                        with setting(_iteration, first + x[0]):
                            return step(carry, x)

                    return scan(one_step, init, numbered)

                return counted

            return gen_scan_fn

        return counting

    return [
        Patch(pymc_jax, "_blackjax_inference_loop", single_chain),
        Patch("blackjax.adaptation.window_adaptation", "gen_scan_fn", counting_from(0)),
        Patch("blackjax.progress_bar", "gen_scan_fn", counting_from(tune)),
    ]


def telling(logp_fn: Wrapped, sign: int, report: Wrapped) -> Wrapped:
    """Return a log-density for JAX that calls `report` where it or its gradient is bad.

    - `logp_fn`: ``logp_fn(point)``, with a list of arrays.
    - `sign`: what makes its value the log-density.
    - `report`: ``report(is_bad, logp, gradient, point, start, iteration)`` on NumPy arrays, with
      the gradient of the log-density, where the chain has started and the number of its iteration.
      Inside of ``vmap`` each of them has one more dimension.
    """
    import jax
    import jax.numpy as jnp

    def is_bad(value: Any, gradient: Any) -> Any:
        good = jnp.isfinite(value)
        for one in jax.tree.leaves(gradient):
            good &= jnp.isfinite(one).all()
        return ~good

    def call(*values: Any) -> None:
        jax.debug.callback(report, *values)

    @jax.custom_batching.custom_vmap
    def tell(bad: Any, value: Any, *more: Any) -> Any:
        jax.lax.cond(bad, call, lambda *_: None, bad, value, *more)
        return value

    @tell.def_vmap
    def tell_batch(size: Any, batched: Any, *values: Any) -> Any:
        # A condition inside of vmap would be a choice, and Python called every time.
        values = jax.tree.map(
            lambda is_batched, v: v if is_batched else jnp.broadcast_to(v, (size, *jnp.shape(v))),
            tuple(batched),
            values,
        )
        jax.lax.cond(jnp.any(values[0]), call, lambda *_: None, *values)
        return values[1], True

    @jax.custom_vjp
    def logp(point: Any, start: Any, iteration: Any) -> Any:
        return logp_fn(point)

    def forward(point: Any, start: Any, iteration: Any) -> Any:
        value, gradient = jax.value_and_grad(logp_fn)(point)
        bad = is_bad(value, gradient)
        slopes = [sign * one for one in gradient]
        told = tell(bad, sign * value, slopes, list(point), list(start), iteration)
        return sign * told, gradient

    def backward(gradient: Any, scale: Any) -> Any:
        return jax.tree.map(lambda one: one * scale, gradient), None, None

    logp.defvjp(forward, backward)
    return lambda point: logp(point, _chain_start.get(), _iteration.get())


class _Quiet(logging.Filter):
    """Keeps JAX from logging the traceback of what has stopped it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], _Stop))


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(f"jax._src.{name}") for name in ("debugging", "callback")]
    quiet = _Quiet()
    for logger in loggers:
        logger.addFilter(quiet)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(quiet)


@cache  # equal patches are applied once
def patches(pymc_jax: Any, guard_of: Callable[[], GuardMode | None]) -> list[Patch]:
    """Return what guards the runs of PyMC's module for JAX.

    `guard_of`: ``guard_of()`` returns the :class:`~theanoguard.GuardMode` that holds, or None.
    """
    watches = []
    unwatched: list[bool] = []
    sizes = [(0, 0, 1)]  # of the runs: how many draws, steps of tuning, and chains

    def get_jaxified_logp(original: Wrapped) -> Wrapped:
        @wraps(original)
        def guarded(model: Any, negative_logp: Any = True) -> Any:
            logp_fn, guard = original(model, negative_logp), guard_of()
            if guard is None or unwatched:
                return logp_fn
            # Only one of them judges: JAX cannot be called from what it calls.
            watch = Watch(running_sampler() or "JAX", model, guard, "c", *sizes[-1])
            watches.append(watch)
            # (PyMC's argument says the opposite of what it does.)
            return telling(logp_fn, 1 if negative_logp else -1, _reporter(watch))

        return guarded

    def sample_jax_nuts(original: Wrapped) -> Wrapped:
        signature = inspect.signature(original)

        @wraps(original)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if guard_of() is None:
                return original(*args, **kwargs)
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            sampler, tune = given.arguments["nuts_sampler"], given.arguments["tune"]
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

            token = _running.set(sampler)
            before = len(watches)
            sizes.append((given.arguments["draws"], tune, given.arguments["chains"]))
            is_blackjax = sampler == "blackjax"
            places = _blackjax_places(pymc_jax, tune) if is_blackjax else _numpyro_places(watches)
            try:
                with _quiet(), applied(existing(places)):
                    result = original(*args, **kwargs)
                    jax.effects_barrier()
            except Exception:
                stopped = next((w for w in watches[before:] if w.error is not None), None)
                if stopped is None or stopped.error is None:
                    raise
                with _quiet():
                    _forget_effects(jax)
                if stopped.error.terms is not None and stopped.error.terms.ok:
                    stopped.error.note = _note(stopped, stopped.error.terms.point)
                raise stopped.error from None
            finally:
                _running.reset(token)
                run = watches[before:]
                del watches[before:]
                sizes.pop()
            if run:  # (each sees the same points)
                warn_of(run[-1])
            return result

        return guarded

    def get_starts(original: Wrapped) -> Wrapped:
        @wraps(original)
        def _get_batched_jittered_initial_points(*args: Any, **kwargs: Any) -> Any:
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


def _forget_effects(jax: Any) -> None:
    """Wait for what still runs, whose error would otherwise be shown at exit."""
    try:
        jax.effects_barrier()
    except Exception as error:
        logging.getLogger("theanoguard").debug("theanoguard: JAX was stopped: %s", error)


def _note(watch: Watch, point: Point) -> str:
    """Say why JAX's gradient is bad where PyTensor's is not, and how to sample with the latter."""
    with warnings.catch_warnings(action="ignore"):  # they have been shown before the run
        text = watch.attempt("JAX's derivative", "", bad_derivative, watch.model, point)
    told = [left_out(watch.failed)] if watch.failed else []
    advice = 'Sample with nuts_sampler="pymc" or "nutpie", which use the gradient of PyTensor.'
    return "\n".join([*([text] if text else []), *told, advice])


def _reporter(watch: Watch) -> Any:
    names = [v.name for v in watch.model.value_vars]

    def ending(
        chain: int | None, logp: Any, slopes: Any, point: Any, start: Any, iteration: Any
    ) -> Ending:
        """Return what has ended at a point of a chain, which is None where JAX runs one alone."""
        at = () if chain is None else chain
        slopes, point, start = ([np.asarray(v)[at] for v in vs] for vs in (slopes, point, start))
        where = _place(watch, chain, point, start, int(np.asarray(iteration)[at]))
        values, gradient = (dict(zip(names, vs, strict=True)) for vs in (point, slopes))
        return Ending(values, float(np.asarray(logp)[at]), gradient, where)

    def report(is_bad: Any, *told: Any) -> None:
        is_bad = np.asarray(is_bad)
        for chain in map(int, np.flatnonzero(is_bad)) if is_bad.ndim else [None]:
            found = watch.attempt("a point that was rejected", None, ending, chain, *told)
            if found is not None and watch.judge(found) is not None:
                raise _Stop

    return report


def _place(
    watch: Watch, chain: int | None, point: Sequence[Any], start: Sequence[Any], iteration: int
) -> Where:
    """Return where a point is, from what the program has told.

    The chain is None where JAX has not batched the chains.  Then it is found by its start.
    """

    def starting_at(values: Sequence[Any]) -> list[int]:
        known = enumerate(watch.starts)
        return [n for n, one in known if values and all(map(np.array_equal, one, values))]

    if chain is None:
        found = [0] if len(watch.starts) == 1 else starting_at(start or watch.running_from)
        chain = found[0] if len(found) == 1 else None
    if len(at := [n for n in starting_at(point) if chain in (None, n)]):
        return Where(watch.sampler, at[0] if len(at) == 1 else chain, at_start=True)
    if iteration < 0:
        return Where(watch.sampler, chain)
    tuning = iteration < watch.n_tune
    draw = iteration if tuning else iteration - watch.n_tune
    return Where(watch.sampler, chain, draw, tuning)
