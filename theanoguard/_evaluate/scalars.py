"""Find the scalar operation inside a fused operation that made one element bad."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Cast, Composite, ScalarOp, ScalarType, Switch
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import tensor

from theanoguard._steps import foreign
from theanoguard._values import Mask


@dataclass(frozen=True)
class ScalarStep:
    """One scalar operation at one element."""

    op: Any
    node: Any  # the node in the Composite's inner graph; None if the operation is not fused
    operands: tuple  # values of its inputs
    #: The origin of each operand: an earlier step, the position of an input of the whole operation,
    #: or None for a constant.
    origins: tuple
    results: tuple  # values of its outputs
    #: NumPy's results for the same operands, if they differ from the compiled code's.
    by_numpy: tuple | None = None
    #: For a Composite inside a Composite: the nodes from `node` inwards.  The last one applies
    #: `op`.
    inside: tuple = ()


OperandOrigin: TypeAlias = ScalarStep | int | None
"""The origin of an operand of a scalar operation, as in ``ScalarStep.origins``."""


def _cast(value: Any, type_: ScalarType) -> Any:
    return np.asarray(value).astype(type_.dtype)[()]


def _apply(
    op: ScalarOp, values: Sequence[Any], output_types: Sequence[ScalarType]
) -> tuple[Any, ...]:
    """Return the result of scalar `op` for `values`, in the dtypes in which it computes."""
    with np.errstate(all="ignore"), foreign():
        if any(np.ndim(v) for v in values):
            results = _apply_to_arrays(op, values)
        else:
            results = op.impl(*values)
        if op.nout == 1:
            results = (results,)
        return tuple(_cast(r, t) for r, t in zip(results, output_types, strict=True))


def _apply_to_arrays(op: ScalarOp, values: Sequence[Any]) -> Any:
    """Return the result of `op` for arrays, by a NumPy function if there is one."""
    if isinstance(op, Switch):
        return np.where(*values)
    if isinstance(op, Cast):
        return values[0]
    spec = getattr(op, "nfunc_spec", None)
    found = getattr(np, spec[0], None) if spec and spec[1] == len(values) else None
    return (found or np.frompyfunc(op.impl, len(values), op.nout))(*values)


def steps_of(
    scalar_op: ScalarOp, values: Sequence[Any], output_types: Sequence[ScalarType], output: int = 0
) -> tuple[OperandOrigin, list[ScalarStep]]:
    """Evaluate a scalar operation at one element, one inner operation after another.

    Arrays may be given instead of numbers; every step then holds arrays.

    - `scalar_op`: a plain one or a ``Composite``.
    - `values`: its operands, in the right dtypes.
    - `output_types`: types of its outputs.  They are needed because a plain operation does not
      store them.
    - `output`: position of the requested output.

    Returns
    -------
    final : ScalarStep or int or None
        The step that made that output, the input that passes through to it, or None
        for a constant.
    steps : list of ScalarStep
        All steps in order of evaluation.

    Raises ``ForeignError``: if the Python implementation of a scalar operation does not accept the
    values.
    """
    finals, steps = all_steps(scalar_op, values, output_types)
    return finals[output], steps


def all_steps(
    scalar_op: ScalarOp, values: Sequence[Any], output_types: Sequence[ScalarType]
) -> tuple[Sequence[OperandOrigin], list[ScalarStep]]:
    """Evaluate a scalar operation as :func:`steps_of`; return the `final` of each output."""
    steps: list[ScalarStep] = []
    if not isinstance(scalar_op, Composite):
        origins = tuple(range(len(values)))
        results = _apply(scalar_op, values, output_types)
        steps.append(ScalarStep(scalar_op, None, tuple(values), origins, results))
        return steps * len(results), steps
    found = _run(scalar_op.fgraph, list(enumerate(values)), steps)
    return [origin for origin, _ in found], steps


def _run(
    fgraph: FunctionGraph,
    inputs: Sequence[tuple[OperandOrigin, Any]],
    steps: list[ScalarStep],
    around: tuple[Apply, ...] = (),
) -> list[tuple[OperandOrigin, Any]]:
    """Evaluate a Composite's graph, appending to `steps`; return (origin, value) per output.

    A Composite inside a Composite is evaluated in the same way.  Its steps store the nodes
    `around` them, outermost first.
    """
    known = dict(zip(fgraph.inputs, inputs, strict=True))

    def find(variable: Variable) -> tuple[OperandOrigin, Any]:
        if isinstance(variable, Constant):
            return None, _cast(variable.data, variable.type)
        return known[variable]

    for node in fgraph.toposort():
        found = [find(v) for v in node.inputs]
        if isinstance(node.op, Composite):
            made = _run(node.op.fgraph, found, steps, (*around, node))
        else:
            operands = tuple(value for _, value in found)
            results = _apply(node.op, operands, [o.type for o in node.outputs])
            origins = tuple(origin for origin, _ in found)
            nodes = (*around, node)
            steps.append(
                ScalarStep(node.op, nodes[0], operands, origins, results, inside=nodes[1:])
            )
            made = [(steps[-1], value) for value in results]
        known.update(zip(node.outputs, made, strict=True))
    return [find(v) for v in fgraph.outputs]


def first_bad(final: OperandOrigin, is_bad: Mask) -> OperandOrigin:
    """Follow a bad scalar upstream to the step that made it from sound operands.

    Return that step, or the position of the input that was already bad; None if the last step's
    value is not bad.
    """
    if not isinstance(final, ScalarStep):
        return final
    if not any(is_bad(np.asarray(r)) for r in final.results):
        return None
    while True:
        for value, origin in _read(final):
            if origin is not None and is_bad(np.asarray(value)):
                break
        else:
            return final
        if not isinstance(origin, ScalarStep):
            return origin
        final = origin


def compiled_step(
    composite: Composite,
    values: Sequence[Any],
    final: ScalarStep,
    result: Any,
    run: Callable[[Apply, list[Any]], list[Any]],
) -> ScalarStep:
    """Return the last step of a Composite with the numbers that its compiled code computes.

    A C compiler may join a product and a sum into one operation that rounds once.  So the operands
    of a step are compiled separately and run.  This is repeated upstream, as long as the results
    differ from NumPy's.

    - `values`: its operands.
    - `final`: the last step, as NumPy computes it.
    - `result`: the result of the compiled code for that step.
    - `run`: ``run(node, inputs)`` computes the outputs of a node of tensors.
    """
    arrays = [np.asarray(v)[None] for v in values]
    tensors = [tensor(dtype=a.dtype, shape=(None,)) for a in arrays]

    def computed(variable: Variable) -> Any:
        part = Elemwise(Composite(list(composite.fgraph.inputs), [variable]))
        with foreign():
            return np.asarray(run(part.make_node(*tensors), arrays)[0]).ravel()[0]

    def follow(step: ScalarStep, result: Any) -> ScalarStep:
        if agrees(step.results[0], result):
            return step
        operands, origins = list(step.operands), list(step.origins)
        for i, origin in enumerate(origins):
            if isinstance(origin, ScalarStep):
                operands[i] = computed(step.node.inputs[i])
                origins[i] = follow(origin, operands[i])
        plain = _apply(step.op, operands, [out.type for out in step.node.outputs])
        other = None if agrees(plain[0], result) else plain
        return replace(
            step,
            operands=tuple(operands),
            origins=tuple(origins),
            results=(result,),
            by_numpy=other,
        )

    return follow(final, result)


def agrees(value: Any, other: Any) -> bool:
    """Return whether two evaluations of a number agree, except for rounding."""
    with np.errstate(all="ignore"):
        return bool(np.isclose(value, other, rtol=1e-6, atol=0, equal_nan=True))


def _read(step: ScalarStep) -> list[tuple[Any, OperandOrigin]]:
    """Yield the operands of a step with their origins; for a switch, only the chosen branch.

    An operand of the same kind as the result (NaN, infinite) comes first.
    """
    pairs = list(zip(step.operands, step.origins, strict=True))
    if isinstance(step.op, Switch) and np.ndim(step.operands[0]) == 0:
        return [pairs[1 if step.operands[0] else 2]]
    is_nan = np.isnan(np.asarray(step.results[0])).all()
    return sorted(pairs, key=lambda pair: bool(np.isnan(np.asarray(pair[0])).any()) != is_nan)


def first_made(steps: Sequence[ScalarStep], is_bad: Mask) -> ScalarStep | None:
    """Return the first step whose result is bad although its operands are sound, or None.

    Unlike :func:`first_bad`, it also finds a bad value that a later ``switch`` masks.
    """
    for step in steps:
        bad_out = any(is_bad(np.asarray(r)) for r in step.results)
        if bad_out and not any(is_bad(np.asarray(v)) for v in step.operands):
            return step
    return None


def term_of(reduction: Composite, elements: Any, output_type: ScalarType) -> OperandOrigin:
    """Return the steps that compute one term of a fused reduction, without the reduction itself.

    A reduction such as ``sum(x * log(x))`` may be fused into one ``CAReduce`` whose scalar
    operation is ``total + x * log(x)``.

    - `reduction`: the scalar operation; its operands are the running result and one element.
    - Returns: the step that makes the term, as :func:`steps_of` gives it.
    """
    start = np.zeros((), output_type.dtype)[()]
    last, _ = steps_of(reduction, (start, elements), [output_type])
    terms = [o for o in last.origins if o != 0] if isinstance(last, ScalarStep) else []
    return terms[0] if len(terms) == 1 else None
