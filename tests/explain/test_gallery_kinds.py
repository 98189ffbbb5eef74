"""Faulty models by kind: each report is right in operation, line, element, path and advice.

``-k NAME`` runs one model or one file of ``gallery/kinds``.
"""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytensor
import pytest
from explain_trips import guard_error
from models import KINDS, load, load_text, marked_line_of, with_change
from pytensor.compile.mode import Mode
from test_gallery import one_of
from told import told

import theanoguard
from theanoguard import GuardMode
from theanoguard.explain import Explanation, render_text

pytestmark = pytest.mark.in_python

MODELS = [(path, name) for path in KINDS for name in load(path).TRUTH]

OTHERWISE_ON = {
    "numba": {
        "half_precision": "Numba has no float16",
        "heavy_log_normal": "of the big values, the infinite one is reported first",
        "gumbel_of_a_bound": "the logarithm is fused with the maximum, which leaves its -inf out",
        "variance_by_moments": "Numba sums in another order, and the variance comes out positive",
    },
    "jax": {
        "sparse_graphs": "PyTensor has no sparse variables with JAX",
        "gradient_of_root_in_a_loop": "JAX does not know the shapes of this loop",
        "heavy_log_normal": "JAX draws other numbers",
        "gumbel_of_a_bound": "JAX draws other numbers",
        "gradient_of_equal_eigenvalues": "JAX's eigh is another one",
        "test_operation_element_and_operands:adam_from_step_zero": "JAX divides v_new first",
        "test_line:adam_from_step_zero": "JAX divides v_new first",
        "test_operation_element_and_operands:adam_for_two_parameters": "JAX divides v_new first",
        "test_line:adam_for_two_parameters": "JAX divides v_new first",
        "test_advice:adam_for_two_parameters": "JAX divides v_new first",
        "test_repaired_twin_runs:forward_probabilities": "JAX does not know this loop's length",
        "variance_by_moments": "XLA sums in another order, and the variance comes out positive",
    },
}
"""By backend, files, models or ``test:model`` that are left out, and why."""


def to_repair(found, truth):
    """The cause that a truth describes: the first operation that made a value that is not finite.

    Where a backend has fused ``0 * log(0)`` that is the logarithm behind the NaN that is reported,
    elsewhere the logarithm is reported itself.
    """
    deeper = found.deeper
    behind = deeper is not None and deeper.role == "node" and "deeper" not in truth
    return deeper if behind else found.cause


@cache
def error_of(path, name):
    """The error that the guard raises for a model."""
    module = load(path)
    truth = module.TRUTH[name]
    return guard_error(getattr(module, name), truth["arguments"], truth.get("watch", "all"))


@pytest.fixture(params=MODELS, ids=lambda model: f"{model[0].stem}-{model[1]}")
def case(request):
    """The path of a model, its name, its truth, and the error that the guard raises."""
    path, name = request.param
    backend = request.config.getoption("--backend")
    truth = load(path).TRUTH[name]
    left_out = OTHERWISE_ON.get(backend, {})
    for key in (path.stem, name, f"{request.function.__name__}:{name}"):
        if key in left_out:
            pytest.skip(left_out[key])
    return path, name, truth, error_of(path, name)


def test_there_are_enough():
    assert len(MODELS) >= 100


def test_operation_element_and_operands(case):
    _, _, truth, error = case
    cause = to_repair(error.explanation, truth)
    assert error.explanation.cause.kind == error.event.kind
    assert error.explanation.reproduced
    assert (cause.role, cause.kind) == (truth.get("role", "node"), truth["kind"])
    assert one_of(truth["op"], cause.op)
    assert cause.index == truth["element"]
    values = [operand.value for operand in cause.operands]
    assert len(values) == len(truth["operands"])
    for value, right in zip(values, truth["operands"], strict=True):
        if right is not None:
            np.testing.assert_allclose(float(value), right, rtol=1e-3)
    if "deeper" in truth:
        deeper = error.explanation.deeper
        assert one_of(truth["deeper"], deeper.op or deeper.role)


def test_line(case):
    path, name, truth, error = case
    source = to_repair(error.explanation, truth).source
    line = marked_line_of(path, name)
    if line is not None:
        assert Path(source.file) == path
    if line is not None and truth.get("line") != "of the loop":
        assert source.line == line


def test_start_of_the_path(case):
    _, _, truth, error = case
    points = error.explanation.waypoints
    assert (points[0].name if points else None) == truth["start"]


def test_advice(case):
    """The hint, the kind of the fault and the grade of the remedy are the right ones."""
    _, _, truth, error = case
    found = error.explanation
    hint = to_repair(found, truth).hint
    assert one_of(truth["hint"], hint and hint.key)
    assert (found.meaning.kind if found.meaning else None) == truth.get("fault")
    assert found.advice.grade == truth.get("grade", "")


def test_repaired_twin_runs(case):
    path, name, truth, _ = case
    watch = truth.get("watch", "all")
    inputs, outputs, updates = getattr(load(path), name)(repaired=True)
    mode = GuardMode(True, watch != "nan", watch == "all")
    fn = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    fn(*truth.get("repaired_arguments", truth["arguments"]))


MAX_LINES = 22

# Names of operations that only PyTensor has, as whole words.
INTERNAL = re.compile(
    r"\b(true_div|int_div|sqr|psi|sLogDet|getitem|[cC]omposite|Elemwise|DimShuffle|Blockwise"
    r"|ExpandDims|Subtensor|setSubtensor|inc_subtensor|alloc|gE|gT|lE|lT|makeVector)\b"
)


def test_report_is_short_and_has_no_words_of_pytensors(case):
    path, _, _, error = case
    lines = str(error).splitlines()
    assert len(lines) <= MAX_LINES
    # (a path of one step would repeat the operands)
    assert len(error.explanation.waypoints) < 2 or "From the inputs to there:" in lines
    code = load_text(path)
    for line in lines:
        if line.strip().lstrip("+-^ ") not in code:
            assert not INTERNAL.search(line), line
            # (on a path, it stands for operations that are left out)
            shown = line.removeprefix("  ... ")
            assert "..." not in shown or "called from" in line, line


def test_facts_as_they_were(c_backend, case, golden):
    if pytensor.__version__.startswith("3.0"):
        pytest.skip("PyTensor 3.0 gives other paths")
    path, name, _, error = case
    golden(f"kinds/{path.stem}_{name}", told(error.explanation))


def test_report_comes_back_from_json(case):
    _, _, _, error = case
    text = json.dumps(error.explanation.to_plain(), allow_nan=False)
    again = Explanation.from_plain(json.loads(text))
    assert render_text(again.event, again) == str(error)


def test_printed_lines_run(case):
    """They give finite values, and the exact values if they are the same function."""
    path, name, truth, error = case
    hint = error.explanation.advice
    if hint is None or not hint.change:
        pytest.skip("no line is printed")
    found = {"__name__": "printed"}
    exec(compile(with_change(path, name, hint.change), str(path), "exec"), found)
    inputs, outputs, updates = found[name]()
    values = pytensor.function(inputs, outputs, updates=updates, mode=Mode("py", "fast_run"))(
        *truth["arguments"]
    )
    original_inputs, originals, _ = getattr(load(path), name)()
    given = dict(zip(original_inputs, truth["arguments"], strict=True))
    for value, original in zip(values, originals, strict=True):
        assert np.isfinite(value).all()
        exact = theanoguard.exact(original, given)
        known = (exact.known == "number") & np.isfinite(exact.mid)
        if hint.grade == "same":
            rtol = 1e-4 if value.dtype == "float32" else 1e-9
            np.testing.assert_allclose(value[known], exact.mid[known], rtol=rtol, atol=1e-12)
