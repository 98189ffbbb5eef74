"""NaNs inside fused operations that a comparison, a condition or a cast turns into numbers."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import trip

from theanoguard import GuardMode

pytestmark = pytest.mark.on_30

x = pt.dvector("x")
BAD = np.array([1.0, 2.0, -1.0])


@pytest.fixture(params=["c", "numba"], scope="module")
def backend(request):
    if request.param == "c":
        request.getfixturevalue("needs_cxx")
    return request.param


def compiled(outputs, backend, **settings):
    return pytensor.function([x], outputs, mode=GuardMode(backend=backend, **settings))


def test_a_nan_that_is_lost_is_reported_in_its_operation(backend):
    log = pt.log(x)
    several = [
        (log > 0).sum(),
        pt.cast(pt.sqrt(x), "int32"),
        pt.switch(log < 0.5, x * 2, x * 3),
        pt.switch(log, 1.0, 2.0),
        pt.clip(x, log, 1.0),
        (x + 2) ** log,
        log[2] > 0,
        pytensor.scan(lambda s, n: n + (pt.log(s) > 0), x, [np.int64(0)], return_updates=False),
    ]
    for result in several:
        f = compiled(result, backend)
        f(np.ones(3))
        assert trip(f, BAD).kind == "nan"


def test_a_nan_that_is_masked_or_asked_for_is_no_error(backend):
    log = pt.log(x)
    masked = [pt.switch(x > 0, log, 0), pt.switch(pt.isnan(log), 0, 1)]
    for values in compiled(masked, backend)(BAD):
        assert np.isfinite(values).all()


def test_a_lost_nan_does_not_spoil_a_result(backend):
    f = compiled((pt.log(x) > 0).sum(), backend, judge="result")
    assert f(BAD) == 1


def test_what_shows_needs_no_further_output(backend):
    z = x / pt.sqrt(x + 3)
    f = compiled(pt.switch(z < -1, pt.exp(z), pt.log1p(z * z)), backend)
    fused = [node for node in f.maker.fgraph.toposort() if "Composite" in str(node.op)]
    assert [len(node.outputs) for node in fused] == [1]
