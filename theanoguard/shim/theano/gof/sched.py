"""The order of nodes, by functions that compare two of them."""

from functools import cache

from ..compat import cmp
from .graph import list_of_nodes

memodict = cache


def make_depends():
    """Return a function of a pair of nodes: whether the first one needs the second one."""

    @memodict
    def depends(pair):
        node, other = pair
        parents = [variable.owner for variable in node.inputs if variable.owner is not None]
        return other in parents or any(depends((parent, other)) for parent in parents)

    return depends


def make_dependence_cmp():
    """Return a comparison of two nodes, by which one needs the other."""
    depends = make_depends()

    def dependence(a, b):
        return depends((a, b)) - depends((b, a))

    return dependence


def reverse_dict(d):
    """Return a dict from each member of the values to a tuple of its keys."""
    result = {}
    for key, values in d.items():
        for value in values:
            result[value] = (*result.get(value, ()), key)
    return result


def _toposort(edges):
    """Return the keys of a dict, those that are among its values after the keys of these.

    Raises
    ------
    ValueError
        If there is a cycle.
    """
    waits_for = {value: {*keys} for value, keys in reverse_dict(edges).items()}
    ready = [key for key in edges if key not in waits_for]
    order = []
    while ready:
        first = ready.pop()
        order.append(first)
        for value in edges.get(first, ()):
            waits_for[value].discard(first)
            if not waits_for[value]:
                ready.append(value)
    if any(waits_for.values()):
        raise ValueError("Input has cycles")
    return order


def posort(l, *cmps):  # noqa: E741
    """Sort a list by several comparisons of two members, of which an earlier one decides first."""
    before, after = {member: set() for member in l}, {member: set() for member in l}
    for compare in cmps:
        for a in l:
            for b in l:
                if compare(a, b) < 0 and b not in before[a] and b not in after[a]:
                    firsts, lasts = before[a] | {a}, after[b] | {b}
                    for member in firsts:
                        after[member] |= lasts
                    for member in lasts:
                        before[member] |= firsts
    return _toposort(after)


def sort_apply_nodes(inputs, outputs, cmps):
    """Return the nodes between inputs and outputs, sorted by comparisons of two nodes."""
    return posort(list_of_nodes(inputs, outputs), *cmps)


def sort_schedule_fn(*cmps):
    """Return a schedule for linkers: nodes that others need first, then by the comparisons."""
    cmps = (make_dependence_cmp(), *cmps)

    def schedule(fgraph):
        return sort_apply_nodes(fgraph.inputs, fgraph.outputs, cmps)

    return schedule


def key_to_cmp(key):
    """Return a comparison by a key."""

    def key_cmp(a, b):
        return cmp(key(a), key(b))

    return key_cmp
