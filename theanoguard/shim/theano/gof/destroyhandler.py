"""Keeping in-place operations in order."""

from pytensor.graph.destroyhandler import inplace_candidates

from ._graphs import graph_of


def fast_inplace_check(inputs):
    """Return those of a graph's variables that an operation may overwrite."""
    return inplace_candidates(graph_of(inputs[0]), inputs)
