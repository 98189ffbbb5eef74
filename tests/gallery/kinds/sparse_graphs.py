"""Sparse matrices."""

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt
import scipy.sparse


def degree_of_an_isolated_node(repaired=False):
    """A graph convolution divides by the root of the degree, and one node has none."""
    adjacency = ps.csr_matrix("adjacency", dtype="float64")
    h = pt.dmatrix("h")
    degree = ps.sp_sum(adjacency, axis=1)
    if repaired:
        degree = degree + 1.0
    scale = 1 / pt.sqrt(degree)  # culprit
    out = ps.structured_dot(adjacency, h) * scale[:, None]
    return [adjacency, h], [out.sum()], []


def tf_idf(repaired=False):
    """The inverse document frequency of a word that no document has."""
    counts = ps.csr_matrix("counts", dtype="float64")
    n = ps.sp_sum(counts, axis=0)
    if repaired:
        n = n + 1.0
    idf = pt.log(3.0 / n)  # culprit
    return [counts], [idf.sum()], []


TRUTH = {
    "degree_of_an_isolated_node": {
        "op": "true_div",
        "kind": "nan",
        "element": (2,),
        "operands": (
            1.0,
            0.0,
        ),
        "start": "degree",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (
            scipy.sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0] * 3])),
            np.ones((3, 2)),
        ),
    },
    "tf_idf": {
        "op": "log",
        "kind": "inf",
        "element": (1,),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "none",
        "arguments": (scipy.sparse.csr_matrix(np.array([[1.0, 0.0], [2.0, 0.0]])),),
    },
}
