"""The graphs that the benchmarks measure.

Each workload is a function of a dtype and a NumPy generator, and returns inputs, outputs,
updates and the values of the inputs.  Nothing here knows of the guard.
"""

import importlib.util
from functools import partial

import numpy as np
import pytensor
import pytensor.tensor as pt


def shared(value, name):
    return pytensor.shared(value, name=name)


def mlp(dtype, rng, sizes=(784, 512, 512, 10), batch=128):
    """Training step of a 784-512-512-10 network, batch of 128, softmax cross-entropy, SGD."""
    x, y = pt.matrix("x", dtype=dtype), pt.ivector("y")
    params, h = [], x
    for i, (m, n) in enumerate(zip(sizes, sizes[1:], strict=False)):
        w = shared((rng.normal(size=(m, n)) / np.sqrt(m)).astype(dtype), f"w{i}")
        b = shared(np.zeros(n, dtype=dtype), f"b{i}")
        params += [w, b]
        h = pt.dot(h, w) + b
        if n != 10:
            h = pt.maximum(h, np.asarray(0, dtype))
    logits = h - h.max(axis=1, keepdims=True)
    logp = logits - pt.log(pt.exp(logits).sum(axis=1, keepdims=True))
    cost = -logp[pt.arange(y.shape[0]), y].mean()
    step = np.asarray(0.01, dtype)
    updates = [(p, p - step * g) for p, g in zip(params, pytensor.grad(cost, params), strict=True)]
    values = rng.random((batch, 784)).astype(dtype), rng.integers(0, 10, batch).astype("int32")
    return [x, y], cost, updates, values


def rnn(dtype, rng, mode=None):
    """Training step of a recurrent network: scan over 64 steps, hidden 128, batch 32."""
    x, t = pt.tensor3("x", dtype=dtype), pt.matrix("t", dtype=dtype)
    w_in = shared((rng.normal(size=(32, 128)) / 6).astype(dtype), "w_in")
    w = shared((rng.normal(size=(128, 128)) / 12).astype(dtype), "w")
    w_out = shared((rng.normal(size=(128, 8)) / 12).astype(dtype), "w_out")
    h0 = pt.zeros((32, 128), dtype=dtype)
    h = pytensor.scan(
        lambda x_t, h, w_in, w: pt.tanh(pt.dot(x_t, w_in) + pt.dot(h, w)),
        sequences=[x],
        outputs_info=[h0],
        non_sequences=[w_in, w],
        return_updates=False,
        mode=mode,
    )
    cost = ((pt.dot(h[-1], w_out) - t) ** 2).mean()
    params = [w_in, w, w_out]
    step = np.asarray(0.01, dtype)
    updates = [(p, p - step * g) for p, g in zip(params, pytensor.grad(cost, params), strict=True)]
    values = rng.normal(size=(64, 32, 32)).astype(dtype), rng.normal(size=(32, 8)).astype(dtype)
    return [x, t], cost, updates, values


def logp(dtype, rng, rows=100_000):
    """Log-density of 100,000 observations under a linear model, with its gradient."""
    obs = shared(rng.normal(size=rows).astype(dtype), "obs")
    covariate = shared(rng.normal(size=rows).astype(dtype), "covariate")
    theta = pt.vector("theta", dtype=dtype)
    mu, sigma = theta[0] + theta[1] * covariate, pt.exp(theta[2])
    z = (obs - mu) / sigma
    density = (-0.5 * z**2 - pt.log(sigma) - 0.9189385332046727).sum()
    return [theta], [density, pytensor.grad(density, theta)], [], [np.zeros(3, dtype)]


def small_nodes(n):
    def build(dtype, rng):
        x = pt.vector("x", dtype=dtype)
        m = pt.as_tensor((np.eye(10) * 0.5).astype(dtype))
        y = x
        for i in range(n // 2):
            y = pt.exp(-(y**2)) if i % 2 else pt.tanh(y) + x
            y = pt.cumsum(y)[::-1] if i % 3 else pt.dot(m, y)
        return [x], y.sum(), [], [rng.normal(size=10).astype(dtype) * 0.1]

    return build


def elementwise(dtype, rng):
    """exp(x) + y on a million elements."""
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    values = [rng.normal(size=1_000_000).astype(dtype) for _ in range(2)]
    return [x, y], pt.exp(x) + y, [], values


def inference(dtype, rng, batch):
    """Predictions of a network with three shared 1000x1000 matrices; nothing is updated."""
    x = pt.matrix("x", dtype=dtype)
    h = x
    for i in range(3):
        w = shared((rng.normal(size=(1000, 1000)) / 32).astype(dtype), f"w{i}")
        h = pt.maximum(pt.dot(h, w), np.asarray(0, dtype))
    return [x], h, [], [rng.normal(size=(batch, 1000)).astype(dtype)]


def embedding(dtype, rng):
    """Training step of an embedding: 64 rows of 100,000x64 are read, and only these updated."""
    words, target = pt.lvector("words"), pt.vector("target", dtype=dtype)
    table = shared((rng.normal(size=(100_000, 64)) / 8).astype(dtype), "table")
    rows = table[words]
    cost = ((rows.sum(axis=1) - target) ** 2).mean()
    step = np.asarray(-0.01, dtype)
    updates = [(table, pt.inc_subtensor(rows, step * pytensor.grad(cost, rows)))]
    values = rng.integers(0, 100_000, 64), rng.normal(size=64).astype(dtype)
    return [words, target], cost, updates, values


def pymc_logp(dtype, rng):
    """Log-density of a hierarchical PyMC model with 30 parameters, with its gradient."""
    import pymc as pm

    groups, rows = 24, 400
    with pytensor.config.change_flags(floatX=dtype), pm.Model() as model:
        group = rng.integers(0, groups, rows)
        covariates = rng.normal(size=(rows, 3)).astype(dtype)
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        offset = pm.Normal("offset", mu, tau, shape=groups)
        slope = pm.Normal("slope", shape=3)
        mean = offset[group] + pm.math.dot(covariates, slope)
        noise = pm.HalfCauchy("noise", 1.0)
        observed = rng.normal(size=rows).astype(dtype)
        pm.Normal("y", mean, noise, observed=observed)
        density = model.logp()
        gradient = model.dlogp()
        point = model.initial_point()
    inputs = model.value_vars
    values = [np.asarray(point[v.name], v.dtype) for v in inputs]
    return inputs, [density, gradient], [], values


WORKLOADS = {
    "mlp step": mlp,
    "scan rnn step": rnn,
    "log-density 100k": logp,
    "chain, 300 small nodes": small_nodes(300),
    "exp(x) + y, 1M": elementwise,
    "5,000 small nodes": small_nodes(5000),
    "inference, batch 1": partial(inference, batch=1),
    "inference, batch 32": partial(inference, batch=32),
    "embedding update": embedding,
}
if importlib.util.find_spec("pymc"):
    WORKLOADS["PyMC log-density, 30"] = pymc_logp
