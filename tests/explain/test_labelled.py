"""Reports on labelled arrays, which PyTensor replaces by tensors before it computes them."""

import io

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph

import theanoguard
from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_30

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
    norm: ("weights / length", ["weights", "length"], "weights[1, :] is 0 throughout (input)."),
    aligned: (
        "px.math.log(high - low)",
        ["high - low"],
        "low[1] = 3.0 is above high[0, 1] = 2.0, and must be below.",
    ),
    product: ("px.math.sqrt(score)", ["score"], "Find out why it is negative."),
    indexed: (
        "series.isel(time=slice(1, None)) / first",
        ["series.isel(time=slice(1, None))", "first"],
        "series[1, 0] is 0.0 (input).",
    ),
    joined: ("1.0 / both", ["1.0", "both"], "b[1] is 0.0 (input)."),
    broadcast: ("a**b", ["a", "b"], "a[1] is -2.0 (input)."),
    chosen: ("safe / scale", ["safe", "scale"], "scale[1] is 0.0 (input)."),
    cumulated: ("px.math.log(level)", ["level"], "Find out why it is negative."),
    softmax: ("logits / first", ["logits", "first"], "logits[0, 1] is 0.0 (input)."),
    without_labels: ("pt.log(y)", ["y"], "x[1, 0] is -3.0 (input)."),
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
def test_a_report_has_the_users_expression_its_names_and_the_origin(build):
    found = error_of(build).explanation
    cause = found.cause
    expression, names, origin = CASES[build]
    assert cause.source.file == __file__
    assert marked(cause.source) == expression
    assert [operand.name for operand in cause.operands if operand.value is not None] == names
    assert cause.hint.text.startswith(origin)
    assert found.meaning.kind == "none"


def test_a_change_of_labelled_arrays_is_said_in_words():
    # (the graph holds the tensors that they were lowered to: the line cannot be shown to be it)
    hint = error_of(norm).explanation.cause.hint
    assert (hint.change, hint.grade) == ((), "changes")
    assert '"px.math.maximum(length, 1e-12)"' in hint.text


def test_the_forward_operation_of_a_gradient_is_named():
    error = error_of(gradient)
    cause = error.explanation.cause
    assert marked(cause.source) == 'px.math.sqrt((w**2).sum("feature"))'
    assert 'where  (w**2).sum("feature") = 0.0' in str(error)


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
    assert "with 1e-10 added to the diagonal of cov this call gives finite values" in texts[0]
    assert "Rounding is not the reason, so jitter on the diagonal does not help." in texts[1]


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
    found = {f.rule: f for f in theanoguard.lint([growth, rate], seconds=0)}
    assert {rule: marked(f.source) for rule, f in found.items()} == {
        "exp-overflow": "px.math.exp(x)",
        "log-of-zero": "px.math.log(x)",
    }
    assert "px.math.logsumexp" in found["exp-overflow"].write
    assert not any("pt." in f.write or "theanoguard.stable" in f.write for f in found.values())
    assert theanoguard.lint(rate, bounds={x: (1, 2)}, seconds=0) == []
    assert rate.owner.inputs[0] is x


def test_a_labelled_array_can_be_exempt():
    x = px.xtensor("x", dims=("row",))
    rate = px.math.log(x)
    f = pytensor.function([x], rate, mode=GuardMode(exempt=[rate]))
    assert np.isnan(f(np.array([-1.0]))).all()
