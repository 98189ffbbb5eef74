"""Bad values that a fused operation makes inside and masks again, so that no guard trips.

``switch(x > 0, log(x), 0)`` takes the logarithm of every x.  The value is sound, its gradient
may not be.
"""

import numpy as np
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise

from theanoguard.explain.culprit import (
    Origin,
    Place,
    Scope,
    elementwise,
    numeric_mask,
    scalar_steps,
)
from theanoguard.explain.describe import describe
from theanoguard.explain.replay import Kernels, Replay
from theanoguard.explain.scalars import first_made, steps_of


def find_masked(fgraph, inputs, is_bad, impl=None):
    """Find what a call computes and masks again inside its fused operations.

    Parameters
    ----------
    fgraph : FunctionGraph
        The compiled graph.
    inputs : mapping of Variable to value
        Values of its inputs.
    is_bad : callable
        From an array to the mask of its bad elements.
    impl : {"c", "py", None}
        Which implementation of the operations to run.

    Returns
    -------
    list of Cause
        For each fused node the first scalar operation that makes a bad value which does not
        reach the node's outputs.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> f = pytensor.function([x], pt.switch(x > 0, pt.log(x), 0.0), mode="CVM")
    >>> graph = f.maker.fgraph
    >>> [cause] = find_masked(graph, {graph.inputs[0]: np.array([1.0, -2.0])}, np.isnan)
    >>> cause.expression, cause.index
    ('log(-2.0)', (1,))
    """
    mask = numeric_mask(is_bad)
    scope = Scope(Replay(fgraph, inputs, Kernels(impl)))
    found = []
    for node in fgraph.toposort():
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Composite):
            index = _masked_index(node, scope, mask)
            if index is None:
                continue
            place = Place(scope, node.outputs[0], index)
            step = first_made(scalar_steps(place), mask)
            if step is not None:
                found.append(describe(Origin(place, elementwise(place, step)), mask))
    return found


def _masked_index(node, scope, mask):
    """Return the first element that is bad inside of a fused node and sound at its outputs."""
    shape = np.shape(scope.replay.value(node.outputs[0]))
    operands = [np.asarray(v) for v in scope.replay.values(node.inputs)]
    kinds = [o.type for o in node.op.scalar_op.fgraph.outputs]
    _, steps = steps_of(node.op.scalar_op, operands, kinds)
    inside = np.zeros(shape, bool)
    for step in steps:
        for result in step.results:
            inside |= mask(np.asarray(result))
    for out in node.outputs:
        inside &= ~np.asarray(mask(scope.replay.value(out)))
    for operand in operands:
        inside &= ~np.broadcast_to(mask(operand), shape)
    bad = np.argwhere(inside)
    return tuple(int(i) for i in bad[0]) if len(bad) else None
