"""Sparse matrices under the shim are what is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import pytest
from shim_compare import assert_as_recorded, parametrize


@pytest.mark.parametrize(("section", "case"), parametrize("sparse"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)
