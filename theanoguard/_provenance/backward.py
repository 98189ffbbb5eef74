"""Which forward node a node made by ``grad`` belongs to.

``grad`` leaves no note of it; the hooks of :mod:`theanoguard._pytensor.recording` do.  Where there
is none, or the graph has several gradients, they are built again: ``grad`` asks each forward node's
Op for its pull-back, and that is a function: asked again with the same variables it builds the same
nodes.  So the pull-backs are asked again, from the cost backwards, and what they build is looked up
among the nodes that are there.
"""

import logging

from pytensor.configdefaults import config
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Constant
from pytensor.graph.null_type import NullType
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Second
from pytensor.tensor.elemwise import Elemwise

from theanoguard._provenance.source import differentiated

logger = logging.getLogger("theanoguard")

# Functions of pytensor/gradient.py that stand on the stack while a gradient is built.  Others
# there (`disconnected_grad`, `grad_clip`) make nodes of the forward graph.
_BUILDING = {"_float_ones_like", "access_term_cache", "access_grad_cache", "_populate_grad_dict"}


def gradient_frame(traces):
    """The innermost frame of gradient building in some stack traces.

    Parameters
    ----------
    traces : list of list of (file, line, function, text)

    Returns
    -------
    str or None
        Name of the function of ``pytensor.gradient`` that was running; None for a node of the
        forward graph.
    """
    for trace in traces:
        names = [f[2] for f in trace if f[0].replace("\\", "/").endswith("pytensor/gradient.py")]
        if _BUILDING.intersection(names):
            return names[-1]
    return None


class Gradients:
    """The nodes of a graph that ``grad`` made, and what they belong to.

    Parameters
    ----------
    original : dict of Apply to tuple of Variable
        The nodes of a graph with their inputs as they were before rewriting.
    traces : callable
        ``traces(variable)`` gives the stack traces of a variable.
    """

    def __init__(self, original, traces):
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
        self._built_again = None

    def costs(self):
        """What gradients were taken of."""
        return list(dict.fromkeys(self._original[seed][0] for seed in self._seeds))

    def owner_of(self, node):
        """What a node that ``grad`` made belongs to.

        Parameters
        ----------
        node : Apply
            A node of the graph before rewriting.

        Returns
        -------
        tuple or None
            Three variables: the cost; that with which its gradient begins; and the output of
            the forward node, or the variable whose gradient it sums up, None where it could not be
            found.  None where not even the cost is known.
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

    def _by_trace(self):
        """Return the variables of the graph by the number of their trace, if no other has it."""
        found = {}
        leaves = {v for read in self._original.values() for v in read if v.owner is None}
        for v in (*leaves, *(node.outputs[0] for node in self._original)):
            serial = _serial(v, self._traces)
            found[serial] = None if serial in found else v
        found.pop(None, None)
        return found


def _serial(variable, traces):
    """Return the number of the trace of a variable, None where none was recorded."""
    return next(
        (s for t in traces(variable) if (s := getattr(t, "serial", None)) is not None), None
    )


class _BuiltAgain:
    """The gradients of a graph, found by asking all pull-backs again.

    Parameters
    ----------
    original : dict of Apply to tuple of Variable
    stacks : dict of Apply to list
        The stack traces of each node.
    frames : dict of Apply to str or None
        What :func:`gradient_frame` gives for them.
    seeds : list of Apply
        With which gradients begin.
    """

    def __init__(self, original, stacks, frames, seeds):
        self._frames = frames
        self._clones, self._originals = copy_of(original)
        self._owners = {}
        # (op, inputs) -> equal nodes that grad made, to find again what a pull-back builds; the
        # first of them stands for all.
        self._table = {}
        self._first = {}
        self._clients = {}
        for node, clone in self._clones.items():
            # Some nodes get no stack trace at all (`ScalarFromTensor`): they may be grad's.
            if frames[node] is None and stacks[node]:
                continue
            equal = self._table.setdefault(self._key(clone.op, clone.inputs), [])
            equal.append(clone)
            self._first.update(zip(clone.outputs, equal[0].outputs, strict=True))
            for v in clone.inputs:
                self._clients.setdefault(self._first.get(v, v), []).append(clone)
        with config.change_flags(traceback__limit=0):
            for node in seeds:
                self._follow(self._clones[node])

    def owner_of(self, node):
        """Return what :meth:`Gradients.owner_of` does."""
        found = self._owners.get(self._clones[node]) or self._nearest(self._clones[node])
        return found and tuple(v if v is None else self._original(v) for v in found)

    def _original(self, variable):
        node = variable.owner
        return variable if node is None else self._originals[node].outputs[variable.index]

    def _key(self, op, inputs):
        return op, tuple(
            v.signature() if isinstance(v, Constant) else id(self._first.get(v, v)) for v in inputs
        )

    def _nearest(self, clone):
        """Cost of a node that no repeated pull-back built: that of what it is computed from."""
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

    def _follow(self, seed_node):
        """Ask the pull-backs again, from the cost that a seed belongs to."""
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

    def _pull_back(self, node, gradients, cost, seed):
        """Terms of the gradient by each input: those in the graph, else those built anew."""
        inputs = list(node.inputs)
        owner = (cost, seed, node.outputs[0])
        matched = {}
        for i, (output, gradient) in enumerate(zip(node.outputs, gradients, strict=True)):
            if gradient is None:
                gradients[i] = DisconnectedType()()
            elif gradient.type.dtype != output.type.dtype and "float" in str(output.type.dtype):
                gradients[i] = self._match(gradient.astype(output.type.dtype), owner, matched)
        try:
            terms = node.op.pullback(inputs, node.outputs, gradients)
        except Exception as error:  # an Op of the user's may do anything the second time
            logger.debug("the pull-back of %s could not be repeated: %s", node.op, error)
            return [None] * len(inputs)
        return [
            None
            if isinstance(term.type, DisconnectedType | NullType)
            else self._match(term, owner, matched)
            for term in terms
        ]

    def _match(self, variable, owner, matched):
        """The variable of the graph that equals one built anew, or this itself."""
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

    def _sum(self, terms, variable, cost, seed):
        """Follow the additions that join the terms of the gradient by one variable."""
        known = [t for t in terms or () if t is not None]
        if not known:
            return None
        # What no addition reads is no term of this graph's.
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


def _is_scalar_op(op, scalar_type):
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar_type)


def copy_of(original):
    """Rebuild a graph as it was; return the maps node -> copy and back.

    The nodes themselves have been changed by rewriting since.
    """
    clones, variables = {}, {}
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
        clone = node.clone()
        clone.inputs = [variables.get(v, v) for v in original[node]]
        clones[node] = clone
        variables.update(zip(node.outputs, clone.outputs, strict=True))
    return clones, {clone: node for node, clone in clones.items()}
