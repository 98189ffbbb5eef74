"""The exact value of an operation on tensors, dispatched on its class."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import Elemwise

from theanoguard._exact.balls import array_of
from theanoguard._steps import foreign
from theanoguard.operations import facts_of, scalar_facts


@singledispatch
def exact_value(op: Op, node: Apply, twin: Any, values: list[Any]) -> list[Any] | None:
    """Return the exact values of a node's outputs.

    Return None if the operation has no exact value here.

    `op`: ``node.op``, on which the function is dispatched.
    `twin`: the graph that the node is in.
    `values`: what the inputs hold, as balls for real numbers and NumPy arrays for integers.
    """
    scalar_op = getattr(op, "scalar_op", op)
    formula = facts_of(op).formula or scalar_facts(scalar_op).formula
    if formula is None:
        return None
    operands = [v.type() for v in node.inputs]
    with foreign():
        result = formula(scalar_op, *operands)
    graph = FunctionGraph(operands, [result], clone=False)
    return [twin.child(graph, values, node).value(graph.outputs[0])]


def lines_along(
    array: np.ndarray, axes: tuple[int, ...]
) -> tuple[tuple[int, ...], list[list[arb]]]:
    """Return the elements that a reduction takes together, and the shape of its result."""
    kept = [a for a in range(array.ndim) if a not in axes]
    shape = tuple(array.shape[a] for a in kept)
    count = int(np.prod(shape))
    length = int(np.prod([array.shape[a] for a in axes]))
    lines = array.transpose(*kept, *axes).reshape(count, length)
    return shape, lines.tolist()


def each_line(
    array: np.ndarray, axes: tuple[int, ...], function: Callable[[list[arb]], Any]
) -> np.ndarray:
    """Return ``function`` of the elements along some axes."""
    shape, lines = lines_along(array, axes)
    return array_of([function(line) for line in lines], shape)


def along_axis(
    array: np.ndarray, axis: int, function: Callable[[list[arb]], list[Any]]
) -> np.ndarray:
    """Return ``function`` of each line along an axis, which has as many elements."""
    moved = np.moveaxis(array, axis, -1)
    lines = moved.reshape(-1, moved.shape[-1]).tolist()
    flat = [element for line in lines for element in function(line)]
    return np.moveaxis(array_of(flat, moved.shape), -1, axis)


def kind_of_type(kind: Any) -> str:
    """Return whether the values of a Type are "real", "complex" or "other" ones."""
    dtype = getattr(kind, "dtype", "")
    return _KINDS.get(dtype, "other")


_KINDS = {
    **dict.fromkeys(("float16", "float32", "float64"), "real"),
    **dict.fromkeys(("complex64", "complex128"), "complex"),
}


def is_real(variable: Variable) -> bool:
    """Whether the values of a variable are real numbers."""
    return kind_of_type(variable.type) == "real"


def is_scalar(node: Apply) -> bool:
    """Whether a node computes one element from one element of each operand."""
    return isinstance(node.op, Elemwise | ScalarOp)


def is_comparison(node: Apply) -> bool:
    """Whether a node decides something by comparing real numbers."""
    return is_scalar(node) and any(map(is_real, node.inputs))


def is_fill(node: Apply) -> bool:
    """Whether a node reads the shape of its first operand only."""
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Second)
