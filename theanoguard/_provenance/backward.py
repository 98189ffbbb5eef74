"""Which forward node a node made by ``grad`` belongs to.

``grad`` does not record this, but the hooks of :mod:`theanoguard._pytensor.recording` do.  If the
hooks recorded nothing, or if the graph has several gradients, the gradients are built a second
time.  ``grad`` calls the pull-back of each forward node's Op.  A pull-back that is called again
with the same variables builds the same nodes.  So every pull-back is called again, from the cost
backwards, and the nodes that it builds are looked up among the nodes of the graph.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, ScalarOp, Second
from pytensor.tensor.elemwise import Elemwise

from theanoguard._provenance.expressions import Entry
from theanoguard._provenance.source import differentiated
from theanoguard._pytensor import without_traces

logger = logging.getLogger("theanoguard")

# Functions of pytensor/gradient.py that are on the stack while a gradient is built.  The other
# functions of that file (`disconnected_grad`, `grad_clip`) make nodes of the forward graph.
_BUILDING = {"_float_ones_like", "access_term_cache", "access_grad_cache", "_populate_grad_dict"}

Original: TypeAlias = Mapping[Apply, tuple[Variable, ...]]
"""The nodes of a graph, with their inputs as they were before rewriting."""

Owner: TypeAlias = tuple[Variable, Variable, Variable | None]
"""Of a node that ``grad`` made: the cost, what its gradient begins with, the forward variable."""


def gradient_frame(traces: Iterable[Sequence[Entry]]) -> str | None:
    """The innermost frame of gradient building in some stack traces.

    Return the name of the function of ``pytensor.gradient`` that was running; None for a node of
    the forward graph.
    """
    innermost = None
    for trace in traces:
        names = [f[2] for f in trace if f[0].replace("\\", "/").endswith("pytensor/gradient.py")]
        if not _BUILDING.intersection(names):
            return None  # (``grad`` may have made a node like one of the user's)
        innermost = innermost or names[-1]
    return innermost


class Gradients:
    """The nodes of a graph that ``grad`` made, each with its cost and its forward node.

    - `original`: the nodes of a graph with their inputs as they were before rewriting.
    - `traces`: ``traces(variable)`` gives the stack traces of a variable.
    """

    def __init__(self, original: Original, traces: Callable[[Variable], list]) -> None:
        self._original = original
        self._traces = traces
        self._stacks = {node: traces(node.outputs[0]) for node in original}
        self._frames = {node: gradient_frame(stack) for node, stack in self._stacks.items()}
        self._seeds = [
            node
            for node, frame in self._frames.items()
            if frame == "_float_ones_like" and _is_scalar_op(node.op, Second)
        ]
        self._recorded = self._by_trace() if len(self._seeds) == 1 else {}
        self._built_again: _BuiltAgain | None = None

    def costs(self) -> list[Variable]:
        """The variables that were differentiated."""
        return list(dict.fromkeys(self._original[seed][0] for seed in self._seeds))

    def owner_of(self, node: Apply) -> Owner | None:
        """Find the cost and the forward variable of a node that ``grad`` made.

        Return three variables: the cost; the variable with which the gradient of the cost begins;
        and the output of the forward node.  If the node only sums up the gradient of a variable,
        the third is that variable; it is None if it could not be found.  The result is None if not
        even the cost is known.

        `node`: a node of the graph before rewriting.
        """
        if not self._seeds:
            return None
        recorded = differentiated(self._stacks[node])
        forward = self._recorded.get(_serial(recorded, self._traces)) if recorded else None
        if forward is not None:
            [seed] = self._seeds
            return self._original[seed][0], seed.outputs[0], forward
        if node in self._seeds:
            cost = self._original[node][0]
            return cost, node.outputs[0], cost
        if self._built_again is None:
            self._built_again = _BuiltAgain(self._original, self._stacks, self._frames, self._seeds)
        return self._built_again.owner_of(node)

    def _by_trace(self) -> dict[int | None, Variable | None]:
        """Map the number of a trace to its variable; None if several variables have it."""
        found: dict[int | None, Variable | None] = {}
        leaves = {v for read in self._original.values() for v in read if v.owner is None}
        for v in (*leaves, *(node.outputs[0] for node in self._original)):
            serial = _serial(v, self._traces)
            found[serial] = None if serial in found else v
        found.pop(None, None)
        return found


def _serial(variable: Any, traces: Callable[[Any], Iterable]) -> int | None:
    """Return the number of the trace of a variable, None where none was recorded."""
    return next(
        (s for t in traces(variable) if (s := getattr(t, "serial", None)) is not None), None
    )


class _BuiltAgain:
    """The gradients of a graph, found by calling all pull-backs again.

    - `stacks`: the stack traces of each node.
    - `frames`: the result of :func:`gradient_frame` for each node.
    - `seeds`: the nodes with which the gradients begin.
    """

    def __init__(
        self,
        original: Original,
        stacks: Mapping[Apply, list],
        frames: Mapping[Apply, str | None],
        seeds: Iterable[Apply],
    ) -> None:
        self._frames = frames
        self._clones, self._originals = copy_of(original)
        self._owners: dict[Apply, Owner] = {}
        # (op, inputs) -> the equal nodes that grad made.  A node that a pull-back builds is looked
        # up here.  The first of the equal nodes represents them all.
        self._table: dict[Hashable, list[Apply]] = {}
        self._first: dict[Variable, Variable] = {}
        self._clients: dict[Variable, list[Apply]] = {}
        for node, clone in self._clones.items():
            # PyTensor gives some nodes (`ScalarFromTensor`) no stack trace.  grad may have made
            # them, so they are kept.
            if frames[node] is None and stacks[node]:
                continue
            equal = self._table.setdefault(self._key(clone.op, clone.inputs), [])
            equal.append(clone)
            self._first.update(zip(clone.outputs, equal[0].outputs, strict=True))
            for v in clone.inputs:
                self._clients.setdefault(self._first.get(v, v), []).append(clone)
        with without_traces():
            for node in seeds:
                self._follow(self._clones[node])

    def owner_of(self, node: Apply) -> Owner | None:
        """Return the same as :meth:`Gradients.owner_of`."""
        found = self._owners.get(self._clones[node]) or self._nearest(self._clones[node])
        if found is None:
            return None
        cost, seed, forward = found
        return (
            self._original(cost),
            self._original(seed),
            None if forward is None else self._original(forward),
        )

    def _original(self, variable: Variable) -> Variable:
        node = variable.owner
        return variable if node is None else self._originals[node].outputs[variable.index]

    def _key(self, op: Op, inputs: Iterable[Variable]) -> Hashable:
        return op, tuple(
            v.signature() if isinstance(v, Constant) else id(self._first.get(v, v)) for v in inputs
        )

    def _nearest(self, clone: Apply) -> Owner | None:
        """For a node that no repeated pull-back built, the cost of the nodes that it reads."""
        seen, todo = set(), [clone]
        while todo:
            node = todo.pop()
            if node in self._owners:
                cost, seed, _forward = self._owners[node]
                return cost, seed, None
            for v in node.inputs:
                inner = v.owner
                if inner in self._originals and inner not in seen:
                    seen.add(inner)
                    if self._frames[self._originals[inner]] is not None:
                        todo.append(inner)
        return None

    def _follow(self, seed_node: Apply) -> None:
        """Call the pull-backs again, beginning with the cost of one seed."""
        cost, seed = seed_node.inputs[0], self._first[seed_node.outputs[0]]
        self._owners[seed_node] = (cost, seed, cost)
        terms = {cost: [seed]}
        for node in reversed(list(toposort([cost]))):
            gradients = [self._sum(terms.get(v), v, cost, seed) for v in node.outputs]
            if all(g is None for g in gradients):
                continue
            for v, term in zip(
                node.inputs, self._pull_back(node, gradients, cost, seed), strict=True
            ):
                terms.setdefault(v, []).append(term)
        for v, own in terms.items():
            if v.owner is None:
                self._sum(own, v, cost, seed)

    def _pull_back(
        self, node: Apply, gradients: list[Variable | None], cost: Variable, seed: Variable
    ) -> list[Variable | None]:
        """The term that a node adds to the gradient of each input.

        A term that the graph contains is returned as the graph's own variable.
        """
        inputs = list(node.inputs)
        owner = (cost, seed, node.outputs[0])
        matched: dict[Variable, Variable] = {}
        for i, (output, gradient) in enumerate(zip(node.outputs, gradients, strict=True)):
            if gradient is None:
                gradients[i] = DisconnectedType()()
            elif gradient.type.dtype != output.type.dtype and "float" in str(output.type.dtype):
                gradients[i] = self._match(gradient.astype(output.type.dtype), owner, matched)
        try:
            terms = node.op.pullback(inputs, node.outputs, gradients)
        except Exception as error:  # a user-defined Op may fail when it is called a second time
            logger.debug("the pull-back of %s could not be repeated: %s", node.op, error)
            return [None] * len(inputs)
        return [
            None
            if isinstance(term.type, DisconnectedType | NullType)
            else self._match(term, owner, matched)
            for term in terms
        ]

    def _match(
        self, variable: Variable, owner: Owner, matched: dict[Variable, Variable]
    ) -> Variable:
        """The variable of the graph that equals a newly built one, else the new one."""
        todo = [variable]
        while todo:
            v = todo[-1]
            if v in matched or v.owner is None or v.owner in self._originals:
                todo.pop()
                continue
            missing = [
                i
                for i in v.owner.inputs
                if i not in matched and i.owner is not None and i.owner not in self._originals
            ]
            if missing:
                todo += missing
                continue
            todo.pop()
            key = self._key(v.owner.op, [matched.get(i, i) for i in v.owner.inputs])
            equal = self._table.get(key, ())
            for node in equal:
                self._owners.setdefault(node, owner)
            matched.update(
                zip(v.owner.outputs, equal[0].outputs if equal else v.owner.outputs, strict=True)
            )
        return matched.get(variable, variable)

    def _sum(
        self,
        terms: Iterable[Variable | None] | None,
        variable: Variable,
        cost: Variable,
        seed: Variable,
    ) -> Variable | None:
        """Follow the additions that sum up the gradient of one variable."""
        known = [t for t in terms or () if t is not None]
        if not known:
            return None
        # A term that no node reads does not belong to this graph.
        total = next((t for t in known if t in self._clients), known[0])
        for _ in range(len(known) - 1):
            for node in self._clients.get(total, ()):
                if (
                    _is_scalar_op(node.op, Add)
                    and self._frames[self._originals[node]] == "<lambda>"
                ):
                    self._owners.setdefault(node, (cost, seed, variable))
                    total = self._first[node.outputs[0]]
                    break
            else:
                break
        return total


def _is_scalar_op(op: Op, scalar_type: type[ScalarOp]) -> bool:
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar_type)


def copy_of(original: Original) -> tuple[dict[Apply, Apply], dict[Apply, Apply]]:
    """Rebuild a graph as it was before rewriting; return the maps node -> copy and copy -> node.

    Copies are needed because rewriting has changed the nodes themselves.
    """
    clones: dict[Apply, Apply] = {}
    variables: dict[Variable, Variable] = {}
    todo = list(original)
    while todo:
        node = todo[-1]
        if node in clones:
            todo.pop()
            continue
        missing = [v.owner for v in original[node] if v.owner is not None and v.owner not in clones]
        missing = [m for m in missing if m in original]
        if missing:
            todo += missing
            continue
        todo.pop()
        inputs = [variables.get(v, v) for v in original[node]]
        clone = clones[node] = Apply(node.op, inputs, [_copied(v) for v in node.outputs])
        variables.update(zip(node.outputs, clone.outputs, strict=True))
    return clones, {clone: node for node, clone in clones.items()}


def _copied(variable: Variable) -> Variable:
    """Return a variable with the name and the tags of another one."""
    copy = variable.type.make_variable(name=variable.name)
    copy.tag = variable.tag  # (shared: nothing changes the tags of a copy)
    return copy
