"""A large graph: the work grows with its size, and what is stored of it has a limit."""

import sys
from functools import partial

import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

from theanoguard import inspect_graph, track_provenance


def chain(n):
    """A function of n logarithms that one line of a loop builds."""
    x = y = pt.dvector("x")
    for _ in range(n):
        y = pt.log(y)
    with track_provenance():
        return pytensor.function([x], y, mode=Mode("py", None))


def tree(function):
    return inspect_graph(function).html()


def calls(work):
    """How many functions some work calls."""
    count = 0

    def tell(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_of_a_tree_grows_with_its_nodes():
    tree(chain(1))  # (what is loaded when it is first used)
    small, large = (calls(partial(tree, chain(n))) for n in (250, 500))
    assert large < 2.2 * small
