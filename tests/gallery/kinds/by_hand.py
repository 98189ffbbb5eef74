"""What users write by hand: an optimizer, normalisations, transforms, a solver."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def isolated_node(repaired=False):
    """The degree of a node without neighbours is 0."""
    adjacency, h = pt.dmatrices("adjacency", "h")
    degree = adjacency.sum(axis=1)
    if repaired:
        degree = pt.maximum(degree, 1.0)
    scale = degree**-0.5  # culprit
    return [adjacency, h], [(adjacency @ (h * scale[:, None])).sum()], []


def adam_from_step_zero(repaired=False):
    """Adam's bias correction divides by ``1 - beta ** 0``."""
    x = pt.dvector("x")
    w, m, v = (
        pytensor.shared(np.array(a), name=n) for n, a in (("w", 0.5), ("m", 0.0), ("v", 0.0))
    )
    count = pytensor.shared(0.0, name="count")
    t = count + 1 if repaired else count
    g = pytensor.grad(((x * w - 1) ** 2).sum(), w)
    m_new, v_new = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    m_hat = m_new / (1 - 0.9**t)  # culprit
    v_hat = v_new / (1 - 0.999**t)
    updates = [(m, m_new), (v, v_new), (count, count + 1)]
    return [x], [], [*updates, (w, w - 0.01 * m_hat / (pt.sqrt(v_hat) + 1e-8))]


def batch_of_one(repaired=False):
    """A batch of one example has no variance."""
    x = pt.dmatrix("x")
    gamma = pytensor.shared(np.ones(2), name="gamma")
    mean, var = x.mean(axis=0), x.var(axis=0)
    if repaired:
        var = var + 1e-5
    normed = gamma * (x - mean) / pt.sqrt(var)  # culprit
    loss = (normed**2).sum()
    return [x], [loss], []


def stick_breaking(repaired=False):
    """A share is so near to 1 that nothing is left of the stick."""
    raw = pt.dvector("raw")
    share = pt.sigmoid(raw)
    kept = pt.sigmoid(-raw) if repaired else 1 - share
    rest = pt.concatenate([pt.ones(1), pt.cumprod(kept)[:-1]])
    weights = share * rest
    logs = pt.log(weights)  # culprit
    loss = logs.sum()
    return [raw], [loss], []


def inverse_softplus(repaired=False):
    """The inverse of a softplus overflows long before its result does."""
    sigma = pt.fvector("sigma")
    stable = sigma + pt.log(-pt.expm1(-sigma))
    raw = pt.log(pt.exp(sigma) - 1)  # culprit
    return [sigma], [(stable if repaired else raw).sum()], []


def conjugate_gradients(repaired=False):
    """One step more than needed: the residual is exactly 0."""
    a, b = pt.dmatrix("a"), pt.dvector("b")
    eps = 1e-12 if repaired else 0.0

    def step(x, r, p):
        ap = a.dot(p)
        rr = r.dot(r)
        alpha = (rr + eps) / (p.dot(ap) + eps) if repaired else rr / p.dot(ap)  # culprit
        r_new = r - alpha * ap
        beta = r_new.dot(r_new) / (rr + eps) if repaired else r_new.dot(r_new) / rr
        return x + alpha * p, r_new, r_new + beta * p

    (xs, _, _), _ = pytensor.scan(step, outputs_info=[pt.zeros_like(b), b, b], n_steps=3)
    return [a, b], [xs[-1]], []


TRUTH = {
    "isolated_node": {
        "op": "pow",
        "kind": "inf",
        "element": (1,),
        "operands": (
            0.0,
            -0.5,
        ),
        "start": "adjacency",
        "hint": "pow-at-zero",
        "fault": "none",
        "arguments": (np.array([[0.0, 1.0], [0.0, 0.0]]), np.ones((2, 2))),
    },
    "adam_from_step_zero": {
        "op": "true_div",
        "kind": "inf",
        "element": (),
        "operands": (
            -0.1,
            0.0,
        ),
        "start": "count",
        "hint": "division-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1.0, 2.0]),),
    },
    "batch_of_one": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.5, -2.0]]),),
    },
    "stick_breaking": {
        "op": "log",
        "kind": "inf",
        "element": (2,),
        "operands": (0.0,),
        "start": "raw",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.5, 40.0, 0.1]),),
    },
    "inverse_softplus": {
        "op": "exp",
        "kind": "inf",
        "element": (1,),
        "operands": (120.0,),
        "start": None,
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([0.5, 120.0], "float32"),),
        "watch": "inf",
    },
    "conjugate_gradients": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "b",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (np.diag([2.0, 2.0]), np.array([1.0, 3.0])),
    },
}
