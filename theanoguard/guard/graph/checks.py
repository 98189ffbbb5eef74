"""Parts of the checked graphs that the guard writes for backends that compile a whole graph."""

from functools import reduce
from operator import or_

import numpy as np
from pytensor.graph.basic import Constant
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
    thrown away.  What both of them need counts.
    """
    if not any(isinstance(node.op, IfElse) for node in plan.order):
        return set(plan.order)
    needs = {}  # by node, the nodes that count if it does: one bit each, since most graphs are long

    def needed(variables):
        return reduce(or_, (needs[v.owner] for v in variables if v.owner in needs), 0)

    for i, node in enumerate(plan.order):
        needs[node] = 1 << i
        if isinstance(node.op, IfElse):
            condition, first = node.inputs[0], 1 + node.op.n_outs
            branches = needed(node.inputs[1:first]), needed(node.inputs[first:])
            if isinstance(condition, Constant):
                needs[node] |= branches[0 if np.all(condition.data) else 1]
            else:
                needs[node] |= needed([condition]) | branches[0] & branches[1]
        else:
            needs[node] |= needed(node.inputs)
    certain = needed(plan.fgraph.outputs)
    return {node for i, node in enumerate(plan.order) if certain >> i & 1}


def floor_to(limit, dtype):
    """Return the largest number of a floating type that is not above `limit`."""
    largest = np.finfo(dtype).max
    if limit >= largest:
        return largest
    nearest = dtype(limit)
    return nearest if float(nearest) <= limit else np.nextafter(nearest, dtype(0))
