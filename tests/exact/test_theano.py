"""Exact values of operations that only Theano programs have."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, warnings
warnings.simplefilter("ignore")
import numpy as np
import theanoguard
theanoguard.shim.install_theano()
import pytensor
import theano
import theano.tensor as T
from theano.tensor.signal import pool

nnet = T.nnet
x, b, y, im = T.dmatrix("x"), T.dvector("b"), T.ivector("y"), T.dtensor4("im")
rng = np.random.default_rng(0)
given = {
    x: rng.normal(size=(4, 3)),
    b: rng.normal(size=3),
    y: np.array([0, 2, 1, 1], "int32"),
    im: rng.normal(size=(2, 3, 6, 6)),
}
cost = nnet.categorical_crossentropy(nnet.softmax(x), y).mean()
pooled = pool.pool_2d(im, (2, 2), ignore_border=True)
filtered = nnet.conv2d(im, im[:, :, :3, :3])
outputs = {
    "softmax": nnet.softmax(x),
    "softmax_with_bias": nnet.nnet.softmax_with_bias(x, b),
    "categorical_crossentropy": cost,
    "its gradient": theano.grad(cost, x),
    "crossentropy_softmax_1hot": nnet.crossentropy_softmax_1hot(x, y)[0],
    "logsoftmax": nnet.logsoftmax(x),
    "relu": nnet.relu(x),
    "ultra_fast_sigmoid": nnet.ultra_fast_sigmoid(x),
    "hard_sigmoid": nnet.hard_sigmoid(x),
    "softsign": nnet.softsign(x),
    "pool_2d": pooled,
    "mean pool": pool.pool_2d(im, (2, 2), ignore_border=True, mode="average_exc_pad"),
    "gradient of pool_2d": theano.grad(pooled.sum(), im),
    "conv2d": filtered,
    "gradient of conv2d": theano.grad(filtered.sum(), im),
    "batch_normalization": nnet.bn.batch_normalization(x, b, b, x.mean(axis=0), x.std(axis=0)),
    "images2neibs": nnet.neighbours.images2neibs(im, (2, 2)),
}
found = {}
exact_values = dict(zip(outputs, theanoguard.exact(list(outputs.values()), given)))
for name, output in outputs.items():
    exact = exact_values[name]
    with pytensor.config.change_flags(cxx=""):
        f = theano.function(list(given), output, mode="FAST_COMPILE", on_unused_input="ignore")
    same = np.allclose(f(*given.values()), exact.mid, rtol=1e-9, atol=1e-12)
    found[name] = [str(note) for note in exact.notes] if same else ["differs"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_operations_of_theano_agree_with_floats(found):
    assert {name: notes for name, notes in found.items() if notes} == {}
    assert len(found) == 17
