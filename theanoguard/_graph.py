"""Questions about single variables and operations of a graph."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard._steps import foreign
from theanoguard.operations import moving
from theanoguard.operations.names import op_name
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


def operand_of(variable: Variable, kind: Any) -> Variable | None:
    """Return ``x`` if a variable is ``f(x, ...)`` with a scalar operation f, or None."""
    return variable.owner.inputs[0] if scalar_class(variable) is kind else None


def with_number(variable: Variable, kind: Any) -> tuple[float, Variable] | None:
    """Return the number and the operand of a sum or product of a constant and one operand."""
    if scalar_class(variable) is not kind or len(variable.owner.inputs) != 2:
        return None
    constant, rest = sorted(variable.owner.inputs, key=lambda v: constant_number(v) is None)
    number = constant_number(constant)
    return None if number is None else (number, rest)


def reduction_of(variable: Variable, *names: str) -> Apply | None:
    """Return the node of a variable if that is one of the named reductions, or None."""
    node = variable.owner
    is_it = node is not None and isinstance(node.op, CAReduce) and op_name(node.op) in names
    return node if is_it else None


def role_of(variable: Variable) -> Literal["input", "shared", "constant"]:
    """Return whether a leaf is an input, a shared variable or a constant."""
    if isinstance(variable, Constant):
        return "constant"
    return "shared" if isinstance(variable, SharedVariable) else "input"


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
