"""The guard under PyMC; run by ``tox -e pymc30,pymc`` with the release that fits each PyTensor."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.link.c.cmodule import GCC_compiler

import theanoguard.pymc
from theanoguard import GuardError, GuardMode, events_of
from theanoguard.log import read_log
from theanoguard.pymc import SamplingError, Where, explaining
from theanoguard.pymc.modes import (
    anything,
    bad_start_value,
    minimizing,
    rejecting,
    spoils_this_run,
)

HAS_PYMC = importlib.util.find_spec("pymc") is not None
needs_pymc = pytest.mark.skipif(not HAS_PYMC, reason="PyMC is not installed (tox -e pymc)")
if HAS_PYMC:
    import pymc as pm

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(HAS_PYMC, reason="PyMC is installed")
def test_without_pymc_the_error_says_how_to_get_it():
    with pytest.raises(ImportError, match=r"not installed\.\nInstall it with: pip"):
        theanoguard.pymc.explain(None)


def test_importing_it_does_not_import_pymc():
    code = "import sys, theanoguard.pymc; print('pymc' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


@pytest.fixture(scope="module")
def model():
    if not HAS_PYMC:
        pytest.skip("PyMC is not installed (tox -e pymc)")
    first = inspect.currentframe().f_lineno + 2
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        s = pm.HalfNormal("s", 1)
        mu = pm.Deterministic("mu", pt.log(a[0]) + a[1])
        pm.Potential("pot", -pt.sqrt(a[1]))
        pm.Normal("y", mu, s, observed=[1.0, 2.0])
    model.lines = {"a": first, "s": first + 1, "mu": first + 2, "pot": first + 3, "y": first + 4}
    return model


# -- explain


def test_a_sound_point(model):
    point = {"a": [1.0, 2.0]}
    found = theanoguard.pymc.explain(model, point)
    assert found.ok
    assert found.bad == ()
    whole = {**model.initial_point(), "a": np.array([1.0, 2.0])}
    assert sum(found.terms.values()) == pytest.approx(float(model.compile_logp()(whole)))
    assert list(found.terms) == ["a", "s", "y", "pot"]
    gradient = np.concatenate(
        [np.ravel(found.gradient[v.name]) for v in model.continuous_value_vars]
    )
    np.testing.assert_allclose(gradient, model.compile_dlogp()(whole))
    assert str(found).startswith("The log-density is ")


def test_a_bad_term_by_name_and_line(model):
    found = theanoguard.pymc.explain(model, {"a": [-1.0, 1.0]})
    assert not found.ok
    bad = found.bad[0]
    assert (bad.term, bad.by, bad.event.kind) == ("y", None, "nan")
    assert (bad.source.file, bad.source.line) == (__file__, model.lines["y"])
    assert bad.explanation.cause.expression == "log(-1.0)"
    assert [(b.term, b.by) for b in found.bad] == [("y", None), ("y", "a"), ("y", "s_log__")]
    assert np.isnan(found.terms["y"])
    assert np.isfinite(found.terms["pot"])
    text = str(found)
    assert text.startswith("3 bad at this point: y is nan at element [0], ")
    assert f"test_pymc.py:{model.lines['y']} in model:" in text
    assert text.count("What to do") == 1  # the gradients are bad by the same value


def test_a_bad_gradient_of_a_sound_term(model):
    found = theanoguard.pymc.explain(model, {"a": [1.0, 0.0]})
    [bad] = found.bad
    assert (bad.term, bad.by, bad.event.first_index) == ("pot", "a", (1,))
    assert bad.source.line == model.lines["pot"]
    assert bad.title == "the gradient of pot by a is -inf at element [1]"
    assert bad.explanation.cause.op == "true_div"
    assert np.isfinite(list(found.terms.values())).all()
    assert found.table().splitlines()[-2].split() == ["a", "inf"]


def test_the_initial_point_is_the_default(model):
    found = theanoguard.pymc.explain(model)
    assert found.bad[0].term == "y"  # log(0)
    assert found.point.keys() == {"a", "s_log__"}


@needs_pymc
def test_a_condition_on_the_parameters():
    with pm.Model() as model:
        d = pm.Normal("d", 0, 1)
        pm.Gamma("obs", 2, d, observed=[1.0])
        pm.Uniform("u", 0, 1, default_transform=None)
    found = theanoguard.pymc.explain(model, {"d": -1.0, "u": 2.0})
    outside, checked = found.bad
    assert checked.term == "obs"
    assert "beta > 0" in " ".join(checked.checks)
    assert "the parameters must satisfy: " in str(checked)
    assert (outside.term, outside.checks) == ("u", ())
    assert outside.data.startswith(
        "u = 2.0 lies outside of the support: lower <= u <= upper (lower = 0, upper = 1)."
    )


@needs_pymc
def test_a_term_that_cannot_be_computed():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=3)
        data = pm.Data("data", np.ones(2))
        pm.Potential("sum\x1b[31m", a + pt.specify_shape(data, (pt.as_tensor(a.shape[0]),)))
    found = theanoguard.pymc.explain(model)
    [bad] = found.bad
    assert bad.term == "sum\x1b[31m"
    assert bad.error.startswith("AssertionError") or bad.error.startswith("ValueError")
    assert np.isfinite(found.terms["a"])
    assert found.gradient == {}
    assert "\x1b" not in str(found)


@needs_pymc
def test_a_result_is_plain_data():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Potential("p", pt.log(a))
    found = theanoguard.pymc.explain(model, {"a": -1.0})
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)


def test_bad_arguments_are_named(model):
    with pytest.raises(TypeError, match=r"explain\(model=3\): model must be"):
        theanoguard.pymc.explain(3)
    with pytest.raises(
        ValueError, match="no value variable of the model: s.\nIts value variables are a, s_log__"
    ):
        theanoguard.pymc.explain(model, {"s": 1.0})
    with pytest.raises(TypeError, match=r"explain\(point=\[1.0\]\): point must be"):
        theanoguard.pymc.explain(model, [1.0])


# -- GuardMode as the mode of a model's functions


def test_functions_of_a_model_are_guarded(model):
    mode = GuardMode(big_is_error=False)
    with theanoguard.pymc.model_lines():
        logp = model.compile_logp(mode=mode)
        dlogp = model.compile_dlogp(mode=mode)
    sound = {"a": np.array([1.0, 1.0]), "s_log__": np.array(0.0)}
    assert float(logp(sound)) == pytest.approx(float(model.compile_logp()(sound)))
    with pytest.raises(GuardError) as caught:
        logp({**sound, "a": np.array([-1.0, 1.0])})
    assert caught.value.explanation.cause.expression == "log(-1.0)"
    assert f"test_pymc.py:{model.lines['mu']}:" in str(caught.value)
    with pytest.raises(GuardError) as caught:
        dlogp({**sound, "a": np.array([1.0, 0.0])})
    assert f"test_pymc.py:{model.lines['pot']}" in str(caught.value)
    assert len(events_of(logp.f)) == 1
    assert len(mode.events) == 2


SAMPLING = """
import pymc as pm, pytensor.tensor as pt, sys, theanoguard
from theanoguard import GuardMode

def main(shift, start_method, log):
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=0.5)
        pm.Potential("pot", pt.log(a + shift))
        pm.Normal("y", a, 1.0, observed=[1.0, 2.0])
    mode = GuardMode(big_is_error=False, log=log)
    try:
        with model:
            trace = pm.sample(
                draws=20, tune=20, chains=2, cores=2, mp_ctx=start_method, random_seed=1,
                nuts_sampler="pymc", progressbar=False, compile_kwargs={"mode": mode},
            )
        print("sampled", trace.posterior["a"].shape)
    except Exception as error:
        print(type(error).__name__, error.event.kind, error.where.chain in (0, 1))
        print(error)

if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Sample in a program of its own: its processes are spawned from its file."""
    if not HAS_PYMC:
        pytest.skip("PyMC is not installed (tox -e pymc)")
    folder = tmp_path_factory.mktemp("sampling")
    (folder / "program.py").write_text(textwrap.dedent(SAMPLING), encoding="utf-8")

    def run(*arguments):
        command = [sys.executable, folder / "program.py", *arguments]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def test_sampling_in_several_processes(sample, tmp_path):
    assert sample(20, "spawn", tmp_path / "log") == "sampled (2, 20)\n"
    assert read_log(tmp_path / "log").events == []


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_trip_in_another_process_arrives_whole(sample, tmp_path, start_method):
    kind, *report = sample(0, start_method, tmp_path / "log").splitlines()
    assert kind == "SamplingError nan True"
    assert report[0].startswith("NaN in log: log(-")
    assert report[1].startswith("  while sampling with PyMC, chain ")
    assert report[2].endswith("program.py:8:29 in main")
    assert report[3].strip().startswith("pm.Potential(")
    entry = read_log(tmp_path / "log").entries[0]
    assert entry.event.kind == "nan"
    assert entry.explanation is not None
    assert entry.worker  # PyMC names its processes after their chains


def observed_lognormal():
    pm.LogNormal("y", pm.Normal("mu"), 1.0, observed=[0.3, -0.5, 2.0])


def observed_gamma():
    pm.Gamma("y", 2, pm.HalfNormal("b"), observed=[1.0, 0.0, 2.0])


def observed_gamma_with_dimensions():
    import pymc.dims as pmd

    data = pmd.as_xtensor(np.array([1.0, 0.0, 3.0]), dims=("row",))
    pmd.Gamma("y", alpha=2.0, beta=pmd.HalfNormal("b"), observed=data, dims="row")


def observed_dirichlet():
    pm.Dirichlet("y", 2 + pm.HalfNormal("a", shape=3), observed=[[0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])


def observed_bernoulli():
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=[0, 1, 2])


def observed_binomial():
    pm.Binomial("y", 5, pm.Beta("p", 1, 1), observed=[0, 6, 2])


def observed_multinomial():
    pm.Multinomial("y", 5, pm.Dirichlet("p", np.ones(3)), observed=[[1, 2, 2], [1, 1, 1]])


def observed_dirichlet_multinomial():
    pm.DirichletMultinomial(
        "y", [5, 5], pm.HalfNormal("a", shape=3), observed=[[1, 2, 2], [1, 1, 1]]
    )


def observed_uniform():
    pm.Uniform("y", 0, 2 * pm.HalfNormal("b"), observed=[1.0, 0.5, 3.0])


def observed_censored():
    latent = pm.Weibull.dist(2.0, pm.HalfNormal("b"))
    pm.Censored("y", latent, lower=None, upper=4.0, observed=[1.0, 5.0, 4.0])


def observed_truncated():
    pm.Truncated("y", pm.Normal.dist(pm.Normal("m"), 1.0), lower=0.0, observed=[1.0, -1.0])


def observed_zero_inflated():
    pm.ZeroInflatedPoisson("y", 0.5, pm.math.exp(pm.Normal("a")), observed=[1, 0, -1])


def observed_infinite():
    pm.NormalMixture("y", [0.5, 0.5], pm.Normal("m", shape=2), 1.0, observed=[1.0, np.inf])


def observed_of_ones_own():
    def logp(value, rate):
        return pt.switch(value > 2.5, -np.inf, -rate * value)

    pm.CustomDist("y", pm.HalfNormal("rate"), logp=logp, observed=[1.0, 3.0])


@needs_pymc
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (observed_lognormal, "y[1] = -0.5 lies outside of the support: positive numbers.\n"),
        (observed_gamma, "y[1] = 0.0 lies outside of the support: positive numbers.\n"),
        (observed_gamma_with_dimensions, "y[1] = 0.0 lies outside of the support: positive"),
        (observed_dirichlet, "y[1] = [0.5, 0.5, 0. ] lies outside of the support: vectors of"),
        (observed_bernoulli, "y[2] = 2 lies outside of the support: 0 and 1.\n"),
        (
            observed_binomial,
            "y[1] = 6 lies outside of the support: whole numbers from 0 to n (n = 5)",
        ),
        (observed_multinomial, "whose sum is n (n = 5).\n"),
        (observed_dirichlet_multinomial, "whose sum is n (n = 5).\n  1 of 2 observed"),
        (observed_uniform, "lower <= y <= upper (lower = 0, upper = 2.0).\n  1 of 3 observed"),
        (observed_censored, "y[1] = 5.0 lies outside of the support: lower <= y <= upper and"),
        (observed_truncated, "lower <= y <= upper (lower = 0.0, upper = inf).\n"),
        (observed_zero_inflated, "y[2] = -1 lies outside of the support: c or whole numbers of"),
        (observed_infinite, "y[1] = inf lies outside of the support: finite numbers.\n"),
        (observed_of_ones_own, "the condition y > 2.5 holds at element [1] (3.0 against 2.5)"),
    ],
)
def test_data_outside_of_the_support(build, told):
    with pm.Model(coords={"row": range(3)}) as model:
        build()
    found = theanoguard.pymc.explain(model)
    assert told in str(found)
    assert "  observed y[" in str(found)
    assert "constant" not in str(found)
    # The gradients that follow from it are not told one by one.
    assert [(bad.term, bad.by) for bad in found.bad] == [("y", None)]


def pm_of(name, *args, **kwargs):
    """A variable of PyMC's distribution of this name."""
    return getattr(pm, name)(*args, **kwargs)


def categorical_of_a_quotient():
    p = pm.math.exp(pm.Normal("w", shape=3)) * pm.Data("mask", [1.0, 1.0, 0.0])
    pm.Categorical("y", p / p.sum(), observed=[0, 1, 2])


def multinomial_of_a_quotient():
    w = pm.HalfNormal("w", shape=2)
    p = pm.math.stack([w[0], w[1], 0.0])
    pm.Multinomial("y", 5, p / p.sum(), observed=[[1, 2, 2]])


@needs_pymc
@pytest.mark.parametrize("build", [categorical_of_a_quotient, multinomial_of_a_quotient])
def test_a_probability_of_0_is_changed_where_the_user_wrote_it(build):
    with pm.Model() as model:
        build()
    text = str(theanoguard.pymc.explain(model))
    # (PyMC 6.0 asks in a condition whether it is 0, later releases take its logarithm.)
    shown = r"where  \(?p / p\.sum\(\)(\)\[(0, )?2\])? (== 0 = True, from 0\.0 == 0|= 0\.0)"
    assert re.search(shown, text), text
    assert "pt.maximum(" not in text  # (no bound on a parameter of a density)


@needs_pymc
def test_a_check_of_pymc_names_no_constant():
    with pm.Model() as model:
        pm.Multinomial("y", 5, [0.5, 0.5, 0.0], observed=[[1, 2, 2], [1, 4, 0]])
    text = str(theanoguard.pymc.explain(model))
    assert "Inf came in with a constant of shape (2,) at element [0]" in text


@needs_pymc
def test_a_support_is_written_with_the_name_of_the_variable():
    with pm.Model() as model:
        pm.Uniform("yield", 0.0, 2.0, observed=[1.0, 3.0])
    text = str(theanoguard.pymc.explain(model))
    assert "lies outside of the support: lower <= yield <= upper (lower = 0.0, upper = 2.0)" in text


@needs_pymc
def test_a_parameter_that_fails_is_shown_with_its_line():
    with pm.Model() as model:
        s = pm.Normal("s", shape=2, initval=[1.0, -2.5])
        sigma = 2 * s
        pm.Normal("y", 0, sigma, observed=[1.0, 2.0])
    text = str(theanoguard.pymc.explain(model))
    assert "sigma > 0 (it is -5.0 at element [1], 1 of 2 fail)\n" in text
    assert ":  sigma = 2 * s\n" in text + "\n"


@needs_pymc
def test_a_parameter_that_is_nan_in_a_check_is_told():
    with pm.Model() as model:
        variance = pm.Normal("variance", initval=-1.0)
        pm.Normal("y", 0.0, pt.sqrt(variance * np.ones(2)), observed=[1, 2])
    text = str(theanoguard.pymc.explain(model))
    assert "sigma > 0 (a parameter is NaN at element [0], as explained below)\n" in text
    assert "NaN in sqrt: sqrt(-1.0)" in text


@needs_pymc
def test_the_place_of_a_sampler_follows_the_list_of_bad_terms():
    with pm.Model() as model:
        a = pm.Normal("a", initval=-1.0)
        for n in range(4):
            pm.Potential(f"a_long_name_{n}", pt.log(a))
    terms = theanoguard.pymc.explain(model)
    error = SamplingError(terms.bad[0].event, None, Where("PyMC", 1), terms)
    head, listed = str(error).split("\n\n")[0], str(terms).split("\n\n")[0]
    assert listed.count("\n") > 0
    assert head == f"{listed}\n  while sampling with PyMC, chain 1"


@needs_pymc
def test_what_is_differentiated_is_named_by_the_model():
    with pm.Model() as model:
        a = pm.Normal("a", initval=0.0)
        pm.Potential("root", pt.sqrt(pt.abs(a)))
    text = str(theanoguard.pymc.explain(model))
    assert "backward of sqrt, in the gradient of root\n" in text


@needs_pymc
def test_a_check_of_a_number_that_is_nan_shows_where_it_was_made():
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        cov = s * np.array([[1.0, 2.0], [2.0, 1.0]])
        pm.MvNormal("y", np.zeros(2), cov=cov, observed=[[1.0, 2.0]])
    text = str(theanoguard.pymc.explain(model))
    assert "the parameters must satisfy: posdef covariance\n" in text
    assert "the smallest\n    eigenvalue -1.0" in text


@needs_pymc
def test_an_initial_value_outside_of_its_domain():
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        cuts = pm.Normal("cuts", 0, 1, shape=2, transform=ordered)
        pm.OrderedLogistic("y", eta=0.0, cutpoints=cuts, observed=[0, 1, 2])
    text = str(theanoguard.pymc.explain(model))
    assert (
        "the point has cuts_ordered__[1] = -inf.\n  Give cuts an initval of increasing numbers."
        in text
    )
    assert text.count("What to do") == 0


@needs_pymc
def test_a_model_with_named_dimensions():
    import pymc.dims as pmd

    with pm.Model(coords={"row": range(3)}) as model:
        mu = pmd.Normal("mu")
        data = pmd.as_xtensor(np.array([1.0, 2.0, np.nan]), dims=("row",))
        pmd.Normal("y", mu, 1.0, observed=data, dims="row")
    assert "y is nan at element [2]" in str(theanoguard.pymc.explain(model))


@needs_pymc
def test_a_labelled_variable_is_named_as_the_model_does():
    px = pytest.importorskip("pytensor.xtensor")
    import pymc.dims as pmd

    with pm.Model(coords={"row": range(2)}) as model:
        a, b = (pmd.Normal(name, dims="row", initval=-np.ones(2)) for name in "ab")
        data = pmd.as_xtensor(np.ones(2), dims=("row",))
        pmd.Normal("y", px.math.log(a * b - 2.0), 1.0, observed=data)
    text = str(theanoguard.pymc.explain(model))
    assert "XTensor" not in text
    assert "a[0]" in text


def outcome(model, point, **settings):
    """The log-density at a point under the guard for PyMC, or the kind of its error."""
    mode = theanoguard.pymc.mode(**settings)
    function = model.compile_fn([model.logp(), model.dlogp()], mode=mode, point_fn=True)
    try:
        return float(function({**model.initial_point(), **point})[0])
    except theanoguard.GuardError as error:
        return error.event.kind


def root_of_normal():
    x = pm.Normal("x")
    pm.Normal("y", pt.sqrt(x), 1.0, observed=[1.0, 2.0])


def masked_logarithm():
    x = pm.Normal("x")
    pm.Potential("y", pt.switch(x > 0, pt.log(x), -np.inf))


def normal_without_transform():
    pm.Normal("y", 0, pm.Normal("x"), observed=[1.0, 2.0])


def zero_inflated():
    x = pm.Normal("x")
    pm.ZeroInflatedPoisson("y", pm.math.sigmoid(x), 2.0, observed=[0, 1])


@needs_pymc
@pytest.mark.parametrize("backend", ["c", "numba"])
@pytest.mark.parametrize(
    ("build", "x", "expected"),
    [
        (root_of_normal, -1.0, "nan"),  # the log-density is NaN
        (root_of_normal, 0.0, "inf"),  # it is finite, and its gradient is not
        (masked_logarithm, -1.0, -np.inf),  # a rejection
        (normal_without_transform, -1.0, -np.inf),
        (zero_inflated, -800.0, -np.inf),  # on Numba, a sign stops the program half way
    ],
)
def test_the_mode_raises_only_where_sampling_would_go_wrong(backend, build, x, expected):
    with pm.Model() as model:
        build()
    assert outcome(model, {"x": np.array(x)}, backend=backend) == expected
    assert np.isfinite(outcome(model, {"x": np.array(1.0)}, backend=backend))


@needs_pymc
def test_missing_rows_of_a_minibatch_are_named():
    data = np.ones(40)
    data[::4] = np.nan
    with pm.Model() as model:
        x, y = pm.Minibatch(data, 2 * np.ones(40), batch_size=20)
        pm.Normal("y", pm.Normal("a") * x, 1.0, observed=y, total_size=40)
    text = str(theanoguard.pymc.explain(model))
    assert "10 of 40 rows hold NaN, the first is row 0." in text


@needs_pymc
def test_a_gradient_that_is_zero_is_a_finding():
    with pm.Model() as model:
        a = pm.Normal("a")  # (its gradient is 0 at 0, and not nearby)
        idle = pm.Flat("idle")
        pm.Potential("p", 0 * idle + a)
    found = theanoguard.pymc.explain(model)
    assert found.ok
    assert found.flat == ("idle",)
    assert "The gradient by idle is 0, here and nearby" in str(found)


@needs_pymc
def test_the_page_shows_what_the_example_prints(monkeypatch):
    """``docs/pymc.rst`` ends its block with dots."""
    page = (ROOT / "docs" / "pymc.rst").read_text(encoding="utf-8")
    shown = re.search(r"The second point prints:\n\n.*\n\n((?:    .*\n|\n)+)", page)[1]
    shown = textwrap.dedent(shown).partition("    ...\n")[0].strip()
    monkeypatch.chdir(ROOT / "examples")
    command = [sys.executable, "pymc_explain.py"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert shown and shown in run.stdout


@needs_pymc
def test_the_page_on_warnings_shows_what_its_model_prints(tmp_path):
    page = (ROOT / "docs" / "warnings.rst").read_text(encoding="utf-8")
    block = r":caption: {}\n\n((?:   .*\n|\n)+)"
    program, shown = (
        textwrap.dedent(re.search(block.format(caption), page)[1]).strip()
        for caption in (r"start\.py", r"python start\.py")
    )
    (tmp_path / "start.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "start.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == shown


@needs_pymc
def test_comparisons_are_shown_as_signs():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("p", pt.log(pt.eq(a, 1.0) * 1.0))
    text = str(theanoguard.pymc.explain(model))
    assert "eq(a, 1.0) = False" in text
    assert "eQ" not in text


@needs_pymc
def test_a_start_that_pymc_refuses_is_explained():
    with pm.Model():
        slope = pm.Normal("slope")
        pm.Normal("y", slope * np.array([1.0, np.nan]), 1.0, observed=[1.0, 2.0])
        with pytest.raises(SamplingError) as caught:
            pm.sample(
                nuts_sampler="pymc",
                compile_kwargs={"mode": theanoguard.pymc.mode()},
                progressbar=False,
            )
    text = str(caught.value)
    assert "y is nan at element [1]" in text
    assert "\n  at the starting point of PyMC\n" in text


def test_a_point_that_is_rejected_is_no_error():
    low, nan = np.array(-2000.0), np.array([np.nan])
    assert spoils_this_run([low, nan])
    with rejecting(bad_start_value):
        assert spoils_this_run([low, nan])  # PyMC looks at the log-density alone
        assert not spoils_this_run([nan[0], nan])
    with rejecting(anything):
        assert not spoils_this_run([nan[0]])
        assert not spoils_this_run([low, nan])
        assert spoils_this_run([nan])  # an array of draws


@needs_pymc
def test_draws_from_the_prior_find_a_scale_that_may_be_negative():
    with pm.Model() as model:
        scale = pm.Normal("scale", 1, 1)
        cuts = pm.Normal(
            "cuts", 0, 1, shape=2, transform=pm.distributions.transforms.ordered, initval=[0, 1]
        )
        pm.Normal("y", cuts[0], scale, observed=np.zeros(3))
    assert theanoguard.pymc.explain(model).ok
    found = theanoguard.pymc.explain(model, prior_draws=50)
    assert found.point["scale"] < 0
    assert str(found).startswith(f"1 bad at draw {found.prior_draw} from the prior: y is -inf")
    assert "sigma > 0 (it is -" in str(found)


@needs_pymc
def test_advice_for_labelled_variables_uses_their_functions():
    pmd = pytest.importorskip("pymc.dims")
    with pm.Model(coords={"row": range(3)}) as model:
        a = pmd.Normal("a", dims="row")
        rate = pmd.math.log(a)
        share = a / a.sum("row")
        pmd.Normal("y", rate + share, 1.0, observed=pmd.as_xtensor(np.ones(3), dims=("row",)))
    texts = [
        theanoguard.pymc.explain(model, {"a": a}).bad[0].explanation.cause.hint.text
        for a in (np.array([1.0, -0.5, 1.0]), np.zeros(3))
    ]
    assert "a[1] is -0.5" in texts[0]
    assert "pt." not in texts[1]


@needs_pymc
def test_labelled_variables_that_pymc_rewrites_keep_their_names_and_functions():
    pmd = pytest.importorskip("pymc.dims")

    def explained(mean):
        with pm.Model(coords={"row": range(3)}) as model:
            scale = pmd.HalfNormal("scale", dims="row")
            data = pmd.as_xtensor(np.ones(3), dims=("row",))
            pmd.Normal("y", mean(scale), 1.0, observed=data)
        return theanoguard.pymc.explain(model).bad[0].explanation

    def quotient(scale):
        return 1 / (scale - 1.0)

    def angle(scale):
        doubled = scale * 2
        return pmd.math.arccos(doubled)

    assert explained(quotient).meaning.text.startswith("1.0 / 0.0 does not exist: (scale - 1.0)")
    names = [p.name for p in explained(angle).waypoints]
    assert names == ["scale_log__", "scale", "doubled"]


@needs_pymc
def test_a_model_with_dims_names_the_users_line_and_operands():
    with pm.Model(coords={"row": range(3)}) as model:
        scale = pm.HalfNormal("scale", dims="row")
        mu = 1 / (scale - 1.0)
        pm.Normal("y", mu, 1.0, observed=np.ones(3))
    found = theanoguard.pymc.explain(model).bad[0].explanation
    assert found.cause.source.text == "mu = 1 / (scale - 1.0)"
    assert found.cause.operands[-1].name == "scale - 1.0"
    assert found.meaning.kind == "none"
    assert found.cause.hint.change == ()


@needs_pymc
def test_logarithms_throughout_leave_out_what_pymc_has_written():
    with pm.Model() as model:
        k = pm.HalfNormal("k", shape=3)
        scale = pt.exp(pm.Normal("size", shape=3))
        hazard = k / scale * (2.0 / scale) ** (k - 1)
        pm.Potential("survival", pt.log(hazard).sum())
    found = theanoguard.pymc.explain(model, {"size": np.full(3, 1000.0)})
    text = " ".join(str(found.bad[0].explanation).split())
    assert "In exact arithmetic the log-density of survival is -3000;" in text
    assert 'Another formula for "pt.log(hazard)" on line' in text


def grouped_share():
    import pymc.dims as pmd

    a = pmd.Normal("a", 0, 1, dims="group")
    total = a.sum("group")
    pmd.Deterministic("share", a / total)
    pmd.Normal("y", a / total, 1.0, observed=pmd.as_xtensor(np.ones(3), dims=("group",)))


def logarithmic_scale():
    import pymc.dims as pmd

    x = pmd.as_xtensor(np.arange(3.0), dims=("group",))
    slope = pmd.Normal("slope", 0, 1)
    sigma = pmd.math.log(slope)
    pmd.Normal("y", slope * x, sigma, observed=pmd.as_xtensor(np.ones(3), dims=("group",)))


@needs_pymc
@pytest.mark.parametrize("mode", [theanoguard.pymc.mode, GuardMode])
@pytest.mark.parametrize(
    ("build", "expression", "names"),
    [
        (grouped_share, "a / total", ["a", "total"]),
        (logarithmic_scale, "pmd.math.log(slope)", ["slope"]),
    ],
)
def test_a_gradient_of_labelled_variables_names_the_users_expression(
    build, expression, names, mode
):
    pytest.importorskip("pymc.dims")
    with pm.Model(coords={"group": range(3)}) as model:
        build()
    f = model.compile_dlogp(mode=mode())
    with pytest.raises(GuardError) as caught:
        f(model.initial_point())
    cause = caught.value.explanation.cause
    assert cause.source.text[slice(*cause.source.marked)] == expression
    assert [operand.name for operand in cause.operands] == names


@needs_pymc
def test_an_infinity_in_the_data_ends_advi_with_advice_on_the_data():
    data = np.where(np.arange(20) == 7, np.inf, 1.0)
    with pm.Model(), theanoguard.pymc.guarding():
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=data)
        with pytest.raises(theanoguard.GuardError) as caught:
            pm.fit(10, random_seed=2, progressbar=False)
    text = " ".join(str(caught.value).split())
    assert "The data hold an Inf: element 7 of 20 is infinite." in text


@needs_pymc
def test_only_the_condition_itself_is_told_and_once():
    with pm.Model() as model:
        eta, cuts = pm.Normal("eta", shape=3), pm.Normal("cuts", shape=3, initval=[1.0, -1.0, 0.0])
        pm.OrderedProbit("y", eta=eta, cutpoints=cuts, observed=[0, 1, 2])
        life = pm.Weibull.dist(pm.Normal("alpha", initval=-1.0), 2.0)
        pm.Censored("z", life, lower=None, upper=5.0, observed=[1.0, 5.0])
    text = str(theanoguard.pymc.explain(model))
    [ordered] = [line for line in text.splitlines() if "must satisfy: cutpoints" in line]
    assert ordered.endswith("cutpoints that increase (1.0 comes before -1.0)")
    assert text.count("alpha > 0") == 1


@needs_pymc
def test_the_gradients_of_one_operation_are_told_once():
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=3), pm.Normal("b")
        mu = pt.exp(a[np.array([1, 0, 2])] + b + np.array([800.0, 900.0, 1000.0]))
        pm.Poisson("y", mu, observed=[1, 2, 3])
    text = str(theanoguard.pymc.explain(model))
    assert text.count("What to do") == 1
    assert "  as above: Inf in exp: exp(900.0) = inf at element [1]\n" in text


@needs_pymc
def test_an_explanation_of_a_model_names_nothing_of_what_pymc_compiles(model):
    text = str(theanoguard.pymc.explain(model, {"a": [-1.0, 1.0]}))
    assert "    Forward pass. More: theanoguard explain TG102\n" in text
    assert "output " not in text
    mode = theanoguard.pymc.mode()
    with pm.Model(), pytest.raises(SamplingError) as caught:
        pm.Potential("y", 1e-3 * pt.log(pm.Normal("a", initval=0.5)))
        pm.sample(
            tune=50, draws=60, random_seed=1, cores=1, nuts_sampler="pymc", progressbar=False,
            compile_kwargs={"mode": mode},
        )  # fmt: skip
    assert "\n    Forward pass. More: " in str(caught.value)


@needs_pymc
def test_a_transformed_variable_is_named_as_the_model_does():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        stock = scale * 2 - 3
        pm.Normal("y", pt.log(stock), 1.0, observed=[1.0])
    text = str(theanoguard.pymc.explain(model))
    assert "scale_log___log" not in text
    assert re.search(r"\n +scale_log__ = 0.0 +input, shape \(\)\n +scale = 1.0 ", text)
    function = model.compile_fn(model.logp(), mode=theanoguard.pymc.mode(), point_fn=True)
    with pytest.raises(GuardError) as caught:
        function(model.initial_point())
    assert "scale_log___log" not in str(caught.value)


@needs_pymc
def test_a_frozen_model_keeps_its_lines():
    from pymc.model.transform.optimization import freeze_dims_and_data

    with pm.Model(coords={"row": range(3)}) as model:
        a = pm.Normal("a", dims="row")
        mu = pt.log(a)
        pm.Normal("y", mu, 1.0, observed=np.zeros(3), dims="row")
    point = {"a": [1.0, -1.0, 2.0]}
    found = theanoguard.pymc.explain(freeze_dims_and_data(model), point)
    assert str(found.bad[0]) == str(theanoguard.pymc.explain(model, point).bad[0])
    assert "mu = pt.log(a)" in str(found)


@needs_pymc
def test_a_covariance_that_is_not_positive_definite():
    """The line calls the Cholesky factorization by way of PyMC, which takes the jitter."""
    hours = np.array([0.5, 3.0, 3.0, 7.0])[:, None]
    with pm.Model() as model:
        scale = pm.InverseGamma("scale", 5, 20)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=scale))
        f = gp.prior("f", X=hours, jitter=0.0)
        pm.Normal("y", f, 1, observed=np.zeros(4))
    told = str(theanoguard.pymc.explain(model))
    assert "cholesky(the matrix) does not exist: rows 1 and 2 of the matrix are equal." in told
    assert "Give prior jitter=1e-6, which is added to the diagonal." in told


@needs_pymc
def test_a_constant_that_pymc_has_folded_is_not_taken_for_data():
    exposure = np.array([1.0, 2.0, 0.0])
    with pm.Model() as model:
        mu = pt.exp(pm.Normal("b") + pt.log(exposure))
        pm.Poisson("y", mu, observed=[1, 2, 3])
    told = " ".join(str(theanoguard.pymc.explain(model)).split())
    assert "The data hold" not in told
    assert "mu > 0 (it is 0.0 at element [2], 1 of 3 fail)" in told
    assert "exposure[2] is 0.0, whatever the parameters are: correct or leave out this row" in told


@needs_pymc
def test_a_line_that_may_have_made_a_value_is_listed_once():
    time = np.array([1.5, 0.7, 0.0])

    def logp(time, alpha, b):
        return pt.log(alpha) + (alpha - 1) * pt.log(time) + b - pt.exp(b) * time**alpha

    with pm.Model() as model:
        pm.CustomDist("t", pm.HalfNormal("a"), pm.Normal("b"), logp=logp, observed=time)
    text = str(theanoguard.pymc.explain(model))
    assert "the gradient of t by a_log__ is -inf" in text
    assert "on one of these lines" not in text


@needs_pymc
def test_levels_that_are_not_counted_from_0_are_told_with_their_number():
    cuts = np.array([-1.0, 0.0, 1.0])
    with pm.Model() as model:
        pm.OrderedLogistic("y", eta=pm.Normal("b"), cutpoints=cuts, observed=[1, 2, 4])
    told = "y[2] = 4 lies outside of the support: whole numbers from 0 to k - 1 (k = 4).\n"
    assert told in str(theanoguard.pymc.explain(model))


@needs_pymc
def test_a_start_that_find_map_refuses_is_not_called_sampling():
    with pm.Model(), theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
        pm.LogNormal("y", pm.Normal("mu"), 1.0, observed=[0.3, -0.5])
        pm.find_MAP(progressbar=False)
    text = str(caught.value)
    assert "y[1] = -0.5 lies outside of the support" in text
    assert "\n  at the starting point of PyMC\n" in text
    assert "while sampling" not in text


def test_an_infinite_loss_is_a_rejection_where_pymc_minimizes():
    inf, nan = np.array(np.inf), np.array([np.nan])
    assert spoils_this_run([inf, nan])
    with minimizing():
        assert not spoils_this_run([inf, nan])
        assert spoils_this_run([-inf, nan])
        assert spoils_this_run([np.array(3.0), nan])
        assert spoils_this_run([nan[0], nan])


@needs_pymc
@pytest.mark.parametrize("is_data", [True, False])
def test_an_index_outside_of_a_parameter_is_an_error(is_data):
    county = np.array([1, 3, 2])  # labels that begin at 1
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=3)
        line = inspect.currentframe().f_lineno + 1
        pm.Normal("y", a[pm.Data("county", county) if is_data else county], 1, observed=np.ones(3))
    with theanoguard.pymc.guarding(), model:
        logp = model.logp_dlogp_function()
        logp.set_extra_values({})
        with pytest.raises(
            IndexError, match="index 3 is out of bounds for axis 0 with size 3"
        ) as e:
            logp(pm.blocking.DictToArrayBijection.map(model.initial_point()))
    # (Of operations that Numba fuses, the report may name the line of the parameter.)
    lines = [line] if is_data else [line - 2, line]
    assert any(f"test_pymc.py:{n}" in "".join(e.value.__notes__) for n in lines)


@needs_pymc
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (pt.log, "Give a a prior of positive numbers, such as pm.LogNormal"),
        (pt.sqrt, "Give a a prior of positive numbers, such as pm.LogNormal"),
        (pt.arccos, "Give a a prior that stays between -1 and 1, such as pm.Truncated with"),
    ],
)
def test_no_bound_inside_of_a_log_density_is_proposed(function, told):
    with pm.Model() as model:
        pm.Normal("y", function(pm.Normal("a", initval=-1.5)), 1.0, observed=[0.1, 0.4])
    text = " ".join(str(theanoguard.pymc.explain(model)).split())
    assert told in text
    assert "A bound in a log-density would change the posterior." in text
    assert "maximum(" not in text
    assert "clip(" not in text


LEFT = {
    "log(1.5 - a)": (lambda a: pt.log(1.5 - a), 2.0, (-np.inf, 1.5)),
    "log(-a)": (lambda a: pt.log(-a), 2.0, (-np.inf, 0.0)),
    "log(a + 5)": (lambda a: pt.log(a + 5), -7.0, (-5.0, np.inf)),
    "log(10 - 2 * a)": (lambda a: pt.log(10 - 2 * a), 7.0, (-np.inf, 5.0)),
    "log1p(-a)": (lambda a: pt.log1p(-a), 2.0, (-np.inf, 1.0)),
    "sqrt(1 - a**2)": (lambda a: pt.sqrt(1 - a**2), 2.0, (-1.0, 1.0)),
    "(1 - a)**0.5": (lambda a: (1 - a) ** 0.5, 2.0, (-np.inf, 1.0)),
    "arctanh(a / 4)": (lambda a: pt.arctanh(a / 4), 4.5, (-4.0, 4.0)),
    "arccos(a)": (pt.arccos, -1.5, (-1.0, 1.0)),
    "gammaln(3 - 2 * a)": (lambda a: pt.gammaln(3 - 2 * a), 2.0, (-np.inf, 1.5)),
    "log(a)": (pt.log, -2.0, (0.0, np.inf)),
    "log(b - a)": (lambda a: pt.log(pm.Normal("b", initval=1.0) - a), 3.0, (-np.inf, "b")),
    "log(a - b)": (lambda a: pt.log(a - pm.Normal("b", initval=1.0)), -3.0, (-np.inf, "a")),
    "log(a**2 - 1)": (lambda a: pt.log(a**2 - 1), 0.5, None),
    "log(b * b - a)": (lambda a: pt.log(pm.Normal("b", initval=2.0) ** 2 - a), 7.0, None),
}
"""By formula, the value of a at which it has none, and the numbers for which it has one."""


@needs_pymc
@pytest.mark.parametrize("name", LEFT)
def test_the_prior_that_is_asked_for_lies_in_the_domain(name):
    formula, at, expected = LEFT[name]
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Potential("p", formula(a))
    found = theanoguard.pymc.explain(model, {"a": at}).bad[0].explanation
    text, condition = found.advice.text, found.meaning.condition
    assert "A bound in a log-density would change the posterior." in text
    if expected is None:
        assert condition.range is None
        assert "Give a a prior" not in text
        return
    found = condition.range
    ends = found.low_name or found.low, found.high_name or found.high
    for end, right in zip(ends, expected, strict=True):
        assert end == right if isinstance(right, str) else end == pytest.approx(right, abs=1e-9)
    assert f"Give {condition.leaf} a prior" in text
    kwargs = dict(re.findall(r"(lower|upper)=([-\w.]+?)(?=[ .](?:and|A )|\.$)", text))
    sides = dict(zip(("lower", "upper"), ends, strict=True))
    finite = {side for side, end in sides.items() if isinstance(end, str) or np.isfinite(end)}
    assert kwargs.keys() == (finite if name != "log(a)" else set())


X5 = np.array([-0.7, -0.2, 0.3, 0.8, 1.3])


@needs_pymc
@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (
            lambda a: pm.Beta("y", mu=a * X5, nu=2.0, observed=np.full(5, 0.3)),
            "Give mu a link: mu = pm.math.sigmoid(...).",
        ),
        (
            lambda a: pm.Gamma("y", mu=a * X5, sigma=2.0, observed=np.full(5, 0.3)),
            "Give mu a link: mu = pm.math.exp(...).",
        ),
        (
            lambda a: pm.NegativeBinomial("y", mu=a * X5, alpha=2.0, observed=np.arange(5)),
            "Give mu a link: mu = pm.math.exp(...).",
        ),
        (
            lambda a: pm.Normal("y", 0.0, tau=-a, observed=X5),
            "Give tau a link: tau = pm.math.exp(...).",
        ),
        (
            lambda a: pm.LogNormal("y", 0.0, tau=-a, observed=X5 + 1),
            "Give tau a link: tau = pm.math.exp(...).",
        ),
        # The mean is negative as well, and may be.
        (
            lambda a: pm.Normal("y", a - 2, -a, observed=X5),
            "Give sigma a link: sigma = pm.math.exp(...).",
        ),
    ],
)
def test_the_advice_names_the_parameter_that_the_model_gives(build, advice):
    with pm.Model() as model:
        build(pm.Normal("a", initval=1.0))
    [line] = [x for x in str(theanoguard.pymc.explain(model)).splitlines() if "a link" in x]
    assert line.strip() == advice


@needs_pymc
def test_no_link_is_proposed_for_another_parameter_than_the_one_that_fails():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a", initval=-1.0), -2.0, observed=[1.0])
    [bad] = theanoguard.pymc.explain(model).bad
    assert bad.checks == ("sigma > 0 (it is -2.0)",)
    assert not bad.advice


@needs_pymc
def test_a_sum_that_fails_is_told_and_not_its_difference_from_1():
    with pm.Model() as model:
        a = pm.HalfNormal("a", initval=1.0)
        pm.Categorical("y", pt.stack([a, 0.3, 0.2]), observed=[0, 1, 2])
    assert "sum(p) = 1 (it is 1.5)" in str(theanoguard.pymc.explain(model))


@needs_pymc
def test_the_line_of_a_prior_does_not_stand_for_the_line_of_a_formula():
    with pm.Model() as model:
        a = pm.Normal("a", initval=-1.0)
        pm.Poisson("y", 2 * a, observed=[1, 2])
    text = str(theanoguard.pymc.explain(model))
    assert "mu >= 0 (it is -2.0)" in text
    assert 'pm.Poisson("y", 2 * a' in text
    assert 'pm.Normal("a"' not in text


@needs_pymc
def test_an_empty_domain_is_told():
    with pm.Model() as model:
        pm.Uniform("u", 0, 0)
    text = str(theanoguard.pymc.explain(model))
    assert "the domain of u is empty: lower = 0, upper = 0.\n" in text
    assert "initval" not in text


@needs_pymc
def test_a_column_of_the_data_that_is_nan_throughout_is_named():
    X = np.ones((9, 3))
    X[:, 1] = np.nan
    with pm.Model() as model:
        pm.Normal("y", pt.dot(X, pm.Normal("beta", shape=3)), 1.0, observed=np.zeros(9))
    text = " ".join(str(theanoguard.pymc.explain(model)).split())
    assert "Column 1 of 3 is NaN in every row." in text
    assert "Leave this column out before you build the graph." in text


@needs_pymc
def test_a_gradient_that_pymc_itself_makes_nan_is_told_with_a_reproduction():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1, initval=760.0)
        pm.HurdlePoisson("y", psi=0.5, mu=mu, observed=[0, 800, 3])
    told = str(theanoguard.pymc.explain(model))
    assert (
        "inside pymc.HurdlePoisson: of finite parameters, the gradient by mu is nan at y[1]" in told
    )
    lines = [line.strip() for line in told.splitlines() if line.startswith("      ")]
    assert 0 < len(lines) <= 15
    namespace = {}
    exec("\n".join(lines[:-1]), namespace)
    logp, _, slope = eval(lines[-1].removeprefix("print(").removesuffix(")"), namespace)
    assert np.isfinite(logp)
    assert np.isnan(slope)


@needs_pymc
def test_a_column_against_a_vector_is_named_with_both_lines():
    x = np.linspace(-1, 1, 6)[:, None]
    with pm.Model() as model:
        b = pm.Normal("b")
        mu = b * x
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu, 1.0), np.arange(6.0)).sum())
    [note] = theanoguard.pymc.explain(model).notes
    assert note.startswith("likelihood has 6 x 6 log-densities for 6 data")
    assert "mu has the shape (6, 1)" in note
    with pm.Model() as sound:
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(pm.Normal("b") * x[:, 0], 1.0), x[:, 0]))
        z = pm.Normal("z", shape=6)
        pm.Potential("apart", -pt.sum(pt.exp(-((z[:, None] - z) ** 2))))
    assert theanoguard.pymc.explain(sound).notes == ()


@needs_pymc
def test_a_column_of_data_whose_length_may_change_is_named():
    with pm.Model() as model:
        x, y = pm.Data("x", np.linspace(-1, 1, 6)), pm.Data("y", np.arange(6.0))
        mu = pm.Normal("b") * x[:, None]
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu, 1.0), y).sum())
    [note] = theanoguard.pymc.explain(model).notes
    assert note.startswith("likelihood has 6 x 6 log-densities for 6 data")
    assert "mu has the shape (6, 1)" in note
    with model, pytest.raises(ValueError, match="Size length is incompatible") as caught:
        pm.Normal("z", mu, 1.0, observed=np.arange(6.0))
    [note] = caught.value.__notes__
    assert note.startswith("z: mu has the shape (6, 1), and the data (6,).\n")
    assert "Give mu the shape of the data, by .ravel()." in note


@needs_pymc
def test_explaining_compiles_nothing_for_c(monkeypatch):
    never_compiled = np.random.default_rng().uniform(1.0, 1.1)
    with pm.Model() as model:
        scale = pm.Normal("scale", initval=-0.7271)
        pm.Normal(
            "y", pt.sinh(scale * never_compiled) ** 3, pt.log(scale + 1.2), observed=np.arange(7.0)
        )
    model.initial_point()
    compiled = []
    monkeypatch.setattr(GCC_compiler, "compile_str", lambda *args, **_: compiled.append(args))
    assert "sigma > 0 (it is -" in str(theanoguard.pymc.explain(model))
    assert not compiled


@needs_pymc
def test_what_numpy_cannot_run_is_explained_on_c():
    with pm.Model() as model:
        values = [pm.Normal(f"v{i}", initval=0.1) for i in range(40)]
        total = sum(pt.exp(v) * (i + 1.5) for i, v in enumerate(values))
        pm.Potential("p", pt.log(-total))
    found = theanoguard.pymc.explain(model)
    assert not found.failed
    assert [bad.title for bad in found.bad if bad.by is None] == ["p is nan"]
    assert "NaN in log" in found.bad[0].report


@needs_pymc
def test_zeros_of_positive_data_call_for_a_likelihood_that_allows_them():
    with pm.Model() as model:
        pm.LogNormal("wait", pm.Normal("mu"), 1.0, observed=[0.0, 1.2, 3.4])
    [bad] = theanoguard.pymc.explain(model).bad
    assert "use a likelihood that allows zeros: pm.HurdleLogNormal." in bad.data


@needs_pymc
@pytest.mark.parametrize(
    ("build", "data", "told"),
    [
        (partial(pm_of, "Beta", alpha=2, beta=2), [0.0, 0.4, 1.0], "(y * (n - 1) + 0.5) / n of n"),
        (partial(pm_of, "Kumaraswamy", a=2, b=2), [0.0, 0.4], "move all values inside"),
        (partial(pm_of, "Wald", mu=1, lam=1), [0.0, 0.4], "half of the resolution"),
        (partial(pm_of, "InverseGamma", alpha=1, beta=1), [0.0, 0.4], "half of the resolution"),
        (partial(pm_of, "Beta", alpha=2, beta=2), [0.0, 1.5], ""),
    ],
)
def test_data_at_an_edge_of_the_support_have_advice(build, data, told):
    with pm.Model() as model:
        build("y", observed=data)
    [bad] = theanoguard.pymc.explain(model).bad
    assert told in bad.data
    assert ("If " in bad.data) == bool(told)


@needs_pymc
def test_a_variable_of_any_sign_to_a_fractional_power_gets_a_prior_of_positive_numbers():
    with pm.Model() as model:
        middle, slope = pm.Normal("middle", initval=-1.2), pm.HalfNormal("slope", initval=1.5)
        pm.Normal("y", 1 / (middle**slope + 1), 1.0, observed=[0.1, 0.4])
    told = " ".join(str(theanoguard.pymc.explain(model)).split())
    assert "Give middle a prior of positive numbers, such as pm.LogNormal or pm.Gamma" in told
    assert "An odd root exists" not in told


@needs_pymc
@pytest.mark.parametrize(
    ("mean", "told"),
    [
        (-9.0, "20 of 20 draws from the prior are bad as well: an initval alone does not mend"),
        (9.0, "0 of 20 draws from the prior are bad: the model is sound elsewhere"),
    ],
)
def test_a_start_that_fails_tells_how_often_the_prior_does(mean, told):
    with pm.Model():
        pm.Normal("y", pt.log(pm.Normal("a", mean, initval=-2.5)), 1.0, observed=[0.1, 0.4])
        with theanoguard.pymc.guarding(), pytest.raises(SamplingError) as caught:
            pm.sample(tune=5, draws=5, chains=1, cores=1, progressbar=False, nuts_sampler="pymc")
    assert told in " ".join(str(caught.value).split())


@needs_pymc
def test_a_difference_of_variances_is_not_to_be_corrected_by_the_user():
    with pm.Model() as model:
        total, within = pm.HalfNormal("total", initval=0.5), pm.HalfNormal("within", initval=0.9)
        pm.Normal("y", 0, pt.sqrt(total**2 - within**2), observed=[0.1, 0.4])
    told = " ".join(str(theanoguard.pymc.explain(model)).split())
    assert "within ** 2 = 0.81 is above total ** 2 = 0.25, and must be below." in told
    assert "use priors that keep it so." in told


@needs_pymc
def test_a_parameter_out_of_its_domain_is_not_called_a_fault_of_pymc():
    with pm.Model() as model:
        mu, share = pm.Gamma("mu", 2, 1, initval=760.0), pm.Normal("share", initval=-1.0)
        psi = pt.stack([0.5, share, 0.5])
        pm.HurdlePoisson("y", psi=psi, mu=mu, observed=[0, 800, 3])
    told = str(theanoguard.pymc.explain(model))
    assert "0 <= psi <= 1 (it is -1.0 at element [1], 1 of 3 fail)" in told
    assert "inside pymc" not in told


@needs_pymc
def test_the_condition_that_gives_minus_infinity_is_told():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("order", pt.switch(a > 1, 0.0, -np.inf))
    [bad] = theanoguard.pymc.explain(model).bad
    assert bad.data.startswith("the condition a > 1 does not hold (0.0 against 1)")
    assert "exempt" not in str(bad)


@needs_pymc
@pytest.mark.parametrize("place", ["potential", "density"])
def test_data_that_bound_a_variable(place):
    rt = np.array([0.9, 0.4, 0.7])

    def density(value, shift):
        return pm.logp(pm.LogNormal.dist(-1, 1), value - shift)

    with pm.Model() as model:
        shift = pm.Exponential("shift", 1.0, initval=0.5)
        if place == "potential":
            pm.Potential("y", density(pt.constant(rt), shift).sum())
        else:
            pm.CustomDist("y", shift, logp=density, observed=rt)
    [bad] = theanoguard.pymc.explain(model).bad
    assert "does not hold at element [1] (-0.1 against 0.0)" in bad.data
    assert re.search(r"It asks for .*shift.* below 0\.4, the least of the data", bad.data)


@needs_pymc
def test_a_predictor_far_from_0_is_to_be_centred():
    x = 2000 + 3 * np.array([-1.0, 1.0, -1.0, 1.0])
    with pm.Model() as model:
        b = pm.Normal("b", initval=0.5)
        pm.Poisson("y", pm.math.exp(b * x), observed=[1, 2, 3, 4])
    bad = theanoguard.pymc.explain(model).bad[0]
    assert bad.advice == "x has mean 2,000 and sd 3: centre it, x - x.mean()."


@needs_pymc
def test_a_mixture_names_the_parameter_that_it_is_given():
    with pm.Model() as model:
        psi, mu = pm.Normal("psi", initval=1.3), pm.Gamma("mu", 2, 1)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=[0, 1])
    [bad] = theanoguard.pymc.explain(model).bad
    assert bad.checks[0].startswith("0 <= psi <= 1 (it is 1.3)")
    assert bad.advice == "Give psi a prior in its domain, such as pm.Beta."


@pytest.mark.parametrize(
    "step", ["_start", "_outside", "_missing", "_inside", "_replayed", "_gradient", "_crossed"]
)
def test_a_fault_in_one_step_costs_that_step_only(model, monkeypatch, step):
    def fault(*args):
        raise KeyError("planted")

    monkeypatch.setattr(explaining.Explaining, step, fault)
    found = theanoguard.pymc.explain(model, {"a": [-1.0, 1.0]})
    assert (found.bad[0].term, found.bad[0].event.kind) == ("y", "nan")
    assert all("KeyError: 'planted'" in text for text in found.failed)
    assert "Left out because of a fault in theanoguard: " in str(found)


@needs_pymc
def test_parameters_of_other_shapes_than_the_data_are_no_fault():
    with pm.Model() as model:
        mu = pt.log(pm.Normal("a", shape=3))
        weights = pm.Dirichlet("weights", np.ones(3))
        pm.NormalMixture("y", weights, mu, 1.0, observed=np.arange(5.0))
    found = theanoguard.pymc.explain(model, {"a": [1.0, -1.0, 2.0]})
    assert found.bad[0].term == "y"
    assert found.failed == ()


@needs_pymc
def test_data_that_nothing_multiplies_are_not_to_be_centred():
    with pm.Model() as model:
        p = 2 + pm.Normal("a")
        pm.Binomial("y", np.array([2000, 2001, 2002, 2003]), p, observed=[1, 2, 3, 4])
        b = pm.Normal("b", initval=800.0)
        pm.Potential("likelihood", -pt.exp(b + np.array([2000.0, 2001.0, 2002.0, 2003.0])))
    assert "centre it" not in str(theanoguard.pymc.explain(model))


@needs_pymc
def test_a_parameter_that_no_tensor_holds_costs_no_model():
    class Labelled(pm.Normal):
        rv_op = pm.Normal.rv_op

        @classmethod
        def dist(cls, labels, **kwargs):
            return super().dist(mu=len(labels), **kwargs)

    with pm.Model() as model:
        Labelled("x", labels=np.array(["a", None], dtype=object))
    assert np.isfinite(model.compile_logp()({"x": 2.0}))


@needs_pymc
def test_a_term_beyond_float64_is_named_and_its_predictor_is_to_be_scaled():
    year = np.arange(1990.0, 2020.0)
    with pm.Model() as model:
        trend = pm.math.exp(pm.Normal("a") + pm.Normal("b", initval=0.5) * year)
        pm.Poisson("y", trend, observed=np.arange(30))
    text = " ".join(str(theanoguard.pymc.explain(model)).split())
    told = "In exact arithmetic element [0] of the log-density of y is -1.32742e+432, less than"
    assert f"{told} the lowest number of float64 (-1.7977e+308)." in text
    assert "year has mean 2,004 and sd 8.66: centre it, year - year.mean()." in text
    assert "Scale the predictors, or give their coefficients narrower priors." in text
    assert not re.search(r"output \d", text)


@needs_pymc
def test_each_gradient_is_explained_by_the_operations_of_its_own_term():
    """The prior's own gradient is 0 / 0 where a logit is above 36.7, the likelihood's another."""
    with pm.Model() as model:
        parts = pm.Beta("parts", 1, 2.5, shape=2)
        pm.Potential("y", pt.log(pt.cumprod(1 - parts) + 1e-30).sum())
    found = theanoguard.pymc.explain(model, {"parts_logodds__": [0.5, 37.5]})
    [bad] = [b for b in found.bad if b.term == "parts"]
    assert "of the gradient of parts by parts_logodds__ is " in " ".join(bad.report.split())
    assert "cumprod" not in bad.report


@needs_pymc
def test_a_link_that_underflows_is_not_proposed_again():
    with pm.Model() as model:
        scale = pm.math.exp(pm.Normal("b", initval=-15.0) * np.linspace(30.0, 90.0, 4))
        pm.Weibull("y", alpha=pm.HalfNormal("alpha"), beta=scale, observed=np.arange(1.0, 5.0))
    [bad] = theanoguard.pymc.explain(model).bad[:1]
    assert bad.checks[0].startswith("beta > 0 (it is 0.0 at element [1], 3 of 4 fail)")
    assert bad.advice.startswith("Give what beta is computed from narrower priors")


@needs_pymc
def test_of_several_conditions_the_one_that_fails_is_told():
    with pm.Model() as model:
        pm.Multinomial("y", n=10, p=pm.Beta("w", 1, 1, shape=3), observed=[3, 3, 4])
    [bad] = theanoguard.pymc.explain(model).bad
    assert bad.checks[0].splitlines()[0] == "sum(p) = 1 (it is 1.5)"
    assert str(bad).count("pm.Beta(") == 1


@needs_pymc
@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ((0, 4), "Give upper a prior that stays above the largest observed value, 9.0, such as"),
        ((4, 12), "Give lower a prior that stays below the smallest observed value, 1.0, such as"),
    ],
)
def test_a_sampled_bound_of_the_data_is_to_stay_outside_of_them(bounds, told):
    with pm.Model() as model:
        sampled = pm.Normal("bound", initval=4.0)
        lower, upper = (sampled if bound == 4 else bound for bound in bounds)
        pm.Uniform("y", lower, upper, observed=[1.0, 9.0])
    [bad] = [b for b in theanoguard.pymc.explain(model).bad if b.by is None]
    assert told in bad.data


@needs_pymc
def test_data_in_a_column_are_named_where_pymc_cannot_build_the_log_density():
    with pm.Model() as model:
        mean = pm.Normal("a") + pm.Normal("b") * np.linspace(-1, 1, 6)
        pm.Normal("y", mean, 1.0, observed=np.ones((6, 1)))
    [bad] = theanoguard.pymc.explain(model).bad
    assert bad.term == "y"
    assert bad.data == (
        "y: mu has the shape (6,), and the data (6, 1).\n"
        "  Give the data the shape of mu, by .ravel()."
    )
    with model, pytest.raises(ValueError, match="incompatible") as caught:
        pm.sample(draws=1, tune=1, chains=1, nuts_sampler="pymc", progressbar=False)
    assert bad.data in caught.value.__notes__


@needs_pymc
def test_a_term_that_can_be_built_is_not_blamed_for_the_error_of_another_one():
    """Parameters of a categorical or multivariate variable have more dimensions than its data."""

    def logp(value, mu):
        raise ValueError("my own")

    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3), shape=(5, 3))
        pm.Categorical("kind", shares, observed=np.zeros(5, int))
        pm.MvNormal("z", np.zeros(2), cov=np.eye(2) * pm.HalfNormal("s"), observed=np.zeros(2))
        pm.CustomDist("y", pm.Normal("mu"), logp=logp, observed=np.zeros(5))
    [bad] = theanoguard.pymc.explain(model).bad
    assert (bad.term, bad.error) == ("y", "ValueError: my own")
    with theanoguard.guarding(), pytest.raises(ValueError, match="my own") as caught:
        model.logp()
    assert not getattr(caught.value, "__notes__", [])


@needs_pymc
def test_a_gradient_that_numpy_alone_makes_nan_is_explained_as_c_computes_it():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1, initval=735.0)
        pm.HurdlePoisson("y", psi=0.5, mu=mu, observed=[0, 800, 3])
    found = theanoguard.pymc.explain(model)
    assert found.ok
    assert np.isfinite(found.gradient["mu_log__"])
    [note] = found.notes
    assert note.startswith("NumPy alone: inside pymc.HurdlePoisson: of finite parameters, the grad")
    assert note in str(found)
