"""Theano's texts for operations; `types.str_elemwise` gives those of element-wise operations.

Old code compares these texts, as in ``str(node.op) == "dot"``.
"""

from pytensor.scan.op import Scan
from pytensor.tensor.basic import AllocDiag, ExtractDiag, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Any, Argmax, Dot, Max, Prod, Sum
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from ..tensor.subtensor import AdvancedIncSubtensor1, AdvancedSubtensor1, places_of_indices
from . import Patch


def indices(op):
    """Return the types of the indices of an operation, as text."""

    def text(entry):
        if not isinstance(entry, slice):
            return str(entry)
        parts = (entry.start, entry.stop, entry.step)
        return ":".join("" if part is None else str(part) for part in parts)

    return ", ".join(map(text, op.idx_list))


def along(op):
    """Return the axes of a reduction in braces, or an empty text if it has none."""
    return "" if op.axis is None else f"{{{', '.join(map(str, op.axis))}}}"


def sum_text(op):
    axis = "" if op.axis is None else f"axis=[{', '.join(map(str, op.axis))}], "
    return f"Sum{{{axis}acc_dtype={op.acc_dtype}}}"


def advanced(op, name):
    """Return the name of Theano's operation: it has one for masks, and one for a vector of rows."""
    types = vars(op).get("_index_types", ())
    if any(type.dtype == "bool" for type in types):
        return f"AdvancedBoolean{name}"
    is_of_rows = places_of_indices(op) == (0,) and all(type.ndim == 1 for type in types)
    return f"Advanced{name}{'1' if is_of_rows else ''}"


def advanced_increment_text(op):
    name = advanced(op, "IncSubtensor")
    if name.endswith("1"):
        place = "inplace" if op.inplace else "no_inplace"
        kind = "set" if op.set_instead_of_inc else "inc"
        return f"{name}{{{place},{kind}}}"
    return f"{name}{{inplace={op.inplace},  set_instead_of_inc={op.set_instead_of_inc}}}"


def increment_text(op):
    place = "Inplace" if op.inplace else ""
    kind = "Set" if op.set_instead_of_inc else "Inc"
    return f"IncSubtensor{{{place}{kind};{indices(op)}}}"


def extremum_text(op):
    """Return the text of Theano's operation for the maximum and its place."""
    axis = vars(op).get("_all_axes") if op.axis is None else op.axis
    return f"MaxAndArgmax{{axis={axis}}}"


def named_output(make_node, name):
    """Let `make_node` give its output the name that it has in Theano, which counts the axes."""

    def make_named_node(self, x):
        node = make_node(self, x)
        node.outputs[0].name = name
        vars(self)["_all_axes"] = tuple(range(node.inputs[0].type.ndim))
        return node

    return make_named_node


def scan_text(op):
    """Return the kind of a loop, the outputs that it overwrites if there are any, and its name."""
    kind = "do_while" if op.info.as_while else "for"
    overwritten = sorted(op.destroy_map)
    if not overwritten:
        return f"{kind}{{cpu,{op.name}}}"
    traced = op.info.n_mit_mot + op.info.n_mit_sot + op.info.n_sit_sot
    if overwritten == [*range(traced)]:
        return f"{kind}all_inplace,cpu,{op.name}}}"
    return f"{kind}{{inplace{{{''.join(f'{i},' for i in overwritten)}}},cpu,{op.name}}}"


def dimshuffle_text(op):
    return f"InplaceDimShuffle{{{','.join(map(str, op.new_order))}}}"


_blockwise_text = Blockwise.__str__


def blockwise_text(op):
    """Return the text of the core operation, as in Theano, which has no batches of matrices.

    A batched product keeps its own text, to be distinguished from ``dot``.
    """
    return _blockwise_text(op) if isinstance(op.core_op, Dot) else str(op.core_op)


TEXTS = {
    AdvancedIncSubtensor: advanced_increment_text,
    AdvancedIncSubtensor1: advanced_increment_text,
    AdvancedSubtensor: lambda op: advanced(op, "Subtensor"),
    AdvancedSubtensor1: lambda op: advanced(op, "Subtensor"),
    All: lambda op: f"All{along(op)}",
    AllocDiag: lambda op: f"AllocDiag{{offset={op.offset}, axis1={op.axis1}, axis2={op.axis2}}}",
    Any: lambda op: f"Any{along(op)}",
    Argmax: extremum_text,
    Blockwise: blockwise_text,
    CumOp: lambda op: f"CumOp{{{op.axis}, {op.mode}}}",
    DimShuffle: dimshuffle_text,
    Dot: lambda op: "dot",
    ExtractDiag: lambda op: (
        f"ExtractDiag{{offset={op.offset}, axis1={op.axis1}, axis2={op.axis2}, view={op.view}}}"
    ),
    IncSubtensor: increment_text,
    Join: lambda op: "Join",
    Max: extremum_text,
    Prod: lambda op: f"Prod{{axis={op.axis}, dtype={op.dtype!r}, acc_dtype={op.acc_dtype!r}}}",
    Scan: scan_text,
    Split: lambda op: f"Split{{{op.len_splits}}}",
    Subtensor: lambda op: f"Subtensor{{{indices(op)}}}",
    Sum: sum_text,
}

PATCHES = [
    *(Patch(op, "__str__", text) for op, text in TEXTS.items()),
    Patch(Max, "make_node", named_output(Max.make_node, "max")),
    Patch(Argmax, "make_node", named_output(Argmax.make_node, "argmax")),
]
