"""Reports are in the user's coordinates: the operation, the element and the line of the code."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.in_python

MODE = GuardMode(True, True, False)


def transposed():
    v = pt.dvector("v")
    w = v.dimshuffle(0, "x")
    return [v], pt.log(w.T).T, [np.array([1.0, 2.0, -3.0])], {}


def exchanged_dimensions():
    x = pt.dmatrix("x")
    b = x.T / x.sum(axis=1)
    return [x], b.T.sum(), [np.array([[1.0, 2.0], [0.5, 0.5], [0.0, 0.0]])], {}


def factor_of_a_schedule():
    w, t = pytensor.shared(np.array([1.0, 2.0]), name="w"), pytensor.shared(5.0, name="t")
    rate = 0.1 / (t - 5)
    return [], w.sum(), [], {w: w - rate * 2 * w, t: t + 1}


def joined_with_a_product():
    y, s = pt.dvectors("y", "s")
    rho = 1 / pt.dot(y, s)
    return [y, s], rho * pt.outer(s, y), [np.zeros(2), np.array([1.0, 0.0])], {}


def moved_behind_a_sum():
    x, lam = pt.dvector("x"), pt.dscalar("lam")
    z = (x**lam - 1) / lam
    return [x, lam], z.sum(), [np.array([2.0, 3.0]), 0.0], {}


def logarithm_of_a_determinant():
    a = pt.dmatrix("a")
    return [a], pt.log(pt.linalg.det(a)), [np.array([[1.0, 2.0], [2.0, 1.0]])], {}


def squared_root():
    h = pt.dvector("h")
    return [h], (pt.sqrt(h - 1) ** 2).sum(), [np.array([2.0, 0.5])], {}


def weights_of_classes():
    x, counts = pt.dvector("x"), pt.constant(np.array([3.0, 0.0]))
    weight = 1 / counts
    return [x], (x * weight).sum(), [np.array([1.0, 2.0])], {}


def survival():
    b = pt.dvector("b")
    keep = 1 - b
    alive = pt.cumprod(keep)
    return [b], pt.log(b * alive).sum(), [np.array([0.1, 1.0, 0.3, 0.2])], {}


CASES = {
    transposed: ("log", "log(-3.0)", (0, 2), "v[2] is -3.0 (input)."),
    exchanged_dimensions: ("true_div", "0.0 / 0.0", (0, 2), "x[2, :] is 0 throughout"),
    factor_of_a_schedule: ("true_div", "0.1 / 0.0", (), "t is 5.0, and the updates"),
    joined_with_a_product: ("true_div", "1 / 0.0", (), ""),
    moved_behind_a_sum: ("true_div", "0.0 / 0.0", (0,), "0.69315 at element [0] and 1.0986 at [1]"),
    logarithm_of_a_determinant: ("log", "log(-2.9999999999999996)", (), "Find out why"),
    squared_root: ("sqrt", "sqrt(-0.5)", (1,), "Find out why it is negative."),
    weights_of_classes: ("true_div", "1 / 0.0", (1,), "counts[1] is 0.0 (constant)."),
    survival: ("log", "log(0.0)", (1,), "b[1] is 1.0 (input)."),
}
"""The operation, its values, the element, and a part of the advice."""


def explained(inputs, output, arguments, updates):
    fn = pytensor.function(inputs, output, updates=updates, mode=MODE)
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value.explanation


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_operation_values_element_and_origin_are_those_of_the_code(build):
    op, expression, index, advice = CASES[build]
    found = explained(*build())
    cause = found.cause
    assert (cause.op, cause.expression, cause.index) == (op, expression, index)
    assert advice in found.advice.text
    assert found.advice.grade == ""  # (no formula gives a value where there is none)
    assert "switch" not in found.advice.key


def test_a_value_that_is_computed_otherwise_is_noted():
    found = explained(*joined_with_a_product())
    assert found.notes == ("PyTensor joined 1 / 0.0 = inf with a product, and computes 0.0 / 0.0.",)


class Cube(Op):
    """x**3, whose gradient divides by x."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 3

    def L_op(self, inputs, outputs, gradients):
        return [gradients[0] * 3 * outputs[0] / inputs[0]]

    pullback = L_op


def test_the_gradient_of_an_own_operation_is_at_its_line():
    x = pt.dvector("x")
    slope = pytensor.grad(Cube()(x).sum(), x)
    found = explained([x], slope, [np.array([1.0, 0.0])], {})
    assert found.cause.source.function == "L_op"
    assert "outputs[0] / inputs[0]" in found.cause.source.text
    assert "check what L_op returns" in found.advice.text


def test_a_quotient_with_a_limit_has_that_in_its_advice():
    t = pt.dvector("t")
    found = explained([t], (pt.sin(np.pi * t) / (np.pi * t)).sum(), [np.array([0.5, 0.0])], {})
    assert "The quotient tends to 1.0 there." in found.advice.text


def path_of(report):
    """Return the lines of the path that a report shows."""
    _, _, rest = report.partition("From the inputs to there:\n")
    return rest.partition("\n\n")[0].splitlines()


CRITICAL = {
    "the first 0": (lambda v: 1 - pt.minimum(v, 1), 2.0, "0.0"),
    "the first negative number": (lambda v: v - 5, 2.0, "-3.0"),
    "a jump": (lambda v: v * 1e-30, 2.0, "2e-30"),
}
"""An operation at which a value turns critical, an input, and the value."""


@pytest.mark.parametrize("before", [0, 12])
@pytest.mark.parametrize("after", [0, 12])
@pytest.mark.parametrize("kind", CRITICAL)
def test_the_path_shows_where_a_value_turns_critical(kind, before, after):
    turn, value, shown = CRITICAL[kind]
    x = pt.dvector("x")
    h = x
    for _ in range(before):
        h = pt.cumsum(h)  # (of one element, which it does not change)
    turned = turn(h)
    h = turned
    for _ in range(after):
        h = pt.cumsum(h)
    fn = pytensor.function(
        [x], pt.sqrt(h - 1e-29 if kind == "a jump" else pt.log(h)).sum(), mode=MODE
    )
    with pytest.raises(GuardError) as caught:
        fn(np.array([value]))
    report = str(caught.value)
    assert any(f" = {shown} " in f"{line} " for line in path_of(report)), report
    assert len(report.splitlines()) <= 22


PRODUCTS = {
    "h @ w": lambda h, w: h @ w,
    "w @ h": lambda h, w: w @ h,
    "w.T @ h": lambda h, w: w.T @ h,
    "dot(h, w)": lambda h, w: pt.dot(h, w),
    "dot(w, h)": lambda h, w: pt.dot(w, h),
}


@pytest.mark.parametrize("step", PRODUCTS.values(), ids=PRODUCTS)
def test_the_state_of_a_loop_has_its_name(step):
    h, w = pt.dvector("h"), pt.dmatrix("w")
    states = pytensor.scan(
        step, outputs_info=[h], non_sequences=[w], n_steps=400, return_updates=False
    )
    fn = pytensor.function([h, w], states[-1], mode=MODE)
    with pytest.raises(GuardError) as caught:
        fn(np.ones(2), 10 * np.eye(2))
    [loop] = [point for point in caught.value.explanation.waypoints if point.kind == "loop"]
    assert loop.name == "h"


def test_the_steps_of_a_loop_agree_with_the_advice():
    x = pt.dvector("x")
    states = pytensor.scan(lambda s: s * s, outputs_info=[x], n_steps=12, return_updates=False)
    fn = pytensor.function([x], pt.log(states[-1]).sum(), mode=MODE)
    with pytest.raises(GuardError) as caught:
        fn(np.full(1, 0.1))
    report = str(caught.value)
    assert "underflowed to 0 in step 8 of the loop" in report
    assert "0 before 9" in report


def class_weights(c):
    x, y = pt.dvector("x"), pt.lvector("y")
    return (
        [x, y],
        (1 / c)[y] * pt.exp(x),
        [np.zeros(2), np.array([0, 1])],
        [np.zeros(2), np.zeros(2, int)],
    )


def weights_as_a_result(c):
    x = pt.dvector("x")
    return [x], [x.sum(), 1 / c], [np.zeros(2)], None


def log_of_a_prior(c):
    x = pt.dvector("x")
    return [x], x + pt.log(c), [np.zeros(2)], None


def only_in_a_mask(c):
    x = pt.dvector("x")
    return [x], pt.switch(x > 0, x, pt.log(c)), None, [np.ones(2)]


def lost_in_a_softmax(c):
    x = pt.dvector("x")
    return [x], pt.special.softmax(x + pt.log(c)), None, [np.ones(2)]


BUILDS = [class_weights, weights_as_a_result, log_of_a_prior, only_in_a_mask, lost_in_a_softmax]


@pytest.mark.parametrize(
    ("build", "backend"),
    [(build, "c") for build in BUILDS]
    + [pytest.param(build, "numba", marks=pytest.mark.slow) for build in BUILDS],
)
def test_an_inf_of_constants_is_reported_where_it_reaches_a_result(build, backend):
    inputs, output, bad, sound = build(pt.constant(np.array([2.0, 0.0]), name="c"))
    mode = GuardMode(True, True, False, backend=backend)
    fn = pytensor.function(inputs, output, mode=mode)
    if sound is not None:
        fn(*sound)
    if bad is None:
        return
    with pytest.raises(GuardError) as caught:
        fn(*bad)
    cause = caught.value.explanation.cause
    assert (cause.kind, cause.role, cause.index) == ("inf", "constant", (1,))
    assert "test_coordinates.py" in cause.source.file
    assert "from constants alone" in cause.hint.text


OVERFLOWING = {
    "two factors": lambda x: x * 1e200 * 1e200,
    "two divisors": lambda x: x / 1e-200 / 1e-200,
    "in float32": lambda x: x * pt.exp(100.0),
    "of a product": lambda x: x.dot(x) * pt.exp(100.0),
    "a logarithm": lambda x: x + pt.log(0.0),
    "beside a literal": lambda x: pt.switch(x < 1, x, -np.inf) * pt.exp(x) * pt.exp(100.0),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", OVERFLOWING)
def test_an_inf_that_a_rewrite_computes_is_reported(name, fused):
    x = pt.dvector("x")
    result = OVERFLOWING[name](x)
    fn = pytensor.function([x], result + pt.exp(x) if fused else result, mode=MODE)
    with pytest.raises(GuardError) as caught:
        fn(np.full(2, 1e-300))
    cause = caught.value.explanation.cause
    assert cause.kind == "inf"
    assert re.search(r"lambda x: |result \+ pt.exp", cause.source.text)


def test_an_inf_of_constants_that_is_not_chosen_is_no_error():
    x = pt.dvector("x")
    log0 = pt.log(0.0)
    chosen = [pt.switch(x > 0, x, log0), pt.maximum(x + 1, log0), pt.exp(pt.minimum(x, log0)) + x]
    fn = pytensor.function([x], chosen, mode=MODE)
    np.testing.assert_array_equal(fn(np.ones(2)), [np.ones(2), np.full(2, 2), np.ones(2)])


def test_an_infinite_literal_is_no_error():
    x = pt.dvector("x")
    bound = pt.constant(np.array([1.0, -np.inf]), name="bound")
    fn = pytensor.function([x], [x + bound, pt.cast(bound, "float64") * 2], mode=MODE)
    assert np.isinf(fn(np.zeros(2))[0][1])


SCRIPT = """import pytensor, pytensor.tensor as pt
from theanoguard import GuardMode
x = pt.dvector("x")
y = pt.log(0.5 * x)
f = pytensor.function([x], y, mode=GuardMode())
f([0.0])"""


@pytest.mark.parametrize(
    "argument, known", [(SCRIPT, True), (SCRIPT.replace("0.5", "0.6"), False), ("x = (", False)]
)
def test_the_text_of_a_command(argument, known, monkeypatch):
    """It is that of `python -c`; other code has the same file name, and another text."""
    monkeypatch.setattr("linecache.cache", {})
    monkeypatch.setattr("sys.orig_argv", ["python", "-c", argument])
    with pytest.raises(GuardError) as info:
        exec(compile(SCRIPT, "<string>", "exec", dont_inherit=True), {})
    assert "<string>:4" in str(info.value)
    assert ("y = pt.log(0.5 * x)" in str(info.value)) == known
