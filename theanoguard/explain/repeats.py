"""Saying the same thing once: a report per cause, then a line with a count now and then."""

import sys
from contextlib import nullcontext


class Repeats:
    """Counts how often each cause has been reported.

    Examples
    --------
    >>> repeats = Repeats()
    >>> [repeats.is_due("log") for _ in range(9)]
    [True, True, False, True, False, False, False, True, False]
    >>> repeats.count("log")
    9
    """

    def __init__(self):
        self._counts = {}

    def is_due(self, cause):
        """Count a cause, and return whether its count has doubled since it was last due."""
        count = self._counts[cause] = self._counts.get(cause, 0) + 1
        return count & (count - 1) == 0

    def count(self, cause):
        """Return how often a cause was counted."""
        return self._counts.get(cause, 0)


def cause_of(event):
    """Return what events with the same cause have in common."""
    return event.kind, event.role, event.node, event.output, tuple(s.op for s in event.path)


def count_text(title, count, call):
    """Return the line that stands for further reports of the same cause.

    Examples
    --------
    >>> count_text("NaN in log: log(-1.0)", 8, 41)
    'NaN in log: log(-1.0): 8 times so far, last in call 41. Reported in full the first time.'
    """
    return f"{title}: {count} times so far, last in call {call}. Reported in full the first time."


def beside_progress_bars():
    """Return a context in which text can be written without tearing the progress bars of tqdm.

    Without tqdm, or while no bar is shown, nothing happens.

    Examples
    --------
    >>> with beside_progress_bars():
    ...     print("written")
    written
    """
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bars is None or not getattr(bars, "_instances", None):
        return nullcontext()
    return bars.external_write_mode(file=sys.stderr)
