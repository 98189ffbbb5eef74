"""Sound models of textbooks and of public collections, written in our own words, with made-up data.

``MODELS`` maps a name to a function that returns the model.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from healthy import model_of

MODELS = {}


def public(build):
    """Put a function that fills a model, with data from a generator, into `MODELS`."""
    MODELS[build.__name__] = lambda: model_of(lambda: build(np.random.default_rng(21)))
    return build


# From posteriordb.


@public
def schools_non_centred(_rng):
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mean, spread = pm.Normal("mean", 0, 5), pm.HalfCauchy("spread", 5)
    effects = mean + spread * pm.Normal("raw", shape=8)
    pm.Normal("y", effects, errors, observed=[28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


@public
def golf_putting(rng):
    feet = np.arange(2.0, 20.0)
    tries = np.full(18, 200)
    holed = rng.binomial(tries, np.clip(1.6 / feet**0.9, 0, 0.97))
    spread = pm.HalfNormal("spread", 1)
    angle = pt.arcsin((4.25 / 24 - 1.68 / 24) / feet)
    pm.Binomial("y", tries, 2 * pm.math.invprobit(angle / spread) - 1, observed=holed)


@public
def item_response(rng):
    answers = rng.binomial(1, 0.6, size=(30, 6))
    ability = pm.Normal("ability", shape=(30, 1))
    difficulty, slope = pm.Normal("difficulty", shape=6), pm.LogNormal("slope", 0, 0.5, shape=6)
    pm.Bernoulli("y", logit_p=slope * (ability - difficulty), observed=answers)


@public
def two_gaussians(rng):
    data = np.concatenate([rng.normal(-2, 1, 40), rng.normal(2, 0.7, 60)])
    ordered = pm.distributions.transforms.ordered
    means = pm.Normal("means", 0, 3, shape=2, transform=ordered, initval=[-1, 1])
    spreads = pm.HalfNormal("spreads", 2, shape=2)
    share = pm.Beta("share", 5, 5)
    pm.NormalMixture("y", pt.stack([share, 1 - share]), means, spreads, observed=data)


@public
def scores_of_children(rng):
    iq, school = rng.normal(100, 15, 60), rng.binomial(1, 0.7, 60)
    score = 26 + 6 * school + 0.6 * iq + rng.normal(0, 18, 60)
    b = pm.Normal("b", [80, 0, 0, 0], [30, 20, 2, 2], shape=4)
    centred = iq - iq.mean()
    mean = b[0] + b[1] * school + b[2] * centred + b[3] * school * centred
    pm.Normal("y", mean, pm.HalfCauchy("sigma", 2.5), observed=score)


@public
def autoregression(rng):
    data = [0.0, 0.0]
    for noise in rng.normal(0, 0.5, 58):
        data.append(0.2 + 0.5 * data[-1] + 0.2 * data[-2] + noise)
    rho, spread = pm.Normal("rho", 0, 0.5, shape=3), pm.HalfCauchy("spread", 2.5)
    start = pm.Normal.dist(0, 1, shape=2)
    pm.AR("y", rho, sigma=spread, constant=True, init_dist=start, observed=np.array(data))


# From pymc-examples.


@public
def change_of_a_rate(rng):
    """The year is discrete: one variable is sampled by Metropolis."""
    counts = np.concatenate([rng.poisson(3, 40), rng.poisson(1, 70)])
    year = pm.DiscreteUniform("year", 0, 110)
    early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
    pm.Poisson("y", pm.math.switch(year >= np.arange(110), early, late), observed=counts)


@public
def stochastic_volatility(rng):
    returns = rng.standard_t(5, 80) * 0.02
    step = pm.Exponential("step", 10)
    start = pm.Normal.dist(0, 10)
    volatility = pm.GaussianRandomWalk("volatility", sigma=step, init_dist=start, shape=80)
    pm.StudentT("y", pm.Exponential("nu", 0.1), lam=pm.math.exp(-2 * volatility), observed=returns)


@public
def rugby(rng):
    home, away = np.array([(i, j) for i in range(5) for j in range(5) if i != j]).T
    points = rng.poisson(20, size=(2, 20))
    level, advantage = pm.Normal("level", 3, 1), pm.Normal("advantage", 0, 1)
    attack = pm.ZeroSumNormal("attack", pm.HalfNormal("spread_of_attack", 1), shape=5)
    defence = pm.ZeroSumNormal("defence", pm.HalfNormal("spread_of_defence", 1), shape=5)
    at_home = pm.math.exp(level + advantage + attack[home] - defence[away])
    pm.Poisson("home", at_home, observed=points[0])
    pm.Poisson("away", pm.math.exp(level + attack[away] - defence[home]), observed=points[1])


@public
def two_groups(rng):
    """Whether two groups differ, by Kruschke."""
    first, second = rng.normal(101, 6, 30), rng.normal(100, 2, 25)
    means = pm.Normal("means", 100, 10, shape=2)
    spreads = pm.Uniform("spreads", 1, 10, shape=2)
    nu = 1 + pm.Exponential("nu", 1 / 29.0)
    pm.StudentT("first", nu, means[0], lam=spreads[0] ** -2, observed=first)
    pm.StudentT("second", nu, means[1], lam=spreads[1] ** -2, observed=second)


@public
def outliers(rng):
    """A line through points some of which are outliers, by Hogg."""
    x = np.linspace(-2, 2, 25)
    y = 1 + 2 * x + rng.normal(0, 0.3, 25)
    y[[4, 13]] += [6, -8]
    line = pm.Normal("a", 0, 10) + pm.Normal("b", 0, 10) * x
    far = pm.Normal("mean_of_outliers", 0, 10), pm.HalfNormal("spread_of_outliers", 10)
    share = pm.Uniform("share", 0, 0.5)
    parts = [pm.Normal.dist(line, 0.3), pm.Normal.dist(*far, shape=25)]
    pm.Mixture("y", pt.stack([1 - share, share]), parts, observed=y)


@public
def more_spread_than_multinomial(rng):
    counts = rng.multinomial(50, [0.45, 0.3, 0.15, 0.1], size=10)
    counts[0] = [5, 5, 20, 20]
    share = pm.Dirichlet("share", np.ones(4))
    pm.DirichletMultinomial("y", 50, pm.LogNormal("conc", 1, 1) * share, observed=counts)


# From PyMC's tests.


@public
def imputed_counts(rng):
    """Counts that are missing are sampled by Metropolis."""
    counts = np.ma.masked_values(np.r_[rng.poisson(4, 20), -1, -1], value=-1)
    pm.Poisson("y", pm.Gamma("rate", 4, 1), observed=counts)


@public
def horseshoe(rng):
    x = rng.normal(size=(50, 6))
    y = x[:, 0] * 2 + rng.normal(0, 0.5, 50)
    local, every = pm.HalfCauchy("local", 1, shape=6), pm.HalfCauchy("every", 0.1)
    slopes = pm.Normal("raw", shape=6) * local * every
    pm.Normal("y", x @ slopes, pm.HalfNormal("sigma", 1), observed=y)
