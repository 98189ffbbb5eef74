"""The facts about one variable of a graph, as short texts."""

from collections.abc import Iterator

from theanoguard._provenance import Provenance
from theanoguard._provenance.places import brief_place
from theanoguard._text import cut
from theanoguard.explain.facts.shapes import shape_text
from theanoguard.view.model import GraphModel, NodeModel, VariableModel


def label(model: GraphModel, variable: VariableModel) -> str:
    """Return what a row is called: its name with its expression, or the compiled operation."""
    node = model.maker(variable)
    if node is None:
        named = variable.value if variable.kind == "constant" else variable.name
        return named or variable.label
    if node.written is not None:
        return model.called(variable)
    return node.op if len(node.outputs) == 1 else f"{node.op}.{variable.index}"


def user_name(variable: VariableModel) -> str:
    """Return what the user calls a variable: its name, or the expression that it equals."""
    if variable.name:
        return variable.name
    known = variable.provenance
    if known is None:
        return ""
    return (known.name if known.own_name else None) or known.expression or ""


def role(model: GraphModel, variable: VariableModel) -> str:
    """Return what a variable is to its function: ``output``, ``update``, ``gradient of loss``."""
    if variable.update_of is not None:
        return "update"
    if variable.is_output and variable.owner is not None:
        return "output"
    if variable.kind == "shared":
        return "shared variable"
    backward = None if variable.provenance is None else variable.provenance.backward
    if variable.owner is None or backward is None:
        return ""
    return f"gradient of {backward.cost}" if backward.cost else "gradient"


def beside(model: GraphModel, variable: VariableModel) -> str:
    """Return what is said beside the label: the name of what an operation computes, or the role."""
    node, said = model.maker(variable), role(model, variable)
    called = model.called(variable) if node is not None and node.written is None else ""
    return f"output {called}".rstrip() if said == "output" else called or said


def place(variable: VariableModel) -> str | None:
    """Return the user's line of a row as ``model.py:12``; None where it is not known."""
    known = variable.provenance
    source = known.source if known is not None and variable.kind != "constant" else None
    return None if source is None else brief_place(source)


def events(model: GraphModel, variable: VariableModel) -> list[str]:
    """Return what marks a variable or its node."""
    node = model.maker(variable)
    return [*variable.events, *(node.events if node is not None else ())]


def rewrites(provenance: Provenance | None) -> list[str]:
    """Return the rewrites that led to a node, latest first, as ``Log by FusionOptimizer``."""
    return [f"{s.op} by {s.reason}" for s in provenance.history] if provenance is not None else []


def facts(model: GraphModel, variable: VariableModel) -> Iterator[tuple[str, str]]:
    """Yield all that is known of a variable and of its node.

    Yields
    ------
    (str, str)
        What it is about, and the text.
    """
    node = model.maker(variable)
    for label, text in (
        *_of_variable(model, variable),
        *_of_provenance(variable.provenance),
        *(_of_node(model, node) if node is not None else ()),
    ):
        if text:
            yield label, cut(text)


def _of_variable(model: GraphModel, variable: VariableModel) -> Iterator[tuple[str, str | None]]:
    for event in events(model, variable):
        yield "Event", event
    yield "Name", variable.name
    yield "Kind", ", ".join(_kinds(model, variable))
    yield "Type", variable.type
    if variable.shape is not None:
        yield "Shape", shape_text(variable.shape)
    yield "Value", variable.value
    if (found := variable.statistics) is not None:
        yield "Last value", f"{found}, {found.dtype}, shape {shape_text(found.shape)}"


def short_type(variable: VariableModel) -> str:
    """Return the dtype and the shape of a variable, of its last value if that is known."""
    if (found := variable.statistics) is not None:
        return f"{found.dtype} {shape_text(found.shape)}"
    if variable.dtype is None or variable.shape is None:
        return variable.type
    return f"{variable.dtype} {shape_text(variable.shape)}"


def _kinds(model: GraphModel, variable: VariableModel) -> Iterator[str]:
    yield variable.kind
    told = role(model, variable)
    if told not in ("", "shared variable"):
        yield told


def _of_provenance(provenance: Provenance | None) -> Iterator[tuple[str, str | None]]:
    if provenance is None:
        return
    if provenance.source is not None:
        yield "Line" if provenance.own_source else "Near line", str(provenance.source)
    for line in provenance.merged:
        yield "Also line", str(line)
    backward = provenance.backward
    if backward is not None:
        yield "Gradient of", backward.cost or "a cost"
        yield "through", backward.forward
        if backward.forward_source is not None:
            yield "at", str(backward.forward_source)
    if provenance.name and not provenance.own_name and not provenance.expression:
        yield "Near name", provenance.name
    for step, text in zip(provenance.history, rewrites(provenance), strict=True):
        yield "Rewritten from", f"{text} ({step.name})" if step.name else text


def _of_node(model: GraphModel, node: NodeModel) -> Iterator[tuple[str, str]]:
    yield "Operation", node.op
    yield "Class", node.op_type
    yield "Order", f"{node.order} of {len(model.nodes)} nodes, counted from 0"
    for word, places in (("Overwrites", node.destroy_map), ("Views", node.view_map)):
        for output, inputs in places.items():
            yield word, f"output {output}: input {', '.join(map(str, inputs))}"
    if node.seconds is not None:
        calls = f" in {node.calls} calls" if node.calls else ""
        yield "Time", f"{node.seconds:.3g} s{calls}"
