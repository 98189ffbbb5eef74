"""Plants one small fault at a time in the package, and prints those that no near test notices.

    python tests/mutants.py --sample 60 --seed 1

A fault changes a number, a condition or an operator, or drops a call.  The tests near to the file
(`NEAR`) run on a copy of the checkout.  The exit status is 1 if fewer than 90 % are noticed.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The test files near to a part of the package; the longest name that fits counts.
NEAR = {
    "guard": "guard/test_values.py guard/test_mode.py guard/test_choices.py guard/test_actions.py",
    "guard/bounds.py": "guard/test_indices.py",
    "guard/blocks.py": "guard/test_blocks.py",
    "guard/c": "guard/test_kernel.py guard/test_rollback.py guard/test_values.py",
    "guard/carry.py": "guard/test_carry.py guard/test_values.py",
    "guard/lost.py": "guard/test_lost.py",
    "guard/partly.py": "guard/test_partly.py",
    "guard/policy.py": "guard/test_values.py guard/test_mode.py",
    "guard/verdict.py": "guard/test_verdict.py guard/test_values.py guard/test_choices.py",
    "operations": "guard/test_carry.py guard/test_verdict.py guard/test_values.py",
    "_evaluate": "explain/test_gallery.py explain/test_explain.py guard/test_verdict.py",
    "explain/advice": "explain/test_gallery_kinds.py explain/test_explain.py",
    "_lint": "lint/test_lint.py",
    "training": "training",
    "ops": "ops",
    "testvalue.py": "test_testvalue.py",
}
# Parts that the tests of other backends cover.
ELSEWHERE = ("guard/numba", "guard/jax", "guard/pytorch", "guard/graph")

TIMEOUT = 600

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
            if name not in ("annotation", "returns", "decorator_list"):
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


def in_c(file: str, text: str) -> Iterator[Mutant]:
    """Yield the faults of a C file, outside of comments."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for pattern, new in IN_C.items():
        for found in re.finditer(pattern, code):
            line = text.count("\n", 0, found.start()) + 1
            if text.splitlines()[line - 1].lstrip().startswith("#"):
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


def near(file: str) -> list[str]:
    """Return the test files near to a file of the package; none for what is not looked at."""
    fitting = [part for part in NEAR if file == part or file.startswith(f"{part}/")]
    if not fitting or file.startswith(ELSEWHERE):
        return []
    return [f"tests/{test}" for test in NEAR[max(fitting, key=len)].split()]


def mutants(only: str) -> list[Mutant]:
    """Return all faults of the files whose names contain a text."""
    package, found = ROOT / "theanoguard", []
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.c")]):
        file = path.relative_to(package).as_posix()
        if near(file) and only in file:
            of = in_python if path.suffix == ".py" else in_c
            found += of(file, path.read_text(encoding="utf-8"))
    return found


def is_noticed(mutant: Mutant, checkout: Path) -> bool:
    """Run the near tests on a copy of the checkout that has the fault."""
    path = checkout / "theanoguard" / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(text), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
        *("-m", "not deep and not slow", *near(mutant.file)),
    ]
    try:
        run = subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        return run.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60, help="how many faults to plant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the names of the files")
    parser.add_argument("--list", action="store_true", help="only show the faults")
    arguments = parser.parse_args()
    found = mutants(arguments.only)
    chosen = random.Random(arguments.seed).sample(found, min(arguments.sample, len(found)))
    if arguments.list:
        print(*chosen, sep="\n")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        kept = shutil.ignore_patterns(".*", "__pycache__", "docs", "benchmarks")
        shutil.copytree(ROOT, checkout, ignore=kept)
        for number, mutant in enumerate(chosen, 1):
            if not is_noticed(mutant, checkout):
                survivors.append(mutant)
                print(f"survives ({number} of {len(chosen)}): {mutant}", flush=True)
    killed = len(chosen) - len(survivors)
    print(f"{killed} of {len(chosen)} faults are noticed ({len(found)} could be planted).")
    return int(killed < 0.9 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
