"""The result of a comparison, and its text."""

import textwrap
from dataclasses import dataclass, field, replace
from typing import Any

from theanoguard._compare.difference import Difference
from theanoguard._compare.rewriting import Change
from theanoguard._provenance import Provenance, SourceLine
from theanoguard._provenance.places import source_lines
from theanoguard._shown import displayed
from theanoguard._text import USUAL_WIDTH, printable


@displayed
@dataclass(frozen=True)
class Parting:
    """The first variable at which a mode differs from the reference.

    Parameters
    ----------
    variable : str
        Its name, or a short expression.
    op : str or None
        The operation that makes it.  None for an input, a shared variable or a constant.
    source : SourceLine or None
        The user's line that made it.
    provenance : Provenance
        Provenance of the variable in the graph as you wrote it.
    difference : Difference
    operands : tuple of (str, Difference)
        Name and difference of each operand that could be compared.
    compiled : str or None
        The node that computes it in the compiled graph.
    rewrites : tuple of str
        The rewrites that made that node, latest first.
    how : str
        The form of the compiled graph that was compared.
    reason : str
        Why this device may give another number, if the reason is known.
    """

    variable: str
    op: str | None
    source: SourceLine | None
    provenance: Provenance
    difference: Difference
    operands: tuple[tuple[str, Difference], ...] = ()
    compiled: str | None = None
    rewrites: tuple[str, ...] = ()
    how: str = ""
    reason: str = ""

    def __str__(self) -> str:
        what = self.variable if self.op is None else f"{self.op}: {self.variable}"
        lines = [f"{what} is {self.difference}"]
        if self.source is not None:
            near = "" if self.provenance.own_source else "near "
            first, *below = source_lines(replace(self.source, callers=()))
            lines += [f"  {near}{first}", *(f"  {line}" for line in below)]
        backward = self.provenance.backward
        if backward is not None and backward.forward:
            of = f" of {backward.forward_name}" if backward.forward_name else ""
            lines.append(f"  in the gradient, backward of {backward.forward}{of}")
        lines += [f"  operand {name}: {difference}" for name, difference in self.operands]
        if self.compiled is not None:
            by = f", by {', '.join(self.rewrites[:4])}" if self.rewrites else ""
            lines.append(f"  compiled to {self.compiled}{by}")
        if self.reason:
            lines += textwrap.wrap(
                self.reason, USUAL_WIDTH - 2, initial_indent="  ", subsequent_indent="  "
            )
        if self.how:
            lines += textwrap.wrap(f"({self.how})", USUAL_WIDTH - 2, initial_indent="  ")
        return "\n".join(map(printable, lines))


@displayed
@dataclass(frozen=True)
class ModeResult:
    """The result of one mode.

    Parameters
    ----------
    mode : str
    differences : dict of str to Difference
        For each output, the difference from the reference.
    values : list
        The outputs.
    first : Parting or None
        The first variable that differs, if an output differs.
    not_run : str or None
        Why there is nothing to compare: the mode was left out, or it failed.
    note : str or None
        A remark about this mode.
    changes : tuple of Change or None
        With ``reference="as written"``: what the mode's rewrites changed.
    """

    mode: str
    differences: dict[str, Difference] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list, repr=False)
    first: Parting | None = None
    not_run: str | None = None
    note: str | None = None
    changes: tuple[Change, ...] | None = None

    @property
    def parted(self) -> bool:
        """Whether an output differs by more than the tolerance, or a rewrite has changed it."""
        if self.changes is not None:
            return any(change.is_fault for change in self.changes)
        return any(d.parted for d in self.differences.values())

    @property
    def worst(self) -> tuple[str, Difference] | None:
        """Name and difference of the output that differs most; None if there is no output."""
        if not self.differences:
            return None
        return max(
            self.differences.items(),
            key=lambda item: (item[1].parted, item[1].max_relative, item[1].max_ulp),
        )


@displayed
@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``compare``.

    Parameters
    ----------
    modes : dict of str to ModeResult
    outputs : list of str
        Names of the outputs.  New values of shared variables come last.
    reference : list
        The values of the outputs, computed node by node in Python.
    notes : tuple of str
        Remarks about the whole comparison.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import compare
    >>> from theanoguard.records import Comparison
    >>> x = pt.dscalar("x")
    >>> found = compare(x + 1, {x: 1.0}, ["fast_compile"])
    >>> isinstance(found, Comparison), found.agree, found.outputs
    (True, True, ['output 0'])
    """

    modes: dict[str, ModeResult]
    outputs: list[str]
    reference: list[Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def agree(self) -> bool | None:
        """Whether every mode that ran agrees with the reference; None if no mode ran."""
        ran = [result for result in self.modes.values() if result.not_run is None]
        return not any(result.parted for result in ran) if ran else None

    def __getitem__(self, mode: str) -> ModeResult:
        return self.modes[mode]

    def table(self) -> str:
        """Return one line for each mode: whether it agrees, and its largest differences.

        Returns
        -------
        str
        """
        rows = [("mode", "", "max ULP", "max relative", "largest in")]
        left_out = []
        for name, result in self.modes.items():
            if result.not_run is not None:
                left_out.append(f"{name}: {result.not_run}")
                continue
            word = "differs" if result.parted else "agrees"
            if result.worst is None:
                of = "(an error)" if result.changes else "(no output holds numbers)"
                rows.append((name, word, "-", "-", of))
                continue
            output, worst = result.worst
            equal = worst.max_ulp == 0 and not worst.parted
            apart = ("0", "0", "") if equal else (*worst.texts(), output)
            rows.append((name, word, *apart))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [*map(str.ljust, row[:2], widths), *map(str.rjust, row[2:4], widths[2:4]), row[4]]
            ).rstrip()
            for row in rows
        ]
        return "\n".join(map(printable, [*lines, *left_out]))

    def __str__(self) -> str:
        blocks = [
            *map(_wrapped, self.notes),
            "Compared with py, the graph node by node in Python:",
            self.table(),
        ]
        for name, result in self.modes.items():
            blocks += [f"{name}: {change}" for change in result.changes or ()]
            if result.first is not None and result.changes is None:
                blocks.append(f"{name} differs first at {result.first}")
            if result.note is not None:
                blocks.append(_wrapped(f"{name}: {result.note}"))
        return "\n\n".join(blocks)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(printable(text), USUAL_WIDTH))
