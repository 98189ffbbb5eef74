"""Attention in which every key of a row is masked with -inf; only NaN is watched for."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    score = pt.dmatrix("score")
    keep = pt.bmatrix("keep")
    masked = pt.switch(keep, score, -np.inf)
    weight = pt.special.softmax(masked, axis=1)  # culprit
    return [score, keep], [weight], []


def repaired():
    """Return the same for the model with the fault repaired."""
    score = pt.dmatrix("score")
    keep = pt.bmatrix("keep")
    masked = pt.switch(keep, score, -1e9)
    weight = pt.special.softmax(masked, axis=1)
    return [score, keep], [weight], []


def arguments():
    """Return the values of the inputs."""
    return [np.ones((2, 2)), np.array([[1, 0], [0, 0]], dtype="int8")]


TRUTH = {
    "watch": "nan",
    "op": {"softmax", "sub"},
    "kind": "nan",
    "element": (1, 0),
    "operands": None,
    "backward": False,
    "hint": "softmax-of-infinity",
}
