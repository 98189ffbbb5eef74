"""Every operation on every broadcast pattern: what Theano 1.0.5 makes of it.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_rules.py  # with Theano 1.0.5

The expressions are enumerated: an operation of one of the lists below, for each tensor of
`TENSORS` or each pair of them.  Recorded are the dtype, the broadcast pattern and the value, or
the exception and whether the expression or the call raises it.
"""

import itertools
import json
import os

import numpy as np

# The value of a tensor, and which of its dimensions are broadcastable.
TENSORS = {
    "s": (2.0, ()),
    "v": ([1.0, 2.0, 3.0], (0,)),
    "e": ([4.0], (1,)),
    "m": ([[1.0, 2.0, 3.0], [5.0, 7.0, 11.0]], (0, 0)),
    "r": ([[2.0, 3.0, 5.0]], (1, 0)),
    "c": ([[3.0], [5.0]], (0, 1)),
    "u": ([[7.0]], (1, 1)),
    "w": ([[2.0], [9.0]], (0, 0)),
    "t": ([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]], (0, 1, 0)),
    "q": ([[[1.0], [2.0], [3.0]]], (1, 0, 1)),
}
# Tensors whose length is known without a broadcast pattern, and what `alloc` makes of ones.
OTHERS = {
    "shared_row": "theano.shared(np.ones((1, 3)))",
    "shared_matrix": "theano.shared(np.ones((2, 3)))",
    "constant_row": "T.constant(np.ones((1, 3)))",
    "constant_vector": "T.constant(np.ones(3))",
    "alloc_col": "T.alloc(1.0, n, 1)",
    "alloc_row": "T.alloc(1.0, 1, n)",
    "range_of_one": "T.arange(1)",
    "range": "T.arange(3)",
}
OF_ONE = [
    "{}[None]",
    "{}[:, None]",
    "{}[None, :]",
    "{}[:, :, None]",
    "{}[:, None, :]",
    "{}[None, :, None]",
    "{}[..., None]",
    "{}[None, ...]",
    "{}[0]",
    "{}[0, None]",
    "{}[None, 0]",
    "{}[:, 0]",
    "{}[:, None, 0]",
    "{}[:1]",
    "{}[0:1, None]",
    "{}[::-1]",
    "{}[-1:]",
    "{}[n:]",
    "{}[:, :1]",
    "{}[[0]]",
    "{}[[0, 0]]",
    "{}[:, [0]]",
    "{}[[0], None]",
    "{}[T.arange(1)]",
    "{0}[{0} > 2]",
    "{}.dimshuffle(0)",
    "{}.dimshuffle('x', 0)",
    "{}.dimshuffle(0, 'x')",
    "{}.dimshuffle(1, 0)",
    "{}.T",
    "{}.flatten()",
    "{}.flatten(2)",
    "{}.ravel()",
    "{}.squeeze()",
    "{}.reshape((1, -1))",
    "{}.reshape((-1, 1))",
    "{}.reshape((-1, n), ndim=2)",
    "{0}.reshape({0}.shape)",
    "{}.repeat(2)",
    "{}.repeat(2, axis=0)",
    "{}.repeat(1, axis=0)",
    "T.tile({}, 2)",
    "T.tile({}, (1, 1))",
    "T.shape_padleft({})",
    "T.shape_padright({}, 2)",
    "T.addbroadcast({}, 0)",
    "T.unbroadcast({}, 0)",
    "T.zeros_like({})",
    "T.ones_like({})",
    "T.fill({}, 3.0)",
    "T.diag({})",
    "T.diagonal({})",
    "T.cumsum({}, axis=0)",
    "T.sort({}, axis=0)",
    "T.argsort({}, axis=0)",
    "T.extra_ops.diff({})",
    "T.max_and_argmax({}, axis=0)",
    "T.nnet.softmax({})",
    "T.outer({}, v)",
    "T.alloc({}, 1, 3)",
    "T.alloc({}, 2, 3)",
    "T.alloc({}, n, 1)",
    "T.alloc({}, 1, n, 3)",
    "T.switch({} > 2, 1.0, m)",
    "T.clip({}, 2, c)",
    "T.cast({}, 'float32')",
    "T.grad({}.sum() ** 2, s)",
    "{}.norm(2)",
    "T.batched_dot({0}, {0})",
    "T.tensordot({}, m, axes=[[0], [0]])",
    "T.patternbroadcast({}, [0, 0])",
    "T.specify_shape({}, (1, 3))",
    "theano.clone({0} + 1, {{{0}: {0} * 2}})",
]
REDUCTIONS = ["sum", "mean", "max", "argmax", "prod", "var", "any"]
AXES = ["None", "0", "1", "-1", "(0, 1)", "[0]"]
OF_TWO = [
    "{} + {}",
    "T.dot({}, {})",
    "T.concatenate([{}, {}])",
    "T.concatenate([{}, {}], axis=1)",
    "T.concatenate([{}, {}], axis=-1)",
    "T.stack([{}, {}])",
    "T.stack([{}, {}], axis=1)",
    "T.set_subtensor({}[0], {})",
    "T.inc_subtensor({}[:1], {})",
    "T.inc_subtensor({}[[0, 0]], {})",
    "T.set_subtensor({}[:, 0], {})",
    "T.inc_subtensor({}[:, :1], {})",
    "T.set_subtensor({}[:, None], {})",
    "T.inc_subtensor({}[:, [0]], {})",
    "T.grad(({0} * {1}).sum(), {0})",
    "theano.clone({0} * 2, {{{0}: {1}}})",
    "theano.ifelse.ifelse(n > 1, {}, {})",
]


def reductions():
    """The forms of what is computed along axes."""
    options = itertools.product(REDUCTIONS, AXES, ("", ", keepdims=True"))
    return ["T.{}({{}}, axis={}{})".format(*option) for option in options]


def forms():
    """Every form; a form of two tensors has two places."""
    return OF_ONE + reductions() + OF_TWO


def cases(form):
    """The expressions of a form."""
    if form not in OF_TWO:
        return [form.format(name) for name in [*TENSORS, *OTHERS]]
    pairs = [
        *itertools.product(TENSORS, TENSORS),
        *itertools.product(OTHERS, ["v", "m", "r", *OTHERS]),
    ]
    return [form.format(*pair) for pair in pairs]


def namespace():
    """What the expressions are evaluated with, and the values of the inputs, by name."""
    import theano
    import theano.ifelse
    import theano.tensor as T

    made = {
        name: T.TensorType("float64", [bool(b) for b in pattern])(name)
        for name, (_, pattern) in TENSORS.items()
    }
    made["n"] = T.lscalar("n")
    values = dict({name: np.array(value) for name, (value, _) in TENSORS.items()}, n=2)
    names = dict(made, theano=theano, T=T, np=np)
    names.update({name: eval(text, names) for name, text in OTHERS.items()})
    return names, values


def text(variable, value):
    """What is recorded of a result, as short as it can be."""
    pattern = "".join("1" if b else "-" for b in variable.broadcastable)
    value = np.asarray(value)
    numbers = " ".join(f"{float(number) + 0.0:.6g}" for number in value.ravel())
    return "{} {} {} {}".format(variable.dtype, pattern or "()", list(value.shape), numbers)


def built(case, names):
    """The results of an expression, or the exception that it raises."""
    try:
        made = eval(case, names)
    except Exception as error:
        return error
    return made if isinstance(made, (list, tuple)) else [made]


def computed(results, names, values):
    """Compute the results of expressions in one function; return what is recorded of them.

    `results` maps each expression to the list of its results, `values` each input to its value.
    """
    theano = names["theano"]
    flat = sum(results.values(), [])
    needed = set(theano.gof.graph.inputs(flat))
    inputs = [names[name] for name in values if names[name] in needed]
    function = theano.function(inputs, flat, mode=theano.Mode("py", None))
    numbers = iter(function(*[values[v.name] for v in inputs]))
    return {
        case: " | ".join(text(variable, next(numbers)) for variable in of_one)
        for case, of_one in results.items()
    }


def answers(cases, names, values, alone=()):
    """What each expression gives, and the exception that it or its call raises, by expression.

    One function computes all of them, unless its call raises.  Each of those in `alone` has a
    function of its own.
    """
    found, results = {}, {}
    for case in cases:
        made = built(case, names)
        if isinstance(made, Exception):
            found[case] = "built: " + type(made).__name__, made
        else:
            results[case] = list(made)
    groups = [[case] for case in results if case in alone]
    groups.append([case for case in results if case not in alone])
    while groups:
        group = groups.pop()
        try:
            given = computed({case: results[case] for case in group}, names, values)
            found.update((case, (shown, None)) for case, shown in given.items())
        except Exception as error:
            if len(group) == 1:
                found[group[0]] = "run: " + type(error).__name__, error
            else:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
    return found


def main():
    names, values = namespace()
    everything = [case for form in forms() for case in cases(form)]
    found = answers(everything, names, values, alone=everything)
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(case) + ": " + json.dumps(found[case][0]) for case in everything]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
