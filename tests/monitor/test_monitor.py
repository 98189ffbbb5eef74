"""MonitorMode: what is called, when, with what; and detect_nan."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

from theanoguard._provenance import track_provenance
from theanoguard._pytensor import IfElse
from theanoguard.monitor import DetectNan, MonitorMode, detect_nan
from theanoguard.monitor.mode import overwritten

pytestmark = pytest.mark.on_30


def op_names(calls):
    return [str(node.op) for node in calls]


def test_functions_are_called_around_each_node():
    seen = []

    def pre(fgraph, i, node, fn):
        assert isinstance(fgraph, FunctionGraph) and fgraph.toposort()[i] is node
        seen.append(("pre", node, [v[0].copy() for v in fn.inputs]))

    def post(fgraph, i, node, fn):
        seen.append(("post", node, [v[0].copy() for v in fn.outputs]))

    x, y = pt.dvectors("x", "y")
    mode = MonitorMode(pre, post).excluding("fusion", "inplace")
    f = pytensor.function([x, y], pt.exp(x) * y, mode=mode)
    result = f([0.0, 1.0], [2.0, 3.0])
    np.testing.assert_allclose(result, np.exp([0, 1]) * [2, 3])
    assert [when for when, *_ in seen] == ["pre", "post"] * 2
    (_, exp, (x_in,)), (_, _, (e_out,)), (_, mul, (e_in, y_in)), (_, _, (out,)) = seen
    assert op_names([exp, mul]) == ["Exp", "Mul"]
    np.testing.assert_array_equal(x_in, [0, 1])
    np.testing.assert_array_equal(e_out, e_in)
    np.testing.assert_array_equal(y_in, [2, 3])
    np.testing.assert_array_equal(out, result)


def test_c_code_is_kept(needs_cxx):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x), mode=MonitorMode(post_func=lambda i, node, fn: None))
    assert type(f.vm).__name__ == "CVM"


@pytest.mark.parametrize(
    ("function", "with_fgraph"),
    [
        (lambda i, node, fn: seen.append((i, node, fn)), False),
        (lambda fgraph, i, node, fn: seen.append((fgraph, i, node, fn)), True),
        (lambda *args: seen.append(args), True),
        (lambda i, node, fn, note="": seen.append((i, node, fn)), False),
        (lambda fgraph, i, node, fn=None: seen.append((fgraph, i, node, fn)), True),
    ],
)
def test_both_forms_of_arguments(function, with_fgraph):
    seen.clear()
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x), mode=MonitorMode(function))
    f([0.0])
    ((*fgraph, i, node, fn),) = seen
    assert fgraph == ([f.maker.fgraph] if with_fgraph else [])
    assert i == 0 and node is f.maker.fgraph.toposort()[0]
    assert len(fn.inputs) == len(fn.outputs) == 1


seen = []


def test_a_mode_is_one_line():
    assert repr(MonitorMode()) == "<MonitorMode>"
    mode = MonitorMode(pre_func=print, post_func=detect_nan, inner=True)
    assert str(mode) == "<MonitorMode pre_func=print, post_func=DetectNan, inner=True>"


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="cannot call"):
        MonitorMode(lambda node: None)
    with pytest.raises(ValueError, match="own linker"):
        MonitorMode(linker="cvm")


def test_without_functions_nothing_is_wrapped(needs_cxx):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(x), mode=MonitorMode())
    assert all(hasattr(thunk, "cthunk") for thunk in f.vm.thunks)


def test_an_error_of_the_function_stops_the_call():
    def post(i, node, fn):
        raise KeyboardInterrupt if str(node.op) == "Exp" else RuntimeError("post says no")

    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x), mode=MonitorMode(post_func=post))
    with pytest.raises(RuntimeError, match="post says no"):
        f([1.0])
    g = pytensor.function([x], pt.exp(x), mode=MonitorMode(post_func=post))
    with pytest.raises(KeyboardInterrupt):
        g([1.0])


def test_an_error_of_the_node_is_the_nodes():
    x, y = pt.dvectors("x", "y")
    calls = []
    mode = MonitorMode(lambda i, n, fn: calls.append("pre"), lambda i, n, fn: calls.append("post"))
    f = pytensor.function([x, y], x + y, mode=mode)
    with pytest.raises(ValueError) as caught:
        f([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError) as plain:
        pytensor.function([x, y], x + y, mode="CVM")([1.0, 2.0, 3.0], [1.0, 2.0])
    assert str(caught.value) == str(plain.value)
    assert calls == ["pre"]
    np.testing.assert_array_equal(f([1.0], [2.0]), [3.0])


def test_updates_and_lazy_branches():
    ran = []
    w = pytensor.shared(np.array(1.0), "w")
    c, x = pt.bscalar("c"), pt.dvector("x")
    out = IfElse(n_outs=1)(c, pt.exp(x).sum() + w, pt.cos(x).prod())
    mode = MonitorMode(post_func=lambda i, node, fn: ran.append(str(node.op)))
    f = pytensor.function([c, x], out, updates={w: w + 1}, mode=mode.excluding("fusion"))
    assert f(1, [0.0, 0.0]) == 3.0
    assert f(1, [0.0, 0.0]) == 4.0
    assert w.get_value() == 3.0
    assert not any("Cos" in op for op in ran) and sum("if{" in op for op in ran) == 2
    ran.clear()
    assert f(0, [0.0, np.pi]) == -1.0
    assert any("Cos" in op for op in ran)


def test_rewrites_can_be_left_out():
    x = pt.dvector("x")
    out = pt.log(x) * x
    mode = MonitorMode(post_func=lambda i, node, fn: None)
    assert len(pytensor.function([x], out, mode=mode).maker.fgraph.apply_nodes) == 1
    unfused = mode.excluding("fusion")
    assert isinstance(unfused, MonitorMode)
    assert len(pytensor.function([x], out, mode=unfused).maker.fgraph.apply_nodes) == 2
    o = pt.outer(x, x)
    safe = mode.excluding("fusion", "inplace")
    f = pytensor.function([x], pt.log(o) * o, mode=safe)
    assert not any(n.op.destroy_map for n in f.maker.fgraph.apply_nodes)
    plain = MonitorMode(optimizer="None")
    assert len(pytensor.function([x], pt.log(x) * x, mode=plain).maker.fgraph.apply_nodes) == 2


def post_of_module(i, node, fn):
    pass


def test_copies_keep_the_functions():
    mode = MonitorMode(post_of_module, detect_nan, optimizer="fast_compile", inner=True)
    copies = [
        mode.clone(),
        mode.including("fusion"),
        mode.excluding("fusion"),
        pickle.loads(pickle.dumps(mode)),
    ]
    for copied in copies:
        assert copied.pre_func is post_of_module
        assert isinstance(copied.post_func, DetectNan)
        assert copied.inner


def test_functions_pickle(capsys):
    x = pt.dscalar("x")
    f = pytensor.function([x], pt.log(x), mode=MonitorMode(post_func=DetectNan()))
    again = pickle.loads(pickle.dumps(f))
    again(-1.0)
    assert "*** NaN detected ***" in capsys.readouterr().out


def test_detect_nan(capsys):
    x = pt.dscalar("x")
    f = pytensor.function([x], pt.log(x) * x, mode=MonitorMode(post_func=detect_nan))
    assert f(1.0) == 0.0
    assert capsys.readouterr().out == ""
    f(0.0)  # log(0) * 0
    out = capsys.readouterr().out
    assert out.startswith("*** NaN detected ***\n")
    assert "test_monitor.py" in out and "pt.log(x) * x" in out
    assert "Inputs : [array(0.)]" in out and "Outputs: [array(nan)]" in out
    # Quiet after the first report of a node.
    f(0.0)
    assert capsys.readouterr().out == ""


add_inplace = Elemwise(ps.add, {0: 0})


def storage(*values):
    """Storage as a thunk has it."""
    return [[value] for value in values]


def test_detect_nan_does_not_print_overwritten_memory_as_an_input(capsys):
    x, y = pt.dvectors("x", "y")
    node = add_inplace(x, y).owner
    value = np.array([1.0, np.nan])  # of x, where the sum has been written by now
    fn = SimpleNamespace(inputs=storage(value, np.array([3.0, 4.0])), outputs=storage(value))
    DetectNan()(0, node, fn)
    out = capsys.readouterr().out
    assert "Inputs : [(overwritten), array([3., 4.])]" in out
    assert "Outputs: [array([ 1., nan])]" in out
    assert 'excluding("inplace")' in out


def test_overwritten_memory_that_is_read_twice():
    x = pt.dvector("x")
    node = add_inplace(x, x[:1]).owner
    value = np.ones(2)
    assert overwritten(node, [value, value[:1]]) == {0, 1}
    assert overwritten(node, [value, np.ones(1)]) == {0}


def test_detect_nan_of_a_large_graph_is_short(capsys):
    x = pt.dmatrix("x")
    y = x
    for _ in range(40):
        y = pt.tanh(y @ y) + y
    node = pt.stack([y * n for n in range(60)]).owner
    bad = np.full((300, 300), np.nan)
    fn = SimpleNamespace(inputs=storage(*[bad] * len(node.inputs)), outputs=storage(bad))
    DetectNan()(0, node, fn)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "*** NaN detected ***"
    assert len(lines) <= 22 and max(map(len, lines)) < 800
    assert any("more lines; debugprint(f) prints the graph" in line for line in lines)
    assert any(line.startswith("Inputs : [") and line.endswith(" more]") for line in lines)


def test_detect_nan_tells_inf_apart_and_each_node_once(capsys):
    x = pt.dscalar("x")
    mode = MonitorMode(post_func=DetectNan()).excluding("fusion")
    f = pytensor.function([x], pt.log(x) * x, mode=mode)
    f(0.0)
    out = capsys.readouterr().out
    assert out.index("*** Inf detected ***") < out.index("*** NaN detected ***")
    assert "Log" in out

    mode = MonitorMode(post_func=DetectNan(inf=False, repeat=True)).excluding("fusion")
    g = pytensor.function([x], pt.log(x) * x, mode=mode)
    g(0.0)
    g(0.0)
    out = capsys.readouterr().out
    assert out.count("*** NaN detected ***") == 2 and "Inf" not in out


def test_detect_nan_in_theanos_form(capsys):
    detect = DetectNan()
    x = pt.dscalar("x")

    def post(i, node, fn):
        detect(i, node, fn)

    f = pytensor.function([x], pt.log(x), mode=MonitorMode(post_func=post))
    f(-1.0)
    assert "*** NaN detected ***" in capsys.readouterr().out


def test_detect_nan_passes_over_generators(capsys):
    rng = pytensor.shared(np.random.default_rng(0), "rng")
    next_rng, draw = pt.random.normal(rng=rng, size=(2,)).owner.outputs
    f = pytensor.function([], draw, updates={rng: next_rng}, mode=MonitorMode(None, DetectNan()))
    assert not np.array_equal(f(), f())
    assert capsys.readouterr().out == ""


def scan_body(x_t, acc):
    return pt.log(acc + x_t)


def scan_function(mode):
    x = pt.dvector("x")
    out = pytensor.scan(scan_body, sequences=x, outputs_info=pt.zeros(()), return_updates=False)
    return pytensor.function([x], out[-1], mode=mode)


def test_scan_bodies_are_visited_on_request():
    visited = []

    def post(i, node, fn, path):
        visited.append((str(node.op), path))

    expected = np.log(np.log(2.0) + 3.0)
    f = scan_function(MonitorMode(post_func=post))
    assert f([2.0, 3.0]) == pytest.approx(expected)
    assert visited and all(path == () for _, path in visited)

    visited.clear()
    g = scan_function(MonitorMode(post_func=post, inner=True))
    for _ in range(2):
        visited.clear()
        assert g([2.0, 3.0]) == pytest.approx(expected)
        steps = [path[0].step for op, path in visited if path and "og" in op]
        assert steps == [0, 1]
    assert all("scan" in str(path[0]).lower() for _, path in visited if path)
    # The unmonitored function is another one.
    visited.clear()
    h = scan_function("CVM")
    assert h([2.0, 3.0]) == pytest.approx(expected) and not visited


def test_detect_nan_in_a_scan_names_step_and_line(capsys):
    with track_provenance():
        f = scan_function(MonitorMode(post_func=DetectNan(), inner=True))
    f([2.0, -5.0])
    out = capsys.readouterr().out
    assert "step 1" in out
    assert "return pt.log(acc + x_t)" in out

    # PyTensor 3.3 forgets the lines of a body; the line of the scan is what is left.
    g = scan_function(MonitorMode(post_func=DetectNan(), inner=True))
    g([2.0, -5.0])
    out = capsys.readouterr().out
    assert "return pt.log(acc + x_t)" in out or "out = pytensor.scan(" in out


def test_nested_bodies():
    paths = []

    def post(i, node, fn, path):
        if str(node.op) == "Tanh" or "tanh" in str(node.op).lower():
            paths.append([step.step for step in path])

    m = pt.dmatrix("m")

    def inner(row):
        return pytensor.scan(lambda e: pt.tanh(e), sequences=row, return_updates=False).sum()

    out = pytensor.scan(inner, sequences=m, return_updates=False)
    mode = MonitorMode(post_func=post, inner=True)
    f = pytensor.function([m], out, mode=mode)
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(f(value), np.tanh(value).sum(axis=1))
    if len(paths) == 6:  # unless a rewrite has taken tanh out of the loops
        assert paths == [[i, j] for i in range(2) for j in range(3)]


def test_op_from_graph_is_visited():
    visited = []

    def post(i, node, fn, path):
        visited.append((str(node.op), len(path)))

    a = pt.dvector("a")
    op = OpFromGraph([a], [pt.exp(a)])
    x = pt.dvector("x")
    f = pytensor.function([x], op(x) + 1, mode=MonitorMode(post_func=post, inner=True))
    np.testing.assert_allclose(f([0.0]), [2.0])
    assert any("Exp" in name and depth == 1 for name, depth in visited)
