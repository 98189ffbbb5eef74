"""One graph as written in floats, in float64 or exactly, and in floats with some exact values.

The evaluations go through the same nodes, those inside of loops step by step.  So the values that
an execution of a node gave in one of them can be put into another one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flint import arb, ctx
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan

from theanoguard._compare.precision import other_value, recast
from theanoguard._evaluate.replay import Kernels, Replay, alone
from theanoguard._exact.balls import is_balls, is_close_enough, kind_of, mapped, to_balls, to_floats
from theanoguard._exact.boxes import KERNELS
from theanoguard._exact.rules import is_real
from theanoguard._exact.twin import Budget, Context, Twin

Execution = tuple[tuple[tuple[Apply, int | None], ...], Apply]
"""A node, with the nodes and the steps of the loops around it."""

Log = dict[Execution, list[Any]]


def execution_of(replay: Replay, node: Apply) -> Execution:
    """Return what identifies one execution of a node."""
    around = []
    place = replay.place
    while place is not None:
        outside, outer, step = place
        around.append((outer, step))
        place = outside.place
    return tuple(around), node


class Written(Replay):
    """The graph as written in its own precision.

    `fixed`: executions whose results are given.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        inputs: Mapping[Variable, Any],
        fixed: Log | None = None,
        place: Any = None,
        kernels: Kernels = KERNELS,
    ) -> None:
        super().__init__(fgraph, inputs, kernels, place=place)
        self.fixed = fixed or {}

    def child(
        self, fgraph: FunctionGraph, inputs: Sequence[Any], node: Apply, step: int | None = None
    ) -> "Written":
        """Return the evaluation of an inner graph."""
        given = dict(zip(fgraph.inputs, inputs, strict=True))
        return type(self)(fgraph, given, self.fixed, (self, node, step), self.kernels)

    def inner(self, node: Apply, fgraph: FunctionGraph | None = None) -> Any:
        """Return the inner graph of a node as it was built."""
        own = node.op.fgraph if isinstance(node.op, Scan | OpFromGraph) else None
        return super().inner(node, fgraph or own)

    def run_whole(self, node: Apply) -> list[Any]:
        """Return the outputs of a node: those that are given, or what it computes."""
        known = self.fixed.get(execution_of(self, node)) if self.fixed else None
        found: list[Any] = super().run_whole(node) if known is None else known
        return found


class WideKernels(Kernels):
    """What computes nodes in float64, whatever their own precision is."""

    def _make(self, node: Apply) -> Callable[[Sequence[Any]], list[Any]]:
        own = alone(node)
        inputs = [v for v in own.inputs if not isinstance(v, Constant)]
        new = recast(inputs, own.outputs, "float64")
        graph = FunctionGraph([new[v] for v in inputs], [new[v] for v in own.outputs], clone=False)
        [first, *others] = graph.toposort() or [None]
        if first is not None and not others and first.outputs == graph.outputs:
            wide = KERNELS.kernel_of(first)

            def direct(values: Sequence[Any]) -> list[Any]:
                return wide([other_value(v, "float64") for v in values])

            if [new.get(v, v) for v in own.inputs] == first.inputs:
                return direct

        def kernel(values: Sequence[Any]) -> list[Any]:
            given = {
                new[v]: other_value(value, "float64")
                for v, value in zip(own.inputs, values, strict=True)
                if not isinstance(v, Constant)
            }
            return Replay(graph, given, KERNELS).values(graph.outputs)

        return kernel


WIDE = WideKernels("py")


class Wide(Written):
    """The same in float64."""

    def empty(self, shape: Sequence[int], variable: Variable) -> np.ndarray:
        """Return the buffer of a loop."""
        return np.empty(shape, "float64" if is_real(variable) else variable.type.dtype)


def logged(replay: Replay, outputs: Iterable[Variable]) -> Log:
    """Run a graph, and return what each execution of a node gave, in their order."""
    log: Log = {}
    for at, node, values in replay.run(outputs):
        if not at.steps_into(node):
            log[execution_of(at, node)] = values
    return log


class True64:
    """The true values of a float32 graph, which the same graph in float64 gives."""

    def __init__(self, fgraph: FunctionGraph, written: Log) -> None:
        self.fgraph = fgraph
        self.discrete = {
            key: values for key, values in written.items() if not any(map(is_real, key[1].outputs))
        }

    def values(
        self, inputs: Mapping[Variable, Any], outputs: Sequence[Variable], shift: Any = None
    ) -> tuple[list[np.ndarray], Log]:
        """Return the true outputs, and those of each execution.

        `shift`: moves an array of floats within their rounding.
        """
        wide = {}
        for variable, value in inputs.items():
            is_floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
            wide[variable] = other_value(value, "float64")
            if is_floats and shift is not None:
                wide[variable] = wide[variable] * (1 + shift(value))
        replay = Wide(self.fgraph, wide, self.discrete, kernels=WIDE)
        log = logged(replay, outputs)
        return [np.asarray(replay[v]) for v in outputs], log


BITS = (192, 448, 1472)  # of the exact values: more of them are tried where digits are missing


class TrueExact:
    """The true values of a graph: exact ones."""

    def __init__(self, fgraph: FunctionGraph, live: Mapping[Variable, Any], budget: Budget) -> None:
        self.fgraph = fgraph
        self.live = live
        self.budget = budget

    def values(
        self, inputs: Mapping[Variable, Any], outputs: Sequence[Variable], shift: Any = None
    ) -> tuple[list[np.ndarray], Log]:
        """Return the true outputs, and those of each execution, as :class:`True64`."""
        for bits in BITS:
            self.budget.factor = (bits / BITS[0]) ** 1.3
            with ctx.workprec(bits):
                given = {v: _moved(value, shift) for v, value in inputs.items()}
                twin = Twin(None, given, Context(self.budget), None, self.live.get)
                log = logged(twin, outputs)
                found = [np.asarray(twin.value(v)) for v in outputs]
            if all(is_close_enough(b) for v in found if is_balls(v) for b in v.ravel().tolist()):
                break
        return found, log


def _moved(value: Any, shift: Any) -> Any:
    if shift is None or not (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return value
    return mapped(lambda x, step: x * (1 + step), [to_balls(value), to_balls(shift(value))])


def rounded(log: Log, written: Log) -> Log:
    """Return true values as the floats that the graph as written has, where they are known.

    Integers and booleans are taken from the graph as written.
    """
    found = dict(written)
    for key, values in log.items():
        if key not in written or not any(map(is_real, key[1].outputs)):
            continue
        dtypes = [getattr(v.type, "dtype", None) for v in key[1].outputs]
        if all(not is_balls(v) or _all_known(v) for v in values):
            with np.errstate(over="ignore"):
                found[key] = [_as(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
        else:
            found.pop(key)
    return found


def _all_known(value: np.ndarray) -> bool:
    return all(kind_of(ball) != "unknown" for ball in value.ravel().tolist())


def _as(value: Any, dtype: Any) -> Any:
    value = to_floats(value)
    return value.astype(dtype) if isinstance(value, np.ndarray | np.floating) else value


def relative_errors(values: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return the relative error of each element: 0 where both are the same, Inf for no number."""
    if not is_balls(true):
        with np.errstate(all="ignore"):
            apart = np.abs(values.astype("float64") - true)
            errors = np.where(apart == 0, 0.0, apart / np.abs(true))
            same = (values == true.astype(values.dtype)) | (np.isnan(values) & np.isnan(true))
        return np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    flat = zip(values.ravel().tolist(), true.ravel().tolist(), strict=True)
    return np.array([_relative(value, ball) for value, ball in flat]).reshape(values.shape)


def _relative(value: float, ball: arb) -> float:
    kind = kind_of(ball)
    if kind != "number":  # (nobody knows, or the same infinity, or no value at all)
        return 0.0 if kind == "unknown" or not np.isfinite(value) else np.inf
    if not np.isfinite(value):
        return np.inf
    apart = abs(arb(value) - ball)
    if ball.is_zero() or ball.contains(0):
        return 0.0 if apart.contains(0) else np.inf
    return float((apart / abs(ball)).mid())
