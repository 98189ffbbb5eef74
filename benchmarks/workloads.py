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


def weights(rng, dtype, *shapes):
    """Return shared matrices of random weights."""
    return [
        shared((rng.normal(size=shape) / np.sqrt(shape[0])).astype(dtype), f"w{i}")
        for i, shape in enumerate(shapes)
    ]


def descent(cost, params, dtype):
    """Return the updates of a step of gradient descent."""
    step = np.asarray(0.01, dtype)
    return [(p, p - step * g) for p, g in zip(params, pytensor.grad(cost, params), strict=True)]


def gaussian_process(dtype, rng, points=200):
    """Marginal log-density of a Gaussian process at 200 points, with its gradient."""
    theta = pt.vector("theta", dtype=dtype)
    at = np.sort(rng.normal(size=points)).astype(dtype)
    observed = pt.as_tensor(np.sin(3 * at))
    squares = pt.as_tensor((at[:, None] - at) ** 2)
    kernel = pt.exp(theta[0] - squares * pt.exp(theta[1]))
    factor = pt.linalg.cholesky(kernel + pt.exp(theta[2]) * pt.eye(points, dtype=dtype))
    z = pt.linalg.solve_triangular(factor, observed, lower=True)
    density = -0.5 * (z**2).sum() - pt.log(pt.diag(factor)).sum()
    return [theta], [density, pytensor.grad(density, theta)], [], [np.zeros(3, dtype)]


def lstm(dtype, rng, steps=20, batch=16, size=64):
    """Training step of an LSTM: 20 steps, hidden 64, batch 16."""
    x = pt.tensor3("x", dtype=dtype)
    params = weights(rng, dtype, (size, 4 * size), (size, 4 * size))

    def step(x_t, h, c, w_in, w):
        gates = pt.dot(x_t, w_in) + pt.dot(h, w)
        i, f, o = (pt.sigmoid(gates[:, k * size : (k + 1) * size]) for k in range(3))
        c = f * c + i * pt.tanh(gates[:, 3 * size :])
        return o * pt.tanh(c), c

    start = pt.zeros((batch, size), dtype=dtype)
    h, _ = pytensor.scan(
        step,
        sequences=[x],
        outputs_info=[start, start],
        non_sequences=params,
        return_updates=False,
    )
    cost = (h[-1] ** 2).mean()
    values = [rng.normal(size=(steps, batch, size)).astype(dtype)]
    return [x], cost, descent(cost, params, dtype), values


def attention(dtype, rng, tokens=64, size=64):
    """Training step of one head of attention over 64 tokens."""
    x = pt.matrix("x", dtype=dtype)
    params = weights(rng, dtype, *[(size, size)] * 4)
    query, key, value = (pt.dot(x, w) for w in params[:3])
    scores = pt.special.softmax(pt.dot(query, key.T) / np.asarray(np.sqrt(size), dtype), axis=1)
    cost = ((pt.dot(pt.dot(scores, value), params[3]) - x) ** 2).mean()
    values = [rng.normal(size=(tokens, size)).astype(dtype)]
    return [x], cost, descent(cost, params, dtype), values


def autoencoder(dtype, rng, sizes=(784, 256, 16), batch=64):
    """Training step of a variational autoencoder, 784-256-16-256-784, batch 64."""
    x, noise = pt.matrix("x", dtype=dtype), pt.matrix("noise", dtype=dtype)
    wide, hidden, latent = sizes
    shapes = (wide, hidden), (hidden, latent), (hidden, latent), (latent, hidden), (hidden, wide)
    params = weights(rng, dtype, *shapes)
    h = pt.tanh(pt.dot(x, params[0]))
    mean, log_sd = pt.dot(h, params[1]), pt.dot(h, params[2])
    logits = pt.dot(pt.tanh(pt.dot(mean + pt.exp(log_sd) * noise, params[3])), params[4])
    divergence = 0.5 * (mean**2 + pt.exp(2 * log_sd) - 2 * log_sd - 1).sum(axis=1)
    cost = ((pt.softplus(logits) - x * logits).sum(axis=1) + divergence).mean()
    values = rng.random((batch, wide)).astype(dtype), rng.normal(size=(batch, latent)).astype(dtype)
    return [x, noise], cost, descent(cost, params, dtype), values


def mixture(dtype, rng, rows=10_000):
    """Log-density of 10,000 observations under a mixture of four normals, with its gradient."""
    theta = pt.vector("theta", dtype=dtype)
    observed = shared(rng.normal(size=rows).astype(dtype), "observed")
    mean, log_sd, weight = theta[:4], theta[4:8], pt.special.log_softmax(theta[8:])
    z = (observed[:, None] - mean) * pt.exp(-log_sd)
    density = pt.logsumexp(weight - log_sd - 0.5 * z**2, axis=1).sum()
    start = rng.normal(size=12).astype(dtype)
    return [theta], [density, pytensor.grad(density, theta)], [], [start]


def hierarchical(dtype, rng, groups=8):
    """Log-density of a model of eight groups ("eight schools"), with its gradient."""
    theta = pt.vector("theta", dtype=dtype)
    effect, mu, log_tau = theta[:groups], theta[groups], theta[groups + 1]
    observed, sd = (
        pt.as_tensor(a.astype(dtype)) for a in (rng.normal(size=groups), rng.random(groups) + 1)
    )
    density = (
        -0.5 * (((observed - mu - pt.exp(log_tau) * effect) / sd) ** 2).sum()
        - 0.5 * (effect**2).sum()
        - 0.5 * (mu / 5) ** 2
        + log_tau
        - pt.log1p((pt.exp(log_tau) / 5) ** 2)
    )
    start = np.zeros(groups + 2, dtype)
    return [theta], [density, pytensor.grad(density, theta)], [], [start]


def logistic(dtype, rng, rows=10_000, columns=20):
    """Log-density of a logistic regression on 10,000 rows of 20 columns, with its gradient."""
    beta = pt.vector("beta", dtype=dtype)
    x = shared(rng.normal(size=(rows, columns)).astype(dtype), "x")
    y = shared(rng.integers(0, 2, rows).astype(dtype), "y")
    eta = pt.dot(x, beta)
    density = (y * eta - pt.softplus(eta)).sum() - 0.5 * (beta**2).sum()
    return [beta], [density, pytensor.grad(density, beta)], [], [np.zeros(columns, dtype)]


def garch(dtype, rng, steps=500):
    """Log-density of a GARCH(1, 1) model, a loop over 500 numbers, with its gradient."""
    theta = pt.vector("theta", dtype=dtype)
    returns = shared(rng.normal(size=steps).astype(dtype), "returns")
    omega, alpha, beta = (pt.exp(theta[i]) for i in range(3))
    variance = pytensor.scan(
        lambda r, v, omega, alpha, beta: omega + alpha * r**2 + beta * v,
        sequences=[returns],
        outputs_info=[pt.ones((), dtype=dtype)],
        non_sequences=[omega, alpha, beta],
        return_updates=False,
    )
    density = -0.5 * (pt.log(variance[:-1]) + returns[1:] ** 2 / variance[:-1]).sum()
    start = np.log([0.1, 0.1, 0.8]).astype(dtype)
    return [theta], [density, pytensor.grad(density, theta)], [], [start]


def log_softmax(dtype, rng, size=1000):
    """The logarithm of the softmax of each row of a 1000x1000 matrix."""
    x = pt.matrix("x", dtype=dtype)
    values = [rng.normal(size=(size, size)).astype(dtype)]
    return [x], pt.special.log_softmax(x, axis=1), [], values


def masked_logs(dtype, rng, rows=100_000):
    """Sum of x log(x) of 100,000 numbers, half of them 0, with its gradient."""
    x = pt.vector("x", dtype=dtype)
    safe = pt.switch(x > 0, x, np.asarray(1, dtype))
    total = pt.switch(x > 0, x * pt.log(safe), np.asarray(0, dtype)).sum()
    values = [np.maximum(rng.normal(size=rows), 0).astype(dtype)]
    return [x], [total, pytensor.grad(total, x)], [], values


def optimizer(dtype, rng, rule, size=1000, batch=32):
    """Step of an optimizer on a 1000x1000 matrix, batch 32."""
    x = pt.matrix("x", dtype=dtype)
    [w] = weights(rng, dtype, (size, size))
    cost = ((pt.dot(x, w) - x) ** 2).mean()
    g = pytensor.grad(cost, w)
    m, v = (shared(np.zeros((size, size), dtype), name) for name in ("m", "v"))
    rate, keep, tiny = (np.asarray(number, dtype) for number in (0.001, 0.9, 1e-8))
    new_m, new_v = keep * m + (1 - keep) * g, keep * v + (1 - keep) * g**2
    updates = {
        "sgd": [(w, w - rate * g)],
        "momentum": [(m, new_m), (w, w - rate * new_m)],
        "rmsprop": [(v, new_v), (w, w - rate * g / (pt.sqrt(new_v) + tiny))],
        "adam": [(m, new_m), (v, new_v), (w, w - rate * new_m / (pt.sqrt(new_v) + tiny))],
    }[rule]
    return [x], cost, updates, [rng.normal(size=(batch, size)).astype(dtype)]


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
    "Gaussian process, 200": gaussian_process,
    "LSTM step": lstm,
    "attention step": attention,
    "autoencoder step": autoencoder,
    "mixture, 10k": mixture,
    "eight schools": hierarchical,
    "logistic regression, 10k": logistic,
    "GARCH, 500 steps": garch,
    "log_softmax, 1000x1000": log_softmax,
    "masked logs, 100k": masked_logs,
    "SGD, 1000x1000": partial(optimizer, rule="sgd"),
    "momentum, 1000x1000": partial(optimizer, rule="momentum"),
    "RMSProp, 1000x1000": partial(optimizer, rule="rmsprop"),
    "Adam, 1000x1000": partial(optimizer, rule="adam"),
}
if importlib.util.find_spec("pymc"):
    WORKLOADS["PyMC log-density, 30"] = pymc_logp
