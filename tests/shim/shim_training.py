"""Training steps of small models on saturated, wrong and extreme data: what Theano 1.0.5 computes.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_training.py  # with Theano 1.0.5

Which other outputs a function has decides which rewrites apply, so each model is compiled four
times: the cost alone, the gradients alone, both, and one step of training.  The models are
enumerated: each loss of each head with each reduction and each kind of bias.  One model in many is
recorded: for each mode and each data set the numbers of the four functions.
"""

import itertools
import json
import os

import numpy as np

# How a model makes `z` from `x` and the parameters.
BIASES = {"": [], " + b": ["b"], " + frozen": []}
NETS = {
    "vector": "z = T.dot(x, w){bias}",
    "method": "z = x.dot(w){bias}",
    "hidden": "z = T.dot(T.tanh(T.dot(x, v)), w){bias}",
    "matrix": "z = T.dot(x, u){bias}",
}
PROBABILITIES = [
    "T.nnet.sigmoid(z)",
    "1 / (1 + T.exp(-z))",
    "T.exp(z) / (1 + T.exp(z))",
    "(1 + T.tanh(z / 2)) / 2",
]
OF_A_PROBABILITY = [
    "-(y * T.log(p) + (1 - y) * T.log(1 - p))",
    "-y * T.log(p) - (1 - y) * T.log(1 - p)",
    "T.nnet.binary_crossentropy(p, y)",
    "-T.log(T.switch(T.eq(y, 1), p, 1 - p))",
    "-T.switch(T.eq(y, 1), T.log(p), T.log(1 - p))",
    "-y * T.log(p) - (1 - y) * T.log1p(-p)",
    "-y * T.log(p)",
    "-(1 - y) * T.log(1 - p)",
    "-y * T.log(T.clip(p, 1e-7, 1 - 1e-7)) - (1 - y) * T.log(T.clip(1 - p, 1e-7, 1 - 1e-7))",
    "(p - y) ** 2",
]
OF_A_NUMBER = [
    "T.nnet.sigmoid_binary_crossentropy(z, y)",
    "T.nnet.softplus(z) - y * z",
    "T.log(1 + T.exp(z)) - y * z",
    "T.log1p(T.exp(-z)) * y + T.log1p(T.exp(z)) * (1 - y)",
    "T.nnet.softplus(z) - y * T.log(T.nnet.softplus(z))",
    "T.exp(z) - y * z",
    "(T.tanh(z) - y) ** 2",
    "-T.log(1 - T.tanh(z) ** 2)",
    "T.maximum(0, 1 - (2 * y - 1) * z)",
]
DISTRIBUTIONS = [
    "T.nnet.softmax(z)",
    "T.exp(z) / T.exp(z).sum(axis=1, keepdims=True)",
    "T.exp(z - z.max(axis=1, keepdims=True))"
    " / T.exp(z - z.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)",
]
OF_A_DISTRIBUTION = [
    "-T.log(p)[T.arange(k.shape[0]), k]",
    "-T.log(p[T.arange(k.shape[0]), k])",
    "T.nnet.categorical_crossentropy(p, k)",
    "T.nnet.categorical_crossentropy(p, o)",
    "-(o * T.log(p)).sum(axis=1)",
    "-T.log((o * p).sum(axis=1))",
    "((p - o) ** 2).sum(axis=1)",
]
# How a loop makes `z` of each row, or the loss. {p} is of `z`, and {loss} is of `z` and `p`.
LOOPS = [
    "z = theano.scan(lambda row, w: T.dot(row, w), [x], non_sequences=[w])[0]{bias};"
    " p = {p}; loss = {loss}",
    "z = theano.scan(lambda row, before, w: T.dot(row, w) + 0.5 * before, [x], [T.zeros(())],"
    " [w])[0]{bias}; p = {p}; loss = {loss}",
    "loss = theano.scan(lambda x, y: (lambda z: (lambda p: {loss})({p}))(T.dot(x, w){bias}),"
    " [x, y])[0]",
]
REDUCTIONS = ["T.mean(loss)", "T.sum(loss)", "T.mean(loss) + 0.01 * T.sum({weight} ** 2)"]
# The rows of `x`, and the label of each.
DATA = {
    "right": ([[1.0, 1.0], [-20.0, -20.0]], [1, 0]),
    "wrong": ([[1.0, 1.0], [-20.0, -20.0]], [0, 1]),
    "extreme": ([[1000.0, 1000.0], [-1000.0, 500.0]], [1, 1]),
}
# Of how many models one is chosen, in each mode.  These numbers share no factor with those above.
EVERY = {
    "fast_run": 23,
    "fast_compile": 131,
    "None": 157,
    "merge": 173,
    "stabilize": 139,
    "fast_run_stable": 149,
    "o2": 151,
    "o3": 163,
    "unsafe": 167,
}


def models():
    """The models as text: a net with its bias, a loss and a reduction."""
    chosen = [
        ("; ".join(["p = " + p, "loss = " + loss]), nets)
        for probabilities, losses, nets in (
            (PROBABILITIES, OF_A_PROBABILITY, ("vector", "hidden", "matrix")),
            (DISTRIBUTIONS, OF_A_DISTRIBUTION, ("matrix",)),
        )
        for p, loss in itertools.product(probabilities, losses)
    ]
    chosen += [("loss = " + loss, ("vector", "method")) for loss in OF_A_NUMBER]
    return [
        "; ".join(
            [
                NETS[net].format(bias=bias),
                loss,
                "cost = " + reduction.format(weight="u" if net == "matrix" else "w"),
            ]
        )
        for loss, nets in chosen
        for net in nets
        for bias in BIASES
        for reduction in REDUCTIONS
    ]


def loops():
    """The models with loops as text: each loss with each kind of loop."""
    losses = [("z", loss) for loss in OF_A_NUMBER]
    losses += itertools.product(PROBABILITIES, OF_A_PROBABILITY)
    return [
        loop.format(p=p, loss=loss, bias=bias) + "; cost = T.mean(loss)"
        for (p, loss), loop, bias in itertools.product(losses, LOOPS, BIASES)
    ]


class Model:
    """One model, with variables that no other model shares."""

    def __init__(self, theano, case):
        T = theano.tensor
        is_matrix = ", u)" in case
        shared = {
            name: theano.shared(np.array(value), name=name)
            for name, value in {
                "w": [30.0, 30.0],
                "u": [[30.0, -30.0], [30.0, -30.0]],
                "v": [[1.0, 0.5], [-0.5, 1.0]],
                "b": [0.25, -0.25] if is_matrix else 0.25,
                "frozen": [0.25, -0.25] if is_matrix else 0.25,
            }.items()
        }
        self.x = T.dmatrix("x")
        names = {
            "T": T,
            "theano": theano,
            "x": self.x,
            "y": (T.dmatrix if is_matrix else T.dvector)("y"),
            "k": T.lvector("k"),
            "o": T.dmatrix("o"),
        }
        exec(case, dict(shared, **names), names)
        self.cost, made = names["cost"], theano.gof.graph.inputs([names["cost"]])
        self.inputs = [names[name] for name in ("x", "y", "k", "o") if names[name] in made]
        self.parameters = [shared[name] for name in ("w", "u", "v", "b") if shared[name] in made]
        self.gradients = theano.grad(self.cost, self.parameters)

    def values(self, data):
        """The values of the inputs for a data set."""
        rows, labels = DATA[data]
        one_hot = np.eye(2)[labels]
        given = {"x": np.array(rows), "k": np.array(labels), "o": one_hot}
        given["y"] = one_hot if self.inputs[-1].ndim == 2 else np.array(labels, "float64")
        return [given[v.name] for v in self.inputs]


def numbers(values):
    """What is recorded of some arrays."""
    flat = (np.asarray(value).ravel() for value in values)
    return " ".join(format(number + 0.0, ".6g") for number in itertools.chain(*flat))


def mode(theano, name):
    """A mode that runs in Python."""
    return theano.Mode("py", name).excluding("fusion")


def answers(theano, case, mode):
    """For each data set the numbers of each function: of the cost, the gradients, and a step."""
    try:
        model = Model(theano, case)
    except Exception as error:  # what has no gradient
        return "raises " + type(error).__name__
    updates = [(p, p - g) for p, g in zip(model.parameters, model.gradients)]  # noqa: B905
    options = {"mode": mode, "on_unused_input": "ignore"}
    functions = {
        "cost": theano.function(model.inputs, [model.cost], **options),
        "gradients": theano.function(model.inputs, model.gradients, **options),
        "both": theano.function(model.inputs, [model.cost] + model.gradients, **options),
        "step": theano.function(model.inputs, [model.cost], updates=updates, **options),
    }
    initial = [p.get_value() for p in model.parameters]
    found = {}
    for data in DATA:
        values = model.values(data)
        with np.errstate(all="ignore"):
            results = {name: f(*values) for name, f in functions.items()}
        before = dict(zip(model.parameters, initial))  # noqa: B905
        results["step"] = results["step"] + [before[p] - p.get_value() for p in before]
        for p, value in before.items():
            p.set_value(value)
        found[data] = {name: numbers(result) for name, result in results.items()}
    return found


def main():
    import theano

    found = {}
    for name, every in EVERY.items():
        chosen = models()[::every] + (loops()[::29] if name == "fast_run" else [])
        found[name] = {case: answers(theano, case, mode(theano, name)) for case in chosen}
        with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
            json.dump(found, file, indent=0)


if __name__ == "__main__":
    main()
