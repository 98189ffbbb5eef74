"""DebugMode finds nothing in right graphs, as Theano 1.0.5's does."""

import logging

import numpy as np
import pytest
import shim_modes

# Of how many graphs each test compiles one function.
AT_ONCE = 24
# What finite and distinct values an input has, by the number of its dimensions.
GENTLE = {1: [0.3, 0.6, 0.45], 2: [[0.2, 0.7], [0.9, 0.4]]}
# DebugMode raises for these in Theano, too, or they have no gradient.
NOT_FINITE = ["T.arccosh", "T.isinf(1", "T.isnan("]

# SciPy returns another array than the one that it has overwritten, of which PyTensor warns; and a
# machine may have no BLAS.
EXPECTED = ("marked as destroyed was not changed for node 'Gemv{inplace}", "for BLAS functions")


def graphs():
    cases = [case for case in shim_modes.cases() if not any(text in case for text in NOT_FINITE)]
    return [cases[start::AT_ONCE] for start in range(AT_ONCE)]


def gentle(variable, value):
    """A value for an input: labels and one-hot rows as they are, numbers without an extreme."""
    if variable.name in shim_modes.OTHERS:
        return value
    return np.resize(GENTLE[value.ndim], value.shape)


@pytest.mark.slow
@pytest.mark.parametrize("cases", graphs(), ids=lambda cases: cases[0])
def test_graphs_in_debugmode(cases, shim, caplog):
    results, given = [], {}
    for case in cases:
        try:
            result, values = shim_modes.built(shim, case)
        except Exception:  # noqa: S112  what has no gradient; `test_modes` compares which these are
            continue
        results.append(result)
        given |= {variable: gentle(variable, value) for variable, value in values.items()}
    debugging = shim.compile.DebugMode(check_isfinite=False)  # some results are NaN
    found, expected = (
        shim.function([*given], results, mode=mode)(*given.values())
        for mode in (debugging, "FAST_RUN")
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-15)  # gradients that cancel
    messages = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert not [message for message in messages if not any(text in message for text in EXPECTED)]
