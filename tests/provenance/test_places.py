"""The expression of the user's code that a variable is built by: its place, text and name."""

import json
import os
import pickle
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import utils

from theanoguard import GuardMode, provenance
from theanoguard._provenance import SourceLine, source_place
from theanoguard._provenance.places import place_text, source_lines
from theanoguard._pytensor import recording

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
