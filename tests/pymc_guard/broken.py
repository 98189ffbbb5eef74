"""Broken models of many kinds, each with the truth about it: part of the check, term and words.

``MODELS`` maps a function that fills a model to :class:`Truth`.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

RNG = np.random.default_rng(58)
N = 30
X = RNG.normal(size=N)
YEAR = np.arange(1990.0, 1990.0 + N)
COUNTS = RNG.poisson(3, N)
BINARY = RNG.binomial(1, 0.5, N)
REAL = 1 + X + RNG.normal(size=N)
LEVELS = np.digitize(REAL, [0, 1, 2])
GROUP = np.arange(N) % 3

MODELS = {}


@dataclass(frozen=True)
class Truth:
    """What is wrong with a model.

    Parameters
    ----------
    parts : tuple of str
        Parts of the check one of which must find it.
    term : str
    words : tuple of str
        All of them stand in the finding: the condition and the remedy.
    """

    parts: tuple
    term: str
    words: tuple


def broken(parts, term, *words):
    """Put a function that fills a model into `MODELS`."""

    def put(build):
        MODELS[build] = Truth(tuple(parts.split()), term, words)
        return build

    return put


# Parameters that leave their domain.


@broken("prior", "y", "tau > 0", "a prior in its domain")
def precision_of_any_sign():
    pm.Normal("y", 0, tau=pm.Normal("tau", 1, 1), observed=X)


@broken("prior", "y", "alpha > 0", "link: alpha = pm.math.exp")
def dispersion_without_link():
    alpha = pm.Normal("a", 1, 1) + pm.Normal("b", 0, 1) * X
    pm.NegativeBinomial("y", mu=3.0, alpha=alpha, observed=COUNTS)


@broken("prior start", "y", "0 <= p <= 1", "logit_p")
def probability_without_link():
    pm.Bernoulli("y", p=pm.Normal("a", 0.5, 0.2) + pm.Normal("b", 0, 0.5) * X, observed=BINARY)


@broken("prior", "y", "mu", "link: mu = pm.math.exp")
def rate_without_link():
    pm.Poisson("y", pm.Normal("a", 3, 1) + pm.Normal("b", 0, 1) * X, observed=COUNTS)


@broken("start prior", "y", "alpha > 0")
def beta_of_a_large_sigma():
    pm.Beta("y", mu=pm.Beta("mu", 2, 2), sigma=pm.HalfNormal("s", 1), observed=[0.2, 0.5, 0.9])


@broken("prior start", "y", "increase", "ordered")
def cutpoints_in_any_order():
    pm.OrderedLogistic("y", pm.Normal("b") * X, pm.Normal("cuts", 0, 2, shape=3), observed=LEVELS)


@broken("prior start", "y", "sum", "pm.Dirichlet")
def shares_that_do_not_sum_to_1():
    pm.Categorical("y", p=pm.Beta("share", 2, 2, shape=3), observed=GROUP)


@broken("prior", "y", "posdef")
def correlation_beyond_1():
    r = pm.Normal("r", 0, 1)
    cov = pt.stacklists([[1.0, r], [r, 1.0]])
    pm.MvNormal("y", np.zeros(2), cov=cov, observed=np.column_stack([X, REAL]))


@broken("prior", "y", "kappa > 0")
def concentration_without_link():
    pm.VonMises("y", 0, pm.Normal("k", 2, 1) + X / 10, observed=X / 3)


@broken("prior", "y", "nu > 0")
def degrees_of_freedom_of_any_sign():
    pm.StudentT("y", nu=pm.Normal("nu", 4, 3), mu=0, sigma=1, observed=X)


@broken("prior", "later", "sigma > 0")
def scale_of_a_later_prior():
    raw = pm.Normal("raw", 1, 1)
    pm.Normal("y", pm.Normal("later", 0, raw), 1, observed=X)


# Data that no parameter allows.


@broken("start", "y", "support", "Give y - 1 as data")
def categories_from_1():
    pm.Categorical("y", p=pm.Dirichlet("p", np.ones(3)), observed=GROUP + 1)


@broken("start", "y", "from 0 to n")
def more_successes_than_trials():
    pm.Binomial("y", 5, pm.Beta("p", 2, 2), observed=[3, 5, 7, 2])


@broken("start", "y", "sum is n")
def counts_of_another_total():
    pm.Multinomial("y", 10, pm.Dirichlet("p", np.ones(3)), observed=[[3, 3, 4], [5, 5, 1]])


@broken("data", "y", "sum to 0.99")
def composition_of_99_percent():
    pm.Dirichlet("y", pm.HalfNormal("a", 3, shape=3), observed=[[0.2, 0.3, 0.5], [0.2, 0.3, 0.49]])


@broken("start", "y", "positive numbers", "HurdleLogNormal")
def zeros_of_a_log_normal():
    pm.LogNormal("y", pm.Normal("m"), 1, observed=np.r_[0.0, np.exp(X)])


@broken("start", "y", "nan")
def missing_predictor():
    x = np.where(np.arange(N) == 4, np.nan, X)
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * x, 1, observed=REAL)


@broken("start", "y", "lower <= y <= upper", "upper")
def upper_bound_below_the_data():
    pm.Uniform("y", 0, pm.Uniform("upper", 0, 1), observed=[0.2, 0.9, 3.1])


@broken("start", "y", "lower <= y <= upper")
def data_below_a_truncation():
    pm.Truncated("y", pm.Normal.dist(pm.Normal("m"), 1), lower=0, observed=REAL - 4)


@broken("start", "y", "np.deg2rad")
def angles_in_degrees():
    pm.VonMises("y", pm.VonMises("m", 0, 1), 2, observed=[10.0, 200.0, 340.0])


@broken("start", "y", "-9")
def durations_with_a_code():
    pm.Weibull("y", 2, pm.HalfNormal("b", 2), observed=np.r_[np.exp(X), -9])


@broken("start", "y", "Give y - 1 as data")
def outcomes_of_1_and_2():
    pm.Bernoulli("y", pm.Beta("p", 2, 2), observed=BINARY + 1)


@broken("start", "y", "IndexError")
def groups_from_1():
    pm.Normal("y", pm.Normal("m", shape=3)[GROUP + 1], 1, observed=REAL)


# Data that are probably not meant.


@broken("data", "x", "999", "missing")
def code_in_a_predictor():
    x = pm.Data("x", np.where(np.arange(N) == 4, 999.0, X))
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * x, 1, observed=REAL)


@broken("data", "y", "2.5")
def halves_as_counts():
    pm.NegativeBinomial("y", 3, pm.HalfNormal("a", 2), observed=np.r_[2.5, 1, 4, 0, 2])


@broken("data", "y", "b is 2004.5 times the one of a", "ubtract the mean")
def year_not_centred():
    year = pm.Data("year", YEAR)
    log_rate = pm.Normal("a", 0, 5) + pm.Normal("b", 0, 0.001) * year
    pm.Poisson("y", pm.math.exp(log_rate), observed=COUNTS)


@broken("data", "y", "tell them apart")
def year_and_its_square():
    a, b, c = (pm.Normal(name, 0, 0.001) for name in "abc")
    pm.Normal("y", a + b * YEAR + c * YEAR**2, pm.HalfNormal("s", 2), observed=REAL)


@broken("data", "y", "tell them apart")
def length_in_two_units():
    x = np.column_stack([X, 2.54 * X + 1e-9])
    mean = pm.Normal("a") + pt.dot(x, pm.Normal("b", shape=2))
    pm.Normal("y", mean, pm.HalfNormal("s", 2), observed=REAL)


@broken("data", "y", "separate", "b")
def separated_outcomes():
    logit = pm.Normal("a", 0, 100) + pm.Normal("b", 0, 100) * X
    pm.Bernoulli("y", logit_p=logit, observed=(X > 0.2).astype(int))


@broken("data", "y", "separate", "b")
def separated_with_heavy_tails():
    logit = pm.Cauchy("a", 0, 10) + pm.Cauchy("b", 0, 2.5) * X
    pm.Bernoulli("y", p=pm.math.sigmoid(logit), observed=(X > 0.2).astype(int))


# Formulas.


@broken("prior", "y", "exp", "divide the predictor by its sd")
def rate_that_overflows():
    log_rate = pm.Normal("a", 0, 1) + pm.Normal("b", 0, 10) * (100 * X)
    pm.Poisson("y", pm.math.exp(log_rate), observed=COUNTS)


@broken("prior", "y", "log", "shift")
def shift_beyond_the_data():
    rt = pt.constant(np.array([0.41, 0.52, 0.9]), name="rt")
    pm.Normal("y", pt.log(rt - pm.Normal("shift", 0, 1)), 1, observed=[-1.0, -0.5, 0.0])


@broken("prior", "y", "sqrt")
def root_of_a_variance_of_any_sign():
    pm.Normal("y", 0, pt.sqrt(pm.Normal("variance", 1, 1)), observed=X)


@broken("search prior", "y", "log")
def logarithm_of_a_difference_of_shares():
    p = pm.Uniform("p", 0, 1)
    pm.Potential("y", COUNTS.sum() * pt.log(p - 0.3))


@broken("data", "y", "30 x 30")
def column_against_row():
    mean = pm.Normal("a") + X[:, None]
    pm.Potential("y", -((REAL - mean) ** 2).sum() / 2)


@broken("start", "a", "domain")
def start_outside_of_the_domain():
    pm.Normal("y", pm.HalfNormal("a", initval=-1.0), 1, observed=REAL)


# Gradients.


class _Twice(Op):
    """The exponential, with twice its derivative."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.exp(inputs[0])

    def pullback(self, inputs, outputs, gradients):
        return [2 * outputs[0] * gradients[0]]

    def grad(self, inputs, gradients):
        return [2 * self(inputs[0]) * gradients[0]]


@broken("gradient", "y", "_Twice")
def gradient_twice_as_large():
    pm.Normal("y", _Twice()(pm.Normal("a", 0, 0.5)), 1, observed=REAL)


@broken("gradient", "y", "the branch that")
def box_cox_of_a_switch():
    lam = pm.Normal("lam", 0, 0.5, initval=0.0)
    y = np.exp(X)
    moved = pt.switch(pt.eq(lam, 0), pt.log(y), (y**lam - 1) / pt.switch(pt.eq(lam, 0), 1, lam))
    pm.Potential("y", -0.5 * ((moved - 0.3) ** 2).sum() + (lam - 1) * np.log(y).sum())


# Identification.


@broken("propriety", "a", "does not fall", "a + t, b + t, c + t")
def free_intercepts_of_a_softmax():
    a, b, c = pm.Flat("a"), pm.Flat("b"), pm.Flat("c")
    pm.Categorical("y", logit_p=pt.stack([a, b, c]), observed=GROUP)


@broken("propriety", "size", "does not fall", "size * t, loading / t")
def size_and_loading():
    size, loading = pm.HalfFlat("size"), pm.Flat("loading")
    pm.Normal("y", size * loading * X, 1, observed=REAL)


@broken("propriety", "tau", "does not fall")
def scale_of_one_over_tau():
    tau = pm.HalfFlat("tau")
    pm.Potential("prior", -pt.log(tau))
    pm.Normal("y", pm.Normal("mean") + tau * pm.Normal("raw", shape=3)[GROUP], 1, observed=REAL)


@broken("propriety", "a", "does not fall", "g[0] - t")
def intercept_and_all_groups():
    pm.Normal("y", pm.Flat("a") + pm.Flat("g", shape=3)[GROUP], 1, observed=REAL)
