"""Names of operations and values, as an explanation shows them."""

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast, Composite
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from theanoguard._provenance import given_name
from theanoguard._pytensor import FinalizedOpFromGraph, advanced_subtensor_ops, increment_ops
from theanoguard._text import index_text, number_text
from theanoguard.operations.names import INFIX, OPERATORS, op_name, shown_op

Joined: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
"""The names and shapes of the variables that one vector is joined from."""

INDEXING = (Subtensor, *advanced_subtensor_ops)


def apply_text(op: Op, arguments: Sequence[str]) -> str:
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
    if isinstance(op, increment_ops) and not op.set_instead_of_inc:
        return _infix_text("add", "+", arguments)
    if name in ("sqr", "reciprocal"):
        inside = _inside(arguments[0], _UNARY + 2)
        return f"{inside} ** 2" if name == "sqr" else f"1 / {inside}"
    if name in ("neg", "invert"):
        plain = arguments[0][:1] != "-" and _level(arguments[0]) >= _UNARY
        sign = "-" if name == "neg" else "~"
        return f"{sign}{arguments[0]}" if plain else f"{sign}({arguments[0]})"
    if name == "dot" and len(arguments) == 2:
        return f"{_inside(arguments[0], _PRODUCT)} @ {_inside(arguments[1], _UNARY)}"
    return f"{_function(name)}({', '.join(arguments)})"


def _infix_text(name: str, sign: str, arguments: Sequence[str]) -> str:
    if name == "add":  # write a negative term with a minus sign, as the user would
        first, *others = arguments
        if first[:1] == "-" and others and others[0][:1] != "-":
            first, others[0] = others[0], first
        text = _inside(first, _SUM)
        for other in others:
            negative = other[:1] == "-" and _level(other) >= _PRODUCT
            text += f" - {other[1:]}" if negative else f" + {_inside(other, _PRODUCT)}"
        return text
    level = _LEVELS.get(_KINDS[name], _LEVELS[ast.Compare])
    first, *others = arguments
    first = _inside(first, level + (name == "pow") * 2)
    others = [f"({a})" if a[:1] == "-" else _inside(a, level + 1) for a in others]
    return f" {sign} ".join([first, *others])


_LEVELS = {
    ast.Compare: 1, ast.BitOr: 2, ast.BitXor: 3, ast.BitAnd: 4, ast.Add: 5, ast.Sub: 5,
    ast.Mult: 6, ast.Div: 6, ast.FloorDiv: 6, ast.Mod: 6, ast.MatMult: 6, ast.UnaryOp: 7,
    ast.Pow: 8,
}  # fmt: skip
"""Precedence of each operator.  An expression without an operator has the highest."""

_SUM, _PRODUCT, _UNARY, _TIGHTEST = 5, 6, 7, 10

_KINDS = {name: kind for kind, name in OPERATORS.items()}


@lru_cache(maxsize=4096)
def _level(text: str) -> int:
    """The precedence of the outermost operator of an expression."""
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):  # text that is not Python
        return 0 if _is_sum(text) else _TIGHTEST
    kind = type(body.op) if isinstance(body, ast.BinOp) else type(body)
    return _LEVELS.get(kind, 0 if kind in (ast.IfExp, ast.Lambda, ast.BoolOp) else _TIGHTEST)


def _inside(text: str, level: int) -> str:
    """Return an operand, in parentheses if its operator has a lower precedence than `level`."""
    return text if _level(text) >= level else f"({text})"


def element_text(name: str, index: tuple[Any, ...] | None) -> str:
    """Return an element of a named value, as Python writes it.

    Examples
    --------
    >>> element_text("p", (1,)), element_text("1 - p", (1,)), element_text("1 - p", ())
    ('p[1]', '(1 - p)[1]', '1 - p')
    """
    subscript = index_text(index)
    return _inside(name, _TIGHTEST) + subscript if subscript else name


def _function(name: str) -> str:
    shown = shown_op(name)
    return shown if shown.isidentifier() else name


def _is_sum(text: str) -> bool:
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
    TypeCastingOp,
    DeepCopyOp,
    SpecifyShape,
    CheckAndRaise,
    ScalarFromTensor,
    TensorFromScalar,
)
LOG_DENSITY = "__logp"  # how the names begin that PyMC gives to the log-density of a model

MAX_DEPTH = 5
"""Depth of nested operations in a formula.  Deeper operands are shown by name."""


def name_of(
    variable: Variable, depth: int = MAX_DEPTH, own: Callable[[Variable], str | None] | None = None
) -> str:
    """Return a short readable name: the user's, a constant's value, or the expression.

    `depth`: how deeply operations may be nested in the expression.
    `own`: returns the known name of a variable, or None.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> h = pt.dmatrix("h")
    >>> name_of(pt.exp(h) / 2), name_of(h[0, 1:] - 2.0), name_of(h[0].inc(1.0))
    ('exp(h) / 2', 'h[0, 1:] - 2.0', 'h[0].inc(1.0)')

    A length is no vector to a user:

    >>> name_of(pt.stack([h.shape[0]]) * h[0])
    'h.shape[0] * h[0]'
    """
    known = given_name(variable) or (own(variable) if own is not None else None)
    if known:
        return known
    if isinstance(variable, Constant):
        return constant_text(variable)
    node = variable.owner
    if node is None:
        return "an unnamed input"
    if isinstance(node.op, _SAME_VALUE) or _is_cast(node.op):
        return name_of(node.inputs[0], depth, own)
    if depth <= 0:
        return shown_op(op_name(node.op))
    if isinstance(node.op, Shape | Shape_i):
        shape = f"{_inside(name_of(node.inputs[0], depth - 1, own), _TIGHTEST)}.shape"
        return f"{shape}[{node.op.i}]" if isinstance(node.op, Shape_i) else shape
    if isinstance(node.op, FinalizedOpFromGraph):
        graph = node.op.fgraph
        outer = {
            v: name_of(o, depth - 1, own) for v, o in zip(graph.inputs, node.inputs, strict=True)
        }
        return name_of(graph.outputs[node.outputs.index(variable)], depth, outer.get)
    scalar_op = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
    if isinstance(scalar_op, Composite):
        names = [name_of(v, depth - 1, own) for v in node.inputs]
        return scalar_name(scalar_op.fgraph, node.outputs.index(variable), names, depth)
    operands = node.inputs
    if op_name(node.op) == "dot" and len(operands) > 2:
        names = [name_of(v, depth - 1, own) for v in operands]
        if len(operands) == 3:  # Dot22Scalar
            left, right, alpha = names
            names = ["", alpha, left, right, "0.0"]
        return _sum_with_product(names)
    if isinstance(node.op, INDEXING):
        return subscript_text(node, [name_of(v, depth - 1, own) for v in operands])
    if isinstance(node.op, increment_ops):
        target, value, *indices = [name_of(v, depth - 1, own) for v in operands]
        verb = "set" if node.op.set_instead_of_inc else "inc"
        return f"{subscript_text(node, [target, *indices])}.{verb}({value})"
    if op_name(node.op) == "makeVector" and len(operands) == 1:  # a length that mean divides by
        return name_of(operands[0], depth, own)
    if op_name(node.op) in ("join", "makeVector"):
        is_join = op_name(node.op) == "join"  # (in PyTensor 3.0, its first operand is the axis)
        parts = [name_of(v, depth - 1, own) for v in operands if v.type.ndim or not is_join]
        return f"{shown_op(op_name(node.op))}([{', '.join(parts)}])"
    arguments = [name_of(v, depth - 1, own) for v in operands if not _is_setting(v, operands)]
    return apply_text(node.op, arguments)


def _sum_with_product(names: Sequence[str]) -> str:
    """Return the shortest form of ``beta * z + alpha * x @ y``, which Gemm and Gemv compute."""
    added, alpha, left, right, beta = names
    terms = [(beta, added), (alpha, f"{_inside(left, _PRODUCT)} @ {_inside(right, _UNARY)}")]
    texts = [
        text if factor == "1.0" else f"{_inside(factor, _PRODUCT)} * {_inside(text, _PRODUCT)}"
        for factor, text in terms
        if factor != "0.0"
    ]
    return " + ".join(texts)


def _is_cast(op: Op) -> bool:
    return isinstance(getattr(op, "scalar_op", op), Cast)


def _is_setting(variable: Variable, operands: Sequence[Variable]) -> bool:
    """Whether an operand is a setting, not data: a generator, a flag, a shape."""
    return not hasattr(variable.type, "dtype") and len(operands) > 1


def subscript_text(node: Apply, names: Sequence[str]) -> str:
    """Return an indexing as the user writes it, from the names of a node's operands."""
    taken, *indices = names
    inner = _inside(taken, _TIGHTEST)
    entries = getattr(node.op, "idx_list", None)
    if entries is None:  # advanced indexing in PyTensor 3.0 has no list of indices
        return f"{inner}[{', '.join(indices)}]"
    left = iter(indices)

    def part(entry: Any) -> str:
        if isinstance(entry, slice):
            parts = [entry.start, entry.stop, entry.step]
            texts = ["" if p is None else part(p) for p in parts]
            return ":".join(texts if texts[2] else texts[:2])
        return next(left, "")

    index = ", ".join(map(part, entries))
    parts = getattr(node.inputs[0].tag, "joined_from", None)
    return (parts and _joined_text(parts, index)) or f"{inner}[{index}]"


def _joined_text(parts: Joined, index: str) -> str | None:
    """Return what a constant index takes from a vector of several joined variables, or None."""
    before, colon, after = index.partition(":")
    try:
        start, stop = int(before or 0), int(after) if after else None
    except ValueError:
        return None
    total = sum(math.prod(shape) for _, shape in parts)
    if not colon:
        return element_text(*joined_element(parts, start % total)[:2])
    first = 0
    for name, shape in parts:
        end = first + math.prod(shape)
        if (start, total if stop is None else stop) == (first, end):
            return name
        first = end
    return None


def joined_element(parts: Joined, position: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return which element of a joined variable is at a position: name, index, and its shape.

    Examples
    --------
    >>> joined_element([("a", ()), ("b", (2, 3))], 4)
    ('b', (1, 0), (2, 3))
    """
    for name, shape in parts:
        size = math.prod(shape)
        if position < size:
            at = np.unravel_index(position, shape) if shape else ()
            return name, tuple(map(int, at)), shape
        position -= size
    raise IndexError(f"the joined variables have no element {position}")


def scalar_name(fgraph: FunctionGraph, output: int, names: Sequence[str], depth: int) -> str:
    """Return the expression of one output of a fused operation, given its operands' names."""
    known = dict(zip(fgraph.inputs, names, strict=True))

    def text(variable: Variable, depth: int) -> str:
        if variable in known:
            return known[variable]
        if isinstance(variable, Constant):
            return constant_text(variable)
        if depth <= 0:
            return shown_op(op_name(variable.owner.op))
        if _is_cast(variable.owner.op):
            return text(variable.owner.inputs[0], depth)
        return apply_text(variable.owner.op, [text(v, depth - 1) for v in variable.owner.inputs])

    return text(fgraph.outputs[output], depth + 1)


def constant_text(variable: Constant) -> str:
    """Return a constant as text: its value if it is one number, else its type."""
    data = variable.data
    if isinstance(data, (np.ndarray, np.generic, int, float)) and np.size(data) == 1:
        return number_text(np.asarray(data).item())
    return f"a constant of shape {np.shape(data)}" if np.ndim(data) else str(data)


def readable_names(variables: Sequence[Variable | str], word: str = "parameter") -> list[str]:
    """Return a name for each variable, all of them different.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> readable_names([pt.vector("w"), pt.vector(), pt.vector("w")])
    ['w', 'parameter 1', 'w (parameter 2)']
    """
    names: list[str] = []
    for i, v in enumerate(variables):
        name = v if isinstance(v, str) else v.name or f"{word} {i}"
        names.append(f"{name} ({word} {i})" if name in names else name)
    return names
