"""Graphs pickled by Theano 1.0.5, which the shim has to load, and what they compute.

Run by Python 3.7 with Theano 1.0.5 installed, this writes them to ``shim_pickles.json``::

    python3.7 tests/shim/shim_pickles.py
"""

import base64
import json
import os
import pickle
import zlib

import numpy as np

X = np.array([[0.5, 0.25], [0.125, 1.0], [0.75, 0.0625]])
ROWS = np.array([2, 0, 1])

CASES = {
    "slices": lambda T, x, rows: x[1:, 0] + x[-1, ::-1][0],
    "set a row": lambda T, x, rows: T.set_subtensor(x[0], 0),
    "add to rows": lambda T, x, rows: T.inc_subtensor(x[rows], 1),
    "elements": lambda T, x, rows: x[T.arange(3), rows % 2],
    "set elements": lambda T, x, rows: T.set_subtensor(x[T.arange(3), rows % 2], 2),
    "elements of a slice": lambda T, x, rows: x[rows, :1],
    "concatenate": lambda T, x, rows: T.concatenate([x, x[:1]], axis=0),
    "maximum": lambda T, x, rows: x.max(axis=1),
    "argmax": lambda T, x, rows: T.argmax(x, axis=0),
    "network": lambda T, x, rows: T.nnet.softmax(T.tanh(x.T).reshape((-1, 3)).dimshuffle(1, 0)),
    "cost": lambda T, x, rows: T.nnet.categorical_crossentropy(x, rows % 2).mean(),
    "comparisons": lambda T, x, rows: T.switch(T.gt(x, 0.2) & (x < 0.8), x, T.eq(x, 1) + 0.5),
    "sort": lambda T, x, rows: T.sort(x, axis=0),
    "argsort": lambda T, x, rows: T.argsort(x, axis=1),
    "batched_dot": lambda T, x, rows: T.batched_dot(
        x.dimshuffle(0, "x", 1), x.dimshuffle(0, 1, "x")
    ),
    "gradient of max": lambda T, x, rows: T.grad(x.max(axis=1).sum(), x),
    "dot with a vector": lambda T, x, rows: T.dot(x, x[0]) + T.dot(x[0], x[1]),
    "dot of matrices": lambda T, x, rows: T.dot(x, x.T),
    "casts": lambda T, x, rows: T.cast(x, "float32") + T.cast(x * 4, "int8"),
    "reductions": lambda T, x, rows: (
        x.sum(axis=0) + x.mean(axis=0) + x.prod(axis=0) + x.var(axis=0)
    ),
    "all and any": lambda T, x, rows: T.all(x > 0, axis=0) + T.any(x > 0.7, axis=0),
    "allocations": lambda T, x, rows: T.alloc(x[0, 0], 2, 3) + T.zeros((2, 3)) + T.ones_like(x).T,
    "eye and arange": lambda T, x, rows: T.eye(3) + T.arange(3) + T.arange(rows[0] + 1),
    "split": lambda T, x, rows: T.split(x, [1, 2], 2, axis=0)[1],
    "repeat and tile": lambda T, x, rows: T.repeat(x, 2, axis=0) + T.tile(x, (2, 1)),
    "cumsum": lambda T, x, rows: T.cumsum(x, axis=0),
    "diagonals": lambda T, x, rows: T.diag(T.diag(x[:2])),
    "linear algebra": lambda T, x, rows: T.nlinalg.matrix_inverse(x[:2]) * T.nlinalg.det(x[:2]),
    "activations": lambda T, x, rows: (
        T.nnet.sigmoid(x) + T.nnet.softplus(x) + T.nnet.relu(x, 0.1) + T.nnet.hard_sigmoid(x)
    ),
    "cross-entropy of distributions": lambda T, x, rows: T.nnet.categorical_crossentropy(x, x),
    "binary cross-entropy": lambda T, x, rows: T.nnet.binary_crossentropy(x[:1] / 2, x[1:2] / 2),
    "one hot": lambda T, x, rows: T.extra_ops.to_one_hot(rows, 3),
    "masks": lambda T, x, rows: x[(x > 0.2).nonzero()],
    "special functions": lambda T, x, rows: T.erf(x) + T.gammaln(x) + T.psi(x) + T.log1p(x),
    "powers and rounding": lambda T, x, rows: x**2 + T.sqrt(x) + T.round(x) + T.floor(x) + x % 0.3,
    "clip and extrema": lambda T, x, rows: (
        T.clip(x, 0.2, 0.8) + T.maximum(x, 0.3) + T.minimum(x, x[0])
    ),
    "rebroadcast": lambda T, x, rows: T.unbroadcast(T.addbroadcast(x[:1], 0), 0),
    "shape": lambda T, x, rows: x.shape[0] + x.size + T.shape(x.T)[0],
    "join along a variable axis": lambda T, x, rows: T.join(rows[1], x, x),
    "gradient": lambda T, x, rows: T.grad((T.concatenate([x, x[:1]]) ** 2).max(axis=0).sum(), x),
}


def main():
    import theano
    import theano.tensor as T

    theano.config.traceback.limit = 0
    cases = {}
    for name, build in CASES.items():
        x, rows = T.dmatrix("x"), T.lvector("rows")
        inputs = [x, rows]
        outputs = build(T, x, rows)
        f = theano.function(inputs, outputs, on_unused_input="ignore", mode="FAST_COMPILE")
        pickled = base64.b64encode(zlib.compress(pickle.dumps((inputs, outputs), 2), 9))
        cases[name] = {"pickle": pickled.decode("ascii"), "value": f(X, ROWS).tolist()}
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(name) + ": " + json.dumps(cases[name]) for name in sorted(cases)]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
