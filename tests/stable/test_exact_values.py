"""The stable functions against the exact values of the plain formulas, over the whole domain."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from flint import arb
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import stabilize, stable

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
IN_PYTHON = Mode("py", "fast_run")
DTYPES = ("float32", "float64")
ROWS, WIDTH = 300, 4


def spread(rng, dtype, signed=True, top=1.0, shape=(ROWS, WIDTH)):
    """Numbers of all sizes of a dtype, up to a power of the largest one."""
    limits = np.finfo(dtype)
    low, high = np.log2(float(limits.smallest_subnormal)), np.log2(float(limits.max)) * top
    sizes = 2.0 ** rng.uniform(low, high - 1e-3, shape)
    return (sizes * rng.choice([-1, 1], shape) if signed else sizes).astype(dtype)


def logits(rng, dtype):
    """Rows of numbers of all sizes, and rows of numbers near each other."""
    wide = spread(rng, dtype)
    wide[::2] = rng.normal(0, 10, wide[::2].shape)
    wide[::6] = rng.normal(0, 300, wide[::6].shape)
    return wide


def probabilities(rng, dtype):
    eps = stable.default_eps("log", dtype)
    chosen = np.exp(rng.uniform(np.log(eps) * 0.999, 0, (ROWS, WIDTH)))
    chosen[::2] = rng.uniform(0.01, 0.99, chosen[::2].shape)
    return chosen.astype(dtype)


def targets(rng, dtype):
    return rng.choice([0.0, 1.0, 0.25, 0.9], (ROWS, WIDTH)).astype(dtype)


@dataclass(frozen=True)
class Form:
    """A stable function, the formula that it stands for, and where it is tested.

    Parameters
    ----------
    ours, plain : callable
    inputs : list of callable
        ``draw(rng, dtype)`` returns the values of an input.
    scale : callable
        What the stated number of ulp is multiplied with, from the inputs.
    unit : callable
        The number whose ulp is meant, from the exact value.
    """

    ours: Any
    plain: Any
    inputs: list
    scale: Any = field(default=lambda *inputs: 1)
    unit: Any = field(default=abs)


def _row_softmax(x):
    return pt.exp(x) / pt.exp(x).sum(axis=1, keepdims=True)


def _at_least_1(value):
    return np.maximum(np.abs(value), 1)


def _picked(x):
    return x[pt.arange(x.shape[0]), pt.zeros(x.shape[0], dtype="int64")]


def above(name):
    def draw(rng, dtype):
        eps = stable.default_eps(name, dtype)
        drawn = spread(rng, dtype, signed=name == "divide")
        return np.where(np.abs(drawn) < eps, drawn.dtype.type(2 * eps), drawn)

    return draw


FORMS = {
    "log": Form(stable.log, pt.log, [above("log")]),
    "sqrt": Form(stable.sqrt, pt.sqrt, [above("sqrt")]),
    "divide": Form(stable.divide, lambda x, y: x / y, [spread, above("divide")]),
    "norm": Form(
        lambda x: stable.norm(x, axis=1), lambda x: pt.sqrt(pt.sqr(x).sum(axis=1)), [spread]
    ),
    "logsumexp": Form(
        lambda x: stable.logsumexp(x, axis=1),
        lambda x: pt.log(pt.exp(x).sum(axis=1)),
        [logits],
        unit=_at_least_1,
    ),
    "softmax": Form(
        lambda x: stable.softmax(x, axis=1),
        _row_softmax,
        [logits],
        scale=lambda x: 1 + np.minimum(np.max(x, axis=1, keepdims=True) - x, 1000),
    ),
    "log_softmax": Form(
        lambda x: stable.log_softmax(x, axis=1),
        lambda x: pt.log(_row_softmax(x)),
        [logits],
        unit=_at_least_1,
    ),
    "binary_crossentropy": Form(
        lambda z, t: stable.binary_crossentropy(z, t, from_logits=True),
        lambda z, t: -t * pt.log(pt.sigmoid(z)) - (1 - t) * pt.log(pt.sigmoid(-z)),
        [logits, targets],
    ),
    "binary_crossentropy of probabilities": Form(
        stable.binary_crossentropy,
        lambda p, t: -t * pt.log(p) - (1 - t) * pt.log(1 - p),
        [probabilities, targets],
    ),
    "categorical_crossentropy": Form(
        lambda x: stable.categorical_crossentropy(
            x, pt.zeros(x.shape[0], dtype="int64"), from_logits=True
        ),
        lambda x: -pt.log(_picked(_row_softmax(x))),
        [logits],
        unit=_at_least_1,
    ),
}


def errors(form, dtype, seed=0):
    """The errors of a form in units of its last place, times what its docstring allows for."""
    rng = np.random.default_rng(seed)
    values = [draw(rng, dtype) for draw in form.inputs]
    inputs = [pt.tensor(dtype=dtype, shape=(None, None)) for _ in values]
    compute = pytensor.function(inputs, form.ours(*inputs), mode=IN_PYTHON)
    given = dict(zip(inputs, values, strict=True))
    exact = theanoguard.exact(form.plain(*inputs), given, work=1e8, seconds=60)
    found = compute(*values)
    assert found.dtype == dtype
    assert set(exact.known.ravel()) <= {"number"}
    limits = np.finfo(dtype)
    inside = np.abs(exact.mid) <= limits.max  # (beyond, Inf is the nearest float)
    assert (np.isinf(found) | inside).all()
    distance = [
        float(abs(ball - arb(float(ours)))) if is_inside else 0.0
        for ball, ours, is_inside in zip(exact.value.flat, found.flat, inside.flat, strict=True)
    ]
    unit = np.spacing(form.unit(np.where(inside, exact.mid, 1)).astype(dtype)).astype(float)
    scale = form.scale(*(v.astype(float) for v in values))
    return np.reshape(distance, found.shape) / (unit * scale)


def stated(name):
    """The number of ulp that a docstring states."""
    function = getattr(stable, name.partition(" ")[0])
    text = " ".join(function.__doc__.split())
    return float(re.search(r"at most ([\d.]+) ulp", text)[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMS)
def test_error_is_what_the_docstring_states(name, dtype):
    largest = errors(FORMS[name], dtype).max()
    assert largest <= stated(name)
    assert largest > stated(name) / 8  # (the statement says something)


LIMIT = 50.0


def _size_of_difference(x, y):
    return 1 + np.abs(x) + np.abs(y)


def _size_against_sum(x, y):
    """For exp(y) / sum(exp(x)): the largest element of x is at most log(4) from logsumexp(x)."""
    return _size_of_difference(np.max(x, axis=1, keepdims=True), y)


# exp(x) / exp(y), where each may be a sum: the formula, and 1 + abs(x) + abs(y) of its logarithms.
QUOTIENTS = {
    "of exponentials": (
        lambda x: pt.exp(x[:, :2]) / pt.exp(x[:, 2:]),
        lambda x: _size_of_difference(x[:, :2], x[:, 2:]),
    ),
    "by a sum": (
        lambda x: pt.exp(pt.clip(x, -LIMIT, LIMIT)) / pt.exp(x).sum(axis=1, keepdims=True),
        lambda x: _size_against_sum(x, np.clip(x, -LIMIT, LIMIT)),
    ),
    "of a sum": (
        lambda x: pt.exp(x).sum(axis=1, keepdims=True) / pt.exp(x),
        lambda x: _size_against_sum(x, x),
    ),
    "by a sum of two": (
        lambda x: x[:, :2] * pt.exp(x[:, :2]) / (1 + pt.exp(x[:, :2])),
        lambda x: _size_of_difference(x[:, :2], np.maximum(x[:, :2], 0)),
    ),
    "of a weighted sum": (
        lambda x: (np.arange(4, dtype="int8") * pt.exp(x)).sum(axis=1) / pt.exp(x).sum(axis=1),
        lambda x: 1 + np.max(np.abs(x), axis=1),
    ),
    "of two sums": (
        lambda x: pt.exp(x[:, :2]).sum(axis=1) / pt.exp(x).sum(axis=1),
        lambda x: _size_of_difference(np.max(x[:, :2], axis=1), np.max(x, axis=1)),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotient_of_exponentials_has_the_error_of_the_docs(name, dtype):
    plain, scale = QUOTIENTS[name]

    def ours(x):
        found = stabilize(plain(x))
        assert [replacement.form for replacement in found.replacements] == ["exp of a difference"]
        return found.apply()[0]

    largest = errors(Form(ours, plain, [logits], scale=scale), dtype).max()
    assert 4 / 8 < largest <= 4


def _totals(x):
    """The sum of the exponentials of four rows each."""
    groups = pt.arange(x.shape[0]) // 4
    return pt.inc_subtensor(pt.zeros_like(x)[groups], pt.exp(x))[groups]


STABILIZED = {
    "logsumexp": (lambda x: pt.log(pt.exp(x).sum(axis=1)), _at_least_1),
    "log of a softmax": (lambda x: pt.log(pt.special.softmax(x, axis=1)), _at_least_1),
    "negative log-likelihood": (
        lambda x: -pt.log(_picked(pt.special.softmax(x, axis=1))),
        _at_least_1,
    ),
    "log of a mean of exp": (lambda x: pt.log(pt.exp(x).mean(axis=1)), _at_least_1),
    "norm": (lambda x: pt.sqrt(pt.sqr(x).sum(axis=1)), np.abs),
    "log of a sigmoid": (lambda x: pt.log(pt.sigmoid(x)), np.abs),
    "log of 1 - sigmoid": (lambda x: pt.log(pt.sigmoid(-x)), np.abs),
    "log of 1 + exp": (lambda x: pt.log(1 + pt.exp(x)), np.abs),
    "log1p of exp": (lambda x: pt.log1p(pt.exp(x)), np.abs),
    "log of a sum of exps": (lambda x: pt.log(pt.exp(x) + pt.exp(x[:, ::-1])), _at_least_1),
    "log of 1 and a sum": (lambda x: pt.log(1 + pt.exp(x).sum(axis=1)), _at_least_1),
    "log of a mixture": (
        lambda x: pt.log(0.25 * pt.exp(x) + 0.75 * pt.exp(x[:, ::-1])),
        _at_least_1,
    ),
    "log of a weighted sum": (
        lambda x: pt.log((np.arange(1, 5, dtype="int8") * pt.exp(x)).sum(axis=1)),
        _at_least_1,
    ),
    "log of a multiple of exp": (lambda x: pt.log(3 * pt.exp(x)), _at_least_1),
    "log of totals by groups": (lambda x: pt.log(_totals(x)), _at_least_1),
    "log cosh": (lambda x: pt.log((pt.exp(x) + pt.exp(-x)) / 2), _at_least_1),
    "root of exp that may be flushed": (
        lambda x: pt.sqrt(pt.exp(pt.clip(x, np.float32(-740), np.float32(80)))),
        np.abs,
    ),
    "root of exp": (lambda x: pt.sqrt(pt.exp(x)), np.abs),
}


PRODUCTS = {
    "factors from 0": pt.abs,
    "positive factors": lambda x: pt.maximum(x, np.float32(1e-30)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_log_of_a_product_has_the_error_of_the_docs(name, dtype):
    def plain(x):
        return pt.log(PRODUCTS[name](x).prod(axis=1))

    def ours(x):
        found = stabilize(plain(x))
        assert [replacement.form for replacement in found.replacements] == ["sum of logs"]
        return found.apply()[0]

    def sizes(x):
        return np.abs(np.log(np.abs(x))).sum(axis=1)

    form = Form(ours, plain, [above("log")], scale=sizes, unit=np.ones_like)
    largest = errors(form, dtype).max()
    assert 1 / 8 < largest <= 1


# Where the formula as written needs more digits than there are: 1e38 of them.
WRITTEN = {"log of 1 - sigmoid": lambda x: pt.log(1 - pt.sigmoid(x))}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STABILIZED)
def test_stabilized_graph_has_the_exact_value(name, dtype):
    plain, unit = STABILIZED[name]
    written = WRITTEN.get(name, plain)

    def ours(x):
        found = stabilize(written(x))
        assert found.replacements
        return found.apply()[0]

    assert errors(Form(ours, plain, [logits], unit=unit), dtype).max() <= 4


GRADIENTS = {
    name: FORMS[name] for name in ("log", "sqrt", "norm", "logsumexp", "softmax", "log_softmax")
} | {"binary_crossentropy": FORMS["binary_crossentropy"]}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_has_the_exact_value(name, dtype):
    """Up to a few units in the last place of the largest element of a row."""
    form = GRADIENTS[name]
    rng = np.random.default_rng(1)
    values = [draw(rng, dtype) for draw in form.inputs]
    if name == "norm":  # PyTensor multiplies x with the gradient by the norm
        values[0] = spread(rng, dtype, top=0.9)
    if form.inputs[0] is logits:
        values[0] = rng.normal(0, 10, values[0].shape).astype(dtype)
    inputs = [pt.tensor(dtype=dtype, shape=(None, None)) for _ in values]

    def slope(function):
        result = function(*inputs)
        weights = (pt.arange(result.size) % 5 + 1).reshape(result.shape).astype(dtype)
        return pytensor.grad((result * weights).sum(), inputs[0])

    found = pytensor.function(inputs, slope(form.ours), mode=IN_PYTHON, on_unused_input="ignore")
    given = dict(zip(inputs, values, strict=True))
    exact = theanoguard.exact(slope(form.plain), given, work=1e8, seconds=60)
    largest = np.max(np.abs(exact.mid), axis=1, keepdims=True)
    if name == "softmax":
        largest = np.maximum(largest, 1)  # a difference of numbers near 1
    elif name == "norm":  # below the smallest normal number it has few digits
        largest[np.max(np.abs(values[0]), axis=1) < 1e4 * np.finfo(dtype).tiny] = np.inf
    wrong = np.abs(found(*values).astype(float) - exact.mid) / largest
    assert wrong.max() <= 300 * np.finfo(dtype).eps
