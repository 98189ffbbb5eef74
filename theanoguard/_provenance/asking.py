"""Asking where the nodes of a compiled graph come from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from theanoguard._provenance.records import Provenance
from theanoguard._provenance.tracker import (
    ORIGIN,
    Origin,
    ProvenanceTracker,
    frozen_tracker,
    tracker_of,
)
from theanoguard._pytensor import IfElse, frozen_graph_class
from theanoguard._shown import brief, html_table
from theanoguard._text import cut


def lookup(fgraph: FunctionGraph, variable: Variable | Apply) -> Provenance:
    """Provenance of a variable of a compiled graph.

    If no tracker recorded the variable, it is read from PyTensor's own stack trace.

    `fgraph`: the graph; without a tracker (a copy of a function, an inner graph) the variable's own
    tags are read.
    `variable`: a variable of the graph.  A node means its first output.
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


def lookup_inner(op: Op, fgraph: FunctionGraph, variable: Variable | Apply) -> Provenance:
    """Provenance of a variable of the linked inner graph of an op.

    PyTensor 3.3 links a thawed copy of the op's frozen graph.  Only the frozen graph has a record
    of where its variables came from.

    `op`: an op with an inner graph, ``op.fgraph``.
    `fgraph`: the graph that was linked for it.
    `variable`: a variable or node of `fgraph`.
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


def inner_input(op: Op, fgraph: FunctionGraph, position: int) -> Provenance:
    """Provenance of an input of the linked inner graph of an op.

    `op`: an op with an inner graph.
    `fgraph`: the graph that was linked for it.
    `position`: which of its inputs.
    """
    held_graph = getattr(op, "fgraph", fgraph)
    found = lookup(fgraph, fgraph.inputs[position])
    if found.own_name or len(held_graph.inputs) != len(fgraph.inputs):
        return found
    return lookup(held_graph, held_graph.inputs[position])


@dataclass(frozen=True)
class Built:
    """The part of the user's graph, before rewriting, that a compiled node computes."""

    tracker: ProvenanceTracker
    #: The nodes with their inputs, in an order in which they can be computed.
    nodes: tuple[tuple[Apply, tuple[Variable, ...]], ...]
    #: The user's variables that equal a variable of the compiled graph, with that variable.
    known: dict[Variable, Variable]

    def inputs_of(self, node: Apply) -> Sequence[Variable]:
        """The inputs that a node had before rewriting."""
        return self.tracker.inputs_of(node)


def built_from(fgraph: FunctionGraph, node: Apply, known: Iterable[Variable]) -> Built | None:
    """Return what a compiled node computes, as the user built it.

    Return None if nothing is recorded about the node.

    `node`: a node of the graph.
    `known`: variables of the graph.  Nothing is collected beyond them.
    """
    found = None
    for found in _versions(fgraph, node.outputs[0]):
        if found[1].owner not in found[0].original:  # else an earlier tracker may know more
            break
    if found is None:
        return None
    tracker, variable = found
    same: dict[Variable, Variable] = {}
    for v in known:
        older = next((old for at, old in _versions(fgraph, v) if at is tracker), v)
        same |= {equal: v for equal in (older, *tracker.equals(older))}
    nodes, todo = {}, [(n, False) for n in tracker.replaced_by(variable.owner)]
    while todo:
        node, is_ready = todo.pop()
        inputs = tracker.inputs_of(node)
        if is_ready:
            nodes[node] = tuple(inputs)
        elif node not in nodes:
            todo.append((node, True))
            # (of the branches of an IfElse, one is not computed)
            above = () if isinstance(node.op, IfElse) else inputs
            todo += [(v.owner, False) for v in above if v.owner is not None and v not in same]
    return Built(tracker, tuple(nodes.items()), same)


def _versions(
    fgraph: FunctionGraph, variable: Variable
) -> Iterator[tuple[ProvenanceTracker, Variable]]:
    """Yield the trackers that have recorded a variable, latest first, and what each knows it as."""
    tracker = tracker_of(fgraph) if isinstance(fgraph, FunctionGraph) else None
    if tracker is not None:
        yield tracker, variable
    if frozen_graph_class is not None and isinstance(fgraph, frozen_graph_class):
        variable = frozen_tracker(fgraph)[1].get(variable, variable)
    while isinstance(origin := getattr(variable.tag, ORIGIN, None), Origin):
        if origin.tracker is not tracker:
            yield origin.tracker, origin.variable
        if origin.variable is variable:
            return
        tracker, variable = origin.tracker, origin.variable


SHOWN = 40  # the ``repr`` of a :class:`ProvenanceMap` has the lines of that many nodes


@brief
class ProvenanceMap(Mapping):
    """Provenance of every node and variable of one graph, computed on first access."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph

    def __getitem__(self, key: Variable | Apply) -> Provenance:
        if key not in self.fgraph.variables and key not in self.fgraph.apply_nodes:
            raise KeyError(f"{key} is not in the compiled graph")
        return lookup(self.fgraph, key)

    def __iter__(self) -> Iterator[Variable | Apply]:
        for node in self.fgraph.toposort():
            yield node
            yield from node.outputs
        yield from (v for v in self.fgraph.variables if v.owner is None)

    def __repr__(self) -> str:
        nodes = self.fgraph.toposort()
        # (the provenance of a node is worked out when it is asked for)
        shown = [f"{node}: {self[node].source}" for node in nodes[:SHOWN]]
        if len(nodes) > SHOWN:
            shown.append(f"... {len(nodes) - SHOWN} nodes left out: they are the keys.")
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        nodes = self.fgraph.toposort()
        # (the provenance of a node is worked out when it is asked for)
        known = [(node, self[node]) for node in nodes[:SHOWN]]
        rows = [(cut(n, 60), p.expression or p.name or "", p.source or "") for n, p in known]
        heads = ("Compiled node", "From", "Line")
        return html_table(f"{len(nodes)} nodes", heads, rows, "they are the keys.")

    def __len__(self) -> int:
        return len(self.fgraph.variables) + len(self.fgraph.apply_nodes)


def provenance(fn: Any) -> ProvenanceMap:
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
