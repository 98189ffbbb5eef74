"""``compare(reference="as written")``: what rewriting changes, and which rewrite."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from theanoguard import GuardMode, compare, track_provenance
from theanoguard._compare.problem import make_problem
from theanoguard._compare.rewriting import Judge
from theanoguard._pytensor import config

pytestmark = pytest.mark.on_33

PLAIN = Mode("py", "fast_run")  # the rewrites of C, without compiling C

x, y, s = pt.dvector("x"), pt.dvector("y"), pt.dscalar("s")
m, rows, i = pt.dmatrix("m"), pt.dmatrix("rows"), pt.lvector("i")
k, j = pt.lscalar("k"), pt.lscalar("j")
b, z, c = pt.bscalar("b"), pt.zscalar("z"), pt.scalar("c", dtype="bool")

ARRAY = np.arange(3.0)
NAN = np.array([1.0, np.nan])

# Graph, inputs, kind of the change, and the rewrites whose exclusion avoids it.
CHANGED = {
    "x // 1": (s // 1, {s: 1.5}, "value changed", {"local_div_by_one"}),
    "read after write": (
        pt.set_subtensor(m[i], rows)[i],
        {m: np.zeros((3, 2)), i: [1, 1], rows: [[1.0, 2], [3, 4]]},
        "value changed",
        {"local_read_of_write_same_indices"},
    ),
    "write outside": (
        pt.set_subtensor(m[i], rows)[i],
        {m: np.zeros((3, 2)), i: [1, 7], rows: [[1.0, 2], [3, 4]]},
        "error lost",
        {"local_read_of_write_same_indices"},
    ),
    "x[:k][-1]": (x[:k][-1], {x: ARRAY, k: 0}, "error lost", {"local_subtensor_merge_integer"}),
    "prod": (
        pt.prod(x * s),
        {x: np.full(400, 1e-3), s: 1e3},
        "bad value made",
        {"local_sum_prod_of_mul_or_div"},
    ),
    "eq(x, x)": (
        pt.switch(pt.eq(x, x), x, 0),
        {x: NAN},
        "bad value made",
        {"local_useless_switch", "local_useless_elemwise"},
    ),
    "x <= x": (
        pt.switch(x <= x, x, 0),
        {x: NAN},
        "bad value made",
        {"local_useless_elemwise_comparison", "local_useless_switch"},
    ),
    "x / x": (x / x, {x: [1.0, 0.0]}, "bad value lost", {"local_mul_canonizer"}),
    "alloc": (pt.alloc(s, k).sum(), {s: 1.0, k: -2}, "error lost", {"local_careduce_of_alloc"}),
    "inv(inv(A))": (
        pt.linalg.inv(pt.linalg.inv(m)),
        {m: np.ones((2, 2))},
        "error lost",
        {"inv_of_inv"},
    ),
    "powers of an int8": (
        s**2 * s**b,
        {s: 1.001, b: np.int8(127)},
        "value changed",
        {"local_mul_pow_to_pow_add"},
    ),
    "a negative int8": (abs(-(b / 2)), {b: np.int8(-128)}, "value changed", {"local_neg_to_mul"}),
    "sqrt(sqr(z))": (pt.sqrt(pt.sqr(z)), {z: -1 + 1j}, "value changed", {"local_sqrt_sqr"}),
    "log(exp(z))": (pt.log(pt.exp(z)), {z: 1 + 4j}, "value changed", {"local_exp_log"}),
    "a bool": (
        pt.log(1 - pt.sigmoid(c)),
        {c: True},
        "digits lost",
        {"log1p_neg_sigmoid"},
    ),
    "a negative power": (
        k**-1,
        {k: 0},
        "error lost",
        {"local_pow_to_nested_squaring", "local_pow_specialize"},
    ),
    "a sum of nothing": (
        pt.alloc(s, k, j).sum(),
        {s: np.nan, k: 0, j: 0},
        "bad value made",
        {"local_careduce_of_alloc"},
    ),
    "a part of alloc": (
        pt.alloc(s, k)[-2:],
        {s: 1.0, k: -2},
        "error lost",
        {"local_subtensor_of_alloc", "extract_diag_lift_pass"},
    ),
    "in a loop": (
        pytensor.scan(lambda a, t: (t + a) // 1, [x], [s], return_updates=False),
        {x: [0.5, 0.25, 0.5], s: 1.0},
        "value changed",
        {"local_div_by_one"},
    ),
    "x[k:][j] * 0": (
        x[k:][j] * 0,
        {x: ARRAY, k: 1, j: 5},
        "error lost",
        {"local_mul_canonizer", "local_mul_zero", "local_useless_fill"},
    ),
    "sizes": (
        pt.set_subtensor(x[k:], y)[k:],
        {x: ARRAY, k: 1, y: np.ones(5)},
        "error lost",
        {"local_read_of_write_same_indices"},
    ),
    "specify_shape": (pt.specify_shape(x, 3).shape, {x: np.arange(4.0)}, "error lost", set()),
    "log(k / 2)": (pt.log(s / 2), {s: 2.000001}, "digits lost", {"local_log_div"}),
}


def judged(graph, inputs, mode=PLAIN):
    [result] = compare(graph, inputs, mode, reference="as written").modes.values()
    assert result.not_run is None
    return result


@pytest.mark.parametrize("name", CHANGED)
def test_known_changes(name):
    if name == "alloc" and pytensor.__version__.startswith("3.0"):
        pytest.skip("PyTensor 3.0 does not have the rewrite")
    graph, inputs, kind, rewrites = CHANGED[name]
    result = judged(graph, inputs)
    [change] = result.changes
    if pytensor.__version__.startswith("3.0") and kind == "digits lost":
        kind = "value changed"  # (it takes the logarithm of 2 in float32)
    assert change.kind == kind
    assert change.is_fault is result.parted is (kind != "bad value lost")
    assert change.rewrites and (not rewrites or rewrites & set(change.rewrites))
    assert change.source is not None and change.source.file == __file__
    # What the text proposes avoids the change.
    avoiding = eval(change.excluding, {"mode": PLAIN})
    assert not judged(graph, inputs, avoiding).changes


SAME = {
    "stabilized": (pt.log(1 + pt.exp(x)), {x: [1.0, 800.0]}),
    "log1p": (pt.log(1 + x), {x: [1e-18, 1.0]}),
    "softmax": (pt.log(pt.special.softmax(x)), {x: [0.0, 1000.0]}),
    "sums": (pt.sum(x * s) / s, {x: np.linspace(0.1, 1, 7), s: 3.0}),
    "product": (pt.dot(m, x), {m: np.arange(9.0).reshape(3, 3), x: ARRAY}),
    "both raise": (x[k:][j], {x: ARRAY, k: 1, j: 5}),
    "nan given": (x + 1, {x: NAN}),
    "integers": (i * 2 // 2, {i: [1, 2]}),
}


@pytest.mark.parametrize("name", SAME)
def test_no_change(name):
    graph, inputs = SAME[name]
    assert judged(graph, inputs).changes == ()


def test_discontinuities_blame_nobody():
    third = x * (1 / pt.exp(s)) * pt.exp(s)  # 1 within rounding
    for graph in (pt.floor(third), pt.switch(third < x, 0.0, 1.0), pt.argmax(-abs(third - x))):
        changes = [
            change
            for value in np.linspace(1, 50, 50)
            for change in judged(graph, {x: np.arange(1.0, 9.0), s: value / 7}).changes
        ]
        assert changes and all(change.kind == "discontinuity" for change in changes)
        assert not any(change.is_fault or change.rewrites for change in changes)
        assert all(change.operation for change in changes)


def test_a_function_and_its_updates():
    w = pytensor.shared(1.5, name="w")
    with track_provenance():
        f = pytensor.function([s], s * 2, updates={w: w // 1 + s}, mode=PLAIN)
    found = compare(f, [1.0], reference="as written")
    [change] = found["compiled"].changes
    assert change.output == "the new value of w" and not found.agree
    assert change.operation == "w // 1"
    assert w.get_value() == 1.5
    text = str(found)
    assert "value changed: the new value of w" in text
    assert 'by local_div_by_one; mode.excluding("local_div_by_one") avoids it' in text


def test_what_is_drawn_is_exact():
    z = pytensor.shared(np.random.default_rng(1), name="rng")
    normal = pt.random.normal(0, 1, size=(4,), rng=z)
    normal = normal[1] if isinstance(normal, list | tuple) else normal
    assert judged((normal * s + 1e8) - 1e8, {s: 1e-3}).changes == ()


def test_the_first_variable_that_changed_is_named():
    first = s // 1
    [change] = judged(pt.exp(first + 2) * 3, {s: 1.5}).changes
    assert change.operation == "s // 1"
    assert "first = s // 1" in change.source.text


def test_a_guarded_function_is_compared_without_its_guard(needs_cxx):
    f = pytensor.function([x, s], pt.prod(x * s), mode=GuardMode(backend="c"))
    found = compare(f, [np.full(400, 1e-3), 1e3], reference="as written")
    [change] = found["compiled"].changes
    assert change.kind == "bad value made"


def test_an_error_that_rewriting_makes():
    problem = make_problem(pt.log(x), {x: ARRAY + 1})
    [change] = Judge(problem, problem.reference()).changes(ValueError("no such thing"))
    assert (change.kind, change.compiled) == ("error made", "ValueError: no such thing")


def test_precisions_rewrite_nothing():
    with pytest.raises(ValueError, match="rewrites nothing"):
        compare(x + 1, {x: ARRAY}, "float32", reference="as written")


def test_default_modes(needs_cxx):
    with config.change_flags(mode="CVM"):
        found = compare(s // 1, {s: 1.5}, reference="as written")
    assert list(found.modes) == ["compiled"] and not found.agree
    assert re.search(r"compiled +differs", found.table())


def test_who_is_wrong_is_said_of_an_integer():
    u = pt.scalar("u", dtype="uint8")
    [change] = compare(u**2, {u: 255}, "CVM", reference="as written")["CVM"].changes
    assert change.kind == "value changed"
    assert (change.as_written, change.compiled) == ("-511", "1")
    assert change.exact == f"{np.power(np.uint8(255), np.int8(2))} by NumPy's dtype rules"


def test_a_wrong_number_in_the_place_of_nan_is_a_fault():
    graph = pt.exp(s) / pt.exp(s)
    judge = Judge(*_problem_and_reference(graph, {s: 1000.0}))
    assert judge.changes({"output 0": np.array(1.0)}) == []
    assert [c.kind for c in judge.changes({"output 0": np.array(2.0)})] == ["value changed"]


def test_rounding_in_the_place_of_nan_is_no_fault():
    """The exact value is so small that each number is far from it in relative terms."""
    t = pt.dscalar("t")
    judge = Judge(*_problem_and_reference(pt.log(pt.exp(s)) - s + t, {s: 1000.0, t: 1e-30}))
    assert judge.changes({"output 0": np.array(1e-13)}) == []
    assert [c.kind for c in judge.changes({"output 0": np.array(1e-9)})] == ["value changed"]


def _problem_and_reference(graph, given):
    problem = make_problem(graph, given)
    return problem, problem.reference()
