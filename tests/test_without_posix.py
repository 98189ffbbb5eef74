"""The guard, its log and the command line where Python lacks what only POSIX has, as on Windows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import theanoguard
from theanoguard import _files
from theanoguard.guard.c import build
from theanoguard.log import read_log, read_logs

pytestmark = pytest.mark.on_30

WITHOUT = Path(__file__).parent / "without_posix"
ROOT = Path(theanoguard.__file__).parents[1]

PROGRAM = """
import os, sys
import numpy as np, pytensor, pytensor.tensor as pt
from theanoguard import GuardError, GuardMode
from theanoguard.log import EventLog

backend, path, name = sys.argv[1:]
assert not hasattr(os, "fork") and not hasattr(os, "pread") and sys.modules["fcntl"] is None
x = pt.dvector("x")
w = pytensor.shared(np.ones(2), name="w")
log = EventLog(path, max_bytes=20_000, backups=50)
modes = [GuardMode(backend=backend, action=action, log=log) for action in ("raise", "record")]
f, g = (
    pytensor.function([x], pt.log(x), updates=[(w, w + x)], mode=mode, name=name) for mode in modes
)
assert f([1.0, np.e]).tolist() == [0.0, 1.0]
try:
    f([1.0, -1.0])
except GuardError as error:
    print(str(error).splitlines()[0])
assert w.get_value().tolist() == [2.0, 1.0 + np.e]
for n in range(60):
    g([-1.0, 1.0])
"""

SCRIPT = """
import pytensor, pytensor.tensor as pt

x = pt.dvector("x")
f = pytensor.function([x], pt.log(x).sum())
f([0.0])
"""


def started(*arguments, cwd):
    paths = os.pathsep.join([str(WITHOUT), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process, status=0):
    output, errors = process.communicate()
    assert process.returncode == status, errors
    return output


@pytest.mark.parametrize("backend", ["c", "numba"])
def test_processes_guard_and_share_a_log(backend, tmp_path):
    path = tmp_path / "events.jsonl"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    workers = [started(program, backend, path, name, cwd=tmp_path) for name in "fg"]
    for worker in workers:
        assert output_of(worker) == "NaN in log: log(-1.0) at element [1]\n"
    files = sorted(tmp_path.glob("events.jsonl*"))
    log = read_logs(files)
    assert len(files) > 1 and log.damaged == 0
    assert sorted(entry.event.function for entry in log.entries) == ["f"] * 61 + ["g"] * 61
    report = output_of(started("-m", "theanoguard", "report", *files, "--count", cwd=tmp_path))
    assert report.splitlines()[1].split()[:2] == ["122", "nan"]


def test_the_command_line(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    guard = started("-m", "theanoguard", "run", "--guard=nan,inf", "script.py", cwd=tmp_path)
    lint = started("-m", "theanoguard", "lint", "script.py", cwd=tmp_path)
    _, error = guard.communicate()
    assert "log(0.0)" in error and guard.returncode == 1
    assert "script.py:5" in output_of(lint, status=1)


def test_a_crash_loses_nothing_and_locks_nobody_out(tmp_path):
    path = tmp_path / "log"
    crash = PROGRAM + "os._exit(9)\n"
    for _ in range(2):
        output_of(started("-c", crash, "c", path, "f", cwd=tmp_path), status=9)
    assert len(read_logs(tmp_path.glob("log*")).entries) == 2 * 61
    assert read_log(path).damaged == 0


# -- files that a program has open, which Windows replaces not


def refusing(monkeypatch, times):
    """Have the next tries to rename a file fail as on Windows; return the list of all tries."""
    tries, replace = [], os.replace

    def refused(source, target):
        tries.append((source, target))
        if len(tries) <= times:
            raise PermissionError(13, "the file is in use", source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", refused)
    monkeypatch.setattr(_files, "PAUSES", (0.0, 0.0, 0.0))
    return tries


def test_a_file_in_use_is_replaced_when_it_is_free(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_bytes(b"old")
    tries = refusing(monkeypatch, 2)
    _files.write_atomically(path, b"new")
    assert (path.read_bytes(), len(tries)) == (b"new", 3)


def test_a_file_that_stays_in_use_keeps_its_contents(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_bytes(b"old")
    tries = refusing(monkeypatch, 99)
    with pytest.raises(PermissionError) as caught:
        _files.write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert (path.read_bytes(), len(tries), list(tmp_path.iterdir())) == (b"old", 4, [path])


@pytest.mark.usefixtures("needs_cxx")
def test_a_library_that_another_process_has_built_is_taken(tmp_path, monkeypatch):
    text = "#include <Python.h>\nPyMODINIT_FUNC PyInit_small(void) { return NULL; }\n"
    library = tmp_path / "folder" / f"small.{build.library_extension()}"
    build.build(library, text)
    first = library.read_bytes()
    monkeypatch.setattr(build.shutil, "rmtree", lambda *args, **kwargs: None)
    refusing(monkeypatch, 99)
    build.build(library, text)  # it is in use
    assert library.read_bytes() == first
    library.unlink()
    with pytest.raises(PermissionError):
        build.build(library, text)
