"""Edit one operand of one operation in the user's line of code."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias, TypeGuard

from theanoguard.operations.names import OPERATORS, is_written, shown_op

Span: TypeAlias = tuple[int, int]
"""Where an expression begins and ends in a line."""


def edited(
    text: str,
    op: str,
    operand: int,
    template: str,
    marked: Sequence[Span | None] = (),
    module: str = "pt",
) -> tuple[str, str] | None:
    """Return the operand and the line after a change, or None if the line cannot be changed.

    Parameters
    ----------
    text : str
        The line.
    op : str
        Name of the operation.
    operand : int
        Position of the operand to change.
    template : str
        What to write, with ``{x}`` for the operand and ``{pt}`` for PyTensor's module.
    marked : sequence of (int, int)
        Where the expressions to change begin and end.  Without it, the line must contain the
        operation exactly once.
    module : str
        PyTensor's module, for a line that does not name it.

    Examples
    --------
    >>> edited("y = pt.log(p)", "log", 0, "{pt}.maximum({x}, 1e-12)")
    ('pt.maximum(p, 1e-12)', 'y = pt.log(pt.maximum(p, 1e-12))')
    >>> edited("return a / b - c / d", "true_div", 1, "{pt}.maximum({x}, 1e-12)", [(15, 20)])
    ('pt.maximum(d, 1e-12)', 'return a / b - c / pt.maximum(d, 1e-12)')
    >>> edited("y = px.math.log(p)", "log", 0, "{pt}.maximum({x}, 1e-12)", module="pmd.math")
    ('px.math.maximum(p, 1e-12)', 'y = px.math.log(px.math.maximum(p, 1e-12))')
    """
    code = text.partition("  #")[0]
    tree = parsed_line(code)
    if tree is None:
        return None
    written = _expressions(tree)
    found = [(node, operands) for node in written if (operands := _operands(node, op))]
    spans = {_in_bytes(code, span) for span in marked if span}
    if spans:
        found = [(node, operands) for node, operands in found if _span(node) in spans]
    if not found or (len(found) > 1 and not spans):
        return None
    if any(operand >= len(operands) for _, operands in found):
        return None
    arguments = sorted((operands[operand] for _, operands in found), key=_span, reverse=True)
    line, new = code.encode(), ""
    for node in arguments:
        if node.lineno != 1 or node.end_lineno != 1:
            return None
        new, line = _with_change(line, node, template, _module(tree, module))
    return new, line.decode().rstrip()


def _with_change(line: bytes, node: ast.expr, template: str, module: str) -> tuple[str, bytes]:
    """Return the new operand, and the line with it.  Columns are counted in bytes."""
    start, end = _span(node)
    old = line[start:end].decode()
    inner = f"({old})" if "{x}." in template or "{x} " in template else old
    new = template.format(pt=module, x=inner if _compound(node) else old)
    before, after = line[:start], line[end:]
    is_call = before[-2:-1].isalnum() or before[-2:-1] in (b"_", b")", b"]")
    if template.endswith(")") and before.endswith(b"(") and after[:1] == b")" and not is_call:
        before, after = before[:-1], after[1:]
    return new, before + new.encode() + after


def replaced(
    text: str, marked: Span | None, template: str, module: str = "pt"
) -> tuple[str, str] | None:
    """Return a new expression, and the line in which it replaces the marked one.

    Parameters
    ----------
    text : str
        The line.
    marked : tuple of int or None
        Where the expression begins and ends.
    template : str
        What to write, with ``{pt}`` for PyTensor's module.
    module : str
        PyTensor's module, for a line that does not name it.

    Returns
    -------
    tuple of (str, str) or None
        None if the marked text is not a complete expression, or if its operand has no name.

    Examples
    --------
    >>> replaced("y = pt.log(p.prod())", (4, 20), "{pt}.log(p).sum()")
    ('pt.log(p).sum()', 'y = pt.log(p).sum()')
    >>> replaced("y = pt.log(2 * pt.exp(x)).sum()", (4, 25), "x + np.log(2)")
    ('(x + np.log(2))', 'y = (x + np.log(2)).sum()')
    >>> replaced("y = a - pt.log(p)", (8, 17), "-{pt}.softplus(z)")
    ('pt.softplus(z)', 'y = a + pt.softplus(z)')
    >>> replaced("loss = -pt.log(p).mean()", (8, 17), "-{pt}.softplus(z)")
    ('pt.softplus(z)', 'loss = pt.softplus(z).mean()')
    """
    code = text.partition("  #")[0]
    tree = parsed_line(code)
    if tree is None or not marked or "{x}" in template:
        return None
    span = _in_bytes(code, marked)
    same = [node for node in _expressions(tree) if _span(node) == span]
    if not same:
        return None
    new = bare(template.format(pt=_module(tree, module)))
    root = ast.parse(new, mode="eval").body
    before = _sign_before(code, same[0], tree) if _is_negative(root) else None
    if before is not None and _is_negative(root):  # (-x in place of y: a - y is a + x)
        sign, begin = before
        new = ast.unparse(root.operand)
        inner = f"({new})" if _compound(root.operand) else new
        return new, _spliced(code, (begin, span[1]), sign + inner)
    if not _stands_alone(same[0], tree) and _compound(root):
        return f"({new})", _spliced(code, span, f"({new})")
    return new, _spliced(code, span, new)


def rewritten(
    text: str, expression: str, template: str, module: str = "pt"
) -> tuple[str, str] | None:
    """Return a changed expression, and the line with it, or None if the line does not have it once.

    Parameters
    ----------
    text : str
        The line.
    expression : str
        The expression, which the line may write with other spaces.
    template : str
        What to write, with ``{x}`` for the expression and ``{pt}`` for PyTensor's module.
    module : str
        PyTensor's module, for a line that does not name it.

    Examples
    --------
    >>> rewritten("pm.Categorical('y', p / p.sum())", "p/p.sum()", "{pt}.maximum({x}, 1e-12)")
    ('pt.maximum(p / p.sum(), 1e-12)', "pm.Categorical('y', pt.maximum(p / p.sum(), 1e-12))")
    """
    code = text.partition("  #")[0]
    tree, wanted = parsed_line(code), _parsed(expression)
    if tree is None or not expression or wanted is None:
        return None
    same = [node for node in _expressions(tree) if _is_same(node, wanted.body[0])]
    if len(same) != 1:
        return None
    new, line = _with_change(code.encode(), same[0], template, _module(tree, module))
    return new, line.decode().rstrip()


def _is_same(node: ast.expr, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.dump(node) == ast.dump(statement.value)


def with_keyword(text: str, marked: Span | None, keyword: str) -> tuple[str, str] | None:
    """Return an argument and the line in which the marked call has it, or None.

    The call must have the argument already, with another value.

    Parameters
    ----------
    text : str
        The line.
    marked : tuple of int or None
        Where the call begins and ends.
    keyword : str
        The name of the argument and its new value.

    Examples
    --------
    >>> with_keyword("f = gp.prior('f', X, jitter=0.0)", (4, 32), "jitter=1e-10")
    ('jitter=1e-10', "f = gp.prior('f', X, jitter=1e-10)")
    """
    code = text.partition("  #")[0]
    tree = parsed_line(code)
    name, _, value = keyword.partition("=")
    if tree is None or not marked or not value:
        return None
    span = _in_bytes(code, marked)
    calls = [n for n in _expressions(tree) if isinstance(n, ast.Call) and _span(n) == span]
    given = [k for call in calls for k in call.keywords if k.arg == name]
    return (keyword, _spliced(code, _span(given[0].value), value)) if given else None


def index_of_argument(text: str, marked: Span | None) -> str:
    """Return the index that a marked call applies to its argument; empty if there is none.

    Examples
    --------
    >>> index_of_argument("loss = -pt.log(q[rows, y]).mean()", (8, 26))
    '[rows, y]'
    """
    marked_text = text[slice(*marked)] if marked else ""
    tree = _parsed(marked_text)
    call = getattr(tree.body[0], "value", None) if tree is not None and tree.body else None
    argument = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if not isinstance(argument, ast.Subscript):
        return ""
    code = marked_text.encode()
    return code[argument.value.end_col_offset : argument.end_col_offset].decode()


def _in_bytes(code: str, span: Span) -> Span:
    """Return a span of characters as a span of bytes, in which ``ast`` counts."""
    start, end = (len(code[:i].encode()) for i in span)
    return start, end


def _spliced(code: str, span: Span, new: str) -> str:
    """Return a line in which a span of bytes is replaced."""
    (start, end), line = span, code.encode()
    return (line[:start] + new.encode() + line[end:]).decode().rstrip()


def bare(text: str) -> str:
    """Return an expression without parentheses around all of it.

    Examples
    --------
    >>> bare("(a + b)"), bare("(a) + f(b)")
    ('a + b', '(a) + f(b)')
    """
    inner = text[1:-1]
    is_whole = text.startswith("(") and text.endswith(")") and _parsed(inner) is not None
    return inner if is_whole else text


def filled(code: str, texts: Mapping[str, str]) -> str:
    """Return an expression with other expressions for some names, without needless operations.

    Examples
    --------
    >>> filled("-softplus(-x) + u.T", {"x": "-z", "u": "a + b"})
    '(a + b).T - softplus(z)'
    >>> filled("log(x[None, :][0]) + (np.log(1) - y)", {})
    'log(x) - y'
    """
    return ast.unparse(_Filled(texts).visit(ast.parse(code, mode="eval").body))


class _Filled(ast.NodeTransformer):
    def __init__(self, texts: Mapping[str, str]):
        self.texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.texts.get(node.id)
        return node if text is None else ast.parse(text, mode="eval").body

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        inner = node.value
        if isinstance(inner, ast.Subscript):
            both = ast.unparse(inner.slice), ast.unparse(node.slice)
            return inner.value if both in _UNDONE else node
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        inner = node.operand
        if not isinstance(node.op, ast.USub):
            return node
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
            first = inner.left  # -(-a * b)
            if _is_negative(first):
                return ast.BinOp(first.operand, inner.op, inner.right)
            if isinstance(first, ast.Constant):  # -2 * x for -(2 * x)
                return ast.BinOp(ast.UnaryOp(ast.USub(), first), inner.op, inner.right)
        return inner.operand if _is_negative(inner) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right = node.left, node.right
        is_sum = isinstance(node.op, ast.Add)
        if not is_sum and not isinstance(node.op, ast.Sub):
            return node
        if ast.unparse(left) in _ZERO:
            return right if is_sum else self.visit_UnaryOp(ast.UnaryOp(ast.USub(), right))
        if is_sum and isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add | ast.Sub):
            first = self.visit_BinOp(ast.BinOp(left, ast.Add(), right.left))  # a + (b + c)
            return ast.BinOp(first, right.op, right.right)
        if _is_negative(right):  # a + -b, a - -b
            node = ast.BinOp(left, ast.Sub() if is_sum else ast.Add(), right.operand)
        elif is_sum and isinstance(right, ast.BinOp) and _is_negative(right.left):  # a + -b * c
            right = ast.BinOp(right.left.operand, right.op, right.right)
            node = ast.BinOp(left, ast.Sub(), right)
        if isinstance(node.op, ast.Add) and _is_negative(left):  # -a + b
            return ast.BinOp(node.right, ast.Sub(), left.operand)
        return node


def _is_negative(node: ast.expr) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


_UNDONE = {("(None, :)", "0"), ("(:, None)", "(:, 0)"), ("None", "0")}
"""An index that adds an axis, and the index that takes it away again."""

_ZERO = ("np.log(1)", "np.log(1.0)")


def listed(texts: Iterable[str]) -> str:
    """Return texts as a list in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _sign_before(code: str, node: ast.expr, tree: ast.Module) -> tuple[str, int] | None:
    """Return the other sign than the one before an operand, and where that begins.

    The operand may be followed by ``.sum()`` or ``.mean()``.  Return None if there is no sign.
    """
    parents = {child: p for p in ast.walk(tree) for child in ast.iter_child_nodes(p)}
    start, parent = _span(node)[0], parents[node]
    operand: ast.AST = node
    while isinstance(parent, ast.Attribute) and parent.attr in ("sum", "mean"):
        operand = parents[parent]
        parent = parents[operand]
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub):
        return "", _span(parent)[0]
    if not isinstance(parent, ast.BinOp) or parent.right is not operand:
        return None
    begin = _span(parent.left)[1]
    between = code.encode()[begin:start].decode()
    sign = {"-": "+", "+": "-"}.get(between.strip())
    return None if sign is None else (between.replace(between.strip(), sign), begin)


def _stands_alone(node: ast.expr, tree: ast.Module) -> bool:
    """Return whether an expression is all of an argument or of what is assigned or returned."""
    parent = next(p for p in ast.walk(tree) if node in ast.iter_child_nodes(p))
    if isinstance(parent, ast.Call):
        return node in parent.args
    return isinstance(parent, ast.stmt | ast.keyword | ast.List | ast.Tuple | ast.Lambda)


def _span(node: ast.expr) -> Span:
    assert node.end_col_offset is not None  # (only nodes that are made by hand have none)
    return node.col_offset, node.end_col_offset


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except SyntaxError:
        return None


_AROUND = (
    *(("", ""), ("", ": pass"), ("", " pass"), ("if 0: pass\n", " pass")),
    *(("(0\n", "\n)"), ("print(\n", "\n)"), ("{\n", "\n}")),
)
"""What may stand before and behind a line that is a part of a statement."""

_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def parsed_line(code: str) -> ast.Module | None:
    """Return the tree of a line, which has the number 1; None if it is no part of a statement.

    Examples
    --------
    >>> [parsed_line(code) is not None for code in ("y = f(", "/ g(x)).sum()", "a, c=d", "a +")]
    [True, True, True, False]
    """
    opened, begun = [], ""
    for character in _STRING.sub("", code):
        if character in _PAIRS:
            opened.append(_PAIRS[character])
        elif opened and character == opened[-1]:
            opened.pop()
        elif character in _PAIRS.values():
            begun = {end: start for start, end in _PAIRS.items()}[character] + begun
    ended = "".join(reversed(opened))
    for (before, after), first in product(_AROUND, ("\n", "0\n")):
        before += "".join(bracket + first for bracket in begun)
        try:
            tree = ast.parse(f"{before}{code}{ended}{after}")
        except SyntaxError:
            continue
        ast.increment_lineno(tree, -before.count("\n"))
        return tree
    return None


def _expressions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that begin and end in the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno == node.end_lineno == 1:
            yield node


def _compound(node: ast.AST) -> bool:
    return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp))


def is_compound(code: str) -> bool:
    """Return whether an expression needs parentheses as an operand.

    Examples
    --------
    >>> is_compound("a - b"), is_compound("(a - b).sum()")
    (True, False)
    """
    return _compound(ast.parse(code, mode="eval").body)


def _operands(node: ast.AST, op: str) -> list[ast.expr] | None:
    """Return the operands of a call or an operator if it is the operation `op`, else None."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right] if OPERATORS.get(type(node.op)) == op else None
    if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        own = [node.func.value] if isinstance(node.func, ast.Attribute) and not node.args else []
        is_it = name == shown_op(op) or (name is not None and is_written(name, op))
        return own + node.args if is_it else None
    return None


def _module(tree: ast.Module, default: str = "pt") -> str:
    """Return the module name that the line uses for PyTensor's functions, such as ``pt``."""
    names = [
        ast.unparse(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    known = ("pt", "T", "tt", "at", "tensor")
    of_labelled = default != "pt"
    return next((n for n in names if n in known or of_labelled and n.endswith(".math")), default)
