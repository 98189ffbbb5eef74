"""Pooling under the shim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shim_compare import assert_as_recorded, parametrize

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_30

MODES = ["max", "sum", "average_inc_pad", "average_exc_pad"]


@pytest.mark.parametrize(("section", "case"), parametrize("pool"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


def pooled(x, ws, stride, pad, ignore_border, mode):
    """One window after the other, on an image that NaN pads."""
    n = len(ws)
    x = np.pad(x, [(0, 0)] * (x.ndim - n) + [(p, p) for p in pad], constant_values=np.nan)
    sizes = x.shape[-n:]
    out = []
    for size, w, s in zip(sizes, ws, stride, strict=True):
        starts = range(0, size - w + 1 if ignore_border else size, s)
        # A window that would start behind the end of another cut-off one is left out.
        cut = [start for start in starts if start + w >= size]
        out.append([t for t in starts if ignore_border or not cut or s >= w or t <= cut[0]])
    result = np.empty((*x.shape[:-n], *map(len, out)))
    reduce = {"max": np.nanmax, "sum": np.nansum, "average_exc_pad": np.nanmean}
    axes = tuple(range(-n, 0))
    for index in np.ndindex(*map(len, out)):
        window = (..., *(slice(o[i], o[i] + w) for o, i, w in zip(out, index, ws, strict=True)))
        if mode == "average_inc_pad":
            result[(..., *index)] = np.nan_to_num(x[window]).mean(axis=axes)
        else:
            result[(..., *index)] = reduce[mode](x[window], axis=axes)
    return result


@st.composite
def poolings(draw):
    n = draw(st.integers(1, 3))
    ws = [draw(st.integers(1, 3)) for _ in range(n)]
    ignore_border = draw(st.booleans())
    return {
        "ws": ws,
        "stride": [draw(st.integers(1, 4)) for _ in range(n)],
        "pad": [draw(st.integers(0, w - 1)) if ignore_border else 0 for w in ws],
        "ignore_border": ignore_border,
        "mode": draw(st.sampled_from(MODES)),
        "shape": (2, *(w + draw(st.integers(0, 4)) for w in ws)),
    }


@pytest.fixture(scope="module")
def pool_functions(shim):
    """Functions of (x, g, ws, stride, pad): the pooling, its gradient and its tangent."""
    from theano.tensor.signal.pool import Pool

    T = shim.tensor
    compiled = {}

    def get(n, mode, ignore_border, how):
        key = n, mode, ignore_border, how
        if key not in compiled:
            x, g = (T.TensorType("float64", (False,) * (n + 1))() for _ in range(2))
            sizes = [T.lvector() for _ in range(3)]
            y = Pool(ignore_border, mode=mode, ndim=n)(x, *sizes)
            outputs = [y, T.grad((y * g).sum(), x), T.Rop(y, x, x), y.shape]
            compiled[key] = shim.function([x, g, *sizes], outputs, mode=how)
        return compiled[key]

    return get


@settings(max_examples=25)
@given(pooling=poolings())
def test_against_loops(pool_functions, pooling):
    shape, mode = pooling.pop("shape"), pooling["mode"]
    rng = np.random.default_rng(0)
    x = rng.permutation(np.arange(float(np.prod(shape)))).reshape(shape)  # no two are equal
    expected = pooled(x, **pooling)
    g = rng.normal(size=expected.shape)
    sizes = [np.array(pooling[name]) for name in ("ws", "stride", "pad")]
    for how in ("FAST_RUN", "FAST_COMPILE"):
        function = pool_functions(len(pooling["ws"]), mode, pooling["ignore_border"], how)
        y, gx, tangent, inferred = function(x, g, *sizes)
        np.testing.assert_allclose(y, expected)
        assert tuple(inferred) == y.shape
        # All of these are linear in x where the order of its elements does not change.
        np.testing.assert_allclose((gx * x).sum(), (g * y).sum(), atol=1e-9)
        np.testing.assert_allclose(tangent, y)


@pytest.mark.parametrize("mode", MODES)
def test_gradients(shim, mode):
    from theano.tensor.signal.pool import pool_2d

    rng = np.random.RandomState(0)
    x = rng.permutation(np.arange(40.0)).reshape(1, 2, 4, 5)

    def pool(x):
        return pool_2d(x, (3, 2), True, (1, 2), (1, 0), mode)

    shim.tensor.verify_grad(pool, [x], rng=rng, eps=1e-3, mode="FAST_COMPILE")

    def squared_gradient(x):
        return shim.tensor.grad((pool(x) ** 2).sum(), x)

    shim.tensor.verify_grad(squared_gradient, [x], rng=rng, eps=1e-3, mode="FAST_COMPILE")


@pytest.mark.parametrize("how", ["FAST_RUN", "FAST_COMPILE"])
def test_equal_elements_all_get_the_gradient(shim, how):
    from theano.tensor.signal.pool import pool_2d

    T = shim.tensor
    x = T.fmatrix()
    function = shim.function([x], T.grad(pool_2d(x, (2, 2), True).sum(), x), mode=how)
    value = function(np.array([[1, 1, 0], [0, 1, 5]], "float32"))
    np.testing.assert_array_equal(value, np.array([[1, 1, 0], [0, 1, 0]], "float32"))


@pytest.mark.parametrize("how", ["FAST_RUN", "FAST_COMPILE"])
def test_maximum_of_integers_and_of_nan(shim, how):
    from theano.tensor.signal.pool import pool_2d

    T = shim.tensor
    k, x = T.imatrix(), T.matrix()
    pooled = [pool_2d(v, (1, 2), True) for v in (k, x)]
    function = shim.function([k, x], pooled, mode=how)
    whole, real = function(np.array([[-3, -2]], "int32"), np.array([[1.0, np.nan, 2.0, -np.inf]]))
    assert whole.dtype == "int32"
    np.testing.assert_array_equal(whole, [[-2]])
    np.testing.assert_array_equal(real, [[np.nan, 2.0]])


@pytest.mark.parametrize("how", ["FAST_RUN", "FAST_COMPILE"])
def test_wrong_sizes(shim, how):
    from theano.tensor.signal.pool import pool_2d

    T = shim.tensor
    x, ws = T.matrix(), T.lvector()
    function = shim.function([x, ws], pool_2d(x, ws, True), mode=how)
    assert function(np.ones((4, 4)), [2, 2]).shape == (2, 2)
    with pytest.raises(ValueError):
        function(np.ones((4, 4)), [2, 2, 2])


def test_a_nan_made_by_pooling_is_explained(shim):
    from theano.tensor.signal.pool import pool_2d

    T = shim.tensor
    x = T.matrix("x")
    y = pool_2d(x, (1, 2), True, mode="sum")
    function = shim.function([x], y, mode=GuardMode(inf_is_error=False, big_is_error=False))
    with pytest.raises(GuardError, match="(?i)pool"):
        function(np.array([[np.inf, -np.inf]]))
