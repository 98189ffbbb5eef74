"""How many digits of a result are right, as users get it."""

from dataclasses import dataclass, field, replace
from typing import Any

from theanoguard._provenance import SourceLine
from theanoguard._provenance.places import source_lines
from theanoguard._shown import displayed
from theanoguard._text import index_text


@displayed
@dataclass(frozen=True)
class Loss:
    """An operation that lost digits of an output: with its exact value they are right.

    Parameters
    ----------
    expression : str
        What it computes.
    operation : str
        Its name.
    source : SourceLine or None
        The user's line.
    steps : tuple of int
        The steps of the loops around it, from 0, outermost first.
    operands : tuple of (str, str)
        Name and value of each operand, at the element that lost most.  The dtype follows if it
        differs from the dtype of the result.
    value, exact : str
        Its value there, and the exact one.
    rewrites : tuple of str
        If the graph as written has the digits: the rewrites to exclude.
    remedy : str
        A formula that has the digits, as code in the user's names; empty if none was found.
    instead_of : str
        The expression that the formula replaces.
    """

    expression: str
    operation: str
    source: SourceLine | None
    steps: tuple[int, ...] = ()
    operands: tuple[tuple[str, str], ...] = ()
    value: str = ""
    exact: str = ""
    rewrites: tuple[str, ...] = ()
    remedy: str = ""
    instead_of: str = ""

    def __str__(self) -> str:
        at = f" at step {', '.join(map(str, self.steps))}" if self.steps else ""
        lines = [f"lost by {self.operation}{at}: {self.expression}"]
        if self.value:
            lines[0] += f" is {self.value}, exactly {self.exact}"
        if self.source is not None:
            lines += [f"  {line}" for line in source_lines(replace(self.source, callers=()))]
        lines += [f"  operand {name} = {value}" for name, value in self.operands]
        if self.rewrites:
            names = ", ".join(f'"{name}"' for name in self.rewrites)
            lines.append(f"  As written it has the digits; use mode.excluding({names}).")
        if self.remedy:
            lines.append(f"  write {self.remedy} in place of {self.instead_of}")
        return "\n".join(lines)


@displayed
@dataclass(frozen=True)
class Digits:
    """The digits of one output.

    Parameters
    ----------
    right : float
        How many decimal digits of the worst element are right.  NaN if no element is a number.
    of : float
        How many its dtype has.
    index : tuple of int
        The worst element.
    value, exact : str
        The element, and its exact value.
    n_lost, size : int
        Elements that lost digits, and all elements.
    is_fault : bool
        Whether the program lost digits that its inputs determine.
    is_sensitive : bool
        Whether digits are lost that the rounding of the inputs alone changes as much.
    losses : tuple of Loss
        The operations that lost them.
    at_least : bool
        Whether `right` is a lower bound: it was enough to know that no digits were lost.
    n_not_finite : int
        Elements that are NaN or Inf and should be.  They have no digits.
    """

    right: float
    of: float
    index: tuple[int, ...] = ()
    value: str = ""
    exact: str = ""
    n_lost: int = 0
    size: int = 1
    is_fault: bool = False
    is_sensitive: bool = False
    losses: tuple[Loss, ...] = ()
    at_least: bool = False
    n_not_finite: int = 0

    def __str__(self) -> str:
        if self.size and self.n_not_finite == self.size:
            return f"no digits: {self.value}" if self.size == 1 else "no digits: all NaN or Inf"
        least = "at least " if self.at_least else ""
        text = f"{least}{self.right:.1f} of {self.of:.1f} digits"
        if self.is_fault or self.is_sensitive:
            at = f" at {index_text(self.index)}" if self.index else ""
            text += f"{at}: {self.value}, exactly {self.exact}"
        if self.n_not_finite:
            text += f"; {self.n_not_finite} of {self.size} elements are NaN or Inf"
        return text


@displayed
@dataclass(frozen=True, repr=False)
class Precision:
    """The digits of the outputs of a call.

    :func:`theanoguard.precision` returns it.

    Parameters
    ----------
    outputs : dict of str to Digits
    notes : tuple of str
        What was not measured, and why.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import precision
    >>> from theanoguard.records import Precision
    >>> x = pt.dscalar("x")
    >>> found = precision(pt.exp(x) - 1, {x: 1e-10})
    >>> isinstance(found, Precision), found.is_precise, found.losses[0].operation
    (True, False, 'sub')
    >>> print(precision(pt.expm1(x), {x: 1e-10}))
    output 0: 15.7 of 15.7 digits
    """

    outputs: dict[str, Digits]
    notes: tuple[str, ...] = field(default=())

    @property
    def losses(self) -> list[Loss]:
        """The operations that lost digits of some output, each once."""
        found: list[Loss] = []
        for digits in self.outputs.values():
            found += [loss for loss in digits.losses if digits.is_fault and loss not in found]
        return found

    @property
    def is_precise(self) -> bool:
        """Whether no output lost digits that the inputs determine."""
        return not any(digits.is_fault for digits in self.outputs.values())

    def __getitem__(self, output: str) -> Digits:
        return self.outputs[output]

    def __str__(self) -> str:
        lines: list[Any] = []
        for name, digits in self.outputs.items():
            lines.append(f"{name}: {digits}")
            if digits.is_sensitive:
                lines.append("  The rounding of the inputs alone changes these digits.")
            for loss in digits.losses:
                lines += [f"  {line}" for line in str(loss).splitlines()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
