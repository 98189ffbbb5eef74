"""Vectors that a log-density broadcasts against each other: (n, 1) with (n,) makes n x n terms."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Sum

from theanoguard._provenance import source_line
from theanoguard._provenance.designating import Designations
from theanoguard._provenance.places import source_text
from theanoguard._pytensor import Mode
from theanoguard.guard.pausing import unguarded


def written(variable: Any) -> Any:
    """Return the variable that PyMC has shaped to be a parameter."""
    while isinstance(getattr(variable.owner, "op", None), DimShuffle):
        variable = variable.owner.inputs[0]
    return variable


@dataclass(frozen=True)
class Crossing:
    """An operation that makes (n, n) of (n, 1) and (n,)."""

    node: Any
    column: Any  # `column`, `row`: its operands; the row is the vector as PyTensor has shaped it
    row: Any
    n: int

    def __str__(self) -> str:
        nodes = (self.node, *(v.owner for v in self.node.inputs if isinstance(v.owner, Apply)))
        names = Designations({n: tuple(n.inputs) for n in nodes})
        shown = []
        for operand, shape in (
            (self.column, f"({self.n}, 1)"),
            (written(self.row), f"({self.n},)"),
        ):
            name = operand.name or names.of(operand).name or names.of(operand).expression
            shown.append(f"  {name or 'an operand'} has the shape {shape}{_line_of(operand)}")
        return "\n".join(
            [
                "a column and a vector are broadcast against each other."
                + _line_of(self.node.outputs[0]),
                *shown,
                "  Give both the same shape, for example by .ravel() of the column.",
            ]
        )


def _line_of(variable: Any) -> str:
    line = source_line(variable)
    return "" if line is None else f"\n    {source_text(line)}"


def crossed(model: Any, name: str, variable: Any) -> list[str]:
    """Describe where a term of a log-density broadcasts a column against a vector.

    - `variable`: the potential, or the random variable whose parameters are looked at.
    - Returns: list of str with the shapes, the lines and a remedy.
    """
    found = crossing(variable, set(model.basic_RVs) - {variable})
    if found is None:
        return []
    return [f"{name} has {found.n} x {found.n} log-densities for {found.n} data: {found}"]


def crossing(variable: Any, blocked: Collection[Any]) -> Crossing | None:
    """Return the operation that makes (n, n) of (n, 1) and (n,), or None.

    Only operations that keep each element apart, and a sum of all, lie between it and the variable.
    """

    def inside(v: Any) -> Iterable[Any]:
        if v in blocked or v.owner is None:
            return ()
        op = v.owner.op
        if isinstance(op, Elemwise | DimShuffle | CheckAndRaise) or v is variable:
            return v.owner.inputs
        return v.owner.inputs if isinstance(op, Sum) and _is_whole(v.owner) else ()

    reached = list(walk([variable], inside, bfs=True))
    lengths = Lengths()
    square = [lengths[v][-2:] for v in reached if v.owner is None and len(lengths[v]) > 1]
    for v in reversed(reached):
        if v.owner is None or not isinstance(v.owner.op, Elemwise) or v.type.ndim != 2:
            continue
        found = _pair(v.owner, lengths)
        if found is not None and (found.n, found.n) not in square:
            return found
    return None


def _is_whole(node: Any) -> bool:
    axes = node.op.axis if isinstance(node.op, CAReduce) else None
    return axes is None or len(axes) == node.inputs[0].type.ndim


class Lengths(dict[Any, tuple[int, ...]]):
    """The shapes of data and of other variables; () where one cannot be computed."""

    def __missing__(self, variable: Any) -> tuple[int, ...]:
        data = variable.data if isinstance(variable, Constant) else None
        if hasattr(variable, "get_value"):
            data = variable.get_value(borrow=True)
        known = tuple(getattr(variable.type, "shape", ())) if data is None else np.shape(data)
        self[variable] = known if None not in known else self._computed(variable)
        return self[variable]

    def _computed(self, variable: Any) -> tuple[int, ...]:
        if variable.owner is None:  # an input, whose shape the caller of a function chooses
            return ()
        with unguarded():
            mode = Mode("py", "fast_compile").including("ShapeOpt")
            return tuple(int(n) for n in variable.shape.eval(mode=mode))


def _pair(node: Any, lengths: Lengths) -> Crossing | None:
    """Return the column and the row that a node broadcasts, if both have the same length."""
    columns = [v for v in node.inputs if v.type.ndim == 2 and v.type.broadcastable[1]]
    rows = [v for v in node.inputs if _is_row(v)]
    for column in columns:
        for row in rows:
            vector = row.owner.inputs[0]
            same = written(column) is vector or set(_roots(column)) & set(_roots(vector))
            if same or lengths[column][:1] != lengths[vector] or lengths[vector] in ((), (1,)):
                continue
            return Crossing(node, column, row, lengths[vector][0])
    return None


def _is_row(variable: Any) -> bool:
    """Return whether an operation has made a matrix of a vector to fit another operand."""
    op = getattr(variable.owner, "op", None)
    # (A user writes v[None, :], which has a line of its own or reads more than the vector.)
    return isinstance(op, DimShuffle) and op.new_order == ("x", 0)


def _roots(variable: Any) -> list[Any]:
    """Return the data and the inputs that a variable is made of; no number is one."""

    def before(v: Any) -> Iterable[Any]:
        return () if v.owner is None else v.owner.inputs

    reached = walk([variable], before)
    return [v for v in reached if v.owner is None and getattr(v.type, "ndim", 0) > 0]
