"""Make backtraces begin and end in the user's files, and silence compiler messages."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytensor
from pytensor import gradient
from pytensor.graph import utils
from pytensor.graph.op import Op
from pytensor.tensor import _as_tensor_variable
from pytensor.tensor.variable import _tensor_py_operators

from theanoguard.view import pictures

from .._words import translate
from ..tensor.var import AsTensorError
from . import Patch

_extract = utils.simple_extract_stack
PACKAGE = str(Path(__file__).parents[3])
# Files that start a program.  Frames of these files and below are not the user's.
COMMAND = str(Path(PACKAGE, "cli"))
LAUNCHERS = (COMMAND, str(Path(PACKAGE, "__main__.py")), "<frozen runpy>")
INNER = (
    *(f"{path}{os.sep}" for path in (PACKAGE, Path(utils.__file__).parents[1])),
    contextlib.__file__,  # of decorated functions
)


# From its frames the guard learns that an operation belongs to a gradient.
GRADIENT = gradient.__file__


def extract_stack(f=None, limit=None, skips=None):
    """Return the stack as PyTensor records it, without launcher frames and innermost own frames."""
    f = sys._getframe(1) if f is None else f
    if limit == 0:  # while a function is compiled
        return []
    # Frames that are left out do not count towards the limit.
    while f.f_back is not None and _is_inner(f.f_code.co_filename):
        f = f.f_back
    entries = _extract(f, limit, skips)
    for number in range(len(entries), 0, -1):
        if (entries[number - 1][0] or "").startswith(COMMAND):
            # Further out is what started the command, such as the script in ``bin``.
            del entries[:number]
            break
    # In place, since the recorder's traces know more than their entries.
    entries[:] = [entry for entry in entries if not (entry[0] or "").startswith(LAUNCHERS)]
    return entries


def _is_inner(file):
    return file.startswith(INNER) and file != GRADIENT


@dataclass(frozen=True)
class Level:
    """The level of a logger while the shim is installed."""

    name: str
    level: int

    def apply(self):
        """Set the level, and return a function that restores the old level."""
        logger = logging.getLogger(self.name)
        before = logger.level
        logger.setLevel(self.level)
        return lambda: logger.setLevel(before)


_ldflags = pytensor.config._config_var_dict["blas__ldflags"]
_find_blas = _ldflags._default


def find_blas():
    """Return the linker flags for BLAS; if there is no BLAS, say what to install."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _find_blas()
    for warning in caught:
        text = str(warning.message)
        if "could not link to a BLAS" in text:
            text = (
                "There is no BLAS to link with, and products of matrices are slow.\nInstall one "
                "(on Debian: apt-get install libopenblas-dev), or name yours: "
                "THEANO_FLAGS=blas.ldflags=-lopenblas"
            )
        # The line that is shown is in Theano, whose configuration is being read, not in PyTensor.
        warnings.warn_explicit(text, warning.category, "theano/configdefaults.py", 1, "theano")
    return found


_call = Op.__call__


def call(self, *inputs, **kwargs):
    """Apply an operation.  An error about its inputs has Theano's text."""
    try:
        return _call(self, *inputs, **kwargs)
    except Exception as error:
        translate(error)
        raise


def refuse_text(x, name, ndim, **kwargs):
    """Raise Theano's exception for a string in place of a tensor."""
    raise AsTensorError(f"Cannot convert {x} to TensorType", type(x))


_of_sequence = _as_tensor_variable.dispatch(list)


def of_sequence(x, name, ndim, **kwargs):
    """Return a list or tuple as a tensor.  Parts of different lengths raise Theano's exception."""
    try:
        return _of_sequence(x, name, ndim, **kwargs)
    except ValueError as error:
        if ndim is not None:
            raise
        raise AsTensorError(f"Cannot convert {x} to TensorType", type(x)) from error


def refuse_assignment(self, key, value):
    """Raise Python's own exception, with Theano's alternative in its message."""
    raise TypeError(
        f"'{type(self).__name__}' object does not support item assignment.  "
        "Use theano.tensor.set_subtensor(x[...], y), which returns a new variable."
    )


@dataclass(frozen=True)
class Conversion:
    """A conversion of a class to a PyTensor variable, used while the shim is installed."""

    kind: type
    convert: Callable

    def apply(self):
        """Register the conversion, and return a function that restores the old one."""
        before = _as_tensor_variable.dispatch(self.kind)
        _as_tensor_variable.register(self.kind, self.convert)
        return lambda: _as_tensor_variable.register(self.kind, before)


PATCHES = [
    Patch(_ldflags, "_default", find_blas),
    Patch(pictures, "logger", logging.getLogger("theano.printing")),
    Patch(Op, "__call__", call),
    Patch(_tensor_py_operators, "__setitem__", refuse_assignment),
    Conversion(str, refuse_text),
    Conversion(list, of_sequence),
    Conversion(tuple, of_sequence),
    Patch(utils, "simple_extract_stack", extract_stack),
    # A user who calls ``logging.basicConfig(level=logging.INFO)`` wants no messages of PyTensor.
    Level("pytensor", logging.WARNING),
]
