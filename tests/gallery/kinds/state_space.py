"""Hidden Markov models, Kalman filters and differential equations."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def hmm_in_probabilities(repaired=False):
    """The forward algorithm of a hidden Markov model multiplies probabilities."""
    emission, start = pt.dmatrix("emission"), pt.dvector("start")
    transition = pt.constant(np.array([[0.9, 0.1], [0.2, 0.8]]))

    def step(e, alpha, total):
        new = (alpha @ transition) * e
        if repaired:
            return new / new.sum(), total + pt.log(new.sum())
        return new, total

    zero = pt.constant(np.float64(0))
    (alphas, totals) = pytensor.scan(
        step, sequences=[emission], outputs_info=[start, zero], return_updates=False
    )
    likelihood = alphas[-1].sum()
    if repaired:
        return [emission, start], [-totals[-1]], []
    loss = -pt.log(likelihood)  # culprit
    return [emission, start], [loss], []


def hmm_in_logs(repaired=False):
    """In the log space no state can be reached, and the maximum that is subtracted is -inf."""
    log_emission, start = pt.dmatrix("log_emission"), pt.dvector("start")
    log_transition = pt.constant(np.log([[0.9, 0.1], [0.2, 0.8]]))

    def step(e, alpha):
        terms = alpha[:, None] + log_transition
        if repaired:
            return pt.logsumexp(pt.maximum(terms, -1e6), axis=0) + e
        top = terms.max(axis=0)
        return top + pt.log(pt.exp(terms - top).sum(axis=0)) + e  # culprit

    alphas = pytensor.scan(
        step, sequences=[log_emission], outputs_info=[start], return_updates=False
    )
    loss = pt.exp(alphas[-1]).sum()
    return [log_emission, start], [loss], []


def innovation_without_variance(repaired=False):
    """A Kalman filter without noise: prediction and observation have no variance."""
    y = pt.dvector("y")
    q, r = pt.dscalars("q", "r")

    def step(y_t, m, p):
        p_pred = p + q
        s = p_pred + r
        if repaired:
            s = s + 1e-9
        gain = p_pred / s  # culprit
        return m + gain * (y_t - m), (1 - gain) * p_pred

    (means, _) = pytensor.scan(
        step,
        sequences=[y],
        outputs_info=[pt.constant(np.float64(0)), pt.constant(np.float64(1))],
        return_updates=False,
    )
    return [y, q, r], [means[-1]], []


def negative_variance_of_a_filter(repaired=False):
    """A filter forgets a fixed amount of variance in each step, which is more than there is."""
    p, h = pt.dvector("p"), pt.dscalar("h")
    gain = p * h / (p * h * h + 1e-12)
    posterior = p - gain * h * p - 1e-8
    if repaired:
        posterior = pt.maximum(posterior, 1e-12)
    deviation = pt.sqrt(posterior)  # culprit
    return [p, h], [deviation.sum()], []


def stiff_equation(repaired=False):
    """Explicit Euler with a step that is too large for the equation."""
    y0, rate, dt = pt.dscalars("y0", "rate", "dt")

    def step(y):
        slope = -rate * y
        if repaired:
            return y / (1 + dt * rate)
        return y + dt * slope  # culprit

    path = pytensor.scan(step, outputs_info=[y0], n_steps=40, return_updates=False)
    return [y0, rate, dt], [path[-1]], []


def colliding_bodies(repaired=False):
    """The force between two bodies that are at the same place."""
    positions = pt.dmatrix("positions")
    delta = positions[0] - positions[1]
    r2 = (delta**2).sum()
    if repaired:
        r2 = r2 + 1e-6
    force = delta / r2**1.5  # culprit
    return [positions], [force], []


TRUTH = {
    "hmm_in_probabilities": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "emission",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.full((6, 2), 1e-70), np.array([0.5, 0.5])),
    },
    "hmm_in_logs": {
        "op": "sub",
        "kind": "nan",
        "element": (0, 0),
        "operands": (
            -np.inf,
            -np.inf,
        ),
        "start": "log_emission",
        "hint": "inf-minus-inf",
        "fault": "none",
        "grade": "same",
        "deeper": "input",
        "arguments": (np.array([[-1.0, -2.0], [-np.inf, -np.inf], [-1.0, -1.0]]), np.zeros(2)),
        "watch": "nan",
    },
    "innovation_without_variance": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "p",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (np.array([1.0, 2.0, 3.0]), 0.0, 0.0),
    },
    "negative_variance_of_a_filter": {
        "op": "sqrt",
        "kind": "nan",
        "element": (0,),
        "operands": (-9.99901e-09,),
        "start": "p",
        "hint": "sqrt-negative",
        "fault": "none",
        "arguments": (np.array([1e-10, 2.0]), 1.0),
    },
    "stiff_equation": {
        "op": "mul",
        "kind": "big",
        "element": (),
        "operands": (
            0.1,
            -50.0,
            4294970000.0,
        ),
        "start": "rate",
        "hint": "growing-state",
        "fault": "big",
        "arguments": (1.0, 50.0, 0.1),
    },
    "colliding_bodies": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "positions",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.0, 2.0], [1.0, 2.0]]),),
    },
}
