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


def sampled(sampler):
    """Return the trace of a small run, which is guarded as far as the release can be."""
    with pm.Model(), theanoguard.pymc.guarding():
        pm.Normal("a", 0, 1)
        trace = pm.sample(
            nuts_sampler=sampler,
            draws=10,
            tune=10,
            chains=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert trace["posterior"]["a"].shape == (1, 10)


@pytest.mark.deep
def test_each_name_of_a_run_of_nutpie(monkeypatch):
    with_nutpie = pytest.importorskip("theanoguard.pymc.with_nutpie")
    from nutpie.sample import _BackgroundSampler

    seen = _BackgroundSampler.__getattribute__
    for name in with_nutpie.OF_A_RUN:

        def as_others_see(self, asked, hidden=name):
            if asked == hidden and sys._getframe(1).f_globals["__name__"].startswith("theanoguard"):
                raise AttributeError(asked)
            return seen(self, asked)

        _releases.MISSING.clear()
        with monkeypatch.context() as patched:
            patched.setattr(_BackgroundSampler, "__getattribute__", as_others_see, raising=False)
            with pytest.warns(
                RuntimeWarning, match=rf"off, because nutpie .* has no \w+\.{name}\."
            ):
                sampled("nutpie")


@pytest.mark.deep
@pytest.mark.parametrize("sampler", ["numpyro", "blackjax"])
def test_each_name_of_a_sampler_in_jax(sampler, monkeypatch):
    pytest.importorskip(sampler)
    from theanoguard.pymc import watch, with_jax

    asked = []
    monkeypatch.setattr(
        with_jax, "existing", lambda patches: asked.extend(patches) or existing(patches)
    )
    sampled(sampler)
    assert [p.name for p in asked] and not _releases.MISSING
    probed, has = watch.probed, watch.has
    for patch in tuple(asked):
        of = patch.owner if isinstance(patch.owner, str) else patch.owner.__name__
        assert of.startswith((sampler, "pymc"))
        _releases.MISSING.clear()
        with monkeypatch.context() as patched:
            if isinstance(patch.owner, str):  # the module has moved
                patched.setattr(
                    watch,
                    "probed",
                    lambda name, feature, of=of: probed(name + ("_moved" * (name == of)), feature),
                )
                missing = f"{of}_moved"
            else:  # or the function has another name
                patched.setattr(
                    watch,
                    "has",
                    lambda owner, name, feature, of=patch: has(
                        owner, name + ("_moved" * (name == of.name)), feature
                    ),
                )
                missing = f"{of}.{patch.name}_moved"
            with pytest.warns(RuntimeWarning, match=rf"off, because \w+ .* has no {missing}\."):
                sampled(sampler)
