"""Names that releases of PyTensor have in other places, or not at all."""

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.op import Op

try:  # 3.3 moved it
    from pytensor.conditional.op import IfElse, ifelse
except ImportError:
    from pytensor.ifelse import IfElse, ifelse

try:  # 3.3 compiles the branches of an IfElse for Numba and JAX as functions
    from pytensor.conditional.op import LazyIfElse
except ImportError:

    class LazyIfElse(Op):  # type: ignore[no-redef]
        """Stands in for an operation that PyTensor 3.0 does not have."""


try:  # 3.3 fuses indexing and reductions too, for Numba, into ops with an inner graph
    from pytensor.compile.builders import FinalizedOpFromGraph
except ImportError:  # what 3.0 wraps for Numba: batches and random draws
    from pytensor.tensor.blockwise import OpWithCoreShape as FinalizedOpFromGraph


try:  # one of them: an elementwise operation with its indexing and its reductions, in one loop
    from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
except ImportError:

    class FusedElemwise(OpFromGraph):  # type: ignore[no-redef]
        """Stands in for an operation that PyTensor 3.0 does not have."""


try:  # 3.3 links inner functions through this base class
    from pytensor.compile.inner_function import link_only_mode
except ImportError:
    link_only_mode = None
