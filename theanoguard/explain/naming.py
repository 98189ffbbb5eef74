"""Names of operations and values, as an explanation shows them."""

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from theanoguard._pytensor import advanced_subtensor_ops

INDEXING = (Subtensor, *advanced_subtensor_ops)

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "true_div": "/", "int_div": "//", "pow": "**", "mod": "%",
    "eq": "==", "neq": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip

SHOWN = {
    "true_div": "division", "int_div": "floor division", "mul": "product", "add": "sum",
    "sub": "difference", "pow": "power", "sqr": "square", "mod": "remainder", "neg": "negation",
    "eq": "==", "neq": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "invert": "~",
    "psi": "digamma", "tri_gamma": "polygamma",
    "getitem": "indexing", "inc_subtensor": "indexed update",
    "matrixInverse": "inv", "solveTriangular": "solve_triangular", "logSoftmax": "log_softmax",
    "join": "concatenate", "makeVector": "stack", "alloc": "full", "allocDiag": "diag",
    "extractDiag": "diag", "specifyShape": "specify_shape", "composite": "elementwise formula",
}  # fmt: skip
"""What a message calls an operation whose own name is no word of the user's."""

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


def shown_op(name):
    """Return what a message calls an operation, from what :func:`op_name` gives.

    Examples
    --------
    >>> shown_op("true_div"), shown_op("psi"), shown_op("log")
    ('division', 'digamma', 'log')
    """
    return SHOWN.get(name, name)


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
        return _infix_text(name, sign, arguments)
    if name in ("sqr", "reciprocal"):
        inside = _inside(arguments[0], 4)
        return f"{inside} ** 2" if name == "sqr" else f"1 / {inside}"
    if name in ("neg", "invert"):
        plain = arguments[0][:1].isalpha() and not _is_sum(arguments[0])
        sign = "-" if name == "neg" else "~"
        return f"{sign}{arguments[0]}" if plain else f"{sign}({arguments[0]})"
    if name == "dot" and len(arguments) == 2:
        return " @ ".join(f"({a})" if _is_sum(a) else a for a in arguments)
    return f"{_function(name)}({', '.join(arguments)})"


def _infix_text(name, sign, arguments):
    if name == "add":  # a sum in which something is subtracted, as the user writes it
        first, *others = arguments
        if first[:1] == "-" and not _is_sum(first) and others and others[0][:1] != "-":
            first, others[0] = others[0], first
        text = first
        for other in others:
            negative = other[:1] == "-" and not _is_sum(other)
            text += f" - {other[1:]}" if negative else f" + {_inside(other, 1)}"
        return text
    level = 3 if name in ("mul", "true_div", "int_div", "mod", "pow") else 1
    first, *others = (_inside(a, level) for a in arguments)
    if name == "pow" and first[:1] == "-":
        first = f"({first})"
    return f" {sign} ".join([first, *(f"({a})" if a[:1] == "-" else a for a in others)])


def _inside(text, level):
    """Return an operand in the parentheses that it needs; a higher level binds tighter."""
    return f"({text})" if _is_sum(text) or (level > 3 and text[:1] == "-") else text


def _function(name):
    shown = SHOWN.get(name, name)
    return shown if shown.isidentifier() else name


def _is_sum(text):
    """Whether an expression has an operator outside of all brackets."""
    depth = 0
    for i, c in enumerate(text):
        depth += c in "([{"
        depth -= c in ")]}"
        if depth == 0 and c == " " and text[i - 1] not in ",:":
            return True
    return False


_SAME_VALUE = (
    DimShuffle,
    ViewOp,
    DeepCopyOp,
    SpecifyShape,
    CheckAndRaise,
    ScalarFromTensor,
    TensorFromScalar,
)
MAX_DEPTH = 5
"""How many operations a formula holds inside one another; of one deeper its name is shown."""


def name_of(variable, depth=MAX_DEPTH, own=None):
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
    >>> name_of(pt.exp(h) / 2), name_of(h[0, 1:] - 2.0)
    ('exp(h) / 2', 'h[0, 1:] - 2.0')
    """
    known = variable.name or (own(variable) if own is not None else None)
    if known:
        return known
    if isinstance(variable, Constant):
        return constant_text(variable)
    node = variable.owner
    if node is None:
        return "an unnamed input"
    if isinstance(node.op, _SAME_VALUE):
        return name_of(node.inputs[0], depth, own)
    if depth <= 0:
        return shown_op(op_name(node.op))
    scalar_op = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
    if isinstance(scalar_op, Composite):
        names = [name_of(v, depth - 1, own) for v in node.inputs]
        return scalar_name(scalar_op.fgraph, node.outputs.index(variable), names, depth)
    operands = node.inputs
    if op_name(node.op) == "dot" and len(operands) == 5:
        operands = operands[2:4]  # Gemm and Gemv: alpha * x @ y + beta * z
    if isinstance(node.op, INDEXING):
        return _subscript_text(node, [name_of(v, depth - 1, own) for v in operands])
    arguments = [name_of(v, depth - 1, own) for v in operands if not _is_setting(v, operands)]
    return apply_text(node.op, arguments)


def _is_setting(variable, operands):
    """Whether an operand says how, and not what: a generator, a flag, a shape."""
    return not hasattr(variable.type, "dtype") and len(operands) > 1


def _subscript_text(node, names):
    """Return an indexing as the user writes it, from the names of a node's operands."""
    taken, *indices = names
    inner = f"({taken})" if _is_sum(taken) else taken
    entries = getattr(node.op, "idx_list", None)
    if entries is None:  # 3.0's advanced indexing has no list
        return f"{inner}[{', '.join(indices)}]"
    left = iter(indices)

    def part(entry):
        if isinstance(entry, slice):
            parts = [entry.start, entry.stop, entry.step]
            texts = ["" if p is None else part(p) for p in parts]
            return ":".join(texts if texts[2] else texts[:2])
        return next(left, "")

    return f"{inner}[{', '.join(map(part, entries))}]"


def scalar_name(fgraph, output, names, depth):
    """Return the expression of one output of a fused operation, given its operands' names."""
    known = dict(zip(fgraph.inputs, names, strict=True))

    def text(variable, depth):
        if variable in known:
            return known[variable]
        if isinstance(variable, Constant):
            return constant_text(variable)
        if depth <= 0:
            return shown_op(op_name(variable.owner.op))
        return apply_text(variable.owner.op, [text(v, depth - 1) for v in variable.owner.inputs])

    return text(fgraph.outputs[output], depth + 1)


def constant_text(variable):
    """Return a constant as text: its value if it is one number, else its type."""
    data = variable.data
    if isinstance(data, (np.ndarray, np.generic, int, float)) and np.size(data) == 1:
        return number_text(np.asarray(data).item())
    shape = ", ".join(map(str, np.shape(data)))
    return f"a constant of shape ({shape})" if np.ndim(data) else str(data)


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
