"""Guarded functions behave as functions do: results, copies, pickles, threads, processes."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, guarded, plain_mode, trip
from pytensor import scan, shared
from pytensor.link.vm import VMLinker

from theanoguard import GuardError, GuardMode, events_of
from theanoguard.guard.c import build as kernel

GOOD, ZERO = np.ones(3), np.array([1.0, 0.0, 1.0])


def guard_mode(**settings):
    return GuardMode(**ALL, optimizer="fast_run", **settings)


# ---------------------------------------------------------------- results


def mlp(dtype):
    rng = np.random.default_rng(0)
    x, y = pt.matrix("x", dtype=dtype), pt.lvector("y")
    w = shared(rng.normal(size=(6, 4)).astype(dtype), name="w")
    b = shared(np.zeros(4, dtype), name="b")
    p = pt.special.softmax(pt.tanh(pt.dot(x, w) + b), axis=1)
    cost = -pt.log(p[pt.arange(y.shape[0]), y]).mean()
    gw, gb = pt.grad(cost, [w, b])
    rate = np.asarray(0.1, dtype)
    calls = [(rng.normal(size=(5, 6)).astype(dtype), rng.integers(0, 4, 5)) for _ in range(4)]
    return [x, y], [cost, p], {w: w - rate * gw, b: b - rate * gb}, calls


def recurrent(dtype):
    rng = np.random.default_rng(0)
    x = pt.matrix("x", dtype=dtype)
    w = shared((0.3 * rng.normal(size=(3, 3))).astype(dtype), name="w")
    h, _ = scan(
        lambda v, s, w: pt.tanh(pt.dot(s, w) + v),
        sequences=[x],
        outputs_info=[pt.zeros((3,), dtype=dtype)],
        non_sequences=[w],
    )
    cost = (h**2).sum()
    calls = [(rng.normal(size=(n, 3)).astype(dtype),) for n in (4, 7, 2)]
    return [x], [cost, h], {w: w - np.asarray(0.01, dtype) * pt.grad(cost, w)}, calls


def sampling(dtype):
    source = shared(np.random.default_rng(1))
    x = pt.vector("x", dtype=dtype)
    next_rng, draw = pt.random.normal(x, 1.0, rng=source, dtype=dtype).owner.outputs
    total = shared(np.zeros(5, dtype))
    calls = [(np.arange(5).astype(dtype) * i,) for i in range(4)]
    return (
        [x],
        [draw, pt.cumsum(draw), pt.sort(draw)],
        {source: next_rng, total: total + draw},
        calls,
    )


# PyTensor 3.0 compiles the bodies of OpFromGraph, when first called, with the default mode.  With
# fast arithmetic Numba sums in another order where a check cuts what it compiles as one piece.
@pytensor.config.change_flags(
    numba__fastmath=False, **({"mode": "CVM"} if pytensor.config.cxx else {})
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", [mlp, recurrent, sampling], ids=lambda f: f.__name__)
@pytest.mark.not_on(jax="XLA rounds by what it fuses, which checks change")
def test_results_are_bit_identical(model, dtype, has_cxx):
    if model is mlp and not has_cxx and pytensor.__version__.startswith("3.0"):
        pytest.skip("without a compiler, PyTensor 3.0 runs the bodies of OpFromGraph with Numba")
    results = []
    # PyTensor 3.0 runs an OpFromGraph (the softmax) under the default mode, whatever the mode of
    # the graph around it: with Numba, which rounds differently.  The guard takes the C backend.
    with pytensor.config.change_flags(linker="cvm" if pytensor.config.cxx else "vm"):
        for mode in (guard_mode(), plain_mode()):
            inputs, outputs, updates, calls = model(dtype)
            fn = pytensor.function(inputs, outputs, updates=updates, mode=mode)
            values = [value for arguments in calls for value in fn(*arguments)]
            states = (v.get_value() for v in updates)
            values += [v for v in states if not isinstance(v, np.random.Generator)]
            results.append([(v.dtype, v.shape, v.tobytes()) for v in map(np.asarray, values)])
    assert results[0] == results[1]


# ---------------------------------------------------------------- ways to call


def counting(**settings):
    """log(x) with two states: n counts, total sums."""
    n, total = shared(0, name="n"), shared(np.zeros(3), name="total")
    x = pt.dvector("x")
    fn = pytensor.function(
        [x],
        [pt.log(x), x * total],
        updates={n: n + 1, total: total + x},
        mode=guard_mode(**settings),
    )
    return fn, n, total


@pytest.fixture
def counted():
    return counting()


@pytest.mark.parametrize("allow_gc", [True, False])
@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_garbage_collection(allow_gc, linker, c_backend):
    x = pt.dvector("x")
    mode = guard_mode(linker=linker if allow_gc else f"{linker}_nogc")
    fn = pytensor.function([x], pt.exp(pt.dot(x, x)) + pt.log(x).sum(), mode=mode)
    assert fn.vm.allow_gc is allow_gc
    for _ in range(3):
        assert np.isclose(fn(GOOD), np.exp(3))
        assert trip(fn, ZERO).kind == "inf"
    fn.free()
    assert np.isclose(fn(GOOD), np.exp(3))


def test_profiling(c_backend):
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x).sum(), mode=guard_mode(), profile=True)
    for _ in range(3):
        fn(GOOD)
    trip(fn, ZERO)
    assert fn.profile.fct_callcount == 3
    assert sum(fn.profile.apply_callcount.values()) >= 3
    with open(os.devnull, "w") as nowhere:
        fn.profile.summary(file=nowhere)


def test_trust_input():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x), mode=guard_mode(), trust_input=True)
    assert list(fn(GOOD)) == [0, 0, 0]
    assert trip(fn, ZERO).first_index == (1,)
    assert trip(fn, np.array([1.0, np.nan, np.nan])[::-1]).first_index == (0,)


def test_wrong_arguments_are_pytensors_errors(counted):
    fn, n, _ = counted
    with pytest.raises(TypeError):
        fn(np.ones((2, 2)))
    with pytest.raises(TypeError, match="[Mm]issing"):
        fn()
    assert n.get_value() == 0
    fn(GOOD)
    assert n.get_value() == 1


@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_a_subset_of_the_outputs(linker, request, c_backend):
    if linker == "cvm":
        request.getfixturevalue("needs_cxx")
    x, y = pt.dvector("x"), pt.dvector("y")
    n = shared(0)
    partial = VMLinker(allow_partial_eval=True, use_cloop=linker == "cvm")
    mode = guard_mode(linker=partial)
    fn = pytensor.function([x, y], [pt.log(x), pt.sqrt(y)], updates={n: n + 1}, mode=mode)

    def subset(which, *values):
        for cell, value in zip(fn.input_storage, values, strict=False):
            cell.storage[0] = np.asarray(value)
        return fn.vm(output_subset=which)

    assert np.array_equal(subset([0], GOOD, -GOOD)[0], np.zeros(3))
    assert np.array_equal(subset([1], ZERO, GOOD)[1], GOOD)
    assert n.get_value() == 2
    for which, values in (([0], (ZERO, GOOD)), ([1], (GOOD, -GOOD)), ([0, 1], (GOOD, -GOOD))):
        with pytest.raises(GuardError):
            subset(which, *values)
    assert n.get_value() == 2


# ---------------------------------------------------------------- copies


def test_a_copy(counted):
    fn, n, total = counted
    copied = fn.copy(name="the copy")
    copied(GOOD)
    fn(GOOD)
    assert n.get_value() == 2  # they share their state
    assert trip(copied, ZERO).function == "the copy"
    assert (len(events_of(copied)), len(events_of(fn))) == (1, 0)
    assert trip(fn, ZERO).call == 2
    assert n.get_value() == 2
    assert np.array_equal(total.get_value(), 2 * GOOD)


def test_a_copy_with_other_state(counted):
    fn, n, total = counted
    other_n, other_total = shared(10, name="n2"), shared(np.ones(3), name="total2")
    copied = fn.copy(swap={n: other_n, total: other_total})
    copied(GOOD)
    assert (int(n.get_value()), int(other_n.get_value())) == (0, 11)
    before = other_total.get_value()
    trip(copied, ZERO)
    assert np.array_equal(other_total.get_value(), before)
    assert int(other_n.get_value()) == 11
    other_total.set_value(np.array([np.nan, 0.0, 0.0]))
    assert trip(copied, GOOD).role == "shared"
    fn(GOOD)


@pytest.mark.filterwarnings("ignore:Shared variable")
def test_a_copy_without_updates(counted):
    fn, n, _ = counted
    copied = fn.copy(delete_updates=True)
    trip(copied, ZERO)
    assert n.get_value() == 0


@pytest.mark.parametrize("share_memory", [True, False])
@pytest.mark.parametrize("linker", ["cvm", "cvm_nogc"])
def test_a_copy_that_shares_memory(share_memory, linker, c_backend):
    fn, n, _ = counting(linker=linker)
    copied = fn.copy(share_memory=share_memory)
    for f in (fn, copied, copied, fn):
        before = n.get_value()
        assert np.array_equal(f(GOOD)[0], np.zeros(3))
        trip(f, ZERO)
        assert n.get_value() == before + 1
    assert len(events_of(fn)) == len(events_of(copied)) == 2


@pytest.mark.not_on(jax="PyTensor cannot make a deep copy where an array is JAX's")
def test_deepcopy(counted):
    fn, n, _ = counted
    fn(GOOD)
    other = copy.deepcopy(fn)
    other(GOOD)
    assert n.get_value() == 1
    assert trip(other, ZERO).kind == "inf"


def test_a_copy_of_a_function_with_a_loop():
    x = pt.dvector("x")
    h = shared(0.0, name="h")
    states, _ = scan(lambda v, s: s * 0.5 + pt.log(v + 0 * s), sequences=[x], outputs_info=[h])
    fn = pytensor.function([x], states, updates={h: states[-1]}, mode=guard_mode())
    copied = fn.copy()
    for f in (fn, copied, fn):
        f(GOOD)
        event = trip(f, ZERO)
        assert [step.step for step in event.path] == [1]
    assert (len(events_of(fn)), len(events_of(copied))) == (2, 1)


# ---------------------------------------------------------------- pickles


def test_a_function_pickles(counted):
    fn, n, _ = counted
    fn(GOOD)
    restored = pickle.loads(pickle.dumps(fn))
    assert np.array_equal(restored(GOOD)[1], GOOD)
    assert n.get_value() == 1  # the restored one has a state of its own
    event = trip(restored, ZERO)
    assert (event.kind, event.first_index) == ("inf", (1,))
    assert np.array_equal(restored(GOOD)[1], 2 * GOOD)
    assert events_of(fn) == []


def test_a_pickled_function_keeps_its_settings():
    x = pt.dvector("x")
    y = pt.log(x)
    fn = guarded([x], [y, pt.sqrt(x)], action="record", big_threshold=50.0, max_events=2, exempt=y)
    fn(ZERO)
    restored = pickle.loads(pickle.dumps(fn))
    restored(ZERO)  # the logarithm is still left out
    assert events_of(restored) == []
    for _ in range(3):
        restored(100 * GOOD)
    assert [(e.kind, e.call) for e in events_of(restored)] == [("big", 3), ("big", 4)]


def test_a_function_with_inner_graphs_pickles():
    x = pt.dvector("x")
    states, _ = scan(
        lambda v, s: s * 0.5 + pt.log(v + 0 * s),
        sequences=[x],
        outputs_info=[pt.constant(0.0, dtype="float64")],
    )
    fn = pytensor.function([x], states, mode=guard_mode())
    restored = pickle.loads(pickle.dumps(fn))
    for f in (fn, restored):
        assert np.array_equal(f(GOOD), np.zeros(3))
        assert [step.step for step in trip(f, ZERO).path] == [1]


def _child(queue, expected):
    """In another process: receives a pickled error, and sends one of its own."""
    try:
        received = pickle.loads(expected)
        x = pt.dvector("x")
        fn = pytensor.function([x], pt.log(x), mode=GuardMode(True, True, True))
        try:
            fn(np.array([1.0, 0.0, 1.0]))
        except GuardError as error:
            queue.put((received.event.to_json(), error, error.event))
    except BaseException as error:
        queue.put(repr(error))
        raise


def test_errors_and_events_pass_between_processes():
    x = pt.dvector("x")
    fn = guarded([x], pt.log(x))
    with pytest.raises(GuardError) as caught:
        fn(ZERO)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue, pickle.dumps(caught.value)))
    child.start()
    answer = queue.get(timeout=300)
    child.join(timeout=60)
    assert isinstance(answer, tuple), answer
    as_seen, error, event = answer
    assert as_seen == caught.value.event.to_json()
    assert type(error) is GuardError
    assert error.event == event == caught.value.event
    assert str(error).splitlines()[0] == str(caught.value).splitlines()[0]


# ---------------------------------------------------------------- threads


def _run_threads(jobs):
    failures = []

    def guarded_job(job):
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded_job, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_threads_with_functions_of_their_own():
    x = pt.dvector("x")
    mode = guard_mode(max_events=1000)
    outputs = [pt.log(x).sum(), pt.sqrt(x) * 2.0, pt.exp(x), 1.0 / x]
    functions = [pytensor.function([x], out, mode=mode) for out in outputs]
    bad = [np.zeros(500), -np.ones(500), np.full(500, 99.0), np.zeros(500)]

    def job(fn, bad):
        def run():
            expected = fn(np.ones(500))
            for _ in range(50):
                assert np.array_equal(fn(np.ones(500)), expected)
                trip(fn, bad)

        return run

    _run_threads([job(*pair) for pair in zip(functions, bad, strict=True)])
    assert [len(events_of(fn)) for fn in functions] == [50] * 4
    assert len(mode.events) == 200


def test_threads_with_copies_of_one_function():
    x = pt.dvector("x")
    states = [shared(np.zeros(500), name=f"w{i}") for i in range(4)]
    fn = pytensor.function(
        [x], pt.log(x).sum(), updates={states[0]: states[0] + x}, mode=guard_mode()
    )
    copies = [fn] + [fn.copy(swap={states[0]: state}) for state in states[1:]]

    def job(f, state):
        def run():
            for i in range(50):
                f(np.ones(500))
                trip(f, -np.ones(500))
                assert (state.get_value() == i + 1).all()

        return run

    _run_threads([job(*pair) for pair in zip(copies, states, strict=True)])
    assert [len(events_of(f)) for f in copies] == [50] * 4


# ---------------------------------------------------------------- the kernel


BUILD = """
import numpy as np, pytensor
from theanoguard.guard.c import build as kernel
module = kernel.load()
guard = module.Guard(nan=True, inf=True, big=True, ints=False, limit=1e10, is_bad=bool,
                     save=print, verdict=print, enter=print, before_loss=print)
assert guard.scan(np.array([1.0, np.nan])) and not guard.scan(np.ones(3))
print(kernel.location())
"""


def _flags(base):
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    kept = [f for f in flags.split(",") if f and not f.startswith("base_compiledir")]
    return {**os.environ, "PYTENSOR_FLAGS": ",".join([*kept, f"base_compiledir={base}"])}


@pytest.mark.deep
def test_several_processes_build_the_kernel_at_once(tmp_path, needs_cxx):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD],
            env=_flags(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, answers
    assert len({out for out, _ in answers}) == 1
    assert len(list(tmp_path.glob("**/theanoguard_kernel_*"))) == 1  # and nothing left over


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, needs_cxx):
    """An empty folder for the kernel, which counts as not loaded."""
    monkeypatch.setattr(
        kernel,
        "config",
        SimpleNamespace(cxx=pytensor.config.cxx, compiledir=str(tmp_path), gcc__cxxflags=""),
    )
    plain = kernel._compiler_arguments
    monkeypatch.setattr(kernel, "_compiler_arguments", lambda: [*plain(), "-O0"])  # takes less time
    kernel.load.cache_clear()
    yield tmp_path
    kernel.load.cache_clear()


@pytest.mark.on_33
def test_the_kernel_is_built_anew_when_its_source_changes(elsewhere, monkeypatch):
    text = kernel.source()
    first = kernel.load()
    assert not hasattr(first, "changed")
    monkeypatch.setattr(
        kernel,
        "source",
        lambda: text.replace('{"WATCH", WATCH}', '{"changed", 1}, {"WATCH", WATCH}'),
    )
    kernel.load.cache_clear()
    second = kernel.load()
    assert second.changed == 1
    assert second.__file__ != first.__file__
    built = sorted(elsewhere.glob("theanoguard_kernel_*"))
    assert len(built) == 2
    # and not a second time
    times = [path.stat().st_mtime_ns for path in built]
    kernel.load.cache_clear()
    kernel.load()
    assert [path.stat().st_mtime_ns for path in built] == times


def test_without_a_compiler_it_is_said_once(caplog, monkeypatch, c_backend):
    x = pt.dvector("x")
    monkeypatch.setattr(pytensor.config, "cxx", "")
    kernel.load.cache_clear()
    try:
        for out in (pt.log(x), pt.sqrt(x)):
            fn = guarded([x], out)
            fn(GOOD)
            trip(fn, -GOOD)
        messages = [r.getMessage() for r in caplog.records if "no C compiler" in r.getMessage()]
        assert len(messages) == 1
    finally:
        kernel.load.cache_clear()
