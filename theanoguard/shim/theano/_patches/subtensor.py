"""Give indexing Ops Theano's ``idx_list``, which has types where PyTensor's has numbers.

A value that is written to the places of a vector of indices is broadcast as in Theano.  And as in
Theano, ``set_subtensor(x[i], x[i] + y)`` adds all of `y` where the vector `i` repeats an index.
"""

import re
from functools import wraps
from operator import attrgetter

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.graph.type import Type
from pytensor.scalar.basic import Add, ScalarType, get_scalar_type, int64
from pytensor.sparse import construct_sparse_from_list
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.exceptions import AdvancedIndexingError
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    get_constant_idx,
    inc_subtensor,
)

from theanoguard._pytensor.for_theano import (
    advanced_increment_ops,
    advanced_subtensor_ops,
    increment_broadcast_checks,
)

from ..tensor.subtensor import AdvancedIncSubtensor1, each_part, places_of_indices
from . import Patch, called_by_pytensor
from .pickles import hold_pairs, index, numbered


@property
def idx_list(self):
    """The index list.  Where PyTensor has the number of an input, Theano has its type."""
    entries = vars(self).get("idx_list")
    if entries is None:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute 'idx_list'")
    if called_by_pytensor():
        return entries
    types = vars(self).get("_index_types", ())

    def type_of(number):
        return types[number] if number < len(types) else int64

    return tuple(each_part(type_of, entry) for entry in entries)


@idx_list.setter
def idx_list(self, entries):
    """Store the index list in PyTensor's form."""
    vars(self)["idx_list"] = tuple(entries)


def collapse(idxs, cond):
    """Return those indices, and parts of slices, for which `cond` is true."""
    found = []
    for entry in idxs:
        if cond(entry):
            found.append(entry)
        elif isinstance(entry, slice):
            found += filter(cond, (entry.start, entry.stop, entry.step))
    return found


def convert(entry, slice_ok=True):
    """Return the types of the variables in an index."""
    if slice_ok and isinstance(entry, slice):
        return each_part(convert, entry)
    if isinstance(entry, int | np.integer):
        raise TypeError("Python scalar in idx_list.")
    type = entry.type if isinstance(entry, Variable) else entry
    if not isinstance(type, Type) or getattr(type, "ndim", 0) or not hasattr(type, "dtype"):
        raise AdvancedIndexingError(f"Indices are integers or slices of them, not {entry}")
    if not type.dtype.startswith("int"):
        raise TypeError(f"Expected an integer, not {entry}")
    return type if isinstance(type, ScalarType) else get_scalar_type(type.dtype)


def constant_idx(self, inputs, allow_partial=False, only_process_constants=False, elemwise=True):
    """Return the indices as numbers; with `allow_partial` those that vary as variables."""
    entries = vars(self)["idx_list"]
    return get_constant_idx(entries, inputs, allow_partial, only_process_constants, elemwise)


def initialized(initialize):
    """Return an ``__init__`` that also accepts an index list in Theano's form."""

    @wraps(initialize)
    def init(self, idx_list, *args, **kwargs):
        if collapse(idx_list, lambda part: isinstance(part, Type | Variable)):
            idx_list = numbered(idx_list)
        initialize(self, idx_list, *args, **kwargs)
        hold_pairs(self)

    return init


def remembering(make_node, first, type_of=lambda index: get_scalar_type(index.type.dtype)):
    """Return a ``make_node`` that lets the Op remember the types of the indices.

    They are no part of its identity, which PyTensor's rewrites rely on.

    Parameters
    ----------
    make_node : callable
    first : int
        The number of the first input that is an index.
    type_of : callable
        The type that is remembered of an index.
    """

    @wraps(make_node)
    def make_remembered_node(self, *inputs):
        node = make_node(self, *inputs)
        vars(self)["_index_types"] = tuple(map(type_of, node.inputs[first:]))
        return node

    return make_remembered_node


def allow_broadcast(*_args):
    """Never raise: Theano broadcasts the written value as NumPy does, whatever its type."""


def broadcast_c_code(c_code):
    """Return C code in which a vector of length 1 is written to the places of all indices."""

    @wraps(c_code)
    def broadcast(self, node, name, inputs, outputs, sub):
        code = c_code(self, node, name, inputs, outputs, sub)
        _, y, idx = inputs
        repeated = f"PyArray_SHAPE({y})[0] == 1"
        mismatch = rf"PyArray_SHAPE\({y}\)\[\w+\] != PyArray_SHAPE\({idx}\)\[\w+\]"
        for pattern, replacement in [
            (mismatch, rf"\g<0> && !({repeated})"),
            ("npy_intp y_jump =", rf"\g<0> {repeated} ? 0 :"),
        ]:
            code, found = re.subn(pattern, replacement, code)
            if not found:
                # For indices that are not a vector, the C code reads `y` in another way.
                raise NotImplementedError
        return code

    return broadcast


def by_one_vector(op, indices):
    """Whether an Op indexes one dimension, by a vector, and takes the others whole."""
    return [index.ndim for index in indices] == [1] and all(
        entry in (0, slice(None)) for entry in places_of_indices(op)
    )


def local_set_to_inc_subtensor(fgraph, node):
    """Write a sum of two terms, one of which is there, as an increment.

    PyTensor 3.3 does so only if no index can occur twice, and 3.0 not for every Op.
    """
    x, value, *indices = node.inputs
    if not (
        node.op.set_instead_of_inc
        and value.owner
        and isinstance(value.owner.op, Elemwise)
        and isinstance(value.owner.op.scalar_op, Add)
        and by_one_vector(node.op, indices)
    ):
        return None
    terms = value.owner.inputs
    for read, other in (terms, reversed(terms)) if len(terms) == 2 else ():
        if (
            read.owner
            and isinstance(read.owner.op, advanced_subtensor_ops)
            and read.owner.inputs == [x, *indices]
            and places_of_indices(read.owner.op) == places_of_indices(node.op)
        ):
            result = inc_subtensor(read, other)
            copy_stack_trace(node.outputs, result)
            return [result]
    return None


_init_index = AdvancedSubtensor.__init__
_make_index = AdvancedSubtensor.make_node
_pull_back_index = AdvancedSubtensor.pullback


def init_index(self, idx_list=None, sparse_grad=False):
    """Make an index: by Theano's arguments, one of rows, whose gradient may be sparse."""
    _init_index(self, (0,) if idx_list is None else idx_list)
    self.takes_any = idx_list is None
    self.sparse_grad = sparse_grad


def make_index(self, x, *indices):
    """Index a tensor.  An Op that was made by Theano's arguments takes other indices as well."""
    if vars(self).get("takes_any") and len(indices) > 1:
        places = (index(i) if isinstance(i, Variable) else i for i in indices)
        return as_tensor_variable(x)[tuple(places)].owner
    return _make_index(self, x, *indices)


def pull_back_index(self, inputs, outputs, cotangents):
    """Return the gradients, of which the first is sparse if the index was made for that."""
    if not vars(self).get("sparse_grad"):
        return _pull_back_index(self, inputs, outputs, cotangents)
    x, rows = inputs
    if x.ndim != 2:
        raise TypeError(
            "AdvancedSubtensor1: you can't take the sparse grad from a tensor with ndim != 2. "
            f"ndim is {x.ndim}"
        )
    return [construct_sparse_from_list(x, *cotangents, rows), DisconnectedType()()]


set_to_inc = optdb["canonicalize"]["local_set_to_inc_subtensor"]

PATCHES = [
    Patch(AdvancedSubtensor, "__init__", init_index),
    Patch(AdvancedSubtensor, "make_node", remembering(make_index, 1, attrgetter("type"))),
    Patch(
        AdvancedIncSubtensor,
        "make_node",
        remembering(AdvancedIncSubtensor.make_node, 2, attrgetter("type")),
    ),
    # 3.3 has the same class for every index, without Theano's argument.
    Patch(AdvancedSubtensor, "pullback", pull_back_index),
    Patch(set_to_inc, "fn", local_set_to_inc_subtensor),
    Patch(set_to_inc, "_tracks", list(advanced_increment_ops)),
    Patch(set_to_inc, "_tracked_types", advanced_increment_ops),
    *(Patch(AdvancedIncSubtensor1, name, allow_broadcast) for name in increment_broadcast_checks),
    Patch(AdvancedIncSubtensor1, "c_code", broadcast_c_code(AdvancedIncSubtensor1.c_code)),
    # A separate version, because the version is part of the key of cached C code.
    Patch(
        AdvancedIncSubtensor1,
        "c_code_cache_version",
        lambda self, version=AdvancedIncSubtensor1.c_code_cache_version: (*version(self), "theano"),
    ),
    Patch(IncSubtensor, "__init__", initialized(IncSubtensor.__init__)),
    Patch(Subtensor, "__init__", initialized(Subtensor.__init__)),
    Patch(IncSubtensor, "make_node", remembering(IncSubtensor.make_node, 2)),
    Patch(Subtensor, "make_node", remembering(Subtensor.make_node, 1)),
    Patch(IncSubtensor, "idx_list", idx_list),
    Patch(Subtensor, "idx_list", idx_list),
    Patch(Subtensor, "collapse", staticmethod(collapse)),
    Patch(Subtensor, "convert", staticmethod(convert)),
    Patch(Subtensor, "get_constant_idx", constant_idx),
]
