"""Sound PyMC models, one likelihood each: a guard that raises on one of them cries wolf.

``MODELS`` maps a name to a function that returns the model.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(7)
N = 40
X = RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.3 + 0.5 * X))
BINARY = RNG.binomial(1, 1 / (1 + np.exp(-X)))
TRIALS = np.full(N, 10)
SUCCESSES = RNG.binomial(TRIALS, 0.3)
POSITIVE = RNG.gamma(2.0, 1.5, size=N)
REAL = 1.0 + 0.5 * X + RNG.normal(size=N)
UNIT = RNG.beta(2.0, 3.0, size=N)
ZEROS = COUNTS * RNG.binomial(1, 0.6, size=N)
LEVELS = np.digitize(REAL, [-0.5, 1.0, 2.0])
CATEGORIES = RNG.integers(0, 3, size=N)

MODELS = {}


def model_of(build, **settings):
    """Return the model that `build` fills."""
    with pm.Model(**settings) as model:
        build()
    return model


def healthy(build):
    """Put a function that fills a model into `MODELS`."""
    MODELS[build.__name__] = partial(model_of, build)
    return build


def linear(name="mu"):
    """A regression with normal coefficients."""
    a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
    return pm.Deterministic(name, a + b * X)


@healthy
def normal():
    pm.Normal("y", linear(), pm.HalfNormal("sigma", 1), observed=REAL)


@healthy
def student_t():
    pm.StudentT(
        "y", pm.Gamma("nu", 2, 0.1), mu=linear(), sigma=pm.HalfNormal("sigma", 1), observed=REAL
    )


@healthy
def laplace():
    pm.Laplace("y", linear(), pm.HalfNormal("scale", 1), observed=REAL)


@healthy
def cauchy():
    pm.Cauchy("y", linear(), pm.HalfCauchy("scale", 1), observed=REAL)


@healthy
def asymmetric_laplace():
    pm.AsymmetricLaplace("y", kappa=pm.HalfNormal("kappa", 1), mu=linear(), b=1.0, observed=REAL)


@healthy
def skew_normal():
    pm.SkewNormal("y", alpha=2.0, mu=linear(), sigma=pm.HalfNormal("sigma", 1), observed=REAL)


@healthy
def logistic():
    pm.Logistic("y", linear(), pm.HalfNormal("s", 1), observed=REAL)


@healthy
def gumbel():
    pm.Gumbel("y", linear(), pm.HalfNormal("beta", 1), observed=REAL)


@healthy
def ex_gaussian():
    pm.ExGaussian("y", linear(), sigma=1.0, nu=pm.HalfNormal("nu", 1), observed=REAL)


@healthy
def exponential():
    pm.Exponential("y", pm.math.exp(linear()), observed=POSITIVE)


@healthy
def gamma():
    pm.Gamma("y", pm.HalfNormal("alpha", 2), pm.math.exp(linear()), observed=POSITIVE)


@healthy
def inverse_gamma():
    pm.InverseGamma("y", pm.HalfNormal("alpha", 2), pm.math.exp(linear()), observed=POSITIVE)


@healthy
def log_normal():
    pm.LogNormal("y", linear(), pm.HalfNormal("sigma", 1), observed=POSITIVE)


@healthy
def weibull():
    pm.Weibull("y", pm.HalfNormal("alpha", 2), pm.math.exp(linear()), observed=POSITIVE)


@healthy
def pareto():
    pm.Pareto("y", pm.HalfNormal("alpha", 2), m=0.5, observed=1 + POSITIVE)


@healthy
def half_normal():
    pm.HalfNormal("y", pm.math.exp(linear()), observed=POSITIVE)


@healthy
def wald():
    pm.Wald("y", mu=pm.math.exp(linear()), lam=pm.HalfNormal("lam", 2), observed=POSITIVE)


@healthy
def beta():
    pm.Beta("y", pm.HalfNormal("alpha", 3), pm.HalfNormal("beta", 3), observed=UNIT)


@healthy
def kumaraswamy():
    pm.Kumaraswamy("y", pm.HalfNormal("alpha", 3), pm.HalfNormal("beta", 3), observed=UNIT)


@healthy
def logit_normal():
    pm.LogitNormal("y", linear(), pm.HalfNormal("sigma", 1), observed=UNIT)


@healthy
def uniform():
    pm.Uniform("y", 0, pm.Uniform("upper", 20, 30), observed=POSITIVE)


@healthy
def poisson():
    pm.Poisson("y", pm.math.exp(linear()), observed=COUNTS)


@healthy
def negative_binomial():
    pm.NegativeBinomial("y", pm.math.exp(linear()), pm.HalfNormal("alpha", 2), observed=COUNTS)


@healthy
def zero_inflated_poisson():
    pm.ZeroInflatedPoisson("y", pm.Beta("psi", 2, 2), pm.math.exp(linear()), observed=ZEROS)


@healthy
def zero_inflated_negative_binomial():
    pm.ZeroInflatedNegativeBinomial(
        "y", pm.Beta("psi", 2, 2), pm.math.exp(linear()), pm.HalfNormal("alpha", 2), observed=ZEROS
    )


@healthy
def zero_inflated_binomial():
    pm.ZeroInflatedBinomial(
        "y", pm.Beta("psi", 2, 2), TRIALS, pm.math.sigmoid(linear()), observed=SUCCESSES
    )


@healthy
def hurdle_poisson():
    pm.HurdlePoisson("y", pm.Beta("psi", 2, 2), pm.math.exp(linear()), observed=ZEROS)


@healthy
def geometric():
    pm.Geometric("y", pm.math.sigmoid(linear()), observed=1 + COUNTS)


@healthy
def bernoulli():
    pm.Bernoulli("y", logit_p=linear(), observed=BINARY)


@healthy
def bernoulli_p():
    pm.Bernoulli("y", p=pm.math.sigmoid(linear()), observed=BINARY)


@healthy
def binomial():
    pm.Binomial("y", TRIALS, pm.math.sigmoid(linear()), observed=SUCCESSES)


@healthy
def beta_binomial():
    pm.BetaBinomial(
        "y", pm.HalfNormal("alpha", 3), pm.HalfNormal("beta", 3), TRIALS, observed=SUCCESSES
    )


@healthy
def categorical():
    pm.Categorical("y", p=pm.Dirichlet("p", np.ones(3)), observed=CATEGORIES)


@healthy
def multinomial():
    draws = np.random.default_rng(7).multinomial(20, [0.2, 0.3, 0.5], size=10)
    draws[0] = [20, 0, 0]
    pm.Multinomial("y", 20, pm.Dirichlet("p", np.ones(3)), observed=draws)


@healthy
def ordered_logistic():
    cuts = pm.Normal(
        "cuts", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1]
    )
    pm.OrderedLogistic("y", eta=linear(), cutpoints=cuts, observed=LEVELS)


@healthy
def censored():
    latent = pm.Normal.dist(linear(), pm.HalfNormal("sigma", 1))
    pm.Censored("y", latent, lower=None, upper=2.0, observed=np.minimum(REAL, 2.0))


@healthy
def truncated():
    latent = pm.Normal.dist(linear(), pm.HalfNormal("sigma", 1))
    pm.Truncated("y", latent, lower=-1.0, observed=np.maximum(REAL, -0.9))


@healthy
def mixture():
    weights = pm.Dirichlet("w", np.ones(2))
    means = pm.Normal("means", [-1, 2], 1, shape=2)
    pm.NormalMixture("y", weights, means, pm.HalfNormal("sigma", 1), observed=REAL)


@healthy
def sparse_mixture():
    parts = [pm.Poisson.dist(3.0), pm.DiracDelta.dist(0)]
    pm.Mixture("y", pm.Dirichlet("w", np.ones(2)), parts, observed=ZEROS)


@healthy
def hierarchical():
    center, spread = pm.Normal("center", 0, 1), pm.HalfNormal("spread", 1)
    groups = pm.Normal("groups", center, spread, shape=4)
    pm.Normal("y", groups[np.arange(N) % 4], pm.HalfNormal("sigma", 1), observed=REAL)


@healthy
def correlated():
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
    pm.MvNormal("y", np.zeros(2), chol=chol, observed=np.stack([REAL, X], 1))


@healthy
def random_walk():
    level = pm.GaussianRandomWalk("level", sigma=0.3, init_dist=pm.Normal.dist(0, 1), shape=N)
    pm.Normal("y", level, pm.HalfNormal("sigma", 1), observed=np.cumsum(REAL) / 5)


@healthy
def gaussian_process():
    kernel = pm.gp.cov.ExpQuad(1, ls=pm.Gamma("length", 2, 1))
    gp = pm.gp.Marginal(cov_func=kernel)
    gp.marginal_likelihood("y", X=X[:15, None], y=REAL[:15], sigma=pm.HalfNormal("sigma", 1))


@healthy
def potential():
    a = pm.Normal("a", 0, 1)
    pm.Potential("y", pt.sum(pt.switch(a > -5, -((REAL - a) ** 2), -np.inf)))


@healthy
def imputed():
    data = np.ma.masked_array(REAL, mask=np.arange(N) % 9 == 0)
    pm.Normal("y", linear(), pm.HalfNormal("sigma", 1), observed=data)


@healthy
def survival():
    scale = pm.math.exp(linear())
    latent = pm.Weibull.dist(pm.HalfNormal("alpha", 2), scale)
    pm.Censored("y", latent, lower=None, upper=4.0, observed=np.minimum(POSITIVE, 4.0))


@healthy
def truncated_regression():
    """PyMC's own example: the first steps of the tuning go where the likelihood overflows."""
    rng = np.random.default_rng(123)
    x = rng.uniform(-10, 10, 100)
    y = x + rng.normal(0, 2, 100)
    inside = (y >= -5) & (y <= 5)
    slope, intercept = pm.Normal("slope", 0, 1), pm.Normal("intercept", 0, 1)
    latent = pm.Normal.dist(slope * x[inside] + intercept, pm.HalfNormal("sigma", 1))
    pm.Truncated("y", latent, lower=-5, upper=5, observed=y[inside])


@healthy
def stick_breaking():
    """A Dirichlet process, cut off: the weights underflow in the first steps."""
    rng = np.random.default_rng(2)
    data = np.concatenate([rng.normal(-2, 0.4, 40), rng.normal(1, 0.6, 60)])
    alpha = pm.Gamma("alpha", 1, 1)
    parts = pm.Beta("parts", 1, alpha, shape=7)
    left = pt.concatenate([[1.0], pt.cumprod(1 - parts)])
    weights = pm.Deterministic("weights", pt.concatenate([parts, [1.0]]) * left)
    tau, scale = pm.Gamma("tau", 1, 1, shape=8), pm.Uniform("scale", 0, 5, shape=8)
    means = pm.Normal("means", 0, tau=scale * tau, shape=8)
    pm.NormalMixture("y", weights, means, tau=scale * tau, observed=data)
