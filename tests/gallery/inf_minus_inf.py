"""A difference of two overflowed exponentials; only NaN is watched for."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    a = pt.cumsum(pt.exp(x))
    b = pt.cumsum(pt.exp(2 * x))
    return [x], [a - b], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    x_low = pt.minimum(x, 10.0)
    a = pt.cumsum(pt.exp(x_low))
    b = pt.cumsum(pt.exp(2 * x_low))
    return [x], [a - b], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 900.0])]


TRUTH = {
    "watch": "nan",
    "op": "sub",
    "kind": "nan",
    "element": (1,),
    "operands": (np.inf, np.inf),
    "backward": False,
    "hint": "inf-minus-inf",
    "deeper": "exp",
}
