"""For which values of one number a condition holds, while all other numbers stay as they are.

Nothing that is said of such a range is read off the formula: the condition is evaluated inside and
outside of each end.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort

from theanoguard._evaluate.culprit import Place, dense
from theanoguard._steps import ForeignError
from theanoguard.explain.advice.trials import AsBuilt, depends_on, leaf_values
from theanoguard.explain.facts.records import Range
from theanoguard.operations.facts import Domain

logger = logging.getLogger("theanoguard")

MAX_NODES = 60  # largest number of operations that are evaluated for each value of the number

MAX_SIZE = 1000  # largest number of elements of the variable that the condition is for

_SCALES = (1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 1e3, 1e6)
"""By how much a number is scaled to find the pieces on which the condition holds."""


def margin(domain: Domain, value: float) -> float:
    """Return how far inside of a domain a number lies; at most 0 if it lies outside or at an end.

    Examples
    --------
    >>> margin(Domain(at_least=-1, at_most=1), 0.75), margin(Domain(above=0), -2.0)
    (0.25, -2.0)
    """
    low, high = domain.ends
    if math.isnan(value):
        return -1.0
    return min(value - low, high - value, 1e300)


def range_of(
    place: Place,
    domain: Domain,
    leaf: Variable,
    index: tuple,
    built: AsBuilt,
    updated: Collection[Variable] = (),
) -> Range | None:
    """Return the values of an element of an input for which an element lies in a domain.

    An end is a number that the other inputs of the call do not move, or one of these inputs.

    - `place`: the element that has to lie in the domain.  If the input is a single number, all
      elements of the variable have to.
    - `leaf`, `index`: the input, and its element.
    - `built`: its outputs are no NaN inside of the range, if they are quickly computed.
    - `updated`: the shared variables that change from call to call.
    - Returns: None if they are unknown, or are no single interval.
    """
    value = place.scope.replay.value
    is_long = len(list(toposort([place.variable]))) > MAX_NODES or np.size(place.array) > MAX_SIZE
    if is_long or domain.nonzero or not leaf.type.dtype.startswith("float"):
        return None
    given = leaf_values([place.variable], value)
    if leaf not in given or np.size(np.asarray(given[leaf])[index]) != 1:
        return None
    at = float(np.asarray(given[leaf])[index].item())
    outputs = [v for v in built.outputs if depends_on(v, [leaf])]
    inputs = leaf_values(outputs, built.value)
    is_quick = len(list(toposort(outputs))) <= MAX_NODES and not built.bodies

    def margin_of(number: float, more: Mapping[Variable, np.ndarray] = given) -> float:
        moved = np.array(more[leaf])
        moved[index] = number
        replay = built.again({**more, leaf: moved}, place.scope.replay)
        found = np.asarray(dense(replay.value(place.variable)))
        elements = found[place.index] if leaf.type.ndim else found
        least = min(margin(domain, float(v)) for v in np.ravel(elements))
        if least > 0 and is_quick and more is given:
            call = built.again({**inputs, leaf: moved})
            if any(map(_holds_nan, call.values(outputs))):
                return -1.0
        return least

    try:
        with np.errstate(all="ignore"):
            return _range_of(margin_of, at, leaf, given, updated)
    except ForeignError as error:  # (an operation cannot be run with other numbers)
        logger.debug("a range is unknown: %r", error)
        return None


def _range_of(
    margin_of: Callable,
    at: float,
    leaf: Variable,
    given: Mapping[Variable, Any],
    updated: Collection[Variable],
) -> Range | None:
    ends = _piece(margin_of, at)
    if ends is None:
        return None
    names = [next(_named(end, leaf, given, margin_of), "") for end in ends]
    floats = [v for v in given if v is not leaf and v.type.dtype[:5] == "float"]
    others = [v for v in floats if not isinstance(v, SharedVariable) or v in updated]
    for end, name in zip(ends, names, strict=True):
        if not name and math.isfinite(end) and _moves(end, others, given, margin_of):
            return None
    return Range(*ends, *names)


def _holds_nan(value: Any) -> bool:
    array = np.asarray(dense(value))
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _piece(margin_of: Callable[[float], float], at: float) -> tuple[float, float] | None:
    """Return the ends of the only interval on which a margin is positive, or None."""
    size = max(abs(at), 1.0)
    grid = sorted({0.0, at, *(sign * s * size for s in _SCALES for sign in (1, -1))})
    good = [i for i, number in enumerate(grid) if margin_of(number) > 0]
    if not good or good != list(range(good[0], good[-1] + 1)):
        return None
    low, high = -math.inf, math.inf
    if good[0] > 0:
        low = _end(margin_of, grid[good[0] - 1], grid[good[0]])
    if good[-1] < len(grid) - 1:
        high = _end(margin_of, grid[good[-1]], grid[good[-1] + 1])
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _end(margin_of: Callable[[float], float], low: float, high: float) -> float:
    """Return the number between two others where a margin changes its sign; NaN if it jumps."""
    size = max(abs(low), abs(high))
    outside, inside = (low, high) if margin_of(high) > 0 else (high, low)
    if margin_of(outside) == 0:
        root = outside
    else:
        from scipy.optimize import brentq  # (0.3 seconds, which few reports need)

        root = brentq(margin_of, low, high, xtol=1e-14 * size, rtol=1e-14, disp=False)
    root = 0.0 if abs(root) < 1e-10 * size else rounded(root)
    step = 1e-6 * (inside - outside)
    return root if margin_of(root + step) > 0 >= margin_of(root - step) else math.nan


def rounded(number: float) -> float:
    """Return the number with the fewest digits that is equal but for rounding.

    Examples
    --------
    >>> rounded(0.30000000000000004), rounded(299999999.9999999), rounded(1 / 3)
    (0.3, 300000000.0, 0.3333333333333333)
    """
    short = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next((s for s in short if abs(s - number) <= 1e-12 * abs(number)), number)


def _sides(margin_of: Callable, end: float, *given: Any) -> list[bool]:
    """Return whether a condition holds below an end, and above it."""
    step = 1e-3 * max(abs(end), 1.0)
    return [margin_of(end + side, *given) > 0 for side in (-step, step)]


def _moves(
    end: float,
    others: Collection[Variable],
    given: Mapping[Variable, np.ndarray],
    margin_of: Callable,
) -> bool:
    """Return whether other inputs move an end of a range."""
    moved = {v: np.asarray(np.asarray(given[v]) * 1.5, np.asarray(given[v]).dtype) for v in others}
    return _sides(margin_of, end, {**given, **moved}) != _sides(margin_of, end)


def _named(
    end: float, leaf: Variable, given: Mapping[Variable, np.ndarray], margin_of: Callable
) -> Iterator[str]:
    """Yield the names of the numbers that an end of a range is, and with which it moves."""
    for other, value in given.items():
        is_same = np.size(value) == 1 and float(np.ravel(value)[0]) == end
        if not is_same or other is leaf or isinstance(other, Constant) or not other.name:
            continue
        size = np.asarray(0.5 * max(abs(end), 1.0), np.asarray(value).dtype)
        moved = {**given, other: np.asarray(value) + size}
        sides = _sides(margin_of, end)
        if sides[0] != sides[1] and _sides(margin_of, end + float(size), moved) == sides:
            yield other.name


def range_text(found: Range) -> str:
    """Return where a number has to stay.

    Examples
    --------
    >>> [range_text(r) for r in (Range(0), Range(-1, 1), Range(high=2.5, high_name="b"))]
    ['positive', 'between -1 and 1', 'below b']
    """
    lower, upper = (
        found.low_name or code_of_number(found.low),
        found.high_name or code_of_number(found.high),
    )
    if math.isinf(found.high):
        return "positive" if found.low == 0 and not found.low_name else f"above {lower}"
    return f"below {upper}" if math.isinf(found.low) else f"between {lower} and {upper}"


def link_text(found: Range, name: str) -> str:
    """Return how a number is computed from a free one, so that it lies in a range.

    The values of the formula are all numbers inside of the range, without its ends.

    Examples
    --------
    >>> link_text(Range(0), "s"), link_text(Range(-3e8, 3e8), "v"), link_text(Range(0, 1), "p")
    ('s = exp(log_s)', 'v = 3e8 * tanh(arctanh_v)', 'p = sigmoid(logit_p)')
    >>> link_text(Range(2, 5), "x"), link_text(Range(high=1.5), "a"), link_text(Range(low=-5), "x")
    ('x = 2 + 3 * sigmoid(free_x)', 'a = 1.5 - exp(free_a)', 'x = -5 + exp(free_x)')
    """
    low, high = found.low, found.high
    lower, upper = found.low_name or code_of_number(low), found.high_name or code_of_number(high)
    if math.isinf(high):
        return f"{name} = exp(log_{name})" if low == 0 else f"{name} = {lower} + exp(free_{name})"
    if math.isinf(low):
        return f"{name} = {upper} - exp(free_{name})"
    if low == -high and not (found.low_name or found.high_name):
        return f"{name} = {'' if high == 1 else f'{upper} * '}tanh(arctanh_{name})"
    if low == 0:
        times = "" if high == 1 else f"{upper} * "
        return f"{name} = {times}sigmoid(logit_{name})"
    size = (
        f"({upper} - {lower})" if found.low_name or found.high_name else code_of_number(high - low)
    )
    return f"{name} = {lower} + {size} * sigmoid(free_{name})"


def code_of_number(value: float) -> str:
    """Return a number as it is written in code."""
    short = f"{value:g}"
    mantissa, e, exponent = (short if float(short) == value else f"{value:.12g}").partition("e")
    return f"{mantissa}{e}{int(exponent)}" if e else mantissa
