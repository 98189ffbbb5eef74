"""Run Theano 1.0.5's own tests under the shim, and compare with what is expected.

::

    python tests/theano_suite/run.py                         # all areas
    python tests/theano_suite/run.py signal ifelse           # these areas
    python tests/theano_suite/run.py tensor/tests/test_basic.py -k stack
    python tests/theano_suite/run.py --resume                # only what has not passed yet
    python tests/theano_suite/run.py --audit ifelse          # guarded, with audit=True
    python tests/theano_suite/run.py --table WORK ...        # what is known, as in the docs
    python tests/theano_suite/run.py --docs extra_ops        # and write its row into the docs
    python tests/theano_suite/run.py --record-105 --python37 python3.7 signal

The tests come from Theano's source distribution, which ``--source DIR`` names where it is
unpacked already; else pip downloads it, which takes a Python 3.7.  With ``--if-available`` nothing
fails where that cannot be done.  ``expected/<area>.txt`` lists the tests that do not pass under the
shim, each with its reason, and the run fails if one that is listed passes or one that is not listed
does not.  A line may end in a condition: ``if scipy<1.18`` or ``if no dot``.  A test with a ``!``
before it takes longer than anyone would wait: it is not run, and counts as one that does not pass.
A test with a ``~`` looks at the nodes of a compiled graph or at a helper of Theano's own.  It runs
without these assertions, must pass, and is counted apart.
``passes_1_0_5/<area>.txt`` lists what passes under Theano 1.0.5 itself; ``--record-105`` writes it.

With ``--audit`` every function is guarded, and the run fails only where the guard would have missed
a bad value without its audit.

How each test ended is kept in the work directory, a file for each version of PyTensor and each
part.  ``--resume`` takes from there what passed or was skipped, so that a run of hours may be
stopped at any time, or be done again after a fault is mended.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
PASSES = HERE / "passes_1_0_5"
HEAD = ["area", "in 1.0.5", "apart"]
TABLES = HERE.parents[1] / "docs" / "measurements" / "theano.toml"

# What belongs to an area: directories or files.  Files of GPUs belong to none.
AREAS = {
    "printing": ["tests/test_printing.py"],
    "compute_test_value": ["gof/tests/test_compute_test_value.py"],
    "basic": ["tensor/tests/test_basic.py"],
    "opt": ["tensor/tests/test_opt.py", "tensor/tests/test_opt_uncanonicalize.py"],
    "blas": [f"tensor/tests/test_blas{kind}.py" for kind in ("", "_c", "_scipy")],
    "subtensor": ["tensor/tests/test_subtensor.py", "tensor/tests/test_inc_subtensor.py"],
    "elemwise": ["tensor/tests/test_elemwise.py", "scalar/tests"],
    "linalg": [
        "tensor/tests/test_nlinalg.py",
        "tensor/tests/test_slinalg.py",
        "sandbox/linalg/tests",
    ],
    "sort": ["tensor/tests/test_sort.py"],
    "extra_ops": ["tensor/tests/test_extra_ops.py"],
    "nnet": ["tensor/nnet/tests"],
    "signal": ["tensor/signal/tests"],
    "scan": ["scan_module/tests"],
    "compile": ["compile/tests"],
    "gradient": ["tests/test_gradient.py", "tests/test_rop.py", "tests/test_2nd_order_grads.py"],
    "ifelse": ["tests/test_ifelse.py"],
    "rng_mrg": ["sandbox/tests"],
    "random": ["tensor/tests/test_shared_randomstreams.py", "tensor/tests/test_raw_random.py"],
    "sharedvar": ["tensor/tests/test_sharedvar.py"],
    "sparse": ["sparse/tests", "sparse/sandbox/test_sp.py"],
    "typed_list": ["typed_list/tests"],
    "d3viz": ["d3viz/tests"],
    "tensor": [
        f"tensor/tests/test_{name}.py"
        for name in [
            "casting",
            "complex",
            "fft",
            "fourier",
            "gc",
            "io",
            "keepdims",
            "merge",
            "misc",
            "mpi",
            "type_other",
            "utils",
            "var",
            "xlogx",
        ]
    ],
    "misc": [
        "tests/test_breakpoint.py",
        "tests/test_config.py",
        "tests/test_determinism.py",
        "tests/test_dictionary_output.py",
        "tests/test_flake8.py",
        "tests/test_pickle_unpickle_theano_fn.py",
        "tests/test_record.py",
        "tests/test_updates.py",
        "misc/tests",
    ],
    "gof": ["gof/tests"],
}


@dataclass
class Result:
    """How a test ended: passed, failed, skipped, crashed, timed out or uncollected."""

    outcome: str
    reason: str


def area_of(test):
    """The area of a test, a file or a directory; None outside of all."""
    for area, parts in AREAS.items():
        if any(test == part or test.startswith((f"{part}/", f"{part}::")) for part in parts):
            return area
    return None


def files_of(part, source):
    """The test files of a directory, or the part itself."""
    place = source / "theano" / part
    if not place.is_dir():
        return [part]
    return sorted(f"{part}/{path.name}" for path in place.glob("test_*.py"))


# The source distribution


def find_python37(python37):
    """The interpreter asked for, or one of the usual names."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [python37, shutil.which("python3.7"), *sorted(pyenv.glob("3.7.*/bin/python"))]
    for place in filter(None, places):
        version = subprocess.run([place, "--version"], capture_output=True, text=True)
        if version.returncode == 0 and version.stdout.startswith("Python 3.7."):
            return str(place)
    sys.exit("No Python 3.7 found, which Theano 1.0.5 needs.  Name one with --python37.")


def unpack(package, release, work, python):
    """Let pip download a source distribution; the directory into which it is unpacked."""
    work.mkdir(parents=True, exist_ok=True)
    pip = [python, "-m", "pip", "download", "--no-deps", "--no-binary", package]
    subprocess.run([*pip, "--dest", str(work), f"{package}=={release}"], check=True)
    with tarfile.open(work / f"{package}-{release}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / f"{package}-{release}"


def get_source(arguments):
    """The directory with Theano's package; downloads and unpacks it where there is none."""
    if arguments.source:
        return arguments.source.resolve()
    source = arguments.work / "Theano-1.0.5"
    if not source.exists():
        unpack("Theano", "1.0.5", arguments.work, find_python37(arguments.python37))
    return source


# Running


def environment(arguments, source, results, area, deselected):
    """The environment of a run under the shim, or under Theano itself."""
    compiledir = arguments.work / ("compiledir_105" if arguments.record_105 else "compiledir")
    flags = f"base_compiledir={compiledir},gcc.cxxflags=-O1"
    path = [HERE, source] if arguments.record_105 else [HERE, HERE.parent]
    return {
        "OMP_NUM_THREADS": "1",
        # Flags that are given outside come last, and so weigh more.
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "THEANO_FLAGS": ",".join(filter(None, [flags, os.environ.get("THEANO_FLAGS")])),
        "THEANORC": os.devnull,
        "THEANO_SUITE_SOURCE": str(source),
        "THEANO_SUITE_RESULTS": str(results),
        "THEANO_SUITE_DESELECTED": "\n".join(deselected),
        "THEANO_SUITE_APART": "" if arguments.record_105 else "\n".join(marked("~", area)),
        "THEANO_SUITE_SHIM": "0" if arguments.record_105 else "1",
        "THEANO_SUITE_SECONDS": str(arguments.test_seconds),
        "THEANO_SUITE_AUDIT": str(audit_file(results)) if arguments.audit else "",
    }


def audit_file(results):
    """Where the audit writes what it has found, beside the results."""
    return results.with_suffix(".audit")


def read_audit(results):
    """The counts of the audit, as the plugin has written them after each test."""
    path = audit_file(results)
    counts = Counter()
    for line in path.read_text().splitlines() if path.exists() else []:
        counts.update(json.loads(line))
    return counts


def results_file(part, arguments):
    """Where the results of a file, a class or a test are kept, those of a selection by itself."""
    judge = "theano-1.0.5" if arguments.record_105 else f"pytensor-{version('pytensor')}"
    judge += "-audited" if arguments.audit else ""
    name = re.sub(r"[^\w.]+", "-", " ".join([part, *arguments.pytest]))
    return arguments.work / "results" / judge / f"{name}.jsonl"


def read_results(path):
    """The results in a file, the tests that are done, and the one that was running at its end."""
    results, done, running = {}, set(), None
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        if entry["event"] == "start":
            running = entry["id"]
            continue
        # (A test that yields others ends itself after they have.)
        if entry["id"] == running:
            running = None
            done.add(entry["id"])
        if entry["event"] != "end":
            results[entry["id"]] = Result(entry["event"], entry["reason"])
    return results, done, running


def write_result(path, test, event, reason=""):
    """Add an event to those in a file."""
    with path.open("a") as file:
        file.write(json.dumps({"id": test, "event": event, "reason": reason}) + "\n")


def passed_before(path):
    """The tests that need not be run again; those that yield others, if all of these passed."""
    results, done, _ = read_results(path)
    again = {
        re.sub(r"\[\d+\]$", "", test)
        for test, result in results.items()
        if result.outcome not in ("passed", "skipped")
    }
    return done - again


def run_pytest(command, path, arguments, **settings):
    """Run pytest as long as it has something to tell; how it ended."""
    output = None if arguments.verbose else subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=output, stderr=output, **settings)
    # The plugin stops a test that takes too long, but not one that is stuck in C.
    patience = 2 * arguments.test_seconds
    while True:
        try:
            return f"the process ended with status {process.wait(timeout=10)}"
        except subprocess.TimeoutExpired:
            if time.time() - path.stat().st_mtime > patience:
                process.kill()
                process.wait()
                return f"nothing happened for {patience} s"
        except BaseException:
            process.kill()
            raise


def run_part(part, source, arguments):
    """The results of a file or a class; a crash ends a test and not the run."""
    path = results_file(part, arguments)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.resume:
        path.unlink(missing_ok=True)
        audit_file(path).unlink(missing_ok=True)
    deselected = [*passed_before(path)]
    if not arguments.record_105:
        deselected += marked("!", area_of(part))
    command = [str(arguments.python), "-m", "pytest", "-p", "plugin", "-p", "no:nose"]
    command += ["-p", "no:cacheprovider", "-p", "no:doctest", "-q", "--tb=short"]
    command += ["-W", "ignore", "-c", os.devnull, "--rootdir", str(source)]
    command += [f"theano/{part}", *arguments.pytest]

    def environment_without(deselected):
        return environment(arguments, source, path, area_of(part), deselected)

    return run_to_the_end(part, command, path, arguments, source, deselected, environment_without)


def run_to_the_end(part, command, path, arguments, cwd, deselected, environment_without):
    """Run pytest again and again, without the tests that end it; the results by test.

    `environment_without(deselected)` returns the variables that the plugin reads.
    """
    deselected = [*deselected]
    while True:
        write_result(path, None, "start")  # and whatever ran when an earlier run was stopped ended
        environment = environment_without(deselected)
        ended = run_pytest(command, path, arguments, cwd=cwd, env=environment)
        results, _, running = read_results(path)
        if running is None:
            if not results and ended != "the process ended with status 5":
                results[part] = Result("crashed", ended)
            return results
        write_result(path, running, "crashed", ended)
        deselected.append(running)


# The lists


def write_passes(area, tests):
    """Write the names of tests, those of one class on one line."""
    groups = {}
    for test in sorted(tests):
        file, *classes, name = test.split("::")
        groups.setdefault(file, {}).setdefault("::".join(classes), []).append(name)
    lines = []
    for file, classes in groups.items():
        lines.append(file)
        lines += [f"  {name or '-'}: {' '.join(tests)}" for name, tests in classes.items()]
    PASSES.mkdir(exist_ok=True)
    (PASSES / f"{area}.txt").write_text("\n".join(lines) + "\n")


def read_passes(area):
    """The tests of an area that pass under Theano 1.0.5."""
    path = PASSES / f"{area}.txt"
    tests, file = set(), None
    for line in path.read_text().splitlines() if path.exists() else []:
        if not line.startswith(" "):
            file = line
            continue
        name, _, names = line.strip().partition(": ")
        prefix = file if name == "-" else f"{file}::{name}"
        tests |= {f"{prefix}::{test}" for test in names.split()}
    return tests


def keep_passes(area, file, found):
    """Write which tests of a file or class pass, beside what is known of others."""
    kept = {test for test in read_passes(area) if not test.startswith(f"{file}::")}
    write_passes(area, kept | {test for test, res in found.items() if res.outcome == "passed"})


def holds(condition):
    """Whether a package has a version that a condition names, or there is ``no`` such program."""
    if condition.startswith("no "):
        name = condition.removeprefix("no ")
        return shutil.which(name) is None and find_spec(name) is None
    requirement = Requirement(condition)
    return requirement.specifier.contains(version(requirement.name), prereleases=True)


def read_expected(area):
    """The patterns of tests that are expected not to pass, each with its reason."""
    return read_list(EXPECTED / f"{area}.txt")


def read_list(path):
    """The patterns of tests in a file, each with its reason; those whose condition holds."""
    patterns, reason = {}, ""
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        pattern, _, comment = line.partition("#")
        comment = comment.strip()
        pattern, _, condition = pattern.strip().partition(" if ")
        if pattern:
            if not (comment or reason):
                sys.exit(f"{path}:{number}: no reason on the line, and none above it")
            if not condition or holds(condition):
                patterns[pattern] = comment or reason
        else:
            reason = comment
    return patterns


def marked(mark, area):
    """The tests of an area that are listed with a mark: ``!`` if not run, ``~`` if apart."""
    return [
        pattern.removeprefix(mark).strip()
        for pattern in read_expected(area)
        if pattern.startswith(mark)
    ]


def matches(test, pattern):
    """Whether a pattern, in which only ``*`` is special, stands for a test."""
    return fnmatchcase(test, re.sub(r"[\[?]", r"[\g<0>]", pattern))


def compare(area, results, passes, whole):
    """The complaints about the results of an area, of which a line each is shown."""
    unrun = marked("!", area)
    expected = [pattern for pattern in read_expected(area) if pattern[0] not in "!~"]
    complaints = []

    def is_listed(test):
        return any(matches(test, pattern) for pattern in expected)

    for test, result in results.items():
        listed = is_listed(test)
        good = result.outcome == "passed" or (result.outcome == "skipped" and test not in passes)
        if good and listed and result.outcome == "passed":
            complaints.append(f"{test}  passes, but is listed")
        elif not good and not listed:
            complaints.append(f"{test}  # {result.outcome}: {result.reason}")
    if whole:
        complaints += [
            f"{test}  # was not run"
            for test in sorted(passes - results.keys() - {*unrun})
            if not is_listed(test)
        ]
        complaints += [
            f"{pattern}  is listed, but there is no such test"
            for pattern in expected
            if not any(matches(test, pattern) for test in results)
        ]
    return complaints


# The command


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="areas, directories, files or tests")
    parser.add_argument("-k", metavar="EXPRESSION", help="as pytest's -k")
    parser.add_argument("--source", type=Path, help="Theano 1.0.5's unpacked source distribution")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / ".tox" / "theano-suite-work")
    parser.add_argument("--python37", help="a Python 3.7")
    parser.add_argument("--if-available", action="store_true", help="else say so and succeed")
    parser.add_argument("--record-105", action="store_true", help="run under Theano 1.0.5 itself")
    parser.add_argument("--test-seconds", type=int, default=3600, help="how long a test may take")
    parser.add_argument("--resume", action="store_true", help="run what has not passed yet")
    parser.add_argument("--audit", action="store_true", help="guard with audit=True")
    parser.add_argument("--table", action="store_true", help="show the results in directories WORK")
    parser.add_argument(
        "--docs", action="store_true", help=f"write whole areas' rows to {TABLES.name}"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show what pytest shows")
    arguments, arguments.pytest = parser.parse_known_args(argv)
    if arguments.k:
        arguments.pytest += ["-k", arguments.k]
    arguments.work = arguments.work.resolve()
    arguments.python = sys.executable
    if arguments.record_105:
        arguments.python = find_python37(arguments.python37)
    return arguments


def passing(judged, results):
    """How many of the tests passed, and their share."""
    good = sum(results[test].outcome == "passed" for test in judged & results.keys())
    return good, f"{100 * good / len(judged):.1f} %" if judged else "-"


def line_of_table(row, widths):
    """A line of a table, whose first column is on the left."""
    name, *figures = row
    width, *others = widths
    cells = [f"{figure:>{other}}" for figure, other in zip(figures, others, strict=True)]
    return "  ".join([f"{name:{width}}", *cells])


def show_table(head, rows):
    """A table, as reStructuredText has it."""
    widths = [20] + [max(9, len(name)) for name in head[1:]]
    rule = "  ".join("=" * width for width in widths)
    print(rule)
    for number, row in enumerate([head, *rows]):
        print(line_of_table(row, widths))
        if number == 0:
            print(rule)
    print(rule)


def write_docs(rows):
    """Write the rows of areas into the table of the documentation, and the sum of all its rows."""
    text = TABLES.read_text("utf-8")
    start = re.search(r"^area,in 1\.0\.5,apart,pass,share,PyTensor\n", text, re.M).end()
    end = text.index('"""', start)
    known = {line.split(",")[0]: line for line in text[start:end].splitlines()}
    for row in rows:
        known[row[0]] = ",".join(map(str, [*row, version("pytensor")]))
    lines = [known[area] for area in AREAS if area in known]
    text = text[:start] + "".join(f"{line}\n" for line in lines) + text[end:]
    figures = [
        (int(there) - int(apart), int(here))
        for _, there, apart, here, *_ in (line.split(",") for line in lines)
    ]
    of, good = map(sum, zip(*figures, strict=True))
    total = f"{good:,} of {of:,} pass ({100 * good / of:.1f} %)"
    before = r"(``tox -e theano-suite``,\")"
    text = re.sub(rf"{before}[\d,]+ of [\d,]+ pass \([\d.]+ %\)", rf"\g<1>{total}", text)
    TABLES.write_text(text, "utf-8")


def passing_of_run(area, passes, results):
    """How many tests of an area passed, and of how many if others were not run yet."""
    run = passes & results.keys()
    if passes - run <= {*marked("!", area)}:
        return passing(passes, results)
    good, share = passing(run, results)
    return f"{good} of {len(run)}" if run else "-", share


def show_kept(works):
    """The table of all areas, from the results that are kept in work directories."""
    columns = {}
    for directory in sorted(place for work in works for place in Path(work).glob("results/*")):
        found = columns.setdefault(directory.name.replace("-", " "), {})
        for path in sorted(directory.glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
            found |= read_results(path)[0]
    rows = []
    for area in AREAS:
        passes = read_passes(area)
        apart = passes & {*marked("~", area)}
        shares = [passing_of_run(area, passes - apart, found) for found in columns.values()]
        figures = (figure for pair in shares for figure in pair)
        rows.append([area, len(passes), len(apart), *figures])
    names = (name for judge in columns for name in (judge, "share"))
    show_table([*HEAD, *names], rows)


def main(argv=None):
    arguments = parse_arguments(argv)
    if arguments.table:
        show_kept(arguments.parts)
        return 0
    try:
        source = get_source(arguments)
    except (SystemExit, subprocess.CalledProcessError) as error:
        if not arguments.if_available:
            raise
        print(f"Skipped, since Theano 1.0.5 cannot be had here: {error}")
        return 0
    selected = arguments.parts or list(AREAS)
    results, audited = {}, Counter()
    for part in [part for name in selected for part in AREAS.get(name, [name])]:
        for file in files_of(part, source):
            if part not in selected and area_of(file) != area_of(part):
                continue  # a file of a directory that is an area of its own
            found = run_part(file, source, arguments)
            audited += read_audit(results_file(file, arguments))
            counts = Counter(result.outcome for result in found.values())
            print(file, *(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
            area = area_of(file) or area_of(part) or "other"
            results.setdefault(area, {}).update(found)
            if arguments.record_105:
                keep_passes(area, file, found)

    if arguments.record_105:
        return 0
    if arguments.audit:  # (some tests ask which mode or linker a function has)
        print(*(f"{count:8}  {name}" for name, count in audited.items()), sep="\n")
        return bool(audited["missed"])

    complaints, rows, wholes = [], [], []
    for area, found in results.items():
        whole = area in selected and not arguments.pytest
        passes = read_passes(area)
        complaints += compare(area, found, passes, whole)
        judged = passes if whole else passes & found.keys()
        apart = judged & {*marked("~", area)}
        rows.append([area, len(judged), len(apart), *passing(judged - apart, found)])
        if whole:
            wholes.append(rows[-1])
    if complaints:
        print("\nNot as expected:", *sorted(complaints), sep="\n")
    print()
    show_table([*HEAD, "here", "share"], rows)
    if arguments.docs:
        write_docs(wholes)
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
