"""The guard on the Numba backend: a part of what the whole suite holds with ``--backend numba``."""

import gc
import os
import pickle
import signal
import warnings

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, CountedIdentity, trip
from pytensor.compile.io import In
from pytensor.compile.mode import Mode
from pytensor.scan.utils import until

from theanoguard import GuardError, GuardMode, events_of
from theanoguard._evaluate.replay import Replay
from theanoguard._pytensor import Scan, inner_graphs_for_numba
from theanoguard.guard.numba.made import made_big
from theanoguard.guard.rerun import SecondRun

pytestmark = pytest.mark.on_33

ONES = np.ones(3)


def numba_guard(**settings):
    return GuardMode(**{**ALL, **settings}, backend="numba", optimizer="fast_run")


@pytest.fixture(scope="module")
def step():
    """A step with an update, guarded and not; return both, with their weights."""

    def build(mode):
        x = pt.dvector("x")
        w = pytensor.shared(np.ones(3), name="w")
        rng = pytensor.shared(np.random.default_rng(3), name="rng")
        next_rng, noise = pt.random.normal(size=(3,), rng=rng).owner.outputs
        cost = (pt.log(w) * x).sum() + 0.0 * noise.sum()
        updates = {w: w - 0.01 * pytensor.grad(cost, w), rng: next_rng}
        fn = pytensor.function([x], [cost, noise], updates=updates, mode=mode)
        return fn, w, rng

    return build(numba_guard()), build(Mode("numba", "fast_run"))


def test_results_are_those_of_the_same_graph_without_a_guard(step):
    (guarded, w, rng), (plain, v, other) = step
    for value in (0.1, 0.2, 0.3):
        for ours, theirs in zip(guarded(value * ONES), plain(value * ONES), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(w.get_value(), v.get_value())
    state = rng.get_value().bit_generator.state
    assert state == other.get_value().bit_generator.state


def test_a_trip_loses_nothing(step):
    guarded, w, rng = step[0]
    before, state = w.get_value(), rng.get_value().bit_generator.state
    w.set_value(np.array([1.0, -1.0, 1.0]))
    event = trip(guarded, ONES)
    assert (event.kind, event.role) == ("nan", "node")
    np.testing.assert_array_equal(w.get_value(), [1.0, -1.0, 1.0])
    assert rng.get_value().bit_generator.state == state
    w.set_value(before)
    guarded(ONES)


def test_a_bad_shared_variable_is_reported_as_such(step):
    guarded, w, _ = step[0]
    before = w.get_value()
    w.set_value(np.array([1.0, np.inf, 1.0]))
    for _ in range(2):  # it is not taken for one that was checked
        event = trip(guarded, ONES)
        assert (event.role, event.variable, event.n_posinf) == ("shared", "w", 1)
    w.set_value(before)
    guarded(ONES)
    assert trip(guarded, np.array([1.0, 1.0, np.nan])).role == "input"


def test_an_argument_that_may_be_changed_is_not():
    x = pt.dvector("x")
    fn = pytensor.function([In(x, mutable=True)], x * 2.0, mode=numba_guard())
    value = ONES.copy()
    np.testing.assert_array_equal(fn(value), 2 * ONES)
    np.testing.assert_array_equal(value, ONES)


def test_an_argument_that_the_users_own_operation_overwrites():
    x, y = pt.dvectors("xy")
    outputs = [pt.inc_subtensor(x[1:][:1], 2.0, inplace=True), pt.exp(pt.log(y)) * 2]
    fn = pytensor.function(
        [In(x, mutable=True), y], outputs, mode=numba_guard(), accept_inplace=True
    )
    # The rewrites are valid still.
    assert not any(node.op == pt.log for node in fn.maker.fgraph.apply_nodes)
    value = ONES.copy()
    np.testing.assert_array_equal(fn(value, ONES)[1], 2 * ONES)
    np.testing.assert_array_equal(value, [1, 3, 1])
    assert trip(fn, value, np.array([1.0, np.inf, 1.0])).variable == "y"


def test_a_pickled_function_and_a_copy(step):
    guarded = step[0][0]
    for fn in (pickle.loads(pickle.dumps(guarded)), guarded.copy()):
        fn(ONES)
        assert trip(fn, np.array([1.0, np.inf, 1.0])).role == "input"
    assert pickle.loads(pickle.dumps(numba_guard(action="warn"))).policy.action == "warn"


def test_backends_to_choose_from():
    with pytensor.config.change_flags(mode=Mode("numba", "fast_run")):
        assert "NumbaGuardLinker" in repr(GuardMode(backend="auto").linker)
    with pytensor.config.change_flags(mode=Mode("cvm", "fast_run")):
        assert "NumbaGuardLinker" not in repr(GuardMode(backend="auto").linker)
    with pytest.raises(ValueError, match="backend='gpu'.*must be 'c', .*'numba', .*'auto'"):
        GuardMode(backend="gpu")
    with pytest.raises(ValueError, match="cannot guard the backend 'mlx' yet"):
        GuardMode(backend="mlx")
    with (
        pytensor.config.change_flags(mode="MLX"),
        pytest.raises(ValueError, match="'mlx' yet .mode='MLX'"),
    ):
        GuardMode(backend="auto")
    with pytest.raises(ValueError, match="choose backend='numba'"):
        GuardMode(linker="numba", backend="c")


def test_an_operation_that_overwrites_its_operand_is_judged_by_what_that_was():
    p = pt.dmatrix("p")
    delta = p[0] - p[1]
    r2 = (delta**2).sum()
    fn = pytensor.function([p], delta / r2**1.5, mode=GuardMode(backend="numba"))
    with pytest.raises(GuardError, match=r"NaN in division: 0\.0 / 0\.0"):
        fn(np.ones((2, 2)))


def test_a_maximum_of_nothing_but_nan_is_no_second_fault():
    x = pt.fmatrix("x")
    fn = pytensor.function([x], (-x).max(), mode=numba_guard(action="record"))
    fn(np.full((2, 3), np.nan, "float32"))  # (NaN, and -inf on PyTensor 3.0)
    assert [(event.role, event.kind) for event in events_of(fn)] == [("input", "nan")]


def test_a_while_loop_ends_where_it_trips():
    x = pt.dscalar("x")
    logs = pytensor.scan(
        lambda v: (pt.log(v), until(v < -5.0)),
        outputs_info=[x],
        n_steps=10**9,
        return_updates=False,
    )
    fn = pytensor.function([x], logs[-1], mode=numba_guard())
    assert trip(fn, 2.0).path[0].step == 2  # log(2), log(0.69), log(-0.37); NaN is never below


def test_a_bad_value_is_no_place_in_memory():
    x = pt.dvector("x")
    logs = pt.cumsum(pt.log(x))
    fn = pytensor.function([x], x[pt.cast(1e9 * logs[:1], "int64")] + logs[0], mode=numba_guard())
    np.testing.assert_array_equal(fn(np.array([1.0, 3.0])), [1.0])
    assert trip(fn, -ONES).kind == "nan"


@pytest.fixture(scope="module")
def large():
    """exp(x) + y, guarded and not, for vectors; it runs in blocks."""
    x, y = pt.dvectors("x", "y")
    modes = (numba_guard(), Mode("numba", "fast_run"))
    return [pytensor.function([x, y], pt.exp(x) + y, mode=mode) for mode in modes]


N = 10_007  # some blocks, and a part of one


@pytest.mark.deep
def test_blocks_give_the_same_results(large):
    guarded, plain = large
    whole = np.random.default_rng(0).normal(size=(2, 2 * N))
    for x, y in (whole[:, :N], whole[:, ::2], whole[:, :1], whole[:, :0]):
        np.testing.assert_array_equal(guarded(x, y), plain(x, y))
    for x, y in ((ONES, whole[1, :N]), (whole[0, :N], whole[1, : N - 1])):
        with pytest.raises(ValueError, match="shape"):
            guarded(x, y)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 1.1e10, -1.1e10])
@pytest.mark.parametrize("place", [0, 1, 2047, 2048, 5000, N - 1])
def test_blocks_miss_nothing(large, place, bad):
    for which in (0, 1):
        values = [np.zeros(N), np.zeros(N)]
        values[which][place] = bad
        event = trip(large[0], *values)
        assert (event.role, event.variable, event.first_index) == ("input", "xy"[which], (place,))
    values = [np.zeros(N), np.zeros(N)]
    values[0][place] = 24.0  # e**24 = 2.6e10
    event = trip(large[0], *values)
    assert (event.role, event.kind, event.first_index) == ("node", "big", (place,))


@pytest.fixture(scope="module")
def distance():
    """A sum, guarded and not.  On PyTensor 3.3 its one loop also reads for the guard."""
    x, y, scale = pt.dvector("x"), pt.fvector("y"), pt.dscalar("scale")
    value = (scale * (x - y) ** 2).sum()
    modes = (numba_guard(), Mode("numba", "fast_run"))
    return [pytensor.function([x, y, scale], value, mode=mode) for mode in modes]


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 1.1e10, -1.1e10])
def test_a_loop_that_sums_misses_nothing(distance, bad):
    for place in (0, 1, 15, 16, 5000, N - 1):
        for which in (0, 1):
            values = [np.ones(N), np.ones(N, "float32")]
            values[which][place] = bad
            event = trip(distance[0], *values, 0.0)
            assert (event.variable, event.first_index) == ("xy"[which], (place,))
    assert trip(distance[0], np.ones(0), np.ones(0, "float32"), bad).variable == "scale"


@pytest.mark.deep
def test_a_loop_that_sums_gives_the_same_results(distance):
    guarded, plain = distance
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=2 * N), rng.normal(size=2 * N).astype("float32")
    for part in (slice(N), slice(None, None, 2), slice(1), slice(0), slice(None, None, -1)):
        expected = plain(x[part], y[part], 1.5)
        np.testing.assert_allclose(guarded(x[part], y[part], 1.5), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="shape"):
        guarded(x[:1], y, 1.0)


@pytest.mark.parametrize("columns", [(), pytest.param((3,), marks=pytest.mark.slow)])
def test_rows_of_any_layout_are_read(columns):
    ones = np.ones((6, *columns))
    table, rows = pytensor.shared(ones, name="table"), pt.ivector("rows")
    touched = pt.tanh(table[rows])
    updates = {table: pt.inc_subtensor(table[rows], touched)}
    fn = pytensor.function([rows], touched.sum(), updates=updates, mode=numba_guard())
    place = (4, *(n - 1 for n in columns))
    for value in (ones.copy(), np.asfortranarray(ones), np.repeat(ones, 2, 0)[::2]):
        for bad in (np.nan, np.inf, -1.1e10):
            value[place] = bad
            table.set_value(value, borrow=True)
            fn(np.array([0, -3, 5], "int32"))
            for row in (4, -2):
                before = table.get_value()
                event = trip(fn, np.array([0, row, row, 5], "int32"))
                assert (event.variable, event.first_index) == ("table", place)
                np.testing.assert_array_equal(table.get_value(), before)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.deep
def test_no_element_is_missed(dtype):
    m, v = pt.matrix("m", dtype=dtype), pt.vector("v", dtype=dtype)
    fn, of_vector = (
        pytensor.function([x], pt.cumsum(x), mode=numba_guard(big_threshold=1e4)) for x in (m, v)
    )
    for size in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 100):
        values = np.full((1, size), 1e2, dtype)
        fn(values)
        among_nans = np.pad(values[0], size, constant_values=np.nan)
        of_vector(among_nans[2 * size - 1 : size - 1 : -1])  # what lies beside it is not read
        for place in range(size):
            for bad in (np.nan, -np.nan, np.inf, -np.inf, 1.001e4, -1.001e4):
                values[0, place] = bad
                layouts = values, np.asfortranarray(values.T), np.repeat(values, 2, 0)[:, ::-1]
                for copies, array in zip((1, 1, 2), layouts, strict=True):
                    assert trip(fn, array).n_nan == copies * np.isnan(bad)
                twice = np.repeat(values[0], 2)
                for copies, vector in (
                    (1, values[0]),
                    (1, values[0, ::-1]),
                    (2, twice[::-1]),
                    (1, twice[::2]),
                    (1, twice[::-2]),
                ):
                    assert trip(of_vector, vector).n_nan == copies * np.isnan(bad)
            values[0, place] = 1e2


@pytest.mark.deep
def test_no_trip_leaks():
    statistics = numba.core.runtime.rtsys.get_allocation_stats
    numba.core.runtime._nrt_python.memsys_enable_stats()
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.cumsum(pt.log(pt.cumsum(x))), mode=numba_guard())
    counts = []
    for _ in range(3):
        trip(fn, -ONES)
        gc.collect()  # (errors hold the frames that they came through)
        allocated = statistics()
        counts.append((allocated.alloc - allocated.free, allocated.mi_alloc - allocated.mi_free))
    assert counts[2] == counts[1]


def test_what_enters_is_told_first():
    x, y = pt.dvectors("x", "y")
    outputs = [pt.cumsum(pt.log(y)), pt.exp(x) + 1.0]
    fn = pytensor.function([x, y], outputs, mode=numba_guard())
    assert trip(fn, np.array([1.0, np.nan]), -ONES).variable == "x"
    m = pt.dmatrix("m")  # and where the call has ended before it was read
    inverse = pt.linalg.inv(m)
    fn = pytensor.function([m, y], [inverse, pt.exp(y) + inverse[0]], mode=numba_guard())
    assert trip(fn, np.zeros((3, 3)), np.array([1.0, np.inf, 1.0])).variable == "y"


def flags_guard(**settings):
    """Return a mode that relies on exception flags: it does not look for big values."""
    return numba_guard(big_is_error=False, **settings)


def test_one_value_is_read_where_it_shows_everything():
    obs = pytensor.shared(np.ones(100), name="obs")
    theta = pt.dvector("theta")
    density = (-0.5 * ((obs - theta[0]) / pt.exp(theta[1])) ** 2 - theta[1]).sum()
    fn = pytensor.function([theta], density, mode=flags_guard())
    fn(np.zeros(2))
    assert "exception flags; 2 values read" in str(GuardMode.summary(fn))
    obs.get_value(borrow=True)[7] = -np.inf
    event = trip(fn, np.zeros(2))
    assert (event.role, event.variable, event.first_index) == ("shared", "obs", (7,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 16, 1000])
def test_what_is_estimated_without_a_flag_is_read(dtype, n):
    x = pt.vector("x", dtype=dtype)
    outputs = [1 / pt.sqrt(x), x / pt.sqrt(x - 0.5), x**-0.5, (1 / pt.sqrt(x)).sum()]
    for output in outputs:
        fn = pytensor.function([x], output, mode=flags_guard())
        value = np.full(n, 1.75, dtype)
        fn(value)
        for bad in (-1.0, -1e30):
            value[n // 2] = bad
            assert trip(fn, value).kind == "nan"


def test_a_lane_that_is_thrown_away_is_no_error_and_is_remembered():
    x = pt.dvector("x")
    fn = pytensor.function([x], [pt.sigmoid(x) * 2, pt.exp(x)], mode=flags_guard())
    for _ in range(3):
        np.testing.assert_array_equal(fn(-800 * ONES)[0], 0 * ONES)
    assert len(fn.vm.guard.reliance.quiet) == 1
    assert trip(fn, 800 * ONES).kind == "inf"  # another node's flag counts
    assert trip(fn, np.nan * ONES).role == "input"


def test_a_loop_overwrites_its_state_as_without_a_guard():
    x, n = pt.dvector("x"), pt.lscalar("n")
    start = pytensor.shared(np.ones(2), name="start")
    last = pytensor.scan(
        lambda state, x: pt.log(state + x), [], [start], [x], n_steps=n, return_updates=False
    )[-1]
    fn, unguarded = (
        pytensor.function([x, n], last, updates={start: last}, mode=mode)
        for mode in (numba_guard(), Mode("numba", "fast_run"))
    )

    def overwriting(fn):
        loops = [node for node in fn.maker.fgraph.apply_nodes if isinstance(node.op, Scan)]
        [body] = (inner_graphs_for_numba(node, type)[0] for node in loops)
        return [(type(node.op), node.op.destroy_map) for node in body.toposort()]

    assert overwriting(fn) == overwriting(unguarded)
    event = trip(fn, np.array([0.0, -2.0]), 5)
    assert (event.first_index, event.path[0].step) == ((1,), 0)
    np.testing.assert_array_equal(start.get_value(), 1)


def test_a_while_loop_that_a_flag_has_stopped_is_run_to_its_end():
    x = pt.dscalar("x")

    def step(v):
        return v - 500.0 + pt.sigmoid(v), until(v < -2000.0)

    states = pytensor.scan(step, outputs_info=[x], n_steps=100, return_updates=False)
    modes = flags_guard(), Mode("numba", "fast_run")
    results = [pytensor.function([x], states, mode=mode)(0.0) for mode in modes]
    np.testing.assert_array_equal(*results)


def test_without_flags_values_are_read(monkeypatch):
    monkeypatch.setattr("theanoguard.guard.numba.flags.are_reliable", lambda: False)
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(pt.log(x) * 2), mode=flags_guard())
    assert "not reliable here" in str(GuardMode.summary(fn))
    fn(ONES)
    assert trip(fn, -ONES).kind == "nan"
    assert trip(fn, 1e200 * ONES).kind == "inf"


@pytest.mark.parametrize("big", [False, True])
def test_a_nan_that_stays_in_a_weight_is_reported_in_every_call(big):
    x = pt.dscalar("x")
    w = pytensor.shared(ONES.copy(), name="w")
    mode = numba_guard(action="record", big_is_error=big)
    fn = pytensor.function([x], (w * 2).sum(), updates={w: w + pt.log(x)}, mode=mode)
    for value in (1.0, -1.0, 1.0, 1.0):
        fn(value)
    events = [(event.call, event.role, event.variable) for event in mode.events]
    assert events == [(2, "node", None), (3, "shared", "w"), (4, "shared", "w")]


def test_an_infinite_value_that_is_meant_is_no_error():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.switch(x > 0, pt.log(x), -np.inf).sum(), mode=flags_guard())
    assert fn(np.array([1.0, -1.0])) == -np.inf
    assert trip(fn, np.array([1.0, np.nan])).role == "input"


def test_the_result_alone_is_judged():
    x = pt.dvector("x")
    outputs = pt.switch(pt.all(x > 0), pt.cumsum(pt.log(x)), 0.0)
    fn = pytensor.function([x], outputs, mode=flags_guard(judge="result"))
    np.testing.assert_array_equal(fn(-ONES), 0 * ONES)
    assert trip(fn, np.array([1.0, np.inf, 1.0])).role == "input"


def test_a_result_that_is_big_on_purpose_hides_no_other_error():
    x, y = pt.dvectors("x", "y")
    outputs = pt.switch(x > 3, 1e30, pt.cumsum(pt.exp(y)))
    fn = pytensor.function([x, y], outputs, mode=numba_guard(judge="result"))
    for _ in range(3):
        assert fn(4 * ONES, ONES).min() == 1e30
    event = trip(fn, 1e20 * ONES, ONES)
    assert (event.role, event.variable) == ("input", "x")
    event = trip(fn, np.array([4.0, 1.0, 1.0]), 30 * ONES)
    assert (event.role, event.op) == ("node", "Exp")


def test_nothing_runs_in_python_twice():
    x = pt.dvector("x")
    identity = CountedIdentity()
    mode = flags_guard(action="record")  # (no explanation, which may run it again)
    fn = pytensor.function([x], pt.log(identity(pt.exp(x) - 1)), mode=mode)
    for value in (ONES, 0 * ONES, -ONES):
        before = identity.runs
        fn(value)
        assert identity.runs == before + 1
    assert [event.kind for event in mode.events] == ["inf", "nan"]


def test_a_fused_reduction_that_gives_a_number():
    """PyTensor 3.3 turns it into an operation on scalars, whose value is no array."""
    x = pt.dvector("x")
    f = pytensor.function([x], (pt.log(x).sum() - np.array([1.0, 2.0])), mode=numba_guard())
    assert trip(f, np.array([1.0, -1.0, 2.0])).kind == "nan"


# ---------------------------------------------------------------- what is bad on purpose


@pytest.fixture
def second_runs(monkeypatch):
    """A list that grows with every second run."""
    runs, find = [], SecondRun.find
    monkeypatch.setattr(SecondRun, "find", lambda run: runs.append(run) or find(run))
    return runs


def test_a_mask_is_looked_at_once(second_runs):
    """Scores that a mask makes big are asked in each call what else has made them big."""
    s, mask = pt.dmatrix("s"), pt.bmatrix("mask")
    weights = pt.special.softmax(s * 3 + (1 - mask) * -1e30, axis=1)
    fn = pytensor.function([s, mask], weights, mode=numba_guard())
    scores, kept = np.ones((4, 5)), np.ones((4, 5), "int8")
    kept[1, 2] = 0
    for _ in range(3):
        fn(scores, kept)
    assert len(second_runs) == 1
    scores[2, 3] = 5e9
    event = trip(fn, scores, kept)
    assert (event.kind, event.first_index) == ("big", (2, 3))


@pytest.mark.parametrize(
    "combine, first",
    [
        (lambda s: s.sum(axis=1), (2,)),
        (lambda s: s.sum(axis=0), (3,)),
        (lambda s: s.sum(), None),
        (lambda s: pt.dot(s, np.full((5, 2), 2.0)), (1, 0)),
    ],
    ids=["rows", "columns", "all", "product"],
)
def test_sums_of_what_is_big_on_purpose_are_looked_at_once(combine, first, second_runs):
    s, mask = pt.dmatrix("s"), pt.bmatrix("mask")
    masked = pt.switch(mask, s, -1e30)
    fn = pytensor.function([s, mask], combine(masked[::-1]), mode=numba_guard())
    scores, kept = np.ones((4, 5)), np.ones((4, 5), "int8")
    kept[3, 0] = 0
    for _ in range(4):
        fn(scores, kept)
    assert len(second_runs) <= 2
    scores[1, 3] = scores[1, 4] = scores[2, 3] = 9e9
    if first is None:  # the sum holds the number that is meant
        fn(scores, kept)
    else:
        event = trip(fn, scores, kept)
        assert (event.kind, event.first_index) == ("big", first)


def test_a_draw_is_not_asked_what_it_made_big():
    generator = pytensor.shared(np.random.default_rng(0))
    next_state, draw = pt.random.normal(1e30, 1.0, size=(3,), rng=generator).owner.outputs
    node = draw.owner
    policy = numba_guard().policy
    assert made_big(node, 1, policy, ()) == []
    assert made_big(next_state.owner, 0, policy, ()) == []


@pytest.mark.parametrize("optimizer", ["fast_run", "fast_compile"])
def test_a_big_value_beside_one_that_is_meant(optimizer, second_runs):
    x, k = pt.dvector("x"), pt.dvector("k")
    y = x * k + np.array([-1e30, 0.0, 0.0])
    fn = pytensor.function([x, k], y, mode=numba_guard().clone(optimizer=optimizer))
    for _ in range(3):
        fn(ONES, ONES)
    assert len(second_runs) <= 2
    event = trip(fn, np.array([1.0, 1.0, 1e6]), np.full(3, 1e6))
    assert (event.kind, event.first_index) == ("big", (2,))


def test_what_is_left_out_excuses_nothing():
    x = pt.dvector("x")
    root = pt.sqrt(x)
    root.name = "root"
    guard = numba_guard(exempt="root").excluding("fusion")
    fn = pytensor.function([x], pt.cumsum(root), mode=guard)
    fn(ONES)
    assert trip(fn, -ONES).op.startswith("Cumsum")
    fn = pytensor.function([x], x[::-1] * 2.0, mode=numba_guard(check_inputs=False))
    fn(ONES)
    assert trip(fn, np.array([1.0, np.nan, 1.0])).role == "node"


def test_one_piece_is_judged_by_the_element():
    """An Inf that is chosen in a fused operation does not make what another element made right."""
    x, mask = pt.dmatrix("x"), pt.bmatrix("mask")
    best = pt.switch(mask, pt.log(x), -np.inf).max(axis=1)
    fn = pytensor.function([x, mask], best, mode=numba_guard(big_is_error=False))
    kept = np.array([[1, 1], [0, 0]], "int8")
    np.testing.assert_array_equal(fn(np.ones((2, 2)), kept), [0.0, -np.inf])
    event = trip(fn, np.array([[-1.0, 1.0], [1.0, 1.0]]), kept)
    assert (event.kind, event.n_bad) == ("nan", 1)
    assert event.first_index in [(0,), (0, 0)]  # (PyTensor 3.0 does not fuse the maximum)


def test_a_draw_beside_what_is_big_on_purpose():
    """A random generator holds no numbers: the guard learns nothing of it."""
    y, rng = pt.dvector("y"), pytensor.shared(np.random.default_rng(1), name="rng")
    new, draw = pt.random.gamma(abs(y) + 0.5, scale=1.0, rng=rng).owner.outputs
    mode = GuardMode(**ALL, backend="numba")
    masked = pt.switch(y > 0, y, -1e30)
    f = pytensor.function([y], [masked.sum(), draw], updates={rng: new}, mode=mode)
    for _ in range(2):
        np.testing.assert_allclose(f(np.full(3, -1.0))[0], -3e30)


@pytest.mark.parametrize("judge", ["node", "result"])
def test_what_numba_cannot_compile_is_not_judged(judge):
    """It raises a built-in error for half precision, also if the argument is bad."""
    x = pt.fvector("x")
    halved = x.astype("float16").astype("float32") * 2
    try:
        pytensor.function([x], halved, mode="NUMBA")(np.ones(1, "float32"))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            fn = pytensor.function([x], halved, mode=numba_guard(judge=judge))
            fn(np.array([np.nan], "float32"))


@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
def test_ctrl_c_ends_a_call_without_a_second_run():
    """Python sees it when Numba's code has ended, and wraps it once or twice."""
    state, n = pytensor.shared(1.0, name="state"), pt.lscalar("n")
    last = pytensor.scan(
        lambda u: u * 0.999 + 1.0, outputs_info=[state], n_steps=n, return_updates=False
    )[-1]
    fn = pytensor.function([n], last, updates={state: last}, mode=numba_guard())
    fn(3)
    before = state.get_value()
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            fn(100_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert fn.vm.guard.looked == 0
    assert state.get_value() == before


def test_a_table_that_one_operation_reads_twice():
    """Fusion joins both reads into one operation that does not use one of its inputs."""
    knots, i = pytensor.shared(np.array([1.0, 2.0, 4.0, np.nan]), name="knots"), pt.lvector("i")
    f = pytensor.function([i], knots[i + 1] - knots[i], mode=GuardMode(**ALL, backend="numba"))
    np.testing.assert_array_equal(f(np.array([0, 1])), [1.0, 2.0])
    event = trip(f, np.array([0, 2]))
    assert (event.role, event.variable, event.kind) == ("shared", "knots", "nan")
    assert tuple(event.first_index) == (3,)


def test_remedies_are_tried_behind_an_operation_in_python():
    x = pt.dvector("x")
    h = CountedIdentity()(x)
    by_hand = (pt.exp(h) - pt.exp(-h)) / (pt.exp(h) + pt.exp(-h))
    f = pytensor.function([x], by_hand, mode=numba_guard())
    with pytest.raises(GuardError, match=r"pt.tanh\(h\)"):
        f(np.array([1.0, 800.0]))


def test_a_batch_of_solves_that_only_numba_can_compute_is_explained():
    """PyTensor's own code for the batch fails, because its NaN have the shape of the matrix."""
    x, y = pt.dtensor3("x"), pt.dmatrix("y")
    solutions = pt.linalg.solve(x, y, b_ndim=1)
    f = pytensor.function([x, y], solutions, mode=numba_guard())
    with warnings.catch_warnings(), pytest.raises(GuardError) as caught:
        warnings.simplefilter("error")  # Numba warns when it runs PyTensor's own code
        f(np.stack([np.eye(3), np.ones((3, 3))]), np.ones((2, 3)))
    report = str(caught.value)
    assert report.startswith("NaN in solve: solve(x[1, :, :], y[1, :]) at element [1, 0]\n")
    assert "solutions = pt.linalg.solve" in report.split("\n")[2]  # nothing is about a wrapper
    assert "The matrix is singular: its rank is 1" in report


def test_a_fault_of_ours_inside_of_a_fused_operation_is_told(monkeypatch, caplog):
    def fault(*args):
        raise KeyError("planted")

    monkeypatch.setattr(Replay, "take_outputs", fault)
    x, i = pt.dvector("x"), pt.lvector("i")
    fn = pytensor.function([x, i], pt.log(x[i]), mode=GuardMode(backend="numba"))
    with pytest.raises(GuardError, match=r"^NaN in "):  # it is judged as one piece
        fn(np.array([1.0, -1.0]), np.array([0, 1]))
    assert any("is judged as one piece; please report this" in m for m in caplog.messages)
