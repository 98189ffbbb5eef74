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
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 1)
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


# Models of the literature, written as their authors warn against.


@diverging("funnel")
def hierarchical_logistic():
    """Tumours in groups of rats, centred (Gelman et al., Bayesian Data Analysis, 5.1)."""
    mu, tau = pm.Normal("mu", -2, 1), pm.HalfNormal("tau", 1)
    eta = pm.Normal("eta", mu, tau, shape=10)
    deaths, rats = [0, 0, 1, 1, 2, 2, 1, 3, 2, 4], [20, 20, 20, 19, 20, 19, 18, 20, 17, 20]
    pm.Binomial("y", rats, logit_p=eta, observed=deaths)


@diverging("funnel")
def meta_analysis():
    """Random effects of trials that hardly differ (magnesium after infarction, centred)."""
    effects = np.array([-0.83, -1.06, -1.28, -0.04, 0.22, -2.41, -1.28, -1.19])
    errors = np.array([1.25, 0.41, 0.81, 1.43, 0.48, 1.07, 0.83, 0.82])
    mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 0.5)
    pm.Normal("y", pm.Normal("delta", mu, tau, shape=8), errors, observed=effects)


@diverging("funnel", "tails")
def horseshoe():
    """Carvalho, Polson and Scott 2009; Betancourt 2018 on its geometry."""
    x = np.random.default_rng(1).normal(size=(40, 6))
    tau, lam = pm.HalfCauchy("tau", 0.1), pm.HalfCauchy("lam", 1, shape=6)
    beta = pm.Normal("beta", 0, tau * lam)
    pm.Normal("y", x @ beta, 1.0, observed=x[:, 0] + np.random.default_rng(2).normal(size=40))


@diverging("funnel", "stiff")
def gp_hyperparameters():
    """A latent process with a covariance, all but singular, as its prior (the centred form)."""
    x = np.linspace(0, 1, 4)[:, None]
    length, size = pm.InverseGamma("length", 5, 2), pm.HalfNormal("size", 1)
    gp = pm.gp.Latent(cov_func=size**2 * pm.gp.cov.ExpQuad(1, length))
    f = gp.prior("f", X=x, reparameterize=False, jitter=1e-6)
    pm.Normal("y", f, 1.0, observed=np.random.default_rng(8).normal(size=4))


@diverging("boundary", "modes")
def label_switching():
    """Either component of a mixture may collapse on the values that are rounded to 0."""
    weight, mu = pm.Beta("weight", 1, 1), pm.Normal("mu", 0, 3, shape=2)
    sigma = pm.HalfNormal("sigma", 1, shape=2)
    y = np.concatenate([np.zeros(5), np.random.default_rng(3).normal(2, 1, size=12)])
    pm.NormalMixture("y", w=pt.stack([weight, 1 - weight]), mu=mu, sigma=sigma, observed=y)


@diverging("wall")
def ordinal_cut_points():
    """Cut points that nothing keeps in order."""
    cuts = pm.Normal("cuts", [-0.5, 0.0, 0.5], 1, shape=3, initval=[-0.5, 0.0, 0.5])
    x = np.random.default_rng(4).normal(size=12)
    pm.OrderedLogistic("y", eta=pm.Normal("slope") * x, cutpoints=cuts, observed=np.arange(12) % 4)


@diverging("boundary")
def ode():
    """Logistic growth by Euler's method, fitted to its own solution: the noise goes to 0."""

    def grown(rate, capacity):
        sizes = [0.1]
        for _ in range(6):
            sizes.append(sizes[-1] + rate * sizes[-1] * (1 - sizes[-1] / capacity))
        return sizes[1:]

    rate, capacity = pm.HalfNormal("rate", 1), pm.HalfNormal("capacity", 2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", pt.stack(grown(rate, capacity)), sigma, observed=grown(0.8, 1.0))


@diverging("wall")
def ar_unit_root():
    """A random walk, fitted by a process that a potential keeps stationary."""
    y = np.cumsum(np.random.default_rng(5).normal(size=30))
    rho, sigma = pm.Normal("rho", 0.5, 0.5), pm.HalfNormal("sigma", 1)
    pm.Potential("stationary", pt.switch(pt.abs(rho) < 1, 0.0, -np.inf))
    pm.Normal("y", rho * y[:-1], sigma, observed=y[1:])


@diverging("stiff")
def item_response():
    """Discriminations with a wide prior: where one is large, an answer is a step in theta - b.

    With ``LogNormal("a", 0, 0.5)`` 1 and 0 of 1000 draws diverge, with ``sd = 1`` 36 and 28, and
    with a non-centred theta 55 and 16 (nutpie, seeds 0 and 1).
    """
    sd, a = pm.HalfCauchy("sd", 5), pm.LogNormal("a", 0, 2, shape=4)
    theta, b = pm.Normal("theta", 0, sd, shape=10), pm.Normal("b", 0, 1, shape=4)
    y = np.random.default_rng(6).integers(0, 2, (10, 4))
    pm.Bernoulli("y", logit_p=a * (theta[:, None] - b), observed=y)


@diverging("funnel")
def survival_with_frailty():
    """Weibull times with a frailty for each hospital, centred."""
    rng = np.random.default_rng(7)
    hospital, times = np.repeat(np.arange(8), 3), rng.weibull(1.5, 24)
    sd, shape = pm.HalfNormal("sd", 1), pm.HalfNormal("shape", 2)
    frailty = pm.Normal("frailty", pm.Normal("mean"), sd, shape=8)
    pm.Weibull("y", alpha=shape, beta=pt.exp(frailty[hospital]), observed=times)
