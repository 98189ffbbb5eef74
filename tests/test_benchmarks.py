"""The benchmarks measure what they say: detectors are on, the mathematics is the same."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytensor
import pytest

from theanoguard import GuardError, GuardMode

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import instructions
import kernel
import peers
import scaling
import targets
import workloads
from timing import Variant, extra, interleaved, ratio

pytestmark = pytest.mark.on_33

measure = partial(interleaved, rounds=2, budget=0)


# ---------------------------------------------------------------- workloads

# The operations of the others are in these.
AUDITED_ALWAYS = ("mlp step", "exp(x) + y, 1M", "embedding update", "Adam, 1000x1000")
# PyTensor compiles the 5,000 nodes for minutes.  The chain of 300 has the same operations.
AUDITED = [name for name in workloads.WORKLOADS if name != "5,000 small nodes"]


@pytest.mark.parametrize("big", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in AUDITED_ALWAYS else [pytest.mark.slow])
        for name in AUDITED
    ],
)
def test_the_audit_agrees_on_every_workload(name, big, needs_cxx):
    """In healthy calls, and where an input or a shared variable is NaN."""
    make = workloads.WORKLOADS[name]
    inputs, outputs, updates, values = make("float32", np.random.default_rng(0))
    mode = GuardMode(True, True, big, audit=True)
    fn = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    for _ in range(2):
        fn(*values)
    for i, value in enumerate(values):
        if value.dtype.kind == "f":
            with pytest.raises(GuardError):
                fn(*values[:i], value * np.float32(np.nan), *values[i + 1 :])
    for variable in fn.get_shared():
        value = variable.get_value()
        variable.set_value(value * np.float32(np.nan))
        with pytest.raises(GuardError):
            fn(*values)
        variable.set_value(value)
    fn(*values)


# ---------------------------------------------------------------- timing


def test_variants_are_called_as_often_as_the_budget_allows():
    now, calls, resets = [0.0], [], []

    def taking(name, seconds):
        def call():
            calls.append(name)
            now[0] += seconds

        return Variant(call, lambda: resets.append(name))

    variants = {"plain": taking("plain", 1.0), "slow": taking("slow", 3.0)}
    times = interleaved(variants, rounds=4, budget=10, clock=lambda: now[0])
    assert times == {"plain": [1.0] * 4, "slow": [3.0] * 4}
    assert (ratio(times, "slow"), extra(times, "slow")) == (3.0, 2.0)
    # Three to find out, ten in each round, and one before each time.
    assert calls.count("plain") == 4 + 4 * 11
    assert calls.count("slow") == 4 + 4 * 4
    assert resets.count("plain") == 5


def test_only_figures_of_one_round_are_compared():
    times = {"plain": [1.0, 10.0, 100.0], "guard": [2.0, 20.0, 100.0]}
    assert (ratio(times, "guard"), extra(times, "guard")) == (2.0, 1.0)


# ---------------------------------------------------------------- the kernel


def test_each_scan_is_measured(needs_cxx):
    rows = kernel.measure("native", (10, 100), volume=400, repeats=1)
    assert {"read", "memcpy", "C", "Numba"} <= {row["what"] for row in rows}
    assert all(speed > 0 for row in rows for speed in row["GB/s"].values())
    assert kernel.render("here", rows, (10, 100)).count("\n") == len(rows) + 1


def test_a_program_is_started_again_for_another_target(monkeypatch):
    started = []
    monkeypatch.setattr(targets.os, "environ", {"PYTENSOR_FLAGS": "floatX=float32"})
    monkeypatch.setattr(targets.os, "execv", lambda *command: started.append(command))
    for _ in range(2):
        targets.enter("x86-64-v3")
    assert started == [(sys.executable, [sys.executable, *sys.argv])]
    assert targets.os.environ["NUMBA_CPU_NAME"] == "x86-64-v3"
    flags = targets.os.environ["PYTENSOR_FLAGS"]
    assert flags == "floatX=float32,gcc__cxxflags=-march=x86-64-v3"


# ---------------------------------------------------------------- peers


def test_every_detector_of_pytensor_fires(needs_cxx):
    found = peers.compare("pytensor", "W3", 1, 0)
    assert list(found["ratios"]) == ["again", "GuardMode", "NanGuardMode", "MonitorMode"]
    assert None not in found["ratios"].values()
    assert len(found["results"]) == 12  # of three calls: the density and three derivatives


@pytest.mark.parametrize("tool", ["torch", "jax", "tensorflow"])
def test_every_detector_of_the_peers_fires(tool, monkeypatch):
    module = peers.TOOLS[tool][1]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    for name, value in peers.ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    rows, failed = peers.run([tool], ["W4"], 1, 0)
    assert not failed
    assert [row["guard"] for row in rows][:2] == ["plain, ms", "again"]
    assert len(rows) > 2
    assert all(row["W4"] is not None for row in rows)


def doubling(detects=False, factor=2.0):
    """A variant that doubles, and may complain of NaN."""

    def call(x):
        if detects and np.isnan(x).any():
            raise FloatingPointError("there is a NaN")
        return [x * factor]

    return peers.Guarded(call, good=np.ones(2), bad=np.full(2, np.nan))


@pytest.fixture
def add_tool(monkeypatch):
    """``add_tool(name, variants)`` has peers know a tool that makes these variants."""

    def add(name, make):
        tool = (name.upper(), name, lambda workload: make())
        monkeypatch.setitem(peers.TOOLS, name, tool)

    return add


def test_a_detector_that_does_not_fire_is_off(add_tool, capsys):
    add_tool(
        "some",
        lambda: {
            "plain": doubling(),
            "again": doubling(),
            "deaf": doubling(),
            "guard": doubling(detects=True),
        },
    )
    rows, failed = peers.run(["some"], ["W3", "W4"], 1, 0, do=peers.compare)
    assert not failed
    values = {row["guard"]: row["W3"] for row in rows}
    assert values["deaf"] is None
    assert values["guard"] > 0
    peers.print_table(rows, ["W3", "W4"])
    table = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split()[-4:] for line in table if "deaf" in line] == [["deaf", "off", "off", "-"]]


def test_a_detector_that_goes_off_during_the_timing_is_off(add_tool):
    tired = doubling(detects=True)
    calls = []

    def call(x, detect=tired.call):
        calls.append(x)
        return detect(x) if len(calls) < 6 else [x * 2]

    tired.call = call
    add_tool("some", lambda: {"plain": doubling(), "again": doubling(), "guard": tired})
    assert peers.compare("some", "W3", 3, 0)["ratios"]["guard"] is None


def test_an_unguarded_function_must_not_complain(add_tool):
    add_tool("some", lambda: {"plain": doubling(detects=True), "again": doubling()})
    with pytest.raises(RuntimeError, match="the unguarded function complains of NaN"):
        peers.compare("some", "W3", 1, 0)


def test_other_mathematics_is_refused(add_tool, capsys):
    add_tool("one", lambda: {"plain": doubling(), "again": doubling()})
    add_tool("two", lambda: {"plain": doubling(factor=2.1), "again": doubling()})
    rows, failed = peers.run(["one", "two"], ["W3"], 1, 0, do=peers.compare)
    assert {row["tool"] for row in rows} == {"ONE"}
    assert failed == ["W3 TWO"]
    assert "two, W3, plain does not compute the same: it is off by 0.05" in capsys.readouterr().out


def test_what_is_absent_is_skipped_with_a_line(add_tool, capsys):
    def absent():
        raise ModuleNotFoundError("No module named 'absent'")

    add_tool("absent", absent)
    add_tool("one", lambda: {"plain": doubling(), "again": doubling()})
    rows, failed = peers.run(["absent", "one"], ["W3", "W4"], 1, 0, do=peers.compare)
    assert not failed
    assert {row["tool"] for row in rows} == {"ONE"}
    said = capsys.readouterr().out
    assert said.count("ABSENT: skipped, No module named 'absent'") == 1


# ---------------------------------------------------------------- scaling


@pytest.mark.parametrize(
    ("curve", "points"),
    [
        ("dtype", ["float64", "complex64"]),
        pytest.param("nodes", [1, 4], marks=pytest.mark.slow),
        pytest.param("elements", [10], marks=pytest.mark.slow),
        pytest.param("steps", [2], marks=pytest.mark.slow),
    ],
)
def test_the_points_of_a_curve(curve, points, needs_cxx):
    rows = list(scaling.CURVES[curve][0]("c", points, measure))
    assert {row["x"] for row in rows} == set(points)
    assert ("copy_ns_per_unit" in rows[0]) == (curve == "elements")
    head = scaling.heading(curve)
    assert all(len(scaling.line_of(row)) == len(head) for row in rows)


def test_threads(monkeypatch, needs_cxx):
    monkeypatch.setattr(scaling, "THREADED", ["exp(x) + y, 1M"])
    (row,) = scaling.with_threads("c", 1, measure)
    assert (row["what"], row["x"]) == ("exp(x) + y, 1M", 1)
    assert len(scaling.line_of(row)) == len(scaling.heading("threads"))


def test_the_fixed_cost_is_that_of_the_line():
    rows = [{"x": n, "extra_us": 0.5 + 0.04 * n} for n in (1, 10, 100, 1000)]
    rows.append({"x": 10_000, "extra_us": 1e6})  # out of the caches
    assert scaling.fixed_cost(rows) == pytest.approx({"per_call_ns": 500, "per_node_ns": 40})


def test_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    times = {"plain": [1.0], "again": [1.0], "guard": [1.1]}
    rows = [scaling.row_of("chain", n, times, n) for n in (1, 10)]
    scaling.plot({"nodes": rows}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- instructions


def test_what_perf_writes():
    written = "# started on Monday\n\n123456789,,instructions:u,1000,100.00,,\n"
    assert instructions.parse_perf(written) == 123456789
    assert instructions.parse_perf("<not supported>,,instructions:u,0,100.00,,\n") is None


def test_without_tools_nothing_is_counted(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert instructions.choose() is None
    assert capsys.readouterr().out.splitlines() == [
        "perf: skipped, there is no perf on the path",
        "valgrind: skipped, there is no valgrind on the path",
    ]


@pytest.mark.slow
def test_instructions_are_counted(tmp_path, needs_cxx, capsys):
    tool = instructions.choose()
    if tool is None:
        pytest.skip(capsys.readouterr().out)
    (row,) = instructions.run(tool, ["log-density 100k"], ["float32"], "c", 0, tmp_path)
    # At least one for 16 elements, and the same number each time.
    assert row["plain"] > 100_000 / 16
    assert row["plain again"] == pytest.approx(row["plain"], rel=0.02)
