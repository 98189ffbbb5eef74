"""A mask of zeros multiplied onto an infinity; only NaN is watched for."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    mask = pt.dvector("mask")
    x = pt.dvector("x")
    loss = mask * pt.log(x)  # culprit
    return [mask, x], [loss.sum()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    mask = pt.dvector("mask")
    x = pt.dvector("x")
    loss = mask * pt.log(pt.maximum(x, 1e-12))
    return [mask, x], [loss.sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, 0.0])]


TRUTH = {
    "watch": "nan",
    "op": "mul",
    "kind": "nan",
    "element": (2,),
    "operands": {0.0, -np.inf},
    "backward": False,
    "hint": "zero-times-inf",
    "deeper": "log",
}
