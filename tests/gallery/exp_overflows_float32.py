"""An exponent that float64 would bear and float32 does not."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.fvector("x")
    return [x], [pt.exp(x * 2)], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.fvector("x")
    return [x], [pt.exp(pt.minimum(x * 2, 20))], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 50.0], dtype="float32")]


TRUTH = {
    "op": "exp",
    "kind": "inf",
    "element": (1,),
    "operands": (100.0,),
    "backward": False,
    "hint": "exp-overflow",
}
