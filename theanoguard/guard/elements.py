"""The possible elements of a node's outputs, decided when the graph is compiled.

Says which outputs may hold uninitialised memory, which can be big while no operand is, and which
nodes only choose among their operands.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard import _facts
from theanoguard._facts import RANGES, SELECTING, holds_nonfinite
from theanoguard._pytensor import IfElse, advanced_increment_ops, increment_ops
from theanoguard._values import arrays_in


def unwritten(order):
    """Return the variables of a graph that may hold uninitialised memory."""
    found = set()
    for node in order:
        op = node.op
        is_view = bool(op.view_map) and not isinstance(op, IfElse)
        writes = isinstance(op, increment_ops) and op.set_instead_of_inc
        if isinstance(op, AllocEmpty) or (
            (is_view or writes or isinstance(op, DeepCopyOp) or not _facts.makes(node))
            and any(v in found for v in node.inputs[: None if is_view else 1])
        ):
            found.update(v for v in node.outputs if holds_nonfinite(v))
    return found


def only_selects(node):
    """Whether the node chooses among its operands or compares them.

    ``switch(mask, x, -inf)`` is right as long as the -inf is not chosen, and PyTensor's own
    rewrites put NaN there.  The output shows whether it was chosen.
    """
    if not isinstance(node.op, Elemwise):
        return False
    discrete = all(getattr(v.type, "dtype", "") in ps.discrete_dtypes for v in node.outputs)
    return type(node.op.scalar_op) in SELECTING or discrete


# The largest magnitude of the result of a scalar operation on real numbers that are not infinite.
BOUNDS = {
    **{kind: max(-lowest, highest) for kind, (lowest, highest) in RANGES.items()},
    ps.ArcSin: 2.0,
    ps.ArcCos: 4.0,
    ps.ArcTan2: 4.0,
    ps.Log: 800.0,
    ps.Log1p: 800.0,
    ps.Log2: 1100.0,
    ps.Log10: 400.0,
}


def scalar_keeps_size(op, inputs, outputs, limit):
    """Whether a scalar operation makes nothing above `limit` from operands below it."""
    if isinstance(op, ps.Composite):
        return all(
            scalar_keeps_size(node.op, node.inputs, node.outputs, limit)
            for node in op.fgraph.apply_nodes
        )
    if all(v.type.dtype == "bool" for v in outputs):
        return limit >= 1
    if len(outputs) != 1 or not _facts.is_float(outputs[0]):
        return False
    [output] = outputs
    if any(isinstance(v, Constant) and not _fits(v, limit) for v in inputs):
        return False
    if type(op) in SELECTING or isinstance(op, ps.Cast):
        chosen = inputs[SELECTING.get(type(op), slice(0, 1))]
        return all(_keeps_type(v, output, limit) for v in chosen)
    if type(op) in BOUNDS:
        return all(map(_facts.is_float, inputs)) and limit >= BOUNDS[type(op)]
    if isinstance(op, ps.Sqrt):
        return _keeps_type(inputs[0], output, limit) and limit >= 1
    if isinstance(op, ps.Mul):
        large = [v for v in inputs if not is_unit(v)]
        return len(large) <= 1 and all(_keeps_type(v, output, limit) for v in large)
    return False


def _keeps_type(source, target, limit):
    """Whether values keep their magnitude when they are read as the other type."""
    if source.type.dtype in ("bool", "int8", "uint8"):
        return limit >= 255
    order = ("float16", "float32", "float64")
    dtypes = source.type.dtype, target.type.dtype
    return all(d in order for d in dtypes) and order.index(dtypes[0]) <= order.index(dtypes[1])


def _fits(constant, limit):
    """Whether no magnitude in a constant is above `limit`, and none is NaN."""
    return all(np.all(np.abs(a).astype("float64") <= limit) for a in arrays_in(constant.data))


def is_unit(variable):
    """Whether no magnitude in a value exceeds 1, unless it is NaN."""
    if variable.type.dtype == "bool":
        return True
    if isinstance(variable, Constant):
        return _fits(variable, 1)
    op = variable.owner and variable.owner.op
    if isinstance(op, Softmax):
        return True
    return BOUNDS.get(type(getattr(op, "scalar_op", op)), 2.0) <= 1.0 and all(
        map(_facts.is_float, variable.owner.inputs)
    )


def keeps_size(node, index, limit):
    """Whether a node makes nothing above `limit` from operands that are not above it."""
    op, output = node.op, node.outputs[index]
    if isinstance(op, Elemwise):
        return scalar_keeps_size(op.scalar_op, node.inputs, node.outputs, limit)
    if isinstance(op, Softmax):
        return limit >= 1
    if isinstance(op, CAReduce):
        extreme = isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)
        return extreme and node.inputs[0].type.dtype == getattr(output.type, "dtype", None)
    dtypes = {v.type.dtype for v in node.inputs if holds_nonfinite(v)}
    moves = isinstance(op, _facts.MOVING) or (
        isinstance(op, increment_ops) and op.set_instead_of_inc
    )
    data = node.inputs[:2] if isinstance(op, increment_ops) else node.inputs[:1]
    if isinstance(op, MakeVector) or type(op).__name__ == "Join":
        data = [v for v in node.inputs if v.type.ndim or isinstance(op, MakeVector)]
    same = {getattr(v.type, "dtype", None) for v in data} <= {output.type.dtype}
    fits = all(_fits(v, limit) for v in data if isinstance(v, Constant))
    return moves and same and fits and dtypes <= {output.type.dtype}


# ---------------------------------------------------------------- empty arrays

KEEPING = (
    CAReduce,
    CheckAndRaise,
    CumOp,
    DeepCopyOp,
    DimShuffle,
    IncSubtensor,
    Join,
    LogSoftmax,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    Softmax,
    SortOp,
    SpecifyShape,
    TensorFromScalar,
    ViewOp,
    *advanced_increment_ops,
)
"""Operations of which no output is empty where an operand that they carry on is not."""


def may_lose(node, operand, index):
    """Whether an output may be empty though an operand is not, so that the output shows nothing."""
    if isinstance(node.op, KEEPING):
        return False
    lengths = node.outputs[index].type.shape
    if isinstance(node.op, Elemwise):
        own = node.inputs[operand].type.shape
        return any(n == 1 and not m for n, m in zip(own, lengths, strict=True))
    return not all(lengths)


def may_show_nothing(order, sources, carries):
    """Return the variables in which what is carried on from `sources` is lost if they are empty.

    Parameters
    ----------
    order : list of Apply
    sources : collection of Variable
    carries : callable
        ``carries(node, operand)`` returns the outputs that show a bad element of an operand.
    """
    reached, found = set(sources), {}
    for node in order if reached else ():
        for i, variable in enumerate(node.inputs):
            for o in carries(node, i) if variable in reached else ():
                reached.add(node.outputs[o])
                if may_lose(node, i, o):
                    found[node.outputs[o]] = None
    return list(found)
