"""A line of the user with one operand of one operation written otherwise."""

import ast

from theanoguard.explain.naming import INFIX

_SIGNS = {sign: name for name, sign in INFIX.items()}
_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Pow: "**",
}


def edited(text, op, operand, template):
    """Return the operand and the line after a change, or None where the line does not allow it.

    Parameters
    ----------
    text : str
        The line; it must hold the operation exactly once.
    op : str
        Name of the operation.
    operand : int
        Which of its operands is written otherwise.
    template : str
        What to write, with ``{x}`` for the operand and ``{pt}`` for PyTensor's module.

    Returns
    -------
    tuple of (str, str) or None

    Examples
    --------
    >>> edited("y = pt.log(p)", "log", 0, "{pt}.maximum({x}, 1e-12)")
    ('pt.maximum(p, 1e-12)', 'y = pt.log(pt.maximum(p, 1e-12))')
    >>> edited("return a / b", "true_div", 1, "{pt}.maximum({x}, 1e-12)")
    ('pt.maximum(b, 1e-12)', 'return a / pt.maximum(b, 1e-12)')
    """
    code, _, comment = text.partition("  #")
    tree = _parsed(code)
    if tree is None:
        return None
    found = [operands for node in ast.walk(tree) if (operands := _operands(node, op))]
    if len(found) != 1 or operand >= len(found[0]):
        return None
    node = found[0][operand]
    if node.lineno != 1 or node.end_lineno != 1:
        return None
    # (columns count bytes)
    line = code.encode()
    old = line[node.col_offset : node.end_col_offset].decode()
    inner = f"({old})" if "{x}." in template or "{x} " in template else old
    new = template.format(pt=_module(tree), x=inner if _compound(node) else old)
    before, after = line[: node.col_offset], line[node.end_col_offset :]
    if template.startswith("{pt}") and isinstance(node, ast.BinOp) and before.endswith(b" ("):
        before, after = before[:-1], after.removeprefix(b")")
    changed = before + new.encode() + after
    return new, changed.decode().rstrip()


def _parsed(code):
    for attempt in (code, f"{code}: pass"):
        try:
            return ast.parse(attempt)
        except SyntaxError:
            continue
    return None


def _compound(node):
    return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp))


def _operands(node, op):
    """Return the operands of a call or an operator that is the operation, else None."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right] if _SIGNS.get(_BINARY.get(type(node.op))) == op else None
    if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        return node.args if name == op else None
    return None


def _module(tree):
    """Return the name by which the line calls PyTensor's functions."""
    names = [
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    ]
    return next((name for name in names if name in ("pt", "T", "tt", "at", "tensor")), "pt")
