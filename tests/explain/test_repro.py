"""Saved reproductions of faults in operations that overwrite an operand, and of whole functions.

The scripts run in one process that has PyTensor and cannot load theanoguard.
"""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard import GuardError, GuardMode

RUN = """
import contextlib, io, json, sys
sys.modules["theanoguard"] = None
said = {}
for path in sys.argv[1:]:
    text = io.StringIO()
    found = {"__name__": "__main__", "__file__": path}
    arguments, sys.argv = sys.argv, [path, "CVM"]
    try:
        with contextlib.redirect_stdout(text):
            exec(compile(open(path).read(), path, "exec"), found)
        status = 0
    except SystemExit as ended:
        status = ended.code
    sys.argv = arguments
    said[path] = status, text.getvalue()
print(json.dumps(said))
"""


def run_scripts(paths):
    """Return the exit status and the output of scripts, by path."""
    command = [sys.executable, "-W", "ignore", "-c", RUN, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {path: tuple(found) for path, found in json.loads(run.stdout).items()}


def step_by_gradient():
    """A weight vector is updated in place by a matrix product (Gemv)."""
    x, y = pt.dmatrix("x"), pt.dvector("y")
    w = pytensor.shared(np.zeros(3), name="w")
    loss = pt.sqr(x @ w - y).sum()
    updates = {w: w - 1e307 * pytensor.grad(loss, w)}
    return ([x, y], loss, updates), [np.arange(12.0).reshape(4, 3), np.ones(4)]


def outer_update():
    """A weight matrix is updated in place by an outer product."""
    a, b = pt.dvector("a"), pt.dvector("b")
    w = pytensor.shared(np.ones((2, 2)), name="w")
    updates = {w: w + 2.0 * pt.outer(a, b)}
    return ([a, b], w.sum(), updates), [np.array([1e200, 1.0]), np.array([1.0, 1e200])]


def fused_in_place():
    """A fused formula overwrites the running sum that it reads."""
    x, s = pt.dvector("x"), pt.dvector("s")
    h = pt.cumsum(x)
    return ([x, s], pt.cumsum(pt.exp(h * s) / (h - 1.0)), {}), [np.ones(3), np.ones(3)]


def indexed_update():
    """Rows of a table are updated in place."""
    i, v = pt.ivector("i"), pt.dvector("v")
    table = pytensor.shared(np.full(4, 1e308), name="table")
    updates = {table: pt.inc_subtensor(table[i], v)}
    return ([i, v], table.max(), updates), [np.array([1, 1], "int32"), np.full(2, 1e308)]


def loop():
    """The state of a loop overflows."""
    x = pt.dvector("x")
    states = pytensor.scan(
        lambda x, h: pt.exp(3.0 * h) - x,
        sequences=[x],
        outputs_info=[pt.constant(np.array(0.5))],
        return_updates=False,
    )
    return ([x], states[-1], {}), [np.zeros(10)]


class Gap(Op):
    """An operation of the user's own that is NaN above 1."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.where(inputs[0] > 1, np.nan, inputs[0])


def own_operation():
    """The fault is in an operation that no other machine has."""
    x = pt.dvector("x")
    return ([x], Gap()(x), {}), [np.array([0.0, 2.0])]


MODELS = [
    step_by_gradient,
    outer_update,
    fused_in_place,
    indexed_update,
    loop,
    own_operation,
]


def error_of(model):
    """Return the error of a model under a guard that does not look for big values."""
    (inputs, output, updates), values = model()
    mode = GuardMode(big_is_error=False, backend="c")
    fn = pytensor.function(inputs, output, updates=updates, mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(*values)
    return caught.value


def test_saved_operations_and_functions_show_the_fault(tmp_path):
    errors = {model.__name__: error_of(model) for model in MODELS}
    paths = {}
    for name, error in errors.items():
        paths[name] = error.save_repro(tmp_path / f"{name}.py")
        paths[name, "as built"] = error.save_repro(tmp_path / f"{name}_whole.py", as_built=True)
    for path in paths.values():
        assert "theanoguard" not in path.read_text(encoding="utf-8")
    said = run_scripts(paths.values())
    for name, error in errors.items():
        cause = error.explanation.cause
        element = f"at element {cause.index}; "
        status, text = said[str(paths[name])]
        assert status == 1 and text.startswith(f"{cause.value} {element}"), (name, text)
        status, text = said[str(paths[name, "as built"])]
        assert status == 1 and cause.kind in text, (name, text)


def test_function_as_built_stays_in_its_process(tmp_path):
    error = pickle.loads(pickle.dumps(error_of(fused_in_place)))
    assert error.save_repro(tmp_path / "operation.py").exists()
    with pytest.raises(ValueError, match="only in the process that raised the error"):
        error.save_repro(tmp_path / "function.py", as_built=True)
