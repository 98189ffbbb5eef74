"""Which prior has a scale that the model samples, and the non-centred form of it, checked."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable as RV

from theanoguard._provenance import source_line
from theanoguard.explain.facts.naming import name_of
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.broadcasts import written
from theanoguard.pymc.parameters import given_parameters
from theanoguard.pymc.points import of_draws, of_points, unconstraining

PRIOR_DRAWS = 100
MOST_SHOWN = 40
"""Characters of a formula that stands for an argument."""
SHORT: dict[str, Any] = {
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
    of_vectors : bool
        Whether the scale is a covariance.
    """

    name: str
    location: int
    scale: int
    others: tuple[tuple[str, int], ...] = ()
    of_vectors: bool = False


# By the name of the random variable's operation.
FAMILIES = {
    "normal": Family("Normal", 0, 1),
    "laplace": Family("Laplace", 0, 1),
    "logistic": Family("Logistic", 0, 1),
    "cauchy": Family("Cauchy", 0, 1),
    "t": Family("StudentT", 1, 2, (("nu", 0),)),
    "multivariate_normal": Family("Normal", 0, 1, of_vectors=True),
}


@dataclass(frozen=True)
class Scale:
    """The scale of a prior, which depends on free random variables.

    Parameters
    ----------
    child : Variable
        The random variable with this prior.
    location, scale : Variable
        The scale is a covariance if the family has one.
    family : Family
    """

    child: Any
    location: Any
    scale: Any
    family: Family

    @property
    def text(self) -> str:
        """The scale, as the model writes it."""
        return self._argument("chol", "cov", default=self.scale)

    def _argument(self, *names: str, default: Any) -> str:
        """Return how an argument of the child is called; a long formula by the argument's name."""
        given = given_parameters(self.child)
        name = next((name for name in names if given.get(name) is not None), "")
        text = _name(given[name] if name else default)
        return name if name and len(text) > MOST_SHOWN else text

    @property
    def size(self) -> Any:
        """How large the child may be; of a covariance, the standard deviations."""
        return pt.sqrt(pt.diagonal(self.scale)) if self.family.of_vectors else self.scale

    @property
    def log_jacobian(self) -> Any:
        """The logarithm of how much the volume grows from the standard variable to the child."""
        if not self.family.of_vectors:
            return pt.sum(pt.log(pt.broadcast_arrays(self.scale, self.child)[0]))
        of_one = pt.sum(pt.log(pt.diagonal(pt.linalg.cholesky(self.scale))))
        return of_one * (self.child.size // self.child.shape[-1])

    def made_of(self, standard: Any) -> Any:
        """Return the child as it is made of a standard variable."""
        if not self.family.of_vectors:
            return self.location + self.scale * standard
        return self.location + pt.dot(standard, pt.linalg.cholesky(self.scale).T)

    @property
    def non_centred(self) -> str:
        """The line of the model that has the same prior, with a standard variable."""
        name, scale = self.child.name, self.text
        line = source_line(self.child)
        if line is not None and "reparameterize=False" in line.text:
            return f"{name} = gp.prior('{name}', ..., reparameterize=True)"
        location = self._argument("mu", default=self.location)
        extra = "".join(
            f"{key}={_name(_parameters(self.child)[i])}, " for key, i in self.family.others
        )
        raw = f"pm.{self.family.name}('{name}_raw', {extra}{self._standard}, shape=...)"
        start = "" if location in ("0", "0.0") else f"{location} + "
        if self.family.of_vectors:
            is_factor = given_parameters(self.child).get("chol") is not None
            factor = scale if is_factor else f"pt.linalg.cholesky({scale})"
            return f"{name} = {start}{raw} @ {factor}.T"
        scale = scale if scale.isidentifier() or "(" in scale else f"({scale})"
        return f"{name} = {start}{scale} * {raw}"

    @property
    def _standard(self) -> str:
        return {"StudentT": "mu=0, sigma=1"}.get(self.family.name, "0, 1")


def _name(parameter: Any) -> str:
    # (A random variable may have the name of a function, such as "mean".)
    def own(variable: Any) -> str | None:
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
        if family.of_vectors and scale.type.broadcastable[:-2] == (True,):
            scale = pt.squeeze(scale, axis=0)  # (PyMC pads the covariance of several vectors)
        is_one = not family.of_vectors or scale.type.ndim == 2
        if is_one and free & set(ancestors([scale], blockers=free)):
            found.append(Scale(rv, parameters[family.location], scale, family))
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
            written_as[rv] = scale.made_of(made)
    return pymc.do(clone, written_as, prune_vars=False), changed


def same_density(model: Any, other: Any, changed: list[Scale]) -> bool:
    """Return whether a non-centred model has the density of the model, up to the Jacobian.

    It is compared at draws from the prior of the non-centred model.
    """
    import pymc

    names = [scale.child.name for scale in changed]
    scales = [scale for scale in scales_of(model) if scale.child.name in names]
    jacobian = of_draws(model, [sum(scale.log_jacobian for scale in scales)])
    logps = [of_points(m, [m.logp(jacobian=False)]) for m in (model, other)]
    variables = [*other.free_RVs, *(other[name] for name in names)]
    with unguarded():
        draws = pymc.draw(variables, draws=PRIOR_DRAWS, random_seed=0)
    moves = [unconstraining(m) for m in (model, other)]
    errors = []
    for values in zip(*draws, strict=True):
        draw = dict(zip((v.name for v in variables), values, strict=True))
        old, new = (float(logp(move(draw))[0]) for logp, move in zip(logps, moves, strict=True))
        expected = old + float(jacobian(draw)[0])
        if np.isfinite(expected):
            errors.append(abs(new - expected) / (1 + abs(expected)))
    return bool(errors) and max(errors) < 1e-6


def diverging_in_short_run(model: Any, draws: int = 0) -> tuple[int, int]:
    """Return how many draws of a short run of a model diverge, and how many it has.

    It has at least `draws` of them.
    """
    import pymc

    longer = {"draws": max(SHORT["draws"], math.ceil(draws / SHORT["chains"]))}
    with model, unguarded(), warnings.catch_warnings(action="ignore"):
        trace = pymc.sample(**SHORT | longer)
    diverging = np.asarray(trace.sample_stats["diverging"], bool)
    return int(diverging.sum()), diverging.size
