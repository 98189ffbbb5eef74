"""Disable rewrites of PyTensor that Theano does not have and that make compiling slow.

They check for each product whether an operand is a diagonal, a permutation or an orthogonal
matrix.  They repeat this check after every change of the graph.
"""

from dataclasses import dataclass

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.db import RewriteDatabase

from theanoguard._pytensor import withhold_rewrite


@dataclass(frozen=True)
class Withheld:
    """A rewrite that is removed from its database while the shim is installed."""

    database: RewriteDatabase
    name: str

    def apply(self):
        """Remove the rewrite, and return a function that restores it."""
        return withhold_rewrite(self.database, self.name)


PATCHES = [
    Withheld(optdb[phase], name)
    for phase in ("canonicalize", "stabilize")
    for name in (
        "dot_diag_to_elemwise",
        "orthogonal_dot_transpose_to_eye",
        "selection_dot_to_indexing",
    )
]
