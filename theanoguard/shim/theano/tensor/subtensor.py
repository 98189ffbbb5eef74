"""Theano's ``theano.tensor.subtensor``."""

from pytensor.graph.type import Type
from pytensor.tensor.exceptions import AdvancedIndexingError as AdvancedIndexingError
from pytensor.tensor.subtensor import AdvancedIncSubtensor as AdvancedIncSubtensor
from pytensor.tensor.subtensor import AdvancedSubtensor as AdvancedSubtensor
from pytensor.tensor.subtensor import IncSubtensor as IncSubtensor
from pytensor.tensor.subtensor import Subtensor as Subtensor
from pytensor.tensor.subtensor import SubtensorPrinter as SubtensorPrinter
from pytensor.tensor.subtensor import _sum_grad_over_bcasted_dims as _sum_grad_over_bcasted_dims
from pytensor.tensor.subtensor import advanced_inc_subtensor as advanced_inc_subtensor
from pytensor.tensor.subtensor import advanced_inc_subtensor1 as advanced_inc_subtensor1
from pytensor.tensor.subtensor import advanced_set_subtensor as advanced_set_subtensor
from pytensor.tensor.subtensor import advanced_set_subtensor1 as advanced_set_subtensor1
from pytensor.tensor.subtensor import advanced_subtensor as advanced_subtensor
from pytensor.tensor.subtensor import advanced_subtensor1 as advanced_subtensor1
from pytensor.tensor.subtensor import get_canonical_form_slice as get_canonical_form_slice
from pytensor.tensor.subtensor import inc_subtensor as inc_subtensor
from pytensor.tensor.subtensor import set_subtensor as set_subtensor
from pytensor.tensor.subtensor import take as take

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
