"""Databases of rewrites."""

import math

from pytensor.graph.rewriting import db

from .opt import LocalOptGroup

DB = db.RewriteDatabase
EquilibriumDB = db.EquilibriumDB
SequenceDB = db.SequenceDB


class Query(db.RewriteDatabaseQuery):
    """Which rewrites to take from a database."""

    def __init__(
        self,
        include,
        require=None,
        exclude=None,
        subquery=None,
        position_cutoff=math.inf,
        extra_optimizations=None,
    ):
        super().__init__(include, require, exclude, subquery, position_cutoff, extra_optimizations)

    @property
    def extra_optimizations(self):
        return self.extra_rewrites


class LocalGroupDB(db.LocalGroupDB):
    """A database whose rewrites of nodes are applied as one."""

    def __init__(self, apply_all_opts=False, profile=False, local_opt=LocalOptGroup):
        super().__init__(apply_all_opts, profile, local_opt)


def register_at(self, name, obj, *tags, **kwargs):
    """Register in a SequenceDB: Theano's third argument is the position, PyTensor's a tag."""
    if "position" not in kwargs and tags and (tags[0] == "last" or not isinstance(tags[0], str)):
        kwargs["position"], *tags = tags
    return _register_in_sequence(self, name, obj, *tags, **kwargs)


def register_final(self, name, obj, *tags, final_opt=False, **kwargs):
    """Register in an EquilibriumDB: Theano's `final_opt` is PyTensor's `final_rewriter`."""
    final = final_opt or kwargs.pop("final_rewriter", False)
    return _register_in_equilibrium(self, name, obj, *tags, final_rewriter=final, **kwargs)


_register_in_sequence = db.SequenceDB.register
_register_in_equilibrium = db.EquilibriumDB.register
