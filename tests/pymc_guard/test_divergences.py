"""What divergences have in common, on traces that are made by hand and with real samplers."""

import importlib.util
import re

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc
from theanoguard.pymc import divergences
from theanoguard.pymc.geometry import Comparison
from theanoguard.pymc.scales import Mixing, non_centred, same_density, scales_of

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import diverging
import pymc as pm
import xarray

has_nutpie = importlib.util.find_spec("nutpie") is not None
NUTPIE = pytest.param(
    "nutpie", marks=pytest.mark.skipif(not has_nutpie, reason="nutpie is not installed")
)

RNG = np.random.default_rng(0)


def trace(diverged, warmup=None, ends=None, **draws):
    """A trace of one chain; `ends` are the points where its trajectories broke."""

    def group(diverged, draws):
        dims = {
            name: ("chain", "draw", f"of_{name}")[: np.ndim(v) + 1] for name, v in draws.items()
        }
        made = {name: (dims[name], np.asarray(v)[None]) for name, v in draws.items()}
        stats = {"diverging": (("chain", "draw"), np.asarray(diverged)[None])}
        return xarray.Dataset(made), xarray.Dataset(stats)

    groups = dict(zip(("posterior", "sample_stats"), group(diverged, draws), strict=True))
    for name, points in (ends or {}).items():
        groups["sample_stats"][f"divergence_{name}"] = (("chain", "draw", "vector"), points[None])
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
    found = theanoguard.pymc.explain_divergences(
        trace(last(60, 4), tau=tau, theta=theta), funnel, check=False
    )
    assert (found.n_draws, found.n_divergent) == (60, 4)
    [group] = found.groups
    assert group.cause == "funnel"
    assert group.title.startswith("a funnel: tau, the scale of theta, is 0.01 where trajectories")
    line = "theta = tau * pm.Normal('theta_raw', 0, 1, shape=3)"
    assert group.advice == f"Write it non-centred: {line}"
    assert group.draws[0] == ("posterior", 0, 56)
    np.testing.assert_allclose(group.point["tau_log__"], np.log(0.01))
    assert str(found).startswith("4 of 60 draws diverged.\n\n4: a funnel: tau")


def test_a_funnel_is_seen_where_trajectories_were_flung_out_of_it(funnel):
    """The last sound points lie on both sides of the usual ones, the draws in the neck."""
    diverged = last(60, 8)
    tau = np.where(diverged, 0.05, RNG.uniform(2, 6, size=60))
    theta = RNG.normal(size=(60, 3)) * tau[:, None]
    start = np.full((60, 4), np.nan)
    start[diverged] = RNG.normal(size=(8, 4)) * [2, 5, 5, 5] + [1, 0, 0, 0]
    drawn = trace(diverged, ends={"start": start}, tau=tau, theta=theta)
    [group] = theanoguard.pymc.explain_divergences(drawn, funnel, check=False).groups
    assert group.cause == "funnel"
    assert "is 0.05 where trajectories break" in group.title


def centred(error):
    """A centred prior, and observations with this error."""
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", 0, tau, shape=3)
        pm.Normal("y", theta, error, observed=[20.0, 8.0, -3.0])
    return model


def few_of_small_scale(n_broken):
    """200 draws; those with the smallest scale have diverged."""
    rng = np.random.default_rng(1)
    tau = np.exp(rng.uniform(-2, 2, size=200))
    tau[-n_broken:] = 0.1
    theta = rng.normal(size=(200, 3)) * tau[:, None]
    return trace(last(200, n_broken), tau=tau, theta=theta)


def test_a_funnel_is_seen_with_two_broken_trajectories_if_its_neck_is_narrow():
    """Data without an error make what is scaled as stiff at any scale: that is no funnel."""
    drawn = few_of_small_scale(2)
    [group] = theanoguard.pymc.explain_divergences(drawn, centred(10.0), check=False).groups
    assert group.cause == "funnel"
    [group] = theanoguard.pymc.explain_divergences(drawn, centred(0.01), check=False).groups
    assert group.cause == "unknown"


def test_separated_outcomes_are_the_cause_where_no_other_draw_tells():
    with pm.Model() as model:
        logit = pm.Normal("a", 0, 100) + pm.Normal("b", 0, 100) * np.arange(-5.0, 5.0)
        pm.Bernoulli("y", logit_p=logit, observed=np.arange(-5, 5) > 0)
    drawn = trace(last(200, 2), a=RNG.normal(size=200), b=RNG.normal(size=200))
    [group] = theanoguard.pymc.explain_divergences(drawn, model).groups
    assert group.cause == "unknown"
    assert "the predictor of a and b separates the outcomes" in group.advice
    assert "narrower prior" not in group.advice


def test_a_form_that_no_short_run_can_judge_is_told_as_one_to_try():
    [group] = theanoguard.pymc.explain_divergences(few_of_small_scale(1), centred(10.0)).groups
    assert group.cause == "unknown"
    first, second = group.advice.splitlines()
    assert first == "Raise target_accept, and see whether they vanish."
    assert second.startswith(
        "  If they stay, try the non-centred form of theta, whose scale tau is"
    )


@pytest.mark.parametrize(("n_new", "cause"), [(0, "funnel"), (8, "unknown")])
def test_a_form_is_tried_in_a_run_that_is_long_enough_to_judge_it(n_new, cause, monkeypatch):
    asked = []

    def short_run(model, draws):
        asked.append(draws)
        return Mixing(n_new, draws)

    monkeypatch.setattr(divergences, "short_run", short_run)
    rng = np.random.default_rng(2)
    tau = np.exp(rng.uniform(-2, 2, size=200))
    drawn = trace(last(200, 5), tau=tau, theta=rng.normal(size=(200, 3)) * tau[:, None])
    [group] = theanoguard.pymc.explain_divergences(drawn, centred(10.0)).groups
    assert group.cause == cause
    [draws] = asked
    assert (200 / (200 + draws)) ** 5 <= 1e-2 < (200 / (199 + draws)) ** 5


def test_if_one_form_is_no_better_all_of_them_are_tried(monkeypatch):
    with pm.Model() as model:
        tau, within = pm.HalfNormal("tau", initval=0.5), pm.HalfNormal("within")
        schools = pm.Normal("schools", 0, tau, shape=3, initval=np.zeros(3))
        classes = pm.Normal("classes", schools, within, shape=3)
        pm.Normal("y", classes, 10.0, observed=[20.0, 8.0, -3.0])

    def short_run(model, draws):
        n_new = 0 if {"schools_raw", "classes_raw"} <= set(model.named_vars) else 40
        return Mixing(n_new, 600, 59.0, 1.05)

    monkeypatch.setattr(divergences, "short_run", short_run)
    rng = np.random.default_rng(2)
    tau = np.where(last(200, 9), 0.01, np.exp(rng.uniform(-2, 2, size=200)))
    drawn = {"tau": tau, "within": np.exp(rng.uniform(-2, 2, size=200))}
    drawn["schools"] = drawn["classes"] = rng.normal(size=(200, 3)) * tau[:, None]
    [group] = theanoguard.pymc.explain_divergences(trace(last(200, 9), **drawn), model).groups
    assert group.advice.splitlines() == [
        "Write all of them non-centred: schools = tau * pm.Normal('schools_raw', 0, 1, shape=3)",
        "    classes = schools + within * pm.Normal('classes_raw', 0, 1, shape=3)",
        "  It has the same density up to the Jacobian; in a short run of it, 0 of 600 draws "
        "diverge, with an ESS of 59 and an r-hat of 1.05; before, 9 of 200 draws diverge.",
        "  Its chains move slowly all the same: take more draws, and do not trust them while r-hat "
        "is above 1.01.",
    ]


def test_a_funnel_of_one_group_among_others_is_named():
    item = np.repeat(np.arange(3), 4)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1, shape=3)
        effects = pm.Normal("effects", 0, sd[item], shape=12)
        pm.Normal("y", effects, 1.0, observed=np.zeros(12))
    rng = np.random.default_rng(5)
    sd = np.exp(rng.normal(0, 1, size=(200, 3)))
    sd[-9:, 1] = 0.01
    drawn = trace(last(200, 9), sd=sd, effects=rng.normal(size=(200, 12)) * sd[:, item])
    [group] = theanoguard.pymc.explain_divergences(drawn, model, check=False).groups
    assert group.title.startswith(
        "a funnel: sd[item], the scale of effects, in its element 4, is 0.01 where trajectories"
    )
    assert group.advice.endswith("effects = sd[item] * pm.Normal('effects_raw', 0, 1, shape=12)")


@pytest.mark.parametrize(("n_broken", "cause"), [(40, "tails"), (5, "unknown")])
def test_heavy_tails_are_told_where_trajectories_break_often_and_anywhere(n_broken, cause):
    """Slopes of data that a plane separates, with Cauchy priors."""
    x = np.arange(-3.0, 4.0)
    with pm.Model() as model:
        slope = pm.Cauchy("slope", 0, 50)
        pm.Bernoulli("y", logit_p=slope * x, observed=(x > 0).astype(int))
    slopes = np.abs(np.random.default_rng(3).standard_cauchy(size=200)) * 50
    drawn = trace(last(200, n_broken), slope=slopes)
    [group] = theanoguard.pymc.explain_divergences(drawn, model, check=False).groups
    assert group.cause == cause


@pytest.mark.parametrize(("size", "is_bound"), [(0.9, False), (0.05, True)])
def test_a_variable_near_its_bound_is_much_nearer_than_usual(size, is_bound):
    with pm.Model() as model:
        pm.Normal("y", pm.HalfNormal("height"), 0.1, observed=[2.8, 2.9])
    rng, broken = np.random.default_rng(4), last(200, 30)
    height = 2.8 * np.exp(rng.normal(0, 0.03, size=200)) * np.where(broken, size, 1)
    drawn = trace(broken, height=height)
    [group] = theanoguard.pymc.explain_divergences(drawn, model, check=False).groups
    assert (group.cause == "boundary") == is_bound


def test_a_fault_in_one_look_costs_that_look_only(funnel, monkeypatch):
    def fault(self):
        raise KeyError("planted")

    tau = np.where(last(60, 9), 0.01, RNG.uniform(2, 6, size=60))
    theta = RNG.normal(size=(60, 3)) * tau[:, None]
    monkeypatch.setattr(Comparison, "funnel", fault)
    found = theanoguard.pymc.explain_divergences(
        trace(last(60, 9), tau=tau, theta=theta), funnel, check=False
    )
    assert found.groups[0].cause == "boundary"
    [failed] = found.failed
    assert "KeyError: 'planted'" in failed
    assert "Left out because of a fault in theanoguard" in str(found)


def test_of_a_run_that_diverges_much_the_prior_is_looked_at():
    with pm.Model() as model:
        sigma = pm.Normal("sigma", 0, 1, initval=1.0)
        pm.Normal("y", 0, sigma, observed=[1.0, 2.0])
    drawn = trace(last(40, 8), sigma=RNG.uniform(1, 3, size=40))
    found = theanoguard.pymc.explain_divergences(drawn, model)
    assert "y breaks sigma > 0 (it is -" in found.prior
    assert found.prior in str(found)
    seldom = trace(last(40, 3), sigma=RNG.uniform(1, 3, size=40))
    assert theanoguard.pymc.explain_divergences(seldom, model).prior == ""


def test_a_scale_that_the_posterior_draws_into_0_is_told():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=[1.0, 1.0, 1.0])
    sigma = np.exp(RNG.normal(-17, 1, size=60))
    drawn = trace(last(60, 6), mu=1 + sigma, sigma=sigma)
    [group] = theanoguard.pymc.explain_divergences(drawn, model, check=False).groups
    assert group.cause == "boundary"
    assert group.title.startswith("sigma goes to 0, where the density grows without a bound: ")


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
    assert "times as much as usual, mostly along x." in stiff.title
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


def sampled(model, sampler="pymc", seed=0, draws=300, **more):
    """A trace of a model, sampled in a block of guarding()."""
    with model, theanoguard.pymc.guarding():
        return pm.sample(
            draws=draws,
            tune=300,
            chains=2,
            cores=1,
            random_seed=seed,
            nuts_sampler=sampler,
            progressbar=False,
            compute_convergence_checks=False,
            quiet=True,
            **more,
        )


@pytest.mark.parametrize("sampler", ["pymc", NUTPIE])
def test_a_guarded_run_keeps_the_points_where_trajectories_broke(sampler):
    """The wall is met one step after the last sound point; variables stand in their order."""
    with pm.Model() as model:
        pm.Normal("before")
        a = pm.Normal("a", 0, 1, initval=[1.0, 1.0], shape=2)
        pm.Normal("after")
        pm.Potential("wall", pt.switch(pt.all(a > 0), 0.0, -np.inf))
    with pytest.warns(UserWarning, match="ended where wall is -inf"):
        drawn = sampled(model, sampler, draws=100)
    stats = drawn.sample_stats
    diverged = stats["diverging"].values
    start, end = (stats[f"divergence_{which}"].values[diverged] for which in ("start", "end"))
    assert start.shape == (int(diverged.sum()), 4)
    assert (start[:, 1:3] > 0).all()
    assert (end[:, 1:3] < 0).any(axis=1).all()
    assert stats["divergence_end"].dtype == float  # (a file cannot hold PyMC's warnings)
    assert "warning" not in stats
    [group] = theanoguard.pymc.explain_divergences(drawn, model).groups
    assert group.cause == "wall"
    assert group.title.startswith("a wall: one step further, wall is -inf: the condition ")


def test_of_a_run_without_a_guard_the_points_are_read_that_pymc_has_kept():
    """PyMC keeps 99 of each chain.  Of the others it is not known where they broke."""
    model = diverging.MODELS["wall_of_a_potential"]()
    with model:
        drawn = pm.sample(
            draws=200,
            tune=100,
            chains=1,
            random_seed=0,
            nuts_sampler="pymc",
            keep_warning_stat=True,
            progressbar=False,
            compute_convergence_checks=False,
            quiet=True,
        )
    found = theanoguard.pymc.explain_divergences(drawn, model)
    assert found.n_divergent > found.n_examined == 99
    assert [group.cause for group in found.groups] == ["wall"]


def test_the_non_centred_form_is_checked_before_it_is_proposed():
    model = diverging.MODELS["eight_schools"]()
    trace = sampled(model, seed=4)  # (with many divergences)
    group = theanoguard.pymc.explain_divergences(trace, model).groups[0]
    assert group.cause == "funnel"
    line, checked, *_ = group.advice.splitlines()
    assert line.endswith("theta = mu + tau * pm.Normal('theta_raw', 0, 1, shape=8)")
    told = re.search(
        r"same density up to the Jacobian; in a short run of it, (\d+) of 600 draws diverge, "
        r"with an ESS of \d+ and an r-hat of \d\.\d\d; before, (\d+) of 600",
        checked,
    )
    assert int(told[1]) < int(told[2])


@pytest.mark.parametrize(
    ("name", "text"),
    [("log_tau", "exp(log_tau)"), ("scaled_funnel", "3.0 * tau"), ("neals_funnel", "exp(v / 2)")],
)
def test_a_scale_is_told_with_its_exact_expression(name, text):
    [scale] = scales_of(diverging.MODELS[name]())
    assert scale.text == text


def test_what_is_no_scale_of_a_prior_is_not_taken_for_one():
    with pm.Model() as model:
        tau, shape = pm.HalfNormal("tau"), pm.HalfNormal("shape")
        pm.Normal("of_mean", tau, 1.0)
        pm.Gamma("of_rate", shape, tau)
        pm.Normal("y", pm.Normal("a"), tau, observed=1.0)
    assert scales_of(model) == []


def of_any_scale(build):
    """A model that `build` fills, of a location, a scale and a scale for each of three groups."""
    with pm.Model(coords={"group": range(3), "item": range(4)}) as model:
        mu, tau, sd = pm.Normal("mu"), pm.HalfNormal("tau"), pm.HalfNormal("sd", shape=3)
        build(mu, tau, sd)
    return model


SCALED = {
    "gumbel": lambda mu, tau, sd: pm.Gumbel("x", mu, tau, shape=3),
    "laplace": lambda mu, tau, sd: pm.Laplace("x", 0, pt.exp(mu) + tau),
    "student_t": lambda mu, tau, sd: pm.StudentT("x", nu=4, mu=mu, sigma=tau, dims="group"),
    "of_groups": lambda mu, tau, sd: pm.Normal("x", mu, sd[:, None], dims=("group", "item")),
    "lognormal": lambda mu, tau, sd: pm.LogNormal("x", mu, tau, shape=5),
    "logarithm": lambda mu, tau, sd: pm.Normal("x", 0, pt.exp(mu / 2), shape=(2, 2)),
    "zero_sum": lambda mu, tau, sd: pm.ZeroSumNormal("x", sigma=tau, shape=4),
    "sums_of_groups": lambda mu, tau, sd: pm.ZeroSumNormal("x", sigma=tau, shape=3),
    "two_sums": lambda mu, tau, sd: pm.ZeroSumNormal(
        "x", sigma=tau, n_zerosum_axes=2, dims=("group", "item")
    ),
    "precision": lambda mu, tau, sd: pm.Normal("x", 0, tau=tau, shape=5),
}


@pytest.mark.parametrize("name", [*SCALED, *list(diverging.MODELS)[:4], "gp_hyperparameters"])
def test_a_non_centred_form_has_the_same_density(name):
    """The line that is proposed runs as it is, and has the same density."""
    model = of_any_scale(SCALED[name]) if name in SCALED else diverging.MODELS[name]()
    [scale] = scales_of(model)
    other, changed = non_centred(model, [scale.child.name])
    assert scale.child.name not in [rv.name for rv in other.free_RVs]
    assert same_density(model, other, changed)
    if name in SCALED:
        pasted = of_any_scale(
            lambda mu, tau, sd: exec(scale.non_centred, {**globals(), **locals()})
        )
        points = [m.initial_point() for m in (pasted, other)]
        assert points[0].keys() == points[1].keys()
        moved = {key: value + 0.3 for key, value in points[0].items()}
        np.testing.assert_allclose(pasted.compile_logp()(moved), other.compile_logp()(moved))


def test_data_without_a_name_are_called_by_their_argument():
    with pm.Model() as model:
        pm.Normal("x", np.arange(5.0) / 2, pm.HalfNormal("tau"), shape=5)
    [scale] = scales_of(model)
    assert scale.non_centred == "x = mu + tau * pm.Normal('x_raw', 0, 1, shape=5)"


def test_effects_that_vary_together_are_non_centred_by_their_cholesky_factor():
    with pm.Model() as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=sd)
        effects = pm.MvNormal("effects", pm.Normal("mean", shape=2), chol=chol, shape=(5, 2))
        pm.Normal("y", effects.sum(axis=1), 1.0, observed=np.zeros(5))
    [scale] = scales_of(model)
    line = "effects = mean + pm.Normal('effects_raw', 0, 1, shape=(5, 2)) @ chol.T"
    assert scale.non_centred == line
    assert same_density(model, *non_centred(model, ["effects"]))


def test_a_trajectory_that_ends_where_the_gradient_is_bad_is_told_as_such():
    """The draws are sound, and so is the log-density where trajectories break."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("root", -pt.sqrt(pt.maximum(x, 0)))
    x, diverged = RNG.uniform(1, 2, size=40), last(40, 5)
    ends = {
        which: np.where(diverged, at, np.nan)[:, None]
        for which, at in {"start": 0.1, "end": 0.0}.items()
    }
    drawn = trace(diverged, ends=ends, x=x)
    [group] = theanoguard.pymc.explain_divergences(drawn, model).groups
    assert (group.cause, group.point["x"]) == ("bad", 0.0)
    assert [(b.term, b.by) for b in group.explanation.bad] == [("root", "x")]


def test_a_variable_with_a_transform_is_not_made_of_another_one():
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        pm.Normal("cuts", 0, pm.HalfNormal("tau"), shape=3, transform=ordered, initval=range(3))
    assert scales_of(model) == []


def test_a_form_with_another_density_is_refused():
    def model_of(factor):
        with pm.Model() as model:
            pm.Normal("x", 0, factor * pm.HalfNormal("tau"), shape=3)
        return model

    other, changed = non_centred(model_of(2.0), ["x"])
    assert not same_density(model_of(3.0), other, changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", diverging.MODELS)
def test_the_known_cause_is_found(name):
    model = diverging.MODELS[name]()
    found = theanoguard.pymc.explain_divergences(sampled(model), model, check=False)
    assert not found.groups or found.groups[0].cause in diverging.CAUSES[name]
