"""Numbers that a dtype cannot hold, where another way to compute the result can."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.special import log_softmax, softmax


def mixture_density(repaired=False):
    """The densities of all components underflow for one observation."""
    x, out = pt.fvector("x"), pt.fmatrix("out")
    mu, sigma = out[:, :2], pt.exp(out[:, 2:4])
    z = (x[:, None] - mu) / sigma
    if repaired:
        logs = log_softmax(out[:, 4:], axis=1) - 0.5 * z**2 - out[:, 2:4]
        return [x, out], [-pt.logsumexp(logs, axis=1).mean()], []
    density = (softmax(out[:, 4:], axis=1) * pt.exp(-0.5 * z**2) / sigma).sum(axis=1)
    loss = -pt.log(density).mean()  # culprit
    return [x, out], [loss], []


def forward_probabilities(repaired=False):
    """The probability of a sequence leaves the range of float32 on its way through the loop."""
    kind = "float64" if repaired else "float32"
    emission = pt.tensor("emission", shape=(9, 2), dtype=kind)
    mix = np.array([[0.9, 0.1], [0.2, 0.8]], kind)

    def step(e, alpha):
        return (alpha @ mix) * e

    alphas, _ = pytensor.scan(step, sequences=[emission[1:]], outputs_info=[emission[0]])
    total = alphas[-1].sum()
    loss = -pt.log(total)  # culprit
    return [emission], [loss], []


def cox_likelihood(repaired=False):
    """The risk of a patient with large covariates overflows."""
    x = pt.dmatrix("x")
    beta = pytensor.shared(np.array([0.5, 0.1]), name="beta")
    eta = x @ beta
    if repaired:
        at_risk = pt.tri(eta.shape[0], dtype="bool")
        log_hazard = pt.logsumexp(pt.switch(at_risk, eta, -np.inf), axis=1)
    else:
        hazard = pt.exp(eta)  # culprit
        log_hazard = pt.log(pt.cumsum(hazard))
    loss = -(eta - log_hazard).sum()
    return [x], [loss, pytensor.grad(loss, beta)], []


def directional_density(repaired=False):
    """The normalisation of a density on the sphere overflows for a large concentration."""
    kappa = pt.dvector("kappa")
    if repaired:
        size = kappa + pt.log(-pt.expm1(-2 * kappa)) - np.log(2)
        return [kappa], [(pt.log(kappa) - np.log(4 * np.pi) - size).sum()], []
    size = pt.sinh(kappa)  # culprit
    logp = pt.log(kappa) - pt.log(4 * np.pi * size)
    return [kappa], [logp.sum()], []


def gradient_of_raw_features(repaired=False):
    """A step by hand on features that nobody has scaled."""
    x, y = pt.dmatrix("x"), pt.dvector("y")
    w = pytensor.shared(np.array([1e150, 1.0]), name="w")
    scaled = x / 1e160 if repaired else x
    r = scaled @ w - y
    g = scaled.T @ r  # culprit
    return [x, y], [], [(w, w - 1e-3 * g)]


def weight_step_in_float32(repaired=False):
    """The gradient of a layer by hand exceeds float32."""
    kind = "float64" if repaired else "float32"
    h, delta = (pt.tensor(n, shape=(None, None), dtype=kind) for n in ("h", "delta"))
    weights = pytensor.shared(np.ones((2, 2), kind), name="weights")
    step = h.T @ delta  # culprit
    return [h, delta], [], [(weights, weights - np.asarray(0.1, kind) * step)]


def determinant_of_small_scale(repaired=False):
    """The determinant of a large covariance matrix underflows."""
    scale, d = pt.dscalar("scale"), pt.dvector("d")
    cov = scale * pt.eye(120)
    stable = pt.linalg.slogdet(cov)[1]
    logdet = pt.log(pt.linalg.det(cov))  # culprit
    logdet = stable if repaired else logdet
    return [scale, d], [-0.5 * (d @ pt.linalg.solve(cov, d) + logdet)], []


def distillation(repaired=False):
    """A probability of the student underflows, and the divergence divides by it."""
    student, teacher = pt.fmatrix("student"), pt.fmatrix("teacher")
    p, q = softmax(teacher, axis=1), softmax(student, axis=1)
    if repaired:
        logs = log_softmax(teacher, axis=1) - log_softmax(student, axis=1)
        return [student, teacher], [(p * logs).sum()], []
    ratio = p / q  # culprit
    loss = (p * pt.log(ratio)).sum()
    return [student, teacher], [loss], []


TRUTH = {
    "mixture_density": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "x",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.1, 30.0], "float32"), np.zeros((2, 6), "float32")),
    },
    "forward_probabilities": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "emission",
        "hint": "probability-underflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.full((9, 2), 1e-6, "float32"),),
        "repaired_arguments": (np.full((9, 2), 1e-6),),
    },
    "cox_likelihood": {
        "op": "exp",
        "kind": "inf",
        "element": (0,),
        "operands": (800.5,),
        "start": "x",
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([[1.0, 8000.0], [1.0, 9000.0], [0.0, 5000.0]]),),
        "watch": "inf",
    },
    "directional_density": {
        "op": "sinh",
        "kind": "inf",
        "element": (1,),
        "operands": (800.0,),
        "start": None,
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([1.0, 800.0]),),
        "watch": "inf",
    },
    "gradient_of_raw_features": {
        "op": "dot",
        "kind": "inf",
        "element": (0,),
        "operands": (None, None),
        "start": "x",
        "hint": "dot-overflow",
        "fault": "too large",
        "arguments": (np.array([[1e150, 2.0], [3e155, 4.0]]), np.array([1.0, 2.0])),
        "watch": "inf",
    },
    "weight_step_in_float32": {
        "op": "dot",
        "kind": "inf",
        "element": (0, 0),
        "operands": (None, None),
        "start": None,
        "hint": "dot-overflow",
        "fault": "lost",
        "arguments": (
            np.array([[1e20, 2], [3, 4]], "float32"),
            np.array([[1e19, 1], [1, 1]], "float32"),
        ),
        "repaired_arguments": (np.array([[1e20, 2], [3, 4]]), np.array([[1e19, 1], [1, 1]])),
        "watch": "inf",
    },
    "determinant_of_small_scale": {
        "op": "log",
        "kind": "inf",
        "element": (),
        "operands": (0.0,),
        "start": "scale",
        "hint": "probability-underflow",
        "fault": "unknown",
        "grade": "same",
        "arguments": (1e-3, np.ones(120)),
    },
    "distillation": {
        "op": "true_div",
        "kind": "inf",
        "element": (0, 2),
        "operands": (None, 0.0),
        "start": "student",
        "hint": "division-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([[1.0, 2.0, -200.0]], "float32"),
            np.array([[1.0, 1.0, 1.0]], "float32"),
        ),
    },
}
