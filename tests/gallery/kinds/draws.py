"""Random variables."""

import numpy as np
import pytensor
import pytensor.tensor as pt


def heavy_log_normal(repaired=False):
    """A log-normal draw with a scale that should have been its logarithm."""
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    sigma = pt.dscalar("sigma")
    z = pt.random.normal(0, 1, size=3, rng=rng)
    scale = pt.log(sigma) if repaired else sigma
    x = pt.exp(scale * z)  # culprit
    return [sigma], [x.mean()], []


def reparametrised_scale(repaired=False):
    """A draw is scaled by the root of a variance that is negative."""
    rng = pytensor.shared(np.random.default_rng(2), name="rng")
    mu, var = pt.dvectors("mu", "var")
    z = pt.random.normal(0, 1, size=2, rng=rng)
    variance = pt.softplus(var) if repaired else var
    scale = pt.sqrt(variance)  # culprit
    return [mu, var], [(mu + scale * z).sum()], []


def gumbel_of_a_bound(repaired=False):
    """Gumbel noise from a uniform number that was rounded down to 0."""
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    logits = pt.dvector("logits")
    u = pt.floor(4 * pt.random.uniform(0, 1, size=3, rng=rng)) / 4
    if repaired:
        u = pt.clip(u, 1e-6, 1 - 1e-6)
    inner = -pt.log(u)  # culprit
    gumbel = -pt.log(inner)
    return [logits], [(logits + gumbel).max()], []


TRUTH = {
    "heavy_log_normal": {
        "op": "exp",
        "kind": "big",
        "element": (0,),
        "operands": (311.026,),
        "start": "sigma",
        "hint": "exp-big",
        "fault": "big",
        "arguments": (900.0,),
    },
    "reparametrised_scale": {
        "op": "sqrt",
        "kind": "nan",
        "element": (1,),
        "operands": (-0.5,),
        "start": None,
        "hint": "sqrt-negative",
        "fault": "none",
        "arguments": (np.zeros(2), np.array([1.0, -0.5])),
    },
    "gumbel_of_a_bound": {
        "op": "log",
        "kind": "inf",
        "element": (0,),
        "operands": (0.0,),
        "start": "uniform(0, 1, size=3, rng=rng)",
        "hint": "log-zero",
        "fault": "harmless",
        "arguments": (np.zeros(3),),
    },
}
