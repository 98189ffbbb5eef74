"""The variance as E[x^2] - E[x]^2, of numbers with a large mean."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.fvector("x")
    variance = (x**2).mean() - x.mean() ** 2
    return [x], [pt.sqrt(variance)], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.fvector("x")
    return [x], [pt.sqrt(x.var() + np.float32(1e-6))], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([3001.125] * 3 + [3001.375] * 3, dtype="float32")]


TRUTH = {
    "op": "sqrt",
    "kind": "nan",
    "element": (),
    "operands": (-1.0,),
    "backward": False,
    "hint": "cancellation",
}
