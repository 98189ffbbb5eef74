"""Which scalar operations raise a flag of the processor when they make a NaN or an Inf.

``theanoguard.operations`` says it in a table.  Here PyTensor compiles each of them, for all dtypes,
and the flags are read after each call: with all combinations of special values, and with random
ones, one element at a time and between others, so that vectorised code runs as well.
"""

import ctypes
import itertools
import platform
import sys
import warnings

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from guarding import backend as backend_asked_for
from pytensor.compile.mode import Mode
from pytensor.scalar import math as psm
from pytensor.tensor.elemwise import Elemwise

from theanoguard.guard.c import build
from theanoguard.operations import (
    holds_nonfinite,
    makes_nan_of_inf,
    scalar_makes,
    scalar_unsignalled,
    unsignalled,
)
from theanoguard.operations.facts import SCALARS, Kind, Scalar

# invalid, divide by zero and overflow in <fenv.h>
FLAGS = {"x86_64": 1 | 4 | 8, "aarch64": 1 | 2 | 4}.get(platform.machine())
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or FLAGS is None, reason="the flags are read through the C library"
)

ON_NUMBA = backend_asked_for() == "numba"
LANES = 16
SPECIAL = [
    *(0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 170.5, 172.0, 1e-3, 20.0, -20.0),
    *(36.0, 89.0, -89.0, 104.0, -104.0, 710.0, -710.0, -750.0, 1e10, -1e10, 1e200, -1e200),
    *(3e38, -3e38, 1.7e308, -1.7e308, 1e-300, 1e-45, 5e-324, -5e-324),
    *(1 - 2.0**-53, 1 + 2.0**-52, 2.0**31, -(2.0**63), np.inf, -np.inf),
]
DTYPES = ("float64", "float32", "int64", "int32", "int8", "bool")


def scalar_operations():
    """Return the scalar operations of PyTensor, with the number of operands to call them with."""
    found = {}
    for module in (ps, psm):
        for op in vars(module).values():
            if isinstance(op, ps.ScalarOp) and type(op) not in (ps.Composite, ps.Cast):
                n = op.nin if op.nin > 0 else 2
                if n <= 3:
                    found.setdefault(type(op), (op, n))
    for target in ("float32", "float64"):
        found[f"cast to {target}"] = (getattr(ps, f"convert_to_{target}"), 1)
    return found


OPERATIONS = scalar_operations()
LISTED = [
    k for k in OPERATIONS if isinstance(k, str) or "numba" in SCALARS.get(k, Scalar()).signals
]


def name_of(kind):
    return kind if isinstance(kind, str) else kind.__name__


def compiled(kind, dtype, backend):
    """Return the compiled operation, its number of operands, and whether the table has it.

    None where PyTensor does not compile it for this dtype, or gives no floating point.
    """
    op, n = OPERATIONS[kind]
    inputs = [pt.vector(dtype=dtype) for _ in range(n)]
    try:
        node = Elemwise(op).make_node(*inputs)
        scalars = [ps.get_scalar_type(dtype)() for _ in range(n)]
        scalar_node = op.make_node(*scalars)
    except (TypeError, NotImplementedError, AssertionError):
        return None
    if node.outputs[0].type.dtype not in ("float32", "float64"):
        return None
    if backend == "numba":
        listed = not unsignalled(node, "numba")
    else:
        listed = not scalar_unsignalled(op, scalar_node.inputs, scalar_node.outputs, "c")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fn = pytensor.function(
                inputs, node.outputs[0], mode=Mode(backend, None), on_unused_input="ignore"
            )
    except Exception as error:
        # (PyTensor calls SciPy's betaincinv with too few arguments.)
        known = ("umba", "Incorrect number of arguments")
        text = type(error).__module__ + str(error)
        if backend == "numba" and any(part in text for part in known):
            return None
        raise
    in_python = any("object mode" in str(warning.message) for warning in told)
    if backend == "cvm":
        in_python = not all(hasattr(thunk, "cthunk") for thunk in fn.vm.thunks)
    if in_python:
        return None  # the guard scans what it gives
    fn.trust_input = True
    return fn, n, listed


def combinations(dtype, n, at_most):
    """Return operands, as the columns of an array: special values with each other, then random."""
    kind = np.dtype(dtype).kind
    with np.errstate(over="ignore"):
        if kind == "b":
            special = np.array([False, True])
        elif kind == "i":
            info = np.iinfo(dtype)
            special = np.array([0, 1, -1, 2, -3, 7, 50, info.max, info.min], dtype)
        else:
            special = np.array(SPECIAL).astype(dtype)
            special = special[np.unique(special.view(f"u{special.itemsize}"), return_index=True)[1]]
    every = np.array(list(itertools.product(special[:: 5 if n == 3 else 1], repeat=n)), dtype).T
    size = n, max(at_most - every.shape[1], 0)
    values = np.random.default_rng(7)
    if kind == "f":
        info = np.finfo(dtype)
        wide = np.exp(values.uniform(np.log(float(info.tiny)), np.log(float(info.max)), size))
        wide *= values.choice([-1, 1], size)
        near = values.normal(size=size) * values.choice([1, 10, 100], size)
        random = np.where(values.random(size) < 0.5, wide, near)
    else:
        random = values.choice(special, size)
    return np.concatenate([every, random.astype(dtype)], axis=1)


class AllFlags:
    """The flags of the C library, of all units of the processor."""

    def __init__(self):
        self._library = ctypes.CDLL("libm.so.6")

    def clear_flags(self):
        self._library.feclearexcept(FLAGS)

    def read_flags(self):
        return self._library.fetestexcept(FLAGS)


def made_without_flag(fn, n, dtype, points, flags):
    """Return the operands for which something bad was made and no flag raised."""
    missed = []
    plain = np.ones((n, LANES), dtype)
    if np.dtype(dtype).kind == "f":
        plain *= np.linspace(0.3, 0.8, LANES, dtype=dtype)
    with np.errstate(all="ignore"):
        try:
            out = fn(*points.copy())
        except Exception as error:
            # (PyTensor's betaincinv has no code that runs; Numba compiles in the first call)
            if not isinstance(error, TypeError) and "numba" not in type(error).__module__:
                raise
            pytest.skip(str(error).splitlines()[0])
        points = points[:, may_be_made(points, out)]
        for lanes in (1, LANES):
            middle, arrays = lanes // 2, [row[:lanes].copy() for row in plain]
            for container, array in zip(fn.input_storage, arrays, strict=True):
                container.storage[0] = array
            for operands in points.T:
                for array, value in zip(arrays, operands, strict=True):
                    array[middle] = value
                flags.clear_flags()
                fn.vm()
                if not flags.read_flags():
                    out = fn.output_storage[0].storage[0][[middle]]
                    if is_made(operands[:, None], out).any():
                        missed.append((lanes, *operands.tolist()))
    return missed


def is_made(points, out):
    """Return where a NaN or an Inf is made of operands that are neither."""
    given_nan, given_inf = np.isnan(points).any(axis=0), np.isinf(points).any(axis=0)
    return (np.isnan(out) & ~given_nan) | (np.isinf(out) & ~given_inf & ~given_nan)


def may_be_made(points, out):
    """Return where a NaN or an Inf is made, or where one call may overflow and another not."""
    return is_made(points, out) | (np.abs(out) > np.finfo(out.dtype).max / 16)


def check(kind, dtype, backend, n_points):
    """What the table lists raises a flag; return what is missed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compiled(kind, dtype, backend)
        if found is None:
            pytest.skip(f"{name_of(kind)} of {dtype} is not compiled, or is no float")
        fn, n, listed = found
        # (on C the guard does not read the flags of the x87 unit)
        flags = build.load() if backend == "cvm" else AllFlags()
        missed = made_without_flag(fn, n, dtype, combinations(dtype, n, n_points), flags)
    assert not (listed and missed), f"{len(missed)} without a flag, as {missed[:5]}"
    return missed


@pytest.mark.usefixtures("needs_cxx")
@pytest.mark.not_on(jax="XLA computes on threads of its own, whose flags nobody reads")
@pytest.mark.parametrize("dtype", ["float64", "float32"] if ON_NUMBA else ["float64"])
@pytest.mark.parametrize("kind", LISTED, ids=name_of)
def test_listed_operations_raise_a_flag(kind, dtype):
    check(kind, dtype, "numba" if ON_NUMBA else "cvm", 1500)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_cxx")
@pytest.mark.parametrize("backend", ["cvm", "numba"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", OPERATIONS, ids=name_of)
def test_all_operations_on_many_points(kind, dtype, backend, request):
    n_points = int(request.config.getoption("--signal-points"))
    missed = check(kind, dtype, backend, n_points)
    print(f"{name_of(kind)} {dtype} {backend}: {len(missed)} without a flag, as {missed[:3]}")


@pytest.mark.parametrize("dtype", ["float16", "complex64", "complex128"])
def test_half_and_complex_numbers_are_always_read(dtype):
    """NumPy converts half precision, and complex arithmetic repairs its results: no flag counts."""
    for kind in {k for k in OPERATIONS if not isinstance(k, str)}:
        op, n = OPERATIONS[kind]
        try:
            node = Elemwise(op).make_node(*[pt.vector(dtype=dtype) for _ in range(n)])
            scalar_node = op.make_node(*[ps.get_scalar_type(dtype)() for _ in range(n)])
        except (TypeError, NotImplementedError, AssertionError):
            continue
        if not any(map(holds_nonfinite, node.outputs)):
            continue
        made = scalar_makes(op, scalar_node.inputs, scalar_node.outputs)
        if makes_nan_of_inf(node):  # (of an Inf that the policy allows, such as sin(inf))
            made |= Kind.NAN
        for backend in ("c", "numba"):
            assert unsignalled(node, backend) == made, op
