"""A pytest plugin that runs Theano 1.0.5's own tests as nose ran them.

It is the same under Theano itself on Python 3.7 and under the shim, so that the names of the tests
agree.  Under the shim it also puts the test modules of the source distribution where the tests
look for each other, beside the modules of the shim.  ``run.py`` writes what it needs into the
environment:

``THEANO_SUITE_SOURCE``
    The directory that holds Theano's package ``theano``.
``THEANO_SUITE_RESULTS``
    A file to which one JSON record is added when a test starts and one when it ends.
``THEANO_SUITE_DESELECTED``
    The tests that are not run, one a line, in which ``*`` stands for anything.  (What pytest
    deselects begins with a name.)
``THEANO_SUITE_APART``
    The functions, one a line, that run without their assertions about the compiled graph.
``THEANO_SUITE_SHIM``
    Whether ``import theano`` is to give the shim.
``THEANO_SUITE_SECONDS``
    How long a test may take.
``THEANO_SUITE_AUDIT``
    If it is set, every function is guarded with ``audit=True``, and one JSON record of what the
    audit has counted is added to this file after each test.
"""

import ast
import copy
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import types
import unittest
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

import numpy.testing
import pytest

SOURCE = Path(os.environ["THEANO_SUITE_SOURCE"]).resolve()
RESULTS = os.environ["THEANO_SUITE_RESULTS"]
DESELECTED = os.environ.get("THEANO_SUITE_DESELECTED", "").splitlines()
APART = {*os.environ.get("THEANO_SUITE_APART", "").splitlines()}
SECONDS = int(os.environ["THEANO_SUITE_SECONDS"])
UNDER_SHIM = os.environ.get("THEANO_SUITE_SHIM") == "1"
AUDIT = os.environ.get("THEANO_SUITE_AUDIT")


# Words of an assertion that looks at the nodes of a compiled graph, or at traces on them.
STRUCTURE = re.compile(
    r"\.(op|owner|toposort|apply_nodes|fgraph|inputs|scalar_op|cached)\b"
    r"|\b(check_stack_trace|_verify_\w+|debugprint|str\(|assertFunctionContains\w*)"
)


class WithoutStructure(ast.NodeTransformer):
    """Drops the assertions about a compiled graph, and keeps those about numbers and errors.

    A name to which something of the graph is assigned makes an assertion one about the graph.
    """

    COMPILES = frozenset({"function", "theano.function", "pfunc"})

    def __init__(self, function):
        self.names = set()
        loops = (ast.Assign, ast.For, ast.comprehension)
        for node in ast.walk(function):
            if isinstance(node, loops):
                value = node.value if isinstance(node, ast.Assign) else node.iter
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if self.concerns(value):
                    self.names |= {
                        name.id
                        for target in targets
                        for name in ast.walk(target)
                        if isinstance(name, ast.Name)
                    }

    def concerns(self, node):
        """Whether a part of a test looks at the graph, and does not compile one."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) in self.COMPILES:
            return False
        named = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        return bool(named & self.names or STRUCTURE.search(ast.unparse(node)))

    def visit_Assert(self, node):  # noqa: N802
        return ast.Pass() if self.concerns(node.test) else node

    def visit_Expr(self, node):  # noqa: N802
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        if called == "self._compile_and_check":  # only the shapes, of nodes of any class
            node.value.args[3] = ast.Name("object", ast.Load())
            node.value.keywords = [part for part in node.value.keywords if part.arg != "check_topo"]
            node.value.keywords.append(ast.keyword("check_topo", ast.Constant(False)))
        is_assertion = re.search(r"\b(assert|_verify)\w*$", called) and "Raises" not in called
        return ast.Pass() if is_assertion and self.concerns(node.value) else node


class TestsLoader(SourceFileLoader):
    """Compiles a module of tests, without the assertions about graphs in the functions `APART`."""

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = ast.parse(data)
        file = Path(path).relative_to(SOURCE / "theano")
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module):
                self.weaken(scope, f"{file}::")
            elif isinstance(scope, ast.ClassDef):
                self.weaken(scope, f"{file}::{scope.name}::")
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def weaken(self, scope, prefix):
        """Change the functions of a module or a class, and give a class copies of its helpers."""
        functions = {part.name: part for part in scope.body if isinstance(part, ast.FunctionDef)}
        apart = [part for name, part in functions.items() if f"{prefix}{name}" in APART]
        copies = [
            copy.deepcopy(part)
            for name, part in functions.items()
            if apart and isinstance(scope, ast.ClassDef) and not name.startswith(("test", "_"))
        ]
        helpers = {part.name for part in copies} - {"setUp", "setup", "tearDown"}
        for part in [*apart, *copies]:
            WithoutStructure(part).visit(part)
            for node in ast.walk(part):
                own = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
                if own and node.attr in helpers:
                    node.attr += "_apart"
        for part in copies:
            part.name += "_apart"
        scope.body += copies


class TestsFinder(MetaPathFinder):
    """Finds ``theano...tests`` and what is in it: in the shim's tree, else in the source.

    What the shim makes of a table, without a file, it finds itself.
    """

    def __init__(self, tree):
        self.roots = [tree, SOURCE / "theano"]
        self.sections = importlib.import_module("theanoguard.shim.names").SECTIONS

    def find_spec(self, fullname, path=None, target=None):
        package, *parts = fullname.split(".")
        is_test = "tests" in parts or fullname.rpartition(".")[2].startswith("test_")
        if package != "theano" or not is_test or fullname in self.sections:
            return None
        for root in self.roots:
            place = root.joinpath(*parts)
            if (place / "__init__.py").exists():
                return spec_from_file_location(
                    fullname, place / "__init__.py", submodule_search_locations=[str(place)]
                )
            path = place.with_suffix(".py")  # (Python 3.7 reads this file as well)
            if path.exists():
                apart = any(name.startswith(f"{'/'.join(parts)}.py::") for name in APART)
                loader = TestsLoader(fullname, str(path)) if apart else None
                return spec_from_file_location(fullname, path, loader=loader)
        return None


def give_nose():
    """Put modules in place that have the names of nose which the tests import."""
    case = unittest.TestCase()
    modules = {
        name: types.ModuleType(name)
        for name in ["nose", "nose.plugins", "nose.plugins.skip", "nose.plugins.attrib"]
    }
    tools = modules["nose.tools"] = types.ModuleType("nose.tools")
    modules["nose.plugins.skip"].SkipTest = modules["nose"].SkipTest = unittest.SkipTest
    modules["nose.plugins.attrib"].attr = lambda *names, **values: lambda function: function
    tools.assert_raises = case.assertRaises
    tools.assert_true = case.assertTrue
    tools.assert_equal = tools.assert_equals = case.assertEqual

    def raises(*exceptions):
        def decorate(function):
            def test(*arguments):
                with case.assertRaises(exceptions):
                    function(*arguments)

            test.__name__ = function.__name__
            return test

        return decorate

    tools.raises = raises
    sys.modules.update(modules)


def give_old_unittest():
    """Put back the names that ``unittest.TestCase`` had until Python 3.12."""
    for old, new in {
        "assert_": "assertTrue",
        "assertEquals": "assertEqual",
        "assertNotEquals": "assertNotEqual",
        "assertAlmostEquals": "assertAlmostEqual",
        "assertRaisesRegexp": "assertRaisesRegex",
        "assertRegexpMatches": "assertRegex",
        "failUnless": "assertTrue",
    }.items():
        if not hasattr(unittest.TestCase, old):
            setattr(unittest.TestCase, old, getattr(unittest.TestCase, new))


def give_old_numpy_testing():
    """Give ``numpy.testing`` the decorators that the tests import."""

    def unless(condition, msg=None):
        return unittest.skipIf(condition() if callable(condition) else condition, msg or "")

    dec = types.SimpleNamespace(skipif=unless, knownfailureif=unless, slow=lambda test: test)
    numpy.testing.dec = dec


def find_data(tree):
    """Let ``numpy.loadtxt`` read in the source what the tests look for beside Theano's modules."""
    loadtxt = numpy.loadtxt

    def load(path, *args, **kwargs):
        if not os.path.exists(path):
            path = SOURCE / "theano" / Path(path).relative_to(tree)
        return loadtxt(path, *args, **kwargs)

    numpy.loadtxt = load


def find_programs(tree):
    """Let the tests start, under the shim, programs that they look for beside Theano's modules."""

    class Popen(subprocess.Popen):
        def __init__(self, command, *args, **kwargs):
            if isinstance(command, str):
                new = f"{sys.executable} -m theanoguard run {SOURCE}/theano/"
                command = command.replace(f"python {tree}/", new)
            super().__init__(command, *args, **kwargs)

    subprocess.Popen = Popen


def prepare_shim():
    import theanoguard
    from theanoguard.shim import numpy_compat
    from theanoguard.shim.install import TREE

    give_nose()
    give_old_unittest()
    give_old_numpy_testing()
    find_data(TREE)
    find_programs(TREE)
    numpy_compat.install()
    theanoguard.shim.install_theano()
    sys.meta_path.insert(0, TestsFinder(TREE))


class TooLong(BaseException):
    """A test took longer than it may; not an Exception, which a test could catch."""


def record(**entry):
    with open(RESULTS, "a") as file:
        file.write(json.dumps(entry) + "\n")


def test_id(item):
    """As the lists have it: the path inside the package ``theano``, the class, the function."""
    return item.nodeid.replace("theano/", "", 1).replace("::()", "")


class NoseGenerator(pytest.Item):
    """A test function that yields tests: each yielded one is recorded with its number."""

    def runtest(self):
        in_class = isinstance(self.parent, pytest.Class)
        if in_class and hasattr(self.parent.obj, "setup_class"):
            self.parent.obj.setup_class()
        instance = self.parent.obj() if in_class else None
        if hasattr(instance, "setup_class"):
            instance.setup_class()
        failures = []
        with NoseFixtures(instance):
            for number, call in enumerate(getattr(instance or self.parent.obj, self.name)()):
                function, *arguments = call if isinstance(call, tuple) else (call,)
                entry = {"id": f"{test_id(self)}[{number}]", "event": "passed", "reason": ""}
                signal.alarm(SECONDS)
                try:
                    function(*arguments)
                except unittest.SkipTest as skip:
                    entry.update(event="skipped", reason=str(skip))
                except Exception as error:
                    failures.append(f"{number}: {arguments}\n{traceback.format_exc()}")
                    entry.update(event="failed", reason=first_line(error))
                record(**entry)
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)

    def reportinfo(self):
        return self.path if hasattr(self, "path") else self.fspath, None, self.name


class NoseFixtures:
    """The set-up that nose runs around a test in a class that is no ``unittest.TestCase``."""

    def __init__(self, instance):
        self.instance = instance

    def call(self, *names):
        for name in names:
            if hasattr(self.instance, name):
                getattr(self.instance, name)()
                return

    def __enter__(self):
        self.call("setup", "setUp")

    def __exit__(self, *error):
        self.call("teardown", "tearDown")


@pytest.fixture(autouse=True)
def nose_fixtures(request):
    if request.cls is None or issubclass(request.cls, unittest.TestCase):
        yield
    else:
        with NoseFixtures(request.instance):
            yield


def is_class_of_tests(collector):
    return isinstance(collector, pytest.Class) and not issubclass(collector.obj, unittest.TestCase)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    plain = is_class_of_tests(collector) or isinstance(collector, pytest.Module)
    if plain and name.startswith("test") and inspect.isgeneratorfunction(obj):
        return NoseGenerator.from_parent(collector, name=name)
    return None


class TheanoModule(pytest.Module):
    """A test module, imported by its name inside the package ``theano``."""

    def _getobj(self):
        path = self.path.relative_to(SOURCE).with_suffix("")
        return importlib.import_module(".".join(path.parts))


if UNDER_SHIM:
    # `theano/__init__.py` of the source must not be imported for the packages of the tests.
    def pytest_collect_directory(path, parent):
        return pytest.Dir.from_parent(parent, path=path)

    def pytest_pycollect_makemodule(module_path, parent):
        return TheanoModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    alike = (".*".join(map(re.escape, test.split("*"))) for test in DESELECTED)
    deselected = re.compile("|".join(alike))
    items[:] = [item for item in items if not deselected.fullmatch(test_id(item))]


def pytest_configure(config):
    if UNDER_SHIM:
        prepare_shim()
    if AUDIT:
        config.pluginmanager.register(Audit())


class Audit:
    """Guards what the tests compile, and notes what the audit finds."""

    def __init__(self):
        import auditing

        import theanoguard

        auditing.install()
        self.auditing = auditing
        self.run = theanoguard.guarding(action="record").start()

    def pytest_runtest_logfinish(self):
        exercised, missed = self.auditing.exercised, self.auditing.missed
        counts = {"functions": self.run.guarded, "not guarded": self.run.left}
        counts |= {"missed": missed.total(), **{f"bad, {k}": n for k, n in exercised.items()}}
        with open(AUDIT, "a") as file:
            file.write(json.dumps(counts) + "\n")
        self.run.guarded = self.run.left = 0
        exercised.clear()
        missed.clear()


def first_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def stop(signum, frame):
    raise TooLong(f"longer than {SECONDS} s")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    record(id=test_id(item), event="start", reason="")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if call.when == "call" or report.outcome != "passed":
        reason = ""
        if report.outcome == "failed":
            reason = first_line(call.excinfo.value)
        elif report.outcome == "skipped":
            reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if isinstance(item, NoseGenerator):
            # Its parts are recorded already, but for an error of the generator itself.
            if report.outcome == "failed" and not call.excinfo.errisinstance(pytest.fail.Exception):
                record(id=test_id(item), event="failed", reason=reason)
            else:
                record(id=test_id(item), event="end", reason="")
        else:
            record(id=test_id(item), event=report.outcome, reason=reason)


def pytest_collectreport(report):
    if report.outcome == "failed":
        lines = str(report.longrepr).strip().splitlines()
        record(id=report.nodeid.replace("theano/", "", 1), event="uncollected", reason=lines[-1])
    elif report.outcome == "skipped":
        record(id=report.nodeid.replace("theano/", "", 1), event="skipped", reason="as a module")
