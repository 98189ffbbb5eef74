"""The model of a graph from which every rendering is made.

The terminal text, the picture, the HTML and the JSON are made from a :class:`GraphModel`.  None
of them walks PyTensor's graph itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.graph.type import Type
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from theanoguard._event import GuardEvent, row_name
from theanoguard._graph import role_of
from theanoguard._json import from_plain, to_plain
from theanoguard._provenance import Provenance, lookup
from theanoguard._shown import brief
from theanoguard._text import shortened
from theanoguard._traversal import postorder

#: Version of the JSON form.  It increases when a field changes its meaning or is removed.
SCHEMA = 1

_MAX_VALUE = 80

Marks = Mapping[Variable | Apply, Any] | GuardEvent | Sequence[GuardEvent]
"""The marks of variables and nodes, or the events that name what they mark."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of the last value of a variable."""

    dtype: str
    shape: tuple[int | None, ...]
    #: `min`, `max`, `mean`: over the finite elements.  None if there are none, or for complex
    #: values.  If the sum overflows, only the mean is None.
    min: float | None
    max: float | None
    mean: float | None
    n_bad: int  # number of NaN and infinite elements

    def __str__(self) -> str:
        if self.min is None:
            return f"bad={self.n_bad}"
        mean = "?" if self.mean is None else f"{self.mean:.4g}"
        return f"min={self.min:.4g} max={self.max:.4g} mean={mean} bad={self.n_bad}"


def statistics(value: Any) -> Statistics | None:
    """Statistics of a value.

    Return None if the value is not an array of numbers.

    Of a sparse matrix, only the stored elements count.

    Examples
    --------
    >>> print(statistics([1.0, 3.0, float("nan")]))
    min=1 max=3 mean=2 bad=1
    """
    shape = getattr(value, "shape", None)
    array = np.asarray(getattr(value, "data", value) if hasattr(value, "tocsr") else value)
    if array.dtype.kind not in "biufc":
        return None
    shape = tuple(int(n) for n in (array.shape if shape is None else shape))
    finite = array[np.isfinite(array)]
    n_bad = array.size - finite.size
    if not finite.size or array.dtype.kind == "c":
        return Statistics(str(array.dtype), shape, None, None, None, n_bad)
    with np.errstate(all="ignore"):
        mean = float(finite.mean(dtype="float64"))
    return Statistics(
        str(array.dtype),
        shape,
        float(finite.min()),
        float(finite.max()),
        mean if np.isfinite(mean) else None,
        n_bad,
    )


@brief
@dataclass
class VariableModel:
    """A variable of a graph."""

    #: ``"n0"``, ``"n1"``, ... in the order of the first visit, as PyTensor 3.3's
    #: ``build_graph_model`` counts.
    key: str
    kind: str  # one of "input", "shared", "constant", "computed"
    name: str | None
    label: str  # as PyTensor prints it
    type: str  # `type`, `dtype`, `shape`: the static type
    dtype: str | None
    shape: list[int | None] | None
    owner: str | None = None  # key of the node that computes it
    index: int = 0  # its position among the outputs of that node
    is_output: bool = False  # whether it is an output of the graph
    update_of: str | None = None  # key of the input that it updates
    value: str | None = None  # for a constant, its shortened value
    statistics: Statistics | None = None  # statistics of its last value
    events: list[str] = field(default_factory=list)
    provenance: Provenance | None = None


@brief
@dataclass
class NodeModel:
    """An Apply node of a graph."""

    #: ``"a0"``, ``"a1"``, ... in the order of the first visit.
    key: str
    op: str  # `op`, `op_type`: the operation as PyTensor prints it, and its class
    op_type: str
    inputs: list[str]  # `inputs`, `outputs`: keys of variables
    outputs: list[str]
    order: int  # position in the order of execution
    destroy_map: dict[int, list[int]] = field(default_factory=dict)
    view_map: dict[int, list[int]] = field(default_factory=dict)
    seconds: float | None = None  # time spent in it
    calls: int | None = None
    provenance: Provenance | None = None
    events: list[str] = field(default_factory=list)
    inner: dict[str, "GraphModel"] = field(default_factory=dict)  # its inner graphs by name
    written: str | None = None  # in the graph as the user wrote it, the expression


@dataclass(repr=False)
class GraphModel:
    """A graph as plain data."""

    inputs: list[str]  # `inputs`, `outputs`: keys of variables
    outputs: list[str]
    variables: dict[str, VariableModel]
    nodes: dict[str, NodeModel]
    name: str | None = None  # name of the function
    #: The live variable or node behind each key; not part of the JSON form.
    objects: dict[str, Any] = field(
        default_factory=dict, repr=False, compare=False, metadata={"json": False}
    )

    def __repr__(self) -> str:
        name = f" of {self.name}" if self.name else ""
        return f"<GraphModel{name}: {len(self.nodes)} nodes, {len(self.variables)} variables>"

    def maker(self, variable: VariableModel) -> NodeModel | None:
        """The node that computes a variable, None for a root."""
        return None if variable.owner is None else self.nodes.get(variable.owner)

    def called(self, variable: VariableModel) -> str:
        """What every view calls a computed variable: its name with its expression; "" if unknown.

        An update has the name of its shared variable: ``W1 <- p - 0.1 * g``.
        """
        known, node = variable.provenance, self.maker(variable)
        name, written = variable.name, None if node is None else node.written
        if known is not None:
            name = name or (known.name if known.own_name else None)
            written = written or known.expression
        old = None if variable.update_of is None else self.variables[variable.update_of]
        return row_name(name, written, None if old is None else old.name or old.label)

    def upstream(self, keys: Iterable[str]) -> set[str]:
        """Some variables and nodes, and all that they are computed from."""

        def before(key: str) -> list[str]:
            if key in self.nodes:
                return self.nodes[key].inputs
            owner = self.variables[key].owner
            return [] if owner is None else [owner]

        return set(walk(keys, before))

    def in_order(self) -> list[NodeModel]:
        """The nodes in the order of execution."""
        return sorted(self.nodes.values(), key=lambda node: node.order)

    def clients(self) -> dict[str, list[tuple[NodeModel, int]]]:
        """Map each variable's key to the (node, input number) pairs that read it."""
        found: dict[str, list[tuple[NodeModel, int]]] = {key: [] for key in self.variables}
        for node in self.in_order():
            for i, key in enumerate(node.inputs):
                found[key].append((node, i))
        return found

    def walk(self) -> Iterator["GraphModel"]:
        """This model and every model of an inner graph below it."""
        yield self
        for node in self.nodes.values():
            for inner in node.inner.values():
                yield from inner.walk()

    def to_dict(self) -> dict[str, Any]:
        """The model as dictionaries, lists, strings and numbers, ready for JSON."""
        return {"schema": SCHEMA, **to_plain(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GraphModel":
        """The model that :meth:`to_dict` was called on, without its live objects.

        Raises ``ValueError``: if `data` was written under another schema.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(
                f"This graph was written under schema {data.get('schema')!r}, "
                f"and this version reads {SCHEMA}.\nWrite it anew."
            )
        model: GraphModel = from_plain(cls, {k: v for k, v in data.items() if k != "schema"})
        return model


# --------------------------------------------------------------------------------------
# Gathering


def graph_model(
    graph: Any,
    *,
    values: Mapping[Variable, Any] | None = None,
    events: Marks | None = None,
    times: Mapping[Apply, float] | None = None,
    with_provenance: bool = True,
) -> GraphModel:
    """Gather the model of a graph.

    - `values`: last values, by variable.
    - `events`: the variables and nodes to mark, and the mark of each: the ``str`` of the object.  A
      list gives several marks.  A `GuardEvent` marks the variable or node that it names.  An event
      from an inner graph marks the node that has the inner graph.
    - `times`: seconds spent in each node.  For a function compiled with ``profile=True``, the times
      are read from its profile.
    - `with_provenance`: whether to look up where nodes come from.
    - Raises ``TypeError``: if `graph` has another type.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> model = graph_model(pt.log(x))
    >>> [node.op for node in model.in_order()]
    ['Log']
    >>> model.variables[model.inputs[0]].name
    'x'
    """
    graphs = list(graph) if isinstance(graph, list | tuple) else [graph]
    inputs: list[Variable] = []
    outputs: list[Variable] = []
    order: list[Apply] = []
    fgraphs: list[FunctionGraph] = []
    names: list[str] = []
    updates: dict[Variable, Variable] = {}
    seconds = dict(times or {})
    calls: dict[Apply, int] = {}
    for item in graphs:
        fgraph = _function_graph(item)
        if fgraph is None:
            outs = [item] if isinstance(item, Variable) else list(getattr(item, "outputs", ()))
            if not outs:
                raise TypeError(
                    f"A {type(item).__name__} has no graph.\nGive a variable, a node, a compiled "
                    "function, a FunctionGraph, or a list of these."
                )
            outputs += outs
            order += _in_order(outs)
            continue
        inputs += fgraph.inputs
        outputs += fgraph.outputs
        order += fgraph.toposort()
        fgraphs.append(fgraph)
        names += [n for n in (getattr(item, "name", None), getattr(fgraph, "name", None)) if n]
        for out, inp in (getattr(fgraph, "update_mapping", None) or {}).items():
            updates[fgraph.outputs[out]] = fgraph.inputs[inp]
        profile = getattr(item, "profile", None)
        if profile:
            _read_profile(profile, fgraph, seconds, calls)
    order = list(dict.fromkeys(order))
    if isinstance(events, Mapping | None):
        marks = events or {}
    else:
        several: Any = events if isinstance(events, list | tuple) else [events]
        marks = _found_events(several, order, inputs)
    gatherer = _Gatherer(values or {}, marks, seconds, calls, with_provenance)
    return gatherer.gather(inputs, outputs, order, fgraphs, updates, names[0] if names else None)


def _in_order(outputs: Sequence[Variable]) -> list[Apply]:
    """The nodes that variables are computed from, each once, after the nodes that it reads.

    PyTensor's own ``toposort`` visits a node that several outputs share once per output.
    """
    owners = [v.owner for v in outputs if v.owner is not None]
    return postorder(owners, lambda node: [v.owner for v in node.inputs if v.owner is not None])


def _found_events(
    events: Iterable[GuardEvent], order: Sequence[Apply], inputs: Sequence[Variable]
) -> dict[Variable | Apply, list[str]]:
    """Map the nodes and variables that events of a guard name to texts of the events."""
    read = (v for node in order for v in node.inputs if v.owner is None)
    roots = dict.fromkeys([*inputs, *read])  # (an input may be unused)
    found: dict[Variable | Apply, list[str]] = {}
    for event in events:
        if event.path:
            things = [node for node in order if str(node.op) == event.path[0].op]
        elif event.role == "node":
            marked = [node for node in order if str(node) == event.node]
            things = [n if len(n.outputs) == 1 else n.outputs[event.output] for n in marked]
        else:
            things = [v for v in roots if v.name == event.variable and v.name is not None]
        at = f" at {list(event.first_index)}" if event.shape else ""
        step = f", step {event.path[0].step}" if event.path else ""
        for thing in things:
            text = f"{event.kind}{at} in call {event.call}{step}"
            found.setdefault(thing, []).append(text)
    return found


def _function_graph(item: Any) -> FunctionGraph | None:
    """The FunctionGraph of a function, or the graph itself; None for a variable or a node."""
    maker = getattr(item, "maker", None)
    item = item if maker is None else maker.fgraph
    is_graph = isinstance(item, FunctionGraph) or hasattr(item, "apply_nodes")
    return item if is_graph else None


def _read_profile(
    profile: Any, fgraph: FunctionGraph, times: dict[Apply, float], calls: dict[Apply, int]
) -> None:
    for (graph, node), seconds in profile.apply_time.items():
        if graph is fgraph:
            times.setdefault(node, seconds)
    for (graph, node), count in profile.apply_callcount.items():
        if graph is fgraph:
            calls[node] = count


@dataclass
class _Gatherer:
    values: Mapping[Variable, Any]
    events: Mapping[Variable | Apply, Any]
    times: Mapping[Apply, float]
    calls: Mapping[Apply, int]
    with_provenance: bool

    def gather(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        order: Sequence[Apply],
        fgraphs: Iterable[FunctionGraph],
        updates: Mapping[Variable, Variable],
        name: str | None = None,
        inner_provenance: Sequence[Provenance] = (),
    ) -> GraphModel:
        variable_keys, node_keys = _keys(outputs, order, inputs)
        position = {node: i for i, node in enumerate(order)}
        home = {v: g for g in fgraphs for v in g.variables}
        is_output = set(outputs)
        known = dict(zip(order, inner_provenance, strict=False))
        nodes: dict[str, NodeModel] = {}
        variables: dict[str, VariableModel] = {}
        found: dict[Variable, Provenance | None] = {}
        for node, key in node_keys.items():
            nodes[key] = self._node(node, key, position[node], variable_keys)
            provenance = self._provenance(node.outputs[0], home, known.get(node))
            nodes[key].provenance = found[node.outputs[0]] = provenance
            nodes[key].inner = dict(self._inner(node, provenance))
        for v, key in variable_keys.items():
            if v in found:  # (already looked up for its node)
                provenance = found[v]
            else:
                provenance = self._provenance(v, home, known.get(v.owner) if v.owner else None)
            variables[key] = self._variable(v, key, node_keys, provenance)
            variables[key].is_output = v in is_output
            if v in updates:
                variables[key].update_of = variable_keys[updates[v]]
        roots = inputs or [
            v for v in variable_keys if v.owner is None and not isinstance(v, Constant)
        ]
        return GraphModel(
            inputs=[variable_keys[v] for v in roots],
            outputs=[variable_keys[v] for v in outputs],
            variables=variables,
            nodes=nodes,
            name=name,
            objects={key: thing for thing, key in (*variable_keys.items(), *node_keys.items())},
        )

    def _provenance(
        self,
        variable: Variable,
        home: Mapping[Variable, FunctionGraph],
        known: Provenance | None,
    ) -> Provenance | None:
        if not self.with_provenance:
            return None
        return known if known is not None else lookup(home.get(variable), variable)

    def _node(
        self, node: Apply, key: str, order: int, variable_keys: Mapping[Variable, str]
    ) -> NodeModel:
        return NodeModel(
            key=key,
            op=str(node.op),
            op_type=type(node.op).__name__,
            inputs=[variable_keys[v] for v in node.inputs],
            outputs=[variable_keys[v] for v in node.outputs],
            order=order,
            destroy_map={o: list(i) for o, i in getattr(node.op, "destroy_map", {}).items()},
            view_map={o: list(i) for o, i in getattr(node.op, "view_map", {}).items()},
            seconds=self.times.get(node),
            calls=self.calls.get(node),
            events=_marks(self.events.get(node)),
        )

    def _variable(
        self,
        variable: Variable,
        key: str,
        node_keys: Mapping[Apply, str],
        provenance: Provenance | None,
    ) -> VariableModel:
        value = self.values.get(variable)
        if value is not None and not isinstance(value, Statistics):
            value = statistics(value)
        owner = node_keys[variable.owner] if variable.owner is not None else None
        found = variable_model(variable, key, owner, provenance)
        found.statistics, found.events = value, _marks(self.events.get(variable))
        return found

    def _inner(
        self, node: Apply, provenance: Provenance | None
    ) -> Iterator[tuple[str, GraphModel]]:
        for name, graph in inner_graphs(node):
            order = list(graph.toposort())
            # A fused node has one inner graph, and one provenance for each node in it.  Other
            # nodes have none.
            per_node = provenance.inner if provenance is not None else ()
            yield (
                name,
                self.gather(
                    list(graph.inputs),
                    list(graph.outputs),
                    order,
                    [graph],
                    {},
                    inner_provenance=per_node,
                ),
            )


def variable_model(
    variable: Variable, key: str, owner: str | None, provenance: Provenance | None
) -> VariableModel:
    """The model of a variable, without its value and its marks."""
    return VariableModel(
        key=key,
        kind=role_of(variable) if variable.owner is None else "computed",
        name=variable.name,
        label=str(variable),
        type=str(variable.type),
        dtype=getattr(variable.type, "dtype", None),
        shape=_static_shape(variable.type),
        owner=owner,
        index=variable.index or 0,
        value=_one_line(variable.data) if isinstance(variable, Constant) else None,
        provenance=provenance,
    )


def inner_graphs(node: Apply) -> Iterator[tuple[str, FunctionGraph]]:
    """The inner graphs of a node, including those of a wrapped scalar or core operation.

    Yields
    ------
    (str, FunctionGraph or FrozenFunctionGraph)
        The name, ``""`` if there is only one graph, and the graph.
    """
    op = node.op
    if isinstance(op, Elemwise):
        op = op.scalar_op
    elif isinstance(op, Blockwise):
        op = op.core_op
    several = getattr(op, "inner_graphs", None)
    if isinstance(several, Mapping):
        yield from several.items()
    elif getattr(op, "fgraph", None) is not None:
        yield "", op.fgraph


def _keys(
    outputs: Sequence[Variable], order: Iterable[Apply], inputs: Iterable[Variable]
) -> tuple[dict[Variable, str], dict[Apply, str]]:
    """Number variables and nodes in the order of the first visit, depth first."""
    variables: dict[Variable, str] = {}
    nodes: dict[Apply, str] = {}
    todo = [*reversed(outputs)]
    while todo:
        v = todo.pop()
        if v not in variables:
            variables[v] = f"n{len(variables)}"
        node = v.owner
        if node is not None and node not in nodes:
            nodes[node] = f"a{len(nodes)}"
            todo += reversed(node.inputs)
    # The depth-first visit does not reach unused outputs of nodes and unused inputs.
    for node in order:
        for v in (*node.inputs, *node.outputs):
            variables.setdefault(v, f"n{len(variables)}")
        nodes.setdefault(node, f"a{len(nodes)}")
    for v in inputs:
        variables.setdefault(v, f"n{len(variables)}")
    return variables, nodes


def _static_shape(type_: Type) -> list[int | None] | None:
    shape = getattr(type_, "shape", None)
    return [None if n is None else int(n) for n in shape] if isinstance(shape, tuple) else None


def _one_line(value: Any) -> str:
    return shortened(" ".join(str(value).split()), _MAX_VALUE)


def _marks(event: Any) -> list[str]:
    if event is None:
        return []
    return [str(e) for e in (event if isinstance(event, list | tuple) else [event])]
