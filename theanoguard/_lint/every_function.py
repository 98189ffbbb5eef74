"""Lint of every function that a program compiles, with the inputs of its calls."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort

from theanoguard._lint.baseline import Accepted, Baseline
from theanoguard._lint.finding import Finding, Static, reported
from theanoguard._lint.linter import lint_values, ranges_of
from theanoguard._lint.matching import (
    Asked,
    NotSearched,
    ensure_ran,
    search_of,
    unless_rejected,
    witnessed,
)
from theanoguard._lint.witness import Search, Watched
from theanoguard._patching import Patch, apply
from theanoguard._provenance import is_user_file
from theanoguard._provenance.designating import made_by_grad
from theanoguard._pytensor import (
    Container,
    Function,
    FunctionMaker,
    Mode,
    PerformLinker,
    Variable,
    captured_inputs,
    is_numeric,
    map_storage,
)
from theanoguard.guard.pausing import paused, unguarded

logger = logging.getLogger("theanoguard")

# Where the functions inside ``scan`` and ``OpFromGraph`` are compiled: they have been checked with
# the graph around them.
_COMPILERS = tuple(
    f"pytensor/{name}"
    for name in ("scan/op.py", "compile/builders.py", "compile/inner_function.py", "link/")
)

CALLS = 20  # calls of a function whose inputs are remembered


class ModelCalled(BaseException):
    """The program calls a function, which has not been compiled."""


class Unlinked(PerformLinker):
    """Makes functions that cannot be called, without compiling anything.

    `called`: called with the values of the inputs, by variable, when the program calls the
    function.
    """

    def __init__(self, called: Callable[[dict], None]) -> None:
        super().__init__()
        self.called = called

    def make_all(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None
    ) -> tuple:
        """Return what a linker does, with a function that stops the program."""
        variables = list(self.fgraph.inputs)
        ins, outs, _ = map_storage(
            self.fgraph, self.fgraph.toposort(), input_storage, output_storage, storage_map
        )

        def stop() -> None:
            self.called({v: cell[0] for v, cell in zip(variables, ins, strict=True)})
            raise ModelCalled

        containers = (
            [Container(v, storage) for v, storage in zip(variables, storages, strict=True)]
            for variables, storages in ((self.fgraph.inputs, ins), (self.fgraph.outputs, outs))
        )
        stop.allow_gc = False  # type: ignore[attr-defined]
        return stop, *containers, [], []


@dataclass
class Seen:
    """A graph that was compiled."""

    inputs: list[Variable]  # those that are shared as well
    outputs: list[Variable]
    updates: dict[Variable, Variable]
    values: dict[Variable, Any]  # of shared variables
    static: list[Static]
    mode: Any
    gradient: bool | None
    examples: list[dict[Variable, Any]] = field(default_factory=list)  # the inputs of calls
    #: What messages call the function: the line that compiles it, and its name.
    title: str = "a function"
    is_searched: bool = False  # whether the findings were asked for
    why_not: str = ""  # why the function could not be searched, if so

    def call(self, values: dict[Variable, Any]) -> None:
        """Remember the inputs of a call."""
        if len(self.examples) < CALLS:
            self.examples.append({v: np.copy(x) for v, x in values.items() if is_numeric(v.type)})

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and the largest element that inputs had in calls: the search stays there."""
        return {
            v.name or "an input": (bounds.lo, bounds.hi)
            for v, bounds in ranges_of(self.examples).items()
            if v not in self.values
        }

    def _asked(self, seconds: float) -> Asked:
        return Asked(
            examples=self.examples, gradient=self.gradient, mode=self.mode, seconds=seconds
        )

    def searchable(self, seconds: float = 0) -> Search | None:
        """Return a search for witnesses that has not run, None if there is nothing to search.

        Raises ``NotSearched``: if no values of its inputs can be made up.
        """
        return search_of(self.outputs, self.updates, self._asked(seconds))

    def search(self, seconds: float) -> Search | None:
        """Return a search for witnesses that has run, None if nothing was searched."""
        try:
            search = self.searchable(seconds)
            if search is not None:
                search.run()
                ensure_ran(search)
        except NotSearched as error:
            self.why_not = error.short
            return None
        return search

    def findings(
        self, ignore: Sequence[str], seconds: float, watched: Watched | None = None
    ) -> list[Finding]:
        """Return the findings, those with a witness first."""
        self.is_searched = True
        try:
            asked = replace(self._asked(seconds), watched=watched)
            return witnessed(self.outputs, self.updates, self.static, asked, ignore)
        except NotSearched as error:
            self.why_not = error.short
            found = [replace(one.finding, remark=self.why_not) for one in self.static]
            return reported(found, ignore)


class LintedRun:
    """Lints every function that is compiled between `start` and its end.

    - `linked`: whether the functions are compiled as well.
    - `**settings`: of :func:`theanoguard._lint.lint_values`.
    """

    def __init__(self, linked: bool = False, **settings: Any) -> None:
        self.linked = linked
        self.settings = settings
        self.seen: list[Seen] = []
        self.numbers: dict[Finding, int] = {}
        self._made_by: WeakKeyDictionary[Any, Seen] = WeakKeyDictionary()

    def look_at(self, inputs: Any, outputs: Any, mode: Any) -> Seen:
        """Note one function, given as ``FunctionMaker`` is."""
        inputs = [FunctionMaker.wrap_in(i) for i in inputs]
        several = isinstance(outputs, list | tuple)
        outputs = [] if outputs is None else outputs if several else [outputs]
        outputs = [FunctionMaker.wrap_out(o).variable for o in outputs]
        updates = {i.variable: i.update for i in inputs if i.update is not None}
        values = {i.variable: _shared_value(i) for i in inputs if is_numeric(i.variable.type)}
        values = {v: value for v, value in values.items() if value is not None}
        if self.linked:  # the compiler rewrites the graph in place
            copies = clone_replace([*outputs, *updates.values()], {})
            outputs, news = copies[: len(outputs)], copies[len(outputs) :]
            updates = dict(zip(updates, news, strict=True))
        # A compiled function cannot be differentiated, so it has all its gradients already.
        nodes = toposort([*outputs, *updates.values()])
        gradient = None if any(map(made_by_grad, nodes)) else False
        static = self.rules(outputs, updates, values, gradient=gradient, **self.settings)
        variables = [i.variable for i in inputs]
        seen = Seen(variables, outputs, updates, values, static, mode, gradient)
        self.seen.append(seen)
        return seen

    def rules(self, *graph: Any, **settings: Any) -> list[Static]:
        """Return what the rules find in a graph."""
        return lint_values(*graph, **settings)

    def findings(self, seconds: float) -> list[Finding]:
        """Return the findings in all functions, each once, with a witness if there is one."""
        ignore = self.settings.get("ignore", ())
        best: dict[Finding, Finding] = {}
        for number, seen in enumerate(self.seen):
            for finding in seen.findings(ignore, seconds):
                if finding not in best or best[finding].witness is None:
                    best[finding] = finding
                    self.numbers[finding] = number
        return list(best.values())

    def number_of(self, finding: Finding) -> int:
        """Return which of the functions a finding belongs to."""
        return self.numbers[finding]

    def start(self) -> Callable[[], None]:
        """Lint what is compiled from now on, and return a function that ends it."""
        patches = [Patch(FunctionMaker, "__init__", self._noting)]
        if self.linked:
            patches.append(Patch(Function, "__call__", self._recording))
        return apply(patches)

    def _noting(self, make: Any) -> Any:
        @wraps(make)
        def __init__(
            maker: Any, inputs: Any, outputs: Any, mode: Any = None, *args: Any, **kwargs: Any
        ) -> None:
            seen = None
            if not paused.get() and not is_inner(sys._getframe(1)):
                seen = self.look_at(inputs, outputs, mode)
                seen.title = title_of(sys._getframe(1), kwargs.get("name"))
            if not self.linked:
                mode = Mode(Unlinked(_forget if seen is None else seen.call), None)
            make(maker, inputs, outputs, mode, *args, **kwargs)
            if seen is not None:
                self._made_by[maker] = seen

        return __init__

    def _recording(self, call: Any) -> Any:
        @wraps(call)
        def __call__(fn: Any, *args: Any, **kwargs: Any) -> Any:
            seen = None if paused.get() else self._made_by.get(fn.maker)
            if seen is not None and len(seen.examples) < CALLS:
                with unguarded():
                    values = captured_inputs(fn, args, kwargs)
                given = zip(fn.maker.inputs, values, strict=True)
                seen.call({i.variable: v for i, v in given if i.variable not in seen.values})
            return call(fn, *args, **kwargs)

        return __call__


class LintedSuite(LintedRun):
    """Lints the functions that the tests of a suite call, between the inputs of their calls.

    - `seconds`: how long each function is searched.
    - `new`: the findings that the baseline does not hold.
    - `met`: the findings that it holds.
    """

    def __init__(self, baseline: Baseline, seconds: float) -> None:
        super().__init__(linked=True)
        self.baseline = baseline
        self.seconds = seconds
        self.new: dict[Accepted, Finding] = {}
        self.met: set[Accepted] = set()
        self.searched = self.failed = 0

    def __str__(self) -> str:
        gone = len(self.baseline.accepted - self.met)
        counts = {
            "functions searched": self.searched,
            "not searchable": self.failed,
            "new findings": len(self.new),
            "accepted": len(self.met),
            "accepted before and not found now": gone,
        }
        always = ("functions searched", "new findings")
        return ", ".join(f"{what}: {n}" for what, n in counts.items() if n or what in always)

    def search(self) -> list[Finding]:
        """Search what was called since the last time, and return the findings that are new."""
        called = {id(seen): seen for seen in (*self.seen, *self._made_by.values())}
        self.seen.clear()
        found = []
        for seen in called.values():
            if seen.examples and not seen.is_searched:
                found += self._findings_of(seen)
        return found

    def _findings_of(self, seen: Seen) -> list[Finding]:
        self.searched += 1
        try:
            findings = seen.findings((), self.seconds, unless_rejected)
        except Exception as error:  # the test has passed, and this is lint's fault
            self.failed += 1
            logger.info("theanoguard: a function was not linted: %s", error)
            return []
        entries = {self.baseline.entry(f): f for f in findings if f.witness is not None}
        self.met |= entries.keys() & self.baseline.accepted
        new = {e: f for e, f in entries.items() if e not in self.met and e not in self.new}
        self.new |= new
        return list(new.values())


def title_of(frame: Any, name: str | None = None) -> str:
    """Return what messages call a function that is compiled below a frame."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    place = "a function" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return f"{place} ({name})" if name else place


def _forget(values: dict[Variable, Any]) -> None:
    """Do nothing with the inputs of a call."""


def is_inner(frame: Any) -> bool:
    """Whether a function is compiled for a node, and not for the program."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        file = frame.f_code.co_filename.replace("\\", "/")
        if any(part in file for part in _COMPILERS):
            return True
        frame = frame.f_back
    return False


def _shared_value(spec: Any) -> Any:
    """The value of an input that is a shared variable, else None."""
    value = spec.value.container if isinstance(spec.value, Variable) else spec.value
    return value.storage[0] if isinstance(value, Container) else None
