"""The exact value of a graph: every operation in ball arithmetic, on object arrays.

A :class:`Twin` goes through the graph as a :class:`~theanoguard._evaluate.replay.Replay` does, so
that loops and other inner graphs are evaluated step by step.  Real numbers are balls, or floats
that stand for themselves.  Integers and booleans are NumPy arrays; where the values of a call are
known, they are those of the call.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from flint import ctx
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from theanoguard._arguments import checked, filtered
from theanoguard._evaluate.replay import ForeignKernels, Replay, copy_value, has_effects
from theanoguard._exact.balls import (
    ENOUGH_BITS,
    UNKNOWN,
    array_of,
    filled,
    is_balls,
    is_close_enough,
    is_discrete,
    is_floats,
    to_balls,
    to_floats,
)
from theanoguard._exact.boxes import (
    SLICED,
    Box,
    box_of,
    boxes_of,
    floats_inside,
    in_box,
    operand_boxes,
)
from theanoguard._exact.gradients import cotangents_of, without_masked
from theanoguard._exact.integers import is_arithmetic, wrapping_of
from theanoguard._exact.moving import MOVING, as_array
from theanoguard._exact.numbers import in_numpy, of_element
from theanoguard._exact.result import Exact, Note
from theanoguard._exact.rules import (
    exact_value,
    is_comparison,
    is_fill,
    is_real,
    is_scalar,
    kind_of_type,
)
from theanoguard._exact.scalars import STEPS, apply_scalar, constant_value
from theanoguard._exact.sparse import dense, of_sparse
from theanoguard._pytensor import IfElse
from theanoguard._pytensor.labelled import unlabelled
from theanoguard._steps import ForeignError, as_raised, foreign

BITS = 192  # of the midpoints at first

MAX_BITS = 200_000  # more bits are tried while digits are missing, up to this limit

WORK = 3_000_000  # multiplications of 192 bits, which are about 0.1 microseconds each

SECONDS = 5.0

NODE_WORK = 100  # the work that a node is in itself


class OutOfLimits(Exception):
    """The work or the time that was allowed is used up; it names the argument."""


@dataclass
class Budget:
    """The work that is left, and the seconds of processor time: a busy machine counts alike."""

    work: float
    seconds: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        self.deadline = time.thread_time() + self.seconds

    def spend(self, amount: float, flat: float = 0.0) -> None:
        """Count work, and raise where a limit is reached.

        `flat`: work that does not grow with the number of digits.
        """
        self.work -= amount * self.factor + flat
        if self.work < 0:
            raise OutOfLimits("work")
        if time.thread_time() > self.deadline:
            raise OutOfLimits("seconds")


@dataclass
class Context:
    """What the twins of a graph and of its inner graphs share."""

    budget: Budget
    cotangents: frozenset[Variable] = frozenset()
    #: Whether the twins decide by the exact values.  Otherwise they decide as the call did.
    decides: bool = False
    notes: dict[tuple[str, Any], Note] = field(default_factory=dict)

    def note(self, kind: str, variable: Any, text: str) -> None:
        """Add a note, once for each variable."""
        self.notes.setdefault((kind, variable), Note(kind, variable, text))


@cache
def _way_of(op_class: Any) -> str:
    """Return how operations of a class are evaluated."""
    ways = {"branch": IfElse, "moving": MOVING, "scalar": (Elemwise, ScalarOp)}
    return next((way for way, classes in ways.items() if issubclass(op_class, classes)), "rule")


def nothing_known(variable: Variable) -> None:
    """The floating-point values outside of a call."""
    return None


_KERNELS = ForeignKernels("py")  # they compile nothing


class Twin(Replay):
    """The exact values of the variables of one graph.

    - `inputs`: balls, or floats that stand for themselves.
    - `place`: as for :class:`~theanoguard._evaluate.replay.Replay`.
    - `live`: values of variables in the call; None for one that is not known.
    - `boxes`: the variables of which only a part is needed.
    """

    def __init__(
        self,
        fgraph: Any,
        inputs: Mapping[Variable, Any],
        context: Context,
        place: Any = None,
        live: Callable[[Variable], Any] | None = None,
        boxes: Mapping[Variable, Box] | None = None,
    ) -> None:
        super().__init__(fgraph, inputs, kernels=_KERNELS, place=place)
        self.context = context
        self.live_value = live or nothing_known
        self.boxes = boxes or {}
        self._floats: dict[Any, Any] = {}

    # Inner graphs

    def child(
        self, fgraph: Any, inputs: Sequence[Any], node: Apply, step: int | None = None
    ) -> "Twin":
        """Return the twin of an inner graph."""
        given = dict(zip(fgraph.inputs, inputs, strict=True))
        live = self._floats_inside(node, step)
        boxes = None
        if live is not None and isinstance(node.op, OpFromGraph):
            wanted = [self.boxes.get(v) for v in node.outputs]
            boxes = boxes_of(fgraph.outputs, wanted, live, given)
        return Twin(fgraph, given, self.context, (self, node, step), live, boxes)

    def _floats_inside(self, node: Apply, step: int | None) -> Callable[[Variable], Any] | None:
        """Return what gives the floating-point values in the inner graph of a node."""
        if self.live_value is nothing_known:
            return None
        if node not in self._floats:
            known = [v.data if isinstance(v, Constant) else self.live_value(v) for v in node.inputs]
            self._floats[node] = floats_inside(node, known)
        found = self._floats[node]
        return None if found is None else found.at(step).value

    def inner(self, node: Apply, fgraph: Any = None) -> Any:
        """Return the inner graph of a node as it was built, not as it was compiled."""
        own = node.op.fgraph if isinstance(node.op, Scan | OpFromGraph) else None
        for variable in node.inputs:
            if self.knows(variable):
                self.as_balls(variable)  # a loop writes balls into its buffers
        return super().inner(node, fgraph or own)

    def empty(self, shape: Sequence[int], variable: Variable) -> np.ndarray:
        """Return the buffer of a loop."""
        if is_real(variable):
            return filled(UNKNOWN, tuple(shape))
        return np.empty(shape, variable.type.dtype)

    def stored(self, value: Any) -> Any:
        """Return balls for real numbers, which a buffer of balls takes without a change."""
        return to_balls(value) if is_floats(value) else value

    # Values

    def knows(self, variable: Variable) -> bool:
        """Whether a value is known: also that of a shared variable, and an integer of the call."""
        if variable in self._computed or variable in self._given:
            return True
        node = variable.owner
        if node is None:
            if isinstance(variable, Constant):
                value = constant_value(variable)
            elif hasattr(variable, "get_value"):
                value = as_given(variable.get_value(borrow=True))
            else:
                return False
        else:
            is_unknown = self.live_value is nothing_known or self.context.decides
            if is_unknown or is_real(variable) or is_comparison(node):
                return False
            value = self.live_value(variable)
            if not is_discrete(value):
                return False
        self._given[variable] = np.asarray(value) if is_discrete(value) else value
        return True

    def as_balls(self, variable: Variable) -> Any:
        """Return a value with balls for real numbers, and keep it so."""
        value = self[variable]
        if is_floats(value):
            value = to_balls(value)
            (self._given if variable in self._given else self._computed)[variable] = value
        return value

    def needed(self, node: Apply) -> Sequence[Variable]:
        """Return the inputs that must be known: of a fill, not the operand that gives the shape."""
        if is_fill(node) and self._filled_shape(node) is not None:
            return node.inputs[1:]
        needed: Sequence[Variable] = super().needed(node)
        return needed

    def _filled_shape(self, node: Apply) -> tuple[int, ...] | None:
        """Return the shape of a fill, if it is known without its operands."""
        [variable] = node.outputs
        live = self.live_value(variable)
        shape = variable.type.shape if live is None else np.shape(live)
        return None if None in shape else shape

    # Operations

    def run_whole(self, node: Apply) -> list[Any]:
        """Return the exact values of a node's outputs."""
        way = _way_of(node.op.__class__)
        if way == "branch":
            return super().run_whole(node)
        self.context.budget.spend(0, NODE_WORK)
        if is_fill(node) and not self.knows(node.inputs[0]):
            filling = as_array(self[node.inputs[1]])
            return [np.broadcast_to(filling, self._filled_shape(node) or ())]
        values = [self[v] for v in node.inputs]
        kinds = {kind_of_type(v.type) for v in (*node.inputs, *node.outputs)}
        if "real" not in kinds:
            return self._of_integers(node, values)
        if "complex" in kinds:
            return self.floats(node, values)
        box = self.boxes.get(node.outputs[0]) if self.boxes else None
        if box is not None and isinstance(getattr(node.op, "core_op", node.op), SLICED):
            return [self._in_box(node, values, box)]
        if way != "moving":
            values = [self.as_balls(v) for v in node.inputs]
        outputs = self._of_elements(node, values) if way == "scalar" else None
        if outputs is None:
            outputs = exact_value(node.op, node, self, values)
        if outputs is None and "sparse" in type(node.op).__module__:
            outputs = of_sparse(node, values, self.kernels, self.context.budget.spend)
        if outputs is None:
            outputs = self._in_numpy(node, values)
        if outputs is None:
            return self.floats(node, values)
        return [self._decided(v, out) for v, out in zip(node.outputs, outputs, strict=True)]

    def _in_numpy(self, node: Apply, values: list[Any]) -> list[Any] | None:
        """Return what the operation computes from exact numbers, if it has no effects."""
        plain = all(isinstance(v, np.ndarray) for v in values) and not is_scalar(node)
        if not plain or has_effects(node.op):
            return None
        self.context.budget.spend(10 * sum(v.size for v in values))
        found = in_numpy(node, values)
        if found is None or any(
            is_real(v) and not is_balls(out) for v, out in zip(node.outputs, found, strict=True)
        ):
            return None
        return found

    def _in_box(self, node: Apply, values: list[Any], box: Box) -> Any:
        """Return the elements of an output in a box; the others are unknown."""
        [variable] = node.outputs
        live = np.asarray(self.live_value(variable))
        operands = operand_boxes(node.op, node, values, 0, box)
        if operands is None or len(operands) < len(values):  # (`second` needs only a shape)
            return self.of_node(node, values, {variable: live}.get)[0]
        part = [in_box(np.asarray(v), operands[i]) for i, v in enumerate(values)]
        [found] = self.of_node(node, part, {variable: in_box(live, box)}.get)
        real = is_real(variable)
        whole = filled(UNKNOWN, live.shape) if real else np.zeros(live.shape, live.dtype)
        whole[np.ix_(*box)] = found
        return whole

    def of_node(self, node: Apply, values: Sequence[Any], live: Any = None) -> list[Any]:
        """Return the exact values of a node's outputs for other operands, such as one matrix."""
        given = dict(zip(node.inputs, values, strict=True))
        return Twin(None, given, self.context, (self, node, None), live).values(node.outputs)

    def _of_elements(self, node: Apply, values: list[Any]) -> list[Any] | None:
        """Return the results of an elementwise operation."""
        op = getattr(node.op, "scalar_op", node.op)
        dtypes = [v.type.dtype for v in node.outputs]
        found = apply_scalar(op, values, dtypes, self.context.budget.spend)
        if found is None:
            own = len(dtypes) == 1 and is_real(node.outputs[0]) and not has_effects(op)
            python = of_element(op, values) if own else None
            return None if python is None else [python]
        for variable, applied in zip(node.outputs, found, strict=True):
            if applied.open:
                self.context.note("decision", variable, "lies within rounding of its threshold")
        if isinstance(op, STEPS):
            return [self._step_of_call(node.outputs[0], found[0].value)]
        results = [applied.value for applied in found]
        if self.context.cotangents and len(results) == 1:
            results = [without_masked(node, values, results[0], self.context.cotangents)]
        return results

    def _step_of_call(self, variable: Variable, exact: np.ndarray) -> np.ndarray:
        """Return the steps that the call took (``floor``, ``sign``), where it took any."""
        live = self._decision_of_call(variable, exact)
        if live is None:
            return exact
        own = to_floats(exact)
        differs = np.isfinite(live) & (own != live)
        if differs.any():
            self.context.note("decision", variable, "is another step in exact arithmetic")
        return np.where(differs, to_balls(live), exact)

    def _decision_of_call(self, variable: Variable, exact: Any) -> Any:
        """Return what the call decided, or None if the exact values decide."""
        live = None if self.context.decides else self.live_value(variable)
        return live if live is not None and np.shape(live) == np.shape(exact) else None

    def _of_integers(self, node: Apply, values: list[Any]) -> list[Any]:
        outputs = self.kernels.run(node, [copy_value(v) for v in values])
        if is_arithmetic(node):
            wrapped = wrapping_of(node, values)
            if wrapped is not None:
                self.context.note("wrapped", node.outputs[0], wrapped)
        return outputs

    def _decided(self, variable: Variable, exact: Any) -> Any:
        """Return the integers or booleans of the call in the place of the exact ones."""
        if is_real(variable) or not is_discrete(exact):
            return exact
        live = self._decision_of_call(variable, exact)
        if live is None:
            return exact
        if not np.array_equal(live, exact):
            self.context.note("decision", variable, "is another decision in exact arithmetic")
        return np.asarray(live)

    def _floats_of_elements(self, node: Apply, values: list[Any]) -> list[Any]:
        """Return the results of an elementwise operation on the nearest floats."""
        op = getattr(node.op, "scalar_op", node.op)
        near = np.broadcast_arrays(*map(to_floats, values))
        with foreign():
            rows = [op.impl(*row) for row in zip(*(a.ravel() for a in near), strict=True)]
        columns = list(zip(*rows, strict=True)) if len(node.outputs) > 1 else [rows]
        return [
            np.array(column, variable.type.dtype).reshape(near[0].shape)
            for column, variable in zip(columns, node.outputs, strict=True)
        ]

    def floats(self, node: Apply, values: list[Any]) -> list[Any]:
        """Return what the call computed, or what the operation computes from the nearest floats."""
        live = [self.live_value(v) for v in node.outputs]
        if any(v is None for v in live) and is_scalar(node):
            live = self._floats_of_elements(node, values)
        elif any(v is None for v in live):
            near = [
                to_floats(value, getattr(variable.type, "dtype", None))
                for variable, value in zip(node.inputs, values, strict=True)
            ]
            live = self.kernels.run(node, [copy_value(v) for v in near])
        for variable in node.outputs:
            if is_real(variable):
                self.context.note("live", variable, "has no exact value here")
        return [as_given(v) for v in live]


def as_given(value: Any) -> Any:
    """Return a number as an array; anything else is left as it is."""
    return np.asarray(value) if isinstance(value, np.generic | float | int) else value


def evaluate(
    variables: Sequence[Variable],
    given: Mapping[Variable, Any],
    *,
    live: Callable[[Variable], Any] | Mapping[Variable, Any] | None = None,
    elements: Sequence[tuple[int, ...] | None] | None = None,
    masked_gradients: bool = False,
    decides: bool = False,
    parts: bool = False,
    work: float = WORK,
    seconds: float = SECONDS,
    most_bits: int = MAX_BITS,
) -> list[Exact]:
    """Return the exact values of variables of a graph as it was built.

    An element that could not be computed within the limits is unknown.

    - `given`: values of inputs, or of any other variables.  Shared variables have their own.
    - `live`: the values of variables in a call that was made; None for one that is not known.
      Integers, booleans and decisions are taken from there.
    - `elements`: the index of the element that is asked for, for each variable.  None asks for all
      elements.
    - `masked_gradients`: whether a gradient of 0 stays 0 where it is multiplied with a derivative
      that has no value, as in a branch that ``switch`` has not chosen.
    - `decides`: whether the exact values decide, as in :func:`exact`.  Otherwise the call decides.
    - `parts`: whether all elements are asked for, and only a part of the other variables may decide
      them.
    - `work`: multiplications of 192 bits that are allowed.
    - `seconds`: limit of processor time.
    - `most_bits`: those of the midpoints: more are not tried.
    """
    lookup = live.get if isinstance(live, Mapping) else live
    asked = list(elements) if elements is not None else [None] * len(variables)
    budget = Budget(work, seconds)
    outputs = unlabelled(list(variables))
    wanted = [box_of(i) for i in asked]
    if parts and lookup is not None:
        wanted = [tuple(map(np.arange, np.shape(lookup(v)))) for v in outputs]
    boxes = boxes_of(outputs, wanted, lookup, given) if lookup else {}
    cotangents = cotangents_of(outputs, given) if masked_gradients else frozenset()
    start = {v: as_given(value) for v, value in given.items()}
    best: list[Exact | None] = [None] * len(outputs)
    bits = BITS
    while bits <= most_bits:
        budget.factor = (bits / BITS) ** 1.3
        context = Context(budget, cotangents, decides)
        try:
            with ctx.workprec(bits):
                twin = Twin(None, start, context, None, lookup, boxes)
                for i, (variable, index) in enumerate(zip(outputs, asked, strict=True)):
                    if not _is_settled(best[i]):
                        value = as_array(dense(twin.value(variable)))
                        value = value if index is None else as_array(value[index])
                        value = to_balls(value) if is_floats(value) else value
                        best[i] = Exact(value, tuple(context.notes.values()))
        except OutOfLimits as limit:
            allowed = f"{limit}={work if str(limit) == 'work' else seconds:g}"
            text = f"{int(bits / 3.32)} digits of it are beyond the limit {allowed}"
            note = Note("limit", None, f"{text}: pass a larger {limit}")
            best = [
                Exact(_unknown_like(v, index, lookup), (note,)) if found is None else found
                for v, index, found in zip(outputs, asked, best, strict=True)
            ]
            best = [
                found if found is None or _is_settled(found) else _within(found, note)
                for found in best
            ]
            break
        missing = [_bits_missing(found, bits) for found in best if not _is_settled(found)]
        if not missing:
            break
        bits += max(missing)
    else:
        note = Note("limit", None, f"{int(most_bits / 3.32)} digits of it are not enough")
        best = [
            found if found is None or _is_settled(found) else _within(found, note) for found in best
        ]
    return [found for found in best if found is not None]


def _within(found: Exact, note: Note) -> Exact:
    """Return a value with what is known of it: nothing where the error exceeds the number."""
    balls = [
        UNKNOWN if ball.is_finite() and ball.contains(0) and not is_close_enough(ball) else ball
        for ball in found.value.ravel().tolist()
    ]
    value = array_of(balls, found.value.shape)
    return Exact(value, tuple(dict.fromkeys((*found.notes, note))))


def _is_settled(found: Exact | None) -> bool:
    if found is None or found.value.dtype != object:
        return found is not None
    return all(map(is_close_enough, found.value.ravel().tolist()))


def _bits_missing(found: Exact | None, bits: int) -> int:
    """Return how many more bits to try: those that were lost, or three times as many."""
    balls = found.value.ravel().tolist() if found is not None else []
    open_ones = [x for x in balls if not is_close_enough(x)]
    if any(not x.is_finite() or x.contains(0) for x in open_ones):
        return 3 * bits
    return max(bits // 2, *(ENOUGH_BITS + 64 - x.rel_accuracy_bits() for x in open_ones))


def _unknown_like(variable: Variable, index: Any, live: Any) -> np.ndarray:
    known = None if live is None or index is not None else live(variable)
    return filled(UNKNOWN, np.shape(known) if known is not None else ())


def _fits(variable: Variable, value: Any) -> bool | None:
    """Return whether a value may be cast: numbers with fractions are no integers."""
    dtype = getattr(variable.type, "dtype", "float64")
    if np.dtype(dtype).kind not in "iub":
        return True
    array = np.asarray(value)
    return array.dtype.kind in "iubf" and bool(np.array_equal(array.astype(dtype), array)) or None


def _floats_of(outputs: Sequence[Variable], given: Mapping[Variable, Any]) -> Any:
    """Return what looks up the values that NumPy computes, for the shapes; None if it does not."""
    if any(has_effects(node.op) for node in toposort(outputs, blockers=list(given))):
        return None
    replay = Replay(None, given, ForeignKernels("py"))
    try:
        replay.values(outputs)
    except ForeignError:
        return None
    return replay.value


@checked
def exact(
    outputs: Variable | Sequence[Variable],
    inputs: Mapping[Variable, Any],
    *,
    work: float = WORK,
    seconds: float = SECONDS,
) -> Any:
    """Return the values that variables of a graph have in exact arithmetic.

    Every operation is computed with as many digits as the result needs, and with bounds on its
    error.  So there is no overflow, no underflow and no cancellation.  Floating-point inputs are
    taken as the numbers that they are.  Integers are computed as PyTensor computes them.

    Parameters
    ----------
    outputs : Variable or list of Variable
        Of the graph as you wrote it.
    inputs : mapping of Variable to value
        The value of each input.  A shared variable has its own value unless one is given.  Other
        variables may be given as well.
    work : float, optional
        How many multiplications of 192 bits are allowed: 3 million.
    seconds : float, optional
        Limit of processor time: 5 seconds by default.

    Returns
    -------
    Exact or list of Exact
        Elements for which a limit was reached are "unknown".

    Raises
    ------
    TypeError
        If a number with a fraction is given for an integer variable.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt, theanoguard
    >>> h = pt.dvector("h")
    >>> p = pt.exp(h) / (1 + pt.exp(h).sum())
    >>> h_value = np.array([1.0, 800.0])
    >>> pytensor.function([h], p)(h_value)
    array([ 0., nan])
    >>> print(theanoguard.exact(p, {h: h_value}))
    [9.97031683124e-348, 1]

    A formula may have no value:

    >>> print(theanoguard.exact(pt.log(h - 2), {h: h_value}))
    [no value, 6.68210859745]
    """
    asked = [outputs] if isinstance(outputs, Variable) else list(outputs)
    given = {
        v: filtered("exact", "inputs", v, value, allow_downcast=_fits(v, value))
        for v, value in inputs.items()
    }
    with as_raised():
        run = partial(evaluate, asked, given, masked_gradients=True, work=work, seconds=seconds)
        found = run()
        if any(note.kind == "limit" for one in found for note in one.notes):
            known = _floats_of(asked, given)
            if known is not None:  # (only the parts that decide what is asked for)
                found = run(live=known, decides=True, parts=True)
    return found[0] if isinstance(outputs, Variable) else found
