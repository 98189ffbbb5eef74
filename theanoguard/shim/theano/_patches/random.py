"""Overwrite random states in place if nothing else reads them."""

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import copy_stack_trace, dfs_rewriter, node_rewriter

from ..sandbox.rng_mrg import mrg_uniform
from ..tensor.raw_random import RandomFunction
from ..tensor.shared_randomstreams import RandomStreams as RandomStreams  # has a constructor
from . import Rewrite


@node_rewriter([mrg_uniform, RandomFunction], inplace=True)
def overwrite_random_state(fgraph, node):
    """Replace an op that draws random numbers by one that overwrites its random state."""
    if node.op.inplace:
        return None
    properties = {name: getattr(node.op, name) for name in node.op.__props__}
    outputs = type(node.op)(**properties | {"inplace": True}).make_node(*node.inputs).outputs
    copy_stack_trace(node.outputs, outputs)
    return outputs


PATCHES = [
    Rewrite(
        optdb,
        "theano_overwrite_random_state",
        dfs_rewriter(overwrite_random_state, ignore_newtrees=True),
        ("fast_run", "inplace"),
        {"position": 99},
    )
]
