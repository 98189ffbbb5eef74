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


REWRITTEN_SUITE = """
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

x, s = pt.dvector("x"), pt.dscalar("s")
half = np.full(400, 1e-3)
PLAIN = Mode("py", "fast_run")

def compiled(graph, **more):
    return pytensor.function([x, s], graph, on_unused_input="ignore", mode=PLAIN, **more)

def test_same():
    w = pytensor.shared(1.0, name="w")
    f = compiled([pt.log(1 + x).sum(), x * s], updates={w: w + s})
    assert f(half, 2.0)[1].shape == (400,)

def test_stabilized():
    compiled(pt.log(1 + pt.exp(x)))(half + 800, 1.0)

def test_nan_lost():
    compiled(x / x)(np.zeros(2), 1.0)

def test_changed():
    compiled(s // 1)(half, 1.5)

def test_caught():
    try:
        assert np.isfinite(compiled(pt.prod(x * s))(half, 1e3))
    except AssertionError:
        pass

def test_raises_itself():
    raise KeyError("unrelated")
"""


def test_rewrites(run_pytest):
    outcomes, output = run_pytest(REWRITTEN_SUITE, "-p", "theanoguard", "--guard=rewrites")
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {"test_changed", "test_caught", "test_raises_itself"}
    assert 'mode.excluding("local_div_by_one") avoids it' in output
    assert "bad value made: output 0 has a NaN or Inf" in output
    assert "guard: 5 calls compared with the graphs as written" in output


LINTED_SUITE = """
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.dvector("x")
half = np.array([0.2, 0.5, 0.9])
log = pytensor.function([x], pt.log(x).sum(), mode="FAST_COMPILE")
never_called = pytensor.function([x], pt.log(x - 1), mode="FAST_COMPILE")

def compiled(graph):
    return pytensor.function([x], graph, mode="FAST_COMPILE")

def test_sound():
    assert log(half) < 0

def test_named_arguments_and_shapes():
    f = compiled(x + 1)
    assert f(x=half).shape == (3,) and f(np.ones(2)).shape == (2,) and f(np.ones(0)).shape == (0,)

def test_wrong_arguments():
    try:
        compiled(x + 2)(1, 2, 3)
    except TypeError:
        pass

def test_fails_elsewhere():
    compiled(x / x.std())(half)

def test_fails_elsewhere_again():
    compiled(x / x.std())(half)

def test_ignored():
    compiled(x / x.var())(half)  # theanoguard: ignore

def test_rejected():
    rate = x.sum()
    logp = pt.switch(rate > 0, pt.log(pt.switch(rate > 0, rate, 1)), -np.inf)
    f = compiled([logp, pytensor.grad(logp, x)])
    f(half), f(-half)
"""


def test_lint(run_pytest, tmp_path):
    arguments = ["-p", "theanoguard", "--guard=lint", f"--lint-baseline={tmp_path / 'known.json'}"]
    outcomes, output = run_pytest(LINTED_SUITE, *arguments)
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {"test_fails_elsewhere"}
    assert "division-by-zero: x.std() must not be 0" in output
    assert "new findings: 1" in output
    outcomes, output = run_pytest(LINTED_SUITE, *arguments, "--lint-accept")
    assert set(outcomes.values()) == {"PASSED"}
    moved = LINTED_SUITE.replace("def test_sound", "# a line more\ndef test_sound")
    outcomes, output = run_pytest(moved, *arguments)
    assert set(outcomes.values()) == {"PASSED"}
    assert "new findings: 0, accepted: 1" in output
    fixed = LINTED_SUITE.replace("x / x.std()", "x + x.std()")
    _, output = run_pytest(fixed, *arguments)
    assert "new findings: 0, accepted before and not found now: 1" in output
    worse = LINTED_SUITE.replace("x + 1", "1 / (x - 0.5)")
    outcomes, _ = run_pytest(worse, *arguments)
    assert [n for n, o in outcomes.items() if o == "FAILED"] == ["test_named_arguments_and_shapes"]


def test_lint_of_guarded_functions(run_pytest, tmp_path):
    """Functions with a guard are searched like others, and their guards note nothing of it."""
    arguments = ["-p", "theanoguard", "--guard=lint", f"--lint-baseline={tmp_path / 'known.json'}"]
    guarded = "import theanoguard\nGUARD = theanoguard.GuardMode(big_is_error=False)\n"
    guarded += LINTED_SUITE.replace('mode="FAST_COMPILE"', "mode=GUARD")
    guarded += "\ndef test_no_event_of_a_trial():\n    assert not GUARD.events\n"
    outcomes, output = run_pytest(guarded, *arguments)
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {"test_fails_elsewhere"}
    assert "new findings: 1" in output


def test_baselines_that_are_refused(run_pytest, tmp_path):
    (tmp_path / "known.json").write_text("[]")
    baseline = f"--lint-baseline={tmp_path / 'known.json'}"
    _, output = run_pytest(LINTED_SUITE, "-p", "theanoguard", "--guard=lint", baseline)
    assert "known.json is no baseline of lint" in output
    _, output = run_pytest(LINTED_SUITE, "-p", "theanoguard", "--guard", "--lint-accept")
    assert "--lint-accept needs --guard=lint" in output


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


@pytest.mark.slow
def test_the_advice_has_an_option_of_pytest(run_pytest):
    """A report advises ``GuardMode(judge="result")``, and nobody writes GuardMode in a test run."""
    text = (
        "import pytensor, pytensor.tensor as pt\ndef test_it():\n    x = pt.dvector('x')\n"
        "    y = pt.exp(-pt.cumsum(pt.exp(x)))\n"
        "    pytensor.function([x], y, mode='CVM')([1e3])\n"
    )
    outcomes, output = run_pytest(text, "-p", "theanoguard", "--guard")
    assert outcomes == {"test_it": "FAILED"}
    assert 'for pytest, GuardMode(judge="result") is --guard-judge=result' in output
    outcomes, _ = run_pytest(text, "-p", "theanoguard", "--guard", "--guard-judge=result")
    assert outcomes == {"test_it": "PASSED"}


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


NOSE_SUITE = """
import unittest
import pytest

calls = []

def note(text):
    return lambda *owner: calls.append(text)

{module}

def with_setup(setup=None, teardown=None):  # as in nose.tools
    def decorate(function):
        function.setup, function.teardown = setup, teardown
        return function
    return decorate

def test_module():
    assert calls == ["module"]

@with_setup(note("function"), note("end of function"))
def test_function():
    assert calls == ["module", "function"]

def test_end_of_function():
    assert calls == ["module", "function", "end of function"]

class TestPlain:
    {of_class} = classmethod(note("class"))

    def {of_method}(self):
        self.x = 1

    def {end_of_method}(self):
        calls.append("end of method")

    def test_method(self):
        assert calls[3:] == ["class"] and self.x == 1

    def test_end_of_method(self):
        assert calls[4:] == ["end of method"] and self.x == 1

class TestOfUnittest(unittest.TestCase):
    def setUp(self):
        calls.append("once")

    def test_unittest(self):
        assert calls.count("once") == 1

@with_setup(note("before"), note("after"))
def test_yields():
    yield calls.append, 1
    yield calls.append, 2

def test_yielded():
    assert calls[-6:] == ["before", 1, "after", "before", 2, "after"]

def test_one_fails():
    yield calls.index, 1
    yield calls.index, 3
    yield calls.index, 2

@pytest.fixture
def setUp():
    return "a fixture"

def test_fixture(setUp):
    assert setUp == "a fixture"
"""
NOSE_TESTS = "module function end_of_function method end_of_method unittest yields yielded".split()


@pytest.mark.parametrize(
    ("module", "of_class", "of_method", "end_of_method"),
    [
        ("setup = note('module')", "setupClass", "setup", "teardown"),
        ("setUpModule = note('module')", "setUpClass", "setUp", "tearDown"),
        ("setup_module = setup = note('module')", "setup_class", "setup", "tearDown"),
        ("setupModule = setUp_ = note('module')", "setup_all", "setup_method", "teardown"),
    ],
    ids=["setup", "setUp", "pytest", "all"],
)
def test_set_ups_of_nose(run_pytest, module, of_class, of_method, end_of_method):
    names = {"module": module, "of_class": of_class}
    names |= {"of_method": of_method, "end_of_method": end_of_method}
    suite = NOSE_SUITE.format_map(names)
    outcomes, output = run_pytest(suite, "-p", "theanoguard.shim.pytest_plugin")
    found = {name.rpartition("::")[2].removeprefix("test_"): how for name, how in outcomes.items()}
    assert found.pop("one_fails") == "FAILED" and "in the yielded test index(3,)" in output
    assert found == dict.fromkeys([*NOSE_TESTS, "fixture"], "PASSED"), output


def test_packages_of_nose_are_set_up_once(run_pytest, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("calls = []\ndef setup():\n    calls.append(1)\n")
    for name in ("one", "two"):
        text = "from package import calls\ndef test_it():\n    assert calls == [1]\n"
        (package / f"test_{name}.py").write_text(text)
    _, output = run_pytest("", "-p", "theanoguard.shim.pytest_plugin", "package")
    assert "2 passed" in output
