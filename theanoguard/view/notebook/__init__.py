"""IPython and Jupyter: ``%load_ext theanoguard``."""

from theanoguard.view.notebook.display import Display
from theanoguard.view.notebook.magics import Magics

_loaded: dict = {}


def load_ipython_extension(shell):
    """Give a session rich display and the magics; what ``%load_ext theanoguard`` calls.

    Variables, functions and errors are then shown as :func:`theanoguard.inspect_graph` shows them,
    a :class:`~theanoguard.GuardError` as its report, and there are ``%guard``, ``%%guard`` and
    ``%step``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    if shell not in _loaded:
        _loaded[shell] = Display(shell), Magics(shell)
        for part in _loaded[shell]:
            part.start()


def unload_ipython_extension(shell):
    """Take away what :func:`load_ipython_extension` gave; ``%unload_ext theanoguard``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    for part in _loaded.pop(shell, ()):
        part.stop()
