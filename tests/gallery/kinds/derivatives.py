"""Values that are sound with derivatives that are not."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def arcsin_at_one(repaired=False):
    """The derivative of arcsin at 1 is infinite."""
    x = pt.dvector("x")
    sine = pt.clip(x, -1 + 1e-6, 1 - 1e-6) if repaired else x
    angle = pt.arcsin(sine)  # culprit
    return [x], [pytensor.grad(angle.sum(), x)], []


def arccos_of_dot(repaired=False):
    """The angle of a vector with itself: rounding puts the cosine above 1."""
    u, v = pt.dvectors("u", "v")
    un = u / pt.sqrt((u**2).sum())
    vn = v / pt.sqrt((v**2).sum())
    cosine = (un * vn).sum() * (1 + 1e-12)
    if repaired:
        cosine = pt.clip(cosine, -1, 1)
    angle = pt.arccos(cosine)  # culprit
    return [u, v], [angle], []


def root_of_abs(repaired=False):
    """The derivative of abs(x) ** 0.5 at 0."""
    x = pt.dvector("x")
    size = abs(x) + 1e-6 if repaired else abs(x)
    y = size**0.5  # culprit
    return [x], [pytensor.grad(y.sum(), x)], []


def direction_of_nothing(repaired=False):
    """The derivative of arctan2 at the origin."""
    y, x = pt.dvectors("y", "x")
    ahead = x + 1e-9 if repaired else x
    angle = pt.arctan2(y, ahead)  # culprit
    return [y, x], [pytensor.grad(angle.sum(), y)], []


def masked_by_product(repaired=False):
    """A factor of 0 masks the value of a root, and not its derivative."""
    x = pt.dvector("x")
    safe = pt.switch(x > 0, x, 1.0) if repaired else x
    root = pt.sqrt(safe)  # culprit
    y = (x > 0) * root
    return [x], [pytensor.grad(y.sum(), x)], []


def derivative_by_exponent(repaired=False):
    """The derivative of x ** p by p takes the logarithm of x."""
    x, p = pt.dvector("x"), pt.dscalar("p")
    base = abs(x) if repaired else x
    y = base**p  # culprit
    return [x, p], [pytensor.grad(y.sum(), p)], []


def standard_deviation_of_equals(repaired=False):
    """The derivative of a standard deviation of equal numbers."""
    x = pt.dmatrix("x")
    var = x.var(axis=1)
    if repaired:
        var = var + 1e-9
    spread = pt.sqrt(var)  # culprit
    return [x], [pytensor.grad(spread.sum(), x)], []


def focal_loss(repaired=False):
    """The focal loss of a sure prediction: (1 - p) ** gamma with gamma below 1."""
    p = pt.dvector("p")
    miss = 1 - p + 1e-6 if repaired else 1 - p
    weight = miss**0.5  # culprit
    loss = -(weight * pt.log(p)).sum()
    return [p], [pytensor.grad(loss, p)], []


def product_of_many(repaired=False):
    """The derivative of a geometric mean in which one factor is 0."""
    x = pt.dvector("x")
    factors = pt.maximum(x, 1e-6) if repaired else x
    mean = pt.exp(pt.log(factors).mean())  # culprit
    return [x], [pytensor.grad(mean, x)], []


def angle_of_equal_directions(repaired=False):
    """The cosine of equal directions is clipped to 1, where arccos has no derivative."""
    cosine = pt.dvector("cosine")
    nearly = 0.999 * cosine if repaired else cosine
    angle = pt.arccos(pt.clip(nearly, -1, 1))  # culprit
    return [cosine], [pytensor.grad((angle**2).sum(), cosine)], []


TRUTH = {
    "arcsin_at_one": {
        "op": "reciprocal",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "x",
        "hint": "gradient-at-zero",
        "fault": "none",
        "arguments": (np.array([0.5, 1.0]),),
    },
    "arccos_of_dot": {
        "op": "arccos",
        "kind": "nan",
        "element": (),
        "operands": (1.0,),
        "start": "u",
        "hint": "arc-out-of-range",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])),
    },
    "root_of_abs": {
        "op": "reciprocal",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "x",
        "hint": "gradient-at-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([4.0, 0.0]),),
    },
    "direction_of_nothing": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "gradient-at-zero",
        "fault": "none",
        "arguments": (np.array([1.0, 0.0]), np.array([1.0, 0.0])),
    },
    "masked_by_product": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "x",
        "hint": "norm-gradient-at-zero",
        "fault": "none",
        "grade": "same",
        "arguments": (np.array([4.0, 0.0]),),
    },
    "derivative_by_exponent": {
        "op": "log",
        "kind": "nan",
        "element": (1,),
        "operands": (-3.0,),
        "start": None,
        "hint": "log-negative",
        "fault": "none",
        "arguments": (np.array([2.0, -3.0]), 2.0),
    },
    "standard_deviation_of_equals": {
        "op": "true_div",
        "kind": "nan",
        "element": (1, 0),
        "operands": (
            -0.0,
            0.0,
        ),
        "start": "x",
        "hint": "norm-gradient-at-zero",
        "fault": "none",
        "grade": "same",
        "arguments": (np.array([[1.0, 2.0], [3.0, 3.0]]),),
    },
    "focal_loss": {
        "op": "reciprocal",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": "p",
        "hint": "gradient-at-zero",
        "fault": "none",
        "arguments": (np.array([0.5, 1.0]),),
    },
    "product_of_many": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "none",
        "arguments": (np.array([2.0, 0.0]),),
    },
    "angle_of_equal_directions": {
        "op": "true_div",
        "kind": "nan",
        "element": (1,),
        "operands": (-0.0, 0.0),
        "start": "cosine",
        "hint": "gradient-at-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([0.5, 1.0]),),
    },
}
