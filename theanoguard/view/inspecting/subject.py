"""From what a person asks about to the model of its graph."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from theanoguard._event import GuardEvent
from theanoguard._provenance import Provenance
from theanoguard._pytensor import Function
from theanoguard.explain.facts.records import Cause, Explanation, Waypoint
from theanoguard.guard import GuardError, events_of
from theanoguard.guard.errors import report_text
from theanoguard.view.debugprint import tree_text
from theanoguard.view.model import (
    GraphModel,
    Marks,
    NodeModel,
    Statistics,
    VariableModel,
    graph_model,
)


@dataclass
class Subject:
    """The object that is shown."""

    title: str
    model: GraphModel
    wanted: tuple[str, ...] = ()  # names of inputs from which the way to the bad node leads
    report: str | None = None  # of a trip, its report with the terminal's colours
    text: Callable[[], str] = str  # returns what is shown where there is only text
    function: Function | None = None  # the compiled function, where there is one
    cause: Provenance | None = None  # of a trip, where the first bad value was written


def subject_of(
    thing: Any,
    *,
    values: Mapping[Variable, Any] | None = None,
    events: Marks | GuardError | None = None,
    times: Mapping[Apply, float] | None = None,
) -> Subject:
    """Return what is shown of anything that :func:`theanoguard.inspect_graph` takes."""
    if isinstance(thing, GuardError):
        return _of_trip(thing.event, thing.explanation, _called(thing), values, times)
    if isinstance(thing, GuardEvent):
        return _of_trip(thing, None, None, values, times)
    function = thing if isinstance(thing, Function) else None
    wanted: tuple[str, ...] = ()
    if isinstance(events, GuardError):
        return _of_trip(events.event, events.explanation, thing, values, times)
    if function is not None:
        values = _last_values(function) | dict(values or {})
        if events is None:
            events = own_events(function)
            wanted = _last_way(function, events)
    model = graph_model(thing, values=values, events=events, times=times)
    text = partial(tree_text, thing, model)
    if function is not None:
        title = f"function {function.name or model.name or ''}".strip()
    else:
        name = getattr(thing, "name", None)
        title = f"graph of {name}" if isinstance(thing, Variable) and name else "graph"
    return Subject(title, model, wanted, text=text, function=function)


def own_events(function: Function) -> list[GuardEvent]:
    """Return the last events of a function, none where it has no guard."""
    return events_of(function) if hasattr(getattr(function, "vm", None), "guard") else []


def _roots(way: Iterable[Waypoint]) -> tuple[str, ...]:
    """Return the names of the inputs that the way to a bad value leads from."""
    return tuple(point.name for point in way if point.kind in ("input", "shared"))


def _last_way(function: Function, events: Sequence[GuardEvent]) -> tuple[str, ...]:
    """Return where the way to a function's last event begins, as its report told."""
    if not events:
        return ()
    event, way = function.vm.guard.last_way
    return _roots(way) if event is events[-1] else ()


def _of_trip(
    event: GuardEvent,
    explanation: Explanation | None,
    graph: Any,
    values: Mapping[Variable, Any] | None,
    times: Mapping[Apply, float] | None,
) -> Subject:
    report = report_text(event, explanation, color=True)
    text = partial(report_text, event, explanation)
    wanted = () if explanation is None else _roots(explanation.waypoints)
    function = graph if isinstance(graph, Function) else None
    if graph is None:
        model = _model_of(event, explanation)
    else:
        if function is not None:
            values = _last_values(function) | dict(values or {})
        model = graph_model(graph, values=values, events=[event], times=times)
        _mark_inside(model, event, explanation)
    named = event.function or getattr(function, "name", None)
    name = f" of {named}" if named else ""
    cause = None if explanation is None else explanation.cause.provenance
    return Subject(f"call {event.call}{name}", model, wanted, report, text, function, cause)


def _mark_inside(model: GraphModel, event: GuardEvent, explanation: Explanation | None) -> None:
    """Mark what went bad inside an inner graph, or inside a fused node."""
    cause = None if explanation is None else explanation.cause
    if cause is None or cause.op is None or not (event.path or cause.fused):
        return
    for step in event.path:
        held = [node.inner for node in model.nodes.values() if node.op == step.op and node.inner]
        if not held:
            return
        model = next(iter(held[0].values()))
    # (the linked inner graph has been rewritten once more: its nodes are not always found here)
    fused = [g for node in model.nodes.values() if node.op == event.op for g in node.inner.values()]
    parts = fused if cause.fused and fused else model.walk()
    same = [n for g in parts for n in g.nodes.values() if n.op.lower() == cause.op.lower()]
    line = [n for n in same if n.provenance and n.provenance.source == cause.provenance.source]
    for node in (line or same)[:1]:
        node.events.append(f"{cause.kind}: {cause.expression}")


def _called(error: GuardError) -> Function | None:
    """Return the function whose call raised an error, None where no traceback tells it."""
    function, traceback = None, error.__traceback__
    while traceback is not None:
        held = traceback.tb_frame.f_locals.get("self")
        if isinstance(held, Function):
            function = held
        traceback = traceback.tb_next
    return function


# --------------------------------------------------------------------------------------
# Values that a function still holds


def _last_values(function: Function) -> dict[Variable, Any]:
    """Map variables to the values that the last call has left in the function's storage.

    Most are gone unless it was compiled without garbage collection.  What an in-place node has
    overwritten since is no value of its variable, and is left out.
    """
    storage = getattr(function.vm, "storage_map", None)
    if not isinstance(storage, Mapping):
        return {}
    held = {v: cell[0] for v, cell in storage.items() if cell[0] is not None}
    position = {node: i for i, node in enumerate(function.maker.fgraph.toposort())}
    written: dict[int, int] = {}
    for node, i in position.items():
        for output in getattr(node.op, "destroy_map", None) or ():
            if (memory := _memory(held.get(node.outputs[output]))) is not None:
                written[memory] = max(i, written.get(memory, i))
    # A guard puts the memory of shared variables back, and updates put in another.
    roots = {_memory(value) for v, value in held.items() if v.owner is None}
    kept = {}
    for variable, value in held.items():
        memory = _memory(value)
        last = None if memory is None else written.get(memory)
        overwritten = last is not None and position.get(variable.owner, -1) < last
        borrowed = last is not None and memory in roots
        if variable.owner is None or not (overwritten or borrowed):
            kept[variable] = value
    return kept


def _memory(value: Any) -> int | None:
    """Return the address of an array's memory; None for anything else."""
    if not isinstance(value, np.ndarray):
        return None
    while isinstance(value.base, np.ndarray):
        value = value.base
    return int(value.__array_interface__["data"][0])


# --------------------------------------------------------------------------------------
# A trip whose graph is gone


def _model_of(event: GuardEvent, explanation: Explanation | None) -> GraphModel:
    """Return the graph that an explanation tells of: the way from an input to the cause."""
    variables: dict[str, VariableModel] = {}
    nodes: dict[str, NodeModel] = {}

    def add(op: str | None, inputs: list[str], name: str | None, **known: Any) -> str:
        """Add a variable, and the node that computes it if there is an operation."""
        key, owner = f"n{len(variables)}", None
        if op is not None:
            owner = f"a{len(nodes)}"
            provenance = known.get("provenance")
            nodes[owner] = NodeModel(
                owner, op, op, inputs, [key], len(nodes), provenance=provenance
            )
            known["kind"] = "computed"
        dtype = known.setdefault("dtype", None)
        label = name or op or known["kind"]
        variables[key] = VariableModel(
            key=key, name=name, label=label, type=dtype or "", owner=owner, **known
        )
        return key

    way: list[str] = []
    for point in explanation.waypoints if explanation is not None else ():
        made = point.kind == "node"
        index = f"[{', '.join(map(str, point.index))}]" if point.index else ""
        key = add(
            (point.op or point.name) if made else None,
            way,
            None if made else point.name,
            kind=point.kind if point.kind in ("shared", "constant") else "input",
            shape=list(point.shape),
            value=f"{point.name}{index} = {point.value}",
            provenance=point.source and Provenance(point.source),
        )
        way = [key]
    cause: GuardEvent | Cause = event if explanation is None else explanation.cause
    for operand in () if explanation is None else explanation.cause.operands:
        if operand.computed or operand.name in {variables[key].name for key in way}:
            continue
        low, high = operand.minimum, operand.maximum
        known = Statistics(operand.dtype, operand.shape, low, high, None, 0)
        key = add(
            None,
            [],
            operand.name,
            kind="constant" if operand.constant else "input",
            dtype=operand.dtype,
            shape=list(operand.shape),
            value=operand.name if operand.constant else None,
            statistics=None if low is None else known,
        )
        way = [*way, key]
    bad = add(
        cause.op if cause.role == "node" else None,
        way,
        event.variable if explanation is None else explanation.cause.name,
        kind=cause.role,
        dtype=cause.dtype,
        shape=list(cause.shape),
        is_output=True,
        provenance=None if explanation is None else explanation.cause.provenance,
    )
    owner = variables[bad].owner
    marked = variables[bad] if owner is None else nodes[owner]
    marked.events.append(f"{event.kind} at {list(event.first_index)} in call {event.call}")
    roots = [key for key, variable in variables.items() if variable.owner is None]
    return GraphModel(roots, [bad], variables, nodes, event.function)
