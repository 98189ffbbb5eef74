"""Matrix products: ``Dot``, BLAS operations, and products of stacks of matrices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor import blas
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from theanoguard._pytensor import ger_ops
from theanoguard.operations.facts import Kind, all_of, facts_of, is_nonzero, register
from theanoguard.operations.regions import (
    Arrays,
    Dependence,
    Dims,
    Index,
    Region,
    Values,
    broadcast_index,
    filled,
    union,
)

EVERY = slice(None)


@dataclass(frozen=True)
class Product(Dependence):
    """``beta * z + alpha * x @ y``: each element depends on a row and a column."""

    left: int = 0  # `left`, `right`: positions of x and y among the operands
    right: int = 1
    alpha: int | None = None  # that of a factor
    #: `added`, `beta`: those of z and its factor.  BLAS does not read z where the factor is 0.
    added: int | None = None
    beta: int | None = None

    def _also(self, inputs: Values) -> tuple[int, ...]:
        """Return the operands that are read element by element."""
        found = () if self.alpha is None else (self.alpha,)
        if self.added is None or (self.beta is not None and inputs[self.beta] == 0):
            return found
        return (*found, self.added, *(() if self.beta is None else (self.beta,)))

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        read = [(i, np.shape(inputs[i])) for i in self._also(inputs)]
        return [
            *self.factors(inputs, index),
            *(Region(i, broadcast_index(index, shape)) for i, shape in read),
        ]

    def factors(self, inputs: Values, index: Index) -> list[Region]:
        """Return the regions of x and y: a row and a column."""
        ndim = np.ndim(inputs[self.left])
        batch = index[: max(ndim - 2, 0)]
        rest = index[len(batch) :]
        row, column = (rest[:1], rest[1:]) if ndim > 1 else ((), rest)
        return [
            Region(self.left, (*batch, *row, EVERY)),
            Region(self.right, (*batch, EVERY, *column)),
        ]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        marks = filled(arrays, masks, inputs)
        product = marked_product(marks[self.left], marks[self.right])
        return union(arrays, [product, *(marks[i] for i in self._also(inputs))], shape)


def marked_product(left: Any, right: Any) -> Any:
    """Return which elements of a product a marked element decides."""
    rows, columns = left.any(-1), right.any(-2 if right.ndim > 1 else 0)
    if left.ndim > 1 and right.ndim > 1:
        return rows[..., :, None] | columns[..., None, :]
    return rows | columns


class OuterProduct(Dependence):
    """``A + alpha * outer(x, y)``; the operands are A, alpha, x, y."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        return [Region(0, index), Region(1, ()), Region(2, index[:1]), Region(3, index[1:])]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        added, alpha, left, right = filled(arrays, masks, inputs)
        return added | alpha | left[:, None] | right[None, :]


class Stack(Dependence):
    """``Blockwise``: each element depends on the arrays of the same entry; of a product, a row."""

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        op = node.op
        n_batch = len(index) - len(op.outputs_sig[output])
        batches = [
            broadcast_index(index[:n_batch], np.shape(value)[: np.ndim(value) - len(core)])
            for value, core in zip(inputs, op.inputs_sig, strict=True)
        ]
        inside = [Region(i, (EVERY,) * len(core)) for i, core in enumerate(op.inputs_sig)]
        depends = facts_of(op.core_op).depends
        if isinstance(depends, Product):
            cores = [np.asarray(v)[batch] for v, batch in zip(inputs, batches, strict=True)]
            inside = depends.factors(cores, index[n_batch:])
        return [Region(r.operand, (*batches[r.operand], *r.index)) for r in inside]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        op = node.op
        marks = filled(arrays, masks, inputs)
        if isinstance(facts_of(op.core_op).depends, Product):
            left, right = marks
            left = left[..., None, :] if len(op.inputs_sig[0]) == 1 else left
            right = right[..., :, None] if len(op.inputs_sig[1]) == 1 else right
            return marked_product(left, right).reshape(shape)
        n_core = len(op.outputs_sig[output])
        batches = []
        for mark, core in zip(marks, op.inputs_sig, strict=True):
            for _ in core:
                mark = mark.any(-1)
            batches.append(mark[(..., *(None,) * n_core)])
        return union(arrays, batches, shape)


def _carrying(is_read: Mapping[int, int]) -> Callable[[Apply, int], Kind]:
    """The rule of an operation that reads an operand only where another one, a factor, is not 0."""

    def carries(node: Apply, operand: int) -> Kind:
        factor = is_read.get(operand)
        return Kind.BOTH if factor is not None and is_nonzero(node.inputs[factor]) else Kind.NONE

    return carries


def _kept_beside_product(node: Apply, operand: int) -> Kind:
    is_read = operand == 0 or (operand > 1 and is_nonzero(node.inputs[1]))
    return Kind.BOTH if is_read else Kind.NONE


def _of_the_core(node: Apply, operand: int) -> Kind:
    return Kind.BOTH if isinstance(node.op.core_op, Dot) else Kind.NONE


register(Dot, blas.Dot22, blas.BatchedDot, depends=Product(), carries=all_of(0, 1))
register(blas.Dot22, blas.Dot22Scalar, blas.Gemm, blas.Gemv, name="dot")
register(blas.BatchedDot, name="batched_dot")
# x, y, alpha
register(blas.Dot22Scalar, depends=Product(alpha=2), carries=_carrying({0: 2, 1: 2}))
# z, alpha, x, y, beta
register(
    *(blas.Gemm, blas.Gemv),
    depends=Product(left=2, right=3, alpha=1, added=0, beta=4),
    carries=_carrying({0: 4, 2: 1, 3: 1}),
)
# A, alpha, x, y
register(*ger_ops, depends=OuterProduct(), carries=_kept_beside_product, name="outer")
register(Blockwise, depends=Stack(), carries=_of_the_core)
register(Dot, blas.BatchedDot, blas.Gemv, steady=True, keeps_flags=("numba",))
