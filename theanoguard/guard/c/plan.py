"""How each node of a graph is treated on the C backend, so that nothing bad goes unseen.

NaN and Inf
    Most C code raises an exception flag of the processor when it makes one
    (:func:`theanoguard.operations.signals`).  What enters the graph, and what is made without a
    flag, are *sources*: they are read, or a few values further down that show every NaN and Inf of
    them (:mod:`theanoguard.guard.carry`).
Big values
    No flag is raised for them.  Each output that can be big while no operand is, is read.

The plan learns from suspicious calls in which nothing was wrong.  Nodes that raised flags are
bracketed, and variables that held a deliberate Inf are not used as signs any more.
"""

from copy import copy
from dataclasses import dataclass, field, replace

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import (
    AllocEmpty,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import Subtensor

from theanoguard._pytensor import (
    IfElse,
    is_lazy,
)
from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.guard.elements import may_show_nothing
from theanoguard.guard.plan import GraphPlan, NodePlan
from theanoguard.guard.products import axes_of, first_places, is_product, loses_where_thin
from theanoguard.operations import (
    Kind,
    carries,
    constant_kinds,
    keeps_size,
    makes,
    makes_nan_of_inf,
    may_lose,
    signals,
)

# Operations whose C code calls nothing that clears or raises flags but the arithmetic itself.
PLAIN_CODE = (
    AllocEmpty,
    CAReduce,
    DimShuffle,
    Elemwise,
    LogSoftmax,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    Shape,
    Shape_i,
    Softmax,
    SpecifyShape,
    Subtensor,
    TensorFromScalar,
    ViewOp,
    DeepCopyOp,
)


def casts_in_numpy(op):
    """Whether the C code has NumPy cast its result, which clears the flags of earlier nodes.

    A reduction does so that accumulates in another dtype, such as a sum of float32 in float64.
    """
    return isinstance(op, CAReduce) and op.acc_dtype not in (None, op.dtype)


@dataclass
class Treatment(NodePlan):
    """The checks and copies around one node.

    Parameters
    ----------
    node, checks, destroys
        As for :class:`~theanoguard.guard.plan.NodePlan`.
    sizes : list of int
        Outputs that must not be empty: no element of them would show a bad operand.
    thin : list of tuple of int
        Operands and their axes that must not have length 1: the product might lose a bad operand.
    bracketed : bool
        Whether the exception flags that the node raises mean nothing.
    careful : bool
        Whether a bad output may be right, so that the kernel asks for the verdict at once.
    part : bool
        Whether of what the node increments in place, only these elements are read.
    big_before : bool
        Whether they are also read before it runs, for big values.
    """

    sizes: list = field(default_factory=list)
    thin: list = field(default_factory=list)
    bracketed: bool = False
    careful: bool = False
    part: bool = False
    big_before: bool = False

    @property
    def watches(self):
        """Whether anything of the node is looked at."""
        return bool(self.checks or self.sizes or self.thin)


class CPlan(GraphPlan):
    """The plan of one graph.

    Parameters
    ----------
    fgraph, order, policy, is_inner, updated
        As for :class:`~theanoguard.guard.plan.GraphPlan`.
    inner : dict of Apply to list of CPlan
        The plans of inner graphs.
    in_c : collection of Apply
        The nodes that run as C code.
    flags_work : bool
        Whether the exception flags can be relied upon.
    exact : bool
        Whether the compiled code keeps to IEEE 754.  If not, no operation is sure to carry a NaN.

    Attributes
    ----------
    inputs : list of Variable
        Inputs of the graph that may be bad.  One that is exempt is read as well: the verdict
        decides whether it matters.
    scanned : list of Variable
        Inputs that are read when a call begins; the others show further down.
    """

    node_plan = Treatment

    def __init__(
        self,
        fgraph,
        order,
        policy,
        is_inner=False,
        updated=(),
        inner=(),
        in_c=(),
        flags_work=True,
        exact=True,
    ):
        super().__init__(fgraph, order, policy, is_inner, updated)
        self.inner = dict(inner)
        self.inputs = [] if is_inner else list(filter(self.may_be_bad, fgraph.inputs))
        self.in_c = set(in_c)
        self.flags_work = flags_work and exact
        self.exact = exact
        self.noisy = set()
        self.loud = set()
        self.lossy = set()
        self._is_lazy = any(is_lazy(node.op) for node in self.order)
        self._kinds = policy.looked_for
        self._literals = Kind.BOTH if policy.anywhere else Kind.NAN
        self._touched = {} if is_inner or self._is_lazy else self.touched_in_part()
        self.make()

    def learn(self, noisy=(), loud=(), lossy=(), flags_work=True):
        """Change the plan after a call in which all was right.

        Parameters
        ----------
        noisy : set of Variable
            That held bad values.
        loud : set of Apply
            That raised flags.
        lossy : set of Apply
            That gave an empty array.
        flags_work : bool
        """
        self.noisy |= set(noisy)
        self.loud |= set(loud)
        self.lossy |= set(lossy)
        self.flags_work = self.flags_work and flags_work
        self.make()

    def without_audit(self):
        """Return the plan that the same policy without ``audit`` has."""
        plan = copy(self)
        plan.policy = replace(self.policy, audit=False)
        plan.make()
        return plan

    def make(self):
        """Decide how each node is treated."""
        policy = self.policy
        self.nodes = self.new_nodes()
        self.dropped, self.scanned = {}, []
        self.partly = {v: found for v, found in self._touched.items() if self._counts_in_part(v)}
        # (The audit reads everything, but by the same definition of an error.)
        partly = {} if policy.audit else self.partly
        touches = {t.node: t for found in partly.values() for t in found}
        self._writers = {node for node, touch in touches.items() if touch.writes}
        # Exempt variables that held bad values: the nodes that read them are checked instead.
        silent = {v for v in self.noisy if not self.is_watched(v)}
        entering = [v for v in self.inputs if v not in silent]
        sources, read = self._what_enters([v for v in entering if v not in partly]), set()
        for node in self.order:
            self._treat(node, silent)
            for i, variable in enumerate(node.outputs):
                reason = self.reason_to_leave_out(node, i)
                if reason is not None:
                    self.dropped[variable] = reason
                    continue
                reason, kinds = self._sign(node, i, touches.get(node))
                if reason is not None:
                    self.dropped[variable] = reason
                elif kinds:
                    sources[variable] = kinds
                else:
                    read.add(variable)
                if policy.audit:
                    read.add(variable)
        if policy.audit:
            read.update(v for v in entering if v not in self.scanned)
        self._place_checks(sources, read)

    def _what_enters(self, variables):
        """Have inputs read when the call begins; return the others, which are sources."""
        sources = {}
        for variable in variables:
            if variable in self.noisy or self.policy.big or self._is_trusted(variable):
                self.scanned.append(variable)
            else:
                sources[variable] = self._kinds
        return sources

    def _treat(self, node, silent):
        """Decide whether the flags of a node count, and whether the verdict follows it."""
        treatment = self.nodes[node]
        treatment.bracketed = not self._is_plain(node) or node in self.loud
        treatment.careful = (
            node in self.loud
            or any(v in self.noisy for v in node.outputs)
            or any(v in silent for v in node.inputs)
        )

    def _sign(self, node, i, touch):
        """Decide how a bad value shows that a node makes.

        Parameters
        ----------
        node : Apply
        i : int
            Which of its outputs.
        touch : Touch or None
            If the node reads or writes a part of a shared variable.

        Returns
        -------
        reason : str or None
            Why the output need not be read.
        kinds : Kind
            For which kinds it is a source.  With neither, it is read itself.
        """
        policy, treatment = self.policy, self.nodes[node]
        if touch is not None and touch.writes:
            treatment.part = touch.reads
            treatment.big_before = touch.reads and policy.big
            return "part", Kind.NONE
        if touch is not None:
            return None, Kind.NONE if policy.big else self._kinds
        if treatment.careful or self._may_be_big(node, i):
            return None, Kind.NONE
        kinds = makes(node, self._literals)
        if makes_nan_of_inf(node):  # of an Inf that is no error, such as sin(inf)
            kinds |= Kind.NAN
        kinds &= self._kinds
        if not kinds:
            return "moved", Kind.NONE
        return ("flag", Kind.NONE) if self._signals(node) else (None, kinds)

    def _place_checks(self, sources, read):
        """Choose the values to read that show what the sources make, beside those in `read`."""
        points = self._watch_points(sources) if sources else set()
        for variable in may_show_nothing(self.order, set(sources) - points, self._carries):
            node = variable.owner
            self.nodes[node].sizes.append(node.outputs.index(variable))
        for node in self.order if sources else ():
            if is_product(node) and any(self._carries(node, i) for i in axes_of(node)):
                self.nodes[node].thin = first_places(node, loses_where_thin(node))
        for variable in sources:
            if variable not in points and variable.owner is not None:
                self.dropped[variable] = "carried"
        for variable in points | read:
            self.dropped.pop(variable, None)
            if variable.owner is None:
                self.scanned.append(variable)
            else:
                self.nodes[variable.owner].checks.append(variable.owner.outputs.index(variable))

    def _counts_in_part(self, variable):
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

    def is_watched(self, variable):
        """Whether a bad value in a variable is reported where it comes from."""
        if isinstance(variable, Constant):
            return variable in self.bad_constants
        if self.is_exempt(variable):
            return False
        return variable.owner is not None or self.is_inner or self.policy.inputs

    def is_bad_literal(self, variable):
        """Whether a variable is a constant that a node makes bad by choosing it."""
        return bool(constant_kinds(variable) & self._literals & self._kinds)

    def _is_trusted(self, variable):
        return self.policy.trusted and isinstance(variable, SharedVariable)

    # -- what is known of a node

    def _is_plain(self, node):
        return node in self.in_c and isinstance(node.op, PLAIN_CODE) and not casts_in_numpy(node.op)

    def _signals(self, node):
        return (
            self.flags_work
            and node not in self.loud
            and self._is_plain(node)
            and not getattr(node.op, "openmp", False)
            and signals(node, literals=self._literals)
        )

    def reason_to_leave_out(self, node, index):
        reason = super().reason_to_leave_out(node, index)
        return "moved" if reason is None and isinstance(node.op, IfElse) else reason

    def _may_be_big(self, node, i):
        return self.policy.big and not keeps_size(node, i, self.policy.limit)

    # -- what shows where

    def _carries(self, node, operand):
        """As :func:`theanoguard.operations.carries`, as long as no output is empty."""
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

    def _may_be_skipped(self, node):
        return self._is_lazy or node in self.inner

    def _watch_points(self, sources):
        found = watch_points(
            self.order,
            sources,
            carries=self._carries,
            infinite=() if self.policy.anywhere else expected_infinities(self.order),
        )
        return set(found)
