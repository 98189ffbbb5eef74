"""The graph as the user wrote it, with what is known of the compiled graph."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytensor.graph.basic import Apply, Constant, Variable

from theanoguard._provenance import Provenance, ProvenanceTracker, tracker_of
from theanoguard._pytensor import Function
from theanoguard._traversal import postorder
from theanoguard.view.model import GraphModel, NodeModel, VariableModel, variable_model


def written_model(
    function: Function | None, compiled: GraphModel, cause: Provenance | None = None
) -> GraphModel | None:
    """Return one row for each expression of the user's.

    The steps of a function such as ``softmax``, what reshapes an operand for a broadcast, and the
    steps of a gradient have no rows: a row reads the nearest expressions before it.

    Return None if nobody recorded how the function was rewritten, or if a mark has no row.

    `compiled`: the model of its compiled graph, whose values and marks the rows get.
    `cause`: the provenance of the operation that the report of an error names.
    """
    if function is None:
        return None
    fgraph = function.maker.fgraph
    tracker = tracker_of(fgraph)
    if tracker is None or not tracker.original:
        return None
    rows = _Rows(tracker)
    updated = fgraph.update_mapping or {}
    count = len(function.maker.outputs) + len(updated)
    outputs = [rows.row(v) for v in tracker.original_outputs[:count]]
    rows.updates = {outputs[o]: fgraph.inputs[i] for o, i in updated.items() if o < len(outputs)}
    for v in (*fgraph.inputs, *outputs):
        rows.add(v)
    rows.carry_over(compiled)
    return (
        rows.model(fgraph.inputs, outputs, compiled) if rows.place_marks(compiled, cause) else None
    )


@dataclass
class _Rows:
    tracker: ProvenanceTracker
    operands: dict[Variable, list[Variable]] = field(default_factory=dict)
    updates: dict[Variable, Variable] = field(default_factory=dict)
    made_by: dict[Variable, VariableModel] = field(default_factory=dict)
    marks: dict[Variable, list[str]] = field(default_factory=dict)
    inside: dict[Variable, Variable] = field(default_factory=dict)
    rows: dict[Variable, Variable] = field(default_factory=dict)

    def row(self, variable: Variable) -> Variable:
        """Return the variable in whose row a variable is shown."""
        if variable not in self.rows:
            self.rows[variable] = self.tracker.behind(variable)
        return self.rows[variable]

    def is_row(self, variable: Variable) -> bool:
        """Return whether a variable has a row: an input, or what has a name or an expression."""
        if variable.owner is None:
            is_number = isinstance(variable, Constant) and not variable.type.ndim
            return not (is_number and variable.data == variable.data)
        known = self.tracker.lookup(variable)
        return known.expression is not None or known.own_name

    def add(self, variable: Variable) -> None:
        """Add the row of a variable, and the rows that it reads."""
        todo = [variable]
        while todo:
            row = todo.pop()
            if row not in self.operands:
                known = self.tracker.lookup(row)
                cost = self._cost(row) if known.expression is not None else []
                self.operands[row] = cost or list(dict.fromkeys(self._read_by(row)))
                todo += self.operands[row]

    def _cost(self, variable: Variable) -> list[Variable]:
        """Return what ``grad`` differentiated to make a variable; [] if it did not make it."""
        if self.tracker.lookup(variable).backward is None:
            return []
        return self.costs if len(self.costs) == 1 else []

    @cached_property
    def costs(self) -> list[Variable]:
        """What ``grad`` differentiated."""
        return list(dict.fromkeys(map(self.row, self.tracker.costs())))

    def _read_by(self, row: Variable) -> Iterator[Variable]:
        todo, seen = [*reversed(self.tracker.original.get(row.owner, ()))], set()
        while todo:
            below = self.row(todo.pop())
            if below in seen:
                continue
            seen.add(below)
            if self.is_row(below) and not self._is_same(row, below):
                yield below
            elif cost := self._cost(below):
                yield from cost
                self._hold_steps(below, row)
            else:
                self.inside.setdefault(below, row)
                todo += reversed(self.tracker.original.get(below.owner, ()))

    def _hold_steps(self, gradient: Variable, row: Variable) -> None:
        """Note that the steps of a gradient, unless they are known already, are part of a row."""
        todo = [gradient]
        while todo:
            step = todo.pop()
            if step not in self.inside and self._cost(step):
                self.inside[step] = row
                todo += map(self.row, self.tracker.original.get(step.owner, ()))

    def _is_same(self, row: Variable, below: Variable) -> bool:
        """Return whether one call made both, the one as a step to the other.

        ``grad`` makes many, and a reduction with ``keepdims`` the result without them.
        """
        one, other = self.tracker.lookup(row), self.tracker.lookup(below)
        if (one.expression, one.source) != (other.expression, other.source):
            return False
        is_kept = len(row.owner.inputs) == 1 and _ndim(row) != _ndim(below)
        return is_kept or (one.backward is not None and other.backward is not None)

    def carry_over(self, compiled: GraphModel) -> None:
        """Find the compiled variable that has the value of each row."""
        for key, known in compiled.variables.items():
            variable = compiled.objects[key]
            for equal in (variable, *self.tracker.equals(variable)):
                row = self.row(equal)
                found = self.made_by.get(row)
                if row in self.operands and (
                    found is None or (found.statistics is None and known.statistics is not None)
                ):
                    self.made_by[row] = known

    def place_marks(self, compiled: GraphModel, cause: Provenance | None) -> bool:
        """Put the marks of the compiled graph at the rows; return whether each has one."""
        places = _Places(self)
        for variable, part in _marked(compiled):
            equals = [variable, *self.tracker.equals(variable)]
            rows = [*map(self.row, equals)]
            found = [places.of(cause, rows), places.of(part.provenance, rows), *rows]
            near = [*map(self.inside.get, equals), places.on_line(part.provenance)]
            if not self._mark([*found, *near], part.events):
                return False
        return True

    def _mark(self, candidates: Iterable[Variable | None], events: list[str]) -> bool:
        row = next((v for v in candidates if v in self.operands), None)
        if row is not None:
            self.marks.setdefault(row, []).extend(events)
        return row is not None

    def model(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], compiled: GraphModel
    ) -> GraphModel:
        order = postorder(outputs, self.operands.__getitem__)
        keys = {v: f"n{i}" for i, v in enumerate(dict.fromkeys((*order, *self.operands)))}
        owners = {v: f"a{i}" for i, v in enumerate(v for v in order if v.owner is not None)}
        variables: dict[str, VariableModel] = {}
        nodes: dict[str, NodeModel] = {}
        for v, key in keys.items():
            known = self.made_by.get(v)
            variables[key] = replace(
                variable_model(v, key, owners.get(v), self._provenance(v, known)),
                is_output=v in outputs,
                update_of=keys[self.updates[v]] if v in self.updates else None,
                statistics=None if known is None else known.statistics,
                events=self.marks.get(v, []),
            )
            if v in owners:
                nodes[owners[v]] = self._node(v, owners[v], keys, known, compiled, len(nodes))
        return GraphModel(
            inputs=[keys[v] for v in inputs],
            outputs=[keys[v] for v in outputs],
            variables=variables,
            nodes=nodes,
            name=compiled.name,
            objects={key: v for v, key in keys.items()},
        )

    def _provenance(self, variable: Variable, known: VariableModel | None) -> Provenance:
        own = self.tracker.lookup(variable)
        later = known.provenance if known is not None else None
        return own if later is None else replace(own, history=later.history)

    def _node(
        self,
        variable: Variable,
        key: str,
        keys: Mapping[Variable, str],
        known: VariableModel | None,
        compiled: GraphModel,
        order: int,
    ) -> NodeModel:
        own = self.tracker.lookup(variable)
        node: Apply = variable.owner
        made = None if known is None else compiled.maker(known)
        return NodeModel(
            key=key,
            op="" if made is None else made.op,
            op_type="" if made is None else made.op_type,
            inputs=[keys[v] for v in self.operands[variable]],
            outputs=[keys[variable]],
            order=order,
            written=own.expression or own.name or str(node.op),
            seconds=None if made is None else made.seconds,
            calls=None if made is None else made.calls,
            provenance=own,
        )


def _ndim(variable: Variable) -> int | None:
    return getattr(variable.type, "ndim", None)


class _Places:
    """The rows by what is known of where they were written."""

    def __init__(self, rows: _Rows) -> None:
        self.by_expression: dict[tuple, list[Variable]] = {}
        self.by_line: dict[tuple, Variable] = {}
        for row in rows.operands:
            known = rows.tracker.lookup(row)
            self.by_expression.setdefault((known.source, known.expression), []).append(row)
            if known.source is not None:
                self.by_line.setdefault((known.source.file, known.source.line), row)

    def of(self, known: Provenance | None, rows: Collection[Variable]) -> Variable | None:
        """Return the row of an expression; of equal ones in a loop, that in `rows`."""
        if known is None or known.expression is None:
            return None
        found = self.by_expression.get((known.source, known.expression), [])
        return next((row for row in found if row in rows), found[0] if found else None)

    def on_line(self, known: Provenance | None) -> Variable | None:
        source = known and known.source
        return self.by_line.get((source.file, source.line)) if source else None


def _marked(compiled: GraphModel) -> Iterator[tuple[Variable, NodeModel | VariableModel]]:
    """Yield what is marked and its variable in the compiled graph, from inner graphs first."""
    for node in compiled.nodes.values():
        graphs = [model for graph in node.inner.values() for model in graph.walk()]
        inside = [part for graph in graphs for part in graph.nodes.values() if part.events]
        for part in inside or [node] * bool(node.events):
            yield compiled.objects[node.outputs[0]], part
    for key, variable in compiled.variables.items():
        if variable.events:
            yield compiled.objects[key], variable
