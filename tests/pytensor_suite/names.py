"""Names that the tests import and that PyTensor has elsewhere by now, or not at all.

Most of the tests come from Aesara 2.9, from which PyTensor went its own way.  A name that has
moved is put back where the tests look for it; in the place of one that is gone stands a class of no
use, so that only the tests that use it fail.
"""

import ast
import importlib
import sys
import types

import numpy as np
import pytensor
import pytensor.gradient
import pytensor.sparse
import pytensor.tensor
from pytensor.configdefaults import config
from pytensor.configparser import StrParam
from pytensor.tensor.elemwise import DimShuffle

from theanoguard.shim import numpy_compat

# What a name has become, or what does the same.
RENAMED = {
    ("pytensor.compile.function", "pfunc"): pytensor.function,
    ("pytensor.compile.function.pfunc", "pfunc"): pytensor.function,
    ("pytensor.misc.safe_asarray", "_asarray"): np.asarray,
    ("pytensor.sparse", "sgn"): pytensor.sparse.sign,
    ("pytensor.sparse", "square"): pytensor.sparse.sqr,
    ("pytensor.tensor", "true_divide"): pytensor.tensor.true_div,
    ("pytensor.tensor.math", "true_divide"): pytensor.tensor.true_div,
    ("pytensor.tensor.math", "floor_divide"): pytensor.tensor.int_div,
    ("pytensor.tensor", "abs_"): pytensor.tensor.abs,
    ("pytensor", "zero_grad"): pytensor.gradient.zero_grad,
    ("pytensor", "disconnected_grad"): pytensor.gradient.disconnected_grad,
}
# Settings that are gone, and what they were without a word from the user.
SETTINGS = {"unittests__rseed": "666", "compute_test_value": "off"}


class OfNothing(type):
    """Gives `Gone` whatever attribute is asked of it, so that a class body can name it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Gone(metaclass=OfNothing):
    """Stands where something was; nothing is one, and what is done with one fails."""

    def __init__(self, *args, **kwargs):
        """Take whatever the class took."""


def imports(path):
    """Yield the module and the name, or None, of each import in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


def module_at(name):
    """Return a module of PyTensor; an empty one where there is none of this name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        parent, _, last = name.rpartition(".")
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
        if not hasattr(module_at(parent), last):
            setattr(module_at(parent), last, module)
        return module


def home_of(name):
    """Return what a module of PyTensor calls by this name; None if there is no such module."""
    found = [
        vars(module)[name]
        for key, module in sorted(sys.modules.items())
        if key.startswith("pytensor.") and name in vars(module)
    ]
    at_home = [thing for thing in found if not isinstance(thing, types.ModuleType)]
    return next((thing for thing in at_home if thing is not Gone), None)


def give_names(path, root, done=None):
    """Give PyTensor's modules all the names that a file of tests imports from them.

    Parameters
    ----------
    path : pathlib.Path
        The file; those under `root` that it imports are looked at, too.
    root : pathlib.Path
    done : set of pathlib.Path or None
        Files that have been looked at.
    """
    done = set() if done is None else done
    if path in done or not path.exists():
        return
    done.add(path)
    for module_name, name in imports(path):
        package = module_name.partition(".")[0]
        if package == "tests":
            place = root.joinpath(*module_name.split("."))
            for file in (place.with_suffix(".py"), place / f"{name}.py"):
                give_names(file, root, done)
        elif package == "pytensor":
            give_name(module_at(module_name), name)


def give_name(module, name):
    """Give a module a name that it does not have."""
    if name in (None, "*") or hasattr(module, name):
        return
    try:
        importlib.import_module(f"{module.__name__}.{name}")
    except ImportError:
        setattr(module, name, home_of(name) or Gone)


def takes_dtype_first(make):
    """Return ``tensor`` as it was: the dtype and the shape come first."""

    def tensor(*given, **named):
        if given and given[0] is not None and not named.get("dtype"):
            named |= zip(("dtype", "shape"), given, strict=False)
            given = ()
        return make(*given, **named)

    return tensor


def takes_dtype_second(make):
    """Return ``matrix`` and its like as they were: the dtype comes after the name."""
    return lambda name=None, dtype=None, **named: make(name, dtype=dtype, **named)


def prepare():
    """Give PyTensor and NumPy what is renamed, and the settings that the tests read."""
    numpy_compat.install()
    for name, thing in {"AxisError": np.exceptions.AxisError, "MAXDIMS": 64}.items():
        setattr(np, name, thing)
    for name, value in SETTINGS.items():
        if not hasattr(config, name):
            config.add(name, "Of the tests.", StrParam(value), in_c_key=False)
    for (module, name), thing in RENAMED.items():
        if not hasattr(module_at(module), name):
            setattr(module_at(module), name, thing)
    for name in ("scalar", "vector", "matrix", "row", "col", "tensor3", "tensor4", "tensor"):
        wrap = takes_dtype_first if name == "tensor" else takes_dtype_second
        for module in (pytensor.tensor, pytensor.tensor.type):
            setattr(module, name, wrap(getattr(module, name)))
    change, init = type(config).change_flags, DimShuffle.__init__

    def change_flags(self, flags=(), **more):
        return change(self, **dict(flags), **more)

    def __init__(self, *given, **named):
        if len(given) > 1:  # broadcastable, order and whether it is a view
            given, named = (), {"input_ndim": len(given[0]), "new_order": given[1]}
        init(self, *given, **named)

    type(config).change_flags = change_flags
    DimShuffle.__init__ = __init__
