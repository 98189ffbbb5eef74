"""Theano's functions take the arguments of Theano 1.0.5: their names, order and defaults."""

import importlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from shim_signatures import arguments

RECORDED = json.loads(Path(__file__).with_name("shim_signatures.json").read_text(encoding="utf-8"))
# Functions that only rewriting and linking call.
INTERNAL = {"apply_local_dimshuffle_lift", "get_scalar_constant_value", "merge_two_slices"}


def takes_all(function):
    """Whether a function takes any arguments."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds or inspect.Parameter.VAR_POSITIONAL in kinds


@pytest.mark.parametrize("path", RECORDED)
def test_arguments(path, shim):
    module = importlib.import_module(path)
    for name, recorded in RECORDED[path].items():
        function = getattr(module, name, None)
        if not inspect.isfunction(function) or name in INTERNAL or takes_all(function):
            continue
        found = arguments(function)
        assert list(found)[: len(recorded)] == list(recorded), name
        defaults = {a: d for a, d in recorded.items() if d and found[a]}
        assert {a: eval(d) for a, d in defaults.items()} == {a: eval(found[a]) for a in defaults}, (
            name
        )


def test_the_modes_of_qr(shim):
    from theano.tensor.nlinalg import qr

    x = shim.tensor.dmatrix("x")
    tall = np.random.RandomState(3).rand(5, 3)
    assert np.allclose(shim.function([x], qr(x))(tall)[0], np.linalg.qr(tall)[0])
    for mode in ("reduced", "r", "raw", "complete"):
        found = shim.function([x], qr(x, mode))(tall)
        expected = np.linalg.qr(tall, mode)
        pairs = [(found, expected)] if mode == "r" else zip(found, expected, strict=True)
        assert all(np.allclose(a, b) for a, b in pairs), mode


@pytest.mark.parametrize("op", ["set_subtensor", "inc_subtensor"])
@pytest.mark.parametrize("part", [slice(None), 0])
def test_a_value_that_is_too_long_is_a_value_error(op, part, shim):
    a, value = shim.tensor.col("a"), shim.tensor.vector("value")
    f = shim.function([a, value], getattr(shim.tensor, op)(a[part], value))
    column = np.ones((3, 1))
    expected = column.copy()
    expected[part] = 5.0 if op == "set_subtensor" else expected[part] + 5.0
    assert np.array_equal(f(column, [5.0]), expected)
    for length in (0, 2, 3):
        with pytest.raises(ValueError):
            f(column, np.ones(length))


def test_rop_of_what_has_no_derivative_is_a_value_error(shim):
    class Opaque(shim.Op):
        __props__ = ()

        def make_node(self, x):
            return shim.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0].copy()

        def grad(self, inputs, gradients):
            return [shim.gradient.grad_undefined(self, 0, inputs[0])]

        def R_op(self, inputs, eval_points):
            return [None]

    x, v = shim.tensor.dmatrix("x"), shim.tensor.dmatrix("v")
    with pytest.raises(ValueError):
        shim.tensor.Rop(shim.tensor.nlinalg.matrix_inverse(Opaque()(x)), x, v)
