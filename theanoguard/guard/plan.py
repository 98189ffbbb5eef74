"""The plan of a graph: which values a call reads, decided when the graph is compiled.

Each way of detection has its own class of plan, with `GraphPlan` as the base class:

==============================================  ====================================================
``CPlan`` (:mod:`theanoguard.guard.c.plan`)     C: flags of the processor, and values that are read
``NumbaPlan`` (``guard/numba/plan.py``)         Numba: the same, in a program that is compiled whole
``FlaggedPlan`` (``guard/graph/plan.py``)       JAX and PyTorch: no flags of the processor
==============================================  ====================================================
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytensor.scalar as ps
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.replay import ScanReplay
from theanoguard._provenance import overflowed, thawed_variables
from theanoguard._pytensor import LazyIfElse, Scan, increment_ops, is_numeric
from theanoguard._values import arrays_in
from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.guard.elements import may_show_nothing, unwritten
from theanoguard.guard.partly import Touch, read_in_part, written
from theanoguard.guard.policy import Policy
from theanoguard.operations import (
    Kind,
    carries,
    constant_kinds,
    from_constants,
    holds_nonfinite,
    keeps_size,
    may_make,
    only_chooses,
    unsignalled,
)

REASONS = {
    "not numeric": "random generators, slices and None hold no numbers",
    "discrete": "integers and booleans are neither NaN nor infinite; big integers are allowed",
    "uninitialised": "memory that nobody has written yet; what is written into it was checked",
    "inner graph": "every value is checked inside, where it is made",
    "flag": "the processor raises a flag when the node makes a NaN or an Inf",
    "carried": "a NaN or an Inf in it shows in a later value, which is read",
    "part": "only the elements that the node increments are read",
    "moved": "returns operands that were checked, a part of them, or values in a fixed range",
    "exempt": "you excluded it; what is computed from it is read",
    "branch": "of a branch that may be thrown away; what is chosen is read",
}
"""Why an output is not read: the words of ``GuardMode.summary`` on all backends."""


@dataclass
class NodePlan:
    """The checks around one node."""

    node: Apply
    checks: list[int] = field(default_factory=list)  # outputs that are checked
    #: Inputs of the graph with an update that the node overwrites.
    destroys: list[Variable] = field(default_factory=list)

    def checked(self) -> list[tuple[int, Variable]]:
        """Return the (index, variable) of each checked output."""
        return [(i, self.node.outputs[i]) for i in self.checks]


class GraphPlan:
    """The plan of one graph, and of the graphs inside it.

    - `order`: iterable of Apply in the order in which they run.
    - `is_inner`: whether this is the inner graph of a node: the plan outside checks what enters.
    - `updated`: inputs that a failed call must leave as they were.
    - `inner`: the plans of inner graphs that have checks of their own.
    - `inputs`: inputs of the graph in which a bad value is an error.
    - `bad_constants`: constants that are errors whatever is passed in.
    - `dropped`: outputs that are not read, and why.
    - `sizes`: outputs that must not be empty: no element of them would show a bad operand.
    - `kinds`: the kinds of bad values that are looked for.
    - `literals`: those that are errors in a constant which a node chooses.
    - `unwritten`: variables that may hold uninitialised memory.
    - `partly`: shared variables of which only some elements are read.
    - `given_up`: shared variables that a node overwrites for good, whatever becomes of the call.
    - `kept`: shared variables that need not be read while they hold what the last call left there,
      and which output that is.
    """

    node_plan: type = NodePlan
    backend = ""
    """The backend whose exception flags are read, as the facts on operations name it."""

    def __init__(
        self,
        fgraph: FunctionGraph,
        order: Iterable[Apply],
        policy: Policy,
        is_inner: bool = False,
        updated: Collection[Variable] = (),
    ) -> None:
        self.fgraph = fgraph
        self.order = list(order)
        self.policy = policy
        self.is_inner = is_inner
        self._as_built = thawed_variables(fgraph)
        writers: dict[Variable, list[Apply]] = {}
        for node in self.order:
            for root in overwritten(node):
                if root in updated:
                    writers.setdefault(root, []).append(node)
        self.given_up = {
            root
            for root, nodes in writers.items()
            if not (policy.restore or any(isinstance(n.op, increment_ops) for n in nodes))
            and is_large_state(root)
        }
        self._destroys = {
            node: [root for root in overwritten(node) if root in writers.keys() - self.given_up]
            for node in self.order
        }
        self.nodes = self.new_nodes()
        self.inner: dict[Apply, list] = {}
        self.inputs = [] if is_inner else list(filter(self.is_checked_input, fgraph.inputs))
        self.bad_constants = [] if is_inner else self._bad_literals()
        self.dropped: dict[Variable, str] = {}
        self.sizes: set[Variable] = set()
        self.unwritten = unwritten(self.order)
        self.partly: dict[Variable, list[Touch]] = {}
        self.kept: dict[Variable, int | None] = {}
        self.kinds = policy.looked_for
        self.literals = Kind.BOTH if policy.anywhere else Kind.NAN

    def new_nodes(self) -> dict[Apply, Any]:
        """Return a plan without checks for each node."""
        return {node: self.node_plan(node, destroys=self._destroys[node]) for node in self.order}

    def plans(self) -> Iterator["GraphPlan"]:
        """Yield the plans of this graph and of those inside."""
        yield self
        for plans in self.inner.values():
            for plan in plans:
                yield from plan.plans()

    def graphs(self) -> dict:
        """Return the inner graphs as they are compiled, by node; not those of branches."""
        return {
            node: plans[0].fgraph
            for plan in self.plans()
            for node, plans in plan.inner.items()
            if len(plans) == 1
        }

    def as_built(self, variable: Variable) -> Variable:
        """Return `variable` with the name and the tags that it lost where a graph was frozen."""
        return self._as_built.get(variable, variable)

    def is_exempt(self, variable: Variable) -> bool:
        """Whether the user left a variable out."""
        return self.policy.exempts(self.as_built(variable))

    def not_checked(self, silent: Iterable[Variable] = ()) -> set[Variable]:
        """Return the variables in which a bad value is no error, so that it excuses no operation.

        `silent`: those of an inner graph's inputs that are not checked outside.
        """
        found = set(silent)
        if not self.is_inner:
            found.update(filter(self.may_be_bad, self.fgraph.inputs))
            found.difference_update(self.inputs)
        found.update(filter(self.is_exempt, (v for n in self.order for v in n.outputs)))
        return found

    def not_checked_inside(
        self, node: Apply, fgraph: FunctionGraph, silent: Container[Variable]
    ) -> list[Variable]:
        """Return the inputs of a node's inner graph that take their value from one in `silent`.

        A constant is one as well that an operation makes bad by choosing it.
        """
        chosen = {v for v in node.inputs if constant_kinds(v) & self.literals} - {
            *self.bad_constants
        }
        given = zip(fgraph.inputs, sources_of(node, fgraph), strict=True)
        return [v for v, source in given if source in silent or source in chosen]

    def may_be_bad(self, variable: Variable) -> bool:
        """Whether values of this type may be bad."""
        if not is_numeric(variable.type):
            return False
        return not is_discrete(variable) or (self.policy.big and self.policy.check_integers)

    def is_checked_input(self, variable: Variable) -> bool:
        """Whether a bad value in this input of the graph is an error."""
        policy = self.policy
        return policy.check_inputs and self.may_be_bad(variable) and not policy.exempts(variable)

    def reason_to_leave_out(self, node: Apply, index: int) -> str | None:
        """Return the reason (a key of `REASONS`) why no backend reads an output, or None."""
        reason = self.why_unread(node.outputs[index])
        return reason or ("inner graph" if node in self.inner else None)

    def why_unread(self, variable: Variable) -> str | None:
        """Return why a variable is not read, whatever computes it (a key of `REASONS`)."""
        if not is_numeric(variable.type):
            return "not numeric"
        if not self.may_be_bad(variable):
            return "discrete"
        return "uninitialised" if variable in self.unwritten else None

    # -- what is read

    def find_signs(self, touches: Mapping) -> tuple[dict, set]:
        """Decide for each output how a bad value shows that is made there; fills `dropped`.

        `touches`: the nodes that read or write a part of a shared variable.

        Returns
        -------
        dict of Variable to Kind
            The sources: where a bad value may appear that raises no flag.
        set of Variable
            The outputs that are read for all bad values.
        """
        sources, read = {}, set()
        for node in self.order:
            touch = touches.get(node)
            for i, variable in enumerate(node.outputs):
                reason = self.reason_to_leave_out(node, i)
                if reason is None and touch is not None and touch.writes:
                    reason = "part"
                if reason is not None:
                    self.dropped[variable] = reason
                elif self.must_read(node, i, touch):
                    read.add(variable)
                elif not holds_nonfinite(variable):
                    self.dropped[variable] = "moved"
                elif kinds := self.unshown(node, touch):
                    sources[variable] = kinds
                else:
                    makes = may_make(node, self.literals) & self.kinds
                    self.dropped[variable] = "flag" if makes else "moved"
        return sources, read

    def unshown(self, node: Apply, touch: Touch | None) -> Kind:
        """Return the kinds of bad values that may appear in a node's outputs without a sign."""
        if touch is not None or self.excuses_nothing(node):
            return self.kinds
        if not self.uses_flags(node):
            return may_make(node, self.literals) & self.kinds
        return unsignalled(node, self.backend, self.literals, self._constants) & self.kinds

    def must_read(self, node: Apply, i: int, touch: Touch | None) -> bool:
        """Whether an output is read for all bad values: it may be big although no operand is."""
        return self.policy.big and (
            touch is not None
            or self.excuses_nothing(node)
            or not keeps_size(node, i, self.policy.big_threshold)
        )

    def excuses_nothing(self, node: Apply) -> bool:
        """Whether an operand may be bad that nobody has checked."""
        return False

    def uses_flags(self, node: Apply) -> bool:
        """Whether the exception flags that a node raises count."""
        return False

    def carries(self, node: Apply, operand: int) -> Mapping[int, Kind]:
        """Return what a node carries from one operand, as long as no output is empty."""
        raise NotImplementedError

    def place(self, sources: Mapping, entering: Iterable[Variable] = ()) -> dict[Variable, Kind]:
        """Choose the values to read that show what the sources make; sets `sizes`.

        `entering`: inputs of the graph that may hold an Inf on purpose.
        """
        infinite = () if self.policy.anywhere else expected_infinities(self.order, entering)
        points = watch_points(self.order, sources, carries=self.carries, infinite=infinite)
        hidden = sources.keys() - points.keys()
        self.sizes = may_show_nothing(self.order, hidden, self.carries)
        self.dropped.update((v, "carried") for v in hidden if v.owner is not None)
        return points

    def check(self, variables: Container[Variable]) -> None:
        """Have these outputs of nodes read."""
        for treatment in self.nodes.values():
            outputs = treatment.node.outputs
            treatment.checks = [i for i, v in enumerate(outputs) if v in variables]
            for i in treatment.checks:
                self.dropped.pop(outputs[i], None)

    @cached_property
    def _constants(self) -> set[Variable]:
        return from_constants(self.order)

    # -- shared variables

    def touched_in_part(self) -> dict[Variable, list[Touch]]:
        """Return the shared variables that need not be read in full, and how they are touched."""
        if self.policy.by_result or self.policy.anywhere:  # a bad element counts wherever it is
            return {}
        return read_in_part(self.fgraph)

    def kept_values(self, is_checked: Callable) -> dict[Variable, int | None]:
        """Return the trusted shared variables whose value stays, or becomes a checked output.

        `is_checked`: whether a bad value in an output would be seen.
        """
        if self.is_inner or not self.policy.trusted:
            return {}
        becomes = self.updates()
        # (``Function.copy(delete_updates=True)`` leaves the nodes that overwrite.)
        destroyed = {v for roots in self._destroys.values() for v in roots} | self.given_up

        def is_known(variable: Variable) -> bool:
            if variable in becomes:
                return is_checked(self.fgraph.outputs[becomes[variable]])
            return variable not in destroyed

        shared = (v for v in self.inputs if isinstance(v, SharedVariable))
        return {v: becomes.get(v) for v in shared if is_known(v)}

    def written_in_part(self) -> dict[Variable, Touch]:
        """Return the inputs of which one node alone overwrites some elements, and which."""
        writers: dict[Variable, list[Apply]] = {}
        for node, roots in self._destroys.items():
            for root in roots:
                writers.setdefault(root, []).append(node)
        return {
            root: written(node)
            for root, (node, *others) in writers.items()
            if isinstance(node.op, increment_ops) and node.inputs[0] is root and not others
        }

    def updates(self) -> dict[Variable, int]:
        """Return the inputs that are updated after a call, and by which output."""
        mapping = getattr(self.fgraph, "update_mapping", None) or {}
        return {self.fgraph.inputs[i]: output for output, i in mapping.items()}

    def _leaves_open(self, node: Apply) -> bool:
        """Whether a node only chooses, or checks what only such nodes read."""
        clients = self.fgraph.clients[node.outputs[0]]
        return only_chooses(node) or (
            isinstance(node.op, CheckAndRaise)
            and all(only_chooses(client) for client, _ in clients)
        )

    def _bad_literals(self) -> list[Variable]:
        """Return the constants that are errors whatever is passed in.

        An infinite constant is one only with ``inf_is_error="any"``, or if it was computed from
        finite constants and reaches a result for certain.
        """
        policy = self.policy
        if not policy.check_inputs:
            return []
        read = {v for node in self.order if not self._leaves_open(node) for v in node.inputs}
        constants = dict.fromkeys(v for node in self.order for v in node.inputs)
        return [
            v
            for v in constants
            if v in read
            and isinstance(v, Constant)
            and is_numeric(v.type)
            and not policy.exempts(v)
            and policy.is_bad(v.data)
            and (
                policy.anywhere
                or any(policy.kinds(a)[0].any() for a in arrays_in(v.data))
                or (v in overflowed(self.fgraph) and self._reaches_a_result(v))
            )
        ]

    def _reaches_a_result(self, variable: Variable) -> bool:
        """Whether an Inf in a variable arrives at an output or update in every call."""
        todo, seen = [variable], {variable}
        while todo:
            current = todo.pop()
            if current in self.fgraph.outputs:
                return True
            for node, position in self.fgraph.clients.get(current, ()):
                if node in self.nodes:
                    kinds = carries(node, position)
                    reached = {node.outputs[i] for i, kind in kinds.items() if kind & Kind.INF}
                    todo += reached - seen
                    seen |= reached
        return False


class WholePlan(GraphPlan):
    """The plan of a graph on a backend that compiles a function as a whole.

    - `fgraph`, `order`, `policy`, `is_inner`: as for :class:`GraphPlan`; `order` is topological.
    - `inner_graphs`: ``inner_graphs(node)`` returns the graphs inside a node that are compiled on
      their own.
    - `silent`: inputs of an inner graph that are not checked outside.
    - `silent`: variables in which a bad value is not an error: the nodes that read it are checked.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        order: Sequence[Apply],
        policy: Policy,
        inner_graphs: Callable[[Apply], Sequence[FunctionGraph]],
        is_inner: bool = False,
        silent: Collection[Variable] = (),
    ) -> None:
        super().__init__(fgraph, order, policy, is_inner, () if is_inner else fgraph.inputs)
        self.silent = self.not_checked(silent)

        def inside(node: Apply, graph: FunctionGraph) -> "WholePlan":
            silent = self.not_checked_inside(node, graph, self.silent)
            return type(self)(graph, graph.toposort(), policy, inner_graphs, True, silent)

        for node in self.order:
            if graphs := inner_graphs(node):
                self.inner[node] = [inside(node, graph) for graph in graphs]


def sources_of(node: Apply, fgraph: FunctionGraph) -> list[Variable | None]:
    """Return for each input of an inner graph which input of the node it is, or begins with."""
    if isinstance(node.op, Scan):
        loop = ScanReplay(node, None, fgraph)
        sources = [loop.outer_input(i) for i in range(len(fgraph.inputs))]
        return [loop.initial(i) if v is None else v for i, v in enumerate(sources)]
    return node.inputs[1:] if isinstance(node.op, LazyIfElse) else node.inputs


def is_large_state(variable: Variable) -> bool:
    """Whether a variable is a shared variable that holds an array, which may be large."""
    kind = variable.type
    return (
        isinstance(variable, SharedVariable)
        and isinstance(kind, TensorType)
        and not all(kind.broadcastable)
    )


def is_discrete(variable: Variable) -> bool:
    """Whether a variable holds integers or booleans."""
    return getattr(variable.type, "dtype", "") in ps.discrete_dtypes


def overwritten(node: Apply) -> list[Variable]:
    """Return the variables in whose memory a node writes, each as often as it does."""
    return [root for root, _, _ in overwrites(node)]


def overwrites(node: Apply) -> list[tuple[Variable, int, int]]:
    """Return where a node writes: the variable that has the memory, the operand, and the output."""
    return [
        (memory_of(node.inputs[i]), i, output)
        for output, sources in node.op.destroy_map.items()
        for i in sources
    ]


def memory_of(variable: Variable) -> Variable:
    """Follow views and overwritten values down to the variable whose memory they live in."""
    while variable.owner is not None:
        node = variable.owner
        index = node.outputs.index(variable)
        sources = node.op.view_map.get(index) or node.op.destroy_map.get(index)
        if not sources:
            return variable
        variable = node.inputs[sources[0]]
    return variable


def has_elements(variable: Variable) -> bool:
    """Whether values can be looked at: no booleans, and no lists of arrays."""
    return not is_list(variable) and getattr(variable.type, "dtype", "bool") != "bool"


def is_list(variable: Variable) -> bool:
    """Whether a variable is a list of arrays."""
    return hasattr(variable.type, "ttype")
