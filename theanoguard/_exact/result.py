"""The exact value of a formula, as users get it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from theanoguard._arguments import Count, checked
from theanoguard._exact.balls import bounded_error, kind_of, nearest_float, text_of
from theanoguard._shown import displayed

SHOWN = 6  # elements of an array that its text shows at each end


@dataclass(frozen=True)
class Note:
    """A remark on an exact value."""

    #: One of "live", "decision", "wrapped", "limit".  "live": an operation without an exact value
    #: took its floating-point value.  "decision": a comparison lies within rounding of its
    #: threshold, or is another one in exact arithmetic.  "wrapped": an integer has wrapped around.
    #: "limit": a limit was reached.
    kind: str
    variable: Any  # the result of the operation
    text: str

    def __str__(self) -> str:
        if self.variable is None:
            return self.text
        node = self.variable.owner
        op = getattr(node.op, "scalar_op", node.op) if node else "input"
        return f"{self.variable.name or str(op).partition('{')[0].lower()} {self.text}"


@displayed
@dataclass(frozen=True)
class Exact:
    """The exact value of a variable, with bounds on its error.

    :func:`theanoguard.exact` returns it.

    Parameters
    ----------
    value : ndarray
        Balls of python-flint (an object array), or integers.
    notes : tuple of Note
        What took floating-point values, and which decisions lie within rounding of their threshold.

    Attributes
    ----------
    mid : ndarray
        The nearest float64: Inf where the value is too large, NaN where there is none.  Integers
        and booleans stay what they are.
    error : ndarray
        A bound on the distance between `mid` and the exact value.  NaN if none is known: an
        operation without an exact value took its floating-point value (a note of kind "live").
    known : ndarray of str
        For each element "number"; "none" if the formula has no value there; "infinite" for an
        infinity or the limit at a pole (``log(0)``); "unknown" if a limit was reached first.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt, theanoguard
    >>> x = pt.dvector("x")
    >>> found = theanoguard.exact(pt.log(1 - pt.sigmoid(x)), {x: np.array([1.0, 1000.0])})
    >>> print(found)
    [-1.31326168752, -1000]
    >>> isinstance(found, theanoguard.records.Exact)
    True
    >>> found.mid, found.known, bool((found.error < 1e-12).all())
    (array([   -1.31326169, -1000.        ]), array(['number', 'number'], dtype='<U8'), True)
    """

    value: np.ndarray
    notes: tuple[Note, ...] = ()

    def _each(self, function: Any, dtype: Any) -> np.ndarray:
        found = [function(ball) for ball in self.value.ravel().tolist()]
        return np.array(found, dtype).reshape(self.value.shape)

    @cached_property
    def mid(self) -> np.ndarray:
        """The nearest float64."""
        if self.value.dtype != object:
            return self.value
        return self._each(nearest_float, np.float64)

    @cached_property
    def error(self) -> np.ndarray:
        """A bound on the distance between ``mid`` and the exact value; NaN if none is known."""
        if self.value.dtype != object:
            return np.zeros(self.value.shape)
        if any(note.kind == "live" for note in self.notes):
            return np.full(self.value.shape, np.nan)
        return self._each(bounded_error, np.float64)

    @cached_property
    def known(self) -> np.ndarray:
        """The kind of each element."""
        if self.value.dtype != object:
            return np.full(self.value.shape, "number", "U8")
        return self._each(kind_of, "U8")

    @checked
    def text(self, digits: Count = 12) -> str:
        """Return the value in decimal digits, with exponents of any size.

        Parameters
        ----------
        digits : int, optional

        Returns
        -------
        str

        Examples
        --------
        >>> import numpy as np, pytensor.tensor as pt, theanoguard
        >>> x = pt.dscalar("x")
        >>> theanoguard.exact(pt.exp(x), {x: -1000.0}).text(4)
        '5.076e-435'
        """
        return _text(self.value, digits)

    def __str__(self) -> str:
        return "\n".join([self.text(), *(f"note: {note}" for note in self.notes)])


def _text(value: Any, digits: int) -> str:
    if not isinstance(value, np.ndarray):
        return text_of(value, digits) if hasattr(value, "is_finite") else str(value)
    if value.ndim == 0:
        return _text(value.item(), digits)
    parts = [_text(part, digits) for part in (value if len(value) <= 2 * SHOWN else value[:SHOWN])]
    if len(value) > 2 * SHOWN:
        parts += ["...", *(_text(part, digits) for part in value[-SHOWN:])]
    return f"[{', '.join(parts)}]"
