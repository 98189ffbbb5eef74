"""What divergences have in common, on traces that are made by hand."""

import importlib.util

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import pymc as pm
import xarray

RNG = np.random.default_rng(0)


def trace(diverging, warmup=None, **draws):
    """A trace of one chain."""

    def group(diverging, draws):
        dims = {name: ("chain", "draw", "dim")[: np.ndim(v) + 1] for name, v in draws.items()}
        made = {name: (dims[name], np.asarray(v)[None]) for name, v in draws.items()}
        stats = {"diverging": (("chain", "draw"), np.asarray(diverging)[None])}
        return xarray.Dataset(made), xarray.Dataset(stats)

    groups = dict(zip(("posterior", "sample_stats"), group(diverging, draws), strict=True))
    if warmup is not None:
        made = group(np.ones(len(next(iter(warmup.values()))), bool), warmup)
        groups |= dict(zip(("warmup_posterior", "warmup_sample_stats"), made, strict=True))
    return xarray.DataTree.from_dict(groups)


def last(n, n_last):
    """Whether a draw is among the last."""
    return np.arange(n) >= n - n_last


@pytest.fixture(scope="module")
def funnel():
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", 0, tau, shape=3)
        pm.Normal("y", theta, 10.0, observed=[20.0, 8.0, -3.0])
    return model


def test_a_funnel_is_named_with_what_it_scales(funnel):
    tau = np.where(last(60, 4), 0.01, RNG.uniform(2, 6, size=60))
    theta = RNG.normal(size=(60, 3)) * tau[:, None]
    found = theanoguard.pymc.explain_divergences(trace(last(60, 4), tau=tau, theta=theta), funnel)
    assert (found.n_draws, found.n_divergent) == (60, 4)
    [group] = found.groups
    assert group.cause == "edge"
    assert group.title.startswith("tau_log__ is at its lower edge, -4.6052 (other draws: ")
    assert "theta: the prior has tau as its scale, a funnel." in group.advice
    assert group.draws[0] == ("posterior", 0, 56)
    np.testing.assert_allclose(group.point["tau_log__"], np.log(0.01))
    assert str(found).startswith("4 of 60 draws diverged.\n\n4: tau_log__ is at")


def test_divergences_of_the_tuning_are_told_as_such(funnel):
    tau = RNG.uniform(2, 6, size=30)
    theta = RNG.normal(size=(30, 3)) * tau[:, None]
    early = {"tau": np.full(2, 0.02), "theta": np.full((2, 3), 0.01)}
    found = theanoguard.pymc.explain_divergences(
        trace(np.zeros(30, bool), early, tau=tau, theta=theta), funnel
    )
    assert found.groups[0].draws == (("warmup_posterior", 0, 0), ("warmup_posterior", 0, 1))
    assert "draw 0 of the tuning of chain 0" in str(found)


def test_a_trace_without_divergences(funnel):
    tau, theta = np.ones(5), np.ones((5, 3))
    found = theanoguard.pymc.explain_divergences(
        trace(np.zeros(5, bool), tau=tau, theta=theta), funnel
    )
    assert str(found) == "No divergence in 5 draws."


def test_bad_points_and_stiff_ones_are_told_apart():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10)
        pm.Potential("wall", -((10 * pt.maximum(x, 0)) ** 4) * 1e-3)
        pm.Potential("root", -pt.sqrt(x + 1))
    draws = np.where(last(50, 5), 3.0, RNG.uniform(-0.5, 0.2, size=50))
    draws[-1] = -1.0
    found = theanoguard.pymc.explain_divergences(trace(last(50, 5), x=draws), model)
    stiff, bad = found.groups
    assert (stiff.cause, len(stiff.draws)) == ("stiff", 4)
    assert "times as much as usual, mostly along x, 3.0." in stiff.title
    assert (bad.cause, len(bad.draws)) == ("bad", 1)
    assert [(b.term, b.by) for b in bad.explanation.bad] == [("root", "x")]
    assert "the gradient of root by x is" in str(found)


def test_what_is_no_trace_of_the_model_is_refused(funnel):
    with pytest.raises(ValueError, match="idata has no groups"):
        theanoguard.pymc.explain_divergences(xarray.DataTree(), funnel)
    with pytest.raises(ValueError, match="the trace holds no theta"):
        theanoguard.pymc.explain_divergences(trace([True], tau=np.ones(1)), funnel)
    without = xarray.DataTree.from_dict(
        {"posterior": xarray.Dataset(), "sample_stats": xarray.Dataset()}
    )
    with pytest.raises(ValueError, match="hold no `diverging`"):
        theanoguard.pymc.explain_divergences(without, funnel)
