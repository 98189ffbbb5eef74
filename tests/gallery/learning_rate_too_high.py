"""A step of gradient descent that leaps."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    w = pytensor.shared(np.array([1.0, 2.0]), name="w")
    loss = pt.sqr(x * w).sum()
    return [x], [], [(w, w - 1e9 * pytensor.grad(loss, w))]  # culprit


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 10.0])]


TRUTH = {
    "op": "mul",
    "kind": "big",
    "element": (1,),
    "operands": None,
    "backward": False,
    "hint": "diverging-update",
}
