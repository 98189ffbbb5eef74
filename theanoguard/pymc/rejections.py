"""The points that a sampler has rejected in a run, grouped by cause and summed up in a warning."""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from theanoguard._steps import attempt
from theanoguard.explain.text.report import failed_lines
from theanoguard.pymc.explaining import explain
from theanoguard.pymc.watch import Ending, Kind, Watch, left_out

MOST_SHOWN = 3
LOOKED_AT = 200
INSIDE = ("/contextlib.py", "/pymc/", "/nutpie/", "/theanoguard/")


@dataclass(frozen=True)
class Phase:
    """A phase of a run, and how many of its trajectories may end so before it is told."""

    name: str
    tuning: bool
    share: dict[Kind, float]


# What a run rejects in its tuning alone is told only where it is frequent.  In the draws, a value
# that is bad is told always; a log-density of -inf is a wall, which chains meet now and then.
PHASES = (
    Phase("draws", False, {"bad": 0.0, "-inf": 0.01}),
    Phase("tuning", True, {"bad": 0.1, "-inf": 0.1}),
)


def warn_of(watch: Watch) -> None:
    """Warn of what the trajectories of a run have ended at, unless that is rare and vanishes.

    If a step of that fails, the warning says so in its last line.
    """
    text = watch.attempt("the points that were rejected", "", summary, watch)
    lines = [text] if text else []
    if watch.failed:
        lines.append(f"{left_out(watch.failed)}  The draws are not affected.")
    if lines:
        warnings.warn("\n".join(lines), UserWarning, stacklevel=_levels())


def _levels() -> int:
    """Return how many frames up from the warning the line is that called PyMC."""
    frame, levels = sys._getframe(1), 1
    while any(part in frame.f_code.co_filename for part in INSIDE) and frame.f_back is not None:
        frame, levels = frame.f_back, levels + 1
    return levels


def summary(watch: Watch) -> str:
    """Return what the trajectories of a run have ended at; "" if that is rare and vanishes."""
    for phase in PHASES:
        n_all = watch.n_chains * (watch.n_tune if phase.tuning else watch.n_draws)
        blocks: list[str] = []
        for kind, share in phase.share.items():
            n_ended = watch.n_ended(kind, phase.tuning)
            if n_ended and n_ended > share * n_all:
                kept = watch.kept.get((kind, phase.tuning), [])
                blocks += _groups(watch, phase, n_ended, n_all, kept)
        if blocks:
            return "\n".join(blocks[:MOST_SHOWN])
    return ""


def _groups(
    watch: Watch, phase: Phase, n_ended: int, n_all: int, endings: Sequence[Ending]
) -> Iterator[str]:
    """Yield a text for each group of points at which the same terms are bad."""
    groups: dict[Any, list[Ending]] = {}
    for ending in endings[:: max(1, len(endings) // LOOKED_AT)]:
        key = attempt("which terms are not finite", None, _bad_terms, watch, ending)
        groups.setdefault(key, []).append(ending)
    n_looked_at = sum(map(len, groups.values()))
    counts = Counter({key: len(members) for key, members in groups.items()})
    for key, count in counts.most_common(MOST_SHOWN):
        n = round(n_ended * count / n_looked_at)
        share = f"{100 * n / n_all:.2g} % of the {watch.unit} of the {phase.name} ({n} of {n_all})"
        cause = attempt("the cause", UNKNOWN, _cause, watch.model, groups[key][0])
        yield f"{share} ended where {cause}"


UNKNOWN = "the log-density or its gradient is not finite."


def _bad_terms(watch: Watch, ending: Ending) -> tuple[int, ...]:
    terms = watch.terms()(ending.point) if ending.point is not None else ()
    return tuple(i for i, term in enumerate(terms) if not np.isfinite(term).all())


def _cause(model: Any, ending: Ending) -> str:
    found = explain(model, ending.point)
    text = "the sampler's own log-density or gradient is not finite."
    if not found.ok:
        first = found.bad[0]
        text = "\n".join([first.brief, *([f"  {first.advice}"] if first.advice else [])])
    return "\n".join([text, *failed_lines(found.failed)])
