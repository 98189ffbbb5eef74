"""What Numba and JAX share: a part of what the whole suite holds with ``--backend``."""

import importlib.util

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, trip
from pytensor.compile.builders import OpFromGraph

from theanoguard import GuardError, GuardMode, events_of
from theanoguard._pytensor import ifelse

pytestmark = pytest.mark.on_30

ONES = np.ones(3)


@pytest.fixture(params=["numba", "jax"])
def guard(request):
    """Return what makes the modes of a backend."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")

    def mode(**settings):
        return GuardMode(**{**ALL, **settings}, backend=request.param, optimizer="fast_run")

    return mode


def test_an_explanation(guard):
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(pt.log(x - 1.0) * 2.0), mode=guard())
    np.testing.assert_array_equal(fn(np.array([2.0, 2.0])), [1.0, 1.0])
    with pytest.raises(GuardError) as caught:
        fn(np.array([2.0, 0.5]))
    report = str(caught.value)
    assert report.startswith("NaN in log: log(-0.5) at element [1]")
    assert "test_jitted.py" in report
    assert "x[1] = 0.5" in report


def test_a_function_without_outputs(guard):
    x, w = pt.dvector("x"), pytensor.shared(np.zeros(3))
    assert pytensor.function([], [], mode=guard())() == []
    fn = pytensor.function([x], [], mode=guard(), on_unused_input="ignore")
    assert fn(ONES) == []
    assert trip(fn, np.nan * ONES).role == "input"
    fn = pytensor.function([x], [], updates={w: pt.log(x)}, mode=guard())
    assert fn(np.e * ONES) == []
    assert trip(fn, -ONES).op == "Log"
    np.testing.assert_array_equal(w.get_value(), ONES)


def test_the_step_of_a_loop(guard):
    x = pt.tensor("x", dtype="float64", shape=(3,))  # (JAX has to know the length)
    start = pt.dscalar("start")
    states = pytensor.scan(
        lambda v, state: pt.log(state + v), x, outputs_info=[start], return_updates=False
    )
    fn = pytensor.function([x, start], states, mode=guard())
    fn(3 * ONES, 1.0)
    event = trip(fn, np.array([3.0, 3.0, -9.0]), 1.0)
    assert [step.step for step in event.path] == [2]
    assert trip(fn, np.array([-9.0, 3.0, 3.0]), 1.0).path[0].step == 0  # it counts anew


def test_the_second_run_knows_constants_and_where_a_shape_comes_from(guard):
    x = pt.dmatrix("x")
    turned = pt.sort(x, axis=1).reshape((x.shape[1], x.shape[0]))
    fn = pytensor.function([x], pt.sqrt(turned), mode=guard())
    event = trip(fn, np.array([[4.0, 1.0, 9.0], [4.0, -1.0, 9.0]]))
    assert (event.op, event.first_index) == ("Sqrt", (1, 1))


def test_the_result_is_judged_where_a_fused_operation_gives_truth_values(guard, caplog):
    x = pt.dvector("x")
    outputs = [pt.cumsum(pt.exp(x) * 2), pt.cumsum(pt.isnan(pt.exp(x) * 3))]
    fn = pytensor.function([x], outputs, mode=guard(judge="result"))
    assert trip(fn, np.array([1.0, np.nan])).role == "input"
    assert not caplog.records


@pytest.mark.parametrize("backend", ["c", "numba", "jax"])
@pytest.mark.parametrize(
    "decides", [lambda x, a: pt.switch(x > 0, a, -a), lambda x, a: a * (x > 0)]
)
def test_an_input_that_only_decides_counts_if_the_result_is_bad(backend, decides):
    """On all backends alike: the result is bad in the second call, and ``x`` came in first."""
    if importlib.util.find_spec(backend) is None and backend != "c":
        pytest.skip(f"{backend} is not installed")
    x, a, holed = pt.dvector("x"), pt.dvector("a"), np.array([1.0, np.nan, 1.0])
    modes = [GuardMode(judge=judge, backend=backend) for judge in ("result", "node")]
    fn, strict = (pytensor.function([x, a], decides(x, pt.log(a)), mode=m) for m in modes)
    assert np.isfinite(fn(holed, ONES)).all()
    for found in (trip(fn, holed, 0 * ONES), trip(strict, holed, ONES)):
        assert (found.role, found.variable, found.first_index) == ("input", "x", (1,))


def test_a_nan_constant_that_spoils_the_result(guard):
    x, holed = pt.dvector("x"), np.array([1.0, np.nan, 1.0])
    fn = pytensor.function([x], (x * holed - 1.0).sum(), mode=guard(judge="result"))
    for _ in range(2):
        assert trip(fn, ONES).role == "constant"
    fn = pytensor.function(
        [x], pt.switch(np.isnan(holed), x, x * holed).sum(), mode=guard(judge="result")
    )
    assert [float(fn(ONES)) for _ in range(2)] == [3.0, 3.0]


def test_the_audit_finds_what_nothing_shows(guard, monkeypatch):
    """As if nothing had ever to be read, and no flag were raised."""
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=guard(audit=True))
    np.testing.assert_array_equal(fn(ONES), [0.0, 0.0, 0.0])
    assert trip(fn, -ONES).op == "Log"
    runtime = fn.vm.guard
    logs = [fn(ONES)]  # (of the class that the backend returns)
    monkeypatch.setattr(type(runtime), "call", lambda self, values: (logs, None))
    with pytest.raises(RuntimeError, match=r"nan at \(0,\) of Log\(x\) would be missed") as caught:
        fn(-ONES)
    assert not isinstance(caught.value, GuardError)
    np.testing.assert_array_equal(fn(ONES), [0.0, 0.0, 0.0])


def test_the_audit_agrees(guard):
    x, w = pt.dvector("x"), pytensor.shared(np.ones(3))
    for settings in ({}, {"judge": "result"}, {"action": "record"}):
        outputs = [pt.cumsum(pt.sqrt(x)), pt.switch(x > 0, x * 2, -np.inf)]
        fn = pytensor.function([x], outputs, updates={w: w + x}, mode=guard(audit=True, **settings))
        fn(ONES)
        fn(0 * ONES)
        if settings.get("action") == "record":
            fn(-ONES)
            assert [event.kind for event in events_of(fn)] == ["nan"]
        else:
            assert trip(fn, -ONES).kind == "nan"


def test_ctrl_c_is_not_judged(guard, monkeypatch):
    """Numba's code ends and raises a SystemError, whose cause is the KeyboardInterrupt."""
    x, w = pt.dvector("x"), pytensor.shared(np.ones(3))
    fn = pytensor.function([x], [], updates={w: w + pt.log(x)}, mode=guard())

    def interrupted(self, values):
        raise SystemError from KeyboardInterrupt()

    monkeypatch.setattr(type(fn.vm.guard), "call", interrupted)
    monkeypatch.setattr(type(fn.vm.guard), "second_run", None)
    with pytest.raises(KeyboardInterrupt):
        fn(-ONES)
    np.testing.assert_array_equal(w.get_value(), ONES)


def test_what_a_loop_gives_is_not_read_again(guard):
    x = pt.tensor("x", dtype="float64", shape=(3,))
    states = pytensor.scan(
        lambda v, state: pt.log(state + v),
        x,
        outputs_info=[pt.constant(np.float64(1))],
        return_updates=False,
    )
    fn = pytensor.function([x], states[::-1].reshape((3, 1)), mode=guard())
    fn(3 * ONES)
    dropped = GuardMode.summary(fn).dropped
    assert sum(n for rule, n in dropped.items() if "inner graph" in rule) == 1
    assert trip(fn, np.array([3.0, 3.0, -9.0])).path[0].step == 2


def test_a_loop_in_a_loop(guard):
    m = pt.tensor("m", dtype="float64", shape=(3, 2))

    def row_sum(row, total):
        def add(v, s):
            return s + pt.log(v + s)

        sums = pytensor.scan(
            add, row, outputs_info=[pt.constant(np.float64(0.5))], return_updates=False
        )
        return total + sums[-1]

    totals = pytensor.scan(
        row_sum, m, outputs_info=[pt.constant(np.float64(0))], return_updates=False
    )
    fn = pytensor.function([m], totals, mode=guard())
    good = np.full((3, 2), 2.0)
    fn(good)
    bad = good.copy()
    bad[2, 1] = -50.0
    event = trip(fn, bad)
    assert [step.step for step in event.path] == [2, 1]
    assert (event.kind, event.n_nan, event.shape) == ("nan", 1, ())


def test_the_body_of_an_op_from_graph(guard):
    x, y = pt.dvectors("x", "y")
    op = OpFromGraph([x, y], [pt.log(x) * y, x / y])
    fn = pytensor.function([x, y], op(x, y), mode=guard())
    fn(ONES, ONES)
    event = trip(fn, ONES, np.array([1.0, 0.0, 1.0]))
    assert (event.kind, len(event.path)) == ("inf", 1)


def test_only_the_branch_that_was_chosen(guard):
    c, x = pt.dscalar("c"), pt.dvector("x")
    chosen = ifelse(c > 0, pt.log(x), pt.sqrt(x + 2.0))
    fn = pytensor.function([c, x], chosen, mode=guard())
    np.testing.assert_array_equal(fn(0.0, -ONES), ONES)
    assert trip(fn, 1.0, -ONES).kind == "nan"
    assert trip(fn, 0.0, -5 * ONES).kind == "nan"


@pytest.mark.parametrize("action", ["warn", "record"])
def test_actions_that_go_on_report_the_first(guard, action):
    x, y = pt.dvectors("x", "y")
    outputs = [pt.cumsum(pt.cumsum(pt.log(x))), pt.cumsum(pt.exp(y))]
    fn = pytensor.function([x, y], outputs, mode=guard(action=action))
    result, _ = fn(np.array([0.0, 1.0, 1.0]), ONES)
    assert np.isinf(result).all()
    assert [event.kind for event in events_of(fn)] == ["inf"]  # what follows is not told
    fn(-ONES, 800.0 * ONES)
    assert {event.kind for event in events_of(fn)[1:]} == {"nan", "inf"}  # two that are independent


def test_numbers_of_all_kinds(guard):
    x, n = pt.zmatrix("x"), pt.tensor("n", dtype="uint64", shape=(None,))
    mode = guard(check_integers=True, big_threshold=float(2**63))
    fn = pytensor.function([x, n], [x * 1, n.sum()], mode=mode)
    whole = np.arange(3).astype("uint64")
    fn(np.ones((2, 3), complex), whole)
    event = trip(fn, np.array([[1.0, 1.0], [complex(2, np.nan), 1.0]]).T, whole)
    assert (event.shape, event.first_index, event.n_nan) == ((2, 2), (0, 1), 1)
    assert event.first_value.real == 2.0
    whole[2] = 2**64 - 1
    event = trip(fn, np.ones((1, 1), complex), whole)
    assert (event.kind, event.first_value, event.first_index) == ("big", 2**64 - 1, (2,))


def test_any_other_error_is_raised_as_it_is(guard):
    x, y = pt.dvectors("x", "y")
    fn = pytensor.function([x, y], pt.log(x) + y, mode=guard())
    with pytest.raises((TypeError, ValueError), match="(?i)shape|broadcast|dimension"):
        fn(ONES, np.ones(2))
