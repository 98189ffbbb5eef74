"""Random graphs with a planted bad value: the guard against a node-by-node oracle."""

import random

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend, computes_both_branches, plain_mode
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from oracle import first_bad
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import Scan, ifelse

# How the switch `d` (1 is harmless) makes a bad value: harmless and harmful value, and how.
PLANTS = {
    "nan": (-1.0, lambda x, d: x + (pt.sqrt(d) - 1)),
    "inf": (0.0, lambda x, d: x + (1 / d - 1)),
    "big": (1e8, lambda x, d: x + (d - 1) ** 2),
}

# The backends whose guarded functions differ in the last bits from the unguarded ones, and why.
ROUNDED_OTHERWISE = {
    "numba": "checks cut its loops",
    "jax": "XLA fuses less where values are read",
}

UNARY = [
    pt.tanh,
    pt.neg,
    pt.abs,
    pt.sqr,
    pt.sigmoid,
    pt.softplus,
    lambda x: pt.exp(pt.clip(x, -5, 5)),
    lambda x: pt.log1p(pt.abs(x)),
    lambda x: pt.sqrt(pt.abs(x) + 1),
    lambda x: pt.maximum(x, 0),
    lambda x: pt.switch(x > 0, x, x * 0.1),
    lambda x: x[::-1],
    lambda x: x.T,
    lambda x: pt.cumsum(x, axis=0) / 10,
    lambda x: x[pt.argsort(x[:, 0])],
    lambda x: x - x.mean(axis=0, keepdims=True),
    lambda x: x / (1 + pt.abs(x).sum(axis=1, keepdims=True)),
    lambda x: x.max(axis=1, keepdims=True) - x,
    lambda x: pt.set_subtensor(x[0], 1),
    lambda x: pt.inc_subtensor(x[1:], x[:-1]),
    lambda x: pt.concatenate([x[1:], x[:1]]),
]
if pytensor.config.cxx:
    UNARY.append(lambda x: pt.special.softmax(x, axis=1))

BINARY = [
    pt.add,
    pt.sub,
    pt.mul,
    pt.maximum,
    lambda x, y: x / (1 + pt.sqr(y)),
    lambda x, y: pt.dot(x, y) / 4,
    lambda x, y: pt.switch(x > y, x, y),
]
if not computes_both_branches():
    BINARY.append(lambda x, y: ifelse(pt.gt(x.sum(), 0), x + y, x - y))


def loop(x, w):
    """Three steps of a recurrence."""
    return pytensor.scan(
        lambda h, w: pt.tanh(pt.dot(h, w) / 2) + h / 2,
        outputs_info=[x],
        non_sequences=[w],
        n_steps=3,
        return_updates=False,
    )[-1]


def build(seed, n, dtype, kind, fused, with_loop, arguments):
    """Compile one random graph guarded and plain; return both and the shared variables."""
    rng = random.Random(seed)
    _harmful, plant = PLANTS[kind]
    # (JAX computes some float32 values in float64.  C compiles much faster than Numba.)
    c_linker = "cvm" if pytensor.config.cxx else "vm"
    plain = plain_mode() if backend() == "jax" else Mode(c_linker, "fast_run")
    modes = (GuardMode(True, True, True, optimizer="fast_run", **arguments), plain)
    functions = []
    length, planted = rng.randint(3, 10), rng.random()
    state = rng.getstate()
    for mode in modes:
        rng.setstate(state)
        values = np.random.default_rng(seed)
        x = pt.matrix("x", dtype=dtype, shape=(n, n))
        d = pt.scalar("d", dtype=dtype)
        weights = [
            pytensor.shared((values.normal(size=(n, n)) / 3).astype(dtype), name=f"w{i}")
            for i in range(2)
        ]
        pool = [x, *weights]
        for i in range(length):
            newest = pool[-1] if rng.random() < 0.7 else rng.choice(pool)
            if rng.random() < 0.55:
                new = rng.choice(UNARY)(newest)
            else:
                new = rng.choice(BINARY)(newest, rng.choice(pool))
            if i == int(planted * length):
                new = plant(new, d)
            pool.append(new.astype(dtype))
        if with_loop:
            pool.append(loop(pool[-1], weights[0]))
        outputs = [pool[-1].sum(), pool[-2]]
        step = np.asarray(0.01, dtype)
        w0, w1 = weights
        updates = [
            (w0, w0 - step * pt.dot(x.T, pool[-1])),
            (w1, rng.choice([w1 * 0.9 + step * pool[-2], pt.inc_subtensor(w1[:2], pool[-1][:2])])),
        ]
        updates = [(w, new.astype(dtype)) for w, new in updates]
        if not fused:
            mode = mode.excluding("fusion")
        fn = pytensor.function(
            [x, d], outputs, updates=updates, mode=mode, on_unused_input="ignore"
        )
        functions.append((fn, weights))
    return functions


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def as_unguarded(ours, plain, dtype):
    """Whether results are the same, but for the last bits where a backend rounds otherwise."""
    if backend() not in ROUNDED_OTHERWISE:
        return same(ours, plain)
    bits = 1000 * np.finfo(dtype).eps
    return all(
        np.allclose(a, b, rtol=bits, atol=bits, equal_nan=True)
        for a, b in zip(ours, plain, strict=True)
    )


def values_of(weights):
    """Return the values of shared variables as NumPy arrays of their types; JAX stores its own."""
    return [np.array(w.get_value(), w.type.dtype) for w in weights]


# PyTensor 3.0 compiles the bodies of OpFromGraph, when first called, with the default mode.
@pytensor.config.change_flags(**({"mode": "CVM"} if pytensor.config.cxx else {}))
def check(seed, n, dtype, kind, fused, with_loop=False, **arguments):
    """The guard agrees with the oracle on a clean and on a planted call."""
    (guarded, weights), (plain, plain_weights) = build(
        seed, n, dtype, kind, fused, with_loop, arguments
    )
    x = np.random.default_rng(seed + 1).normal(size=(n, n)).astype(dtype)
    for d in (1.0, PLANTS[kind][0], 1.0):
        d = np.asarray(d, dtype)
        before = values_of(weights)
        expected = first_bad(guarded, [x, d])
        for w, v in zip(plain_weights, before, strict=True):
            w.set_value(v)
        try:
            outputs = guarded(x, d)
        except GuardError as error:
            assert expected is not None, f"false alarm: {error}"
            node, index = expected
            assert error.event.role == "node"
            if not error.event.path:
                assert (error.event.node, error.event.output) == (str(node), index)
            else:
                assert isinstance(node.op, Scan)
                assert error.event.path[0].op == str(node.op)
            assert same(values_of(weights), before)
        except TypeError:  # PyTensor cannot run some graphs on JAX, such as alloc in a branch
            with pytest.raises(TypeError):
                plain(x, d)
            reject()
        else:
            assert expected is None, f"missed {expected}"
            assert as_unguarded(outputs, plain(x, d), dtype)
            assert as_unguarded(values_of(weights), values_of(plain_weights), dtype)


graphs = given(
    seed=st.integers(0, 2**31),
    n=st.sampled_from([3, 8]),  # below and above the size from which proofs are tried
    dtype=st.sampled_from(["float32", "float64"]),
    kind=st.sampled_from(sorted(PLANTS)),
)
checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
phases = [Phase.explicit, Phase.reuse, Phase.generate]  # compiling is too slow for shrinking


def examples(n):
    """How many graphs are compiled: Numba takes seconds for each, and caches none of them."""
    return n if backend() == "c" else max(2, n // 5)


@pytest.mark.deep
@settings(max_examples=examples(6), deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_unfused(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=False)


@settings(max_examples=examples(4), deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_fused(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=True)


@pytest.mark.deep
@settings(max_examples=examples(3), deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_with_loop(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=False, with_loop=True)


@pytest.mark.deep
@settings(max_examples=examples(3), deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_audited(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=True, audit=True)


@pytest.mark.slow
@settings(max_examples=800, deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_unfused_extended(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=False)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_fused_extended(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=True)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=checks, phases=phases)
@graphs
def test_with_loop_extended(seed, n, dtype, kind):
    check(seed, n, dtype, kind, fused=False, with_loop=True)


def test_the_oracle_can_disagree():
    """The comparison is no tautology: without the guard's policy the oracle finds nothing."""
    x = pt.vector("x", dtype="float64")
    fn = pytensor.function([x], pt.log(x), mode=GuardMode(True, False, False))
    bad = np.array([1.0, -1.0])
    assert first_bad(fn, [bad]) is not None
    assert first_bad(fn, [bad], skip=lambda variable: True) is None
    with pytest.raises(theanoguard.GuardError):
        fn(bad)
