"""Names and provenance of the variables of a call, including those of inner graphs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from theanoguard._evaluate.culprit import Made, Place, Scope, leave, operand_place, regions_of
from theanoguard._evaluate.scalars import ScalarStep
from theanoguard._naming import INDEXING, apply_text, element_text, joined_element, name_of
from theanoguard._provenance import Provenance, SourceLine, inner_input, lookup, lookup_inner
from theanoguard._provenance.records import user_line
from theanoguard._pytensor import FinalizedOpFromGraph
from theanoguard._text import number_text, number_texts
from theanoguard.operations.names import op_name, user_op_name

VIEWS = (DimShuffle, Reshape, SpecifyShape, TypeCastingOp, *INDEXING)
"""Operations that only move elements."""


MOVES = ("squeeze", "dropDims", "expandDims", "dimShuffle", "reshape")
"""Views.  If a rewrite swaps an operation with a view, the provenance names only the view."""


def lookup_in(scope: Scope, variable: Variable) -> Provenance:
    """Return the provenance of a variable of a scope's graph, which may be an inner graph."""
    if scope.parent is None:
        return lookup(scope.fgraph, variable)
    if _is_fused(scope) and variable.owner is not None:
        fused = lookup_in(scope.parent, scope.node.outputs[0]).inner
        if fused:
            found = fused[scope.fgraph.toposort().index(variable.owner)]
            return _of_output(found, scope, variable)
    return lookup_inner(scope.node.op, scope.fgraph, variable)


def _of_output(found: Provenance, scope: Scope, variable: Variable) -> Provenance:
    """Return the provenance of one of the outputs of a node inside a fused operation.

    `found` is the provenance of the node, which has only one name.
    """
    if len(variable.owner.outputs) == 1 or scope.parent is None:
        return found
    outputs = list(scope.fgraph.outputs)
    if variable not in outputs:
        return replace(found, own_name=False, expression=None, operands=(), ndim=None)
    outer = lookup_in(scope.parent, scope.node.outputs[outputs.index(variable)])
    return replace(outer, inner=found.inner)


def provenance_of(place: Place, step: ScalarStep | None = None) -> Provenance:
    """Return the provenance of a place, or of a scalar operation fused into its node."""
    return provenance_of_step(lookup_in(place.scope, place.variable), place.variable.owner, step)


def provenance_of_step(
    found: Provenance, node: Apply | None, step: ScalarStep | None
) -> Provenance:
    """Return the provenance of a node's scalar operation, or of the node if that is unknown."""
    return _exactly(found, node, step)[0]


def _exactly(
    found: Provenance, node: Apply | None, step: ScalarStep | None
) -> tuple[Provenance, bool]:
    """Return the nearest known provenance of a scalar operation, and whether it is exact."""
    if node is None or step is None or step.node is None:
        return found, step is None
    op = getattr(node.op, "scalar_op", node.op)
    for inner_node in (step.node, *step.inside):
        if not found.inner:
            return found, False
        found = found.inner[list(op.fgraph.toposort()).index(inner_node)]
        op = inner_node.op
    return found, True


def line_around(scope: Scope) -> SourceLine | None:
    """Return the user's line of the innermost inner graph that has one."""
    while scope.parent is not None:
        line = user_line(lookup_in(scope.parent, scope.node.outputs[0]))
        if line is not None:
            return line
        scope = scope.parent
    return None


MAX_NAME = 60  # largest length of an expression that is shown instead of a name

MAX_FORMULA = 100
"""Largest length of a formula for an operand that has neither a name nor a short expression."""


def name_in(scope: Scope, variable: Variable, provenance: Provenance) -> tuple[str, bool]:
    """Return the user's name of a variable or a short expression, and whether it is a name.

    The first of these that exists is used: the name that the user gave the variable; the name that
    the code assigns the value to; the expression as it is written in the code; a formula.
    """
    if provenance.own_name and provenance.name:
        return provenance.name, True
    return written(provenance) or name_of(variable, own=known_in(scope)), False


def written(provenance: Provenance) -> str | None:
    """Return the expression of the user's code that gives a value, if it is short enough."""
    text = provenance.expression
    return text if text and len(text) <= MAX_NAME else None


def known_in(scope: Scope) -> Callable[[Variable], str | None]:
    """Return a function from a variable of a scope to the user's name or expression, or None."""

    def known(v: Variable) -> str | None:
        if isinstance(v, Constant):
            return constant_name(scope, v)
        if v.owner is None and scope.parent is not None:
            return _outer_name(scope, v)
        found = lookup_in(scope, v)
        return found.name if found.own_name else written(found)

    return known


def constant_name(scope: Scope, variable: Constant) -> str | None:
    """Return the name of a constant array in the user's code; None for a number."""
    if np.size(variable.data) < 2:
        return None
    found = lookup_in(scope, variable)
    return found.name if found.own_name else None


def _outer_name(scope: Scope, variable: Variable) -> str:
    """Return the name of an inner graph's input, in the inner graph or else in the outer one."""
    position = list(scope.fgraph.inputs).index(variable)
    inside = inner_input(scope.node.op, scope.fgraph, position)
    if inside.own_name and inside.name and not inside.name.endswith("]"):
        return inside.name
    outside: Any = scope.parent
    outer = outside.replay.inner(scope.node).outer_input(position)
    return "state" if outer is None else display_name(outside, outer)


def display_name(scope: Scope, variable: Variable) -> str:
    """Return the user's name of a variable of a compiled graph, or a short expression."""
    if isinstance(variable, Constant):
        return constant_name(scope, variable) or name_of(variable)
    if variable.owner is None and scope.parent is not None:
        return _outer_name(scope, variable)
    return name_in(scope, variable, lookup_in(scope, variable))[0]


def element_name(place: Place) -> tuple[str, tuple[Any, ...]]:
    """Return the name of the variable of a place, and the index in the user's dimensions."""
    if (joined := joined_at(place)) is not None:
        return joined[:2]
    while place.is_leaf and _is_fused(place.scope) and (outer := leave(place)) is not None:
        place = outer
    found = lookup_in(place.scope, place.variable)
    while isinstance(getattr(place.variable.owner, "op", None), DimShuffle | TypeCastingOp):
        if found.own_name or written(found):
            break
        place = operand_place(place, regions_of(place)[0])
        found = lookup_in(place.scope, place.variable)
    name = display_name(place.scope, place.variable)
    outer = leave(place) if place.is_leaf else None
    if outer is not None and outer.index == place.index:  # a loop reads it in every step
        found = lookup_in(outer.scope, outer.variable)
    return name, index_in(place, found)


def _is_fused(scope: Scope) -> bool:
    """Return whether a scope is the inside of an operation that a rewrite has fused."""
    return scope.parent is not None and isinstance(scope.node.op, FinalizedOpFromGraph)


def joined_at(place: Place) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Return the name, index and shape for a place in a vector of joined variables, or None."""
    parts = getattr(place.variable.tag, "joined_from", None)
    return joined_element(parts, place.index[0]) if parts and place.index else None


def index_in(place: Place, provenance: Provenance) -> tuple[Any, ...]:
    """Return the index of a place without the dimensions of length 1 that rewrites have added."""
    return in_users_dimensions(provenance, place.index, np.shape(place.array))[0]


def in_users_dimensions(
    provenance: Provenance, index: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return an index and a shape without the dimensions of length 1 that rewrites have added."""
    known = provenance.own_name or written(provenance)
    if not known or provenance.ndim is None:  # an array with one element needs no index
        return ((), ()) if all(length == 1 for length in shape) else (index, shape)
    excess = len(shape) - provenance.ndim
    ones = [axis for axis, length in enumerate(shape) if length == 1]
    if not 0 < excess <= len(ones):
        return index, shape
    kept = [axis for axis in range(len(shape)) if axis not in ones[:excess]]
    return tuple(index[axis] for axis in kept), tuple(shape[axis] for axis in kept)


def fused_name(place: Place, step: ScalarStep | None) -> str | None:
    """Return the user's name for the result of a fused operation, or None if unknown."""
    whole = lookup_in(place.scope, place.variable)
    found, is_exact = _exactly(whole, place.variable.owner, step)
    if not is_exact:
        return None
    return found.name if found.own_name else written(found)


def step_name(made: Made, node: Apply, provenance: Provenance, origin: ScalarStep | int) -> str:
    """Return the user's name for an operand of a fused operation.

    `node`: the fused node.
    `provenance`: the provenance of the node.
    `origin`: the step that computed the operand, or its position among the operands of the node.
    """
    if not isinstance(origin, ScalarStep):
        source = made.sources[origin]
        return element_text(*element_name(source))
    found, is_exact = _exactly(provenance, node, origin)
    own = (found.name if found.own_name else written(found)) if is_exact else None
    if own:
        return own
    names = [
        number_text(value) if part is None else step_name(made, node, provenance, part)
        for part, value in zip(origin.origins, origin.operands, strict=True)
    ]
    text = apply_text(origin.op, names)
    if len(text) <= MAX_NAME:
        return text
    return apply_text(origin.op, number_texts(origin.operands))


# (operation, name of the user's operation) -> the user's operation, and a text for its operand
_REWRITTEN = {
    ("log1p", "log"): (ps.log, lambda x: ScalarStep(ps.add, None, (1.0, x), (None, 0), (1.0 + x,))),
    ("log1mexp", "log"): (
        ps.log,
        lambda x: ScalarStep(ps.sub, None, (1.0, np.exp(x)), (None, None), (-np.expm1(x),)),
    ),
}


def as_written(step: ScalarStep, provenance: Provenance) -> ScalarStep:
    """Return the user's operation if a rewrite replaced several operations by one.

    ``log(1 - p)`` is computed as ``log1p(-p)``: the user's operation is ``log``, of ``1 - p``.
    """
    users = user_op_name(provenance.op) if provenance.op else ""
    known = _REWRITTEN.get((op_name(step.op), users))
    if known is None:
        return step
    op, operand_of = known
    operand = operand_of(step.operands[0])
    origins = tuple(o if o is None else step.origins[0] for o in operand.origins)
    operand = replace(operand, origins=origins)
    return replace(step, op=op, operands=operand.results, origins=(operand,))


def operand_text(op: ScalarOp, own: Provenance) -> str | None:
    """Return the user's text for the operand of an operation that has only one; else None.

    `own`: the operation's own.
    """
    text = own.expression or ""
    is_it = len(own.operands) == 1 and text.startswith(f"{op_name(op)}(")
    return own.operands[0] if is_it and len(own.operands[0]) <= MAX_NAME else None


def user_op(provenance: Provenance, node: Apply) -> str:
    """Return the name of the user's operation that a node was rewritten from."""
    name = user_op_name(provenance.op) if provenance.op else ""
    return op_name(node.op) if not name or name in MOVES else name
