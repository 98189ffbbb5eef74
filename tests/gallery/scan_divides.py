"""A division by a sequence's entry that is zero, at the third step."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")

    def step(x_t, total):
        return (total + 1.0) / x_t  # culprit

    totals = pytensor.scan(step, sequences=[x], outputs_info=[pt.zeros(())], return_updates=False)
    return [x], [totals], []


def repaired():
    """Return the same for the model with the fault repaired."""
    x = pt.dvector("x")

    def step(x_t, total):
        return pt.clip((total + 1.0) / pt.maximum(x_t, 1e-3), -1e6, 1e6)

    totals = pytensor.scan(step, sequences=[x], outputs_info=[pt.zeros(())], return_updates=False)
    return [x], [totals], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 0.0, 4.0])]


TRUTH = {
    "op": "true_div",
    "kind": "inf",
    "element": (),
    "operands": (2.0, 0.0),
    "backward": False,
    "hint": "division-by-zero",
    "step": 2,
}
