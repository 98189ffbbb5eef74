"""Updates of a training: step sizes, moments and schedules."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def adam_without_eps(repaired=False):
    """Adam divides by the root of the second moment, which is 0 for a dead weight."""
    w = pytensor.shared(np.array([1.0, 0.0]), name="w")
    v = pytensor.shared(np.zeros(2), name="v")
    x = pt.dvector("x")
    g = pytensor.grad(((w * x) ** 2).sum(), w)
    v_new = 0.9 * v + 0.1 * g**2
    root = pt.sqrt(v_new)
    if repaired:
        root = root + 1e-8
    step = g / root  # culprit
    return [x], [], [(v, v_new), (w, w - 0.01 * step)]


def normalised_gradient(repaired=False):
    """The gradient is divided by its norm, and is 0."""
    w = pytensor.shared(np.array([0.0, 0.0]), name="w")
    x = pt.dvector("x")
    g = pytensor.grad(((w * x) ** 2).sum(), w)
    norm = pt.sqrt((g**2).sum())
    if repaired:
        norm = norm + 1e-8
    direction = g / norm  # culprit
    return [x], [], [(w, w - 0.1 * direction)]


def diverging_descent(repaired=False):
    """A step so large that the weights leave any range."""
    w = pytensor.shared(np.array([1e4, -2e4]), name="w")
    x = pt.dvector("x")
    loss = ((w * x) ** 2).sum()
    g = pytensor.grad(loss, w)
    rate = 1e-9 if repaired else 1e2
    return [x], [], [(w, w - rate * g)]  # culprit


def moment_of_one_sample(repaired=False):
    """The unbiased variance of a batch of one."""
    x = pt.dmatrix("x")
    n = x.shape[0]
    mean = x.mean(axis=0)
    freedom = n if repaired else n - 1
    var = ((x - mean) ** 2).sum(axis=0) / freedom  # culprit
    return [x], [var.sum()], []


def batch_norm_of_constant(repaired=False):
    """A feature that is the same in the whole batch has no deviation."""
    x = pt.dmatrix("x")
    std = x.std(axis=0)
    if repaired:
        std = std + 1e-5
    normed = (x - x.mean(axis=0)) / std  # culprit
    return [x], [normed.sum()], []


def newton_step(repaired=False):
    """Newton's method where the curvature is 0."""
    w = pytensor.shared(1.0, name="w")
    a = pt.dscalar("a")
    loss = a * w**3 - 3 * w**2 + w
    slope = pytensor.grad(loss, w)
    curvature = pytensor.grad(slope, w)
    if repaired:
        curvature = pt.maximum(curvature, 1e-3)
    step = slope / curvature  # culprit
    return [a], [], [(w, w - step)]


def cosine_similarity(repaired=False):
    """One of the vectors that are compared is 0."""
    a, b = pt.dmatrices("a", "b")
    dots = (a * b).sum(axis=1)
    na = pt.sqrt((a**2).sum(axis=1))
    nb = pt.sqrt((b**2).sum(axis=1))
    norms = na * nb
    if repaired:
        norms = norms + 1e-9
    similarity = dots / norms  # culprit
    return [a, b], [similarity.mean()], []


def correlation_of_constant(repaired=False):
    """The correlation with a column that does not vary."""
    x, y = pt.dvectors("x", "y")
    xc, yc = x - x.mean(), y - y.mean()
    norm = pt.sqrt((xc**2).sum() * (yc**2).sum())
    if repaired:
        norm = norm + 1e-9
    r = (xc * yc).sum() / norm  # culprit
    return [x, y], [r], []


def adam_for_two_parameters(repaired=False):
    """Adam for a list of parameters, with a count of steps that begins at 0."""
    x, y = pt.dmatrix("x"), pt.dvector("y")
    w, b = (pytensor.shared(np.array(v), name=n) for v, n in (([0.3, -0.2], "w"), (0.1, "b")))
    count = pytensor.shared(1.0 if repaired else 0.0, name="count")
    loss = ((x @ w + b - y) ** 2).mean()
    updates = [(count, count + 1)]
    for p in (w, b):
        m, v = (pytensor.shared(0 * p.get_value(), name=f"{k}_{p.name}") for k in "mv")
        g = pytensor.grad(loss, p)
        m_new, v_new = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m_new / (1 - 0.9**count), v_new / (1 - 0.999**count)
        step = 0.01 * m_hat / (pt.sqrt(v_hat) + 1e-8)  # culprit
        updates += [(m, m_new), (v, v_new), (p, p - step)]
    return [x, y], [loss], updates


TRUTH = {
    "adam_without_eps": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "v",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1.0, 2.0]),),
    },
    "normalised_gradient": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "w",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1.0, 2.0]),),
    },
    "diverging_descent": {
        "op": "mul",
        "kind": "big",
        "element": (0,),
        "operands": (
            100.0,
            2e8,
        ),
        "start": None,
        "hint": "diverging-update",
        "fault": "big",
        "arguments": (np.array([100.0, 300.0]),),
    },
    "moment_of_one_sample": {
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
        "arguments": (np.array([[1.0, 2.0]]),),
    },
    "batch_norm_of_constant": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 1),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.0, 2.0], [3.0, 2.0]]),),
    },
    "newton_step": {
        "op": "true_div",
        "kind": "inf",
        "element": (),
        "operands": (
            -2.0,
            0.0,
        ),
        "start": "a",
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (1.0,),
    },
    "cosine_similarity": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "a",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [3.0, 1.0]])),
    },
    "correlation_of_constant": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "y",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 5.0])),
    },
    "adam_for_two_parameters": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (-np.inf, np.inf),
        "deeper": "true_div",
        "start": "count",
        "hint": "inf-by-inf",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.ones((3, 2)), np.arange(3.0)),
    },
}
