"""Rows are gathered before the logarithm is taken."""

import numpy as np
import pytensor.tensor as pt


def model():
    """Return inputs, outputs and updates."""
    table = pt.dmatrix("table")
    rows = pt.lvector("rows")
    picked = table[rows]
    return [table, rows], [pt.log(picked).sum()], []  # culprit


def repaired():
    """Return the same for the model with the fault repaired."""
    table = pt.dmatrix("table")
    rows = pt.lvector("rows")
    picked = pt.maximum(table[rows], 1e-6)
    return [table, rows], [pt.log(picked).sum()], []


def arguments():
    """Return the values of the inputs."""
    table = np.arange(12.0).reshape(4, 3) + 1.0
    table[3, 1] = -7.0
    return [table, np.array([0, 3, 2])]


TRUTH = {
    "op": "log",
    "kind": "nan",
    "element": (1, 1),
    "operands": (-7.0,),
    "backward": False,
    "hint": "log-negative",
}
