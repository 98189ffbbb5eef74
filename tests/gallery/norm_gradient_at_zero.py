"""The gradient of a norm at a weight of zero."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    w = pytensor.shared(np.zeros(3), name="w")
    norm = pt.sqrt((w**2).sum())  # culprit
    loss = (x * w).sum() + 0.1 * norm
    return [x], [loss], [(w, w - 0.1 * pytensor.grad(loss, w))]


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    w = pytensor.shared(np.zeros(3), name="w")
    norm = pt.sqrt((w**2).sum() + 1e-12)
    loss = (x * w).sum() + 0.1 * norm
    return [x], [loss], [(w, w - 0.1 * pytensor.grad(loss, w))]


def arguments():
    """Return the values of the inputs."""
    return [np.ones(3)]


TRUTH = {
    "op": "true_div",
    "kind": "nan",
    "element": (0,),
    "operands": (0.0, 0.0),
    "backward": True,
    "hint": "norm-gradient-at-zero",
}
