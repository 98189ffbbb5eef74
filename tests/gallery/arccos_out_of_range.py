"""The angle between two vectors whose cosine has rounded above one."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    u = pt.dvector("u")
    cosine = u * 1.0000001
    return [u], [pt.arccos(cosine)], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    u = pt.dvector("u")
    cosine = pt.clip(u * 1.0000001, -1 + 1e-7, 1 - 1e-7)
    return [u], [pt.arccos(cosine)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([0.5, 1.0])]


TRUTH = {
    "op": "arccos",
    "kind": "nan",
    "element": (1,),
    "operands": (1.0000001,),
    "backward": False,
    "hint": "arc-out-of-range",
}
