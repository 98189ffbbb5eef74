"""Read an old project without running it, and list what will not work on today's packages.

`read_project` parses the files and looks up the names that they use, in the installed NumPy, SciPy,
Python and in the shim.  Code inside ``try`` or behind a test of a version is not reported, because
such programs take care of themselves.
"""

import ast
import gzip
import importlib
import json
import pickletools
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from . import python_compat, removed
from .advice import (
    INTEGERS,
    NUMPY_COMPAT,
    PYTHON_2,
    PYTHON_COMPAT,
    advice,
    advice_on_name,
    advice_on_parameter,
)

LARGEST_PICKLE = 64 << 20  # bytes that are read of a pickle
SKIPPED = {".git", ".hg", ".tox", ".venv", "venv", "env", "node_modules", "__pycache__", "build"}

OPTIONS = {"--numpy-compat": NUMPY_COMPAT, "--python-compat": PYTHON_COMPAT}
GPU = "Nothing has to be done: everything runs on the CPU.  Remove the setting to avoid a warning."
LISTS = (
    "Write x[tuple(index)], or run it with --numpy-compat: NumPy takes no list of slices as an "
    "index since 1.23.  For a variable of Theano, the list still works."
)
NOSE = "Run the tests with pytest -p theanoguard.shim.pytest_plugin, which calls this as nose did."
YIELD = (
    "Run the tests with pytest -p theanoguard.shim.pytest_plugin, which runs what this yields, or "
    "write @pytest.mark.parametrize: pytest alone does not run it."
)
BINARY = 'Open the file in binary mode: open(name, "rb") or open(name, "wb").'
TEXT_PICKLE = 'Python 2 wrote this pickle: read it with pickle.load(file, encoding="latin1").'
FUNCTION_PICKLE = (
    "Compile the function again from its graph, or save the parameters instead, with the old "
    "Theano: functions and loops that Theano pickled cannot be loaded."
)
GPU_PICKLE = "Save the parameters as NumPy arrays with the old Theano, on the machine with the GPU."
NO_NAME = (
    "Convert Python 2 with 2to3 (pip install 2to3, then 2to3 -w -n FILES), or look for a "
    "replacement in Python's documentation: its library has no such name any more."
)
AESARA = (
    "Replace aesara by pytensor and aesara.tensor by pytensor.tensor: PyTensor has the same names."
)


@dataclass(frozen=True)
class Trouble:
    """Something in a project that will not work, or only with an option.

    Parameters
    ----------
    file : str
        Relative to the project.
    line : int
        0 for the whole file.
    what : str
        The name or the construct.
    remedy : str
        What to do.
    source : str
        The line.
    """

    file: str
    line: int
    what: str
    remedy: str
    source: str = ""

    @property
    def option(self) -> str | None:
        """The option of ``theanoguard run`` with which it works, or None."""
        return next((name for name in OPTIONS if name in self.remedy), None)

    @property
    def is_harmless(self) -> bool:
        """Whether the program runs without a change."""
        return self.remedy in (GPU, NOSE) or self.option is not None


# -- Python 2

EXCEPT = re.compile(r"^(\s*except\s+.+?)\s*,\s*(\w+)\s*:")
TRIPLE = re.compile(r"\"\"\"|'''")
STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")


def statement_end(lines: list[str], first: int) -> int:
    """Return the index after the last line of the statement that begins at `first`."""
    depth, inside = 0, False
    for number in range(first, len(lines)):
        line = lines[number]
        inside ^= len(TRIPLE.findall(line)) % 2 == 1
        bare = STRING.sub("", line).split("#")[0]
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
        if depth <= 0 and not inside and not line.rstrip().endswith("\\"):
            return number + 1
    return first + 1


def parse(text: str) -> tuple[ast.Module, dict[int, SyntaxError]]:
    """Return the tree of a file, and the errors of the lines that are not Python 3.

    A line that cannot be parsed is replaced, so that the rest can be read.
    """
    errors: dict[int, SyntaxError] = {}
    lines = text.expandtabs().splitlines()
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse("\n".join(lines)), errors
        except (SyntaxError, ValueError) as error:
            number = getattr(error, "lineno", None) or 1
            if number in errors or number > len(lines) or not isinstance(error, SyntaxError):
                errors.setdefault(number, SyntaxError(str(error)))
                return ast.Module([], []), errors
            errors[number] = error
            line = lines[number - 1]
            if match := EXCEPT.match(line):
                lines[number - 1] = f"{match[1]} as {match[2]}:{line[match.end() :]}"
                continue
            end = statement_end(lines, number - 1)
            indent = line[: len(line) - len(line.lstrip())]
            opens = lines[end - 1].split("#")[0].rstrip().endswith(":")
            lines[number - 1] = indent + ("if True:" if opens else "pass")
            lines[number:end] = [""] * (end - number)


PYTHON_2_NAMES = set(
    "xrange unicode raw_input basestring long unichr file execfile reduce cmp reload izip".split()
)
PYTHON_2_METHODS = set("has_key iteritems iterkeys itervalues".split())
VIEWS = {"keys", "values", "items"}  # methods of a dict
LAZY = {"map", "filter", "zip", "range"}
SHAPED = {"range", "xrange", "zeros", "ones", "empty", "reshape"}


# -- names


def is_guarded(node: ast.stmt) -> bool:
    """Whether a statement takes care of names that do not exist."""
    if isinstance(node, ast.Try):
        return bool(node.handlers)
    return isinstance(node, ast.If) and bool(
        re.search(r"version|PY2|PY3|python2|hasattr", ast.unparse(node.test))
    )


def look_up(path: str) -> Exception | None:
    """Return the error of looking a dotted name up, or None if it exists."""
    parts = path.split(".")
    found: object = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = importlib.import_module(parts[0])
            for number, part in enumerate(parts[1:], 2):
                if not isinstance(found, ModuleType):
                    return None
                try:
                    found = getattr(found, part)
                except AttributeError:
                    if not hasattr(found, "__path__"):
                        raise
                    found = importlib.import_module(".".join(parts[:number]))
    except Exception as error:  # whatever a package raises for a name that it does not have
        return error
    return None


def remedy_for_name(path: str, error: Exception) -> str:
    """Return what to do about a name that does not exist."""
    parts = path.split(".")
    for number in range(len(parts), 0, -1):
        if removed.entry(".".join(parts[:number])):
            return advice_on_name(".".join(parts[:number]))
    module = sys.modules.get(path.rpartition(".")[0])
    if isinstance(module, ModuleType) and parts[-1] in python_compat.NAMES.get(module, ()):
        return PYTHON_COMPAT
    if text := advice(error):
        return text
    package = parts[0]
    if package == "theano":
        _, _, use = str(error).partition("\n")
        return (
            use
            or "The shim does not have this name: look for another one in Theano's documentation."
        )
    if package in ("numpy", "scipy"):
        version = sys.modules[package].__version__
        return f"Look for a replacement in the documentation: {package} {version} has no such name."
    return NO_NAME


CHECKED = ("numpy", "scipy", "theano")


class Reader(ast.NodeVisitor):
    """Lists the troubles of one file.

    Parameters
    ----------
    path : Path
        The file; its siblings decide which imports are relative.
    local : set of str
        The names of the project's own top-level modules.
    """

    def __init__(self, path: Path, local: set[str]) -> None:
        self.path, self.local = path, local
        self.found: list[tuple[int, str, str]] = []
        self.aliases: dict[str, str] = {}
        self.imports: set[str] = set()
        self.defined: set[str] = set()
        self.slices: set[str] = set()
        self.divided: dict[str, list[ast.AST]] = {}
        self.guards = 0
        self.is_test = path.name.startswith("test") or path.stem.endswith("test")

    def read(self, tree: ast.Module) -> None:
        """Read a tree: first what it defines, then what it uses."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.defined.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.defined.add(node.name)
            elif isinstance(node, ast.arg):
                self.defined.add(node.arg)
            elif isinstance(node, ast.Assign) and has_slices(node.value):
                self.slices |= {
                    target.id for target in node.targets if isinstance(target, ast.Name)
                }
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.record(node)
        if self.is_test:
            self.read_set_ups(tree.body)
        self.divided = divided_names(tree)
        self.visit(tree)

    def add(self, node: ast.AST, what: str, remedy: str) -> None:
        """Add a trouble, unless the code takes care of it."""
        if not self.guards:
            self.found.append((getattr(node, "lineno", 0), what, remedy))

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is in a node; remember whether that is guarded."""
        guards = isinstance(node, ast.stmt) and is_guarded(node)
        self.guards += guards
        super().generic_visit(node)
        self.guards -= guards

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: N802
        """Visit a function, whose names are its own."""
        outer = self.divided
        own = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and is_set(name)}
        own |= {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
        seen = {name: divisions for name, divisions in outer.items() if name not in own}
        self.divided = seen | divided_names(node)
        self.generic_visit(node)
        self.divided = outer

    # Imports

    def record(self, node: ast.Import | ast.ImportFrom) -> None:
        """Remember what a name that is imported stands for."""
        for name in node.names:
            if isinstance(node, ast.Import):
                path = name.name if name.asname else name.name.partition(".")[0]
                self.aliases[name.asname or path] = path
            elif not node.level:
                self.aliases[name.asname or name.name] = f"{node.module}.{name.name}"
            self.defined.add(name.asname or name.name.partition(".")[0])

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802
        """Check the modules that are imported."""
        for name in node.names:
            self.check_module(node, name.name)
            self.check_name(node, name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        """Check the module and the names that are imported from it."""
        if node.level or node.module is None or node.module == "__future__":
            return
        if self.check_module(node, node.module):
            return
        for name in node.names:
            self.check_name(node, node.module if name.name == "*" else f"{node.module}.{name.name}")

    def check_module(self, node: ast.AST, path: str) -> bool:
        """Report a module that only Python 2 has, or old releases; return whether it is one."""
        top = path.partition(".")[0]
        places = (self.path.with_name(f"{top}.py"), self.path.parent / top / "__init__.py")
        sibling = any(place.exists() for place in places)
        is_package = self.path.with_name("__init__.py").exists()
        if sibling and is_package and top not in sys.stdlib_module_names and top not in self.local:
            self.add(node, "import of a module beside this one", PYTHON_2)
            return True
        if top in self.local or sibling:
            return True
        self.imports.add(top)
        if top == "aesara":
            self.add(node, path, AESARA)
        elif top == "sklearn" or not (top in PINS or top in CHECKED or is_module(top)):
            text = advice(no_module(path))
            if text is None:
                return False
            self.add(node, f"import {path}", text)
        else:
            return False
        return True

    def check_name(self, node: ast.AST, path: str) -> None:
        """Report a name of NumPy, SciPy, Python or Theano that does not exist."""
        top = path.partition(".")[0]
        if (
            self.guards
            or top in self.local
            or top.startswith("__")
            or top in ("this", "antigravity")
        ):
            return
        if top in CHECKED or (top in sys.stdlib_module_names and is_module(top)):
            error = look_up(path)
            if error is not None:
                self.add(node, path, remedy_for_name(path, error))

    # What is used

    def path_of(self, node: ast.AST) -> str | None:
        """Return the dotted name of an object that was imported, or None."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        base = self.aliases.get(node.id) if isinstance(node, ast.Name) else None
        return base and ".".join([base, *reversed(parts)])

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        """Check a dotted name, or a method that arrays, dicts or tests do not have any more."""
        path = self.path_of(node)
        if path is not None:
            if isinstance(node.ctx, ast.Load):
                self.check_name(node, path)
            return
        name = node.attr
        if name in PYTHON_2_METHODS:
            self.add(node, f".{name}()", PYTHON_2)
        elif name in ("tostring", "itemset", "newbyteorder"):
            self.add(node, f".{name}()", advice_on_name(f"numpy.ndarray.{name}"))
        elif (
            name in python_compat.ASSERTIONS
            and not hasattr(python_compat.unittest.TestCase, name)
            or name in ("isAlive", "readfp")
        ):
            self.add(node, f".{name}()", PYTHON_COMPAT)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802
        """Check a name that Python 2 had by itself, or one that was imported."""
        if isinstance(node.ctx, ast.Load) and node.id in PYTHON_2_NAMES - self.defined:
            self.add(node, node.id, PYTHON_2)

    def visit_Expr(self, node: ast.Expr) -> None:  # noqa: N802
        """Find statements of Python 2 that Python 3 reads as expressions."""
        value = node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.RShift):
            value = value.left
        if isinstance(value, ast.Name) and value.id in ("print", "exec"):
            self.add(node, f"the statement {value.id}", PYTHON_2)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:  # noqa: N802
        """Find lists of slices, divisions, and indices of what is no list in Python 3."""
        index = node.slice
        named = isinstance(index, ast.Name) and index.id in self.slices
        if has_slices(index) or named:
            self.add(node, "a list of slices as an index", LISTS)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            name = node.value.func.id
            if name in LAZY - {"range"} - self.defined:
                self.add(node, f"an index of {name}()", f"Write list({name}(...)) in Python 3.")
        elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            name = node.value.func.attr
            if name in VIEWS and not node.value.args:
                self.add(node, f"an index of .{name}()", f"Write list(x.{name}()) in Python 3.")
        self.check_divisions(index)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        """Find parameters that are gone, divisions, and pickles that are opened as text."""
        path = self.path_of(node.func) or ""
        for keyword in node.keywords:
            if keyword.arg and (text := advice_on_parameter(path, keyword.arg)):
                self.add(keyword, f"{path}({keyword.arg}=)", text)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in SHAPED:
            for argument in node.args:
                self.check_divisions(argument)
        module = ast.unparse(node.func).rpartition(".")[0].lower()
        if called in ("load", "dump") and module.endswith("pickle"):
            for argument in node.args:
                if is_text_file(argument):
                    self.add(argument, f"{called} of a text file", BINARY)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:  # noqa: N802
        """Find settings of the GPU."""
        if isinstance(node.value, str) and is_gpu_setting(node.value):
            self.add(node, "a setting of the GPU", GPU)

    def check_divisions(self, node: ast.AST) -> None:
        """Report a division whose result is an index or a size, also by way of a name."""
        what, remedy = "a division where a whole number is needed", INTEGERS.partition("  ")[0]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            self.add(node, what, remedy)
        elif isinstance(node, ast.Name):
            for division in self.divided.get(node.id, ()):
                if (getattr(division, "lineno", 0), what, remedy) not in self.found:
                    self.add(division, what, remedy)
        elif isinstance(node, (ast.BinOp, ast.Tuple, ast.List, ast.Slice, ast.UnaryOp)):
            for child in ast.iter_child_nodes(node):
                self.check_divisions(child)

    # Tests

    def read_set_ups(self, body: list[ast.stmt]) -> None:
        """Report set-ups and tests that only nose runs."""
        names = {"setup", "setUp", "teardown", "tearDown", "setUpModule", "tearDownModule"}
        for node in body:
            if isinstance(node, ast.ClassDef):
                if not any("TestCase" in ast.unparse(base) for base in node.bases):
                    self.read_set_ups(node.body)
            elif isinstance(node, ast.FunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if node.name in names - {"setUpModule", "tearDownModule"}:
                    self.add(node, f"{node.name}()", NOSE)
                elif "with_setup" in decorators:
                    self.add(node, "with_setup", NOSE)
                elif node.name.startswith("test") and "fixture" not in decorators and yields(node):
                    self.add(node, f"{node.name} yields tests", YIELD)


def yields(node: ast.AST) -> bool:
    """Whether a function is a generator."""
    return any(isinstance(inner, ast.Yield) for inner in ast.walk(node))


def is_set(name: ast.Name) -> bool:
    """Whether a name gets a value here."""
    return isinstance(name.ctx, ast.Store)


def divided_names(scope: ast.AST) -> dict[str, list[ast.AST]]:
    """Return the names of a function whose values are all quotients, with their divisions.

    A name that also gets another value, such as ``n = int(n)``, is not one of them.
    """
    values: dict[str, list[ast.AST]] = {}
    stores: dict[str, int] = {}
    for node in inside(scope):
        if isinstance(node, ast.Name) and is_set(node):
            stores[node.id] = stores.get(node.id, 0) + 1
        for target, value in assignments(node):
            if not isinstance(target, ast.Name):
                continue
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
                stores[target.id], values[target.id] = 0, []  # whatever it was before
            values.setdefault(target.id, []).append(value)
    found: dict[str, list[ast.AST]] = {}
    for _ in values:  # a quotient may reach a name through all the others
        for name, given in values.items():
            each = [divisions(value, found) for value in given]
            if all(each) and len(each) == stores[name]:
                found[name] = [division for part in each for division in part]
    return found


def inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or a module, without the functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from inside(child)


def assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the targets of a statement and their values."""
    if isinstance(node, ast.AugAssign):
        yield node.target, ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value


def divisions(value: ast.AST, known: dict[str, list[ast.AST]]) -> list[ast.AST]:
    """Return the divisions that make a value no whole number."""
    if isinstance(value, ast.Name):
        return known.get(value.id, [])
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return [value]
    if isinstance(value, ast.BinOp) and not isinstance(value.op, ast.FloorDiv):
        return divisions(value.left, known) + divisions(value.right, known)
    return divisions(value.operand, known) if isinstance(value, ast.UnaryOp) else []


def is_module(name: str) -> bool:
    """Whether a top-level module is installed."""
    try:
        return name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def has_slices(node: ast.AST) -> bool:
    """Whether an expression is a list that holds slices."""
    if isinstance(node, ast.BinOp):
        return has_slices(node.left) or has_slices(node.right)
    if isinstance(node, ast.ListComp):
        return is_slice(node.elt)
    return isinstance(node, ast.List) and any(is_slice(element) for element in node.elts)


def is_slice(node: ast.AST) -> bool:
    """Whether an expression makes a slice."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "slice"


def is_text_file(node: ast.AST) -> bool:
    """Whether an expression opens a file, and not in binary mode."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "file")):
        return False
    modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
    return all(isinstance(mode, ast.Constant) and "b" not in str(mode.value) for mode in modes)


def is_gpu_setting(text: str) -> bool:
    """Whether a text has flags of Theano for a GPU."""
    return bool(
        re.search(r"device\s*=\s*(gpu|cuda|opencl)|lib\.cnmem|\bnvcc\.|\bdnn\.enabled", text)
    )


# -- files


def code_of_notebook(text: str) -> str:
    """Return the code of a notebook, a cell behind the other, without commands of IPython."""
    cells = json.loads(text).get("cells", [])
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^(\s*)[%!].*", r"\1pass", code, flags=re.MULTILINE)


def read_code(path: Path, name: str, local: set[str]) -> tuple[list[Trouble], set[str]]:
    """Return the troubles of a file of code, and the packages that it imports."""
    content = path.read_bytes()
    coding = re.search(rb"coding[:=]\s*([-\w.]+)", b"\n".join(content.splitlines()[:2]))
    text = content.decode(coding[1].decode() if coding else "utf-8", errors="replace")
    text = text.removeprefix("\ufeff")
    if path.suffix == ".ipynb":
        text = code_of_notebook(text)
    tree, errors = parse(text)
    reader = Reader(path, local)
    reader.read(tree)
    found = [
        *reader.found,
        *(
            (line, "syntax of Python 2", advice(error) or PYTHON_2)
            for line, error in errors.items()
        ),
    ]
    lines = [*text.splitlines(), ""]
    troubles = {
        Trouble(name, line, what, remedy, lines[min(line, len(lines)) - 1].strip())
        for line, what, remedy in found
    }
    return list(troubles), reader.imports


PICKLED = [
    (r"theano\.compile\.function_module (?!_?constructor_SymbolicOutput)\w*", FUNCTION_PICKLE),
    (r"theano\.scan_module\.scan_op", FUNCTION_PICKLE),
    (r"theano\.sandbox\.cuda|theano\.gpuarray|pygpu", GPU_PICKLE),
]
TEXTS_OF_PYTHON_2 = {"STRING", "BINSTRING", "SHORT_BINSTRING"}


def read_pickle(path: Path, name: str) -> Iterator[Trouble]:
    """Yield the troubles of a pickle, which is read and not loaded."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        content = file.read(LARGEST_PICKLE)
    names: set[str] = set()
    is_python_2, last = False, ["", ""]
    try:
        for operation, argument, _ in pickletools.genops(content):
            if operation.name == "GLOBAL":
                names.add(str(argument))
            elif operation.name == "STACK_GLOBAL":
                names.add(" ".join(last))
            elif isinstance(argument, str):
                last = [last[1], argument]
                is_python_2 |= operation.name in TEXTS_OF_PYTHON_2
    except ValueError:  # no pickle, or more than is read
        pass
    if is_python_2:
        yield Trouble(name, 0, "a pickle of Python 2", TEXT_PICKLE)
    for pattern, remedy in PICKLED:
        if kinds := sorted(text for text in names if re.match(pattern, text)):
            yield Trouble(name, 0, f"a pickle of {kinds[0].replace(' ', '.')}", remedy)


def read_settings(path: Path, name: str) -> Iterator[Trouble]:
    """Yield the lines of a script or a file of settings that are for a GPU."""
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        if is_gpu_setting(line):
            yield Trouble(name, number, "a setting of the GPU", GPU, line.strip())


# -- packages

# What to install for a module that old projects import, or None for a part of another package.
# These releases were run under Python 3.12.
PINS: dict[str, str | None] = {
    "OpenGL": "PyOpenGL",
    "PIL": "Pillow",
    "arviz": "arviz==0.12.1",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools<81",
    "h5py": "h5py",
    "joblib": "joblib",
    "matplotlib": "matplotlib<3.9",
    "mock": "mock",
    "mpl_toolkits": None,
    "nltk": "nltk",
    "nose": "nose==1.3.7",
    "numpy": None,
    "pandas": "pandas<2.3",
    "patsy": "patsy",
    "picklable_itertools": "picklable-itertools",
    "pkg_resources": "setuptools<81",
    "pylab": "matplotlib<3.9",
    "pytest": "pytest",
    "scipy": None,
    "seaborn": "seaborn",
    "setuptools": "setuptools<81",
    "six": "six",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tables": "tables",
    "theano": None,
    "theanoguard": None,
    "tqdm": "tqdm",
    "xarray": "xarray<2024.4",
    "yaml": "PyYAML",
}
# They depend on Theano, which cannot be installed, and need these packages.
ON_THEANO = {
    "blocks": (
        "git+https://github.com/mila-iqia/blocks@c69c2dc",
        "picklable-itertools progressbar2",
    ),
    "downhill": ("downhill==0.4.0", "click"),
    "fuel": ("git+https://github.com/mila-iqia/fuel@1d6292d", "picklable-itertools tables"),
    "keras": (
        "keras==2.3.1 keras-applications==1.0.8 keras-preprocessing==1.1.2",
        "h5py PyYAML six",
    ),
    "lasagne": ("git+https://github.com/Lasagne/Lasagne@5d3c63c", "setuptools<81"),
    "neupy": ("neupy==0.6.5", "tableprint progressbar2 graphviz matplotlib<3.9"),
    "nolearn": ("nolearn==0.6.1", "scikit-learn tabulate"),
    "pyfms": ("pyfms==0.4.0", ""),
    "pylearn2": ("git+https://github.com/lisa-lab/pylearn2@af81e5c", "PyYAML six"),
    "pymc3": (
        "pymc3==3.11.5",
        "arviz==0.12.1 xarray<2024.4 pandas<2.3 matplotlib<3.9 numpy<2.3 setuptools<81 cachetools<5"
        " deprecat dill fastprogress patsy semver typing_extensions",
    ),
    "theanets": ("theanets==0.7.3 downhill==0.4.0", "click"),
}


def requirements(imports: set[str]) -> str:
    """Return a requirements file for a project.

    What depends on Theano has to be installed after it, with the command in its last lines.

    Examples
    --------
    >>> from theanoguard.shim.project import requirements
    >>> print(requirements({"theano", "numpy", "lasagne", "yaml", "os"}))
    # for Python 3.11 or 3.12
    PyYAML
    numpy<2.5
    setuptools<81
    theanoguard
    # afterwards: pip install --no-deps git+https://...
    """
    wanted, behind, untried = {"theanoguard", "numpy<2.5"}, [], []
    for name in sorted(imports):
        if name in ON_THEANO:
            packages, needed = ON_THEANO[name]
            behind.append(packages)
            wanted |= {*needed.split()}
        elif name in PINS:
            wanted.add(PINS[name] or "theanoguard")
        elif name not in sys.stdlib_module_names and advice(no_module(name)) is None:
            untried.append(name)
    if "numpy<2.3" in wanted:
        wanted.remove("numpy<2.5")
    lines = ["# for Python 3.11 or 3.12", *sorted(wanted)]
    if untried:
        lines.append(f"# imported as well, not tried: {', '.join(untried)}")
    if behind:
        lines.append(f"# afterwards: pip install --no-deps {' '.join(behind)}")
    return "\n".join(lines)


def no_module(name: str) -> ModuleNotFoundError:
    """Return the error of importing a module that does not exist."""
    return ModuleNotFoundError(f"No module named {name!r}")


# -- the project


@dataclass(frozen=True)
class Project:
    """What was found in a project.

    Parameters
    ----------
    files : int
        How many files of code were read.
    troubles : list of Trouble
        By file and line.
    imports : set of str
        The packages that it imports and that are not its own.
    """

    files: int
    troubles: list[Trouble]
    imports: set[str]

    @property
    def options(self) -> list[str]:
        """The options of ``theanoguard run`` that it needs."""
        return sorted({trouble.option for trouble in self.troubles if trouble.option})


def files_below(folder: Path) -> list[Path]:
    """Return the files of a folder, without those of tools and environments."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not SKIPPED & {*path.relative_to(folder).parts}
    )


def own_modules(root: Path, files: list[Path]) -> set[str]:
    """Return the top-level modules of a project: in its root, or beside its packages."""
    own = {path.stem for path in files if path.suffix == ".py" and path.parent == root}
    for path in files:
        if path.name == "__init__.py" and not (path.parent.parent / "__init__.py").exists():
            own.add(path.parent.name)
        elif path.suffix == ".py" and not (path.parent / "__init__.py").exists():
            own.add(path.stem)
    return own


def read_project(place: str | Path) -> Project:
    """Read a project, a file or a folder, and list what will not work.

    Nothing of it is run.  The shim must be installed, so that names of Theano can be looked up.

    Parameters
    ----------
    place : path-like

    Returns
    -------
    Project

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    """
    place = Path(place)
    if not place.exists():
        raise FileNotFoundError(2, "No such file or directory", str(place))
    root = place if place.is_dir() else place.parent
    files = files_below(place) if place.is_dir() else [place]
    local = (
        own_modules(root, files) if place.is_dir() else {path.stem for path in root.glob("*.py")}
    )
    troubles, imports, codes = [], set(), 0
    for path in files:
        name = str(path.relative_to(root))
        if path.suffix in (".py", ".ipynb") or path == place:
            found, imported = read_code(path, name, local)
            troubles += found
            imports |= imported
            codes += 1
        elif re.search(r"\.(pkl|pickle|p|save)(\.gz)?$", path.name):
            troubles += read_pickle(path, name)
        elif path.suffix in (".sh", ".bash", ".cfg", ".theanorc") or path.name in (
            ".theanorc",
            "Dockerfile",
            "Makefile",
        ):
            troubles += read_settings(path, name)
    return Project(codes, sorted(troubles, key=lambda t: (t.file, t.line, t.what)), imports)
