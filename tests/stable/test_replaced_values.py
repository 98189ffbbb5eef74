"""`stabilize` keeps what is right: no value or gradient is worse than in the default mode."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import stabilize

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
DTYPES = ("float32", "float64")
DEFAULT = Mode("py", "fast_run")
ROOT = 2**-0.5

FORMULAS = {
    "complement of an exponential": (lambda x: pt.log(1 - pt.exp(-x)), (-17, 1)),
    "survival of a normal": (lambda x: pt.log(0.5 * pt.erfc(x * ROOT)), (-2, 1.5)),
    "distribution of a normal": (lambda x: pt.log(0.5 * (1 + pt.erf(-x * ROOT))), (-2, 1.7)),
    "weights": (lambda x: x / x.sum(), (-30, -10)),
    "sinc": (lambda x: pt.sin(x) / x, (-30, 0)),
    "hazard": (lambda x: pt.exp(-pt.sqr(x) / 2) / pt.erfc(x * ROOT), (-2, 1)),
    "Coulomb": (lambda x: 9e9 * (1.6e-19 * 1e10) ** 2 / (x * x), (-14, -2)),
    "quotient of logarithms": (lambda x: pt.log(1 - x) / pt.log(1 + x), (-16, -1)),
    "small root": (lambda x: pt.sqrt(x) * 3, (-44, -20)),
    "small logarithm": (lambda x: pt.log(x) / 3, (-44, -20)),
    "log of a product": (lambda x: pt.log(pt.abs(x).prod()), (-2, 0)),
    "log of small factors": (lambda x: pt.log(pt.abs(x)[:1].prod()), (-37, -30)),
    "geometric mean": (lambda x: pt.exp(pt.log(x).mean()), (-30, 30)),
    "norm": (lambda x: pt.sqrt(pt.sqr(x).sum()), (-10, 10)),
    "unit vector": (lambda x: x / pt.sqrt(pt.sqr(x).sum()), (-10, 10)),
    "softmax": (lambda x: pt.exp(x) / pt.exp(x).sum(), (-3, 1.5)),
    "logits": (lambda x: pt.log(pt.sigmoid(-x)), (-10, 3)),
    "sigmoid": (lambda x: 1 / (1 + pt.exp(-x)), (-10, 1.8)),
    "tanh": (lambda x: (pt.exp(x) - pt.exp(-x)) / (pt.exp(x) + pt.exp(-x)), (-3, 1.5)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMULAS)
def test_what_was_right_stays_right(name, dtype):
    """Value and gradient, for numbers of all sizes of a range."""
    formula, (low, high) = FORMULAS[name]
    eps = float(np.finfo(dtype).eps)
    x = pt.vector("x", dtype=dtype)
    old = formula(x)
    (new,) = stabilize(old).apply()
    assert new.type == old.type
    pairs = [(v, pytensor.grad(v.sum(), x)) for v in (old, new)]
    functions = [pytensor.function([x], list(pair), mode=DEFAULT) for pair in pairs]
    rng = np.random.default_rng(0)
    for _ in range(12):
        given = (10 ** rng.uniform(low, high, 4)).astype(dtype)
        exact = theanoguard.exact(list(pairs[0]), {x: given}, seconds=30)
        for right, *found in zip(exact, *(f(given) for f in functions), strict=True):
            assert set(right.known.ravel()) <= {"number"}
            size = np.max(np.abs(right.mid))  # (a gradient that cancels has few digits)
            default, ours = (np.max(np.abs(v - right.mid)) / size for v in found)
            allowed = 64 * eps * (1 + np.max(np.abs(given)))
            assert not ours > 2 * default + allowed, (given, found, right.mid)


def test_only_floors_that_are_asked_for():
    x = pt.dvector("x")
    graph = pt.log(x) / x + pt.sqrt(x)
    assert not stabilize(graph).replacements
    forms = {replacement.form for replacement in stabilize(graph, floors=True).replacements}
    assert forms == {"log", "divide", "sqrt"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_round_as_the_plain_formula(dtype):
    """Where no square overflows or underflows, the norm has the same bits."""
    x = pt.matrix("x", dtype=dtype)
    plain = pt.sqrt(pt.sqr(x).sum(axis=1))
    (ours,) = stabilize(plain).apply()
    assert ours is not plain
    given = (10 ** np.random.default_rng(0).uniform(-6, 6, (50, 3))).astype(dtype)
    f = pytensor.function([x], [plain, ours], mode=DEFAULT)
    np.testing.assert_array_equal(*f(given))


def test_a_form_inside_of_another_formula():
    """The default mode replaces these as a whole, so the forms must do it as well."""
    x, y = pt.dvectors("x", "y")
    shares = (
        1 / (1 + pt.exp(-x)),
        pt.exp(x) / (1 + pt.exp(x)),
        pt.exp(x) / (pt.exp(y) + pt.exp(x)),
    )
    olds = [pt.log(p) * 2 + pt.log(1 - p) for p in shares]
    olds += [1 - shares[0], pt.log1p(-shares[1]), pt.exp(pt.log(1 - shares[0]))]
    news = stabilize(olds).apply()
    assert not set(olds) & set(news)
    slopes = [pt.stack([pytensor.grad(v.sum(), x) for v in all_]) for all_ in (olds, news)]
    f = pytensor.function([x, y], [pt.stack(olds), pt.stack(news), *slopes], mode=DEFAULT)
    given = {x: np.array([-40.0, -1e-3, 3.0, 40.0]), y: np.array([1.0, 2.0, 0.5, -3.0])}
    old, new, *slopes = f(*given.values())
    exact = theanoguard.exact([pt.stack(olds)], given)[0].mid
    np.testing.assert_allclose(new, exact, rtol=1e-13)
    right = np.isclose(old, exact, rtol=1e-13)
    assert right[0].all() and not right[2].all()  # (the default mode tells the first of them)
    np.testing.assert_allclose(slopes[1][0], slopes[0][0], rtol=1e-13)
    at = 1 / (1 + np.exp(-given[x]))
    np.testing.assert_allclose(slopes[1][[1, 4]], [2 - 3 * at, -at], rtol=1e-12)

    far = [np.array([800.0, -800.0]), np.zeros(2)]
    _, new, _, slope = f(*far)
    np.testing.assert_allclose(new[[0, 1, 2, 4]], [[-800, -1600]] * 3 + [[-800, 0]])
    np.testing.assert_allclose(slope[[0, 1, 2, 4]], [[-1, 2]] * 3 + [[-1, 0]])


@pytest.mark.parametrize(("dtype", "edges"), [("int8", (-128, 127)), ("uint8", (0, 255))])
def test_exponents_of_small_integers_do_not_wrap_around(dtype, edges):
    b, c = (pt.vector(n, dtype=dtype) for n in "bc")
    e, g = pt.exp(b), pt.exp(c)
    olds = [e / g, e / (e + g), pt.log(e * g), pt.log(e / g), pt.log(1 - pt.sigmoid(b))]
    news = stabilize(olds).apply()
    assert not set(olds) & set(news)
    one, other = np.array(edges, dtype), np.array(edges[::-1], dtype)
    found = pytensor.function([b, c], news, mode=DEFAULT)(one, other)
    x, y = one.astype(float), other.astype(float)
    with np.errstate(all="ignore"):
        right = [np.exp(x - y), 1 / (1 + np.exp(y - x)), x + y, x - y, -np.logaddexp(0, x)]
        right = [r.astype("float32") for r in right]
    for value, expected in zip(found, right, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-37)
    squares = pt.sqrt((b**2).sum())  # (of the dtype, in which they wrap around)
    assert stabilize(squares).apply() == [squares]
