"""A NaN that a product multiplies by zeros alone is found, whatever the lengths of the axes."""

import itertools
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode
from theanoguard.guard import products

# What is multiplied, the shapes for lengths m, k and n, and the operation on C.
PRODUCTS = {
    "matrices": (lambda a, b: a @ b, ["mk", "kn"], "Dot22"),
    "matrices, scaled": (lambda a, b: 0.5 * (a @ b), ["mk", "kn"], "Dot22Scalar"),
    "matrices, added": (lambda z, a, b: z + 0.5 * (a @ b), ["mn", "mk", "kn"], "Gemm"),
    "a vector, added": (lambda z, a, b: z + 0.5 * (a @ b), ["m", "mk", "k"], "Gemv"),
    "a vector": (lambda a, b: a @ b, ["mk", "k"], "Gemv"),
    "vectors": (lambda a, b: a @ b, ["k", "k"], "Gemv"),
    "an outer product": (lambda z, a, b: z + 0.5 * pt.outer(a, b), ["mn", "m", "n"], ""),
    "batches": (lambda a, b: pt.matmul(a, b), ["bmk", "bkn"], ""),
}
SHAPES = list(itertools.product((0, 1, 2, 7), repeat=3))


def places(shape):
    """The first element of an array, one in the middle and the last."""
    return {tuple(0 for _ in shape), tuple(n // 2 for n in shape), tuple(n - 1 for n in shape)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_bad_operand_that_meets_zeros(name, dtype):
    make, axes, op = PRODUCTS[name]
    inputs = [pt.tensor(str(i), dtype=dtype, shape=(None,) * len(a)) for i, a in enumerate(axes)]
    result = make(*inputs).astype(dtype)
    f = pytensor.function(inputs, result, mode=GuardMode(big_is_error=False))
    if pytensor.config.cxx and GuardMode.summary(f).backend == "c":
        assert any(op in type(node.op).__name__ for node in f.maker.fgraph.apply_nodes)

    def arrays(lengths):
        sizes = dict(zip("mkn", lengths, strict=True), b=2)
        return [np.zeros([sizes[c] for c in a], dtype) for a in axes]

    def all_are_found(shapes):
        for lengths in shapes:
            for i, order in itertools.product(range(len(axes)), "CF"):
                values = arrays(lengths)
                values[i] = np.asarray(values[i], order=order)
                for place in places(values[i].shape) if values[i].size else ():
                    for bad in (np.nan, -np.inf):
                        values[i][place] = bad
                        with pytest.raises(GuardError) as caught:
                            f(*values)
                        assert caught.value.event.role == "input"
                    values[i][place] = 0

    all_are_found(SHAPES)
    for lengths in SHAPES:  # after which the guard may rely on less
        f(*arrays(lengths))
    all_are_found(SHAPES[::5])


def test_trying_products_warns_of_nothing(monkeypatch):
    monkeypatch.setattr(products, "_tried", {})
    a, b = pt.dmatrices("a", "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        pytensor.function([a, b], a @ b, mode=GuardMode(big_is_error=False))
