"""The second run: a suspicious call is computed again, with the verdict behind every node.

The second run has no side effects: nodes overwrite copies, and the outputs of nodes with side
effects are taken from the first run.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

import numpy as np
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

import theanoguard.explain as explaining
from theanoguard._evaluate.replay import Kernels, NotRun, Replay, branch_taken, has_effects
from theanoguard._event import Frame
from theanoguard._provenance import overflowed, thawed_variables
from theanoguard._pytensor import IfElse, inner_graph, is_lazy
from theanoguard._steps import ForeignError, foreign
from theanoguard._values import arrays_in
from theanoguard.guard.discarded import discarded, keeps_some, shown_where_chosen
from theanoguard.guard.partly import Touch
from theanoguard.guard.policy import Policy
from theanoguard.guard.reporting import Observation
from theanoguard.guard.verdict import made_bad, repeated
from theanoguard.operations import reached

logger = logging.getLogger("theanoguard")


@dataclass
class Findings:
    """The result of a second run."""

    #: The values that were made bad or entered bad, in the order of the run.
    observations: list[Observation] = field(default_factory=list)
    #: Variables of any graph that held a bad value, excused or not.
    noisy: set[Variable] = field(default_factory=set)
    loud: set[Apply] = field(default_factory=set)  # nodes that raised an exception flag
    empty: set[Apply] = field(default_factory=set)  # nodes that gave an empty array
    is_bad_discarded: bool = False  # whether something bad has been made and discarded
    #: Variables of any graph whose bad elements were discarded, and show where they are not.
    discarded: set[Variable] = field(default_factory=set)
    error: Exception | None = None  # the error that has ended the run early
    #: The innermost graph in which it was raised, and the node that raised it.
    failed: tuple = (None, None)
    computed: Mapping[Variable, Any] = field(default_factory=dict)


def frames_of(replay: Replay) -> tuple[Frame, ...]:
    """Return the inner graphs around a replay, outermost first."""
    frames: list[Frame] = []
    while replay.place is not None:
        fgraph = replay.fgraph
        replay, node, step = replay.place
        frames.insert(0, Frame(node, fgraph, step))
    return tuple(frames)


class WatchedKernels(Kernels):
    """Kernels that say which exception flags the last node has raised.

    `module`: the compiled kernel, or :mod:`~theanoguard.guard.c.numpy_kernel`.
    """

    def __init__(self, module: ModuleType, impl: Literal["c", "py"] | None = None) -> None:
        super().__init__(impl)
        self.module = module

    def run(self, node: Apply, inputs: list) -> list:
        if has_effects(node.op):  # the first run has not reached it: its outputs would be live
            raise NotRun
        kernel = self.kernel_of(node)
        self.module.clear_flags()
        outputs = kernel(inputs)
        self.raised = self.module.read_flags()
        return outputs


class SecondRun:
    """Computes a call again and looks at every value.

    - `fgraph`: the graph of the function.
    - `order`: its nodes in the order in which they ran.
    - `inputs`: the values that the graph's inputs had when the call began.
    - `role`: ``role(variable)`` returns the role of an input of the graph.
    - `kernels`: kernels with an attribute ``raised``: whether the last node has raised an exception
      flag.
    - `constants`: constants that are errors by themselves.
    - `live`: outputs of nodes with side effects, as :class:`Replay` takes them.
    - `graphs`: inner graphs as they were linked.
    - `first_only`: whether the run ends with the first bad value, before a node that reads it.
    - `partly`: inputs of which only the elements count that are read
      (:func:`~theanoguard.guard.partly.read_in_part`).
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        order: Sequence[Apply],
        inputs: Mapping[Variable, Any],
        policy: Policy,
        role: Callable[[Variable], str],
        kernels: Kernels,
        constants: Collection[Variable] = (),
        live: Mapping | None = None,
        graphs: Mapping[Apply, FunctionGraph] | tuple = (),
        first_only: bool = False,
        partly: Mapping[Variable, list[Touch]] | None = None,
    ) -> None:
        self.fgraph = fgraph
        self.order = order
        self.policy = policy
        self.role = role
        self.constants = constants
        self.kernels = kernels
        self.first_only = first_only
        self.partly = partly or {}
        self._reads = defaultdict(list)
        for touches in self.partly.values():
            for touch in touches:
                if touch.reads:
                    self._reads[touch.node].append(touch)
        self.replay = Replay(fgraph, inputs, self.kernels, live=live, graphs=dict(graphs))
        self.inputs = inputs
        self.found = Findings()
        self._seen: set[tuple] = set()
        self._names: dict[
            FunctionGraph, dict[Variable, Variable]
        ] = {}  # by graph, the variables with the tags that they lost
        self._tainted: dict[
            tuple[Replay, Variable], list
        ] = {}  # by replay and variable, which elements come from a reported one

    def what_enters(self) -> list[Observation]:
        """Return the observations of what enters the call, which need no run."""
        for variable, value in self.inputs.items():
            if variable not in self.partly and self.policy.is_bad(value):
                self.found.noisy.add(variable)
                if self._is_watched(self.replay, variable):
                    self._observe(self.replay, variable, value, None, self.role(variable))
        for constant in self.constants:
            self._observe(self.replay, constant, constant.data, None, "constant")
        return self.found.observations

    def find(self) -> Findings:
        """Return the :class:`Findings`."""
        try:
            self.what_enters()
            self._settle_leaves()
            if any(is_lazy(node.op) for node in self.order):
                self._run(self.fgraph.outputs)
            else:
                for node in self.order:
                    self._run(node.outputs)
            if not self.found.observations:
                self._look_at_results()
        except NotRun:
            pass
        except Exception as error:  # the call itself raised it, or an operation of the user's
            self.found.error, self.found.failed = error, self.replay.interrupted()
        if self.policy.by_result and not self._spoils_the_result():
            self.found.observations.clear()
        self.found.computed = self.replay.known_values()
        return self.found

    def _run(self, variables: Iterable[Variable]) -> None:
        """Compute variables, and judge each node that runs, until the run is over."""
        if not self._is_over():
            for replay, node, outputs in self.replay.run(variables):
                self._judge(replay, node, outputs)
                if self._is_over():
                    break

    def _is_over(self) -> bool:
        return self.first_only and bool(self.found.observations)

    # -- which variables are watched

    def _as_built(self, replay: Replay, variable: Variable) -> Variable:
        names = self._names.get(replay.fgraph)
        if names is None:
            names = self._names[replay.fgraph] = thawed_variables(replay.fgraph)
        return names.get(variable, variable)

    def _is_watched(self, replay: Replay, variable: Variable) -> bool:
        """Whether a bad value in a variable has been reported where it came from."""
        if isinstance(variable, Constant):  # a literal Inf excuses the operations that carry it on
            return variable in self.constants or not (
                self.policy.anywhere
                or any(
                    self.policy.kinds(a, everything=True)[0].any() for a in arrays_in(variable.data)
                )
            )
        if self.policy.exempts(self._as_built(replay, variable)):
            return False
        if variable.owner is not None:
            return True
        if replay.place is None:
            return bool(self.policy.check_inputs)
        outside, node, step = replay.place
        ran = outside.inner(node)
        position = list(replay.fgraph.inputs).index(variable)
        source = ran.outer_input(position)
        if source is None and step == 0:
            source = filled_with(ran.initial(position))
        return source is None or self._is_watched(outside, source)

    # -- judging nodes

    def _judge(self, replay: Replay, node: Apply, outputs: list) -> None:
        """Judge a node that has been run."""
        if replay.place is None:
            for touch in self._reads.get(node, ()):
                self._look_at_part(replay, touch)
        inner = replay.steps_into(node)
        if not inner and not isinstance(node.op, IfElse) and self.kernels.raised:
            self.found.loud.add(node)
        self.kernels.raised = 0
        if any(getattr(value, "size", 1) == 0 for value in outputs):
            self.found.empty.add(node)
        if not any(map(self.policy.is_bad, outputs)):
            return
        for variable, value in zip(node.outputs, outputs, strict=True):
            if self.policy.is_bad(value):
                self.found.noisy.add(variable)
        if inner or isinstance(node.op, IfElse):
            if inner:
                self._judge_passed_on(replay, node, outputs)
            else:
                self._judge_choice(replay, node, outputs)
            self._carry_on(replay, node, outputs)
            return
        inputs = [replay[v] for v in node.inputs]
        silent = {
            v
            for v in node.inputs
            if not isinstance(v, Constant) and not self._is_watched(replay, v)
        }
        if self.kernels.runs_whole(node):
            made = self._made_inside(replay, node, outputs, silent)
        else:
            made = made_bad(node, inputs, outputs, self.policy, silent, self.constants)
        new = [
            self._counting(replay, variable, outputs, masks)
            if masks is not None and self._is_watched(replay, variable)
            else None
            for variable, masks in zip(node.outputs, made, strict=True)
        ]
        again = repeated(node, inputs, outputs, new, self.policy, silent)
        for index, (variable, value, masks) in enumerate(
            zip(node.outputs, outputs, new, strict=True)
        ):
            if masks is not None and index not in again:
                self._observe(replay, variable, value, masks, "node", index)
        if keeps_some(node.op) and not any(made) and node.inputs[0] in self.found.discarded:
            # What it has kept of a discarded value is discarded further on.
            self.found.discarded |= shown_where_chosen(replay.fgraph, node.outputs[0])
        if self.policy.by_result:
            self._taint(replay, node, inputs, outputs, made)

    def _counting(
        self, replay: Replay, variable: Variable, outputs: list, masks: list[np.ndarray]
    ) -> list[np.ndarray] | None:
        """Return the masks of bad elements without those that are discarded; None: all are."""
        value = outputs[variable.owner.outputs.index(variable)]
        if not isinstance(value, np.ndarray | np.generic) or len(masks) != 1:
            return masks
        mask = masks[0] & ~discarded(replay, variable, outputs, masks[0])
        if mask.any():
            return [mask]
        self.found.is_bad_discarded = True
        self.found.discarded |= shown_where_chosen(replay.fgraph, variable)
        return None

    def _judge_choice(self, replay: Replay, node: Apply, outputs: list) -> None:
        """Judge an ``IfElse``: it makes bad what it chooses if nobody has looked at it.

        That is a constant, as for ``switch``, or an input that is not checked.
        """
        chosen = branch_taken(node, replay)
        for output, variable in zip(node.outputs, chosen, strict=True):
            is_constant = isinstance(variable, Constant)
            silent = () if is_constant or self._is_watched(replay, variable) else {variable}
            if is_constant or silent:
                self._judge_copy(replay, variable, output, outputs, silent)

    def _judge_passed_on(self, replay: Replay, node: Apply, outputs: list) -> None:
        """Judge what an inner graph returns as it is: bad if nobody has looked at it."""
        ran = replay.inner(node)
        inputs = list(ran.fgraph.inputs)
        for number, variable in enumerate(ran.fgraph.outputs):
            index = ran.output_of(number)
            if variable in inputs and index is not None:
                position = inputs.index(variable)
                source = ran.outer_input(position)
                source = filled_with(ran.initial(position)) if source is None else source
                if not self._is_watched(replay, source):
                    output = node.outputs[index]
                    self._judge_copy(replay, output, output, outputs, {output})

    def _judge_copy(
        self,
        replay: Replay,
        source: Variable,
        output: Variable,
        outputs: list,
        silent: Collection[Variable],
    ) -> None:
        """Judge an output of a node as a copy of `source`."""
        if not self._is_watched(replay, output):
            return
        index = output.owner.outputs.index(output)
        value = outputs[index]
        [made] = made_bad(deep_copy_op.make_node(source), [value], [value], self.policy, silent)
        if made is not None:
            made = self._counting(replay, output, outputs, made)
        if made is not None:
            self._observe(replay, output, value, made, "node", index)

    def _look_at_results(self) -> None:
        """Observe infinite constants, computed from finite ones, that a result comes from."""
        computed = overflowed(self.fgraph) if self.policy.inf else ()
        if not computed:
            return

        def is_bad(array: np.ndarray) -> np.ndarray:
            return np.isinf(array) & self.policy.mask(array)

        for variable in explaining.leaves_of_results(self.replay, is_bad):
            if variable not in computed:
                continue
            if isinstance(variable, Constant):
                self._observe(self.replay, variable, variable.data, None, "constant")
            else:
                index = variable.owner.outputs.index(variable)
                value = self.replay.value(variable)
                self._observe(self.replay, variable, value, [is_bad(value)], "node", index)

    def _look_at_part(self, replay: Replay, touch: Touch) -> None:
        """Judge what a node reads of an input that counts in part."""
        variable, value = touch.variable, replay[touch.variable]
        if not self.policy.is_bad(value):
            return
        mask = self.policy.mask(value) & touch.mask(replay.__getitem__)
        if mask.any():
            self.found.noisy.add(variable)
            if self._is_watched(replay, variable):
                self._observe(replay, variable, value, [mask], self.role(variable))

    def _observe(
        self,
        replay: Replay,
        variable: Variable,
        value: Any,
        masks: Sequence[np.ndarray] | None,
        role: str,
        output: int = 0,
    ) -> None:
        place = {"role": role, "output": output, "frames": frames_of(replay)}
        found = Observation.of(variable, value, self.policy, masks, **place)
        if found.key not in self._seen:  # one of each place in a call
            self._seen.add(found.key)
            self.found.observations.append(found)

    def _made_inside(
        self, replay: Replay, node: Apply, outputs: list, silent: Set[Variable]
    ) -> list:
        """Judge an inner graph that ran as one piece, by the operations in it.

        A value that one of them made bad counts where it reaches an output.  If one of them cannot
        run by itself, the whole piece is judged like any other node.
        """
        try:
            return self._made_by_steps(replay, node, outputs, silent)
        except Exception as error:
            told = "theanoguard: %s is judged as one piece"
            if isinstance(error, ForeignError):
                logger.debug(told, node, exc_info=True)
            else:
                logger.exception(f"{told}; please report this", node)
            inputs = [replay[v] for v in node.inputs]
            return made_bad(node, inputs, outputs, self.policy, silent, self.constants)

    def _made_by_steps(
        self, replay: Replay, node: Apply, outputs: list, silent: Set[Variable]
    ) -> list:
        inner = replay.child(inner_graph(node.op), replay.values(node.inputs), node)
        inner.take_outputs(outputs)
        unseen = {
            v
            for v, source in zip(inner.fgraph.inputs, node.inputs, strict=True)
            if source in silent
            or (isinstance(source, Constant) and not self._is_watched(replay, source))
        }
        made: dict[Variable, np.ndarray] = {}
        for step in inner.fgraph.toposort():
            with foreign():
                operands, values = inner.values(step.inputs), inner.values(step.outputs)
            if not any(map(self.policy.is_bad, values)):
                continue
            new = made_bad(step, operands, values, self.policy, unseen)
            marks = [made.get(v) for v in step.inputs]
            for index, (variable, value) in enumerate(zip(step.outputs, values, strict=True)):
                [mask] = new[index] or [np.zeros(np.shape(value), bool)]
                if any(m is not None for m in marks):
                    bad = np.asarray(self.policy.mask(value))
                    mask = mask | (bad & reached(step, operands, marks, index, bad.shape))
                if mask.any():
                    made[variable] = mask
        found: list = []
        for variable, value in zip(inner.fgraph.outputs, outputs, strict=True):
            mask = np.asarray(self.policy.mask(value))
            if not mask.any():
                found.append(None)
            elif self.policy.is_bad(inner.value(variable)):
                found.append([made[variable]] if variable in made else None)
            else:  # the whole piece rounds otherwise than its operations do
                found.append([mask])
        return found

    # -- whether it reaches the result

    def _settle_leaves(self) -> None:
        if self.policy.by_result:
            leaves = {v: value for v, value in self.inputs.items() if v in self.found.noisy}
            leaves.update((v, v.data) for v in self.constants)
            for variable, value in leaves.items():
                self._tainted[self.replay, variable] = [
                    self.policy.mask(array) for array in arrays_in(value)
                ]

    def _marks(self, replay: Replay, variable: Variable, value: Any) -> np.ndarray | None:
        masks = self._tainted.get((replay, variable))
        return masks[0] if masks and isinstance(value, np.ndarray) else None

    def _taint(self, replay: Replay, node: Apply, inputs: list, outputs: list, made: list) -> None:
        tainted = [self._tainted.get((replay, v)) is not None for v in node.inputs]
        marks = [self._marks(replay, v, x) for v, x in zip(node.inputs, inputs, strict=True)]
        for index, (variable, value) in enumerate(zip(node.outputs, outputs, strict=True)):
            masks = [self.policy.mask(array) for array in arrays_in(value)]
            if not masks:  # a truth value, a shape, a generator: nothing in it can be bad
                continue
            if not any(tainted):
                masks = made[index]
            elif all((m is not None) == t for m, t in zip(marks, tainted, strict=True)) and (
                isinstance(value, np.ndarray)
            ):
                carried = masks[0] & reached(node, inputs, marks, index, masks[0].shape)
                masks = [carried | made[index][0] if made[index] else carried]
            if masks and any(mask.any() for mask in masks):
                self._tainted[replay, variable] = masks

    def _carry_on(self, replay: Replay, node: Apply, outputs: list) -> None:
        """Mark the outputs of a node with an inner graph: their bad elements have been reported."""
        if self.policy.by_result and self._seen:
            for variable, value in zip(node.outputs, outputs, strict=True):
                self._tainted[replay, variable] = [
                    self.policy.mask(array) for array in arrays_in(value)
                ]

    def _spoils_the_result(self) -> bool:
        if self.found.error is not None:
            return True
        return any(
            any(mask.any() for mask in self._tainted.get((self.replay, v), ()))
            for v in self.fgraph.outputs
        )


def filled_with(variable: Variable) -> Variable:
    """Return the value that was written into an empty buffer; any other variable unchanged.

    PyTensor leaves the buffers that it makes for loops out of the checks.
    """
    node = variable.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return variable
    buffer, written = node.inputs[:2]
    if buffer.owner is not None and isinstance(buffer.owner.op, AllocEmpty):
        return written
    return variable
