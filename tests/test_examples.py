"""The examples and the README, run as a user runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import theanoguard

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.rst").read_text(encoding="utf-8")


def run(*arguments):
    """Run Python with `arguments`, on the theanoguard that is being tested."""
    path = [str(Path(theanoguard.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
    )


def train_digits(*arguments):
    return run(ROOT / "examples" / "train_digits.py", *arguments)


def test_digits_are_learnt():
    result = train_digits()
    assert result.returncode == 0, result.stderr
    *epochs, last = result.stdout.splitlines()
    assert [line.split()[:2] for line in epochs] == [["epoch", str(n)] for n in range(1, 11)]
    assert float(re.fullmatch(r"test accuracy (\d\.\d+)", last)[1]) > 0.93


def test_the_same_seed_gives_the_same_run():
    first, again, other = (
        train_digits("--epochs", "1", "--seed", seed).stdout for seed in ("3", "3", "4")
    )
    assert first == again != other


def test_divergence_is_stopped():
    result = train_digits("--learning-rate", "100")
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    *message, last = result.stdout.splitlines()
    assert last == "Every weight is still finite."
    assert re.match(r"(NaN|Inf|Big value) in ", message[0])
    assert "test accuracy" not in result.stdout


@pytest.mark.parametrize("option", ["--learning-rate", "--epochs", "--batch-size"])
def test_a_bad_argument_is_named(option):
    result = train_digits(option, "0")
    assert result.returncode == 2
    assert result.stderr.endswith(f"error: {option} must be positive\n")


def test_readme_example(tmp_path):
    block = re.search(r"code-block:: python\n\n((?:    .*\n|\n)+)", README)[1]
    script = tmp_path / "readme.py"
    script.write_text(re.sub("^    ", "", block, flags=re.MULTILINE), encoding="utf-8")
    result = run(script)
    assert result.returncode == 0, result.stderr
    total, *message = result.stdout.splitlines()
    assert float(total) == pytest.approx(1.791759469228055)
    assert message[0].startswith("Inf in ")


def test_ci_runs_the_command_of_the_readme():
    command = re.search(r"^    (.* tox.*)$", README, re.MULTILINE)[1]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
