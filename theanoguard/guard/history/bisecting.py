"""The first call at which something holds, found by running a program again."""

from collections.abc import Callable
from typing import TypeVar

from theanoguard._arguments import Count, checked

T = TypeVar("T")


@checked
def bisect(
    run: Callable[[int], T], condition: Callable[[T], object], *, at_most: Count = 2**20
) -> int | None:
    """Return the first call after which a condition holds, without a record of the calls.

    Parameters
    ----------
    run : callable
        ``run(n)`` starts the program anew, makes the first `n` calls, and returns what `condition`
        looks at.  With the same `n` it must do the same, so seed all random streams in it.
    condition : callable
        Given what `run` returns.  Once it holds, it must hold after all later calls.
    at_most : int
        The last call that is tried.

    Returns
    -------
    int or None
        Number of the call.  None if the condition does not hold after `at_most` calls.

    Notes
    -----
    It runs the program about ``2 * log2(n)`` times, each time for at most ``2 * n`` calls, where
    `n` is the result: first with 1, 2, 4, ... calls, then by bisection.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard import bisect
    >>> w = pytensor.shared(1.0, name="w")
    >>> f = pytensor.function([], updates={w: w * 1.5}, mode="CVM")
    >>> def run(n):
    ...     w.set_value(1.0)
    ...     for _ in range(n):
    ...         f()
    ...     return w.get_value()
    >>> bisect(run, lambda value: value > 1e6)
    35
    """
    good, bad = 0, 1
    while not condition(run(bad)):
        if bad == at_most:
            return None
        good, bad = bad, min(2 * bad, at_most)
    while bad - good > 1:
        middle = (good + bad) // 2
        if condition(run(middle)):
            bad = middle
        else:
            good = middle
    return bad
