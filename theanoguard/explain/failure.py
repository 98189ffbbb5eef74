"""Report any exception that a node raises in the same form as a bad value.

Examples are a dimension mismatch, a failed Assert, a singular matrix, or memory that has run out.
The report names the operation, the user's line, the operands, and what to do.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.type import TensorType

from theanoguard._evaluate.culprit import Scope
from theanoguard._evaluate.replay import Replay
from theanoguard._event import Frame, PathStep
from theanoguard._naming import name_of, subscript_text
from theanoguard._provenance import Provenance, SourceLine, built_from, lookup
from theanoguard._pytensor import increment_ops
from theanoguard._shown import brief
from theanoguard._text import number_text
from theanoguard._values import is_sparse
from theanoguard.explain.advice.hints import JITTER, Hint
from theanoguard.explain.facts.labels import display_name, line_around, lookup_in, user_op, written
from theanoguard.explain.facts.shapes import Shape, first_misfit, misfit_of_values, shape_text
from theanoguard.explain.facts.situation import matrix_text
from theanoguard.operations.domains import domains_of, parameters_of, random_variable_of
from theanoguard.operations.names import op_name


@dataclass(frozen=True)
class Held:
    """A value of the call: an operand, or another value that is in memory."""

    name: str
    shape: tuple[int | None, ...] | None  # None if the value is not available
    dtype: str
    nbytes: int = 0
    text: str = ""  # the value itself, if it is a single number


@brief
@dataclass(frozen=True)
class Failure:
    """The description of an exception that a node raised; plain data.

    Parameters
    ----------
    error : str
        Class of the exception.
    message : str
        Its first line.
    op : str
        Name of the operation.  For a fused node, the user's operation in it whose operands do not
        fit together, else the last.
    node : str
        The node as PyTensor prints it.
    operands : tuple of Held
        Those of the user's operation if their shapes do not fit together, else of the node.
    provenance : Provenance
    hint : Hint or None
    misfit : str or None
        The operation whose operands do not fit together, with their shapes, and why.
    path : tuple of PathStep
        The inner graphs entered, outermost first.
    around : SourceLine or None
        The user's line of the innermost scan, or other operation with an inner graph, around the
        node.
    alive : tuple of Held
        If memory has run out, the values that are in memory, largest first.
    needed : int or None
        If memory has run out, the bytes that the outputs need, if they can be computed.
    """

    error: str
    message: str
    op: str
    node: str
    operands: tuple[Held, ...]
    provenance: Provenance
    hint: Hint | None = None
    misfit: str | None = None
    path: tuple[PathStep, ...] = ()
    around: SourceLine | None = None
    alive: tuple[Held, ...] = ()
    needed: int | None = None


def explain_exception(
    error: BaseException,
    fgraph: FunctionGraph,
    node: Apply,
    values: Mapping[Variable, Any],
    frames: Sequence[Frame] = (),
) -> Failure:
    """Describe an exception that a node raised.

    Parameters
    ----------
    error : BaseException
    fgraph : FunctionGraph
        The graph of the function.
    node : Apply
        The node that raised.
    values : mapping of Variable to value
        The known values of the call.  A value that is no longer in memory is None or missing.
    frames : sequence of Frame
        The inner graphs entered, outermost first; `node` belongs to the innermost.

    Returns
    -------
    Failure

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> from theanoguard.explain import explain_exception
    >>> x, y = pt.dvectors("x", "y")
    >>> total = x + y
    >>> graph = FunctionGraph([x, y], [total], clone=False)
    >>> found = explain_exception(ValueError("Input dimension mismatch"), graph, total.owner,
    ...                           {x: np.ones(3), y: np.ones(4)})
    >>> found.op, found.hint.key, [operand.shape for operand in found.operands]
    ('add', 'shape-mismatch', [(3,), (4,)])
    """

    known = {variable: value for variable, value in values.items() if value is not None}
    scope = Scope(Replay(fgraph, known))
    for frame in frames:
        scope.replay.inner(frame.node, frame.fgraph)  # registers the inner graph; runs nothing
        scope = Scope(Replay(frame.fgraph, known), scope, frame.node, frame.step)

    def held(variable: Variable) -> Held:
        return _held(variable, _value(values, variable), display_name(scope, variable))

    no_memory = isinstance(error, MemoryError)
    alive = {id(v): held(v) for v in values if not isinstance(v, Constant)} if no_memory else {}
    inputs = [_value(values, v) for v in node.inputs]
    operands = tuple(held(v) for v in node.inputs)
    provenance = lookup_in(scope, node.outputs[0])
    failure = Failure(
        error=type(error).__name__,
        message=(str(error).strip().splitlines() or [""])[0],
        op=user_op(provenance, node),
        node=str(node),
        operands=operands,
        provenance=provenance,
        hint=hint_for_error(error, node, inputs),
        path=scope.path,
        around=line_around(scope),
        alive=tuple(
            sorted((h for h in alive.values() if h.nbytes), key=lambda h: h.nbytes, reverse=True)
        ),
        needed=_needed(node, inputs) if no_memory else None,
    )
    is_of_shapes = isinstance(error, ValueError | TypeError | IndexError | AssertionError)
    if not is_of_shapes:
        return failure
    found = _of_misfit(failure, scope, node, values)
    is_known = all(isinstance(v, Constant) or v in known for v in node.inputs)
    return _of_values(found, node, inputs) if is_known and not found.misfit else found


def explain_input(error: BaseException, variable: Variable, argument: Any) -> Failure:
    """Describe an argument that an input of a function does not take.

    Parameters
    ----------
    error : BaseException
    variable : Variable
        The input.
    argument : object

    Returns
    -------
    Failure

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> found = explain_input(TypeError("precision"), pt.fvector("x"), np.ones(3))
    >>> found.op, found.misfit
    ('the input x', 'it takes float32 with 1 dimension, and got float64 of shape (3,)')
    """
    given, takes = _as_array(argument), variable.type
    expected, got, advice = str(takes), type(argument).__name__, ""
    if given is not None and isinstance(takes, TensorType):
        expected = f"{takes.dtype} {_dimensions(takes)}"
        got = f"{given.dtype} of shape {shape_text(given.shape)}"
        advice = _advice_on_argument(given, variable)
    return Failure(
        error=type(error).__name__,
        message=str(error).partition("\n")[0],
        op=f"the input {variable.name}" if variable.name else "an input",
        node="",
        operands=(),
        provenance=lookup(None, variable),
        hint=Hint("wrong-argument", advice) if advice else None,
        misfit=f"it takes {expected}, and got {got}",
    )


def _as_array(argument: Any) -> np.ndarray | None:
    """Return an argument as an array; None for an object, or for rows of different lengths."""
    try:
        array = np.asarray(argument)
    except (ValueError, TypeError):
        return None
    return None if array.dtype.kind == "O" else array


def _dimensions(kind: Any) -> str:
    """Return the dimensions that a type takes, as a part of a sentence."""
    if any(n is not None for n in kind.shape):
        return f"of shape {shape_text(kind.shape)}"
    return f"with {kind.ndim} dimension{'' if kind.ndim == 1 else 's'}"


def _advice_on_argument(given: np.ndarray, variable: Variable) -> str:
    name, takes = variable.name or "x", variable.type
    if given.ndim != takes.ndim:
        if given.ndim == 0 and takes.ndim == 1:
            return f"Pass a list, such as [{given}], or declare {name} with 0."
        if 0 < given.ndim == takes.ndim - 1:
            before = ", ".join([":"] * given.ndim)
            return f"For one more dimension, pass {name}[None, ...] or {name}[{before}, None]."
        return f"Pass an array with as many dimensions, or declare {name} with {given.ndim}."
    if any(n not in (None, m) for n, m in zip(takes.shape, given.shape, strict=True)):
        return f"Pass an array of this shape, or declare {name} without a fixed length."
    if given.dtype.kind not in "fciub":
        return f"Pass numbers: {name} got {given.dtype}."
    if given.dtype != takes.dtype:
        loses = given.dtype.kind == "f" and takes.dtype.startswith(("int", "uint"))
        cut = " (this cuts off decimals)" if loses else ""
        return (
            f"Pass np.asarray({name}, dtype={takes.dtype!r}){cut}, declare {name} as"
            f" {given.dtype}, or compile with allow_input_downcast=True."
        )
    return ""


def _of_values(failure: Failure, node: Apply, values: Sequence[Any]) -> Failure:
    """Describe two operands of a node that do not fit, if that depends on more than shapes."""
    names = [h.name for h in failure.operands]
    if isinstance(node.op, Reshape):
        size, new = np.size(values[0]), [int(n) for n in values[1]]
        per = math.prod(n for n in new if n != -1)
        needs = f"takes {per}" if -1 not in new else f"takes a multiple of {per}"
        fits = size == per if -1 not in new else per and size % per == 0
        text = f"{names[0]} has {size} elements, the shape {shape_text(tuple(new))} {needs}"
        return failure if fits else _with_misfit(failure, text)
    misfit = misfit_of_values(node.op, node, values)
    if misfit is None:
        return failure
    if isinstance(node.op, increment_ops) and misfit.operands == (0, 1):
        names[0] = subscript_text(node, [names[0], *names[2:]])
    pair = [
        Held(names[i], shape, failure.operands[i].dtype)
        for i, shape in zip(misfit.operands, misfit.shapes, strict=True)
    ]
    axes = [axis % len(s) for s, axis in zip(misfit.shapes, misfit.axes, strict=True)]
    hint = hint_for_error(ValueError("shape"), node, ())
    return _with_misfit(replace(failure, hint=hint), _pair_text(pair, axes, misfit.broadcasts))


def _with_misfit(failure: Failure, text: str) -> Failure:
    expression = written(failure.provenance)
    return replace(failure, misfit=f"{expression}: {text}" if expression else text)


def _pair_text(pair: Sequence[Held], axes: Sequence[int], broadcasts: bool) -> str:
    shapes = ", ".join(f"{h.name} has shape {shape_text(h.shape or ())}" for h in pair)
    return f"{shapes}; {_rule(pair, axes, broadcasts)}"


def _of_misfit(
    failure: Failure, scope: Scope, node: Apply, values: Mapping[Variable, Any]
) -> Failure:
    """Describe the user's operation in a node whose operands do not fit together, if one does."""
    known = {
        v: np.shape(value)
        for v in dict.fromkeys((*node.inputs, *scope.fgraph.inputs))
        if isinstance(value := _value(values, v), np.ndarray | np.generic)
    }
    built = built_from(scope.fgraph, node, known)
    if built is None:
        return failure
    shapes = {user: known[v] for user, v in built.known.items()}
    shapes = {v: shape for v, shape in shapes.items() if getattr(v.type, "ndim", -1) == len(shape)}
    misfit = first_misfit(built.nodes, shapes)
    if misfit is None:
        return failure

    def own_name(v: Variable) -> str | None:
        found = built.tracker.lookup(v)
        name = found.name if found.own_name else written(found)
        return name or (display_name(scope, built.known[v]) if v in built.known else None)

    shown = [
        _before_broadcast(built, built.inputs_of(misfit.node)[i], shape, axis)
        for i, shape, axis in zip(misfit.operands, misfit.shapes, misfit.axes, strict=True)
    ]
    pair = [Held(name_of(v, own=own_name), shape, str(v.type.dtype)) for v, shape, _ in shown]
    provenance = built.tracker.lookup(misfit.node.outputs[0])
    found = replace(
        failure,
        op=user_op(provenance, misfit.node),
        operands=tuple(pair),
        provenance=provenance,
        hint=hint_for_error(ValueError("shape"), misfit.node, ()),
    )
    return _with_misfit(found, _pair_text(pair, [axis for *_, axis in shown], misfit.broadcasts))


def _before_broadcast(
    built: Any, variable: Variable, shape: Shape, axis: int
) -> tuple[Variable, Shape, int]:
    """Return a variable, its shape and an axis as they were before a line broadcast it."""
    shown, axis = built.tracker.behind(variable), axis % len(shape)
    while variable is not shown:
        order = getattr(variable.owner.op, "new_order", range(len(shape)))  # (or it is a cast)
        if axis >= len(order) or order[axis] == "x" or len(order) < len(shape):
            break
        axis, (variable, *_) = order[axis], built.inputs_of(variable.owner)
        kept = {old: length for old, length in zip(order, shape, strict=True) if old != "x"}
        shape = tuple(kept.get(i, 1) for i in range(variable.type.ndim))
    return variable, shape, axis


def _rule(pair: Sequence[Held], axes: Sequence[int], broadcasts: bool) -> str:
    """Return the condition on an axis of each operand that does not hold."""
    one, other = axes
    named = f"axis {one} of {pair[0].name} and axis {other} of {pair[1].name}"
    must = f"{f'axis {one}' if one == other else named} must be equal"
    if not broadcasts:
        return must
    for h, axis in zip(pair, axes, strict=True):
        if h.shape and h.shape[axis] == 1:
            return f"axis {axis} of {h.name} is 1, but its type does not declare that"
    return f"{must}, or 1 and broadcastable"


def _value(values: Mapping[Variable, Any], variable: Variable) -> Any:
    return variable.data if isinstance(variable, Constant) else values.get(variable)


def _held(variable: Variable, value: Any, name: str) -> Held:
    dtype = str(getattr(value, "dtype", getattr(variable.type, "dtype", variable.type)))
    if value is None:
        return Held(name, None, dtype)
    shape = tuple(int(n) for n in getattr(value, "shape", ()))
    text = str(value) if np.size(value) == 1 and not shape else ""
    return Held(name, shape, dtype, memory_of(value), text[:20])


def memory_of(value: Any) -> int:
    """Return the bytes that a value owns (a view owns none)."""
    if is_sparse(value):
        return sum(part.nbytes for part in (value.data, value.indices, value.indptr))
    if not isinstance(value, np.ndarray):
        return 0
    return int(value.nbytes) if value.base is None else 0


def _needed(node: Apply, inputs: Sequence[Any]) -> int | None:
    shape = _output_shape(node.op, inputs)
    if shape is None:
        return None
    sizes = [np.dtype(o.type.dtype).itemsize for o in node.outputs]
    return int(np.prod(shape, dtype=object)) * sum(sizes)


def _output_shape(op: Op, inputs: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the shape of the outputs, or None if it is not known without running `op`."""
    if any(v is None for v in inputs):
        return None
    if isinstance(op, Elemwise):
        return np.broadcast_shapes(*map(np.shape, inputs))
    if isinstance(op, Alloc | AllocEmpty):
        return tuple(int(n) for n in inputs[isinstance(op, Alloc) :])
    if op_name(op) == "dot" and len(inputs) == 2 and all(np.ndim(v) == 2 for v in inputs):
        return inputs[0].shape[0], inputs[1].shape[1]
    return None


class _Error(NamedTuple):
    """When a hint is for an exception: its class, and patterns of the operation and the message."""

    kind: type[BaseException]
    key: str
    fact: str
    advice: str = ""
    operation: str = ""
    message: str = ""


_ERRORS = (
    _Error(
        MemoryError,
        "out-of-memory",
        "The machine has no memory left for this result.",
        "Use smaller batches, float32, or an update in place; a scan keeps every step unless only"
        " the last one is used.",
    ),
    _Error(
        np.linalg.LinAlgError,
        "cholesky-not-positive-definite",
        "The matrix is not positive definite (to working precision).",
        f"Make it symmetric, and leave out duplicate points. {JITTER}",
        operation="cholesky",
    ),
    _Error(
        np.linalg.LinAlgError,
        "cholesky-not-positive-definite",
        "The matrix is not positive definite (to working precision).",
        JITTER,
        message="(?i)positive.definite|leading minor",
    ),
    _Error(
        np.linalg.LinAlgError,
        "singular-matrix",
        "The matrix has no inverse: rows or columns depend on each other.",
        "Leave out rows or columns that depend on others, or use a pseudo-inverse or least squares."
        f" {JITTER}",
        message="(?i)singular",
    ),
    _Error(
        IndexError,
        "index-out-of-range",
        "An index lies outside of the array that it reads.",
        "Compare the largest index with the shape above: labels often start at 1 or hold a -1 for"
        " what is missing.",
    ),
    _Error(
        ValueError,
        "dot-mismatch",
        "In a product of matrices the columns of the left one must equal the rows of the right"
        " one: compare the shapes above, and look for a missing transpose.",
        operation="dot|batched_dot|outer",
    ),
    _Error(
        ValueError,
        "reshape-mismatch",
        "A reshape must keep the number of elements: compare the shape of its operand above with"
        " the shape that is asked for; a -1 there stands for what is left.",
        operation="reshape",
    ),
    _Error(
        ValueError,
        "shape-mismatch",
        "The shapes do not fit together.",
        "Elementwise operations need equal dimensions, or dimensions of 1 that are declared so:"
        " x[:, None], keepdims=True, or pt.specify_shape(x, (None, 1)).",
        message="(?i)mismatch|broadcast|dimension|shape|size",
    ),
    _Error(
        ZeroDivisionError,
        "division-by-zero",
        "An integer was divided by 0.",
        "Find out why the divisor is 0. If it may be, decide what the result is there:"
        " switch(eq(n, 0), 0, x // switch(eq(n, 0), 1, n)).",
    ),
    _Error(
        AssertionError,
        "assert-failed",
        "The condition that this Assert states does not hold for the values of this call.",
        "If you did not write it, PyTensor needs it for a broadcast or a reshape to be valid.",
    ),
)
"""The first row that fits is used."""


def parameter_hint(node: Apply, values: Sequence[Any]) -> Hint | None:
    """Return the :class:`Hint` for the first parameter of a random variable out of its domain."""
    parameters, drawn = parameters_of(node, values), random_variable_of(node.op)
    if drawn is None or not len(parameters):
        return None
    for domain in domains_of(node):
        value = domain.value(parameters)
        wrong = domain.outside(value) | np.isnan(value)
        if not wrong.any():
            continue
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = f" at element [{', '.join(map(str, index))}]" if index else ""
        number = np.broadcast_to(parameters[domain.parameter], value.shape)[index]
        must = f"lie between {domain.low:g} and {domain.high:g}"
        if domain.less is not None:
            other = np.broadcast_to(parameters[domain.less], value.shape)[index]
            must = f"not be below {domain.than}, which is {number_text(other)}"
        elif not np.isfinite(domain.high):
            must = "be positive"
        is_nan = np.isnan(value[index])
        more = _COMPUTED_BEFORE if is_nan else _TRANSFORM if domain.less is None else _SPAN
        return Hint(
            "parameter-out-of-domain",
            f"The parameter {domain.name} of {drawn.name} is {number_text(number)}{at}, and"
            f" must {must}. {more}",
        )
    return None


def hint_for_error(error: BaseException, node: Apply, values: Sequence[Any]) -> Hint | None:
    """Return the :class:`Hint` for an exception of a node on some values, or None."""
    if isinstance(error, ValueError):
        hint = parameter_hint(node, values)
        if hint is not None:
            return hint
    op = op_name(node.op)
    if op == "solve" and "could not broadcast input array" in str(error):
        # In a batch, PyTensor's NaN for a singular matrix have the shape of the matrix.
        singular = singular_in(values[0])
        if singular is not None:
            error, values = np.linalg.LinAlgError("singular"), [singular]
    for row in _ERRORS:
        fits = isinstance(error, row.kind) and re.search(row.message, str(error))
        if not fits or (row.operation and not re.fullmatch(row.operation, op)):
            continue
        known = ""
        if row.kind is np.linalg.LinAlgError and values and values[0] is not None:
            known = matrix_text(values[0], op)
        return Hint(row.key, f"{known}." if known else row.fact, row.advice)
    return None


def singular_in(batch: Any) -> np.ndarray | None:
    """Return the first singular matrix of a batch of square ones, or None."""
    if batch is None or not np.isfinite(batch).all():
        return None
    matrices = np.reshape(batch, (-1, *np.shape(batch)[-2:]))
    return next((m for m in matrices if np.linalg.matrix_rank(m) < len(m)), None)


_COMPUTED_BEFORE = "An operation before has made the NaN: with mode=GuardMode() the error names it."
_SPAN = "Compute one end from the other: high = low + softplus(width)."
_TRANSFORM = (
    "Transform what is free: sigmoid or softmax for probabilities, softplus or exp for scales and"
    " rates."
)
