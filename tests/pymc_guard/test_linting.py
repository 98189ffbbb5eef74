"""``theanoguard.pymc.lint``: planted mistakes with their lines, and silence on sound models."""

import importlib.util

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import healthy
import planted
import pymc as pm


@pytest.mark.parametrize("name", planted.MODELS)
def test_planted_mistake_has_a_point_and_a_line(name):
    model = planted.MODELS[name]()
    [finding] = theanoguard.pymc.lint(model)
    assert finding.source.file == planted.__file__
    assert finding.source.function in (name, "logp")
    compiled = model.compile_fn([model.logp(), model.dlogp()], point_fn=True)
    assert theanoguard.pymc.spoils_sampling(compiled(finding.witness.inputs))


SOUND = ["gumbel", "student_t", "censored", "gaussian_process", "correlated", "stick_breaking"]


@pytest.mark.parametrize("name", SOUND)
def test_sound_model_has_no_finding(name):
    assert theanoguard.pymc.lint(healthy.MODELS[name](), draws=20, seconds=0.5) == []


def test_operations_of_pymc_are_not_reported_without_a_point():
    model = healthy.MODELS["correlated"]()
    assert theanoguard.pymc.lint(model, all=True, draws=5, seconds=0.1) == []


def test_operation_that_the_user_called_is_reported_on_request():
    model = healthy.MODELS["stick_breaking"]()
    [finding] = theanoguard.pymc.lint(model, all=True, draws=5, seconds=0.1)
    assert finding.rule == "power-at-zero"
    assert finding.source.function == "stick_breaking"
    assert finding.witness is None


def test_gradient_of_a_hurdle():
    """PyMC's own: the log-density is right, and its gradient is NaN, of means above 745.

    The prior has to reach them often: the orders in which releases of PyTensor search differ.
    """
    with pm.Model() as model:
        pm.HurdlePoisson("y", 0.5, pm.math.exp(pm.Normal("a", 5, 2)), observed=healthy.ZEROS)
    [finding] = theanoguard.pymc.lint(model)
    assert finding.witness.output == "its gradient"
    assert finding.source.function == "test_gradient_of_a_hurdle"


def test_model_without_a_point():
    with pm.Model() as model:
        pm.Normal("y", pt.as_tensor(np.ones(3))[[0, 5]], 1.0, observed=np.ones(2))
    with pytest.raises(ValueError, match=r"lint\(\) cannot run the graph: IndexError"):
        theanoguard.pymc.lint(model)
