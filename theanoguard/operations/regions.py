"""Which elements of a node's operands one element of its output is computed from.

A :class:`Dependence` answers it in both directions.  ``regions`` names the parts of the operands
that decide an element.  ``reached`` marks all elements that marked elements of the operands decide.
The marks are arrays of NumPy, JAX or PyTorch: :class:`Arrays` has the little that differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

Index = tuple[Any, ...]
Values = Sequence[Any]
Dims = tuple[int, ...]


@dataclass(frozen=True)
class Region:
    """A part of one operand."""

    operand: int  # position among the node's inputs
    index: Index = (...,)  # the part that is read, as a NumPy index; ``(...,)`` for everything

    @property
    def is_element(self) -> bool:
        """Whether the region is a single element."""
        return all(isinstance(i, int) for i in self.index)


def locate(region: Region, value: Any, position: int) -> Index:
    """Return the index in `value` of the element at a flat position inside a region.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((3, 4))
    >>> locate(Region(0, (slice(None), 2)), x, 1), locate(Region(0), x, 5)
    ((1, 2), (1, 1))
    """
    if region.index == (...,):
        return unravel(position, np.shape(value))
    if any(isinstance(i, np.ndarray) for i in region.index):
        [chosen] = region.index
        return tuple(int(i) for i in np.argwhere(chosen)[position])
    read = [range(n)[i] for i, n in zip(region.index, np.shape(value), strict=True)]
    lengths = [len(r) for r in read if isinstance(r, range)]
    inside = iter(unravel(position, lengths))
    return tuple(r[next(inside)] if isinstance(r, range) else r for r in read)


def first_element(region: Region, value: Any, mask: Any) -> Index | None:
    """Return the index of the first element of `value` in `region` where `mask` is True.

    `mask`: returns a boolean mask of the shape of an array.
    """
    bad = np.asarray(mask(np.asarray(np.asarray(value)[region.index])))
    return locate(region, value, int(bad.argmax())) if bad.any() else None


def extreme_element(region: Region, value: Any) -> Index:
    """Return the index of the element of largest magnitude (NaN counts as infinite)."""
    read = np.asarray(np.asarray(value)[region.index])
    magnitude = np.abs(read if read.dtype.kind != "b" else read.astype(np.int8))
    if np.isnan(magnitude).any():
        magnitude = np.where(np.isnan(magnitude), np.inf, magnitude)
    return locate(region, value, int(magnitude.argmax()))


def broadcast_index(index: Index, shape: Sequence[int]) -> Index:
    """Return the index in an operand of `shape` that `index` of a broadcast result reads."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for i, n in zip(tail, shape, strict=True))


def unravel(position: int, shape: Sequence[int]) -> Index:
    """Return the index of the element at a flat position."""
    return tuple(int(i) for i in np.unravel_index(int(position), tuple(shape)))


# ---------------------------------------------------------------- marks


class Arrays:
    """Arrays of marks of one library, and how it computes a node on them."""

    xp: ModuleType = np

    def run(self, node: Apply, values: list[Any], output: int = 0) -> Any:
        """Return one output of a node for other values of its inputs."""
        cells: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, values, cells)
        return cells[output][0]

    def as_numbers(self, mask: Any) -> Any:
        """Return marks as 0.0 and 1.0, which can be added."""
        return mask.astype(float)

    def exceeds(self, value: Any, limit: float) -> Any:
        """Return which elements of an array have a magnitude above `limit`."""
        return np.abs(value.astype("complex128" if value.dtype.kind == "c" else "float64")) > limit


NUMPY = Arrays()


def dtype_kind(value: Any) -> str:
    """Return the kind of an array's dtype, as NumPy has it: "f", "c", "i", "u" or "b"."""
    return _kind_of(value.dtype)


@cache
def _kind_of(dtype: Any) -> str:
    return np.dtype(str(dtype).rpartition(".")[2]).kind


def unmarked(arrays: Arrays, value: Any) -> Any:
    """Return marks for the elements of a value of which none is marked."""
    return arrays.xp.zeros(tuple(np.shape(value)), dtype=bool)


def filled(arrays: Arrays, masks: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Return the masks, with an empty one for an operand that has none."""
    return [
        unmarked(arrays, value) if mask is None else mask
        for mask, value in zip(masks, inputs, strict=True)
    ]


def union(arrays: Arrays, masks: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return where one of several masks that broadcast together is set."""
    result = arrays.xp.zeros((), dtype=bool)
    for mask in masks:
        result = result if mask is None else result | mask
    return arrays.xp.broadcast_to(result, shape)


class Dependence:
    """Every element depends on all elements of all operands: nothing else is known.

    Subclasses know more, each about one kind of operation.
    """

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        """Return the :class:`Region` of each operand that decides an element of an output.

        `inputs`: values of the node's inputs.
        `output`: which output.
        `index`: the element of that output.
        """
        numbers = (np.ndarray, np.generic, int, float, complex)
        return [Region(i) for i, value in enumerate(inputs) if isinstance(value, numbers)]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        """Return the mask of the elements of an output that a marked element decides.

        - `inputs`: values of the node's inputs.
        - `masks`: for each input, which of its elements are marked.
        - `output`: which output.
        - `shape`: its shape.
        """
        marked = [None if mask is None else mask.any() for mask in masks]
        return union(arrays, marked, shape)


ANYTHING = Dependence()
