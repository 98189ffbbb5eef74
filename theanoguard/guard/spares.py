"""How a call updates shared variables: beside the old values, and all of them in one step.

The new value of an array is written into a second buffer, and each of the two arrays is used in
turn.  If the call fails, the shared variable still holds the old array, and nothing has to be put
back.  All functions that update a variable share its second buffer.
"""

import sys
import weakref
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from operator import itemgetter, setitem
from typing import Any

import numpy as np


class Spare(list):
    """A storage cell that holds the second buffer of a shared variable, or None."""

    __slots__ = ("__weakref__",)


_held = itemgetter(0)


def store(cells: Sequence[list], values: Sequence) -> None:
    """Put a value into each storage cell, in one step.

    No bytecode runs meanwhile, so that no handler of a signal (Ctrl-C) does, nor another thread.

    Examples
    --------
    >>> first, second = [1], [2]
    >>> store([first, second], [3, 4])
    >>> first, second
    ([3], [4])
    """
    # (The old values go when nothing is left to store: to free an object may run its finalizer.)
    old: Any = list(map(_held, cells))
    any(map(setitem, cells, repeat(0), values))
    del old


LARGE = 1 << 16
"""Bytes of an array from which a second buffer is worth its keeping."""


def _references(cell: list) -> int:
    return sys.getrefcount(cell[0])


_ALONE = _references([np.empty(0)])  # of what only its storage cell holds


def is_ours(cell: list) -> bool:
    """Whether only this storage cell leads to an array, and to its memory.

    Examples
    --------
    >>> cell = [np.zeros(3)]
    >>> is_ours(cell)
    True
    >>> view = cell[0][1:]
    >>> is_ours(cell)
    False
    """
    if type(cell[0]) is not np.ndarray or _references(cell) != _ALONE:
        return False
    flags = cell[0].flags
    return (
        flags.owndata
        and flags.c_contiguous
        and flags.behaved
        and cell[0].base is None
        and not weakref.getweakrefcount(cell[0])
    )


@cache
def _nothing(ndim: int, dtype: np.dtype) -> np.ndarray:
    return np.empty((0,) * ndim, dtype)


def second_buffer(value: np.ndarray, spare: list) -> np.ndarray:
    """Return the second buffer of an array, or an empty array if it is too small to need one.

    Parameters
    ----------
    value : ndarray
        The value of a shared variable.
    spare : list
        Where its second buffer is kept.
    """
    if value.nbytes < LARGE or not value.flags.c_contiguous:
        return _nothing(value.ndim, value.dtype)
    if not is_ours(spare) or spare[0].shape != value.shape or spare[0].dtype != value.dtype:
        spare[0] = np.empty_like(value)
    return spare[0]


def take_turns(cell: list, spare: list, before: list) -> None:
    """Make the old value the next second buffer, if the present value is the last one.

    Parameters
    ----------
    cell, spare : list
        The storage of the variable, and where its second buffer is kept.
    before : list
        A cell with the old value: the only reference that the caller has.
    """
    if cell[0] is spare[0]:
        spare[0] = before[0] if is_ours(before) else None


_SPARES: weakref.WeakValueDictionary[int, Spare] = weakref.WeakValueDictionary()


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
