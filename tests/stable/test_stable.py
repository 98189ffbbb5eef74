"""The stable forms: value and gradient against long double, edges and all; and `stabilize`."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import stable

LONG = np.longdouble
DTYPES = ("float32", "float64")
IN_PYTHON = Mode("py", "fast_run")
# PyTensor passes the warnings of NumPy's own functions on.
pytestmark = [pytest.mark.on_30, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@cache
def compiled(form, dtype, *shapes):
    """A function of arrays with the given numbers of dimensions: the form and its gradients.

    The gradient is that of the sum of the elements, each times its number, from 1 on.
    """
    inputs = [pt.tensor(dtype=dtype, shape=(None,) * ndim) for ndim in shapes]
    output = form(*inputs)
    weights = (pt.arange(output.size) + 1).reshape(output.shape).astype(dtype)
    gradients = pytensor.grad((output * weights).sum(), inputs)
    return pytensor.function(inputs, [output, *gradients], mode=IN_PYTHON)


def weights_like(output):
    return np.arange(1, output.size + 1).reshape(output.shape).astype(LONG)


def close(found, right, dtype, ulps=8.0, absolute=0.0):
    """Check against a long double; an absolute error comes in units of the dtype's rounding."""
    limits = np.finfo(dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.astype(LONG),
        np.asarray(right, dtype=LONG),
        rtol=ulps * limits.eps,
        atol=absolute * limits.eps + float(limits.tiny),
    )


def floats(dtype, lo, hi, *special):
    """Numbers of a dtype between two bounds, among them the special ones."""
    width = np.finfo(dtype).bits
    lo, hi = (float(np.dtype(dtype).type(v)) for v in (lo, hi))
    ordinary = st.floats(lo, hi, width=width, allow_subnormal=True)
    return st.one_of(ordinary, st.sampled_from([float(np.dtype(dtype).type(v)) for v in special]))


def vectors(dtype, elements, size=4):
    return arrays(dtype, st.integers(1, size), elements=elements)


def edges(dtype, eps):
    """Zero, the smallest numbers, the neighbours of eps, 1 and the largest number."""
    kind = np.dtype(dtype).type
    limits, eps = np.finfo(dtype), kind(eps)
    around = [np.nextafter(eps, kind(0)), eps, np.nextafter(eps, kind(1))]
    return [0.0, limits.smallest_subnormal, limits.tiny, *around, 1.0, limits.max]


# ---------------------------------------------------------------- log, sqrt, divide


@dataclass(frozen=True)
class Clamped:
    """A form of one argument that takes what lies below eps for eps."""

    form: object
    right: object
    slope: object


CLAMPED = {
    "log": Clamped(stable.log, np.log, lambda x: 1 / x),
    "sqrt": Clamped(stable.sqrt, np.sqrt, lambda x: LONG(0.5) / np.sqrt(x)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CLAMPED)
@given(data=st.data())
def test_exact_above_eps_and_flat_below(name, dtype, data):
    case = CLAMPED[name]
    eps = np.dtype(dtype).type(stable.default_eps(name, dtype))
    special = edges(dtype, eps)
    x = data.draw(vectors(dtype, floats(dtype, 0, np.finfo(dtype).max, *special)))
    value, gradient = compiled(case.form, dtype, 1)(x)
    inside = np.maximum(x, eps).astype(LONG)
    close(value, case.right(inside), dtype)
    close(gradient, np.where(x >= eps, case.slope(inside) * weights_like(x), 0), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CLAMPED)
def test_second_gradient_of_log_and_negative_arguments(name, dtype):
    x = np.array([-1.0, -1e-30, 0.0], dtype=dtype)
    value, gradient = compiled(CLAMPED[name].form, dtype, 1)(x)
    eps = LONG(stable.default_eps(name, dtype))
    close(value, np.full(3, CLAMPED[name].right(eps)), dtype)
    assert not gradient.any()
    x = pt.scalar(dtype=dtype)
    second = pytensor.grad(pytensor.grad(stable.log(x), x), x)
    at_eps = second.eval(
        {x: np.dtype(dtype).type(stable.default_eps("log", dtype))}, mode=IN_PYTHON
    )
    assert np.isfinite(at_eps)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_divide(dtype, data):
    eps = np.dtype(dtype).type(stable.default_eps("divide", dtype))
    # The gradient is finite for x up to 1 / eps ** 2; y ** 2 must not overflow.
    largest = float(LONG(1) / LONG(eps) ** 2) / 4
    x = data.draw(vectors(dtype, floats(dtype, -largest, largest, *edges(dtype, eps)[:-1])))
    bound = float(np.sqrt(np.finfo(dtype).max)) / 2
    small = [s * v for v in edges(dtype, eps)[:-1] for s in (1, -1)]
    elements = floats(dtype, -bound, bound, *small, -0.0)
    y = data.draw(arrays(dtype, x.shape, elements=elements))
    value, by_x, by_y = compiled(stable.divide, dtype, 1, 1)(x, y)
    moved = np.where(y < 0, np.minimum(y, -eps), np.maximum(y, eps)).astype(LONG)
    weights = weights_like(value)
    close(value, x / moved, dtype)
    close(by_x, weights / moved, dtype)
    close(by_y, np.where(abs(y) >= eps, -weights * x / moved**2, 0), dtype)


@pytest.mark.parametrize("name", ["log", "sqrt", "divide"])
def test_eps_of_the_users_own(name):
    form = {
        "log": stable.log,
        "sqrt": stable.sqrt,
        "divide": lambda x, eps: stable.divide(1.0, x, eps),
    }
    right = {"log": np.log(0.25), "sqrt": 0.5, "divide": 4.0}
    assert form[name](pt.as_tensor(0.0), eps=0.25).eval(mode=IN_PYTHON) == pytest.approx(
        right[name]
    )
    x32 = pt.fscalar()
    assert form[name](x32, eps=1e-3).type.dtype == "float32"
    for eps in (0.0, -1.0, 1e-60):
        with pytest.raises(ValueError, match=r"eps is .* in float32\.\nIt must be"):
            form[name](x32, eps=eps)


# ---------------------------------------------------------------- norm


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_norm(dtype, data):
    limits = np.finfo(dtype)
    largest = float(limits.max) / 4
    special = [0.0, -0.0, 1.0, limits.smallest_subnormal, limits.tiny, -limits.tiny, largest]
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    x = data.draw(arrays(dtype, shape, elements=floats(dtype, -largest, largest, *special)))
    value, gradient = compiled(norm_of_rows, dtype, 2)(x)
    exact = np.sqrt((x.astype(LONG) ** 2).sum(axis=1))
    close(value, exact, dtype, 16)
    # A norm below the smallest normal number has lost digits, and so has what is divided by it.
    normal = exact >= limits.tiny
    right = (weights_like(value)[:, None] * x)[normal] / exact[normal, None]
    close(gradient[normal], right, dtype, 32)
    assert (abs(gradient[~normal]) <= 2 * weights_like(value)[~normal, None]).all()
    assert not gradient[exact == 0].any()


def norm_of_rows(x):
    return stable.norm(x, axis=1)


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes(axis, keepdims):
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    v = pt.tensor3(dtype="float64")
    ours = [stable.norm(v, axis, keepdims), stable.logsumexp(v, axis, keepdims)]
    right = [
        np.sqrt((x**2).sum(axis, keepdims=keepdims)),
        np.log(np.exp(x).sum(axis, keepdims=keepdims)),
    ]
    if not keepdims and axis != (0, 2):
        ours += [stable.softmax(v, axis), stable.log_softmax(v, axis)]
        soft = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
        right += [soft, np.log(soft)]
    for found, expected in zip(pytensor.function([v], ours, mode=IN_PYTHON)(x), right, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-13)


# ---------------------------------------------------------------- softmax and its relatives


def rows(dtype, data, masks=True):
    """A matrix with large, small and masked elements."""
    special = [0.0, 1.0, -1e4, 1e4, 1e30, -1e30, *([-np.inf] * masks)]
    shape = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 4)))
    return data.draw(arrays(dtype, shape, elements=floats(dtype, -200, 200, *special)))


def exact_softmax(x):
    """In long double: the softmax of the rows, and the logarithm of their sums."""
    x = x.astype(LONG)
    top = x.max(axis=1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    terms = np.exp(x - top)
    total = terms.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = top + np.log(total)
    return terms / np.where(total == 0, 1, total), logs


def rounding(x):
    """How far rounding may move a sum or difference of finite elements."""
    return 8 + 8 * float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def over_rows(form):
    return lambda x: form(x, axis=1)


FORMS = {name: over_rows(getattr(stable, name)) for name in ("softmax", "log_softmax", "logsumexp")}


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_logsumexp(dtype, data):
    x = rows(dtype, data)
    value, gradient = compiled(FORMS["logsumexp"], dtype, 2)(x)
    soft, logs = exact_softmax(x)
    close(value, logs[:, 0], dtype, absolute=rounding(x))
    # The exponent is rounded to the spacing of numbers as large as those that are not negligible.
    close(gradient, weights_like(value)[:, None] * soft, dtype, 2000, 8)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_softmax(dtype, data):
    x = rows(dtype, data)
    value, gradient = compiled(FORMS["softmax"], dtype, 2)(x)
    soft, _ = exact_softmax(x)
    close(value, soft, dtype, 2000)
    weights = weights_like(soft)
    right = soft * (weights - (weights * soft).sum(axis=1, keepdims=True))
    close(gradient, right, dtype, 4000, 200)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_log_softmax(dtype, data):
    x = rows(dtype, data)
    value, gradient = compiled(FORMS["log_softmax"], dtype, 2)(x)
    soft, logs = exact_softmax(x)
    finite = np.isfinite(x)
    close(
        value[finite], (x - np.where(np.isinf(logs), 0, logs))[finite], dtype, absolute=rounding(x)
    )
    assert (value[~finite] == -np.inf).all()
    weights = weights_like(soft)
    right = weights - soft * weights.sum(axis=1, keepdims=True)
    close(gradient[finite], right[finite], dtype, 4000, 400)
    assert np.isfinite(gradient).all()


def test_nan_stays_nan():
    x = np.array([[np.nan, 1.0]])
    ours = [stable.log, stable.sqrt, over_rows(stable.norm), *FORMS.values()]
    ours += [lambda v: stable.divide(1.0, v), lambda v: stable.binary_crossentropy(v, 1.0)]
    for form in ours:
        assert np.isnan(compiled(form, "float64", 2)(x)[0]).any()


def test_infinite_elements():
    x = np.array([[np.inf, 1.0]])
    assert compiled(norm_of_rows, "float64", 2)(x)[0] == np.inf
    assert compiled(FORMS["logsumexp"], "float64", 2)(x)[0] == np.inf


# ---------------------------------------------------------------- cross-entropies


def from_logits(z, t):
    return stable.binary_crossentropy(z, t, from_logits=True)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_binary_crossentropy_from_logits(dtype, data):
    z = data.draw(vectors(dtype, floats(dtype, -1e4, 1e4, 0.0, 1e-20, -40.0, 40.0, 1e30, -1e30)))
    t = data.draw(arrays(dtype, z.shape, elements=floats(dtype, 0, 1, 0.0, 1.0, 0.5)))
    value, by_z, by_t = compiled(from_logits, dtype, 1, 1)(z, t)
    zl, tl = z.astype(LONG), t.astype(LONG)
    weights = weights_like(zl)
    right = tl * np.logaddexp(LONG(0), -zl) + (1 - tl) * np.logaddexp(LONG(0), zl)
    # (PyTensor's softplus is exact to 1e-7 in float32)
    close(value, right, dtype, 32)
    sigmoid = 1 / (1 + np.exp(-zl))
    close(by_z, weights * (sigmoid - tl), dtype, 32, 32)
    close(by_t, -weights * zl, dtype, 32, 32)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_binary_crossentropy_from_probabilities(dtype, data):
    kind = np.dtype(dtype).type
    eps = stable.default_eps("log", dtype)
    top = kind(1) - np.finfo(dtype).epsneg
    special = [*edges(dtype, eps)[:-1], top]
    p = data.draw(vectors(dtype, floats(dtype, 0, 1, *special)))
    t = data.draw(arrays(dtype, p.shape, elements=floats(dtype, 0, 1, 0.0, 1.0)))
    value, by_p, by_t = compiled(stable.binary_crossentropy, dtype, 1, 1)(p, t)
    tl, weights = t.astype(LONG), weights_like(p)
    low, high = np.maximum(p, kind(eps)).astype(LONG), np.minimum(p, top).astype(LONG)
    close(value, -tl * np.log(low) - (1 - tl) * np.log1p(-high), dtype, 16)
    right = np.where(p >= kind(eps), -tl / low, 0) + np.where(p <= top, (1 - tl) / (1 - high), 0)
    terms = float(np.abs(weights * (tl / low)).max() + np.abs(weights / (1 - high)).max())
    close(by_p, weights * right, dtype, 16, 4 * terms)
    close(by_t, weights * (np.log1p(-high) - np.log(low)), dtype, 16, 400)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("logits", [False, True])
@given(data=st.data())
def test_categorical_crossentropy(dtype, logits, data):
    x = rows(dtype, data, masks=False)
    if not logits:
        x = exact_softmax(x)[0].astype(dtype)
    number = st.integers(0, x.shape[1] - 1)
    t = data.draw(arrays("int64", x.shape[:1], elements=number))
    by_number, by_share = crossentropies(dtype, logits)
    shares = np.eye(x.shape[1], dtype=dtype)[t]
    eps = np.dtype(dtype).type(stable.default_eps("log", dtype))
    if logits:
        soft, logs = exact_softmax(x)
        right = (logs - x)[np.arange(len(t)), t]
        slope = weights_like(right)[:, None] * (soft - shares)
        tolerance = (rounding(x), 400)
    else:
        clipped = np.maximum(x, eps).astype(LONG)
        right = -np.log(clipped)[np.arange(len(t)), t]
        slope = weights_like(right)[:, None] * np.where(x >= eps, -shares / clipped, 0)
        tolerance = (0, 0)
    for value, gradient in (by_number(x, t), by_share(x, shares)):
        close(value, right, dtype, 16, tolerance[0])
        close(gradient, slope, dtype, 4000, tolerance[1])


@cache
def crossentropies(dtype, logits):
    x = pt.matrix(dtype=dtype)
    functions = []
    for target in (pt.lvector(), pt.matrix(dtype=dtype)):
        loss = stable.categorical_crossentropy(x, target, from_logits=logits)
        weighted = (loss * (pt.arange(loss.shape[0]) + 1).astype(dtype)).sum()
        outputs = [loss, pytensor.grad(weighted, x)]
        functions.append(pytensor.function([x, target], outputs, mode=IN_PYTHON))
    return functions


def test_masked_logits_and_shares_of_zero():
    h, t = pt.dmatrix(), pt.dmatrix()
    loss = stable.categorical_crossentropy(h, t, from_logits=True)
    f = pytensor.function([h, t], [loss, pytensor.grad(loss.sum(), h)], mode=IN_PYTHON)
    value, gradient = f([[0.0, -np.inf, 0.0]], [[0.5, 0.0, 0.5]])
    np.testing.assert_allclose(value, [np.log(2)])
    np.testing.assert_allclose(gradient, [[0, 0, 0]], atol=1e-15)


def test_targets_that_do_not_fit():
    with pytest.raises(ValueError, match="Give integers with one dimension less"):
        stable.categorical_crossentropy(pt.dmatrix(), pt.dvector())
    with pytest.raises(TypeError, match="is complex"):
        stable.log(pt.zvector())


def test_integers_become_floats():
    assert stable.log(pt.as_tensor([1, 2])).type.dtype == pytensor.config.floatX
    assert stable.binary_crossentropy(pt.fvector(), pt.ivector()).type.dtype == "float32"


# ---------------------------------------------------------------- every backend


@pytest.fixture(scope="module")
def everything():
    """All forms and the gradient of their sum, of a matrix and class numbers, and values."""
    x, t = pt.fmatrix("x"), pt.lvector("t")
    outputs = [stable.log(x), stable.sqrt(x), stable.divide(x + 1, x), norm_of_rows(x)]
    outputs += [form(x) for form in FORMS.values()]
    outputs += [stable.binary_crossentropy(x, x > 1), from_logits(x, x > 1)]
    outputs += [
        stable.categorical_crossentropy(x, t, from_logits=logits) for logits in (False, True)
    ]
    weights = [(pt.arange(v.size) + 1).reshape(v.shape).astype("float32") for v in outputs]
    total = sum((v * w).sum() for v, w in zip(outputs, weights, strict=True))
    values = [np.array([[0.0, 0.0], [0.25, 3.0]], dtype="float32"), np.array([0, 1])]
    return [x, t], [*outputs, pytensor.grad(total, x)], values


@pytest.mark.parametrize("linker", ["cvm", "numba"])
def test_backends_agree(everything, linker, request):
    if linker == "cvm":
        request.getfixturevalue("needs_cxx")
    inputs, outputs, values = everything
    right = pytensor.function(inputs, outputs, mode=IN_PYTHON)(*values)
    found = pytensor.function(inputs, outputs, mode=linker.upper())(*values)
    for one, other in zip(found, right, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- stabilize

H = pt.dmatrix("h")
Y = pt.dmatrix("y")
E = pt.exp(H)
TOTALS = pt.inc_subtensor(pt.zeros((2, H.shape[1]))[np.array([1, 1])], E)
PATTERNS = {
    "log of softmax": (pt.log(pt.special.softmax(H, axis=1)), ["log_softmax"]),
    "entries of it": (pt.log(pt.special.softmax(H, axis=1)[:, 1]), ["log_softmax"]),
    "by hand": (pt.log(E / E.sum(axis=1, keepdims=True)), ["softmax", "log_softmax"]),
    "softmax": (E / E.sum(axis=0), ["softmax"]),
    "logsumexp": (pt.log(pt.exp(H).sum(axis=0)), ["logsumexp"]),
    "kept axes": (pt.log(pt.exp(H).sum(axis=1, keepdims=True)), ["logsumexp"]),
    "softplus": (pt.log(1 + pt.exp(H)), ["softplus"]),
    "log1p": (pt.log1p(pt.exp(H)), ["softplus"]),
    "sigmoid": (pt.log(pt.sigmoid(H)), ["-softplus"]),
    "complement": (pt.log(1 - pt.sigmoid(H)), ["-softplus"]),
    "its log1p": (pt.log1p(-pt.sigmoid(H)), ["-softplus"]),
    "norm": (pt.sqrt((H**2).sum(axis=1)), ["norm"]),
    "norm of a product": (pt.sqrt((H * H).sum()), ["norm"]),
    "root": (pt.sqrt(H), []),
    "quotient": (Y / H, []),
    "logarithm": (pt.log(H), []),
    "two": (pt.log(pt.sqrt(H)), []),
    "what is safe": (pt.log(H**2 + 1e-6) + Y / (1 + pt.exp(H)) + pt.sqrt(1 + E), []),
    "another axis": (E / E.sum(axis=1)[:, None][::-1], ["exp of a difference"]),
    "clipped": (
        pt.exp(pt.clip(H, -5, 5)) / pt.exp(H).sum(axis=1, keepdims=True),
        ["exp of a difference"],
    ),
    "log of a mean": (pt.log(pt.exp(H).mean(axis=1)), ["difference of logs"]),
    "log of a share": (
        pt.log(pt.exp(H)[:, 0] / pt.exp(H).sum(axis=1)),
        ["exp of a difference", "difference of logs"],
    ),
    "log of a sum of exps": (pt.log(pt.exp(H) + pt.exp(Y)), ["log of a sum of exps"]),
    "log cosh": (pt.log((E + pt.exp(-H)) / 2), ["difference of logs"]),
    "silu": (H * E / (1 + E), ["exp of a difference"]),
    "log of a product": (pt.log(pt.exp(-H).prod(axis=1)), ["sum of logs"]),
    "log of a signed product": (pt.log(H.prod(axis=1)), []),
    "root of exp": (pt.sqrt(E), ["exp of a half"]),
    "share of a group": (E / TOTALS[np.array([1, 1])], ["exp of a difference"]),
    "log of a group": (pt.log(TOTALS[np.array([1, 1])]), ["log of a sum of exps"]),
    "log of all groups": (pt.log(TOTALS), ["log of a sum of exps"]),
    "log odds": (
        pt.log(pt.sigmoid(H) / (1 - pt.sigmoid(H))),
        ["exp of a difference", "difference of logs"],
    ),
    "log of probabilities": (pt.log(pt.sigmoid(H).prod(axis=0)), ["sum of logs"]),
    "tanh by hand": ((E - pt.exp(-H)) / (E + pt.exp(-H)), ["tanh"]),
    "sigmoid by hand": (1 / (1 + pt.exp(-H)), ["exp of a difference"]),
    "a probability above 0": (pt.log(pt.sigmoid(H) + 1e-8), []),
    "integers": (pt.lvector() // 2, []),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name):
    old, forms = PATTERNS[name]
    found = stable.stabilize(old)
    assert [replacement.form for replacement in found.replacements] == forms
    (new,) = found.apply()
    assert new.type == old.type
    if forms:
        h = np.array([[0.5, 1.25], [2.0, 0.75]])
        function = pytensor.function(
            [H, Y], [old, new], mode="FAST_COMPILE", on_unused_input="ignore"
        )
        one, other = function(h, h + 1)
        np.testing.assert_allclose(other, one, rtol=1e-13)
        # (those exponentials are not parts of a softmax)
        overflow = name in ("another axis", "clipped")
        expected = {"exp-overflow"} if overflow else set()
        if name == "log of all groups":  # one of them is empty
            expected = {"log-of-zero"}
        assert {finding.rule for finding in theanoguard.lint(new)} == expected
    else:
        assert new is old


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_softmax_over_groups(mode):
    """Negative numbers of groups count from the end, and columns are sorted by themselves."""
    groups = pt.lvector("groups")
    shares = E / pt.inc_subtensor(pt.zeros((4, H.shape[1]))[groups], E)[groups]
    (new,) = stable.stabilize(shares).apply()
    f = pytensor.function([H, groups], [new, pytensor.grad(new[0, 0], H)], mode=mode)
    h = np.array([[1000.0, -1000.0], [3.0, 4.0], [1001.0, -1003.0], [5.0, -2000.0]])
    value, slope = f(h, [2, -1, 2, 3])
    p, q = 1 / (1 + np.exp([1.0, -3.0])), 1 / (1 + np.exp([2.0, -2004.0]))
    np.testing.assert_allclose(value, [p, q, 1 - p, 1 - q], rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(
        slope[[0, 2], 0], [p[0] * (1 - p[0]), -p[0] * (1 - p[0])], rtol=1e-11
    )
    assert not slope[:, 1].any() and not slope[[1, 3], 0].any()


def test_one_row_for_all_groups_is_no_total_of_groups():
    row, groups = pt.drow("row"), pt.lvector("groups")
    totals = pt.inc_subtensor(pt.zeros((4, 3))[groups], pt.exp(row))[groups]
    (new,) = stable.stabilize(pt.log(totals)).apply()
    f = pytensor.function([row, groups], new, mode="FAST_COMPILE")
    expected = np.log([[1.0], [2.0], [2.0]]) + [0.5, 1.0, -3.0]
    np.testing.assert_allclose(f([[0.5, 1.0, -3.0]], [0, 2, 2]), expected)


def test_replacements_are_listed_and_chosen():
    x = pt.dvector("x")
    ratio = pt.log(x) / x  # line of both
    ratio.name = "ratio"
    assert not stable.stabilize([ratio, x]).replacements
    found = stable.stabilize([ratio, x], floors=True)
    here, line = __file__, test_replacements_are_listed_and_chosen.__code__.co_firstlineno + 2
    assert str(found) == f"{here}:{line}: log(x) -> log\n{here}:{line}: ratio -> divide"
    new, same = found.apply(forms=["divide"])
    assert same is x and new.name == "ratio"
    assert [r.form for r in stable.stabilize(new, floors=True).replacements] == ["log"]
    assert str(stable.stabilize(x)) == "nothing to replace"
    assert np.isneginf(ratio.eval({x: [0.0]}, mode=IN_PYTHON))
    assert np.isfinite(found.apply()[0].eval({x: [0.0]}, mode=IN_PYTHON))


def test_gradients_are_left_alone():
    x = pt.dvector("x")
    loss = pt.log(pt.sqr(x) + 1).sum()
    assert not stable.stabilize([loss, pytensor.grad(loss, x)]).replacements


def test_only_variables_are_stabilized():
    with pytest.raises(TypeError, match=r"graph\[0\] must be a variable"):
        stable.stabilize([1.0])
    with pytest.raises(TypeError, match="graph must be a variable or a list of variables"):
        stable.stabilize(3)
