"""Does the record of the calls blame what was planted?  And what does it cost?

Faults are planted into five trainings, at a step drawn at random.  The blame is right if it names
the planted step within one, and the planted array.  Many faults do no harm: where no call fails,
the record is asked after the last one.  Sound trainings have to end without any blame.

    OMP_NUM_THREADS=1 python benchmarks/recorder.py [faults|sound|cost] [--seeds 3] [--json FILE]
"""

import argparse
import collections
import operator
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytensor
import pytensor.tensor as pt
from overhead import measure
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.random.utils import RandomStream
from reporting import write_json
from training import OPTIMIZERS
from workloads import WORKLOADS

from theanoguard import GuardError, GuardMode
from theanoguard.training import recording_of

DIGITS = Path(__file__).parents[1] / "examples" / "digits.csv"
STEPS = 400


class Knob(Op):
    """Multiplies by a number that a fault turns, where neither graph nor record shows it."""

    __props__ = ()

    def __init__(self, name):
        self.name = name
        self.factor = 1.0

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.asarray(inputs[0] * self.factor, inputs[0].dtype)

    def L_op(self, inputs, outputs, gradients):
        return [self(gradients[0])]

    def pullback(self, inputs, outputs, gradients):
        return self.L_op(inputs, outputs, gradients)

    def infer_shape(self, fgraph, node, shapes):
        return shapes

    def do_constant_folding(self, fgraph, node):
        return False


@dataclass
class Training:
    """A training step and what a fault can turn."""

    function: object
    batch: object  # (rng) -> list of arrays
    shared: list  # all shared variables, which are reset
    knobs: dict = field(default_factory=dict)
    rate: object = None
    layers: list = field(default_factory=list)
    inputs: list = field(default_factory=list)

    def __post_init__(self):
        self.start = [v.get_value() for v in self.shared]

    def reset(self):
        for v, value in zip(self.shared, self.start, strict=True):
            v.set_value(value)
        for knob in self.knobs.values():
            knob.factor = 1.0
        self.recording = recording_of(self.function)
        self.recording.clear()


def momentum(cost, params, rate, knobs):
    """Updates by gradients with momentum; each gradient and each decay has a knob."""
    updates, states = [], []
    for p, g in zip(params, pytensor.grad(cost, params), strict=True):
        knobs[f"gradient {p.name}"] = turn = Knob(p.name)
        knobs[f"decay {p.name}"] = decay = Knob(f"{p.name}/m")
        m = pytensor.shared(np.zeros_like(p.get_value()), name=f"{p.name}/m")
        new = decay(0.5 * m) + turn(g)
        updates += [(m, new), (p, p - rate * new)]
        states.append(m)
    return updates, states


def finish(inputs, cost, params, rate, knobs, batch, layers, more=(), states=()):
    updates, moments = momentum(cost, params, rate, knobs)
    cost.name = "cost"
    function = pytensor.function(
        inputs, cost, updates=[*updates, *more], mode=GuardMode(history=True, big_threshold=1e6)
    )
    shared = [*params, *moments, *states, rate]
    return Training(function, batch, shared, knobs, rate, layers, [i.name for i in inputs])


def weights(rng, name, *shape):
    return pytensor.shared(rng.normal(size=shape) / np.sqrt(shape[0]), name=name)


def digits():
    table = np.loadtxt(DIGITS, delimiter=",")
    return table[:, :-1] / 16, np.eye(10)[table[:, -1].astype(int)]


def mlp():
    """A network on digits, with the logarithm of a softmax as people write it."""
    rng = np.random.default_rng(0)
    images, labels = digits()
    x, y, rate = pt.dmatrix("images"), pt.dmatrix("labels"), pytensor.shared(0.1, name="rate")
    w1, b1 = weights(rng, "W1", 64, 32), pytensor.shared(np.zeros(32), name="b1")
    w2, b2 = weights(rng, "W2", 32, 10), pytensor.shared(np.zeros(10), name="b2")
    knobs = {"hidden W1": Knob("W1")}
    hidden = pt.tanh(knobs["hidden W1"](x @ w1 + b1))
    scores = pt.exp(hidden @ w2 + b2)
    cost = -(y * pt.log(scores / scores.sum(1, keepdims=True))).sum(1).mean()

    def batch(rng):
        at = rng.integers(len(images), size=32)
        return [images[at], labels[at]]

    return finish([x, y], cost, [w1, b1, w2, b2], rate, knobs, batch, [w1, w2])


def convolution():
    """A convolution written for Theano, under the shim."""
    import theanoguard.shim as shim

    shim.install_theano()
    import theano.tensor as T
    from theano.tensor.nnet import conv2d

    rng = np.random.default_rng(1)
    images, labels = digits()
    x, y, rate = T.dtensor4("images"), T.dmatrix("labels"), pytensor.shared(0.05, name="rate")
    filters = pytensor.shared(rng.normal(size=(4, 1, 3, 3)) / 3, name="filters")
    w = weights(rng, "W", 4 * 36, 10)
    knobs = {"hidden filters": Knob("filters")}
    maps = T.tanh(knobs["hidden filters"](conv2d(x, filters)))
    scores = T.exp(T.dot(maps.flatten(2), w))
    cost = -(y * T.log(scores / scores.sum(axis=1, keepdims=True))).sum(axis=1).mean()

    def batch(rng):
        at = rng.integers(len(images), size=16)
        return [images[at].reshape(-1, 1, 8, 8), labels[at]]

    return finish([x, y], cost, [filters, w], rate, knobs, batch, [filters, w])


def lstm():
    """A long short-term memory that carries its state from call to call."""
    rng = np.random.default_rng(2)
    x, y, rate = pt.dtensor3("sequence"), pt.dmatrix("next"), pytensor.shared(0.05, name="rate")
    wx, wh = weights(rng, "Wx", 3, 32), weights(rng, "Wh", 8, 32)
    out = weights(rng, "Wout", 8, 3)
    state = pytensor.shared(np.zeros((8, 8)), name="state")
    knobs = {"state": Knob("state")}

    def step(u, h, c):
        gates = u @ wx + h @ wh
        i, f, o, g = (gates[:, 8 * k : 8 * k + 8] for k in range(4))
        c = pt.sigmoid(f + 1) * c + pt.sigmoid(i) * pt.tanh(g)
        h = pt.sigmoid(o) * pt.tanh(c)
        return h, c

    (h, c), _ = pytensor.scan(step, sequences=[x], outputs_info=[pt.zeros((8, 8)), state])
    cost = pt.sqr(h[-1] @ out - y).mean()

    def batch(rng):
        phase = rng.uniform(0, 6, size=(1, 8, 3))
        t = np.arange(7.0)[:, None, None]
        wave = np.sin(0.5 * t + phase)
        return [wave[:6], wave[6]]

    # what is carried on: a filter of the last memory, which decays unless the knob is turned
    carried = [(state, knobs["state"](0.5 * state + 0.1 * c[-1]))]
    params = [wx, wh, out]
    return finish([x, y], cost, params, rate, knobs, batch, params, carried, [state])


def autoencoder():
    """A variational autoencoder: its noise comes from a random stream."""
    rng = np.random.default_rng(3)
    images, _ = digits()
    x, rate = pt.dmatrix("images"), pytensor.shared(0.02, name="rate")
    stream = RandomStream(4)
    we, wm, ws = (
        weights(rng, "Wenc", 64, 24),
        weights(rng, "Wmean", 24, 4),
        weights(rng, "Wsd", 24, 4),
    )
    wd, wo = weights(rng, "Wdec", 4, 24), weights(rng, "Wout", 24, 64)
    knobs = {"hidden Wenc": Knob("Wenc")}
    hidden = pt.tanh(knobs["hidden Wenc"](x @ we))
    mean, log_var = hidden @ wm, hidden @ ws
    z = mean + pt.exp(0.5 * log_var) * stream.normal(size=mean.shape)
    p = pt.sigmoid(pt.tanh(z @ wd) @ wo)
    fit = (x * pt.log(p) + (1 - x) * pt.log(1 - p)).sum(1)
    cost = (0.5 * (mean**2 + pt.exp(log_var) - log_var - 1).sum(1) - fit).mean()

    def batch(rng):
        return [images[rng.integers(len(images), size=32)]]

    params = [we, wm, ws, wd, wo]
    return finish([x], cost, params, rate, knobs, batch, params)


def regression():
    """A hierarchical regression, fitted by the gradient of its log-density."""
    rng = np.random.default_rng(5)
    x, y, group = pt.dmatrix("x"), pt.dvector("y"), pt.lvector("group")
    rate = pytensor.shared(0.01, name="rate")
    slopes = pytensor.shared(np.zeros((6, 2)), name="slopes")
    mean, log_tau = pytensor.shared(np.zeros(2), name="mean"), pytensor.shared(0.0, name="log_tau")
    log_sigma = pytensor.shared(0.0, name="log_sigma")
    knobs = {"spread log_sigma": Knob("log_sigma")}
    error = (y - (x * slopes[group]).sum(1)) / pt.exp(knobs["spread log_sigma"](log_sigma))
    prior = (((slopes - mean) / pt.exp(log_tau)) ** 2).sum() / 2 + slopes.size * log_tau
    cost = (error**2).mean() / 2 + log_sigma + (prior + log_tau**2 + (mean**2).sum()) / 200
    true = rng.normal(size=(6, 2))

    def batch(rng):
        inputs, groups = rng.normal(size=(40, 2)), rng.integers(6, size=40)
        return [inputs, (inputs * true[groups]).sum(1) + 0.3 * rng.normal(size=40), groups]

    params = [slopes, mean, log_tau, log_sigma]
    return finish([x, y, group], cost, params, rate, knobs, batch, params)


TRAININGS = {f.__name__: f for f in (mlp, convolution, lstm, autoencoder, regression)}

# -- faults: each plants itself into a training, and says what it has planted


class Fault:
    """Nothing is wrong."""

    def __init__(self, training, rng, at):
        self.training, self.rng, self.at = training, rng, at
        self.names = set()
        self.prepare()

    def prepare(self):
        pass

    def before(self, step, batch):
        return batch


class ScaledLayer(Fault):
    """The weights of a layer are multiplied, as by a wrong checkpoint."""

    def prepare(self):
        self.layer = self.rng.choice(np.arange(len(self.training.layers)))
        self.layer = self.training.layers[self.layer]
        self.names = {self.layer.name}

    def before(self, step, batch):
        if step == self.at:
            self.layer.set_value(self.layer.get_value() * 10.0 ** self.rng.uniform(2, 4))
        return batch


class RaisedRate(Fault):
    """The learning rate is raised, as by a wrong schedule."""

    def prepare(self):
        self.names = {"rate"}

    def before(self, step, batch):
        if step == self.at:
            rate = self.training.rate
            rate.set_value(rate.get_value() * 10.0 ** self.rng.uniform(2, 4))
        return batch


class BadBatch(Fault):
    """One batch is scaled."""

    rows = slice(None)

    def prepare(self):
        floats = [i for i, name in enumerate(self.training.inputs) if name != "group"]
        self.which = int(self.rng.choice(floats))
        self.names = {self.training.inputs[self.which]}

    def before(self, step, batch):
        if step == self.at:
            batch = [b.copy() for b in batch]
            batch[self.which][self.rows] *= 10.0 ** self.rng.uniform(3, 5)
        return batch


class BadRow(BadBatch):
    """One row of one batch is scaled."""

    rows = slice(3, 4)


class AllBatches(BadBatch):
    """From a step on the inputs are no longer scaled."""

    def before(self, step, batch):
        if step >= self.at:
            batch = [b.copy() for b in batch]
            batch[self.which] *= 1000.0
        return batch


class Missing(BadBatch):
    """A batch has a sentinel for a missing value."""

    def before(self, step, batch):
        if step == self.at:
            batch = [b.copy() for b in batch]
            batch[self.which].flat[self.rng.integers(batch[self.which].size)] = -1e9
        return batch


class _Turned(Fault):
    prefix, factor = "", 1.0

    def prepare(self):
        knobs = [name for name in self.training.knobs if name.startswith(self.prefix)]
        self.knob = self.training.knobs[self.rng.choice(knobs)]
        name = self.knob.name.removesuffix("/m")
        self.names = {name, f"{name}/m"}

    def before(self, step, batch):
        if step == self.at:
            self.knob.factor = self.factor
        return batch


class WrongSign(_Turned):
    """One gradient has the wrong sign."""

    prefix, factor = "gradient", -1.0


class ScaledGradient(_Turned):
    """One gradient is multiplied."""

    prefix, factor = "gradient", 3e4


class NoDecay(_Turned):
    """A momentum grows in each step, since its decay is wrong."""

    prefix, factor = "decay", 3.0


class Growing(_Turned):
    """A state, or the values behind a layer, are scaled from a step on."""

    factor = 8.0

    @property
    def prefix(self):
        named = ("state", "hidden", "spread")
        return next(p for p in named if any(k.startswith(p) for k in self.training.knobs))


FAULTS = [
    ScaledLayer,
    RaisedRate,
    BadBatch,
    BadRow,
    AllBatches,
    Missing,
    WrongSign,
    ScaledGradient,
    NoDecay,
    Growing,
]


def run(training, fault_type, seed, steps=STEPS):
    """Train; return the planted fault, and the error or None."""
    rng = np.random.default_rng([seed, *fault_type.__name__.encode()])
    training.reset()
    made = training.recording.calls  # (the function goes on counting)
    fault = fault_type(training, rng, int(rng.integers(40, 250)))
    fault.call = made + fault.at
    for step in range(1, steps + 1):
        try:
            training.function(*fault.before(step, training.batch(rng)))
        except GuardError as error:
            return fault, error
    return fault, None


def faults(names, seeds, show):
    counts = collections.Counter()
    rows = []
    for name in names:
        training = TRAININGS[name]()
        for fault_type in FAULTS:
            for seed in range(seeds):
                fault, error = run(training, fault_type, seed)
                since = training.recording.since() if error is None else error.explanation.since
                right = since is not None and (
                    abs(since.call - fault.call) <= 1 and since.name in fault.names
                )
                verdict = "right" if right else "none" if since is None else "wrong"
                counts["no failure" if error is None else "failure", verdict] += 1
                rows.append(
                    {
                        "training": name,
                        "fault": fault_type.__name__,
                        "seed": seed,
                        "planted": fault.call,
                        "names": sorted(fault.names),
                        "verdict": verdict,
                        "failed": None if error is None else error.event.call,
                        "blamed": since and [since.kind, since.name, since.call],
                    }
                )
                if show or (error is not None and not right):
                    print(*rows[-1].values())
    print(dict(counts))
    return rows


def sound(names, seeds):
    blamed = 0
    for name in names:
        training = TRAININGS[name]()
        for seed in range(seeds):
            _, error = run(training, Fault, 1000 + seed, steps=150 + 37 * (seed % 8))
            since = recording_of(training.function).since()
            if error is not None or since is not None:
                blamed += 1
                print(name, seed, error and str(error).splitlines()[0], since)
    print(f"{blamed} of {len(names) * seeds} sound trainings have a blame")
    return blamed


def cost(rounds, budget, backend):
    """Compare a guarded training step with one that is recorded as well.

    Two equal steps differ by more than a record takes.  So the record is also timed in the calls.
    """
    rows = []
    for optimizer, update in OPTIMIZERS.items():
        for dtype in ("float32", "float64"):
            settings = {"plain": {}, "again": {}, "history": {"history": True}}
            variants = {
                name: training_step(update, dtype, GuardMode(backend=backend, **more))
                for name, more in settings.items()
            }
            times = measure(variants, rounds, budget)
            row = {"optimizer": optimizer, "dtype": dtype, "backend": backend}
            row["ms"] = 1e3 * statistics.median(times["plain"])
            for name in ("again", "history"):
                ratios = map(operator.truediv, times[name], times["plain"])
                row[name] = statistics.median(ratios)
            row["of a step"] = share_of_a_step(*variants["history"], 20 * rounds)
            rows.append(row)
            print(*(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()), flush=True)
    return rows


def share_of_a_step(f, values, reset, calls):
    """Return the time that the record takes in a call over the time of the rest of the call.

    The guard reads the inputs as well, from memory if the record has not: this is an upper bound.
    """
    recording, spent = recording_of(f), []

    def timed(method):
        def run(*args):
            start = time.perf_counter()
            method(*args)
            spent.append(time.perf_counter() - start)

        return run

    reset()
    f(*values)
    shares = []
    with patch.multiple(recording, begin=timed(recording.begin), end=timed(recording.end)):
        for _ in range(calls):
            spent.clear()
            start = time.perf_counter()
            f(*values)
            whole = time.perf_counter() - start
            shares.append(sum(spent) / (whole - sum(spent)))
    return statistics.median(shares)


def training_step(update, dtype, mode):
    """The step of ``training.py`` (784-512-512-10, batch of 128), its values, and a reset."""
    inputs, loss, updates, values = WORKLOADS["mlp step"](dtype, np.random.default_rng(1))
    params = [p for p, _ in updates]
    with pytensor.config.change_flags(floatX=dtype):
        updates = update(params, pytensor.grad(loss, params))
        f = pytensor.function(inputs, loss, updates=updates, mode=mode)
    f.trust_input = True
    start = [(v, v.get_value()) for v in dict(updates)]

    def reset():
        for v, value in start:
            v.set_value(value)

    return f, values, reset


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["faults", "sound", "cost"])
    parser.add_argument("--trainings", nargs="+", default=list(TRAININGS), choices=TRAININGS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per variant and round")
    parser.add_argument("--backend", default="c", choices=["c", "numba"])
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.what == "faults":
        rows = faults(args.trainings, args.seeds, args.show)
        if args.json:
            write_json(args.json, {"rows": rows})
    elif args.what == "sound":
        sound(args.trainings, args.seeds)
    else:
        cost(args.rounds, args.budget, args.backend)


if __name__ == "__main__":
    main()
