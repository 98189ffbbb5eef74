"""Releases of PyMC and of nutpie that lack a name: what is said, and that a run goes on."""

import importlib.util
import sys

import pytest

import theanoguard.pymc
from theanoguard import _releases
from theanoguard.pymc import running
from theanoguard.pymc.watch import existing

if importlib.util.find_spec("pymc") is None:
    pytest.skip("PyMC is not installed (tox -e samplers)", allow_module_level=True)
import pymc as pm


@pytest.fixture(autouse=True)
def nothing_missing(monkeypatch):
    monkeypatch.setattr(_releases, "MISSING", [])
    monkeypatch.setattr("theanoguard.pymc.watch.MISSING", _releases.MISSING)
    if importlib.util.find_spec("nutpie"):
        monkeypatch.setattr("theanoguard.pymc.with_nutpie.MISSING", _releases.MISSING)


def test_each_name_of_pymc_that_is_replaced(monkeypatch):
    patches = running.patches()
    assert existing(patches) == patches
    for patch in patches:
        if patch.name not in vars(patch.owner):
            continue
        with monkeypatch.context() as patched:
            patched.delattr(patch.owner, patch.name)
            if hasattr(patch.owner, patch.name):  # it is inherited then
                continue
            with pytest.warns(RuntimeWarning) as warned:
                others = existing(patches)
        assert patch not in others
        [told] = {str(w.message) for w in warned}
        assert told.startswith("theanoguard: a part of the guard in samplers: off, because PyMC ")
        assert told.endswith(f"{patch.name}.")
        assert existing(patches) == patches  # and says nothing
    assert len(_releases.MISSING) > 15


@pytest.mark.deep
def test_a_name_of_nutpie(monkeypatch):
    pytest.importorskip("nutpie")
    from nutpie.sample import _BackgroundSampler

    def as_others_see(self, asked):
        if asked == "_extract" and sys._getframe(1).f_globals["__name__"].startswith("theanoguard"):
            raise AttributeError(asked)
        return object.__getattribute__(self, asked)

    monkeypatch.setattr(_BackgroundSampler, "__getattribute__", as_others_see, raising=False)
    with pm.Model(), theanoguard.pymc.guarding():
        pm.Normal("a", 0, 1)
        with pytest.warns(RuntimeWarning, match=r"off, because nutpie .* has no \w+\._extract\."):
            trace = pm.sample(
                nuts_sampler="nutpie",
                draws=10,
                tune=10,
                chains=1,
                progressbar=False,
                compute_convergence_checks=False,
            )
    assert trace["posterior"]["a"].shape == (1, 10)
