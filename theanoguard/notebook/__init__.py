"""IPython and Jupyter: ``%load_ext theanoguard``."""

from typing import Any

from theanoguard.notebook.display import Display
from theanoguard.notebook.magics import Magics

_loaded: dict[Any, tuple[Display, Magics]] = {}


def load_ipython_extension(shell: Any) -> None:
    """Add rich display and magics to a session.  ``%load_ext theanoguard`` calls this.

    The session then shows variables and functions as :func:`theanoguard.inspect_graph` does, and a
    :class:`~theanoguard.GuardError` as its report.  It has the magics ``%guard``, ``%%guard``,
    ``%step`` and ``%watch``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    if shell not in _loaded:
        _loaded[shell] = Display(shell), Magics(shell)
        for part in _loaded[shell]:
            part.start()


def unload_ipython_extension(shell: Any) -> None:
    """Remove what :func:`load_ipython_extension` added.  ``%unload_ext theanoguard`` calls this.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    for part in _loaded.pop(shell, ()):
        part.stop()
