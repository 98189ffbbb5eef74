"""Random streams under the shim: Theano 1.0.5's numbers, states, errors and speed of seeding."""

import json
from pathlib import Path

import numpy as np
import pytensor
import pytest
import shim_draws
from hypothesis import given, settings
from hypothesis import strategies as st

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_30

RECORDED = json.loads(Path(shim_draws.__file__).with_suffix(".json").read_text(encoding="utf-8"))
ALL_CASES = shim_draws.CASES | shim_draws.ROUNDED_CASES

M1, M2 = 2147483647, 2147462579


def mrg_streams(shim):
    from theano.sandbox.rng_mrg import MRG_RandomStreams

    return MRG_RandomStreams


def random_streams(shim):
    from theano.tensor.shared_randomstreams import RandomStreams

    return RandomStreams


both_streams = pytest.mark.parametrize("streams", [mrg_streams, random_streams])


def test_every_recorded_case_is_compared():
    assert RECORDED.keys() == ALL_CASES.keys()


@pytest.mark.parametrize("name", shim_draws.CASES)
def test_the_same_numbers_as_in_theano(shim, name):
    values = shim_draws.draw(shim, shim_draws.CASES[name])
    assert str(values[0].dtype) == RECORDED[name]["dtype"]
    assert [value.tolist() for value in values] == RECORDED[name]["calls"]


@pytest.mark.parametrize("name", shim_draws.ROUNDED_CASES)
def test_the_same_numbers_but_for_rounding(shim, name):
    values = shim_draws.draw(shim, shim_draws.ROUNDED_CASES[name])
    assert str(values[0].dtype) == RECORDED[name]["dtype"]
    error = 8 * np.finfo(values[0].dtype).eps
    np.testing.assert_allclose(values, RECORDED[name]["calls"], rtol=error, atol=error)


# MRG31k3p


def steps(state, count):
    """Yield draws of one stream, by the recurrences as they are published, in whole numbers."""
    x1, x2, x3, y1, y2, y3 = (int(value) for value in state)
    for _ in range(count):
        x1, x2, x3 = (4194304 * x2 + 129 * x3) % M1, x1, x2
        y1, y2, y3 = (32768 * y1 + 32769 * y3) % M2, y1, y2
        yield (x1 - y1) % M1 or M1


seeds = st.lists(st.integers(1, M2 - 1), min_size=6, max_size=6)


@pytest.fixture(scope="module")
def draw_float64(shim):
    """Compiled function from states, shape (n, 6), and a size to new states and samples."""
    from theano.sandbox.rng_mrg import mrg_uniform

    rstate, size = shim.tensor.imatrix(), shim.tensor.lvector()
    outputs = mrg_uniform.new(rstate, 1, "float64", size)
    return shim.function([rstate, size], outputs)


@settings(max_examples=30)
@given(rows=st.lists(seeds, min_size=1, max_size=70), n=st.integers(0, 200))
def test_draws_follow_the_published_recurrences(draw_float64, rows, n):
    rows = np.array(rows, dtype="int32")
    before = rows.copy()
    new, samples = draw_float64(rows, [n])
    per_row = [(n - i + len(rows) - 1) // len(rows) for i in range(len(rows))]
    drawn = [list(steps(row, count)) for row, count in zip(rows, per_row, strict=True)]
    expected = [drawn[i % len(rows)][i // len(rows)] / 2**31 for i in range(n)]
    assert samples.tolist() == expected
    np.testing.assert_array_equal(rows, before)
    again = [next(steps(row, 1)) for row in new]
    continued = [list(steps(r, c + 1))[-1] for r, c in zip(before, per_row, strict=True)]
    assert again == continued


def test_the_samples_that_theano_was_tested_with(draw_float64):
    # Of L'Ecuyer's own program: 12 streams, 7 parts of each, 5 samples of each part.
    from theano.sandbox.rng_mrg import ff_2p72, ff_2p134

    published = np.loadtxt(Path(__file__).with_name("samples_MRG31k3p_12_7_5.txt"))
    samples = []
    stream = np.full(6, 12345, dtype="int32")
    for _ in range(12):
        part = stream
        for _ in range(7):
            samples.append(draw_float64([part], [5])[1])
            part = np.array(ff_2p72(part), dtype="int32")
        stream = np.array(ff_2p134(stream), dtype="int32")
    np.testing.assert_allclose(np.concatenate(samples), published.ravel())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("needs_cxx")
def test_python_and_c_draw_the_same(shim, dtype):
    from theano.sandbox.rng_mrg import mrg_uniform

    rstate = np.random.RandomState(3).randint(1, M2, (77, 6)).astype("int32")
    outputs = mrg_uniform.new(rstate, 2, dtype, (30, 40))
    in_c, in_python = (
        pytensor.function([], outputs, mode=pytensor.compile.mode.Mode(linker, "fast_run"))()
        for linker in ("cvm", "py")
    )
    for ours, theirs in zip(in_c, in_python, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_streams_start_far_apart(shim):
    """Each state is the one before it, moved on by 2**72 draws."""
    from theano.sandbox import rng_mrg

    streams = mrg_streams(shim)(99)
    states = streams.get_substream_rstates(9, "float32", inc_rstate=False)
    assert states.tolist() == [
        list(state) for state in iterate(rng_mrg.ff_2p72, np.array([99] * 6, dtype="int32"), 9)
    ]
    steps_of_state = np.array([[0, 4194304, 129], [1, 0, 0], [0, 1, 0]], dtype=object)
    jump = np.eye(3, dtype=object)
    for bit in bin(2**72)[2:]:
        jump = jump @ jump % M1
        jump = jump @ steps_of_state % M1 if bit == "1" else jump
    assert rng_mrg.A1p72.tolist() == jump.tolist()


def iterate(function, value, count):
    for _ in range(count):
        yield value.tolist()
        value = function(value)


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (0, ValueError),
        (M2, ValueError),
        ([0, 0, 0, 1, 1, 1], ValueError),
        ([1, 1, 1, 0, 0, 0], ValueError),
        ([M1, 1, 1, 1, 1, 1], ValueError),
        ([1, 1, 1, M2, 1, 1], ValueError),
        ([1, 2], TypeError),
        (1.5, TypeError),
    ],
)
def test_wrong_seeds(shim, seed, error):
    with pytest.raises(error):
        mrg_streams(shim)(seed)


@pytest.mark.parametrize(
    ("draw", "error"),
    [
        (lambda s: s.uniform((0, 3)), ValueError),
        (lambda s: s.uniform(3), TypeError),
        (lambda s: s.uniform((3,), low=np.zeros((2, 3))), NotImplementedError),
        (lambda s: s.uniform((3,), target="gpu"), TypeError),
        (lambda s: s.uniform((3,), tarrget="cpu"), TypeError),
        (lambda s: s.normal("3"), ValueError),
        (lambda s: s.normal((-1,)), ValueError),
        (lambda s: s.binomial((3,), n=2), NotImplementedError),
        (lambda s: s.multinomial(), TypeError),
        (lambda s: s.multinomial(size=(3,), pvals=[[0.5, 0.5]]), ValueError),
        (lambda s: s.multinomial(pvals=[0.5, 0.5]), NotImplementedError),
        (lambda s: s.choice(p=[[0.5, 0.5]]), NotImplementedError),
        (lambda s: s.choice(replace=False), TypeError),
    ],
)
def test_wrong_arguments(shim, draw, error):
    with pytest.raises(error):
        draw(mrg_streams(shim)())


def test_too_many_samples(shim):
    size = shim.tensor.lvector()
    draw = shim.function([size], mrg_streams(shim)().uniform(size, ndim=2, nstreams=1))
    assert draw([2, 3]).shape == (2, 3)
    with pytest.raises(ValueError, match="2\\*\\*31 - 1"):
        draw([2**16, 2**16])


def test_choosing_more_than_there_are(shim):
    draws = mrg_streams(shim)().choice(size=3, p=[[0.5, 0.5]], replace=False)
    with pytest.raises(ValueError, match="bigger than the size"):
        shim.function([], draws)()


def test_drawing_many_in_python_code(shim):
    weights = np.ones((200, 3)) / 3
    draws = mrg_streams(shim)(5).choice(size=3, p=weights, replace=False)
    in_c = shim.function([], draws, mode=shim.Mode("cvm"))()
    draws = mrg_streams(shim)(5).choice(size=3, p=weights, replace=False)
    in_python = shim.function([], draws, mode=shim.Mode("py"))()
    assert in_c.shape == (200, 3)
    np.testing.assert_array_equal(in_python, in_c)


# Streams of either kind


@both_streams
def test_seeding_starts_again(shim, streams):
    rng = streams(shim)(11)
    first, second = rng.uniform((2,)), rng.normal((3,))
    draw = shim.function([], [first, second])
    begun = [value.tolist() for value in draw()]
    assert [value.tolist() for value in draw()] != begun
    rng.seed()
    assert [value.tolist() for value in draw()] == begun
    rng.seed(12)
    other = [value.tolist() for value in draw()]
    rng.seed(11)
    assert [value.tolist() for value in draw()] == begun != other


@both_streams
def test_states_can_be_read_and_set(shim, streams):
    ours, theirs = (streams(shim)(seed) for seed in (1, 2))
    draw_ours, draw_theirs = (shim.function([], rng.uniform((4,))) for rng in (ours, theirs))
    assert draw_ours().tolist() != draw_theirs().tolist()
    for (state, *_), (other, *_) in zip(ours.state_updates, theirs.state_updates, strict=True):
        other.set_value(state.get_value())
    assert draw_ours().tolist() == draw_theirs().tolist()


@both_streams
def test_without_default_updates(shim, streams):
    draw = shim.function([], streams(shim)(3).uniform((4,)), no_default_updates=True)
    assert draw().tolist() == draw().tolist()


@both_streams
def test_there_is_no_gradient_through_a_draw(shim, streams):
    low = shim.tensor.dscalar()
    draws = streams(shim)(3).uniform((4,), low=low)
    with pytest.raises(shim.gradient.NullTypeGradError):
        shim.grad(draws.sum(), low)


@both_streams
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_trip_of_the_guard_puts_the_states_back(shim, streams, in_loop):
    T = shim.tensor
    x, rng = T.dscalar(), streams(shim)(5)
    if in_loop:
        logs, updates = shim.scan(
            lambda y: y + T.log(x + rng.uniform((4,))), outputs_info=T.zeros((4,)), n_steps=3
        )
    else:
        logs, updates = T.log(x + rng.uniform((4,))), {}
    guarded = shim.function([x], logs, updates=updates, mode=GuardMode())
    (state, *_), *_ = rng.state_updates
    guarded(1.0)
    before = state.get_value()
    with pytest.raises(GuardError):
        guarded(-3.0)
    assert state.type.values_eq(before, state.get_value())
    guarded(1.0)
    assert not state.type.values_eq(before, state.get_value())


def test_a_random_state_is_overwritten_only_where_it_may_be(shim):
    from theano.tensor.raw_random import random_state_type, uniform

    rng = random_state_type()
    after, samples = uniform(rng, (3,), dtype="float64")
    draw = shim.function([rng], [after, samples])
    state = np.random.RandomState(8)
    after, samples = draw(state)
    expected = np.random.RandomState(8)
    assert rng.type.values_eq(state, expected)
    assert samples.tolist() == expected.uniform(size=3).tolist()
    assert rng.type.values_eq(after, expected)
