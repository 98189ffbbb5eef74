"""Set-up and tear-down under the names that nose knew, and that pytest 8 ignores.

`theanoguard.shim.pytest_plugin` registers these fixtures.  As in nose, only the first name that
exists is called.  What pytest calls itself is left to it.  A test that yields others is one test,
which calls them all.
"""

import functools
import inspect
import sys
import types
import unittest
from contextlib import ExitStack, contextmanager

import pytest

# The names of set-up and tear-down, in the order of nose.
MODULE = (
    "setup_module setUpModule setupModule setup setUp".split(),
    "teardown_module tearDownModule teardownModule teardown tearDown".split(),
)
PACKAGE = (
    ["setup_package", "setupPackage", "setUpPackage", *MODULE[0]],
    ["teardown_package", "teardownPackage", "tearDownPackage", *MODULE[1]],
)
CLASS = (
    "setup_class setup_all setupClass setupAll setUpClass setUpAll".split(),
    "teardown_class teardown_all teardownClass teardownAll tearDownClass tearDownAll".split(),
)
METHOD = (["setup", "setUp"], ["teardown", "tearDown"])
FUNCTION = (["setup", "setUp", "setUpFunc"], ["teardown", "tearDown", "tearDownFunc"])
BY_PYTEST = {"setup_module", "setUpModule", "setup_class"}
BY_PYTEST |= {"teardown_module", "tearDownModule", "teardown_class"}


def is_callable(function):
    """Whether nose could call this: not a fixture of pytest's that has such a name."""
    return inspect.isroutine(function) and not hasattr(function, "_pytestfixturefunction")


def call_first(owner, names):
    """Call the first of these names that `owner` has, with a module itself if it takes one."""
    for name in names:
        function = getattr(owner, name, None)
        if not is_callable(function):
            continue
        if name not in BY_PYTEST:
            takes = isinstance(owner, types.ModuleType) and inspect.signature(function).parameters
            function(*([owner] if takes else []))
        return


@contextmanager
def around(owner, names):
    """Set up, and tear down afterwards if that worked."""
    before, after = names
    call_first(owner, before)
    try:
        yield
    finally:
        call_first(owner, after)


@pytest.fixture(scope="session")
def nose_packages():
    """The packages that are set up, by name, until the end of the session."""
    with ExitStack() as stack:
        done = set()

        def set_up(name):
            if name in sys.modules and name not in done:
                done.add(name)
                stack.enter_context(around(sys.modules[name], PACKAGE))

        yield set_up


@pytest.fixture(autouse=True, scope="module")
def nose_module(request, nose_packages):
    """Set up the packages that a module is in, the outermost first, and the module."""
    parts = request.module.__name__.split(".")
    for number in range(1, len(parts)):
        nose_packages(".".join(parts[:number]))
    with around(request.module, MODULE):
        yield


@pytest.fixture(autouse=True, scope="class")
def nose_class(request):
    """Set up a class of tests that is no ``unittest.TestCase``."""
    if request.cls is None or issubclass(request.cls, unittest.TestCase):
        yield
    else:
        with around(request.cls, CLASS):
            yield


@pytest.fixture(autouse=True)
def nose_test(request, nose_class):
    """Set up a function, by ``with_setup``, or the instance that a method is of."""
    yields = hasattr(request.function, "yields")
    if yields or (request.cls is not None and issubclass(request.cls, unittest.TestCase)):
        yield
        return
    with around(*owner_of_set_up(request.function, request.instance)):
        yield


def owner_of_set_up(function, instance):
    """What has the set-up of a test, and its names."""
    return (function, FUNCTION) if instance is None else (instance, METHOD)


def one_test(generator):
    """A function that sets up and calls each test that `generator` yields."""

    @functools.wraps(generator)
    def call_all(*args, **kwargs):
        owner, names = owner_of_set_up(generator, args[0] if args else None)
        failures = []
        for yielded in generator(*args, **kwargs):
            test, *arguments = yielded if isinstance(yielded, tuple) else (yielded,)
            try:
                with around(owner, names):
                    test(*arguments)
            except unittest.SkipTest:
                pass
            except Exception as error:
                error.add_note(f"in the yielded test {test.__name__}{tuple(arguments)}")
                failures.append(error)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("yielded tests", failures)

    call_all.yields = True
    return call_all


def pytest_pycollect_makeitem(collector, name, obj):
    """Collect a test that yields others, which pytest has refused since its release 4."""
    if not (inspect.isgeneratorfunction(obj) and collector.funcnamefilter(name)):
        return None
    setattr(collector.obj, name, one_test(obj))
    return pytest.Function.from_parent(collector, name=name)
