"""Random graphs: their values, dtypes and broadcast patterns, or the errors, of Theano 1.0.5.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_graphs.py  # with Theano 1.0.5

A graph is an expression of three levels.  Many are wrong, as those are that people type.
"""

import json
import os
import random

import numpy as np

SEEDS = range(400)
LEAVES = {
    "s": ("dscalar", 1.5),
    "v": ("dvector", [0.5, -1.0, 2.0]),
    "w": ("fvector", [1.0, 2.0, 0.25]),
    "m": ("dmatrix", [[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]]),
    "n": ("fmatrix", [[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]),
    "k": ("lvector", [2, 0, 1]),
    "i": ("iscalar", 1),
    "b": ("bvector", [1, 0, 3]),
    "r": ("drow", [[1.0, 2.0, 3.0]]),
    "c": ("dcol", [[1.0], [-2.0]]),
    "t": ("dtensor3", [[[1.0, 2.0], [3.0, 4.0], [0.5, -1.0]]]),
    "u": ("wvector", [3, 1, 2]),
}
OF_ONE = """-{0}; abs({0}); T.exp({0}); T.sqr({0}); T.tanh({0}); T.sgn({0}); {0}.sum(); {0} // 2
{0}.mean(axis=0); {0}.max(axis=-1); {0}.T; {0}[0]; {0}[-1:]; {0}[::-1]; {0}.flatten(); {0} ** 2
{0}.dimshuffle('x', 0); {0}.dimshuffle(0, 'x'); T.argmax({0}, axis=0); T.cumsum({0}); {0} % 2
{0}.astype('int32'); {0}.astype('float32'); T.sort({0}); {0}.std(axis=0, keepdims=True); 1 / {0}
T.nnet.softmax({0}); T.nnet.sigmoid({0}); T.nnet.relu({0}); T.ceil({0}); T.round({0}); {0}.any()
{0}.prod(axis=0); {0}.shape[0]; T.zeros_like({0}); T.shape_padleft({0}); T.isnan({0}); {0}.min()
T.log1p(abs({0})); T.tile({0}, 2); T.repeat({0}, 2, axis=0); {0}.reshape((-1, 1)); T.diag({0})
T.extra_ops.diff({0}); {0}.norm(2); T.clip({0}, -1, 1); T.inv({0}); T.sqrt(abs({0}))
{0}.nonzero()[0]; T.roll({0}, 1); T.extra_ops.squeeze({0}); T.tril({0}); T.grad({0}.sum(), v)
T.set_subtensor({0}[0], 0); T.inc_subtensor({0}[1:], 1); T.grad(T.sqr({0}).sum(), m)"""
OF_TWO = """{0} + {1}; {0} - {1}; {0} * {1}; {0} / {1}; T.dot({0}, {1}); T.maximum({0}, {1})
T.eq({0}, {1}); {0} > {1}; T.switch({0} > 0, {0}, {1}); T.concatenate([{0}, {1}]); {0} ** {1}
T.stack([{0}, {1}]); {0} // {1}; {0} % {1}; T.outer({0}, {1}); {0}[{1}]; T.take({0}, {1})
T.tensordot({0}, {1}, 1); T.join(0, {0}, {1}); {1}[{0}.nonzero()]; T.alloc({0}, 2, 3) + {1}
T.and_({0}, {1}); T.arctan2({0}, {1}); T.batched_dot({0}, {1})"""


def forms(text):
    """The expressions in a text."""
    return [form for line in text.splitlines() for form in line.split("; ")]


def graph(rng, depth):
    """A random expression."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(sorted(LEAVES))
    if rng.random() < 0.6:
        return f"({rng.choice(forms(OF_ONE)).format(graph(rng, depth - 1))})"
    form = rng.choice(forms(OF_TWO))
    return f"({form.format(graph(rng, depth - 1), graph(rng, depth - 1))})"


def graphs():
    """The expressions, each once."""
    return sorted({graph(random.Random(seed), 3) for seed in SEEDS})


def answer(theano, case):
    """The result as text, or the exception and where it was raised."""
    T = theano.tensor
    inputs = {name: getattr(T, kind)(name) for name, (kind, _) in LEAVES.items()}
    values = [np.array(value, v.dtype) for v, (_, value) in zip(inputs.values(), LEAVES.values())]  # noqa: B905
    options = {"mode": theano.Mode("py", "fast_run").excluding("fusion")}
    kind = "build"
    try:
        result = eval(case, dict(inputs, T=T))
        kind = f"{result.dtype} {tuple(result.broadcastable)} call"
        f = theano.function([*inputs.values()], result, on_unused_input="ignore", **options)
        with np.errstate(all="ignore"):
            value = np.asarray(f(*values))
    except Exception as error:
        return kind, error
    numbers = " ".join(format(float(number) + 0.0, ".5g") for number in value.ravel())
    return f"{kind} {value.dtype} {value.shape}", numbers


def main():
    import theano

    found = {}
    for case in graphs():
        kind, result = answer(theano, case)
        raised = isinstance(result, Exception)
        found[case] = kind, "raises " + type(result).__name__ if raised else result
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        json.dump(found, file, indent=0)


if __name__ == "__main__":
    main()
