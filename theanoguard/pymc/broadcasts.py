"""Vectors that a log-density broadcasts against each other: (n, 1) with (n,) makes n x n terms."""

from collections.abc import Collection, Iterable
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


def written(variable: Any) -> Any:
    """Return the variable that PyMC has shaped to be a parameter."""
    while isinstance(getattr(variable.owner, "op", None), DimShuffle):
        variable = variable.owner.inputs[0]
    return variable


def crossed(model: Any, name: str, variable: Any) -> list[str]:
    """Describe where a term of a log-density broadcasts a column against a vector.

    Parameters
    ----------
    model : pymc.Model
    name : str
    variable : Variable
        The potential, or the random variable whose parameters are looked at.

    Returns
    -------
    list of str
        With the shapes, the lines and a remedy.
    """
    free = set(model.basic_RVs) - {variable}
    node = crossing(variable, free)
    if node is None:
        return []
    return [f"{name} has {_n_by_n(node)} log-densities for {_length(node)} data: {described(node)}"]


def described(node: Any) -> str:
    """Say which operands of a node are broadcast against each other, and where they are made."""
    column, row = _pair(node)
    nodes = (node, *(v.owner for v in node.inputs if isinstance(v.owner, Apply)))
    names = Designations({n: tuple(n.inputs) for n in nodes})
    shown = []
    for operand, shape in ((column, "(n, 1)"), (row, "(n,)")):
        operand = operand if operand is column else written(operand)
        name = operand.name or names.of(operand).name or names.of(operand).expression
        line = source_line(operand)
        own = "" if line is None else f"\n    {source_text(line)}"
        shown.append(
            f"  {name or 'an operand'} has the shape {shape.replace('n', _length(node))}{own}"
        )
    line = source_line(node.outputs[0])
    at = "" if line is None else f"\n    {source_text(line)}"
    return "\n".join(
        [
            "a column and a vector are broadcast against each other." + at,
            *shown,
            "  Give both the same shape, for example by .ravel() of the column.",
        ]
    )


def crossing(variable: Any, blocked: Collection[Any]) -> Any:
    """Return the node that makes (n, n) of (n, 1) and (n,), or None.

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
    square = [v for v in reached if v.owner is None and _lengths(v) and min(_lengths(v)) > 1]
    for v in reversed(reached):
        node = v.owner
        if node is None or not isinstance(node.op, Elemwise) or _pair(node) is None:
            continue
        n = int(_length(node))
        if not any(_lengths(other)[-2:] == (n, n) for other in square):
            return node
    return None


def _is_whole(node: Any) -> bool:
    axes = node.op.axis if isinstance(node.op, CAReduce) else None
    return axes is None or len(axes) == node.inputs[0].type.ndim


def _lengths(variable: Any) -> tuple[Any, ...]:
    """Return the shape of data, or the static one of another variable; () for a number."""
    data = variable.data if isinstance(variable, Constant) else None
    if hasattr(variable, "get_value"):
        data = variable.get_value(borrow=True)
    return np.shape(data) if data is not None else tuple(getattr(variable.type, "shape", ()))


def _pair(node: Any) -> Any:
    """Return the column and the row that a node broadcasts, if both have the same length."""
    columns = [v for v in node.inputs if _lengths(v)[1:] == (1,) and (_lengths(v)[0] or 0) > 1]
    rows = [v for v in node.inputs if _is_row(v)]
    for column in columns:
        for row in rows:
            vector = row.owner.inputs[0]
            same = written(column) is vector or set(_roots(column)) & set(_roots(vector))
            if _lengths(column)[0] == _lengths(vector)[0] and not same:
                return column, row
    return None


def _is_row(variable: Any) -> bool:
    """Return whether an operation has made a matrix of a vector to fit another operand."""
    op = getattr(variable.owner, "op", None)
    is_padded = isinstance(op, DimShuffle) and op.new_order == ("x", 0)
    # (A user writes v[None, :], which has a line of its own or reads more than the vector.)
    return is_padded and (_lengths(variable.owner.inputs[0]) or (0,))[0] not in (0, 1, None)


def _roots(variable: Any) -> list[Any]:
    def before(v: Any) -> Iterable[Any]:
        return () if v.owner is None else v.owner.inputs

    return [v for v in walk([variable], before) if _lengths(v) and v.owner is None]


def _length(node: Any) -> str:
    return str(_lengths(_pair(node)[0])[0])


def _n_by_n(node: Any) -> str:
    return f"{_length(node)} x {_length(node)}"
