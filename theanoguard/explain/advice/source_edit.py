"""Edit expressions in the user's line of code."""

import ast
import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias, TypeGuard

from theanoguard._provenance.source import expression_of, without_comment
from theanoguard.operations.names import OPERATORS, is_written, shown_op

Span: TypeAlias = tuple[int, int]
"""Where an expression begins and ends in a line."""


Changed: TypeAlias = tuple[str, str]
"""What a change writes, and the line with it."""


class Line:
    """A line of the user's code, in which expressions can be changed.

    A change returns None if it cannot be made in this line.  Templates have ``{pt}`` for PyTensor's
    module, and ``{x}`` for the expression that they change.

    Parameters
    ----------
    marked : sequence of (int, int) or None
        Where the expressions to change begin and end.
    module : str
        PyTensor's module, for a line that does not name it.
    """

    def __init__(self, text: str, marked: Sequence[Span | None] = (), module: str = "pt"):
        self.code = without_comment(text)
        self.tree = parsed_line(self.code) or ast.Module([], [])
        self.expressions = [  # (that begin and end in the line)
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.expr) and node.lineno == node.end_lineno == 1
        ]
        self.spans = [span and _in_bytes(self.code, span) for span in marked]
        self.module = _module(self.tree, module)

    def _marked(self) -> ast.expr | None:
        """Return the first of the marked expressions."""
        return next((n for n in self.expressions if _span(n) in self.spans[:1]), None)

    def with_operand(self, op: str, operand: int, template: str) -> Changed | None:
        """Return the changed operand of an operation, and the line.

        Without marks, the line must contain the operation exactly once.

        Examples
        --------
        >>> Line("y = pt.log(p)").with_operand("log", 0, "{pt}.maximum({x}, 1e-12)")
        ('pt.maximum(p, 1e-12)', 'y = pt.log(pt.maximum(p, 1e-12))')
        >>> line = Line("return a / b - c / d", [(15, 20)])
        >>> line.with_operand("true_div", 1, "{pt}.maximum({x}, 1e-12)")
        ('pt.maximum(d, 1e-12)', 'return a / b - c / pt.maximum(d, 1e-12)')
        >>> line = Line("y = px.math.log(p)", module="pmd.math")
        >>> line.with_operand("log", 0, "{pt}.maximum({x}, 1e-12)")
        ('px.math.maximum(p, 1e-12)', 'y = px.math.log(px.math.maximum(p, 1e-12))')
        """
        spans = [span for span in self.spans if span]
        nodes = [n for n in self.expressions if not spans or _span(n) in spans]
        found = [operands for node in nodes if (operands := operands_of(node, op))]
        if not found or len(found) > 1 and not spans or operand >= min(map(len, found)):
            return None
        return self._with_change([operands[operand] for operands in found], template)

    def with_expression(self, expression: str, template: str) -> Changed | None:
        """Return an expression after a change, and the line; it must have the expression once.

        Examples
        --------
        >>> line = Line("pm.Categorical('y', p / p.sum())")  # (it may have other spaces)
        >>> line.with_expression("p/p.sum()", "{pt}.maximum({x}, 1e-12)")
        ('pt.maximum(p / p.sum(), 1e-12)', "pm.Categorical('y', pt.maximum(p / p.sum(), 1e-12))")
        """
        wanted = expression_of(expression)
        same = [n for n in self.expressions if wanted and ast.dump(n) == ast.dump(wanted)]
        return self._with_change(same, template) if len(same) == 1 else None

    def _with_change(self, nodes: list[ast.expr], template: str) -> Changed:
        line, new = self.code.encode(), ""
        for node in sorted(nodes, key=_span, reverse=True):
            start, end = _span(node)
            old = line[start:end].decode()
            inner = f"({old})" if "{x}." in template or "{x} " in template else old
            new = template.format(pt=self.module, x=inner if _compound(node) else old)
            before, after = line[:start], line[end:]
            is_call = before[-2:-1].isalnum() or before[-2:-1] in (b"_", b")", b"]")
            bracketed = before.endswith(b"(") and after[:1] == b")" and not is_call
            if template.endswith(")") and bracketed:
                before, after = before[:-1], after[1:]
            line = before + new.encode() + after
        return new, line.decode().rstrip()

    def with_marked(self, template: str) -> Changed | None:
        """Return a new expression, and the line in which it replaces the first marked one.

        Examples
        --------
        >>> Line("y = pt.log(p.prod())", [(4, 20)]).with_marked("{pt}.log(p).sum()")
        ('pt.log(p).sum()', 'y = pt.log(p).sum()')
        >>> Line("y = pt.log(2 * pt.exp(x)).sum()", [(4, 25)]).with_marked("x + np.log(2)")
        ('(x + np.log(2))', 'y = (x + np.log(2)).sum()')
        >>> Line("y = a - pt.log(p)", [(8, 17)]).with_marked("-{pt}.softplus(z)")
        ('pt.softplus(z)', 'y = a + pt.softplus(z)')
        >>> Line("loss = -pt.log(p).mean()", [(8, 17)]).with_marked("-{pt}.softplus(z)")
        ('pt.softplus(z)', 'loss = pt.softplus(z).mean()')
        """
        node = self._marked()
        if node is None or "{x}" in template:  # (an operand has no name)
            return None
        new, span = bare(template.format(pt=self.module)), _span(node)
        root = ast.parse(new, mode="eval").body
        if _is_negative(root) and (before := _sign_before(self.code, node, self.tree)) is not None:
            sign, begin = before  # (-x in place of y: a - y is a + x)
            new = ast.unparse(root.operand)
            inner = f"({new})" if _compound(root.operand) else new
            return new, _spliced(self.code, (begin, span[1]), sign + inner)
        if not _stands_alone(node, self.tree) and _compound(root):
            new = f"({new})"
        return new, _spliced(self.code, span, new)

    def with_keyword(self, keyword: str) -> Changed | None:
        """Return an argument and the line in which the marked call has it, with a new value.

        Examples
        --------
        >>> Line("f = gp.prior('f', X, jitter=0.0)", [(4, 32)]).with_keyword("jitter=1e-10")
        ('jitter=1e-10', "f = gp.prior('f', X, jitter=1e-10)")
        """
        name, _, value = keyword.partition("=")
        call = self._marked()
        keywords = call.keywords if isinstance(call, ast.Call) and value else ()
        given = [k.value for k in keywords if k.arg == name]
        return (keyword, _spliced(self.code, _span(given[0]), value)) if given else None


def index_of_argument(text: str, marked: Span | None) -> str:
    """Return the index that a marked call applies to its argument; empty if there is none.

    Examples
    --------
    >>> index_of_argument("loss = -pt.log(q[rows, y]).mean()", (8, 26))
    '[rows, y]'
    """
    marked_text = text[slice(*marked)] if marked else ""
    call = expression_of(marked_text)
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


def _module(tree: ast.Module, default: str) -> str:
    """Return the module name that the line uses for PyTensor's functions, such as ``pt``."""
    names = [
        ast.unparse(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    known = ("pt", "T", "tt", "at", "tensor")
    of_labelled = default != "pt"
    return next((n for n in names if n in known or of_labelled and n.endswith(".math")), default)


# ---------------------------------------------------------------- edits of a file


@dataclass(frozen=True)
class EditedLines:
    """Lines of a file before and after an edit.

    Parameters
    ----------
    first : int
        Number of the first line.
    old, new : tuple of str
        The lines, without their ends.
    """

    first: int
    old: tuple[str, ...]
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
        new = _spliced_lines(lines, [(place, text) for place, _, text in group])
        if new is None:
            return None
        new = new[first - 1 : len(new) - (len(lines) - last)]
        found.append(EditedLines(first, tuple(old), tuple(n.rstrip("\r\n") for n in new)))
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
        is_negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)
        if is_negated and _same_place(parent.operand, node):
            inner = ast.unparse(new.operand)
            return parent, f"({inner})" if _compound(new.operand) else inner
        is_sum = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub)
        if is_sum and _same_place(parent.right, node) and parent.lineno == parent.end_lineno:
            line = lines[parent.lineno - 1].encode()
            left = line[parent.col_offset : parent.left.end_col_offset].decode()
            sign = "+" if isinstance(parent.op, ast.Sub) else "-"
            inner = ast.unparse(new.operand)
            inner = f"({inner})" if isinstance(new.operand, ast.BinOp) else inner
            return parent, f"{left} {sign} {inner}"
    return None
