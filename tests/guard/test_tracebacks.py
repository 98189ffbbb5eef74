"""The last frame that a person sees of a guard error is the user's call."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.on_33

MODEL = """
import threading
import numpy as np
import pytensor
import pytensor.tensor as pt
from theanoguard import GuardMode

x = pt.dvector("x")
f = pytensor.function([x], pt.log(x), mode=GuardMode())

def train():
    return f(np.array([-1.0]))
"""

PROGRAMS = {
    "script": "\ntrain()\n",
    "thread": "\nthread = threading.Thread(target=train)\nthread.start()\nthread.join()\n",
    "test": "\ndef test_model():\n    train()\n",
}


def output_of(folder, program, *command, **environment):
    path = folder / "test_model.py"
    path.write_text(MODEL + PROGRAMS[program])
    result = subprocess.run(
        [sys.executable, *command, path.name],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return result.stdout + result.stderr


@pytest.mark.parametrize("program", ["script", "thread"])
def test_python_shows_the_users_frames(tmp_path, program):
    text = output_of(tmp_path, program)
    frames = [line for line in text.splitlines() if line.lstrip().startswith("File ")]
    assert "test_model.py" in frames[-1]
    assert "in train" in frames[-1]
    assert "linker.py" not in text
    assert "NaN in log: log(-1.0) at element [0]" in text


def test_everything_is_shown_on_request(tmp_path):
    text = output_of(tmp_path, "script", THEANOGUARD_FULL_TRACEBACK="1")
    assert "linker.py" in text


@pytest.mark.parametrize(("option", "is_full"), [("--tb=auto", False), ("--full-trace", True)])
def test_pytest_shows_the_users_frames(tmp_path, option, is_full):
    # (a module that is loaded a second time as a plugin counts once)
    command = ("-m", "pytest", "-q", option, "-p", "no:theanoguard", "-p", "theanoguard._pytest")
    text = output_of(tmp_path, "test", *command)
    assert "1 failed" in text
    assert ("linker.py" in text) is is_full
    assert ("test_model.py:12: GuardError" in text) is not is_full


def test_ipython_shows_the_users_frames(tmp_path):
    pytest.importorskip("IPython", reason="IPython is not installed")
    text = output_of(tmp_path, "script", "-m", "IPython", "--colors=nocolor")
    assert "train()" in text
    assert "linker.py" not in text
    assert text.count("NaN in log: log(-1.0) at element [0]") >= 1
