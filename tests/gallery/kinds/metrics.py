"""Losses and measures of machine learning: segmentation, ranking, embeddings, transport."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def dice_of_nothing(repaired=False):
    """The Dice coefficient of an image without foreground, predicted as such."""
    pred, truth = pt.dmatrices("pred", "truth")
    overlap = (pred * truth).sum(axis=1)
    total = pred.sum(axis=1) + truth.sum(axis=1)
    if repaired:
        total = total + 1e-6
    dice = 2 * overlap / total  # culprit
    return [pred, truth], [1 - dice.mean()], []


def triplet_distances(repaired=False):
    """The anchor and the positive are the same point: the gradient of its distance is 0 / 0."""
    x = pt.dmatrix("x")
    w = pytensor.shared(np.eye(2), name="w")
    e = x @ w
    anchor, positive, negative = e[0], e[1], e[2]
    if repaired:
        near = ((anchor - positive) ** 2).sum()
        far = ((anchor - negative) ** 2).sum()
    else:
        near = pt.sqrt(((anchor - positive) ** 2).sum())  # culprit
        far = pt.sqrt(((anchor - negative) ** 2).sum())
    loss = pt.maximum(near - far + 5.0, 0.0)
    return [x], [loss, pytensor.grad(loss, w)], []


def focal_loss_of_the_class(repaired=False):
    """A focal loss by the probability of the true class, which is 1 - 1."""
    z, y = pt.dvectors("z", "y")
    p = pt.sigmoid(z)
    if repaired:
        log_q = -pt.softplus(pt.switch(pt.eq(y, 1), -z, z))
        loss = -((1 - pt.exp(log_q)) ** 2) * log_q
    else:
        q = pt.switch(pt.eq(y, 1), p, 1 - p)
        loss = -((1 - q) ** 2) * pt.log(q)  # culprit
    return [z, y], [loss.mean()], []


def contrastive_loss(repaired=False):
    """InfoNCE with a small temperature: the exponentials of the similarities overflow."""
    a, b, tau = pt.dmatrix("a"), pt.dmatrix("b"), pt.dscalar("tau")
    sim = (a @ b.T) / tau
    if repaired:
        loss = -pt.diagonal(pt.special.log_softmax(sim, axis=1)).mean()
    else:
        scores = pt.exp(sim)  # culprit
        loss = -pt.log(pt.diagonal(scores) / scores.sum(axis=1)).mean()
    return [a, b, tau], [loss], []


def log_partition_of_energies(repaired=False):
    """The free energy of a restricted Boltzmann machine, as a product over its hidden units."""
    v, w, c = pt.fmatrix("v"), pt.fmatrix("w"), pt.fvector("c")
    x = pt.dot(v, w) + c
    log_z = pt.log(pt.prod(1 + pt.exp(x), axis=1))  # culprit
    if repaired:
        log_z = pt.softplus(x).sum(axis=1)
    return [v, w, c], [-log_z.mean()], []


def cosine_of_empty_document(repaired=False):
    """Cosine similarity of rows that are divided by their norms; a document has no words."""
    counts = pt.dmatrix("counts")
    norm = pt.sqrt((counts**2).sum(axis=1, keepdims=True))
    if repaired:
        norm = pt.maximum(norm, 1e-12)
    unit = counts / norm  # culprit
    return [counts], [(unit @ unit.T).mean()], []


def jensen_shannon(repaired=False):
    """The divergence of two histograms that both have an empty bin: 0 * log(0 / 0)."""
    p, q = pt.dvectors("p", "q")
    m = 0.5 * (p + q)
    if repaired:
        left = pt.switch(pt.gt(p, 0), p * pt.log(pt.switch(pt.gt(p, 0), p / (m + 1e-300), 1)), 0)
    else:
        left = p * pt.log(p / m)  # culprit
    right = pt.switch(pt.gt(q, 0), q * pt.log(pt.switch(pt.gt(q, 0), q / (m + 1e-300), 1)), 0)
    return [p, q], [0.5 * left.sum() + 0.5 * right.sum()], []


def optical_flow(repaired=False):
    """Lucas and Kanade's flow in a window without texture: the structure tensor is singular."""
    ix, iy, it = pt.dvectors("ix", "iy", "it")
    a, b, c = (ix**2).sum(), (ix * iy).sum(), (iy**2).sum()
    det = a * c - b**2
    if repaired:
        det = det + 1e-6
    u = (b * (iy * it).sum() - c * (ix * it).sum()) / det  # culprit
    return [ix, iy, it], [u], []


def weighted_responsibilities(repaired=False):
    """Responsibilities of components with weights, for a point that none of them explains."""
    x, mu = pt.dvectors("x", "mu")
    w = pytensor.shared(np.array([0.3, 0.7]), name="w")
    logs = -0.5 * (x[:, None] - mu) ** 2
    if repaired:
        logs = logs - logs.max(axis=1, keepdims=True)
    density = w * pt.exp(logs)
    r = density / density.sum(axis=1, keepdims=True)  # culprit
    return [x, mu], [(r * x[:, None]).sum(axis=0)], []


def sinkhorn_in_a_loop(repaired=False):
    """Sinkhorn's iterations divide by a sum of kernels that have underflowed."""
    cost, eps = pt.dmatrix("cost"), pt.dscalar("eps")
    kernel = pt.exp(-cost / (pt.maximum(eps, 1.0) if repaired else eps))
    a = np.full(2, 0.5)

    def step(u, v):
        u_new = a / (kernel @ v)  # culprit
        return u_new, a / (kernel.T @ u_new)

    us, vs = pytensor.scan(
        step, outputs_info=[pt.ones(2), pt.ones(2)], n_steps=3, return_updates=False
    )
    plan = us[-1][:, None] * kernel * vs[-1][None, :]
    return [cost, eps], [(plan * cost).sum()], []


def inverse_variance_weights(repaired=False):
    """A meta-analysis: a study reports a standard error of 0."""
    effect, se = pt.dvectors("effect", "se")
    spread = pt.maximum(se, 1e-3) if repaired else se
    weight = 1 / spread**2  # culprit
    return [effect, se], [(weight * effect).sum() / weight.sum()], []


def collinear_design(repaired=False):
    """A design with a column that is twice another."""
    x, y = pt.dmatrix("x"), pt.dvector("y")
    gram = x.T @ x
    if repaired:
        gram = gram + 1e-3 * pt.eye(2)
    beta = pt.linalg.inv(gram) @ (x.T @ y)  # culprit
    return [x, y], [beta], []


def tiny_weights(repaired=False):
    """The squares of tiny importance weights underflow, although their size does not matter."""
    w = pt.dvector("w")
    u = w / w.max() if repaired else w
    n_eff = u.sum() ** 2 / (u**2).sum()  # culprit
    return [w], [n_eff], []


def rayleigh_quotient(repaired=False):
    """The squares of an iterate that nobody has normalised overflow."""
    a, x = pt.dmatrix("a"), pt.dvector("x")
    if repaired:
        u = x / abs(x).max()
        return [a, x], [u @ a @ u / (u @ u)], []
    q = x @ a @ x / (x @ x)  # culprit
    return [a, x], [q], []


def range_of_a_constant(repaired=False):
    """Scaling to 0 to 1 divides by the range of a feature that is constant."""
    x = pt.dvector("x")
    size = x.max() - x.min()
    if repaired:
        size = size + 1e-8
    scaled = (x - x.min()) / size  # culprit
    return [x], [scaled], []


def quantile_of_a_tail(repaired=False):
    """A tail of more than 2 has no inverse."""
    q = pt.dvector("q")
    z = pt.erfcinv(pt.clip(2 * q, 1e-9, 2 - 1e-9) if repaired else 2 * q)  # culprit
    return [q], [z], []


TRUTH = {
    "dice_of_nothing": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "pred",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (
            np.array([[0.2, 0.8], [0.0, 0.0]]),
            np.array([[0.0, 1.0], [0.0, 0.0]]),
        ),
    },
    "triplet_distances": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "norm-gradient-at-zero",
        "fault": "none",
        "grade": "same",
        "arguments": (np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]),),
    },
    "focal_loss_of_the_class": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "z",
        "hint": "log-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.3, 45.0]),
            np.array([1.0, 0.0]),
        ),
    },
    "contrastive_loss": {
        "op": "exp",
        "kind": "inf",
        "element": (0, 0),
        "operands": (900.0,),
        "start": "tau",
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([[1.0, 0.0], [0.6, 0.8]]),
            np.array([[0.9, 0.1], [1.0, 0.9]]),
            0.001,
        ),
    },
    "log_partition_of_energies": {
        "op": "exp",
        "kind": "inf",
        "element": (1, 0),
        "operands": (100.1,),
        "start": "v",
        "hint": "exp-overflow",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([[1.0, 0.0], [100.0, 50.0]], "float32"),
            np.array([[1.0, 0.0], [0.0, 1.0]], "float32"),
            np.array([0.10000000149011612, 0.20000000298023224], "float32"),
        ),
        "watch": "inf",
    },
    "cosine_of_empty_document": {
        "op": "true_div",
        "kind": "nan",
        "element": (1, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "counts",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[1.0, 2.0], [0.0, 0.0]]),),
    },
    "jensen_shannon": {
        "op": "true_div",
        "kind": "nan",
        "element": (2,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "p",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (
            np.array([0.5, 0.5, 0.0]),
            np.array([0.3, 0.7, 0.0]),
        ),
    },
    "optical_flow": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "iy",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (
            np.array([1.0, 2.0]),
            np.array([2.0, 4.0]),
            np.array([0.1, 0.3]),
        ),
    },
    "weighted_responsibilities": {
        "op": "true_div",
        "kind": "nan",
        "element": (2, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (
            np.array([0.0, 1.0, 60.0]),
            np.array([0.0, 1.5]),
        ),
    },
    "sinkhorn_in_a_loop": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            0.5,
            0.0,
        ),
        "start": "eps",
        "hint": "division-by-zero",
        "fault": "lost",
        "arguments": (
            np.array([[0.0, 1.0], [2.0, 1.0]]),
            0.001,
        ),
    },
    "inverse_variance_weights": {
        "op": "true_div",
        "kind": "inf",
        "element": (1,),
        "operands": (
            1.0,
            0.0,
        ),
        "start": "se",
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (
            np.array([0.2, 0.3]),
            np.array([0.1, 0.0]),
        ),
    },
    "collinear_design": {
        "op": "matrixInverse",
        "kind": "nan",
        "element": (0, 0),
        "operands": (None,),
        "start": None,
        "hint": "singular-matrix",
        "fault": "none",
        "grade": "changes",
        "arguments": (
            np.array([[1.0, 2.0], [3.0, 6.0]]),
            np.array([1.0, 2.0]),
        ),
    },
    "tiny_weights": {
        "op": "true_div",
        "kind": "nan",
        "element": (),
        "operands": (0.0, 0.0),
        "start": "w",
        "hint": "zero-by-zero",
        "fault": "lost",
        "grade": "same",
        "arguments": (np.array([1e-200, 3e-200]),),
    },
    "rayleigh_quotient": {
        "op": "dot",
        "kind": "inf",
        "element": (),
        "operands": (None, None),
        "start": "x",
        "hint": "dot-overflow",
        "fault": "lost",
        "grade": "same",
        "watch": "inf",
        "arguments": (np.diag([2e10, 3e10]), np.array([1e150, 3e150])),
    },
    "range_of_a_constant": {
        "op": "true_div",
        "kind": "nan",
        "element": (0,),
        "operands": (0.0, 0.0),
        "start": "x",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([2.0, 2.0]),),
    },
    "quantile_of_a_tail": {
        "op": "erfcinv",
        "kind": "nan",
        "element": (1,),
        "operands": (2.5,),
        "start": "q",
        "hint": "out-of-domain",
        "fault": "none",
        "arguments": (np.array([0.5, 1.25]),),
    },
}
