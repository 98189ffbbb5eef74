"""The possible elements of values, decided when the graph is compiled.

Says which variables may hold uninitialised memory or nothing at all, and which nodes only choose
among their operands.
"""

import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import IfElse, increment_ops
from theanoguard.operations import holds_nonfinite, makes, may_lose, scalar_facts


def unwritten(order):
    """Return the variables of a graph that may hold uninitialised memory."""
    found = set()
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


def only_selects(node):
    """Whether the node chooses among its operands or compares them.

    ``switch(mask, x, -inf)`` is right as long as the -inf is not chosen, and PyTensor's own
    rewrites put NaN there.  The output shows whether it was chosen.
    """
    if not isinstance(node.op, Elemwise):
        return False
    discrete = all(getattr(v.type, "dtype", "") in ps.discrete_dtypes for v in node.outputs)
    return scalar_facts(node.op.scalar_op).selects is not None or discrete


def may_show_nothing(order, sources, carries):
    """Return the variables in which what is carried on from `sources` is lost if they are empty.

    Parameters
    ----------
    order : list of Apply
    sources : collection of Variable
    carries : callable
        ``carries(node, operand)`` returns the outputs that show a bad element of an operand.
    """
    reached, found = set(sources), {}
    for node in order if reached else ():
        for i, variable in enumerate(node.inputs):
            for o in carries(node, i) if variable in reached else ():
                reached.add(node.outputs[o])
                if may_lose(node, i, o):
                    found[node.outputs[o]] = None
    return list(found)
