"""Assert and its relatives: what is checked, what the failure says, what rewriting drops."""

import pdb
import pickle
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.replace import vectorize_graph

from theanoguard.ops.asserts import (
    Assert,
    PdbBreakpoint,
    assert_finite,
    assert_in_range,
    assert_op,
    assert_shape,
)

pytestmark = pytest.mark.on_30

CVM = get_mode("CVM")


def asserts_of(f):
    return [n for n in f.maker.fgraph.toposort() if isinstance(n.op, Assert)]


def failure(f, *args):
    with pytest.raises(AssertionError) as caught:
        f(*args)
    return str(caught.value)


def test_value_passes_through():
    x, y = pt.dvectors("x", "y")
    f = pytensor.function([x, y], Assert("no")(x, pt.all(x < y)) * 2, mode=CVM)
    np.testing.assert_array_equal(f([1, 2], [3, 4]), [2, 4])


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "FAST_COMPILE"])
def test_failure_names_line_sides_and_elements(mode):
    x, y = pt.dvectors("x", "y")
    condition = pt.all(x < y)  # the condition's line
    f = pytensor.function([x, y], Assert("x must stay below y")(x, condition) * 2, mode=mode)
    np.testing.assert_array_equal(f([1, 2], [3, 4]), [2, 4])
    text = failure(f, [1.0, 5.0, 7.0], [2.0, 4.0, 6.5])
    assert text.splitlines()[0] == "x must stay below y"
    assert "required: x < y" in text
    assert "test_asserts.py" in text and "# the condition's line" in text
    assert "left side: x = float64 array of shape (3,) [1., 5., 7.]" in text
    assert "right side: y = float64 array of shape (3,) [2. , 4. , 6.5]" in text
    assert "2 of 3 elements fail; the first:" in text
    assert "x[1] = 5.0, y[1] = 4.0" in text
    assert "x[2] = 7.0, y[2] = 6.5" in text


def test_big_arrays_are_shown_by_their_first_failing_elements():
    x = pt.dmatrix("x")
    f = pytensor.function([x], Assert("sign")(x, pt.ge(x, 0).all()), mode=CVM)
    value = np.ones((30, 40))
    value[3, 5:9] = -2
    text = failure(f, value)
    assert "left side: x = float64 array of shape (30, 40)\n" in text
    assert "right side: 0 (int8)" in text
    assert "4 of 1200 elements fail" in text
    assert "x[3, 5] = -2.0\n" in text
    assert text.count("x[3, ") == 3


def test_scalar_comparison_and_broadcasting():
    x = pt.dvector("x")
    f = pytensor.function([x], Assert("too long")(x, x.size < 2), mode=CVM)
    text = failure(f, np.zeros(3))
    assert text.startswith("too long\n")
    assert "3" in text and "right side: 2 (int8)" in text

    m, r = pt.dmatrix("m"), pt.drow("r")
    g = pytensor.function([m, r], Assert("differ")(m, pt.all(pt.eq(m, r))), mode=CVM)
    assert "m[1, 0] = 5.0, r[0, 0] = 1.0" in failure(g, [[1, 2], [5, 2]], [[1, 2]])


def test_negated_and_other_conditions():
    x = pt.dvector("x")
    f = pytensor.function([x], Assert("nan")(x, ~pt.isnan(x).any()), mode=CVM)
    text = failure(f, [0.0, np.nan])
    assert "required: not (isnan(x))" in text
    assert "x[1] = nan" in text

    c = pt.bscalar("c")
    g = pytensor.function([x, c], Assert("flag")(x, c), mode=CVM)
    assert failure(g, [1.0], 0).startswith("flag\n")
    np.testing.assert_array_equal(g([1.0], 3), [1.0])

    a = pt.dscalar("a")
    h = pytensor.function([x, a], Assert("close")(x, pt.and_(a > 0, a < 1)), mode=CVM)
    assert "value: " in failure(h, [1.0], 2.0)


def test_up_to_three_operands_of_another_condition_are_shown():
    x, flags = pt.dscalar("x"), [pt.bscalar(name) for name in "abc"]
    f = pytensor.function([x, *flags], Assert("flag")(x, pt.switch(*flags)), mode=CVM)
    text = failure(f, 1.0, 1, 0, 1)
    assert [line for line in text.splitlines() if line.startswith("value: ")] == [
        "value: a = 1 (int8)",
        "value: b = 0 (int8)",
        "value: c = 1 (int8)",
    ]


def test_only_failing_conditions_are_reported():
    x = pt.dscalar("x")
    f = pytensor.function([x], Assert("range")(x, x > 0, x < 10), mode=CVM)
    text = failure(f, 12.0)
    assert "required: x < 10" in text and "required: x > 0" not in text


def test_condition_must_be_scalar():
    x = pt.dvector("x")
    with pytest.raises(TypeError, match=r"condition 1 .* not a scalar"):
        Assert()(x, x.size > 1, x > 0)


@pytest.mark.parametrize("mode", ["CVM", "FAST_COMPILE", Mode("cvm", None)])
def test_without_conditions(mode):
    x = pt.dvector("x")
    f = pytensor.function([x], Assert("never said")(x) * 2, mode=mode)
    np.testing.assert_array_equal(f([1, 2]), [2, 4])


def test_a_long_expression_is_named_by_its_beginning():
    first_measurement, second_measurement = x, y = pt.dscalars("xy")
    condition = pt.exp(first_measurement + second_measurement) * 2 < 1
    f = pytensor.function([x, y], Assert()(x, condition), mode=CVM)
    [side] = [line for line in failure(f, 1.0, 1.0).splitlines() if "left side" in line]
    label = side.partition(": ")[2].rpartition(" = ")[0]
    assert label == "exp(first_measurement + second_measur..."
    z = pt.dscalar("z")
    f = pytensor.function([z], Assert()(z, pt.exp(z) * 2 < 1), mode=CVM)
    assert "left side: exp(z) * 2 = " in failure(f, 1.0)


def test_default_message_and_values_that_are_no_variables():
    x = pt.dscalar("x")
    f = pytensor.function([x], Assert()([1.0, 2.0], x > 0), mode=CVM)
    assert failure(f, -1).startswith("Theano Assert failed!")
    np.testing.assert_array_equal(f(1), [1.0, 2.0])


def test_message_is_quoted_safely():
    x = pt.dscalar("x")
    msg = 'a "quote", a {brace}, 100% and a \\ \n second line'
    f = pytensor.function([x], Assert(msg)(x, x > 0), mode=CVM)
    assert failure(f, -1).startswith(msg)


def test_true_conditions_are_dropped():
    x, y = pt.dscalars("x", "y")
    f = pytensor.function([x], assert_op(x, 1), mode=CVM)
    assert f(5) == 5
    assert [type(n.op) for n in f.maker.fgraph.toposort()] == [DeepCopyOp]

    g = pytensor.function([x, y], assert_op(x, y > 0, 1, y < 9), mode=CVM)
    (node,) = asserts_of(g)
    assert len(node.op.conditions) == 2
    assert g(5, 1) == 5
    assert "required: y < 9" in failure(g, 1, 10)


def test_false_conditions_stay():
    x, y = pt.dscalars("x", "y")
    f = pytensor.function([x, y], assert_op(x, y, 0), mode=CVM)
    assert len(asserts_of(f)) == 1
    failure(f, 1, 1)


@pytest.mark.parametrize("tag", ["local_remove_all_assert", "unsafe"])
def test_all_asserts_are_dropped_on_request(tag):
    x, y = pt.dscalars("x", "y")
    out = assert_op(x, pt.eq(y, 0))
    assert len(asserts_of(pytensor.function([x, y], out, mode=CVM))) == 1
    f = pytensor.function([x, y], out, mode=CVM.including(tag))
    assert not asserts_of(f)
    assert f(1, 3) == 1


def test_shape_and_gradient_go_through():
    x = pt.dvector("x")
    y = Assert("positive")(x, pt.all(x > 0))
    f = pytensor.function([x], [pt.grad((y**2).sum(), x), y.shape], mode=CVM)
    grad, shape = f([1.0, 2.0])
    np.testing.assert_array_equal(grad, [2.0, 4.0])
    assert list(shape) == [2]
    # Only the length is required: the assertion is not in the way.
    g = pytensor.function([x], y.shape, mode=CVM)
    assert not asserts_of(g)


def test_operands_survive_inplace_work():
    x = pt.dvector("x")
    y = x * 2
    z = Assert("small")(y, pt.all(y < 10)) + 1
    f = pytensor.function([x], z, mode=CVM)
    np.testing.assert_array_equal(f([1.0, 2.0]), [3.0, 5.0])
    text = failure(f, [1.0, 6.0])
    assert "= 12.0" in text


def test_sparse_and_scalar_values():
    sp = pytest.importorskip("scipy.sparse")
    import pytensor.sparse as sparse

    m, c = sparse.csr_matrix("m", dtype="float64"), pt.dscalar("c")
    f = pytensor.function([m, c], Assert("c")(m, c > 0), mode=CVM)
    value = sp.csr_matrix(np.eye(2))
    assert (f(value, 1.0) != value).nnz == 0
    assert "left side: c = -1.0" in failure(f, value, -1.0)


def test_equality_and_pickling():
    x = pt.dscalar("x")
    assert Assert("a") == Assert("a") != Assert("b")
    f = pytensor.function([x], Assert("kept")(x, x > 0), mode=CVM)
    again = pickle.loads(pickle.dumps(f))
    assert again(2.0) == 2.0
    assert failure(again, -2.0).startswith("kept\nrequired: x > 0")


def test_inside_scan():
    x = pt.dvector("x")

    def step(x_t, acc):
        return acc + Assert("positive")(x_t, x_t > 0)

    out = pytensor.scan(
        step, sequences=x, outputs_info=pt.zeros(()), return_updates=False, mode="CVM"
    )
    f = pytensor.function([x], out[-1], mode=CVM)
    assert f([1.0, 2.0]) == 3.0
    assert "= -2.0" in failure(f, [1.0, -2.0])


def test_assert_shape():
    x = pt.dmatrix("x")
    f = pytensor.function([x], assert_shape(x, (None, 3)), mode=CVM)
    assert f(np.zeros((5, 3))).shape == (5, 3)
    text = failure(f, np.zeros((5, 4)))
    assert text.startswith("x must have the shape (None, 3)\n")
    assert "x.shape[1]" in text and "4 (int64)" in text
    with pytest.raises(AssertionError, match=r"x has 2 axes .*3 are required"):
        assert_shape(x, (1, 2, 3))
    assert assert_shape(x, (None, None)) is x
    y = pt.tensor("y", shape=(2, 3), dtype="float64")
    g = pytensor.function([y], assert_shape(y, (2, 3)), mode=CVM)
    assert not asserts_of(g)


def test_assert_finite():
    x = pt.dvector("x")
    f = pytensor.function([x], assert_finite(x), mode=CVM)
    np.testing.assert_array_equal(f([1.0]), [1.0])
    text = failure(f, [1.0, np.inf, np.nan, -np.inf])
    assert text.startswith("x must be finite\n")
    assert "3 of 4 elements fail" in text
    assert "x[1] = inf" in text and "x[2] = nan" in text
    i = pt.ivector("i")
    assert assert_finite(i) is i


def test_assert_in_range():
    x, high = pt.dvector("x"), pt.dscalar("high")
    f = pytensor.function([x, high], assert_in_range(x, 0, high), mode=CVM)
    np.testing.assert_array_equal(f([0.0, 2.0], 2.0), [0.0, 2.0])
    text = failure(f, [0.5, 3.0], 2.0)
    assert text.startswith("x must be >= 0 and <= high\n")
    assert "x[1] = 3.0, high = 2.0" in text
    assert "x[0] = nan" in failure(f, [np.nan], 2.0)
    with pytest.raises(ValueError, match="neither was given"):
        assert_in_range(x)


COMPARE = {"<": pt.lt, "<=": pt.le, "==": pt.eq, "!=": pt.neq}
NUMPY_COMPARE = {"<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal}


@pytest.fixture(scope="module")
def comparisons():
    x, y = pt.dmatrices("x", "y")
    return {
        sign: pytensor.function([x, y], Assert("no")(x, pt.all(compare(x, y))), mode=CVM)
        for sign, compare in COMPARE.items()
    }


@settings(max_examples=60, deadline=None)
@given(
    sign=st.sampled_from(sorted(COMPARE)),
    arrays=hnp.array_shapes(min_dims=2, max_dims=2, max_side=4).flatmap(
        lambda shape: st.tuples(
            *[
                hnp.arrays(
                    "float64",
                    shape,
                    elements=st.sampled_from([-1.0, 0.0, 1.0, 2.5, np.nan, np.inf]),
                )
            ]
            * 2
        )
    ),
)
def test_failing_elements_are_numpys(comparisons, sign, arrays):
    x, y = arrays
    broken = np.argwhere(~NUMPY_COMPARE[sign](x, y))
    if not len(broken):
        np.testing.assert_array_equal(comparisons[sign](x, y), x)
        return
    text = failure(comparisons[sign], x, y)
    assert f"{len(broken)} of {x.size} elements fail" in text
    for i, j in broken[:3]:
        assert f"x[{i}, {j}] = {x[i, j].item()!r}, y[{i}, {j}] = {y[i, j].item()!r}" in text


def test_vectorized_graphs():
    x, low = pt.dvector("x"), pt.dscalar("low")
    out = Assert("low")(x, pt.all(x > low)) * 2
    xs, lows = pt.dmatrix("xs"), pt.dvector("lows")
    f = pytensor.function([xs, low], vectorize_graph(out, {x: xs}), mode=CVM)
    np.testing.assert_array_equal(f([[1.0], [2.0]], 0.0), [[2.0], [4.0]])
    assert "x[1, 0] = -2.0" in failure(f, [[1.0], [-2.0]], 0.0)
    g = pytensor.function([x, lows], vectorize_graph(out, {low: lows}), mode=CVM)
    np.testing.assert_array_equal(g([1.0, 2.0, 3.0], [0.0, 0.5]), [[2.0, 4.0, 6.0]] * 2)
    assert failure(g, [1.0, 2.0, 3.0], [0.0, 1.5]).startswith("low\n")


def test_pdb_breakpoint(monkeypatch, capsys):
    """A breakpoint lets its values through, and what the debugger changes goes on."""
    stops = []

    def set_trace():
        monitored = sys._getframe(1).f_locals["monitored"]
        stops.append([np.array(v) for v in monitored])
        monitored[0] = monitored[0] * 10

    monkeypatch.setattr(pdb, "set_trace", set_trace)
    for other in ("pudb", "ipdb"):
        monkeypatch.setitem(sys.modules, other, None)
    x, y = pt.fmatrix("x"), pt.fscalar("y")
    product = pt.dot(x - y, (x - y).T)
    op = PdbBreakpoint("too high")
    x_out, y_out, product_out = op(pt.gt(product.sum(), 1000), x, y, product)
    assert op.connection_pattern(product_out.owner) == [
        [False, False, False],
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    f = pytensor.function([x, y], [x_out, y_out, pt.grad(x_out.sum(), x)], mode=CVM)
    value = np.arange(9).reshape(3, 3).astype("float32")
    same, scalar, grad = f(value, 1)
    np.testing.assert_array_equal(same, value)
    assert scalar == 1 and not stops
    np.testing.assert_array_equal(grad, np.ones((3, 3)))
    changed, *_ = f(value * 10, 1)
    np.testing.assert_array_equal(changed, value * 100)
    np.testing.assert_array_equal(stops[0][0], value * 10)
    assert "Conditional breakpoint 'too high' activated" in capsys.readouterr().out
    shapes = pytensor.function([x, y], [x_out.shape, product_out.shape], mode=CVM)
    assert [list(s) for s in shapes(value, 1)] == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    "message, shown", [("m" * 30, "m" * 30), ("m" * 31, "m" * 27 + "...")], ids=["30", "31"]
)
def test_a_graph_shows_the_beginning_of_a_long_message(message, shown):
    assert str(Assert(message)) == f"Assert{{msg={shown!r}}}"
