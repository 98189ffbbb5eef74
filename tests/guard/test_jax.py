"""The guard on the JAX backend: a part of what the whole suite holds with ``--backend jax``."""

import importlib.util
import pickle
import time

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, trip
from pytensor.compile.mode import Mode
from pytensor.link.basic import Container

from theanoguard import GuardError, GuardMode, events_of, sync

HAS_JAX = importlib.util.find_spec("jax") is not None
needs_jax = pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
ONES = np.ones(3)


def jax_guard(**settings):
    settings = {"when": "now", **ALL, **settings}  # (on a GPU the default is "later")
    return GuardMode(**settings, backend="jax", optimizer="fast_run")


def vectors(*names, n=3):
    """Vectors whose length is known, as JAX wants it for loops."""
    return [pt.tensor(name, dtype="float64", shape=(n,)) for name in names]


@pytest.fixture(scope="module")
def step():
    """A step with an update, guarded and not; return both, with their weights."""

    def build(mode):
        x = pt.dvector("x")
        w = pytensor.shared(np.ones(3), name="w")
        rng = pytensor.shared(np.random.default_rng(3), name="rng")
        next_rng, noise = pt.random.normal(size=(3,), rng=rng).owner.outputs
        cost = (pt.log(w) * x).sum() + 0.0 * noise.sum()
        updates = {w: w - 0.01 * pytensor.grad(cost, w), rng: next_rng}
        with pytest.warns(UserWarning, match="a copy"):
            fn = pytensor.function([x], [cost, noise], updates=updates, mode=mode)
        return fn, w

    return build(jax_guard()), build(Mode("jax", "fast_run"))


@needs_jax
@pytest.mark.parametrize(
    "masked",
    [
        lambda v: v * (v > 0),
        lambda v: pt.cast(v > 0, "float64")[::1] * v * 2,
        lambda v: pt.tril(pt.outer(pt.ones(3), v))[:1],
        lambda v: pt.dot(v, pt.cast(v > 0, "float64")),
    ],
    ids=["mask", "converted", "tril", "dot"],
)
def test_a_nan_that_a_product_with_a_mask_hides(masked):
    """XLA selects 0 where the mask is false, so the product is finite."""
    [x, w] = vectors("x", "w")
    mode = jax_guard(big_is_error=False)
    made = pytensor.function([x, w], masked(pt.log(x)) + w.sum(), mode=mode)
    enters = pytensor.function([x, w], masked(x) + w.sum(), mode=mode)
    good = np.array([2.0, 3.0, 4.0])
    made(good, ONES), enters(good, ONES)
    with pytest.raises(GuardError, match="^NaN in log"):
        made(np.array([2.0, 3.0, -1.0]), ONES)
    with pytest.raises(GuardError, match="^NaN came in with the input x"):
        enters(np.array([2.0, 3.0, np.nan]), ONES)


@needs_jax
def test_a_long_chain_of_products_compiles():
    """Each product has the one before as both operands, so there are 2**60 ways to the first."""
    [x] = vectors("x")
    power = pt.log(x) + 1
    for _ in range(60):
        power = power * power
    fn = pytensor.function([x], power, mode=GuardMode(**ALL, backend="jax", optimizer=None))
    assert np.allclose(fn(ONES), 1)


@needs_jax
@pytest.mark.parametrize("arrange", [pt.sort, pt.argsort])
def test_an_axis_that_jax_wants_as_a_number(arrange):
    """PyTensor 3.0 has the axis as an operand, and the guard passes it to JAX as a number."""
    x, d = pt.dmatrix("x"), pt.dvector("d")
    first = arrange(x, axis=1)[0, 0]
    fn = pytensor.function([x, d], pt.clip(pt.log(d + first), -1, 1), mode=jax_guard())
    with pytest.raises(GuardError, match="^NaN in log"):
        fn(np.arange(6.0).reshape(2, 3), -ONES)


@needs_jax
@pytest.mark.parametrize("inf", [True, False])
@pytest.mark.parametrize(
    "lost",
    [lambda v: pt.special.softmax(v, axis=1), lambda v: pt.tanh(v - pt.max(v))],
    ids=["softmax", "difference"],
)
def test_a_nan_that_is_made_of_infinities_on_purpose(inf, lost):
    score, keep = pt.dmatrix("score"), pt.bmatrix("keep")
    masked = pt.switch(keep, score, -np.inf)
    mode = jax_guard(inf_is_error=inf, big_is_error=False)
    fn = pytensor.function([score, keep], lost(masked), mode=mode)
    for _ in range(4):
        fn(np.ones((2, 2)), np.array([[1, 0], [0, 1]], "int8"))
    assert trip(fn, np.ones((2, 2)), np.array([[0, 0], [0, 0]], "int8")).kind == "nan"


@needs_jax
def test_a_number_that_is_too_small_for_xla():
    import jax

    if jax.devices()[0].platform != "cpu":
        pytest.skip("a GPU computes with such numbers")
    import jax

    if jax.devices()[0].platform != "cpu":
        pytest.skip("only on a CPU XLA takes subnormal numbers for 0")
    x = pt.fvector("x")
    fn = pytensor.function([x], pt.log(x * np.float32(1e-30)), mode=jax_guard())
    with pytest.raises(GuardError, match="Inf in log") as caught:
        fn(np.array([1.0, 1e-12], "float32"))
    # XLA takes 1e-42 for 0 on a CPU, and so does the second run.
    assert str(caught.value).startswith("Inf in log: log(0.0) = -inf at element [1]")


@needs_jax
class TestTheStep:
    def test_results_are_those_of_the_same_graph_without_a_guard(self, step):
        (guarded, w), (plain, v) = step
        for value in (0.1, 0.2, 0.3):
            for ours, theirs in zip(guarded(value * ONES), plain(value * ONES), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-14)
            np.testing.assert_allclose(w.get_value(), v.get_value(), rtol=1e-14)

    def test_a_trip_loses_nothing(self, step):
        (guarded, w), (plain, v) = step
        before = w.get_value()
        w.set_value(np.array([1.0, -1.0, 1.0]))
        event = trip(guarded, ONES)
        assert (event.kind, event.role) == ("nan", "node")
        np.testing.assert_array_equal(w.get_value(), [1.0, -1.0, 1.0])
        w.set_value(before)
        v.set_value(before)
        # The random state did not move either: the next draw is the one without a trip.
        np.testing.assert_allclose(guarded(ONES)[1], plain(ONES)[1], rtol=1e-14)

    def test_a_bad_shared_variable_is_reported_as_such(self, step):
        guarded, w = step[0]
        before = w.get_value()
        w.set_value(np.array([1.0, np.inf, 1.0]))
        for _ in range(2):  # it is not taken for one that was checked
            event = trip(guarded, ONES)
            assert (event.role, event.variable, event.n_posinf) == ("shared", "w", 1)
        w.set_value(before)
        guarded(ONES)
        assert trip(guarded, np.array([1.0, 1.0, np.nan])).role == "input"

    def test_a_pickled_function_and_a_copy(self, step):
        guarded = step[0][0]
        fn = guarded.copy()
        fn(ONES)
        assert trip(fn, np.array([1.0, np.inf, 1.0])).role == "input"


@needs_jax
def test_a_pickled_function():
    x = pt.dvector("x")
    fn = pickle.loads(pickle.dumps(pytensor.function([x], pt.log(x), mode=jax_guard())))
    fn(ONES)
    assert trip(fn, -ONES).n_nan == 3
    assert pickle.loads(pickle.dumps(jax_guard(action="warn"))).policy.action == "warn"


@needs_jax
def test_one_number_and_no_way_back_to_python():
    import jax

    x = pt.dmatrix("x")
    fn = pytensor.function([x], pt.exp(pt.log(x).sum(axis=0)), mode=jax_guard())
    lowered = jax.jit(fn.vm.guard.run).lower(np.ones((5, 4)))
    assert "callback" not in lowered.as_text()
    result, flag = jax.eval_shape(fn.vm.guard.run, np.ones((5, 4)))
    assert result.shape == (4,)
    assert flag.shape == ()


@needs_jax
@pytest.mark.filterwarnings("ignore:.*copy:UserWarning")
def test_an_explanation_sees_the_draws_of_jax():
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    x = pt.dscalar("x")
    next_rng, noise = pt.random.normal(size=(5,), rng=rng).owner.outputs
    mode = jax_guard(action="raise")
    fn = pytensor.function([x], pt.log(noise * x), updates={rng: next_rng}, mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(1.0)
    explanation = caught.value.explanation
    assert explanation.reproduced
    assert explanation.cause.op == "log"
    drawn = pytensor.function([x], noise * x, mode=Mode("jax", "fast_run"))(1.0)
    [at] = caught.value.event.first_index
    assert explanation.cause.operands[0].value == pytest.approx(float(drawn[at]))


@needs_jax
def test_the_first_in_a_loop_is_that_of_the_first_step():
    x, y = vectors("x", "y")

    def one(a, b, state):  # (with a state, lest it be computed outside of the loop)
        both = pt.cumsum(pt.log(a + state)[None]), pt.cumsum(pt.sqrt(b + state)[None])
        return *both, state + 1e-9 * a

    outputs_info = [None, None, pt.constant(np.float64(0))]
    both = pytensor.scan(one, [x, y], outputs_info=outputs_info, return_updates=False)
    fn = pytensor.function([x, y], both, mode=jax_guard())
    first = trip(fn, np.array([1.0, 1.0, -1.0]), np.array([1.0, -1.0, 1.0]))
    second = trip(fn, np.array([1.0, -1.0, 1.0]), np.array([1.0, 1.0, -1.0]))
    assert first.path[0].step == second.path[0].step == 1
    assert (first.node, first.output) != (second.node, second.output)


@needs_jax
@pytest.mark.parametrize("n", [0, 1, 2, 255, 257, 4097, 70_001])
def test_no_place_is_missed(n):
    x = pt.dvector("x")
    fn = pytensor.function([x], x * 2.0, mode=jax_guard(inf_is_error="any"))
    good = np.linspace(-1.0, 1.0, n)
    fn(good)
    for at in {0, 1, n // 3, n - 2, n - 1} & set(range(n)):
        for value, kind in ((np.nan, "nan"), (-np.inf, "inf"), (-1e10, "big")):
            bad = good.copy()
            bad[at] = value
            event = trip(fn, bad)
            assert (event.kind, event.first_index, event.n_bad) == (kind, (at,), 1)


@needs_jax
@pytest.mark.parametrize("n", [0, 1, 2, 255, 257, 4097, 70_001])
def test_no_place_is_missed_that_a_node_makes(n):
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x) * 1e10, mode=jax_guard())
    good = np.linspace(0.5, 2.5, n)
    fn(good)
    for at in {0, 1, n // 3, n - 2, n - 1} & set(range(n)):
        for value, kind in ((-1.0, "nan"), (0.0, "inf"), (3.0, "big")):
            bad = good.copy()
            bad[at] = value
            event = trip(fn, bad)
            assert (event.kind, event.first_index, event.n_bad) == (kind, (at,), 1)


@pytest.fixture(params=["C reads", "XLA reads"])
def reader(request, monkeypatch):
    """Whether C code or a loop of XLA's reads arrays of a few elements."""
    from theanoguard.guard.jax import code

    if request.param == "C reads":
        assert code.can_scan()
    else:
        monkeypatch.setattr(code, "can_scan", lambda: False)


@needs_jax
@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_kinds_that_are_let_pass(dtype):
    x = pt.vector("x", dtype=dtype)
    values = {"nan": np.nan, "inf": np.inf, "big": 60000.0}
    for watched, passing in (("nan", ("inf", "big")), ("inf", ("nan", "big")), ("big", ("nan",))):
        flags = {f"{kind}_is_error": kind == watched for kind in values}
        mode = GuardMode(**flags, big_threshold=1000.0, backend="jax", when="now")
        fn = pytensor.function([x], x * 1, mode=mode)
        for kind in passing:
            fn(np.array([1.0, values[kind]], dtype))
        assert trip(fn, np.array([1.0, values[watched]], dtype)).kind == watched


@needs_jax
def test_c_code_that_does_not_compile_is_no_error(monkeypatch, caplog):
    from theanoguard.guard.c import build
    from theanoguard.guard.jax import code
    from theanoguard.guard.jax._pytensor import CompileError

    def fail(*_):
        raise CompileError("no header")

    monkeypatch.setattr(build, "built", fail)
    monkeypatch.setattr(code, "can_scan", code.can_scan.__wrapped__)
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=jax_guard())
    assert trip(fn, np.array([1.0, -1.0, 1.0])).first_index == (1,)
    assert "takes longer: no header" in caplog.text


@needs_jax
def test_arrays_of_jax_as_inputs():
    import jax.numpy as jnp

    x = pt.dvector("x")
    w = pytensor.shared(np.ones(3), name="w")
    fn = pytensor.function([x], [], updates={w: w / x}, mode=jax_guard())
    fn.trust_input = True
    fn(jnp.ones(3))
    fn(jnp.ones(3))  # w holds one of JAX's arrays now
    with pytest.raises(GuardError, match="1.0 / 0.0") as caught:
        fn(jnp.array([1.0, 0.0, 1.0]))
    assert caught.value.explanation.reproduced
    np.testing.assert_array_equal(w.get_value(), ONES)


@needs_jax
def test_a_length_that_is_no_array():
    n, x = pt.scalar("n", dtype="int64"), pt.dvector("x")
    mode = jax_guard(check_integers=True)
    fn = pytensor.function([n, x], pt.log(x).reshape((n, 2)), mode=mode)
    assert fn(2, np.ones(4)).shape == (2, 2)
    assert trip(fn, 3, np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])).first_index == (2, 1)


@needs_jax
@pytest.mark.parametrize("where", range(5))
def test_the_code_for_a_gpu_finds_a_nan_in_each_array(monkeypatch, where):
    """Arrays of all sizes are reduced together there; here a CPU runs that code."""
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    shapes = [(), (3,), (70, 70), (40, 2), (5000,)]
    dtypes = ["float64", "float32", "float64", "float32", "float64"]
    values = [np.ones(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    inputs = [pt.tensor(dtype=d, shape=s) for s, d in zip(shapes, dtypes, strict=True)]
    fn = pytensor.function(inputs, [pt.log(v) for v in inputs], mode=jax_guard())
    fn(*values)
    values[where].flat[-1] = -1.0
    assert trip(fn, *values).first_index == tuple(n - 1 for n in shapes[where])


@needs_jax
def test_a_result_that_is_rounded_otherwise_when_it_is_computed_again(monkeypatch):
    code = pytest.importorskip("theanoguard.guard.jax.code")
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=jax_guard())
    monkeypatch.setattr(code.JaxKernels, "run", lambda self, node, inputs: [ONES[:2]])
    with pytest.raises(GuardError) as caught:
        fn(np.array([1.0, 0.0]))
    event = caught.value.event
    assert (event.kind, event.shape, event.first_index) == ("inf", (2,), (1,))
    assert event.first_value == -np.inf
    assert str(caught.value).startswith("Inf in log")


@needs_jax
def test_what_auto_takes():
    with pytensor.config.change_flags(mode=Mode("jax", "fast_run")):
        assert "JaxGuardLinker" in repr(GuardMode(backend="auto").linker)
    with pytest.raises(ValueError, match="choose backend='jax'"):
        GuardMode(linker="jax", backend="c")


def test_without_jax(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs JAX, which is not installed"):
        GuardMode(backend="jax")


@needs_jax
class TestLater:
    def step(self, **settings):
        x = pt.dvector("x")
        w = pytensor.shared(np.ones(3), name="w")
        mode = jax_guard(when="later", **settings)
        return pytensor.function([x], pt.log(x).sum(), updates={w: w + x}, mode=mode), w

    def test_the_error_names_the_call_and_puts_the_weights_back(self):
        fn, w = self.step()
        for _ in range(3):
            fn(ONES)
        x = -ONES
        fn(x)
        x[:] = 1.0  # the call goes by what it was given
        with pytest.raises(GuardError) as caught:
            for _ in range(10):
                fn(ONES)
        assert caught.value.event.call == 4
        assert caught.value.explanation.cause.op == "log"
        np.testing.assert_array_equal(w.get_value(), [4.0, 4.0, 4.0])
        fn(ONES)
        sync()  # nothing is left of the calls that were undone

    def test_it_comes_when_a_shared_variable_is_read(self):
        fn, w = self.step()
        fn(-ONES)
        with pytest.raises(GuardError):
            w.get_value()
        np.testing.assert_array_equal(w.get_value(), ONES)
        assert type(pickle.loads(pickle.dumps(w.container))) is Container

    def test_it_comes_with_sync_and_after_some_time(self):
        fn, _ = self.step()
        fn(-ONES)
        time.sleep(1.1)
        with pytest.raises(GuardError):
            fn(ONES)
        fn(-ONES)
        with pytest.raises(GuardError):
            sync()
        sync()

    def test_the_first_bad_call_of_all_functions_is_reported(self):
        fn, w = self.step()
        x = pt.dvector("x")
        reader = pytensor.function([x], w * x, mode=jax_guard(when="later"))
        fn(np.array([1.0, np.nan, 1.0]))
        reader(ONES)  # reads the weight that has become NaN
        with pytest.raises(GuardError) as caught:
            sync()
        assert caught.value.event.variable == "x"
        np.testing.assert_array_equal(w.get_value(), ONES)

    def test_what_others_have_set_since_is_kept(self):
        fn, w = self.step()
        fn(-ONES)
        w.set_value(7 * ONES)
        with pytest.raises(GuardError):
            sync()
        np.testing.assert_array_equal(w.get_value(), 7 * ONES)

    def test_events_of_an_action_that_goes_on(self):
        fn, w = self.step(action="record")
        fn(-ONES)
        fn(ONES)
        fn(0 * ONES)
        sync()
        assert [event.call for event in events_of(fn)] == [1, 3]
        np.testing.assert_array_equal(w.get_value(), ONES)

    def test_other_backends_refuse(self):
        with pytest.raises(ValueError, match="needs the backend 'jax'"):
            GuardMode(when="later", backend="c")


@needs_jax
def test_infinite_values_on_purpose_are_looked_at_once():
    x, chosen = pt.dvector("x"), pt.bvector("chosen")
    y = pt.switch(chosen, x, -np.inf)
    p = pt.exp(y - y.max())
    fn = pytensor.function([x, chosen], [p / p.sum(), (y * 2.0).sum()], mode=jax_guard())
    for _ in range(3):
        assert fn(ONES, np.array([1, 0, 1], "int8"))[1] == -np.inf
    assert fn.vm.guard._refinements == 1
    assert trip(fn, np.array([1.0, 1.0, np.nan]), np.array([1, 0, 1], "int8")).role == "input"


@needs_jax
def test_only_one_call_in_so_many_is_looked_at():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=jax_guard(every=3))
    fn(ONES)
    fn(-ONES)
    fn(-ONES)
    assert trip(fn, -ONES).call == 4


@needs_jax
def test_judged_by_the_result():
    x = pt.dvector("x")
    kept = pt.switch(x > 0, pt.log(x), 0.0)
    fn = pytensor.function([x], kept, mode=jax_guard(judge="result"))
    for _ in range(2):
        np.testing.assert_array_equal(fn(-ONES), 0 * ONES)
    fn = pytensor.function([x], pt.log(x).sum(), mode=jax_guard(judge="result"))
    assert trip(fn, -ONES).op == "Log"


@needs_jax
def test_no_value_is_read_twice():
    x = pt.tensor("x", dtype="float64", shape=(3, 4))
    w = pt.tensor("w", dtype="float64", shape=(4, 5))
    # x, w, and the three products; their transposes show nothing new
    products = pt.dot(w.T, pt.dot(x.T, pt.dot(x, w)))
    assert pytensor.function([x, w], products, mode=jax_guard()).vm.guard.n_read == 5
    # w and its logarithm, which is only moved
    moved = pt.inc_subtensor(pt.zeros((5, 5))[1:], pt.log(w))
    assert pytensor.function([w], moved, mode=jax_guard()).vm.guard.n_read == 2


@needs_jax
def test_values_of_one_shape_in_a_loop_have_marks_of_their_own():
    x, y = vectors("x", "y")
    [_, sums] = pytensor.scan(
        lambda a, b, x, y: (a + pt.log(x), b + pt.tanh(a) * pt.sqrt(y)),
        outputs_info=[pt.zeros(3), pt.zeros(3)],
        non_sequences=[x, y],
        n_steps=4,
        return_updates=False,
    )
    fn = pytensor.function([x, y], sums[-1], mode=jax_guard())
    bad = np.array([1.0, -1.0, 1.0])
    for values, op in [((ONES, bad), "Sqrt"), ((bad, ONES), "Log")]:
        fn(ONES, ONES)
        assert trip(fn, *values).op == op


@needs_jax
def test_a_second_run_keeps_the_bits_of_sums():
    """PyTensor's sums for JAX keep the type in which they add up, which may have more bits."""
    x, y = pt.fmatrix("x"), pt.fvector("y")
    spread = pt.var(x, axis=1)
    large = np.array([[1e30, 2e30, 4e30]], "float32")
    plain = pytensor.function([x], spread, mode=Mode("jax", "fast_run"))
    if np.isinf(plain(large)).any():
        pytest.skip("this PyTensor rounds sums to their type")
    mode = jax_guard(big_is_error=False, action="record")
    fn = pytensor.function([x, y], [spread, pt.log(y)], mode=mode)
    fn(large, np.zeros(2, "float32"))
    assert [event.op for event in events_of(fn)] == ["Log"]


@needs_jax
def test_a_bad_input_does_not_hide_that_jax_cannot_compile():
    x, n = pt.dvector("x"), pt.lscalar("n")
    mode = GuardMode(backend="jax", judge="result")
    fn = pytensor.function([x, n], pt.zeros((n, 2)) + x.sum(), mode=mode)
    with pytest.raises(Exception, match="(?i)concrete|static|shape") as caught:
        fn(np.array([1e20]), 3)
    assert not isinstance(caught.value, GuardError)


@needs_jax
@pytest.mark.parametrize("bad", [False, True])
def test_shapes_that_do_not_fit_are_explained_after_what_enters(bad):
    x, y = pt.dvector("x"), pt.dvector("y")
    fn = pytensor.function([x, y], pt.exp(x) + pt.log(y), mode=GuardMode(backend="jax"))
    with pytest.raises(GuardError if bad else TypeError) as caught:
        fn(np.array([1e20 if bad else 1.0, 0.0]), np.ones(3))
    if not bad:
        assert "operand log(y)  shape (3,)" in caught.value.__notes__[0]
