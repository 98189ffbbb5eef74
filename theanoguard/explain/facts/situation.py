"""Collect the facts for a hint: the operation, its operands, and the nodes around it."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Made, Place, Scope
from theanoguard._evaluate.scalars import OperandOrigin, ScalarStep
from theanoguard._graph import role_of
from theanoguard._provenance import Provenance, SourceLine, lookup
from theanoguard._provenance.records import in_own_gradient, user_line
from theanoguard._pytensor import scalar_ops_of
from theanoguard._text import number_text
from theanoguard.explain.facts.labels import VIEWS, lookup_in, provenance_of, user_op_name
from theanoguard.explain.facts.records import Producer, Situation, called_function
from theanoguard.explain.facts.telling import DECOMPOSITIONS
from theanoguard.explain.facts.way import followed, most_telling
from theanoguard.operations import Region, extreme_element
from theanoguard.operations.names import op_name


def situation_of(
    place: Place, made: Made | None, op: str, value: Any, provenance: Provenance
) -> Situation:
    """Return the `Situation` of an operation that made `value`.

    - `made`: the scalar operation, if the node is elementwise or fused.
    - `op`: name of the operation.
    """
    if made is not None:
        operands = made.step.operands
        producers = tuple(_step_producer(made, origin) for origin in made.step.origins)
    else:
        parts = list(_region_places(place))
        operands = tuple(np.asarray(p.array)[r.index] for p, r in parts)
        producers = tuple(
            _producer(p) if np.size(x) else _owner(p.variable)
            for (p, _), x in zip(parts, operands, strict=True)
        )
    line, backward = user_line(provenance), provenance.backward
    own_line = provenance.source if in_own_gradient(provenance) else None
    zeros = _zeros_from(place, made, operands)
    outermost = _outermost(place.scope).fgraph
    return Situation(
        op=op,
        operands=operands,
        result=value,
        dtype=str(np.asarray(value).dtype),
        backward=backward is not None,
        forward=user_op_name(backward.forward) if backward and backward.forward else "",
        producers=producers,
        in_scan=any(s.step is not None for s in place.scope.path),
        step=next((s.step for s in reversed(place.scope.path) if s.step is not None), 0),
        in_gradient_scan=any(s.forward is not None for s in place.scope.path),
        source=line.text if line is not None else "",
        zero_from=tuple(zero and zero[0] for zero in zeros),
        zero_steps=tuple(zero and zero[1] for zero in zeros),
        in_update=updates_numbers(outermost),
        update_lines=tuple(update_lines(outermost, _last(place))),
        line=line,
        body=_body(place.scope),
        matrix=matrix_text(operands[0], op) if op in DECOMPOSITIONS and operands else "",
        indefinite=op == "cholesky" and bool(operands) and is_indefinite(operands[0]),
        wrapped=_wrapped(producers[0], operands[0]) if operands else "",
        written=user_op_name(provenance.op or ""),
        own_gradient="" if own_line is None else own_line.function,
    )


def updates_numbers(fgraph: FunctionGraph) -> bool:
    """Return whether a function updates a shared variable other than a random state."""
    updated = getattr(fgraph, "update_mapping", None) or {}
    return any(hasattr(fgraph.inputs[i].type, "dtype") for i in updated.values())


def update_lines(fgraph: FunctionGraph, of: Sequence[Variable]) -> list[SourceLine]:
    """Return the user's lines with the updates of the parameters that some variables depend on."""
    updated = getattr(fgraph, "update_mapping", None) or {}
    read = set(ancestors(of))
    found = (
        lookup(fgraph, fgraph.outputs[o])
        for o, i in updated.items()
        if fgraph.inputs[i] in read and hasattr(fgraph.inputs[i].type, "dtype")
    )
    return list(dict.fromkeys(p.source for p in found if p.source is not None and p.own_source))


def _last(place: Place) -> Sequence[Variable]:
    """Return a variable; for one of an inner graph the outputs of the whole graph."""
    is_outermost = place.scope.parent is None
    return [place.variable] if is_outermost else _outermost(place.scope).fgraph.outputs


def _outermost(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _body(scope: Scope) -> tuple[str, ...]:
    """Return names of the operations of the innermost loop."""
    loop: Scope | None = scope
    while loop is not None and loop.step is None:
        loop = loop.parent
    return () if loop is None else tuple(op_name(node.op) for node in loop.fgraph.apply_nodes)


def _zeros_from(
    place: Place, made: Made | None, operands: Sequence[Any]
) -> tuple[tuple[str, int | None] | None, ...]:
    """Return what :func:`_zero_from` returns for each operand that is 0; else None."""
    if made is not None:
        starts: Sequence[Place | OperandOrigin] = made.step.origins
    else:
        starts = [range_of for range_of, _ in _region_places(place)]
    return tuple(
        _zero_from(start, made, place) if np.ndim(value) == 0 and value == 0 else None
        for start, value in zip(starts, operands, strict=True)
    )


MAX_HOPS = 2_000  # largest number of operations through which a 0 is followed upstream


def _zero_from(
    start: Place | OperandOrigin, made: Made | None, place: Place
) -> tuple[str, int | None] | None:
    """Return the operation upstream that made a 0 from nonzero operands, and the step of its loop.

    The step is None outside of loops.  The result is None if the 0 came in, perhaps as a factor.
    """
    for _ in range(MAX_HOPS):
        if made is not None and isinstance(start, int):
            start = made.sources[start]
        if made is not None and isinstance(start, ScalarStep):
            position = followed(start, made.sources, through_constants=True)
            if position is None:
                return None
            value = start.operands[position]
            if value != 0:  # exp(-inf) is 0 and has not underflowed
                found = _users_op(place, start.op, start), place.scope.step
                return found if np.isfinite(value) else None
            start = start.origins[position]
            continue
        if not isinstance(start, Place):
            return None
        place, final = start, None
        made_by = start.variable.owner
        if made_by is not None and isinstance(made_by.op, culprit.ELEMENTWISE):
            final = culprit.scalar_final(start)
        if isinstance(final, ScalarStep):
            made, start = culprit.elementwise(start, final), final
            continue
        upstream = most_telling(start, through_constants=True)
        if upstream is None:
            return None
        if upstream.element != 0:
            if made_by is None or not np.isfinite(upstream.element):
                return None
            return _users_op(place, made_by.op), place.scope.step
        start = upstream
    return None


def _users_op(place: Place, op: Op, step: ScalarStep | None = None) -> str:
    """Return "softmax" for an operation that is a part of one, else its name.

    PyTensor 3.3 has an operation that a rewrite splits; in 3.0 ``softmax`` builds the parts.
    """
    found, name = provenance_of(place, step), op_name(op)
    users = (user_op_name(found.op or ""), called_function(found.source))
    return "softmax" if "softmax" in users else name


def matrix_text(matrix: Any, op: str = "cholesky") -> str:
    """Return why a matrix cannot be decomposed, as the beginning of a sentence.

    `op`: name of the operation; only some of them need a symmetric matrix.

    Examples
    --------
    >>> matrix_text(np.array([[1.0, 2.0], [2.0, 1.0]]))
    'The matrix is not positive definite: the minor of order 2 is -3.0, ...'
    >>> matrix_text(np.array([[1.0, 2.0], [0.0, 1.0]]))
    'The matrix is not symmetric: [0, 1] is 2.0 and [1, 0] is 0.0'
    >>> matrix_text(np.array([[1.0, 2.0], [0.0, 0.0]]), "solve")
    'The matrix is singular: its rank is 1, and it has 2 rows'
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        return ""
    if not np.isfinite(matrix).all():
        return "The matrix holds values that are not finite"
    if op not in ("cholesky", "eigh"):
        return _singular_text(matrix)
    skew = np.abs(matrix - matrix.T)
    scale = np.abs(matrix).max()
    if skew.max() > 1e-8 * scale:
        i, j = (int(k) for k in np.unravel_index(skew.argmax(), skew.shape))
        one, other = number_text(matrix[i, j]), number_text(matrix[j, i])
        return f"The matrix is not symmetric: [{i}, {j}] is {one} and [{j}, {i}] is {other}"
    if (rows := equal_rows(matrix)) is not None:
        return f"The matrix is singular: its rows {rows[0]} and {rows[1]} are equal"
    matrix = _for_linalg(matrix)
    smallest = float(f"{np.linalg.eigvalsh(matrix).min():.5g}")
    for order in range(1, min(len(matrix), 100) + 1):
        minor = float(f"{np.linalg.det(matrix[:order, :order]):.5g}")
        if minor <= 0:
            return (
                f"The matrix is not positive definite: the minor of order {order} is"
                f" {number_text(minor)}, the smallest eigenvalue {number_text(smallest)}"
            )
    return f"The matrix is nearly singular: its smallest eigenvalue is {number_text(smallest)}"


def equal_rows(matrix: np.ndarray) -> tuple[int, int] | None:
    """Return the first two rows of an array that are equal and not 0 throughout, or None.

    Examples
    --------
    >>> equal_rows(np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]]))
    (0, 2)
    """
    seen: dict[bytes, int] = {}
    for i, row in enumerate(np.asarray(matrix) + 0.0):  # (-0 is 0)
        first = seen.setdefault(row.tobytes(), i)
        if first != i and row.any():
            return first, i
    return None


def is_indefinite(matrix: Any) -> bool:
    """Return whether a matrix is symmetric, with a lower eigenvalue than rounding makes.

    Examples
    --------
    >>> is_indefinite(np.array([[1.0, 2.0], [2.0, 1.0]])), is_indefinite(np.ones((2, 2)))
    (True, False)
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or len(set(matrix.shape)) != 1 or not np.isfinite(matrix).all():
        return False
    matrix = _for_linalg(matrix)
    rounding = np.sqrt(np.finfo(matrix.dtype).eps) * np.abs(matrix).max(initial=0)
    is_symmetric = np.abs(matrix - matrix.T).max(initial=0) <= rounding
    return bool(is_symmetric and np.linalg.eigvalsh(matrix).min(initial=0) < -100 * rounding)


def _for_linalg(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix in a dtype that NumPy's linear algebra takes, which has no float16."""
    return matrix.astype(np.promote_types(matrix.dtype, np.float32), copy=False)


def _singular_text(matrix: np.ndarray) -> str:
    matrix = _for_linalg(matrix)
    rank = int(np.linalg.matrix_rank(matrix))
    if rank < len(matrix):
        return f"The matrix is singular: its rank is {rank}, and it has {len(matrix)} rows"
    smallest, largest = (
        float(f"{v:.5g}") for v in np.linalg.svd(matrix, compute_uv=False)[[-1, 0]]
    )
    return (
        "The matrix is nearly singular: its smallest singular value is"
        f" {number_text(smallest)}, the largest {number_text(largest)}"
    )


_EXACTLY: dict[str, Callable[[list[int]], int]] = {
    "mul": math.prod,
    "add": sum,
    "sub": lambda v: v[0] - sum(v[1:]),
}


def _wrapped(producer: Producer, value: Any) -> str:
    """Return the value of an operand without integer wrap-around, or an empty text."""
    exact = _EXACTLY.get(producer.op)
    parts = [np.asarray(v) for v in producer.operands]
    if exact is None or not parts or any(v.dtype.kind not in "iu" or v.ndim for v in parts):
        return ""
    result = exact([int(v) for v in parts])
    return str(result) if np.ndim(value) == 0 and result != value else ""


def _step_producer(made: Made, origin: OperandOrigin) -> Producer:
    if origin is None:
        return Producer("constant")
    if not isinstance(origin, ScalarStep):
        return _producer(made.sources[origin])
    names, positions = _upstream(origin)
    for outside in (_producer(made.sources[i]) for i in positions):
        names += (outside.op, *outside.ancestors)
    return Producer(op_name(origin.op), origin.operands, names)


def _upstream(step: ScalarStep) -> tuple[tuple[str, ...], list[int]]:
    """Return names of the operations upstream in a fused node, and the node inputs they read."""
    names, positions, todo = [], [], list(step.origins)
    while todo:
        origin = todo.pop()
        if isinstance(origin, ScalarStep):
            names.append(op_name(origin.op))
            todo += origin.origins
        elif origin is not None:
            positions.append(origin)
    return tuple(names), positions


def _region_places(place: Place) -> Iterator[tuple[Place, Region]]:
    """Return a place in each operand's region, with the region."""
    for region in culprit.regions_of(place):
        whole = Place(place.scope, place.variable.owner.inputs[region.operand])
        has_elements = np.size(np.asarray(whole.array)[region.index])
        index = extreme_element(region, whole.array) if has_elements else ()
        yield Place(whole.scope, whole.variable, index), region


def _owner(variable: Variable) -> Producer:
    """Return the operation that computed a variable without elements, which cannot be followed."""
    return Producer(role_of(variable) if variable.owner is None else op_name(variable.owner.op))


def _producer(place: Place) -> Producer:
    """Return the operation that computed an element.  Views and fused nodes are followed."""
    while (shown := _shown(place)) is not None:
        place = shown
    node = place.variable.owner
    if node is None:
        return Producer(role_of(place.variable))
    made = (v.owner.op for v in _ancestors(node, depth=3) if v.owner is not None)
    further = tuple(name for op in made for name in _names(op))
    user_op = lookup_in(place.scope, place.variable).op
    further += (user_op_name(user_op),) if user_op else ()
    final = culprit.scalar_final(place) if isinstance(node.op, culprit.ELEMENTWISE) else None
    if isinstance(final, ScalarStep):
        names, _ = _upstream(final)
        return Producer(op_name(final.op), final.operands, names + further)
    return Producer(op_name(node.op), (), further)


def _shown(place: Place) -> Place | None:
    """Return the element that a view shows, or that entered a fused node; else None."""
    node, around = place.variable.owner, place.scope.node
    if node is not None:
        is_view = isinstance(node.op, VIEWS)
        return culprit.operand_place(place, culprit.regions_of(place)[0]) if is_view else None
    is_inside = around is not None and isinstance(around.op, OpFromGraph)
    return culprit.leave(place) if is_inside else None


def _names(op: Op) -> list[str]:
    """Return the names of an operation and of the operations that a backend fused into it."""
    if isinstance(op, OpFromGraph):
        fused: Iterable[str] = (name for node in op.fgraph.toposort() for name in _names(node.op))
    else:
        fused = map(op_name, scalar_ops_of(op)) if isinstance(op, Elemwise) else ()
    return [op_name(op), *fused]


def _ancestors(node: Apply, depth: int) -> Iterator[Variable]:
    level = list(node.inputs)
    for _ in range(depth):
        yield from level
        level = [v for up in level if up.owner is not None for v in up.owner.inputs][:20]
