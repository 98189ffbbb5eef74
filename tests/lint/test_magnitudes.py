"""Inputs of all magnitudes are tried, and a finding says what mends it."""

import numpy as np
import pytensor.tensor as pt
import pytest

from theanoguard import lint

WRITTEN = "FAST_COMPILE"
x, m, s, t = pt.dvector("x"), pt.dmatrix("m"), pt.dscalar("s"), pt.dscalar("t")

# Formulas that fail only for numbers far above 1,000.
LARGE = {
    "asinh": pt.log(pt.sqrt(s**4 + 1) - s**2),
    "angle of a quaternion": 1 / (pt.sqrt(x.sum() ** 4 + 1) - x.sum() ** 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_fault_of_large_numbers_is_found(name):
    found = lint(LARGE[name], mode=WRITTEN, gradient=False)
    kinds = {f.witness.kind: f.witness for f in found if f.witness}
    witness = kinds["arithmetic"]
    assert max(abs(v).max() for v in witness.inputs.values()) > 1e3


SOUND = {
    "least squares": pt.linalg.cholesky(m.T @ m + 1e3 * pt.eye(m.shape[1])),
    "kurtosis": ((x - x.mean()) ** 4).mean() / (1 + ((x - x.mean()) ** 2).mean()) ** 2,
    "a power": s**30 + t**20,
    "softplus": pt.softplus(x).sum() + pt.log1p(x**2).sum(),
    "smooth absolute value": pt.sqrt(s**2 + 1e-6) + pt.arctan(t),
    "softmax": pt.special.log_softmax(x * 1e3),
}


@pytest.mark.parametrize("name", SOUND)
def test_no_finding_in_a_sound_formula(name):
    assert lint(SOUND[name], mode=WRITTEN, gradient=False) == []


# What to write, and what must not be said.
WRITE = {
    "product": (pt.log(x.prod()), "pt.sum(pt.log(x)) in place of log(x.prod())", "negative"),
    "too large": (pt.exp(s) - 1, "The result itself is this large", "softmax"),
    "difference": (pt.sqrt(1 - s), "Find out why it is negative", "E[x^2]"),
    "angle": (pt.arctan2(s, t), "a formula that is smooth there", "Scale"),
}


@pytest.mark.parametrize("name", WRITE)
def test_what_to_write_fits_the_witness(name):
    graph, said, not_said = WRITE[name]
    texts = [f.write for f in lint(graph, mode=WRITTEN, gradient=name == "angle") if f.witness]
    assert any(said in text for text in texts), texts
    assert not any(not_said in text for text in texts), texts


@pytest.mark.on_33
def test_linear_algebra_is_not_compiled_for_numba():
    graph = pt.linalg.cholesky(m @ m.T - 5 * pt.eye(m.shape[0]))
    [found] = lint(graph, mode="NUMBA", gradient=False)
    assert found.witness.mode == "py"
    matrix = found.witness.inputs["m"]
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix @ matrix.T - 5 * np.eye(len(matrix)))
