"""A division in the middle of a chain of ten operations, all fused into one."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    a = pt.tanh(x) + 1.0
    b = pt.sqr(a) - 0.5 * x
    c = pt.exp(-b)
    d = (1.0 + c) / (x - 3.0)  # culprit
    e = pt.sigmoid(d) * 2.0
    return [x], [pt.sqr(e) + d], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    a = pt.tanh(x) + 1.0
    b = pt.sqr(a) - 0.5 * x
    c = pt.exp(pt.minimum(-b, 20.0))
    gap = x - 3.0
    d = (1.0 + c) / pt.switch(pt.abs(gap) < 1e-3, 1e-3, gap)
    e = pt.sigmoid(d) * 2.0
    return [x], [pt.sqr(e) + d], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 3.0, 4.0])]


TRUTH = {
    "op": "true_div",
    "kind": "inf",
    "element": (2,),
    "operands": (None, 0.0),
    "backward": False,
    "hint": "division-by-zero",
}
