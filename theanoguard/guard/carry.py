"""Which values have to be read so that no NaN and no Inf goes unseen.

A bad value seldom stays alone: a sum, product or logarithm that is computed from it is bad as well.
So the guard reads a few values further down, small ones if possible, such as the loss.  Every
operation in between has to *carry* the bad value for certain
(:func:`theanoguard.operations.carries`).  Before an operation that could lose it (a comparison,
``switch``, an Inf in ``tanh``), the guard reads the operand.

The rule needs no bounds and no memory of earlier calls.  It does not show an element that no
operation reads, such as one that is broadcast against an array of length 0.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from pytensor.graph.basic import Apply, Variable

from theanoguard.operations import Kind, carries, constant_kinds, holds_nonfinite

Places = frozenset[tuple[Variable, Kind]]


def expected_infinities(order: Iterable[Apply], entering: Iterable[Variable] = ()) -> set[Variable]:
    """Return the variables that may hold an Inf on purpose, from a constant upstream.

    - `order`: iterable of Apply in topological order.
    - `entering`: inputs of the graph that may hold one.
    """
    found: set[Variable] = set(entering)
    for node in order:
        if any(v in found or constant_kinds(v) & Kind.INF for v in node.inputs):
            found.update(filter(holds_nonfinite, node.outputs))
    return found


def size_of(variable: Variable) -> tuple[int, int]:
    """Return what a variable costs to read: its unknown lengths, and the product of the others."""
    lengths = getattr(variable.type, "shape", ())
    unknown = sum(n is None for n in lengths)
    known = 1
    for n in lengths:
        known *= n or 1
    return unknown, known


def watch_points(
    order: Iterable[Apply],
    sources: Mapping[Variable, Kind],
    *,
    carries: Callable[[Apply, int], Mapping[int, Kind]] = carries,
    runs: Callable[[Apply], bool] = lambda node: True,
    infinite: Iterable[Variable] = (),
) -> dict[Variable, Kind]:
    """Return which variables to read, so that a bad element in any source is seen.

    - `order`: the nodes of the graph in topological order.
    - `sources`: where a bad element may appear first, and of which kind: inputs of the graph, and
      outputs of nodes that can make a bad value without raising an exception flag.
    - `carries`: ``carries(node, operand)`` returns the kinds that are carried to each output.  A
      backend may promise less than the default.
    - `runs`: whether a node runs in every call; a node that may be skipped carries nothing.
    - `infinite`: variables that may hold an Inf on purpose (:func:`expected_infinities`).  Any
      other Inf is read before it meets them.
    - Returns: which kinds to look for in each variable.

    Examples
    --------
    The Inf of an input would be lost in ``tanh``, a NaN arrives in the sum:

    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.traversal import toposort
    >>> x, y = pt.dvector("x"), pt.dvector("y")
    >>> total = (pt.log(x) * y).sum()
    >>> watch_points(toposort([total]), {x: Kind.BOTH, y: Kind.BOTH}) == {total: Kind.BOTH}
    True
    >>> squashed = pt.tanh(x).sum()
    >>> found = watch_points(toposort([squashed]), {x: Kind.BOTH})
    >>> found == {squashed: Kind.NAN, x: Kind.INF}
    True
    """
    order, infinite = list(order), set(infinite)
    clients: dict[Variable, list[tuple[Apply, int]]] = defaultdict(list)
    position = {}
    for number, node in enumerate(order):
        for i, variable in enumerate(node.inputs):
            clients[variable].append((node, i))
        position.update(dict.fromkeys(node.outputs, number))

    # For each kind and variable the cheapest places that show a bad element of it.  Filled from the
    # outputs backwards.
    shown: dict[Kind, dict[Variable, Places]] = {Kind.NAN: {}, Kind.INF: {}}

    def cost(places: Places) -> tuple[list[tuple[int, int]], int]:
        variables = {variable for variable, _ in places}
        sizes = sorted(map(size_of, variables), reverse=True)
        return sizes, -max(position.get(variable, -1) for variable in variables)

    def settle(variable: Variable) -> None:
        found: dict[Kind, list[Places]] = {
            kind: [frozenset({(variable, kind)})] for kind in (Kind.NAN, Kind.INF)
        }
        for node, i in clients[variable]:
            for o, carried in carries(node, i).items() if runs(node) else ():
                output = node.outputs[o]
                if Kind.NAN in carried:
                    found[Kind.NAN].append(shown[Kind.NAN][output])
                if Kind.INF in carried and output not in infinite:
                    # Further down the Inf may have become a NaN.
                    found[Kind.INF].append(shown[Kind.INF][output] | shown[Kind.NAN][output])
        for kind, choices in found.items():
            shown[kind][variable] = min(choices, key=cost)

    for node in reversed(order):
        for variable in node.outputs:
            settle(variable)
    points: dict[Variable, Kind] = {}
    for variable, kinds in sources.items():
        if variable not in shown[Kind.NAN]:
            settle(variable)
        for kind in kinds:
            for place, sign in shown[kind][variable]:
                points[place] = points.get(place, Kind.NONE) | sign
    return points
