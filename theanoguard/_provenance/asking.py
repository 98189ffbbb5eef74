"""Asking where the nodes of a compiled graph come from."""

from collections.abc import Iterator, Mapping

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from theanoguard._provenance.records import Provenance
from theanoguard._provenance.tracker import (
    ORIGIN,
    Origin,
    ProvenanceTracker,
    frozen_tracker,
    tracker_of,
)
from theanoguard._pytensor import frozen_graph_class


def lookup(fgraph, variable):
    """Provenance of a variable of a compiled graph.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph; without a tracker (a copy of a function, an inner graph) the variable's own
        tags are read.
    variable : Variable or Apply
        A variable of the graph.  A node means its first output.

    Returns
    -------
    Provenance
        If no tracker recorded the variable, it is read from PyTensor's own stack trace.
    """
    if not isinstance(variable, Variable):
        variable = variable.outputs[0]
    tracker = tracker_of(fgraph) if isinstance(fgraph, FunctionGraph) else None
    if tracker is not None and tracker.knows(variable):
        return tracker.lookup(variable)
    if frozen_graph_class is not None and isinstance(fgraph, frozen_graph_class):
        tracker, known = frozen_tracker(fgraph)
        variable = known.get(variable, variable)
    origin = getattr(variable.tag, ORIGIN, None)
    if isinstance(origin, Origin):
        return origin.tracker.lookup(origin.variable)
    if isinstance(origin, Provenance):
        return origin
    # An empty tracker reads only the tags of the variable itself.
    return (tracker or ProvenanceTracker()).lookup(variable)


def lookup_inner(op, fgraph, variable):
    """Provenance of a variable of the linked inner graph of an op.

    PyTensor 3.3 links a thawed copy of the op's frozen graph.  Only the frozen graph has a record
    of where its variables came from.

    Parameters
    ----------
    op : Op
        An op with an inner graph, ``op.fgraph``.
    fgraph : FunctionGraph
        The graph that was linked for it.
    variable : Variable or Apply
        A variable or node of `fgraph`.

    Returns
    -------
    Provenance
    """
    if not isinstance(variable, Variable):
        variable = variable.outputs[0]
    found = lookup(fgraph, variable)
    held_graph = getattr(op, "fgraph", fgraph)  # (a LazyIfElse has one graph per branch)
    if found.source is not None or fgraph is held_graph:
        return found
    seen = set()
    todo = list(zip(fgraph.outputs, held_graph.outputs, strict=False))
    while todo:
        linked, held = todo.pop()
        if linked is variable:
            return lookup(held_graph, held)
        same = linked.owner and held.owner and linked.owner.op == held.owner.op
        if same and linked.owner not in seen:
            seen.add(linked.owner)
            todo += zip(linked.owner.outputs, held.owner.outputs, strict=True)
            todo += zip(linked.owner.inputs, held.owner.inputs, strict=True)
    return found


def inner_input(op, fgraph, position):
    """Provenance of an input of the linked inner graph of an op.

    Parameters
    ----------
    op : Op
        An op with an inner graph.
    fgraph : FunctionGraph
        The graph that was linked for it.
    position : int
        Which of its inputs.

    Returns
    -------
    Provenance
    """
    held_graph = getattr(op, "fgraph", fgraph)
    found = lookup(fgraph, fgraph.inputs[position])
    if found.own_name or len(held_graph.inputs) != len(fgraph.inputs):
        return found
    return lookup(held_graph, held_graph.inputs[position])


class ProvenanceMap(Mapping):
    """Provenance of every node and variable of one graph, computed on first access.

    Parameters
    ----------
    fgraph : FunctionGraph
    """

    def __init__(self, fgraph):
        self.fgraph = fgraph

    def __getitem__(self, key):
        if key not in self.fgraph.variables and key not in self.fgraph.apply_nodes:
            raise KeyError(f"{key} is not in the compiled graph")
        return lookup(self.fgraph, key)

    def __iter__(self) -> Iterator[Variable | Apply]:
        for node in self.fgraph.toposort():
            yield node
            yield from node.outputs
        yield from (v for v in self.fgraph.variables if v.owner is None)

    def __len__(self):
        return len(self.fgraph.variables) + len(self.fgraph.apply_nodes)


def provenance(fn):
    """Return where the nodes of a compiled function come from.

    Parameters
    ----------
    fn : Function or FunctionGraph
        A function compiled inside :func:`track_provenance` or under a guard.  For any other
        function, the provenance is read from PyTensor's own stack traces.

    Returns
    -------
    ProvenanceMap
        A mapping from each node and each variable of the compiled graph to its
        :class:`Provenance`.

    Raises
    ------
    TypeError
        If `fn` is neither.
    """
    fgraph = fn if isinstance(fn, FunctionGraph) else getattr(fn, "maker", None)
    if fgraph is not None and not isinstance(fgraph, FunctionGraph):
        fgraph = fgraph.fgraph
    if fgraph is None:
        raise TypeError(
            f"provenance() takes a compiled function or a FunctionGraph, not {type(fn).__name__}.\n"
            "Compile it with pytensor.function inside `with theanoguard.track_provenance():`."
        )
    return ProvenanceMap(fgraph)
