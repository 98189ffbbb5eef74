"""A normalisation divides an empty row by its own sum."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    counts = pt.dmatrix("counts")
    share = counts / counts.sum(axis=1, keepdims=True)  # culprit
    return [counts], [share], []


def repaired():
    """Return the same for the model with the fault repaired."""
    counts = pt.dmatrix("counts")
    share = counts / pt.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return [counts], [share], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 0.0]])]


TRUTH = {
    "op": "true_div",
    "kind": "nan",
    "element": (2, 0),
    "operands": (0.0, 0.0),
    "backward": False,
    "hint": "zero-by-zero",
}
