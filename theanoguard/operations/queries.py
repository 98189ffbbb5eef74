"""Questions about a node of a graph, answered from the facts of its operation."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import discrete_dtypes
from pytensor.tensor.elemwise import Elemwise

from theanoguard.operations.elementwise import (
    fits,
    scalar_carries,
    scalar_keeps_size,
    scalar_makes,
    scalar_makes_nan,
    scalar_signals,
)
from theanoguard.operations.facts import (
    Kind,
    chosen_kinds,
    constant_kinds,
    facts_of,
    holds_nonfinite,
    is_float,
    scalar_facts,
)
from theanoguard.operations.regions import NUMPY, Arrays, Index, Region


def carries(node: Apply, operand: int) -> dict[int, Kind]:
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
        return scalar_carries(node.op.scalar_op, node.inputs, node.outputs, operand)
    if not (is_float(node.inputs[operand]) and is_float(node.outputs[0])):
        return {}
    kind = facts_of(node.op).carries(node, operand)
    return {0: kind} if kind else {}


def moved(node: Apply) -> list[Variable] | None:
    """Return the operands whose elements a node moves into its outputs; None if it computes.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> moved(x[::2].owner), moved(pt.log(x).owner)
    ([x], None)
    """
    return facts_of(node.op).moves(node)


def only_chooses(node: Apply) -> bool:
    """Whether a node chooses among its operands or compares them.

    ``switch(mask, x, nan)`` is right as long as the NaN is not chosen, and PyTensor's own rewrites
    put it there.  The output shows whether it was chosen.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> only_chooses(x[0].owner), only_chooses(pt.exp(x).owner)
    (True, False)
    """
    if not isinstance(node.op, Elemwise):
        return facts_of(node.op).chooses
    return scalar_facts(node.op.scalar_op).selects is not None or all(
        getattr(v.type, "dtype", "") in discrete_dtypes for v in node.outputs
    )


def makes(node: Apply, literals: Kind = Kind.BOTH) -> Kind:
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
    if not any(map(holds_nonfinite, node.outputs)):
        return Kind.NONE
    if isinstance(node.op, Elemwise):
        return scalar_makes(node.op.scalar_op, node.inputs, node.outputs, literals)
    if moved(node) is not None and _keeps_dtype(node):
        return chosen_kinds(node.inputs, literals)
    return facts_of(node.op).makes


def _keeps_dtype(node: Apply) -> bool:
    dtype = getattr(node.outputs[0].type, "dtype", None)
    return all(v.type.dtype == dtype for v in node.inputs if holds_nonfinite(v))


def makes_nan_of_inf(node: Apply) -> bool:
    """Return whether a node may make a NaN from operands that are infinite, or finite.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> makes_nan_of_inf((x - 1.0).owner), makes_nan_of_inf(pt.neg(x).owner)
    (True, False)
    """
    scalar_op = getattr(node.op, "scalar_op", node.op)
    return moved(node) is None and scalar_makes_nan(scalar_op, node.outputs)


def signals(node: Apply, on_c: bool = True, literals: Kind = Kind.BOTH) -> bool:
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
    variables = (*node.inputs, *node.outputs)
    if any(not is_float(v) or v.type.dtype == "float16" for v in variables if holds_nonfinite(v)):
        return False
    return facts_of(op).signals(node, on_c)


def keeps_size(node: Apply, index: int, limit: float) -> bool:
    """Whether a node makes nothing above `limit` from operands that are not above it."""
    if isinstance(node.op, Elemwise):
        return scalar_keeps_size(node.op.scalar_op, node.inputs, node.outputs, limit)
    known = facts_of(node.op)
    if known.keeps_size(node) or known.bound <= limit:
        return True
    data = moved(node)
    if data is None:
        return False
    dtypes = {
        getattr(v.type, "dtype", None) for v in (*data, *filter(holds_nonfinite, node.inputs))
    }
    return dtypes <= {node.outputs[index].type.dtype} and all(
        fits(v, limit) for v in data if isinstance(v, Constant)
    )


def may_lose(node: Apply, operand: int, index: int) -> bool:
    """Whether an output may be empty though an operand is not, so that the output shows nothing."""
    if facts_of(node.op).never_empty:
        return False
    lengths = node.outputs[index].type.shape
    if isinstance(node.op, Elemwise):
        own = node.inputs[operand].type.shape
        return any(n == 1 and not m for n, m in zip(own, lengths, strict=True))
    return not all(lengths)


def regions(node: Apply, inputs: Sequence[Any], output: int, index: Index) -> list[Region]:
    """Return the parts of the operands that one element of an output is computed from.

    Parameters
    ----------
    node : Apply
    inputs : list
        Values of the node's inputs.
    output : int
        Which output.
    index : tuple of int
        The element of that output.

    Returns
    -------
    list of Region
        For an operation of which nothing is known, the whole of every operand.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.dmatrix("x")
    >>> regions(x.sum(axis=1).owner, [np.ones((2, 3))], 0, (1,))
    [Region(operand=0, index=(1, slice(None, None, None)))]
    """
    return facts_of(node.op).depends.regions(node, inputs, output, index)


def reached(
    node: Apply,
    inputs: Sequence[Any],
    masks: Sequence[Any],
    output: int,
    shape: tuple[int, ...],
    arrays: Arrays = NUMPY,
) -> Any:
    """Return which elements of an output are decided by a marked element of an operand.

    Parameters
    ----------
    node : Apply
    inputs : list
        Values of the node's inputs.
    masks : list of (array of bool or None)
        For each input, which of its elements are marked.
    output : int
        Which output.
    shape : tuple of int
        Its shape.
    arrays : Arrays
        The library that the masks belong to.

    Returns
    -------
    array of bool

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.dmatrix("x")
    >>> values = np.ones((2, 2))
    >>> reached(x.sum(axis=1).owner, [values], [values > np.eye(2)], 0, (2,))
    array([ True,  True])
    """
    depends = facts_of(node.op).depends
    return depends.reached(arrays, node, inputs, masks, output, tuple(shape))
