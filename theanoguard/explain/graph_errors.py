"""Say of PyTensor's errors on a graph which variable is meant, and where it is used."""

from typing import Any

from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scan.op import Scan

from theanoguard._provenance import SourceLine, lookup, source_line
from theanoguard._pytensor import thawed_graph
from theanoguard._pytensor.graph_errors import GraphFault
from theanoguard.operations.names import op_name


def note_on(fault: GraphFault) -> str:
    """Return a sentence on the variable of an error, with the line where it is used or made."""
    name = _name(fault.variable)
    match fault.kind:
        case "missing":
            return _missing(fault, name)
        case "unused":
            return (
                f"The outputs and updates do not depend on {name}{_where(fault.variable)}. Take it"
                ' out of the inputs, or pass on_unused_input="ignore".'
            )
        case "disconnected":
            return _disconnected(fault, name)
        case _:
            return _undefined(fault, name)


def _missing(fault: GraphFault, name: str) -> str:
    where, in_step = _use(fault.node, fault.variable)
    step = "in the step of a loop" if in_step else ""
    used = " ".join(filter(None, ["is used", step])) if where else "is needed"
    return (
        f"{name} {used}{where}, and the function has no value for it: add it to the inputs, or pass"
        f" givens={{{name}: value}}."
    )


def _disconnected(fault: GraphFault, name: str) -> str:
    cost = "the cost"
    if fault.cost is not None:
        cost = " ".join(filter(None, (cost, _name(fault.cost, "")))) + _where(fault.cost)
    if fault.cost is not None and fault.variable in set(ancestors([fault.cost])):
        reader = next((n for n in toposort([fault.cost]) if fault.variable in n.inputs), None)
        where, _ = _use(reader, fault.variable)
        by = "" if reader is None else f": {op_name(reader.op)}{where} has none"
        return (
            f"No gradient goes from {cost} to {name}{by}. Leave it out of wrt, or pass"
            ' disconnected_inputs="ignore".'
        )
    return (
        f"{cost[0].upper()}{cost[1:]} does not depend on {name}{_where(fault.variable)}."
        " Differentiate by what the cost is computed from, or pass"
        ' disconnected_inputs="ignore".'
    )


def _undefined(fault: GraphFault, name: str) -> str:
    nodes = toposort([fault.cost]) if fault.cost is not None else ()
    reader = next((n for n in nodes if str(n.op) in fault.reason), None)
    if reader is None:
        return ""
    where = _line(source_line(reader.outputs[0]))
    return (
        f"The gradient by {name} goes through {op_name(reader.op)}{where}, which has none. Take"
        f' this term out of the cost, or pass null_gradients="return" to get a gradient that'
        " cannot be evaluated."
    )


def _use(node: Any, variable: Any) -> tuple[str, bool]:
    """Return where a node, or the graph in it, reads a variable; and whether that is in a loop."""
    if node is None:
        return "", False
    if isinstance(node.op, Scan):
        graph = thawed_graph(node.op)
        inner = node.op.get_oinp_iinp_iout_oout_mappings()["inner_inp_from_outer_inp"]
        for position in inner.get(node.inputs.index(variable), ()):
            for reader in graph.toposort():
                if graph.inputs[position] in reader.inputs:
                    return _line(source_line(reader.outputs[0])), True
    return _line(source_line(node.outputs[0])), False


def _name(variable: Any, unnamed: str = "an input without a name") -> str:
    return variable.name or lookup(None, variable).name or unnamed


def _where(variable: Any) -> str:
    line = None if isinstance(variable, Constant) else source_line(variable)
    return "" if line is None else f" (line {line.line})"


def _line(line: SourceLine | None) -> str:
    return "" if line is None else f" on line {line.line}"
