"""Try remedies: change the graph as the user built it in one place, and evaluate it again.

A trial has no side effects.  Random states are copied.  Checks are run again.  An operation that
must not run a second time is not run; the value that it returned in the call is used.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Cast
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import holds
from theanoguard._evaluate.replay import ForeignKernels, NotRun, Replay, has_effects
from theanoguard._graph import constant_number, scan_of
from theanoguard._provenance import is_built_at, lookup, source_place, tracker_of
from theanoguard._provenance.designating import Designations, made_by_grad
from theanoguard._provenance.tracker import ProvenanceTracker
from theanoguard._pytensor import thawed_graph
from theanoguard._steps import ForeignError, foreign
from theanoguard._text import number_text
from theanoguard.explain.facts.derivatives import has_no_derivative
from theanoguard.explain.facts.handed import Facts
from theanoguard.explain.facts.records import Cause
from theanoguard.operations.names import op_name
from theanoguard.stable.patterns import rebuild

Builders: TypeAlias = dict[Variable, Callable]
"""What takes the place of variables, as :func:`theanoguard.stable.patterns.rebuild` takes it."""

logger = logging.getLogger("theanoguard")

MAX_NODES = 20_000
"""Largest number of nodes of a graph as built for which remedies are tried."""

MAX_DIFFERENTIATED = 250
"""Largest number of nodes of a cost for which its gradient is built again."""

MAX_WIDENED = 500
"""Largest number of nodes of a graph as built that is tried in float64."""

MAX_ELEMENTS = 1_000_000
"""Largest number of elements in the inputs of a call for which it is evaluated again."""

MAX_RUNS = 2_000
"""Number of steps of loops that are searched for an operation."""

MAX_REPEATED_STEPS = 500
"""Number of steps of all loops that are run again for each of several inputs."""

MAX_LEAVES = 4
"""Largest number of inputs of which each is made smaller."""

MAX_STEPS = 20_000
"""Largest number of steps in a loop.  The loop as built stores all of its steps."""


def fixed(variable: Variable) -> Callable:
    """Return what puts a variable in the place of another one."""
    return lambda new: variable


def has_body(op: Op) -> bool:
    """Return whether an operation has an inner graph that the user wrote.

    Some of PyTensor's own operations, such as a softmax, have an inner graph as well.
    """
    of_pytensor = type(op) is not OpFromGraph and type(op).__module__.startswith("pytensor.")
    return isinstance(op, Scan) or (isinstance(op, OpFromGraph) and not of_pytensor)


class PureKernels(ForeignKernels):
    """Kernels that refuse to run an operation with side effects."""

    def run(self, node: Apply, inputs: list[Any]) -> list:
        if has_effects(node.op):
            raise NotRun
        kind = node.outputs[0].type
        ndims = [getattr(v, "ndim", None) for v in (kind, *inputs[-1:])]
        is_like = len(node.outputs) == 1 and None not in ndims and ndims[0] == ndims[-1]
        # (for a singular matrix a compiled function gives NaN, and PyTensor's Python code an error,
        # or NaN of the shape of the matrix)
        try:
            found = super().run(node, inputs)
            if not is_like or np.ndim(found[0]) == kind.ndim:
                return found
        except ForeignError as error:
            if not is_like or not isinstance(error.__cause__, np.linalg.LinAlgError):
                raise
        return [np.full(np.shape(inputs[-1]), np.nan, kind.dtype)]


@dataclass(eq=False)
class Body:
    """The graph of a loop, or of another operation with an inner graph, as the user built it.

    Parameters
    ----------
    node : Apply
        The node in the outer graph.
    graph : FunctionGraph
    outer : Body or None
        The body that `node` belongs to, if any.
    """

    node: Any
    graph: Any
    outer: "Body | None" = None

    @property
    def outermost(self) -> Any:
        """The node of the function's own graph that contains this body."""
        return self.node if self.outer is None else self.outer.outermost

    def changed(self, builders: Builders) -> Builders:
        """Return replacements for the outputs of :attr:`outermost` after a change in the body.

        `builders`: the changed variables, as :func:`theanoguard.stable.patterns.rebuild` takes
        them.
        """
        outputs = rebuild(self.graph.outputs, builders)
        made: list[Variable] = []

        def outer_outputs(new: Callable[[Variable], Variable]) -> list:
            if not made:
                made.extend(_with_graph(self.node, self.graph, outputs, new))
            return made

        changed = {
            v: lambda new, i=i: outer_outputs(new)[i] for i, v in enumerate(self.node.outputs)
        }
        return changed if self.outer is None else self.outer.changed(changed)


def _with_graph(
    node: Apply,
    graph: FunctionGraph,
    outputs: Sequence[Variable],
    new: Callable[[Variable], Variable],
) -> list[Variable]:
    """Return the outputs of an op whose inner graph has got new outputs."""
    inputs = [new(v) for v in node.inputs]
    if isinstance(node.op, OpFromGraph):
        return clone_replace(outputs, dict(zip(graph.inputs, inputs, strict=True)))
    return scan_of(node.op, list(graph.inputs), outputs).make_node(*inputs).outputs


@dataclass(frozen=True)
class Spot:
    """An operation of the graph as built, in one execution of that graph.

    Parameters
    ----------
    node : Apply
        The first of `nodes`.
    nodes : tuple of Apply
        All nodes that compute the same value, since the user may have written an expression twice,
        and the nodes that the same line has built in other calls or iterations.
    body : Body or None
        The inner graph that it belongs to.
    scope : Scope
        The execution of its graph.
    clients : dict of Variable to list of Apply
        The nodes that read each variable of its graph.
    name_of : callable
        Returns the user's name of a variable of its graph, or None.  With a node as the second
        argument, returns how the code of that node writes the variable.
    all_nodes : tuple of Apply
        The nodes of its graph.
    everywhere : tuple of Apply
        The nodes of the function's graph and of all inner graphs.
    """

    node: Any
    nodes: tuple
    body: Body | None
    scope: culprit.Scope
    clients: dict
    name_of: Callable = field(repr=False)
    all_nodes: tuple = field(repr=False)
    everywhere: tuple = field(repr=False)

    @property
    def replay(self) -> Any:
        """The replay of its graph."""
        return self.scope.replay

    def name_in(self, variable: Variable, whole: Variable) -> Any:
        """Return how the line that built `whole` writes a variable; else the variable's name."""
        line = _line(whole.owner)
        elsewhere = None
        for reader in self.clients.get(variable, ()):
            own = _line(reader)
            text = None if own is None else self.name_of(variable, reader)
            if text is not None and line is not None and own and own[:2] == line[:2]:
                return text
            elsewhere = elsewhere or text
        name = self.name_of(variable)
        if name is None:
            return elsewhere if elsewhere is not None and elsewhere.isidentifier() else None
        return name if name.isidentifier() else elsewhere or name

    def at(self, node: Apply) -> "Spot":
        """Return the spot of another operation of the same graph, in the same execution."""
        return replace(self, node=node, nodes=_alike(node, self.all_nodes, self.everywhere))

    @property
    def values(self) -> list:
        """The values of the operands."""
        return [culprit.dense(self.replay.value(v)) for v in self.node.inputs]


@dataclass(frozen=True)
class Trial:
    """The result of a call with a change.

    Parameters
    ----------
    values : dict of Variable to value
        The new values of the outputs that the change reaches; of the costs that it reaches, if
        there are no such outputs.
    returned : list of Variable
        Those that the function returns, and does not only write into shared variables.
    with_gradient : bool
        Whether a gradient is among the values, or goes into them.
    read : frozenset of Variable
        The variables of the graph as built that the changed graph still computes.
    rebuilt : dict of Variable to Variable
        What computes the new values.
    """

    values: dict
    returned: list
    with_gradient: bool = False
    read: frozenset = frozenset()
    rebuilt: dict = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """What the call gives, as a part of a sentence."""
        numbers = [self.values[v] for v in self.returned if np.size(self.values[v]) == 1]
        if len(self.returned) > 1 + self.with_gradient or not numbers:
            return "this call gives finite values"
        with_gradient = self.with_gradient and len(self.returned) > 1
        number = np.asarray(numbers[0]).item()  # (without the rounding in the last digits)
        text = number_text(float(f"{number:.12g}") if isinstance(number, float) else number)
        return f"this call gives {text}{' and a finite gradient' if with_gradient else ''}"


class AsBuilt:
    """The graph of a failing call as the user built it, with the values of the call."""

    def __init__(self, facts: Facts, tracker: ProvenanceTracker) -> None:
        self.tracker, trip = tracker, facts.trip
        self.outputs, self.copies = self.tracker.before()
        self._originals = {copy: node for node, copy in self.copies.items()}
        self._inputs = trip.inputs
        self._earlier = {**trip.inputs, **trip.earlier} if trip.earlier else {}
        self._kernels = PureKernels("py")
        self.bodies = list(_bodies(self.copies.values()))
        self._graphs = {body.node: body.graph for body in self.bodies}
        self._body_of = {node: body for body in self.bodies for node in body.graph.apply_nodes}
        self._mask = facts.mask
        self._live = self._known_values(trip.live)
        self._replay = self._run(self.outputs, self._live)
        self._scope = culprit.Scope(self._replay)
        updated = getattr(trip.fgraph, "update_mapping", None) or {}
        self._updated = [i in updated for i in range(len(self.outputs))]
        self._trials: list[tuple[list[Variable], Trial | None]] = []
        self._slopes: dict[tuple[Variable, Variable], Variable] = {}

    def _known_values(self, live: Mapping[Any, Any]) -> dict[Variable, Any]:
        """Return the values, from the call, of operations that must not be run again."""
        known: dict[Variable, Any] = {}
        for (node, steps), values in live.items():
            same = [old for old in self.tracker.replaced_by(node) if type(old.op) is type(node.op)]
            for old in same if not steps else ():
                known.update(zip(self.copies[old].outputs, values, strict=True))
        return known

    def _run(self, outputs: Sequence[Variable], known: Any = (), inputs: Any = None) -> Replay:
        inputs = self._inputs if inputs is None else inputs
        values = leaf_values(outputs, lambda v: inputs[v] if v in inputs else v.get_value())
        return Replay(None, {**values, **dict(known)}, self._kernels, graphs=self._graphs)

    def again(self, given: Mapping[Variable, Any], replay: Replay | None = None) -> Replay:
        """Return a replay with other values of some variables, as those of another call."""
        kernels = self._kernels if replay is None else replay.kernels
        return Replay(None, dict(given), kernels, graphs=self._graphs)

    def has_long_loops(self) -> bool:
        """Return whether a loop has too many steps to run again, or an unknown number."""
        loops = [node for node in self.copies.values() if isinstance(node.op, Scan)]
        try:
            return any(self._replay.value(node.inputs[0]) > MAX_STEPS for node in loops)
        except NotRun:
            return True

    def is_bad(self, value: Any) -> bool:
        """Return whether the guard would report a value, or it is not finite."""
        return holds(value, self._mask) or holds(value, culprit.not_finite)

    # -- which operation

    def spots_of(self, cause: Cause) -> Iterator[Spot]:
        """Yield the user's operations that may be the cause; for a gradient, the forward ones.

        Yields
        ------
        Spot
            For a NaN, first the operation that made it, then the one that made its infinite
            operand.
        """
        if cause.backward:
            yield from self._differentiated(cause)
            return
        seen = set()
        for is_bad in (_is_nan, self.is_bad) if cause.kind == "nan" else (self.is_bad,):
            spot = self._made_by(cause, is_bad)
            if spot is not None and spot.node not in seen:
                seen.add(spot.node)
                yield spot

    def failed_forward(self) -> Spot | None:
        """Return the user's operation that made a cost bad, or None if all costs are sound.

        A rewrite may move an operation of the forward pass into one of the gradient.
        """
        costs = self.costs()
        if not any(holds(self.value(v), self._mask) for v in costs):
            return None
        for copy in toposort(costs):
            if any(holds(self._replay.value(v), self._mask) for v in copy.outputs):
                came_in = any(holds(self._replay.value(v), self._mask) for v in copy.inputs)
                is_users = not has_body(copy.op) and not made_by_grad(self._originals[copy])
                return self._spot(copy, None, self._scope) if is_users and not came_in else None
        return None

    def _made_by(self, cause: Cause, is_bad: Callable[[Any], Any]) -> Spot | None:
        """Return the operation with the line or name of a cause that made a bad value."""
        bodies = sorted([None, *self.bodies], key=lambda body: (body is None) == bool(cause.path))
        for body in bodies:
            found = self._fitting(cause, body)
            first = agreeing = None
            for scope in self._runs(body) if found else ():
                replay = scope.replay
                for copy in found:
                    if first is not None and not _agrees(cause, copy, replay):
                        continue
                    if is_bad(replay.value(copy.outputs[0])):
                        made = _maker(copy, replay, is_bad)
                        is_users = body is not None or not made_by_grad(self._originals[made])
                        if has_body(made.op) or not is_users:
                            continue
                        if _agrees(cause, made, replay):
                            if _has_shape(cause, made, replay):
                                return self._spot(made, body, scope)
                            agreeing = agreeing or (made, body, scope)
                        first = first or (made, body, scope)
                if first is not None:
                    return self._spot(*(agreeing or first))
        return None

    def _fitting(self, cause: Cause, body: Body | None) -> list[Apply]:
        """Return the operations of a graph that have the same name or line as a cause."""

        def fits(node: Apply) -> tuple[int, bool]:
            same = op_name(node.op) == cause.op or str(node.op) == cause.provenance.op
            here = is_built_at(node.outputs[0], cause.source)
            return same + here, same  # both, then the operation alone, then the line alone

        if body is None:
            ranked = {self.copies[node]: fits(node) for node in self.copies}
        else:
            ranked = {node: fits(node) for node in body.graph.apply_nodes}
        found = [n for n in ranked if any(ranked[n]) and not has_body(n.op)]
        return sorted(found, key=ranked.__getitem__, reverse=True)

    def finite_as_written(self, cause: Cause) -> tuple[Spot, int] | None:
        """Return the operation of a cause and its operand if the graph as built is finite."""
        if cause.backward or cause.path or any(self.is_bad(self.value(v)) for v in self.outputs):
            return None
        fitting = [n for n in self._fitting(cause, None) if n.inputs]
        found = [n for n in fitting if op_name(n.op) == cause.op] or fitting
        if not found:
            return None
        position = 1 if cause.op in ("true_div", "mod") else 0
        return self._spot(found[0], None, self._scope), position

    def value(self, variable: Variable) -> Any:
        """Return the value of a variable of the function's own graph."""
        return culprit.dense(self._replay.value(variable))

    def live_value(self, variable: Variable) -> Any:
        """Return the value of a variable, or None if an operation must not be run for it."""
        try:
            return self.value(variable)
        except NotRun:
            return None

    @staticmethod
    def least(value: Any) -> Any:
        """Return the element of a value that is nearest to 0."""
        flat = np.ravel(value)
        return flat[np.argmin(np.abs(flat))]

    def folded_away(self, variable: Variable) -> str | None:
        """Return the small constant of a sum that a rewrite rounded away, or None."""
        constants, todo = [], [(variable, 1)]
        while todo:
            v, sign = todo.pop()
            number = constant_number(v)
            if number is not None:
                constants.append((sign * number, np.dtype(variable.type.dtype)))
            elif v.owner is not None and op_name(v.owner.op) in (
                "add",
                "sub",
                "dimShuffle",
                "expandDims",
            ):
                signs = (1, -1) if op_name(v.owner.op) == "sub" else (1,) * len(v.owner.inputs)
                todo += [(i, sign * s) for i, s in zip(v.owner.inputs, signs, strict=False)]
        for small, dtype in constants:
            for large, _ in constants:
                if small and dtype.type(large) + dtype.type(small) == dtype.type(large):
                    return f"{'+' if small > 0 else '-'} {abs(small):g}"
        return None

    def _runs(self, body: Body | None) -> Iterator[culprit.Scope]:
        """Yield the scope of each execution of a graph."""
        if body is None:
            yield self._scope
            return
        left = MAX_RUNS
        for outside in self._runs(body.outer):
            if not isinstance(body.node.op, Scan):
                yield outside.inner(body.node)
                continue
            step, inner = 0, outside.replay.inner(body.node)
            while left and inner.runs(step):
                yield outside.inner(body.node, step)
                step, left = step + 1, left - 1

    def _differentiated(self, cause: Cause) -> list[Spot]:
        """Return the operations whose derivative may be the bad value of a gradient.

        Several are returned only if none of them fits the cause better than the others.
        """
        found: dict[Apply, tuple[bool, bool, bool]] = {}
        for copy in toposort(self.outputs):
            node = self._originals[copy]
            if not made_by_grad(node) or not any(map(self._has_bad, copy.outputs)):
                continue
            forward = self.tracker.differentiated_by(node)
            differentiated = None if forward is None else self.copies.get(forward.owner)
            known = differentiated is not None
            if not found and has_body(node.op):
                spot = self._singular_in(differentiated)
                return [] if spot is None else [spot]
            if not found and not known:
                return []
            came_in = [v for v in copy.inputs if v.owner is not None and self._has_bad(v)]
            follows = found and any(map(self._is_of_gradient, came_in))
            if known and not follows and not has_body(node.op):
                fit = max(self._fit(v, forward, cause) for v in copy.outputs)
                if all(fit):  # nothing fits better: the rest of the gradient is not computed
                    return [self._spot(differentiated, None, self._scope)]
                found[differentiated] = max(fit, found.get(differentiated, fit))
        best = max(found.values(), default=None)
        return [self._spot(n, None, self._scope) for n, fit in found.items() if fit == best]

    def _has_bad(self, variable: Variable) -> bool:
        return self.is_bad(self._replay.value(variable))

    def _is_of_gradient(self, variable: Variable) -> bool:
        return made_by_grad(self._originals[variable.owner])

    def _fit(self, variable: Variable, forward: Variable, cause: Cause) -> tuple[bool, bool, bool]:
        """Return how well a bad variable of the gradient of an operation fits a cause."""
        array = np.asarray(self.value(variable))
        backward = cause.provenance.backward
        known = None if backward is None else backward.forward_source
        is_placed = known is not None and is_built_at(forward, known)
        if [n for n in array.shape if n != 1] != [n for n in cause.shape if n != 1]:
            return False, False, is_placed
        element = array.reshape(cause.shape)[cause.index]
        # (a rewrite may have moved a sign)
        is_same = bool(np.isclose(abs(element), abs(cause.value), rtol=1e-3, equal_nan=True))
        return is_same, self.is_bad(element), is_placed

    def _singular_in(self, node: Apply | None) -> Spot | None:
        """Return an operation in a loop that has no finite derivative at a value of this call."""
        for body in self.bodies:
            if node is not None and body.outermost is not node:
                continue
            for scope in self._runs(body):
                for inner in body.graph.toposort():
                    if has_no_derivative(inner, scope.replay):
                        return self._spot(inner, body, scope)
        return None

    def outermost(self, spot: Spot) -> Any:
        """Return the spot of the loop in the function's own graph that a spot is in."""
        outer: Any = spot.body
        return self._spot(outer.outermost, None, self._scope)

    def name_in(self, scope: culprit.Scope) -> Any:
        """Return what names the variables of a scope, as :attr:`Spot.name_of` does."""
        return self._namer(next((b for b in self.bodies if b.node is scope.node), None))

    def _spot(self, node: Apply, body: Body | None, scope: culprit.Scope) -> Spot:
        nodes = list(self._originals) if body is None else list(body.graph.toposort())
        clients: dict[Variable, list[Apply]] = {}
        for other in nodes:
            for v in other.inputs:
                clients.setdefault(v, []).append(other)
        everywhere = (*self._originals, *self._body_of)
        alike, name = _alike(node, nodes, everywhere), self._namer(body)
        return Spot(node, alike, body, scope, clients, name, tuple(nodes), everywhere)

    def _namer(self, body: Body | None) -> Callable[..., str | None]:
        if body is not None:
            known = Designations({n: tuple(n.inputs) for n in body.graph.apply_nodes})
        else:
            known = Designations(self.tracker.original)

        def original(variable: Variable) -> Any:
            # (a form that a search has built is in no graph of the user's)
            if body is None and variable.owner in self._originals:
                return self._originals[variable.owner].outputs[variable.index]
            return variable

        def name(variable: Variable, reader: Apply | None = None) -> str | None:
            if reader is not None:
                return known.operand_text(original(reader.outputs[0]).owner, original(variable))
            variable = known.behind(original(variable))
            found = known.of(variable)
            # (PyMC rewrites a graph before it compiles it)
            earlier = lookup(None, variable)
            own_name = earlier.name if earlier.own_name else None
            return found.name or found.expression or own_name or earlier.expression

        return name

    def original(self, spot: Spot) -> Any:
        """Return the node of the user's graph that corresponds to the operation of a spot."""
        return self._originals.get(spot.node, spot.node)

    def original_of(self, variable: Variable) -> Any:
        """Return the node of the user's graph whose copy computes a variable."""
        return self._originals.get(variable.owner, variable.owner)

    def body_of(self, variable: Variable) -> Body | None:
        """Return the inner graph that a variable belongs to, if any."""
        return self._body_of.get(variable.owner)

    def costs(self) -> list[Variable]:
        """Return the variables that were differentiated."""
        return [
            v if v.owner is None else self.copies[v.owner].outputs[v.index]
            for v in self.tracker.costs()
        ]

    # -- a trial

    def attempt(self, changed: Builders) -> Trial | None:
        """Return the :class:`Trial` of changed variables; None if the call cannot be run with them.

        `changed` is as :func:`theanoguard.stable.patterns.rebuild` takes it.
        """
        by_body: dict[Body | None, Builders] = {}
        builders: Builders = {}
        for variable, build in changed.items():
            by_body.setdefault(self._body_of.get(variable.owner), {})[variable] = build
        for body, changed in by_body.items():
            found = changed if body is None else body.changed(changed)
            if body is None or not any(v in builders for v in found):
                builders.update(found)
        try:
            return self._whole(builders)
        except ForeignError as error:  # such as an operation that must not be run again
            logger.debug("a change could not be tried: %r", error)
            return None

    def _whole(self, builders: Builders) -> Trial | None:
        changed = [v for v in self.outputs if depends_on(v, builders)]
        costs = [v for v in self.costs() if depends_on(v, builders)]
        # (the code that is printed for a remedy often builds what the remedy has built)
        whole = rebuild([*changed, *costs], builders)
        for tried, trial in self._trials:
            if len(tried) == len(whole) and equal_computations(tried, whole):
                return trial
        trial = self._of_changed(changed, costs, builders)
        self._trials.append((whole, trial))
        return trial

    def _of_changed(
        self, changed: list[Variable], costs: list[Variable], builders: Builders
    ) -> Trial | None:
        heads = self._heads(changed) if costs else []
        replaced = dict(builders)
        if heads:
            new = rebuild(costs, builders)
            if len(list(ancestors(new))) > MAX_DIFFERENTIATED:
                return None
            leaves = [v for v in ancestors(new) if is_differentiable(v)]
            with foreign():
                cost = sum(v.sum() for v in new)
                slopes = pytensor.grad(cost, leaves, disconnected_inputs="ignore")
            values = self._evaluated(slopes)
            for head in heads:
                slope = self._slope_of(head, leaves, slopes, values)
                if slope is None:
                    return None
                replaced[head] = fixed(slope)
        changed = changed or costs
        outputs = rebuild(changed, replaced)
        results = dict(zip(changed, self._evaluated(outputs), strict=True))
        rebuilt, read = dict(zip(changed, outputs, strict=True)), frozenset(ancestors(outputs))
        return Trial(results, self._returned(changed), bool(heads), read, rebuilt)

    def _heads(self, outputs: Sequence[Variable]) -> list[Variable]:
        """Return the gradients that the user's operations, or some outputs, read."""
        read = [(v, None) for v in outputs]
        read += [(v, node) for node in self._originals for v in node.inputs]
        below = set(ancestors(outputs))
        return list(
            dict.fromkeys(
                v
                for v, reader in read
                if v in below and v.owner in self._originals and v.type.dtype.startswith("float")
                if self._is_of_gradient(v)
                if reader is None or not made_by_grad(self._originals[reader])
            )
        )

    def _slope_of(
        self,
        head: Variable,
        leaves: Sequence[Variable],
        slopes: Sequence[Variable],
        values: Sequence[Any],
    ) -> Variable | None:
        """Return the gradient built again that a gradient of the graph as built is, or None."""
        # (a number that is finite may be wrong: the exact value judges the result)
        old = np.asarray(self.value(head))
        known = np.isfinite(old)
        agreeing = [
            (int(np.isclose(np.asarray(value)[known], old[known], 1e-3, 1e-12).sum()), slope, leaf)
            for leaf, slope, value in zip(leaves, slopes, values, strict=True)
            if np.shape(value) == old.shape
        ]
        most = max((count for count, *_ in agreeing), default=0)
        fitting = [(slope, leaf) for count, slope, leaf in agreeing if count == most]
        # (`grad` names a gradient, and nothing of one that is NaN agrees)
        named = [slope for slope, leaf in fitting if leaf.name and _is_by(head, leaf.name)]
        found = named if len(named) == 1 else [slope for slope, _ in fitting]
        if len(found) != 1 and not most:
            found = [slope for slope, leaf in fitting if self._is_slope(head, leaf)]
        return found[0] if len(found) == 1 or (found and most) else None

    def _is_slope(self, head: Variable, leaf: Variable) -> bool:
        """Return whether a gradient of the graph as built is the one by an input."""
        for cost in self.costs():
            if cost.type.ndim == 0 and (cost, leaf) not in self._slopes:
                with foreign():
                    [slope] = pytensor.grad(cost, [leaf], disconnected_inputs="ignore")
                self._slopes[cost, leaf] = slope
        known = (self._slopes.get((cost, leaf)) for cost in self.costs())
        return any(slope is not None and equal_computations([head], [slope]) for slope in known)

    def _returned(self, outputs: Sequence[Variable]) -> list[Variable]:
        """Return those of some outputs that the function returns; all of them if none is."""
        pairs = zip(self.outputs, self._updated, strict=True)
        return [v for v, updated in pairs if not updated and v in outputs] or list(outputs)

    def in_float64(self) -> Trial | None:
        """Return the :class:`Trial` of the call in float64; None if it cannot be run so."""
        if len(self.copies) > MAX_WIDENED:
            return None
        try:
            outputs = widened(self.outputs, self._graphs)
        except ForeignError:  # an op that takes only one dtype
            return None
        values = self._evaluated(outputs)
        return Trial(dict(zip(self.outputs, values, strict=True)), self._returned(self.outputs))

    def leaves_of_loops(self) -> list[Variable]:
        """Return inputs and shared variables that loops read; those read in every step first.

        They are ordered by their number of elements.  The list is empty if loops have too many
        steps to run them several times.
        """
        loops = [b.node for b in self.bodies if b.outer is None and isinstance(b.node.op, Scan)]
        if sum(int(self.value(node.inputs[0])) for node in loops) > MAX_REPEATED_STEPS:
            return []
        found = []
        for read in (
            [v for node in loops for v in node.op.outer_non_seqs(node.inputs)],
            [v for node in loops for v in node.inputs],
        ):
            leaves = [v for v in ancestors(read) if is_differentiable(v) and v not in found]
            found += sorted(leaves, key=lambda v: np.size(self.value(v)))
        return found[:MAX_LEAVES]

    def is_sound_with(self, leaf: Variable, divisor: float) -> bool:
        """Return whether the call is sound with an input or shared variable divided by a number."""
        value = self._replay.value(leaf)
        changed = {**self._live, leaf: np.asarray(value / divisor, value.dtype)}
        return not any(map(self.is_bad, self._evaluated(self.outputs, changed)))

    def in_earlier_call(self, outputs: Sequence[Variable]) -> list | None:
        """Return the values of variables in an earlier call; None if there was no such call.

        A shared variable that was not kept has the value with which the failing call began.
        """
        if not self._earlier:
            return None
        try:
            replay = self._run(outputs, inputs=self._earlier)
            return [culprit.dense(v) for v in replay.values(outputs)]
        except NotRun:
            return None

    def _evaluated(self, outputs: Sequence[Variable], known: Any = None) -> list:
        """Return the values of a changed graph."""
        known = self._replay.known_values() if known is None else known
        return [culprit.dense(v) for v in self._run(outputs, known).values(outputs)]


def _is_by(gradient: Variable, name: str) -> bool:
    """Return whether ``grad`` has named a gradient as the one by a variable of a name."""
    return (gradient.name or "").endswith(f"/d{name})")


NARROW = ("float16", "float32")
"""The dtypes for which the call is tried in float64."""


def widened(
    outputs: Sequence[Variable], graphs: Mapping[Apply, FunctionGraph], known: Any = ()
) -> list[Variable]:
    """Return variables that are computed in float64 instead of a narrower dtype.

    `graphs`: the inner graphs of loops.
    `known`: what takes the place of some variables.
    """
    made = dict(known)

    def wide(v: Variable) -> Variable:
        if v not in made and _is_narrow(v):
            made[v] = pt.cast(v, "float64")
        return made.get(v, v)

    for node in toposort(outputs):
        if any(_is_narrow(v) or v in made for v in (*node.inputs, *node.outputs)):
            new = _in_float64(node, [wide(v) for v in node.inputs], graphs)
            new = [pt.cast(v, "float64") if _is_narrow(v) else v for v in new]
            made.update(zip(node.outputs, new, strict=True))
    return [wide(v) for v in outputs]


def _is_narrow(variable: Variable) -> bool:
    return getattr(variable.type, "dtype", None) in NARROW


def _in_float64(
    node: Apply, inputs: Sequence[Variable], graphs: Mapping[Apply, FunctionGraph]
) -> Sequence[Variable]:
    """Return the outputs of a node for inputs in float64."""
    op = node.op
    if isinstance(op, OpFromGraph):
        graph = graphs.get(node) or thawed_graph(op)
        return widened(graph.outputs, graphs, dict(zip(graph.inputs, inputs, strict=True)))
    if isinstance(op, Scan):
        graph = graphs[node]
        own = {v: v.type.clone(dtype="float64")() for v in graph.inputs if _is_narrow(v)}
        outputs = widened(graph.outputs, graphs, own)
        op = scan_of(op, [own.get(v, v) for v in graph.inputs], outputs)
    elif isinstance(getattr(op, "scalar_op", None), Cast) and _is_narrow(node.outputs[0]):
        return inputs  # (the result is cast to float64)
    elif isinstance(op, CAReduce) and getattr(op, "dtype", None) in NARROW:
        op = op.clone(dtype="float64", acc_dtype="float64")
    with foreign():
        return op.make_node(*inputs).outputs


def _is_nan(value: Any) -> bool:
    return holds(value, lambda array: np.isnan(array) if array.dtype.kind in "fc" else False)


def _agrees(cause: Cause, node: Apply, replay: Replay) -> bool:
    """Return whether the operands of a cause are elements of the operands of a node."""
    if len(node.inputs) != len(cause.operands):
        return False
    pairs = zip(cause.operands, node.inputs, strict=True)
    known = [(o.value, culprit.dense(replay.value(v))) for o, v in pairs if o.value is not None]
    return all(
        culprit.is_numeric(array) and np.any(np.isclose(value, array, equal_nan=True))
        for value, array in known
    )


def _has_shape(cause: Cause, node: Apply, replay: Replay) -> bool:
    """Return whether a node gives a value of the shape of a cause, apart from lengths of 1."""
    shape = np.shape(culprit.dense(replay.value(node.outputs[0])))
    return [n for n in shape if n != 1] == [n for n in cause.shape if n != 1]


def _maker(node: Apply, replay: Replay, is_bad: Callable[[Any], Any]) -> Apply:
    """Return the first operation upstream that makes a bad value from sound ones."""
    while True:
        inputs = (v for v in node.inputs if v.owner is not None)
        bad = next((v for v in inputs if is_bad(replay.value(v))), None)
        if bad is None:
            return node
        node = bad.owner


def _bodies(nodes: Iterable[Apply], outer: Body | None = None) -> Iterator[Body]:
    for node in nodes:
        if has_body(node.op):
            body = Body(node, thawed_graph(node.op), outer)
            yield body
            yield from _bodies(body.graph.apply_nodes, body)


def _equal(node: Apply, nodes: Sequence[Apply]) -> tuple[Apply, ...]:
    """Return a node together with all nodes that compute the same value."""
    nodes = [n for n in nodes if n.op == node.op]
    if len(nodes) == 1:
        return (node,)
    classes: dict[Variable, Variable] = {}
    found: dict[tuple, Apply] = {}

    def class_of(v: Variable) -> Any:
        return v.signature() if isinstance(v, Constant) else classes.get(v, v)

    for other in toposort([v for n in nodes for v in n.outputs]):
        key = (other.op, *map(class_of, other.inputs))
        first = found.setdefault(key, other)
        classes.update(zip(other.outputs, first.outputs, strict=True))
    same = [n for n in nodes if classes.get(n.outputs[0]) is classes.get(node.outputs[0])]
    return (node, *(n for n in same if n is not node))


def _alike(node: Apply, nodes: Sequence[Apply], everywhere: Iterable[Apply]) -> tuple[Apply, ...]:
    """Return a node with the nodes that a change of its line changes as well."""
    return tuple(dict.fromkeys([*_equal(node, nodes), *_of_same_line(node, everywhere)]))


MAX_ALIKE = 200
"""Largest number of nodes with one operation whose lines are compared."""


def _of_same_line(node: Apply, nodes: Iterable[Apply]) -> list[Apply]:
    """Return the nodes with the operation of `node` that the same expression has built."""
    line = _line(node)
    same = [n for n in nodes if n.op == node.op]
    if line is None or len(same) > MAX_ALIKE:
        return []
    return [n for n in same if _line(n) == line and not made_by_grad(n)]


def _line(node: Apply) -> tuple | None:
    """Return the file, the line and the columns of the expression that built a node, or None."""
    place = source_place(node.outputs[0])
    return None if place is None else (place.file, place.line, place.marked)


def is_differentiable(variable: Variable) -> bool:
    """Return whether a variable is a leaf with real numbers, so that it can have a gradient."""
    leaf = variable.owner is None and not isinstance(variable, Constant)
    return leaf and getattr(variable.type, "dtype", "").startswith("float")


def leaf_values(variables: Sequence[Variable], value: Callable[[Variable], Any]) -> dict:
    """Return the values of the inputs and shared variables that some variables depend on."""
    leaves = [v for v in ancestors(variables) if v.owner is None and not isinstance(v, Constant)]
    return {v: value(v) for v in leaves}


def depends_on(variable: Variable, others: Collection[Variable]) -> bool:
    """Return whether a variable is one of `others`, or is computed from one of them."""
    return any(v in others for v in ancestors([variable]))


def as_built(facts: Facts) -> AsBuilt | None:
    """Return the graph of a failing call as built, or None if it is unknown or too large."""
    trip = facts.trip
    tracker = tracker_of(trip.fgraph)
    if tracker is None or len(tracker.original) > MAX_NODES:
        return None
    if sum(np.size(v) for v in trip.inputs.values()) > MAX_ELEMENTS:
        return None
    graph = AsBuilt(facts, tracker)
    return None if graph.has_long_loops() else graph
