"""The record of a sampler's chains, and what ``explain_divergences`` reads in it."""

import importlib.util

import numpy as np
import pytest

import theanoguard.pymc
from theanoguard.pymc.history import records_of, remarks

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import pymc as pm
import xarray

N = 100


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", mu, sigma, observed=[0.1, -0.2, 0.3])
    return model


def trace(diverging=(), steps=(0.5, 0.6, 0.4), jump=None):
    """Three chains of draws; `jump` is a chain, a draw and by how much mu is off from there on."""
    rng = np.random.default_rng(0)
    mu, sigma = rng.normal(size=(3, N)) / 10, rng.uniform(0.2, 0.4, size=(3, N))
    energy = rng.uniform(4.0, 6.0, size=(3, N))
    if jump is not None:
        chain, draw, size = jump
        mu[chain, draw:] += size
        energy[chain, draw:] += size**2
    diverged = np.zeros((3, N), bool)
    for at in diverging:
        diverged[at] = True
    stats = {
        "diverging": diverged,
        "energy": energy,
        "step_size": np.broadcast_to(np.array(steps)[:, None], (3, N)),
    }
    groups = {"posterior": {"mu": mu, "sigma": sigma}, "sample_stats": stats}
    return xarray.DataTree.from_dict(
        {
            name: xarray.Dataset({k: (("chain", "draw"), v) for k, v in group.items()})
            for name, group in groups.items()
        }
    )


def test_a_record_has_the_terms_the_step_size_and_the_energy_of_each_draw(model):
    idata = trace()
    found = theanoguard.pymc.record(idata, model)
    assert [(r.chain, len(r.draws)) for r in found] == [(0, N), (1, N), (2, N)]
    assert list(found[1].figures) == ["mu", "sigma", "y", "step_size", "energy"]
    np.testing.assert_array_equal(found[1].figures["energy"], idata["sample_stats"]["energy"][1])
    mu, sigma = (idata["posterior"][name].values[1, 7] for name in ("mu", "sigma"))
    y = np.array([0.1, -0.2, 0.3])
    expected = (-0.5 * ((y - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)).sum()
    assert found[1].figures["y"][7] == pytest.approx(expected)
    assert list(remarks(found)) == []
    assert all(r.since(name) is None for r in found for name in r.figures)


@pytest.mark.parametrize("size", [30.0, -200.0])
@pytest.mark.parametrize("draw", [25, 60, 79])
def test_the_draw_is_found_from_which_on_a_chain_is_elsewhere(draw, size):
    idata = trace(jump=(2, draw, size))
    mu, sigma = (idata["posterior"][name].values[2] for name in ("mu", "sigma"))
    figures = {"y": -((mu / sigma) ** 2), "energy": idata["sample_stats"]["energy"].values[2]}
    record = theanoguard.pymc.ChainRecord(2, np.arange(N), figures)
    assert [record.since(name) for name in ("y", "energy")] == [draw, draw]
    assert f"Chain 2: since draw {draw}, energy is about" in "".join(remarks([record]))


def test_drifts_and_late_starts_are_not_told():
    rng = np.random.default_rng(1)
    drift, walk = np.linspace(0, 50, N), rng.normal(size=N).cumsum()
    start = np.where(np.arange(N) < 5, 1e6, rng.normal(size=N))
    for y in (drift, walk, start, np.zeros(N), rng.standard_cauchy(size=N)):
        record = theanoguard.pymc.ChainRecord(0, np.arange(N), {"energy": y})
        assert record.since("energy") is None


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_figure_that_is_bad_from_a_draw_on(bad):
    energy = np.where(np.arange(N) < 50, 1.0, bad)
    record = theanoguard.pymc.ChainRecord(0, np.arange(N), {"energy": energy})
    with np.errstate(all="raise"):
        assert record.since("energy") == 50


def test_a_trace_without_draws_has_an_empty_record():
    (record,) = records_of({"mu": np.zeros((1, 0))}, {}, dict, lambda point: [0.0], ["mu"])
    assert record.figures["mu"].shape == (0,) and list(remarks([record])) == []


@pytest.mark.deep  # (it compiles the gradient)
def test_divergences_are_explained_with_what_stands_out_in_a_chain(model):
    idata = trace([(1, 90), (1, 95)], steps=(0.5, 0.6, 0.004), jump=(1, 50, 40.0))
    found = theanoguard.pymc.explain_divergences(idata, model, check=False)
    assert found.remarks == tuple(remarks(theanoguard.pymc.record(idata, model)))
    text = str(found)
    assert "Chain 1: since draw 50, the term y is about -" in text
    assert "Chain 2: its step size is 0.004; the others have 0.5 or more." in text
    assert "Chain 0" not in text


@pytest.mark.slow  # (it samples)
def test_the_record_of_a_real_trace_has_what_the_sampler_told(model):
    with model:
        idata = pm.sample(
            60, tune=60, chains=2, cores=1, random_seed=1, nuts_sampler="pymc",
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    found = theanoguard.pymc.record(idata, model)
    stats = idata["sample_stats"]
    assert [(r.chain, len(r.draws)) for r in found] == [(0, 60), (1, 60)]
    for record in found:
        terms = sum(record.figures[name] for name in ("mu", "sigma", "y"))
        np.testing.assert_allclose(terms, stats["lp"].values[record.chain])
        for name in ("step_size", "energy"):
            np.testing.assert_array_equal(record.figures[name], stats[name].values[record.chain])
