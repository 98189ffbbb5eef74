"""How variables, functions and errors are shown."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from theanoguard._event import GuardEvent
from theanoguard._pytensor import Function
from theanoguard.guard import GuardError
from theanoguard.guard.history import Recording
from theanoguard.notebook.plotting import plot_html
from theanoguard.training import Watch
from theanoguard.view.inspecting import inspect_graph


def html_of(thing: Any) -> str:
    """Return the HTML that a notebook shows for a graph, an error or an event."""
    return inspect_graph(thing)._repr_html_()


SHOWN: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((Variable, Function, FunctionGraph, GuardError, GuardEvent), html_of),
    **dict.fromkeys((Watch, Recording), plot_html),
}


class Display:
    """The rich display of a session.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def start(self) -> None:
        """Begin."""
        formatter = self.shell.display_formatter.formatters["text/html"]
        self._before = {kind: formatter.for_type(kind, show) for kind, show in SHOWN.items()}
        self._handled, self._handler = self.shell.custom_exceptions, self.shell.CustomTB
        self.shell.set_custom_exc((*self._handled, GuardError), self._show)

    def stop(self) -> None:
        """Show everything as before."""
        formatter = self.shell.display_formatter.formatters["text/html"]
        for kind, before in self._before.items():
            formatter.pop(kind, None)
            if before is not None:
                formatter.for_type(kind, before)
        self.shell.custom_exceptions, self.shell.CustomTB = self._handled, self._handler

    def _show(
        self,
        shell: Any,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType,
        tb_offset: int | None = None,
    ) -> Any:
        """Show the error of a cell: a guard error as its report, any other as before."""
        if not isinstance(error, GuardError):
            return self._handler(kind, error, traceback, tb_offset=tb_offset)
        # For %tb and %debug.
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, traceback
        # The outermost frame is IPython's.
        shown = inspect_graph(error.with_traceback(traceback.tb_next or traceback))
        shell.display_pub.publish({"text/plain": repr(shown), "text/html": shown._repr_html_()})
        # A kernel's reply has this.  nbclient and nbconvert show nothing else of a failed cell.
        shell._last_traceback = repr(shown).splitlines()
        return []
