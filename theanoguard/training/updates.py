"""Updates that leave every shared variable as it was when a step has gone bad."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.link.c.op import COp
from pytensor.tensor.type import TensorType

from theanoguard._arguments import Count, Positive, Within, checked, pairs_of
from theanoguard._errors import TheanoguardError
from theanoguard._pytensor import generic
from theanoguard._shown import brief
from theanoguard.ops.asserts import TensorLike
from theanoguard.training.ops import FLOATS, FirstBad, keep, scalar_output


class UpdateError(TheanoguardError, ArithmeticError):
    """A step was bad and `guarded_updates` has ``action="raise"``, or too many steps in a row were
    bad.

    The call has changed no shared variable.
    """

    __module__ = "theanoguard.training"  # what a traceback shows in front of the name


class StopAtBad(COp):
    """Lets through whether the step is good, and raises where it must not go on.

    - `names`: what is watched, in the order of `FirstBad`.
    - `allowed`: how many bad steps in a row are let through; None for any number.
    """

    __props__ = ("names", "allowed")
    params_type = generic

    def __init__(self, names: tuple[str, ...], allowed: int | None) -> None:
        self.names = names
        self.allowed = allowed

    def __str__(self) -> str:
        return "StopAtBad"

    def make_node(self, first_bad: Variable, in_a_row: Variable) -> Apply:
        return Apply(self, [first_bad, in_a_row], [pt.scalar(dtype="bool")])

    def raise_if_too_many(self, first_bad: np.ndarray, in_a_row: np.ndarray) -> None:
        """Raise the error of a bad step, unless it is let through."""
        n_before = int(in_a_row)
        if self.allowed is None or n_before < self.allowed:
            return
        before = f", after {n_before} bad steps in a row" if n_before else ""
        raise UpdateError(
            f"{self.names[int(first_bad)]} holds a bad value{before}.\n"
            "No shared variable was changed. Compile the function with "
            "mode=theanoguard.GuardMode() to see where the value comes from."
        )

    def perform(
        self, node: Apply, inputs: list, output_storage: list[list], params: Any = None
    ) -> None:
        first_bad, in_a_row = inputs
        if first_bad >= 0:
            self.raise_if_too_many(first_bad, in_a_row)
        output_storage[0][0] = np.array(first_bad < 0)

    def get_params(self, node: Apply) -> Any:
        return self.raise_if_too_many

    def c_code(
        self, node: Apply, name: str, inputs: list[str], outputs: list[str], sub: dict[str, str]
    ) -> str:
        # Python is called in a bad step alone: in cold caches that takes as long as a pass over
        # small weights.
        first_bad, in_a_row = inputs
        return f"""
        const bool good = *(npy_int64 *)PyArray_DATA({first_bad}) < 0;
        if (!good) {{
            PyObject *none = PyObject_CallFunctionObjArgs(
                {sub["params"]}, (PyObject *){first_bad}, (PyObject *){in_a_row}, NULL);
            if (none == NULL) {{ {sub["fail"]} }}
            Py_DECREF(none);
        }}
        {scalar_output(outputs[0], "bool", "good", sub["fail"])}
        """

    def c_code_cache_version(self) -> tuple:
        return (1,)


@brief
class GuardedUpdates(dict):
    """Updates for ``pytensor.function`` that count the bad steps.

    Attributes
    ----------
    watched : tuple of str
        Names of the values that are checked.
    """

    def __init__(
        self,
        updates: Mapping[Variable, Variable],
        watched: tuple[str, ...],
        skipped: SharedVariable,
        in_a_row: SharedVariable,
        last_bad: SharedVariable,
    ) -> None:
        super().__init__(updates)
        self.watched = watched
        self._skipped = skipped
        self._in_a_row = in_a_row
        self._last_bad = last_bad

    @property
    def skipped(self) -> int:
        """How many steps have been skipped."""
        return int(self._skipped.get_value())

    @property
    def in_a_row(self) -> int:
        """How many of the last steps have been skipped without a good one between."""
        return int(self._in_a_row.get_value())

    @property
    def last_bad(self) -> str | None:
        """The name of what was bad in the last bad step, or None."""
        index = int(self._last_bad.get_value())
        return None if index < 0 else self.watched[index]


@checked
def guarded_updates(
    updates: Mapping[SharedVariable, TensorLike] | Iterable[tuple[SharedVariable, TensorLike]],
    watch: Iterable[Variable] = (),
    *,
    action: Literal["skip", "raise", "backoff"] = "skip",
    learning_rate: SharedVariable | None = None,
    factor: Annotated[float, Within(0, 1, is_open=True)] = 0.5,
    max_in_a_row: Count | None = 10,
    big_threshold: Positive | None = None,
) -> GuardedUpdates:
    """Make updates that leave every shared variable unchanged if a value is bad.

    If a watched value or a new value contains NaN, Inf, or a magnitude above `big_threshold`, every
    shared variable keeps its old value, including the optimizer's state.  The compiled function
    decides this, on any backend.

    Parameters
    ----------
    updates : dict or sequence of pairs
        As for ``pytensor.function``: shared variables and the expressions of their new values.
    watch : sequence of TensorVariable
        Other values to check, such as ``[cost, *grads]``.
    action : {"skip", "raise", "backoff"}
        "skip" continues with the next step, "raise" raises :class:`UpdateError`, "backoff" skips
        the step and multiplies the learning rate by `factor`.
    learning_rate : SharedVariable or None
        A float scalar, for "backoff".
    factor : float
        Between 0 and 1.
    max_in_a_row : int or None
        Number of bad steps in a row that are allowed.  The next one raises :class:`UpdateError`.
        None allows any number.
    big_threshold : float or None
        The largest good magnitude.  None allows every finite number.

    Returns
    -------
    GuardedUpdates
        A dict for ``pytensor.function``.  Its attributes `skipped`, `in_a_row` and `last_bad` count
        the bad steps and name the last bad value.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit.

    Notes
    -----
    The old values must be kept until the end of the step, so the updates do not work in place.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard.training import guarded_updates
    >>> x, w = pt.scalar("x"), pytensor.shared(1.0, name="w")
    >>> updates = guarded_updates({w: w - pt.log(x)})
    >>> step = pytensor.function([x], updates=updates)
    >>> step(0.0), w.get_value(), updates.skipped, updates.last_bad
    ([], array(1.), 1, 'the new value of w')
    """
    updates = pairs_of("guarded_updates", updates)
    watch = [pt.as_tensor_variable(v) for v in watch]
    if action == "backoff" and not (
        isinstance(learning_rate, SharedVariable)
        and _holds_floats(learning_rate)
        and learning_rate.type.ndim == 0
    ):
        raise TypeError(
            f"learning_rate is {learning_rate!r}.\n"
            'With action="backoff" it must be a shared float scalar.'
        )
    new = {v: v.type.filter_variable(value) for v, value in updates.items()}
    looked_at = {
        **{v: v.name or f"watched value {i}" for i, v in enumerate(watch)},
        **{
            value: f"the new value of {v.name or 'an unnamed shared variable'}"
            for v, value in new.items()
        },
    }
    looked_at = {v: name for v, name in looked_at.items() if _holds_floats(v)}
    if not looked_at:
        raise ValueError(
            "there is nothing to watch: no update and no watched value is a float array.\n"
            "Give updates of float32 or float64 shared variables."
        )
    names = tuple(looked_at.values())
    skipped, in_a_row, last_bad = (
        pytensor.shared(np.array(start, dtype="int64"), name=name)
        for name, start in (("skipped steps", 0), ("bad steps in a row", 0), ("last bad", -1))
    )
    first_bad = FirstBad(big_threshold)(*looked_at)
    allowed = 0 if action == "raise" else max_in_a_row
    ok = StopAtBad(names, allowed)(first_bad, in_a_row)
    result = {v: keep(ok, value, v) for v, value in new.items()}
    if action == "backoff" and learning_rate is not None:
        good = new.get(learning_rate, learning_rate)
        worse = pt.cast(learning_rate * factor, learning_rate.type.dtype)
        result[learning_rate] = pt.switch(ok, good, worse)
    result[skipped] = pt.switch(ok, skipped, skipped + 1)
    result[in_a_row] = pt.switch(ok, pt.zeros_like(in_a_row), in_a_row + 1)
    result[last_bad] = pt.switch(ok, last_bad, first_bad)
    return GuardedUpdates(result, names, skipped, in_a_row, last_bad)


def _holds_floats(variable: Variable) -> bool:
    return isinstance(variable.type, TensorType) and variable.type.dtype in FLOATS
