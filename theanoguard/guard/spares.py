"""Second buffers: a call writes new values beside the old ones, and each array is used in turn.

If the call fails, the shared variable still holds the old array, and nothing has to be put back.
All functions that update a variable share its second buffer.
"""

from weakref import WeakValueDictionary


class Spare(list):
    """A storage cell that holds the second buffer of a shared variable, or None."""

    __slots__ = ("__weakref__",)


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
