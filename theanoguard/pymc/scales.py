"""Which prior has a scale that the model samples, and the non-centred form of it, checked."""

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable as RV

from theanoguard._naming import name_of
from theanoguard._provenance import source_line
from theanoguard._provenance.designating import Designations
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.broadcasts import written
from theanoguard.pymc.parameters import given_parameters
from theanoguard.pymc.points import of_draws, of_points, unconstraining, with_own_generators

PRIOR_DRAWS = 100
MOST_SHOWN = 40  # characters of a formula that stands for an argument
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


UNNAMED = "a constant of shape"
"""A formula with data that have no name is read from the line of the model."""


@dataclass(frozen=True)
class Family:
    """A family of distributions that have a scale, and most of them a location."""

    name: str  # PyMC's distribution of the standard variable
    location: int | None = 0  # which parameter it is
    scale: int = 1
    others: tuple[tuple[str, int], ...] = ()  # other parameters of the standard distribution
    of_vectors: bool = False  # whether the scale is a covariance
    #: Whether location and scale are the ones of the variable's logarithm.
    of_logarithms: bool = False
    transform: str = ""  # the one of the variable, if the family has one


# By the name of the random variable's operation, or of its class.
FAMILIES = {
    "normal": Family("Normal"),
    "laplace": Family("Laplace"),
    "logistic": Family("Logistic"),
    "cauchy": Family("Cauchy"),
    "gumbel": Family("Gumbel"),
    "t": Family("StudentT", 1, 2, (("nu", 0),)),
    "multivariate_normal": Family("Normal", of_vectors=True),
    "lognormal": Family("Normal", of_logarithms=True, transform="log"),
    "ZeroSumNormal": Family("ZeroSumNormal", None, 0, transform="zerosum"),
}


@dataclass(frozen=True)
class Scale:
    """The scale of a prior, which depends on free random variables."""

    child: Any  # the random variable with this prior
    #: `location`, `scale`: the scale is a covariance if the family has one.  The location is None
    #: if it has none.
    location: Any
    scale: Any
    family: Family
    dims: tuple[str, ...] = ()  # the named dimensions of the child

    @property
    def text(self) -> str:
        """The scale, as the model writes it."""
        return self._argument("chol", "cov", default=self.scale)

    def _argument(self, *names: str, default: Any) -> str:
        """Return how an argument of the child is called.

        A long formula, or one with data that have no name, is called by the argument's name.
        """
        given = given_parameters(self.child)
        name = next((name for name in names if given.get(name) is not None), "")
        text = _name(given[name] if name else default)
        return name if name and (len(text) > MOST_SHOWN or UNNAMED in text) else text

    @property
    def size(self) -> Any:
        """How large the child may be; of a covariance, the standard deviations."""
        return pt.sqrt(pt.diagonal(self.scale)) if self.family.of_vectors else self.scale

    @property
    def log_jacobian(self) -> Any:
        """The logarithm of how much the volume grows from the standard variable to the child."""
        if self.family.of_vectors:
            of_one = pt.sum(pt.log(pt.diagonal(pt.linalg.cholesky(self.scale))))
            return of_one * (self.child.size // self.child.shape[-1])
        logs = pt.log(pt.broadcast_arrays(self.scale, self.child)[0])
        if self.family.of_logarithms:
            logs += pt.log(self.child)
        axes = range(-self.n_sums, 0)  # (one of the numbers on an axis follows from the others)
        free = [(self.child.shape[axis] - 1) / self.child.shape[axis] for axis in axes]
        return pt.sum(logs) * math.prod(free)

    @property
    def n_sums(self) -> int:
        """Along how many of its last axes the child sums to 0."""
        return self.child.owner.op.ndim_supp if self.family.transform == "zerosum" else 0

    def made_of(self, standard: Any) -> Any:
        """Return the child as it is made of a standard variable."""
        if self.family.of_vectors:
            made = pt.dot(standard, pt.linalg.cholesky(self.scale).T)
        else:
            made = self.scale * standard
        made = made if self.location is None else self.location + made
        return pt.exp(made) if self.family.of_logarithms else made

    @property
    def non_centred(self) -> str:
        """The line of the model that has the same prior, with a standard variable."""
        name, scale = self.child.name, self.text
        line = source_line(self.child)
        if line is not None and "reparameterize=False" in line.text:
            return f"{name} = gp.prior('{name}', ..., reparameterize=True)"
        others = {key: _name(_parameters(self.child)[i]) for key, i in self.family.others}
        given = (f"{key}={value}" for key, value in (others | self._named | self._size).items())
        arguments = ", ".join([f"'{name}_raw'", *map(str, self._ordered), *given])
        raw = f"pm.{self.family.name}({arguments})"
        location = "0" if self.location is None else self._argument("mu", default=self.location)
        made = f"{_factor(scale)} * {raw}"
        if self.family.of_vectors:
            is_factor = given_parameters(self.child).get("chol") is not None
            made = f"{raw} @ {scale if is_factor else f'pt.linalg.cholesky({scale})'}.T"
        made = made if location in ("0", "0.0") else f"{location} + {made}"
        made = f"exp({made})" if self.family.of_logarithms else made
        return _qualified(f"{name} = {made}")

    @property
    def _ordered(self) -> list[int]:
        """The location and the scale of the standard variable, if they are its first parameters."""
        return [] if self.family.others or self.location is None else [0, 1]

    @property
    def _named(self) -> dict[str, int]:
        """Other numbers of the standard variable."""
        more = {"n_zerosum_axes": self.n_sums} if self.n_sums > 1 else {}
        of_location = {"mu": 0} if self.family.others else {}
        return {**of_location, **({} if self._ordered else {"sigma": 1}), **more}

    @property
    def _size(self) -> dict[str, Any]:
        shape = self.child.type.shape
        if self.dims:
            return {"dims": repr(self.dims[0] if len(self.dims) == 1 else self.dims)}
        if not shape:
            return {}
        known = shape[0] if len(shape) == 1 else shape
        return {"shape": "..." if None in shape else known}


def _factor(text: str) -> str:
    """Return a formula as a factor of a product."""
    return text if re.fullmatch(r"\w+(\.\w+)*(\([^()]*\)|\[[^][]*\])?", text) else f"({text})"


def _qualified(text: str) -> str:
    """Return a formula with PyMC's or PyTensor's names of the functions in it."""
    import pymc

    def module(found: re.Match[str]) -> str:
        owners = {"pm.math": pymc.math, "pt": pt}
        known = (f"{name}." for name, owner in owners.items() if hasattr(owner, found[1]))
        return f"{next(known, '')}{found[0]}"

    return re.sub(r"(?<![\w.])(\w+)\(", module, text)


def _name(parameter: Any) -> str:
    # (A random variable may have the name of a function, such as "mean".)
    def own(variable: Any) -> str | None:
        return variable.name if isinstance(getattr(variable.owner, "op", None), RV) else None

    made = written(parameter)
    text = name_of(made, own=own)
    nodes = {v.owner: tuple(v.owner.inputs) for v in ancestors([made]) if v.owner is not None}
    return Designations(nodes).of(made).expression or text if UNNAMED in text else text


def _parameters(rv: Any) -> list[Any]:
    return list(rv.owner.op.dist_params(rv.owner))


def scales_of(model: Any) -> list[Scale]:
    """Return the priors of a model whose scale depends on free random variables."""
    free, found = set(model.free_RVs), []
    for rv in model.free_RVs:
        op = getattr(rv.owner, "op", None)
        family = FAMILIES.get(getattr(op, "name", None) or type(op).__name__)
        transform = getattr(model.rvs_to_transforms[rv], "name", "")
        if family is None or transform != family.transform:
            continue
        parameters = _parameters(rv)
        scale = parameters[family.scale]
        if family.of_vectors and scale.type.broadcastable[:-2] == (True,):
            scale = pt.squeeze(scale, axis=0)  # (PyMC pads the covariance of several vectors)
        is_one = not family.of_vectors or scale.type.ndim == 2
        if is_one and free & set(ancestors([scale], blockers=free)):
            location = None if family.location is None else parameters[family.location]
            dims = tuple(model.named_vars_to_dims.get(rv.name) or ())
            found.append(Scale(rv, location, scale, family, dims))
    return found


@contextmanager
def without_starts(model: Any) -> Iterator[None]:
    """Take the initvals off a model, which PyMC cannot copy with them, and put them back."""
    kept = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(kept))
    try:
        yield
    finally:
        model.rvs_to_initial_values.update(kept)


def non_centred(model: Any, names: list[str]) -> tuple[Any, list[Scale]]:
    """Return a model whose variables of these names are made of ones with standard priors."""
    import pymc
    from pymc.model.fgraph import clone_model

    changed = [scale for scale in scales_of(model) if scale.child.name in names]
    for name in (scale.child.name for scale in changed):
        with without_starts(model):
            clone = clone_model(model)
        with clone:
            [scale] = [one for one in scales_of(clone) if one.child.name == name]
            parameters = _parameters(scale.child)
            others = {key: parameters[i] for key, i in scale.family.others}
            shape = (
                {"dims": scale.dims} if scale.dims else {"shape": tuple(scale.child.shape.eval())}
            )
            standard = getattr(pymc, scale.family.name)
            made = standard(f"{name}_raw", *scale._ordered, **others, **scale._named, **shape)
        # (One after the other: the location of one may be another one.)
        model = pymc.do(clone, {scale.child: scale.made_of(made)}, prune_vars=False)
    return model, changed


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
        own = with_own_generators(variables)
        draws = pymc.draw(own, draws=PRIOR_DRAWS, random_seed=0)
    moves = [unconstraining(m) for m in (model, other)]
    errors = []
    for values in zip(*draws, strict=True):
        draw = dict(zip((v.name for v in variables), values, strict=True))
        old, new = (float(logp(move(draw))[0]) for logp, move in zip(logps, moves, strict=True))
        expected = old + float(jacobian(draw)[0])
        if np.isfinite(expected):
            errors.append(abs(new - expected) / (1 + abs(expected)))
    return bool(errors) and max(errors) < 1e-6


@dataclass(frozen=True)
class Mixing:
    """How well chains have mixed."""

    n_divergent: int
    n_draws: int
    ess: float = np.nan  # the smallest effective sample size of all elements of the free variables
    rhat: float = np.nan  # the largest one

    def __str__(self) -> str:
        if np.isnan(self.ess + self.rhat):  # (of one chain, or of a variable that does not move)
            return f"{self.n_divergent} of {self.n_draws} draws diverge"
        return (
            f"{self.n_divergent} of {self.n_draws} draws diverge, with an ESS of {self.ess:.0f} "
            f"and an r-hat of {self.rhat:.2f}"
        )

    @property
    def is_slow(self) -> bool:
        """Whether the draws are too few, or too much alike, to be used."""
        return self.ess < LEAST_ESS * self.n_draws or self.rhat > MOST_RHAT


LEAST_ESS, MOST_RHAT = 0.15, 1.03
"""Chains move slowly if their ESS is a smaller share of the draws, or if their r-hat is larger."""


def mixing(model: Any, n_divergent: int, n_draws: int, draws: Any) -> Mixing:
    """Return how well the draws of a group of a trace have mixed."""
    from pymc import stats

    names = [rv.name for rv in model.free_RVs]
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        both = [
            np.concatenate([np.ravel(found[name]) for name in names])
            for found in (stats.ess(draws[names]), stats.rhat(draws[names]))
        ]
    return Mixing(n_divergent, n_draws, float(np.min(both[0])), float(np.max(both[1])))


def short_run(model: Any, draws: int = 0) -> Mixing:
    """Return how a short run of a model mixes, which has at least `draws` of them."""
    import pymc

    longer = {"draws": max(SHORT["draws"], math.ceil(draws / SHORT["chains"]))}
    with model, unguarded(), warnings.catch_warnings(action="ignore"):
        trace = pymc.sample(**SHORT | longer)
    diverging = np.asarray(trace["sample_stats"]["diverging"], bool)
    return mixing(model, int(diverging.sum()), diverging.size, trace["posterior"].to_dataset())
