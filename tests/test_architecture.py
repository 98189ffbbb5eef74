"""The shape of the package: who may import whom, and that importing it changes nothing."""

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import is_dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import get_type_hints

import pytest

import theanoguard
from theanoguard._backends import backends
from theanoguard.explain import Explanation
from theanoguard.explain.advice.remedies import try_remedies
from theanoguard.explain.explanation import STEPS

PACKAGE = Path(theanoguard.__file__).parent

# From the top down.  A room imports from its own layer and from those below it.
# "theanoguard" stands for ``theanoguard/__init__.py``, which collects the public names.
LAYERS = [
    {"__main__", "_pytest", "cli", "shim.auto", "shim.pytest_plugin", "shim.theano"},
    {"theanoguard"},
    {"records"},
    {"notebook"},
    {"view.inspecting"},
    {"pymc"},
    {"guard.every_function"},
    {"_precision"},
    {"_compare", "_lint", "monitor", "ops.numba", "stable", "training"},
    {"guard"},
    {"log"},
    {"explain"},
    {"explain.advice"},
    {
        "stable.egraph",
        "stable.forms",
        "stable.identities",
        "stable.improving",
        "stable.operations",
        "stable.patterns",
        "stable.terms",
    },
    {"explain.text"},
    {"explain.facts"},
    {
        "_evaluate",
        "_exact",
        "_graph",
        "_naming",
        "_provenance",
        "explain.repro",
        "ops",
        "testvalue",
        "view",
    },
    {"_environment", "_event", "_json", "operations", "shim"},
    {"_pytensor"},
    {"_collecting", "_errors", "_faults", "_files", "_hooks", "_patching", "_values"},
    {
        "_arguments",
        "_backends",
        "_context",
        "_progress",
        "_releases",
        "_shown",
        "_steps",
        "_text",
        "_traversal",
    },
]
# Numba is among what PyTensor itself requires.
DEPENDENCIES = {
    "pytensor",
    "numpy",
    "scipy",
    "numba",
    "filelock",
    "lazy_loader",
    "executing",
    "flint",
}
# Imported inside a function, where they are used: the package works without them.
OPTIONAL = {
    "IPython",
    "anywidget",
    "ipywidgets",
    "matplotlib",
    "mpi4py",
    "parameterized",
    "pydot",
    "pymc",
    "traitlets",
    *(backend.package for backend in backends().values() if backend.package),
}
# Modules that cost time or memory, and that few programs need.
SLOW = {"executing", "importlib", "multiprocessing", "pdb"}
# Functions that import the module of a name.
BY_NAME = ("import_module", "__import__")
# Such a module itself is imported where it is used.
ON_DEMAND = {
    "theanoguard._pytest": {"pytest"},
    "theanoguard.monitor.screen": {"rich", "textual"},
    "theanoguard.shim.nose_fixtures": {"pytest"},
    "theanoguard.shim.pytest_plugin": {"pytest"},
    "theanoguard.view.figure": {"matplotlib"},
    "theanoguard.guard.numba.code": {"llvmlite"},  # which comes with Numba
    "theanoguard.guard.numba.flags": {"llvmlite"},
    **{
        f"theanoguard.guard.{name}.{module}": {backend.package}
        for name, backend in backends().items()
        if backend.package not in DEPENDENCIES
        for module in ("code", "devices")
    },
}

# These import parts of the package inside a function: they must start without PyTensor, Textual, or
# the package of a backend; or few reports need a part that takes long to import.
MAY_WAIT = {
    "theanoguard._pytest": {"theanoguard"},
    "theanoguard.cli.main": {"theanoguard"},
    **{f"theanoguard.guard.{name}.linker": {"theanoguard"} for name in backends()},
    "theanoguard.explain.advice.candidates": {"theanoguard"},
    "theanoguard.explain.advice.ranges": {"scipy"},
    "theanoguard.log.trackers": {"mlflow", "tensorboardX"},
    "theanoguard.monitor.prompt": {"theanoguard"},
    "theanoguard.pymc.with_nutpie": {"pyarrow"},  # which comes with nutpie
    "theanoguard.training.watch": {"theanoguard"},
}

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room(module):
    """The longest name of a layer that `module` belongs to; its folder where there is none."""
    name = module.partition(".")[2] or module
    while name not in LEVEL and "." in name:
        name = name.rpartition(".")[0]
    return name


def imported_modules(node, module):
    """The modules that one import statement of `module` asks for."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        is_package = MODULES[module].name == "__init__.py"
        parents = module.split(".")
        parents = parents[: len(parents) - node.level + is_package]
        base = ".".join([*parents, base] if base else parents)
    names = {f"{base}.{alias.name}" for alias in node.names}
    submodules = names & MODULES.keys()
    return submodules | ({base} if names - submodules else set())


@cache
def imports_of(module):
    """Pairs of an imported module and whether the import stands inside a function.

    Modules of the package that a function of `BY_NAME` loads on demand count as imported.
    """

    def walk(node, inside):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((name, inside) for name in imported_modules(node, module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in BY_NAME:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            if name.split(".")[0] == "theanoguard":
                yield name, False
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return set(walk(ast.parse(MODULES[module].read_text(encoding="utf-8")), False))


def own_imports(module):
    return {name for name, _ in imports_of(module) if name.split(".")[0] == "theanoguard"}


def test_every_room_has_its_layer():
    rooms = {room(module) for module in MODULES}
    assert rooms <= LEVEL.keys(), f"no layer in the table for {sorted(rooms - LEVEL.keys())}"
    assert LEVEL.keys() <= rooms, f"in the table, but no module: {sorted(LEVEL.keys() - rooms)}"


@pytest.mark.on_33
def test_imports_run_downwards():
    upwards = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in own_imports(module) & MODULES.keys()
        if LEVEL[room(imported)] < LEVEL[room(module)]
    ]
    assert not upwards


def test_what_is_imported_exists():
    missing = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in own_imports(module)
        if imported not in MODULES
    ]
    assert not missing


@pytest.mark.on_33
def test_folders_agree_with_layers():
    """No two folders import each other, apart from the top one and from Theano's own layout."""
    pairs = {
        (MODULES[module].parent, MODULES[imported].parent)
        for module in MODULES
        for imported in own_imports(module) & MODULES.keys()
    }
    shim = PACKAGE / "shim"
    both = {
        (str(a.relative_to(PACKAGE)), str(b.relative_to(PACKAGE)))
        for a, b in pairs
        if (b, a) in pairs and a < b and a != PACKAGE and not b.is_relative_to(shim)
    }
    assert both == set()


@pytest.mark.on_33
def test_no_import_circle():
    order = TopologicalSorter({module: own_imports(module) - {module} for module in MODULES})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.on_33
def test_third_party_imports():
    """Dependencies at the top of a module, optional ones inside the function that needs them."""
    allowed_at_top = DEPENDENCIES | sys.stdlib_module_names | {"theanoguard"}
    wrong = [
        f"{module} imports {imported} {'inside a function' if inside else 'at its top'}"
        for module in MODULES
        for imported, inside in imports_of(module)
        if imported.split(".")[0]
        not in (
            OPTIONAL | SLOW | MAY_WAIT.get(module, set())
            if inside
            else allowed_at_top | ON_DEMAND.get(module, set())
        )
    ]
    assert not wrong


# Run by an interpreter of its own.  Takes the state of every PyTensor module that theanoguard
# loads (names, members of classes, members of objects, contents of containers), imports
# theanoguard, and prints what is not as it was.  Objects are kept alive, so ids stay theirs.
FIND_CHANGES = """
import importlib, json, sys
from collections.abc import Mapping

for name in json.loads(sys.argv[1]):
    importlib.import_module(name)

def is_ours(value):
    origin = value.__module__ if isinstance(value, type) else type(value).__module__
    return str(origin).split(".")[0] == "pytensor"

def contents(value):
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return dict(enumerate(value)) if isinstance(value, (list, tuple)) else {v: v for v in value}
    return None

def state():
    found = {}
    def add(path, members, deeper):
        for key, value in list(members.items()):
            found[f"{path}.{key}"] = value
            if deeper and not str(key).startswith("__"):
                inner = contents(value)
                if inner is None and (is_ours(value) or hasattr(value, "registry")):
                    inner = getattr(value, "__dict__", None)
                if inner is not None:
                    add(f"{path}.{key}", inner, deeper - 1)
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] == "pytensor":
            members = {
                key: value for key, value in vars(module).items()
                if not hasattr(value, "__spec__") and not key.startswith("__")
            }
            add(name, members, 2)
    return found

before = state()
if len(sys.argv) > 2:
    exec(sys.argv[2])
import theanoguard
after = state()
changed = []
for key in sorted(before.keys() | after.keys()):
    same = key in before and key in after and before[key] is after[key]
    if not same and not any(key.startswith(f"{above}.") for above in changed):
        changed.append(key)
print(json.dumps(changed))
"""


def run_python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def loaded_modules():
    code = "import json, sys, theanoguard; print(json.dumps(sorted(sys.modules)))"
    modules = [name for name in run_python(code) if name.split(".")[0] == "pytensor"]
    return json.dumps(["pytensor", *modules])


# Loaded when there is something for them to do, so that a program under a guard starts fast.
ON_USE = {
    "IPython",
    "executing",
    "flint",
    "jax",
    "matplotlib",
    "theanoguard._compare",
    "theanoguard._exact",
    "theanoguard._lint",
    "theanoguard._evaluate.culprit",
    "theanoguard.explain.explanation",
    "theanoguard.explain.advice.remedies",
    "theanoguard.explain.text.report",
    *(backend.guarded_linker.split(":")[0] for name, backend in backends().items() if name != "c"),
    "theanoguard.monitor",
    "theanoguard.pymc",
    "theanoguard.shim",
    "theanoguard.stable.rewriting",
    "theanoguard.training",
    "theanoguard.view",
}


def test_a_mode_loads_what_it_needs_and_no_more():
    code = """if True:
        import json, sys
        from theanoguard import GuardMode
        print(json.dumps(sorted(sys.modules)))
    """
    assert ON_USE.isdisjoint(run_python(code))


# The methods that the recording hooks replace.
HOOKS = (
    *(".simple_extract_stack", "._vectorize_node", ".clone_with_new_inputs"),
    *("._freeze", ".bind", ".unfreeze", "._add_note_to_invalid_argument_exception"),
    *(".EquilibriumGraphRewriter.apply", ".eq_rewriter_class.apply"),
    *(".MissingInputError.__init__", ".UnusedInputError.__init__"),
    *(".DisconnectedInputError.__init__", ".NullTypeGradError.__init__"),
)


def is_registration(name):
    """The mode's name, in either case; an entry of ours among the rewrites or in a dispatcher."""
    return (
        name.endswith(HOOKS)
        or name.lower().endswith(".predefined_modes.guardmode")
        or ".optdb._names.theanoguard_" in name
        or ".registry.<class 'theanoguard." in name
    )


def test_import_leaves_pytensor_alone(loaded_modules):
    changed = run_python(FIND_CHANGES, loaded_modules)
    assert [name for name in changed if not is_registration(name)] == []


PATCHES = {
    "pytensor.function": "import pytensor; pytensor.function = print",
    "pytensor.link.vm.VMLinker.make_vm": (
        "from pytensor.link.vm import VMLinker; VMLinker.make_vm = None"
    ),
    "pytensor.compile.mode.optdb.new": "from pytensor.compile.mode import optdb; optdb.new = 1",
}


def test_a_patch_would_be_noticed(loaded_modules):
    changed = run_python(FIND_CHANGES, loaded_modules, "; ".join(PATCHES.values()))
    assert set(changed) >= set(PATCHES)
    # (one object can be reached by several names)
    same = tuple(f".{name.rpartition('.')[2]}" for name in PATCHES)
    assert [n for n in changed if not n.endswith(same) and not is_registration(n)] == []


def test_each_step_of_an_explanation_takes_what_the_one_before_returns():
    returned = None
    for step in STEPS:
        types = get_type_hints(step)
        [taken] = [types[name] for name in inspect.signature(step).parameters]
        assert is_dataclass(taken) and returned in (None, taken), step.__name__
        returned = types["return"]
    assert returned is Explanation
    assert list(inspect.signature(try_remedies).parameters) == ["facts"]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("theanoguard.explain")])
def test_nothing_goes_along_beside_what_a_step_hands_on(module):
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            names = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
            assert not names >= {"trip", "mask"}, node.name
            assert not (names & {"case", "found", "facts", "advice"} and names & {"trip", "mask"})


# Methods of strings that read or change a part of a text.
CUTTING = {"partition", "rpartition", "split", "rsplit", "replace", "removeprefix", "removesuffix"}
# What holds sentences of advice; in the module of the hints, any text does.
SENTENCES = {"advice", "fact", "origin", "remedy", "hint", "sentence", "sentences"}
# They may still cut sentences; the list may only become shorter.
CUT_SENTENCES = {
    "theanoguard.explain.advice.hints": "puts the user's names and module into the advice of a row",
    "theanoguard.explain.advice.sentences": "fills the templates of a change",
    "theanoguard.explain.advice.written": "writes advice in the dialect of a program of Theano",
}


def cuts_sentences(call, words):
    """Whether a call takes a sentence apart, or changes a part of it, by its text."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    holder = call.func.value
    is_pattern = isinstance(holder, ast.Name) and (holder.id == "re" or holder.id.isupper())
    if not is_pattern and call.func.attr not in CUTTING:
        return False
    nodes = [n for part in ([] if is_pattern else [holder]) + call.args for n in ast.walk(part)]
    named = {getattr(node, "attr", getattr(node, "id", None)) for node in nodes}
    return bool(named & words)


def test_facts_are_not_read_out_of_sentences():
    """Advice is data until it is written, so no module looks for a fact in its text."""
    rooms = ("explain", "pymc", "_lint", "view")
    found = set()
    for module, path in MODULES.items():
        if module.split(".")[1:2] and module.split(".")[1] in rooms and ".text" not in module:
            words = SENTENCES | ({"text"} if module.endswith(".hints") else set())
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(cuts_sentences(node, words) for node in ast.walk(tree)):
                found.add(module)
    assert found == {*CUT_SENTENCES}


@pytest.mark.parametrize(
    ("code", "cuts"),
    [
        ("hint.advice.partition('. ')", True),
        ("re.sub('a', 'b', remedy)", True),
        ("A_NAME.search(cause.hint.fact)", True),
        ("text.split()", False),
        ("replace(hint, fact='')", False),
    ],
)
def test_what_cuts_a_sentence(code, cuts):
    assert cuts_sentences(ast.parse(code, mode="eval").body, SENTENCES) == cuts


def test_names_of_test_files_are_unique():
    """The folders of tests are no packages, so pytest takes a file for another of its name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
