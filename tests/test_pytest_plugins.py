"""``pytest --guard`` and ``pytest -p theanoguard.shim.pytest_plugin``, on suites of their own."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.on_30

PYTENSOR_SUITE = """
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from theanoguard import GuardMode

x = pt.dvector("x")

def compute(values, mode=None):
    return pytensor.function([x], pt.log(x), mode=mode)(np.array(values))

@pytest.fixture(scope="module")
def log():
    return pytensor.function([x], pt.log(x))

def test_good(log):
    assert log(np.ones(2)).sum() == 0

def test_bad(log):
    assert log(np.array([1.0, -1.0]))[0] == 0

def test_bad_in_a_mode_of_its_own():
    compute([-1.0], mode="FAST_COMPILE")

def test_bad_and_caught(log):
    with pytest.raises(AssertionError):
        log(np.array([-1.0]))

def test_bad_and_then_another_error(log):
    try:
        log(np.array([-1.0]))
    except AssertionError:
        raise KeyError("unrelated")

def test_in_a_guard_of_its_own():
    compute([0.0], mode=GuardMode(inf_is_error=False, big_is_error=False))
"""

THEANO_SUITE = """
import numpy as np
import theano
import theano.tensor as T

def test_theano():
    x = T.dvector("x")
    f = theano.function([x], T.nnet.sigmoid(x))
    assert f([0.0]) == 0.5

def test_bad():
    x = T.dvector("x")
    f = theano.function([x], T.log(x))
    assert np.isnan(f([-1.0]))
"""

WITH_OLD_NUMPY = """
import numpy as np

def test_old_name():
    assert np.float is float
"""


@pytest.fixture
def run_pytest(tmp_path):
    """``run_pytest(text, *arguments)`` runs a file of tests and returns the outcomes and output."""

    def run(text, *arguments):
        (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        lines = [
            line.split() for line in done.stdout.splitlines() if line.startswith("test_it.py::")
        ]
        outcomes = {words[0].partition("::")[2]: words[1] for words in lines if len(words) > 1}
        return outcomes, done.stdout + done.stderr

    return run


GUARD = ["-p", "theanoguard", "--guard=nan,inf"]


def test_guarded_run(run_pytest):
    outcomes, output = run_pytest(PYTENSOR_SUITE, *GUARD)
    assert outcomes == {
        "test_good": "PASSED",
        "test_bad": "FAILED",
        "test_bad_in_a_mode_of_its_own": "FAILED",
        "test_bad_and_caught": "FAILED",
        "test_bad_and_then_another_error": "FAILED",
        "test_in_a_guard_of_its_own": "PASSED",
    }
    assert "NaN in log: log(-1.0) at element [1]" in output
    assert "its error was caught" in output
    assert "a bad value before it" in output
    assert "guard: 3 functions guarded" in output


def test_without_the_option_nothing_happens(run_pytest):
    outcomes, output = run_pytest(PYTENSOR_SUITE, "-p", "theanoguard", "-k", "bad")
    assert outcomes["test_bad"] == "PASSED"
    # pytest itself names the plugin and, where theanoguard is installed, its distribution.
    assert "guard" not in re.sub(r"\w*theanoguard\w*|test_in_a_guard", "", output)


def test_without_the_option_pytensor_is_not_imported(run_pytest):
    text = "import sys\ndef test_it():\n    assert 'pytensor' not in sys.modules\n"
    outcomes, _ = run_pytest(text, "-p", "theanoguard")
    assert outcomes == {"test_it": "PASSED"}


def test_unknown_kinds_are_refused(run_pytest):
    _, output = run_pytest(PYTENSOR_SUITE, "-p", "theanoguard", "--guard=nam")
    assert "'nam' is no kind of bad value" in output


def test_legacy_suite(run_pytest):
    outcomes, output = run_pytest(THEANO_SUITE, "-p", "theanoguard.shim.pytest_plugin")
    assert outcomes == {"test_theano": "PASSED", "test_bad": "PASSED"}
    assert "theano: the shim" in output


def test_legacy_suite_under_the_guard(run_pytest):
    outcomes, output = run_pytest(THEANO_SUITE, "-p", "theanoguard.shim.pytest_plugin", *GUARD)
    assert outcomes == {"test_theano": "PASSED", "test_bad": "FAILED"}
    assert "log(-1.0)" in output


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [(["--numpy-compat"], "PASSED"), ([], "FAILED")],
    ids=["with", "without"],
)
def test_old_numpy_names(run_pytest, arguments, outcome):
    plugin = ["-p", "theanoguard.shim.pytest_plugin"]
    outcomes, _ = run_pytest(WITH_OLD_NUMPY, *plugin, *arguments)
    assert outcomes == {"test_old_name": outcome}


def test_a_conftest_finds_the_old_names(run_pytest, tmp_path):
    conftest = """
from collections import Iterable
import imp
import numpy
import os

numpy.int
settings = os.path.join(os.path.dirname(__file__), "settings.py")
assert imp.load_source("settings", settings).epochs == 3
assert imp.find_module("numpy")[1] == numpy.__path__[0]
"""
    (tmp_path / "settings.py").write_text("epochs = 3")
    (tmp_path / "conftest.py").write_text(conftest)
    plugin = ["-p", "theanoguard.shim.pytest_plugin"]
    outcomes, _ = run_pytest(WITH_OLD_NUMPY, *plugin, "--numpy-compat", "--python-compat")
    assert outcomes == {"test_old_name": "PASSED"}


def test_advice_on_a_module_that_cannot_be_collected(run_pytest):
    suite = "import numpy as np\n\nnp.zeros((2, 2))[[slice(1), slice(1)]]\n"
    _, output = run_pytest(suite, "-p", "theanoguard.shim.pytest_plugin")
    assert "tuple(...)" in output
