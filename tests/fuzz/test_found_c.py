"""What the fuzzer has found on C and is not mended yet, as small as it could be made."""

import numpy as np
import playing
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend

from theanoguard import GuardMode, events_of

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


@pytest.mark.xfail(strict=True, reason="a NaN is missed, or a chosen infinity reported")
def test_a_program_that_was_played():
    """NaN in a log is missed in call 69, beside a complex tanh and an update in place."""
    tally = playing.play(2000016, "c", 92, {})
    assert not [f.what for f in tally.failures]
