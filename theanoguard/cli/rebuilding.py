"""Whether an edited program builds the same functions as the program in the files.

The edited program runs in a process of its own, from memory.  Each function that it builds is
evaluated as it was written, at inputs of the function that it replaces, and is judged by the exact
values of that function's graph.
"""

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
from pytensor import dprint
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from theanoguard._compare.problem import make_problem
from theanoguard._compare.rewriting import Change, Judge, Raised
from theanoguard._lint import Static
from theanoguard._lint.every_function import LintedRun, ModelCalled, Seen
from theanoguard._lint.matching import NotSearched
from theanoguard._lint.witness import Search
from theanoguard._patching import Patch, apply
from theanoguard._steps import first_line
from theanoguard.cli.lint import run_beside
from theanoguard.shim.install import install_theano

POINTS = 24  # inputs at which a function is evaluated: as many known ones as others, at most

ELEMENTS = 1_000_000  # numbers in all inputs of one function, at most

Point = Mapping[str, Any]
"""The values of the inputs and shared variables of a function, by a key of the program's."""

Witnesses = dict[int, list[Mapping[Variable, Any]]]
"""Inputs at which functions fail, by the number of the function."""


class BuiltRun(LintedRun):
    """Notes every function that a program builds, up to the last one that is asked for.

    - `linked`: whether the functions are compiled as well.
    - `count`: how many functions are asked for; None for all.
    """

    def __init__(self, linked: bool, count: int | None = None) -> None:
        super().__init__(linked)
        self.count = count

    def look_at(self, inputs: Any, outputs: Any, mode: Any) -> Seen:
        seen = super().look_at(inputs, outputs, mode)
        if len(self.seen) == self.count:
            raise ModelCalled
        return seen

    def rules(self, *graph: Any, **settings: Any) -> list[Static]:
        return []


@dataclass(frozen=True)
class Request:
    """What the other process is asked."""

    script: list[str]  # the program and its arguments
    files: dict[str, bytes]  # what stands in the edited files
    theano: bool
    linked: bool
    points: list[list[Point]]  # by function


@dataclass(frozen=True)
class Built:
    """A function of the edited program."""

    text: str  # its graph
    #: For each point the outputs, or the error of the evaluation.
    results: list[list[Any] | str] = field(default_factory=list)


# ---------------------------------------------------------------- one function, in both processes


def _text(seen: Seen) -> str:
    graph = [*seen.outputs, *seen.updates.values()]
    return str(dprint(graph, file="str")) if graph else ""


def _keys(seen: Seen) -> dict[Variable, str]:
    """Return keys of the inputs that are the same in both processes."""
    inputs = [v for v in seen.inputs if not isinstance(v, SharedVariable)]
    shared = [v for v in seen.inputs if isinstance(v, SharedVariable)]
    # PyTensor counts the variables that are made: the program makes them in the same order.
    shared.sort(key=lambda v: int(v.auto_name.removeprefix("auto_")))
    keys = {v: str(position) for position, v in enumerate(inputs)}
    counts: dict[str, int] = {}
    for v in shared:
        known = f"{v.name}: {v.type}"
        counts[known] = counts.get(known, 0) + 1
        keys[v] = f"{known} {counts[known]}"
    return keys


def _outcomes(search: Search, values: Mapping[Variable, Any]) -> Judge:
    """Return the judge of a function for the values of its inputs."""
    program = search.program
    own = {v: values[v] for v in (*program.inputs, *program.shared)}
    problem = make_problem(list(program.outputs), own)
    return Judge(problem, problem.reference())


# ---------------------------------------------------------------- the process of the edited program


def rebuild() -> None:
    """Run an edited program, and write what its functions compute: the entry of the process."""
    asked, answer = sys.argv[1:]
    request = pickle.loads(Path(asked).read_bytes())
    _serve(request.files)
    if request.theano:
        install_theano()
    built = BuiltRun(request.linked, len(request.points))
    _, failed = run_beside(request.script, built.start())
    if not failed:
        found = [_built(*pair) for pair in zip(built.seen, request.points, strict=False)]
        Path(answer).write_bytes(pickle.dumps(found))


def _serve(files: Mapping[str, bytes]) -> None:
    """Let Python read edited files from memory."""

    def get_data(read: Any) -> Any:
        def served(loader: Any, path: Any) -> bytes:
            own = files.get(str(Path(path).resolve()))
            data: bytes = read(loader, path) if own is None else own
            return data

        return served

    def path_stats(of_file: Any) -> Any:
        def served(loader: Any, path: Any) -> Any:
            if str(Path(path).resolve()) in files:
                raise OSError("in memory")  # (so no cached bytecode is read or written)
            return of_file(loader, path)

        return served

    apply(
        [
            Patch(SourceFileLoader, "get_data", get_data),
            Patch(SourceFileLoader, "path_stats", path_stats),
        ]
    )


def _built(seen: Seen, points: Sequence[Point]) -> Built:
    text = _text(seen)
    try:
        search = seen.searchable()
    except NotSearched:
        search = None
    if search is None:
        return Built(text)
    return Built(text, [_results(seen, search, point) for point in points])


def _results(seen: Seen, search: Search, point: Point) -> list[Any] | str:
    try:
        values = {v: point[key] for v, key in _keys(seen).items() if key in point}
        outcomes = _outcomes(search, values).outcomes.values()
    except (KeyError, TypeError, ValueError) as error:  # an input that it has not had before
        return first_line(error)
    raised = [value for value in outcomes if isinstance(value, Raised)]
    return str(raised[0]) if raised else list(outcomes)


# ---------------------------------------------------------------- the process of the command


@dataclass
class Functions:
    """The functions of the program as it is."""

    seen: list[Seen]
    script: list[str]
    theano: bool
    linked: bool
    witnesses: Witnesses = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.searches: list[Search | None] = []
        self.points: list[list[Point]] = []
        self.values: list[list[dict[Variable, Any]]] = []
        self.known: list[int] = []
        for number, seen in enumerate(self.seen):
            try:
                search = seen.searchable()
            except NotSearched:
                search = None
            known = list(self._known(number)) if search is not None else []
            values = [] if search is None else list(_limited(known, search))
            keys = _keys(seen)
            self.searches.append(search)
            self.known.append(len(known))
            self.values.append(values)
            self.points.append([{keys[v]: x for v, x in of.items() if v in keys} for of in values])

    def _known(self, number: int) -> Iterator[Mapping[Variable, Any]]:
        """Yield inputs where a function fails or was called, and others of the same signs."""
        given = [*self.witnesses.get(number, []), *self.seen[number].examples][: POINTS // 2]
        rng = np.random.default_rng(number)
        for values in given:
            yield values
            yield {v: _rescaled(x, rng) for v, x in values.items()}

    def why_not(self, files: Mapping[Path, bytes]) -> str:
        """Return why edited files must not be written, "" if they may.

        `files`: what stands in the edited files.
        """
        request = Request(
            self.script,
            {str(path.resolve()): data for path, data in files.items()},
            self.theano,
            self.linked,
            self.points,
        )
        with tempfile.TemporaryDirectory() as folder:
            asked, answer = Path(folder, "asked"), Path(folder, "answer")
            asked.write_bytes(pickle.dumps(request))
            code = f"from {__name__} import rebuild; rebuild()"
            done = subprocess.run(
                [sys.executable, "-c", code, str(asked), str(answer)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            if not answer.exists():
                lines = done.stderr.decode(errors="replace").strip().splitlines()
                return f"the edited program fails{f': {lines[-1]}' if lines else ''}"
            built: list[Built] = pickle.loads(answer.read_bytes())
        if len(built) < len(self.seen):
            return f"the edited program builds {len(built)} functions, not {len(self.seen)}"
        texts = [_text(seen) for seen in self.seen]
        changed = [i for i, text in enumerate(texts) if built[i].text != text]
        if not changed:
            return "the edited program builds the same graphs"
        return next(filter(None, (self._difference(i, built[i]) for i in changed)), "")

    def _difference(self, number: int, new: Built) -> str:
        """Return what is wrong with a function of the edited program."""
        title = self.seen[number].title
        search, lost, judged = self.searches[number], 0, 0
        known = self.known[number]
        if search is None or len(new.results) != len(self.values[number]):
            return f"{title} is changed as well, and cannot be compared"
        pairs = zip(self.values[number], new.results, strict=True)
        for position, (values, results) in enumerate(pairs):
            judge = _outcomes(search, values)
            names = list(judge.outputs)
            if isinstance(results, str):
                found = judge.changes(RuntimeError(results))
            elif len(results) != len(names):
                return f"{title} has {len(results)} results, not {len(names)}"
            else:
                found = judge.changes(dict(zip(names, results, strict=True)))
                judged += 1
            worse = [change for change in found if change.is_fault]
            lost += any(change.kind == "digits lost" for change in worse)
            # A formula may be for the signs of the failing inputs: log(p).sum() for log(p.prod()).
            no_harm = {"digits lost"} | ({"bad value made"} if 0 < known <= position else set())
            wrong = [change for change in worse if change.kind not in no_harm]
            if wrong:
                return _said(wrong[0], search, values)
        if not judged:
            return f"{title} is changed as well, and cannot be computed at any of the inputs tried"
        # At one input, digits may be right by chance.
        return f"{title} would lose digits" if lost > judged / 2 else ""


def _rescaled(value: Any, rng: np.random.Generator) -> Any:
    """Return an array of floats with other magnitudes; anything else as it is."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    with np.errstate(all="ignore"):
        return (array * 10.0 ** rng.uniform(-4, 4, array.shape)).astype(array.dtype)


def _limited(known: Sequence[Mapping], search: Search) -> Iterator[dict[Variable, Any]]:
    """Yield the inputs at which a function is evaluated: the known ones, then others."""
    left = float(ELEMENTS)
    made = search.evidence.candidates(search.seed, 2 * POINTS)
    for i, values in enumerate([*known, *made][: 2 * POINTS]):
        left -= sum(np.size(value) for value in values.values())
        if left < 0 and i > 1:
            return
        size = i % 2 and i >= len(known)  # (many formulas are for positive numbers)
        inputs = {v: np.abs(x) if size else x for v, x in values.items()}
        yield {**search.program.shared, **inputs}


def _said(change: Change, search: Search, values: Mapping[Variable, Any]) -> str:
    given = ", ".join(
        f"{v.name or f'input {i}'} = {np.array2string(np.asarray(values[v]), threshold=6)}"
        for i, v in enumerate(search.program.inputs)
    )
    right = change.as_written if change.exact is None else change.exact
    at = f" at {' '.join(given.split())}" if given else ""
    return f"with it, {change.output} would be {change.compiled} instead of {right}{at}"
