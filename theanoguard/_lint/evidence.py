"""What inputs a graph may be given: ranges, shapes and values that there is evidence for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from theanoguard._evaluate.replay import ScanReplay
from theanoguard._graph import constant_number, viewed
from theanoguard._lint.bounds import Bounds
from theanoguard._lint.propagate import implied
from theanoguard._pytensor import Scan, is_numeric
from theanoguard._pytensor.inner import thawed_graph
from theanoguard.ops.asserts import Assert

UNBOUNDED = 1e3  # the largest magnitude that is tried of an input which nothing bounds

LARGE, SMALL = (3.0, 7.0), (-150.0, -10.0)
"""Logarithms of other magnitudes that are tried of an input in float64 that nothing bounds."""

LENGTH = 3  # of an axis whose length nothing tells


@dataclass(frozen=True)
class Range:
    """The values that an input may have."""

    lo: float
    hi: float
    shape: tuple[int, ...]
    dtype: str
    examples: tuple[np.ndarray, ...] = ()  # values that it had, or that a model draws
    is_free: bool = False  # whether nothing bounds the input

    def clip(self, value: Any) -> np.ndarray:
        """Return a value of this dtype within the range; a number fills the shape."""
        array = np.clip(value, self.lo, self.hi)
        array = array if np.ndim(array) else np.broadcast_to(array, self.shape)
        if np.dtype(self.dtype).kind in "iub":
            array = np.round(array)
        return np.array(array, self.dtype)

    @property
    def is_real(self) -> bool:
        """Whether the values are floating-point numbers."""
        return np.dtype(self.dtype).kind == "f"


@dataclass
class Evidence:
    """What is known of the inputs of a graph."""

    ranges: dict[Variable, Range]
    #: Numbers of the graph, near which its behaviour may change.
    constants: tuple[float, ...] = field(default=())

    def candidates(self, seed: int, count: int) -> Iterator[Mapping[Variable, np.ndarray]]:
        """Yield inputs: the known ones first, then critical values, then random ones."""
        ranges = self.ranges
        longest = max((len(r.examples) for r in ranges.values()), default=0)
        rng = np.random.default_rng(seed)
        for i in range(min(longest, count)):
            yield {v: self._example(r, i, rng) for v, r in ranges.items()}
        yield from self._critical(rng, count // 2)
        for i in range(count):
            yield {v: self._random(r, i, rng) for v, r in ranges.items()}

    def wide(
        self, seed: int, powers: tuple[float, float], count: int
    ) -> Iterator[Mapping[Variable, np.ndarray]]:
        """Yield inputs of other magnitudes, if nothing bounds them: the same one for some.

        `powers`: the logarithms of the smallest and the largest one.
        """
        free = [v for v, r in self.ranges.items() if r.is_free and r.dtype == "float64"]
        rng = np.random.default_rng(seed)
        for i in range(count if free else 0):
            common = rng.uniform(*powers)
            values = {v: self._random(r, i, rng) for v, r in self.ranges.items()}
            for v in free:
                power = common if i % 2 else rng.uniform(*powers)
                value = rng.normal(size=self.ranges[v].shape) * 10.0**power
                values[v] = np.abs(value) if i % 4 > 1 else value
            yield values

    def _example(self, r: Range, i: int, rng: np.random.Generator) -> np.ndarray:
        return r.examples[i % len(r.examples)] if r.examples else self._random(r, i, rng)

    def _critical(self, rng: np.random.Generator, count: int) -> Iterator[dict[Any, Any]]:
        marks = critical(self.constants)
        real = [v for v, r in self.ranges.items() if r.is_real]
        rest = {v: self._example(r, 0, rng) for v, r in self.ranges.items()}
        for mark in marks:
            yield rest | {v: self.ranges[v].clip(mark) for v in real}
        for mark in marks[:8]:
            for pattern in (_first, _last):
                yield rest | {v: pattern(self.ranges[v], mark) for v in real}
        single = [(v, mark) for mark in marks[:10] for v in real]
        for v, mark in single[:count] if len(real) > 1 else ():
            yield rest | {v: self.ranges[v].clip(mark)}
            yield rest | {v: _first(self.ranges[v], mark)}

    def _random(self, r: Range, i: int, rng: np.random.Generator) -> np.ndarray:
        if not r.is_real:
            hi = min(r.hi, max(r.lo, 0) + LENGTH - 1)
            return np.asarray(rng.integers(int(r.lo), int(hi) + 1, r.shape), r.dtype)
        examples = [e for e in r.examples if e.shape == r.shape]
        known = examples[rng.integers(len(examples))] if examples else None
        way = int(rng.integers(4))
        if known is not None and way == 0:
            return r.clip(known * 10.0 ** rng.uniform(-2, 2))
        if way == 1:
            marks = np.array(critical(self.constants))
            return r.clip(rng.choice(marks, r.shape))
        width = r.hi - r.lo
        if way == 2 and np.isfinite(width):
            return r.clip(r.lo + width * rng.uniform(size=r.shape))
        return r.clip(rng.normal(size=r.shape) * 10.0 ** rng.uniform(-2, 3))


def critical(constants: Sequence[float]) -> list[float]:
    """Return the numbers at which formulas fail first; the numbers in the graph come last."""
    near = [c * f for c in constants for f in (1.0, 1 + 1e-6, 1 - 1e-6)]
    large = [np.inf, -np.inf]  # (the ends of a range)
    return [0.0, *large, 1.0, -1.0, 100.0, -100.0, 1e-8, -1e-8, 1e-30, 10.0, -10.0, 0.5, *near]


def _first(r: Range, mark: float) -> np.ndarray:
    """The critical value in the first element, and its opposite everywhere else."""
    value = r.clip(0.0 if mark else 1.0)
    value.ravel()[:1] = r.clip(mark).ravel()[:1]
    return value


def _last(r: Range, mark: float) -> np.ndarray:
    """The critical value along the last column, and 0 or 1 everywhere else."""
    if not r.shape:
        return r.clip(mark)
    value = r.clip(0.0 if mark else 1.0)
    value[..., -1:] = r.clip(mark)[..., -1:]
    return value


def find_evidence(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    bounds: Mapping[Variable, Bounds],
    examples: Sequence[Mapping[Variable, Any]] = (),
) -> Evidence:
    """Return the evidence for the inputs of a graph.

    - `bounds`: what the user says of them.
    - `examples`: calls that were made, or draws of a model.
    """
    nodes = list(toposort(list(outputs)))
    asserted = _asserted(nodes)
    shapes = _shapes(inputs, nodes, examples)
    indices = _indices(nodes)
    ranges = {}
    for v in inputs:
        known = tuple(np.asarray(e[v], v.type.dtype) for e in examples if v in e)
        given = bounds.get(v)
        said = given if given is not None else asserted.get(v)
        lo, hi = _default_range(v, v in indices, shapes)
        if said is not None:
            lo = said.lo if np.isfinite(said.lo) or given is not None else lo
            hi = said.hi if np.isfinite(said.hi) or given is not None else hi
        elif (values := _finite(known)).size:
            lo, hi = float(values.min()), float(values.max())
        lo, hi = _in_dtype(lo, hi, v.type.dtype)
        is_free = said is None and not known
        ranges[v] = Range(lo, hi, shapes[v], v.type.dtype, known, is_free)
    return Evidence(ranges, _constants(nodes))


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The finite elements of arrays."""
    values = np.concatenate([np.empty(0), *map(np.ravel, arrays)])
    return values[np.isfinite(values)]


def _in_dtype(lo: float, hi: float, dtype: str) -> tuple[float, float]:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        most = float(np.finfo(kind).max)
        return max(lo, -most), min(hi, most)
    return lo, hi


def _default_range(v: Variable, index: bool, shapes: Mapping) -> tuple[float, float]:
    kind = np.dtype(v.type.dtype).kind
    if kind == "b":
        return 0.0, 1.0
    if kind in "iu":
        return 0.0, float(LENGTH - 1)
    return -UNBOUNDED, UNBOUNDED


def _asserted(nodes: Sequence[Any]) -> dict[Variable, Bounds]:
    """Bounds that ``assert_in_range`` states of inputs."""
    found: dict[Variable, Bounds] = {}
    for node in nodes:
        root = viewed(node.inputs[0]) if node.inputs else None
        if root is not None and isinstance(node.op, Assert) and root.owner is None:
            told = Bounds()
            for condition in node.inputs[1:]:
                known = {v: Bounds(*_ends(v)) for v in ancestors([condition]) if _number(v)}
                told = told.intersect(implied(condition, True, root, _Known(known)))
            found[root] = told
    return found


class _Known(dict):
    def __missing__(self, key: Variable) -> Bounds:
        number = constant_number(viewed(key))
        return Bounds() if number is None else Bounds(float(number), float(number))


def _number(v: Variable) -> bool:
    return isinstance(v, Constant) and is_numeric(v.type) and np.size(v.data) == 1


def _ends(v: Variable) -> tuple[float, float]:
    number = float(np.asarray(v.data).item())
    return number, number


def _constants(nodes: Sequence[Any]) -> tuple[float, ...]:
    """Numbers that the graph compares with, or clips at."""
    comparing = (ps.GT, ps.GE, ps.LT, ps.LE, ps.EQ, ps.NEQ)
    kinds = (*comparing, ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum, ps.Sub, ps.Add)
    found: dict[float, None] = {}
    for node in nodes:
        if isinstance(node.op, Scan):
            found |= dict.fromkeys(_constants(node.op.fgraph.toposort()))
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kinds):
            for v in node.inputs:
                number = constant_number(viewed(v))
                if number is not None and np.isfinite(number) and number:
                    found[float(number)] = None
    return tuple(found)[:6]


def _indices(nodes: Sequence[Any]) -> set[Variable]:
    """Inputs that are used as indices."""
    found = set()
    for node in nodes:
        if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
            start = 1 if isinstance(node.op, AdvancedSubtensor) else 2
            found |= {viewed(v) for v in node.inputs[start:]}
    return found


# ---------------------------------------------------------------- shapes


class _Lengths:
    """Lengths of axes, of which some are known to be equal."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}
        self.length: dict[Any, int] = {}

    def find(self, key: Any) -> Any:
        while key in self.parent:
            key = self.parent[key]
        return key

    def equal(self, a: Any, b: Any) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if a in self.length and b in self.length and self.length[a] != self.length[b]:
            return  # (one of them is broadcast)
        self.parent[a] = b
        if a in self.length:
            self.length[b] = self.length[a]

    def of(self, variable: Variable, axis: int) -> Any:
        key = (variable, axis)
        static = variable.type.shape[axis]
        if static is None and hasattr(variable, "get_value") and is_numeric(variable.type):
            static = np.shape(variable.get_value(borrow=True))[axis]
        if static is not None:
            self.length[self.find(key)] = static
        return key


def _shapes(
    inputs: Sequence[Variable], nodes: Sequence[Any], examples: Sequence[Mapping]
) -> dict[Variable, tuple[int, ...]]:
    lengths = _Lengths()
    for example in examples[:1]:
        for v, value in example.items():
            for axis, n in enumerate(np.shape(value)):
                lengths.length[(v, axis)] = n
    for (a, i), (b, j) in _all_equal_axes(nodes):
        lengths.equal(lengths.of(a, i), lengths.of(b, j))
    return {
        v: tuple(
            lengths.length.get(lengths.find(lengths.of(v, axis)), LENGTH)
            for axis in range(v.type.ndim)
        )
        for v in inputs
    }


Axis = tuple[Variable, int]


def _all_equal_axes(nodes: Iterable[Any]) -> Iterator[tuple[Axis, Axis]]:
    """Yield pairs of axes that have the same length in a graph and in the loops inside."""
    for node in nodes:
        if isinstance(node.op, Scan):
            inside = thawed_graph(node.op)
            layout = ScanReplay(node, None, inside)
            own = [layout.outer_input(i) for i in range(len(inside.inputs))]
            taken = [layout.initial(i) if v is None else v for i, v in enumerate(own)]
            made = [layout.output_of(i) for i in range(len(inside.outputs))]
            given = [None if i is None else node.outputs[i] for i in made]
            for outer, inner in zip(taken + given, inside.inputs + inside.outputs, strict=True):
                if outer is not None:
                    yield from _last_axes(inner, outer, getattr(inner.type, "ndim", 0))
            yield from _all_equal_axes(inside.toposort())
        elif node.outputs and all(hasattr(v.type, "ndim") for v in (*node.inputs, *node.outputs)):
            yield from _equal_axes(node)


def _equal_axes(node: Any) -> Iterator[tuple[Axis, Axis]]:
    """Yield pairs of axes of a node's operands and results that have the same length."""
    op, out = node.op, node.outputs[0]
    if isinstance(op, Elemwise):
        for v in node.inputs:
            yield from _last_axes(v, out, out.type.ndim)
    elif isinstance(op, DimShuffle):
        for axis, source in enumerate(op.new_order):
            if source != "x":
                yield (node.inputs[0], source), (out, axis)
    elif isinstance(op, CAReduce):
        reduced = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
        kept = [a for a in range(node.inputs[0].type.ndim) if a not in reduced]
        for axis, source in enumerate(kept):
            yield (node.inputs[0], source), (out, axis)
    elif isinstance(op, Dot | BatchedDot) or isinstance(getattr(op, "core_op", None), Dot):
        left, right = node.inputs
        yield (left, left.type.ndim - 1), (right, max(right.type.ndim - 2, 0))
        if left.type.ndim > 1 and out.type.ndim:
            yield (left, left.type.ndim - 2), (out, max(out.type.ndim - 2, 0))
        if right.type.ndim > 1 and out.type.ndim:
            yield (right, right.type.ndim - 1), (out, out.type.ndim - 1)
    elif isinstance(op, Subtensor):
        behind = node.inputs[0].type.ndim - len(op.idx_list)  # (a slice may be shorter)
        yield from _last_axes(node.inputs[0], out, behind)
    elif isinstance(op, IncSubtensor):
        array, new = node.inputs[:2]
        yield from _last_axes(array, out, array.type.ndim)
        yield from _last_axes(new, out, min(array.type.ndim - len(op.idx_list), new.type.ndim))
    elif isinstance(op, AdvancedSubtensor):
        rows = [v for v in node.inputs[1:] if getattr(v.type, "ndim", 0) == 1]
        for v in rows:
            yield (v, 0), (rows[0], 0)
    elif len(node.inputs) == 1 == len(node.outputs):
        v = node.inputs[0]
        if v.type.ndim == out.type.ndim and type(op).__name__ in _SAME_SHAPE:
            yield from _last_axes(v, out, v.type.ndim)
        elif type(op).__name__ in _SQUARE:
            yield (v, v.type.ndim - 1), (v, v.type.ndim - 2)


def _last_axes(v: Variable, out: Variable, count: int) -> Iterator[tuple[Axis, Axis]]:
    """Yield the last axes of two variables, but for those that are broadcast."""
    for back in range(1, count + 1):
        axis = v.type.ndim - back
        if v.type.shape[axis] != 1:
            yield (v, axis), (out, out.type.ndim - back)


_SAME_SHAPE = {
    "Softmax",
    "LogSoftmax",
    "CumOp",
    "Sort",
    "Cholesky",
    "MatrixInverse",
}
_SQUARE = {"Det", "SLogDet", "Cholesky", "MatrixInverse", "Eigh", "Blockwise"}
