"""The guard on the PyTorch backend."""

import importlib.util
import logging
import os
import pickle
import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, trip
from pytensor.compile.builders import OpFromGraph

from theanoguard import GuardError, GuardMode, events_of

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
ONES = np.ones(3)


def pytorch_guard(**settings):
    return GuardMode(**{**ALL, **settings}, backend="pytorch")


@pytest.fixture
def uncompiled():
    """Leave ``torch.compile`` out, which takes seconds for each function."""
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


def test_without_pytorch():
    code = """
import sys
sys.modules["torch"] = None  # as if it were not there
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
from theanoguard import GuardMode
GuardMode()
try:
    GuardMode(backend="pytorch")
except ImportError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        "backend='pytorch' needs PyTorch, which is not installed.",
        "Install it with: pip install torch",
    ]


def test_mlx_is_refused():
    with pytest.raises(ValueError, match="cannot guard the backend 'mlx' yet") as caught:
        GuardMode(backend="mlx")
    advice = "Pass backend= one of 'c', 'jax', 'numba', 'pytorch'."
    assert str(caught.value).splitlines()[1] == advice


@needs_torch
def test_a_compiled_training_step():
    """What ``torch.compile`` makes of a function, its flag included."""
    rng = np.random.default_rng(1)
    x = pt.dmatrix("x")
    start = rng.normal(size=4)
    w = pytensor.shared(start.copy(), name="w")
    loss = pt.exp(x @ w).mean()
    fn = pytensor.function(
        [x], loss, updates={w: w - 0.01 * pt.grad(loss, w)}, mode=pytorch_guard()
    )
    data = rng.normal(size=(10, 4))
    losses = [float(fn(data)) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    before = w.get_value()
    bad = data.copy()
    bad[7] = 1000.0 * np.sign(before)
    event = trip(fn, bad)
    assert (event.kind, event.first_index) == ("inf", (7,))
    np.testing.assert_array_equal(w.get_value(), before)
    w.set_value(start)
    assert float(fn(data)) == pytest.approx(losses[0], rel=1e-12)


@needs_torch
@pytest.mark.usefixtures("uncompiled")
class TestUncompiled:
    def test_an_explanation(self):
        x = pt.dvector("x")
        fn = pytensor.function([x], pt.exp(pt.log(x - 1.0) * 2.0), mode=pytorch_guard())
        np.testing.assert_allclose(fn(np.array([2.0, 3.0])), [1.0, 4.0])
        with pytest.raises(GuardError) as caught:
            fn(np.array([2.0, 0.5]))
        report = str(caught.value)
        assert report.startswith("NaN in log: log(-0.5) at element [1]")
        assert "test_pytorch.py" in report
        assert "x[1] = 0.5" in report

    @pytest.mark.parametrize(
        ("value", "kind"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (1e11, "big")]
    )
    def test_inputs_and_shared_variables(self, value, kind):
        x, w = pt.dvector("x"), pytensor.shared(ONES, name="w")
        fn = pytensor.function([x], pt.tanh(x) + pt.tanh(w), mode=pytorch_guard())
        fn(ONES)
        event = trip(fn, np.array([1.0, value, 1.0]))
        assert (event.kind, event.role, event.first_index) == (kind, "input", (1,))
        w.set_value(np.array([1.0, 1.0, value]))
        event = trip(fn, ONES)
        assert (event.kind, event.role, event.first_index) == (kind, "shared", (2,))

    @pytest.mark.parametrize("lost", [lambda v: pt.switch(v > 0, v, 0.0), lambda v: v > 1.0])
    def test_what_does_not_reach_the_results(self, lost):
        x = pt.dvector("x")
        fn = pytensor.function([x], lost(pt.log(x)), mode=pytorch_guard())
        fn(ONES)
        assert trip(fn, np.array([1.0, -1.0, 1.0])).kind == "nan"

    def test_the_body_of_an_op_from_graph(self):
        x, y = pt.dvectors("x", "y")
        op = OpFromGraph([x, y], [pt.tanh(pt.log(x)) * y, pt.tanh(x / y)])
        fn = pytensor.function([x, y], op(x, y), mode=pytorch_guard())
        fn(ONES, ONES)
        event = trip(fn, ONES, np.array([1.0, 0.0, 1.0]))
        assert (event.kind, len(event.path), event.op) == ("inf", 1, "True_div")

    @pytest.mark.parametrize("action", ["warn", "record"])
    def test_actions_that_go_on(self, action, caplog):
        x, w = pt.dvector("x"), pytensor.shared(ONES)
        mode = pytorch_guard(action=action)
        fn = pytensor.function([x], pt.exp(pt.log(x)), updates={w: w + 1}, mode=mode)
        with caplog.at_level(logging.WARNING, "theanoguard"):
            fn(np.array([1.0, -1.0, 1.0]))
        assert [event.kind for event in events_of(fn)] == ["nan"]  # what follows is not told
        assert len(caplog.records) == (action == "warn")
        np.testing.assert_array_equal(w.get_value(), 2 * ONES)

    @pytest.mark.parametrize("inf", [True, False])
    def test_a_nan_that_is_made_of_infinities_on_purpose(self, inf):
        x = pt.dmatrix("x")
        weights = pt.special.softmax(pt.switch(x > 0, x, -np.inf), axis=1)
        mode = pytorch_guard(inf_is_error=inf, big_is_error=False)
        fn = pytensor.function([x], weights, mode=mode)
        for _ in range(4):
            fn(np.array([[1.0, -1.0]]))
        assert trip(fn, np.array([[-1.0, -1.0]])).kind == "nan"

    def test_an_infinity_on_purpose(self):
        x = pt.dvector("x")
        masked = pt.switch(x > 0, x, -np.inf)
        best = pt.max(masked)
        fn = pytensor.function([x], pt.exp(masked - best) / x, mode=pytorch_guard())
        for _ in range(6):  # a function that has learnt of it goes on looking
            fn(np.array([1.0, -2.0, 3.0]))
        assert trip(fn, np.array([0.0, -2.0, 3.0])).kind in ("inf", "nan")

    def test_exempt_names(self):
        x = pt.dvector("x")
        y = pt.log(x)
        y.name = "y"
        fn = pytensor.function([x], [y, pt.sqrt(x)], mode=pytorch_guard(exempt="y"))
        fn(np.array([0.0, 1.0]))
        assert trip(fn, np.array([-1.0, 1.0])).op == "Sqrt"

    def test_every_second_call(self):
        x = pt.dvector("x")
        fn = pytensor.function([x], pt.log(x), mode=pytorch_guard(every=2, check_inputs=False))
        fn(ONES)
        fn(-ONES)  # not looked at
        assert trip(fn, -ONES).call == 3

    def test_by_result(self):
        x = pt.dvector("x")
        outputs = pt.switch(x > 0, pt.log(x), 0.0)
        fn = pytensor.function([x], outputs, mode=pytorch_guard(judge="result"))
        np.testing.assert_array_equal(fn(np.array([1.0, -1.0])), [0.0, 0.0])
        assert trip(fn, np.array([1.0, np.inf])).kind == "inf"

    def test_another_error_says_where(self):
        x, y = pt.dvectors("x", "y")
        fn = pytensor.function([x, y], pt.exp(x + y), mode=pytorch_guard())
        with pytest.raises(Exception) as caught:  # noqa: B017 (PyTensor gives it a class of its own)
            fn(np.ones(3), np.ones(4))
        assert "test_pytorch.py" in "".join(caught.value.__notes__)

    def test_pickles_and_copies(self):
        x = pt.dvector("x")
        mode = pickle.loads(pickle.dumps(pytorch_guard(action="record")))
        assert mode.policy.action == "record"
        fn = pytensor.function([x], pt.log(x), mode=mode)
        fn.copy()(-ONES)
        assert [event.kind for event in mode.events] == ["nan"]
        with pytensor.config.change_flags(mode="PYTORCH"):
            assert "PytorchGuardLinker" in repr(GuardMode(backend="auto").linker)

    def test_a_call_later_is_refused(self):
        with pytest.raises(ValueError, match="needs the backend 'jax'"):
            pytorch_guard(when="later")


@needs_torch
@pytest.mark.usefixtures("uncompiled")
def test_on_a_gpu():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with torch.device("cuda"):
        x, w = pt.fvector("x"), pytensor.shared(ONES.astype("float32"), name="w")
        fn = pytensor.function([x], pt.log(x * w).sum(), updates={w: w * 0.5}, mode=pytorch_guard())
        fn(ONES.astype("float32"))
        assert trip(fn, np.array([1.0, -1.0, 1.0], "float32")).first_index == (1,)
        np.testing.assert_array_equal(w.get_value(), 0.5 * ONES)


@needs_torch
def test_doctor_names_the_device():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "theanoguard", "doctor"],
        env={**os.environ},
        capture_output=True,
        text=True,
    )
    assert "backend='pytorch' guards cpu" in result.stdout


@needs_torch
@pytest.mark.parametrize("k", [1, np.int64(0)])
def test_what_pytorch_cannot_compile_runs_as_without_a_guard(k):
    q, x = pt.lvector("q"), pt.dmatrix("x")
    fn = pytensor.function([x, q], pt.log(x[q, k]), mode=pytorch_guard())
    for rows in (3, 4):
        np.testing.assert_array_equal(fn(np.ones((rows, 2)), np.array([0, 2])), [0, 0])
    assert trip(fn, np.zeros((3, 2)), np.array([0, 2])).op == "Log"
