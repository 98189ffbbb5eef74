"""Exact values beside the values of a call: decisions, and single elements."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

from theanoguard._exact import evaluate

pytestmark = pytest.mark.on_30

PYTHON = Mode("py", None)

x = pt.dvector("x")
a = pt.dmatrix("a")
b = pt.dmatrix("b")
k = pt.lvector("k")


def values_of_call(outputs, given):
    """The floating-point values of all variables of a graph, computed as it stands."""
    variables = [v for v in ancestors(outputs) if v.owner is not None]
    f = pytensor.function(list(given), variables, mode=PYTHON, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        return {**given, **dict(zip(variables, f(*given.values()), strict=True))}


def evaluated(output, given, index, **limits):
    live = values_of_call([output], given)
    [found] = evaluate([output], given, live=live.get, elements=[index], **limits)
    return found


GIVEN = {
    x: np.array([0.5, -1.0, 2.0]),
    a: np.arange(12.0).reshape(4, 3) / 7,
    b: np.arange(15.0).reshape(3, 5) / 3,
    k: np.array([2, 0, 1, 1]),
}
PARTS = {
    "elementwise": pt.exp(a) * x - 1,
    "broadcast": x[:, None] + b[0],
    "row sums": pt.exp(a).sum(axis=1),
    "maxima": (a * x).max(axis=0),
    "softmax": pt.special.softmax(a * x, axis=1),
    "log_softmax of columns": pt.special.log_softmax(a, axis=0),
    "product": pt.dot(pt.exp(a), b + 1),
    "vector product": pt.dot(pt.exp(a), x),
    "transposed": pt.dot(b.T, pt.exp(a).T),
    "indexed": pt.exp(a)[pt.arange(a.shape[0]), k] ** 2,
    "reversed": pt.exp(x)[::-1] + 1,
    "joined": pt.concatenate([pt.exp(x), x[:2]]) * 3,
    "written": pt.set_subtensor(pt.exp(x)[1], 5.0) + 1,
    "incremented": pt.inc_subtensor(pt.exp(x)[k], pt.exp(a[:, 0])) + 1,
    "cumulated": pt.cumsum(pt.exp(a), axis=0) * 2,
    "reshaped": pt.exp(a).reshape((3, 4)) + 1,
    "chosen": pt.switch(a > 0.5, pt.log(a), -a),
    "gradient": pytensor.grad(pt.special.log_softmax(a, axis=1)[pt.arange(a.shape[0]), k].sum(), a),
    "normalized": (a - a.mean(axis=0)) / a.std(axis=0),
}


@pytest.mark.parametrize("name", PARTS)
def test_an_element_is_what_it_is_in_the_whole(name):
    output = PARTS[name]
    [whole] = evaluate([output], GIVEN)
    for index in np.ndindex(*whole.value.shape):
        part = evaluated(output, GIVEN, index)
        assert str(part) == whole.__class__(whole.value[(*index, ...)]).text()


LARGE = {
    x: np.linspace(0, 1, 300),
    a: np.ones((200, 300)),
    b: np.ones((300, 400)),
    k: np.arange(200),
}


@pytest.mark.parametrize(
    "name", ["elementwise", "softmax", "product", "row sums", "gradient", "indexed"]
)
def test_work_is_for_the_elements_asked_for(name):
    """All elements of these are beyond the limit."""
    output = PARTS[name]
    index = (3,) * output.type.ndim
    [whole] = evaluate([output], LARGE, work=30_000)
    assert (whole.known == "unknown").all()
    part = evaluated(output, LARGE, index, work=30_000)
    assert part.known == "number"


def test_decisions_are_those_of_the_call():
    """The exact sum is larger than 1, and rounds to 1."""
    total = pt.switch(x[0] + 1 > x[1], 10.0, 20.0)
    given = {x: np.array([1e-17, 1.0, 0.0])}
    assert str(evaluate([total], given)[0]) == "10"
    found = evaluated(total, given, None)
    assert found.mid == 20
    assert [note.kind for note in found.notes] == ["decision"]


def test_steps_are_those_of_the_call():
    steps = pt.floor(x[0] + x[1])
    given = {x: np.array([1.0, -1e-17, 0.0])}
    assert evaluate([steps], given)[0].mid == 0
    found = evaluated(steps, given, None)
    assert found.mid == 1
    assert [note.kind for note in found.notes] == ["decision"]


def test_a_draw_takes_its_value_of_the_call():
    draw = pt.random.normal(0, 1, size=3, rng=pytensor.shared(np.random.default_rng(1)))
    output = pt.exp(draw * 1000)
    live = values_of_call([output], {})
    [found] = evaluate([output], {}, live=live)
    np.testing.assert_allclose([float(v.log()) for v in found.value], live[draw] * 1000, rtol=1e-15)
    assert [note.kind for note in found.notes] == ["live"]
