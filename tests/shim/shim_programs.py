"""Small programs, each of which sets `result`; what it is under Theano 1.0.5 is recorded.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_programs.py  # with Theano 1.0.5: shim_programs.json

A program runs with ``theano``, ``T`` and ``np``.
"""

import importlib
import json
import os
import textwrap
import warnings

import numpy as np

PROGRAMS = {
    "attention of a column of scores": """
        n = T.lscalar("n")
        scores = T.alloc(1.0, n, 1)[:, None]
        values = T.dot(scores, T.ones((1, 1))) + T.dmatrix("x") * 0
        result = [list(scores.broadcastable), scores.ndim]
    """,
    "default update by a constant": """
        s = theano.shared(np.zeros(3))
        s.default_update = s + T.constant(np.ones(3))
        f = theano.function([], s)
        f()
        result = [f().tolist(), s.get_value().tolist(), s.type == T.constant(np.ones(3)).type]
    """,
    "an update of an input": """
        v = T.dvector("v")
        f = theano.function(
            [theano.In(v, value=np.zeros(3), update=v + T.constant(np.ones(3)))], v * 2
        )
        f()
        result = [f().tolist(), f[v].tolist()]
    """,
    "an update by a reshaped constant": """
        s = theano.shared(np.zeros((2, 3)))
        f = theano.function([], s, updates=[(s, s + T.constant(np.arange(6.0)).reshape((2, 3)))])
        f()
        result = f().tolist()
    """,
    "an update by a mean over a reshape": """
        x = T.dmatrix("x")
        mean = theano.shared(np.zeros(4))
        y = x.reshape((-1, 4))
        f = theano.function([x], [], updates=[(mean, 0.9 * mean + 0.1 * y.mean(axis=0))])
        f(np.arange(8.0).reshape(2, 4))
        result = mean.get_value().tolist()
    """,
    "batch normalization after a reshape": """
        x = T.dtensor3("x")
        gamma, mean = theano.shared(np.ones((1, 3)), broadcastable=(True, False)), theano.shared(
            np.zeros((1, 3)), broadcastable=(True, False)
        )
        y = x.reshape((4, 3))
        average = y.mean(axis=0, keepdims=True)
        mean.default_update = 0.5 * mean + 0.5 * average
        f = theano.function([x], (y - average) * gamma + 0 * mean)
        result = [f(np.arange(12.0).reshape(2, 2, 3)).tolist(), mean.get_value().tolist()]
    """,
    "windows of half the image": """
        from theano.tensor.signal.pool import pool_2d
        x = T.dtensor4("x")
        y = pool_2d(x, ws=(x.shape[2] // 2, x.shape[3] // 2), ignore_border=True, pad=None)
        result = theano.function([x], y)(np.arange(36.0).reshape(1, 1, 6, 6)).tolist()
    """,
    "gradient of windows of half the image": """
        from theano.tensor.signal.pool import pool_2d
        x = T.dtensor4("x")
        y = pool_2d(x, ws=(x.shape[2] // 2, x.shape[3] // 2), ignore_border=True, pad=None)
        g = T.grad((y ** 2).sum(), x)
        result = theano.function([x], g)(np.arange(16.0).reshape(1, 1, 4, 4)).tolist()
    """,
    "gradient of ConvOp without its image": """
        from theano.tensor.nnet import conv
        x, k, gz = T.dtensor4("x"), T.dtensor4("k"), T.dtensor4("gz")
        y = conv.conv2d(x, k, image_shape=(1, 1, 5, 5), filter_shape=(2, 1, 3, 3))
        gradient = y.owner.op.grad([x, k], [gz])[0]
        k_value = np.arange(18.0).reshape(2, 1, 3, 3)
        gz_value = np.cos(np.arange(18.0)).reshape(1, 2, 3, 3).round(2)
        result = theano.function([k, gz], gradient)(k_value, gz_value).round(8).tolist()
    """,
    "gradient of a scan with one unit": """
        x = T.dtensor3("x")
        w = theano.shared(np.array([[0.5], [0.25]]))
        u = theano.shared(np.array([[0.75]]))
        h0 = T.alloc(np.float64(0), x.shape[1], 1)
        h0 = T.unbroadcast(h0, 1)
        h, _ = theano.scan(lambda x_t, h: T.tanh(T.dot(x_t, w) + T.dot(h, u)), x, h0)
        gradients = T.grad(h[-1].sum(), [w, u])
        values = np.cos(np.arange(12.0)).reshape(3, 2, 2)
        result = [g.round(8).tolist() for g in theano.function([x], gradients)(values)]
    """,
    "gradient of a scan with one unit that is broadcastable": """
        x = T.dtensor3("x")
        w = theano.shared(np.array([[0.5], [0.25]]), broadcastable=(False, True))
        b = theano.shared(np.array([0.125]), broadcastable=(True,))
        y, _ = theano.scan(
            lambda x_t, w, b: T.tanh(T.dot(x_t, w) + b), x, None, [w, b], strict=True
        )
        gradients = T.grad((y ** 2).sum(), [w, b])
        values = np.cos(np.arange(12.0)).reshape(3, 2, 2)
        result = [g.round(8).tolist() for g in theano.function([x], gradients)(values)]
    """,
    "gradient of a scan that carries a column": """
        x = T.dmatrix("x")
        w = theano.shared(np.array([[0.5]]), broadcastable=(True, True))
        h0 = theano.shared(np.zeros((2, 1)))
        h, _ = theano.scan(
            lambda x_t, h: T.tanh(x_t.dimshuffle(0, "x") + T.dot(h, w)),
            x,
            [dict(initial=h0, taps=[-1])],
        )
        gradients = T.grad(h.sum(), [w, h0])
        values = np.cos(np.arange(6.0)).reshape(3, 2)
        result = [g.round(8).tolist() for g in theano.function([x], gradients)(values)]
    """,
    "a column that is carried without unbroadcast": """
        x = T.dmatrix("x")
        h0 = T.alloc(0.0, 2, 1)
        theano.scan(lambda x_t, h: h + x_t[:2].dimshuffle(0, "x"), x, h0)[0]
        result = "built"
    """,
    "givens of a broadcastable tensor": """
        x, r = T.dmatrix("x"), T.drow("r")
        f = theano.function([r], x.sum(axis=0), givens={x: r})
        result = f(np.ones((1, 3))).tolist()
    """,
    "a variable filter": """
        x = T.dmatrix("x")
        w, b = theano.shared(np.ones((3, 2)), "w"), theano.shared(np.ones(2), "b")
        cost = (T.nnet.softmax(T.dot(x, w) + b) ** 2).sum()
        names = [v.name for v in theano.gof.graph.inputs([cost]) if v.name]
        nodes = theano.gof.graph.io_toposort([x], [cost])
        result = [names, len(nodes), [isinstance(node.op, T.Dot) for node in nodes]]
    """,
    "weights of a product with a vector": """
        v, w = T.dvector("v"), theano.shared(np.ones((3, 2)), "w")
        product = T.dot(v, w)
        result = [product.owner.inputs[1].name, str(product.owner.op), product.owner.op == T.dot]
    """,
    "parts of a concatenation": """
        x, y = T.dmatrix("x"), T.dmatrix("y")
        joined = T.concatenate([x, y], axis=1)
        axis, *parts = joined.owner.inputs
        result = [int(axis.data), [p.name for p in parts], isinstance(joined.owner.op, T.Join)]
    """,
    "a cast is found by its operation": """
        y = T.cast(T.fmatrix("x"), "float64")
        result = [str(y.owner.op), type(y.owner.op.scalar_op).__name__]
    """,
    "patterns of results whose lengths are constants": """
        i, s, v, m = T.lscalar("i"), T.dscalar("s"), T.dvector("v"), T.dmatrix("m")
        u = T.TensorType("float64", (True, True))("u")
        one, shared = T.constant(np.ones((1, 1))), theano.shared(np.ones((1, 1)))
        results = [
            T.eye(1), T.eye(1, 3), T.eye(3, 1), T.eye(i, 1), T.identity_like(u), T.tri(1),
            T.dot(T.eye(1), m), T.dot(m, T.eye(1)), T.grad(T.dot(m, T.eye(1)).sum(), m),
            T.grad(T.dot(shared, T.eye(1)).sum(), shared), T.grad((m * T.eye(1)).sum(), m),
            T.grad(T.concatenate([m, T.eye(1)]).sum(), m), T.stack([s]), T.stack([1.0]),
            T.stack([s, s]), T.stack([v]), T.as_tensor_variable([s]),
            T.arange(1), T.diag(T.ones(1)), T.zeros((1, 3)), T.alloc(0.0, 1, i),
            T.slinalg.expm(u), *T.nlinalg.qr(one), T.nlinalg.matrix_inverse(one),
            theano.map(lambda a: T.eye(1), v)[0], theano.ifelse.ifelse(s, T.eye(1), T.eye(1)),
            v.reshape((1, -1)), T.tile(v, (1, 1)), T.repeat(T.zeros((1, 3)), 2, axis=0),
        ]
        result = [[bool(one) for one in part.broadcastable] for part in results]
    """,
    "patterns of gradients": """
        k, w = T.constant(np.ones((1, 1))), theano.shared(np.ones((1, 1)))
        m, r, c, v = T.dmatrix("m"), T.drow("r"), T.dcol("c"), T.dvector("v")
        e, u = T.TensorType("float64", (1,))("e"), T.TensorType("float64", (1, 1))("u")
        pairs = [
            (T.dot(m, k), m), (T.dot(k, m), m), (T.dot(T.dot(m, k), k), m), (T.dot(e, m), m),
            (T.dot(u, m), m), (T.dot(e, m), e), (T.dot(u, m), u), (T.dot(m, c), c),
            (T.dot(r, m), r), (T.dot(v, c), c), (T.dot(w, k), w), (m * k, m), (w * k, w),
            (T.concatenate([m, k]), m), (T.nlinalg.matrix_inverse(w), w), (T.sqr(w), w),
        ]
        one = [[bool(b) for b in T.grad(y.sum(), x).broadcastable] for y, x in pairs]
        both = [g.type == x.type for g, x in zip(T.grad(T.dot(m, w * k).sum(), [m, w]), [m, w])]
        result = [one, both]
    """,
    "descent along a product with an identity of one row": """
        w = theano.shared(np.zeros((1, 1)))
        cost = T.sum(0.5 * T.dot(T.dot(w - 2, T.eye(1)), (w - 2).T))
        f = theano.function([], cost, updates=[(w, w - 0.5 * T.grad(cost, w))])
        result = [float(f()), float(f()), w.get_value().tolist()]
    """,
    "an update by one number in a list": """
        s, w = T.dscalar("s"), theano.shared(np.zeros(1))
        f = theano.function([s], w, updates=[(w, T.stack([s * 2]))])
        f(3)
        result = [f(1).tolist(), w.get_value().tolist()]
    """,
    "texts of types and queries": """
        import theano.sparse

        sparse = theano.sparse.csr_matrix("a", dtype="float32")
        result = [
            str(sparse.type), repr(sparse.type), str(theano.sparse.transpose(sparse).type),
            str(theano.sparse.dot(sparse, T.fmatrix()).type), str(T.frow().type), str(sparse),
            str(theano.gof.Query(include=["a"])),
        ]
    """,
    "lists that are no tensors": """
        s, v = T.dscalar("s"), T.dvector("v")
        result = []
        for call in [
            lambda: T.as_tensor_variable([[1], [1, 2]]),
            lambda: T.as_tensor_variable(([1], [1, 2])),
            lambda: T.as_tensor_variable([[s], [1, 2]]),
            lambda: T.as_tensor_variable([v, 1]),
            lambda: v + [[1], [1, 2]],
            lambda: T.exp([[1.0], [1.0, 2.0]]),
        ]:
            try:
                result.append(str(call().type))
            except TypeError as error:
                result.append("TypeError")
    """,
    "texts of errors": """
        x, s, w = T.dmatrix("x"), T.dscalar("s"), theano.shared(1.0, "w")

        class Undefined(theano.gof.Op):
            __props__ = ()

            def make_node(self, x):
                return theano.gof.Apply(self, [x], [x.type()])

            def perform(self, node, inputs, outputs):
                raise KeyError("none")

            def grad(self, inputs, gradients):
                return [theano.gradient.grad_undefined(self, 0, inputs[0], "as it is")]

        undefined, zeros = Undefined(), np.zeros((2, 2))
        failing = [
            lambda: theano.function([x], undefined(x))(zeros),
            lambda: theano.function([x], [undefined(x), x.sum()])(zeros),
            lambda: theano.function([x], T.exp(undefined(x)))(zeros),
            lambda: theano.function([x], T.nlinalg.matrix_inverse(x))(zeros),
            lambda: T.grad(undefined(x).sum(), x),
            lambda: theano.scan(lambda a: a * w, T.dvector("v"), strict=True),
        ]
        result = []
        for call in failing:
            try:
                call()
            except Exception as error:
                text = error.args[0].split("\\n")
                kept = ("Outputs clients", "HINT: Use the Theano flag", "tensor.grad", "ScanOp")
                result.append([line for line in text if line.startswith(kept)])
    """,
    "text of operations that overwrite their input": """
        x, y = T.dmatrix("x"), T.dmatrix("y")
        one = [
            T.exp, T.log, T.sqr, T.sqrt, T.tanh, abs, T.inv, T.sgn, T.ceil, T.erf, T.gammaln,
            T.nnet.sigmoid, T.nnet.softplus, T.nnet.ultra_fast_sigmoid, lambda a: -a,
        ]
        two = [
            lambda a, b: a * b, lambda a, b: a - b, lambda a, b: a / b, lambda a, b: a ** b,
            lambda a, b: a // b, T.maximum, T.minimum, lambda a, b: T.switch(T.gt(a, b), a, b),
        ]
        outputs = [f(T.dot(x, x)) for f in one] + [f(T.dot(x, x), y) for f in two]
        result = []
        for output in outputs:
            f = theano.function([x, y], output, on_unused_input="ignore", mode="FAST_RUN")
            result.append([str(n.op) for n in f.maker.fgraph.toposort() if ")]" in str(n.op)])
    """,
    "integers that only uint64 holds": """
        u, x, d = T.TensorType("uint64", (False,))("u"), T.lvector("x"), T.dvector("d")
        given = [np.array([1, 2], "uint64"), np.array([0, 2]), np.ones(2)]
        result = []
        for n in [2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**64, -(2**63) - 1]:
            for make in [
                T.constant, T.as_tensor_variable, lambda n: theano.scalar.constant(n) + 0,
                lambda n: u + n, lambda n: n - u, lambda n: x + n, lambda n: d * n,
                lambda n: T.maximum(u, n), lambda n: T.eq(u, n), lambda n: T.alloc(n, 2),
                lambda n: T.switch(T.eq(x, 0), n, 1), lambda n: T.constant([1, n]).sum(),
                lambda n: T.constant(n, dtype="uint64"), lambda n: T.constant(n, dtype="int64"),
            ]:
                try:
                    y = make(n)
                    y = y if hasattr(y, "ndim") and y.ndim else T.as_tensor_variable(y)
                    f = theano.function([u, x, d], y, on_unused_input="ignore")
                    result.append([y.dtype, str(f(*given).tolist())])
                except (OverflowError, TypeError) as error:
                    result.append(type(error).__name__)
    """,
    "an operation with C code whose class is inside a function": """
        def make():
            class Twice(theano.gof.Op):
                __props__ = ()

                def make_node(self, x):
                    return theano.gof.Apply(self, [x], [x.type()])

                def perform(self, node, inputs, outputs):
                    outputs[0][0] = inputs[0] * 2

                def c_code(self, node, name, inputs, outputs, sub):
                    return \"\"\"
                        Py_XDECREF(%(y)s);
                        %(y)s = (PyArrayObject*)PyArray_NewCopy(%(x)s, NPY_CORDER);
                        if (!%(y)s) %(fail)s
                        for (npy_intp i = 0; i < PyArray_SIZE(%(y)s); i++)
                            ((double*)PyArray_DATA(%(y)s))[i] *= 2;
                    \"\"\" % dict(x=inputs[0], y=outputs[0], fail=sub["fail"])

                def c_code_cache_version(self):
                    return (1,)

            return Twice()

        x = T.dvector("x")
        f, g = [theano.function([x], make()(x) + i) for i in range(2)]
        result = [f(np.ones(2)).tolist(), g(np.ones(2)).tolist()]
    """,
    "a step of logistic regression at saturated units": """
        result = []
        for n, label in [(1, 0.0), (1, 1.0), (2, 0.0), (2, 1.0)]:
            x, y, w = T.dmatrix("x"), T.dvector("y"), theano.shared(np.full(n, 60.0))
            p = T.nnet.sigmoid(T.dot(x, w))
            cost = -(y * T.log(p) + (1 - y) * T.log(1 - p)).mean()
            f = theano.function([x, y], cost, updates=[(w, w - 0.1 * T.grad(cost, w))])
            result += [float(f(np.ones((1, n)), [label])), w.get_value().tolist()]
    """,
    "gradient of a softmax that is written as a quotient": """
        x, o = T.dmatrix("x"), T.dmatrix("o")
        e = T.exp(x)
        p = e / e.sum(axis=1, keepdims=True)
        f = theano.function([x, o], [(p * o).sum(), T.grad(((p - o) ** 2).sum(), x)])
        result = [v.tolist() for v in f([[0.0, 1000.0], [1.0, 2.0]], np.eye(2))]
    """,
    "sums of one function in DebugMode": """
        x = T.dmatrix("x")
        sums = [T.exp(x).sum(), T.exp(x).sum(axis=0), T.sqr(x).prod(axis=1), T.log(x).mean()]
        sums += [T.exp(T.cast(x, "float32")).sum(), T.exp(x).sum(axis=1, dtype="float32")]
        f = theano.function([x], sums, mode="DebugMode")
        result = [v.round(5).tolist() for v in f(np.arange(1.0, 7.0).reshape(2, 3) / 6)]
    """,
}


def run(program, theano):
    """Return what a program sets, or the name of the exception that it raises."""
    importlib.import_module("theano.tensor.slinalg")
    names = {"theano": theano, "T": theano.tensor, "np": np}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(textwrap.dedent(program), "<program>", "exec"), names)
    except Exception as error:
        return "raises " + type(error).__name__
    return names["result"]


def main():
    import theano

    recorded = {name: run(program, theano) for name, program in PROGRAMS.items()}
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(name) + ": " + json.dumps(recorded[name]) for name in recorded]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
