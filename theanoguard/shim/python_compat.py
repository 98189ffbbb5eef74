"""Names that Python's library had in 3.7 and has removed since."""

import _ast
import ast
import base64
import collections
import collections.abc
import configparser
import fractions
import importlib.util
import inspect
import locale
import math
import os
import sys
import threading
import time
import unittest
from collections import namedtuple
from importlib.machinery import SOURCE_SUFFIXES, PathFinder
from types import ModuleType

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func):
    """Return the names of a function's parameters and their defaults.

    Raises
    ------
    ValueError
        If the function has keyword-only parameters.
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs:
        raise ValueError(f"{func!r} has keyword-only parameters; use inspect.signature")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def find_module(name, path=None):
    """Return where a module is, as ``imp.find_module`` did, but without an open file."""
    spec = PathFinder.find_spec(name, path) if path else importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"No module named {name!r}", name=name)
    if spec.submodule_search_locations:
        return None, list(spec.submodule_search_locations)[0], ("", "", 5)
    return None, spec.origin, ("", "", 1)


def load_source(name, pathname, file=None):
    """Import a file as the module `name`, even if it is imported already."""
    spec = importlib.util.spec_from_file_location(name, pathname)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_module(name, file, pathname, description):
    """Import the module that `find_module` has found, even if it is imported already."""
    if description[2] == PKG_DIRECTORY:
        return load_source(name, os.path.join(pathname, "__init__.py"))
    if file is not None:
        file.close()
    return load_source(name, pathname)


def nothing():
    """Do nothing, because Python locks the import of each module by itself."""


PY_SOURCE, PKG_DIRECTORY = 1, 5

# The modules that Python has removed, with the names that old code uses.
MODULES = {
    "imp": {
        "PKG_DIRECTORY": PKG_DIRECTORY,
        "PY_SOURCE": PY_SOURCE,
        "acquire_lock": nothing,
        "cache_from_source": importlib.util.cache_from_source,
        "find_module": find_module,
        "get_suffixes": lambda: [(suffix, "r", PY_SOURCE) for suffix in SOURCE_SUFFIXES],
        "load_dynamic": load_source,
        "load_module": load_module,
        "load_source": load_source,
        "lock_held": lambda: False,
        "new_module": ModuleType,
        "release_lock": nothing,
        "reload": importlib.reload,
    },
}

# The old names of `unittest`'s assertions.
ASSERTIONS = {
    "assertAlmostEquals": "assertAlmostEqual",
    "assertDictContainsSubset": None,
    "assertEquals": "assertEqual",
    "assertItemsEqual": "assertCountEqual",
    "assertNotAlmostEquals": "assertNotAlmostEqual",
    "assertNotEquals": "assertNotEqual",
    "assertNotRegexpMatches": "assertNotRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertRegexpMatches": "assertRegex",
    "assert_": "assertTrue",
    "failIf": "assertFalse",
    "failIfEqual": "assertNotEqual",
    "failUnless": "assertTrue",
    "failUnlessEqual": "assertEqual",
    "failUnlessRaises": "assertRaises",
}


def assert_dict_contains(self, subset, dictionary, msg=None):
    """Fail unless a dictionary has these entries."""
    self.assertEqual({**dictionary, **subset}, dict(dictionary), msg)


# The names that modules and classes have lost, and the objects that they stood for.
NAMES: dict[ModuleType | type, dict[str, object]] = {
    _ast: dict.fromkeys(("Bytes", "NameConstant", "Num", "Str"), ast.Constant),
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    inspect: {"ArgSpec": ArgSpec, "getargspec": getargspec},
    time: {"clock": time.process_time},
    fractions: {"gcd": math.gcd},
    base64: {"decodestring": base64.decodebytes, "encodestring": base64.encodebytes},
    configparser: {"SafeConfigParser": configparser.ConfigParser},
    configparser.RawConfigParser: {"readfp": configparser.RawConfigParser.read_file},
    locale: {"format": locale.format_string},
    threading.Thread: {"isAlive": threading.Thread.is_alive},
    unittest: {
        "_TextTestResult": unittest.TextTestResult,
        "makeSuite": unittest.TestLoader().loadTestsFromTestCase,
    },
    unittest.TestCase: {
        old: getattr(unittest.TestCase, new) if new else assert_dict_contains
        for old, new in ASSERTIONS.items()
    },
}


def install():
    """Add the old modules and names that this Python's library does not have.

    Returns
    -------
    callable
        A function without arguments that removes them.

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
            if name in vars(module):
                delattr(module, name)

    return undo
