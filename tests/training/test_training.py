"""Clipping of gradients, and updates that a bad step leaves alone."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode
from theanoguard.training import UpdateError, clip_grad_norm, clip_grad_value, guarded_updates
from theanoguard.training.inplace import GatedGemm

pytestmark = pytest.mark.on_30

MODES = ["CVM", "NUMBA"]


@pytest.fixture(scope="module")
def clippers():
    """``clippers(dtype, **settings)``: compiled clipping of a matrix and a vector."""
    made = {}

    def clipper(dtype, **settings):
        key = (dtype, *settings.items())
        if key not in made:
            grads = [pt.matrix("g", dtype=dtype), pt.vector("h", dtype=dtype)]
            max_norm = pt.dscalar("max_norm")
            clipped, norm = clip_grad_norm(grads, max_norm, **settings)
            made[key] = pytensor.function([*grads, max_norm], [*clipped, norm], mode="CVM")
        return made[key]

    return clipper


def gradients(dtype):
    elements = st.floats(-1e3, 1e3, width=np.dtype(dtype).itemsize * 8)
    return st.tuples(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=elements),
        hnp.arrays(dtype, hnp.array_shapes(max_dims=1, max_side=20), elements=elements),
    )


@given(data=st.data(), max_norm=st.floats(1e-2, 1e3))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm_type", [1, 2, 3, np.inf])
def test_clipping_the_norm_of_all(norm_type, dtype, data, max_norm, clippers):
    grads = data.draw(gradients(dtype))
    *clipped, norm = clippers(dtype, norm_type=norm_type)(*grads, max_norm)
    flat = np.concatenate([g.ravel() for g in grads]).astype("float64")
    expected = np.linalg.norm(flat, norm_type)
    np.testing.assert_allclose(norm, expected, rtol=1e-6)
    for before, after in zip(grads, clipped, strict=True):
        assert after.dtype == dtype
        if expected + 1e-6 <= max_norm * (1 - 1e-6):
            np.testing.assert_array_equal(after, before)  # to the bit
        else:
            factor = min(1.0, max_norm / (expected + 1e-6))
            np.testing.assert_allclose(after, before * factor, rtol=1e-5, atol=1e-30)


def test_clipping_each_norm(clippers):
    g, h = np.full((2, 2), 3.0), np.array([0.3, 0.4])
    clipped_g, clipped_h, norm = clippers("float64", per_parameter=True)(g, h, 1.0)
    np.testing.assert_allclose(norm, [6.0, 0.5])
    np.testing.assert_allclose(clipped_g, g / 6, rtol=1e-5)
    np.testing.assert_array_equal(clipped_h, h)


def test_a_float32_norm_does_not_overflow(clippers):
    big = np.full((3, 3), 1e30, "float32")
    *_, norm = clippers("float32")(big, np.zeros(1, "float32"), 1.0)
    np.testing.assert_allclose(norm, 3e30, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("per_parameter", [False, True])
def test_a_norm_that_is_not_finite(bad, per_parameter, clippers):
    g, h = np.ones((2, 2)), np.array([1.0, bad])
    with pytest.raises(AssertionError, match="norm of the gradients is not finite"):
        clippers("float64", per_parameter=per_parameter)(g, h, 1.0)
    clip = clippers("float64", per_parameter=per_parameter, nonfinite_action="skip")
    clipped_g, clipped_h, _ = clip(g, h, 1.0)
    np.testing.assert_array_equal(clipped_h, 0)
    assert clipped_g.any() == per_parameter  # the other gradient is a bystander
    assert np.isfinite(clipped_g).all()


def test_clipping_is_differentiable():
    x = pt.dvector("x")
    (clipped,), _ = clip_grad_norm([x], 1.0)
    value = np.array([2.0, 1.0, -2.0])
    gradient = pytensor.function([x], pytensor.grad((clipped * [1.0, 2.0, 3.0]).sum(), x))(value)
    weights = np.array([1.0, 2.0, 3.0])
    norm = np.linalg.norm(value)
    expected = weights / norm - value * (weights @ value) / norm**3
    np.testing.assert_allclose(gradient, expected, rtol=1e-4)


def test_clipping_values():
    grads = [pt.fvector("g"), pt.dmatrix("h")]
    clip = pytensor.function(grads, clip_grad_value(grads, 0.5))
    g, h = clip(np.float32([-3, 0.25, 3]), [[np.inf, -0.1]])
    assert g.dtype == "float32"
    np.testing.assert_array_equal(g, [-0.5, 0.25, 0.5])
    np.testing.assert_array_equal(h, [[0.5, -0.1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: clip_grad_value([g], 0), "value=0"),
        (lambda g: clip_grad_norm([g], -1.0), "max_norm=-1.0"),
        (lambda g: clip_grad_norm([g], 1.0, norm_type=0), "norm_type=0"),
        (lambda g: clip_grad_norm([g], 1.0, nonfinite_action="pass"), "nonfinite_action='pass'"),
        (lambda g: clip_grad_norm([], 1.0), "grads is empty"),
        (lambda g: guarded_updates({}, action="retry"), "action='retry'"),
        (lambda g: guarded_updates({}), "nothing to watch"),
        (lambda g: guarded_updates({}, watch=[g], factor=2.0), "factor=2.0"),
        (lambda g: guarded_updates({}, watch=[g], big_threshold=-1), "big_threshold=-1"),
        (lambda g: guarded_updates({}, watch=[g], max_in_a_row=0), "max_in_a_row=0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(pt.vector("g"))


def test_arguments_of_the_wrong_kind():
    x = pt.vector("x")
    with pytest.raises(TypeError, match="the key x of updates must be a shared variable"):
        guarded_updates({x: x + 1})
    with pytest.raises(TypeError, match="learning_rate is None"):
        guarded_updates({}, watch=[x], action="backoff")
    with pytest.raises(TypeError, match="has dtype int64"):
        clip_grad_norm([pt.lvector("i")], 1.0)


# ---------------------------------------------------------------- updates


def model(mode, **settings):
    """One step of momentum on a linear model; returns (step, shared variables, updates)."""
    x, y = pt.matrix("x"), pt.vector("y")
    w = pytensor.shared(np.ones(3), name="w")
    velocity = pytensor.shared(np.zeros(3), name="velocity")
    steps = pytensor.shared(np.array(0), name="steps")
    rate = pytensor.shared(np.array(0.1), name="rate")
    cost = pt.log((pt.sqr((x * w).sum(axis=1) - y)).mean())
    cost.name = "cost"
    g = pytensor.grad(cost, w)
    new_velocity = 0.9 * velocity - rate * g
    plain = {velocity: new_velocity, w: w + new_velocity, steps: steps + 1}
    if settings.get("action") == "backoff":
        settings["learning_rate"] = rate
    updates = guarded_updates(plain, watch=[cost], **settings) if settings else plain
    step = pytensor.function([x, y], cost, updates=updates, mode=mode)
    return step, (w, velocity, steps, rate), updates


def data(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(5, 3)), rng.normal(size=5)


BAD = np.zeros((5, 3)), np.zeros(5)  # log(0)


# With PyTensor's fastmath, LLVM may join a product and a sum in one of the two programs.
@pytest.mark.parametrize("mode", MODES)
@pytensor.config.change_flags(numba__fastmath=False)
def test_good_steps_are_those_of_the_plain_updates(mode):
    step, variables, _ = model(mode, action="skip")
    plain_step, plain_variables, _ = model(mode)
    for seed in range(5):
        assert step(*data(seed)) == plain_step(*data(seed))
        for variable, plain in zip(variables, plain_variables, strict=True):
            np.testing.assert_array_equal(variable.get_value(), plain.get_value())


@pytest.mark.parametrize("mode", MODES)
def test_a_bad_step_changes_nothing(mode):
    step, variables, updates = model(mode, action="skip")
    step(*data(0))
    skipped, before = updates.skipped, [v.get_value() for v in variables]
    for i in range(3):
        assert not np.isfinite(step(*BAD))
        assert (updates.skipped, updates.in_a_row) == (skipped + i + 1, i + 1)
    assert updates.last_bad == "cost"
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.get_value(), value)
    step(*data(1))
    assert (updates.skipped, updates.in_a_row) == (skipped + 3, 0)
    assert variables[2].get_value() == before[2] + 1


# ---------------------------------------------------------------- updates by one BLAS call


class Layer:
    """``w``, of float32, moves by ``-rate x.T y``, which PyTensor makes one ``Gemm``; ``n`` counts.

    Without settings the updates are the plain ones.
    """

    def __init__(self, mode=None, **settings):
        x, y = pt.fmatrix("x"), pt.fmatrix("y")
        self.w = pytensor.shared(np.zeros((3, 2), "float32"), name="w")
        self.n = pytensor.shared(np.zeros(2), name="n")
        step = self.w - np.float32(0.1) * pt.dot(x.T, y)
        updates = {self.w: step, self.n: self.n + 1}
        self.updates = guarded_updates(updates, **settings) if settings else updates
        mode = mode or Mode("cvm" if pytensor.config.cxx else "vm", "fast_run")
        self.step = pytensor.function([x, y], pt.dot(x, self.w), updates=self.updates, mode=mode)

    def values(self):
        return self.w.get_value(), self.n.get_value()

    def in_place(self):
        ops = [node.op for node in self.step.maker.fgraph.apply_nodes]
        return any(isinstance(op, GatedGemm) for op in ops)


def batch(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return [np.float32(scale * rng.normal(size=(5, k))) for k in (3, 2)]


@pytest.fixture(scope="module")
def layer():
    layer = Layer(action="skip", max_in_a_row=None)
    assert layer.in_place()
    return layer


def test_blas_updates_in_place_to_the_bit(layer):
    plain = Layer()
    layer.w.set_value(plain.w.get_value())
    for seed in range(4):
        np.testing.assert_array_equal(layer.step(*batch(seed)), plain.step(*batch(seed)))
        np.testing.assert_array_equal(layer.w.get_value(), plain.w.get_value())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_a_bad_operand_of_blas_changes_nothing(layer, bad, which):
    layer.step(*batch(1))
    before, skipped = layer.values(), layer.updates.skipped
    operands = batch(2)
    operands[which][1, 1] = bad
    layer.step(*operands)
    for value, kept in zip(layer.values(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    assert layer.updates.skipped == skipped + 1
    assert layer.updates.last_bad == "the new value of w"


def test_what_cannot_be_proved_is_computed(layer):
    """The bound of a product of large and small elements is infinite; the product need not be."""
    layer.w.set_value(np.zeros((3, 2), "float32"))
    skipped = layer.updates.skipped
    x, y = (np.zeros((5, k), "float32") for k in (3, 2))
    x[0, 0], y[0, 0], y[1, 1] = 1e25, 1e-20, 1e25
    layer.step(x, y)
    assert layer.updates.skipped == skipped
    np.testing.assert_allclose(layer.w.get_value()[0, 0], -1e4, rtol=1e-5)
    before = layer.values()
    y[0, 0] = 1e20
    layer.step(x, y)
    assert layer.updates.skipped == skipped + 1
    np.testing.assert_array_equal(layer.w.get_value(), before[0])


def test_raising_before_blas_overwrites():
    layer = Layer(action="raise")
    before = layer.values()
    with pytest.raises(UpdateError, match="the new value of w holds a bad value"):
        layer.step(*batch(1, scale=1e30))
    for value, kept in zip(layer.values(), before, strict=True):
        np.testing.assert_array_equal(value, kept)


def test_a_limit_is_held_to_the_values_themselves():
    layer = Layer(action="skip", big_threshold=10.0)
    assert not layer.in_place()
    layer.step(*batch(1))
    layer.step(*batch(1, scale=100))
    assert layer.updates.skipped == 1


def test_blas_updates_under_the_guard():
    layer = Layer(mode=GuardMode(True, True, True), action="skip")
    layer.step(*batch(1))
    before = layer.values()
    operands = batch(2)
    operands[0][0, 0] = 1e9
    with pytest.raises(GuardError):
        layer.step(operands[0], operands[1] * np.float32(1e9))
    for value, kept in zip(layer.values(), before, strict=True):
        np.testing.assert_array_equal(value, kept)


def test_too_many_in_a_row():
    step, variables, updates = model("CVM", action="skip", max_in_a_row=2)
    before = [v.get_value() for v in variables]
    step(*BAD)
    step(*BAD)
    with pytest.raises(UpdateError, match="cost holds a bad value, after 2 bad steps in a row"):
        step(*BAD)
    assert updates.in_a_row == 2
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.get_value(), value)


def test_raising():
    step, variables, _ = model("CVM", action="raise")
    step(*data(0))
    before = [v.get_value() for v in variables]
    with pytest.raises(UpdateError, match="cost holds a bad value"):
        step(*BAD)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.get_value(), value)


def test_backing_off():
    step, (_, _, _, rate), updates = model("CVM", action="backoff", factor=0.25)
    step(*data(0))
    assert rate.get_value() == 0.1
    step(*BAD)
    step(*BAD)
    np.testing.assert_allclose(rate.get_value(), 0.1 / 16)
    assert updates.skipped == 2


def test_backing_off_keeps_the_schedule_of_the_user():
    w, rate = pytensor.shared(1.0, name="w"), pytensor.shared(0.1, name="rate")
    x = pt.dscalar("x")
    updates = guarded_updates(
        {w: w - rate * pt.log(x), rate: rate * 0.9},
        action="backoff",
        learning_rate=rate,
        factor=0.5,
    )
    step = pytensor.function([x], updates=updates, mode="CVM")
    for value, expected in ((2.0, 0.09), (0.0, 0.045), (2.0, 0.0405)):
        step(value)
        np.testing.assert_allclose(rate.get_value(), expected)


def test_a_new_value_that_is_too_large_is_named():
    w = pytensor.shared(np.float32([1.0, 2.0]), name="w")
    x = pt.fscalar("x")
    updates = guarded_updates({w: w * x}, big_threshold=100.0)
    step = pytensor.function([x], updates=updates, mode="CVM")
    step(np.float32(50))
    step(np.float32(2))
    np.testing.assert_array_equal(w.get_value(), [50, 100])
    step(np.float32(1.01))
    np.testing.assert_array_equal(w.get_value(), [50, 100])
    assert updates.last_bad == "the new value of w"


def test_random_states_and_integers_are_kept_too():
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    x = pt.scalar("x")
    new_rng, draw = pt.random.normal(rng=rng).owner.outputs
    w = pytensor.shared(1.0, name="w")
    updates = guarded_updates({rng: new_rng, w: w + draw + pt.log(x)})
    step = pytensor.function([x], draw, updates=updates, mode="CVM")
    first = step(0.0)
    assert step(0.0) == first  # the same draw again: the step was not done
    assert step(1.0) == first
    assert step(1.0) != first


def test_under_the_guard():
    step, variables, updates = model(GuardMode(True, True, True), action="skip")
    step(*data(0))
    before = variables[0].get_value()
    with pytest.raises(AssertionError):
        step(*BAD)
    np.testing.assert_array_equal(variables[0].get_value(), before)
    assert updates.skipped == 0
