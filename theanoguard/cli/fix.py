"""``theanoguard fix``: change lines of a program to formulas of the same value that do not fail."""

import argparse
import ast
import difflib
import io
import os
import sys
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytensor.compile.mode import get_mode

from theanoguard._files import write_atomically
from theanoguard._lint.every_function import LintedRun, title_of
from theanoguard._lint.witness import Fault, Search
from theanoguard._progress import searching
from theanoguard._provenance import SourceLine
from theanoguard._provenance.records import user_line
from theanoguard._steps import as_raised
from theanoguard.cli.lint import add_search, run_beside
from theanoguard.cli.rebuilding import BuiltRun, Functions, Witnesses
from theanoguard.explain.facts.records import Explanation, Hint
from theanoguard.guard import GuardMode
from theanoguard.guard.errors import GuardError
from theanoguard.guard.every_function import NotingAll, Trips, guarding
from theanoguard.shim.install import install_theano

NOT_FIXED = "theanoguard fix: {place}: not fixed: {why}"


@dataclass(frozen=True)
class Change:
    """One line of a file, before and after.

    Parameters
    ----------
    file : Path
    line : int
        The line where the operation fails.
    old, new : str
        Without the indentation.
    op : str
        The operation that fails.
    """

    file: Path
    line: int
    old: str
    new: str
    op: str

    @property
    def place(self) -> str:
        """The file and the line, as an editor takes them."""
        return f"{os.path.relpath(self.file)}:{self.line}"


@dataclass
class Edit:
    """A file that is to be changed."""

    path: Path
    content: bytes  # as it is in the file
    changed: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> "Edit":
        """Read a file."""
        return cls(path, path.read_bytes())

    @property
    def encoding(self) -> str:
        """The encoding that Python reads the file in."""
        lines = iter(self.content.splitlines(keepends=True))
        return tokenize.detect_encoding(lambda: next(lines, b""))[0]

    @property
    def lines(self) -> list[str]:
        """The lines, with their ends."""
        return _lines_of(self.content.decode(self.encoding))

    @property
    def new_content(self) -> bytes:
        """What is to stand in the file."""
        return "".join(self.new_lines).encode(self.encoding)

    @property
    def new_lines(self) -> list[str]:
        """The lines after the change."""
        new = (self.changed.get(i, line) for i, line in enumerate(self.lines))
        return _lines_of("".join(new))

    def add(self, change: Change) -> str:
        """Make a change, and return why it cannot be made, or nothing."""
        lines = self.lines
        old = change.old.split("\n")
        codes = [line.strip() for line in lines]
        found = [i for i in range(len(lines)) if codes[i : i + len(old)] == old]
        here = change.line - 1
        if not found:
            return "the line is not in the file any more"
        if here not in found and len(found) > 1:
            return f"{len(found)} lines of the file read {change.old!r}"
        number = here if here in found else found[0]
        rest = range(number + 1, number + len(old))
        line, last = lines[number], lines[number + len(old) - 1]
        before = line[: len(line) - len(line.lstrip())]
        end = last[len(last.rstrip("\r\n")) :] or "\n"
        imports, code = _imports_of(change.new)
        at = self._last_import(number)
        if at is None:  # (they stay with the line)
            imports, code = [], [*imports, *code]
        new = before + f"{end}{before}".join(code) + end
        if number in self.changed:
            other = "another change is on the same line; run the command again after that"
            return "" if self.changed[number] == new else other
        if not self.changed.keys().isdisjoint(rest):
            return "another change is on one of these lines; run the command again after that"
        earlier = dict(self.changed)
        self.changed |= {number: new, **dict.fromkeys(rest, "")}
        present = [line.strip() for line in self.new_lines]
        missing = [line for line in imports if line not in present]
        if missing and at is not None:
            added = "".join(f"{line}{end}" for line in missing)
            self.changed[at] = self.changed.get(at, self.lines[at]) + added
        if _is_python("".join(self.new_lines)):
            return ""
        self.changed = earlier
        return "the statement has several lines, and the new one would not be Python"

    def _last_import(self, number: int) -> int | None:
        """Return the last line of the last import of the file before a line."""
        body = ast.parse("".join(self.lines)).body
        known = [n.end_lineno or 0 for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
        return max((n - 1 for n in known if n <= number), default=None)

    @property
    def count(self) -> int:
        """How many lines are changed, without those that only get an import beside them."""
        return sum(self.lines[i] not in new for i, new in self.changed.items())

    def diff(self) -> str:
        """Return the change as a unified diff."""
        name = os.path.relpath(self.path)
        return "".join(difflib.unified_diff(self.lines, self.new_lines, name, name))

    def write(self) -> None:
        """Replace the file, unless it has changed since it was read.

        Raises ``ValueError``: if it has.
        """
        if self.path.read_bytes() != self.content:
            raise ValueError(
                f"{self.path} has changed while the program ran.\nRun the command again."
            )
        mode = self.path.stat().st_mode
        write_atomically(self.path, self.new_content)
        os.chmod(self.path, mode)


def _lines_of(text: str) -> list[str]:
    """Return lines as Python counts them: a form feed, which old files have, ends none."""
    return io.StringIO(text, newline="").readlines()


def _imports_of(code: str) -> tuple[list[str], list[str]]:
    """Return the imports that come before the lines of a change, and these lines."""
    lines = code.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("import ")), len(lines))
    return lines[:count], lines[count:]


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


# ---------------------------------------------------------------- from faults to changes

Repair = tuple[Change, ...]  # the changes that repair one fault, which are made together


def repairs_by_lint(
    linted: LintedRun, seconds: float, witnesses: Witnesses
) -> Iterator[Repair | str]:
    """Yield the repairs for the inputs that lint finds, and why others cannot be made.

    `witnesses` gets these inputs, by the number of the function.
    """
    for number, seen in enumerate(linted.seen):
        search = seen.search(seconds)
        if search is None:
            continue
        for fault in search.faults.values():
            witnesses.setdefault(number, []).append(fault.values)
            yield repair_of(_explanation(search, fault), fault.line, fault.op)


def repairs_by_guard(trips: Trips) -> Iterator[Repair | str]:
    """Yield the repairs for the calls that a guard has found bad."""
    for explanation in trips.explanations.values():
        cause = explanation.cause
        yield repair_of(explanation, user_line(cause.provenance), cause.op or "an input")


def repair_of(explanation: Explanation | None, line: SourceLine | None, op: str) -> Repair | str:
    """Return the changes that repair a call, or why there are none."""
    hint = None if explanation is None else explanation.cause.hint
    if line is None or hint is None or hint.grade != "same" or not hint.change:
        place = "(line not known)" if line is None else f"{os.path.relpath(line.file)}:{line.line}"
        return NOT_FIXED.format(place=place, why=_why_not(hint, op))
    pairs = zip(hint.change[::2], hint.change[1::2], strict=True)
    return tuple(Change(Path(line.file).resolve(), line.line, *pair, op) for pair in pairs)


def _explanation(search: Search, fault: Fault) -> Explanation | None:
    """Return the explanation for a function that is called with a witness."""
    whole = search.program
    i = whole.names.index(fault.witness.output)
    program = replace(whole, outputs=[whole.outputs[i]], names=[whole.names[i]])
    try:
        with as_raised():
            program.call(program.compiled(_guard(program.mode)), fault.values)
    except GuardError as error:
        found: Explanation | None = error.explanation
        return found
    return None


def _why_not(hint: Hint | None, op: str) -> str:
    if hint is None or not hint.text:
        return f"no other formula is known for {op}"
    if hint.grade == "same":
        return f"no line can be shown to be right. {hint.text}"
    return f"no formula of the same value is known. {hint.text}"


def _guard(mode: Any) -> GuardMode:
    """Return a guard for a mode; of a linker that cannot be guarded, with the mode's rewrites."""
    found = get_mode(mode)
    try:
        return guarding(big_is_error=False).guard(found)
    except ValueError:
        return GuardMode(big_is_error=False, optimizer=found.provided_optimizer)


@dataclass
class Edits:
    """The files that are to be changed, and the reasons for the changes that are not made."""

    files: dict[Path, Edit] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def add(self, repair: Repair) -> bool:
        """Make all changes of a repair, or none."""
        files = {
            path: replace(edit, changed=dict(edit.changed)) for path, edit in self.files.items()
        }
        for change in repair:
            if change.file not in files:
                files[change.file] = Edit.of(change.file)
            if why := files[change.file].add(change):
                self.refuse(repair, why, change)
                return False
        self.files = files
        return True

    def refuse(self, repair: Repair, why: str, change: Change | None = None) -> None:
        """Note why a repair is not made."""
        place = (change or repair[0]).place
        self.refused[NOT_FIXED.format(place=place, why=why)] = None

    @property
    def contents(self) -> dict[Path, bytes]:
        """What is to stand in the files."""
        return {path: edit.new_content for path, edit in self.files.items()}


def edits_of(found: Iterable[Repair | str], functions: Functions | None = None) -> Edits:
    """Return the changed files, and why other changes cannot be made.

    `functions` judges what the edited program builds: changes that it refuses are not made.
    """
    edits = Edits()
    repairs = []
    for repair in dict.fromkeys(found):
        if isinstance(repair, str):
            edits.refused[repair] = None
        elif edits.add(repair):
            repairs.append(repair)
    if functions is None or not repairs or not functions.why_not(edits.contents):
        return edits
    good = Edits(refused=edits.refused)
    for repair in repairs:
        tried = replace(good)
        if not tried.add(repair):
            continue
        if why := functions.why_not(tried.contents):
            good.refuse(repair, why)
        else:
            good = tried
    return good


# ---------------------------------------------------------------- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = (
        "%(prog)s [--diff | --write] [--theano] [--run] [--seconds SECONDS] SCRIPT [ARGUMENT ...]"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="print the diff and nothing else")
    what.add_argument("--write", action="store_true", help="change the files")
    parser.add_argument(
        "--theano", action="store_true", help="let the script's `import theano` run on PyTensor"
    )
    parser.add_argument(
        "--run",
        action="store_true",
        dest="guarded",
        help="run the script to its end under the guard, and repair the calls that fail, instead "
        "of searching for inputs at which a function fails",
    )
    add_search(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a program, and print or make the changes.

    - Returns: the exit status: 1 if there are changes that were not written, 2 for a program that
      fails or compiles nothing, and if a function could not be searched, else 0.
    - Raises ``ValueError``: without a program, or if a file has changed meanwhile.
    - Raises ``OSError``: when a file cannot be read or written.
    """
    if not arguments.script:
        raise ValueError("no program.\nName a file.")
    if arguments.theano:
        install_theano()
    start = time.time()
    witnesses: Witnesses = {}
    built = BuiltRun(linked=arguments.guarded)
    if arguments.guarded:
        guarded = Guarded(action="record", big_is_error=False)
        guarded.start()
        _, failed = run_beside(arguments.script, _both(built.start(), guarded.stop))
        found = [*repairs_by_guard(guarded.trips)]
        not_searched = guarded.unguarded
    else:
        _, failed = run_beside(arguments.script, built.start())
        with searching("fix"):
            found = [*repairs_by_lint(built, arguments.seconds, witnesses)]
        not_searched = {seen.title: f"lint {seen.why_not}" for seen in built.seen if seen.why_not}
    program = list(arguments.script), arguments.theano, arguments.guarded
    with searching("fix"):
        edits = edits_of(found, Functions(built.seen, *program, witnesses))
    for edit in edits.files.values():
        if edit.path.stat().st_mtime > start:
            raise ValueError(
                f"{edit.path} has changed while the program ran.\nRun the command again."
            )
        print(edit.diff(), end="")
    sys.stdout.flush()
    if not arguments.diff:
        for line in edits.refused:
            print(line, file=sys.stderr)
    for title, why in not_searched.items():
        print(f"theanoguard fix: {title}: not searched: {why}", file=sys.stderr)
    count = sum(edit.count for edit in edits.files.values())
    lines = f"{count} line{'' if count == 1 else 's'}"
    if arguments.write:
        for edit in edits.files.values():
            edit.write()
        print(f"theanoguard fix: {lines} changed", file=sys.stderr)
    elif not arguments.diff:
        advice = "; --write changes the file" if count else ""
        print(f"theanoguard fix: {lines} can be changed{advice}", file=sys.stderr)
    if failed or not built.seen or not_searched:
        return 2
    return int(bool(edits.files) and not arguments.write)


class Guarded(NotingAll):
    """A guarded run that also keeps why functions could not be guarded, by their titles."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.unguarded: dict[str, str] = {}

    def leave(self, error: ValueError) -> None:
        self.unguarded[title_of(sys._getframe(1))] = str(error)


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def stop() -> None:
        one()
        other()

    return stop
