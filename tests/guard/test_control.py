"""Ctrl-C, signal handlers, forks, threads and exits while a guarded function runs."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend

from theanoguard import GuardError, GuardMode
from theanoguard.guard.every_function import NotingRun

pytestmark = [
    pytest.mark.on_33,
    pytest.mark.skipif(backend() != "c", reason="is about the C backend"),
    pytest.mark.usefixtures("needs_cxx"),
]
only_posix = pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")

PROGRAM = """
import os, signal, subprocess, sys
import numpy as np, pytensor, pytensor.tensor as pt
from pytensor.scan.utils import until
from theanoguard import GuardError, GuardMode

guard = GuardMode(True, True, True, backend="c")
w, e = (pytensor.shared(np.ones((4, 3)), name=name) for name in "we")
n, k = pt.lscalar("n"), pt.lvector("k")
"""


def run(program, timeout=120):
    """Run a program in a child process; return its output."""
    text = PROGRAM + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@only_posix
@pytest.mark.parametrize("loop", ["steps", "while", "inner"])
def test_ctrl_c_stops_a_loop(loop):
    """It stops within the second, not after an hour, and nothing has changed."""
    lines = run(
        f"""
        loop = {loop!r}

        def many_steps(u):
            return pytensor.scan(
                lambda u: (pt.tanh(u) + 0.1, until(u[0, 0] < 0)) if loop == "while"
                else pt.tanh(u) + 0.1,
                outputs_info=[u], n_steps=n, return_updates=False,
            )[-1]

        if loop == "inner":
            last = pytensor.scan(
                many_steps, outputs_info=[w * 1.0], n_steps=2, return_updates=False
            )[-1]
        else:
            last = many_steps(w * 1.0)
        updates = {{w: w + last, e: pt.inc_subtensor(e[k], last[k])}}
        f = pytensor.function([n, k], last, updates=updates, mode=guard)
        f(3, [1, 1])
        before = w.get_value(), e.get_value()
        child = subprocess.Popen(
            [sys.executable, "-c", "import os, signal, sys, time; time.sleep(1.0);"
            f"os.kill({{os.getpid()}}, signal.SIGINT)"]
        )
        try:
            f(200_000_000, [0, 2])
        except KeyboardInterrupt:
            print("stopped")
        child.wait()
        print(all((a == b.get_value()).all() for a, b in zip(before, (w, e))))
        f(3, [1, 1])
        e.set_value(np.full((4, 3), np.nan))
        try:
            f(3, [1, 1])
        except GuardError as error:
            print(error.event.role)
        """
    )
    assert lines == ["stopped", "True", "shared"]


@only_posix
@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_a_signal_handler_hides_nothing(linker):
    """NumPy in a signal handler clears the flags: they have been taken in before."""
    x = pt.dvector("x")
    mode = GuardMode(True, True, False, linker=linker).excluding("fusion")
    fn = pytensor.function([x], pt.cos(pt.tanh(1 / x)), mode=mode)
    numbers = np.full(1_000_000, 0.5)
    fn(numbers)
    numbers[7] = 0.0
    before = signal.signal(signal.SIGALRM, lambda *_: np.log(np.ones(3)))
    try:
        for _ in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            with pytest.raises(GuardError):
                fn(numbers)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@only_posix
def test_ctrl_c_while_everything_is_put_back():
    """Restoring is one piece: Ctrl-C comes before it, and then it is done again, or after it."""
    x = pt.dvector("x")
    w, e = (pytensor.shared(np.ones((4, 3)), name=name) for name in "we")
    updates = {w: w * 2, e: pt.inc_subtensor(e[1], x)}
    fn = pytensor.function([x], pt.log(x), updates=updates, mode=GuardMode())
    runtime = fn.vm.guard
    kernel = runtime.kernel

    class Interrupted:
        def __getattr__(self, name):
            if name == "undo":
                runtime.kernel = kernel
                signal.raise_signal(signal.SIGINT)
            return getattr(kernel, name)

    runtime.kernel = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        fn(-np.ones(3))
    np.testing.assert_array_equal(w.get_value(), 1)
    np.testing.assert_array_equal(e.get_value(), 1)


@only_posix
def test_a_fork_after_compiling():
    lines = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        x = pt.dvector("x")
        f = pytensor.function([x], pt.log(x), updates={w: w * 2}, mode=guard)
        f(np.ones(3))
        for _ in range(2):
            child = os.fork()
            try:
                f(-np.ones(3))
            except GuardError as error:
                found = error.event.op
            if child == 0:
                os._exit(0 if found == "Log" else 1)
            print(found, os.waitpid(child, 0)[1], w.get_value()[0, 0])
        """
    )
    assert lines == ["Log 0 2.0"] * 2


def test_threads_with_copies():
    """Each thread has flags of its own; a thread that ends leaves nothing behind."""
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(x).sum(), mode=GuardMode(True, True, False))
    found = []

    def work(fn, bad):
        for i in range(200):
            value = np.full(50, -1.0 if bad and i % 7 == 0 else 1.0)
            try:
                fn(value)
                found.append(bad and i % 7 == 0)
            except GuardError:
                found.append(not (bad and i % 7 == 0))

    threads = [threading.Thread(target=work, args=(fn.copy(), i % 2)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1200
    assert not any(found)


@pytest.mark.parametrize("how", ["pass", "sys.exit(0)", "raise KeyboardInterrupt"])
def test_an_interpreter_that_shuts_down(how):
    """Functions in globals, in cycles, and in a daemon thread are no trouble at exit."""
    lines = run(
        f"""
        import threading

        x = pt.dvector("x")
        f = pytensor.function([x], pt.log(x), updates={{w: w * 2}}, mode=guard)
        g = pytensor.function([x], pt.exp(x), mode=guard)
        cycle = [f]
        cycle.append(cycle)
        sys.modules["kept"] = f

        def forever():
            while True:
                g(np.ones(3))

        threading.Thread(target=forever, daemon=True).start()
        for value in (1.0, -1.0):
            try:
                f(np.full(3, value))
            except GuardError:
                print("found", flush=True)
        try:
            {how}
        except KeyboardInterrupt:
            pass
        """
    )
    assert lines == ["found"]


LIMITED = """
import resource

x = pt.dvector("x")
updates = {{w: w + pt.log(x[0]), e: pt.inc_subtensor(e[k], 0.0)}}
f = pytensor.function([x, k], pt.log(x), updates=updates, mode=guard)
good, bad, rows = np.ones(3), np.zeros(3), np.array([1, 2])


def play(n_errors, n_calls):
    for i in range(n_errors):
        try:
            f(bad, rows)
        except GuardError as error:
            assert error.event.kind == "inf"
    for i in range(n_calls):
        f(good, rows)


def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


play(20, 2000)
before = used()
play({n_errors}, {n_calls})
print((used() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in pages")
def test_errors_and_calls_leave_no_memory():
    [megabytes] = run(LIMITED.format(n_errors=60, n_calls=20_000))
    assert int(megabytes) <= 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in pages")
def test_a_million_calls_and_a_thousand_errors():
    [megabytes] = run(LIMITED.format(n_errors=1000, n_calls=1_000_000), timeout=3600)
    assert int(megabytes) <= 16


def test_a_function_that_prints_is_freed():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(pytensor.printing.Print("x")(x)), mode=GuardMode())
    fn([1.0])
    graph = weakref.ref(fn.maker.fgraph)
    del fn
    gc.collect()
    assert graph() is None


@only_posix
def test_other_threads_run_while_a_loop_does():
    """The loop runs in C: it lets Python's other threads run, as a loop without a guard does."""
    lines = run(
        """
        import threading
        last = pytensor.scan(
            lambda u: pt.tanh(u) + 0.1, outputs_info=[w * 1.0], n_steps=n, return_updates=False
        )[-1]
        f = pytensor.function([n], last, mode=guard)
        f(3)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            f(200_000_000)
        except KeyboardInterrupt:
            print("stopped")
        """
    )
    assert lines == ["stopped"]


def test_each_error_of_a_noting_run_has_the_explanation_of_its_event():
    x = pt.dvector("x")
    with NotingRun() as run:
        for operation in (pt.log, pt.sqrt, pt.reciprocal):
            f = pytensor.function([x], operation(x), mode="CVM")
            with pytest.raises(GuardError):
                f([0.0 if operation is pt.reciprocal else -1.0])
    errors = run.trips.errors()
    assert [error.event.op for error in errors] == [e.explanation.event.op for e in errors]
    assert len({error.event.op for error in errors}) == 3
    run.trips.clear()
    assert run.trips.errors() == []
