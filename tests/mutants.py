"""Plants one small fault at a time in the package, and prints those that no near test notices.

    python tests/mutants.py --sample 60 --seed 1

A fault changes a number, a condition or an operator, or drops a call.  The tests near to the files
(`NEAR`) run once on a copy of the checkout, which records the lines that each of them runs.  Then
each fault is tried with the tests that run its line, the fastest first, and after these with the
other near ones, as long as ``--seconds`` allow.  The figures of each part of the package are shown
at the end.  The exit status is 1 if fewer than 90 % are noticed.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytensor
import pytensor.tensor  # noqa: F401  (each fault is tried in a fork, which has it then)
import pytest

ROOT = Path(__file__).parents[1]

GUARD = " ".join(
    f"guard/test_{name}.py"
    for name in (
        "values mode choices actions rollback kernel carry verdict partly lost products indices"
        " blocks second_buffers control every flags functions graphs kept own_ops repr tracebacks"
        " allowed_infinities both_kernels discarded unchecked learning"
    ).split()
)
# The test files near to a part of the package; the longest name that fits counts.
NEAR = {
    "guard": GUARD,
    "guard/c/blocks.c": "guard/test_blocks.py guard/test_values.py",
    "guard/c/flags.c": "guard/test_kernel.py guard/test_flags.py",
    "guard/c/kernel.c": "guard/test_kernel.py guard/test_rollback.py guard/test_values.py "
    "guard/test_second_buffers.py guard/test_every.py guard/test_control.py guard/test_blocks.py",
    "guard/c/nodes.c": "guard/test_kernel.py guard/test_rollback.py guard/test_values.py "
    "guard/test_second_buffers.py guard/test_blocks.py guard/test_flags.py",
    "guard/c/numpy_kernel.py": "guard/test_both_kernels.py guard/test_values.py "
    "guard/test_rollback.py guard/test_every.py",
    "guard/c/scan.c": "guard/test_kernel.py",
    "guard/c/undo.c": "guard/test_rollback.py guard/test_second_buffers.py",
    "guard/errors.py": "guard/test_actions.py guard/test_tracebacks.py explain/test_gallery.py",
    "guard/every_function.py": "guard/test_control.py guard/test_actions.py",
    # (The tests of a backend name it, so they need no --backend.)
    "guard/graph": "guard/test_jitted.py guard/test_numba.py guard/test_jax.py",
    "guard/jax": "guard/test_jax.py guard/test_jitted.py",
    "guard/numba": "guard/test_numba.py guard/test_jitted.py guard/test_loop_states.py",
    "operations": "operations guard/test_carry.py guard/test_verdict.py guard/test_values.py "
    "lint/test_lint.py",
    "_evaluate": "explain/test_gallery.py explain/test_explain.py guard/test_verdict.py "
    "explain/test_gallery_kinds.py",
    "_exact": "exact stable/test_exact_values.py",
    "_compare": "compare",
    "_precision": "precision",
    "_provenance": "provenance explain/test_gallery.py",
    "cli": "cli",
    "explain": "explain/test_gallery_kinds.py explain/test_explain.py explain/test_gallery.py "
    "explain/test_reports.py explain/test_renderings.py explain/test_repro.py lint/test_lint.py",
    "explain/advice": "explain/test_gallery_kinds.py explain/test_explain.py "
    "explain/test_gallery.py explain/test_logarithms.py explain/test_meaning.py "
    "explain/test_coordinates.py explain/test_explain_random.py explain/test_faults.py "
    "explain/test_mismatch.py",
    "_lint": "lint test_defaults.py",
    "log": "log cli/test_cli.py",
    "monitor": "monitor",
    "notebook": "view/test_notebook.py",
    "pymc": "pymc_guard",
    "stable": "stable",
    "view": "view",
    "training": "training test_defaults.py",
    "ops": "ops test_defaults.py",
    "testvalue.py": "test_testvalue.py test_defaults.py",
}
# Parts whose package is too large for these runs.
ELSEWHERE = ("guard/pytorch",)
# These also run where there is no compiler.
WITHOUT_COMPILER = ("guard/c/numpy_kernel.py",)

RECORDING = 6000  # seconds

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
IN_C = {
    r" < ": " <= ",
    r" <= ": " < ",
    r" == ": " != ",
    r" != ": " == ",
    r" && ": " || ",
    r" \|\| ": " && ",
    r" \+ 1\b": " + 2",
    r" - 1\b": "",
    r"\bif \(": "if (!",
    r" & ": " | ",
}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Parameters
    ----------
    file : str
        From ``theanoguard`` on.
    start, end : int
        Which characters of the file are replaced.
    old, new : str
        What stands there, and what takes its place.
    line : int
    """

    file: str
    start: int
    end: int
    old: str
    new: str
    line: int

    def __str__(self) -> str:
        shown = (" ".join(text.split())[:70] or "(nothing)" for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {' -> '.join(shown)}"

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault."""
        return text[: self.start] + self.new + text[self.end :]


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield faulty forms of one node."""
    match node:
        case ast.Compare(left, [op], comparators) if type(op) in COMPARED:
            yield ast.Compare(left, [COMPARED[type(op)]()], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in COMPUTED:
            yield ast.BinOp(left, COMPUTED[type(op)](), right)
        case ast.Constant(value) if isinstance(value, bool):
            yield ast.Constant(not value)
        case ast.Constant(value) if isinstance(value, int | float):
            yield ast.Constant(value + 1)
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            yield ast.UnaryOp(ast.Not(), test)  # in the place of the test
        case ast.Expr(ast.Call()):
            yield ast.Pass()


def in_python(file: str, text: str) -> Iterator[Mutant]:
    """Yield the faults of a module; annotations, decorators and docstrings have none."""
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    lines = text.splitlines()

    def place(line: int, column: int) -> int:
        return offsets[line - 1] + len(lines[line - 1].encode()[:column].decode())

    todo: list[ast.AST] = [ast.parse(text)]
    while todo:
        node = todo.pop()
        for name, value in ast.iter_fields(node):
            # (what is wrong with the lengths of a strict `zip` is the fault of other code)
            is_strict = isinstance(node, ast.keyword) and node.arg == "strict"
            if name not in ("annotation", "returns", "decorator_list") and not is_strict:
                inner = value if isinstance(value, list) else [value]
                todo += [part for part in inner if isinstance(part, ast.AST)]
        for new in changed(node):
            old = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
            start, end = (
                place(old.lineno, old.col_offset),
                place(old.end_lineno, old.end_col_offset),
            )
            written = ast.unparse(ast.fix_missing_locations(new))
            written = written if isinstance(new, ast.Pass) else f"({written})"
            yield Mutant(file, start, end, text[start:end], written, old.lineno)


def compiled_lines(code: str) -> set[int]:
    """Return the numbers of the lines that are for this processor and this release of Python."""
    marked = "\n".join(
        line if re.match(r"\s*#\s*(if|el|endif)", line) else f"line_{n}"
        for n, line in enumerate(code.splitlines(), 1)
    )
    command = [pytensor.config.cxx or "g++", "-E", "-P", "-march=native", "-x", "c++", "-"]
    command.append(f"-DPY_VERSION_HEX={sys.hexversion}")
    result = subprocess.run(command, input=marked, capture_output=True, text=True, check=True)
    return {int(n) for n in re.findall(r"line_(\d+)", result.stdout)}


def in_c(file: str, text: str) -> Iterator[Mutant]:
    """Yield the faults of a C file, outside of comments and of what is not compiled here."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    compiled = compiled_lines(code)
    for pattern, new in IN_C.items():
        for found in re.finditer(pattern, code):
            line = text.count("\n", 0, found.start()) + 1
            if line not in compiled or text.splitlines()[line - 1].lstrip().startswith("#"):
                continue
            if new != "if (!":
                yield Mutant(file, found.start(), found.end(), found[0], new, line)
                continue
            depth, end = 1, found.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(code[end], 0)
                end += 1
            test = text[found.end() : end - 1]
            yield Mutant(file, found.end(), end - 1, test, f"!({test})", line)


def fitting(file: str) -> list[str]:
    """Return the names in `NEAR` that fit to a file of the package, the shortest first."""
    return sorted((part for part in NEAR if file == part or file.startswith(f"{part}/")), key=len)


def room(file: str) -> str:
    """Return the part of the package that a file belongs to."""
    return fitting(file)[0]


def near(file: str) -> list[str]:
    """Return the test files near to a file of the package; none for what is not looked at."""
    if not fitting(file) or file.startswith(ELSEWHERE):
        return []
    return [
        "tests/test_defaults.py",
        *(f"tests/{test}" for test in NEAR[fitting(file)[-1]].split()),
    ]


def mutants(only: str) -> list[Mutant]:
    """Return all faults of the files whose names contain a text."""
    package, found = ROOT / "theanoguard", []
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.c")]):
        file = path.relative_to(package).as_posix()
        if near(file) and only in file:
            of = in_python if path.suffix == ".py" else in_c
            found += of(file, path.read_text(encoding="utf-8"))
    return found


# ---------------------------------------------------------------- the tests that run a line


@dataclass
class Lines:
    """Which lines of the package each test runs, and how long it takes.

    A plugin of pytest: it listens while the tests run.  A line that runs before the first test,
    such as one of a table, belongs to no test.
    """

    package: str
    names: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    tests: dict[str, list[int]] = field(default_factory=dict)
    now: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Lines":
        """Restore what :meth:`write` has written."""
        return cls("", *json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """Write it to a file."""
        known = [self.names, self.seconds, self.failing, self.tests]
        path.write_text(json.dumps(known), encoding="utf-8")

    def start(self) -> None:
        """Listen to the lines of the package."""
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "mutants")
        monitoring.register_callback(
            monitoring.COVERAGE_ID, monitoring.events.LINE, self._line_is_run
        )
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def _line_is_run(self, code: Any, line: int) -> Any:
        if code.co_filename.startswith(self.package):
            self.now.append(f"{code.co_filename.removeprefix(self.package)}:{line}")
        return sys.monitoring.DISABLE  # once for each test

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now, began = [], time.perf_counter()
        sys.monitoring.restart_events()
        result = yield
        for line in self.now:
            self.tests.setdefault(line, []).append(len(self.names))
        self.names.append(item.nodeid)
        self.seconds.append(time.perf_counter() - began)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failing.append(report.nodeid)

    def of(self, mutant: Mutant, seconds: float) -> list[str]:
        """Return near tests that take some seconds together: those that run the line come first."""
        files, found = tuple(near(mutant.file)), []
        running = set(self.tests.get(f"{mutant.file}:{mutant.line}", ()))
        for i in sorted(range(len(self.names)), key=lambda i: (i not in running, self.seconds[i])):
            if self.names[i].startswith(files) and self.names[i] not in self.failing:
                seconds -= self.seconds[i]
                if seconds < 0 and found:
                    break
                found.append(self.names[i])
        return found


def in_a_fork(run: Callable[[], int], checkout: Path, limit: float) -> bool:
    """Return whether a run of pytest on a checkout passes, in a process of its own."""
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(checkout)
        os.environ["PYTHONPATH"] = str(checkout)
        sys.path.insert(0, str(checkout))
        os._exit(run())
    until = time.monotonic() + limit
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


CHOSEN = ("-q", "-p", "no:cacheprovider", "-m", "not deep and not slow")


def record(tests: list[str], checkout: Path, path: Path) -> bool:
    """Write to a file which tests run which lines; return whether any was run."""

    def run() -> int:
        lines = Lines(f"{checkout / 'theanoguard'}/")
        lines.start()
        pytest.main([*CHOSEN, *tests], plugins=[lines])
        lines.write(path)
        return not lines.names

    return in_a_fork(run, checkout, RECORDING)


def passes(tests: list[str], checkout: Path, limit: float, without_compiler: bool = False) -> bool:
    """Return whether tests pass on a checkout within a number of seconds."""

    def run() -> int:
        sys.dont_write_bytecode = True
        if without_compiler:
            pytensor.config.cxx = ""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        return int(pytest.main([*CHOSEN, "-x", *tests]))

    return in_a_fork(run, checkout, limit)


def uncached(text: str) -> str:
    """Return a module whose operations have no version of their C code.

    PyTensor does not cache the C code of those: it would take the compiled code without the fault.
    """
    return re.sub(r"(def c_code_cache_version\(.*\n +return ).*", r"\1()", text)


def is_noticed(mutant: Mutant, checkout: Path, lines: Lines, seconds: float) -> bool:
    """Run the near tests on a copy of the checkout that has the fault."""
    path = checkout / "theanoguard" / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(uncached(mutant.applied(text)), encoding="utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
    try:
        tests, limit = lines.of(mutant, seconds), 60 + 4 * seconds
        if not passes(tests, checkout, limit):
            return True
        plain = mutant.file in WITHOUT_COMPILER
        return plain and not passes(tests, checkout, limit, without_compiler=True)
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60, help="how many faults to plant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the names of the files")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each fault")
    parser.add_argument("--list", action="store_true", help="only show the faults")
    parser.add_argument("--lines", type=Path, help="keep here which tests run which lines")
    arguments = parser.parse_args()
    found = mutants(arguments.only)
    chosen = random.Random(arguments.seed).sample(found, min(arguments.sample, len(found)))
    if arguments.list:
        print(*chosen, sep="\n")
        return 0
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder).resolve() / "checkout"
        kept = shutil.ignore_patterns(".*", "__pycache__", "benchmarks")
        shutil.copytree(ROOT, checkout, ignore=kept)
        recorded = arguments.lines or Path(folder) / "lines.json"
        if not recorded.exists():
            tests = sorted({test for mutant in chosen for test in near(mutant.file)})
            if not record(tests, checkout, recorded):
                return 2
        lines = Lines.read(recorded)
        if lines.failing:
            print("left out, since they fail without a fault:", *lines.failing, sep="\n  ")
        for number, mutant in enumerate(chosen, 1):
            if not is_noticed(mutant, checkout, lines, arguments.seconds):
                survivors.append(mutant)
                print(f"survives ({number} of {len(chosen)}): {mutant}", flush=True)
    killed = len(chosen) - len(survivors)
    planted, surviving = (Counter(room(m.file) for m in each) for each in (chosen, survivors))
    for part, number in sorted(planted.items()):
        print(f"{part:20} {number - surviving[part]:3} of {number:3}")
    print(f"{killed} of {len(chosen)} faults are noticed ({len(found)} could be planted).")
    return int(killed < 0.9 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
