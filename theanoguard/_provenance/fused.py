"""Match each node inside a fused node with the node that it was before the fusion."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, Elemwise

from theanoguard._pytensor import FinalizedOpFromGraph

# Conversions between a 0-d array and a scalar.
BETWEEN = (ScalarFromTensor, TensorFromScalar)


def composite_of(node: Apply | None) -> Composite | None:
    """The Composite that a node computes or reduces with, None for any other node."""
    op = getattr(node.op, "scalar_op", node.op) if node is not None else None
    return op if isinstance(op, Composite) else None


def fused_graph(node: Apply | None) -> FunctionGraph | None:
    """The inner graph of a node that was fused from several, None for any other node."""
    composite = composite_of(node)
    if composite is not None:
        return composite.fgraph
    if node is None or not isinstance(node.op, FinalizedOpFromGraph):
        return None
    return node.op.fgraph


def _ops_of(node: Apply) -> tuple[Op, ...]:
    """The op of a node, and the scalar op that it applies to each element."""
    composite = None if isinstance(node.op, CAReduce) else composite_of(node)
    return (node.op,) if composite is None else (node.op, composite)


def mirror(inner: Variable, cursor: tuple[Variable, dict], pairs: dict[Apply, tuple]) -> None:
    """Pair the nodes of a fused node's inner graph with the nodes it was fused from.

    A cursor is (variable, environment).  Inside an older Composite, the environment maps its inner
    inputs to the variables outside.  `pairs` receives ``inner node -> (holder, node, variable)``,
    where `holder` is the node of the older Composite or None.
    """
    todo = [(inner, cursor, None)]
    while todo:
        inner, (variable, env), holder = todo.pop()
        while True:
            if variable in env:
                (variable, env), holder = env[variable]
                continue
            node = variable.owner
            if inner.owner is None or (node is not None and inner.owner.op in _ops_of(node)):
                break
            if isinstance(inner.owner.op, BETWEEN):  # put there when the node was fused
                inner = inner.owner.inputs[0]
                continue
            graph = None if node is None or isinstance(node.op, CAReduce) else fused_graph(node)
            if graph is None:
                break
            entered = {
                i: ((o, env), holder) for i, o in zip(graph.inputs, node.inputs, strict=True)
            }
            holder = node if holder is None else holder
            variable, env = graph.outputs[variable.index], entered
        if inner.owner is None or variable.owner is None or inner.owner in pairs:
            continue
        op = variable.owner.op
        scalar_op = op.scalar_op if isinstance(op, Elemwise | CAReduce) else None
        if inner.owner.op not in (op, scalar_op):
            continue
        # The first operand is the reduction's running result.  It was not a variable before.
        gathers = isinstance(op, CAReduce) and inner.owner.op == scalar_op
        inputs = inner.owner.inputs[gathers:]
        if len(inputs) != len(variable.owner.inputs):  # (a sum of other terms)
            continue
        pairs[inner.owner] = (holder, variable.owner if holder else None, variable)
        for i, o in zip(inputs, variable.owner.inputs, strict=True):
            todo.append((i, (o, env), holder))
