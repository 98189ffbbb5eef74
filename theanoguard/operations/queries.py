"""Questions about a node of a graph, answered from the facts of its operation."""

from collections.abc import Container, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import (
    BinaryBitOp,
    Composite,
    LogicalComparison,
    ScalarOp,
    UnaryBitOp,
    discrete_dtypes,
)
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import Scan, inner_graph
from theanoguard.operations.elementwise import (
    fits,
    scalar_carries,
    scalar_keeps_size,
    scalar_makes,
    scalar_makes_nan,
    scalar_unsignalled,
    unsignalled_inside,
)
from theanoguard.operations.facts import (
    Kind,
    chosen_kinds,
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

    - `operand`: position among ``node.inputs``.
    - Returns: dict of int to Kind by output.  A NaN arrives as a NaN, an Inf as an Inf or a NaN.

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

    `literals`: which kinds of constants count as made by the node that chooses them.

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


def may_make(node: Apply, literals: Kind = Kind.BOTH) -> Kind:
    """Return the kinds of bad values that a node may make from operands that are not errors.

    An Inf that is no error may become a NaN, as in ``sin(inf)``.
    """
    return makes(node, literals) | (Kind.NAN if makes_nan_of_inf(node) else Kind.NONE)


def unsignalled(
    node: Apply,
    backend: str,
    literals: Kind = Kind.BOTH,
    constants: Container[Variable] = (),
) -> Kind:
    """Return the kinds of bad values that a node may make without a flag of the processor.

    It says nothing about where the node runs: code in Python or in other threads has to be known
    to the backend.

    - `backend`: one of "c", "numba".  The backend that compiles it.
    - `literals`: which kinds of constants count as made by the node that chooses them.
    - `constants`: what is computed from constants alone (:func:`from_constants`).

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> unsignalled(pt.log(x).owner, "c"), unsignalled(pt.digamma(x).owner, "c")
    (<Kind.NONE: 0>, <Kind.BOTH: 3>)
    """
    op = node.op
    if not any(map(holds_nonfinite, node.outputs)):
        return Kind.NONE
    if isinstance(op, OpFromGraph):
        return unsignalled_inside(inner_graph(op), unsignalled, backend, literals)
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
    if isinstance(scalar_op, ScalarOp):
        settings = (node.inputs, node.outputs, backend, literals, constants)
        found = scalar_unsignalled(scalar_op, *settings)
        return found | chosen_kinds(node.inputs, literals)
    if makes(node, literals) is Kind.NONE or _signals(node, backend, literals):
        return Kind.NONE
    return may_make(node, literals)


def _signals(node: Apply, backend: str, literals: Kind) -> bool:
    variables = [v for v in (*node.inputs, *node.outputs) if holds_nonfinite(v)]
    return (
        not chosen_kinds(node.inputs, literals)
        and all(is_float(v) and v.type.dtype != "float16" for v in variables)
        and facts_of(node.op).signals(node, backend == "c")
    )


def is_steady(op: Op) -> bool:
    """Whether a NaN does no harm to an operation, and to all that it consists of."""
    if hasattr(op, "core_op"):
        return is_steady(op.core_op)
    if isinstance(op, Scan) and op.info.as_while:
        return False
    inner = getattr(op, "fgraph", None)
    if facts_of(op).steady or inner is None:
        return facts_of(op).steady
    return all(is_steady(node.op) for node in inner.apply_nodes)


def keeps_flags(op: Op, backend: str) -> bool:
    """Whether an operation leaves the flags that have been raised before it."""
    if isinstance(op, OpFromGraph):
        return all(keeps_flags(node.op, backend) for node in inner_graph(op).apply_nodes)
    if backend not in facts_of(op).keeps_flags:
        return False
    scalar_op = op if isinstance(op, ScalarOp) else getattr(op, "scalar_op", None)
    return backend == "c" or scalar_op is None or _is_compiled(scalar_op)


def _is_compiled(scalar_op: ScalarOp) -> bool:
    """Whether Numba compiles a scalar operation, and never runs it in Python."""
    if isinstance(scalar_op, Composite):
        return all(_is_compiled(node.op) for node in scalar_op.fgraph.apply_nodes)
    return "numba" in scalar_facts(scalar_op).signals or isinstance(
        scalar_op, LogicalComparison | BinaryBitOp | UnaryBitOp
    )


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

    - `inputs`: values of the node's inputs.
    - `output`: which output.
    - `index`: the element of that output.
    - Returns: for an operation of which nothing is known, the whole of every operand.

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

    - `inputs`: values of the node's inputs.
    - `masks`: for each input, which of its elements are marked.
    - `output`: which output.
    - `shape`: its shape.
    - `arrays`: the library that the masks belong to.

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
