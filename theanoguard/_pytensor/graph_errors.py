"""The variables and nodes that PyTensor's errors on a graph are about.

PyTensor puts their names into a message.  An error is made in a function that has them at hand.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from pytensor.compile.rebuild import UnusedInputError
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.utils import MissingInputError

from theanoguard._patching import Patch

logger = logging.getLogger("theanoguard")


@dataclass(frozen=True)
class GraphFault:
    """What an error on a graph is about."""

    kind: str  # one of "missing", "unused", "disconnected", "null"
    variable: Any  # the input that is missing or unused, or the variable of the gradient
    node: Any = None  # the node that reads a missing input
    cost: Any = None  # what is differentiated
    reason: str = ""  # why a gradient is not defined


NOTES_ON_GRAPHS: list[Callable[[GraphFault], str]] = []
"""What to add to such an error; an empty text for nothing."""

_KINDS: dict[type[Exception], str] = {
    MissingInputError: "missing",
    UnusedInputError: "unused",
    DisconnectedInputError: "disconnected",
    NullTypeGradError: "null",
}
_MAX_FRAMES = 12


def _fault(kind: str, frame: Any) -> GraphFault | None:
    """Return what an error is about, which is made in a frame or near it."""
    seen: dict[str, Any] = {}
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("pytensor."):
            break
        for name in ("var", "node", "cost", "_wrt", "_rval", "i"):
            if name in frame.f_locals:
                seen.setdefault(name, frame.f_locals[name])
        frame = frame.f_back
    variable = seen.get("var")
    if kind == "unused":
        variable = getattr(seen.get("i"), "variable", None)
    elif "_rval" in seen and isinstance(seen.get("i"), int):
        variable = seen["_wrt"][seen["i"]]
    if not isinstance(variable, Variable):
        return None
    reason = getattr(seen["_rval"][seen["i"]].type, "why_null", "") if kind == "null" else ""
    return GraphFault(kind, variable, seen.get("node"), seen.get("cost"), reason)


def _with_note(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def wrap(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            handled = sys.exception()
            if isinstance(handled, type(self)):  # (it is raised again with more words)
                notes = getattr(handled, "__notes__", [])
            else:
                notes = _notes(kind, sys._getframe(1))
            for note in notes:
                self.add_note(note)

        return __init__

    return wrap


def _notes(kind: str, frame: Any) -> list[str]:
    try:
        fault = _fault(kind, frame)
        return [] if fault is None else [t for note in NOTES_ON_GRAPHS if (t := note(fault))]
    except Exception:
        logger.exception("theanoguard: the error could not be explained; please report this")
        return []


HOOKS = [Patch(error, "__init__", _with_note(kind)) for error, kind in _KINDS.items()]
