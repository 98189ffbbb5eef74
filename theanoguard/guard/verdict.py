"""The verdict on one node: which elements of its outputs it has made bad.

A backend may only suspect that something is wrong (a raised exception flag, a scan that found an
Inf).  The verdict decides.  It takes plain NumPy values, so that every backend can use it:

- A NaN is made where no operand element that decides it is NaN.  A NaN that is a constant does
  not excuse the operation that chooses or uses it.
- An Inf is made where no operand element that decides it is infinite.  It is not made where it is
  a constant, chosen, copied or carried on.
- A big value is made where no operand element that decides it is big or infinite.

With ``inf_is_error="any"`` no constant excuses an operation.  Neither does an operand that was left
out of the checks: the first operation that reads it is the one that is reported.

:mod:`theanoguard.operations` knows which operand elements decide an output element.  Where
nothing is known of an operation, all elements of all operands decide.  A fused operation is judged
by the scalar operations in it, so that fusing changes no verdict.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from theanoguard._evaluate.scalars import ScalarStep, steps_of
from theanoguard._pytensor import literals_of
from theanoguard._steps import ForeignError
from theanoguard._values import KINDS, BadKind, arrays_in
from theanoguard.guard.plan import has_elements
from theanoguard.guard.policy import Policy
from theanoguard.operations import is_literal, reached, scalar_facts
from theanoguard.operations.regions import NUMPY, Arrays, Values, unmarked

Variables: TypeAlias = Collection[Variable]
Masks: TypeAlias = list[np.ndarray] | None
"""Of an output: for each of its arrays, which elements were made bad; None for none."""


def made_bad(
    node: Apply,
    inputs: Values,
    outputs: Values,
    policy: Policy,
    silent: Variables = (),
    reported: Variables = (),
) -> list[Masks]:
    """Return which elements of the outputs the node has made bad.

    - `inputs`: values of the node's inputs as they were before it ran.
    - `outputs`: values that it gave; None for an output that is not to be judged.
    - `silent`: inputs of the node that are not checked; a bad element in them excuses nothing.
    - `reported`: constants that have been reported, so that they do excuse operations.
    - Returns: for each output the masks of its arrays, as :meth:`Policy.count` takes them; None
      where nothing bad was made.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from theanoguard.guard.policy import Policy
    >>> x, y = pt.dvectors("x", "y")
    >>> node = (x / y).owner
    >>> x, y = np.array([1.0, np.inf, 1.0]), np.array([0.0, 1.0, 2.0])
    >>> with np.errstate(divide="ignore"):
    ...     [[mask]] = made_bad(node, [x, y], [x / y], Policy(nan=True, inf=True, big=False))
    >>> mask
    array([ True, False, False])
    """
    node, inputs, outputs, silent, reported = _on_arrays(node, inputs, outputs, silent, reported)
    return [
        None
        if value is None
        else _output_made(node, inputs, index, value, policy, silent, reported)
        for index, value in enumerate(outputs)
    ]


def repeated(
    node: Apply,
    inputs: Values,
    outputs: Values,
    made: Sequence[Masks],
    policy: Policy,
    silent: Variables = (),
) -> set[int]:
    """Return which outputs of a fused operation only repeat bad values of its other outputs.

    All bad elements of such an output come from scalar operations that made the same elements of
    another output bad.  Of the outputs that share a cause, the one with the fewest causes counts.

    - `node`, `inputs`, `outputs`, `policy`, `silent`: as for :func:`made_bad`.
    - `made`: what that returned; None for an output that is not to be reported.
    """
    if sum(masks is not None for masks in made) < 2:
        return set()
    node, inputs, outputs, silent, _ = _on_arrays(node, inputs, outputs, silent)
    scalar_op = getattr(node.op, "scalar_op", None)
    if not (isinstance(node.op, Elemwise) and isinstance(scalar_op, Composite)):
        return set()
    alone = {index: masks[0] for index, masks in enumerate(made) if masks is not None}
    sources_of = {
        index: _sources_of(node, inputs, index, outputs[index], mask, policy, silent)
        for index, mask in alone.items()
    }
    result: set[int] = set()
    known: dict[Any, np.ndarray] = {}
    for index, sources in sorted(sources_of.items(), key=lambda item: len(item[1])):
        mask = alone[index]
        explained = np.logical_or.reduce([*sources.values(), np.zeros(mask.shape, bool)])
        new = mask & ~explained
        for source, where in sources.items():
            before = known.get(source, np.zeros(mask.shape, bool))
            new = new | (where & ~before)
            known[source] = before | where
        if not new.any():
            result.add(index)
    return result


def _sources_of(
    node: Apply,
    inputs: Values,
    index: int,
    value: Any,
    mask: np.ndarray,
    policy: Policy,
    silent: Variables,
) -> dict[Any, np.ndarray]:
    """Return `_made_inside` for the elements of an output in `mask`, of whatever kind they are."""
    sources: dict[Any, Any] = {}
    for kind, found in zip(KINDS, policy.kinds(value), strict=True):
        found = np.asarray(found & mask)
        if found.any():
            strict = kind == "nan" or policy.anywhere
            inside = _made_inside(node, inputs, index, kind, found, policy, silent, strict)
            for source, where in (inside or {}).items():
                sources[source] = sources.get(source, False) | where
    return sources


def _on_arrays(
    node: Apply, inputs: Values, outputs: Values, silent: Variables = (), reported: Variables = ()
) -> tuple:
    """Return a scalar operation and its values as an elementwise one; any other as it is."""
    if not isinstance(node.op, ScalarOp):
        return node, inputs, outputs, silent, reported
    alike = {
        v: TensorConstant(TensorType(v.type.dtype, ()), np.asarray(v.data))
        if isinstance(v, Constant)
        else TensorType(v.type.dtype, ())()
        for v in node.inputs
    }
    return (
        Elemwise(node.op).make_node(*[alike[v] for v in node.inputs]),
        [np.asarray(value) for value in inputs],
        [None if value is None else np.asarray(value) for value in outputs],
        {alike[v] for v in alike.keys() & set(silent)},
        {alike[v] for v in alike.keys() & set(reported)},
    )


def _output_made(
    node: Apply,
    inputs: Values,
    index: int,
    value: Any,
    policy: Policy,
    silent: Variables,
    reported: Variables,
) -> Masks:
    if isinstance(node.op, AllocEmpty) or is_literal(node.outputs[index]):
        return None  # uninitialised memory, or a list of what may be chosen
    arrays = list(arrays_in(value))
    plain = isinstance(value, np.ndarray) and len(arrays) == 1
    masks = []
    for array in arrays:
        kinds = policy.kinds(array)
        mask = np.logical_or.reduce(kinds)
        if mask.any():
            mask = np.zeros(array.shape, bool)
            for kind, found in zip(KINDS, kinds, strict=True):
                if found.any():
                    mask |= found & ~_excused(
                        node, inputs, index, kind, found, policy, silent, reported, plain
                    )
        masks.append(np.asarray(mask))
    return masks if any(mask.any() for mask in masks) else None


def _excused(
    node: Apply,
    inputs: Values,
    index: int,
    kind: BadKind,
    found: Any,
    policy: Policy,
    silent: Variables,
    reported: Variables,
    plain: bool,
) -> np.ndarray:
    """Return which of the elements in `found` carry on what an operand held."""
    strict = kind == "nan" or policy.anywhere
    given = [
        None
        if variable in silent or (strict and is_literal(variable) and variable not in reported)
        else [_excuses(kind, array, policy) for array in arrays_in(value)]
        for variable, value in zip(node.inputs, inputs, strict=True)
    ]
    scalar_op = getattr(node.op, "scalar_op", None)
    fused = plain and isinstance(node.op, Elemwise) and isinstance(scalar_op, Composite)
    any_given = any(mask.any() for masks in given if masks for mask in masks)
    literal = isinstance(scalar_op, Composite) and not strict and _has_literal(scalar_op, policy)
    if not any_given and not literal:
        return np.zeros(found.shape, bool)
    if fused:
        made = _made_inside(node, inputs, index, kind, found, policy, silent, strict)
        if made is not None:
            return ~np.logical_or.reduce([*made.values(), np.zeros(found.shape, bool)])
    if literal or not plain:
        return np.ones(found.shape, bool)
    masks = [
        masks[0] if masks and isinstance(value, np.ndarray | np.generic) else None
        for masks, value in zip(given, inputs, strict=True)
    ]
    sparse = any(
        masks and mask is None and any(m.any() for m in masks)
        for masks, mask in zip(given, masks, strict=True)
    )
    if sparse:  # nothing is known of the elements of a sparse matrix
        return np.ones(found.shape, bool)
    return reached(node, inputs, masks, index, found.shape)


def _excuses(kind: BadKind, array: Any, policy: Policy, arrays: Arrays = NUMPY) -> Any:
    """Return which elements of an operand excuse a bad element of `kind` that they decide.

    A reported NaN also excuses an Inf: on Numba the maximum of an array of NaN is -inf.
    """
    nan, inf, big = policy.kinds(array, everything=True, arrays=arrays)
    if kind == "nan":
        return nan
    bad = inf | nan if policy.nan else inf
    return bad | big if kind == "big" else bad


def suspected(
    arrays: Arrays, node: Apply, inputs: Values, output: int, value: Any, policy: Policy
) -> Any:
    """Return which elements of a node's output it may have made bad, as part of compiled code.

    Fewer elements are excused than by :func:`made_bad`, which enters fused operations.

    - `arrays`: the library that computes.
    - `output`: which of its outputs.
    - `value`: its value.
    """
    result = unmarked(arrays, value)
    for kind, found in zip(KINDS, policy.kinds(value, arrays=arrays), strict=True):
        if policy.anywhere:
            result = result | found
        elif getattr(policy, kind):
            given = [
                _excuses(kind, array, policy, arrays)
                if has_elements(variable) and not (kind == "nan" and isinstance(variable, Constant))
                else None
                for variable, array in zip(node.inputs, inputs, strict=True)
            ]
            result = result | found & ~reached(node, inputs, given, output, value.shape, arrays)
    return result


# ---------------------------------------------------------------- into fused operations


def _has_literal(scalar_op: Composite, policy: Policy) -> bool:
    """Whether an infinite or big number is written in a fused operation."""
    numbers = (np.asarray(v.data) for v in literals_of(scalar_op))
    return any(
        mask.any() for number in numbers for mask in policy.kinds(number, everything=True)[1:]
    )


def _made_inside(
    node: Apply,
    inputs: Values,
    index: int,
    kind: BadKind,
    found: Any,
    policy: Policy,
    silent: Variables,
    strict: bool,
) -> dict[Any, np.ndarray] | None:
    """Return which of the elements in `found` come from which operation that made them bad.

    The keys are the scalar operations of the fused one, or what it passes through.  None where the
    scalar operations cannot be run.
    """
    at = np.nonzero(found) if found.ndim else ()
    values = [np.broadcast_to(np.asarray(v), found.shape)[at] for v in inputs]
    kinds = [o.type for o in node.op.scalar_op.fgraph.outputs]
    try:
        final, steps = steps_of(node.op.scalar_op, values, kinds, index)
    except ForeignError:
        return None  # an operation without an implementation in Python, or not for these values
    if not isinstance(final, ScalarStep):
        # An operand or a constant, as it is.
        carried = not strict if final is None else node.inputs[final] not in silent
        return {} if carried else {node.op.scalar_op.fgraph.outputs[index]: found}
    shape = at[0].shape if at else ()

    def marks(value: Any) -> np.ndarray:
        return np.broadcast_to(_excuses(kind, np.asarray(value), policy), shape)

    made: dict[int, dict] = {}  # by step, the marks of each operation that its bad value comes from
    for step in steps:
        bad_out = np.logical_or.reduce([marks(result) for result in step.results])
        carries: np.ndarray = np.zeros(shape, bool)
        sources: dict[Any, Any] = {}
        for value, origin in zip(step.operands, step.origins, strict=True):
            if origin is None and strict:
                continue  # a constant excuses nothing
            if isinstance(origin, int) and node.inputs[origin] in silent:
                continue
            bad = marks(value)
            carries |= bad
            if isinstance(origin, ScalarStep):
                given = bad_out & bad & _chosen(step, value)
                for source, where in made[id(origin)].items():
                    sources[source] = sources.get(source, False) | (given & where)
        sources[step.node, *step.inside] = bad_out & ~carries
        made[id(step)] = {source: where for source, where in sources.items() if where.any()}
    if not all(marks(result).all() for result in final.results):
        return None  # the compiled operation rounds otherwise: judge it by its operands alone
    result = {}
    for source, where in made[id(final)].items():
        result[source] = np.zeros(found.shape, bool)
        result[source][at] = where
    return result


def _chosen(step: ScalarStep, value: Any) -> Any:
    """Return where a scalar operation may have given this operand as it is; else True."""
    if isinstance(step.op, ps.Switch):
        condition, first, _second = step.operands
        return np.asarray(condition, bool) == (value is first)
    if scalar_facts(step.op).selects not in (None, slice(0, 1)):
        return np.equal(value, step.results[0]) | np.isnan(value)
    return True
