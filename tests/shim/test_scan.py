"""Loops under the shim: values, updates, patterns, errors and what the op tells about itself."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

X = np.array([1.0, -2.0, 3.5, 4.0, 0.5])


@pytest.fixture(scope="module")
def T(shim):
    return shim.tensor


@pytest.fixture(scope="module")
def x(T):
    return T.dvector("x")


@pytest.fixture(scope="module")
def until(shim):
    from theano.scan_module import until

    return until


def evaluate(shim, x, built, value=X):
    outputs, updates = built
    return shim.function([x], outputs, updates=updates, mode="FAST_COMPILE")(value)


def test_values_of_all_steps(shim, T, x):
    built = shim.scan(lambda a, before: before + a, sequences=x, outputs_info=np.float64(0.0))
    np.testing.assert_allclose(evaluate(shim, x, built), np.cumsum(X))


def test_from_the_end(shim, T, x):
    built = shim.scan(lambda a, b: 2 * b + a, x, np.float64(0.0), go_backwards=True)
    expected, before = [], 0.0
    for a in X[::-1]:
        expected.append(before := 2 * before + a)
    np.testing.assert_allclose(evaluate(shim, x, built), expected)


@pytest.fixture(scope="module")
def with_taps(shim, T):
    """Compiled function of a sequence, two first values and a factor."""
    sequence, first, factor = T.dvector(), T.dvector(), T.dscalar()
    outputs, _ = shim.scan(
        lambda before, now, older, old, k: [k * older + old + now - before, now],
        sequences=[dict(input=sequence, taps=[-1, 0])],
        outputs_info=[dict(initial=first, taps=[-2, -1]), None],
        non_sequences=[factor],
    )
    return shim.function([sequence, first, factor], outputs)


numbers = st.floats(-8, 8)


@settings(max_examples=20)
@given(
    st.lists(numbers, min_size=2, max_size=8), st.lists(numbers, min_size=2, max_size=2), numbers
)
def test_taps(with_taps, sequence, first, factor):
    states, seen = list(first), []
    for before, now in zip(sequence, sequence[1:], strict=False):
        states.append(factor * states[-2] + states[-1] + now - before)
        seen.append(now)
    got_states, got_seen = with_taps(sequence, first, factor)
    np.testing.assert_allclose(got_states, states[2:])
    assert got_seen.tolist() == seen


def test_until(shim, T, x, until):
    built = shim.scan(lambda a, s: (s + a, until(s + a > 2)), x, np.float64(0.0))
    np.testing.assert_allclose(evaluate(shim, x, built), [1.0, -1.0, 2.5])


@pytest.mark.parametrize("steps", [1, 3])
def test_truncated_gradient(shim, T, x, steps):
    """The derivative of w**5 by w, of which the last steps are seen."""
    w = T.dscalar("w")
    powers, _ = shim.scan(
        lambda p: p * w, outputs_info=np.float64(1.0), n_steps=5, truncate_gradient=steps
    )
    gradient = shim.function([w], T.grad(powers[-1], w))
    assert gradient(2.0) == pytest.approx(steps * 2.0**4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("reduce", 105.0), ("foldl", 105.0), ("foldr", 41.0)],
)
def test_folds(shim, T, x, name, expected):
    fold = getattr(shim, name)
    last, updates = fold(lambda a, b: 3 * b + a, x, np.float64(0.0))
    assert isinstance(updates, shim.OrderedUpdates)
    value = evaluate(shim, x, (last, updates), np.array([3.0, 5.0, 2.0, 12.0]))
    steps = [3.0, 5.0, 2.0, 12.0] if name != "foldr" else [12.0, 2.0, 5.0, 3.0]
    by_hand = 0.0
    for a in steps:
        by_hand = 3 * by_hand + a
    assert value == by_hand


def test_map_takes_its_arguments_by_position(shim, T, x):
    k = shim.shared(2.0)
    built = shim.map(lambda a, k: k * a, x, [k], -1, True, None, "twice")
    assert evaluate(shim, x, built).tolist() == (2 * X[::-1]).tolist()


@pytest.mark.parametrize("n_steps", [1, -1])
def test_one_step_needs_no_loop(shim, T, x, n_steps):
    states, updates = shim.scan(lambda s: 2 * s, outputs_info=T.zeros((3,)) + 1, n_steps=n_steps)
    assert states.broadcastable == (False, False)
    assert shim.function([], states, updates=updates)().tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize("outputs_info", [None, [None]])
def test_one_output_in_a_list(shim, x, outputs_info):
    outputs, _ = shim.scan(lambda a: a, x, outputs_info, return_list=True)
    assert len(outputs) == 1


def test_nothing_to_hear_from_below(shim, T, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counter = shim.shared(0)
        counter.default_update = counter + 1
        for scan in (shim.scan, shim.map):
            scan(lambda a: a + counter, x, mode="FAST_COMPILE")
        shim.reduce(lambda a, b: a + b, x, np.float64(0.0))


# Updates


@pytest.fixture
def counter(shim):
    counter = shim.shared(10, name="counter")
    counter.default_update = counter + 1
    return counter


@pytest.mark.parametrize("passed", [True, False])
def test_a_default_update_goes_on_from_step_to_step(shim, counter, passed):
    counts, updates = shim.scan(lambda: counter, n_steps=3)
    count = shim.function([], counts, updates=updates if passed else None)
    assert count().tolist() == [10, 11, 12]
    next_count = 13 if passed else 11
    assert count().tolist() == [next_count, next_count + 1, next_count + 2]


def test_the_updates_of_the_step_itself_come_first(shim, counter):
    counts, updates = shim.scan(lambda: (counter, {counter: 2 * counter}), n_steps=3)
    assert isinstance(updates, shim.OrderedUpdates)
    count = shim.function([], counts, updates=updates)
    assert count().tolist() == [10, 20, 40]
    assert counter.get_value() == 80


def test_an_update_may_read_a_variable_with_an_update(shim, counter):
    total = shim.shared(0)
    total.default_update = total + counter
    totals, updates = shim.scan(lambda: total, n_steps=3)
    assert shim.function([], totals, updates=updates)().tolist() == [0, 10, 21]


def test_what_is_passed_in_is_drawn_once(shim, counter):
    once = counter * 1
    counts, updates = shim.scan(lambda c: c, non_sequences=once, n_steps=3)
    assert shim.function([], counts, updates=updates)().tolist() == [10, 10, 10]
    assert counter.get_value() == 11


def test_a_draw_whose_size_the_loop_knows(shim, T):
    from theano.sandbox.rng_mrg import MRG_RandomStreams

    rows, rng = T.dmatrix(), MRG_RandomStreams(5)
    draws, _ = shim.scan(lambda row: rng.uniform(row.shape, dtype="float64"), rows)
    draw = shim.function([rows], draws)
    first, second = draw(np.zeros((4, 3))), draw(np.zeros((4, 3)))
    assert len({*first.ravel(), *second.ravel()}) == 24


# Errors


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda scan, x, d, **_: scan(lambda a: a, None, [d]), ValueError),
        (lambda scan, x, d, **_: scan(lambda a: a, None, [d], n_steps=d), ValueError),
        (lambda scan, x, **_: scan(lambda a: a, None, [{"initial": x, "taps": [1]}]), ValueError),
        (
            lambda scan, x, **_: scan(lambda a, b: a, None, [{"initial": x, "taps": [-1, -1]}]),
            ValueError,
        ),
        (lambda scan, x, **_: scan(lambda a: a, None, [{"taps": [-1]}], n_steps=2), ValueError),
        (lambda scan, x, **_: scan(lambda a: 3, x), ValueError),
        (lambda scan, x, until, **_: scan(lambda a: (until(a > 2), a), x), ValueError),
        (lambda scan, x, d, **_: scan(lambda a, b: (a, b), x, [d]), ValueError),
        (
            lambda scan, x, d, **_: scan(lambda a: a.astype("float32"), None, d, n_steps=3),
            ValueError,
        ),
        (lambda scan, x, d, **_: scan(lambda a: a * d, None, 1, n_steps=3), ValueError),
        (lambda scan, x, d, **_: scan(lambda a: a + x, None, d, n_steps=3), ValueError),
        (lambda scan, x, **_: scan(lambda a, b: a, x), TypeError),
        (lambda scan, x, **_: scan(lambda a, b: a, x, non_sequences="b"), TypeError),
        (lambda scan, d, **_: scan(lambda a: a, d), IndexError),
    ],
)
def test_wrong_arguments(shim, T, x, until, make, error):
    with pytest.raises(error):
        make(scan=shim.scan, x=x, d=T.dscalar(), until=until)


def test_a_shared_variable_that_a_strict_loop_is_not_given(shim, x):
    k = shim.shared(2.0)
    with pytest.raises(shim.gof.MissingInputError):
        shim.scan(lambda a: k * a, x, strict=True)
    built = shim.scan(lambda a, k: k * a, x, non_sequences=[k], strict=True)
    assert evaluate(shim, x, built).tolist() == (2 * X).tolist()


@pytest.mark.parametrize("name", ["rate", "gain"])
def test_a_variable_of_a_loop_that_is_no_input(name, shim, T, x):
    """Theano 1.0.5 shows the same: the loop's inputs and where the variable is made."""
    rate = T.dscalar("rate")

    def step(a, s):
        return s + a * (rate if name == "rate" else T.dscalar("gain"))

    total, _ = shim.scan(step, x, T.zeros((), "float64"))
    with pytest.raises(shim.gof.MissingInputError) as caught:
        shim.function([x], total)
    text = str(caught.value)
    assert f"IncSubtensor{{Set;:int64:}}.0, {name})" in text
    assert f'T.dscalar("{name}")' in text.strip().splitlines()[-1]


def test_a_sequence_that_is_too_short(shim, x):
    with pytest.raises(ValueError, match="shape"):
        evaluate(shim, x, shim.scan(lambda a: a, x, n_steps=7))


# The op and its helpers


def test_what_the_op_tells(shim, T, x):
    from theano.scan_module.scan_op import Scan

    states, _ = shim.scan(lambda a, s, k: s + k * a, x, np.float64(0.0), shim.shared(2.0))
    node = states.owner.inputs[0].owner
    assert isinstance(node.op, Scan)
    assert (node.op.n_seqs, node.op.n_sit_sot, node.op.n_nit_sot) == (1, 1, 0)
    assert node.op.tap_array == [[-1]]
    assert len(node.op.inputs) == 3
    assert len(node.op.outputs) == 1
    assert node.op.var_mappings["outer_inp_from_outer_out"] == {0: 2}
    (sequence,) = node.op.outer_seqs(node)
    assert node.op.outer_seqs(node.inputs) == [sequence]


def test_shapes_of_a_loop(shim, T):
    x, v = T.dmatrix("x"), T.dvector("v")
    sums, _ = shim.scan(lambda row, total: total + row, sequences=x, outputs_info=v)
    (totals, doubled), _ = shim.scan(
        lambda row, total: (total + row, 2 * row), sequences=x, outputs_info=[v, None]
    )
    shapes = [sums.shape, sums[-1].shape, totals.shape, doubled.shape]
    f = shim.function([x, v], shapes)
    assert not any(
        isinstance(n.op, shim.scan_module.scan_op.Scan) for n in f.maker.fgraph.apply_nodes
    )
    assert [s.tolist() for s in f(np.zeros((2, 3)), np.zeros(3))] == [[2, 3], [3], [2, 3], [2, 3]]


def test_excluding_a_rewrite_by_theanos_name(shim, T, x):
    """Out of a loop over two sequences the sum of the sequences can be taken."""
    from theano.scan_module.scan_op import Scan

    doubled, _ = shim.scan(lambda a: a + 1, x)
    mode = shim.compile.mode.get_default_mode()
    kept = mode.excluding("scanOp_pushout_seqs_ops")
    counts = [
        sum(
            isinstance(node.op, Scan)
            for node in shim.function([x], doubled, mode=chosen).maker.fgraph.toposort()
        )
        for chosen in (mode, kept)
    ]
    assert counts == [0, 1]


def test_clone(shim, T):
    from theano.scan_module.scan_utils import equal_computations

    a, b = T.dscalars("ab")
    total = a + 2 * b
    assert equal_computations([shim.clone(total, replace={b: a})], [a + 2 * a])
    copied = shim.clone(total, share_inputs=False)
    assert not equal_computations([copied], [total])
    assert shim.clone([total], replace=[(a, b)])[0].owner.inputs[0] is b
    with pytest.raises(ValueError, match="dictionary"):
        shim.clone(total, replace=3)


def test_variables_inside_a_loop_cannot_be_replaced(shim, x):
    from theano.scan_module.scan_utils import map_variables

    y, z = shim.tensor.dscalars("yz")
    products, _ = shim.scan(lambda a: a * y, x)
    (replaced,) = map_variables(lambda v: z if v is y else v, [products])
    multiply = shim.function([x, y, z], [products, replaced], on_unused_input="ignore")
    assert [v.tolist() for v in multiply(X, 2.0, 3.0)] == [(2 * X).tolist(), (3 * X).tolist()]
    inside = products.owner.op.fgraph.outputs[0]
    with pytest.raises(NotImplementedError, match="inside"):
        map_variables(lambda v: v * 1 if v is inside else v, [products])


@pytest.mark.parametrize("kind", ["loop", "OpFromGraph"])
def test_a_tag_inside_a_loop_is_not_forgotten(kind, shim, x):
    from theano.scan_module.scan_utils import map_variables

    def step(a):
        r = a * 2
        r.tag.replacement = a * 3
        return r

    if kind == "loop":
        out, _ = shim.scan(step, x)
    else:
        a = shim.tensor.dvector()
        out = shim.OpFromGraph([a], [step(a)])(x)
    with pytest.raises(NotImplementedError, match="inside"):
        map_variables(lambda v: getattr(v.tag, "replacement", v), [out + 1])


@pytest.mark.parametrize("taps", [[-1], [-1, -3]])
@pytest.mark.parametrize("index", [-3, -2, -1, 0, 1, 2])
def test_a_step_of_a_loop(taps, index, shim, T):
    """PyTensor would give initial values for steps that there are not, or keep all steps."""
    n_steps = T.iscalar("n_steps")
    start = np.arange(1.0, 1 - min(taps))
    outputs_info = {"initial": T.constant(start), "taps": taps}
    outputs, _ = shim.scan(lambda *states: sum(states), outputs_info=outputs_info, n_steps=n_steps)
    every = shim.function([n_steps], outputs)
    mode = shim.compile.get_default_mode().excluding("inplace")
    one = shim.function([n_steps], outputs[index], mode=mode)
    for steps in (0, 1, 2, 3, 6):
        if -steps <= index < steps:
            assert one(steps) == every(steps)[index]
        elif index == -1:
            assert one(steps) == start[-1]
        else:
            with pytest.raises((IndexError, MemoryError, OverflowError, ValueError)):
                one(steps)
    if index == -1:
        loop = next(n for n in one.maker.fgraph.toposort() if hasattr(n.op, "inner_inputs"))
        stored = shim.function([n_steps], loop.inputs[1], on_unused_input="ignore")(100)
        assert np.size(stored) < 10


@pytest.mark.parametrize(
    ("n_steps", "error", "text"),
    [(k, IndexError, "negative number of step") for k in (-2, np.int64(-3))]
    + [(k, TypeError, "Expected an integer") for k in (2.5, 2.0)]
    + [(np.float64(2.0), ValueError, "n_steps must be an int")],
)
def test_wrong_number_of_steps(n_steps, error, text, shim):
    with pytest.raises(error, match=text):
        shim.scan(lambda a: a + 1, outputs_info=shim.tensor.constant(1.0), n_steps=n_steps)
