"""Which values of a graph are read on JAX and PyTorch, which do not report exception flags.

An output is left out only by one of `RULES`; a test shows for each reason that it never hides a
bad value.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard._pytensor import IfElse, Scan, is_numeric
from theanoguard.guard.graph.checks import certain_variables
from theanoguard.guard.plan import WholePlan, has_elements
from theanoguard.guard.policy import Policy
from theanoguard.operations import (
    Kind,
    makes,
    makes_nan_of_inf,
    moved,
    scalar_keeps_size,
    scalar_makes,
    scalar_makes_nan,
)


@dataclass(frozen=True)
class Rule:
    """A reason why an output needs no check.

    Parameters
    ----------
    reason : str
        A key of :data:`~theanoguard.guard.plan.REASONS`.
    applies : callable
        ``applies(plan, node, index)`` for output number `index` of `node`.
    clean : bool
        Whether the output then counts as clean for the rules of later nodes.
    spares_made : bool
        Whether the output is not read for a NaN or an Inf that the node itself may make.
    """

    reason: str
    applies: Callable
    clean: bool = True
    spares_made: bool = True


def _viewed(node: Apply, index: int) -> Variable | None:
    """Return the input that output `index` is a view of, or None.

    An IfElse declares a view of one branch and copies the other.
    """
    if isinstance(node.op, IfElse):
        return None
    sources = node.op.view_map.get(index, ())
    if len(sources) != 1:
        return None
    source = node.inputs[sources[0]]
    same = getattr(source.type, "dtype", None) == getattr(node.outputs[index].type, "dtype", None)
    return source if same else None


def _is_view(plan: "FlaggedPlan", node: Apply, index: int) -> bool:
    source = _viewed(node, index)
    return source is not None and plan.is_clean(source)


def _all_clean(plan: "FlaggedPlan", variables: Iterable[Variable]) -> bool:
    return all(plan.is_clean(v) for v in variables)


def _is_copy(plan: "FlaggedPlan", node: Apply, index: int) -> bool:
    copies = moved(node) is not None or _increments_zeros(node)
    return copies and _all_clean(plan, node.inputs)


def _increments_zeros(node: Apply) -> bool:
    """Whether it adds to zeros, and to no element twice."""
    if not isinstance(node.op, IncSubtensor):
        return False
    buffer = node.inputs[0]
    if buffer.owner is not None and isinstance(buffer.owner.op, Alloc):
        buffer = buffer.owner.inputs[0]
    return isinstance(buffer, Constant) and not np.any(buffer.data)


def _scalar_is_safe(
    plan: "FlaggedPlan",
    op: ScalarOp,
    operands_clean: bool,
    inputs: list[Variable],
    outputs: list[Variable],
    index: int = 0,
    known: Iterable[int] = (),
) -> bool:
    """Whether the scalar operation maps clean operands to a clean output number `index`.

    The outputs in `known` are clean, or checked.
    """
    if not operands_clean:
        return False
    policy = plan.policy
    if all(v.type.dtype in ps.discrete_dtypes for v in outputs):
        big_integers = policy.big and policy.check_integers
        return not big_integers or all(v.type.dtype == "bool" for v in outputs)
    if isinstance(op, ps.Composite):
        result = op.fgraph.outputs[index]
        given = {op.fgraph.outputs[i] for i in known} - {result}
        return all(
            _scalar_is_safe(plan, n.op, _constants_clean(plan, n), n.inputs, n.outputs)
            for n in toposort([result], blockers=given)
        )
    if isinstance(op, ps.Mul):  # by numbers that are at most 1
        return _are_finite(policy) and scalar_keeps_size(op, inputs, outputs, math.inf)
    # Of numbers that are clean, some may be infinite.
    makes_nan = policy.nan and not _are_finite(policy) and scalar_makes_nan(op, outputs)
    made = scalar_makes(op, inputs, outputs, Kind.NONE) & policy.looked_for
    is_large = policy.big and not scalar_keeps_size(op, inputs, outputs, policy.big_threshold)
    return not (makes_nan or made or is_large)


def _are_finite(policy: Policy) -> bool:
    """Whether what has been checked is finite: 0 times Inf is NaN."""
    return policy.nan and (policy.inf or policy.big)


def _constants_clean(plan: "FlaggedPlan", node: Apply) -> bool:
    return not any(plan.policy.is_bad(v.data) for v in node.inputs if isinstance(v, Constant))


def _is_safe_map(plan: "FlaggedPlan", node: Apply, index: int) -> bool:
    if not isinstance(node.op, Elemwise):
        return False
    known = [i for i, v in enumerate(node.outputs) if i != index and not plan.is_exempt(v)]
    clean = _all_clean(plan, node.inputs)
    return _scalar_is_safe(plan, node.op.scalar_op, clean, node.inputs, node.outputs, index, known)


def _is_softmax(plan: "FlaggedPlan", node: Apply, index: int) -> bool:
    policy = plan.policy
    return (
        isinstance(node.op, Softmax)
        and _are_finite(policy)
        and (not policy.big or policy.big_threshold >= 1.0)
        and _all_clean(plan, node.inputs)
    )


def _of_any_node(reason: str) -> Rule:
    """Return the rule for a reason that holds whatever computes the output."""
    return Rule(
        reason,
        lambda plan, node, i: plan.why_unread(node.outputs[i]) == reason,
        clean=reason != "uninitialised",
    )


RULES = (
    *(_of_any_node(reason) for reason in ("not numeric", "discrete", "uninitialised")),
    Rule("exempt", lambda plan, node, i: plan.is_exempt(node.outputs[i]), clean=False),
    Rule(
        "branch",
        lambda plan, node, i: (
            isinstance(node.op, IfElse)
            and plan.is_clean(node.inputs[1 + i])
            and plan.is_clean(node.inputs[1 + node.op.n_outs + i])
        ),
    ),
    *(
        Rule("moved", applies, spares_made=False)
        for applies in (_is_view, _is_copy, _is_safe_map, _is_softmax)
    ),
    Rule(
        "inner graph",
        lambda plan, node, i: plan.checks_inside(node) and all(map(plan.holds_clean, node.inputs)),
    ),
    Rule(
        "inner graph",
        lambda plan, node, i: (
            node in plan.inner
            and (isinstance(node.op, Scan) or _all_clean(plan, node.inputs))
            and not plan.passes_on(node)
        ),
        clean=False,  # it may have been left out inside, or a loop have stopped early
    ),
)


# ---------------------------------------------------------------- the plan


class FlaggedPlan(WholePlan):
    """The plan of one graph, and of those inside it that the backend compiles on their own.

    `*args`, `**kwargs`: as for :class:`~theanoguard.guard.plan.WholePlan`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rules: dict[Variable, Rule] = {}  # by which an output is not checked
        self._clean = {v for v in self.fgraph.inputs if v not in self.silent}
        self._clean.update(
            v
            for node in self.order
            for v in node.inputs
            if isinstance(v, Constant) and not self.policy.is_bad(v.data)
        )
        # Unwritten variables into which nothing bad has been written.
        self._written_clean: set[Variable] = set()
        for node in self.order:
            self._plan_outputs(node)
        self.dropped = {v: rule.reason for v, rule in self._rules.items()}
        self.kept = self.kept_values(self.is_clean)
        self._check_what_counts()

    def is_clean(self, variable: Variable) -> bool:
        """Whether no bad element can be in `variable` when it is read."""
        return variable in self._clean or not is_numeric(variable.type)

    def holds_clean(self, variable: Variable) -> bool:
        """Whether no bad element has been written into `variable`, as far as it is written."""
        return self.is_clean(variable) or variable in self._written_clean

    def passes_on(self, node: Apply) -> bool:
        """Whether an inner graph returns an input as it is that nobody has checked."""
        return any(
            v.owner is None and v in plan.silent
            for plan in self.inner[node]
            for v in plan.fgraph.outputs
        )

    def checks_inside(self, node: Apply) -> bool:
        """Whether the inner graphs of a node check all that it gives."""
        if isinstance(node.op, Scan) and node.op.info.as_while:
            return False  # the ends of its buffers stay uninitialised when it stops early
        plans = self.inner.get(node, ())
        return bool(plans) and all(plan.is_clean(v) for plan in plans for v in plan.fgraph.outputs)

    def made(self, infinite: Collection[Variable] = ()) -> dict[Variable, Kind]:
        """Return the outputs of nodes that may make a NaN or an Inf, and which of them.

        A node that reads a value in which it is not an error makes it.

        `infinite`: variables that may hold an Inf that is not an error.
        """

        def chooses_unchecked(node: Apply) -> bool:
            return bool(self.silent) and isinstance(node.op, IfElse)

        def is_read(node: Apply, index: int) -> bool:
            rule = self._rules.get(node.outputs[index])
            if rule is None or chooses_unchecked(node):
                return index in self.nodes[node].checks
            return not rule.spares_made

        def kinds(node: Apply) -> Kind:
            if chooses_unchecked(node) or any(v in self.silent for v in node.inputs):
                return Kind.BOTH
            if _increments_zeros(node):
                return Kind.NONE
            of_inf = makes_nan_of_inf(node) and any(v in infinite for v in node.inputs)
            return makes(node) | (Kind.NAN if of_inf else Kind.NONE)

        return {
            v: kind
            for node in self.order
            for i, v in enumerate(node.outputs)
            if is_read(node, i) and has_elements(v) and (kind := kinds(node))
        }

    def _plan_outputs(self, node: Apply) -> None:
        for index, variable in enumerate(node.outputs):
            rule = next((r for r in RULES if r.applies(self, node, index)), None)
            if rule is None:
                self.nodes[node].checks.append(index)
                self._clean.add(variable)
                continue
            self._rules[variable] = rule
            if rule.clean:
                self._clean.add(variable)
            elif variable in self.unwritten and all(map(self.holds_clean, node.inputs)):
                self._written_clean.add(variable)

    def _check_what_counts(self) -> None:
        """Check every value that a node makes, except those that an ``IfElse`` throws away."""
        certain = certain_variables(self)
        for node in self.order:
            node_plan = self.nodes[node]
            if isinstance(node.op, IfElse):
                node_plan.checks = [
                    i for i, v in enumerate(node.outputs) if self.dropped.get(v) in (None, "branch")
                ]
            node_plan.checks = [i for i in node_plan.checks if node.outputs[i] in certain]
        for variable in self.made():
            node_plan = self.nodes[variable.owner]
            index = variable.owner.outputs.index(variable)
            node_plan.checks = sorted({*node_plan.checks, index})
