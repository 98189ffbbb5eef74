"""Sound runs end with the same draws; rejected points are counted, and told if they last."""

import importlib.util
import warnings

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import healthy
import pymc as pm

has_nutpie = importlib.util.find_spec("nutpie") is not None
NUTPIE = pytest.param(
    "nutpie", marks=pytest.mark.skipif(not has_nutpie, reason="nutpie is not installed")
)
SETTINGS = {
    "draws": 60,
    "tune": 100,
    "chains": 2,
    "cores": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
    "quiet": True,
}


def sample(model, seed, mode, sampler="pymc", **more):
    with model:
        settings = {**SETTINGS, **more, "random_seed": seed}
        return pm.sample(**settings, nuts_sampler=sampler, compile_kwargs={"mode": mode}).posterior


@pytest.mark.parametrize("name", ["truncated_regression", "stick_breaking"])
def test_a_sound_run_ends_with_the_same_draws(name):
    model = healthy.MODELS[name]()
    short = {"draws": 20, "tune": 60, "chains": 1}
    plain = sample(model, 0, "CVM", **short)
    guarded = sample(model, 0, theanoguard.pymc.mode(), **short)
    for variable in plain.data_vars:
        np.testing.assert_array_equal(plain[variable], guarded[variable])


def logistic_without_link():
    slope = pm.Normal("slope", 0, 1)
    pm.Bernoulli("y", p=0.5 + slope * healthy.X, observed=healthy.BINARY)


def poisson_without_link():
    a, b = pm.Normal("a", 2, 1, initval=2), pm.Normal("b", 0, 1)
    pm.Poisson("y", mu=a + b * healthy.X, observed=healthy.COUNTS)


def scale_of_any_sign():
    scale = pm.Normal("scale", 0, 1, initval=1.0)
    pm.Normal("y", 0.0, scale, observed=[0.02, -0.01])


def wall():
    a = pm.Normal("a", 0, 1, initval=1.0)
    pm.Potential("wall", pt.switch(a > 0, 0.0, -np.inf))


@pytest.mark.parametrize("sampler", ["pymc", NUTPIE])
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (logistic_without_link, ["y breaks 0 <= p <= 1 (it is ", "pm.Bernoulli('y', logit_p=...)"]),
        (poisson_without_link, ["y breaks mu >= 0 (it is -", "mu = pm.math.exp(...)"]),
        (scale_of_any_sign, ["y breaks sigma > 0 (it is -", "Give scale a prior in its domain"]),
        (wall, ["wall is -inf", "test_rejections.py:"]),
    ],
)
def test_rejections_that_last_are_told_with_their_share_and_cause(sampler, build, told):
    with pm.Model() as model:
        build()
    with pytest.warns(UserWarning, match="of the trajectories of the draws") as caught:
        sample(model, 3, theanoguard.pymc.mode(), sampler)
    [text] = [str(w.message) for w in caught if "trajectories" in str(w.message)]
    assert "% of the trajectories of the draws (" in text.splitlines()[0]
    assert " of 120) ended where " in text.splitlines()[0]
    for part in told:
        assert part in text


@pytest.mark.parametrize("sampler", ["pymc", NUTPIE])
def test_nothing_is_told_of_a_run_without_rejections(sampler):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=[0.1, 0.4])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample(model, 3, theanoguard.pymc.mode(), sampler)
    assert not [w for w in caught if "trajectories" in str(w.message)]


def test_points_reach_the_main_process_from_the_others():
    with pm.Model() as model:
        pm.Potential("p", 1e-3 * pt.log(pm.Normal("a", initval=0.5)))
    with pytest.raises(theanoguard.pymc.SamplingError, match="p is nan") as caught:
        sample(model, 3, theanoguard.pymc.mode(), cores=2, mp_ctx="spawn")
    assert caught.value.where.sampler == "PyMC"
    assert not caught.value.where.tuning
    assert caught.value.terms.point["a"] < 0
