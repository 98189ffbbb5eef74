"""Writes the program of every call: the user's graph, and nodes that signal a suspicion."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import discrete_dtypes
from pytensor.tensor.basic import as_tensor
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.replay import has_effects
from theanoguard._pytensor import FusedElemwise, Scan, with_inner_graphs, with_tests
from theanoguard.guard import bounds
from theanoguard.guard.blocks import first_readers, may_be_large, reduces, runs_in_blocks
from theanoguard.guard.carry import expected_infinities
from theanoguard.guard.graph.checks import CheckedGraph
from theanoguard.guard.numba.ops import (
    SIGNALS,
    Bracketed,
    InBlocks,
    InDomain,
    IsBad,
    Recorded,
    Recording,
    SaveRows,
    Stop,
    Until,
    Watch,
    WatchEmpty,
    WatchRows,
    WatchTrue,
    Within,
)
from theanoguard.guard.numba.plan import NumbaPlan, Sign
from theanoguard.guard.partly import Touch
from theanoguard.guard.plan import overwritten
from theanoguard.guard.policy import Policy
from theanoguard.operations import Kind, facts_of, is_steady, keeps_flags
from theanoguard.operations.domains import domains_of, parameters_of


@dataclass(frozen=True)
class Reliance:
    """The assumptions of the program."""

    flags: bool  # whether exception flags count
    products: bool  # whether matrix products carry NaN and Inf past zeros
    recording: Recording  # of the nodes that run in Python
    runs_in_python: Callable  # whether an operation does
    #: Nodes that raise flags in healthy calls, such as the division in ``switch(x > 0, 1 / x, 0)``.
    quiet: frozenset = frozenset()
    noisy: frozenset = frozenset()  # variables that hold bad values in healthy calls, on purpose
    #: Nodes that returned an empty array in a healthy call: it shows no bad operand.
    lossy: frozenset = frozenset()
    #: Variables whose bad elements were discarded, and show where they are not.
    discarded: frozenset = frozenset()


def program_of(
    plan: NumbaPlan, policy: Policy, reliance: Reliance
) -> tuple[CheckedGraph, int, list[Variable], list[Variable]]:
    """Return the graph of a function with its signs.

    Returns
    -------
    CheckedGraph
        Takes the signals as its last input.
    int
        How many values it reads.
    list of Variable
        The shared variables whose second buffers it takes, as its inputs before the signals.
    list of Variable
        The shared variables whose rows it saves.  It takes the memories between these.
    """
    writer = Writer(plan, policy, reliance)
    return writer.graph, writer.n_read, list(writer.spares), list(writer.memories)


def is_number(variable: Variable) -> bool:
    """Whether a variable holds floating-point numbers."""
    return getattr(variable.type, "dtype", "int64") not in discrete_dtypes


class Writer:
    """Writes a graph together with the nodes that signal a suspicion.

    - `plan`, `policy`, `reliance`: as for :func:`program_of`.
    - `around`: the node whose inner graph this is.
    - `infinite`: whether an Inf may enter the inner graph on purpose.
    - `signals`: whether a node of the graph writes signals, so that the graph needs them as an
      input.
    - `records`: whether a node runs in Python.
    - `n_read`: how many values are read, here and in inner graphs.
    - `spares`: the second buffers of shared variables that the graph updates.
    - `memories`: where it saves the rows of shared variables that it overwrites.
    """

    def __init__(
        self,
        plan: NumbaPlan,
        policy: Policy,
        reliance: Reliance,
        around: Apply | None = None,
        infinite: bool = False,
    ) -> None:
        self.plan = plan
        self._policy = policy
        self._reliance = reliance
        self._around = around
        self._raises = policy.action == "raise"
        fgraph = self.plan.fgraph
        self._signals = SIGNALS("signals")
        self._order: list[Apply] = []
        self._within: set[tuple] = set()  # indices that are known to be inside, and of which length
        self._new = {variable: variable for variable in fgraph.inputs}
        # Integers that may have been computed from a NaN: as an index they could point anywhere.
        self._computed = {v for v in fgraph.inputs if around and not is_number(v)}
        self._harmless = {node: self._is_harmless(node) for node in self.plan.order}
        self._infinite = expected_infinities(self.plan.order, fgraph.inputs if infinite else ())
        self._bracketed = {
            node
            for node in self.plan.order
            if self.uses_flags and node not in plan.inner and self._is_bracketed(node)
        }
        points = self.plan.decide(
            reliance,
            self._bracketed,
            all(self._harmless.values()),
            fgraph.inputs if infinite else (),
        )
        self.spares: dict[Variable, Variable] = {}
        in_part = {} if around is not None else plan.written_in_part()
        # (The memory for rows that the graph computes is too short in the first call, which starts
        # again.)
        once = any(has_effects(node.op) for own in plan.plans() for node in own.order)
        self._saved = {
            t.node: t
            for t in in_part.values()
            if t.rows is not None and (t.rows in fgraph.inputs or not once)
        }
        self.memories = {t.variable: SIGNALS() for t in self._saved.values()}
        self._overwrote = False  # whether a node before has overwritten something for good
        becomes = {} if around is not None else self.plan.updates()
        self._updates = {fgraph.outputs[i]: variable for variable, i in becomes.items()}
        self._made = self.plan.judged
        self._watches = {v: self._watch(sign) for v, sign in points.items()}
        self.n_read = len(self._watches)
        self._waiting = self._block_readers()
        self._touches = defaultdict(list)
        self._read_before: set[tuple] = set()  # elements, and by which index
        for touch in (t for touches in self.plan.partly.values() for t in touches):
            if self._reads_part(touch):
                self._touches[touch.node].append(touch)
                self.n_read += 1
        signs_of = (self._watches, self._bracketed, self._made, self.plan.sizes, self.plan.partly)
        self.signals = any(signs_of)
        self.records = any(map(reliance.runs_in_python, (n.op for n in self.plan.order)))
        self.graph = self._written()

    @property
    def uses_flags(self) -> bool:
        """Whether flags are signs of what this policy looks for."""
        return self._reliance.flags and not self._policy.by_result

    # -- what signals

    def _is_bracketed(self, node: Apply) -> bool:
        return (
            node in self._reliance.quiet
            or not self.plan.certain.issuperset(node.outputs)
            or not keeps_flags(node.op, "numba")
            or any(v in self.plan.silent for v in node.outputs)
        )

    def _watch(self, sign: Sign) -> Watch:
        policy, kinds = self._policy, sign.kinds
        nan, inf = policy.nan and Kind.NAN in kinds, policy.inf and Kind.INF in kinds
        if sign.big:
            return Watch(nan, inf, True, policy.big_threshold)
        # Where infinite elements are not looked for by themselves, they count as big.
        return Watch(nan, inf or (policy.big and Kind.INF in kinds), False, 0.0)

    def _is_harmless(self, node: Apply) -> bool:
        """Whether a node can be run on whatever has been computed."""
        reads_computed = any(v in self._computed for v in node.inputs)
        if not isinstance(node.op, Shape | Shape_i) and (
            reads_computed or any(is_number(v) for v in node.inputs if not isinstance(v, Constant))
        ):
            self._computed.update(v for v in node.outputs if not is_number(v))
        if reads_computed and not facts_of(node.op).counts:
            return False
        return node in self.plan.inner or is_steady(node.op)

    def _block_readers(self) -> dict[Variable, Apply]:
        """Return the node that reads each large input first, if it can read it in blocks."""
        if self._around is not None:
            return {}
        points = [v for v in self.plan.fgraph.inputs if v in self._watches]
        return {
            variable: node
            for variable, node in first_readers(points, self.plan.order).items()
            if (reduces(node) or runs_in_blocks(node)) and node not in self._bracketed
        }

    def _updates_in_blocks(self, node: Apply) -> bool:
        """Whether a node makes a new value of a large shared variable, on blocks of rows."""
        return (
            any(v in self._updates and may_be_large(v) for v in node.outputs)
            and runs_in_blocks(node)
            and not all(all(v.type.broadcastable) for v in node.inputs)
            and node not in self._bracketed
        )

    def _spare(self, node: Apply, i: int) -> Variable | None:
        """Return the second buffer that an output is written into, or None."""
        variable = node.outputs[i]
        root = self._updates.get(variable)
        if (
            not isinstance(root, SharedVariable)
            or i in node.op.inplace_pattern
            or not may_be_large(variable)
            or root.type.dtype != variable.type.dtype
        ):
            return None
        kind = TensorType(variable.type.dtype, (None,) * variable.type.ndim)
        return self.spares.setdefault(root, kind())

    def _reads_part(self, touch: Touch) -> bool:
        """Whether the elements that a node touches are read apart from what it gives."""
        policy = self._policy
        if not (touch.is_inside and policy.nan and not policy.big and all(self._harmless.values())):
            return touch.reads and (touch.writes or touch.is_inside)
        # A NaN or an Inf shows as well when the same elements have been incremented.
        return not any(
            other.writes and other.reads and other.index == touch.index
            for other in self.plan.partly[touch.variable]
        )

    # -- writing

    def _get(self, variable: Variable) -> Variable:
        return variable if isinstance(variable, Constant) else self._new[variable]

    def _append(self, node: Apply) -> list[Variable]:
        self._order.append(node)
        return node.outputs

    def _written(self) -> CheckedGraph:
        fgraph = self.plan.fgraph
        for variable in fgraph.inputs:
            if variable not in self._waiting:
                self._read(variable)
        for node in self.plan.order:
            self._write(node)
        loop = self._around.op if self._around is not None else None
        if self._raises and isinstance(loop, Scan) and loop.info.as_while:
            self.signals = True
            condition = fgraph.outputs[-1]
            [ends] = self._append(Until().make_node(self._get(condition), self._signals))
            self._new[condition] = ends
        outputs = [self._get(v) for v in fgraph.outputs]
        further = *self.spares.values(), *self.memories.values()
        inputs = [*fgraph.inputs, *further, self._signals]
        return CheckedGraph(inputs, outputs, self._order)

    def _ask(self, node: Apply) -> None:
        for steps in (self._made[v] for v in node.outputs if v in self._made):
            for step in steps:
                op, given = step.op, [self._get(v) for v in step.inputs]
                if node in self._bracketed:
                    op, given = Bracketed(op), [*given, self._signals]
                outputs = self._append(Apply(op, given, [v.clone() for v in step.outputs]))
                self._new.update(zip(step.outputs, outputs, strict=True))
            self._append(WatchTrue().make_node(outputs[0], self._signals))

    def _mind_empty(self, node: Apply) -> None:
        for variable in node.outputs:
            if variable in self.plan.sizes:
                self._append(WatchEmpty().make_node(self._new[variable], self._signals))

    def _mind_indices(self, node: Apply) -> None:
        """Check that what the node indexes is there, unless Numba or the graph makes sure."""
        may_be_thrown_away = not self.plan.certain.issuperset(node.outputs)
        if may_be_thrown_away or not self._policy.check_indices:
            return
        for lookup in bounds.lookups(node):
            array, index = node.inputs[lookup.array], lookup.index
            known = index, bounds.length_of(array, lookup.axis), lookup.is_count
            if (
                lookup.is_basic
                or lookup.mask_axis is not None  # `MaskFits` has checked it
                or known in self._within
                or bounds.is_inside(node, lookup)
            ):
                continue
            self._within.add(known)
            self.n_read += not lookup.is_count
            self.signals = True
            if isinstance(index, Constant):
                index = as_tensor(np.array(bounds.limits(index)))
            array = self._get(array)
            op = Within(lookup.axis, lookup.is_count, lookup.batch)
            self._append(op.make_node(array, self._get(index)))

    def _mind_parameters(self, node: Apply) -> None:
        """Check the parameters of a random variable, which Numba's generators do not refuse."""
        if not self.plan.certain.issuperset(node.outputs):
            return
        parameters = parameters_of(node, node.inputs)
        for domain in domains_of(node):
            parameter = parameters[domain.parameter]
            value = self._get(parameter)
            if domain.less is not None:
                difference = pt.sub(value, self._get(parameters[domain.less]))
                [value] = self._append(difference.owner)
            elif isinstance(parameter, Constant) and not domain.outside(parameter.data).any():
                continue
            self.n_read += 1
            op = InDomain(domain.low, domain.high, domain.is_open)
            self._append(op.make_node(value))

    def _read(self, variable: Variable) -> None:
        watch = self._watches.get(variable)
        if watch is not None:
            self._append(watch.make_node(self._new[variable], self._signals))

    def _read_part(self, touch: Touch, array: Variable) -> None:
        """Read the elements of an array that a node reads or overwrites."""
        watch = self._watch(Sign(self.plan.kinds, self._policy.big))
        if touch.rows is not None and touch.variable.type.dtype in ("float32", "float64"):
            self._append(WatchRows(watch).make_node(array, self._get(touch.rows), self._signals))
            return
        made = touch.choosing.make_node(array, *map(self._get, touch.index))
        op, given = Bracketed(made.op), [*made.inputs, self._signals]
        [elements] = self._append(Apply(op, given, [v.clone() for v in made.outputs]))
        self._append(watch.make_node(elements, self._signals))

    def _write(self, node: Apply) -> None:
        if isinstance(node.op, bounds.MaskFits):
            self.signals = True
            if not self.plan.certain.issuperset(node.outputs):  # of a branch that is not taken
                self._new[node.outputs[0]] = self._get(node.inputs[0])
                return
        is_loss = not (self._overwrote or self.plan.given_up.isdisjoint(overwritten(node)))
        self._overwrote |= is_loss
        harms = is_loss or (self._raises and not self._harmless[node])
        if harms and not self._policy.by_result:
            self.signals = True
            self._append(Stop().make_node(self._signals))
        self._mind_indices(node)
        self._mind_parameters(node)
        inputs = [self._get(v) for v in node.inputs]
        entering = [v for v in dict.fromkeys(node.inputs) if self._waiting.get(v) is node]
        self._ask(node)
        for touch in self._touches[node]:
            elements = touch.variable, touch.index
            if (touch.is_inside or self._policy.big) and elements not in self._read_before:
                self._read_before.add(elements)
                self._read_part(touch, self._get(touch.variable))
        if entering or self._updates_in_blocks(node):
            if isinstance(node.op, FusedElemwise):
                self._write_with_tests(node, inputs, entering)
            else:
                self._write_in_blocks(node, inputs, entering)
            self._mind_empty(node)
            return
        op = node.op
        if node in self.plan.inner:
            op = self._written_op(node)
        elif self._reliance.runs_in_python(op):
            op = Recorded(node, self._reliance.recording)
        takes_signals = node in self.plan.inner and op is not node.op
        if node in self._bracketed:
            self.signals = takes_signals = True
            op = Bracketed(op)
        if takes_signals:
            inputs.append(self._signals)
        if saved := self._saved.get(node):
            memory = self.memories[saved.variable]
            self._append(SaveRows().make_node(inputs[0], self._get(saved.index[0]), memory))
        outputs = self._append(Apply(op, inputs, [v.clone() for v in node.outputs]))
        self._new.update(zip(node.outputs, outputs, strict=True))
        for touch in self._touches[node]:
            if touch.writes:
                self._read_part(touch, outputs[0])
        for variable in node.outputs:
            self._read(variable)
        self._mind_empty(node)

    def _write_in_blocks(
        self, node: Apply, inputs: list[Variable], entering: list[Variable]
    ) -> None:
        read = [(i, v) for i, v in enumerate(node.outputs) if v in self._watches]
        in_blocks = [(i, v) for i, v in read if may_be_large(v)]
        spares = {i: self._spare(node, i) for i in range(len(node.outputs))}
        spares = {i: spare for i, spare in spares.items() if spare is not None}
        self.signals = True
        op = InBlocks(
            node.op,
            tuple((node.inputs.index(v), self._watches[v]) for v in entering),
            tuple((i, self._watches[v]) for i, v in in_blocks),
            tuple(spares),
        )
        outputs = self._append(op.make_node(*inputs, *spares.values(), self._signals))
        self._new.update(zip(node.outputs, outputs, strict=True))
        for pair in read:
            if pair not in in_blocks:
                self._read(pair[1])

    def _write_with_tests(
        self, node: Apply, inputs: list[Variable], entering: list[Variable]
    ) -> None:
        tests = [(node.inputs.index(v), IsBad(self._watches[v])) for v in entering]
        op = with_tests(node.op, tests)
        outputs = self._append(Apply(op, inputs, [kind() for kind in op.output_types]))
        self._new.update(zip(node.outputs, outputs, strict=False))
        for found in outputs[len(node.outputs) :]:
            self._append(WatchTrue().make_node(found, self._signals))
        for variable in node.outputs:
            self._read(variable)

    def _written_op(self, node: Apply) -> Op:
        """Return the op with what signals in its inner graphs; itself where nothing does."""
        infinite = any(v in self._infinite for v in node.inputs)
        writers = [
            Writer(plan, self._policy, self._reliance, node, infinite)
            for plan in self.plan.inner[node]
        ]
        self.n_read += sum(writer.n_read for writer in writers)
        if not any(writer.signals or writer.records for writer in writers):
            return node.op
        self.signals = True
        return with_inner_graphs(node.op, [writer.graph for writer in writers])
