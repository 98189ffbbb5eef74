"""Old abilities of NumPy's arrays: methods, lists as indices, one element as a number."""

import ctypes

import numpy as np

IMMUTABLE = 1 << 8  # the flag of a type whose attributes cannot be set
_getitem, _setitem = np.ndarray.__getitem__, np.ndarray.__setitem__


def as_tuple(index):
    """Return an index; a list of arrays or slices as the tuple that it was until NumPy 1.23."""
    if (
        type(index) is list
        and len(index) < 32
        and any(
            part is None or part is Ellipsis or isinstance(part, slice | np.ndarray)
            for part in index
        )
    ):
        return tuple(index)
    return index


def getitem(self, index):
    """Return what an index selects; it may be a list of arrays or slices."""
    return _getitem(self, as_tuple(index))


def setitem(self, index, value):
    """Set what an index selects, as in `getitem`; the value of a place may be an array."""
    index = as_tuple(index)
    try:
        _setitem(self, index, value)
    except (TypeError, ValueError):
        if not isinstance(value, np.ndarray) or value.size != 1 or value.ndim == 0:
            raise
        _setitem(self, index, only(value))


def only(array):
    """Return an array without dimensions of the only element of an array."""
    return np.asarray(array).reshape(())  # (a matrix always has two)


def number(name):
    """Return the conversion of an array to a number; an array of one element has one."""
    convert = getattr(np.ndarray, name)
    return lambda self: convert(only(self) if self.size == 1 else self)


def itemset(self, *args):
    """Set an element; its place is a number, a tuple, or several numbers."""
    *place, value = args
    if len(place) == 1 and isinstance(place[0], tuple):
        [place] = place
    if len(place) == 1:
        self.flat[place[0]] = value
    elif len(place) == self.ndim or (not place and self.size == 1):
        self[tuple(place)] = value
    else:
        raise ValueError("an element is set by one place, or without one in an array of size 1")


METHODS = {
    "itemset": itemset,
    "newbyteorder": lambda self, new_order="S": self.view(self.dtype.newbyteorder(new_order)),
    "ptp": lambda self, axis=None, out=None, **kwargs: np.ptp(self, axis, out, **kwargs),
    "tostring": lambda self, order="C": self.tobytes(order),
}
CHANGED = {
    "__getitem__": getitem,
    "__setitem__": setitem,
    **{name: number(name) for name in ("__complex__", "__float__", "__int__")},
}


def set_attributes(attributes):
    """Set attributes of NumPy's array type, and delete those that are None."""
    # (`tp_flags` is the 22nd word of a type.  On a Python that keeps it elsewhere, nothing is set.)
    flags = ctypes.c_ulong.from_address(id(np.ndarray) + 21 * ctypes.sizeof(ctypes.c_void_p))
    if flags.value != np.ndarray.__flags__:
        return
    flags.value &= ~IMMUTABLE
    try:
        for name, value in attributes.items():
            if value is not None:
                setattr(np.ndarray, name, value)
            elif name in vars(np.ndarray):
                delattr(np.ndarray, name)
    finally:
        flags.value |= IMMUTABLE


def install():
    """Give arrays their old abilities; return a function that takes them away."""
    new = METHODS | CHANGED
    before = {name: vars(np.ndarray).get(name) for name in new}
    set_attributes(new)
    return lambda: set_attributes(before)
