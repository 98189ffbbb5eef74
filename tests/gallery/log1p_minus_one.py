"""log(1 - p) of a probability that has rounded to one."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    z = pt.dvector("z")
    p = pt.clip(z, 0, 1)
    r = pt.log1p(-p)  # culprit
    return [z], [r.sum()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    z = pt.dvector("z")
    p = pt.clip(z, 0, 1 - 1e-7)
    r = pt.log1p(-p)
    return [z], [r.sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([0.3, 1.0])]


TRUTH = {
    "op": "log1p",
    "kind": "inf",
    "element": (1,),
    "operands": (-1.0,),
    "backward": False,
    "hint": "log1p-minus-one",
}
