"""The verdict on big values as part of a graph, for nodes whose results are big on purpose.

``scores + (1 - mask) * -1e30`` is big in every healthy call.  Such a node is not read for big
values: it is asked which elements it has made big from operands that are not, as
:mod:`~theanoguard.guard.verdict` does after a call.
"""

from functools import reduce

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import inner_graph
from theanoguard.guard.graph.checks import floor_to


def made_big(node, index, policy, silent):
    """Return a node that tells of each element of an output whether it was made big.

    Parameters
    ----------
    node : Apply
    index : int
        Which output.
    policy : Policy
    silent : collection of Variable
        Inputs of the node that excuse nothing.

    Returns
    -------
    Apply or None
        An elementwise operation on inputs of `node`; None where none can be written.
    """
    elementwise = elementwise_part(node, index)
    if elementwise is None or policy.anywhere or policy.integers:
        return None
    scalar_op, index, operands = elementwise
    inputs = [ps.get_scalar_type(v.type.dtype)() for v in operands]
    steps, outputs = _steps(scalar_op, inputs)
    if steps is None or any(
        v.type.dtype.startswith("complex") for step in steps for v in step.outputs
    ):
        return None
    excuses_nothing = {v for v, outer in zip(inputs, operands, strict=True) if outer in silent}
    made = {}
    for step in steps:
        excusing = [v for v in step.inputs if v not in excuses_nothing]
        given = [flag for v in excusing if (flag := _is_big(v, policy.limit)) is not None]
        from_made = [made[v] for v in step.inputs if v in made]
        for variable in step.outputs:
            flag = _is_big(variable, policy.limit)
            if flag is None:
                continue
            unless = [ps.invert(reduce(ps.or_, given))] if given else []
            if unless:
                flag = ps.and_(flag, reduce(ps.or_, [*unless, *from_made]))
            made[variable] = flag
    if outputs[index] not in made:
        return None
    return Elemwise(ps.Composite(inputs, [made[outputs[index]]])).make_node(*operands)


def elementwise_part(node, index):
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


def _steps(op, inputs):
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


def _is_big(variable, limit):
    """Return whether a scalar is above the limit or NaN; None for what is never big."""
    dtype = variable.type.dtype
    if dtype not in ("float32", "float64"):
        return None
    largest = ps.constant(floor_to(limit, np.dtype(dtype).type), dtype=dtype)
    return ps.invert(ps.le(ps.abs(variable), largest))
