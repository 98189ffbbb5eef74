"""Operands that do not fit: the report names the user's operation, its operands and shapes."""

import inspect
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardMode

pytestmark = pytest.mark.on_30


def sum_inside(x, y, z):
    h = x * z
    return pt.exp(h + y)  # here


def product_of_formulas(x, y, z):
    h = pt.exp(x * 2)
    g = pt.sqrt(y + 1)
    scaled = h * g  # here
    return pt.tanh(scaled - z)


def first_of_a_chain(x, y, z):
    both = x + y  # here
    return pt.exp(both + z)


def last_of_a_chain(x, y, z):
    both = x + z
    return pt.exp(both + y)  # here


def fused_reduction(x, y, z):
    err = x - y  # here
    return (err**2).sum()


def gradient(x, y, z):
    err = x - y  # here
    return pt.grad((pt.tanh(err) ** 2).sum(), x)


def choice(x, y, z):
    return pt.switch(x > 0, pt.log(z), y)  # here


def inner_product(x, y, z):
    return 2 * pt.dot(x, y)  # here


def stacked(x, y, z):
    return pt.exp(pt.stack([x, y]))  # here


def bias(X, y, z):
    return pt.tanh(X + y)  # here


def layer(X, W, z):
    return pt.tanh(X @ W)  # here


def added_to_product(X, W, B):
    return X @ W + B  # here


def added_to_vector(X, y, z):
    return y + X @ z  # here


def batched(T, U):
    return pt.exp(pt.matmul(T, U))  # here


def joined(X, W):
    return pt.concatenate([X, W], axis=1)  # here


def not_declared(X, W):
    return pt.exp(X - W)  # here


def system(X, y, z):
    return pt.linalg.solve(X, y)  # here


def written_to_a_slice(x, y, z):
    return x[1:].set(y)  # here


def added_at_an_index(x, y, z):
    rows = pt.constant(np.array([0, 2]), name="rows")
    return x[rows].inc(y)  # here


def reshaped(x, y, z):
    return pt.exp(x.reshape((2, 2)))  # here


def reshaped_to_the_rest(x, y, z):
    return pt.exp(x.reshape((-1, 2)))  # here


def indexed_by_two(X, y, z):
    rows = (y > 0).nonzero()[0]
    columns = (z > 0).nonzero()[0]
    return X[rows, columns]  # here


def masked(x, y, z):
    return x[y > 0]  # here


def drawn(x, y, z):
    rng = pytensor.shared(np.random.default_rng(1))
    return pt.random.normal(x, y, rng=rng)  # here


def drawn_between(x, y, z):
    return pt.random.uniform(x, y, rng=pytensor.shared(np.random.default_rng(1)))  # here


def loop(X, y, z):
    def step(row, state):
        return pt.tanh(2 * state + row)  # here

    return pytensor.scan(step, sequences=[X], outputs_info=[y], return_updates=False)


@dataclass(frozen=True)
class Case:
    """A model, the shapes of its inputs, and what the report says of the misfit."""

    model: object
    shapes: tuple
    said: str
    where: str = ""


EQUAL = "axis 0 must be equal"
OR_ONE = f"{EQUAL}, or 1 and broadcastable"
VECTORS = ((3,), (4,), (3,))

CASES = [
    Case(sum_inside, VECTORS, f"sum: h + y: h has shape (3,), y has shape (4,); {OR_ONE}"),
    Case(
        product_of_formulas,
        VECTORS,
        f"product: h * g: h has shape (3,), g has shape (4,); {OR_ONE}",
    ),
    Case(first_of_a_chain, VECTORS, f"sum: x + y: x has shape (3,), y has shape (4,); {OR_ONE}"),
    Case(
        last_of_a_chain,
        VECTORS,
        f"sum: both + y: both has shape (3,), y has shape (4,); {OR_ONE}",
    ),
    Case(
        fused_reduction,
        VECTORS,
        f"difference: x - y: x has shape (3,), y has shape (4,); {OR_ONE}",
    ),
    Case(gradient, VECTORS, f"difference: x - y: x has shape (3,), y has shape (4,); {OR_ONE}"),
    Case(
        choice,
        VECTORS,
        "switch: switch(x > 0, log(z), y): x > 0 has shape (3,), y has shape (4,); " + OR_ONE,
    ),
    Case(
        inner_product,
        VECTORS,
        f"dot: dot(x, y): x has shape (3,), y has shape (4,); {EQUAL}",
    ),
    Case(
        stacked,
        VECTORS,
        f"concatenate: stack([x, y]): x has shape (3,), y has shape (4,); {EQUAL}",
    ),
    Case(
        bias,
        ((2, 3), (4,), (3,)),
        "sum: X + y: X has shape (2, 3), y has shape (4,); axis 1 of X and axis 0 of y must be"
        " equal, or 1 and broadcastable",
    ),
    Case(
        layer,
        ((2, 3), (4, 5), (3,)),
        "dot: X @ W: X has shape (2, 3), W has shape (4, 5); axis 1 of X and axis 0 of W must be"
        " equal",
    ),
    Case(
        added_to_product,
        ((2, 3), (3, 5), (2, 4)),
        "sum: X @ W + B: X @ W has shape (2, 5), B has shape (2, 4); axis 1 must be equal, or 1"
        " and broadcastable",
    ),
    Case(
        added_to_vector,
        ((2, 3), (4,), (3,)),
        f"sum: y + X @ z: y has shape (4,), X @ z has shape (2,); {OR_ONE}",
    ),
    Case(
        batched,
        ((2, 3, 4), (2, 5, 4)),
        "dot: matmul(T, U): T has shape (2, 3, 4), U has shape (2, 5, 4); axis 2 of T and axis 1"
        " of U must be equal",
    ),
    Case(
        joined,
        ((2, 3), (3, 4)),
        "concatenate: concatenate([X, W], axis=1): X has shape (2, 3), W has shape (3, 4); "
        + EQUAL,
    ),
    Case(
        not_declared,
        ((2, 3), (1, 3)),
        "difference: X - W: X has shape (2, 3), W has shape (1, 3); axis 0 of W is 1, but its"
        " type does not declare that",
    ),
    Case(
        system,
        ((3, 3), (4,), (1,)),
        f"solve: solve(X, y): X has shape (3, 3), y has shape (4,); {EQUAL}",
    ),
    Case(
        written_to_a_slice,
        VECTORS,
        f"indexed update: x[1:].set(y): x[1:] has shape (2,), y has shape (4,); {OR_ONE}",
    ),
    Case(
        added_at_an_index,
        VECTORS,
        f"indexed update: x[rows].inc(y): x[rows] has shape (2,), y has shape (4,); {OR_ONE}",
    ),
    Case(
        reshaped,
        VECTORS,
        "reshape: x.reshape((2, 2)): x has 3 elements, the shape (2, 2) takes 4",
    ),
    Case(
        reshaped_to_the_rest,
        VECTORS,
        "reshape: x.reshape((-1, 2)): x has 3 elements, the shape (-1, 2) takes a multiple of 2",
    ),
    Case(
        indexed_by_two,
        ((5, 5), (4,), (3,)),
        f"indexing: X[rows, columns]: (y > 0).nonzero() has shape (4,), (z > 0).nonzero() has shape"
        f" (3,); {OR_ONE}",
    ),
    Case(masked, VECTORS, f"indexing: x[y > 0]: x has shape (3,), y > 0 has shape (4,); {EQUAL}"),
    Case(
        drawn,
        VECTORS,
        "normal_rv: normal(x, y, rng=rng): x has shape (3,), y has shape (4,); " + OR_ONE,
    ),
    Case(
        drawn_between,
        VECTORS,
        "uniform_rv: uniform(x, y, rng=shared(default_rng(1))): x has shape"
        " (3,), y has shape (4,); " + OR_ONE,
    ),
    Case(
        loop,
        ((5, 4), (3,), (1,)),
        f"sum: 2 * state + row: 2 * state has shape (3,), row has shape (4,); {OR_ONE}",
        "inside step 0 of scan",
    ),
]
ON_NUMBA = (
    sum_inside,
    bias,
    added_to_product,
    joined,
    written_to_a_slice,
    reshaped,
    gradient,
    loop,
)


def report_of(case, backend):
    names = inspect.signature(case.model).parameters
    inputs = [
        pt.tensor(name, dtype="float64", shape=(None,) * len(shape))
        for name, shape in zip(names, case.shapes, strict=True)
    ]
    fn = pytensor.function(
        inputs,
        case.model(*inputs),
        mode=GuardMode(backend=backend, optimizer="fast_run"),
        on_unused_input="ignore",
    )
    with pytest.raises((ValueError, TypeError, IndexError, AssertionError)) as caught:
        fn(*map(np.ones, case.shapes))
    return type(caught.value).__name__, caught.value.__notes__[0]


def line_of(model):
    lines, first = inspect.getsourcelines(model)
    return first + next(i for i, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__)
def test_the_operation_whose_operands_do_not_fit(case, c_backend):
    error, report = report_of(case, "c")
    assert report.splitlines()[0] == f"{error} in {case.said}"
    assert f"test_mismatch.py:{line_of(case.model)}:" in report
    assert case.where in report


@pytest.mark.parametrize("model", ON_NUMBA, ids=lambda model: model.__name__)
def test_the_same_on_numba(model):
    pytest.importorskip("numba")
    case = next(case for case in CASES if case.model is model)
    error, report = report_of(case, "numba")
    assert report.splitlines()[0] == f"{error} in {case.said}"
    assert f"test_mismatch.py:{line_of(case.model)}:" in report
    assert case.where in report


def test_an_error_in_the_gradient_of_a_loop(c_backend):
    masks, x = pt.tensor("masks", dtype="bool", shape=(None, None)), pt.dvector("x")

    def step(mask, state):
        return pt.set_subtensor(state[mask], 0.5)

    states = pytensor.scan(step, sequences=[masks], outputs_info=[x], return_updates=False)
    f = pytensor.function([masks, x], pt.grad(states[-1].sum(), x), mode=GuardMode())
    with pytest.raises(IndexError) as caught:
        f(np.ones((2, 4), bool), np.ones(3))
    assert "inside the gradient of step 1 of the loop" in caught.value.__notes__[0]
