"""Where PyMC's distributions have a density, and data and parameters that lie outside."""

import importlib.util

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard.pymc
from theanoguard.pymc.support import support_of

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import pymc as pm

POINTS = np.array([-4, -1, -0.5, 0, 0.25, 1, 1.5, 2, 3, 4, 5])
COUNTS = {"psi": 0.5, "mu": 2}
KINDS = {
    "AsymmetricLaplace": {"b": 1, "kappa": 1, "mu": 0},
    "Bernoulli": {"p": 0.3},
    "Beta": {"alpha": 2, "beta": 3},
    "BetaBinomial": {"n": 4, "alpha": 1, "beta": 2},
    "Binomial": {"n": 4, "p": 0.3},
    "Categorical": {"p": [0.2, 0.3, 0.5]},
    "Cauchy": {"alpha": 0, "beta": 1},
    "Censored": {"dist": ("Gamma", {"alpha": 2, "beta": 1}), "lower": 1, "upper": 3},
    "ChiSquared": {"nu": 3},
    "DiracDelta": {"c": 2},
    "DiscreteUniform": {"lower": -1, "upper": 3},
    "DiscreteWeibull": {"q": 0.5, "beta": 1.5},
    "ExGaussian": {"mu": 0, "sigma": 1, "nu": 1},
    "Exponential": {"lam": 1},
    "Flat": {},
    "Gamma": {"alpha": 2, "beta": 1},
    "Geometric": {"p": 0.3},
    "Gumbel": {"mu": 0, "beta": 1},
    "HalfCauchy": {"beta": 1},
    "HalfFlat": {},
    "HalfNormal": {"sigma": 1},
    "HalfStudentT": {"nu": 3, "sigma": 1},
    "HurdleGamma": {"psi": 0.5, "alpha": 2, "beta": 1},
    "HurdleLogNormal": {"psi": 0.5, "mu": 0, "sigma": 1},
    "HurdleNegativeBinomial": {**COUNTS, "alpha": 1},
    "HurdlePoisson": COUNTS,
    "HyperGeometric": {"N": 10, "k": 4, "n": 3},
    "Interpolated": {"x_points": np.linspace(-1, 2, 5), "pdf_points": np.ones(5)},
    "InverseGamma": {"alpha": 2, "beta": 1},
    "Kumaraswamy": {"a": 2, "b": 3},
    "Laplace": {"mu": 0, "b": 1},
    "LogNormal": {"mu": 0, "sigma": 1},
    "Logistic": {"mu": 0, "s": 1},
    "LogitNormal": {"mu": 0, "sigma": 1},
    "Moyal": {"mu": 0, "sigma": 1},
    "NegativeBinomial": {"mu": 2, "alpha": 1},
    "Normal": {},
    "OrderedLogistic": {"eta": 0, "cutpoints": [-1, 1]},
    "OrderedProbit": {"eta": 0, "cutpoints": [-1, 1]},
    "Pareto": {"alpha": 2, "m": 1},
    "Poisson": {"mu": 2},
    "Rice": {"nu": 1, "sigma": 1},
    "SkewNormal": {"mu": 0, "sigma": 1, "alpha": 1},
    "SkewStudentT": {"a": 1, "b": 2, "mu": 0, "sigma": 1},
    "StudentT": {"nu": 3},
    "Triangular": {"lower": -1, "c": 0, "upper": 2},
    "Truncated": {"dist": ("Gamma", {"alpha": 2, "beta": 1}), "lower": 1, "upper": 3},
    "TruncatedNormal": {"mu": 0, "sigma": 1, "lower": -1, "upper": 2},
    "Uniform": {"lower": -1, "upper": 2},
    "VonMises": {"mu": 0, "kappa": 1},
    "Wald": {"mu": 1, "lam": 1},
    "Weibull": {"alpha": 2, "beta": 1},
    "ZeroInflatedBinomial": {"psi": 0.5, "n": 4, "p": 0.3},
    "ZeroInflatedNegativeBinomial": {**COUNTS, "alpha": 1},
    "ZeroInflatedPoisson": COUNTS,
}
"""By the name of a distribution of numbers, arguments for it."""

OTHERS = """AR CAR ChiSquare Continuous CustomDist DensityDist Dirichlet DirichletMultinomial
Discrete Distribution EulerMaruyama GARCH11 GaussianRandomWalk ICAR KroneckerNormal LKJCholeskyCov
LKJCorr Lognormal MatrixNormal Mixture Multinomial MvGaussianRandomWalk MvNormal MvStudentT
MvStudentTRandomWalk NormalMixture OrderedMultinomial PolyaGamma RandomWalk Simulator
StickBreakingWeights SymbolicRandomVariable Wishart WishartBartlett ZeroSumNormal""".split()
"""Of vectors, of other distributions, or of a package that is not installed."""


@pytest.fixture(scope="module")
def supports():
    """Return for each kind where its support says that there is a density, and where there is."""
    kinds, outputs = {}, []
    for kind, given in KINDS.items():
        if isinstance(given.get("dist"), tuple):
            name, inner = given["dist"]
            given = {**given, "dist": getattr(pm, name).dist(**inner)}
        made = getattr(pm, kind).dist(**given)
        is_float = made.dtype.startswith("float")
        points = POINTS if is_float else POINTS[POINTS % 1 == 0].astype(int)
        support, parameters = support_of(made)
        kinds[kind] = points, support, len(parameters)
        outputs += [pm.logp(made, pt.constant(points)), *parameters]
    mode = Mode("py", None)
    values = iter(pytensor.function([], outputs, mode=mode, on_unused_input="ignore")())
    found = {}
    for kind, (points, support, n) in kinds.items():
        logp, *parameters = (next(values) for _ in range(n + 1))
        holds = np.broadcast_to(support.holds(points, *parameters), points.shape)
        found[kind] = dict(zip(points, zip(holds, np.isfinite(logp), strict=True), strict=True))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_support_is_where_the_density_is(kind, supports):
    assert {x: says for x, (says, _) in supports[kind].items()} == {
        x: is_so for x, (_, is_so) in supports[kind].items()
    }


@pytest.mark.on_33
def test_the_support_of_each_distribution_is_tested():
    names = {n for n in pm.distributions.__all__ if isinstance(getattr(pm, n), type)}
    assert names <= {*KINDS, *OTHERS}


def one_model(builds):
    """Return the bad terms, by name, of a model with all of these terms."""
    with pm.Model() as model:
        for name, build in builds.items():
            build(name)
    found = theanoguard.pymc.explain(model)
    assert not found.failed
    return {bad.term: bad for bad in found.bad}


def test_data_that_are_coded_otherwise_get_the_code():
    p = [0.2, 0.3, 0.5]
    bad = one_model(
        {
            "from_1": lambda y: pm.Categorical(y, p, observed=[1, 2, 3]),
            "signs": lambda y: pm.Bernoulli(y, 0.5, observed=[-1, 1, 1]),
            "failures": lambda y: pm.Geometric(y, 0.5, observed=[0, 2]),
            "percent": lambda y: pm.Beta(y, 2, 2, observed=[10.0, 99.0]),
            "degrees": lambda y: pm.VonMises(y, 0, 1, observed=[-170.0, 350.0]),
            "turns": lambda y: pm.VonMises(y, 0, 1, observed=[0.1, 6.2]),
            "neither": lambda y: pm.Categorical(y, p, observed=[0, 3]),
        }
    )
    told = {term: one.data.splitlines()[2:] for term, one in bad.items()}
    turns = "{} + np.pi) % (2 * np.pi) - np.pi"
    codes = {
        "from_1": "from_1 - 1",
        "signs": "(signs + 1) / 2",
        "failures": "failures + 1",
        "percent": "percent / 100",
        "degrees": "(" + turns.format("np.deg2rad(degrees)"),
        "turns": "(" + turns.format("turns"),
    }
    expected = {
        k: [f"Give {code} as data: all of these values lie inside."] for k, code in codes.items()
    }
    assert told == {**expected, "neither": []}


def test_a_parameter_at_a_bound_that_pymc_allows():
    x, ones = np.linspace(1.0, 2.0, 4), np.ones(4, int)
    years = np.array([1.0, 0.0, 2.0, 3.0])
    with np.errstate(divide="ignore"):
        logged = np.log(years)

    def rate(build):
        return lambda name: build(name, pm.Normal(f"a_{name}"))

    bad = one_model(
        {
            "wait": rate(lambda y, a: pm.Exponential(y, lam=a * x + a, observed=x)),
            "floor": rate(lambda y, a: pm.Poisson(y, pt.maximum(a, 0.0), observed=ones)),
            "ceiling": rate(lambda y, a: pm.Bernoulli(y, pt.minimum(a + 1.5, 1), observed=[0, 1])),
            "under": rate(lambda y, a: pm.Poisson(y, pt.softplus(a - 800), observed=ones)),
            "rows": rate(lambda y, a: pm.Poisson(y, years * pt.exp(a), observed=ones)),
            "logs": rate(
                lambda y, a: pm.NegativeBinomial(y, pt.exp(a + logged), alpha=1, observed=ones)
            ),
            "graph": rate(lambda y, a: pm.Poisson(y, pt.exp(a + pt.log(years)), observed=ones)),
            "dummy": rate(
                lambda y, a: pm.Poisson(y, pt.maximum(a + years + (years < 0), 0.0), observed=ones)
            ),
            "zeros": rate(lambda y, a: pm.Poisson(y, years * pt.exp(a), observed=[1, 0, 1, 1])),
        }
    )
    told = {term: (one.checks[0].splitlines()[0], one.advice) for term, one in bad.items()}
    # (PyMC 6.0 has a condition of its own.)
    told["logs"] = (told["logs"][0].replace("mu > 0, alpha > 0", "mu > 0"), told["logs"][1])
    one_row, link = (
        "(it is 0.0 at element [1], 1 of 4 fail)",
        "Give {0} a link: {0} = pm.math.exp(...).",
    )
    of_rows = "{}, whatever the parameters are: correct or leave out this row."
    assert told == {
        "wait": ("lam > 0 (it is 0.0 at element [0], 4 of 4 fail)", link.format("lam")),
        "floor": ("mu > 0 (it is 0.0)", link.format("mu")),
        "ceiling": (
            "0 < p < 1 (it is 1.0)",
            "Give the linear predictor as logit_p: pm.Bernoulli('ceiling', logit_p=...).",
        ),
        "under": (
            "mu > 0 (it is 0.0)",
            "Give what mu is computed from narrower priors, or an initval nearer to 0.",
        ),
        "rows": (f"mu > 0 {one_row}", of_rows.format("years[1] is 0.0")),
        "dummy": (f"mu > 0 {one_row}", link.format("mu")),
        "logs": (f"mu > 0 {one_row}", of_rows.format("logged[1] is -inf")),
        "graph": (f"mu > 0 {one_row}", of_rows.format("years[1] is 0.0")),
    }
