"""The Stepper: a call of a function run node by node, forwards and back."""

from contextlib import nullcontext

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.ifelse import ifelse

import theanoguard
from theanoguard._pytensor import IfElse
from theanoguard.monitor import MonitorMode, Stepper, step_through
from theanoguard.monitor.operands import operands

pytestmark = pytest.mark.on_30

UNFUSED = get_mode("CVM").excluding("fusion")
TRACKED = MonitorMode()  # no functions: it only tracks provenance


@pytest.fixture(scope="module")
def chain():
    x = pt.dvector("x")
    y = pt.exp(x)
    y.name = "y"
    z = pt.log(y - 2)  # the line of the log
    return pytensor.function([x], z.sum(), mode=UNFUSED, name="chain")


def ops(nodes):
    return [str(node.op) for node in nodes]


def test_next_shows_what_each_node_reads_and_writes(chain):
    with step_through(chain, [1.0, 2.0]) as s:
        assert s.node is None and s.inputs == [] and s.outputs == []
        node = s.next()
        assert str(node.op).startswith("Exp") and s.node is node
        np.testing.assert_array_equal(s.inputs[0], [1, 2])
        np.testing.assert_allclose(s.outputs[0], np.exp([1, 2]))
        seen = {node}
        while (node := s.next()) is not None:
            seen.add(node)
    assert seen == set(chain.maker.fgraph.apply_nodes)
    assert s.done and s.result == pytest.approx(float(chain([1.0, 2.0])))


def test_iteration_runs_everything_in_a_valid_order(chain):
    done = set()
    with step_through(chain, [1.0, 2.0]) as s:
        for node in s:
            assert all(v.owner is None or v.owner in done for v in node.inputs)
            done.add(node)
    assert s.result == pytest.approx(float(chain([1.0, 2.0])))


def test_run_returns_what_the_function_returns():
    x = pt.dvector("x")
    two = pytensor.function([x], [x + 1, pt.exp(x)], mode="CVM")
    for expected, got in zip(two([1.0]), Stepper(two, ([1.0],)).run(), strict=True):
        np.testing.assert_array_equal(expected, got)
    one = pytensor.function([x], [x + 1], mode="CVM")
    assert isinstance(Stepper(one, ([1.0],)).run(), list)
    none = pytensor.function([x], None, mode="CVM", on_unused_input="ignore")
    assert Stepper(none, ([1.0],)).run() == none([1.0])


def test_arguments_are_the_functions(chain):
    np.testing.assert_allclose(Stepper(chain, (), {"x": [1.0]}).run(), chain([1.0]))
    with pytest.raises(ValueError):
        step_through(chain, "no vector")
    with pytest.raises(TypeError, match="Missing"):
        step_through(chain)
    with pytest.raises(TypeError, match="must be a compiled function"):
        step_through(np.exp, 1.0)
    # The function itself has not been touched.
    assert chain([1.0]) == pytest.approx(np.log(np.e - 2))


def test_until(chain):
    with step_through(chain, [1.0, 2.0]) as s:
        assert "Log" in str(s.until(op="log").op)
        assert s.until(op="log") is None
    with step_through(chain, [1.0, 2.0]) as s:
        assert str(s.until(op=pt.elemwise.CAReduce).op).startswith("Sum")
    with step_through(chain, [1.0, 0.0]) as s:
        node = s.until(bad=True)
        assert "Log" in str(node.op)
        assert np.isnan(s.outputs[0][1]) and np.isfinite(s.outputs[0][0])
    with (
        step_through(chain, [1.0, 2.0]) as s,
        pytest.raises(ValueError, match="until needs an argument"),
    ):
        s.until()
    with step_through(chain, [1.0, 2.0]) as s:
        assert str(s.until(name="x").op).startswith("Exp")


@pytest.mark.parametrize(
    "tracked, made", [(True, "log(p).sum()"), (False, "sum(log(2.0 * x - 0.5))")]
)
def test_a_fused_reduction_has_the_users_expression(tracked, made):
    x = pt.dvector("x")
    p = x * 2.0 - 0.5
    with theanoguard.track_provenance() if tracked else nullcontext():
        f = pytensor.function([x], -pt.log(p).sum(), mode="NUMBA")
    seen = []
    with step_through(f, [1.0, 0.4]) as s:
        while s.next() is not None:
            names = [operand.name for operand in operands(s.fgraph, s.step)]
            assert s.where().startswith(f"step {s.step.number}, {names[-1]}, ")
            assert str(s.node.op)[:12] in s.where()
            seen += names
    assert {"x", made, f"-{made}"} <= {name.replace("pt.", "") for name in seen}
    assert not any("Composite{" in name or name.endswith(".0") for name in seen)


def test_until_an_operation_line_or_name_that_rewriting_has_fused():
    x = pt.dvector("x")
    y = pt.exp(x)
    z = pt.log(y - 2)  # the fused line
    total = z.sum()
    total.name = "total"
    f = pytensor.function([x], total * 2, mode=TRACKED)
    line = test_until_an_operation_line_or_name_that_rewriting_has_fused.__code__
    line = line.co_firstlineno + 3
    assert len(f.maker.fgraph.apply_nodes) < 5
    for condition in (
        {"op": pt.log},
        {"op": "log"},
        {"line": line},
        {"line": f"test_stepper.py:{line}"},
        {"line": str(line)},
    ):
        with step_through(f, [1.0, 2.0]) as s:
            assert "Composite" in str(s.until(**condition).op)
    with step_through(f, [1.0]) as s:
        assert s.until(line=1) is None


def test_back_and_forth(chain):
    with step_through(chain, [1.0, 2.0]) as s:
        assert s.back() is None
        first, second = s.next(), s.next()
        outputs = s.outputs
        assert s.back() is first
        np.testing.assert_allclose(s.outputs[0], np.exp([1, 2]))
        assert s.back() is None and s.node is first
        assert s.next() is second and s.outputs is outputs
        assert s.next() not in (first, second)


def test_memory_bound():
    x = pt.dvector("x")
    y = x
    for _ in range(5):
        y = pt.tanh(y)
    f = pytensor.function([x], y, mode=UNFUSED.excluding("inplace"))
    value = np.ones(1000)
    s = Stepper(f, (value,), memory_bound=3 * value.nbytes)
    nodes = list(s)
    assert len(nodes) == 5
    kept = 0
    while s.back() is not None:
        kept += 1
    assert 1 <= kept < 4
    np.testing.assert_allclose(Stepper(f, (value,), memory_bound=0).run(), f(value))


def test_inplace_nodes_show_what_they_overwrite():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(pt.tanh(x)) + 1, mode=UNFUSED)
    assert any(node.op.destroy_map for node in f.maker.fgraph.apply_nodes)
    with step_through(f, [0.5, 1.0]) as s:
        for node in s:
            if node.op.destroy_map:
                assert not np.array_equal(s.inputs[0], s.outputs[0])
            if str(node.op).startswith("Exp"):
                np.testing.assert_allclose(s.inputs[0], np.tanh([0.5, 1.0]))
    np.testing.assert_allclose(s.result, np.exp(np.tanh([0.5, 1.0])) + 1)


def test_updates_are_made_when_the_run_is_completed():
    w = pytensor.shared(np.zeros(2), "w")
    x = pt.dvector("x")
    f = pytensor.function([x], w.sum(), updates={w: w + x}, mode="CVM")
    with step_through(f, [1.0, 2.0]) as s:
        for _ in s:
            if not s.done:
                np.testing.assert_array_equal(w.get_value(), [0, 0])
    assert s.result == 0.0
    np.testing.assert_array_equal(w.get_value(), [1, 2])

    with step_through(f, [1.0, 2.0]) as s:
        s.next()
        s.stop()
    assert s.result is None
    np.testing.assert_array_equal(w.get_value(), [1, 2])

    with pytest.raises(KeyError), step_through(f, [1.0, 2.0]) as s:
        s.next()
        raise KeyError
    np.testing.assert_array_equal(w.get_value(), [1, 2])
    # The same as a call, also afterwards.
    Stepper(f, ([1.0, 2.0],)).run()
    f([1.0, 2.0])
    np.testing.assert_array_equal(w.get_value(), [3, 6])


def test_random_state_moves_as_in_a_call():
    def function():
        rng = pytensor.shared(np.random.default_rng(3), "rng")
        next_rng, draw = pt.random.normal(rng=rng, size=(2,)).owner.outputs
        return pytensor.function([], draw, updates={rng: next_rng}, mode="CVM")

    f, g = function(), function()
    first, second = f(), f()
    np.testing.assert_array_equal(Stepper(g).run(), first)
    np.testing.assert_array_equal(g(), second)


def test_branches_not_taken_are_not_run():
    c, x = pt.bscalar("c"), pt.dvector("x")
    out = IfElse(n_outs=1)(c, pt.exp(x).sum(), pt.cos(x).prod())
    f = pytensor.function([c, x], out, mode=UNFUSED)
    with step_through(f, 1, [0.0]) as s:
        names = ops(s)
    assert s.result == 1.0
    assert any("Exp" in n for n in names) and not any("Cos" in n for n in names)
    assert names[-1].startswith("if{")


def test_scan():
    x = pt.dvector("x")
    out = pytensor.scan(
        lambda x_t, acc: acc * x_t, sequences=x, outputs_info=pt.ones(()), return_updates=False
    )
    f = pytensor.function([x], out[-1], mode="CVM")
    with step_through(f, [2.0, 3.0]) as s:
        assert s.until(op="scan") is not None
    assert s.result == f([2.0, 3.0]) == 6.0


def test_a_failing_node_stays_in_view():
    x, y = pt.dvectors("x", "y")
    f = pytensor.function([x, y], pt.exp(pt.exp(x) + y), mode=UNFUSED)
    with pytest.raises(ValueError), step_through(f, [1.0, 2.0, 3.0], [1.0, 2.0]) as s:
        s.run()
    assert s.done and s.result is None
    assert s.outputs == [] and any(np.shape(v) == (2,) for v in s.inputs)


def test_watch_value_and_where():
    x = pt.dvector("x")
    y = pt.exp(x)
    y.name = "the_y"
    f = pytensor.function([x], pt.log(y - 2).sum(), mode=TRACKED.excluding("fusion"), name="fun")
    with step_through(f, [1.0, 2.0]) as s:
        s.watch("the_y")
        s.watch(x)
        assert s.where().startswith("before the first")
        assert s.watched["the_y"] is None
        np.testing.assert_array_equal(s.watched["x"], [1, 2])
        s.next()
        np.testing.assert_allclose(s.watched["the_y"], np.exp([1, 2]))
        assert "step 1, the_y = exp(x), Exp" in s.where() and "of fun" in s.where()
        assert "test_stepper.py" in s.where() and "y = pt.exp(x)" in s.where()
        while s.next() is not None:
            pass
        np.testing.assert_allclose(s.value("the_y"), np.exp([1, 2]))
        with pytest.raises(KeyError, match="no variable 'nobody'"):
            s.value("nobody")
        s.back()
        assert s.value(f.maker.fgraph.outputs[0]) is None


def test_a_function_of_another_backend_is_run_through_c():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x).sum() + 1, mode="NUMBA")
    with step_through(f, [0.0, 0.0]) as s:
        assert s.next() is not None
    assert s.result == f([0.0, 0.0]) == 3.0
    g = pytensor.function([x], pt.exp(x).sum(), mode="FAST_COMPILE")
    assert Stepper(g, ([0.0],)).run() == 1.0


def test_a_guard_on_everything_does_not_guard_the_stepping():
    """An inner graph that a node compiles at its first call is not guarded either."""
    x = pt.dvector("x")
    inner = pt.dvector("inner")
    op = OpFromGraph([inner], [pt.log(inner)])
    f = pytensor.function([x], op(x).sum(), mode="FAST_COMPILE")
    with theanoguard.guarding():
        stepper = Stepper(f, ([1.0, -1.0],))
        assert np.isnan(stepper.run())
    assert stepper.bad_steps


@pytest.mark.parametrize("condition", [0, 1])
def test_the_order_is_known_before_the_run(condition):
    x, c = pt.dvector("x"), pt.iscalar("c")
    out = ifelse(c, pt.exp(x).sum(), pt.log(x).prod()) * 2 + pt.cumsum(x)
    stepper = Stepper(pytensor.function([x, c], out, mode="CVM"), ([1.0, 2.0], condition))
    order = stepper.order()
    ran = list(stepper)
    assert len(ran) == len(order) - 1  # (one branch is left out)
    assert ran == [node for node in order if node in ran]
