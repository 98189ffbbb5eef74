"""Compiler flags that change the arithmetic do not change what the guard finds."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardMode
from theanoguard._pytensor import machines
from theanoguard.guard.c import build

pytestmark = pytest.mark.usefixtures("needs_cxx", "c_backend")

DEEP = [pytest.mark.deep, pytest.mark.on_33]
# Each runs in a process of its own: what is linked with -ffast-math may change the settings of the
# thread that loads it.
FLAGS = [
    "-O3 -ffast-math",
    pytest.param("-O2 -ffinite-math-only", marks=DEEP),
    pytest.param("-Ofast", marks=DEEP),
    pytest.param("-O3 -fno-signed-zeros -fno-trapping-math", marks=DEEP),
]

PROGRAM = """
import itertools, logging, sys
import numpy as np, pytensor, pytensor.tensor as pt
from theanoguard import GuardError, GuardMode
from theanoguard.guard.c import build

x = pt.dvector("x")
s = pt.sqrt(x)
FUNCTIONS = {
    "entering": (2 * x, [np.nan, np.inf]),
    "made": (pt.log(x), [-1.0, 0.0]),
    "made and passed on": (pt.exp(pt.cumsum(pt.log(x))), [-1.0]),
    "compared": ((pt.log(x) > 0).sum(), [-1.0]),
    "chosen from": (pt.maximum(s, 0) + pt.minimum(s, 0) + pt.clip(s, 0, 1), [-1.0]),
}
records = []
handler = logging.Handler()
handler.emit = lambda record: records.append(record.getMessage())
logging.getLogger("theanoguard").addHandler(handler)
for big in (False, True):
    for name, (y, bad) in FUNCTIONS.items():
        f = pytensor.function([x], y, mode=GuardMode(True, True, big))
        for size in (1, 7):
            good = np.full(size, 1.5)
            f(good)
            for value, place in itertools.product(bad, {0, size - 1}):
                given = good.copy()
                given[place] = value
                try:
                    f(given)
                except GuardError as error:
                    if error.event.kind in ("nan", "inf", "big"):
                        continue
                print("missed:", name, value, place, size, big)
        if name == "entering":
            f(np.full(3, 5e-324))
audited = pytensor.function([x], pt.log(x), mode=GuardMode(audit=True))
print(GuardMode.summary(audited).signs)
print(records)
print("flags are used:", audited.vm.guard.plan.flags_work)
"""


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_that_change_the_arithmetic(flags):
    setting = f"gcc__cxxflags={pytensor.config.gcc__cxxflags} {flags}"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTENSOR_FLAGS": f"{os.environ.get('PYTENSOR_FLAGS', '')},{setting}"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    *missed, summary, records, used = found.stdout.splitlines()
    assert not missed
    named = " ".join(flag for flag in flags.split() if flag not in ("-O2", "-O3"))
    assert f"gcc__cxxflags has {named}" in summary
    assert f"gcc__cxxflags has {named}" in records
    assert used == "flags are used: False"


@pytest.mark.parametrize(
    "flag, changes",
    [
        ("-Ofast", True),
        ("-ffast-math", True),
        ("-fno-honor-nans", True),
        ("-ffp-model=fast", True),
        ("-mdaz-ftz", True),
        ("-O3", False),
        ("-fno-math-errno", False),
        ("-fno-fast-math", False),
        ("-ffp-contract=fast", False),
        ("-march=native", False),
    ],
)
def test_which_flags_change_the_arithmetic(flag, changes):
    with pytensor.config.change_flags(gcc__cxxflags=f"{pytensor.config.gcc__cxxflags} {flag}"):
        assert machines.changes_arithmetic() == ([flag] if changes else [])
        assert (flag in build._compiler_arguments()) is not changes


def test_a_kernel_that_finds_no_nan_is_not_used(monkeypatch, caplog):
    class Blind:
        def __init__(self, **settings):
            pass

        def scan(self, array):
            return False

    module = build.load()
    assert build.finds_bad_values(module)
    monkeypatch.setattr(module, "Guard", Blind)
    monkeypatch.setattr(build, "import_library", lambda library: module)
    with caplog.at_level(logging.WARNING, "theanoguard"):
        assert build.load.__wrapped__() is None
    assert "do not find a NaN" in caplog.text
    monkeypatch.setattr(build, "load", lambda: None)
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x), mode=GuardMode())
    assert f(np.ones(2)).tolist() == [0, 0]
