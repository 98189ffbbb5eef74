"""The logarithm of a count that is zero."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    n = pt.dvector("n")
    return [n], [pt.log(n).sum()], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    n = pt.dvector("n")
    return [n], [pt.log(pt.maximum(n, 1e-12)).sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 0.0, 3.0])]


TRUTH = {
    "op": "log",
    "kind": "inf",
    "element": (1,),
    "operands": (0.0,),
    "backward": False,
    "hint": "log-zero",
}
