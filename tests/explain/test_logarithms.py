"""Logarithms of expressions from the logarithms of their parts, and calls in float64."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import theanoguard.stable
from theanoguard import GuardError, GuardMode
from theanoguard.explain.advice.logarithms import InLogs
from theanoguard.stable.patterns import rebuild

x, m = pt.dvector("x"), pt.dmatrix("m")


def _last_state(step, first):
    states, _ = pytensor.scan(step, sequences=[m], outputs_info=[first])
    return states[-1]


EXPRESSIONS = {
    "exponent": pt.exp(x),
    "sigmoid": pt.sigmoid(x),
    "softmax": pt.special.softmax(m, axis=1),
    "softmax by hand": pt.exp(m) / pt.exp(m).sum(axis=1, keepdims=True),
    "sigmoid by hand": 1 / (1 + pt.exp(-x)),
    "one minus a sigmoid by hand": 1 - pt.exp(x) / (1 + pt.exp(x)),
    "sigmoid from tanh": (1 + pt.tanh(x / 2)) / 2,
    "one minus a sigmoid from tanh": 1 - (0.5 + 0.5 * pt.tanh(x)),
    "difference of sigmoids": pt.sigmoid(x + 1) - pt.sigmoid(x),
    "one minus some sigmoids": (1 - pt.clip(pt.sigmoid(m), 0, 1)[:, 0]),
    "mean": pt.exp(m).mean(axis=0),
    "sum of three": 0.3 * pt.exp(x) + 0.2 * pt.exp(-x) + 0.5,
    "diagonal": pt.diagonal(pt.exp(m)) / pt.exp(m).sum(axis=1),
    "scalar product": pt.exp(x) @ pt.exp(-x),
    "product": pt.exp(x) * x * pt.sigmoid(x),
    "quotient": pt.exp(x) / (1 + pt.exp(x)),
    "power": pt.exp(x) ** 3,
    "even power of either sign": (x - 1.2) ** 4 * pt.exp(x),
    "square of either sign": pt.sqr(x - 1.2) * pt.exp(x),
    "square root": pt.sqrt(pt.exp(x)),
    "square": pt.sqr(pt.exp(x)),
    "one minus a sigmoid": 1 - pt.sigmoid(x),
    "one minus an exponential": 1 - pt.exp(-x),
    "sum": (m * pt.exp(-m)).sum(axis=0),
    "sum of all": pt.exp(m).sum(),
    "prod": pt.exp(m).prod(axis=1),
    "cumsum": pt.cumsum(pt.exp(x)[::-1]),
    "cumprod": pt.cumprod(pt.sigmoid(x)),
    "matrix and vector": pt.exp(m) @ x,
    "vector and matrix": x @ pt.exp(m),
    "hyperbolic": pt.sinh(x) * pt.cosh(x),
    "join": pt.concatenate([pt.exp(x), x])[1:],
    "loop": _last_state(lambda row, p: p * pt.exp(row), x),
    "loop over a product with a matrix": _last_state(lambda row, p: (p @ m) * row, x).sum(),
    "stack": pt.stack([pt.exp(x[0]), pt.sigmoid(x[1])]),
}


@pytest.fixture(scope="module")
def results():
    """The logarithm of each expression: directly, from its parts, and by the code for these."""
    direct = [pt.log(v) for v in EXPRESSIONS.values()]
    forms = [InLogs(v) for v in EXPRESSIONS.values()]
    builders = dict(zip(direct, (form.build for form in forms), strict=True))
    written = [form.code() or ("0", {}) for form in forms]
    names = {"pt": pt, "np": np, "theanoguard": theanoguard}
    run = [pt.as_tensor(eval(code, {**names, **operands})) for code, operands in written]
    outputs = [*direct, *rebuild(direct, builders), *run]
    fn = pytensor.function([x, m], outputs, mode="FAST_COMPILE")
    rng = np.random.default_rng(1)
    values = fn(rng.uniform(0.5, 2, 3), rng.uniform(0.5, 2, (3, 3)))
    n = len(direct)
    several = zip(values[:n], values[n : 2 * n], values[2 * n :], strict=True)
    return dict(zip(EXPRESSIONS, several, strict=True))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_logarithm_from_its_parts_is_the_logarithm(name, results):
    assert InLogs(EXPRESSIONS[name]).parts
    one, other, written = results[name]
    np.testing.assert_allclose(one, other, rtol=1e-12)
    if "loop" not in name:  # (a change of several lines)
        np.testing.assert_allclose(one, written, rtol=1e-12)


def test_all_but_loops_are_written():
    unwritten = [name for name, v in EXPRESSIONS.items() if InLogs(v).code() is None]
    assert unwritten == ["loop", "loop over a product with a matrix"]


@pytest.mark.parametrize("v", [x, x + 1, pt.abs(m)[0], m.max(axis=0)], ids=str)
def test_nothing_to_compute_otherwise(v):
    assert InLogs(v).parts == ()


def test_shared_parts_are_built_once():
    power = pt.exp(x)
    for _ in range(40):
        power = power * power
    [log] = rebuild([pt.log(power)], {})
    [form] = rebuild([log], {log: InLogs(power).build})
    assert len(list(pytensor.graph.traversal.ancestors([form]))) < 200


def explained(inputs, outputs, arguments, updates=()):
    """Return the explanation of a call that fails, and its hint."""
    mode = GuardMode(True, True, False)
    fn = pytensor.function(inputs, outputs, updates=list(updates), mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    found = caught.value.explanation
    return found, (found.deeper or found.cause).hint


def test_a_loop_is_tried_in_float64():
    a = pt.fvector("a")
    states, _ = pytensor.scan(
        lambda s, k: pt.maximum(s * k, 0), outputs_info=[a], non_sequences=[a], n_steps=5
    )
    _, hint = explained([a], [pt.log(states[-1].sum())], [np.full(2, 1e-9, "float32")])
    assert "in step 4 of the loop" in hint.text
    assert hint.text.endswith("With float64 in place of float32 this call gives -123.65.")


def test_a_cost_that_does_not_fit_its_dtype_is_told():
    a = pt.fvector("a")
    cost = pt.exp(a).sum()
    found, hint = explained([a], [cost, pytensor.grad(cost, a)], [np.full(2, 100, "float32")])
    assert found.meaning.kind == "too large"
    assert found.meaning.text.startswith("In exact arithmetic cost is 5.37623e+43, more than")
    assert hint.text == "With float64 in place of float32 this call gives finite values."


def test_a_result_that_depends_on_the_size_of_an_input_is_not_scaled():
    a = pt.dvector("a")
    found, hint = explained([a], [(a * a).sum()], [np.array([2e200, 1.0])])
    assert found.meaning.text.startswith("In exact arithmetic the result is 4e+400, more than")
    assert hint.text.startswith("The result itself is this large")


@pytest.mark.parametrize(
    ("reduction", "size"),
    [(pt.sum, "3.30997e+308"), (pt.prod, "2.73897e+616")],
)
@pytest.mark.filterwarnings("error")
def test_the_terms_of_a_fused_reduction_are_shown(reduction, size):
    x = pt.dvector("x")
    fn = pytensor.function([x], reduction(pt.exp(x)), mode=GuardMode(big_is_error=False))
    with pytest.raises(GuardError) as caught:
        fn([709.7, 709.7])
    text = str(caught.value)
    assert f"{reduction.__name__}(exp(x)) = inf" in text
    assert "exp(x): finite values at 1.655e+308" in text
    assert f"In exact arithmetic the result is {size}, more than" in text


def test_complex_numbers_have_no_range():
    z = pt.zvector("z")
    fn = pytensor.function([z], z.prod(), mode=GuardMode(big_is_error=False))
    with pytest.raises(GuardError) as caught:
        fn([1e200j, 1e200])
    text = str(caught.value)
    assert "z (complex128), [0] = 1e+200j" in text
    assert "mean instead of sum.\n" in text
