"""How a report is shown: colours in a terminal alone, and the errors that are no trips."""

import importlib
import json
import logging
import pickle
import re
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.utils import MissingInputError

from theanoguard import GuardError, GuardMode, events_of
from theanoguard.explain import Explanation, Waypoint, render_text
from theanoguard.explain.text import color
from theanoguard.log.event_log import MAX_EXPLANATION, EventLog, read_log

pytestmark = pytest.mark.on_33

# ---------------------------------------------------------------- colours

UNCAUGHT = """
import sys, threading
from theanoguard import GuardError
from theanoguard.records import GuardEvent

event = GuardEvent("nan", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3,
                   1, 0, 0, 0, (2,), float("nan"))

def fail():
    raise GuardError(event)

thread = threading.Thread(target=fail)
thread.start()
thread.join()
fail()
"""
COLOURED = "\x1b[1;31mNaN in Log at element [2]"


@pytest.fixture
def script(tmp_path, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "PYTHON_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    path = tmp_path / "script.py"
    path.write_text(UNCAUGHT)
    return str(path)


def in_a_terminal(script):
    pexpect = pytest.importorskip("pexpect")  # (it needs a POSIX system)
    return pexpect.run(f"{sys.executable} {script}", encoding="utf-8", timeout=120)


def test_uncaught_errors_have_colours_in_a_terminal(script):
    assert in_a_terminal(script).count(COLOURED) == 2  # (the thread's error and the program's)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NO_COLOR", "1"),
        pytest.param("TERM", "dumb", marks=pytest.mark.deep),
        pytest.param("PYTHON_COLORS", "0", marks=pytest.mark.deep),
    ],
)
def test_the_environment_turns_colours_off(script, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    said = in_a_terminal(script)
    # (what Python itself colours, from 3.13 on, it leaves plain then, too)
    assert "NaN in Log at element [2]" in said
    assert "\x1b" not in said


def test_no_colours_in_a_pipe_unless_forced(script, monkeypatch):
    command = [sys.executable, script]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert "NaN in Log at element [2]" in plain.stderr
    assert "\x1b" not in plain.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert COLOURED in subprocess.run(command, capture_output=True, text=True).stderr


@pytest.fixture(scope="module")
def error():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, -1.0]))
    return caught.value


def test_whoever_asks_for_the_text_gets_it_plain(error, monkeypatch, caplog):
    """Even where the terminal could show colours."""
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setenv("FORCE_COLOR", "1")
    logging.getLogger("mine").exception("failed", exc_info=error)
    shown = [
        str(error),
        f"{error}",
        "".join(traceback.format_exception(error)),
        caplog.text,
        str(pickle.loads(pickle.dumps(error))),
    ]
    for text in shown:
        assert "NaN in log: log(-1.0)" in text
        assert "\x1b" not in text
    coloured = render_text(error.event, error.explanation, color=True)
    assert {"\x1b[1;31m", "\x1b[38;5;30m"} <= set(re.findall(r"\x1b\[[\d;]*m", coloured))
    plain = render_text(error.event, error.explanation)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"PYTHON_COLORS": "1", "NO_COLOR": "1"}, True),
        ({"PYTHON_COLORS": "0", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
    ],
)
def test_when_colours_are_wanted(settings, expected, monkeypatch):
    class Terminal:
        @staticmethod
        def isatty():
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "PYTHON_COLORS", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert color.wants_color(Terminal) is expected
    assert color.wants_color(None) is (settings == {"PYTHON_COLORS": "1", "NO_COLOR": "1"})


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize(
    "action", ["raise", "warn", "record", pytest.param(lambda event: None, id="callable")]
)
def test_the_log_explains_what_trips(action, tmp_path):
    """With actions that explain nothing themselves, the first trip of each operation."""
    path = tmp_path / "events.jsonl"
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = pytensor.function([x, y], [pt.log(x), pt.sqrt(y)], mode=GuardMode(action=action, log=path))
    good, bad = np.ones(2), np.array([1.0, -1.0])
    explanations = []
    for args in [(bad, good), (bad, good), (good, bad)]:
        try:
            fn(*args)
        except GuardError as error:
            explanations.append(error.explanation)
    entries = read_log(path).entries
    assert [entry.event for entry in entries] == events_of(fn)
    ops = [entry.explanation and entry.explanation.cause.op for entry in entries]
    assert ops == ["log", "log" if action == "raise" else None, "sqrt"]
    for entry in entries:
        if entry.explanation is not None:
            assert entry.explanation.event == entry.event
            assert entry.explanation.cause.source.function == "test_the_log_explains_what_trips"
    if action == "raise":
        assert repr([entry.explanation for entry in entries]) == repr(explanations)


def test_a_warning_is_told_in_full_once_and_then_counted(caplog):
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=GuardMode(action="warn"))
    with caplog.at_level(logging.INFO, logger="theanoguard"):
        for _ in range(9):
            fn(np.array([-1.0]))
    assert len(caplog.records) == 9  # one for each trip
    full, *counts = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "What to do" in full
    assert [text.count("\n") for text in counts] == [0, 0, 0]
    for text, count in zip(counts, (2, 4, 8), strict=True):
        assert f": {count} times so far, last in call {count}." in text


def test_counts_say_where_it_was(caplog):
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=GuardMode(action="warn"))
    with caplog.at_level(logging.WARNING, logger="theanoguard"):
        for _ in range(2):
            fn(np.array([-1.0]))
    _full, count = caplog.messages
    line = events_of(fn)[0].source.line
    assert count.startswith("NaN in log, ")
    assert f"test_reports.py:{line}:" in count


@pytest.mark.parametrize("action", ["record", "callable"])
def test_recorded_events_carry_line_and_explanation(action):
    seen = []
    x = pt.dvector("x")
    y = pt.log(x - 2.0)
    chosen = (lambda e: seen.append(e.source)) if action == "callable" else action
    fn = pytensor.function([x], y, mode=GuardMode(action=chosen))
    fn(np.array([1.0]))
    fn(np.array([0.5]))
    first, second = events_of(fn)
    assert first.source.text == "y = pt.log(x - 2.0)"
    assert first.explanation.cause.expression == "log(-1.0)"
    assert second.explanation is first.explanation  # one for each cause
    assert seen == ([first.source] * 2 if action == "callable" else [])
    assert pickle.loads(pickle.dumps(first)).source == first.source
    assert "explanation" not in json.loads(first.to_json())


def test_an_explanation_that_is_too_long_is_shortened(error, tmp_path):
    log = EventLog(tmp_path / "log")
    long = Waypoint("n" * 5000, (0,), 1.0, (2,), "node")
    much = replace(error.explanation, waypoints=(long,) * 50)
    cause = replace(error.explanation.cause, name="n" * MAX_EXPLANATION)
    for explanation in (much, replace(much, cause=cause)):
        log.add(explanation.event)
        log.explain(explanation)
    first, second = read_log(log.path).entries
    assert first.explanation.waypoints == ()
    assert first.explanation.left_out == 50
    assert first.explanation.cause.op == "log"
    assert second.explanation is None


def test_an_explanation_of_another_schema_is_refused(error):
    record = error.explanation.to_plain()
    with pytest.raises(ValueError, match="explanation/9"):
        Explanation.from_plain({**record, "schema": "theanoguard.explanation/9"})
    with pytest.raises(ValueError, match="unknown in a Explanation: colour"):
        Explanation.from_plain({**record, "colour": 1})
    with pytest.raises(ValueError, match="missing in a Cause: op"):
        cause = {k: v for k, v in record["cause"].items() if k != "op"}
        Explanation.from_plain({**record, "cause": cause})
    json.dumps(record, allow_nan=False)


# ---------------------------------------------------------------- what it is for


def test_the_report_tells_what_the_bad_value_goes_into():
    x, y = pt.dvectors("x", "y")
    w = pytensor.shared(np.ones(2), name="w")
    log = pt.log(y)
    mean = log.mean()
    mean.name = "loss"
    gradient = pytensor.grad(pt.sqrt(x * w).sum(), w)
    mode = GuardMode(True, True, False)
    fn = pytensor.function([x, y], [w * 2, log, mean], updates=[(w, w - gradient)], mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(np.ones(2), np.array([-1.0, 1.0]))
    found = {caught.value.explanation.cause.op: caught.value}
    w.set_value(np.array([0.0, 1.0]))
    with pytest.raises(GuardError) as caught:
        fn(np.ones(2), np.ones(2))
    found[caught.value.explanation.cause.op] = caught.value
    assert found["log"].explanation.feeds == ("output log", "output loss")
    assert "on the way to output log and output loss." in str(found["log"])
    del found["log"]
    [backward] = found.values()
    assert backward.explanation.cause.backward
    assert backward.explanation.feeds == ("update of w",)
    assert "backward pass, on the way to update of w." in str(backward)


# ---------------------------------------------------------------- other errors

MACHINES = ["cvm", "vm", "vm_nogc"]


def failing(inputs, output, args, linker, **flags):
    """The error that a guarded function raises, which is no trip."""
    fn = pytensor.function(inputs, output, mode=GuardMode(linker=linker))
    with pytensor.config.change_flags(**flags), pytest.raises(Exception) as caught:
        fn(*args)
    assert not isinstance(caught.value, GuardError)
    assert sum("What to do" in note for note in caught.value.__notes__) == 1
    return caught.value


@pytest.mark.parametrize("linker", MACHINES)
@pytest.mark.parametrize("verbosity", ["low", "medium"])
def test_a_mismatch_on_every_machine(linker, verbosity):
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    product = x @ y
    args = np.ones((2, 3)), np.ones((4, 5))
    error = failing([x, y], pt.exp(product), args, linker, exception_verbosity=verbosity)
    report = error.__notes__[0]
    assert isinstance(error, ValueError)
    assert report.startswith("ValueError in dot: x @ y: x has shape (2, 3), y has shape (4, 5)")
    assert "test_reports.py" in report and "product = x @ y" in report
    assert "operand x  shape (2, 3), float64" in report
    assert "operand y  shape (4, 5), float64" in report
    assert "missing transpose" in report


@pytest.mark.parametrize("linker", MACHINES)
def test_an_error_in_a_branch(linker):
    """A graph with a lazy operation is run by other code."""
    c, x, y = pt.dscalar("c"), pt.dmatrix("x"), pt.dmatrix("y")
    product = x @ y
    chosen = pytensor.ifelse(c > 0, product.sum(), x.sum())
    error = failing([c, x, y], chosen, (1.0, np.ones((2, 3)), np.ones((4, 5))), linker)
    assert error.__notes__[0].startswith("ValueError in dot: ")
    assert "product = x @ y" in error.__notes__[0]


@pytest.mark.parametrize("linker", MACHINES)
def test_a_failed_assert_on_every_machine(linker):
    x = pt.dvector("x")
    checked = pytensor.raise_op.Assert("x must be positive")(x, pt.all(x > 0))
    report = failing([x], pt.exp(checked), (-np.ones(2),), linker).__notes__[0]
    assert report.startswith("AssertionError in assert: x must be positive")
    assert "checked = pytensor.raise_op.Assert" in report


@pytest.mark.parametrize("linker", MACHINES)
def test_a_singular_matrix_on_every_machine(linker):
    x = pt.dmatrix("x")
    inverse = pt.linalg.inv(x)
    error = failing([x], inverse, (np.ones((2, 2)),), linker)
    assert isinstance(error, np.linalg.LinAlgError)
    assert error.__notes__[0].startswith("LinAlgError in inv")
    assert "inverse = pt.linalg.inv(x)" in error.__notes__[0]
    assert "columns that depend on others" in " ".join(error.__notes__[0].split())


@pytest.mark.parametrize("linker", MACHINES)
def test_out_of_memory_on_every_machine(linker):
    x, n = pt.dmatrix("x"), pt.lscalar("n")
    product = x @ x.T
    zeros = pt.zeros((n, n))
    fn = [x, n], [product, zeros], (np.ones((300, 300)), 1 << 24), linker
    error = failing(*fn)
    assert isinstance(error, MemoryError)
    report = error.__notes__[0]
    assert "zeros = pt.zeros((n, n))" in report
    assert "The result needs 2048.0 TiB." in report
    assert "703.1 KiB  x, shape (300, 300), float64" in report


@pytest.mark.parametrize("linker", MACHINES)
def test_an_error_inside_a_loop(linker):
    x = pt.dmatrix("x")

    def step(row, total):
        return total + row.reshape((2, 2))

    totals = pytensor.scan(
        step, sequences=[x], outputs_info=[pt.zeros((2, 2))], return_updates=False
    )
    mode = GuardMode(linker=linker).excluding("scan_pushout")
    fn = pytensor.function([x], totals, mode=mode)
    with pytest.raises(ValueError) as caught:
        fn(np.ones((4, 3)))
    report = caught.value.__notes__[0]
    assert report.startswith("ValueError in reshape")
    assert "inside step 0 of scan" in report
    assert "return total + row.reshape((2, 2))" in report
    assert "operand row  " in report and "shape (3,), float64" in report
    assert "must keep the number of elements" in report


def test_an_error_of_an_earlier_call_is_not_told_again():
    x, y = pt.dmatrix("x"), pt.dmatrix("y")
    fn = pytensor.function([x, y], x @ y, mode=GuardMode())
    for n in (4, 5):
        with pytest.raises(ValueError) as caught:
            fn(np.ones((2, 3)), np.ones((n, 5)))
        assert f"shape ({n}, 5)" in caught.value.__notes__[0]
    with pytest.raises(GuardError):
        fn(np.full((2, 3), np.nan), np.ones((3, 5)))


# ---------------------------------------------------------------- reproductions

MODULE = """
from math import *
import os.path as unused
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

LIMIT: float = sqrt(81)
started = print("this module is not to be run")


def exceeds(x):
    return x > LIMIT


class Base(Op):
    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])


class Gap(Base):
    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.where(exceeds(inputs[0]), np.nan, inputs[0])


class Other:
    pass
"""


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    (tmp_path / "users_own.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("users_own")


def test_a_reproduction_brings_the_source_of_what_is_the_users(user_module, tmp_path):
    """What the class uses of its module, and no more."""
    x = pt.dvector("x")
    fn = pytensor.function([x], user_module.Gap()(x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, 10.0]))
    (tmp_path / "elsewhere").mkdir()
    script = caught.value.save_repro(tmp_path / "elsewhere" / "bug.py")
    text = script.read_text()
    for part in ("class Gap(Base)", "class Base(Op)", "def exceeds", "LIMIT", "from math import *"):
        assert part in text
    for part in ("unused", "class Other", "not to be run", "users_own"):
        assert part not in text.partition('"""\n\n')[2]
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=script.parent
    )
    assert (run.returncode, run.stdout) == (1, "nan at element (1,); 1 of 2 elements\n"), run.stderr


def test_what_has_no_reproduction_says_why(tmp_path):
    class Local(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = np.log(inputs[0])

    x = pt.dvector("x")
    fn = pytensor.function([x], Local()(x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.zeros(2))
    with pytest.raises(ValueError, match="Local.* cannot be pickled"):
        caught.value.save_repro(tmp_path / "bug.py")
    assert list(tmp_path.iterdir()) == []


LOGARITHMS = (
    "import pytensor.tensor as pt\nz = pt.dscalar('z')\n"
    "p = pt.exp(-(z**2)) * pt.sigmoid(z)\nfirst = pt.log(p)",
    "import pytensor.tensor as pt\nfrom one_file import p, z\nsecond = pt.log(1 - p)",
)
STEPS = (
    "import pytensor.tensor as pt\nz = pt.dscalar('z')\nfirst = 1 / (1 - 0.9**z)",
    "from one_file import z\nsecond = 1 / (1 - 0.999**z)",
)


@pytest.mark.parametrize(
    ("sources", "value", "places"),
    [
        (LOGARITHMS, -1000.0, ["one_file.py:4", "other_file.py:3"]),
        (STEPS, 0.0, ["one_file.py:3", "other_file.py:2"]),
    ],
    ids=["logarithms", "steps"],
)
def test_a_remedy_in_two_files_names_the_files(sources, value, places, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, source in zip(["one_file", "other_file"], sources, strict=True):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    one, other = map(importlib.import_module, ["one_file", "other_file"])
    result = one.first + other.second
    fn = pytensor.function([one.z], result, mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(value)
    for name in ["one_file", "other_file"]:
        monkeypatch.delitem(sys.modules, name)
    hint = caught.value.explanation.advice
    found = re.findall(r"\w+_file\.py:\d+", hint.text)
    assert sorted(found) == places
    changed = [line.split()[0] for line in hint.change]  # (old and new line of each place)
    assert changed == [{"one": "first", "oth": "second"}[p[:3]] for p in found for _ in range(2)]
    assert " on line" not in hint.text


@pytest.mark.parametrize("name", [None, "w"])
def test_a_constant_is_named_once(name):
    x = pt.dvector("x")
    fn = pytensor.function([x], x + pt.constant([1.0, np.nan], name), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.ones(2))
    held = "constant w" if name else "a constant of shape (2,)"
    assert caught.value.explanation.brief.startswith(f"NaN in {held}, ")


@pytest.mark.parametrize("inside", [True, False])
def test_a_missing_input_of_a_loop_is_named_with_its_line(inside):
    x, rate = pt.dvector("x"), pt.dscalar("rate")  # outside

    def step(a, s):
        return s + a * (pt.dscalar("gain") if inside else rate)  # inside

    sums = pytensor.scan(
        step, sequences=[x], outputs_info=[pt.zeros((), "float64")], return_updates=False
    )
    with pytest.raises(MissingInputError) as caught:
        pytensor.function([x], sums, mode=GuardMode())
    name, line = ("gain", "# inside") if inside else ("rate", "# outside")
    assert f"({name}) of the graph" in str(caught.value)
    (number,) = re.findall(r'test_reports\.py", line (\d+)', str(caught.value))[-1:]
    assert Path(__file__).read_text().splitlines()[int(number) - 1].endswith(line)
