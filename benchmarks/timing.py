"""How the benchmarks compare: variants called alternately, and the medians of paired figures.

On a machine that is shared a median of unpaired times says more of the neighbours than of the
code.  Here each round calls every variant, in random order, and only figures of one round are
compared.

Memory that is freed is not handed back to the operating system meanwhile.  Whether malloc does that
depends on what the process did before, and fetching the pages again in each call can take as long
as the call: it would hide what is to be measured.
"""

import contextlib
import ctypes
import gc
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Variant:
    """One way to compute something.

    Parameters
    ----------
    call : callable
        Computes it once, and returns when it is done.
    reset : callable
        Sets back what the calls change, so that every round computes the same.
    on : callable
        Returns the context in which the calls are made.
    """

    call: Callable[[], object]
    reset: Callable[[], object] = lambda: None
    on: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def keep_memory():
    """Have malloc keep what is freed, if it is one that can be told to (glibc's)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_max = -1, -4  # from malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)


def interleaved(variants, rounds, budget, clock=time.process_time):
    """Return the seconds per call of each variant, one number a round.

    Parameters
    ----------
    variants : dict of Variant
    rounds : int
    budget : float
        Seconds for the calls of one variant in one round; there is one call at least.
    clock : callable
        The default counts what all threads of the process compute, and no one else's work.
    """

    def seconds(variant, calls):
        with variant.on():
            variant.reset()
            variant.call()
            start = clock()
            for _ in range(calls):
                variant.call()
            return (clock() - start) / calls

    keep_memory()
    calls = {n: max(1, int(budget / max(seconds(v, 3), 1e-7))) for n, v in variants.items()}
    times = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in random.sample(list(variants), len(variants)):
                times[name].append(seconds(variants[name], calls[name]))
    finally:
        gc.enable()
    return times


def ratio(times, name, baseline="plain"):
    """Return the median of the paired ratios of one variant to another."""
    return statistics.median(a / b for a, b in zip(times[name], times[baseline], strict=True))


def extra(times, name, baseline="plain"):
    """Return the median of the paired differences, in seconds per call."""
    return statistics.median(a - b for a, b in zip(times[name], times[baseline], strict=True))
