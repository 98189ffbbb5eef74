"""Gradients under the shim are what is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import numpy as np
import pytest
from shim_compare import assert_as_recorded, parametrize


@pytest.mark.parametrize(("section", "case"), parametrize("gradient"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


def test_grad_of_an_operation_by_its_method(shim):
    T = shim.tensor

    class Twice(T.Elemwise):
        def grad(self, inputs, output_gradients):
            return [2 * gradient for gradient in super().grad(inputs, output_gradients)]

    x = T.dvector("x")
    (gradient,) = T.exp.grad([x], [T.ones_like(x)])
    twice = T.grad(Twice(shim.scalar.exp)(x).sum(), x)
    f = shim.function([x], [gradient, twice], mode="FAST_COMPILE")
    np.testing.assert_allclose(f([0.0]), [[1.0], [2.0]])


def test_grad_of_what_is_no_variable(shim):
    x = shim.tensor.dscalar("x")
    with pytest.raises(TypeError, match="Expected Variable, got x "):
        shim.grad(x, ["x"])
