"""Find bad values that a call computes but masks, so that its results are sound.

``switch(x > 0, log(x), 0)`` takes the logarithm of every x.  Its value is sound, but its gradient
may be bad.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise

from theanoguard._arguments import checked
from theanoguard._evaluate.culprit import (
    Origin,
    Place,
    Scope,
    dense,
    elementwise,
    find_origin,
    holds,
    is_numeric,
    not_finite,
    numeric_mask,
    scalar_steps,
)
from theanoguard._evaluate.replay import Kernels, Replay
from theanoguard._evaluate.scalars import first_made, steps_of
from theanoguard._pytensor import Function, captured_inputs
from theanoguard._steps import as_raised
from theanoguard._values import Mask
from theanoguard.explain.advice.hints import in_module, with_hint
from theanoguard.explain.explanation import fate_of
from theanoguard.explain.facts.describe import describe
from theanoguard.explain.facts.records import Cause


@checked
@as_raised()
def find_masked(
    fn: Function, *args: Any, is_bad: Callable = not_finite, **kwargs: Any
) -> list[Cause]:
    """Find the bad values that a call computes but masks, so that they reach no output.

    The call is computed once more, operation by operation.  No shared variable is updated.

    Parameters
    ----------
    fn : Function
        A function compiled under any mode that runs NumPy arrays.
    *args, **kwargs
        The arguments of the call.
    is_bad : callable
        Returns the mask of the bad elements of an array.  By default NaN and infinity are bad.

    Returns
    -------
    list of Cause
        For each output of a node, the first operation that makes a bad value from sound ones.
        Only values that reach no output and no update are included: a later node masks them, or an
        operation that is fused into the same node does.

    Examples
    --------
    >>> from theanoguard import find_masked
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> f = pytensor.function([x], pt.switch(x > 0, pt.log(x), 0.0), mode="CVM")
    >>> [cause] = find_masked(f, np.array([1.0, -2.0]))
    >>> cause.expression, cause.index
    ('log(-2.0)', (1,))
    """
    mask = numeric_mask(is_bad)
    fgraph = fn.maker.fgraph
    values = zip(fgraph.inputs, captured_inputs(fn, args, kwargs), strict=True)
    scope = Scope(Replay(fgraph, dict(values), Kernels()))
    origins = []
    for node in fgraph.toposort():
        if any(holds(scope.replay.value(v), mask) for v in node.inputs):
            continue
        bad = [v for v in node.outputs if holds(scope.replay.value(v), mask)]
        for v in bad:
            if not fate_of(scope.replay, v, mask).survives:
                index = np.argwhere(mask(dense(scope.replay.value(v))))[0]
                origins.append(find_origin(Place(scope, v, tuple(map(int, index))), mask))
        if not bad and isinstance(getattr(node.op, "scalar_op", None), Composite):
            origins += _inside(node, scope, mask)
    return [in_module(with_hint(describe(origin, mask))) for origin in origins]


def leaves_of_results(replay: Replay, is_bad: Callable) -> list[Any]:
    """Return the inputs and constants that the first bad element of each result comes from.

    Parameters
    ----------
    replay : Replay
        A replay of a function's graph.
    is_bad : callable
        Returns the mask of the bad elements of an array.
    """
    mask, found = numeric_mask(is_bad), []
    for output in replay.fgraph.outputs:
        value = dense(replay.value(output))
        for index in np.argwhere(mask(value))[:1] if is_numeric(value) else ():
            place = Place(Scope(replay), output, tuple(map(int, index)))
            found.append(find_origin(place, mask).place.variable)
    return found


def _inside(node: Apply, scope: Scope, mask: Mask) -> Iterator[Origin]:
    """Yield the bad values inside a fused node whose operands and outputs are sound."""
    if not isinstance(node.op, Elemwise):
        return
    index = _masked_index(node, scope, mask)
    if index is None:
        return
    place = Place(scope, node.outputs[0], index)
    step = first_made(scalar_steps(place), mask)
    if step is not None:
        yield Origin(place, elementwise(place, step))


def _masked_index(node: Apply, scope: Scope, mask: Mask) -> tuple[int, ...] | None:
    """Return the first element that is bad inside a fused node but sound in its outputs."""
    shape = np.shape(scope.replay.value(node.outputs[0]))
    operands = [np.asarray(v) for v in scope.replay.values(node.inputs)]
    kinds = [o.type for o in node.op.scalar_op.fgraph.outputs]
    _, steps = steps_of(node.op.scalar_op, operands, kinds)
    inside = np.zeros(shape, bool)
    for step in steps:
        for result in step.results:
            inside |= mask(np.asarray(result))
    bad = np.argwhere(inside)
    return tuple(int(i) for i in bad[0]) if len(bad) else None
