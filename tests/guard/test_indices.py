"""An index outside of its array raises, on Numba as well: the index, the length and the line."""

import re
from contextlib import contextmanager, suppress

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import NO_LOOPS, backend, computes_both_branches, plain_mode
from pytensor.tensor.basic import Alloc

from theanoguard import GuardError, GuardMode, events_of
from theanoguard._pytensor import ifelse

X, M = np.array([1.0, 2.0, 3.0]), np.arange(12.0).reshape(3, 4)


def scan(step, sequence, array):
    return pytensor.scan(
        step, sequences=[sequence], non_sequences=[array], return_updates=False, strict=True
    )


# Each takes a vector, a matrix and a vector of indices.
PROGRAMS = {
    "read": lambda x, m, i: x[i],
    "read and summed": lambda x, m, i: pt.exp(x[i]).sum(),
    "rows": lambda x, m, i: m[i],
    "pairs": lambda x, m, i: m[i, pt.zeros_like(i)],
    "number": lambda x, m, i: x[i[1]],
    "set": lambda x, m, i: pt.set_subtensor(x[i], 7.0),
    "increment": lambda x, m, i: pt.inc_subtensor(x[i], i * 0.5),
    "gradient": lambda x, m, i: pt.grad(pt.sqr(x[i]).sum(), x),
    "in a loop": lambda x, m, i: scan(lambda k, x: x[k] * 2, i, x),
    "many in a loop": lambda x, m, i: scan(lambda k, x: x[k + pt.arange(1)].sum(), i, x),
    "small integers": lambda x, m, i: x[pt.cast(pt.stack([i, i]), "int8")],
}

OF_THREE = [3, -4, 100]


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch checks them itself")
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_outside_raises(name):
    x, m, i = pt.dvector("x"), pt.dmatrix("m"), pt.lvector("i")
    out = PROGRAMS[name](x, m, i)
    fn = pytensor.function([x, m, i], out, mode=GuardMode(), on_unused_input="ignore")
    expected = pytensor.function([x, m, i], out, mode="FAST_COMPILE", on_unused_input="ignore")
    for index in ([0, 2], [-3, 1]):
        np.testing.assert_allclose(fn(X, M, index), expected(X, M, index))
    for outside in OF_THREE:
        with pytest.raises(IndexError) as caught:
            fn(X, M, [0, outside])
        told = str(caught.value) + "\n".join(caught.value.__notes__)
        assert "test_indices.py" in told
        if backend() == "numba":
            assert f"index {outside} is out of bounds for axis 0 with size 3" in str(caught.value)
    np.testing.assert_allclose(fn(X, M, [0, 2]), expected(X, M, [0, 2]))


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch checks them itself")
def test_a_failed_call_leaves_shared_variables():
    w, i = pytensor.shared(X.copy(), name="w"), pt.lvector("i")
    v = pytensor.shared(0.0)
    updates = {w: pt.inc_subtensor(w[i], 1.0), v: v + 1}
    fn = pytensor.function([i], w[i].sum(), updates=updates, mode=GuardMode())
    for _ in range(2):
        with pytest.raises(IndexError):
            fn([1, 3])
    np.testing.assert_array_equal(w.get_value(), X)
    assert v.get_value() == 0 and fn([1, 2]) == 5


# PyTensor rewrites these to graphs without the index.
DROPPED = {
    "set, then read": lambda x, m, k: pt.set_subtensor(x[k], 7.0)[k],
    "set, then read rows": lambda x, m, k: pt.set_subtensor(x[[k]], x[:1] * 2)[[k]],
    "set columns, then read": lambda x, m, k: pt.set_subtensor(m[:, [k]], 1.0)[:, [k]],
    "of one number": lambda x, m, k: pt.full((x.shape[0],), x[0])[k],
    "of equal rows": lambda x, m, k: pt.alloc(x, 2, x.shape[0])[k],
    "of one row": lambda x, m, k: m[None][k],
    "of stacked rows": lambda x, m, k: pt.stack([x, x])[k],
    "of a batch of one": lambda x, m, k: pt.exp(x[None, :])[k],
    "times 0": lambda x, m, k: x[1:][k] * 0,
    "one by one, times 0": lambda x, m, k: (pt.exp(x)[[k]] * 0).sum(),
    "minus itself": lambda x, m, k: x[k] - x[k],
    "by itself": lambda x, m, k: x[k] / x[k],
    "equal to itself": lambda x, m, k: pt.eq(m[k], m[k]),
    "and False": lambda x, m, k: pt.and_(x[k] > 0, np.array(False)),
    "incremented, times 0": lambda x, m, k: pt.inc_subtensor(x[[k]], 1.0) * 0,
    "incremented by 0": lambda x, m, k: pt.inc_subtensor(x[[k]], 0.0 * x[0]),
}


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch takes long to compile these")
@pytest.mark.parametrize("name", DROPPED)
def test_no_rewrite_drops_an_index(name):
    x, m, k = pt.dvector("x"), pt.dmatrix("m"), pt.lscalar("k")
    out = DROPPED[name](x, m, k)
    fn = pytensor.function([x, m, k], out, mode=GuardMode(), on_unused_input="ignore")
    plain = pytensor.function([x, m, k], out, mode="FAST_COMPILE", on_unused_input="ignore")
    np.testing.assert_array_equal(fn(X, M, 0), plain(X, M, 0))
    for outside in (100, -100):
        with pytest.raises(IndexError):
            fn(X, M, outside)


# PyTensor reads these from the whole array: an element of it beyond the slice, without an error.
BEYOND = {
    "end": (lambda x, k, j: x[:k][j], 2, 2),
    "end, backwards": (lambda x, k, j: x[:k][j], 1, -2),
    "begin": (lambda x, k, j: x[k:][j], 1, -3),
    "both": (lambda x, k, j: x[k : k + 1][j], 1, 1),
    "last of nothing": (lambda x, k, j: pt.exp(x[:k][-1]), 0, 0),
    "second of one": (lambda x, k, j: x[:k][1], 1, 0),
    "constant end": (lambda x, k, j: x[:2][j], 0, 2),
    "of rows": (lambda x, k, j: pt.stack([x, x])[:, :k][0, j], 1, 1),
    "joined": (lambda x, k, j: pt.concatenate([x, x])[:2][j], 0, 2),
}


UNKEPT = {
    "power of 0": lambda x, k: x[k] ** 0,
    "shape": lambda x, k: pt.zeros_like(pt.stack([x, x])[:, k]),
    "lower bits": lambda x, k: x[k * 2**32],
}


@pytest.mark.usefixtures("c_backend", "needs_cxx")
@pytest.mark.parametrize("name", UNKEPT)
def test_the_documented_indices_that_nobody_checks(name):
    x, k = pt.dvector("x"), pt.lscalar("k")
    fn = pytensor.function([x, k], UNKEPT[name](x, k), mode=GuardMode())
    np.testing.assert_array_equal(fn(X, 5), fn(X, 0))


@pytest.mark.not_on(pytorch=NO_LOOPS)
def test_a_loop_without_a_state_is_computed_at_once_as_without_a_guard():
    x = pt.dvector("x")
    doubled = pytensor.scan(lambda v: v * 2, sequences=[x], n_steps=6, return_updates=False)
    modes = plain_mode(), GuardMode()
    results = [pytensor.function([x], doubled, mode=m)(np.arange(5.0)) for m in modes]
    np.testing.assert_array_equal(*results)
    assert len(results[1]) == 5


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch takes long to compile these")
@pytest.mark.parametrize("name", BEYOND)
def test_no_rewrite_loses_the_end_of_a_slice(name):
    make, k, j = BEYOND[name]
    x, stop, index = pt.dvector("x"), pt.lscalar("k"), pt.lscalar("j")
    out = make(x, stop, index)
    fn = pytensor.function([x, stop, index], out, mode=GuardMode(), on_unused_input="ignore")
    assert np.isfinite(fn(np.arange(9.0), 2, 0))
    with pytest.raises(IndexError):
        fn(X, k, j)


def test_a_length_of_arrays_that_are_broadcast_is_a_length():
    """The gradient of ``n * log(s)`` makes no array, with the guard as without it."""
    x, y, s = pt.dvector("x"), pt.dvector("y"), pt.dscalar("s")
    gradient = pt.grad((-0.5 * ((x - y) / s) ** 2 - pt.log(s)).sum(), s)
    fn = pytensor.function([x, y, s], gradient, mode=GuardMode(backend=backend()))
    assert not any(isinstance(node.op, Alloc) for node in fn.maker.fgraph.apply_nodes)
    np.testing.assert_allclose(fn(X, X - 1.0, 2.0), -3 / 2 + 3 / 8)


@pytest.mark.not_on(jax="JAX takes no such length", pytorch="PyTorch takes long to compile these")
def test_no_rewrite_drops_a_negative_length():
    s, n = pt.dscalar("s"), pt.lscalar("n")
    fn = pytensor.function([s, n], pt.full((n,), s).sum(), mode=GuardMode())
    assert fn(2.0, 3) == 6
    with pytest.raises((ValueError, MemoryError)):
        fn(2.0, -3)


def recurrent(x, m, n):
    start = pt.constant(1.0, dtype="float64")
    return pytensor.scan(
        lambda a, s: pt.tanh(a + s),
        sequences=[x],
        outputs_info=[start],
        n_steps=n,
        return_updates=False,
    )


def with_taps(x, m, n):
    rows = {"input": m, "taps": [-1, 0]}
    return pytensor.scan(
        lambda a, b: pt.exp(a - b.max()), sequences=[rows], n_steps=n, return_updates=False
    )


# Each takes a vector, a matrix and a number, and runs as many steps of a loop.
LOOPS = {
    "recurrent": recurrent,
    "with taps": with_taps,
    "gradient": lambda x, m, n: pt.grad(recurrent(x, m, n)[-1], x),
    "in a loop": lambda x, m, n: pytensor.scan(
        lambda r: recurrent(r, m, n).sum(), sequences=[m.T], return_updates=False
    ),
    "constant": lambda x, m, n: recurrent(m.flatten()[5 * n :], m, 2),
}


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch checks them itself")
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_does_not_read_past_the_end_of_a_sequence(name):
    x, m, n = pt.dvector("x"), pt.dmatrix("m"), pt.lscalar("n")
    out = LOOPS[name](x, m, n)
    fn = pytensor.function([x, m, n], out, mode=GuardMode(), on_unused_input="ignore")
    plain = pytensor.function([x, m, n], out, mode="FAST_COMPILE", on_unused_input="ignore")
    for _ in range(2):
        np.testing.assert_allclose(fn(X, M, 2), plain(X, M, 2))
        for steps in (4, 1000):
            with pytest.raises(ValueError, match="Scan's required number of steps is"):
                fn(X, M, steps)


LARGEST = 2**64 - 1


@pytest.mark.parametrize("name", ["read", "rows", "pairs", "set"])
def test_large_unsigned_numbers_are_outside(name):
    """Numba's code takes no such index from the end, as NumPy does."""
    if backend() != "numba":
        pytest.skip("PyTensor's C code takes them from the end, as NumPy")
    x, m, i = pt.dvector("x"), pt.dmatrix("m"), pt.vector("i", dtype="uint64")
    out = PROGRAMS[name](x, m, i)
    fn = pytensor.function([x, m, i], out, mode=GuardMode(), on_unused_input="ignore")
    plain = pytensor.function([x, m, i], out, mode="FAST_COMPILE", on_unused_input="ignore")
    inside = np.array([2, 0], "uint64")
    np.testing.assert_array_equal(fn(X, M, inside), plain(X, M, inside))
    for outside in (LARGEST, LARGEST - 2, 2**63, 2**63 - 1, 3):
        with pytest.raises(IndexError, match=f"index {outside} is out of bounds"):
            fn(X, M, np.array([0, outside], "uint64"))


@pytest.fixture
def on_numba():
    if backend() != "numba":
        pytest.skip("is about Numba's code")


def n_checked(inputs, out):
    """Return how many vectors of indices a function checks in each call."""

    def read(check_indices):
        mode = GuardMode(check_indices=check_indices)
        fn = pytensor.function(inputs, out, mode=mode, on_unused_input="ignore")
        return int(re.search(r"(\d+) values? read", mode.summary(fn).signs)[1])

    return read(True) - read(False)


@pytest.mark.deep
def test_what_is_known_to_be_inside_costs_nothing(on_numba):
    x, m, i = pt.tensor("x", shape=(3,)), pt.dmatrix("m"), pt.lvector("i")
    for out, n in (
        (x[[0, 2, -3]], 0),
        (x[i % 3], 0),
        (m[pt.arange(m.shape[0]), 0 * i], 1),
        (m[:, [0, 2, 1]], 1),
        (x[i].sum() + pt.grad(pt.sqr(x[i]).sum(), x).sum(), 1),
    ):
        assert n_checked([x, m, i], out) == n, str(out)
    # A constant that is outside of a length that is known in the call only.
    fn = pytensor.function([m], m[:, [0, 2, 5]], mode=GuardMode())
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1 with size 4"):
        fn(M)


def test_a_branch_that_is_not_taken_may_index_outside():
    if computes_both_branches():
        pytest.skip("PyTensor's own code raises there")
    x, i = pt.dvector("x"), pt.lvector("i")
    out = ifelse(pt.lt(i.max(), x.shape[0]), x[i].sum(), pt.constant(np.float64(-1)))
    fn = pytensor.function([x, i], out, mode=GuardMode())
    assert fn(X, [0, 1]) == 3 and fn(X, [0, 3]) == -1


# Each uses integers that were computed from a NaN: which of them are outside differs by processor.
USES = {
    "number": lambda k, x, m: x[k[0]],
    "read": lambda k, x, m: x[k],
    "rows": lambda k, x, m: m[k],
    "pairs": lambda k, x, m: m[k, k],
    "set": lambda k, x, m: pt.set_subtensor(x[k], 1.0),
    "increment": lambda k, x, m: pt.inc_subtensor(m[k[0]], 1.0),
    "end": lambda k, x, m: x[: k[0]],
    "begin": lambda k, x, m: x[k[0] :].sum(),
    "length": lambda k, x, m: pt.zeros(k[0]),
    "filled": lambda k, x, m: pt.full((k[0], 2), x[0]).sum(),
    "range": lambda k, x, m: pt.arange(k[0]),
    "reshape": lambda k, x, m: m.reshape((k[0], -1)),
    "repeat": lambda k, x, m: pt.repeat(x, k),
    "clipped": lambda k, x, m: x[pt.clip(k, 0, 2)],
    "modulo": lambda k, x, m: x[k % 3],
    "roll": lambda k, x, m: pt.roll(x, k[0]),
    "identity": lambda k, x, m: pt.eye(k[0]),
    "steps": lambda k, x, m: recurrent(x, m, k[0]),
    "condition": lambda k, x, m: ifelse(pt.gt(k[0], 0), x.sum(), m.sum()),
    "in a loop": lambda k, x, m: scan(lambda i, x: x[i], k, x),
    "thrown away": lambda k, x, m: pt.switch(x > 0, x[k], x),
}
NAN = {
    "fused": pt.log,
    "computed before": lambda x: pt.cumsum(pt.sqrt(x)),
    "without a flag": lambda x: pt.ones(3) * pt.mean(x[:0]),
}
SLOW = [
    (use, nan)
    for use in USES
    for nan in NAN
    if nan != "fused" or use not in ("number", "read", "set", "thrown away")
]


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch takes long to compile these")
@pytest.mark.parametrize(
    ("use", "nan"),
    [
        pytest.param(use, nan, marks=[pytest.mark.deep] if (use, nan) in SLOW else [])
        for use in USES
        for nan in NAN
    ],
)
def test_a_nan_that_becomes_an_index_is_reported_and_not_the_index(use, nan):
    (x, y), m = pt.dvectors("x", "y"), pt.dmatrix("m")
    out = USES[use](pt.cast(NAN[nan](y), "int64"), x, m)
    for action in ("raise", "record"):
        mode = GuardMode(action=action)
        fn = pytensor.function([y, x, m], out, mode=mode, on_unused_input="ignore")
        for _ in range(2):
            with pytest.raises(GuardError, match="NaN in") if action == "raise" else some_error():
                fn(np.array([-1.0, 1.0, 2.0]), X, M)
        assert {event.kind for event in events_of(fn)} == {"nan"}


@contextmanager
def some_error():
    """A call that goes on with such an index may end in an error of its own, or in none."""
    with suppress(IndexError, ValueError, MemoryError):
        yield


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch takes long to compile these")
def test_an_index_that_was_computed_from_a_nan_reads_nothing_outside():
    """Also where the guard lets the call go on, because it reports only what spoils the result."""
    x, y = pt.dvectors("x", "y")
    out = x[pt.cast(pt.log(y), "int64")]
    fn = pytensor.function([y, x], out, mode=GuardMode(judge="result"))
    discarded = pytensor.function([y, x], pt.switch(out > 0, pt.log(y), 0), mode=GuardMode())
    assert fn(np.ones(3), X).tolist() == [1, 1, 1] and np.isfinite(discarded(np.ones(3), X)).all()
    for each in (fn, discarded):
        for _ in range(2):
            with pytest.raises((IndexError, GuardError)):
                each(np.array([1.0, -1.0, 1.0]), X)
