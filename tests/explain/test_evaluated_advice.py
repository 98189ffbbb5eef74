"""What a report says of a number is true: it was evaluated before it was printed."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode

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


def test_a_limit_that_depends_on_other_numbers_is_no_constant():
    a, b, t = pt.dscalars("abt")
    curve = (pt.exp(-a * t) - pt.exp(-b * t)) / (b - a)
    text = told(error_of([a, b, t], curve, [1.0, 1.0, 2.0]))
    assert "The quotient tends to 0.27067 as b tends to 1.0" in text
    assert "switch(eq(n, 0), limit," in text


def test_the_limit_of_the_whole_term_is_told():
    k, v, s = pt.dscalars("kvs")
    output = -pt.log(s) - (1 + 1 / k) * pt.log1p(k * v / s)
    text = told(error_of([k, v, s], output, [0.0, 1.0, 2.0]))
    assert "tends to 0.5: use its limit there." in text
    assert "switch(eq(k, 0), 0" not in text


def test_integers_that_wrapped_get_no_bound():
    i = pt.ivector("i")
    error = error_of([i], pt.sqrt(pt.cast(i * i, "float64")), [np.array([50000], "int32")])
    assert "needs 33 bits and has wrapped around in int32" in told(error)
    assert error.explanation.advice.change == ()
    assert "maximum(" not in told(error)


def test_a_counter_that_wrapped_gets_no_logarithm():
    count = pytensor.shared(np.int8(127), name="count")
    x = pt.dscalar("x")
    updates = {count: count + np.int8(1)}
    text = told(error_of([x], x / pt.sqrt(count), [1.0], [1.0], updates=updates))
    assert "has passed the largest number of int8, 127, and wrapped around" in text
    assert "exp(" not in text
