"""Reports are in the user's coordinates: the operation, the element and the line of the code."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_33


def transposed():
    v = pt.dvector("v")
    w = v.dimshuffle(0, "x")
    return [v], pt.log(w.T).T, [np.array([1.0, 2.0, -3.0])], {}


def exchanged_dimensions():
    x = pt.dmatrix("x")
    b = x.T / x.sum(axis=1)
    return [x], b.T.sum(), [np.array([[1.0, 2.0], [0.5, 0.5], [0.0, 0.0]])], {}


def factor_of_a_schedule():
    w, t = pytensor.shared(np.array([1.0, 2.0]), name="w"), pytensor.shared(5.0, name="t")
    rate = 0.1 / (t - 5)
    return [], w.sum(), [], {w: w - rate * 2 * w, t: t + 1}


def joined_with_a_product():
    y, s = pt.dvectors("y", "s")
    rho = 1 / pt.dot(y, s)
    return [y, s], rho * pt.outer(s, y), [np.zeros(2), np.array([1.0, 0.0])], {}


def moved_behind_a_sum():
    x, lam = pt.dvector("x"), pt.dscalar("lam")
    z = (x**lam - 1) / lam
    return [x, lam], z.sum(), [np.array([2.0, 3.0]), 0.0], {}


def logarithm_of_a_determinant():
    a = pt.dmatrix("a")
    return [a], pt.log(pt.linalg.det(a)), [np.array([[1.0, 2.0], [2.0, 1.0]])], {}


def squared_root():
    h = pt.dvector("h")
    return [h], (pt.sqrt(h - 1) ** 2).sum(), [np.array([2.0, 0.5])], {}


def weights_of_classes():
    x, counts = pt.dvector("x"), pt.constant(np.array([3.0, 0.0]))
    weight = 1 / counts
    return [x], (x * weight).sum(), [np.array([1.0, 2.0])], {}


def survival():
    b = pt.dvector("b")
    keep = 1 - b
    alive = pt.cumprod(keep)
    return [b], pt.log(b * alive).sum(), [np.array([0.1, 1.0, 0.3, 0.2])], {}


CASES = {
    transposed: ("log", "log(-3.0)", (0, 2), "v[2] is -3.0 (input)."),
    exchanged_dimensions: ("true_div", "0.0 / 0.0", (0, 2), "x[2, :] is 0 throughout"),
    factor_of_a_schedule: ("true_div", "0.1 / 0.0", (), "t is 5.0, and the updates"),
    joined_with_a_product: ("true_div", "1 / 0.0", (), ""),
    moved_behind_a_sum: ("true_div", "0.0 / 0.0", (0,), "0.69315 at element [0] and 1.0986 at [1]"),
    logarithm_of_a_determinant: ("log", "log(-2.9999999999999996)", (), "Find out why"),
    squared_root: ("sqrt", "sqrt(-0.5)", (1,), "h[1] is 0.5 (input)."),
    weights_of_classes: ("true_div", "1 / 0.0", (1,), "counts[1] is 0.0 (constant)."),
    survival: ("log", "log(0.0)", (1,), "b[1] is 1.0 (input)."),
}
"""The operation, its values, the element, and a part of the advice."""


def explained(inputs, output, arguments, updates):
    fn = pytensor.function(inputs, output, updates=updates, mode=GuardMode(True, True, False))
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value.explanation


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_operation_values_element_and_origin_are_those_of_the_code(build):
    op, expression, index, advice = CASES[build]
    found = explained(*build())
    cause = found.cause
    assert (cause.op, cause.expression, cause.index) == (op, expression, index)
    assert advice in found.advice.text
    assert found.advice.grade == ""  # (no formula gives a value where there is none)
    assert "switch" not in found.advice.key


def test_a_value_that_is_computed_otherwise_is_noted():
    found = explained(*joined_with_a_product())
    assert found.notes == ("PyTensor joined 1 / 0.0 = inf with a product, and computes 0.0 / 0.0.",)


class Cube(Op):
    """x**3, whose gradient divides by x."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 3

    def L_op(self, inputs, outputs, gradients):
        return [gradients[0] * 3 * outputs[0] / inputs[0]]

    pullback = L_op


def test_the_gradient_of_an_own_operation_is_at_its_line():
    x = pt.dvector("x")
    slope = pytensor.grad(Cube()(x).sum(), x)
    found = explained([x], slope, [np.array([1.0, 0.0])], {})
    assert found.cause.source.function == "L_op"
    assert "outputs[0] / inputs[0]" in found.cause.source.text
    assert "check what L_op returns" in found.advice.text


def test_a_quotient_with_a_limit_has_that_in_its_advice():
    t = pt.dvector("t")
    found = explained([t], (pt.sin(np.pi * t) / (np.pi * t)).sum(), [np.array([0.5, 0.0])], {})
    assert "The quotient tends to 1.0 there." in found.advice.text
