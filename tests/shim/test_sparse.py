"""Sparse matrices under the shim are what is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import pytest
from shim_compare import assert_as_recorded, parametrize

pytestmark = pytest.mark.on_30


@pytest.mark.parametrize(("section", "case"), parametrize("sparse"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


def test_formats_are_different_types(shim):
    """As in Theano's own ``test_sparse_tensor_error``."""
    columns = shim.sparse.matrix("csc", dtype="float64")
    rows = shim.sparse.matrix("csr", dtype="float64")
    with pytest.raises(TypeError):
        shim.ifelse.ifelse(shim.tensor.iscalar(), columns, rows)
