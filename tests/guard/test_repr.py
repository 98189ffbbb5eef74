"""What modes, events and summaries look like at a prompt."""

import copy
from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardMode, NanGuardMode, events_of


def test_a_mode_is_one_line():
    assert repr(GuardMode()) == str(GuardMode())
    assert repr(GuardMode()).startswith("<GuardMode checks=nan/inf/big, big_threshold=1e+10, ")
    assert len(repr(GuardMode())) < 200
    assert "NanGuardMode" in repr(NanGuardMode())
    mode = GuardMode(True, False, False, exempt=("w*",), every=5, action=print)
    assert "checks=nan, action='print'" in repr(mode)
    assert "every=5, exempt=['w*']" in repr(mode)
    assert "exclude fusion" in repr(GuardMode().excluding("fusion"))


def test_events_and_summaries_can_be_read():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x), mode=GuardMode(action="record"), name="f")
    f(np.array([1.0, -1.0]))
    [event] = events_of(f)
    assert repr([event]) == "[<GuardEvent nan in log(x) at [1], 1 of 2 bad, call 1 of f>]"
    assert len(repr(replace(event, op="Composite{" + "x" * 5000))) < 200
    summary = GuardMode.summary(f)
    assert repr(summary) == str(summary)


def test_events_compare_by_all_that_they_hold():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x), mode=GuardMode(action="record"))
    f(np.array([1.0, -1.0]))
    [event] = events_of(f)
    assert event == copy.deepcopy(event) and hash(event) == hash(copy.deepcopy(event))
    assert event != replace(event, dtype="float32")  # which its text does not show
