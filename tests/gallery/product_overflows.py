"""Likelihoods multiplied up beyond what float64 holds."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    a = pt.dmatrix("a")
    b = pt.drow("b")
    joint = a * b  # culprit
    return [a, b], [joint], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 1e200], [2.0, 3.0]]), np.array([[5.0, 1e180]])]


TRUTH = {
    "watch": "inf",
    "op": "mul",
    "kind": "inf",
    "element": (0, 1),
    "operands": (1e200, 1e180),
    "backward": False,
    "hint": "product-overflow",
}
