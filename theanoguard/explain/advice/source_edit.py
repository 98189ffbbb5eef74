"""Edit expressions in the user's line of code."""

import ast
import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from theanoguard._provenance.source import expression_of
from theanoguard.operations.names import OPERATORS, is_written, shown_op


def bare(text: str) -> str:
    """Return an expression without parentheses around all of it.

    Examples
    --------
    >>> bare("(a + b)"), bare("(a) + f(b)")
    ('a + b', '(a) + f(b)')
    """
    inner = text[1:-1]
    is_whole = text.startswith("(") and text.endswith(")") and expression_of(inner)
    return inner if is_whole else text


def filled(code: str, texts: Mapping[str, str]) -> str:
    """Return an expression with other expressions for some names, without needless operations.

    Examples
    --------
    >>> filled("-softplus(-x) + u.T", {"x": "-z", "u": "a + b"})
    '(a + b).T - softplus(z)'
    >>> filled("log(x[None, :][0]) + (np.log(1) - y)", {})
    'log(x) - y'
    >>> filled("maximum(x, -1e9) + 1e-8 * y", {})
    'maximum(x, -1e9) + 1e-8 * y'
    """
    text = ast.unparse(_Filled(texts).visit(ast.parse(code, mode="eval").body))
    return text if "'" in text or '"' in text else _LONG_NUMBER.sub(_shorter, text)


_LONG_NUMBER = re.compile(r"(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?(?![\w.])")


def _shorter(number: re.Match) -> str:
    """Return a float as people write it: Python writes 1e9 as 1000000000.0, and 1e-8 as 1e-08."""
    digits, exponent, power = f"{float(number[0]):g}".partition("e")
    text = f"{digits}e{int(power)}" if exponent else number[0]
    return text if float(text) == float(number[0]) else number[0]


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


def operands_of(node: ast.AST, op: str) -> list[ast.expr] | None:
    """Return the operands of a call or an operator if it is the operation `op`, else None."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right] if OPERATORS.get(type(node.op)) == op else None
    if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        own = [node.func.value] if isinstance(node.func, ast.Attribute) and not node.args else []
        is_it = name == shown_op(op) or (name is not None and is_written(name, op))
        return own + node.args if is_it else None
    return None


# ---------------------------------------------------------------- edits of a file


@dataclass(frozen=True)
class EditedLines:
    """Lines of a file before and after an edit."""

    first: int  # number of the first line
    old: tuple[str, ...]  # `old`, `new`: the lines, without their ends
    new: tuple[str, ...]

    def shown(self, imports: Sequence[str] = ()) -> tuple[str, str]:
        """Return the old and the new lines as texts, without their indentation."""
        new = [*imports, *(line.strip() for line in self.new)]
        return "\n".join(line.strip() for line in self.old), "\n".join(new)


def edited(file: str, changes: Sequence[tuple[ast.expr, str]]) -> list[EditedLines] | None:
    """Return the lines of a file in which other expressions are written.

    Only the tokens of these expressions change; they get the parentheses that they need.  The
    result is None if the new file would not be what is meant, or would lose a comment.

    `changes`: expressions of the file, with the text that takes their place.
    """
    lines = linecache.getlines(file)
    tree = _parsed_lines("".join(lines))
    if tree is None:
        return None
    spliced: list[tuple[ast.expr, ast.expr, str]] = []
    for node, text in changes:
        signed = _with_sign(tree, node, text, lines)
        for place, new in [*([signed] if signed else []), (node, text), (node, f"({text})")]:
            if _is_meant(lines, tree, [(place, node, text, new)]):
                spliced.append((place, node, new))
                break
        else:
            return None
    spliced.sort(key=lambda c: (c[0].lineno, c[0].col_offset))
    groups: list[list[tuple[ast.expr, ast.expr, str]]] = []
    for change in spliced:
        if groups and change[0].lineno <= (groups[-1][-1][0].end_lineno or 0):
            groups[-1].append(change)
        else:
            groups.append([change])
    found = []
    for group in groups:
        first, last = group[0][0].lineno, max(c[0].end_lineno or 0 for c in group)
        old = [line.rstrip("\r\n") for line in lines[first - 1 : last]]
        made = _spliced_lines(lines, [(place, text) for place, _, text in group])
        if made is None:
            return None
        made = made[first - 1 : len(made) - (len(lines) - last)]
        found.append(EditedLines(first, tuple(old), tuple(n.rstrip("\r\n") for n in made)))
    return found


def _parsed_lines(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # a cell with magics
        return None


def _same_place(one: ast.AST, other: ast.AST) -> bool:
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return type(one) is type(other) and all(
        getattr(one, n, 0) == getattr(other, n, 0) for n in names
    )


def _spliced_lines(
    lines: Sequence[str], changes: Sequence[tuple[ast.expr, str]]
) -> list[str] | None:
    """Return lines with other text in place of some expressions; None if a comment would go."""
    new = [line.encode() for line in lines]
    for node, text in sorted(changes, key=lambda c: (c[0].lineno, c[0].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before, after = new[first][: node.col_offset], new[last][node.end_col_offset :]
        inside = b"".join(new[first : last + 1])[node.col_offset : -len(after) or None]
        if b"#" in inside and b"\n" in inside:
            return None
        new[first : last + 1] = [before + text.encode() + after]
    return [line.decode() for line in new]


def _is_meant(
    lines: Sequence[str],
    tree: ast.Module,
    changes: Sequence[tuple[ast.expr, ast.expr, str, str]],
) -> bool:
    """Return whether the spliced lines have the tree with the new expressions in their places."""
    new = _spliced_lines(lines, [(place, text) for place, _, _, text in changes])
    ((_, node, text, _),) = changes
    around = next(
        (n for n in tree.body if n.lineno <= node.lineno <= (n.end_lineno or n.lineno)), None
    )
    if new is None or around is None:
        return False
    first = min([around.lineno, *(d.lineno for d in getattr(around, "decorator_list", ()))])
    last = (around.end_lineno or around.lineno) + len(new) - len(lines)
    got = _parsed_lines("".join(new[first - 1 : last]))
    wanted = _Replaced(node, text).visit(
        ast.parse("".join(lines[first - 1 : around.end_lineno])), first - 1
    )
    return got is not None and ast.dump(_Signed().visit(got)) == ast.dump(_Signed().visit(wanted))


class _Replaced(ast.NodeTransformer):
    def __init__(self, node: ast.expr, text: str):
        self.node = node
        self.new = ast.parse(text, mode="eval").body

    def visit(self, node: ast.AST, offset: int | None = None) -> ast.AST:  # type: ignore[override]
        if offset is not None:
            ast.increment_lineno(node, offset)
        return self.new if _same_place(node, self.node) else self.generic_visit(node)


class _Signed(ast.NodeTransformer):
    """Writes ``a - -b`` as ``a + b`` and ``-(-b)`` as ``b``, which are the same number."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        right = node.right
        if isinstance(node.op, ast.Add | ast.Sub) and _is_negative(right):
            other: ast.operator = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.BinOp(node.left, other, right.operand)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        inner = node.operand
        return inner.operand if _is_negative(node) and _is_negative(inner) else node


def _with_sign(
    tree: ast.Module, node: ast.expr, text: str, lines: Sequence[str]
) -> tuple[ast.expr, str] | None:
    """Return the operation around an expression whose sign takes that of the new text, and it."""
    new = ast.parse(text, mode="eval").body
    if not _is_negative(new):
        return None
    for parent in ast.walk(tree):
        if not isinstance(parent, ast.expr):
            continue
        if _is_negative(parent) and _same_place(parent.operand, node):
            inner = ast.unparse(new.operand)
            return parent, f"({inner})" if _compound(new.operand) else inner
        if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Add | ast.Sub):
            continue
        if _same_place(parent.right, node) and parent.lineno == parent.end_lineno:
            line = lines[parent.lineno - 1].encode()
            left = line[parent.col_offset : parent.left.end_col_offset].decode()
            sign = "+" if isinstance(parent.op, ast.Sub) else "-"
            inner = ast.unparse(new.operand)
            inner = f"({inner})" if isinstance(new.operand, ast.BinOp) else inner
            return parent, f"{left} {sign} {inner}"
    return None
