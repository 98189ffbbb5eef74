"""Products that XLA compiles as selections.

Where ``mask`` is a boolean converted to a number, XLA computes ``x * mask`` as ``mask ? x : 0``.
So a NaN or an Inf in ``x`` is lost where the mask is false, although IEEE 754 makes it a NaN.  The
same holds for a matrix product with a mask, and for ``tril`` and ``triu``, which PyTensor writes as
products with a mask.
"""

from pytensor import scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.basic import Alloc, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from theanoguard._pytensor import advanced_subtensor_ops

_MOVING = (
    Alloc,
    DimShuffle,
    Join,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    SpecifyShape,
    Subtensor,
    TensorFromScalar,
    *advanced_subtensor_ops,
)


def may_select(node, masks=()):
    """Whether XLA may compile a node as a selection, because one of its operands is a mask.

    Parameters
    ----------
    node : Apply
    masks : collection of Variable
        Inputs of the graph that may be masks.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, y = pt.dvectors("x", "y")
    >>> may_select((x * (y > 0)).owner), may_select((x * y).owner), may_select((x + (y > 0)).owner)
    (True, False, False)
    """
    if isinstance(node.op, Elemwise):
        scalar_op = node.op.scalar_op
        if isinstance(scalar_op, ps.Composite):
            inside = [v for n in scalar_op.fgraph.toposort() for v in n.outputs]
            if any(v.type.dtype == "bool" for v in inside):
                return True
        elif not isinstance(scalar_op, ps.Mul):
            return False
    return any(is_mask(v, masks) for v in node.inputs)


def is_mask(variable, masks=()):
    """Whether a value may be a boolean, or one that was converted to a number.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> is_mask(pt.cast(x > 0, "float64")[1:]), is_mask(pt.exp(x)), is_mask(pt.tri(3))
    (True, False, True)
    """
    if getattr(variable.type, "dtype", None) == "bool" or variable in masks:
        return True
    node = variable.owner
    if node is None:
        return False
    if isinstance(node.op, Eye):
        return True
    if isinstance(node.op, OpFromGraph):  # JAX inlines it
        inner = node.op.fgraph
        given = [v for v, o in zip(inner.inputs, node.inputs, strict=False) if is_mask(o, masks)]
        return is_mask(inner.outputs[node.outputs.index(variable)], given)
    if isinstance(node.op, Elemwise):
        converts = isinstance(node.op.scalar_op, (ps.Cast, ps.Mul, ps.Identity))
        return converts and any(is_mask(v, masks) for v in node.inputs)
    return isinstance(node.op, _MOVING) and any(is_mask(v, masks) for v in node.inputs)
