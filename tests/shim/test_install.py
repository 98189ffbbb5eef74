"""Putting the shim in place and taking it away: what is there meanwhile, and what is left."""

import ast
import base64
import doctest
import importlib
import json
import os
import pickle
import subprocess
import sys
import unittest
import zlib
from pathlib import Path

import numpy as np
import pytensor
import pytest
import shim_pickles

import theanoguard

PICKLES = json.loads(Path(shim_pickles.__file__).with_suffix(".json").read_text(encoding="utf-8"))


def run_python(code, *, check=True, **environment):
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=check, env={**os.environ, **environment}
    )


def test_import_after_installing(shim):
    import theano
    import theano.tensor as T
    from theano.tensor.nnet import conv  # noqa: F401

    assert theano is shim
    assert theano.__version__.startswith("1.0.5")
    assert T.matrix().type.__module__
    assert theanoguard.shim.install_theano() is theano


def test_uninstalling_restores_everything():
    """Every variable of the configuration, every attribute of the classes, and the modules."""
    code = """
import json, sys
import pytensor, pytensor.tensor as pt, theanoguard
import numpy as np
from pytensor.compile.mode import predefined_modes, predefined_linkers, optdb
from pytensor.compile.maker import FunctionMaker, Function
from pytensor.graph.basic import Variable, Apply, Constant
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable, TensorConstant, _tensor_py_operators
import pytensor.compile.debug.debugmode, pytensor.scan, pytensor.sparse
from theanoguard import GuardMode  # which gives PyTensor the name of the mode

def state():
    found = {}
    for name, param in pytensor.config._config_var_dict.items():
        found[name] = str(getattr(pytensor.config, name))
    for owner in [FunctionMaker, Function, Variable, Apply, Constant, Op, TensorType,
                  TensorVariable, TensorConstant, _tensor_py_operators]:
        for name, value in vars(owner).items():
            if not name.startswith("_abc"):
                found[owner.__name__ + "." + name] = id(value)
    found["modes"] = sorted(predefined_modes)
    found["linkers"] = sorted(predefined_linkers, key=str)
    found["errors"] = np.geterr()
    # (other packages put finders there while they are imported)
    found["finders"] = sum("theanoguard" in type(f).__module__ for f in sys.meta_path)
    return found

before = state()
theanoguard.shim.install_theano()
during = state()
theanoguard.shim.uninstall_theano()
after = state()
names = before.keys() | after.keys()
print(json.dumps({
    "changed": sorted(name for name in names if before.get(name) != after.get(name)),
    "did something": during != before,
    "modules": [name for name in sys.modules if name.split(".")[0] == "theano"],
}))
theanoguard.shim.install_theano()
import theano
print(json.dumps(theano.function([], theano.tensor.ones(1).sum())().tolist()))
"""
    first, again = run_python(code).stdout.splitlines()
    assert json.loads(first) == {"changed": [], "did something": True, "modules": []}
    assert json.loads(again) == 1.0


def test_installs_after_rewrites_were_excluded_by_name():
    """PyTensor keeps an empty entry for each name that a mode excludes."""
    code = """
from pytensor.compile.mode import get_mode, optdb
import theanoguard
phases = ("canonicalize", "stabilize", "specialize")
names = {name for phase in phases for name in optdb[phase]._names}
optdb.query(get_mode("FAST_RUN").excluding(*names).provided_optimizer)
theanoguard.shim.install_theano()
"""
    run_python(code)


def test_refuses_another_theano(tmp_path):
    package = tmp_path / "theano"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '1.1.2'\n")
    code = "import theano, theanoguard; theanoguard.shim.install_theano()"
    done = run_python(code, check=False, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    message = done.stderr.splitlines()[-2]
    assert message.startswith("ImportError: theano is already imported, from ")
    assert "theano/__init__.py" in message


@pytest.mark.on_33
def test_installing_goes_before_a_theano_that_is_installed(tmp_path):
    (tmp_path / "theano.py").write_text("raise SystemExit('the other one')\n")
    code = "import theanoguard.shim.auto, theano; print(theano.__version__)"
    done = run_python(code, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith("1.0.5")


def test_functions_compile_through_the_c_backend(shim, has_cxx):
    x = shim.tensor.dvector("x")
    linker = shim.function([x], x * 2).maker.linker
    assert type(linker).__name__ == "VMLinker"
    assert linker.use_cloop == has_cxx


def test_linker_that_is_asked_for_stays():
    code = (
        "import pytensor, theanoguard.shim; theanoguard.shim.install_theano();"
        " print(pytensor.config.linker)"
    )
    assert run_python(code, PYTENSOR_FLAGS="linker=py").stdout == "py\n"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("theano.tensor.type", "TensorType"),
        ("theano.compile.sharedvalue", "SharedVariable"),
        ("theano.tensor.sharedvar", "TensorSharedVariable"),
        ("theano.gof.graph", "Apply"),
        ("theano.gof.graph", "Variable"),
        ("theano.compile.function_module", "_constructor_Function"),
        ("theano.scalar.basic", "Add"),
        ("theano.tensor.elemwise", "Elemwise"),
        ("theano.misc.pkl_utils", "dump"),
        ("theano.gof.utils", "scratchpad"),
        ("theano.gof.link", "Container"),
    ],
)
def test_pickles_find_what_they_name(shim, module, name):
    pickled = f"c{module}\n{name}\n.".encode()
    assert pickle.loads(pickled) is getattr(importlib.import_module(module), name)


def test_shared_variable_through_a_pickle(shim):
    shared = shim.shared(np.array([[1.0, 2.0]]), name="w")
    again = pickle.loads(pickle.dumps(shared))
    assert again.name == "w"
    assert again.get_value().tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("name", PICKLES)
def test_graphs_in_pickles_of_theano_s(shim, name):
    case = PICKLES[name]
    inputs, outputs = pickle.loads(zlib.decompress(base64.b64decode(case["pickle"])))
    # (Some take one of the two only.)
    f = shim.function(inputs, outputs, on_unused_input="ignore", mode="FAST_COMPILE")
    np.testing.assert_allclose(f(shim_pickles.X, shim_pickles.ROWS), case["value"], rtol=1e-12)


@pytest.mark.parametrize("name", shim_pickles.CASES)
def test_graphs_in_pickles_of_our_own(shim, name):
    x, rows = shim.tensor.dmatrix("x"), shim.tensor.lvector("rows")
    graph = shim_pickles.CASES[name](shim.tensor, x, rows)
    inputs, outputs = pickle.loads(pickle.dumps(([x, rows], graph)))
    f = shim.function(inputs, outputs, on_unused_input="ignore", mode="FAST_COMPILE")
    expected = PICKLES[name]["value"]
    np.testing.assert_allclose(f(shim_pickles.X, shim_pickles.ROWS), expected, rtol=1e-7)


def test_what_is_a_tensor_variable(shim):
    """A shared variable and a constant are none, as legacy code expects."""
    kind = shim.tensor.TensorVariable
    x = shim.tensor.matrix()
    assert isinstance(x, kind) and isinstance(x * 2, kind) and isinstance(kind(x.type), kind)
    assert not isinstance(shim.shared(np.ones((1, 2))), kind)
    assert not isinstance(shim.tensor.constant(1.0), kind)


def test_questions_about_gpus(shim):
    import theano.gpuarray
    import theano.sandbox.cuda
    from theano.gpuarray.basic_ops import GpuContiguous, gpu_contiguous
    from theano.gpuarray.type import GpuArrayVariable, list_contexts
    from theano.sandbox.cuda import dnn

    assert theano.sandbox.cuda.cuda_enabled is False
    assert theano.sandbox.cuda.cuda_available is False
    assert dnn.dnn_available() is False
    assert "GPU" in dnn.dnn_available.msg
    assert theano.gpuarray.pygpu_activated is False
    assert theano.gpuarray.dnn.dnn_present() is False
    assert list(list_contexts()) == []
    x = shim.tensor.vector()
    assert not isinstance(x, GpuArrayVariable)
    for apply in (gpu_contiguous, GpuContiguous()):
        with pytest.raises(ValueError, match="Could not infer context"):
            apply(x)
    with pytest.raises(ValueError, match="not defined"):
        theano.gpuarray.get_context(None)


@pytest.mark.parametrize("kind", [ImportError, "SkipTest"])
@pytest.mark.parametrize(
    "statement",
    [
        "import theano.sandbox.cuda.blas",
        "from theano.sandbox.cuda.basic_ops import gpu_contiguous",
        "from theano.sandbox.cuda import CudaNdarrayType",
        "from theano.sandbox.cuda.dnn import dnn_conv",
    ],
)
def test_import_for_a_gpu(shim, statement, kind):
    with pytest.raises(unittest.SkipTest if kind == "SkipTest" else kind) as caught:
        exec(statement, {})
    missing = statement.split()[1] if statement.startswith("from") else "theano.sandbox.cuda.blas"
    first, use = str(caught.value).splitlines()
    assert missing in first
    assert "theano.tensor" in use


def test_attribute_that_is_missing(shim):
    with pytest.raises(AttributeError, match="theano.sandbox.cuda.mem_info does not exist"):
        shim.sandbox.cuda.mem_info  # noqa: B018
    assert not hasattr(shim.sandbox.cuda, "mem_info")


def test_import_again(shim, monkeypatch):
    """Old tests remove ``theano`` from `sys.modules`, to see who imports it."""
    monkeypatch.delitem(sys.modules, "theano")
    again = importlib.import_module("theano")
    assert again is not shim
    x = again.tensor.vector("x")
    assert again.function([x], again.tensor.sum(x), mode="FAST_COMPILE")([1.0, 2.0]) == 3


def test_module_that_went_before_1_0_5(shim):
    with pytest.raises(ModuleNotFoundError, match="Use the package six"):
        importlib.import_module("theano.compat.six")
    with pytest.raises(ModuleNotFoundError, match="No module named 'theano.nonsense'"):
        importlib.import_module("theano.nonsense")


def test_pytensor_is_itself_again():
    """After the other tests of this session have taken the shim away."""
    if not theanoguard.shim.install.is_installed():
        assert not any(name.split(".")[0] == "theano" for name in sys.modules)
        x = pytensor.tensor.vector("x")
        with pytest.raises(TypeError):
            bool(x)


def modules_with_examples():
    tree = theanoguard.shim.install.TREE
    for path in sorted(tree.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(tree.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples(name):
    """The examples in the docstrings of the shim, which are not collected: it is not installed."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    theanoguard.shim.install_theano()
    try:  # examples end with uninstalling
        results = doctest.testmod(importlib.import_module(name), optionflags=flags)
    finally:
        theanoguard.shim.uninstall_theano()
    assert results.attempted and not results.failed


def test_patches_import_patches_before_them_only():
    """A module takes hold of a method when it is imported, after those before it are applied."""
    folder = Path(theanoguard.shim.__file__).parent / "theano" / "_patches"
    for module in sorted(folder.glob("[!_]*.py")):
        nodes = ast.walk(ast.parse(module.read_text("utf-8")))
        imported = [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.level == 1]
        # `withheld` has rewrites only, which are looked up when they are applied.
        late = [name for name in filter(None, imported) if name > module.stem]
        assert set(late) <= {"withheld"}, module.name
