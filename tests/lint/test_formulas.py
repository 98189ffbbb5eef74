"""A finding whose arithmetic lost the value: the formula to write is right at the witness."""

import numpy as np
import pytensor.tensor as pt
import pytest

import theanoguard
from theanoguard import lint

pytestmark = pytest.mark.on_30

v, w = pt.dvectors("v", "w")
E = pt.exp(v)
BY_RULE = {
    "log of a complement": (pt.log(1 - pt.sigmoid(v)), {}),
    "softplus": (pt.log(1 + E), {}),
    "softmax": (E / E.sum(), {}),
    "logistic": (E / (1 + E), {}),
    "normal tail": (pt.log(0.5 * (1 + pt.erf(v / np.sqrt(2)))), {v: (-50, 50)}),
    "norm": (pt.sqrt((v**2).sum()), {v: (1e190, 1e200)}),
    "sum of logarithms": (pt.log(v.prod()), {v: (1e-200, 1e-150)}),
    "difference in logarithms": (pt.log(pt.exp(v) - pt.exp(w)), {v: (750, 800), w: (710, 740)}),
}


@pytest.mark.parametrize("name", BY_RULE)
def test_the_formula_is_right_at_the_witness(name):
    formula, bounds = BY_RULE[name]
    found = lint(formula, mode="FAST_COMPILE", bounds=bounds)
    written = [one for one in found if " in place of " in one.write]
    assert written, found
    for finding in written:
        code = finding.write.partition(" in place of ")[0]
        names = {"pt": pt, "np": np, "theanoguard": theanoguard, "v": v, "w": w}
        given = {
            u: finding.witness.inputs[u.name] for u in (v, w) if u.name in finding.witness.inputs
        }
        new = eval(code, names)  # noqa: S307
        right = theanoguard.exact(formula, given)
        np.testing.assert_allclose(new.eval(given), right.mid, rtol=1e-9, atol=1e-300)
