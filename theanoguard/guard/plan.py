"""Which outputs need a check at all, and which kind: decided once, at compile time.

A check is left out only by a named rule of `RULES`, each with its reason; a property
test shows for each that it never hides a bad value.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.type import TensorType

from theanoguard._facts import RANGES, SELECTING
from theanoguard._provenance import thawed_variables
from theanoguard._pytensor import (
    IfElse,
    Scan,
    advanced_subtensor_ops,
    is_numeric,
)
from theanoguard.guard.elements import WRITING, is_unit, only_selects
from theanoguard.guard.partly import read_in_part
from theanoguard.guard.policy import arrays_in

# ---------------------------------------------------------------- what is known of an op

# Scalar operations with a bounded result for every operand that is not NaN.
BOUNDED = {
    kind: max(-lowest, highest)
    for kind, (lowest, highest) in RANGES.items()
    if kind not in (ps.Sin, ps.Cos)  # of an Inf they make a NaN
}

# Operations that copy elements of their first input, ...
COPYING_FIRST = (
    Alloc,
    DeepCopyOp,
    ExtractDiag,
    Repeat,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
    *advanced_subtensor_ops,
)
# ... of any of their inputs, or write 0 and 1.
COPYING = (*COPYING_FIRST, Eye, Join, MakeVector)


@dataclass(frozen=True)
class Rule:
    """A reason why an output needs no check.

    Parameters
    ----------
    name : str
    reason : str
        Why a bad value cannot be missed.
    applies : callable
        ``applies(plan, node, index)`` for output number `index` of `node`.
    clean : bool
        Whether the output then counts as clean for the rules of later nodes.
    """

    name: str
    reason: str
    applies: Callable
    clean: bool = True


def _viewed(node, index):
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


def _is_view(plan, node, index):
    source = _viewed(node, index)
    return source is not None and plan.is_clean(source)


def _all_clean(plan, variables):
    return all(plan.is_clean(v) for v in variables)


def _is_copy(plan, node, index):
    op = node.op
    copies = isinstance(op, COPYING) or (
        isinstance(op, WRITING) and (op.set_instead_of_inc or _increments_zeros(node))
    )
    return copies and _all_clean(plan, node.inputs)


def _increments_zeros(node):
    """Whether what is added to is 0, and no element is added to twice."""
    buffer = node.inputs[0]
    if buffer.owner is not None and isinstance(buffer.owner.op, Alloc):
        buffer = buffer.owner.inputs[0]
    is_zero = isinstance(buffer, Constant) and not np.any(buffer.data)
    return is_zero and isinstance(node.op, IncSubtensor)


def _is_unwritten(plan, node, index):
    """Whether the output is an AllocEmpty, an array that was written in part, or a copy of one."""
    if isinstance(node.op, AllocEmpty):
        return True
    if isinstance(node.op, WRITING):  # (what is added to has been written before)
        return node.op.set_instead_of_inc and node.inputs[0] in plan.unwritten
    if isinstance(node.op, COPYING_FIRST):  # loops that write to one buffer get a copy each
        return node.inputs[0] in plan.unwritten
    source = _viewed(node, index)
    return source is not None and source in plan.unwritten


def _scalar_is_safe(plan, op, operands_clean, inputs, outputs, index=0, known=()):
    """Whether the scalar operation maps clean operands to a clean output number `index`.

    The outputs in `known` are clean, or checked.
    """
    if not operands_clean:
        return False
    if all(v.type.dtype in ps.discrete_dtypes for v in outputs):
        big_integers = plan.policy.big and plan.policy.integers
        return not big_integers or all(v.type.dtype == "bool" for v in outputs)
    if type(op) in SELECTING:
        selected = inputs[SELECTING[type(op)]]
        return all(_widens(v.type.dtype, outputs[0].type.dtype) for v in selected)
    bound = BOUNDED.get(type(op))
    if bound is not None:
        return not plan.policy.big or bound <= plan.policy.limit
    if isinstance(op, ps.Cast):
        return _widens(inputs[0].type.dtype, outputs[0].type.dtype)
    if isinstance(op, ps.Mul):
        large = [v for v in inputs if not is_unit(v)]
        return _are_finite(plan.policy) and (
            len(large) <= 1 and all(_widens(v.type.dtype, outputs[0].type.dtype) for v in large)
        )
    if isinstance(op, ps.Composite):
        result = op.fgraph.outputs[index]
        given = {op.fgraph.outputs[i] for i in known} - {result}
        return all(
            _scalar_is_safe(plan, n.op, _constants_clean(plan, n), n.inputs, n.outputs)
            for n in toposort([result], blockers=given)
        )
    return False


def _are_finite(policy):
    """Whether what has been checked is finite: 0 times Inf is NaN."""
    return policy.nan and (policy.inf or policy.big)


def _constants_clean(plan, node):
    return not any(plan.policy.is_bad(v.data) for v in node.inputs if isinstance(v, Constant))


def _widens(source, target):
    order = ("bool", "int8", "float16", "float32", "float64")
    return source in order and target in order[2:] and order.index(source) <= order.index(target)


def _is_safe_map(plan, node, index):
    if not isinstance(node.op, Elemwise):
        return False
    known = [
        i
        for i, v in enumerate(node.outputs)
        if i != index and not plan.policy.exempts(plan.as_built(v))
    ]
    clean = _all_clean(plan, node.inputs)
    return _scalar_is_safe(plan, node.op.scalar_op, clean, node.inputs, node.outputs, index, known)


def _is_softmax(plan, node, index):
    policy = plan.policy
    return (
        isinstance(node.op, Softmax)
        and _are_finite(policy)
        and (not policy.big or policy.limit >= 1.0)
        and _all_clean(plan, node.inputs)
    )


RULES = (
    Rule(
        "not numeric",
        "random generators, slices, None and such hold no numbers",
        lambda plan, node, i: not is_numeric(node.outputs[i].type),
    ),
    Rule(
        "discrete",
        "integers and booleans can be neither NaN nor infinite, and big ones are not asked for",
        lambda plan, node, i: (
            getattr(node.outputs[i].type, "dtype", "") in ps.discrete_dtypes
            and not (plan.policy.big and plan.policy.integers)
        ),
    ),
    Rule(
        "uninitialised",
        "memory that nobody has written yet holds anything; what is written into it was checked",
        _is_unwritten,
        clean=False,
    ),
    Rule(
        "exempt",
        "the user left it out",
        lambda plan, node, i: plan.policy.exempts(plan.as_built(node.outputs[i])),
        clean=False,
    ),
    Rule("view", "a view shows only elements that have been checked", _is_view),
    Rule("copy", "only copies elements that have been checked, or writes 0 and 1", _is_copy),
    Rule(
        "clean map",
        "gives one of its operands, its magnitude, a part of it, or a value in a fixed range",
        _is_safe_map,
    ),
    Rule("softmax", "of finite numbers lies between 0 and 1", _is_softmax),
    Rule(
        "whole inner graph",
        "every value was checked inside, when it was made, and nothing is left unwritten",
        lambda plan, node, i: node in plan.whole_inner and all(map(plan.holds_clean, node.inputs)),
    ),
    Rule(
        "inner graph",
        "every value was checked inside, when it was made",
        lambda plan, node, i: (
            node in plan.guarded_inner
            and (isinstance(node.op, Scan) or _all_clean(plan, node.inputs))
        ),
        clean=False,  # it may have been left out inside, or a loop have stopped early
    ),
    Rule(
        "branch",
        "the value of the branch that ran was checked when it was made",
        lambda plan, node, i: (
            isinstance(node.op, IfElse)
            and plan.is_clean(node.inputs[1 + i])
            and plan.is_clean(node.inputs[1 + node.op.n_outs + i])
        ),
    ),
)


# ---------------------------------------------------------------- the plan


@dataclass
class NodePlan:
    """What to do around one node.

    Parameters
    ----------
    node : Apply
    checks : list of int
        Outputs that are checked.
    destroys : list of Variable
        Inputs of the graph with an update that the node overwrites.
    """

    node: object
    checks: list = field(default_factory=list)
    destroys: list = field(default_factory=list)

    def checked(self):
        """Return the (index, variable) of each checked output."""
        return [(i, self.node.outputs[i]) for i in self.checks]


class GraphPlan:
    """What the plans of all backends know of a graph.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : iterable of Apply
        In the order in which they run.
    policy : Policy

    Attributes
    ----------
    partly : dict of Variable to list of Touch
        Shared variables of which only some elements are read.
    """

    def __init__(self, fgraph, order, policy):
        self.fgraph = fgraph
        self.order = list(order)
        self.policy = policy
        self._as_built = thawed_variables(fgraph)
        self.partly = {}

    def as_built(self, variable):
        """Return `variable` with the name and the tags that it lost where a graph was frozen."""
        return self._as_built.get(variable, variable)

    def may_be_bad(self, variable):
        """Whether values of this type may be bad."""
        if not is_numeric(variable.type):
            return False
        return not _is_discrete(variable) or (self.policy.big and self.policy.integers)

    def touched_in_part(self):
        """Return the shared variables that need not be read in full, and how they are touched."""
        if self.policy.by_result or self.policy.anywhere:  # a bad element counts wherever it is
            return {}
        return read_in_part(self.fgraph)

    def bad_literals(self):
        """Return the constants that are errors whatever is passed in.

        An infinite constant is one only with ``inf_is_error="any"``.
        """
        policy = self.policy
        if not policy.inputs:
            return []
        read = {v for node in self.order if not only_selects(node) for v in node.inputs}
        constants = dict.fromkeys(v for node in self.order for v in node.inputs)
        return [
            v
            for v in constants
            if v in read
            and isinstance(v, Constant)
            and is_numeric(v.type)
            and not policy.exempts(v)
            and policy.is_bad(v.data)
            and (policy.anywhere or any(policy.kinds(a)[0].any() for a in arrays_in(v.data)))
        ]


class Plan(GraphPlan):
    """The checks of one graph.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : list of Apply
        Topological.
    policy : Policy
    updated : collection of Variable
        Inputs with an update, which a failed call must leave as they were.
    guarded_inner : collection of Apply
        Nodes with an inner graph that is guarded itself.
    whole_inner : collection of Apply
        Those of them whose outputs are clean if their inputs are.
    is_inner : bool
        Inner graphs do not check their inputs.

    Attributes
    ----------
    nodes : dict of Apply to NodePlan
    inputs : list of (Variable, role)
        Inputs of the graph that are checked at the start of a call.
    bad_constants : list of Variable
        Constants that are bad whatever is passed in.
    dropped : dict of Variable to str
        Outputs without a check, and the rule.
    kept : dict of Variable to (int or None)
        Shared inputs whose value after a call is known to be clean, and which output it is.
    """

    def __init__(
        self,
        fgraph,
        order,
        policy,
        updated=(),
        guarded_inner=(),
        whole_inner=(),
        is_inner=False,
    ):
        super().__init__(fgraph, order, policy)
        self.guarded_inner = set(guarded_inner)
        self.whole_inner = set(whole_inner)
        self.dropped = {}
        self.unwritten = set()
        self._written_clean = set()  # of these, those into which nothing bad has been written
        self._clean = set()
        self.inputs = []
        self.bad_constants = []
        self.nodes = {node: NodePlan(node) for node in self.order}
        self._plan_inputs(updated, is_inner)
        for node in self.order:
            self._plan_outputs(node)
        self._plan_overwrites(set(updated))
        self.kept = {} if is_inner else self._kept_values()

    # -- values

    def is_clean(self, variable):
        """Whether no bad element can be in `variable` when it is read."""
        return variable in self._clean or not is_numeric(variable.type)

    def holds_clean(self, variable):
        """Whether no bad element has been written into `variable`, as far as it is written."""
        return self.is_clean(variable) or variable in self._written_clean

    def _plan_inputs(self, updated, is_inner):
        policy = self.policy
        for variable in self.fgraph.inputs:
            if is_inner:
                self._clean.add(variable)
            elif self._is_checkable(variable):
                self.inputs.append(variable)
                self._clean.add(variable)
            elif _is_discrete(variable):
                self._clean.add(variable)
        for node in self.order:
            for variable in node.inputs:
                if not isinstance(variable, Constant) or variable in self._clean:
                    continue
                if not policy.is_bad(variable.data):
                    self._clean.add(variable)
                elif (
                    self._is_checkable(variable)
                    and not only_selects(node)
                    and variable not in self.bad_constants
                ):
                    self.bad_constants.append(variable)

    def _is_checkable(self, variable):
        policy = self.policy
        return policy.inputs and self.may_be_bad(variable) and not policy.exempts(variable)

    def _plan_outputs(self, node):
        for index, variable in enumerate(node.outputs):
            rule = next((r for r in RULES if r.applies(self, node, index)), None)
            if rule is None:
                self.nodes[node].checks.append(index)
                self._clean.add(variable)
                continue
            self.dropped[variable] = rule.name
            if rule.clean:
                self._clean.add(variable)
            if rule.name == "uninitialised":
                self.unwritten.add(variable)
                if all(map(self.holds_clean, node.inputs)):
                    self._written_clean.add(variable)

    # -- overwriting shared variables

    def _plan_overwrites(self, updated):
        for node in self.order:
            self.nodes[node].destroys += [root for root in overwritten(node) if root in updated]

    def _kept_values(self):
        """Return the shared inputs whose value stays, or becomes an output that is checked."""
        updates = getattr(self.fgraph, "update_mapping", None) or {}
        becomes = {self.fgraph.inputs[i]: output for output, i in updates.items()}
        # (``Function.copy(delete_updates=True)`` leaves the nodes that overwrite.)
        destroyed = {root for node_plan in self.nodes.values() for root in node_plan.destroys}
        found = {}
        for variable in self.inputs if self.policy.trusted else ():
            output = becomes.get(variable)
            if output is None:
                is_known = variable not in destroyed
            else:
                is_known = self.is_clean(self.fgraph.outputs[output])
            if isinstance(variable, SharedVariable) and is_known:
                found[variable] = output
        return found


def gives_clean(node, plans):
    """Whether the inner graphs of a node, which have these plans, check all that it gives."""
    if isinstance(node.op, Scan) and node.op.info.as_while:
        return False  # the ends of its buffers stay uninitialised when it stops early
    return all(plan.is_clean(v) for plan in plans for v in plan.fgraph.outputs)


def overwritten(node):
    """Return the variables in whose memory a node writes, each as often as it does."""
    return [_root(node.inputs[i]) for sources in node.op.destroy_map.values() for i in sources]


def _root(variable):
    """Follow views and overwritten values down to the memory they live in."""
    while variable.owner is not None:
        node = variable.owner
        index = node.outputs.index(variable)
        sources = node.op.view_map.get(index) or node.op.destroy_map.get(index)
        if not sources:
            return variable
        variable = node.inputs[sources[0]]
    return variable


def first_readers(variables, order):
    """Return the first node that reads each variable which may be a large array.

    Parameters
    ----------
    variables : iterable of Variable
    order : list of Apply

    Returns
    -------
    dict of Variable to Apply
    """
    waiting, found = set(filter(may_be_large, variables)), {}
    for node in order:
        if isinstance(node.op, Shape | Shape_i):
            continue  # reads no element
        readers = waiting.intersection(node.inputs)
        waiting -= readers
        found.update(dict.fromkeys(readers, node))
    return found


def may_be_large(variable):
    """Whether a variable may be a large array of real numbers."""
    kind = variable.type
    return _has_intervals(variable) and kind.ndim > 0 and not any(kind.broadcastable)


def runs_in_blocks(node):
    """Whether rows can be computed on their own: all operands have one shape, or one element."""
    return (
        isinstance(node.op, Elemwise)
        and not node.op.destroy_map
        and all(all(v.type.broadcastable) or not any(v.type.broadcastable) for v in node.inputs)
    )


def _is_discrete(variable):
    return getattr(variable.type, "dtype", "") in ps.discrete_dtypes


def _has_intervals(variable):
    return isinstance(variable.type, TensorType) and variable.type.dtype in ("float32", "float64")
