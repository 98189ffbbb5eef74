"""Comparison of results under the shim with those recorded of Theano 1.0.5."""

import json
from pathlib import Path

import numpy as np
import shim_cases

RECORDED = json.loads(Path(shim_cases.__file__).with_suffix(".json").read_text(encoding="utf-8"))


def parametrize(*sections):
    """Pairs of a section and a case."""
    return [(section, case) for section in sections for case in shim_cases.cases(section)]


def raised(function):
    """What `function` gives, or the exception that it raises."""
    try:
        return function(), None
    except Exception as error:  # whatever it is: its classes are compared
        return None, error


def assert_raised(expected, result, error):
    """The exception is of the class that Theano raised."""
    assert error is not None, f"gives {result}, where Theano raised {expected['raises']}"
    names = [kind.__name__ for kind in type(error).__mro__]
    assert expected["raises"] in names, repr(error)


def assert_as_recorded(theano, section, case):
    """Evaluate an expression and compare: dtypes, patterns, values, classes of exceptions."""
    import theano.sparse
    import theano.tensor

    expected = RECORDED[section][case]
    made = shim_cases.variables(theano, theano.tensor, theano.sparse)
    names = shim_cases.namespace(theano, theano.tensor, theano.sparse, made)
    result, error = raised(lambda: eval(case, names))
    # What Theano finds when it runs, PyTensor may find before.
    if expected.get("when") == "built" or (error is not None and "raises" in expected):
        assert_raised(expected, result, error)
        return
    if error is not None:
        raise AssertionError(f"raises {error!r}") from error
    if "plain" in expected:
        assert shim_cases.as_plain(result) == expected["plain"]
        return
    results = list(result) if isinstance(result, list | tuple) else [result]
    inputs, values = shim_cases.arguments(theano, made)
    computed, error = raised(
        lambda: theano.function(inputs, results, on_unused_input="ignore", mode="FAST_COMPILE")(
            *values
        )
    )
    if expected.get("when") == "run":
        assert_raised(expected, computed, error)
        return
    if error is not None:
        raise AssertionError(f"raises {error!r}") from error
    assert len(results) == len(expected["results"])
    for variable, value, wanted in zip(results, computed, expected["results"], strict=True):
        found = shim_cases.describe(variable, value)
        assert found["dtype"] == wanted["dtype"]
        assert found["broadcastable"] == wanted["broadcastable"], found["broadcastable"]
        tolerance = 1e-5 if wanted["dtype"] == "float32" else 1e-9
        np.testing.assert_allclose(
            np.array(found["value"]), np.array(wanted["value"]), tolerance, tolerance
        )
        assert np.shape(found["value"]) == np.shape(wanted["value"])
