"""One element through a fused operation: which of its inner scalar operations made it bad."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Composite


@dataclass(frozen=True)
class ScalarStep:
    """One scalar operation at one element.

    Parameters
    ----------
    op : ScalarOp
    node : Apply or None
        The node in the Composite's inner graph; None where nothing was fused.
    operands : tuple
        Values of its inputs.
    origins : tuple of (ScalarStep or int or None)
        Where each operand came from: an earlier step, the position of an input of the
        whole operation, or None for a constant.
    results : tuple
        Values of its outputs.
    """

    op: Any
    node: Any
    operands: tuple
    origins: tuple
    results: tuple


def _cast(value, type_):
    return np.asarray(value).astype(type_.dtype)[()]


def _apply(op, values, output_types):
    """Return what scalar `op` makes of `values`, in the dtypes it computes in."""
    with np.errstate(all="ignore"):
        results = op.impl(*values)
    if op.nout == 1:
        results = (results,)
    return tuple(_cast(r, t) for r, t in zip(results, output_types, strict=True))


def steps_of(scalar_op, values, output_types, output=0):
    """Evaluate a scalar operation at one element, one inner operation after another.

    Parameters
    ----------
    scalar_op : ScalarOp
        A plain one or a ``Composite``.
    values : sequence of scalars
        Its operands, in the right dtypes.
    output_types : sequence of ScalarType
        Types of its outputs (a plain operation does not know them).
    output : int
        Which output is asked for.

    Returns
    -------
    final : ScalarStep or int or None
        The step that made that output, the input that passes through to it, or None
        for a constant.
    steps : list of ScalarStep
        All of them in order of evaluation.

    Raises
    ------
    ArithmeticError, ValueError, NotImplementedError
        Where the Python implementation of a scalar operation cannot take the values.
    """
    if not isinstance(scalar_op, Composite):
        origins = tuple(range(len(values)))
        results = _apply(scalar_op, values, output_types)
        step = ScalarStep(scalar_op, None, tuple(values), origins, results)
        return step, [step]
    fgraph = scalar_op.fgraph
    known = {v: (i, value) for i, (v, value) in enumerate(zip(fgraph.inputs, values, strict=True))}
    steps = []
    for node in fgraph.toposort():
        found = [
            (None, _cast(v.data, v.type)) if isinstance(v, Constant) else known[v]
            for v in node.inputs
        ]
        operands = tuple(value for _, value in found)
        results = _apply(node.op, operands, [o.type for o in node.outputs])
        step = ScalarStep(node.op, node, operands, tuple(o for o, _ in found), results)
        steps.append(step)
        for out, value in zip(node.outputs, results, strict=True):
            known[out] = (step, value)
    final = fgraph.outputs[output]
    return (None if isinstance(final, Constant) else known[final][0]), steps


def first_bad(final, is_bad, output=0):
    """Follow a bad scalar upstream to the step that made it from sound operands.

    Returns
    -------
    ScalarStep or int or None
        That step, or the input position through which the badness came in; None where
        the last step's value is not bad.
    """
    if not isinstance(final, ScalarStep):
        return final
    if not any(is_bad(np.asarray(r)) for r in final.results):
        return None
    while True:
        for value, origin in zip(final.operands, final.origins, strict=True):
            if origin is not None and is_bad(np.asarray(value)):
                break
        else:
            return final
        if not isinstance(origin, ScalarStep):
            return origin
        final = origin


def first_made(steps, is_bad):
    """Return the first step whose result is bad although its operands are sound, or None.

    Unlike :func:`first_bad` it also sees what a later ``switch`` masks.
    """
    for step in steps:
        bad_out = any(is_bad(np.asarray(r)) for r in step.results)
        if bad_out and not any(is_bad(np.asarray(v)) for v in step.operands):
            return step
    return None
