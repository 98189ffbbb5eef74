"""Divide arrays by their largest element in a formula that does not depend on their size.

``w.sum() ** 2 / (w**2).sum()`` is the same for ``10 * w``.  So ``w / abs(w).max()`` may take the
place of ``w``, whose squares underflow or overflow.
"""

import ast
import builtins
from collections.abc import Iterator
from itertools import islice

import pytensor.scalar as ps
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i

from theanoguard._graph import VIEWS, constant_number, reduction_of, scalar_class, viewed
from theanoguard._naming import INDEXING
from theanoguard._provenance import source_place
from theanoguard._provenance.source import expression_of
from theanoguard.explain.advice.edits import Edit
from theanoguard.explain.advice.source_edit import filled
from theanoguard.explain.advice.trials import Spot
from theanoguard.explain.advice.written import globals_of
from theanoguard.stable.patterns import Build, rebuild

MAX_VARIABLES = 100  # largest number of variables of a formula that is looked at

_SAME = (ps.Neg, ps.Abs, ps.Cast, ps.Identity)
_ALIKE = (ps.Add, ps.Sub, ps.ScalarMaximum, ps.ScalarMinimum, ps.Second)


def degree(variable: Variable, x: Variable) -> float | None:
    """Return the power of k > 0 by which ``k * x`` in place of `x` multiplies a variable, or None.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> w = pt.dvector("w")
    >>> degree(pt.sqrt((w**2).sum()), w), degree(w.sum() ** 2 / (w**2).sum(), w), degree(w + 1, w)
    (1.0, 0.0, None)
    """
    known: dict[Variable, float | None] = {x: 1.0}
    near = dict.fromkeys(islice(ancestors([variable]), MAX_VARIABLES))
    border = [i for v in near if v.owner is not None for i in v.owner.inputs if i not in near]
    for node in toposort([variable], blockers=border):
        degrees = [known.get(v, 0.0) for v in node.inputs]
        for v in node.outputs:
            known.setdefault(v, _degree(v, degrees))
    return known.get(variable, 0.0)


def _degree(variable: Variable, degrees: list[float | None]) -> float | None:
    node, kind = variable.owner, scalar_class(variable)
    if not any(degrees) and None not in degrees or isinstance(node.op, Shape | Shape_i):
        return 0.0
    if None in degrees:
        return None
    found = [d for d in degrees if d is not None]
    first, equal = found[0], len(set(found)) == 1
    if kind is ps.Mul or isinstance(getattr(node.op, "core_op", node.op), Dot):
        return sum(found)
    if kind is ps.TrueDiv:
        return first - found[1]
    if kind in (ps.Sqr, ps.Sqrt):
        return first * (2.0 if kind is ps.Sqr else 0.5)
    if kind is ps.Pow:
        power = constant_number(node.inputs[1])
        return None if power is None else first * power
    reduces = reduction_of(variable, "sum", "mean", "max", "min")
    if kind in _SAME or reduces is not None or isinstance(node.op, (*VIEWS, *INDEXING)):
        return None if any(found[1:]) else first
    joins = isinstance(node.op, Join | MakeVector)
    return first if equal and (kind in _ALIKE or joins) else None


def scalable(variable: Variable) -> list[Variable]:
    """Return the arrays that a variable is computed from, and on whose size it does not depend."""
    near = islice(ancestors([variable]), MAX_VARIABLES)
    return [v for v in near if v.type.ndim and v is not variable and degree(variable, v) == 0]


def scaled(spot: Spot, variable: Variable) -> Iterator[tuple[Edit, Variable]]:
    """Yield formulas with arrays that are divided by their largest element, and their graphs.

    The gradient may take the largest element as a constant: the result does not depend on it.

    `variable`: what the formula computes.
    """
    place = source_place(variable)
    text = place.text[slice(*place.marked)] if place is not None and place.marked else ""
    if place is None or (tree := expression_of(text)) is None:
        return
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    others = {n for n, v in globals_of(place.file).items() if not isinstance(v, Variable)}
    read -= others | vars(builtins).keys()
    found: dict[str, Variable] = {}
    for v in islice(ancestors([variable]), MAX_VARIABLES):
        name = spot.name_in(v, variable)
        if name in read and v is not variable:
            is_view = name in found and viewed(found[name]) is v
            found[name] = v if is_view else found.get(name, v)
    arrays = scalable(variable)
    sizes = {n: v for n, v in found.items() if v in arrays}
    if not sizes or found.keys() != read:
        return
    operands = {f"operand_{i}": v for i, v in enumerate(found.values())}
    short = dict(zip(found, operands, strict=True))
    for size in ("abs({}).max()", "pytensor.gradient.disconnected_grad(abs({}).max())"):
        texts = {n: f"{o} / {size.format(o)}" if n in sizes else o for n, o in short.items()}
        builders = {v: _scaled(v, constant="grad" in size) for v in sizes.values()}
        edit = Edit(variable, filled(text, texts), operands, spot, {variable: [*found.values()]})
        yield edit, rebuild([variable], builders)[0]


def _scaled(x: Variable, constant: bool) -> Build:
    size = abs(x).max()
    return lambda new: x / (disconnected_grad(size) if constant else size)
