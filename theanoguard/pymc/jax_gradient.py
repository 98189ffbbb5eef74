"""Which operation of a model's log-density JAX cannot differentiate at a point.

NumPyro and BlackJAX take the gradient from JAX, which differentiates what PyTensor has written for
it.  Where that gradient alone is bad, JAX has multiplied an infinite derivative by 0, mostly in the
branch that a condition discards.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

from theanoguard._naming import apply_text
from theanoguard._provenance import source_line
from theanoguard._provenance.places import source_text
from theanoguard._pytensor import get_mode
from theanoguard._steps import foreign
from theanoguard._text import number_text
from theanoguard.operations.names import op_name, shown_op
from theanoguard.pymc.modes import model_lines


def bad_derivative(model: Any, point: Mapping[str, Any]) -> str:
    """Return which operation JAX gives a bad derivative of, as a text, or "" if there is none.

    `point`: arrays by the names of the value variables.
    """
    steps, values = _forward(model, point)
    cotangents = {steps[-1][0].outputs[0]: np.ones(())}
    for node, compute, floats in reversed(steps):
        if not floats or cotangents.keys().isdisjoint(node.outputs):
            continue
        if text := _differentiate(node, compute, floats, values, cotangents):
            return text
    return ""


def _forward(model: Any, point: Mapping[str, Any]) -> Any:
    """Return the operations of the log-density as JAX runs them, and the value of each variable."""
    jax_funcify = import_module("pytensor.link.jax.dispatch").jax_funcify  # (this imports JAX)
    with model_lines(), model:
        fgraph = FunctionGraph(list(model.value_vars), [model.logp()], clone=True)
        get_mode("JAX").optimizer.rewrite(fgraph)
    given = [point[v.name] for v in model.value_vars]
    values = {v: np.asarray(x, v.dtype) for v, x in zip(fgraph.inputs, given, strict=True)}
    steps = []
    for node in fgraph.toposort():
        for v in node.inputs:
            if v not in values:
                values[v] = v.data if isinstance(v, Constant) else v.get_value(borrow=True)
        with foreign():  # (JAX may refuse an operation outside of a compiled program)
            compute = jax_funcify(node.op, node=node)
            made = _listed(compute(*(values[v] for v in node.inputs)))
        values.update(zip(node.outputs, made, strict=True))
        floats = [i for i, v in enumerate(node.inputs) if _is_float(v)]
        steps.append((node, compute, floats))
    return steps, values


def _differentiate(node: Any, compute: Any, floats: Any, values: Any, cotangents: Any) -> Any:
    """Add to the `cotangents` what JAX gives for the operands of a node.

    Returns: if it is not finite, a text that says so.
    """
    import jax
    import jax.numpy as jnp

    outputs = [v for v in node.outputs if v in cotangents]

    def of_floats(*operands: Any) -> Any:
        given = [values[v] for v in node.inputs]
        for i, operand in zip(floats, operands, strict=True):
            given[i] = operand
        made = _listed(compute(*given))
        return [made[node.outputs.index(v)] for v in outputs]

    operands = [jnp.asarray(values[node.inputs[i]]) for i in floats]
    with foreign():
        results, pull = jax.vjp(of_floats, *operands)
    weights = [jnp.asarray(cotangents[v], r.dtype) for v, r in zip(outputs, results, strict=True)]
    with foreign():
        slopes = pull(weights)
    for i, slope in zip(floats, slopes, strict=True):
        if not np.isfinite(slope).all():
            return _text(node, [values[v] for v in node.inputs], np.ravel(slope), weights[0])
        cotangents[node.inputs[i]] = cotangents.get(node.inputs[i], 0) + slope
    return ""


def _text(node: Any, operands: Any, slope: Any, weight: Any) -> str:
    at = int(np.flatnonzero(~np.isfinite(slope))[0])

    def number(array: Any) -> float:
        array = np.ravel(array)
        return array[at if array.size == slope.size else 0]

    name = shown_op(op_name(node.op))
    if isinstance(node.op, Elemwise):
        name = apply_text(node.op, [number_text(number(value)) for value in operands])
    text = f"JAX's derivative of {name} is {number_text(slope[at])}."
    if np.size(weight) == slope.size and number(weight) == 0:
        text = (
            f"JAX multiplies the infinite derivative of {name} by 0: a condition discards {name}."
        )
    source = source_line(node.outputs[0])
    return text if source is None else f"{text}\n  {source_text(source)}"


def _listed(results: Any) -> Any:
    return results if isinstance(results, list | tuple) else [results]


def _is_float(variable: Any) -> bool:
    return getattr(variable.type, "dtype", "").startswith("float")
