"""Data of a PyMC model that are probably not meant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from theanoguard._provenance import SourceLine, source_line
from theanoguard._provenance.places import source_text
from theanoguard._shown import displayed
from theanoguard._text import number_text
from theanoguard.pymc.parameters import given_data

SENTINELS = (-9, -99, -999, -9999, 999, 9999)
"""Numbers that stand for a missing value in tables."""

FEW = 5
"""Arrays with fewer elements are not audited."""

OFF_CENTRE = 100
"""A predictor is reported if its mean is so many standard deviations from 0."""

ALIKE = 0.9999
"""Two predictors are reported if they are correlated so closely."""


@displayed
@dataclass(frozen=True)
class DataFault:
    """Data that are probably not meant.

    Parameters
    ----------
    key : {"cut", "sentinel", "cast-nan", "off-centre", "constant", "alike"}
    variable : str
        Name of the observed variable or of the array.
    values : tuple of float
        The numbers in question.
    at : tuple of int
        Index of the first one.
    n : int
        How many elements are concerned.
    source : SourceLine or None
    """

    key: str
    variable: str
    values: tuple[float, ...] = ()
    at: tuple[int, ...] = ()
    n: int = 0
    source: SourceLine | None = None

    def __str__(self) -> str:
        numbers = [number_text(value) for value in self.values]
        text = TEXTS[self.key].format(*numbers, name=self.variable, at=list(self.at), n=self.n)
        place = "" if self.source is None else f"\n  {source_text(self.source)}"
        first, end, rest = text.partition("\n")
        return f"{first}{place}{end}{rest}"


TEXTS = {
    "cut": "{name}{at} is {0} in your data and {1} in the model: its distribution takes whole "
    "numbers, and PyMC has cut {n} elements\n"
    "Round the data, or use a distribution of real numbers.",
    "sentinel": "{name}{at} is {0}, far from all other elements ({n} in all): a code for missing "
    "values?\nReplace it by NaN, or leave these rows out.",
    "cast-nan": "{name}{at} is {0}: a NaN that was cast to an integer\nLeave out the {n} rows with "
    "a missing index.",
    "off-centre": "{name} has the mean {0} and the standard deviation {1}\nSubtract the mean and "
    "divide by the standard deviation: the intercept and the slope are hardly to tell apart.",
    "constant": "{name} has {n} constant columns\nKeep one of them: their slopes cannot be told "
    "apart from the intercept.",
    "alike": "columns {0} and {1} of {name} are correlated by {2}\nCentre them, or leave one out: "
    "their slopes can hardly be told apart.",
}


def audited(model: Any) -> Iterator[DataFault]:
    """Yield what is wrong with the observed data and with the arrays that a model computes with."""
    for rv in model.observed_RVs:
        yield from _of_observed(model, rv)
    seen = {model.rvs_to_values[rv] for rv in model.observed_RVs}
    terms = [*model.basic_RVs, *model.potentials, *model.deterministics]
    for v in dict.fromkeys(graph_inputs(terms)):
        if v in seen or not isinstance(v, Constant | SharedVariable):
            continue
        value = v.data if isinstance(v, Constant) else v.get_value(borrow=True)
        if isinstance(value, np.ndarray) and value.size >= FEW and value.dtype.kind in "iuf":
            name = v.name or "an array"
            yield from _of_array(name, value, source_line(v))


def _of_observed(model: Any, rv: Any) -> Iterator[DataFault]:
    value = model.rvs_to_values[rv]
    data = value.data if isinstance(value, Constant) else None
    if data is None and isinstance(value, SharedVariable):
        data = value.get_value(borrow=True)
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iuf":
        return
    line = source_line(rv)
    given = given_data(rv)
    if given is not None and given.shape == data.shape:
        with np.errstate(invalid="ignore"):
            cut = np.isfinite(given) & (given != data)
        if cut.any():
            first = tuple(int(i) for i in np.argwhere(cut)[0])
            numbers = float(given[first]), float(data[first])
            yield DataFault("cut", rv.name, numbers, first, int(cut.sum()), line)
    yield from _sentinels(rv.name, data, line)


def _of_array(name: str, value: np.ndarray, line: SourceLine | None) -> Iterator[DataFault]:
    if value.dtype.kind == "i":
        lost = value == np.iinfo(value.dtype).min
        if lost.any():
            first = tuple(int(i) for i in np.argwhere(lost)[0])
            number = (float(value[first]),)
            yield DataFault("cast-nan", name, number, first, int(lost.sum()), line)
    yield from _sentinels(name, value, line)
    if value.dtype.kind != "f" or value.ndim > 2 or not np.isfinite(value).all():
        return
    columns = value.reshape(len(value), -1)
    if len(columns) < FEW or columns.shape[1] > 200:
        return
    centres, widths = columns.mean(axis=0), columns.std(axis=0)
    varies = widths > 1e-12 * np.abs(centres)
    far = np.argwhere(varies & (np.abs(centres) > OFF_CENTRE * widths)).ravel()
    if len(far):
        numbers = float(centres[far[0]]), float(widths[far[0]])
        yield DataFault("off-centre", name, numbers, (int(far[0]),), len(far), line)
    if value.ndim == 2 and (~varies).sum() > 1 and (centres[~varies] != 0).all():
        yield DataFault("constant", name, n=int((~varies).sum()), source=line)
    if value.ndim == 2 and varies.sum() > 1:
        which = np.flatnonzero(varies)
        alike = np.triu(np.abs(np.corrcoef(columns[:, which], rowvar=False)), 1)
        i, j = np.unravel_index(int(np.argmax(alike)), alike.shape)
        if alike[i, j] > ALIKE:
            numbers3 = float(which[i]), float(which[j]), float(alike[i, j])
            yield DataFault("alike", name, numbers3, (int(which[i]),), 2, line)


def _sentinels(name: str, data: np.ndarray, line: SourceLine | None) -> Iterator[DataFault]:
    """Yield the codes for a missing value: far from all other elements, on one side of them."""
    for code in SENTINELS:
        coded = data == code
        n = int(coded.sum())
        if not n or data.size - n < FEW:
            continue
        others = data[~coded & np.isfinite(data)]
        if not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        is_far = low >= 0 if code < 0 else high < code / 5
        if is_far and len(np.unique(others)) > 1:
            first = tuple(int(i) for i in np.argwhere(coded)[0])
            yield DataFault("sentinel", name, (float(code),), first, n, line)
