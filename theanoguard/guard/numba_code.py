"""What Numba compiles for the checks; loaded with Numba, when a graph is compiled for it."""

from hashlib import sha256
from importlib import resources

import numpy as np
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.scalar.basic import ScalarType

from theanoguard._pytensor import CheckedBody, OpFromGraph, inner_graphs_for_numba, is_sparse
from theanoguard.guard import checks
from theanoguard.guard.checks import Check, CountStep
from theanoguard.guard.reporting import Tripped

# Part of the key of what Numba keeps on disk: another source is another check.
SOURCE = resources.files("theanoguard.guard").joinpath("numba_code.py").read_text("utf-8")


compiled_by = numba_funcify_and_cache_key.dispatch


def inner_graphs(node):
    """Return the inner graphs of a node that are compiled as functions of their own.

    Some kinds of OpFromGraph, such as fused operations, are compiled as one piece.

    Parameters
    ----------
    node : Apply

    Returns
    -------
    list of FunctionGraph
    """
    kind = type(node.op)
    if issubclass(kind, OpFromGraph) and compiled_by(kind) is not compiled_by(OpFromGraph):
        return []
    return inner_graphs_for_numba(node)


@register_funcify_default_op_cache_key(CountStep)
def numba_funcify_count_step(op, **kwargs):
    first, column = op.first, checks.STEP

    @numba_njit
    def count_step(ledger, row):
        ledger[row, column] = 0.0 if first else ledger[row, column] + 1.0
        return ledger

    return count_step


@register_funcify_and_cache_key(CheckedBody)
def numba_funcify_checked_body(op, node=None, ofg_memo=None, storage_map=None, **kwargs):
    return numba_funcify_and_cache_key(
        op.fgraph, squeeze_output=True, fgraph_name="checked_body", **kwargs
    )


def floor_to(limit, dtype):
    """Return the largest number of a floating type that is not above `limit`."""
    largest = np.finfo(dtype).max
    if limit >= largest:
        return largest
    nearest = np.dtype(dtype).type(limit)
    return nearest if float(nearest) <= limit else np.nextafter(nearest, dtype(0))


def bad_element(op, dtype):
    """Return a function that tells whether one element is bad, as ``Policy.mask`` does."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limit = op.limit
        return numba_njit(lambda v: abs(np.float64(v)) > limit)
    if kind not in "fc":
        return numba_njit(lambda v: False)
    real = np.empty(0, dtype).real.dtype.type
    limit = floor_to(op.limit, real) if op.big else np.finfo(real).max
    if kind == "c" and not op.big:
        size = numba_njit(lambda v: max(abs(v.real), abs(v.imag)))
    else:
        size = numba_njit(lambda v: abs(v))
    if not (op.inf or op.big):
        return numba_njit(lambda v: v != v)
    if op.nan and kind == "f":
        return numba_njit(lambda v: not (abs(v) <= limit))
    if op.nan:
        return numba_njit(lambda v: v != v or not (size(v) <= limit))
    return numba_njit(lambda v: v == v and size(v) > limit)


def parts_of(dtype):
    """Return a function that splits a number into two that a float64 holds exactly."""
    kind = np.dtype(dtype).kind
    if kind == "c":
        return numba_njit(lambda v: (v.real, v.imag))
    if kind in "iu":
        widest = np.int64 if kind == "i" else np.uint64
        low = widest(2**32 - 1)
        return numba_njit(lambda v: (float(widest(v) >> widest(32)), float(widest(v) & low)))
    return numba_njit(lambda v: (v, 0.0))


@register_funcify_and_cache_key(Check)
def numba_funcify_check(op, node, **kwargs):
    """One compiled check for each kind of array; which place it is, is data."""
    value_type = node.inputs[0].type
    dtype, ndim = value_type.dtype, getattr(value_type, "ndim", 0)
    is_scalar = isinstance(value_type, ScalarType)
    sparse = is_sparse(value_type)
    by_row = sparse and value_type.format == "csr"
    bad_one = bad_element(op, dtype)
    ORDER, SIZE, NAN, POSINF, NEGINF, BIG, INDEX, REAL, IMAG, NDIM, N_LOOPS = range(checks.COLUMNS)
    COLUMNS, FOUND, RAISING, STEP = checks.COLUMNS, checks.FOUND, checks.RAISING, checks.STEP

    halves = parts_of(dtype)

    @numba_njit
    def count(v, row, position):
        """Count one element, and keep the first that is bad."""
        if v != v:
            row[NAN] += 1
        elif np.isinf(v):
            if v.real < 0:
                row[NEGINF] += 1
            else:
                row[POSINF] += 1
        elif bad_one(v):
            row[BIG] += 1
        if row[INDEX] < 0 and bad_one(v):
            row[INDEX] = position
            row[REAL], row[IMAG] = halves(v)

    if ndim == 0:
        # Numba's `flat` of an array without dimensions may have no element.
        one = numba_njit((lambda value: value) if is_scalar else (lambda value: value[()]))

        @numba_njit
        def bad(value):
            return bad_one(one(value))

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = 1
            count(one(value), row, 0)
    elif sparse:

        @numba_njit
        def bad(value):
            found = False
            for v in value.data.flat:
                found |= bad_one(v)
            return found

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = value.data.size
            for i, v in enumerate(value.data.flat):
                count(v, row, i)
            at = int(row[INDEX])
            major, minor = np.searchsorted(value.indptr, at, "right") - 1, value.indices[at]
            along, across = (major, minor) if by_row else (minor, major)
            row[INDEX] = along * value.shape[1] + across
            row[first], row[first + 1] = value.shape
    else:

        @numba_njit
        def bad(value):
            found = False
            if value.flags.f_contiguous:  # (no way out of a loop: it is vectorised)
                for v in value.T.flat:
                    found |= bad_one(v)
            else:
                for v in value.flat:
                    found |= bad_one(v)
            return found

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = value.size
            for i, v in enumerate(value.flat):
                count(v, row, i)
            for i in range(ndim):
                row[first + i] = value.shape[i]

    @numba_njit
    def note(value, ledger, place):
        row = ledger[place]
        if row[ORDER] == 0.0:  # else it has been noted at an earlier step
            ledger[0, FOUND] += 1.0
            row[:N_LOOPS] = 0.0
            row[ORDER] = ledger[0, FOUND]
            row[INDEX] = -1.0
            row[NDIM] = ndim
            n_loops = int(row[N_LOOPS])
            for i in range(COLUMNS, COLUMNS + n_loops):
                row[i + n_loops] = ledger[int(row[i]), STEP]
            describe(value, row, COLUMNS + 2 * n_loops)

    @numba_njit
    def check(value, ledger, place):
        if bad(value):
            note(value, ledger, place)
            if ledger[0, RAISING] != 0.0:
                raise Tripped
        return 0

    parts = (SOURCE, op._props_dict(), dtype, ndim, is_scalar, sparse and value_type.format)
    return check, sha256(str(parts).encode()).hexdigest()
