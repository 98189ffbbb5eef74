"""Test values while a graph is built, and the values of a graph or function on request."""

import pdb
import pickle
import threading
import warnings

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.sparse
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.type import Type
from pytensor.link.c.op import COp
from pytensor.scan import basic as scan_basic

import theanoguard
from theanoguard import testvalue
from theanoguard._pytensor import IfElse
from theanoguard.testvalue import (
    MissingTestValue,
    config,
    eval_intermediate_values,
    get_test_value,
)

values_on = testvalue.test_values
RNG = np.random.default_rng(42)


def with_value(variable, *shape):
    variable.tag.test_value = RNG.normal(size=shape).astype(variable.dtype)
    return variable


@pytest.fixture(autouse=True)
def switched_off_afterwards():
    yield
    assert config.compute_test_value == "off"


# The switch


def test_off_changes_nothing():
    patched = [
        (Op, "__call__"),
        (Type, "__call__"),
        (GraphRewriter, "rewrite"),
        (FunctionMaker, "__init__"),
        (scan_basic, "collect_new_shareds"),
    ]
    before = [getattr(owner, name) for owner, name in patched]
    with values_on("raise"), values_on("off"):
        assert [getattr(owner, name) for owner, name in patched] != before
    assert [getattr(owner, name) for owner, name in patched] == before
    x = with_value(pt.dvector("x"), 3)
    assert not hasattr((x + 1).tag, "test_value")


def test_blocks_nest_and_config_holds_for_the_process():
    x = with_value(pt.dvector("x"), 3)
    with values_on("raise"):
        with values_on("off"):
            assert not hasattr((x + 1).tag, "test_value")
        assert hasattr((x + 1).tag, "test_value")
    before = Op.__call__
    config.compute_test_value = "raise"
    try:
        assert hasattr((x + 1).tag, "test_value") and Op.__call__ is not before
        with values_on("off"):
            assert not hasattr((x + 1).tag, "test_value")
        config.compute_test_value = "warn"  # the same users of PyTensor's patches as before
    finally:
        config.compute_test_value = "off"
    assert Op.__call__ is before
    assert not hasattr((x + 1).tag, "test_value")


def test_a_block_holds_for_its_own_thread():
    x = with_value(pt.dvector("x"), 3)
    seen = []
    with values_on("raise"):
        thread = threading.Thread(target=lambda: seen.append(hasattr((x + 1).tag, "test_value")))
        thread.start()
        thread.join()
    assert seen == [False]


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="cannot be 'loud'"):
        config.compute_test_value = "loud"
    with pytest.raises(ValueError, match="Choose one of off, ignore"), values_on("loud"):
        pass


# What is computed


def test_values_are_those_of_the_compiled_function():
    with values_on("raise"):
        x, y = with_value(pt.dmatrix("x"), 3, 4), with_value(pt.dmatrix("y"), 4, 5)
        z = pt.tanh(pt.dot(x, y)).sum(axis=0)
    f = pytensor.function([x, y], z, mode="CVM")
    np.testing.assert_allclose(z.tag.test_value, f(x.tag.test_value, y.tag.test_value))


def test_constants_arrays_and_shared_variables_bring_their_own():
    with values_on("raise"):
        w = pytensor.shared(RNG.normal(size=(3, 2)), "w")
        z = pt.dot(RNG.normal(size=(4, 3)), w) + pt.constant(1.0)
        empty = (pytensor.shared(np.zeros((0, 6))) + 2) * 3
    assert z.tag.test_value.shape == (4, 2)
    assert empty.tag.test_value.shape == (0, 6)
    np.testing.assert_array_equal(z.tag.test_value, z.eval(mode="FAST_COMPILE"))


def test_graphs_begun_before_the_switch_are_computed_on_demand():
    x = with_value(pt.dvector("x"), 3)
    y = x * 2
    with values_on("raise"):
        z = y + 1
    np.testing.assert_array_equal(z.tag.test_value, x.tag.test_value * 2 + 1)
    np.testing.assert_array_equal(y.tag.test_value, x.tag.test_value * 2)


# What is wrong


def test_wrong_shapes_are_an_error_at_the_line_that_builds_the_operation():
    with values_on("raise"):
        x, y = with_value(pt.dmatrix("x"), 3, 4), with_value(pt.fmatrix("y"), 6, 5)
        with pytest.raises(ValueError) as caught:
            pt.dot(x, y)  # the bad line
    text = str(caught.value)
    assert text.startswith("matmul: Input operand 1 has a mismatch")  # NumPy's own message
    assert "input 0: x, float64 (3, 4)" in text
    assert "(6, 5)" in text
    assert "built at" in text and "# the bad line" in text
    assert any(str(entry.path) == __file__ for entry in caught.traceback)


@pytest.mark.parametrize("make", [pytensor.shared, pt.constant])
def test_shared_variables_and_constants_with_wrong_shapes(make):
    with values_on("raise"):
        x = with_value(pt.dmatrix("x"), 3, 4)
        with pytest.raises(ValueError, match="cannot compute its test value"):
            pt.dot(x, make(np.ones((6, 5))))
        with pytest.raises(ValueError):
            x * make(np.ones((3, 3)))


def test_a_missing_value():
    x, y = pt.dmatrix("x"), with_value(pt.dmatrix("y"), 4, 5)
    with values_on("raise"), pytest.raises(ValueError, match=r"x, of Matrix.* has no test value"):
        pt.dot(x, y)
    with values_on("ignore"):
        assert not hasattr(pt.dot(x, y).tag, "test_value")
    with values_on("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        z = pt.dot(x, y)
    assert not hasattr(z.tag, "test_value")
    (warning,) = [w for w in caught if "has no test value" in str(w.message)]
    assert warning.filename == __file__


def test_the_missing_input_is_named_through_the_graph():
    x = pt.dvector("the_input")
    y = pt.exp(x)
    with values_on("raise"), pytest.raises(ValueError, match=r"the_input.*has no test value"):
        y + 1


@pytest.mark.parametrize(
    "value",
    [np.ones((3, 4)), np.ones(3, "float32"), "text"],
    ids=["float64 into float32", "vector into matrix", "no array"],
)
def test_a_test_value_of_the_wrong_type_is_refused(value):
    x = pt.fmatrix("x")
    x.tag.test_value = value
    with values_on("raise"):
        with pytest.raises(TypeError, match="test value of x is no Matrix") as caught:
            pt.exp(x)
        # An operator of Python's would swallow a TypeError.
        with pytest.raises(ValueError, match="test value of x is no Matrix"):
            x + 1
    assert "pt.fmatrix" in str(caught.value)
    with pytest.raises(TypeError, match="test value of x"):
        get_test_value(x)


def test_a_test_value_of_the_wrong_static_shape_is_refused():
    x = pt.tensor("x", shape=(2, None), dtype="float64")
    x.tag.test_value = np.ones((3, 4))
    with values_on("raise"), pytest.raises(TypeError, match="test value of x is no"):
        pt.exp(x)


def test_pdb_mode_opens_the_debugger(monkeypatch):
    opened = []
    monkeypatch.setattr(pdb, "post_mortem", lambda tb: opened.append("post_mortem"))
    monkeypatch.setattr(pdb, "set_trace", lambda: opened.append("set_trace"))
    x, y = with_value(pt.dvector("x"), 3), pt.dvector("y")
    with values_on("pdb"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x + y
        assert opened == ["set_trace"]
        with pytest.raises(ValueError):
            x + np.ones(4)
    assert opened == ["set_trace", "post_mortem"]


# Kinds of operations


class IncOnePython(Op):
    __props__ = ()

    def make_node(self, x):
        x = ps.as_scalar(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + 1


class IncOneC(COp):
    __props__ = ()

    def make_node(self, x):
        x = ps.as_scalar(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        raise NotImplementedError("no Python here")

    def c_code_cache_version(self):
        return (1,)

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]} + 1;"


@pytest.mark.parametrize("op", [IncOnePython(), IncOneC()])
def test_custom_operations(op, request):
    if isinstance(op, IncOneC):
        request.getfixturevalue("needs_cxx")
    i = ps.int32("i")
    i.tag.test_value = 3
    with values_on("raise"):
        assert op(i).tag.test_value == 4


class AddInPlace(Op):
    __props__ = ()
    destroy_map = {0: [0]}  # noqa: RUF012

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        inputs[0] += 1
        outputs[0][0] = inputs[0]


def test_inplace_operations_spare_the_stored_values():
    w = pytensor.shared(np.zeros(2), "w")
    x = pt.dvector("x")
    x.tag.test_value = np.zeros(2)
    with values_on("raise"):
        y = AddInPlace()(x)
        AddInPlace()(w)
        AddInPlace()(y)
    np.testing.assert_array_equal(x.tag.test_value, [0, 0])
    np.testing.assert_array_equal(y.tag.test_value, [1, 1])
    np.testing.assert_array_equal(w.get_value(), [0, 0])


def test_errors_that_take_no_message_keep_their_type():
    class Odd(Exception):
        def __init__(self, code, extra):
            super().__init__(code, extra)

    class Fails(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            raise Odd(1, 2)

    with values_on("raise"), pytest.raises(Odd) as caught:
        Fails()(with_value(pt.dvector("x"), 3))
    assert "input 0: x, float64 (3,)" in caught.value.__notes__[0]


def test_gradients_have_test_values():
    with values_on("raise"):
        x, w = with_value(pt.dmatrix("x"), 5, 3), pytensor.shared(RNG.normal(size=(3, 2)), "w")
        loss = pt.special.softmax(pt.tanh(pt.dot(x, w)), axis=-1)[:, 0].mean()
        g = pt.grad(loss, w)
        step = w - 0.1 * g
    np.testing.assert_allclose(g.tag.test_value, g.eval({x: x.tag.test_value}, mode="FAST_COMPILE"))
    assert step.tag.test_value.shape == (3, 2)


def test_random_variables():
    def draw():
        rng = pytensor.shared(np.random.default_rng(7), "rng")
        with values_on("raise"):
            x = pt.random.normal(0, 1, size=(2, 3), rng=rng)
            return rng, x, x * 2

    _, x, y = draw()
    expected = np.random.default_rng(7).normal(size=(2, 3))
    np.testing.assert_allclose(x.tag.test_value, expected)
    np.testing.assert_allclose(y.tag.test_value, 2 * expected)
    # The generator has not moved: the function draws the same numbers.
    np.testing.assert_allclose(pytensor.function([], x, mode="CVM")(), expected)

    def seeded():
        with values_on("raise", seed=3):
            a, b = pt.random.normal(size=(2,)), pt.random.normal(size=(2,))
        return a.tag.test_value, b.tag.test_value

    (a, b), (c, d) = seeded(), seeded()
    np.testing.assert_array_equal([a, b], [c, d])
    assert not np.array_equal(a, b)


def test_sparse_values():
    import scipy.sparse

    m = pytensor.sparse.csr_matrix("m", dtype="float64")
    m.tag.test_value = scipy.sparse.csr_matrix(np.eye(3))
    with values_on("raise"):
        d = pytensor.sparse.dense_from_sparse(m) + 1
    np.testing.assert_array_equal(d.tag.test_value, np.eye(3) + 1)


def test_op_from_graph():
    a, b = pt.dvectors("a", "b")
    op = OpFromGraph([a, b], [a * b + 1])
    with values_on("raise"):
        x, y = with_value(pt.dvector("x"), 3), with_value(pt.dvector("y"), 3)
        z = op(x, y)
        g = pt.grad(z.sum(), x)
        g + 1
        with pytest.raises(ValueError):
            op(x, np.ones(4))
    np.testing.assert_allclose(z.tag.test_value, x.tag.test_value * y.tag.test_value + 1)
    np.testing.assert_allclose(get_test_value(g), y.tag.test_value)


# Scan


def scan(*args, **kwargs):
    return pytensor.scan(*args, return_updates=False, **kwargs)


def test_scan_power():
    with values_on("raise"):
        k, a = pt.iscalar("k"), with_value(pt.dvector("a"), 5)
        k.tag.test_value = 3
        out = scan(
            lambda prior, a: prior * a, outputs_info=pt.ones_like(a), non_sequences=a, n_steps=k
        )
        final = out[-1]
    np.testing.assert_allclose(final.tag.test_value, a.tag.test_value**3)
    f = pytensor.function([k, a], final, mode="CVM")
    np.testing.assert_allclose(f(3, a.tag.test_value), final.tag.test_value)


def test_step_functions_see_the_first_step():
    seen = {}

    def step(x_t, x_before, acc_1, acc_2, w):
        seen.update(x_t=x_t.tag.test_value, x_before=x_before.tag.test_value)
        seen.update(acc_1=acc_1.tag.test_value, acc_2=acc_2.tag.test_value, w=get_test_value(w))
        return acc_1 + acc_2 + pt.dot(x_t, w).sum() + x_before.sum()

    with values_on("raise"):
        x = with_value(pt.dmatrix("x"), 4, 3)
        init = with_value(pt.dvector("init"), 2)
        w = pytensor.shared(np.ones((3, 2)), "w")
        out = scan(
            step,
            sequences=[{"input": x, "taps": [0, -1]}],
            outputs_info=[{"initial": init, "taps": [-1, -2]}],
            non_sequences=w,
        )
    value = x.tag.test_value
    np.testing.assert_array_equal(seen["x_t"], value[1])
    np.testing.assert_array_equal(seen["x_before"], value[0])
    assert (seen["acc_1"], seen["acc_2"]) == (init.tag.test_value[1], init.tag.test_value[0])
    assert out.tag.test_value.shape == (3,)


def test_an_error_inside_the_step_is_raised_in_the_step():
    def step(prior, a):
        return pt.dot(prior, a)  # the bad step

    with values_on("raise"):
        a = with_value(pt.dmatrix("a"), 5, 3)
        with pytest.raises(ValueError, match="# the bad step") as caught:
            scan(step, outputs_info=pt.ones_like(a), non_sequences=a, n_steps=3)
    assert any(entry.name == "step" for entry in caught.traceback)


def test_an_error_of_a_later_step_is_raised_by_scan():
    with values_on("raise"):
        a = with_value(pt.dmatrix("a"), 5, 3)
        with pytest.raises(ValueError, match="cannot compute its test value"):
            scan(
                lambda p, a: pt.dot(p, a),
                outputs_info=pt.ones_like(a.T),
                non_sequences=a,
                n_steps=3,
            )


def test_gradient_through_scan():
    with values_on("raise"):
        x, w = with_value(pt.dvector("x"), 4), pytensor.shared(0.5, "w")
        out = scan(
            lambda x_t, h, w: pt.tanh(h * w + x_t),
            sequences=x,
            outputs_info=pt.zeros(()),
            non_sequences=w,
        )
        g = pt.grad(out[-1], w)
        step = w - g
    expected = pytensor.function([x], step, mode="CVM")(x.tag.test_value)
    np.testing.assert_allclose(step.tag.test_value, expected)


def test_a_scan_is_left_as_it_was():
    with values_on("raise"):
        x = with_value(pt.dvector("x"), 3)
        out = scan(lambda x_t: pt.exp(x_t) * 2 + 1, sequences=x)
    before = pytensor.printing.debugprint(out, file="str")
    get_test_value(out + 1)
    assert pytensor.printing.debugprint(out, file="str") == before
    np.testing.assert_allclose(
        pytensor.function([x], out, mode="CVM")([0.0, 1.0]), np.exp([0.0, 1.0]) * 2 + 1
    )


def test_nested_scan():
    with values_on("raise"):
        m = with_value(pt.dmatrix("m"), 3, 2)
        out = scan(lambda row: scan(lambda e: pt.exp(e), sequences=row).sum(), sequences=m)
    np.testing.assert_allclose(out.tag.test_value, np.exp(m.tag.test_value).sum(axis=1))


# Copies of graphs, compilation


def test_only_results_are_given_values():
    c, scale = pt.constant([1.0, 2.0]), pytensor.shared(3.0)
    with values_on("raise"):
        x = with_value(pt.dvector("x"), 2)
        y = (x + c) * scale
    np.testing.assert_array_equal(get_test_value(y), (x.tag.test_value + [1, 2]) * 3)
    assert not hasattr(c.tag, "test_value") and not hasattr(scale.tag, "test_value")


def test_clones_do_not_inherit_values_that_are_not_theirs():
    with values_on("raise"):
        x, y = with_value(pt.dvector("x"), 3), with_value(pt.dvector("y"), 5)
        out = (x * 2).sum()
        replaced = clone_replace(out, {x: y})
        assert get_test_value(replaced) == pytest.approx(2 * y.tag.test_value.sum())
        more = replaced + 1
    assert more.tag.test_value == pytest.approx(2 * y.tag.test_value.sum() + 1)
    assert get_test_value(out) == pytest.approx(2 * x.tag.test_value.sum())


def test_compiling_is_not_watched():
    x = pt.dvector("x")  # no test value
    with values_on("raise"):
        w = pytensor.shared(np.zeros(5), "w").dimshuffle("x", 0)
        pytensor.function([], w, mode="CVM")
    y = x * 2
    z = pt.exp(y) + 1
    with values_on("raise"):
        f = pytensor.function([x], z, mode="CVM")
        np.testing.assert_allclose(f([0.0]), [2.0])


def test_givens():
    x = with_value(pt.dvector("x"), 3)
    with values_on("raise"):
        y = x * 2
        w = pytensor.shared(np.arange(4.0), "w")
        f = pytensor.function([], y, givens={x: w}, mode="CVM")
    np.testing.assert_array_equal(f(), 2 * np.arange(4.0))


def test_graphs_with_test_values_pickle():
    with values_on("raise"):
        y = with_value(pt.dvector("x"), 3) * 2
    again = pickle.loads(pickle.dumps(y))
    np.testing.assert_allclose(get_test_value(again), y.tag.test_value)


def test_a_value_set_on_an_intermediate_variable_holds():
    with values_on("raise"):
        y = with_value(pt.dvector("x"), 3) * 2
        y.tag.test_value = np.ones(2)
        z = y + 1
    np.testing.assert_array_equal(z.tag.test_value, [2, 2])


# Asking


def test_get_test_value():
    x = pt.dvector("x")
    with pytest.raises(MissingTestValue, match=r"x, of Vector.*has no test value"):
        get_test_value(x * 2)
    assert issubclass(MissingTestValue, AttributeError) and issubclass(MissingTestValue, ValueError)
    np.testing.assert_array_equal(get_test_value([1, 2]), [1, 2])
    assert get_test_value(pytensor.shared(2.0)) == 2.0


def test_eval_intermediate_values_of_a_graph():
    x, w = pt.dvector("x"), pytensor.shared(np.array([1.0, 2.0]), "w")
    y = x * w
    z = pt.exp(y)
    out = z.sum()
    values = eval_intermediate_values(out, {x: [0.0, 1.0]})
    np.testing.assert_allclose(values[y], [0.0, 2.0])
    np.testing.assert_allclose(values[z], np.exp([0.0, 2.0]))
    np.testing.assert_allclose(values[out], np.exp([0.0, 2.0]).sum())
    np.testing.assert_array_equal(values[w], [1.0, 2.0])
    cut = eval_intermediate_values([out], {y: [1.0, 1.0]})
    assert x not in cut and cut[out] == pytest.approx(2 * np.e)
    with pytest.raises(MissingTestValue, match="x, of Vector"):
        eval_intermediate_values(out)
    with pytest.raises(TypeError, match="test value of x"):
        eval_intermediate_values(out, {x: np.ones((2, 2))})
    with pytest.raises(TypeError, match="no order"):
        eval_intermediate_values(out, [1.0])


def test_eval_intermediate_values_takes_the_branch():
    c, x = pt.bscalar("c"), pt.dvector("x")
    good, bad = pt.exp(x), pt.dot(x, np.ones(7))
    out = IfElse(n_outs=1)(c, good.sum(), bad)
    values = eval_intermediate_values(out, {c: 1, x: [0.0]})
    assert values[out] == 1.0
    assert bad not in values


def test_eval_intermediate_values_of_a_function():
    x, k = pt.dvector("x"), pt.dscalar("k")
    w = pytensor.shared(np.ones(3), "w")
    f = pytensor.function([x, k], pt.exp(x * k).sum(), updates={w: w + x}, mode="CVM")
    for inputs in ({x: [0.0, 1.0, 2.0], "k": 2.0}, ([0.0, 1.0, 2.0], 2.0)):
        values = eval_intermediate_values(f, inputs)
        total, update = (values[v] for v in f.maker.fgraph.outputs)
        np.testing.assert_allclose(total, np.exp([0.0, 2.0, 4.0]).sum())
        np.testing.assert_allclose(update, [1.0, 2.0, 3.0])
        assert set(f.maker.fgraph.variables) <= set(values)
    np.testing.assert_array_equal(w.get_value(), np.ones(3))
    with pytest.raises(ValueError, match="k has no value"):
        eval_intermediate_values(f, {x: [1.0]})
    with pytest.raises(TypeError, match="No input of the function: q"):
        eval_intermediate_values(f, {x: [1.0], "k": 1.0, "q": 2})
    assert f([0.0, 1.0, 2.0], 2.0) == pytest.approx(np.exp([0.0, 2.0, 4.0]).sum())


def test_intermediate_values_stand_beside_the_nodes():
    x = pt.dvector("x")
    y = pt.exp(x).sum()
    values = eval_intermediate_values([y], {x: np.array([0.0, 0.0])})
    text = theanoguard.debugprint(y, values=values, file="str")
    assert "min=2" in text.splitlines()[0]
    assert "min=0" in text.splitlines()[-1]
