"""Where PyTensor and the user's files lie says nothing about whose they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytensor

ROOT = Path(__file__).parents[2]


def test_gradients_keep_their_names_where_pytensor_lies_below_a_folder_of_tests(tmp_path):
    folder = tmp_path / "ab_tests"
    folder.mkdir()
    (folder / "pytensor").symlink_to(Path(pytensor.__file__).parent)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-k", "names_cost_forward_node or both_directions or two_costs"),
            "tests/provenance/test_provenance.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


def test_a_user_s_folder_may_be_named_like_pytensor_s(tmp_path):
    file = tmp_path / "pytensor" / "tensor" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text("import pytensor.tensor as pt\ny = pt.exp(pt.dvector('x'))\n")
    code = (
        "import runpy, theanoguard, pytensor\n"
        f"y = runpy.run_path({str(file)!r})['y']\n"
        "print(y.tag.trace[0][-1][:2])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == str((str(file), 2))
