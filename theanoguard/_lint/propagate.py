"""Bounds of every value of a graph, from those of its inputs.

One table of rules, by Op.  The arithmetic is that of Moore, *Interval Analysis* (1966).  It is
taken for granted that arrays are not empty, and that no input is infinite.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce, singledispatch

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import (
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
)
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm, Gemv
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.sort import ArgSortOp
from pytensor.tensor.special import LogSoftmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._graph import VIEWS, constant_number, scalar_class, viewed
from theanoguard._lint.bounds import INF, NOTHING, Bounds, of_array, unite
from theanoguard._pytensor import (
    IfElse,
    OpFromGraph,
    Scan,
    advanced_subtensor_ops,
    increment_ops,
    is_numeric,
)
from theanoguard.operations import facts_of, moved, scalar_facts
from theanoguard.ops.asserts import Assert
from theanoguard.training.ops import SquaredNorms


def is_softmax(op: Op) -> bool:
    """Whether an op is a softmax: PyTensor's, or one of a package that calls it so."""
    return type(op).__name__ in ("Softmax", "SoftmaxWithBias")


BoundsOf = Mapping[Variable, Bounds]  # the bounds of the variables of a graph


class GraphBounds(Mapping[Variable, Bounds]):
    """The bounds of the variables of a graph, worked out when asked for.

    `known`: what is known of inputs and shared variables.
    """

    def __init__(self, known: BoundsOf | None = None) -> None:
        self._bounds = dict(known or {})

    def __getitem__(self, variable: Variable) -> Bounds:
        if variable not in self._bounds:
            for node in self._missing(variable):
                found = zip(node.outputs, self.of_node(node), strict=True)
                self._bounds.update((v, b) for v, b in found if v not in self._bounds)
        if variable not in self._bounds:
            self._bounds[variable] = of_root(variable)
        return self._bounds[variable]

    def _missing(self, variable: Variable) -> list[Apply]:
        """The nodes to work out before a variable, in order: asking would exhaust the stack."""
        if variable.owner is None:
            return []
        inputs = variable.owner.inputs
        if all(v.owner is None or v in self._bounds for v in inputs):
            return [variable.owner]
        return list(toposort([variable], blockers=list(self._bounds)))

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._bounds)

    def __len__(self) -> int:
        return len(self._bounds)

    def of_node(self, node: Apply) -> list[Bounds]:
        """The bounds of the outputs of a node whose operands are known."""
        return [
            bounds.rounded(output.type.dtype) if is_numeric(output.type) else Bounds()
            for bounds, output in zip(bounds_of(node.op, node, self), node.outputs, strict=True)
        ]


def of_root(variable: Variable) -> Bounds:
    """The bounds of an input or a constant, from its value or its type."""
    if isinstance(variable, Constant):
        return of_array(variable.data) if is_numeric(variable.type) else Bounds()
    return of_dtype(getattr(variable.type, "dtype", None))


def of_dtype(dtype: str | None) -> Bounds:
    """Return the bounds that follow from a dtype alone."""
    kind = np.dtype(dtype) if isinstance(dtype, str) else None
    if kind is None or kind.kind not in "iub":
        return Bounds()
    if kind.kind == "b":
        return Bounds(0, 1)
    limits = np.iinfo(kind)
    return (
        Bounds(int(limits.min), int(limits.max))
        if kind.itemsize <= 2
        else (Bounds(0) if kind.kind == "u" else Bounds())
    )


# ---------------------------------------------------------------- the rules


def _length(variable: Variable, axis: int) -> Bounds:
    """The bounds of the number of entries along an axis."""
    length = variable.type.shape[axis]
    return Bounds(1) if length is None else Bounds(length, length)


@singledispatch
def bounds_of(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    """Return the bounds of the outputs of a node, whose operands' bounds are in a mapping."""
    if is_softmax(op):
        return [Bounds(0.0, 1.0)]
    if (formula := facts_of(op).formula) is not None:
        return _of_formula(formula, op, node, bounds)
    data = moved(node)
    if data is not None:
        return [unite(bounds[v] for v in data)] * len(node.outputs)
    return [of_root(v) for v in node.outputs]


def _of_formula(
    formula: Callable[..., Variable], op: Op, node: Apply, bounds: BoundsOf
) -> list[Bounds]:
    """The bounds of an operation that is stated by a formula of other operations."""
    operands = [v.type() for v in node.inputs]
    known = {operand: bounds[v] for operand, v in zip(operands, node.inputs, strict=True)}
    return [GraphBounds(known)[formula(op, *operands)]]


def _first_operand(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    return [bounds[node.inputs[0]]] * len(node.outputs)


for _class in VIEWS:
    bounds_of.register(_class, _first_operand)


@bounds_of.register(CheckAndRaise)
@bounds_of.register(Assert)
def _asserted(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    result = bounds[node.inputs[0]]
    for condition in node.inputs[1:]:
        result = result.intersect(implied(condition, True, node.inputs[0], bounds))
    return [result]


def _always(found: Bounds) -> Callable[[Op, Apply, BoundsOf], list[Bounds]]:
    return lambda op, node, bounds: [found] * len(node.outputs)


for _class, _found in {
    Shape: Bounds(1.0),
    Shape_i: Bounds(1.0),
    Eye: Bounds(0.0, 1.0),
    Argmax: Bounds(0.0),
    SquaredNorms: Bounds(0.0),
    ArgSortOp: Bounds(0.0),
    LogSoftmax: Bounds(-INF, 0.0),
}.items():
    bounds_of.register(_class, _always(_found))


@bounds_of.register(AllocEmpty)
def _unwritten(op: AllocEmpty, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    return [NOTHING]


@bounds_of.register(ExtractDiag)
def _of_diagonal(op: ExtractDiag, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    """A Cholesky factor has a positive diagonal: the matrix is not positive definite otherwise."""
    x = node.inputs[0]
    made = viewed(x).owner
    core = None if made is None else getattr(made.op, "core_op", made.op)
    last = (x.type.ndim - 2, x.type.ndim - 1)
    if isinstance(core, Cholesky) and op.offset == 0 and (op.axis1, op.axis2) == last:
        return [Bounds(0.0, zero=False)]
    rows, columns = x.type.shape[-2:]
    if x.type.ndim == 2 and op.offset == 0 and rows is not None and columns is not None:
        at = np.arange(min(rows, columns))
        return [_of_elements(x, (at, at), bounds)]
    return [bounds[x]]


def _read(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    """The bounds of ``x[indices]``, of what was written there if the indices are constants."""
    x = node.inputs[0]
    at = _constant_indices(node.inputs[1:], x.type.ndim)
    return [bounds[x] if at is None else _of_elements(x, at, bounds)]


for _class in advanced_subtensor_ops:
    bounds_of.register(_class, _read)


def _constant_indices(indices: Sequence[Variable], ndim: int) -> tuple[np.ndarray, ...] | None:
    """Return the numbers of elements along each axis, if constants state them, else None."""
    arrays = [np.asarray(v.data) for v in indices if isinstance(v, Constant) and is_numeric(v.type)]
    if len(arrays) != ndim or len(arrays) != len(indices):
        return None
    if any(a.dtype.kind not in "iu" or (a < 0).any() for a in arrays):
        return None
    return tuple(np.broadcast_arrays(*arrays))


def _of_elements(x: Variable, at: tuple[np.ndarray, ...], bounds: BoundsOf) -> Bounds:
    """The bounds of some elements of an array: of the diagonal of a packed triangle, for one."""
    if isinstance(x, Constant):
        is_inside = all(((i < n).all() and i.size) for i, n in zip(at, x.data.shape, strict=True))
        return of_array(x.data[at]) if is_inside else bounds[x]
    node = x.owner
    writes = node is not None and isinstance(node.op, increment_ops)
    if not (writes and getattr(node.op, "set_instead_of_inc", False)):
        return bounds[x]
    old, new, *indices = node.inputs
    written = _constant_indices(indices, x.type.ndim)
    if written is None or new.type.ndim != written[0].ndim or 1 in new.type.shape or not at[0].size:
        return bounds[x]
    place = {
        key: n for n, key in enumerate(zip(*(w.ravel().tolist() for w in written), strict=True))
    }
    keys = list(zip(*(a.ravel().tolist() for a in at), strict=True))
    hit = [place[key] for key in keys if key in place]
    missed = [key for key in keys if key not in place]
    found = []
    if hit:
        found.append(_of_elements(new, np.unravel_index(hit, written[0].shape), bounds))
    if missed:
        found.append(_of_elements(old, tuple(np.array(missed).T), bounds))
    return unite(found)


@bounds_of.register(ARange)
def _counted(op: ARange, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    start, stop, step = (bounds[v] for v in node.inputs)
    return [Bounds(start.lo, stop.hi) if step.lo >= 0 else Bounds()]


# Distributions whose parameters do not matter here.
_DRAWS = {
    **dict.fromkeys("bernoulli beta dirichlet uniform_0_1".split(), Bounds(0.0, 1.0)),
    **dict.fromkeys(
        "exponential gamma poisson halfnormal lognormal geometric chisquare weibull".split(),
        Bounds(0.0),
    ),
}


@bounds_of.register(RandomVariable)
def _drawn(op: RandomVariable, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    drawn = _DRAWS.get(op.name, Bounds())
    if op.name == "uniform":
        low, high = (bounds[v] for v in node.inputs[-2:])
        drawn = Bounds(low.lo, high.hi)
    return [Bounds(), drawn]


@bounds_of.register(IfElse)
def _of_branches(op: IfElse, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    n = len(node.outputs)
    branches = [bounds[v] for v in node.inputs[1:]]
    return [branches[i].union(branches[n + i]) for i in range(n)]


def _written(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    """The bounds of ``x[idx] = y`` and ``x[idx] += y``, where an element may be hit repeatedly."""
    x, y = (bounds[v] for v in node.inputs[:2])
    if not op.set_instead_of_inc:
        y = x + (y if isinstance(op, IncSubtensor) else y.times(Bounds(1)))
    return [x.union(y)]


for _class in increment_ops:
    bounds_of.register(_class, _written)


@bounds_of.register(Blockwise)
def _of_blocks(op: Blockwise, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    is_product = isinstance(op.core_op, Dot)
    return [_product(node, bounds)] if is_product else [of_root(v) for v in node.outputs]


@bounds_of.register(Dot)
@bounds_of.register(Dot22)
@bounds_of.register(BatchedDot)
def _multiplied_matrices(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    return [_product(node, bounds)]


def _product(node: Apply, bounds: BoundsOf, position: int = 0) -> Bounds:
    """Return the bounds of the product of two operands of a node, the first at `position`."""
    left, right = node.inputs[position : position + 2]
    if viewed(left) is viewed(right) and _is_scalar(node.outputs[0]):
        terms = bounds[left].square()  # the product of a vector with itself
    else:
        terms = bounds[left] * bounds[right]
    return terms.times(_length(left, -1))


@bounds_of.register(Dot22Scalar)
def _scaled_product(op: Dot22Scalar, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    return [bounds[node.inputs[2]] * _product(node, bounds)]


@bounds_of.register(Gemm)
@bounds_of.register(Gemv)
def _added_product(op: Op, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    z, alpha, _x, _y, beta = node.inputs
    added = bounds[alpha] * _product(node, bounds, 2)
    return [added if constant_number(beta) == 0 else bounds[beta] * bounds[z] + added]


def _is_scalar(variable: Variable) -> bool:
    return all(length == 1 for length in variable.type.shape)


@bounds_of.register(CAReduce)
def _reduced(op: CAReduce, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    (x,) = node.inputs
    found = bounds[x]
    axes = range(x.type.ndim) if op.axis is None else op.axis
    kind = type(op.scalar_op)
    if kind in (ps.ScalarMaximum, ps.ScalarMinimum):
        return [found]
    if kind is ps.Mul:
        return [_powers(found)]
    if kind is not ps.Add:
        return [of_root(node.outputs[0])]
    total = found
    for axis in axes:
        total = total.times(_length(x, axis))
    if _is_shifted_exp(x, set(axes)):
        total = total.maximum(Bounds(1, 1))  # the largest term is exp(0)
    return [total]


def _powers(found: Bounds) -> Bounds:
    """The bounds of products of any number of factors."""
    if found.lo < 0:
        return Bounds()
    hi = found.hi if found.hi <= 1 else INF
    return Bounds(1.0, hi) if found.lo >= 1 else Bounds(0.0, hi)


@bounds_of.register(CumOp)
def _accumulated(op: CumOp, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    found = bounds[node.inputs[0]]
    return [found.times(Bounds(1)) if op.mode == "add" else _powers(found)]


# ---------------------------------------------------------------- element by element


def _increased(op: ScalarOp, a: Bounds) -> Bounds:
    """The bounds under a function that never decreases, of the part that lies in its domain."""
    facts = scalar_facts(op)
    low, high = facts.domain.ends if facts.domain else (-INF, INF)
    lo = min(max(a.lo, low), high)
    zero = facts.increasing != "with its sign" or a.zero or a.lo < lo == 0
    return Bounds(lo, min(max(a.hi, lo), high)).map(op.impl, zero)


ARITHMETIC: dict[type[ScalarOp], Callable[..., Bounds]] = {
    ps.Add: Bounds.__add__,
    ps.Sub: Bounds.__sub__,
    ps.Mul: Bounds.__mul__,
    ps.Neg: Bounds.__neg__,
    ps.Abs: Bounds.__abs__,
    ps.Sqr: Bounds.square,
    ps.ScalarMaximum: Bounds.maximum,
    ps.ScalarMinimum: Bounds.minimum,
    ps.Identity: lambda a: a,
    ps.Second: lambda a, b: b,
}
"""Operations on bounds; those of two operands are applied from the left."""


@bounds_of.register(Elemwise)
def _elementwise(op: Elemwise, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    op = op.scalar_op
    operands = [bounds[v] for v in node.inputs]
    kind = type(op)
    if kind in SPECIAL:
        return [SPECIAL[kind](node, operands, bounds)]
    if len(node.outputs) > 1 or getattr(node.outputs[0].type, "dtype", "bool") == "bool":
        return [of_root(v) for v in node.outputs]
    if kind in ARITHMETIC:
        return [reduce(ARITHMETIC[kind], operands) if operands[1:] else ARITHMETIC[kind](*operands)]
    if (known := scalar_facts(op)).increasing:
        return [_increased(op, *operands)]
    if known.formula is not None:
        return _of_formula(known.formula, op, node, bounds)
    if known.range:
        return [Bounds(*known.range)]
    return [of_root(v) for v in node.outputs]


def _multiplied(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    if len(operands) == 2 and node.inputs[0] is node.inputs[1]:
        return operands[0].square()
    result, *rest = operands
    for other in rest:
        result = result * other
    return result


def _subtracted(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    result = operands[0] - operands[1]
    if is_extreme(node.inputs[1], node.inputs[0], ps.ScalarMaximum):
        return result.intersect(Bounds(hi=0.0))
    if is_extreme(node.inputs[1], node.inputs[0], ps.ScalarMinimum):
        return result.intersect(Bounds(lo=0.0))
    return result


def _divided(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    x = _averaged(node)
    if x is None:
        return operands[0] / operands[1]
    lo, hi = bounds[x].lo, bounds[x].hi  # (a sum of many numbers rounds a lot)
    return Bounds(min(lo / 2, lo * 2), max(hi / 2, hi * 2))


def _averaged(node: Apply) -> Variable | None:
    """Return the array whose mean a quotient is: a sum divided by the lengths of its axes."""
    total, lengths = node.outputs[0], []
    while scalar_class(total) is ps.TrueDiv:
        total, length = total.owner.inputs
        total = viewed(total)
        lengths += _factors_of(length)
    if total.owner is None or not isinstance(total.owner.op, CAReduce):
        return None
    (x,), op = total.owner.inputs, total.owner.op
    axes = range(x.type.ndim) if op.axis is None else op.axis
    is_mean = type(op.scalar_op) is ps.Add and sorted(_axes_of(lengths, x)) == sorted(axes)
    return x if is_mean and len(lengths) == len(axes) else None


def _factors_of(length: Variable) -> list[Variable]:
    """Return the factors of a number of elements, without casts and views."""
    length = viewed(length)
    if scalar_class(length) is ps.Cast:
        return _factors_of(length.owner.inputs[0])
    if scalar_class(length) is ps.Mul:
        return [factor for v in length.owner.inputs for factor in _factors_of(v)]
    return [length]


def _axes_of(lengths: Sequence[Variable], x: Variable) -> list[int]:
    """Return the axes of an array of which lengths are the lengths."""
    found = []
    for length in lengths:
        if length.owner is None or not isinstance(length.owner.op, Subtensor):
            continue
        shape, *_ = _factors_of(length.owner.inputs[0])
        axis = constant_number(length.owner.inputs[-1])
        is_own = shape.owner is not None and isinstance(shape.owner.op, Shape)
        if axis is not None and is_own and shape.owner.inputs[0] is x:
            found.append(int(axis))
    return found


def _to_power(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    base, _ = operands
    exponent = constant_number(node.inputs[1])
    if exponent is not None and float(exponent) % 2 == 0:
        base = abs(base)
    if base.lo < 0:
        return Bounds()
    result = base.power(operands[1])
    return Bounds(result.lo, result.hi, result.lo == 0)


def _chosen(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    """Return the bounds of a switch: of each branch, where its condition chooses it."""
    condition, *branches = node.inputs
    return unite(
        bounds[branch].intersect(implied(condition, truth, branch, bounds))
        for branch, truth in zip(branches, (True, False), strict=True)
    )


def _converted(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    (found,) = operands
    exact = np.can_cast(node.inputs[0].type.dtype, node.outputs[0].type.dtype)
    return Bounds(found.lo, found.hi, found.zero or not (exact or found.smallest))


def _remainder(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    return Bounds(0.0, operands[1].hi) if operands[1].lo >= 0 else Bounds()


def _whole_quotient(node: Apply, operands: list[Bounds], bounds: BoundsOf) -> Bounds:
    return Bounds(0.0) if min(o.lo for o in operands) >= 0 else Bounds()


SPECIAL: dict[type[ScalarOp], Callable[[Apply, list[Bounds], BoundsOf], Bounds]] = {
    ps.Mul: _multiplied,
    ps.TrueDiv: _divided,
    ps.Sub: _subtracted,
    ps.Pow: _to_power,
    ps.Switch: _chosen,
    ps.Mod: _remainder,
    ps.IntDiv: _whole_quotient,
    ps.Clip: lambda node, operands, bounds: operands[0].maximum(operands[1]).minimum(operands[2]),
    ps.Cast: _converted,
    ps.Cosh: lambda node, operands, bounds: Bounds(1.0),
    psm.Erfcx: lambda node, operands, bounds: Bounds(0.0, zero=False),
    ps.Reciprocal: lambda node, operands, bounds: Bounds(1.0, 1.0) / operands[0],
}


def is_extreme(variable: Variable, of: Variable, kind: type[ScalarOp]) -> bool:
    """Whether a variable is the maximum (or minimum) over some axes of another.

    Between the two may stand views, a clip and a switch (against an infinite maximum).
    """
    todo = [variable]
    while todo:
        found = viewed(todo.pop())
        node = found.owner
        if node is None:
            continue
        if isinstance(node.op, CAReduce) and type(node.op.scalar_op) is kind:
            return viewed(node.inputs[0]) is viewed(of)
        if scalar_class(found) is ps.Clip:
            todo.append(node.inputs[0])
        elif scalar_class(found) is ps.Switch:
            todo += node.inputs[1:]
    return False


def _is_shifted_exp(x: Variable, axes: set[int]) -> bool:
    """Whether `x` is ``exp(h - max(h))`` with the maximum taken over some of the axes."""
    if scalar_class(x) is not ps.Exp:
        return False
    shifted = x.owner.inputs[0]
    if scalar_class(shifted) is not ps.Sub:
        return False
    h, top = shifted.owner.inputs
    if not is_extreme(top, h, ps.ScalarMaximum):
        return False
    # The maximum has one entry along those axes that it was taken over.
    return all(top.type.broadcastable[axis] for axis in axes)


# ---------------------------------------------------------------- what a condition tells

# What `variable OP number` says of the variable, when it is true, and when it is false.
_Told = Callable[[Bounds], Bounds]
_COMPARISONS: dict[type[ScalarOp], tuple[_Told, _Told]] = {
    ps.LT: (lambda b: Bounds(hi=b.hi, zero=b.hi > 0), lambda b: Bounds(lo=b.lo)),
    ps.LE: (lambda b: Bounds(hi=b.hi), lambda b: Bounds(lo=b.lo, zero=b.lo < 0)),
    ps.GT: (lambda b: Bounds(lo=b.lo, zero=b.lo < 0), lambda b: Bounds(hi=b.hi)),
    ps.GE: (lambda b: Bounds(lo=b.lo), lambda b: Bounds(hi=b.hi, zero=b.hi > 0)),
    ps.EQ: (lambda b: b, lambda b: Bounds(zero=(b.lo, b.hi) != (0, 0))),
    ps.NEQ: (lambda b: Bounds(zero=(b.lo, b.hi) != (0, 0)), lambda b: b),
}
_MIRRORED = {ps.LT: ps.GT, ps.LE: ps.GE, ps.GT: ps.LT, ps.GE: ps.LE, ps.EQ: ps.EQ, ps.NEQ: ps.NEQ}


def implied(condition: Variable, truth: bool, variable: Variable, bounds: BoundsOf) -> Bounds:
    """What it says of a variable that a condition holds, or does not, element by element."""
    condition = viewed(condition)
    node = condition.owner
    if node is None:
        return Bounds()
    if isinstance(node.op, CAReduce) and type(node.op.scalar_op) is ps.AND and truth:
        return implied(node.inputs[0], truth, variable, bounds)
    kind = scalar_class(condition)
    if kind is ps.Invert and condition.type.dtype == "bool":
        return implied(node.inputs[0], not truth, variable, bounds)
    if kind is (ps.AND if truth else ps.OR):
        result = Bounds()
        for part in node.inputs:
            result = result.intersect(implied(part, truth, variable, bounds))
        return result
    if kind not in _COMPARISONS:
        return Bounds()
    left, right = node.inputs
    found = Bounds()
    for one, other, compare in ((left, right, kind), (right, left, _MIRRORED[kind])):
        told = _COMPARISONS[compare][0 if truth else 1](bounds[other])
        if _same(one, variable):
            found = found.intersect(told)
        elif scalar_class(viewed(one)) is ps.Abs and _same(viewed(one).owner.inputs[0], variable):
            found = found.intersect(Bounds(-told.hi, told.hi, not (told.lo > 0 or not told.zero)))
    return found


def _same(one: Variable, other: Variable, depth: int = 4) -> bool:
    """Whether two variables show the same elements; equal operations on equal operands count."""
    one, other = viewed(one), viewed(other)
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return one.equals(other)
    a, b = one.owner, other.owner
    return (
        a is not None
        and b is not None
        and a.op == b.op
        and one.index == other.index
        and len(a.inputs) == len(b.inputs)
        and depth > 0
        and all(_same(v, w, depth - 1) for v, w in zip(a.inputs, b.inputs, strict=True))
    )


# ---------------------------------------------------------------- inner graphs


@bounds_of.register(OpFromGraph)
def _of_inner_graph(op: OpFromGraph, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    inner = inner_bounds(node, bounds)
    return [inner[v] for v in op.fgraph.outputs]


@bounds_of.register(Scan)
def _of_loop(op: Scan, node: Apply, bounds: BoundsOf) -> list[Bounds]:
    inner = inner_bounds(node, bounds)
    maps = op.get_oinp_iinp_iout_oout_mappings()
    results = []
    for i in range(len(node.outputs)):
        written = [inner[op.fgraph.outputs[j]] for j in maps["inner_out_from_outer_out"][i]]
        start = maps["outer_inp_from_outer_out"][i]
        if start >= 0 and i < op.info.n_mit_mot + op.info.n_mit_sot + op.info.n_sit_sot:
            written.append(bounds[node.inputs[start]])
        results.append(unite(written))
    return results


def inner_bounds(node: Apply, bounds: BoundsOf) -> GraphBounds:
    """The bounds of the variables inside a ``Scan`` or an ``OpFromGraph``.

    A state is followed for a few steps; an end that still moves is given up.

    `bounds`: those of the graph around it, by variable.
    """
    graph = node.op.fgraph
    if not isinstance(node.op, Scan):
        return GraphBounds(
            {inner: bounds[outer] for inner, outer in zip(graph.inputs, node.inputs, strict=True)}
        )
    maps = node.op.get_oinp_iinp_iout_oout_mappings()
    known = {
        inner: bounds[node.inputs[maps["outer_inp_from_inner_inp"][i]]]
        for i, inner in enumerate(graph.inputs)
    }
    states = {
        inner: [graph.outputs[j] for j in maps["inner_out_from_inner_inp"][i]]
        for i, inner in enumerate(graph.inputs)
        if maps["inner_out_from_inner_inp"][i]
    }
    for step in range(5):
        found = GraphBounds(known)
        after = {
            state: unite([known[state], *(found[v] for v in outputs)])
            for state, outputs in states.items()
        }
        if all(after[state] == known[state] for state in states):
            return found
        for state, new in after.items():
            known[state] = _widened(known[state], new) if step >= 2 else new
    return GraphBounds({**known, **dict.fromkeys(states, Bounds())})


def _widened(old: Bounds, new: Bounds) -> Bounds:
    """Bounds that hold the new ones, with the ends that have moved given up."""
    if old is NOTHING:
        return new
    lo = new.lo if new.lo >= old.lo else (0.0 if new.lo >= 0 else -INF)
    hi = new.hi if new.hi <= old.hi else (0.0 if new.hi <= 0 else INF)
    return Bounds(lo, hi, new.zero)
