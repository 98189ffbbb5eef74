"""``theanoguard doctor PROJECT``: what it lists of an old program, and what it leaves alone."""

import gzip
import json
import pickle

import pytest

import theanoguard
from theanoguard.cli.main import main
from theanoguard.shim import project


@pytest.fixture(scope="module", autouse=True)
def shim():
    theanoguard.shim.install_theano()
    yield
    theanoguard.shim.uninstall_theano()


def troubles_of(tmp_path, source, name="train.py"):
    (tmp_path / name).write_text(source)
    return project.read_project(tmp_path).troubles


# A program, the name of the trouble in its last line but for blank ones, and words of the remedy.
REPORTED = [
    ('print "x"', "syntax of Python 2", "2to3"),
    ("try:\n    pass\nexcept ValueError, error:\n    pass", "syntax of Python 2", "2to3"),
    ("x = 0777L", "syntax of Python 2", "2to3"),
    ("raise ValueError, 'x'", "syntax of Python 2", "2to3"),
    ("import sys\nprint >>sys.stderr, 'x'", "the statement print", "2to3"),
    ("print", "the statement print", "2to3"),
    ("for i in xrange(3): pass", "xrange", "2to3"),
    ("import cPickle", "import cPickle", "2to3"),
    ("from itertools import izip", "itertools.izip", "2to3"),
    ("import string\nstring.letters", "string.letters", "2to3"),
    ("{}.iteritems()", ".iteritems()", "2to3"),
    ("zip([1], [2])[0]", "an index of zip()", "list(zip(...))"),
    ("{}.keys()[0]", "an index of .keys()", "list(x.keys())"),
    ("from collections import Iterable", "collections.Iterable", "--python-compat"),
    ("from _ast import Num", "_ast.Num", "--python-compat"),
    ("import inspect\ninspect.getargspec(len)", "inspect.getargspec", "--python-compat"),
    ("import numpy as np\nx = np.int", "numpy.int", "Write int, or run it with --numpy-compat"),
    ("from numpy import asscalar", "numpy.asscalar", "Write x.item(), or"),
    ("import numpy\nnumpy.npv(0, [])", "numpy.npv", "numpy_financial"),
    ("import numpy.linalg.linalg as lin", "numpy.linalg.linalg", "--numpy-compat"),
    ("from scipy.misc import logsumexp", "scipy.misc.logsumexp", "scipy.special.logsumexp"),
    ("from scipy.misc import imread", "scipy.misc.imread", "imageio"),
    (
        "from numpy import histogram\nhistogram([1], normed=True)",
        "numpy.histogram(normed=)",
        "dens",
    ),
    (
        "import scipy.optimize as o\no.fmin_l_bfgs_b(abs, 0, disp=0)",
        "scipy.optimize.fmin_l_bfgs_b(disp=)",
        "Leave disp= out, or run it with --numpy-compat",
    ),
    ("import scipy as sp\nsp.randn(3)", "scipy.randn", "documentation"),
    ("x = y = None\ny.tostring()", ".tostring()", "tobytes"),
    ("from sklearn.cross_validation import KFold", "import sklearn.cross_validation", "model_sel"),
    ("from theano.sandbox.cuda.dnn import dnn_conv", "theano.sandbox.cuda.dnn.dnn_conv", "conv2d"),
    (
        "import theano.tensor as T\nT.no_such_name",
        "theano.tensor.no_such_name",
        "The shim does not",
    ),
    (
        "from theano.compat.python2x import OrderedDict",
        "theano.compat.python2x.OrderedDict",
        "collections.OrderedDict",
    ),
    ("import os\nos.environ['THEANO_FLAGS'] = 'device=gpu0'", "a setting of the GPU", "CPU"),
    ("x = []\nx[[slice(None), 1]]", "a list of slices as an index", "tuple(index)"),
    ("x = []\ni = [slice(None)] * 2\nx[i]", "a list of slices as an index", "tuple(index)"),
    ("x, n = [], 4\nx[: n / 2]", "a division where a whole number is needed", "//"),
    ("n = 4\nrange(n / 2)", "a division where a whole number is needed", "//"),
    ("import pickle\npickle.load(open('x'))", "load of a text file", "binary"),
    ("import aesara.tensor as at", "aesara.tensor", "pytensor"),
]


@pytest.mark.parametrize(("source", "what", "words"), REPORTED)
def test_reported(source, what, words, tmp_path):
    [trouble] = troubles_of(tmp_path, source)
    assert (trouble.file, trouble.what) == ("train.py", what)
    assert words in trouble.remedy
    last = source.splitlines()[trouble.line - 1]
    assert trouble.source == last.strip()
    assert trouble.line == (3 if "except" in source else len(source.splitlines()))


DIVISION = "a division where a whole number is needed"
# How a whole number is used, and how a quotient reaches a name.
USES = ["range({})", "x[{}]", "x[:{} + 1]", "x[{} - 1, 0]", "np.zeros((2, {}))", "x.reshape({}, 2)"]
BY_A_NAME = [
    "n = (len(x) - 1) / k + 1  # here",
    "n = -(k / 2)  # here",
    "n, m = k / 2, 3  # here",
    "n = k\n    n /= 2  # here",
    "m = k / 2  # here\n    n = m * 3",
]
CONVERTED = [
    "n = int(k / 2)",
    "n = k // 2",
    "n = k / 2\n    n = int(n)",
    "m = k / 2\n    n = int(m)",
    "n = k\n    f = lambda: k / 2",
    "m = k / 2\n    n = 3",
    "for n in x: m = n / 2",
]
FUNCTION = "import numpy as np\ndef f(x, k):\n    {}\n    return {}"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("quotient", BY_A_NAME)
def test_division_reaches_a_whole_number_by_a_name(quotient, use, tmp_path):
    source = FUNCTION.format(quotient, use.format("n"))
    [trouble] = troubles_of(tmp_path, source)
    assert trouble.what == DIVISION
    assert "# here" in trouble.source


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("quotient", CONVERTED)
def test_whole_numbers_are_left_alone(quotient, use, tmp_path):
    assert troubles_of(tmp_path, FUNCTION.format(quotient, use.format("n"))) == []


LEFT_ALONE = [
    "try:\n    import cPickle\nexcept ImportError:\n    import pickle",
    "import sys\nif sys.version_info[0] < 3:\n    range = xrange",
    "def reduce(f, x): pass\nreduce(1, 2)",
    "import numpy as np\nx = np.bool, np.sum, np.random.rand, np.linalg.norm",
    "import theano.tensor as T\nT.nnet.softmax, T.dvector, T.signal",
    "import theano.sandbox.cuda",
    "from theano.sandbox.cuda.dnn import dnn_available",
    "import pickle\npickle.load(open('x', 'rb'))",
    "x, i = [], (slice(None), 1)\nx[i]",
    "x, n = [], 4\nx[int(n / 2)]",
    "import xml.etree.ElementTree as ET\nET.tostring(1)",
    "from six.moves import range",
    "import lasagne, yaml, h5py",
    "import os.path, urllib.request, importlib.util\nos.path.join",
]


@pytest.mark.parametrize("source", LEFT_ALONE)
def test_left_alone(source, tmp_path):
    assert troubles_of(tmp_path, source) == []


NOSE = """
from nose.tools import with_setup
def setup(): pass
@with_setup(setup)
def test_it(): pass
def test_more():
    yield print, 1
class TestThem:
    def setUp(self): pass
"""


def test_nose(tmp_path):
    found = troubles_of(tmp_path, NOSE, "test_all.py")
    assert [(t.line, t.what) for t in found] == [
        (3, "setup()"),
        (5, "with_setup"),
        (6, "test_more yields tests"),
        (9, "setUp()"),
    ]
    assert [t.is_harmless for t in found] == [True, True, False, True]
    assert "nose==1.3.7" in project.requirements(project.read_project(tmp_path).imports)


def test_all_lines_of_python_2_are_found(tmp_path):
    source = (
        'if 1:\n\tprint "a"\n        print "b", (\n1,\n2)\n\timport numpy as np\n'
        '\tprint """c\nd"""\n'
        "x = np.int\ny = `x`\ndef f(a, (b, c)):\n    return b <> c\n"
    )
    found = [(t.line, t.what) for t in troubles_of(tmp_path, source)]
    syntax = [line for line, what in found if what == "syntax of Python 2"]
    assert {2, 3, 7, 10, 11, 12} == {*syntax}
    assert (9, "numpy.int") in found


def test_imports_beside_a_module(tmp_path, capsys):
    package = tmp_path / "package"
    package.mkdir()
    names = [f"layer{number}" for number in range(9)]
    imports = [f"import {name}\n" for name in names]
    (package / "__init__.py").write_text("x.tostring()\nfrom . import layers\n" + "".join(imports))
    for name in names:
        (package / f"{name}.py").write_text("import package.other\n")
    _, *troubles = project.read_project(tmp_path).troubles
    assert [trouble.line for trouble in troubles] == [*range(3, 12)]
    # The conversion from Python 2 comes first, and the imports are one name of the list.
    assert main(["doctor", str(tmp_path)]) == 1
    _, _, remedy, *_, what, places = capsys.readouterr().out.splitlines()[:6]
    assert "This is Python 2" in remedy
    assert what.strip() == "import of a module beside this one"
    assert places.endswith("6 more")
    theanoguard.shim.install_theano()  # the command has uninstalled it


def test_pickles_are_read_and_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("loaded",))

    (tmp_path / "sound.pkl").write_bytes(pickle.dumps({"w": [1.0]}))
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps([1], protocol=2))
    (tmp_path / "old.pkl").write_bytes(b"(dp0\nS'w'\np1\nF1.0\ns.")
    with gzip.open(tmp_path / "function.pkl.gz", "wb") as file:
        file.write(b"ctheano.compile.function_module\n_constructor_Function\n.")
    (tmp_path / "gpu.pkl").write_bytes(b"ctheano.sandbox.cuda.var\nCudaNdarraySharedVariable\n.")
    (tmp_path / "none.pkl").write_bytes(b"no pickle")
    found = {t.file: t for t in project.read_project(tmp_path).troubles}
    assert found.keys() == {"old.pkl", "function.pkl.gz", "gpu.pkl"}
    assert 'encoding="latin1"' in found["old.pkl"].remedy
    assert "Compile the function again" in found["function.pkl.gz"].remedy
    assert "machine with the GPU" in found["gpu.pkl"].remedy


def test_notebooks_and_settings(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["print 1"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "x = unicode(1)"]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "run.sh").write_text("#!/bin/sh\nTHEANO_FLAGS=device=cuda python a.py\n")
    found = [(t.file, t.line, t.what) for t in project.read_project(tmp_path).troubles]
    assert found == [("a.ipynb", 2, "unicode"), ("run.sh", 2, "a setting of the GPU")]


def test_command(tmp_path, capsys, golden):
    (tmp_path / "train.py").write_text(
        "import lasagne\nimport numpy as np\nimport theano\nprint 1\nx = np.float\n"
        "for i in xrange(3):\n    print i\n"
    )
    assert main(["doctor", str(tmp_path)]) == 1
    golden("doctor_project", capsys.readouterr().out)
    assert main(["doctor", str(tmp_path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["files"]) == ("theanoguard.doctor.project/1", 1)
    assert answer["options"] == ["--numpy-compat"]
    assert [t["line"] for t in answer["troubles"]] == [4, 5, 6, 7]
    assert main(["doctor", str(tmp_path / "train.py"), "--requirements"]) == 0
    assert "--no-deps git+https://github.com/Lasagne" in capsys.readouterr().out
    theanoguard.shim.install_theano()  # the command has uninstalled it


def test_wrong_arguments(tmp_path, capsys):
    assert main(["doctor", str(tmp_path / "nothing")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["doctor", "--all"]) == 2
    assert "Name its folder" in capsys.readouterr().err
    theanoguard.shim.install_theano()
