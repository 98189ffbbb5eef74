"""The rows of a graph's tree: which row stands under which, and which of them matter."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from theanoguard.view.model import GraphModel, NodeModel, VariableModel


@dataclass
class Outline:
    """A graph as a tree of rows, one for each variable that the outputs are computed from.

    The outputs are on top, and under a variable stand the inputs of its node.  A variable that
    several nodes read has its row where the fewest steps lead to it from an output, but for the
    way from the inputs to what is marked, which is not interrupted.
    """

    model: GraphModel
    wanted: tuple[str, ...] = ()  # names of inputs from which the way to what is marked is to lead
    #: Of an inner graph, the outline and the node that it belongs to.
    above: tuple["Outline", str] | None = None
    #: Keys of the variables on top: the outputs, then the inputs that nothing reads.
    roots: list[str] = field(init=False)
    #: For each variable that has a row, the variable of the row that it stands under.
    up: dict[str, str | None] = field(init=False, default_factory=dict)
    #: For each node, which of its outputs has the inputs below it.
    row_of: dict[str, str] = field(init=False, default_factory=dict)
    bad: list[str] = field(init=False)  # keys of the variables that are marked, or whose node is
    #: Keys of the variables on the way from the inputs to those.
    path: set[str] = field(init=False, default_factory=set)
    #: For each node, its inner graphs by name.
    inner: dict[str, list[tuple[str, "Outline"]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        model = self.model
        marked = [node.outputs[0] for node in model.nodes.values() if node.events]
        marked += [v.key for v in model.variables.values() if v.events]
        self.bad = list(dict.fromkeys(marked))
        reader: dict[str, str | None] = {}
        for key in self.bad:
            for way in self._ways(key):
                self.path.update(way)
                for below, above in zip(way[1:], way, strict=False):
                    reader.setdefault(below, model.variables[above].owner)
        carriers = {model.variables[key].owner: key for key in reversed(self.bad)}
        self._place(dict.fromkeys(model.outputs), reader, carriers)
        unread = [key for key in model.inputs if key not in self.up]
        self.up.update(dict.fromkeys(unread))
        self.roots = [*dict.fromkeys(model.outputs), *unread]
        for node in model.nodes.values():
            if node.inner and node.key in self.row_of:
                self.inner[node.key] = [
                    (name, Outline(graph, above=(self, node.key)))
                    for name, graph in node.inner.items()
                ]

    def _place(
        self,
        tops: Collection[str],
        reader: Mapping[str, str | None],
        carriers: Mapping[str | None, str],
    ) -> None:
        """Give every variable its row, those nearest to the outputs first.

        `reader` tells of some variables under which node they stand, `carriers` of some nodes
        under which of their outputs the inputs do.
        """
        used = {*tops, *(key for node in self.model.nodes.values() for key in node.inputs)}
        carriers = {node: key for node, key in carriers.items() if key in used}
        self.up.update(dict.fromkeys(tops))
        todo = deque(tops)
        while todo:
            key = todo.popleft()
            node = self.model.maker(self.model.variables[key])
            if node is None or carriers.get(node.key, key) != key or node.key in self.row_of:
                continue
            self.row_of[node.key] = key
            for below in node.inputs:
                if below not in self.up and reader.get(below, node.key) == node.key:
                    self.up[below] = key
                    todo.append(below)

    def _ways(self, key: str) -> Iterator[list[str]]:
        """Yield the shortest ways to `key` from named inputs, each as keys from it downwards."""
        if whole := self._way(key, lambda v: v.name in self.wanted):
            yield whole
            return
        yield [key]
        for operand in self.inputs(key):
            # The inputs of an inner graph have no names.
            way = self._way(operand, lambda v: v.name) or self._way(operand, lambda v: True)
            yield [key, *way]

    def _way(self, key: str, is_end: Callable[[VariableModel], object]) -> list[str]:
        """Return the keys on the way from `key` to the nearest root that fits; [] without one."""
        found: dict[str, str | None] = {key: None}
        todo = deque([key])
        while todo:
            key = todo.popleft()
            variable = self.model.variables[key]
            if variable.kind in ("input", "shared") and is_end(variable):
                way, after = [key], found[key]
                while after is not None:
                    way.append(after)
                    after = found[after]
                return way[::-1]
            for below in self.inputs(key):
                if below not in found:
                    found[below] = key
                    todo.append(below)
        return []

    def inputs(self, key: str) -> tuple[str, ...]:
        """Keys of the variables that a variable is computed from."""
        node = self.model.maker(self.model.variables[key])
        return () if node is None else tuple(dict.fromkeys(node.inputs))

    def has_rows_below(self, key: str) -> bool:
        """Whether a variable's node has its inputs under this variable."""
        owner = self.model.variables[key].owner
        return owner is not None and self.row_of.get(owner) == key

    def graphs(self, key: str) -> list[tuple[str, "Outline"]]:
        """The inner graphs, with their names, of the node that computes a variable."""
        return self.inner.get(self.model.variables[key].owner or "", [])

    @cached_property
    def clients(self) -> dict[str, list[tuple[NodeModel, int]]]:
        """The nodes that read each variable, as :meth:`GraphModel.clients` tells it."""
        return self.model.clients()

    def chain(self, key: str) -> list[str]:
        """Keys of the rows from `key` up to the top."""
        chain, above = [key], self.up[key]
        while above is not None:
            chain.append(above)
            above = self.up[above]
        return chain

    @cached_property
    def opened(self) -> set[str]:
        """Keys of the rows that are open at first: those on top, and down to what is marked."""
        keys = [key for key in (*self.bad, *self.path) if key in self.up]
        return {*self.roots, *(k for key in keys for k in self.chain(key))}

    def by_weight(self) -> list[str]:
        """Keys of the rows of this graph, those that matter most first.

        First what is marked, with the way from the inputs to it and that to an output, then
        what is nearest below these rows or an output.
        """
        first = [k for key in self.bad if key in self.up for k in reversed(self.chain(key))]
        first += [k for key in self.path if key in self.up for k in reversed(self.chain(key))]
        order = dict.fromkeys([*first, *self.roots])
        todo = deque(order)
        while todo:
            key = todo.popleft()
            if self.has_rows_below(key):
                for below in self.inputs(key):
                    if self.up.get(below) == key and below not in order:
                        order[below] = None
                        todo.append(below)
        return list(order)

    def walk(self) -> Iterator["Outline"]:
        """This outline and all those of inner graphs below it."""
        yield self
        for graphs in self.inner.values():
            for _, graph in graphs:
                yield from graph.walk()
