"""The exact value of an operation on tensors, dispatched on its class."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
from flint import arb

from theanoguard._exact.balls import array_of


@singledispatch
def exact_value(op: Any, node: Any, twin: Any, values: list[Any]) -> list[Any] | None:
    """Return the exact values of a node's outputs.

    Parameters
    ----------
    op : Op
        ``node.op``, on which the function is dispatched.
    node : Apply
    twin : Twin
        The graph that the node is in.
    values : list
        Of the inputs: object arrays of balls for real numbers, NumPy arrays for integers.

    Returns
    -------
    list or None
        None if the operation has no exact value here.
    """
    return None


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
