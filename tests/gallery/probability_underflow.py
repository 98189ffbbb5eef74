"""The product of many probabilities underflows in float32, and its logarithm is taken."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    p = pt.fmatrix("p")
    likelihood = p.prod(axis=1)
    score = pt.log(likelihood)  # culprit
    return [p], [score], []


def repaired():
    """Return the same for the model with the fault repaired."""
    p = pt.fmatrix("p")
    score = pt.log(pt.maximum(p, np.float32(1e-30))).sum(axis=1)
    return [p], [score], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[0.5] * 40, [1e-3] * 40], dtype="float32")]


TRUTH = {
    "op": "log",
    "kind": "inf",
    "element": (1,),
    "operands": (0.0,),
    "backward": False,
    "hint": "probability-underflow",
}
