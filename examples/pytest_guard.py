"""Do my tests compute a NaN without noticing?

``pytest examples/pytest_guard.py`` passes.  ``pytest examples/pytest_guard.py --guard`` fails
``test_weights`` and shows where the NaN comes from.  ``argmax`` hides it from the test.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.dvector("x")


def test_shares():
    shares = pytensor.function([x], x / x.sum())
    assert shares(np.array([1.0, 3.0])).max() == 0.75


def test_weights():
    weights = pytensor.function([x], pt.cumsum(pt.log(x)).argmax())
    assert weights(np.array([2.0, 1.0, -1.0])) >= 0
