"""When the recording hooks are installed: as soon as both PyTensor and theanoguard are loaded.

This module loads without PyTensor.  ``THEANOGUARD_HOOKS=0`` in the environment keeps the hooks out.
"""

import importlib
import importlib.abc
import importlib.util
import os
import sys

_RECORDING = "theanoguard._pytensor.recording"


def _install():
    importlib.import_module(_RECORDING).install()


class _Loader(importlib.abc.Loader):
    """Loads PyTensor by its own loader, and installs the hooks."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        _install()


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the first import of PyTensor."""

    def find_spec(self, name, path=None, target=None):
        if name != "pytensor":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def start():
    """Install the hooks now, or when PyTensor is imported."""
    if os.environ.get("THEANOGUARD_HOOKS") == "0":
        return
    if "pytensor.graph.fg" in sys.modules and not _is_loading():
        _install()
    else:
        sys.meta_path.insert(0, _Finder())


def _is_loading():
    spec = sys.modules["pytensor"].__spec__ if "pytensor" in sys.modules else None
    return getattr(spec, "_initializing", False)
