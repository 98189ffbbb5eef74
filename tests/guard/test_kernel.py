"""The compiled guard: its scan against NumPy, its flags, and what it refuses."""

import itertools
import platform

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theanoguard.guard.c import build as kernel
from theanoguard.guard.c import numpy_kernel
from theanoguard.guard.policy import Policy

pytestmark = pytest.mark.usefixtures("needs_cxx")

DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "uint64"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e10, -1e10, 1.0000002e10, 3e10, -3e10, np.inf, -np.inf, np.nan]


def make_kernel(policy, module=None):
    return (module or kernel.load()).Guard(
        nan=policy.nan,
        inf=policy.inf,
        big=policy.big,
        ints=policy.check_integers,
        limit=policy.big_threshold,
        is_bad=policy.is_bad,
        save=None,
        verdict=None,
        enter=None,
        before_loss=None,
    )


policies = st.builds(
    Policy,
    nan=st.booleans(),
    inf=st.booleans(),
    big=st.booleans(),
    big_threshold=st.sampled_from([1e10, 1e3, 1e-3, 1e300, 65000.0]),
    check_integers=st.booleans(),
).filter(lambda policy: policy.nan or policy.inf or policy.big)


@st.composite
def arrays(draw):
    """Arrays of every kind and layout with a few special values in them."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12))
    array = np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape).astype(dtype)
    for _ in range(draw(st.integers(0, 2)) if array.size else 0):
        value = draw(st.sampled_from(SPECIAL))
        if dtype.kind in "iu":
            value = abs(value) if np.isfinite(value) and abs(value) < 2**63 else 0
            value = min(value, np.iinfo(dtype).max)
        where = np.unravel_index(draw(st.integers(0, array.size - 1)), shape)
        with np.errstate(all="ignore"):
            array[where] = complex(0.5, value) if dtype.kind == "c" else value
    steps = tuple(slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in shape)
    array = array[steps]
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()) and array.ndim:
        array = np.broadcast_to(array, (3, *array.shape))
    return array


@settings(max_examples=400)
@given(array=arrays(), policy=policies)
def test_the_scan_agrees_with_numpy(array, policy):
    assert make_kernel(policy).scan(array) == policy.is_bad(array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 64, 100, 1000, 10_007])
def test_one_bad_element_is_found_wherever_it_stands(dtype, size):
    policy = Policy(True, True, True)
    guard = make_kernel(policy)
    array = np.ones(size, dtype=dtype)
    assert not guard.scan(array)
    for position in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        for value in (np.nan, -np.inf, 2e10):
            array[position] = value
            assert guard.scan(array), (position, value)
            array[position] = 1


@pytest.mark.deep  # (compiles the kernel for each)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86-64")
@pytest.mark.parametrize("without", ["-mno-avx512bw", "-mno-avx512bw -mno-avx2"])
def test_a_scan_with_shorter_vectors(without, tmp_path):
    with pytensor.config.change_flags(gcc__cxxflags=f"{pytensor.config.gcc__cxxflags} {without}"):
        library = tmp_path / "kernel" / kernel.location().name
        kernel.build(library)
    guard = make_kernel(Policy(True, True, True), kernel.import_library(library))
    for dtype, size in itertools.product(("float16", "float32", "float64"), (1, 7, 31, 64, 301)):
        array = np.full(size + 1, np.nan, dtype)[:-1]
        array[:] = 1
        assert not guard.scan(array)
        for i in range(size):
            array[i] = np.nan
            assert guard.scan(array)
            array[i] = 1


# Views of an array that is NaN elsewhere.
LAYOUTS = {
    "row": lambda whole: whole[1, 3:39],
    "column": lambda whole: whole[1:-1, 5],
    "every third": lambda whole: whole[1, 4:40:3],
    "reversed": lambda whole: whole[2, 38:3:-1],
    "reversed, every second": lambda whole: whole[2, 38:3:-2],
    "rows": lambda whole: whole[1:4],
    "part of rows": lambda whole: whole[1:4, 2:-2],
    "reversed rows": lambda whole: whole[3:0:-1, 2:-2],
    "both reversed": lambda whole: whole[3:0:-1, -2:1:-1],
    "transposed": lambda whole: whole[1:4, 2:-2].T,
    "transposed and reversed": lambda whole: whole[1:4, 2:-2].T[::-1],
    "three axes": lambda whole: whole[1:4, 2:38].reshape(3, 4, 9).transpose(2, 0, 1),
    "repeated": lambda whole: np.lib.stride_tricks.as_strided(
        whole[1:, 2:], (4, 3), (0, whole.itemsize)
    ),
    "no axis": lambda whole: whole[1, 2:3].reshape(()),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_scan_reads_the_elements_of_the_array_and_no_others(layout, dtype):
    guard = make_kernel(Policy(True, True, True))
    whole = np.full((5, 41), np.nan, dtype)
    view = LAYOUTS[layout](whole)
    view[...] = 1
    assert not guard.scan(view)
    for index in np.ndindex(view.shape):
        for bad in (np.nan, 1j * np.inf if view.dtype.kind == "c" else -np.inf):
            view[index] = bad
            assert guard.scan(view), (index, bad)
            view[index] = 1


def numbers_near(limit, dtype):
    """Numbers of a dtype on both sides of a limit, and special ones."""
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        near = np.asarray(limit, dtype)
        down, up = (np.nextafter(near, np.asarray(to, dtype)) for to in (0, np.inf))
    return [near, down, up, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan, 0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_scan_agrees_with_numpy_on_each_side_of_a_limit(dtype):
    limits = [1e10, 1.0, 1e3, 65504.0, 65505.0, 3e-5, 1e-7, 3.4028235e38, 1e-40, 1e300, 1.7e308]
    for limit, nan, inf, big in itertools.product(limits, *[(True, False)] * 3):
        if not (nan or inf or big):
            continue
        policy = Policy(nan, inf, big, big_threshold=limit)
        guard = make_kernel(policy)
        for number, size in itertools.product(numbers_near(limit, dtype), (1, 5, 100)):
            for array in (np.full(size, number, dtype), np.full((size, 2), -number, dtype)[:, 0]):
                assert guard.scan(array) == policy.is_bad(array), (number, size, policy)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_modulus_of_a_complex_number_counts(dtype):
    real = np.empty(0, dtype).real.dtype
    for limit, nan, inf, big in itertools.product([1e10, 0.1], *[(True, False)] * 3):
        if not (nan or inf or big):
            continue
        policy = Policy(nan, inf, big, big_threshold=limit)
        guard = make_kernel(policy)
        parts = [limit * f for f in (0, 0.5, 0.7, 0.708, 0.8, 1, 1.01)] + [np.inf, np.nan]
        for x, y in itertools.product(np.array(parts, real), repeat=2):
            number = np.empty((), dtype)
            number.real, number.imag = -x, y
            for array in (np.full(1, number), np.full(64, number)[::2], np.full(50, number)):
                assert guard.scan(array) == policy.is_bad(array), (number, policy)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_integers_are_compared_with_any_limit(dtype):
    info = np.iinfo(dtype)
    for limit in (0.5, 100.0, 127.0, 127.5, 128.0, 255.0, 32768.0, 65535.5, 2.0**31, 1e10):
        policy = Policy(False, False, True, big_threshold=limit, check_integers=True)
        guard = make_kernel(policy)
        near = {int(sign * limit) + step for sign in (1, -1) for step in (-1, 0, 1)}
        for number in {info.min, info.max, *(n for n in near if info.min <= n <= info.max)}:
            array = np.full(19, number, dtype)
            assert guard.scan(array) == policy.is_bad(array), (number, limit)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_long_integers_are_rounded_as_numpy_rounds_them(dtype):
    info = np.iinfo(dtype)
    for limit in (1e10, 2.0**53 - 1, 2.0**53, 2.0**60, 2.0**63, 2.0**64):
        policy = Policy(False, False, True, big_threshold=limit, check_integers=True)
        guard = make_kernel(policy)
        near = {int(sign * limit) + step for sign in (1, -1) for step in (-513, -1, 0, 1, 2, 513)}
        for number in {info.min, info.max, *(n for n in near if info.min <= n <= info.max)}:
            array = np.full(19, number, dtype)
            assert guard.scan(array) == policy.is_bad(array), (number, limit)


def test_malformed_arguments_are_refused():
    guard = make_kernel(Policy(True, True, True))
    with pytest.raises(TypeError):
        guard.set_inputs([1])
    with pytest.raises(TypeError):
        guard.set_inputs("nothing")
    with pytest.raises(TypeError):
        guard.set_mode(None, 0, [], [], [])
    with pytest.raises(ValueError, match="Capsule"):
        guard.add_node(0, 3, print, [], [])
    with pytest.raises(TypeError, match="root, input"):
        guard.add_node(0, None, print, [[1]], [])
    with pytest.raises(TypeError, match="cell"):
        guard.add_node(0, None, print, [([1], [1], 3, None, False, False)], [])
    with pytest.raises(ValueError, match="second buffer"):
        guard.set_updated([[1]], [])
    node = guard.add_node(0, None, print, [], [])
    with pytest.raises(ValueError, match="mode"):
        guard.set_mode(node, -1, [], [], [])
    with pytest.raises(TypeError, match="pair"):
        guard.set_mode(node, 0, [], [], [1])
    with pytest.raises(TypeError, match="Guard"):
        guard.join(None)


def test_flags_are_raised_by_what_makes_a_bad_value():
    module = kernel.load()
    assert module.flags_work
    divide = pytensor.function([x := pt.dvector(), y := pt.dvector()], x / y, mode="CVM")
    module.clear_flags()
    divide(np.ones(20), np.ones(20))
    assert module.read_flags() == 0
    divide(np.ones(20), np.arange(20.0))
    assert module.read_flags() != 0
    module.clear_flags()
    assert module.read_flags() == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_scan_keeps_the_flags_of_the_nodes_before_it(dtype, step):
    module, guard = kernel.load(), make_kernel(Policy(nan=True, inf=False, big=False))
    divide = pytensor.function([x := pt.dvector(), y := pt.dvector()], x / y, mode="CVM")
    infinite = np.full(100, np.inf, dtype)[::step]
    for divisor in (np.ones(20), np.arange(20.0)):
        module.clear_flags()
        divide(np.ones(20), divisor)
        raised = module.read_flags()
        assert not guard.scan(infinite)  # allowed, but looked at closely
        assert module.read_flags() == raised


def test_numpy_kernel_has_the_same_face():
    compiled = {name for name in dir(kernel.load().Guard) if not name.startswith("_")}
    plain = {name for name in dir(numpy_kernel.Guard) if not name.startswith("_")}
    assert plain <= compiled
    assert compiled - plain == {"clock"}  # for figures alone
