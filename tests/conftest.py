import difflib
import gc
import inspect
import os
import signal
from pathlib import Path

import auditing
import hypothesis
import pytensor
import pytest

import theanoguard

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("theanoguard", deadline=None)
hypothesis.settings.load_profile("theanoguard")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts under tests/golden anew instead of comparing with them",
    )
    parser.addoption(
        "--signal-points",
        default=2000,
        help="on how many points tests/fuzz/test_signals.py evaluates each operation, if slow",
    )
    parser.addoption(
        "--backend",
        default="c",
        help="what GuardMode takes when a test does not say it: one suite for all backends",
    )
    parser.addoption(
        "--audit",
        action="store_true",
        help="scan on C what the guard does not, and fail where that finds more",
    )


def pytest_configure(config):
    # A job in the background of a shell ignores Ctrl-C, and so would what the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    keep_a_cache_for_children()
    backend = config.getoption("--backend")
    inspect.unwrap(theanoguard.GuardMode.__init__).__kwdefaults__["backend"] = backend
    if config.getoption("--audit"):
        auditing.install()
    if backend == "jax":
        trace_identity()
    if backend == "pytorch":
        run_uncompiled()


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(items):
    """Mark what runs on Numba by its parameter, and what needs a compiler by its fixture."""
    nowhere = []
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        marks = {marker.name for marker in item.iter_markers()}
        if any(isinstance(value, str) and value.lower() == "numba" for value in values):
            item.add_marker("numba")
            if not marks & {"on_30", "on_33"}:
                item.add_marker("on_33")
        if "needs_cxx" in getattr(item, "fixturenames", ()):
            item.add_marker("compiled")
        if marks >= {"on_30", "on_33"}:
            nowhere.append(item.nodeid)
    if nowhere:
        raise pytest.UsageError(f"on_30 and on_33: tox runs these nowhere: {nowhere}")


def pytest_collection_finish(session):
    freeze()  # the modules and the thousands of tests
    gc.set_threshold(10_000, 10, 10)  # a compiler makes many objects, which go by themselves


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--audit"):
        terminalreporter.write_line(auditing.summary())


def pytest_runtest_setup(item):
    backend = item.config.getoption("--backend")
    for marker in item.iter_markers("not_on"):
        if backend in marker.kwargs:
            pytest.skip(marker.kwargs[backend])


def freeze():
    """Have the garbage collector pass over what exists now, of which most stays."""
    gc.collect()
    gc.freeze()


def keep_a_cache_for_children():
    """Have the processes that the tests start cache their C modules in a folder of their own.

    A process reads the keys of all cached modules before it compiles its first one.  With the
    thousands of modules of the tests that takes half a second.
    """
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    folder = Path(pytensor.config.base_compiledir) / "of-children"
    os.environ["PYTENSOR_FLAGS"] = ",".join(filter(None, [flags, f"base_compiledir={folder}"]))


def trace_identity():
    """Tell JAX how to trace the operation that the tests have written in Python."""
    import jax.numpy as jnp
    from guarding import CountedIdentity
    from pytensor.link.jax.dispatch import jax_funcify

    @jax_funcify.register(CountedIdentity)
    def jax_funcify_identity(op, **kwargs):
        return jnp.copy


def run_uncompiled():
    """Have PyTorch run the functions without its compiler, which takes seconds for each.

    ``tests/guard/test_pytorch.py`` compiles some.
    """
    import torch
    from guarding import CountedIdentity
    from pytensor.link.pytorch.dispatch import pytorch_funcify

    torch.compiler.set_stance("force_eager")

    @pytorch_funcify.register(CountedIdentity)
    def pytorch_funcify_identity(op, **kwargs):
        return lambda x: x.clone()


@pytest.fixture(scope="session")
def c_backend(request):
    """Skip the test, which is about the C backend, where another one is asked for."""
    if request.config.getoption("--backend") != "c":
        pytest.skip("is about the C backend")


@pytest.fixture(scope="module", autouse=True)
def frozen_afterwards():
    """The collector passes over what a module leaves behind, such as compiled code in caches."""
    yield
    freeze()


@pytest.fixture(autouse=True)
def usual_width(monkeypatch):
    """Texts have the width that they have without a terminal."""
    monkeypatch.setenv("COLUMNS", "96")


@pytest.fixture
def golden(request, monkeypatch):
    """``golden(name, text)`` compares `text` with ``tests/golden/<name>.txt``.

    Texts name files relative to the working directory, which is the root of the repository.
    """
    monkeypatch.chdir(Path(__file__).parents[1])

    def compare(name, text):
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path} does not exist; run pytest with --update-golden to write it")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail("\n".join(diff) or "only the line ends differ", pytrace=False)

    return compare


@pytest.fixture(scope="session")
def has_cxx():
    """Whether PyTensor has a C++ compiler to work with."""
    return bool(pytensor.config.cxx)


@pytest.fixture(scope="session")
def needs_cxx(has_cxx):
    """Skip the test where there is no C++ compiler."""
    if not has_cxx:
        pytest.skip("PyTensor has no C++ compiler")


@pytest.fixture(scope="module")
def shim():
    """Theano's package under the shim, which is uninstalled after the tests of the module."""
    yield theanoguard.shim.install_theano()
    theanoguard.shim.uninstall_theano()
