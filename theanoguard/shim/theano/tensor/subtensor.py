"""Theano's ``theano.tensor.subtensor``."""

from pytensor.graph.type import Type
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    advanced_inc_subtensor,
    advanced_set_subtensor,
    advanced_subtensor,
)

from theanoguard._pytensor import advanced_increment_ops, advanced_subtensor_ops

# 3.3 has one class for every kind of advanced index.
AdvancedSubtensor1 = advanced_subtensor_ops[-1]
AdvancedIncSubtensor1 = advanced_increment_ops[-1]
BaseAdvancedSubtensor = AdvancedBooleanSubtensor = AdvancedSubtensor
BaseAdvancedIncSubtensor = AdvancedBooleanIncSubtensor = AdvancedIncSubtensor
advanced_boolean_subtensor = advanced_subtensor
advanced_boolean_inc_subtensor = advanced_inc_subtensor
advanced_boolean_set_subtensor = advanced_set_subtensor


def each_part(function, entry):
    """Apply a function to an index, or to all parts of a slice that are not None."""
    if not isinstance(entry, slice):
        return function(entry)
    parts = (entry.start, entry.stop, entry.step)
    return slice(*(None if part is None else function(part) for part in parts))


def get_idx_list(inputs, idx_list, get_count=False):
    """Return an Op's `idx_list` with the inputs of a node in place of their types, or their count.

    The first input is what is indexed.
    """
    rest = list(inputs[1:])

    def fill(part):
        return rest.pop(0) if isinstance(part, Type) else part

    filled = tuple(each_part(fill, entry) for entry in idx_list)
    return len(inputs) - 1 - len(rest) if get_count else filled


class AdvancedBooleanIndexingError(TypeError):
    """An index is a mask: Theano's `Subtensor` raises it, PyTensor never does."""
