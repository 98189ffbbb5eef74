"""Small graphs at extreme numbers in every mode: what Theano 1.0.5 computes.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_modes.py  # with Theano 1.0.5

Which rewrites a mode includes decides whether a result is finite.  The expressions are enumerated:
each template with each operand, and the gradient of its sum.  Recorded are, for each optimizer, the
results as text.  Equal results are recorded once.
"""

import itertools
import json
import os

import numpy as np

# What `x` is.
VECTORS = {
    "x": [0.0, 1000.0, -1000.0],
    "p": [0.25, 0.5, 2.0],
}
# Numbers that a function loses, and of which it has no value.
LOST = {"e": [1e-20, -3.0, 50.0, 0.5]}
OF_LOST = [
    "T.arctanh(T.tanh({}))",
    "T.tanh(T.arctanh({}))",
    "T.arcsinh(T.sinh({}))",
    "T.sinh(T.arcsinh({}))",
    "T.arccosh(T.cosh({}))",
    "T.cosh(T.arccosh({}))",
    "T.rad2deg(T.deg2rad({}))",
    "T.deg2rad(T.rad2deg({}))",
    "T.conj(T.conj({}))",
    "T.erfc(-{}) - 1",
    "1 - T.erfc({})",
    "-T.erfc({}) + 1",
    "-T.erf(-{}) - 1",
    "T.erfc(-1 * {}) - 1",
    "1 - T.erf({})",
    "T.log(T.exp({0}) + T.exp(20 * {0}))",
    "T.inv(1 + T.exp({}))",
    "T.log1p(T.exp({0})) - {0}",
    "T.set_subtensor(T.stack([{0}, {0}])[:, ::-1], T.shape_padleft({0}))",
]
OF_A_VECTOR = [
    "T.log(1 + T.exp({}))",
    "T.log1p(T.exp({}))",
    "T.log(1 - T.exp({}))",
    "T.log(T.nnet.sigmoid({}))",
    "T.log(1 - T.nnet.sigmoid({}))",
    "T.log1p(-T.nnet.sigmoid({}))",
    "T.log(1 / (1 + T.exp(-{})))",
    "1 / (1 + T.exp(-{}))",
    "1 / (1 + T.exp({}))",
    "1 - T.nnet.sigmoid({})",
    "1 - 1 / (1 + T.exp({}))",
    "T.exp({0}) / (1 + T.exp({0}))",
    "T.exp({0}) * T.nnet.sigmoid(-{0})",
    "T.exp({}) - 1",
    "T.log(1 + {})",
    "T.log(T.exp({}))",
    "T.exp(T.log({}))",
    "T.log(T.prod(T.exp({})))",
    "T.log(T.prod({}))",
    "T.log(T.sum(T.exp({})))",
    "T.log(T.sum(T.exp({0} - T.max({0})))) + T.max({0})",
    "T.exp({0}) / T.sum(T.exp({0}))",
    "T.log(T.exp({0}) / T.sum(T.exp({0})))",
    "T.sqrt(T.sqr({}))",
    "T.sqr(T.sqrt({}))",
    "({} ** 2) ** 0.5",
    "{} ** 0.5",
    "{} ** -1",
    "{} ** 0",
    "{0} / {0}",
    "{0} - {0}",
    "{} * 0",
    "0 * T.log({})",
    "0 / {}",
    "{0} * T.exp({0}) / {0}",
    "T.exp({0}) / T.exp({0})",
    "T.exp({0}) - T.exp({0})",
    "-(-{})",
    "abs({0}) / abs({0})",
    "T.sgn({}) * 2",
    "T.log(T.erfc({}))",
    "1 - T.erf({})",
    "1 - T.erfc({})",
    "1 + T.erf(-{})",
    "T.erf({}) - 1",
    "T.switch({0} > 0, T.log({0}), 0.0)",
    "T.switch(T.eq({0}, 0), 1.0, T.sin({0}) / {0})",
    "T.maximum({}, 0) ** 0.5",
    "T.nnet.softplus({})",
    "T.log(T.nnet.softplus({}))",
    "T.nnet.relu({})",
    "T.nnet.elu({})",
    "T.nnet.hard_sigmoid({})",
    "T.nnet.ultra_fast_sigmoid({})",
    "T.nnet.softmax({})",
    "T.log(T.nnet.softmax({}))",
    "T.nnet.logsoftmax({})",
    "T.log(T.nnet.softmax({}))[0, 1]",
    "T.nnet.binary_crossentropy(T.nnet.sigmoid({}), 1.0)",
    "T.nnet.binary_crossentropy(T.nnet.sigmoid({}), 0.0)",
    "T.nnet.sigmoid_binary_crossentropy({0}, T.ones_like({0}))",
    "T.tanh({})",
    "2 * T.nnet.sigmoid(2 * {}) - 1",
    "T.sqrt(T.sum({} ** 2))",
    "{}.norm(2)",
    "T.mean(({0} - T.mean({0})) ** 2)",
    "T.var({})",
    "T.clip({}, 0, 1)",
    "T.cast(T.cast({}, 'float32'), 'float64')",
    "T.dot({0}, {0}) - T.sum({0} * {0})",
    "T.prod({})",
    "T.max({})",
    "T.gammaln({})",
    "T.psi(1 + abs({}))",
    "T.cosh({0}) - T.sinh({0})",
    "T.inv(T.inv({}))",
    "T.log2(T.exp2({}))",
    "T.inc_subtensor({0}[:2], T.log({0}[:2]))[2]",
    "T.set_subtensor({0}[1], T.log({0}[1]))[1]",
    "T.alloc({0}, 2, 3).sum(axis=0)",
    "T.concatenate([{0}, T.log({0})])[1:4]",
    "{0}[::-1][::-1] / {0}",
    "T.eq({0}, {0})",
    "T.isnan({0} / {0})",
    "T.isinf(1 / {0})",
]
# Cross-entropies: of the softmax of `{0}`, in each way in which one writes them.
MATRICES = {
    "a": [[0.0, 1000.0], [2.0, 1.0]],
    "b": [[-800.0, 800.0], [-2.0, 3.0]],
    "a + c": None,
}
BIAS = {"c": [500.0, -500.0]}
OF_A_MATRIX = [
    "T.nnet.categorical_crossentropy(T.nnet.softmax({}), y)",
    "T.nnet.categorical_crossentropy(T.nnet.softmax({}), o)",
    "T.nnet.categorical_crossentropy(T.nnet.softmax({}), q)",
    "-T.log(T.nnet.softmax({}))[T.arange(y.shape[0]), y]",
    "-T.log(T.nnet.softmax({}))[T.arange(2), y]",
    "-T.mean(T.log(T.nnet.softmax({}))[T.arange(y.shape[0]), y])",
    "-T.sum(T.log(T.nnet.softmax({})[T.arange(y.shape[0]), y]))",
    "-T.mean(T.log(T.nnet.softmax({}))[[0, 1], [0, 1]])",
    "-T.sum(o * T.log(T.nnet.softmax({})), axis=1)",
    "-T.sum(T.nnet.logsoftmax({})[T.arange(y.shape[0]), y])",
    "T.nnet.crossentropy_softmax_1hot({}, y)[0]",
    "T.nnet.crossentropy_softmax_argmax_1hot_with_bias({}, c, y)[0]",
    "T.nnet.softmax({})",
    "T.log(T.nnet.softmax({}))",
    "T.argmax(T.nnet.softmax({}), axis=1)",
    "T.max(T.nnet.softmax({}), axis=1)",
    "T.log(T.exp({0}) / T.exp({0}).sum(axis=1, keepdims=True))",
    "T.exp({0}) / T.exp({0}).sum(axis=1, keepdims=True)",
    "T.nnet.binary_crossentropy(T.nnet.sigmoid({}), o).sum(axis=1)",
    "T.dot({}, T.dot(o, q))",
    "0.5 * T.dot({}, o) + q",
    "T.log(T.dot({}, o))",
]
OTHERS = {"y": np.array([0, 1]), "o": np.eye(2), "q": np.array([[0.3, 0.7], [0.5, 0.5]])}
GRADIENT = "grad: "

OPTIMIZERS = [
    "fast_run",
    "fast_compile",
    "None",
    "merge",
    "stabilize",
    "fast_run_stable",
    "o2",
    "o3",
    "unsafe",
]
# Changes of an optimizer, as methods of a mode.
CHANGES = {
    "fast_run, excluding specialize": ("fast_run", "excluding", "specialize"),
}


def modes():
    """The names of the modes."""
    return OPTIMIZERS + sorted(CHANGES)


def mode(theano, name):
    """A mode that runs in Python.  Theano's fused operations raise there for ``0.0 ** -1``."""
    optimizer, method, tag = CHANGES.get(name, (name, None, None))
    made = theano.Mode("py", optimizer).excluding("fusion")
    return getattr(made, method)(tag) if method else made


def cases():
    """The expressions, and the gradients of their sums."""
    of_vectors = itertools.product(OF_A_VECTOR, VECTORS)
    of_matrices = itertools.product(OF_A_MATRIX, MATRICES)
    of_lost = itertools.product(OF_LOST, LOST)
    chosen = itertools.chain(of_vectors, of_matrices, of_lost)
    values = [form.format(of) for form, of in chosen]
    return values + [GRADIENT + value for value in values]


class Inputs:
    """Inputs of one expression, which no other expression shares."""

    def __init__(self, theano, T):
        self.values = {}
        self.names = {"theano": theano, "T": T, "np": np}
        for name, value in itertools.chain(
            VECTORS.items(), LOST.items(), MATRICES.items(), BIAS.items(), OTHERS.items()
        ):
            if value is not None:
                value = np.asarray(value)
                variable = T.TensorType(value.dtype, (False,) * value.ndim)(name)
                self.names[name], self.values[variable] = variable, value


def built(theano, case):
    """The result of a case, and the values of its inputs."""
    inputs = Inputs(theano, theano.tensor)
    result = eval(case.replace(GRADIENT, "", 1), inputs.names)
    if case.startswith(GRADIENT):
        of = [
            v for v in theano.gof.graph.inputs([result]) if v.name in (*VECTORS, *LOST, *MATRICES)
        ]
        result = theano.grad(result.sum(), of[0])
    needed = theano.gof.graph.inputs([result])
    return result, {v: value for v, value in inputs.values.items() if v in needed}


def text(value):
    """What is recorded of a result."""
    value = np.asarray(value)
    numbers = (f"{float(number) + 0.0:.6g}" for number in value.ravel())
    return "{} {} {}".format(value.dtype, list(value.shape), " ".join(numbers))


def answers(theano, name, chosen):
    """What each case of `chosen` gives in a mode."""
    found, results, given = {}, {}, {}
    for case in chosen:
        try:
            results[case], values = built(theano, case)
            given.update(values)
        except Exception as error:  # what has no gradient
            found[case] = "raises " + type(error).__name__
    function = theano.function(list(given), list(results.values()), mode=mode(theano, name))
    with np.errstate(all="ignore"):
        computed = function(*given.values())
    found.update(zip(results, map(text, computed)))  # noqa: B905  no `strict` in Python 3.7
    return found


def main():
    import theano

    found = {}
    for name in modes():
        found[name] = answers(theano, name, cases())
        with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
            json.dump(found, file, indent=0)


if __name__ == "__main__":
    main()
