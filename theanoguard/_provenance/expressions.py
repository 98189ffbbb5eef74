"""The expression of the user's source that built a variable: its place, text and name.

:mod:`~theanoguard._pytensor.recording` records the instruction that was running.  :mod:`executing`
finds its node in the syntax tree.  That node gives the text of the expression, the variable that it
is assigned to, and its operands.
"""

import ast
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

from theanoguard.operations.names import OPERATORS

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Entry: TypeAlias = tuple[str, int, str, str | None]
"""An entry of a stack trace: file, line, function and text.  One that was recorded knows more."""


@dataclass(frozen=True)
class Expression:
    """An expression in the user's source."""

    text: str  # its source on one line, without module prefixes such as ``pt.``
    op: str | None  # name of the operation or function that it applies
    operands: tuple[str, ...]  # the text of its operands, in the order in which they are written
    column: int  # `column`, `end_column`: where it begins in its first line and ends there, from 0
    end_column: int
    #: Of an expression over several lines: the last one, and the column where it ends.
    end: tuple[int, int] | None
    node: Any = field(repr=False, compare=False)


_found: dict[tuple[int, int], tuple[Any, Expression | None]] = {}


def expression_at(entry: Any) -> Expression | None:
    """Return the :class:`Expression` that an entry of a stack trace was evaluating.

    Return None if the entry has no recorded instruction, or if the source is missing or has changed
    since.

    `entry`: an entry of a stack trace.
    """
    code = getattr(entry, "code", None)
    if code is None:
        return None
    key = id(code), entry.lasti
    if key not in _found:
        if len(_found) > 20_000:
            _found.clear()
        _found[key] = (code, _find(entry))  # (a reference to the code keeps its id valid)
    return _found[key][1]


def _find(entry: Any) -> Expression | None:
    file, line, _function, text = entry
    if not text or linecache.getline(file, line).strip() != text:
        return None
    frame = SimpleNamespace(
        f_code=entry.code, f_lasti=entry.lasti, f_lineno=line, f_globals={}, f_locals={}
    )
    import executing  # only a report needs it

    found: Any = executing.Source.executing(frame)  # type: ignore[arg-type]
    node = found.node
    if node is None or getattr(node, "lineno", None) is None:
        return None
    operands = _operands(node)
    source, lines = found.source, linecache.getlines(file)
    first = lines[node.lineno - 1].encode()
    is_long = node.end_lineno != node.lineno
    end = len(first.rstrip()) if is_long else node.end_col_offset
    last = lines[node.end_lineno - 1].encode()[: node.end_col_offset]
    return Expression(
        text=_text(source, node),
        op=_operation(node),
        operands=tuple(_text(source, operand) for operand in operands),
        column=len(first[: node.col_offset].decode(errors="replace")),
        end_column=len(first[:end].decode(errors="replace")),
        end=(node.end_lineno, len(last.decode(errors="replace"))) if is_long else None,
        node=node,
    )


def _operation(node: ast.AST) -> str | None:
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.AugAssign):
        return OPERATORS.get(type(node.op))
    if isinstance(node, ast.Compare):
        return OPERATORS.get(type(node.ops[0])) if len(node.ops) == 1 else None
    if isinstance(node, ast.Subscript):
        return "getitem"
    if isinstance(node, ast.Call):
        function = node.func
        return getattr(function, "attr", None) or getattr(function, "id", None)
    return getattr(node, "attr", None)


def _operands(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript | ast.Attribute):
        return [node.value]
    if isinstance(node, ast.Call):
        own = []
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            own = [node.func.value]
        return [*own, *(a for a in node.args if not isinstance(a, ast.Starred))]
    return []


# Modules that are imported from another: ``from pytensor.tensor import linalg``.
_PACKAGES = ("pytensor", "theano", "pytensor.tensor", "jax")
_SUBMODULES = {"tensor", "pt", "tt", "T", "special", "linalg", "nlinalg", "slinalg", "nnet"}
_MODULES: dict[int, tuple[Any, set[str]]] = {}


def _modules(node: Any) -> set[str]:
    """Return the names under which the source file of a node imports modules."""
    root = node
    while getattr(root, "parent", None) is not None:
        root = root.parent
    if id(root) not in _MODULES:
        names: set[str] = set()
        for part in ast.walk(root):
            if isinstance(part, ast.Import):
                names.update((a.asname or a.name).partition(".")[0] for a in part.names)
            elif isinstance(part, ast.ImportFrom):
                imported = {a.asname or a.name for a in part.names if part.module in _PACKAGES}
                names |= imported & _SUBMODULES
        _MODULES[id(root)] = (root, names)
    return _MODULES[id(root)][1]


def _is_module(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _modules(node)


class _WithoutModules(ast.NodeVisitor):
    """Collects the parts ``pt.`` and ``pt.special.`` of a text, as spans of lines and columns."""

    def __init__(self) -> None:
        self.spans: list[tuple] = []

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_module(node.value):
            value = node.value
            self.spans.append(
                (value.lineno, value.col_offset, value.end_lineno, value.end_col_offset)
            )
        else:
            self.generic_visit(node)


def _text(source: Any, node: Any) -> str:
    """Return the source of a node on one line, without module prefixes such as ``pt.``."""
    if isinstance(node, ast.AugAssign):
        sign = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[2:-2]
        return f"{_text(source, node.target)} {sign} {_text(source, node.value)}"
    visitor = _WithoutModules()
    visitor.visit(node)
    lines = [line.encode() for line in source.text.split("\n")]
    kept, line, column = [], node.lineno, node.col_offset
    stops = [*visitor.spans, (node.end_lineno, node.end_col_offset, None, None)]
    for stop_line, stop_column, next_line, next_column in sorted(stops, key=lambda s: s[:2]):
        if stop_line == line:
            kept.append(lines[line - 1][column:stop_column])
        else:
            kept += [lines[line - 1][column:], *lines[line : stop_line - 1]]
            kept.append(lines[stop_line - 1][:stop_column])
        if next_line is not None:
            dot = lines[next_line - 1].index(b".", next_column)
            line, column = next_line, dot + 1
            kept.append(b"\0")  # marks a removed module, to join the text around it below
    text = b"\n".join(kept).decode(errors="replace").replace("\n\0\n", "").replace("\0\n", "")
    return tidy(text)


_COMMENT = re.compile(r"#[^\n'\"]*$", re.MULTILINE)


def tidy(text: str) -> str:
    """Return source text on one line, with single spaces and no comments.

    Examples
    --------
    >>> tidy("pt.exp(  # scaled\\n    z / 2,\\n)")
    'pt.exp(z / 2)'
    """
    text = re.sub(r"\s+", " ", _COMMENT.sub("", text)).strip()
    text = re.sub(r"([(\[]) ", r"\1", text)
    return re.sub(r",? ([)\]])", r"\1", text)


@dataclass(frozen=True)
class Binding:
    """The assignment target of an expression's value."""

    #: ``p``, ``self.h`` or ``cache["z"]``.  If several values are unpacked and the position of this
    #: one is known, its target.
    name: str | None
    #: All targets, if several values are unpacked and the position of this one is unknown.
    targets: tuple[str, ...] = ()


def binding_of(entries: Sequence[Entry], output: int = 0, n_outputs: int = 1) -> Binding | None:
    """Return the target that the value built under a stack of frames is assigned to.

    `entries`: the user's frames, innermost first, up to the first one that the next frame did not
    call directly.
    `output` and `n_outputs`: the value's position among the outputs of its operation, and how many
    outputs there are.
    """
    index = output if n_outputs > 1 else None
    for entry in entries:
        found = expression_at(entry)
        if found is None:
            return None
        bound, index, goes_on = _bound(found.node, index)
        if not goes_on:
            return bound
    return None


def _bound(node: Any, index: int | None) -> tuple[Binding | None, int | None, bool]:
    """Return the binding of a node's value, its position, and whether it is returned."""
    if isinstance(node, ast.AugAssign):
        return Binding(ast.unparse(node.target)), None, False
    while True:
        parent = getattr(node, "parent", None)
        if isinstance(parent, ast.Tuple | ast.List) and index is None:
            index = parent.elts.index(node)
            node = parent
        elif isinstance(parent, ast.Return | ast.Lambda):
            return None, index, True
        elif isinstance(parent, ast.NamedExpr) and parent.value is node:
            return Binding(parent.target.id), None, False
        elif isinstance(parent, ast.Assign):
            return _of_targets(parent.targets, index), None, False
        elif isinstance(parent, ast.AnnAssign):
            return _of_targets([parent.target], index), None, False
        else:
            return None, index, False


def _of_targets(targets: Sequence[ast.expr], index: int | None) -> Binding | None:
    several = [t for t in targets if isinstance(t, ast.Tuple | ast.List)]
    single = [t for t in targets if not isinstance(t, ast.Tuple | ast.List)]
    if index is None and single:
        return Binding(ast.unparse(single[-1]))
    if not several:
        return None
    elements = several[0].elts
    if any(isinstance(e, ast.Starred) for e in elements):
        return None
    names = tuple(ast.unparse(e) for e in elements)
    if index is None:
        return Binding(None, names)
    return Binding(names[index]) if index < len(names) else None


def loop_of(entry: Any) -> int | None:
    """Return the line of the loop around the expression of an entry, or None."""
    found = expression_at(entry)
    node = found.node if found is not None else None
    while node is not None and not isinstance(node, _FUNCTIONS):
        if isinstance(node, _LOOPS):
            return node.lineno
        node = getattr(node, "parent", None)
    return None
