"""Tensors under the shim behave as it is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import base64
import pickle

import numpy as np
import pytest
from shim_compare import RECORDED, assert_as_recorded, parametrize

# The expressions that give something else, with the reason.
DIFFERENT = {
    "T.split(v, [1, 2], 2)": "PyTensor knows from the sizes that a part is broadcastable",
    "T.split(x, [1, 1], 2, 1)": "as above",
    "T.Split(2)(x, 0, [1, 2])": "as above",
    "x[None]": "Theano refuses a new axis that is not followed by all others",
}


@pytest.mark.parametrize(("section", "case"), parametrize("tensor", "linalg", "scalar"))
def test_as_recorded(section, case, shim):
    if case in DIFFERENT:
        with pytest.raises(AssertionError):
            assert_as_recorded(shim, section, case)
        return
    assert_as_recorded(shim, section, case)


@pytest.fixture
def loaded(shim):
    """What pickles that Theano 1.0.5 wrote give."""
    pickles = RECORDED["pickles"]
    return {name: pickle.loads(base64.b64decode(text)) for name, text in pickles.items()}


def test_pickled_types(shim, loaded):
    matrix, row, number, sparse = loaded["types"]
    assert matrix == shim.tensor.fmatrix
    assert row == shim.tensor.drow
    assert number == shim.scalar.float32
    assert sparse == shim.sparse.csr_matrix().type
    assert pickle.loads(pickle.dumps(row)) == row


def test_pickled_shared_variables(shim, loaded):
    shared, row, number = (loaded[name] for name in ("shared", "row", "number"))
    assert (shared.name, shared.dtype, row.broadcastable) == ("w", "float32", (True, False))
    update = [(shared, shared + 1)]
    function = shim.function([], [shared * number, row], updates=update, mode="FAST_COMPILE")
    scaled, _ = function()
    np.testing.assert_array_equal(scaled, np.full((2, 3), 2.5))
    np.testing.assert_array_equal(shared.get_value(), np.full((2, 3), 2.0))


def test_a_pickled_expression(shim, loaded):
    (x,) = (v for v in shim.gof.graph.inputs([loaded["expression"]]) if v.name == "x")
    function = shim.function([x], [loaded["expression"], loaded["constant"]], mode="FAST_COMPILE")
    value = np.array([[0.5, -1.0], [2.0, 0.0]])
    total, constant = function(value)
    np.testing.assert_allclose(total, np.tanh(value + 1).sum())
    np.testing.assert_array_equal(constant, [0, 1, 2])
