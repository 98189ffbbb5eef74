"""Twenty more sound models, one for each kind of model that users write: no check finds a fault.

``MODELS`` maps a name to a function that returns the model.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from healthy import model_of

MODELS = {}


def textbook(build):
    """Put a function that fills a model, with data from a generator, into `MODELS`."""
    MODELS[build.__name__] = lambda: model_of(lambda: build(np.random.default_rng(58)))
    return build


def _add_coords(**coords):
    pm.modelcontext(None).add_coords(coords)


@textbook
def radon(rng):
    """Slopes and intercepts of groups, centred, with coordinates and containers of data."""
    county, floor = rng.integers(0, 8, 90), rng.binomial(1, 0.3, 90)
    _add_coords(county=list("abcdefgh"), house=np.arange(90))
    at, on = pm.Data("at", county, dims="house"), pm.Data("on", floor, dims="house")
    spread = pm.Exponential("spread", 1, shape=2)
    a = pm.Normal("a", pm.Normal("mean_a", 0, 2), spread[0], dims="county")
    b = pm.Normal("b", pm.Normal("mean_b", 0, 1), spread[1], dims="county")
    mean = pm.Deterministic("mean", a[at] + b[at] * on, dims="house")
    y = 1.3 - 0.6 * floor + rng.normal(0, 0.7, 90)
    pm.Normal("y", mean, pm.HalfNormal("sigma", 1), observed=y, dims="house")


@textbook
def spline(rng):
    """Cubic B-splines of the year, whose knots are the data's quantiles."""
    from scipy.interpolate import BSpline

    year = np.sort(rng.uniform(1900, 2020, 80))
    knots = np.r_[[1899] * 4, np.quantile(year, [0.25, 0.5, 0.75]), [2021] * 4]
    basis = BSpline.design_matrix(year, knots, 3).toarray()
    slopes = pm.Normal("w", 0, 3, shape=basis.shape[1])
    day = 105 + 3 * np.sin(year / 15) + rng.normal(0, 2, 80)
    mean = pm.Normal("a", 105, 10) + pt.dot(basis, slopes)
    pm.Normal("day", mean, pm.Exponential("sigma", 1), observed=day)


@textbook
def latent_gaussian_process(rng):
    """Years are not centred: a stationary kernel sees their differences alone."""
    year = np.arange(1990.0, 2015.0)[:, None]
    kernel = pm.HalfNormal("size", 1) ** 2 * pm.gp.cov.Matern52(1, ls=pm.Gamma("ls", 4, 1))
    level = pm.gp.Latent(cov_func=kernel).prior("level", X=year, jitter=1e-6)
    pm.Poisson("y", pm.math.exp(1 + level), observed=rng.poisson(4, 25))


@textbook
def mixture_of_regressions(rng):
    x = rng.normal(size=60)
    y = np.where(rng.random(60) < 0.4, 2 * x, 1 - x) + rng.normal(0, 0.3, 60)
    slopes = pm.Normal("slopes", [2, -1], 0.5, shape=2)
    means = pm.Normal("a", 0, 1, shape=2) + slopes * x[:, None]
    pm.NormalMixture(
        "y", pm.Dirichlet("w", np.ones(2)), means, pm.HalfNormal("sigma", 1), observed=y
    )


@textbook
def ordered_probit(rng):
    x = rng.normal(size=70)
    y = np.digitize(0.8 * x + rng.normal(size=70), [-1, 0.2, 1.1])
    ordered = pm.distributions.transforms.ordered
    cuts = pm.Normal("cuts", [-1, 0, 1], 1, transform=ordered, initval=[-1.0, 0.0, 1.0])
    pm.OrderedProbit("y", pm.Normal("b", 0, 1) * x, cuts, observed=y)


@textbook
def zero_inflated_fishing(rng):
    """Both parts have predictors, and the exposure is an offset."""
    persons, hours = rng.integers(1, 5, 80), rng.uniform(0.5, 8, 80)
    caught = rng.binomial(1, 0.6, 80) * rng.poisson(0.4 * hours)
    share = pm.math.invlogit(pm.Normal("a", 0, 1.5) + pm.Normal("b", 0, 1) * (persons - 2.5))
    rate = pm.math.exp(pm.Normal("c", 0, 1) + np.log(hours))
    pm.ZeroInflatedPoisson("caught", share, rate, observed=caught)


@textbook
def hurdle_rain(rng):
    amount = rng.binomial(1, 0.5, 60) * rng.gamma(2, 3, 60)
    shape, mean = pm.Gamma("shape", 2, 1), pm.LogNormal("mean", 1, 1)
    pm.HurdleGamma("rain", pm.Beta("psi", 2, 2), alpha=shape, beta=shape / mean, observed=amount)


@textbook
def latent_autoregression(rng):
    rho = pm.Uniform("rho", -1, 1)
    state = pm.AR(
        "state", [0, rho], sigma=0.5, constant=True, init_dist=pm.Normal.dist(0, 1), shape=40
    )
    pm.Normal("y", state, pm.HalfNormal("sigma", 1), observed=rng.normal(size=40).cumsum() / 4)


@textbook
def local_linear_trend(rng):
    """Random walks, not centred, of the level and of the slope."""
    steps = pm.Normal("steps", 0, 1, shape=(2, 50))
    spread = pm.HalfNormal("spread", 0.3, shape=2)
    slope = pt.cumsum(spread[0] * steps[0])
    level = pm.Normal("start", 0, 2) + pt.cumsum(slope + spread[1] * steps[1])
    pm.StudentT(
        "y", 4, mu=level, sigma=pm.HalfNormal("sigma", 1), observed=rng.normal(size=50).cumsum()
    )


@textbook
def exponential_survival(rng):
    """Durations of which some are censored, as a potential."""
    treated, at_risk = rng.binomial(1, 0.5, 60), rng.exponential(6, 60).clip(0.05, 10)
    died = at_risk < 10
    log_rate = pm.Normal("a", -2, 1) + pm.Normal("b", 0, 1) * treated
    pm.Potential("likelihood", (died * log_rate - pt.exp(log_rate) * at_risk).sum())


@textbook
def tobit(rng):
    x = rng.normal(size=60)
    y = (1 + 2 * x + rng.normal(size=60)).clip(0, None)
    latent = pm.Normal.dist(
        pm.Normal("a", 0, 2) + pm.Normal("b", 0, 2) * x, pm.HalfNormal("sigma", 2)
    )
    pm.Censored("y", latent, lower=0, upper=np.inf, observed=y)


@textbook
def varying_effects_of_lkj(rng):
    cafe, afternoon = np.repeat(np.arange(6), 10), np.tile([0, 1], 30)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
    raw = pm.Normal("raw", shape=(2, 6))
    effects = pm.Normal("mean", [3, -1], 1, shape=2)[:, None] + pt.dot(chol, raw)
    wait = 3.5 - afternoon + rng.normal(0, 0.5, 60)
    mean = effects[0][cafe] + effects[1][cafe] * afternoon
    pm.Normal("wait", mean, pm.Exponential("sigma", 1), observed=wait)


@textbook
def species_counts(rng):
    counts = rng.multinomial(80, [0.5, 0.25, 0.15, 0.1], size=12)
    share = pm.Dirichlet("share", np.ones(4))
    pm.DirichletMultinomial("y", 80, share * pm.LogNormal("total", 2, 1), observed=counts)


@textbook
def finnish_horseshoe(rng):
    x = rng.normal(size=(60, 8))
    every, local = pm.HalfStudentT("every", 2, 0.1), pm.HalfStudentT("local", 5, 1, shape=8)
    slab = pm.InverseGamma("slab", 2, 2)
    wide = local * pt.sqrt(slab / (slab + every**2 * local**2))
    slopes = pm.Deterministic("slopes", pm.Normal("raw", shape=8) * every * wide)
    pm.Normal("y", pt.dot(x, slopes), pm.HalfNormal("sigma", 1), observed=x[:, 2] * 3)


@textbook
def epidemic_by_steps(rng):
    """A system of differential equations by Euler's method, in a scan; states stay positive."""
    beta, gamma = pm.LogNormal("beta", np.log(0.4), 0.2), pm.LogNormal("gamma", np.log(0.1), 0.2)

    def day(susceptible, infected, beta, gamma):
        new = susceptible * (1 - pt.exp(-beta * infected))
        return susceptible - new, infected * pt.exp(-gamma) + new

    (_, infected) = pytensor.scan(
        day,
        outputs_info=[pt.constant(0.99), pt.constant(0.01)],
        non_sequences=[beta, gamma],
        n_steps=25,
        return_updates=False,
    )
    pm.NegativeBinomial(
        "cases", 500 * infected, pm.Exponential("phi", 0.5), observed=rng.poisson(60, 25)
    )


@textbook
def sum_to_zero_by_potential(rng):
    group = np.repeat(np.arange(5), 8)
    effects = pm.Normal("effects", 0, 1, shape=5)
    pm.Potential("centre", pm.logp(pm.Normal.dist(0, 0.01), effects.sum()).sum())
    y = rng.normal(size=40)
    pm.Normal("y", pm.Normal("a", 0, 5) + effects[group], pm.HalfNormal("sigma", 1), observed=y)


@textbook
def missing_predictor(rng):
    """A predictor and the outcome have missing values, which are sampled."""
    brain = np.ma.masked_invalid(np.where(rng.random(40) < 0.2, np.nan, rng.normal(size=40)))
    x = pm.Normal("x", pm.Normal("mean_x", 0, 1), pm.HalfNormal("sd_x", 1), observed=brain)
    milk = np.ma.masked_array(rng.normal(size=40), mask=np.arange(40) % 13 == 0)
    mean = pm.Normal("a", 0, 1) + pm.Normal("b", 0, 1) * x
    pm.Normal("milk", mean, pm.HalfNormal("sigma", 1), observed=milk)


@textbook
def gravity_centred_in_the_graph(rng):
    """The years are data as they are, and the formula centres them."""
    year = pm.Data("year", np.arange(1980.0, 2020.0))
    mean = pm.Normal("a", 0, 1) + pm.Normal("b", 0, 1) * (year - year.mean()) / 10
    pm.Normal("y", mean, pm.HalfNormal("sigma", 1), observed=rng.normal(size=40))


@textbook
def schools_with_a_flat_scale(_rng):
    """Rubin's eight schools: uniform on the mean and the scale, which is proper."""
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    theta = pm.Normal("theta", pm.Flat("mean"), pm.HalfFlat("spread"), shape=8)
    pm.Normal("y", theta, errors, observed=[28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


@textbook
def shifted_reaction_times(rng):
    """A shift with an upper bound at the fastest reaction, and a custom density."""
    times = 0.3 + rng.lognormal(-1, 0.4, 50)
    shift = pm.Uniform("shift", 0, times.min())

    def logp(value, mean, spread, shift):
        rest = value - shift
        return pm.logp(pm.LogNormal.dist(mean, spread), rest)

    mean, spread = pm.Normal("mean", -1, 1), pm.HalfNormal("spread", 1)
    pm.CustomDist("times", mean, spread, shift, logp=logp, observed=times)


@textbook
def smokers_separated_in_one_group(rng):
    """A group in which all have smoked: its effect has a prior that is learnt."""
    group = np.repeat(np.arange(6), 8)
    smoked = np.where(group == 2, 1, rng.binomial(1, 0.4, 48))
    effect = pm.Normal("effect", 0, pm.HalfNormal("spread", 1), shape=6)
    pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 1.5) + effect[group], observed=smoked)


@textbook
def old_ages_with_real_nines(rng):
    """Ages of 99, scores of -9 and a year of 999 that are numbers like the others."""
    age = rng.integers(60, 105, 60).astype(float)
    age[3] = 99
    score = rng.normal(-4, 4, 60).round()
    score[7] = -9
    mean = pm.Normal("a", 0, 5) + pm.Normal("b", 0, 1) * (age - 80) / 10
    pm.Normal("score", mean, pm.HalfNormal("sigma", 5), observed=score)
