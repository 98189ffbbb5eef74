"""The stepping prompt as a person uses it: keys typed, screen read."""

import io
import os
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard.monitor.prompt import StepPrompt, _about, value_lines
from theanoguard.monitor.stepper import Stepper

pytestmark = pytest.mark.on_30

pexpect = pytest.importorskip("pexpect")
if not hasattr(pexpect, "spawn"):
    pytest.skip("no pseudo-terminals on this platform", allow_module_level=True)

SCRIPT = """
import numpy as np, pytensor, pytensor.tensor as pt
from theanoguard.monitor import MonitorMode, step_in_terminal
x = pt.dvector("x")
w = pytensor.shared(np.zeros(2), "w")
y = pt.exp(x)
y.name = "y"
z = pt.log(y - 2)  # may fail
mode = MonitorMode().excluding("fusion", "inplace")
f = pytensor.function([x], z.sum(), updates={w: w + 1}, mode=mode, name="model")
print("RESULT", step_in_terminal(f)(__VALUE__))
print("SHARED", w.get_value())
"""
PROMPT = "(step) "
TIMEOUT = 120


class Terminal:
    """A terminal in which the script runs."""

    def __init__(self, directory, value="[1.0, 2.0]", script=SCRIPT):
        path = directory / "script.py"
        path.write_text(textwrap.dedent(script).replace("__VALUE__", value))
        root = str(Path(theanoguard.__file__).parents[1])
        search = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.child = pexpect.spawn(
            sys.executable,
            ["-W", "ignore", str(path)],
            env={**os.environ, "PYTHONPATH": search, "TERM": "dumb", "INPUTRC": os.devnull},
            encoding="utf-8",
            timeout=TIMEOUT,
            dimensions=(40, 160),
        )
        self.intro = self.read()

    def read(self):
        """Everything on the screen up to the next prompt."""
        self.child.expect_exact(PROMPT)
        return self.child.before

    def type(self, keys):
        """Type a line and read what comes."""
        self.child.sendline(keys)
        return self.read()

    def interrupt(self):
        """Type Ctrl-C, and read what comes.

        Python loses sight of one that comes just between its printing a prompt and its waiting
        for keys, until the next key; so it is typed again.
        """
        for _ in range(10):
            self.child.sendintr()
            if self.child.expect_exact([PROMPT, pexpect.TIMEOUT], timeout=5) == 0:
                return self.child.before
        raise AssertionError("Ctrl-C was not answered")

    def leave(self, keys):
        """Type a line that ends the session, and read the rest."""
        self.child.sendline(keys)
        self.child.expect(pexpect.EOF)
        return self.child.before


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.child.close(force=True)


def test_a_session(terminal):
    assert "Stepping through model: " in terminal.intro and " nodes." in terminal.intro
    assert "before the first" in terminal.type("w")
    screen = terminal.type("u name y")
    assert "Exp" in screen and "y = pt.exp(x)" in screen
    assert "read x = float64 (2,) [1. 2.]" in screen
    assert "wrote y = float64 (2,) [2.718282 7.389056]" in screen
    assert "y = float64 (2,) [2.718282 7.389056]" in terminal.type("p y")
    screen = terminal.type("u op log")
    assert "Log" in screen and "# may fail" in screen
    screen = terminal.type("l")
    assert "->" in screen and "z = pt.log(y - 2)  # may fail" in screen and 'y.name = "y"' in screen
    assert ", Log," not in terminal.type("b")
    rest = terminal.leave("c")
    assert "RESULT 1.35" in rest  # log(e - 2) + log(e**2 - 2)
    assert "SHARED [1. 1.]" in rest


def test_continuing_to_a_result_that_is_an_array(monkeypatch, capsys):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x), mode="CVM")
    monkeypatch.setattr("builtins.input", lambda prompt: "c")
    assert theanoguard.monitor.step_in_terminal(f)([0.0, 0.0]).tolist() == [1.0, 1.0]
    assert "failed" not in capsys.readouterr().out


def test_quitting_gives_the_run_up(terminal):
    terminal.type("n")
    rest = terminal.leave("q")
    assert "RESULT None" in rest and "SHARED [0. 0.]" in rest


def test_end_of_input_quits(terminal):
    terminal.child.sendeof()
    terminal.child.expect(pexpect.EOF)
    assert "RESULT None" in terminal.child.before


def test_help_history_and_repetition(terminal):
    screen = terminal.type("help")
    for word in ("next", "continue", "until", "back", "print", "where", "list", "quit", "watch"):
        assert word in screen
    assert "part of its operation's name" in terminal.type("help u")
    assert "no command 'dance'" in terminal.type("dance")
    assert "step 1," in terminal.type("n")
    assert "step 2," in terminal.type("")  # an empty line repeats
    assert "step 4," in terminal.type("n 2")
    # The arrow key brings the last line back.
    terminal.child.send("\x1b[A")
    terminal.child.sendline("")
    assert "step 6," in terminal.read() or "complete" in terminal.child.before
    screen = terminal.type("history")
    assert "help u" in screen and "n 2" in screen
    terminal.leave("q")


def test_mistyped_arguments(terminal):
    assert "is not a number" in terminal.type("n many")
    assert "u op NAME" in terminal.type("u")
    assert "u op NAME" in terminal.type("u op")
    assert "no command 'dance'" in terminal.type("help dance")
    assert "no variable 'nobody'" in terminal.type("p nobody")
    assert "no variable 'nobody'" in terminal.type("watch nobody")
    assert "no step before" in terminal.type("b")
    assert "the line is not known" in terminal.type("l")


def test_watching(terminal):
    terminal.type("watch y")
    screen = terminal.type("n")
    assert "watched y = " in screen


def test_until_bad_and_interrupt(tmp_path):
    terminal = Terminal(tmp_path, "[1.0, 0.0]")
    screen = terminal.type("u bad")
    assert "Log" in screen and "nan" in screen
    assert "! wrote" in screen and "<<< 1 NaN" in screen
    assert "q leaves" in terminal.interrupt()
    assert "no later node matches" in terminal.type("u op nothing_like_it")
    assert "step 1," in terminal.type("goto 1")
    assert "step 2," in terminal.type("n")
    assert "no step 1000" in terminal.type("goto 1000")
    assert "complete" in terminal.type("n")
    assert "step" in terminal.type("b")
    rest = terminal.leave("c")
    assert "RESULT nan" in rest and "SHARED [1. 1.]" in rest


@pytest.fixture
def prompt():
    """A prompt whose lines are typed by ``onecmd``, and what it has printed."""
    x = pt.dvector("x")
    w = pytensor.shared(np.zeros(2), "w")
    y = pt.exp(x)
    y.name = "y"
    f = pytensor.function(
        [x], pt.log(y - 2).sum(), updates={w: w + 1}, mode=Mode("py", None), name="model"
    )
    prompt = StepPrompt(Stepper(f, ([1.0, 0.0],)), stdout=io.StringIO())

    def typed(line):
        prompt.stdout.seek(0)
        prompt.stdout.truncate()
        prompt.left = prompt.onecmd(prompt.precmd(line))
        return prompt.stdout.getvalue()

    prompt.typed, prompt.shared = typed, w
    return prompt


def test_expressions_are_printed(prompt):
    assert "no value" in prompt.typed("p y + 1") or "not been computed" in prompt.typed("p y + 1")
    prompt.typed("u name y")
    assert "y - 1 = float64 (2,) [1.718282 0.      ]" in prompt.typed("p y - 1")
    assert "np.log(y).sum() = 1.0" in prompt.typed("p np.log(y).sum()")
    assert "outputs[0].max()" in prompt.typed("p outputs[0].max()")
    assert "SyntaxError" in prompt.typed("p y +")
    assert "ZeroDivisionError" in prompt.typed("p 1 / 0")


def test_values_have_statistics_and_a_mark():
    assert _about(np.ones(2)) == ""
    assert _about(np.array([1.0, np.nan])) == "  <<< 1 NaN"
    assert _about(np.arange(10.0)) == "  min=0 max=9 mean=4.5 bad=0"
    assert _about(np.float64("nan")) == "  <<< 1 NaN"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_fits_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x), mode=Mode("py", None))
    out = io.StringIO()
    prompt = StepPrompt(Stepper(f, (np.linspace(-1, 1, 40),)), stdout=out)
    for line in ("next", "print", "print x - 1", "help"):
        prompt.onecmd(line)
    assert "mean=" in out.getvalue()
    lines = [line for line in out.getvalue().splitlines() if ".py:" not in line]
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("shape", [(3, 7), (2, 2), (40,), (2, 3, 4)])
def test_rows_are_aligned_and_numbers_whole(shape, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    value = np.random.default_rng(0).normal(0, 1, shape) / 7
    value.flat[1] = np.nan
    lines = value_lines("! wrote a_rather_long_name_of_an_output", value)
    assert max(map(len, lines)) <= columns
    rows = [line for line in lines if line.lstrip().startswith("[")]
    if len(shape) > 1:
        assert len({row.index(".") for row in rows}) == 1
    for word in re.sub(r"[\[\]]|\.\.\.", " ", " ".join(rows)).split():
        assert word == "nan" or re.fullmatch(r"-?\d\.\d{2,6}", word)
    assert "<<< 1 NaN" in lines[0] + lines[1]


@pytest.mark.parametrize("wish", ["NO_COLOR", "FORCE_COLOR"])
def test_a_bad_value_is_red_where_there_are_colours(wish, monkeypatch):
    for name in ("PYTHON_COLORS", "NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(wish, "1")
    x = pt.dvector("x")
    out = io.StringIO()
    f = pytensor.function([x], pt.log(x), mode="CVM")
    StepPrompt(Stepper(f, ([-1.0, 2.0],)), stdout=out).onecmd("next")
    assert ("\x1b[1;31m! wrote" in out.getvalue()) == (wish == "FORCE_COLOR")
    assert ("\x1b" in out.getvalue()) == (wish == "FORCE_COLOR")


def test_going_to_a_step(prompt):
    assert "step 3," in prompt.typed("goto 3")
    assert "step 1," in prompt.typed("goto 1")
    assert "step 3," in prompt.typed("goto 3")
    assert "step 1," in prompt.typed("b 2")
    assert "goto N" in prompt.typed("goto") and "goto N" in prompt.typed("goto there")
    number = len(prompt.stepper.fgraph.apply_nodes)
    assert f"this is step {number}" in prompt.typed("goto 1000")
    assert not prompt.stepper.done


def test_until_does_not_run_past_the_end(prompt):
    prompt.typed("u op log")
    at = prompt.stepper.step.number
    said = prompt.typed("u name y")
    assert "no later node matches" in said and "goto " in said
    assert prompt.stepper.step.number == at
    assert "goto " not in prompt.typed("u line 1")
    prompt.typed("u bad")
    prompt.typed("u bad")
    assert "no later node matches" in prompt.typed("u bad")
    assert not prompt.stepper.done and prompt.shared.get_value().tolist() == [0.0, 0.0]
    prompt.typed("c")
    assert prompt.stepper.done and prompt.shared.get_value().tolist() == [1.0, 1.0]


def test_break_conditions(prompt):
    assert "break [if EXPR | clear]" in prompt.typed("break")
    assert "no variable 'nobody'" in prompt.typed("break if nobody > 1")
    assert "is not an expression" in prompt.typed("break if y >")
    assert prompt.typed("break if np.isnan(outputs[0]).any()") == ""
    assert "break if np.isnan" in prompt.typed("break")
    said = prompt.typed("c")
    assert "break: np.isnan" in said and "! wrote" in said
    assert not prompt.left and not prompt.stepper.done
    assert prompt.typed("break clear") == ""
    assert prompt.typed("c") == "done\n" or prompt.left


def test_a_condition_that_fails_stops(prompt):
    prompt.typed("break if y.nothing")
    assert "AttributeError" in prompt.typed("n 10")
    assert prompt.error is None


def test_a_terminal_that_is_not_in_utf_8():
    x = pt.dvector("größe\u2192")
    f = pytensor.function([x], pt.exp(x), mode="CVM")
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="ascii")
    StepPrompt(Stepper(f, ([1.0],)), stdout=out).onecmd("next")
    out.flush()
    assert b"read gr\\xf6\\xdfe\\u2192 = float64" in written.getvalue()


def test_help_lists_arguments(prompt):
    said = prompt.typed("help")
    for usage in (
        "next [COUNT]",
        "goto N",
        "until WHAT",
        "print [EXPR]",
        "break [if EXPR | clear]",
    ):
        assert usage in said
    assert "watch NAME" in prompt.typed("watch")


def test_a_node_that_fails(tmp_path):
    script = SCRIPT.replace("pt.log(y - 2)", 'pt.log(y - pt.dvector("q"))').replace(
        "[x], z", "[x, z.owner.inputs[0].owner.inputs[1]], z"
    )
    terminal = Terminal(tmp_path, "[1.0, 2.0], [1.0, 2.0, 3.0]", script)
    screen = terminal.type("u op log")
    assert "ValueError" in screen and "q leaves and raises" in screen
    assert "read y = " in screen
    rest = terminal.leave("q")
    assert "ValueError" in rest and "SHARED" not in rest
