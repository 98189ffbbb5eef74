"""What listens to the changes of a graph."""

from pytensor.graph import features
from pytensor.graph.features import (
    AlreadyThere,
    BadOptimization,
    Bookkeeper,
    Feature,
    ReplacementDidNotRemoveError,
)

ReplacementDidntRemovedError = ReplacementDidNotRemoveError


class BadReplacement(BadOptimization, TypeError):
    """A variable was to be replaced by one of another type: a TypeError of PyTensor's."""


class NodeFinder(Bookkeeper):
    """Finds the nodes of an operation: ``fgraph.get_nodes(op)``."""

    def __init__(self):
        self.fgraph = None
        self.d = {}

    def on_attach(self, fgraph):
        if self.fgraph is not None:
            raise Exception("A NodeFinder instance can only serve one FunctionGraph.")
        if hasattr(fgraph, "get_nodes"):
            raise AlreadyThere("NodeFinder is already present.")
        self.fgraph = fgraph
        fgraph.get_nodes = lambda op: self.query(fgraph, op)
        super().on_attach(fgraph)

    def on_detach(self, fgraph):
        if self.fgraph is not fgraph:
            raise Exception("This NodeFinder instance was not attached to the provided fgraph.")
        self.fgraph = None
        del fgraph.get_nodes
        super().on_detach(fgraph)

    def on_import(self, fgraph, node, reason):
        self.d.setdefault(node.op, []).append(node)

    def on_prune(self, fgraph, node, reason):
        nodes = self.d[node.op]
        nodes.remove(node)
        if not nodes:
            del self.d[node.op]

    def query(self, fgraph, op):
        return list(self.d.get(op, ()))


class PrintListener(Feature):
    """Prints each change of a graph."""

    def __init__(self, active=True):
        self.active = active

    def tell(self, *what):
        if self.active:
            print(*what)

    def on_attach(self, fgraph):
        self.tell("-- attaching to: ", fgraph)

    def on_detach(self, fgraph):
        self.tell("-- detaching from: ", fgraph)

    def on_import(self, fgraph, node, reason):
        self.tell(f"-- importing: {node}, reason: {reason}")

    def on_prune(self, fgraph, node, reason):
        self.tell(f"-- pruning: {node}, reason: {reason}")

    def on_change_input(self, fgraph, node, i, r, new_r, reason=None):
        self.tell(f"-- changing ({node}.inputs[{i}]) from {r} to {new_r}")


class PreserveNames(Feature):
    """Gives a variable's name to what replaces it."""

    def on_change_input(self, fgraph, node, i, r, new_r, reason=None):
        if r.name is not None and new_r.name is None:
            new_r.name = r.name


class NoOutputFromInplace(features.NoOutputFromInplace):
    """Keeps outputs from being computed in place: those from the first to before the last."""

    def __init__(self, first_output_idx=0, last_output_idx=None):
        super().__init__(())
        self.range = slice(first_output_idx, last_output_idx)

    def on_attach(self, fgraph):
        self.protected_out_ids = range(len(fgraph.outputs))[self.range]
        super().on_attach(fgraph)

    def clone(self):
        return type(self)(self.range.start, self.range.stop)
