"""Measures the digits of a call's outputs, and finds the operations that lost the others.

An operation has lost digits if the result is right once its exact value is put back, and everything
behind it is computed in floats.  Its operands alone do not do that: their rounding is what it
amplifies.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable

from theanoguard._arguments import Positive, checked
from theanoguard._backends import backend_of
from theanoguard._compare import Change
from theanoguard._compare.problem import Problem, make_problem, returned
from theanoguard._compare.rewriting import faults
from theanoguard._exact.balls import is_balls, text_of
from theanoguard._exact.moving import MOVING
from theanoguard._exact.rules import is_real
from theanoguard._exact.twin import Budget, Context, OutOfLimits
from theanoguard._naming import MAX_DEPTH, name_of
from theanoguard._precision.double_double import DOUBLED
from theanoguard._precision.doubled import ball_of, certain_errors
from theanoguard._precision.evaluations import (
    Execution,
    Log,
    True64,
    TrueExact,
    Written,
    logged,
    relative_errors,
    rounded,
)
from theanoguard._precision.result import Digits, Loss, Precision
from theanoguard._progress import searching
from theanoguard._provenance import Provenance, lookup, lookup_inner
from theanoguard._provenance.records import user_line
from theanoguard._pytensor import Function
from theanoguard._steps import as_raised
from theanoguard.explain.advice.formulas import formula_for
from theanoguard.explain.facts.labels import MAX_NAME
from theanoguard.guard.pausing import twin_of, unguarded
from theanoguard.operations.names import op_name
from theanoguard.testvalue import arguments_of

SEARCH_SECONDS = 1.0  # processor time that the search for the remedy of a loss may take

TOLERATED = {"float16": 16, "float32": 512, "float64": 8192}
"""Relative errors of so many units of rounding are no loss: they add up in any long program."""

SENSITIVE = 8
"""An error is the inputs' if their rounding alone changes the result by so many times less."""

SHIFTS = 3  # inputs within rounding of the given ones, at which the true result is computed

ONE_BY_ONE = 100
"""So many executions are tried one by one; of more, the half in which the loss lies."""

OPERATIONS = 4  # operations that are named for one output

WORK = 20_000_000.0
SECONDS = 30.0


@checked
@searching("precision")
def precision(
    f: Function | Variable | Sequence[Variable],
    *inputs: Any,
    work: Positive = WORK,
    seconds: Positive = SECONDS,
) -> Precision:
    """Return how many digits of each output of a call are right, and where the others were lost.

    The true values are those of the graph as you wrote it: computed in float64 if the outputs are
    float32, and else in exact arithmetic.  An operation is named if the result is right once the
    true value of this operation is put in its place.

    No shared variable and no random generator changes.

    Parameters
    ----------
    f : Function or Variable or list of Variable
        Compile the function inside :func:`track_provenance` or under a guard, so that the graph as
        you wrote it is known.
    *inputs
        The arguments of the call.  For variables, one mapping ``{variable or name: value}``.
    work : float, optional
        For float64: how many multiplications of 192 bits are allowed.
    seconds : float, optional
        For float64: how long the exact values may take.

    Returns
    -------
    Precision

    Raises
    ------
    TypeError, ValueError
        For inputs that do not fit.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt, theanoguard
    >>> v = pt.dvector("v")
    >>> variance = (v**2).mean() - v.mean() ** 2
    >>> found = theanoguard.precision(variance, {v: np.array([1e8, 1e8 + 1, 1e8 + 2])})
    >>> digits = found["output 0"]
    >>> digits.right, digits.exact, [loss.operation for loss in digits.losses]
    (0.0, '0.666666666667', ['sub'])
    """
    is_function = isinstance(f, Function)
    given = (inputs[0] if len(inputs) == 1 else dict(inputs)) if not is_function else inputs
    problem = make_problem(f, given)
    if not is_function:
        return measured(problem, None, None, work, seconds)
    mode = cast(Function, f).maker.mode
    twin = twin_of(mode)
    with unguarded():
        computed = _call(f, inputs) if twin is mode else problem.compile(twin)()
        return measured(problem, computed, twin, work, seconds)


def measured(
    problem: Problem, computed: list[Any] | None, mode: Mode | None, work: float, seconds: float
) -> Precision:
    """Return the digits of the outputs of a call.

    - `computed`: what a function has computed for each output; None measures the graph as written.
    - `mode`: its mode.
    - `work`, `seconds`: as for :func:`precision`.
    """
    budget = Budget(work, seconds)
    notes = list(problem.notes)
    backend = None if mode is None else backend_of(mode.linker)
    if backend is not None and backend.own_draws and problem.draws():
        notes.append(f"{backend.title} draws other random numbers: nothing was measured.")
        return Precision({}, tuple(notes))
    try:
        with as_raised():
            outputs = _Measuring(problem, problem.values, computed, budget).outputs()
    except OutOfLimits:
        outputs = {}
        notes.append(
            "The exact values are beyond the limit of work or time. "
            "Raise work= and seconds=, or give smaller inputs."
        )
    if computed is not None and any(_is_by_rewrites(d) for d in outputs.values()):
        changes = faults(problem, mode, computed)
        outputs = {n: _with_rewrites(changes, n, d) for n, d in outputs.items()}
    return Precision(outputs, tuple(notes))


def _call(f: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a call and the new values of shared variables, which are put back."""
    storage = [cell for cell in f.input_storage if cell.implicit]
    before = [deepcopy(cell.storage[0]) for cell in storage]
    try:
        return deepcopy(returned(f, f(*arguments_of(f, list(inputs)))))
    finally:
        for cell, value in zip(storage, before, strict=True):
            cell.storage[0] = value


def _is_by_rewrites(digits: Digits) -> bool:
    """Whether an output has lost digits that the graph as written has."""
    return digits.is_fault and not digits.losses


def _with_rewrites(changes: Iterable[Change], name: str, digits: Digits) -> Digits:
    """Return the digits of an output with the rewrites that lost them, if it was not the graph."""
    if not _is_by_rewrites(digits):
        return digits
    losses = tuple(
        Loss(change.operation or name, "a rewrite", change.source, rewrites=change.rewrites)
        for change in changes
        if change.output == name
    )
    return replace(digits, losses=losses)


@dataclass(frozen=True)
class _Element:
    """An element of an output, with the error that is no loss."""

    output: int
    index: tuple[int, ...]
    tolerated: float


class _Measuring:
    """The evaluations of one call."""

    def __init__(
        self, problem: Problem, values: list, computed: list[Any] | None, budget: Budget
    ) -> None:
        self.problem = problem
        self.graph = problem.fgraph
        self.given = dict(zip(self.graph.inputs, values, strict=True))
        self.measured = [o for o, v in enumerate(self.graph.outputs) if is_real(v)]
        outputs = [self.graph.outputs[o] for o in self.measured]
        self.written = Written(self.graph, self.given)
        self.log = logged(self.written, self.graph.outputs)
        self.own = [np.asarray(self.written[v]) for v in outputs]
        self.computed = self.own
        if computed is not None:
            self.computed = [np.asarray(computed[o]) for o in self.measured]
        single = all(v.type.dtype != "float64" for v in outputs)
        known = self.written.known_values()
        self.true: Any = (
            True64(self.graph, self.log) if single else TrueExact(self.graph, known, budget)
        )
        self.at = outputs
        self.quick = [] if single else self._in_double_double(budget)

    def _in_double_double(self, budget: Budget) -> list[tuple[np.ndarray, np.ndarray]]:
        decided = Context(budget)
        return certain_errors(self.graph, self.given, self.log, self.at, self.computed, decided)

    @cached_property
    def _true(self) -> tuple[list[np.ndarray], Log]:
        found: tuple[list[np.ndarray], Log] = self.true.values(self.given, self.at)
        return found

    @property
    def values(self) -> list[np.ndarray]:
        """The true outputs."""
        return self._true[0]

    @property
    def true_log(self) -> Log:
        """The true results of each execution."""
        return self._true[1]

    def outputs(self) -> dict[str, Digits]:
        """Return the digits of each output."""
        names = [self.problem.names[o] for o in self.measured]
        return {name: self._digits(number) for number, name in enumerate(names)}

    def _digits(self, number: int) -> Digits:
        value = self.computed[number]
        unit = float(np.finfo(value.dtype).eps) / 2
        of = -np.log10(2 * unit)
        limit = TOLERATED[str(value.dtype)] * unit
        if not value.size:
            return Digits(of, of, size=0)
        errors, true = self.quick[number] if self.quick else (np.inf, value)
        if np.any(errors > limit):  # (lost, or double-double does not know)
            true = self.values[number]
            errors = relative_errors(value, true)
        lost = errors > limit
        without = ~np.isfinite(value) & ~lost
        flat = int(np.argmax(np.where(without, -1.0, errors)))
        is_sensitive = np.zeros(errors.shape, bool)
        if lost.any():
            is_sensitive = lost & (errors <= SENSITIVE * self._sensitivity(number))
            worst = np.where(lost & ~is_sensitive, errors, -1.0)
            flat = int(np.argmax(worst)) if (lost & ~is_sensitive).any() else flat
        index = tuple(map(int, np.unravel_index(flat, errors.shape)))
        is_fault = bool((lost & ~is_sensitive).any())
        losses: tuple[Loss, ...] = ()
        if lost.any():
            error = min(float(errors[index]), 1.0)
            tolerated = min(max(limit, error / 100), error / 10)
            element = _Element(number, index, tolerated)
            losses = self._losses(element)
            is_fault |= not losses and self._is_right(element, {})  # (a rewrite has lost them)
        with np.errstate(divide="ignore"):
            right = float(np.clip(-np.log10(errors[index]), 0, of)) + 0.0
        if without.all():
            right = np.nan
        return Digits(
            right,
            of,
            index,
            str(value[index].item()),
            _text(ball_of(true, index) if true.dtype == DOUBLED else true[index]),
            int(lost.sum()),
            errors.size,
            is_fault,
            bool(is_sensitive.any()) and not is_fault,
            losses,
            at_least=true.dtype == DOUBLED and right < of,
            n_not_finite=int(without.sum()),
        )

    def _sensitivity(self, number: int) -> np.ndarray:
        """Return how far the rounding of the inputs alone moves the true result, relatively."""
        largest: np.ndarray = np.zeros(self.values[number].shape)
        for seed in range(SHIFTS):
            rng = np.random.default_rng(seed)

            def shift(value: np.ndarray, rng: Any = rng) -> np.ndarray:
                kind = np.finfo(value.dtype)
                is_exact = (value == np.round(value)) & (np.abs(value) < 2.0**kind.nmant)
                moved = kind.eps / 2 * rng.choice([-1.0, 1.0], value.shape)
                return np.where(is_exact, 0.0, moved)  # (an integer was not rounded)

            [moved], _ = self.true.values(self.given, [self.at[number]], shift)
            apart = relative_errors(_floats(moved), self.values[number])
            largest = np.maximum(largest, apart)
        return largest

    # The operations

    def _losses(self, element: _Element) -> tuple[Loss, ...]:
        """Return the operations with whose true values an element is right."""
        true = rounded(self.true_log, self.log)
        keys = [k for k in self.log if k in true and not isinstance(k[1].op, MOVING)]
        fixed: list[Execution] = []
        while len(fixed) < OPERATIONS and not self._is_right(element, _part(true, fixed)):
            position = self._last_needed(element, true, keys, fixed)
            if position is None:
                return ()
            fixed.append(keys[position])
        for key in fixed[:-1]:
            others = [k for k in fixed if k != key]
            if self._is_right(element, _part(true, others)):
                fixed = others
        return tuple(self._loss(key, true) for key in fixed)

    def _last_needed(
        self, element: _Element, true: Log, keys: Sequence[Execution], fixed: Sequence[Execution]
    ) -> int | None:
        """Return the last execution that must have its true result, if all before it have theirs.

        None if even all of them do not make the element right.
        """

        def right(count: int) -> bool:
            return self._is_right(element, _part(true, [*keys[:count], *fixed]))

        if not right(len(keys)):
            return None
        if len(keys) <= ONE_BY_ONE:  # (by chance, an earlier one may be right as well)
            return next((count for count in reversed(range(len(keys))) if not right(count)), None)
        low, high = 0, len(keys)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if right(middle) else (middle, high)
        return high - 1

    def _is_right(self, element: _Element, fixed: Log) -> bool:
        """Whether an element is right if some executions have their true results."""
        variable = self.at[element.output]
        try:
            replay = Written(self.graph, self.given, fixed)
            value = np.asarray(replay.value(variable))
        except (ArithmeticError, ValueError, IndexError, np.linalg.LinAlgError):
            return False  # (true values of some operands alone may not fit together)
        if value.shape != self.values[element.output].shape:
            return False
        at = [np.asarray(v[element.index]) for v in (value, self.values[element.output])]
        return bool(relative_errors(at[0], at[1]) <= element.tolerated)

    def _loss(self, key: Execution, true: Log) -> Loss:
        around, node = key
        output = next(o for o, v in enumerate(node.outputs) if is_real(v))
        variable = node.outputs[output]
        own, exact = self.log[key][output], self.true_log[key][output]
        index = _worst(np.asarray(own), np.asarray(exact))
        remedy = None
        if not around:
            remedy = formula_for(self.graph, variable, self.written, SEARCH_SECONDS)
        return Loss(
            self._name(variable, around, 3),
            op_name(node.op),
            user_line(self._found(variable, around)),
            tuple(step for _, step in reversed(around) if step is not None),
            tuple(self._operands(node, around, index)),
            str(np.asarray(own)[index].item()),
            _text(np.asarray(exact)[index]),
            (),
            *(remedy or ("", "")),
        )

    def _found(self, variable: Any, around: Any) -> Provenance:
        inside = around[0][0].op if around else None
        if inside is None:
            return lookup(self.graph, variable)
        return lookup_inner(inside, inside.fgraph, variable)

    def _name(self, variable: Any, around: Any, depth: int) -> str:
        """Return the user's name or expression of a variable, if it is short."""

        def own(v: Any) -> str | None:
            found = self._found(v, around)
            text = found.name if found.own_name else None
            text = text or (found.expression if found.own_source else None)
            return text if text and len(text) <= MAX_NAME else None

        return name_of(variable, depth, own)

    def _operands(self, node: Any, around: Any, index: tuple[int, ...]) -> list[tuple[str, str]]:
        """Return the operands of an operation at an element, where they have this element."""
        found = []
        for variable in dict.fromkeys(node.inputs):
            value = self._value(variable, around)
            if value is None or isinstance(variable, Constant) or not is_real(variable):
                continue
            value = np.asarray(value)
            at = index[len(index) - value.ndim :] if value.ndim <= len(index) else None
            if at is not None and all(i < n for i, n in zip(at, value.shape, strict=True)):
                lower = variable.type.dtype != node.outputs[0].type.dtype
                dtype = f" ({variable.type.dtype})" if lower else ""
                found.append(
                    (self._name(variable, around, MAX_DEPTH), f"{value[at].item()}{dtype}")
                )
        return found

    def _value(self, variable: Variable, around: Any) -> Any:
        if variable.owner is not None and (around, variable.owner) in self.log:
            return self.log[around, variable.owner][variable.index]
        return self.given.get(variable) if not around else None


def _part(log: Log, keys: Sequence[Execution]) -> Log:
    return {key: log[key] for key in keys}


def _floats(value: np.ndarray) -> np.ndarray:
    from_balls = [float(ball.mid()) for ball in value.ravel().tolist()] if is_balls(value) else None
    return value if from_balls is None else np.array(from_balls).reshape(value.shape)


def _worst(own: np.ndarray, exact: np.ndarray) -> tuple[int, ...]:
    errors = relative_errors(own, exact)
    errors = np.where(np.isfinite(errors), errors, -1) if np.isfinite(errors).any() else errors
    return tuple(map(int, np.unravel_index(int(np.argmax(errors)), errors.shape)))


def _text(value: Any) -> str:
    return text_of(value) if hasattr(value, "is_finite") else str(np.asarray(value).item())
