"""Convolutions under the shim."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.signal import correlate
from shim_compare import assert_as_recorded, parametrize

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_33


@pytest.mark.parametrize(("section", "case"), parametrize("conv"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


def ops_of(function):
    return [type(node.op).__name__ for node in function.maker.fgraph.toposort()]


def expected_forward(images, filters, pads, strides, dilations, groups):
    """The correlation, by scipy, channel by channel."""
    images = np.pad(images, [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(filters.shape[2:], dilations, strict=True)]
    spread = np.zeros((*filters.shape[:2], *spans))
    spread[(..., *(slice(None, None, d) for d in dilations))] = filters
    per_group = len(filters) // groups
    out = []
    for i, of_filter in enumerate(spread):
        first = i // per_group * filters.shape[1]
        of_group = images[:, first : first + filters.shape[1]]
        out.append(
            [
                sum(correlate(x, f, "valid") for x, f in zip(image, of_filter, strict=True))
                for image in of_group
            ]
        )
    out = np.swapaxes(np.array(out), 0, 1)
    return out[(..., *(slice(None, None, s) for s in strides))]


@st.composite
def geometries(draw, n):
    """Settings of an abstract convolution of n axes, and the shapes of images and filters."""
    some = st.integers(1, 2)
    groups, batch, channels, filters = (draw(some) for _ in range(4))
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    dilations = [draw(some) for _ in range(n)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    one = st.integers(0, 2)
    pad = st.one_of(one, st.tuples(one, one)) if n == 2 else one
    border = draw(st.one_of(st.sampled_from(["valid", "half", "full"]), st.tuples(*[pad] * n)))
    image = [span + draw(st.integers(0, 4)) for span in spans]
    named = {"valid": lambda s: 0, "half": lambda s: s // 2, "full": lambda s: s - 1}
    modes = [named[border](s) for s in spans] if isinstance(border, str) else border
    return {
        "settings": {
            "border_mode": border,
            "subsample": tuple(draw(st.integers(1, 3)) for _ in range(n)),
            "filter_dilation": tuple(dilations),
            "num_groups": groups,
            "filter_flip": draw(st.booleans()),
        },
        "pads": [m if isinstance(m, tuple) else (m, m) for m in modes],
        "images": (batch, channels * groups, *image),
        "filters": (filters * groups, channels, *kernel),
    }


def check(theano, n, geometry, dtype):
    """C agrees with NumPy, NumPy with scipy, and the gradients are the transposes."""
    from theano.tensor.nnet import abstract_conv

    T = theano.tensor
    rng = np.random.default_rng(0)
    values = [rng.normal(size=geometry[name]).astype(dtype) for name in ("images", "filters")]
    kind = T.TensorType(dtype, (False,) * (n + 2))
    x, w, g = kind("x"), kind("w"), kind("g")
    settings = geometry["settings"]
    forward, weights, inputs = (
        getattr(abstract_conv, f"AbstractConv{n}d{suffix}")(**settings)
        for suffix in ("", "_gradWeights", "_gradInputs")
    )
    y = forward(x, w)
    both = [weights(x, g, w.shape[2:]), inputs(w, g, x.shape[2:])]
    flip = (..., *[slice(None, None, -1)] * n)
    expected = expected_forward(
        values[0],
        values[1][flip] if settings["filter_flip"] else values[1],
        geometry["pads"],
        settings["subsample"],
        settings["filter_dilation"],
        settings["num_groups"],
    )
    g_value = rng.normal(size=expected.shape).astype(dtype)
    tolerance = {"float32": 1e-4, "float64": 1e-10}[dtype]
    for mode in ("FAST_RUN", "FAST_COMPILE"):
        function = theano.function([x, w, g], [y, *both], mode=mode)
        y_value, dw, dx = function(*values, g_value)
        assert y_value.dtype == dw.dtype == dx.dtype == dtype
        np.testing.assert_allclose(y_value, expected, tolerance, tolerance)
        total = (y_value * g_value).sum()
        np.testing.assert_allclose((dw * values[1]).sum(), total, tolerance, 10 * tolerance)
        np.testing.assert_allclose((dx * values[0]).sum(), total, tolerance, 10 * tolerance)
        shape = theano.function([x, w], y.shape, mode=mode)(*values)
        assert tuple(shape) == y_value.shape


# Filters of texts are as wide as the image.
OF_TEXTS = {
    "settings": {
        "border_mode": ((2, 1), (0, 0)),
        "subsample": (2, 1),
        "filter_dilation": (1, 1),
        "num_groups": 2,
        "filter_flip": True,
    },
    "pads": [(2, 1), (0, 0)],
    "images": (3, 4, 7, 5),
    "filters": (4, 2, 3, 5),
}


@settings(max_examples=10)
@example(geometry=OF_TEXTS, dtype="float32")
@given(geometry=geometries(2), dtype=st.sampled_from(["float32", "float64"]))
def test_2d_against_scipy(shim, geometry, dtype):
    check(shim, 2, geometry, dtype)


@settings(max_examples=4)
@given(geometry=geometries(3))
def test_3d_against_scipy(shim, geometry):
    check(shim, 3, geometry, "float64")


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE"])
def test_gradients(shim, mode):
    rng = np.random.RandomState(0)
    nnet = shim.tensor.nnet

    def conv(x, w):
        return nnet.conv2d(x, w, border_mode=((1, 0), 2), subsample=(2, 1), filter_dilation=(1, 2))

    values = [rng.randn(2, 2, 5, 4), rng.randn(3, 2, 2, 2)]
    shim.tensor.verify_grad(conv, values, rng=rng, mode=mode)


def test_second_derivatives(shim):
    T = shim.tensor
    rng = np.random.RandomState(0)
    values = [rng.randn(1, 2, 4, 4), rng.randn(2, 2, 2, 3)]

    def gradient_of_filters(x, w):
        return T.grad((T.nnet.conv2d(x, w, border_mode="half") ** 2).sum(), w)

    T.verify_grad(gradient_of_filters, values, rng=rng, mode="FAST_COMPILE")


def unshared_loops(x, w):
    """Each position of the output has filters of its own."""
    n, (f, rows, columns, _, height, width) = len(x), w.shape
    out = np.zeros((n, f, rows, columns))
    for i, j in np.ndindex(rows, columns):
        patch = x[:, :, i : i + height, j : j + width]
        out[:, :, i, j] = np.tensordot(patch, w[:, i, j], ([1, 2, 3], [1, 2, 3]))
    return out


def test_unshared(shim):
    T = shim.tensor
    rng = np.random.RandomState(0)
    x_value, w_value = rng.randn(2, 3, 5, 6), rng.randn(4, 4, 4, 3, 2, 3)
    x, w = T.tensor4("x"), T.TensorType("float64", (False,) * 6)("w")
    y = T.nnet.conv2d(x, w, unshared=True, filter_flip=False)
    value = shim.function([x, w], y)(x_value, w_value)
    np.testing.assert_allclose(value, unshared_loops(x_value, w_value))
    T.verify_grad(
        lambda x, w: T.nnet.conv2d(x, w, unshared=True),
        [x_value[:, :1, :3, :3], w_value[:2, :2, :2, :1, :2, :2]],
        rng=rng,
        mode="FAST_COMPILE",
    )


def test_by_gemm_where_there_is_a_compiler(shim, needs_cxx):
    T = shim.tensor
    x, w = T.ftensor4(), T.ftensor4()
    y = T.nnet.conv2d(x, w)
    gradients = T.grad(y.sum(), [x, w])
    function = shim.function([x, w], [y, *gradients])
    assert {"CorrMM", "CorrMM_gradWeights", "CorrMM_gradInputs"} <= set(ops_of(function))
    mode = shim.compile.get_default_mode().excluding("conv_gemm")
    assert "AbstractConv2d" in ops_of(shim.function([x, w], y, mode=mode))
    assert "CorrMM" in ops_of(shim.function([x, w], T.nnet.conv.conv2d(x, w)))


def test_integers_and_half_precision_stay_in_numpy(shim):
    T = shim.tensor
    for dtype in ("float16", "int32"):
        x, w = (T.tensor4(dtype=dtype) for _ in range(2))
        function = shim.function([x, w], T.nnet.conv2d(x, w))
        value = function(np.ones((1, 2, 3, 3), dtype), np.ones((1, 2, 2, 2), dtype))
        assert value.dtype == dtype
        np.testing.assert_array_equal(value, np.full((1, 1, 2, 2), 8, dtype))


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE"])
def test_empty(shim, mode):
    T = shim.tensor
    x, w = T.tensor4(), T.tensor4()
    y = T.nnet.conv2d(x, w)
    gradients = T.grad(y.sum(), [x, w])
    function = shim.function([x, w], [y, *gradients], mode=mode)
    for images, filters in [
        ((0, 2, 4, 4), (3, 2, 2, 2)),
        ((2, 0, 4, 4), (3, 0, 2, 2)),
        ((2, 2, 4, 4), (0, 2, 2, 2)),
    ]:
        value, dx, dw = function(np.ones(images), np.ones(filters))
        assert value.shape == (images[0], filters[0], 3, 3)
        assert dx.shape == images
        assert dw.shape == filters
        assert not value.any() and not dx.any() and not dw.any()


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE"])
@pytest.mark.parametrize(
    ("images", "filters", "groups"),
    [
        ((1, 2, 4, 4), (1, 3, 2, 2), 1),
        ((1, 2, 4, 4), (1, 2, 5, 2), 1),
        ((1, 4, 4, 4), (3, 2, 2, 2), 2),
    ],
)
def test_shapes_that_do_not_agree(shim, mode, images, filters, groups):
    T = shim.tensor
    x, w = T.tensor4(), T.tensor4()
    function = shim.function([x, w], T.nnet.conv2d(x, w, num_groups=groups), mode=mode)
    with pytest.raises(ValueError):
        function(np.ones(images), np.ones(filters))


def test_given_shapes_are_checked_on_request(shim):
    T = shim.tensor
    x, w = T.tensor4(), T.tensor4()
    with shim.change_flags(**{"conv.assert_shape": True}):
        y = T.nnet.conv2d(x, w, input_shape=(None, 2, 4, 4), filter_shape=(None, 2, 2, 2))
    function = shim.function([x, w], y, mode="FAST_COMPILE")
    function(np.ones((1, 2, 4, 4)), np.ones((1, 2, 2, 2)))
    with pytest.raises(AssertionError):
        function(np.ones((1, 2, 5, 4)), np.ones((1, 2, 2, 2)))


def test_views_and_other_strides(shim):
    T = shim.tensor
    rng = np.random.RandomState(0)
    x, w = T.tensor4(), T.tensor4()
    function = shim.function([x, w], T.nnet.conv2d(x, w))
    images, filters = rng.randn(6, 5, 2, 3).T[::-1, :, ::2], rng.randn(2, 4, 2, 2)[:, ::2]
    expected = function(images.copy(), filters.copy())
    np.testing.assert_array_equal(function(images, filters), expected)


def test_a_nan_in_an_image_is_explained(shim):
    T = shim.tensor
    x, w = T.tensor4("x"), T.tensor4("w")
    y = T.nnet.conv2d(T.log(x), w)
    function = shim.function([x, w], y, mode=GuardMode())
    images = np.ones((1, 1, 3, 3))
    function(images, np.ones((1, 1, 2, 2)))
    images[0, 0, 1, 1] = -1
    with pytest.raises(GuardError, match="log"):
        function(images, np.ones((1, 1, 2, 2)))


def test_a_nan_made_by_a_convolution_is_explained(shim):
    T = shim.tensor
    x, w = T.tensor4("x"), T.tensor4("w")
    function = shim.function([x, w], T.nnet.conv2d(x, w), mode=GuardMode(big_is_error=False))
    images = np.full((1, 1, 2, 2), 1e200)
    images[0, 0, 0, 0] = -1e200
    with pytest.raises(GuardError, match="(?i)conv|corr"):
        function(images, np.full((1, 1, 2, 2), 1e200))
