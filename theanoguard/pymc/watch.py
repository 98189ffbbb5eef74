"""Judging the points at which the trajectories of a sampler have ended: one rule for all samplers.

Each sampler tells the points where its log-density, or the gradient, is NaN or infinite.  It
rejects them by itself.  They are an error only if they go on after the tuning: then the model's
guarded log-density is called at the point, which explains it.  All others are counted, and
:mod:`~theanoguard.pymc.rejections` sums them up after the run.
"""

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from theanoguard._backends import backends
from theanoguard._event import GuardEvent
from theanoguard._patching import Patch
from theanoguard._pytensor import predefined_linkers
from theanoguard._releases import MISSING, has, probed
from theanoguard._steps import attempt, failures
from theanoguard.explain import Explanation
from theanoguard.guard import GuardError, GuardMode
from theanoguard.pymc.explaining import explain, explain_on_c, of_distributions, of_prior
from theanoguard.pymc.modes import model_lines, spoils_sampling
from theanoguard.pymc.points import is_finite, of_points
from theanoguard.pymc.records import ModelExplanation, SamplingError, Where

logger = logging.getLogger("theanoguard")

T = TypeVar("T")

Point = dict[str, np.ndarray]  # the values of the value variables, by their names

Kind = Literal["bad", "-inf"]
"""A log-density of -inf is the model's own; all else that is not finite is bad."""

MOST_ENERGY = 1000.0  # by so much the energy may grow in a trajectory of NumPyro and BlackJAX

FIRST, LASTING = 100, 10
"""An error if more than 10 of the first 100 draws of a chain have ended at a bad point, or if its
first 100 trajectories all have.  Later ones are only counted, so that few draws are ever lost."""

MOST = 1000  # so many points are kept of a run, of each kind and phase


@dataclass(frozen=True)
class Ending:
    """A point at which the log-density, or its gradient, has ended a trajectory or a step."""

    #: By the names of the value variables.  None if it is not known any more.
    point: Point | None
    logp: float
    gradient: Point | None
    where: Where
    #: The log-density below which the sampler rejects each point, if the sampler tells it.
    floor: float | None = None


class Action:
    """The user's function for events, which may raise to end the run.

    `raised`: what the function has raised.
    """

    def __init__(self, function: Callable[[GuardEvent], Any]) -> None:
        self.function = function
        self.raised: Exception | None = None

    def __call__(self, event: GuardEvent) -> None:
        try:
            self.function(event)
        except Exception as error:
            self.raised = error
            raise


def guard_of_linker(linker: Any, optimizer: Any, like: Any = None) -> GuardMode:
    """Return a guard that compiles with a linker; `like` has its settings and records."""
    like = like or linker
    made = GuardMode.__new__(GuardMode)
    made._set_up(like.policy, like.recorder, linker, optimizer, None)
    return made


_PART = "a part of the guard in samplers"


def existing(patches: Iterable[Patch]) -> list[Patch]:
    """Return the patches of what the installed packages have; of the others, warn once.

    PyMC and the other samplers offer no hooks.  Where a release lacks a name that is replaced, that
    part of a run is not guarded.  An owner that only some runs import may be a dotted name.
    """
    known = len(MISSING)
    found = []
    for patch in patches:
        if isinstance(patch.owner, str):
            patch = replace(patch, owner=probed(patch.owner, _PART))
        if patch.owner is not None and has(patch.owner, patch.name, _PART):
            found.append(patch)
    for missing in MISSING[known:]:
        warnings.warn(f"theanoguard: {missing}.", RuntimeWarning, stacklevel=3)
    return found


def on_backend(guard: GuardMode, backend: str | None) -> GuardMode:
    """Return a guard with the same settings and records, for another backend if one is given."""
    linker = guard.linker if backend is None else predefined_linkers[backends()[backend].linkers[0]]
    return guard_of_linker(linker, guard.provided_optimizer, guard)


def bad_start(
    model: Any, points: Sequence[Point], sampler: str, chain: int | None = None
) -> SamplingError | None:
    """Return the error that explains the first bad one of these starting points, or None."""
    with failures() as failed:
        terms = attempt("the starting point", None, _first_bad, model, points)
    if failed:
        logger.warning("%s", left_out(failed))
    first = None if terms is None else terms.bad[0]
    if first is None or first.event is None:
        return None
    where = Where(sampler, chain, at_start=True)
    return SamplingError(first.event, first.explanation, where, terms)


def _first_bad(model: Any, points: Sequence[Point]) -> ModelExplanation | None:
    # (NumPy computes them first, which compiles nothing.)
    explained = (how(model, point) for how in (explain, explain_on_c) for point in points)
    found = next((terms for terms in explained if not terms.ok), None)
    if found is None:
        return None
    return replace(found, notes=(*found.notes, attempt("the prior", "", of_prior, model)))


def left_out(failed: Sequence[str]) -> str:
    """Return the line that says which steps of an explanation have failed."""
    return f"theanoguard could not work out {'; '.join(failed)}."


@dataclass
class Watch:
    """The guard of one model in one sampler.

    Parameters
    ----------
    sampler : str
    model : pymc.Model
    guard : GuardMode
        Whose settings hold, and which keeps the events.
    backend : str or None
        On which a point is explained; None for the one of the guard.
    n_draws, n_tune, n_chains : int
        Of the run, each chain by itself.
    unit : str
        How a message calls what a sampler does for a draw.

    Attributes
    ----------
    error : SamplingError or None
        What ends the run.
    n_rejected : int
        How many points the sampler would reject whatever is bad there.
    not_finite : dict of str to ndarray or None
        The last of these points that is not finite itself.
    failed : list of str
        The steps of judging and explaining that have failed.
    kept : dict of (str, bool) to list of Ending
        The points that count: "bad" ones, and those with a log-density of -inf; the ones of the
        tuning and the others by themselves.
    starts : list of list of ndarray
        For each chain the values of the variables where it starts, as far as that is known.
    running_from : sequence of ndarray
        The ones of the chain that runs, if the chains run one after the other.
    """

    sampler: str
    model: Any
    guard: GuardMode
    backend: str | None = None
    n_draws: int = 0
    n_tune: int = 0
    n_chains: int = 1
    unit: str = "trajectories"
    error: SamplingError | None = None
    n_rejected: int = 0
    not_finite: Point | None = None
    failed: list[str] = field(default_factory=list)
    kept: dict[tuple[Kind, bool], list[Ending]] = field(default_factory=dict)
    starts: list[list[Any]] = field(default_factory=list)
    running_from: Sequence[Any] = ()
    _ended: dict[Kind, set[Where]] = field(default_factory=dict, repr=False)
    _n_bad: Counter[tuple[int | None, bool]] = field(default_factory=Counter, repr=False)
    _function: Any = field(default=None, repr=False)
    _terms: Any = field(default=None, repr=False)
    _floor: float | None = field(default=None, repr=False)
    # (Chains that run in threads come here at the same time.)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        action = self.guard.policy.action
        if callable(action) and not isinstance(action, Action):
            self.guard = on_backend(self.guard, None)
            self.guard.policy = replace(self.guard.policy, action=Action(action))

    def for_run(self, n_draws: int, n_tune: int, n_chains: int) -> "Watch":
        """Return the guard of another run, with the functions that have been compiled."""
        made = Watch(self.sampler, self.model, self.guard, self.backend, n_draws, n_tune, n_chains)
        made._function, made._terms = self._function, self._terms
        return made

    def attempt(self, what: str, default: T, function: Callable[..., T], *args: Any) -> T:
        """Call a function; if it fails, note that in `failed` and return the default.

        What the guard works out while a sampler runs must not end the run.
        """
        with failures() as failed:
            found = attempt(what, default, function, *args)
        self.failed += [one for one in failed if one not in self.failed]
        return found

    def judge(self, ending: Ending) -> SamplingError | None:
        """Decide about a point where the sampler's log-density or its gradient is not finite.

        Parameters
        ----------
        ending : Ending

        Returns
        -------
        SamplingError or None
            None where sampling can go on.
        """
        with self._lock:
            error = self.attempt("which points were rejected", None, self._judge, ending)
            action = self.guard.policy.action
            if error is None and isinstance(action, Action) and action.raised is not None:
                raise action.raised
            if error is not None and self.failed:
                error.note = "\n".join(filter(None, [error.note, left_out(self.failed)]))
            return error

    def _judge(self, ending: Ending) -> SamplingError | None:
        if self.error is not None:
            return self.error
        plain: Kind = "-inf" if np.isneginf(ending.logp) else "bad"
        if ending.point is None:
            return self._count(plain, ending)
        if not is_finite(ending.point):
            self.n_rejected += 1  # the sampler's own steps have overflowed
            self.not_finite = ending.point
            return None
        if attempt("its energy", False, self._is_rejected, ending, ending.point):
            self.n_rejected += 1
            return None
        kind = attempt("which terms are not finite", plain, self._kind, ending, ending.point)
        return self._count(kind, ending)

    def _count(self, kind: Kind, ending: Ending) -> SamplingError | None:
        """Keep a point that counts; return the error if it is one."""
        where = ending.where
        seen = self._ended.setdefault(kind, set())
        if where in seen:  # (JAX computes more points of a trajectory that has ended)
            return None
        if where.draw is not None:
            seen.add(where)
        kept = self.kept.setdefault((kind, where.tuning), [])
        if ending.point is not None and len(kept) < MOST:
            kept.append(replace(ending, gradient=None))
        if kind != "bad":
            return None
        recorded = self.guard.policy.action != "raise"
        is_error = recorded or where.at_start or self._persists(where)
        if not is_error or ending.point is None:
            return None
        unknown: tuple[bool, SamplingError | None] = (False, None)
        known, found = attempt("why a point is bad", unknown, self._explained, ending)
        return found if known else self.only_there(ending)

    def _persists(self, where: Where) -> bool:
        """Return whether the chain goes on ending at bad points, or has not moved at all."""
        if where.draw is None:
            return False
        self._n_bad[where.chain, where.tuning] += 1
        n_bad = self._n_bad[where.chain, where.tuning]
        if where.tuning:
            return n_bad >= FIRST and n_bad == where.draw + 1
        return where.draw < FIRST and n_bad > LASTING

    def n_ended(self, kind: Kind, tuning: bool) -> int:
        """Return how many trajectories have ended at points of a kind."""
        return sum(where.tuning == tuning for where in self._ended.get(kind, ()))

    def _is_rejected(self, ending: Ending, point: Point) -> bool:
        """Return whether the finite terms are so low that the sampler rejects the point for them.

        Then a term that is NaN or has overflowed changes nothing.
        """
        floor = self.floor() if ending.floor is None else ending.floor
        if np.isfinite(ending.logp):
            return ending.logp < floor
        sums = self.sums(point)
        return float(np.sum(sums[np.isfinite(sums)])) < floor

    def _kind(self, ending: Ending, point: Point) -> Kind:
        is_wall = not np.isfinite(ending.logp) and np.isneginf(self.sums(point)).any()
        return "-inf" if is_wall or np.isneginf(ending.logp) else "bad"

    def sums(self, point: Point) -> np.ndarray:
        """Return the sum of each term of the log-density."""
        return np.array([float(np.sum(term)) for term in self.terms()(point)])

    def terms(self) -> Callable[..., Any]:
        """Return the terms of the model's log-density, without a guard."""
        if self._terms is None:
            self._terms = of_points(self.model, self.model.logp(sum=False))
        return self._terms

    def floor(self) -> float:
        """Return a log-density below which the sampler rejects a point for its energy.

        Trajectories end where the energy has grown by :data:`MOST_ENERGY`.  They begin at a
        log-density that is hardly lower than where the chain started, and with a kinetic energy
        that is hardly above the number of coordinates.
        """
        if self._floor is None:
            names = [v.name for v in self.model.value_vars]
            points = [dict(zip(names, start, strict=True)) for start in self.starts]
            logps = [sum(float(np.sum(t)) for t in self.terms()(point)) for point in points]
            size = sum(np.size(value) for point in points[:1] for value in point.values())
            lowest = min(logps, default=-np.inf)
            self._floor = lowest - MOST_ENERGY - 2 * size if np.isfinite(lowest) else -np.inf
        return self._floor

    def _explained(self, ending: Ending) -> tuple[bool, SamplingError | None]:
        """Return whether PyTensor's log-density decides about a point, and the error."""
        try:
            results = self.function()(ending.point)
        except GuardError as found:
            return True, self.end(found.event, found.explanation, ending)
        if self.guard.policy.action != "raise" and spoils_sampling(results):
            return True, None  # it is recorded
        if np.isneginf(results[0]):
            self.n_rejected += 1
            return True, None
        return False, None

    def function(self) -> Callable[..., Any]:
        """Return the model's log-density and its gradient, guarded."""
        if self._function is None:
            with model_lines(), self.model:
                self._function = self.model.compile_fn(
                    [self.model.logp(), self.model.dlogp()],
                    mode=on_backend(self.guard, self.backend),
                    point_fn=True,
                    on_unused_input="ignore",
                )
        return self._function

    def end(
        self, event: GuardEvent, explanation: Explanation | None, ending: Ending
    ) -> SamplingError:
        """Return the error that ends the run."""
        terms = attempt("the terms at the point", None, explain_on_c, self.model, ending.point)
        self.error = SamplingError(event, explanation, ending.where, terms)
        if terms is not None and terms.ok and self.backend == "numba":
            of = self.model, ending.point, self.backend.upper()
            self.error.note = attempt("the distributions", "", of_distributions, *of)
        return self.error

    def only_there(self, ending: Ending) -> SamplingError | None:
        """Report a value that is known to be bad in the sampler's function alone."""
        arrays = [("the log-density", np.asarray(ending.logp))]
        slopes = ending.gradient or {}
        arrays += [(f"the gradient by {n}", np.asarray(g)) for n, g in slopes.items()]
        policy = self.guard.policy
        name, value = next((n, a) for n, a in arrays if not np.isfinite(a).all())
        counts = policy.count(value, [~np.isfinite(value)])
        event = counts.event(
            role="node",
            node=None,
            op=f"{self.sampler}'s own function",
            variable=name,
            output=0,
            dtype=str(value.dtype),
            shape=value.shape,
        )
        self.guard.recorder.add(event)
        if policy.action == "raise":
            return self.end(event, None, ending)
        if policy.action == "warn":
            error = SamplingError(event, None, ending.where)
            logger.warning("%s", error, extra={"event": event})
        elif callable(policy.action):
            policy.action(event)
        return None
