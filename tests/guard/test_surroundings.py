"""The guarded function is the user's function in unusual surroundings as well.

A small program runs guarded and unguarded in a process of its own, and compares bits.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import resource
import sys

import numpy as np
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import scipy.sparse
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode

backend, special = sys.argv[1:]
pytensor.config.numba__fastmath = False  # (which rounds sums otherwise in another function)
plain = Mode({"c": "cvm" if pytensor.config.cxx else "vm"}.get(backend, backend), "fast_run")
if special == "openmp":
    pytensor.config.openmp = True
    pytensor.config.openmp_elemwise_minsize = 10


def play(mode):
    x, a = pt.dvector("x"), sparse.csr_matrix("a", dtype="float64")
    s = pytensor.shared(np.ones(1000), name="s")
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    next_rng, draw = pt.random.normal(size=(3,), rng=rng).owner.outputs
    outputs = [pt.log(x).sum(), s, pt.exp(-x) * x + 1, draw]
    outputs += [sparse.structured_dot(a, a.T).sum()] if backend == "c" else []
    inputs = [x, a] if backend == "c" else [x]
    f = pytensor.function(inputs, outputs, updates={s: s * 0.5 + x, rng: next_rng}, mode=mode)
    good = np.linspace(0.1, 9, 1000)
    found = []
    for i in range(3):
        given = [good + i, scipy.sparse.identity(4, format="csr") * (i + 1.0)][: len(inputs)]
        found += [np.asarray(v).tobytes() for v in f(*given)]
        found += [s.get_value().tobytes(), str(rng.get_value().bit_generator.state)]
    return f, s, found, given


_, _, expected, _ = play(plain)
f, s, found, given = play(GuardMode(backend=backend, nan_is_error=True, inf_is_error=True))
assert found == expected, [i for i, (a, b) in enumerate(zip(found, expected)) if a != b]
before = s.get_value().tobytes()
given[0][1] = -1
if special == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # (no file gets a byte more)
try:
    f(*given)
except GuardError as error:
    assert "log" in str(error).lower(), error
else:
    raise AssertionError("no error")
assert s.get_value().tobytes() == before
print("as without a guard")
"""


def start(backend, tmp_path, flags="", special="", **environment):
    """Start the program in the surroundings."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    names = {**os.environ, **environment}
    names["PYTENSOR_FLAGS"] = ",".join(filter(None, [os.environ.get("PYTENSOR_FLAGS"), flags]))
    names = {name: value for name, value in names.items() if value is not None}
    command = [sys.executable, str(program), backend, special]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=names, cwd=tmp_path, text=True, **pipes)


def finish(process):
    """Assert that the program has compared everything."""
    text = process.communicate()[0]
    assert process.returncode == 0 and "as without a guard" in text, text[-3000:]


SURROUNDINGS = {
    "no hooks": {"THEANOGUARD_HOOKS": "0"},
    "no home": {"HOME": None, "XDG_CACHE_HOME": None},
    "a home that is no folder": {"HOME": "/dev/null", "XDG_CACHE_HOME": None},
    "a full disk": {"special": "full"},
    "OpenMP": {"special": "openmp"},
    "fast-math": {"flags": "gcc__cxxflags=-O2 -ffast-math"},
}
ON_NUMBA = ["no hooks", "a full disk"]


@pytest.mark.parametrize(
    "name, backend",
    [*((name, "c") for name in SURROUNDINGS), *((name, "numba") for name in ON_NUMBA)],
)
def test_results_are_those_without_a_guard(name, backend, tmp_path):
    finish(start(backend, tmp_path, **SURROUNDINGS[name]))


def test_processes_share_a_compile_folder(tmp_path):
    flags = f"base_compiledir={tmp_path / 'compiled'},gcc__cxxflags=-O0"
    folders = [tmp_path / str(i) for i in range(3)]
    for folder in folders:
        folder.mkdir()
    processes = [start("c", folder, flags) for folder in folders]
    for process in processes:
        finish(process)


def test_a_compile_folder_that_cannot_be_written_fails_as_without_a_guard(tmp_path):
    """Without the guard PyTensor says so when it is imported."""
    folder = Path(tmp_path, "file")
    folder.write_text("")
    process = start("c", tmp_path, f"base_compiledir={folder}")
    text = process.communicate()[0]
    assert process.returncode != 0 and "theanoguard" not in text.replace(str(tmp_path), ""), text
