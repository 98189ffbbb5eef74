"""The facts of a step that all steppers show: its operands, and the source around its line."""

import linecache
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from theanoguard._event import row_name
from theanoguard._naming import name_of as formula
from theanoguard._provenance import lookup
from theanoguard._shown import brief
from theanoguard.view.model import Statistics, statistics

#: Lines of source before and after the one that the node comes from.
CONTEXT = 4


@brief
@dataclass(eq=False)
class Step:
    """One node that has run, with the values that it read and wrote."""

    number: int  # how many nodes have run, including this one
    node: Apply
    inputs: list  # the values of ``node.inputs``, as they were before the node ran
    outputs: list | None  # the values of ``node.outputs``; None if the node failed


def is_bad(value: Any) -> bool:
    """Whether a value holds NaN or Inf."""
    array = np.asarray(value.data if hasattr(value, "nnz") else value)
    return array.dtype.kind in "fc" and not np.isfinite(array).all()


def name_of(fgraph: FunctionGraph, variable: Variable) -> str | None:
    """Return the user's name of a variable of a compiled graph, None where it is not known."""
    found = lookup(fgraph, variable)
    return variable.name or (found.name if found.own_name else None)


@brief
@dataclass(frozen=True)
class Operand:
    """A value that a node has read or written.

    Parameters
    ----------
    verb : {"read", "wrote"}
    name : str
        The user's name for it, its expression, or a formula.
    value : object
    """

    verb: str
    name: str
    value: object

    @property
    def is_bad(self) -> bool:
        """Whether it holds NaN or Inf."""
        return is_bad(self.value)

    @cached_property
    def _statistics(self) -> Statistics | None:
        return statistics(self.value)

    @property
    def type(self) -> str:
        """Return its dtype and shape, or its class."""
        found = self._statistics
        if found is None:
            return "" if self.value is None else type(self.value).__name__
        return f"{found.dtype} {found.shape}"

    @property
    def range(self) -> str:
        """Return the least and the greatest finite element as text."""
        found = self._statistics
        if found is None or found.min is None:
            return ""
        least, greatest = f"{found.min:.4g}", f"{found.max:.4g}"
        return least if least == greatest else f"{least} to {greatest}"

    @property
    def bad(self) -> str:
        """Return how many elements are NaN, and how many are infinite, as text."""
        return counted(self.value)


def counted(value: Any) -> str:
    """Return how many elements of a value are NaN and infinite, as text; empty if none.

    Examples
    --------
    >>> counted(np.array([1.0, np.nan, np.inf, -np.inf]))
    '1 NaN, 2 Inf'
    """
    array = np.asarray(value.data if hasattr(value, "nnz") else value)
    if array.dtype.kind not in "fc":
        return ""
    found = ((np.isnan(array).sum(), "NaN"), (np.isinf(array).sum(), "Inf"))
    return ", ".join(f"{n} {word}" for n, word in found if n)


def short(value: Any, most: int = 300) -> str:
    """Return the first and last elements of a value as text of at most `most` characters.

    Examples
    --------
    >>> short(np.arange(1000))
    '[  0   1   2 ... 997 998 999]'
    """
    if isinstance(value, np.ndarray):
        shown = np.array2string(value, threshold=20, precision=5)
    else:
        with np.printoptions(threshold=20, precision=5):
            shown = str(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def called(fgraph: FunctionGraph, variable: Variable) -> str:
    """Return what a variable of a compiled graph is called: as :meth:`GraphModel.called`.

    Without a name and an expression, it is a formula.
    """
    position = next((i for i in fgraph.update_mapping if fgraph.outputs[i] is variable), None)
    old = None if position is None else fgraph.inputs[fgraph.update_mapping[position]]
    name, written = name_of(fgraph, variable), lookup(fgraph, variable).expression
    if not name and written is None:
        written = formula(variable, own=lambda v: name_of(fgraph, v) or _expression(fgraph, v))
    return row_name(name, written, None if old is None else old.name or str(old))


def made_by(fgraph: FunctionGraph, node: Apply) -> str:
    """Return what the outputs of a node are called."""
    return ", ".join(dict.fromkeys(called(fgraph, v) for v in node.outputs))


def _expression(fgraph: FunctionGraph, variable: Variable) -> str | None:
    """Return the user's expression of a variable; of a fused reduction, the one inside it."""
    found, node = lookup(fgraph, variable), variable.owner
    inside = getattr(node and node.op, "fgraph", None)
    if found.expression is None and found.inner and inside is not None:
        made = inside.outputs[node.outputs.index(variable)].owner
        parts = dict(zip(inside.toposort(), found.inner, strict=True))
        return parts[made].expression if made in parts else None
    return found.expression


def operands(fgraph: FunctionGraph, step: Step | None) -> list[Operand]:
    """Return the values of a step, first those that it read.

    `step` is None before the first.
    """
    if step is None:
        return []
    return [
        Operand(verb, name_of(fgraph, variable) or called(fgraph, variable), value)
        for verb, variables, values in (
            ("read", step.node.inputs, step.inputs),
            ("wrote", step.node.outputs, step.outputs or ()),
        )
        for variable, value in zip(variables, values, strict=False)
    ]


def source_around(
    fgraph: FunctionGraph, node: Apply | None, context: int = CONTEXT
) -> list[tuple[int, str, bool]]:
    """Return the source around the line of a node.

    `context`: how many lines before and after it.

    Returns: number and text of each line, and whether it is the node's; empty if it is not known.
    """
    source = None if node is None else lookup(fgraph, node).source
    if source is None:
        return []
    lines = linecache.getlines(source.file)
    first, last = max(1, source.line - context), min(len(lines), source.line + context)
    return [(n, lines[n - 1].rstrip(), n == source.line) for n in range(first, last + 1)]
