"""A guard on the norms of gradients: an explosion is seen a step before the NaN."""

import logging
import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard.explain.event import GuardEvent
from theanoguard.training.ops import scale_each, squared_norms

logger = logging.getLogger("theanoguard")

ACTIONS = ("raise", "warn", "record", "clip")
ON_NONFINITE = ("raise", "warn", "record", "skip")
#: Norms that an event and its message tell.
N_RECENT = 8


class GradientError(ArithmeticError):
    """The norm of a gradient broke a bound of a :class:`GradientGuard`.

    No shared variable has been changed by the call.
    """


@dataclass(frozen=True)
class GradientEvent:
    """The record of one norm out of bounds.

    Parameters
    ----------
    step : int
        Which check of the guard it was (from 1).
    parameter : str or None
        Whose gradient; None for the global norm, that of all gradients as one vector.
    rule : {"max_norm", "factor", "nonfinite"}
        The bound that was broken: the absolute one, the one relative to the median, or the norm
        is NaN or infinite.
    norm : float
        Before clipping.
    bound : float or None
        What it may be at most.
    median : float or None
        Of the norms of the steps before, where there is a relative bound and enough of them.
    recent : tuple of float
        The last norms, oldest first; this one is the last.
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

    def __str__(self):
        what = "the global norm of the gradients"
        if self.parameter is not None:
            what = f"the norm of the gradient of {self.parameter}"
        said = _RULES[self.rule].format(event=self, what=what)
        most = f" Most of it is in {self.largest}." if self.parameter is None else ""
        recent = ", ".join(f"{norm:.4g}" for norm in self.recent)
        return f"{said}, at step {self.step}.{most}\nIts last norms: {recent}."

    def to_guard_event(self):
        """Return the event as a :class:`~theanoguard.GuardEvent`, as a log keeps it."""
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


class RunningMedian:
    """The median of the last numbers, kept sorted.

    Parameters
    ----------
    size : int
        How many numbers count.

    Examples
    --------
    >>> median = RunningMedian(3)
    >>> for x in (5.0, 1.0, 2.0, 9.0):
    ...     median.add(x)
    >>> median.value()
    2.0
    """

    def __init__(self, size):
        self._last = deque()
        self._sorted = []
        self._size = size

    def __len__(self):
        return len(self._last)

    def add(self, x):
        """Take in a number; the oldest goes if there are too many."""
        if len(self._last) == self._size:
            del self._sorted[bisect_left(self._sorted, self._last.popleft())]
        self._last.append(x)
        insort(self._sorted, x)

    def value(self):
        """Return the median."""
        n = len(self._sorted)
        return (self._sorted[(n - 1) // 2] + self._sorted[n // 2]) / 2


class Bounds:
    """The bounds of one norm, and its median where that is asked for.

    Parameters
    ----------
    max_norm, factor : float or None
    window, warmup : int
    """

    def __init__(self, max_norm, factor, window, warmup):
        self.max_norm = math.inf if max_norm is None else max_norm
        self.factor = factor
        self.warmup = warmup
        self.norms = RunningMedian(window)

    def broken(self, norm):
        """Take in a norm; return None or, of the bound it breaks, (rule, bound, median)."""
        rule, bound, median = "max_norm", self.max_norm, None
        if self.factor is not None:
            if len(self.norms) >= self.warmup:
                median = self.norms.value()
                # (a median of zero says nothing)
                if 0 < self.factor * median < bound:
                    rule, bound = "factor", self.factor * median
            self.norms.add(norm)
        return (rule, bound, median) if norm > bound else None


class CheckNorms(Op):
    """Hand the squared norms of gradients to a guard, which gives a factor for each gradient.

    Parameters
    ----------
    guard : GradientGuard
    """

    __props__ = ("guard",)

    def __init__(self, guard):
        self.guard = guard

    def __str__(self):
        return "GradientGuard"

    @property
    def holds_back(self):
        return "raise" in (self.guard.action, self.guard.on_nonfinite)

    def make_node(self, squares):
        return Apply(self, [squares], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.guard.check(inputs[0])

    def connection_pattern(self, node):
        return [[False]]

    def do_constant_folding(self, fgraph, node):
        return False


class GradientGuard:
    """Watch the norms of gradients, which explode before the weights do.

    ``guard(grads, params)`` returns the gradients; what is computed from these waits for the
    check.  Each step is held against an absolute bound and against a multiple of the median of
    the last norms.

    Parameters
    ----------
    max_norm : float or None
        The largest good global norm: that of all gradients as one vector.
    factor : float or None
        The global norm may be at most so many times the median of the last `window` steps.
    parameter_max_norm, parameter_factor : float or None
        The same for the norm of each parameter's gradient by itself.
    window : int
        How many steps the median is taken of, and how many norms are kept.
    warmup : int
        The relative bounds hold once so many steps have been seen.
    action : {"raise", "warn", "record", "clip"}
        What to do about a norm out of bounds: stop the call with :class:`GradientError`, no shared
        variable being changed; log a warning; keep a record in `events` (all others do, too);
        scale the gradients down to the bound.
    on_nonfinite : {"raise", "warn", "record", "skip"} or None
        What to do about a norm that is NaN or infinite, whatever the bounds: as above, or make all
        gradients of that step zero.  None does as `action`, and raises where that is "clip".
    max_events : int
        How many events are kept.

    Attributes
    ----------
    events : list of GradientEvent
        The last events, oldest first.
    steps : int
        How many steps have been checked.

    Raises
    ------
    ValueError
        For arguments out of range.

    Notes
    -----
    The norms are added up in float64, in one pass over the gradients.  Norms that are not finite
    are left out of the median.  Clipping multiplies by ``bound / (norm + 1e-6)``, as
    `clip_grad_norm` does.  A guard keeps the history of one function's gradients: make one for
    each.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard import GradientError, GradientGuard
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

    def __init__(
        self,
        max_norm=None,
        factor=None,
        *,
        parameter_max_norm=None,
        parameter_factor=None,
        window=50,
        warmup=10,
        action="raise",
        on_nonfinite=None,
        max_events=1000,
    ):
        if on_nonfinite is None:
            on_nonfinite = "raise" if action == "clip" else action
        _check_choice("action", action, ACTIONS)
        _check_choice("on_nonfinite", on_nonfinite, ON_NONFINITE)
        bounds = {
            "max_norm": max_norm,
            "factor": factor,
            "parameter_max_norm": parameter_max_norm,
            "parameter_factor": parameter_factor,
        }
        for name, value in bounds.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}.\nIt must be positive, or None.")
        for name, value in (("window", window), ("warmup", warmup), ("max_events", max_events)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}.\nUse a positive integer.")
        if warmup > window:
            raise ValueError(
                f"warmup is {warmup} and window {window}: there would never be enough norms.\n"
                "Make the window at least as large."
            )
        self.action = action
        self.on_nonfinite = on_nonfinite
        self.warmup = warmup
        self.window = window
        self.steps = 0
        self._bounds = {None: (max_norm, factor), "each": (parameter_max_norm, parameter_factor)}
        self._names = None
        self._judges = ()  # pairs of a position in a row of norms and its `Bounds`
        self._rows = deque(maxlen=max(window, N_RECENT))  # the global norm, and each one
        self._events = deque(maxlen=max_events)
        self._lock = Lock()

    def __call__(self, grads, params=None):
        """Return the gradients, which are checked before anything can use them.

        Parameters
        ----------
        grads : sequence of TensorVariable
            Of any shape, float32 or float64.
        params : sequence of Variable or str, optional
            What they are the gradients of, for their names.

        Returns
        -------
        list of TensorVariable

        Raises
        ------
        ValueError
            If there are none, if the numbers differ, or if the guard already has gradients.
        """
        grads = list(grads)
        params = grads if params is None else list(params)
        if not grads or len(grads) != len(params):
            raise ValueError(
                f"there are {len(grads)} gradients for {len(params)} parameters.\n"
                "Give one gradient, or more, and one parameter for each."
            )
        if self._names is not None:
            raise ValueError(
                "this GradientGuard already watches gradients, and keeps their history.\n"
                "Make another GradientGuard for other gradients."
            )
        self._names = readable_names(params)
        rows = [(0, self._bounds[None])]
        rows += [(i + 1, self._bounds["each"]) for i in range(len(grads))]
        self._judges = tuple(
            (i, Bounds(*bounds, self.window, self.warmup))
            for i, bounds in rows
            if bounds != (None, None)
        )
        return scale_each(CheckNorms(self)(squared_norms(*grads)), grads)

    def __getstate__(self):
        return {k: v for k, v in vars(self).items() if k != "_lock"}

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = Lock()

    @property
    def events(self):
        """The last events, oldest first."""
        with self._lock:
            return list(self._events)

    def norms(self, parameter=None):
        """Return the last norms, before clipping, oldest first.

        Parameters
        ----------
        parameter : str or None
            Whose gradient; None for the global norm.

        Returns
        -------
        list of float

        Raises
        ------
        KeyError
            If there is no gradient of that name.
        """
        names = [None, *(self._names or ())]
        if parameter not in names:
            raise KeyError(f"no gradient of {parameter!r}; there are {names[1:]}")
        with self._lock:
            return [row[names.index(parameter)] for row in self._rows]

    def check(self, squares):
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
        squares = squares.tolist()
        row = (math.sqrt(sum(squares)), *map(math.sqrt, squares))
        with self._lock:
            self.steps += 1
            self._rows.append(row)
            broken = self._judge(row)
            events = [self._event(i, *rest) for i, *rest in broken]
            self._events.extend(events)
        factors = np.ones(len(squares))
        for (i, *_), event in zip(broken, events, strict=True):
            self._act(i, event, factors)
        return factors

    def _judge(self, row):
        """Return the norms out of bounds: (position in the row, rule, bound, median)."""
        if math.isfinite(row[0]):
            found = [(i, bounds.broken(row[i])) for i, bounds in self._judges]
            return [(i, *broken) for i, broken in found if broken is not None]
        # The global one tells less than that of a parameter.
        bad = [i for i, norm in enumerate(row) if not math.isfinite(norm)]
        return [(i, "nonfinite", None, None) for i in bad[1:] or bad]

    def _event(self, i, rule, bound, median):
        row = self._rows[-1]
        return GradientEvent(
            step=self.steps,
            parameter=self._names[i - 1] if i else None,
            rule=rule,
            norm=row[i],
            bound=bound,
            median=median,
            recent=tuple(row[i] for row in self._rows)[-N_RECENT:],
            largest=self._names[int(np.argmax(row[1:]))],
        )

    def _act(self, i, event, factors):
        """Raise, warn, or lower the factors, for the norm at a position of the row."""
        action = self.on_nonfinite if event.rule == "nonfinite" else self.action
        if action == "raise":
            raise GradientError(
                f"{event}\nNo shared variable was changed. Lower the learning rate, "
                'or let GradientGuard(action="clip") scale the gradients.'
            )
        if action == "warn":
            logger.warning("%s", event)
        elif action == "skip":
            factors[:] = 0
        elif action == "clip":
            where = slice(i - 1, i) if i else slice(None)
            factors[where] = np.minimum(factors[where], event.bound / (event.norm + 1e-6))


def readable_names(params):
    """Return a name for each parameter, all of them different.

    Parameters
    ----------
    params : sequence of Variable or str

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> readable_names([pt.vector("w"), pt.vector(), pt.vector("w")])
    ['w', 'parameter 1', 'w (parameter 2)']
    """
    names = []
    for i, p in enumerate(params):
        name = p if isinstance(p, str) else p.name or f"parameter {i}"
        names.append(f"{name} (parameter {i})" if name in names else name)
    return names


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}.\nUse one of {', '.join(map(repr, choices))}.")
