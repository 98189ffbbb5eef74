"""The user receives and keeps what the unguarded function gives: outputs, shared variables."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, plain_mode
from pytensor import shared
from pytensor.compile.io import Out

from theanoguard import GuardError, GuardMode

DTYPES = ("float32", "int64", "bool", "complex128")
SHAPES = ((), (7,), (0, 2), (150, 90))

X = pt.dscalar("x")


def start(shape, dtype="float64"):
    values = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape) % 11
    return np.asarray(values, dtype)


def twice(variable):
    """An update that every dtype has."""
    return ~variable if variable.dtype == "bool" else variable + variable


# Each of these returns the functions that are called in turn, with their arguments, and the shared
# variables.


def accumulator(mode, shape, dtype, given):
    state = shared(start(shape, dtype), name="state")
    fn = pytensor.function([], given(state), updates=[(state, twice(state))], mode=mode)
    return [fn], [state]


def beside_another_output(mode, shape, dtype, given):
    state = shared(start(shape, dtype), name="state")
    outputs = [given(state), state.sum(), twice(state)]
    return [pytensor.function([], outputs, updates={state: twice(state)}, mode=mode)], [state]


def fibonacci(mode, shape, dtype, given):
    a, b = shared(start(shape, dtype), name="a"), shared(start(shape, dtype), name="b")
    new = a ^ b if dtype == "bool" else a + b
    return [pytensor.function([], given(a), updates={a: b, b: new}, mode=mode)], [a, b]


def swap(mode, shape, dtype, given):
    a, b = shared(start(shape, dtype), name="a"), shared(twice(start(shape, dtype)), name="b")
    return [pytensor.function([], [given(a), given(b)], updates={a: b, b: a}, mode=mode)], [a, b]


def default_update(mode, shape, dtype, given):
    state = shared(start(shape, dtype), name="state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        state.default_update = twice(state)
        return [pytensor.function([], given(state), mode=mode)], [state]


def copies(mode, shape, dtype, given):
    state = shared(start(shape, dtype), name="state")
    f = pytensor.function([], given(state), updates={state: twice(state)}, mode=mode)
    other = shared(twice(start(shape, dtype)), name="other")
    fns = [f, f.copy(), f.copy(swap={state: other}), f.copy(delete_updates=True)]
    return fns, [state, other]


def several_functions(mode, shape, dtype, given):
    state, other = (shared(start(shape, dtype), name=name) for name in ("state", "other"))
    fns = [
        pytensor.function([], given(state), updates={state: twice(state)}, mode=mode),
        pytensor.function([], [given(other), given(state)], updates={state: other}, mode=mode),
        pytensor.function([], [], updates={other: twice(other), state: twice(other)}, mode=mode),
        pytensor.function([], [given(state), given(state)], mode=mode),
    ]
    return fns, [state, other]


def givens(mode, shape, dtype, given):
    state, other = (shared(start(shape, dtype), name=name) for name in ("state", "other"))
    x = state.type("x")
    outputs = [given(x), given(state), twice(x)]
    fn = pytensor.function([], outputs, updates={state: twice(x)}, givens={x: other}, mode=mode)
    return [fn], [state, other]


KINDS = [
    accumulator,
    beside_another_output,
    fibonacci,
    swap,
    default_update,
    copies,
    several_functions,
    givens,
]
GIVEN = {
    "returned": (lambda v: v, [((2, 3), dtype) for dtype in DTYPES]),
    "borrowed": (lambda v: Out(v, borrow=True), [(shape, "float64") for shape in SHAPES]),
}


def listed(result):
    return result if isinstance(result, list) else [] if result is None else [result]


def received(kind, mode, shape, dtype, given):
    """Return what a user sees after each call: all results so far, and the states."""
    fns, states = kind(mode, shape, dtype, given)
    kept, seen = [], []
    for fn in fns * 3:
        kept.append(listed(fn()))
        now = [value for values in kept for value in values]
        now += [state.get_value(borrow=True) for state in states]
        seen.append([(np.shape(v), str(np.asarray(v).dtype), np.asarray(v).tobytes()) for v in now])
    return seen


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_output_that_is_updated_is_the_value_before(kind, given):
    returned, cases = GIVEN[given]
    for shape, dtype in cases:
        plain, guarded = (
            received(kind, mode, shape, dtype, returned)
            for mode in (plain_mode(), GuardMode(**ALL))
        )
        assert guarded == plain, (shape, dtype)


def test_a_failed_call_gives_no_result_and_the_next_one_the_value_before():
    state = shared(np.ones(3), name="state")
    updates = {state: state * pt.log(X)}
    fn = pytensor.function([X], Out(state, borrow=True), updates=updates, mode=GuardMode(**ALL))
    first = fn(np.e)
    for bad in (-1.0, np.nan):
        with pytest.raises(GuardError):
            fn(bad)
        np.testing.assert_array_equal(state.get_value(), np.log(np.e) * np.ones(3))
    second = fn(np.e**2)
    np.testing.assert_array_equal([first, second], np.ones((2, 3)))
    np.testing.assert_array_equal(state.get_value(), np.log(np.e**2) * np.ones(3))
