"""Bad values that a distribution of PyMC makes of sound parameters: the model is not at fault."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard._pytensor import Mode
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.parameters import OF_OTHERS, distribution_of, given_parameters

MODERATE = 1e-8, 1e8
"""Parameters and data of a size between these, or 0, are sound."""


def inside_library(model: Any, variable: Any, evaluate: Callable) -> str:
    """Say that a distribution makes a bad value of sound parameters, with a reproduction.

    Its log-density is computed again, at the first element where it or its gradient is bad, of
    numbers instead of the model's parameters.

    Parameters
    ----------
    model : pymc.Model
    variable : Variable
        A random variable, or a potential.
    evaluate : callable
        From a list of variables to their values at the point, by variable.

    Returns
    -------
    str
        "" if the distribution is not PyMC's own, or is not at fault.
    """
    import pymc

    name, given = distribution_of(variable), given_parameters(variable)
    distribution = getattr(pymc, name, None)
    values = model.rvs_to_values.get(variable)
    if distribution is None or values is None or not given or None in given.values():
        return ""
    if name.startswith(("Custom", "Mixture", "Simulator")) or variable.type.ndim > 1:
        return ""
    if name not in OF_OTHERS and any(getattr(variable.owner.op, "ndims_params", ())):
        return ""
    if any(v.type.ndim > 1 or v.dtype == "bool" for v in given.values()):
        return ""
    parameters = model.replace_rvs_by_values(list(given.values()))
    found = evaluate([values, *parameters])
    numbers = np.broadcast_arrays(*(found[v] for v in (values, *parameters)))
    if any(np.shape(array) != np.shape(found[values]) for array in numbers):
        return ""
    for index in np.ndindex(numbers[0].shape):
        value, *at = (array[index] for array in numbers)
        arguments = dict(zip(given, at, strict=True))
        if not all(map(_is_sound, [float(value), *map(float, at)])):
            continue
        logp, slopes = _alone(pymc, distribution, arguments, value)
        bad = [n for n, slope in slopes.items() if not np.isfinite(slope)]
        if not np.isnan(logp) and not (np.isfinite(logp) and bad):
            continue
        told = "the log-density" if np.isnan(logp) else f"the gradient by {bad[0]}"
        number = logp if np.isnan(logp) else slopes[bad[0]]
        given_text = ", ".join(f"{n}={float(v)!r}" for n, v in arguments.items())
        place = f"{variable.name}{list(index)}" if index else variable.name
        at_edge = value == 0 and name not in WITH_ZERO
        head = f"inside pymc.{name}: of finite parameters, {told} is {float(number)} at {place}."
        if at_edge:
            return (
                f"{head}\n{place} = 0 is at the edge of the support.  A measured 0 is often a "
                "rounded number: give it half of the resolution, or a censored likelihood."
            )
        return "\n".join(
            [
                f"{head}  Your model is not at fault.",
                f"PyMC {pymc.__version__} gives it alone, for a report to its authors:",
                "",
                "    import pymc as pm, pytensor, pytensor.tensor as pt",
                *(f"    {n} = pt.scalar({n!r})" for n in arguments),
                f"    y = pm.{name}.dist({', '.join(f'{n}={n}' for n in arguments)})",
                f"    logp = pm.logp(y, {_literal(value)})",
                f"    slopes = pytensor.grad(logp, [{', '.join(arguments)}])",
                f"    f = pytensor.function([{', '.join(arguments)}], [logp, *slopes])",
                f"    print(f({given_text}))",
            ]
        )
    return ""


WITH_ZERO = (
    *("Poisson", "Binomial", "NegativeBinomial", "HurdlePoisson", "HurdleNegativeBinomial"),
    *("ZeroInflatedPoisson", "ZeroInflatedBinomial", "ZeroInflatedNegativeBinomial"),
    *("BetaBinomial", "Bernoulli", "Normal", "StudentT", "Cauchy", "Laplace"),
)
"""Distributions for which 0 is a value like others."""


def _is_sound(number):
    low, high = MODERATE
    return number == 0 or low < abs(number) < high


def _literal(value):
    return repr(value.item())


_compiled: dict[tuple[Any, ...], Any] = {}


def _alone(pymc, distribution, arguments, value):
    """Return the log-density of one value, and its gradients by the parameters."""
    key = distribution, tuple(arguments), value.dtype
    if key not in _compiled:
        with unguarded():
            y = pt.scalar("y", dtype=value.dtype)
            inputs = {name: pt.scalar(name, dtype="float64") for name in arguments}
            logp = pymc.logp(distribution.dist(**inputs), y)
            slopes = pytensor.grad(logp, list(inputs.values()), disconnected_inputs="ignore")
            _compiled[key] = pytensor.function(
                [y, *inputs.values()],
                [logp, *slopes],
                mode=Mode("py", "fast_run").excluding("fusion", "inplace"),
                on_unused_input="ignore",
            )
    logp, *slopes = _compiled[key](value, *map(float, arguments.values()))
    return logp, dict(zip(arguments, slopes, strict=True))
