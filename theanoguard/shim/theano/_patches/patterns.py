"""Give variables the broadcast patterns of Theano.

PyTensor infers for more dimensions than Theano that their length is 1.  Some old code works only
without that knowledge.  In Theano, ``x[-1:]`` of a row is a matrix without a broadcastable
dimension, so another matrix can be added to it, and a state of a scan may start with it.
"""

import re
from functools import wraps

import numpy as np
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    ARange,
    ExtractDiag,
    Eye,
    MakeVector,
    Split,
    get_scalar_constant_value,
)
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.linalg import QR, Expm
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.tensor.variable import _tensor_py_operators

from ..tensor.subtensor import get_idx_list, subtensor_by_slices
from . import Patch, called_by_pytensor


def known_number(part):
    """Return the known number of a part of a slice or of a shape, or None."""
    try:
        return int(get_scalar_constant_value(part))
    except NotScalarConstantError:
        return None


def keeps_one(entry):
    """Whether a slice of a broadcastable dimension stays broadcastable: it must start at 0."""
    start = 0 if entry.start is None else known_number(entry.start)
    stop = 1 if entry.stop is None else known_number(entry.stop)
    return start == 0 and stop is not None and stop > 0


def pattern_of_slices(node):
    """Return the pattern after slicing.  A slice must start at 0 to stay broadcastable."""
    x = node.inputs[0]
    entries = get_idx_list(node.inputs, node.op.idx_list)
    entries = [*entries, *[slice(None)] * (x.type.ndim - len(entries))]
    return [
        one and keeps_one(entry)
        for one, entry in zip(x.type.broadcastable, entries, strict=True)
        if isinstance(entry, slice)
    ]


def pattern_of_reshape(node):
    """Return the pattern of the requested lengths: an explicit 1 is broadcastable, a -1 is not."""
    length = node.inputs[1]
    if length.owner is None and hasattr(length, "data"):
        return [part == 1 for part in length.data]
    if length.owner is not None and type(length.owner.op).__name__ == "MakeVector":
        return [known_number(part) == 1 for part in length.owner.inputs]
    return node.outputs[0].type.broadcastable


def no_ones(node):
    """Return a pattern without a broadcastable dimension."""
    return [False] * node.outputs[0].type.ndim


def pattern_of_vector(node):
    """Return the pattern of joined numbers.  PyTensor wants to know the length of a shape."""
    return [node.outputs[0].type.dtype == "int64"]


def pattern_of_input(node):
    """Return the pattern of the first input."""
    return node.inputs[0].type.broadcastable


# The pattern of the output in Theano, by Op.  A dimension is broadcastable in the shim only if it
# is broadcastable in both Theano and PyTensor.
PATTERNS = {
    **dict.fromkeys((ARange, AllocDiag, Expm, ExtractDiag, Eye, QR), no_ones),
    MakeVector: pattern_of_vector,
    Reshape: pattern_of_reshape,
    Split: pattern_of_input,
    Subtensor: pattern_of_slices,
}


def forgetting(make_node, pattern):
    """Return a ``make_node`` whose outputs have Theano's broadcast pattern."""

    @wraps(make_node)
    def make(self, *inputs):
        node = make_node(self, *inputs)
        for output in node.outputs:
            if any(output.type.broadcastable):
                known = zip(output.type.shape, pattern(node), strict=True)
                output.type = output.type.clone(
                    shape=[None if length == 1 and not one else length for length, one in known]
                )
        return node

    return make


_getitem = _tensor_py_operators.__getitem__


def is_newaxis(entry):
    """Whether an index adds a new dimension."""
    return entry is None or isinstance(getattr(entry, "type", None), NoneTypeT)


def is_basic(entry):
    """Whether an index is a slice or a number."""
    return isinstance(entry, slice | int | np.integer) or (
        getattr(entry, "ndim", None) == 0 and getattr(entry, "dtype", "bool") != "bool"
    )


def getitem(self, args):
    """Index a tensor as Theano does, which matters if the index adds dimensions.

    Theano then drops the dimensions after the last index if they are broadcastable, and raises if
    they are not.  An ellipsis keeps them.  A list of slices is an index for each dimension, and a
    slice may be an input of the graph.
    """
    if isinstance(args, list) and any(isinstance(entry, slice) for entry in args):
        args = tuple(args)
    entries = args if isinstance(args, tuple) else (args,)
    if any(isinstance(getattr(entry, "type", None), SliceType) for entry in entries):
        return subtensor_by_slices(self, *entries)
    rest = [entry for entry in entries if not is_newaxis(entry)]
    if (
        called_by_pytensor()
        or len(rest) == len(entries)
        or len(rest) > self.ndim
        or not all(map(is_basic, rest))
    ):
        return _getitem(self, args)
    numbers = iter(range(self.ndim))
    view = self.dimshuffle(["x" if is_newaxis(entry) else next(numbers) for entry in entries])
    entries = tuple(slice(None) if is_newaxis(entry) else entry for entry in entries)
    return view if all(entry == slice(None) for entry in entries) else _getitem(view, entries)


def allow_broadcast(*_args):
    """Never raise: Theano repeats a value along a dimension whose length is 1 at run time."""


_c_code, _c_version = Alloc.c_code, Alloc.c_code_cache_version


@wraps(_c_code)
def c_code_of_alloc(*args, **kwargs):
    """Return the C code without the check that raises when a value has to be repeated."""
    return re.sub(r"== 1 && shape\[\d+\] != 1", "== 1 && 0", _c_code(*args, **kwargs))


def c_version_of_alloc(self):
    """Return a separate version, because the version is part of the key of cached C code."""
    return (*_c_version(self), "theano")


PATCHES = [
    *(
        Patch(op, "make_node", forgetting(op.make_node, pattern))
        for op, pattern in PATTERNS.items()
    ),
    Patch(_tensor_py_operators, "__getitem__", getitem),
    Patch(Alloc, "_check_runtime_broadcast", staticmethod(allow_broadcast)),
    Patch(Alloc, "c_code", c_code_of_alloc),
    Patch(Alloc, "c_code_cache_version", c_version_of_alloc),
]
