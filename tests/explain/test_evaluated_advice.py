"""What a report says of a number is true: it was evaluated before it was printed."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pasted import FORMULAS
from pytensor.tensor.special import softmax

from theanoguard import GuardError, GuardMode, stable

pytestmark = pytest.mark.in_python

INF = np.inf


def error_of(inputs, output, *calls, **kwargs):
    """The error of the last of some calls."""
    fn = pytensor.function(inputs, output, mode=GuardMode(), **kwargs)
    for call in calls[:-1]:
        fn(*call)
    with pytest.raises(GuardError) as caught:
        fn(*calls[-1])
    assert not caught.value.explanation.failed
    return caught.value


def told(error):
    return " ".join(str(error).split())


# By formula of x: where it fails, and the ends of the numbers for which it has a value.
DOMAINS = {
    "log(x)": (-2.0, 0, INF),
    "log(x + 5)": (-6.0, -5, INF),
    "log(1.5 - x)": (2.0, -INF, 1.5),
    "log(10 - 2 * x)": (7.0, -INF, 5),
    "sqrt(3 * x - 1.2)": (-1.0, 0.4, INF),
    "sqrt(1 - x**2)": (2.0, -1, 1),
    "sqrt(1 - (x / 3e8)**2)": (3.1e8, -3e8, 3e8),
    "log(x / (1 - x))": (1.5, 0, 1),
    "arctanh(2 * x)": (0.7, -0.5, 0.5),
    "arcsin(x - 3)": (5.0, 2, 4),
    "log1p(-x)": (2.0, -INF, 1),
    "log(exp(x) - 2)": (0.1, np.log(2), INF),
    "gammaln(4 - x)": (5.0, -INF, 4),
    "log(x**2 - 1)": (0.5, None, None),
    "sqrt(cos(x))": (2.0, None, None),
}


@pytest.mark.parametrize("formula", DOMAINS)
def test_the_values_of_a_link_lie_in_the_domain(formula):
    at, low, high = DOMAINS[formula]
    x = pt.dscalar("x")
    functions = {**vars(pt), "x": x}
    output = eval(formula, functions)
    error = error_of([x], output, [at])
    found = error.explanation.meaning.condition.range
    link = re.search(r"let it set a free number: x = (.*?)\. ", f"{told(error)} ")
    if low is None:
        assert found is None
        assert link is None
        return
    assert [found.low, found.high] == pytest.approx([low, high], rel=1e-9)
    free = pt.dvector("free")
    (name,) = re.findall(r"\b(?:log|logit|arctanh|free)_x\b", link[1])
    made = eval(link[1], {**vars(pt), name: free})
    values = made.eval({free: np.linspace(-12, 6, 101)})
    assert np.all((values >= low) & (values <= high))
    inside = values[(values > low) & (values < high)]
    fn = pytensor.function([x], output, mode="FAST_COMPILE")
    assert np.isfinite([fn(v) for v in inside]).all()
    assert len(inside) > 60


def test_an_end_that_another_input_moves_is_no_number():
    x, y = pt.dscalars("xy")
    error = error_of([x, y], pt.log(10 - 2 * x - y), [7.0, 1.0])
    assert error.explanation.meaning.condition is None or "free number" not in told(error)


def test_an_inequality_with_a_third_term_is_not_cut():
    x, y, z = pt.dvectors("xyz")
    angle = pt.arccos((x**2 + y**2 - z**2) / (2 * x * y))
    for calls in ([([1.0], [1.0], [3.0])], [([1.0], [1.0], [1.9]), ([1.0], [1.0], [3.0])]):
        calls = [[np.array(v) for v in call] for call in calls]
        text = told(error_of([x, y, z], angle, *calls))
        assert "must be below" not in text
        assert "/ (2 * x * y))[0] must lie between -1 and 1." in text
        assert "x[0] = 1.0" in text
        assert "z[0] = 3.0" in text


@pytest.mark.parametrize("good", [None, 5.0])
def test_a_difference_that_an_earlier_call_violates_is_not_told_to_be_positive(good):
    x, y = pt.dscalars("xy")
    output = pt.log(x - y + 2)
    calls = [[1.0, 2.5]] * (good is not None)
    text = told(error_of([x, y], output, *calls, [1.0, 5.0]))
    assert "must be below" not in text


def test_a_difference_that_decides_is_told():
    x, y = pt.dvectors("xy")
    text = told(error_of([x, y], pt.log(3 * (x - y)), [np.array([2.0, 1.0]), np.array([1.0, 3.0])]))
    assert "y[1] = 3.0 is above x[1] = 1.0, and must be below." in text


def test_a_product_of_vectors_is_a_number():
    x, w = pt.dvectors("x", "w")
    text = told(
        error_of([x, w], pt.log(x @ w + 0.1), [np.array([1.0, 4.0]), np.array([0.5, -0.25])])
    )
    assert "x @ w = -0.5 outweighs 0.1, and must not." in text


LIMITS = {
    "(1 - cos(x)) / x**2": "0.5",
    "sin(3 * x) / x": "3.0",
    "x / expm1(x)": "1.0",
    "(exp(x) - 1 - x) / x**2": "0.5",
    "tan(x)**2 / x**2": "1.0",
}


@pytest.mark.parametrize("formula", LIMITS)
def test_the_value_for_an_excluded_point_is_the_limit(formula):
    x = pt.dvector("x")
    output = eval(formula, {**vars(pt), "x": x})
    error = error_of([x], output, [np.array([1.0, 0.0])])
    text = told(error)
    hint = error.explanation.advice
    assert "maximum(" not in "".join(hint.change)
    if hint.grade != "same":
        assert f"The quotient tends to {LIMITS[formula]} there." in text
        assert f", {LIMITS[formula]}, " in text


# (all of these tend to a number as one variable moves alone)
@pytest.mark.parametrize(
    "formula", ["(a - b) / (a + b)", "a * b / (a**2 + b**2)", "(z[0] - z[1]) / (z[0] + z[1])"]
)
def test_a_quotient_that_tends_to_no_number_gets_no_limit(formula):
    a, b, z = pt.dscalar("a"), pt.dscalar("b"), pt.dvector("z")
    output = eval(formula, {"a": a, "b": b, "z": z})
    call = [0.0, 0.0, np.zeros(2)]
    text = told(error_of([a, b, z], output, call, on_unused_input="ignore"))
    assert "tends to" not in text
    assert "must not be 0" in text


def test_a_limit_that_depends_on_other_numbers_is_no_constant():
    a, b, t = pt.dscalars("abt")
    curve = (pt.exp(-a * t) - pt.exp(-b * t)) / (b - a)
    text = told(error_of([a, b, t], curve, [1.0, 1.0, 2.0]))
    assert "The quotient tends to 0.27067 as b tends to 1.0" in text
    assert "switch(eq(divisor, 0), limit," in text


def test_the_limit_of_the_whole_term_is_told():
    k, v, s = pt.dscalars("kvs")
    output = -pt.log(s) - (1 + 1 / k) * pt.log1p(k * v / s)
    text = told(error_of([k, v, s], output, [0.0, 1.0, 2.0]))
    assert "tends to 0.5: use its limit there." in text
    assert "switch(eq(k, 0), 0" not in text


def test_a_counter_that_wrapped_gets_no_logarithm():
    count = pytensor.shared(np.int8(127), name="count")
    x = pt.dscalar("x")
    updates = {count: count + np.int8(1)}
    text = told(error_of([x], x / pt.sqrt(count), [1.0], [1.0], updates=updates))
    assert "has passed the largest number of int8, 127, and wrapped around" in text
    assert "exp(" not in text


# What general advice proposes, by a formula and where it fails; None if it does not help there.
PROPOSED = {
    "1 / x": (0.0, "If it may be, decide"),
    "pt.log(1 / x) + 1 / x": (0.0, "If it may be, decide"),
    "x / x + pt.log(x)": (0.0, None),
    "x ** (1 / 3)": (-8.0, "If the odd root is meant, write sign(x) * abs(x)**exponent."),
    "x ** (1 / 3) + pt.log(x)": (-8.0, None),
    "x ** 0.4": (-8.0, None),
}


@pytest.mark.parametrize("formula", PROPOSED)
def test_a_formula_is_proposed_only_if_it_helps(formula):
    at, words = PROPOSED[formula]
    x = pt.dscalar("x")
    text = told(error_of([x], eval(formula, {"pt": pt, "x": x}), [at]))
    for proposed in ("decide", "odd root"):
        assert (proposed in text) == (words is not None and proposed in words)
    assert words is None or words in text


# What stands for the operands, where the program has other variables named x, n and p: the
# formula, n, and whether the gradient is asked for; x is [1, 1], and p is 0.5.
NAMED = {
    "exp(-n) / switch(eq(divisor, 0), 1, divisor)": (
        lambda x, n, p: pt.exp(-n) / (x.sum() - n),
        2.0,
        False,
    ),
    "(x.sum() + p) / switch(eq(divisor, 0), 1, divisor)": (
        lambda x, n, p: (x.sum() + p) / (n * p),
        0.0,
        False,
    ),
    "write sign(x - 3) * abs(x - 3)**(1 / 3).": (lambda x, n, p: (x - 3) ** (1 / 3), 1.0, False),
    "Where x - n is 0, switch(eq(x - n, 0), 0, switch(eq(x - n, 0), 1, x - n)**p)": (
        lambda x, n, p: (x - n) ** p,
        1.0,
        True,
    ),
}


@pytest.mark.parametrize("words", NAMED)
def test_a_proposal_is_about_the_operands_and_no_other_variable(words):
    formula, value, differentiated = NAMED[words]
    x, n, p = pt.dvector("x"), pt.dscalar("n"), pt.dscalar("p")
    output = formula(x, n, p)
    output = pt.grad(output.sum(), x) if differentiated else output
    call = [np.ones(2), value, 0.5]
    text = told(error_of([x, n, p], output, call, on_unused_input="ignore"))
    assert words in text
    assert "eq(x, 0)" not in text
    assert "eq(n, 0)" not in text


def test_a_logarithm_of_zero_times_zero_is_replaced_at_zero_alone():
    p, w = pt.dvectors("p", "w")
    error = error_of([p, w], w * pt.log(p), [np.array([0.0, 1.0]), np.array([0.0, 1.0])])
    removed, added = error.explanation.advice.change
    assert "pt.log(pt.switch(pt.eq(p, 0), 1, p))" in added
    assert "where p is 0, its logarithm counts as 0." in told(error)


def test_a_singular_system_with_a_vector_is_no_fault():
    a, b = pt.dmatrix("a"), pt.dvector("b")
    x = pt.linalg.solve(a, b, b_ndim=1)  # (error_of asserts that no part of the report failed)
    error = error_of([a, b], x, [np.ones((2, 2)), np.ones(2)])
    assert "The matrix is singular" in told(error)


def test_what_has_no_text_in_the_program_is_not_shown_as_compiled():
    h, x = pt.dvector("h"), pt.dscalar("x")
    text = str(error_of([h, x], pt.grad(h.std() * x, h), [np.ones(3), 2.0]))
    assert "The derivative of sqrt at 0.0" in text
    assert "where  " not in text


@pytest.mark.parametrize("formula", ["x - y", "x - x.mean()", "x - x**2"])
def test_only_a_deviation_is_called_a_spread(formula):
    x, y = pt.dvector("x"), pt.dvector("y")
    d = eval(formula, {"x": x, "y": y})
    distance = pt.sqrt((d**2).sum())
    call = [np.ones(3), np.ones(3)]
    text = told(error_of([x, y], pt.grad(distance, x), call, on_unused_input="ignore"))
    assert ("x is constant: 1.0. So its spread is 0." in text) == ("mean" in formula)


def test_an_input_without_a_name_is_shown_as_the_program_reads_it():
    inputs = {"a": pt.dvector(), "b": pt.dvector()}
    ratio = inputs["a"] / inputs["b"]
    text = str(error_of([*inputs.values()], pt.log(ratio), [np.zeros(2), np.ones(2)]))
    assert 'inputs["a"][0] is 0.0 (input)' in text
    assert "unnamed" not in text


def test_names_of_the_line_win_over_what_they_are_computed_from():
    x, out = pt.fvector("x"), pt.fmatrix("out")
    weights = softmax(out[:, 4:], axis=1)
    sigma = pt.exp(out[:, 2:4])
    z = (x[:, None] - out[:, :2]) / sigma
    density = (weights * pt.exp(-0.5 * z**2) / sigma).sum(axis=1)
    loss = -pt.log(density).mean()
    values = [np.array([0.1, 30], "float32"), np.zeros((2, 6), "float32")]
    removed, added = error_of([x, out], loss, values).explanation.advice.change
    assert "pt.log(density)" in removed
    assert "z ** 2" in added
    assert "x[:, None]" not in added


SLOPES = {
    "x ** p": ([0.0, 2.0], 0.5, "switch(eq(x, 0), 0, switch(eq(x, 0), 1, x)**p)"),
    "pt.exp(x) * x ** p": ([0.0, 2.0], 1 / 3, "switch(eq(x, 0), 0, switch(eq(x, 0), 1, x)**p)"),
    "pt.sqrt(x) * p": ([0.0, 2.0], 1.0, "switch(eq(x, 0), 0, sqrt(switch(eq(x, 0), 1, x)))"),
    "x ** p + pt.log(x)": ([0.0, 2.0], 0.5, None),
}


@pytest.mark.parametrize("formula", SLOPES)
def test_what_is_proposed_for_a_derivative_keeps_the_value(formula):
    at, power, new = SLOPES[formula]
    x, p = pt.dvector("x"), pt.dscalar("p")
    names = {**vars(pt), "pt": pt, "x": x, "p": p}
    cost = eval(formula, names).sum()
    text = told(error_of([x, p], [cost, *pt.grad(cost, [x, p])], [np.array(at), power]))
    if new is None:
        assert "switch(eq(x, 0)" not in text
        return
    assert new in text or "theanoguard.stable.sqrt" in text
    edited = eval(formula.replace("x ** p", new).replace("pt.sqrt(x)", new), names).sum()
    f = pytensor.function([x, p], [cost, edited, *pt.grad(edited, [x, p])], mode="FAST_COMPILE")
    for value in (at, [0.3, 0.0], [1.5, 2.5]):
        old, kept, *slopes = f(np.array(value), power)
        np.testing.assert_allclose(kept, old)
        assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("product", [lambda u, v: (u * v).sum(), pt.dot])
def test_the_angle_between_parallel_vectors_gets_a_formula_with_a_gradient(product):
    u, v = pt.dvectors("uv")
    norms = pt.sqrt((u**2).sum()) * pt.sqrt((v**2).sum())
    angle = pt.arccos(pt.clip(product(u, v) / norms, -1.0, 1.0))
    same = np.array([1.0, 2.0, 2.0])
    text = told(error_of([u, v], [angle, pt.grad(angle, u)], [same, same]))
    assert "A norm has no gradient" not in text
    assert "2 * arctan2(norm(u - v), norm(u + v)) with theanoguard.stable.norm." in text
    a, b = (w / stable.norm(w) for w in (u, v))
    new = 2 * pt.arctan2(stable.norm(a - b), stable.norm(a + b))
    f = pytensor.function([u, v], [angle, new, pt.grad(new, u)], mode="FAST_COMPILE")
    assert all(np.isfinite(value).all() for value in f(same, same))
    old, value, _ = f(same, np.array([2.0, 1.0, -1.0]))
    assert value == pytest.approx(old)


def test_a_scaling_changes_a_geometric_mean():
    x = pt.dvector("x")
    big = np.array([1e100, 1e100, 1e100, 1e100, 1e-200])
    fn = pytensor.function([x], x.prod() ** (1 / 5), mode=GuardMode(big_is_error=False))
    with pytest.raises(GuardError) as caught:
        fn(big)
    assert "in place of the input" not in told(caught.value)
    assert "With pt.exp(0.2 * pt.log(x).sum()) on line" in told(caught.value)


def test_a_divisor_of_two_uses_names_the_inputs():
    y, V, W = pt.dvector("y"), pt.dscalar("V"), pt.dscalar("W")

    def step(yt, m, C, V, W):
        R = C + W
        Q = R + V
        K = R / Q
        return m + K * (yt - m), R - K * R, -0.5 * (pt.log(2 * np.pi * Q) + (yt - m) ** 2 / Q)

    start = [pt.constant(v, dtype="float64") for v in (0.0, 1.0)]
    _, _, ll = pytensor.scan(step, [y], [*start, None], non_sequences=[V, W], return_updates=False)
    text = told(error_of([y, V, W], ll.sum(), [np.array([0.5, 0.5, 0.4]), 0.0, 0.0]))
    assert "W and V are 0." in text
    assert "switch(" not in text


def test_an_equation_of_a_report_is_true():
    x = pt.dscalar("x")
    output = pt.log(pt.exp(-((x - 1) ** 2)) / pt.sqrt(2 * np.pi / (x - 39) ** 2))
    text = told(error_of([x], output, [40.0]))
    assert "float64 loses it where an operand = " in text
    assert "log(0.0) =" not in text.replace("log(0.0) = -inf", "")


def test_an_infinity_that_counts_as_big_names_the_other_argument():
    x = pt.dvector("x")
    at = np.array([1.0, 0.0])
    fn = pytensor.function([x], pt.log(x), mode=GuardMode(inf_is_error=False))
    with pytest.raises(GuardError) as caught:
        fn(at)
    assert "pass big_is_error=False as well." in told(caught.value)
    both = GuardMode(inf_is_error=False, big_is_error=False)
    assert pytensor.function([x], pt.log(x), mode=both)(at)[1] == -INF
    other = told(error_of([x], pt.log(x), [at]))
    assert "counts as big" not in other


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_a_big_input_is_told_how_it_is_allowed(dtype):
    x = pt.vector("x", dtype=dtype)
    at = np.array([1, -(10**12)], dtype)
    mode = {"check_integers": True}
    fn = pytensor.function([x], -x, mode=GuardMode(**mode))
    with pytest.raises(GuardError) as caught:
        fn(at)
    (threshold,) = re.findall(r"GuardMode\(big_threshold=(.*?)\)", told(caught.value))
    allowed = GuardMode(big_threshold=float(threshold), **mode)
    assert pytensor.function([x], -x, mode=allowed)(at)[0] == -1


OF_UNNAMED = {name: (formula.of("x"), formula.fails) for name, formula in FORMULAS.items()}
OF_UNNAMED["gradient of a norm"] = ("pt.grad(norm_of(x), x)", [0.0, 0.0])


def norm_of(v):
    return getattr(v, "norm")(2) if hasattr(v, "norm") else v  # noqa: B009


@pytest.mark.parametrize("name", OF_UNNAMED)
def test_words_name_what_they_read(name):
    """In a program without a file, for an input that has no name."""
    text, fails = OF_UNNAMED[name]
    inputs = [pt.dvector()]
    output = eval(text, {"pt": pt, "np": np, "x": inputs[0], "norm_of": norm_of})
    as_written = {} if "grad" in text else {"optimizer": None}
    fn = pytensor.function(inputs, output, mode=GuardMode(big_is_error=False, **as_written))
    with pytest.raises(GuardError) as caught:
        fn(np.array(fails))
    assert "With  " not in str(caught.value) and '""' not in str(caught.value)


def test_a_formula_in_words_has_the_index_of_what_it_replaces():
    h = pt.dvector("h")
    logs = pytensor.scan(
        lambda i, h: pt.log((pt.exp(h) / pt.exp(h).sum())[i]),
        sequences=[pt.arange(2)],
        non_sequences=[h],
        return_updates=False,
    )
    text = told(error_of([h], logs, [np.array([-800.0, 0.0, 1.0])]))
    assert 'keeps the value: "theanoguard.stable.log_softmax(h)[i]"' in text
