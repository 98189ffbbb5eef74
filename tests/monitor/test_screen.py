"""The full-screen stepper as a person uses it, by Textual's pilot."""

import asyncio
import html
import io
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard.monitor import MonitorMode, Stepper, step_in_terminal

pytest.importorskip("textual")

from textual.worker import WorkerCancelled

from theanoguard.monitor.screen import StepScreen

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MODEL = """
x = pt.dvector("x")
w = pytensor.shared(np.ones(2), name="w")
p = x * w - 0.5
p.name = "p"
loss = -pt.log(p).sum()
loss.name = "loss"
mode = MonitorMode().excluding("fusion", "inplace")
train = pytensor.function([x], loss, updates={w: 0.9 * w}, mode=mode, name="train")
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(MODEL)
    names = {"np": np, "pt": pt, "pytensor": pytensor, "MonitorMode": MonitorMode}
    exec(compile(MODEL, str(path), "exec"), names)
    return {**names, "directory": path.parent}


@pytest.fixture
def train(compiled, monkeypatch):
    monkeypatch.chdir(compiled["directory"])
    compiled["w"].set_value(np.ones(2))
    return compiled["train"]


class Screen:
    """Keys are pressed, and the parts of the screen are read."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot

    async def press(self, *keys):
        await self.pilot.press(*keys)
        with suppress(WorkerCancelled):
            await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    def text(self, name):
        return str(self.app.query_one(f"#{name}").render())

    def picture(self):
        """Return what is on the screen, as text."""
        shown = self.app.export_screenshot(simplify=True)
        return html.unescape(re.sub("<[^>]*>", "", shown)).replace("\xa0", " ")

    def rows(self, name):
        table = self.app.query_one(f"#{name}")
        return [[str(cell) for cell in table.get_row_at(i)] for i in range(table.row_count)]


def seen(stepper, session, size=(110, 22)):
    """Run a session: a coroutine that takes a `Screen`."""

    async def run():
        app = StepScreen(stepper)
        async with app.run_test(size=size) as pilot:
            await session(Screen(app, pilot))
        return app

    return asyncio.run(run())


def test_a_session(train, compiled, request):
    async def session(screen):
        assert "before the first" in screen.text("where")
        assert {row[3] for row in screen.rows("graph")} >= {"Log", "Mul", "Neg"}
        assert ["", "pt.log(p)", "model.py:6", "Log"] in screen.rows("graph")
        await screen.press("n")
        assert screen.text("where").startswith("step 1, ")
        await screen.press("u")
        assert "Log" in screen.text("where")
        assert re.search(r"^> +6  loss = -pt.log", screen.text("source"), re.MULTILINE)
        read, wrote = screen.rows("values")
        assert read[:2] == ["read", "p"] and read[3] == "-0.1 to 0.5"
        assert wrote[:2] == ["wrote", "pt.log(p)"] and wrote[2] == "1 NaN"
        [bad] = [row for row in screen.rows("graph") if "!" in row[0]]
        assert bad[1] == "pt.log(p)"
        picture = screen.app.export_screenshot(simplify=True)
        if request.config.getoption("--update-golden"):
            # Readers of the documentation use the fonts that they have.
            picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
            (IMAGES / "full_screen.svg").write_text(picture, encoding="utf-8")
        await screen.press("b")
        assert "Log" not in screen.text("where")
        await screen.press("c")
        assert "The call is complete: nan" in screen.text("note")
        assert all(row[0] for row in screen.rows("graph"))
        await screen.press("ctrl+home", "enter")
        assert screen.text("where").startswith("step 1, ")
        await screen.press("q")

    stepper = Stepper(train, ([1.0, 0.4],))
    assert seen(stepper, session).error is None
    assert np.isnan(stepper.result)
    assert compiled["w"].get_value().tolist() == [0.9, 0.9]


def test_a_row_is_chosen_before_it_has_run(train):
    async def session(screen):
        await screen.press("ctrl+end", "enter")
        assert all(row[0] for row in screen.rows("graph"))
        assert "complete" not in screen.text("note")
        await screen.press("n")
        assert "c completes the call" in screen.text("note")
        await screen.press("u")
        assert "No later step is bad" in screen.text("note")

    seen(Stepper(train, ([1.0, 2.0],)), session)


def test_leaving_gives_the_call_up(train, compiled):
    async def session(screen):
        await screen.press("n", "b", "q")

    stepper = Stepper(train, ([1.0, 2.0],))
    seen(stepper, session)
    assert stepper.result is None
    assert compiled["w"].get_value().tolist() == [1.0, 1.0]


def test_a_node_that_fails(train):
    async def session(screen):
        await screen.press("c")
        assert "Input dimension mismatch" in screen.text("note")
        assert "The node has failed" in screen.text("note")

    x, y = pt.dvectors("x", "y")
    f = pytensor.function([x, y], pt.exp(x) + y, mode=MonitorMode())
    assert isinstance(seen(Stepper(f, ([1.0, 2.0], [1.0, 2.0, 3.0])), session).error, ValueError)


PROGRAM = """
import numpy as np, pytensor, pytensor.tensor as pt
from theanoguard import GuardMode
images, labels = pt.dmatrix("images"), pt.lvector("labels")
weights = pytensor.shared(np.random.default_rng(1).normal(0, 40, (12, 5)), name="weights")
scores = pt.exp(images @ weights)
probs = scores / scores.sum(axis=1, keepdims=True)
loss = -pt.log(probs[pt.arange(labels.shape[0]), labels] - 1e-6).mean()
updates = [(weights, weights - 0.1 * pt.grad(loss, weights))]
train = pytensor.function([images, labels], loss, updates=updates, mode=GuardMode())
data = np.random.default_rng(2).normal(0, 1, (16, 12)), np.arange(16) % 5
"""


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_what_matters_is_seen(size, tmp_path):
    path, names = tmp_path / "train.py", {}
    path.write_text(PROGRAM)
    exec(compile(PROGRAM, str(path), "exec"), names)

    async def session(screen):
        await screen.press("u")
        await screen.press("u")
        seen = screen.picture()
        [number] = screen.app.stepper.bad_steps[1:2] or [None]
        assert f"{number} !" in seen
        for shown in ("Expression", "train.py:8", "loss = -", "NaN and Inf", "Range", " NaN"):
            assert shown in seen, shown
        await screen.press("question_mark")
        assert "leave; a call that is not complete" in screen.picture()
        await screen.press("escape", "c", "u")
        assert "No later step is bad" in screen.picture() or "is complete" in screen.picture()

    seen(Stepper(names["train"], names["data"]), session, size)


def test_a_long_run_says_how_far_it_is_and_can_be_stopped(monkeypatch):
    x = pt.dvector("x")
    y = x
    for _ in range(100):
        y = pt.cumsum(y)
    stepper = Stepper(pytensor.function([x], y, mode="CVM"), (np.ones(3),))
    monkeypatch.setattr("theanoguard.monitor.screen.REFRESH", 0.0)
    told = []

    async def session(screen):
        say = screen.app.say

        def stopping(text, style=""):
            told.append(text)
            say(text, style)
            if text.startswith("Step 40 "):
                screen.app.action_interrupt()

        screen.app.say = stopping
        await screen.press("u")
        assert stepper.number == 40 and "Stopped" in told[-1]
        await screen.press("u")
        assert stepper.number == 100 and told[-1] == "No later step is bad."
        await screen.press("ctrl+c")
        assert told[-1] == "q leaves."

    seen(stepper, session)
    assert "Step 7 of 100. Ctrl-C stops." in told


@pytest.mark.parametrize("size", [(60, 20), (120, 40)])
def test_names_are_only_text(size):
    async def session(screen):
        await screen.press("c")
        assert "[red]" in screen.rows("values")[0][1]

    x = pt.dvector("[red]x[/nothing]")
    seen(Stepper(pytensor.function([x], pt.exp(x), mode="CVM"), ([1.0],)), session, size)


def test_without_a_terminal_it_says_so(train, monkeypatch):
    monkeypatch.setattr("sys.__stdin__", io.StringIO())
    with pytest.raises(RuntimeError, match="needs a terminal"):
        step_in_terminal(train, full_screen=True)([1.0, 2.0])


def test_it_is_opened_like_the_prompt(train, monkeypatch):
    def run(self):
        self.stepper.run()

    monkeypatch.setattr(StepScreen, "run", run)
    assert step_in_terminal(train, full_screen=True)([1.0, 2.0]) == pytest.approx(0.287682)
