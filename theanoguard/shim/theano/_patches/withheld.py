"""Disable rewrites of PyTensor that Theano does not run, in the phases where they do harm.

In `canonicalize` a product of a column and a row becomes a multiplication, and ``fill(x, 1)``
becomes 1 in the whole graph at once.  The factors of the gradients around them then do not cancel,
and a saturated unit has the gradient NaN.

Other rewrites make compiling slow.  Some check for each product whether an operand is a diagonal,
a permutation or an orthogonal matrix.  They repeat this check after every change of the graph.
With ``optimizer=fast_compile``, PyTensor runs all of its canonicalizations, and Theano nine of
them.
"""

from dataclasses import dataclass

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.tensor.rewriting.basic import local_second_sink

from theanoguard._pytensor.for_theano import untag_rewrites, withhold_rewrite

from . import Rewrite


@dataclass(frozen=True)
class Withheld:
    """A rewrite that is removed from its database while the shim is installed."""

    database: RewriteDatabase
    name: str

    def apply(self):
        """Remove the rewrite, and return a function that restores it."""
        return withhold_rewrite(self.database, self.name)


@dataclass(frozen=True)
class Untagged:
    """A tag that only some rewrites of a database keep while the shim is installed."""

    database: RewriteDatabase
    tag: str
    kept: tuple

    def apply(self):
        """Take the tag from the other rewrites, and return a function that gives it back."""
        return untag_rewrites(self.database, self.tag, self.kept)


PATCHES = [
    Untagged(
        optdb["canonicalize"],
        "fast_compile",
        (
            # Theano's fast_compile has these.
            "merge",
            "local_useless_fill",
            "local_useless_elemwise",
            "local_subtensor_make_vector",
            "local_useless_switch",
            "local_useless_reduce",
            "topo_constant_folding",
            "local_view_op",
            "local_dense_from_sparse_sparse_from_dense",
            # These remove operations that Theano does not have.
            "local_broadcast_of_one_length",
            "local_drain_specify_assumptions",
            "local_eager_useless_unbatched_blockwise",
            "sidestep_unused_rng_consumer",
        ),
    ),
    # Theano's fast_compile makes no expression stable but those of softmax.
    Untagged(optdb["stabilize"], "fast_compile", ("local_drain_specify_assumptions",)),
    *(Withheld(optdb["canonicalize"], name) for name in ("local_dot_to_mul", "local_second_sink")),
    # Theano's rewrite takes one step at a time.
    Rewrite(optdb["canonicalize"], "local_fill_sink", local_second_sink, ("fast_run",)),
    *(
        Withheld(optdb[phase], name)
        for phase in ("canonicalize", "stabilize")
        for name in (
            "dot_diag_to_elemwise",
            "orthogonal_dot_transpose_to_eye",
            "selection_dot_to_indexing",
        )
    ),
]
