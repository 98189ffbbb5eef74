"""Faulty Theano programs, which the tests run on the shim."""

import numpy as np
import theano
import theano.tensor as T


def softmax_by_hand():
    """A softmax with weights, whose exponentials overflow."""
    h, c = T.dmatrix("h"), T.dvector("c")
    e = T.exp(h) * c
    p = e / e.sum(axis=1, keepdims=True)
    return [h, c], [p.max(axis=1)]


def bessel():
    """The normalisation of a von Mises distribution."""
    k = T.dscalar("k")
    return [k], [T.log(T.i0(k))]


def tail():
    """A probit far in the tail."""
    eta = T.dvector("eta")
    p = 0.5 * T.erfc(eta)
    ll = T.log(p)
    return [eta], [ll.sum()]


def geometric():
    """The geometric mean of many numbers."""
    x = T.dvector("x")
    g = T.prod(x) ** (1.0 / x.shape[0])
    return [x], [g]


def entropy():
    """The entropy of a distribution with an empty class."""
    p = T.dvector("p")
    h = -T.sum(p * T.log(p))
    return [p], [h]


def tanh():
    """A tanh of exponentials: inf / inf."""
    x = T.dvector("x")
    y = (T.exp(2 * x) - 1) / (T.exp(2 * x) + 1)
    return [x], [y]


def scale():
    """A scale that has become negative."""
    d = T.dvector("d")
    sigma = theano.shared(-0.2, name="sigma")
    nll = T.sum(T.log(sigma) + 0.5 * (d / sigma) ** 2)
    return [d], [nll]


def softmax_row():
    """The probabilities of a layer, and their logarithms."""
    x, w, b = T.dmatrix("x"), T.dmatrix("w"), T.dvector("b")
    p = T.nnet.softmax(T.dot(x, w) + b)
    loss = -T.log(p)[:, 0].sum()
    return [x, w, b], [loss + 0 * T.log(p).sum()]


def growth():
    """Growth whose rate is an exponential, in a loop."""
    r, n = T.dscalar("r"), T.dvector("n")
    y, _ = theano.scan(lambda y: y + T.exp(r * y), outputs_info=[n], n_steps=4)
    return [r, n], [y[-1]]


def spread():
    """The gradient of the standard deviation of equal numbers."""
    x = T.dvector("x")
    s = x.std()
    return [x], [T.grad(s, x)]


def distance():
    """The gradient of the distance of equal points."""
    a, b = T.dmatrices("a", "b")
    d = (a - b).norm(2, axis=1)
    return [a, b], [T.grad(d.sum(), a)]


def unit():
    """Vectors divided by their lengths, whose squares overflow."""
    x = T.dmatrix("x")
    n = T.sqrt(T.sum(x**2, axis=1, keepdims=True))
    return [x], [x / n]


def hypotenuse():
    """The absolute value of a complex number in two parts."""
    a, b = T.dvectors("a", "b")
    r = T.sqrt(a**2 + b**2)
    return [a, b], [r]


def mixture():
    """A mixture of two components, far from both."""
    x, w, m = T.dvectors("x", "w", "m")
    z = x.dimshuffle(0, "x") - m
    p = (w * T.exp(-0.5 * z**2)).sum(axis=1)
    return [x, w, m], [T.log(p).sum()]


def one_more():
    """A softmax with an entry more, whose logit is 0."""
    h = T.dvector("h")
    p = T.exp(h) / (1 + T.exp(h).sum())
    return [h], [p]


CASES = {
    "softmax_by_hand": ("lost", "same", (np.array([[900.0, 0.0]]), np.array([0.5, 0.5]))),
    "bessel": ("lost", "", (900.0,)),
    "tail": ("lost", "same", (np.array([1.0, 40.0]),)),
    "geometric": ("lost", "same", (np.full(150, 1e3),)),
    "tanh": ("lost", "same", (np.array([400.0]),)),
    "entropy": ("none", "changes", (np.array([0.5, 0.5, 0.0]),)),
    "softmax_row": (
        "lost",
        "same",
        (np.array([[1.0, 2.0]]), np.array([[900.0, 0.0], [0.0, 900.0]]), np.zeros(2)),
    ),
    "growth": ("too large", "", (1.0, np.ones(2))),
    "scale": ("none", "", (np.array([0.1]),)),
    "spread": ("none", "same", (np.full(3, 2.0),)),
    "distance": ("none", "same", (np.ones((2, 3)), np.ones((2, 3)))),
    "unit": ("lost", "same", (np.full((2, 3), 1e200),)),
    "hypotenuse": ("lost", "same", (np.array([3e200, 1.0]), np.array([4e200, 1.0]))),
    "mixture": ("lost", "same", (np.array([50.0, 60.0]), np.full(2, 0.5), np.arange(2.0))),
    "one_more": ("lost", "same", (np.array([1000.0, 0.0]),)),
}
"""The kind of the fault, the grade of the remedy, and the arguments."""
