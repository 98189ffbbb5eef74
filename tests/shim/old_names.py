"""Record the public names of an old NumPy and SciPy, for tests/shim/test_removed.py.

::

    python3.7 tests/shim/old_names.py > tests/shim/old_names.json

The file was written with NumPy 1.16.6 and SciPy 1.2.3.
"""

import importlib
import json
import types
import warnings

MODULES = """
    numpy numpy.fft numpy.linalg numpy.ma numpy.matrixlib numpy.polynomial
    numpy.polynomial.polynomial numpy.polynomial.polyutils numpy.random numpy.testing
    scipy.cluster.hierarchy scipy.cluster.vq scipy.constants scipy.fftpack scipy.integrate
    scipy.interpolate scipy.io scipy.linalg scipy.linalg.blas scipy.misc scipy.ndimage scipy.odr
    scipy.optimize scipy.signal scipy.signal.windows scipy.sparse scipy.sparse.csgraph
    scipy.sparse.linalg scipy.spatial scipy.spatial.distance scipy.special scipy.stats
    scipy.stats.mstats
""".split()


def is_own(value):
    """Whether an object belongs to NumPy or SciPy, and is no module of Python's library."""
    return not (
        isinstance(value, types.ModuleType) and not value.__name__.startswith(("numpy", "scipy"))
    ) and not type(value).__module__.startswith("__future__")


def names(path):
    """Return the public names of a module."""
    module = importlib.import_module(path)
    return " ".join(
        name for name in dir(module) if name[0] != "_" and is_own(getattr(module, name))
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({path: names(path) for path in MODULES}, indent=1))
