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
}
"""The kind of the fault, the grade of the remedy, and the arguments."""
