"""The possible elements of values, decided when the graph is compiled.

Says which variables may hold uninitialised memory or nothing at all.
"""

from collections.abc import Callable, Iterable, Sequence

from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty

from theanoguard._pytensor import IfElse, increment_ops
from theanoguard.operations import holds_nonfinite, makes, may_lose


def unwritten(order: Sequence[Apply]) -> set[Variable]:
    """Return the variables of a graph that may hold uninitialised memory."""
    found: set[Variable] = set()
    for node in order:
        op = node.op
        is_view = bool(op.view_map) and not isinstance(op, IfElse)
        writes = isinstance(op, increment_ops) and op.set_instead_of_inc
        if isinstance(op, AllocEmpty) or (
            (is_view or writes or isinstance(op, DeepCopyOp) or not makes(node))
            and any(v in found for v in node.inputs[: None if is_view else 1])
        ):
            found.update(v for v in node.outputs if holds_nonfinite(v))
    return found


def may_show_nothing(
    order: Sequence[Apply],
    sources: Iterable[Variable],
    carries: Callable[[Apply, int], Iterable[int]],
) -> set[Variable]:
    """Return the variables in which what is carried on from `sources` is lost if they are empty.

    `carries`: ``carries(node, operand)`` returns the outputs that show a bad element of an operand.
    """
    reached, found = set(sources), set()
    for node in order if reached else ():
        for i, variable in enumerate(node.inputs):
            for o in carries(node, i) if variable in reached else ():
                reached.add(node.outputs[o])
                if may_lose(node, i, o):
                    found.add(node.outputs[o])
    return found
