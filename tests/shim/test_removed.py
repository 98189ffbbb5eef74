"""Every name that NumPy and SciPy have removed is restored, or there is advice for it."""

import importlib
import inspect
import json
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from theanoguard.shim import numpy_compat, removed
from theanoguard.shim.advice import advice

OLD = json.loads(Path(__file__).with_name("old_names.json").read_text(encoding="utf-8"))

# Names of modules and helpers that a module only imported, or that its authors used.
INTERNAL = {
    "numpy.fft": "info",
    "numpy.linalg": "info",
    "numpy.polynomial.polynomial": "la normalize_axis_index",
    "numpy.testing": "test",
    "numpy.random": "np",
    "scipy.cluster.hierarchy": "deque distance np string_types xrange",
    "scipy.cluster.vq": "cdist deque np py_vq2 xrange",
    "scipy.misc": "np test",
    "scipy.ndimage": "io",
    "scipy.odr": "add_newdocs",
    "scipy.sparse": "test",
    "scipy.sparse.linalg": "arpack iterative linsolve utils",
    "scipy.spatial.distance": "callable namedtuple np string_types xrange",
    "scipy.special": "np",
}


def look_up(path):
    """Return an object of a module, as code that uses it finds it."""
    module, _, name = path.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(module), name)


def is_gone(path):
    """Whether a name does not exist."""
    try:
        look_up(path)
    except (AttributeError, ImportError):
        return True
    return False


def gone():
    """The names of the table that do not exist, which depends on the release."""
    return [
        f"{section}.{name}"
        for section, names in removed.TABLE.items()
        for name in names
        if section not in ("numpy.ndarray", "scipy") and is_gone(f"{section}.{name}")
    ]


@pytest.mark.parametrize("module", OLD)
def test_the_table_is_complete(module):
    internal = INTERNAL.get(module, "").split()
    unknown = [
        name
        for name in OLD[module].split()
        if name not in internal and is_gone(f"{module}.{name}")
        if removed.entry(f"{module}.{name}") is None
    ]
    assert unknown == []


def test_every_name_has_advice():
    paths = [*gone(), "scipy.sqrt", "scipy.pi", "scipy.float"]
    assert len(paths) > 200
    for path in paths:
        module, _, name = path.rpartition(".")
        with pytest.raises((AttributeError, ImportError)) as caught:
            look_up(path)
        assert advice(caught.value), path
        assert ("--numpy-compat" in advice(caught.value)) == numpy_compat.restores(path)
        try:
            exec(f"from {module} import {name}")
        except ImportError as error:
            assert advice(error) == advice(caught.value), path
        else:  # a module that is only not imported by itself
            assert f"{path}" in sys.modules


def test_every_method_has_advice():
    for name in removed.TABLE["numpy.ndarray"]:
        if not hasattr(np.ndarray, name):
            with pytest.raises(AttributeError) as caught:
                getattr(np.zeros(2), name)
            assert advice(caught.value), name


def test_what_can_be_restored_is_restored():
    paths = gone()
    undo = numpy_compat.install()
    try:
        for path in paths:
            assert is_gone(path) != numpy_compat.restores(path), path
        for module in removed.MODULES:
            if numpy_compat.restores(module):
                importlib.import_module(module)
    finally:
        undo()
    assert gone() == paths


def test_functions_that_are_written_anew():
    undo = numpy_compat.install()
    try:
        misc = importlib.import_module("scipy.misc")
        assert misc.derivative(np.exp, 0.0, dx=1e-3) == pytest.approx(1, rel=1e-6)
        assert misc.derivative(lambda x: x**3, 2.0, n=2, order=5) == pytest.approx(12)
        assert misc.central_diff_weights(3) == pytest.approx([-0.5, 0, 0.5])
        assert look_up("scipy.integrate.romberg")(np.exp, 0, 1) == pytest.approx(np.e - 1)
        assert look_up("scipy.integrate.quadrature")(np.exp, 0, 1)[0] == pytest.approx(np.e - 1)
        assert look_up("scipy.special.btdtr")(2.0, 3.0, 0.4) == pytest.approx(0.5248)
        # Of SciPy 1.2: sph_harm(1, 2, 0.3, 0.5), wminkowski([1, 2], [3, 5], 3, [1, 2])
        harmonic = look_up("scipy.special.sph_harm")(1, 2, 0.3, 0.5)
        assert harmonic == pytest.approx(-0.3105211711209513 - 0.09605545449894311j)
        distance = look_up("scipy.spatial.distance.wminkowski")([1, 2], [3, 5], 3, [1, 2])
        assert distance == pytest.approx(6.0731779437513245)
        assert np.recfromcsv(["a,b", "1,2.5"]).b == 2.5
        assert np.fastCopyAndTranspose([[1, 2]]).shape == (2, 1)
    finally:
        undo()


# Expressions of arrays, and what they were with NumPy 1.18.
OF_ARRAYS = {
    "x[[slice(2), 1]]": [1, 5],
    "x[[Ellipsis, slice(0, 2)]]": [[0, 1], [4, 5], [8, 9]],
    "x[[None, slice(1)]].shape": (1, 1, 4),
    "x.__setitem__([slice(1), slice(2)], 7) or x[0]": [7, 7, 2, 3],
    "x[[np.array([0, 1]), np.array([2, 3])]]": [2, 7],
    "x[[np.array([0, 2]), slice(1)]]": [[0], [8]],
    "x[[x[:, 0] > 3]][:, 0]": [4, 8],
    "x[[np.array(1), np.array(2)]]": 6,
    "x[[0, 2]][:, 0]": [0, 8],
    "x.__setitem__([np.array([0]), np.array([1])], 5) or x[0]": [0, 5, 2, 3],
    "x[40 * [np.array(1)]].shape": (40, 4),
    "np.sum(row[1] for row in x)": 15,
    "np.sum(x, axis=0)": [12, 15, 18, 21],
    "x.__setitem__((0, 0), np.array([[9]])) or x[0]": [9, 1, 2, 3],
    "x[1].__setitem__(0, np.ones((1, 1, 1))) or x[1]": [1, 5, 6, 7],
    "float(np.ones((1, 1))) + int(np.array([2])) + complex(np.array([3j])).imag": 6,
    "math.sqrt(np.array([4.0]))": 2,
    "'%d %.1f' % (np.array([3]), np.array([0.5]))": "3 0.5",
    "x.ptp()": 11,
    "x.ptp(axis=0)": [8, 8, 8, 8],
    "x.tostring() == x.tobytes()": True,
    "x.newbyteorder().dtype.isnative": False,
    "x.itemset(5, 0) or x.itemset((0, 1), 8) or x[:2]": [[0, 8, 2, 3], [4, 0, 6, 7]],
    "x[:1, :1].itemset(8) or x[0]": [8, 1, 2, 3],
    "x.itemset(1, 2, 9) or x[1]": [4, 5, 9, 7],
    "x.itemset((6,), 9) or x[1]": [4, 5, 9, 7],
    "np.unique(x % 2, return_inverse=True)[1]": [0, 1] * 6,
    "np.unique(x % 2, True, True, True)[2].shape": (12,),
    "np.unique(x[:, :2] // 4, return_inverse=True, axis=0)[1]": [0, 1, 2],
    "np.unique(x % 2)": [0, 1],
    "np.matrix(x)[[slice(1), slice(2)]]": [[0, 1]],
    "float(np.matrix(2.0))": 2,
    "x[0].__setitem__(0, np.matrix(9)) or x[0]": [9, 1, 2, 3],
    # These errors are as they were.
    "x[[0, 7]]": IndexError,
    "x[[slice(1), 9]]": IndexError,
    "x[1.5]": IndexError,
    "x.__setitem__(0, np.ones(3))": ValueError,
    "float(x)": TypeError,
    "x.itemset(3)": ValueError,
    "x.itemset((1,), 2, 3, 4)": ValueError,
    "x.itemset()": ValueError,
}


@pytest.mark.parametrize("expression", OF_ARRAYS)
def test_arrays_have_what_they_had(expression):
    def result():
        return eval(expression, {"np": np, "math": math, "x": np.arange(12).reshape(3, 4)})

    expected = OF_ARRAYS[expression]
    undo = numpy_compat.install()
    try:
        if isinstance(expected, type):
            with pytest.raises(expected):
                result()
        else:
            assert np.array_equal(result(), expected)
    finally:
        undo()


def test_arrays_are_left_as_they_were():
    before = dict(vars(np.ndarray))
    numpy_compat.install()()
    assert dict(vars(np.ndarray)) == before
    with pytest.raises(IndexError):
        np.eye(2)[[slice(1), 0]]
    with pytest.raises(TypeError, match="immutable"):
        np.ndarray.ptp = None


# Calls with parameters that are gone, and what they returned with NumPy 1.19 and SciPy 1.5.
ROWS = [[2.0, 1.0], [1.0, 3.0]]
CALLS = [
    ("numpy.corrcoef", (ROWS,), {"bias": 1}, [[1, -1], [-1, 1]]),
    ("numpy.histogram", ([1, 2, 2, 4], 3), {"normed": True}, [0.25, 0.5, 0.25]),
    ("numpy.linalg.matrix_rank", (), {"M": ROWS}, 2),
    ("numpy.percentile", ([1.0, 2.0], 40), {"interpolation": "lower"}, 1),
    ("numpy.reshape", ([[1, 2]],), {"newshape": 2}, [1, 2]),
    ("scipy.linalg.eigvalsh", (ROWS,), {"eigvals": (1, 1)}, [3.618033988749895]),
    ("scipy.linalg.pinvh", (ROWS,), {"cond": 0.5}, [[0.0763932, 0.1236068], [0.1236068, 0.2]]),
    ("scipy.linalg.solve", (ROWS, [1.0, 2.0]), {"sym_pos": True}, [0.2, 0.6]),
    ("scipy.optimize.fmin_l_bfgs_b", (lambda x: x @ x, [1.0], lambda x: 2 * x), {"disp": 0}, [0]),
    ("scipy.sparse.linalg.cg", (np.array(ROWS), [1.0, 2.0]), {"tol": 1e-9}, [0.2, 0.6]),
    ("scipy.stats.moment", ([1.0, 2.0, 4.0],), {"moment": 2}, 14 / 9),
]


@pytest.mark.parametrize(
    ("path", "arguments", "old", "result"), CALLS, ids=[path for path, *_ in CALLS]
)
def test_parameters_that_are_gone(path, arguments, old, result):
    try:
        look_up(path)(*arguments, **old)
    except TypeError as error:
        assert f"{next(iter(old))}=" in advice(error)
    undo = numpy_compat.install()
    try:
        found = look_up(path)(*arguments, **old)
    finally:
        undo()
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(found, result, atol=1e-7)


def test_todays_names_of_parameters_exist():
    for path, lost in removed.PARAMETERS.items():
        known = inspect.signature(look_up(path)).parameters
        assert {new for new in lost.values() if new} <= known.keys(), path
