"""Lint of a PyMC model: points of its prior at which its log-density or its gradient fails."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from theanoguard._arguments import checked
from theanoguard._lint import (
    SECONDS,
    Asked,
    Finding,
    Findings,
    lint_values,
    unless_rejected,
    with_lines,
    witnessed,
)
from theanoguard._lint.bounds import of_arrays
from theanoguard.pymc.modes import model_lines
from theanoguard.pymc.points import is_finite, prior_points, pymc_of

DRAWS = 60  # draws from the prior


@checked
def lint(
    model: Any,
    *,
    mode: Any = None,
    all: bool = False,
    draws: int = DRAWS,
    seconds: float = SECONDS,
    seed: int = 0,
    ignore: Collection[str] = (),
) -> list[Finding]:
    """Find points of a model at which its log-density, or the gradient of it, fails.

    Lint draws from the prior and searches between the smallest and the largest draw of each
    parameter.  It reports a point at which the log-density is NaN or +inf, at which it is -inf
    although the formula is finite, or at which it is finite and its gradient is not.  The functions
    are compiled as PyMC compiles them.

    Parameters
    ----------
    model : pymc.Model
    mode : str or Mode, optional
        The mode in which you sample.
    all : bool
        Also report operations of your own code for which lint has found no such point.
    draws : int
        How many draws from the prior it takes.
    seconds : float
        Seconds of processor time that the search may take.
    seed : int
        Of the draws.
    ignore : collection of str
        Names of rules to switch off, as for :func:`theanoguard.lint`.

    Returns
    -------
    list of Finding
        ``finding.witness.inputs`` is a point, by the names of the value variables.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    ValueError
        If the log-density cannot be computed at any point.

    Examples
    --------
    .. code-block:: python

        for finding in theanoguard.pymc.lint(model):
            print(finding)
    """
    pymc = pymc_of("lint", model)
    with model_lines(), model:
        logp, slopes = model.logp(), _slopes(model)
        inputs = list(model.value_vars)
    examples = points_of(model, draws, seed)
    bounds = {v: of_arrays([e[v] for e in examples]) for v in inputs}
    found = lint_values([logp], {}, {}, gradient=bool(slopes), ranges=bounds)
    static = with_lines(found, [logp])

    def compile_function(ins: Any, outs: Any, **settings: Any) -> Any:
        with model:
            return pymc.compile(ins, outs, **settings)

    asked = Asked(
        examples=examples,
        gradient=False,
        mode=mode,
        seconds=seconds,
        seed=seed,
        compile=compile_function,
        watched=unless_rejected,
        infinite_is_bad=False,
        names=("the log-density", "its gradient"),
    )
    findings = witnessed([logp, *slopes], {}, static, asked, ignore)
    own = {one.finding for one in static if one.is_own}
    return Findings(f for f in findings if f.witness is not None or (all and f in own))


def _slopes(model: Any) -> list[Any]:
    """Return the gradient of the log-density, if there is one."""
    if not model.continuous_value_vars:
        return []
    try:
        return [model.dlogp()]
    except Exception:  # (an operation without a derivative raises whatever it likes)
        return []


def points_of(model: Any, draws: int, seed: int) -> list[Mapping[Any, Any]]:
    """Return the initial point and points that are drawn from the prior, by value variable."""
    import pymc

    points = [model.initial_point(random_seed=seed)]
    if model.free_RVs and draws:
        points += filter(is_finite, prior_points(pymc, model, draws, seed))
    return [
        {v: np.asarray(point[v.name], v.type.dtype) for v in model.value_vars} for point in points
    ]
