"""Both sides of each identity have the same exact value."""

import numpy as np
import pytest
from flint import ctx

from theanoguard.stable import register_identity
from theanoguard.stable.egraph import Points
from theanoguard.stable.identities import IDENTITIES, Identity, letters, parsed, tidied

pytestmark = pytest.mark.on_33
POINTS, LENGTH = 200, 3


def _drawn(identity, rng):
    """Values of the letters in the domain of an identity, and the axes of its reductions."""
    left, right = identity.terms
    names = sorted(letters(left) | letters(right)) or ["a"]
    is_reduced = "i" in names
    kept = {name: [] for name in names if name != "i"}
    domain = compile(identity.domain, "domain", "eval")
    functions = {"sin": np.sin, "cos": np.cos, "abs": np.abs}
    while len(next(iter(kept.values()), range(POINTS))) < POINTS:
        shape = (4000, LENGTH if is_reduced else 1)
        drawn = {}
        for name in kept:
            sizes = 10 ** rng.uniform(-2, 0.8, shape) * rng.choice([-1, 1], shape)
            drawn[name] = sizes[:, :1] + 0 * sizes if name in identity.fixed else sizes
        inside = eval(domain, {**functions, **drawn})  # noqa: S307
        inside = np.broadcast_to(inside, shape).all(axis=1)
        for name in kept:
            kept[name] += list(drawn[name][inside])
    values = {name: np.array(v[:POINTS]) for name, v in kept.items()}
    for name in identity.fixed:
        values[name] = values[name][:, :1]
    return Points(values, {-1: LENGTH if is_reduced else 1}, np.ones(POINTS))


def _with_axes(term):
    if isinstance(term, tuple):
        return tuple(map(_with_axes, term))
    return (-1,) if term == "i" else term


def _is_same(identity):
    rng = np.random.default_rng(0)
    points = _drawn(identity, rng)
    with ctx.workprec(400):
        left, right = (points.value(_with_axes(t), exact=True) for t in identity.terms)
        left, right, *_ = np.broadcast_arrays(
            left, right, next(iter(points.values.values()))[:, :1]
        )
        pairs = list(zip(left.ravel(), right.ravel(), strict=True))
        assert len(pairs) >= POINTS
        assert all(x.is_finite() and y.is_finite() for x, y in pairs)
        return all(x.overlaps(y) and abs(x - y) <= 1e-60 * (1 + abs(x)) for x, y in pairs)


@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_both_sides_are_the_same_function(identity):
    assert identity.source
    assert _is_same(identity)


def test_a_wrong_identity_is_found():
    assert not _is_same(Identity("sqrt(a**2)", "a"))
    assert not _is_same(Identity("log(a + b)", "log(a) + log(b)", "a > 0, b > 0"))
    assert not _is_same(Identity("sum(i, a * b)", "b * sum(i, a)"))


def test_an_identity_of_the_users_own():
    added = register_identity("sin(3 * a)", "sin(a) * (3 - 4 * sin(a)**2)", source="DLMF 4.21")
    try:
        assert IDENTITIES[-1] is added
        assert _is_same(added)
        assert register_identity("sin(3 * a)", added.right, source="DLMF 4.21") == added
        assert IDENTITIES.count(added) == 1
    finally:
        IDENTITIES.remove(added)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("sin(a) +", "a", "invalid syntax"),
        ("foo(a)", "a", r"foo\(a\) is no formula"),
        ("sin(a)", "sin(b)", "right must have the letters of left"),
    ],
)
def test_what_is_no_identity(left, right, message):
    with pytest.raises(ValueError, match=message):
        register_identity(left, right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 + a", "a"),
        ("a + -1 * b", "a - b"),
        ("a * (1 / b)", "a / b"),
        ("-2 * a + b", "b - 2 * a"),
        ("(a + a) * 1", "2 * a"),
        ("2 * (1 / 2) * a", "a"),
        ("-(a - b)", "b - a"),
    ],
)
def test_a_term_is_tidied(text, expected):
    assert tidied(parsed(text)) == parsed(expected)
