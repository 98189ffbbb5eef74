"""The changes that the shim makes to PyTensor while it is installed.

Each module of this package defines a list ``PATCHES``.  Each patch can be applied and undone.
"""

import importlib
import pkgutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from theanoguard import _patching
from theanoguard._pytensor.for_theano import register_rewrite


@dataclass(frozen=True)
class Patch:
    """A new value for an attribute of a PyTensor object, used while the shim is installed.

    Parameters
    ----------
    owner : object
        A class, a module or an instance.
    name : str
        The attribute.
    value : object
        The value that behaves as in Theano 1.0.5.
    """

    owner: Any
    name: str
    value: Any

    def apply(self):
        """Set the attribute, and return a function that restores the old value."""
        return _patching.apply([_patching.Patch(self.owner, self.name, lambda _: self.value)])


@dataclass(frozen=True)
class Rewrite:
    """A rewrite that the shim adds to one of PyTensor's databases while it is installed.

    Parameters
    ----------
    database : RewriteDatabase
    name : str
    rewriter : RewriteDatabase, GraphRewriter or NodeRewriter
    tags : tuple of str
    settings : dict
        Further arguments of ``database.register``, such as the position.
    """

    database: Any
    name: str
    rewriter: Any
    tags: tuple
    settings: dict = field(default_factory=dict)

    def apply(self):
        """Register the rewrite, and return a function that removes it."""
        return register_rewrite(
            self.database, self.name, self.rewriter, *self.tags, **self.settings
        )


def called_by_pytensor():
    """Whether PyTensor or theanoguard, not old code, called the function that calls this one."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return caller.partition(".")[0] in ("pytensor", "theanoguard")


_applied = ExitStack()
_done = []


def at_undo(function, *arguments):
    """Register a function to be called when the shim is uninstalled."""
    _applied.callback(function, *arguments)


def apply():
    """Apply every patch, once: old tests import ``theano`` again.

    A module takes hold of what it changes when it is imported, so it may import only those before
    it: two of them change ``Subtensor.make_node``.
    """
    if _done:
        return
    _done.append(None)
    at_undo(_done.clear)
    for module in pkgutil.iter_modules(__path__):
        for patch in importlib.import_module(f"{__name__}.{module.name}").PATCHES:
            at_undo(patch.apply())


def undo():
    """Undo every patch, the last one first."""
    _applied.close()
