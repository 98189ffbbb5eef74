"""The points that a sampler has rejected in a run, grouped by cause and summed up in a warning."""

import sys
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np

from theanoguard.pymc.explaining import explain
from theanoguard.pymc.watch import Ending, Watch

MOST_SHOWN = 3
LOOKED_AT = 200
INSIDE = ("/contextlib.py", "/pymc/", "/nutpie/", "/theanoguard/")


@dataclass(frozen=True)
class Phase:
    """A phase of a run, and how many of its trajectories may end so before it is told."""

    name: str
    tuning: bool
    share: dict[str, float]


# What a run rejects in its tuning alone is told only where it is frequent.  In the draws, a value
# that is bad is told always; a log-density of -inf is a wall, which chains meet now and then.
PHASES = (
    Phase("draws", False, {"bad": 0.0, "-inf": 0.01}),
    Phase("tuning", True, {"bad": 0.1, "-inf": 0.1}),
)


def warn_of(watch: Watch) -> None:
    """Warn of what the trajectories of a run have ended at, unless that is rare and vanishes."""
    if text := summary(watch):
        warnings.warn(text, UserWarning, stacklevel=_levels())


def _levels():
    """Return how many frames up from the warning the line is that called PyMC."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in INSIDE):
        frame, levels = frame.f_back, levels + 1
    return levels


def summary(watch: Watch) -> str:
    """Return what the trajectories of a run have ended at; "" if that is rare and vanishes."""
    for phase in PHASES:
        n_all = watch.n_chains * (watch.n_tune if phase.tuning else watch.n_draws)
        blocks = []
        for kind, share in phase.share.items():
            n_ended = watch.n_ended(kind, phase.tuning)
            if n_ended and n_ended > share * n_all:
                of_phase = [e for e in watch.kept[kind] if e.where.tuning == phase.tuning]
                blocks += _groups(watch, phase, n_ended, n_all, of_phase or watch.kept[kind])
        if blocks:
            return "\n".join(blocks[:MOST_SHOWN])
    return ""


def _groups(watch, phase, n_ended, n_all, endings):
    """Return a text for each group of points at which the same terms are bad."""
    groups: dict[tuple, list[Ending]] = {}
    for ending in endings[:: max(1, len(endings) // LOOKED_AT)]:
        terms = watch.terms()(ending.point)
        bad = tuple(i for i, term in enumerate(terms) if not np.isfinite(term).all())
        groups.setdefault(bad, []).append(ending)
    n_looked_at = sum(map(len, groups.values()))
    counts = Counter({bad: len(members) for bad, members in groups.items()})
    for bad, count in counts.most_common(MOST_SHOWN):
        n = round(n_ended * count / n_looked_at)
        share = f"{100 * n / n_all:.2g} % of the trajectories of the {phase.name} ({n} of {n_all})"
        yield f"{share} ended where {_cause(watch.model, groups[bad][0])}"


def _cause(model, ending):
    found = explain(model, ending.point)
    if found.ok:
        return "the sampler's own log-density or gradient is not finite."
    first = found.bad[0]
    return "\n".join([first.brief, *([f"  {first.advice}"] if first.advice else [])])
