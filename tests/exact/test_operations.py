"""Every operation of PyTensor that has an exact value agrees with floats where they are right."""

import warnings

import numpy as np
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.compile.mode import Mode
from pytensor.tensor import fft, linalg, signal, special

import theanoguard
from theanoguard._pytensor import ifelse

pytestmark = pytest.mark.on_33

PYTHON = Mode("py", "fast_compile")

x = pt.dvector("x")
m = pt.dmatrix("m")
t = pt.dtensor3("t")
i = pt.lvector("i")
s = pt.dscalar("s")
f = pt.fvector("f")
c = sparse.csr_matrix("c", dtype="float64")
GIVEN = {
    x: np.array([0.3, -1.2, 2.5]),
    m: np.array([[1.0, 2.0, 3.0], [4.0, 5.5, 6.0]]),
    t: np.arange(12.0).reshape(2, 2, 3) + 0.5,
    i: np.array([2, 0, 1]),
    s: np.float64(0.7),
    f: np.array([0.1, 3.0], "float32"),
    c: scipy.sparse.csr_matrix([[0.0, 2.0, 0.0], [3.0, 0.0, -1.5]]),
}
square = m[:, :2]
grad = pytensor.grad
dense = sparse.dense_from_sparse


def _scan():
    def step(value, total):
        return total * 0.5 + pt.tanh(value)

    return pytensor.scan(step, sequences=[x], outputs_info=[pt.zeros(())], return_updates=False)


AGREE = {
    # products
    "einsum": pt.einsum("ij,kij->k", m, pt.stack([m, m])),
    "matmul": t @ t.transpose(0, 2, 1),
    "tensordot": pt.tensordot(t, m, axes=[[2], [1]]),
    "outer": pt.outer(x, x),
    "convolve1d": signal.convolve1d(x, x),
    # moving
    "pad": pt.pad(m, 1),
    "pad by reflection": pt.pad(x, 2, mode="reflect"),
    "roll": pt.roll(x, 1),
    "tile": pt.tile(x, 2),
    "repeat": pt.repeat(x, 2),
    "diff": pt.diff(x),
    "diagonal": pt.diag(square),
    "diagonal matrix": pt.diag(x),
    "triangle": pt.triu(m),
    "stack": pt.stack([x, x]),
    "split": pt.split(x, [1, 2], n_splits=2)[1],
    "alloc": pt.alloc(s, 2, 3),
    "eye": pt.eye(3) * s,
    "flip": pt.flip(x),
    "boolean mask": x[x > 0],
    "nonzero": x[(x > 0).nonzero()],
    "take": pt.take(m, i, axis=1),
    "set by index": pt.set_subtensor(x[i], s),
    "increment by mask": pt.inc_subtensor(x[x > 0], s),
    "repeated increments": pt.inc_subtensor(x[pt.constant([0, 0])], s),
    "set columns": pt.set_subtensor(m[:, i], 0.0),
    "fill diagonal": pt.fill_diagonal(m, s),
    "moveaxis": pt.moveaxis(t, 0, 2),
    "block_diag": linalg.block_diag(m, m),
    "linspace": pt.linspace(0, s, 4),
    "arange": pt.arange(0, s, 0.25),
    "vectorize": pt.vectorize(lambda a: a.sum() * a, signature="(n)->(n)")(m),
    # along axes
    "cumsum": pt.cumsum(m, axis=1),
    "cumprod": pt.cumprod(x),
    "sort": pt.sort(x),
    "argsort": pt.argsort(x),
    "argmax": pt.argmax(x),
    "searchsorted": pt.searchsorted(pt.sort(x), s),
    "all": pt.all(x > 0),
    "std": pt.std(x),
    "ptp": pt.ptp(x),
    "norm": linalg.norm(x),
    "softmax": special.softmax(m, axis=1),
    "log_softmax": special.log_softmax(m),
    "logsumexp": pt.logsumexp(m, axis=1),
    "logaddexp": pt.logaddexp(x, s),
    "bincount": pt.bincount(i, weights=x),
    # elementwise
    "clip": pt.clip(x, 0, 1),
    "float32": pt.exp(f) / 3,
    "round": pt.round(x),
    "modulus": x % 2,
    "floor division": x // 2,
    "integer power": x**3,
    "cast to integers": pt.cast(x * 3, "int32"),
    "isclose": pt.isclose(x, s),
    "kv": pt.kv(s, s + 1),
    "iv": pt.iv(s, s + 1),
    "beta": special.beta(s, s + 1),
    "poch": special.poch(s, 3.0),
    "ifelse": ifelse(s > 0, x, pt.log(-x - 9)),
    # gradients
    "gradient of softmax": grad(special.softmax(m)[0, 0], m),
    "gradient of prod": grad(pt.prod(x), x),
    "gradient of max": grad(pt.max(m, axis=1).sum(), m),
    "gradient of kve": grad(pt.kve(1.5, s), s),
    "gradient of jv": grad(pt.jv(1.5, s), s),
    "gradient of digamma": grad(pt.digamma(s), s),
    "gradient of cumprod": grad(pt.cumprod(x)[2], x),
    "jacobian": pytensor.gradient.jacobian(x**3, x),
    "hessian": pytensor.gradient.hessian((x**3).sum(), x),
    "loop": _scan(),
    "gradient of a loop": grad(_scan()[-1], x),
    # sparse matrices
    "sparse input": dense(c) * 2.0,
    "sparse product": sparse.dot(c, m.T),
    "gradient of a sparse product": grad(sparse.dot(c, m.T).sum(), m),
    "structured product": dense(sparse.csr_from_dense(m) * 2.0),
    "sparse sum": sparse.sp_sum(c, axis=0),
    "sum of sparse matrices": dense(c + c),
    "elementwise sparse product": dense(c * c),
    "sparse transpose": dense(sparse.transpose(c)),
    "structured function": dense(sparse.structured_exp(c)),
}


@pytest.mark.parametrize("name", AGREE)
def test_agrees_with_floats(name):
    output = AGREE[name]
    found = theanoguard.exact(output, GIVEN)
    with pytensor.config.change_flags(cxx=""):  # inner graphs are not compiled either
        compute = pytensor.function(list(GIVEN), output, mode=PYTHON, on_unused_input="ignore")
    assert (found.known == "number").all()
    assert found.notes == ()
    single = "float32" in str(output.type.dtype)
    expected = compute(*GIVEN.values())
    np.testing.assert_allclose(expected, found.mid, rtol=1e-6 if single else 1e-9, atol=1e-12)


WITH_FLOATS = {
    "complex numbers": abs(pt.complex(x, x)),
    "Fourier transform": fft.rfft(m),
    "LU decomposition": linalg.lu(square)[1],
    "draw": pt.random.normal(0, 1, size=2, rng=pytensor.shared(np.random.default_rng(3))),
    "gradient by the order": grad(pt.gammainc(s, s + 1), s),
}


@pytest.mark.parametrize("name", WITH_FLOATS)
def test_operation_without_an_exact_value_takes_floats_and_says_so(name):
    output = WITH_FLOATS[name]
    found = theanoguard.exact(output * 2, GIVEN)
    assert "live" in {note.kind for note in found.notes}
    assert (found.known == "number").all()


def test_own_operation_takes_floats():
    class Own(pytensor.graph.op.Op):
        itypes = otypes = (pt.dvector,)

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] * 2

    found = theanoguard.exact(pt.exp(Own()(x)) - 1, GIVEN)
    assert [note.kind for note in found.notes] == ["live"]
    assert str(found.notes[0]).startswith("own")
    np.testing.assert_allclose(found.mid, np.exp(2 * GIVEN[x]) - 1)


def test_labelled_arrays():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # (PyTensor says that labelled arrays are experimental)
        from pytensor.xtensor import xtensor

    v = xtensor("v", dims=("row",))
    from pytensor.xtensor.math import exp, log

    found = theanoguard.exact(log(exp(v).sum()), {v: np.array([1000.0, 1000.0])})
    assert str(found) == "1000.69314718"
