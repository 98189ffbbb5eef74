"""The state of a recurrent network grows until it overflows."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    h0 = pt.dvector("h0")
    w = pt.dmatrix("w")

    def step(h, w):
        return pt.sqr(h @ w)  # culprit

    states = pytensor.scan(
        step, outputs_info=[h0], non_sequences=[w], n_steps=8, return_updates=False
    )
    return [h0, w], [states[-1].sum()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    h0 = pt.dvector("h0")
    w = pt.dmatrix("w")

    def step(h, w):
        return pt.tanh(h @ w)

    states = pytensor.scan(
        step, outputs_info=[h0], non_sequences=[w], n_steps=8, return_updates=False
    )
    return [h0, w], [states[-1].sum()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0]), 3.0 * np.eye(2)]


TRUTH = {
    "op": "sqr",
    "kind": "big",
    "element": (0,),
    "operands": (14348907.0,),
    "backward": False,
    "hint": "exploding-state",
    "step": 3,
}
