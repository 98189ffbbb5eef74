"""The guard of one function without a C compiler: the same face as the compiled one, in NumPy.

NumPy clears the exception flags of the processor, so scans do all the work.
"""

import numpy as np

flags_work = False
WATCH, BRACKET, CAREFUL, COUNT, KEEP = 1, 2, 4, 16, 64
PART, PART_BEFORE = 128, 256
MAX_CUT = 0
BAD, EMPTY = 1, 2


def read_flags():
    """Return that no flag is raised."""
    return 0


def clear_flags():
    """Do nothing: NumPy's functions leave no exception flags."""


class Guard:
    """The guard of the nodes of one graph, as in ``kernel.c``, which explains each method.

    Parameters
    ----------
    is_bad : callable
        ``is_bad(value)`` under the policy.
    save : callable
        ``save(index, i)`` returns an object that undoes what the node overwrites, or an array
        and which of its elements are overwritten.
    verdict : callable
        ``verdict(index, before)`` says whether the node has made something bad.
    **ignored
        Arguments that only the compiled kernel needs.
    """

    def __init__(self, *, is_bad, save, verdict, **ignored):
        self._is_bad = is_bad
        self._save = save
        self._verdict = verdict
        self._inputs = []
        self._undo = []
        self._undone = False
        self._aside = []
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

    def set_updated(self, cells, spares):
        self._updated = list(cells)

    def undone(self):
        return self._undone

    def undo(self):
        if not self._undone:
            self._undone = True
            self._swap_updated()
            for entry in reversed(self._undo):
                _swap(entry, undo=True)

    def redo(self):
        if self._undone:
            self._undone = False
            for entry in self._undo:
                _swap(entry, undo=False)
            self._swap_updated()

    def _swap_updated(self):
        for i, cell in enumerate(self._updated if self._before else ()):
            cell[0], self._before[i] = self._before[i], cell[0]

    def set_inputs(self, inputs):
        self._inputs = [cell for cell, _trusted in inputs]

    def counters(self):
        return {}

    def scan(self, value):
        return self._is_bad(value)

    def add_node(self, index, cthunk, thunk, saves, overwritten):
        return Node(self, index, thunk, saves, overwritten)

    def set_mode(self, node, mode, scans, sizes, thin):
        node.mode, node.scans, node.sizes, node.thin = mode, list(scans), list(sizes), list(thin)

    def set_blocks(self, node, cells, outputs):
        """Do nothing: scans in NumPy gain nothing from blocks."""

    def fired(self, node):
        fired, node.fired = node.fired, 0
        return fired

    def begin(self):
        self._undo.clear()
        self._undone = False
        self._state["suspect"] = False
        self._before = [cell[0] for cell in self._updated]
        if self._state["looking"]:
            self._state["suspect"] = any(self._is_bad(cell[0]) for cell in self._inputs)
        return self._state["suspect"]

    def end(self):
        return 2 if self._state["suspect"] and self._state["looking"] else 0

    def set_aside(self):
        self._aside.append((self._undo, self._undone, self._before, self._state["suspect"]))
        self._undo, self._undone, self._before = [], False, []

    def take_up(self, goes_on):
        self._undo, self._undone, self._before, self._state["suspect"] = self._aside.pop()
        if not goes_on:
            self.commit()

    def commit(self):
        self._undo.clear()
        self._undone = False
        self._before = []


class Node:
    """A wrapped node."""

    def __init__(self, guard, index, thunk, saves, overwritten):
        self.guard = guard
        self.index = index
        self.thunk = thunk
        self.saves = [(root, partly) for root, *_, partly in saves]
        self.overwritten = overwritten
        self.mode = 0
        self.scans, self.sizes, self.thin = [], [], []
        self.fired = 0

    def run(self):
        """Run the node, and do what its mode says."""
        guard = self.guard
        if self.mode & COUNT:
            guard._step += 1
        if not guard._state["looking"]:
            self.thunk()
            return
        first = len(guard._undo)
        for i, (cell, partly) in enumerate(self.saves):
            array = cell[0]
            if isinstance(array, np.ndarray) and not partly:
                guard._undo.append([array, ..., array.copy(order="K")])
            elif array is not None:
                saved = guard._save(self.index, i)
                if isinstance(saved, tuple):
                    array, index = saved
                    guard._undo.append([array, index, array[index].copy()])
                else:
                    guard._undo.append([saved, None, None])
        part = [entry for entry in guard._undo[first:] if self.mode & PART and entry[1] is not None]
        found = 0
        if self.mode & PART_BEFORE and any(guard._is_bad(copied) for _, _, copied in part):
            found = BAD
        before = None
        if self.mode & CAREFUL and self.overwritten:
            values = [cell[0] for cell in self.overwritten]
            before = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        self.thunk()
        if any(guard._is_bad(array[index]) for array, index, _ in part):
            found = BAD
        if any(guard._is_bad(cell[0]) for cell in self.scans) and (
            not self.mode & CAREFUL or guard._verdict(self.index, before)
        ):
            found = BAD
        if any(isinstance(cell[0], np.ndarray) and not cell[0].size for cell in self.sizes) or any(
            cell[0].shape[axis] == 1 for cell, axis in self.thin
        ):
            found |= EMPTY
        if found:
            self.fired |= found
            guard._state["suspect"] = True


def _swap(entry, undo):
    """Exchange what is there with what was before."""
    value, index, copied = entry
    if index is None:
        value.undo() if undo else value.redo()
    else:
        entry[2] = value[index].copy()
        value[index] = copied


def call(node):
    """Run a wrapped node."""
    node.run()
