"""The guard of one function without a C compiler: the same face as the compiled one, in NumPy.

NumPy clears the exception flags of the processor, so scans do all the work.
"""

import numpy as np

flags_work = False
WATCH, BRACKET, CAREFUL, COUNT, KEEP = 1, 2, 4, 16, 64


def read_flags():
    """Return that no flag is raised."""
    return 0


def clear_flags():
    """Do nothing: there is no flag."""


class Guard:
    """What a guard does around the nodes of one graph; see ``kernel.c`` for the meaning of each.

    Parameters
    ----------
    is_bad : callable
        ``is_bad(value)`` under the policy.
    save : callable
        ``save(index, i)`` returns an object whose ``swap`` undoes what the node overwrites.
    verdict : callable
        ``verdict(index, before)`` says whether the node has made something bad.
    **ignored
        What only the compiled kernel needs.
    """

    def __init__(self, *, is_bad, save, verdict, **ignored):
        self._is_bad = is_bad
        self._save = save
        self._verdict = verdict
        self._inputs = []
        self._undo = []
        self._updated = []
        self._before = []
        self._step = 0
        self._state = {"suspect": False, "looking": True}

    def join(self, other):
        self._state = other._state

    def step(self):
        return self._step

    def set_step(self, step):
        self._step = step

    def look(self, looking):
        self._state["looking"] = looking

    def suspect(self):
        self._state["suspect"] = True

    def set_updated(self, cells):
        self._updated = list(cells)

    def swap_updated(self):
        for i, cell in enumerate(self._updated if self._before else ()):
            cell[0], self._before[i] = self._before[i], cell[0]

    def set_inputs(self, inputs):
        self._inputs = [cell for cell, _trusted in inputs]

    def counters(self):
        return {}

    def scan(self, value):
        return self._is_bad(value)

    def add_node(self, index, cthunk, thunk, saves, partly, overwritten):
        return Node(self, index, thunk, saves, partly, overwritten)

    def set_mode(self, node, mode, checks):
        node.mode, node.checks = mode, list(checks)

    def fired(self, node):
        fired, node.fired = node.fired, False
        return fired

    def begin(self):
        self._undo.clear()
        self._state["suspect"] = False
        self._before = [cell[0] for cell in self._updated]
        if self._state["looking"]:
            self._state["suspect"] = any(self._is_bad(cell[0]) for cell in self._inputs)
        return self._state["suspect"]

    def end(self):
        return 2 if self._state["suspect"] and self._state["looking"] else 0

    def commit(self):
        self._undo.clear()
        self._before = []

    def saved(self):
        return list(self._undo)


class Node:
    """A wrapped node."""

    def __init__(self, guard, index, thunk, saves, partly, overwritten):
        self.guard = guard
        self.index = index
        self.thunk = thunk
        self.saves = list(zip(saves, partly, strict=True))
        self.overwritten = overwritten
        self.mode = 0
        self.checks = []
        self.fired = False

    def run(self):
        """Run the node, and do what its mode says."""
        guard = self.guard
        if self.mode & COUNT:
            guard._step += 1
        if not guard._state["looking"]:
            self.thunk()
            return
        for i, (cell, partly) in enumerate(self.saves):
            if isinstance(cell[0], np.ndarray) and not partly:
                guard._undo.append((cell[0], cell[0].copy(order="K")))
            elif cell[0] is not None:
                guard._undo.append((guard._save(self.index, i), None))
        before = None
        if self.mode & CAREFUL and self.overwritten:
            values = [cell[0] for cell in self.overwritten]
            before = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        self.thunk()
        if any(guard._is_bad(cell[0]) for cell in self.checks) and (
            not self.mode & CAREFUL or guard._verdict(self.index, before)
        ):
            self.fired = True
            guard._state["suspect"] = True


def call(node):
    """Run a wrapped node."""
    node.run()
