"""Which prior has a scale that the model samples, and the non-centred form of it, checked."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable as RV

from theanoguard.explain.facts.naming import name_of
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.broadcasts import written
from theanoguard.pymc.points import of_draws, unconstraining

PRIOR_DRAWS = 100
SHORT = {
    "draws": 300,
    "tune": 500,
    "chains": 2,
    "cores": 1,
    "random_seed": 0,
    "nuts_sampler": "pymc",
    "progressbar": False,
    "compute_convergence_checks": False,
    "quiet": True,
}


@dataclass(frozen=True)
class Family:
    """A family of distributions with a location and a scale.

    Parameters
    ----------
    name : str
        As in PyMC.
    location, scale : int
        Which parameters these are.
    others : tuple of (str, int)
        Other parameters of the standard distribution.
    """

    name: str
    location: int
    scale: int
    others: tuple[tuple[str, int], ...] = ()


# By the name of the random variable's operation.
FAMILIES = {
    "normal": Family("Normal", 0, 1),
    "laplace": Family("Laplace", 0, 1),
    "logistic": Family("Logistic", 0, 1),
    "cauchy": Family("Cauchy", 0, 1),
    "t": Family("StudentT", 1, 2, (("nu", 0),)),
}


@dataclass(frozen=True)
class Scale:
    """The scale of a prior, which depends on free random variables.

    Parameters
    ----------
    child : Variable
        The random variable with this prior.
    parents : tuple of Variable
        The free random variables that the scale depends on.
    location, scale : Variable or None
    family : Family
    """

    child: Any
    parents: tuple[Any, ...]
    location: Any
    scale: Any
    family: Family

    @property
    def text(self) -> str:
        """The scale, as the model writes it."""
        return _name(self.scale)

    @property
    def non_centred(self) -> str:
        """The line of the model that has the same prior, with a standard variable."""
        name, location = self.child.name, _name(self.location)
        extra = "".join(
            f"{key}={_name(_parameters(self.child)[i])}, " for key, i in self.family.others
        )
        raw = f"pm.{self.family.name}('{name}_raw', {extra}{self._standard}, shape=...)"
        start = "" if location in ("0", "0.0") else f"{location} + "
        scale = self.text if self.text.isidentifier() or "(" in self.text else f"({self.text})"
        return f"{name} = {start}{scale} * {raw}"

    @property
    def _standard(self) -> str:
        return {"StudentT": "mu=0, sigma=1"}.get(self.family.name, "0, 1")


def _name(parameter: Any) -> str:
    def own(
        variable: Any,
    ) -> str | None:  # (a random variable may have the name of a function, such as "mean")
        return variable.name if isinstance(getattr(variable.owner, "op", None), RV) else None

    return name_of(written(parameter), own=own)


def _parameters(rv: Any) -> list[Any]:
    return list(rv.owner.op.dist_params(rv.owner))


def scales_of(model: Any) -> list[Scale]:
    """Return the priors of a model whose scale depends on free random variables."""
    free, found = set(model.free_RVs), []
    for rv in model.free_RVs:
        family = FAMILIES.get(getattr(getattr(rv.owner, "op", None), "name", None) or "")
        if family is None or model.rvs_to_transforms[rv] is not None:
            continue
        parameters = _parameters(rv)
        scale = parameters[family.scale]
        parents = tuple(v for v in ancestors([scale], blockers=free) if v in free)
        if parents:
            location = parameters[family.location]
            found.append(Scale(rv, tuple(dict.fromkeys(parents)), location, scale, family))
    return found


def non_centred(model: Any, names: list[str]) -> tuple[Any, list[Scale]]:
    """Return a model whose variables of these names are made of ones with standard priors."""
    import pymc
    from pymc.model.fgraph import clone_model

    clone = clone_model(model)
    changed = [scale for scale in scales_of(clone) if scale.child.name in names]
    written_as = {}
    with clone:
        for scale in changed:
            rv, parameters = scale.child, _parameters(scale.child)
            others = {key: parameters[i] for key, i in scale.family.others}
            standard = getattr(pymc, scale.family.name)
            dims = model.named_vars_to_dims.get(rv.name)
            size = {"dims": dims} if dims else {"shape": tuple(rv.shape.eval())}
            made = standard(f"{rv.name}_raw", *([] if others else [0, 1]), **others, **size)
            written_as[rv] = scale.location + scale.scale * made
    return pymc.do(clone, written_as, prune_vars=False), changed


def same_density(model: Any, other: Any, changed: list[Scale]) -> bool:
    """Return whether a non-centred model has the density of the model, up to the Jacobian.

    It is compared at draws from the prior of the non-centred model.
    """
    import pymc

    names = [scale.child.name for scale in changed]
    scales = [scale for scale in scales_of(model) if scale.child.name in names]
    log_scale = sum(
        pt.sum(pt.log(pt.broadcast_arrays(scale.scale, scale.child)[0])) for scale in scales
    )
    jacobian = of_draws(model, [log_scale])
    with unguarded():
        logps = [m.compile_logp(jacobian=False) for m in (model, other)]
        variables = [*other.free_RVs, *(other[name] for name in names)]
        draws = pymc.draw(variables, draws=PRIOR_DRAWS, random_seed=0)
    moves = [unconstraining(m) for m in (model, other)]
    errors = []
    for values in zip(*draws, strict=True):
        draw = dict(zip((v.name for v in variables), values, strict=True))
        old, new = (float(logp(move(draw))) for logp, move in zip(logps, moves, strict=True))
        expected = old + float(jacobian(draw)[0])
        if np.isfinite(expected):
            errors.append(abs(new - expected) / (1 + abs(expected)))
    return bool(errors) and max(errors) < 1e-6


def diverging_in_short_run(model: Any) -> tuple[int, int]:
    """Return how many draws of a short run of a model diverge, and how many it has."""
    import pymc

    with model, unguarded(), warnings.catch_warnings(action="ignore"):
        trace = pymc.sample(**SHORT)
    diverging = np.asarray(trace.sample_stats["diverging"], bool)
    return int(diverging.sum()), diverging.size
