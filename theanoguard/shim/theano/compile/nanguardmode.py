"""The mode that stops at NaN, Inf and big values."""

from types import SimpleNamespace

import numpy as np

from theanoguard._pytensor import raise_with_op
from theanoguard._steps import attempt, failures
from theanoguard.guard import GuardError
from theanoguard.guard import NanGuardMode as GuardNanGuardMode

from .. import printing
from .._words import in_theanos_words


class NanGuardMode(GuardNanGuardMode):
    """Theano's ``NanGuardMode``: theanoguard's guard with its arguments.

    A variable whose ``tag.nan_guard_mode_check`` is False is not looked at.
    """

    def __init__(
        self,
        nan_is_error=None,
        inf_is_error=None,
        big_is_error=None,
        optimizer="default",
        linker=None,
    ):
        super().__init__(nan_is_error, inf_is_error, big_is_error, optimizer, linker)

    def tell(self, error, fgraph):
        """Add to a guard error what Theano says about the node and its inputs.

        Parameters
        ----------
        error : Exception
        fgraph : FunctionGraph
            The graph of the function that raised it.
        """
        if isinstance(error, GuardError):
            with failures():
                error._addition = attempt("the node", "", _text_of_node, error, fgraph)


KINDS = {"nan": "NaN", "inf": "Inf", "big": "Big value"}


def _text_of_node(error, fgraph):
    """Return the text of Theano's error, or an empty text if the bad value came in."""
    repro = error.explanation and error.explanation.repro
    found = repro and repro.call and repro.call.operands()
    if not found:
        return ""
    node, values = found
    text = (
        f"\n\n{KINDS[error.event.kind]} detected\n"
        "NanGuardMode found an error in the output of a node in this variable:\n"
        f"{printing.debugprint(node, file='str')}"
    )
    thunk = SimpleNamespace(inputs=[[value] for value in values])
    try:
        raise_with_op(fgraph, node, thunk, (AssertionError, AssertionError(text), None))
    except AssertionError as told:
        return in_theanos_words(str(told)).rstrip()


def _as_numbers(value):
    """Return the numbers of a value as an array, or None where it has none."""
    if not isinstance(value, np.ndarray | np.number | float | int):
        return None
    array = np.asarray(value)
    return array if array.size and array.dtype.kind in "fc" else None


def contains_nan(arr, node=None, var=None):
    """Whether a value has a NaN in it; other things than arrays have none."""
    numbers = _as_numbers(arr)
    return numbers is not None and bool(np.isnan(numbers).any())


def contains_inf(arr, node=None, var=None):
    """Whether a value has an infinity in it; other things than arrays have none."""
    numbers = _as_numbers(arr)
    return numbers is not None and bool(np.isinf(numbers).any())
