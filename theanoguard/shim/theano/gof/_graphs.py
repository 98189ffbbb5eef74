"""Which graph a variable or node is in, which PyTensor's variables and nodes do not know."""

from contextlib import contextmanager
from weakref import WeakSet

from pytensor.graph.fg import FunctionGraph, Output

from .toolbox import BadReplacement

_known = WeakSet()
_current = []

original_init = FunctionGraph.__init__
original_replace = FunctionGraph.replace


def remembering_init(self, *args, **kwargs):
    """Make a FunctionGraph and remember it."""
    original_init(self, *args, **kwargs)
    _known.add(self)


def replace(self, var, new_var, reason=None, verbose=None, import_missing=False):
    """Replace a variable of the graph; Theano has an error of its own for another type."""
    try:
        return original_replace(self, var, new_var, reason, verbose, import_missing)
    except TypeError as error:
        text = f"{reason}. The type of the replacement must be the same.\n{error}"
        raise BadReplacement(var, new_var, None, None, text) from error


@contextmanager
def working_on(fgraph):
    """Look into this graph first, inside the block."""
    _current.append(fgraph)
    try:
        yield
    finally:
        _current.pop()


def graph_of(item):
    """Return the FunctionGraph that has a variable or node; raise AttributeError if none has."""
    for fgraph in [*reversed(_current), *_known]:
        if item in fgraph:
            return fgraph
    raise AttributeError(f"{item} is in no FunctionGraph")


def is_in_graph(item):
    """Whether a variable or node is in any FunctionGraph."""
    return any(item in fgraph for fgraph in [*_current, *_known])


def clients_of(variable):
    """Return the pairs of client and input index of a variable; outputs as ("output", index)."""
    return [
        ("output", node.op.idx) if isinstance(node.op, Output) else (node, i)
        for node, i in graph_of(variable).clients[variable]
    ]
