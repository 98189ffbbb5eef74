"""What the plan leaves unchecked: every rule applies where it should and hides nothing."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend, computes_both_branches
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import first_bad
from pytensor.scan.utils import until

from theanoguard import GuardError, GuardMode
from theanoguard._pytensor import OpFromGraph, ifelse
from theanoguard.guard.plan import RULES

N = 6
x, y = pt.matrix("x", dtype="float64"), pt.matrix("y", dtype="float64")
c = pt.scalar("c", dtype="float64")


def exempted(variable):
    variable.tag.nan_guard_mode_check = False
    return variable


def loop(step):
    """A loop writes its steps into memory that is not initialised before."""
    return pytensor.scan(
        step,
        outputs_info=[x],
        non_sequences=[y],
        n_steps=2,
        return_updates=False,
    )


# rule -> graphs in which it applies, with an operation behind each that may trip
GRAPHS = {
    "not numeric": lambda: pt.random.normal(x, rng=pytensor.shared(np.random.default_rng(1)))[::-1],
    "discrete": lambda: pt.log(x) * pt.argmax(y, axis=0),
    "uninitialised": lambda: loop(lambda h, y: pt.log(h) + y),
    "exempt": lambda: pt.log(exempted(pt.sqrt(x)) + y),
    "view": lambda: pt.log(x).T[1:].reshape((-1,)) + 1,
    "copy": lambda: pt.concatenate([pt.log(x)[pt.argsort(y[:, 0])], pt.exp(y)]).repeat(2, axis=0),
    "clean map": lambda: (
        pt.maximum(pt.tanh(pt.log(x)), -abs(pt.exp(y)))
        + pt.clip(x / y, -2, 2)
        + (x > c) * pt.exp(y) * np.float32(-0.5)
        + pt.sigmoid(x) * pt.log(y)
    ),
    "softmax": lambda: pt.log(pt.special.softmax(x, axis=1)) + pt.special.softmax(y, axis=0),
    "whole inner graph": lambda: OpFromGraph([x, y], [pt.log(x) * y])(x, pt.exp(y)).T + 1,
    "inner graph": lambda: loop(lambda h, y: (pt.log(h), until(pt.gt(h[0, 0], 0)))).reshape((-1,)),
    "branch": lambda: ifelse(pt.gt(c, 0), pt.log(x), pt.exp(y)) * 2,
}
POLICIES = [
    (True, True, True),
    (True, True, False),
    (True, False, False),
    (False, True, False),
    (False, False, True),
]


def test_every_rule_has_its_graph():
    known = {rule.name for rule in RULES}
    assert known == set(GRAPHS)
    assert all(rule.reason for rule in RULES)


@pytest.fixture(scope="module")
def compiled():
    cache = {}

    def get(rule, policy):
        if (rule, policy) not in cache:
            mode = GuardMode(*policy, exempt=[]).excluding("fusion", "symbolic_op_recognition")
            cache[rule, policy] = pytensor.function(
                [x, y, c], GRAPHS[rule](), mode=mode, on_unused_input="ignore"
            )
        return cache[rule, policy]

    return get


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_the_rule_applies(compiled, rule):
    if rule == "branch" and backend() != "c":
        pytest.skip("is used on the C backend alone")
    summary = GuardMode.summary(compiled(rule, (True, True, True)))
    if rule == "softmax" and not summary.dropped["softmax"]:
        pytest.skip("this release builds softmax from elementwise operations")
    assert summary.dropped[rule] > 0


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(POLICIES),
    magnitudes=st.tuples(*[st.sampled_from([1e-200, 1.0, 30.0, 900.0, 5e9])] * 2),
    signs=st.tuples(*[st.sampled_from([0.0, -1.0])] * 2),
    planted=st.sampled_from([None, 0.0, np.nan, np.inf, -np.inf, 1e11]),
)
def test_the_rule_hides_nothing(compiled, rule, seed, policy, magnitudes, signs, planted):
    """The guard trips exactly if an input or an output of any node is bad."""
    if rule == "branch" and computes_both_branches():
        pytest.skip("what has not been chosen is not looked at")
    fn = compiled(rule, policy)
    rng = np.random.default_rng(seed)
    values = [
        rng.uniform(low, 1, (N, N)) * magnitude
        for magnitude, low in zip(magnitudes, signs, strict=True)
    ]
    if planted is not None:
        values[seed % 2][seed % N, 0] = planted
    arguments = [*values, np.asarray(rng.normal())]
    guard = fn.vm.guard
    bad_input = any(guard.policy.is_bad(value) for value in arguments)
    expected = first_bad(fn, arguments, skip=guard.policy.exempts)
    try:
        fn(*arguments)
    except GuardError as error:
        if error.event.role == "input":
            assert bad_input
        elif not error.event.path:
            assert (error.event.node, error.event.output) == (str(expected[0]), expected[1])
        else:
            assert expected is not None
    else:
        assert not bad_input
        assert expected is None


def test_what_is_added_to_zeros_is_a_copy():
    """As in the gradient of indexing; where an index may come twice, it is a sum."""
    rows = pt.lvector("rows")
    once = pt.inc_subtensor(pt.zeros((N, N))[1:], pt.log(x)[1:])
    twice = pt.inc_subtensor(pt.zeros((N, N))[rows], pt.log(x))
    fn = pytensor.function([x, rows], [once, twice], mode=GuardMode(big_threshold=1e3))
    assert GuardMode.summary(fn).dropped["copy"] == 3  # two of zeros, and the first sum
    value = np.full((N, N), np.exp(-300.0))
    result, _ = fn(value, np.arange(N))
    assert result[0, 0] == 0 and np.allclose(result[1:], -300)
    with pytest.raises(GuardError) as caught:
        fn(value, np.zeros(N, "int64"))
    assert (caught.value.event.kind, caught.value.event.first_value) == ("big", -1800)


@pytest.fixture(scope="module")
def nested():
    looped = pytensor.scan(
        lambda row, total: total + pt.log(row),
        sequences=[x],
        outputs_info=[pt.zeros(N)],
        return_updates=False,
    )
    big = pytensor.shared(np.ones((300, 300)), name="big")
    outputs = [looped[-1], pt.cumsum(big, axis=0) * c]
    return pytensor.function([x, c], outputs, mode=GuardMode())


def test_the_summary_counts_inner_graphs(nested):
    summary = GuardMode.summary(nested)
    assert summary.inner_graphs == 1
    everything = summary.checked + sum(summary.dropped.values())
    assert everything == summary.outputs
    assert summary.inputs == 3
    assert "1 inner graphs" in str(summary)


@pytest.mark.usefixtures("needs_cxx", "c_backend")
def test_the_summary_tells_what_a_call_reads(nested):
    fn = nested.copy()
    assert GuardMode.summary(fn).bytes_read is None  # nothing is known before the first call
    fn(np.ones((N, N)), 1.0)
    first = GuardMode.summary(fn)
    assert first.calls == 1
    assert first.bytes_read >= 2 * 8 * 300**2  # the shared variable, and its sums
    assert 0 < first.seconds < 1
    fn(np.ones((N, N)), 1.0)
    second = GuardMode.summary(fn)
    assert second.bytes_read < first.bytes_read  # it has not changed since
    assert second.memory > 0
    assert "of each call on this machine" in str(second)


@pytest.mark.usefixtures("needs_cxx", "c_backend")
def test_the_summary_tells_what_is_copied():
    w = pytensor.shared(np.ones((70, 70)), name="w")
    fn = pytensor.function([x], x.sum(), updates=[(w, w - pt.dot(x, x))], mode=GuardMode())
    fn(np.ones((70, 70)))
    assert GuardMode.summary(fn).copied == 0
    fn(np.where(np.arange(70) % 2, 4e4, -4e4)[:, None] * np.ones(70))  # beyond any proof
    assert GuardMode.summary(fn).copied == 8 * 70**2
