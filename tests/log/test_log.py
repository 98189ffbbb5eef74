"""The log of events: complete, bounded, shared, and never in the way of the computation."""

import copy
import json
import logging
import pickle
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import theanoguard
from theanoguard import GuardError, GuardMode
from theanoguard._event import PathStep
from theanoguard.log import EventLog, read_log, read_logs
from theanoguard.records import GuardEvent

pytestmark = pytest.mark.on_30

EVENT = GuardEvent(
    kind="nan",
    role="node",
    node="Log(x)",
    op="Log",
    variable="loss",
    output=0,
    dtype="float64",
    shape=(3,),
    size=3,
    n_nan=1,
    n_posinf=0,
    n_neginf=0,
    n_big=0,
    first_index=(2,),
    first_value=float("nan"),
    path=(PathStep("Scan{step}", 4),),
    call=7,
)


ROOT = Path(theanoguard.__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_python(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT)


@pytest.fixture(scope="module")
def graph():
    x = pt.dvector("x")
    return [x], pt.log(x)


def trip(function):
    """Call a function with an element whose logarithm is bad."""
    try:
        function(np.array([1.0, -1.0]))
    except GuardError as error:
        return error


# -- the file


def test_an_event_comes_back(path):
    log = EventLog(path)
    events = [replace(EVENT, call=n) for n in range(3)]
    for event in events:
        log.add(event)
    assert read_log(path).events == events


@given(
    names=st.lists(st.text(), max_size=5),
    value=st.floats() | st.complex_numbers() | st.integers(),
)
def test_any_event_is_one_line(tmp_path_factory, names, value):
    path = tmp_path_factory.mktemp("log") / "log"
    log = EventLog(path, mode={"class": "GuardMode"})
    events = [replace(EVENT, variable=name, node=name, first_value=value) for name in names]
    for event in events:
        log.add(event)
    log.start()
    assert read_log(path).events == events
    assert path.read_bytes().count(b"\n") == 1 + len(events)


def test_the_header_comes_once_and_first(path):
    first = EventLog(path, mode={"checks": ["nan"]})
    first.start()
    first.add(EVENT)
    again = EventLog(path, mode={"checks": ["nan"]})  # as in a second run
    again.start()
    again.add(EVENT)
    header, *events = lines_of(path)
    assert header["schema"] == "theanoguard.log/1"
    assert [event["header"] for event in events] == [header["header"]] * 2
    assert all("event" in event for event in events)


def test_the_header_tells_what_it_ran_on(path):
    EventLog(path, mode={"action": "raise"}).start()
    [header] = read_log(path).headers.values()
    environment = header["environment"]
    assert header["mode"] == {"action": "raise"}
    assert environment["versions"]["numpy"] == np.__version__
    assert environment["versions"]["pytensor"] == pytensor.__version__
    assert environment["config"]["floatX"] == pytensor.config.floatX
    assert environment["config"]["optimizer"] == pytensor.config.optimizer
    assert environment["device"] == "cpu"
    assert environment["compiler"]["cxx"] == pytensor.config.cxx
    assert set(environment["compiler"]) == {"cxx", "version", "flags", "blas"}


def test_another_mode_has_a_header_of_its_own(path):
    first = EventLog(path, mode={"action": "raise"})
    second = EventLog(path, mode={"action": "warn"})
    for log in (first, second, first):
        log.add(EVENT)
    log = read_log(path)
    actions = [log.headers[entry.header]["mode"]["action"] for entry in log.entries]
    assert actions == ["raise", "warn", "raise"]
    assert len(lines_of(path)) == 2 + 3


def test_a_log_that_is_removed_starts_again(path):
    log = EventLog(path)
    log.add(EVENT)
    path.unlink()
    log.add(EVENT)
    assert len(read_log(path).headers) == len(read_log(path).events) == 1


def files_of(path):
    """The log and what it was rotated to, oldest first."""
    number = len(list(path.parent.glob(f"{path.name}*")))
    return [path.with_name(f"{path.name}.{n}") for n in range(number - 1, 0, -1)] + [path]


def test_rotation_is_bounded_and_keeps_the_last_events(path):
    log = EventLog(path, max_bytes=8000, backups=2)
    for n in range(60):
        log.add(replace(EVENT, call=n))
    files = files_of(path)
    assert [file.name for file in files] == ["events.jsonl.2", "events.jsonl.1", "events.jsonl"]
    assert all(file.stat().st_size <= 8000 for file in files)
    for file in files:
        assert "schema" in lines_of(file)[0]
    calls = [event.call for event in read_logs(files).events]
    assert calls == list(range(calls[0], 60))
    assert calls[0] > 0


def test_without_backups_the_file_starts_again(path):
    log = EventLog(path, max_bytes=8000, backups=0)
    for n in range(60):
        log.add(replace(EVENT, call=n))
    assert files_of(path) == [path]
    assert path.stat().st_size <= 8000
    assert read_log(path).events[-1].call == 59


def test_a_line_larger_than_the_bound_is_kept(path):
    log = EventLog(path, max_bytes=10, backups=1)
    for n in range(3):
        log.add(replace(EVENT, call=n))
    assert [event.call for file in files_of(path) for event in read_log(file).events] == [1, 2]


def test_threads_share_a_log(path):
    log = EventLog(path, max_bytes=20_000, backups=50)

    def work(number):
        for n in range(40):
            log.add(replace(EVENT, call=n, function=str(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs = [read_log(file) for file in files_of(path)]
    assert [log.damaged for log in logs] == [0] * len(logs)
    assert [len(log.headers) for log in logs] == [1] * len(logs)
    seen = [(event.function, event.call) for log in logs for event in log.events]
    assert sorted(seen) == sorted((str(number), n) for number in range(6) for n in range(40))


WRITE_MANY = """
import sys
from dataclasses import replace
from theanoguard.records import GuardEvent
from theanoguard.log import EventLog, read_log

path, first, name = sys.argv[1:]
event = read_log(first).events[0]
log = EventLog(path, max_bytes=20_000, backups=50)
for n in range(100):
    log.add(replace(event, call=n, function=name))
"""


def test_processes_share_a_log(path, tmp_path_factory):
    first = tmp_path_factory.mktemp("first") / "log"
    EventLog(first).add(EVENT)
    workers = [run_python(WRITE_MANY, path, first, name) for name in "ab"]
    assert [worker.wait() for worker in workers] == [0, 0]
    logs = [read_log(file) for file in files_of(path)]
    assert len(logs) > 1
    assert [len(log.headers) for log in logs] == [1] * len(logs)
    assert [log.damaged for log in logs] == [0] * len(logs)
    seen = [(event.function, event.call) for log in logs for event in log.events]
    assert sorted(seen) == sorted((name, n) for name in "ab" for n in range(100))


CRASH = """
import os, signal, sys
import numpy as np, pytensor, pytensor.tensor as pt
from theanoguard import GuardMode

x = pt.dvector("x")
f = pytensor.function([x], pt.log(x), mode=GuardMode(action="record", log=sys.argv[1]))
for n in range(3):
    f(np.array([1.0, -1.0]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_log_is_complete_after_a_crash(path):
    assert run_python(CRASH, path).wait() == -9
    assert [event.call for event in read_log(path).events] == [1, 2, 3]


def test_a_truncated_line_costs_only_itself(path):
    log = EventLog(path)
    log.add(EVENT)
    log.add(replace(EVENT, call=8))
    path.write_bytes(path.read_bytes()[:-30])
    found = read_log(path)
    assert (found.events, found.damaged) == ([EVENT], 1)
    log.add(replace(EVENT, call=9))
    found = read_log(path)
    assert ([event.call for event in found.events], found.damaged) == ([7, 9], 1)
    assert len(found.headers) == 1


def test_a_log_pickles_by_its_path(path):
    log = EventLog(path, max_bytes=5000, backups=7, mode={"action": "warn"})
    log.add(EVENT)
    again = pickle.loads(pickle.dumps(log))
    again.add(EVENT)
    assert (again.path, again.max_bytes, again.backups, again.mode) == (
        (log.path, 5000, 7, {"action": "warn"})
    )
    assert len(read_log(path).events) == 2
    assert len(read_log(path).headers) == 1


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = EventLog("events.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    log.add(EVENT)
    assert read_log(tmp_path / "events.jsonl").events == [EVENT]


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path, caplog):
    folder = tmp_path / "folder"
    folder.mkdir()
    log = EventLog(folder / "log")
    shutil.rmtree(folder)
    for _ in range(3):
        log.add(EVENT)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("theanoguard", logging.ERROR)
    assert f"the log {log.path} cannot be written" in record.getMessage()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 3}, TypeError, "path must be a text or a path, not int 3"),
        ({"path": b"x"}, TypeError, "not bytes b'x'"),
        ({"path": "no/such/folder/log"}, ValueError, "No such file or directory"),
        ({"path": "."}, ValueError, "not a regular file"),
        ({"path": "/dev/null"}, ValueError, "not a regular file"),
        ({"path": "log", "max_bytes": 0}, ValueError, "max_bytes must be at least 1"),
        ({"path": "log", "max_bytes": 1.5}, TypeError, "max_bytes must be an integer"),
        ({"path": "log", "backups": -1}, ValueError, "backups must be at least 0"),
    ],
)
def test_bad_arguments(arguments, error, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        EventLog(**arguments)


def test_somebody_elses_file_is_left_alone(path):
    path.write_text("precious\n")
    with pytest.raises(ValueError, match="holds something else than a log of events"):
        EventLog(path)
    assert path.read_text() == "precious\n"


# -- reading


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("epoch,loss\n1,0.5\n", "is no log of events: it has no header"),
        ('{"a": 1}\n', "neither a header nor an event"),
        ("[1, 2]\n", "neither a header nor an event"),
        ('{"schema": "theanoguard.log/2", "header": "x"}\n', "'theanoguard.log/2', not"),
        ('{"header": "x", "event": {"schema": "theanoguard.event/9"}}\n', "theanoguard.event/9"),
        ('{"header": "x", "event": 3}\n', "Line 1"),
        (
            '{"schema": "theanoguard.log/1", "header": "x", "environment": {}, "mode": {}}\n',
            "not as it was written",
        ),
        ('{"schema": "theanoguard.log/1", "header": "x"}\n', "no 'environment'"),
    ],
)
def test_what_is_no_log_is_refused(path, content, text):
    path.write_text(content)
    with pytest.raises(ValueError, match=text):
        read_log(path)


# -- the mode


@pytest.mark.parametrize("action", ["raise", "warn", "record", lambda event: None])
def test_every_action_logs(action, path, graph):
    f = pytensor.function(*graph, mode=GuardMode(action=action, log=path))
    assert read_log(path).events == []
    trip(f)
    trip(f)
    assert read_log(path).events == theanoguard.events_of(f)
    assert [event.call for event in read_log(path).events] == [1, 2]


def test_the_header_tells_the_mode(path, graph):
    mode = GuardMode(True, True, False, big_threshold=5.0, action="record", exempt="w*", log=path)
    mode = mode.excluding("fusion")
    pytensor.function(*graph, mode=mode)
    [header] = read_log(path).headers.values()
    settings = header["mode"]
    assert settings["checks"] == ["nan", "inf"]
    assert settings["action"] == "record"
    assert settings["exempt"] == ["w*"]
    assert "fusion" in settings["optimizer"]["exclude"]


@pytest.mark.parametrize(
    "remade",
    [
        copy.copy,
        copy.deepcopy,
        GuardMode.clone,
        lambda mode: mode.including("specialize"),
        lambda mode: pickle.loads(pickle.dumps(mode)),
    ],
    ids=["copy", "deepcopy", "clone", "including", "pickle"],
)
def test_a_remade_mode_keeps_the_log(remade, path, graph):
    log = EventLog(path, max_bytes=50_000, backups=1)
    f = pytensor.function(*graph, mode=remade(GuardMode(action="record", log=log)))
    trip(f)
    assert len(read_log(path).events) == 1
    kept = f.maker.mode.recorder.log
    assert (kept.path, kept.max_bytes, kept.backups) == (str(path), 50_000, 1)


def test_a_remade_function_keeps_the_log(path, graph):
    f = pytensor.function(*graph, mode=GuardMode(log=path))
    for function in (f.copy(), pickle.loads(pickle.dumps(f))):
        trip(function)
    assert len(read_log(path).events) == 2
    assert len(read_log(path).headers) == 1


def test_an_inner_graph_logs_with_its_path(path):
    def step(x):
        return pt.log(x)

    x = pt.dscalar("x")
    steps = pytensor.scan(step, outputs_info=[x], n_steps=3, return_updates=False)
    f = pytensor.function([x], steps, mode=GuardMode(action="record", log=path))
    f(2.0)
    [event] = read_log(path).events
    assert [inner.step for inner in event.path] == [2]  # log(log(log(2)))


def test_events_have_the_users_expressions(path):
    x, w = pt.dvector("x"), pytensor.shared(np.zeros(3), name="w")
    loss = pt.log(x - 0.5).sum() + pt.sqrt((w**2).sum())
    mode = GuardMode(action="record", log=path)
    f = pytensor.function([x], [pt.grad(loss, w), pt.exp(pt.log(x - 0.5) * 2)], mode=mode)
    for start in (1.0, 0.0, -1.0):
        f(np.array([start, 1.0]))
    events = read_log(path).events
    written = {event.written for event in events}
    assert written == {"log(x - 0.5)", "gradient of pt.sqrt((w**2).sum())"}
    assert {e.title.partition(" at ")[0] for e in events} == {f"NaN in {w}" for w in written}
    assert "Composite" not in repr(read_log(path)) + "".join(map(str, events))
    assert [GuardEvent.from_json(event.to_json()).written for event in events] == [None] * 5


def test_a_bad_log_is_refused_by_the_mode(tmp_path):
    with pytest.raises(ValueError, match="cannot be written"):
        GuardMode(log=tmp_path / "missing" / "log")
    with pytest.raises(TypeError, match="log must be"):
        GuardMode(log=True)


# -- logging


LEVELS = {"warn": logging.WARNING, "raise": logging.INFO, "record": logging.INFO}


@pytest.mark.parametrize("action", [*LEVELS, print], ids=str)
def test_one_record_for_each_trip(action, graph, caplog):
    caplog.set_level(logging.INFO, "theanoguard")
    f = pytensor.function(*graph, mode=GuardMode(action=action))
    caplog.clear()
    for _ in range(2):
        trip(f)
    assert [record.name for record in caplog.records] == ["theanoguard"] * 2
    assert [record.event for record in caplog.records] == theanoguard.events_of(f)
    assert {record.levelno for record in caplog.records} == {LEVELS.get(action, logging.INFO)}
    first_line = caplog.records[0].getMessage().splitlines()[0]
    assert first_line.startswith("NaN in ") and first_line.endswith("element [1]")


def test_a_raised_trip_is_quiet_by_default(graph, caplog):
    f = pytensor.function(*graph, mode=GuardMode())
    caplog.clear()
    assert trip(f) is not None
    assert caplog.records == []
