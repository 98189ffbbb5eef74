"""Decides which values of a graph are read on the Numba backend, so that no bad value is missed.

NaN and Inf
    Most code raises an exception flag when it makes one.  What enters the graph, and what is made
    without a flag, are *sources*: they are read, or a few values further down that show every NaN
    and Inf of them (:mod:`~theanoguard.guard.carry`).
Big values
    No flag is raised for them.  Each output that can be big while no operand is, is read.

A value that is not checked, such as an input with ``check_inputs=False``, excuses nothing: the
nodes that read it are sources.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.blas import BatchedDot, Gemv
from pytensor.tensor.math import Dot

from theanoguard._pytensor import IfElse, inner_graph
from theanoguard.guard.graph.checks import certain_variables
from theanoguard.guard.numba.made import made_big
from theanoguard.guard.partly import Touch
from theanoguard.guard.plan import WholePlan, has_elements
from theanoguard.operations import (
    Kind,
    carried_through,
    carries,
    holds_nonfinite,
    may_lose,
    scalar_carries,
)


@dataclass(frozen=True)
class Sign:
    """Which bad elements a variable is read for.

    Parameters
    ----------
    kinds : Kind
    big : bool
    """

    kinds: Kind
    big: bool


class NumbaPlan(WholePlan):
    """The plan of one graph, and of those inside it that Numba compiles on their own.

    - `*args`, `**kwargs`: as for :class:`~theanoguard.guard.plan.WholePlan`.
    - `sizes`: arrays that must not be empty: they would not show a bad operand.
    - `certain`: the outputs of nodes that count in every call.
    - `judged`: values that are big on purpose, and nodes that compute which elements have been made
      big.
    """

    backend = "numba"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.certain = certain_variables(self)
        self._exempt = set(self.silent)
        self.kept = self.kept_values(lambda output: output not in self.silent)
        if not self.is_inner:
            self.partly = {
                v: touches
                for v, touches in self.touched_in_part().items()
                if v in self.inputs
                and v not in self.kept
                and all(self.certain.issuperset(touch.node.outputs) for touch in touches)
            }

    def read_whole(self, noisy: Collection[Variable]) -> None:
        """Read a variable in full again if its rows are incremented by bad values on purpose."""
        self.partly = {
            v: touches
            for v, touches in self.partly.items()
            if not any(
                output in noisy for touch in touches if touch.reads for output in touch.node.outputs
            )
        }

    # -- what is read

    def decide(
        self,
        reliance: Any,
        bracketed: Collection[Apply],
        harmless: bool,
        infinite: Collection[Variable],
    ) -> dict[Variable, Sign]:
        """Decide what is read.

        - `bracketed`: nodes whose flags do not count.
        - `harmless`: whether no node can be harmed by a bad operand.
        - `infinite`: inputs that may hold an Inf on purpose.
        """
        self._reliance, self._bracketed = reliance, bracketed
        self.silent = self._exempt | reliance.discarded
        self.judged: dict[Variable, list[Apply]] = {}
        self.sizes = set()
        # A result that is big on purpose no longer shows what else was bad.
        by_result = self.policy.by_result and not reliance.noisy
        points = self._ends() if by_result else self._by_node(harmless, infinite)
        self.check(points.keys() | self.judged.keys())
        return points

    def _ends(self) -> dict[Variable, Sign]:
        ends = () if self.is_inner else self.fgraph.outputs
        sign = Sign(self.kinds, self.policy.big)
        return {v: sign for v in ends if has_elements(v) and not isinstance(v, Constant)}

    def _by_node(self, harmless: bool, infinite: Collection[Variable]) -> dict[Variable, Sign]:
        policy = self.policy
        left_out = self.kept.keys() | self.partly.keys()
        entering = [v for v in self.inputs if has_elements(v) and v not in left_out]
        touches = {t.node: t for found in self.partly.values() for t in found if not t.is_inside}
        self._writers = {node for node, touch in touches.items() if touch.writes}
        sources, read = self.find_signs(touches)
        if policy.big:
            read.update(entering)
        else:
            sources |= {v: self.kinds for v in entering if holds_nonfinite(v)}
        # Before a node that a bad value could harm, all of them have been read.
        points = self.place(sources, infinite) if harmless else sources
        found = {v: Sign(kinds, False) for v, kinds in points.items()}
        return found | dict.fromkeys(read, Sign(self.kinds, policy.big))

    def must_read(self, node: Apply, i: int, touch: Touch | None) -> bool:
        return super().must_read(node, i, touch) and not self._is_judged(node.outputs[i])

    def _is_judged(self, variable: Variable) -> bool:
        """Whether only what its node makes big is looked for in a variable."""
        if variable in self._reliance.noisy and variable.owner is not None:
            index = variable.owner.outputs.index(variable)
            if made := made_big(variable.owner, index, self.policy, self.silent):
                self.judged[variable] = made
        return variable in self.judged

    def excuses_nothing(self, node: Apply) -> bool:
        return isinstance(node.op, IfElse) or any(v in self.silent for v in node.inputs)

    def uses_flags(self, node: Apply) -> bool:
        return self._reliance.flags and node not in self._bracketed

    def reason_to_leave_out(self, node: Apply, index: int) -> str | None:
        variable = node.outputs[index]
        if not has_elements(variable):
            return "not numeric"
        if reason := super().reason_to_leave_out(node, index):
            return reason
        if variable in self._exempt:
            return "exempt"
        if variable in self.silent:
            return "branch"
        return None if variable in self.certain else "branch"

    def carries(self, node: Apply, operand: int) -> dict[int, Kind]:
        reliance = self._reliance
        if node in self.inner or node in self._writers:
            return {}
        return {
            i: kinds
            for i, kinds in self._carried(node, operand).items()
            if node.outputs[i] in self.certain
            and node.outputs[i] not in self.unwritten | self.silent
            and not (node in reliance.lossy and may_lose(node, operand, i))
        }

    def _carried(self, node: Apply, operand: int) -> Mapping[int, Kind]:
        """Return what the code that Numba compiles for a node carries from one operand."""
        if isinstance(node.op, Dot | BatchedDot | Gemv) and not self._reliance.products:
            return {}
        if isinstance(node.op, ScalarOp):
            return scalar_carries(node.op, node.inputs, node.outputs, operand)
        if isinstance(node.op, OpFromGraph):
            return carried_through(inner_graph(node.op), operand, self._carried_inside)
        return carries(node, operand)

    def _carried_inside(self, node: Apply, operand: int) -> dict[int, Kind]:
        """As :meth:`_carried`, in a fused operation: nothing past arrays that may be empty."""
        found = self._carried(node, operand)
        return {o: kind for o, kind in found.items() if not may_lose(node, operand, o)}
