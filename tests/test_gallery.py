"""Each faulty model of the gallery: the report names its true cause."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from explain_trips import guard_error

GALLERY = sorted((Path(__file__).parent / "gallery").glob("*.py"))


# Whose whole report is held by a file under ``golden``.
GOLDEN = {
    "bad_input",
    "log_of_shifted_softmax",
    "masked_gradient",
    "softmax_inf_by_inf",
    "zero_by_zero",
}


def load(path):
    """Return a file of the gallery as a module."""
    spec = importlib.util.spec_from_file_location(f"gallery_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for what is pickled by reference
    spec.loader.exec_module(module)
    return module


def marked_line(path):
    """Return the number of the line marked as the culprit, None where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.endswith("# culprit")), None)


def one_of(allowed, value):
    """Whether a value is the allowed one, or one of a set of them."""
    return value in allowed if isinstance(allowed, set) else value == allowed


@pytest.fixture(scope="module", params=GALLERY, ids=lambda path: path.stem)
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


def test_saved_reproduction_shows_the_same_fault(case, tmp_path, capsys):
    """Run here, as a fresh interpreter for each model would take minutes; see the next test."""
    path, truth, error = case
    script = error.save_repro(tmp_path / "bug.py")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script)
    assert ended.value.code == 1
    assert capsys.readouterr().out.startswith({"nan": "nan", "inf": ("inf", "-inf")}.get(
        truth["kind"], ""
    ))  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == {"bug.py", "bug.npz"}


def test_saved_reproductions_run_in_a_fresh_process_without_this_package(tmp_path):
    stems = ("log_of_shifted_softmax", "rnn_explodes", "cholesky_of_indefinite")
    for path in (p for p in GALLERY if p.stem in stems):
        module = load(path)
        error = guard_error(module.model, module.arguments(), module.TRUTH.get("watch", "all"))
        script = error.save_repro(tmp_path / f"{path.stem}.py")
        run = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
        assert run.returncode == 1, run.stderr
        assert "at element" in run.stdout
        assert "theanoguard" not in script.read_text(encoding="utf-8")


def test_report_as_it_was(case, golden):
    path, _, error = case
    if path.stem in GOLDEN:
        golden(f"report_{path.stem}", f"{error}\n")
