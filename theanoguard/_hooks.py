"""Installs hooks in a module as soon as it and theanoguard are both loaded.

PyTensor gets those that record where a graph is built.  PyMC gets those that put a guard into its
samplers where one is asked for.  This module loads without either.  ``THEANOGUARD_HOOKS=0`` in the
environment keeps the hooks out.
"""

import importlib
import importlib.abc
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from theanoguard._releases import UnsupportedPyTensor

# By the package: a module of it that is loaded when it can be hooked, and what does that.
HOOKED = {
    "pytensor": ("pytensor.graph.fg", "theanoguard._pytensor.recording"),
    "pymc": ("pymc.sampling.mcmc", "theanoguard.pymc.running"),
}


def _install(name: str) -> None:
    try:
        importlib.import_module(HOOKED[name][1]).install()
    except UnsupportedPyTensor as error:  # the package that is being imported works without
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


class _Loader(importlib.abc.Loader):
    """Loads a package by its own loader, and installs its hooks."""

    def __init__(self, name: str, loader: importlib.abc.Loader) -> None:
        self.name = name
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "hooks", None) != self.name]
        _install(self.name)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the first import of a package."""

    def __init__(self, name: str) -> None:
        self.hooks = name
        self.is_asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.hooks or self.is_asking:
            return None
        self.is_asking = True  # of the other finders
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(name, spec.loader)
        return spec


def start() -> None:
    """Install the hooks now, or when what they are for is imported."""
    if os.environ.get("THEANOGUARD_HOOKS") == "0":
        return
    for name, (loaded, _) in HOOKED.items():
        if loaded in sys.modules and not _is_loading(name):
            _install(name)
        else:
            sys.meta_path.insert(0, _Finder(name))


def _is_loading(name: str) -> bool:
    spec = sys.modules[name].__spec__ if name in sys.modules else None
    return getattr(spec, "_initializing", False)
