"""The fuzzer's reference runs what the backends run, and knows what depends on rounding."""

from dataclasses import replace

import numpy as np
import playing
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend
from playing import named
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import OpWithCoreShape
from reference import Reference, Rules, Verdict, linked_graph

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.skipif(backend() != "c", reason="the reference is the same")
LAST_EXP = np.log(np.finfo("float64").max)  # of this the last finite exponential is taken


def judged(inputs, outputs, values, **rules):
    """Return the verdict on a call, and what holds however operations round."""
    mode = GuardMode(True, True, True, optimizer="fast_run")
    fn = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    reference = Reference(fn, Rules(**rules), "py")
    return reference.judge(values), reference.judge_rounded()


def elements(verdict, which):
    """Return the numbers of the elements that are certain, or possible, in any finding."""
    masks = [getattr(finding, which) for finding in verdict.findings]
    return {int(i) for mask in masks for i in np.flatnonzero(mask)}


def test_an_element_at_a_limit_is_possible_only():
    x = pt.dvector("x")
    verdict, rounded = judged([x], [pt.exp(x)], [np.array([LAST_EXP, 1.0, 800.0])], big=False)
    assert elements(verdict, "certain") <= {0, 2}
    assert elements(rounded, "certain") == {2}
    assert elements(rounded, "possible") == {0}


@pytest.mark.parametrize("limit, n_certain", [(1e10, 0), (0.999e10, 1), (1.001e10, 0)])
def test_a_big_value_at_the_threshold_is_possible_only(limit, n_certain):
    x = pt.dvector("x")
    _, rounded = judged([x], [x / 0.3], [np.array([1.0, 3e9])], limit=limit)
    assert len(elements(rounded, "certain")) == n_certain
    assert len(elements(rounded, "possible")) == (limit == 1e10)


def test_what_is_fused_rounds_in_each_step():
    """A standard deviation of equal numbers is 0, or what rounding makes of it."""
    x = pt.dmatrix("x")
    spread = pt.sqrt(pt.sqr(x - x.mean(axis=0)).mean(axis=0))
    equal = np.full((3, 2), 0.1)
    equal[0, 1] = 5.0
    _, rounded = judged([x], [1 / spread], [equal], big=False)
    assert elements(rounded, "certain") == set()
    _, rounded = judged([x], [1 / spread], [np.full((1, 2), 0.1)], big=False)
    assert elements(rounded, "certain") == {0, 1}  # of one number there is no sum to round


@pytest.mark.parametrize(
    "make, value",
    [
        (pt.log, -1.0),
        (pt.log, 0.0),
        (lambda x: 1 / x, 0.0),
        (pt.sqrt, -1e-3),
        (pt.exp, 720.0),
        (lambda x: pt.log(x - x.max()), 1.0),
        (lambda x: pt.log(pt.switch(x > 2, x, 0)), 1.0),
        (lambda x: pt.tanh(pt.arccosh(x) + 1), 0.9),
        (lambda x: pt.log(pt.floor(x)), 0.5),
        (lambda x: x**2 * 3, 1e200),
    ],
)
def test_a_fault_away_from_limits_stays_certain(make, value):
    x = pt.dvector("x")
    verdict, rounded = judged([x], [make(x)], [np.array([3.0, 2.5, value])], big=False)
    assert 2 in elements(verdict, "certain")
    assert elements(rounded, "certain") == elements(verdict, "certain")


def test_the_code_of_the_backend_has_a_say(monkeypatch):
    """On Numba ``1 / sqrt(inf)`` is NaN in single precision: an estimate, and a correction."""
    x = pt.fvector("x")
    mode = GuardMode(True, True, False, check_inputs=False, optimizer="fast_run")
    fn = pytensor.function([x], pt.tanh(1 / pt.sqrt(x)), mode=mode)
    reference = Reference(fn, Rules(big=False, inputs=False), "py", "numba")
    monkeypatch.setattr(reference, "backend_kernel", lambda node: lambda ins: [ins[0] * 0])
    assert not reference.judge([np.array([1, np.inf], "float32")]).findings
    assert not reference.judge_rounded().findings
    [node] = fn.maker.fgraph.apply_nodes
    found = reference.judge_rounded([str(node)])
    assert elements(found, "certain") == set()
    assert elements(found, "possible") == {1}


def test_a_node_runs_as_the_backend_compiles_it():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.cumsum(x), mode=GuardMode(True, True, False))
    reference = Reference(fn, Rules(), "py", "vm")
    [node] = fn.maker.fgraph.apply_nodes
    [result] = reference.backend_kernel(node)([np.ones(3)])
    assert result.tolist() == [1.0, 2.0, 3.0]


def test_errors_may_point_all_the_same_way():
    """A maximum of many numbers at a limit lies above it, unless all of them err downwards."""
    x = pt.dmatrix("x")
    limit = np.full((200, 1), 3e9)
    _, rounded = judged([x], [(x / 0.3).max(axis=0)], [limit])
    assert elements(rounded, "certain") == set()
    assert len(rounded.findings) >= 1


def test_one_row_is_written_as_numba_writes_it():
    """PyTensor's own code refuses to write a row at one index, where it has one element."""
    x, y, k = pt.dvector("x"), pt.dvector("y"), pt.lvector("k")
    graph = pt.inc_subtensor(x[k], y)
    values = [np.zeros(4), np.array([2.0]), np.array([1])]
    verdict, _ = judged([x, y, k], [graph, pt.log(graph)], values, big=False)
    assert elements(verdict, "certain") == {0, 2, 3}


def test_a_guard_that_rounds_otherwise_is_not_at_fault(monkeypatch):
    """The element at the limit decides nothing; what is away from it still does."""
    x = pt.dvector("x")
    mode = GuardMode(True, True, False, optimizer="fast_run")
    fn = pytensor.function([x], pt.exp(x), mode=mode)
    play = playing.Play.__new__(playing.Play)
    play.settings, play.rules = {}, Rules(big=False)
    play.reference = Reference(fn, play.rules, "py")
    for last, is_miss in ((LAST_EXP, False), (800.0, True)):
        play.reference.judge([np.array([last, 1.0])])
        complaints = list(play.complaints(play.reference.judge_rounded(), [], None, ""))
        assert [what for what, _ in complaints] == ["miss"] * is_miss
    with pytest.raises(GuardError) as caught:
        fn(np.array([800.0, 1.0]))
    play.reference.judge([np.array([LAST_EXP, 1.0])])
    verdict = play.reference.judge_rounded()
    assert not list(play.complaints(verdict, [], caught.value.event, ""))
    play.reference.judge([np.array([1.0, 1.0])])
    verdict = play.reference.judge_rounded()
    complaints = list(play.complaints(verdict, [], caught.value.event, ""))
    assert [what for what, _ in complaints] == ["false report"]


def test_what_the_unguarded_function_gives_as_well_is_no_false_report():
    """XLA makes a NaN of some operations together, each of which gives a finite number alone."""
    play = playing.Play.__new__(playing.Play)
    play.rules, play.backend, play.twins, play.arrays = Rules(), "jax", {}, [np.ones(2)]
    sound, bad = np.ones(2), np.array([1.0, np.nan])
    for plain, reference, expected in (
        (bad, sound, True),
        (sound, sound, False),
        (bad, bad, False),
    ):
        play.plain = lambda x, result=plain: [result]
        verdict = Verdict(outputs=[[sound], [reference]])
        assert play.computes_otherwise(verdict, {"nan"}) == expected
        assert not play.computes_otherwise(verdict, {"inf"})


@pytest.mark.parametrize("make", [pt.random.exponential, pt.linalg.cholesky])
def test_what_numba_compiles_as_one_piece_does_not_hold_itself(make):
    """Rewritten for Numba as the graph of another function is, it would be wrapped once more."""
    fgraph = FunctionGraph(outputs=[make(pt.tensor3("x"))])
    get_mode("NUMBA").excluding("inplace").optimizer(fgraph)
    [node] = [n for n in fgraph.apply_nodes if isinstance(n.op, OpWithCoreShape)]
    inner = linked_graph(node.op, node, "numba").apply_nodes
    assert inner
    assert not any(isinstance(n.op, OpWithCoreShape) for n in inner)


def test_a_product_with_a_boolean_is_left_open_on_jax():
    """XLA computes it as a choice, and so makes no NaN of an Inf that nobody looks at."""
    pytest.importorskip("jax")
    x = pt.dvector("x")
    mode = GuardMode(backend="jax", optimizer="fast_run", check_inputs=False, when="now")
    fn = pytensor.function([x], x * (x < 9), mode=mode)
    values = [np.array([np.inf, 1.0])]
    assert fn(*values)[0].tolist() == 0.0
    reference = Reference(fn, Rules(inputs=False), "py", "jax")
    assert [f.is_certain for f in reference.judge(values).findings] == [False]


def test_a_product_that_is_added_may_not_be_rounded():
    """XLA computes ``a * b - c`` with one rounding, even where ``c`` is that product, rounded."""
    x, y = pt.fvector("x"), pt.fvector("y")
    product = x * y
    values = [np.array([-0.46, -0.5], "float32"), np.array([-1e10, -1e10], "float32")]
    mode = GuardMode(True, "any", True, optimizer="fast_run")
    largest = pt.maximum(product, x)
    outputs = pt.exp(product - largest) + 1
    fn = pytensor.function([x, y], outputs, mode=mode.excluding("fusion"))
    play = playing.Play.__new__(playing.Play)
    play.settings, play.rules = {}, Rules(origin=False)
    play.reference = reference = Reference(fn, play.rules, "py")
    assert not reference.judge(values).findings
    rounded = reference.judge_rounded()
    assert elements(rounded, "certain") == set()
    assert elements(rounded, "possible") == {0}  # the second product is exact
    with pytest.raises(GuardError) as caught:
        fn(np.array([-1e35, -0.5], "float32"), values[1])
    for node in fn.maker.fgraph.apply_nodes:
        if str(node) in named(rounded, [], None):  # a second run may give the last of them alone
            event = replace(caught.value.event, node=str(node), role="node")
            assert not list(play.complaints(rounded, [], event, ""))


def test_sums_keep_their_bits_on_jax():
    """PyTensor's sums for JAX keep the type in which they add up; so does what follows."""
    pytest.importorskip("jax")
    x = pt.fmatrix("x")
    mode = GuardMode(True, True, False, backend="jax", optimizer="fast_run")
    fn = pytensor.function([x], pt.var(x, axis=1), mode=mode)
    values = [np.array([[1e30, 2e30, 4e30]], "float32")]
    [result] = fn(*values)
    reference = Reference(fn, Rules(big=False), "py", "jax")
    first = [str(f.name) for f in reference.judge(values).first()]
    assert len(first) == 1
    verdict = reference.judge_rounded(first)
    assert [f for f in verdict.first() if f.name == first[0]] == [] or np.isinf(result)


def test_what_jax_computes_by_a_function_of_its_own_has_no_steps():
    """PyTensor subtracts the maximum in a softmax, and JAX uses its own softmax."""
    pytest.importorskip("jax")
    x = pt.dmatrix("x")
    mode = GuardMode(True, True, True, backend="jax", optimizer="fast_run")
    fn = pytensor.function([x], pt.special.softmax(x, axis=1), mode=mode)
    reference = Reference(fn, Rules(), "py", "jax")
    value = np.array([[1e10, -5.0], [1.0, 2.0]])
    fn(value)
    assert not reference.judge([value]).findings
    verdict = reference.judge([np.array([[np.nan, 1.0], [1.0, 2.0]])])
    assert [f.role for f in verdict.findings] == ["input"]


def test_a_result_that_a_truth_value_spoils_is_left_open():
    """With judge="result" an Inf that an error only chooses need not be reported."""
    x, y = pt.dvector("x"), pt.dvector("y")
    mode = GuardMode(True, True, True, judge="result", optimizer="fast_run")
    mode = mode.excluding("fusion")  # (fused, nothing shows what a condition reads)
    chosen = pt.switch(x > 3, np.inf, y)
    for outputs, must in ((chosen, False), ([chosen, x * 2], True)):
        fn = pytensor.function([x, y], outputs, mode=mode)
        play = playing.Play.__new__(playing.Play)
        play.settings, play.rules = {"judge": "result"}, Rules()
        play.reference = Reference(fn, play.rules, "py")
        verdict = play.reference.judge([np.array([1e160, 1.0]), np.ones(2)])
        assert bool(play.must_report(verdict)) == must
        assert play.may_report(verdict)
        verdict = play.reference.judge([np.ones(2), np.ones(2)])
        assert not play.must_report(verdict)
        assert not play.may_report(verdict)


def test_results_agree_as_far_as_their_type_goes():
    x = pt.fvector("x")
    one, other = [np.array([1.0, 2.0])], [np.array([1.0 + 1e-6, 2.0])]
    assert not playing.alike(one, other)
    assert playing.alike(playing.typed(one, [x]), playing.typed(other, [x]))


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_a_sum_decides_what_overflows(turned):
    """The third sum overflows in each order, the second in some, and the first in none."""
    x, y = pt.fmatrix("x"), pt.fvector("y")
    terms = np.array([[1, 1, -1], [3, 3, -3], [3, 3, 3]], "float32") * 1e38
    graph = pt.dot(y, x) if turned else pt.dot(x, y)
    values = [terms.T if turned else terms, np.ones(3, "float32")]
    _, rounded = judged([x, y], [graph], values, big=False)
    assert elements(rounded, "certain") == {2}
    assert elements(rounded, "possible") == {1}
    _, rounded = judged([x], [x.sum(axis=1)], [terms], big=False)
    assert elements(rounded, "certain") == {2}  # PyTensor adds up in double precision


@pytest.mark.parametrize("linker, n_failures", [("vm", 1), ("cvm", 2)])
def test_the_python_machine_need_not_keep_the_bits_of_the_call_after_an_error(linker, n_failures):
    """PyTensor's virtual machine in Python then computes into the arrays of the failed call."""
    x = pt.dvector("x")
    play = playing.Play.__new__(playing.Play)
    play.guarded = pytensor.function([x], x * 2, mode=GuardMode(linker=linker))
    play.plain = lambda x: [np.nextafter(2 * x, 10)]
    play.backend, play.settings, play.shared = "c", {"linker": linker}, {}
    play.mutable, play.arrays, play.ended_early = False, [np.ones(2)], {play.guarded}
    failures = []
    play.fail = lambda *args: failures.append(args)
    for _ in range(2):  # the first call after an error, and the next
        play.compare_with_plain(play.arrays, [play.guarded(*play.arrays)])
    assert len(failures) == n_failures
