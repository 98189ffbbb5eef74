"""A fault in one step of a report leaves out that step, and nothing else."""

import importlib
import inspect
import json
import logging
import pkgutil
import sys

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from theanoguard import GuardError, GuardMode, inspect_graph
from theanoguard.log import read_log
from theanoguard.ops import register_operation

pytestmark = pytest.mark.in_python

ROOMS = ("facts", "advice", "text")
LINE = "log_of_w"  # in the user's line


def modules():
    for room in ROOMS:
        package = importlib.import_module(f"theanoguard.explain.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)
    yield importlib.import_module("theanoguard.operations.names")


FUNCTIONS = {
    f"{'.'.join(module.__name__.split('.')[-2:])}.{name}": function
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


WRONG = ["facts.describe.describe", "operations.names.shown_op", "text.report.render_text"]


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


SEARCH = (
    *("candidates", "exact", "judge", "logarithms", "remedies", "sentences", "source_edit"),
    *("trials", "written"),
)


def functions_of_the_search():
    """All functions and methods of the search for a change that helps, private ones included."""
    for name in SEARCH:
        module = importlib.import_module(f"theanoguard.explain.advice.{name}")
        owners = [module, *(v for v in vars(module).values() if inspect.isclass(v))]
        for owner in owners:
            for key, value in list(vars(owner).items()):
                own = getattr(value, "__module__", None) == module.__name__
                if inspect.isfunction(value) and own and not key.startswith("__"):
                    yield f"{name}.{value.__qualname__}", owner, key, value


def everywhere(owner, key, value):
    """The places that hold a function: its class, or each module that has imported it."""
    if inspect.isclass(owner):
        return [(owner, key)]
    ours = [m for n, m in sys.modules.items() if n.split(".")[0] == "theanoguard"]
    return [(m, name) for m in ours for name, v in list(vars(m).items()) if v is value]


def test_a_fault_in_the_search_is_told(monkeypatch):
    """Whichever function of the search has one: the debug log alone would hide it."""
    importlib.import_module("theanoguard.explain.explanation")  # (it imports the functions by name)
    function, met = gradient(), {}
    for name, owner, key, value in functions_of_the_search():

        def noted(*args, _name=name, _all=(owner, key, value), **kwargs):
            met[_name] = _all
            return _all[2](*args, **kwargs)

        for holder, attribute in everywhere(owner, key, value):
            monkeypatch.setattr(holder, attribute, noted)
    with pytest.raises(GuardError) as caught:
        function(BAD[1])
    assert str(caught.value).count("theanoguard doctor") == 0
    monkeypatch.undo()
    assert {"remedies.try_remedies", "judge.Judge.is_right"} <= met.keys()
    assert len(met) > 40
    for owner, key, value in met.values():
        for holder, attribute in everywhere(owner, key, value):
            monkeypatch.setattr(holder, attribute, fault)
        with pytest.raises(GuardError) as caught:
            function(BAD[1])
        text = str(caught.value)
        assert "Left out because of a fault in theanoguard: " in text, value.__qualname__
        assert "planted" in text, value.__qualname__
        assert text.startswith(("Inf in ", "Inf inside ")), value.__qualname__
        monkeypatch.undo()


class Moody(Op):
    """The identity; one of its methods raises while a report is made."""

    __props__ = ("method",)
    fails = False

    def __init__(self, method):
        self.method = method

    def raised_in(self, method):
        if Moody.fails and self.method == method:
            raise RuntimeError("of the user")

    def make_node(self, x):
        self.raised_in("make_node")
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, storage):
        self.raised_in("perform")
        storage[0][0] = inputs[0].copy()

    def L_op(self, inputs, outputs, output_gradients):
        self.raised_in("L_op")
        return output_gradients


class MoodyScalar(ps.UnaryScalarOp):
    """The identity, run element by element."""

    def impl(self, x):
        if Moody.fails:
            raise RuntimeError("of the user")
        return x

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]};"


def raising_formula(op, x):
    raise RuntimeError("of the user")


class Stated(MoodyScalar):
    """The same, with a formula."""


register_operation(Stated, formula=raising_formula, carries="nan inf")
MOODY = {
    **{m: Moody(m) for m in ("make_node", "perform", "L_op")},
    "impl": Elemwise(MoodyScalar(ps.same_out, name="moody_scalar")),
    "formula": Elemwise(Stated(ps.same_out, name="stated")),
}


@pytest.mark.parametrize("during", ["_explained", "try_remedies"])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("op", MOODY.values(), ids=MOODY.keys())
@pytest.mark.parametrize("backward", [False, True])
def test_what_a_users_operation_raises_is_no_fault_of_ours(
    op, where, backward, during, monkeypatch
):
    if backward and isinstance(op, Elemwise):
        pytest.skip("it has no gradient")
    w = pt.dvector("w")
    inner = op(w) if where == "before" else w
    bad = pt.sqrt(inner) if backward else pt.exp(inner) / (1 + pt.exp(inner).sum())
    cost = (op(bad) if where == "after" else bad).sum()
    result = pytensor.grad(cost, w) if backward else cost
    function = pytensor.function([w], result, mode=GuardMode())
    explanation = importlib.import_module("theanoguard.explain.explanation")
    original = getattr(explanation, during)

    def moody(*args):
        monkeypatch.setattr(Moody, "fails", True)
        try:
            return original(*args)
        finally:
            monkeypatch.setattr(Moody, "fails", False)

    monkeypatch.setattr(explanation, during, moody)
    with pytest.raises(GuardError) as caught:
        function(np.array([1.0, 0.0] if backward else [1.0, 1000.0]))
    text = str(caught.value)
    assert text.startswith(("Inf in ", "NaN in ", "Inf inside ", "NaN inside "))
    assert "fault in theanoguard" not in text


@pytest.mark.usefixtures("needs_cxx")
@pytest.mark.parametrize("op", [MOODY["impl"], MOODY["formula"]], ids=["impl", "formula"])
def test_a_guard_does_without_a_scalar_operation_that_python_cannot_run(op, monkeypatch):
    """It judges a fused operation that reads an Inf by its scalar operations, run in Python."""
    w = pt.dvector("w")
    masked = pt.sort(pt.switch(w > 0, w, -np.inf))
    function = pytensor.function([w], op(masked * 2) + 1, mode=GuardMode(backend="c"))
    monkeypatch.setattr(Moody, "fails", True)
    assert list(function(np.array([1.0, -1.0]))) == [-np.inf, 3.0]
    with pytest.raises(GuardError) as caught:
        function(np.array([1.0, np.nan]))
    assert "fault in theanoguard" not in str(caught.value)
