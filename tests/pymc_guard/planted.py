"""PyMC models with a mistake that a sampler meets: a guard has to raise on each of them.

``MODELS`` maps a name to a function that returns the model.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(3)
X = np.linspace(-1.0, 1.0, 12)
Y = 0.3 * X + RNG.normal(scale=0.5, size=12)

MODELS = {}


def model_of(build):
    """Return the model that `build` fills."""
    with pm.Model() as model:
        build()
    return model


def planted(build):
    """Put a function that fills a model into `MODELS`."""
    MODELS[build.__name__] = partial(model_of, build)
    return build


@planted
def logarithm_of_a_normal():
    a = pm.Normal("a", initval=0.5)
    pm.Normal("y", pt.log(a), 1.0, observed=Y)


@planted
def root_of_a_normal():
    a = pm.Normal("a", initval=0.5)
    pm.Normal("y", pt.sqrt(a) * X, 1.0, observed=Y)


@planted
def power_of_a_negative():
    power = pm.Normal("power", 1.5, 0.3, initval=1.5)
    pm.Normal("y", pt.abs(X) * (X**power), 1.0, observed=Y)


@planted
def gradient_of_a_root_at_zero():
    a = pm.Normal("a", initval=0.0)
    pm.Normal("y", pt.sqrt(pt.abs(a * np.append(X[1:], 0.0))), 1.0, observed=Y)


@planted
def missing_covariate():
    slope = pm.Normal("slope")
    data = pt.as_tensor(np.where(X > 0.9, np.nan, X))
    pm.Normal("y", slope * data, 1.0, observed=Y)


@planted
def density_of_ones_own():
    def logp(value, rate):
        return pt.log(rate) - rate * value

    pm.CustomDist("y", pm.Normal("rate", initval=0.5), logp=logp, observed=np.abs(Y))


@planted
def arc_of_a_normal():
    a = pm.Normal("a", initval=0.1)
    pm.Normal("y", pt.arccos(a), 1.0, observed=Y)
