"""Small programs end as under Theano 1.0.5: see ``shim_programs.py``."""

import json
from pathlib import Path

import pytest
import shim_programs

pytestmark = pytest.mark.on_30

RECORDED = json.loads(Path(shim_programs.__file__).with_suffix(".json").read_text("utf-8"))


def same(found, expected):
    """Whether results are equal, and numbers to what rounding can change."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-7, abs=1e-9)
    return found == expected


@pytest.mark.parametrize("name", shim_programs.PROGRAMS)
def test_program(name, shim):
    expected = RECORDED[name]
    result = shim_programs.run(shim_programs.PROGRAMS[name], shim)
    if isinstance(expected, str) and expected.startswith("raises"):
        assert isinstance(result, str) and result.startswith("raises")
    else:
        assert same(result, expected), f"{result}\n  in Theano: {expected}"
