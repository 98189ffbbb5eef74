"""The expression of the user's code that a variable is built by: its place, text and name."""

import json
import os
import pickle
import subprocess
import sys
import sysconfig
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend
from pytensor.graph import utils
from pytensor.graph.replace import clone_replace

from theanoguard import GuardMode, provenance
from theanoguard._provenance import SourceLine, source_place
from theanoguard._provenance.places import place_text, source_lines
from theanoguard._pytensor import recording
from theanoguard._pytensor.files import is_own_file
from theanoguard.explain import render_text

HERE = Path(__file__)


def line_of(text):
    """Return the number of the one line of this file that holds `text` and a mark."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if text in line and "# here" in line]
    return number


def caught(inputs, outputs, *values):
    """Return the explanation of the error of a call."""
    f = pytensor.function(inputs, outputs, mode=GuardMode(), on_unused_input="ignore")
    with pytest.raises(AssertionError) as error:
        f(*values)
    return error.value.explanation


def marked(source):
    """Return the part of a line that is marked."""
    start, end = source.marked
    return source.text[start:end]


def test_a_trace_is_equal_to_that_of_pytensor():
    def traces():
        recording.remove()
        try:
            plain = utils.simple_extract_stack(limit=8)
        finally:
            recording.install()
        return plain, utils.simple_extract_stack(limit=8)

    plain, recorded = traces()
    # (the two calls stand on lines of their own)
    assert [e[:1] + e[2:3] for e in plain] == [e[:1] + e[2:3] for e in recorded]
    assert plain[:-1] == recorded[:-1]
    assert type(plain) is list and type(recorded) is recording.Trace
    for other in (pickle.loads(pickle.dumps(recorded)), deepcopy(recorded)):
        assert other == recorded
    assert type(pickle.loads(pickle.dumps(recorded))[0]) is tuple


COUNT_HOOKS = """
import json, sys
import theanoguard
before = "pytensor" in sys.modules
import pytensor
from pytensor.graph import utils
from pytensor.graph.replace import clone_replace
installed = utils.simple_extract_stack.__module__ != utils.__name__
if installed:
    from theanoguard._pytensor import recording
    recording.remove()
print(json.dumps([before, installed, utils.simple_extract_stack.__module__ == utils.__name__]))
"""


@pytest.mark.parametrize(("setting", "installed"), [("", True), ("0", False)])
def test_hooks_come_with_pytensor_and_can_be_kept_out(setting, installed):
    environment = {**os.environ, "THEANOGUARD_HOOKS": setting}
    run = subprocess.run(
        [sys.executable, "-c", COUNT_HOOKS], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [False, installed, True]


def test_column_and_callers():
    def helper(p):
        return p - pt.log(p) * 2.0

    x = pt.dvector("x")
    y = helper(x)
    place = source_place(y.owner.inputs[1].owner.inputs[0])
    assert marked(place) == "pt.log(p)"
    assert place.text[place.column - 9 :].startswith("pt.log(p)")  # (8 columns are indented)
    assert place.callers[0].text == "y = helper(x)"
    shown = source_lines(place, link=lambda where, file: where)
    assert shown[2].index("^") == shown[1].index("pt.log")
    assert shown[2].count("^") == len("pt.log(p)")


@pytest.mark.parametrize("scheme", sysconfig.get_scheme_names())
def test_the_launcher_of_a_command_is_not_the_users(scheme):
    folder = Path(sysconfig.get_path("scripts", scheme))
    assert not is_own_file(str(folder / "pytest"))
    assert is_own_file(str(folder / "train.py"))


def test_a_long_line_is_cut_around_its_mark():
    text = "a = " + " + ".join(f"pt.log(x{i})" for i in range(30))
    start = text.index("pt.log(x25)")
    line = SourceLine("net.py", 3, "f", text, column=start + 5, marked=(start, start + 11))
    _, shown, carets = source_lines(line, width=60)
    assert len(shown) <= 62
    assert shown[carets.index("^") :].startswith("pt.log(x25)")


def names(*variables):
    """Return what a compiled graph calls the values of variables that it computes."""
    inputs = list(pytensor.graph.traversal.explicit_graph_inputs(variables))
    f = pytensor.function(inputs, list(variables), mode=GuardMode())
    known = provenance(f)
    return [known[v].name for v in f.maker.fgraph.outputs]


def test_names_come_from_the_assignment():
    class Layer:
        pass

    def softmax(z):
        e = pt.exp(z - z.max())
        return e / e.sum()

    layer = Layer()
    x = pt.dvector("x")
    p = softmax(x)
    layer.h = pt.tanh(x)
    u, v = pt.sin(x), pt.cos(x)
    total = x.sum()
    total += (w := pt.sqrt(x)).sum()
    kept = {}
    kept["z"] = pt.erf(x)
    assert names(p, layer.h, u, v, total, w, kept["z"]) == [
        "p", "layer.h", "u", "v", "total", "w", "kept['z']"
    ]  # fmt: skip


def test_inputs_without_a_name_have_that_of_the_assignment():
    u, v = pt.dvectors(2)
    ratio = pt.log(u / v)
    found = caught([u, v], ratio, np.ones(2), np.array([1.0, -1.0]))
    assert found.cause.operands[0].name == "u / v"
    assert found.waypoints[0].name in ("u", "v")


def test_an_operation_moved_to_another_line_keeps_its_own():
    s, t, x = pt.dscalar("s"), pt.dscalar("t"), pt.dvector("x")
    l1 = pt.log(s)
    l2 = pt.log(t)  # here
    z = l1 - 0.5 * l2 - x
    found = caught([s, t, x], z, 1.0, -1.0, np.ones(3))
    assert found.cause.source.line == line_of("l2 = pt.log(t)")
    assert found.cause.provenance.own_source


def test_operations_under_a_stated_shape_keep_their_names_and_lines():
    x = pt.dvector("x")
    rate = pt.exp(x)  # here
    shifted = rate - 2.0  # here
    z = pt.specify_shape(pt.log(shifted), 3) * 2
    found = caught([x], [z, rate.sum(), shifted.max()], np.zeros(3))
    assert [p.name for p in found.waypoints[1:3]] == ["rate", "shifted"]
    lines = [p.source.line for p in found.waypoints[1:3]]
    assert lines == [line_of("rate = pt.exp(x)"), line_of("shifted = rate - 2.0")]


def test_an_operation_fused_into_a_sum_keeps_its_line():
    x = pt.dvector("x")
    lp = pt.log(1 - x)  # here
    total = lp.sum()
    found = caught([x], total, np.array([0.5, 2.0]))
    assert found.cause.source.line == line_of("lp = pt.log(1 - x)")
    assert marked(found.cause.source) == "pt.log(1 - x)"


def test_a_vectorized_operation_keeps_its_line():
    def row(r):
        a = r - 1.0
        return pt.log(a) * 2  # here

    x = pt.dmatrix("x")
    out = pt.vectorize(row, signature="(k)->(k)")(x)
    found = caught([x], out.sum(), np.array([[2.0, 0.5]]))
    assert found.cause.source.line == line_of("return pt.log(a)")
    assert marked(found.cause.source) == "pt.log(a)"
    assert [o.name for o in found.cause.operands] == ["a"]


def test_an_operation_that_is_built_again_for_another_type_keeps_its_line():
    x, y = pt.dvector("x"), pt.tensor("y", shape=(3,))
    out = pt.log(x - 1.0)  # here
    again = clone_replace(out, {x: y}, rebuild_strict=False)
    assert again.type.shape == (3,)
    found = caught([y], again.sum(), np.array([2.0, 0.5, 3.0]))
    assert found.cause.source.line == line_of("out = pt.log(x - 1.0)")
    assert marked(found.cause.source) == "pt.log(x - 1.0)"


def test_the_line_inside_nested_loops():
    def outer(row):
        def inner(v, acc):
            r = 1.0 / v
            return acc + pt.log(r) ** 2  # here

        start = pt.as_tensor(np.float64(0))
        return pytensor.scan(inner, sequences=[row], outputs_info=[start], return_updates=False)[-1]

    x = pt.dmatrix("x")
    out = pytensor.scan(outer, sequences=[x], return_updates=False)
    found = caught([x], out.sum(), np.array([[1.0, 2.0], [3.0, -1.0]]))
    assert found.cause.source.line == line_of("return acc + pt.log(r)")


def test_the_pass_of_a_loop():
    x = pt.dvector("x")
    h = x
    for _ in range(4):
        h = pt.exp(h) * 2
    found = caught([x], h.sum(), np.ones(2))
    done, passes, _line = found.cause.source.loop
    assert (done, passes) == (4, 4)
    assert found.cause.operands[0].name == "h"


def test_operands_are_written_as_in_the_code():
    def step(y_t, m, spread):
        predicted = spread + q
        total = predicted + r
        gain = predicted / total
        return m + gain * (y_t - m), (1 - gain) * predicted

    y, q, r = pt.dvector("y"), pt.dscalar("q"), pt.dscalar("r")
    start = [np.float64(0.0), np.float64(1.0)]
    m, _ = pytensor.scan(step, sequences=[y], outputs_info=start, return_updates=False)
    found = caught([y, q, r], m[-1], np.ones(3), -1.0, 0.0)
    assert found.cause.name == "gain"
    assert [o.name for o in found.cause.operands] == ["predicted", "total"]
    assert place_text(found.cause.source).endswith("in step")


# ---------------------------------------------------------------- names and places in reports


def test_steps_of_a_fused_formula_in_a_fused_formula():
    x = pt.dvector("x")
    twice = pt.log(pt.log(x))
    cause = caught([x], twice.sum(), np.array([3.0, 0.5])).cause
    [operand] = cause.operands
    assert (operand.name, cause.name) == ("log(x)", "twice")


def test_an_operation_is_called_as_it_is_written():
    x = pt.dvector("x")
    p = pt.sigmoid(x) * 1.2
    cause = caught([x], pt.log(1 - p), np.array([0.0, 3.0])).cause
    assert cause.op == "log"
    assert [operand.name for operand in cause.operands] == ["1 - p"]
    assert cause.operands[0].value < 0


def test_elements_are_counted_in_the_users_dimensions():
    x = pt.dmatrix("x")
    total = x.sum()
    share = x / total
    explanation = caught([x], share, np.zeros((2, 2)))
    lines = str(explanation.cause.operands)
    assert explanation.cause.operands[1].index == (), lines
    assert "total = 0.0" in render_text(explanation.event, explanation)


def test_an_element_of_a_formula_is_in_parentheses():
    x, w = pt.dmatrix("x"), pt.dmatrix("w")
    ratio = x / (x @ w)
    explanation = caught([x, w], pt.cumsum(ratio, axis=0), np.zeros((2, 2)), np.ones((2, 2)))
    assert "(x @ w)[0, 0] = 0.0" in render_text(explanation.event, explanation)


def test_names_that_pytensor_gives_are_not_the_users():
    x = pt.dvector("x")
    loss = pt.log(x).mean()
    assert caught([x], loss, np.array([-1.0])).feeds == ("output loss",)


@pytest.mark.parametrize("depth", [1, 2])
def test_the_line_in_the_gradient_of_a_loop(depth):
    xs = pt.dtensor3("xs") if depth == 2 else pt.dmatrix("xs")
    w = pt.dvector("w")
    zero = pt.constant(0.0, dtype="float64")

    def step(x, state):
        return state * 0.5 + pt.sqrt(x @ w)  # here: the root

    def outer(x, state):
        inner = pytensor.scan(step, sequences=[x], outputs_info=[zero], return_updates=False)
        return state + inner[-1] ** 2

    body = step if depth == 1 else outer
    states = pytensor.scan(body, sequences=[xs], outputs_info=[zero], return_updates=False)
    values = np.ones((3, 4, 2)) if depth == 2 else np.ones((4, 2))
    values[(1,) * depth] = 0.0
    cause = caught([xs, w], pytensor.grad(states[-1], w), values, np.ones(2)).cause
    assert cause.source.line == line_of("the root")
    assert marked(cause.source) == "pt.sqrt(x @ w)"
    assert cause.provenance.backward.forward == "Sqrt"


def test_other_terms_of_a_sum_are_no_cause():
    x = pt.dvector("x")
    orders = [[0.5, -3.0, 0.0]]
    if backend() != "numba":  # PyTensor 3.0 fuses no sum there: the first bad element counts
        orders.append([0.5, 0.0, -3.0])
    for values in orders:
        explanation = caught([x], pt.log(x).sum(), np.array(values))
        assert explanation.cause.kind == "nan"
        assert explanation.deeper is None


def test_the_way_ends_at_a_decomposition():
    a = pt.dmatrix("a")
    w, _ = pt.linalg.eigh(a)
    points = caught([a], pt.log(w).sum(), -np.eye(2)).waypoints
    assert all(point.kind != "input" for point in points)
