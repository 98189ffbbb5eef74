"""Activations, losses, batch normalization and patches under the shim."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from shim_compare import assert_as_recorded, parametrize

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_33


@pytest.mark.parametrize(("section", "case"), parametrize("nnet"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


def ops_of(function):
    return [type(node.op).__name__ for node in function.maker.fgraph.toposort()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["FAST_RUN", "FAST_COMPILE"])
def test_rows_in_c_and_in_numpy(shim, how, dtype):
    T = shim.tensor
    nnet = T.nnet
    x, b, y = T.matrix(dtype=dtype), T.vector(dtype=dtype), T.ivector()
    nll, sm, argmax = nnet.crossentropy_softmax_argmax_1hot_with_bias(x, b, y)
    outputs = [
        nnet.softmax(x),
        nnet.logsoftmax(x),
        nnet.softmax_with_bias(x, b),
        nll,
        sm,
        argmax,
        T.grad(nll.sum(), x),
        T.grad((nnet.softmax(x) ** 2).sum(), x),
    ]
    function = shim.function([x, b, y], outputs, mode=how)
    rng = np.random.default_rng(0)
    x_value = (40 * rng.normal(size=(4, 6))).astype(dtype)[::-1, ::2]  # not contiguous
    b_value = rng.normal(size=3).astype(dtype)
    labels = np.array([2, 0, 1, 2], dtype="int32")
    found = function(x_value, b_value, labels)
    x_value, b_value = x_value.astype("float64"), b_value.astype("float64")
    s, biased = softmax(x_value, axis=1), softmax(x_value + b_value, axis=1)
    expected = [
        s,
        log_softmax(x_value, axis=1),
        biased,
        -log_softmax(x_value + b_value, axis=1)[np.arange(4), labels],
        biased,
        (x_value + b_value).argmax(axis=1),
        biased - np.eye(3)[labels],
        2 * s * (s - (s**2).sum(axis=1, keepdims=True)),
    ]
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    for value, wanted, output in zip(found, expected, outputs, strict=True):
        assert value.dtype == output.dtype
        np.testing.assert_allclose(value, wanted, tolerance, 10 * tolerance)


@pytest.mark.parametrize("how", ["FAST_RUN", "FAST_COMPILE"])
def test_labels_out_of_bounds(shim, how):
    T = shim.tensor
    x, y = T.matrix(), T.lvector()
    nll, _ = T.nnet.crossentropy_softmax_1hot(x, y)
    function = shim.function([x, y], [nll, T.grad(nll.sum(), x)], mode=how)
    for label in (-1, 2):
        with pytest.raises(ValueError, match="out of bounds"):
            function(np.zeros((1, 2)), [label])


@pytest.fixture(scope="module")
def losses(shim):
    """Ways of writing one loss of (x, b, y), as public code has them."""
    T = shim.tensor
    x, b, y = T.matrix("x"), T.vector("b"), T.lvector("y")
    p = T.nnet.softmax(x + b)
    rows = T.arange(y.shape[0])
    return (x, b, y), {
        "log inside": -T.mean(T.log(p)[rows, y]),
        "log outside": -T.mean(T.log(p[rows, y])),
        "categorical": T.nnet.categorical_crossentropy(p, y).mean(),
        "one-hot": T.nnet.categorical_crossentropy(p, T.extra_ops.to_one_hot(y, 3)).mean(),
    }


@pytest.mark.parametrize("name", ["log inside", "log outside", "categorical", "one-hot"])
def test_losses_are_computed_without_overflow(shim, losses, name):
    (x, b, y), written = losses
    gradient = shim.tensor.grad(written[name], x)
    function = shim.function([x, b, y], [written[name], gradient])
    if name != "one-hot":
        assert "CrossentropySoftmaxArgmax1HotWithBias" in ops_of(function)
        assert "CrossentropySoftmax1HotWithBiasDx" in ops_of(function)
    x_value = np.array([[1000.0, 0.0, -1000.0], [0.0, 1.0, 2.0]])
    labels = np.array([2, 1])
    loss, gradient = function(x_value, np.zeros(3), labels)
    np.testing.assert_allclose(loss, -log_softmax(x_value, axis=1)[[0, 1], labels].mean())
    np.testing.assert_allclose(gradient, (softmax(x_value, axis=1) - np.eye(3)[labels]) / 2)


def test_loss_of_a_minibatch_of_shared_labels(shim):
    """The length of labels that are sliced is a long expression, as in Theano's tutorials."""
    T = shim.tensor
    rng = np.random.RandomState(0)
    values, labels = rng.randn(9, 4), rng.randint(0, 3, 9)
    shared_x, shared_y = shim.shared(values), T.cast(shim.shared(labels.astype("float64")), "int32")
    w, b = shim.shared(np.zeros((4, 3))), shim.shared(np.zeros(3))
    x, y, i = T.matrix(), T.ivector(), T.lscalar()
    p = T.nnet.softmax(T.dot(x, w) + b)
    loss = -T.mean(T.log(p)[T.arange(y.shape[0]), y])
    batch = slice(i * 3, (i + 1) * 3)
    function = shim.function([i], T.grad(loss, w), givens={x: shared_x[batch], y: shared_y[batch]})
    assert "CrossentropySoftmax1HotWithBiasDx" in ops_of(function)
    assert not {"ARange", "RowNumbers", "AdvancedIncSubtensor"} & set(ops_of(function))
    wanted = values[3:6].T @ (1 / 3 - np.eye(3)[labels[3:6]]) / 3
    np.testing.assert_allclose(function(1), wanted)


def test_rows_are_counted_where_there_is_no_loss(shim):
    T = shim.tensor
    x, y = T.matrix(), T.ivector()
    function = shim.function([x, y], T.nnet.softmax(x)[T.arange(y.shape[0]), y])
    assert "RowNumbers" not in ops_of(function)
    np.testing.assert_allclose(function(np.zeros((2, 4)), [1, 3]), [0.25, 0.25])


def test_argmax_does_not_need_the_softmax(shim):
    T = shim.tensor
    x, b = T.matrix(), T.vector()
    function = shim.function([x, b], T.argmax(T.nnet.softmax(x + b), axis=1))
    assert not any("Softmax" in name for name in ops_of(function))
    np.testing.assert_array_equal(function([[1.0, 2.0], [3.0, 2.0]], [0.0, 1.5]), [1, 1])


def test_softmax_of_exponentials_is_found(shim):
    T = shim.tensor
    x = T.matrix()
    e = T.exp(x)
    function = shim.function([x], e / e.sum(axis=1).dimshuffle(0, "x"))
    assert "Softmax" in ops_of(function)
    np.testing.assert_allclose(function([[1000.0, 1000.0]]), [[0.5, 0.5]])


@pytest.mark.parametrize("where", [0.0, 1e3, -1e3])
def test_sigmoid_binary_crossentropy_far_out(shim, where):
    T = shim.tensor
    x, t = T.vector(), T.vector()
    loss = T.nnet.sigmoid_binary_crossentropy(x, t)
    function = shim.function([x, t], [loss, T.grad(loss.sum(), x)], mode="FAST_COMPILE")
    loss, gradient = function([where], [0.25])
    np.testing.assert_allclose(loss, np.logaddexp(0, where) - 0.25 * where)
    np.testing.assert_allclose(gradient, 1 / (1 + np.exp(-where)) - 0.25)


def test_gradients(shim):
    T = shim.tensor
    nnet = T.nnet
    rng = np.random.RandomState(0)
    x, b, labels = rng.randn(3, 4), rng.randn(4), np.array([1, 0, 3])
    dy, images = rng.rand(3), rng.randn(2, 1, 5, 4)
    for function, values in [
        (nnet.softmax, [x]),
        (nnet.logsoftmax, [x]),
        (nnet.softmax_with_bias, [x, b]),
        (nnet.softmax_grad, [x, np.abs(x)]),
        (lambda x, b: nnet.crossentropy_softmax_1hot_with_bias(x, b, labels)[0], [x, b]),
        (lambda x, b: nnet.crossentropy_softmax_1hot_with_bias(x, b, labels)[1], [x, b]),
        (
            lambda dy, s: nnet.crossentropy_softmax_1hot_with_bias_dx(dy, s, labels),
            [dy, np.abs(x)],
        ),
        (lambda p: nnet.crossentropy_categorical_1hot(p, labels), [0.1 + np.abs(x)]),
        (nnet.prepend_1_to_each_row, [x]),
        (nnet.softsign, [x]),
        (lambda x: nnet.neighbours.images2neibs(x, (2, 2), (1, 2)), [images]),
        (lambda x: nnet.neighbours.images2neibs(x, (2, 3), mode="ignore_borders"), [images]),
    ]:
        T.verify_grad(function, values, rng=rng, mode="FAST_COMPILE")


def test_gradients_of_batch_normalization(shim):
    from theano.tensor.nnet import bn

    rng = np.random.RandomState(0)
    x, row = rng.randn(4, 3), rng.rand(1, 3) + 0.5
    train = bn.AbstractBatchNormTrain((0,))
    for function, values in [
        (lambda *v: train(*v)[0], [x, row, row]),
        (lambda *v: bn.AbstractBatchNormInference((0,))(*v), [x, row, row, row, row]),
        (lambda *v: bn.AbstractBatchNormTrainGrad((0,))(*v)[0], [x, x + 1, row, row, row]),
        (lambda *v: bn.AbstractBatchNormTrainGrad((0,))(*v)[1], [x, x + 1, row, row, row]),
        (lambda *v: bn.batch_normalization(*v), [x, row, row, row, row]),
    ]:
        shim.tensor.verify_grad(function, values, rng=rng, mode="FAST_COMPILE")


def test_batch_normalization_is_written_out(shim):
    from theano.tensor.nnet import bn

    T = shim.tensor
    x, gamma, beta = T.matrix(), T.vector(), T.vector()
    out, mean, invstd = bn.batch_normalization_train(x, gamma, beta)
    outputs = [out, mean, invstd, T.grad((out**2).sum(), x)]
    function = shim.function([x, gamma, beta], outputs)
    assert not any("BatchNorm" in name for name in ops_of(function))
    plain = shim.function([x, gamma, beta], outputs, mode=shim.Mode("py", None))
    values = np.arange(12.0).reshape(4, 3) ** 1.5, np.arange(1.0, 4), np.arange(3.0)
    for found, expected in zip(function(*values), plain(*values), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)


def block_loops(o, W, h, into, out):
    o = o.copy()
    for n, i, j in np.ndindex(len(o), into.shape[1], out.shape[1]):
        o[n, j] += h[n, i] @ W[into[n, i], out[n, j]]
    return o


def test_blocks(shim):
    from theano.tensor.nnet import blocksparse

    T = shim.tensor
    rng = np.random.RandomState(0)
    o, W, h = rng.randn(2, 3, 5), rng.randn(4, 3, 2, 5), rng.randn(2, 2, 2)
    into, out = np.array([[0, 3], [1, 1]]), np.array([[0, 1, 1], [2, 0, 2]])

    def gemv(o, W, h):
        return blocksparse.sparse_block_gemv(o, W, h, into, out)

    variables = T.tensor3(), T.tensor4(), T.tensor3()
    function = shim.function(variables, gemv(*variables))
    assert any(getattr(n.op, "inplace", False) for n in function.maker.fgraph.toposort()) is False
    expected = block_loops(o, W, h, into, out)
    np.testing.assert_allclose(function(o, W, h), expected)
    T.verify_grad(gemv, [o, W, h], rng=rng, mode="FAST_COMPILE")
    doubled = shim.function(variables, gemv(variables[0] * 2, *variables[1:]))
    assert any(
        isinstance(n.op, blocksparse.SparseBlockGemv) and n.op.inplace
        for n in doubled.maker.fgraph.toposort()
    )
    np.testing.assert_allclose(doubled(o, W, h), expected + o)


@pytest.mark.parametrize("mode", ["valid", "half", "full", "wrap_centered", "ignore_borders"])
def test_patches_in_c_and_in_numpy(shim, mode):
    T = shim.tensor
    x = T.ftensor4()
    patches = T.nnet.neighbours.images2neibs(x, (3, 3), (2, 2), mode=mode)
    images = np.arange(70, dtype="float32").reshape(2, 1, 5, 7)
    in_c, in_numpy = (
        shim.function([x], [patches, patches.shape], mode=how)(images)
        for how in ("FAST_RUN", "FAST_COMPILE")
    )
    np.testing.assert_array_equal(in_c[0], in_numpy[0])
    assert tuple(in_c[1]) == in_c[0].shape == tuple(in_numpy[1])


def test_what_needs_a_library_tells_so(shim):
    from theano.tensor.nnet.ctc import ctc_available

    assert not ctc_available()
    assert "warp-ctc" in ctc_available.msg


def test_a_nan_in_a_softmax_is_explained(shim):
    T = shim.tensor
    x = T.matrix("x")
    mode = GuardMode(inf_is_error=False, big_is_error=False)
    function = shim.function([x], T.nnet.softmax(x), mode=mode)
    with pytest.raises(GuardError, match="(?i)softmax"):
        function([[np.inf, 0.0]])


def test_gradient_of_the_patches_of_one_image(shim):
    from theano.tensor.nnet.neighbours import neibs2images

    T = shim.tensor
    neibs = T.dmatrix("neibs")
    images = neibs2images(neibs, (2, 2), (1, 1, 4, 4))
    gradient = T.grad((images * np.arange(16.0).reshape(4, 4)).sum(), neibs)
    f = shim.function([neibs], gradient, mode="FAST_COMPILE")
    np.testing.assert_array_equal(f(np.ones((4, 4)))[0], [0.0, 1.0, 4.0, 5.0])
