"""A large number that is cast down to float32."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    y = x.astype("float32")  # culprit
    return [x], [y], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 1e39])]


TRUTH = {
    "watch": "inf",
    "op": "cast",
    "kind": "inf",
    "element": (1,),
    "operands": (1e39,),
    "backward": False,
    "hint": "cast-overflow",
}
