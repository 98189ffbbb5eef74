"""The true values of a graph in double-double, with bounds on their errors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
from flint import arb, ctx
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot, MulWithoutZeros
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor

from theanoguard._exact.balls import array_of, is_balls, kind_of
from theanoguard._exact.boxes import KERNELS
from theanoguard._exact.moving import MOVING
from theanoguard._exact.rules import is_real
from theanoguard._exact.scalars import STEPS
from theanoguard._exact.twin import Context, Twin, as_given
from theanoguard._precision import double_double as dd
from theanoguard._precision.double_double import DOUBLED, Pair, packed, unpacked
from theanoguard._precision.evaluations import Log, Written, execution_of
from theanoguard._pytensor import IfElse, increment_ops
from theanoguard.operations.moving import taking

BITS = 160  # of the balls for operations that have no formula here


def _summed(first: Pair, *others: Pair) -> Pair:
    return reduce(dd.add, others, first)


def _multiplied(first: Pair, *others: Pair) -> Pair:
    return reduce(dd.mul, others, first)


def _same(a: Pair) -> Pair:
    return a


FORMULAS: dict[type, Callable[..., Pair | None]] = {
    ps.Add: _summed,
    ps.Mul: _multiplied,
    ps.Sub: dd.sub,
    ps.TrueDiv: dd.div,
    ps.Reciprocal: dd.reciprocal,
    ps.Neg: dd.neg,
    ps.Abs: dd.absolute,
    ps.Sqr: dd.sqr,
    ps.Sqrt: dd.sqrt,
    ps.Pow: dd.power,
    ps.Exp: dd.exp,
    ps.Expm1: dd.expm1,
    ps.Log: dd.log,
    ps.Log1p: dd.log1p,
    ps.Tanh: dd.tanh,
    ps.ScalarMaximum: dd.maximum,
    ps.ScalarMinimum: dd.minimum,
    ps.Clip: lambda x, low, high: dd.minimum(dd.maximum(x, low), high),
    ps.Identity: _same,
    ps.Cast: _same,
    psm.Sigmoid: dd.sigmoid,
    psm.Softplus: dd.softplus,
}
"""By the class of a scalar operation.  Others are computed in balls."""

FOLDS = {ps.Add: dd.add, ps.Mul: dd.mul, ps.ScalarMaximum: dd.maximum, ps.ScalarMinimum: dd.minimum}
VIEWS = (DimShuffle, Reshape, Subtensor)
CHUNK = 1 << 16  # products of two elements that a matrix product makes at once


class Doubled(Written):
    """The graph as written in double-double.

    Floats are computed again.  Integers, comparisons and steps keep the values of the call.

    - `fixed`: what the call decided.
    - `context`: holds the limit on the work in balls.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        inputs: Mapping[Variable, Any],
        fixed: Log,
        context: Context,
        place: Any = None,
    ) -> None:
        super().__init__(fgraph, inputs, fixed, place)
        self.context = context

    def child(
        self, fgraph: FunctionGraph, inputs: Sequence[Any], node: Apply, step: int | None = None
    ) -> "Doubled":
        """Return the evaluation of an inner graph."""
        given = dict(zip(fgraph.inputs, inputs, strict=True))
        return Doubled(fgraph, given, self.fixed, self.context, (self, node, step))

    def inner(self, node: Apply, fgraph: FunctionGraph | None = None) -> Any:
        """Return the inner graph of a node, which writes into the buffers that it is given."""
        for variable in node.inputs:
            if is_real(variable) and self.knows(variable):
                self._given[variable] = _lifted(self[variable])
        return super().inner(node, fgraph)

    def empty(self, shape: Sequence[int], variable: Variable) -> np.ndarray:
        """Return the buffer of a loop."""
        return np.empty(shape, DOUBLED if is_real(variable) else variable.type.dtype)

    def values(self, variables: Iterable[Variable]) -> list[Any]:
        """Return the values of several variables, as a loop writes them into its buffers."""
        return [_lifted(self.value(v)) for v in variables]

    def run_whole(self, node: Apply) -> list[Any]:
        """Return the values of a node's outputs."""
        if isinstance(node.op, IfElse):
            return super().run_whole(node)
        known = self.fixed.get(execution_of(self, node))
        if known is not None:
            return [as_given(v) for v in known]
        values = [as_given(self[v]) for v in node.inputs]
        if not all(isinstance(v, np.ndarray) for v in values):
            return self._in_balls(node, values)
        with np.errstate(all="ignore"):
            found = self._quickly(node, values)
        return [found] if found is not None else self._in_balls(node, values)

    def _quickly(self, node: Apply, values: list[np.ndarray]) -> np.ndarray | None:
        """Return the value of a node's output, if there is a formula in double-double."""
        op = node.op
        if isinstance(op, Elemwise | ps.ScalarOp):
            return _of_elements(getattr(op, "scalar_op", op), values)
        if isinstance(op, CAReduce):
            return _reduced(op, values[0])
        if isinstance(op, Dot):
            return packed(_product(*map(unpacked, values)))
        if isinstance(op, AllocEmpty):
            return np.zeros([int(v) for v in values], DOUBLED)
        if isinstance(op, VIEWS) and len(node.outputs) == 1:
            cells: list[list[Any]] = [[None]]
            op.perform(node, values, cells)
            return np.asarray(cells[0][0])
        if isinstance(op, MOVING) and len(node.outputs) == 1:
            return _moved(node, values)
        return _written(op, values) if isinstance(op, tuple(increment_ops)) else None

    def _in_balls(self, node: Apply, values: list[Any]) -> list[Any]:
        """Return what exact arithmetic gives for the operands."""
        with ctx.workprec(BITS):
            balls = [_to_balls(v) for v in values]
            given = dict(zip(node.inputs, balls, strict=True))
            found = Twin(None, given, self.context, None).values(node.outputs)
            return [_from_balls(v) if is_balls(v) else v for v in found]


def _lifted(value: Any) -> Any:
    """Return floats as double-doubles; anything else is left as it is."""
    value = as_given(value)
    is_number = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return packed(unpacked(value)) if is_number else value


def _of_elements(op: Any, values: list[np.ndarray]) -> np.ndarray | None:
    if isinstance(op, ps.Switch):
        condition, *branches = values
        if condition.dtype.kind not in "iub":
            return None
        return np.where(condition, *(packed(unpacked(v)) for v in branches))
    if isinstance(op, ps.Second):
        shape = np.broadcast_shapes(*(v.shape for v in values))
        return np.broadcast_to(values[1], shape)
    formula = FORMULAS.get(type(op))
    pair = None if formula is None else formula(*map(unpacked, values))
    return None if pair is None else packed(pair)


def _reduced(op: CAReduce, value: np.ndarray) -> np.ndarray | None:
    operation = FOLDS.get(type(op.scalar_op))
    if isinstance(op, MulWithoutZeros) or operation is None or not value.size:
        return None
    axes = range(value.ndim) if op.axis is None else sorted(a % value.ndim for a in op.axis)
    kept = [a for a in range(value.ndim) if a not in axes]
    shape = tuple(value.shape[a] for a in kept)
    lines = value.transpose(*axes, *kept).reshape((-1, *shape))
    return packed(dd.folded(operation, unpacked(lines), 0))


def _product(a: Pair, b: Pair) -> Pair:
    """Return the matrix product of arrays of one or two dimensions."""
    whole = [np.broadcast_to(p, a.hi.shape) for p in a]
    left = [p[None] if a.hi.ndim == 1 else p for p in whole]
    whole = [np.broadcast_to(p, b.hi.shape) for p in b]
    right = [p[:, None] if b.hi.ndim == 1 else p for p in whole]
    n, m = left[0].shape[0], right[0].shape[1]
    shape = a.hi.shape[:-1] + b.hi.shape[1:]
    if not n or not m or not right[0].shape[0]:
        return Pair(np.zeros(shape))
    rows = max(1, CHUNK // right[0].size)
    found = []
    for start in range(0, n, rows):
        block = Pair(*(p[start : start + rows, :, None] for p in left))
        found.append(dd.folded(dd.add, dd.mul(block, Pair(*(p[None] for p in right))), 1))
    return Pair(*(np.concatenate(parts).reshape(shape) for parts in zip(*found, strict=True)))


def _moved(node: Apply, values: list[np.ndarray]) -> np.ndarray | None:
    """Return what an operation moves, which is run on the positions of the elements."""
    pool: list[np.ndarray] = [np.zeros(1, DOUBLED)]
    inputs: list[np.ndarray] = []
    size = 1
    for variable, value in zip(node.inputs, values, strict=True):
        if not is_real(variable):
            inputs.append(value.copy())
            continue
        lifted = _lifted(value)
        pool.append(lifted.ravel())
        places = np.arange(size, size + value.size).reshape(value.shape)
        size += value.size
        if size >> (np.finfo(variable.type.dtype).nmant + 1):
            return None  # (the dtype cannot number them)
        inputs.append(places.astype(variable.type.dtype))
    [moved] = KERNELS.run(node, inputs)
    return np.concatenate(pool)[np.asarray(moved).astype(int)]


def _written(op: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """Return an array with other elements written into it."""
    x, y, *where = values
    cell: list[Any] = [None]
    taking(op).perform(None, [np.arange(x.size).reshape(x.shape), *where], [cell])
    places = np.asarray(cell[0])
    flat = _lifted(x).ravel()
    added = np.broadcast_to(_lifted(y), places.shape)
    if not op.set_instead_of_inc:
        if np.unique(places).size < places.size:
            return None
        added = packed(dd.add(unpacked(flat[places]), unpacked(added)))
    flat[places] = added
    return flat.reshape(x.shape)


# Balls


def _to_balls(value: Any) -> Any:
    if not (isinstance(value, np.ndarray) and value.dtype == DOUBLED):
        return value
    balls = [
        arb(hi, err) + lo if np.isfinite(err) and np.isfinite(hi) else arb(0, np.inf)
        for hi, lo, err in value.ravel().tolist()
    ]
    return array_of(balls, value.shape)


def _from_balls(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.empty(value.shape, DOUBLED)
    found.ravel()[:] = [_split(ball) for ball in value.ravel().tolist()]
    return found


def _split(ball: arb) -> tuple[float, float, float]:
    if kind_of(ball) != "number":
        return 0.0, 0.0, np.inf
    hi = float(ball.mid())
    lo = float((ball - hi).mid()) if np.isfinite(hi) else 0.0
    off = abs(ball - hi - lo).abs_upper() if np.isfinite(hi) else arb.pos_inf()
    return hi, lo, float(np.nextafter(float(off), np.inf))


def certain_errors(
    fgraph: FunctionGraph,
    inputs: Mapping[Variable, Any],
    written: Log,
    outputs: Sequence[Variable],
    computed: Sequence[np.ndarray],
    context: Context,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return bounds on the relative errors of outputs, and their true values.

    - `written`: what the graph computed as it was written.
    - `computed`: the values that are judged.
    - Returns: for each output: the bound for each element, which is infinite where double-double
      leaves it open, and the true values as double-double numbers.
    """
    fixed = {
        key: values
        for key, values in written.items()
        if not any(map(is_real, key[1].outputs)) or isinstance(_scalar(key[1]), STEPS)
    }
    replay = Doubled(fgraph, inputs, fixed, context)
    found = []
    for variable, own in zip(outputs, computed, strict=True):
        true = _lifted(replay.value(variable))
        found.append((_bound(np.asarray(own, "float64"), unpacked(true)), true))
    return found


def _scalar(node: Apply) -> Any:
    return getattr(node.op, "scalar_op", node.op)


def _bound(own: np.ndarray, true: Pair) -> np.ndarray:
    with np.errstate(all="ignore"):
        apart = np.abs((own - true.hi) - true.lo)
        size = np.abs(true.hi) - true.err
        bound = np.where(size > 0, (apart + true.err) * (1 + 1e-9) / size, np.inf)
    same = (true.err == 0) & (apart == 0)
    return np.where(same, 0.0, np.where(np.isnan(bound), np.inf, bound))


def ball_of(true: np.ndarray, index: tuple[int, ...]) -> arb:
    """Return an element of a double-double array as a ball."""
    ball: arb = _to_balls(np.asarray(true[index])).item()
    return ball
