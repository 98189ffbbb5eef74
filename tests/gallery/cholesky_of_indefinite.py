"""A covariance matrix that is not positive definite."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.slinalg import cholesky


def model():
    """Return inputs, outputs and updates."""
    k = pt.dmatrix("k")
    c = cholesky(k, on_error="nan")  # culprit
    return [k], [c.sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 2.0], [2.0, 1.0]])]


TRUTH = {
    "op": "cholesky",
    "kind": "nan",
    "element": (0, 0),
    "operands": None,
    "backward": False,
    "hint": "cholesky-not-positive-definite",
}
