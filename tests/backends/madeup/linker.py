"""The guarded linker of the made-up backend."""

from madeup_linker import MadeUpLinker, converted
from theanoguard.guard.madeup import BACKEND

from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import OpFromGraph
from theanoguard.guard.graph.linker import FlaggedLinker
from theanoguard.guard.graph.ops import Flag
from theanoguard.guard.verdict import suspected
from theanoguard.operations.regions import NUMPY


@converted.register(Flag)
def _flag(op, node):
    def flag(*inputs):
        groups, _ = op.grouped(inputs)
        return any(
            op.policy.mask(value).any()
            if watched.node is None
            else suspected(NUMPY, watched.node, given, watched.output, value, op.policy).any()
            for watched, value, given in groups
        )

    return flag


class MadeUpGuardLinker(FlaggedLinker, MadeUpLinker):
    """A ``MadeUpLinker`` whose functions are guarded."""

    backend = BACKEND

    def runtime(self, order, input_storage, storage_map):
        return self.flagged(order, input_storage, storage_map, lambda node: [], WholeKernels("py"))


class WholeKernels(Kernels):
    """Kernels in Python that do not step into inner graphs."""

    def runs_whole(self, node):
        return isinstance(node.op, OpFromGraph)
