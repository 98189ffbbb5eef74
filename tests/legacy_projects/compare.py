"""Run programs under Theano 1.0.5 and under the shim, and compare what they print and take.

::

    python tests/legacy_projects/compare.py --python37 python3.7 PROGRAM ...
    python tests/legacy_projects/compare.py --table

A program prints its results with ``measured.report`` and begins with a docstring: its name, its
source and its kind, a line each.  Programs around what others wrote are not in the repository;
``programs.json`` has their results, from which ``docs/measurements.rst`` is made.  ``--table``
prints them.  ``--flags`` adds to ``THEANO_FLAGS``, and ``--record`` keeps the figures.  With
``--compiled`` each side runs twice with the C compiler, first with an empty cache of compiled code
and then with what the first run left there; without it, give ``--flags floatX=float32,cxx=``.
"""

import argparse
import ast
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "programs.json"
MEASURED = HERE / "measured.py"


def description(program):
    """The name, the source and the kind of a program, from its docstring."""
    lines = (ast.get_docstring(ast.parse(program.read_text("utf-8"))) or "").splitlines()
    if len(lines) < 3:
        raise SystemExit(f"{program}: write name, source and kind in its docstring, a line each.")
    return lines[:3]


def read_output(text):
    """The results that a program printed, by name, and its processor times; None without an end."""
    results, times = [], None
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "result:":
            name, *numbers = rest.split()
            results.append((name, [float(number) for number in numbers]))
        elif word == "times:":
            times = json.loads(rest)
    return results, times


def difference(results, others):
    """The largest difference between two programs' results, relative to the largest of each."""
    if [(name, len(row)) for name, row in results] != [(name, len(row)) for name, row in others]:
        return math.inf
    largest = 0.0
    for (_, row), (_, other) in zip(results, others, strict=True):
        scale = max((abs(n) for n in row if math.isfinite(n)), default=0.0) or 1.0
        for one, two in zip(row, other, strict=True):
            if one == two or (math.isnan(one) and math.isnan(two)):
                continue
            are_finite = math.isfinite(one) and math.isfinite(two)
            largest = max(largest, abs(one - two) / scale if are_finite else math.inf)
    return largest


def run(command, program, flags):
    """The output of a program that is started by a command."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    if flags:
        given = os.environ.get("THEANO_FLAGS")
        environment["THEANO_FLAGS"] = ",".join(filter(None, [given, flags]))
    done = subprocess.run(
        [*command, MEASURED, program], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        print(done.stdout[-1000:], done.stderr[-3000:], file=sys.stderr)
    return done.stdout


def figures(there, here):
    """What is recorded of a program: results, their difference, and times under both."""
    (results, times), (results_here, times_here) = read_output(there), read_output(here)
    if times is None or times_here is None:
        return None
    return {
        "results": sum(len(row) for _, row in results),
        "difference": difference(results, results_here),
        **{part: [times[part], times_here[part]] for part in ("compile", "run")},
    }


def compiled_figures(commands, program, flags):
    """Times with a compiler under both, of a first run and of a second one."""
    sides = []
    for command in commands:
        with tempfile.TemporaryDirectory() as cache:
            with_cache = f"{flags},base_compiledir={cache}"
            sides.append([read_output(run(command, program, with_cache))[1] for _ in range(2)])
    if any(times is None for side in sides for times in side):
        return None
    return {
        "first": [first["compile"] for first, _ in sides],
        "second": [second["compile"] for _, second in sides],
        "run": [second["run"] for _, second in sides],
    }


def ratio(pair):
    """How many times as long the second of two times is; nothing for times too short to tell."""
    there, here = pair
    return f"{here / there:.2f}" if max(pair) >= 0.2 else "–"


def show_table(rows):
    """A table, as reStructuredText has it; its head is the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join("=" * width for width in widths)
    print(rule)
    for number, row in enumerate(rows):
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print(rule)
    print(rule)


def recorded():
    return sorted(json.loads(RECORDED.read_text("utf-8")).items())


def table():
    """The rows of all programs."""
    rows = [("program", "kind", "numbers", "difference", "compile", "run")]
    for name, entry in recorded():
        rows.append(
            (
                f"{name} ({entry['source']})",
                entry["kind"],
                str(entry["results"]),
                f"{entry['difference']:.0e}" if entry["difference"] else "0",
                ratio(entry["compile"]),
                ratio(entry["run"]),
            )
        )
    return rows


def compiled_table():
    """The rows of the programs that ran with a compiler."""
    parts = ("first", "second", "run")
    found = [(name, entry["compiled"]) for name, entry in recorded() if "compiled" in entry]
    rows = [(name, *(ratio(times[part]) for part in parts)) for name, times in found]
    return [("program", "first compile", "second compile", "run"), *rows]


def main(argv=None):
    """Run the programs that are named, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", type=Path, metavar="PROGRAM")
    parser.add_argument("--python37", help="a Python 3.7 with Theano 1.0.5")
    parser.add_argument("--flags", default="floatX=float32", help="for THEANO_FLAGS")
    parser.add_argument("--compiled", action="store_true", help="time with the C compiler")
    parser.add_argument("--record", action="store_true", help="keep the figures")
    parser.add_argument("--table", action="store_true", help="show what is kept")
    arguments = parser.parse_args(argv)
    if arguments.table:
        show_table(table())
        print()
        show_table(compiled_table())
        return 0
    if not arguments.programs or not arguments.python37:
        parser.error("name programs, and with --python37 a Python 3.7 that has Theano 1.0.5")
    shim = [sys.executable, "-m", "theanoguard", "run", "--numpy-compat", "--python-compat"]
    status = 0
    for program in arguments.programs:
        name, source, kind = description(program)
        commands = ([arguments.python37], shim)
        if arguments.compiled:
            times = compiled_figures(commands, program, arguments.flags)
            found = times and {"compiled": times}
        else:
            outputs = [run(command, program, arguments.flags) for command in commands]
            found = figures(*outputs)
            found = found and {"flags": arguments.flags, **found}
        print(name, found if found else "did not end under both", flush=True)
        status |= found is None or found.get("difference", 0) > 1e-3
        if found and arguments.record:
            known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
            known[name] = known.get(name, {}) | {"source": source, "kind": kind, **found}
            RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
