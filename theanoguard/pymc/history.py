"""The record of a sampler's chains: log-density terms, step size and energy by draw."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from theanoguard._arguments import checked
from theanoguard._shown import brief
from theanoguard._text import number_text, printable
from theanoguard.pymc.points import Point, of_points, pymc_of, unconstraining

MOST = 250  # so many draws of a chain are recorded, spaced evenly

STATISTICS = ("step_size", "energy")

AT_LEAST = 20  # so many draws before, and after, it takes to say since when

HUGE = 1e300  # stands for an infinite figure, and for a NaN

SMALL = 0.1  # a step size that is smaller than so much of the other chains' is told


@brief
@dataclass(frozen=True, eq=False)
class ChainRecord:
    """What a chain had in its draws.

    Parameters
    ----------
    chain : int
    draws : ndarray of int, shape (n,)
        The draws that were recorded.
    figures : dict of str to ndarray of float64, shape (n,)
        The sum of each term of the log-density, by the name of its variable, and, where the sampler
        tells them, ``"step_size"`` and ``"energy"``.
    """

    chain: int
    draws: np.ndarray
    figures: Mapping[str, np.ndarray]

    def __str__(self) -> str:
        return f"chain {self.chain}, {len(self.draws)} draws of {', '.join(self.figures)}"

    def since(self, figure: str) -> int | None:
        """Return the first recorded draw from which on a figure is away from all before.

        Parameters
        ----------
        figure : str

        Returns
        -------
        int or None
            None if there is no such draw, as in a chain that has settled.
        """
        y = np.nan_to_num(self.figures[figure], nan=HUGE, posinf=HUGE, neginf=-HUGE)
        if len(y) < 2 * AT_LEAST:
            return None
        gaps = []
        for x in (y, -y):
            gap = np.minimum.accumulate(x[::-1])[::-1][1:] - np.maximum.accumulate(x)[:-1]
            gaps.append(gap[AT_LEAST - 1 : 1 - AT_LEAST])
        at = int(np.argmax(np.maximum(*gaps)))
        before, after = y[: at + AT_LEAST], y[at + AT_LEAST :]
        apart = max(gap[at] for gap in gaps)
        # (a chain that drifts has no such gap)
        is_wide = apart > min(np.ptp(before), np.ptp(after))
        return int(self.draws[at + AT_LEAST]) if apart > 0 and is_wide else None


@checked
def record(idata: Any, model: Any) -> tuple[ChainRecord, ...]:
    """Return the log-density terms, step size and energy of a trace, by chain and draw.

    Parameters
    ----------
    idata : xarray.DataTree or arviz.InferenceData
        With the groups ``posterior`` and ``sample_stats``.
    model : pymc.Model
        The model that was sampled.

    Returns
    -------
    tuple of ChainRecord
        One for each chain.

    Raises
    ------
    KeyError
        If `idata` has no draws of a variable of the model, or no ``sample_stats``.

    Examples
    --------
    .. code-block:: python

        for chain in theanoguard.pymc.record(trace, model):
            print(chain, chain.figures["energy"].max())
    """
    pymc_of("record", model)
    names = [v.name for v in [*model.basic_RVs, *model.potentials]]
    values = of_points(model, [getattr(t, "values", t).sum() for t in model.logp(sum=False)])
    draws, stats = idata["posterior"], idata["sample_stats"]
    arrays = {rv.name: np.asarray(draws[rv.name]) for rv in model.free_RVs}
    return records_of(arrays, stats, unconstraining(model), values, names)


def records_of(
    arrays: Mapping[str, np.ndarray],
    stats: Any,
    to_point: Callable[[dict[str, Any]], Point],
    terms: Callable[[Point], Sequence[float]],
    names: Sequence[str],
) -> tuple[ChainRecord, ...]:
    """Return the records of the draws of a trace; `terms` are those of a point, `names` theirs."""
    n_chains, n_draws = next(iter(arrays.values())).shape[:2]
    at = np.arange(0, n_draws, max(1, -(-n_draws // MOST)))
    found = []
    for chain in range(n_chains):
        points = (to_point({name: a[chain, draw] for name, a in arrays.items()}) for draw in at)
        rows = np.array([terms(point) for point in points], "float64")
        columns = rows.reshape(len(at), len(names)).T
        figures = dict(zip(names, columns, strict=True))
        for name in STATISTICS:
            if name in stats and name not in figures:
                figures[name] = np.asarray(stats[name], "float64")[chain, at]
        found.append(ChainRecord(chain, at, figures))
    return tuple(found)


def remarks(records: Sequence[ChainRecord]) -> Iterator[str]:
    """Yield what stands out in a chain: where a figure changed for good, or a very small step."""
    steps = [float(np.median(r.figures.get("step_size", np.nan))) for r in records]
    for record, step in zip(records, steps, strict=True):
        others = [s for r, s in zip(records, steps, strict=True) if r is not record]
        if others and step < SMALL * min(others):
            yield (
                f"Chain {record.chain}: its step size is {step:.2g}; the others have "
                f"{min(others):.2g} or more."
            )
        for name, y in record.figures.items():
            draw = record.since(name)
            if draw is not None:
                late = record.draws >= draw
                before, after = (
                    number_text(float(f"{np.median(part):.4g}")) for part in (y[~late], y[late])
                )
                what = name.replace("_", " ") if name in STATISTICS else f"the term {name}"
                yield printable(
                    f"Chain {record.chain}: since draw {draw}, {what} is about {after}; before, it "
                    f"was about {before}."
                )
