"""Witnesses: inputs at which the compiled function fails, and silence where there are none."""

import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.xtensor import xtensor

import theanoguard
from theanoguard import lint, track_provenance
from theanoguard.ops import assert_in_range

pytestmark = pytest.mark.on_30

X, Y = pt.dvector("x"), pt.dvector("y")
M = pt.dmatrix("m")
C = "CVM"
WRITTEN = "FAST_COMPILE"
AS_IT_IS = Mode("py", None)


def failing(graph, inputs, found, mode):
    """Whether the compiled function fails at the input of a witness."""
    function = pytensor.function(inputs, graph, mode=mode)
    result = function(*(found.witness.inputs[v.name] for v in inputs))
    return not np.isfinite(result).all()


FAULTS = {
    "log-of-softmax": (lambda: -pt.log(pt.special.softmax(M, axis=1)).mean(), [M], AS_IT_IS),
    "exp-overflow": (lambda: pt.exp(X) / (1 + pt.exp(X).sum()), [X], WRITTEN),
    "log-of-zero": (lambda: pt.log(pt.special.softmax(M, axis=1) - 0.5).mean(), [M], C),
    "division-by-zero": (lambda: X / (X - Y).sum(), [X, Y], C),
    "arc-out-of-range": (lambda: pt.arccos(X * Y).sum(), [X, Y], C),
    "power-at-zero": (lambda: X.sum() ** 0.5, [X], C),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_witness_makes_the_compiled_function_fail(rule):
    build, inputs, mode = FAULTS[rule]
    graph = build()
    found = [f for f in lint(graph, mode=mode, gradient=False) if f.rule == rule]
    assert len(found) == 1
    assert failing(graph, inputs, found[0], mode)


s, t = pt.dscalar("s"), pt.dscalar("t")
NARROW = {
    "0.372 to 0.449": pt.log((s**2 - 0.17) ** 2 - 1e-3),
    "35.121 to 35.150": pt.log((s**2 - 1234.5) ** 2 - 1),
    "a root": pt.sqrt((pt.exp(s) - 12345.0) ** 2 - 10),
    "a product": pt.log((s * t - 77.7) ** 2 - 1e-2),
    "a sum": pt.log((X.sum() - 33.3) ** 2 - 1e-3),
}


@pytest.mark.parametrize("where", NARROW)
def test_inputs_are_moved_to_where_an_operation_fails(where):
    graph = NARROW[where]
    inputs = [v for v in (s, t, X) if v in ancestors([graph])]
    bounds = {v: (0, 100) for v in inputs}
    [found] = lint(graph, mode=WRITTEN, bounds=bounds, gradient=False, seconds=60)
    assert failing(graph, inputs, found, WRITTEN)


DECISIONS = {
    "where the formula is -1000": pt.switch(pt.exp(-s) > 0, -s, pt.log(pt.zeros_like(s))),
    "where the formula is 0": pt.log(1 - pt.floor(1 - pt.exp(-s))),
}


@pytest.mark.parametrize("said", DECISIONS)
def test_the_exact_values_decide(said):
    """``exp(-1000)`` is 0 as a float, and above 0."""
    [found] = lint(DECISIONS[said], mode=WRITTEN, bounds={s: (1000, 1000)}, gradient=False)
    assert str(found.witness).endswith(said)
    exact = theanoguard.exact(DECISIONS[said], {s: 1000.0})
    assert exact.text(6) == found.witness.exact


@pytest.mark.parametrize("step", ["evaluate", "find_origin", "user_line"])
def test_a_fault_of_ours_is_not_taken_for_the_users(step, monkeypatch):
    def broken(*arguments, **settings):
        raise KeyError("planted")

    monkeypatch.setattr(f"theanoguard._lint.witness.{step}", broken)
    with pytest.raises(KeyError, match="planted"):
        lint(pt.log(X), mode=WRITTEN, gradient=False)


def test_what_the_mode_repairs_is_behind_all():
    loss = -pt.log(pt.special.softmax(M, axis=1)).mean()
    assert lint(loss, mode=C) == []
    [finding] = lint(loss, mode=C, all=True)
    assert finding.witness is None
    assert finding.remark == "repaired by this mode (rewrite local_logsoftmax)"


SOUND = {
    "guarded log": lambda: pt.log(X**2 + 1e-6).sum(),
    "softplus": lambda: pt.log1p(pt.exp(-pt.abs(X))).sum(),
    "shifted softmax": lambda: pt.exp(X - X.max()) / pt.exp(X - X.max()).sum(),
    "mask of -inf": lambda: pt.switch(X > 0, X, -np.inf).max(),
    "switch within the domain": lambda: pt.log(pt.switch(X > 0, X, 1)).sum(),
    "asserted": lambda: pt.log(assert_in_range(X, 1e-3, 10.0)).sum(),
    "norm": lambda: pt.sqrt((X**2).sum() + 1e-8),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_formula_has_no_finding(name):
    assert lint(SOUND[name](), mode=WRITTEN) == []


def test_gradient_is_searched():
    norm = pt.sqrt((X**2).sum())
    assert lint(norm, mode=WRITTEN, gradient=False) == []
    [finding] = lint(norm, mode=WRITTEN)
    assert finding.rule == "sqrt-at-zero"
    assert finding.witness.output == "the gradient for x"
    assert (finding.witness.inputs["x"] == 0).all()


def test_evidence_bounds_the_search():
    log = pt.log(X)
    assert lint(log, mode=WRITTEN)
    assert lint(log, mode=WRITTEN, bounds={X: (0.1, 2)}) == []
    assert lint(log, mode=WRITTEN, examples={X: np.array([0.5, 3.0])}) == []
    [finding] = lint(log, mode=WRITTEN, examples=[{X: np.array([0.5, 3.0])}, {X: np.array([-1.0])}])
    assert finding.witness.inputs["x"].min() <= 0
    with pytest.raises(ValueError, match="must be a pair"):
        lint(log, bounds={X: (1, 0)})


def test_eps_that_rewriting_removes():
    loss = pt.log((1 - pt.sigmoid(X)) + 1e-20).sum()
    [finding] = lint(loss, mode=WRITTEN, gradient=False)
    assert finding.witness.exact.startswith("-")
    assert finding.remark.startswith("made by rewriting")
    assert finding.source.text.strip() == "loss = pt.log((1 - pt.sigmoid(X)) + 1e-20).sum()"


def test_overflow_of_a_product():
    product = (X * Y).sum()
    assert lint(product, mode=WRITTEN) == []
    [finding] = lint(product, mode=WRITTEN, bounds={X: (0, 1e200), Y: (0, 1e200)})
    assert finding.rule == "overflow"
    assert finding.witness.kind == "overflow"


@pytest.mark.parametrize("join", [pt.concatenate, pt.stack])
def test_operation_of_more_operands_than_a_ufunc_takes(join):
    """PyTensor's Python mode does not run it: rewriting makes it of a product of many arrays."""
    p = pt.sigmoid(pt.clip(X, -30, 0))
    [found] = lint(pt.log(join([p] * 40).prod()), mode=C, gradient=False, bounds={X: (-30, 0)})
    assert failing(pt.log(join([p] * 40).prod()), [X], found, C)
    assert lint(pt.log(join([p] * 40)).sum(), mode=C, bounds={X: (-30, 0)}) == []


def test_shapes_are_found():
    w, b = pytensor.shared(np.ones((4, 2)), name="w"), pt.dvector("b")
    labels = pt.lvector("labels")
    p = pt.special.softmax(M @ w + b, axis=1)
    loss = -pt.log(p[pt.arange(labels.shape[0]), labels]).mean()
    [finding] = lint(loss, mode=WRITTEN)
    assert finding.witness.inputs["m"].shape[1] == 4
    assert finding.witness.inputs["b"].shape == (2,)


def test_a_graph_that_cannot_run():
    with pytest.raises(
        ValueError, match=r"lint\(\) cannot run the graph: .*\nIt tried the inputs x"
    ):
        lint(pt.log(X.reshape((7, 5))), mode=WRITTEN)


IN_LOOPS = {
    "a logarithm": lambda x_t: pt.log((x_t**2 - 0.17) ** 2 - 1e-3),
    "a root": lambda x_t: pt.sqrt((pt.exp(x_t) - 99) ** 2 - 1),
    "a quotient": lambda x_t: 1 / (x_t - 0.37),
    "an exponential": lambda x_t: pt.exp(77 * x_t),
    "a gradient": lambda x_t: abs(x_t - 0.37) ** 0.5,
}


def mapped(step, *sequences, nested=False):
    """Return the sum of what a loop over elements, or one over their rows, computes."""
    if nested:
        return mapped(lambda row: mapped(step, row), *[v[None] for v in sequences])
    return pytensor.scan(step, sequences=sequences, return_updates=False).sum()


@pytest.mark.parametrize("nested", [False, True], ids=["loop", "loop in a loop"])
@pytest.mark.parametrize("step", IN_LOOPS.values(), ids=IN_LOOPS)
def test_inputs_are_moved_to_where_a_step_fails(step, nested):
    graph = mapped(step, X, nested=nested)
    found = lint(graph, mode=WRITTEN, bounds={X: (0, 10)}, seconds=60)
    assert {finding.source.line for finding in found} == {step.__code__.co_firstlineno}
    results = [graph, pytensor.grad(graph, X)]
    function = pytensor.function([X], results, mode=WRITTEN)
    for finding in found:
        assert not all(np.isfinite(v).all() for v in function(finding.witness.inputs["x"]))


def test_shapes_are_found_inside_of_loops():
    """Of sequences, states and what does not change."""
    rng = np.random.default_rng(0)
    w_x, w_h, w_out = (
        pytensor.shared(rng.normal(size=shape)) for shape in [(5, 4), (4, 4), (4, 2)]
    )

    def step(x_t, h, w):
        return pt.tanh(x_t @ w_x + h @ w)

    h_0 = pt.dvector("h_0")
    states = pytensor.scan(
        step, sequences=[M], outputs_info=[h_0], non_sequences=[w_h], return_updates=False
    )
    [found] = lint(pt.log(1 - states[-1] @ w_out).sum(), mode=WRITTEN, gradient=False)
    assert found.witness.inputs["m"].shape[1] == 5
    assert found.witness.inputs["h_0"].shape == (4,)


def test_the_search_gives_no_warnings(recwarn):
    """NumPy's of a determinant, and of operations without code in C."""
    q = pt.dmatrix("q")
    lint(pt.log(pt.linalg.det(q)) + pt.linalg.inv(q).sum(), mode=WRITTEN, seconds=1)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_a_compiled_function():
    with track_provenance():
        function = pytensor.function([X], pt.log(X).sum(), mode=WRITTEN)
    [finding] = lint(function)
    assert finding.source.text.strip().startswith("function = pytensor.function([X], pt.log(X)")
    assert finding.rule == "log-of-zero"


def test_line_under_labelled_arrays():
    x = xtensor("x", dims=("a",))
    y = (x - x.max()).sum() / x.std()
    found = lint(y, mode=WRITTEN, gradient=False)
    assert {f.source.text.strip() for f in found} == {"y = (x - x.max()).sum() / x.std()"}


def root_of_a_subnormal():
    s = pt.fvector("s")
    return pt.sqrt(pt.exp(pt.clip(s, np.float32(-100), np.float32(30)))).sum()


def test_a_fault_of_flushed_subnormals_names_its_backends():
    assert lint(root_of_a_subnormal(), mode=AS_IT_IS) == []
    found = lint(root_of_a_subnormal(), mode=AS_IT_IS, all=True)
    [finding] = [f for f in found if f.remark.startswith("holds on JAX, where subnormal")]
    assert finding.source.function == "root_of_a_subnormal"
    assert finding.witness is None


def test_jax_confirms_it():
    pytest.importorskip("jax")
    [finding] = lint(root_of_a_subnormal(), mode="JAX")
    assert (finding.witness.mode, finding.witness.kind) == ("JAX", "arithmetic")


SCRIPT = """
import pytensor, pytensor.tensor as pt
x = pt.dvector("x")
f = pytensor.function([x], pt.tanh(x), mode="FAST_COMPILE")
g = pytensor.function([x], pt.log(x).sum(), mode="FAST_COMPILE")
"""


def test_witness_as_a_test(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "theanoguard", "lint", "--witness", "test_it.py", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "def test_log_of_zero_line_5():" in (tmp_path / "test_it.py").read_text()
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    fails = subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed" in fails.stdout, fails.stdout
    (tmp_path / "script.py").write_text(SCRIPT.replace("log(x)", "log(x**2 + 1)"))
    passes = subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed" in passes.stdout, passes.stdout


INSIDE = (X >= 0) & (X <= 1)
ON_PURPOSE = {
    "outside of the support": pt.switch(INSIDE, -pt.log1p(-0.5 * X), np.nan),
    "in the other branch": pt.switch(X > 1e9, np.nan, X + 1),
    "before a sum": 2 - pt.switch(INSIDE, X, np.nan).sum(),
    "an array": pt.switch(INSIDE, X, pt.full_like(X, np.nan)),
    "in nested cases": pt.switch(X < 0, np.nan, pt.switch(X > 1, np.nan, X)),
    "an element": pt.set_subtensor(X[0], np.nan) * 2,
    "another precision": pt.cast(
        pt.switch(INSIDE, X, pt.constant(np.nan, dtype="float32")), "float64"
    ),
}


@pytest.mark.parametrize("name", ON_PURPOSE)
@pytest.mark.parametrize("mode", [WRITTEN, C])
def test_a_nan_that_is_written_as_a_case_is_no_fault(name, mode):
    assert lint(ON_PURPOSE[name], mode=mode, seconds=1) == []


FAULTS_BESIDE = {
    "the other branch fails": pt.switch(X > 1, np.nan, pt.sqrt(X)),
    "computed from the NaN": X + pt.constant(np.nan),
    "the condition is NaN's": pt.switch(pt.log(X) > 0, X, pt.log(X)),
}


@pytest.mark.parametrize("name", FAULTS_BESIDE)
def test_a_fault_beside_a_written_nan_is_found(name):
    assert lint(FAULTS_BESIDE[name], mode=WRITTEN, gradient=False, seconds=1)
