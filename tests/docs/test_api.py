"""The reference has every public name, and each is shown at work in an example that is run."""

import ast
import doctest
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import theanoguard
from theanoguard.guard.plan import REASONS

pytestmark = pytest.mark.on_33

# Nobody calls these by name: ``%load_ext theanoguard`` does, in ``tests/view/test_notebook.py``.
BY_IPYTHON = {"load_ipython_extension", "unload_ipython_extension"}
MODULES = {name for name in theanoguard.__all__ if inspect.ismodule(getattr(theanoguard, name))}
PACKAGE = Path(theanoguard.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"


def examples_of_docstrings():
    """(statement, what it prints) of all docstrings' examples but those that are skipped."""
    parser = doctest.DocTestParser()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for example in parser.get_examples(ast.get_docstring(node) or ""):
                    if not example.options.get(doctest.SKIP):
                        yield example.source, example.want


def examples_of_pages():
    """(statement, what it prints) under ``.. doctest::`` and ``.. testcode::``."""
    parser = doctest.DocTestParser()
    block = re.compile(r"^\.\. (doctest|testcode)::.*\n((?:   .*\n|\n)*)", re.MULTILINE)
    for path in DOCS.glob("*.rst"):
        for kind, body in block.findall(path.read_text(encoding="utf-8")):
            if kind == "testcode":
                yield inspect.cleandoc(body), ""
            else:
                yield from ((e.source, e.want) for e in parser.get_examples(body))


def examples_of_scripts():
    """The scripts under ``examples``, which ``test_examples.py`` runs."""
    for path in (DOCS.parent / "examples").glob("*.py"):
        yield path.read_text(encoding="utf-8"), ""


def names_in(source):
    """All names and attributes that a piece of Python speaks of."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@pytest.fixture(scope="module")
def names_at_work():
    """What the examples use, or what they show as a result; to import a name is not to use it."""
    examples = [*examples_of_docstrings(), *examples_of_pages(), *examples_of_scripts()]
    used = {name for source, _ in examples for name in names_in(source)}
    return used | {word for _, shown in examples for word in re.findall(r"\w+", shown)}


@pytest.mark.parametrize("name", sorted({*theanoguard.__all__} - BY_IPYTHON - MODULES))
def test_every_public_name_is_shown_at_work(name, names_at_work):
    assert name in names_at_work


@pytest.mark.parametrize("name", theanoguard.__all__)
def test_every_public_name_is_described(name):
    value = getattr(theanoguard, name)
    is_object = not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value))
    assert inspect.getdoc(type(value) if is_object else value)


def test_every_public_name_is_in_the_reference(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("numpydoc")
    # (Where tox has built the pages, it says where they are as Sphinx has read them.)
    doctrees = os.environ.get("THEANOGUARD_DOCTREES", tmp_path / "doctrees")
    options = ["-W", "-q", "-b", "text", "-d", doctrees]
    command = [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path]
    build = subprocess.run(command, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    reference = (tmp_path / "api.txt").read_text(encoding="utf-8")
    assert [name for name in theanoguard.__all__ if f'"{name}' not in reference] == []
    guard = (tmp_path / "guard.txt").read_text(encoding="utf-8")
    assert [name for name in REASONS if name not in guard] == []


DESCRIBED = re.compile(r"^\.\. auto(?:class|function):: (theanoguard[\w.]*)$", re.MULTILINE)


def described_objects():
    """Dotted names of the classes and functions that the pages describe."""
    pages = (path.read_text(encoding="utf-8") for path in DOCS.glob("*.rst"))
    names = {name for page in pages for name in DESCRIBED.findall(page)}
    return sorted(names | {f"theanoguard.{n}" for n in {*theanoguard.__all__} - BY_IPYTHON})


@pytest.mark.parametrize("name", described_objects())
def test_examples_run_as_displayed(name):
    """Every name that an example uses is imported by the example."""
    finder = doctest.DocTestFinder()
    value = pkgutil.resolve_name(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in [] if inspect.ismodule(value) else finder.find(value, name):
        test.globs = {"__name__": "__main__"}
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_pages_show_all_their_names():
    """No page runs code that it does not show, except for what is typed at a prompt."""
    hidden = {
        path.stem: path.read_text(encoding="utf-8").count("testsetup::")
        for path in DOCS.glob("*.rst")
    }
    assert {name for name, count in hidden.items() if count} == {"stepping"}
    setup = (DOCS / "conf.py").read_text(encoding="utf-8").partition("doctest_global_setup")[2]
    assert "import numpy" not in setup and "pytensor" not in setup


REFERENCE = re.compile(
    r"(?::(?:py:)?(?:class|func|meth|attr|data|mod|obj|exc):`~?|\.\. auto\w+:: )(theanoguard[\w.]*)"
)


def references():
    """(where, dotted name) of all names that pages and docstrings refer to."""
    sources = [*DOCS.glob("*.rst"), *PACKAGE.rglob("*.py")]
    for path in sources:
        if "shim/theano" not in path.as_posix():
            for name in REFERENCE.findall(path.read_text(encoding="utf-8")):
                yield f"{path.name}: {name}", name.strip(".")


@pytest.mark.parametrize("name", sorted({name for _, name in references()}))
def test_every_dotted_name_resolves(name):
    assert pkgutil.resolve_name(name) is not None, [w for w, n in references() if n == name]


def test_pages_refer_to_public_names():
    """What a page names can be imported without a private module."""
    private = [
        name
        for path in DOCS.glob("*.rst")
        for name in REFERENCE.findall(path.read_text(encoding="utf-8"))
        if any(part.startswith("_") for part in name.split("."))
    ]
    assert private == []


@pytest.mark.parametrize("module", theanoguard._MOVED)
def test_names_that_have_moved_are_still_found(module):
    home = pkgutil.resolve_name(f"theanoguard.{module}")
    for name in theanoguard._MOVED[module]:
        assert name not in theanoguard.__all__
        with pytest.warns(DeprecationWarning, match=f"from theanoguard.{module} import {name}"):
            assert getattr(theanoguard, name) is getattr(home, name)


def test_every_public_name_is_in_the_table_of_the_reference():
    assert ".. public-names::" in (DOCS / "api.rst").read_text(encoding="utf-8")
