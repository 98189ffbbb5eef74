"""A fuzzer: random graphs as written against rewritten ones; prints a table for the release.

    python -m benchmarks.rewrites --seconds 300 --seed 0
    python -m benchmarks.rewrites --seconds 300 --write

Graphs are made of the elementwise operations in the tables of ``theanoguard.operations`` and of
reductions, indexing, updates of elements, joins, shapes, linear algebra, ``switch`` and ``alloc``.
Inputs are drawn until the values as written are finite.  Each graph is compared with itself after
the rewrites of ``fast_run``, both under Python's linker.  A change is shrunk to a minimal graph,
and confirmed on the C backend.
"""

import argparse
import csv
import datetime
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.elemwise import Elemwise

from benchmarks.upstream import REPORTS
from theanoguard import compare
from theanoguard._compare.problem import make_problem
from theanoguard._compare.rewriting import Change, Judge, Raised, blamed
from theanoguard._naming import name_of
from theanoguard.operations.facts import SCALARS

PLAIN = Mode("py", "fast_run")
LENGTH = 3
DRAWS = 20
Values = dict[Variable, Any]


def _elementwise() -> list[Elemwise]:
    known = {type(op): op for op in vars(ps).values() if isinstance(op, ps.ScalarOp)}
    left_out = (ps.Cast, ps.Second, ps.Identity)
    return [Elemwise(op) for kind, op in known.items() if kind in SCALARS and kind not in left_out]


ELEMENTWISE = _elementwise()
COMPARISONS = (pt.eq, pt.neq, pt.lt, pt.le, pt.gt, pt.ge)
REDUCTIONS = (pt.sum, pt.prod, pt.max, pt.min, pt.mean, pt.cumsum, pt.sort, pt.var, pt.argmax)
CONSTANTS = (0.0, 1.0, 2.0, -1.0, 0.5, 3.0)


class Maker:
    """Makes random graphs.

    Parameters
    ----------
    rng : Generator
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.vectors: list[Variable] = [pt.dvector("x"), pt.dvector("y")]
        self.matrices: list[Variable] = [pt.dmatrix("A"), pt.dmatrix("B")]
        self.scalars: list[Variable] = [pt.dscalar("s"), pt.dscalar("t")]
        self.integers: list[Variable] = [pt.lscalar("k"), pt.lscalar("j")]
        self.indices: list[Variable] = [pt.lvector("i")]

    def pick(self, items: Any) -> Any:
        """Return one of several things, of later variables more often."""
        weights = np.arange(1, len(items) + 1) if isinstance(items, list) else np.ones(len(items))
        return items[self.rng.choice(len(items), p=weights / weights.sum())]

    def any_float(self) -> Variable:
        """Return a variable of floats."""
        pool = self.pick((self.vectors, self.vectors, self.matrices, self.scalars))
        return self.pick(pool)

    def operand_like(self, variable: Variable) -> Variable:
        """Return something that broadcasts against a variable."""
        pools = {0: self.scalars, 1: self.vectors, 2: self.matrices}
        constant = pt.as_tensor(self.pick(CONSTANTS))
        return self.pick(
            (self.pick(pools[variable.ndim]), variable, self.pick(self.scalars), constant)
        )

    def a_slice(self) -> slice:
        """Return a slice with constants and integer variables."""
        bound = [None, 1, -1, 2, self.pick(self.integers)]
        step = self.pick((None, None, 1, -1, 2))
        return slice(self.pick(tuple(bound)), self.pick(tuple(bound)), step)

    def elementwise(self) -> Variable:
        """Return an elementwise operation of the tables."""
        op = self.pick(tuple(ELEMENTWISE))
        first = self.any_float()
        if isinstance(op.scalar_op, ps.Switch):
            condition = self.pick(COMPARISONS)(first, self.operand_like(first))
            return pt.switch(condition, first, self.operand_like(first))
        count = op.scalar_op.nin if op.scalar_op.nin > 0 else 2
        return op(first, *(self.operand_like(first) for _ in range(count - 1)))

    def reduction(self) -> Variable:
        """Return a reduction."""
        x = self.pick(self.pick((self.vectors, self.matrices)))
        return self.pick(REDUCTIONS)(x, axis=int(self.rng.integers(x.ndim)))

    def indexing(self) -> Variable:
        """Return a part of an array."""
        x = self.pick(self.pick((self.vectors, self.matrices)))
        index = self.pick(
            (self.a_slice(), self.pick(self.integers), self.pick(self.indices), 0, -1)
        )
        return x[index]

    def writing(self) -> Variable:
        """Return an array with other elements, or such elements."""
        x = self.pick(self.vectors)
        index = self.pick((self.a_slice(), self.pick(self.indices)))
        write = self.pick((pt.set_subtensor, pt.inc_subtensor))
        new = write(x[index], self.pick((self.pick(self.vectors), self.pick(self.scalars))))
        return self.pick((new, new[index], new[self.a_slice()]))

    def joining(self) -> Variable:
        """Return arrays put together."""
        a, b = self.pick(self.vectors), self.pick(self.vectors)
        return self.pick((pt.concatenate([a, b]), pt.stack([a, b]), pt.concatenate([a[:0], b])))

    def shaping(self) -> Variable:
        """Return an array in another shape, or a new one."""
        x, m = self.pick(self.vectors), self.pick(self.matrices)
        made = (
            lambda: m.ravel(),
            lambda: m.T,
            lambda: x[None, :],
            lambda: pt.alloc(self.pick(self.scalars), self.pick(self.integers)),
            lambda: pt.alloc(x, 2, x.shape[0]),
            lambda: pt.specify_shape(x, LENGTH),
            lambda: pt.tile(x, 2),
            lambda: x.shape[0] * self.pick(self.scalars),
            lambda: pt.specify_shape(x, LENGTH).shape[0] * 1.0,
        )
        return self.pick(made)()

    def algebra(self) -> Variable:
        """Return something of linear algebra."""
        a, b, x = self.pick(self.matrices), self.pick(self.matrices), self.pick(self.vectors)
        made = (
            lambda: a @ b,
            lambda: a @ x,
            lambda: x @ x,
            lambda: pt.linalg.inv(a),
            lambda: pt.linalg.det(a),
            lambda: pt.linalg.solve(a, x),
            lambda: pt.diag(x),
            lambda: pt.linalg.slogdet(a)[1],
            lambda: pt.linalg.cholesky(a @ a.T),
        )
        return self.pick(made)()

    def graph(self) -> Variable:
        """Return a random graph."""
        families = (
            *(self.elementwise, self.elementwise, self.elementwise, self.reduction),
            *(self.indexing, self.writing, self.joining, self.shaping, self.algebra),
        )
        last = None
        for _ in range(int(self.rng.integers(2, 7))):
            try:
                made = self.pick(families)()
            except (TypeError, ValueError, IndexError, NotImplementedError):
                continue  # the operation does not take these operands
            if made.ndim > 2 or made.dtype not in ("float64", "int64", "bool"):
                continue
            made = made if made.dtype == "float64" else made.astype("float64")
            (self.scalars, self.vectors, self.matrices)[made.ndim].append(made)
            last = made
        return self.scalars[0] if last is None else last


def draw(variable: Variable, rng: np.random.Generator) -> Any:
    """Return a value for an input."""
    shape = (LENGTH,) * variable.ndim
    if variable.dtype == "int64":
        return rng.integers(-1, LENGTH, shape)
    kinds = (
        lambda: rng.normal(size=shape),
        lambda: rng.uniform(0.1, 0.9, shape),
        lambda: rng.uniform(1, 3, shape),
        lambda: rng.integers(-2, 3, shape).astype(float),
        lambda: 1 + rng.normal(size=shape) * 1e-6,
        lambda: 2 + rng.normal(size=shape) * 1e-6,
        lambda: rng.normal(size=shape) * 1e3,
    )
    return np.asarray(kinds[rng.integers(len(kinds))]())


def values_for(graph: Variable, rng: np.random.Generator) -> Values:
    """Return inputs at which the values as written are finite, if some draw gives them."""
    inputs = [v for v in graph_inputs([graph]) if not isinstance(v, Constant)]
    given: Values = {}
    for _ in range(DRAWS):
        given = {v: draw(v, rng) for v in inputs}
        judge = judge_of(graph, given)
        [outcome] = judge.outcomes.values()
        if isinstance(outcome, Raised):
            if rng.random() < 0.2:  # errors are looked at as well
                break
            continue
        values = [v for v in judge.reference.known_values().values() if isinstance(v, np.ndarray)]
        if all(np.isfinite(v).all() for v in values if v.dtype.kind == "f"):
            break
    return given


def judge_of(graph: Variable, given: Values) -> Judge:
    """Return what judges a graph."""
    problem = make_problem(graph, given)
    return Judge(problem, problem.reference())


@dataclass(frozen=True)
class Case:
    """A graph with inputs, and what rewriting changes there."""

    graph: Variable
    given: Values
    change: Change

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What makes two cases the same."""
        return self.change.kind, tuple(sorted(self.change.rewrites))

    @property
    def size(self) -> int:
        """The number of operations."""
        return sum(v.owner is not None for v in ancestors([self.graph]))


def case_of(graph: Variable, given: Values, names: bool = True) -> Case | None:
    """Return the change of a graph at some inputs, None if there is none."""
    judge = judge_of(graph, given)
    problem = judge.problem
    compiled = problem.compile(PLAIN)

    def named(values: list) -> dict[str, Any]:
        return dict(zip(problem.names, values, strict=True))

    judge.running(lambda values: named(compiled(values)))
    try:
        found: Any = named(compiled())
    except Exception as error:  # what the compiled graph raises is judged
        found = error
    changes = judge.changes(found)
    changes = blamed(problem, PLAIN, judge, changes) if names else changes
    return Case(graph, given, changes[0]) if changes else None


def smaller(case: Case) -> Iterator[tuple[Variable, Values]]:
    """Yield smaller graphs: a part of the graph, or one with a value in the place of a part."""
    inner = [v for v in ancestors([case.graph]) if v.owner is not None and v is not case.graph]
    for part in inner:
        inputs = set(graph_inputs([part]))
        yield part, {v: value for v, value in case.given.items() if v in inputs}
    for part in inner:
        inputs = set(graph_inputs([part]))
        given = {v: value for v, value in case.given.items() if v in inputs}
        [value] = judge_of(part, given).outcomes.values()
        if isinstance(value, Raised) or not hasattr(part.type, "dtype"):
            continue
        taken = {v.name for v in case.given}
        name = next(n for n in (f"v{i}" for i in range(1000)) if n not in taken)
        fresh = part.type(name=name)
        graph = clone_replace(case.graph, {part: fresh})
        left = set(graph_inputs([graph]))
        more = {fresh: np.asarray(value)}
        yield graph, {v: x for v, x in (case.given | more).items() if v in left}


def shrunk(case: Case) -> Case:
    """Return a case of the same kind, and by the same rewrites, that cannot be made smaller."""
    found = True
    while found:
        found = False
        for graph, given in smaller(case):
            try:
                if any(v.owner is None and v not in given for v in _inputs(graph)):
                    continue
                other = case_of(graph, given)
            except (TypeError, ValueError):
                continue
            if other is not None and other.key == case.key and other.size < case.size:
                case, found = other, True
                break
    return case


def _inputs(graph: Variable) -> list[Variable]:
    return [v for v in graph_inputs([graph]) if not isinstance(v, Constant)]


def known() -> list[tuple[Variable, Values]]:
    """Return graphs at inputs at which rewriting is known to change something."""
    x, y, k = pt.dvector("x"), pt.dvector("y"), pt.lscalar("k")
    three = np.arange(3.0)
    more = [
        (x / x, {x: np.array([1.0, 0.0])}),
        (pt.set_subtensor(x[k:], y)[k:], {x: three, k: 1, y: np.ones(5)}),
    ]
    return [*(report.case() for report in REPORTS), *more]


def fuzz(seconds: float, seed: int) -> tuple[list[Case], int, int]:
    """Return the kinds of changes that were found, and how many graphs were tried and left out."""
    cases: dict[Any, Case] = {}
    tried = left_out = 0
    for graph, given in known():
        case = case_of(graph, given)
        if case is not None:
            cases.setdefault(case.key, case)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        rng = np.random.default_rng([seed, tried])
        tried += 1
        try:
            graph = Maker(rng).graph()
            given = values_for(graph, rng)
            case = case_of(graph, given, names=False)
            if case is None or case.change.kind == "discontinuity":
                continue
            case = case_of(graph, given)
        except Exception:  # a graph that PyTensor cannot build or compile is no finding of ours
            left_out += 1
            continue
        if case is not None and case.key not in cases:
            cases[case.key] = shrunk(case)
    return [case for case in cases.values() if is_confirmed(case)], tried, left_out


def is_confirmed(case: Case) -> bool:
    """Whether the C backend changes the same (in Python an operation may have its own faults)."""
    found = compare(case.graph, case.given, "CVM", reference="as written")["CVM"].changes or ()
    return case.change.kind in [change.kind for change in found]


def texts(case: Case) -> tuple[str, ...]:
    """Return the cells of a case."""
    values = [f"{v.name} = {_short(value)}" for v, value in case.given.items()]
    rewrites = ", ".join(case.change.rewrites) or "not found"
    return (
        f"{name_of(case.graph, depth=9)}; {', '.join(values)}",
        case.change.as_written,
        case.change.compiled,
        rewrites,
    )


def _short(value: Any) -> str:
    text = np.array2string(np.asarray(value), precision=9, threshold=6, edgeitems=1, separator=", ")
    return " ".join(text.split())


ORDER = ("value changed", "bad value made", "error lost", "error made", "digits lost")


def table(cases: list[Case]) -> str:
    """Return the table as CSV, with cells in reStructuredText."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("kind", "graph and inputs", "as written", "after rewriting", "excluding"))
    for kind in ORDER:
        found = sorted((c for c in cases if c.change.kind == kind), key=lambda c: c.size)
        writer.writerows((kind, *(f"``{cell}``" for cell in texts(case))) for case in found)
    return text.getvalue()


PAGE = """\
# PyTensor's rewrites.  ``python -m benchmarks.rewrites --write`` writes this file.

[[table]]
title = "What PyTensor's rewrites change"
text = \"""
Each row is the smallest graph found of its kind, of {tried} random graphs ({left_out} could not \
be compiled).  ``mode.excluding(...)`` with the names in the last column avoids the change.  In \
{harmless} further sets of rewrites only a NaN or an Inf is lost, because it is not computed any \
more (``x / x`` is 1 at 0).\"""
versions = "PyTensor {release}"
date = "{date}"
command = "python -m benchmarks.rewrites --seconds {seconds:g} --seed {seed} --write"
csv = \"""
{table}\"""
"""
MEASUREMENTS = Path(__file__).parents[1] / "docs" / "measurements" / "rewrites.toml"


def main() -> None:
    """Run the fuzzer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table of the docs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        cases, tried, left_out = fuzz(arguments.seconds, arguments.seed)
    harmless = sum(not case.change.is_fault for case in cases)
    page = PAGE.format(
        release=pytensor.__version__,
        table=table(cases).replace("\\", "\\\\"),
        date=datetime.date.today().isoformat(),
        harmless=harmless,
        tried=tried,
        left_out=left_out,
        seconds=arguments.seconds,
        seed=arguments.seed,
    )
    if arguments.write:
        MEASUREMENTS.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
