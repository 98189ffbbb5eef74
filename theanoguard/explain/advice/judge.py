"""Judge a fault and its remedies by the exact value of the user's formula.

The graph as the user built it is evaluated in exact arithmetic at the inputs of the failing call
(:mod:`theanoguard._exact`).  The result separates faults that look the same on the screen: the
formula has a value and the arithmetic lost it, or the formula has no value there.  It also decides
whether another formula is the same function.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.op import RandomVariable

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Place
from theanoguard._evaluate.replay import Replay
from theanoguard._exact import evaluate
from theanoguard._exact.balls import is_close_enough, kind_of, nearest_float, text_of, to_balls
from theanoguard._exact.twin import MAX_BITS
from theanoguard._text import number_text
from theanoguard.explain.advice.trials import AsBuilt, Spot, Trial, depends_on, leaf_values

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}
"""Relative error of a formula that is the same function, by the dtype that computes it."""

SAMPLES = 200
"""Number of inputs around the failing one at which a formula is compared with the user's."""

MAX_SAMPLED = 3  # number of elements of each result that are compared

MAX_BAD = 3  # number of bad elements of each output that are evaluated exactly


@dataclass(frozen=True)
class Number:
    """The exact value of an element: a ball of :mod:`theanoguard._exact`, and its kind."""

    ball: Any
    kind: str  # one of "number", "none", "infinite", "unknown"

    @property
    def value(self) -> float:
        """The nearest float64."""
        return nearest_float(self.ball)

    def text(self, digits: int = 5) -> str:
        """Return the number in decimal digits, with an exponent of any size."""
        value = self.value
        if np.isfinite(value) and value:
            return number_text(value) if digits == 5 else f"{value:.{digits}g}"
        return text_of(self.ball, digits)

    def fits(self, dtype: str) -> bool:
        """Return whether a dtype can hold the number."""
        limit = float(np.finfo(dtype).max)
        return self.kind == "number" and abs(self.value) <= limit

    def is_near(self, value: float) -> bool:
        """Return whether a number is this one but for rounding, or both are tiny."""
        return abs(value - self.value) <= 1e-3 * abs(self.value) + 1e-30

    def agrees(self, value: Any, dtype: str) -> bool:
        """Return whether a computed value is this number, within the tolerance of its dtype."""
        if self.kind != "number":
            return False
        tolerance = TOLERANCE.get(dtype, TOLERANCE["float64"])
        with np.errstate(all="ignore"):
            error = abs(float(value) - self.value)
        if self.ball.is_zero():  # (no relative error)
            return bool(error <= 1e-3 * tolerance)
        smallest = 2 * float(np.finfo(dtype).tiny) ** 0.5
        return bool(error <= tolerance * abs(self.value) + smallest)


@dataclass(frozen=True)
class Target:
    """An element of a variable of the graph as built, and its exact value."""

    variable: Variable
    index: tuple[int, ...]
    number: Number


WORK = 1_500_000
"""Multiplications of 192 bits for the exact values of a report, about 0.1 microseconds each."""


SAMPLE_BITS = 4096
"""Of the exact values around those of the call: ``1 + erf(-30)`` needs 1,500, and takes 0.5 ms."""


def exact_elements(
    elements: list[tuple[Variable, tuple[int, ...]]],
    given: Any,
    live: Any,
    most_bits: int = MAX_BITS,
) -> list[Number]:
    """Return the exact values of elements of some variables.

    `live`: returns the value of a variable in floating point, from which decisions are taken.
    """
    variables, indices = [v for v, _ in elements], [index for _, index in elements]
    found = evaluate(variables, given, live=live, elements=indices, work=WORK, most_bits=most_bits)
    return list(map(_number, found))


def _number(exact: Any) -> Number:
    """Return an exact value; its kind is "unknown" if it rests on values that may be wrong."""
    ball = to_balls(exact.value)[()]  # (the value of an integer variable has no balls)
    kind = kind_of(ball)
    rests = any(note.kind == "live" and not _is_draw(note.variable) for note in exact.notes)
    return Number(ball, "unknown" if rests and kind != "number" else kind)


def _is_draw(variable: Any) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, RandomVariable)


class Judge:
    """The exact values of the outputs that a bad value reaches, and what follows from them.

    - `spot`: the user's operation that made the bad value, or that has no finite derivative.
    - `place`: the element that it made, if it is known.
    """

    def __init__(self, built: AsBuilt, spot: Spot, place: Place | None = None):
        self.built = built
        self.spot = spot
        # (PyTensor's NaN for a singular matrix have the shape of the matrix)
        fits = place is not None and len(place.index) == place.variable.type.ndim
        self.place = place if fits else None
        self._exact: dict[Any, Number] = {}

    @cached_property
    def targets(self) -> list[Target]:
        """The bad elements of the outputs that the operation reaches, with their exact values."""
        node = self.spot.node if self.spot.body is None else self.spot.body.outermost
        found: list[tuple[Variable, tuple[int, ...]]] = []
        for variable in self.built.outputs:
            if len(found) < MAX_BAD and _is_real(variable) and depends_on(variable, node.outputs):
                value = np.asarray(self.built.value(variable))
                bad = np.argwhere(~np.isfinite(value))[: MAX_BAD - len(found)]
                found += [(variable, tuple(map(int, index))) for index in bad]
        here = self.spot.body is None
        numbers = self.exact([*found, *(self.operand_elements if here else ())])
        bad = [Target(*element, number) for element, number in zip(found, numbers, strict=False)]
        return bad or list(self._wrong(node))

    def _wrong(self, node: Apply) -> Iterator[Target]:
        """Yield elements of finite results that are far from what the formula gives.

        The quotient by a number that has overflowed is 0, say.
        """
        if self.place is None:
            return
        asked = []
        for variable in self.built.outputs:
            if _is_real(variable) and depends_on(variable, node.outputs):
                shape = np.shape(self.built.value(variable))
                inside = len(shape) == len(self.place.index) and all(
                    i < n for i, n in zip(self.place.index, shape, strict=True)
                )
                if inside or 0 not in shape:
                    asked.append((variable, self.place.index if inside else (0,) * len(shape)))
        for (variable, index), number in zip(asked, self.exact(asked), strict=True):
            target = Target(variable, index, number)
            value = np.asarray(self.built.value(variable))[index]
            if number.fits(variable.type.dtype) and not number.is_near(float(value)):
                yield target

    @cached_property
    def operand_elements(self) -> list[tuple[Variable, tuple[int, ...]]]:
        """The element that the operation made, and the single elements that it was made from."""
        if self.place is None:
            return []
        parts = [r for r in culprit.regions_of(self.place) if r.is_element]
        places = [culprit.operand_place(self.place, region) for region in parts]
        places = [p for p in places if _is_real(p.variable)]
        return [(p.variable, p.index) for p in (*places, self.place)]

    def exact(self, elements: list[tuple[Variable, tuple[int, ...]]]) -> list[Number]:
        """Return the exact values of elements of variables of the function's own graph."""
        missing = [element for element in elements if element not in self._exact]
        if missing:
            given = leaf_values([v for v, _ in missing], self.built.value)
            numbers = exact_elements(missing, given, self.built.live_value)
            self._exact.update(zip(missing, numbers, strict=True))
        return [self._exact[element] for element in elements]

    def exact_here(self, variable: Variable, index: tuple[int, ...]) -> Number:
        """Return the exact value of an element of a variable of the graph of the operation.

        Inside a loop the states of the step are taken as they are.
        """
        if self.spot.body is None:
            return self.exact([(variable, index)])[0]
        value = self.spot.replay.value
        return exact_elements([(variable, index)], leaf_values([variable], value), value)[0]

    @cached_property
    def kind(self) -> str:
        """The kind of the fault.

        - "lost": the formula has a value, and the arithmetic lost it.
        - "too large": the formula has a value, and it exceeds the dtype.
        - "none": the formula has no value.
        - "harmless": all outputs of the graph as built are finite.
        - "unknown"
        """
        kinds = {t.number.kind for t in self.targets}
        if not kinds:
            return "harmless"
        if "number" in kinds:
            fits = any(t.number.fits(t.variable.type.dtype) for t in self.targets)
            return "lost" if fits else "too large"
        if "unknown" in kinds and self.place is not None:
            kinds = {self.exact_here(self.place.variable, self.place.index).kind}
        return "none" if kinds <= {"none", "infinite"} else "unknown"

    # -- the same function?

    def is_mended(self, trial: Trial) -> bool:
        """Return whether the elements that were bad are finite, and how they were made is gone."""
        if not self.targets:
            return self.spot.node.outputs[0] not in trial.read
        return all(
            np.isfinite(trial.values[t.variable][t.index])
            for t in self.targets
            if t.variable in trial.values
        )

    def is_right(self, trial: Trial) -> bool:
        """Return whether a trial gives the exact values, and keeps the values that were right."""
        for target in self.targets:
            number, dtype = target.number, target.variable.type.dtype
            if target.variable not in trial.values or not number.fits(dtype):
                continue
            if not number.agrees(trial.values[target.variable][target.index], dtype):
                return False
        return self.keeps(trial)

    def keeps(self, trial: Trial) -> bool:
        """Return whether a trial keeps all values that were right before."""
        return all(self._kept(variable, new) for variable, new in trial.values.items())

    def keeps_earlier_call(self, trial: Trial) -> bool:
        """Return whether a change leaves the finite results of an earlier call as they were."""
        before = self.built.in_earlier_call(list(trial.rebuilt))
        after = self.built.in_earlier_call(list(trial.rebuilt.values()))
        for variable, old, new in zip(trial.rebuilt, before or (), after or (), strict=False):
            if not _is_real(variable):
                continue
            right, tolerance = np.isfinite(old), TOLERANCE.get(variable.type.dtype, 1e-9)
            same = np.shape(old) == np.shape(new)
            if not same or not np.allclose(np.asarray(new)[right], old[right], tolerance, 0):
                return False
        return True

    def _kept(self, variable: Variable, new: Any) -> bool:
        if not _is_real(variable):
            return True
        old, new = np.asarray(self.built.value(variable)), np.asarray(new)
        if old.shape != new.shape:
            return False
        dtype = variable.type.dtype
        finite = np.isfinite(old)
        with np.errstate(all="ignore"):
            close = np.isclose(new, old, rtol=TOLERANCE.get(dtype, 1e-9), atol=0)
        moved = [tuple(map(int, i)) for i in np.argwhere(finite & ~close)[:MAX_BAD]]
        exact = self.exact([(variable, index) for index in moved])
        return all(n.agrees(new[i], dtype) for n, i in zip(exact, moved, strict=True))

    def holds_around(
        self,
        variable: Variable,
        build: Callable[[Any], Variable],
        operands: Sequence[Variable],
        one_sign: Collection[Variable] = (),
        spot: Spot | None = None,
        new: Mapping[Variable, Any] = MappingProxyType({}),
    ) -> bool:
        """Return whether a form of a variable is the same function of operands around their values.

        The form is compared with the exact value of the variable at :data:`SAMPLES` inputs or more:
        the values of the operands times 1e-3 to 1e3, with both signs, and zeros.

        - `build`: as :func:`theanoguard.stable.patterns.rebuild` takes it.
        - `one_sign`: operands whose numbers keep the sign that they have.
        - `spot`: knows the values, if they are those of another graph.
        - `new`: the values of operands that are not in the graph.
        """
        replay = (spot or self.spot).replay
        reached, nodes = set(operands), toposort([variable])
        for node in nodes:
            if not reached.isdisjoint(node.inputs):
                reached.update(node.outputs)
        borders = {v for node in nodes if node.outputs[0] in reached for v in node.inputs} - reached
        given = {v: replay.value(v) for v in borders if not isinstance(v, Constant)}
        known = {v: value for v, value in replay.known_values().items() if v not in reached}
        dtype = variable.type.dtype
        # (the rest of the graph is cut off: it is evaluated for every sample)
        own = {v: v.type() for v in (*operands, *given)}
        user, form = clone_replace([variable, build(lambda v: v)], own)
        given = {own[v]: value for v, value in given.items()}
        inside = set(own.values())
        others = [v for v in ancestors([user, form]) if v.owner is None and v not in inside]
        given |= {v: replay.value(v) for v in others if not isinstance(v, Constant)}
        values = {v: np.asarray(new[v] if v in new else replay.value(v)) for v in operands}
        for varied in variants(*values.values()):
            pairs = zip(values.items(), varied, strict=True)
            changed = {
                own[v]: np.copysign(new, value) if v in one_sign else new
                for (v, value), new in pairs
            }
            here = {**given, **changed}
            old = Replay(None, here, replay.kernels)
            got = np.asarray(Replay(None, {**known, **here}, replay.kernels).value(form))
            indices = _sampled(got.shape)
            asked = [(user, index) for index in indices]
            exact = exact_elements(asked, here, old.value, SAMPLE_BITS)
            sizes = (float(np.max(np.abs(v), initial=0)) for v in changed.values())
            scale = max(sizes, default=0.0)
            for number, index in zip(exact, indices, strict=True):
                is_known = number.fits(dtype) and is_close_enough(number.ball)
                if is_known and not _is_near(number, got[index], dtype, scale):
                    return False
        return True


def _is_near(number: Number, value: Any, dtype: str, scale: float) -> bool:
    """Return whether a value is a number, but for the rounding of operands of a size."""
    rounding = 64 * float(np.finfo(dtype).eps) * max(scale, 1.0)
    with np.errstate(all="ignore"):
        return number.agrees(value, dtype) or bool(abs(float(value) - number.value) <= rounding)


def _sampled(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the indices of up to :data:`MAX_SAMPLED` elements of an array."""
    size = int(np.prod(shape))
    flat = np.unique(np.linspace(0, size - 1, MAX_SAMPLED).astype(int)) if size else ()
    return [tuple(map(int, np.unravel_index(i, shape))) for i in flat]


def variants(*values: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yield arrays like some values: times 1e-3 to 1e3, with both signs; and around constants.

    They have :data:`SAMPLES` elements together, or more.  Each array is scaled by another number.

    Examples
    --------
    >>> sum(v.size for v, in variants(np.array([1.0, 800.0])))
    200
    """
    if not any(v.size for v in values):  # (nothing can be varied, such as integers alone)
        yield list(values)
        return
    rng = np.random.default_rng(0)
    bases = [np.where(np.isfinite(v), v, 1.0) for v in values]
    filled = [np.where(v == 0, 1.0, v) for v in bases]
    scales = [sign * scale for scale in np.logspace(-3, 3, 13) for sign in (1, -1)]
    orders = [np.roll(scales, 8 * i) for i in range(len(values))]
    made = [
        [s * v for s, v in zip(some, filled, strict=True)] for some in zip(*orders, strict=True)
    ]
    made += [[np.full_like(v, c) for v in bases] for c in (0.0, *_CONSTANTS)]
    while sum(v.size for some in made for v in some) < SAMPLES:
        size = 10.0 ** rng.uniform(-3, 3)
        signs = [size * rng.choice([-1, 1], v.shape) for v in filled]
        pairs = zip(filled, signs, strict=True)
        made.append([v * sign + rng.normal(size=v.shape) for v, sign in pairs])
    for some in made:
        yield [np.asarray(v, value.dtype) for v, value in zip(some, values, strict=True)]


_CONSTANTS = tuple(sign * c for c in (1e-8, 0.5, 1 - 1e-8, 1.0, 1 + 1e-8, 2.0) for sign in (1, -1))
"""Numbers near which formulas cancel."""


def _is_real(variable: Variable) -> bool:
    return getattr(variable.type, "dtype", "").startswith("float")
