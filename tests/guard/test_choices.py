"""Operations that only choose: a NaN among the choices is an error where it is chosen."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend
from pytensor.raise_op import Assert

from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import ifelse

POLICIES = {
    "NaN": {"inf_is_error": False, "big_is_error": False},
    "NaN and Inf": {"big_is_error": False},
    "all": {},
    "any": {"inf_is_error": "any"},
    "result": {"judge": "result"},
}

CHOICES = {
    "switch": lambda x, i, bad: pt.switch(pt.eq(i, 0) & (x > 0), bad, x),
    "where": lambda x, i, bad: pt.where(x > i * 100, bad, x),
    "ifelse": lambda x, i, bad: ifelse(pt.gt(i, 0), x.sum(), pt.constant(np.float64(bad))),
    "ifelse of arrays": lambda x, i, bad: ifelse(pt.gt(i, 0), x, pt.constant([1.0, bad, 2.0])),
    "ifelse, first": lambda x, i, bad: ifelse(pt.eq(i, 0), pt.constant([1.0, bad, 2.0]), x),
    "choose": lambda x, i, bad: pt.choose(pt.stack([i, i, i]), [pt.constant([bad, 1.0, 2.0]), x]),
    "table": lambda x, i, bad: pt.constant([bad, 1.0, 2.0])[i] * x,
    "table, many": lambda x, i, bad: pt.constant([bad, 1.0, 2.0])[pt.stack([i, i])],
    "take": lambda x, i, bad: pt.take(pt.constant([bad, 1.0, 2.0]), pt.stack([i])),
    "checked": lambda x, i, bad: ifelse(pt.gt(i, 0), x, Assert("x")(pt.constant([bad] * 3), i < 9)),
}

X = np.array([1.0, 2.0, 3.0])


def compiled(name, bad, settings):
    x, i = pt.tensor("x", dtype="float64", shape=(3,)), pt.lscalar("i")
    out = CHOICES[name](x, i, bad)
    mode = GuardMode(**settings)
    return pytensor.function([x, i], out, mode=mode, on_unused_input="ignore")


def is_left_out(name):
    if name == "choose" and backend() != "c":
        pytest.skip("PyTensor's choose takes no lists there")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", CHOICES)
def test_a_nan_is_an_error_where_it_is_chosen(name, policy):
    is_left_out(name)
    f = compiled(name, np.nan, POLICIES[policy])
    for _ in range(2):
        assert np.isfinite(f(X, 1)).all()
        with pytest.raises(GuardError, match="NaN") as caught:
            f(X, 0)
        assert caught.value.event.role == "node"


@pytest.mark.parametrize("name", CHOICES)
def test_an_infinity_that_is_chosen_is_an_error_only_if_it_is_one_anywhere(name):
    is_left_out(name)
    f = compiled(name, np.inf, {})
    assert np.isfinite(f(X, 1)).all() and not np.isfinite(f(X, 0)).all()
    f = compiled(name, np.inf, {"inf_is_error": "any"})
    assert np.isfinite(f(X, 1)).all()
    with pytest.raises(GuardError, match="infinity|Inf"):
        f(X, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_always_there_is_still_an_error_in_every_call(policy):
    x = pt.dvector("x")
    f = pytensor.function([x], x + pt.constant([1.0, np.nan]), mode=GuardMode(**POLICIES[policy]))
    with pytest.raises(GuardError) as caught:
        f([1.0, 2.0])
    assert caught.value.event.role == "constant"
