"""Assertions inside a graph whose failure says what was compared, and with which values.

:class:`Assert` is the one of Theano (``theano.tensor.opt.Assert``) and of PyTensor
(``pytensor.raise_op.Assert``) with a longer message: the user's line of the condition,
both sides of the comparison, the first elements that break it.  The compared values are
inputs of the node, so that they are still there when the check fails.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.breakpoint import PdbBreakpoint as PdbBreakpoint  # (it is Theano's)
from pytensor.compile.mode import optdb
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.link.c.op import COp
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.type import DenseTensorType

from theanoguard._arguments import checked, refuse
from theanoguard._provenance import SourceLine, source_place
from theanoguard._provenance.designating import Designations
from theanoguard._provenance.places import source_lines
from theanoguard._pytensor import generic, input_shapes, join_rewrite, vectorize_node
from theanoguard._text import shortened
from theanoguard.operations.facts import register
from theanoguard.operations.moving import VIEW

#: Failing elements that are listed one by one.
MAX_ELEMENTS = 3
#: Arrays up to this size are written out whole.
MAX_WHOLE = 6
#: Operands of a condition that is no comparison, beyond which none are kept.
MAX_OPERANDS = 3

TensorLike: TypeAlias = Variable | np.ndarray | Sequence | float | bool
"""Values that become a tensor."""


# What failed: the conditions and their failing elements
# ------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """One condition of an :class:`Assert`, as far as it is known when the graph is built."""

    relation: str  # key into the table of relations; "" where the condition is no comparison
    negated: bool  # whether the condition asks for the contrary of the relation
    #: How the operands are called in the message; one for each operand of the node.
    labels: tuple[str, ...]
    where: SourceLine | None  # the user's line that built the condition


Decided = tuple[str, list[Variable], bool]
"""The relation that decides a condition, its operands, and whether it is negated."""
Described = tuple[Condition, list[Variable]]
"""A condition, and the operands that are kept for its message."""


@dataclass(frozen=True)
class Relation:
    """How a relation is computed and named."""

    holds: Callable  # from the operands to a boolean array: where the relation holds
    text: str  # the required condition, with ``{0}``, ``{1}`` in place of the operands' labels


_RELATIONS = {
    "<": Relation(operator.lt, "{0} < {1}"),
    ">": Relation(operator.gt, "{0} > {1}"),
    "<=": Relation(operator.le, "{0} <= {1}"),
    ">=": Relation(operator.ge, "{0} >= {1}"),
    "==": Relation(operator.eq, "{0} == {1}"),
    "!=": Relation(operator.ne, "{0} != {1}"),
    "isnan": Relation(np.isnan, "isnan({0})"),
    "isinf": Relation(np.isinf, "isinf({0})"),
    "finite": Relation(np.isfinite, "{0} is finite"),
}

_SCALAR_RELATIONS = {
    ps.LT: "<",
    ps.GT: ">",
    ps.LE: "<=",
    ps.GE: ">=",
    ps.EQ: "==",
    ps.NEQ: "!=",
    ps.IsNan: "isnan",
    ps.IsInf: "isinf",
}


def _label(variable: Variable) -> str:
    """Name of `variable` in a message: its name, its constant value, or the user's expression."""
    if variable.name:
        return variable.name
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return str(np.asarray(variable.data).item())
    node = variable.owner
    known = Designations({} if node is None else {node: tuple(node.inputs)}).of(variable)
    return shortened(known.name or known.expression or str(variable), 40)


@singledispatch
def _comparison(op: Op, node: Apply, negated: bool) -> Decided:
    """Return (relation, operands, negated) of the node that decides a condition.

    Dispatched on the operation: the ones that only carry a truth value on are looked through.
    """
    return "", node.inputs, negated


@_comparison.register(CAReduce)
def _of_reduction(op: Op, node: Apply, negated: bool) -> Decided:
    if isinstance(op.scalar_op, ps.AND | ps.OR):
        return _decide(node.inputs[0], negated)
    return "", node.inputs, negated


@_comparison.register(DimShuffle)
def _of_dimshuffle(op: Op, node: Apply, negated: bool) -> Decided:
    return _decide(node.inputs[0], negated)


@_comparison.register(Elemwise)
def _of_elemwise(op: Op, node: Apply, negated: bool) -> Decided:
    scalar_op = op.scalar_op
    if isinstance(scalar_op, ps.Cast | ps.Identity):
        return _decide(node.inputs[0], negated)
    if isinstance(scalar_op, ps.Invert):
        return _decide(node.inputs[0], not negated)
    relation = _SCALAR_RELATIONS.get(type(scalar_op), "")
    return relation, node.inputs, negated


def _decide(variable: Variable, negated: bool) -> Decided:
    if variable.owner is None:
        return "", [variable], negated
    return _comparison(variable.owner.op, variable.owner, negated)


def _before_broadcasting(variable: Variable) -> Variable:
    """Look through the axes that were only put in front for broadcasting."""
    node = variable.owner
    if node is not None and isinstance(node.op, DimShuffle):
        (x,) = node.inputs
        n_new = variable.type.ndim - x.type.ndim
        if tuple(node.op.new_order) == ("x",) * n_new + tuple(range(x.type.ndim)):
            return _before_broadcasting(x)
    return variable


def _describe(condition: Variable) -> Described:
    """Return what is known of the symbolic `condition`, and the operands to keep for it."""
    relation, operands, negated = _decide(condition, negated=False)
    operands = [_before_broadcasting(v) for v in operands]
    # An operand that is no array, or the condition itself, says nothing more.
    keep = [v for v in operands if isinstance(v.type, DenseTensorType) and v is not condition]
    if relation and len(keep) < len(operands):
        relation = ""
    if not relation and len(keep) > MAX_OPERANDS:
        keep = []
    labels = tuple(_label(v) for v in keep)
    return Condition(relation, negated, labels, source_place(condition)), keep


# The message
# -----------


def _value(label: str, value: Any) -> str:
    """One line for the value of an operand."""
    value = np.asarray(value)
    if value.ndim == 0:
        line = f"{value.item()!r} ({value.dtype})"
    else:
        line = f"{value.dtype} array of shape {value.shape}"
        if value.size <= MAX_WHOLE:
            line += " " + np.array2string(value, separator=", ").replace("\n", "")
    return line if label == str(value) else f"{label} = {line}"


def _element(label: str, operand: np.ndarray, index: np.ndarray) -> str:
    """Say what `operand` holds where the broadcast index is `index`."""
    if operand.ndim == 0:
        return f"{label} = {operand.item()!r}"
    places = index[len(index) - operand.ndim :]
    own = tuple(int(i) if n > 1 else 0 for i, n in zip(places, operand.shape, strict=True))
    return f"{label}[{', '.join(map(str, own))}] = {operand[own].item()!r}"


def _failing_elements(condition: Condition, operands: list[np.ndarray]) -> Iterator[str]:
    """Say how many elements break the relation, and list the first of them."""
    relation = _RELATIONS[condition.relation]
    try:
        np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError:  # a vectorized graph has batch axes on some of them only
        return
    with np.errstate(invalid="ignore"):
        broken = relation.holds(*operands)
    if not condition.negated:
        broken = ~np.asarray(broken)
    if broken.ndim == 0 or not broken.any():
        return
    yield f"{int(broken.sum())} of {broken.size} elements fail; the first:"
    for index in np.argwhere(broken)[:MAX_ELEMENTS]:
        yield "  " + ", ".join(
            _element(label, operand, index)
            for label, operand in zip(condition.labels, operands, strict=True)
            if label != str(operand)
        )


def _report(condition: Condition, operands: list[np.ndarray]) -> Iterator[str]:
    """Lines on one condition that does not hold."""
    relation = _RELATIONS.get(condition.relation)
    if relation:
        text = relation.text.format(*condition.labels)
        yield f"required: {f'not ({text})' if condition.negated else text}"
    if condition.where:
        first, *below = source_lines(condition.where)
        yield f"built at: {first}"
        yield from (f"  {line}" for line in below)
    compares = relation and len(operands) == 2
    sides = ["left side: ", "right side: "] if compares else ["value: "] * len(operands)
    for side, label, value in zip(sides, condition.labels, operands, strict=True):
        yield side + _value(label, value)
    if relation:
        yield from _failing_elements(condition, operands)


# The operation
# -------------


class Assert(COp):
    """Check conditions when the graph runs, and return the value.

    ``Assert(msg)(value, *conditions)`` returns `value`.  Use the returned variable: otherwise
    nothing is checked.

    Parameters
    ----------
    msg : str
        First line of the :class:`AssertionError`.  The next lines show the condition, the user's
        line that built it, both sides of the comparison with shape and values, and the first
        elements for which it fails.

    Raises
    ------
    AssertionError
        When the compiled function runs, if a condition does not hold.
    TypeError
        When the operation is applied, if a condition is not a scalar.

    Notes
    -----
    PyTensor removes a condition that is known to hold.  The rewrite ``local_remove_all_assert`` (or
    ``unsafe``) removes all assertions.

    Both sides of the comparison are inputs of the node.  They stay in memory until the check, and
    they are not fused with the operations that use them.

    Examples
    --------
    >>> from theanoguard.ops import Assert
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> f = pytensor.function([x], Assert("too long")(x, x.size < 2), mode="CVM")
    >>> try:
    ...     f(np.zeros(3))
    ... except AssertionError as e:
    ...     print(str(e).splitlines()[0])
    too long
    """

    _f16_ok = True
    __props__ = ("msg", "conditions")
    view_map: ClassVar = {0: [0]}
    check_input = False
    params_type = generic

    def __init__(self, msg: str = "Theano Assert failed!") -> None:
        self.msg = str(msg)
        # None until the operation is applied: the applied one knows its conditions.
        self.conditions: Any = None  # a tuple of `Condition` once the operation is applied

    def __str__(self) -> str:
        return f"Assert{{msg={shortened(self.msg, 30)!r}}}"

    def make_node(self, value: Any, *inputs: Any) -> Apply:
        """Apply to a value and scalar conditions.

        Parameters
        ----------
        value : Variable or array_like
            What is let through.
        inputs : Variable or bool
            The conditions, scalars.  (The operation of an existing node takes that node's
            inputs: conditions, then the operands of the comparisons.)
        """
        if not isinstance(value, Variable):
            value = pt.as_tensor_variable(value)
        if self.conditions is not None:
            return Apply(self, [value, *inputs], [value.type()])

        symbols = [_as_condition(i, c) for i, c in enumerate(inputs)]
        described = [_describe(c) for c in symbols]
        return self.bound(value, symbols, described)

    def bound(
        self, value: Variable, symbols: Sequence[Variable], described: Sequence[Described]
    ) -> Apply:
        """Return the node that checks `symbols`, each described by (Condition, operands)."""
        op = copy(self)
        op.conditions = tuple(condition for condition, _ in described)
        operands = [v for _, variables in described for v in variables]
        symbols = [pt.cast(c, "bool") for c in symbols]
        return Apply(op, [value, *symbols, *operands], [value.type()])

    def described(self, node: Apply) -> list[Described]:
        """Return the (Condition, operands) of an applied `node`."""
        operands = iter(node.inputs[1 + len(self.conditions) :])
        return [(c, [next(operands) for _ in c.labels]) for c in self.conditions]

    def report(self, *inputs: Any) -> NoReturn:
        """Raise the error for the values of the conditions and operands of a node."""
        n = len(self.conditions)
        operands = iter(inputs[n:])
        lines = [self.msg]
        for holds, condition in zip(inputs[:n], self.conditions, strict=True):
            values = [np.asarray(next(operands)) for _ in condition.labels]
            if not holds:
                lines.extend(_report(condition, values))
        raise AssertionError("\n".join(lines))

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        value, *rest = inputs
        if not all(rest[: len(self.conditions)]):
            self.report(*rest)
        output_storage[0][0] = value

    def get_params(self, node: Apply) -> Any:
        return self.report

    def c_code(
        self,
        node: Apply,
        name: str,
        input_names: list[str],
        output_names: list[str],
        sub: dict[str, str],
    ) -> str:
        if not isinstance(node.inputs[0].type, DenseTensorType):
            raise NotImplementedError("Assert has C code for dense tensors only")
        value, *rest = input_names
        (out,) = output_names
        conditions = rest[: len(self.conditions)]
        holds = " && ".join(f"((npy_bool*)PyArray_DATA({c}))[0]" for c in conditions) or "1"
        arguments = "".join(f"(PyObject*){r}, " for r in rest)
        # The message is made in Python, by the operation itself: one compiled
        # module serves every message.
        return f"""
        if (!({holds})) {{
            PyObject *none = PyObject_CallFunctionObjArgs({sub["params"]}, {arguments}NULL);
            Py_XDECREF(none);
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_AssertionError, "the assertion could not be reported");
            {sub["fail"]}
        }}
        Py_XDECREF({out});
        {out} = {value};
        Py_INCREF({value});
        """

    def c_code_cache_version(self) -> tuple:
        return (1,)

    def infer_shape(self, *args: Any) -> list:
        return input_shapes(args)[:1]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True]] + [[False]] * (len(node.inputs) - 1)

    def pullback(
        self, inputs: list, outputs: list, output_gradients: list[Variable]
    ) -> list[Variable]:
        return [*output_gradients, *(disconnected_type() for _ in inputs[1:])]

    def pushforward(self, inputs: list, outputs: list, tangents: list[Variable]) -> list[Variable]:
        return [tangents[0]]

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        return all(
            isinstance(c, Constant) and bool(c.data)
            for c in node.inputs[1 : 1 + len(self.conditions)]
        )


register(Assert, **VIEW)


def vectorize_assert(op: Assert, node: Apply, batch_x: Variable, *batch_rest: Variable) -> Apply:
    """Check the conditions of all members of the batch at once."""
    n = len(op.conditions)
    symbols, operands = batch_rest[:n], iter(batch_rest[n:])
    described = [(c, [next(operands) for _ in c.labels]) for c in op.conditions]
    new = op.bound(batch_x, [pt.all(c) for c in symbols], described)
    batched = [c for c in symbols if c.type.ndim]
    if not batched:
        return new
    # A batch of conditions makes a batch of values.
    core_ndim = node.inputs[0].type.ndim
    out, *_ = pt.broadcast_arrays(
        new.outputs[0], *(pt.shape_padright(c, core_ndim) for c in batched)
    )
    return out.owner


if vectorize_node is not None:
    vectorize_node.register(Assert, vectorize_assert)


def _as_condition(i: int, condition: Any) -> Variable:
    """Return `condition` as a scalar tensor."""
    condition = pt.as_tensor_variable(condition)
    if condition.type.ndim:
        raise TypeError(
            f"Assert: condition {i} ({_label(condition)}) is {condition.type}, not a scalar.\n"
            "Reduce it first: pytensor.tensor.all(condition)."
        )
    return condition


def _always_true(condition: Variable) -> bool:
    try:
        return bool(get_underlying_scalar_constant_value(condition))
    except NotScalarConstantError:
        return False


@node_rewriter([Assert])
def local_drop_true_conditions(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Drop the conditions that are known to hold, and the node when none is left."""
    op = node.op
    conditions = node.inputs[1 : 1 + len(op.conditions)]
    left = [
        (symbol, described)
        for symbol, described in zip(conditions, op.described(node), strict=True)
        if not _always_true(symbol)
    ]
    if not left:
        return [node.inputs[0]]
    if len(left) == len(conditions):
        return None
    symbols, described = zip(*left, strict=True)
    (out,) = op.bound(node.inputs[0], symbols, described).outputs
    copy_stack_trace(node.outputs[0], out)
    return [out]


@node_rewriter([Assert])
def local_drop_asserts(fgraph: FunctionGraph, node: Apply) -> list[Variable]:
    """Drop the node: what ``local_remove_all_assert`` asks for."""
    return [node.inputs[0]]


optdb["useless"].register(
    "theanoguard_drop_true_conditions", local_drop_true_conditions, "fast_run", "fast_compile"
)
optdb["specialize"].register(
    "theanoguard_drop_true_conditions", local_drop_true_conditions, "fast_run", "fast_compile"
)
for _phase in ("useless", "canonicalize", "stabilize", "specialize"):
    optdb[_phase].register(
        "theanoguard_drop_asserts",
        local_drop_asserts,
        "unsafe",
        use_db_name_as_tag=False,
    )
    join_rewrite(optdb[_phase], "local_remove_all_assert", local_drop_asserts)


# Helpers
# -------

#: ``assert_op(value, *conditions)``: :class:`Assert` with the default message.
assert_op = Assert()


@checked
def assert_shape(x: TensorLike, shape: Sequence[Any], msg: str | None = None) -> Variable:
    """Check the shape of `x` when the graph runs, and return `x`.

    Parameters
    ----------
    x : Variable
        A tensor.
    shape : sequence of int, Variable or None
        The required length along each axis.  None allows any length.
    msg : str, optional
        First line of the error.

    Returns
    -------
    Variable
        `x`, checked.  Lengths that are known when the graph is compiled cost nothing.

    Raises
    ------
    AssertionError
        If `shape` has another number of axes than `x`: at once.  Otherwise when the function runs.

    Examples
    --------
    >>> from theanoguard.ops import assert_shape
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.matrix("x")
    >>> f = pytensor.function([x], assert_shape(x, (None, 3)).sum(), mode="CVM")
    >>> print(f(np.ones((2, 3))))
    6.0
    """
    x = pt.as_tensor_variable(x)
    shape = tuple(shape)
    asked = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    msg = msg or f"{_label(x)} must have the shape {asked}"
    if len(shape) != x.type.ndim:
        raise AssertionError(
            f"{msg}\n{_label(x)} has {x.type.ndim} axes ({x.type}), {len(shape)} are required."
        )
    conditions = []
    for axis, length in enumerate(shape):
        if length is not None:
            actual = x.shape[axis]
            actual.name = f"{_label(x)}.shape[{axis}]"
            conditions.append(pt.eq(actual, length))
    return Assert(msg)(x, *conditions) if conditions else x


@checked
def assert_finite(x: TensorLike, msg: str | None = None) -> Variable:
    """Check when the graph runs that `x` contains neither NaN nor Inf, and return `x`.

    Parameters
    ----------
    x : Variable
        A tensor.
    msg : str, optional
        First line of the error.

    Returns
    -------
    Variable
        `x`, checked.  If its dtype has no NaN, `x` itself.

    Raises
    ------
    AssertionError
        When the function runs.  The message lists the first bad elements.

    Examples
    --------
    >>> from theanoguard.ops import assert_finite
    >>> import pytensor.tensor as pt
    >>> i = pt.ivector("i")
    >>> assert_finite(i) is i
    True
    """
    x = pt.as_tensor_variable(x)
    if x.type.dtype not in (*pt.type.float_dtypes, *pt.type.complex_dtypes):
        return x
    finite = pt.all(pt.invert(pt.or_(pt.isnan(x), pt.isinf(x))))
    condition = Condition("finite", False, (_label(x),), source_place(finite))
    op = Assert(msg or f"{_label(x)} must be finite")
    (out,) = op.bound(x, [finite], [(condition, [x])]).outputs
    return out


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


@checked
def assert_in_range(
    x: TensorLike,
    low: TensorLike | None = None,
    high: TensorLike | None = None,
    msg: str | None = None,
) -> Variable:
    """Check ``low <= x <= high`` for every element when the graph runs, and return `x`.

    Parameters
    ----------
    x : Variable
        A tensor.
    low, high : Variable, float or None
        The smallest and the largest allowed value.  They are broadcast against `x`.  None sets no
        limit.
    msg : str, optional
        First line of the error.

    Returns
    -------
    Variable
        `x`, checked.

    Raises
    ------
    AssertionError
        When the function runs, if an element is out of range or NaN.
    ValueError
        If both bounds are None.

    Examples
    --------
    >>> from theanoguard.ops import assert_in_range
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> p = pt.vector("p")
    >>> f = pytensor.function([p], assert_in_range(p, 0, 1).sum(), mode="CVM")
    >>> print(f(np.array([0.25, 0.5])))
    0.75
    """
    for name, bound in (("low", low), ("high", high)):
        if isinstance(bound, float | np.floating) and np.isnan(bound):
            raise refuse("assert_in_range", name, bound, "a bound must not be NaN")
    if _are_numbers(low, high) and low > high:  # type: ignore[operator]
        raise refuse("assert_in_range", "low", low, f"low must be at most high, which is {high}")
    x = pt.as_tensor_variable(x)
    bounds = [(pt.ge, ">=", low), (pt.le, "<=", high)]
    bounds = [(compare, sign, bound) for compare, sign, bound in bounds if bound is not None]
    if not bounds:
        raise ValueError("assert_in_range: give `low`, `high`, or both; neither was given.")
    if msg is None:
        asked = (f"{sign} {_label(pt.as_tensor_variable(b))}" for _, sign, b in bounds)
        msg = f"{_label(x)} must be {' and '.join(asked)}"
    return Assert(msg)(x, *(pt.all(compare(x, bound)) for compare, _, bound in bounds))
