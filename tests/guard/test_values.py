"""Every kind of value that a PyTensor variable may hold, good and bad."""

import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytensor.typed_list
import pytest
import scipy.sparse
from guarding import CountedIdentity, backend, guarded, trip
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytensor.raise_op import CheckAndRaise

from theanoguard import GuardMode, NanGuardMode, events_of

FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
KINDS = ["nan", "inf", "big"]


def skip_missing(dtype, request):
    """Skip the test of a dtype that the backend does not have."""
    if dtype == "float16" and request.config.getoption("--backend") == "numba":
        pytest.skip("Numba has no float16")


@pytest.fixture(scope="module")
def functions(request):
    """``functions(dtype, ndim, **settings)``: checks its input only, which is any array."""
    made = {}

    def function(dtype, ndim, **settings):
        skip_missing(dtype, request)
        key = dtype, ndim, *sorted(settings.items())
        if key not in made:
            x = pt.TensorType(dtype, (None,) * ndim)("x")
            made[key] = guarded([x], x.shape if ndim else x, **settings)
            made[key].trust_input = True
        return made[key]

    return function


@pytest.fixture(scope="module")
def through_a_node(request):
    """``through_a_node(dtype, ndim)``: the bad value is the output of an op in Python."""
    made = {}

    def function(dtype, ndim):
        skip_missing(dtype, request)
        if (dtype, ndim) not in made:
            x = pt.TensorType(dtype, (None,) * ndim)("x")
            made[dtype, ndim] = guarded(
                [x], CountedIdentity()(x), check_inputs=False, inf_is_error="any"
            )
        return made[dtype, ndim]

    return function


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_bad_values_of_every_dtype(dtype, value, size, functions, through_a_node):
    array = np.ones(size, dtype)
    functions(dtype, 1)(array)
    assert np.array_equal(through_a_node(dtype, 1)(array), array)
    for at in {0, size // 2, size - 1}:
        bad = array.copy()
        bad[at] = value
        for fn, role in ((functions(dtype, 1), "input"), (through_a_node(dtype, 1), "node")):
            event = trip(fn, bad)
            assert event.role == role
            assert event.kind == ("nan" if np.isnan(value) else "inf")
            assert event.first_index == (at,)
            assert event.dtype == dtype
            assert event.shape == (size,)
            assert (event.n_nan, event.n_posinf, event.n_neginf) == (
                int(np.isnan(value)),
                int(value == np.inf),
                int(value == -np.inf),
            )


@pytest.mark.parametrize("dtype", COMPLEX)
def test_the_parts_of_a_complex_number(dtype, functions):
    fn = functions(dtype, 1)
    for part in (complex(np.nan, 1), complex(1, np.nan)):
        assert trip(fn, np.array([1, part], dtype)).kind == "nan"
    for part in (complex(1, np.inf), complex(-np.inf, 0)):
        assert trip(fn, np.array([1, part], dtype)).kind == "inf"


THRESHOLDS = [
    (dtype, limit)
    for dtype, limits in {
        "float16": [0.5, 100.0, 6e4, 65504.0],
        "float32": [1e-30, 1.0, 1e10, 1.6e38],
        "float64": [1e-300, 1.0, 1e10, 3e38, 1e300],
    }.items()
    for limit in limits
]


@pytest.mark.parametrize(("dtype", "limit"), THRESHOLDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_threshold_is_exact(dtype, limit, sign, functions):
    """What lies just above the threshold is big, the threshold itself is not."""
    fn = functions(dtype, 1, big_threshold=limit)
    at = np.array(limit, dtype)
    if float(at) > limit:
        at = np.nextafter(at, np.array(0, dtype))
    array = np.zeros(100, dtype)
    array[41] = sign * at
    fn(array)
    with np.errstate(over="ignore"):
        above = np.nextafter(at, np.array(np.inf, dtype))
    array[41] = sign * above
    event = trip(fn, array)
    assert event.kind == ("big" if np.isfinite(above) else "inf")
    assert event.first_index == (41,)
    assert event.first_value == sign * above


def test_a_product_of_complex_matrices(c_backend):
    """PyTensor's operation for it has C code, but not for complex numbers."""
    z = pt.cmatrix("z")
    f = guarded([z], pt.dot(z, z), big_is_error=False)
    assert trip(f, np.full((2, 2), 1e30, "complex64")).op.startswith("Dot22")


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_complex_number_is_big_by_its_modulus(dtype, functions):
    fn = functions(dtype, 1)
    fn(np.array([9e9 + 4e9j, 6e9 - 6e9j], dtype))
    assert trip(fn, np.array([1, 8e9 - 8e9j], dtype)).kind == "big"
    assert trip(fn, np.array([1, -2e10j], dtype)).kind == "big"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_may_be_big_on_request(dtype, functions):
    largest = np.iinfo(dtype).max
    fn = functions(dtype, 1, check_integers=True, big_threshold=float(largest // 2))
    array = np.zeros(9, dtype)
    array[4] = largest // 4
    fn(array)
    array[6] = largest
    event = trip(fn, array)
    assert (event.kind, event.first_index, event.n_big) == ("big", (6,), 1)
    assert event.first_value == largest
    if np.iinfo(dtype).min < 0:
        array[6] = np.iinfo(dtype).min
        assert trip(fn, array).first_index == (6,)
    functions(dtype, 1)(array)  # not on request


def test_integers_are_asked_for_in_nan_guard_mode():
    n = pt.lvector("n")
    f = pytensor.function([n], n.sum(), mode=NanGuardMode())
    assert f([1, 2]) == 3
    event = trip(f, [9 * 10**9, 9 * 10**9])
    assert (event.kind, event.role, event.shape) == ("big", "node", ())
    g = pytensor.function([n], n.sum(), mode=GuardMode())
    assert g([9 * 10**9, 9 * 10**9]) == 18 * 10**9
    b = pt.vector("b", dtype="bool")
    h = pytensor.function([b], ~b, mode=GuardMode(check_integers=True, big_threshold=0.5))
    assert list(h([True, False])) == [False, True]  # booleans are no integers


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("only", KINDS)
def test_each_kind_alone(dtype, only, functions):
    flags = {f"{kind}_is_error": kind == only for kind in KINDS}
    fn = functions(dtype, 1, **flags, big_threshold=1000.0)
    for kind, value in {"nan": np.nan, "inf": np.inf, "big": 1001.0, "good": 999.0}.items():
        array = np.array([1, 0, value, -1], dtype)
        # an infinite element is also bigger than the threshold
        if kind == only or (kind == "inf" and only == "big"):
            assert trip(fn, array).kind == kind
        else:
            fn(array)


# ---------------------------------------------------------------- layouts

LAYOUTS = {
    "contiguous": lambda a: np.ascontiguousarray(a),
    "Fortran": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "reversed everywhere": lambda a: a[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
    "transposed": lambda a: a.transpose(2, 0, 1).copy().transpose(1, 2, 0),
    "inside": lambda a: np.pad(a, 2)[2:-2, 2:-2, 2:-2],
    "read only": lambda a: _read_only(a),
    "field": lambda a: _field(a),
    "unaligned": lambda a: _unaligned(a),
}


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def _field(a):
    pairs = np.zeros(a.shape, [("before", "int8"), ("value", a.dtype)])
    pairs["value"] = a
    return pairs["value"]


def _unaligned(a):
    raw = np.zeros(a.nbytes + 1, "uint8")[1:].view(a.dtype).reshape(a.shape)
    raw[...] = a
    return raw


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.not_on(pytorch="PyTorch takes no arrays with negative or odd strides")
def test_every_memory_layout(dtype, layout, functions):
    fn = functions(dtype, 3)
    good = np.arange(60).reshape(3, 4, 5).astype(dtype)
    fn(LAYOUTS[layout](good))
    for index in [(0, 0, 0), (1, 2, 3), (2, 3, 4)]:
        bad = good.copy()
        bad[index] = np.nan
        array = LAYOUTS[layout](bad)
        assert array.shape == bad.shape
        assert trip(fn, array).first_index == index


@pytest.mark.parametrize("dtype", ["int16", "int64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.not_on(pytorch="PyTorch takes no arrays with negative or odd strides")
def test_every_memory_layout_of_integers(dtype, layout, functions):
    fn = functions(dtype, 3, check_integers=True, big_threshold=100.0)
    good = np.arange(60).reshape(3, 4, 5).astype(dtype)
    fn(LAYOUTS[layout](good))
    bad = good.copy()
    bad[1, 2, 3] = -101
    assert trip(fn, LAYOUTS[layout](bad)).first_index == (1, 2, 3)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.not_on(pytorch="PyTorch takes no arrays with negative or odd strides")
def test_broadcast_and_empty_arrays(dtype, functions):
    row = np.array([1, 2, np.nan], dtype)
    fn = functions(dtype, 2)
    assert trip(fn, np.broadcast_to(row, (4, 3))).first_index == (0, 2)
    fn(np.broadcast_to(row[:2], (4, 2)))
    for shape in [(0, 3), (3, 0), (0, 0)]:
        fn(np.full(shape, np.nan, dtype))
    fn(np.full((4, 3), np.nan, dtype)[:0, ::-1])
    fn(np.full((4, 6), np.nan, dtype)[::2, 3:3])


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.not_on(pytorch="PyTorch takes no arrays with negative or odd strides")
def test_what_a_view_leaves_out_is_not_looked_at(dtype, functions):
    array = np.ones((6, 6), dtype)
    array[1::2] = np.nan
    functions(dtype, 2)(array[::2])
    functions(dtype, 2)(array[4::-2])
    assert trip(functions(dtype, 2), array[1::2]).n_nan == 18


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_zero_dimensions(dtype, functions, through_a_node):
    for fn in (functions(dtype, 0), through_a_node(dtype, 0)):
        fn(np.array(1.5, dtype))
        event = trip(fn, np.array(np.nan, dtype))
        assert (event.first_index, event.shape, event.size, event.n_nan) == ((), (), 1, 1)


FAR_ARRAYS = st.one_of(
    *(
        hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=70),
            elements=hnp.from_dtype(np.dtype(dtype), min_value=-50, max_value=50)
            if dtype in FLOATS
            else st.builds(complex, st.integers(-50, 50), st.integers(-50, 50)),
            fill=st.just(1),
        )
        for dtype in FLOATS + COMPLEX
    )
)
BAD = st.sampled_from([None, None, np.nan, np.inf, -np.inf, 101.0, -3e4])
STEPS = st.sampled_from([1, 2, 3, -1, -2])


@given(FAR_ARRAYS, BAD, st.data())
def test_any_view_against_numpy(c_backend, functions, array, bad, data):
    """The first bad element of a random view is where NumPy finds it."""
    if bad is not None and array.size:
        at = data.draw(st.integers(0, array.size - 1))
        array[np.unravel_index(at, array.shape)] = bad
    view = array[:: data.draw(STEPS), :: data.draw(STEPS)]
    if data.draw(st.booleans()):
        view = view.T
    with np.errstate(all="ignore"):
        mask = ~np.isfinite(view) | (np.abs(view.astype("complex128")) > 100)
    fn = functions(str(view.dtype), 2, big_threshold=100.0)
    if not mask.any():
        fn(view)
        return
    event = trip(fn, view)
    assert event.first_index == tuple(int(i) for i in np.argwhere(mask)[0])
    assert event.n_bad == mask.sum()


# ---------------------------------------------------------------- counts


def test_counts_of_all_kinds(functions):
    array = np.array([[1, 2e10, np.nan], [np.inf, -np.inf, -np.inf], [np.nan, np.nan, 0]])
    event = trip(functions("float64", 2), array)
    assert (event.kind, event.first_index, event.first_value) == ("big", (0, 1), 2e10)
    assert (event.n_nan, event.n_posinf, event.n_neginf, event.n_big) == (3, 1, 2, 1)
    assert (event.size, event.n_bad, event.shape) == (9, 7, (3, 3))


def test_what_is_computed_while_compiling_is_a_constant():
    x = pt.dvector("x")
    assert guarded([x], pt.maximum(x, pt.log(0.0)))(np.ones(2)).tolist() == [1, 1]
    for number, kind in ((0.0, "inf"), (-1.0, "nan")):
        event = trip(guarded([x], x + pt.log(number)), np.ones(2))
        assert (event.role, event.kind) == ("constant", kind)


# ---------------------------------------------------------------- what is no array


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.not_on(
    jax="PyTensor has no sparse variables with JAX",
    pytorch="PyTensor has no sparse variables with PyTorch",
)
def test_sparse_matrices(format, dtype):
    s = pytensor.sparse.matrix(format, "s", dtype=dtype)
    fn = guarded([s], s + s)
    make = getattr(scipy.sparse, f"{format}_matrix")
    dense = np.array([[0, 1, 0], [2, 0, 0]], dtype)
    assert np.array_equal(fn(make(dense)).toarray(), 2 * dense)
    dense[1, 2] = np.nan
    event = trip(fn, make(dense))
    assert (event.role, event.first_index, event.shape, event.size) == ("input", (1, 2), (2, 3), 3)
    dense[1, 2] = 7e9
    event = trip(fn, make(dense))
    assert (event.role, event.kind, event.first_index) == ("node", "big", (1, 2))
    fn(make((0, 0), dtype=dtype))


@pytest.mark.not_on(
    jax="PyTensor has no sparse variables with JAX",
    pytorch="PyTensor has no sparse variables with PyTorch",
)
def test_sparse_constants():
    matrix = scipy.sparse.csr_matrix(np.array([[0.0, 2.0], [3.0, 0.0]]))
    d = pt.dmatrix("d")

    def product(matrix):
        s = pytensor.sparse.as_sparse_variable(matrix)
        s = CheckAndRaise(ValueError, "negative")(s, pt.all(d >= 0))
        return guarded([d], pytensor.sparse.dot(s, d))

    fn = product(matrix)
    assert np.array_equal(fn(np.eye(2)), matrix.toarray())
    assert trip(fn, np.full((2, 2), 5e9)).kind == "big"
    with pytest.raises(ValueError, match="negative"):
        fn(-np.eye(2))
    matrix.data[1] = np.nan
    event = trip(product(matrix), np.eye(2))
    assert (event.role, event.kind, event.first_index) == ("constant", "nan", (1, 0))


@pytest.mark.not_on(
    jax="PyTensor has no sparse variables with JAX",
    pytorch="PyTensor has no sparse variables with PyTorch",
)
def test_what_a_sparse_matrix_makes_of_a_dense_one():
    s = pytensor.sparse.csr_matrix("s", dtype="float64")
    d = pt.dmatrix("d")
    fn = guarded([s, d], pytensor.sparse.structured_dot(s, d))
    matrix = scipy.sparse.csr_matrix(np.eye(2))
    assert np.array_equal(fn(matrix, np.ones((2, 2))), np.ones((2, 2)))
    event = trip(fn, matrix * 1e9, np.full((2, 2), 100.0))
    assert (event.kind, event.role) == ("big", "node")


@pytest.mark.not_on(
    jax="PyTensor compiles no typed lists through JAX",
    pytorch="PyTensor compiles no typed lists through PyTorch",
)
def test_typed_lists():
    kind = pytensor.typed_list.TypedListType(pt.dvector)
    items = kind("items")
    one = pt.dvector("one")
    fn = guarded([items, one], pytensor.typed_list.append(items, pt.log(one)))
    result = fn([np.ones(2)], np.ones(3))
    assert [len(v) for v in result] == [2, 3]
    event = trip(fn, [np.ones(2), np.array([0.0, 1.0, np.inf])], np.ones(1))
    assert (event.role, event.kind, event.first_index, event.size) == ("input", "inf", (1, 2), 5)
    few = [] if backend() == "c" else [np.ones(1)]  # Numba takes no empty list
    assert trip(fn, few, np.array([-1.0])).op.lower() == "log"
    fn(few, np.ones(1))


def test_generators_slices_and_none_are_left_alone(c_backend):
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    x, stop = pt.dvector("x"), pt.lscalar("stop")
    draw = pt.random.normal(x, 1.0, rng=rng)
    next_rng = draw.owner.outputs[0]
    piece = x[slice(None, stop)]
    fn = guarded(
        [x, stop],
        [draw, piece.sum(), x[pt.newaxis, :stop]],
        updates={rng: next_rng},
        check_integers=True,
    )
    expected = np.random.default_rng(3).normal(np.ones(4), 1.0)
    draw_value, total, _ = fn(np.ones(4), 2)
    assert np.array_equal(draw_value, expected)
    assert total == 2
    piece = pt.type_other.slicetype("piece")
    assert guarded([piece], piece)(slice(1, 3)) == slice(1, 3)
    assert guarded([], pt.type_other.NoneConst)() is None


def test_a_python_number_from_a_tensor():
    """ScalarFromTensor gives a number that is no array."""
    x = pt.dscalar("x")
    scalar = pt.scalar_from_tensor(pt.log(x))
    fn = guarded([x], pt.tensor_from_scalar(pytensor.scalar.exp(scalar)))
    assert np.isclose(fn(2.0), 2.0)
    assert trip(fn, -1.0).kind == "nan"


@pytest.mark.not_on(pytorch="PyTensor draws nothing through PyTorch")
def test_a_random_value_is_checked():
    rng = pytensor.shared(np.random.default_rng(3))
    scale = pt.dscalar("scale")
    draw = pt.random.normal(0.0, scale, size=(5,), rng=rng)
    fn = guarded([scale], draw, check_inputs=False)
    fn(1.0)
    event = trip(fn, 1e12)
    assert (event.kind, event.role) == ("big", "node")


@pytest.mark.parametrize("big", [True, False])
def test_an_event_counts_what_its_operation_has_made(big):
    x = pt.dvector("x")
    y = pt.cumsum(pt.log(x))  # (what is not fused: a node of its own)
    mode = GuardMode(action="record", big_is_error=big)
    fn = pytensor.function([x], pt.arcsin(y), mode=mode)
    fn(np.array([1.0, 0.0, np.nan]))
    told = {event.op or event.variable: event for event in events_of(fn)}
    entered, made, again = told["x"], told["Log"], told["Arcsin"]
    assert (entered.n_nan, entered.n_bad) == (1, 1)
    # The NaN of the input is an element of the logarithm, but the input has been reported.
    assert (made.n_nan, made.n_neginf, made.n_bad, made.first_index) == (0, 1, 1, (1,))
    # An Inf that has been reported excuses no NaN; a NaN does.
    assert (again.kind, again.n_nan, again.first_index) == ("nan", 1, (1,))
