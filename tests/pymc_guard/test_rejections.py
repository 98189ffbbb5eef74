"""Sound runs end with the same draws; rejected points are counted, and told if they last."""

import importlib
import importlib.util
import warnings

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc
from theanoguard._context import setting
from theanoguard.pymc import Where, rejections, running, watch
from theanoguard.pymc.watch import Ending, Watch

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import healthy
import pymc as pm
from pymc.blocking import DictToArrayBijection
from pymc.stats.convergence import SamplerWarning, WarningType

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


def fault(*args, **kwargs):
    raise KeyError("planted")


def logarithm():
    with pm.Model() as model:
        pm.Potential("p", pt.log(pm.Normal("a", initval=0.5)))
    return model


def ending(draw, tuning=False):
    nan = {"a": np.array(np.nan)}
    return Ending({"a": np.array(-1.0)}, np.nan, nan, Where("PyMC", 0, draw, tuning), -1e3)


STEPS = [
    (Watch, "_is_rejected"),
    (Watch, "_kind"),
    (Watch, "terms"),
    (Watch, "_judge"),
    (rejections, "summary"),
    (rejections, "_bad_terms"),
    (rejections, "_cause"),
    (rejections, "explain"),
]


@pytest.mark.parametrize(("place", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_step_that_fails_costs_no_run(place, name, monkeypatch):
    monkeypatch.setattr(place, name, fault)
    judged = Watch("PyMC", logarithm(), theanoguard.pymc.mode(), n_draws=10, n_tune=10)
    assert [judged.judge(ending(n)) for n in range(2)] == [None] * 2
    with pytest.warns(UserWarning, match="theanoguard could not work out") as caught:
        rejections.warn_of(judged)
    *counted, last = str(caught[0].message).splitlines()
    assert "(KeyError: 'planted'" in last
    assert last.endswith("The draws are not affected.")
    if name not in ("_judge", "summary"):
        assert counted[0].startswith("20 % of the trajectories of the draws (2 of 10) ended where")


@pytest.mark.parametrize(("place", "name"), [(Watch, "function"), (watch, "explain_on_c")])
def test_a_lasting_fault_is_an_error_without_its_explanation(place, name, monkeypatch):
    monkeypatch.setattr(place, name, fault)
    judged = Watch("PyMC", logarithm(), theanoguard.pymc.mode(), n_draws=10, n_tune=10)
    *before, error = (judged.judge(ending(n)) for n in range(11))
    assert before == [None] * 10
    assert error.event.kind == "nan"
    assert "while sampling with PyMC, chain 0, draw 10" in str(error)
    assert "(KeyError: 'planted'" in str(error)


@pytest.mark.parametrize("place", [Watch, watch])
def test_with_an_action_of_the_users_a_fault_of_ours_costs_no_run(place, monkeypatch):
    name = "terms" if place is Watch else "of_points"
    monkeypatch.setattr(place, name, fault)
    events = []
    mode = theanoguard.pymc.mode(action=events.append)
    judged = Watch("PyMC", logarithm(), mode, n_draws=10, n_tune=10)
    assert [judged.judge(ending(n)) for n in range(4)] == [None] * 4
    assert [event.kind for event in events] == ["nan"] * 4
    assert "(KeyError: 'planted'" in judged.failed[0]


def test_an_action_of_the_users_ends_a_run_by_its_own_error():
    class Enough(Exception):
        pass

    def action(event):
        raise Enough(event.kind)

    with pytest.raises(Enough, match="nan"):
        sample(logarithm(), 3, theanoguard.pymc.mode(action=action))


def test_points_of_the_tuning_leave_room_for_the_ones_of_the_draws(monkeypatch):
    monkeypatch.setattr(watch, "MOST", 3)
    judged = Watch("PyMC", logarithm(), theanoguard.pymc.mode(), n_draws=100, n_tune=100)
    for number in (1, 2, 3, 4):
        judged.judge(ending(number, tuning=True))
        judged.judge(ending(number))
    assert [len(kept) for kept in judged.kept.values()] == [3, 3]


@pytest.mark.skipif(not has_nutpie, reason="nutpie is not installed")
def test_a_gradient_that_pymc_makes_nan_on_numba_alone_is_named():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1, initval=735.0)
        pm.HurdlePoisson("y", psi=0.9, mu=mu, observed=[0, 800])
    judged = Watch("nutpie", model, theanoguard.pymc.mode(), "numba", n_draws=10, n_tune=10)
    point, where = {"mu_log__": np.log(735.0)}, Where("nutpie", 0, at_start=True)
    error = judged.judge(Ending(point, -900.0, {"mu_log__": np.array(np.nan)}, where))
    assert "finite at this point, on C.\ninside pymc.HurdlePoisson: of finite" in str(error)
    assert "[logp, *slopes], mode='NUMBA')" in error.note


def note_of(point):
    """PyMC's warning about a trajectory that ended at a point without a log-density."""
    joined = DictToArrayBijection.map(point)
    told = running.Told(joined, {}, np.nan, np.full(joined.data.size, np.nan), -1e3)
    noted = running.RejectedPoint("", told)
    return SamplerWarning(WarningType.DIVERGENCE, "", "debug", exec_info=noted)


def test_a_point_that_is_judged_is_not_kept_in_the_statistics():
    judged = Watch("PyMC", logarithm(), theanoguard.pymc.mode(), n_draws=10, n_tune=10)
    warning = note_of({"a": np.array(-1.0)})
    with setting(running._watch, judged):
        assert running._told([{"warning": warning}], 0, 12, 10) is None
    assert warning.exec_info is None
    [kept] = judged.kept["bad", False]
    assert kept.point == {"a": -1.0}
    assert kept.where.draw == 2


def test_a_point_that_cannot_be_read_costs_no_run(monkeypatch):
    judged = Watch("PyMC", logarithm(), theanoguard.pymc.mode(), n_draws=10, n_tune=10)
    monkeypatch.setattr(running.Told, "ending", fault)
    with setting(running._watch, judged):
        assert running._told([{"warning": note_of({"a": np.array(-1.0)})}], 0, 12, 10) is None
    assert "a rejected point (KeyError: 'planted'" in judged.failed[0]


FAULTS = {
    "pymc": [("running", "_diverged"), ("running", "bad_start"), ("rejections", "explain")],
    "nutpie": [("with_nutpie", "places_in")],
}


@pytest.mark.parametrize("sampler", ["pymc", NUTPIE])
def test_a_run_ends_where_its_own_steps_fail(sampler, monkeypatch):
    for module, name in FAULTS[sampler]:
        module = importlib.import_module(f"theanoguard.pymc.{module}")
        monkeypatch.setattr(module, name, fault)
    with pm.Model() as model:
        scale_of_any_sign()
    with pytest.warns(UserWarning, match="theanoguard could not work out"):
        drawn = sample(model, 3, theanoguard.pymc.mode(), sampler)
    assert drawn.sizes == {"chain": 2, "draw": 60}


def test_a_metropolis_sampler_rejects_points_and_they_are_counted():
    def run(mode):
        with pm.Model() as model:
            a = pm.Normal("a", 2.5, 1, initval=2.5)
            pm.Potential("p", 1e-3 * pt.log(a))
            pm.Poisson("n", 2.0)
            steps = [pm.Metropolis([a], compile_kwargs={"mode": mode})]
        return sample(model, 5, "CVM", step=steps, draws=200, tune=200)

    plain = run("CVM")
    with pytest.warns(UserWarning, match="of the steps of the draws") as caught:
        guarded = run(theanoguard.pymc.mode())
    [text] = [str(w.message) for w in caught if "of the steps" in str(w.message)]
    assert "ended where p is nan: NaN in log: log(-" in text
    assert "test_rejections.py:" in text
    np.testing.assert_array_equal(plain["a"], guarded["a"])


def test_a_density_of_plus_infinity_is_an_error_where_the_sampler_goes_there():
    with pm.Model() as model:
        a = pm.Normal("a", initval=0.0)
        pm.Potential("p", pt.exp(pt.switch(a > 1.0, 800.0, 0.0)))
    with pytest.raises(theanoguard.pymc.SamplingError, match=r"Inf in .*inf") as caught:
        sample(model, 3, theanoguard.pymc.mode())
    assert caught.value.where.draw is not None


@pytest.mark.deep
@pytest.mark.skipif(not has_nutpie, reason="nutpie is not installed")
def test_a_run_ends_if_its_divergences_have_as_many_numbers_as_it_has_draws():
    """nutpie 0.16.11 stops without a guard, if it is asked to keep the points of divergences."""
    import nutpie

    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=[1.0, 1.0], shape=2)
        pm.Potential("wall", pt.switch(pt.all(a > 0), 0.0, -np.inf))
    settings = {"draws": 10, "tune": 20, "chains": 1, "cores": 1, "progress_bar": False}
    plain = nutpie.compile_pymc_model(model)

    def fails(seed):
        try:
            nutpie.sample(plain, seed=seed, store_divergences=True, **settings)
        except ValueError as error:
            return "cannot reshape" in str(error)
        return False

    seed = next(filter(fails, range(300)), 0)
    with theanoguard.pymc.guarding(), warnings.catch_warnings(action="ignore"):
        trace = nutpie.sample(nutpie.compile_pymc_model(model), seed=seed, **settings)
    expected = nutpie.sample(plain, seed=seed, **settings)
    np.testing.assert_array_equal(trace.posterior["a"], expected.posterior["a"])
    ends = trace.sample_stats["divergence_end"].values
    assert (~np.isnan(ends).any(axis=-1) == trace.sample_stats["diverging"].values).all()
