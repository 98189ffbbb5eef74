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
from functools import partial

from pytensor.graph.basic import Constant

from theanoguard._evaluate.replay import ScanReplay
from theanoguard._pytensor import IfElse, LazyIfElse, Scan
from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.guard.elements import may_show_nothing
from theanoguard.guard.graph.checks import certain_variables, has_elements
from theanoguard.guard.numba import signs
from theanoguard.guard.plan import REASONS as SHARED_REASONS
from theanoguard.guard.plan import GraphPlan
from theanoguard.operations import Kind, constant_kinds, holds_nonfinite, keeps_size, may_lose

REASONS = {
    **SHARED_REASONS,
    "exempt": "you excluded it; what is computed from it is read",
    "branch": "of a branch that may be thrown away; what is chosen is read",
}


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
        The `kinds` that only this variable shows.
    """

    kinds: Kind
    big: bool
    made: Kind = Kind.NONE


class NumbaPlan(GraphPlan):
    """The plan of one graph, and of those inside it that Numba compiles on their own.

    Parameters
    ----------
    fgraph, order, policy, inner_graphs, is_inner
        As for :class:`~theanoguard.guard.graph.plan.FlaggedPlan`.
    silent : collection of Variable
        Inputs of an inner graph that are not checked outside.

    Attributes
    ----------
    silent : set of Variable
        Variables in which a bad value is not an error.
    sizes : set of Variable
        Arrays that must not be empty: they would not show a bad operand.
    certain : set of Variable
        The outputs of nodes that count in every call.
    kinds : Kind
        The kinds of bad values that are looked for.
    """

    def __init__(self, fgraph, order, policy, inner_graphs, is_inner=False, silent=()):
        super().__init__(fgraph, order, policy, is_inner, () if is_inner else fgraph.inputs)
        self.certain = certain_variables(self)
        self.sizes = set()
        self.kinds = policy.looked_for
        self.silent = set(silent)
        if not is_inner:
            self.silent.update(filter(self.may_be_bad, fgraph.inputs))
            self.silent.difference_update(self.inputs)
        self.silent.update(filter(self.is_exempt, (v for n in self.order for v in n.outputs)))
        self.kept = self.kept_values(lambda output: output not in self.silent)
        if not is_inner:
            self.partly = {
                v: touches
                for v, touches in self.touched_in_part().items()
                if v in self.inputs
                and v not in self.kept
                and all(self.certain.issuperset(touch.node.outputs) for touch in touches)
            }
        self.inner = {
            node: [self._plan_inside(node, graph, inner_graphs) for graph in graphs]
            for node in self.order
            if (graphs := inner_graphs(node))
        }

    def _plan_inside(self, node, fgraph, inner_graphs):
        given = zip(fgraph.inputs, sources_of(node, fgraph), strict=True)
        literals = Kind.BOTH if self.policy.anywhere else Kind.NAN
        chosen = {v for v in node.inputs if constant_kinds(v) & literals} - {*self.bad_constants}
        silent = [v for v, source in given if source in self.silent | chosen]
        return NumbaPlan(fgraph, fgraph.toposort(), self.policy, inner_graphs, True, silent)

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
            Whether no node can be harmed by a bad operand.
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
        ends = () if self.is_inner else self.fgraph.outputs
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
                reason = self.reason_to_leave_out(node, i)
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
            carries = partial(self._carries, reliance=reliance)
            points = watch_points(
                self.order,
                sources,
                carries=carries,
                infinite=() if policy.anywhere else expected_infinities(self.order, infinite),
            )
            hidden = sources.keys() - points.keys()
            self.sizes = set(may_show_nothing(self.order, hidden, carries))
        return {
            v: Sign(self.kinds, policy.big, points.get(v, Kind.NONE))
            if v in read
            else Sign(points[v], False)
            for v in {**points, **dict.fromkeys(read)}
        }

    def reason_to_leave_out(self, node, index):
        variable = node.outputs[index]
        if not has_elements(variable):
            return "not numeric"
        if reason := super().reason_to_leave_out(node, index):
            return reason
        if variable in self.silent:
            return "exempt"
        return None if variable in self.certain else "branch"

    def _carries(self, node, operand, reliance):
        """Return what a node carries from one operand, as long as no output is empty."""
        if node in self.inner or node in self._writers:
            return {}
        return {
            i: kinds
            for i, kinds in signs.carried(node, operand, reliance.products).items()
            if node.outputs[i] in self.certain
            and node.outputs[i] not in self.unwritten | self.silent
            and not (node in reliance.lossy and may_lose(node, operand, i))
        }
