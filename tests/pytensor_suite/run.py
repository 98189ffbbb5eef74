"""Run PyTensor's own tests without and with a guard, and compare, result by result.

::

    python tests/pytensor_suite/run.py                            # all areas on both backends
    python tests/pytensor_suite/run.py elemwise blas --backend c  # these areas on one
    python tests/pytensor_suite/run.py tests/test_ifelse.py -k lazy
    python tests/pytensor_suite/run.py --big 1                    # hardly a call without a trip
    python tests/pytensor_suite/run.py --audit                    # what the guard leaves out, too

Each file runs twice: as it is, and with a ``GuardMode(action="record")`` in the place of every
mode that can be guarded.  A test must end in the same way; what the guard reports must be bad if
NumPy looks at it, and come out again where the graph is run once more, node by node, as the first
trip of each node is; and what a function returns must be good or have been reported.
``expected/<backend>/<area>.txt`` lists the tests of which that is not true, each with its reason;
the run fails if one is listed without need, and if one is not listed that should be.  A line may
end in a condition, as ``if pytensor<3.3``; a test with a ``!`` before it is not run.

PyTensor's source distribution holds a small part of its tests (here ``tests/own``).  The others
stand in its repository alone, which pip does not download; so they are taken, as they were when
PyTensor went its own way, from the source distribution of Aesara 2.9, in which they carry the
same names.  ``--source DIR`` names a directory with other tests in its folder ``tests``.
"""

import argparse
import json
import os
import re
import shutil
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from theano_suite.run import (  # noqa: E402
    Result,
    matches,
    passed_before,
    read_list,
    run_to_the_end,
    show_table,
    unpack,
)

RELEASE = version("pytensor")
LINKERS = {"c": "cvm", "numba": "numba"}
AREAS = {
    "elemwise": ["tests/tensor/test_elemwise.py"],
    "subtensor": ["tests/tensor/test_subtensor.py"],
    "blas": ["tests/tensor/test_blas.py"],
    "scan": ["tests/scan/test_basic.py", "tests/scan/test_views.py"],
    "ifelse": ["tests/test_ifelse.py"],
    "random": [
        "tests/tensor/random/test_basic.py",
        "tests/tensor/random/test_op.py",
        "tests/tensor/random/test_utils.py",
        "tests/tensor/random/test_var.py",
    ],
    "linalg": ["tests/tensor/test_nlinalg.py", "tests/tensor/test_slinalg.py"],
    "shared": ["tests/tensor/test_sharedvar.py", "tests/compile/test_shared.py"],
    "function": ["tests/compile/function", "tests/compile/test_mode.py", "tests/link/test_vm.py"],
    "builders": ["tests/compile/test_builders.py", "tests/compile/test_ops.py"],
    "gradient": ["tests/own/test_gradient.py", "tests/own/test_rop.py"],
    "raise_op": ["tests/own/test_raise_op.py", "tests/own/test_breakpoint.py"],
}
COUNTS = ("guarded", "calls", "trips")
FAULTS = ("false", "missed", "left out", "unexplained", "unreproduced")


def area_of(part):
    """The area of a file or a test, or None."""
    return next((area for area, parts in AREAS.items() if part.startswith((*parts,))), None)


# The tests


def get_source(arguments):
    """The directory with the package ``tests``; downloads and joins it where there is none."""
    if arguments.source:
        return arguments.source.resolve()
    source = arguments.work / f"tests-{RELEASE}"
    if not source.exists():
        aesara = unpack("aesara", "2.9.4", arguments.work, sys.executable)
        own = unpack("pytensor", RELEASE, arguments.work, sys.executable)
        new = source.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        for path in aesara.glob("tests/**/*.py"):
            place = new / path.relative_to(aesara)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text("utf-8").replace("aesara", "pytensor")
            place.write_text(text.replace("AESARA", "PYTENSOR"), "utf-8")
        shutil.copytree(own / "tests", new / "tests" / "own")
        (new / "tests" / "own" / "__init__.py").touch()
        new.rename(source)
    return source


def files_of(part, source):
    """The test files of a directory, or the part itself."""
    place = source / part
    if not place.is_dir():
        return [part]
    return sorted(str(path.relative_to(source)) for path in place.glob("test_*.py"))


# Running


def run_file(file, backend, guarded, source, arguments):
    """How the tests of a file end, and what the guard has noted, each by test."""
    kind = f"guarded-{arguments.big:g}" if guarded else "plain"
    kind += "-audited" if guarded and arguments.audit else ""
    folder = arguments.work / "results" / RELEASE / backend / kind
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.]+", "-", " ".join([file, *arguments.pytest]))
    path, notes = folder / f"{name}.jsonl", folder / f"{name}.notes.jsonl"
    if not arguments.resume:
        path.unlink(missing_ok=True)
        notes.unlink(missing_ok=True)
    flags = [
        f"base_compiledir={arguments.work / 'compiledir'}",
        f"linker={LINKERS[backend]}",
        "gcc__cxxflags=-O0",
        os.environ.get("PYTENSOR_FLAGS", ""),
    ]
    places = [*map(str, (HERE, HERE.parent, source)), os.environ.get("PYTHONPATH", "")]
    variables = {
        "OMP_NUM_THREADS": "1",
        "NUMBA_OPT": "0",  # to compile takes longer than to run
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "PYTENSOR_FLAGS": ",".join(filter(None, flags)),
        "PYTENSOR_SUITE_SOURCE": str(source),
        "PYTENSOR_SUITE_GUARDED": str(int(guarded)),
        "PYTENSOR_SUITE_BIG": str(arguments.big),
        "PYTENSOR_SUITE_AUDIT": str(int(arguments.audit)),
        "PYTENSOR_SUITE_NOTES": str(notes),
        "THEANO_SUITE_SOURCE": str(source),
        "THEANO_SUITE_RESULTS": str(path),
        "THEANO_SUITE_SECONDS": str(arguments.test_seconds),
    }
    command = [sys.executable, "-m", "pytest", "-p", "theano_suite.plugin", "-p", "plugin"]
    command += ["-p", "no:cacheprovider", "-q", "--tb=short", "-W", "ignore", "-c", os.devnull]
    command += ["--rootdir", str(source), file, *arguments.pytest]
    unrun = [p.removeprefix("!").strip() for p in listed(file, backend) if p.startswith("!")]
    results = run_to_the_end(
        file,
        command,
        path,
        arguments,
        source,
        [*unrun, *passed_before(path)],
        lambda deselected: {**variables, "THEANO_SUITE_DESELECTED": "\n".join(deselected)},
    )
    lines = notes.read_text().splitlines() if notes.exists() else []
    return results, {note["test"]: note for note in map(json.loads, lines)}


# Comparing


def listed(part, backend):
    """The patterns of the tests of an area that may differ, or are not run."""
    return read_list(HERE / "expected" / backend / f"{area_of(part)}.txt")


def differences(plain, guarded, notes):
    """What differs between the two runs, and what is wrong with the guard, by test."""
    found = {}
    for test in plain.keys() | guarded.keys():
        was, now = (results.get(test, Result("not run", "")) for results in (plain, guarded))
        if was.outcome != now.outcome or now.outcome == "crashed":
            reason = now.reason or was.reason
            found[test] = f"{was.outcome} without the guard, {now.outcome} with it: {reason}"
    for test, note in notes.items():
        for fault in FAULTS:
            if note.get(fault):
                sample = next((s for s in note["samples"] if s["what"] == fault), "")
                found[test] = f"{note[fault]} {fault}: {sample}"
    return found


def complaints(part, backend, found, tests):
    """The lines about what is not as the list of an area says."""
    patterns = [pattern for pattern in listed(part, backend) if not pattern.startswith("!")]
    lines = [
        f"{test}  # {backend}: {what}"
        for test, what in found.items()
        if not any(matches(test, pattern) for pattern in patterns)
    ]
    for pattern in patterns:
        alike = [test for test in tests if matches(test, pattern)]
        if alike and not found.keys() & set(alike):
            lines.append(f"{pattern}  is listed for {backend}, but there is no difference")
    return lines


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="areas, directories, files or tests")
    parser.add_argument("-k", metavar="EXPRESSION", help="as pytest's -k")
    parser.add_argument("--backend", action="append", choices=LINKERS, help="one of them only")
    parser.add_argument("--big", type=float, default=1e10, help="the guard's big_threshold")
    parser.add_argument("--audit", action="store_true", help="guard with audit=True")
    parser.add_argument("--source", type=Path, help="a directory with tests in its folder tests")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / ".tox" / "pytensor-suite")
    parser.add_argument("--test-seconds", type=int, default=1200, help="how long a test may take")
    parser.add_argument("--resume", action="store_true", help="run what has not passed yet")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what pytest shows")
    arguments, arguments.pytest = parser.parse_known_args(argv)
    if arguments.k:
        arguments.pytest += ["-k", arguments.k]
    arguments.work = arguments.work.resolve()
    source = get_source(arguments)

    lines, rows = [], []
    for area in arguments.parts or AREAS:
        for backend in arguments.backend or LINKERS:
            ends, counts = [Counter(), Counter()], Counter()
            for part in AREAS.get(area, [area]):
                for file in files_of(part, source):
                    plain, _ = run_file(file, backend, False, source, arguments)
                    guarded, notes = run_file(file, backend, True, source, arguments)
                    found = differences(plain, guarded, notes)
                    lines += complaints(file, backend, found, plain.keys() | guarded.keys())
                    for counter, results in zip(ends, (plain, guarded), strict=True):
                        counter.update(result.outcome for result in results.values())
                    for note in notes.values():
                        counts.update({name: note.get(name, 0) for name in COUNTS})
                    print(file, backend, len(plain), "tests,", len(found), "differ", flush=True)
            passed = [counter["passed"] for counter in ends]
            rows.append(
                [area, backend, ends[0].total(), *passed, *(counts[name] for name in COUNTS)]
            )
    if lines:
        print("\nNot as expected:", *sorted(lines), sep="\n")
    print()
    show_table(
        ["area", "backend", "tests", "plain", "guarded", "functions", "calls", "trips"], rows
    )
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
