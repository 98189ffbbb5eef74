"""Names of operations and values, as an explanation shows them."""

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from theanoguard._pytensor import advanced_subtensor_ops

INDEXING = (Subtensor, *advanced_subtensor_ops)

INFIX = {"add": "+", "sub": "-", "mul": "*", "true_div": "/", "int_div": "//", "pow": "**"}

ALIASES = {
    "Dot22": "dot",
    "Dot22Scalar": "dot",
    "Gemm": "dot",
    "Gemv": "dot",
    "CGemv": "dot",
    "Matmul": "dot",
    "Ger": "outer",
    "CGer": "outer",
    "BatchedDot": "batched_dot",
    "Subtensor": "getitem",
    "AdvancedSubtensor": "getitem",
    "AdvancedSubtensor1": "getitem",
    "IncSubtensor": "inc_subtensor",
    "AdvancedIncSubtensor": "inc_subtensor",
    "AdvancedIncSubtensor1": "inc_subtensor",
    "MatrixTranspose": "transpose",
}
"""What the user writes for an operation that PyTensor calls otherwise."""

REDUCTIONS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}


def op_name(op):
    """Return the short name of an operation or scalar operation, as the user would write it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dmatrix("x")
    >>> op_name(pt.log(x).owner.op), op_name((x / 2).owner.op), op_name(x.sum().owner.op)
    ('log', 'true_div', 'sum')
    """
    if isinstance(op, Elemwise):
        op = op.scalar_op
    if isinstance(op, Blockwise):
        op = op.core_op
    if type(op) is CAReduce:
        root = op.scalar_op
        if isinstance(root, Composite):  # a reduction with something fused into it
            root = root.fgraph.outputs[0].owner.op
        return REDUCTIONS.get(op_name(root), "reduction")
    if isinstance(op, CumOp):
        return {"add": "cumsum", "mul": "cumprod"}[op.mode]
    name = type(op).__name__
    own = getattr(op, "name", None)
    if isinstance(op, ScalarOp) and isinstance(own, str) and name not in ("Cast", "Composite"):
        return own.lower()
    return ALIASES.get(name, name[0].lower() + name[1:])


def apply_text(op, arguments):
    """Return an operation applied to arguments, as the user would write it.

    Examples
    --------
    >>> import pytensor.scalar as ps
    >>> apply_text(ps.log, ["-0.31"]), apply_text(ps.true_div, ["0.0", "0.0"])
    ('log(-0.31)', '0.0 / 0.0')
    """
    name = op_name(op)
    sign = INFIX.get(name)
    if sign and len(arguments) > 1:
        first, *others = (f"({a})" if _is_sum(a) else a for a in arguments)
        if name == "pow" and first[:1] == "-":
            first = f"({first})"
        return f" {sign} ".join([first, *(f"({a})" if a[:1] == "-" else a for a in others)])
    if name == "neg":
        plain = arguments[0][:1].isalpha() and not _is_sum(arguments[0])
        return f"-{arguments[0]}" if plain else f"-({arguments[0]})"
    return f"{name}({', '.join(arguments)})"


def _is_sum(text):
    return " " in text and not text.endswith(")")


def name_of(variable, depth=2, own=None):
    """Return a short readable name: the user's, a constant's value, or the expression.

    Parameters
    ----------
    variable : Variable
    depth : int
        How many operations an expression may hold inside one another.
    own : callable, optional
        From a variable to the name that is known of it, or None.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> h = pt.dmatrix("h")
    >>> name_of(pt.exp(h) / 2)
    'exp(h) / 2'
    """
    if isinstance(variable, Constant):
        return variable.name or constant_text(variable)
    known = variable.name or (own(variable) if own is not None else None)
    if known:
        return known
    node = variable.owner
    if node is None:
        return "an unnamed input"
    if isinstance(node.op, (DimShuffle, ViewOp, DeepCopyOp, SpecifyShape, CheckAndRaise)):
        return name_of(node.inputs[0], depth, own)
    if depth <= 0:
        return "..."
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Composite):
        names = [name_of(v, depth - 1, own) for v in node.inputs]
        return scalar_name(node.op.scalar_op.fgraph, node.outputs.index(variable), names, depth)
    operands = node.inputs
    if op_name(node.op) == "dot" and len(operands) == 5:
        operands = operands[2:4]  # Gemm and Gemv: alpha * x @ y + beta * z
    arguments = [name_of(v, depth - 1, own) for v in operands[:3]]
    if isinstance(node.op, INDEXING):
        return f"{arguments[0]}[...]"
    return apply_text(node.op, arguments + (["..."] if len(operands) > 3 else []))


def scalar_name(fgraph, output, names, depth):
    """Return the expression of one output of a fused operation, given its operands' names."""
    known = dict(zip(fgraph.inputs, names, strict=True))

    def text(variable, depth):
        if variable in known:
            return known[variable]
        if isinstance(variable, Constant):
            return constant_text(variable)
        if depth <= 0:
            return "..."
        return apply_text(variable.owner.op, [text(v, depth - 1) for v in variable.owner.inputs])

    return text(fgraph.outputs[output], depth + 1)


def constant_text(variable):
    """Return a constant as text: its value if it is one number, else its type."""
    data = variable.data
    if isinstance(data, (np.ndarray, np.generic, int, float)) and np.size(data) == 1:
        return number_text(np.asarray(data).item())
    return f"constant{list(np.shape(data))}" if np.ndim(data) else str(data)


def number_text(value):
    """Return a number in five digits, or exactly where five digits would mislead.

    Examples
    --------
    >>> [number_text(v) for v in (-0.31278, 0.0, 1e200, -1.0000000001, 3)]
    ['-0.31278', '0.0', '1e+200', '-1.0000000001', '3']
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, complex):
        return str(value)
    text = f"{value:.5g}"
    shown = float(text)
    if shown.is_integer() and 0 < abs(shown - value) < 1e-4 * abs(value) < 10:
        return repr(value)
    return text + ".0" if text.lstrip("-").isdigit() else text


def number_texts(values):
    """Return several numbers as text, with as many digits as it takes to tell them apart.

    Examples
    --------
    >>> number_texts([9007503.0, 9007502.0]), number_texts([0.5, 0.5])
    (['9007503.0', '9007502.0'], ['0.5', '0.5'])
    """
    texts = [number_text(v) for v in values]
    exact = [repr(v.item() if isinstance(v, np.generic) else v) for v in values]
    clash = len(set(texts)) < len(set(exact))
    return exact if clash else texts


def index_text(index):
    """Return an index as it is written.

    Examples
    --------
    >>> index_text((2, slice(None))), index_text((...,)), index_text(())
    ('[2, :]', '', '')
    """
    if not index or index == (...,):
        return ""
    return "[" + ", ".join(map(_one_index_text, index)) + "]"


def _one_index_text(i):
    if isinstance(i, slice):
        return f"{'' if i.start is None else i.start}:{'' if i.stop is None else i.stop}"
    return "..." if i is ... or isinstance(i, np.ndarray) else str(i)
