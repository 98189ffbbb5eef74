"""Whether matrix products show a NaN that meets only zeros, tried out on the library they call.

A library may leave out what it multiplies by zero, and it has code of its own for short axes.  So
the products are tried with all combinations of short and long axes.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, product
from typing import Literal

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor import blas
from pytensor.tensor.blockwise import Blockwise

from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import ger_ops
from theanoguard.operations import facts_of, is_float
from theanoguard.operations.products import OuterProduct, Product

ACCUMULATING = (blas.Gemm, blas.Gemv, *ger_ops)
"""Products that are added to their first operand; the factors are the third and the fourth."""

LENGTHS = (1, 2, 70)  # lengths with which a product is tried

PLANTED: tuple[tuple[float, Literal["C", "F"]], ...] = ((np.nan, "C"), (np.inf, "F"))
"""What is put among the zeros, and the order of the arrays in memory."""


def is_product(node: Apply) -> bool:
    """Whether a node multiplies matrices."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return isinstance(facts_of(op).depends, Product | OuterProduct)


def axes_of(node: Apply) -> dict[int, str]:
    """Return a letter for each axis of the arrays of a product, by their position.

    The matrices have ``m`` times ``k`` and ``k`` times ``n`` elements; ``b`` are batches.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> axes_of(pt.dot(pt.dmatrix(), pt.dmatrix()).owner)
    {0: 'mk', 1: 'kn'}
    """
    first = 2 if isinstance(node.op, ACCUMULATING) else 0
    x, y = (node.inputs[i].type.ndim for i in (first, first + 1))
    if isinstance(node.op, ger_ops):
        axes = {first: "m", first + 1: "n"}
    else:
        axes = {
            first: "b" * (x - 2) + "mk"[-min(x, 2) :],
            first + 1: "b" * (y - 2) + "kn"[: min(y, 2)],
        }
    return {0: "mn"[: node.inputs[0].type.ndim], **axes} if first else axes


def thin_axes(losing: Iterable[Mapping[str, int]]) -> frozenset[str] | None:
    """Return the fewest axes of which one has length 1 in each of the shapes; None if none does.

    Examples
    --------
    >>> thin_axes([{"m": 1, "k": 1}, {"m": 70, "k": 1}])
    frozenset({'k'})
    >>> thin_axes([]), thin_axes([{"m": 1, "k": 5}, {"m": 2, "k": 5}])
    (frozenset(), None)
    """
    losing = list(losing)
    letters = sorted({letter for lengths in losing for letter in lengths})
    for count in range(len(letters) + 1):
        for chosen in combinations(letters, count):
            if all(any(lengths[letter] == 1 for letter in chosen) for lengths in losing):
                return frozenset(chosen)
    return None


def places(shape: Iterable[int]) -> set[tuple[int, ...]]:
    """Return the indices of the first element, one in the middle and the last; none if empty."""
    shape = tuple(shape)
    if 0 in shape:
        return set()
    last = tuple(n - 1 for n in shape)
    return {(0,) * len(shape), tuple(n // 2 for n in last), last}


def losing_shapes(
    axes: Mapping[int, str],
    known: Mapping[str, int],
    run: Callable[[dict[int, np.ndarray]], np.ndarray],
    dtype: str,
    batches: int = 2,
) -> list[dict[str, int]]:
    """Return the lengths of axes with which a product of zeros and one NaN or Inf is finite.

    - `axes`: as from :func:`axes_of`.
    - `known`: axes that have one length only.
    - `run`: ``run(arrays)`` computes the product; its arrays have the keys of `axes`.
    - `batches`: length of the axes ``b``.
    """
    letters = sorted(set("".join(axes.values())) - {"b"})
    factors = [i for i in axes if len(axes) == 2 or i > 0]
    losing = []
    for found in product(*((known[c],) if c in known else LENGTHS for c in letters)):
        lengths = dict(zip(letters, found, strict=True))
        shapes = {i: [lengths.get(c, batches) for c in axes[i]] for i in axes}
        for bad, (value, order) in product(factors, PLANTED):
            for place in places(shapes[bad]):
                arrays: dict[int, np.ndarray] = {
                    i: np.zeros(shape, dtype, order) for i, shape in shapes.items()
                }
                arrays[bad][place] = value
                if np.isfinite(run(arrays)).all() and lengths not in losing:
                    losing.append(lengths)
    return losing


def loses_where_thin(node: Apply) -> frozenset[str] | None:
    """Return which axes of a product must not have length 1 if it is to show every NaN and Inf.

    - `node`: run by PyTensor's C backend.
    - Returns: letters of :func:`axes_of`.  None if the product may lose a NaN with other lengths as
      well.
    """
    dtypes = tuple(getattr(v.type, "dtype", "") for v in node.inputs)
    shapes = tuple(getattr(v.type, "shape", ()) for v in node.inputs)
    constants = tuple(
        None if not isinstance(v, Constant) else float(np.asarray(v.data).flat[0])
        for v in node.inputs
        if getattr(v.type, "ndim", 1) == 0
    )
    key = (type(node.op), dtypes, shapes, constants)
    if key not in _tried:
        _tried[key] = _try(node)
    return _tried[key]


_tried: dict[tuple, frozenset[str] | None] = {}


def _try(node: Apply) -> frozenset[str] | None:
    kernels = Kernels()
    axes = axes_of(node)
    if not all(is_float(node.inputs[i]) for i in axes):
        return None
    known, batches = {}, 2
    for i, letters in axes.items():
        for letter, n in zip(letters, node.inputs[i].type.shape, strict=True):
            if letter == "b":
                batches = 1 if n == 1 else batches
            elif n is not None:
                known[letter] = min(n, LENGTHS[-1])

    def run(arrays: dict[int, np.ndarray]) -> np.ndarray:
        def value(i: int, v: Variable) -> np.ndarray:
            return np.asarray(v.data if isinstance(v, Constant) else 1, v.type.dtype)

        [output] = kernels.run(
            node, [arrays[i] if i in arrays else value(i, v) for i, v in enumerate(node.inputs)]
        )
        return output

    try:
        with np.errstate(invalid="ignore"):
            losing = losing_shapes(axes, known, run, node.inputs[max(axes)].type.dtype, batches)
    except (ValueError, TypeError):  # lengths that do not fit together
        return None
    thin = thin_axes(losing)
    return None if thin and any(known.get(letter) == 1 for letter in thin) else thin


def first_places(node: Apply, letters: Iterable[str]) -> list[tuple[int, int]]:
    """Return for each of these axes of a product an operand and its axis."""
    axes = axes_of(node)
    return [next((i, axes[i].index(c)) for i in axes if c in axes[i]) for c in sorted(letters)]
