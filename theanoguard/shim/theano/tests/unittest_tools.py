"""Theano's ``theano.tests.unittest_tools``: helpers for tests of Ops."""

import logging
import re
import sys
import unittest
from copy import copy, deepcopy
from functools import wraps
from unittest import SkipTest as SkipTest

import numpy as np

from .. import config, function
from .. import tensor as T
from ..compile import get_default_mode

_logger = logging.getLogger("theano.tests.unittest_tools")

assert_raises = unittest.TestCase().assertRaises


def __getattr__(name):
    """Return the decorator ``parameterized``, which the tests of Theano's time take from here."""
    if name == "parameterized":
        from parameterized import parameterized

        return parameterized
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def attr(*tags, **values):
    """Return a decorator that leaves a test as it is: nose's marks mean nothing here."""
    return lambda test: test


def custom_name_func(testcase_func, param_num, param):
    """Return a name for one case of a parameterized test."""
    words = "_".join(str(x) for x in param.args)
    return f"{testcase_func.__name__}_{re.sub('[^a-zA-Z0-9_]+', '_', words)}"


def fetch_seed(pseed=None):
    """Return the seed of the tests: `pseed`, else ``config.unittests.rseed``; None is any."""
    seed = pseed or config.unittests.rseed
    if seed == "random" or not seed:
        return None
    try:
        return int(seed)
    except ValueError:
        print(
            "Error: config.unittests.rseed contains invalid seed, using None instead",
            file=sys.stderr,
        )
        return None


def seed_rng(pseed=None):
    """Seed NumPy's global generator and return the seed; see `fetch_seed`."""
    seed = fetch_seed(pseed)
    if pseed and pseed != seed:
        print(
            f"Warning: using seed given by config.unittests.rseed={seed} instead of seed {pseed} "
            "given as parameter",
            file=sys.stderr,
        )
    np.random.seed(seed)
    return seed


def verify_grad(op, pt, n_tests=2, rng=None, *args, **kwargs):
    """Compare a gradient with finite differences; seed the generator where none is given."""
    if rng is None:
        seed_rng()
        rng = np.random
    T.verify_grad(op, pt, n_tests, rng, *args, **kwargs)


verify_grad.E_grad = T.verify_grad.E_grad


class MockRandomState:
    """A generator whose draws are all the same: `val`, or the nearer bound of integers."""

    def __init__(self, val):
        self.val = val

    def rand(self, *shape):
        """Return an array of the value."""
        return np.full(shape, self.val, dtype="float64")

    def randint(self, minval, maxval=None, size=1):
        """Return the lowest integer where the value is 0, else the highest."""
        low, high = (0, minval) if maxval is None else (minval, maxval)
        return np.full(size, low if self.val == 0 else high - 1, dtype="int64")


class TestOptimizationMixin:
    """Assertions about the Ops of a compiled function."""

    def _assert_count(self, f, description, is_match, low, high):
        nodes = f.maker.fgraph.toposort()
        matches = [node for node in nodes if is_match(node.op)]
        assert low <= len(matches) <= high, (nodes, matches, description, len(matches), low, high)

    def assertFunctionContains(self, f, op, min=1, max=sys.maxsize):
        """The Op occurs between `min` and `max` times."""
        self._assert_count(f, str(op), lambda found: found == op, min, max)

    def assertFunctionContains0(self, f, op):
        """The Op does not occur."""
        self.assertFunctionContains(f, op, min=0, max=0)

    def assertFunctionContains1(self, f, op):
        """The Op occurs once."""
        self.assertFunctionContains(f, op, min=1, max=1)

    def assertFunctionContainsN(self, f, op, N):
        """The Op occurs `N` times."""
        self.assertFunctionContains(f, op, min=N, max=N)

    def assertFunctionContainsClass(self, f, op, min=1, max=sys.maxsize):
        """Ops of the class occur between `min` and `max` times."""
        self._assert_count(f, str(op), lambda found: isinstance(found, op), min, max)

    def assertFunctionContainsClassN(self, f, op, N):
        """Ops of the class occur `N` times."""
        self.assertFunctionContainsClass(f, op, min=N, max=N)

    def SkipTest(self, msg="Skip this test"):
        """Skip."""
        raise SkipTest(msg)


class T_OpContractMixin:
    """What holds of the Ops in ``self.ops``: equality, hashes, copies and names."""

    other_op = T.add

    def copy(self, x):
        """Copy an Op."""
        return copy(x)

    def deepcopy(self, x):
        """Copy an Op deeply."""
        return deepcopy(x)

    def clone(self, op):
        """Return a new Op like `op`."""
        raise NotImplementedError("return new instance like `op`")

    def _twins(self, op):
        return [op, self.copy(op), self.deepcopy(op), self.clone(op)]

    def test_eq(self):
        """Ops equal their copies and nothing else."""
        for i, op in enumerate(self.ops):
            assert all(op == twin for twin in self._twins(op))
            assert op != self.other_op
            assert all(op != other for j, other in enumerate(self.ops) if j != i)

    def test_hash(self):
        """Hashes agree with equality."""
        for i, op in enumerate(self.ops):
            assert len({hash(twin) for twin in self._twins(op)}) == 1
            assert hash(op) != hash(self.other_op)
            assert all(hash(op) != hash(other) for j, other in enumerate(self.ops) if j != i)

    def test_name(self):
        """Ops have a name."""
        assert all(str(op) for op in self.ops)


class InferShapeTester(unittest.TestCase):
    """Compare the shapes that an Op promises with those of its results."""

    def setUp(self):
        """Seed, and take the mode of the class with the rewrites that shapes need."""
        seed_rng()
        mode = getattr(self, "mode", None) or get_default_mode()
        self.mode = mode.including("canonicalize")

    def _compile_and_check(
        self, inputs, outputs, numeric_inputs, cls, excluding=None, warn=True, check_topo=True
    ):
        """Compile `outputs` and their shapes and compare them for these values.

        The Ops of the class `cls` are in the graph of the outputs and, with `check_topo`, not in
        that of the shapes.
        """
        mode = self.mode.excluding(*excluding) if excluding else self.mode
        if warn:
            self._warn_of_equal_lengths(inputs, numeric_inputs, cls)
        outputs_function = function(inputs, outputs, mode=mode)
        shapes_function = function(inputs, [o.shape for o in outputs], mode=mode)
        if check_topo:
            assert not any(
                isinstance(node.op, cls) for node in shapes_function.maker.fgraph.toposort()
            )
        assert any(isinstance(node.op, cls) for node in outputs_function.maker.fgraph.toposort())
        results = outputs_function(*numeric_inputs)
        shapes = shapes_function(*numeric_inputs)
        for result, shape in zip(results, shapes, strict=True):
            assert np.all(result.shape == shape), (result.shape, shape)

    @staticmethod
    def _warn_of_equal_lengths(inputs, values, cls):
        for variable, value in zip(inputs, values, strict=False):
            shape = np.shape(variable.type.filter(value) if np.isscalar(value) else value)
            pattern = getattr(variable.type, "broadcastable", [False] * len(shape))
            lengths = [n for n, is_one in zip(shape, pattern, strict=False) if not is_one]
            if len(set(lengths)) != len(lengths):
                _logger.warning(
                    "While testing shape inference for %r, we received an input with a shape that "
                    "has some repeated values: %r, like a square matrix. This makes it impossible "
                    "to check if the values for these dimensions have been correctly used, or if "
                    "they have been mixed up.",
                    cls,
                    shape,
                )
                return


def str_diagnostic(expected, value, rtol, atol):
    """Return a text about two arrays that should have been close."""
    expected_array, value_array = np.asarray(expected), np.asarray(value)
    default_atol, default_rtol = T.basic._get_atol_rtol(expected_array, value_array)
    lines = [
        f"  {name}: {array.shape} {array.dtype} {array}"
        for name, array in (("Expected", expected_array), ("Value", value_array))
    ]
    if expected_array.shape == value_array.shape and expected_array.size:
        with np.errstate(all="ignore"):
            difference = np.abs(value_array - expected_array)
            relative = difference / np.abs(expected_array)
        for name, errors in (("Abs", difference), ("Rel", relative)):
            lines.append(f"  Max {name} Diff: {errors.max()}, mean {errors.mean()}")
    lines.append(
        f"  rtol, atol: {default_rtol if rtol is None else rtol} "
        f"{default_atol if atol is None else atol}"
    )
    return "\n".join(lines)


class WrongValue(Exception):
    """Two values are not close."""

    def __init__(self, expected_val, val, rtol, atol):
        super().__init__(expected_val, val, rtol, atol)
        self.val1 = expected_val
        self.val2 = val
        self.rtol = rtol
        self.atol = atol

    def __str__(self):
        return f"WrongValue\n{str_diagnostic(self.val1, self.val2, self.rtol, self.atol)}"


def assert_allclose(expected, value, rtol=None, atol=None):
    """Raise `WrongValue` where two values are not close in the sense of Theano's tests."""
    if not T.basic._allclose(expected, value, rtol, atol):
        raise WrongValue(expected, value, rtol, atol)


class AttemptManyTimes:
    """Decorator of a test that has to pass `n_req_successes` of `n_attempts` times."""

    def __init__(self, n_attempts, n_req_successes=1):
        assert n_attempts >= n_req_successes
        self.n_attempts = n_attempts
        self.n_req_successes = n_req_successes

    def __call__(self, fct):
        """Return the test that tries, each time with the next seed."""

        @wraps(fct)
        def attempt_multiple_times(*args, **kwargs):
            original_seed = seed = config.unittests.rseed
            case = args[0] if len(args) == 1 and hasattr(args[0], "_testMethodName") else None
            failures = successes = 0
            while successes < self.n_req_successes:
                try:
                    config.unittests.rseed = seed
                    if hasattr(case, "setUp"):
                        case.setUp()
                    fct(*args, **kwargs)
                    successes += 1
                except Exception:
                    failures += 1
                    if failures + self.n_req_successes > self.n_attempts:
                        raise
                finally:
                    config.unittests.rseed = original_seed
                    if hasattr(case, "tearDown"):
                        case.tearDown()
                if seed not in (None, "random"):
                    seed = str(int(seed) + 1)

        return attempt_multiple_times


def assertFailure_fast(f):
    """Return the test, which has to fail where ``config.cycle_detection`` is "fast"."""
    if config.cycle_detection != "fast":
        return f

    def test_with_assert(*args, **kwargs):
        with assert_raises(Exception):
            f(*args, **kwargs)

    return test_with_assert
