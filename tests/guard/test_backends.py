"""A backend is one folder: it is found by itself, and no other module names it."""

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import theanoguard
from theanoguard import GuardError, GuardMode, compare, events_of
from theanoguard import _backends as registry
from theanoguard._environment import versions
from theanoguard._pytensor import Mode, predefined_linkers, predefined_modes
from theanoguard.cli.doctor import CHECKS

PACKAGE = Path(theanoguard.__file__).parent
FOLDER = Path(__file__).parent.parent / "backends"


@pytest.fixture
def madeup(monkeypatch):
    """Put the made-up backend's folder beside the others, and its linker where PyTensor's are."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(theanoguard.guard, "__path__", [*theanoguard.guard.__path__, str(FOLDER)])
    from madeup_linker import MadeUpLinker

    monkeypatch.setitem(predefined_linkers, "madeup", MadeUpLinker())
    monkeypatch.setitem(predefined_modes, "MADEUP", Mode(MadeUpLinker(), "fast_run"))
    registry.backends.cache_clear()
    yield
    registry.backends.cache_clear()
    for name in [name for name in sys.modules if "madeup" in name]:
        del sys.modules[name]


def test_a_folder_is_a_backend(madeup):
    x = pt.dvector("x")
    w = pytensor.shared(np.ones(2), name="w")
    fn = pytensor.function(
        [x], pt.log(x) * w, updates={w: w + pt.tanh(x)}, mode=GuardMode(backend="madeup")
    )
    np.testing.assert_allclose(fn([1.0, np.e]), [0.0, 1.0])
    before = w.get_value()
    with pytest.raises(GuardError) as caught:
        fn([1.0, -1.0])
    event = caught.value.event
    assert (event.kind, event.op, event.first_index) == ("nan", "Log", (1,))
    assert "log(x)" in str(caught.value)
    np.testing.assert_array_equal(w.get_value(), before)
    summary = GuardMode.summary(fn)
    assert summary.backend == "madeup" and summary.dropped


def test_all_settings_reach_it(madeup):
    x = pt.dvector("x")
    big = pytensor.function([x], pt.exp(x), mode=GuardMode(backend="madeup", big_threshold=10.0))
    with pytest.raises(GuardError, match="big"):
        big([3.0])
    mode = GuardMode(backend="madeup", action="record", exempt="y", judge="result")
    y = pt.log(x)
    y.name = "y"
    spoiled = pytensor.function([x], [y, pt.sqrt(x)], mode=mode)
    spoiled([-1.0])
    assert [e.op for e in events_of(spoiled)] == ["Sqrt"]


def test_it_is_named_where_all_are(madeup):
    with pytest.raises(ValueError, match="'c', 'jax', 'numba', 'pytorch', 'madeup', 'auto'"):
        GuardMode(backend="unknown")
    shown = {
        finding.name: finding.value
        for check in CHECKS
        if "devices" in check.__name__
        for finding in check()
    }
    assert shown["Made up"] == "backend='madeup' guards this machine"
    assert list(versions()).count("numpy") == 1
    x = pt.dvector("x")
    found = compare(pt.exp(x), {x: np.ones(2)}, ["madeup:cpu", "madeup:gpu"])
    assert found.modes["madeup:gpu"].not_run == (
        "left out, no device 'gpu': RuntimeError: there is only one"
    )


def test_the_type_lists_the_backends():
    assert get_args(registry.BackendName) == (*registry.backends(), "auto")


def words(path):
    """Yield the names and the texts in a module's code, without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for value in vars(node).values():
            if isinstance(value, str) and id(node) not in docstrings:
                yield value


def test_no_other_module_names_pytorch():
    """It stands for every backend that nothing but its own folder needs to know."""
    own = {PACKAGE / "_backends.py", *(PACKAGE / "guard" / "pytorch").glob("*.py")}
    shim = PACKAGE / "shim"
    naming = [
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in PACKAGE.rglob("*.py")
        if path not in own and shim not in path.parents
        for word in words(path)
        if re.search("torch", word, re.IGNORECASE)
    ]
    assert naming == []
