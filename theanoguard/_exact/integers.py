"""Integers that wrap around where exact arithmetic would need more bits."""

from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp


def is_arithmetic(node: Apply) -> bool:
    """Whether a node computes integers that may wrap around."""
    op = node.op
    kind = type(getattr(op, "scalar_op", op))
    grows = kind in (ps.Add, ps.Mul, ps.Sub, ps.Pow, ps.Sqr) or isinstance(op, CumOp)
    dtype = getattr(node.outputs[0].type, "dtype", "")
    return grows and str(dtype).startswith(("int", "uint"))


def wrapping_of(node: Apply, values: list[Any]) -> str | None:
    """Return what to say of integers that have wrapped around, None if none has.

    The operation is run again on floats, and on Python's integers if those do not agree.
    """
    dtype = np.dtype(node.outputs[0].type.dtype)
    limit = float(np.iinfo(dtype).max) * 0.99
    with np.errstate(all="ignore"):
        rough = _again(node.op, [np.asarray(v, np.float64) for v in values])
    if np.all(np.abs(rough) < limit) and (dtype.kind == "i" or np.all(rough >= 0)):
        return None
    exact = np.asarray(_again(node.op, [np.asarray(v).astype(object) for v in values]))
    info = np.iinfo(dtype)
    beyond = [n for n in exact.ravel().tolist() if not info.min <= n <= info.max]
    if not beyond:
        return None
    sign = dtype.kind == "i"
    bits = max((~int(n) if n < 0 else int(n)).bit_length() + sign for n in beyond)
    return f"needs {bits} bits and has wrapped around in {dtype}"


def _again(op: Any, values: list[np.ndarray]) -> Any:
    """Run an arithmetic operation on arrays of another dtype."""
    scalar_op = getattr(op, "scalar_op", op)
    if isinstance(op, CumOp):
        return (np.cumsum if op.mode == "add" else np.cumprod)(values[0], axis=op.axis)
    function = _ARITHMETIC[type(scalar_op)]
    if isinstance(op, CAReduce):
        axes = tuple(range(values[0].ndim)) if op.axis is None else tuple(op.axis)
        return function.reduce(values[0], axis=axes)
    return values[0] * values[0] if isinstance(scalar_op, ps.Sqr) else reduce(function, values)


_ARITHMETIC = {
    ps.Add: np.add,
    ps.Mul: np.multiply,
    ps.Sub: np.subtract,
    ps.Pow: np.power,
    ps.Sqr: np.square,
}
