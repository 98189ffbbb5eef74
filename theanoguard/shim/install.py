"""Install the shim, so that ``import theano`` imports it, and uninstall it."""

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

from theanoguard._pytensor.for_theano import forget_module_cache

from . import names

# The tree mirrors Theano's own module paths.  Its modules are loaded under Theano's names.  So
# classes, pickles and messages use the same names as old code.
TREE = Path(__file__).parent / "theano"


class TheanoLoader(names.FilledLoader):
    """Loads the package ``theano``, and then patches PyTensor to behave as Theano."""

    def exec_module(self, module):
        """Run the package, and apply its patches."""
        super().exec_module(module)
        importlib.import_module("theano._patches").apply()


class TheanoFinder(MetaPathFinder):
    """Finds ``theano`` and its modules in the tree of the shim or in the tables of names.

    For some other modules of Theano it raises an error that names a replacement.
    """

    def find_spec(self, fullname, path=None, target=None):
        """Return the spec of Theano's modules, and None for any other name."""
        if fullname.startswith("theano."):
            if missing := sys.modules.get("theano._missing"):
                missing.refuse(fullname)
            return names.find_spec(fullname, path)
        if fullname != "theano":
            return None
        top = str(TREE / "__init__.py")
        return spec_from_file_location(
            "theano",
            top,
            loader=TheanoLoader("theano", top),
            submodule_search_locations=[str(TREE)],
        )


FINDER = TheanoFinder()


def theano_modules():
    """The names of the loaded modules of Theano: of the shim or of another one."""
    return [name for name in sys.modules if name.split(".")[0] == "theano"]


def is_installed():
    """Whether ``import theano`` imports the shim."""
    return FINDER in sys.meta_path


def install_theano():
    """Make ``import theano`` import the shim, which runs on PyTensor's C backend.

    PyTensor's default linker becomes ``cvm``.  Methods of its variables that differ from Theano
    1.0.5 behave as in Theano.  `uninstall_theano` undoes this.  A second call does nothing.

    Returns
    -------
    module
        The package ``theano``.

    Raises
    ------
    ImportError
        If another Theano (or Theano-PyMC) is already imported.

    Examples
    --------
    >>> import theanoguard
    >>> theano = theanoguard.shim.install_theano()
    >>> theano.__version__
    '1.0.5...'
    >>> theanoguard.shim.uninstall_theano()
    """
    if is_installed():
        return importlib.import_module("theano")
    if loaded := sys.modules.get("theano"):
        raise ImportError(
            f"theano is already imported, from {getattr(loaded, '__file__', 'an unknown place')}.\n"
            "Call theanoguard.shim.install_theano() before anything imports theano, or uninstall"
            " it.",
            name="theano",
        )
    offer_theano()
    try:
        return importlib.import_module("theano")
    except BaseException:
        uninstall_theano()
        raise


def offer_theano():
    """Let ``import theano`` find the shim.  PyTensor is not changed before that import."""
    if not is_installed():
        sys.meta_path.insert(0, FINDER)


def uninstall_theano():
    """Undo `install_theano`: every patch of PyTensor, the configuration, and the modules.

    It does nothing if the shim is not installed.
    """
    if not is_installed():
        return
    sys.meta_path.remove(FINDER)
    if patches := sys.modules.get("theano._patches"):
        patches.undo()
    forget_module_cache()
    for name in theano_modules():
        del sys.modules[name]
