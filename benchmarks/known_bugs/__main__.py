"""How many known numerical bugs lint, the guard and `stabilize` find or repair, mode by mode.

::

    python -m benchmarks.known_bugs [--seconds 1] [--modes written,FAST_COMPILE,CVM,NUMBA] [BUG ...]

The first table counts GRIST's 79 bugs: a formula counts once for each of them that is this formula.
The second one counts the formulas of other kinds, in the first of the modes.

A bug *fails* in a mode if lint finds an input (a witness) at which the function that the mode
compiles is NaN or infinite, or its gradient is.  It fails *elsewhere* if lint finds an input at
which it fails only on backends that take subnormal numbers for 0.  Its *line* is right if the
finding lies in the function that writes the formula or its logarithms.  The *guard* of the mode's
backend must raise at the witness.  The *repair* is `stabilize` on the faulty formula: the function
and its gradient have to be finite at the witness, in the same mode.  A finding on a twin is false.
*Median* and *largest* are the processor's seconds of a call of lint that found a witness, with its
compiling.
"""

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode, get_mode

from benchmarks.known_bugs.bugs import BUGS, Bug, Graph
from theanoguard import GuardError, GuardMode, lint
from theanoguard.records import Finding
from theanoguard.stable import stabilize

MODES = {
    "written": Mode("py", None),
    "FAST_COMPILE": "FAST_COMPILE",
    "CVM": "CVM",
    "NUMBA": "NUMBA",
    "JAX": "JAX",
}
if importlib.util.find_spec("jax") is None:
    del MODES["JAX"]

Judged = tuple[Counter, list[float]]
"""What was found of a bug, and how long each witness took."""


def results(graph: Graph, mode: Any) -> Any:
    """Return the function of a loss and its gradients for the inputs that have one."""
    inputs, loss = graph
    real = [v for v in inputs if v.type.dtype.startswith("float")]
    slopes = pytensor.grad(loss, real, disconnected_inputs="ignore")
    return pytensor.function(inputs, [loss, *slopes], mode=mode, on_unused_input="ignore")


def call(function: Any, graph: Graph, finding: Finding) -> list[Any]:
    """Call a function with the witness of a finding."""
    known = finding.witness.inputs
    return function(*(known.get(v.name, np.zeros(1)) for v in graph[0]))


def judge(bug: Bug, name: str, seconds: float) -> Judged:
    """Return what was found of one bug and its twin in a mode, and how long the witness took."""
    mode, counts, times = MODES[name], Counter(), []
    graph = bug.faulty()
    start = time.thread_time()
    findings = lint(graph[1], mode=mode, seconds=seconds, all=True)
    passed = time.thread_time() - start
    found = [f for f in findings if f.witness]
    counts["elsewhere"] = not found and any(f.remark.startswith("holds on") for f in findings)
    if found:
        counts["fails"] = 1
        times.append(passed)
        counts["line"] = any(bug.is_written_at(f.source) for f in found)
        plain = get_mode(mode)
        backend = {"NUMBA": "numba", "JAX": "jax"}.get(name, "c")
        guard = GuardMode(optimizer=plain.provided_optimizer, big_is_error=False, backend=backend)
        try:
            call(results(graph, guard), graph, found[0])
        except GuardError:
            counts["guard"] = 1
        (repaired,) = stabilize(graph[1], floors=True).apply()
        values = call(results((graph[0], repaired), mode), graph, found[0])
        counts["repair"] = all(np.isfinite(value).all() for value in values)
    false = lint(bug.twin()[1], mode=mode, seconds=seconds)
    counts["twins"] = bool(false)
    said = ", ".join(sorted(key for key, n in counts.items() if n)) or "sound in this mode"
    print(f"{name:<13} {bug.name:<32} {said}", flush=True)
    for finding in false:
        print(f"    on the twin: {finding.rule}: {finding.witness}", flush=True)
    return counts, times


def main() -> None:
    """Print a line for each bug and mode, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bugs", nargs="*", metavar="BUG")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if unknown := set(arguments.bugs) - {bug.name for bug in BUGS}:
        sys.exit(f"no bug {min(unknown)}; there are {', '.join(bug.name for bug in BUGS)}")
    bugs = [bug for bug in BUGS if not arguments.bugs or bug.name in arguments.bugs]
    modes = arguments.modes.split(",")
    known = [bug for bug in bugs if bug.cases]
    others = [bug for bug in bugs if not bug.cases]
    for title, asked, some in (
        ("GRIST's bugs", known, modes),
        ("formulas of other kinds", others, modes[:1]),
    ):
        judged = {
            mode: {bug.name: judge(bug, mode, arguments.seconds) for bug in asked} for mode in some
        }
        show(title, asked, judged)


def show(title: str, bugs: list[Bug], judged: dict[str, dict[str, Judged]]) -> None:
    """Print a table, in which a formula counts once for each bug of the benchmark that it is."""
    keys = ("fails", "elsewhere", "line", "guard", "repair", "twins")
    print(f"\n{sum(len(bug.cases) or 1 for bug in bugs)} {title}, {len(bugs)} formulas")
    print(f"{'mode':<14}" + "".join(f"{key:>10}" for key in (*keys, "median", "largest")))
    for mode, found in judged.items():
        total: Counter = Counter()
        for bug in bugs:
            times = len(bug.cases) or 1
            total.update({key: times * bool(hit) for key, hit in found[bug.name][0].items()})
        spent = [t for bug in bugs for t in found[bug.name][1] * (len(bug.cases) or 1)]
        row = [str(total[key]) for key in keys]
        row += [f"{of(spent):.2f} s" if spent else "-" for of in (statistics.median, max)]
        print(f"{mode:<14}" + "".join(f"{cell:>10}" for cell in row))


if __name__ == "__main__":
    main()
