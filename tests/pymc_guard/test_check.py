"""``theanoguard.pymc.check``: faulty models with their cause, and silence on sound ones."""

import importlib.util
import json

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import broken
import healthy
import pymc as pm
import textbook

from theanoguard._pytest import CheckPlugin
from theanoguard.cli.main import main
from theanoguard.pymc.built import BuiltModels

X = np.linspace(-1, 1, 20)
W = np.eye(6, k=1) + np.eye(6, k=-1)


class WrongSign(Op):
    """The square, with a derivative of the wrong sign."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] ** 2)

    def grad(self, inputs, gradients):
        return [-2 * inputs[0] * gradients[0]]

    def pullback(self, inputs, outputs, gradients):
        return self.grad(inputs, gradients)


def scale_of_any_sign():
    pm.Normal("y", 0, sigma=pm.Normal("s", 1, 1), observed=X)


def shape_of_any_sign():
    pm.Gamma("y", alpha=pm.Normal("alpha", 2, 2), beta=1, observed=X + 2)


def concentration_of_any_sign():
    pm.VonMises("y", 0, kappa=pm.Normal("kappa", 1, 1), observed=X)


def index_out_of_bounds():
    group = pm.DiscreteUniform("group", 0, 5)
    pm.Normal("y", pt.as_tensor(X[:3])[group], 1, observed=0.5)


def infinite_data():
    pm.Normal("y", 0, 1, observed=np.append(X, np.inf))


def percent():
    pm.Beta("y", 2, pm.HalfNormal("b", 2), observed=[10.0, 25.0, 60.0])


def geometric_from_0():
    pm.Geometric("y", pm.Beta("p", 2, 2), observed=[0, 1, 4, 2])


def counts_with_fractions():
    pm.Poisson("y", pm.HalfNormal("rate", 2), observed=[2.5, 1, 3, 4, 5, 6.1])


def code_for_missing():
    pm.Normal("y", pm.Normal("m"), 1, observed=[2.5, 1, 3, 4, 5, 6.1, -99])


def index_of_nan():
    group = np.array([0, 1, -(2**63), 1, 0])
    pm.Normal("y", pm.Normal("m", shape=2)[group], 1, observed=np.arange(5.0))


def far_from_0():
    years = np.arange(2000.0, 2020.0)
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * years, 1, observed=X)


def year_and_its_square():
    years = np.arange(2000.0, 2020.0) - 1990
    columns = np.column_stack([years + 300, (years + 300) ** 2])
    pm.Normal("y", pt.dot(columns, pm.Normal("b", shape=2)), 1, observed=X)


def wrong_gradient():
    pm.Normal("y", WrongSign()(pm.Normal("a", 3, 1)), 1, observed=X)


def branch_without_gradient():
    power, y = pm.Normal("power"), np.exp(X + 1)
    is_0 = pt.eq(power, 0)
    moved = pt.switch(is_0, pt.log(y), (y**power - 1) / pt.switch(is_0, 1, power))
    pm.Potential("q", -(moved**2).sum())


def free_intercepts():
    pm.Categorical("y", logit_p=pm.Flat("a", shape=3), observed=[0, 1, 2, 1, 0])


FAULTY = {
    scale_of_any_sign: ("prior", "y", "sigma > 0"),
    shape_of_any_sign: ("prior", "y", "alpha > 0"),
    concentration_of_any_sign: ("prior", "y", "kappa > 0"),
    index_out_of_bounds: ("prior", "y", "IndexError"),
    infinite_data: ("start", "y", "observed y[20] = inf"),
    percent: ("start", "y", "Give y / 100 as data"),
    geometric_from_0: ("start", "y", "whole numbers of at least 1"),
    counts_with_fractions: ("data", "y", "y[0] is 2.5 in your data and 2.0 in the model"),
    code_for_missing: ("data", "y", "y[6] is -99.0"),
    index_of_nan: ("data", "an array", "a NaN that was cast to an integer"),
    far_from_0: ("data", "y", "is 2009.5 times the one of a"),
    year_and_its_square: ("data", "y", "hardly tell them apart"),
    wrong_gradient: ("gradient", "y", "Check the gradient of WrongSign"),
    branch_without_gradient: ("gradient", "q", "the branch that"),
    free_intercepts: ("propriety", "a", "does not fall"),
}


def built(make):
    with pm.Model() as model:
        make()
    return model


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_fault_is_found_at_its_line(make):
    part, term, words = FAULTY[make]
    found = theanoguard.pymc.check(built(make), seconds=0)
    assert not found.failed
    [finding] = [f for f in found.findings if f.part == part and words in str(f)]
    assert finding.term == term
    if finding.source is not None:
        assert finding.source.function == make.__name__
    [plain] = [one for one in json.loads(found.to_json())["findings"] if words in one["text"]]
    assert plain["part"] == part and plain["term"] == term


def test_share_of_draws_is_that_of_the_prior():
    found = theanoguard.pymc.check(built(scale_of_any_sign), draws=400, seconds=0)
    [finding] = found.findings
    assert finding.share == pytest.approx(0.159, abs=0.06)  # of Normal(1, 1), below 0
    assert float(finding.point["s"]) <= 0


def rate_of_any_sign():
    rate = pm.Normal("a", 0.5, 1) + pm.Normal("b", 0, 1) * X
    pm.Poisson("y", rate, observed=np.arange(20) % 3)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (scale_of_any_sign, "With pm.HalfNormal for s, 50 of 50 draws from the prior are finite."),
        (rate_of_any_sign, "With pm.math.exp for mu, 50 of 50 draws from the prior are finite."),
    ],
)
def test_remedy_is_tried_at_draws_from_the_prior(make, remedy):
    found = theanoguard.pymc.check(built(make), draws=50, seconds=0)
    assert not found.failed
    [finding] = found.findings
    assert remedy in str(finding).splitlines()[-1]


def conditional_autoregression():
    phi = pm.CAR("phi", mu=np.zeros(6), tau=1.0, alpha=0.9, W=W)
    pm.Poisson("y", pm.math.exp(1 + phi), observed=[1, 3, 2, 5, 4, 6])


def intrinsic_autoregression():
    phi = pm.ICAR("phi", W=W)
    rate = pm.math.exp(pm.Normal("a") + phi)
    pm.Poisson("y", rate, observed=[1, 3, 2, 5, 4, 6])


def flat_with_data():
    mean, scale = pm.Flat("mean"), pm.HalfFlat("scale")
    pm.Normal("y", mean, scale, observed=[1.0, 2.0, 4.0])


def kink_at_the_start():
    pm.Normal("y", pt.maximum(pm.Normal("a"), 0), 1, observed=X)


WITHOUT_DRAWS = [conditional_autoregression, intrinsic_autoregression, flat_with_data]


def whole_numbers_but_for_rounding():
    pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=np.array([0.1 + 0.2, 0.6, 0.9, 1.2, 3]) / 0.3)


def composition_of_four_decimals():
    rows = np.array([[0.3333, 0.3333, 0.3333], [0.25, 0.5, 0.25]])
    pm.Dirichlet("y", pm.Gamma("a", 2, 1, shape=3), observed=rows)


def minibatch_with_a_scale_of_any_sign():
    rows = pm.Minibatch(np.tile(X, 5), batch_size=10)
    pm.Normal("y", 0, pm.Normal("s", 1, 1), observed=rows, total_size=100)


def minibatch():
    rows = pm.Minibatch(np.tile(X, 5), batch_size=10)
    pm.Normal("y", pm.Normal("mean"), 1, observed=rows, total_size=100)


ROUNDED = [whole_numbers_but_for_rounding, composition_of_four_decimals]
SOUND_KINDS = [*WITHOUT_DRAWS, *ROUNDED, kink_at_the_start, minibatch]


@pytest.mark.parametrize("make", SOUND_KINDS)
def test_sound_model_without_draws_or_with_a_kink_or_rounded(make):
    assert theanoguard.pymc.check(built(make), seconds=0).ok


class WithoutGradient(WrongSign):
    """The square, without a derivative."""

    def grad(self, inputs, gradients):
        raise NotImplementedError("no derivative")


def test_log_density_without_a_gradient_is_no_fault():
    with pm.Model() as model:
        pm.Normal("y", WithoutGradient()(pm.Normal("a")), 1, observed=X)
    found = theanoguard.pymc.check(model, seconds=0.05)
    assert found.ok, str(found)
    assert "the gradient (there is none: NotImplementedError: no derivative)" in found.looked
    explained = theanoguard.pymc.explain(model)
    assert "it is finite" in str(explained) and "which NUTS needs" in str(explained)


def test_density_that_cannot_be_built_is_told_with_its_own_line():
    def logp(value, mean):
        raise KeyError("mean")

    with pm.Model() as model:
        pm.Normal("other")
        pm.CustomDist("y", pm.Normal("mean"), logp=logp, observed=X)
    found = theanoguard.pymc.check(model, seconds=0)
    [finding] = found.findings
    assert not found.failed and finding.term == "y" and "KeyError: 'mean'" in str(finding)


def test_missing_count_without_draws_keeps_its_start():
    y = np.ma.masked_array(np.arange(20) % 3, mask=np.arange(20) == 4)
    with pm.Model() as model, pytest.warns(match="missing values"):
        pm.Poisson("y", pm.Normal("a", 0.5, 1), observed=y)
    found = theanoguard.pymc.check(model, seconds=0)
    assert not found.failed
    assert {finding.term for finding in found.findings} == {"y_observed", "y_unobserved"}


@pytest.mark.parametrize("make", [minibatch, minibatch_with_a_scale_of_any_sign])
def test_generators_of_the_model_stay_as_they_are(make):
    model = built(make)
    generators = [v for v in graph_inputs(model.basic_RVs) if isinstance(v.type, RandomType)]
    kept = [v.get_value(borrow=True) for v in generators]
    states = [str(one.bit_generator.state) for one in kept]
    assert not theanoguard.pymc.check(model, draws=20, seconds=0.05).failed
    assert len(kept) >= 2
    for variable, one, state in zip(generators, kept, states, strict=True):
        assert variable.get_value(borrow=True) is one
        assert str(one.bit_generator.state) == state


def logarithm_of_any_sign():
    pm.Potential("q", pt.log(pm.Normal("a", 0.5, 1)))


def test_unknown_distribution_is_not_asked_of_pymc(monkeypatch):
    """PyMC looks for an unknown name in libraries that it imports."""
    asked = []
    monkeypatch.setattr(pm, "__getattr__", asked.append)
    found = theanoguard.pymc.check(built(logarithm_of_any_sign), draws=20, seconds=0)
    assert [finding.term for finding in found.findings] == ["q"]
    assert asked == []


def test_design_of_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            mean = pm.Normal("a") + pm.Normal("b") * X.astype("float32")
            pm.Normal("y", mean, pm.HalfNormal("s"), observed=X.astype("float32"))
        found = theanoguard.pymc.check(model, seconds=0)
    assert found.ok, str(found)


def test_directions_are_told_as_t_grows():
    def shift_and_logarithm():
        shift, size = pm.Flat("shift"), pm.HalfFlat("size")
        pm.Normal("y", shift + pt.log(size), 1, observed=X)

    [finding] = theanoguard.pymc.check(built(shift_and_logarithm), seconds=0).findings
    assert finding.detail.moves == ("shift - log(t)", "size * t")
    assert finding.detail.to == pytest.approx(np.exp(40))


def test_name_of_a_tried_prior_is_free():
    with pm.Model() as model:
        pm.Normal("s_new")
        scale_of_any_sign()
    found = theanoguard.pymc.check(model, draws=50, seconds=0)
    assert not found.failed
    assert "50 of 50 draws from the prior are finite" in str(found)


def test_point_that_is_not_finite_is_strict_json():
    found = theanoguard.pymc.check(built(broken.start_outside_of_the_domain), draws=0, seconds=0)
    [plain, *_] = json.loads(found.to_json(), parse_constant=pytest.fail)["findings"]
    assert plain["point"] == {"a_log__": {"float": "nan"}}


@pytest.mark.parametrize("make", WITHOUT_DRAWS)
def test_lint_and_prior_draws_of_a_prior_without_draws(make):
    model = built(make)
    assert theanoguard.pymc.lint(model, seconds=0.3, draws=10) == []
    assert theanoguard.pymc.explain(model, prior_draws=5).ok


FAST = (
    broken.scale_of_a_later_prior,
    broken.cutpoints_in_any_order,
    broken.composition_of_99_percent,
    broken.groups_from_1,
    broken.separated_outcomes,
    broken.column_against_row,
    broken.gradient_twice_as_large,
    broken.size_and_loading,
    broken.intercept_and_all_groups,
)
OTHERS = [pytest.param(one, marks=pytest.mark.slow) for one in broken.MODELS if one not in FAST]


@pytest.mark.parametrize("make", [*FAST, *OTHERS], ids=lambda make: make.__name__)
def test_fault_has_its_part_term_line_and_remedy(make):
    truth = broken.MODELS[make]
    found = theanoguard.pymc.check(built(make), seconds=0.2 if "search" in truth.parts else 0)
    assert not found.failed
    right = [f for f in found.findings if f.part in truth.parts and f.term == truth.term]
    [finding] = [f for f in right if all(word in str(f) for word in truth.words)]
    assert finding.source is None or finding.source.function == make.__name__


QUICK = (
    *("gravity_centred_in_the_graph", "schools_with_a_flat_scale", "old_ages_with_real_nines"),
    *("smokers_separated_in_one_group", "exponential_survival"),
)
REST = [pytest.param(n, marks=pytest.mark.slow) for n in textbook.MODELS if n not in QUICK]


@pytest.mark.parametrize("name", [*QUICK, *REST])
def test_sound_model_of_a_textbook_has_no_finding(name):
    found = theanoguard.pymc.check(textbook.MODELS[name](), seconds=0 if name in QUICK else 0.3)
    assert found.ok, str(found)


def test_gradient_of_a_term_that_is_bad_is_not_told_again():
    found = theanoguard.pymc.check(built(broken.cutpoints_in_any_order), draws=0, seconds=0)
    [finding] = found.findings
    assert finding.detail.by is None


PROGRAM = """
import pymc as pm

with pm.Model() as model:
    pm.Normal("y", 0, sigma=pm.Normal("s", 1, 1), observed=[0.1, 2.0, 1.0])
    pm.sample()
raise SystemExit("sampled")
"""


def test_command_checks_the_models_of_a_program_up_to_where_it_samples(tmp_path, capsys):
    path = tmp_path / "model.py"
    path.write_text(PROGRAM)
    assert main(["check", "--json", "--seconds", "0.01", str(path)]) == 1
    out, err = capsys.readouterr()
    [model] = json.loads(out)
    [finding] = model["findings"]
    assert finding["line"].startswith(f"{path}:5") and "sigma > 0" in finding["text"]
    assert f"stopped at {path}:6, where a model is sampled" in err
    path.write_text("print(1)")
    assert main(["check", str(path)]) == 2
    assert "has built no PyMC model" in capsys.readouterr().err


def test_test_with_a_faulty_model_fails():
    models = BuiltModels(stops=False)
    plugin = CheckPlugin(models)
    stop = models.start()
    try:
        for make, is_sound in ((infinite_data, False), (flat_with_data, True)):
            call = plugin.pytest_runtest_call(None)
            next(call)
            model = built(make)
            with model:
                pass  # (a model is checked once)
            if is_sound:
                with pytest.raises(StopIteration):
                    call.send("result")
            else:
                with pytest.raises(pytest.fail.Exception, match=r"observed y\[20\] = inf"):
                    call.send("result")
    finally:
        stop()
    assert plugin.checked == 2


def test_test_that_fails_by_itself_leaves_no_model_to_the_next_one():
    models = BuiltModels(stops=False)
    plugin = CheckPlugin(models)
    stop = models.start()
    try:
        for make, ends in ((infinite_data, ZeroDivisionError), (scale_of_any_sign, None)):
            call = plugin.pytest_runtest_call(None)
            next(call)
            built(make)
            with pytest.raises(ends or pytest.fail.Exception):
                call.throw(ends) if ends else call.send("result")
            plugin.pytest_runtest_logfinish()
            assert models.taken() == []
    finally:
        stop()


@pytest.mark.parametrize("make", [scale_of_any_sign, shape_of_any_sign, infinite_data])
def test_lint_of_a_model_whose_parameter_check_fails(make):
    theanoguard.pymc.lint(built(make), seconds=0.3)  # does not raise


SOUND = ["gumbel", "student_t", "censored", "gaussian_process", "correlated", "stick_breaking"]


@pytest.mark.parametrize("name", SOUND)
def test_sound_model_has_no_finding(name):
    found = theanoguard.pymc.check(healthy.MODELS[name](), draws=50, seconds=0.5)
    assert found.ok, str(found)


def test_arguments():
    model = built(flat_with_data)
    with pytest.raises(ValueError, match="draws must not be negative"):
        theanoguard.pymc.check(model, draws=-1)
    with pytest.raises(TypeError, match=r"model must be a pymc.Model"):
        theanoguard.pymc.check(3)
