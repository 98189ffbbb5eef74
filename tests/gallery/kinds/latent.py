"""Variational autoencoders and mixtures."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import stable


def kl_of_encoder(repaired=False):
    """The logarithm of the variance that an encoder gives is far too large."""
    h, w = pt.dmatrix("h"), pt.dmatrix("w")
    logvar = h @ w
    logvar = pt.clip(logvar, -10, 10) if repaired else logvar
    kl = 0.5 * (pt.exp(logvar) - logvar - 1).sum(axis=1)  # culprit
    return [h, w], [kl.mean()], []


def likelihood_of_decoder(repaired=False):
    """A Bernoulli likelihood from probabilities that are exactly 0 and 1."""
    z, x = pt.dmatrices("z", "x")
    if repaired:
        nll = pt.softplus(z) - x * z
    else:
        p = 0.5 * pt.tanh(z) + 0.5
        nll = -(x * pt.log(p) + (1 - x) * pt.log(1 - p))  # culprit
    return [z, x], [nll.sum()], []


def gate_by_hand(repaired=False):
    """A saturating function written with two exponentials: inf / inf."""
    z, x = pt.dvectors("z", "x")
    small = pt.minimum(z, 20.0) if repaired else z
    p = pt.exp(small) / (2 + pt.exp(small))  # culprit
    loss = ((x - p) ** 2).sum()
    return [z, x], [pytensor.grad(loss, z)], []


def mixture_density_underflows(repaired=False):
    """All components of a mixture are too far away."""
    x, mu = pt.dvectors("x", "mu")
    logs = -0.5 * (x[:, None] - mu[None, :]) ** 2
    if repaired:
        ll = stable.logsumexp(logs, axis=1)
    else:
        density = pt.exp(logs).sum(axis=1)
        ll = pt.log(density)  # culprit
    return [x, mu], [ll.sum(), pytensor.grad(ll.sum(), mu)], []


def responsibilities(repaired=False):
    """Responsibilities of a point that no component explains: 0 / 0."""
    x, mu = pt.dvectors("x", "mu")
    logs = -0.5 * (x[:, None] - mu[None, :]) ** 2
    if repaired:
        logs = logs - logs.max(axis=1, keepdims=True)
    density = 0.3 * pt.exp(logs)
    r = density / density.sum(axis=1, keepdims=True)  # culprit
    return [x, mu], [r.sum(axis=0)], []


def collapsed_component(repaired=False):
    """A component of a mixture sits on one point: its variance is 0."""
    x, r = pt.dvectors("x", "r")
    size = r.sum() + (1e-8 if repaired else 0)
    mu = (r * x).sum() / size
    var = (r * (x - mu) ** 2).sum() / size
    if repaired:
        var = var + 1e-3
    ll = -0.5 * (x - mu) ** 2 / var  # culprit
    return [x, r], [ll.sum()], []


TRUTH = {
    "kl_of_encoder": {
        "op": "exp",
        "kind": "big",
        "element": (1, 0),
        "operands": (600.0,),
        "start": "h",
        "hint": "exp-big",
        "fault": "big",
        "arguments": (np.array([[1.0, 2.0], [300.0, 300.0]]), np.ones((2, 2))),
    },
    "likelihood_of_decoder": {
        "op": "log",
        "kind": "inf",
        "element": (0, 1),
        "operands": (0.0,),
        "start": "z",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([[1.0, 40.0], [0.0, -1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])),
    },
    "gate_by_hand": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            np.inf,
            np.inf,
        ),
        "start": None,
        "hint": "inf-by-inf",
        "fault": "lost",
        "grade": "same",
        "deeper": "exp",
        "arguments": (np.array([1.0, 800.0]), np.array([0.0, 1.0])),
        "watch": "nan",
    },
    "mixture_density_underflows": {
        "op": "true_div",
        "kind": "nan",
        "element": (2, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.0, 1.0, 60.0]), np.array([0.0, 1.0])),
    },
    "responsibilities": {
        "op": "true_div",
        "kind": "nan",
        "element": (2, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.0, 1.0, 60.0]), np.array([0.0, 1.0])),
    },
    "collapsed_component": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            -2.0,
            0.0,
        ),
        "start": "x",
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (np.array([3.0, 1.0]), np.array([1.0, 0.0])),
    },
}
