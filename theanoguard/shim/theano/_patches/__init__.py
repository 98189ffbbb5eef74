"""What the shim changes in PyTensor while it is installed, and how it is undone.

Each module of this package holds a list ``PATCHES``.
"""

import importlib
import pkgutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from theanoguard import _patching
from theanoguard._pytensor import register_rewrite


@dataclass(frozen=True)
class Patch:
    """An attribute of an object of PyTensor's, and what stands there while the shim is in place.

    Parameters
    ----------
    owner : object
        A class, a module or an instance.
    name : str
        The attribute.
    value : object
        What Theano 1.0.5 has there.
    """

    owner: Any
    name: str
    value: Any

    def apply(self):
        """Put the value in place and return a function that puts back what was there."""
        return _patching.apply([_patching.Patch(self.owner, self.name, lambda _: self.value)])


@dataclass(frozen=True)
class Rewrite:
    """A rewrite that is in one of PyTensor's databases while the shim is in place.

    Parameters
    ----------
    database : RewriteDatabase
    name : str
    rewriter : RewriteDatabase, GraphRewriter or NodeRewriter
    tags : tuple of str
    settings : dict
        What else ``database.register`` takes, as a position.
    """

    database: Any
    name: str
    rewriter: Any
    tags: tuple
    settings: dict = field(default_factory=dict)

    def apply(self):
        """Register the rewrite and return a function that takes it out again."""
        return register_rewrite(
            self.database, self.name, self.rewriter, *self.tags, **self.settings
        )


def called_by_pytensor():
    """Whether the function that asks was called from PyTensor or theanoguard, not from old code."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return caller.partition(".")[0] in ("pytensor", "theanoguard")


_applied = ExitStack()


def at_undo(function, *arguments):
    """Call a function when the shim is uninstalled."""
    _applied.callback(function, *arguments)


def apply():
    """Put every patch in place."""
    for module in pkgutil.iter_modules(__path__):
        for patch in importlib.import_module(f"{__name__}.{module.name}").PATCHES:
            at_undo(patch.apply())


def undo():
    """Put back what was there, the last patch first."""
    _applied.close()
