"""The nodes of expressions before they are rewritten: what code that walks graphs sees.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_nodes.py  # with Theano 1.0.5

Recorded are, for every node in the order of ``io_toposort``, the text of its operation, the class
of that, and its inputs; and the names of the inputs and ancestors of the expression.
"""

import json
import os

EXPRESSIONS = """
    T.dot(m, v)
    T.dot(v, v)
    T.dot(v, m.T)
    T.dot(m, m.T)
    T.dot(t, m.T)
    T.dot(s, v)
    T.tensordot(m, m, axes=[[0], [0]])
    T.batched_dot(t, t.dimshuffle(0, 2, 1))
    T.outer(v, v)
    m + 1
    1 + m
    m + v
    m - 2.5
    m * m / 3
    m ** 2
    m // 2
    m % 2
    -m
    abs(m)
    m > 0
    T.eq(m, 0)
    T.neq(m, 1)
    ~T.gt(m, 0)
    T.and_(m > 0, m < 1)
    T.cast(m, 'float32')
    T.cast(m, 'int64')
    T.cast(m, 'float64')
    m.astype('int8')
    T.exp(m)
    T.log(m)
    T.log1p(m)
    T.sqrt(m)
    T.sqr(m)
    T.tanh(m)
    T.sin(m)
    T.floor(m)
    T.ceil(m)
    T.round(m)
    T.sgn(m)
    T.inv(m)
    T.maximum(m, 0)
    T.minimum(m, v)
    T.clip(m, 0, 1)
    T.switch(m > 0, m, 0)
    T.isnan(m)
    T.isinf(m)
    T.erf(m)
    T.gammaln(m)
    T.psi(m)
    T.arctan2(m, m)
    T.erfinv(m)
    T.second(m, 1)
    T.fill(m, 0)
    T.zeros_like(m)
    T.ones_like(m)
    T.zeros((2, 3))
    T.ones((i, 3))
    T.alloc(0.0, i, 2)
    T.eye(3)
    T.identity_like(m)
    T.arange(i)
    T.arange(3)
    T.sum(m)
    T.sum(m, axis=0)
    T.sum(m, axis=(0, 1))
    T.sum(k)
    T.sum(m, axis=1, keepdims=True)
    T.mean(m)
    T.mean(m, axis=1)
    T.var(m, axis=0)
    T.std(m)
    T.prod(m)
    T.prod(m, axis=1)
    T.max(m)
    T.max(m, axis=1)
    T.min(m, axis=0)
    T.argmax(m, axis=1)
    T.argmin(m)
    T.max_and_argmax(m, axis=1)[0]
    T.all(m > 0)
    T.any(m > 0, axis=0)
    m.norm(2)
    T.concatenate([m, m])
    T.concatenate([m, m], axis=1)
    T.concatenate([v, v], axis=-1)
    T.join(i, m, m)
    T.stack([v, v])
    T.stack([s, s])
    T.stack([v, v], axis=1)
    T.split(v, [1, 2], 2)[1]
    T.as_tensor_variable([s, s])
    m.T
    m.dimshuffle(1, 0)
    v.dimshuffle('x', 0)
    v.dimshuffle(0, 'x')
    m[None, :, :]
    v[:, None]
    m.flatten()
    m.flatten(2)
    m.ravel()
    v.flatten()
    v.ravel()
    r.flatten(2)
    t.flatten(3)
    T.squeeze(v)
    T.squeeze(r)
    T.roll(v, 1)
    v.T
    v.dimshuffle(0)
    m.reshape((2, 3)).reshape((3, 2))
    T.concatenate([m])
    T.zeros_like(v)
    v.copy()
    T.cast(v, v.dtype)
    v.astype('float64')
    v[:]
    v.repeat(1)
    T.shape_padleft(v)
    T.shape_padright(v, 2)
    T.tensor_copy(m)
    T.as_tensor_variable(m)
    T.join(0, v, v)
    T.max(s)
    T.max(t, axis=(0, 2))
    T.min(m)
    T.max(m, axis=0, keepdims=True)
    m.max()
    m.mean(axis=0)
    m.var()
    theano.scan(lambda x, a: a + x, v, outputs_info=s)[0]
    theano.scan(lambda x: (x, theano.scan_module.until(x > 1)), v)[0]
    t.flatten(2)
    m.reshape((3, 2))
    m.reshape((-1, i))
    m.reshape(m.shape)
    T.reshape(v, (1, 3))
    m.shape
    m.shape[0]
    T.shape(m)
    m.size
    m[0]
    m[i]
    m[1:]
    m[:, 0]
    m[i:, ::2]
    m[::-1]
    m[-1]
    m[k]
    m[:, k]
    m[k, k]
    m[T.arange(2), k]
    m[(m > 0).nonzero()]
    T.set_subtensor(m[0], 1)
    T.inc_subtensor(m[i], v)
    T.set_subtensor(m[k], 0)
    T.inc_subtensor(m[k], m)
    T.set_subtensor(m[k, k], 0)
    T.inc_subtensor(m[:, k], 1)
    T.repeat(v, 2)
    T.tile(v, 2)
    T.sort(v)
    T.argsort(v)
    T.cumsum(v)
    T.diag(v)
    T.diag(m)
    T.tril(m)
    T.extra_ops.bincount(k)
    T.extra_ops.to_one_hot(k, 3)
    T.addbroadcast(v, 0)
    T.unbroadcast(r, 0)
    T.patternbroadcast(m, (True, False))
    T.specify_shape(m, (2, 3))
    T.nnet.softmax(m)
    T.nnet.logsoftmax(m)
    T.nnet.sigmoid(m)
    T.nnet.hard_sigmoid(m)
    T.nnet.ultra_fast_sigmoid(m)
    T.nnet.softplus(m)
    T.nnet.relu(m)
    T.nnet.relu(m, 0.1)
    T.nnet.elu(m)
    T.nnet.binary_crossentropy(m, m)
    T.nnet.categorical_crossentropy(m, k)
    T.nnet.categorical_crossentropy(m, m)
    T.nnet.conv2d(q, q)
    T.nnet.conv2d(q, q, border_mode='half', subsample=(2, 2))
    T.signal.pool.pool_2d(q, (2, 2), ignore_border=True)
    T.nnet.neighbours.images2neibs(q, (2, 2))
    theano.ifelse.ifelse(T.gt(i, 0), m, m)
    theano.gradient.disconnected_grad(m)
    theano.gradient.grad_clip(m, -1, 1)
    T.nlinalg.matrix_inverse(m)
    T.nlinalg.det(m)
    T.nlinalg.trace(m)
    T.slinalg.cholesky(m)
    T.slinalg.solve(m, m)
    T.opt.Assert('positive')(m, T.gt(m.sum(), 0))
    theano.printing.Print('here')(m)
    theano.scan(lambda x: x * 2, v)[0]
    T.dot(m, w) + b
    T.tanh(T.dot(m, w) + b)
    T.grad((T.dot(m, w) ** 2).sum(), w)
    T.grad(T.nnet.softmax(m)[0, 0], m)
    T.grad(m.max(), m)
    T.grad(T.concatenate([v, v]).sum(), v)
    T.grad(m[0].sum(), m)
    T.grad(T.sqrt(m).mean(), m)
"""


def expressions():
    """Every expression."""
    return [line.strip() for line in EXPRESSIONS.strip().splitlines()]


def namespace():
    """What the expressions are evaluated with."""
    import numpy as np
    import theano
    import theano.ifelse
    import theano.tensor as T
    import theano.tensor.nlinalg
    import theano.tensor.nnet.neighbours
    import theano.tensor.opt
    import theano.tensor.signal.pool
    import theano.tensor.slinalg

    return {
        "theano": theano,
        "T": T,
        "np": np,
        "s": T.dscalar("s"),
        "v": T.dvector("v"),
        "m": T.dmatrix("m"),
        "r": T.drow("r"),
        "t": T.dtensor3("t"),
        "q": T.dtensor4("q"),
        "k": T.lvector("k"),
        "i": T.lscalar("i"),
        "w": theano.shared(np.ones((3, 2)), "w"),
        "b": theano.shared(np.ones(2), "b"),
    }


def operations(expression, names):
    """Return the operations of an expression in the order of ``io_toposort``."""
    from theano.gof import graph

    made = eval(expression, names)
    return [node.op for node in graph.io_toposort(graph.inputs([made]), [made])]


def describe(expression, names):
    """Return what is recorded of an expression: its nodes, inputs and ancestors."""
    from theano.gof import graph

    made = eval(expression, names)
    inputs = graph.inputs([made])
    return {
        "nodes": [
            f"{type(node.op).__name__} {node.op} {[str(variable) for variable in node.inputs]}"
            for node in graph.io_toposort(inputs, [made])
        ],
        "inputs": [str(variable) for variable in inputs],
        "ancestors": [str(variable) for variable in graph.ancestors([made])],
    }


def main():
    names = namespace()
    recorded = {expression: describe(expression, names) for expression in expressions()}
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(case) + ": " + json.dumps(recorded[case]) for case in recorded]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
