"""Large inputs, which the elementwise node that reads them first checks block by block."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import guarded, trip
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.raise_op import Assert

from theanoguard import GuardMode

LARGE = 20_000  # above what the kernel checks before the call
PLAIN = Mode("cvm", "fast_run")


def numbers(*shape, dtype="float64"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.fixture(scope="module")
def compiled():
    """``compiled(dtype, ndim)``: a guarded function of two arrays and a scalar, and a plain one."""
    made = {}

    def function(dtype, ndim):
        if (dtype, ndim) not in made:
            x, y = (pt.TensorType(dtype, (None,) * ndim)(name) for name in "xy")
            s = pt.scalar("s", dtype=dtype)
            inputs, outputs = [x, y, s], [s * pt.exp(x) + y, x * y]
            made[dtype, ndim] = (
                guarded(inputs, outputs),
                pytensor.function(inputs, outputs, mode=PLAIN),
            )
        return made[dtype, ndim]

    return function


SHAPES = [(LARGE,), (16384,), (200_003,), (150, 200), (2, 100_000), (1, 30_000), (30_000, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_without_the_guard(shape, dtype, compiled):
    guard, plain = compiled(dtype, len(shape))
    x, y = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype)[..., ::-1].copy()
    s = np.asarray(2.5, dtype)
    for _ in range(2):
        for mine, theirs in zip(guard(x, y, s), plain(x, y, s), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "layout",
    [lambda a: a.T, lambda a: a[::-1], lambda a: np.asfortranarray(a), lambda a: a[:, ::2]],
    ids=["transposed", "reversed", "Fortran", "strided"],
)
def test_layouts_that_are_no_single_run(layout, compiled):
    guard, plain = compiled("float64", 2)
    x, y = layout(numbers(200, 200)), layout(numbers(200, 200)) * 2
    for mine, theirs in zip(guard(x, y, 1.0), plain(x, y, 1.0), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    y[7, 5] = np.inf
    event = trip(guard, x, y, 1.0)
    assert (event.role, event.variable, event.first_index) == ("input", "y", (7, 5))


@given(
    bad=st.dictionaries(
        st.sampled_from(["x", "y"]),
        st.tuples(st.integers(0, 200_002), st.sampled_from([np.nan, np.inf, -np.inf, -1e11])),
        max_size=2,
    ),
    dtype=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=40, deadline=None)
def test_the_first_bad_input_is_reported(bad, dtype, compiled):
    guard, _ = compiled(dtype, 1)
    values = {name: numbers(200_003, dtype=dtype) for name in "xy"}
    for name, (index, value) in bad.items():
        values[name][index] = value
    arguments = values["x"], values["y"], np.asarray(1, dtype)
    if not bad:
        guard(*arguments)
        return
    event = trip(guard, *arguments)
    first = min(bad)
    assert (event.role, event.variable, event.first_index) == ("input", first, (bad[first][0],))


def test_a_small_input_does_not_overtake_a_large_one(compiled):
    guard, _ = compiled("float64", 1)
    x = numbers(LARGE)
    x[3] = np.nan
    assert trip(guard, x, numbers(LARGE), np.nan).variable == "x"


def test_an_input_comes_before_a_node_that_ran_earlier():
    x, y = pt.vectors("xy")
    fn = guarded([x, y], [pt.log(x.sum()), pt.exp(y) + 1])
    y_value = numbers(LARGE)
    assert trip(fn, -np.ones(3), y_value).role == "node"
    y_value[-1] = np.inf
    assert trip(fn, -np.ones(3), y_value).variable == "y"


def test_an_input_comes_before_another_error():
    x, y = pt.vectors("xy")
    fn = guarded([x, y], pt.exp(y) + Assert("too small")(x.sum(), x.sum() > 0))
    y_value = numbers(LARGE)
    with pytest.raises(AssertionError, match="too small"):
        fn(-np.ones(3), y_value)
    y_value[5] = np.nan
    assert trip(fn, -np.ones(3), y_value).variable == "y"


def test_operands_that_do_not_fit_raise_what_they_raise_without_the_guard(compiled):
    guard, plain = compiled("float64", 1)
    for fn in (guard, plain):
        with pytest.raises(ValueError, match="ncompatible|mismatch|dimension|broadcast"):
            fn(numbers(LARGE), numbers(LARGE + 1), 1.0)


def test_a_call_that_goes_on_reports_each_input_once():
    events = []
    x, y = pt.vectors("xy")
    fn = guarded([x, y], pt.exp(x) + y, mode=GuardMode(True, True, True, action=events.append))
    x_value, y_value = numbers(LARGE), numbers(LARGE)
    x_value[4] = np.nan
    y_value[9] = np.inf
    fn(x_value, y_value)
    assert [(e.role, e.variable, e.first_index) for e in events] == [
        ("input", "x", (4,)),
        ("input", "y", (9,)),
    ]
    del events[:]
    fn(numbers(LARGE), numbers(LARGE))
    assert not events


def test_a_shared_variable_that_is_overwritten_is_put_back():
    x = pt.vector("x")
    weights = pytensor.shared(numbers(LARGE), name="weights")
    before = weights.get_value()
    fn = guarded([x], (pt.exp(weights) * x).sum(), updates=[(weights, weights - 0.1 * x)])
    x_value = numbers(LARGE)
    x_value[11] = np.nan
    assert trip(fn, x_value).variable == "x"
    np.testing.assert_array_equal(weights.get_value(), before)
    x_value[11] = 0.5
    fn(x_value)
    np.testing.assert_allclose(weights.get_value(), before - 0.1 * x_value, rtol=1e-12)
    weights.set_value(np.full(LARGE, np.inf))
    assert trip(fn, x_value).role == "shared"
