"""The records of an explanation of a model at a point."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from theanoguard._event import GuardEvent
from theanoguard._provenance import SourceLine
from theanoguard._provenance.places import source_text
from theanoguard._shown import displayed
from theanoguard._text import number_text, printable
from theanoguard.explain import Explanation
from theanoguard.explain.text.report import failed_lines
from theanoguard.explain.text.report import title as headline
from theanoguard.guard import GuardError
from theanoguard.guard.errors import report_text
from theanoguard.pymc.links import Remedy, without_clamp


@displayed
@dataclass(frozen=True)
class BadTerm:
    """A term of the log-density, or a gradient of a term, that is not finite.

    Parameters
    ----------
    term : str
        Name of the random variable or potential.
    by : str or None
        For a gradient, the name of the value variable, such as ``sigma_log__``.
    source : SourceLine or None
        The line of the model that made the variable.
    event : GuardEvent or None
        The first bad element, and the number of bad elements.  None if the term raised an error.
    explanation : Explanation or None
        The operation that made the bad value, its operands and the remedy.
    error : str or None
        The error that the term raised.
    checks : tuple of str
        The conditions of the distribution on its parameters that fail, such as ``sigma > 0``, with
        the number.  If a condition fails, the log-density is -inf by definition, and `explanation`
        is None.
    data : str or None
        The observed value outside of the distribution's support, and the support, or the initial
        value that is not finite.  `explanation` is then None.
    advice : str
        How to keep the parameter of a failed check inside of its domain.
    remedy : Remedy or None
        The change of the model that `advice` proposes, if it can be tried.
    numpy_alone : bool
        Whether PyTensor's C code, with which PyMC samples, computes the value.

    Examples
    --------
    >>> import theanoguard
    >>> print(theanoguard.pymc.BadTerm("y", None, None, error="LinAlgError: Singular matrix"))
    y cannot be computed: LinAlgError: Singular matrix
    """

    term: str
    by: str | None
    source: SourceLine | None
    event: GuardEvent | None = None
    explanation: Explanation | None = None
    error: str | None = None
    checks: tuple[str, ...] = ()
    data: str | None = None
    advice: str = ""
    remedy: Remedy | None = None
    numpy_alone: bool = False

    @property
    def title(self) -> str:
        """One line that says which value is bad."""
        name = self.term if self.by is None else f"the gradient of {self.term} by {self.by}"
        if self.event is None:
            return f"{name} cannot be computed: {self.error}"
        index = self.event.first_index
        at = f" at element {list(index)}" if index else ""
        return f"{name} is {number_text(self.event.first_value)}{at}"

    @property
    def cause_key(self) -> tuple[str, str | None, SourceLine] | None:
        """What is equal for bad values of the same operation; None where it is not known."""
        cause = None if self.explanation is None else self.explanation.cause
        if cause is None or cause.role != "node" or cause.source is None:
            return None
        return cause.kind, cause.op, cause.source

    @property
    def heading(self) -> str:
        """The title, with the model's line and the conditions that do not hold."""
        lines = [self.title]
        if self.source is not None:
            lines.append(f"  {source_text(self.source)}")
        if self.checks:
            lines += f"  the parameters must satisfy: {'; '.join(self.checks)}".splitlines()
        if self.data:
            lines += [f"  {line}" for line in self.data.splitlines()]
        lines += [f"  {line}" for line in self.advice.splitlines()]
        return "\n".join(map(printable, lines))

    @property
    def brief(self) -> str:
        """One line that says which value is bad and why, and the lines of the model."""
        text = f"{self.term} breaks {self.checks[0]}" if self.checks else self.title
        what, *places = text.splitlines()
        if not self.checks and self.reason:
            what += f": {self.reason.rstrip('.')}"
        if self.source is not None:
            places.append(f"  {source_text(self.source)}")
        return "\n".join(map(printable, [f"{what}.", *places]))

    @property
    def reason(self) -> str:
        """One line: which operation, data or condition has made the value."""
        if self.event is not None and self.explanation is not None:
            return printable(headline(self.explanation.cause))
        return next(iter((self.data or "; ".join(self.checks)).splitlines()), "")

    @property
    def report(self) -> str | None:
        """Where in the term the bad value was made; None where that is not explained."""
        if self.event is None or self.explanation is None:
            return None
        return report_text(self.event, self.explanation, in_call=False)

    def __str__(self) -> str:
        report = self.report
        return "\n\n".join([self.heading, *([textwrap.indent(report, "    ")] if report else [])])


@displayed
@dataclass(frozen=True)
class ModelExplanation:
    """The terms of a log-density at a point.

    Parameters
    ----------
    point : dict of str to ndarray
        By the names of the value variables.
    terms : dict of str to float
        The sum of each term, by the name of its variable.  NaN if the term raised an error.
    gradient : dict of str to ndarray
        The gradient of the log-density, by the names of the continuous value variables.  Empty if a
        term raised an error.
    bad : tuple of BadTerm
        First the terms, in the order of the model, then the gradients.
    flat : tuple of str
        Elements of the value variables that the log-density does not depend on near the point.
    prior_draw : int or None
        If the point is a draw from the prior, its number, from 0.
    notes : tuple of str
        Of terms that are finite, and are not what was meant: data that are broadcast against each
        other.
    failed : tuple of str
        What could not be found out because of a fault in theanoguard.
    """

    point: dict[str, Any]
    terms: dict[str, float]
    gradient: dict[str, Any]
    bad: tuple[BadTerm, ...]
    flat: tuple[str, ...] = ()
    prior_draw: int | None = None
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every term and every gradient is finite."""
        return not self.bad

    def table(self) -> str:
        """Return the value of each term, and the largest magnitude in each gradient.

        Returns
        -------
        str
        """
        rows = [("term", "log-density")]
        rows += [(name, f"{value:.6g}") for name, value in self.terms.items()]
        rows += [("gradient by", "largest magnitude")]
        rows += [
            (name, f"{np.max(np.abs(value), initial=0):.6g}")
            for name, value in self.gradient.items()
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(printable(f"{name:<{width}}  {value}") for name, value in rows)

    def __str__(self) -> str:
        if self.ok:
            total = number_text(sum(self.terms.values()))
            what = "it and its gradient are" if self.gradient else "it is"
            head = f"The log-density is {total} here; {what} finite."
            return "\n\n".join(["\n".join([head, *self._flat_text()]), *self._further()])
        place = (
            "this point" if self.prior_draw is None else f"draw {self.prior_draw} from the prior"
        )
        head = f"{len(self.bad)} bad at {place}: {', '.join(b.title for b in self.bad)}."
        head = "\n".join(textwrap.wrap(printable(head), 96))
        blocks: list[str] = [head]
        told: dict[Any, str] = {}
        for bad in self.bad:
            # One fault makes many terms bad, and the gradients of these: once is enough.
            same = bad.cause_key or ((bad.checks, bad.advice) if bad.checks else bad.reason)
            first = textwrap.shorten(bad.reason, 94)
            above = first if same in told else told.get(bad.by and bad.term, "")
            blocks.append(f"{bad.title}\n  as above: {above}" if above else str(bad))
            if same and first:
                told |= dict.fromkeys([same] if bad.by else [same, bad.term], first)
        return "\n\n".join([*blocks, *self._flat_text(), *self._further()])

    def _further(self) -> list[str]:
        """The notes, and what could not be found out."""
        return [*filter(None, self.notes), *failed_lines(self.failed)]

    def _flat_text(self) -> list[str]:
        if not self.flat:
            return []
        names = ", ".join(self.flat)
        return [
            f"The gradient by {names} is 0, here and nearby: nothing pulls there, and NUTS cannot\n"
            "adapt its mass matrix.  Give a prior that depends on it, or leave the variable out."
        ]


@displayed
@dataclass(frozen=True)
class Where:
    """The position of a sampler in its run.

    Parameters
    ----------
    sampler : str
    chain, draw : int or None
        From 0.  None if the sampler does not provide it.  Draws of the tuning phase are counted
        separately.
    tuning : bool
        Whether it was in the tuning phase.
    at_start : bool
        Whether it was at the starting point.
    """

    sampler: str
    chain: int | None = None
    draw: int | None = None
    tuning: bool = False
    at_start: bool = False

    def __str__(self) -> str:
        place = [] if self.chain is None else [f"chain {self.chain}"]
        if self.at_start:
            place.append("at the starting point")
        if self.draw is not None:
            place.append(f"draw {self.draw}{' of the tuning' if self.tuning else ''}")
        return ", ".join([self.sampler, *place])


class SamplingError(GuardError):
    """A sampler reached a point at which the log-density or its gradient is bad.

    Parameters
    ----------
    event : GuardEvent
    explanation : Explanation or None
        Explanation of the first operation that made a bad value.
    where : Where
    terms : ModelExplanation or None
        The terms at the point, if the sampler provides the point.

    Attributes
    ----------
    note : str
        Why only the sampler's own log-density or gradient is bad, as far as that is known, or
        what could not be worked out.
    """

    __module__ = "theanoguard.pymc"
    _in_call = False

    def __init__(
        self,
        event: GuardEvent,
        explanation: Explanation | None = None,
        where: Where | None = None,
        terms: ModelExplanation | None = None,
    ) -> None:
        super().__init__(event, without_clamp(explanation))
        self.where = where
        self.terms = terms
        self.note = ""

    def __str__(self) -> str:
        unknown = self.terms is None or self.terms.ok
        report = super().__str__() if unknown else str(self.terms)
        # (The bad terms of a point take more than a line to list.)
        head, end, rest = report.partition("\n" if unknown else "\n\n")
        # (PyMC refuses a starting point for all chains, and for find_MAP.)
        place = f"while sampling with {self.where}"
        if self.where is not None and self.where.at_start and self.where.chain is None:
            place = f"at the starting point of {self.where.sampler}"
        lines = [head, f"  {place}", *([end[1:] + rest] if rest else [])]
        if self.terms is not None:
            if self.terms.ok:
                told = "PyTensor's log-density and its gradient are finite at this point, on C."
                lines += ["", told]
            lines += [self.note] if self.note else []
            lines += ["", *textwrap.wrap(f"The point: {point_text(self.terms.point)}", 96)]
        elif self.note:
            lines += ["", self.note]
        return "\n".join(lines)


def point_text(point: Mapping[str, Any]) -> str:
    """Return the values of a point; the first ones of a long array."""
    return ", ".join(f"{name} = {array_text(value)}" for name, value in point.items())


def array_text(value: Any) -> str:
    """Return an array as text; the first elements of a long one."""
    with np.printoptions(threshold=6, edgeitems=2, precision=6):
        return str(np.asarray(value))
