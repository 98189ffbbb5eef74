"""Variables, Apply nodes, and walks over graphs."""

from collections import deque
from contextlib import contextmanager
from copy import copy

from pytensor.graph import traversal
from pytensor.graph.basic import Constant, Variable, clone_get_equiv, equal_computations

default_leaf_formatter = str
_init_variable = Variable.__init__
NoParams = object()


def init_variable(self, type, owner=None, index=None, name=None):
    """Make a variable, which need not have an owner."""
    _init_variable(self, type, owner, index, name)


def stack_search(start, expand, mode="bfs", build_inv=False):
    """Return the nodes that `expand` leads to from those in the deque `start`, which is emptied.

    With `build_inv`, a dict from each node to those that led to it comes with them.
    """
    if mode not in ("bfs", "dfs"):
        raise ValueError("mode should be bfs or dfs", mode)
    pop = start.popleft if mode == "bfs" else start.pop
    found, led_here = {}, {}
    while start:
        node = pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        children = list(expand(node) or ())
        for child in children:
            led_here.setdefault(child, []).append(node)
        start.extend(children)
    nodes = list(found.values())
    return (nodes, led_here) if build_inv else nodes


def ancestors(variable_list, blockers=None):
    """Return a list of `variable_list` and all that they are computed from.

    The order is that of a depth-first search which takes an operation's first input first.
    """

    def expand(variable):
        if variable.owner and not (blockers and variable in blockers):
            return reversed(variable.owner.inputs)

    return stack_search(deque(variable_list), expand, "dfs")


def inputs(variable_list, blockers=None):
    """Return a list of the variables without owner that `variable_list` is computed from."""
    return [v for v in ancestors(variable_list, blockers) if v.owner is None]


def variables_and_orphans(i, o):
    """Return the variables between `i` and `o`, and those without owner that are not in `i`."""

    def expand(variable):
        if variable.owner and variable not in i:
            return reversed([*variable.owner.inputs, *variable.owner.outputs])

    found = stack_search(deque(o), expand, "dfs")
    return found, [v for v in found if v.owner is None and v not in i]


def variables(i, o):
    """Return the variables between `i` and `o`, both included."""
    return variables_and_orphans(i, o)[0]


def orphans(i, o):
    """Return the variables without owner that `o` depends on and that are not in `i`."""
    return variables_and_orphans(i, o)[1]


def clone(i, o, copy_inputs=True, copy_orphans=None):
    """Return copies of the inputs and outputs of a graph; PyTensor's has the same constants."""
    copy_orphans = copy_inputs if copy_orphans is None else copy_orphans
    leaves = [*(i if copy_inputs else ()), *(orphans(i, o) if copy_orphans else ())]
    memo = {v: _copy_constant(v) for v in leaves if isinstance(v, Constant)}
    copies = clone_get_equiv(i, o, copy_inputs, copy_orphans, memo)
    return [copies[v] for v in i], [copies[v] for v in o]


def _copy_constant(constant):
    new = type(constant)(constant.type, constant.data, name=constant.name)
    new.tag = copy(constant.tag)
    return new


def ops(i, o):
    """Return the set of Apply nodes between `i` and `o`."""
    return {v.owner for v in variables(i, o) if v not in i and v.owner is not None}


def list_of_nodes(inputs, outputs):
    """Return the Apply nodes between `inputs` and `outputs`, breadth first."""

    def expand(node):
        owners = [v.owner for v in node.inputs if v.owner]
        return [owner for owner in owners if not any(v in owner.outputs for v in inputs)]

    return stack_search(deque([v.owner for v in outputs]), expand)


def general_toposort(
    outputs, deps, debug_print=False, compute_deps_cache=None, deps_cache=None, clients=None
):
    """Return what `outputs` depend on, by the function `deps`, in an order to compute it in.

    The caches are taken and not used; `clients`, a dict, is filled.
    """
    if compute_deps_cache is not None and deps_cache is None:
        raise ValueError("deps_cache must be given with compute_deps_cache")
    found = traversal.general_toposort(outputs, compute_deps_cache or deps)
    if clients is not None:
        for node in found:
            for needed in deps(node) or ():
                clients.setdefault(needed, []).append(node)
    return found


def io_toposort(inputs, outputs, orderings=None, clients=None):
    """Return the Apply nodes between `inputs` and `outputs` in an order to run them in.

    `orderings` maps nodes to what must come before them; `clients`, a dict, is filled.
    """
    found = traversal.io_toposort(inputs, outputs, orderings)
    if clients is not None:
        for node in found:
            for variable in node.inputs:
                clients.setdefault(variable, []).append(node)
            for variable in node.outputs:
                clients.setdefault(node, []).append(variable)
    return found


def is_in_ancestors(l_node, f_node):
    """Whether the Apply node `f_node` is, or is needed to compute, `l_node`."""
    return f_node in traversal.apply_ancestors(l_node.outputs)


def is_same_graph(var1, var2, givens=None, debug=False):
    """Whether two variables stand for the same computation.

    `givens`, a dict or pairs, tells which variables of either graph to replace first, and by
    what.
    """
    replaced = dict(givens or {})
    todo, seen = [(var1, var2)], set()
    while todo:
        first, second = pair = tuple(replaced.get(v, v) for v in todo.pop())
        if pair in seen or first is second:
            continue
        seen.add(pair)
        nodes = first.owner, second.owner
        if nodes == (None, None):
            if not (isinstance(first, Constant) and equal_computations([first], [second])):
                return False
        elif (
            None in nodes
            or nodes[0].op != nodes[1].op
            or first.index != second.index
            or len(nodes[0].inputs) != len(nodes[1].inputs)
        ):
            return False
        else:
            todo.extend(zip(nodes[0].inputs, nodes[1].inputs, strict=True))
    return True


def view_roots(r):
    """Return the variables that `r` is a view of, through any number of views."""
    node = r.owner
    if node is None or r.index not in node.op.view_map:
        return [r]
    return [root for i in node.op.view_map[r.index] for root in view_roots(node.inputs[i])]


_observers = []


def observe(variables):
    """Tell all that stand in `nodes_constructed` of new variables."""
    for seen in _observers:
        seen.extend(variables)


@contextmanager
def nodes_constructed():
    """Yield a list that fills with the outputs of the operations applied in the block."""
    new = []
    _observers.append(new)
    try:
        yield new
    finally:
        _observers.remove(new)
