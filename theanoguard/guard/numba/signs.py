"""How a function that Numba compiles shows a bad value: by exception flags, and by values to read.

Most operations raise an exception flag when they make a NaN or an Inf.  The others, and the inputs,
are covered by reading a few values (:mod:`~theanoguard.guard.carry`).
"""

from functools import partial

import pytensor.scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot, Gemv
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._pytensor import (
    IfElse,
    Scan,
    advanced_increment_ops,
    advanced_subtensor_ops,
    inner_graph,
)
from theanoguard.operations import (
    Kind,
    carried_through,
    carries,
    constant_kinds,
    holds_nonfinite,
    is_float,
    makes,
    makes_nan_of_inf,
    may_lose,
    scalar_carries,
    scalar_facts,
    scalar_makes,
    scalar_makes_nan,
    signals,
)

# Operations that a NaN does no harm: they return, and stay within their memory.  Many routines of
# linear algebra and random draws hang or crash.
STEADY = (
    Alloc,
    AllocEmpty,
    Argmax,
    BatchedDot,
    CAReduce,
    CheckAndRaise,
    CumOp,
    DeepCopyOp,
    DimShuffle,
    Dot,
    Elemwise,
    Gemv,
    IfElse,
    IncSubtensor,
    Join,
    LogSoftmax,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    Shape,
    Shape_i,
    Softmax,
    Split,
    Subtensor,
    TensorFromScalar,
    ps.ScalarOp,
    *advanced_increment_ops,
    *advanced_subtensor_ops,
)
# Of these, the ones that calculate with integers.  The others use them as sizes or indices.
COUNTING = (
    CAReduce,
    CheckAndRaise,
    DeepCopyOp,
    DimShuffle,
    Elemwise,
    ScalarFromTensor,
    TensorFromScalar,
    ps.ScalarOp,
)
# Of these, the ones that may run in Python, where NumPy clears the flags.
MAY_CLEAR_FLAGS = (CheckAndRaise, *advanced_increment_ops, *advanced_subtensor_ops)

# Half of the bits of a float32 are enough for an estimate of 1 / sqrt(x), which LLVM prefers to a
# division where it may take reciprocals (``numba__fastmath``), and which raises no flag.
ESTIMATED = (ps.Sqrt, ps.Pow, ps.TrueDiv, ps.Reciprocal, ps.IntDiv, ps.Mod)


def is_steady(op):
    """Whether an operation, and all that it consists of, is in the table `STEADY`."""
    if hasattr(op, "core_op"):
        return is_steady(op.core_op)
    if isinstance(op, Scan) and op.info.as_while:
        return False
    if isinstance(op, STEADY):
        return True
    inner = getattr(op, "fgraph", None)
    return inner is not None and all(is_steady(node.op) for node in inner.apply_nodes)


def is_number(variable):
    """Whether a variable holds floating-point numbers."""
    return getattr(variable.type, "dtype", "int64") not in ps.discrete_dtypes


def keeps_flags(op):
    """Whether an operation leaves the flags that have been raised before it."""
    if isinstance(op, OpFromGraph):
        return all(keeps_flags(node.op) for node in inner_graph(op).apply_nodes)
    if isinstance(op, MAY_CLEAR_FLAGS) or not isinstance(op, STEADY):
        return False
    scalar_op = op if isinstance(op, ps.ScalarOp) else getattr(op, "scalar_op", None)
    return scalar_op is None or _is_compiled(scalar_op)


def _is_compiled(scalar_op):
    """Whether Numba compiles a scalar operation, and never runs it in Python."""
    if isinstance(scalar_op, ps.Composite):
        return all(_is_compiled(node.op) for node in scalar_op.fgraph.apply_nodes)
    return "numba" in scalar_facts(scalar_op).signals or isinstance(
        scalar_op, ps.LogicalComparison | ps.BinaryBitOp | ps.UnaryBitOp
    )


def unsignalled(node, anywhere, constants=frozenset()):
    """Return the kinds of bad values that a node may make from finite numbers without a flag.

    Parameters
    ----------
    node : Apply
    anywhere : bool
        Whether an Inf that is a constant counts.
    constants : collection of Variable
        What is computed from constants alone, perhaps when the function is compiled.

    Returns
    -------
    Kind
    """
    op = node.op
    if not any(map(holds_nonfinite, node.outputs)):
        return Kind.NONE
    if isinstance(op, OpFromGraph):
        return _of_graph(inner_graph(op), anywhere)
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
    if isinstance(scalar_op, ps.Composite):
        return _of_graph(scalar_op.fgraph, anywhere) | _literals(node, anywhere)
    if isinstance(scalar_op, ps.ScalarOp):
        return _of_scalar(scalar_op, node, anywhere, constants)
    if (
        isinstance(op, CumOp)
        and is_float(node.inputs[0])
        and not isinstance(node.inputs[0], Constant)
    ):
        return Kind.NONE  # a loop that Numba compiles
    return Kind.NONE if signals(node, on_c=False) else may_make(node, anywhere)


def may_make(node, anywhere):
    """Return the kinds of bad values that a node may make, with a flag or without one."""
    made, literals = makes(node), _literals(node, anywhere=True)
    made = made & ~Kind.INF if made == literals and not anywhere else made
    return made | Kind.NAN if makes_nan_of_inf(node) else made


def from_constants(order):
    """Return what a graph computes from constants alone."""
    found = set()
    for node in order:
        if all(isinstance(v, Constant) or v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def _carried_inside(products, node, operand):
    """Return what a node of an inner graph carries; nothing past arrays that may be empty."""
    found = carried(node, operand, products)
    return {o: kind for o, kind in found.items() if not may_lose(node, operand, o)}


def _of_graph(fgraph, anywhere):
    order = fgraph.toposort()
    constants, kinds = from_constants(order), Kind.NONE
    for node in order:
        kinds |= unsignalled(node, anywhere, constants)
    return kinds


def _literals(node, anywhere):
    kinds = Kind.NONE
    for variable in node.inputs:
        kinds |= constant_kinds(variable)
    return kinds if anywhere else kinds & ~Kind.INF


def _of_scalar(op, node, anywhere, constants):
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    known = "numba" in scalar_facts(op).signals and not dtypes & {
        "float16",
        "complex64",
        "complex128",
    }
    if node.outputs[0] in constants or ("float32" in dtypes and type(op) in ESTIMATED):
        known = False
    if known:
        return _literals(node, anywhere)
    of_inf = Kind.NAN if scalar_makes_nan(op, node.outputs) else Kind.NONE
    return scalar_makes(op, node.inputs, node.outputs) | of_inf


def carried(node, operand, products):
    """Return what a node carries from one operand, by output, as Numba compiles it.

    Parameters
    ----------
    node : Apply
    operand : int
    products : bool
        Whether matrix products carry.

    Returns
    -------
    dict of int to Kind
    """
    if isinstance(node.op, Dot | BatchedDot | Gemv) and not products:
        return {}
    if isinstance(node.op, ps.ScalarOp):
        return scalar_carries(node.op, node.inputs, node.outputs, operand)
    if isinstance(node.op, OpFromGraph):
        return carried_through(inner_graph(node.op), operand, partial(_carried_inside, products))
    return carries(node, operand)
