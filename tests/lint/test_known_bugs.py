"""``benchmarks/known_bugs``: each formula fails as it is written, and its twin is sound."""

import itertools
import sys
import time
from pathlib import Path

import pytest
from pytensor.compile.mode import Mode

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.known_bugs.bugs import BUGS
from benchmarks.linting import KINDS, linted, marked_line_of
from theanoguard import lint

pytestmark = pytest.mark.on_30

AS_WRITTEN = Mode("py", None)
QUICK = ("silu_by_hand", "masked_mean", "variance_from_moments", "angle")


def test_names_differ():
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_each_bug_of_grist_is_one_formula():
    cases = [case for bug in BUGS for case in bug.cases]
    assert len(cases) == len(set(cases)) == 79
    assert {int(case.rstrip("abcd")) for case in cases} == set(range(1, 64))


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=() if bug.name in QUICK else pytest.mark.slow)
        for bug in BUGS
    ],
)
def test_bug_has_a_witness_on_its_line(bug):
    _, loss = bug.faulty()
    found = lint(loss, mode=AS_WRITTEN, seconds=1.5, all=True)
    failing = [f for f in found if f.witness or f.remark.startswith("holds on")]
    assert any(bug.is_written_at(finding.source) for finding in failing)
    _, loss = bug.twin()
    assert lint(loss, mode=AS_WRITTEN, seconds=0.5) == []


@pytest.mark.parametrize("name", ["kl_with_empty_bin", "perplexity"])
def test_fault_of_the_gallery_has_a_witness_on_its_line(name):
    """With the inputs of its call, as ``benchmarks/linting.py`` counts it."""
    path = next(path for path in KINDS if path.stem == "losses")
    found, _ = linted(path, name, seconds=0.3, repaired=False)
    assert marked_line_of(path, name) in {f.source.line for f in found if f.witness}
    twin, _ = linted(path, name, seconds=0.3, repaired=True)
    assert not any(f.witness for f in twin)


@pytest.mark.parametrize("name", ["probability_of_label", "label_part_of_softmax"])
def test_a_busy_machine_finds_the_same(name, monkeypatch):
    """Each look at the clock finds that other programs have had the processor."""
    clock = itertools.count(step=0.02)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    bug = next(bug for bug in BUGS if bug.name == name)
    found = lint(bug.faulty()[1], mode=AS_WRITTEN, seconds=10)
    assert any(bug.is_written_at(finding.source) for finding in found)
