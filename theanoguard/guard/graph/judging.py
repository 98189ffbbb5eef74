"""The second look at a call: it is computed again, node by node, and each node is judged.

The program that runs in every call only says that something may be wrong.  A replay of the call
then runs each node with the backend's own code, and the verdict
(:mod:`~theanoguard.guard.verdict`) says which of them made a bad value.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Constant

from theanoguard._event import Frame
from theanoguard._pytensor import IfElse, LazyIfElse, OpFromGraph, Scan
from theanoguard.explain.replay import branch_taken
from theanoguard.guard.policy import arrays_in
from theanoguard.guard.verdict import made_bad


@dataclass(frozen=True)
class Part:
    """The plan of a graph, and of those inside of it that are compiled on their own.

    Parameters
    ----------
    plan : Plan
    inner : dict of Apply to list of Part
    """

    plan: object
    inner: dict

    def plans(self) -> Iterator:
        """Yield the plans of this graph and of those inside."""
        yield self.plan
        for parts in self.inner.values():
            for part in parts:
                yield from part.plans()

    def graphs(self) -> dict:
        """Return the inner graphs as they are compiled, by node; not those of branches."""
        found = {}
        for node, parts in self.inner.items():
            if len(parts) == 1:
                found[node] = parts[0].plan.fgraph
            for part in parts:
                found |= part.graphs()
        return found


@dataclass(frozen=True)
class Finding:
    """A bad value that a node has made.

    Parameters
    ----------
    variable : Variable
        In the innermost of the graphs.
    output : int
        Which output of its node.
    value : object
    masks : list of ndarray
        Which elements are bad, for each array in the value.
    frames : tuple of Frame
        The inner graphs around it, outermost first.
    """

    variable: object
    output: int
    value: object
    masks: list
    frames: tuple


def findings(part, replay, policy, frames=()):
    """Yield what the nodes of a graph have made bad, in the order in which they ran.

    Nothing is computed beyond the finding that was asked for last.

    Parameters
    ----------
    part : Part
    replay : Replay
    policy : Policy
    frames : tuple of Frame
        Around the graph.

    Yields
    ------
    Finding
    """
    plan = part.plan
    for node in _running(plan, replay):
        if node in part.inner:
            yield from _inside(node, part.inner[node], replay, policy, frames)
        else:
            yield from _judged(node, plan, replay, policy, frames)


def _running(plan, replay):
    """Return the nodes that run: not those in a branch that an ``IfElse`` does not take."""
    if not any(isinstance(node.op, IfElse) for node in plan.order):
        return plan.order
    running, todo = set(), [v.owner for v in plan.fgraph.outputs]
    while todo:
        node = todo.pop()
        if node is None or node in running:
            continue
        running.add(node)
        inputs = node.inputs
        if isinstance(node.op, IfElse):
            inputs = [node.inputs[0], *branch_taken(node, replay)]
        todo += [v.owner for v in inputs]
    return [node for node in plan.order if node in running]


def _inside(node, parts, replay, policy, frames):
    if isinstance(node.op, LazyIfElse):
        [taken, *_others] = parts if np.all(replay.value(node.inputs[0])) else reversed(parts)
    else:
        [taken] = parts
    fgraph = taken.plan.fgraph
    inner = replay.inner(node, fgraph)
    if not isinstance(node.op, Scan):
        yield from findings(taken, inner.at(), policy, (*frames, Frame(node, fgraph, None)))
        return
    step = 0
    while inner.runs(step):
        yield from findings(taken, inner.at(step), policy, (*frames, Frame(node, fgraph, step)))
        step += 1


def _judged(node, plan, replay, policy, frames):
    values = [replay.value(v) for v in node.outputs]
    asked = [
        value
        if policy.is_bad(value)
        and not policy.exempts(plan.as_built(variable))
        and variable not in plan.unwritten
        else None
        for variable, value in zip(node.outputs, values, strict=True)
    ]
    if all(value is None for value in asked):
        return
    if isinstance(node.op, OpFromGraph) and not policy.anywhere:
        made = _made_in_one_piece(node, asked, replay, policy)
    else:
        made = made_bad(node, replay.values(node.inputs), asked, policy)
    for i, masks in enumerate(made):
        if masks is not None:
            yield Finding(node.outputs[i], i, asked[i], masks, frames)


def _made_in_one_piece(node, asked, replay, policy):
    """Judge a fused operation by the operations in it."""
    inner = replay.inner(node)
    order = inner.fgraph.toposort()
    made_inside = False
    given = list(replay.values(node.inputs))
    for step in order:
        given += [v.data for v in step.inputs if isinstance(v, Constant)]  # chosen on purpose
        values = inner.at().values(step.outputs)
        if any(map(policy.is_bad, values)):
            operands = inner.at().values(step.inputs)
            made_inside |= any(m is not None for m in made_bad(step, operands, values, policy))
    if not made_inside and any(map(policy.is_bad, given)):
        return [None for _ in asked]
    return [
        None if value is None else [policy.mask(array) for array in arrays_in(value)]
        for value in asked
    ]
