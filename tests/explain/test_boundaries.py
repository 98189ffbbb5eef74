"""A fault in one step of a report leaves out that step, and nothing else."""

import importlib
import inspect
import json
import logging
import pkgutil
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode, inspect_graph
from theanoguard.log import read_log

ROOMS = ("facts", "advice", "text")
LINE = "log_of_w"  # in the user's line


def modules():
    for room in ROOMS:
        package = importlib.import_module(f"theanoguard.explain.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


FUNCTIONS = {
    f"{module.__name__.removeprefix('theanoguard.explain.')}.{name}": function
    for module in modules()
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
# These install hooks, or say how a message is written; no report is made in them.
FUNCTIONS = {k: f for k, f in FUNCTIONS.items() if k not in ("text.tracebacks.install",)}


def fault(*args, **kwargs):
    raise KeyError("planted")


@pytest.fixture
def broken(request, monkeypatch):
    """Replace a function of the package in every module that has it."""
    wrong = request.param
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "theanoguard":
            for key, value in list(vars(module).items()):
                if value is wrong:
                    monkeypatch.setattr(module, key, fault)


def logarithm(**settings):
    w = pt.dvector("w")
    scaled = 2.0 * w
    log_of_w = pt.log(scaled - 1.0)
    return pytensor.function([w], log_of_w.sum(), mode=GuardMode(**settings))


def gradient(**settings):
    w = pt.dvector("w")
    log_of_w = pt.sqrt(w).sum()
    return pytensor.function([w], pytensor.grad(log_of_w, w), mode=GuardMode(**settings))


@pytest.fixture(scope="module")
def functions():
    return [logarithm(), gradient()]


BAD = [np.array([1.0, 2.0, -3.0]), np.array([1.0, 2.0, 0.0])]


@pytest.mark.on_33
@pytest.mark.parametrize("broken", FUNCTIONS.values(), ids=FUNCTIONS.keys(), indirect=True)
def test_the_report_stands(broken, functions):
    for function, value, word in zip(functions, BAD, ("NaN", "Inf"), strict=True):
        with pytest.raises(GuardError) as caught:
            function(value)
        text = str(caught.value)
        assert text.startswith((f"{word} in ", f"{word} inside "))
        assert "[2]" in text.splitlines()[0]
        assert "test_boundaries.py:" in text
        assert caught.value.event.source.text.strip().startswith(LINE)
        if "planted" in text:
            assert "Left out because of a fault in theanoguard: " in text
            assert "theanoguard doctor" in text


@pytest.mark.on_33
def test_the_planted_faults_are_met(functions, monkeypatch):
    """Most of the functions take part in these reports: the test above tests something."""
    met = set()
    for name, function in FUNCTIONS.items():

        def counted(*args, _name=name, _function=function, **kwargs):
            met.add(_name)
            return _function(*args, **kwargs)

        for key, module in list(sys.modules.items()):
            if key.split(".")[0] == "theanoguard":
                for own, value in list(vars(module).items()):
                    if value is function:
                        monkeypatch.setattr(module, own, counted)
    for function, value in zip(functions, BAD, strict=True):
        with pytest.raises(GuardError) as caught:
            function(value)
        str(caught.value)
    assert len(met) > len(FUNCTIONS) / 2
    assert {"facts.describe.describe", "advice.hints.hint_for", "text.report.title"} <= met


WRONG = ["facts.describe.describe", "facts.naming.shown_op", "text.report.render_text"]


@pytest.mark.parametrize("broken", [FUNCTIONS[w] for w in WRONG], ids=WRONG, indirect=True)
def test_everywhere_it_is_shown(broken, tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    with caplog.at_level(logging.WARNING, "theanoguard"):
        logarithm(action="warn", log=path)(BAD[0])
    [warning] = [str(r.msg % r.args) for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(("NaN in ", "NaN inside "))
    assert "[2]" in warning.splitlines()[0]
    [entry] = read_log(path).entries
    assert (entry.event.kind, entry.event.first_index) == ("nan", (2,))
    assert entry.event.op
    assert all(json.loads(line) for line in path.read_text().splitlines())
    with pytest.raises(GuardError) as caught:
        logarithm()(BAD[0])
    shown = inspect_graph(caught.value)._repr_html_()
    assert "NaN in" in shown
    assert caught.value.explanation.brief.startswith("NaN in")


def test_a_module_that_cannot_be_imported(monkeypatch):
    import theanoguard.explain as explaining

    def missing(name):
        raise ImportError("cannot import name 'Softmax' from 'pytensor'")

    for name in ("explain", "render_text"):
        monkeypatch.delitem(vars(explaining), name, raising=False)
    monkeypatch.setattr(explaining, "__getattr__", missing)
    with pytest.raises(GuardError) as caught:
        logarithm()(BAD[0])
    text = str(caught.value)
    assert text.startswith("NaN in ")
    assert "[2]" in text.splitlines()[0]
    assert "test_boundaries.py:" in text
    assert "cannot import name 'Softmax'" in text
