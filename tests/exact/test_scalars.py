"""The rules of scalar operations against their floating-point functions."""

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytest
from flint import arb, ctx

from theanoguard._exact.balls import kind_of
from theanoguard._exact.scalars import RULES, SUMMING, of_elements

OPS = {
    type(op): op
    for module in (ps.basic, psm)
    for op in vars(module).values()
    if isinstance(op, ps.ScalarOp)
}
ALL_RULES = {**RULES, **SUMMING}
# Operations of more than one operand: what each operand may be.
SIZES = np.array([1e-8, 1e-3, 0.1, 0.5, 0.9, 1.0, 1.5, 3.0, 7.5, 20.0, 700.0])
REAL = np.concatenate([-SIZES, [0.0], SIZES])
POSITIVE = SIZES[SIZES < 50]
UNIT = np.array([0.01, 0.3, 0.5, 0.8, 0.99])
ORDERS = np.array([0.0, 0.5, 1.0, 2.0, 3.5])
OPERANDS = {
    ps.Clip: (REAL, np.array([-1.0, 0.5]), np.array([1.0, 2.0])),
    ps.Mod: (REAL, np.array([-2.5, 0.75, 3.0])),
    psm.PolyGamma: (np.array([0.0, 1.0, 2.0, 4.0]), POSITIVE),
    psm.GammaInc: (POSITIVE, POSITIVE),
    psm.GammaIncC: (POSITIVE, POSITIVE),
    psm.GammaIncInv: (np.array([0.5, 2.0, 7.5]), UNIT),
    psm.GammaIncCInv: (np.array([0.5, 2.0, 7.5]), UNIT),
    psm.BetaInc: (np.array([0.5, 2.0, 7.5]), np.array([0.5, 3.0]), UNIT),
    psm.BetaIncInv: (np.array([0.5, 2.0, 7.5]), np.array([0.5, 3.0]), UNIT),
    psm.Jv: (ORDERS, POSITIVE),
    psm.Ive: (ORDERS, POSITIVE),
    psm.Kve: (ORDERS, POSITIVE),
    psm.Hyp2F1: (np.array([0.5, 2.0]), np.array([1.0, -0.5]), np.array([1.5]), UNIT - 0.5),
    psm.Owens_t: (np.array([-1.0, 0.0, 0.5, 2.0]), np.array([-2.0, 0.0, 0.3, 5.0])),
}
# Functions of SciPy that are less precise than their neighbours, relative to the result.
PRECISION = {psm.NdtriExp: 1e-9, psm.Hyp2F1: 1e-11} if hasattr(psm, "NdtriExp") else {}


def grid(kind):
    """All combinations of values for the operands of an operation."""
    op = OPS[kind]
    values = OPERANDS.get(kind) or (REAL,) * (2 if op.nin < 0 else op.nin)
    return [
        tuple(map(float, point))
        for point in np.stack(np.meshgrid(*values), -1).reshape(-1, len(values))
    ]


def near(op, rule, point, expected):
    """What rounding of the operands may change."""
    moved = [
        of_elements(rule, op, tuple(arb(x * (1 + 4e-16 * (i == j))) for j, x in enumerate(point)))
        for i in range(len(point))
    ]
    changes = [abs(float(m) - expected) for m in moved if m.is_finite()]
    return max([0.0, *changes]) + np.spacing(abs(expected)) * 8


@pytest.mark.parametrize("kind", ALL_RULES, ids=lambda kind: kind.__name__)
def test_rule_agrees_with_floats(kind):
    op, rule = OPS[kind], ALL_RULES[kind]
    compared = 0
    for point in grid(kind):
        with np.errstate(all="ignore"), ctx.workprec(192):
            expected = float(op.impl(*map(np.float64, point)))
            found = of_elements(rule, op, tuple(map(arb, point)))
        label = f"{op}{point}: {found} and {expected}"
        if kind_of(found) == "number" and np.isfinite(expected):
            compared += 1
            with ctx.workprec(192):
                bound = near(op, rule, point, expected) + PRECISION.get(kind, 1e-12) * abs(expected)
            assert abs(float(found) - expected) <= bound, label
        elif kind_of(found) == "none":
            assert np.isnan(expected), label
        elif kind_of(found) == "infinite":
            assert float(found) == expected, label
        elif kind_of(found) == "number":  # too large or too small for float64
            assert not np.isfinite(float(found)) or np.isnan(expected), label
        else:
            assert not np.isfinite(expected) or abs(expected) in (0, 1), label
    assert compared >= 5


@pytest.mark.parametrize("kind", ALL_RULES, ids=lambda kind: kind.__name__)
def test_ball_encloses_the_values_inside(kind):
    op, rule = OPS[kind], ALL_RULES[kind]
    for point in grid(kind)[::3]:
        with ctx.workprec(192):
            wide = of_elements(rule, op, tuple(arb(x, abs(x) * arb(2) ** -60) for x in point))
            inside = of_elements(rule, op, tuple(arb(x) * (1 + arb(2) ** -61) for x in point))
            if kind_of(wide) == "number" and kind_of(inside) == "number":
                assert wide.overlaps(inside), (op, point)


@pytest.mark.parametrize("kind", ALL_RULES, ids=lambda kind: kind.__name__)
def test_more_bits_give_more_digits(kind):
    op, rule = OPS[kind], ALL_RULES[kind]
    for point in grid(kind)[::5]:
        balls = []
        for bits in (192, 600):
            with ctx.workprec(bits):
                balls.append(of_elements(rule, op, tuple(map(arb, point))))
        few, many = balls
        assert kind_of(few) in (kind_of(many), "unknown"), (op, point)
        if kind_of(few) == "number":
            assert few.overlaps(many), (op, point)
            assert many.rad() <= few.rad(), (op, point)
