"""What a function's calls had in their inputs, shared variables and outputs, in bounded memory."""

import copy
import logging
import zlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle

import theanoguard.explain.text.since  # noqa: F401  (it writes what `since` returns)
from theanoguard._arguments import Count, check_choice, checked
from theanoguard._naming import readable_names
from theanoguard._pytensor import Function
from theanoguard._steps import attempt, failures
from theanoguard._values import listed
from theanoguard.explain.facts.records import Explanation, Since
from theanoguard.guard.c import build, numpy_kernel
from theanoguard.guard.history.blame import since
from theanoguard.guard.history.signs import RULES, Sign, signs
from theanoguard.guard.history.table import FIGURES, Figure, Kind, Series, Table
from theanoguard.log.trackers import Tracker

logger = logging.getLogger("theanoguard")

LAST = 64
"""Number of calls of which the last are all kept."""

MOST_ELEMENTS = {"input": 512, "shared": 128, "output": 64}
"""Number of elements that are read of an array."""

MEMORY = 8 * 2**20
"""Bytes that the figures of the last calls may take, and the ones of older calls as well.

For a moment the last ones are there twice, when the older half of them becomes older calls.
"""

MOST_PLACES = MEMORY // (2 * LAST * 8 * len(FIGURES))
"""Number of rows of figures of one call; of more arrays than these take, the first are followed."""


@cache
def _sample() -> Callable[..., None]:
    kernel = build.load()
    return numpy_kernel.sample if kernel is None else kernel.sample


@dataclass(frozen=True)
class Copy:
    """The shared variables as they were before a call."""

    call: int
    values: Mapping[SharedVariable, Any]

    def restore(self) -> None:
        for variable, value in self.values.items():
            variable.set_value(copy.deepcopy(value), borrow=True)


class Rows(NamedTuple):
    """The figures that are kept, exchanged as a whole: a thread that draws them sees one state.

    - `older`: list of tuple of ndarray of each call its number, "began", "ended" and "hashes", as
      in :class:`Table`.
    - `last`: the same of the last calls, each with one row a call.
    - `filled`: how many of these rows are in use.
    """

    older: list[tuple[np.ndarray, ...]]
    last: list[np.ndarray]
    filled: int = 0


class Recording:
    """Keeps figures of the calls of one function: all of the last, ever fewer of the older ones.

    Parameters
    ----------
    function : Function
    snapshots : int
        Number of copies of the shared variables to keep, spaced evenly over the calls.
    """

    def __init__(self, function: Function, snapshots: int = 0) -> None:
        self._lay_out(function)
        self._snapshots = snapshots
        self._sent: list[tuple[Tracker, int, tuple[Figure, ...]]] = []
        self.calls = 0
        self.in_call = False
        self.clear()

    def clear(self) -> None:
        """Forget all calls, as for a training that begins anew; the numbers of calls go on."""
        self.failed = False
        self.copies: list[Copy] = []
        self._spacing = 1
        self.random: deque[tuple[int, list]] = deque(maxlen=LAST)
        self._rows = Rows([], [np.empty((2 * LAST, *s), dtype) for s, dtype in self._form])

    # -- what is followed

    def _lay_out(self, function: Function) -> None:
        """Decide what is followed.  (To keep the function would be a cycle.)"""
        inputs = list(zip(function.maker.inputs, function.input_storage, strict=True))
        own = [(i, c) for i, c in inputs if not isinstance(i.variable, SharedVariable)]
        shared = [(i, c) for i, c in inputs if isinstance(i.variable, SharedVariable)]
        arrays = [(i, c) for i, c in shared if _is_array(c.storage[0])]
        self._names = {i.name: n for n, (i, _) in enumerate(own) if i.name}
        self._variables = [i.variable for i, _ in shared]
        self._random = [c for _, c in shared if isinstance(c.storage[0], np.random.Generator)]
        updated = function.maker.fgraph.update_mapping  # (outputs of a copy, but not returned)
        outputs = [o for i, o in enumerate(function.maker.outputs) if i not in updated]
        own, outputs = own[: MOST_PLACES // 4], outputs[: MOST_PLACES // 4]
        arrays = arrays[: (MOST_PLACES - len(own) - len(outputs)) // 2]
        self._own, self._shared = [c for _, c in own], [c for _, c in arrays]
        updates = [i.update for i, _ in arrays]
        made = [*updates, *(o.variable for o in outputs)]
        found = _in_exp([variable for variable in made if variable is not None])
        self._series = [
            *_named("input", [i.variable for i, _ in own], found),
            *_named("shared", [i.variable for i, _ in arrays], found, updates),
            *_named("output", [o.variable for o in outputs], found),
        ]
        room = max(3, MEMORY // (64 * max(1, len(self._series))))
        sizes = [min(MOST_ELEMENTS[s.kind], room) + 1 for s in self._series]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype("int64")
        n_began, n_ended = len(own) + len(arrays), len(arrays) + len(outputs)
        self._first = first[: n_began + 1].copy(), first[len(own) :].copy()
        self._places = [slice(*pair) for pair in pairwise(first[: len(own) + 1].tolist())]
        self._elements = np.zeros(first[-1]), np.zeros(first[-1])
        row_bytes = 8 * len(FIGURES) * max(1, n_began + n_ended)
        self._most_older = min(16 * LAST, MEMORY // row_bytes)
        figures = [((n, len(FIGURES)), "float64") for n in (n_began, n_ended)]
        self._form: list[tuple[tuple[int, ...], str]]
        self._form = [((), "int64"), *figures, ((len(own),), "uint32")]

    # -- a call

    def begin(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], number: int | None = None
    ) -> None:
        """Call `number` begins, with these arguments; None for the next one."""
        self.calls = self.calls + 1 if number is None else number
        self.failed = True
        if self._snapshots and (self.calls - 1) % self._spacing == 0:
            self._copy()
        if self._random:
            states = [c.storage[0].bit_generator.state for c in self._random]
            self.random.append((self.calls, states))
        if self._rows.filled == 2 * LAST:
            self._thin()
        (older, last, row), (now, before) = self._rows, self._elements
        numbers, began, ended, hashes = last
        values = [*self._arguments(args, kwargs), *(_array(c.storage[0]) for c in self._shared)]
        _sample()(values, self._first[0], now, began[row], before, len(self._own))
        for i, place in enumerate(self._places):
            hashes[row, i] = zlib.crc32(now[place])
        ended[row] = np.nan
        numbers[row] = self.calls
        self._rows = Rows(older, last, row + 1)

    def end(self, result: Any) -> None:
        """The call has returned this."""
        shared, (before, now) = [_array(c.storage[0]) for c in self._shared], self._elements
        row = self._last_ended()
        values = [*shared, *map(_array, listed(result)[: len(row) - len(shared)])]
        _sample()(values, self._first[1], now, row, before, 0)
        self.failed = False
        for tracker, every, figures in self._sent:
            if self.calls % every == 0:
                self._send(tracker, partial(tracker.log, self.calls, self._values(figures)))

    def withdraw(self, calls: int) -> None:
        """Only so many calls were made: the function has refused the arguments of the next one."""
        self.copies = [c for c in self.copies if c.call <= calls]
        self.random = deque((kept for kept in self.random if kept[0] <= calls), LAST)
        older, last, filled = self._rows
        self._rows = Rows(older, last, int(np.searchsorted(last[0][:filled], calls, "right")))
        self.calls, self.failed = calls, False

    def _last_ended(self) -> np.ndarray:
        """The row of figures of what the last call has left."""
        found: np.ndarray = self._rows.last[2][self._rows.filled - 1]
        return found

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list:
        """Return the values of the function's own inputs, in their order."""
        values = [container.storage[0] for container in self._own]
        given = args[: len(values)]  # (the call itself refuses more)
        values[: len(given)] = given
        for name, value in kwargs.items():
            place = self._names.get(name) if isinstance(name, str) else None
            if place is not None and place < len(values):
                values[place] = value
        return [_array(value) for value in values]

    def _values(self, figures: Sequence[Figure]) -> dict[str, float]:
        """Return the finite figures of what the last call has left, by figure and name."""
        row, series = self._last_ended(), self._series[len(self._own) :]
        return {
            f"{figure}/{s.name}": float(value)
            for figure in figures
            for s, value in zip(series, row[:, FIGURES.index(figure)], strict=True)
            if np.isfinite(value)
        }

    def _send(self, tracker: Tracker, send: Callable[[], None]) -> None:
        """Send something; a tracker that cannot take it gets no more, and the calls go on."""
        with failures() as failed:
            attempt(f"sending to {type(tracker).__name__}", None, send)
        if failed:
            logger.warning("theanoguard: the record is sent no more: %s", "; ".join(failed))
            self._sent = [sent for sent in self._sent if sent[0] is not tracker]

    @checked
    def send_to(
        self, tracker: Tracker, *, every: Count = 1, figures: Sequence[Figure] = ("norm", "moved")
    ) -> None:
        """Send figures of the shared variables and outputs somewhere, and the blame of an error.

        Parameters
        ----------
        tracker : TensorBoard, MLflow or another object with their methods
            See :class:`theanoguard.log.TensorBoard`.
        every : int
            The figures of each `every`-th call are sent.
        figures : sequence of str
            As for :meth:`series`.
        """
        self._sent.append((tracker, every, tuple(figures)))

    def _copy(self) -> None:
        last = self.copies[-1].values if self.copies else {}
        self.copies.append(Copy(self.calls, {v: _copied(v, last.get(v)) for v in self._variables}))
        if len(self.copies) > self._snapshots:
            self._spacing *= 2
            self.copies = [c for c in self.copies if (c.call - 1) % self._spacing == 0]

    def _thin(self) -> None:
        """Move the older half to what is thinned by powers of two."""
        older, last, _ = self._rows
        rows = [*older, *zip(*(map(np.copy, array[:LAST]) for array in last), strict=True)]
        step = 2
        while len(rows) > self._most_older:
            # (the first call and the newer half stay)
            half = (len(rows) + 1) // 2
            thinned = [row for row in rows[1:half] if row[0] % step == 1]
            rows, step = [rows[0], *thinned, *rows[half:]], 2 * step
        self._rows = Rows(rows, [np.roll(array, LAST, axis=0) for array in last], LAST)

    # -- what was kept

    def table(self, until: int | None = None) -> Table:
        """Return the figures of the calls that are kept, or of those until one that failed."""
        older, last, filled = self._rows
        parts = [array[:filled].copy() for array in last]
        if older:
            columns = map(np.array, zip(*older, strict=True))
            parts = [np.concatenate(pair) for pair in zip(columns, parts, strict=True)]
        failed = self.failed
        if until is not None and until < self.calls:  # (a device has gone on meanwhile)
            parts, failed = [part[parts[0] <= until] for part in parts], True
            parts[2][-1:] = np.nan
        numbers, began, ended, hashes = parts
        return Table(self._series, numbers, began, ended, hashes, failed)

    def explained(self, explanation: Explanation, fails: bool) -> Explanation:
        """Return an explanation of a call, which may fail, that also says since when."""
        call = explanation.event.call
        if fails:  # (so do the calls that a device has made meanwhile)
            numbers, _, ended, _ = self._rows.last
            ended[numbers >= call] = np.nan
        with failures(explanation.failed) as failed:
            found = attempt("since when", None, lambda: since(self.table(call)))
        for tracker, _, _ in self._sent if found is not None else ():
            self._send(tracker, partial(tracker.tell, self.calls, str(found)))
        return replace(explanation, since=found, failed=tuple(failed))

    def since(self) -> Since | None:
        """Return what left its own history first, or None if nothing stands out.

        Returns
        -------
        Since or None
            ``print`` shows a sentence.
        """
        return since(self.table())

    @checked
    def signs(self, skip: str | Sequence[str] = ()) -> list[Sign]:
        """Return signs that the training goes wrong, before a number is bad.

        Parameters
        ----------
        skip : sequence of str
            Names of rules to leave out (:data:`~theanoguard.guard.history.signs.RULES`).

        Returns
        -------
        list of Sign
        """
        left_out = (skip,) if isinstance(skip, str) else tuple(skip)
        for name in left_out:
            check_choice("skip", name, list(RULES))
        return signs(self.table(), left_out)

    def series(self, name: str, figure: Figure = "norm") -> tuple[list[int], list[float]]:
        """Return one figure of an input, a shared variable or an output over the calls.

        Parameters
        ----------
        name : str
        figure : str
            "smallest", "largest", "mean", "norm", "zeros", "bad", "moved", "magnitude" or "size".
            "moved" is how far a call has moved a shared variable.  "zeros" and "bad" are shares.
            "magnitude" is the largest, for an input to about 6 %; the others are of a sample.

        Returns
        -------
        calls : list of int
            The calls that are kept.
        values : list of float
            NaN for a shared variable or an output of a call that failed.

        Raises
        ------
        KeyError
            If nothing has such a name.
        """
        check_choice("figure", figure, FIGURES)
        table = self.table()
        known = [s.name for s in table.series]
        if name not in known:
            raise KeyError(f"nothing is called {name!r}; there are {known}")
        i = known.index(name)
        values = (table.start if table.series[i].kind == "input" else table.end)(i, figure)
        return table.calls.tolist(), values.tolist()

    def lines(self, figure: Figure) -> dict[str, tuple[list[int], list[float]]]:
        """Return one figure of each shared variable and output that has it, by their names."""
        table = self.table()
        return {
            series.name: (table.calls.tolist(), values.tolist())
            for series, i in [*table.of("shared"), *table.of("output")]
            if np.isfinite(values := table.end(i, figure)).any()
        }

    @checked
    def rewind(self, call: Count) -> int:
        """Give the shared variables the values that they had before a call.

        Parameters
        ----------
        call : int
            Number of the call.  If no copy was made just before it, the last one from before that
            is taken.

        Returns
        -------
        int
            Number of the call before which the variables had these values.  The same inputs from
            this call on give the same results, bit for bit.

        Raises
        ------
        ValueError
            If there is no such copy.
        """
        found = [c for c in self.copies if c.call <= call]
        if not found:
            raise ValueError(
                f"there is no copy of the shared variables from before call {call}.\n"
                "Compile the function with GuardMode(history=True, snapshots=...)."
            )
        found[-1].restore()
        return found[-1].call


def _copied(variable: SharedVariable, last: Any) -> Any:
    """Return a copy of the value of a variable, or the last one if no bit has changed since."""
    value = variable.get_value(borrow=True)
    if type(last) is type(value) is np.ndarray and not value.dtype.hasobject:
        same = (last.dtype, last.shape) == (value.dtype, value.shape)
        if same and np.array_equal(np.ravel(last).view("u1"), np.ravel(value).view("u1")):
            return last
    return variable.get_value(borrow=False)


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and not np.isscalar(value)


def _array(value: Any) -> Any:
    """Return a value as an array, or itself if it is none."""
    if not isinstance(value, np.ndarray) and (
        hasattr(value, "__array__") or isinstance(value, bool | int | float | list | tuple)
    ):
        try:
            return np.asarray(value)
        except Exception:  # whatever it is: what becomes of the value, the call decides
            return value
    return value


def _named(
    kind: Kind,
    variables: Sequence[Variable],
    in_exp: Collection[Variable],
    updates: Sequence[Variable | None] | None = None,
) -> list[Series]:
    """Return the series of variables, each with a name of its own."""
    word = "shared variable" if kind == "shared" else kind
    names = readable_names(variables, word)
    made = variables if updates is None else updates
    return [
        Series(
            kind,
            name,
            updates is not None and new is not None,
            getattr(v.type, "dtype", None),
            _made_by(new),
            v in in_exp,
        )
        for name, v, new in zip(names, variables, made, strict=True)
    ]


def _made_by(variable: Variable | None) -> str | None:
    node = None if variable is None else variable.owner
    scalar_op = None if node is None else getattr(node.op, "scalar_op", None)
    return None if scalar_op is None else type(scalar_op).__name__


def _in_exp(variables: Sequence[Variable]) -> set[Variable]:
    """Return what the graph of variables takes ``exp`` of, however its dimensions are arranged."""
    found = set()
    for variable in ancestors(variables):
        if _made_by(variable) == "Exp":
            (operand,) = variable.owner.inputs
            found.add(operand)
            while operand.owner is not None and isinstance(operand.owner.op, DimShuffle):
                operand = operand.owner.inputs[0]
                found.add(operand)
    return found
