"""Report each cause in full once, and after that only a line with a count from time to time."""

import sys
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext


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

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def is_due(self, cause: Hashable) -> bool:
        """Count a cause, and return whether its count has doubled since it was last reported."""
        count = self._counts[cause] = self._counts.get(cause, 0) + 1
        return count & (count - 1) == 0

    def count(self, cause: Hashable) -> int:
        """Return how often a cause was counted."""
        return self._counts.get(cause, 0)


def count_text(title: str, count: int, call: int | None) -> str:
    """Return the line that replaces further reports of the same cause.

    Examples
    --------
    >>> count_text("NaN in log: log(-1.0)", 8, 41)
    'NaN in log: log(-1.0): 8 times so far, last in call 41. Reported in full the first time.'
    """
    return f"{title}: {count} times so far, last in call {call}. Reported in full the first time."


def beside_progress_bars() -> AbstractContextManager:
    """Return a context in which text can be written without breaking the progress bars of tqdm.

    The context does nothing without tqdm, or while no bar is shown.

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
