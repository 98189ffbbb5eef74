"""The guard inside of the samplers that compile a model by themselves."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard
import theanoguard.pymc
from theanoguard import GuardMode
from theanoguard._steps import ForeignError
from theanoguard.log import read_log
from theanoguard.pymc import SamplingError, Where
from theanoguard.pymc.watch import Ending, Watch

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e samplers)", allow_module_level=True)
import pymc as pm

PACKAGES = {
    "nutpie": ("nutpie",),
    "numpyro": ("jax", "numpyro"),
    "blackjax": ("jax", "blackjax"),
    "pymc": (),
}


def needing(sampler, *more):
    missing = [n for n in PACKAGES[sampler] if importlib.util.find_spec(n) is None]
    reason = f"{', '.join(missing)} is not installed (tox -e samplers)"
    return pytest.param(sampler, *more, marks=pytest.mark.skipif(bool(missing), reason=reason))


SAMPLERS = [
    needing("pymc", {"cores": 1}),
    needing("nutpie", {}),
    needing("nutpie", {"compile_kwargs": {"mode": "JAX"}}),
    needing("numpyro", {}),
    needing("numpyro", {"nuts": {"chain_method": "vectorized"}}),
    needing("blackjax", {"nuts": {"chain_method": "vectorized"}}),
]
DRAWS = {
    "draws": 100,
    "tune": 40,
    "chains": 2,
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
    "quiet": True,
}


def model_of(shift):
    """With a shift of 0 the potential is NaN where the sampler comes by."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=0.5)
        s = pm.HalfNormal("s")
        pm.Potential("pot", 1e-3 * pt.log(a + shift))
        pm.Normal("y", a, s, observed=[0.2, 0.4])
    model.line = inspect.currentframe().f_lineno - 2
    return model


@pytest.mark.parametrize(("sampler", "settings"), SAMPLERS)
def test_a_bad_log_density_is_found_and_explained(sampler, settings):
    guard = theanoguard.pymc.guarding()
    with model_of(0.0) as model, guard, pytest.raises(SamplingError) as caught:
        pm.sample(**{**DRAWS, **settings}, nuts_sampler=sampler)
    error = caught.value
    text = str(error)
    assert error.event.kind == "nan"
    assert f"  while sampling with {error.where}" in text.splitlines()
    assert f"test_samplers.py:{model.line}" in text
    assert error.where.sampler.lower() == sampler
    assert [term.term for term in error.terms.bad] == ["pot"]
    assert text.startswith("1 bad at this point: pot is nan.")
    assert error.terms.point["a"] < 0
    assert "s_log__ = " in text
    assert error.where.chain in (0, 1)
    assert error.where.draw < 100
    assert not error.where.tuning
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == text


@pytest.mark.parametrize(("sampler", "settings"), [*SAMPLERS[:4], SAMPLERS[5]])
def test_the_draws_of_a_sound_model_stay_as_they_are(sampler, settings):
    def draws():
        with model_of(200.0):
            return pm.sample(**{**DRAWS, **settings}, nuts_sampler=sampler).posterior

    plain = draws()
    with theanoguard.pymc.guarding():
        guarded = draws()
    for name in ("a", "s"):
        if sampler == "pymc":  # Numba may round otherwise where checks are compiled in
            np.testing.assert_allclose(guarded[name], plain[name], rtol=1e-3)
        else:
            np.testing.assert_array_equal(guarded[name], plain[name])


@pytest.mark.parametrize("sampler", ["pymc", needing("nutpie"), needing("numpyro")])
def test_a_starting_value_outside_of_its_domain(sampler):
    with pm.Model():
        pm.Normal("y", pm.Uniform("u", 0, 4, initval=4.5), observed=0.5)
        with theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
            pm.sample(**{**DRAWS, "cores": 1}, nuts_sampler=sampler)
    text = str(caught.value)
    assert caught.value.where.at_start
    assert caught.value.where.sampler.lower() == sampler
    assert "the point has u_interval__ = nan, because the initval of u is 4.5." in text
    assert "Give u an initval inside of its domain" in text


@pytest.mark.parametrize("sampler", ["pymc", needing("nutpie")])
def test_an_initval_of_the_run_outside_of_its_domain(sampler):
    with pm.Model():
        pm.Normal("y", pm.Uniform("u", 0, 4), observed=0.5)
        with theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
            pm.sample(**{**DRAWS, "cores": 1}, nuts_sampler=sampler, initvals={"u": 4.5})
    assert caught.value.where.at_start
    assert "the point has u_interval__ = nan.\n" in str(caught.value)


@pytest.mark.parametrize("sampler", ["pymc", needing("numpyro"), needing("nutpie")])
def test_a_bad_gradient_at_the_start_names_the_chain(sampler):
    with pm.Model():
        a = pm.Normal("a", initval=0.5)
        pm.Normal("y", pt.sqrt(pt.abs(a * np.array([1.0, 0.0]))), 1.0, observed=[0.1, 0.2])
        settings = {**DRAWS, "cores": 1, "chains": 1 if sampler == "nutpie" else 2}
        mode = theanoguard.pymc.mode()
        with pytest.raises(SamplingError) as caught:
            pm.sample(**settings, nuts_sampler=sampler, compile_kwargs={"mode": mode})
    where = caught.value.where
    assert where.at_start
    assert where.chain in (0, 1)
    assert str(where) == f"{where.sampler}, chain {where.chain}, at the starting point"
    assert where.sampler.lower() == sampler
    row = next(line for line in str(caught.value).splitlines() if "input, shape" in line)
    assert re.fullmatch(r" +a = [-0-9.]+ +input, shape \(\)", row)


@pytest.mark.parametrize("sampler", ["pymc", needing("nutpie")])
def test_no_starting_point_is_possible(sampler):
    with pm.Model():
        pm.Normal("y", pm.Normal("a"), np.array([1.0, 0.0]), observed=[0.5, 0.1])
        with theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
            pm.sample(**{**DRAWS, "cores": 1}, nuts_sampler=sampler)
    assert caught.value.where.at_start
    expected = "sigma > 0 (it is 0.0 at element [1], 1 of 2 fail)"
    assert f"the parameters must satisfy: {expected}" in str(caught.value)


@pytest.mark.parametrize("step", ["Metropolis", "Slice"])
def test_other_step_methods_name_the_value_variable(step):
    with pm.Model(), theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
        a = pm.Normal("a", 0.0, 1.0, initval=1.0)
        pm.Normal("b", shape=2)
        pm.Potential("p", pt.log(a))
        pm.sample(**{**DRAWS, "cores": 1}, step=getattr(pm, step)())
    text = str(caught.value)
    assert caught.value.where.chain in (0, 1)
    assert re.search(r"\n +where  a", text)
    assert "inarray" not in text
    assert "__logp" not in text


def test_a_start_that_pymc_replaces_is_a_rejection():
    with pm.Model():
        a = pm.Normal("a", initval=0.5)
        b = pm.Normal("b", shape=2)
        pm.Normal("y", pt.log(a), 1.0, observed=[0.1, 0.4])
        pm.Normal("z", b, 1.0, observed=[0.1, 0.4])
        settings = {**DRAWS, "cores": 1, "random_seed": 2, "nuts_sampler": "pymc"}
        with pytest.warns(UserWarning, match=r"y is nan at element \[0\]: NaN in log: log\(-"):
            trace = pm.sample(**settings, compile_kwargs={"mode": theanoguard.pymc.mode()})
    assert (trace.posterior["a"] > 0).all()


def test_all_starts_that_pymc_tries_are_bad():
    with pm.Model():
        a = pm.Normal("a", initval=-50.0)
        pm.Normal("y", pt.log(a), 1.0, observed=[0.1, 0.4])
        settings = {**DRAWS, "cores": 1, "nuts_sampler": "pymc"}
        with pytest.raises(SamplingError) as caught:
            pm.sample(**settings, compile_kwargs={"mode": theanoguard.pymc.mode()})
    assert caught.value.where.at_start
    assert isinstance(caught.value.__cause__, pm.exceptions.SamplingError)
    assert "NaN in log" in str(caught.value)


def test_the_draws_on_c_are_the_same_bits():
    def draws(mode):
        settings = {**DRAWS, "cores": 1, "nuts_sampler": "pymc"}
        with model_of(200.0):
            return pm.sample(**settings, compile_kwargs={"mode": mode}).posterior

    plain, guarded = draws("CVM"), draws(theanoguard.pymc.mode())
    np.testing.assert_array_equal(guarded["a"], plain["a"])
    np.testing.assert_array_equal(guarded["s"], plain["s"])


@pytest.mark.parametrize(
    ("sampler", "mode"),
    [
        needing("nutpie", GuardMode(backend="numba", big_is_error=False)),
        needing("nutpie", theanoguard.pymc.mode(backend="numba")),
        needing("nutpie", theanoguard.pymc.mode()),
        needing("numpyro", theanoguard.pymc.mode()),
    ],
)
def test_a_mode_guards_other_samplers_too(sampler, mode):
    with model_of(0.0), pytest.raises(SamplingError, match=r"pot is nan"):
        pm.sample(**DRAWS, nuts_sampler=sampler, compile_kwargs={"mode": mode})
    assert [event.kind for event in mode.recorder.events] == ["nan"]


@pytest.mark.skipif(bool(needing("nutpie").marks[0].args[0]), reason="nutpie is not installed")
def test_the_mode_is_not_dropped_where_pymc_chooses_nutpie(tmp_path):
    mode = GuardMode(backend="numba", big_is_error=False, log=tmp_path / "log")
    with model_of(0.0), pytest.raises(SamplingError) as caught:
        pm.sample(**DRAWS, compile_kwargs={"mode": mode})
    assert caught.value.where.sampler == "nutpie"
    assert read_log(tmp_path / "log").events[0].kind == "nan"


@pytest.mark.parametrize(("sampler", "settings"), SAMPLERS[1:4])
def test_recording_goes_on(sampler, settings):
    with model_of(0.0), theanoguard.pymc.guarding(action="record") as run:
        trace = pm.sample(**{**DRAWS, **settings}, nuts_sampler=sampler)
    assert trace.posterior.sizes == {"chain": 2, "draw": 100}
    assert run.guarded > 0


@pytest.mark.parametrize("sampler", [needing("nutpie"), needing("numpyro")])
def test_a_rejection_is_no_error(sampler):
    with pm.Model(), theanoguard.pymc.guarding():
        x = pm.Normal("x", initval=1.0)
        pm.Potential("positive", pt.switch(x > 0, 0.0, -np.inf))
        trace = pm.sample(**DRAWS, nuts_sampler=sampler)
    assert (trace.posterior["x"] > 0).all()


@pytest.mark.parametrize(
    ("sampler", "settings"),
    [needing("numpyro", {}), needing("blackjax", {"nuts": {"chain_method": "vectorized"}})],
)
def test_a_bad_gradient_is_no_error_where_the_energy_is_rejected(sampler, settings):
    with pm.Model(), theanoguard.pymc.guarding():
        a = pm.Normal("a")
        pm.Normal("y", a, 0.01, observed=0.0)  # the first steps, which are large, go far away
        pm.Potential("far", pt.sqrt(pt.maximum(60.0 - pt.abs(a), 0.0)))
        trace = pm.sample(**{**DRAWS, **settings}, nuts_sampler=sampler)
    assert (abs(trace.posterior["a"]) < 60).all()


@pytest.mark.parametrize("sampler", [needing("numpyro"), needing("blackjax")])
def test_an_overflow_is_no_error_where_the_energy_is_rejected(sampler):
    """The first steps lead to where the density of the Cholesky factor overflows to +inf."""
    with pm.Model(), theanoguard.pymc.guarding():
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
        pm.MvNormal(
            "y", np.zeros(2), chol=chol, observed=np.random.default_rng(0).normal(size=(20, 2))
        )
        trace = pm.sample(**{**DRAWS, "chains": 1, "random_seed": 5}, nuts_sampler=sampler)
    assert np.isfinite(trace.posterior["chol"]).all()


def test_what_the_rest_of_the_log_density_decides():
    """NumPyro looks for a step size where priors are 0 and a product overflows to NaN."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("p", pt.log(a))
    nan = {"a": np.array(np.nan)}

    def judged(watch, a, logp):
        where = Where(watch.sampler, 0, at_start=True)
        return watch.judge(Ending({"a": np.array(a)}, logp, nan, where))

    watch = Watch("numpyro", model, theanoguard.pymc.mode(), "c")
    assert judged(watch, -3.0, np.nan) is not None
    watch = Watch("numpyro", model, theanoguard.pymc.mode(), "c", starts=[[np.array(0.5)]])
    assert judged(watch, -100.0, np.nan) is None  # N(-100) has logp -5000
    assert judged(watch, 100.0, -4996.3) is None
    assert watch.n_rejected == 2
    assert judged(watch, -3.0, np.nan) is not None
    watch = Watch("nutpie", model, theanoguard.pymc.mode(), "c")
    assert judged(watch, -1e200, np.nan) is None  # the prior is -inf there


def test_a_bad_point_is_an_error_where_the_draws_go_on_to_meet_it():
    with pm.Model() as model:
        pm.Potential("p", pt.log(pm.Normal("a")))

    def ending(draw, tuning=False):
        where = Where("PyMC", 0, draw, tuning)
        return Ending({"a": np.array(-1.0)}, np.nan, {"a": np.array(np.nan)}, where, -1e3)

    def errors(draws, **more):
        watch = Watch("PyMC", model, theanoguard.pymc.mode(), n_draws=500, n_tune=200)
        judged = {n: watch.judge(ending(n, **more)) for n in draws}
        return {n: error for n, error in judged.items() if error is not None}

    assert not errors(range(1, 180), tuning=True)
    assert not errors([*range(0, 100, 10), *range(100, 500)])
    assert min(errors(range(0, 500, 9))) == 90
    assert str(errors(range(15))[10].where) == "PyMC, chain 0, draw 10"
    assert min(errors(range(200), tuning=True)) == 99


def test_a_gradient_that_is_bad_in_the_sampler_alone():
    with pm.Model() as model:
        pm.Normal("a")
    watch = Watch("numpyro", model, theanoguard.pymc.mode(), "c")
    slopes = {"a": np.array(np.nan)}
    where = Where("numpyro", 0, at_start=True)
    error = watch.judge(Ending({"a": np.array(1.0)}, -1.4, slopes, where))
    lines = str(error).splitlines()
    assert lines[0] == "NaN in the gradient by a"
    assert "PyTensor's log-density and its gradient are finite at this point, on C." in lines


@pytest.mark.parametrize("sampler", [needing("numpyro"), needing("blackjax")])
@pytest.mark.parametrize("method", ["parallel", "vectorized", "sequential"])
def test_the_chain_and_the_draw_are_the_ones_that_diverge(sampler, method, monkeypatch):
    import jax

    if sampler == "blackjax" and (method == "sequential" or jax.local_device_count() == 1):
        method = "vectorized"
    told, judge = [], Watch.judge

    def noting(self, ending):
        told.append(ending.where)
        return judge(self, ending)

    monkeypatch.setattr(Watch, "judge", noting)
    with pm.Model(), theanoguard.pymc.guarding(action="record"):
        a = pm.Normal("a")
        pm.Potential("p", 1e-9 * pt.log(a + 2.0))
        settings = {**DRAWS, "tune": 20, "random_seed": 3, "nuts": {"chain_method": method}}
        trace = pm.sample(**settings, nuts_sampler=sampler)
    diverging = {tuple(map(int, at)) for at in np.argwhere(trace.sample_stats["diverging"].values)}
    places = {(w.chain, w.draw) for w in told if not w.tuning and not w.at_start}
    assert {chain for chain, _ in places & diverging} == {0, 1}
    if method != "vectorized":  # (there JAX computes more points of a trajectory that has ended)
        assert places <= diverging


@pytest.mark.parametrize("sampler", [needing("numpyro"), needing("blackjax")])
def test_an_operation_that_jax_cannot_differentiate_is_named(sampler):
    with pm.Model(), theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
        a = pm.Normal("a")
        above = pt.maximum(a - 50.0, 0.0)
        pm.Potential("p", pt.switch(above > 0, pt.log(above), 0.0))
        pm.sample(**{**DRAWS, "chains": 1}, nuts_sampler=sampler)
    lines = str(caught.value).splitlines()
    at = lines.index("PyTensor's log-density and its gradient are finite at this point, on C.")
    text = "JAX multiplies the infinite derivative of log(0.0) by 0: a condition discards log(0.0)."
    assert lines[at + 1] == text
    assert "test_samplers.py:" in lines[at + 2]
    assert lines[at + 2].endswith('pm.Potential("p", pt.switch(above > 0, pt.log(above), 0.0))')
    assert 'nuts_sampler="pymc"' in lines[at + 3]


@pytest.mark.parametrize(
    ("fails", "is_told"), [(KeyError("planted"), True), (ForeignError("refused"), False)]
)
def test_a_fault_in_the_search_for_a_derivative_is_told(fails, is_told, monkeypatch):
    with_jax = pytest.importorskip("theanoguard.pymc.with_jax")

    def fault(*args):
        raise fails

    monkeypatch.setattr(with_jax, "bad_derivative", fault)
    note = with_jax._note(Watch("numpyro", None, theanoguard.pymc.mode()), {})
    assert (
        "theanoguard could not work out JAX's derivative (KeyError: 'planted'" in note
    ) == is_told
    assert note.endswith('nuts_sampler="pymc" or "nutpie", which use the gradient of PyTensor.')


@pytest.mark.parametrize("sampler", [needing("nutpie")])
def test_guarding_the_whole_program_guards_a_sampler(sampler):
    with model_of(0.0), theanoguard.guarding(), pytest.raises(SamplingError, match="pot is nan"):
        pm.sample(**DRAWS, nuts_sampler=sampler)


PLAIN = """
import sys
import theanoguard, pymc, nutpie
from theanoguard._patching import _patched
print(sorted(name for _, name in _patched if "sample" in name or "mp_" in name))
with theanoguard.pymc.guarding():
    pass
print(nutpie.sample.__module__, "numba" in sys.modules)
"""


@pytest.mark.skipif(bool(needing("nutpie").marks[0].args[0]), reason="nutpie is not installed")
def test_nothing_stays_patched_but_for_what_looks_for_a_guard():
    result = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True)
    patched, after = result.stdout.splitlines()
    assert patched == "['_iter_sample', '_mp_sample', '_sample_external_nuts', '_sample_many']", (
        result.stderr
    )
    assert after.startswith("nutpie.sample ")


def test_where_is_read_as_a_place():
    assert str(Where("nutpie", 1, 17, True)) == "nutpie, chain 1, draw 17 of the tuning"
    assert str(Where("numpyro")) == "numpyro"
