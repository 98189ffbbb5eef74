"""The guard on the Numba backend: the checks are compiled into the jitted function."""

import importlib

import numpy as np

from theanoguard._pytensor import NumbaLinker
from theanoguard.guard.checks import (
    COLUMNS,
    FOUND,
    IMAG,
    INDEX,
    N_BIG,
    N_NAN,
    N_NEGINF,
    N_POSINF,
    NDIM,
    ORDER,
    REAL,
    SIZE,
    Checks,
)
from theanoguard.guard.jitted import GuardedLinker, JittedRuntime
from theanoguard.guard.policy import Counts
from theanoguard.provenance import watch_rewriting


class NumbaRuntime(JittedRuntime):
    """The guard of one function that Numba compiles; the checks write into its ledger."""

    def settle(self):
        """Report what the checks have written into the ledger, in the order of the run."""
        rows = np.flatnonzero(self.ledger[1:, ORDER]) + 1
        rows = rows[np.argsort(self.ledger[rows, ORDER])]
        found = self.ledger[rows]
        self.seen = {}
        self.ledger[rows, ORDER] = 0
        self.ledger[0, FOUND] = 0
        for row, record in zip(rows, found, strict=True):
            place = self.places[row]
            begun, first = (COLUMNS + k * len(place.loops) for k in (1, 2))
            steps = [int(s) - 1 for s in record[begun:first]]
            shape = tuple(int(n) for n in record[first : first + int(record[NDIM])])
            counts = counts_of(record, shape, place.variable.type.dtype)
            role = "node" if place.variable.owner is not None else self.role(place.variable)
            self.report(place, counts, shape, steps, role)


def counts_of(record, shape, dtype):
    """Return the `Counts` that a check has written into its row."""
    value = VALUE_OF[np.dtype(dtype).kind](record[REAL].item(), record[IMAG].item())
    kind = "nan" if value != value else "inf" if abs(value) == np.inf else "big"
    return Counts(
        kind=kind,
        index=tuple(int(i) for i in np.unravel_index(int(record[INDEX]), shape)),
        value=value,
        size=int(record[SIZE]),
        n_nan=int(record[N_NAN]),
        n_posinf=int(record[N_POSINF]),
        n_neginf=int(record[N_NEGINF]),
        n_big=int(record[N_BIG]),
    )


# How the two numbers that hold an element give it back, by the kind of its dtype.
VALUE_OF = {
    "f": lambda real, imag: real,
    "c": complex,
    "i": lambda high, low: (int(high) << 32) + int(low),
    "u": lambda high, low: (int(high) << 32) + int(low),
}


class NumbaGuardLinker(GuardedLinker, NumbaLinker):
    """A ``NumbaLinker`` whose functions are guarded."""

    def compiled(self, order, input_storage, storage_map):
        code = importlib.import_module("theanoguard.guard.numba_code")
        with watch_rewriting():
            checks = Checks(self.fgraph, order, self.policy, code.inner_graphs)
        guard = NumbaRuntime(self.policy, self.recorder, checks, storage_map)
        return guard, self.jit_compile(self.fgraph_convert(checks.graph))
