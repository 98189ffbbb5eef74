"""Derivatives that can be infinite, written as the user would write them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

from theanoguard._evaluate.replay import Replay
from theanoguard._text import number_text
from theanoguard.operations.names import op_name


@dataclass(frozen=True)
class Derivative:
    """The derivative of an operation."""

    #: The operation.  ``{0}`` and ``{1}`` stand for its operands.
    where: str
    formula: str
    #: Returns how far operands are from the point at which the derivative is infinite.
    edge: Callable = lambda x, *_: np.abs(x)


def _below_one(x: Any, *_: Any) -> Any:
    return 1 - np.abs(x)


def _of_power(x: Any, p: Any) -> Any:
    return np.where(p >= 1, np.inf, np.abs(x))


DERIVATIVES = {
    "sqrt": Derivative("sqrt at {0}", "1 / (2 * sqrt({0}))"),
    "log": Derivative("log at {0}", "1 / {0}"),
    "log2": Derivative("log2 at {0}", "1 / ({0} * log(2))"),
    "log10": Derivative("log10 at {0}", "1 / ({0} * log(10))"),
    "log1p": Derivative("log1p at {0}", "1 / (1 + {0})", lambda x: np.abs(1 + x)),
    "arcsin": Derivative("arcsin at {0}", "1 / sqrt(1 - {0}**2)", _below_one),
    "arccos": Derivative("arccos at {0}", "-1 / sqrt(1 - {0}**2)", _below_one),
    "arctanh": Derivative("arctanh at {0}", "1 / (1 - {0}**2)", _below_one),
    "arccosh": Derivative("arccosh at {0}", "1 / sqrt({0}**2 - 1)", lambda x: np.abs(x - 1)),
    "pow": Derivative("x ** {1} at x = {0}", "{1} * {0} ** ({1} - 1)", _of_power),
    "true_div": Derivative(
        "x / y at y = {1}", "1 / {1} by x, and -x / {1}**2 by y", lambda x, y: np.abs(y)
    ),
    "reciprocal": Derivative("1 / x at {0}", "-1 / {0}**2"),
    "arctan2": Derivative("arctan2(y, x) at y = {0}, x = {1}", "x / (x**2 + y**2) by y", np.hypot),
    "exp": Derivative("exp at {0}", "exp({0})", lambda x: 709 - x),
}
"""The derivatives, by the name of the operation."""


def derivative_text(op: str, values: Sequence[Any], element: int | None = None) -> str:
    """Return a sentence on an operation's derivative at the worst element, or an empty text.

    `values`: the operands.
    `element`: the position of the element that is bad, if the gradient has as many elements.

    Examples
    --------
    >>> derivative_text("sqrt", [np.array([4.0, 0.0])])
    'The derivative of sqrt at 0.0 is 1 / (2 * sqrt(0.0)), which is not finite'
    """
    if op == "eigh":
        gaps = np.diff(np.linalg.eigvalsh(values[0]))
        gap = number_text(gaps.min()) if gaps.size else "0.0"
        return (
            "The derivative of eigh divides by the differences of the eigenvalues, and the"
            f" smallest is {gap}"
        )
    known = DERIVATIVES.get(op)
    if known is None:
        return ""
    arrays = np.broadcast_arrays(*values)
    if op == "pow" and np.any(arrays[0] < 0):
        base = number_text(arrays[0].min())
        return f"The derivative of x ** p by p is x ** p * log(x), which is NaN at x = {base}"
    at = worst_element(op, values, element)
    if at is None:
        return ""
    texts = [number_text(a[at]) for a in arrays]
    size = "very large" if known.edge(*(a[at] for a in arrays)) > 0 else "not finite"
    where, formula = (part.format(*texts) for part in (known.where, known.formula))
    return f"The derivative of {where} is {formula}, which is {size}"


def worst_element(
    op: str, values: Sequence[Any], element: int | None = None
) -> tuple[int, ...] | None:
    """Return the index at which an operation's derivative is largest, or None if it is not known.

    The parameters are those of :func:`derivative_text`.

    Examples
    --------
    >>> worst_element("sqrt", [np.array([4.0, 0.0])])
    (1,)
    """
    known = DERIVATIVES.get(op)
    if known is None:
        return None
    arrays = np.broadcast_arrays(*values)
    edge = np.ravel(known.edge(*arrays))
    at = int(np.argmin(edge))
    if element is not None and element < len(edge) and edge[element] < 1e-3:
        at = element
    if not np.isfinite(edge[at]):
        return None
    return tuple(int(i) for i in np.unravel_index(at, np.shape(arrays[0])))


def has_no_derivative(node: Apply, replay: Replay) -> bool:
    """Return whether the derivative of an operation is infinite at an operand of a replay.

    `replay`: a replay of the graph of `node`.
    """
    known = DERIVATIVES.get(op_name(node.op))
    if known is None or op_name(node.op) == "exp":
        return False
    with np.errstate(all="ignore"):
        edge = known.edge(*map(np.asarray, replay.values(node.inputs)))
    return bool(np.any(edge == 0))
