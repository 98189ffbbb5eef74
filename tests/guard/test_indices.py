"""An index outside of its array raises, on Numba as well: the index, the length and the line."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend, computes_both_branches

from theanoguard import GuardMode
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


@pytest.mark.not_on(jax="JAX clips indices", pytorch="PyTorch takes long to compile these")
def test_the_last_element_of_nothing():
    x, k = pt.dvector("x"), pt.lscalar("k")
    fn = pytensor.function([x, k], pt.exp(x[:k][-1]), mode=GuardMode())
    assert fn(X, 2) == np.exp(2.0)
    with pytest.raises(IndexError):
        fn(X, 0)


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
