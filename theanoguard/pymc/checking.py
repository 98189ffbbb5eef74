"""One check of a PyMC model before it is sampled: its start, its prior, its data and gradients."""

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import EQ, Switch

from theanoguard._arguments import checked, refuse
from theanoguard._graph import scalar_class, viewed
from theanoguard._json import to_plain
from theanoguard._lint import Finding
from theanoguard._lint.matching import NotSearched
from theanoguard._naming import name_of
from theanoguard._provenance import SourceLine, source_line
from theanoguard._provenance.places import source_text
from theanoguard._shown import displayed
from theanoguard._steps import ForeignError, attempt, failures
from theanoguard._text import number_text, printable
from theanoguard.explain.text.report import failed_lines
from theanoguard.pymc.auditing import DataFault, audited
from theanoguard.pymc.explaining import Explaining
from theanoguard.pymc.linting import lint
from theanoguard.pymc.points import Point, is_finite, prior_points, pymc_of
from theanoguard.pymc.rays import MOST_FLAT, Improper, flat_priors, rays
from theanoguard.pymc.records import BadTerm
from theanoguard.pymc.trials import n_bad_with

DRAWS = 100  # draws from the prior

SECONDS = 1.5  # processor time of the search for further points

SLOPES = 5  # draws at which the gradient is compared with differences

RARE = 0.05
"""A term that is -inf at a smaller share of the prior's draws is left to the sampler: it rejects
them.  A parameter outside of its domain, NaN and +inf are reported at any share."""

UNLIKELY = 100.0
"""A point that the search finds is left out if its log-density is lower by so much than the best of
a few draws from the prior: no chain stays there."""

EXPLAINED = 3  # draws from the prior that are explained


@dataclass(frozen=True)
class WrongGradient:
    """A derivative of a term that differs from the differences of its values."""

    term: str  # `term`, `by`: names of the term, and of the value variable
    by: str
    #: `analytic`, `numeric`: sum of the derivatives by all elements of `by`, in their direction of
    #: the largest mismatch.
    analytic: float
    numeric: float
    #: The user's own operations in the term; else the branches that a condition chooses.
    suspects: tuple[str, ...] = ()
    source: SourceLine | None = None  # of the first suspect

    def __str__(self) -> str:
        text = (
            f"the gradient of {self.term} by {self.by} is {number_text(self.analytic)}, and the "
            f"differences of its values give {number_text(self.numeric)}"
        )
        place = "" if self.source is None else f"\n  {source_text(self.source)}"
        seen = f"\nCheck the gradient of {', '.join(self.suspects)}." if self.suspects else ""
        return f"{text}{place}{seen}"


Detail = BadTerm | Finding | DataFault | WrongGradient | Improper


@displayed
@dataclass(frozen=True)
class ModelFinding:
    """One fault of a model.

    Parameters
    ----------
    part : {"start", "prior", "search", "data", "gradient", "propriety"}
        The part of the check that found it.
    term : str
        Name of the variable or term of the model.
    detail : BadTerm, Finding, DataFault, WrongGradient or Improper
        The facts.
    share : float or None
        At which share of the draws from the prior the term is bad.
    point : dict of str to ndarray or None
        A point at which it is, by the names of the value variables.
    """

    part: str
    term: str
    detail: Detail
    share: float | None = None
    point: Mapping[str, Any] | None = None

    @property
    def source(self) -> SourceLine | None:
        """The user's line."""
        return self.detail.source

    def __str__(self) -> str:
        often = ""
        if self.share is not None:
            share = f"{self.share:.0%}" if self.share >= 0.01 else "less than 1%"
            often = f"at {share} of the prior's draws "
        return f"{self.part}: {often}{self.detail}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        point = self.point or {}
        return {
            "part": self.part,
            "term": self.term,
            "kind": type(self.detail).__name__,
            "share": self.share,
            "line": None if self.source is None else source_text(self.source),
            "text": str(self.detail),
            "point": to_plain({name: np.asarray(v).tolist() for name, v in point.items()}),
        }


@displayed
@dataclass(frozen=True)
class ModelCheck:
    """The faults of a model that :func:`check` has found.

    Parameters
    ----------
    findings : tuple of ModelFinding
        In the order of the parts.
    looked : tuple of str
        What was checked, and how often.
    failed : tuple of str
        What could not be checked, and why.
    """

    findings: tuple[ModelFinding, ...]
    looked: tuple[str, ...]
    failed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all parts were checked and have found nothing."""
        return not self.findings and not self.failed

    def to_json(self) -> str:
        """Return the findings as JSON."""
        found = [finding.to_dict() for finding in self.findings]
        record = {"findings": found, "looked": self.looked, "failed": self.failed}
        return json.dumps(record, allow_nan=False)

    def __str__(self) -> str:
        n = len(self.findings)
        head = f"{n} finding{'' if n == 1 else 's'}. Checked: {', '.join(self.looked)}."
        blocks = ["\n".join(textwrap.wrap(printable(head), 96)), *map(str, self.findings)]
        return "\n\n".join([*blocks, *failed_lines(self.failed)])


@checked
def check(model: Any, *, draws: int = DRAWS, seconds: float = SECONDS, seed: int = 0) -> ModelCheck:
    """Check a model before you sample it.

    The check looks for terms that are not finite at the starting point, at draws from the prior and
    at points that a search finds; for data that are probably not meant; for a gradient that differs
    from the differences of the values; and for a density that does not fall in a direction.

    Parameters
    ----------
    model : pymc.Model
    draws : int
        How many draws from the prior are checked.  A variable without draws, such as ``pm.Flat``,
        is moved around its starting value.
    seconds : float
        Seconds of processor time that the search for further points may take; 0 for no search.
    seed : int
        Of the draws.

    Returns
    -------
    ModelCheck
        It has the findings as records.  A part that fails is named in ``failed``; no part raises.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    TypeError
        If `model` is not a model.

    Examples
    --------
    .. code-block:: python

        print(theanoguard.pymc.check(model))
    """
    pymc = pymc_of("check", model)
    if draws < 0 or seconds < 0:
        name, value = ("draws", draws) if draws < 0 else ("seconds", seconds)
        raise refuse("check", name, value, f"{name} must not be negative")
    with failures() as failed:
        checking = _Checking(pymc, model, draws, seconds, seed)
        findings = [finding for part in PARTS for finding in checking.run(part)]
    return ModelCheck(tuple(findings), tuple(checking.looked), tuple(failed))


class _Checking:
    """The check of one model: each part knows what the parts before it have found."""

    def __init__(self, pymc: Any, model: Any, draws: int, seconds: float, seed: int) -> None:
        self.pymc, self.model, self.seed, self.seconds, self.n = pymc, model, seed, seconds, draws
        self.looked: list[str] = []
        self.findings: list[ModelFinding] = []
        self.explaining: Any = attempt("the model", None, Explaining, pymc, model, None)
        self.points: list[Point] = attempt("the draws from the prior", [], self._drawn)

    def run(self, part: str) -> list[ModelFinding]:
        """Return the findings of one part, and note that it was checked."""
        look = PARTS[part]
        if part != "data" and (self.explaining is None or self._cannot_be_computed):
            return []
        none: list[ModelFinding] = []
        found = attempt(f"the part {part!r}", none, lambda: list(look(self)))
        self.findings += found
        return found

    @property
    def _cannot_be_computed(self) -> bool:
        """Whether a term raises an error at the start: it would raise in each part."""
        details = (finding.detail for finding in self.findings)
        return any(isinstance(detail, BadTerm) and detail.error for detail in details)

    def _drawn(self) -> list[Point]:
        if not (self.n and self.model.free_RVs):
            return []
        return list(filter(is_finite, prior_points(self.pymc, self.model, self.n, self.seed)))

    @property
    def told(self) -> set[str]:
        """The terms that have been reported."""
        return {finding.term for finding in self.findings}

    def start(self) -> Iterator[ModelFinding]:
        """Yield the terms that are bad at the starting point."""
        found = self.explaining.result()
        self.looked.append("the starting point")
        told = {bad.term for bad in found.bad if bad.by is None}
        for bad in found.bad:
            if bad.by is None or bad.term not in told:  # (the gradient of a bad term says no more)
                told.add(bad.term)
                yield ModelFinding("start", bad.term, self._tried(bad), point=found.point)

    def _tried(self, bad: BadTerm) -> BadTerm:
        """Return a bad term whose advice says what its remedy does at draws from the prior."""
        if bad.remedy is None or not self.points:
            return bad
        of = self.model, bad.term, bad.remedy, self.points
        n_bad = attempt("the trial of a remedy", None, n_bad_with, *of)
        if n_bad is None:
            return bad
        n = len(self.points)
        told = f"With {bad.remedy}, {n - n_bad} of {n} draws from the prior are finite."
        return replace(bad, advice=f"{bad.advice}\n{told}")

    def _bad_at(self, point: Point) -> list[str]:
        """Return the names of the bad terms at a point; `ERROR` if one cannot be computed."""
        try:
            return self.explaining.bad_terms_at(point)
        except Exception:  # (whatever an operation of the model raises)
            return [ERROR]

    def prior(self) -> Iterator[ModelFinding]:
        """Yield the terms that are bad at draws from the prior."""
        bad_at: dict[str, list[int]] = {}
        for number, point in enumerate(self.points):
            for name in self._bad_at(point):
                bad_at.setdefault(name, []).append(number)
        if self.points:
            self.looked.append(f"{len(self.points)} draws from the prior")
        left = {name: at for name, at in bad_at.items() if name not in self.told}
        for _ in range(EXPLAINED):
            if not left:
                break
            number = min(at[0] for at in left.values())
            point = self.points[number]
            bad = Explaining(self.pymc, self.model, point).result().bad
            for term in bad:
                at = left.pop(ERROR if term.error else term.term, None)
                if at is None or term.by is not None:
                    continue
                share = len(at) / len(self.points)
                if share >= RARE or not _is_rejected(term):
                    yield ModelFinding("prior", term.term, self._tried(term), share, point)
            left = {name: at for name, at in left.items() if at[0] != number}

    def search(self) -> Iterator[ModelFinding]:
        """Yield what the search between the draws finds at other lines."""
        if not self.seconds:
            return
        try:
            found = lint(self.model, draws=min(self.n, 60), seconds=self.seconds, seed=self.seed)
        except NotSearched:  # (no input gave a result: the other parts say why)
            return
        self.looked.append(f"a search of {self.seconds:g} s")
        lines = {f.source for f in self.findings} | {_cause(f.detail) for f in self.findings}
        terms_at = self.explaining.functions(slopes=False)[0]
        usual = max((_height(terms_at, p) for p in self.points[:SLOPES]), default=-np.inf)
        for finding in found:
            witness = finding.witness
            if witness is None or (finding.source is not None and finding.source in lines):
                continue
            there = Explaining(self.pymc, self.model, witness.inputs)
            lost = witness.value == -np.inf and witness.kind == "arithmetic"
            height = float(witness.exact) if lost else _height(terms_at, there.point)
            if height < usual - UNLIKELY:
                continue
            new = [one for one in there.result().bad if _cause(one) not in lines - {None}]
            detail: Any = next(iter(new), finding)
            lines |= {finding.source, _cause(detail)}
            term = getattr(detail, "term", finding.rule)
            yield ModelFinding("search", term, detail, None, there.point)

    def data(self) -> Iterator[ModelFinding]:
        """Yield data that are probably not meant."""
        self.looked.append("the data")
        points = [] if self._cannot_be_computed else self.points
        for fault in audited(self.model, points):
            yield ModelFinding("data", fault.variable, fault)

    def gradient(self) -> Iterator[ModelFinding]:
        """Yield derivatives that differ from the differences of the values."""
        points = list(islice((p for p in self.points if not self._bad_at(p)), SLOPES))
        if not self._bad_at(self.explaining.point):
            points.insert(0, self.explaining.point)
        names = [v.name for v in self.model.continuous_value_vars]
        if not (points and names):
            return
        try:
            terms_at, slopes_at = self.explaining.functions()
        except ForeignError:
            self.looked.append(f"the gradient (there is none: {self.explaining.no_gradient})")
            return
        n = len(points)
        self.looked.append(f"the gradient at {n} point{'' if n == 1 else 's'}")
        rng = np.random.default_rng(self.seed)
        wrong: dict[str, list[tuple[Point, float, float]]] = {}
        for point in points:
            slopes = dict(zip(names, slopes_at(point), strict=True))
            for name in names:
                direction = rng.choice([-1.0, 1.0], size=np.shape(point[name]))
                slope = float(np.sum(slopes[name] * direction))
                differences = _differences(terms_at, point, name, direction)
                if differences is None:
                    continue
                by_differences, error = (float(x) for x in differences)
                size = max(abs(slope), abs(by_differences))
                if abs(slope - by_differences) > 1e-3 * size + 10 * error + 1e-6:
                    wrong.setdefault(name, []).append((point, slope, by_differences))
        for name, found in wrong.items():
            point, slope, by_differences = found[0]
            term = self._wrong_term(name)
            variables = [self.model[n] for n in ([term] if term else self.explaining.names)]
            suspects = _suspects(variables)
            if 2 * len(found) <= len(points) and not suspects:
                continue  # (rounding; or a distribution of PyMC that has no derivative there)
            told = WrongGradient(
                term or "the log-density",
                name,
                slope,
                by_differences,
                tuple(dict.fromkeys(text for text, _ in suspects)),
                next((line for _, line in suspects if line is not None), None),
            )
            yield ModelFinding("gradient", told.term, told, point=point)

    def _wrong_term(self, name: str) -> str:
        """Return the only term that depends on a value, "" if there are several."""
        value = next(v for v in self.model.value_vars if v.name == name)
        named = zip(self.explaining.names, self.explaining.terms, strict=True)
        by_own = [n for n, term in named if value in ancestors([term])]
        with_own = [n for n in by_own if _suspects([self.model[n]])]
        return (with_own or by_own)[0] if len(with_own or by_own) == 1 else ""

    def propriety(self) -> Iterator[ModelFinding]:
        """Yield the directions of flat priors along which the log-density does not fall."""
        if not flat_priors(self.model):
            return
        points = list(islice((p for p in self.points if not self._bad_at(p)), MOST_FLAT + 5))
        if points:
            slopes_at = self.explaining.functions()[1]
            self.looked.append("whether the density falls along flat priors")
            for found in rays(self.model, points, self._height_at, slopes_at):
                yield ModelFinding("propriety", found.variable, found)

    def _height_at(self, point: Point) -> float:
        return _height(self.explaining.functions(slopes=False)[0], point)


PARTS: dict[str, Callable[[_Checking], Iterator[ModelFinding]]] = {
    "start": _Checking.start,
    "prior": _Checking.prior,
    "search": _Checking.search,
    "data": _Checking.data,
    "gradient": _Checking.gradient,
    "propriety": _Checking.propriety,
}

ERROR = "an error"  # stands for the name of a term that cannot be computed

LIBRARIES = ("pytensor", "pymc", "pymc_extras", "theanoguard")


def _is_rejected(term: BadTerm) -> bool:
    """Whether a term is -inf, and no parameter lies outside of its domain."""
    event = term.event
    return event is not None and event.first_value == -np.inf and not term.checks


def _cause(detail: Any) -> SourceLine | None:
    """Return the line of the operation that has made a bad term."""
    explanation = getattr(detail, "explanation", None)
    return None if explanation is None else explanation.cause.source


def _differences(
    terms_at: Callable, point: Point, name: str, direction: Any
) -> tuple[float, float] | None:
    """Return the slope of a log-density in a direction by differences, and its error.

    Central differences of two step sizes; the better one by Richardson's extrapolation.  None where
    a value on the way is not finite.
    """
    value: Any = np.asarray(point[name], float)
    eps = np.finfo(np.asarray(point[name]).dtype).eps
    step = 1e-3 * (1 + float(np.max(np.abs(value), initial=0)))
    slopes = []
    sizes = 0.0
    for h in (step, step / 4, step / 16):
        right, middle, left = (
            np.sum([np.sum(t) for t in terms_at({**point, name: value + sign * h * direction})])
            for sign in (1, 0, -1)
        )
        if not np.isfinite([right, middle, left]).all():
            return None
        sizes = max(sizes, abs(right), abs(left))
        slopes.append((right - left) / (2 * h))
    if abs(right + left - 2 * middle) > 0.1 * abs(right - left) + 1e-9 * sizes:
        return None  # (a kink)
    fine = (16 * slopes[2] - slopes[1]) / 15
    coarse = (16 * slopes[1] - slopes[0]) / 15
    rounding = float(16 * eps * sizes / (step / 16))
    return fine, abs(fine - coarse) + rounding


def _suspects(terms: Sequence[Any]) -> list[tuple[str, SourceLine | None]]:
    """Return the user's own operations that terms are computed with, and their lines.

    If there are none, the branches that an equality chooses: their derivatives at this point are of
    one branch alone.
    """
    nodes = list(toposort(terms))
    own = [
        (type(node.op).__name__, source_line(node.outputs[0]))
        for node in nodes
        if type(node.op).__module__.partition(".")[0] not in LIBRARIES
    ]
    return own or [
        (f"the branch that {name_of(viewed(node.inputs[0]))} chooses", source_line(node.outputs[0]))
        for node in nodes
        if scalar_class(node.outputs[0]) is Switch and scalar_class(viewed(node.inputs[0])) is EQ
    ]


def _height(terms_at: Callable, point: Point) -> float:
    """Return the log-density at a point."""
    return float(np.sum([np.sum(term) for term in terms_at(point)]))
