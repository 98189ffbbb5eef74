"""Products that XLA compiles as selections.

Where ``mask`` is a boolean converted to a number, XLA computes ``x * mask`` as ``mask ? x : 0``.
So a NaN or an Inf in ``x`` is lost where the mask is false, although IEEE 754 makes it a NaN.  The
same holds for a matrix product with a mask, and for ``tril`` and ``triu``, which PyTensor writes as
products with a mask.
"""

from collections.abc import Collection, Iterable

from pytensor import scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Eye
from pytensor.tensor.elemwise import Elemwise

from theanoguard.operations import moved


def may_select(node: Apply, masks: Collection[Variable]) -> bool:
    """Whether XLA may compile a node as a selection, because one of its operands is a mask.

    `masks`: the result of :func:`masks_in`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, y = pt.dvectors("x", "y")
    >>> [may_select(v.owner, set()) for v in (x * (y > 0), x * y, x + (y > 0))]
    [True, False, False]
    """
    if isinstance(node.op, Elemwise):
        scalar_op = node.op.scalar_op
        if isinstance(scalar_op, ps.Composite):
            inside = [v for n in scalar_op.fgraph.toposort() for v in n.outputs]
            if any(is_mask(v, ()) for v in inside):
                return True
        elif not isinstance(scalar_op, ps.Mul):
            return False
    return any(is_mask(v, masks) for v in node.inputs)


def is_mask(variable: Variable, masks: Collection[Variable]) -> bool:
    """Whether a value may be a boolean, or one of `masks`."""
    return getattr(variable.type, "dtype", None) == "bool" or variable in masks


def masks_in(order: Iterable[Apply], entering: Iterable[Variable] = ()) -> set[Variable]:
    """Return the variables that may be booleans converted to numbers.

    - `order`: iterable of Apply in topological order.
    - `entering`: inputs of the graph that may be such numbers.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.traversal import toposort
    >>> x = pt.dvector("x")
    >>> mask, other, tri = pt.cast(x > 0, "float64")[1:], pt.exp(x), pt.tri(3)
    >>> found = masks_in(toposort([mask, other, tri]))
    >>> [v in found for v in (mask, other, tri)]
    [True, False, True]
    """
    found = set(entering)
    for node in order:
        given = [is_mask(v, found) for v in node.inputs]
        if isinstance(node.op, OpFromGraph):  # JAX inlines it
            inner = node.op.fgraph
            inputs = [v for v, is_it in zip(inner.inputs, given, strict=True) if is_it]
            inside = masks_in(inner.toposort(), inputs)
            outputs = zip(node.outputs, inner.outputs, strict=True)
            found.update(v for v, source in outputs if is_mask(source, inside))
        elif isinstance(node.op, Eye) or (any(given) and _keeps_masks(node)):
            found.update(node.outputs)
    return found


def _keeps_masks(node: Apply) -> bool:
    if isinstance(node.op, Elemwise):
        return isinstance(node.op.scalar_op, (ps.Cast, ps.Mul, ps.Identity))
    return moved(node) is not None
