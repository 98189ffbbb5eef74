"""A deterministic part of the fuzzer; ``tox -e fuzz`` plays on."""

import playing
import pytest
import run
from guarding import backend
from reference import Rules

from theanoguard import GuardMode

pytestmark = pytest.mark.on_30

# Seeds of programs that have found a fault of the guard, with what it was.
FOUND = {}

LONG = [pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4)]
SEEDS = [1, 2, *LONG, 6, 7, ~0]  # (2 has a companion without a guard, 7 one with it)


def listed(tally):
    return "\n".join(f"{f.what} in call {f.call}: {f.detail}" for f in tally.failures)


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_the_guard_agrees_with_the_reference(seed):
    tally = playing.play(seed, backend(), 40)
    assert not tally.failures, listed(tally)
    assert tally.counts["programs"] or tally.counts["not compiled"]


def test_the_fuzzer_sees_what_a_guard_misses(monkeypatch):
    """Judged by other rules than its own, the guard misses and reports falsely."""
    monkeypatch.setattr(playing, "Rules", lambda **kwargs: Rules(limit=1e-3))
    tally = playing.play(2, backend(), 10, {"big_is_error": True})
    assert any(f.what == "miss" for f in tally.failures)
    assert "GuardMode" in tally.failures[0].reproduction
    monkeypatch.setattr(playing, "Rules", lambda **kwargs: Rules(nan=False, inf=False, big=False))
    tally = playing.play(2, backend(), 30, {"big_is_error": True})
    assert any(f.what == "false report" for f in tally.failures)


def test_a_run_prints_its_counts(capsys):
    assert run.main(["--program", "3", "--calls", "3", "--backend", backend()]) == 0
    assert "1 programs, 3 calls" in capsys.readouterr().out


def test_the_settings_are_those_of_the_mode():
    for settings in playing.SETTINGS:
        GuardMode(**settings)
