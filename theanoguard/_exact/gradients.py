"""Gradients: what multiplies a zero that comes from the cost has no say in the result.

``grad`` multiplies the gradient by each result with the derivative of the operation.  Where a
``switch`` has not chosen a branch, the gradient by its result is 0, and so is that by everything in
the branch, even if a derivative there has no value.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from theanoguard._exact.balls import ZERO, is_balls, mapped
from theanoguard._exact.rules import is_fill
from theanoguard._provenance.backward import gradient_frame
from theanoguard._provenance.source import stack_traces


def cotangents_of(outputs: list[Variable], given: Iterable[Variable]) -> frozenset[Variable]:
    """Return the gradients of a cost by the variables of a graph.

    `given`: where the evaluation begins.
    """
    found: set[Variable] = set()
    for node in toposort(outputs, blockers=list(given)):
        if _is_seed(node) or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return frozenset(found)


def _is_seed(node: Apply) -> bool:
    """Whether ``grad`` begins with a node: the gradient of the cost by itself."""
    if not is_fill(node):
        return False
    return gradient_frame(stack_traces(node.outputs[0])) == "_float_ones_like"


def without_masked(
    node: Apply, values: list[Any], result: Any, cotangents: frozenset[Variable]
) -> Any:
    """Return a product or a quotient with 0 wherever the gradient in it is 0.

    `values`: what the operands hold.
    `result`: as the operation computes it.
    """
    kind = type(getattr(node.op, "scalar_op", None))
    linear = node.inputs if kind is ps.Mul else node.inputs[:1] if kind is ps.TrueDiv else ()
    factors = [v for x, v in zip(linear, values, strict=False) if x in cotangents and is_balls(v)]
    if not factors or all(map(arb.is_finite, result.ravel().tolist())):
        return result
    is_zero = mapped(lambda *balls: any(b.is_zero() for b in balls), factors)
    return np.where(np.broadcast_to(is_zero, result.shape).astype(bool), ZERO, result)
