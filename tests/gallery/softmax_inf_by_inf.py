"""A softmax written by hand overflows; only NaN is watched for."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    h = pt.dmatrix("h")
    e = pt.exp(h)
    p = e / (1.0 + e.sum(axis=1, keepdims=True))  # culprit
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
    "watch": "nan",
    "op": "true_div",
    "kind": "nan",
    "element": (1, 1),
    "operands": (np.inf, np.inf),
    "backward": False,
    "hint": "softmax-overflow",
    "deeper": "exp",
}
