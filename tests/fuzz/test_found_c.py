"""What the fuzzer has found on C, as small as it could be made."""

import numpy as np
import playing
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend

from theanoguard import GuardError, GuardMode, events_of
from theanoguard.guard.c import runtime as compiled
from theanoguard.guard.rerun import WatchedKernels

pytestmark = [
    pytest.mark.skipif(backend() != "c", reason="is about the C backend"),
    pytest.mark.on_30,
]


@pytest.mark.parametrize("bad", [1e39, np.inf, np.nan])
def test_what_a_loop_carries_on_is_recorded_once(bad):
    """A bad argument that a loop only carries on is one event, not two."""
    x = pt.dvector("x")
    last = pytensor.scan(
        lambda u: pt.sqrt(u) + 0.5, outputs_info=[x], n_steps=3, return_updates=False
    )[-1]
    fn = pytensor.function([x], last, mode=GuardMode(True, True, True, action="record"))
    fn(np.array([1.0, bad]))
    assert [event.role for event in events_of(fn)] == ["input"]


def test_what_was_raised_before_a_verdict_is_kept():
    """The verdict on a deliberate infinity computes with NumPy, which clears the flags."""
    x, y = pt.dvectors("x", "y")
    chosen = pt.switch(x > 3, np.inf, pt.tanh(pt.log(y)))
    mode = GuardMode(True, True, True, optimizer="fast_run").excluding("fusion")
    fn = pytensor.function([x, y], chosen, mode=mode)
    large, positive = np.full(3, 5.0), np.ones(3)
    for _ in range(3):
        assert np.isposinf(fn(large, positive)).all()
    with pytest.raises(GuardError) as caught:
        fn(np.array([5.0, 5.0, 1.0]), -positive)
    assert caught.value.event.op == "Log"


def test_what_enters_shows_where_the_flags_mean_nothing():
    """A node that has raised flags in a healthy call was asked whether it had *made* the NaN."""
    x, weights = pt.dvector("x"), pytensor.shared(np.ones(3), name="W")
    mode = GuardMode(True, True, False, optimizer="fast_run").excluding("fusion")
    fn = pytensor.function([x], pt.log(pt.sigmoid(x) + weights), mode=mode)
    runtime = fn.vm.guard
    for flags_work in (True, False):
        runtime.plan.learn(loud=runtime.plan.order, flags_work=flags_work)
        runtime.follow_plan()
        for bad in (np.nan, np.inf):
            weights.set_value(np.array([1.0, bad, 1.0]))
            with pytest.raises(GuardError) as caught:
                fn(np.ones(3))
            assert caught.value.event.role == "shared"


@pytest.mark.usefixtures("needs_cxx")  # without it nothing raises flags
def test_another_error_teaches_nothing():
    """An error message computes with NumPy: flags that are raised then are no node's."""
    x, y = pt.dvectors("x", "y")
    fn = pytensor.function([x, y], pt.log(x) + y, mode=GuardMode(True, True, True))
    for _ in range(5):
        with pytest.raises(ValueError, match="dimension"):
            fn(np.ones(3), np.ones(4))
    assert fn.vm.guard.plan.flags_work


@pytest.mark.usefixtures("needs_cxx")
def test_flags_that_nobody_explains():
    """A few of them are a signal handler's; many are not."""
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(x), mode=GuardMode(True, True, False))
    runtime = fn.vm.guard
    kernel = runtime.kernel

    class Flagged:
        def __getattr__(self, name):
            return (lambda: 1) if name == "end" else getattr(kernel, name)

    runtime.kernel = Flagged()
    for _ in range(compiled.UNEXPLAINED):
        assert runtime.plan.flags_work
        fn(np.ones(3))
    runtime.kernel = kernel
    assert not runtime.plan.flags_work
    with pytest.raises(GuardError):
        fn(np.full(3, 1000.0))


def test_a_second_run_that_fails(monkeypatch):
    """A sign of a bad value is never dropped, also if memory ends while it is looked at."""
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(x) + pt.tanh(x), mode=GuardMode(True, True, False))

    def fails(self, node, inputs):
        raise MemoryError

    monkeypatch.setattr(WatchedKernels, "run", fails)
    with pytest.raises(MemoryError) as caught:
        fn(np.full(3, 1000.0))
    assert "theanoguard" in caught.value.__notes__[0]
    monkeypatch.undo()
    fn(np.ones(3))


def test_a_program_that_was_played():
    """NaN in a log was missed in call 69, beside a complex tanh and an update in place."""
    tally = playing.play(2000016, "c", 92, {})
    assert not [f.what for f in tally.failures]
