"""An Inf that is no error, and what operations make of it; an Inf that counts wherever it is."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from guarding import trip
from pytensor.scalar import math as psm
from pytensor.tensor.elemwise import Elemwise

from theanoguard import GuardMode, events_of
from theanoguard.guard.c import build
from theanoguard.operations import Kind
from theanoguard.operations.facts import SCALARS

pytestmark = pytest.mark.usefixtures("needs_cxx", "c_backend")

# The operations of the tables on one number.
UNARY = {
    type(op).__name__: op
    for module in (ps, psm)
    for op in vars(module).values()
    if isinstance(op, ps.UnaryScalarOp) and type(op) in SCALARS and type(op) is not ps.Cast
}


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("float64", marks=pytest.mark.on_33),
        pytest.param("float32", marks=pytest.mark.on_30),
    ],
)
@pytest.mark.parametrize("flags", [True, False])
def test_a_nan_that_is_made_of_an_allowed_infinity(flags, dtype, monkeypatch):
    """The operations that make nothing bad of finite numbers, with and without exception flags."""
    if not flags:
        monkeypatch.setattr(build, "load", lambda: None)
    x = pt.vector("x", dtype=dtype)
    harmless = {name: op for name, op in UNARY.items() if SCALARS[type(op)].makes is Kind.NONE}
    assert {"Sin", "Cos", "Tanh", "Abs"} <= harmless.keys()
    outputs = [Elemwise(op)(x) for op in harmless.values()] + [pt.special.softmax(x)]
    mode = GuardMode(True, False, False, action="record").excluding("fusion")
    f = pytensor.function([x], outputs, mode=mode)
    for infinity in (np.inf, -np.inf):
        f(np.ones(3, dtype))
        results = f(np.array([1, infinity, 2], dtype))
    made = {
        name for name, y in zip([*harmless, "Softmax"], results, strict=True) if any(np.isnan(y))
    }
    assert made == {"Sin", "Cos"} or made == {"Sin", "Cos", "Softmax"}
    assert made <= {event.op for event in events_of(f)}
    assert {event.kind for event in events_of(f)} == {"nan"}


DEEP = [pytest.mark.deep, pytest.mark.on_30]
x = pt.dvector("x")
CHOSEN = pt.switch(x > 0, x, np.inf)
HIDING = {
    **{
        name: Elemwise(op)(CHOSEN)
        for name, op in UNARY.items()
        if all(Kind.INF not in kinds for kinds in SCALARS[type(op)].carries)
        and type(op) not in (ps.IsNan, ps.IsInf)
        and getattr(SCALARS[type(op)].domain, "below", 1) > 0
    },
    "maximum of a logarithm": pt.maximum(pt.log(pt.maximum(x, 0)), -5),
    "minimum": pt.minimum(CHOSEN, 5),
    "clip": pt.clip(CHOSEN, 0, 1),
    "divisor": 1 / CHOSEN,
    "comparison": CHOSEN > 5,
    "logistic function": 1 / (2 + pt.exp(-1000 * x)),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("Tanh", "clip", "divisor") else DEEP)
        for name in HIDING
    ],
)
def test_any_reports_an_infinity_that_a_fused_operation_hides(name):
    for fused in (True, False):
        mode = GuardMode(True, "any", False)
        f = pytensor.function([x], HIDING[name], mode=mode if fused else mode.excluding("fusion"))
        f(np.array([0.5, 0.25]))
        assert trip(f, np.array([0.5, -1.0])).kind in ("inf", "nan")
    assert pytensor.function([x], HIDING[name], mode=GuardMode())(np.array([0.5, 0.25])) is not None


def test_any_reports_no_infinity_of_a_branch_that_is_not_chosen():
    f = pytensor.function(
        [x], pt.switch(x > 0, pt.tanh(pt.log(x)), x), mode=GuardMode(True, "any", False)
    )
    assert f(np.array([0.0, 1.0])).tolist() == [0.0, 0.0]
