"""A large graph: the work grows with its size, and what is shown of it has a limit."""

import importlib
import inspect
import sys
from dataclasses import fields, is_dataclass
from functools import partial

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import GuardError, GuardMode, inspect_graph, track_provenance
from theanoguard.log import EventLog, read_log
from theanoguard.training import GradientGuard, Watch, guarded_updates

pytestmark = pytest.mark.on_30

MOST = 20_000
MOST_STORED = 250_000  # of an interactive view; the scripts and styles have about 20 kB
N = 2_000


def chain(n, **settings):
    """A function of n nodes that one line of a loop builds, and its logarithm."""
    x = y = pt.dscalar("x")
    for _ in range(n):
        y = pt.sin(y)
    with track_provenance():
        return pytensor.function([x], pt.log(y), **{"mode": Mode("py", None), **settings})


def tree(function):
    return inspect_graph(function).html()


def calls(work):
    """How many functions some work calls."""
    count = 0

    def tell(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_of_a_tree_grows_with_its_nodes():
    tree(chain(1))  # (what is loaded when it is first used)
    small, large = (calls(partial(tree, chain(n))) for n in (250, 500))
    assert large < 2.2 * small


# --------------------------------------------------------------------------------------
# What is shown has a limit


MODULES = ("", ".explain", ".log", ".pymc", ".records", ".stable", ".training")


def public_classes():
    """Every public class of the package, but for operations and errors."""
    for name in MODULES:
        try:
            module = importlib.import_module(f"theanoguard{name}")
        except ImportError:  # PyMC is not installed
            continue
        for public in module.__all__:
            kind = getattr(module, public)
            if not (inspect.isclass(kind) and kind.__module__.startswith("theanoguard.")):
                continue
            if not issubclass(kind, Exception | pytensor.graph.op.Op):
                yield kind


CLASSES = sorted(set(public_classes()), key=lambda kind: kind.__name__)
RECORDS = [k for k in CLASSES if is_dataclass(k) and k.__dataclass_params__.repr]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_with_large_fields_is_shown_in_part(kind, monkeypatch):
    record = object.__new__(kind)
    if hasattr(kind, "_repr_html_"):  # (it is shown by its text, which needs true fields)
        monkeypatch.setattr(kind, "__str__", lambda self: "ö" * 50_000)
    for field in fields(kind):
        object.__setattr__(record, field.name, ("ö" * 5_000,) * 10)
    shown = repr(record)
    assert len(shown.encode()) <= MOST
    assert "left out: the fields of" in shown


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the package gives for a large graph, by its class."""
    event_log = EventLog(tmp_path_factory.mktemp("log") / "events.jsonl")
    mode = GuardMode(optimizer=None, log=event_log)
    function, profiled = chain(N, mode=mode), chain(N, profile=True)
    profiled(0.5)
    y, x = function.maker.fgraph.outputs[0], function.maker.fgraph.inputs[0]
    with pytest.raises(GuardError) as caught:
        function(-0.5)
    parameters = [pytensor.shared(np.full(2, 0.5), name=f"w{i}" * 20) for i in range(N)]
    watch = Watch(parameters, guards=[GradientGuard(1.0)])
    log = read_log(event_log.path)
    log.entries *= N
    found = [
        inspect_graph(function),
        inspect_graph(y, events={x: "far below"}),
        inspect_graph(caught.value),
        inspect_graph(function).picture(),
        inspect_graph(function).model,
        theanoguard.provenance(function),
        theanoguard.view.profile_nodes(profiled),
        theanoguard.step_through(function, 0.5),
        theanoguard.compare(function, [0.5], ["py"]),
        theanoguard.exact([y.owner.inputs[0]], {x: 0.5}),
        theanoguard.precision(function, 0.5),
        theanoguard.monitor.detect_nan,
        theanoguard.monitor.MonitorMode(),
        GuardMode.summary(function),
        guarded_updates([(w, w + 1) for w in parameters]),
        GradientGuard(1.0),
        caught.value.explanation,
        caught.value.event,
        log,
        log.entries[0],
        mode,
        event_log,
        watch,
    ]
    return found


def test_whatever_a_large_graph_gives_is_shown_in_part(shown):
    for thing in shown:
        text = repr(thing)
        assert len(text.encode()) <= MOST, type(thing)
        bundle = getattr(thing, "_repr_mimebundle_", dict)()
        assert len(bundle.get("text/plain", "").encode()) <= MOST, type(thing)
        html = thing._repr_html_() if hasattr(thing, "_repr_html_") else ""
        assert "\x1b" not in html and "<script>alert" not in html
        stored = [*bundle.values(), html]
        assert all(len(part) <= MOST_STORED for part in stored), type(thing)


RESULTS = (
    "Comparison Exact Explanation Findings GuardSummary Inspection Log LogEntry Precision "
    "ProvenanceMap Stepper"
)


def test_every_result_has_a_display_of_its_own(shown):
    x = pt.dscalar("<b>x</b>")
    y = pt.log(x)
    found = [*shown, theanoguard.lint(y, mode="FAST_COMPILE"), theanoguard.exact(y, {x: 2.0})]
    rich = {type(thing).__name__: thing for thing in found if hasattr(thing, "_repr_html_")}
    assert set(RESULTS.split()) <= set(rich)
    assert "&lt;b&gt;x&lt;/b&gt;" in rich["Findings"]._repr_html_()
    assert "more left out: entries has all of them." in rich["Log"]._repr_html_()
    assert "<table>" in rich["Stepper"]._repr_html_() or rich["Stepper"].step is None
    for thing in rich.values():
        assert not repr(thing).startswith(f"{type(thing).__name__}("), type(thing)
        assert " object at 0x" not in repr(thing)


def test_every_public_class_is_among_them(shown):
    kinds = {type(thing) for thing in shown} | set(RECORDS)
    assert {kind.__name__ for kind in CLASSES if kind not in kinds} <= {
        "guarding",
        "MLflow",  # (hold what the user gives)
        "NanGuardMode",
        "Recording",
        "TensorBoard",
    }


def test_a_text_that_is_cut_says_what_is_missing_and_how_to_see_it(shown):
    of_function, of_variable, of_error = shown[:3]
    for text in (repr(of_function), repr(of_variable)):
        assert " left out: theanoguard.debugprint(" in text
    assert repr(of_variable).startswith("x <<< far below\n")  # (its line is not reached)
    assert "left out" not in repr(of_error)
    assert "lines left out" in repr(next(t for t in shown if type(t).__name__ == "Log"))
