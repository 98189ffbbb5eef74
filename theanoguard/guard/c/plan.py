"""How each node of a graph is treated on the C backend, so that nothing bad goes unseen.

NaN and Inf
    Most C code raises an exception flag of the processor when it makes one
    (:func:`theanoguard.operations.unsignalled`).  What enters the graph, and what is made without a
    flag, are *sources*: they are read, or a few values further down that show every NaN and Inf of
    them (:mod:`theanoguard.guard.carry`).
Big values
    No flag is raised for them.  Each output that can be big while no operand is, is read.

The plan learns from suspicious calls in which nothing was wrong.  Nodes that raised flags are
bracketed, and variables that held a deliberate Inf are not used as signs any more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import CAReduce

from theanoguard._pytensor import IfElse, is_lazy
from theanoguard.guard.partly import Touch
from theanoguard.guard.plan import GraphPlan, NodePlan
from theanoguard.guard.policy import Policy
from theanoguard.guard.products import axes_of, first_places, is_product, loses_where_thin
from theanoguard.operations import Kind, carries, constant_kinds, keeps_flags, may_lose


def casts_in_numpy(op: Op) -> bool:
    """Whether the C code has NumPy cast its result, which clears the flags of earlier nodes.

    A reduction does so that accumulates in another dtype, such as a sum of float32 in float64.
    """
    return isinstance(op, CAReduce) and op.acc_dtype not in (None, op.dtype)


@dataclass
class Treatment(NodePlan):
    """The checks and copies around one node.

    `node`, `checks`, `destroys`: as for :class:`~theanoguard.guard.plan.NodePlan`.
    """

    #: Outputs that must not be empty: no element of them would show a bad operand.
    sizes: list[int] = field(default_factory=list)
    #: Operands and their axes that must not have length 1: the product might lose a bad operand.
    thin: list[tuple[int, int]] = field(default_factory=list)
    bracketed: bool = False  # whether the exception flags that the node raises mean nothing
    #: Whether a bad output may be right, so that the kernel asks for the verdict at once.
    careful: bool = False
    part: bool = False  # whether of what the node increments in place, only these elements are read
    big_before: bool = False  # whether they are also read before it runs, for big values

    @property
    def watches(self) -> bool:
        """Whether anything of the node is looked at."""
        return bool(self.checks or self.sizes or self.thin)


class CPlan(GraphPlan):
    """The plan of one graph.

    - `fgraph`, `order`, `policy`, `is_inner`, `updated`: as for
      :class:`~theanoguard.guard.plan.GraphPlan`.
    - `inner`: the plans of inner graphs.
    - `in_c`: the nodes that run as C code.
    - `flags_work`: whether the exception flags can be relied upon.
    - `exact`: whether the compiled code keeps to IEEE 754.  If not, no operation is sure to carry a
      NaN.
    - `inputs`: inputs of the graph that may be bad.  One that is exempt is read as well: the
      verdict decides whether it matters.
    - `scanned`: inputs that are read when a call begins; the others show further down.
    """

    node_plan = Treatment
    backend = "c"

    def __init__(
        self,
        fgraph: FunctionGraph,
        order: Sequence[Apply],
        policy: Policy,
        is_inner: bool = False,
        updated: Collection[Variable] = (),
        inner: Mapping[Apply, list["GraphPlan"]] | tuple = (),
        in_c: Iterable[Apply] = (),
        flags_work: bool = True,
        exact: bool = True,
    ) -> None:
        super().__init__(fgraph, order, policy, is_inner, updated)
        self.inner = dict(inner)
        self.inputs = [] if is_inner else list(filter(self.may_be_bad, fgraph.inputs))
        self.in_c = set(in_c)
        self.flags_work = flags_work and exact
        self.exact = exact
        self.noisy: set[Variable] = set()
        self.loud: set[Apply] = set()
        self.lossy: set[Apply] = set()
        self.discarded: set[Variable] = set()
        self._is_lazy = any(is_lazy(node.op) for node in self.order)
        self._touched = {} if is_inner or self._is_lazy else self.touched_in_part()
        self.make()

    def learn(
        self,
        noisy: Iterable[Variable] = (),
        loud: Iterable[Apply] = (),
        lossy: Iterable[Apply] = (),
        discarded: Iterable[Variable] = (),
        flags_work: bool = True,
    ) -> None:
        """Change the plan after a call in which all was right.

        - `noisy`: set of Variable that held bad values.
        - `loud`: set of Apply that raised flags.
        - `lossy`: set of Apply that gave an empty array.
        - `discarded`: set of Variable whose bad elements were discarded, and show where they are
          not.
        """
        self.noisy |= set(noisy)
        self.loud |= set(loud)
        self.lossy |= set(lossy)
        self.discarded |= set(discarded)
        self.flags_work = self.flags_work and flags_work
        self.make()

    def without_audit(self) -> "CPlan":
        """Return the plan that the same policy without ``audit`` has."""
        plan = copy(self)
        plan.policy = replace(self.policy, audit=False)
        plan.make()
        return plan

    def make(self) -> None:
        """Decide how each node is treated."""
        policy = self.policy
        self.nodes = self.new_nodes()
        self.dropped = {}
        self.partly = {v: found for v, found in self._touched.items() if self._counts_in_part(v)}
        # (The audit reads everything, but by the same definition of an error.)
        partly = {} if policy.audit else self.partly
        touches = {t.node: t for found in partly.values() for t in found}
        self._writers = {node for node, touch in touches.items() if touch.writes}
        for node in self._writers:
            self.nodes[node].part = touches[node].reads
            self.nodes[node].big_before = touches[node].reads and policy.big
        # Exempt variables that held bad values: the nodes that read them are checked instead.
        silent = {v for v in self.noisy if not self.is_watched(v)}
        for node in self.order:
            self._treat(node, silent)
        entering = [v for v in self.inputs if v not in silent]
        sources = self._what_enters([v for v in entering if v not in partly])
        made, read = self.find_signs(touches)
        sources |= made
        points = {*self.place(sources), *read}
        if policy.audit:
            points.update(entering)
        self.scanned += [v for v in points if v.owner is None and v not in self.scanned]
        self.check(points)
        for node in self.order if sources else ():
            treatment = self.nodes[node]
            treatment.sizes = [i for i, v in enumerate(node.outputs) if v in self.sizes]
            if is_product(node) and any(self.carries(node, i) for i in axes_of(node)):
                treatment.thin = first_places(node, loses_where_thin(node) or ())

    def _what_enters(self, variables: Iterable[Variable]) -> dict[Variable, Kind]:
        """Have inputs read when the call begins; return the others, which are sources."""
        sources, self.scanned = {}, []
        for variable in variables:
            if variable in self.noisy or self.policy.big or self._is_trusted(variable):
                self.scanned.append(variable)
            else:
                sources[variable] = self.kinds
        return sources

    def _treat(self, node: Apply, silent: Set[Variable]) -> None:
        """Decide whether the flags of a node count, and whether the verdict follows it."""
        treatment = self.nodes[node]
        treatment.bracketed = not self._is_plain(node) or node in self.loud
        treatment.careful = (
            node in self.loud
            or any(v in self.noisy for v in node.outputs)
            or any(v in silent for v in node.inputs)
        )

    def _counts_in_part(self, variable: Variable) -> bool:
        """Whether only the elements of a shared variable are read that the call touches."""
        return (
            self.may_be_bad(variable)
            and self.is_watched(variable)
            and not any(
                touch.is_inside
                or (touch.writes and not touch.node.op.destroy_map)
                or touch.node in self.loud
                or (touch.reads and any(v in self.noisy for v in touch.node.outputs))
                for touch in self._touched[variable]
            )
        )

    # -- what is known of a variable

    def is_watched(self, variable: Variable) -> bool:
        """Whether a bad value in a variable is reported where it comes from."""
        if isinstance(variable, Constant):
            return variable in self.bad_constants
        if variable in self.discarded or self.is_exempt(variable):
            return False
        return variable.owner is not None or self.is_inner or bool(self.policy.check_inputs)

    def is_bad_literal(self, variable: Variable) -> bool:
        """Whether a variable is a constant that a node makes bad by choosing it."""
        return bool(constant_kinds(variable) & self.literals & self.kinds)

    def _is_trusted(self, variable: Variable) -> bool:
        return self.policy.trusted and isinstance(variable, SharedVariable)

    # -- what is known of a node

    def _is_plain(self, node: Apply) -> bool:
        op = node.op
        return node in self.in_c and keeps_flags(op, self.backend) and not casts_in_numpy(op)

    def uses_flags(self, node: Apply) -> bool:
        return (
            self.flags_work
            and node not in self.loud
            and self._is_plain(node)
            and not getattr(node.op, "openmp", False)
        )

    def must_read(self, node: Apply, i: int, touch: Touch | None) -> bool:
        is_asked = touch is None and self.nodes[node].careful  # the kernel asks for a verdict
        return self.policy.audit or is_asked or super().must_read(node, i, touch)

    def reason_to_leave_out(self, node: Apply, index: int) -> str | None:
        reason = super().reason_to_leave_out(node, index)
        if reason is None and node.outputs[index] in self.discarded and not self.policy.audit:
            return "branch"
        return "moved" if reason is None and isinstance(node.op, IfElse) else reason

    # -- what shows where

    def carries(self, node: Apply, operand: int) -> dict[int, Kind]:
        # (The kernel asks for a verdict on every bad output of a careful node.)
        if not self.exact or self._may_be_skipped(node):
            return {}
        if self.nodes[node].careful or node in self._writers:
            return {}
        found = carries(node, operand)
        if found and is_product(node):
            thin = loses_where_thin(node)
            if thin is None or (thin and node in self.lossy):
                return {}
        return {
            o: kind
            for o, kind in found.items()
            if node.outputs[o] not in self.noisy | self.unwritten
            and not (node in self.lossy and may_lose(node, operand, o))
        }

    def _may_be_skipped(self, node: Apply) -> bool:
        return self._is_lazy or node in self.inner
