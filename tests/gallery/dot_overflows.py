"""A product of matrices that does not fit into float32."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.fmatrix("x")
    w = pt.fmatrix("w")
    y = x @ w  # culprit
    return [x, w], [y], []


def arguments():
    """Return the values of the inputs."""
    x = np.ones((2, 3), dtype="float32")
    w = np.ones((3, 2), dtype="float32")
    x[1, 2], w[2, 0] = 1e20, 1e20
    return [x, w]


TRUTH = {
    "watch": "inf",
    "op": "dot",
    "kind": "inf",
    "element": (1, 0),
    "operands": None,
    "backward": False,
    "hint": "dot-overflow",
}
