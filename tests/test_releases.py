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


def hide(monkeypatch, owner, *names):
    """Let nothing of theanoguard see attributes of the objects of a class, which PyTensor has."""
    seen = owner.__getattribute__

    def as_others_see(self, name):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if name in names and caller.startswith("theanoguard"):
            raise AttributeError(name)
        return seen(self, name)

    monkeypatch.setattr(owner, "__getattribute__", as_others_see, raising=False)


def fix_class(monkeypatch, owner):
    """Let the objects of a class keep it, as if the layouts of their classes differed."""
    store = owner.__setattr__

    def with_a_layout(self, name, value):
        if name == "__class__":
            raise TypeError("object layout differs")
        store(self, name, value)

    monkeypatch.setattr(owner, "__setattr__", with_a_layout, raising=False)


def guarded_log(**settings):
    import pytensor
    import pytensor.tensor as pt

    x = pt.dvector("x")
    return pytensor.function([x], pt.log(x), mode=theanoguard.GuardMode(**settings))


def loop(mode):
    import pytensor
    import pytensor.tensor as pt

    x = pt.dscalar("x")
    states = pytensor.scan(lambda s: pt.log(s), outputs_info=x, n_steps=2, return_updates=False)
    return pytensor.function([x], states, mode=mode)


def root(mode):
    import pytensor
    import pytensor.tensor as pt
    from pytensor.tensor.optimize import minimize

    x, a = pt.dscalar("x"), pt.dscalar("a")
    found, _ = minimize((x - pt.log(a)) ** 2, x)
    return pytensor.function([x, a], found, mode=mode)


@pytest.mark.parametrize("capsule", ["renamed", "no capsule"])
def test_nodes_whose_c_function_is_kept_elsewhere(capsule, monkeypatch):
    import numpy as np
    from pytensor.link.c.op import COp

    from theanoguard._pytensor import capsule_of, runner_of

    make = COp.make_c_thunk

    def renamed(self, *args, **kwargs):
        thunk = make(self, *args, **kwargs)
        thunk.code = thunk.__dict__.pop("cthunk")
        return thunk

    if capsule == "renamed":
        monkeypatch.setattr(COp, "make_c_thunk", renamed)
        f = guarded_log(exempt=[])
        assert f(np.array([1.0])) == 0
        with pytest.raises(
            theanoguard.GuardError, match=r"NaN in log: log\(-1.0\) at element \[1\]"
        ):
            f(np.array([1.0, -1.0]))
        shown = []
        watched = loop(
            theanoguard.monitor.MonitorMode(
                post_func=lambda i, node, thunk: shown.append(i), inner=True
            )
        )
        assert watched(np.e)[0] == 1
        assert shown

    def thunk():
        return "called"

    thunk.cthunk = lambda: None
    assert capsule_of(thunk) is None
    assert runner_of(thunk)() == "called"


def test_a_function_without_slots(monkeypatch):
    import numpy as np

    from theanoguard._pytensor import Function, captured_inputs

    f = guarded_log()
    monkeypatch.delattr(Function, "__slots__")
    [given] = captured_inputs(f, [np.array([2.0])], {})
    assert given == 2
    hide(monkeypatch, Function, "vm")
    with pytest.raises(ImportError) as caught:
        captured_inputs(f, [np.array([2.0])], {})
    assert "a call of a function again does not work, because Function.vm is missing" in str(
        caught.value
    )


def test_objects_that_keep_their_class(monkeypatch):
    import pytensor
    from pytensor.link.vm import VM
    from pytensor.tensor import dvector

    from theanoguard._pytensor import Function, OpFromGraph, inner
    from theanoguard.training import watching

    refused = pytest.raises(ImportError, match=r"does not work, because a \w+ cannot change its cl")
    f, x, w = guarded_log(), dvector(), pytensor.shared(1.0, "w")
    with monkeypatch.context() as patched:
        fix_class(patched, VM)
        with refused as caught:
            guarded_log()
        assert "the guard on C does not work" in str(caught.value)
        with refused as caught:
            loop(theanoguard.monitor.MonitorMode(post_func=print, inner=True))
        assert "MonitorMode in loops does not work" in str(caught.value)
    with monkeypatch.context() as patched:
        fix_class(patched, Function)
        with refused, watching(f, [w]):
            pass
    assert f([1.0]) == 0
    with monkeypatch.context() as patched:
        fix_class(patched, OpFromGraph)
        op = OpFromGraph([x], [x + 1])
        with refused:
            inner.with_inner_graphs(op, [op.fgraph])


def test_a_container_that_keeps_its_class(monkeypatch):
    pytest.importorskip("jax")
    import pytensor
    import pytensor.tensor as pt

    from theanoguard._pytensor import Container

    fix_class(monkeypatch, Container)
    w = pytensor.shared(1.0, "w")
    mode = theanoguard.GuardMode(backend="jax", when="later")
    with pytest.raises(ImportError, match="the guard on JAX does not work, because a Container "):
        pytensor.function([], [], updates={w: pt.exp(w)}, mode=mode)


def test_operations_that_keep_their_function_elsewhere(monkeypatch):
    from theanoguard._pytensor import Scan, inner

    of_3_0 = inner.link_only_mode is None
    for name in ("prepare_fgraph",) if of_3_0 else ("_fn", "compile_fn", "link_mode"):
        with monkeypatch.context() as patched:
            hide(patched, Scan, name)
            with pytest.raises(ImportError) as caught:
                loop(theanoguard.GuardMode())
        first, second = str(caught.value).splitlines()
        assert first.endswith(
            f"guarding what is inside of Scan does not work, because Scan.{name} is missing."
        )
        assert second.startswith("Install a release that it is tested with")
    from pytensor.tensor.optimize import MinimizeOp

    for name in ("build_fn",) if of_3_0 else ("_fn_wrapped", "compile_fn"):
        with monkeypatch.context() as patched:
            hide(patched, MinimizeOp, name)
            with pytest.raises(ImportError, match=f"because MinimizeOp.{name} is missing"):
                root(theanoguard.GuardMode())


TABLES = """
import sys
import pytensor
from pytensor.graph.rewriting.db import RewriteDatabase

seen = RewriteDatabase.__getattribute__

def as_others_see(self, name):
    if name == sys.argv[1] and sys._getframe(1).f_globals["__name__"].startswith("theanoguard"):
        raise AttributeError(name)
    return seen(self, name)

RewriteDatabase.__getattribute__ = as_others_see

import pytensor.tensor as pt
import theanoguard.ops
from theanoguard._releases import MISSING
from theanoguard import GuardMode
x = pt.dscalar("x")
f = pytensor.function([x], theanoguard.ops.Assert()(x, x > 0), mode=GuardMode())
print(f(1.0), *MISSING)
from theanoguard.shim import install_theano
install_theano()
"""


@pytest.mark.deep
@pytest.mark.parametrize("name", ["__db__", "_names"])
def test_databases_that_keep_their_rewrites_elsewhere(name):
    command = [sys.executable, "-c", TABLES, name]
    result = subprocess.run(command, capture_output=True, text=True)
    off = "removing asserts of theanoguard.ops with local_remove_all"
    assert result.stdout.startswith(f"1.0 {off}" if name == "__db__" else "1.0\n")
    assert ("has no RewriteDatabase.__db__" in result.stdout) == (name == "__db__")
    *_, first, _second = result.stderr.splitlines()
    assert ": the shim for Theano does not work, because " in first
    assert first.endswith((f"DB.{name} is missing.", f"Database.{name} is missing."))
