"""The guard for PyMC, and the lines of a model in what PyMC makes of it."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from theanoguard._context import setting
from theanoguard._provenance import track_provenance
from theanoguard._pytensor import recording
from theanoguard._values import arrays_in
from theanoguard.guard import GuardMode

# Methods of a model, and files of PyMC, that build graphs from what the model is made of: who calls
# them has not written what they build.
BUILDING = ("logp", "dlogp", "d2logp", "logp_dlogp_function", "compile_fn", "initial_point")
FILES = (
    *(f"/pymc/{part}/" for part in ("sampling", "smc", "step_methods", "tuning", "variational")),
    *(
        f"/theanoguard/pymc/{name}.py"
        for name in (
            *("divergences", "explaining", "geometry", "jax_gradient", "linting"),
            *("points", "running"),
        )
    ),
    *(f"/theanoguard/pymc/{name}.py" for name in ("scales", "watch", "with_jax", "with_nutpie")),
)


@contextmanager
def model_lines() -> Iterator[None]:
    """Keep the lines of a model while PyMC builds its log-density.

    PyMC rebuilds the graph of a model for its log-density.  theanoguard's hooks keep the lines of
    every model.  With ``THEANOGUARD_HOOKS=0`` in the environment, only this block keeps them.

    Examples
    --------
    .. code-block:: python

        with model, theanoguard.pymc.model_lines():
            pymc.sample(compile_kwargs={"mode": theanoguard.pymc.mode()})
    """
    _hide_callers()
    with track_provenance():
        yield


@cache
def _hide_callers() -> None:
    core = importlib.import_module("pymc.model.core")
    methods = [inspect.unwrap(getattr(core.Model, name)) for name in BUILDING]
    recording.hide_callers([method.__code__ for method in methods], FILES)


def spoils_sampling(results: list[Any]) -> bool:
    """Return whether the results of a function that PyMC has compiled are an error.

    A log-density of -inf is not an error, whatever the gradient is, because the sampler rejects the
    point.

    Parameters
    ----------
    results : list
        Outputs of the function, such as the log-density and its gradient, and new values of its
        shared variables.

    Returns
    -------
    bool
        If the first result is a number: True if it is NaN or +inf, or if it is finite and another
        result is not.  If the first result is an array of draws: True if any result contains NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from theanoguard.pymc import spoils_sampling
    >>> bad = np.array([np.nan, 1.0])
    >>> spoils_sampling([np.array(-np.inf), bad]), spoils_sampling([np.array(-3.2), bad])
    (False, True)
    """
    arrays = [a for result in results for a in arrays_in(result) if a.dtype.kind == "f"]
    if not arrays:
        return False
    first = arrays[0]
    if first.ndim:
        return any(np.isnan(array).any() for array in arrays)
    if np.isneginf(first):
        return False
    return not all(np.isfinite(array).all() for array in arrays)


def _nothing(_results: list[Any]) -> bool:
    return False


_rejects: ContextVar[Callable[[list[Any]], bool]] = ContextVar(
    "theanoguard_pymc_rejects", default=_nothing
)


def rejecting(rule: Callable[[list[Any]], bool]) -> AbstractContextManager[None]:
    """Say which bad results make what runs in the block reject the point, by one of these rules."""
    return setting(_rejects, rule)


def bad_start_value(results: list[Any]) -> bool:
    """Reject a starting point whose log-density is not finite: PyMC draws another one."""
    return not np.isfinite(results[0])


def anything(_results: list[Any]) -> bool:
    """Reject every point whose log-density or gradient is not finite."""
    return True


_minimizes: ContextVar[bool] = ContextVar("theanoguard_pymc_minimizes", default=False)


def minimizing() -> AbstractContextManager[None]:
    """Say that PyMC minimizes the negative log-density: there +inf is a rejection."""
    return setting(_minimizes, True)


def spoils_this_run(results: list[Any]) -> bool:
    """Return whether results spoil sampling, and what runs here would not reject the point.

    Whether rejected points spoil the run is decided by :class:`~theanoguard.pymc.watch.Watch`.
    """
    if _minimizes.get() and not np.ndim(results[0]):
        results = [-np.asarray(results[0]), *results[1:]]
    if not spoils_sampling(results):
        return False
    return bool(np.ndim(results[0])) or not _rejects.get()(results)


def mode(**settings: Any) -> GuardMode:
    """Return the guard for PyMC, which raises only at values that spoil sampling.

    These are a log-density that is NaN or +inf, a finite log-density with a gradient that is not
    finite, and a draw that is NaN.  A NaN in a branch that a ``switch`` discards is not an error,
    and neither is a log-density of -inf.  The report names the first operation that made a bad
    value.

    Parameters
    ----------
    **settings
        Other arguments of :class:`~theanoguard.GuardMode`, such as ``backend="numba"``.

    Returns
    -------
    GuardMode

    Raises
    ------
    TypeError, ValueError
        As :class:`~theanoguard.GuardMode`.

    Examples
    --------
    >>> from theanoguard.pymc import mode
    >>> guard = mode()  # pm.sample(compile_kwargs={"mode": guard}, nuts_sampler="pymc")
    >>> guard.policy.by_result, guard.policy.big
    (True, False)
    """
    return GuardMode(**settings_for_pymc(settings))


def settings_for_pymc(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings on top of those of the guard for PyMC."""
    return {"big_is_error": False, "judge": spoils_this_run, **settings}
