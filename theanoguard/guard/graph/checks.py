"""Parts of the checked graphs that the guard writes for backends that compile a whole graph."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NoReturn

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from theanoguard._pytensor import IfElse
from theanoguard.guard.plan import GraphPlan


class CompiledOp(Op):
    """An operation that exists in a graph for one backend alone, which compiles it."""

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} is compiled, never run in Python")


class CheckedGraph(FunctionGraph):
    """A graph with checks, which keeps the order in which it was written.

    The order keeps in-place operations behind the nodes that read what they overwrite.
    """

    def __init__(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], order: list[Apply]
    ) -> None:
        super().__init__(inputs, outputs, clone=False)
        self.order = order

    def toposort(self) -> list[Apply]:
        """Return the nodes in the order in which they run."""
        known = set(self.order)  # PyTensor 3.0 may put copies behind the outputs of a loop
        return [*self.order, *(node for node in super().toposort() if node not in known)]


def certain_variables(plan: "GraphPlan") -> set[Variable]:
    """Return the outputs of nodes that count in every call.

    Where PyTensor computes both branches of an ``IfElse``, what only one of them needs may be
    thrown away.  What both of them need counts.  PyTensor may fuse operations of both branches into
    one node, so a node can have outputs of which only some count.
    """
    made = [v for node in plan.order for v in node.outputs]
    if not any(isinstance(node.op, IfElse) for node in plan.order):
        return set(made)
    own = {v: 1 << i for i, v in enumerate(made)}  # sets of variables are integers, one bit each
    needs: dict[Variable, int] = {}  # by variable, the variables that count if it does

    def needed(variables: Iterable[Variable]) -> int:
        return reduce(or_, (needs[v] for v in variables if v in needs), 0)

    for node in plan.order:
        if isinstance(node.op, IfElse):
            condition, first = node.inputs[0], 1 + node.op.n_outs
            branches = needed(node.inputs[1:first]), needed(node.inputs[first:])
            if isinstance(condition, Constant):
                operands = branches[0 if np.all(condition.data) else 1]
            else:
                operands = needed([condition]) | branches[0] & branches[1]
        else:
            operands = needed(node.inputs)
        needs.update((v, own[v] | operands) for v in node.outputs)
    counting = needed(plan.fgraph.outputs)
    read = {v for node in plan.order for v in node.inputs} | set(plan.fgraph.outputs)
    certain = {v for v in made if counting & own[v]}
    for node in plan.order:  # what is only there to be checked counts like the others
        others = [v for v in node.outputs if v in read]
        if not others or not certain.isdisjoint(others):
            certain.update(v for v in node.outputs if v not in read)
    return certain


def floor_to(limit: float, dtype: type[np.floating]) -> np.floating:
    """Return the largest number of a floating type that is not above `limit`."""
    largest = np.finfo(dtype).max
    if limit >= largest:
        return largest
    nearest = dtype(limit)
    return nearest if float(nearest) <= limit else np.nextafter(nearest, dtype(0))
