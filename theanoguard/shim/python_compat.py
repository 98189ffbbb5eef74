"""Names that Python's library had until 3.7 or later, for code that was written for it."""

import collections
import collections.abc
import fractions
import importlib.util
import inspect
import math
import sys
import time
from collections import namedtuple
from importlib.machinery import PathFinder
from types import ModuleType

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


def find_module(name, path=None):
    """Return where a module is, as ``imp.find_module`` did, but for the open file."""
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        raise ImportError(f"No module named {name!r}", name=name)
    if spec.submodule_search_locations:
        return None, list(spec.submodule_search_locations)[0], ("", "", 5)
    return None, spec.origin, ("", "", 1)


def load_source(name, pathname):
    """Import a file as the module `name`, again if that is imported already."""
    spec = importlib.util.spec_from_file_location(name, pathname)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Modules that have gone, with what is wanted of them.
MODULES = {
    "imp": {
        "find_module": find_module,
        "load_source": load_source,
        "new_module": ModuleType,
        "reload": importlib.reload,
    },
}

# The modules and the names that have gone from them, with what they stood for.
NAMES = {
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    inspect: {"ArgSpec": ArgSpec, "getargspec": getargspec},
    time: {"clock": time.perf_counter},
    fractions: {"gcd": math.gcd},
}


def install():
    """Give Python's library the modules and names that it had, where it does not have them.

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
    modules = [n for n in MODULES if n not in sys.modules and PathFinder.find_spec(n) is None]
    for name in modules:
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(MODULES[name])
    added = []
    for module, names in NAMES.items():
        for name in names.keys() - vars(module).keys():
            setattr(module, name, names[name])
            added.append((module, name))

    def undo():
        for name in modules:
            sys.modules.pop(name, None)
        for module, name in added:
            vars(module).pop(name, None)

    return undo
