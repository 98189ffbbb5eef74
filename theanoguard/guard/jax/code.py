"""The JAX functions for the guard's operations; imported only when a graph is compiled for JAX."""

import ctypes
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random.op import RandomVariable

from theanoguard._evaluate.replay import Kernels, Replay, compute
from theanoguard._pytensor import (
    CheckedBody,
    CheckedIfElse,
    c_compiler,
    inner_graphs_for_jax,
)
from theanoguard.guard.c import build
from theanoguard.guard.graph.checks import floor_to
from theanoguard.guard.graph.ops import Flag, Gather, NoMarks, Watched
from theanoguard.guard.jax._pytensor import CompileError, JAXShapeTuple, jax_funcify
from theanoguard.guard.jax.runtime import as_numpy
from theanoguard.guard.policy import Policy
from theanoguard.guard.verdict import suspected
from theanoguard.operations import Kind
from theanoguard.operations.domains import check_parameters
from theanoguard.operations.regions import Arrays, dtype_kind

logger = logging.getLogger("theanoguard")

SCAN = "theanoguard_scan"

inner_graphs = partial(inner_graphs_for_jax, compiled_by=jax_funcify.dispatch)


def real_type() -> np.dtype:
    """Return the widest floating type that JAX's configuration allows."""
    return jnp.zeros(0, float).dtype


# ---------------------------------------------------------------- is anything bad?


@dataclass(frozen=True)
class Question:
    """The condition for a bad element, whatever its operands were."""

    nan: bool
    inf: bool
    limit: float | None  # magnitudes above it are bad

    def severity(self, v: Any) -> tuple[Any, Any]:
        """Return an integer for each element of `v`, and the largest integer that is not bad.

        The integers are the bits of the magnitudes.  They have the same order as the magnitudes,
        and NaN is above Inf.  XLA compares integers faster than floats that may be NaN.
        """
        if jnp.issubdtype(v.dtype, jnp.bool_):
            return v.astype(jnp.int8), np.int8(0)
        if jnp.issubdtype(v.dtype, jnp.complexfloating):
            parts = [v.real, v.imag, *([jnp.abs(v)] if self.limit is not None else [])]
            severities, allowed = zip(*map(self.severity, parts), strict=True)
            whole = severities[0]
            for severity in severities[1:]:
                whole = jnp.maximum(whole, severity)
            return whole, allowed[0]
        if not jnp.issubdtype(v.dtype, jnp.floating):
            v = v.astype(real_type())
        good, top = self.bad_bits(v.dtype)
        as_int = good.dtype
        severity = lax.bitcast_convert_type(v, as_int) & np.iinfo(as_int).max
        if not self.nan:
            severity = jnp.where(severity > top, as_int.type(0), severity)
        return severity, good

    def bad_bits(self, dtype: Any) -> tuple[Any, Any]:
        """Return two integers: bad are magnitudes with bits above the first, up to the second."""
        info = jnp.finfo(dtype)
        as_int = np.dtype(f"int{info.bits}")
        infinite = bits_of(info.dtype.type(np.inf), as_int)
        if self.limit is not None:
            good = bits_of(floor_to(self.limit, info.dtype.type), as_int)
        else:
            good = infinite - 1 if self.inf else infinite
        return good, np.iinfo(as_int).max if self.nan else infinite

    def marks(self, *values: Any) -> Any:
        """Return an integer for each element: negative if it is bad in one of the values."""
        severities, allowed = zip(*map(self.severity, values), strict=True)
        return allowed[0] - reduce(lax.max, severities)


RAISED = Question(True, True, None)  # for flags and marks, which are 0 or 1


def bits_of(number: Any, as_int: np.dtype) -> Any:
    return np.asarray(number).view(as_int)[()]


def asked_of(
    policy: Policy, watched: Watched, v: Any, operands: Sequence[Any]
) -> tuple[Question, Any]:
    """Return the `Question` for a watched value, and the value or its marks."""
    if watched == Watched():
        return RAISED, v != 0
    if watched.node is not None:
        return RAISED, suspected(ARRAYS, watched.node, operands, watched.output, v, policy)
    question = Question(
        Kind.NAN in watched.kind or (watched.big and policy.nan),
        Kind.INF in watched.kind or watched.big,
        policy.big_threshold if watched.big else None,
    )
    return question, v


SMALL = 65_536  # number of elements up to which C code reads an array on a CPU

TINY, LARGE = 32, 4096
"""Numbers of elements that a GPU reduces in one kernel with others, and in two kernels."""


def any_bad(asked: Iterable[tuple[Question, Any]]) -> Any:
    """Return whether any element is bad, for pairs of a `Question` and a value.

    On a CPU, C code reads the small arrays: XLA takes 20 ms to compile a loop for each shape, and
    half a second for the marks of 400 arrays.  Large arrays may exist only in registers, and a call
    for a single number would keep XLA from computing several numbers in one loop.

    The marks of the others with the same shape are joined as they are computed.  XLA then fuses
    this with the loops that compute the values, and only one array per shape has to be reduced.
    Reducing each value separately would need one GPU kernel per value, and on a CPU each value
    would be written to memory first.  If the values were concatenated, XLA would take minutes to
    compile.
    """
    alike: dict[Any, dict[Question, list]] = defaultdict(
        lambda: defaultdict(list)
    )  # values by shape and type, then by question
    on_cpu = jax.default_backend() == "cpu"
    scans = on_cpu and can_scan()
    small = []
    for question, v in asked:
        if scans and v.dtype.kind == "f" and 1 < v.size <= SMALL:
            small.append((question, v))
        else:
            alike[v.shape, v.dtype][question].append(v)
    marks = [
        reduce(lax.bitwise_or, [q.marks(*values) for q, values in of_shape.items()])
        for of_shape in alike.values()
    ]
    found = [scanned(small)] if small else []
    if marks:
        found.append((any_on_cpu if on_cpu else any_on_device)(marks))
    return reduce(lax.bitwise_or, found, jnp.zeros((), bool))


@lru_cache(maxsize=1)
def can_scan() -> bool:
    """Whether XLA can call our C code on a CPU: this takes a compiler and JAX's headers."""
    if c_compiler() is None or not hasattr(jax, "ffi"):
        return False
    text = resources.files("theanoguard.guard.jax").joinpath("scan.cpp").read_text("utf-8")
    headers = jax.ffi.include_dir()
    try:
        library = build.built(SCAN, f"// {headers} {jax.__version__}\n{text}", [headers])
    except CompileError as error:
        logger.warning(
            "theanoguard: C code that reads arrays for JAX does not compile, so XLA's loops read "
            "them, and compiling a function takes longer: %s",
            error,
        )
        return False
    code = ctypes.CDLL(str(library))
    jax.ffi.register_ffi_target(SCAN, jax.ffi.pycapsule(code.scan), platform="cpu")
    return True


def scanned(asked: Sequence[tuple[Question, Any]]) -> Any:
    """Return whether any element is bad, as C code finds it in the arrays."""
    ranges = np.array([question.bad_bits(v.dtype) for question, v in asked], np.int64)
    call = jax.ffi.ffi_call(SCAN, jax.ShapeDtypeStruct((), np.int32), vmap_method="sequential")
    return call(*(v for _, v in asked), ranges=ranges.ravel()) != 0


def any_on_cpu(arrays: Iterable[Any]) -> Any:
    """Return whether any element of a list of arrays of integers is negative.

    On a CPU, XLA computes the reduction of one array in several loops, and writes the array itself
    to memory first.  It reduces two arrays at once in a single loop, so the complement of the marks
    is the second one.  This takes half the time, to compile and to run.
    """
    found = []
    for marks in arrays:
        zero = np.zeros((), marks.dtype)
        joined, complement = lax.reduce(
            (marks, ~marks),
            (zero, ~zero),
            lambda a, b: (a[0] | b[0], a[1] & b[1]),
            range(marks.ndim),
        )
        found.append((joined | ~complement) < 0)
    return reduce(lax.bitwise_or, found)


def any_on_device(arrays: Iterable[Any]) -> Any:
    """Return whether any element of a list of arrays of integers is negative.

    A GPU runs one kernel to reduce an array, and two for a large array.  So this function reduces
    the rows of large arrays, concatenates the rest and reduces it at once.  Without the barrier XLA
    would undo that.  XLA itself reduces all arrays of a few elements in one kernel.
    """
    tiny, parts = [], []
    for marks in arrays:
        found = marks < 0
        if marks.size <= TINY:
            tiny.append(lax.reduce_or(found, range(marks.ndim)))
            continue
        if marks.ndim > 1 and marks.size > LARGE:
            found = lax.reduce_or(found, (marks.ndim - 1,))
        parts.append(lax.reshape(found, (found.size,)))
    if len(parts) > 1:
        parts = [lax.optimization_barrier(lax.concatenate(parts, 0))]
    return reduce(lax.bitwise_or, [*tiny, *(lax.reduce_or(part, (0,)) for part in parts)])


def bad_elements(policy: Policy, watched: Watched, v: Any, operands: Sequence[Any]) -> Any:
    """Return the mask of the bad elements of a watched value."""
    question, v = asked_of(policy, watched, v, operands)
    severity, allowed = question.severity(v)
    return severity > allowed


class JaxArrays(Arrays):
    """Arrays of marks in code that JAX compiles."""

    xp = jnp

    def run(self, node: Apply, values: list[Any], output: int = 0) -> Any:
        results = jax_funcify(node.op, node=node)(*values)
        return results if len(node.outputs) == 1 else results[output]

    def as_numbers(self, mask: Any) -> Any:
        return jnp.asarray(mask).astype(real_type())

    def exceeds(self, value: Any, limit: float) -> Any:
        size = jnp.abs(value if dtype_kind(value) in "fc" else value.astype(real_type()))
        return size > floor_to(limit, size.dtype.type)


ARRAYS = JaxArrays()


# ---------------------------------------------------------------- one flag


@jax_funcify.register(Flag)
def jax_funcify_flag(op: Op, **kwargs: Any) -> Callable:
    def flag(*inputs: Any) -> Any:
        groups, _ = op.grouped(inputs)
        asked = [
            asked_of(op.policy, watched, jnp.asarray(v), operands)
            for watched, v, operands in groups
        ]
        return any_bad(asked).astype(jnp.int32)

    return flag


@jax_funcify.register(Gather)
def jax_funcify_gather(op: Op, **kwargs: Any) -> Callable:
    def gather(*inputs: Any) -> Any:
        # One array of marks for all values of a shape would be slower: with it, steps of a loop
        # took 1.3 times as long as unguarded on a CPU, and take 1.1 times as long with one each.
        groups, marks = op.grouped(inputs)
        new = [
            mark | bad_elements(op.policy, watched, jnp.asarray(v), operands)
            for (watched, v, operands), mark in zip(groups, marks, strict=True)
        ]
        return new if len(new) > 1 else new[0]

    return gather


@jax_funcify.register(NoMarks)
def jax_funcify_no_marks(
    op: Op,
    node: Apply | None = None,
    storage_map: Mapping[Variable, list] | None = None,
    **kwargs: Any,
) -> Callable:
    step = jax_funcify(op.values, **kwargs)
    info = op.scan.info

    def no_marks(*given: Any) -> Any:
        inputs = list(given)
        sequences = [element_of(v) for v in op.scan.outer_seqs(inputs)]
        taps = zip(
            (*op.scan.outer_mitmot(inputs), *op.scan.outer_mitsot(inputs)),
            (*info.mit_mot_in_slices, *info.mit_sot_in_slices),
            strict=True,
        )
        elements = [
            *sequences,
            *(element_of(v) for v, of_v in taps for _ in of_v),
            *(element_of(v) for v in op.scan.outer_sitsot(inputs)),
            *op.scan.outer_untraced_sit_sot(inputs),
            *op.scan.outer_non_seqs(inputs),
        ]
        marks = [jnp.zeros(v.shape, bool) for v in jax.eval_shape(step, *elements)]
        return marks if len(marks) > 1 else marks[0]

    return no_marks


def element_of(v: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an element along the first axis of an array."""
    return jax.ShapeDtypeStruct(jnp.shape(v)[1:], jnp.result_type(v))


def with_history(traced: Callable) -> Callable:
    """Return a function that stores the flags of its last 32 calls in an integer, one bit each."""

    def run(*given: Any) -> tuple:
        *values, history = given
        *results, flag = traced(*values)
        return *results, (history << 1) | flag

    return run


def without_flag(traced: Callable) -> Callable:
    """Return a function whose results do not include the flag."""
    return lambda *values: traced(*values)[:-1]


def no_history() -> Any:
    """Return the history of a function that has not been called."""
    return jnp.zeros((), jnp.int32)


@jax_funcify.register(CheckedBody)
def jax_funcify_checked_body(
    op: Op,
    node: Apply | None = None,
    storage_map: Mapping[Variable, list] | None = None,
    **kwargs: Any,
) -> Callable:
    return jax_funcify(op.fgraph, **kwargs)


@jax_funcify.register(CheckedIfElse)
def jax_funcify_checked_if_else(
    op: Op,
    node: Apply | None = None,
    storage_map: Mapping[Variable, list] | None = None,
    **kwargs: Any,
) -> Callable:
    branches = [jax_funcify(b.fgraph, **kwargs) for b in (op.true_branch, op.false_branch)]
    return lambda condition, *inputs: lax.cond(condition, *branches, *inputs)


# ---------------------------------------------------------------- replaying a call


class JaxKernels(Kernels):
    """Callables that compute the outputs of a node as JAX does."""

    def runs_whole(self, node: Apply) -> bool:
        return isinstance(node.op, OpFromGraph) and not inner_graphs(node)

    def _make(self, node: Apply) -> Callable[[list], list]:
        constants = {v: [v.data] for v in node.inputs if isinstance(v, Constant)}
        traced = jax_funcify(node.op, node=node, storage_map=constants)
        compiled = jax.jit(traced)
        literal = {i: v.data.item() for i, v in enumerate(node.inputs) if is_literal(v)}

        def kernel(values: list) -> list:
            values = [as_jax(v) for v in values]
            try:
                results = compiled(*values)
            except Exception:  # it may need a concrete value, such as an axis; real errors recur
                results = traced(*(literal.get(i, v) for i, v in enumerate(values)))
            results = [results] if len(node.outputs) == 1 else results
            return [as_numpy(v, x) for v, x in zip(node.outputs, results, strict=True)]

        return kernel


def is_literal(variable: Variable) -> bool:
    """Whether a variable is a constant integer, such as an axis, which JAX wants as an ``int``."""
    data = variable.data if isinstance(variable, Constant) else None
    return isinstance(data, np.ndarray) and data.ndim == 0 and data.dtype.kind in "iu"


def as_jax(value: Any) -> Any:
    """Return an array as a JAX array, and any other value unchanged."""
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


@compute.register(JAXShapeTuple)
def compute_shape_tuple(op: Op, node: Apply, replay: Replay) -> list:
    return [np.array([int(replay[v]) for v in node.inputs], node.outputs[0].type.dtype)]


@compute.register(RandomVariable)
def compute_random_variable(op: Op, node: Apply, replay: Replay) -> list:
    """Draw the same numbers as JAX, if the random state is a JAX state."""
    values = [replay[v] for v in node.inputs]
    if not isinstance(values[0], dict):
        return compute.dispatch(object)(op, node, replay)
    check_parameters(node, values)
    state, size, *parameters = values
    size = size if size is None else tuple(int(n) for n in size)
    state, sample = jax_funcify(op, node=node)(dict(state), size, *parameters)
    return [state, np.asarray(sample, node.outputs[1].type.dtype)]


# ---------------------------------------------------------------- values of calls in flight


def own_copy(value: Any) -> Any:
    """Return an input as a value that no other code can change.

    A NumPy array is copied as a NumPy array, because JAX's compiled functions transfer it faster
    than ``jax.device_put`` does.
    """
    return value.copy() if isinstance(value, np.ndarray) else value


def held_bytes(values: Any) -> int:
    """Return the bytes that arrays occupy; each array is counted once."""
    leaves = {id(v): v for v in jax.tree.leaves(values)}
    return sum(int(getattr(v, "nbytes", 0)) for v in leaves.values())


def device() -> Any:
    """Return the device on which JAX computes."""
    return jnp.zeros(()).devices().pop()
