"""Attention: masks, temperatures, and the entropy of the weights."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.special import softmax


def all_keys_masked(repaired=False):
    """Every key of one query is masked with -inf."""
    q, k, allowed = pt.dmatrices("q", "k", "allowed")
    blocked = -1e9 if repaired else -np.inf
    scores = q @ k.T + pt.switch(pt.eq(allowed, 0), blocked, 0.0)
    weights = softmax(scores, axis=-1)  # culprit
    return [q, k, allowed], [weights.sum(axis=1).mean()], []


def temperature_of_zero(repaired=False):
    """The temperature of an attention has been annealed to 0."""
    scores, temperature = pt.dmatrix("scores"), pt.dscalar("temperature")
    heat = pt.maximum(temperature, 1e-3) if repaired else temperature
    scaled = scores / heat  # culprit
    return [scores, temperature], [softmax(scaled, axis=1).max()], []


def entropy_of_hard_attention(repaired=False):
    """The entropy of weights of which one is exactly 0."""
    p = pt.dmatrix("p")
    known = pt.maximum(p, 1e-30) if repaired else p
    logs = pt.log(known)  # culprit
    entropy = -(p * logs).sum(axis=1)
    return [p], [entropy.mean()], []


def no_query(repaired=False):
    """Weights are normalised by their sum, and a padded query has none."""
    weights = pt.dmatrix("weights")
    total = weights.sum(axis=1, keepdims=True)
    if repaired:
        total = total + 1e-9
    normed = weights / total  # culprit
    loss = (normed**2).sum()
    return [weights], [loss, pytensor.grad(loss, weights)], []


def every_beam_finished(repaired=False):
    """All scores of a row are -inf, and so is the largest, which is subtracted."""
    scores, finished = pt.dmatrix("scores"), pt.lmatrix("finished")
    lowest = -1e9 if repaired else -np.inf
    left = scores + pt.where(finished, lowest, 0.0)
    shares = pt.exp(left - left.max(axis=1, keepdims=True))  # culprit
    return [scores, finished], [shares / shares.sum(axis=1, keepdims=True)], []


def padding_token(repaired=False):
    """The embedding of the padding token is 0, which has no direction."""
    ids, other = pt.lvectors("ids", "other")
    table = pytensor.shared(np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]]), name="table")

    def unit(v):
        size = pt.sqrt((v**2).sum(axis=-1, keepdims=True) + (1e-9 if repaired else 0.0))
        return v / size  # culprit

    similarity = (unit(table[ids]) * unit(table[other])).sum(axis=-1)
    loss = 1 - similarity.mean()
    return [ids, other], [], [(table, table - 0.1 * pytensor.grad(loss, table))]


TRUTH = {
    "all_keys_masked": {
        "op": "sub",
        "kind": "nan",
        "element": (1, 0),
        "operands": (
            -np.inf,
            -np.inf,
        ),
        "start": "allowed",
        "hint": "softmax-of-infinity",
        "fault": "none",
        "grade": "changes",
        "deeper": {"constant", "switch"},  # (PyTensor 3.0 does not fold the switch)
        "arguments": (np.eye(2, 3), np.ones((2, 3)), np.array([[1.0, 1.0], [0.0, 0.0]])),
        "watch": "nan",
    },
    "temperature_of_zero": {
        "op": "true_div",
        "kind": "inf",
        "element": (0, 0),
        "operands": (
            1.0,
            0.0,
        ),
        "start": None,
        "hint": "division-by-zero",
        "fault": "none",
        "arguments": (np.array([[1.0, -2.0], [0.5, 3.0]]), 0.0),
    },
    "entropy_of_hard_attention": {
        "op": "log",
        "kind": "inf",
        "element": (1, 1),
        "operands": (0.0,),
        "start": None,
        "hint": "log-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([[0.5, 0.5], [1.0, 0.0]]),),
    },
    "no_query": {
        "op": "true_div",
        "kind": "nan",
        "element": (1, 0),
        "operands": (
            0.0,
            0.0,
        ),
        "start": "weights",
        "hint": "zero-by-zero",
        "fault": "none",
        "arguments": (np.array([[1.0, 3.0], [0.0, 0.0]]),),
    },
    "every_beam_finished": {
        "op": "sub",
        "kind": "nan",
        "element": (1, 0),
        "operands": (-np.inf, -np.inf),
        "start": "finished",
        "hint": "inf-minus-inf",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.zeros((2, 2)), np.array([[0, 1], [1, 1]])),
    },
    "padding_token": {
        "op": "true_div",
        "kind": "nan",
        "element": (2, 0),
        "operands": (0.0, 0.0),
        "start": "table",
        "hint": "zero-by-zero",
        "fault": "none",
        "grade": "changes",
        "arguments": (np.array([1, 2, 0]), np.array([2, 1, 1])),
    },
}
