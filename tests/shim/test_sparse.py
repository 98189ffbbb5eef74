"""Sparse matrices under the shim are what is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import numpy as np
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


@pytest.mark.parametrize("interface", ["sparse_grad", "Op"])
def test_sparse_gradient_of_rows(interface, shim):
    T = shim.tensor
    x, rows = T.dmatrix("x"), T.ivector("rows")
    if interface == "Op":
        part = T.AdvancedSubtensor1(sparse_grad=True)(x, rows)
    else:
        part = shim.sparse_grad(x[rows])
    gradient = shim.function([x, rows], T.grad((part**2).sum(), x))
    value = np.arange(12.0).reshape(4, 3)
    found = gradient(value, [1, 3, 1])
    assert found.format == "csc"
    expected = np.zeros((4, 3))
    np.add.at(expected, [1, 3, 1], 2 * value[[1, 3, 1]])
    np.testing.assert_array_equal(found.toarray(), expected)
    t = T.dtensor3("t")
    with pytest.raises(TypeError, match="sparse grad"):
        T.grad(T.AdvancedSubtensor1(sparse_grad=True)(t, rows).sum(), t)


@pytest.mark.parametrize("mode", ["full", "valid"])
@pytest.mark.parametrize(("channels", "step"), [(1, (1, 1)), (2, (3, 2))])
def test_convolution_of_rows(mode, channels, step, shim):
    """As Theano 1.0.5: no kernel is flipped, and the step of the columns comes first."""
    from theano.sparse.sandbox import sp

    rng = np.random.default_rng(0)
    images, kernels = rng.normal(size=(3, channels, 7, 6)), rng.normal(size=(4, channels, 3, 2))
    bias = rng.normal(size=4)
    added = shim.tensor.constant(bias)
    rows, columns = shim.tensor.dmatrices("rows", "columns")
    shape = (channels, 7, 6) if channels > 1 else (7, 6)
    result, found_shape = sp.convolve(columns, (3, 2), 4, rows, shape, step, bias=added, mode=mode)
    found = shim.function([columns, rows], result)(kernels.reshape(4, -1), images.reshape(3, -1))
    more = ((2, 2), (1, 1)) if mode == "full" else ((0, 0), (0, 0))
    padded = np.pad(images, ((0, 0), (0, 0), *more))
    parts = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))
    parts = parts[:, :, :: step[1], :: step[0]]
    expected = np.einsum("ncijhw,kchw->nkij", parts, kernels) + bias[:, None, None]
    np.testing.assert_allclose(found, expected.reshape(3, -1))
    assert tuple(found_shape) == expected.shape[1:]


def test_maxima_of_rows(shim):
    """As Theano 1.0.5: parts that are not square overlap."""
    from theano.sparse.sandbox import sp

    images = np.random.default_rng(0).normal(size=(3, 2, 7, 6))
    rows = shim.tensor.dmatrix("rows")
    result, shape = sp.max_pool(rows, (2, 7, 6), (3, 2))
    parts = np.lib.stride_tricks.sliding_window_view(images, (3, 2), (2, 3))[:, :, ::2, ::3]
    found = shim.function([rows], result)(images.reshape(3, -1))
    np.testing.assert_array_equal(found, parts.max(axis=(4, 5)).reshape(3, -1))
    assert tuple(shape) == (3, 2)
