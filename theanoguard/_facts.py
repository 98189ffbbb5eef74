"""Facts about operations, as tables that several parts of the package use.

Three questions are answered for a node of a graph.

``makes``
    Can it make a NaN or an Inf out of finite numbers?  Operations that only choose, copy or move
    elements cannot.
``carries``
    Does a NaN or an Inf in one of its operands show in its output *for certain*?  ``x + y`` always
    shows it, ``maximum(x, y)`` and ``tanh(x)`` do not.
``signals``
    Does the processor raise an IEEE 754 exception flag when the operation, as PyTensor compiles it,
    makes a NaN or an Inf?

Each answer is conservative: an operation that no table knows may make both kinds, carries nothing
and does not signal.
"""

from enum import Flag
from functools import singledispatch

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import math as psm
from pytensor.tensor import blas
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._pytensor import (
    advanced_increment_ops,
    advanced_subtensor_ops,
    ger_ops,
    has_initial,
    increment_ops,
)
from theanoguard._values import arrays_in

_COMPLEX = ("complex64", "complex128")
_INEXACT = ("float16", "float32", "float64", *_COMPLEX)


class Kind(Flag):
    """Kinds of bad values that no finite number is."""

    NONE = 0
    NAN = 1
    INF = 2
    BOTH = 3


# ---------------------------------------------------------------- scalar operations

# Operations that give one of these operands, or its magnitude, and compute nothing.
SELECTING = {
    ps.Identity: slice(0, 1),
    ps.Neg: slice(0, 1),
    ps.Abs: slice(0, 1),
    ps.ScalarMaximum: slice(0, 2),
    ps.ScalarMinimum: slice(0, 2),
    ps.Second: slice(1, 2),
    ps.Switch: slice(1, 3),
    ps.Clip: slice(0, 3),
}

# Between which numbers the result of an operation on finite operands lies.
RANGES = {
    psm.Sigmoid: (0.0, 1.0),
    ps.Tanh: (-1.0, 1.0),
    ps.Sin: (-1.0, 1.0),
    ps.Cos: (-1.0, 1.0),
    ps.Sign: (-1.0, 1.0),
    psm.Erf: (-1.0, 1.0),
    psm.Erfc: (0.0, 2.0),
    ps.ArcTan: (-1.6, 1.6),
}

# Which kinds an operation carries from each of its operands; one entry stands for all of them.
# A NaN is carried as a NaN; an Inf as an Inf or a NaN (``inf - inf``, ``0 * inf``, ``sin(inf)``).
_CARRIED = {
    ps.Identity: (Kind.BOTH,),
    ps.Neg: (Kind.BOTH,),
    ps.Abs: (Kind.BOTH,),
    ps.Sqr: (Kind.BOTH,),
    ps.Ceil: (Kind.BOTH,),
    ps.Floor: (Kind.BOTH,),
    ps.Trunc: (Kind.BOTH,),
    ps.RoundHalfToEven: (Kind.BOTH,),
    ps.Cast: (Kind.BOTH,),  # between floats; `carried_by_scalar` looks at the dtypes
    ps.Add: (Kind.BOTH,),
    ps.Sub: (Kind.BOTH,),
    ps.Mul: (Kind.BOTH,),
    ps.TrueDiv: (Kind.BOTH, Kind.NAN),  # x / inf is 0
    ps.Second: (Kind.NONE, Kind.BOTH),
    ps.Reciprocal: (Kind.NAN,),
    ps.Exp: (Kind.NAN,),  # exp(-inf) is 0
    ps.Exp2: (Kind.NAN,),
    ps.Expm1: (Kind.NAN,),
    ps.Log: (Kind.BOTH,),
    ps.Log2: (Kind.BOTH,),
    ps.Log10: (Kind.BOTH,),
    ps.Log1p: (Kind.BOTH,),
    ps.Sqrt: (Kind.BOTH,),
    ps.Sin: (Kind.BOTH,),
    ps.Cos: (Kind.BOTH,),
    ps.Tan: (Kind.BOTH,),
    ps.ArcSin: (Kind.BOTH,),
    ps.ArcCos: (Kind.BOTH,),
    ps.ArcTan: (Kind.NAN,),
    ps.Sinh: (Kind.BOTH,),
    ps.Cosh: (Kind.BOTH,),
    ps.Tanh: (Kind.NAN,),
    ps.ArcSinh: (Kind.BOTH,),
    ps.ArcCosh: (Kind.BOTH,),
    ps.ArcTanh: (Kind.BOTH,),
    psm.Sigmoid: (Kind.NAN,),
    psm.Softplus: (Kind.NAN,),  # softplus(-inf) is 0
    psm.Erf: (Kind.NAN,),
    psm.Erfc: (Kind.NAN,),
}

# Operations that make neither a NaN nor an Inf from finite numbers.  A cast does where it narrows.
_MAKING_NOTHING = frozenset(
    {
        *SELECTING,
        ps.Ceil,
        ps.Floor,
        ps.Trunc,
        ps.RoundHalfToEven,
        ps.Sign,
        ps.Sin,
        ps.Cos,
        ps.ArcTan,
        ps.Tanh,
        ps.ArcSinh,
        psm.Sigmoid,
        psm.Erf,
        psm.Erfc,
    }
)

# Operations that make no NaN from numbers that are finite or infinite; they may make an Inf.
_MAKING_NO_NAN = _MAKING_NOTHING - {ps.Sin, ps.Cos} | {
    ps.Cast,
    ps.Cosh,
    ps.Exp,
    ps.Exp2,
    ps.Expm1,
    ps.Reciprocal,
    ps.Sinh,
    ps.Sqr,
    psm.Softplus,
}

# Operations that raise a flag whenever they make a NaN or an Inf, on C and on Numba.  Measured on
# all combinations of special values, alone and in vectors; the test of this table repeats it.
# Special functions are missing, since they return NaN and Inf as literals.
SIGNALLING = frozenset(
    {
        *_CARRIED,
        *_MAKING_NOTHING,
        ps.Pow,
        ps.IntDiv,
        ps.Mod,
        ps.ArcTan2,
        ps.RoundHalfAwayFromZero,
        psm.Log1mexp,
    }
)
# The same, on C alone.
SIGNALLING_ON_C = SIGNALLING | {psm.Gamma, psm.GammaLn}


def is_float(variable):
    """Return whether a variable holds real floating-point numbers.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    bool
    """
    return getattr(variable.type, "dtype", "") in ("float16", "float32", "float64")


def holds_nonfinite(variable):
    """Return whether a variable's type has NaN and Inf: real or complex floating point."""
    return getattr(variable.type, "dtype", "") in _INEXACT


def constant_kinds(variable):
    """Return the kinds of bad elements in a constant; none for any other variable."""
    if not isinstance(variable, Constant) or not holds_nonfinite(variable):
        return Kind.NONE
    found = Kind.NONE
    for data in arrays_in(variable.data):
        found |= Kind.NAN if np.isnan(data).any() else Kind.NONE
        found |= Kind.INF if np.isinf(data).any() else Kind.NONE
    return found


def scalar_carries(op, inputs, outputs, operand):
    """Return what a scalar operation carries from one operand, by output.

    Parameters
    ----------
    op : ScalarOp
    inputs, outputs : list of Variable
    operand : int

    Returns
    -------
    dict of int to Kind
        Outputs that nothing is carried to are missing.
    """
    if isinstance(op, ps.Composite):
        return carried_through(op.fgraph, operand, _scalar_node_carries)
    kinds = _CARRIED.get(type(op))
    if kinds is None or not all(map(is_float, (inputs[operand], *outputs))):
        return {}
    kind = kinds[operand] if len(kinds) > 1 else kinds[0]
    return {0: kind} if kind else {}


def _scalar_node_carries(node, operand):
    return scalar_carries(node.op, node.inputs, node.outputs, operand)


def carried_through(fgraph, operand, carries):
    """Return what a graph carries from one of its inputs to its outputs.

    Parameters
    ----------
    fgraph : FunctionGraph or FrozenFunctionGraph
    operand : int
        Position among ``fgraph.inputs``.
    carries : callable
        ``carries(node, operand)`` returns what a node of the graph carries, by output.

    Returns
    -------
    dict of int to Kind
        Outputs that nothing is carried to are missing.
    """
    reached = {fgraph.inputs[operand]: {Kind.NAN: Kind.NAN, Kind.INF: Kind.INF}}
    for node in fgraph.toposort():
        for i, variable in enumerate(node.inputs):
            arriving = reached.get(variable, {})
            for o, kind in carries(node, i).items() if arriving else ():
                leaving = reached.setdefault(node.outputs[o], {})
                for start, now in arriving.items():
                    if now in kind:
                        leaving[start] = Kind.NAN if now == Kind.NAN else Kind.BOTH
    found = {}
    for i, output in enumerate(fgraph.outputs):
        kinds = Kind.NONE
        for start in reached.get(output, {}):
            kinds |= start
        if kinds:
            found[i] = kinds
    return found


def scalar_makes(op, inputs, outputs, literals=Kind.BOTH):
    """Return the kinds that a scalar operation can make from finite operands.

    `literals` are the kinds of constants that count as made where they are chosen.
    """
    if not any(map(holds_nonfinite, outputs)):
        return Kind.NONE
    if isinstance(op, ps.Composite):
        kinds = Kind.NONE
        for node in op.fgraph.apply_nodes:
            kinds |= scalar_makes(node.op, node.inputs, node.outputs, literals)
        return kinds
    if type(op) in _MAKING_NOTHING and all(map(is_float, outputs)):
        # A literal NaN or Inf that is chosen is made here.
        kinds = Kind.NONE
        for variable in inputs:
            kinds |= constant_kinds(variable) & literals
        return kinds
    if isinstance(op, ps.Cast) and widens(inputs[0].type.dtype, outputs[0].type.dtype):
        return Kind.NONE
    return Kind.BOTH


def widens(source, target):
    """Return whether a cast from dtype `source` to `target` makes nothing bad of a good number.

    Examples
    --------
    >>> widens("float32", "float64"), widens("float64", "float32")
    (True, False)
    """
    order = ("bool", "int8", "float16", "float32", "float64")
    return source in order and target in order[2:] and order.index(source) <= order.index(target)


def scalar_signals(op, inputs, outputs, on_c=True, literals=Kind.BOTH):
    """Return whether a scalar operation raises a flag whenever it makes a NaN or an Inf.

    Half precision is converted by NumPy's own code, and complex arithmetic repairs its results, so
    neither is relied upon.
    """
    if isinstance(op, ps.Composite):
        return all(
            scalar_signals(node.op, node.inputs, node.outputs, on_c, literals)
            for node in op.fgraph.apply_nodes
        )
    if any(v.type.dtype == "float16" or v.type.dtype in _COMPLEX for v in (*inputs, *outputs)):
        return False
    if any(constant_kinds(variable) & literals for variable in inputs):
        return False
    if not any(map(holds_nonfinite, outputs)):
        return True
    return type(op) in (SIGNALLING_ON_C if on_c else SIGNALLING)


# ---------------------------------------------------------------- nodes


def _is_nonzero(variable):
    return isinstance(variable, Constant) and bool(np.all(np.asarray(variable.data) != 0))


def _moves(*operands):
    """The rule of an operation that keeps every element of these operands."""
    return lambda op, node, i: Kind.BOTH if i in operands else Kind.NONE


@singledispatch
def _carried(op, node, i):
    """Return what the first output of a node carries from input number `i`."""
    return Kind.NONE


for _op in (
    DimShuffle,
    Reshape,
    SpecifyShape,
    ViewOp,
    DeepCopyOp,
    TensorFromScalar,
    ScalarFromTensor,
    CheckAndRaise,
    Alloc,
    SortOp,
):
    _carried.register(_op, _moves(0))
for _op in (Sum, Prod, CumOp):
    _carried.register(_op, _moves(0))
for _op in (Dot, blas.Dot22, blas.BatchedDot):
    _carried.register(_op, _moves(0, 1))


@_carried.register(Join)
def _(op, node, i):
    return Kind.BOTH


@_carried.register(MakeVector)
def _(op, node, i):
    return Kind.BOTH


@_carried.register(Softmax)
@_carried.register(LogSoftmax)
def _(op, node, i):
    return Kind.NAN  # softmax(-inf) is 0


@_carried.register(Blockwise)
def _(op, node, i):
    return Kind.BOTH if isinstance(op.core_op, Dot) else Kind.NONE


@_carried.register(blas.Dot22Scalar)
def _(op, node, i):  # x, y, alpha; BLAS reads nothing where alpha is 0
    return Kind.BOTH if i < 2 and _is_nonzero(node.inputs[2]) else Kind.NONE


@_carried.register(blas.Gemm)
def _(op, node, i):  # z, alpha, x, y, beta
    decided_by = {0: 4, 2: 1, 3: 1}.get(i)
    is_read = decided_by is not None and _is_nonzero(node.inputs[decided_by])
    return Kind.BOTH if is_read else Kind.NONE


@_carried.register(blas.Gemv)
def _(op, node, i):  # y, alpha, A, x, beta
    decided_by = {0: 4, 2: 1, 3: 1}.get(i)
    is_read = decided_by is not None and _is_nonzero(node.inputs[decided_by])
    return Kind.BOTH if is_read else Kind.NONE


for _op in ger_ops:

    @_carried.register(_op)
    def _(op, node, i):  # A, alpha, x, y
        is_read = i == 0 or (i > 1 and _is_nonzero(node.inputs[1]))
        return Kind.BOTH if is_read else Kind.NONE


@_carried.register(IncSubtensor)
def _(op, node, i):  # what is overwritten is lost, and what is written where there is no place
    return Kind.BOTH if i == 0 and not op.set_instead_of_inc else Kind.NONE


for _op in advanced_increment_ops:
    _carried.register(_op, _carried.dispatch(IncSubtensor))


def carries(node, operand):
    """Return what a node carries from one operand to its outputs for certain.

    For matrix products this holds only where the BLAS multiplies zeros like any other number; a
    backend has to make sure of that, or treat products as unknown.

    Parameters
    ----------
    node : Apply
    operand : int
        Position among ``node.inputs``.

    Returns
    -------
    dict of int to Kind
        By output.  A NaN arrives as a NaN, an Inf as an Inf or a NaN.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> carries(pt.exp(x).owner, 0), carries((x > 0).owner, 0)
    ({0: <Kind.NAN: 1>}, {})
    """
    if isinstance(node.op, Elemwise):
        inputs, outputs = node.inputs, node.outputs
        return scalar_carries(node.op.scalar_op, inputs, outputs, operand)
    if not (is_float(node.inputs[operand]) and is_float(node.outputs[0])):
        return {}
    kind = _carried(node.op, node, operand)
    return {0: kind} if kind else {}


MOVING = (
    AllocEmpty,
    Alloc,
    CheckAndRaise,
    DeepCopyOp,
    DimShuffle,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    Repeat,
    Reshape,
    ScalarFromTensor,
    SortOp,
    SpecifyShape,
    Split,
    Subtensor,
    TensorFromScalar,
    ViewOp,
    *advanced_subtensor_ops,
)
"""Operations whose output has only elements of their operands, zeros, ones, or what was there."""


def makes(node, literals=Kind.BOTH):
    """Return the kinds of bad values that a node can make from finite operands.

    Parameters
    ----------
    node : Apply
    literals : Kind
        Which kinds of constants count as made by the node that chooses them.

    Returns
    -------
    Kind

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> makes(pt.log(x).owner), makes(x[::2].owner)
    (<Kind.BOTH: 3>, <Kind.NONE: 0>)
    """
    op = node.op
    if not any(map(holds_nonfinite, node.outputs)):
        return Kind.NONE
    if isinstance(op, Elemwise):
        return scalar_makes(op.scalar_op, node.inputs, node.outputs, literals)
    moves = isinstance(op, MOVING) or (isinstance(op, increment_ops) and op.set_instead_of_inc)
    if moves and all(
        v.type.dtype == node.outputs[0].type.dtype for v in node.inputs if holds_nonfinite(v)
    ):
        kinds = Kind.NONE
        for variable in node.inputs:
            kinds |= constant_kinds(variable) & literals
        return kinds
    return Kind.NONE if isinstance(op, Softmax) else Kind.BOTH


def scalar_makes_nan(op, outputs):
    """Return whether a scalar operation may make a NaN from operands that are finite or infinite.

    Examples
    --------
    >>> x = ps.float64("x")
    >>> scalar_makes_nan(ps.sub, [x]), scalar_makes_nan(ps.exp, [x])
    (True, False)
    """
    if not any(map(holds_nonfinite, outputs)):
        return False
    return type(op) not in _MAKING_NO_NAN or not all(map(is_float, outputs))


def makes_nan_of_inf(node):
    """Return whether a node may make a NaN from operands that are infinite, or finite.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> makes_nan_of_inf((x - 1.0).owner), makes_nan_of_inf(pt.neg(x).owner)
    (True, False)
    """
    op = node.op
    return not isinstance(op, MOVING) and scalar_makes_nan(
        getattr(op, "scalar_op", op), node.outputs
    )


def signals(node, on_c=True, literals=Kind.BOTH):
    """Return whether the processor raises a flag whenever a node makes a NaN or an Inf.

    It says nothing about where the node runs: code in Python or in other threads has to be known
    to the backend.

    Parameters
    ----------
    node : Apply
    on_c : bool
        Whether PyTensor's C code runs it, or Numba's.
    literals : Kind
        Which kinds of constants count as made by the node that chooses them.

    Returns
    -------
    bool

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> signals(pt.log(x).owner), signals(pt.digamma(x).owner)
    (True, False)
    """
    op = node.op
    if isinstance(op, Elemwise):
        return scalar_signals(op.scalar_op, node.inputs, node.outputs, on_c, literals)
    if makes(node, literals) is Kind.NONE:
        return True
    if any(constant_kinds(variable) & literals for variable in node.inputs):
        return False
    if any(not is_float(v) for v in (*node.inputs, *node.outputs) if holds_nonfinite(v)):
        return False
    if "float16" in {getattr(v.type, "dtype", "") for v in (*node.inputs, *node.outputs)}:
        return False
    if isinstance(op, CAReduce):
        return type(op.scalar_op) in SIGNALLING and not _is_infinite_if_empty(node, on_c)
    return isinstance(op, Softmax | LogSoftmax | IncSubtensor)


def _is_infinite_if_empty(node, on_c):
    """Return whether a node may be a maximum or a minimum of nothing, which is a literal Inf."""
    op, lengths = node.op, node.inputs[0].type.shape
    if not isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum):
        return False
    if on_c and not has_initial(op):
        return False  # the C code raises an error
    return not all(lengths if op.axis is None else [lengths[axis] for axis in op.axis])
