"""The compiled check against NumPy: the scan, and the interval programs."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theanoguard import GuardError, GuardMode
from theanoguard.guard import intervals
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
        raising=True,
        n_slots=0,
        report=lambda node, output: None,
        is_bad=policy.is_bad,
        snapshot=None,
        trip_type=AssertionError,
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
    bad, lo, hi = make_kernel(policy).scan(array)
    assert bad == policy.is_bad(array)
    if not bad and array.dtype.kind == "f" and array.size:
        finite = array[np.isfinite(array)]
        if finite.size:
            assert lo <= finite.min()
            assert finite.max() <= hi


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 64, 100, 1000, 10_007])
def test_one_bad_element_is_found_wherever_it_stands(dtype, size):
    policy = Policy(True, True, True)
    guard = make_kernel(policy)
    array = np.ones(size, dtype=dtype)
    assert not guard.scan(array)[0]
    for position in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        for value in (np.nan, -np.inf, 2e10):
            array[position] = value
            assert guard.scan(array)[0], (position, value)
            array[position] = 1


def test_largest_good_and_smallest_bad_value():
    for dtype in ("float32", "float64"):
        guard = make_kernel(Policy(False, False, True))
        limit = np.asarray(1e10, dtype)
        assert not guard.scan(np.full(9, limit))[0]
        assert guard.scan(np.full(9, np.nextafter(limit, np.asarray(np.inf, dtype))))[0]


def test_opcodes_are_those_of_the_kernel():
    module = kernel.load()
    assert module.n_opcodes == len(intervals.OPCODES)
    assert module.max_registers == intervals.MAX_REGISTERS


def test_a_malformed_program_is_refused():
    guard = make_kernel(Policy(True, True, True))
    program = intervals.Program(1)
    program.emit("ADD", 0, 5)  # register 5 does not exist
    cell = [np.zeros(3)]
    with pytest.raises(ValueError, match="malformed"):
        guard.add_node(
            0,
            None,
            lambda: None,
            [],
            [],
            False,
            [cell],
            (program.bytes(), [0], [], [], 1.0, 0.0),
            None,
            False,
        )


# ---------------------------------------------------------------- interval programs

x, y = pt.vector("x", dtype="float64"), pt.vector("y", dtype="float64")
X, Y = pt.matrix("X", dtype="float64"), pt.matrix("Y", dtype="float64")

# name, inputs, expression: every rule of intervals.py
EXPRESSIONS = {
    "add": ([x, y], x + y),
    "sub": ([x, y], x - y),
    "mul": ([x, y], x * y),
    "div": ([x, y], x / y),
    "div by positive": ([x, y], x / (1e-3 + pt.sqr(y))),
    "reciprocal": ([x], 1 / x),
    "neg": ([x], -x * 1e3),
    "abs": ([x], abs(x) * 1e3),
    "sqr": ([x], pt.sqr(x)),
    "sqrt": ([x], pt.sqrt(x) * 2),
    "sqrt of abs": ([x], pt.sqrt(abs(x)) * 2),
    "exp": ([x], pt.exp(x)),
    "expm1": ([x], pt.expm1(x)),
    "log": ([x], pt.log(x)),
    "log of positive": ([x], pt.log(1e-3 + abs(x))),
    "log1p": ([x], pt.log1p(x)),
    "log1p of abs": ([x], pt.log1p(abs(x))),
    "maximum": ([x, y], pt.maximum(x, y) * 3),
    "minimum": ([x, y], pt.minimum(x, y) * 3),
    "switch": ([x, y], pt.switch(x > y, x, y) * 3),
    "clip": ([x], pt.clip(x, -1e3, 1e3) * 3),
    "softplus": ([x], pt.softplus(x) * 3),
    "sigmoid": ([x], pt.sigmoid(x) * 1e9),
    "tanh": ([x], pt.tanh(x) * 1e9),
    "sin": ([x], pt.sin(x) * 1e9),
    "erf": ([x], pt.erf(x) * 1e9),
    "erfc": ([x], pt.erfc(x) * 6e9),
    "arctan": ([x], pt.arctan(x) * 1e9),
    "sign": ([x], pt.sign(x) * 1e9),
    "cast of bool": ([x, y], pt.cast(x > y, "float64") * 1e9 + x),
    "sum": ([x], x.sum()),
    "sum of rows": ([X], X.sum(axis=0)),
    "dot": ([X, Y], pt.dot(X, Y)),
    "matrix by vector": ([X, x], pt.dot(X, x)),
    "scaled dot": ([X, Y], 3e-2 * pt.dot(X, Y)),
    "outer": ([X, x], X + 0.5 * pt.outer(x, x)),
    "set_subtensor": ([x, y], pt.set_subtensor(x[3:], y[3:]) * 3),
    "inc_subtensor": ([x, y], pt.inc_subtensor(x[3:], y[3:])),
    "advanced increment": ([x, y], pt.inc_subtensor(x[np.zeros(64, int)], y[:64])),
    "join": ([x, y], pt.concatenate([x, y]) * 3),
    "composite": ([x, y], pt.exp(-pt.sqr(x - y) / (1 + abs(y))) - pt.log1p(pt.sqr(x))),
}


@pytest.fixture(scope="module")
def compiled():
    """Each expression, guarded, compiled when it is first asked for."""
    cache = {}

    def get(name):
        if name not in cache:
            inputs, output = EXPRESSIONS[name]
            cache[name] = inputs, pytensor.function(inputs, output, mode=GuardMode())
        return cache[name]

    return get


MAGNITUDES = [0.0, 1e-300, 1e-8, 1e-3, 1.0, 20.0, 800.0, 1e5, 9e9]


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_proof_never_hides_a_bad_value(compiled, name, data):
    """The compiled guard trips exactly where NumPy finds something bad.

    The inputs are below the limit themselves, of any magnitude and sign, so whatever trips
    was made by the operations.
    """
    inputs, fn = compiled(name)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = []
    for variable in inputs:
        magnitude = data.draw(st.sampled_from(MAGNITUDES))
        value = rng.uniform(-1, 1, (70,) * variable.type.ndim) * magnitude
        if data.draw(st.booleans()):
            value = abs(value)
        values.append(value)
    policy = fn.vm.guard.policy
    try:
        result = fn(*values)
    except GuardError as error:
        assert error.event.role == "node"
        assert policy.is_bad(error_value(fn, error))
    else:
        assert not policy.is_bad(result)


def error_value(fn, error):
    """The first bad value that the event tells of."""
    return np.asarray(error.event.first_value)


def test_proofs_do_happen(compiled):
    """On ordinary values nothing but the inputs is scanned."""
    _inputs, fn = compiled("composite")
    ones = np.ones(100)
    fn(ones, ones)
    before = fn.vm.guard.kernel.counters()
    fn(ones, ones)
    after = fn.vm.guard.kernel.counters()
    assert after["scans"] - before["scans"] == 2
    assert after["proofs"] > before["proofs"]


def test_the_tail_is_proved_or_copied():
    """Overwriting a weight costs no copy while the bounds show that it cannot trip."""
    w = pytensor.shared(np.ones((70, 70)), name="w")
    fn = pytensor.function([X], X.sum(), updates=[(w, w - 0.1 * pt.dot(X, X))], mode=GuardMode())
    fn(np.ones((70, 70)))
    assert fn.vm.guard.kernel.counters()["tail"] == 1
    signs = np.where(np.arange(70) % 2, 1.0, -1.0)
    fn(4e4 * signs[:, None] * np.ones(70))  # the bound is beyond the limit, the update is not
    assert fn.vm.guard.kernel.counters()["tail"] == 2
    before = w.get_value()
    with pytest.raises(GuardError):
        fn(np.full((70, 70), 1e6))
    assert np.array_equal(w.get_value(), before)


def test_numpy_kernel_has_the_same_face():
    compiled = {name for name in dir(kernel.load().Guard) if not name.startswith("_")}
    plain = {name for name in dir(numpy_kernel.Guard) if not name.startswith("_")}
    assert plain <= compiled
    assert compiled - plain == {"scan", "interval", "clock"}  # for tests and figures alone
