"""The logarithm of a probability minus one half, after a linear layer."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dmatrix("x")
    y = pt.lvector("y")
    w = pytensor.shared(np.array([[0.5, -1.0], [1.0, 0.25]]), name="w")
    h = x @ w
    p = pt.special.softmax(h, axis=1)
    nll = -pt.log(p[pt.arange(y.shape[0]), y] - 0.5)  # culprit
    loss = nll.mean()
    return [x, y], [loss], [(w, w - 0.1 * pytensor.grad(loss, w))]


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dmatrix("x")
    y = pt.lvector("y")
    w = pytensor.shared(np.array([[0.5, -1.0], [1.0, 0.25]]), name="w")
    h = x @ w
    log_p = pt.special.log_softmax(h, axis=1)
    nll = -log_p[pt.arange(y.shape[0]), y]
    loss = nll.mean()
    return [x, y], [loss], [(w, w - 0.1 * pytensor.grad(loss, w))]


def arguments():
    """Return the values of the inputs."""
    return [np.array([[1.0, 1.0], [1.0, 2.0], [2.0, -1.0]]), np.array([0, 1, 1])]


TRUTH = {
    "op": "log",
    "kind": "nan",
    "element": (1,),
    "operands": (1 / (1 + np.exp(3.0)) - 0.5,),
    "backward": False,
    "hint": "log-negative",
}
