"""PyMC models that diverge, each with the causes that are right for it.

``MODELS`` maps a name to a function that returns the model, and ``CAUSES`` to the right causes.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(11)
SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

MODELS, CAUSES = {}, {}


def model_of(build):
    """Return the model that `build` fills."""
    with pm.Model() as model:
        build()
    return model


def diverging(*causes):
    """Put a function that fills a model into `MODELS`."""

    def put(build):
        MODELS[build.__name__] = partial(model_of, build)
        CAUSES[build.__name__] = causes
        return build

    return put


@diverging("funnel")
def eight_schools():
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("obs", theta, ERRORS, observed=SCHOOLS)


@diverging("funnel")
def eight_schools_t():
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
    theta = pm.StudentT("theta", nu=6, mu=mu, sigma=tau, shape=8)
    pm.Normal("obs", theta, ERRORS, observed=SCHOOLS)


@diverging("funnel")
def log_tau():
    mu, log_tau = pm.Normal("mu", 0, 5), pm.Normal("log_tau", 0, 2)
    theta = pm.Normal("theta", mu, pt.exp(log_tau), shape=8)
    pm.Normal("obs", theta, ERRORS, observed=SCHOOLS)


@diverging("funnel")
def neals_funnel():
    v = pm.Normal("v", 0, 3)
    pm.Normal("x", 0, pt.exp(v / 2), shape=9)


@diverging("funnel")
def scaled_funnel():
    tau = pm.HalfNormal("tau", 1)
    pm.Normal("x", 0, 3.0 * tau, shape=6)


@diverging("banana", "stiff")
def banana():
    x = pm.Normal("x", 0, 3)
    y = pm.Normal("y", 0, 30)
    pm.Potential("bent", -0.5 * ((y - x**2) / 0.1) ** 2)


@diverging("banana", "tails")
def cauchy_product():
    a, b = pm.Cauchy("a", 0, 5), pm.Cauchy("b", 0, 5)
    pm.Normal("y", a * b, 0.1, observed=1.0)


@diverging("wall")
def wall_of_a_potential():
    a = pm.Normal("a", 0, 1, initval=[1.0, 1.0], shape=2)
    pm.Potential("wall", pt.switch(pt.all(a > 0), 0.0, -np.inf))


@diverging("wall")
def finite_wall():
    a = pm.Normal("a", 0, 1, initval=[1.0, 1.0], shape=2)
    pm.Potential("wall", pt.switch(pt.all(a > 0), 0.0, -1e6))


@diverging("wall")
def no_link():
    slope = pm.Normal("slope", 0, 1)
    x = RNG.normal(size=30)
    pm.Bernoulli("y", p=0.5 + slope * x, observed=RNG.integers(0, 2, 30))
