"""Quotients with a removable singularity at 0: value and gradient, for numbers of all sizes."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import stable
from theanoguard.stable import improve

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
PLAIN = Mode("py", None)
# The function, what it is, its largest argument, and value and gradient at 0.
FUNCTIONS = {
    "exprel": (lambda x: pt.expm1(x) / x, 50.0, 1.0, 0.5),
    "log1prel": (lambda x: pt.log1p(x) / x, 0.9, 1.0, -0.5),
    "sinc": (lambda x: pt.sin(x) / x, 3.0, 1.0, 0.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradient(name, dtype):
    plain, largest, at_0, slope_at_0 = FUNCTIONS[name]
    x = pt.vector("x", dtype=dtype)
    ours = getattr(stable, name)(x)
    assert ours.type.dtype == dtype
    f = pytensor.function([x], [ours, pytensor.grad(ours.sum(), x)], mode=PLAIN)
    assert [v.item() for v in f(np.zeros(1, dtype))] == [at_0, slope_at_0]
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    sizes = 10 ** rng.uniform(-12, np.log10(largest), 400)
    given = (sizes * rng.choice([-1, 1], sizes.shape)).astype(dtype)
    right = theanoguard.exact([plain(x), pytensor.grad(plain(x).sum(), x)], {x: given})
    value, slope = f(given)
    np.testing.assert_allclose(value, right[0].mid, rtol=4 * eps)
    np.testing.assert_allclose(slope, right[1].mid, rtol=256 * eps, atol=8 * eps)


x, k, v, s = pt.dscalars("x", "k", "v", "s")
LIMITS = {
    "versine by square": ((1 - pt.cos(x)) / x**2, {x: 0.0}, 0.5),
    "relative exponential": ((pt.exp(x) - 1) / x, {x: 0.0}, 1.0),
    "sinc": (pt.sin(x) / x, {x: 0.0}, 1.0),
    "generalised Pareto": (-(1 + 1 / k) * pt.log1p(k * v / s), {k: 0.0, v: 2.0, s: 3.0}, -2 / 3),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_formula_that_has_only_a_limit_gets_one_with_a_value(name):
    old, given, limit = LIMITS[name]
    found = improve(old, given, seconds=10.0)
    assert found is not None and np.isnan(old.eval(given))
    np.testing.assert_allclose(found.expression.eval(given), limit, rtol=1e-14)
    slopes = pytensor.grad(found.expression, list(given))
    assert all(np.isfinite(g.eval(given, on_unused_input="ignore")) for g in slopes)
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = {u: rng.uniform(0.1, 2) for u in given}
        np.testing.assert_allclose(
            found.expression.eval(values), theanoguard.exact(old, values).mid, rtol=1e-12
        )


@pytest.mark.parametrize("one_sided", [abs(x) / x, pt.sin(1 / x), 1 / x, pt.log(x) / x], ids=str)
def test_no_value_where_there_is_no_limit(one_sided):
    assert improve(one_sided, {x: 0.0}) is None


y, w = pt.dvectors("y", "w")
MASKED = {
    "logarithm": (pt.switch(y > 0, pt.log(y), 0), {y: [0.0, 1.0]}),
    "root": (pt.switch(y > 0, pt.sqrt(y), 0), {y: [0.0, 4.0]}),
    "nothing but zeros": (pt.switch(y > 0, pt.log(y), 0), {y: [0.0, 0.0]}),
    "entropy": (pt.switch(y > 0, y * pt.log(y / w), 0), {y: [0.0, 0.5], w: [0.2, 0.3]}),
    "angle": (pt.switch(y < 1, pt.arccos(y), 0), {y: [1.0, 0.3]}),
    "quotient": (pt.switch(pt.eq(y, 0), 0, pt.tanh(y) ** 3 / y), {y: [0.0, 0.3]}),
}


@pytest.mark.parametrize("name", MASKED)
def test_branches_get_operands_for_which_they_are_chosen(name):
    """So the gradient of a masked element is 0, and not NaN."""
    old, given = MASKED[name]
    found = improve(old.sum(), given, seconds=10.0)
    values = [np.array(u) for u in given.values()]
    slopes = [
        pytensor.function(list(given), pytensor.grad(out, list(given)), mode=PLAIN)(*values)
        for out in (old.sum(), found.expression)
    ]
    assert not all(np.isfinite(g).all() for g in slopes[0])
    for before, after in zip(*slopes, strict=True):
        assert np.isfinite(after).all()
        known = np.isfinite(before)
        np.testing.assert_allclose(after[known], before[known], rtol=1e-12)
    one, other = (
        pytensor.function(list(given), v, mode=PLAIN)(*values)
        for v in (old.sum(), found.expression)
    )
    np.testing.assert_allclose(one, other, rtol=1e-14)
