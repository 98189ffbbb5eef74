"""Reports on labelled arrays, which PyTensor replaces by tensors before it computes them."""

import io

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph

import theanoguard
from theanoguard import GuardError, GuardMode

px = pytest.importorskip("pytensor.xtensor")

NORMAL, ZERO_ROW = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [0.0, 0.0]])


def norm():
    weights = px.xtensor("weights", dims=("unit", "feature"))
    length = px.math.sqrt((weights**2).sum("feature"))
    unit = weights / length
    return [weights], unit.sum("unit"), [ZERO_ROW]


def aligned():
    high = px.xtensor("high", dims=("day", "place"))
    low = px.xtensor("low", dims=("place",))
    spread = px.math.log(high - low)
    return [high, low], spread.mean("place"), [NORMAL, np.array([0.5, 3.0])]


def product():
    a = px.xtensor("a", dims=("row", "mid"))
    b = px.xtensor("b", dims=("mid", "col"))
    score = px.dot(a, b, dim="mid")
    root = px.math.sqrt(score)
    return [a, b], root, [np.array([[1.0, 2.0], [-3.0, 1.0]]), np.eye(2)]


def indexed():
    series = px.xtensor("series", dims=("series", "time"))
    first = series.isel(time=0)
    growth = series.isel(time=slice(1, None)) / first
    return [series], growth, [np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 2.0]])]


def joined():
    a, b = px.xtensor("a", dims=("row",)), px.xtensor("b", dims=("row",))
    both = px.concat([a, b], dim="row")
    inverse = 1.0 / both
    return [a, b], inverse.sum(), [np.array([1.0, 2.0]), np.array([3.0, 0.0])]


def broadcast():
    a, b = px.xtensor("a", dims=("row",)), px.xtensor("b", dims=("col",))
    table = a**b
    return [a, b], table.sum("col"), [np.array([1.0, -2.0]), np.array([1.0, 0.5])]


def chosen():
    x = px.xtensor("x", dims=("row", "col"))
    scale = px.xtensor("scale", dims=("col",))
    safe = px.math.where(x > 0, px.math.log(x), 0.0)
    z = safe / scale
    return [x, scale], z, [np.array([[1.0, 2.0], [-3.0, 1.0]]), np.array([1.0, 0.0])]


def cumulated():
    steps = px.xtensor("steps", dims=("walk", "time"))
    level = steps.cumsum("time")
    return [steps], px.math.log(level), [np.array([[1.0, 2.0], [1.0, -2.0]])]


def softmax():
    logits = px.xtensor("logits", dims=("case", "class"))
    first = logits.isel(case=0)
    share = px.math.softmax(logits / first, dim="class")
    return [logits], share, [np.array([[1.0, 0.0], [1.0, -800.0]])]


def gradient():
    w = px.xtensor("w", dims=("feature",))
    penalty = px.math.sqrt((w**2).sum("feature"))
    cost = rewrite_graph(penalty.values, include=("lower_xtensor",))
    return [w], pytensor.grad(cost, w), [np.zeros(2)]


def without_labels():
    x = px.xtensor("x", dims=("row", "col"))
    y = x.transpose("col", "row").values
    return [x], pt.log(y), [np.array([[1.0, 2.0], [-3.0, 2.0]])]


CASES = {
    norm: ("weights / length", ["weights", "length"], "weights / px.math.maximum(length, 1e-12)"),
    aligned: (
        "px.math.log(high - low)",
        ["high - low"],
        "px.math.log(px.math.maximum(high - low, 1e-12))",
    ),
    product: ("px.math.sqrt(score)", ["score"], "px.math.sqrt(px.math.maximum(score, 1e-12))"),
    indexed: (
        "series.isel(time=slice(1, None)) / first",
        ["series.isel(time=slice(1, None))", "first"],
        "/ px.math.maximum(first, 1e-9)",
    ),
    joined: ("1.0 / both", ["1.0", "both"], "1.0 / px.math.maximum(both, 1e-9)"),
    broadcast: ("a**b", ["a", "b"], "px.math.maximum(a, 1e-12)**b"),
    chosen: ("safe / scale", ["safe", "scale"], "safe / px.math.maximum(scale, 1e-9)"),
    cumulated: ("px.math.log(level)", ["level"], "px.math.log(px.math.maximum(level, 1e-12))"),
    softmax: ("logits / first", ["logits", "first"], "logits / px.math.maximum(first, 1e-6)"),
    without_labels: ("pt.log(y)", ["y"], "pt.log(pt.maximum(y, 1e-12))"),
}


def error_of(build, **settings):
    inputs, output, values = build()
    f = pytensor.function(inputs, output, mode=GuardMode(**settings))
    with pytest.raises(GuardError) as caught:
        f(*values)
    return caught.value


def marked(source):
    return source.text[slice(*source.marked)]


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_a_report_has_the_users_expression_its_names_and_a_change_that_helps(build):
    cause = error_of(build).explanation.cause
    expression, names, change = CASES[build]
    assert cause.source.file == __file__
    assert marked(cause.source) == expression
    assert [operand.name for operand in cause.operands if operand.value is not None] == names
    assert change in cause.hint.change[1]


def test_the_forward_operation_of_a_gradient_is_named():
    error = error_of(gradient)
    cause = error.explanation.cause
    assert marked(cause.source) == 'px.math.sqrt((w**2).sum("feature"))'
    assert 'where  (w**2).sum("feature") = 0.0' in str(error)
    assert 'px.math.sqrt(px.math.maximum((w**2).sum("feature"), 1e-12))' in cause.hint.change[1]


def test_on_numba():
    cause = error_of(norm, backend="numba").explanation.cause
    assert marked(cause.source) == "weights / length"
    assert [operand.name for operand in cause.operands] == ["weights", "length"]


def test_a_path_begins_with_the_labelled_input():
    first, *_ = error_of(norm).explanation.waypoints
    assert (first.name, first.index, first.kind) == ("weights", (1, 0), "input")


def covariance():
    cov = px.xtensor("cov", dims=("i", "j"), shape=(2, 2))
    return [cov], px.linalg.cholesky(cov, dims=("i", "j")), [np.ones((2, 2))]


def indefinite():
    inputs, output, _ = covariance()
    return inputs, output, [np.array([[1.0, 2.0], [2.0, 1.0]])]


def test_advice_on_a_matrix_uses_no_function_of_tensors():
    texts = [error_of(build).explanation.cause.hint.text for build in (covariance, indefinite)]
    assert "With 1e-10 added to the diagonal of cov this call gives finite values." in texts[0]
    assert "A jitter of up to 0.01 on its diagonal does not help." in texts[1]


def bounded():
    z = px.xtensor("z", dims=("row",))
    p = px.math.sigmoid(z)
    return [z], px.math.log(p) + 2 * px.math.log(1 - p) * (p / (1 - p)), [np.array([1.0, 800.0])]


def test_a_bound_on_a_shared_operand_uses_functions_of_labelled_arrays():
    change = error_of(bounded).explanation.cause.hint.change
    assert change[1] == "p = px.math.clip(px.math.sigmoid(z), 1e-6, 1 - 1e-6)"


def test_debugprint_shows_the_lines_of_labelled_operations():
    x = px.xtensor("x", dims=("row", "col"))
    total = px.math.exp(x).sum("col")
    share = x / total
    rate = px.math.log(share)
    f = pytensor.function([x], rate, mode=GuardMode())
    text = io.StringIO()
    theanoguard.debugprint(f, file=text, print_source=True)
    assert "TensorFromXTensor" in text.getvalue()
    for line in ('total = px.math.exp(x).sum("col")', "share = x / total", "px.math.log(share)"):
        assert line in text.getvalue()
    assert "f = pytensor.function" not in text.getvalue()


def test_lint_looks_at_labelled_arrays():
    x = px.xtensor("x", dims=("row",))
    growth = px.math.exp(x)
    rate = px.math.log(x)
    found = {f.rule: f for f in theanoguard.lint([growth, rate])}
    assert {rule: marked(f.source) for rule, f in found.items()} == {
        "exp-overflow": "px.math.exp(x)",
        "log-of-zero": "px.math.log(x)",
    }
    assert "px.math.logsumexp" in found["exp-overflow"].write
    assert not any("pt." in f.write or "theanoguard.stable" in f.write for f in found.values())
    assert theanoguard.lint(rate, bounds={x: (1, 2)}) == []
    assert rate.owner.inputs[0] is x


def test_a_labelled_array_can_be_exempt():
    x = px.xtensor("x", dims=("row",))
    rate = px.math.log(x)
    f = pytensor.function([x], rate, mode=GuardMode(exempt=[rate]))
    assert np.isnan(f(np.array([-1.0]))).all()
