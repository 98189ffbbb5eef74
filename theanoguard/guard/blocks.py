"""Which nodes can run on blocks of rows, so that large arrays are read while the cache holds them.

What an elementwise node reads and writes is scanned block by block, on C and Numba.  A scan of the
whole array would fetch it from memory once more.
"""

from collections.abc import Iterable, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import ScalarType
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import FusedElemwise


def first_readers(variables: Iterable[Variable], order: Sequence[Apply]) -> dict[Variable, Apply]:
    """Return the first node that reads each variable which may be a large array."""
    waiting, found = set(filter(may_be_large, variables)), {}
    for node in order:
        if isinstance(node.op, Shape | Shape_i):
            continue  # reads no element
        readers = waiting.intersection(node.inputs)
        waiting -= readers
        found.update(dict.fromkeys(readers, node))
    return found


def may_be_large(variable: Variable) -> bool:
    """Whether a variable may be a large array of real numbers."""
    kind = variable.type
    return (
        isinstance(kind, TensorType)
        and kind.dtype in ("float32", "float64")
        and kind.ndim > 0
        and not any(kind.broadcastable)
    )


def runs_in_blocks(node: Apply) -> bool:
    """Whether rows can be computed on their own: all operands have one shape, or one element."""
    return isinstance(node.op, Elemwise) and _have_one_shape(node)


def reduces(node: Apply) -> bool:
    """Whether a node computes elementwise and reduces, in one loop that reads all its operands."""
    return (
        isinstance(node.op, FusedElemwise)
        and not node.op.destroy_map
        and not any(node.op.indexed_inputs)
        and not any(node.op.indexed_outputs)
        and _have_one_shape(node)
    )


def _have_one_shape(node: Apply) -> bool:
    return all(
        isinstance(v.type, ScalarType) or all(v.type.broadcastable) or not any(v.type.broadcastable)
        for v in node.inputs
    )
