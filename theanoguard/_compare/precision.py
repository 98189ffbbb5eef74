"""The same graph in another precision."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import singledispatch
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.scan.op import Scan
from pytensor.sparse.basic import cast as cast_sparse
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

from theanoguard._graph import scan_of
from theanoguard._pytensor import config

FAMILIES = (("float16", "float32", "float64"), ("complex64", "complex128"))
COMPLEX = {"float16": "complex64", "float32": "complex64", "float64": "complex128"}
FIELDS = ("dtype", "acc_dtype", "out_dtype")


def other_dtype(dtype: str, precision: str) -> str:
    """Return what a type of element becomes in a precision.

    Examples
    --------
    >>> [other_dtype(name, "float32") for name in ("float64", "complex128", "int64")]
    ['float32', 'complex64', 'int64']
    """
    floats, complexes = FAMILIES
    if dtype in floats:
        return precision
    return COMPLEX[precision] if dtype in complexes else dtype


def other_value(value: Any, precision: str) -> Any:
    """Return the value of an input or a constant in a precision."""
    dtype = getattr(value, "dtype", None)
    wanted = dtype if dtype is None else other_dtype(str(dtype), precision)
    return value if wanted == dtype else value.astype(wanted)


def recast(
    inputs: Sequence[Variable], outputs: Sequence[Variable], precision: str
) -> dict[Variable, Variable]:
    """Rebuild a graph so that every floating-point variable has one precision.

    The result maps each variable of the graph to the one that stands for it.

    `precision`: one of "float32", "float64".
    """
    new = {v: _new_input(v, precision) for v in inputs}
    # What PyTensor makes of integers, as in log(2), depends on the configuration.
    with config.change_flags(floatX=precision):
        for node in toposort(outputs, blockers=inputs):
            for v in node.inputs:
                if isinstance(v, Constant):
                    new.setdefault(v, _new_constant(v, precision))
            outs = _new_outputs(node.op, node, [new[v] for v in node.inputs], precision)
            for old, out in zip(node.outputs, outs, strict=True):
                new[old] = _cast(out, _dtype_in(old, precision))
                new[old].name = old.name
    return new


def _dtype_in(variable: Variable, precision: str) -> str | None:
    dtype = getattr(variable.type, "dtype", None)
    return None if dtype is None else other_dtype(dtype, precision)


def _new_input(variable: Variable, precision: str) -> Variable:
    dtype = _dtype_in(variable, precision)
    same = dtype == getattr(variable.type, "dtype", None)
    kind = variable.type if same else variable.type.clone(dtype=dtype)
    return kind(name=variable.name)


def _new_constant(constant: Constant, precision: str) -> Constant:
    data = other_value(constant.data, precision)
    if data is constant.data:
        return constant
    kind = constant.type.clone(dtype=str(data.dtype))
    return kind.make_constant(data, name=constant.name)


def _cast(variable: Variable, dtype: str | None) -> Variable:
    if dtype is None or variable.type.dtype == dtype:
        return variable
    if isinstance(variable.type, SparseTensorType):
        return cast_sparse(variable, dtype)
    return pt.cast(variable, dtype) if isinstance(variable.type, TensorType) else variable


@singledispatch
def _new_outputs(op: Op, node: Apply, inputs: Sequence[Variable], precision: str) -> list[Variable]:
    """Return the outputs of `node` for inputs of another precision."""
    fields = {n: d for n in FIELDS if isinstance(d := getattr(op, n, None), str)}
    other = {n: other_dtype(d, precision) for n, d in fields.items()}
    if other != fields:
        op = copy(op)
        vars(op).update(other)
    try:
        return op.make_node(*inputs).outputs
    except (TypeError, ValueError, NotImplementedError):
        # An op that insists on its types computes in them.
        inputs = [_cast(v, getattr(old.type, "dtype", None)) for v, old in _pairs(inputs, node)]
        return node.op.make_node(*inputs).outputs


def _pairs(inputs: Sequence[Variable], node: Apply) -> Iterable[tuple[Variable, Variable]]:
    return zip(inputs, node.inputs, strict=True)


@_new_outputs.register
def _of_elemwise(
    op: Elemwise, node: Apply, inputs: Sequence[Variable], precision: str
) -> list[Variable]:
    if not isinstance(op.scalar_op, ps.Composite):
        return _applied(op.scalar_op, inputs, node.outputs, precision)
    # Of a compiled graph: each operation inside is to round by itself.
    return unfused(
        op.scalar_op,
        inputs,
        lambda data: other_value(data, precision),
        lambda scalar, values: _applied(scalar.op, values, scalar.outputs, precision),
    )


def unfused(
    composite: ps.Composite,
    inputs: Sequence[Variable],
    constant: Callable = lambda data: data,
    apply: Callable | None = None,
) -> list[Variable]:
    """Return the outputs of a fused operation, made of the operations inside.

    `constant`: ``constant(data)`` returns what the data of a constant become.
    `apply`: ``apply(scalar_node, inputs)`` returns the outputs of one operation.
    """
    apply = apply or (lambda scalar, values: Elemwise(scalar.op).make_node(*values).outputs)
    inner = composite.fgraph
    known = dict(zip(inner.inputs, inputs, strict=True))
    for scalar in inner.toposort():
        for v in scalar.inputs:
            if isinstance(v, Constant):
                known[v] = pt.as_tensor(constant(v.data))
        outputs = apply(scalar, [known[v] for v in scalar.inputs])
        known.update(zip(scalar.outputs, outputs, strict=True))
    return [known[v] for v in inner.outputs]


def _applied(
    scalar_op: ps.ScalarOp, inputs: Sequence[Variable], outputs: Sequence[Variable], precision: str
) -> list[Variable]:
    if isinstance(scalar_op, ps.Cast):
        return [_cast(inputs[0], _dtype_in(outputs[0], precision))]
    return Elemwise(scalar_op).make_node(*inputs).outputs


@_new_outputs.register
def _of_inner_graph(
    op: OpFromGraph, node: Apply, inputs: Sequence[Variable], precision: str
) -> list[Variable]:
    inner = recast(op.inner_inputs, op.inner_outputs, precision)
    known = {inner[v]: new for v, new in zip(op.inner_inputs, inputs, strict=True)}
    return clone_replace([inner[v] for v in op.inner_outputs], known)


@_new_outputs.register
def _of_scan(op: Scan, node: Apply, inputs: Sequence[Variable], precision: str) -> list[Variable]:
    inner = recast(op.inner_inputs, op.inner_outputs, precision)
    new_inputs = [inner[v] for v in op.inner_inputs]
    new = scan_of(op, new_inputs, [inner[v] for v in op.inner_outputs])
    return new.make_node(*inputs).outputs
