"""``inc_subtensor(..., tolerate_inplace_aliasing=True)``, whose Op PyTensor cannot hash."""

from functools import wraps

from pytensor.tensor.subtensor import IncSubtensor

from . import Patch

_init = IncSubtensor.__init__


@wraps(_init)
def init_with_pairs(self, *args, **kwargs):
    """Keep the pairs of inputs that may be aliased in tuples."""
    _init(self, *args, **kwargs)
    pairs = self.destroyhandler_tolerate_aliased
    self.destroyhandler_tolerate_aliased = tuple(tuple(pair) for pair in pairs)


PATCHES = [Patch(IncSubtensor, "__init__", init_with_pairs)]
