"""The branch that ran takes a root; the other one would have been bad too."""

import numpy as np
import pytensor.tensor as pt
from pytensor.ifelse import ifelse


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    root = pt.sqrt(x)  # culprit
    other = pt.log(pt.cumsum(x) - 9.0)
    return [x], [ifelse(x.sum() > 0, root, other)], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    root = pt.sqrt(pt.maximum(x, 1e-12))
    other = pt.log(pt.maximum(pt.cumsum(x) - 9.0, 1e-6))
    return [x], [ifelse(x.sum() > 0, root, other)], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([4.0, 1.0, -1.0])]


TRUTH = {
    "op": "sqrt",
    "kind": "nan",
    "element": (2,),
    "operands": (-1.0,),
    "backward": False,
    "hint": "sqrt-negative",
}
