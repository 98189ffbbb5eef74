"""Why a sampler's trajectories have diverged: what is special at the points where they did."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from theanoguard._pytensor import Mode, config
from theanoguard.explain.facts.naming import number_text
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.explaining import explain
from theanoguard.pymc.modes import spoils_sampling
from theanoguard.pymc.records import ModelExplanation, point_text

MOST = 200
"""So many divergences are looked at, and so many other draws to compare with."""

EDGE = 0.05
"""A variable is at its edge where fewer of the other draws than this lie further out."""

STIFF = 10.0
"""The log-density is stiff where it bends so many times as much as at the median of the others."""


# By the name of a transform, the ends of its domain that lie at finite values.
SIDES = {"log": ("lower",), "interval": ("lower", "upper"), "logodds": ("lower", "upper")}


@dataclass(frozen=True)
class DivergenceGroup:
    """Divergences with the same cause.

    Parameters
    ----------
    cause : {"bad", "edge", "stiff", "unknown"}
    title : str
        A description of these points, with numbers.
    draws : tuple of (str, int, int)
        Group of the trace (``posterior`` or ``warmup_posterior``), chain and draw.
    advice : str
    point : dict of str to ndarray
        The first point, by the names of the value variables.
    explanation : ModelExplanation or None
        Explanation of the first point, if the log-density or its gradient is bad there.
    """

    cause: str
    title: str
    draws: tuple[tuple[str, int, int], ...]
    advice: str
    point: dict[str, Any]
    explanation: ModelExplanation | None = None

    def __str__(self):
        group, chain, draw = self.draws[0]
        tuning = " of the tuning" if group.startswith("warmup") else ""
        lines = [
            f"{len(self.draws)}: {self.title}",
            f"  {self.advice}",
            f"  The first one is draw {draw}{tuning} of chain {chain}: {point_text(self.point)}",
        ]
        if self.explanation is not None:
            lines += [f"  {line}".rstrip() for line in str(self.explanation).splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Divergences:
    """The divergences of a trace.

    Parameters
    ----------
    n_draws, n_divergent : int
        Number of draws, and of draws that diverged.
    n_examined : int
        Number of divergences that were examined.
    groups : tuple of DivergenceGroup
        The largest first.
    """

    n_draws: int
    n_divergent: int
    n_examined: int
    groups: tuple[DivergenceGroup, ...]

    def __str__(self):
        if not self.n_divergent:
            return f"No divergence in {self.n_draws} draws."
        looked = "" if self.n_examined == self.n_divergent else f", {self.n_examined} looked at"
        head = f"{self.n_divergent} of {self.n_draws} draws diverged{looked}."
        return "\n\n".join([head, *map(str, self.groups)])


def explain_divergences(idata: Any, model: Any) -> Divergences:
    """Group the divergences of a trace by cause.

    A trace stores the end point of each trajectory that diverged.  At these points the function
    computes the log-density, its gradient and its curvature, and compares the points with the other
    draws.

    Parameters
    ----------
    idata : xarray.DataTree or arviz.InferenceData
        With the groups ``posterior`` and ``sample_stats``.  The groups of the tuning are used as
        well.
    model : pymc.Model
        The model that was sampled.

    Returns
    -------
    Divergences
        ``print`` shows each cause, the number of its divergences, and a remedy.

    Raises
    ------
    ValueError
        If `idata` has no draws of the model's variables, or no information about divergences.

    Examples
    --------
    .. code-block:: python

        trace = pymc.sample(model=model, nuts_sampler="nutpie")
        print(theanoguard.pymc.explain_divergences(trace, model))
    """
    unconstrain = _unconstraining(model)
    divergent: list[Any] = []
    others: list[Any] = []
    n_draws = n_divergent = 0
    for prefix in ("warmup_", ""):
        draws, diverging = (
            _group(idata, f"{prefix}posterior"),
            _group(idata, f"{prefix}sample_stats"),
        )
        if draws is None or diverging is None:
            continue
        if "diverging" not in diverging:
            raise ValueError(
                "the sample_stats hold no `diverging`.\n"
                "Give the trace of NUTS: pymc.sample stores it with every sampler."
            )
        diverged = np.asarray(diverging["diverging"], bool)
        n_divergent += int(diverged.sum())
        if not prefix:
            n_draws = diverged.size
        for found, wanted in ((divergent, True), (others, False)):
            if prefix and not wanted:
                continue  # (the tuning has draws from everywhere)
            at = np.argwhere(diverged == wanted)
            for chain, draw in at[:: max(1, len(at) // MOST)][:MOST]:
                key = (f"{prefix}posterior", int(chain), int(draw))
                found.append((key, unconstrain(draws, chain, draw)))
    if not n_draws:
        raise ValueError(
            "idata has no groups `posterior` and `sample_stats`.\nGive what pymc.sample returned."
        )
    if not divergent:
        return Divergences(n_draws, n_divergent, 0, ())
    groups = _Grouping(model, others).groups(divergent)
    return Divergences(n_draws, n_divergent, len(divergent), tuple(groups))


def _group(idata, name):
    try:
        return idata[name]
    except KeyError:
        return None


def _compiled(model, inputs, outputs):
    import pymc

    mode = Mode("cvm" if config.cxx else "vm", "fast_run")
    with unguarded(), model:
        return pymc.compile(inputs, outputs, mode=mode, on_unused_input="ignore")


def _unconstraining(model) -> Callable:
    """Return a function from a draw to the values of the value variables."""
    given = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    outputs = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        made = given[rv]
        if transform is not None:
            parameters = clone_replace(list(rv.owner.inputs), given, rebuild_strict=False)
            made = transform.forward(made, *parameters)
        outputs.append(getattr(made, "values", made))
    function = _compiled(model, list(given.values()), outputs)
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]

    def unconstrain(draws, chain, draw):
        missing = [rv.name for rv in given if rv.name not in draws]
        if missing:
            raise ValueError(
                f"the trace holds no {', '.join(missing)}.\n"
                "Give the trace of this model, sampled without `var_names`."
            )
        values = [np.asarray(draws[rv.name])[chain, draw].astype(rv.dtype) for rv in given]
        return dict(zip(names, function(*values), strict=True))

    return unconstrain


class _Grouping:
    def __init__(self, model, others):
        self.model = model
        self.variables = list(model.value_vars)
        wrt = list(model.continuous_value_vars)
        self.wrt = [v.name for v in wrt]
        self.random = {v.name: model.values_to_rvs[v] for v in self.variables}
        function = _compiled(
            model,
            self.variables,
            [model.logp(), model.dlogp([model.values_to_rvs[v] for v in wrt])],
        )
        self.evaluate = lambda point: function(*(point[v.name] for v in self.variables))
        self.others = [point for _, point in others]
        self.spread = (
            {name: np.stack([np.asarray(p[name], float) for p in self.others]) for name in self.wrt}
            if self.others
            else {}
        )
        bends = [self.bend(p)[0] for p in self.others[:: max(1, len(self.others) // 20)]]
        self.usual = float(np.median(bends)) if bends else np.nan

    def bend(self, point):
        """Return how much the log-density bends where it bends most, and along which variable.

        The largest eigenvalue of its second derivatives, from differences of the gradient.
        """
        shapes = {name: np.shape(point[name]) for name in self.wrt}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        start = np.concatenate([np.ravel(point[n]) for n in self.wrt]).astype(float)
        direction = np.random.default_rng(0).normal(size=start.size)
        direction /= np.linalg.norm(direction)
        step, value = 1e-4, 0.0

        def gradient(joined):
            parts = np.split(joined, np.cumsum(sizes)[:-1])
            moved = {n: p.reshape(shapes[n]) for n, p in zip(self.wrt, parts, strict=True)}
            return np.asarray(self.evaluate({**point, **moved})[1])

        for _ in range(12):
            product = (gradient(start + step * direction) - gradient(start - step * direction)) / (
                2 * step
            )
            value = float(np.linalg.norm(product))
            if not np.isfinite(value) or value == 0:
                break
            direction = product / value
        weights = np.split(direction**2, np.cumsum(sizes)[:-1])
        heaviest = max(range(len(weights)), key=lambda i: weights[i].sum())
        return value, self.wrt[heaviest]

    def groups(self, divergent):
        """Return the groups, the largest first."""
        found: dict[tuple, list] = {}
        for key, point in divergent:
            found.setdefault(self.cause(point), []).append((key, point))
        ordered = sorted(found.items(), key=lambda item: -len(item[1]))
        return [getattr(self, f"_{cause}")(of, members) for (cause, of), members in ordered]

    def cause(self, point):
        """Return the kind of what is special at a point, and of which variable."""
        if spoils_sampling(self.evaluate(point)):
            return "bad", None
        bend, along = self.bend(point)
        if (edge := self.edge(point)) is not None:
            return "edge", edge
        if bend >= STIFF * self.usual:
            return "stiff", along
        return "unknown", None

    def edge(self, point):
        """Return the transformed variable that is furthest out among the other draws, if any is.

        Returns
        -------
        tuple of str, or None
            Name of the value variable, and "lower" or "upper".
        """
        best, at = EDGE, None
        for name, draws in self.spread.items():
            kind = getattr(self.model.rvs_to_transforms[self.random[name]], "name", None)
            value = np.asarray(point[name])
            for side, further in (("lower", draws < value), ("upper", draws > value)):
                outer = float(np.min(np.mean(further, axis=0), initial=1.0))
                if side in SIDES.get(kind, ()) and outer < best:
                    best, at = outer, (name, side)
        return at

    def values(self, name, points):
        """Return a text with the values of a variable at some points."""
        values = np.concatenate([np.ravel(p[name]) for p in points])
        low, high = number_text(float(values.min())), number_text(float(values.max()))
        return low if low == high else f"{low} to {high}"

    def _edge(self, at, members):
        name, side = at
        rv = self.random[name]
        below = [o for o in self.model.free_RVs if o is not rv and self.scales(rv, o)]
        title = (
            f"{name} is at its {side} edge, {self.values(name, [p for _, p in members])} "
            f"(other draws: {self.values(name, self.others)})."
        )
        advice = "Try pm.sample(target_accept=0.95), or a prior that keeps it away from there."
        if below and side == "lower":
            names = ", ".join(other.name for other in below)
            advice = (
                f"{names}: the prior has {rv.name} as its scale, a funnel.  Write it without: "
                f"{below[0].name} = mean + {rv.name} * pm.Normal('{below[0].name}_raw')."
            )
        return self.group("edge", title, members, advice)

    def scales(self, rv, other):
        """Whether a random variable is among the parameters of the prior of another one."""
        parameters = other.owner.op.dist_params(other.owner) if other.owner is not None else ()
        return rv in set(ancestors(parameters, blockers=set(self.model.free_RVs)))

    def _stiff(self, name, members):
        bend = float(np.median([self.bend(p)[0] for _, p in members]))
        title = (
            f"the log-density bends {number_text(round(bend / self.usual, 1))} times as much as "
            f"usual, mostly along {name}, {self.values(name, [p for _, p in members])}."
        )
        advice = "Try pm.sample(target_accept=0.95); scale or reparametrize that variable."
        return self.group("stiff", title, members, advice)

    def _bad(self, _, members):
        found = explain(self.model, members[0][1])
        title = "the log-density or its gradient is bad there."
        return self.group("bad", title, members, "It is explained below.", found)

    def _unknown(self, _, members):
        title = "nothing is special where these trajectories have ended."
        advice = (
            "Try pm.sample(target_accept=0.95), and guard the run: theanoguard.pymc.guarding()."
        )
        return self.group("unknown", title, members, advice)

    def group(self, cause, title, members, advice, explanation=None):
        """Return the :class:`DivergenceGroup` of some draws and their points."""
        draws = tuple(key for key, _ in members)
        return DivergenceGroup(cause, title, draws, advice, members[0][1], explanation)
