"""What a guard must find: the compiled graph of a function, run node by node in Python."""

import copy

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.link.vm import Loop
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import IfElse, config
from theanoguard.guard.graph.runtime import JittedVM


def execution_order(fgraph, orderings, branch):
    """Yield the nodes as the lazy C virtual machine runs them.

    Parameters
    ----------
    fgraph : FunctionGraph
    orderings : dict of Apply to list of Apply
        What must run before a node beside the owners of its inputs.
    branch : callable
        ``branch(node)`` tells which inputs a lazy node asks for, its condition computed.
    """
    done = set()

    def visit(node):
        if node is None or node in done:
            return
        for before in sorted_prerequisites(node, orderings):
            yield from visit(before)
        if isinstance(node.op, IfElse):
            yield from visit(node.inputs[0].owner)
            for variable in branch(node):
                yield from visit(variable.owner)
        else:
            for variable in node.inputs:
                yield from visit(variable.owner)
        if node not in done:
            done.add(node)
            yield node

    index = variable_index(fgraph)

    def sorted_prerequisites(node, orderings):
        variables = {index[v]: v for before in orderings.get(node, ()) for v in before.outputs}
        return [variables[i].owner for i in sorted(variables)]

    for output in fgraph.outputs:
        yield from visit(output.owner)


def variable_index(fgraph):
    """Number the variables as ``VMLinker.make_vm`` does: prerequisites are in this order."""
    index = {}
    for node in fgraph.toposort():
        for variable in (*node.inputs, *node.outputs):
            index.setdefault(variable, len(index))
    return index


def run_by_hand(fn, inputs, orderings):
    """Run the graph of `fn` once, out of place for the caller.

    Yields
    ------
    (Apply, list of value)
        Each node when it has run, with its outputs.
    """
    fgraph = fn.maker.fgraph
    storage = {v: [v.data] for node in fgraph.apply_nodes for v in node.inputs if is_constant(v)}
    given = iter(inputs)
    for variable, container in zip(fgraph.inputs, fn.input_storage, strict=True):
        value = container.storage[0] if container.implicit else next(given)
        if isinstance(variable.type, TensorType):  # (JAX stores arrays of its own)
            storage[variable] = [np.array(value, variable.type.dtype)]
        else:
            storage[variable] = [copy.deepcopy(value)]
    for node in fgraph.apply_nodes:
        for variable in node.outputs:
            storage[variable] = [None]

    def branch(node):
        n = node.op.n_outs
        first = 1 if storage[node.inputs[0]][0] else 1 + n
        return node.inputs[first : first + n]

    if isinstance(fn.vm, JittedVM):
        order = fn.vm.guard.plan.order
    elif isinstance(fn.vm, Loop):  # which runs the nodes as they stand
        order = fn.vm.nodes
    else:
        order = execution_order(fgraph, orderings, branch)
    for node in order:
        if isinstance(node.op, IfElse):
            for variable, source in zip(node.outputs, branch(node), strict=True):
                storage[variable][0] = copy.deepcopy(storage[source][0])
        else:
            compute = {v: [True] for v in (*node.inputs, *node.outputs)}
            node.op.make_thunk(node, storage, compute, [], impl=None if config.cxx else "py")()
        yield node, [copy.deepcopy(storage[v][0]) for v in node.outputs]


def is_constant(variable):
    return isinstance(variable, Constant)


def first_bad(fn, inputs, skip=lambda variable: False):
    """Return the (node, output index) whose value is the first bad one, or None.

    Memory that is not written yet (AllocEmpty, and what is set in part of it) is not
    looked at.

    Parameters
    ----------
    fn : Function
        Compiled with a guard: its graph and its policy are taken.
    inputs : list of array
    skip : callable
        ``skip(variable)`` tells what is not looked at.
    """
    guard = fn.vm.guard
    orderings = {}
    for node, before in fn.maker.fgraph.orderings().items():
        orderings.setdefault(node, []).extend(before)
    with np.errstate(all="ignore"):
        for node, values in run_by_hand(fn, inputs, orderings):
            for index, value in enumerate(values):
                if node.outputs[index] in guard.plan.unwritten or skip(node.outputs[index]):
                    continue
                if guard.policy.is_bad(value):
                    return node, index
    return None
