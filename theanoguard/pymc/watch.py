"""Judging the points at which a sampler's own log-density came out bad.

A sampler that compiles the log-density by itself is not guarded node by node.  Its log-density is
made to tell the points where it, or its gradient, is NaN or infinite.  The model's guarded
log-density is then called there, and that decides: a rejection goes on, an error is explained.
"""

import logging
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from theanoguard._pytensor import Mode, config, predefined_linkers
from theanoguard.guard import GuardError, GuardMode
from theanoguard.guard.mode import BACKENDS
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc.explaining import explain
from theanoguard.pymc.modes import model_lines, spoils_sampling
from theanoguard.pymc.records import SamplingError, Where

logger = logging.getLogger("theanoguard")

MOST_ENERGY = 1000.0
"""By so much the energy may grow in a trajectory of NumPyro and BlackJAX."""


def on_backend(guard: GuardMode, backend: str) -> GuardMode:
    """Return a guard with the same settings and records, for another backend."""
    made = GuardMode.__new__(GuardMode)
    linker = predefined_linkers[BACKENDS[backend].linkers[0]]
    made._set_up(guard.policy, guard.recorder, linker, guard.provided_optimizer, None)
    return made


def bad_start(
    model: Any, points: list[Any], sampler: str, chain: int | None = None
) -> SamplingError | None:
    """Return the error that explains the first bad one of these starting points, or None."""
    terms = next((t for point in points if not (t := explain(model, point)).ok), None)
    if terms is None or terms.bad[0].event is None:
        return None
    first = terms.bad[0]
    where = Where(sampler, chain, at_start=True)
    return SamplingError(first.event, first.explanation, where, terms)


@dataclass
class Watch:
    """The guard of one model in one sampler.

    Parameters
    ----------
    sampler : str
    model : pymc.Model
    guard : GuardMode
        Whose settings hold, and which keeps the events.
    backend : str
        On which a point is judged.

    Attributes
    ----------
    error : SamplingError or None
        What ends the run.
    n_rejected : int
        How many points were told that are no errors.
    not_finite : dict of str to ndarray or None
        The last of these points that is not finite itself.
    starts : list of list of ndarray
        For each chain the values of the variables where it starts, as far as that is known.
    running_from : sequence of ndarray
        The ones of the chain that runs, if the chains run one after the other.
    """

    sampler: str
    model: Any
    guard: GuardMode
    backend: str
    error: SamplingError | None = None
    n_rejected: int = 0
    not_finite: Any = None
    starts: list[list[Any]] = field(default_factory=list)
    running_from: Any = ()
    _function: Any = field(default=None, repr=False)
    _terms: Any = field(default=None, repr=False)
    _floor: float | None = field(default=None, repr=False)
    # (Chains that run in threads come here at the same time.)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def judge(self, point, logp, gradient, where=None):
        """Decide about a point where the sampler's log-density or its gradient is not finite.

        Parameters
        ----------
        point : dict of str to ndarray
            By the names of the value variables.
        logp : float
        gradient : dict of str to ndarray
            Of the sampler.
        where : Where or None

        Returns
        -------
        SamplingError or None
            None where sampling can go on.
        """
        where = where or Where(self.sampler)
        with self._lock:
            if self.error is None and not all(np.isfinite(v).all() for v in point.values()):
                self.n_rejected += 1  # the sampler's own steps have overflowed
                self.not_finite = point
                return None
            if self.error is None and self._is_rejected(point, logp):
                self.n_rejected += 1
                return None
            return self.error or self._judge(point, logp, gradient, where)

    def _is_rejected(self, point, logp):
        """Return whether the sampler rejects a point for what is not bad there."""
        if np.isnan(logp) or np.isposinf(logp):
            # The other terms can be so low that one that is NaN or has overflowed decides nothing.
            sums = [float(np.sum(term)) for term in self.terms()(point)]
            logp = sum(value for value in sums if value < np.inf)
            return np.isneginf(logp) or logp < self.floor()
        return logp < self.floor()

    def terms(self):
        """Return the terms of the model's log-density, without a guard."""
        if self._terms is None:
            mode = Mode("cvm" if config.cxx else "vm", "fast_run")
            with self.model, unguarded():
                self._terms = self.model.compile_fn(
                    self.model.logp(sum=False), mode=mode, point_fn=True, on_unused_input="ignore"
                )
        return self._terms

    def floor(self):
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

    def _judge(self, point, logp, gradient, where):
        try:
            results = self.function()(point)
        except GuardError as found:
            return self.end(found.event, found.explanation, point, where)
        if self.guard.policy.action != "raise" and spoils_sampling(results):
            return None  # it is recorded
        if np.isneginf(results[0]):
            self.n_rejected += 1
            return None
        return self.only_there(point, logp, gradient, where)

    def function(self):
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

    def end(self, event, explanation, point, where):
        """Return the error that ends the run."""
        self.error = SamplingError(event, explanation, where, explain(self.model, point))
        return self.error

    def only_there(self, point, logp, gradient, where):
        """Report a value that is bad in the sampler's function, and not in PyTensor's."""
        arrays = [("the log-density", np.asarray(logp))]
        arrays += [(f"the gradient by {name}", np.asarray(g)) for name, g in gradient.items()]
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
            return self.end(event, None, point, where)
        if policy.action == "warn":
            logger.warning("%s", SamplingError(event, None, where), extra={"event": event})
        elif callable(policy.action):
            policy.action(event)
        return None
