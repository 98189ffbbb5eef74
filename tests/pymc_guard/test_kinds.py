"""A sound model of each kind, sampled under the guard: no error, and the sampler is guarded."""

import importlib.util
from functools import partial

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import healthy
import pymc as pm

NEEDED = {"nutpie": ("nutpie",), "numpyro": ("jax", "numpyro"), "blackjax": ("jax", "blackjax")}
SETTINGS = {
    "draws": 40,
    "tune": 60,
    "chains": 1,
    "cores": 1,
    "random_seed": 2,
    "progressbar": False,
    "compute_convergence_checks": False,
    "quiet": True,
}
RNG = np.random.default_rng(4)


def state_space():
    noise = pm.HalfNormal("noise", 1)
    rho = pm.Uniform("rho", -0.9, 0.9)
    state = pm.AR("state", rho, sigma=0.5, init_dist=pm.Normal.dist(0, 1), steps=19)
    pm.Normal("y", state, noise, observed=healthy.REAL[:20])


def named_dimensions():
    import pymc.dims as pmd

    slope = pmd.Normal("slope")
    x = pmd.as_xtensor(healthy.X[:5], dims=("row",))
    pmd.Normal("y", slope * x, 1.0, observed=pmd.as_xtensor(healthy.REAL[:5], dims=("row",)))


def custom_potential():
    a = pm.Normal("a")
    pm.Potential("y", pt.switch(a > -3, pt.sum(-pt.sqrt(1 + (healthy.REAL - a) ** 2)), -np.inf))


KINDS = {
    "count": healthy.MODELS["poisson"],
    "zero-inflated": healthy.MODELS["zero_inflated_poisson"],
    "hierarchical": healthy.MODELS["hierarchical"],
    "Gaussian process": healthy.MODELS["gaussian_process"],
    "mixture": healthy.MODELS["mixture"],
    "state space": partial(healthy.model_of, state_space),
    "ordinal": healthy.MODELS["ordered_logistic"],
    "survival": healthy.MODELS["survival"],
    "LKJ": healthy.MODELS["correlated"],
    "imputation": healthy.MODELS["imputed"],
    "potential": partial(healthy.model_of, custom_potential),
    "dimensions": partial(healthy.model_of, named_dimensions, coords={"row": range(5)}),
}


def others():
    """Each kind with one of the samplers in turn."""
    for number, kind in enumerate(KINDS):
        sampler = list(NEEDED)[number % len(NEEDED)]
        missing = [name for name in NEEDED[sampler] if importlib.util.find_spec(name) is None]
        skip = pytest.mark.skipif(
            bool(missing), reason=f"{missing} not installed (tox -e samplers)"
        )
        yield pytest.param(kind, sampler, marks=skip, id=f"{kind}-{sampler}")


@pytest.mark.parametrize("kind", KINDS)
def test_pymc_samples_it(kind):
    mode = theanoguard.pymc.mode()
    with KINDS[kind]():
        trace = pm.sample(**SETTINGS, nuts_sampler="pymc", compile_kwargs={"mode": mode})
    assert trace.posterior.sizes["draw"] == 40
    assert mode.events == []


@pytest.mark.parametrize(("kind", "sampler"), list(others()))
def test_another_sampler_samples_it(kind, sampler):
    with KINDS[kind](), theanoguard.pymc.guarding():
        trace = pm.sample(**SETTINGS, nuts_sampler=sampler)
    assert trace.posterior.sizes["draw"] == 40


@pytest.mark.parametrize("method", ["advi", "fullrank_advi"])
def test_advi_on_minibatches(method):
    x, y = pm.Minibatch(healthy.X, healthy.REAL, batch_size=10)
    with pm.Model(), theanoguard.pymc.guarding() as run:
        slope, noise = pm.Normal("slope"), pm.HalfNormal("noise")
        pm.Normal("y", slope * x, noise, observed=y, total_size=len(healthy.X))
        fitted = pm.fit(100, method=method, random_seed=2, progressbar=False)
    assert len(fitted.hist) == 100
    assert run.guarded > 0


def test_nan_in_the_rows_of_a_minibatch_ends_advi():
    data = np.where(np.arange(40) == 7, np.nan, healthy.X)
    x, y = pm.Minibatch(data, healthy.REAL, batch_size=10)
    with pm.Model(), theanoguard.pymc.guarding():
        slope = pm.Normal("slope")
        pm.Normal("y", slope * x, 1.0, observed=y, total_size=len(healthy.X))
        with pytest.raises(theanoguard.GuardError, match="NaN"):
            pm.fit(100, random_seed=2, progressbar=False)
