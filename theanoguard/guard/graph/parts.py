"""The plans of a graph and of the graphs in it that a backend compiles on their own."""

from collections.abc import Iterator
from dataclasses import dataclass

from theanoguard.guard.plan import Plan, gives_clean


@dataclass(frozen=True)
class Part:
    """The plan of a graph, and of those inside of it that are compiled on their own.

    Parameters
    ----------
    plan : Plan
    inner : dict of Apply to list of Part
    """

    plan: object
    inner: dict

    def plans(self) -> Iterator:
        """Yield the plans of this graph and of those inside."""
        yield self.plan
        for parts in self.inner.values():
            for part in parts:
                yield from part.plans()

    def graphs(self) -> dict:
        """Return the inner graphs as they are compiled, by node; not those of branches."""
        found = {}
        for node, parts in self.inner.items():
            if len(parts) == 1:
                found[node] = parts[0].plan.fgraph
            for part in parts:
                found |= part.graphs()
        return found


def plan_of(fgraph, order, policy, inner_graphs, is_inner=False):
    """Return the plan of a graph and of those in it, as a :class:`Part`.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : list of Apply
    policy : Policy
    inner_graphs : callable
        ``inner_graphs(node)`` returns those that the backend compiles on their own.
    is_inner : bool
    """
    inner = {
        node: [plan_of(graph, graph.toposort(), policy, inner_graphs, True) for graph in graphs]
        for node in order
        if (graphs := inner_graphs(node))
    }
    plan = Plan(
        fgraph,
        order,
        policy,
        updated=() if is_inner else fgraph.inputs,
        guarded_inner=inner,
        whole_inner={n for n, parts in inner.items() if gives_clean(n, [p.plan for p in parts])},
        is_inner=is_inner,
    )
    return Part(plan, inner)
