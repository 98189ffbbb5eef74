"""Theano's rewrites for neural networks: stable cross-entropies, and convolutions."""

from functools import wraps

from pytensor.compile.mode import optdb
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import WalkingGraphRewriter
from pytensor.graph.rewriting.db import EquilibriumDB
from pytensor.tensor.basic import Alloc, switch
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.rewriting.math import (
    local_div_switch_sink,
    local_mul_canonizer,
    local_mul_switch_sink,
)

from ..tensor import _one_node
from ..tensor.nnet import bn, conv3d2d, nnet, opt, sigm
from ..tensor.sort import local_sort_in_pytensor
from . import Patch, Rewrite

BOTH = ("fast_run", "fast_compile")
FAST_COMPILE = ("fast_compile", "fast_compile_gpu")


def device_rewrites():
    """Return the database of rewrites that replace abstract operations, after all others."""
    database = EquilibriumDB()
    for name, tags in {
        "local_abstractconv_gemm": ("conv_gemm",),
        "local_abstractconv_gradweight_gemm": ("conv_gemm",),
        "local_abstractconv_gradinputs_gemm": ("conv_gemm",),
        "local_abstractconv3d_gemm": ("conv_gemm",),
        "local_abstractconv3d_gradweight_gemm": ("conv_gemm",),
        "local_abstractconv3d_gradinputs_gemm": ("conv_gemm",),
        "local_convop_gemm": ("conv_gemm",),
    }.items():
        database.register(name, getattr(opt, name), *tags, *BOTH)
    database.register(
        "local_abstract_batch_norm", bn.local_abstract_batch_norm, "batchnorm_opts", *BOTH
    )
    return database


# The rewrites by phase of PyTensor's rewriting, with their tags other than the name of the phase.
# Two of them have the same name as rewrites of PyTensor's own softmax.  Theano's own tag for these,
# `fast_compile_gpu`, chooses them in its mode FAST_COMPILE on any device.
PHASES = {
    "canonicalize": {
        "local_broadcast_of_one_length": ("fast_compile",),
        "local_useless_crossentropy_softmax_1hot_with_bias_dx_alloc": (),
    },
    "stabilize": {
        "crossentropy_to_crossentropy_with_softmax_with_bias": (),
        "local_useless_crossentropy_softmax_1hot_with_bias_dx_alloc": (),
    },
    "specialize": {
        "theano_local_logsoftmax": ("stabilize", *FAST_COMPILE),
        "theano_local_logsoftmax_grad": ("stabilize", *FAST_COMPILE),
        "local_softmax_with_bias": FAST_COMPILE,
        "crossentropy_to_crossentropy_with_softmax_with_bias": FAST_COMPILE,
        "local_softmax_grad_to_crossentropy_with_softmax_grad": FAST_COMPILE,
        "local_argmax_pushdown": FAST_COMPILE,
        "local_advanced_indexing_crossentropy_onehot": FAST_COMPILE,
        "local_advanced_indexing_crossentropy_onehot_grad": FAST_COMPILE,
        "graph_merge_softmax_with_crossentropy_softmax": FAST_COMPILE,
        "local_useless_crossentropy_softmax_1hot_with_bias_dx_alloc": (),
    },
}


def known_zeros_only(sink):
    """Return a rewrite that moves factors into a ``switch`` only where its other branch is folded.

    In a gradient a zero is first a number that is broadcast.  Theano leaves its ``switch`` alone
    until the constants are folded, and the factors of the gradient have met each other by then.
    """

    @wraps(sink)
    def rewrite(fgraph, node):
        branches = [
            branch
            for factor in node.inputs
            if factor.owner and factor.owner.op == switch
            for branch in factor.owner.inputs[1:]
        ]
        waits = any(
            branch.owner
            and isinstance(branch.owner.op, DimShuffle | Alloc)
            and isinstance(branch.owner.inputs[0], Constant)
            for branch in branches
        )
        return None if waits else sink(fgraph, node)

    return rewrite


PATCHES = [
    *(
        Patch(sink, "fn", known_zeros_only(sink.fn))
        for sink in (local_mul_switch_sink, local_div_switch_sink)
    ),
    *(
        Rewrite(
            optdb[phase], name, getattr(nnet, name.removeprefix("theano_")), ("fast_run", *tags)
        )
        for phase, rewrites in PHASES.items()
        for name, tags in rewrites.items()
    ),
    Rewrite(
        optdb["canonicalize"],
        "theano_simple_dot",
        _one_node.local_simple_dot_in_pytensor,
        BOTH,
    ),
    Rewrite(optdb["stabilize"], "log1pexp_to_softplus", sigm.log1pexp_to_softplus, ("fast_run",)),
    *(
        # These run only if a mode includes them by name.
        Rewrite(
            optdb["uncanonicalize"], name, getattr(sigm, name), (), {"use_db_name_as_tag": False}
        )
        for name in ("local_ultra_fast_sigmoid", "local_hard_sigmoid")
    ),
    Patch(
        local_mul_canonizer,
        "external_simplifiers",
        [
            *local_mul_canonizer.external_simplifiers,
            ("softmax_simplifier", nnet.softmax_simplifier),
        ],
    ),
    Rewrite(
        optdb,
        "crossentropy_to_crossentropy_with_softmax",
        nnet.crossentropy_to_crossentropy_with_softmax,
        ("fast_run", *FAST_COMPILE, "xent"),
        {"position": 2.01},
    ),
    *(
        Rewrite(optdb, name, WalkingGraphRewriter(rewriter), BOTH, {"position": position})
        for name, rewriter, position in (
            ("theano_one_node", _one_node.local_in_pytensor, 0.005),
            # Position before BLAS.  PyTensor's product adds dimensions to its operands, which would
            # hide from the rewrites of `canonicalize` that two factors are the same variable.
            ("theano_dot", _one_node.local_dot_in_pytensor, 1.6),
        )
    ),
    Rewrite(
        optdb,
        "theano_sort",
        WalkingGraphRewriter(local_sort_in_pytensor),
        BOTH,
        {"position": 0.005},
    ),
    *(
        Rewrite(
            optdb,
            rewriter.__name__,
            WalkingGraphRewriter(rewriter),
            ("fast_run",),
            {"position": position},
        )
        for rewriter, position in (
            (nnet.local_row_numbers, 0.006),
            # Position after the last rewrite that matches a cross-entropy.
            (nnet.local_arange_of_row_numbers, 2.02),
        )
    ),
    Rewrite(optdb, "specialize_device", device_rewrites(), BOTH, {"position": 48.6}),
    *(
        Rewrite(
            optdb,
            rewriter.__name__,
            WalkingGraphRewriter(rewriter, failure_callback=WalkingGraphRewriter.warn_inplace),
            ("fast_run", "inplace"),
            {"position": 60},
        )
        for rewriter in (
            opt.local_inplace_sparse_block_gemv,
            opt.local_inplace_sparse_block_outer,
            conv3d2d.local_inplace_DiagonalSubtensor,
        )
    ),
]
