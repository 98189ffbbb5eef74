"""``precision``: how many digits are right, and which operation lost the others."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import precision, track_provenance
from theanoguard._compare.problem import make_problem
from theanoguard._precision.evaluations import True64, Written, logged

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.precision import CORES, evaluated, lost_by, named, nets, planted, planted_twins

pytestmark = pytest.mark.on_33

PLAIN = Mode("py", "fast_run")
PROGRAMS = planted()

x, s = pt.dvector("x"), pt.dscalar("s")
e = pt.fscalar("e")


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_cores(core):
    found = evaluated(core.formula, core.at)
    assert set(named(found)) & set(core.lost_by)
    assert evaluated(core.twin, core.at).is_precise


@pytest.mark.parametrize("name", PROGRAMS)
def test_planted_cancellations_in_float32(name):
    found = precision(*PROGRAMS[name])
    assert not found.is_precise
    assert named(found) == [lost_by(name)]
    assert all(loss.source is not None for loss in found.losses)


@pytest.mark.parametrize("name", planted_twins())
def test_twins_of_planted_programs_lose_nothing(name):
    assert precision(*planted_twins()[name]).is_precise


@pytest.mark.parametrize("number", [0, 7, 19])
def test_nets_lose_nothing(number):
    graph, given = nets(number + 1)[number]
    assert precision(graph, given).is_precise


def test_line_and_operands():
    line = inspect.currentframe().f_lineno + 1
    variance = (x**2).mean() - x.mean() ** 2
    found = precision(variance * 2, {x: np.array([1e8, 1e8 + 1, 1e8 + 2])})
    [loss] = found.losses
    assert loss.operation == "sub" and loss.source.line == line
    assert loss.exact == "0.666666666667"
    assert len(loss.operands) == 2
    text = str(found)
    assert text.startswith("output 0: 0.0 of 15.7 digits: ")
    assert "lost by sub" in text and "exactly 1.33333333333" in text


@pytest.mark.parametrize("number", [pt.log(2), pt.sqrt(2.0), pt.gammaln(np.int16(7))])
def test_operand_of_lower_precision_is_named(number):
    """PyTensor computes with small integers in float32, as in PyMC's half-normal density."""
    assert number.type.dtype == "float32"
    [loss] = precision(pt.log(s) * number, {s: 3.0}).losses
    assert [value.endswith(" (float32)") for _, value in loss.operands] == [False, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inside_of_a_loop_the_step_is_named(dtype):
    start, c = pt.scalar("start", dtype=dtype), pt.scalar("c", dtype=dtype)

    def step(t, state, c):
        gain = pt.switch(pt.eq(t, 3), (state + c) - state, c)
        return state + gain * 1e3

    states = pytensor.scan(
        lambda t, state, c: step(t, state, c).astype(dtype),
        sequences=[pt.arange(6)],
        outputs_info=[start],
        non_sequences=[c],
        return_updates=False,
    )
    small = 1e-4 if dtype == "float32" else 1e-9
    given = {start: np.asarray(100, dtype), c: np.asarray(small * 1.2345, dtype)}
    found = precision(states[-1] - start, given)
    assert {loss.steps for loss in found.losses} == {(3,)}
    assert {loss.operation for loss in found.losses} <= {"sub", "add"}


def test_matrices():
    a, b = pt.dmatrix("a"), pt.dvector("b")
    n = 8
    hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1)
    found = precision(pt.linalg.solve(a, b), {a: hilbert, b: np.ones(n)})
    assert named(found) == ["solve"]
    sound = precision(pt.linalg.solve(a, b), {a: np.eye(n) + 0.1 * hilbert, b: np.ones(n)})
    assert sound.is_precise and not named(sound)


def test_what_the_inputs_do_not_determine_is_no_fault():
    rng = np.random.default_rng(0)
    data, weights, y = pt.dmatrix("data"), pt.dvector("weights"), pt.dvector("y")
    values = rng.normal(size=(20, 3))
    given = {data: values, weights: [1.0, 2.0, 3.0], y: values @ [1.0, 2.0, 3.0]}
    residual = y - data @ weights
    loss = pt.sqr(residual).sum()
    for graph in (residual, loss, pytensor.grad(loss, weights)):
        assert precision(graph, given).is_precise
    found = precision(residual, given)["output 0"]
    assert found.is_sensitive and not found.is_fault


def test_a_function_keeps_its_shared_variables():
    w = pytensor.shared(np.array([1e8, 1e8 + 1]), name="w")
    with track_provenance():
        f = pytensor.function(
            [s], (w**2).mean() - w.mean() ** 2 + s * 0, updates={w: w + s}, mode=PLAIN
        )
    found = precision(f, 1.0)
    assert not found.is_precise and [loss.operation for loss in found.losses] == ["sub"]
    assert found["the new value of w"].right > 15
    assert w.get_value().tolist() == [1e8, 1e8 + 1]


def test_digits_that_a_rewrite_loses():
    with track_provenance():
        f = pytensor.function([s], pt.log(s / 2), mode=PLAIN)
    found = precision(f, 2.000001)
    [loss] = found.losses
    assert found["output 0"].right < 11 and loss.rewrites == ("local_log_div",)
    assert 'use mode.excluding("local_log_div")' in str(found)


def test_float64_in_float32s_place_takes_the_same_branches():
    y = pt.switch(e * 3 > 1, e, -e)
    problem = make_problem(y, {e: np.float32(1 / 3)})
    given = dict(zip(problem.fgraph.inputs, problem.values, strict=True))
    log = logged(Written(problem.fgraph, given), problem.fgraph.outputs)
    [true], _ = True64(problem.fgraph, log).values(given, problem.fgraph.outputs)
    assert true.dtype == "float64" and abs(true) == np.float64(np.float32(1 / 3))


def test_limits_are_said():
    found = precision((pt.exp(x) - 1).sum(), {x: np.full(1000, 1e-9)}, work=100.0)
    assert not found.outputs and "limit of work or time" in str(found)


def test_a_fused_operation_is_not_placed_at_the_call_of_precision():
    """Of a function whose graph as it was written is gone."""
    s = pt.dscalar("s")
    function = pytensor.function([s], s**3 - 3 * s**2 + 3 * s - 1, mode="FAST_RUN")
    line = inspect.currentframe().f_lineno + 1
    [output] = precision(function, 1.00001).outputs.values()
    assert output.is_fault
    assert all(loss.source is None or loss.source.line < line for loss in output.losses)


def test_operands_are_named_as_the_user_writes_them():
    """Of results of a loop, whose own text is long."""

    def step(a, total, squares):
        return total + a, squares + a**2

    zero, v = pt.as_tensor(np.float64(0)), pt.dvector("v")
    s, q = pytensor.scan(step, sequences=[v], outputs_info=[zero, zero], return_updates=False)
    var = q[-1] / 3 - (s[-1] / 3) ** 2
    [output] = precision(var, {v: 1e8 + np.arange(3.0)}).outputs.values()
    [loss] = output.losses
    assert loss.expression == "var"
    assert [name for name, _ in loss.operands] == ["q[-1] / 3", "(s[-1] / 3) ** 2"]


def test_a_lower_bound_is_called_one():
    """What double-double arithmetic leaves open is no measurement: the error may be smaller."""
    v = pt.dvector("v")
    found = precision(pt.exp(pt.log(v)).sum(), {v: np.linspace(1, 2, 50)})["output 0"]
    assert not found.is_fault
    assert str(found).startswith("at least ") == found.at_least == (found.right < found.of)
    lost = precision(pt.exp(v) - 1, {v: np.array([1e-10])})["output 0"]
    assert not lost.at_least and not str(lost).startswith("at least")


def test_what_is_no_number_has_no_digits():
    v = pt.dvector("v")
    found = precision([pt.log(v), pt.sqrt(v[:1])], {v: np.array([-1.0, 0.0, 2.0])})
    some, none = found.outputs.values()
    assert str(some).endswith("15.7 digits; 2 of 3 elements are NaN or Inf")
    assert (some.n_not_finite, some.right) == (2, some.of)
    assert str(none) == "no digits: nan" and np.isnan(none.right)
    assert found.is_precise
    lost = precision(pt.log(1 - pt.exp(-v)), {v: np.array([-1.0, 1e-20])})["output 0"]
    assert (lost.index, lost.right, lost.n_not_finite) == ((1,), 0.0, 1)
    assert lost.is_fault


def test_integers_were_not_rounded():
    """Rump's example: at its exact integers the digits are lost, and not the inputs'."""
    a, b = pt.dscalars("a", "b")
    rump = 333.75 * b**6 + a**2 * (11 * a**2 * b**2 - b**6 - 121 * b**4 - 2) + 5.5 * b**8
    found = precision(rump + a / (2 * b), {a: 77617.0, b: 33096.0})["output 0"]
    assert found.is_fault and not found.is_sensitive
    assert found.exact.startswith("-0.8273960599")


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        (lambda v: pt.exp(v) - 1, [1e-10, 1.0]),
        (lambda v: pt.sqrt(v + 1) - pt.sqrt(v), [1e15, 2.0]),
        (lambda v: (v**2).mean() - v.mean() ** 2, [1e8, 1e8 + 1, 1e8 + 2]),
        (lambda v: 1 - pt.cos(v), [1e-8]),
        (lambda v: pt.log(1 + v) * 3, [1e-13]),
    ],
)
def test_the_remedy_of_a_loss_has_the_digits(formula, values):
    v = pt.dvector("v")
    given = {v: np.array(values)}
    [loss] = precision(formula(v), given).losses
    assert f"write {loss.remedy} in place of {loss.instead_of}" in str(loss)
    old, new = (
        eval(code, {**vars(pt), "pt": pt, "np": np, "v": v})  # noqa: S307
        for code in (loss.instead_of, loss.remedy)
    )
    right = precision(new, given)
    assert right.is_precise, right
    np.testing.assert_allclose(new.eval(given), theanoguard.exact(old, given).mid, rtol=1e-12)
