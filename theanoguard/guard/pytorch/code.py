"""The PyTorch functions that compute the flag; imported only when a function is compiled."""

from functools import partial, singledispatch

import numpy as np
import torch
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.link.pytorch.dispatch import pytorch_funcify, pytorch_typify
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard._evaluate.replay import Kernels
from theanoguard._facts import Kind
from theanoguard._pytensor import CheckedBody, advanced_increment_ops, inner_graphs_for_pytorch
from theanoguard.guard.graph.checks import floor_to, has_elements
from theanoguard.guard.graph.ops import Flag, Watched

inner_graphs = partial(inner_graphs_for_pytorch, compiled_by=pytorch_funcify.dispatch)


# ---------------------------------------------------------------- is anything bad?


def bad_elements(watched, policy, v):
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
    size, limit = magnitude(v, policy.limit if watched.big else np.inf)
    return ~(size <= limit) if nan else size > limit


def magnitude(v, limit):
    """Return the magnitudes of a tensor's elements, and the largest magnitude that is not big."""
    if not is_inexact(v):
        v = v.to(torch.float64)
    size = v.abs()
    return size, float(floor_to(limit, np.dtype(str(size.dtype).removeprefix("torch.")).type))


def is_inexact(v):
    return v.is_floating_point() or v.is_complex()


# ---------------------------------------------------------------- which elements a node made bad


def made(policy, node, v, operands):
    """Return the mask of the elements that a node has made bad, as ``verdict.made_bad`` does."""
    found = kinds(policy, v)
    if policy.anywhere:
        return found["nan"] | found["inf"] | found["big"]
    given = [
        kinds(policy, torch.as_tensor(x), everything=True) if has_elements(variable) else None
        for variable, x in zip(node.inputs, operands, strict=True)
    ]
    excuses = {
        "nan": [  # a NaN in a constant does not excuse a NaN in the result
            g and (torch.zeros_like(g["nan"]) if isinstance(variable, Constant) else g["nan"])
            for variable, g in zip(node.inputs, given, strict=True)
        ],
        "inf": [g and g["inf"] for g in given],
        "big": [g and g["inf"] | g["big"] for g in given],
    }
    result = torch.zeros_like(v, dtype=torch.bool)
    for kind, mask in found.items():
        if getattr(policy, kind):
            result = result | mask & ~reached(node.op, node, operands, excuses[kind], v)
    return result


def kinds(policy, v, everything=False):
    """Return masks by kind, as ``Policy.kinds`` does."""
    nan = inf = big = torch.zeros_like(v, dtype=torch.bool)
    if is_inexact(v):
        is_nan = torch.isnan(v)
        nan = is_nan if policy.nan or everything else nan
        inf = torch.isinf(v) & ~is_nan if policy.inf or everything else inf
    if policy.big and (is_inexact(v) or policy.integers):
        size, limit = magnitude(v, policy.limit)
        big = (size > limit) & ~inf
    return {"nan": nan, "inf": inf, "big": big}


@singledispatch
def reached(op, node, operands, masks, output):
    """Return which elements of an output were computed from a marked element of an operand.

    Parameters
    ----------
    op : Op
        ``node.op``, on which the rule is dispatched.  Without a rule, each output element depends
        on all elements of all operands.
    node : Apply
    operands : list of Tensor
    masks : list of (Tensor or None)
        The marked elements of each operand.
    output : Tensor
    """
    known = [mask.any() for mask in masks if mask is not None]
    found = torch.stack(known).any() if known else torch.zeros((), dtype=torch.bool)
    return found.expand(output.shape)


@reached.register
def _(op: Elemwise, node, operands, masks, output):
    result = torch.zeros_like(output, dtype=torch.bool)
    for mask in masks:
        result = result if mask is None else result | mask
    return result


@reached.register
def _(op: CAReduce, node, operands, masks, output):
    [mask] = masks
    axes = range(mask.ndim) if op.axis is None else op.axis
    for axis in sorted(axes, reverse=True):
        mask = mask.any(axis)
    return mask


@reached.register(Softmax)
@reached.register(LogSoftmax)
def _(op, node, operands, masks, output):
    [mask] = masks
    for axis in range(mask.ndim) if op.axis is None else op.axis:
        mask = mask.any(axis, keepdim=True)
    return mask.expand(output.shape)


@reached.register(Dot)
@reached.register(BatchedDot)
def _product(op, node, operands, masks, output):
    left, right = masks[:2]
    rows = left.any(-1)
    columns = right.any(-2 if right.ndim > 1 else 0)
    if left.ndim > 1 and right.ndim > 1:
        return rows[..., :, None] | columns[..., None, :]
    return rows | columns


@reached.register
def _(op: Blockwise, node, operands, masks, output):
    rule = _product if isinstance(op.core_op, Dot) else reached.dispatch(object)
    return rule(op, node, operands, masks, output)


@reached.register(IncSubtensor)
def _written(op, node, operands, masks, output):
    """The rule for operations that write or add to elements: run them on the marks."""
    marks = [mask.to(output.dtype) for mask in masks[:2]]
    return pytorch_funcify(op, node=node)(*marks, *operands[2:]) != 0


for _op in advanced_increment_ops:
    reached.register(_op, _written)


# ---------------------------------------------------------------- one flag


@pytorch_funcify.register(Flag)
def pytorch_funcify_flag(op, **kwargs):
    def flag(*inputs):
        groups, _ = op.grouped(inputs)
        found = [
            bad_elements(watched, op.policy, torch.as_tensor(v))
            if watched.node is None
            else made(op.policy, watched.node, torch.as_tensor(v), operands)
            for watched, v, operands in groups
        ]
        if not found:
            return torch.zeros((), dtype=torch.int32)
        return torch.stack([mask.any() for mask in found]).any().to(torch.int32)

    # The compiler records the tensor operations of this function instead of reading its code.
    return torch.compiler.allow_in_graph(flag)


@pytorch_funcify.register(CheckedBody)
def pytorch_funcify_checked_body(op, node=None, storage_map=None, **kwargs):
    return pytorch_funcify(op.fgraph, **kwargs, squeeze_output=True)


# ---------------------------------------------------------------- replaying a call


class TorchKernels(Kernels):
    """Callables that compute the outputs of a node as PyTorch does, without compiling them."""

    def runs_whole(self, node):
        return isinstance(node.op, OpFromGraph) and not inner_graphs(node)

    def _make(self, node):
        constants = {v: [v.data] for v in node.inputs if isinstance(v, Constant)}
        computed = pytorch_funcify(node.op, node=node, storage_map=constants)

        def kernel(values):
            results = computed(*map(as_tensor, values))
            results = [results] if len(node.outputs) == 1 else results
            return [as_numpy(v, x) for v, x in zip(node.outputs, results, strict=True)]

        return kernel


def as_tensor(value):
    """Return an array as a tensor on the device that PyTorch computes on."""
    return pytorch_typify(value) if isinstance(value, np.ndarray) else value


def as_numpy(variable, value):
    """Return the value of a variable in the type that PyTensor gives it."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().cpu().numpy().astype(variable.type.dtype, copy=False)


def device():
    """Return the device on which PyTorch runs PyTensor's functions."""
    return torch.get_default_device()
