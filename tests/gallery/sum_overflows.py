"""A sum of finite numbers that does not fit into float64."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dmatrix("x")
    total = x.sum(axis=1)  # culprit
    return [x], [total], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 2.0], [1.5e308, 1e308]])]


TRUTH = {
    "watch": "inf",
    "op": "sum",
    "kind": "inf",
    "element": (1,),
    "operands": None,
    "backward": False,
    "hint": "sum-overflow",
}
