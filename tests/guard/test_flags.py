"""The C backend: what is made is seen by flags, what enters by reading, and healthy calls pass."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import trip
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode, NanGuardMode, events_of
from theanoguard.guard import plan
from theanoguard.guard.rerun import SecondRun

pytestmark = pytest.mark.usefixtures("needs_cxx", "c_backend")

x = pt.dvector("x")
NAN_AND_INF = dict(nan_is_error=True, inf_is_error=True, big_is_error=False)


def compiled(outputs, inputs=(x,), updates=None, **settings):
    mode = GuardMode(**{"big_is_error": True, **settings}, optimizer="fast_run")
    return pytensor.function(list(inputs), outputs, updates=updates, mode=mode)


@pytest.fixture
def second_runs(monkeypatch):
    """A list that grows with every second run."""
    runs, find = [], SecondRun.find
    monkeypatch.setattr(SecondRun, "find", lambda run: runs.append(run) or find(run))
    return runs


# ---------------------------------------------------------------- misses of the interval proofs


def test_elements_that_are_not_incremented():
    s = pt.dscalar("s")
    written = pt.inc_subtensor(x[:3], s)
    for y in (pt.log(written), 1 / written, pt.exp(-1e3 * (written - 1))):
        event = trip(compiled(y, [x, s]), np.zeros(100), 5.0)
        assert (event.kind, event.first_index) == ("inf", (3,))


def test_the_bounds_of_an_earlier_call_prove_nothing():
    w = pytensor.shared(np.zeros(100), name="w")
    h = pytensor.scan(lambda v: v * 2.0, sequences=[x], return_updates=False)
    fn = compiled(h * 100, updates={w: w - h * 0.1})
    fn(np.ones(100))
    assert trip(fn, np.full(100, 1e9)).kind == "big"


@pytest.mark.parametrize("settings", [{}, NAN_AND_INF])
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e9])
def test_a_row_that_another_function_changes(settings, bad):
    w = pytensor.shared(np.ones((1000, 8)), name="w")
    i, row = pt.lscalar("i"), pt.dvector("row")
    read = compiled((w * 100).sum(axis=0), [], **settings)
    write = compiled([], [i, row], {w: pt.inc_subtensor(w[i], row)}, exempt="*", check_inputs=False)
    read()
    write(777, np.full(8, 1e9 if bad == 1e9 else 1.0))
    if bad != 1e9:
        w.get_value(borrow=True)[777] = bad
    if bad == 1e9 and settings:
        assert read()[0] > 1e10
    else:
        assert trip(read).kind == ("big" if bad == 1e9 else "nan" if np.isnan(bad) else "inf")


def test_single_precision_inside_of_double():
    inside = pt.cast(pt.exp(pt.cast(x, "float32")) * np.float32(1e-35), "float64")
    assert trip(compiled(inside), np.full(100, 100.0)).kind == "inf"


def test_integers_become_floats():
    k = pt.lvector("k")
    joined = pt.concatenate([x, k])
    assert trip(compiled(joined, [x, k]), np.ones(100), np.full(3, 10**11)).kind == "big"
    put = pt.set_subtensor(x[:3], k)
    assert trip(compiled(put, [x, k]), np.ones(100), np.full(3, 10**11)).kind == "big"


def test_complex_functions_are_not_bounded():
    z = pt.zvector("z")
    pole = np.full(20, 1j * np.pi / 2)
    event = trip(compiled(pt.tanh(z), [z]), pole)
    assert event.kind in ("inf", "nan", "big")


def test_clip_with_its_bounds_in_the_wrong_order():
    low, high = pt.dscalar("low"), pt.dscalar("high")
    fn = compiled(1e9 * pt.clip(x, low, high), [x, low, high])
    assert trip(fn, np.ones(100), 100.0, -1.0).kind == "big"


@pytest.mark.parametrize("linker", ["vm", "vm_nogc", "cvm", "cvm_nogc"])
def test_scalars_on_every_linker(linker):
    s = pt.dscalar("s")
    fn = compiled([pt.log(s), pt.log(s - 1.0) * x], [x, s], linker=linker)
    for _ in range(3):
        assert trip(fn, np.ones(3), 0.5).kind == "nan"
        fn(np.ones(3), 2.0)


# ---------------------------------------------------------------- the audit


def test_the_audit_says_by_which_rule_a_value_would_be_missed(monkeypatch):
    with monkeypatch.context() as patched:  # as if a product of small numbers were never big
        patched.setattr(plan, "keeps_size", lambda node, index, limit: True)
        fn = compiled(x * x, audit=True)
        with pytest.raises(RuntimeError) as caught:
            fn(np.array([1.0, 1e6]))
    first, second = str(caught.value).splitlines()
    assert not isinstance(caught.value, GuardError)
    assert "1000000000000.0 at (1,) of Sqr(x) would be missed: no flag was raised" in first
    assert "rule 'flag'" in first
    assert "fault of theanoguard" in second


def test_the_audit_agrees():
    fn = compiled([pt.log(x), x * x], audit=True)
    fn(np.ones(3))
    assert trip(fn, np.array([1.0, 0.0])).kind == "inf"
    assert trip(fn, np.array([1.0, 1e6])).kind == "big"
    assert trip(fn, np.array([1.0, np.nan])).role == "input"


@pytest.mark.parametrize(
    "make, bad, rule",
    [
        (lambda x: pt.log(x) * 2, 0.0, "flag"),
        (lambda x: pt.psi(x) * 2, 0.0, "carried"),
    ],
)
def test_the_audit_exercises_each_rule(make, bad, rule):
    """The others (no numbers, integers, loops as a whole) leave out what cannot be first."""
    mode = GuardMode(True, True, False, audit=True, optimizer="fast_run").excluding("fusion")
    fn = pytensor.function([x], make(x), mode=mode)
    fn(np.ones(3))
    event = trip(fn, np.array([1.0, bad, 1.0]))
    dropped = fn.vm.guard.plan.without_audit().dropped
    [variable] = [v for n in fn.maker.fgraph.apply_nodes if str(n) == event.node for v in n.outputs]
    assert dropped.get(variable) == rule


# ---------------------------------------------------------------- what is an error


def test_a_mask_of_infinities_is_none(second_runs):
    keep = pt.bvector("keep")
    scores = pt.switch(keep, x, -np.inf)
    weights = pt.exp(scores - scores.max())
    fn = compiled(weights / weights.sum(), [x, keep])
    keep = np.array([1, 0, 1], "int8")
    for _ in range(5):
        assert np.isclose(fn(np.zeros(3), keep).sum(), 1)
    assert len(second_runs) <= 3
    assert trip(fn, np.array([0.0, 0.0, np.nan]), keep).kind == "nan"
    assert trip(fn, np.zeros(3), np.zeros(3, "int8")).kind == "nan"


def test_any_reports_an_infinity_that_is_chosen():
    chosen = pt.switch(x > 0, x, -np.inf)
    assert compiled(chosen)(np.array([-1.0]))[0] == -np.inf
    assert trip(compiled(chosen, inf_is_error="any"), np.array([-1.0])).kind == "inf"
    fn = pytensor.function([x], chosen, mode=NanGuardMode(True, True, True))
    assert trip(fn, np.array([-1.0])).kind == "inf"


DISCARDED = {
    "index": lambda y: y[1:].sum(),
    "index in an array": lambda y: y[np.array([1, 3])] * 2,
    "write": lambda y: pt.set_subtensor(y[0], 0.0),
    "write behind a write": lambda y: pt.set_subtensor(pt.set_subtensor(y[1], 5.0)[0], 0.0),
    "index behind a write": lambda y: pt.exp(pt.set_subtensor(y[2], 5.0)[1:]),
}


@pytest.mark.parametrize(("value", "kind"), [(0.0, "inf"), (-1.0, "nan")])
@pytest.mark.parametrize("form", DISCARDED)
def test_an_element_that_is_always_discarded_costs_one_second_run(form, value, kind, second_runs):
    fn = compiled(DISCARDED[form](pt.log(x)))
    for _ in range(5):
        assert np.isfinite(fn(np.array([value, 1.0, 2.0, 3.0]))).all()
    assert len(second_runs) <= 1  # (none where a rewrite takes the elements first)
    assert trip(fn, np.array([value, 1.0, 2.0, value])).kind == kind


def test_what_is_thrown_away_costs_one_second_run(second_runs):
    sigmoid = 1 / (1 + pt.exp(-x))
    fn = pytensor.function([x], sigmoid, mode=GuardMode(**NAN_AND_INF).excluding("stabilize"))
    values = np.array([-750.0, 0.0])
    try:
        fn(values)
    except GuardError:
        return  # the exponential is a node of its own
    for _ in range(5):
        fn(values)
    assert len(second_runs) == 1
    assert trip(fn, np.array([np.nan, 0.0])).role == "input"


def test_the_result_is_judged():
    log = pytensor.function([x], pt.switch(x > 0, pt.cumsum(pt.log(x)), 0.0), mode=GuardMode())
    assert trip(log, np.array([1.0, -1.0])).kind == "nan"
    fn = compiled(pt.switch(x > 0, pt.cumsum(pt.log(x)), 0.0), judge="result")
    for _ in range(3):
        assert fn(np.array([1.0, -1.0])).tolist() == [0.0, 0.0]
    event = trip(fn, np.array([-1.0, 1.0]))
    assert event.op == "Log"
    holed = np.array([1.0, np.nan])
    fn = compiled((x * holed).sum(), judge="result")
    for _ in range(2):
        assert trip(fn, np.ones(2)).role == "constant"
    fn = compiled(pt.switch(np.isnan(holed), x, x * holed), judge="result")
    for _ in range(2):
        assert fn(np.ones(2)).tolist() == [1.0, 1.0]


def test_independent_faults_in_a_loop_are_recorded_each():
    result = pytensor.scan(
        lambda v: [pt.log(v), pt.sqrt(v - 1.0)], sequences=[x], return_updates=False
    )
    mode = GuardMode(action="record", optimizer="fast_run").excluding("fusion")
    fn = pytensor.function([x], result, mode=mode)
    fn(np.array([1.0, 0.0, 1.0]))
    assert sorted(event.op for event in events_of(fn)) == ["Log", "Sqrt"]
    fn(np.array([1.0, 0.0, 1.0]))
    assert len(events_of(fn)) == 4


# ---------------------------------------------------------------- what a failed call leaves


def test_an_embedding_update_copies_rows_only():
    table = pytensor.shared(np.ones((1000, 16)), name="table")
    rows, step = pt.lvector("rows"), pt.dmatrix("step")
    update = {table: pt.inc_subtensor(table[rows], step)}
    fn = compiled([], [rows, step], update, **NAN_AND_INF)
    fn([3, 3, 5], np.ones((3, 16)))
    assert fn.vm.guard.kernel.counters()["copied"] < table.get_value(borrow=True).nbytes
    before = table.get_value()
    assert before[3, 0] == 3
    with pytest.raises(GuardError):
        fn([3, 7, 3], np.full((3, 16), 1.7e308))
    np.testing.assert_array_equal(table.get_value(), before)


def test_same_as_without_a_guard():
    plain = pytensor.function([x], pt.log(x).sum(), mode=Mode("cvm", "fast_run"))
    assert compiled(pt.log(x).sum())(np.ones(3) * 2) == plain(np.ones(3) * 2)


def test_second_runs_share_what_runs_the_nodes():
    fn = pytensor.function(
        [x], pt.log(x) + pt.sqrt(x) * 2, mode=GuardMode(**NAN_AND_INF, action="record")
    )
    sizes = []
    for _ in range(3):
        fn(np.array([-1.0, 2.0]))
        sizes.append(len(fn.vm.guard.rerun_kernels))
    assert sizes[0] > 0
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_that_numpy_casts_keeps_the_flags_of_the_nodes_before_it(dtype):
    v, x = pt.vector("v", dtype=dtype), pt.matrix("x", dtype=dtype)
    cube = pt.sqr(v) * v  # the loop in C runs it first, and tanh hides its Inf
    f = pytensor.function(
        [v, x], pt.tanh(cube) + pt.sum(x), mode=GuardMode(big_is_error=False).excluding("fusion")
    )
    ones = np.ones((3, 3), dtype)
    f(np.ones(5, dtype), ones)
    with pytest.raises(GuardError, match="Inf in"):
        f(np.full(5, np.finfo(dtype).max / 10, dtype), ones)


MASKED = {
    "division by zero": lambda x: pt.switch(pt.gt(x, 0), 1 / x, 0.0),
    "invalid": lambda x: pt.switch(pt.gt(x, 0), pt.sqrt(x - 0.5), 0.0),
    "overflow": lambda x: pt.switch(pt.gt(x, 0), pt.exp(1e4 * (0.01 - x)), 0.0),
}


@pytest.mark.not_on(jax="has no flags", numba="has no such figures", pytorch="has no flags")
@pytest.mark.parametrize("kind", MASKED)
def test_only_the_node_that_raised_a_flag_is_read_from_then_on(kind, second_runs):
    """The flags of one node say nothing of the nodes that run after it."""
    x, y = pt.dvectors("x", "y")
    far = pt.exp(-pt.sqr(MASKED[kind](x).sum()) * y).sum()
    mode = GuardMode(big_is_error=False, audit=False)  # (the audit reads all)
    f = pytensor.function([x, y], pt.sqrt(far + y**2).sum(), mode=mode)
    given = np.array([1.0, -1.0 if kind != "division by zero" else 0.0]), np.ones(2)
    before = mode.summary(f).dropped["flag"]
    for _ in range(3):
        f(*given)
    assert mode.summary(f).dropped["flag"] == before - 1
    assert len(second_runs) == 1
