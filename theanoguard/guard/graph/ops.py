"""Operations that exist only in the graphs with a flag that the guard hands to JAX and PyTorch.

The ``code.py`` of each backend has what is computed for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from theanoguard.guard.graph.checks import CheckedGraph, CompiledOp
from theanoguard.guard.policy import Policy
from theanoguard.operations import Kind

FLAG = TensorType("int32", ())


@dataclass(frozen=True)
class Watched:
    """A value that is read, and what for; by default a flag, which is bad where it is not 0."""

    kind: Kind = Kind.NONE  # which bad elements count, wherever they come from
    big: bool = False  # whether big elements count as well
    #: If given, only bad elements that this node makes count, and its operands are read as well.
    node: Any = None
    output: int = 0  # which of its outputs this is

    def reads(self, variable: Variable) -> list[Variable]:
        """Return the variables that are read."""
        return [variable] if self.node is None else [variable, *self.node.inputs]


class Reading(CompiledOp):
    """An operation that reads watched values.

    Its first inputs are, for each of `watched`, the variables that :meth:`Watched.reads` gives.
    """

    __props__: tuple[str, ...] = ("policy", "watched")

    def __init__(self, policy: Policy, watched: tuple[Watched, ...]) -> None:
        self.policy = policy
        self.watched = watched

    def grouped(
        self, inputs: Sequence[Any]
    ) -> tuple[list[tuple[Watched, Any, Sequence[Any]]], Sequence[Any]]:
        """Return a list of (watched, its value, values of its operands), and the other inputs."""
        groups, at = [], 0
        for watched in self.watched:
            n = 1 if watched.node is None else 1 + len(watched.node.inputs)
            groups.append((watched, inputs[at], inputs[at + 1 : at + n]))
            at += n
        return groups, inputs[at:]


class Flag(Reading):
    """1 where a watched value is bad, else 0."""

    def make_node(self, *inputs: Variable) -> Apply:
        return Apply(self, list(inputs), [FLAG()])


class Gather(Reading):
    """Marks in arrays which elements of watched values were bad in any step of a loop.

    The further inputs are what was marked before, one array for each watched value.  Nothing is
    reduced to one number before the loop has ended.
    """

    def make_node(self, *inputs: Variable) -> Apply:
        marks = inputs[len(inputs) - len(self.watched) :]
        return Apply(self, list(inputs), [v.type() for v in marks])


class NoMarks(CompiledOp):
    """The marks of a loop before its first step.  It takes the inputs of the Scan.

    - `scan`: Scan without marks.
    - `values`: gives the values that are marked, in a step of the loop.
    """

    __props__ = ("scan", "values")

    def __init__(self, scan: Op, values: CheckedGraph) -> None:
        self.scan = scan
        self.values = values

    def make_node(self, *inputs: Variable) -> Apply:
        marks = [mark_of(v) for v in self.values.outputs]
        return Apply(self, list(inputs), [v.type() for v in marks])


def mark_of(variable: Variable) -> Variable:
    """Return a variable for the marks of the elements of another one."""
    return TensorType("bool", (None,) * getattr(variable.type, "ndim", 0))()
