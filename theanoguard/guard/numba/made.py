"""The verdict on big values as part of a graph, for nodes whose results are big on purpose.

``scores + (1 - mask) * -1e30`` is big in every healthy call.  Such a node is not read for big
values: it is asked which elements it has made big from operands that are not, as
:mod:`~theanoguard.guard.verdict` does after a call.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce, singledispatch
from typing import TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor

from theanoguard._pytensor import inner_graph
from theanoguard.guard.graph.checks import floor_to
from theanoguard.guard.policy import Policy

Flags: TypeAlias = Mapping[Variable, Variable]
Variables: TypeAlias = Collection[Variable]


def made_big(node: Apply, index: int, policy: Policy, silent: Variables) -> list[Apply]:
    """Return nodes that compute which elements of an output the node has made big.

    - `index`: which output.
    - `silent`: inputs of the node that excuse nothing.
    - Returns: list of Apply in the order in which they run, on inputs of `node`; the last one gives
      the truth values.  Empty where they cannot be written.
    """
    if policy.anywhere or policy.check_integers:
        return []
    elementwise = elementwise_part(node, index)
    if elementwise is None:
        return _made_of_many(node, index, policy, silent)
    made = _made_by_elements(*elementwise, policy, silent)
    return [] if made is None else [made]


def _made_of_many(node: Apply, index: int, policy: Policy, silent: Variables) -> list[Apply]:
    """As :func:`made_big`, where elements are made of several, or in several steps."""
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    outer = dict(zip(inputs, node.inputs, strict=True))
    excuses_nothing = {v for v in inputs if outer[v] in silent}
    if isinstance(node.op, OpFromGraph):
        fgraph = inner_graph(node.op)
        new = dict(zip(fgraph.inputs, inputs, strict=True))
        order, target = fgraph.toposort(), fgraph.outputs[index]
    else:
        new = dict(zip(node.inputs, inputs, strict=True))
        order, target = [node], node.outputs[index]
    made: dict[Variable, Variable] = {}
    for step in order:
        own = Apply(step.op, [new.get(v, v) for v in step.inputs], [v.type() for v in step.outputs])
        new.update(zip(step.outputs, own.outputs, strict=True))
        flags = _made_by(own.op, own, made, policy, excuses_nothing)
        if flags is None:
            return []
        made |= flags
    flags = made.get(new.get(target))
    if flags is None:
        return []
    variables = [v for v in inputs if not isinstance(v, Constant)]
    steps = []
    for step in FunctionGraph(variables, [flags], clone=False).toposort():
        given = [outer.get(v, v) for v in step.inputs]
        own = Apply(step.op, given, [v.clone() for v in step.outputs])
        outer.update(zip(step.outputs, own.outputs, strict=True))
        steps.append(own)
    return steps


@singledispatch
def _made_by(
    op: Op, node: Apply, made: Flags, policy: Policy, silent: Variables
) -> dict[Variable, Variable] | None:
    """Return masks of where a node has made its outputs big; None if that is not known.

    `made` tells it of variables before.  Outputs that are never big are missing.
    """
    if any(v in silent or not _may_be_big(v) for v in node.inputs):
        return None
    output = node.outputs[0]
    allowed = excused(op, [_is_big_array(v, policy.big_threshold) for v in node.inputs])
    if allowed is None:
        return None
    none = [pt.zeros_like(v, dtype="bool") for v in node.inputs]
    from_made = [made.get(v, no) for v, no in zip(node.inputs, none, strict=True)]
    unless = pt.invert(allowed)
    if any(v in made for v in node.inputs):
        unless = pt.or_(unless, excused(op, from_made))
    return {output: pt.and_(_is_big_array(output, policy.big_threshold), unless)}


@_made_by.register
def _made_by_elemwise(
    op: Elemwise, node: Apply, made: Flags, policy: Policy, silent: Variables
) -> dict[Variable, Variable] | None:
    found = {}
    carried = [made[v] for v in node.inputs if v in made]
    for index, output in enumerate(node.outputs):
        if not _may_be_big(output):
            continue
        own = _made_by_elements(op.scalar_op, index, node.inputs, policy, silent)
        if own is None:
            return None
        [flags] = own.outputs
        if carried:
            big = _is_big_array(output, policy.big_threshold)
            flags = pt.or_(flags, pt.and_(big, reduce(pt.or_, carried)))
        found[output] = flags
    return found


@_made_by.register(DimShuffle)
@_made_by.register(Subtensor)
def _made_by_view(
    op: Op, node: Apply, made: Flags, policy: Policy, silent: Variables
) -> dict[Variable, Variable]:
    if node.inputs[0] not in made:
        return {}
    return {node.outputs[0]: op.make_node(made[node.inputs[0]], *node.inputs[1:]).outputs[0]}


@singledispatch
def excused(op: Op, big: list[Variable]) -> Variable | None:
    """Return which elements of the result a big element of an operand decides; None: not known.

    `big` says of each operand which of its elements are.
    """
    return None


@excused.register
def _excused_by_reduction(op: CAReduce, big: list[Variable]) -> Variable:
    return pt.any(big[0], axis=op.axis)


@excused.register
def _excused_by_dot(op: Dot, big: list[Variable]) -> Variable | None:
    left, right = big
    if left.ndim != 2 or right.ndim != 2:
        return None
    return pt.or_(left.any(axis=1)[:, None], right.any(axis=0)[None, :])


def _may_be_big(variable: Variable) -> bool:
    return getattr(variable.type, "dtype", None) in ("float32", "float64")


def _is_big_array(variable: Variable, limit: float) -> Variable:
    """Return of each element whether it is above the limit or NaN."""
    largest = floor_to(limit, np.dtype(variable.type.dtype).type)
    return pt.invert(pt.le(abs(variable), np.asarray(largest, variable.type.dtype)))


def _made_by_elements(
    scalar_op: ScalarOp, index: int, operands: Sequence[Variable], policy: Policy, silent: Variables
) -> Apply | None:
    """As :func:`made_big`, for one elementwise operation: the node, or None."""
    inputs = [ps.get_scalar_type(v.type.dtype)() for v in operands]
    steps, outputs = _steps(scalar_op, inputs)
    if (
        steps is None
        or outputs is None
        or any(v.type.dtype.startswith("complex") for step in steps for v in step.outputs)
    ):
        return None
    excuses_nothing = {v for v, outer in zip(inputs, operands, strict=True) if outer in silent}
    made: dict[Variable, Variable] = {}
    for step in steps:
        excusing = [v for v in step.inputs if v not in excuses_nothing]
        given = [flag for v in excusing if (flag := _is_big(v, policy.big_threshold)) is not None]
        from_made = [made[v] for v in step.inputs if v in made]
        for variable in step.outputs:
            flag = _is_big(variable, policy.big_threshold)
            if flag is None:
                continue
            unless = [ps.invert(reduce(ps.or_, given))] if given else []
            if unless:
                flag = ps.and_(flag, reduce(ps.or_, [*unless, *from_made]))
            made[variable] = flag
    if outputs[index] not in made:
        return None
    return Elemwise(ps.Composite(inputs, [made[outputs[index]]])).make_node(*operands)


def elementwise_part(node: Apply, index: int) -> tuple[ScalarOp, int, Sequence[Variable]] | None:
    """Return the scalar operation that gives an output, which of its outputs, and its operands.

    None where the output is not computed element by element from inputs of the node.
    """
    if isinstance(node.op, Elemwise):
        return node.op.scalar_op, index, node.inputs
    if not isinstance(node.op, OpFromGraph):
        return None
    fgraph = inner_graph(node.op)
    variable = fgraph.outputs[index]
    inner = variable.owner
    if inner is None or not isinstance(inner.op, Elemwise):
        return None
    outer = dict(zip(fgraph.inputs, node.inputs, strict=True))
    if not all(v in outer or isinstance(v, Constant) for v in inner.inputs):
        return None
    operands = [outer.get(v, v) for v in inner.inputs]
    return inner.op.scalar_op, inner.outputs.index(variable), operands


def _steps(op: ScalarOp, inputs: list[Variable]) -> tuple[list[Apply] | None, list | None]:
    """Return the nodes of a scalar operation on these inputs, and its outputs."""
    if not isinstance(op, ps.Composite):
        node = op.make_node(*inputs)
        return [node], node.outputs
    new = dict(zip(op.fgraph.inputs, inputs, strict=True))
    steps = []
    for node in op.fgraph.toposort():
        if isinstance(node.op, ps.Composite):
            return None, None
        operands = [v if isinstance(v, Constant) else new[v] for v in node.inputs]
        step = Apply(node.op, operands, [v.type() for v in node.outputs])
        steps.append(step)
        new.update(zip(node.outputs, step.outputs, strict=True))
    return steps, [new.get(v) for v in op.fgraph.outputs]


def _is_big(variable: Variable, limit: float) -> Variable | None:
    """Return whether a scalar is above the limit or NaN; None for what is never big."""
    if not _may_be_big(variable):
        return None
    dtype = variable.type.dtype
    largest = ps.constant(floor_to(limit, np.dtype(dtype).type), dtype=dtype)
    return ps.invert(ps.le(ps.abs(variable), largest))
