"""PyMC models with a fault at a point, of both kinds, with the truth about each.

In the first half the formula has a value that the arithmetic loses; in the second it has none.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

X = np.linspace(-1.0, 1.0, 5)


def mixture_in_probabilities():
    mu = pm.Normal("mu", shape=2)
    y = np.array([0.1, 60.0])
    parts = 0.5 * pt.exp(-0.5 * (y[:, None] - mu) ** 2)
    pm.Potential("y", pt.log(parts.sum(axis=1)).sum())


def heavy_loss():
    a = pm.Normal("a", 0, 1000)
    pm.Potential("y", -pt.log(pt.cosh(a - X)).sum())


def softmax_by_hand():
    h = pm.Normal("h", 0, 100, shape=3)
    w = pt.exp(h) / pt.exp(h).sum()
    pm.Potential("y", pt.log(w[0]))


def hidden_states():
    rate = pm.HalfNormal("rate")
    trans = pt.constant(np.array([[0.9, 0.1], [0.2, 0.8]]))
    emission = pt.exp(-rate * np.full((6, 2), 150.0))

    def step(e, alpha):
        return (alpha @ trans) * e

    alphas = pytensor.scan(
        step, sequences=[emission], outputs_info=[np.full(2, 0.5)], return_updates=False
    )
    pm.Potential("y", pt.log(alphas[-1].sum()))


def importance_weights():
    logs = pm.Flat("logs", shape=3)
    w = pt.exp(logs)
    pm.Potential("size", w.sum() ** 2 / (w**2).sum())


def logarithm_of_a_normal():
    a = pm.Normal("a", shape=2)
    pm.Normal("y", pt.log(a), 1.0, observed=[0.1, 0.2])


def duration_before_onset():
    onset = pm.Normal("onset")
    rt = np.array([0.4, 0.9])
    pm.Potential("y", -pt.log(rt - onset).sum())


def angle_of_a_correlation():
    r = pm.Normal("r")
    pm.Normal("y", pt.arccos(r), 1.0, observed=[1.0, 2.0])


def shares_of_nothing():
    w = pm.Normal("w", shape=3)
    share = w / w.sum()
    pm.Normal("y", share, 1.0, observed=[0.3, 0.3, 0.4])


def same_place_twice():
    scale = pm.HalfNormal("scale")
    place = np.array([0.1, 0.7, 0.1])
    k = pt.exp(-0.5 * (place[:, None] - place) ** 2 / scale**2)
    pm.MvNormal("y", np.zeros(3), chol=pt.linalg.cholesky(k), observed=np.ones(3))


LOST, NONE = "lost", "none"
MODELS = {
    mixture_in_probabilities: ({"mu": [0.0, 1.0]}, LOST, "same", "log"),
    heavy_loss: ({"a": 800.0}, LOST, "same", "cosh"),
    softmax_by_hand: ({"h": [-800.0, 0.0, 1.0]}, LOST, "same", "log"),
    hidden_states: ({"rate_log__": 0.0}, LOST, "same", "log"),
    importance_weights: ({"logs": [-900.0, -901.0, -902.0]}, LOST, "same", "true_div"),
    logarithm_of_a_normal: ({"a": [-1.0, 0.5]}, NONE, "", "log"),
    duration_before_onset: ({"onset": 0.5}, NONE, "", "log"),
    angle_of_a_correlation: ({"r": 1.5}, NONE, "", "arccos"),
    shares_of_nothing: ({"w": [1.0, -1.0, 0.0]}, NONE, "", "true_div"),
    same_place_twice: ({"scale_log__": 0.0}, NONE, "changes", "cholesky"),
}
"""By model: the point, the kind of the fault, the grade of the remedy, and the operation."""
