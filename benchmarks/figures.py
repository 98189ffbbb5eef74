"""Measure the tables of the documentation that depend on the guard's kernel, and keep them.

    python benchmarks/figures.py [c] [optimizers] [target] [kernel]
    python benchmarks/figures.py --accept "only the scan of complex numbers is another."

The first command measures (some minutes for a table) and writes ``docs/figures.json``, from which
the pages are made.  The tables of "target" and "kernel" are printed, and belong in
``docs/measurements/c.toml``.  If the kernel has changed since, the documentation does not build:
measure again, or say with ``--accept`` why the figures still hold.  The page then shows the reason.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import targets
from reporting import write_json

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures.json"
COMMANDS = {
    "c": "python benchmarks/overhead.py --rounds 15",
    "optimizers": "python benchmarks/optimizers.py --size 100 --size 2000 --size 6000 --rounds 7",
    "target": "python benchmarks/overhead.py --target x86-64-v3 --dtype float32 --rounds 21",
    "kernel": "python benchmarks/kernel.py",
}
COLUMNS = {
    "again": "plain again",
    "guarded": "guard",
    "NaN and Inf only": "guard nan+inf",
    "NanGuardMode": "NanGuardMode",
}
"""The columns of the first table, and what ``overhead.py`` calls them."""
IN_PLACE = {
    "again": "again",
    "NaN and Inf": "nan+inf",
    "all checks": "all",
    "NaN and Inf, in place": "nan+inf, in place",
    "all, in place": "all, in place",
}
"""The columns of the second table, and what ``optimizers.py`` calls them."""
HEADS = {
    "c": ["workload", "dtype", *COLUMNS],
    "optimizers": ["step", "size", *IN_PLACE, "MB"],
}


def kernel():
    """Return a digest of the kernel's C sources, without comments and blanks."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "theanoguard" / "guard" / "c").glob("*.[ch]")):
        code = re.sub(r"/\*.*?\*/|//[^\n]*|\s+", " ", path.read_text(encoding="utf-8"), flags=re.S)
        digest.update(" ".join(code.split()).encode())
    return digest.hexdigest()[:16]


def read():
    """Return the tables, by name."""
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def outdated(table):
    """Return why a table may not be shown; None if the kernel is the one that was measured."""
    if kernel() in (table["kernel"], *table["accepted"]):
        return None
    return (
        f"The kernel (theanoguard/guard/c/*.c) has changed since {table['date']}.  Run\n"
        "python benchmarks/figures.py\n"
        "or, if the figures still hold, python benchmarks/figures.py --accept REASON."
    )


def measured(name):
    """Run the command of a table, and return the table."""
    table = {
        "date": datetime.date.today().isoformat(),
        "processor": targets.processor(),
        "instructions": targets.instructions(),
        "pytensor": version("pytensor"),
        "kernel": kernel(),
        "accepted": {},
    }
    command = [sys.executable, *shlex.split(COMMANDS[name])[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = partial(subprocess.run, check=True, cwd=ROOT, env=environment)
    if name not in HEADS:
        run(command)
        return table
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([*command, "--json", file.name])
        found = json.loads(Path(file.name).read_text())
    return table | {"rows": [ROWS[name](row) for row in found["rows"]]}


def of_workload(row):
    """Return a row of a table from what ``overhead.py --json`` wrote."""
    return [row["workload"], row["dtype"], *rounded(row, COLUMNS)]


def of_optimizer(row):
    """Return a row of a table from what ``optimizers.py --json`` wrote."""
    memory = ", ".join(str(row["MB"][name]) for name in ("plain", "all", "all, in place"))
    return [row["optimizer"], row["size"], *rounded(row, IN_PLACE), memory]


def rounded(row, columns):
    return [float(f"{row[name]:.4g}") for name in columns.values()]


ROWS = {"c": of_workload, "optimizers": of_optimizer}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(COMMANDS)}")
    parser.add_argument("--accept", metavar="REASON", help="say why the figures hold")
    args = parser.parse_args()
    if unknown := set(args.names) - set(COMMANDS):
        parser.error(f"there is no table {', '.join(map(repr, sorted(unknown)))}")
    tables = read() if FIGURES.exists() else {}
    for name in args.names or (COMMANDS if args.accept is None else tables):
        if args.accept is None:
            tables[name] = measured(name)
        elif outdated(tables[name]):
            tables[name]["accepted"][kernel()] = args.accept
        write_json(FIGURES, tables)


if __name__ == "__main__":
    main()
