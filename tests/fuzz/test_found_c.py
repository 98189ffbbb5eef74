"""What the fuzzer has found on C, as small as it could be made."""

import numpy as np
import playing
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend

from theanoguard import GuardError, GuardMode, events_of

pytestmark = pytest.mark.skipif(backend() != "c", reason="is about the C backend")


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
        fn(large, -positive)
    assert caught.value.event.op == "Log"


def test_a_program_that_was_played():
    """NaN in a log was missed in call 69, beside a complex tanh and an update in place."""
    tally = playing.play(2000016, "c", 92, {})
    assert not [f.what for f in tally.failures]
