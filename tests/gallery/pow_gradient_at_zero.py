"""The gradient of a power below one, at zero."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    y = (x**0.7).sum()  # culprit
    return [x], [pytensor.grad(y, x)], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    y = (pt.maximum(x, 1e-6) ** 0.7).sum()
    return [x], [pytensor.grad(y, x)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 0.0])]


TRUTH = {
    "op": "pow",
    "kind": "inf",
    "element": (1,),
    "operands": (0.0, -0.3),
    "backward": True,
    "hint": "pow-at-zero",
}
