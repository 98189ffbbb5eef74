"""A missing value in the data."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dmatrix("x")
    return [x], [pt.tanh(x).sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 2.0], [np.nan, 4.0]])]


TRUTH = {
    "role": "input",
    "op": None,
    "name": "x",
    "kind": "nan",
    "element": (1, 0),
    "operands": (),
    "backward": False,
    "hint": "missing-data",
}
