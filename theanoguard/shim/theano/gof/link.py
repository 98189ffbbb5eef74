"""Linkers, which turn a graph into something to call."""

from pytensor.link import basic
from pytensor.link import utils as link_utils

from ._graphs import graph_of
from .utils import to_return_values


class _WithoutGraph:
    """A wrapper of thunks as a WrapLinker calls it, around one that does not take the graph."""

    def __init__(self, wrapper):
        self.wrapper = wrapper

    def __call__(self, fgraph, i, node, *thunks):
        return self.wrapper(i, node, *thunks)


class WrapLinker(basic.WrapLinker):
    """Calls ``wrapper(i, node, *thunks)`` for each node; PyTensor's passes the graph first."""

    def __init__(self, linkers, wrapper):
        if not isinstance(wrapper, _WithoutGraph):
            wrapper = _WithoutGraph(wrapper)
        super().__init__(linkers, wrapper)


def WrapLinkerMany(linkers, wrappers):
    """Return a WrapLinker that calls each of `wrappers` in turn."""

    def call_all(*args):
        for wrapper in wrappers:
            wrapper(*args)

    return WrapLinker(linkers, call_all)


def raise_with_op(node, thunk=None, exc_info=None, storage_map=None):
    """Raise the current exception with a text about the node in which it came up."""
    try:
        fgraph = graph_of(node)
    except AttributeError:
        fgraph = None
    return link_utils.raise_with_op(fgraph, node, thunk, exc_info, storage_map)


def add_clear_storage(f, computed, storage_map):
    """Give a function ``f.clear_storage()``, which empties the cells of what is computed."""

    def clear_storage():
        for variable in computed:
            storage_map[variable][0] = None

    f.clear_storage = clear_storage


def make_function(self, unpack_single=True, **kwargs):
    """Return a function of the values of a linker's inputs, which returns those of its outputs."""
    thunk, inputs, outputs = self.make_thunk(**kwargs)

    def execute(*args):
        if len(args) != len(inputs):
            raise TypeError(f"Function call takes exactly {len(inputs)} args ({len(args)} given)")
        for container, value in zip(inputs, args, strict=True):
            container.data = value
        thunk()
        values = [container.data for container in outputs]
        return to_return_values(values) if unpack_single else values

    execute.thunk = thunk
    execute.inputs = inputs
    execute.outputs = outputs
    return execute
