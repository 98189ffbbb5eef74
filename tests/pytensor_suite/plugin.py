"""A pytest plugin that judges the guard by PyTensor's own tests.

It compiles under a guard whatever the tests compile, and looks over its shoulder: what is
reported must be bad, and what a function returns must be good or have been reported.
``run.py`` writes what it needs into the environment:

``PYTENSOR_SUITE_SOURCE``
    The directory that holds the package ``tests``.
``PYTENSOR_SUITE_GUARDED``
    Whether there is a guard at all.
``PYTENSOR_SUITE_BIG``
    Above which magnitude a number is big.  Below the guard's default inputs are not checked: most
    would be big, and what follows from a trip is not reported.
``PYTENSOR_SUITE_AUDIT``
    Whether the guards audit what they leave out.
``PYTENSOR_SUITE_NOTES``
    A file to which one JSON record is added for each test that compiled something.
"""

import json
import logging
import os
from collections import Counter
from pathlib import Path

import auditing
import names
import numpy as np
import pytest
import scipy.sparse
from pytensor.link.basic import PerformLinker
from pytensor.link.c.basic import CLinker, OpWiseCLinker

from theanoguard._pytensor import Mode, VMLinker
from theanoguard.guard.c.linker import OuterVM
from theanoguard.guard.every_function import NotingRun, Trips
from theanoguard.guard.graph.runtime import JittedVM
from theanoguard.guard.reporting import Reporter

SOURCE = Path(os.environ["PYTENSOR_SUITE_SOURCE"])
GUARDED = os.environ["PYTENSOR_SUITE_GUARDED"] == "1"
BIG = float(os.environ["PYTENSOR_SUITE_BIG"])
AUDIT = os.environ["PYTENSOR_SUITE_AUDIT"] == "1"
# What computes the same as linkers that cannot be guarded, in C or in Python.
LIKE = {
    CLinker: lambda linker: VMLinker(use_cloop=True),
    OpWiseCLinker: lambda linker: VMLinker(linker.allow_gc, use_cloop=True),
    PerformLinker: lambda linker: VMLinker(linker.allow_gc, use_cloop=False, c_thunks=False),
}
SAMPLES = 5  # trips of one test that are written down


def numbers(value):
    """The numbers of a value as one array; an empty one where there are none."""
    if scipy.sparse.issparse(value):
        value = value.data
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic | float) else np.empty(0)
    return array if array.dtype.kind in "fc" else np.empty(0)


def census(value):
    """How many numbers are NaN, infinite, and finite but big."""
    array = numbers(value)
    with np.errstate(all="ignore"):
        nan, inf = np.isnan(array), np.isinf(array)
        inf &= ~nan
        wide = array.astype("complex128" if array.dtype.kind == "c" else "float64")
        big = ~nan & ~inf & (np.abs(wide) > BIG)
    return int(nan.sum()), int(inf.sum()), int(big.sum())


class Log(Trips):
    """Where all guards report; the only one of its kind, also where a mode is pickled."""

    def explain(self, explanation):
        """Note whether the graph, run again node by node, gives the same bad value."""
        JUDGE.counts["explained"] += 1
        if not explanation.reproduced:
            JUDGE.note("unreproduced", event=str(self.events[-1]), why=str(explanation)[:500])

    def __reduce__(self):
        return get_log, ()


def get_log():
    return JUDGE.trips


class Judge(NotingRun):
    """Guards all that is compiled, and notes what the guards do."""

    def __init__(self):
        super().__init__(big_threshold=BIG, check_inputs=BIG >= 1e10, action="record")
        self.trips = Log()
        self.counts = Counter()
        self.samples = []

    def guard(self, mode):
        if type(mode.linker) in LIKE:
            mode = Mode(LIKE[type(mode.linker)](mode.linker), mode.provided_optimizer, mode.optdb)
        return super().guard(mode)

    def note(self, what, **sample):
        self.counts[what] += 1
        if len(self.samples) < SAMPLES:
            self.samples.append({"what": what, **sample})

    def look_at_trip(self, trip):
        """Count with NumPy what a guard has counted, where it hands the value out.

        The guard counts what the operation has made bad, NumPy also what was bad before it.
        """
        event = trip.event
        told = event.n_nan, event.n_posinf + event.n_neginf, event.n_big
        found = told if trip.value is None else census(trip.value)
        agree = any(told) and all(n <= most for n, most in zip(told, found, strict=True))
        what = "trips" if agree else "false"
        self.note(what, event=str(event), told=told, found=found, value=str(event.first_value))

    def look_at_result(self, fgraph, cells, calls, events):
        """Look for a bad value in what a function returns, if nothing has been reported."""
        self.counts["calls"] += 1
        if events and events[-1].call == calls:
            return
        for variable, cell in zip(fgraph.outputs, cells, strict=True):
            is_made = variable.owner is not None or self.settings["check_inputs"]
            if is_made and any(census(cell[0])):
                self.note("missed", value=str(cell[0])[:200], variable=str(variable))

    def watch(self):
        """Look at every trip and at what every call returns."""
        act, jitted, outer = Reporter.act_on, JittedVM.__call__, OuterVM.__call__

        def look(reporter, trip):
            self.look_at_trip(trip)
            return act(reporter, trip)

        def call_outer(vm, *args, **kwargs):
            result = outer(vm, *args, **kwargs)
            guard = vm.guard
            cells = [guard.storage_map[v] for v in guard.fgraph.outputs]
            if result is not None:  # the cells may have been emptied
                cells = [[value] for value in result]
            self.look_at_result(guard.fgraph, cells, guard.calls, guard.own.events)
            return result

        def call_jitted(vm):
            result = jitted(vm)
            guard = vm.guard
            self.look_at_result(guard.fgraph, vm.outputs, guard.calls, guard.own.events)
            return result

        Reporter.act_on, OuterVM.__call__, JittedVM.__call__ = look, call_outer, call_jitted
        if AUDIT:
            auditing.install(lambda error: self.note("left out", error=str(error)[:500]))
        logging.getLogger("theanoguard").addHandler(Faults(self))

    def write(self, test):
        """Write down what has been noted during a test, and forget it."""
        counts = {**self.counts, "guarded": self.guarded, "left": self.left}
        if any(counts.values()):
            with open(os.environ["PYTENSOR_SUITE_NOTES"], "a") as file:
                file.write(json.dumps({"test": test, **counts, "samples": self.samples}) + "\n")
        self.counts, self.samples, self.guarded, self.left = Counter(), [], 0, 0
        self.trips.clear()


class Faults(logging.Handler):
    """Notes the errors that the guard swallows, so that a trip is not lost."""

    def __init__(self, judge):
        super().__init__(logging.ERROR)
        self.judge = judge

    def emit(self, record):
        self.judge.note("unexplained", error=str(record.exc_info and record.exc_info[1])[:500])


JUDGE = Judge()


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="what the tests' own conftest.py has")


def pytest_configure(config):
    names.prepare()
    config.addinivalue_line("markers", "slow: mark test as slow to run")
    if GUARDED:
        census(np.ones(1))  # a test counts bytes from one call to the next
        JUDGE.watch()
        JUDGE.start()


def pytest_collection_modifyitems(items):
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow"))


def pytest_pycollect_makemodule(module_path):
    names.give_names(module_path, SOURCE)


def pytest_runtest_logfinish(nodeid):
    if GUARDED:
        JUDGE.write(nodeid)
