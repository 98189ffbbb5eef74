"""What code that walks graphs sees, compared with Theano 1.0.5: see ``shim_nodes.py``."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import shim_nodes

RECORDED = json.loads(Path(shim_nodes.__file__).with_suffix(".json").read_text(encoding="utf-8"))

# By the reason, the expressions that are other nodes on PyTensor.
DIFFERENT = {
    "PyTensor computes the same by other, mostly fewer, nodes": """
        T.dot(t, m.T)
        T.tensordot(m, m, axes=[[0], [0]])
        T.join(i, m, m)
        m[(m > 0).nonzero()]
        m[:, k]
        T.inc_subtensor(m[:, k], 1)
        T.repeat(v, 2)
        v.repeat(1)
        T.tile(v, 2)
        T.tril(m)
        theano.scan(lambda x, a: a + x, v, outputs_info=s)[0]
    """,
    "PyTensor 3.0 writes an index by a vector as any other one, until it is rewritten": """
        m[k]
        T.set_subtensor(m[k], 0)
        T.inc_subtensor(m[k], m)
    """,
    "a constant that is used twice is two variables": """
        T.switch(m > 0, m, 0)
        T.eye(3)
        T.nnet.relu(m, 0.1)
        T.nnet.binary_crossentropy(m, m)
        T.extra_ops.to_one_hot(k, 3)
    """,
    "PyTensor's operation holds the axis, or knows None for all axes": """
        T.argmin(m)
        T.extra_ops.bincount(k)
        T.split(v, [1, 2], 2)[1]
        T.roll(v, 1)
        T.grad(T.concatenate([v, v]).sum(), v)
    """,
    "the text of Print has an address, and PyTensor's diagonal is a view": """
        theano.printing.Print('here')(m)
        T.diag(m)
        T.nlinalg.trace(m)
    """,
    "in a gradient, Theano writes Elemwise{mul} without no_inplace": """
        T.grad((T.dot(m, w) ** 2).sum(), w)
        T.grad(m.max(), m)
        T.grad(m[0].sum(), m)
        T.grad(T.sqrt(m).mean(), m)
    """,
}
LISTED = {line.strip() for lines in DIFFERENT.values() for line in lines.strip().splitlines()}
# Theano's modules with classes of operations.
MODULES = """
    theano.tensor.basic theano.tensor.elemwise theano.tensor.subtensor theano.tensor.nlinalg
    theano.tensor.slinalg theano.tensor.extra_ops theano.tensor.sort theano.tensor.opt
    theano.tensor.nnet.nnet theano.tensor.nnet.sigm theano.tensor.nnet.abstract_conv
    theano.tensor.nnet.neighbours theano.tensor.signal.pool theano.ifelse theano.gradient
    theano.printing theano.scan_module.scan_op theano.compile.ops
"""


def has_class(op, name):
    """Whether an operation has a class of this name, or counts as an instance of Theano's."""
    return type(op).__name__ == name or any(
        isinstance(op, getattr(module, name))
        for module in map(importlib.import_module, MODULES.split())
        if isinstance(getattr(module, name, None), type)
    )


def agrees(expression, names):
    """Whether an expression has Theano's nodes: their texts, classes, inputs and ancestors."""
    found, recorded = shim_nodes.describe(expression, names), RECORDED[expression]
    classes = [node.partition(" ")[0] for node in recorded["nodes"]]
    texts, recorded_texts = (
        [node.partition(" ")[2] for node in one["nodes"]] for one in (found, recorded)
    )
    return (
        texts == recorded_texts
        and all(map(has_class, shim_nodes.operations(expression, names), classes))
        and all(found[key] == recorded[key] for key in ("inputs", "ancestors"))
    )


def test_nodes(shim):
    names = shim_nodes.namespace()
    different = {e for e in shim_nodes.expressions() if not agrees(e, names)}
    assert different - LISTED == set()
    # A later PyTensor may agree with Theano where this one does not.
    assert RECORDED.keys() >= LISTED


VECTORS = {
    "T.dot(v, v)": lambda v, m: v @ v,
    "T.dot(m, v)": lambda v, m: m @ v,
    "T.dot(v, m.T)": lambda v, m: v @ m.T,
    "v.dot(v)": lambda v, m: v @ v,
    "T.concatenate([v, v, m[0]])": lambda v, m: np.concatenate([v, v, m[0]]),
    "T.stack([v, v], axis=1)": lambda v, m: np.stack([v, v], axis=1),
    "T.cumsum(m)": lambda v, m: np.cumsum(m),
    "T.cumsum(m, axis=-1)": lambda v, m: np.cumsum(m, axis=-1),
}


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "FAST_RUN", "unoptimized"])
@pytest.mark.parametrize("expression", VECTORS)
def test_one_node(expression, mode, shim):
    T = shim.tensor
    v, m = T.dvector("v"), T.dmatrix("m")
    made = eval(expression, {"T": T, "v": v, "m": m})
    assert str(made.owner.op).partition("{")[0] in ("dot", "Join", "CumOp")
    mode = shim.Mode("py", None) if mode == "unoptimized" else mode
    values = np.array([1.0, 2.0, 4.0]), np.arange(6.0).reshape(2, 3)
    outputs = [made, T.zeros(made.shape)]
    f = shim.function([v, m], outputs, mode=mode, on_unused_input="ignore")
    expected = VECTORS[expression](*values)
    for found, value in zip(f(*values), (expected, np.zeros(expected.shape)), strict=True):
        np.testing.assert_allclose(found, value)
    if mode == "FAST_RUN":
        kinds = {type(node.op).__module__.partition(".")[0] for node in f.maker.fgraph.toposort()}
        assert kinds <= {"pytensor"}


@pytest.mark.parametrize("expression", VECTORS)
def test_gradient_of_one_node(expression, shim):
    from theano.tests import unittest_tools

    T = shim.tensor
    values = [np.array([1.0, 2.0, 4.0]), np.arange(6.0).reshape(2, 3)]

    def function(v, m):
        return eval(expression, {"T": T, "v": v, "m": m})

    unittest_tools.verify_grad(function, values)


def test_formulas_as_theano_prints_them(shim):
    T = shim.tensor
    x, w = T.matrix("x"), T.vector("w")
    assert shim.pp(T.nnet.sigmoid(T.dot(x, w))) == r"sigmoid((x \dot w))"
    assert shim.pp(T.dot(x, x) + T.dot(w, w)) == r"((x \dot x) + (w \dot w))"


EQUAL = {
    "m": "T.TensorVariable",
    "m + 1": "T.basic.TensorVariable",
    "m.type": "T.TensorType",
    "T.constant(1)": "T.TensorConstant",
    "T.dot(m, v).owner.op": "T.Dot",
    "T.dot(m, m).owner.op": "T.basic.Dot",
    "T.concatenate([v, v]).owner.op": "T.Join",
    "m.max().owner.op": "T.MaxAndArgmax",
    "s": "theano.sparse.SparseVariable",
    "s.type": "theano.sparse.SparseType",
}


@pytest.mark.parametrize("expression", EQUAL)
def test_types_compared_by_equality(expression, shim):
    """Programs ask for ``type(x) == T.TensorVariable``, and look types up in a dict."""
    import theano.sparse

    T = shim.tensor
    s = theano.sparse.csr_matrix()
    names = {"theano": shim, "T": T, "m": T.matrix(), "v": T.vector(), "s": s}
    kind, expected = type(eval(expression, names)), eval(EQUAL[expression], names)
    assert kind == expected and expected == kind
    assert expected in (list, kind)
    assert kind not in (type("Derived", (expected,), {}),)
    others = {eval(name, names) for name in EQUAL.values()} - {expected}
    assert kind not in others and expected not in others


def test_types_looked_up(shim):
    T = shim.tensor
    words = {T.TensorVariable: "variable", T.TensorConstant: "constant", T.TensorType: "type"}
    assert words[type(T.matrix())] == "variable"
    assert words[type(T.constant(1))] == "constant"
    assert words[type(T.vector().type)] == "type"
    assert type(shim.shared(1.0)) not in words


def test_a_single_tensor_is_joined_to_nothing(shim):
    """It stays what it was made by."""
    T = shim.tensor
    x = T.matrix()
    for one in (x.T, x.max(axis=1, keepdims=True), x.flatten()):
        assert T.concatenate([one], axis=0).owner.op == one.owner.op


UNCHANGED = {
    "v.dimshuffle(0)": "DimShuffle",
    "m.dimshuffle(0, 1)": "DimShuffle",
    "m.flatten(2)": "Reshape",
    "v.flatten()": "Reshape",
    "v.ravel()": "Reshape",
    "T.squeeze(v)": "DimShuffle",
    "m.squeeze()": "DimShuffle",
}


@pytest.mark.parametrize("expression", UNCHANGED)
def test_a_result_is_another_variable(expression, shim):
    """Old code gives the result a name, and looks for its owner."""
    T = shim.tensor
    v, m = T.dvector("v"), T.dmatrix("m")
    made = eval(expression, {"T": T, "v": v, "m": m})
    assert made is not v
    assert made is not m
    assert type(made.owner.op).__name__ == UNCHANGED[expression]
    values = np.array([1.0, 2.0]), np.arange(6.0).reshape(2, 3)
    f = shim.function([v, m], made, on_unused_input="ignore")
    np.testing.assert_array_equal(f(*values), values[made.ndim - 1])
    assert len(f.maker.fgraph.apply_nodes) == 1  # a copy of the input


# Recorded from Theano 1.0.5: the text of the operation, and its name if it has one.
TEXTS = {
    "T.argmax(x, axis=0)": ("MaxAndArgmax{axis=(0,)}", None),
    "T.argmax(x)": ("MaxAndArgmax{axis=(0, 1)}", None),
    "T.cumsum(x, axis=0)": ("CumOp{0, add}", None),
    "T.cumprod(x)": ("CumOp{None, mul}", None),
    "x[i]": ("Subtensor{int32}", None),
    "x[b]": ("Subtensor{int8}", None),
    "x[0]": ("Subtensor{int64}", None),
    "x[i:l]": ("Subtensor{int32:int64:}", None),
    "x[:, i]": ("Subtensor{::, int32}", None),
    "T.inc_subtensor(x[i], 1.0)": ("IncSubtensor{Inc;int32}", None),
    "T.set_subtensor(x[i:], 1.0)": ("IncSubtensor{Set;int32::}", None),
    "x + 1": ("Elemwise{add,no_inplace}", "Elemwise{add,no_inplace}"),
    "T.nnet.sigmoid(x)": ("sigmoid", "sigmoid"),
    "T.switch(x > 0, x, 0)": ("Elemwise{switch,no_inplace}", "Elemwise{switch,no_inplace}"),
}


@pytest.mark.parametrize("expression", TEXTS)
def test_texts_and_names_of_operations(expression, shim):
    T = shim.tensor
    names = {"T": T, "x": T.dmatrix(), "i": T.iscalar(), "l": T.lscalar(), "b": T.bscalar()}
    op = eval(expression, names).owner.op
    assert (str(op), getattr(op, "name", None)) == TEXTS[expression]


def test_the_types_of_indices_are_no_part_of_an_operation(shim):
    T = shim.tensor
    x, i, l = T.dmatrix(), T.iscalar(), T.lscalar()  # noqa: E741
    assert x[i].owner.op == x[l].owner.op
    assert x[i].owner.op.idx_list != x[l].owner.op.idx_list
    f = shim.function([x, i, l], [x[i], x[l]])
    assert [part.tolist() for part in f([[1.0], [2.0]], 0, 1)] == [[1.0], [2.0]]


def test_coordinates_have_the_order_of_c(shim):
    # (Recorded from Theano 1.0.5, which ignores the order.)
    found = shim.tensor.unravel_index(np.arange(4), (2, 2), order="F")
    assert [part.eval().tolist() for part in found] == [[0, 0, 1, 1], [0, 1, 0, 1]]


def test_a_number_of_numpy_is_shared_with_a_pattern(shim):
    assert shim.shared(np.float64(0.5), broadcastable=()).type == shim.tensor.dscalar


def test_an_index_by_the_op(shim):
    T = shim.tensor
    x = T.dmatrix("x")
    step = T.type_other.SliceConstant(T.type_other.slicetype, slice(1, None, 2))
    part = T.subtensor.AdvancedSubtensor()(x, [2, 0], step)
    value = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(part.eval({x: value}), value[[2, 0], 1::2])
