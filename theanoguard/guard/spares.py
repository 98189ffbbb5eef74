"""How a call updates shared variables: beside the old values, and all of them in one step.

The new value of an array is written into a second buffer, and each of the two arrays is used in
turn.  If the call fails, the shared variable still holds the old array, and nothing has to be put
back.  All functions that update a variable share its second buffer.

Without the guard some updates overwrite the array, and other code that holds it sees the new value.
It does so here as well: when the call has ended, the new value is copied into an array that
somebody holds.
"""

import sys
import weakref
from collections.abc import Collection, Sequence
from operator import itemgetter, setitem
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import exchange_ops
from theanoguard.guard.plan import is_large_state, memory_of


class Spare(list):
    """A storage cell that holds the second buffer of a shared variable, or None."""

    __slots__ = ("__weakref__",)


LARGE = 1 << 16  # bytes of an array from which a second buffer is worth its keeping


def _references(cell: list) -> int:
    return sys.getrefcount(cell[0])


_ALONE = _references([np.empty(0)])  # of what only its storage cell holds


def is_alone(cell: list, others: int = 0) -> bool:
    """Whether a storage cell, and `others` known references, are all that leads to an array.

    Examples
    --------
    >>> cell = [np.zeros(3)]
    >>> is_alone(cell)
    True
    >>> view = cell[0][1:]
    >>> is_alone(cell)
    False
    """
    if _references(cell) != _ALONE + others or weakref.getweakrefcount(cell[0]):
        return False
    base = cell[0].base
    if base is None:
        return cell[0].flags.owndata
    if type(base) is bytes:  # (it has been unpickled)
        return True
    # Memory of Numba's, unless that belongs to another array.
    return (
        type(base).__module__ == "_nrt_python"
        and _references([base]) == _ALONE + 2
        and base.refcount == 1
        and base.parent is None
    )


def is_ours(cell: list, others: int = 0) -> bool:
    """Whether an array is alone, in the sense of :func:`is_alone`, and can be a second buffer."""
    if type(cell[0]) is not np.ndarray or not is_alone(cell, others):
        return False
    flags = cell[0].flags
    return cell[0].base is None and flags.c_contiguous and flags.behaved


def is_held(values: list, place: int, new: Any) -> bool:
    """Whether other code holds an array that a call has replaced, or its memory.

    - `values`: list of the inputs of the call.  Where the array is stored and this list have the
      only references that are known.
    - `place`: which of them the array is.
    - `new`: the new value.
    """
    own = [values[place]]
    if type(own[0]) is not np.ndarray or type(new) is not np.ndarray or is_alone(own, 2):
        return False
    [old] = own
    same = old.shape == new.shape and old.dtype == new.dtype
    return same and old is not new and old.flags.writeable


def no_buffer(kind: TensorType) -> np.ndarray:
    """Return the empty array that stands for the second buffer of one that needs none."""
    return np.empty((0,) * kind.ndim, kind.dtype)


def second_buffer(value: np.ndarray, spare: list) -> np.ndarray:
    """Return the second buffer of an array, or an empty array if it is too small to need one.

    - `value`: the value of a shared variable.
    - `spare`: where its second buffer is kept.
    """
    if value.nbytes < LARGE or not value.flags.c_contiguous:
        return np.empty((0,) * value.ndim, value.dtype)
    if not is_ours(spare) or spare[0].shape != value.shape or spare[0].dtype != value.dtype:
        spare[0] = np.empty_like(value)
    return spare[0]


_SPARES: weakref.WeakValueDictionary[int, Spare] = weakref.WeakValueDictionary()


def spare_of(cell: list) -> Spare:
    """Return where the second buffer of a shared variable is kept, as long as a function uses it.

    `cell`: the storage of the variable.  Who keeps the buffer keeps it alive.

    Examples
    --------
    >>> import pytensor
    >>> cell = pytensor.shared(1.0).container.storage
    >>> spare_of(cell) is spare_of(cell)
    True
    """
    return _SPARES.setdefault(id(cell), Spare([None]))


# The tag of an update that overwrites a shared variable without the guard: which input that is.
OVERWRITES = "theanoguard_overwrites"


def write_beside(fgraph: FunctionGraph, restore: bool) -> None:
    """Have elementwise operations that overwrite a shared variable write beside it.

    Other operations stay: what they overwrite is copied before the call.  So do those whose result
    is returned in the memory of the variable (``Out(..., borrow=True)``).

    - `fgraph`: a function's own.  Its operations are exchanged, and updates get a tag.
    - `restore`: whether a failed call leaves large shared variables as they were.
    """
    updates = getattr(fgraph, "update_mapping", None) or {}
    memories = list(map(memory_of, fgraph.outputs))
    beside: dict[Apply, Elemwise] = {}
    for output, i in updates.items():
        root, update = fgraph.inputs[i], fgraph.outputs[output]
        if (
            not isinstance(root, SharedVariable)
            or memories.count(root) != 1
            or (is_large_state(root) and not restore)
        ):
            continue
        variable, node = update, None
        while variable is not root and variable.owner is not None:
            node, own = variable.owner, variable.owner.outputs.index(variable)
            op = beside.get(node, node.op)
            operand = op.inplace_pattern.get(own) if type(op) is Elemwise else None
            if operand is None:
                break
            variable = node.inputs[operand]
        if variable is root and node is not None:
            pattern = {o: k for o, k in op.inplace_pattern.items() if o != own}
            for k in _free(fgraph, node, own, pattern.values()):
                pattern[own] = k
            beside[node] = Elemwise(op.scalar_op, pattern, openmp=op.openmp)
            setattr(update.tag, OVERWRITES, i)
    exchange_ops(fgraph, beside)


def _free(fgraph: FunctionGraph, node: Apply, output: int, taken: Collection[int]) -> list[int]:
    """Return the first operand that an output may overwrite: an array that nothing else reads."""
    kind = node.outputs[output].type
    return [
        k
        for k, v in enumerate(node.inputs)
        if v.owner is not None
        and v.type == kind
        and k not in taken
        and memory_of(v) is v
        and [user for user, _ in fgraph.clients[v]] == [node]
    ][:1]


class Turn(NamedTuple):
    """The update of a shared variable.

    - `output`: which result is the new value.
    - `cell`: the storage of the variable.
    - `place`: which input it is.
    - `overwrites`: whether the update overwrites the array without the guard.
    - `spare`: where the second buffer is kept.
    """

    output: int
    cell: list
    place: int
    overwrites: bool
    spare: list | None = None


_held = itemgetter(0)


class Ending:
    """What a call changes that ends well: all of it in one step, or nothing if it is interrupted.

    ``ending.c`` does the same.

    - `outputs`: which results are stored, and where.
    - `turns`: the updates.
    - `stored`: whether that has been done.

    Examples
    --------
    >>> output, state, stored = [None], [1], [False]
    >>> ending = Ending([(0, output)], [Turn(1, state, 0, False)], stored)
    >>> ending([1], [5, 2])
    [5, 2]
    >>> output, state, stored
    ([5], [2], [True])
    """

    def __init__(self, outputs: list[tuple[int, list]], turns: list[Turn], stored: list) -> None:
        self._outputs = [i for i, _ in outputs]
        self._turns = turns
        self._cells = [*(cell for _, cell in outputs), *(t.cell for t in turns), stored]

    def __call__(self, values: list, results: Sequence[Any]) -> list:
        """Store the results, and return them.

        `values`: list of the inputs, when the call began: the caller's only references to them.
        """
        news, copied, passed = [], [], []
        for turn in self._turns:
            new, spare = results[turn.output], turn.spare
            if turn.overwrites and is_held(values, turn.place, new):
                copied.append((values[turn.place], new))
                news.append(values[turn.place])
                continue
            news.append(new)
            if spare is not None and new is spare[0]:
                own = [values[turn.place]]
                passed.append((spare, own[0] if is_ours(own, 2) else None))
        arrays, contents = zip(*copied, strict=True) if copied else ((), ())
        spares, buffers = zip(*passed, strict=True) if passed else ((), ())
        # No bytecode runs meanwhile, so that no handler of a signal (Ctrl-C) does, nor another
        # thread.  (The old values go when nothing is left to store: to free an object may run its
        # finalizer.)
        targets = (*arrays, *self._cells, *spares)
        places = (*[...] * len(arrays), *[0] * (len(targets) - len(arrays)))
        stored = (*contents, *(results[i] for i in self._outputs), *news, True, *buffers)
        old = list(map(_held, self._cells))
        any(map(setitem, targets, places, stored))
        del old
        return list(results)
