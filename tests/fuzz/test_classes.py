"""The classes of misses that an adversarial search found, each with its siblings.

A test that fails on a backend stands in `OPEN` until that is mended.
"""

import inspect

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend
from pytensor.graph.replace import vectorize_graph

from theanoguard import GuardError, GuardMode, events_of
from theanoguard._pytensor import ifelse

pytestmark = pytest.mark.on_30

CASES = {}
# (case, backend): what is still to be mended
OPEN = {}


ONLY_C = ("scalars_in_the_python_virtual_machine", "storage_that_variables_of_a_python_loop_share")


def case(test):
    """Note a case: a function that returns what :func:`pytest.raises` must see, or asserts."""
    CASES[test.__name__] = test
    return test


def mode(**settings):
    every = {"nan_is_error": True, "inf_is_error": True, "big_is_error": True}
    return GuardMode(**{**every, **settings})


def function(inputs, outputs, updates=None, **settings):
    return pytensor.function(inputs, outputs, updates=updates, mode=mode(**settings))


def raises(fn, *arguments):
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value.event


def vector(name="x", dtype="float64"):
    return pt.vector(name, dtype=dtype)


# ---------------------------------------------------------------- 1: parts that are not written


@case
def log_of_an_incremented_part():
    x, s = vector(), pt.dscalar("s")
    fn = function([x, s], pt.log(pt.inc_subtensor(x[:3], s)))
    fn(np.ones(100), 5.0)
    assert raises(fn, np.zeros(100), 5.0).kind == "inf"


@case
def reciprocal_of_an_incremented_part():
    x, s = vector(), pt.dscalar("s")
    fn = function([x, s], 1 / pt.inc_subtensor(x[:3], s))
    assert raises(fn, np.zeros(100), 5.0).kind == "inf"


@case
def exp_of_an_incremented_part():
    x, s = vector(), pt.dscalar("s")
    fn = function([x, s], pt.exp(pt.inc_subtensor(x[:3], s)))
    assert raises(fn, np.full(100, 800.0), -799.0).kind == "inf"


@case
def log_of_an_incremented_constant():
    s = pt.dscalar("s")
    fn = function([s], pt.log(pt.inc_subtensor(pt.zeros(100)[:3], s)))
    assert raises(fn, 5.0).kind == "inf"


@case
def log_of_rows_that_are_incremented_by_index():
    x, k = pt.dmatrix("x"), pt.lvector("k")
    fn = function([x, k], pt.log(pt.inc_subtensor(x[k], 5.0)))
    assert raises(fn, np.zeros((40, 5)), np.array([1, 2])).kind == "inf"


# ---------------------------------------------------------------- 2: values without a check


@case
def an_update_after_a_loop():
    x = vector()
    weights = pytensor.shared(np.ones(100), name="W")
    h = pytensor.scan(lambda h: h * 1.0 + 0.0, outputs_info=[x], n_steps=3, return_updates=False)
    fn = function([x], h[-1] * 100, {weights: weights - h[-1] * 0.1})
    for _ in range(3):
        fn(np.ones(100))
    raises(fn, np.full(100, 1e9))
    assert np.isfinite(weights.get_value()).all() and (abs(weights.get_value()) < 10).all()


@case
def an_update_from_an_unchecked_input():
    x = vector()
    weights = pytensor.shared(np.ones(100), name="W")
    fn = function([x], [], {weights: weights * x}, check_inputs=False)
    for _ in range(3):
        fn(np.ones(100))
    raises(fn, np.full(100, 1e11))
    np.testing.assert_array_equal(weights.get_value(), 1)


# ---------------------------------------------------------------- 3: shared memory


def _embedding(dtype="float64"):
    return pytensor.shared(np.ones((1000, 4), dtype), name="W")


@case
def a_row_that_another_guarded_function_changed():
    weights, i, row = _embedding(), pt.lscalar("i"), vector("row")
    look_up = function([], weights * 100)
    change = function([i, row], [], {weights: pt.inc_subtensor(weights[i], row)})
    for _ in range(3):
        look_up()
    change(517, np.full(4, 9e9))
    raises(look_up)


@case
def a_row_that_an_unguarded_function_changed():
    weights, i, row = _embedding(), pt.lscalar("i"), vector("row")
    look_up = function([], weights * 100)
    change = pytensor.function([i, row], [], updates={weights: pt.set_subtensor(weights[i], row)})
    for _ in range(3):
        look_up()
    change(517, np.full(4, np.nan))
    raises(look_up)
    raises(look_up)


@case
def an_element_changed_through_a_borrowed_array():
    for bad in (-np.inf, np.nan, 1e11):
        weights, k = _embedding(), pt.lvector("k")
        fn = function([k], weights[k].sum())
        for _ in range(3):
            fn(np.array([1, 2]))
        weights.get_value(borrow=True, return_internal_type=True)[517, 2] = bad
        event = raises(fn, np.array([1, 517]))
        assert (event.role, event.first_index) == ("shared", (517, 2))
        fn(np.array([1, 2]))  # which does not read it


@case
def an_element_that_only_some_elements_show():
    """maximum(W, 0) shows no -Inf, tanh(W) no Inf, W > 0 nothing, exp(W) no -Inf."""
    for look in (lambda w: pt.maximum(w, 0), pt.tanh, lambda w: w > 0, pt.exp):
        weights = _embedding()
        fn = function([], look(weights))
        fn()
        weights.get_value(borrow=True, return_internal_type=True)[517, 2] = -np.inf
        assert raises(fn).role == "shared"


@case
def a_product_without_rows_shows_nothing():
    weights, x = pytensor.shared(np.ones((20, 4)), name="W"), pt.dmatrix("x")
    for look in (pt.dot(x, weights), x[:, 0][:, None] + weights[0]):
        fn = function([x], look)
        fn(np.ones((3, 20)))
        fn(np.ones((0, 20)))
        weights.set_value(np.full((20, 4), np.nan))
        assert raises(fn, np.ones((0, 20))).role == "shared"
        weights.set_value(np.ones((20, 4)))


@case
def an_empty_array_shows_nothing():
    """Where no big values are looked for, the results show what enters: not if they are empty."""
    x, v, y, n = pt.dmatrix("x"), vector("v"), pt.dscalar("y"), pt.lscalar("n")
    weights = pytensor.shared(np.full((20, 4), np.nan), name="W")
    for inputs, outputs, arguments, role in (
        ([x], pt.dot(x, weights), [np.ones((0, 20))], "shared"),
        ([x], pt.dot(x, weights).sum(), [np.ones((0, 20))], "shared"),
        ([v, y], (v * y).sum(), [np.ones(0), np.nan], "input"),
        ([v, y, n], pt.inc_subtensor(v[:n], y), [np.ones(3), np.nan, 0], "input"),
        ([y, n], pt.alloc(y, n).sum(), [np.inf, 0], "input"),
    ):
        fn = function(inputs, outputs, big_is_error=False)
        for _ in range(2):
            assert raises(fn, *arguments).role == role


@case
def a_loop_without_steps_shows_nothing():
    weights, n = pytensor.shared(np.ones(60), name="W"), pt.lscalar("n")
    total = pytensor.scan(
        lambda t, w: t + w,
        outputs_info=[pt.zeros(60)],
        non_sequences=[weights],
        n_steps=n,
        return_updates=False,
    )
    fn = function([n], total)
    fn(3)
    weights.get_value(borrow=True, return_internal_type=True)[33] = np.nan
    assert raises(fn, 0).role == "shared"


@case
def an_argument_that_may_be_overwritten():
    """What was made in its place does not enter with it."""
    x = vector()
    for made, kind in ((pt.log(x), "nan"), (pt.exp(x + 800), "inf")):
        fn = function([pytensor.In(x, mutable=True)], made)
        assert (raises(fn, np.array([2.0, -1.0])).role, kind) == ("node", kind)


# ---------------------------------------------------------------- 4: the arithmetic of the dtype


@case
def an_overflow_of_float32_in_a_fused_operation():
    x = vector()
    fn = function([x], pt.cast(pt.exp(pt.cast(x, "float32")) * np.float32(1e-35), "float64"))
    fn(np.ones(100))
    assert raises(fn, np.full(100, 100.0)).kind == "inf"


@case
def an_underflow_of_float32():
    x = vector(dtype="float32")
    fn = function([x], pt.log(x * np.float32(1e-30)))
    fn(np.ones(100, "float32"))
    assert raises(fn, np.full(100, 1e-20, "float32")).kind == "inf"


@case
def an_overflow_of_float16():
    x = vector()
    fn = function([x], pt.cast(pt.cast(x, "float16"), "float64") * 1e-3)
    assert raises(fn, np.full(100, 1e5)).kind == "inf"


# ---------------------------------------------------------------- 5: integers become floats


@case
def big_integers_that_become_floats():
    k, x = pt.lvector("k"), vector()
    numbers = np.full(100, 10**12)
    for made in (
        pt.join(0, x, k),
        pt.set_subtensor(x[:], k),
        pt.inc_subtensor(pt.zeros(100)[:], k),
        pt.set_subtensor(x[k % 3], k),
        pt.cast(k, "float64"),
        k * 1.0,
    ):
        fn = pytensor.function([k, x], made, mode=mode(), on_unused_input="ignore")
        raises(fn, numbers, np.ones(100))


@case
def small_integers_above_a_small_threshold():
    k, b = pt.bvector("k"), pt.vector("b", dtype="bool")
    raises(function([k], pt.cast(k, "float64"), big_threshold=100), np.full(99, 120, "int8"))
    raises(function([b], pt.cast(b, "float64"), big_threshold=0.5), np.ones(99, bool))


# ---------------------------------------------------------------- 6: complex numbers


@case
def complex_functions_that_are_bounded_for_real_numbers():
    z = pt.zvector("z")
    raises(function([z], pt.tanh(z)), np.full(100, 0.5j * np.pi))
    raises(function([z], pt.arctan(z)), np.full(100, 1j))


# ---------------------------------------------------------------- 7: bounds in the wrong order


@case
def clip_with_bounds_in_the_wrong_order():
    x, lo, hi = vector(), pt.dscalar("lo"), pt.dscalar("hi")
    fn = function([x, lo, hi], pt.exp(pt.clip(x, lo, hi)))
    fn(np.ones(100), 0.0, 2.0)
    raises(fn, np.full(100, 1.0), 800.0, 2.0)


# ---------------------------------------------------------------- 8: other virtual machines


@case
def scalars_in_the_python_virtual_machine():
    x = pt.dscalar("x")
    for linker in ("vm", "vm_nogc", "cvm", "cvm_nogc"):
        fn = function([x], [pt.log(x) * 2, pt.sqrt(x) + 1], linker=linker, optimizer=None)
        for _ in range(3):
            fn(1.0)
        assert raises(fn, -1.0).op in ("Log", "Sqrt")


@case
def storage_that_variables_of_a_python_loop_share():
    """A NaN that raises no flag, seen in a value that is computed in another one's storage."""
    x, s = vector(dtype="float32"), pytensor.shared(np.float32(0), name="s")
    scores = pt.erfinv(pt.tanh(x) + x)
    updates = {s: pt.cast(s * 0.9 + scores[::-1].mean(), "float32")}
    fn = function([x], scores * 2, updates, linker="vm", big_is_error=False)
    fn(np.array([0.1, 0.2], "float32"))
    raises(fn, np.array([0.1, 3.0], "float32"))


# ---------------------------------------------------------------- 9: branches of an ifelse


def branches_of(condition, t):
    return ifelse(condition, pt.tanh(t), pt.log1p(abs(t)))


@case
def a_big_value_that_both_branches_need():
    c, x = pt.dscalar("c"), vector()
    fn = function([c, x], branches_of(c > 0, pt.cumsum(x)))
    for condition in (1.0, -1.0):
        fn(condition, np.ones(100))
        assert raises(fn, condition, np.full(100, 1e9)).op.startswith("Cumsum")


@case
def a_big_value_that_both_branches_of_a_branch_need():
    c, d, x = pt.dscalar("c"), pt.dscalar("d"), vector()
    t = pt.cumsum(x)
    fn = function([c, d, x], ifelse(c > 0, branches_of(d > 0, t), pt.arctan(t)))
    for conditions in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0)):
        assert raises(fn, *conditions, np.full(100, 1e9)).op.startswith("Cumsum")


@case
def a_big_value_that_every_result_of_a_branch_needs():
    c, x = pt.dscalar("c"), vector()
    t = pt.cumsum(x)
    fn = function([c, x], ifelse(c > 0, [pt.tanh(t), x], [x, pt.log1p(abs(t))]))
    for condition in (1.0, -1.0):
        assert raises(fn, condition, np.full(100, 1e9)).op.startswith("Cumsum")


@case
def a_big_value_that_the_only_possible_branch_needs():
    x = vector()
    t = pt.cumsum(x)
    fn = function([x], ifelse(pt.gt(x.sum(), x.sum()), pt.tanh(x), pt.log1p(abs(t))))
    fn(np.ones(100))
    assert raises(fn, np.full(100, 1e9)).op.startswith("Cumsum")


# ---------------------------------------------------------------- 10: actions that go on


@case
def a_second_fault_in_a_loop_is_recorded():
    x, y = vector(), vector("y")
    first, second = pytensor.scan(
        lambda a, b: (pt.log(a), pt.sqrt(b)), sequences=[x, y], return_updates=False
    )
    fn = function([x, y], [first, second], action="record")
    fn(np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, -1.0]))
    assert len(events_of(fn)) == 2


@case
def a_fault_that_shares_a_shape_is_recorded():
    x, y = vector(), vector("y")
    bad = pt.log(x)
    fn = function([x, y], [bad, pt.alloc(pt.sqrt(y[0]), bad.shape[0])], action="record")
    fn(np.array([-1.0, 1.0]), np.array([-1.0]))
    assert len(events_of(fn)) == 2


@case
def a_nan_that_stays_in_a_weight_is_recorded_in_each_call():
    x = vector()
    weights = pytensor.shared(np.ones(100), name="W")
    fn = function([x], [], {weights: weights + pt.log(x)}, action="record")
    for _ in range(3):
        fn(np.full(100, -1.0))
    assert {event.call for event in events_of(fn)} == {1, 2, 3}
    fn(np.ones(100))
    assert events_of(fn)[-1].call == 4


# ---------------------------------------------------------------- 10: the extreme of nothing


@case
def the_maximum_of_an_empty_array():
    """Numba gives -inf; C code raises another error, unless there is an initial value."""
    x, empty = pt.dmatrix("x"), np.ones((0, 3))
    extremes = [x.max(), x.min(axis=0), pt.tanh(x.max(axis=0)), pt.cos(x).max(axis=0)]
    if "initial" in inspect.signature(pt.max).parameters:
        extremes.append(pt.max(x, axis=0, initial=-np.inf))
    for made in extremes:
        fn = function([x], made, big_is_error=False)
        fn(np.ones((2, 3)))
        for _ in range(2):
            try:
                fn(empty)
            except GuardError as error:
                assert error.event.kind == "inf" and error.explanation is not None
            except ValueError as error:
                assert "zero-size" in str(error)
            else:
                raise AssertionError(made)


# ---------------------------------------------------------------- 11: exempt classes


@case
def an_exempt_class_beside_others_in_a_fused_operation():
    x = vector()
    masked = pt.maximum(pt.log(x), -5)
    fn = function([x], [masked, pt.sqrt(x)], exempt=type(pt.log.scalar_op))
    fn(np.zeros(3))
    assert raises(fn, np.full(3, -1.0)).n_nan == 3


# ---------------------------------------------------------------- 12: loops in a batch


@case
def a_loop_in_a_batch():
    """The number of steps and the indices that a vectorized loop reads are integers."""
    x, batch = pt.vector("x", shape=(5,)), pt.dmatrix("batch")
    h = pytensor.scan(
        lambda r, t: pt.log(t) + r,
        sequences=[x],
        outputs_info=[pt.ones(())],
        return_updates=False,
    )
    fn = function([batch], vectorize_graph(h, {x: batch}), big_is_error=False)
    fn(np.full((2, 5), 2.0))
    bad = np.full((2, 5), 2.0)
    bad[1, 2] = -9.0
    with pytest.raises(GuardError) as caught:
        fn(bad)
    assert caught.value.event.kind == "nan" and caught.value.explanation is not None


# ---------------------------------------------------------------- what is no error


@case
def deliberate_infinities_are_no_error():
    scores, mask = vector(), pt.vector("mask", dtype="bool")
    masked = pt.switch(mask, scores, -np.inf)
    shifted = scores + (1 - mask) * -1e30
    fn = function([scores, mask], [pt.special.softmax(masked), pt.special.softmax(shifted)])
    fn(np.ones(100), np.arange(100) % 2 == 0)


@case
def an_impossible_value_and_its_gradient():
    s = vector()
    logp = pt.switch(pt.all(s > 0), pt.log(s).sum(), -np.inf)
    fn = function([s], [logp])
    fn(np.ones(10))


@case
def the_discarded_branch_is_no_error_of_the_result():
    x = vector()
    fn = function([x], pt.switch(x > 0, pt.log(x), 0.0), judge="result")
    fn(np.full(100, -1.0))


@pytest.mark.parametrize("name", CASES)
def test_class(name, request):
    reason = OPEN.get((name, backend()))
    if backend() != "c":
        if name in ONLY_C:
            pytest.skip("is about the C backend")
        if name == "an_overflow_of_float16":
            pytest.skip("Numba has no float16")
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))
    CASES[name]()
