"""Inputs at which the function that is compiled fails, judged by the exact value.

Candidates come from :mod:`~theanoguard._lint.evidence`.  Each one runs in Python through the graph
that the rewriting of the user's mode makes.  If a result is bad there, the exact value of the graph
as it was written says whether it is a fault.  Then the function is compiled in the user's mode to
confirm it.  So a graph without a fault is never compiled.
"""

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.type import RandomType

from theanoguard._backends import backend_of
from theanoguard._compare.reasons import is_subnormal
from theanoguard._evaluate.culprit import Place, Scope, find_origin, not_finite
from theanoguard._evaluate.replay import ForeignKernels, Kernel, Kernels, Replay, is_wide
from theanoguard._exact import Exact, evaluate
from theanoguard._exact.moving import MOVING
from theanoguard._graph import scalar_class
from theanoguard._lint.evidence import LARGE, SMALL, Evidence
from theanoguard._provenance import Provenance, SourceLine, attach, lookup, track_provenance
from theanoguard._provenance.records import user_line
from theanoguard._provenance.tracker import tracker_of
from theanoguard._pytensor import PythonLinker, Scan, increment_ops, is_numeric
from theanoguard._shown import displayed
from theanoguard._steps import ForeignError, foreign
from theanoguard._text import number_text
from theanoguard.guard.pausing import unguarded
from theanoguard.operations.names import op_name

CANDIDATES = 60  # random inputs that are tried

WIDE = 16  # inputs of larger magnitudes that are tried, for faults of the arithmetic alone

CLIMBS = 60  # steps towards the place where one operation fails

ELEMENTS = 3  # bad elements of an output that are judged

AGAIN = 20
"""Further bad elements of a fault that are judged, where the first has no finite exact value."""

EXACT_WORK = 300_000


@displayed
@dataclass(frozen=True)
class Witness:
    """An input at which the compiled function fails.

    Parameters
    ----------
    inputs : dict of str to ndarray
        The value of each input, by name.  An input without a name has its position.
    output : str
        The output that is bad.
    value : float
        Its bad element.
    exact : str
        The value that the formula has there, in decimal digits, or "no value".
    kind : {"arithmetic", "overflow", "no value", "pole"}
        "arithmetic": the formula has a value that the dtype can hold.  "overflow": its value is
        too large for the dtype.  "no value": the formula has none.  "pole": it is infinite.
    mode : str
        The mode in which the function was compiled: "py" if lint ran the rewritten graph in Python
        because Numba would compile it for long.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import lint
    >>> z = pt.dscalar("z")
    >>> [finding] = lint(1 - pt.sqrt(z), gradient=False, mode="FAST_COMPILE")
    >>> finding.witness.inputs, finding.witness.exact
    ({'z': array(-1000.)}, 'no value')
    """

    inputs: dict[str, np.ndarray]
    output: str
    value: float
    exact: str
    kind: str
    mode: str

    def __str__(self) -> str:
        values = ", ".join(f"{name} = {_array_text(value)}" for name, value in self.inputs.items())
        said = {
            "arithmetic": f"where the formula is {self.exact}",
            "overflow": f"where the formula is {self.exact}, beyond its dtype",
            "no value": "where the formula has no value",
            "pole": "where the formula is infinite",
        }[self.kind]
        at = f" at {values}" if values else ""
        return f"{self.output} is {number_text(self.value)}{at}, {said}"


def _array_text(value: np.ndarray) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return number_text(array.item()) if array.dtype.kind in "fiu" else str(array.item())
    if array.size > 1 and (array == array.ravel()[0]).all():
        return f"{number_text(array.ravel()[0].item())} everywhere"
    if array.size <= 12:
        shown = {"float_kind": number_text}
        text = np.array2string(array, separator=", ", threshold=12, formatter=shown)
        return " ".join(text.split())
    return f"{array.dtype} of shape {array.shape}"


@dataclass(frozen=True)
class Fault:
    """A witness with the operation that made the bad value."""

    witness: Witness
    #: The result of that operation, in the graph as it was written or as it was rewritten.
    variable: Any
    provenance: Provenance
    by_rewriting: bool  # whether the graph as it was written is finite there
    values: Mapping[Variable, np.ndarray] = field(repr=False)  # the inputs

    @property
    def line(self) -> SourceLine | None:
        """The user's line: of a gradient, the line of the operation that is differentiated."""
        return user_line(self.provenance)

    @property
    def op(self) -> str:
        """The name of the operation."""
        return op_name(self.variable.owner.op) if self.variable.owner else "input"


Compile = Callable[..., Any]
Watched = Callable[[list[Any]], Collection[int]]

_now = time.thread_time
"""The clock of a search: the processor's time, so that it finds the same on a busy machine."""


@dataclass
class Program:
    """What is compiled: outputs and gradients of a graph, and how."""

    inputs: list[Variable]
    outputs: list[Variable]
    names: list[str]  # of the outputs
    mode: Any = None  # the user's mode
    compile: Compile = pytensor.function  # as ``pytensor.function``
    #: From the results of a call to the positions of those that must be finite.  By default, all
    #: must be.
    watched: Watched | None = None

    def compiled(self, mode: Any) -> Callable[..., list[Any]]:
        """Return the function that a mode makes."""
        with foreign():
            run: Callable[..., list[Any]] = self.compile(
                list(self.inputs),
                list(self.outputs),
                mode=mode,
                on_unused_input="ignore",
                accept_inplace=True,  # (of a compiled function they work on copies)
            )
        return run

    @cached_property
    def written(self) -> FunctionGraph:
        """The graph as it was written, with its lines; it has the user's variables."""
        roots = dict.fromkeys([*self.inputs, *self.shared])
        graph = FunctionGraph(list(roots), list(self.outputs), clone=False)
        attach(graph)
        return graph

    @cached_property
    def shared(self) -> dict[Variable, Any]:
        """The values of the shared variables."""
        return {
            v: v.get_value(borrow=True)
            for v in ancestors(self.outputs)
            if isinstance(v, SharedVariable) and v not in set(self.inputs)
        }

    @cached_property
    def rewritten(self) -> Any:
        """The function after the rewriting of the user's mode, in Python; None if it cannot run."""
        with foreign():  # what is no mode
            query = get_mode(self.mode).provided_optimizer
        plain = query.excluding(
            "fusion", "inplace", "scan_make_inplace", "fuse_indexed_into_elemwise"
        )
        with track_provenance():
            return self.compiled(Mode(PythonLinker(), plain))

    @cached_property
    def _is_too_wide(self) -> bool:
        """Whether an operation has more operands than PyTensor's Python mode runs."""
        return any(map(is_wide, self.rewritten.maker.fgraph.apply_nodes))

    @cached_property
    def users(self) -> Callable[..., list[Any]]:
        """The function as the user compiles it."""
        return self.compiled(self.mode)

    @cached_property
    def confirms_in_python(self) -> bool:
        """Whether a fault of the rewritten graph in Python stands, since compiling takes long.

        Numba compiles linear algebra and loops in many seconds.
        """
        backend = backend_of(get_mode(self.mode).linker)
        nodes = self.rewritten.maker.fgraph.apply_nodes
        is_slow = backend is not None and backend.name == "numba"
        return is_slow and any(
            isinstance(node.op, Blockwise | Scan) or "linalg" in type(node.op).__module__
            for node in nodes
        )

    @property
    def is_compiled(self) -> bool:
        """Whether the function of the user's mode has been compiled."""
        return "users" in vars(self)

    @cached_property
    def kernels(self) -> Kernels:
        """What computes nodes as the backend of the user's mode does."""
        backend = backend_of(get_mode(self.mode).linker)
        return _FLUSHING if backend is not None and backend.flushes_subnormals else _KERNELS

    def replay(self, values: Mapping[Variable, Any], kernels: Kernels | None = None) -> Replay:
        """Return the evaluation of the graph as it was written."""
        known = self.shared | {v: values[v] for v in self.inputs}
        return Replay(self.written, known, kernels or self.kernels)

    def replay_rewritten(self, values: Mapping[Variable, Any], kernels: Kernels) -> Replay:
        """Return the evaluation of the graph that the user's mode makes."""
        graph = self.rewritten.maker.fgraph
        given = self.arguments(values)
        own = [cell.storage[0] for cell in self.rewritten.input_storage[len(given) :]]
        return Replay(graph, dict(zip(graph.inputs, [*given, *own], strict=True)), kernels)

    def results(self, values: Mapping[Variable, Any], kernels: Kernels) -> list[Any]:
        """Return what the function of the user's mode gives with some kernels."""
        if kernels is _KERNELS and not self._is_too_wide:
            return self.call(self.rewritten, values)
        replay = self.replay_rewritten(values, kernels)
        return [replay.value(v) for v in self.rewritten.maker.fgraph.outputs]

    def arguments(self, values: Mapping[Variable, Any]) -> list[Any]:
        """Return the values of the inputs, in order."""
        return [values[v] for v in self.inputs]

    def call(self, function: Callable[..., list[Any]], values: Mapping[Variable, Any]) -> list[Any]:
        """Return the outputs of a function, without NumPy's warnings."""
        with np.errstate(all="ignore"), warnings.catch_warnings(), foreign():
            warnings.simplefilter("ignore")
            return function(*self.arguments(values))

    def bad(self, results: Sequence[Any]) -> dict[int, np.ndarray]:
        """Return the masks of bad elements, by the position of the output."""
        asked = range(len(results)) if self.watched is None else self.watched(list(results))
        masks = {
            i: not_finite(np.asarray(results[i]))
            for i in asked
            if not isinstance(self.outputs[i].type, RandomType)
        }
        return {i: mask for i, mask in masks.items() if mask.any()}

    def has_infinities(self, output: int) -> bool:
        """Whether infinities are written in the graph of an output, as in a mask."""
        return any(
            isinstance(v, Constant) and is_numeric(v.type) and np.isinf(np.asarray(v.data)).any()
            for v in ancestors([self.outputs[output]])
            if getattr(v.type, "dtype", "")[:5] == "float"
        )


class _FlushingKernels(ForeignKernels):
    """What computes nodes with 0 in place of subnormal numbers."""

    def _make(self, node: Apply) -> Kernel:
        kernel = super()._make(node)

        def flushing(values: list[Any]) -> list[Any]:
            return list(map(_flushed, kernel(list(map(_flushed, values)))))

        return flushing


def _flushed(value: Any) -> Any:
    """Return an array with 0 in place of subnormal numbers, and any other value unchanged."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return np.where(is_subnormal(value), value.dtype.type(0), value)


_KERNELS = ForeignKernels("py")
_FLUSHING = _FlushingKernels("py")


@dataclass
class Search:
    """The search for witnesses of a program."""

    program: Program
    evidence: Evidence
    seconds: float  # the processor's time that it may take
    seed: int = 0
    #: Whether an infinity that the formula has is a fault, and -inf for a number below all others.
    infinite_is_bad: bool = True
    #: Whether to note as `flushed` what fails only on backends that flush subnormal numbers.
    searches_flushed: bool = False
    faults: dict[Any, Fault] = field(default_factory=dict)
    flushed: dict[Any, Fault] = field(default_factory=dict)
    repaired: dict[Any, SourceLine | None] = field(default_factory=dict)
    tried: int = 0
    ran: int = 0  # tries that gave results
    error: BaseException | None = None
    deadline: float = 0.0
    has_targets: bool = False
    only_arithmetic: bool = False
    only_known: bool = False
    _confirming: tuple[Mapping, Mapping[int, Any]] | None = None
    _again: dict[Any, int] = field(default_factory=dict)

    def run(self, targets: Sequence[Any] = ()) -> None:
        """Look for faults; `targets` are objectives for what the usual inputs do not reach."""
        self.has_targets = bool(targets)
        with np.errstate(all="ignore"), warnings.catch_warnings(), unguarded():
            warnings.simplefilter("ignore")
            try:
                self.program.rewritten  # noqa: B018
            except ForeignError as error:  # the user's graph: whatever its operations raise
                self.error = error.__cause__
                return
            self.deadline = _now() + self.seconds
            for values in self.evidence.candidates(self.seed, CANDIDATES):
                if self.is_over:
                    return
                self.look_at(values)
            for target in targets:
                for values in self._climb(target):
                    self.look_at(values)
            self.only_arithmetic = True  # (a value may well be too large there)
            for values in self.evidence.wide(self.seed, LARGE, WIDE):
                if self.is_over:
                    return
                self.look_at(values)
            self.only_known = True  # (few programs are for numbers this small)
            self._again.clear()
            for values in self.evidence.wide(self.seed, SMALL, WIDE) if self.has_mendable else ():
                if self.is_over:
                    return
                self.look_at(values)

    @property
    def has_mendable(self) -> bool:
        """Whether a fault of the arithmetic may be on a line where the formula has no value."""
        return any(fault.witness.kind in ("pole", "no value") for fault in self.faults.values())

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return _now() > self.deadline

    def look_at(self, values: Mapping[Variable, np.ndarray]) -> None:
        """Try one input."""
        program = self.program
        self.tried += 1
        if self._fails(values, program.kernels) or self.error is not None:
            return
        if self.searches_flushed and program.kernels is not _FLUSHING:
            self._fails(values, _FLUSHING)
        if self.has_targets:
            self._note_repaired(values)

    def _fails(self, values: Mapping[Variable, np.ndarray], kernels: Kernels) -> bool:
        """Whether a result is bad with some kernels; then it is judged."""
        program = self.program
        try:
            results = program.results(values, kernels)
        except ForeignError as error:  # shapes that do not fit, checks of the user's
            self.error = error.__cause__
            return False
        self.error = None
        self.ran += 1
        masks = program.bad(results)
        replay = program.replay(values, kernels)
        for output, mask in masks.items():
            for index in map(tuple, np.argwhere(mask)[:ELEMENTS]):
                if self.is_over:
                    return True
                try:
                    self._judge(values, replay, output, index, results)
                except ForeignError as error:  # a check of the user's that rewriting has removed
                    self.error = error.__cause__
        return bool(masks)

    # -- judging

    def _judge(
        self, values: Mapping, replay: Replay, output: int, index: tuple, results: Sequence[Any]
    ) -> None:
        program = self.program
        variable = program.written.outputs[output]
        own = np.asarray(replay.value(variable))
        is_bad = own.shape == np.shape(results[output]) and bool(not_finite(own[index]))
        place = self._origin(replay, variable, index) if is_bad else None
        by_rewriting = place is None
        if place is None:
            place = self._origin_of_rewritten(values, output, index, replay.kernels)
        if place is None or (place.is_leaf and not _holds_nan(place.variable)):
            return
        if place.is_leaf and is_bad and self._is_on_purpose(replay, variable, index):
            return
        found = lookup(place.scope.fgraph, place.variable)
        key = (
            _line_of(found),
            place.variable if place.is_leaf else op_name(place.variable.owner.op),
        )
        own_mode = replay.kernels is program.kernels
        faults = self.faults if own_mode else self.flushed
        earlier = faults.get(key) or self.faults.get(key)
        if self.only_known if earlier is None else not self._may_be_better(earlier, key):
            return
        if own_mode and program.is_compiled and not self._is_confirmed(values, output):
            return
        kind, text = self._kind(replay, values, variable, output, index, results[output])
        if kind is None or (kind != "arithmetic" and (self.only_arithmetic or earlier)):
            return
        if own_mode and not self._is_confirmed(values, output):
            return
        witness = Witness(
            {v.name or f"input {i}": values[v] for i, v in enumerate(program.inputs)},
            program.names[output],
            float(np.asarray(results[output])[index]),
            text,
            kind,
            "py" if program.confirms_in_python else _mode_name(program.mode),
        )
        faults[key] = Fault(witness, place.variable, found, by_rewriting, dict(values))

    def _may_be_better(self, fault: Fault, key: Any) -> bool:
        """Whether to look for a fault of the arithmetic, which a formula mends, on the same line.

        Where the formula itself has no finite value, nothing mends it.
        """
        self._again[key] = self._again.get(key, 0) + 1
        is_other = fault.witness.kind in ("pole", "no value") and key not in self.flushed
        return is_other and self._again[key] <= AGAIN

    def _origin(self, replay: Replay, variable: Variable, index: tuple) -> Place | None:
        start = Place(Scope(replay), variable, index)
        found: Place | None = find_origin(start, not_finite).place
        if found is not None and found.is_leaf and not _holds_nan(found.variable):
            return find_origin(start, _is_nan).place  # (an infinity that was written, as in a mask)
        return found

    def _is_on_purpose(self, replay: Replay, variable: Variable, index: tuple) -> bool:
        """Whether a NaN was written as the value of a case: a branch of ``switch``, or an element.

        Nothing is computed from it before it is chosen.
        """
        steps = find_origin(Place(Scope(replay), variable, index), _is_nan).steps
        for place, chosen in zip(reversed(steps[:-1]), reversed(steps[1:]), strict=True):
            node, kind = place.variable.owner, scalar_class(place.variable)
            if isinstance(node.op, increment_ops):
                return node.op.set_instead_of_inc and chosen.variable is node.inputs[1]
            if kind is ps.Switch:
                return chosen.variable is not node.inputs[0]
            if kind not in (ps.Cast, ps.Second, ps.Identity) and not isinstance(node.op, MOVING):
                return False
        return False

    def _origin_of_rewritten(
        self, values: Mapping, output: int, index: tuple, kernels: Kernels
    ) -> Place | None:
        """Where the rewritten graph makes the bad value, which the graph as written does not."""
        variable = self.program.rewritten.maker.fgraph.outputs[output]
        replay = self.program.replay_rewritten(values, kernels)
        if not not_finite(np.asarray(replay.value(variable))[index]):
            return None
        return self._origin(replay, variable, index)

    def _kind(
        self,
        replay: Replay,
        values: Mapping,
        variable: Variable,
        output: int,
        index: tuple,
        result: Any,
    ) -> tuple[str | None, str]:
        """Judge a bad element by the exact value of the formula.

        What the formula gives with the decisions of the call is no fault: rounding decides a tie.
        """
        value = float(np.asarray(result)[index])
        dtype = np.asarray(result).dtype
        found = self._judged(self._exact(replay, values, variable, index), output, value, dtype)
        if found[0] in ("pole", "no value"):
            own = self._exact(replay, values, variable, index, decides=True)
            decided = self._judged(own, output, value, dtype)
            return decided if decided[0] is not None else found
        return found

    def _exact(
        self,
        replay: Replay,
        values: Mapping,
        variable: Variable,
        index: tuple,
        decides: bool = False,
    ) -> Exact:
        """Return the exact value of an element."""
        given = {v: values[v] for v in self.program.inputs}
        [found] = evaluate(
            [variable],
            given,
            live=replay.value,
            elements=[index],
            masked_gradients=True,
            decides=decides,
            work=EXACT_WORK,
        )
        return found

    def _judged(
        self, found: Exact, output: int, value: float, dtype: np.dtype
    ) -> tuple[str | None, str]:
        """Judge a bad element by an exact value."""
        known = str(found.known)
        if any(note.kind == "limit" for note in found.notes):
            return None, ""
        if known == "number":
            too_large = abs(float(found.mid)) > float(np.finfo(dtype).max)
            if too_large and not self.infinite_is_bad and value == -np.inf and found.mid < 0:
                return None, ""  # (a log-density of -1e400 rejects the point as well)
            return ("overflow" if too_large else "arithmetic"), found.text(6)
        if known == "none":
            return "no value", "no value"
        if known == "infinite":
            written = self.program.has_infinities(output)
            legitimate = written or not self.infinite_is_bad
            same = value == float(found.mid)
            return (None, "") if legitimate and same else ("pole", found.text(6))
        return None, ""

    def _is_confirmed(self, values: Mapping, output: int) -> bool:
        if self.program.confirms_in_python:
            return True
        if self._confirming is None or self._confirming[0] is not values:
            start = _now()
            results = self.program.call(self.program.users, values)
            self.deadline += _now() - start  # (JAX compiles in the first call)
            self._confirming = values, self.program.bad(results)
        return output in self._confirming[1]

    # -- what the mode repairs

    def _note_repaired(self, values: Mapping) -> None:
        """Remember the operations that fail as written, where the rewritten graph does not."""
        program = self.program
        replay = program.replay(values)
        for output in program.written.outputs:
            if self.is_over:
                return
            try:
                value = replay.value(output)
            except ForeignError:  # a check of the user's that rewriting has removed
                return
            mask = not_finite(np.asarray(value)) if is_numeric(output.type) else np.False_
            for index in map(tuple, np.argwhere(mask)[:1]):
                place = self._origin(replay, output, index)
                if place is not None and not place.is_leaf:
                    found = lookup(place.scope.fgraph, place.variable)
                    key = (_line_of(found), op_name(place.variable.owner.op))
                    self.repaired.setdefault(key, found.source)

    # -- climbing

    def _climb(self, target: Any) -> Iterator[Mapping[Variable, np.ndarray]]:
        """Yield inputs that bring an operand nearer to where its operation fails."""
        rng = np.random.default_rng(self.seed)
        pool = list(self.evidence.candidates(self.seed, 16))
        scored = []
        for values in pool:
            if self.is_over:
                return
            if (score := self._score(target, values)) is not None:
                scored.append((score, values))
        scored.sort(key=lambda pair: pair[0])
        if not scored:
            return
        best, at = scored[0]
        line = _Line(self.evidence.ranges, rng)
        for number in range(CLIMBS):
            if self.is_over:
                return
            along = number % 3 > 0
            moved = line.moved(at) if along else self._moved(at, rng)
            score = self._score(target, moved)
            is_better = score is not None and score < best
            if along:
                line.learn(is_better)
            if score is not None and is_better:
                best, at = score, moved
                yield at

    def _score(self, target: Any, values: Mapping) -> float | None:
        try:
            return target(self.program.replay(values))
        except ForeignError:  # shapes that do not fit, checks of the user's
            return None

    def _moved(self, values: Mapping, rng: np.random.Generator) -> dict:
        ranges = self.evidence.ranges
        real = [v for v, r in ranges.items() if r.is_real]
        if not real:
            return dict(values)
        v = real[rng.integers(len(real))]
        old = np.asarray(values[v], float)
        way = rng.integers(4)
        factor = 10.0 ** rng.uniform(-2, 2)
        new = (
            old * factor,
            -old,
            old + rng.normal(size=old.shape) * factor,
            np.where(
                rng.uniform(size=old.shape) < 0.5,
                old,
                rng.permutation(old.ravel()).reshape(old.shape),
            ),
        )[way]
        return {**values, v: ranges[v].clip(new)}


class _Line:
    """Moves along a line: twice as far after a success, else half as far and another way.

    So a narrow dip is reached in about as many moves as its width has bits.
    """

    def __init__(self, ranges: Mapping[Variable, Any], rng: np.random.Generator) -> None:
        self.ranges = {v: r for v, r in ranges.items() if r.is_real}
        self.rng = rng
        self.step = 0.25
        self.ways: dict[Variable, np.ndarray] = {}

    def moved(self, values: Mapping) -> dict:
        """Return inputs a step further."""
        if not self.ways:
            self.ways = {v: self._way(np.asarray(values[v], float)) for v in self.ranges}
        return {
            **values,
            **{v: self.ranges[v].clip(values[v] + self.step * w) for v, w in self.ways.items()},
        }

    def _way(self, value: np.ndarray) -> np.ndarray:
        size = np.maximum(np.abs(value), 1e-3)
        signs = self.rng.choice([-1.0, 1.0], () if self.rng.uniform() < 0.5 else value.shape)
        return size * signs

    def learn(self, is_better: bool) -> None:
        """Choose the next step: if both ways fail, a shorter one."""
        if is_better:
            self.step *= 2
        elif self.step > 0:
            self.step = -self.step
        else:
            self.step = -self.step / 4
            self.ways = {}


def _is_nan(array: Any) -> np.ndarray:
    """Return the mask of the elements that are NaN."""
    mask: np.ndarray = not_finite(array) & ~np.isinf(array)
    return mask


def _holds_nan(variable: Variable) -> bool:
    """Whether a constant or the value of a shared variable holds NaN."""
    if isinstance(variable, SharedVariable):
        return bool(np.isnan(variable.get_value(borrow=True)).any())
    return isinstance(variable, Constant) and bool(np.isnan(np.asarray(variable.data)).any())


def _line_of(found: Provenance) -> tuple[str, int] | None:
    backward = found.backward
    line = (backward.forward_source if backward is not None else None) or found.source
    return None if line is None else (line.file, line.line)


def _mode_name(mode: Any) -> str:
    if isinstance(mode, str):
        return mode
    return type(get_mode(mode).linker).__name__.removesuffix("Linker").lower()


def rewrite_behind(program: Program, line: SourceLine | None, op: str) -> str | None:
    """Return the name of the rewrite that has replaced an operation of a line, or None."""
    graph = program.rewritten.maker.fgraph
    tracker = tracker_of(graph)
    if tracker is None or line is None:
        return None
    for node in graph.toposort():
        for old in tracker.replaced_by(node):
            if old is node or op_name(old.op) != op:
                continue
            source = lookup(graph, old.outputs[0]).source
            if source is not None and (source.file, source.line) == (line.file, line.line):
                steps = [s.reason for s in lookup(graph, node.outputs[0]).history]
                named = [s for s in steps if s not in _HOUSEKEEPING]
                if named:
                    return str(named[-1])
    return None


_HOUSEKEEPING = {
    "MergeOptimizer",
    "constant_folding",
    "FusionOptimizer",
    "InplaceElemwiseOptimizer",
}
