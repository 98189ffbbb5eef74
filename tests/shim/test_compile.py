"""Functions, graphs, operations, modes and printing under the shim."""

import copy
import gc
import pickle
import re
import warnings
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from theanoguard import GuardError, GuardMode, MeasuredCalls, guarding

FAST = "FAST_COMPILE"


@pytest.fixture(scope="module")
def T(shim):
    return shim.tensor


@pytest.fixture(scope="module")
def gof(shim):
    return shim.gof


@pytest.fixture(scope="module")
def x(T):
    return T.dscalar("x")


@pytest.fixture(scope="module")
def v(T):
    return T.dvector("v")


@pytest.fixture(scope="module")
def with_default(shim, T, x):
    y = T.dscalar("y")
    return shim.function([x, shim.In(y, value=2.0)], x * y, mode=FAST), y


@pytest.fixture(scope="module")
def named(shim, T, x):
    return shim.function([x], {"twice": 2 * x, "square": x**2}, mode=FAST)


# Functions


def test_outputs_in_a_dict(named):
    assert named(3.0) == {"twice": 6.0, "square": 9.0}
    assert named.output_keys == ["square", "twice"]
    assert named(3.0, output_subset=["twice"]) == {"twice": 6.0}


def test_keys_are_strings(shim, x):
    with pytest.raises(AssertionError):
        shim.function([x], {1: x})


def test_some_outputs_of_a_list(shim, x):
    f = shim.function([x], [x + 1, x + 2], mode=FAST)
    assert f(1.0, output_subset=[1]) == [3.0]


def test_default_value(with_default, x):
    f, y = with_default
    assert (f(3.0), f(3.0, 5.0), f(3.0), f(3.0, y=4.0)) == (6, 15, 6, 12)
    assert f.defaults == [(True, False, None), (False, True, 2.0)]
    assert f[y] == f["y"] == f[1] == f.value[y] == 2.0
    assert f.container[y] is f.finder["y"] is f.finder[1]
    assert f.inv_finder[f.container[y]].variable is f.indices[1][0].variable
    assert "y" in f
    assert "z" not in f.value
    assert f.fn is f.vm


def test_default_value_after_an_error(with_default):
    f, y = with_default
    with pytest.raises(ValueError):
        f("text", 5.0)
    assert f[y] == 2.0


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1.0, 2.0, 3.0), {}), ((1.0,), {"x": 1.0}), ((1.0,), {"z": 1.0})],
    ids=["missing", "too many", "twice", "unknown"],
)
def test_wrong_arguments(with_default, args, kwargs):
    with pytest.raises(TypeError):
        with_default[0](*args, **kwargs)


def test_ambiguous_name(shim, T):
    a, b = T.dscalar("a"), T.dscalar("a")
    f = shim.function([a, b], a - b, mode=FAST)
    with pytest.raises(TypeError, match="Ambiguous"):
        f["a"]
    with pytest.raises(TypeError, match="Unknown"):
        f["b"]


def test_bad_input_is_named(shim, v):
    f = shim.function([v], v, name="f", mode=FAST)
    with pytest.raises(TypeError, match='Bad input argument to theano function with name "f" at'):
        f(1.0)


def test_none_is_a_value(shim, T, x):
    y = T.dscalar("y")
    f = shim.function([x, y], T.basic.default(x, y), mode=FAST)
    assert (f(1.0, 2.0), f(None, 2.0), f(1.0, None)) == (1.0, 2.0, 1.0)
    with pytest.raises(TypeError, match="Missing required input: y"):
        f(None)
    with pytest.raises(TypeError, match="Multiple values for input: x"):
        f(None, x=1.0)


def test_name_is_where_it_was_made(shim, x):
    f = shim.function([x], x, mode=FAST)
    assert "test_compile.py:" in f.name


def test_state_by_update_of_an_input(shim, T, x):
    state = T.dscalar("state")
    f = shim.function([x, shim.In(state, value=10.0, update=state + x)], state, mode=FAST)
    assert [float(f(1.0)), float(f(1.0)), float(f[state])] == [10, 11, 12]
    f[state] = 0.0
    assert f(1.0) == 0


def test_update_of_another_type(shim, T, x):
    with pytest.raises(TypeError):
        shim.In(x, value=1.0, update=T.fscalar())


def test_updates_have_the_type_of_their_variable(shim, T):
    row = shim.shared(np.ones((1, 3)), broadcastable=(True, False))
    with pytest.raises(TypeError, match="same type"):
        shim.function([], [], updates=[(row, T.dmatrix())])
    matrix = shim.shared(np.ones((2, 3)))
    shim.function([], [], updates=[(matrix, np.zeros((1, 3)))], mode=FAST)()
    assert matrix.get_value().shape == (1, 3)
    with pytest.raises(ValueError, match="2 elements"):
        shim.function([], [], updates=[matrix])


def test_param(shim, x):
    with pytest.warns(UserWarning, match="deprecated"):
        param = shim.Param(x, default=3.0)
    assert shim.function([param], x * 2, mode=FAST)() == 6


def test_old_tuple_inputs(shim, T, x):
    y = T.dscalar("y")
    f = shim.function([("named", x), (y, 4.0)], x + y, mode=FAST)
    assert f(named=1.0) == 5


def test_allow_input_downcast(shim, T):
    a = T.fvector("a")
    f = shim.function([a], a, allow_input_downcast=True, mode=FAST)
    assert f(np.array([0.1])).dtype == np.float32
    with pytest.raises(TypeError):
        shim.function([a], a, mode=FAST)(np.array([0.1]))


def test_rebuild_strict(shim, T, x):
    y = x + 1
    with pytest.raises(TypeError):
        shim.function([], y, givens={x: T.as_tensor_variable(np.zeros(2))}, mode=FAST)
    f = shim.function(
        [], y, givens={x: T.as_tensor_variable(np.zeros(2))}, rebuild_strict=False, mode=FAST
    )
    assert f().shape == (2,)


def test_pickle_keeps_defaults_and_keys(with_default, named):
    f = pickle.loads(pickle.dumps(with_default[0]))
    assert (f(3.0), f(3.0, 5.0), f(3.0)) == (6, 15, 6)
    assert pickle.loads(pickle.dumps(named))(3.0) == named(3.0)
    assert copy.deepcopy(named)(3.0) == named(3.0)


def test_copy_without_updates_leaves_states(shim, x):
    state = shim.shared(2.0)
    f = shim.function([x], x + state, updates={state: state * 2})
    g = f.copy(delete_updates=True)
    assert g(1.0) == [3.0]
    assert g(1.0) == [3.0]
    assert state.get_value() == 2
    f(1.0)
    assert g(1.0) == [5.0]


def test_copy_with_another_state(shim, x):
    one, other = shim.shared(1.0), shim.shared(10.0)
    f = shim.function([x], x + one, updates={one: one + 1}, mode=FAST)
    g = f.copy(swap={one: other})
    assert (g(1.0), other.get_value(), one.get_value()) == ([11.0], 11, 1)


def test_function_dump(shim, x, tmp_path):
    path = tmp_path / "function.pkl"
    shim.function_dump(path, [x], x + 1, mode=FAST)
    assert shim.function(**pickle.loads(path.read_bytes()))(1.0) == 2


def test_clone_replaces(shim, x):
    assert shim.clone(x * 3, replace={x: x + 1}).eval({x: 1.0}) == 6


# Shared variables


def test_shared(shim, T):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = shim.shared(np.ones((1, 3)), broadcastable=(True, False), name="row", target="cpu")
    assert row.broadcastable == (True, False)
    assert row.name == "row"
    assert shim.shared([1, 2]).type == shim.gof.generic
    value = np.ones(3)
    assert shim.shared(value, borrow=True).get_value(borrow=True) is value
    assert shim.shared(value).get_value(borrow=True) is not value
    assert shim.compile.SharedVariable("u", T.dvector, [1.0], False).name == "u"


@pytest.mark.parametrize("kwargs", [{"bad": 1}, {"dtype": "int8"}, {"target": "gpu"}])
def test_shared_refuses(shim, kwargs):
    with pytest.raises(TypeError, match="No suitable"):
        shim.shared(np.ones(3), **kwargs)


def test_shared_of_a_variable(shim, x):
    with pytest.raises(TypeError, match="symbolic"):
        shim.shared(x)


def test_constructor_of_ones_own(shim):
    class Thing:
        pass

    @shim.compile.shared_constructor
    def thing(value, name=None, strict=False, allow_downcast=None):
        if not isinstance(value, Thing):
            raise TypeError
        return shim.shared(7.0)

    try:
        assert shim.shared(Thing()).get_value() == 7
        assert shim.shared(1.0).get_value() == 1
    finally:
        shim.compile.shared_constructor(thing, remove=True)


# Operations


@pytest.fixture(scope="module")
def triple(shim, T):
    class Triple(shim.Op):
        __props__ = ("factor",)

        def __init__(self, factor=3):
            self.factor = factor

        def make_node(self, x):
            x = T.as_tensor_variable(x)
            return shim.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = self.factor * inputs[0]

        def infer_shape(self, node, shapes):
            self.asked = len(shapes)
            return shapes

        def grad(self, inputs, gradients):
            return [self.factor * gradients[0]]

        def R_op(self, inputs, eval_points):
            return [self.factor * eval_points[0]]

    return Triple


def test_operation_of_old(shim, T, v, triple):
    op = triple()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = [op(v), T.grad(op(v).sum(), v), T.Rop(op(v), v, 2 * v), op(v).shape]
        f = shim.function([v], outputs)
        value, gradient, pushed, shape = f([1.0, 2.0])
    np.testing.assert_array_equal(value, [3, 6])
    np.testing.assert_array_equal(gradient, [3, 3])
    np.testing.assert_array_equal(pushed, [6, 12])
    assert list(shape) == [2]
    assert op.asked == 1
    assert op == triple()
    assert op != triple(2)
    assert not any(
        isinstance(n.op, triple) for n in shim.function([v], op(v).shape).maker.fgraph.apply_nodes
    )


def test_the_shape_by_the_class_above(shim, T, v):
    class Second(T.Elemwise):
        def infer_shape(self, node, shapes):
            self.asked = len(shapes)
            return super().infer_shape(node, shapes)

    op = Second(shim.scalar.second)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(shim.function([v], op(v, 1.0).shape)([1.0, 2.0])) == [2]
    assert op.asked == 2


def test_any_operation_is_an_op(shim, T, x):
    assert isinstance(T.exp, shim.Op)
    assert isinstance(T.exp(x).owner.op, shim.gof.PureOp)
    assert isinstance(x.type, shim.gof.Type)


def test_any_class_of_operations_is_one_of_op(shim, T):
    class Mine(shim.Op):
        pass

    for cls in (T.Elemwise, T.elemwise.DimShuffle, T.nlinalg.MatrixInverse, Mine):
        assert issubclass(cls, shim.Op) and issubclass(cls, shim.gof.PureOp)
        assert not issubclass(cls, shim.gof.Type)
    assert issubclass(T.TensorType, shim.gof.Type)
    assert issubclass(shim.gof.opt.MergeOptimizer, shim.gof.Optimizer)
    assert issubclass(shim.gof.PatternSub, shim.gof.LocalOptimizer)
    assert issubclass(type(T.join(0, T.dvector(), T.dvector()).owner.op), T.Join)
    assert issubclass(type(T.dvector()), T.TensorVariable)
    assert not issubclass(type(T.constant(1.0)), T.TensorVariable)


def test_a_class_that_stands_for_another_is_no_base_of_it(shim, T):
    class Mine(shim.Op):
        pass

    scan = shim.scan_module.scan_op.Scan
    for cls in (shim.gof.op.CLinkerOp, shim.gof.COp, Mine):
        assert not issubclass(scan, cls)
    assert not issubclass(T.Elemwise, Mine)


def test_gradient_of_a_subclass(shim, T, x):
    class Odd(type(T.exp)):
        def grad(self, inputs, gradients):
            return [gradients[0] * 100]

    odd = Odd(shim.scalar.exp)
    assert T.grad(odd(x), x).eval({x: 0.0}) == 100


def test_only_c_code(shim, T, v, needs_cxx):
    class Half(shim.Op):
        __props__ = ()

        def make_node(self, x):
            return shim.Apply(self, [x], [T.dscalar()])

        def c_headers(self):
            return ["<cmath>"]

        def c_support_code(self):
            return "static double half(double value) { return std::fabs(value) / 2; }"

        def c_code(self, node, name, inputs, outputs, sub):
            (x,), (z,), fail = inputs, outputs, sub["fail"]
            return f"""
                if (PyArray_DIM({x}, 0) < 1 || PyArray_DESCR({x})->elsize != 8) {{
                    PyErr_SetString(PyExc_ValueError, "empty"); {fail};
                }}
                Py_XDECREF({z});
                {z} = (PyArrayObject*)PyArray_SimpleNew(0, NULL, NPY_DOUBLE);
                *(double*)PyArray_DATA({z}) = half(*(double*)PyArray_DATA({x}));
            """

    op = Half()
    f = shim.function([v], op(v))
    assert f([-4.0]) == 2
    with pytest.raises(ValueError, match="empty"):
        f([])
    with pytest.raises(shim.gof.MethodNotDefined):
        op.perform(None, [], [])


def test_params_in_python(shim, T, x):
    class Add(shim.Op):
        __props__ = ("b",)
        params_type = shim.gof.ParamsType(b=shim.scalar.int64)

        def __init__(self, b):
            self.b = b

        def make_node(self, x):
            return shim.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs, params):
            outputs[0][0] = np.asarray(inputs[0] + params.b)

    assert shim.function([x], Add(5)(x), mode=FAST)(1.0) == 6


def test_thunk_of_ones_own(shim, x):
    class Seven(shim.gof.PureOp):
        __props__ = ()

        def make_node(self, x):
            return shim.Apply(self, [x], [x.type()])

        def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
            out = storage_map[node.outputs[0]]

            def thunk():
                out[0] = np.asarray(7.0)
                compute_map[node.outputs[0]][0] = True

            thunk.inputs, thunk.outputs = [storage_map[node.inputs[0]]], [out]
            thunk.lazy = False
            return thunk

    assert shim.function([x], Seven()(x))(1.0) == 7


def test_as_op(shim, T, v):
    @shim.as_op(itypes=[T.dvector], otypes=T.dvector, infer_shape=lambda node, shapes: shapes)
    def reverse(a):
        return a[::-1].copy()

    f = shim.function([v], [reverse(v), reverse(v).shape[0]])
    value, length = f([1.0, 2.0])
    np.testing.assert_array_equal(value, [2, 1])
    assert length == 2
    with pytest.raises(TypeError, match="itypes"):
        shim.as_op(itypes=[int], otypes=[T.dvector])
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(reverse)


def test_type_of_ones_own(shim):
    class Even(shim.gof.Type):
        def filter(self, data, strict=False, allow_downcast=None):
            if data % 2:
                raise TypeError("odd")
            return data

        def __eq__(self, other):
            return type(self) is type(other)

        def __hash__(self):
            return hash(type(self))

    variable = Even()("even")
    f = shim.function([variable], variable, mode=FAST)
    assert f(4) == 4
    with pytest.raises(TypeError):
        f(3)


# Graphs and rewrites


def test_walks(gof, T):
    a, b, c = T.dscalars("abc")
    d = a * b
    e = T.exp(d + c)
    assert gof.graph.inputs([e]) == [a, b, c]
    assert gof.graph.ancestors([d]) == [d, a, b]
    assert gof.graph.ancestors([e], blockers=[d])[-1] is c
    assert [node.op for node in gof.graph.io_toposort([a, b, c], [e])] == [T.mul, T.add, T.exp]
    assert gof.graph.ops([d, c], [e]) == {e.owner, e.owner.inputs[0].owner}
    assert gof.graph.is_in_ancestors(e.owner, d.owner)
    assert not gof.graph.is_in_ancestors(d.owner, e.owner)


def test_is_same_graph(gof, T):
    a, b, c = T.dscalars("abc")
    same = gof.graph.is_same_graph
    assert same(a * 2, a * 2)
    assert not same(a * 2, b * 2)
    assert same(a * 2, b * 2, givens={b: a})
    assert same(a * b + c, a * a + a * b, givens=[(b, a), (c, a * a)])
    assert not same(a * b + c, a * b + b, givens={a: c})
    assert same((a * b) * 2, c * 2, givens={c: a * b})


def test_missing_input(shim, T, x):
    with pytest.raises(shim.gof.MissingInputError):
        shim.function([], x + 1)


@pytest.fixture
def add_to_sub(gof, T):
    @gof.local_optimizer([T.add])
    def local_add_to_sub(node):
        seen.append((node.fgraph, node.outputs[0].clients))
        return [T.sub(*node.inputs)]

    seen = []
    return local_add_to_sub, seen


def test_local_optimizer(gof, T, add_to_sub):
    rewrite, seen = add_to_sub
    a, b = T.dscalars("ab")
    graph = gof.FunctionGraph([a, b], [a + b], clone=False)
    gof.TopoOptimizer(rewrite).optimize(graph)
    assert str(graph) == "[Elemwise{sub,no_inplace}(a, b)]"
    assert seen == [(graph, [("output", 0)])]
    assert rewrite.transform(graph.outputs[0].owner)[0].owner.op == T.sub


@pytest.mark.parametrize("tracks", [[], [int]])
def test_wrong_tracks(gof, tracks):
    with pytest.raises(ValueError):
        gof.local_optimizer(tracks)(lambda node: False)


def test_rewrites_by_pattern(gof, T):
    a, b = T.dscalars("ab")

    def rewritten(rewrite):
        graph = gof.FunctionGraph([a, b], [T.exp(T.add(a, b))])
        gof.TopoOptimizer(rewrite).optimize(graph)
        return str(graph)

    assert rewritten(gof.OpRemove(T.exp)) == "[Elemwise{add,no_inplace}(a, b)]"
    assert "log" in rewritten(gof.OpSub(T.exp, T.log))
    swapped = rewritten(gof.PatternSub((T.add, "u", "v"), (T.mul, "v", "u")))
    assert swapped == "[Elemwise{exp,no_inplace}(Elemwise{mul,no_inplace}(b, a))]"


def test_database(shim, gof, T, add_to_sub):
    a, b = T.dscalars("ab")
    database = gof.EquilibriumDB()
    database.register("add_to_sub", add_to_sub[0], "mine")
    sequence = gof.SequenceDB()
    sequence.register("first", database, 1, "mine")
    mode = shim.Mode(linker="vm", optimizer=sequence.query(gof.Query(include=["mine"])))
    assert shim.function([a, b], a + b, mode=mode)(5.0, 3.0) == 2


@pytest.mark.parametrize(("mode", "at_zero"), [("FAST_COMPILE", np.nan), ("FAST_RUN", 2.0)])
def test_fast_compile_cancels_nothing(shim, v, mode, at_zero):
    if mode == "FAST_RUN":
        mode = shim.Mode("py", "fast_run")
    with np.errstate(invalid="ignore"):
        np.testing.assert_equal(shim.function([v], 2 * v / v, mode=mode)([1.0, 0.0]), [2, at_zero])


def test_optdb_takes_a_position(shim, gof, T, add_to_sub):
    class Nothing(gof.Optimizer):
        def apply(self, fgraph):
            pass

    from theano.compile import optdb

    name = "shim_test_nothing"
    optdb.register(name, Nothing(), 49.3, "shim_test_tag")
    try:
        assert optdb.__position__[name] == 49.3
        assert [o.name for o in optdb.query("+shim_test_tag")] == [name]
    finally:
        for table in (optdb.__db__, optdb.__position__):
            table.pop(name)
        optdb._names.remove(name)
        optdb.__db__.pop("shim_test_tag")


def test_replacement_of_another_type(gof, T):
    a = T.dscalar("a")
    graph = gof.FunctionGraph([a], [T.exp(a)], clone=False)
    with pytest.raises(gof.toolbox.BadOptimization, match="type of the replacement"):
        graph.replace(graph.outputs[0], T.dvector(), reason="test")


def test_linker_makes_a_function(gof, T, x):
    execute = gof.PerformLinker().accept(gof.FunctionGraph([x], [x + 1])).make_function()
    assert execute(1.0) == 2
    with pytest.raises(TypeError):
        execute()


# Modes


def test_nan_guard(shim, T, x):
    from theano.compile.nanguardmode import NanGuardMode

    f = shim.function([x], T.log(x), mode=NanGuardMode(True, True, True, "fast_compile"))
    assert f(1.0) == 0
    with pytest.raises(AssertionError) as caught:
        f(-1.0)
    _, _, said = str(caught.value).partition("NaN detected\n")
    assert said.startswith("NanGuardMode found an error in the output of a node in this variable:")
    lines = said.splitlines()
    for line in ["Toposort index: 0", "Inputs shapes: [()]", "Outputs clients: [['output']]"]:
        assert line in lines
    assert "Inputs types: [TensorType(float64, scalar)]" in lines
    assert any(line.startswith("Apply node that caused the error: ") for line in lines)
    assert any(line.startswith("Inputs values: [array(-1.)]") for line in lines)
    untouched = T.log(x)
    untouched.tag.nan_guard_mode_check = False
    g = shim.function([x], untouched, mode=NanGuardMode(nan_is_error=True, inf_is_error=False))
    assert np.isnan(g(-1.0))


def test_monitor(shim, T, x):
    calls = []
    mode = shim.compile.MonitorMode(
        pre_func=lambda i, node, fn: calls.append(fn.outputs[0][0]),
        post_func=lambda i, node, fn: calls.append(float(fn.outputs[0][0])),
        optimizer="fast_compile",
    )
    shim.function([x], T.exp(x), mode=mode.excluding("fusion"))(0.0)
    assert calls == [None, 1.0]


def test_debug_mode(shim, x, needs_cxx):
    from theano.compile.debugmode import DebugMode, InvalidValueError

    with shim.change_flags(**{"DebugMode.check_c": False}):
        assert not DebugMode().check_c_code
    assert not DebugMode(check_py=False).check_py_code
    with pytest.raises(ValueError):
        DebugMode(check_c=False, check_py=False)
    f = shim.function([x], x * 2, mode=DebugMode(check_c_code=False, stability_patience=1))
    assert f(1.0) == 2
    with pytest.raises(InvalidValueError):
        f(np.inf)


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE", "DebugMode", "Mode", "NanGuardMode"])
def test_modes_by_name(shim, mode):
    found = shim.compile.get_mode(mode)
    assert isinstance(found.including("fusion").excluding("inplace"), shim.Mode)


def test_fast_run_among_the_modes(shim):
    from pytensor.compile.mode import get_mode

    assert shim.compile.mode.predefined_modes["FAST_RUN"] is shim.compile.mode.FAST_RUN
    assert get_mode("FAST_RUN") is shim.compile.mode.FAST_RUN


def test_no_such_mode(shim):
    with pytest.raises(Exception, match="No predefined mode"):
        shim.compile.get_mode("nonsense")


# OpFromGraph


@pytest.mark.parametrize("inline", [False, True])
def test_op_from_graph(shim, T, x, inline):
    y, state = T.dscalar("y"), shim.shared(10.0)

    def doubled(inputs, gradients):
        return 2 * gradients[0] * inputs[1]

    op = shim.OpFromGraph(
        [x, y], [x * y + state], inline, grad_overrides=[doubled, "default", "default"]
    )
    out = op(x, y)
    f = shim.function([x, y], [out, *T.grad(out, [x, y])])
    assert f(3.0, 5.0) == [25.0, 10.0, 3.0]
    state.set_value(0.0)
    assert f(3.0, 5.0)[0] == 15


def test_op_from_graph_refuses(shim, T, x):
    with pytest.raises(TypeError):
        shim.OpFromGraph([x], x)
    with pytest.raises(ValueError, match="mutually exclusive"):
        shim.OpFromGraph([x], [x], lop_overrides=max, grad_overrides=max)
    with pytest.raises(TypeError):
        shim.OpFromGraph([x], [x + 1], updates={})


# Printing


def test_a_fused_operation_without_a_compiler(shim, T):
    """It is computed on arrays, in the dtypes that each step of it has."""
    a, b, n, small = T.fmatrix("a"), T.frow("b"), T.lvector("n"), T.bvector("small")
    outputs = [
        T.tanh(a + b) * (a - b) + a * 2,
        T.switch(a > 0, T.log1p(abs(a)), n / 2) + T.erf(b),
        T.cast(T.sqrt(small) * 3, "int32") % 2 + n // 2,
        T.nnet.sigmoid(-a) + T.clip(a, -1, 1) + T.gammaln(2 + abs(b)),
    ]
    rng = np.random.RandomState(0)
    values = [
        rng.randn(3, 4).astype("float32"),
        rng.randn(1, 4).astype("float32"),
        np.arange(4),
        np.arange(4, dtype="int8"),
    ]
    fused, plain = (
        shim.function([a, b, n, small], outputs, mode=shim.Mode("py", rewrites))
        for rewrites in ("fast_run", "fast_compile")
    )
    assert any("Composite" in str(node.op) for node in fused.maker.fgraph.toposort())
    for one, other in zip(fused(*values), plain(*values), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_debugprint(shim, T):
    a, b = T.dscalar("a"), T.dscalar("b")
    c = a + b
    c.name = "c"
    text = shim.printing.debugprint([T.exp(c) * c], file="str", print_type=True)
    scalar = "<TensorType(float64, scalar)>"
    assert text.splitlines() == [
        f"Elemwise{{mul,no_inplace}} [id A] {scalar} ''   ",
        f" |Elemwise{{exp,no_inplace}} [id B] {scalar} ''   ",
        f" | |Elemwise{{add,no_inplace}} [id C] {scalar} 'c'   ",
        f" |   |a [id D] {scalar}",
        f" |   |b [id E] {scalar}",
        f" |Elemwise{{add,no_inplace}} [id C] {scalar} 'c'   ",
    ]
    with pytest.raises(TypeError):
        shim.printing.debugprint(object())


def test_debugprint_of_a_loop(shim, T, v):
    w = T.dvector("w")
    loops = [shim.scan(lambda a: a * 2, sequences=u)[0] for u in (v, w)]
    text = shim.printing.debugprint(T.add(*loops), file="str")
    inner = text.partition("Inner graphs of the scan ops:")[2]
    assert inner.count(" >Elemwise{mul,no_inplace}") == 2
    for name in ("v", "w"):
        (line,) = [line for line in inner.splitlines() if f"{name}[t]" in line]
        assert re.fullmatch(rf" > \|{name}\[t\] \[id \w+\] -> \[id \w+\]", line)


def test_order_of_nodes(shim, T):
    from theano.gof.sched import key_to_cmp, make_depends, posort, sort_apply_nodes

    assert posort([3, 1, 2], key_to_cmp(lambda n: n % 2), key_to_cmp(lambda n: n)) == [2, 1, 3]
    x = T.dmatrix("x")
    y = T.dot(T.exp(x), T.log(x)) + T.exp(x)
    nodes = sort_apply_nodes([x], [y], [key_to_cmp(str)])
    assert len(nodes) == 5
    assert [str(node) for node in nodes] == sorted(map(str, nodes))
    depends = make_depends()
    assert {depends((y.owner, node)) for node in nodes if node is not y.owner} == {True}
    linker = shim.OpWiseCLinker(schedule=shim.gof.sched.sort_schedule_fn(key_to_cmp(str)))
    f = shim.function([x], y, mode=shim.Mode(linker=linker, optimizer=None))
    for node, following in pairwise(f.maker.linker.make_all()[-1]):
        assert depends((following, node)) or str(node) <= str(following)


@pytest.mark.parametrize("copy_inputs", [True, False])
@pytest.mark.parametrize("copy_orphans", [True, False])
def test_copies_of_constants(copy_inputs, copy_orphans, shim, T):
    first, second = T.constant(1.5), T.constant(2.5)
    inputs, outputs = shim.gof.graph.clone([first], [first + second], copy_inputs, copy_orphans)
    assert (inputs[0] is first) != copy_inputs
    assert (outputs[0].owner.inputs[1] is second) != copy_orphans
    assert outputs[0].owner.inputs[0] is inputs[0]
    assert shim.function([], outputs[0])() == 4


def test_names_of_rewrites(shim):
    database = shim.gof.DB()
    database.register("one", shim.gof.opt.MergeOptimizer(), "a tag")
    for args in ("one", "a tag"):
        with pytest.raises(ValueError, match="^The name of the object cannot be an existing tag"):
            database.register(args, shim.gof.opt.MergeOptimizer())
    with pytest.raises(ValueError, match="^The tag of the object collides with a name"):
        database.register("two", shim.gof.opt.MergeOptimizer(), "one")


def test_short_texts(shim, T, x, v):
    assert shim.pp(T.exp(x) + 1) == "(exp(x) + TensorConstant{1})"
    assert shim.pp(v[1]) == "v[Constant{1}]"
    assert str(T.constant(np.ones(3))) == "TensorConstant{(3,) of 1.0}"
    assert repr(T.row().type) == "TensorType(float64, row)"
    assert shim.printing.min_informative_str(x * 2).startswith("A. Elemwise{mul,no_inplace}\n B. x")
    described = shim.printing.var_descriptor(x * x)
    assert described == "A=Elemwise{mul,no_inplace}(B=x,<B>)"
    assert shim.printing.hex_digest(np.zeros((2, 3))).endswith("|strides=[24,8]|shape=[2,3]")


def test_print(shim, x, capsys):
    shim.function([x], shim.printing.Print("here")(x) + 1, mode=FAST)(3.0)
    assert capsys.readouterr().out == "here __str__ = 3.0\n"


# The rest


def test_ifelse_is_lazy(shim, T, x):
    boom = shim.raise_op.Raise("too far", ValueError)(x)
    f = shim.function([x], shim.ifelse.ifelse(T.lt(x, 1), x + 1, boom))
    assert f(0.0) == 1
    with pytest.raises(ValueError, match="too far"):
        f(2.0)


def test_asserting(shim, T, x):
    f = shim.function([x], T.opt.Assert("not positive")(x, T.gt(x, 0)), mode=FAST)
    assert f(1.0) == 1
    with pytest.raises(AssertionError, match="not positive"):
        f(-1.0)


def test_test_values(shim, T):
    from theano.gof.op import debug_assert, debug_error_message, get_debug_values, get_test_value

    assert get_debug_values(1.0) == []
    with shim.change_flags(compute_test_value="raise"):
        a = T.dvector("a")
        with pytest.raises(AttributeError):
            get_test_value(a)
        with pytest.raises(AttributeError):
            get_debug_values(a)
        with pytest.raises(ValueError):
            a + 1
        a.tag.test_value = np.ones(2)
        b = a * 3
        assert get_test_value(b).tolist() == [3, 3]
        assert shim.gof.op.PureOp._get_test_value(b) is b.tag.test_value
        ((one, other),) = get_debug_values(a, b)
        assert one.sum() == 2
        with pytest.raises(AssertionError):
            debug_assert(other.sum() == 2)
        with pytest.raises(ValueError):
            debug_error_message("wrong")
    assert not hasattr((T.dvector() + 1).tag, "test_value")


def test_a_clone_keeps_the_test_value(shim, T):
    """On an input that has none, which Theano does not ask for one before the next operation."""
    with shim.change_flags(compute_test_value="raise"):
        a, b = T.dvector("a"), T.dvector("b")
        a.tag.test_value = np.ones(2)
        double = 2 * a
        other = shim.clone(double, {a: b})
        assert (double - other).tag.test_value.tolist() == [0, 0]
        with pytest.raises(ValueError, match="b, of .* has no test value"):
            b + 1


def test_lock(shim):
    shim.gof.compilelock.get_lock()
    shim.gof.compilelock.get_lock()
    shim.gof.compilelock.release_lock()
    shim.gof.compilelock.release_lock()
    with pytest.raises(AssertionError):
        shim.gof.compilelock.release_lock()


def test_no_lock(shim, tmp_path):
    from pytensor.compile.compilelock import lock_ctx

    def is_locked():
        with lock_ctx(tmp_path):
            return (tmp_path / ".lock").exists()

    shim.gof.compilelock.set_lock_status(False)
    try:
        assert not is_locked()
    finally:
        shim.gof.compilelock.set_lock_status(True)
    assert is_locked()


@pytest.fixture
def thresholds():
    """The thresholds of the garbage collector that Python has by itself."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_is_as_before_a_compilation(shim, gof, v, fails, thresholds):
    frozen, seen = gc.get_freeze_count(), []

    class Watching(gof.Optimizer):
        def apply(self, fgraph):
            seen.append(gc.get_threshold())
            if fails:
                raise KeyError("stop")

    mode = shim.compile.Mode("py", Watching())
    with pytest.raises(KeyError) if fails else nullcontext():
        shim.function([v], v * 2, mode=mode)
    assert [(young, old > 1_000_000) for young, _, old in seen] == [(10_000, True)]
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() <= frozen  # (what was frozen before may have been freed)


@pytest.mark.parametrize("way", ["mode", "guarding"])
def test_digits_are_measured(shim, T, x, way):
    """With defaults, outputs in a dict, and some of them."""
    y = T.dscalar("y")
    y_in = shim.In(y, value=1.0)
    settings = {"precision": MeasuredCalls(every=2), "big_threshold": 1e15}
    mode = GuardMode(**settings) if way == "mode" else FAST
    outputs = {"root": T.sqrt(x), "difference": T.sqrt(x + y) - T.sqrt(x)}
    with nullcontext() if way == "mode" else guarding(**settings):
        f = shim.function([x, y_in], outputs, mode=mode)
    assert isinstance(f, shim.compile.function_module.Function)
    with pytest.raises(GuardError) as caught:
        f(1e14)
    assert (caught.value.event.kind, caught.value.event.op) == ("digits", "sub")
    assert f(1e14)["root"] == 1e7  # the second call is not measured
    assert f(4.0, 5.0) == {"root": 2.0, "difference": 1.0}
    assert f(1e14, output_subset=["root"]) == {"root": 1e7}
