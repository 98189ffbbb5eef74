"""What Theano offered to code that ran on Python 2 and 3."""

import builtins
import configparser as configparser
from collections import OrderedDict
from collections.abc import MutableMapping as DictMixin  # noqa: F401
from operator import truediv as operator_div  # noqa: F401

PY3 = True
izip = zip
imap = map
ifilter = filter
next = builtins.next


def b(s):
    """Return the bytes of a string of which every character is one."""
    return s.encode("latin-1")


def exc_message(e):
    """Return an exception's first argument; that of the exception which is its argument."""
    message = e.args[0]
    return exc_message(message) if isinstance(message, Exception) else message


def cmp(x, y):
    """Return -1, 0 or 1, as `x` is less than, equal to or greater than `y`."""
    return (x > y) - (x < y)


def decode(x):
    """Return bytes as a string."""
    return x.decode()


def decode_iter(itr):
    """Yield each of some bytes as a string."""
    return map(decode, itr)


def decode_with(x, encoding):
    """Return bytes in an encoding as a string."""
    return x.decode(encoding)


class DefaultOrderedDict(OrderedDict):
    """An ordered dictionary that makes what is missing with a function without arguments."""

    def __init__(self, default_factory=None, *a, **kw):
        if default_factory is not None and not callable(default_factory):
            raise TypeError("first argument must be callable")
        super().__init__(*a, **kw)
        self.default_factory = default_factory

    def __missing__(self, key):
        if self.default_factory is None:
            raise KeyError(key)
        self[key] = value = self.default_factory()
        return value

    def __reduce__(self):
        arguments = () if self.default_factory is None else (self.default_factory,)
        return type(self), arguments, None, None, iter(self.items())

    def __copy__(self):
        return type(self)(self.default_factory, self)

    copy = __copy__
