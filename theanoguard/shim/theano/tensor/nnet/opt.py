"""Rewrites that choose how convolutions are computed, and work in place."""

from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.math import eq

from ...configdefaults import config
from ..basic import patternbroadcast
from . import corr, corr3d  # noqa: F401  both put their operations into the table
from .abstract_conv import (
    AbstractConv2d,
    AbstractConv2d_gradInputs,
    AbstractConv2d_gradWeights,
    AbstractConv3d,
    AbstractConv3d_gradInputs,
    AbstractConv3d_gradWeights,
)
from .blocksparse import (
    SparseBlockGemv,
    SparseBlockOuter,
    sparse_block_gemv_inplace,
    sparse_block_outer_inplace,
)
from .conv import ConvOp


@node_rewriter([SparseBlockGemv], inplace=True)
def local_inplace_sparse_block_gemv(fgraph, node):
    """Work in place."""
    if node.op.inplace:
        return None
    new = sparse_block_gemv_inplace(*node.inputs)
    copy_stack_trace(node.outputs[0], new)
    return [new]


@node_rewriter([SparseBlockOuter], inplace=True)
def local_inplace_sparse_block_outer(fgraph, node):
    """Work in place."""
    if node.op.inplace:
        return None
    new = sparse_block_outer_inplace(*node.inputs)
    copy_stack_trace(node.outputs[0], new)
    return [new]


def _gemm_rewrite(abstract, direction, filters=None):
    """Return a rewrite of an abstract convolution by im2col and gemm.

    Parameters
    ----------
    abstract : type
        The operation that is replaced.
    direction : {"forward", "weights", "inputs"}
    filters : int, optional
        Which input are the filters; they are the output where this is None.
    """

    @node_rewriter([abstract])
    def rewrite(fgraph, node):
        # Without a compiler, and for other dtypes, the abstract operation computes by itself.
        if not config.cxx or node.outputs[0].dtype not in ("float32", "float64"):
            return None
        op, inputs = node.op, list(node.inputs)
        if filters is not None:
            inputs[filters] = op.flip(inputs[filters])
        if len(inputs) == 3 and inputs[2].owner and isinstance(inputs[2].owner.op, MakeVector):
            inputs[2] = inputs[2].owner.inputs  # sparing the function to take it apart
        settings = {
            name: getattr(op, name)
            for name in ("border_mode", "subsample", "filter_dilation", "num_groups")
        }
        if op.convdim == 2:
            settings["unshared"] = op.unshared
        new = corr._OPS[direction, op.convdim](**settings)(*inputs)
        copy_stack_trace(node.outputs[0], new)
        if filters is None:
            new = op.flip(new)
            copy_stack_trace(node.outputs[0], new)
        new = patternbroadcast(new.astype(node.outputs[0].dtype), node.outputs[0].broadcastable)
        copy_stack_trace(node.outputs[0], new)
        return [new]

    return rewrite


local_abstractconv_gemm = _gemm_rewrite(AbstractConv2d, "forward", 1)
local_abstractconv3d_gemm = _gemm_rewrite(AbstractConv3d, "forward", 1)
local_abstractconv_gradweight_gemm = _gemm_rewrite(AbstractConv2d_gradWeights, "weights")
local_abstractconv3d_gradweight_gemm = _gemm_rewrite(AbstractConv3d_gradWeights, "weights")
local_abstractconv_gradinputs_gemm = _gemm_rewrite(AbstractConv2d_gradInputs, "inputs", 0)
local_abstractconv3d_gradinputs_gemm = _gemm_rewrite(AbstractConv3d_gradInputs, "inputs", 0)


def _checked(variable, expected, name):
    """Return `variable`, raising ValueError where its shape is not as expected."""
    tests = [eq(variable.shape[i], size) for i, size in enumerate(expected) if size is not None]
    if not tests:
        return variable
    message = (
        f"The {name} shape provided at build time, {expected}, "
        "is different from the one passed at run time"
    )
    return CheckAndRaise(ValueError, message)(variable, *tests)


@node_rewriter([ConvOp])
def local_convop_gemm(fgraph, node):
    """Compute the old convolution by im2col and gemm, too."""
    op = node.op
    if not config.cxx or node.outputs[0].dtype not in ("float32", "float64") or not op.is_plain:
        return None
    image, kernel = (
        _checked(variable, shape, name)
        for variable, shape, name in zip(
            node.inputs, op.expected_shapes(), ("image", "filter"), strict=True
        )
    )
    new = corr.CorrMM(op.out_mode, (op.dx, op.dy))(image, kernel[:, :, ::-1, ::-1])
    new = patternbroadcast(new, node.outputs[0].broadcastable)
    copy_stack_trace(node.outputs[0], new)
    return [new]
