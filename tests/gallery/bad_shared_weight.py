"""A weight that was loaded with an infinity in it."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    w = pytensor.shared(np.array([1.0, np.inf, 2.0]), name="w")
    return [x], [(x * w).sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.ones(3)]


TRUTH = {
    "role": "shared",
    "op": None,
    "name": "w",
    "kind": "inf",
    "element": (1,),
    "operands": (),
    "backward": False,
    "hint": "bad-shared",
}
