"""Numerical bugs of published benchmarks, written as PyTensor models, each with an expert's twin.

The cases are the 79 bugs of GRIST (Yan and others, "Exposing numerical bugs in deep learning via
gradient back-propagation", ESEC/FSE 2021), numbered as in its file ``dataset_info.md``
(https://github.com/Jacob-yen/GRIST).  RANUM (Li and others, ICSE 2023) uses the same numbers.  Each
function here is the formula that fails, of the shape and dtype that these programs write, without
the training around it.  The code is our own.  What differs:

- Many of the programs write one formula, so a function stands for several cases.
- Convolutions and dropout are two dense layers here.
- If a program has two bugs (``9a`` and ``9b``), each function has one, and the other is repaired.
- The stored copies of the programs 4, 5 and 13 have been changed for experiments.  Here they are as
  their projects wrote them.
- Log-variances are clipped at 30 and not at 87, where the sum over a batch overflows as well.

Formulas without a case are of other kinds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from theanoguard.records import SourceLine

Graph = tuple[list[Variable], Variable]


@dataclass(frozen=True)
class Bug:
    """A faulty formula and its repair.

    Parameters
    ----------
    name : str
        The function that writes it.
    kind : str
        What fails.
    program : str
        The kind of program that it comes from.
    cases : tuple of str
        The numbers of GRIST's bugs that are this formula.
    faulty, twin : callable
        Return the inputs and the loss.
    """

    name: str
    kind: str
    program: str
    cases: tuple[str, ...]
    faulty: Callable[[], Graph]
    twin: Callable[[], Graph]

    def is_written_at(self, line: SourceLine | None) -> bool:
        """Whether a line lies in the function that writes the formula, or its logarithms."""
        return line is not None and line.function in (self.name, log_probabilities.__name__)


BUGS: list[Bug] = []


def bug(
    kind: str, program: str, cases: str = ""
) -> Callable[[Callable[[bool], Graph]], Callable[[bool], Graph]]:
    """Put a function that builds the faulty formula, or with True the twin, into `BUGS`."""

    def kept(build: Callable[[bool], Graph]) -> Callable[[bool], Graph]:
        numbers = tuple(cases.split())
        made = (lambda: build(False), lambda: build(True))
        BUGS.append(Bug(build.__name__, kind, program, numbers, *made))
        return build

    return kept


def weights(*shape: int, scale: float = 1.0, dtype: str = "float64") -> Any:
    """Return weights as training has them after a while."""
    rng = np.random.default_rng(sum(shape))
    value = (scale * rng.normal(size=shape)).astype(dtype)
    return pytensor.shared(value, name="w", shape=shape)


def logits(scale: float = 5.0) -> tuple[Variable, Variable]:
    """Return the input of a linear classifier and its logits."""
    x = pt.dmatrix("x")
    return x, x @ weights(4, 3, scale=scale)


# ---------------------------------------------------------------- GRIST: cross entropies


def linear(outputs: int = 3) -> tuple[Variable, Variable]:
    """Return the input of a linear layer and its result, in float32."""
    x = pt.fmatrix("x")
    return x, x @ weights(4, outputs, scale=5.0, dtype="float32")


def perceptron(outputs: int = 3) -> tuple[Variable, Variable]:
    """Return the input of a net with a hidden layer and its result, in float32."""
    x = pt.fmatrix("x")
    hidden = pt.maximum(x @ weights(4, 5, dtype="float32"), np.float32(0))
    return x, hidden @ weights(5, outputs, dtype="float32")


def labels_for(h: Variable) -> tuple[Variable, Variable]:
    """Return the input of one-hot labels for logits, and the labels in float32."""
    t = pt.matrix("t", dtype="bool", shape=(None, h.type.shape[1]))
    return t, t.astype("float32")


def log_probabilities(h: Variable, repaired: bool) -> Variable:
    """Return the logarithms of softmax(h) by rows."""
    return pt.special.log_softmax(h, axis=1) if repaired else pt.log(pt.special.softmax(h, axis=1))


@bug("log(0)", "linear classifier, summed loss", "3 10 21 30 40 41 42 60")
def summed_entropy(repaired: bool) -> Graph:
    x, h = linear()
    t, y = labels_for(h)
    logp = log_probabilities(h, repaired)
    return [x, t], -(y * logp).sum()


@bug("log(0)", "classifier with hidden layers, summed loss", "1 6 7 8 14 24 29 44 58 61")
def summed_entropy_of_net(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    logp = log_probabilities(h, repaired)
    return [x, t], -(y * logp).sum()


@bug("log(0)", "linear classifier, mean loss", "18 20 25 32 34 45b 47 48a 50 52 54")
def mean_entropy(repaired: bool) -> Graph:
    x, h = linear()
    t, y = labels_for(h)
    logp = log_probabilities(h, repaired)
    return [x, t], pt.mean(-(y * logp).sum(axis=1))


@bug("log(0)", "classifier with hidden layers, mean loss", "19 45a 48b 55 59")
def mean_entropy_of_net(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    logp = log_probabilities(h, repaired)
    return [x, t], pt.mean(-(y * logp).sum(axis=1))


@bug("log(0)", "cost of a softmax of given scores", "23 27 46 57")
def entropy_of_scores(repaired: bool) -> Graph:
    z = pt.fmatrix("z")
    t, y = labels_for(z)
    logp = pt.special.log_softmax(z, axis=1) if repaired else pt.log(pt.special.softmax(z, axis=1))
    return [z, t], (y * -logp).sum(axis=1).mean()


@bug("log(0)", "probability of the label", "12 15")
def probability_of_label(repaired: bool) -> Graph:
    x, h = perceptron()
    labels = pt.lvector("labels")
    rows = pt.arange(labels.shape[0])
    logp = log_probabilities(h, repaired)
    return [x, labels], -pt.mean(logp[rows, labels])


@bug("log(0)", "ranking loss over one right and two wrong answers", "5")
def rank_cross_entropy(repaired: bool) -> Graph:
    score = pt.tensor("score", shape=(6, 1), dtype="float32")
    label = pt.tensor("label", shape=(6, 1), dtype="int8")
    h = pt.concatenate([score[first::3] for first in range(3)], axis=1)
    y = pt.concatenate([label[first::3] for first in range(3)], axis=1)
    if repaired:
        return [score, label], -pt.mean((y * pt.special.log_softmax(h, axis=1)).sum(axis=1))
    return [score, label], -pt.mean((y * pt.log(pt.special.softmax(h, axis=1))).sum(axis=1))


@bug("log(0)", "softmax with a binary cross entropy, of the labels", "2a")
def label_part_of_softmax(repaired: bool) -> Graph:
    x, h = linear()
    t, y = labels_for(h)
    logp = log_probabilities(h, repaired)
    others = pt.log(pt.clip(1 - pt.special.softmax(h, axis=1), np.float32(1e-6), np.float32(1)))
    return [x, t], -pt.mean(y * logp + (1 - y) * others)


@bug("log(0)", "softmax with a binary cross entropy, of the other classes", "2b")
def other_part_of_softmax(repaired: bool) -> Graph:
    x, h = linear()
    t, y = labels_for(h)
    p = pt.special.softmax(h, axis=1)
    others = pt.log(pt.clip(1 - p, np.float32(1e-6), np.float32(1)) if repaired else 1 - p)
    logp = pt.special.log_softmax(h, axis=1)
    return [x, t], -pt.mean(y * logp + (1 - y) * others)


@bug("log(0)", "net with a sigmoid, of the wrong label", "9a")
def wrong_label(repaired: bool) -> Graph:
    x, z = perceptron(1)
    t, y = labels_for(z)
    other = -pt.softplus(z) if repaired else pt.log(1 - pt.sigmoid(z))
    return [x, t], pt.mean((y * pt.softplus(-z) - (1 - y) * other).sum(axis=1))


@bug("log(0)", "net with a sigmoid, of the right label", "9b")
def right_label(repaired: bool) -> Graph:
    x, z = perceptron(1)
    t, y = labels_for(z)
    own = -pt.softplus(-z) if repaired else pt.log(pt.sigmoid(z))
    return [x, t], pt.mean((-y * own + (1 - y) * pt.softplus(z)).sum(axis=1))


@bug("log(0)", "logistic regression", "26 33 37 53 56")
def logistic_regression(repaired: bool) -> Graph:
    x, z = linear(1)
    t, y = labels_for(z)
    if repaired:
        return [x, t], (y * pt.softplus(-z) + (1 - y) * pt.softplus(z)).mean()
    p = pt.sigmoid(z)
    return [x, t], -(y * pt.log(p) + (1 - y) * pt.log(1 - p)).mean()


@bug("log(0)", "net that learns XOR", "38")
def logistic_net(repaired: bool) -> Graph:
    x, z = perceptron(1)
    t, y = labels_for(z)
    if repaired:
        return [x, t], (y * pt.softplus(-z) + (1 - y) * pt.softplus(z)).mean()
    p = pt.sigmoid(z)
    return [x, t], -(y * pt.log(p) + (1 - y) * pt.log(1 - p)).mean()


@bug("log(0)", "generative adversarial network", "31")
def adversarial_network(repaired: bool) -> Graph:
    real, fake = pt.fmatrix("real"), pt.fmatrix("fake")
    w = weights(4, 1, dtype="float32")
    a, b = real @ w, fake @ w
    others = pt.log(pt.clip(1 - pt.sigmoid(b), np.float32(1e-6), np.float32(1)))
    own = -pt.softplus(-a) if repaired else pt.log(pt.sigmoid(a))
    return [real, fake], -pt.mean(own) - pt.mean(others)


# ---------------------------------------------------------------- GRIST: variational autoencoders


def code_of(x: Variable) -> tuple[Variable, Variable, Variable]:
    """Return the mean and the log-variance of a code of two numbers, and a draw of noise."""
    s = pt.clip(x @ weights(4, 2, dtype="float32"), np.float32(-100), np.float32(30))
    return x @ weights(2, 4, dtype="float32").T, s, pt.fmatrix("noise")


@bug("log(0), an eps that float32 does not hold", "reconstruction", "35a 36a 39a 43a 49a")
def reconstruction_of_code(repaired: bool) -> Graph:
    x = pt.fmatrix("x")
    mean, s, noise = code_of(x)
    z = (mean + pt.exp(s / np.float32(2)) * noise) @ weights(2, 4, dtype="float32")
    latent = -0.5 * (1 + s - pt.sqr(mean) - pt.exp(s)).sum(axis=1)
    pixel = pt.sigmoid(x)
    if repaired:
        lost = pixel * pt.softplus(-z) + (1 - pixel) * pt.softplus(z)
        return [x, noise], pt.mean(lost.sum(axis=1) + latent)
    made, eps = pt.sigmoid(z), np.float32(1e-10)
    lost = -(pixel * pt.log(made + eps) + (1 - pixel) * pt.log(eps + 1 - made))
    return [x, noise], pt.mean(lost.sum(axis=1) + latent)


@bug("subnormal numbers that count as 0", "draw of a code", "35b 36b 39b 43b 49b")
def draw_of_code(repaired: bool) -> Graph:
    x = pt.fmatrix("x")
    mean, s, noise = code_of(x)
    width = pt.exp(s / np.float32(2)) if repaired else pt.sqrt(pt.exp(s))
    z = (mean + width * noise) @ weights(2, 4, dtype="float32")
    latent = -0.5 * (1 + s - pt.sqr(mean) - pt.exp(s)).sum(axis=1)
    pixel = pt.sigmoid(x)
    lost = pixel * pt.softplus(-z) + (1 - pixel) * pt.softplus(z)
    return [x, noise], pt.mean(lost.sum(axis=1) + latent)


@bug("overflow of exp", "divergence of a graph autoencoder", "4")
def divergence_of_graph(repaired: bool) -> Graph:
    x = pt.fmatrix("x")
    mean, s = x @ weights(4, 2, dtype="float32"), x @ weights(4, 3, dtype="float32")[:, :2]
    s = pt.minimum(s, np.float32(10)) if repaired else s
    return [x], -0.5 * pt.mean((1 + s - pt.sqr(mean) - pt.exp(s)).sum(axis=1))


# ---------------------------------------------------------------- GRIST: exponentials


@bug("overflow of exp", "unsafe softmax, large logits", "11a 16a")
def unsafe_softmax_of_large(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    h = pt.maximum(h, np.float32(-87))
    if repaired:
        p = pt.special.softmax(h, axis=1)
    else:
        p = pt.exp(pt.minimum(h, np.float32(87))) / pt.exp(h).sum(axis=1, keepdims=True)
    return [x, t], pt.mean(-(y * pt.log(pt.clip(p, np.float32(1e-6), np.float32(1)))).sum(axis=1))


@bug("log(0)", "unsafe softmax, its logarithm", "11b 16b")
def unsafe_cross_entropy(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    h = pt.clip(h, np.float32(-80), np.float32(80))
    top = pt.maximum(h[:, :1], np.float32(-60))
    h = pt.concatenate([top, h[:, 1:]], axis=1)
    if repaired:
        return [x, t], pt.mean(-(y * pt.special.log_softmax(h, axis=1)).sum(axis=1))
    p = pt.exp(h) / pt.exp(h).sum(axis=1, keepdims=True)
    return [x, t], pt.mean(-(y * pt.log(p)).sum(axis=1))


@bug("division by 0", "unsafe softmax, small logits", "11c 16c")
def unsafe_softmax_of_small(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    h = pt.minimum(h, np.float32(80))
    if repaired:
        p = pt.special.softmax(h, axis=1)
    else:
        p = pt.exp(h) / pt.exp(h).sum(axis=1, keepdims=True)
    return [x, t], pt.mean(-(y * pt.log(abs(p) + np.float32(1e-6))).sum(axis=1))


@bug("overflow of exp", "softmax over the edges of a graph", "13")
def softmax_over_edges(repaired: bool) -> Graph:
    edge = pt.tensor("edge", shape=(6,), dtype="float32")
    node = np.array([0, 0, 0, 1, 1, 1])
    if repaired:
        top = pt.stack([edge[:3].max(), edge[3:].max()])
        made = pt.exp(edge - top[node])
    else:
        made = pt.exp(edge)
    total = pt.inc_subtensor(pt.zeros(2, dtype="float32")[node], made)
    return [edge], (made / total[node])[0]


@bug("overflow of exp", "dice loss of a segmentation", "17")
def dice_loss(repaired: bool) -> Graph:
    x, h = perceptron()
    t, y = labels_for(h)
    e = pt.exp(h - h.max(axis=1, keepdims=True)) if repaired else pt.exp(h)
    p = e / e.sum(axis=1, keepdims=True)
    return [x, t], -2 * (p * y).sum() / (np.float32(1e-5) + p.sum() + y.sum())


@bug("overflow of exp", "free energy of a Boltzmann machine", "22 51 62 63")
def free_energy(repaired: bool) -> Graph:
    v, z = linear()
    hidden = pt.softplus(z) if repaired else pt.log(pt.exp(z) + 1)
    return [v], pt.mean(-hidden.sum(axis=1) - v @ weights(4, dtype="float32"))


# ---------------------------------------------------------------- GRIST: divisions


@bug("division by 0", "net for stochastic circuits, gains", "28a 28d")
def scaled_by_gain(repaired: bool) -> Graph:
    x, w, gain = pt.fmatrix("x"), pt.fmatrix("w"), pt.fvector("gain")
    size = pt.maximum(abs(w).sum(axis=0), np.float32(1e-3))
    gain_ = pt.maximum(gain, np.float32(1e-3)) if repaired else gain
    z = pt.clip((x @ w) / size * gain_, np.float32(-1), np.float32(1))
    return [x, w, gain], pt.mean(pt.sqr(z * (size / gain_)))


@bug("division by 0", "net for stochastic circuits, sizes of weights", "28b 28c")
def scaled_by_size(repaired: bool) -> Graph:
    x, w = pt.fmatrix("x"), pt.fmatrix("w")
    size = abs(w).sum(axis=0)
    size = pt.maximum(size, np.float32(1e-3)) if repaired else size
    z = pt.clip((x @ w) / size, np.float32(-1), np.float32(1))
    return [x, w], pt.mean(pt.sqr(z * size))


# ---------------------------------------------------------------- other kinds: cross entropies


@bug("log(0)", "logistic regression with an epsilon on one side")
def binary_cross_entropy_with_eps(repaired: bool) -> Graph:
    x, t = pt.dmatrix("x"), pt.dvector("t")
    z = x @ weights(4)
    if repaired:
        return [x, t], (t * pt.softplus(-z) + (1 - t) * pt.softplus(z)).mean()
    p = pt.sigmoid(z)
    return [x, t], -(t * pt.log(p + 1e-8) + (1 - t) * pt.log(1 - p)).mean()


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


# ---------------------------------------------------------------- other kinds: exponentials


@bug("overflow of exp", "conditional random field, partition function")
def partition_function(repaired: bool) -> Graph:
    x, h = logits()
    z = pt.logsumexp(h, axis=1) if repaired else pt.log(pt.exp(h).sum(axis=1))
    return [x], z.mean()


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


# ---------------------------------------------------------------- other kinds: divisions


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


# ---------------------------------------------------------------- other kinds: roots and powers


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
