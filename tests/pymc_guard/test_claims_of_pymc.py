"""What is said of a model was tried: priors, links, supports and jitter."""

import re

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard

pm = pytest.importorskip("pymc")


def text_of(model, point=None):
    found = theanoguard.pymc.explain(model, point)
    assert not found.failed
    return " ".join(str(found).split())


def test_a_process_without_jitter_is_given_jitter():
    points = np.linspace(0, 1, 30)[:, None]
    points = np.vstack([points, points[:3]])
    data = np.sin(7 * points[:, 0])

    def latent(jitter):
        with pm.Model() as model:
            gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("l", 1)))
            f = gp.prior("f", X=points, jitter=jitter)
            pm.Normal("y", f, 1.0, observed=data)
        return model

    def marginal(jitter):
        with pm.Model() as model:
            gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("l", 1)))
            gp.marginal_likelihood("y", X=points, y=data, sigma=0.0, jitter=jitter)
        return model

    for build, called in ((latent, "prior"), (marginal, "marginal_likelihood")):
        text = text_of(build(0.0))
        assert f"Give {called} jitter=1e-6, which is added to the diagonal." in text
        assert "LKJCholeskyCov" not in text
        assert theanoguard.pymc.explain(build(1e-6)).ok


@pytest.mark.parametrize("kind", [pm.StudentT, pm.HalfStudentT])
def test_a_check_is_in_the_parameters_that_the_user_gives(kind):
    with pm.Model() as model:
        a = pm.Normal("a", -0.5, 1)
        kind("y", nu=4, sigma=a, observed=[1.0, 2.0])
    text = text_of(model)
    assert "sigma > 0 (it is -0.5)" in text
    assert "Give a a prior in its domain" in text
    assert "lam" not in text


def epidemic(mu):
    with pm.Model() as model:
        beta, gamma = pm.HalfNormal("beta", 4), pm.HalfNormal("gamma", 1)
        healthy, ill, out = 480.0, 20.0, []
        for _ in range(12):
            new = beta * healthy * ill / 500
            healthy, ill = healthy - new, ill + new - gamma * ill
            out.append(new)
        pm.Poisson("c", mu=mu(pt.stack(out)), observed=np.arange(12) + 15)
    return model


def test_a_state_of_a_system_gets_no_link():
    text = text_of(epidemic(lambda states: states))
    assert "Give mu a link" not in text
    assert re.search(r"healthy on line \d+ leaves the domain first \(it is -152.65\)", text)
    # (the link gives a finite log-density that is no use)
    assert theanoguard.pymc.explain(epidemic(pm.math.exp)).terms["c"] < -1e100


PREDICTORS = {
    "a + b * x": True,
    "a + pt.dot(pt.stack([x, x], axis=1), pt.stack([a, b]))": True,
    "a + b * c * x": True,
    "a - b + 2 * x": True,
    "-a * a - x": False,
    "a - b * (a - b) - x": False,
    "a / b + x": False,
    "a - pt.exp(b) * x": False,
}


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_a_link_is_for_a_linear_predictor(predictor):
    with pm.Model() as model:
        a, b, c = pm.Normal("a", -9.0, 1), pm.Normal("b", 0.1), pm.Normal("c", 0.0)
        names = {"pt": pt, "a": a, "b": b, "c": c, "x": np.array([1.0, 2.0])}
        pm.Poisson("y", mu=eval(predictor, names), observed=[1, 2])
    assert ("Give mu a link: mu = pm.math.exp(...)." in text_of(model)) == PREDICTORS[predictor]


def extreme_value(safe):
    def logp(v, mu, s, xi):
        z = 1 + xi * (v - mu) / s
        inside = pt.switch(z > 0, z, 1) if safe else z
        density = -pt.log(s) - (1 + 1 / xi) * pt.log(inside) - inside ** (-1 / xi)
        return pt.switch(z > 0, density, -np.inf) if safe else density

    return logp


def extremes(safe, data):
    with pm.Model() as model:
        xi, s = pm.Normal("xi", -0.4, 0.5), pm.HalfNormal("s", 1.0)
        pm.CustomDist("y", 0.0, s, xi, logp=extreme_value(safe), observed=data)
    return model


def test_a_density_of_ones_own_ends_at_its_support():
    data = np.array([0.1, 1.0, 2.0, 9.0])
    text = text_of(extremes(False, data))
    assert "y[3] lies outside of the support at this point, where the density is 0." in text
    assert re.search(
        r"Return pt.switch\((\w+) > 0, ..., -inf\), with pt.switch\(\1 > 0, \1, 1\) in place of \1",
        text,
    )
    assert "priors" not in text
    assert str(theanoguard.pymc.explain(extremes(False, data))).count("What to do:") == 1
    value = theanoguard.pymc.explain(extremes(True, data)).terms["y"]
    assert value == -np.inf
    inside = [theanoguard.pymc.explain(extremes(safe, data[:3])) for safe in (False, True)]
    assert inside[0].ok
    assert inside[1].terms == pytest.approx(inside[0].terms)


def test_one_fault_is_explained_once():
    with pm.Model() as model:
        s = pm.Normal("s", -1, 1)
        for i in range(4):
            pm.Normal(f"y{i}", 0, s, observed=[1.0, 2.0])
    text = text_of(model)
    assert text.count("Give s a prior") == 1
    assert text.count("as above: sigma > 0 (it is -1.0)") == 3


def test_two_faults_are_explained_twice():
    with pm.Model() as model:
        for name in ("s", "t"):
            pm.Normal(f"y_{name}", 0, pm.Normal(name, -1, 1), observed=[1.0, 2.0])
    text = text_of(model)
    assert text.count("Give s a prior") == text.count("Give t a prior") == 1
    assert "as above" not in text
