"""The PyTorch functions that compute the flag; imported only when a function is compiled."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from theanoguard._evaluate.replay import Kernels
from theanoguard._pytensor import CheckedBody, Scan, inner_graphs, rewritten_3_0
from theanoguard.guard.graph.checks import floor_to
from theanoguard.guard.graph.ops import Flag, Watched
from theanoguard.guard.policy import Policy
from theanoguard.guard.pytorch._pytensor import pytorch_funcify, pytorch_typify
from theanoguard.guard.verdict import suspected
from theanoguard.operations import Kind
from theanoguard.operations.regions import Arrays


def graphs_inside(node: Apply) -> Sequence[FunctionGraph]:
    """Return the graphs that PyTorch compiles for a node, within the function that it is in."""
    if isinstance(node.op, Scan):
        return []  # PyTensor cannot convert it
    return inner_graphs(
        node.op, pytorch_funcify.dispatch, partial(rewritten_3_0, node.op, "PYTORCH")
    )


# ---------------------------------------------------------------- is anything bad?


def bad_elements(watched: Watched, policy: Policy, v: Any) -> Any:
    """Return the mask of the bad elements of a tensor, whatever its operands were."""
    if watched == Watched():  # the flag of an inner graph
        return v != 0
    nan = Kind.NAN in watched.kind or (watched.big and policy.nan)
    inf = Kind.INF in watched.kind or watched.big
    if not inf:
        return torch.isnan(v)
    if v.is_complex() and not watched.big:  # the magnitude of finite parts may overflow
        return ~torch.isfinite(v) if nan else torch.isinf(v) & ~torch.isnan(v)
    # PyTorch's compiler makes faster code of a comparison than of ``isfinite``.
    size, limit = magnitude(v, policy.big_threshold if watched.big else np.inf)
    return ~(size <= limit) if nan else size > limit


def magnitude(v: Any, limit: float) -> tuple[Any, float]:
    """Return the magnitudes of a tensor's elements, and the largest magnitude that is not big."""
    if not is_inexact(v):
        v = v.to(torch.float64)
    size = v.abs()
    return size, float(floor_to(limit, np.dtype(str(size.dtype).removeprefix("torch.")).type))


def is_inexact(v: Any) -> bool:
    return v.is_floating_point() or v.is_complex()


class TorchArrays(Arrays):
    """Arrays of marks in code that PyTorch compiles."""

    xp = torch

    def run(self, node: Apply, values: list[Any], output: int = 0) -> Any:
        results = pytorch_funcify(node.op, node=node)(*values)
        return results if len(node.outputs) == 1 else results[output]

    def as_numbers(self, mask: Any) -> Any:
        return mask.to(torch.float32)

    def exceeds(self, value: Any, limit: float) -> Any:
        size, limit = magnitude(value, limit)
        return size > limit


ARRAYS = TorchArrays()


# ---------------------------------------------------------------- one flag


@pytorch_funcify.register(Flag)
def pytorch_funcify_flag(op: Op, **kwargs: Any) -> Callable:
    def flag(*inputs: Any) -> Any:
        groups, _ = op.grouped(inputs)
        found = [
            bad_elements(watched, op.policy, torch.as_tensor(v))
            if watched.node is None
            else suspected(
                ARRAYS, watched.node, operands, watched.output, torch.as_tensor(v), op.policy
            )
            for watched, v, operands in groups
        ]
        if not found:
            return torch.zeros((), dtype=torch.int32)
        return torch.stack([mask.any() for mask in found]).any().to(torch.int32)

    # The compiler records the tensor operations of this function instead of reading its code.
    return torch.compiler.allow_in_graph(flag)


@pytorch_funcify.register(CheckedBody)
def pytorch_funcify_checked_body(
    op: Op,
    node: Apply | None = None,
    storage_map: Mapping[Variable, list] | None = None,
    **kwargs: Any,
) -> Callable:
    return pytorch_funcify(op.fgraph, **kwargs, squeeze_output=True)


# ---------------------------------------------------------------- replaying a call


class TorchKernels(Kernels):
    """Callables that compute the outputs of a node as PyTorch does, without compiling them."""

    def runs_whole(self, node: Apply) -> bool:
        return isinstance(node.op, OpFromGraph) and not graphs_inside(node)

    def _make(self, node: Apply) -> Callable[[list], list]:
        constants = {v: [v.data] for v in node.inputs if isinstance(v, Constant)}
        computed = pytorch_funcify(node.op, node=node, storage_map=constants)

        def kernel(values: list) -> list:
            results = computed(*map(as_tensor, values))
            results = [results] if len(node.outputs) == 1 else results
            return [as_numpy(v, x) for v, x in zip(node.outputs, results, strict=True)]

        return kernel


def as_tensor(value: Any) -> Any:
    """Return an array as a tensor on the device that PyTorch computes on."""
    return pytorch_typify(value) if isinstance(value, np.ndarray) else value


def as_numpy(variable: Variable, value: Any) -> Any:
    """Return the value of a variable in the type that PyTensor gives it."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().cpu().numpy().astype(variable.type.dtype, copy=False)
