"""Decides which values of a graph are read on the Numba backend, so that no bad value is missed.

NaN and Inf
    Most code raises an exception flag when it makes one (:mod:`~theanoguard.guard.numba.signs`).
    What enters the graph, and what is made without a flag, are *sources*: they are read, or a few
    values further down that show every NaN and Inf of them (:mod:`~theanoguard.guard.carry`).
Big values
    No flag is raised for them.  Each output that can be big while no operand is, is read.

A value that is not checked, such as an input with ``check_inputs=False``, excuses nothing: the
nodes that read it are sources.
"""

from dataclasses import dataclass

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant

from theanoguard._facts import Kind, holds_nonfinite
from theanoguard._pytensor import IfElse, LazyIfElse, Scan, is_numeric
from theanoguard.explain.replay import ScanReplay
from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.guard.elements import keeps_size, may_lose, unwritten
from theanoguard.guard.graph.checks import certain_nodes, has_elements
from theanoguard.guard.graph.parts import Part
from theanoguard.guard.numba import signs
from theanoguard.guard.plan import GraphPlan, NodePlan, overwritten


def plan_of(fgraph, order, policy, inner_graphs, around=None, silent=()):
    """Return the plan of a graph and of those in it, as a :class:`Part`.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : list of Apply
    policy : Policy
    inner_graphs : callable
        ``inner_graphs(node)`` returns those that Numba compiles on their own.
    around : Apply or None
        The node whose inner graph this is.
    silent : collection of Variable
        Inputs of an inner graph that nobody has looked at.
    """
    plan = SignPlan(fgraph, order, policy, around, silent)
    inner = {}
    for node in plan.order:
        parts = []
        for graph in inner_graphs(node):
            given = zip(graph.inputs, sources_of(node, graph), strict=True)
            unseen = [v for v, source in given if source in plan.silent]
            parts.append(plan_of(graph, graph.toposort(), policy, inner_graphs, node, unseen))
        if parts:
            inner[node] = parts
    plan.inner = inner
    return Part(plan, inner)


def sources_of(node, fgraph):
    """Return for each input of an inner graph which input of the node it is, or begins with."""
    if isinstance(node.op, Scan):
        loop = ScanReplay(node, None, fgraph)
        sources = [loop.outer_input(i) for i in range(len(fgraph.inputs))]
        return [loop.initial(i) if v is None else v for i, v in enumerate(sources)]
    return node.inputs[1:] if isinstance(node.op, LazyIfElse) else node.inputs


@dataclass(frozen=True)
class Sign:
    """Which bad elements a variable is read for.

    Parameters
    ----------
    kinds : Kind
    big : bool
    made : Kind
        Those of `kinds` that no other sign would show.
    """

    kinds: Kind
    big: bool
    made: Kind = Kind.NONE


class SignPlan(GraphPlan):
    """The plan of one graph.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : list of Apply
        Topological.
    policy : Policy
    around : Apply or None
        The node whose inner graph this is.
    silent : collection of Variable
        Inputs of an inner graph that nobody has looked at.

    Attributes
    ----------
    nodes : dict of Apply to NodePlan
    inputs : list of Variable
        Inputs of the graph in which a bad value is an error.
    silent : set of Variable
        Variables in which a bad value is not an error.
    bad_constants : list of Variable
        Constants that are errors whatever is passed in.
    dropped : dict of Variable to str
        Outputs that are not read, and why: a key of :data:`~theanoguard.guard.c.plan.REASONS`.
    sizes : set of Variable
        Arrays that must not be empty: they would not show a bad operand.
    unwritten : set of Variable
        Variables that may hold uninitialised memory.
    certain : set of Apply
        Nodes whose results count in every call.
    kept : dict of Variable to (int or None)
        Shared variables that need not be read while they hold what the last call left there, and
        which output that is.
    kinds : Kind
        The kinds of bad values that are looked for.
    """

    def __init__(self, fgraph, order, policy, around=None, silent=()):
        super().__init__(fgraph, order, policy)
        self.around = around
        self.inner = {}
        self.unwritten = unwritten(self.order)
        self.certain = certain_nodes(self)
        roots = () if around is not None else fgraph.inputs
        self.nodes = {
            node: NodePlan(node, destroys=[v for v in overwritten(node) if v in roots])
            for node in self.order
        }
        self.dropped = {}
        self.sizes = set()
        numeric = [v for v in fgraph.inputs if self.may_be_bad(v)]
        if around is not None:
            self.inputs, self.silent, self.bad_constants = [], set(silent), []
        else:
            self.inputs = [v for v in numeric if policy.inputs and not policy.exempts(v)]
            self.silent = set(numeric) - set(self.inputs)
            self.bad_constants = self.bad_literals()
        self.silent.update(
            v for node in self.order for v in node.outputs if policy.exempts(self.as_built(v))
        )
        self.kept = self._kept_values()
        if around is None:
            self.partly = {
                v: touches
                for v, touches in self.touched_in_part().items()
                if v in self.inputs
                and v not in self.kept
                and all(touch.node in self.certain for touch in touches)
            }
        self.kinds = policy.looked_for

    def _kept_values(self):
        if self.around is not None or not self.policy.trusted:
            return {}
        updates = getattr(self.fgraph, "update_mapping", None) or {}
        becomes = {self.fgraph.inputs[i]: output for output, i in updates.items()}
        # (``Function.copy(delete_updates=True)`` leaves the nodes that overwrite.)
        destroyed = {v for treatment in self.nodes.values() for v in treatment.destroys}
        return {
            v: becomes.get(v)
            for v in self.inputs
            if isinstance(v, SharedVariable) and (v in becomes or v not in destroyed)
        }

    def read_whole(self, noisy):
        """Read a variable in full again if its rows are incremented by bad values on purpose."""
        self.partly = {
            v: touches
            for v, touches in self.partly.items()
            if not any(
                output in noisy for touch in touches if touch.reads for output in touch.node.outputs
            )
        }

    # -- what is read

    def decide(self, reliance, bracketed, harmless, infinite):
        """Decide what is read.

        Parameters
        ----------
        reliance : Reliance
        bracketed : collection of Apply
            Nodes whose flags do not count.
        harmless : bool
            Whether every node may be run on whatever has been computed.
        infinite : collection of Variable
            Inputs that may hold an Inf on purpose.

        Returns
        -------
        dict of Variable to Sign
        """
        signs_of = self._by_result() if self.policy.by_result else None
        if signs_of is None:
            signs_of = self._by_node(reliance, bracketed, harmless, infinite)
        for treatment in self.nodes.values():
            outputs = treatment.node.outputs
            treatment.checks = [i for i, v in enumerate(outputs) if v in signs_of]
            for variable in outputs:
                if variable in signs_of:
                    self.dropped.pop(variable, None)
        return signs_of

    def _by_result(self):
        ends = () if self.around is not None else self.fgraph.outputs
        sign = Sign(self.kinds, self.policy.big)
        return {v: sign for v in ends if has_elements(v) and not isinstance(v, Constant)}

    def _by_node(self, reliance, bracketed, harmless, infinite):
        policy = self.policy
        left_out = self.kept.keys() | self.partly.keys()
        entering = [v for v in self.inputs if has_elements(v) and v not in left_out]
        touches = {t.node: t for found in self.partly.values() for t in found if not t.is_inside}
        self._writers = {node for node, touch in touches.items() if touch.writes}
        read = set(entering) if policy.big else set()
        sources = {v: self.kinds for v in entering if holds_nonfinite(v)}
        constants = signs.from_constants(self.order)
        for node in self.order:
            uses_flags = reliance.flags and node not in bracketed
            for i, variable in enumerate(node.outputs):
                reason = self._reason_to_leave_out(node, variable)
                if reason is not None:
                    self.dropped[variable] = reason
                    continue
                if node in touches and touches[node].writes:
                    self.dropped[variable] = "part"
                    continue
                careful = any(v in self.silent for v in node.inputs) or node in touches
                chosen = isinstance(node.op, IfElse)
                if policy.big and (careful or chosen or not keeps_size(node, i, policy.limit)):
                    read.add(variable)
                if not holds_nonfinite(variable):
                    continue
                if careful or chosen:
                    kinds = self.kinds
                elif uses_flags:
                    kinds = signs.unsignalled(node, policy.anywhere, constants) & self.kinds
                else:
                    kinds = signs.may_make(node, policy.anywhere) & self.kinds
                if kinds:
                    sources[variable] = kinds
                    self.dropped[variable] = "carried"
                else:
                    makes = signs.may_make(node, policy.anywhere) & self.kinds
                    self.dropped[variable] = "flag" if makes else "moved"
        points, self.sizes = sources, set()
        if harmless:  # else read before something may be done with them
            points = watch_points(
                self.order,
                sources,
                carries=lambda node, operand: self._carries(node, operand, reliance),
                infinite=() if policy.anywhere else expected_infinities(self.order, infinite),
            )
            self.sizes = self._sizes_minded(sources.keys() - points.keys(), reliance)
        return {
            v: Sign(self.kinds, policy.big, points.get(v, Kind.NONE))
            if v in read
            else Sign(points[v], False)
            for v in {**points, **dict.fromkeys(read)}
        }

    def _reason_to_leave_out(self, node, variable):
        if not is_numeric(variable.type) or not has_elements(variable):
            return "not numeric"
        if not self.may_be_bad(variable):
            return "discrete"
        if variable in self.unwritten:
            return "uninitialised"
        if node in self.inner:
            return "inner graph"
        if variable in self.silent:
            return "exempt"
        return None if node in self.certain else "branch"

    def _carries(self, node, operand, reliance):
        """Return what a node carries from one operand, as long as no output is empty."""
        if node in self.inner or node not in self.certain or node in self._writers:
            return {}
        return {
            i: kinds
            for i, kinds in signs.carried(node, operand, reliance.products).items()
            if node.outputs[i] not in self.unwritten | self.silent
            and not (node in reliance.lossy and may_lose(node, operand, i))
        }

    def _sizes_minded(self, sources, reliance):
        """Return the variables in which what is carried on from `sources` is lost if empty."""
        reached, found = set(sources), set()
        for node in self.order if sources else ():
            for i, variable in enumerate(node.inputs):
                for o in self._carries(node, i, reliance) if variable in reached else ():
                    reached.add(node.outputs[o])
                    if may_lose(node, i, o):
                        found.add(node.outputs[o])
        return found
