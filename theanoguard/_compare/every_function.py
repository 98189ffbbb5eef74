"""Compares the calls of every function that a program compiles with their graphs as written."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from theanoguard._compare.problem import Problem, make_problem, returned
from theanoguard._compare.rewriting import Change, faults
from theanoguard._context import setting
from theanoguard._evaluate.replay import has_effects
from theanoguard._patching import Patch, applied
from theanoguard._provenance import track_provenance, tracker_of
from theanoguard._pytensor import Function

logger = logging.getLogger("theanoguard")

CALLS = 3  # calls of each function that are compared: the first ones

_inside: ContextVar[bool] = ContextVar("inside", default=False)


class Comparing:
    """Compares the first calls of functions that are compiled between ``start`` and ``stop``.

    - `changes`: the faults that were found.
    - `compared`, `left`: calls that were compared, and those that could not be.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.compared = self.left = 0
        self._seen: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._active = ExitStack()

    def __str__(self) -> str:
        left = f", {self.left} could not be" if self.left else ""
        return f"{self.compared} calls compared with the graphs as written{left}"

    def start(self) -> "Comparing":
        """Begin: provenance is tracked, and calls are compared."""
        self._active.enter_context(track_provenance())
        self._active.enter_context(applied([Patch(Function, "__call__", self._comparing)]))
        return self

    def stop(self) -> None:
        """End it."""
        self._active.close()

    def _comparing(self, call: Callable) -> Callable:
        @wraps(call)
        def __call__(fn: Any, *args: Any, **kwargs: Any) -> Any:
            if _inside.get() or tracker_of(fn.maker.fgraph) is None:
                return call(fn, *args, **kwargs)
            with setting(_inside, True):
                problem = self._problem(fn, args, kwargs)
                found = call(fn, *args, **kwargs)
                if problem is not None:
                    self._judge(fn, problem, found)
            return found

        return __call__

    def _problem(self, fn: Any, args: tuple, kwargs: dict[str, Any]) -> Problem | None:
        """Return the problem of a call before it runs, None if it is not compared."""
        graph = fn.maker.fgraph
        if self._seen.get(graph, 0) >= CALLS:
            return None
        self._seen[graph] = self._seen.get(graph, 0) + 1
        try:
            problem = make_problem(fn, args, kwargs)
        except Exception as error:  # bad arguments, or a graph that cannot be copied
            self._leave(error)
            return None
        return None if any(has_effects(n.op) for n in problem.fgraph.apply_nodes) else problem

    def _judge(self, fn: Any, problem: Problem, found: Any) -> None:
        try:
            self.changes += faults(problem, fn.maker.mode, returned(fn, found))
            self.compared += 1
        except Exception as error:  # the test goes on without its comparison
            self._leave(error)

    def _leave(self, error: Exception) -> None:
        self.left += 1
        logger.info("theanoguard: a call was not compared with its graph as written: %s", error)
