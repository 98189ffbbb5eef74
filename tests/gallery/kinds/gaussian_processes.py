"""Gaussian processes, distances and decompositions of matrices."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def gradient_of_pairwise_distances(repaired=False):
    """The distance of a point to itself has no gradient."""
    x = pt.dmatrix("x")
    diff = x[:, None, :] - x[None, :, :]
    d2 = (diff**2).sum(axis=2)
    if repaired:
        d2 = d2 + 1e-12
    d = pt.sqrt(d2)  # culprit
    loss = pt.exp(-d).sum()
    return [x], [pytensor.grad(loss, x)], []


def distances_by_expansion(repaired=False):
    """Squared distances as a difference of squares: one becomes negative by rounding."""
    x = pt.dmatrix("x")
    sq = (x**2).sum(axis=1)
    d2 = sq[:, None] + sq[None, :] - 2 * (x @ x.T)
    if repaired:
        d2 = pt.maximum(d2, 0)
    d = pt.sqrt(d2)  # culprit
    return [x], [d.sum()], []


def duplicate_points(repaired=False):
    """The covariance of points of which two are the same is singular."""
    x = pt.dvector("x")
    k = pt.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    k = k - 1e-9 * pt.eye(3)
    if repaired:
        k = k + 1e-6 * pt.eye(3)
    chol = pt.linalg.cholesky(k, on_error="nan")  # culprit
    return [x], [pt.log(pt.diag(chol)).sum()], []


def zero_length_scale(repaired=False):
    """A length scale has been rounded to 0."""
    x, scale = pt.dvector("x"), pt.dscalar("scale")
    length = pt.maximum(scale, 1e-3) if repaired else scale
    scaled = (x[:, None] - x[None, :]) / length  # culprit
    return [x, scale], [pt.exp(-0.5 * scaled**2).sum()], []


def log_of_determinant(repaired=False):
    """The determinant of a covariance is 0."""
    a = pt.dmatrix("a")
    cov = a.T @ a
    if repaired:
        cov = cov + 1e-6 * pt.eye(2)
    logdet = pt.log(pt.linalg.det(cov))  # culprit
    return [a], [logdet], []


def gradient_of_equal_eigenvalues(repaired=False):
    """The gradient of eigenvectors divides by the difference of eigenvalues."""
    a = pt.dmatrix("a")
    values, vectors = pt.linalg.eigh(a)  # culprit
    if repaired:  # (the gradient by hand, without quotients of gaps that may be 0)
        gap = values - values[:, None]
        turned = gap / (gap**2 + 1e-12) * (vectors.T @ (3 * vectors**2))
        return [a], [vectors @ (pt.eye(3) + turned) @ vectors.T], []
    loss = (vectors**3).sum() + values.sum()
    return [a], [pytensor.grad(loss, a)], []


TRUTH = {
    "gradient_of_pairwise_distances": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 0, 0),
        "operands": (
            -0.0,
            0.0,
        ),
        "start": "x",
        "hint": "norm-gradient-at-zero",
        "fault": "none",
        "grade": "same",
        "arguments": (np.array([[0.0, 1.0], [2.0, 3.0]]),),
    },
    "distances_by_expansion": {
        "op": "sqrt",
        "kind": "nan",
        "element": (0, 1),
        "operands": (-1.7763568394002505e-15,),
        "start": "x",
        "hint": "cancellation",
        "fault": "lost",
        "arguments": (np.array([[2.636], [2.636000000001819]]),),
    },
    "duplicate_points": {
        "op": "cholesky",
        "kind": "nan",
        "element": (0, 0),
        "operands": (None,),
        "start": None,
        "hint": "cholesky-not-positive-definite",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([0.0, 1.0, 1.0]),),
    },
    "zero_length_scale": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": None,
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (np.array([0.0, 1.0]), 0.0),
    },
    "log_of_determinant": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": None,
        "hint": "singular-matrix",
        "fault": "none",
        "arguments": (np.array([[1.0, 2.0], [2.0, 4.0]]),),
    },
    "gradient_of_equal_eigenvalues": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 1),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "values",
        "hint": "gradient-at-zero",
        "fault": "unknown",
        "arguments": (np.eye(3),),
    },
}
