"""A switch masks the value of a logarithm, not its gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    used = pt.bmatrix("used")
    y = pt.switch(used, pt.log(x), 0.0)  # culprit
    return [x, used], [pytensor.grad(y.sum(), x)], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    used = pt.bmatrix("used")
    positive = x > 0
    y = pt.switch(pt.eq(used, 1) & positive, pt.log(pt.switch(positive, x, 1.0)), 0.0)
    return [x, used], [pytensor.grad(y.sum(), x)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 0.0]), np.array([[1, 1, 0], [0, 1, 0]], dtype="int8")]


TRUTH = {
    "watch": "nan",
    "op": "true_div",
    "kind": "nan",
    "element": (2,),
    "operands": (0.0, 0.0),
    "backward": True,
    "hint": "masked-gradient",
}
