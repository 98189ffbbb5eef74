"""The examples and the README, run as a user runs them."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import theanoguard

pytestmark = pytest.mark.on_33

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.rst").read_text(encoding="utf-8")
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@dataclass(frozen=True)
class Example:
    """How an example is run, where that is not ``python examples/<name>.py``.

    Parameters
    ----------
    says : str
        A part of what it prints.
    arguments : tuple of str
    launcher : tuple of str
        What stands between Python and the script.
    needs : tuple of str
        Optional packages that it imports; without them it is skipped.
    status : int
        With which it ends.
    """

    says: str = ""
    arguments: tuple = ()
    launcher: tuple = ()
    needs: tuple = ()
    status: int = 0


# One line for each example that differs from Example().
HOW = {
    "compare_backends": Example(says="float32 differs first at exp"),
    "dask_guard": Example(says=", task chain-1", needs=("distributed",)),
    "pymc_explain": Example(says="Inf in power: 0.0 ** (-0.1) = inf", needs=("pymc",)),
    "pymc3_sample": Example(
        says="slope: 1.9",
        launcher=("-m", "theanoguard", "run", "--numpy-compat", "--python-compat"),
        needs=("pymc3",),
    ),
    "explain_a_nan": Example(says="NaN in sqrt: sqrt(-1.199) at element [1]"),
    "gradient_guard": Example(says="batch 20 changed no weight"),
    "lint_a_model": Example(says="after repair: []"),
    "monitor_every_node": Example(says="*** NaN detected ***"),
    "print_and_assert": Example(says="required: shares >= 0"),
    # The examples of a repository's own tests are run without its settings.
    "pytest_guard": Example(
        says="NaN in log",
        launcher=("-m", "pytest", "-c", os.devnull, "-p", "theanoguard"),
        arguments=("--guard",),
        status=1,
    ),
    "read_a_log": Example(says="norm, call 3: nan at (0,)"),
    "save_a_reproduction": Example(says="nan at element (1, 1)"),
    "since_when": Example(says="Since call 301: the updates of W2 grow 1.01-fold a call."),
    "skip_bad_steps": Example(says="2 of 100 steps skipped"),
    "stable_forms": Example(says="stabilized loss  500.157, gradient [[-0.5, 0.5]"),
    "step_through": Example(says="before it: Cumsum{axis=0}"),
    "theano_script": Example(says="right: ", launcher=("-m", "theanoguard", "run")),
    "track_in_mlflow": Example(says="Since call 95: the input y", needs=("mlflow",)),
    "track_in_tensorboard": Example(says="Since call 95: the input y", needs=("tensorboardX",)),
    "train_digits": Example(says="epoch   1", arguments=("--epochs", "1")),
    "values_while_building": Example(says="built at"),
    "watch_weights": Example(says="nan in weight bias: epoch 3, batch 8"),
    "where_nodes_come_from": Example(says="Log: local_logsoftmax"),
}


def run(*arguments, cwd=None):
    """Run Python with `arguments`, on the theanoguard that is being tested."""
    path = [str(Path(theanoguard.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        cwd=cwd,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    how = HOW.get(name, Example())
    missing = [package for package in how.needs if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    script = ROOT / "examples" / f"{name}.py"
    result = run(*how.launcher, script, *how.arguments, cwd=tmp_path)
    assert result.returncode == how.status, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout.strip()
    assert how.says in result.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_says_what_it_is_for(name):
    tree = ast.parse((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert f"``{name}.py``" in (ROOT / "examples" / "README.rst").read_text(encoding="utf-8")


def test_every_line_of_the_table_is_of_an_example():
    assert HOW.keys() <= set(EXAMPLES)


def train_digits(*arguments):
    return run(ROOT / "examples" / "train_digits.py", *arguments)


def test_digits_are_learnt():
    result = train_digits()
    assert result.returncode == 0, result.stderr
    *epochs, last = result.stdout.splitlines()
    assert [line.split()[:2] for line in epochs] == [["epoch", str(n)] for n in range(1, 11)]
    assert float(re.fullmatch(r"test accuracy (\d\.\d+)", last)[1]) > 0.93


@pytest.mark.deep  # (three programs)
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


@pytest.mark.deep  # (two programs)
def test_a_progress_bar_fits_in():
    pytest.importorskip("tqdm")
    plain, barred = (train_digits("--epochs", "1", *extra) for extra in ((), ("--progress",)))
    assert barred.returncode == 0, barred.stderr
    assert "1/1" in barred.stderr
    assert barred.stdout.split() == plain.stdout.split()


@pytest.mark.parametrize("option", ["--learning-rate", "--epochs", "--batch-size"])
def test_a_bad_argument_is_named(option):
    result = train_digits(option, "0")
    assert result.returncode == 2
    assert result.stderr.endswith(f"error: {option} must be positive\n")


def test_ci_runs_the_command_of_the_readme():
    command = re.search(r"^    (.* tox.*)$", README, re.MULTILINE)[1]
    all_environments = command.replace("run-parallel", "run-parallel -m ci")
    assert all_environments in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
