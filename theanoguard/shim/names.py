"""The names that Theano's modules only pass on, from tables in the directory ``names``.

A table has a section for a module, and in it, for each module that names come from, these names:
``new=old`` for one that is renamed there, and ``*`` for all.  A module that has a file in the tree,
too, gets the names of its section before the file runs.
"""

import importlib
import sys
import tomllib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

DIRECTORY = Path(__file__).parent / "names"


def read_tables():
    """Return the sections of all tables, by the names of their modules."""
    sections = {}
    for file in sorted(DIRECTORY.glob("*.toml")):
        sections |= tomllib.loads(file.read_text(encoding="utf-8"))
    return sections


SECTIONS = read_tables()
# By module, what to use instead of each name that Theano 1.0.5 has there and the shim does not.
MISSING = {
    module: {name: use for use, names in section.items() for name in names.split()}
    for module, section in tomllib.loads(
        Path(__file__).with_name("missing.toml").read_text(encoding="utf-8")
    ).items()
}


def fill(module):
    """Give a module the names of its section, and errors for those that it does not have."""
    if module.__name__ in MISSING:
        missing = importlib.import_module("theano._missing").missing
        module.__getattr__ = missing(module.__name__, MISSING[module.__name__])
    for source, names in SECTIONS.get(module.__name__, {}).items():
        if source in ("__doc__", "__call__"):
            setattr(module, source, names)
            continue
        origin = sys.modules.get(source) or importlib.import_module(source)
        for entry in names.split():
            if entry == "*":
                vars(module).update(
                    {key: value for key, value in vars(origin).items() if key[0] != "_"}
                )
                continue
            new, _, old = entry.partition("=")
            vars(module)[new] = find(origin, old or new)


def find(module, name):
    """Return an attribute of a module, which may be a submodule that is not imported yet.

    Raises
    ------
    ImportError
        If there is none.
    """
    try:
        return getattr(module, name)
    except AttributeError as error:
        full_name = f"{module.__name__}.{name}"
        try:
            return importlib.import_module(full_name)
        except ModuleNotFoundError:
            raise ImportError(
                f"cannot import name {name!r} from {module.__name__!r}", name=module.__name__
            ) from error


class CallableModule(ModuleType):
    """A module that is called as the function whose name its table gives as ``__call__``."""

    def __call__(self, *args, **kwargs):
        """Call the function."""
        return vars(self)[vars(self)["__call__"]](*args, **kwargs)


class TableLoader(Loader):
    """Loads a module that has a section and no file."""

    def create_module(self, spec):
        """Return None for the usual module, unless the module is called."""
        return CallableModule(spec.name) if "__call__" in SECTIONS[spec.name] else None

    def exec_module(self, module):
        """Give the module its names."""
        fill(module)


class FilledLoader(SourceFileLoader):
    """Loads a module that has a file, and a section perhaps."""

    def exec_module(self, module):
        """Give the module its names and run the file."""
        fill(module)
        super().exec_module(module)


def find_spec(name, path):
    """Return the spec of a module below ``theano``, or None.

    Parameters
    ----------
    name : str
    path : sequence of str
        Where the package that it is in has its files.
    """
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.origin is not None:
        spec.loader = FilledLoader(name, spec.origin)
        return spec
    if name not in SECTIONS:
        return None
    is_package = any(section.startswith(f"{name}.") for section in SECTIONS)
    return ModuleSpec(name, TableLoader(), is_package=is_package)
