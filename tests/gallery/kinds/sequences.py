"""Sequences and time series: filters, chains, differential equations."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import stable


def hmm_forward(repaired=False):
    """The forward algorithm of a hidden Markov model in probabilities."""
    obs = pt.dmatrix("obs")
    trans = pt.constant(np.array([[0.9, 0.1], [0.2, 0.8]]))
    if repaired:

        def step(b, log_alpha):
            return stable.logsumexp(log_alpha[:, None] + pt.log(trans), axis=0) + b

        log_alphas = pytensor.scan(
            step, sequences=obs, outputs_info=[pt.log(np.full(2, 0.5))], return_updates=False
        )
        loss = -pt.logsumexp(log_alphas[-1])
    else:

        def step(b, alpha):
            return (alpha @ trans) * b

        alphas = pytensor.scan(
            step, sequences=pt.exp(obs), outputs_info=[np.full(2, 0.5)], return_updates=False
        )
        loss = -pt.log(alphas[-1].sum())  # culprit
    return [obs], [loss], []


def crf_partition(repaired=False):
    """The partition function of a chain of labels, with potentials that are exponentials."""
    unary, pair = pt.dmatrix("unary"), pt.dmatrix("pair")
    if repaired:

        def step(u, log_z):
            return stable.logsumexp(log_z[:, None] + pair, axis=0) + u

        steps = pytensor.scan(
            step, sequences=unary, outputs_info=[pt.zeros(2)], return_updates=False
        )
        return [unary, pair], [stable.logsumexp(steps[-1])], []
    edge = pt.exp(pair)

    def step(u, z):
        return (z @ edge) * pt.exp(u)  # culprit

    steps = pytensor.scan(step, sequences=unary, outputs_info=[pt.ones(2)], return_updates=False)
    return [unary, pair], [pt.log(steps[-1].sum())], []


def kalman_negative_variance(repaired=False):
    """A filter whose gain is twice what it should be: the variance becomes negative."""
    y = pt.dvector("y")
    p0, r = pt.dscalars("p0", "r")

    def step(obs, mean, var):
        total = var + r
        gain = var / total if repaired else 2 * var / total
        return mean + gain * (obs - mean), (1 - gain) * var

    means, variances = pytensor.scan(
        step,
        sequences=y,
        outputs_info=[np.float64(0.0), p0],
        return_updates=False,
    )
    sd = pt.sqrt(variances + (r if repaired else 0))  # culprit
    ll = -pt.log(sd) - 0.5 * ((y - means) / sd) ** 2
    return [y, p0, r], [ll.sum()], []


def garch_below_zero(repaired=False):
    """A volatility recursion whose constant was fitted without its bound."""
    returns = pt.dvector("returns")
    omega, alpha, beta = (
        pytensor.shared(v, name=n) for n, v in (("omega", -0.2), ("alpha", 0.1), ("beta", 0.8))
    )
    base = pt.softplus(omega) if repaired else omega

    def step(r, h):
        return base + alpha * r**2 + beta * h

    h = pytensor.scan(step, sequences=returns, outputs_info=[np.float64(0.2)], return_updates=False)
    ll = -0.5 * (pt.log(h) + returns**2 / h)  # culprit
    return [returns], [-ll.sum()], []


def ode_step(repaired=False):
    """Torricelli's law by Euler's method: the tank is empty before the last step."""
    level, dt = pt.dscalar("level"), pt.dscalar("dt")

    def step(h):
        outflow = 0.6 * pt.sqrt(pt.maximum(h, 0) if repaired else h)  # culprit
        return h - dt * outflow

    levels = pytensor.scan(step, outputs_info=[level], n_steps=8, return_updates=False)
    return [level, dt], [levels[-1]], []


def ar_explodes(repaired=False):
    """An autoregression whose coefficient is above 1."""
    noise, rho = pt.dvector("noise"), pt.dscalar("rho")
    factor = pt.tanh(rho) if repaired else rho

    def step(e, x):
        return factor * x + e  # culprit

    path = pytensor.scan(
        step, sequences=noise, outputs_info=[np.float64(1.0)], return_updates=False
    )
    return [noise, rho], [path[-1]], []


def discounted_returns(repaired=False):
    """A policy gradient normalises the returns of an episode in which all are equal."""
    logits, actions, returns = pt.dmatrix("logits"), pt.lvector("actions"), pt.dvector("returns")
    scale = returns.std()
    if repaired:
        scale = scale + 1e-8
    advantage = (returns - returns.mean()) / scale  # culprit
    logp = pt.special.log_softmax(logits, axis=1)[pt.arange(actions.shape[0]), actions]
    return [logits, actions, returns], [-(logp * advantage).mean()], []


def policy_entropy(repaired=False):
    """The entropy of a policy over the allowed actions: 0 * log(0) for the others."""
    logits, allowed = pt.dmatrices("logits", "allowed")
    if repaired:
        p = pt.special.softmax(pt.switch(allowed > 0, logits, -1e9), axis=1)
        terms = pt.special.xlogy(p, p)
    else:
        p = pt.special.softmax(logits, axis=1) * allowed
        p = p / p.sum(axis=1, keepdims=True)
        terms = p * pt.log(p)  # culprit
    return [logits, allowed], [-terms.sum(axis=1).mean()], []


def geometric_mean_of_returns(repaired=False):
    """The geometric mean of many prices as the root of a product."""
    x = pt.dvector("x")
    n = x.shape[0]
    mean = pt.prod(x) ** (1.0 / n)  # culprit
    if repaired:
        mean = pt.exp(pt.log(x).mean())
    return [x], [mean], []


TRUTH = {
    "hmm_forward": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "obs",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([[-400.0, -400.0], [-400.0, -400.0], [-400.0, -400.0]]),),
    },
    "crf_partition": {
        "op": "mul",
        "kind": "inf",
        "element": (0,),
        "operands": (
            8.40051e218,
            1.94243e130,
        ),
        "start": "unary",
        "hint": "exploding-state",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([[1.0, 2.0], [500.0, 400.0], [300.0, 350.0]]),
            np.array([[0.5, 0.1], [0.2, 0.4]]),
        ),
        "watch": "inf",
    },
    "kalman_negative_variance": {
        "op": "sqrt",
        "kind": "nan",
        "element": (0,),
        "operands": (-8.18182,),
        "start": "p0",
        "hint": "sqrt-negative",
        "fault": "none",
        "arguments": (
            np.array([0.5, 0.7]),
            10.0,
            1.0,
        ),
    },
    "garch_below_zero": {
        "op": "log",
        "kind": "nan",
        "element": (0,),
        "operands": (-0.039,),
        "start": "omega",
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([0.1, -0.2, 0.3]),),
    },
    "ode_step": {
        "op": "sqrt",
        "kind": "nan",
        "element": (),
        "operands": (-0.0154885,),
        "start": "level",
        "hint": "sqrt-negative",
        "fault": "none",
        "arguments": (
            1.0,
            0.5,
        ),
    },
    "ar_explodes": {
        "op": "mul",
        "kind": "big",
        "element": (),
        "operands": (
            1.5,
            9683880000.0,
        ),
        "start": "rho",
        "hint": "growing-state",
        "fault": "big",
        "arguments": (
            np.full(70, 1.0),
            1.5,
        ),
    },
    "discounted_returns": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "returns",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (
            np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
            np.array([0, 1, 1]),
            np.array([1.0, 1.0, 1.0]),
        ),
    },
    "policy_entropy": {
        "op": "log",
        "kind": "inf",
        "element": (1, 1),
        "operands": (0.0,),
        "start": "allowed",
        "hint": "log-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (
            np.array([[0.0, 1.0], [0.5, 0.2]]),
            np.array([[1.0, 1.0], [1.0, 0.0]]),
        ),
    },
    "geometric_mean_of_returns": {
        "op": "prod",
        "kind": "inf",
        "element": (),
        "operands": (None,),
        "start": None,
        "hint": "sum-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.full(120, 1000.0),),
    },
}
