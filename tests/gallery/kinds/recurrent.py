"""Recurrent networks: gates and states in scan, and their gradients."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def exponential_gate(repaired=False):
    """An LSTM whose exponential input gate overflows."""
    x, c0 = pt.dmatrix("x"), pt.dvector("c0")
    w = pt.dvector("w")

    def step(x_t, c):
        z = w * x_t + c
        if repaired:
            z = pt.minimum(z, 5.0)
        gate = pt.exp(z)  # culprit
        return 0.5 * c + gate * pt.tanh(x_t)

    cells = pytensor.scan(step, sequences=[x], outputs_info=[c0], return_updates=False)
    return [x, c0, w], [cells[-1].sum()], []


def normalised_gru_state(repaired=False):
    """A GRU divides its state by its norm, and the state becomes 0."""
    x, h0 = pt.dmatrix("x"), pt.dvector("h0")

    def step(x_t, h):
        z = pt.sigmoid(x_t)
        new = (1 - z) * h + z * pt.tanh(x_t * 0)
        new = new * (x_t.sum() > 0)
        norm = pt.sqrt((new**2).sum())
        if repaired:
            norm = norm + 1e-6
        return new / norm  # culprit

    states = pytensor.scan(step, sequences=[x], outputs_info=[h0], return_updates=False)
    return [x, h0], [states[-1].sum()], []


def log_of_gate(repaired=False):
    """A hard gate is 0 in the third step, and its logarithm is summed up."""
    x, total = pt.dvector("x"), pt.dscalar("total")

    def step(x_t, total):
        gate = pt.clip(0.2 * x_t + 0.5, 1e-3 if repaired else 0.0, 1.0)
        penalty = pt.log(gate)  # culprit
        return total - penalty

    totals = pytensor.scan(step, sequences=[x], outputs_info=[total], return_updates=False)
    return [x, total], [totals[-1]], []


def exploding_gradient(repaired=False):
    """The gradient through many steps grows by the same factor in each."""
    h0, w = pt.dvector("h0"), pt.dscalar("w")

    def step(h):
        factor = 0.1 * w if repaired else w
        return factor * h  # culprit

    states = pytensor.scan(step, outputs_info=[h0], n_steps=12, return_updates=False)
    loss = pt.tanh(states[-1] / 1e9).sum() * 1e9
    return [h0, w], [pytensor.grad(loss, h0)], []


def gradient_of_root_in_a_loop(repaired=False):
    """A loop takes roots of rectified values; the gradient of one is infinite."""
    x, total = pt.dvector("x"), pt.dscalar("total")

    def step(x_t, total):
        rectified = pt.maximum(x_t, 1e-6 if repaired else 0)
        return total + pt.sqrt(rectified)  # culprit

    totals = pytensor.scan(step, sequences=[x], outputs_info=[total], return_updates=False)
    return [x, total], [pytensor.grad(totals[-1], x)], []


TRUTH = {
    "exponential_gate": {
        "op": "exp",
        "kind": "inf",
        "element": (1,),
        "operands": (111590.0,),
        "start": "x",
        "hint": "exp-overflow",
        "fault": "too large",
        "arguments": (
            np.array([[0.1, 1.0], [1.0, 3.0], [2.0, 3.0], [1.0, 3.0]]),
            np.zeros(2),
            np.array([1.0, 2.0]),
        ),
    },
    "normalised_gru_state": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.0, 0.5], [-1.0, 0.5]]), np.ones(2)),
    },
    "log_of_gate": {
        "op": "log",
        "kind": "inf",
        "element": (2,),
        "operands": (0.0,),
        "start": "x",
        "hint": "log-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([0.5, -2.0, -800.0, 1.0]), 0.0),
    },
    "exploding_gradient": {
        "line": "of the loop",
        "op": "mul",
        "kind": "big",
        "element": (0,),
        "operands": (
            3222800000.0,
            9.0,
        ),
        "start": "w",
        "hint": "growing-gradient",
        "fault": "unknown",
        "arguments": (np.array([1e-3, 1e-3]), 9.0),
    },
    "gradient_of_root_in_a_loop": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "gradient-at-zero",
        "fault": "none",
        "grade": "same",
        "arguments": (np.array([4.0, 1.0, -1.0, 2.0]), 0.0),
    },
}
