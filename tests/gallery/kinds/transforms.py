"""Transforms and links: flows, Box-Cox, logits, differences of exponentials."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def planar_flow(repaired=False):
    """The log-determinant of a planar flow whose weights make it fold."""
    z = pt.dmatrix("z")
    w = pytensor.shared(np.array([1.0, 2.0]), name="w")
    u = pytensor.shared(np.array([-1.0, -0.5]), name="u")
    scale = u
    if repaired:
        wu = (w * u).sum()
        scale = u + (pt.softplus(wu) - 1 - wu) * w / (w**2).sum()
    slope = 1 - pt.tanh(z @ w) ** 2
    det = 1 + slope * (w * scale).sum()
    logdet = pt.log(det)  # culprit
    return [z], [logdet.sum()], []


def box_cox(repaired=False):
    """The Box-Cox transform at lambda = 0, where it is a logarithm."""
    x, lam = pt.dvector("x"), pt.dscalar("lam")
    if repaired:
        safe = pt.switch(pt.eq(lam, 0), 1.0, lam)
        y = pt.switch(pt.eq(lam, 0), pt.log(x), (x**safe - 1) / safe)
    else:
        y = (x**lam - 1) / lam  # culprit
    return [x, lam], [y.mean()], []


def discretised_logistic(repaired=False):
    """The probability of a pixel is a difference of two sigmoids far in the tail."""
    x, mu, s = pt.dvector("x"), pt.dscalar("mu"), pt.dscalar("s")
    upper, lower = (x + 0.5 - mu) / s, (x - 0.5 - mu) / s
    if repaired:
        ll = -pt.softplus(-upper) + pt.log1mexp(pt.softplus(-upper) - pt.softplus(-lower))
    else:
        p = pt.sigmoid(upper) - pt.sigmoid(lower)
        ll = pt.log(p)  # culprit
    return [x, mu, s], [ll.sum()], []


def defensive_importance_weight(repaired=False):
    """An importance weight with a mixture of two normals as the proposal."""
    x, mu = pt.dvector("x"), pt.dscalar("mu")
    log_p, log_q, log_r = -0.5 * x**2, -0.5 * (x - mu) ** 2, -0.5 * (x + mu) ** 2
    if repaired:
        log_weight = log_p - pt.logaddexp(log_q, log_r) + np.log(2)
    else:
        weight = pt.exp(log_p) / (0.5 * pt.exp(log_q) + 0.5 * pt.exp(log_r))  # culprit
        log_weight = pt.log(weight)
    return [x, mu], [log_weight.mean()], []


def arcsine_of_share(repaired=False):
    """The arcsine transform of a share that is given in percent."""
    share = pt.dvector("share")
    part = share / 100 if repaired else share
    angle = pt.arcsin(pt.sqrt(part))  # culprit
    return [share], [angle.mean()], []


def tanh_by_hand(repaired=False):
    """A squashing function of its own: inf / inf."""
    x = pt.dvector("x")
    y = (pt.exp(2 * x) - 1) / (pt.exp(2 * x) + 1)  # culprit
    if repaired:
        y = pt.tanh(x)
    return [x], [y.sum()], []


def squashed_gaussian(repaired=False):
    """The log-probability of an action that tanh has squashed to exactly 1."""
    pre = pt.dvector("pre")
    if repaired:
        correction = 2 * (np.log(2) - pre - pt.softplus(-2 * pre))
    else:
        action = pt.tanh(pre)
        correction = pt.log(1 - action**2)  # culprit
    return [pre], [(-0.5 * pre**2 - correction).sum()], []


def log_mean_exp(repaired=False):
    """The marginal likelihood from log-likelihoods of draws: log(mean(exp(x)))."""
    ll = pt.dvector("ll")
    n = ll.shape[0]
    evidence = pt.log(pt.mean(pt.exp(ll)))  # culprit
    if repaired:
        evidence = pt.logsumexp(ll) - pt.log(n)
    return [ll], [evidence], []


def gumbel_gradient(repaired=False):
    """Gumbel noise from a uniform number of 0."""
    logits, u = pt.dvectors("logits", "u")
    v = pt.clip(u, 1e-12, 1) if repaired else u
    noise = -pt.log(-pt.log(v))  # culprit
    return [logits, u], [pt.special.softmax(logits + noise)], []


TRUTH = {
    "planar_flow": {
        "op": "log",
        "kind": "nan",
        "element": (0,),
        "operands": (-0.572895,),
        "start": "w",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([[0.1, 0.2], [3.0, 1.0]]),),
    },
    "box_cox": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": None,
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (
            np.array([1.0, 2.0, 3.0]),
            0.0,
        ),
    },
    "discretised_logistic": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "x",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([3.0, 250.0]),
            2.0,
            0.5,
        ),
    },
    "defensive_importance_weight": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.5, 60.0]),
            1.0,
        ),
    },
    "arcsine_of_share": {
        "op": "arcsin",
        "kind": "nan",
        "element": (1,),
        "operands": (6.7082,),
        "start": "share",
        "hint": "arc-out-of-range",
        "fault": "none",
        "arguments": (np.array([0.3, 45.0]),),
    },
    "tanh_by_hand": {
        "op": "exp",
        "kind": "inf",
        "element": (1,),
        "operands": (800.0,),
        "start": "x",
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.5, 400.0]),),
    },
    "squashed_gaussian": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "pre",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.5, 25.0]),),
    },
    "log_mean_exp": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "ll",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([-800.0, -810.0]),),
    },
    "gumbel_gradient": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "harmless",
        "arguments": (
            np.array([0.5, 1.0]),
            np.array([0.3, 0.0]),
        ),
    },
}
