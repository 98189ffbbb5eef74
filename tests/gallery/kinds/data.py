"""Faults of the data, of integers and of precision."""

import numpy as np
import pytensor.tensor as pt


def missing_rows(repaired=False):
    """Missing entries are written as NaN; the repair leaves these rows out of the data."""
    x = pt.dmatrix("x")
    return [x], [x.mean(axis=0)], []


def counts_wrap_around(repaired=False):
    """A product of 32-bit counts wraps around and its logarithm is taken."""
    n = pt.ivector("n")
    n_in = pt.cast(n, "float64") if repaired else n
    total = n_in[0] * n_in[1]
    y = pt.log(total)  # culprit
    return [n], [y], []


def sum_of_squares_in_float32(repaired=False):
    """The square of a raw pixel sum overflows in float32."""
    x = pt.fvector("x")
    x_in = pt.cast(x, "float64") if repaired else x
    energy = (x_in**2).sum()  # culprit
    return [x], [energy], []


def variance_by_moments(repaired=False):
    """E[x^2] - E[x]^2 of data with a large mean."""
    x = pt.dvector("x")
    var = (x**2).mean() - x.mean() ** 2
    if repaired:
        var = x.var()
    std = pt.sqrt(var)  # culprit
    return [x], [std], []


def half_precision(repaired=False):
    """Activations do not fit into float16."""
    x = pt.fvector("x")
    scaled = x if repaired else x * 100
    y = pt.cast(scaled, "float16")  # culprit
    return [x], [y.max()], []


def rates_of_dangling_nodes(repaired=False):
    """A node without links: its column of a transition matrix is divided by 0."""
    links = pt.dmatrix("links")
    degree = links.sum(axis=0)
    if repaired:
        degree = pt.maximum(degree, 1)
    transition = links / degree  # culprit
    return [links], [transition.sum()], []


def large_but_right(repaired=False):
    """Energies are large on purpose: the threshold is too low."""
    charge = pt.dvector("charge")
    charge_in = charge * 1e-6 if repaired else charge
    energy = charge_in[0] * charge_in[1]  # culprit
    return [charge], [energy], []


def cumulated_growth(repaired=False):
    """Growth factors that are multiplied up over the years."""
    rates = pt.dvector("rates")
    factors = rates[:2] if repaired else rates
    growth = pt.cumprod(factors)  # culprit
    return [rates], [growth[-1]], []


TRUTH = {
    "missing_rows": {
        "op": None,
        "kind": "nan",
        "element": (1, 0),
        "operands": (),
        "start": None,
        "hint": "missing-data",
        "role": "input",
        "arguments": (np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, np.nan]]),),
        "repaired_arguments": (np.array([[1.0, 2.0]]),),
    },
    "counts_wrap_around": {
        "op": "log",
        "kind": "nan",
        "element": (),
        "operands": (-1294970000.0,),
        "start": "n",
        "hint": "integer-wrapped",
        "fault": "none",
        "arguments": (np.array([60000, 50000], "int32"),),
    },
    "sum_of_squares_in_float32": {
        "op": "pow",
        "kind": "inf",
        "element": (1,),
        "operands": (
            3e19,
            2.0,
        ),
        "start": None,
        "hint": "product-overflow",
        "fault": "too large",
        "arguments": (np.array([1.0, 3e19], "float32"),),
        "watch": "inf",
    },
    "variance_by_moments": {
        "op": "sqrt",
        "kind": "nan",
        "element": (),
        "operands": (-2.0,),
        "start": "x",
        "hint": "cancellation",
        "fault": "lost",
        "grade": "same",
        "arguments": (1e8 + 0.1 * np.arange(3),),
        "watch": "inf",
    },
    "half_precision": {
        "op": "cast",
        "kind": "inf",
        "element": (1,),
        "operands": (500000.0,),
        "start": "x",
        "hint": "cast-overflow",
        "fault": "too large",
        "arguments": (np.array([1.0, 5000.0], "float32"),),
    },
    "rates_of_dangling_nodes": {
        "op": "true_div",
        "kind": "nan",
        "element": (0, 1),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "links",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (np.array([[0.0, 0.0], [1.0, 0.0]]),),
    },
    "large_but_right": {
        "op": "mul",
        "kind": "big",
        "element": (),
        "operands": (
            3000000.0,
            4000000.0,
        ),
        "start": None,
        "hint": "big-value",
        "fault": "big",
        "arguments": (np.array([3e6, 4e6]),),
    },
    "cumulated_growth": {
        "op": "cumprod",
        "kind": "big",
        "element": (3,),
        "operands": (None,),
        "start": None,
        "hint": "big-value",
        "fault": "big",
        "arguments": (np.array([2.0, 1e5, 1e4, 3e3]),),
    },
}
