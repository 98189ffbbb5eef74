"""Losses and likelihoods."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def kl_with_empty_bin(repaired=False):
    """A bin of the second histogram is empty in the data."""
    p, q = pt.dvectors("p", "q")
    other = pt.maximum(q, 1e-9) if repaired else q
    ratio = p / other  # culprit
    return [p, q], [(p * pt.log(ratio)).sum()], []


def poisson_of_zero_rate(repaired=False):
    """A Poisson likelihood whose rate is 0 because the exposure is."""
    k, exposure, rate = pt.dvectors("k", "exposure", "rate")
    mu = exposure * rate
    if repaired:
        mu = mu + 1e-9
    ll = k * pt.log(mu) - mu  # culprit
    return [k, exposure, rate], [ll.sum()], []


def perplexity(repaired=False):
    """The perplexity of a loss that is too large for an exponential."""
    loss = pt.dvector("loss")
    total = loss.mean() if repaired else loss.sum()
    perplexity = pt.exp(total)  # culprit
    return [loss], [perplexity], []


def logit_of_certainty(repaired=False):
    """The logit of a probability of 1."""
    p = pt.dvector("p")
    q = pt.clip(p, 1e-6, 1 - 1e-6) if repaired else p
    logit = pt.log(q / (1 - q))  # culprit
    return [p], [logit.sum()], []


def beta_at_the_edge(repaired=False):
    """A beta likelihood of an observation at the edge of the support."""
    x, a, b = pt.dvector("x"), pt.dscalar("a"), pt.dscalar("b")
    y = pt.clip(x, 1e-6, 1 - 1e-6) if repaired else x
    ll = (a - 1) * pt.log(y) + (b - 1) * pt.log1p(-y)  # culprit
    return [x, a, b], [ll.sum()], []


def gamma_pole(repaired=False):
    """gammaln at 0: a count of -1 stands for what is missing."""
    counts = pt.dvector("counts")
    known = pt.maximum(counts, 0) if repaired else counts
    ll = -pt.gammaln(known + 1)  # culprit
    return [counts], [ll.sum()], []


def softplus_by_hand(repaired=False):
    """log(2 + exp(x)) overflows in float32."""
    x = pt.fvector("x")
    small = pt.minimum(x, np.float32(20)) if repaired else x
    e = pt.exp(small)  # culprit
    y = pt.log(2 + e)
    return [x], [y.sum()], []


def quantile_of_one(repaired=False):
    """The normal quantile of 1."""
    u = pt.dvector("u")
    v = pt.clip(u, 1e-9, 1 - 1e-9) if repaired else u
    z = np.sqrt(2.0) * pt.erfinv(2 * v - 1)  # culprit
    return [u], [z.sum()], []


def log_of_prices(repaired=False):
    """The logarithm of a ratio of prices, of which one is missing and written as -1."""
    price = pt.dvector("price")
    paid = pt.maximum(price, 0.01) if repaired else price
    ratio = paid[1:] / paid[:-1]
    returns = pt.log(ratio)  # culprit
    return [price], [returns.sum()], []


def log_softmax_by_hand(repaired=False):
    """The logarithm of a softmax, as a sum over a flattened batch."""
    h = pt.dmatrix("h")
    e = pt.exp(h - h.max(axis=1, keepdims=True))
    p = e / (e.sum(axis=1, keepdims=True) + 1e-30)
    if repaired:
        p = pt.maximum(p, 1e-9)
    logs = pt.log(p)  # culprit
    loss = -logs[:, 0].mean()
    return [h], [loss, pytensor.grad(loss, h)], []


def harmonic_mean(repaired=False):
    """The harmonic mean of numbers of which one is 0."""
    x = pt.dvector("x")
    known = x + 1e-9 if repaired else x
    inverse = 1 / known  # culprit
    return [x], [1 / inverse.mean()], []


def entropic_transport(repaired=False):
    """Sinkhorn: the kernel of a small regularisation underflows, and a row is divided by 0."""
    cost, eps = pt.dmatrix("cost"), pt.dscalar("eps")
    heat = pt.maximum(eps, 0.1) if repaired else eps
    kernel = pt.exp(-cost / heat)
    v = pt.constant(np.full(2, 0.5))
    u = 0.5 / (kernel @ v)  # culprit
    return [cost, eps], [u.sum()], []


def survival_of_time_zero(repaired=False):
    """A Weibull hazard with a shape below 1 is infinite at time 0."""
    t = pt.dvector("t")
    raw = pytensor.shared(np.array([0.2, -0.3]), name="raw")
    scale, shape = pt.exp(raw[0]), pt.exp(raw[1])
    since = pt.maximum(t, 1e-3) if repaired else t
    hazard = shape / scale * (since / scale) ** (shape - 1)  # culprit
    loss = ((since / scale) ** shape - pt.log(hazard)).sum()
    return [t], [loss, pytensor.grad(loss, raw)], []


def saturated_cross_entropy(repaired=False):
    """A cross-entropy by hand, of sigmoids that are 0 and 1."""
    z, y = pt.dmatrix("z"), pt.dvector("y")
    p = pt.clip(pt.sigmoid(z), 0, 1)[:, 0]
    log_p, log_q = pt.log(p), pt.log(1 - p)  # culprit
    if repaired:
        log_p, log_q = -pt.softplus(-z)[:, 0], -pt.softplus(z)[:, 0]
    loss = -(y * log_p + (1 - y) * log_q).mean()
    return [z, y], [loss, pytensor.grad(loss, z)], []


TRUTH = {
    "kl_with_empty_bin": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            0.5,
            0.0,
        ),
        "start": None,
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (np.array([0.5, 0.5]), np.array([1.0, 0.0])),
    },
    "poisson_of_zero_rate": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "exposure",
        "hint": "log-zero",
        "fault": "none",
        "arguments": (np.array([1.0, 2.0]), np.array([1.0, 0.0]), np.array([0.5, 3.0])),
    },
    "perplexity": {
        "op": "exp",
        "kind": "inf",
        "element": (),
        "operands": (750.0,),
        "start": "loss",
        "hint": "exp-overflow",
        "fault": "too large",
        "arguments": (np.full(50, 15.0),),
    },
    "logit_of_certainty": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            1.0,
            0.0,
        ),
        "start": "p",
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (np.array([0.5, 1.0]),),
    },
    "beta_at_the_edge": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "none",
        "arguments": (np.array([0.5, 0.0]), 2.0, 3.0),
    },
    "gamma_pole": {
        "op": "gammaln",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "counts",
        "hint": "gamma-pole",
        "fault": "none",
        "arguments": (np.array([3.0, -1.0]),),
    },
    "softplus_by_hand": {
        "op": "exp",
        "kind": "inf",
        "element": (1,),
        "operands": (90.0,),
        "start": None,
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([1.0, 90.0], "float32"),),
    },
    "quantile_of_one": {
        "op": "erfinv",
        "kind": "inf",
        "element": (1,),
        "operands": (1.0,),
        "start": "u",
        "hint": "erfinv-out-of-range",
        "fault": "none",
        "arguments": (np.array([0.5, 1.0]),),
    },
    "log_of_prices": {
        "op": "log",
        "kind": "nan",
        "element": (0,),
        "operands": (-0.333333,),
        "start": "price",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([3.0, -1.0, 4.0]),),
    },
    "log_softmax_by_hand": {
        "op": "log",
        "kind": "inf",
        "element": (0, 0),
        "operands": (0.0,),
        "start": "h",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([[0.0, 800.0], [0.0, 1.0]]),),
    },
    "harmonic_mean": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            1.0,
            0.0,
        ),
        "start": None,
        "hint": "division-by-zero",
        "fault": "harmless",
        "arguments": (np.array([2.0, 0.0]),),
    },
    "entropic_transport": {
        "op": "true_div",
        "kind": "inf",
        "element": (0,),
        "operands": (
            0.5,
            0.0,
        ),
        "start": "eps",
        "hint": "division-by-zero",
        "fault": "too large",
        "arguments": (np.array([[1.0, 2.0], [0.0, 1.0]]), 1e-3),
    },
    "survival_of_time_zero": {
        "op": "pow",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0, -0.259),
        "start": "t",
        "hint": "pow-at-zero",
        "fault": "none",
        "arguments": (np.array([1.0, 0.0, 2.5]),),
    },
    "saturated_cross_entropy": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "z",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([[3.0], [-900.0]]), np.array([1.0, 1.0])),
    },
}
