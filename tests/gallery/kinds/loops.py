"""Loops over probabilities, which leave the range of their dtype on the way."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import stable


def survival(repaired=False):
    """The probability to survive many weeks, in a loop on one line."""
    hazard = pt.dvector("hazard")
    if repaired:
        return [hazard], [pt.log1p(-hazard).sum()], []
    alive = pytensor.scan(lambda h, p: p * (1 - h), hazard, pt.ones(()), return_updates=False)
    return [hazard], [pt.log(alive[-1])], []  # culprit


def emissions(repaired=False):
    """The densities of the observations underflow before the loop reads them."""
    y, mu = pt.dvectors("y", "mu")
    trans = pt.constant(np.array([[0.9, 0.1], [0.2, 0.8]]))
    logs = -0.5 * (y[:, None] - mu) ** 2
    if repaired:

        def step(e, a):
            return stable.logsumexp(a[:, None] + pt.log(trans), axis=0) + e

        a = pytensor.scan(
            step, sequences=[logs], outputs_info=[np.log([0.5, 0.5])], return_updates=False
        )
        return [y, mu], [stable.logsumexp(a[-1])], []

    def step(e, a):
        predicted = pt.dot(a, trans)
        return predicted * e

    a = pytensor.scan(
        fn=step,
        sequences=[pt.exp(logs)],
        outputs_info=[np.array([0.5, 0.5])],
        return_updates=False,
    )
    return [y, mu], [pt.log(a[-1].sum())], []  # culprit


def growing_weights(repaired=False):
    """Unnormalised weights grow in a loop that also counts its steps."""
    gain = pt.dvector("gain")
    start = pt.dvector("start")
    if repaired:
        return [gain, start], [stable.logsumexp(pt.log(start)) + gain.sum()], []

    def step(g, w, n):
        return w * pt.exp(g), n + 1

    (w, n) = pytensor.scan(
        step,
        sequences=gain,
        outputs_info=[start, np.float64(0)],
        return_updates=False,
    )
    total = w[-1].sum()
    return [gain, start], [pt.log(total), n[-1]], []


def kept_probabilities(repaired=False):
    """The probabilities themselves are a result: they stay what they are."""
    q = pt.dvector("q")
    p = pytensor.scan(lambda q, p: p * q, [q], [pt.ones(())], return_updates=False)
    log = pt.cumsum(pt.log(q)) if repaired else pt.log(p)  # culprit
    return [q], [log, p], []


TRUTH = {
    "survival": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "hazard",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.full(60, 1 - 1e-6),),
    },
    "emissions": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "y",
        "hint": "probability-underflow",
        "fault": "lost",
        "arguments": (np.array([0.3, 41.0, -0.2]), np.array([0.0, 1.0])),
    },
    "growing_weights": {
        "op": "mul",
        "kind": "inf",
        "element": (0,),
        "operands": (None, None),
        "start": "gain",
        "hint": "growing-state",
        "fault": "lost",
        "grade": "same",
        "watch": "inf",
        "arguments": (np.array([300.0, 300.0, 300.0]), np.array([0.5, 2.0])),
    },
    "kept_probabilities": {
        "op": "log",
        "kind": "inf",
        "element": (2,),
        "operands": (0.0,),
        "start": "q",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([1e-150, 1e-150, 1e-150]),),
    },
}
