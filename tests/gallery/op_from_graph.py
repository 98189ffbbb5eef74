"""A logarithm inside an operation built from a graph."""

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph


def model():
    """Return inputs, outputs and updates."""
    a = pt.dvector("a")
    b = pt.dvector("b")
    inner = pt.log(a - b)  # culprit
    op = OpFromGraph([a, b], [inner * 2.0 + 1.0])
    x = pt.dvector("x")
    return [x], [op(x, x + pt.arange(3) - 1.0)], []


def repaired():
    """Return the same for the model with the fault repaired."""
    a = pt.dvector("a")
    b = pt.dvector("b")
    inner = pt.log(pt.maximum(a - b, 1e-6))
    op = OpFromGraph([a, b], [inner * 2.0 + 1.0])
    x = pt.dvector("x")
    return [x], [op(x, x + pt.arange(3) - 1.0)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 3.0])]


TRUTH = {
    "op": "log",
    "kind": "inf",
    "element": (1,),
    "operands": (0.0,),
    "backward": False,
    "hint": "log-zero",
}
