"""The faults that a report can name: their stable codes, causes and remedies.

``faults.toml`` has one entry per fault.  The command ``theanoguard explain`` and the page "Index of
errors" show it.
"""

import functools
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

IMPORTS = """\
import numpy as np
import pytensor
import pytensor.tensor as pt
from theanoguard import GuardMode
"""
"""The imports of both programs of a fault."""

WIDTH = 96  # columns of a page, where the terminal has as many

GROUPS = {
    "TG1": "Outside of the domain of a function",
    "TG2": "Divisions",
    "TG3": "Overflow and big values",
    "TG4": "Infinities that meet",
    "TG5": "Gradients and loops",
    "TG6": "Matrices",
    "TG7": "Values that came in",
}
"""The subject of the codes that begin alike."""


@dataclass(frozen=True)
class Fault:
    """An entry of the index."""

    key: str  # key of the hint in a report, such as ``"log-zero"``
    code: str  # such as ``"TG101"``
    title: str
    message: str  # first line of the error that `before` raises
    cause: str
    remedy: str
    #: `before`, `after`: a program that raises the error, and its repaired version; without
    #: `IMPORTS`.
    before: str
    after: str
    #: Inputs of `before` as formulas of the inputs of `after`.  ``log_x``, ``logit_x`` and
    #: ``arctanh_x`` need none: `x` is their ``exp``, ``sigmoid`` or ``tanh``.
    links: dict[str, str] = field(default_factory=dict)


@functools.cache
def faults() -> dict[str, Fault]:
    """Return all faults by their key, in the order of their codes."""
    text = Path(__file__).with_name("faults.toml").read_text(encoding="utf-8")
    return {key: Fault(key=key, **entry) for key, entry in tomllib.loads(text).items()}


def find(name: str) -> Fault:
    """Return the fault with a code or a key.

    Raises ``ValueError``: if there is none.

    Examples
    --------
    >>> find("tg101").key
    'log-zero'
    """
    for fault in faults().values():
        if name.lower() in (fault.code.lower(), fault.key):
            return fault
    raise ValueError(
        f"there is no fault with the code {name!r}.\n"
        "`theanoguard explain` without a code lists all faults."
    )


def code_of(key: str) -> str | None:
    """Return the code of a hint's key; None for a hint that a user has registered."""
    fault = faults().get(key)
    return fault.code if fault is not None else None


def page(fault: Fault, width: int = WIDTH) -> str:
    """Return a fault's page as text for a terminal of this width."""
    parts = [
        f"{fault.code} {fault.key}: {fault.title}",
        _filled("Message", fault.message, width),
        _filled("Cause", fault.cause, width),
        _filled("What to do", fault.remedy, width),
        f"Before:\n\n{_program(fault.before)}",
        f"After:\n\n{_program(fault.after)}",
    ]
    return "\n\n".join(parts)


def _filled(label: str, text: str, width: int) -> str:
    return textwrap.fill(f"{label}: {text}", width, subsequent_indent="  ")


def _program(code: str) -> str:
    return textwrap.indent(f"{IMPORTS}\n{code.strip()}", "    ")
