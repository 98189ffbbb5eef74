"""Nothing is blind: inner graphs, branches, fused nodes, inputs, and what is left out."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from guarding import ALL, CountedIdentity, computes_both_branches, guarded, left_out, trip
from pytensor import ifelse, scan, shared
from pytensor.compile import MonitorMode
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.scan.utils import ScanProfileStats, until

import theanoguard
from theanoguard import GuardMode, events_of, track_provenance

# The rewrites take what they can out of a loop; these are to stay in it.
LOOPS_STAY = GuardMode(**ALL).excluding("scan_pushout")

UNFUSED = "PyTensor fuses nothing for JAX"


ZERO = pt.constant(0.0, dtype="float64")


def steps(event):
    return [step.step for step in event.path]


# ---------------------------------------------------------------- Scan


def sit_sot(x, start):
    return scan(lambda v, last: last + pt.log(v), sequences=[x], outputs_info=[start])


def mit_sot(x, start):
    initial = pt.stack([start, start])
    return scan(
        lambda v, before, last: 0.5 * before + last + pt.log(v),
        sequences=[x],
        outputs_info=[{"initial": initial, "taps": [-2, -1]}],
    )


def nit_sot(x, start):
    return scan(lambda v: pt.log(v) + start, sequences=[x])


def two_sequences(x, start):
    return scan(lambda v, w: pt.log(v) + w + start, sequences=[x, x[::-1] ** 2])


def taps_in_a_sequence(x, start):
    return scan(
        lambda now, after: pt.log(now) + after * 0 + start,
        sequences=[{"input": pt.concatenate([x, [1.0]]), "taps": [0, 1]}],
    )


def while_loop(x, start):
    def step(v, last):
        new = last + pt.log(v)
        return new, until(new > 1e3)

    return scan(step, sequences=[x], outputs_info=[start])


def untraced(x, start):
    """A shared variable updated inside the loop."""
    total = shared(0.0)
    result, updates = scan(lambda v: (pt.log(v) + start, {total: total + pt.log(v)}), sequences=[x])
    return result + updates[total], {}


def random(x, start):
    rng = shared(np.random.default_rng(1))

    def step(v, last):
        node = pt.random.uniform(size=(), rng=rng).owner
        return last + pt.log(v) + 0 * node.outputs[1], {rng: node.outputs[0]}

    return scan(step, sequences=[x], outputs_info=[start])


def matrix_state(x, start):
    return scan(
        lambda v, last: pt.log(v) + pt.dot(last, last) * 1e-3,
        sequences=[x],
        outputs_info=[start + pt.zeros((2, 2))],
    )


FLAVOURS = {
    f.__name__: f
    for f in (
        sit_sot,
        mit_sot,
        nit_sot,
        two_sequences,
        taps_in_a_sequence,
        while_loop,
        untraced,
        random,
        matrix_state,
    )
}


NOT_ON = {
    "taps_in_a_sequence": {"jax": "JAX does not know the shapes of this loop"},
    "while_loop": {"jax": "PyTensor cannot convert a while loop to JAX"},
}


@pytest.fixture(scope="module")
def loops():
    made = {}

    def function(flavour, **settings):
        key = flavour, *sorted(settings.items())
        if key not in made:
            x, start = pt.dvector("x"), pt.dscalar("start")
            result, updates = FLAVOURS[flavour](x, start)
            mode = GuardMode(**{**ALL, **settings}).excluding("scan_pushout")
            made[key] = pytensor.function([x, start], result, updates=updates, mode=mode)
            assert any(isinstance(n.op, Scan) for n in made[key].maker.fgraph.apply_nodes)
        return made[key]

    return function


@pytest.mark.parametrize("flavour", left_out(FLAVOURS, NOT_ON))
@pytest.mark.parametrize("at", [0, 2, 4])
def test_the_step_of_a_scan_is_named(flavour, at, loops):
    fn = loops(flavour)
    good = np.linspace(1, 2, 5)
    fn(good, 1.0)
    bad = good.copy()
    bad[at] = 0.0
    event = trip(fn, bad, 1.0)
    assert event.role == "node"
    assert event.kind == "inf"
    assert event.n_neginf >= 1
    assert steps(event) == [at]
    assert "Scan" in event.path[0].op
    fn(good, 1.0)


@pytest.mark.not_on(jax="XLA fails to compile a loop with no step, also without a guard")
@pytest.mark.parametrize("flavour", left_out([f for f in FLAVOURS if f != "while_loop"], NOT_ON))
def test_a_loop_with_no_step(flavour, loops):
    loops(flavour)(np.ones(0), 1.0)


def test_one_report_for_a_whole_loop(loops):
    """What follows from the bad step, inside the loop and after it, is not reported."""
    fn = loops("sit_sot", action="record")
    fn(np.array([1.0, 2.0, 0.0, 3.0, 0.0]), 1.0)
    assert [(e.kind, steps(e)) for e in events_of(fn)] == [("inf", [2])]


@pytest.mark.not_on(jax="PyTensor cannot convert a while loop to JAX")
def test_a_while_loop_that_stops_early(loops):
    """What lies beyond the end was never computed, and is not looked at."""
    fn = loops("while_loop")
    x = np.array([1.0, 2.0, 3.0, 0.0])
    assert len(fn(x, 999.5)) == 2
    assert steps(trip(fn, x, 0.0)) == [3]


def test_bad_initial_state_is_an_input(loops):
    event = trip(loops("sit_sot"), np.ones(3), np.nan)
    assert (event.role, event.variable, event.path) == ("input", "start", ())


def test_nested_loops():
    m = pt.dmatrix("m")

    def inner(row):
        sums, _ = scan(lambda v, s: s + pt.log(v), sequences=[row], outputs_info=[ZERO])
        return sums[-1]

    result, _ = scan(lambda row, s: s + inner(row), sequences=[m], outputs_info=[ZERO])
    fn = pytensor.function([m], result, mode=LOOPS_STAY)
    good = np.ones((3, 4))
    assert fn(good).shape == (3,)
    for i, j in [(0, 0), (1, 3), (2, 1)]:
        bad = good.copy()
        bad[i, j] = -1.0
        event = trip(fn, bad)
        # 3.0 takes the logarithm out of the inner loop, whatever the mode excludes
        assert steps(event) in ([i, j], [i])
        assert event.kind == "nan"
    fn(good)


@pytest.fixture(scope="module")
def gradient():
    """The gradient of a recurrence: a Scan with mit-mot, running backwards."""
    x, w = pt.dvector("x"), pt.dscalar("w")
    states, _ = scan(
        lambda v, s: pt.sqrt(s * w + v),
        sequences=[x],
        outputs_info=[pt.constant(1.0, dtype="float64")],
    )
    cost = states.sum()
    fn = pytensor.function([x, w], [cost, *pt.grad(cost, [x, w])], mode=LOOPS_STAY)
    scans = [n.op for n in fn.maker.fgraph.apply_nodes if isinstance(n.op, Scan)]
    assert any(op.info.n_mit_mot for op in scans)
    return fn


@pytest.mark.not_on(jax="JAX does not know the shapes of this loop")
def test_the_gradient_of_a_loop(gradient):
    x = np.ones(5)
    plain = gradient(x, 0.5)
    assert all(np.isfinite(v).all() for v in plain)
    x[3] = -10.0
    event = trip(gradient, x, 0.5)
    assert (event.kind, steps(event)) == ("nan", [3])
    # sqrt(0) is good, its derivative is not: the backward loop trips, at its own step
    event = trip(gradient, np.array([1.0, 1.0, 1.0, 0.0, 1.0]), 0.0)
    assert event.kind in ("inf", "nan")
    assert steps(event) == [1]  # the second from the end


@pytest.mark.not_on(jax="JAX cannot trace an operation in Python")
def test_a_loop_given_as_compiled_python():
    """An inner graph without C code."""
    x = pt.dvector("x")
    counted = CountedIdentity()
    result, _ = scan(lambda v, s: counted(s + pt.log(v)), sequences=[x], outputs_info=[ZERO])
    fn = pytensor.function([x], result, mode=LOOPS_STAY)
    fn(np.ones(4))
    assert counted.runs == 4
    assert steps(trip(fn, np.array([1.0, 0.0, 1.0, 1.0]))) == [1]


@pytest.mark.parametrize("monitor", [MonitorMode, theanoguard.monitor.MonitorMode])
def test_a_loop_with_a_mode_of_its_own(monitor, c_backend):
    """What the mode calls is called; the second run looks into the loop, which is not guarded."""
    seen = []
    x = pt.dvector("x")
    result, _ = scan(
        lambda v, s: s + pt.log(v),
        sequences=[x],
        outputs_info=[ZERO],
        mode=monitor(post_func=lambda *what: seen.append(what)),
    )
    fn = pytensor.function([x], result, mode=LOOPS_STAY)
    fn(np.ones(4))
    assert len(seen) >= 4
    event = trip(fn, np.array([1.0, 0.0, 1.0, 1.0]))
    assert (event.kind, event.n_neginf, steps(event)) == ("inf", 1, [1])


def test_the_profile_of_a_loop(c_backend):
    x = pt.dvector("x")
    profile = ScanProfileStats(name="a loop")
    result, _ = scan(
        lambda v, s: s + pt.log(v), sequences=[x], outputs_info=[ZERO], profile=profile
    )
    fn = pytensor.function([x], result, mode=LOOPS_STAY)
    fn(np.ones(4))
    assert (profile.callcount, profile.nbsteps) == (1, 4)


def test_an_unguarded_function_is_not_guarded_by_a_guarded_one():
    """Ops are shared between graphs; their inner functions must not be."""
    x = pt.dvector("x")
    result, _ = scan(lambda v, s: s + pt.log(v), sequences=[x], outputs_info=[ZERO])
    plain_before = pytensor.function([x], result, mode="CVM")
    fn = pytensor.function([x], result, mode=LOOPS_STAY)
    plain_after = pytensor.function([x], result, mode="CVM")
    bad = np.array([1.0, 0.0])
    assert steps(trip(fn, bad)) == [1]
    assert plain_before(bad)[1] == plain_after(bad)[1] == -np.inf


# ---------------------------------------------------------------- OpFromGraph


@pytest.fixture(scope="module")
def boxed():
    a, b = pt.dvector("a"), pt.dvector("b")
    return OpFromGraph([a, b], [pt.log(a) + b, pt.exp(b) * a], name="box")


def test_inside_an_op_from_graph(boxed):
    x, y = pt.dvector("x"), pt.dvector("y")
    first, second = boxed(x, y)
    fn = guarded([x, y], [first * 2.0, second])
    fn(np.ones(3), np.ones(3))
    event = trip(fn, np.array([1.0, 0.0, 1.0]), np.ones(3))
    assert (event.kind, event.first_index, event.role) == ("inf", (1,), "node")
    assert len(event.path) == 1
    assert (event.path[0].step, "box" in event.path[0].op) == (None, True)
    assert trip(fn, np.ones(3), np.array([1.0, 1.0, 50.0])).kind == "big"


def test_an_op_from_graph_in_another_and_in_a_loop(boxed):
    x = pt.dvector("x")
    v = pt.dvector("v")
    outer = OpFromGraph([v], [boxed(v, v * 0.5)[0] * 3.0], name="outer")
    fn = guarded([x], outer(x))
    fn(np.ones(2))
    assert [step.step for step in trip(fn, np.zeros(2)).path] == [None, None]
    m = pt.dmatrix("m")
    result, _ = scan(lambda row: boxed(row, row)[0], sequences=[m])
    looped = pytensor.function([m], result, mode=LOOPS_STAY)
    looped(np.ones((3, 2)))
    bad = np.ones((3, 2))
    bad[2, 1] = 0.0
    assert steps(trip(looped, bad)) == [2, None]


def test_one_op_at_two_places(boxed):
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = guarded([x, y], [boxed(x, y)[0], boxed(pt.exp(y), x)[0]], action="record")
    fn(np.zeros(2), np.ones(2))
    fn(np.ones(2), np.zeros(2))
    assert [(e.kind, e.call, len(e.path)) for e in events_of(fn)] == [("inf", 1, 1)]


# ---------------------------------------------------------------- IfElse


@pytest.fixture(scope="module")
def branches():
    c, x, y = pt.dscalar("c"), pt.dvector("x"), pt.dvector("y")
    left, right = CountedIdentity(), CountedIdentity()
    result = ifelse(c > 0, left(pt.log(x)), right(pt.sqrt(y)))
    return guarded([c, x, y], result * 0.5), left, right


@pytest.mark.not_on(jax="JAX does not run the operation that counts")
def test_only_the_branch_that_ran(branches):
    fn, left, right = branches
    good, bad = np.ones(3), -np.ones(3)
    runs = left.runs, right.runs
    both_run = computes_both_branches()
    fn(1.0, good, bad)
    fn(-1.0, bad, good)
    assert both_run or (left.runs, right.runs) == (runs[0] + 1, runs[1] + 1)
    event = trip(fn, 1.0, bad, good)
    assert (event.kind, event.op) == ("nan", "Log")
    event = trip(fn, -1.0, good, bad)
    assert (event.kind, event.op) == ("nan", "Sqrt")
    assert both_run or (left.runs, right.runs) == (runs[0] + 1, runs[1] + 1)
    fn(1.0, good, bad)


def test_a_branch_taken_in_turn():
    """What is known of a branch that ran in an earlier call is not used in this one."""
    c, x = pt.dscalar("c"), pt.dvector("x")
    y = ifelse(c > 0, pt.exp(x), pt.exp(-x))
    fn = guarded([c, x], (y * 1e3 + y**2).sum(), big_threshold=1e6)
    small, large = np.full(100, -1.0), np.full(100, 6.5)
    for _ in range(2):
        fn(1.0, small)
        fn(-1.0, large)
        assert trip(fn, 1.0, large).kind == "big"
        assert trip(fn, -1.0, -large).kind == "big"


def test_several_values_of_a_branch():
    c, x = pt.dscalar("c"), pt.dvector("x")
    a, b = ifelse(c > 0, [pt.log(x), x], [x, pt.log(x)])
    fn = guarded([c, x], [a + 1, b + 1])
    fn(1.0, np.ones(2))
    for condition in (1.0, -1.0):
        assert trip(fn, condition, np.zeros(2)).kind == "inf"


# ---------------------------------------------------------------- fused nodes


@pytest.mark.not_on(jax=UNFUSED)
def test_a_fused_composite():
    x = pt.dvector("x")
    fn = pytensor.function(
        [x], pt.exp(pt.log(x - 1.0) * 2.0), mode=GuardMode(**ALL, optimizer="fast_run")
    )
    assert [type(n.op.scalar_op) for n in fn.maker.fgraph.apply_nodes] == [ps.Composite]
    assert np.allclose(fn([2.0, 3.0]), [1.0, 4.0])
    event = trip(fn, [2.0, 0.5])
    assert (event.kind, event.first_index) == ("nan", (1,))
    assert "Composite" in event.op
    fn([2.0, 1.0])  # -inf in between, 0 in the end: the value that is seen is good


# ---------------------------------------------------------------- what enters


@pytest.fixture(scope="module")
def entering():
    x = pt.dvector("x")
    w = shared(np.ones(3), name="w")
    return guarded([x], x * w + np.arange(3.0)), w


@pytest.mark.parametrize("value", [np.nan, np.inf, -2e10])
def test_inputs_and_shared_variables_are_reported_as_such(entering, value):
    fn, w = entering
    bad = np.array([0.0, value, 0.0])
    fn(np.ones(3))
    event = trip(fn, bad)
    assert (event.role, event.variable, event.node, event.op) == ("input", "x", None, None)
    assert event.first_index == (1,)
    w.set_value(bad)
    try:
        event = trip(fn, np.ones(3))
        assert (event.role, event.variable, event.first_index) == ("shared", "w", (1,))
    finally:
        w.set_value(np.ones(3))
    fn(np.ones(3))


def test_constants_are_reported_as_such():
    x = pt.dvector("x")
    table = pt.constant(np.array([1.0, np.inf, 2.0]), name="table")
    fn = guarded([x], x * table)
    assert np.isinf(fn(np.ones(3))[1])  # on purpose
    anywhere = guarded([x], x * table, inf_is_error="any")
    event = trip(anywhere, np.ones(3))
    assert (event.role, event.variable, event.first_index) == ("constant", "table", (1,))
    recording = guarded([x], x + np.array([np.nan, 1.0]), action="record")
    recording(np.ones(2))
    assert [e.role for e in events_of(recording)] == ["constant"]


def test_a_bad_constant_in_a_branch_that_does_not_run():
    c, x = pt.dscalar("c"), pt.dvector("x")
    fn = guarded([c, x], ifelse(c > 0, x * 2.0, x + np.array([np.nan, 1.0])))
    assert trip(fn, -1.0, np.ones(2)).kind == "nan"


def test_a_bad_constant_inside_a_loop():
    x = pt.dvector("x")
    table = pt.constant(np.array([1.0, np.nan, 2.0]))
    result, _ = scan(
        lambda v, s: s + v * table[0] + table.sum(), sequences=[x], outputs_info=[ZERO]
    )
    fn = pytensor.function([x], result, mode=LOOPS_STAY)
    assert trip(fn, np.ones(2)).kind == "nan"


def test_constants_and_inputs_may_be_left_unchecked():
    x = pt.dvector("x")
    w = shared(np.array([np.nan, 1.0]))
    fn = guarded([x], x * w + np.array([np.nan, 0.0]), check_inputs=False)
    assert trip(fn, np.ones(2)).role == "node"


@pytest.mark.not_on(jax=UNFUSED)  # so that the product is a value of its own
def test_a_nan_that_only_a_fused_node_reads():
    x = pt.dvector("x")
    finite = guarded([x], pt.switch(pt.isnan(x), 0.0, x) * 2.0, check_inputs=False)
    assert list(finite([np.nan, 1.0])) == [0.0, 2.0]


def test_givens_are_checked():
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = guarded([y], x + 1.0, givens={x: pt.log(y)})
    fn(np.ones(2))
    assert trip(fn, np.zeros(2)).kind == "inf"


# ---------------------------------------------------------------- ops in Python


def test_ops_without_c_code():
    x = pt.dmatrix("x")
    fn = guarded([x], pt.linalg.inv(x) * 2.0)
    assert np.allclose(fn(np.eye(2) * 2), np.eye(2))
    assert trip(fn, np.array([[1.0, 2.0], [1.0, 2.0 + 1e-15]])).kind in ("big", "inf")


@pytest.mark.not_on(jax="JAX cannot trace an operation in Python")
def test_a_custom_op():
    x = pt.dvector("x")
    counted = CountedIdentity()
    fn = guarded([x], counted(x), check_inputs=False)
    assert list(fn([1.0])) == [1.0]
    event = trip(fn, [np.nan])
    assert (event.op, event.output) == (str(counted), 0)


# ---------------------------------------------------------------- what is left out


def test_the_tag_of_nan_guard_mode():
    x = pt.dvector("x")
    x.tag.nan_guard_mode_check = False
    result = CountedIdentity()(x)
    result.tag.nan_guard_mode_check = False
    fn = guarded([x], [result, x])
    assert np.isnan(fn([np.nan])[0]).all()
    x = pt.dvector("x")
    assert trip(guarded([x], x * 2.0), [np.nan]).role == "input"


def test_left_out_by_variable():
    x, y = pt.dvector("x"), pt.dvector("y")
    log_x, log_y = pt.log(x), pt.log(y)
    fn = guarded([x, y], [log_x, log_y], exempt=log_x)
    fn(np.zeros(2), np.ones(2))
    assert trip(fn, np.ones(2), np.zeros(2)).kind == "inf"
    both = guarded([x, y], [log_x, log_y], exempt=[log_x, log_y])
    both(np.zeros(2), np.zeros(2))
    # of one mode only
    assert trip(guarded([x, y], [log_x, log_y]), np.zeros(2), np.ones(2)).kind == "inf"


def test_left_out_by_variable_after_rewriting():
    """The variable may be computed by another op, fused and in place, in the end."""
    x, y = pt.dvector("x"), pt.dvector("y")
    log_x = pt.log(x + 1.0 + x - 1.0)
    log_y = pt.log(y + 1.0 + y - 1.0)
    log_y.name = "log of y"
    outputs = [log_x, log_y]
    for exempt in (log_x, [log_x], [log_x, "nothing"]):
        fn = guarded([x, y], outputs, exempt=exempt)
        fn(np.zeros(2), np.ones(2))
        assert trip(fn, np.ones(2), np.zeros(2)).kind == "inf"
    fn = guarded([x, y], outputs, exempt="log of *")
    fn(np.ones(2), np.zeros(2))
    assert trip(fn, np.zeros(2), np.ones(2)).kind == "inf"


def test_what_is_left_out_does_not_spread_to_what_it_is_replaced_by():
    x = pt.dvector("x")
    y = pt.log(x)
    same = y * 1.0
    fn = guarded([x], [y, same], exempt=same)
    fn(np.ones(2))
    assert trip(fn, np.zeros(2)).kind == "inf"


def test_left_out_by_name():
    x, y = pt.dvector("logits_in"), pt.dvector("y")
    log_y = pt.log(y)
    log_y.name = "log_of_y"
    fn = guarded([x, y], [pt.log(x), log_y], exempt=["log_*", "*_in"])
    fn(np.ones(2), np.zeros(2))
    event = trip(fn, np.array([np.inf, 0.0]), np.ones(2))
    assert event.role == "node"  # the input is left out, what is made of it is not


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("shfted", "did you mean 'shifted'?"),
        ("SHIFT", "no variable has such a name"),
        ("Log", "pass its class Log:\nfrom pytensor.scalar.basic import Log"),
        ("cumop", "pass its class CumOp:\nfrom pytensor.tensor.extra_ops import CumOp"),
        ("Scn", "pass its class Scan:\nfrom pytensor.scan.op import Scan"),
        ("in_loop", None),
        ("sh*", None),
        ("x", None),
    ],
)
def test_a_pattern_that_no_name_has_warns_once(pattern, advice):
    x = pt.dvector("x")
    shifted = x + 1.0
    shifted.name = "shifted"

    def step(value, last):
        inside = pt.log(value) + last
        inside.name = "in_loop"
        return inside

    states, _ = scan(step, sequences=[shifted], outputs_info=[ZERO])
    mode = GuardMode(exempt=pattern)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            pytensor.function([x], [pt.log(shifted), states, pt.cumsum(x)], mode=mode)
    told = [str(w.message) for w in caught if "exempt" in str(w.message)]
    assert [w.filename for w in caught if "exempt" in str(w.message)] == [__file__] * len(told)
    assert len(told) == (advice is not None)
    for text in told:
        assert text.startswith(f"GuardMode(exempt={pattern!r}) excludes nothing: no variable ")
        assert advice in text


def test_left_out_by_class():
    x, y = pt.dvector("x"), pt.dvector("y")
    outputs = [pt.log(x), CountedIdentity()(y), pt.sqrt(y)]
    by_op = guarded([x, y], outputs, exempt=CountedIdentity, check_inputs=False)
    assert trip(by_op, [1.0], [np.nan]).op == "Sqrt"
    assert trip(by_op, [0.0], [1.0]).op == "Log"
    by_scalar = guarded([x, y], outputs, exempt=[ps.Log, ps.Sqrt], check_inputs=False)
    by_scalar([0.0], [1.0])
    assert trip(by_scalar, [1.0], [np.nan]).op == str(outputs[1].owner.op)


@pytest.mark.not_on(jax=UNFUSED)
def test_left_out_by_scalar_class_inside_a_fused_node():
    x = pt.dvector("x")
    mode = GuardMode(**ALL, optimizer="fast_run", exempt=ps.Log)
    fn = pytensor.function([x], pt.log(x) * 2.0 + 1.0, mode=mode)
    assert len(fn.maker.fgraph.apply_nodes) == 1
    assert list(fn([0.0])) == [-np.inf]


def test_what_is_left_out_still_spoils_what_follows(c_backend):
    x = pt.dvector("x")
    y = CountedIdentity()(pt.log(x))
    for action in ("raise", "record"):
        fn = guarded([x], pt.dot(y, y), exempt=[y, ps.Log], action=action)
        fn(np.ones(2))
        if action == "raise":
            assert trip(fn, np.zeros(2)).op != str(y.owner.op)
        else:
            fn(np.zeros(2))
            assert len(events_of(fn)) == 1


@pytest.mark.parametrize("size", [100, 40])
def test_one_output_of_several_left_out(size, needs_cxx):
    """What the last call knew of an output that is not checked is not used in this one."""
    x, y, m = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
    a, b = pt.exp(x) + y, pt.exp(x) * y
    mode = GuardMode(**ALL, optimizer="fast_run", exempt=b)
    fn = pytensor.function([x, y, m], [a, b, pt.dot(m, b)], mode=mode)
    fn(np.full(100, 0.1), np.ones(100), np.ones((100, 100)))
    assert trip(fn, np.full(size, 14.0), np.ones(size), np.full((100, size), 1e4)).kind == "big"


@pytest.mark.parametrize(
    ("exempt", "tracked"),
    [
        ("log_*", False),
        ("log_*", True),
        ("tagged", False),
        ("tagged", True),
        (ps.Log, False),
    ],
    ids=str,
)
def test_left_out_inside_a_loop(exempt, tracked):
    x = pt.dvector("x")

    def step(v, s):
        log = pt.log(v + 0 * s)
        log.name = "log_in_loop"
        if exempt == "tagged":
            log.tag.nan_guard_mode_check = False
        return s * 0.5 + pt.maximum(log, 0.0)

    with track_provenance() if tracked else nullcontext():
        result, _ = scan(step, sequences=[x], outputs_info=[ZERO])
    mode = GuardMode(**ALL, optimizer="fast_run", exempt=exempt).excluding("fusion")
    fn = pytensor.function([x], result, mode=mode)
    assert list(fn(np.zeros(2))) == [0, 0]


def test_uninitialised_memory_is_not_looked_at():
    n = pt.lscalar("n")
    buffer = pt.basic.AllocEmpty("float64")(n)
    x = pt.dvector("x")
    fn = guarded([n, x], pt.set_subtensor(buffer[: x.shape[0]], pt.exp(x))[: x.shape[0]])
    trash = [np.full(100, np.nan) for _ in range(50)]
    del trash
    assert np.allclose(fn(100, np.zeros(3)), 1)
    assert trip(fn, 100, np.full(3, 30.0)).kind == "big"


def test_a_copy_of_uninitialised_memory_is_not_looked_at():
    """Two loops that write into one buffer: each gets a copy of it before anything is in it."""
    x = pt.dvector("x")
    buffer = pt.set_subtensor(pt.basic.AllocEmpty("float64")(pt.constant(100))[:3], pt.exp(x))
    fn = guarded([x], DeepCopyOp()(buffer)[:3] + buffer[:3], optimizer=None)
    trash = [np.full(100, np.nan) for _ in range(50)]
    del trash
    assert np.allclose(fn(np.zeros(3)), 2)
    assert trip(fn, np.full(3, 30.0)).kind == "big"


def test_a_sum_into_memory_that_was_uninitialised():
    x = pt.dvector("x")
    buffer = pt.basic.AllocEmpty("float64")(pt.constant(4))
    written = pt.set_subtensor(buffer[0:2], x)
    written = pt.set_subtensor(written[2:4], x)
    fn = guarded([x], pt.inc_subtensor(written[1:3], x))
    fn(np.ones(2))
    trip(fn, np.full(2, 9e9))


def test_the_graph_is_left_as_it_was():
    """Guarding changes no variable of the user's graph."""
    x = pt.dvector("x")
    y = pt.log(x)
    before = {v: v.owner for v in ancestors([y])}
    guarded([x], y)
    assert {v: v.owner for v in ancestors([y])} == before
    assert np.isneginf(pytensor.function([x], y, mode=Mode("py", None))(np.zeros(1))[0])
