"""Reductions, running sums and products, and the position of the largest element."""

from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, MulWithoutZeros
from pytensor.tensor.sort import ArgSortOp

from theanoguard._exact.balls import NONE, ONE, ZERO, maximum, midpoint_key, minimum
from theanoguard._exact.rules import along_axis, each_line, exact_value
from theanoguard._exact.scalars import RULES, SUMMING, of_elements
from theanoguard._pytensor import sort_axis

_FOLDS = {
    ps.Add: lambda line: sum(line, ZERO),
    ps.Mul: lambda line: prod(line, start=ONE),
    ps.ScalarMaximum: lambda line: reduce(maximum, line) if line else NONE,
    ps.ScalarMinimum: lambda line: reduce(minimum, line) if line else NONE,
}


@exact_value.register
def _reduction(op: CAReduce, node: Apply, twin: Any, values: list[Any]) -> list[Any] | None:
    kind = type(op.scalar_op)
    skips_zeros = kind is MulWithoutZeros
    kind = ps.Mul if skips_zeros else kind
    rule = SUMMING.get(kind) or RULES.get(kind)
    if rule is None:
        return None
    [array] = values
    axes = tuple(range(array.ndim) if op.axis is None else (a % array.ndim for a in op.axis))
    twin.context.budget.spend(array.size * rule.weight)

    def fold(line: list[arb]) -> arb:
        if skips_zeros:
            line = [x for x in line if not x.is_zero()] or [ZERO]
        quick = _FOLDS.get(kind)
        total = quick(line) if quick else reduce(rule.of_balls, line)
        if total.is_finite() and all(map(arb.is_finite, line)):
            return total
        if not line:
            return total
        return reduce(lambda x, y: of_elements(rule, op.scalar_op, (x, y)), line)

    return [each_line(array, axes, fold)]


@exact_value.register
def _running_reduction(op: CumOp, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    [array] = values
    kind = ps.Add if op.mode == "add" else ps.Mul
    rule = SUMMING[kind]
    twin.context.budget.spend(array.size)
    if op.axis is None:
        array = array.ravel()

    def running(line: list[arb]) -> list[arb]:
        scalar_op = ps.add if kind is ps.Add else ps.mul
        return list(accumulate(line, lambda x, y: of_elements(rule, scalar_op, (x, y))))

    return [along_axis(array, op.axis or 0, running)]


@exact_value.register
def _position_of_largest(op: Argmax, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    [array] = values
    axes = tuple(range(array.ndim) if op.axis is None else (a % array.ndim for a in op.axis))
    found = each_line(array, axes, lambda line: max(range(len(line)), key=lambda i: line[i].mid()))
    return [np.asarray(found, np.int64)]


@exact_value.register
def _order(op: ArgSortOp, node: Apply, twin: Any, values: list[Any]) -> list[Any]:
    def order(line: list[arb]) -> list[int]:
        keys = [midpoint_key(x) for x in line]
        return sorted(range(len(line)), key=keys.__getitem__)

    return [along_axis(values[0], sort_axis(op, values), order).astype(np.int64)]
