"""Numerical bugs of published benchmarks, written as PyTensor models, each with an expert's twin.

The kinds of bugs and of programs are those of GRIST (Yan and others, "Exposing numerical bugs in
deep learning via gradient back-propagation", ESEC/FSE 2021), which took them from projects on
GitHub and from answers on Stack Overflow.  The code is our own: each function is the formula that
fails, of the shape in which such programs write it, without the training around it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

Graph = tuple[list[Variable], Variable]


@dataclass(frozen=True)
class Bug:
    """A faulty formula and its repair.

    Parameters
    ----------
    name : str
    kind : str
        What fails.
    source : str
        The kind of program that it comes from.
    faulty, twin : callable
        Return the inputs and the loss.
    """

    name: str
    kind: str
    source: str
    faulty: Callable[[], Graph]
    twin: Callable[[], Graph]


BUGS: list[Bug] = []


def bug(kind: str, source: str) -> Callable[[Callable[[bool], Graph]], Callable[[bool], Graph]]:
    """Put a function that builds the faulty formula, or with True the twin, into `BUGS`."""

    def kept(build: Callable[[bool], Graph]) -> Callable[[bool], Graph]:
        BUGS.append(Bug(build.__name__, kind, source, lambda: build(False), lambda: build(True)))
        return build

    return kept


def weights(*shape: int, scale: float = 1.0) -> Any:
    """Return weights as training has them after a while."""
    rng = np.random.default_rng(sum(shape))
    return pytensor.shared(scale * rng.normal(size=shape), name="w")


def logits(scale: float = 5.0) -> tuple[Variable, Variable]:
    """Return the input of a linear classifier and its logits."""
    x = pt.dmatrix("x")
    return x, x @ weights(4, 3, scale=scale)


# ---------------------------------------------------------------- cross entropies


@bug("log(0)", "MNIST classifier")
def cross_entropy_of_softmax(repaired: bool) -> Graph:
    x, h = logits()
    t = pt.dmatrix("t")
    p = pt.special.softmax(h, axis=1)
    logp = pt.special.log_softmax(h, axis=1) if repaired else pt.log(p)
    return [x, t], -(t * logp).sum(axis=1).mean()


@bug("log(0)", "MNIST classifier with labels")
def cross_entropy_of_labels(repaired: bool) -> Graph:
    x, h = logits()
    labels = pt.lvector("labels")
    rows = pt.arange(labels.shape[0])
    if repaired:
        return [x, labels], -pt.special.log_softmax(h, axis=1)[rows, labels].mean()
    return [x, labels], -pt.log(pt.special.softmax(h, axis=1)[rows, labels]).mean()


@bug("log(0)", "logistic regression")
def binary_cross_entropy(repaired: bool) -> Graph:
    x, t = pt.dmatrix("x"), pt.dvector("t")
    z = x @ weights(4)
    if repaired:
        return [x, t], (t * pt.softplus(-z) + (1 - t) * pt.softplus(z)).mean()
    p = pt.sigmoid(z)
    return [x, t], -(t * pt.log(p) + (1 - t) * pt.log(1 - p)).mean()


@bug("log(0)", "logistic regression with an epsilon on one side")
def binary_cross_entropy_with_eps(repaired: bool) -> Graph:
    x, t = pt.dmatrix("x"), pt.dvector("t")
    z = x @ weights(4)
    if repaired:
        return [x, t], (t * pt.softplus(-z) + (1 - t) * pt.softplus(z)).mean()
    p = pt.sigmoid(z)
    return [x, t], -(t * pt.log(p + 1e-8) + (1 - t) * pt.log(1 - p)).mean()


@bug("log(0)", "generative adversarial network, discriminator")
def discriminator(repaired: bool) -> Graph:
    real, fake = pt.dmatrix("real"), pt.dmatrix("fake")
    w = weights(4)
    a, b = real @ w, fake @ w
    if repaired:
        return [real, fake], (pt.softplus(-a)).mean() + pt.softplus(b).mean()
    loss = -pt.mean(pt.log(pt.sigmoid(a)))
    return [real, fake], loss - pt.mean(pt.log(1 - pt.sigmoid(b)))


@bug("log(0)", "generative adversarial network, generator")
def generator(repaired: bool) -> Graph:
    noise = pt.dmatrix("noise")
    score = pt.tanh(noise @ weights(4, 3)) @ weights(3, scale=1000.0)
    if repaired:
        return [noise], pt.softplus(-score).mean()
    return [noise], -pt.mean(pt.log(pt.sigmoid(score)))


@bug("log(0)", "autoencoder, reconstruction")
def reconstruction(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    z = pt.tanh(x @ weights(4, 2)) @ weights(2, 4, scale=60.0)
    if repaired:
        return [x], (pt.sigmoid(x) * pt.softplus(-z) + pt.sigmoid(-x) * pt.softplus(z)).sum()
    target, made = pt.sigmoid(x), pt.sigmoid(z)
    return [x], -(target * pt.log(made) + (1 - target) * pt.log(1 - made)).sum()


@bug("log(0)", "reinforcement learning, policy gradient")
def policy_gradient(repaired: bool) -> Graph:
    x, h = logits()
    reward = pt.dvector("reward")
    if repaired:
        chosen = pt.special.log_softmax(h, axis=1)[:, 0]
    else:
        chosen = pt.log(pt.special.softmax(h, axis=1)[:, 0])
    return [x, reward], -(chosen * reward).mean()


@bug("0 * log(0)", "entropy of a policy")
def entropy(repaired: bool) -> Graph:
    x, h = logits()
    p = pt.special.softmax(h, axis=1)
    logp = pt.special.log_softmax(h, axis=1) if repaired else pt.log(p)
    return [x], -(p * logp).sum(axis=1).mean()


@bug("0 * log(0)", "variational autoencoder, divergence of Bernoulli codes")
def divergence(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    z = x @ weights(4, 2)
    if repaired:
        q = pt.sigmoid(z)
        return [x], (q * -pt.softplus(-z) - (1 - q) * pt.softplus(z) + np.log(2)).sum()
    q = pt.sigmoid(z)
    return [x], (q * pt.log(q / 0.5) + (1 - q) * pt.log((1 - q) / 0.5)).sum()


# ---------------------------------------------------------------- exponentials


@bug("overflow of exp", "softmax written by hand")
def softmax_by_hand(repaired: bool) -> Graph:
    x, h = logits()
    e = pt.exp(h - h.max(axis=1, keepdims=True)) if repaired else pt.exp(h)
    return [x], ((e / e.sum(axis=1, keepdims=True))[:, 0]).mean()


@bug("overflow of exp", "sampled softmax with clipped logits")
def softmax_with_clipped_numerator(repaired: bool) -> Graph:
    x, h = logits()
    if repaired:
        return [x], pt.special.softmax(h, axis=1)[:, 0].mean()
    share = pt.exp(pt.clip(h, -50, 50)) / pt.exp(h).sum(axis=1, keepdims=True)
    return [x], share[:, 0].mean()


@bug("overflow of exp", "conditional random field, partition function")
def partition_function(repaired: bool) -> Graph:
    x, h = logits()
    z = pt.logsumexp(h, axis=1) if repaired else pt.log(pt.exp(h).sum(axis=1))
    return [x], z.mean()


@bug("overflow of exp", "softplus written by hand")
def softplus_by_hand(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    z = x @ weights(4)
    return [x], (pt.softplus(z) if repaired else pt.log(1 + pt.exp(z))).mean()


@bug("overflow of exp", "sigmoid written by hand")
def silu_by_hand(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    z = x @ weights(4)
    return [x], (z * pt.sigmoid(z) if repaired else z * pt.exp(z) / (1 + pt.exp(z))).mean()


@bug("overflow of exp", "Poisson regression")
def poisson_regression(repaired: bool) -> Graph:
    x, count = pt.dmatrix("x"), pt.dvector("count")
    z = x @ weights(4)
    z = pt.clip(z, -30, 30) if repaired else z
    return [x, count], (pt.exp(z) - count * z).mean()


@bug("overflow of exp", "variational autoencoder, log-variances")
def log_variances(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    s, m = x @ weights(4, 2), x @ weights(4, 3)[:, :2]
    s = pt.clip(s, -20, 20) if repaired else s
    return [x], -0.5 * (1 + s - m**2 - pt.exp(s)).sum()


@bug("overflow of exp", "radial basis functions with a learnt width")
def radial_basis(repaired: bool) -> Graph:
    x, width = pt.dvector("x"), pt.dscalar("width")
    scale = pt.softplus(width) + 1e-3 if repaired else width
    return [x, width], pt.exp(-(x**2) / scale).sum()


@bug("overflow of exp", "hyperbolic cosine loss")
def log_cosh(repaired: bool) -> Graph:
    e = pt.dvector("e")
    if repaired:
        size = pt.sqrt(e**2 + 1e-24)
        return [e], (size + pt.log1p(pt.exp(-2 * size)) - np.log(2)).mean()
    return [e], pt.log((pt.exp(e) + pt.exp(-e)) / 2).mean()


# ---------------------------------------------------------------- divisions


@bug("division by 0", "normalization of a batch")
def batch_normalization(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    d = pt.sqrt(x.var(axis=0) + 1e-5) if repaired else x.std(axis=0)
    return [x], ((x - x.mean(axis=0)) / d).max()


@bug("division by 0", "normalization to unit length")
def unit_length(repaired: bool) -> Graph:
    x = pt.dmatrix("x")
    square = (x**2).sum(axis=1, keepdims=True)
    return [x], (x / pt.sqrt(square + 1e-12 if repaired else square)).sum()


@bug("division by 0", "cosine similarity")
def cosine(repaired: bool) -> Graph:
    a, b = pt.dvector("a"), pt.dvector("b")
    eps = 1e-12 if repaired else 0.0
    sizes = pt.sqrt((a**2).sum() + eps) * pt.sqrt((b**2).sum() + eps)
    return [a, b], (a * b).sum() / sizes


@bug("division by 0", "mean over the words that a mask keeps")
def masked_mean(repaired: bool) -> Graph:
    x, mask = pt.dvector("x"), pt.dvector("mask")
    kept = pt.gt(mask, 0).astype("float64")
    count = kept.sum()
    return [x, mask], (x * kept).sum() / (pt.maximum(count, 1.0) if repaired else count)


@bug("division by 0", "inverse distance weighting")
def inverse_distance(repaired: bool) -> Graph:
    x, centre = pt.dvector("x"), pt.dvector("centre")
    d = (x - centre) ** 2
    w = 1 / (d + 1e-6 if repaired else d)
    return [x, centre], w.sum()


@bug("division by 0", "min-max scaling")
def min_max(repaired: bool) -> Graph:
    x = pt.dvector("x")
    width = x.max() - x.min()
    return [x], ((x - x.min()) / (pt.maximum(width, 1e-9) if repaired else width)).sum()


@bug("division by 0", "F1 score as a loss")
def f1_score(repaired: bool) -> Graph:
    x, t = pt.dvector("x"), pt.dvector("t")
    p, y = pt.clip(x, 0, 1), pt.clip(t, 0, 1)
    total = p.sum() + y.sum()
    return [x, t], 1 - 2 * (p * y).sum() / (total + 1e-7 if repaired else total)


# ---------------------------------------------------------------- roots and powers


@bug("gradient of a root at 0", "triplet loss")
def triplet(repaired: bool) -> Graph:
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    square = ((a - b) ** 2).sum(axis=1)
    return [a, b], pt.sqrt(square + 1e-12 if repaired else square).mean()


@bug("root of a negative", "variance from moments")
def variance_from_moments(repaired: bool) -> Graph:
    x = pt.dvector("x")
    if repaired:
        return [x], pt.sqrt(((x - x.mean()) ** 2).mean() + 1e-12)
    return [x], pt.sqrt((x**2).mean() - x.mean() ** 2)


@bug("power of a negative", "gamma correction")
def gamma_correction(repaired: bool) -> Graph:
    x = pt.dvector("x")
    return [x], ((pt.maximum(x, 1e-6) if repaired else x) ** 0.45).mean()


@bug("log of a negative", "log-normal likelihood of raw scores")
def log_of_scores(repaired: bool) -> Graph:
    x = pt.dvector("x")
    return [x], (pt.log(pt.softplus(x) + 1e-6) if repaired else pt.log(x)).mean()


@bug("log of a product", "likelihood of independent draws")
def likelihood(repaired: bool) -> Graph:
    z = pt.dvector("z")
    p = 0.5 * pt.sigmoid(pt.clip(z, -5, 5)) + 1e-9
    draws = pt.concatenate([p] * 200)
    return [z], pt.log(draws).sum() if repaired else pt.log(draws.prod())


@bug("angle out of range", "angle between vectors")
def angle(repaired: bool) -> Graph:
    a, b = pt.dvector("a"), pt.dvector("b")
    sizes = pt.sqrt((a**2).sum() + 1e-12) * pt.sqrt((b**2).sum() + 1e-12)
    c = (a * b).sum() / sizes
    return [a, b], pt.arccos(pt.clip(c, -0.999999, 0.999999) if repaired else c)
