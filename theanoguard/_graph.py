"""Questions about single variables and operations of a graph."""

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard._steps import foreign
from theanoguard.operations import moving
from theanoguard.ops.asserts import Assert

VIEWS = (*moving.VIEWS, Assert)
"""Operations that give their first operand, in another shape or under another name."""


def scalar_class(variable: Variable) -> type[ScalarOp] | None:
    """The class of the scalar operation that computes a variable element by element, or None."""
    node = variable.owner
    return type(node.op.scalar_op) if node and isinstance(node.op, Elemwise) else None


def viewed(variable: Variable) -> Variable:
    """Return the variable whose elements a variable shows, behind a chain of views."""
    while variable.owner is not None and isinstance(variable.owner.op, VIEWS):
        variable = variable.owner.inputs[0]
    return variable


def constant_number(variable: Variable) -> float | int | bool | None:
    """The number that a constant holds throughout, None for anything else."""
    variable = viewed(variable)
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        value = np.asarray(variable.data)
        return value.item() if value.dtype.kind in "fiub" else None
    return None


def is_buffer(variable: Variable) -> bool:
    """Return whether a variable is the buffer of a loop's states, set to the initial state."""
    node = variable.owner
    is_set = isinstance(getattr(node, "op", None), IncSubtensor) and node.op.set_instead_of_inc
    return is_set and isinstance(getattr(node.inputs[0].owner, "op", None), AllocEmpty)


def applied_to(node: Apply, inputs: Sequence[Variable], strict: bool = False) -> list[Variable]:
    """Return the outputs of the operation of a node for other inputs."""
    with foreign():
        return node.clone_with_new_inputs(list(inputs), strict=strict).outputs


def scan_of(op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Op:
    """Return a loop like the Scan `op`, with another inner graph."""
    return Scan(
        inputs,
        outputs,
        op.info,
        mode=op.mode,
        truncate_gradient=op.truncate_gradient,
        name=op.name,
        allow_gc=op.allow_gc,
    )
