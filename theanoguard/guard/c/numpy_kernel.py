"""The check without a C compiler: the same face as the compiled kernel, in NumPy.

Everything is scanned, nothing proved; what a node is about to overwrite is always copied
first.
"""

from collections import Counter

import numpy as np


class Guard:
    """State and checks of one guarded function; see ``kernel.c`` for the meaning of each.

    Parameters
    ----------
    is_bad : callable
        ``is_bad(value)`` under the policy.
    report : callable
        ``report(node, output)``, for actions that let the call go on.
    raising : bool
        Whether a bad value raises `trip_type`.
    snapshot : callable
        ``snapshot(cell)`` returns a callable that restores the cell.
    **ignored
        What only the compiled kernel needs.
    """

    def __init__(self, *, is_bad, report, raising, snapshot, trip_type, **ignored):
        self._is_bad = is_bad
        self._report = report
        self._raising = raising
        self._snapshot = snapshot
        self._trip_type = trip_type
        self._inputs = []
        self._undo = []
        self._trip = (-1, -1)
        self._looking = True
        self._runs = Counter()

    def step(self):
        return max(self._runs.values(), default=0)

    def set_step(self, step):
        self._runs = Counter({None: step})

    def look(self, looking):
        self._looking = looking

    def add_inputs(self, checks):
        self._inputs = list(checks)

    def counters(self):
        return {}

    def set_interval(self, slot, lo, hi):
        pass  # nothing is proved

    def add_node(self, index, cthunk, thunk, checks, saves, tail, cells, program, blocks, counts):
        def run():
            if counts:
                self._runs[index] += 1
            if not self._looking:
                thunk()
                return
            for cell in saves:
                self._save(cell)
            thunk()
            for cell, output, _slot in checks:
                if self._is_bad(cell[0]):
                    self._trip = (index, output)
                    if self._raising:
                        raise self._trip_type
                    self._report(index, output)

        return run

    def _save(self, cell):
        value = cell[0]
        if isinstance(value, np.ndarray):
            self._undo.append((value, value.copy()))
        else:
            self._undo.append((self._snapshot(cell), None))

    def saved(self):
        return list(self._undo)

    def begin(self, start):
        if start == 0:
            self._undo.clear()
            self._trip = (-1, -1)
        for i in range(start, len(self._inputs) if self._looking else start):
            cell, *_others = self._inputs[i]
            if self._is_bad(cell[0]):
                return i
        return -1

    def bad_input(self, everything):
        return -1  # none waits

    def commit(self, clean):
        self._undo.clear()

    def rollback(self):
        while self._undo:
            value, kept = self._undo.pop()
            if kept is None:
                value()
            else:
                np.copyto(value, kept)

    def trip(self):
        return self._trip


def call(run):
    """Run a wrapped node."""
    run()
