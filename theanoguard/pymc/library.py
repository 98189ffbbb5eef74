"""Bad values that a distribution of PyMC makes of sound parameters: the model is not at fault."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard._pytensor import Mode, config
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.parameters import OF_OTHERS, class_of, distribution_of, given_parameters
from theanoguard.pymc.support import is_compound, support_of

MODERATE = 1e-8, 1e8  # parameters and data of a size between these, or 0, are sound


def inside_library(model: Any, variable: Any, evaluate: Callable, mode: str = "") -> dict[str, Any]:
    """Say that a distribution makes a bad value of sound parameters, with a reproduction.

    Its log-density is computed again, at the first element where it or its gradient is bad, of
    numbers instead of the model's parameters.

    - `variable`: a random variable, or a potential.
    - `evaluate`: callable from a list of variables to their values at the point, by variable.
    - `mode`: PyTensor's name of a mode, if another one than the default computes the bad value.
    - Returns: ``data`` and ``numpy_alone`` of a :class:`BadTerm`.  Nothing if the distribution is
      not PyMC's own, or is not at fault.
    """
    import pymc

    name, given = distribution_of(variable), given_parameters(variable)
    distribution = class_of(variable)
    values = model.rvs_to_values.get(variable)
    if distribution is None or values is None or not given or None in given.values():
        return {}
    if "Mixture" in name or name.startswith(("Custom", "Simulator", "Ordered")):
        return {}
    if name not in OF_OTHERS and any(getattr(variable.owner.op, "ndims_params", ())):
        return {}
    parameters = model.replace_rvs_by_values(list(given.values()))
    found = evaluate([values, *parameters])
    shape = np.shape(found[values])
    if any(_padded(np.shape(found[v]), shape) != shape for v in parameters):
        return {}
    numbers = [np.broadcast_to(found[v], shape) for v in (values, *parameters)]
    sound = np.all([_is_sound(array) for array in numbers], axis=0)
    value, *at = (array[sound] for array in numbers)
    of = pymc, distribution, dict(zip(given, at, strict=True)), value
    found = _first_bad(*_alone(*of, mode))
    if found is None:
        return {}
    told, first, number = found
    index = [int(i) for i in np.argwhere(sound)[first]]
    place = f"{variable.name}{index}" if index else variable.name
    head = f"inside pymc.{name}: of finite parameters, {told} is {float(number)} at {place}."
    if _is_edge(variable, value[first]):
        return {
            "data": f"{head}\n{place} = 0 is at the edge of the support.  A measured 0 is often a "
            "rounded number: give it half of the resolution, or a censored likelihood."
        }
    if not mode and config.cxx and _first_bad(*_alone(*of, "CVM")) is None:
        return {"data": f"NumPy alone: {head}", "numpy_alone": True}
    arguments = ", ".join(f"{n}={float(v[first])!r}" for n, v in zip(given, at, strict=True))
    names = ", ".join(given)
    by_mode = f", mode={mode!r}" if mode else ""
    lines = [
        f"{head}  Your model is not at fault.",
        f"PyMC {pymc.__version__} gives it alone, for a report to its authors:",
        "",
        "    import pymc as pm, pytensor, pytensor.tensor as pt",
        *(f"    {n} = pt.scalar({n!r})" for n in given),
        f"    y = pm.{name}.dist({', '.join(f'{n}={n}' for n in given)})",
        f"    logp = pm.logp(y, {value[first].item()!r})",
        f"    slopes = pytensor.grad(logp, [{names}])",
        f"    f = pytensor.function([{names}], [logp, *slopes]{by_mode})",
        f"    print(f({arguments}))",
    ]
    return {"data": "\n".join(lines)}


def _first_bad(logp: Any, slopes: dict[str, Any]) -> tuple[str, int, Any] | None:
    """Return which result is bad at the first value where one is, and its number there."""
    results = {"the log-density": (np.isnan(logp), logp)}
    for name, slope in slopes.items():
        results[f"the gradient by {name}"] = (np.isfinite(logp) & ~np.isfinite(slope), slope)
    firsts = [
        (int(np.argmax(is_bad)), told) for told, (is_bad, _) in results.items() if is_bad.any()
    ]
    if not firsts:
        return None
    first, told = min(firsts, key=lambda one: one[0])
    return told, first, results[told][1][first]


def _padded(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape that an array has when it is broadcast to a shape, or None."""
    try:
        return np.broadcast_shapes(shape, like)
    except ValueError:
        return None


def _is_edge(variable: Any, value: Any) -> bool:
    """Return whether a value is 0, and no number below it has a density."""
    support, parameters = support_of(variable)
    if value != 0 or value.dtype.kind != "f" or is_compound(variable) or support.names:
        return False
    return not support.holds(-np.finfo(float).tiny, *parameters)


def _is_sound(numbers: Any) -> Any:
    low, high = MODERATE
    return (numbers == 0) | ((low < np.abs(numbers)) & (np.abs(numbers) < high))


_compiled: dict[tuple[Any, ...], Any] = {}


def _alone(
    pymc: Any, distribution: Any, arguments: dict[str, Any], value: Any, mode: str
) -> tuple[Any, dict[str, Any]]:
    """Return the log-density of each value, and its gradients by the parameters."""
    key = distribution, tuple(arguments), value.dtype, mode
    if key not in _compiled:
        with unguarded():
            y = pt.vector("y", dtype=value.dtype)
            inputs = {name: pt.vector(name, dtype="float64") for name in arguments}
            logp = pymc.logp(distribution.dist(**inputs), y)
            slopes = pytensor.grad(logp.sum(), list(inputs.values()), disconnected_inputs="ignore")
            # (PyMC makes a failing condition -inf, PyTensor an error.)
            _compiled[key] = pymc.compile(
                [y, *inputs.values()],
                [logp, *slopes],
                mode=mode or Mode("py", "fast_run").excluding("fusion", "inplace"),
                on_unused_input="ignore",
            )
    logp, *slopes = _compiled[key](value, *(a.astype("float64") for a in arguments.values()))
    return logp, dict(zip(arguments, slopes, strict=True))
