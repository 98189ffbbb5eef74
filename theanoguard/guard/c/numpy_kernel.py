"""The guard of one function without a C compiler: the same face as the compiled one, in NumPy.

NumPy clears the exception flags of the processor, so scans do all the work.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

flags_work = False
WATCH, BRACKET, CAREFUL, COUNT, KEEP = 1, 2, 4, 16, 64
PART, PART_BEFORE, OVERWRITES = 128, 256, 2048
MAX_CUT = 0
BAD, EMPTY = 1, 2


def read_flags() -> int:
    """Return that no flag is raised."""
    return 0


def clear_flags() -> None:
    """Do nothing: NumPy's functions leave no exception flags."""


def sample(
    values: list,
    first: np.ndarray,
    out: np.ndarray,
    figures: np.ndarray,
    before: Any,
    n_whole: int,
) -> None:
    """Take elements of arrays, and what they say of them (see ``sample.c``)."""
    figures[: len(values)] = np.nan
    for i, value in enumerate(values):
        room = int(first[i + 1] - first[i]) - 1
        out[first[i] : first[i + 1]] = 0.0
        known = isinstance(value, np.ndarray) and value.dtype.isnative
        if not known or value.dtype.kind not in "fiub" or value.dtype.char in "eg":
            continue
        value = np.asarray(value)  # (no matrix, and no masks)
        size, n = value.size, min(value.size, room)
        out[first[i] + room] = figures[i, 7] = size
        if n == 0:
            continue
        at = np.arange(1, n + 1, dtype="int64") * size // n - 1
        place = slice(first[i], first[i] + n)
        with np.errstate(all="ignore"):
            # (asked for one by one: ``ravel`` would copy an array whose rows are not in a row)
            x = np.atleast_1d(value)[np.unravel_index(at, value.shape or 1)].astype("float64")
            good = x[np.isfinite(x)]
            if before is not None and before[first[i] + room] == size:
                moved = float(np.square(x - before[place]).sum())
                figures[i, 5] = math.sqrt(moved * (size / n))
            squares = float(np.square(good).sum())
            if good.size:
                figures[i, [0, 1, 8]] = good.min(), good.max(), good.mean()
        out[place] = x
        all_of_it = float(np.abs(value).max()) if i < n_whole else 0.0
        figures[i, 2] = math.sqrt(squares * (size / n))
        figures[i, 3] = np.count_nonzero(x == 0) / n
        figures[i, 4] = (1 - good.size / n) or (0.0 if math.isfinite(all_of_it) else 1 / size)
        figures[i, 6] = np.fmax(all_of_it, np.abs(good).max(initial=0.0))


class Guard:
    """The guard of the nodes of one graph, as in ``kernel.c``, which explains each method.

    - `is_bad`: ``is_bad(value)`` under the policy.
    - `save`: ``save(index, i)`` returns an object that undoes what the node overwrites, or an array
      and which of its elements are overwritten.
    - `verdict`: ``verdict(index, before)`` says whether the node has made something bad.
    - `before_loss`: ``before_loss()`` raises if the call must not overwrite anything for good.
    - `**ignored`: arguments that only the compiled kernel needs.
    """

    def __init__(
        self,
        *,
        is_bad: Callable[[Any], bool],
        save: Callable[[int, int], Any],
        verdict: Callable[[int, list | None], bool],
        before_loss: Callable[[], object],
        **ignored: Any,
    ) -> None:
        self._is_bad = is_bad
        self._save = save
        self._verdict = verdict
        self._before_loss = before_loss
        self._overwrote = False
        self._inputs: list[list] = []
        self._undo: list[list] = []
        self._undone = False
        self._aside: list[tuple] = []
        self._updated: list[list] = []
        self._before: list = []
        self._step = 0
        self._state = {"suspect": False, "looking": True}

    def join(self, other: "Guard") -> None:
        self._state = other._state

    def step(self) -> int:
        return self._step

    def set_step(self, step: int) -> None:
        self._step = step

    def look(self, looking: bool) -> None:
        self._state["looking"] = looking

    def suspect(self) -> None:
        self._state["suspect"] = True

    def set_updated(self, cells: Sequence[list], spares: Sequence[list]) -> None:
        self._updated = list(cells)

    def undone(self) -> bool:
        return self._undone

    def overwrote(self) -> bool:
        return self._overwrote

    def undo(self) -> None:
        if not self._undone:
            self._undone = True
            self._swap_updated()
            for entry in reversed(self._undo):
                _swap(entry, undo=True)

    def redo(self) -> None:
        if self._undone:
            self._undone = False
            for entry in self._undo:
                _swap(entry, undo=False)
            self._swap_updated()

    def _swap_updated(self) -> None:
        for i, cell in enumerate(self._updated if self._before else ()):
            cell[0], self._before[i] = self._before[i], cell[0]

    def set_inputs(self, inputs: Iterable[tuple[list, bool]]) -> None:
        self._inputs = [cell for cell, _trusted in inputs]

    def counters(self) -> dict[str, int]:
        return {}

    def scan(self, value: Any) -> bool:
        return self._is_bad(value)

    def add_node(
        self,
        index: int,
        cthunk: object,
        thunk: Callable[[], object],
        saves: Iterable[tuple],
        overwritten: Sequence[list],
    ) -> "Node":
        return Node(self, index, thunk, saves, overwritten)

    def set_mode(
        self,
        node: "Node",
        mode: int,
        scans: Iterable[list],
        sizes: Iterable[list],
        thin: Iterable[tuple[list, int]],
    ) -> None:
        node.mode, node.scans, node.sizes, node.thin = mode, list(scans), list(sizes), list(thin)

    def set_blocks(self, node: "Node", cells: Sequence[list], outputs: object) -> None:
        """Do nothing: scans in NumPy gain nothing from blocks."""

    def fired(self, node: "Node") -> int:
        fired, node.fired = node.fired, 0
        return fired

    def begin(self) -> bool:
        self._undo.clear()
        self._undone = self._overwrote = False
        self._state["suspect"] = False
        self._before = [cell[0] for cell in self._updated]
        if self._state["looking"]:
            self._state["suspect"] = any(self._is_bad(cell[0]) for cell in self._inputs)
        return self._state["suspect"]

    def end(self) -> int:
        return 2 if self._state["suspect"] and self._state["looking"] else 0

    def set_aside(self) -> None:
        kept = self._undo, self._undone, self._before, self._overwrote, self._state["suspect"]
        self._aside.append(kept)
        self._undo, self._undone, self._before, self._overwrote = [], False, [], False

    def take_up(self, goes_on: bool) -> None:
        kept = self._aside.pop()
        self._undo, self._undone, self._before, self._overwrote, self._state["suspect"] = kept
        if not goes_on:
            self.commit()

    def commit(self) -> None:
        self._undo.clear()
        self._undone = False
        self._before = []


class Node:
    """A wrapped node."""

    def __init__(
        self,
        guard: Guard,
        index: int,
        thunk: Callable[[], object],
        saves: Iterable[tuple],
        overwritten: Sequence[list],
    ) -> None:
        self.guard = guard
        self.index = index
        self.thunk = thunk
        self.saves = [(root, partly) for root, *_, partly in saves]
        self.overwritten = overwritten
        self.mode = 0
        self.scans: list[list] = []
        self.sizes: list[list] = []
        self.thin: list[tuple[list, int]] = []
        self.fired = 0

    def run(self) -> None:
        """Run the node, and do what its mode says."""
        guard = self.guard
        if self.mode & COUNT:
            guard._step += 1
        if not guard._state["looking"]:
            self.thunk()
            return
        if self.mode & OVERWRITES and not guard._overwrote:
            if guard._state["suspect"]:
                guard._before_loss()
            guard._overwrote = True
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


def _swap(entry: list, undo: bool) -> None:
    """Exchange what is there with what was before."""
    value, index, copied = entry
    if index is None:
        value.undo() if undo else value.redo()
    else:
        entry[2] = value[index].copy()
        value[index] = copied


def call(node: "Node") -> None:
    """Run a wrapped node."""
    node.run()
