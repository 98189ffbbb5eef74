"""``GuardMode(history=True)``: since when the numbers are unlike those before, and going back."""

import gc
import json
import pickle
import sys
import threading
import tracemalloc
import warnings
import weakref
from contextlib import nullcontext

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode, bisect, inspect_graph
from theanoguard.cli.main import main
from theanoguard.guard.c import build, numpy_kernel
from theanoguard.guard.history import recording as recording_module
from theanoguard.guard.history.table import FIGURES
from theanoguard.log import read_log
from theanoguard.records import Explanation, Recording
from theanoguard.training import recording_of, watching

BACKENDS = ["c", "numba"]


def training(backend="c", **settings):
    """A network that fits a sine, its batches, and its shared variables by name."""
    rng = np.random.default_rng(0)
    x, y = pt.dmatrix("x"), pt.dvector("y")
    w = pytensor.shared(rng.normal(size=(5, 4)), name="W1")
    v = pytensor.shared(rng.normal(size=4), name="v")
    rate = pytensor.shared(0.05, name="rate")
    cost = pt.sqr(pt.dot(pt.tanh(pt.dot(x, w)), v) - y).mean()
    cost.name = "cost"
    updates = [(p, p - rate * g) for p, g in zip([w, v], pytensor.grad(cost, [w, v]), strict=True)]
    mode = GuardMode(history=True, backend=backend, **settings)
    f = pytensor.function([x, y], cost, updates=updates, mode=mode)
    return f, {"W1": w, "v": v, "rate": rate}


def batches(n, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        inputs = rng.normal(size=(32, 5))
        yield inputs, np.sin(inputs.sum(1))


def failing(f, n=200, change=lambda step, x, y: None):
    with pytest.raises(GuardError) as caught:
        for step, (x, y) in enumerate(batches(n), start=1):
            change(step, x, y)
            f(x, y)
    return caught.value


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_raised_learning_rate_is_named_with_its_call(backend, tmp_path, capsys):
    log = tmp_path / "events.jsonl"
    f, shared = training(backend, log=log)

    def change(step, x, y):
        if step == 70:
            shared["rate"].set_value(5.0)

    error = failing(f, change=change)
    since = error.explanation.since
    assert (since.call, since.kind, since.name, since.most, since.value) == (
        70,
        "set",
        "rate",
        0.05,
        5.0,
    )
    assert error.event.call > 70
    said = "Since call 70: rate was set before this call."
    assert said in str(error) and said in inspect_graph(error)._repr_html_()
    plain = json.loads(json.dumps(error.explanation.to_plain()))
    assert Explanation.from_plain(plain).since == since
    (entry,) = read_log(log).entries
    assert entry.explanation.since == since
    assert main(["report", str(log)]) == 0 and said in capsys.readouterr().out


@pytest.mark.parametrize("value", [1e7, -1e9])
def test_one_element_of_a_batch_is_named(value):
    f, _ = training()

    def change(step, x, y):
        if step == 70:
            y[3] = value

    since = failing(f, change=change).explanation.since
    assert (since.call, since.kind, since.name) == (70, "input", "y")
    assert since.value == pytest.approx(abs(value), rel=0.07)
    assert since.most <= 1


@pytest.mark.parametrize("size", [5, 5000])
def test_a_missing_value_is_named_where_nothing_fails(size):
    x, w = pt.dvector("x"), pytensor.shared(np.zeros(size), name="w")
    f = pytensor.function([x], updates={w: w + x}, mode=GuardMode(action="record", history=True))
    rows = np.random.default_rng(0).normal(size=(30, size))
    rows[20, 3] = np.nan
    for row in rows:
        f(row)
    since = recording_of(f).since()
    assert (since.call, since.kind, since.name) == (21, "input", "x")
    said = "Since call 21: the input x has a NaN or an Inf, and none was seen in it before."
    assert str(since) == said


def test_the_parameter_that_grows_is_named():
    w = pytensor.shared(np.ones(300), name="w")
    u = pytensor.shared(np.ones(300), name="u")
    x = pt.dscalar("x")
    grow = pytensor.shared(0.0, name="grow")
    f = pytensor.function(
        [x],
        [],
        updates=[
            (w, w * pt.switch(grow > 60, 1.7, 1) + 0.01 * x),
            (u, u + 0.01 * x),
            (grow, grow + 1),
        ],
        mode=GuardMode(history=True),
    )
    rng = np.random.default_rng(3)
    with pytest.raises(GuardError) as caught:
        for _ in range(200):
            f(rng.normal())
    since = caught.value.explanation.since
    assert (since.kind, since.name) == ("update", "w")
    assert abs(since.call - 62) <= 1
    assert since.rate == pytest.approx(1.7, rel=0.05)
    assert "the updates of w grow 1.7-fold a call" in str(caught.value).replace("\n", " ")


def test_a_state_that_has_grown_from_the_first_call_on():
    h = pytensor.shared(np.zeros(5), name="h")
    f = pytensor.function([], pt.exp(h).sum(), updates={h: h + 0.3}, mode=GuardMode(history=True))
    with pytest.raises(GuardError) as caught:
        for _ in range(300):
            f()
    since = caught.value.explanation.since
    assert (since.call, since.name, since.kind) == (1, "h", "value")
    assert since.step == pytest.approx(0.3 * np.sqrt(5), rel=0.01)
    assert "h grows by 0.671 a call" in str(since)


def test_nothing_is_said_where_nothing_stands_out():
    f, _ = training()
    for x, y in batches(100):
        f(x, y)
    assert recording_of(f).since() is None
    g = pytensor.function([t := pt.dvector("t")], pt.log(t), mode=GuardMode(history=True))
    with pytest.raises(GuardError) as caught:
        g([1.0, -1.0])
    assert caught.value.explanation.since is None
    assert "Since" not in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_results_are_those_without_a_record(backend):
    f, own = training(backend)
    plain = {k: v.get_value() for k, v in own.items()}
    results = [f(x, y) for x, y in batches(30)]
    after = {k: v.get_value() for k, v in own.items()}
    for k, v in own.items():
        v.set_value(plain[k])
    x, y = pt.dmatrix("x"), pt.dvector("y")
    w, v, rate = own["W1"], own["v"], own["rate"]
    cost = pt.sqr(pt.dot(pt.tanh(pt.dot(x, w)), v) - y).mean()
    updates = [(p, p - rate * g) for p, g in zip([w, v], pytensor.grad(cost, [w, v]), strict=True)]
    g = pytensor.function([x, y], cost, updates=updates, mode=GuardMode(backend=backend))
    for expected, (x, y) in zip(results, batches(30), strict=True):
        assert g(x, y).tobytes() == expected.tobytes()
    for k, v in own.items():
        assert v.get_value().tobytes() == after[k].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rewind_gives_the_same_bits_again(backend):
    generator = pytensor.shared(np.random.default_rng(3), name="generator")
    w = pytensor.shared(np.zeros(3), name="w")
    x = pt.dvector("x")
    state, noise = pt.random.normal(size=3, rng=generator).owner.outputs
    f = pytensor.function(
        [x],
        w.sum(),
        updates={w: 0.9 * w + x + noise, generator: state},
        mode=GuardMode(history=True, snapshots=4, backend=backend),
    )
    inputs = np.random.default_rng(0).normal(size=(50, 3))
    inputs[-1] = np.nan
    results = []
    with pytest.raises(GuardError) as caught:
        for row in inputs:
            results.append(f(row))
    start = caught.value.rewind(40)
    assert 1 < start <= 40
    again = [f(row) for row in inputs[start - 1 : -1]]
    assert [a.tobytes() for a in again] == [r.tobytes() for r in results[start - 1 :]]


def test_copies_share_what_no_bit_has_changed_in():
    values = {"data": np.array([np.nan, 0.0]), "w": np.zeros(2), "flat": np.array(2.0)}
    shared = {name: pytensor.shared(value, name=name) for name, value in values.items()}
    f = pytensor.function([], list(shared.values()), mode=Mode("py", None))
    recording = Recording(f, snapshots=4)

    def call():
        recording.begin((), {})
        recording.end(f())

    call()
    shared["data"].get_value(borrow=True)[1] = -0.0
    call()
    shared["w"].set_value(np.zeros(3))
    call()
    first, second, third = (copy.values for copy in recording.copies)
    same = {name: (first[v] is second[v], second[v] is third[v]) for name, v in shared.items()}
    assert same == {"data": (False, True), "w": (True, False), "flat": (True, True)}
    recording.rewind(1)
    for name, v in shared.items():
        assert v.get_value().tobytes() == values[name].tobytes()
        v.get_value(borrow=True)[...] = 7
    recording.rewind(2)
    assert shared["data"].get_value().tobytes() == np.array([np.nan, -0.0]).tobytes()
    assert shared["flat"].get_value() == 2


@pytest.mark.parametrize("history", [True, False])
def test_a_call_inside_of_an_action_is_part_of_its_call(history):
    seen = []

    def action(event):
        seen.append(event.call)
        if len(seen) < 3:
            seen.append(f([3.0, 4.0]).tolist())

    w, x = pytensor.shared(np.zeros(2), name="w"), pt.dvector("x")
    mode = GuardMode(history=history, action=action, optimizer=None)
    f = pytensor.function([x], 2 * x, updates={w: w + 1}, mode=mode)
    with nullcontext() if history else watching(f) as watch:
        for value in (1.0, 2.0, np.nan, 1.0):
            f([value, 1.0])
    assert seen == [3, [6.0, 8.0]]
    recording = recording_of(f) if history else watch.recording
    calls = [1, 2, 3, 5] if history else [1, 2, 3, 4]
    assert recording.calls == calls[-1] and not recording.failed
    assert recording.series("x", "largest") == (calls, [1, 2, 1, 1])
    kept = dict(zip(*recording.series("w", "largest"), strict=True))
    assert list(kept.values()) == [1, 2, 3, w.get_value().max()]


def test_rewind_without_copies_says_what_to_do():
    f, _ = training()
    x, y = next(batches(1))
    with pytest.raises(GuardError) as caught:
        f(x * np.nan, y)
    with pytest.raises(ValueError, match=r"GuardMode\(history=True, snapshots="):
        caught.value.rewind(1)


TYPES = ["float64", "float32", "int16", "uint64", "bool", "complex128"]


def arguments(rng):
    """What a call may get: arrays of any size, type and layout, lists, and what is refused."""
    for _ in range(60):
        dtype, size = rng.choice(TYPES), int(rng.choice([0, 1, 2, 511, 513, 2000]))
        values = rng.integers(0, 9, size=2 * size).astype(dtype)
        yield [(values[:size],), (values[::-2],), (values[:size].tolist(),)][rng.integers(3)], {}
    x = np.ones(3)
    yield from [((), {}), ((x, x), {}), ((x,) * 500, {}), (("a",), {}), ((None,), {})]
    yield from [(([[1.0], [1.0, 2.0]],), {}), ((x,), {"y": x}), ((), {"x": x}), ((10**400,), {})]
    yield from [((np.ones((2, 2)),), {}), ((np.array([None]),), {}), ((), {"x": "a"})]


@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_a_call_gets_it_does_as_without_a_record(backend):
    x = pt.dvector("x")
    twins = [
        pytensor.function(
            [x],
            [x * 2, x.sum()],
            updates={trace: pt.concatenate([trace, x[:3]])},
            mode=GuardMode(history=history, backend=backend),
        )
        for history in (False, True)
        for trace in [pytensor.shared(np.zeros(1), name="trace")]
    ]
    made = refused = 0
    for args, kwargs in arguments(np.random.default_rng(7)):
        found = []
        for f in twins:
            try:
                found.append([r.tobytes() for r in f(*args, **kwargs)])
            except Exception as error:
                found.append(type(error))
        assert found[0] == found[1]
        made, refused = made + isinstance(found[0], list), refused + isinstance(found[0], type)
    assert made > 30 and refused > 10
    recording = recording_of(twins[1])
    assert recording.since() is None
    with pytest.raises(GuardError) as caught:
        twins[1](np.array([np.nan]))
    assert caught.value.event.call == recording.calls == made + 1


def test_sound_calls_have_no_blame():
    """Sizes that change, data of any sign that are set anew, a rate that is raised early."""
    x, lr = pt.dmatrix("x"), pytensor.shared(1e-4, name="lr")
    data, trace = (pytensor.shared(np.zeros(n), name=f"of {n}") for n in (3, 1))
    w = pytensor.shared(np.ones(3), name="w")
    cost = pt.sqr(pt.dot(x, w) - 1 - data[0]).mean()
    f = pytensor.function(
        [x],
        cost,
        updates={w: w - lr * pytensor.grad(cost, w), trace: pt.concatenate([trace, cost[None]])},
        mode=GuardMode(history=True),
    )
    rng = np.random.default_rng(5)
    for call in range(1, 301):
        data.set_value(rng.normal() * np.ones(rng.integers(1, 50)))
        if call == 12:
            lr.set_value(0.01)
        f(rng.normal(size=(2000 if call in (100, 250) else 30, 3)))
    assert recording_of(f).since() is None
    with pytest.raises(GuardError) as caught:
        f(np.full((2000, 3), np.nan))
    since = caught.value.explanation.since
    assert (since.call, since.kind, since.name) == (301, "input", "x")


@pytest.mark.parametrize("before, sets", [(20, 1), (3, 1), (20, 2)])
def test_a_value_that_was_never_set_before_is_named_in_the_call_that_fails(before, sets):
    keep = pytensor.shared(0.5, name="keep")
    recording, call = recorded([keep * 1.0])
    for i in range(before):
        if sets == 2 and i == 5:
            keep.set_value(0.6)
        call()
    keep.set_value(0.0)
    recording.begin((), {})
    found = (
        None
        if before == 3 or sets == 2
        else (
            "Since call 21: keep was set before this call.  Its norm is 0.0, and was 0.5 at most."
        )
    )
    said = recording.since()
    assert (said and str(said)) == found


def test_a_sign_that_turned_is_named():
    w, scale = pytensor.shared(np.ones(3), name="w"), pytensor.shared(2.0, name="scale")
    f = pytensor.function([], pt.log(scale).sum(), updates={w: w}, mode=GuardMode(history=True))
    for _ in range(20):
        f()
    scale.set_value(-2.0)
    with pytest.raises(GuardError) as caught:
        f()
    assert str(caught.value.explanation.since) == (
        "Since call 21: scale was set before this call, to another sign.  Its largest element is "
        "-2.0, and was 2.0."
    )


def test_two_variables_of_one_name_are_told_apart():
    x, y = pt.dscalar("x"), pt.dscalar("x")
    f = pytensor.function([x, y], x + y, mode=GuardMode(history=True))
    f(1.0, 2.0)
    recording = recording_of(f)
    assert recording.series("x")[1] == [1.0] and recording.series("x (input 1)")[1] == [2.0]


def test_the_memory_of_many_arrays_is_bounded(needs_cxx):  # (NumPy takes a minute)
    shared = [pytensor.shared(np.ones(200), name=f"w{i}") for i in range(800)]
    mode = Mode("py", None)
    f = pytensor.function([], shared[:9], updates={v: v for v in shared}, mode=mode)
    recording = Recording(f)
    tracemalloc.start()
    for _ in range(300):
        recording.begin((), {})
        recording.end([v.get_value(borrow=True) for v in shared[:9]])
    assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    tracemalloc.stop()
    calls = recording.series("w0")[0]
    assert calls[0] == 1 and calls[-64:] == list(range(237, 301))


def test_old_calls_are_thinned_and_memory_is_bounded():
    w = pytensor.shared(np.zeros(3), name="w")
    f = pytensor.function([], updates={w: w + 1.0}, mode=GuardMode(history=True))
    for _ in range(5000):
        f()
    calls, norms = recording_of(f).series("w")
    assert calls[-64:] == list(range(4937, 5001))
    assert calls[0] == 1 and len(calls) < 1300
    assert norms == pytest.approx([c * np.sqrt(3) for c in calls])


def test_signs_have_evidence_and_can_be_left_out():
    w = pytensor.shared(np.ones(3), name="w")
    still = pytensor.shared(np.ones(3), name="still")
    h = pytensor.shared(600.0, name="h")

    def named(name, variable):
        variable.name = name
        return variable

    f = pytensor.function(
        [],
        [(w * 0).sum(), pt.exp(h), named("flat", pt.tanh(30 * w)), named("not", pt.tanh(still))],
        updates={w: w * 1.5, still: still * 1.0, h: h + 0.5},
        mode=GuardMode(big_is_error=False, history=True),
    )
    for _ in range(70):
        f()
    found = {(s.rule, s.name): s.text for s in recording_of(f).signs()}
    assert {("overflow", "w"), ("large updates", "w"), ("unchanged", "still")} <= found.keys()
    assert {name for rule, name in found if rule == "saturated"} == {"flat"}
    assert found["overflow in exp", "h"].startswith("it is 74.8 below the overflow of its exp")
    assert "grows by 0.5 a call: 150 calls are left" in found["overflow in exp", "h"]
    for rule, name in found:
        assert (rule, name) not in {(s.rule, s.name) for s in recording_of(f).signs(skip=rule)}
    assert "unchanged" not in {s.rule for s in recording_of(f).signs(skip="unchanged")}
    with pytest.raises(ValueError, match="unchanged"):
        recording_of(f).signs(skip="unchangd")


def test_each_rule_speaks_where_it_holds_and_nowhere_else():
    x, step, p = pt.dvector("x"), pt.dvector("step"), pytensor.shared(np.zeros(40), name="p")
    recording, call = recorded([x * 1], updates={p: p + step}, inputs=[x, step])
    flat = np.linspace(1, 2, 40)
    cases = {  # by rule, what an output is in call i, and by what a parameter moves
        "": (lambda i, noise: noise, lambda i, noise: noise),
        "exploding updates": (lambda i, noise: noise, lambda i, noise: noise * 1e-3 ** (i < 50)),
        "vanishing updates": (lambda i, noise: noise, lambda i, noise: noise * 1e-5 ** (i > 50)),
        "large updates": (lambda i, noise: noise, lambda i, noise: noise + 8 * (-1) ** i),
        "unchanged": (lambda i, noise: noise, lambda i, noise: 0 * noise),
        "dead": (lambda i, noise: noise * (np.arange(40) < 2), lambda i, noise: noise),
        "collapsed": (lambda i, noise: i + noise * 1e-8 ** (i > 50), lambda i, noise: noise),
        "still": (lambda i, noise: flat, lambda i, noise: noise),
    }
    for rule, (output, moves) in cases.items():
        rng = np.random.default_rng(0)
        p.set_value(np.full(40, 10.0))
        recording.clear()
        for i in range(80):
            call(output(i, rng.normal(size=40)), moves(i, rng.normal(size=40) / 10))
        assert {s.rule for s in recording.signs()} == {rule} - {""}
        assert recording.signs(skip=rule) == [] if rule else True


def test_a_function_without_a_record_says_how_to_have_one():
    f = pytensor.function([x := pt.dscalar("x")], x * 2, mode=GuardMode())
    with pytest.raises(TypeError, match=r"GuardMode\(history=True\)"):
        recording_of(f)


def test_a_recorded_function_can_be_pickled():
    f, _ = training()
    g = pickle.loads(pickle.dumps(f))
    x, y = next(batches(1))
    assert g(x, y) == f(x, y)


@pytest.mark.parametrize("limit", [1, 2, 3, 63, 64, 65, 1000])
def test_bisect_finds_the_first_call(limit):
    assert bisect(lambda n: n, lambda n: n >= limit) == limit


def test_bisect_ends_where_the_condition_never_holds():
    assert bisect(lambda n: n, lambda n: False, at_most=100) is None


ARRAYS = [
    np.arange(1000.0).reshape(10, 100),
    np.arange(1000.0).reshape(10, 100).T,
    np.arange(1000.0)[::-3],
    np.array([1.0, np.nan, -np.inf, 0.0]),
    np.arange(-5, 300, dtype="int16"),
    np.array(3.5, "float32"),
    np.zeros((0, 4)),
    np.array([True, False]),
    np.linspace(-7, 2, 5000, dtype="float32"),
    np.full(3, np.nan),
    np.full(3, 1e308),
    np.ma.array([1.0, 2.0, np.inf], mask=[False, False, True]),
    np.arange(6.0).reshape(2, 3).view(np.matrix),
    np.frombuffer(bytes(range(99)), "f4", 20, offset=3),
    np.where(np.arange(900) == 700, -np.inf, 1.0),
    np.array([2**63 + 5, 1], "uint64"),
    np.array([1.0, 2.0], ">f8"),
    np.ones(3, "complex128"),
    np.ones(3, "float16"),
    np.array([None, "a"]),
    "no array",
    None,
]


def test_both_kernels_take_the_same_elements():
    kernel = build.load()
    if kernel is None:
        pytest.skip("without a compiler there is one kernel")
    first = (np.arange(len(ARRAYS) + 1) * 64).astype("int64")
    before = np.random.default_rng(0).normal(size=first[-1])
    before[first[1:] - 1] = [np.size(a) - i % 3 // 2 for i, a in enumerate(ARRAYS)]
    found = []
    for sample in (kernel.sample, numpy_kernel.sample):
        out, figures = np.zeros(first[-1]), np.zeros((len(ARRAYS), len(FIGURES)))
        sample(ARRAYS, first, out, figures, before, len(ARRAYS) // 2)
        found.append((out, figures))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    rough = np.array(FIGURES) == "magnitude"  # (the C code reads the top bits)
    np.testing.assert_allclose(found[0][1][:, ~rough], found[1][1][:, ~rough])
    np.testing.assert_allclose(found[0][1][:, rough], found[1][1][:, rough], rtol=0.07)


# -- the function stays what it is


def recorded(outputs=(), updates=None, inputs=()):
    """A record of a function, and what calls the function with it, without compiling."""
    f = pytensor.function(list(inputs), list(outputs), updates=updates, mode=Mode("py", None))
    recording = Recording(f)

    def call(*args):
        recording.begin(args, {})
        recording.end(f(*args))

    return recording, call


def after(*calls):
    """What is said of an input in the last of some calls, in which the function fails."""
    x = pt.dvector("x")
    recording, call = recorded([x.sum()], inputs=[x])
    for array in calls[:-1]:
        call(array)
    recording.begin((calls[-1],), {})
    return str(recording.since())


def test_sentences_about_inputs_are_true():
    labels = [np.arange(30.0) % 10] * 40
    since = "Since call 41: the input x "
    assert after(*labels, labels[0] - 1) == (
        f"{since}goes down to -1.0.  In the calls before, it was 0.0 at least, and usually 0.0."
    )
    assert after(*labels, labels[0] + 1) == (
        f"{since}reaches 10.0.  In the calls before, it was 9.0 at most, and usually 9.0."
    )
    spikes = [10.0 * (np.arange(100) == i) for i in range(40)]
    assert after(*spikes, np.full(100, 10.0)) == (
        f"{since}reaches a root mean square of 10.0.  In the calls before, it was 1.0 at most, and "
        "usually 1.0."
    )
    assert after(*spikes, np.full(100, -100.0)).startswith(f"{since}reaches a magnitude of 100.0.")
    assert after(*spikes, np.zeros(100)) == (
        f"{since}goes down to a magnitude of 0.0.  In the calls before, it was 10.0 at least, and "
        "usually 10.0."
    )
    assert after(*spikes, np.ones(1)) == f"{since}has the size 1.  Before, it had the size 100."
    assert after(*spikes[:20], np.ones(1), *spikes[20:], np.ones(1)) == "None"


@pytest.mark.parametrize("start", [0, 30])
def test_a_rate_that_grows_is_named_unless_it_always_grew(start):
    w, rate = pytensor.shared(np.zeros(4), name="w"), pytensor.shared(0.1, name="rate")
    x = pt.dvector("x")
    recording, call = recorded(updates={w: w + rate * x}, inputs=[x])
    rng = np.random.default_rng(0)
    for i in range(60):
        if i >= start:
            rate.set_value(rate.get_value() * 1.2)
        call(rng.normal(size=4))
    recording.begin((np.ones(4),), {})
    since = recording.since()
    if start:
        assert (since.call, since.kind, since.name) == (31, "value", "rate")
        assert since.rate == pytest.approx(1.2, rel=0.01)
        assert str(since).startswith(
            "Since call 31: rate grows 1.193-fold a call.  Its norm is 23."
        )
    else:
        assert since.name == "w"


@pytest.mark.parametrize("factor, blamed", [(10.0, False), (1000.0, True)])
def test_one_update_far_above_all_before_is_named_where_nothing_fails(factor, blamed):
    k, w = pytensor.shared(0.0, name="k"), pytensor.shared(np.ones(4), name="w")
    size = pt.switch(pt.eq(k, 50), factor, 1) * (2 + pt.cos(k))
    recording, call = recorded(updates={w: w + size * pt.cos(k), k: k + 1})
    for _ in range(100):
        call()
    since = recording.since()
    assert (since is not None) == blamed
    if blamed:
        moved = dict(zip(*recording.series("w", "moved"), strict=True))
        assert (since.call, since.kind, since.name, since.value) == (51, "update", "w", moved[51])
        usual = np.median([moved[call] for call in range(35, 51)])
        assert since.usual == pytest.approx(usual)
        assert str(since) == (
            "Since call 51: the update of w has the norm 5720.0.  Until then it was 1.97."
        )


def test_calls_that_failed_before_are_no_blame():
    f, shared = training()
    said = []
    for step, (x, y) in enumerate(batches(200), start=1):
        if step == 70:
            shared["rate"].set_value(5.0)
        try:
            f(x * np.nan if step in (30, 40) else x, y)
        except GuardError as error:
            said.append(error.explanation.since)
    assert [(s.call, s.name) for s in said[:3]] == [(30, "x"), (40, "x"), (70, "rate")]


def test_a_variable_of_which_a_part_is_read_is_not_called_unchanged():
    i, w = pt.lscalar("i"), pytensor.shared(np.ones(10_000), name="w")
    recording, call = recorded(updates={w: pt.set_subtensor(w[i], 0)}, inputs=[i])
    for k in range(80):
        call(100 * k)
    (sign,) = [s for s in recording.signs() if s.rule == "unchanged"]
    assert sign.text == "no call of the last 64 has changed any of its sampled elements"


def test_a_variable_that_is_empty_at_first():
    w = pytensor.shared(np.zeros(0), name="w")
    recording, call = recorded(updates={w: w * 1.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(40):
            if k == 20:
                w.set_value(np.ones(3))
            call()
        recording.begin((), {})
        assert recording.since().name == "w"


def test_an_interrupted_call_is_forgotten(monkeypatch):
    mode = GuardMode(history=True, snapshots=8)
    f = pytensor.function([x := pt.dvector("x")], pt.log(x), mode=mode)

    def interrupt(value):
        raise KeyboardInterrupt

    for call in range(1, 200):
        if call in (1, 7, 129):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(recording_module, "_array", interrupt)
                f([1.0])
        f([1.0])
    recording = recording_of(f)
    assert recording.series("x")[0] == list(range(1, 200)) and not recording.failed
    assert [c.call for c in recording.copies] == list(range(1, 200, 32))


def test_a_thread_that_draws_sees_one_state():
    w = pytensor.shared(np.ones(3), name="w")
    recording, call = recorded(updates={w: w + 1})
    ended, wrong = threading.Event(), []
    call()

    def draw():
        while not ended.is_set():
            calls = recording.table().calls
            if not (np.diff(calls) > 0).all():
                wrong.append(calls)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(3000):
        call()
    ended.set()
    thread.join()
    sys.setswitchinterval(interval)
    assert not wrong


def test_a_recorded_function_is_freed_with_its_last_reference():
    f = pytensor.function([x := pt.dvector("x")], pt.log(x), mode=GuardMode(history=True))
    f([1.0])
    known = weakref.ref(f)
    gc.disable()
    try:
        del f
        assert known() is None
    finally:
        gc.enable()


class Locked:
    """A tracker that cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def log(self, call, values):
        pass

    tell = log


def test_an_error_can_be_pickled_whatever_the_record_has():
    mode = GuardMode(history=True, snapshots=1)
    f = pytensor.function([x := pt.dvector("x")], pt.log(x), mode=mode)
    recording_of(f).send_to(Locked())
    f([1.0])
    with pytest.raises(GuardError) as caught:
        f([-1.0])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and caught.value.rewind(2) == 1
    with pytest.raises(ValueError, match="this error has no copies"):
        again.rewind(2)


def test_a_copy_has_a_record_of_what_it_returns():
    w, other = pytensor.shared(np.ones(3), name="w"), pytensor.shared(np.zeros(3), name="other")
    mode = GuardMode(history=True, snapshots=1, optimizer=None)
    f = pytensor.function([], pt.log(w), updates={w: w}, mode=mode)
    f()
    for copied, name in ((f.copy(), "w"), (f.copy(swap={w: other}), "other")):
        with np.errstate(all="ignore"):
            other.set_value(np.ones(3))
            copied()
        recording = recording_of(copied)
        assert (
            list(recording.lines("norm"))
            == [name, "output 0"]
            == [s.name for s in recording.table().series]
        )
        assert recording.calls == recording_of(f).calls == 1
        other.set_value(np.full(3, 5.0))
        assert recording.rewind(1) == 1
        assert other.get_value().tolist() == [1 if name == "other" else 5] * 3


def test_an_error_that_comes_late_has_the_record_of_its_call():
    pytest.importorskip("jax")
    x, w = pt.dvector("x"), pytensor.shared(np.ones(3), name="w")
    mode = GuardMode(history=True, snapshots=1, backend="jax", when="later")
    f = pytensor.function([x], updates={w: w + x}, mode=mode)
    with pytest.raises(GuardError) as caught:
        for call in range(1, 40):
            f(np.full(3, np.nan if call == 12 else 1000.0 if call == 13 else 1.0))
    since = caught.value.explanation.since
    assert (since.call, since.last, since.name, since.kind) == (12, 12, "x", "input")
    assert caught.value.rewind(5) == 1 and w.get_value().tolist() == [1, 1, 1]
