"""The figures of the calls that are kept: one row a call."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

Kind: TypeAlias = Literal["input", "shared", "output"]
Figure: TypeAlias = Literal[
    "smallest", "largest", "norm", "zeros", "bad", "moved", "magnitude", "size", "mean"
]
FIGURES = get_args(Figure)


@dataclass(frozen=True)
class Series:
    """One array that is followed over the calls."""

    kind: Kind
    name: str
    updated: bool = False  # whether the function updates it
    dtype: str | None = None  # None if it is no array
    #: The scalar operation that computes the output, or the updated value, in the user's graph.
    made_by: str | None = None
    into_exp: bool = False  # whether the user's graph takes ``exp`` of it as it is

    @property
    def most(self) -> float:
        """The largest number of its dtype."""
        dtype = self.dtype if self.dtype in ("float16", "float32") else "float64"
        return float(np.finfo(dtype).max)


@dataclass(frozen=True)
class Table:
    """The figures of the calls that are kept, oldest first."""

    series: list[Series]  # inputs, then shared variables, then outputs
    #: ndarray of int64, shape (n,).  Numbers of the calls, from 1.
    calls: np.ndarray
    #: ndarray of float64, shape (n, number of inputs and shared variables, 9).  The :data:`FIGURES`
    #: of what was there when the call began.  For a shared variable, "moved" is how far it is from
    #: where the last call had left it, NaN if its size is another.
    began: np.ndarray
    #: ndarray of float64, shape (n, number of shared variables and outputs, 9).  Those when it had
    #: ended, NaN for a call that failed.  "moved" is how far the call has moved a shared variable.
    ended: np.ndarray
    #: ndarray of uint32, shape (n, number of inputs).  Of the elements that were read of each
    #: input.
    hashes: np.ndarray
    failed: bool  # whether the last call failed

    def of(self, kind: Kind) -> list[tuple[Series, int]]:
        """Return the series of a kind, with their positions."""
        return [(s, i) for i, s in enumerate(self.series) if s.kind == kind]

    def without_failed(self) -> "Table":
        """Return the table without the calls before the last that failed: they changed nothing."""
        kept = ~np.isnan(self.ended).all(axis=(1, 2))
        kept[-1:] = True
        if not kept[:-1].any():  # (of what the function leaves, nothing has figures)
            return self
        names = ("calls", "began", "ended", "hashes")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    @property
    def n_inputs(self) -> int:
        return self.hashes.shape[1]

    def level(self, i: int, at_start: bool = False) -> np.ndarray:
        """Return the root mean square of a series, which arrays of any size have in common."""
        figure = self.start if at_start else self.end
        return figure(i, "norm") / np.sqrt(figure(i, "size"))

    def start(self, i: int, figure: str) -> np.ndarray:
        """Return a figure of a series when the calls began."""
        found: np.ndarray = self.began[:, i, FIGURES.index(figure)]
        return found

    def end(self, i: int, figure: str) -> np.ndarray:
        """Return a figure of a series when the calls had ended."""
        found: np.ndarray = self.ended[:, i - self.n_inputs, FIGURES.index(figure)]
        return found
