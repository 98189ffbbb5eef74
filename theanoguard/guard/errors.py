"""The error that a guard raises: :class:`GuardError`."""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import theanoguard.explain as explaining
from theanoguard._errors import TheanoguardError
from theanoguard._event import GuardEvent
from theanoguard._steps import attempt, failures
from theanoguard.explain.text.color import is_uncaught, wants_color
from theanoguard.explain.text.tracebacks import users_part

if TYPE_CHECKING:
    from theanoguard.explain import Explanation


def report_text(event: GuardEvent, explanation: "Explanation | None", **style: bool) -> str:
    """Return the report of :func:`theanoguard.explain.render_text`, or the event if that fails."""
    try:
        return explaining.render_text(event, explanation, **style)
    except Exception as error:  # such as a module of the explanation that cannot be imported
        line = [] if event.source is None else [f"  {event.source.file}:{event.source.line}"]
        left_out = f"Left out because of a fault in theanoguard: {type(error).__name__}: {error}."
        report = "Please report it with this text and the output of `theanoguard doctor`."
        return "\n".join([event.title, *line, "", left_out, report])


def _has_colours(caller: FrameType | None) -> bool:
    return is_uncaught(caller) and wants_color(sys.stderr)


class GuardError(TheanoguardError, AssertionError):
    """A bad value appeared inside a guarded function.

    It is an :class:`AssertionError`, as with PyTensor's ``NanGuardMode``.  Every shared variable
    and random state has its value from before the call.  ``str(error)`` is the report in plain
    text.  The report has colours only if Python itself prints the uncaught error on a terminal.

    Parameters
    ----------
    event : GuardEvent
        The bad value.
    explanation : Explanation or None
        The operation that made it, its operands and the remedy.
    recording : Recording or None
        The record of the calls, with ``history=True``.  A pickled error leaves it behind.
    """

    __module__ = "theanoguard"  # what a traceback shows in front of the name
    _in_call = True  # whether the user has compiled the function, and so knows its outputs
    _addition = ""  # what `import theano` says behind the report

    def __init__(
        self, event: GuardEvent, explanation: "Explanation | None" = None, recording: Any = None
    ) -> None:
        super().__init__(event, explanation)
        self.event = event
        self.explanation = explanation
        self.recording = recording

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**vars(self), "recording": None}

    def save_repro(self, path: str | os.PathLike[str], as_built: bool = False) -> Path:
        """Write a script that shows the fault again with PyTensor alone, its data beside it.

        Parameters
        ----------
        path : str or path-like
            Path of the script, which ends in ``.py``.
        as_built : bool
            Write the whole function as you built it, before any rewrite, not the failing
            operation alone.

        Raises
        ------
        ValueError
            If the trip could not be explained, so that there is nothing to write.
        """
        if self.explanation is None:
            raise ValueError(
                "this trip has no explanation, and nothing can be reproduced from it.\n"
                "Call the function again on the same inputs, and save the error of that call."
            )
        return self.explanation.save_repro(path, as_built)

    def rewind(self, call: int) -> int:
        """Give the shared variables the values that they had before an earlier call.

        The function was compiled with ``GuardMode(history=True, snapshots=k)``.

        Parameters
        ----------
        call : int
            Number of the call.

        Returns
        -------
        int
            Number of the call before which they had these values: `call`, or the last one before it
            of which there is a copy.  The same inputs from there on give the same bits.

        Raises
        ------
        ValueError
            If there is no copy.
        """
        if self.recording is None:
            raise ValueError(
                "this error has no copies of the shared variables.\n"
                "Compile the function with GuardMode(history=True, snapshots=8)."
            )
        found: int = self.recording.rewind(call)
        return found

    def __str__(self) -> str:
        with failures():
            color = attempt("the colours", False, _has_colours, sys._getframe().f_back)
        style = {"color": color, "links": color, "in_call": self._in_call}
        return report_text(self.event, self.explanation, **style) + self._addition

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of an uncaught error: the user's frames, and the report."""
        from IPython import get_ipython

        shown = users_part(self.__traceback__)
        return get_ipython().InteractiveTB.structured_traceback(
            type(self), self, shown, tb_offset=1
        )
