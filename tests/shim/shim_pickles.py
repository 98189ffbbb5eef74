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
