"""Parts of the checked graphs that the guard writes for backends that compile a whole graph."""

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from theanoguard._pytensor import IfElse


class CompiledOp(Op):
    """An operation that exists in a graph for one backend alone, which compiles it."""

    def perform(self, node, inputs, output_storage):
        raise NotImplementedError(f"{type(self).__name__} is compiled, never run in Python")


class CheckedGraph(FunctionGraph):
    """A graph with checks, which keeps the order in which it was written.

    The order keeps in-place operations behind the nodes that read what they overwrite.

    Parameters
    ----------
    inputs, outputs : list of Variable
    order : list of Apply
    """

    def __init__(self, inputs, outputs, order):
        super().__init__(inputs, outputs, clone=False)
        self.order = order

    def toposort(self):
        """Return the nodes in the order in which they run."""
        known = set(self.order)  # PyTensor 3.0 may put copies behind the outputs of a loop
        return [*self.order, *(node for node in super().toposort() if node not in known)]


def has_elements(variable):
    """Whether values can be looked at: no booleans, and no lists of arrays."""
    return not is_list(variable) and getattr(variable.type, "dtype", "bool") != "bool"


def is_list(variable):
    """Whether a variable is a list of arrays."""
    return hasattr(variable.type, "ttype")


def certain_nodes(plan):
    """Return the nodes whose results count in every call.

    Where PyTensor computes both branches of an ``IfElse``, what only one of them needs may be
    thrown away.
    """
    if not any(isinstance(node.op, IfElse) for node in plan.order):
        return set(plan.order)
    needed = {v.owner for v in plan.fgraph.outputs}
    for node in reversed(plan.order):
        if node in needed:
            certain = node.inputs[:1] if isinstance(node.op, IfElse) else node.inputs
            needed.update(v.owner for v in certain)
    return {node for node in plan.order if node in needed}


def floor_to(limit, dtype):
    """Return the largest number of a floating type that is not above `limit`."""
    largest = np.finfo(dtype).max
    if limit >= largest:
        return largest
    nearest = dtype(limit)
    return nearest if float(nearest) <= limit else np.nextafter(nearest, dtype(0))
