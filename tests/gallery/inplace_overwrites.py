"""The culprit is computed in place: its own result overwrites the evidence."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    s = pt.cumsum(x)
    r = pt.log(s)  # culprit
    return [x], [r, pt.cumsum(r)], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    s = pt.cumsum(x)
    r = pt.log(pt.maximum(s, 1e-6))
    return [x], [r, pt.cumsum(r)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, -0.5, -2.0, 4.0])]


TRUTH = {
    "op": "log",
    "kind": "nan",
    "element": (2,),
    "operands": (-1.5,),
    "backward": False,
    "hint": "log-negative",
}
