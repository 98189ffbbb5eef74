"""A loop that runs until its state is large, and overflows first."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.scan.utils import until


def model():
    """Return inputs, outputs and updates."""
    x = pt.dscalar("x")

    def step(state):
        grown = pt.exp(state)  # culprit
        return grown, until(grown < 0)

    states = pytensor.scan(step, outputs_info=[x], n_steps=20, return_updates=False)
    return [x], [states], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dscalar("x")

    def step(state):
        grown = pt.exp(pt.minimum(state, 20.0))
        return grown, until(grown < 0)

    states = pytensor.scan(step, outputs_info=[x], n_steps=20, return_updates=False)
    return [x], [states], []


def arguments():
    """Return the values of the inputs."""
    return [np.float64(1.0)]


TRUTH = {
    "watch": "inf",
    "op": "exp",
    "kind": "inf",
    "element": None,
    "operands": (np.exp(np.exp(np.e)),),
    "backward": False,
    "hint": "exp-overflow",
    "step": 3,
}
