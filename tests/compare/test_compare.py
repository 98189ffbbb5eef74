"""``compare``: one graph in several modes, and the first variable at which they part."""

import importlib.util
import inspect

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.elemwise import Elemwise

from theanoguard import GuardMode, compare, track_provenance
from theanoguard._compare import Difference, Tolerance
from theanoguard._compare.difference import difference
from theanoguard._pytensor import ifelse
from theanoguard._pytensor.for_theano import register_rewrite

pytestmark = pytest.mark.on_33

X = np.array([0.5, 1.0, 2.0])
VM = Mode("vm", "fast_run")  # in C where there is a compiler


class Off(ps.UnaryScalarOp):
    """Adds 1 in Python, and a little more in C."""

    def __init__(self):
        super().__init__(ps.same_out, name="off")

    def impl(self, x):
        return x + 1

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = {inputs[0]} + 1.001;"

    def c_code_cache_version(self):
        return (1,)


off = Elemwise(Off())


def line_number():
    return inspect.currentframe().f_back.f_lineno


# -- where they part


@pytest.fixture(scope="module")
def faulty(needs_cxx):
    """A graph with an operation whose C code is wrong, in C and in Python's mode."""
    x = pt.dvector("x")
    w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    a = pt.exp(x * w)
    line, b = line_number(), off(a)
    c = pt.log(b).sum()
    c.name = "cost"
    return compare([c, a], {"x": X}, ["c", "fast_compile"], rtol=1e-9), line


def test_the_first_variable_is_found_with_its_line(faulty):
    found, line = faulty
    assert not found.agree
    result = found["c"]
    assert result.parted
    first = result.first
    assert (first.op, first.variable) == ("off", "off(exp(x * w))")
    assert (first.source.line, first.source.file) == (line, __file__)
    assert first.difference.expected == pytest.approx(np.exp(0.5) + 1)
    assert first.difference.found - first.difference.expected == pytest.approx(0.001)
    assert first.difference.max_relative == pytest.approx(0.001 / (np.exp(0.5) + 1.001))
    [(operand, apart)] = first.operands
    assert operand == "exp(x * w)"
    assert apart.max_ulp <= 4


def test_outputs_are_told_apart(faulty):
    found, _ = faulty
    assert found.outputs == ["cost", "output 1"]
    differences = found["c"].differences
    assert differences["cost"].parted
    assert not differences["output 1"].parted
    np.testing.assert_allclose(found["c"].values[1], found.reference[1])


def test_a_mode_that_runs_python_agrees(faulty):
    found, _ = faulty
    assert not found["fast_compile"].parted
    assert found["fast_compile"].first is None


def test_the_text(faulty):
    found, line = faulty
    table = found.table().splitlines()
    assert table[0].split() == "mode max ULP max relative largest in".split()
    assert table[1].split()[:2] == ["c", "differs"]
    assert table[2].split()[:2] == ["fast_compile", "agrees"]
    text = str(found)
    assert "c differs first at off: off(exp(x * w)) is " in text
    assert f"test_compare.py:{line}:" in text and "line, b = line_number(), off(a)" in text
    assert "^^^^^^" in text
    assert "  compiled to off(" in text.lower()
    assert "without fusion" in text


def test_a_rewrite_that_makes_the_difference_is_named(needs_cxx):
    x = pt.dvector("x")
    found = compare(pt.log(1 + x) * 2, {x: [1e-20, 1.0]}, ["c"], atol=0)
    first = found["c"].first
    assert (first.op, first.compiled) == ("log", "Log1p(x)")
    assert "local_log1p" in first.rewrites
    assert (first.difference.expected, first.difference.found) == (0.0, 1e-20)
    assert first.difference.index == (0,)


def test_what_is_left_of_a_cancellation_is_no_difference_by_default():
    x = pt.dvector("x")
    assert compare(pt.log(1 + x) * 2, {x: [1e-20, 1.0]}, [VM, "numba"]).agree


def test_a_gradient_tells_the_line_that_it_differentiates():
    x = pt.dscalar("x")
    line, y = line_number(), pt.exp(x)
    gradient = pytensor.grad(y**2, x)
    found = compare(gradient, {x: 300.0}, ["float32"])
    first = found["float32"].first
    assert np.isinf(first.difference.found)
    assert first.source.line == line


class Sorted(Op):
    """Sorts in Python; in place it forgets to."""

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, storage):
        storage[0][0] = inputs[0] if self.inplace else np.sort(inputs[0])


@node_rewriter([Sorted])
def sort_in_place(fgraph, node):
    return None if node.op.inplace else [Sorted(inplace=True)(*node.inputs)]


@pytest.mark.parametrize("tag", ["fast_run", "inplace"])
def test_work_in_place_is_blamed_when_it_is_to_blame(tag):
    """Found where it stands; what can be left out, and is then right, is said to be at fault."""
    undo = register_rewrite(
        optdb, "sort_in_place", in2out(sort_in_place), tag, "fast_run", position=60
    )
    try:
        x = pt.dvector("x")
        found = compare(Sorted()(x * 2), {x: [3.0, 1.0]}, [Mode("vm", "fast_run")])
    finally:
        undo()
    first = found["Mode"].first
    assert (first.op, first.compiled.partition("(")[0]) == ("sorted", "Sorted{inplace=True}")
    assert first.difference.found == 6.0
    assert ("without work in place the outputs agree" in first.how) == (tag == "inplace")


# -- precisions


def test_float32_where_it_overflows():
    x = pt.dvector("x")
    line, y = line_number(), pt.exp(x)
    found = compare((1 / y).sum(), {x: [100.0, 1.0]}, ["float32"], rtol=1e-3)
    assert found["float32"].parted is False
    found = compare(pt.log(y), {x: [100.0, 1.0]}, ["float32"], rtol=1e-3)
    first = found["float32"].first
    assert (first.op, first.source.line) == ("exp", line)
    assert first.difference.found == np.inf
    assert first.difference.expected == np.exp(100.0)
    assert first.operands[0][1].max_ulp == 0


def test_float32_reaches_into_a_loop_and_its_gradient():
    x = pt.dvector("x")
    states = pytensor.scan(
        lambda s, a: pt.tanh(s * a),
        outputs_info=[pt.ones(())],
        non_sequences=[x[0]],
        n_steps=20,
        return_updates=False,
    )
    outputs = [states, pytensor.grad(states[-1], x)]
    found = compare(outputs, {x: [1.3, 0.0]}, ["float32"])
    assert found.agree
    assert [v.dtype for v in found["float32"].values] == ["float32", "float32"]
    assert 0 < found["float32"].differences["output 0"].max_ulp < 1000
    assert found["float32"].differences["output 0"].dtype == "float32"


def test_float32_everywhere():
    """Casts, sums with a type of their own, integers that become floats, draws, complex numbers."""
    x = pt.dvector("x")
    n = pt.lvector("n")
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    outputs = {
        "cast": pt.cast(x, "float64") + 1.0,
        "sum": pt.sum(x, dtype="float64", acc_dtype="float64"),
        "log of integers": pt.log(n),
        "draw": pt.random.normal(x, 1.0, rng=rng, return_next_rng=True)[1],
        "complex": abs(pt.cast(x, "complex128") * 1j),
        "matrix": pt.linalg.inv(pt.diag(x)) @ x,
    }
    found = compare(list(outputs.values()), {x: X, n: [1, 2, 3]}, ["float32"])
    kinds = {name: v.dtype.name for name, v in zip(outputs, found["float32"].values, strict=True)}
    assert kinds == dict.fromkeys(outputs, "float32")
    assert found.agree, str(found)


def test_a_precision_that_the_graph_has_already_is_left_out():
    x = pt.fvector("x")
    found = compare(pt.exp(x), {x: X.astype("float32")}, ["float32", "float64"])
    assert "float32: left out, the graph is in float32 already" in found.table()
    assert found["float64"].values[0].dtype == "float64"
    assert 0 < found["float64"].differences["output 0"].max_ulp <= 2


# -- what is not there, and what fails


def test_a_backend_that_is_not_installed_is_left_out(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "jax" else find_spec(name, *a)
    )
    x = pt.dvector("x")
    found = compare(x + 1, {x: X}, ["jax", "fast_compile"])
    assert found.agree
    assert "jax: left out, jax is not installed (pip install jax)" in str(found)
    assert found["jax"].values == []


def test_without_a_compiler_c_is_left_out():
    x = pt.dvector("x")
    with pytensor.config.change_flags(cxx=""):
        found = compare(x + 1, {x: X}, ["c"])
    assert found["c"].not_run == "left out, PyTensor has no C++ compiler here"


def test_jax():
    pytest.importorskip("jax")
    x = pt.dvector("x")
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    next_rng, draw = pt.random.normal(x, 1.0, rng=rng, return_next_rng=True)
    with track_provenance():
        fn = pytensor.function([x], pt.exp(draw).sum(), updates={rng: next_rng}, mode=VM)
    found = compare(fn, [X], ["jax"])
    assert found["jax"].not_run is None
    assert found.agree, str(found)
    assert "JAX draws other random numbers" in str(found)


def test_jax_parts():
    pytest.importorskip("jax")
    x = pt.dvector("x")
    found = compare(pt.log(1 + x) * 2, {x: [1e-20, 1.0]}, ["jax"], atol=0)
    assert found["jax"].first.op == "log"


def test_numba():
    x = pt.dvector("x")
    found = compare(pt.log(1 + x) * 2, {x: [1e-20, 1.0]}, ["numba"], atol=0)
    first = found["numba"].first
    assert first.op == "log"
    assert "log1p" in first.compiled.lower()


class OnlyPython(Op):
    """Refuses to run anywhere but in the reference."""

    __props__ = ()
    calls = 0

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, storage):
        OnlyPython.calls += 1
        if OnlyPython.calls > 1:
            raise RuntimeError("this backend\x1b[31m has no such thing\nand more")
        storage[0][0] = inputs[0] * 2


def test_a_mode_that_fails_does_not_stop_the_others():
    OnlyPython.calls = 0
    x = pt.dvector("x")
    found = compare(OnlyPython()(x), {x: X}, ["fast_compile", "py"])
    assert found["fast_compile"].not_run.startswith("failed, RuntimeError: this backend")
    assert not found["py"].parted
    assert "\x1b" not in str(found)
    assert "and more" not in str(found)


def test_a_guard_as_a_mode():
    x = pt.dvector("x")
    modes = [GuardMode(linker="vm"), GuardMode(linker="vm", action="record")]
    found = compare(pt.log(x), {x: [-1.0, 1.0]}, modes)
    assert found.agree
    assert [mode.events for mode in modes] == [[], []]


def test_nothing_agrees_if_no_mode_ran():
    x = pt.dvector("x")
    with pytensor.config.change_flags(cxx=""):
        found = compare(x + 1, {x: X}, ["c"])
        assert found.agree is None
        assert compare(x + 1, {x: X}, ["c", "fast_compile"]).agree is True


def test_what_the_graph_itself_raises_is_raised():
    x, y = pt.dvectors("x", "y")
    with pytest.raises(ValueError):
        compare(x + y, {x: X, y: X[:2]}, ["fast_compile"])


# -- functions


@pytest.fixture(scope="module")
def counter():
    """A function with an update, one with a draw, and its variables."""
    x = pt.dvector("x")
    w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    rng = pytensor.shared(np.random.default_rng(5), name="rng")
    next_rng, draw = pt.random.normal(0.0, 1.0, size=(3,), rng=rng, return_next_rng=True)
    cost = (pt.log(1 + x) * w).sum() + draw.sum()
    cost.name = "cost"

    def compiled():
        updates = {w: w * 2 + x, rng: next_rng}
        return pytensor.function([x], cost, updates=updates, mode="FAST_COMPILE")

    with track_provenance():
        tracked = compiled()
    return tracked, compiled(), w, rng


@pytest.mark.parametrize("which", [0, 1], ids=["tracked", "not tracked"])
def test_nothing_of_the_users_is_changed(counter, which):
    fn, w, rng = counter[which], *counter[2:]
    given = X.copy()
    before = w.get_value(), rng.get_value().bit_generator.state
    found = compare(fn, [given], ["fast_compile", VM, "numba", "float32"])
    assert found.outputs == ["cost" if which == 0 else found.outputs[0], "the new value of w",
                             "the new value of rng"]  # fmt: skip
    np.testing.assert_array_equal(w.get_value(), before[0])
    assert rng.get_value().bit_generator.state == before[1]
    np.testing.assert_array_equal(given, X)
    assert all(result.not_run is None for result in found.modes.values()), str(found)
    assert found.agree, str(found)
    np.testing.assert_allclose(found.reference[1], before[0] * 2 + X)
    # And the function gives what the reference gave.
    np.testing.assert_allclose(fn.copy()(X), found.reference[0])
    w.set_value(before[0])
    fresh = np.random.default_rng(5)
    rng.set_value(fresh)


def test_a_tracked_function_is_compared_as_it_was_written(counter):
    x = [1e-20, 0.0, 0.0]
    tracked, untracked = counter[:2]
    found = compare(tracked, {"x": x}, [VM], atol=0, rtol=0, ulp=0)
    assert not found.notes
    found = compare(untracked, {"x": x}, [VM])
    assert str(found).startswith("The graph as it was written is gone: only the compiled graph")
    with pytest.raises(ValueError, match="needs the graph as it was written, which is gone.\nComp"):
        compare(untracked, {"x": x}, [VM], reference="as written")


def test_inputs_that_are_an_array():
    x = pt.dvector("x")
    with pytest.raises(TypeError, match=r"are a list or a mapping, not ndarray.\nWrite \[value\]"):
        compare(pytensor.function([x], x + 1, mode="FAST_COMPILE"), X)


@pytest.mark.parametrize("inputs", [[], [X, X], [X[None]], [["a"]]], ids=range(4))
def test_inputs_that_do_not_fit_a_function(inputs):
    x = pt.dvector("x")
    function = pytensor.function([x], x + 1, mode="FAST_COMPILE")
    with pytest.raises((TypeError, ValueError), match="the inputs do not fit the function: ") as e:
        compare(function, inputs)
    assert str(e.value).splitlines()[1] == f"It takes x ({x.type})."


def test_the_compiled_graph_of_a_function_in_place(needs_cxx):
    x = pt.dmatrix("x")
    w = pytensor.shared(np.eye(3), name="w")
    fn = pytensor.function([x], (w * 2).sum(), updates={w: w + 0.1 * (x @ w)}, mode="CVM")
    assert any(node.op.destroy_map for node in fn.maker.fgraph.toposort())
    found = compare(fn, [np.ones((3, 3))], ["c", "numba", "fast_compile"])
    assert found.agree, str(found)
    assert all(result.not_run is None for result in found.modes.values()), str(found)
    np.testing.assert_array_equal(w.get_value(), np.eye(3))


def test_a_branch_that_is_not_taken_is_not_run():
    x = pt.dvector("x")
    bad = pt.linalg.cholesky(pt.outer(x, x) - 10 * pt.eye(3)).sum()
    found = compare(ifelse(x[0] > 0, pt.exp(x).sum(), bad), {x: X}, [VM, "float32"])
    assert found.agree, str(found)
    assert all(result.not_run is None for result in found.modes.values()), str(found)


def test_sparse_values():
    m = pytensor.sparse.csr_matrix("m", dtype="float64")
    matrix = scipy.sparse.csr_matrix(np.diag([1 / 3, 2 / 3]))
    found = compare(m * 2.0, {m: matrix}, ["fast_compile", "float32"])
    assert found.agree
    assert found["fast_compile"].differences["output 0"].max_ulp == 0


def test_integers_are_compared_exactly():
    x = pt.dvector("x")
    found = compare(pt.cast(pt.exp(x), "int64"), {x: [20.0]}, ["float32"])
    apart = found["float32"].differences["output 0"]
    assert apart.parted
    assert apart.dtype == "int64"
    assert apart.max_ulp == abs(int(np.exp(20.0)) - int(np.exp(np.float32(20.0))))


# -- arguments


def test_bad_arguments_are_named():
    x = pt.dvector("x")
    with pytest.raises(ValueError, match="no mode 'fortran'") as caught:
        compare(x, {x: X}, ["fortran"])
    names = str(caught.value).partition("one of ")[2].rstrip(".").split(", ")
    assert len(names) == len({*names}) and {"py", "numba", "float32"} <= {*names}
    with pytest.raises(TypeError, match="nothing can be compared of 3"):
        compare(3, {})
    with pytest.raises(ValueError, match="the input x, of .*, has no value"):
        compare(x + 1, {})
    with pytest.raises(ValueError, match="no input of the graph: y"):
        compare(x + 1, {"x": X, "y": X})
    with pytest.raises(TypeError, match="have no order"):
        compare(x + 1, [X])
    for name in ("rtol", "atol", "ulp"):
        with pytest.raises(ValueError, match=f"{name} must be at least 0"):
            compare(x, {x: X}, [], **{name: -1})


def test_one_mode_needs_no_list():
    x = pt.dvector("x")
    assert list(compare(x, {x: X}, "py").modes) == ["py"]


# -- differences

floats = st.floats(-1e300, 1e300)


@given(floats, st.integers(0, 5))
def test_units_in_the_last_place_count_the_numbers_between(x, steps):
    y = x
    for _ in range(steps):
        y = np.nextafter(y, np.inf)
    assert difference(np.float64(x), np.float64(y)).max_ulp == steps


@given(st.floats(width=32), st.floats(width=32))
def test_a_difference_has_no_direction(x, y):
    one = difference(np.float32(x), np.float32(y), Tolerance(atol=0))
    other = difference(np.float32(y), np.float32(x), Tolerance(atol=0))
    assert (one.n_parted, one.max_ulp, one.max_relative) == (
        other.n_parted, other.max_ulp, other.max_relative,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "found", "parted", "ulp"),
    [
        (np.nan, np.nan, False, 0),
        (np.inf, np.inf, False, 0),
        (np.inf, -np.inf, True, np.inf),
        (np.nan, 1.0, True, np.inf),
        (0.0, -0.0, False, 0),
        (1e300, np.float32(np.inf), True, np.inf),
        (1.0, 1.0 + 1e-6, True, 1e-6 / 2**-52),
        (np.float32(1.0), 1.0 + 1e-9, False, 0),
        (True, False, True, 1),
        (3, 3, False, 0),
        (2**63 - 1, -(2**63), True, 2.0**64),
        (1 + 1j, 1 + 2j, True, 2.0**52),
    ],
)
def test_two_numbers(expected, found, parted, ulp):
    apart = difference(np.asarray(expected), np.asarray(found))
    assert apart.parted == parted
    assert apart.max_ulp == pytest.approx(ulp)


def test_two_shapes():
    apart = difference(np.ones(3), np.ones((3, 1)))
    assert apart.parted
    assert str(apart) == "shape (3, 1), expected (3,)"
    assert not difference(np.ones((0, 2)), np.ones((0, 2))).parted


def test_tolerances_by_type():
    one, other = np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-6])
    assert difference(one, other).parted
    assert not difference(one, other, Tolerance(rtol=1e-6)).parted
    assert not difference(one, other, Tolerance(atol=1e-5)).parted
    assert not difference(one, other, Tolerance(ulp=1e10)).parted
    assert not difference(one.astype("float32"), other.astype("float32")).parted
    assert isinstance(difference(one, other), Difference)


def test_error_of_the_reference_names_its_line():
    a, b = pt.dmatrix("a"), pt.dvector("b")
    line = inspect.currentframe().f_lineno + 1
    y = a @ b
    given = {a: np.ones((2, 2)), b: np.ones(3)}
    with pytest.raises(ValueError, match="core dimension") as caught:
        compare(y, given)
    [note] = caught.value.__notes__
    assert f"{__file__}:{line} raises this for the inputs" in note
    assert compare(y, given, "fast_compile", reference="as written").agree


def test_value_that_is_no_number():
    b = pt.dvector("b")
    with pytest.raises(ValueError, match=r"compare\(inputs=...\): b cannot be 'q'"):
        compare(pt.log(b), {b: "q"})
