"""Messages are in the words of a Theano user, and say what to do next."""

import base64
import configparser
import io
import locale
import logging
import re
import subprocess
import sys
import threading
import unittest
import warnings

import numpy as np
import pytest
from pytensor.gradient import DisconnectedInputError

from theanoguard.shim import numpy_compat, python_compat
from theanoguard.shim.advice import advice


def error_of(source):
    """The exception that a program ends with."""
    try:
        exec(compile(source, "<old>", "exec"), {})
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("source", "words"),
    {
        "print 'x'": "Python 2",
        "try:\n    pass\nexcept ValueError, error:\n    pass": "Python 2",
        "import cPickle": "Python 2",
        "xrange(3)": "Python 2",
        "{}.iteritems()": "Python 2",
        "import numpy; raise ValueError('setting an array element with a sequence.')": "item()",
        "range(3) + [1]": "list(...)",
        "map(abs, [1])[0]": "list(...)",
        "[1, 2][:2 / 2]": "//",
        "import numpy as np; np.zeros(3)[:3 / 2]": "//",
        "import numpy as np; [1, 2][np.float64(1)]": "//",
        "import numpy as np; np.zeros(4 / 2)": "//",
        "import numpy as np; np.zeros((2, 2))[[slice(1), slice(1)]]": "tuple(...)",
        "import numpy as np; np.int(3)": "--numpy-compat",
        "import numpy as np; np.product([1])": "--numpy-compat",
        "from numpy.core.umath_tests import inner1d": "--numpy-compat",
        "import numpy as np; np.MachAr()": "--numpy-compat",
        "import numpy as np; np.maximum_sctype(float)": "--numpy-compat",
        "from scipy.linalg import pinv2": "--numpy-compat",
        "import scipy.stats; scipy.stats.itemfreq": "--numpy-compat",
        "import scipy; scipy.newaxis": "--numpy-compat",
        "import scipy.sparse as s; s.csr_matrix((2, 2)).A": "--numpy-compat",
        "import numpy as np; np.fromstring(b'12345678')": "--numpy-compat",
        "import numpy as np; np.take_along_axis(np.ones(2), [0], 0)": "--numpy-compat",
        "import numpy as np; np.ones(2).ptp()": "numpy.ptp(x)",
        "import numpy as np; np.ones(2).itemset(0, 1)": "x[index]",
        "import numpy as np; np.ones(2).tostring()": "tobytes",
        "import numpy as np; np.npv(1, [2])": "numpy-financial",
        "from scipy.misc import imread": "imageio",
        "import imp": "--python-compat",
        "from collections import Mapping": "--python-compat",
        "import inspect; inspect.getargspec": "--python-compat",
        "import unittest; unittest._TextTestResult": "--python-compat",
        "import locale; locale.format": "--python-compat",
        "import threading; threading.Thread().isAlive()": "--python-compat",
        "import numpy as np; np.array([[1], [1, 2]])": "dtype=object",
        "'x'.decode('utf8')": "h5py",
        "import h5py; h5py.File('new', driver='core', backing_store=False)": '"a"',
    }.items(),
)
def test_advice(source, words):
    if source.startswith(
        ("import imp", "import unittest", "import locale")
    ) and sys.version_info < (3, 12):
        pytest.skip("Python 3.11 has it still")
    if source.startswith("import h5py"):
        pytest.importorskip("h5py")
    error = error_of(source)
    assert words in advice(error), error


def test_advice_on_a_library_that_is_not_installed():
    error = RuntimeError("Compilation failed:\n/usr/bin/ld: cannot find -lopenblas: No such file")
    assert "blas.ldflags" in advice(error)


@pytest.mark.parametrize("error", [ValueError("of the user's own"), KeyError("print")])
def test_no_advice_where_nothing_is_known(error):
    assert advice(error) is None


@pytest.mark.on_33
def test_run_shows_advice_and_the_frames_of_the_program(tmp_path):
    script = tmp_path / "old.py"
    script.write_text(
        "import theano, theano.tensor as T\n"
        "x = T.dmatrix('x')\n"
        "f = theano.function([x], T.dot(x, x), mode='FAST_COMPILE')\n"
        "f([[1.0, 2.0]])\n"
    )
    command = [sys.executable, "-m", "theanoguard", "run"]
    ended = subprocess.run([*command, script], capture_output=True, text=True, timeout=300)
    backtrace = ended.stderr.partition("Backtrace when the node is created")[2]
    assert "use Theano flag traceback.limit" in backtrace
    assert "old.py" in backtrace
    assert "theanoguard" not in backtrace and "runpy" not in backtrace
    ended = subprocess.run([*command, "-c", "import imp, cPickle"], capture_output=True, text=True)
    assert "--python-compat" in ended.stderr or "Python 2" in ended.stderr


def raised(function, *args):
    """The exception of a call."""
    with pytest.raises(Exception) as caught:
        function(*args)
    return str(caught.value)


def test_messages_of_functions(shim):
    T = shim.tensor
    x, y = T.dmatrix("x"), T.dmatrix("y")
    assert "theano.function" in raised(shim.function, [x, y], x)
    assert "theano.function" in raised(shim.function, [x, x], x)
    text = raised(shim.function([x], T.dot(x, x), mode="FAST_COMPILE"), np.ones((1, 2)))
    assert "Theano flag 'exception_verbosity=high'" in text
    assert "PyTensor" not in text
    text = raised(x.reshape, T.lvector())
    assert "Theano is not able" in text
    row = shim.shared(np.ones((1, 2)), broadcastable=(True, False))
    with pytest.raises(TypeError, match="addbroadcast"):
        shim.function([x], row, givens={row: x})


@pytest.mark.usefixtures("needs_cxx")
def test_dimensions_that_do_not_match(shim):
    x, y = shim.tensor.dvectors("x", "y")
    f = shim.function([x, y], x + y)
    # Theano's text, which programs look for.
    expected = "Input dimension mis-match. (input[0].shape[0] = 2, input[1].shape[0] = 3)"
    assert raised(f, np.ones(2), np.ones(3)).startswith(expected)


def test_loggers_of_the_compiler_are_quiet(shim):
    assert not logging.getLogger("pytensor.link.c.cmodule").isEnabledFor(logging.INFO)
    assert logging.getLogger("pytensor.link.c.cmodule").isEnabledFor(logging.WARNING)


def test_what_is_advised_instead_of_the_gpu_exists(shim):
    import importlib

    from theano._missing import ON_CPU, on_cpu

    for _, place in ON_CPU:
        module, _, name = place.rpartition(".")
        assert hasattr(importlib.import_module(module), name)
    assert "theano.tensor.nnet.conv2d" in on_cpu("dnn_conv")
    assert "Leave it out" in on_cpu("gpu_contiguous")
    with pytest.raises(ImportError, match="theano.tensor.signal.pool.pool_2d"):
        from theano.sandbox.cuda.dnn import dnn_pool  # noqa: F401


def test_old_names_of_unittest_and_imp(tmp_path):
    (tmp_path / "part.py").write_text("value = 3\n")
    undo = python_compat.install()
    try:
        import imp

        found = imp.find_module("part", [str(tmp_path)])
        assert imp.load_module("part", *found).value == 3
        case = unittest.TestCase()
        case.assertEquals(1, 1)
        with case.assertRaisesRegexp(ValueError, "x"):
            raise ValueError("x")
        assert issubclass(unittest._TextTestResult, unittest.TestResult)
        assert locale.format("%d", 12) == "12"
        assert not threading.Thread().isAlive()
        assert base64.decodestring(base64.encodestring(b"x")) == b"x"
        configparser.SafeConfigParser().readfp(io.StringIO("[part]"))
    finally:
        undo()
        sys.modules.pop("part", None)


@pytest.mark.on_33  # Python 3.11, which PyTensor 3.0 runs on, has its own imp
def test_imp_finds_what_import_finds(shim):
    undo = python_compat.install()
    try:
        import imp

        assert imp.find_module("theano")[2][2] == imp.find_module("numpy")[2][2] == 5
        with pytest.raises(ImportError):
            imp.find_module("no_such_module")
    finally:
        undo()


def test_old_names_of_numpy():
    undo = numpy_compat.install()
    try:
        assert np.longfloat is np.longdouble
        assert issubclass(np.VisibleDeprecationWarning, UserWarning)
        assert set(np.random.random_integers(2, size=50).tolist()) == {1, 2}
        np.testing.dec.skipif(False)(lambda: None)()
        assert np.MachAr().eps == np.finfo(float).eps
        assert np.alen([1, 2]) == 2
        assert np.issubsctype(np.array([1]), np.integer)
        assert np.maximum_sctype(np.float32) is np.longdouble
        assert (np.nbytes[np.int32], np.sctype2char(np.float64)) == (4, "d")
        np.testing.assert_array_equal(np.fromstring(np.array([1.5, 2.5]).tobytes()), [1.5, 2.5])
        np.testing.assert_array_equal(np.fromstring("1 2", sep=" "), [1.0, 2.0])
        assert np.take_along_axis([[3, 4]], [[1]], axis=1).tolist() == [[4]]
        assert np.linalg.linalg.det(np.eye(2)) == 1
    finally:
        undo()


def test_old_names_of_scipy():
    import scipy.integrate
    import scipy.linalg
    import scipy.signal
    import scipy.sparse
    import scipy.stats

    undo = numpy_compat.install()
    try:
        from scipy.misc import logsumexp

        assert logsumexp([0.0, 0.0]) == pytest.approx(np.log(2))
        assert scipy.signal.gaussian(3, 1.0)[1] == 1
        assert scipy.integrate.simps(np.ones(3), np.arange(3)) == 2
        assert scipy.sqrt(4.0) == 2
        assert scipy.__version__[0].isdigit()
        assert (scipy.pi, scipy.newaxis, scipy.inf) == (np.pi, None, np.inf)
        assert scipy.linalg.kron(np.eye(2), [[2.0]])[1, 1] == 2
        assert scipy.linalg.pinv2(np.eye(2) * 2)[0, 0] == pytest.approx(0.5)
        assert scipy.stats.itemfreq([3, 1, 3]).tolist() == [[1, 1], [3, 2]]
        assert scipy.stats.binom_test(5, 10) == pytest.approx(1)
        assert scipy.stats.binom_test([0, 10]) == pytest.approx(2 / 2**10)
        assert scipy.sparse.csr_matrix([[1.0, 0.0]]).A.tolist() == [[1.0, 0.0]]
    finally:
        undo()
    assert not hasattr(scipy.signal, "gaussian")
    with pytest.raises(ImportError) as caught:
        from scipy.signal import gaussian  # noqa: F401
    assert "--numpy-compat" in advice(caught.value)


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("T.grad(v, v)", TypeError, "cost must be a scalar."),
        ("T.dot(x, 'a')", TypeError, "Cannot convert a to TensorType"),
        ("T.exp('a')", TypeError, "Cannot convert a to TensorType"),
        ("T.concatenate([x, v])", TypeError, "Join() can only join tensors with the same number"),
        ("T.concatenate(x)", TypeError, "make sure you did not forget () or [] around arguments"),
        ("x.dimshuffle(0, 2)", ValueError, "new_order[1] is 2, but the input only has 2 axes."),
        ("x.dimshuffle(0, 0)", ValueError, "The same input dimension may not appear twice"),
        ("x.dimshuffle('y')", TypeError, "DimShuffle indices must be python ints. Got: 'y'"),
        (
            "theano.ifelse.ifelse(x, v, v)",
            TypeError,
            "Condition given to the op has to be a scalar",
        ),
        (
            "theano.ifelse.ifelse(s, v, x)",
            TypeError,
            "The two branches should have identical types",
        ),
        ("T.grad(x.sum(), v)", DisconnectedInputError, "disconnected_inputs='ignore'"),
        ("T.jacobian(x, v)", AssertionError, "use flatten to make it a vector"),
        ("T.hessian(x.sum(), x)", AssertionError, "(list of) 1 dimensional variable as `wrt`"),
        ("theano.function([x], 'x')", TypeError, "Outputs must be theano Variable or Out"),
        (
            "theano.function([x], x, givens=[(x, v)])",
            RuntimeError,
            "consists in using `theano.clone`",
        ),
        ("theano.function([x], x)()", TypeError, "Missing required input: x"),
        (
            "theano.function([x], x)(1, 2)",
            TypeError,
            "Too many parameter passed to theano function",
        ),
        (
            "theano.function([x], x)(y=1)",
            TypeError,
            "Unknown input or state: y. The function has 1",
        ),
        ("x.__setitem__(0, 1)", TypeError, "'TensorVariable' object does not support item assign"),
    ],
)
def test_what_theano_refuses_in_its_words(shim, source, kind, text):
    T = shim.tensor
    made = {"theano": shim, "T": T, "x": T.dmatrix("x"), "v": T.dvector("v"), "s": T.dscalar("s")}
    with pytest.raises(kind) as caught:
        eval(source, made)
    words = " ".join(map(str, caught.value.args))
    assert text in words
    assert "pytensor" not in words.lower()


def test_modules_that_theano_loads_by_the_way(shim):
    # In 1.0.5 the first gradient or scan loads these; programs use them without an import.
    assert shim.tensor.signal.pool.pool_2d
    assert shim.tensor.nnet.neighbours.images2neibs
    assert shim.sandbox.rng_mrg.MRG_RandomStreams


def test_what_to_install_where_there_is_no_blas(shim, monkeypatch):
    from theano._patches import messages

    def nothing_found():
        warnings.warn("PyTensor could not link to a BLAS installation.", stacklevel=1)
        return ""

    monkeypatch.setattr(messages, "_find_blas", nothing_found)
    with pytest.warns(UserWarning, match="THEANO_FLAGS=blas.ldflags=-lopenblas") as caught:
        assert messages.find_blas() == ""
    assert "PyTensor" not in str(caught[0].message)


def test_backtraces_of_what_has_a_test_value(shim):
    """PyTensor records these traces elsewhere.  They also begin and end in the user's files."""
    T = shim.tensor
    with shim.change_flags(compute_test_value="warn"):
        x = T.dmatrix("x")
        x.tag.test_value = np.ones((2, 2))
        product = T.dot(x, x)
    outputs, _ = shim.scan(lambda a: a * 2, outputs_info=T.ones(()), n_steps=T.iscalar())
    for variable in (product, outputs):
        ((*_, (file, *_)),) = variable.tag.trace
        assert file == __file__


def test_class_of_the_error_of_a_wrong_test_value(shim):
    x = shim.tensor.dmatrix("x")
    for value in (np.ones(3), np.ones((2, 2), complex), object()):
        x.tag.test_value = value
        for apply in (shim.tensor.exp, lambda x: x + 1, lambda x: 1 - x, lambda x: x**2, abs):
            refused = pytest.raises(TypeError, match="The test value of x is no")
            with shim.change_flags(compute_test_value="raise"), refused:
                apply(x)


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE"])
def test_assert_names_operands(mode, shim):
    T = shim.tensor
    data, low = T.dmatrix("data"), T.dscalar("low")
    checked = T.opt.Assert("out of range")(data, T.ge(data.min(), low), T.lt(data.sum(), 9))
    f = shim.function([data, low], checked * 2, mode=mode)
    assert any(isinstance(node.op, T.opt.Assert) for node in f.maker.fgraph.toposort())
    np.testing.assert_array_equal(f([[1.0, 2.0]], 0.5), [[2.0, 4.0]])
    with pytest.raises(AssertionError) as caught:
        f([[1.0, 2.0]], 1.5)
    lines = str(caught.value).splitlines()
    assert lines[:2] == ["out of range", "required: data.min() >= low"]
    assert "left side: data.min() = 1.0 (float64)" in lines
    assert "right side: low = 1.5 (float64)" in lines
    with pytest.raises(AssertionError, match=r"required: data.sum\(\) < 9"):
        f([[5.0, 5.0]], 1.5)


# All texts that a program sees, except for the paths of files and the classes of PyTensor.
ALL_TEXTS = """
import numpy as np
import theano, theano.tensor as T
from theano.compile.nanguardmode import NanGuardMode

x, y, w = T.dmatrix("x"), T.dvector("y"), theano.shared(np.ones(3), "w")
for mode in [theano.Mode(), theano.compile.get_default_mode(), theano.compile.DebugMode(),
             theano.compile.mode.get_mode("FAST_COMPILE"), NanGuardMode(True)]:
    print(repr(mode), mode)
f = theano.function([x, y], T.nnet.sigmoid(T.dot(x, w)).sum() + y.sum(), profile=True)
f(np.ones((2, 3)), np.ones(2))
f.profile.summary()

class NoGradient(theano.gof.Op):
    __props__ = ()
    def make_node(self, x):
        return theano.gof.Apply(self, [x], [x.type()])
    def perform(self, node, inputs, outputs):
        raise KeyError("none")

def set_config(name, value):
    setattr(theano.config, name, value)

for call in [
    lambda: f(np.ones((2, 2)), np.ones(2)), lambda: f(np.ones(2), np.ones(2)), lambda: f(1),
    lambda: theano.function([x], y), lambda: theano.function([x, y], x),
    lambda: theano.function([x, x], x), lambda: theano.function([1], x),
    lambda: T.grad(NoGradient()(x).sum(), x),
    lambda: theano.function([x], NoGradient()(x))(np.ones((1, 1))),
    lambda: T.grad(x, x), lambda: T.grad(x.sum(), y), lambda: x + object(),
    lambda: theano.function([x], T.log(x), mode=NanGuardMode(True, True, True))(-np.ones((1, 1))),
    lambda: T.reshape(x, (2,)), lambda: bool(x > 1), lambda: x[1.5], lambda: list(x),
    lambda: len(x), lambda: T.concatenate([]), lambda: T.no_such, lambda: theano.no_such,
    lambda: theano.config.no_such, lambda: set_config("floatX", "float1"),
    lambda: theano.function([x], x, mode="NONE_SUCH"), lambda: w.set_value("x"),
    lambda: theano.function([x], x, updates=[(w, x)]), lambda: T.constant(object()),
    lambda: theano.function([x], x, givens=[(x, y)]), lambda: T.matrix("a", dtype="q"),
]:
    try:
        print(call())
    except Exception as error:
        print(type(error).__name__, *error.args, sep="\\n")
print(theano.config, x.type, repr(x), repr(f), repr(w), f.maker.fgraph, f.maker.mode)
theano.printing.debugprint(f)
print(theano.printing.pp(f.maker.fgraph.outputs[0]))
"""


def test_no_text_says_pytensor(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ALL_TEXTS, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "theanoguard", "run", program], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    lines = (ran.stdout + ran.stderr).splitlines()
    said = [line for line in lines if re.search(r"pytensor(?![\w-]*/)", line, re.IGNORECASE)]
    assert not said, "\n".join(said)
    assert "Time in all call to theano.grad()" in ran.stdout + ran.stderr
    assert "%%" not in ran.stdout + ran.stderr


@pytest.mark.filterwarnings("error::FutureWarning")
def test_error_of_an_operation_without_a_gradient(shim):
    """Theano raises an AttributeError, and warns of nothing."""

    class Undifferentiated(shim.gof.Op):
        __props__ = ()

        def make_node(self, x):
            return shim.gof.Apply(self, [x], [x.type()])

    x = shim.tensor.dvector("x")
    with pytest.raises(AttributeError, match="'Undifferentiated' object has no attribute 'grad'"):
        shim.grad(Undifferentiated()(x).sum(), x)


def test_texts_of_reductions(shim):
    x = shim.tensor.dmatrix("x")
    assert shim.pp(x.sum()) == "Sum{acc_dtype=float64}(x)"
