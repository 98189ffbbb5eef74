"""The compiled guard: its scan against NumPy, its flags, and what it refuses."""

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


def make_kernel(policy):
    return kernel.load().Guard(
        nan=policy.nan,
        inf=policy.inf,
        big=policy.big,
        ints=policy.integers,
        limit=policy.limit,
        is_bad=policy.is_bad,
        save=None,
        verdict=None,
        enter=None,
    )


policies = st.builds(
    Policy,
    nan=st.booleans(),
    inf=st.booleans(),
    big=st.booleans(),
    limit=st.sampled_from([1e10, 1e3, 1e-3, 1e300, 65000.0]),
    integers=st.booleans(),
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


def test_largest_good_and_smallest_bad_value():
    for dtype in ("float32", "float64"):
        guard = make_kernel(Policy(False, False, True))
        limit = np.asarray(1e10, dtype)
        assert not guard.scan(np.full(9, limit))
        assert guard.scan(np.full(9, np.nextafter(limit, np.asarray(np.inf, dtype))))


def test_malformed_arguments_are_refused():
    guard = make_kernel(Policy(True, True, True))
    with pytest.raises(TypeError):
        guard.set_inputs([1])
    with pytest.raises(TypeError):
        guard.set_inputs("nothing")
    with pytest.raises(TypeError):
        guard.set_mode(None, 0, [], [])
    with pytest.raises(ValueError, match="Capsule"):
        guard.add_node(0, 3, print, [], [], [])
    with pytest.raises(ValueError, match="partly"):
        guard.add_node(0, None, print, [[1]], [], [])
    with pytest.raises(TypeError, match="cell"):
        guard.add_node(0, None, print, [3], [False], [])
    node = guard.add_node(0, None, print, [], [], [])
    with pytest.raises(ValueError, match="mode"):
        guard.set_mode(node, -1, [], [])
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
