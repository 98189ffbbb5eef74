"""Linear algebra, sorting and cumulative sums, as Theano 1.0.5 has them."""

import numpy as np
import pytest

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_30

RNG = np.random.RandomState(5)
SQUARE = RNG.rand(3, 3)
POSITIVE = SQUARE @ SQUARE.T + np.eye(3)


def evaluate(theano, expression, value, mode=None):
    """The value of an expression of the matrix `x`."""
    import theano.tensor.extra_ops
    import theano.tensor.nlinalg
    import theano.tensor.slinalg

    x = theano.tensor.dmatrix("x")
    result = eval(expression, {"T": theano.tensor, "x": x, "np": np})
    return theano.function([x], result, mode=mode)(value)


# Expressions of which the first matrix has no value.
RAISING = {
    "T.slinalg.cholesky({})": -POSITIVE,
    "T.slinalg.Cholesky(lower=False)({})": -POSITIVE,
    "T.slinalg.solve({}, np.eye(3))": np.zeros((3, 3)),
    "T.slinalg.solve_symmetric({}, np.ones(3))": np.zeros((3, 3)),
    "T.slinalg.solve_lower_triangular({}, np.ones(3))": np.zeros((3, 3)),
    "T.dot(T.nlinalg.matrix_inverse({}), np.ones(3))": np.zeros((3, 3)),
    "T.nlinalg.matrix_inverse(T.nlinalg.matrix_inverse({}))": np.zeros((3, 3)),
}


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "FAST_RUN"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("expression", RAISING)
def test_matrices_without_solution_raise(expression, gradient, mode, shim):
    bad = RAISING[expression]
    expression = expression.format("x")
    if gradient:
        expression = f"T.grad({expression}.sum(), x)"
    assert np.isfinite(evaluate(shim, expression, POSITIVE, mode)).all()
    with pytest.raises(np.linalg.LinAlgError):
        evaluate(shim, expression, bad, mode)


GRADIENTS = {
    "cholesky": lambda T, x: T.slinalg.cholesky(T.dot(x, x.T)),
    "upper cholesky": lambda T, x: T.slinalg.Cholesky(lower=False)(T.dot(x, x.T)),
    "cholesky with NaNs": lambda T, x: T.slinalg.Cholesky(on_error="nan")(T.dot(x, x.T)),
    "solve": lambda T, x: T.slinalg.solve(x, x.T),
    "solve a vector": lambda T, x: T.slinalg.solve(x, x[0]),
    "solve a triangle": lambda T, x: T.slinalg.solve_lower_triangular(x, x.T),
    "eigenvalues": lambda T, x: T.nlinalg.eigh(T.dot(x, x.T))[0],
    "eigenvectors": lambda T, x: T.nlinalg.eigh(T.dot(x, x.T), "U")[1] ** 2,
    "pair": lambda T, x: T.slinalg.eigvalsh(T.dot(x, x.T), T.dot(x, x.T) + T.eye(3)),
    "no pair": lambda T, x: T.slinalg.eigvalsh(T.dot(x, x.T), None).dot([1, 2, 3]),
    **{
        f"{name} along {axis}": lambda T, x, name=name, axis=axis: getattr(T, name)(x, axis) ** 2
        for name in ("cumsum", "cumprod", "sort")
        for axis in (None, 0, -1)
    },
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name, shim):
    import theano.tensor.slinalg  # noqa: F401
    from theano.tests import unittest_tools

    function = GRADIENTS[name]
    unittest_tools.verify_grad(lambda x: function(shim.tensor, x), [SQUARE], rng=RNG)


def test_old_gradients(shim):
    """The gradients that Theano has as operations are those of the functions."""
    from theano.tensor.slinalg import CholeskyGrad, cholesky

    T = shim.tensor
    x, weights = T.dmatrices("x", "weights")
    factor = cholesky(x)
    by_op = CholeskyGrad()(x, factor, weights)
    gradient = T.grad((factor * weights).sum(), x)
    found, expected = shim.function([x, weights], [by_op, gradient])(POSITIVE, SQUARE)
    np.testing.assert_allclose(found, expected)


def test_eigenvalues_are_of_the_dtype_of_the_matrix(shim):
    values, vectors = evaluate(shim, "T.nlinalg.eig(x)", POSITIVE)
    assert values.dtype == vectors.dtype == np.float64
    np.testing.assert_allclose(POSITIVE @ vectors, vectors * values)
    assert evaluate(shim, "T.nlinalg.eig(x)[1].shape", POSITIVE).tolist() == [3, 3]


def test_axis_as_an_input(shim):
    T = shim.tensor
    x, axis = T.dmatrix("x"), T.lscalar("axis")
    f = shim.function([x, axis], [T.sort(x, axis), T.argsort(x, axis), x.sort(axis)])
    for number in (0, 1, -1):
        in_order, places, method = f(SQUARE, number)
        np.testing.assert_array_equal(in_order, np.sort(SQUARE, number))
        np.testing.assert_array_equal(places, np.argsort(SQUARE, number))
        np.testing.assert_array_equal(method, in_order)


@pytest.mark.parametrize("as_input", [False, True])
@pytest.mark.parametrize("axis, first", [(0, "[0, 1] = 5.0"), (1, "[1, 0] = 4.0")])
def test_a_report_reads_along_the_axis(axis, first, as_input, shim):
    T = shim.tensor
    x, along = T.dmatrix("x"), T.lscalar("along")
    ordered = T.sort(x, along if as_input else axis)
    f = shim.function([x, along], T.log(ordered), mode=GuardMode(), on_unused_input="ignore")
    with pytest.raises(GuardError) as caught:
        f([[3.0, 5.0], [4.0, -2.0]], axis)
    assert f"  x{first} " in str(caught.value)


def test_a_known_axis_takes_pytensors_operations(shim):
    T = shim.tensor
    x = T.dmatrix("x")
    f = shim.function([x], [T.sort(x, None), T.sort(x, 0), T.argsort(x, -1)])
    ops = [node.op for node in f.maker.fgraph.toposort() if "Sort" in type(node.op).__name__]
    assert len(ops) == 3
    assert {type(op).__module__ for op in ops} == {"pytensor.tensor.sort"}


def test_an_axis_that_there_is_not(shim):
    T = shim.tensor
    x = T.dvector("x")
    for function in (T.sort, T.argsort):
        f = shim.function([x], function(x, 1))
        with pytest.raises(ValueError, match="out of bounds"):
            f([1.0, 2.0])


def test_operations_made_by_hand(shim):
    T = shim.tensor
    assert evaluate(shim, "T.extra_ops.CumOp()(x)", SQUARE).tolist() == np.cumsum(SQUARE).tolist()
    repeated = np.array([[2.0, 1.0, 2.0]])
    found, first = evaluate(shim, "T.extra_ops.Unique(True, axis=-1)(x)", repeated)
    assert (found.tolist(), first.tolist()) == ([[1.0, 2.0]], [1, 0])
    with pytest.raises(RuntimeError, match="outside of input ndim"):
        T.extra_ops.Unique(axis=2)(T.dmatrix())
    with pytest.raises(ValueError, match="out of bounds"):
        T.cumsum(T.dmatrix(), axis=2)
    with pytest.raises(NotImplementedError, match="sorted"):
        T.topk(T.dvector(), 2)


@pytest.mark.parametrize("k", [1, 2, 3, -1, -2, -3])
def test_largest_elements(k, shim):
    T = shim.tensor
    x = T.dmatrix("x")
    values, places = T.topk_and_argtopk(x, k, axis=0, sorted=False)
    gradient = T.grad((values**2).sum(), x)
    found, where, by_x = shim.function([x], [values, places, gradient])(SQUARE)
    expected = np.sort(SQUARE, axis=0)[slice(-k, None) if k > 0 else slice(-k)]
    np.testing.assert_array_equal(np.sort(found, axis=0), expected)
    np.testing.assert_array_equal(np.take_along_axis(SQUARE, where, 0), found)
    assert np.count_nonzero(by_x) == found.size


@pytest.mark.parametrize("name", ["topk", "argtopk"])
def test_only_what_is_used_of_the_largest_elements(name, shim):
    T = shim.tensor
    x = T.dvector("x")
    f = shim.function([x], getattr(T, name)(x, 1, sorted=False))
    assert len(f.maker.fgraph.outputs[0].owner.outputs) == 1
    assert f([1.0, 7.0, 5.0]).tolist() == ([7.0] if name == "topk" else [1])
