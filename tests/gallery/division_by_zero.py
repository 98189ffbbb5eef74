"""A rate over an interval of no length."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    events = pt.dvector("events")
    time = pt.dvector("time")
    rate = events / time  # culprit
    return [events, time], [rate.max()], []


def repaired():
    """Return the same for the model with the fault repaired."""
    events = pt.dvector("events")
    time = pt.dvector("time")
    rate = events / pt.maximum(time, 1e-3)
    return [events, time], [rate.max()], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.0])]


TRUTH = {
    "op": "true_div",
    "kind": "inf",
    "element": (2,),
    "operands": (3.0, 0.0),
    "backward": False,
    "hint": "division-by-zero",
}
