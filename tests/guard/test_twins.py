"""Tools compile and run the twin of a watched function: same results, and nothing is noted."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.debug import debugmode, monitormode, nanguardmode
from pytensor.compile.mode import Mode, predefined_modes

from theanoguard import (
    GuardMode,
    NanGuardMode,
    compare,
    events_of,
    guarding,
    lint,
    precision,
    track_provenance,
)
from theanoguard.monitor import MonitorMode

pytestmark = pytest.mark.on_33

NUMBA = predefined_modes["NUMBA"]
CALL = np.array([1.0, 2.0, 3.0])
FAILS = np.array([-1.0, 2.0, 3.0])


def logarithm(mode):
    x, w = pt.dvector("x"), pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    return pytensor.function([x], pt.log(x * w), updates={w: w * 2}, mode=mode)


def in_a_loop(mode):
    x = pt.dvector("x")
    ys = pytensor.scan(lambda a: pt.log(a), sequences=[x], return_updates=False)
    return pytensor.function([x], ys.sum(), mode=mode)


def in_a_loop_with_its_own_mode(mode):
    x = pt.dvector("x")
    ys = pytensor.scan(lambda a: pt.log(a), sequences=[x], mode=mode, return_updates=False)
    return pytensor.function([x], ys.sum(), mode="CVM")


def inside_of_an_op(mode):
    x, a = pt.dvector("x"), pt.dvector("a")
    op = pytensor.compile.builders.OpFromGraph([a], [pt.log(a)])
    return pytensor.function([x], op(x).sum(), mode=mode)


PROGRAMS = [logarithm, in_a_loop, in_a_loop_with_its_own_mode, inside_of_an_op]

calls = []
WATCHERS = {
    "guard": lambda log: (GuardMode(log=log), "CVM"),
    "guard that records": lambda log: (GuardMode(action="record", log=log), "CVM"),
    "guard without a virtual machine in C": lambda log: (GuardMode(linker="vm", log=log), "CVM"),
    "guard for Numba": lambda log: (GuardMode(backend="numba", log=log), NUMBA),
    "guard with other rewrites": lambda log: (
        GuardMode(optimizer="fast_compile", log=log),
        Mode("cvm", "fast_compile"),
    ),
    "NanGuardMode": lambda log: (NanGuardMode(), "CVM"),
    "MonitorMode": lambda log: (MonitorMode(post_func=lambda i, node, fn: calls.append(i)), "CVM"),
    "PyTensor's NanGuardMode": lambda log: (
        nanguardmode.NanGuardMode(True, True, True),
        Mode("vm", "fast_run"),
    ),
    "PyTensor's MonitorMode": lambda log: (
        monitormode.MonitorMode(post_func=lambda *args: calls.append(args)),
        Mode("c|py", "fast_run"),
    ),
    "DebugMode": lambda log: (debugmode.DebugMode(optimizer="fast_run"), "CVM"),
}
TOOLS = {
    "lint": lambda f: lint(f, seconds=1),
    "precision": lambda f: precision(f, FAILS),
    "compare": lambda f: compare(f, [FAILS], ["c", "fast_compile"]),
    "compare with the graph as written": lambda f: compare(f, [FAILS], reference="as written"),
}


def noted(f, log):
    """All that a watcher has noted."""
    events = events_of(f) if hasattr(getattr(f, "vm", None), "guard") else []
    shared = [v.get_value() for v in f.get_shared()]
    logged = log.read_bytes() if log.exists() else b""
    return [str(e) for e in events], logged, len(calls), [str(v) for v in shared]


def told(tool, f):
    """What a tool says, without the place of the function and the name of its mode."""
    try:
        return str(TOOLS[tool](f))
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


PAIRS = [
    (watcher, program)
    for watcher in WATCHERS
    for program in PROGRAMS
    if program is logarithm or watcher.startswith(("guard that", "MonitorMode", "PyTensor's N"))
]


@pytest.mark.filterwarnings("ignore:The `mode` argument")
@pytest.mark.parametrize(("watcher", "program"), PAIRS)
def test_tools_give_what_they_give_for_the_twin(watcher, program, tmp_path):
    log = tmp_path / "events.jsonl"
    watched, plain = WATCHERS[watcher](log)
    with track_provenance():
        f, twin = program(watched), program(plain)
    for tool in TOOLS:
        before = noted(f, log)
        assert told(tool, f) == told(tool, twin), tool
        assert noted(f, log) == before, tool


def test_a_guarded_program_is_searched_like_any_other():
    """While every function that is compiled is guarded, the trials of a search are not."""
    with guarding(action="record") as run, track_provenance():
        f = logarithm("CVM")
        before = run.guarded
        found = {tool: told(tool, f) for tool in TOOLS}
    assert run.guarded == before
    assert events_of(f) == []
    with track_provenance():
        assert found == {tool: told(tool, logarithm("CVM")) for tool in TOOLS}
