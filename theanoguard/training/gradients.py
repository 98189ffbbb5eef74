"""A guard on the norms of gradients: an explosion is seen a step before the NaN."""

import itertools
import logging
import math
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.c.op import COp

from theanoguard._arguments import Count, Positive, checked
from theanoguard._errors import TheanoguardError
from theanoguard._event import GuardEvent
from theanoguard._naming import readable_names
from theanoguard._pytensor import generic
from theanoguard._shown import displayed
from theanoguard.training.ops import scale_each, squared_norms

logger = logging.getLogger("theanoguard")

Broken = tuple[int, str, float | None, float | None]
"""A norm out of bounds: its position in the row, the rule, the bound, and the median."""
#: Norms that an event and its message tell.
N_RECENT = 8


class GradientError(TheanoguardError, ArithmeticError):
    """A gradient's norm is out of the bounds of a :class:`GradientGuard`.

    The call has changed no shared variable.
    """

    __module__ = "theanoguard.training"  # what a traceback shows in front of the name


@displayed
@dataclass(frozen=True)
class GradientEvent:
    """The record of one norm out of bounds.

    Parameters
    ----------
    step : int
        Number of the check, from 1.
    parameter : str or None
        Name of the parameter.  None for the global norm, which is the norm of all gradients as one
        vector.
    rule : {"max_norm", "factor", "nonfinite"}
        Why the norm is out of bounds: the absolute bound, the bound relative to the median, or a
        norm that is NaN or infinite.
    norm : float
        The norm before clipping.
    bound : float or None
        The largest allowed norm.
    median : float or None
        Median of the previous norms, if there is a relative bound and there were enough steps.
    recent : tuple of float
        The last norms, oldest first.  The last one belongs to this step.
    largest : str
        Name of the parameter with the largest norm.
    """

    step: int
    parameter: str | None
    rule: str
    norm: float
    bound: float | None
    median: float | None
    recent: tuple[float, ...]
    largest: str

    def __str__(self) -> str:
        what = "the global norm of the gradients"
        if self.parameter is not None:
            what = f"the norm of the gradient of {self.parameter}"
        said = _RULES[self.rule].format(event=self, what=what)
        most = f" Most of it is in {self.largest}." if self.parameter is None else ""
        recent = ", ".join(f"{norm:.4g}" for norm in self.recent)
        return f"{said}, at step {self.step}.{most}\nIts last norms: {recent}."

    def to_guard_event(self) -> GuardEvent:
        """Return the event as a :class:`~theanoguard.records.GuardEvent`, as a log keeps it."""
        nan, inf = np.isnan(self.norm), np.isinf(self.norm)
        return GuardEvent(
            kind="nan" if nan else "inf" if inf else "big",
            role="gradient norm",
            node=None,
            op=None,
            variable=self.parameter or self.largest,
            output=0,
            dtype="float64",
            shape=(),
            size=1,
            n_nan=int(nan),
            n_posinf=int(inf),
            n_neginf=0,
            n_big=int(not nan and not inf),
            first_index=(),
            first_value=float(self.norm),
            call=self.step,
        )


_RULES = {
    "max_norm": "{what} is {event.norm:.4g}, above the bound {event.bound:.4g}",
    "factor": "{what} is {event.norm:.4g}, above {event.bound:.4g}, "
    "a multiple of its median {event.median:.4g}",
    "nonfinite": "{what} is {event.norm}",
}


# The guard's `check` for a step in which all is well; else that is called.  Python by itself, in
# caches that the step has filled, would take as long as the norms.
_CHECK_NORMS = """
#include <math.h>
#include <algorithm>
#include <vector>

static PyObject *tg_check_norms(PyObject *guard, PyArrayObject *squares_array) {
    const npy_float64 *squares = (npy_float64 *)PyArray_DATA(squares_array);
    npy_intp n = PyArray_SIZE(squares_array);
    PyObject *arrays = PyObject_GetAttrString(guard, "arrays");
    if (arrays == NULL) return NULL;
    Py_DECREF(arrays);  // the guard holds it
    PyArrayObject *last = (PyArrayObject *)PyTuple_GET_ITEM(arrays, 0);
    PyArrayObject *finite = (PyArrayObject *)PyTuple_GET_ITEM(arrays, 1);
    npy_int64 *counts = (npy_int64 *)PyArray_DATA((PyArrayObject *)PyTuple_GET_ITEM(arrays, 2));
    const npy_float64 *bounds =
        (npy_float64 *)PyArray_DATA((PyArrayObject *)PyTuple_GET_ITEM(arrays, 3));
    const npy_intp window = PyArray_DIMS(finite)[0];
    const npy_intp filled = counts[1] < window ? counts[1] : window, half = filled / 2;
    std::vector<double> row(n + 1), column(filled);
    for (npy_intp i = 0; i < n; i++) {
        row[0] += squares[i];
        row[i + 1] = sqrt(squares[i]);
    }
    row[0] = sqrt(row[0]);
    bool good = row[0] < NPY_INFINITY;
    for (npy_intp i = 0; good && i <= n; i++) {
        double bound = bounds[2 * i];
        const double factor = bounds[2 * i + 1];
        if (factor < NPY_INFINITY && filled >= counts[2]) {
            for (npy_intp j = 0; j < filled; j++)
                column[j] = *(npy_float64 *)PyArray_GETPTR2(finite, j, i);
            std::nth_element(column.begin(), column.begin() + half, column.end());
            double median = column[half];
            if (filled % 2 == 0)
                median = (median + *std::max_element(column.begin(), column.begin() + half)) / 2;
            if (median > 0 && factor * median < bound) bound = factor * median;
        }
        good = row[i] <= bound;
    }
    if (!good) return PyObject_CallMethod(guard, "check", "O", (PyObject *)squares_array);
    for (npy_intp i = 0; i <= n; i++) {
        *(npy_float64 *)PyArray_GETPTR2(last, counts[0] % PyArray_DIMS(last)[0], i) = row[i];
        *(npy_float64 *)PyArray_GETPTR2(finite, counts[1] % window, i) = row[i];
    }
    counts[0]++;
    counts[1]++;
    PyArrayObject *factors = (PyArrayObject *)PyArray_EMPTY(1, &n, NPY_FLOAT64, 0);
    for (npy_intp i = 0; factors != NULL && i < n; i++)
        ((npy_float64 *)PyArray_DATA(factors))[i] = 1;
    return (PyObject *)factors;
}
"""


class CheckNorms(COp):
    """Hand the squared norms of gradients to a guard, which gives a factor for each gradient.

    What tells the operations of two guards apart is a number, the smallest that no living guard
    has: it is part of the key of the compiled module, of which there should not be many.
    """

    __props__ = ("number",)
    params_type = generic

    def __init__(self, guard: "GradientGuard") -> None:
        self.guard = guard
        self.number = _number_of(guard)

    def __str__(self) -> str:
        return "GradientGuard"

    @property
    def holds_back(self) -> bool:
        return "raise" in (self.guard.action, self.guard.nonfinite_action)

    def make_node(self, squares: Variable) -> Apply:
        return Apply(self, [squares], [pt.dvector()])

    def perform(
        self, node: Apply, inputs: list, output_storage: list[list], params: Any = None
    ) -> None:
        output_storage[0][0] = self.guard.check(inputs[0])

    def get_params(self, node: Apply) -> Any:
        return self.guard

    def c_code(
        self, node: Apply, name: str, inputs: list[str], outputs: list[str], sub: dict[str, str]
    ) -> str:
        return f"""
        Py_XDECREF({outputs[0]});
        {outputs[0]} = (PyArrayObject *)tg_check_norms({sub["params"]}, {inputs[0]});
        if ({outputs[0]} == NULL) {{ {sub["fail"]} }}
        """

    def c_support_code(self, **kwargs: Any) -> str:
        return _CHECK_NORMS

    def c_code_cache_version(self) -> tuple:
        return (1,)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False]]

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        return False


_NUMBERED: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_NUMBERING = Lock()


def _number_of(guard: "GradientGuard") -> int:
    with _NUMBERING:
        number = next(i for i in itertools.count() if i not in _NUMBERED)
        _NUMBERED[number] = guard
    return number


class History:
    """The norms that a guard has seen, and its bounds, where Python and C both find them.

    In each row the global norm comes first, then that of each gradient.

    `bounds`: for each of a row, the largest norm and the largest multiple of the median, or None.
    """

    def __init__(
        self, bounds: list[tuple[float | None, float | None]], window: int, warmup: int
    ) -> None:
        self.last = np.zeros((max(window, N_RECENT), len(bounds)))
        self.finite = np.zeros((window, len(bounds)))  # rows without a NaN or an Inf
        self.counts = np.array([0, 0, warmup], dtype="int64")  # of rows ever put into the two
        self.bounds = np.array(
            [[math.inf if bound is None else bound for bound in pair] for pair in bounds]
        )

    @property
    def steps(self) -> int:
        """How many rows have been taken in."""
        return int(self.counts[0])

    def medians(self) -> np.ndarray | None:
        """Return the median of each column, or None if too few rows have been seen."""
        filled = min(int(self.counts[1]), len(self.finite))
        return np.median(self.finite[:filled], axis=0) if filled >= self.counts[2] else None

    def add(self, row: np.ndarray) -> None:
        """Take in a row."""
        self.last[self.counts[0] % len(self.last)] = row
        self.counts[0] += 1
        if math.isfinite(row[0]):
            self.finite[self.counts[1] % len(self.finite)] = row
            self.counts[1] += 1

    def column(self, i: int) -> list[float]:
        """Return the last numbers of a column, oldest first."""
        steps, size = self.steps, len(self.last)
        return [float(self.last[j % size, i]) for j in range(max(0, steps - size), steps)]


class GradientGuard:
    """Watch the norms of gradients, and raise before an exploding gradient changes the weights.

    ``guard(grads, params)`` returns the gradients.  Compute the updates from these, so that the
    check runs first.  Each step is compared with an absolute bound and with a multiple of the
    median of the last norms.

    Parameters
    ----------
    max_norm : float or None
        The largest good global norm, which is the norm of all gradients as one vector.
    factor : float or None
        The global norm may be at most this multiple of its median over the last `window` steps.
    parameter_max_norm, parameter_factor : float or None
        The same for the norm of each parameter's gradient.
    window : int
        Number of steps for the median, and number of norms that are kept.
    warmup : int
        Number of steps before `factor` and `parameter_factor` apply.
    action : {"raise", "warn", "record", "clip"}
        The reaction to a norm out of bounds.  "raise" raises :class:`GradientError`, and no shared
        variable changes.  "warn" logs a warning.  "record" continues.  "clip" scales the gradients
        down to the bound.  Each of them adds a record to ``events``.
    nonfinite_action : {"raise", "warn", "record", "skip"} or None
        The reaction to a norm that is NaN or infinite, whatever the bounds are.  "skip" sets all
        gradients of the step to zero.  None takes `action`, or "raise" if `action` is "clip".
    max_events : int
        Number of events to keep.

    Attributes
    ----------
    events : list of GradientEvent
        The last events, oldest first.
    steps : int
        Number of checked steps.
    history : History
        The last norms; see also :meth:`norms`.

    Raises
    ------
    ValueError
        For arguments out of range.

    Notes
    -----
    The norms are summed in float64, in one pass over the gradients.  The median leaves out norms
    that are not finite.  Clipping multiplies by ``bound / (norm + 1e-6)``, as `clip_grad_norm`
    does.  A guard keeps the history of one function's gradients, so make one guard for each
    function.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard.training import GradientError, GradientGuard
    >>> x, w = pt.scalar("x"), pytensor.shared(1.0, name="w")
    >>> guard = GradientGuard(max_norm=100.0, factor=10.0, warmup=3)
    >>> (g,) = guard(pytensor.grad(x * w**2, [w]), [w])
    >>> step = pytensor.function([x], updates={w: w - 0.1 * g}, mode="CVM")
    >>> for value in (1.0, 1.1, 1.2):
    ...     _ = step(value)
    >>> try:
    ...     step(40.0)
    ... except GradientError as error:
    ...     print(error.args[0].splitlines()[0])
    the global norm of the gradients is 37.94, above 17.6, a multiple of its median 1.76,
    at step 4. Most of it is in w.
    """

    @checked
    def __init__(
        self,
        max_norm: Positive | None = None,
        factor: Positive | None = None,
        *,
        parameter_max_norm: Positive | None = None,
        parameter_factor: Positive | None = None,
        window: Count = 50,
        warmup: Count = 10,
        action: Literal["raise", "warn", "record", "clip"] = "raise",
        nonfinite_action: Literal["raise", "warn", "record", "skip"] | None = None,
        max_events: Count = 1000,
    ) -> None:
        if nonfinite_action is None:
            nonfinite_action = "raise" if action == "clip" else action
        if warmup > window:
            raise ValueError(
                f"warmup is {warmup} and window {window}: there would never be enough norms.\n"
                "Make the window at least as large."
            )
        self.action = action
        self.nonfinite_action = nonfinite_action
        self.warmup = warmup
        self.window = window
        self._bounds = {None: (max_norm, factor), "each": (parameter_max_norm, parameter_factor)}
        self._names: list[str] = []
        self.history = History([], window, warmup)  # of no gradients yet
        self.arrays: tuple[np.ndarray, ...] = ()
        self._events: deque[GradientEvent] = deque(maxlen=max_events)
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<GradientGuard: action={self.action!r}, {self.history.steps} steps>"

    @checked
    def __call__(
        self, grads: Sequence[Variable], params: Sequence[Variable | str] | None = None
    ) -> list[Variable]:
        """Return the gradients, which are checked before anything can use them.

        - `grads`: sequence of TensorVariable of any shape, float32 or float64.
        - `params`: what they are the gradients of, for their names.
        - Raises ``ValueError``: if there are none, if the numbers differ, or if the guard already
          has gradients.
        """
        grads = list(grads)
        params = grads if params is None else list(params)
        if not grads or len(grads) != len(params):
            raise ValueError(
                f"there are {len(grads)} gradients for {len(params)} parameters.\n"
                "Give one gradient, or more, and one parameter for each."
            )
        if self._names:
            raise ValueError(
                "this GradientGuard already watches gradients, and keeps their history.\n"
                "Make another GradientGuard for other gradients."
            )
        self._names = readable_names(params)
        bounds = [self._bounds[None]] + [self._bounds["each"]] * len(grads)
        self.history = History(bounds, self.window, self.warmup)
        h = self.history
        self.arrays = (h.last, h.finite, h.counts, h.bounds)  # for the C code of `CheckNorms`
        return scale_each(CheckNorms(self)(squared_norms(*grads)), grads)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = Lock()

    @property
    def steps(self) -> int:
        """How many steps have been checked."""
        return self.history.steps

    @property
    def events(self) -> list[GradientEvent]:
        """The last events, oldest first."""
        with self._lock:
            return list(self._events)

    @checked
    def norms(self, parameter: str | None = None) -> list[float]:
        """Return the last norms before clipping, oldest first.

        Parameters
        ----------
        parameter : str or None
            Name of the parameter.  None for the global norm.

        Returns
        -------
        list of float

        Raises
        ------
        KeyError
            If there is no gradient of that name.
        """
        names = [None, *self._names]
        if parameter not in names:
            raise KeyError(f"no gradient of {parameter!r}; there are {names[1:]}")
        with self._lock:
            return self.history.column(names.index(parameter))

    def check(self, squares: np.ndarray) -> np.ndarray:
        """Take in the norms of one step, and do what there is to do about them.

        Parameters
        ----------
        squares : ndarray of float64, shape (number of gradients,)
            The squared norm of each gradient.

        Returns
        -------
        ndarray of float64, same shape
            By what to multiply each gradient.

        Raises
        ------
        GradientError
        """
        row = np.sqrt([squares.sum(), *squares])
        with self._lock:
            broken = self._judge(row)
            self.history.add(row)
            events = [self._event(row, *rest) for rest in broken]
            self._events.extend(events)
        factors = np.ones(len(squares))
        for (i, *_), event in zip(broken, events, strict=True):
            self._act(i, event, factors)
        return factors

    def _judge(self, row: np.ndarray) -> list[Broken]:
        """Return the norms out of bounds: (position in the row, rule, bound, median)."""
        if not math.isfinite(row[0]):
            # The global one tells less than that of a parameter.
            bad = np.flatnonzero(~np.isfinite(row)).tolist()
            return [(i, "nonfinite", None, None) for i in bad[1:] or bad]
        medians = self.history.medians()
        broken: list[Broken] = []
        for i, (bound, factor) in enumerate(self.history.bounds.tolist()):
            rule, median = "max_norm", None
            if medians is not None and factor < math.inf:
                median = float(medians[i])
                # (a median of zero says nothing)
                if 0 < factor * median < bound:
                    rule, bound = "factor", factor * median
            if row[i] > bound:
                broken.append((i, rule, bound, median))
        return broken

    def _event(
        self, row: np.ndarray, i: int, rule: str, bound: float | None, median: float | None
    ) -> GradientEvent:
        return GradientEvent(
            step=self.history.steps,
            parameter=self._names[i - 1] if i else None,
            rule=rule,
            norm=float(row[i]),
            bound=bound,
            median=median,
            recent=tuple(self.history.column(i)[-N_RECENT:]),
            largest=self._names[int(np.argmax(row[1:]))],
        )

    def _act(self, i: int, event: GradientEvent, factors: np.ndarray) -> None:
        """Raise, warn, or lower the factors, for the norm at a position of the row."""
        action = self.nonfinite_action if event.rule == "nonfinite" else self.action
        if action == "raise":
            raise GradientError(
                f"{event}\nNo shared variable was changed. Lower the learning rate, "
                'or let GradientGuard(action="clip") scale the gradients.'
            )
        if action == "warn":
            logger.warning("%s", event)
        elif action == "skip":
            factors[:] = 0
        elif action == "clip" and event.bound is not None:
            where = slice(i - 1, i) if i else slice(None)
            factors[where] = np.minimum(factors[where], event.bound / (event.norm + 1e-6))
