"""A softmax written by hand overflows."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    h = pt.dmatrix("h")
    e = pt.exp(h)  # culprit
    p = e / (1.0 + e.sum(axis=1, keepdims=True))
    return [h], [p.mean()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    h = pt.dmatrix("h")
    e = pt.exp(h - h.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    return [h], [p.mean()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 2.0], [3.0, 800.0]])]


TRUTH = {
    "op": "exp",
    "kind": "inf",
    "element": (1, 1),
    "operands": (800.0,),
    "backward": False,
    "hint": "exp-overflow",
}
