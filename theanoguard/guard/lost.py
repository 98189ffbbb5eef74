"""Adds outputs to fused operations for the NaNs that they would lose.

A comparison, a condition or a cast to integers turns a NaN into an ordinary number.  Inside a fused
operation nobody could see that NaN: ``(log(x) > 0).sum()`` would be too small, without an error.
With ``inf_is_error="any"`` the same holds for an Inf, as in ``tanh(log(x))``.
"""

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor.machines import changes_arithmetic
from theanoguard.operations import (
    Kind,
    holds_nonfinite,
    scalar_carries,
    scalar_facts,
    scalar_makes,
    scalar_makes_nan,
)

POSITION = 49.05  # right behind the fusion of elementwise operations

ASKING = (ps.IsNan, ps.IsInf)  # whoever uses these has thought of the NaN

COMPARING = {ps.ScalarMaximum: (0, 1), ps.ScalarMinimum: (0, 1), ps.Clip: (0, 1, 2), ps.Sign: (0,)}
"""Operands whose NaN is lost as well where the compiler assumes none (``-ffast-math``)."""


class ShowLost(GraphRewriter):
    """Adds an output to a fused operation for each value in which it may lose a NaN.

    `anywhere`: whether an Inf that is lost counts as well.
    """

    def __init__(self, anywhere: bool = False) -> None:
        self.anywhere = anywhere

    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Composite)):
                continue
            composite = node.op.scalar_op
            lost = lost_values(composite)
            if self.anywhere:
                lost = list(dict.fromkeys([*lost, *lost_infinities(composite)]))
            if lost:
                shown = Composite(list(composite.inputs), [*composite.outputs, *lost])
                results = Elemwise(shown)(*node.inputs, return_list=True)
                replaced = list(zip(node.outputs, results, strict=False))
                fgraph.replace_all(replaced, reason="show_lost")


def lost_values(composite: Composite) -> list[Variable]:
    """Return the inner variables of a Composite in which a NaN may be made and not be seen.

    Examples
    --------
    A logarithm that is only compared hides its NaN.  One that the result is computed from shows it:

    >>> x = ps.float64("x")
    >>> log = ps.log(x)
    >>> lost_values(ps.Composite([x], [ps.gt(log, 0.0)]))
    [log.0]
    >>> lost_values(ps.Composite([x], [ps.switch(ps.gt(log, 0.0), log, ps.neg(log))]))
    []
    """
    fgraph = composite.fgraph
    lost = [v for node in fgraph.toposort() for v in _losing(node) if _may_be_nan(v)]
    return [v for v in dict.fromkeys(lost) if not _shows(fgraph, v)]


def lost_infinities(composite: Composite) -> list[Variable]:
    """Return the inner variables of a Composite in which an Inf may be made and not be seen.

    The branches of a ``switch`` are not among them: the branch that is not chosen is no error.

    Examples
    --------
    >>> x = ps.float64("x")
    >>> lost_infinities(ps.Composite([x], [ps.tanh(ps.log(x))]))
    [log.0]
    >>> lost_infinities(ps.Composite([x], [ps.log(x) * 2.0]))
    []
    """
    fgraph = composite.fgraph
    lost: dict[Variable, None] = {}
    needed = set(fgraph.outputs)
    for node in reversed(fgraph.toposort()):
        if needed.isdisjoint(node.outputs):
            continue
        if isinstance(node.op, ps.Switch):
            needed.add(node.inputs[0])
            continue
        needed.update(node.inputs)
        if isinstance(node.op, ASKING):
            continue
        for i, operand in enumerate(node.inputs):
            carried = scalar_carries(node.op, node.inputs, node.outputs, i)
            if _may_be_infinite(operand) and not any(Kind.INF in k for k in carried.values()):
                lost[operand] = None
    return [v for v in lost if v not in fgraph.outputs]


def _may_be_infinite(variable: Variable) -> bool:
    """Whether an Inf may be made in a value of a Composite, by its operation or one before it."""
    node = variable.owner
    if node is None or not holds_nonfinite(variable):
        return False
    makes = scalar_makes(node.op, node.inputs, node.outputs)
    return Kind.INF in makes or any(map(_may_be_infinite, node.inputs))


def _losing(node: Apply) -> list[Variable]:
    """Return the operands of a scalar operation whose NaN may not show in its result."""
    if isinstance(node.op, ASKING):
        return []
    if not any(map(holds_nonfinite, node.outputs)):
        return node.inputs
    hidden = set(scalar_facts(node.op).hides)
    if changes_arithmetic():
        hidden |= set(COMPARING.get(type(node.op), ()))
    operands = [node.inputs[i] for i in sorted(hidden)]
    if isinstance(node.op, ps.Pow) and any(isinstance(v, Constant) for v in operands):
        return []  # only NaN ** 0 and 1 ** NaN are numbers, and these are not compiled
    return operands


def _may_be_nan(variable: Variable) -> bool:
    """Whether a NaN may be made in a value of a Composite, by its operation or one before it."""
    node = variable.owner
    if node is None or not holds_nonfinite(variable):
        return False
    return scalar_makes_nan(node.op, node.outputs) or any(map(_may_be_nan, node.inputs))


def _shows(fgraph: FunctionGraph, variable: Variable) -> bool:
    """Whether an output is NaN for certain where a value is."""
    nan = {variable}
    for node in fgraph.toposort():
        if isinstance(node.op, ps.Switch):
            if nan.issuperset(node.inputs[1:]):
                nan.update(node.outputs)
            continue
        for i, operand in enumerate(node.inputs):
            if operand in nan:
                carried = scalar_carries(node.op, node.inputs, node.outputs, i)
                nan.update(node.outputs[o] for o, kind in carried.items() if Kind.NAN in kind)
    return not nan.isdisjoint(fgraph.outputs)
