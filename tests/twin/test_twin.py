"""A small part of the twin, in processes of their own; ``tests/twin/run.py`` plays on."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pytensor.compile.mode import Mode

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fuzz")]

import twins  # noqa: E402
from pieces import write_piece  # noqa: E402

_spec = importlib.util.spec_from_file_location("twin_run", HERE / "run.py")
twin_run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(twin_run)  # (the fuzzer has a module of the name "run")


def run(*arguments):
    command = [sys.executable, str(HERE / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "backend, programs",
    # (tests/conftest.py has Numba on PyTensor 3.3: with 3.0 it computes both branches of an ifelse,
    # and checks no index there.)
    [("c", 10), ("numba", 2)],
)
def test_the_guarded_function_is_the_users_function(backend, programs):
    found = run("--backend", backend, "--programs", programs, "--pieces", 4, "--worlds", 3)
    assert found.returncode == 0, found.stdout + found.stderr
    *_, (played, good) = re.findall(r"(\d+) programs, \d+ calls, (\d+) good calls", found.stdout)
    assert int(played) >= programs - 1 and int(good) > programs


@pytest.mark.slow
@pytest.mark.parametrize("backend, package", [("jax", "jax"), ("pytorch", "torch")])
def test_what_a_call_changes_at_its_end(backend, package):
    """Outputs that are updated, functions on one variable, arrays that somebody holds."""
    pytest.importorskip(package)
    found = run("--backend", backend, "--family", "state", "--programs", 8, "--pieces", 4)
    assert found.returncode == 0, found.stdout + found.stderr
    assert int(re.findall(r"(\d+) good calls", found.stdout)[-1]) > 8


def test_an_unguarded_function_is_told_from_a_guarded_one(monkeypatch):
    """Without a guard, a call that makes a NaN raises nothing: the twin misses the error.

    Ctrl-C may interrupt it between two updates.
    """
    monkeypatch.setattr(twins, "GuardMode", lambda **settings: Mode("vm", settings["optimizer"]))
    gated = [world for world in range(40) if write_piece(world * 100, family="operations").gate]
    failures = [
        failure.what
        for world in gated[:4]
        for failure in twins.play(world, "c", 1, settings={}, family="operations").failures
    ]
    assert "miss" in failures and set(failures) <= {"miss", "torn"}


def test_a_result_that_changes_is_found(monkeypatch):
    """A guarded function that gives the next state instead of the last is found."""
    attempt = twins.World.attempt

    def spoilt(self, function, arguments):
        found, error = attempt(self, function, arguments)
        if function in self.guarded.functions.values():
            found = [result + 1 if hasattr(result, "dtype") else result for result in found]
        return found, error

    monkeypatch.setattr(twins.World, "attempt", spoilt)
    tally = twins.play(1, "c", 1, settings={})
    assert any(failure.what == "output" for failure in tally.failures)


@pytest.mark.parametrize(
    "phase, counted",
    [("calling guarded", "FAILED crash"), ("calling the twin", "crash of the twin")],
)
def test_a_crash_is_a_result(phase, counted, tmp_path, monkeypatch, capsys):
    (tmp_path / "run.py").write_text(
        "import os, signal, sys\n"
        f"open(sys.argv[2], 'r+').write({phase!r})\n"
        "print('{\"world\": 100001}', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    monkeypatch.setattr(twin_run, "HERE", tmp_path)
    status = twin_run.main(["--world", "100001"])
    assert status == counted.startswith("FAILED")
    assert counted in capsys.readouterr().out


def test_a_fault_of_the_twin_itself_is_a_failure():
    assert "FAILED crash" in run("--world", 1, "--family", "unknown").stdout
