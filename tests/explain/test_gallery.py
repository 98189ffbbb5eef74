"""Each faulty model of the gallery: the report names its true cause."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytensor
import pytest
from explain_trips import guard_error
from models import GALLERY, load, marked_line

from theanoguard.explain import Explanation, render_text
from theanoguard.log.event_log import MAX_EXPLANATION

NOT_ON = {
    "custom_op": {"jax": "JAX cannot trace an operation in Python"},
    "variance_cancels": dict.fromkeys(
        ["numba", "jax"], "sums are in another order, and the variance comes out positive"
    ),
    "while_loop": {"jax": "PyTensor cannot convert a while loop to JAX"},
}

# Whose whole report is held by a file under ``golden``; of the others, the facts are.
GOLDEN = {
    "bad_input",
    "log_of_shifted_softmax",
    "masked_gradient",
    "rnn_explodes",
    "softmax_inf_by_inf",
    "zero_by_zero",
}


def one_of(allowed, value):
    """Whether a value is the allowed one, or one of a set of them."""
    return value in allowed if isinstance(allowed, set) else value == allowed


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, marks=pytest.mark.not_on(**NOT_ON.get(path.stem, {})), id=path.stem)
        for path in GALLERY
    ],
)
def case(request):
    """The path of a model, its truth, and the error that the guard raises."""
    module = load(request.param)
    error = guard_error(module.model, module.arguments(), module.TRUTH.get("watch", "all"))
    return request.param, module.TRUTH, error


def test_there_are_enough():
    assert len(GALLERY) >= 30


def test_operation(case):
    _, truth, error = case
    found = error.explanation
    assert found.cause.role == truth.get("role", "node")
    assert one_of(truth["op"], found.cause.op)
    assert found.cause.kind == truth["kind"]
    if "name" in truth:
        assert found.cause.name == truth["name"]
    if "deeper" in truth:
        assert found.deeper.op == truth["deeper"]
    if "step" in truth:
        assert found.cause.path[-1].step == truth["step"]
    assert found.reproduced


def test_user_line(case):
    path, _, error = case
    found = error.explanation
    line = marked_line(path)
    if line is None:
        assert not found.made_here
    else:
        assert Path(found.cause.source.file) == path
        assert found.cause.source.line == line


def test_element_and_operands(case):
    _, truth, error = case
    found = error.explanation
    if truth["element"] is not None:
        assert found.cause.index == truth["element"]
    expected = truth["operands"]
    values = [operand.value for operand in found.cause.operands]
    if isinstance(expected, set):
        assert set(map(float, values)) == expected
    elif expected is not None:
        assert len(values) == len(expected)
        for value, right in zip(values, expected, strict=True):
            if right is not None:
                np.testing.assert_allclose(float(value), right, rtol=1e-5)


def test_direction_and_hint(case):
    _, truth, error = case
    found = error.explanation
    assert found.cause.backward == truth["backward"]
    hint = found.cause.hint
    assert one_of(truth["hint"], hint and hint.key)


def test_report_is_short_and_starts_with_the_answer(case):
    path, _, error = case
    lines = str(error).splitlines()
    assert len(lines) <= 30
    line = marked_line(path)
    if line is not None:
        assert any(f"{path.name}:{line}" in text for text in lines[:4])


# Reads paths of scripts; runs each in a process of its own, forked from this one, which has loaded
# PyTensor and cannot load theanoguard.  That is as fresh as a new interpreter, and much faster.
RUN_SCRIPTS = """
import contextlib, io, json, os, sys
sys.modules["theanoguard"] = None  # (PyTensor's compile cache would import what its keys name)
import pytensor.tensor
from pytensor.graph.traversal import apply_ancestors

def run(path):
    said, found = io.StringIO(), {"__name__": "__main__", "__file__": path}
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(open(path).read(), path, "exec"), found)
        status = 0
    except SystemExit as ended:
        status = ended.code
    nodes = apply_ancestors([found["output"]])
    size = sum(type(node.op).__name__ != "DimShuffle" for node in nodes)
    return {"status": status, "said": said.getvalue(), "size": size}

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            print(json.dumps(run(line.strip())), flush=True)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        print("{}", flush=True)
"""


@pytest.fixture(scope="module")
def run_afresh(tmp_path_factory):
    """Run a script where nothing but PyTensor is loaded; return what is known of the run."""
    errors = tmp_path_factory.mktemp("runs") / "errors"
    with errors.open("w") as file:
        runner = subprocess.Popen(
            [sys.executable, "-c", RUN_SCRIPTS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            cwd=errors.parent,
        )

        def run(script):
            print(script, file=runner.stdin, flush=True)
            found = json.loads(runner.stdout.readline())
            assert found, errors.read_text()
            return found

        yield run
        runner.stdin.close()
        runner.wait()


def path_length(explanation):
    """The number of operations on the path that a report shows, the culprit included."""
    stops = sum(point.kind == "node" for point in explanation.waypoints)
    return stops + explanation.left_out + explanation.made_here


def test_saved_reproduction_shows_the_same_fault(case, tmp_path, run_afresh):
    path, truth, error = case
    script = error.save_repro(tmp_path / "bug.py")
    assert {p.name for p in tmp_path.iterdir()} == {"bug.py", "bug.npz"}
    assert "theanoguard" not in script.read_text(encoding="utf-8")
    found = run_afresh(script)
    assert found["status"] == 1
    cause = error.explanation.cause
    value, index, n_bad = re.match(r"(\S+) at element (\(.*?\)); (\d+) of", found["said"]).groups()
    assert ast.literal_eval(index) == cause.index
    assert 1 <= int(n_bad) <= cause.n_bad  # (the script counts those of this kind)
    np.testing.assert_allclose(float(value), cause.value, rtol=1e-5)
    assert found["size"] <= path_length(error.explanation)


def test_explanation_to_json_and_back(case):
    _, _, error = case
    text = json.dumps(error.explanation.to_plain(), allow_nan=False)
    again = Explanation.from_plain(json.loads(text))
    assert repr(again) == repr(replace(error.explanation, repro=None))
    assert render_text(again.event, again) == str(error)
    assert len(text) < MAX_EXPLANATION


@pytest.mark.on_30
@pytest.mark.parametrize(
    "stem",
    [
        "log_of_shifted_softmax",
        pytest.param("rnn_explodes", marks=pytest.mark.deep),
        pytest.param(
            "custom_op",
            marks=[
                pytest.mark.deep,
                pytest.mark.not_on(jax="JAX cannot trace an operation in Python"),
            ],
        ),
    ],
)
def test_saved_reproduction_runs_in_a_fresh_interpreter(stem, tmp_path):
    module = load(next(path for path in GALLERY if path.stem == stem))
    error = guard_error(module.model, module.arguments(), module.TRUTH.get("watch", "all"))
    script = error.save_repro(tmp_path / f"{stem}.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "at element" in run.stdout


def test_report_as_it_was(c_backend, case, golden):
    if pytensor.__version__.startswith("3.0"):
        pytest.skip("PyTensor 3.0 gives other paths")
    path, _, error = case
    if path.stem in GOLDEN:
        # (the callers are lines of the tests, which move; releases of PyTensor differ in the path)
        text = re.sub(r"\(\d+ more operations\)", "(more operations)", str(error))
        kept = [line for line in text.splitlines() if "  called from " not in line]
        golden(f"report_{path.stem}", "\n".join([*kept, ""]))
