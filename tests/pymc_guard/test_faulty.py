"""Faulty PyMC models: the report is right, and the lines that it prints give the exact value."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from models import with_change
from pytensor.compile.mode import Mode

import theanoguard.pymc

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e pymc)", allow_module_level=True)
import faulty
import pymc as pm

PATH = Path(faulty.__file__)


def built(build):
    """A model, and its point as the truth gives it."""
    with pm.Model() as model:
        build()
    point = {name: np.asarray(v, float) for name, v in faulty.MODELS[build][0].items()}
    return model, {**model.initial_point(), **point}


@cache
def first_bad(build):
    """The first bad term that theanoguard finds at the point of a model."""
    model, point = built(build)
    return theanoguard.pymc.explain(model, point).bad[0]


@pytest.fixture(params=faulty.MODELS, ids=lambda build: build.__name__)
def build(request):
    return request.param


def test_a_faulty_model_gets_its_kind_and_its_grade(build):
    _, kind, grade, op = faulty.MODELS[build]
    found = first_bad(build).explanation
    assert (found.cause.op, found.meaning.kind, found.advice.grade) == (op, kind, grade)
    # (a line that cannot be shown to be the same function is said in words)
    assert bool(found.advice.change or found.advice.text) >= bool(grade)
    assert grade or not found.advice.change
    assert found.cause.source.file == str(PATH)
    assert found.cause.source.function in (build.__name__, "step")


def test_the_lines_printed_for_a_faulty_model_run(build):
    advice = first_bad(build).explanation.advice
    if not advice.change:
        pytest.skip("no line is printed")
    changed = {"__name__": "printed"}
    exec(compile(with_change(PATH, build.__name__, advice.change), str(PATH), "exec"), changed)
    with pm.Model() as other:
        changed[build.__name__]()
    model, point = built(build)
    mode = Mode("py", "fast_run")
    function = other.compile_fn([other.logp(), other.dlogp()], mode=mode)
    value, slope = function(point)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    if advice.grade == "same":
        given = {v: point[v.name] for v in model.value_vars}
        np.testing.assert_allclose(value, theanoguard.exact(model.logp(), given).mid, rtol=1e-9)


def test_both_kinds_are_there():
    kinds = [kind for _, kind, _, _ in faulty.MODELS.values()]
    assert kinds.count("lost") == kinds.count("none") == 5
