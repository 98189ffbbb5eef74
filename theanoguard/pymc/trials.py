"""Proposed changes of a PyMC model, tried before they are shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from theanoguard.pymc.explaining import n_bad_of_prior
from theanoguard.pymc.links import Remedy
from theanoguard.pymc.parameters import class_of, given_parameters
from theanoguard.pymc.points import Point, compiled
from theanoguard.pymc.scales import without_starts

SETTINGS: dict[str, dict[str, float]] = {
    "HalfNormal": {"sigma": 1.0},
    "Beta": {"alpha": 2.0, "beta": 2.0},
}
"""By the name of a prior that is proposed, the parameters with which it is tried."""


def n_bad_with(model: Any, term: str, remedy: Remedy, points: Sequence[Point]) -> int | None:
    """Return at how many draws from the prior a term is bad after a remedy.

    None if the distribution of the term is not PyMC's own.

    - `term`: name of an observed variable.
    - `points`: draws from the prior.  With another prior, as many are drawn anew.
    """
    if remedy.kind == "prior":
        return n_bad_of_prior(_with_prior(model, remedy), len(points))
    import pymc

    variable = model[term]
    distribution = class_of(variable)
    if distribution is None:
        return None
    given = {name: v for name, v in given_parameters(variable).items() if v is not None}
    given[remedy.name] = getattr(pymc.math, remedy.by)(given[remedy.name])
    made = distribution.dist(**given)
    [logp] = model.replace_rvs_by_values([pymc.logp(made, model.rvs_to_values[variable])])
    inputs = list(model.value_vars)
    function = compiled(model, inputs, [logp], on_c=False)
    values = (function(*(point[v.name] for v in inputs))[0] for point in points)
    return sum(not np.isfinite(value).all() for value in values)


def _with_prior(model: Any, remedy: Remedy) -> Any:
    """Return a model in which a variable has another prior."""
    import pymc
    from pymc.model.fgraph import clone_model

    with without_starts(model):
        clone = clone_model(model)
    old = clone[remedy.name]
    with clone:
        kind = getattr(pymc, remedy.by)
        name = f"{remedy.name}_new"
        while name in clone.named_vars:
            name += "_"
        new = kind(name, **SETTINGS[remedy.by], shape=tuple(old.shape.eval()))
    return pymc.do(clone, {old: pt.as_tensor(new) * 1.0}, prune_vars=False)
