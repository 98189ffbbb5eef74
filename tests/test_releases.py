"""Releases of PyTensor that lack a name: the messages, and the features that are off."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import theanoguard
from theanoguard._backends import backends

PACKAGE = Path(theanoguard.__file__).parent

# What PyTensor documents, or what programs that extend it import.  All other names move without a
# word, and are imported in `_pytensor` alone.
PUBLIC = (
    "pytensor",
    "pytensor.breakpoint",
    "pytensor.compile.builders",
    "pytensor.compile.io",
    "pytensor.compile.mode",
    "pytensor.compile.ops",
    "pytensor.compile.sharedvalue",
    "pytensor.config",
    "pytensor.gradient",
    "pytensor.graph",
    "pytensor.link.c.op",
    "pytensor.printing",
    "pytensor.raise_op",
    "pytensor.scalar",
    "pytensor.scan.op",
    "pytensor.sparse",
    "pytensor.tensor",
    "pytensor.typed_list",
)


def pytensor_imports(path):
    """Yield the names of PyTensor that a module imports, with whether a block waits for errors."""

    def walk(node, inside):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytensor"):
            yield from ((f"{node.module}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, ast.With)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return set(walk(ast.parse(path.read_text(encoding="utf-8")), False))


def is_public(name):
    module, _, own = name.rpartition(".")
    known = any(f"{module}.".startswith(f"{public}.") for public in PUBLIC if "." in public)
    return (known and not own.startswith("_")) or name in PUBLIC or module == "pytensor"


@pytest.mark.on_33
def test_only_one_room_imports_what_is_not_documented():
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if not {"_pytensor", "shim"} & set(path.relative_to(PACKAGE).with_suffix("").parts)
        for name, _ in pytensor_imports(path)
        if not is_public(name)
    }
    assert sorted(found) == []


REQUIRED = sorted(
    name for name, inside in pytensor_imports(PACKAGE / "_pytensor" / "__init__.py") if inside
)
LINKERS = {backend.pytensor_linker for backend in backends().values()}
PROBED = sorted(
    {
        node.args[0].value
        for path in (PACKAGE / "_pytensor").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "probed"
    }
    | LINKERS - set(REQUIRED)
)
LOADED = [
    *(name.rpartition(".")[0] for name in LINKERS),
    *("pytensor.link.numba.cache", "pytensor.link.numba.dispatch.basic"),
]

# Everything of PyTensor is loaded once; then a child for each name, which does not have it.
WITHOUT = """
import importlib, os, sys, traceback, warnings

warnings.simplefilter("ignore", DeprecationWarning)
import pytensor
import pytensor.tensor as pt
for module in {loaded}:
    importlib.import_module(module)

def program():
{program}

for name in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork() == 0:
        module, _, own = name.rpartition(".")
        owner = importlib.import_module(module)
        held = getattr(owner, own)
        delattr(owner, own)
        try:
            from theanoguard import GuardMode
            if {restored}:  # PyTensor itself has the name elsewhere
                setattr(owner, own, held)
            program()
        except BaseException as error:
            print(f"{{name}}: {{type(error).__name__}}: {{error}}")
        else:
            print(f"{{name}}: works")
        print("----")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def without(names, program, restored=True):
    """Return what a program prints, by the name that is missing when theanoguard is loaded."""
    program = textwrap.indent(textwrap.dedent(program), "    ")
    code = WITHOUT.format(program=program, restored=restored, loaded=LOADED)
    result = subprocess.run(
        [sys.executable, "-c", code, *names],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "THEANOGUARD_HOOKS": "0"},
    )
    parts = [part.strip() for part in result.stdout.split("----\n")]
    return dict(zip(names, parts, strict=False))


GUARDED = """
import numpy as np
from theanoguard import GuardError, GuardMode
from theanoguard.cli.doctor import _features
x = pt.dvector("x")
mode = GuardMode()
f = pytensor.function([x], pt.log(x), mode=mode)
try:
    f(np.array([1.0, -1.0]))
except GuardError as error:
    print(str(error).splitlines()[0])
print("summary:", *mode.summary(f).off)
print("doctor:", *[finding.value for finding in _features()])
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
@pytest.mark.deep
def test_without_a_required_name():
    assert len(REQUIRED) > 10
    for name, printed in without(REQUIRED, "pass").items():
        first, second = printed.splitlines()
        assert first.startswith(f"{name}: UnsupportedPyTensor: theanoguard ")
        assert f"because {name} is missing" in first
        assert "is tested with PyTensor 3.0 to 3.3, and PyTensor 3." in first
        assert second.startswith('Install a release that it is tested with, `pip install "pytensor')


@needs_fork
@pytest.mark.deep
def test_without_a_probed_name():
    assert len(PROBED) > 5
    for name, printed in without(PROBED, GUARDED).items():
        lines = printed.splitlines()
        assert lines[0] == "NaN in log: log(-1.0) at element [1]", printed
        assert lines[1].startswith("summary: ") and f"has no {name}" in lines[1]
        assert lines[2].startswith("doctor: ") and f"has no {name}" in lines[2]
        assert lines[3] == f"{name}: works"


@needs_fork
def test_without_what_a_backend_needs():
    asked = "from theanoguard import GuardMode\nGuardMode(backend='jax')"
    name = "pytensor.link.jax.linker.JAXLinker"
    [printed] = without([name], asked).values()
    assert printed.startswith(f"{name}: ValueError: GuardMode cannot guard the backend 'jax'.\n")
    assert f"has no {name}" in printed
    numba = "pytensor.link.numba.dispatch.basic.numba_funcify_default_op_cache_key"
    compiled = """
    from theanoguard import GuardMode
    x = pt.dvector("x")
    pytensor.function([x], pt.log(x), mode=GuardMode(backend="numba"))
    """
    [printed] = without([numba], compiled, restored=False).values()
    assert "backend='numba' does not work" in printed
    assert f"because {numba} is missing" in printed


def test_a_release_that_is_too_new(monkeypatch):
    from theanoguard import _releases

    monkeypatch.setattr(_releases, "TESTED", ("2.9", "2.10"))
    with pytest.warns(RuntimeWarning, match="is tested with PyTensor 2.9 to 2.10, and PyTensor 3"):
        _releases.warn_if_untested()


def test_the_bounds_are_those_of_the_installation():
    from theanoguard._releases import TESTED

    setup = PACKAGE.parent / "setup.cfg"
    if not setup.exists():
        pytest.skip("not run from a checkout")
    first, last = TESTED
    major, minor = last.split(".")
    assert f"pytensor>={first},<{major}.{int(minor) + 1}" in setup.read_text(encoding="utf-8")


def test_without_a_local_variable(monkeypatch):
    from theanoguard import _releases

    monkeypatch.setattr(_releases, "MISSING", [])
    assert _releases.has_local(pytensor_imports, "inside", "imports")
    assert not _releases.has_local(pytensor_imports, "outside", "imports")
    [missing] = _releases.MISSING
    assert str(missing).startswith("imports: off, because PyTensor")
    assert str(missing).endswith("pytensor_imports.outside")


def test_a_gradient_whose_frames_say_nothing(monkeypatch):
    import pytensor
    import pytensor.tensor as pt

    from theanoguard import provenance, track_provenance
    from theanoguard._pytensor import recording

    def forward_operations():
        x = pt.dvector("x")
        with track_provenance():
            gradient = pytensor.grad(pt.log(x).sum(), x)
            f = pytensor.function([x], gradient, mode="FAST_COMPILE")
        found = provenance(f)
        return {found[node].backward.forward for node in f.maker.fgraph.toposort()}

    as_recorded = forward_operations()
    monkeypatch.setattr(recording, "_reads_grad", False)
    assert forward_operations() == as_recorded == {"Log"}


def test_no_arguments_of_a_step_are_read_that_scan_does_not_name(monkeypatch):
    from pytensor.scan import basic as scan_basic

    from theanoguard import _pytensor

    before = scan_basic.collect_new_shareds
    for shows, is_watched in ((True, True), (False, False)):
        monkeypatch.setattr(_pytensor, "_shows_steps", shows)
        undo = _pytensor.construction_hooks(print, print, print, print)
        assert (scan_basic.collect_new_shareds is not before) == is_watched
        undo()
