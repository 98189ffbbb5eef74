"""How a call updates shared variables: beside the old values, and all of them in one step.

The new value of an array is written into a second buffer, and each of the two arrays is used in
turn.  If the call fails, the shared variable still holds the old array, and nothing has to be put
back.  All functions that update a variable share its second buffer.
"""

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Any
from weakref import WeakValueDictionary


class Spare(list):
    """A storage cell that holds the second buffer of a shared variable, or None."""

    __slots__ = ("__weakref__",)


def store(cells: Iterable[list], values: Iterable) -> None:
    """Put a value into each storage cell, in one step.

    No bytecode runs meanwhile, so that no handler of a signal (Ctrl-C) does, nor another thread.

    Examples
    --------
    >>> first, second = [1], [2]
    >>> store([first, second], [3, 4])
    >>> first, second
    ([3], [4])
    """
    cells = list(cells)
    # (The old values go when nothing is left to store: to free an object may run its finalizer.)
    old: Any = [cell[0] for cell in cells]
    deque(map(list.__setitem__, cells, repeat(0), list(values)), maxlen=0)
    del old


_SPARES: WeakValueDictionary[int, Spare] = WeakValueDictionary()


def spare_of(cell: list) -> Spare:
    """Return where the second buffer of a shared variable is kept, as long as a function uses it.

    Parameters
    ----------
    cell : list
        The storage of the variable.  Who keeps the buffer keeps it alive.

    Examples
    --------
    >>> import pytensor
    >>> cell = pytensor.shared(1.0).container.storage
    >>> spare_of(cell) is spare_of(cell)
    True
    """
    return _SPARES.setdefault(id(cell), Spare([None]))
