"""What rewriting changes: a compiled graph against the graph as written, judged by exact values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors

from theanoguard._compare.difference import Tolerance, as_dense, difference, is_comparable
from theanoguard._compare.problem import Compiled, Problem, Reference, copy_of
from theanoguard._exact import evaluate
from theanoguard._exact.balls import UNKNOWN, kind_of, nearest_float, text_of
from theanoguard._exact.rules import is_real
from theanoguard._exact.scalars import STEPS
from theanoguard._naming import name_of
from theanoguard._provenance import SourceLine, track_provenance, tracker_of
from theanoguard._provenance.places import source_lines
from theanoguard._provenance.source import source_place
from theanoguard._pytensor import FUSING, IN_PLACE, is_numeric, rewrite_names
from theanoguard._shown import brief
from theanoguard._text import index_text
from theanoguard.guard.pausing import twin_of, unguarded

WORST = 4  # elements of an output that are judged: those that differ most

LOST = 100  # a compiled value has lost digits if its error is so many times the error as written

CLOSE = 16  # units in the last place that are no loss whatever the graph as written has

COARSE = 1e-3  # a larger relative error is another value, not lost digits

NEIGHBOURS = 4  # inputs a few units in the last place away, at which lost digits are confirmed

FLIPS = 8  # operands a few units in the last place away, at which a decision is looked at

UNLIKELY = {*IN_PLACE, *FUSING, "insert_deepcopy"}
"""Rewrites that change no values, and that are not searched."""

GENERAL = ("MergeOptimizer", "constant_folding")
"""Rewrites that others build on, and that are named last."""

KINDS = {
    "error lost": "raises an error as written",
    "error made": "raises an error that the graph as written does not raise",
    "bad value made": "has a NaN or Inf that the graph as written does not have",
    "bad value lost": "has a number where the graph as written has a NaN or Inf",
    "value changed": "has another value than the graph as written",
    "digits lost": "has lost digits that the graph as written has",
    "discontinuity": "is on the other side of a jump, within rounding of it",
}
"""The kinds of changes, and what the compiled output does."""

NO_FAULT = ("discontinuity", "bad value lost")
"""Kinds that are no fault of a rewrite: a bad value that is not computed harms nobody."""


@dataclass(frozen=True)
class Raised:
    """An error that an output raises as written, and the variable that cannot be computed."""

    error: Exception
    variable: Variable | None

    def __str__(self) -> str:
        lines = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {lines[0]}" if lines else type(self.error).__name__


@brief
@dataclass(frozen=True)
class Change:
    """A change of an output by rewriting.

    Parameters
    ----------
    kind : str
        "value changed", "digits lost", "bad value made", "error lost" and "error made" are faults.
        "bad value lost" (a NaN or Inf of the graph as written is not computed any more) and
        "discontinuity" (a comparison or a step within rounding of its threshold) are none.
    output : str
    index : tuple of int or None
        The element that changed most, () for a scalar; None for an error, or if the shape changed.
    as_written, compiled : str
        The value or the error of each.
    exact : str or None
        The exact value of that element, if it was needed and could be computed; of an integer, the
        value by NumPy's dtype rules.
    operation : str or None
        The first expression that changed, that raises the error, or at which the jump is.
    source : SourceLine or None
        Its line, or else the line of the output.
    rewrites : tuple of str
        The fewest rewrites found whose exclusion avoids the change.
    """

    kind: str
    output: str
    index: tuple[int, ...] | None
    as_written: str
    compiled: str
    exact: str | None = None
    operation: str | None = None
    source: SourceLine | None = None
    rewrites: tuple[str, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Whether the rewrite is to blame."""
        return self.kind not in NO_FAULT

    @property
    def excluding(self) -> str | None:
        """The call that avoids the change, as text; None if no rewrite was found."""
        names = ", ".join(f'"{name}"' for name in self.rewrites)
        return f"mode.excluding({names})" if names else None

    def __str__(self) -> str:
        at = index_text(self.index) if self.index else ""
        lines = [f"{self.kind}: {self.output}{at} {KINDS[self.kind]}"]
        lines += [f"  as written {self.as_written}", f"  compiled   {self.compiled}"]
        if self.exact is not None:
            lines.append(f"  exact      {self.exact}")
        if self.operation is not None:
            lines.append(f"  at {self.operation}")
        if self.source is not None:
            lines += [f"  {line}" for line in source_lines(replace(self.source, callers=()))]
        if self.rewrites:
            lines.append(f"  by {', '.join(self.rewrites)}; {self.excluding} avoids it")
        return "\n".join(lines)


def outcome_of(reference: Reference, variable: Variable) -> Any:
    """Return the value of an output as written, or the error that it raises."""
    try:
        return reference.value(variable)
    except Exception as error:  # whatever an operation raises: the error is the outcome
        node = reference.interrupted()[1]
        return Raised(error, None if node is None else node.outputs[0])


def outcome(compiled: Compiled) -> list | Exception:
    """Return what a compiled graph returns, or the error that it raises."""
    try:
        return compiled()
    except Exception as error:  # whatever a backend raises is judged
        return error


class Judge:
    """Judges what a compiled graph returns.

    - `reference`: its evaluation as written.
    - `run`: runs the compiled graph on other inputs.
    """

    def __init__(self, problem: Problem, reference: Reference) -> None:
        self.problem = problem
        self.reference = reference
        self.run: Callable[[Sequence[Any]], Mapping[str, Any]] | None = None
        self.outputs = dict(zip(problem.names, problem.fgraph.outputs, strict=True))
        self.outcomes = {name: outcome_of(reference, v) for name, v in self.outputs.items()}

    def running(self, run: Callable[[Sequence[Any]], Mapping[str, Any]]) -> "Judge":
        """Return this judge for a compiled graph that `run` runs on any inputs."""
        self.run = run
        return self

    @property
    def given(self) -> dict[Variable, Any]:
        """The values of the inputs."""
        return dict(zip(self.problem.fgraph.inputs, self.problem.values, strict=True))

    def changes(self, found: Mapping[str, Any] | Exception) -> list[Change]:
        """Return the changes of the outputs, at most one for each.

        `found`: what the compiled graph returns for each output, or what it raises.
        """
        raised = [o for o in self.outcomes.values() if isinstance(o, Raised)]
        if isinstance(found, Exception):
            if raised:
                return []
            text = str(Raised(found, None))
            return [Change("error made", name, None, "no error", text) for name in self.outputs][:1]
        changes = [self._change(name, self.outcomes[name], value) for name, value in found.items()]
        return [change for change in changes if change is not None]

    def _change(self, name: str, ours: Any, theirs: Any) -> Change | None:
        variable = self.outputs[name]
        source = source_place(variable)
        if isinstance(ours, Raised):
            at = ours.variable
            return Change(
                "error lost",
                name,
                None,
                str(ours),
                _short(theirs),
                operation=None if at is None else name_of(at, depth=3),
                source=source if at is None else source_place(at) or source,
            )
        if not (is_comparable(ours) and is_comparable(theirs)):
            return None
        ours, theirs = as_dense(ours), as_dense(theirs)
        if ours.shape != theirs.shape:
            shapes = f"shape {ours.shape}", f"shape {theirs.shape}"
            return Change("value changed", name, None, shapes[0], shapes[1], source=source)
        for index in _differing(ours, theirs):
            kind, exact = self._kind(variable, index, ours[index], theirs[index])
            if kind is None:
                continue
            jump = self._jump(variable, index, theirs[index])
            place = variable if jump is None else jump
            return Change(
                "discontinuity" if jump is not None else kind,
                name,
                index,
                str(ours[index].item()),
                str(theirs[index].item()),
                exact=_text(exact),
                operation=None if jump is None else name_of(jump, depth=3),
                source=source_place(place),
            )
        return None

    def _kind(
        self, variable: Variable, index: tuple[int, ...], ours: Any, theirs: Any
    ) -> tuple[str | None, arb | np.generic | None]:
        """Return how an element has changed, None for rounding, and its exact value."""
        if ours.dtype.kind in "iu":
            return "value changed", ours[()]  # (NumPy evaluates the graph as written)
        if not is_real(variable):
            return _without_exact(ours, theirs), None
        exact = self._exact(variable, index)
        kind = kind_of(exact)
        if kind == "number":
            errors = error_in_ulps(ours, exact), error_in_ulps(theirs, exact)
            is_hidden = np.isfinite(errors[1]) and errors[1] > CLOSE
            is_hidden &= _relative(theirs, exact) > COARSE
            is_hidden &= bool(abs(arb(float(theirs)) - exact) > self._rounding)
            if not _is_lost(*errors) and (np.isfinite(ours) or not is_hidden):
                return None, exact
            if not np.isfinite(theirs):
                return "bad value made", exact
            if _relative(theirs, exact) > COARSE:
                return "value changed", exact
            return ("digits lost" if self._is_confirmed(variable, index) else None), exact
        if kind == "infinite" and not np.isfinite(theirs):
            right = nearest_float(exact)
            return ("bad value made" if ours == right != theirs else None), exact
        return _without_exact(ours, theirs), exact

    @cached_property
    def _rounding(self) -> float:
        """What rounding can make of a difference of numbers of the inputs' sizes."""
        arrays = [np.asarray(v) for v in self.given.values() if is_comparable(v)]
        floats = [np.abs(a[np.isfinite(a)]) for a in arrays if a.dtype.kind == "f"]
        sizes = (a.max(initial=0) * np.finfo(a.dtype).eps for a in floats)
        return CLOSE * float(max(sizes, default=0))

    def _exact(
        self, variable: Variable, index: tuple[int, ...], reference: Reference | None = None
    ) -> arb:
        reference = reference or self.reference
        given = {v: reference[v] for v in self.problem.fgraph.inputs}
        live = reference.known_values().get
        [found] = evaluate([variable], given, live=live, elements=[index])
        drawn = self.problem.draws()  # (what is drawn is exact as it is)
        notes = [n for n in found.notes if n.kind in ("live", "limit") and n.variable not in drawn]
        unsure = found.value.dtype != object or bool(notes)
        return UNKNOWN if unsure else found.value.item()

    # Lost digits are confirmed at neighbours: one of two values may be right by chance.

    def _is_confirmed(self, variable: Variable, index: tuple[int, ...]) -> bool:
        if self.run is None:
            return True
        name = self._name(variable)
        errors = []
        for number in range(NEIGHBOURS):
            reference = self._neighbour(number)
            values = [reference[v] for v in self.problem.fgraph.inputs]
            ours, theirs = outcome_of(reference, variable), self.run(values)[name]
            if isinstance(ours, Raised) or np.shape(ours) != np.shape(theirs):
                continue
            exact = self._exact(variable, index, reference)
            if kind_of(exact) == "number":
                errors.append([error_in_ulps(as_dense(v)[index], exact) for v in (ours, theirs)])
        return not errors or _is_lost(*np.median(errors, axis=0))

    # Discontinuities

    def _jump(self, variable: Variable, index: tuple[int, ...], theirs: Any) -> Variable | None:
        """Return the comparison or step within rounding of its threshold that explains an element.

        It does if its other outcome changes the element, and by as much as rewriting did.
        """
        own = as_dense(self.outcomes[self._name(variable)])
        ours = own[index]
        above = set(ancestors([variable]))
        for node, flipped in self._jumps:
            if node.outputs[0] not in above:
                continue
            given = self.given | {node.outputs[0]: flipped}
            found = outcome_of(Reference(self.problem.fgraph, given), variable)
            if isinstance(found, Raised) or np.shape(found) != own.shape:
                continue
            other = as_dense(found)[index]
            with np.errstate(all="ignore"):
                if other != ours and (
                    not np.isfinite(float(abs(other)))
                    or abs(float(other) - float(ours)) >= 0.5 * abs(float(theirs) - float(ours))
                ):
                    return node.outputs[0]
        return None

    def _name(self, variable: Variable) -> str:
        return next(n for n, v in self.outputs.items() if v is variable)

    @cached_property
    def _jumps(self) -> list[tuple[Apply, Any]]:
        """The operations that jump within rounding of their operands, with their other outcome."""
        found = []
        nearby = [self._neighbour(number) for number in range(NEIGHBOURS)]
        for node in list(self.reference.ran):
            computed = {v for v in node.inputs if v.owner is not None and is_real(v)}
            if not (computed and _may_jump(node)):
                continue
            own = self.reference.value(node.outputs[0])
            others = [outcome_of(reference, node.outputs[0]) for reference in nearby]
            for number in range(FLIPS):
                rng = np.random.default_rng(number)
                moved = {v: _near(self.reference[v], rng) for v in computed}
                values = [
                    moved[v] if v in moved else copy_of(self.reference[v]) for v in node.inputs
                ]
                others += self.reference.kernels.run(node, values)
            flipped = np.array(own)
            for other in others:
                if np.shape(other) == flipped.shape and not isinstance(other, Raised):
                    flipped = np.where(_have_jumped(own, other), other, flipped)
            if _have_jumped(own, flipped).any():
                found.append((node, flipped.astype(own.dtype)))
        return found

    def _neighbour(self, number: int) -> Reference:
        """Return the evaluation as written of inputs a few units in the last place away."""
        rng = np.random.default_rng(number)
        values = [_near(v, rng) for v in self.problem.values]
        graph = self.problem.fgraph
        return Reference(graph, dict(zip(graph.inputs, values, strict=True)))


def _may_jump(node: Apply) -> bool:
    """Whether an operation decides something by comparing real numbers."""
    reads = any(map(is_real, node.inputs))
    scalar_op = getattr(node.op, "scalar_op", None)
    steps = isinstance(scalar_op, (*STEPS, ps.Mod))
    decides = is_numeric(node.outputs[0].type) and not is_real(node.outputs[0])
    return reads and (steps or decides)


def _have_jumped(own: Any, other: Any) -> np.ndarray:
    """Return which elements of a result have jumped."""
    if np.asarray(own).dtype.kind != "f":
        return np.asarray(own != other)
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(other - own) > COARSE * np.maximum(1, np.abs(own)))


def _near(value: Any, rng: np.random.Generator) -> Any:
    """Return a value a few units in the last place away; what holds no floats as it is."""
    if not isinstance(value, np.ndarray | np.floating) or np.asarray(value).dtype.kind != "f":
        return value
    array = np.asarray(value)
    steps = rng.integers(1, 5, array.shape) * rng.choice([-1, 1], array.shape)
    with np.errstate(all="ignore"):
        return (array + steps * np.finfo(array.dtype).eps * array).astype(array.dtype)


def _text(exact: Any) -> str | None:
    """Return an exact value as text, None if it is not known."""
    if isinstance(exact, np.generic):
        return f"{exact} by NumPy's dtype rules"
    return None if exact is None or kind_of(exact) == "unknown" else text_of(exact)


def _short(value: Any) -> str:
    text = (
        np.array2string(as_dense(value), threshold=6, edgeitems=2) if is_comparable(value) else ""
    )
    return " ".join(text.split()) or str(value)


def _differing(ours: np.ndarray, theirs: np.ndarray) -> list[tuple[int, ...]]:
    """Return the elements that differ by more than rounding, the most different ones first."""
    with np.errstate(all="ignore"):
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        widest = np.result_type(ours, theirs, float)
        wide: list[np.ndarray] = [a.astype(widest) for a in (ours, theirs)]
        size = np.maximum(*map(np.abs, wide))
        apart = np.abs(wide[0] - wide[1]) / np.where(size > 0, size, 1)
    kinds = ours.dtype, theirs.dtype
    floats = [np.finfo(k).eps for k in kinds if k.kind in "fc"]
    apart = np.where(same, 0, np.where(np.isfinite(apart), apart, np.inf))
    flat = np.flatnonzero(apart > CLOSE * max(floats, default=0))
    flat = flat[np.argsort(-apart.ravel()[flat], kind="stable")][:WORST]
    return [tuple(map(int, np.unravel_index(i, ours.shape))) for i in flat]


def _without_exact(ours: Any, theirs: Any) -> str | None:
    """Return how an element has changed, if no exact number says who is right."""
    finite = bool(np.isfinite(ours)), bool(np.isfinite(theirs))
    if finite[0] != finite[1]:
        return "bad value made" if finite[0] else "bad value lost"
    own, other = np.asarray(ours), np.asarray(theirs)
    apart = finite[0] and difference(own, other, Tolerance()).parted
    return "value changed" if apart else None


def error_in_ulps(value: Any, exact: arb) -> float:
    """Return the distance of a float from an exact number, in units in the last place.

    Examples
    --------
    >>> import numpy as np
    >>> error_in_ulps(np.float64(1), arb(1)), error_in_ulps(np.float64("nan"), arb(1))
    (0.0, inf)
    >>> error_in_ulps(np.float32(1.5), arb(1)) == 2**22
    True
    """
    kind = np.asarray(value).dtype.type
    with np.errstate(all="ignore"):
        nearest = kind(nearest_float(exact))
    if value == nearest:
        return 0.0
    if not (np.isfinite(value) and np.isfinite(nearest)):
        return np.inf
    return float(abs(arb(float(value)) - exact)) / float(np.spacing(abs(nearest)))


def _relative(value: Any, exact: arb) -> float:
    return np.inf if exact.contains(0) else float(abs((arb(float(value)) - exact) / exact))


def _is_lost(ours: float, theirs: float) -> bool:
    """Whether the second error, in ULP, is far larger than the first."""
    return theirs > max(CLOSE, LOST * max(ours, 1)) and np.isfinite(ours)


# Which rewrites


def plain_mode(mode: Mode) -> Mode:
    """Return a mode with the same rewrites, for Python's linker: it compiles in milliseconds."""
    return Mode("py", mode.provided_optimizer, db=mode.optdb)


def blamed(problem: Problem, mode: Mode, judge: Judge, changes: Iterable[Change]) -> list[Change]:
    """Return changes with the fewest rewrites found whose exclusion avoids each of them."""
    named = []
    searches = [_Search(problem, plain_mode(mode), judge), _Search(problem, mode, judge)]
    for change in changes:
        key = change.output, change.kind
        rewrites: tuple[str, ...] = ()
        if change.is_fault or change.kind == "bad value lost":
            search = next((s for s in searches if key in s.found(())), None)
            if search is not None:
                rewrites = search.fewest(key)
        named.append(replace(change, rewrites=rewrites))
    return named


def faults(problem: Problem, mode: Mode, values: Sequence[Any]) -> list[Change]:
    """Return the faults of the rewrites of a mode, by the values of a call's outputs."""
    with unguarded():
        judge = Judge(problem, problem.reference())
        changes = judge.changes(dict(zip(problem.names, values, strict=True)))
        return blamed(problem, twin_of(mode), judge, [c for c in changes if c.is_fault])


class _Search:
    """Compiles a problem without some rewrites, and looks which changes are left."""

    def __init__(self, problem: Problem, mode: Mode, judge: Judge) -> None:
        self.problem = problem
        self.mode = mode
        self.judge = judge
        self._known: dict[frozenset[str], set[tuple[str, str]]] = {}
        self.names: dict[str, None] = {}

    def found(self, excluded: Iterable[str]) -> set[tuple[str, str]]:
        """Return output and kind of the changes without some rewrites."""
        key = frozenset(excluded)
        if key not in self._known:
            self._known[key] = self._changes(key)
        return self._known[key]

    def _changes(self, excluded: frozenset[str]) -> set[tuple[str, str]]:
        mode = self.mode.excluding(*excluded) if excluded else self.mode
        try:
            with track_provenance():
                compiled = self.problem.compile(mode)
        except Exception:  # a linker may need a rewrite: without it there is nothing to judge
            return {("", "not compiled")}
        tracker = tracker_of(compiled.fgraph)
        if tracker is not None:
            self.names |= dict.fromkeys(tracker.rewrites())
        found: Any = outcome(compiled)
        if not isinstance(found, Exception):
            found = dict(zip(self.problem.names, found, strict=True))
        return {(c.output, c.kind) for c in self.judge.changes(found)}

    def fewest(self, key: tuple[str, str]) -> tuple[str, ...]:
        """Return the fewest rewrites found whose exclusion avoids a change."""

        def avoids(names: Sequence[str]) -> bool:
            left = self.found(names)
            return key not in left and ("", "not compiled") not in left

        tried: set[str] = set()
        while new := [n for n in self.names if n not in tried | UNLIKELY]:
            for name in sorted(new, key=GENERAL.__contains__):  # (mostly it is one)
                if avoids([name]):
                    return (name,)
            tried.update(new)
            # (other rewrites may do the same, if these are excluded)
            if avoids(list(tried)):
                return tuple(reduced(list(tried), avoids))
        # Rewrites of what is inside of loops, and rewrites that are not recorded.
        every = rewrite_names(self.mode.optdb)
        own = [name for name in every if "inner_graph" not in name]
        found = next((names for names in (own, every) if avoids(names)), ())
        return tuple(reduced(found, avoids))


def reduced(items: Sequence[Any], holds: Callable[[Sequence[Any]], bool]) -> list[Any]:
    """Return a part of a sequence that still holds, from which nothing can be left out.

    Examples
    --------
    >>> reduced(range(20), lambda part: 3 in part and 17 in part)
    [3, 17]
    """
    items, size = list(items), len(items) // 2
    while size:
        start = 0
        while start < len(items):
            part = items[:start] + items[start + size :]
            if holds(part):
                items = part
            else:
                start += size
        size //= 2
    return items
