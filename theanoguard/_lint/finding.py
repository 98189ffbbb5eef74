"""What lint reports."""

import linecache
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from theanoguard._lint.witness import Witness
from theanoguard._provenance import SourceLine
from theanoguard._provenance.places import place_text, source_lines, source_text
from theanoguard._shown import bounded, displayed, html_table
from theanoguard._text import text_width


@displayed
@dataclass(frozen=True)
class Finding:
    """An operation that may become NaN or infinite.

    Parameters
    ----------
    rule : str
        Name of the rule, a key of ``theanoguard.records.RULES``.
    source : SourceLine or None
        The user's line.  None if PyTensor has kept no stack trace.
    why : str
        What may go wrong.
    write : str
        What to write instead.
    witness : Witness or None
        An input at which the function fails, as it is compiled.
    remark : str
        Of a finding without a witness, why it has none; of one with a witness, what the rewriting
        has to do with it.

    Examples
    --------
    >>> from theanoguard.records import Finding
    >>> from theanoguard.records import SourceLine
    >>> line = SourceLine("model.py", 7, "<module>", "y = pt.log(x)")
    >>> print(Finding("log-of-zero", line, "x must be positive", "log(x + eps)"))
    model.py:7: log-of-zero: x must be positive
        y = pt.log(x)
        write: log(x + eps)
    """

    rule: str
    source: SourceLine | None
    why: str
    write: str
    witness: Witness | None = field(default=None, compare=False)
    remark: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.source is None:
            where, text = "(line not known)", ""
        else:
            line = replace(self.source, function="<module>")
            where = place_text(line)
            shown = source_lines(line, text_width())[1:] or [f"  {line.text}"] * bool(line.text)
            text = "".join(f"\n  {one}" for one in shown)
        advice = textwrap.fill(
            f"write: {self.write}",
            text_width(),
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
        said = [self.witness and f"witness: {self.witness}", self.remark and f"note: {self.remark}"]
        below = "".join(f"\n    {one}" for one in said if one)
        return f"{where}: {self.rule}: {self.why}{text}{below}\n{advice}"


@dataclass(frozen=True)
class Static:
    """A finding of a rule, with the variable that it speaks of."""

    finding: Finding
    variable: Any
    #: Whether the user's code has built the operation, or called what has built it.
    is_own: bool = True
    #: The nodes whose inner graphs the variable lies in, outermost first.
    around: tuple[Any, ...] = ()
    key: str | None = None  # the hint that says what to write


_COMMENT = re.compile(r"#\s*theanoguard:\s*ignore(?:\[([^\]]*)\])?")


class Findings(list[Finding]):
    """The findings of one graph: a list that is shown as text, in a notebook as a table."""

    def __repr__(self) -> str:
        shown = "\n\n".join(map(str, self))
        return bounded(shown, "the elements of the list are all of them.") if self else "[]"

    def _repr_html_(self) -> str:
        title = f"{len(self)} finding{'' if len(self) == 1 else 's'}"
        rows = [
            (
                f.rule,
                source_text(f.source) if f.source else "",
                f.why,
                f.witness or f.remark,
                f.write,
            )
            for f in self
        ]
        heads = ("Rule", "Line", "Why", "Fails", "Write instead")
        return html_table(title, heads, rows, "the elements of the list are all of them.")


def reported(findings: Iterable[Finding], ignore: Iterable[str]) -> list[Finding]:
    """Return the findings whose rules are switched off neither by name nor on their line."""
    return [f for f in findings if f.rule not in ignore and not is_ignored(f)]


def is_ignored(finding: Finding) -> bool:
    """Whether a comment on the user's line switches the rule of a finding off."""
    if finding.source is None:
        return False
    line = linecache.getline(finding.source.file, finding.source.line) or finding.source.text
    comment = _COMMENT.search(line)
    if comment is None:
        return False
    return comment[1] is None or finding.rule in re.split(r"[,\s]+", comment[1].strip())
