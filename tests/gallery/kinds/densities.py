"""Log-densities that users write out."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def beta_binomial(repaired=False):
    """Gamma functions of large counts, where their logarithms would do."""
    k, n = pt.dvectors("k", "n")
    a, b = pt.dscalars("a", "b")
    if repaired:
        logp = pt.gammaln(k + a) + pt.gammaln(n - k + b) - pt.gammaln(n + a + b)
        logp = pt.switch(k <= n, logp, -np.inf)
    else:
        ratio = pt.gamma(k + a) * pt.gamma(n - k + b) / pt.gamma(n + a + b)  # culprit
        logp = pt.log(ratio)
    return [k, n, a, b], [logp.sum()], []


def zero_inflated_poisson(repaired=False):
    """The share of zeros becomes 1: the likelihood of a count has no value."""
    y = pt.dvector("y")
    raw = pytensor.shared(np.array([1.0, 0.7]), name="theta")
    share, rate = raw[0], raw[1]
    if repaired:
        share = pt.sigmoid(share)
    zero = pt.log(share + (1 - share) * pt.exp(-rate))
    count = pt.log(1 - share) + y * pt.log(rate) - rate - pt.gammaln(y + 1)  # culprit
    return [y], [pt.switch(pt.eq(y, 0), zero, count).sum()], []


def negative_binomial_dispersion(repaired=False):
    """A dispersion estimated by moments is negative where the counts vary less than a Poisson."""
    y = pt.dvector("y")
    mu, var = y.mean(), y.var()
    alpha = mu**2 / (var - mu)
    if repaired:
        alpha = pt.switch(var > mu, alpha, 100.0)
    logp = pt.gammaln(y + alpha) - pt.gammaln(y + 1) - pt.gammaln(alpha)
    logp = logp + y * pt.log(mu / (alpha + mu))  # culprit
    return [y], [logp.sum()], []


def student_mixture(repaired=False):
    """A mixture of Student's t by densities; no component explains an outlier."""
    x, mu, w = pt.dvectors("x", "mu", "w")
    nu = pt.dscalar("nu")
    logs = -0.5 * (nu + 1) * pt.log1p((x[:, None] - mu) ** 2 / nu)
    if repaired:
        ll = pt.logsumexp(pt.log(w) + logs, axis=1)
    else:
        density = (w * pt.exp(logs)).sum(axis=1)
        ll = pt.log(density)  # culprit
    return [x, mu, w, nu], [ll.sum()], []


def student_tail(repaired=False):
    """A Student's t far below its centre: the square overflows."""
    x, nu = pt.dvector("x"), pt.dscalar("nu")
    if repaired:
        ll = -(nu + 1) / 2 * pt.softplus(2 * pt.log(abs(x)) - pt.log(nu))
    else:
        ll = -(nu + 1) / 2 * pt.log(1 + x**2 / nu)  # culprit
    return [x, nu], [ll.sum()], []


def beta_outside(repaired=False):
    """A share above 1 is outside of the support of a Beta."""
    x, b = pt.dvector("x"), pt.dscalar("b")
    inside = pt.minimum(x, 0.999) if repaired else x
    ll = (b - 1) * pt.log(1 - inside)  # culprit
    return [x, b], [ll.sum()], []


def effective_sample_size(repaired=False):
    """The weights of all samples underflow when they are squared."""
    logs = pt.dvector("logs")
    if repaired:
        size = pt.exp(2 * pt.logsumexp(logs) - pt.logsumexp(2 * logs))
    else:
        w = pt.exp(logs)
        size = w.sum() ** 2 / (w**2).sum()  # culprit
    return [logs], [size], []


def dirichlet_of_zero_share(repaired=False):
    """A composition with an empty part is on the edge of the simplex."""
    shares, alpha = pt.dmatrix("shares"), pt.dvector("alpha")
    parts = pt.maximum(shares, 1e-6) if repaired else shares
    logs = pt.log(parts)  # culprit
    norm = pt.gammaln(alpha.sum()) - pt.gammaln(alpha).sum()
    return [shares, alpha], [((alpha - 1) * logs).sum() + norm], []


def weibull_survival(repaired=False):
    """An event between two visits: the survival probabilities at both underflow."""
    start, end = pt.dvectors("start", "end")
    scale, shape, cured = pt.dscalars("scale", "shape", "cured")
    h0, h1 = (start / scale) ** shape, (end / scale) ** shape
    if repaired:
        ll = pt.log1p(-cured) - h0 + pt.log1mexp(h0 - h1)
        ll = pt.switch(start < end, ll, -np.inf)
    else:
        p = (1 - cured) * (pt.exp(-h0) - pt.exp(-h1))
        ll = pt.log(p)  # culprit
    return [start, end, scale, shape, cured], [ll.sum()], []


def probit_tail(repaired=False):
    """A probit likelihood of an observation far in the tail: the normal CDF is 0."""
    x, y = pt.dvectors("x", "y")
    beta = pytensor.shared(np.array([0.5, 12.0]), name="beta")
    eta = beta[0] + beta[1] * x
    if repaired:
        ll = pt.log(0.5) + pt.log(pt.erfcx(-eta / np.sqrt(2))) - eta**2 / 2
    else:
        cdf = 0.5 * pt.erfc(-eta / np.sqrt(2))
        ll = pt.log(cdf)  # culprit
    return [x, y], [(y * ll).sum()], []


def ordinal_cutpoints(repaired=False):
    """The cutpoints of an ordinal model have crossed: a category has a negative probability."""
    eta = pt.dvector("eta")
    y = pt.lvector("y")
    cuts = pytensor.shared(np.array([-1.0, 1.5, 0.4]), name="cuts")
    ordered = pt.sort(cuts) if repaired else cuts
    below = pt.sigmoid(ordered[None, :] - eta[:, None])
    n = eta.shape[0]
    below = pt.concatenate([pt.zeros((n, 1)), below, pt.ones((n, 1))], axis=1)
    p = below[:, 1:] - below[:, :-1]
    ll = pt.log(p[pt.arange(n), y])  # culprit
    return [eta, y], [-ll.mean()], []


def von_mises(repaired=False):
    """The normalisation of a concentrated von Mises distribution overflows."""
    angle, kappa = pt.dvector("angle"), pt.dscalar("kappa")
    norm = pt.log(pt.i0(kappa))  # culprit
    if repaired:
        norm = pt.log(pt.ive(0, kappa)) + kappa
    return [angle, kappa], [(kappa * pt.cos(angle) - norm).sum()], []


def pareto_below_its_scale(repaired=False):
    """The inverse of a power law's distribution function, at a uniform number of 1."""
    u, alpha = pt.dvector("u"), pt.dscalar("alpha")
    v = pt.minimum(u, 1 - 1e-12) if repaired else u
    x = 2.0 * (1 - v) ** (-1 / alpha)  # culprit
    return [u, alpha], [x.mean()], []


def poisson_factorials(repaired=False):
    """Factorials of counts in integers, which wrap around."""
    y, rate = pt.lvector("y"), pt.dvector("rate")
    if repaired:
        log_factorial = pt.gammaln(y + 1.0)
    else:
        factorial = pt.cumprod(pt.arange(1, y.max() + 1))[y - 1]
        log_factorial = pt.log(factorial)  # culprit
    return [y, rate], [(y * pt.log(rate) - rate - log_factorial).sum()], []


TRUTH = {
    "beta_binomial": {
        "op": "gamma",
        "kind": "inf",
        "element": (1,),
        "operands": (182.0,),
        "start": "k",
        "hint": None,
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([3.0, 180.0]),
            np.array([10.0, 250.0]),
            2.0,
            3.0,
        ),
    },
    "zero_inflated_poisson": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "theta",
        "hint": "log-zero",
        "fault": "none",
        "arguments": (np.array([0.0, 2.0, 0.0]),),
    },
    "negative_binomial_dispersion": {
        "op": "log",
        "kind": "nan",
        "element": (),
        "operands": (-5.0,),
        "start": "y",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([3.0, 4.0, 3.0, 2.0]),),
    },
    "student_mixture": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "nu",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.0, 1000000000.0]),
            np.array([0.0, 1.0]),
            np.array([0.4, 0.6]),
            60.0,
        ),
    },
    "student_tail": {
        "op": "pow",
        "kind": "inf",
        "element": (1,),
        "operands": (-1e200, 2.0),
        "start": None,
        "hint": "product-overflow",
        "fault": "lost",
        "grade": "same",
        "watch": "inf",
        "arguments": (np.array([1.0, -1e200]), 3.0),
    },
    "beta_outside": {
        "op": "log",
        "kind": "nan",
        "element": (1,),
        "operands": (-0.2,),
        "start": "x",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([0.3, 1.2]), 3.0),
    },
    "effective_sample_size": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (0.0, 0.0),
        "start": "logs",
        "hint": "zero-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([-800.0, -801.0]),),
    },
    "dirichlet_of_zero_share": {
        "op": "log",
        "kind": "inf",
        "element": (1, 0),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "none",
        "arguments": (
            np.array([[0.2, 0.3, 0.5], [0.0, 0.4, 0.6]]),
            np.array([2.0, 1.5, 3.0]),
        ),
    },
    "weibull_survival": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "start",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([1.0, 30.0]),
            np.array([2.0, 31.0]),
            1.0,
            2.0,
            0.1,
        ),
    },
    "probit_tail": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "beta",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.3, -4.0]),
            np.array([1.0, 1.0]),
        ),
    },
    "ordinal_cutpoints": {
        "op": "log",
        "kind": "nan",
        "element": (1,),
        "operands": (-0.189961,),
        "start": "cuts",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (
            np.array([0.2, -0.3]),
            np.array([0, 2]),
        ),
    },
    "von_mises": {
        "op": "i0",
        "kind": "inf",
        "element": (),
        "operands": (900.0,),
        "start": None,
        "hint": "bessel-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.1, -0.2]),
            900.0,
        ),
    },
    "pareto_below_its_scale": {
        "op": "pow",
        "kind": "inf",
        "element": (1,),
        "operands": (
            0.0,
            -0.666667,
        ),
        "start": "u",
        "hint": "pow-at-zero",
        "fault": "none",
        "arguments": (
            np.array([0.5, 1.0]),
            1.5,
        ),
    },
    "poisson_factorials": {
        "op": "log",
        "kind": "nan",
        "element": (1,),
        "operands": (-4.24929e18,),
        "start": "arange(1, y.max() + 1)",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (
            np.array([3, 21]),
            np.array([2.0, 20.0]),
        ),
    },
}
