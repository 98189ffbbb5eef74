"""Run programs under Theano 1.0.5 and under the shim, and compare what they print and take.

::

    python tests/legacy_projects/compare.py --python37 python3.7 PROGRAM ...
    python tests/legacy_projects/compare.py --table

A program prints its results with ``measured.report`` and begins with a docstring: its name, its
source and its kind, a line each.  Programs around what others wrote are not in the repository;
``programs.json`` has their results.  ``--table`` prints the table of ``docs/theano.rst``.
``--flags`` adds to ``THEANO_FLAGS``, and ``--record`` keeps the figures.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
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
        return float("inf")
    largest = 0.0
    for (_, row), (_, other) in zip(results, others, strict=True):
        scale = max([abs(number) for number in row if number == number], default=0.0) or 1.0
        for one, two in zip(row, other, strict=True):
            if one != two and not (one != one and two != two):
                largest = max(largest, abs(one - two) / scale)
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


def ratio(pair):
    """How many times as long the second of two times is; nothing for times too short to tell."""
    there, here = pair
    return f"{here / there:.2f}" if min(pair) >= 0.2 else "-"


def show_table():
    """The table of all programs, as reStructuredText has it."""
    rows = [("program", "kind", "numbers", "difference", "compile", "run")]
    for name, entry in sorted(json.loads(RECORDED.read_text("utf-8")).items()):
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join("=" * width for width in widths)
    print(rule)
    for number, row in enumerate(rows):
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print(rule)
    print(rule)


def main(argv=None):
    """Run the programs that are named, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", type=Path, metavar="PROGRAM")
    parser.add_argument("--python37", help="a Python 3.7 with Theano 1.0.5")
    parser.add_argument("--flags", default="floatX=float32", help="for THEANO_FLAGS")
    parser.add_argument("--record", action="store_true", help="keep the figures")
    parser.add_argument("--table", action="store_true", help="show what is kept")
    arguments = parser.parse_args(argv)
    if arguments.table:
        show_table()
        return 0
    if not arguments.programs or not arguments.python37:
        parser.error("name programs, and with --python37 a Python 3.7 that has Theano 1.0.5")
    shim = [sys.executable, "-m", "theanoguard", "run", "--numpy-compat", "--python-compat"]
    status = 0
    for program in arguments.programs:
        name, source, kind = description(program)
        there = run([arguments.python37], program, arguments.flags)
        found = figures(there, run(shim, program, arguments.flags))
        print(name, found if found else "did not end under both", flush=True)
        status |= found is None or found["difference"] > 1e-3
        if found and arguments.record:
            known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
            known[name] = {"source": source, "kind": kind, "flags": arguments.flags, **found}
            RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
