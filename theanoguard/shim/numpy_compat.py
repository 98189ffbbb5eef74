"""NumPy's and SciPy's old names, for code that was written before NumPy 1.20."""

import builtins
import functools
import importlib
import inspect
import pkgutil
import sys
import unittest
import warnings
from importlib.util import find_spec
from types import GeneratorType, ModuleType, SimpleNamespace

import numpy as np

from . import array_compat
from .removed import MODULES, PARAMETERS, TABLE, is_alias


def asscalar(a):
    """Return an array of one element as a Python scalar."""
    return np.asarray(a).item()


def find_common_type(array_types, scalar_types):
    """Return the dtype of the arrays, or one that holds both if the scalars have a higher kind."""
    arrays = np.result_type(*array_types) if array_types else None
    scalars = np.result_type(*scalar_types) if scalar_types else None
    if arrays is None or scalars is None:
        return arrays or scalars
    kinds = "biufc"
    if kinds.find(scalars.kind) > kinds.find(arrays.kind):
        return np.promote_types(scalars, arrays)
    return arrays


def in1d(ar1, ar2, assume_unique=False, invert=False):
    """Return `numpy.isin`, flat."""
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def msort(a):
    """Return `a` sorted along its first axis."""
    return np.sort(a, axis=0)


def random_integers(low, high=None, size=None):
    """Return random whole numbers from `low` to `high`, both included; or from 1 to `low`."""
    first, last = (1, low) if high is None else (low, high)
    return np.random.randint(first, last + 1, size=size)


_argsort = np.argsort


def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    """Return `numpy.argsort`, with equal elements in their order.

    NumPy before 1.25 keeps this order in arrays of up to 16 elements.  Its vectorised sorting of
    today does not.
    """
    quick = kind in (None, "quicksort") and stable is None
    return _argsort(a, axis, "stable" if quick else kind, order, stable=stable)


_fromstring, _sum = np.fromstring, np.sum
_take_along_axis, _unique = np.take_along_axis, np.unique


def fromstring(string, dtype=float, count=-1, *, sep="", **kwargs):
    """Return `numpy.fromstring`; without a separator `string` has the bytes of the numbers."""
    if sep:
        return _fromstring(string, dtype, count, sep=sep, **kwargs)
    data = string.encode("latin1") if isinstance(string, builtins.str) else string
    return np.frombuffer(data, dtype, count, **kwargs).copy()


def sum_(a, *args, **kwargs):
    """Sum an array as `numpy.sum` does, or what a generator yields."""
    return builtins.sum(a) if isinstance(a, GeneratorType) else _sum(a, *args, **kwargs)


def take_along_axis(arr, indices, axis=-1):
    """Return `numpy.take_along_axis`; the indices may be a list."""
    return _take_along_axis(np.asarray(arr), np.asarray(indices), axis)


def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, **kwargs):
    """Return `numpy.unique`; the places of the elements of the whole array are flat."""
    found = _unique(ar, return_index, return_inverse, return_counts, axis, **kwargs)
    if not return_inverse:
        return found
    found = list(found)
    place = 1 + bool(return_index)
    found[place] = np.ravel(found[place])
    return tuple(found)


# The functions that are replaced: they do more than today's, or the same in another order.
REPLACED = {
    "argsort": argsort,
    "fromstring": fromstring,
    "sum": sum_,
    "take_along_axis": take_along_axis,
    "unique": unique,
}


class MachAr:
    """What is known of a floating-point type, as `numpy.finfo` has it."""

    def __init__(self, float_conv=float, *args, **kwargs):
        found = np.finfo(np.asarray(float_conv(1)).dtype)
        self.eps = self.epsilon = found.eps
        self.epsneg, self.resolution = found.epsneg, found.resolution
        self.xmin = self.tiny = found.tiny
        self.xmax = self.huge = found.max
        self.precision = found.precision


def maximum_sctype(t):
    """Return the type of the highest precision that is of the same kind."""
    kinds = {"i": np.int64, "u": np.uint64, "f": np.longdouble, "c": np.clongdouble}
    return kinds.get(np.dtype(t).kind, np.dtype(t).type)


def issubsctype(arg1, arg2):
    """Whether the dtype of an object is a subtype of that of another one."""
    return np.issubdtype(_scalar_type(arg1), _scalar_type(arg2))


def _scalar_type(arg):
    """Return the type of numbers that an array, a dtype or a type stands for."""
    if isinstance(arg, type) and issubclass(arg, np.generic):
        return arg
    return np.dtype(getattr(arg, "dtype", arg)).type


def kron(a, b):
    """Return the Kronecker product; of stacks of matrices another one than NumPy's."""
    a, b = np.asarray(a), np.asarray(b)
    product = np.outer(a, b).reshape(a.shape + b.shape)
    return np.concatenate(np.concatenate(product, axis=1), axis=1)


def itemfreq(a):
    """Return the different elements and how often each occurs, as the columns of an array."""
    return np.array(np.unique(a, return_counts=True)).T


def binom_test(x, n=None, p=0.5, alternative="two-sided"):
    """Return the p-value of the binomial test; `x` may be the successes and the failures."""
    x, n = (x[0], x[0] + x[1]) if np.ndim(x) else (x, n)
    return found("scipy.stats.binomtest")(int(x), int(n), p, alternative).pvalue


def deprecate(*args, **kwargs):
    """Return a function as it is, or a decorator that does."""
    return args[0] if args and callable(args[0]) else lambda function: function


def unless(condition, msg=None):
    """Return a decorator that skips a test."""
    return unittest.skipIf(condition() if callable(condition) else condition, msg or "")


def found(path):
    """Return the object with a dotted name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old module may warn that it is one
        return pkgutil.resolve_name(path)


def simps(y, x=None, dx=1.0, axis=-1, even=None):
    """Integrate by Simpson's rule.  `even` is ignored: SciPy has one way to do it now."""
    return found("scipy.integrate.simpson")(y, x=x, dx=dx, axis=axis)


def quadrature(func, a, b, args=(), tol=None, rtol=None, maxiter=None, vec_func=True, miniter=1):
    """Integrate a function; return the integral and its error.  SciPy chooses the accuracy."""
    return found("scipy.integrate.quad")(func, a, b, args)


def romberg(function, a, b, args=(), **kwargs):
    """Integrate a function.  SciPy chooses the accuracy."""
    return found("scipy.integrate.quad")(function, a, b, args)[0]


def central_diff_weights(Np, ndiv=1):
    """Return the weights of `Np` points at distances of 1 for a derivative in the middle."""
    points = np.arange(Np) - Np // 2
    powers = np.vander(points.astype(float), increasing=True)
    return found("scipy.special.factorial")(ndiv) * np.linalg.inv(powers)[ndiv]


def derivative(func, x0, dx=1.0, n=1, args=(), order=3):
    """Return a derivative by central differences of `order` points."""
    points = dx * (np.arange(order) - order // 2)
    values = [func(x0 + point, *args) for point in points]
    return sum(w * v for w, v in zip(central_diff_weights(order, n), values, strict=True)) / dx**n


def wminkowski(u, v, p, w):
    """Return the Minkowski distance, with weights for the differences themselves."""
    return found("scipy.spatial.distance.minkowski")(u, v, p, np.asarray(w) ** p)


def sph_harm(m, n, theta, phi):
    """Return a spherical harmonic; `theta` is the azimuth and `phi` the polar angle."""
    return found("scipy.special.sph_harm_y")(n, m, phi, theta)


def recfromtxt(fname, **kwargs):
    """Return what a text file holds as an array of records."""
    return np.genfromtxt(fname, **{"dtype": None, **kwargs}).view(np.recarray)


def recfromcsv(fname, **kwargs):
    """Return what a CSV file holds as an array of records."""
    defaults = {"case_sensitive": "lower", "names": True, "delimiter": ",", "dtype": None}
    return recfromtxt(fname, **{**defaults, **kwargs})


class Tester:
    """Replaces the class with which packages made their ``package.test()``.  It runs no test."""

    __test__ = False  # pytest would collect the class by its name

    def test(self, *args, **kwargs):
        """Raise an ImportError, because NumPy's test runner needed nose."""
        raise ImportError("numpy.testing.Tester needs nose.  Run the tests with pytest.")

    bench = test


DECORATORS = SimpleNamespace(skipif=unless, knownfailureif=unless, slow=lambda test: test)

# The objects, by module, that are restored for names whose entry in the table is only advice.
WRITTEN = {
    "numpy": {
        "NINF": -np.inf,
        "NZERO": -0.0,
        "PZERO": 0.0,
        "MAXDIMS": 64,
        "MachAr": MachAr,
        "Tester": Tester,
        "asfarray": functools.partial(np.asarray, dtype=np.float64),
        "asscalar": asscalar,
        "cast": {
            name: functools.partial(np.asarray, dtype=name)
            for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
            " float16 float32 float64 complex64 complex128".split()
        },
        "deprecate": deprecate,
        "deprecate_with_doc": deprecate,
        "fastCopyAndTranspose": lambda a: np.asarray(a).T.copy(),
        "find_common_type": find_common_type,
        "in1d": in1d,
        "issctype": lambda rep: isinstance(rep, type) and issubclass(rep, np.generic),
        "issubsctype": issubsctype,
        "maximum_sctype": maximum_sctype,
        "msort": msort,
        "nbytes": {kind: np.dtype(kind).itemsize for kind in set(np.sctypeDict.values())},
        "obj2sctype": _scalar_type,
        "recfromcsv": recfromcsv,
        "recfromtxt": recfromtxt,
        "sctype2char": lambda kind: np.dtype(_scalar_type(kind)).char,
        "sctypes": {
            "int": [np.int8, np.int16, np.int32, np.int64],
            "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
            "float": [np.float16, np.float32, np.float64, np.longdouble],
            "complex": [np.complex64, np.complex128, np.clongdouble],
            "others": [builtins.bool, builtins.object, builtins.bytes, builtins.str, np.void],
        },
    },
    "numpy.ndarray": array_compat.METHODS,
    "numpy.random": {"random_integers": random_integers},
    "numpy.testing": {"Tester": Tester, "dec": DECORATORS},
    "scipy.integrate": {"quadrature": quadrature, "romberg": romberg, "simps": simps},
    "scipy.linalg": {"kron": kron},
    "scipy.misc": {"central_diff_weights": central_diff_weights, "derivative": derivative},
    "scipy.spatial.distance": {"wminkowski": wminkowski},
    "scipy.special": {"sph_harm": sph_harm},
    "scipy.stats": {
        "binom_test": binom_test,
        "itemfreq": itemfreq,
        "nanstd": functools.partial(np.nanstd, ddof=1),
    },
}
WRITTEN["scipy"] = WRITTEN["numpy"]
# The modules that are restored with other names than those of one module of today.
WRITTEN_MODULES = {
    "numpy.distutils": {},  # imported by programs that only look whether it knows the BLAS
    "numpy.core.umath_tests": {"inner1d": np.vecdot, "matrix_multiply": np.matmul},
    "numpy.testing.decorators": vars(DECORATORS),
}

# The attributes that SciPy has taken from sparse matrices.
OF_SPARSE = {
    "A": property(lambda self: self.toarray()),
    "H": property(lambda self: self.conjugate().transpose()),
}


def takes(function, renamed):
    """Return a function that also takes old parameters; `renamed` has their names of today."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        for old in renamed.keys() & kwargs.keys():
            value = kwargs.pop(old)
            if renamed[old] and value is not None:
                kwargs[renamed[old]] = value
        return function(*args, **kwargs)

    return called


def with_old_parameters():
    """Yield module, name and replacement of each function that has lost parameters."""
    for path, renamed in PARAMETERS.items():
        module, _, name = path.rpartition(".")
        function = getattr(found(module), name, None)
        if function is not None:
            today = inspect.signature(function).parameters
            if lost := {old: new for old, new in renamed.items() if old not in today}:
                yield found(module), name, takes(function, lost)


def restores(path):
    """Whether `install` restores an object or a module that has been removed.

    Examples
    --------
    >>> from theanoguard.shim.numpy_compat import restores
    >>> restores("numpy.alltrue"), restores("numpy.asscalar"), restores("numpy.npv")
    (True, True, False)
    """
    if path in MODULES:
        return path in WRITTEN_MODULES or is_alias(MODULES[path])
    module, _, name = path.rpartition(".")
    return name in WRITTEN.get(module, {}) or is_alias(TABLE.get(module, {}).get(name, ""))


def is_module(path):
    """Whether a module exists, without importing more than its parents."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a package may warn that it is an old one
        try:
            return find_spec(path) is not None
        except ModuleNotFoundError:  # its parent is no package
            return False


def names_of(module):
    """Return the public names of a module, as a module that has been removed gets them."""
    return {name: getattr(module, name) for name in module.__all__}


def missing(module):
    """Return the names that a module does not have and that can be restored."""
    absent = TABLE[module.__name__].keys() - vars(module).keys() - {*dir(module)}
    return [name for name in absent if restores(f"{module.__name__}.{name}")]


def install():
    """Add the old names that today's NumPy and SciPy do not have, and an old `argsort`.

    Arrays get their old methods.  They take lists of arrays and slices as indices, and an array of
    one element is a number.

    ``np.bool`` and ``np.long`` are not replaced, because NumPy 2 has types of these names.

    Returns
    -------
    callable
        A function without arguments that removes the names.

    Examples
    --------
    >>> import numpy as np
    >>> from theanoguard.shim import numpy_compat
    >>> undo = numpy_compat.install()
    >>> np.array([1.5], dtype=np.float).dtype
    dtype('float64')
    >>> from numpy.core.umath_tests import inner1d
    >>> inner1d([1, 2], [3, 4])
    np.int64(11)
    >>> np.argsort([2.0] + 9 * [1.0])
    array([1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    >>> np.eye(3)[[slice(2), 1]], float(np.array([1.5]))
    (array([0., 1.]), 1.5)
    >>> undo()
    """
    added = []
    for path in TABLE:
        if not is_module(path):  # a class
            continue
        module = found(path)
        written = WRITTEN.get(path, {})
        for name in missing(module):
            value = written[name] if name in written else found(TABLE[path][name])
            setattr(module, name, value)
            added.append((module, name))
    modules = [
        name
        for name in MODULES
        if restores(name) and name not in sys.modules and not is_module(name)
    ]
    for name in modules:
        sys.modules[name] = ModuleType(name)
        names = WRITTEN_MODULES.get(name)
        vars(sys.modules[name]).update(
            names_of(importlib.import_module(MODULES[name])) if names is None else names
        )
        parent, _, last = name.rpartition(".")
        if parent in sys.modules and not hasattr(sys.modules[parent], last):
            setattr(sys.modules[parent], last, sys.modules[name])
            added.append((sys.modules[parent], last))
    sparse = importlib.import_module("scipy.sparse").spmatrix
    attributes = [name for name in OF_SPARSE if not hasattr(sparse, name)]
    for name in attributes:
        setattr(sparse, name, OF_SPARSE[name])
    replaced = [(np, *entry) for entry in REPLACED.items()] + [*with_old_parameters()]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, function in replaced:
        setattr(module, name, function)
    restore_arrays = array_compat.install()

    def undo():
        restore_arrays()
        for module, name, function in before:
            setattr(module, name, function)
        for name in attributes:
            delattr(sparse, name)
        for module, name in added:
            vars(module).pop(name, None)
        for name in modules:
            sys.modules.pop(name, None)

    return undo
