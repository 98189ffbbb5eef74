"""A constant of the model holds a NaN."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")
    prior = pt.constant(np.array([0.1, np.nan, 0.3]), name="prior")
    return [x], [pt.cumsum(x) * prior], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")
    prior = pt.constant(np.array([0.1, 0.2, 0.3]), name="prior")
    return [x], [pt.cumsum(x) * prior], []


def arguments():
    """Return the values of the inputs."""
    return [np.ones(3)]


TRUTH = {
    "role": "constant",
    "op": None,
    "name": "prior",
    "kind": "nan",
    "element": (1,),
    "operands": (),
    "backward": False,
    "hint": "bad-constant",
}
