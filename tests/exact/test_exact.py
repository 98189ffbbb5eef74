"""The value that a formula has in exact arithmetic."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from flint import arb, ctx
from pytensor.graph.traversal import graph_inputs
from pytensor.scan.utils import until

import theanoguard


def exact_of(output, **inputs):
    """The exact value of an output, with inputs by their names."""
    named = {v.name: v for v in graph_inputs([output]) if v.name in inputs}
    return theanoguard.exact(output, {named[n]: value for n, value in inputs.items() if n in named})


x = pt.dvector("x")
s = pt.dscalar("s")
z = pt.dmatrix("z")
n = pt.lscalar("n")


def _cross_entropy():
    q = pt.special.softmax(z, axis=1)
    return -pt.log(q[pt.arange(2), pt.constant([0, 1])]).mean()


def _tanh():
    return (pt.exp(x) - pt.exp(-x)) / (pt.exp(x) + pt.exp(-x))


LOGITS = np.array([[0.0, 1000.0, 500.0], [1.0, 2.0, 3.0]])

LOST = {
    "cross-entropy": (_cross_entropy(), {"z": LOGITS}, "500.703802982"),
    "softmax with a background": (
        pt.exp(x) / (1 + pt.exp(x).sum()),
        {"x": np.array([1.0, 800.0])},
        "[9.97031683124e-348, 1]",
    ),
    "hand-written tanh": (_tanh(), {"x": np.array([1.0, 800.0])}, "[0.761594155956, 1]"),
    "variance": (
        (x**2).mean() - x.mean() ** 2,
        {"x": np.array([1e8, 1e8 + 1, 1e8 + 2])},
        "0.666666666667",
    ),
    "underflow": (pt.exp(s), {"s": -1e6}, "3.29683147809e-434295"),
    "log of 1 - sigmoid": (pt.log(1 - pt.sigmoid(s)), {"s": 30000.0}, "-30000"),
    "logsumexp": (pt.log(pt.exp(x).sum()), {"x": np.array([-1e4, -1e4])}, "-9999.30685282"),
    "factor and inverse": (pt.exp(s) * pt.exp(-s) - 1 + s, {"s": 900.0}, "900"),
    "gamma ratio": (pt.gamma(s + 1) / pt.gamma(s), {"s": 400.0}, "400"),
}


@pytest.mark.parametrize("name", LOST)
def test_value_that_floats_lose(name):
    output, inputs, text = LOST[name]
    found = exact_of(output, **inputs)
    assert str(found) == text
    assert (found.known == "number").all()
    with np.errstate(all="ignore"):
        assert (found.error <= 1e-12 * np.abs(found.mid) + 1e-300).all()


NO_VALUE = {
    "logarithm of a negative number": (pt.log(s), {"s": -0.53}),
    "0 / 0": (x / x.sum(), {"x": np.zeros(2)}),
    "gradient of the norm at 0": (pytensor.grad(pt.sqrt((x**2).sum()), x), {"x": np.zeros(2)}),
    "root of a negative number": (pt.sqrt(s), {"s": -1e-320}),
    "arccos above 1": (pt.arccos(s), {"s": 1 + 2e-16}),
    "fractional power of a negative number": (s**0.5, {"s": -2.0}),
    "infinity minus itself": (x - x, {"x": np.array([np.inf])}),
    "0 times infinity": (x * 0.0, {"x": np.array([np.inf])}),
    "a NaN that was given": (s + 1, {"s": np.nan}),
    "std of a constant": (x / x.std(), {"x": np.full(3, 0.0)}),
}


@pytest.mark.parametrize("name", NO_VALUE)
def test_formula_without_a_value(name):
    output, inputs = NO_VALUE[name]
    found = exact_of(output, **inputs)
    assert (found.known == "none").all()
    assert np.isnan(found.mid).all()
    assert "no value" in str(found)


INFINITE = {
    "log(0)": (pt.log(s), {"s": 0.0}, "-inf"),
    "1 / 0": (1 / s, {"s": 0.0}, "inf"),
    "exp of a given infinity": (pt.exp(s), {"s": np.inf}, "inf"),
    "mask": (pt.exp(x).sum() + pt.max(x), {"x": np.array([-np.inf, 0.0])}, "1"),
    "log of a mask": (pt.log(pt.exp(x)), {"x": np.array([-np.inf, 2.0])}, "[-inf, 2]"),
    "softmax of a mask": (pt.special.softmax(x), {"x": np.array([-np.inf, 0.0])}, "[0, 1]"),
    "power of 0": (
        pt.constant(0.0, dtype="float64") ** x,
        {"x": np.array([0.0, 2.0, -1.0])},
        "[1, 0, inf]",
    ),
    "a sum with an infinity": (pt.log(x).sum(), {"x": np.array([0.3, 0.0])}, "-inf"),
    "gammaln at its pole": (pt.gammaln(s), {"s": -2.0}, "inf"),
    "tanh of infinities": (pt.tanh(x), {"x": np.array([-np.inf, np.inf])}, "[-1, 1]"),
}


@pytest.mark.parametrize("name", INFINITE)
def test_infinities_and_poles(name):
    output, inputs, text = INFINITE[name]
    assert str(exact_of(output, **inputs)) == text


def test_more_digits_are_tried_only_up_to_a_limit():
    found = theanoguard.exact(pt.log(1 - pt.sigmoid(s)), {s: 1e9})
    assert found.known == "unknown"
    assert str(found).startswith("unknown")


def test_work_limit():
    few = theanoguard.exact(pt.exp(x).sum(), {x: np.ones(1000)}, work=500)
    assert few.known == "unknown"
    assert [note.kind for note in few.notes] == ["limit"]
    assert theanoguard.exact(pt.exp(x).sum(), {x: np.ones(1000)}).known == "number"


def test_only_the_chosen_branch_needs_a_value():
    output = pt.switch(x > 0, pt.log(x), 0)
    assert str(exact_of(output, x=np.array([-1.0, 1.0]))) == "[0, 0]"
    assert str(exact_of(pytensor.grad(output.sum(), x), x=np.array([-1.0, 2.0]))) == "[0, 0.5]"


def test_gradient_of_a_branch_that_is_not_chosen():
    """The floating-point gradient is 0 / 0."""
    masked = pytensor.grad(pt.switch(x > 0, pt.log(pt.sqrt(x)), 0.0).sum(), x)
    assert str(exact_of(masked, x=np.array([0.0, 4.0]))) == "[0, 0.125]"
    # Here the derivative is 0, and the gradient that it multiplies infinite.
    norm = pytensor.grad(pt.sqrt((x**2).sum()), x)
    assert (exact_of(norm, x=np.zeros(2)).known == "none").all()


def test_gradient_at_a_tie():
    assert str(exact_of(pytensor.grad(pt.max(x), x), x=np.array([1.0, 3.0]))) == "[0, 1]"
    assert str(exact_of(pytensor.grad(abs(x).sum(), x), x=np.array([-2.0, 0.0]))) == "[-1, 0]"


def test_wrapped_integers_are_reported():
    output = pt.prod(pt.arange(1, n + 1))
    found = exact_of(output, n=25)
    assert found.mid == np.prod(np.arange(1, 26))
    assert [note.kind for note in found.notes] == ["wrapped"]
    assert "85 bits" in str(found)  # (one for the sign)
    assert exact_of(output, n=20).notes == ()


def test_shared_variables_have_their_values():
    w = pytensor.shared(np.array([1.0, 800.0]), name="w")
    assert str(theanoguard.exact(pt.log(pt.exp(w)), {})) == "[1, 800]"
    assert str(theanoguard.exact(pt.log(pt.exp(w)), {w: np.array([2.0])})) == "[2]"


def test_float32_inputs_are_the_numbers_that_they_are():
    v = pt.fscalar("v")
    found = theanoguard.exact(pt.exp(v), {v: np.float32(0.1)})
    assert found.mid == np.exp(np.float64(np.float32(0.1)))


def test_loop():
    def step(value, total):
        return total * pt.exp(value)

    totals = pytensor.scan(step, sequences=[x], outputs_info=[pt.ones(())], return_updates=False)
    found = exact_of(totals, x=np.array([700.0, 700.0, -1400.0]))
    assert str(found) == "[1.01423205474e+304, 1.02866666085e+608, 1]"


def test_loop_that_stops_by_a_condition():
    def step(value):
        return value * 1e200, until(value > 1e300)

    values = pytensor.scan(step, outputs_info=[pt.ones(())], n_steps=10, return_updates=False)
    assert str(theanoguard.exact(values, {})) == "[1e+200, 1e+400, 1e+600]"


@pytest.mark.parametrize("state", [None, pt.dvector("start")], ids=["output", "state"])
def test_a_loop_that_computes_no_new_numbers(state):
    constant = pt.constant([0.5, 1.5])
    steps = pytensor.scan(
        lambda *_: constant[::-1], outputs_info=[state], n_steps=3, return_updates=False
    )
    result = theanoguard.exact(steps[-1].sum(), {} if state is None else {state: np.ones(2)})
    assert str(result) == "2"


def logistic(s, steps):
    return pytensor.scan(
        lambda u: 3.9 * u * (1 - u), outputs_info=[s], n_steps=steps, return_updates=False
    )[-1]


def test_a_chaotic_map_gets_the_digits_that_it_needs():
    s = pt.dscalar("s")
    found = theanoguard.exact(logistic(s, 400), {s: 0.3})
    with ctx.workprec(3000):
        right = arb(0.3)
        for _ in range(400):
            right = arb(3.9) * right * (1 - right)
        assert found.known == "number"
        assert abs(arb(float(found.mid)) - right) <= arb(float(found.error))
        assert found.mid == float(right.mid())


def test_a_value_whose_error_exceeds_it_is_unknown_and_names_the_limit():
    s = pt.dscalar("s")
    found = theanoguard.exact(logistic(s, 400), {s: 0.3}, work=400_000)
    assert found.known == "unknown"
    assert np.isnan(found.mid)
    assert "the limit work=400000: pass a larger work" in str(found)
    assert "the limit seconds=0: pass a larger seconds" in str(
        theanoguard.exact(logistic(s, 40), {s: 0.3}, seconds=0)
    )


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool"])
def test_an_integer_is_given_whole_numbers(dtype):
    i = pt.vector("i", dtype=dtype)
    fn = pytensor.function([i], i * 1, mode="FAST_COMPILE")
    with pytest.raises(TypeError):
        fn([0.5])
    with pytest.raises(TypeError, match="i cannot be"):
        theanoguard.exact(i * 1, {i: [0.5]})
    assert theanoguard.exact(i * 1, {i: [1]}).mid == 1


def test_the_error_is_not_known_where_a_value_is_that_of_the_call():
    x = pt.dmatrix("x")
    at = {x: np.array([[2.0, 1.0], [1.0, 3.0]])}
    found = theanoguard.exact(pt.linalg.qr(x)[1], at)
    assert any(note.kind == "live" for note in found.notes)
    assert np.isnan(found.error).all()
    assert not np.isnan(theanoguard.exact(x.sum(), at).error)


def test_one_element_of_a_large_product_takes_one_row_and_one_column():
    a, b = pt.dmatrices("a", "b")
    x, y = np.random.default_rng(0).normal(size=(2, 200, 200))
    for product in (a @ b, pt.dot(a, b)):
        found = theanoguard.exact(product[3, -1], {a: x, b: y})
        assert found.known == "number"
        assert float(found.mid) == pytest.approx((x @ y)[3, -1], rel=1e-12)
    found = theanoguard.exact(a @ b, {a: x, b: y})  # (all of it is beyond the limit)
    assert (found.known == "unknown").all()
