"""The guard's verdict on single nodes against the reference's, over random programs."""

import numpy as np
import playing
import pytensor
import pytest
from pytensor.compile.mode import Mode
from reference import Reference, arrays_in

from theanoguard import GuardMode
from theanoguard.guard.verdict import made_bad


class Comparing(Reference):
    """A reference that asks the guard's verdict, too, and notes where they differ."""

    def __init__(self, fn, rules, impl, policy):
        super().__init__(fn, rules, impl)
        self.policy = policy
        self.differences = []
        self.n_bad = 0

    def judge_node(self, node, ins, outs, follows, path, verdict):
        already = len(verdict.findings)
        marks = super().judge_node(node, ins, outs, follows, path, verdict)
        own = {f.output: f for f in verdict.findings[already:]}
        theirs = made_bad(node, ins, outs, self.policy)
        for index, masks in enumerate(theirs):
            arrays = list(arrays_in(outs[index]))
            if len(arrays) != 1:
                continue
            nothing = np.zeros(arrays[0].shape, bool)
            found = nothing if masks is None else masks[0]
            certain, possible = (
                (own[index].certain, own[index].possible) if index in own else (nothing, nothing)
            )
            self.n_bad += int(found.any())
            if (certain & ~found).any() or (found & ~certain & ~possible).any():
                self.differences.append((node, ins, outs[index], certain, possible, found))
        return marks


class Verdicts(playing.Play):
    """Plays a program without compiling it."""

    def compile(self):
        self.guarded, self.shared, _ = self.functions(Mode("py", "fast_run"))
        self.twins = self.shared
        policy = GuardMode(**self.settings).policy
        self.reference = Comparing(self.guarded, self.rules, "py", policy)
        return True

    def judge_call(self, arrays, trouble):
        try:
            self.reference.judge(arrays)
        except (ArithmeticError, IndexError, ValueError):  # such as for an array without rows
            return
        self.tally.counts["calls"] += 1

    def spoil_shared(self, name, bad):
        value = playing.get(self.shared[name])
        value.flat[self.rng.randrange(value.size)] = bad
        self.shared[name].set_value(value)


def told(difference):
    node, ins, out, certain, possible, found = difference
    at = tuple(np.argwhere((certain & ~found) | (found & ~certain & ~possible))[0])
    shapes = [np.shape(v) for v in ins]
    return f"{node} of {shapes} at {at}: {out[at]}, certain {certain[at]}, verdict {found[at]}"


def compare(seeds, n_calls):
    """Return how many bad values were judged, and where the verdicts differ."""
    n_bad, differences = 0, []
    for seed in seeds:
        big = seed % 2 == 0
        with pytensor.config.change_flags(cxx="", mode="FAST_RUN"):
            settings = {"linker": "vm", "big_is_error": big}
            play = Verdicts(playing.write_program(seed, "c"), "c", settings)
            tally = play.run(n_calls)
        assert not tally.failures, tally.failures[0].detail
        n_bad += play.reference.n_bad
        differences += [f"{seed}: {told(d)}" for d in play.reference.differences[:3]]
    return n_bad, differences


def test_verdicts_agree():
    n_bad, differences = compare(range(6), 30)
    assert not differences, "\n".join(differences)
    assert n_bad


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 6000, 100))
def test_verdicts_agree_on_many_programs(start):
    _, differences = compare(range(start, start + 100), 40)
    assert not differences, "\n".join(differences)
