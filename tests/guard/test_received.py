"""The user receives and keeps what the unguarded function gives: outputs, shared variables."""

import pickle
import warnings
from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, CountedIdentity, backend, plain_mode
from pytensor import shared
from pytensor.compile.io import In, Out

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


# ---------------------------------------------------------------- arrays that the user holds

UPDATES = {
    "a sum": lambda s: s + s,
    "steps that overwrite one another": lambda s: (s + s) * 3 - s,
    "a part": lambda s: pt.inc_subtensor(s[1:], s[1:] + s[1:]),
    "rows": lambda s: pt.set_subtensor(s[[0, -1]], s[[0]]),
    "a part, and all is read": lambda s: pt.inc_subtensor(s[:1], s.sum(axis=0)),
    "a mask": lambda s: pt.set_subtensor(s[s > 3], 0),
    "a view of a new value": lambda s: (s + s)[::-1],
    "a view": lambda s: s[::-1],
    "a part of what has been overwritten": lambda s: pt.inc_subtensor((s + s)[1:], s[1:]),
    "a new array": lambda s: pt.zeros_like(s) + 2,
    "a cumulative sum": lambda s: pt.cumsum(s, axis=0),
    "a choice": lambda s: pt.switch(s > 3, s, s + s),
    "a smaller array": lambda s: s[:3] + s[:3],
    "broadcasting": lambda s: s + s.min(),
}
HELD = {
    "small": lambda: start((7,)),
    "large": lambda: start((150, 90)),
    "empty": lambda: start((0, 2)),
    "float32": lambda: start((7, 2), "float32"),
    "int64": lambda: start((7,), "int64"),
    "complex128": lambda: start((7,), "complex128"),
    "fortran": lambda: np.asfortranarray(start((150, 90))),
    "strided": lambda: np.repeat(start((150, 90)), 2, axis=1)[:, ::2],
    "reversed": lambda: start((7, 3))[::-1],
    "a view": lambda: start((9, 3))[1:8],
    "0-d": lambda: start(()),
    "one element": lambda: start((1, 1)),
    "unpickled": lambda: pickle.loads(pickle.dumps(start((7,)))),
}
HOLDERS = {
    "the array": lambda s, array: array,
    "a view of it": lambda s, array: array[...],
    "later": lambda s, array: s.get_value(borrow=True),
    "a shared variable": lambda s, array: shared(array, borrow=True).get_value(borrow=True),
}


NOT_IN_PLACE = "the backend updates no variable in place"
KEEPS = pytest.mark.not_on(jax=NOT_IN_PLACE, pytorch=NOT_IN_PLACE)


@cache
def updating(is_guarded, update, dtype, ndim):
    """Return a function that updates a shared variable, and the variable."""
    s = shared(np.ones((3,) * ndim, dtype), name="s")
    mode = GuardMode(nan_is_error=True) if is_guarded else plain_mode()
    return pytensor.function([], [], updates={s: UPDATES[update](s).astype(dtype)}, mode=mode), s


def held(is_guarded, update, make, hold):
    """Return what a variable holds after each call, and what those see who hold its arrays."""
    array = HELD[make]()
    fn, s = updating(is_guarded, update, str(array.dtype), array.ndim)
    s.set_value(array, borrow=True)
    holders, seen = [HOLDERS[hold](s, array)], []
    del array
    for _ in range(3):
        fn()
        holders.append(HOLDERS[hold](s, s.get_value(borrow=True)))
        now = [s.get_value(), *holders]
        seen.append([(v.shape, str(v.dtype), v.tobytes()) for v in now])
    return seen


@KEEPS
@pytest.mark.parametrize("update", UPDATES)
def test_who_holds_an_array_sees_what_it_sees_without_a_guard(update):
    for make in ("large", "strided"):
        plain, guarded = (held(is_guarded, update, make, "the array") for is_guarded in (0, 1))
        assert guarded == plain, make


@KEEPS
@pytest.mark.parametrize("make", HELD)
def test_any_array_of_the_users_gets_the_new_value(make):
    for hold in HOLDERS:
        plain, guarded = (held(is_guarded, "a sum", make, hold) for is_guarded in (0, 1))
        assert guarded == plain, hold


@KEEPS
@pytest.mark.parametrize(
    "updates",
    [
        ["a view", "a sum"],
        ["a sum", "rows", "a new array", "a mask"],
        ["a view", "a part", "a view"],
    ],
    ids=" then ".join,
)
def test_several_functions_that_update_one_variable(updates):
    plain, guarded = [], []
    for is_guarded, seen in enumerate((plain, guarded)):
        s = shared(np.ones(3), name="s")
        mode = GuardMode(**ALL) if is_guarded else plain_mode()
        fns = [
            pytensor.function([], [], updates={s: UPDATES[name](s)}, mode=mode) for name in updates
        ]
        array = start((9000,))
        s.set_value(array, borrow=True)
        holders = [array]
        for fn in fns * 2:
            fn()
            holders.append(s.get_value(borrow=True))
            seen.append([v.tobytes() for v in holders])
    assert guarded == plain


@KEEPS
@pytest.mark.parametrize("shape", [(7,), (150, 90)], ids=str)
def test_who_gets_the_new_value_gets_the_array(shape):
    seen = []
    for mode in (plain_mode(), GuardMode(**ALL)):
        array = start(shape)
        s = shared(array, borrow=True)
        new = s + s
        outputs = [Out(new, borrow=True), Out(new[1:], borrow=True)]
        fn = pytensor.function([], outputs, updates={s: new}, mode=mode)
        kept = [array]
        for _ in range(3):
            kept += fn()
            seen.append([v.tobytes() for v in kept])
    assert seen[:3] == seen[3:]


@KEEPS
@pytest.mark.parametrize("update", UPDATES)
def test_who_holds_an_array_sees_nothing_of_a_failed_call(update):
    s = shared(start((3, 3)), name="s")
    new = UPDATES[update](s)
    # (An operation in Python runs late, on the new value.)
    outputs = [CountedIdentity()(pt.log(X) + new.sum()), 1 / X]
    fn = pytensor.function([X], outputs, updates={s: new}, mode=GuardMode(**ALL))
    for make in ("large", "strided"):
        array = HELD[make]()
        s.set_value(array, borrow=True)
        before = array.tobytes()
        for bad in (-1.0, 0.0):
            with pytest.raises(GuardError):
                fn(bad)
            assert array.tobytes() == before
        assert s.get_value(borrow=True) is array


@KEEPS
def test_arguments_stay_as_they_are():
    x = pt.dvector("x")
    for given, outputs in {
        "read": [x + x, pt.inc_subtensor(x[1:], 1), x[::-1]],
        "mutable": [x.sum()],
    }.items():
        arrays = start((9000,)), start((9000,))
        results = [
            pytensor.function([In(x, mutable=given == "mutable")], outputs, mode=mode)(array)
            for mode, array in zip((plain_mode(), GuardMode(**ALL)), arrays, strict=True)
        ]
        assert [v.tobytes() for v in results[0]] == [v.tobytes() for v in results[1]]
        assert arrays[0].tobytes() == arrays[1].tobytes() == start((9000,)).tobytes()


@KEEPS
def test_arrays_that_overlap_are_computed_from_the_old_values():
    """Without a compiler, as without a guard: one update after the other."""

    def updated(mode):
        flat = np.arange(4.0)
        a, b = (shared(part, borrow=True) for part in (flat[:3], flat[1:]))
        pytensor.function([], [], updates={a: a + 10, b: b * 2}, mode=mode)()
        return [flat.tolist(), a.get_value().tolist(), b.get_value().tolist()]

    in_numpy = backend() == "c" and not pytensor.config.cxx
    expected = updated(plain_mode()) if in_numpy else [[10, 2, 4, 6], [10, 2, 4], [2, 4, 6]]
    assert updated(GuardMode(**ALL)) == expected


def test_the_updates_of_the_outer_call_replace_those_of_a_call_in_an_action():
    w = shared(np.ones(3), name="w")
    inner = pytensor.function([], [], updates={w: w * 10}, mode=GuardMode(**ALL))
    seen = []

    def action(event):
        inner()
        seen.append(w.get_value())

    mode = GuardMode(**ALL, action=action)
    outer = pytensor.function([X], pt.log(X), updates={w: w + 1}, mode=mode)
    outer(-1.0)
    np.testing.assert_array_equal(seen, [[10, 10, 10]])
    np.testing.assert_array_equal(w.get_value(), [2, 2, 2])
