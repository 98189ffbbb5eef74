"""Searches for an accurate formula of the same function."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from flint import arb
from pytensor.graph.basic import Apply, Constant, Variable

from theanoguard._arguments import checked, filtered, refuse
from theanoguard._evaluate.replay import Kernels, Replay
from theanoguard._exact.balls import NONE, to_floats
from theanoguard._exact.twin import evaluate
from theanoguard._progress import searching
from theanoguard._provenance.designating import made_by_grad
from theanoguard._shown import displayed
from theanoguard._steps import as_raised
from theanoguard.stable.egraph import LOST, NEAR, EGraph, Points, errors, rules_of, with_bits
from theanoguard.stable.identities import IDENTITIES, Term, tidied
from theanoguard.stable.operations import OPERATIONS
from theanoguard.stable.patterns import rebuild
from theanoguard.stable.terms import Formula, Reader, text_of

FAULT = 10.0  # the error in bits from which a formula is searched
GAIN = 4.0  # the bits by which another formula must be better
NO_DIGITS = 45.0
"""The largest error in bits of a formula that is proposed, and of a finite gradient."""
SLOPE = 20.0  # the error in bits that a gradient may have
KEPT = 12.0  # the error in bits that another formula may have where the old one has less
WIDTH = 4  # the elements of a long axis that the search looks at
WIDE = 16  # the same, where the result of so few is right, and that of the whole axis is lost
CANDIDATES = 8
SLOPES = 12
DIFFERENTIATED = 6  # the largest number of formulas of which the gradients are compared
ACCURATE = (0.0, 0.0)  # the rank of a gradient that is accurate
SAFE_BRANCHES = "switch(c, f(a), b) = switch(c, f(switch(c, a, 1)), b)"
MOST_CODE = 120  # characters of a formula that is proposed: nobody pastes a longer one
PASSES = 2  # how often a search goes on from the best formula
SEARCHES = 4  # the largest number of formulas around an operation that are searched
BITS = (192, 1100, 4400)
HEAVY = ("gamma", "gammaln", "psi", "i0", "i1", "i0e", "i1e", "erf", "erfc", "erfcx", "logerfc")


@displayed
@dataclass(frozen=True)
class Improvement:
    """A more accurate formula of the same function.

    Parameters
    ----------
    expression : Variable
        Computed from the same inputs.
    code : str
        The formula in terms of the names of the inputs.
    before, after : float
        The largest error of value and gradient at the inputs and around them, in units of the last
        place (ulp).  Inf if a result is not finite.
    identities : tuple of str
        The identities that were used.
    replaced : tuple of Variable
        The parts of the old expression that are computed in another way.
    """

    expression: Variable = field(repr=False)
    code: str
    before: float
    after: float
    identities: tuple[str, ...]
    replaced: tuple[Variable, ...] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.code}\nerror: {self.before:.3g} ulp before, {self.after:.3g} ulp after"


@checked
@searching("improve")
def improve(
    expression: Variable, inputs: Mapping[Variable, Any], *, seconds: float = 1.0
) -> Improvement | None:
    """Search for a more accurate formula of the same function.

    The search applies identities (:mod:`theanoguard.stable.identities`) to the expression.  Exact
    values decide which of the equal formulas is the most accurate one, at the inputs and around
    them.  A formula is returned only if its value and its gradient are better at the inputs, and
    nowhere worse at about 200 points around them.

    Parameters
    ----------
    expression : TensorVariable
        Of a floating dtype.
    inputs : mapping of Variable to value
        Values at which the expression is inaccurate.  They may be given for any variables of the
        graph, which are then left as they are.
    seconds : float
        Limit of processor time for the search.

    Returns
    -------
    Improvement or None
        None if the expression is accurate at the inputs, or if nothing better was found.

    Raises
    ------
    ValueError
        If an input has no value.

    Notes
    -----
    Loops, matrix products and operations of your own are left as they are.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard.stable import improve
    >>> x = pt.dscalar("x")
    >>> found = improve(pt.sqrt(x + 1) - pt.sqrt(x), {x: 1e16})
    >>> print(found.code)
    1 / (pt.sqrt(x + 1) + pt.sqrt(x))
    >>> found.expression.eval({x: 1e16})
    array(5.e-09)
    >>> improve(pt.sqrt(x + 1) + pt.sqrt(x), {x: 1e16}) is None
    True
    """
    if not str(getattr(expression.type, "dtype", "")).startswith("float"):
        text = "expression must be a tensor of a floating dtype"
        raise refuse("improve", "expression", expression, text)
    given = {v: filtered("improve", "inputs", v, x, allow_downcast=True) for v, x in inputs.items()}
    with as_raised():
        search = _Search(expression, given, time.thread_time() + seconds)
        return search.result()


def better_formulas(
    variable: Variable,
    clients: Mapping[Variable, Iterable[Apply]],
    replay: Replay,
    seconds: float,
) -> Iterator["Found"]:
    """Yield more accurate terms for a variable, and for those that are computed from it.

    The formulas begin at the inputs of the graph, and at results of operations that no identity
    knows.  Long formulas are left out.

    - `clients`: the operations that read a variable.
    - `replay`: knows the values at which the variable is inaccurate.
    - `seconds`: limit of processor time.
    """
    end = time.thread_time() + seconds
    found, level = dict.fromkeys([variable]), [variable]
    while level and len(found) < SEARCHES:
        level = [c.outputs[0] for v in level for c in clients.get(v, ()) if c.outputs]
        found |= dict.fromkeys(level)
    for v in list(found)[:SEARCHES]:
        is_float = str(getattr(v.type, "dtype", "")).startswith("float")
        if not is_float or v.owner is None or made_by_grad(v.owner) or time.thread_time() > end:
            continue
        formula = Reader((), replay.value).formula(v)
        part = _Part(formula, replay, end)
        better = part.improved() if formula.leaves else None
        short = {n: n for n in formula.leaves}
        if better is not None and len(formula.code(better.term, short)) <= MOST_CODE:
            yield better


@dataclass
class _Search:
    expression: Variable
    given: Mapping[Variable, Any]
    end: float

    @cached_property
    def _replay(self) -> Replay:
        return Replay(None, self.given, Kernels("py"))

    def result(self) -> Improvement | None:
        found: list[Found] = []
        reader = Reader(set(self.given), self._replay.value)
        waiting, seen = [self.expression], set()
        while waiting and time.thread_time() < self.end:
            variable = waiting.pop(0)
            if variable in seen:
                continue
            seen.add(variable)
            formula = reader.formula(variable)
            part = _Part(formula, self._replay, self.end)
            if formula.leaves and (better := part.improved()) is not None:
                found.append(better)
            for leaf in formula.leaves.values():
                if leaf.variable.owner is not None and leaf.variable not in self.given:
                    waiting += leaf.variable.owner.inputs
            waiting = [v for v in waiting if self._is_searched(v)]
        if not found:
            return None
        builders = {f.part.formula.variable: f.build for f in found}
        (expression,) = rebuild([self.expression], builders)
        codes: dict[Variable, str] = {}
        for f in reversed(found):
            codes[f.part.formula.variable] = f.code(codes)
        code = codes.get(self.expression) or text_of(self.expression, codes)
        used = dict.fromkeys(name for f in found for name in f.identities)
        return Improvement(
            expression,
            code,
            max(f.before for f in found),
            max(f.after for f in found),
            tuple(used),
            tuple(builders),
        )

    def _is_searched(self, variable: Variable) -> bool:
        dtype = str(getattr(variable.type, "dtype", ""))
        is_float = dtype.startswith("float") and variable.owner is not None
        return is_float and variable not in self.given


@dataclass(frozen=True)
class Found:
    """A better term of a formula."""

    part: "_Part"
    term: Term
    before: float
    after: float
    identities: tuple[str, ...]

    def build(self, new: Any) -> Variable:
        return self.part.formula.expression(self.term, new)

    def code(self, known: Mapping[Variable, str]) -> str:
        formula = self.part.formula
        texts = {n: text_of(leaf.variable, known) for n, leaf in formula.leaves.items()}
        return formula.code(self.term, texts)


class _Part:
    """A formula, the points where it is judged, and what is exact there."""

    def __init__(self, formula: Formula, replay: Replay, end: float, width: int = WIDTH):
        self.formula, self.replay, self.end, self.width = formula, replay, end, width
        self.seconds = max(end - time.thread_time(), 0.0)

    def improved(self) -> Found | None:
        if not isinstance(self.formula.term, tuple):
            return None
        try:
            return self._improved()
        except np.exceptions.AxisError:
            # A formula that reduces an axis which none of its leaves has cannot be written.
            return None

    def _improved(self) -> Found | None:
        if self._valid_points is None:
            return None
        if not self._is_faulty():
            if self.width == WIDE or not (self._reduced() and self._is_lost_in_full()):
                return None
            return _Part(self.formula, self.replay, self.end, WIDE)._improved()
        for term, identities in self._candidates():
            if (after := self._judged(term)) is not None:
                return Found(self, term, self._ulp(self._before), self._ulp(after), identities)
        return None

    # -- the points

    @cached_property
    def _leaf_values(self) -> dict[str, np.ndarray]:
        leaves = self.formula.leaves.items()
        return {n: np.asarray(self.replay.value(leaf.variable)) for n, leaf in leaves}

    @cached_property
    def _ndim(self) -> int:
        return max(x.variable.type.ndim for x in self.formula.leaves.values())

    def _is_lost_in_full(self) -> bool:
        value = self.replay.value(self.formula.variable)
        return bool(np.any((value == 0) | ~np.isfinite(value)))

    def _reduced(self) -> bool:
        return any(OPERATIONS[head].reduces for head in _heads(self.formula.term))

    @cached_property
    def _base(self) -> dict[str, np.ndarray]:
        """The values at the inputs; the first axis is that of the points."""
        ndim, dtype = self._ndim, self.formula.dtype
        values = {
            n: v.reshape((1,) * (1 + ndim - v.ndim) + v.shape) for n, v in self._leaf_values.items()
        }
        if not self._reduced():
            same = np.broadcast_arrays(*(v[0] for v in values.values()))
            columns = {n: v.reshape((-1,) + (1,) * ndim) for n, v in zip(values, same, strict=True)}
            return {n: v.astype(dtype) for n, v in _chosen(columns, self.formula).items()}
        for axis in range(1, ndim + 1):
            length = max(v.shape[axis] for v in values.values())
            if length > self.width:
                long = [v for v in values.values() if v.shape[axis] == length]
                where = _extremes(long, axis, self.width)
                values = {
                    n: np.take(v, where, axis) if v.shape[axis] == length else v
                    for n, v in values.items()
                }
            elif length == 1:
                values = {
                    n: np.concatenate([v, v * 0.75], axis)
                    if axis - ndim - 1 in self.formula.leaves[n].varies
                    else v
                    for n, v in values.items()
                }
        return {n: v.astype(dtype) for n, v in values.items()}

    @cached_property
    def _valid_points(self) -> Points | None:
        """The points of the search, or None if the formula has a value at none of them."""
        lengths = zip(*(v.shape for v in self._base.values()), strict=True)
        if any(len({*along} - {1}) > 1 for along in lengths):
            return None  # (an axis of one leaf is not that of another, as in `sum(w) + y`)
        return self._valid(self._base, list(_variations(self._base, self.formula, 0, few=True)))

    @property
    def _points(self) -> Points:
        assert self._valid_points is not None
        return self._valid_points

    def _valid(self, base: Mapping[str, np.ndarray], rows: Sequence[Any]) -> Points | None:
        """Return the points at which the formula has a value in its dtype."""
        values = {n: np.concatenate([row[n] for row, _ in rows]) for n in base}
        weights = np.concatenate([np.full(len(row[next(iter(base))]), w) for row, w in rows])
        ndim = self._ndim
        lengths = {axis: max(v.shape[axis] for v in values.values()) for axis in range(-ndim, 0)}
        points = Points(values, lengths, weights)
        exact = self._exact(points, self.formula.term)
        floats = to_floats(exact)
        limits = np.finfo(self.formula.dtype)
        good = np.isfinite(floats) & (np.abs(floats) <= float(limits.max))
        kept = good.reshape(len(good), -1).all(axis=1)
        kept = np.broadcast_to(kept, weights.shape)
        if not kept.any():
            return None
        weights = weights[kept]
        if not (weights >= 4).any():  # (the result at the inputs exceeds the dtype)
            weights = np.where(weights == weights.max(), 4.0, weights)
        return Points({n: v[kept] for n, v in values.items()}, lengths, weights)

    def _exact(self, points: Points, term: Term) -> np.ndarray:
        for bits in BITS:
            with with_bits(bits):
                found = points.value(term, exact=True)
            flat = found.ravel()
            if all(not x.is_finite() or x.is_exact() or x.rel_accuracy_bits() > 64 for x in flat):
                break
        self.bits = bits
        accurate = [x.is_exact() or x.rel_accuracy_bits() > 64 for x in found.ravel()]
        known = np.array(accurate, bool).reshape(found.shape)
        found = np.where(known, found, NONE)
        missing = ~known.reshape(len(known), -1).all(axis=1)
        if missing.any() and len(missing) == len(points.weights):
            for k in np.flatnonzero(missing & (points.weights >= 4)):
                found[k] = self._limit(points, term, k)
        return found

    def _limit(self, points: Points, term: Term, k: int) -> np.ndarray:
        """Return the values that a term tends to at a point, from whatever side."""
        rng = np.random.default_rng(5)
        here = {n: v[k : k + 1] for n, v in points.values.items()}
        near = []
        with with_bits(BITS[-1]):
            for _ in range(3):
                steps = {
                    n: rng.uniform(1, 2, v.shape) * rng.choice([-1, 1], v.shape)
                    for n, v in here.items()
                    if n in self._wrt
                }
                moved = Points(here, points.lengths, points.weights[k : k + 1], steps)
                near.append(moved.value(term, exact=True)[0])
            return np.frompyfunc(_common, 3, 1)(*near)

    # -- before

    @cached_property
    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        """The exact values at the points of the search, and the errors of the old formula."""
        points = self._points
        exact = to_floats(self._exact(points, self.formula.term))
        return exact, _by_point(errors(points.value(self.formula.term, False), exact))

    def _is_faulty(self) -> bool:
        points = self._points
        given = points.weights >= 4
        return bool(given.any() and self._values[1][given].max() >= FAULT) or self._slope_is_faulty

    @cached_property
    def _before(self) -> float:
        """The largest error near the inputs in bits; of the gradient, if the value is right."""
        points = self._points
        value = float(self._values[1][points.weights > 1].max(initial=0))
        slope = max((e for e, w in self._slopes[1] if w > 1), default=0.0)
        return value if value >= FAULT else max(value, slope)

    # -- gradients

    @cached_property
    def _wrt(self) -> list[str]:
        return [
            n
            for n, leaf in self.formula.leaves.items()
            if leaf.variable.type.dtype.startswith("float")
            and not isinstance(leaf.variable, Constant)
        ]

    @cached_property
    def _probes(self) -> dict[Variable, Variable]:
        """Vectors in the place of the leaves of a formula by element: one element for a point."""
        if self._reduced():
            return {}
        leaves = [leaf.variable for leaf in self.formula.leaves.values()]
        return {v: pt.vector(dtype=v.type.dtype) for v in leaves}

    def _probed(self, term: Term) -> Variable:
        return self.formula.expression(term, lambda v: self._probes.get(v, v), views=False)

    def _slope_of(self, term: Term) -> list[Variable] | None:
        """Return the gradient of a term, or None if it has none."""
        if term in self._known_slopes:
            return self._known_slopes[term]
        wrt = [self.formula.leaves[n].variable for n in self._wrt]
        leaves = [self._probes.get(v, v) for v in wrt]
        variable = self._probed(term)
        if variable.type.ndim and not self._probes:
            # (a softmax adds to 1, so the gradient of its sum is rounding)
            weights = pt.cast(pt.arange(variable.size) % 5 + 1, variable.type.dtype)
            variable = variable * weights.reshape(variable.shape)
        try:
            # A leaf may be computed from another, and no derivative goes through it to that.
            found = pytensor.grad(
                variable.sum(),
                leaves,
                consider_constant=leaves,
                disconnected_inputs="ignore",
                null_gradients="return",
            )
        except (NotImplementedError, pytensor.gradient.NullTypeGradError):
            found = None
        self._known_slopes[term] = found
        return found

    def _at(
        self, variables: Sequence[Variable], points: Points, rows: Sequence[int]
    ) -> list[list[Any]]:
        """Return variables at some points; None for those that have no value."""
        known = [v for v in variables if hasattr(v.type, "dtype")]
        with np.errstate(all="ignore"):
            if self._probes:
                replay = Replay(None, self._values_at(points, rows), self.replay.kernels)
                arrays = {v: np.broadcast_to(replay.value(v), len(rows)) for v in known}
                return [
                    [arrays[v][i] if v in arrays else None for v in variables]
                    for i in range(len(rows))
                ]
            return [
                [replay.value(v) if v in known else None for v in variables]
                for replay in (
                    Replay(None, self._values_at(points, [k]), self.replay.kernels) for k in rows
                )
            ]

    def _values_at(self, points: Points, rows: Sequence[int]) -> dict[Variable, Any]:
        """Return the values of the leaves at a point, or of the probes at several."""
        values = {}
        for name, leaf in self.formula.leaves.items():
            value, dtype = points.values[name][rows], leaf.variable.type.dtype
            if self._probes:
                values[self._probes[leaf.variable]] = value.ravel().astype(dtype)
                continue
            ndim = leaf.variable.type.ndim
            value = value[0].reshape(value.shape[1 + self._ndim - ndim :] if ndim else ())
            values[leaf.variable] = np.asarray(value, dtype)
        return values

    @cached_property
    def _slope_rows(self) -> list[int]:
        """Some of the points of the search, at which gradients are compared."""
        points = self._points
        order = np.argsort(-points.weights, kind="stable")
        near = [int(k) for k in order if points.weights[k] > 1][:5]
        far = [int(k) for k in order if points.weights[k] <= 1]
        count = min(len(far), 16 if self._probes else 6)
        return [*near, *(far[i] for i in np.linspace(0, len(far) - 1, count).astype(int))]

    @cached_property
    def _slopes(self) -> tuple[list[Any], list[tuple[float, float]]]:
        """The exact gradients at the points, and the errors of the old formula's gradient."""
        old = self._slope_of(self.formula.term)
        if not self._wrt or old is None:
            return [], []
        points, rows, exact = self._points, self._slope_rows, []
        together = [rows] if self._probes else [[k] for k in rows]
        for some in together:
            values = self._values_at(points, some)
            found = evaluate(old, values, masked_gradients=True, decides=True, seconds=0.5)
            right = [np.asarray(to_floats(e.value), float) for e in found]
            if self._probes:
                exact += [[r[i : i + 1] for r in right] for i in range(len(rows))]
            else:
                exact.append(right)
        written = self._probed(self.formula.term)
        for right, (value,) in zip(exact, self._at([written], points, rows), strict=True):
            if np.isnan(value).any():  # (a limit, at which the formula has no gradient)
                right[:] = [np.full_like(r, np.nan) for r in right]
        return exact, self._errors_of_slope(old, exact)

    @cached_property
    def _known_slopes(self) -> dict[Term, list[Variable] | None]:
        return {}

    @cached_property
    def _known_errors(self) -> dict[Term, list[tuple[float, float]] | None]:
        return {}

    def _slope_errors(self, term: Term) -> list[tuple[float, float]] | None:
        """Return the errors of the gradient of a term, and weights; None if it has no gradient."""
        if term not in self._known_errors:
            slope = self._slope_of(term)
            found = None if slope is None else self._errors_of_slope(slope, self._slopes[0])
            self._known_errors[term] = found
        return self._known_errors[term]

    def _errors_of_slope(
        self, slope: list[Variable], exact: list[Any]
    ) -> list[tuple[float, float]]:
        if not exact:
            return []
        found = []
        computed = self._at(slope, self._points, self._slope_rows)
        weights = self._points.weights[self._slope_rows]
        for parts, right, weight in zip(computed, exact, weights, strict=True):
            worst = 0.0
            sizes = [np.abs(true[np.isfinite(true)]).max(initial=0.0) for true in right]
            scale = max(sizes)  # (of the whole gradient: a part may cancel)
            for part, true in zip(parts, right, strict=True):
                if part is None:
                    continue
                value = np.asarray(part)
                limits = np.finfo(value.dtype) if value.dtype.kind == "f" else np.finfo(float)
                if scale > float(limits.max):
                    continue
                with np.errstate(all="ignore"):
                    distance = np.maximum(np.abs(value - true) - float(limits.tiny), 0)
                    error = distance / max(scale, float(limits.tiny)) / limits.epsneg
                bits = np.where(np.isfinite(error), np.log2(1 + error).clip(0, NO_DIGITS), LOST)
                bits = np.where(np.isnan(true) & np.isfinite(value), 0.0, bits)
                worst = max(worst, float(bits.max(initial=0.0)))
            found.append((worst, float(weight)))
        return found

    @cached_property
    def _many(self) -> list[int]:
        """More points where a gradient must be finite, as that of the formula is."""
        points, _, old, _ = self._around
        chosen: np.ndarray = np.linspace(0, len(old) - 1, SLOPES).astype(int)
        near = np.argsort(-points.weights, kind="stable")[:SLOPES]
        rows = list(dict.fromkeys(map(int, (*near, *chosen))))
        bad = set(self._not_finite(self.formula.term, rows))
        return [k for k in rows if k not in bad]

    @cached_property
    def _at_zero(self) -> tuple[Points | None, list[int]]:
        """Points where a leaf is 0, and those of them where the formula's gradient is finite."""
        zeros = [
            ({n: np.zeros_like(v) if n == name else v for n, v in self._base.items()}, 1.0)
            for name in self._wrt
        ]
        if not zeros or (points := self._valid(self._base, zeros)) is None:
            return None, []
        rows = range(len(points.weights))
        bad = set(self._not_finite(self.formula.term, rows, points))
        return points, [k for k in rows if k not in bad]

    def _not_finite(
        self, term: Term, rows: Sequence[int], points: Points | None = None
    ) -> list[int]:
        """Return the points, among many around, at which a gradient is not finite."""
        found = self._at(self._slope_of(term) or [], points or self._around[0], rows)
        return [
            k
            for k, parts in zip(rows, found, strict=True)
            if not all(p is None or np.isfinite(p).all() for p in parts)
        ]

    def _lost(self, term: Term) -> list[int]:
        """Return the points at which a gradient is not finite, and that of the formula is."""
        return self._not_finite(term, self._many)

    @cached_property
    def _slope_is_faulty(self) -> bool:
        return any(error >= SLOPE and weight >= 4 for error, weight in self._slopes[1])

    # -- the search

    def _candidates(self) -> Iterator[tuple[Term, tuple[str, ...]]]:
        """Yield other terms of the formula and the identities that lead there, the best first."""
        points, exact, _, _ = self._around

        def rank(found: tuple[Term, float, Any]) -> tuple[float, ...]:
            term, near, _ = found
            bits = _by_point(errors(points.value(term, exact=False), exact))
            return near, round(2 * float(bits.mean())), size_of(term)

        ranked = sorted(self._equal_terms(), key=rank)
        by_slope: dict[Term, tuple[float, ...]] = {}
        for term, near, _ in ranked[:DIFFERENTIATED] if self._wrt else ():
            if near == ranked[0][1]:
                by_slope[term] = self._slope_rank(term)
                if by_slope[term] == ACCURATE:
                    break  # (no other is better)
        ranked.sort(key=lambda found: (rank(found)[0], by_slope.get(found[0], (LOST,))))
        plain = [(term, used) for term, _, used in ranked]
        yield from plain
        if (masked := self._with_safe_branches(self.formula.term)) != self.formula.term:
            yield masked, (SAFE_BRANCHES,)
        if self._wrt:
            for term, used in plain[:3]:
                for chosen in self._by_ranges(term):
                    yield chosen, used

    def _slope_rank(self, term: Term) -> tuple[float, ...]:
        """Return what is small if the gradient is accurate near the inputs, then elsewhere."""
        found = self._slope_errors(term) if self._slopes[1] else []
        if found is None:
            return (LOST,)
        near, far = ([e for e, w in found if (w > 1) == side] for side in (True, False))
        return max(near, default=0.0) // 8, float(sum(e >= SLOPE for e in far))

    def _with_safe_branches(self, term: Term) -> Term:
        """Return a term whose switches give each branch operands for which it is chosen.

        A gradient goes through both branches, so 0 times Inf is NaN where a branch is not chosen.
        """
        if not isinstance(term, tuple) or OPERATIONS[term[0]].reduces:
            kept = 2 if isinstance(term, tuple) else 0
            return (*term[:kept], *map(self._with_safe_branches, term[kept:])) if kept else term
        head, *operands = term
        operands = [self._with_safe_branches(x) for x in operands]
        if head != "switch":
            return (head, *operands)
        condition, *branches = operands
        for i, chosen in enumerate((True, False)):
            if isinstance(branches[i], tuple) and (safe := self._safe(condition, chosen)):
                others = {
                    n: ("switch", condition, *((n, x) if chosen else (x, n)))
                    for n, x in safe.items()
                }
                branches[i] = _put(branches[i], others)
        return ("switch", condition, *branches)

    def _safe(self, condition: Term, chosen: bool) -> dict[str, Fraction]:
        """Return values of the leaves for which a condition holds, or does not; else nothing."""
        points = self._points
        for number in (None, 1.0, 0.5, 2.0, -1.0, 0.0):
            values = points.values
            if number is not None:
                values = {n: np.full_like(v, number) for n, v in values.items()}
            holds = Points(values, points.lengths, points.weights).value(condition, exact=False)
            holds, *arrays = np.broadcast_arrays(holds, *(values[n] for n in self._wrt))
            if (where := (holds != 0) == chosen).any():
                return {n: _short(a[where][0]) for n, a in zip(self._wrt, arrays, strict=True)}
        return {}

    def _by_ranges(self, term: Term) -> Iterator[Term]:
        """Yield choices between a term and the formula, by the value of a leaf."""
        points, exact, old, allowed = self._around
        new = _by_point(errors(points.value(term, exact=False), exact))
        given = points.weights >= 4
        worse = new > np.maximum(old + 2, allowed)
        worse[self._lost(term)] = True
        if not worse.any() or worse[given].any():
            return
        axes = tuple(sorted(_axes(self.formula.term)))
        for name in self._wrt:
            rows: np.ndarray = points.values[name].reshape(len(new), -1).astype(float)
            # (the formula where a leaf is above a number, or below)
            for sign, head, extreme in ((1, "gt", "min"), (-1, "lt", "max")):
                values = sign * (rows.min(axis=1) if sign > 0 else rows.max(axis=1))
                low = values[worse].max()
                if not low < values[given].min():
                    continue
                # (where both are lost, nothing is known of the term: it may have no value there)
                right = (new <= allowed) & (values > low)
                if not right.any():
                    continue
                high = values[right].min()
                leaf = (extreme, axes, name) if axes else name
                condition = (head, leaf, Fraction(sign * _simple_between(low, high)))
                yield ("switch", condition, term, self.formula.term)
                # (a gradient goes through both branches, so each gets safe operands)
                first, second = (
                    {n: _short(points.values[n][where].reshape(-1)[0]) for n in self._wrt}
                    for where in (given, worse)
                )
                one = _put(term, {n: ("switch", condition, n, x) for n, x in first.items()})
                safe = {n: ("switch", condition, x, n) for n, x in second.items()}
                yield ("switch", condition, one, _put(self.formula.term, safe))

    def _equal_terms(self) -> Iterator[tuple[Term, float, tuple[str, ...]]]:
        """Yield other terms, their errors near the inputs, and the identities.

        Where the best term is wrong at points around, the search goes on from it, with these.
        """
        seen, start, points = {self.formula.term}, self.formula.term, self._points
        for _ in range(PASSES):
            first = None
            for term, near, used in self._members(start, points):
                first = first or term
                if term not in seen and len(seen) <= CANDIDATES:
                    seen.add(term)
                    yield term, near, used
            rows = [] if first is None else self._wrong_around(first)
            if not rows or time.thread_time() > self.end - 0.3 * self.seconds:
                return
            start, points = first, points.joined(self._around[0], rows)
            seen = {self.formula.term, first}

    def _members(
        self, start: Term, points: Points
    ) -> Iterator[tuple[Term, float, tuple[str, ...]]]:
        graph = EGraph({n: leaf.varies for n, leaf in self.formula.leaves.items()})
        root = graph.put(self.formula.term)
        if start != self.formula.term:
            graph.union(root, graph.put(start))
            graph.rebuild()
        left = max(self.end - time.thread_time(), 0.1)
        graph.saturate(rules_of(IDENTITIES), 5, 0.5 * left)
        with with_bits(self.bits):
            exact = graph.exact_values(points)
        for member in graph.best(points, exact).get(graph.find(root), []):
            used = {str(graph.origins[n]) for n in member.nodes if n in graph.origins}
            yield tidied(member.term), member.score[0], tuple(sorted(used))

    def _wrong_around(self, term: Term) -> list[int]:
        """Return some of the points around at which a term is wrong, of the inputs' signs first."""
        points, exact, _, allowed = self._around
        bits = _by_point(errors(points.value(term, exact=False), exact)) - allowed
        other = np.zeros(len(bits), bool)
        for name, value in points.values.items():
            signs = np.isin(np.sign(value), np.sign(self._base[name]))
            other |= ~signs.reshape(len(value), -1).all(axis=1)
        worst = np.lexsort((-bits, other))
        return [int(k) for k in worst if bits[k] > 0][:WIDTH]

    def _judged(self, term: Term) -> float | None:
        """Return the error of a term in bits near the inputs, or None if it is not better."""
        points = self._points
        exact, _ = self._values
        found_bits = errors(points.value(term, exact=False), exact)
        near = points.weights > 1
        each = (
            _by_point(found_bits),
            self._values[1],
            _by_point(np.where(_counts(exact), found_bits, 0)),
        )
        after, before, worst = (float(bits[near].max(initial=0.0)) for bits in each)
        if not self._holds_around(term):
            return None
        if self._slopes[1]:
            found = self._slope_errors(term)
            if found is None:
                return None
            old = np.array([e for e, _ in self._slopes[1]])
            if not _is_kept(old, np.array([e for e, _ in found]), SLOPE):
                return None
            if any(e >= LOST and w >= 4 for e, w in found):
                return None
            if self._lost(term) or self._not_finite(term, self._at_zero[1], self._at_zero[0]):
                return None
            if before < FAULT:
                after = worst = max(after, *(e for e, w in found if w > 1))
        return after if after <= self._before - GAIN and worst <= NO_DIGITS else None

    @cached_property
    def _around(self) -> tuple[Points, np.ndarray, np.ndarray, np.ndarray]:
        """Many points, exact values there, errors of the formula, and those that are allowed."""
        points = self._valid(self._base, list(_variations(self._base, self.formula, 1, few=False)))
        assert points is not None  # (the inputs themselves are among them)
        exact = to_floats(self._exact(points, self.formula.term))
        old, noise = self._errors(points, exact), np.random.default_rng(3)
        for _ in range(3):  # (another rounding may lose digits that this one has kept by chance)
            old = np.maximum(old, self._errors(points, exact, noise))
        return points, exact, old, self._conditioned(points, exact)

    def _errors(self, points: Points, exact: np.ndarray, noise: Any = None) -> np.ndarray:
        return _by_point(errors(points.value(self.formula.term, False, noise), exact))

    def _holds_around(self, term: Term) -> bool:
        """Return whether a term is no worse than the formula at many points."""
        points, exact, old, allowed = self._around
        return _is_kept(old, _by_point(errors(points.value(term, False), exact)), allowed)

    def _conditioned(self, points: Points, exact: np.ndarray) -> np.ndarray:
        """Return the bits that a formula may lose: those that rounded leaves lose, and a few."""
        rng = np.random.default_rng(2)
        eps = float(np.finfo(points.dtype).eps)
        lost = np.full(len(points.weights), KEPT)
        for _ in range(2):
            moved = {
                n: (v * (1 + eps * rng.choice([-1, 1], v.shape))).astype(v.dtype)
                for n, v in points.values.items()
            }
            near = Points(moved, points.lengths, points.weights)
            with with_bits(self.bits):
                value = to_floats(near.value(self.formula.term, exact=True))
            lost = np.maximum(lost, _by_point(errors(value.astype(points.dtype), exact)) + 3)
        return lost

    def _ulp(self, bits: float) -> float:
        return float("inf") if bits >= LOST else float(2**bits - 1)


def _counts(exact: np.ndarray) -> np.ndarray:
    """Return which elements are no rounding beside the largest one of their point."""
    sizes = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    largest = sizes.max(axis=tuple(range(1, sizes.ndim)), keepdims=True, initial=0.0)
    return np.asarray((sizes >= np.finfo(np.float64).eps * largest) | np.isinf(exact))


def _common(*near: Any) -> Any:
    """Return the limit of three values near a point; not a number if they differ."""
    if all(abs(x) < arb(2) ** (-NEAR // 2) for x in near):
        return arb(0)
    apart = max(abs(x - near[0]) for x in near)
    return near[0].mid() if apart < abs(near[0]) * arb(2) ** (-NEAR // 2) else NONE


def _is_kept(old: np.ndarray, new: np.ndarray, kept: Any) -> bool:
    return bool(np.all(new <= np.maximum(old + 2, kept)))


def _by_point(bits: np.ndarray) -> np.ndarray:
    return bits.reshape(len(bits), -1).max(axis=1)


def _put(term: Term, others: Mapping[str, Term]) -> Term:
    """Return a term with other terms in the place of leaves."""
    if isinstance(term, tuple):
        kept = 1 + OPERATIONS[term[0]].reduces
        return (*term[:kept], *(_put(x, others) for x in term[kept:]))
    return others.get(term, term) if isinstance(term, str) else term


def _short(value: Any) -> Fraction:
    return Fraction(float(f"{float(value):.1e}"))


def _simple_between(low: float, high: float) -> float:
    """Return a number between two, with few digits."""
    for number in (0.0, 1.0, -1.0):
        if low <= number <= high:
            return number
    sign = 1 if low > 0 else -1
    middle = float(np.sqrt(abs(low)) * np.sqrt(abs(high)))
    for digits in range(17):
        number = sign * float(f"{middle:.{digits}e}")
        if low < number < high:
            return number
    return low


def size_of(term: Term) -> int:
    """Return the size of a term, which counts functions twice."""
    if not isinstance(term, tuple):
        return 1
    op = OPERATIONS[term[0]]
    return op.size + sum(map(size_of, term[1 + op.reduces :]))


def _heads(term: Term) -> set[str]:
    if not isinstance(term, tuple):
        return set()
    return {term[0]}.union(*map(_heads, term[1 + OPERATIONS[term[0]].reduces :]))


def _axes(term: Term) -> set[int]:
    """Return the axes of all reductions in a term."""
    if not isinstance(term, tuple):
        return set()
    reduces = OPERATIONS[term[0]].reduces
    own = set(term[1]) if reduces else set()
    return own.union(*map(_axes, term[1 + reduces :]))


def _extremes(arrays: Sequence[np.ndarray], axis: int, count: int = WIDTH) -> np.ndarray:
    """Return the places along an axis of the smallest and largest elements of some arrays."""
    places: list[int] = []
    for a in arrays:
        flat = np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1)
        places += [int(np.argmax(flat.max(axis=1))), int(np.argmin(flat.min(axis=1)))]
        places += [int(np.argmin(np.abs(flat).min(axis=1)))]
    kept = list(dict.fromkeys([*places, *range(count)]))[:count]
    return np.array(sorted(kept))


def _chosen(columns: Mapping[str, np.ndarray], formula: Formula) -> dict[str, np.ndarray]:
    """Return up to four elements: those with the largest errors are found by their floats."""
    count = len(next(iter(columns.values())))
    if count <= WIDTH:
        return dict(columns)
    where = _extremes(list(columns.values()), 0)
    return {n: v[where] for n, v in columns.items()}


def _variations(base: Mapping[str, np.ndarray], formula: Formula, seed: int, few: bool) -> Any:
    """Yield values of the leaves, and their weight: 4 at the inputs, 2 near them, 1 far away."""
    rng = np.random.default_rng(seed)
    leaves = {n: leaf.variable for n, leaf in formula.leaves.items()}
    integers = {n for n, v in leaves.items() if np.dtype(v.type.dtype).kind in "iub"}
    fixed = {n for n, v in leaves.items() if isinstance(v, Constant)}

    def times(factor: Any) -> dict[str, np.ndarray]:
        made = {}
        for n, v in base.items():
            with np.errstate(all="ignore"):
                new = v if n in fixed else (v * factor(v)).astype(v.dtype)
            made[n] = np.clip(np.rint(new), -100, 100) if n in integers else new
        return made

    def spread(low: float, signed: bool = False) -> Any:
        def factor(v: np.ndarray) -> np.ndarray:
            sizes = 10 ** rng.uniform(-low, low, v.shape)
            return sizes * rng.choice([-1, 1], v.shape) if signed else sizes

        return factor

    heavy = bool(_heads(formula.term) & set(HEAVY))
    yield dict(base), 4.0
    for factor in (0.5, 0.9, 1.1):
        yield times(lambda v, f=factor: f), 2.0
    for _ in range(2 if few else 10):
        yield times(lambda v: rng.uniform(0.5, 2, v.shape)), 2.0
    wide = (0.5, 1.0, 2.0) if heavy else (1.0, 3.0, 8.0, 30.0, 120.0)
    for size in wide:
        for _ in range(2 if few else 20):
            yield times(spread(size)), 1.0
        for _ in range(1 if few else 10):
            yield times(spread(size, signed=True)), 1.0
    for factor in () if heavy else (1e-100, 1e100):
        yield times(lambda v, f=factor: f), 1.0
    yield times(lambda v: -1.0), 1.0
