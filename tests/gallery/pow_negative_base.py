"""A fractional power of a negative number."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    y = x**1.3  # culprit
    return [x], [y.sum()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    y = pt.maximum(x, 0.0) ** 1.3
    return [x], [y.sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, -0.5])]


TRUTH = {
    "op": "pow",
    "kind": "nan",
    "element": (2,),
    "operands": (-0.5, 1.3),
    "backward": False,
    "hint": "pow-negative-base",
}
