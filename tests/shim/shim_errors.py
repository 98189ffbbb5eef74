"""Calls with wrong indices and shapes: whether Theano 1.0.5 raises or computes.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_errors.py  # with Theano 1.0.5

A rewrite may remove the operation that would have raised.  The expressions are enumerated: what is
read from what is sliced or written, what is multiplied with zeros, and so on.  Recorded are, for
each mode, the values or the class of the exception.
"""

import itertools
import json
import os

import numpy as np

# `k` is 0, `n` is 9 (out of range), `j` is -9, `i` is 1.
INPUTS = {
    "x": np.arange(3.0),
    "m": np.arange(6.0).reshape(2, 3),
    "w": np.arange(1.0, 9.0).reshape(2, 4),
    "u": np.arange(1.0, 5.0),
    "y": np.array(7.0),
    "k": np.array(0),
    "i": np.array(1),
    "n": np.array(9),
    "j": np.array(-9),
    "p": np.array([0, 9]),
    "q": np.array([0, 1]),
}
INDICES = ["k", "i", "n", "j", "-1", "2", "5"]
VIEWS = ["x", "x[:k]", "x[:i]", "x[i:]", "x[n:]", "x[k:i]", "x[::-1]", "x[:k:-1]", "x[:2]", "x[5:]"]
WRITTEN = ["y", "2.0"]
READS = [
    "{0}[{1}]",
    "T.set_subtensor({0}[{1}], y)",
    "T.inc_subtensor({0}[{1}], y)",
]
OF_MATRICES = [
    "m[:k][{0}]",
    "m[:, :k][:, {0}]",
    "m[{0}][:k]",
    "m[:i][:, {0}]",
    "m.T[{0}]",
    "(m + 1)[{0}]",
    "(m + x)[{0}]",
    "T.exp(m)[{0}]",
    "m.sum(axis=1)[{0}]",
    "m.max(axis=0)[{0}]",
    "T.dot(m, m.T)[{0}]",
    "T.nnet.softmax(m)[{0}]",
    "T.alloc(1.0, 2, 3)[{0}]",
    "T.alloc(y, 2)[{0}]",
    "T.zeros_like(m)[{0}]",
    "T.arange(3)[{0}]",
    "T.concatenate([x, x])[{0}]",
    "T.stack([y, y])[{0}]",
    "T.join(0, x, u)[{0}]",
    "x.dimshuffle('x', 0)[{0}]",
    "x.dimshuffle('x', 0)[:, {0}]",
    "x.reshape((3, 1))[{0}]",
    "x.reshape((3, 1))[{0}, 0]",
    "x[::-1][::-1][{0}]",
    "x[1:][1:][{0}]",
    "x.shape[{0}]",
    "m.shape[{0}]",
    "T.set_subtensor(x[{0}], y)[{0}]",
    "T.set_subtensor(m[{0}], x)[{0}]",
    "T.set_subtensor(m[{0}], y)[{0}]",
    "T.set_subtensor(m[:, {0}], y)[:, {0}]",
    "T.inc_subtensor(x[{0}], y)[{0}]",
    "T.set_subtensor(x[{0}], y)[k]",
    "T.set_subtensor(x[:2], 0.0)[{0}]",
    "T.set_subtensor(T.zeros((3,))[{0}], y)",
    "T.inc_subtensor(T.zeros((3,))[{0}], y)",
    "T.inc_subtensor(T.zeros_like(x)[{0}], y)",
    "T.set_subtensor(x[{0}], x[{0}])",
    "T.set_subtensor(x[{0}], x[{0}] + y)",
    "T.inc_subtensor(x[{0}], 0.0)",
    "T.grad(x[{0}] ** 2, x)",
    "T.grad((x * y)[{0}], y)",
    "x[{0}] * 0",
    "0 * x[{0}]",
    "x[{0}] - x[{0}]",
    "T.switch(1, y, x[{0}])",
]
BY_VECTORS = [
    "x[{0}]",
    "x[:i][{0}]",
    "m[{0}]",
    "m[:, {0}]",
    "m[{0}, {0}]",
    "m[{0}][:, {0}]",
    "T.set_subtensor(x[{0}], y)",
    "T.set_subtensor(x[{0}], y)[{0}]",
    "T.inc_subtensor(x[{0}], y)[{0}]",
    "T.set_subtensor(m[{0}], y)[{0}]",
    "T.inc_subtensor(T.zeros_like(x)[{0}], y)",
    "T.set_subtensor(x[{0}], x[{0}])",
    "x[{0}] * 0",
    "T.grad(x[{0}].sum(), x)",
    "T.grad(m[:, {0}].sum(), m)",
    "T.take(x, {0})",
    "T.alloc(y, 2)[{0}]",
    "T.arange(3)[{0}]",
    "T.nnet.softmax(m)[T.arange(2), {0}]",
    "-T.log(T.nnet.softmax(m))[T.arange(2), {0}]",
    "T.nnet.categorical_crossentropy(T.nnet.softmax(m), {0})",
    "T.grad(T.nnet.categorical_crossentropy(T.nnet.softmax(m), {0}).sum(), m)",
    "T.extra_ops.to_one_hot({0}, 3)",
    "T.choose(q, T.stack([x[:2], u[:2]]))",
]
OF_SHAPES = [
    "T.dot(m, w)",
    "T.dot(m, u)",
    "T.dot(u, m)",
    "T.dot(x, u)",
    "T.dot(m, w) * 0",
    "T.dot(m, T.zeros_like(w))",
    "T.dot(T.zeros_like(m), w)",
    "T.dot(m, T.zeros((4, 2)))",
    "T.dot(T.zeros((2, 4)), m)",
    "T.dot(m, T.zeros((4,)))",
    "T.dot(T.zeros((4,)), x)",
    "T.dot(x, T.zeros_like(u))",
    "T.dot(m, 0 * u)",
    "T.dot(m, w)[0]",
    "T.dot(m, w)[:, :1]",
    "T.dot(m, w).sum()",
    "T.dot(m, w).shape",
    "T.dot(m, w).T",
    "T.tensordot(m, w, [[1], [0]])",
    "T.batched_dot(m.dimshuffle('x', 0, 1), w.dimshuffle('x', 0, 1))",
    "x + u",
    "x * u",
    "(x + u).sum()",
    "(x * u) * 0",
    "0 * (x + u)",
    "(x + u) - (x + u)",
    "(x * u) / u",
    "(x + u) - u",
    "(x * u)[0]",
    "(x + u)[:1]",
    "(x + u)[0]",
    "T.exp(x + u)[0]",
    "(x + u).shape",
    "(x + u).shape[0]",
    "T.zeros_like(x + u)",
    "T.zeros_like(x) + u",
    "T.zeros_like(x) * u",
    "T.ones_like(x) * u",
    "T.zeros((3,)) + u",
    "T.zeros((3,)) * u",
    "T.ones((3,)) * u",
    "T.alloc(y, 3) + u",
    "T.fill(x, 1.0) * u",
    "T.second(x, u)",
    "T.switch(1, x, u)",
    "T.switch(0, x, u)",
    "T.switch(x > 0, x, u)",
    "T.maximum(x, u)",
    "T.eq(x, u)",
    "x ** 0 + u",
    "x - x + u",
    "x / x * u",
    "T.sqrt(x * u)[0]",
    "m + w",
    "m + u",
    "(m + w).sum(axis=0)",
    "(m + w).T",
    "(m * w).sum()",
    "T.sum(m * 0 + w)",
    "T.grad((x * u).sum(), x)",
    "T.grad((x + u).sum(), x)",
    "T.grad(((x + u) * 0).sum(), x)",
    "T.grad(T.dot(m, w).sum(), m)",
    "T.concatenate([m, w])",
    "T.concatenate([m, w], axis=0)[0]",
    "T.concatenate([m, w], axis=1)[0]",
    "T.stack([x, u])",
    "T.stack([x, u])[0]",
    "T.stack([x, u])[1, 0]",
    "x.reshape((2, 2))",
    "x.reshape((2, 2)).shape",
    "x.reshape((2, 2)).sum()",
    "x.reshape((2, 2)).reshape((3,))",
    "x.reshape((2, -1))",
    "x.reshape((1, 4))[0]",
    "x.reshape((4, 1)).flatten()",
    "T.zeros((3,)).reshape((2, 2))",
    "T.alloc(x, 2, 4)",
    "T.alloc(x, 2, 4)[0]",
    "T.alloc(x, 4).sum()",
    "T.alloc(x, 4) * 0",
    "T.alloc(x, 4)[0]",
    "T.alloc(T.zeros_like(x), 4)",
    "T.specify_shape(x, (4,))",
    "T.specify_shape(x, (4,))[0]",
    "T.specify_shape(x, (4,)).shape",
    "T.specify_shape(x, (4,)).sum()",
    "T.set_subtensor(x[:2], u)",
    "T.set_subtensor(x[:2], u)[:2]",
    "T.set_subtensor(x[:], u)",
    "T.set_subtensor(x[:4], u)",
    "T.inc_subtensor(x[:], u)",
    "T.inc_subtensor(x[:2], u)[2]",
    "T.inc_subtensor(x[:2], u * 0)",
    "T.set_subtensor(T.zeros((3,))[:], u)",
    "T.inc_subtensor(T.zeros_like(x)[:], u)",
    "T.set_subtensor(m[0], u)",
    "T.set_subtensor(m[0], u)[0]",
    "T.set_subtensor(m[0], u)[1]",
    "T.inc_subtensor(m[0], u)[0]",
    "T.set_subtensor(m[q], w)",
    "T.set_subtensor(m[q], w)[q]",
    "T.split(x, [1, 1], 2)[0]",
    "T.split(x, [2, 2], 2)[1]",
    "T.addbroadcast(m, 0)",
    "T.addbroadcast(m, 0).dimshuffle(1)",
    "T.addbroadcast(m, 0) * 0",
    "T.patternbroadcast(m, (True, False)) + x",
    "m.squeeze() + u",
    "T.diag(m)[2]",
    "T.eye(3)[5]",
    "T.eye(2, 3).dot(u)",
    "T.nlinalg.det(m)",
    "T.nlinalg.matrix_inverse(m)",
    "T.nlinalg.matrix_inverse(T.nlinalg.matrix_inverse(m))",
    "T.nlinalg.matrix_inverse(T.zeros((2, 2)))",
    "T.nlinalg.matrix_inverse(m[:, :2] * 0)",
    "T.dot(T.nlinalg.matrix_inverse(m[:, :2] * 0), q)",
    "T.nlinalg.det(T.nlinalg.matrix_inverse(m[:, :2] * 0))",
    "T.nlinalg.eig(m)[0]",
    "T.nlinalg.eigh(m)[0]",
    "T.nlinalg.trace(m)",
    "T.slinalg.solve(m, y * u)",
    "T.slinalg.cholesky(m)",
    "T.slinalg.cholesky(-T.eye(2) * y)",
    "T.slinalg.cholesky(-T.eye(2))",
    "T.slinalg.solve(T.zeros((2, 2)), q * y)",
    "T.grad(T.slinalg.cholesky(-T.eye(2) * y).sum(), y)",
    "T.grad(T.slinalg.solve(T.zeros((2, 2)) * y, q * y).sum(), y)",
    "T.nnet.softmax(m + w)",
    "T.nnet.crossentropy_softmax_argmax_1hot_with_bias(m, u, q)[0]",
    "T.nnet.conv2d(m.dimshuffle('x', 'x', 0, 1), w.dimshuffle('x', 'x', 0, 1))",
    "theano.scan(lambda a, b: a + b, [x, u])[0]",
    "theano.scan(lambda a: a * 2, x[:k])[0]",
    "theano.scan(lambda a: a * 2, x[:k])[0][-1]",
    "theano.scan(lambda a: a * 2, x, n_steps=5)[0]",
    "theano.scan(lambda a: a * 2, x, n_steps=i - 1)[0][-1]",
    "theano.scan(lambda a: a * 2, outputs_info=y, n_steps=i - 1)[0][-1]",
    "theano.scan(lambda a: a * 2, outputs_info=y, n_steps=j)[0][-1]",
    "theano.scan(lambda a: a + u, outputs_info=x, n_steps=2)[0][-1]",
    "theano.ifelse.ifelse(k, x + u, x)",
    "theano.ifelse.ifelse(i, x + u, x)",
    "T.max(x[:k])",
    "T.argmax(x[:k])",
    "T.mean(x[:k])",
    "T.sum(x[:k])",
    "T.max(m[:k], axis=0)",
    "T.arange(i, n, k)",
    "T.mod(i, k)",
    "i // k",
    "T.cast(y, 'int64') // k",
    "T.opt.Assert('wrong')(x, T.eq(y, 0)) * 0",
    "T.opt.Assert('wrong')(x, T.eq(y, 0))[:1]",
    "T.opt.Assert('wrong')(x, T.eq(y, 0)).shape",
    "T.opt.Assert('wrong')(x, T.lt(y * y, 0))",
]


def cases():
    """Every expression."""
    return [
        *(form.format(*pair) for form in READS for pair in itertools.product(VIEWS, INDICES)),
        *(form.format(index) for form in OF_MATRICES for index in INDICES),
        *(form.format(index) for form in BY_VECTORS for index in ("p", "q")),
        *OF_SHAPES,
    ]


MODES = ["fast_run", "fast_compile", "None"]


def answer(theano, case, optimizer):
    """What a call gives, or the exception that it or its graph raises."""
    T = theano.tensor
    made = {name: T.TensorType(v.dtype, (False,) * v.ndim)(name) for name, v in INPUTS.items()}
    try:
        result = eval(case, dict(made, T=T, theano=theano, np=np))
        needed = theano.gof.graph.inputs([result])
        given = [v for v in made.values() if v in needed]
        linker = theano.compile.get_mode("FAST_COMPILE").linker.clone()
        function = theano.function(given, result, mode=theano.Mode(linker, optimizer))
        with np.errstate(all="ignore"):
            value = np.asarray(function(*[INPUTS[v.name] for v in given]))
    except Exception as error:
        return type(error).__name__, error
    numbers = " ".join(f"{float(number):.5g}" for number in value.ravel())
    return f"{list(value.shape)} {numbers}", None


def main():
    import theano
    import theano.ifelse
    import theano.tensor.slinalg

    found = {}
    for case in cases():
        answers = [answer(theano, case, optimizer)[0] for optimizer in MODES]
        found[case] = answers[0] if len(set(answers)) == 1 else answers
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(case) + ": " + json.dumps(found[case]) for case in found]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
