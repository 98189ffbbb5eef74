"""Lines that a report prints are pasted into the program, which then runs at other inputs."""

import pytest
from pasted import outcome, programs

pytestmark = pytest.mark.in_python

# (python tests/explain/pasted.py runs all of them)
SOME = [p for i, p in enumerate(programs()) if i % 16 == 3 and not p.name.startswith("theano_")]


@pytest.mark.parametrize("program", SOME, ids=[p.name for p in SOME])
def test_no_line_changes_numbers(program, tmp_path):
    found = outcome(program, tmp_path)
    assert found.kind not in ("wrong", "error"), found.detail


@pytest.mark.parametrize(
    "name", ["star_import-softplus", "augmented-softplus", "one_of_the_numbers_is_1-logaddexp"]
)
def test_lines_of_these_places_are_printed(name, tmp_path):
    program = next(p for p in programs() if p.name == name)
    assert outcome(program, tmp_path).kind == "mended"
