"""A bad value that is discarded is no error, whatever the graph looks like; one that counts is."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_30

# Each is bad at the second of these numbers.
FUNCTIONS = {
    "log": (pt.log, [1.0, -1.0]),
    "log of 0": (pt.log, [1.0, 0.0]),
    "sqrt": (pt.sqrt, [1.0, -1.0]),
    "division": (lambda x: 2 / x, [1.0, 0.0]),
    "0 / 0": (lambda x: pt.sin(x) / x, [1.0, 0.0]),
    "power": (lambda x: x**-1.5, [1.0, 0.0]),
    "overflow": (pt.exp, [1.0, 1000.0]),
    "big": (lambda x: x * 1e8, [1.0, 1e8]),
    "chain": (lambda x: 3 * x * pt.log(x) + 1, [1.0, -1.0]),
    "xlogx": (lambda x: x * pt.log(x), [1.0, 0.0]),
}


def double(f, ok, x):
    """The idiom that keeps a gradient clean: the operand is replaced as well."""
    return pt.switch(ok, f(pt.switch(ok, x, 1.0)), 0.0)


FORMS = {
    "switch": lambda f, ok, x: pt.switch(ok, f(x), 0.0),
    "other branch": lambda f, ok, x: pt.where(pt.invert(ok), 0.0, f(x)),
    "nested": lambda f, ok, x: pt.switch(ok, pt.switch(x < 500, f(x), f(x) / 2), x),
    "compared": lambda f, ok, x: pt.switch(ok, pt.switch(f(x) > 0.5, 1.0, f(x)), 0.0),
    "computed with": lambda f, ok, x: pt.tanh(pt.switch(ok, f(x) - 1, 0.0)) + x,
    "rows": lambda f, ok, x: pt.switch(ok, f(pt.stack([x, 2 * x])), 0.0),
    "asked": lambda f, ok, x: pt.switch(pt.isnan(f(x)) | pt.isinf(f(x)) | pt.invert(ok), 0.0, f(x)),
    "overwritten": lambda f, ok, x: pt.set_subtensor(f(x)[pt.nonzero(pt.invert(ok))], 0.0),
    "indexed": lambda f, ok, x: pt.exp(f(x)[pt.nonzero(ok)]).sum() * x,
    "gradient": lambda f, ok, x: pt.grad(double(f, ok, x).sum(), x),
    "both": lambda f, ok, x: double(f, ok, x) - pt.grad(double(f, ok, x).sum(), x),
}
MODES = {
    "fast_run": lambda: GuardMode(),
    "unfused": lambda: GuardMode().excluding("fusion"),
    "fast_compile": lambda: GuardMode(optimizer="fast_compile"),
    "any": lambda: GuardMode(inf_is_error="any").excluding("fusion"),
    "NaN": lambda: GuardMode(inf_is_error=False, big_is_error=False).excluding("fusion"),
}
CASES = [
    *((name, "switch", mode) for name in FUNCTIONS for mode in ("fast_run", "unfused")),
    *(("log", form, mode) for form in FORMS for mode in MODES if form != "switch"),
    *((name, "gradient", "unfused") for name in FUNCTIONS if name != "log"),
    *(("xlogx", form, "unfused") for form in ("nested", "computed with", "both")),
    # One fused operation, of whose only output an index or a write discards elements.
    *(("chain", form, "fast_run") for form in ("overwritten", "indexed")),
]
SLOW_TO_COMPILE = dict.fromkeys(("numba", "jax", "pytorch"), "takes longer to compile")
ON_C_ALONE = pytest.mark.not_on(**SLOW_TO_COMPILE)
ON_ALL = [
    ("log", "switch", "fast_run"),
    ("log", "compared", "fast_run"),
    ("log", "asked", "fast_run"),
    ("chain", "switch", "fast_run"),
    ("xlogx", "both", "unfused"),
    ("overflow", "nested", "unfused"),
]


@pytest.mark.parametrize(
    ("function", "form", "mode"),
    [
        *ON_ALL,
        *(pytest.param(*case, marks=ON_C_ALONE) for case in CASES if case not in ON_ALL),
    ],
)
def test_only_what_counts_is_an_error(function, form, mode):
    f, numbers = FUNCTIONS[function]
    x, c = pt.dvectors("x", "c")
    fn = pytensor.function([x, c], FORMS[form](f, c > 0, x), mode=MODES[mode]())
    values = np.array(numbers)[[0, 1, 0, 1]]
    for _ in range(3):
        assert np.isfinite(fn(values, np.array([1.0, -1.0, 1.0, -1.0]))).all()
    if form in ("gradient", "both", "asked"):  # (no other call is bad)
        return
    for _ in range(2):
        with pytest.raises(GuardError) as caught:
            fn(values, np.array([1.0, -1.0, 1.0, 1.0]))
        assert caught.value.event.first_index[-1] == 3


def _checked(y, c):
    return Assert("y is small")(y, (y > -5).all())


def _indexed(y, c):
    return c[pt.switch(y.sum() > 0, 0, 7)]


def _reshaped(y, c):
    return c.reshape((pt.switch(y.sum() > 0, 2, 7),))


@pytest.mark.parametrize("fails", [_checked, _indexed, _reshaped])
def test_a_bad_element_for_which_a_later_operation_fails_counts(fails):
    x, c = pt.dvectors("x", "c")
    y = pt.log(x)
    out = pt.switch(fails(y, c) > 0, y, c)
    fn = pytensor.function([x, c], out, mode=GuardMode())
    with pytest.raises(GuardError, match="NaN in log"):
        fn(np.array([-1.0, 2.0]), np.ones(2))


def test_error_of_another_operation_is_raised_if_only_a_discarded_element_is_bad():
    x, c, i = pt.dvector("x"), pt.dvector("c"), pt.lscalar("i")
    fn = pytensor.function([x, c, i], pt.switch(c[i] > 0, pt.log(x), 0.0), mode=GuardMode())
    assert np.isfinite(fn(np.array([-1.0, 1.0]), np.zeros(2), 1)).all()
    with pytest.raises(IndexError):
        fn(np.array([-1.0, 1.0]), np.zeros(2), 5)
