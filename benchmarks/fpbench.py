"""Whether ``theanoguard.precision`` is right on the cores of FPBench.

    git clone https://github.com/FPBench/FPBench
    python -m benchmarks.fpbench FPBench [--points 6] [NAME ...]

The cores are read from ``FPBench/benchmarks/*.fpcore`` and built as PyTensor graphs.  Cores with
loops, or with functions that PyTensor does not have, are left out.  Each core is evaluated at
random points within its precondition, of which half are spread over the magnitudes.

An evaluation apart from theanoguard's, in ball arithmetic of 2,000 bits, says whether a result is
*accurate*: off by at most 8192 units of rounding.  An accurate result must not be reported.  If a
result is not accurate, ``precision`` has *detected* it if it says that digits are lost, or that the
inputs do not determine them.  It has *named* the loss if it names an operation.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from flint import arb, ctx
from pytensor.graph.traversal import graph_inputs

from theanoguard import precision

SENSITIVE = "named, and the inputs do not determine it"
LIMIT = 8192 * 2.0**-53
BITS = 2000
TRIES = 3000
"""Random points that are drawn in search of one within the precondition."""

GOOD = ("accurate", "named", SENSITIVE)

Expression = Any
"""A symbol, a number, or a list of expressions."""

# Of each operation: on PyTensor's variables, and on balls.
OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "/": (lambda x, y: x / y, lambda x, y: x / y),
    "sqrt": (pt.sqrt, arb.sqrt),
    "exp": (pt.exp, arb.exp),
    "expm1": (pt.expm1, arb.expm1),
    "log": (pt.log, arb.log),
    "log1p": (pt.log1p, arb.log1p),
    "sin": (pt.sin, arb.sin),
    "cos": (pt.cos, arb.cos),
    "tan": (pt.tan, arb.tan),
    "asin": (pt.arcsin, arb.asin),
    "acos": (pt.arccos, arb.acos),
    "atan": (pt.arctan, arb.atan),
    "sinh": (pt.sinh, arb.sinh),
    "cosh": (pt.cosh, arb.cosh),
    "tanh": (pt.tanh, arb.tanh),
    "fabs": (abs, abs),
    "fmax": (pt.maximum, lambda x, y: x.max(y)),
    "fmin": (pt.minimum, lambda x, y: x.min(y)),
    "pow": (lambda x, y: x**y, lambda x, y: x**y),
    "<": (lambda x, y: x < y, lambda x, y: x < y),
    "<=": (lambda x, y: x <= y, lambda x, y: x <= y),
    ">": (lambda x, y: x > y, lambda x, y: x > y),
    ">=": (lambda x, y: x >= y, lambda x, y: x >= y),
    "==": (pt.eq, lambda x, y: x == y),
    "!=": (pt.neq, lambda x, y: x != y),
}
CONSTANTS = {"PI": np.pi, "E": np.e, "LN2": np.log(2.0), "TRUE": True, "FALSE": False}


class Left(Exception):
    """A core has something that PyTensor does not have."""


def expressions(text: str) -> Iterator[Expression]:
    """Yield the expressions of a file."""
    tokens = re.findall(r'"[^"]*"|;.*|[()\[\]]|[^\s()\[\];"]+', text)
    stack: list[list[Expression]] = [[]]
    for token in tokens:
        if token.startswith(";"):
            continue  # (a comment)
        if token in "([":
            stack.append([])
        elif token in ")]":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    yield from stack[0]


def value_of(expression: Expression, known: dict[str, Any], on_balls: bool) -> Any:
    """Return an expression as a graph, or as a ball."""

    def of(part: Expression, **names: Any) -> Any:
        return value_of(part, {**known, **names}, on_balls)

    if isinstance(expression, str):
        if expression in known:
            return known[expression]
        number = CONSTANTS.get(expression)
        if number is None:
            number = _number(expression)
        if on_balls:
            return number if isinstance(number, bool) else arb(number)
        return pt.as_tensor(np.asarray(number))
    head, *parts = expression
    if head in ("let", "let*"):
        bindings, body = parts
        names = dict(known)
        for name, part in bindings:
            scope = names if head == "let*" else known
            names[name] = value_of(part, scope, on_balls)
        return value_of(body, names, on_balls)
    if head == "!":
        return of(parts[-1])
    if head == "if":
        condition, one, other = parts
        if on_balls:
            return of(one) if of(condition) else of(other)
        return pt.switch(of(condition), of(one), of(other))
    if head not in (*OPERATIONS, "+", "-", "*", "and", "or"):
        raise Left(head)
    operands = [of(part) for part in parts]
    if head in ("+", "*"):
        total = operands[0]
        for operand in operands[1:]:
            total = total + operand if head == "+" else total * operand
        return total
    if head == "-":
        return -operands[0] if len(operands) == 1 else operands[0] - operands[1]
    if head in ("and", "or"):
        joined = all if head == "and" else any
        if on_balls:
            return joined(operands)
        return pt.prod(operands) > 0 if head == "and" else pt.sum(operands) > 0
    if head in ("<", "<=") and len(operands) == 3 and on_balls:  # (a range, in a precondition)
        low, middle, high = operands
        return low <= middle <= high if head == "<=" else low < middle < high
    if len(operands) > 2:
        raise Left(f"{head} of {len(operands)} operands")
    return OPERATIONS[head][on_balls](*operands)


def _number(text: str) -> float:
    first, _, second = text.partition("/")
    try:
        return float(first) / (float(second) if second else 1.0)
    except ValueError:
        raise Left(text) from None


def parts_of(core: Expression) -> tuple[list[str], dict[str, Expression], Expression]:
    """Return the arguments of a core, its properties and its body."""
    rest = core[1:]
    if isinstance(rest[0], str):
        rest = rest[1:]  # (its symbol)
    arguments, *rest = rest
    properties = {}
    while len(rest) > 1:
        properties[rest[0]], rest = rest[1], rest[2:]
    names = [a if isinstance(a, str) else a[-1] for a in arguments]
    return names, properties, rest[0]


def ranges_in(condition: Expression, found: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the smallest and the largest value of the arguments that a precondition states."""
    if not isinstance(condition, list) or not condition:
        return found
    head, *parts = condition
    if head == "and":
        for part in parts:
            ranges_in(part, found)
    elif head in ("<", "<=", ">", ">="):
        parts = parts if head[0] == "<" else parts[::-1]
        for low, high in zip(parts, parts[1:], strict=False):
            for name, other, end in ((high, low, 0), (low, high, 1)):
                if isinstance(name, str) and name in found and isinstance(other, str):
                    try:
                        number = _number(other)
                    except Left:
                        continue
                    at = found[name]
                    at[end] = max(at[0], number) if end == 0 else min(at[1], number)
    return found


def points_of(
    names: list[str], condition: Expression, count: int, seed: int
) -> Iterator[dict[str, float]]:
    """Yield random points at which a precondition holds."""
    rng = np.random.default_rng(seed)
    ranges = ranges_in(condition, {name: [-1e9, 1e9] for name in names})
    made = 0
    for i in range(TRIES):
        point = {}
        for name, (low, high) in ranges.items():
            value = rng.uniform(low, high)
            if i % 2:
                value = np.copysign(10.0 ** rng.uniform(-9, 9), rng.uniform(-1, 1))
                value = float(np.clip(value, low, high)) if low <= abs(value) <= high else value
            point[name] = float(np.clip(value, low, high))
        holds = condition is None or value_of(condition, _balls(point), on_balls=True)
        if holds:
            made += 1
            yield point
        if made == count:
            return


def _balls(point: dict[str, float]) -> dict[str, Any]:
    return {name: arb(value) for name, value in point.items()}


def judged(body: Expression, point: dict[str, float]) -> tuple[str, Any] | None:
    """Return how ``precision`` did at a point, and what it said; None where there is no value."""
    variables = {name: pt.dscalar(name) for name in point}
    graph = pt.as_tensor(value_of(body, dict(variables), on_balls=False))
    roots = set(graph_inputs([graph]))
    used = {v: point[name] for name, v in variables.items() if v in roots}
    if not used:
        return None
    with ctx.workprec(BITS):
        true = value_of(body, _balls(point), on_balls=True)
        if not true.is_finite() or abs(true) > 1e300 or abs(true) < 1e-290:
            return None
    found = precision(graph, used)
    digits = found.outputs.get("output 0")
    if digits is None:
        return "beyond the limits", found
    with ctx.workprec(BITS):
        value = float(digits.value)
        if not np.isfinite(value):
            return ("accurate", found) if not digits.is_fault else ("named", found)
        accurate = abs(true - value) <= LIMIT * abs(true)
    if accurate:
        return ("false" if digits.is_fault else "accurate"), found
    if not (digits.is_fault or digits.is_sensitive):
        return "missed", found
    if not digits.losses:
        return "detected, not named", found
    return ("named" if digits.is_fault else SENSITIVE), found


def main() -> None:
    """Print what is not right, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--points", type=int, default=6)
    arguments = parser.parse_args()
    files = sorted((arguments.checkout / "benchmarks").glob("*.fpcore"))
    if not files:
        sys.exit(f"no benchmarks/*.fpcore in {arguments.checkout}: give a checkout of FPBench")
    cores, points, left = Counter(), Counter(), Counter()
    for path in files:
        for core in expressions(path.read_text(encoding="utf-8")):
            names, properties, body = parts_of(core)
            title = properties.get(":name", '"?"').strip('"')
            if arguments.names and title not in arguments.names:
                continue
            try:
                outcomes = Counter(of_core(title, names, properties, body, arguments.points))
            except Left as reason:
                left[str(reason)] += 1
                continue
            points.update(outcomes)
            bad = [key for key in outcomes if key not in GOOD]
            cores["with a miss or a false alarm" if bad else "right at all points"] += 1
            cores["accurate at all points"] += set(outcomes) == {"accurate"}
            cores["false"] += "false" in outcomes
    print(f"cores: {dict(cores)}\npoints: {dict(points)}\nleft out, by reason: {dict(left)}")


def of_core(
    title: str, names: list[str], properties: dict[str, Expression], body: Expression, count: int
) -> Iterator[str]:
    """Yield how ``precision`` did at each point of a core, and print what was not right."""
    if not names:
        raise Left("no argument")
    for point in points_of(names, properties.get(":pre"), count, seed=0):
        found = judged(body, point)
        if found is None:
            continue
        outcome, said = found
        if outcome not in GOOD:
            print(f"{title} at {point}: {outcome}\n  {said}", flush=True)
        yield outcome


if __name__ == "__main__":
    main()
