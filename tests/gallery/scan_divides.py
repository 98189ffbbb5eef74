"""A division by a sequence's entry that is zero, at the third step."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    x = pt.dvector("x")

    def step(x_t, total):
        share = 1.0 / x_t  # culprit
        return total + share

    totals = pytensor.scan(
        step, sequences=[x], outputs_info=[pt.constant(0.0)], return_updates=False
    )
    return [x], [totals], []


def arguments():
    """Return the values of the inputs."""
    return [np.array([1.0, 2.0, 0.0, 4.0])]


TRUTH = {
    "op": {"true_div", "reciprocal"},
    "kind": "inf",
    "element": None,
    "operands": None,
    "backward": False,
    "hint": "division-by-zero",
}
