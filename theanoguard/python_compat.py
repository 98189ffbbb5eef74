"""Names that Python's library had until 3.7 or later, for code that was written for it."""

import collections
import collections.abc
import fractions
import inspect
import math
import time
from collections import namedtuple

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func):
    """Return the names and the defaults of a function's parameters.

    Raises
    ------
    ValueError
        For a function with parameters that are given by keyword only.
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs:
        raise ValueError(f"{func!r} has keyword-only parameters; use inspect.signature")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


# The modules and the names that have gone from them, with what they stood for.
NAMES = {
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    inspect: {"ArgSpec": ArgSpec, "getargspec": getargspec},
    time: {"clock": time.perf_counter},
    fractions: {"gcd": math.gcd},
}


def install():
    """Give the modules of Python's library their old names, where they do not have them.

    Returns
    -------
    callable
        A function without arguments that takes the names away again.

    Examples
    --------
    >>> import collections
    >>> from theanoguard import python_compat
    >>> undo = python_compat.install()
    >>> isinstance({}, collections.Mapping)
    True
    >>> undo()
    """
    added = []
    for module, names in NAMES.items():
        for name in names.keys() - vars(module).keys():
            setattr(module, name, names[name])
            added.append((module, name))

    def undo():
        for module, name in added:
            vars(module).pop(name, None)

    return undo
