"""Why a sampler's trajectories have diverged: what is special at the points where they did."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from theanoguard._arguments import checked
from theanoguard._shown import displayed
from theanoguard._steps import attempt, failures
from theanoguard._text import number_text
from theanoguard.explain.text.report import failed_lines
from theanoguard.pymc.auditing import of_designs
from theanoguard.pymc.explaining import explain
from theanoguard.pymc.geometry import FEW, FEWEST, Cause, Comparison, Point, Shape
from theanoguard.pymc.history import records_of, remarks
from theanoguard.pymc.modes import spoils_sampling
from theanoguard.pymc.points import (
    Broken,
    broken_points,
    is_finite,
    is_known,
    of_points,
    prior_points,
    pymc_of,
    unconstraining,
)
from theanoguard.pymc.records import ModelExplanation, point_text
from theanoguard.pymc.scales import (
    Mixing,
    Scale,
    mixing,
    non_centred,
    same_density,
    scales_of,
    short_run,
)

Key = tuple[str, int, int]

MOST, MOST_OTHERS = 200, 1000
"""So many divergences are looked at, and so many other draws to compare with."""

WALL = 1000.0
"""A term that falls by more than this in one step, which its gradient does not tell, is a wall."""


MOST_TRIED = 2  # so many non-centred forms are run where no test by ranks tells the cause

OF_DATA, DRAWN = ("stiff", "tails", "ridge", "banana", "unknown"), 100
"""Causes that predictors can have which separate outcomes, or which the data cannot tell apart: the
data and so many draws from the prior are looked at."""

MUCH, PRIOR_DRAWS = 0.1, 20
"""If more of the draws diverge, so many draws from the prior are looked at."""

SURE_OF_TRIAL = 0.01
"""A form that is tried where no rank shows the cause is better if Fisher's test gives less."""

MOST_DRAWS = 4000
"""No form is run where more draws without a divergence were needed to be sure that it helps."""

SLOW = (
    "\n  Its chains move slowly all the same: take more draws, and do not trust them while r-hat "
    "is above 1.01."
)


@displayed
@dataclass(frozen=True)
class DivergenceGroup:
    """Divergences with the same cause.

    Parameters
    ----------
    cause : str
        ``"bad"``, ``"wall"``, ``"funnel"``, ``"boundary"``, ``"modes"``, ``"tails"``, ``"ridge"``,
        ``"banana"``, ``"stiff"`` or ``"unknown"``.
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

    cause: Cause
    title: str
    draws: tuple[Key, ...]
    advice: str
    point: dict[str, Any]
    explanation: ModelExplanation | None = None

    def __str__(self) -> str:
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


@displayed
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
    prior : str
        Of a run that diverges much, at how many draws from the prior a term is bad; "" if at none.
    failed : tuple of str
        What could not be found out because of a fault in theanoguard.
    remarks : tuple of str
        What stands out in a chain (:func:`record`): a term of the log-density, a step size or an
        energy that changed for good at some draw, or a step size far below the other chains'.
    """

    n_draws: int
    n_divergent: int
    n_examined: int
    groups: tuple[DivergenceGroup, ...]
    prior: str = ""
    failed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.n_divergent:
            return f"No divergence in {self.n_draws} draws."
        looked = "" if self.n_examined == self.n_divergent else f", {self.n_examined} looked at"
        head = f"{self.n_divergent} of {self.n_draws} draws diverged{looked}."
        more = ["\n".join(self.remarks), self.prior, *failed_lines(self.failed)]
        return "\n\n".join([head, *map(str, self.groups), *filter(None, more)])


@checked
def explain_divergences(idata: Any, model: Any, *, check: bool = True) -> Divergences:
    """Find what makes trajectories diverge, and a remedy.

    The points where trajectories broke are compared with the other draws, by ranks and on the
    unconstrained scale.  A trace that was sampled in a block of :class:`guarding` holds these
    points.  Of any other trace, the draws that diverged are compared, which are points from before
    the trajectories broke.

    Parameters
    ----------
    idata : xarray.DataTree or arviz.InferenceData
        With the groups ``posterior`` and ``sample_stats``.  The groups of the tuning are used as
        well.
    model : pymc.Model
        The model that was sampled.
    check : bool
        Whether a non-centred form is compared with the model and sampled in a short run before it
        is proposed.

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

        with model, theanoguard.pymc.guarding():
            trace = pymc.sample()
        print(theanoguard.pymc.explain_divergences(trace, model))
    """
    pymc_of("explain_divergences", model)
    to_point = unconstraining(model)
    broken: list[Broken] = []
    others: list[tuple[int, Any]] = []
    n_draws = n_divergent = 0
    sampled = None
    for prefix in ("warmup_", ""):
        draws, stats = (_group(idata, f"{prefix}{name}") for name in ("posterior", "sample_stats"))
        if draws is None or stats is None:
            continue
        if "diverging" not in stats:
            raise ValueError(
                "the sample_stats hold no `diverging`.\n"
                "Give the trace of NUTS: pymc.sample stores it with every sampler."
            )
        missing = [rv.name for rv in model.free_RVs if rv.name not in draws]
        if missing:
            raise ValueError(
                f"the trace holds no {', '.join(missing)}.\n"
                "Give the trace of this model, sampled without `var_names`."
            )
        arrays = {rv.name: np.asarray(draws[rv.name]) for rv in model.free_RVs}
        diverged = np.asarray(stats["diverging"], bool)
        n_divergent += int(diverged.sum())
        if not prefix:
            n_draws = diverged.size
            sampled = draws.to_dataset() if hasattr(draws, "to_dataset") else draws
        for wanted, most in ((True, MOST), (False, 0 if prefix else MOST_OTHERS)):
            at = np.argwhere(diverged == wanted)
            if wanted and (known := is_known(stats)[tuple(at.T)]).any():
                at = at[known]  # (PyMC keeps the points of the first trajectories)
            # (The tuning has draws from everywhere.)
            for chain, draw in at[:: max(1, math.ceil(len(at) / most))] if most else ():
                point = to_point({name: array[chain, draw] for name, array in arrays.items()})
                if wanted:
                    key = (f"{prefix}posterior", int(chain), int(draw))
                    broken.append(Broken(key, point, **broken_points(model, stats, chain, draw)))
                else:
                    others.append((int(chain), point))
    if not n_draws:
        raise ValueError(
            "idata has no groups `posterior` and `sample_stats`.\nGive what pymc.sample returned."
        )
    if not broken:
        return Divergences(n_draws, n_divergent, 0, ())
    with failures() as failed:
        grouping = _Grouping(model, others, n_divergent, n_draws, check, sampled)
        groups = grouping.groups(broken)
        none: tuple[str, ...] = ()
        told = attempt("the record of the chains", none, grouping.remarks, arrays, stats, to_point)
        known = any(group.cause in ("bad", "wall") for group in groups)
        much = check and not known and n_divergent > MUCH * n_draws
        prior = attempt("the draws from the prior", "", _of_prior, model) if much else ""
    return Divergences(
        n_draws, n_divergent, len(broken), tuple(groups), prior, tuple(dict.fromkeys(failed)), told
    )


def _of_prior(model: Any) -> str:
    """Say which term is bad at draws from the prior; "" if none is."""
    found = explain(model, prior_draws=PRIOR_DRAWS)
    if found.ok or found.prior_draw is None:
        return ""
    return (
        f"A term is bad at draw {found.prior_draw} from the prior, where no trajectory may come: "
        f"{found.bad[0].brief}"
    )


def _group(idata: Any, name: str) -> Any:
    try:
        return idata[name]
    except KeyError:
        return None


class _Grouping:
    def __init__(
        self,
        model: Any,
        others: list[tuple[int, Point]],
        n_divergent: int,
        n_draws: int,
        check: bool,
        draws: Any = None,
    ) -> None:
        self.model = model
        self.draws = draws
        self.others = others
        self.counts = n_divergent, n_draws
        self.check = check
        self._ran: dict[tuple[str, ...], tuple[Mixing, list[str]] | None] = {}
        self.wrt = [v.name for v in model.continuous_value_vars]
        self.names = [v.name for v in [*model.basic_RVs, *model.potentials]]
        terms = [getattr(term, "values", term) for term in model.logp(sum=False)]
        wrt = [model.values_to_rvs[v] for v in model.continuous_value_vars]
        self._function = of_points(model, [model.logp(), model.dlogp(wrt), *terms])

    def evaluate(self, point: Point) -> list[Any]:
        """Return the log-density and its gradient."""
        return self._function(point)[:2]

    def terms(self, point: Point) -> Any:
        """Return the sum of each term."""
        return np.array([float(np.sum(term)) for term in self._function(point)[2:]])

    def remarks(
        self, arrays: dict[str, Any], stats: Any, to_point: Callable[[Point], Point]
    ) -> tuple[str, ...]:
        """Return what stands out in a chain."""
        return tuple(remarks(records_of(arrays, stats, to_point, self.terms, self.names)))

    def groups(self, broken: list[Broken]) -> list[DivergenceGroup]:
        """Return the groups, the largest first."""
        found: dict[tuple[Cause | None, int | None], list[Broken]] = {}
        for one in broken:
            none: tuple[Cause | None, int | None] = (None, None)
            alone = attempt("what a point shows by itself", none, self._alone, one)
            found.setdefault(alone, []).append(one)
        made = [self._group(*key, members) for key, members in found.items()]
        return sorted(made, key=lambda group: -len(group.draws))

    def _alone(self, one: Broken) -> tuple[Cause | None, int | None]:
        """Return what a point shows by itself: its cause, and the number of a term."""
        if spoils_sampling(self.evaluate(one.proposal)):
            return "bad", None
        if one.end is None or one.start is None:
            return None, None
        end = {**one.proposal, **one.end}
        if not is_finite(end):
            return None, None
        start = {**one.proposal, **one.start}
        after, before = self.terms(end), self.terms(start)
        fall = before - after
        if np.isnan(after).any() or np.isposinf(after).any():
            return "bad", None
        if np.sum(fall) < WALL and spoils_sampling(self.evaluate(end)):
            return "bad", None  # (of a higher energy the sampler rejects the point anyway)
        at = int(np.argmax(fall))
        if not fall[at] > WALL:
            return None, None
        if np.isneginf(after[at]):
            sound: Any = np.delete(fall, at)
            return ("wall", at) if np.max(sound, initial=0.0) < WALL else (None, None)
        slopes = [np.asarray(self.evaluate(point)[1]) for point in (start, end)]
        step = np.concatenate([np.ravel(end[n]) - np.ravel(start[n]) for n in self.wrt])
        expected = max(abs(float(slope @ step)) for slope in slopes)
        return ("wall", at) if fall[at] > 10 * expected else (None, None)

    def bend(self, point: Point, along: str = "") -> tuple[float, str]:
        """Return how much the log-density bends where it bends most, and along which variable.

        The largest eigenvalue of its second derivatives, from differences of the gradient: of all
        variables, or of the one that is given.
        """
        shapes = {name: np.shape(point[name]) for name in self.wrt}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        start = np.concatenate([np.ravel(point[n]) for n in self.wrt]).astype(float)
        free = np.repeat([along in ("", name) for name in self.wrt], sizes)
        direction = np.random.default_rng(0).normal(size=start.size) * free
        direction /= np.linalg.norm(direction)
        step, value = 1e-4, 0.0

        def gradient(joined: Any) -> Any:
            parts = np.split(joined, np.cumsum(sizes)[:-1])
            moved = {n: p.reshape(shapes[n]) for n, p in zip(self.wrt, parts, strict=True)}
            return np.asarray(self.evaluate({**point, **moved})[1])

        for _ in range(12):
            product = (gradient(start + step * direction) - gradient(start - step * direction)) / (
                2 * step
            )
            product = product * free
            value = float(np.linalg.norm(product))
            if not np.isfinite(value) or value == 0:
                break
            direction = product / value
        weights = np.split(direction**2, np.cumsum(sizes)[:-1])
        heaviest = max(range(len(weights)), key=lambda i: weights[i].sum())
        return value, self.wrt[heaviest]

    def _group(self, cause: Cause | None, at: int | None, members: list[Broken]) -> DivergenceGroup:
        """Return the :class:`DivergenceGroup` of trajectories that broke at the same thing."""
        keys, first = tuple(one.key for one in members), members[0]
        if cause == "bad":
            known = first.end is not None and not spoils_sampling(self.evaluate(first.proposal))
            point = {**first.proposal, **first.end} if known else first.proposal
            title = "the log-density or its gradient is bad there."
            found = explain(self.model, point)
            return DivergenceGroup("bad", title, keys, "It is explained below.", point, found)
        if cause == "wall" and at is not None:
            return self._wall(at, keys, first)
        shape = self._shape(members)
        return DivergenceGroup(shape.cause, shape.title, keys, shape.advice, first.point)

    def _wall(self, at: int, keys: tuple[Key, ...], first: Broken) -> DivergenceGroup:
        point = {**first.proposal, **first.end}
        name, value = self.names[at], self.terms(point)[at]
        found = explain(self.model, point)
        bad = next((term for term in found.bad if term.term == name and term.by is None), None)
        title = f"a wall: {name} is {number_text(float(f'{value:.4g}'))} one step further."
        if bad is not None and (bad.checks or bad.data):
            title = f"a wall: one step further, {bad.brief}"
        advice = (bad.advice if bad is not None else "") or (
            "Give its variables priors that end there, such as pm.HalfNormal or pm.Truncated."
        )
        return DivergenceGroup("wall", title, keys, advice, point)

    def _shape(self, members: list[Broken]) -> Shape:
        draws = [one.proposal for one in members]
        sound = [{**one.proposal, **one.start} for one in members if one.start is not None]
        samples = [sample for sample in (sound, draws) if len(sample) >= FEW]
        if self.others and samples:
            chains, others = zip(*self.others, strict=True)
            comparison = Comparison(self.model, samples, list(others), chains, self.bend)
            shape = comparison.shape()
            if shape is None or shape.cause == "stiff":
                trial = "the trial of a non-centred form"
                shape = attempt(trial, None, self._tried, comparison) or shape
            else:
                shape = attempt("the check of the non-centred form", shape, self._checked, shape)
            if shape is not None:
                return attempt("the design of the data", shape, self._of_data, shape)
        n = len(members)
        title = f"{n} trajectories broke, at no place that the other draws avoid."
        if n < FEWEST:
            title = (
                f"{n} broken {'trajectory is' if n == 1 else 'trajectories are'} too few to tell."
            )
        advice = "Raise target_accept, and see whether they vanish."
        none: list[Scale] = []
        scale = next(iter(attempt("the scales of priors", none, scales_of, self.model)), None)
        if scale is not None and (n < FEWEST or not self.draws_of_trial()):
            advice += (
                f"\n  If they stay, try the non-centred form of {scale.child.name}, whose scale "
                f"{scale.text} is sampled: {scale.non_centred}"
            )
        shape = Shape("unknown", title, advice)
        return attempt("the design of the data", shape, self._of_data, shape)

    def _of_data(self, shape: Shape) -> Shape:
        """Return a shape with the advice of the data, if they leave a direction open."""
        if not self.check or shape.cause not in OF_DATA:
            return shape
        points = list(prior_points(pymc_of("explain_divergences", self.model), self.model, DRAWN))
        faults = [str(fault) for fault in of_designs(self.model, points)]
        return replace(shape, advice="\n".join(faults).replace("\n", "\n  ")) if faults else shape

    def draws_of_trial(self) -> int:
        """Return after how many draws without a divergence a form is better for sure; 0 if none.

        The probability that all divergences are on one side is that side's share to their power.
        """
        n_divergent, n_draws = self.counts
        needed = math.ceil(n_draws * (SURE_OF_TRIAL ** (-1 / max(n_divergent, 1)) - 1))
        return needed if self.check and needed <= MOST_DRAWS else 0

    def _tried(self, comparison: Comparison) -> Shape | None:
        """Return the funnel whose non-centred form diverges less for sure, if one does."""
        draws = self.draws_of_trial()
        for _, funnel in comparison.funnels()[:MOST_TRIED] if draws else ():
            shape = self._checked(funnel, SURE_OF_TRIAL, draws)
            if shape.scale is not None:
                scale = shape.scale
                title = (
                    f"a funnel: {scale.text}, the scale of {scale.child.name}.  Ranks do not show "
                    "it, a run of the non-centred form does."
                )
                return replace(shape, title=title)
        return None

    def _checked(self, shape: Shape, sure: float = 1.0, draws: int = 0) -> Shape:
        """Return a shape whose remedy has been tried, where that is possible.

        In a run of at least so many draws.  If the non-centred form of its variable is no better,
        the one of all variables that have a scale is tried.
        """
        if shape.scale is None or not self.check:
            return shape
        n_old, n_all = self.counts
        all_of_them = [scale.child.name for scale in scales_of(self.model)]
        told = ""
        for names in dict.fromkeys(((shape.scale.child.name,), tuple(all_of_them))):
            ran = self._run_of(names, draws)
            if ran is None:
                continue
            new, lines = ran
            n_new, n_run = new.n_divergent, new.n_draws
            told = f"in a short run of it, {new}; before, {self.mixing}"
            rarer = fisher_exact(
                [[n_new, n_run - n_new], [n_old, n_all - n_old]], alternative="less"
            ).pvalue
            if n_new / n_run < n_old / n_all and rarer <= sure:
                what = "it" if len(lines) == 1 else "all of them"
                form = "\n    ".join(lines)
                slow = SLOW if new.is_slow else ""
                advice = (
                    f"Write {what} non-centred: {form}\n"
                    f"  It has the same density up to the Jacobian; {told}.{slow}"
                )
                return Shape(shape.cause, shape.title, advice, shape.scale)
        no_better = f"The non-centred form is no better ({told}): give" if told else "Give"
        advice = f"{no_better} {shape.scale.text} a prior that keeps it away from 0."
        return Shape(shape.cause, shape.title, advice)

    @cached_property
    def mixing(self) -> Mixing:
        """How the run has mixed."""
        n_divergent, n_draws = self.counts
        plain = Mixing(n_divergent, n_draws)
        of = self.model, n_divergent, n_draws, self.draws
        return plain if self.draws is None else attempt("the ESS of the run", plain, mixing, *of)

    def _run_of(self, names: tuple[str, ...], draws: int) -> tuple[Mixing, list[str]] | None:
        """Return how a short run of a non-centred form mixes, and its lines.

        None if it has another density.
        """
        if names not in self._ran:
            other, changed = non_centred(self.model, list(names))
            is_same = same_density(self.model, other, changed)
            ran = short_run(other, draws) if is_same else None
            lines = [scale.non_centred for scale in changed]
            self._ran[names] = None if ran is None else (ran, lines)
        return self._ran[names]
