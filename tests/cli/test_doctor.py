"""The doctor: on a sound machine, on broken ones, and in words."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytensor import config

import theanoguard
from theanoguard.cli import doctor
from theanoguard.cli.doctor import OK, PROBLEM, WARNING, Finding

pytestmark = pytest.mark.on_30

ROOT = Path(theanoguard.__file__).parents[1]


def examine(flags="", **variables):
    """Run ``theanoguard doctor --json`` under further flags of PyTensor.

    Returns the exit status and the findings by name.
    """
    flags = ",".join(filter(None, [os.environ.get("PYTENSOR_FLAGS"), flags]))
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "theanoguard", "doctor", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTENSOR_FLAGS": flags, **variables},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in result.stderr
    answer = json.loads(result.stdout)
    assert answer["schema"] == "theanoguard.doctor/1"
    assert answer["works"] == (result.returncode == 0)
    return result.returncode, {f["name"]: Finding(**f) for f in answer["findings"]}


def test_this_machine(has_cxx, tmp_path):
    settings = tmp_path / "pytensorrc"
    settings.write_text("# mine\n[global]\nopenmp = False\n")
    status, found = examine("flaotX=float32", PYTENSORRC=str(settings))
    assert status == 0
    assert "GuardMode() compiles for C" in found["backend"].value
    assert found["guard"].value == f"stops at a NaN (checked in {'C' if has_cxx else 'NumPy'})"
    assert found["kernel"].value == (
        "builds, loads, and finds a NaN and an Inf" if has_cxx else "not built without a compiler"
    )
    assert found["compiler"].status == (OK if has_cxx else WARNING)
    assert not has_cxx or found["arithmetic"].status == OK
    assert "flaotX" in found["unknown flag"].value
    assert found[str(settings)].value == "[global]; openmp = False"
    expected = "python theanoguard pytensor numpy scipy jax numba torch platform BLAS compiledir"
    assert {*expected.split(), "floatX"} <= found.keys()
    assert "flaotX=float32" in found["PYTENSOR_FLAGS"].value
    assert all(f.advice for f in found.values() if f.status != OK)


def test_flags_that_change_the_arithmetic(needs_cxx):
    # (PyTensor compiles each operation for itself; with -ffast-math its maximum forgets the NaN)
    status, found = examine(f"gcc__cxxflags={config.gcc__cxxflags} -O3 -ffast-math")
    assert status == 0
    assert found["kernel"].status == OK
    assert found["guard"].status == OK
    assert found["arithmetic"].status == WARNING
    assert found["arithmetic"].value.startswith("gcc__cxxflags has -ffast-math: ")
    assert "isnan() does not see a NaN" in found["arithmetic"].value
    assert "Remove -ffast-math" in found["arithmetic"].advice


def test_without_a_compiler():
    status, found = examine("cxx=")
    assert status == 0
    assert found["compiler"].status == WARNING
    assert found["guard"] == Finding("guard", "stops at a NaN (checked in NumPy)")


def test_a_compiler_that_is_not_there():
    status, found = examine("cxx=/no/such/compiler")
    assert status == 1
    for name in ("compiler", "kernel", "guard"):
        assert found[name].status == PROBLEM
        assert "No such file or directory: '/no/such/compiler'" in found[name].value
    assert "PYTENSOR_FLAGS=cxx=" in found["compiler"].advice


def compiler(folder, script):
    """Write a program that stands for a compiler."""
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize(
    ("script", "version", "value", "advice"),
    [
        pytest.param("exit 1", PROBLEM, "Compilation failed", "g++", id="fails"),
        pytest.param("exit 0", OK, "cannot open shared object file", "g++", id="makes nothing"),
        pytest.param(
            "case $1 in --version) echo broken 1.0; exit 0;; esac\n"
            "echo 'mod.cpp:1:10: fatal error: Python.h: No such file or directory' >&2\n"
            "exit 1",
            OK,
            "fatal error: Python.h: No such file or directory",
            "python3-dev",
            id="no headers",
        ),
    ],
)
def test_a_broken_compiler(tmp_path, script, version, value, advice):
    status, found = examine(f"cxx={compiler(tmp_path, script)}")
    assert status == 1
    assert found["compiler"].status == version
    assert found["kernel"].status == PROBLEM
    assert value in found["kernel"].value
    assert advice in found["kernel"].advice
    assert found["guard"].status == PROBLEM
    assert not any("the check failed" in finding.value for finding in found.values())


def test_a_blas_that_does_not_link(needs_cxx):
    status, found = examine("blas__ldflags=-lno_such_blas")
    assert status == 1
    assert found["guard"].status == OK
    assert found["BLAS"].status == PROBLEM
    assert found["BLAS"].value.startswith("-lno_such_blas does not link")


def test_a_compiledir_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "config", SimpleNamespace(compiledir=tmp_path / "gone"))
    named, writable = doctor._compiledir()
    assert named.value == str(tmp_path / "gone")
    assert writable.status == PROBLEM
    assert "base_compiledir" in writable.advice


def test_little_space(monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 5000)
    monkeypatch.setattr(doctor, "config", SimpleNamespace(compiledir=tmp_path))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    *_, size, space = doctor._compiledir()
    assert size.value == "4.9 KiB"
    assert (space.value, space.status) == ("3.0 MiB", WARNING)


def test_a_check_that_fails_is_a_finding(monkeypatch, capsys):
    def _moon():
        print("noise")
        raise RuntimeError("no moon tonight")

    monkeypatch.setattr(doctor, "CHECKS", (_moon,))
    [finding] = doctor.collect()
    assert finding.value == "the check failed: RuntimeError: no moon tonight"
    assert finding.status == PROBLEM
    assert capsys.readouterr().out == ""


FINDINGS = [
    Finding("python", "3.12.1 (CPython)"),
    Finding("compiler", "/opt/g++ does not run", PROBLEM, doctor.BUILD_ADVICE[-1][1]),
    Finding("kernel", "does not build", PROBLEM, doctor.BUILD_ADVICE[-1][1]),
    Finding("BLAS", "none to link to", WARNING, doctor.BLAS_ADVICE),
    Finding("PYTENSOR_FLAGS", "'cxx=\x1b[31m'"),
]


def test_text(golden):
    golden("doctor", doctor.render_text(FINDINGS) + "\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_fits_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = Finding("compiledir writable", "a value of many words " * 10)
    lines = doctor.render_text([*FINDINGS, long]).splitlines()
    # (a command without spaces is not broken)
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)


@pytest.mark.parametrize(
    ("findings", "works", "verdict"),
    [
        (FINDINGS, False, "The guard does not work: 1 warning, 2 problems."),
        (FINDINGS[3:], True, "The guard works: 1 warning."),
        (FINDINGS[:1], True, "The guard works."),
    ],
)
def test_verdict(findings, works, verdict, monkeypatch, capsys):
    assert doctor.works(findings) is works
    assert doctor.render_text(findings).splitlines()[-1] == verdict
    monkeypatch.setattr(doctor, "collect", lambda: findings)
    assert doctor.run(SimpleNamespace(project=None, json=False, all=False, requirements=False)) == (
        0 if works else 1
    )
    assert capsys.readouterr().out.rstrip().endswith(verdict)
