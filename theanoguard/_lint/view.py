"""The view of the rules: a graph, its bounds, and the readers of each variable."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Optional

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.subtensor import Subtensor

from theanoguard._graph import scalar_class, viewed
from theanoguard._lint.propagate import BoundsOf, inner_bounds
from theanoguard._naming import name_of
from theanoguard._provenance.designating import Designations, made_by_grad
from theanoguard._pytensor import Scan
from theanoguard.explain.facts.labels import MAX_NAME
from theanoguard.operations.names import op_name


class GraphView:
    """A graph with the bounds of its variables.

    - `gradient`: whether the graph is, or will be, differentiated; None: if it holds nodes made by
      ``grad``, then where they are, and else everywhere.
    - `updates`: new values of shared variables, computed with the outputs.
    - `params`: what is to be learnt.
    - `values`: known values of shared variables.
    - `node`: the one inside of which the graph is, or None.
    - `outer`: the graph of that node.
    """

    def __init__(
        self,
        outputs: Iterable[Variable],
        bounds: BoundsOf,
        gradient: bool | None = None,
        *,
        updates: Mapping[Variable, Variable] | None = None,
        params: Iterable[Variable] = (),
        values: Mapping[Variable, Any] | None = None,
        node: Apply | None = None,
        outer: Optional["GraphView"] = None,
    ) -> None:
        self.outputs = list(outputs)
        self.bounds = bounds
        self.updates = dict(updates or {})
        self.params = list(params)
        self.values = values or {}
        self.results = [*self.outputs, *self.updates.values()]
        self.nodes = list(toposort(self.results))
        self.backward = set(filter(made_by_grad, self.nodes))
        self.clients: dict[Variable, list[tuple[Apply, int]]] = defaultdict(list)
        for client in self.nodes:
            for position, variable in enumerate(client.inputs):
                self.clients[variable].append((client, position))
        self.gradient = gradient
        self.node = node
        self.outer = outer

    def inside(self, node: Apply) -> "GraphView":
        """The view of the graph inside a node."""
        return GraphView(
            node.op.fgraph.outputs,
            inner_bounds(node, self.bounds),
            self.is_differentiated(node),
            node=node,
            outer=self,
        )

    def name(self, variable: Variable) -> str:
        """A short readable name of a variable."""
        return name_of(variable, own=self._users_name)

    def argument(self, node: Apply, position: int) -> str:
        """A name of an operand of a node, which a function that the user calls may have made."""
        operand = node.inputs[position]
        around = self._designations.function_around(node.outputs[0])
        if around is None or self._users_name(operand) is not None:
            return self.name(operand)
        return f"the argument of {op_name(node.op)} inside {around}"

    def _users_name(self, variable: Variable) -> str | None:
        """The name of a variable in the user's code, or a short expression."""
        if variable in self._names:
            return self._names[variable]
        if isinstance(variable, Constant) and np.size(variable.data) < 2:
            return None
        found = self._designations.of(variable)
        text = found.name or found.expression
        return text if text and len(text) <= MAX_NAME else None

    @cached_property
    def _designations(self) -> Designations:
        return Designations({node: tuple(node.inputs) for node in self.nodes})

    @cached_property
    def _names(self) -> dict[Variable, str]:
        """The names of the inputs of an inner graph outside of it."""
        if self.node is None or self.outer is None:
            return {}
        op, graph = self.node.op, self.node.op.fgraph
        if not isinstance(op, Scan):
            pairs = zip(graph.inputs, self.node.inputs, strict=True)
            return {inner: self.outer.name(outer) for inner, outer in pairs}
        maps = op.get_oinp_iinp_iout_oout_mappings()
        names = {}
        for i, inner in enumerate(graph.inputs):
            outer = viewed(self.node.inputs[maps["outer_inp_from_inner_inp"][i]])
            if maps["inner_out_from_inner_inp"][i]:
                names[inner] = "the state"
            elif i < op.info.n_seqs:
                while outer.owner is not None and isinstance(outer.owner.op, Subtensor):
                    outer = viewed(outer.owner.inputs[0])  # (scan cuts it to length)
                names[inner] = f"{self.outer.name(outer)}[t]"
            else:
                names[inner] = self.outer.name(outer)
        return names

    def is_differentiated(self, node: Apply) -> bool:
        """Whether the gradient through a node is, or will be, taken."""
        if self.gradient is not None:
            return self.gradient
        around = (*node.inputs, *node.outputs)
        return not self.backward or any(
            client in self.backward for v in around for client, _ in self.clients[v]
        )

    @cached_property
    def hidden(self) -> dict[Apply, tuple[Apply, int]]:
        """Nodes of which every result is only seen through a branch of a ``switch``.

        A dictionary from such nodes to one of those switches and the position of the branch.
        """
        found: dict[Apply, tuple[Apply, int]] = {}
        for node in reversed(self.nodes):
            hiding = None
            for variable in node.outputs:
                if any(variable is v for v in self.results):
                    break
                forward = [c for c in self.clients[variable] if c[0] not in self.backward]
                switches = [self._hiding(*client, found) for client in forward]
                if not all(switches):
                    break
                hiding = next(iter(switches), hiding)
            else:
                if hiding is not None:
                    found[node] = hiding
        return found

    def _hiding(
        self, client: Apply, position: int, found: Mapping[Apply, tuple[Apply, int]]
    ) -> tuple[Apply, int] | None:
        is_branch = position > 0 and scalar_class(client.outputs[0]) is ps.Switch
        return (client, position) if is_branch else found.get(client)
