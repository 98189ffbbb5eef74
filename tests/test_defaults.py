"""The defaults of public functions: programs rely on them, so a change of one is seen in a diff."""

import importlib
import inspect
from pathlib import Path

import pytest

MODULES = ("", *(f".{name}" for name in ("explain", "log", "monitor", "ops", "records", "stable")))
MODULES += (".testvalue", ".training", ".view")
FILE = Path(__file__).parent / "golden" / "defaults.txt"


def defaults():
    """Return by function its parameters with a plain default, as text."""
    found = {}
    for module in (importlib.import_module(f"theanoguard{name}") for name in MODULES):
        for name in sorted(getattr(module, "__all__", ())):
            function = getattr(module, name)
            try:
                parameters = inspect.signature(function).parameters.values()
            except (TypeError, ValueError):  # a module, or a class that is written in C
                continue
            plain = [p for p in parameters if isinstance(p.default, bool | int | float | str)]
            if plain:
                key = f"{module.__name__}.{name}"
                found[key] = ", ".join(f"{p.name}={p.default!r}" for p in plain)
    return found


@pytest.mark.on_33
def test_defaults_stay(request):
    now = defaults()
    if request.config.getoption("--update-golden"):
        FILE.write_text("".join(f"{name}: {text}\n" for name, text in now.items()), "utf-8")
    recorded = dict(line.split(": ", 1) for line in FILE.read_text("utf-8").splitlines())
    assert len(recorded) > 30
    # (a new function is recorded with the next update)
    assert {name: text for name, text in now.items() if name in recorded} == recorded
